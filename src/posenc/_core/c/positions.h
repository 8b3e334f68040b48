/* Exact positions, an int64 or a float64 plus a float64 offset, as sums of 32-bit limbs; and arrays of positions:
 * whether they are in the domain, evenly spaced or close together. */
#ifndef POSENC_POSITIONS_H
#define POSENC_POSITIONS_H

#include <math.h>
#include <stdlib.h>

#include "compiler.h"
#include "rounding.h"

enum { POSITION_BOTTOM = -36 };     /* exponent of the lowest limb, in limbs: 2**(-36 * 32) is below 2**-1074 */
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

/* Adds x to a two's complement number; |sum| must be below 2**64. */
static inline void position_accumulate(uint32_t w[POSITION_SPAN], double x) {
    int e;
    uint64_t m = significand_of(x, &e), carry = x < 0;
    if (m == 0) return;
    for (; !(m & 1); m >>= 1) e++;
    const int bit = e - 32 * POSITION_BOTTOM, at = bit / 32, shift = bit % 32;
    const uint64_t shifted = m << shift;
    const uint32_t part[3] = {(uint32_t)shifted, (uint32_t)(shifted >> 32), shift ? (uint32_t)(m >> (64 - shift)) : 0};
    for (int i = 0; i < POSITION_SPAN; i++) {
        const uint32_t p = i >= at && i < at + 3 ? part[i - at] : 0;
        carry += (uint64_t)w[i] + (x < 0 ? (uint32_t)~p : p);
        w[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* Returns the exact sum of some finite numbers. */
static inline position_t position_of_sum(const double *x, int count) {
    uint32_t w[POSITION_SPAN] = {0};
    position_t p = {.finite = 1};
    int low = 0, high = POSITION_SPAN;
    for (int i = 0; i < count; i++) position_accumulate(w, x[i]);
    p.negative = (int)(w[POSITION_SPAN - 1] >> 31);
    if (p.negative) negate(w, POSITION_SPAN);
    while (low < high && w[low] == 0) low++;
    while (high > low && w[high - 1] == 0) high--;
    p.limbs = high - low;
    p.exponent = POSITION_BOTTOM + low;
    for (int i = low; i < high; i++) p.limb[i - low] = w[i];
    return p;
}

/* A position + position_offset with the magnitude whole + fraction * 2**-64. */
typedef struct {
    uint64_t whole, fraction;
    int negative;
} fixed_t;

static inline void negate_fixed(fixed_t *x) {
    x->whole = ~x->whole + (x->fraction == 0);
    x->fraction = 0 - x->fraction;
}

/* Converts x; returns 0 if |x| >= 2**63 or x is not a multiple of 2**-63. */
static inline int fixed_of_real(double x, fixed_t *to) {
    const double magnitude = magnitude_of(x);
    if (!(magnitude < 0x1p63)) return 0;
    const int64_t whole = (int64_t)magnitude;
    const double scaled = (magnitude - (double)whole) * 0x1p63;
    const int64_t fraction = (int64_t)scaled;
    *to = (fixed_t){(uint64_t)whole, (uint64_t)fraction << 1, x < 0};
    return (double)fraction == scaled;
}

static inline uint64_t integer_at(const job_t *job, ptrdiff_t row) {
    return job->integers ? (uint64_t)job->integers[row] : job->start + (uint64_t)row * job->step;
}

static inline int is_padding(const spec_t *spec, const job_t *job, ptrdiff_t row) {
    if (!spec->has_padding) return 0;
    return job->reals ? job->reals[row] == spec->padding_real : integer_at(job, row) == (uint64_t)spec->padding;
}

/* Computes position + position_offset.  Returns 0 for the padding position, and for numbers that a fixed_t cannot
 * represent. */
static inline int fixed_position(const spec_t *spec, const job_t *job, ptrdiff_t row, fixed_t *to) {
    if (is_padding(spec, job, row)) return 0;
    if (job->reals) {
        if (!fixed_of_real(job->reals[row], to)) return 0;
    } else {
        const uint64_t p = integer_at(job, row);
        const int negative = (int)(p >> 63);
        *to = (fixed_t){negative ? 0 - p : p, 0, negative};
    }
    if (spec->position_offset != 0) {
        fixed_t offset;
        if (!fixed_of_real(spec->position_offset, &offset)) return 0;
        if (to->negative) negate_fixed(to);
        if (offset.negative) negate_fixed(&offset);
        to->fraction += offset.fraction;
        to->whole += offset.whole + (to->fraction < offset.fraction);
        to->negative = (int)(to->whole >> 63); /* the sum is in the domain */
        if (to->negative) negate_fixed(to);
    }
    return 1;
}

static inline position_t position_of_fixed(fixed_t x) {
    const uint32_t limb[4] = {(uint32_t)x.fraction, (uint32_t)(x.fraction >> 32), (uint32_t)x.whole, (uint32_t)(x.whole >> 32)};
    position_t p = {.negative = x.negative, .finite = 1, .limbs = 4, .exponent = -2};
    while (p.limbs && limb[p.limbs - 1] == 0) p.limbs--;
    while (p.limbs && limb[p.exponent + 2] == 0) p.exponent++, p.limbs--;
    for (int i = 0; i < p.limbs; i++) p.limb[i] = limb[p.exponent + 2 + i];
    return p;
}

enum { LEAST_SHIFT = 8, MOST_SHIFT = 300 }; /* numbers times 2**-300 are far above underflow */

/* Computes a tiny real position with a shift, which keeps the relative precision of its sines (docs/numerics.md,
 * section 4).  Returns 0 if the position is not tiny. */
static inline int shifted_position(const spec_t *spec, double x, position_t *to) {
    int exponent;
    const double part = ldexp(frexp(x, &exponent), -4 - 32 * spec->integer_limbs);
    const int shift = -4 - 32 * spec->integer_limbs - exponent;
    if (!isfinite(x) || x == 0 || shift < LEAST_SHIFT || shift > MOST_SHIFT) return 0;
    *to = position_of_sum(&part, 1);
    to->shift = shift;
    return 1;
}

NOINLINE position_t position_of(const spec_t *spec, const job_t *job, ptrdiff_t row) {
    fixed_t fixed;
    position_t tiny;
    if (job->reals && spec->position_offset == 0 && shifted_position(spec, job->reals[row], &tiny)) return tiny;
    if (fixed_position(spec, job, row, &fixed)) return position_of_fixed(fixed);
    if (is_padding(spec, job, row)) return (position_t){.finite = !spec->padding_is_nan, .padding = 1};
    if (job->reals && !isfinite(job->reals[row])) return (position_t){.finite = 0};
    const uint64_t p = job->reals ? 0 : integer_at(job, row);
    const double sum[3] = {job->reals ? job->reals[row] : (double)(int32_t)(p >> 32) * 0x1p32, (double)(uint32_t)p,
                           spec->position_offset};
    return position_of_sum(sum, 3);
}

/* ---- frequencies --------------------------------------------------------------------------------------- */

#define TWO_PI_HIGH 0x1.921fb54442d18p+2
#define TWO_PI_LOW 0x1.1a62633145c07p-52

/* Computes the frequencies of all angles in radians per position, in double-double, with a relative error below
 * 2**-98.  Returns the number of levels below the point, at least 1, with which half a unit of the lowest level is
 * an angle of at most 2**-5; LEVELS if there is none. */
static inline int radians_of_columns(const spec_t *spec, double *radians, double *radians_low) {
    const int angles = angles_of_tile(spec), limbs = spec->integer_limbs + spec->fraction_limbs;
    int fractions = 1;
    for (ptrdiff_t i = 0; i < spec->columns / TILE * angles; i++) {
        const ptrdiff_t column = i * (TILE / angles);
        const double unit = power_of_two(32 * (min_int(spec->integer_limbs, 31) - 1)) * (spec->sign[column] ? -1 : 1);
        double sum = 0, low = 0;
        for (int k = limbs - 1; k >= 0; k--) {
            const double limb = spec->turns[k * spec->pitch + column], part = sum * 0x1p-32;
            sum = limb + part;
            low = low * 0x1p-32 + (part - (sum - limb));
        }
        const double product = sum * TWO_PI_HIGH, rest = fma(sum, TWO_PI_HIGH, -product);
        radians[i] = unit * product;
        radians_low[i] = unit * (rest + (sum * TWO_PI_LOW + low * TWO_PI_HIGH));
        while (fractions < LEVELS && magnitude_of(radians[i]) > power_of_two(6 * fractions - 4)) fractions++;
    }
    return fractions;
}

/* ---- arrays of positions ------------------------------------------------------------------------------- */

/* Returns whether position + offset is certain to lie in the domain, [-2**63, 2**63), for positions from
 * lowest to highest. */
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

/* Returns real positions as integers, in memory that the caller frees, or NULL if one of them is not an integer or
 * memory is exhausted. */
static inline int64_t *integers_of(const double *p, ptrdiff_t rows) {
    for (ptrdiff_t i = 0; i < rows; i++)
        if (floor(p[i]) != p[i] || !isfinite(p[i])) return NULL;
    int64_t *const integers = malloc((size_t)rows * sizeof *integers);
    for (ptrdiff_t i = 0; integers && i < rows; i++) integers[i] = (int64_t)p[i];
    return integers;
}

static inline uint64_t distance(int64_t a, int64_t b) { return b > a ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b; }

/* Returns the step of evenly spaced rows, or 0.  An evenly spaced array is replaced by its first position and
 * its step. */
static inline uint64_t even_step(job_t *job, ptrdiff_t rows) {
    const int64_t *const p = job->integers;
    if (job->reals || rows < 2) return 0;
    if (!p) return (int64_t)job->step < 0 ? 0 - job->step : job->step;
    const uint64_t step = distance(p[0], p[1]);
    /* this excludes positions that wrap around; step times the number of rows could exceed 64 bits */
    if (step == 0 || distance(p[0], p[rows - 1]) / step != (uint64_t)(rows - 1)) return 0;
    for (ptrdiff_t i = 1; i < rows; i++)
        if (distance(p[i - 1], p[i]) != step) return 0;
    job->start = (uint64_t)p[0];
    job->step = p[1] > p[0] ? step : 0 - step;
    job->integers = NULL;
    return step;
}

/* A position + position_offset of +-(n + rest) units, |rest| <= 1/2. */
typedef struct {
    uint64_t n;
    double rest;
    int negative;
} units_t;

/* Splits the position of a row into units of 64**-fractions.  Returns 0 if fixed_position does, the position is 0, or
 * n could be 2**62 or more. */
static inline int split_position(const spec_t *spec, const job_t *job, ptrdiff_t row, int fractions, units_t *to) {
    const int bits = 6 * fractions;
    fixed_t x;
    if (!fixed_position(spec, job, row, &x) || (x.whole | x.fraction) == 0 || x.whole >> (62 - bits)) return 0;
    const uint64_t below = x.fraction << bits; /* in units of 2**-64 units; the upper half is negative */
    to->n = (x.whole << bits) + (bits ? x.fraction >> (64 - bits) : 0) + (below >> 63);
    to->rest = (double)(int64_t)below * 0x1p-64;
    to->negative = x.negative;
    return 1;
}

/* The number of bits of x, or one more. */
static inline int bits_of_integer(uint64_t x) { return x ? (int)(bits_of_double((double)x) >> 52) - 1022 : 0; }

enum {
    SPAN_BYTES = 1 << 23, /* most bytes of a span table, which stays in the caches */
    SURVEYED_ROWS = 1 << 10 /* about this number of rows of an array is surveyed to choose its tables */
};

/* Sets the span of a job at integer positions: the range around the position of the middle row that saves the most
 * rows.  A span saves the rows that are copied, but costs the rows of its table.  If no range saves rows, there is
 * no span. */
static inline void choose_span(const spec_t *spec, job_t *job, ptrdiff_t rows) {
    const int64_t *const p = job->integers, middle = p[rows / 2];
    ptrdiff_t near[66] = {0}, copied = 0, saved = 0;
    int64_t lowest = middle, highest = middle;
    job->span_pitch = spec->d_model * size_of(job->dtype);
    const ptrdiff_t each = 1 + rows / SURVEYED_ROWS; /* sampling interval in rows */
    for (ptrdiff_t i = 0; i < rows; i += each) {
        near[bits_of_integer(distance(middle, p[i]))]++;
        lowest = p[i] < lowest ? p[i] : lowest;
        highest = p[i] > highest ? p[i] : highest;
    }
    job->span_rows = 0;
    for (int bits = 0; bits < 32; bits++) {
        const uint64_t reach = ((uint64_t)1 << bits) - 1, below = distance(lowest, middle), above = distance(middle, highest);
        const uint64_t down = below < reach ? below : reach, span = down + (above < reach ? above : reach) + 1;
        copied += near[bits] * each;
        if (span * (uint64_t)job->span_pitch > SPAN_BYTES || copied - (ptrdiff_t)span <= saved) continue;
        saved = copied - (ptrdiff_t)span;
        job->span_start = middle - (int64_t)down;
        job->span_rows = (ptrdiff_t)span;
    }
}

/* Counts the rows of a job outside its span, from a survey.  Returns the number of rows whose position differs by 1
 * from that of the next row; with_digits[k] is the number of other rows with at least k digits. */
static inline ptrdiff_t count_digits(const spec_t *spec, const job_t *job, ptrdiff_t rows, int fractions,
                                     ptrdiff_t with_digits[LEVELS]) {
    const ptrdiff_t each = 1 + rows / SURVEYED_ROWS;
    ptrdiff_t in_runs = 0;
    for (ptrdiff_t i = 0; i < rows; i += each) {
        units_t units;
        if (job->integers && (uint64_t)job->integers[i] - (uint64_t)job->span_start < (uint64_t)job->span_rows) continue;
        if (job->integers && i + 1 < rows && distance(job->integers[i], job->integers[i + 1]) == 1) in_runs += each;
        else if (split_position(spec, job, i, fractions, &units)) with_digits[(bits_of_integer(units.n) + 5) / 6] += each;
    }
    for (int k = LEVELS - 2; k >= 0; k--) with_digits[k] += with_digits[k + 1];
    return in_runs;
}

#endif
