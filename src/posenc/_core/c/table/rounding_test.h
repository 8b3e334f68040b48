/* The rounding test, and the rounding of values that fail it.
 *
 * If value - error and value + error round to the same number, so does the true value, which lies between them.  float64
 * values, computed in double-double, are tested in this way.  The other dtypes have a fast test first: a value is uncertain if
 * the bits that rounding drops are next to a half-way point, or if the value is too small compared with its error.
 * Bounds: docs/numerics.md, section 6.
 */
#ifndef POSENC_ROUNDING_TEST_H
#define POSENC_ROUNDING_TEST_H

#include "exact/exact.h"
#include "table/output.h"
#include "exact/position.h"

/* ---- the fast test ------------------------------------------------------------------------------------------------------- */

/* The smallest |value| that may pass, as a fraction of M, defined in advance.h.  It keeps the error below 2**16 units of the
 * double's last place for float32, and far below half a unit of the float's last place for float16 and bfloat16. */
INLINE double smallest_share(dtype_t dtype) { return dtype == FLOAT32 ? 0x1p-12 : 0x1p-20; }

/* The smallest normal number of dtype, which must not be float64.  Rounding to a subnormal number drops more bits. */
INLINE double smallest_normal(dtype_t dtype) { return dtype == FLOAT16 ? 0x1p-14 : 0x1p-126; }

/* Lanes that passed the test: doubles for float32, floats for float16 and bfloat16. */
typedef struct {
    mask64 doubles;
    mask32 floats;
} passed_t;

INLINE passed_t all_lanes(void) { return (passed_t){mask64_all(), mask32_all()}; }
INLINE int all_passed(passed_t passed, dtype_t dtype) {
    return dtype == FLOAT16 || dtype == BFLOAT16 ? mask32_is_all(passed.floats) : mask64_is_all(passed.doubles);
}

/* One addition and one mask test both halves of a lane; the lane passes if both masked halves are nonzero.  The lower
 * half is zero next to a half-way point.  For float32, this means within 2**16 units of the double's last place.  For float16
 * and bfloat16, it means exactly at the point, because rounding to float does not cross the point.  In the upper half, bit 62
 * (30 of a float) is set if |value| >= smallest; a carry from the lower half changes this limit by less than 2**-7 of it. */
#define UPPER_64 ((uint64_t)1 << 62)
#define UPPER_32 ((uint32_t)1 << 30)

INLINE uint32_t near_half(dtype_t dtype) { return dtype == FLOAT32 ? 0x10010000u : dtype == FLOAT16 ? 0x1000u : 0x8000u; }

/* Computes the addends of a tile's columns from the smallest |value| that may pass: 64 bits for float32, else 32 bits for each
 * column. */
INLINE void test_addends(const double smallest[TILE], uint64_t addend[TILE], dtype_t dtype) {
    uint32_t *const narrow = (uint32_t *)(void *)addend;
    for (int i = 0; i < TILE; i++) {
        if (dtype == FLOAT32) addend[i] = (UPPER_64 | near_half(dtype)) - (bits_of_double(smallest[i]) & 0xffffffff00000000u);
        else narrow[i] = (UPPER_32 | near_half(dtype)) - (bits_of_float((float)smallest[i]) & 0xffff0000u);
    }
}

/* Tests vectors v and v + 1 of a tile, in a and b for float32, else in f, which has both vectors rounded to floats. */
INLINE passed_t fast_test(passed_t passed, vf64 a, vf64 b, vf32 f, const vu64 addend[TILE_VECTORS], int v, dtype_t dtype) {
    if (dtype == FLOAT32) {
        const vu64 mask = u64_set(UPPER_64 | 0x1ffe0000u);
        passed.doubles = mask64_and_nonzero(passed.doubles, u64_add(bits_of_f64(a), addend[v]), mask);
        passed.doubles = mask64_and_nonzero(passed.doubles, u64_add(bits_of_f64(b), addend[v + 1]), mask);
    } else {
        const uint32_t mask = UPPER_32 | (dtype == FLOAT16 ? 0x1fffu : 0xffffu);
        passed.floats = mask32_and_nonzero(passed.floats, u32_add(bits_of_f32(f), addend[v / 2]), mask);
    }
    return passed;
}

/* ---- the test with the error bound of each value ------------------------------------------------------------------------- */

/* Returns zero in lanes where value - error and value + error round to the same number, not subnormal in dtype, and sets *value
 * to that number.  Half-way points would be rounded away from zero, but a value that may be one stays undecided. */
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

/* Rounds a double-double, and sets the bits of `undecided` in which value - error and value + error, rounded, differ. */
INLINE vf64 rounded_dd(vdd sum, vf64 error, vu64 *undecided) {
    const vf64 below = f64_add(sum.high, f64_sub(sum.low, error)), above = f64_add_fma(sum.high, f64_add_fma(sum.low, error));
    *undecided = u64_or(*undecided, u64_xor(bits_of_f64(below), bits_of_f64(above)));
    return below;
}

/* ---- a row with an uncertain value --------------------------------------------------------------------------------------- */

/* The values of a row of a tile. */
typedef struct {
    double high[TILE], low[TILE], error[TILE];
} row_t;

/* Rounds the values of a row, using the error bound of each value; undecided values are evaluated exactly. */
INLINE void settle(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, row_t *values,
                   dtype_t dtype, tally_t *tally) {
    const format_t format = format_of(dtype);
    const int drop = 53 - format.precision;
    const uint64_t half = drop ? (uint64_t)1 << (drop - 1) : 0, normal = bits_of_double(power_of_two(format.min_exponent));
    uint64_t undecided[TILE], any = 0;
    double rounded[TILE];
    for (int i = 0; i < TILE; i++) {
        /* rounds half-way points away from zero, as undecided_double does */
        const uint64_t below = bits_of_double(values->high[i] + (values->low[i] - values->error[i])) + half;
        const uint64_t above = bits_of_double(values->high[i] + (values->low[i] + values->error[i])) + half;
        rounded[i] = double_of_bits(below >> drop << drop);
        undecided[i] = ((below ^ above) >> drop) | (uint64_t)((below & INT64_MAX) < normal + half);
        any |= undecided[i];
    }
    tally->uncertain++;
    for (int i = 0; any && i < width; i++) {
        if (!undecided[i]) continue;
        const double high = values->high[i], low = values->low[i], error = values->error[i];
        const double below = round_to(dtype, high + (low - error)), above = round_to(dtype, high + (low + error));
        rounded[i] = job->skip_rounding_test ? round_to(dtype, high + low) : below;
        if (job->skip_rounding_test || bits_of_double(below) == bits_of_double(above)) continue;
        tally->exact++;
        const position_t position = position_of(spec, job, row + (column + i >= spec->d_model - spec->first));
        rounded[i] = posenc_exact(spec, &position, column + i, dtype);
    }
    memcpy(values->high, rounded, sizeof rounded);
}

/* Writes the first `width` values of a tile row, all of which must be exact in dtype. */
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

#endif
