/* The rounding test, and the rounding of the values that fail it.
 *
 * If value - error and value + error round to the same number, so does the true value between them.  float64 values, in
 * double-double, are tested in just this way.  For the other dtypes a cheaper test goes first: a value is uncertain only if
 * its dropped bits lie next to a half-way point, or if it is so small that its error is no longer small beside it.
 */
#ifndef POSENC_SETTLE_H
#define POSENC_SETTLE_H

#include "exact.h"
#include "output.h"
#include "position.h"

/* ---- the quick test ---------------------------------------------------------------------------------------------------- */

/* With M the size of the products that a value is the sum of: a value below this share of M is uncertain.  float32: the error
 * stays below 2**16 units of the double's last place.  The halves: it stays far below half a unit of a float's last place. */
INLINE double smallest_share(dtype_t dtype) { return dtype == FLOAT32 ? 0x1p-12 : 0x1p-20; }

/* Below it a value may be subnormal in dtype, where other bits are dropped. */
INLINE double smallest_normal(dtype_t dtype) { return dtype == FLOAT16 ? 0x1p-14 : 0x1p-126; }

/* Lanes that passed the test: of doubles, in halves of 32 bits, or of floats, in halves of 16 bits. */
typedef struct {
    mask64 doubles;
    mask32 floats;
} passed_t;

INLINE passed_t passed_all(void) { return (passed_t){mask64_all(), mask32_all()}; }
INLINE int is_passed(passed_t passed, dtype_t dtype) {
    return dtype == FLOAT16 || dtype == BFLOAT16 ? mask32_is_all(passed.floats) : mask64_is_all(passed.doubles);
}

/* The test looks at the lower and at the upper half of a lane after one addition.  The lower half is then zero, under the
 * mask, next to a half-way point: within 2**16 units of the double's 29 dropped bits, or at that point itself for a half,
 * because the float that is to be converted was rounded without crossing it.  In the upper half, bit 62 or 30 tells
 * whether |value| >= smallest; a carry from below moves that limit by less than a share of 2**-7. */
#define UPPER_64 ((uint64_t)1 << 62)
#define UPPER_32 ((uint32_t)1 << 30)

INLINE uint32_t near_half(dtype_t dtype) { return dtype == FLOAT32 ? 0x10010000u : dtype == FLOAT16 ? 0x1000u : 0x8000u; }

/* The addends of a tile's columns, 64 or 32 bits each, from the smallest value of each column that is certain. */
INLINE void quick_addends(const double smallest[TILE], uint64_t addend[TILE], dtype_t dtype) {
    if (dtype == FLOAT32) {
        for (int i = 0; i < TILE; i++)
            addend[i] = (UPPER_64 | near_half(dtype)) - (bits_of_double(smallest[i]) & 0xffffffff00000000u);
    } else {
        uint32_t *narrow = (uint32_t *)(void *)addend;
        for (int i = 0; i < TILE; i++)
            narrow[i] = (UPPER_32 | near_half(dtype)) - (bits_of_float((float)smallest[i]) & 0xffff0000u);
    }
}

/* Tests vectors v and v + 1 of a tile's values, which are rounded to floats f. */
INLINE passed_t quick_test(passed_t passed, vf64 a, vf64 b, vf32 f, const vu64 addend[TILE_VECTORS], int v, dtype_t dtype) {
    if (dtype == FLOAT32) {
        const vu64 mask = u64_set(UPPER_64 | 0x1ffe0000u);
        passed.doubles = mask64_and_nonzero(passed.doubles, u64_add(bits_of_f64(a), addend[v]), mask);
        passed.doubles = mask64_and_nonzero(passed.doubles, u64_add(bits_of_f64(b), addend[v + 1]), mask);
    } else {
        passed.floats = mask32_and_nonzero(passed.floats, f, addend[v / 2], UPPER_32 | (dtype == FLOAT16 ? 0x1fffu : 0xffffu));
    }
    return passed;
}

/* ---- the test with each value's own error bound ------------------------------------------------------------------------ */

/* Zero where value - error and value + error round to the same number, which is not subnormal in dtype and becomes the value.
 * Rounded half away from zero: only an exact value lies on a half-way point. */
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

/* Rounds a double-double; adds to `undecided` the bits in which value - error and value + error differ. */
INLINE vf64 rounded_pair(vdd sum, vf64 error, vu64 *undecided) {
    const vf64 below = f64_add(sum.high, f64_sub(sum.low, error)),
               above = f64_add_fused(sum.high, f64_add_fused(sum.low, error));
    *undecided = u64_or(*undecided, u64_xor(bits_of_f64(below), bits_of_f64(above)));
    return below;
}

/* ---- a row that is uncertain --------------------------------------------------------------------------------------------- */

/* The values of a row of a tile. */
typedef struct {
    double high[TILE], low[TILE], error[TILE];
} row_t;

/* Rounds the values of a row, each by its own error bound; the undecided ones are evaluated exactly. */
INLINE void settle(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, row_t *values,
                   dtype_t dtype, tally_t *tally) {
    const format_t format = format_of(dtype);
    const int drop = 53 - format.precision;
    const uint64_t half = drop ? (uint64_t)1 << (drop - 1) : 0, normal = bits_of_double(power_of_two(format.min_exponent));
    uint64_t undecided[TILE], any = 0;
    double rounded[TILE];
    for (int i = 0; i < TILE; i++) {
        /* half away from zero, as above */
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

/* Writes the first `width` columns of a row of values that dtype holds. */
COLD void write_rounded(const job_t *job, output_t output, int width, char *out, const double values[TILE]) {
    vf64 rounded[TILE_VECTORS];
    for (int v = 0; v < TILE_VECTORS; v++) rounded[v] = f64_load(values + v * LANES);
#define CASE(T) \
    case T: write_values(job, out, rounded, width, T, output); break;
    switch (job->dtype) { EVERY_DTYPE(CASE) }
#undef CASE
}

COLD void write_settled(const spec_t *spec, const job_t *job, output_t output, ptrdiff_t row, ptrdiff_t column, int width,
                        char *out, row_t *values, tally_t *tally) {
#define CASE(T) \
    case T: settle(spec, job, row, column, width, values, T, tally); break;
    switch (job->dtype) { EVERY_DTYPE(CASE) }
#undef CASE
    write_rounded(job, output, width, out, values->high);
}

#endif
