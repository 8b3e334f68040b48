/* Decides how values are rounded: by tests, by an evaluation in double-double, or later by exact.py.
 *
 * If value - error and value + error round to the same number, so does the true value, which lies between
 * them.  float64 values, computed in double-double, are tested in this way.  The other dtypes have a fast
 * test first: a value is uncertain if the bits that rounding drops are next to a half-way point, or if the
 * value is too small compared with its error. Bounds: docs/numerics.md, section 6.
 *
 * A single value that the tests leave undecided is evaluated in double-double.  If this leaves the rounding
 * undecided, too, the caller evaluates the value with Python's integers (exact.py) after its parallel region.
 * Bounds (docs/numerics.md, section 3): the error of a value is below DD_ERROR |value| + DIRECT_DD_FLOOR
 * |scale|.  For angles below 2**(-32 skip) turns, the first `skip` limbs of the phase are left out, and the
 * second term is multiplied by this power.
 */
#ifndef POSENC_DECIDE_ROUNDING_H
#define POSENC_DECIDE_ROUNDING_H

#include <stdlib.h>

#include "table/direct.h"
#include "table/output.h"

/* ---- the fast test ------------------------------------------------------------------------------------- */

/* The error of rows that are computed in double, as a fraction of M (advance.h). */
#define DOUBLE_ERROR 0x1.bp-50

/* The smallest |value| that may pass this test, as a fraction of M (advance.h).  It keeps the error below
 * 2**16 ulp of a double for float32, and far below half an ulp of a float for float16 and bfloat16. */
INLINE double smallest_share(dtype_t dtype) { return dtype == FLOAT32 ? 0x1p-12 : 0x1p-20; }

/* The smallest normal number of dtype, which must not be float64.  Rounding to a subnormal number drops more
 * bits. */
INLINE double smallest_normal(dtype_t dtype) { return dtype == FLOAT16 ? 0x1p-14 : 0x1p-126; }

/* One addition and one mask test two 16-bit words of each value: an upper word with the first bits of the
 * value, and a lower word with the first bits that rounding drops.  For float32 these are words 3 and 1 of
 * the double; for float16 and bfloat16 they are the two words of the float.  A value passes if both masked
 * words are nonzero.  For float32, the lower word is zero within 2**16 ulp of a double from a half-way point.
 * For float16 and bfloat16, it is zero only at the half-way point, because rounding to float does not cross
 * this point.  In the upper word, bit 62 (30 of a float) is set if |value| >= smallest; the bits of
 * `smallest` below this word are left out. */
#define UPPER_64 ((uint64_t)1 << 62)
#define UPPER_32 ((uint32_t)1 << 30)

INLINE uint32_t near_half(dtype_t dtype) { return dtype == FLOAT32 ? 0x10010000u : dtype == FLOAT16 ? 0x1000u : 0x8000u; }

INLINE vu64 u32_set(uint32_t x) { return u64_set((uint64_t)x << 32 | x); }

/* Returns the addend for the words of two vectors.  `a` and `b` hold the smallest |value| that may pass in
 * each lane. */
INLINE vu64 test_addend(vf64 a, vf64 b, dtype_t dtype) {
    if (dtype == FLOAT32) {
        const vu64 sum = u64_set(UPPER_64 | near_half(dtype)), upper = u64_set(0xffff000000000000u);
        return u16_odd(u64_sub(sum, u64_and(bits_of_f64(a), upper)), u64_sub(sum, u64_and(bits_of_f64(b), upper)));
    }
    return u32_sub(u32_set(UPPER_32 | near_half(dtype)), u64_and(bits_of_f32(f32_of_f64(a, b)), u32_set(0xffff0000u)));
}

/* Tests two vectors of values; `f` contains these values, rounded to floats. */
INLINE mask16 fast_test(mask16 passed, const vf64 value[2], vf32 f, vu64 addend, dtype_t dtype) {
    const vu64 bits = u64_set(UPPER_64 | 0x1ffe0000u);
    const vu64 mask = dtype == FLOAT32 ? u16_odd(bits, bits) : u32_set(UPPER_32 | (dtype == FLOAT16 ? 0x1fffu : 0xffffu));
    const vu64 words = dtype == FLOAT32 ? u16_odd(bits_of_f64(value[0]), bits_of_f64(value[1])) : bits_of_f32(f);
    return mask16_and_nonzero(passed, u16_add(words, addend), mask);
}

/* ---- the test with the error bound of each value ------------------------------------------------------- */

/* Returns zero in lanes where value - error and value + error round to the same number and *value is not
 * subnormal in dtype. Sets *value to that number.  Half-way points may be rounded in either direction: a
 * value that may be one is undecided. */
INLINE vu64 undecided_double(vf64 *value, vf64 error, dtype_t dtype) {
    const format_t format = format_of(dtype);
    const int drop = 53 - format.precision;
    const vu64 half = u64_set((uint64_t)1 << (drop - 1)), normal = u64_set(bits_of_double(smallest_normal(dtype)));
    const vu64 below = u64_shr(u64_add(bits_of_f64(f64_sub(*value, error)), half), drop);
    const vu64 above = u64_shr(u64_add(bits_of_f64(f64_add(*value, error)), half), drop);
    const vu64 subnormal = u64_shr(u64_sub(u64_and(bits_of_f64(*value), u64_set(INT64_MAX)), normal), 63);
    *value = f64_of_bits(u64_shl(below, drop));
    return u64_or(u64_xor(below, above), subnormal);
}

/* Tests two vectors of values.  For float32, returns zero in lanes where value - error and value + error
 * round to the same number.  For the other dtypes, does the same as undecided_double, which also rounds the
 * values. */
INLINE vu64 undecided_values(vf64 value[2], const double *error, dtype_t dtype) {
    const vf64 e[2] = {f64_load(error), f64_load(error + LANES)};
    if (dtype != FLOAT32) return u64_or(undecided_double(&value[0], e[0], dtype), undecided_double(&value[1], e[1], dtype));
    const vf32 below = f32_of_f64(f64_sub(value[0], e[0]), f64_sub(value[1], e[1]));
    const vf32 above = f32_of_f64(f64_add(value[0], e[0]), f64_add(value[1], e[1]));
    return u64_xor(bits_of_f32(below), bits_of_f32(above));
}

/* Rounds a double-double, and sets the bits of `undecided` in which the roundings of value - error and value
 * + error differ. */
INLINE vf64 rounded_dd(vdd sum, vf64 error, vu64 *undecided) {
    const vf64 below = f64_add(sum.high, f64_sub(sum.low, error)), above = f64_add_fma(sum.high, f64_add_fma(sum.low, error));
    *undecided = u64_or(*undecided, u64_xor(bits_of_f64(below), bits_of_f64(above)));
    return below;
}

/* ---- values that the tests leave undecided ------------------------------------------------------------- */

/* TINY stands for a positive value below 2**-900, which rounds to 0 except in float64, even times a factor of
 * a rotation.  The product with a factor, which is at least 2**-149, does not underflow. */
#define TINY 0x1p-800
enum { MIN_EXPONENT = -900 };
#define SIXTH 0x1.5555555555555p-3
#define COMBINATION_ERROR 0x1p-100 /* of each term of a combination */

INLINE double first_of(vf64 v, int lane) {
    double lanes[LANES];
    f64_store(lanes, v);
    return lanes[lane];
}

INLINE uint64_t first_bits(vu64 v, int lane) { return bits_of_double(first_of(f64_of_bits(v), lane)); }

/* sin(2 pi position * turns) * scale * 2**(32 *skip), for an angle below 2**(-32 *skip) turns.  Changes *skip
 * so that the phase begins with a limb that is not 0, and is below an eighth of a turn in units of 2**(-32
 * *skip). */
static vdd small_sine(const spec_t *spec, const position_t *position, ptrdiff_t column, int lane, int *skip) {
    phase_t phase = direct_phase(spec, position, column, COLUMNS, PHASE_LIMBS, *skip);
    if (first_bits(phase.rest[0], lane) == 0) phase = direct_phase(spec, position, column, COLUMNS, PHASE_LIMBS, ++*skip);
    if (first_bits(phase.quadrant, lane)) phase = direct_phase(spec, position, column, COLUMNS, PHASE_LIMBS, --*skip);
    vdd x = dd_product(phase_dd(&phase), (vdd){f64_set(TWO_PI_HIGH), f64_set(TWO_PI_LOW)});
    /* sin x = x - x**3 / 6; the next term is below 2**-130 x */
    const vf64 small = f64_mul(x.high, f64_set(power_of_two(-32 * (*skip < 30 ? *skip : 30))));
    x.low = f64_sub(x.low, f64_mul(x.high, f64_mul(f64_mul(small, small), f64_set(SIXTH))));
    x = fast_two_sum(x.high, x.low);
    const vu64 sign = u64_xor(u64_load(spec->sign + column), u64_set((uint64_t)(position->negative != 0) << 63));
    return dd_times_double(x, f64_of_bits(u64_xor(bits_of_f64(f64_set(spec->scale)), sign)));
}

/* Computes a value with a bound of its error, which is 0 if the value is exact, and infinite if it cannot be
 * computed. */
COLD void evaluate(const spec_t *spec, const position_t *position, ptrdiff_t column, dtype_t dtype, double *high, double *low,
                   double *error) {
    const int limbs = spec->integer_limbs + spec->fraction_limbs, lane = (int)(column % LANES);
    const double amplitude = magnitude_of(spec->scale);
    int first = 0, skip = 0;
    while (first < limbs && spec->turns[first * spec->pitch + column] == 0) first++;
    *low = *error = 0;
    *high = spec->quarter[column] && amplitude != 0 ? spec->scale : 0;
    if (first == limbs || position->limbs == 0 || amplitude == 0) return; /* the angle is 0 */
    *error = double_of_bits((uint64_t)0x7ff << 52);
    if (!spec->has_fast_path) return;
    vdd p, q;
    const int above = position->limbs + position->exponent + spec->integer_limbs - first; /* the angle is below 2**(32 above) */
    if (above <= 0 && !spec->quarter[column]) {
        skip = -above;
        p = small_sine(spec, position, column - lane, lane, &skip);
    }
    if (skip <= 0) direct_values(spec, position, column - lane, COLUMNS, FLOAT64, &p, &q), skip = 0;
    *high = first_of(p.high, lane);
    *low = first_of(p.low, lane);
    const int exponent = (int)(bits_of_double(*high) >> 52 & 0x7ff) - 1023 - 32 * skip;
    if (skip && exponent < MIN_EXPONENT) {
        if (dtype == FLOAT64) return;
        *high = *high < 0 ? -TINY : TINY;
        *low = 0;
        *error = TINY / 2;
    } else {
        const double half = power_of_two(-16 * skip);
        *error = (magnitude_of(*high) * DD_ERROR + amplitude * DIRECT_DD_FLOOR) * half * half;
        *high = *high * half * half;
        *low = *low * half * half;
    }
    if (*high == 0 && has_exact_phases(spec, position)) *error = 0;
}

/* Whether the angle is below 2**-32 turns, so that its cosine is below 1 by less than 2**-58. */
static int is_tiny_angle(const spec_t *spec, const position_t *position, ptrdiff_t column) {
    const ptrdiff_t lane = column % LANES;
    int first = 0;
    while (first < spec->integer_limbs + spec->fraction_limbs && spec->turns[first * spec->pitch + column] == 0) first++;
    return position->limbs + position->exponent + spec->integer_limbs <= first &&
           first_bits(direct_phase(spec, position, column - lane, COLUMNS, PHASE_LIMBS, 0).rest[0], (int)lane) == 0;
}

/* high + low, rounded to dtype.  For dtypes narrower than double, the sum is first rounded to odd: then the
 * second rounding gives the same number as a rounding of the exact sum (Boldo and Melquiond). */
static double rounded_sum(double high, double low, dtype_t dtype) {
    const double sum = high + low, added = sum - high, rest = (high - (sum - added)) + (low - added);
    uint64_t bits = bits_of_double(sum);
    if (dtype != FLOAT64 && rest != 0 && !(bits & 1)) bits += (rest > 0) == (sum > 0) ? 1 : UINT64_MAX;
    return round_to(dtype, double_of_bits(bits));
}

/* Appends a value to those that the caller evaluates, and returns -0. */
static double left_undecided(const spec_t *spec, const undecided_t *u, tally_t *tally) {
    if (tally->count == tally->capacity) {
        const ptrdiff_t capacity = 2 * tally->capacity + 16;
        undecided_t *const memory = realloc(tally->undecided, (size_t)capacity * sizeof *memory);
        tally->is_full |= memory == NULL;
        if (!memory) return -0.0;
        tally->undecided = memory;
        tally->capacity = capacity;
    }
    undecided_t *const last = tally->undecided + tally->count++;
    *last = *u;
    last->context = spec->context;
    last->column += spec->first;
    return -0.0;
}

/* Returns the value that `u` describes, correctly rounded to u->job.dtype, or leaves it undecided.  Two
 * columns must be the cosine and the sine of one frequency; the factors must be finite.  A sum of exactly 0
 * gives +0.
 *
 * If the tally asks for approximations, an undecided value has a relative error below 2**-53 (1 + 2**-40), or
 * is 0 if its magnitude is below 2**-900 or cannot be computed. */
COLD double decided_value(const spec_t *spec, const undecided_t *u, tally_t *tally) {
    const dtype_t dtype = u->job.dtype;
    double high = 0, low = 0, error = 0;
    tally->exact++;
    for (int k = 0; k < (u->is_combined ? 2 : 1); k++) {
        double h, l, e;
        if (u->is_combined && u->factors[k] == 0) continue;
        evaluate(spec, &u->position, u->column + k, dtype, &h, &l, &e);
        if (h == 0 && e == 0) continue;
        if (!u->is_combined && spec->quarter[u->column] && 0 < e && e <= DBL_MAX &&
            is_tiny_angle(spec, &u->position, u->column)) {
            h = spec->scale; /* the value is nearer to 0, without a half-way point in between */
            l = h * -0x1p-60;
            e = magnitude_of(h) * 0x1p-61;
        }
        if (u->is_combined) {
            const vdd term = dd_times_double((vdd){f64_set(h), f64_set(l)}, f64_set(u->factors[k]));
            const vdd sum = two_sum(term.high, f64_set(high));
            e *= magnitude_of(u->factors[k]);
            if (e != 0) e += magnitude_of(first_of(term.high, 0)) * COMBINATION_ERROR;
            h = first_of(sum.high, 0);
            l = first_of(sum.low, 0) + (first_of(term.low, 0) + low);
        }
        high = h;
        low = l;
        error += e;
    }
    const double below = rounded_sum(high, low - error, dtype), above = rounded_sum(high, low + error, dtype);
    if (error <= DBL_MAX && bits_of_double(below) == bits_of_double(above)) return below;
    if (tally->is_approximate) return error <= DBL_MAX ? below : 0;
    return left_undecided(spec, u, tally);
}

/* Returns a number with the sign of a value, or 0 for 0. */
static double sign_of(const spec_t *spec, const position_t *position, ptrdiff_t column) {
    spec_t unit = *spec;
    double high, low, error;
    unit.scale = (spec->scale > 0) - (spec->scale < 0);
    unit.has_fast_path = 1;
    evaluate(&unit, position, column, FLOAT64, &high, &low, &error);
    return high;
}

/* ---- a row with an uncertain value --------------------------------------------------------------------- */

/* The values of a row of a tile, with their error bounds. */
typedef struct {
    double high[TILE], low[TILE], error[TILE];
} row_t;

/* Rounds the values of a row, using the error bound of each value; undecided values are evaluated exactly. */
INLINE void settle(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, row_t *values,
                   dtype_t dtype, tally_t *tally) {
    uint64_t undecided[TILE];
    double rounded[TILE];
    tally->uncertain++;
    /* decides most values of narrow dtypes, faster than the next loop; 4 u cover the roundings of high + low
     * and the bounds */
    for (int i = 0; i < TILE; i += LANES) {
        vf64 value = f64_add(f64_load(values->high + i), f64_load(values->low + i));
        const vf64 error = f64_muladd(f64_abs(value), f64_set(0x1p-51), f64_load(values->error + i));
        u64_flush(undecided + i, dtype == FLOAT64 ? u64_set(1) : undecided_double(&value, error, dtype), 0);
        f64_store(rounded + i, value);
    }
    for (int i = 0; i < width; i++) {
        if (!undecided[i]) continue;
        const double high = values->high[i], low = values->low[i], error = values->error[i];
        const double below = round_to(dtype, high + (low - error)), above = round_to(dtype, high + (low + error));
        rounded[i] = below;
        if (bits_of_double(below) == bits_of_double(above)) continue;
        undecided_t u = {.column = column + i, .job = *job};
        u.position = position_of(spec, job, row + (column + i >= spec->d_model - spec->first));
        u.job.out += row * job->row_stride + (spec->first + column + i) * size_of(dtype);
        u.job.x_scale = 1; /* -0 is added to x * x_scale now */
        rounded[i] = decided_value(spec, &u, tally);
    }
    memcpy(values->high, rounded, sizeof rounded);
}

/* Writes the first `width` values of a row of a tile.  All values must be numbers of dtype. */
COLD void write_rounded(const job_t *job, output_t output, int width, char *out, const double values[TILE]) {
    vf64 rounded[TILE_VECTORS];
    for (int v = 0; v < TILE_VECTORS; v++) rounded[v] = f64_load(values + v * LANES);
    FOR_DTYPE(job->dtype, write_tile(job, out, rounded, width, DTYPE, output))
}

COLD void write_settled(const spec_t *spec, const job_t *job, output_t output, ptrdiff_t row, ptrdiff_t column, int width,
                        char *out, row_t *values, tally_t *tally) {
    FOR_DTYPE(job->dtype, settle(spec, job, row, column, width, values, DTYPE, tally))
    write_rounded(job, output, width, out, values->high);
}

/* Stores or adds a value that the caller has evaluated. */
static void write_value(const job_t *job, double value) {
    const double values[TILE] = {value};
    write_rounded(job, job->output == ADD ? ADD : STORE, 1, job->out, values);
}

#endif
