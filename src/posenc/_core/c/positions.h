/* Exact positions: an int64 or a float64, plus a float64 offset, as a sum of 32-bit limbs.  Arrays of positions: whether they
 * are in the domain, and the step between them. */
#ifndef POSENC_POSITIONS_H
#define POSENC_POSITIONS_H

#include <math.h>
#include <stdlib.h>

#include "compiler.h"
#include "rounding.h"

enum { POSITION_BOTTOM = -36 };     /* exponent of the lowest limb, in limbs of 32 bits; 2**(-36 * 32) is below 2**-1074 */
enum { POSITION_SPAN = 39 };        /* limbs up to 2**96, enough for position + offset */

/* w = -w, in two's complement */
static inline void negate(uint32_t *w, int limbs) {
    uint64_t carry = 1;
    for (int i = 0; i < limbs; i++) {
        carry += (uint32_t)~w[i];
        w[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* Adds +-m * 2**e to the two's complement number w; e must be at least -1074, and |sum| below 2**64. */
static inline void position_accumulate(uint32_t w[POSITION_SPAN], uint64_t m, int e, int negative) {
    const int bit = e - 32 * POSITION_BOTTOM, at = bit / 32, shift = bit % 32;
    const uint32_t part[3] = {
        (uint32_t)(m << shift),
        (uint32_t)((m >> (32 - shift)) & 0xffffffffu),
        shift ? (uint32_t)(m >> 32 >> (32 - shift)) : 0,
    };
    uint64_t carry = negative != 0;
    for (int i = 0; i < POSITION_SPAN; i++) {
        const uint32_t p = i >= at && i < at + 3 ? part[i - at] : 0;
        const uint64_t sum = (uint64_t)w[i] + (negative ? (uint32_t)~p : p) + carry;
        w[i] = (uint32_t)sum;
        carry = sum >> 32;
    }
}

static inline void position_accumulate_real(uint32_t w[POSITION_SPAN], double x) {
    int e;
    uint64_t m = significand_of(x, &e);
    if (m == 0) return;
    for (; !(m & 1); m >>= 1) e++;
    position_accumulate(w, m, e, (int)(bits_of_double(x) >> 63));
}

static inline position_t position_from_sum(uint32_t w[POSITION_SPAN]) {
    position_t p = {.finite = 1};
    p.negative = (int)(w[POSITION_SPAN - 1] >> 31);
    if (p.negative) negate(w, POSITION_SPAN);
    int low = 0, high = POSITION_SPAN;
    while (low < high && w[low] == 0) low++;
    while (high > low && w[high - 1] == 0) high--;
    p.limbs = high - low;
    p.exponent = POSITION_BOTTOM + low;
    for (int i = low; i < high; i++) p.limb[i - low] = w[i];
    return p;
}

static inline position_t position_from_integer(uint64_t two_complement, double offset) {
    int negative = (int)(two_complement >> 63);
    uint64_t m = negative ? 0 - two_complement : two_complement;
    if (offset == 0) {
        position_t p = {.negative = negative && m, .finite = 1, .limb = {(uint32_t)m, (uint32_t)(m >> 32)}};
        p.limbs = m >> 32 ? 2 : m != 0;
        return p;
    }
    uint32_t w[POSITION_SPAN] = {0};
    position_accumulate(w, m, 0, negative);
    position_accumulate_real(w, offset);
    return position_from_sum(w);
}

/* The non-negative position m / 2. */
static inline position_t position_from_halves(uint64_t m) {
    return (position_t){
        .finite = 1, .limbs = 3, .exponent = -1, .limb = {(uint32_t)(m << 31), (uint32_t)(m >> 1), (uint32_t)(m >> 33)}};
}

static inline position_t position_from_real(double x, double offset) {
    uint32_t w[POSITION_SPAN] = {0};
    if ((bits_of_double(x) >> 52 & 0x7ff) == 0x7ff) return (position_t){.finite = 0};
    position_accumulate_real(w, x);
    position_accumulate_real(w, offset);
    return position_from_sum(w);
}

NOINLINE position_t position_of(const spec_t *spec, const job_t *job, ptrdiff_t row) {
    if (job->reals) {
        const double x = job->reals[row];
        if (spec->has_padding && x == spec->padding_real) return (position_t){.finite = 1, .padding = 1};
        return position_from_real(x, spec->position_offset);
    }
    uint64_t p = job->integers ? (uint64_t)job->integers[row] : job->start + (uint64_t)row * job->step;
    if (spec->has_padding && p == (uint64_t)spec->padding) return (position_t){.finite = 1, .padding = 1};
    return position_from_integer(p, spec->position_offset);
}

/* ---- arrays of positions ----------------------------------------------------------------------------------------------- */

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

/* Returns positions as integers, in memory that the caller frees, or NULL if one is not an integer or memory is exhausted. */
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
