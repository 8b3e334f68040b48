/* Arrays of positions: whether they are in the domain, and the step between them. */
#ifndef POSENC_POSITIONS_H
#define POSENC_POSITIONS_H

#include <math.h>
#include <stdlib.h>

#include "kernel.h"

/* Returns whether position + offset is certain to lie in the domain, [-2**63, 2**63), for positions from lowest to highest. */
static inline int is_inside(int64_t lowest, int64_t highest, double offset) {
    const int64_t half = (int64_t)1 << 62;
    return offset == 0 || (-half <= lowest && highest < half && -0x1p62 <= offset && offset <= 0x1p62);
}

static inline int are_integers_inside(const int64_t *p, ptrdiff_t rows, double offset) {
    int64_t lowest = 0, highest = 0;
    for (ptrdiff_t i = 0; offset != 0 && i < rows; i++) {
        lowest = p[i] < lowest ? p[i] : lowest;
        highest = p[i] > highest ? p[i] : highest;
    }
    return is_inside(lowest, highest, offset);
}

/* The same for an array of reals; NaN and infinity are accepted. */
static inline int are_reals_inside(const double *p, ptrdiff_t rows, double offset) {
    const double bound = offset == 0 ? 0x1p63 : 0x1p62;
    for (ptrdiff_t i = 0; i < rows; i++)
        if ((p[i] >= bound || p[i] < -bound) && isfinite(p[i])) return 0;
    return is_inside(0, 0, offset);
}

/* Returns positions as integers, in memory that the caller must free, or NULL if one is not an integer or memory is exhausted. */
static inline int64_t *integers_of(const double *p, ptrdiff_t rows) {
    for (ptrdiff_t i = 0; i < rows; i++)
        if (floor(p[i]) != p[i] || !isfinite(p[i])) return NULL;
    int64_t *const integers = malloc((size_t)rows * sizeof *integers);
    for (ptrdiff_t i = 0; integers && i < rows; i++) integers[i] = (int64_t)p[i];
    return integers;
}

static inline uint64_t distance(int64_t a, int64_t b) { return b > a ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b; }

/* Returns the distance between the positions of successive rows with which angle addition can compute most of them, or 0.  This
 * is the distance of all rows, or 1 if at least half of all rows are 1 from the next, as in packed sequences.
 * An evenly spaced array is replaced by its first position and its step. */
static inline uint64_t spacing(job_t *job, ptrdiff_t rows) {
    const int64_t *const p = job->integers;
    if (job->reals || rows < 2) return 0;
    if (!p) return (int64_t)job->step < 0 ? 0 - job->step : job->step;
    const uint64_t step = distance(p[0], p[1]);
    ptrdiff_t even = 0, ones = 0;
    for (ptrdiff_t i = 0; i < rows - 1; i++) {
        const uint64_t next = distance(p[i], p[i + 1]);
        even += next == step;
        ones += next == 1;
    }
    /* the positions do not turn around; the division is exact, but step times the number of pairs could exceed 64 bits */
    if (step && even == rows - 1 && distance(p[0], p[rows - 1]) / step == (uint64_t)(rows - 1)) {
        job->start = (uint64_t)p[0];
        job->step = p[1] > p[0] ? step : 0 - step;
        job->integers = NULL;
        return step;
    }
    return 2 * ones >= rows - 1;
}

#endif
