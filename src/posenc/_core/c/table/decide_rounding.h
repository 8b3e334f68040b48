/* Decides how values are rounded: by tests, by an evaluation in double-double, or later by exact.py.
 *
 * If value - error and value + error round to the same number, so does the true value, which lies between
 * them.  float64 values, computed in double-double, are tested in this way.  The other dtypes have a fast
 * test first: a value is uncertain if the bits that rounding drops are next to a half-way point, or if the
 * value is too small compared with its error.  Bounds: docs/numerics.md, section 6.
 *
 * If the tests leave a value of a tile undecided, the tile is evaluated directly in double, except in float64.  A
 * value that is still undecided is evaluated alone, in double-double, and if its rounding then is undecided, too,
 * by the caller, with Python integers (exact.py), after the parallel region.
 * Bounds (docs/numerics.md, section 3): the error of a value is below DD_ERROR |value| + DIRECT_DD_FLOOR
 * |scale|.
 */
#ifndef POSENC_DECIDE_ROUNDING_H
#define POSENC_DECIDE_ROUNDING_H

#include <stdlib.h>

#include "table/direct.h"
#include "table/output.h"

/* ---- the fast test ------------------------------------------------------------------------------------- */

/* The error of rows that are computed in double, as a fraction of M (advance.h). */
#define DOUBLE_ERROR 0x1.bp-50

/* The smallest |value| that may pass the fast test, as a fraction of M (advance.h).  This limit keeps the error
 * below 2**16 ulp of a double for float32, and far below half an ulp of a float for float16 and bfloat16. */
INLINE double smallest_share(dtype_t dtype) { return dtype == FLOAT32 ? 0x1p-12 : 0x1p-20; }

/* The smallest normal number of dtype, which must not be float64.  Rounding to a subnormal number drops more
 * bits. */
INLINE double smallest_normal(dtype_t dtype) { return dtype == FLOAT16 ? 0x1p-14 : 0x1p-126; }

/* One addition and one mask test two 16-bit words of each value: an upper word with the first bits of the
 * value, and a lower word with the first bits that rounding drops.  For float32, these are words 3 and 1 of
 * the double; for float16 and bfloat16, they are the two words of the float.  A value passes if both masked
 * words are nonzero.  For float32, the lower word is zero within 2**16 ulp of a double from a half-way point.
 * For float16 and bfloat16, it is zero only at the half-way point, because rounding to float does not cross
 * this point.  In the upper word, bit 62 (30 of a float) is set if |value| >= smallest; the bits of
 * `smallest` below the upper word are ignored. */
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

/* Stores the addends for the smallest |values| of `count` columns. */
static void store_addends(uint64_t *to, const double *smallest, int count, dtype_t dtype) {
    for (int i = 0; i < count; i += 2 * LANES) {
        const vu64 addend = test_addend(f64_load(smallest + i), f64_load(smallest + i + LANES), dtype);
        u64_store(to + i / 2, addend, 0);
    }
}

/* Tests two vectors of values; `f` has these values, rounded to floats. */
INLINE mask16 fast_test(mask16 passed, const vf64 value[2], vf32 f, vu64 addend, dtype_t dtype) {
    const vu64 bits = u64_set(UPPER_64 | 0x1ffe0000u);
    const vu64 mask = dtype == FLOAT32 ? u16_odd(bits, bits) : u32_set(UPPER_32 | (dtype == FLOAT16 ? 0x1fffu : 0xffffu));
    const vu64 words = dtype == FLOAT32 ? u16_odd(bits_of_f64(value[0]), bits_of_f64(value[1])) : bits_of_f32(f);
    return mask16_and_nonzero(passed, u16_add(words, addend), mask);
}

/* ---- the test with the error bound of each value ------------------------------------------------------- */

/* Returns ones in lanes where x is 0. */
INLINE vu64 zeros_of(vf64 x) {
    return u64_sub(u64_set(0), u64_shr(u64_sub(u64_and(bits_of_f64(x), u64_set(INT64_MAX)), u64_set(1)), 63));
}

/* Rounds x to a multiple of the smallest subnormal number, which is an ulp of `shift`; x keeps its sign. */
INLINE vu64 rounded_subnormal(vf64 x, vf64 shift) {
    return u64_or(bits_of_f64(f64_sub(f64_add(x, shift), shift)), u64_and(bits_of_f64(x), u64_set((uint64_t)1 << 63)));
}

/* Rounds *value to dtype.  Returns zero in lanes in which the rounding is decided: value - error and value + error
 * round to the same number, or the error is 0.  Half-way points may be rounded in either direction, so a value that
 * may be one must be undecided. */
NOINLINE vu64 undecided_double(vf64 *value, vf64 error, dtype_t dtype) {
    const format_t format = format_of(dtype);
    const int drop = 53 - format.precision;
    const vu64 half = u64_set((uint64_t)1 << (drop - 1)), normal = u64_set(bits_of_double(smallest_normal(dtype)));
    const vf64 least = f64_sub(*value, error), most = f64_add(*value, error);
    const vf64 shift = f64_set(1.5 * power_of_two(52 + format.min_exponent - format.precision + 1));
    const vu64 is_subnormal = u64_sub(u64_set(0), u64_shr(u64_sub(bits_of_f64(f64_abs(*value)), normal), 63));
    vu64 below = u64_shl(u64_shr(u64_add(bits_of_f64(least), half), drop), drop);
    vu64 above = u64_shl(u64_shr(u64_add(bits_of_f64(most), half), drop), drop);
    below = u64_select(is_subnormal, rounded_subnormal(least, shift), below);
    above = u64_select(is_subnormal, rounded_subnormal(most, shift), above);
    *value = f64_of_bits(below);
    return u64_select(zeros_of(error), u64_set(0), u64_xor(below, above));
}

/* Does the same for two vectors of values.  float32 values are not rounded, and may be subnormal. */
INLINE vu64 undecided_values(vf64 value[2], const vf64 error[2], dtype_t dtype) {
    if (dtype != FLOAT32)
        return u64_or(undecided_double(&value[0], error[0], dtype), undecided_double(&value[1], error[1], dtype));
    const vf32 below = f32_of_f64(f64_sub(value[0], error[0]), f64_sub(value[1], error[1]));
    const vf32 above = f32_of_f64(f64_add(value[0], error[0]), f64_add(value[1], error[1]));
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

#define COMBINATION_ERROR 0x1p-100 /* of each term of a combination */

INLINE double f64_lane(vf64 v, int lane) {
    double lanes[LANES];
    f64_store(lanes, v);
    return lanes[lane];
}

/* high + low, rounded to dtype.  For dtypes narrower than double, the sum is first rounded to odd: then the
 * second rounding gives the same number as a rounding of the exact sum (Boldo and Melquiond). */
static double rounded_sum(double high, double low, dtype_t dtype) {
    const double sum = high + low, added = sum - high, rest = (high - (sum - added)) + (low - added);
    uint64_t bits = bits_of_double(sum);
    if (dtype != FLOAT64 && rest != 0 && !(bits & 1)) bits += (rest > 0) == (sum > 0) ? 1 : UINT64_MAX;
    return round_to(dtype, double_of_bits(bits));
}

/* Appends a value to those that the caller will evaluate, and returns -0. */
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
    last->column = (last->column + spec->first) % spec->d_model; /* a shifted row ends in the next row */
    return -0.0;
}

/* Returns the error bound of a value that is evaluated in double-double; it is 0 for exact values. */
static double error_of(const spec_t *spec, const position_t *position, double value, int is_constant) {
    if (is_constant || (value == 0 && has_exact_phases(spec, position, EXACT_PHASE_BITS))) return 0;
    return magnitude_of(value) * DD_ERROR + magnitude_of(spec->scale) * (DIRECT_DD_FLOOR * power_of_two(-position->shift));
}

/* Returns the value that `u` describes, correctly rounded to u->job.dtype, or leaves it undecided.  Two
 * columns must be the cosine and the sine of one frequency; the factors must be finite.  A sum of exactly 0
 * gives +0.
 *
 * If tally->is_approximate is set, an undecided value has the error of the double-double, or is 0 if it cannot be
 * computed. */
COLD double decided_value(const spec_t *spec, const undecided_t *u, tally_t *tally) {
    const dtype_t dtype = u->job.dtype;
    const int lane = (int)(u->column % LANES), is_cosine = u->is_combined || spec->quarter[u->column];
    const vu64 turns = turns_of(spec, u->column - lane);
    const int is_constant = u->position.limbs == 0 || spec->scale == 0 || f64_lane(f64_of_bits(turns), lane) == 0;
    const double c_factor = u->is_combined ? u->factors[0] : is_cosine;
    const double s_factor = u->is_combined ? u->factors[1] : !is_cosine;
    vdd s = {f64_set(0), f64_set(0)}, c = {f64_set(spec->scale), f64_set(0)};
    tally->exact++;
    if (is_constant && !u->is_combined) return is_cosine ? round_to(dtype, spec->scale) : 0;
    if (!is_constant && !spec->has_fast_path) return tally->is_approximate ? 0 : left_undecided(spec, u, tally);
    if (!is_constant) direct_values(spec, &u->position, u->column - lane, ANGLES, 1, &s, &c);
    const vdd x = dd_times_double(c, f64_set(c_factor)), y = dd_times_double(s, f64_set(s_factor));
    const vdd sum = two_sum(x.high, y.high), terms = {f64_add(f64_abs(x.high), f64_abs(y.high)), f64_add(x.low, y.low)};
    const double high = f64_lane(sum.high, lane) + 0.0, low = f64_lane(sum.low, lane) + f64_lane(terms.low, lane);
    const double c_error = error_of(spec, &u->position, f64_lane(c.high, lane), is_constant);
    const double s_error = error_of(spec, &u->position, f64_lane(s.high, lane), is_constant);
    double error = magnitude_of(c_factor) * c_error + magnitude_of(s_factor) * s_error;
    if (error != 0) error += f64_lane(terms.high, lane) * COMBINATION_ERROR;
    const double below = rounded_sum(high, low - error, dtype), above = rounded_sum(high, low + error, dtype);
    if (bits_of_double(below) == bits_of_double(above) || tally->is_approximate) return below;
    return left_undecided(spec, u, tally);
}

/* Returns a number with the sign of the cosine or the sine at a position, or 0 for 0. */
static double sign_of(const spec_t *spec, const position_t *position, ptrdiff_t column) {
    const double scale = (spec->scale > 0) - (spec->scale < 0);
    const int lane = (int)(column % LANES), is_cosine = spec->quarter[column] != 0;
    vdd s, c;
    direct_dd(spec, position, column - lane, ANGLES, &s, &c);
    const double value = f64_lane(is_cosine ? c.high : s.high, lane);
    if (magnitude_of(value) >= 0x1p-140) return scale * value;
    if (position->limbs == 0 || f64_lane(f64_of_bits(turns_of(spec, column - lane)), lane) == 0) return 0;
    return (spec->sign[column] != 0) == position->negative ? scale : -scale; /* the angle is tiny */
}

/* ---- tiles with an uncertain value --------------------------------------------------------------------- */

/* The values of a tile, with their error bounds. */
typedef struct {
    ALIGNED double high[TILE], low[TILE], error[TILE];
} values_t;

enum { FACTOR = 4 * TILE }; /* most numbers in a factor of a tile */

#define DIRECT_DOUBLE_ERROR 0x1p-50     /* relative to the value, plus ... */
#define DIRECT_DOUBLE_FLOOR 0x1p-87     /* ... relative to the amplitude, for tiny phases */

/* Evaluates the values of a tile, and their error bounds.  The bound of an exact 0 is 0: its phase is exact, or its
 * frequency is 0. */
NOINLINE void evaluate_tile(const spec_t *spec, const position_t *position, ptrdiff_t column, int count, int is_dd,
                            values_t *v) {
    const int paired = spec->order != UNPAIRED, angles = paired ? TILE / 2 : TILE;
    const int is_exact = has_exact_phases(spec, position, EXACT_PHASE_BITS);
    const vf64 share = f64_set(is_dd ? DD_ERROR : DIRECT_DOUBLE_ERROR), amplitude = f64_abs(f64_set(spec->scale));
    const double unit = power_of_two(-position->shift), floors[] = {DIRECT_DOUBLE_FLOOR * unit, DIRECT_DD_FLOOR * unit};
    const vf64 floor = f64_mul(amplitude, f64_set(floors[is_dd])), zero = f64_set(0);
    const uint64_t *const quarter = spec->quarter + column;
    double factor[FACTOR];
    direct_factor(spec, position, column, is_dd, factor);
    for (int i = 0; i < TILE; i += LANES) {
        const vf64 value = f64_add(columns_from(factor, factor + angles, quarter, paired, i), zero); /* replaces -0 */
        vu64 zeros = zeros_of(value);
        if (!is_exact && !u64_is_zero(zeros)) zeros = u64_and(zeros, zeros_of(f64_of_bits(turns_of(spec, column + i))));
        const vu64 error = bits_of_f64(f64_muladd(f64_abs(value), share, floor));
        f64_store(v->high + i, value);
        f64_store(v->low + i, is_dd ? columns_from(factor + 2 * angles, factor + 3 * angles, quarter, paired, i) : zero);
        f64_store(v->error + i, f64_of_bits(u64_select(zeros, u64_set(0), error)));
    }
    for (int i = count; i < TILE; i++) v->high[i] = v->low[i] = v->error[i] = 0;
}

/* Rounds value i of a tile. */
COLD double settled_value(const spec_t *spec, const job_t *job, const tile_t *t, const values_t *v, int i, tally_t *tally) {
    const double below = round_to(job->dtype, v->high[i] + (v->low[i] - v->error[i]));
    const double above = round_to(job->dtype, v->high[i] + (v->low[i] + v->error[i]));
    if (spec->has_fast_path && bits_of_double(below) == bits_of_double(above)) return below;
    const ptrdiff_t row = t->row[i / t->width], column = t->column + i % t->width;
    undecided_t u = {.column = column, .job = *job};
    u.position = position_of(spec, job, row + (column >= spec->d_model - spec->first));
    u.job.out += row * job->row_stride + (spec->first + column) * size_of(job->dtype);
    u.job.x_scale = 1; /* x is multiplied now, when -0 is added in place of the value */
    return decided_value(spec, &u, tally);
}

/* Rounds and writes the values of a tile.  Returns whether it has written them: if a value is undecided, and not
 * `evaluates`, it has not. */
INLINE int settle(const spec_t *spec, const job_t *job, const tile_t *t, const values_t *v, int evaluates, dtype_t dtype,
                  tally_t *tally) {
    ALIGNED char staged[TILE * sizeof(double)];
    vf64 value[TILE_VECTORS];
    vu64 undecided = u64_set(!spec->has_fast_path);
    for (int i = 0; i < TILE_VECTORS; i += 2) {
        vf64 error[2];
        for (int j = 0; j < 2; j++) {
            const vdd x = dd_load(v->high + (i + j) * LANES, v->low + (i + j) * LANES);
            error[j] = f64_load(v->error + (i + j) * LANES);
            if (dtype == FLOAT64) {
                value[i + j] = rounded_dd(x, error[j], &undecided);
            } else { /* 4 u of the value cover the roundings of the sum and of the bounds */
                value[i + j] = f64_add(x.high, x.low);
                error[j] = f64_muladd(f64_abs(value[i + j]), f64_set(0x1p-51), error[j]);
            }
        }
        if (dtype != FLOAT64) undecided = u64_or(undecided, undecided_values(value + i, error, dtype));
    }
    if (!u64_is_zero(undecided)) {
        if (!evaluates) return 0;
        double rounded[TILE] = {0};
        for (int i = 0; i < t->rows * t->width; i++) rounded[i] = settled_value(spec, job, t, v, i, tally);
        for (int i = 0; i < TILE_VECTORS; i++) value[i] = f64_load(rounded + i * LANES);
    }
    store_tile(staged, value, dtype);
    write_tile(job, t, staged);
    return 1;
}

NOINLINE int settle_tile(const spec_t *spec, const job_t *job, const tile_t *t, const values_t *v, int evaluates,
                         tally_t *tally) {
    FOR_DTYPE(job->dtype, return settle(spec, job, t, v, evaluates, DTYPE, tally))
    return 1;
}

/* Rounds and writes values of a row, and of the next row if columns are shifted.  If a value that is computed in double
 * is undecided, all are evaluated directly in double, which is exact enough for values near 0. */
NOINLINE void write_settled(const spec_t *spec, const job_t *job, const tile_t *t, const values_t *v, tally_t *tally) {
    const int in_row = min_int(max_size(spec->d_model - spec->first - t->column, 0), t->width);
    values_t direct;
    tally->uncertain++;
    if (settle_tile(spec, job, t, v, job->dtype == FLOAT64 || !spec->has_fast_path, tally)) return;
    for (int i = 0; i < t->width;) { /* parts of tiles that begin at a multiple of TILE */
        const int is_next = i >= in_row, at = (int)((t->column + i) % TILE);
        const int end = min_int(i + TILE - at, is_next ? t->width : in_row);
        const position_t position = position_of(spec, job, *t->row + is_next);
        values_t all;
        evaluate_tile(spec, &position, t->column + i - at, TILE, 0, &all);
        for (int k = at - i; i < end; i++) direct.high[i] = all.high[k + i], direct.error[i] = all.error[k + i];
    }
    for (int i = t->width; i < TILE; i++) direct.high[i] = direct.error[i] = 0;
    for (int i = 0; i < TILE; i++) direct.low[i] = 0;
    settle_tile(spec, job, t, &direct, 1, tally);
}

/* Stores or adds a value that the caller has evaluated. */
static void write_value(const job_t *job, double value) {
    const double values[TILE] = {value};
    const ptrdiff_t row = 0;
    const tile_t t = {.row = &row, .rows = 1, .width = 1, .output = job->output == ADD ? ADD : STORE, .out = job->out};
    write_rounded(job, &t, values);
}

#endif
