/* Rows on their own: each value evaluated directly, and the rows that are known without. */
#ifndef POSENC_SCATTERED_H
#define POSENC_SCATTERED_H

#include "rotate.h"

#define DIRECT_DOUBLE_ERROR 0x1p-50     /* of the value ... */
#define DIRECT_DOUBLE_FLOOR 0x1p-89     /* ... and of the full amplitude, where the phase is tiny */

/* Directly evaluated values of a tile: of each column, or of each pair of columns at once. */
INLINE void direct_values(const spec_t *spec, const position_t *position, ptrdiff_t column, dtype_t dtype,
                          vdd value[TILE_VECTORS]) {
    for (int v = 0; v < TILE_VECTORS; v += 2) {
        const ptrdiff_t here = column + v * LANES;
        vdd p = {f64_set(0), f64_set(0)}, q = p;
        if (spec->order == UNPAIRED) {
            for (int i = 0; i < 2; i++) {
                if (dtype == FLOAT64) direct_pair(spec, position, here + i * LANES, COLUMNS, &p, &q);
                else direct_scaled(spec, position, here + i * LANES, COLUMNS, &p.high, &q.high);
                value[v + i] = p;
            }
            continue;
        }
        if (dtype == FLOAT64) direct_pair(spec, position, here, PAIRS, &p, &q);
        else direct_scaled(spec, position, here, PAIRS, &p.high, &q.high);
        const vdd first = spec->order == SIN_FIRST ? p : q, second = spec->order == SIN_FIRST ? q : p;
        f64_interleave(first.high, second.high, &value[v].high, &value[v + 1].high);
        f64_interleave(first.low, second.low, &value[v].low, &value[v + 1].low);
    }
}

/* The `width` columns from `column` on of a row. */
INLINE void tile_row(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t column,
                     int width, char *out, dtype_t dtype, tally_t *tally) {
    const vf64 amplitude = f64_abs(f64_set(spec->scale));
    const vf64 share = f64_set(dtype == FLOAT64 ? PAIR_ERROR : DIRECT_DOUBLE_ERROR);
    const vf64 floor = f64_mul(amplitude, f64_set(dtype == FLOAT64 ? DIRECT_PAIR_FLOOR : DIRECT_DOUBLE_FLOOR));
    vdd direct_value[TILE_VECTORS];
    vf64 value[TILE_VECTORS];
    passed_t passed = passed_all();
    vu64 undecided = u64_set(0);
    direct_values(spec, position, column, dtype, direct_value);
    if (dtype == FLOAT64) {
        for (int v = 0; v < TILE_VECTORS; v++) {
            const vf64 error = f64_muladd(f64_abs(direct_value[v].high), share, floor);
            value[v] = rounded_pair(direct_value[v], error, &undecided);
        }
    } else {
        ALIGNED uint64_t addend[TILE];
        ALIGNED double smallest[TILE];
        /* |value| >= 2**-40 of the amplitude: the error is below 2**-48 of it, a few units of its last place */
        for (int v = 0; v < TILE_VECTORS; v++)
            f64_store(smallest + v * LANES, f64_muladd(amplitude, f64_set(0x1p-40), f64_set(2 * smallest_normal(dtype))));
        quick_addends(smallest, addend, dtype);
        vu64 addends[TILE_VECTORS];
        for (int v = 0; v < TILE_VECTORS / (dtype == FLOAT32 ? 1 : 2); v++) addends[v] = u64_load(addend + v * LANES);
        for (int v = 0; v < TILE_VECTORS; v += 2) {
            value[v] = direct_value[v].high;
            value[v + 1] = direct_value[v + 1].high;
            passed = quick_test(passed, value[v], value[v + 1], f32_of_f64(value[v], value[v + 1]), addends, v, dtype);
        }
    }
    if (UNLIKELY(!(dtype == FLOAT64 || spec->quick) || !is_passed(passed, dtype) || !u64_is_zero(undecided))) {
        row_t t;
        for (int v = 0; v < TILE_VECTORS; v++) {
            f64_store(t.high + v * LANES, direct_value[v].high);
            f64_store(t.low + v * LANES, direct_value[v].low);
            f64_store(t.error + v * LANES, f64_muladd(f64_abs(direct_value[v].high), share, floor));
        }
        write_settled(spec, job, job->output, row, column, width, out, &t, tally);
    } else {
        write_values(job, out, value, width, dtype, job->output);
    }
}

#define CASE(T) \
    NOINLINE void tile_row_##T(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, \
                               ptrdiff_t column, int width, char *out, tally_t *tally) { \
        tile_row(spec, job, position, row, column, width, out, T, tally); \
    }
EVERY_DTYPE(CASE)
#undef CASE
#define CASE(T) [T] = tile_row_##T,
static void (*const TILE_ROW[])(const spec_t *, const job_t *, const position_t *, ptrdiff_t row, ptrdiff_t column, int width,
                                char *out, tally_t *) = {EVERY_DTYPE(CASE)};
#undef CASE

/* A row that is known: its position is not finite, it is padding, or all of its angles are 0. */
NOINLINE void known_row(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row) {
    const double cosine = position->padding || spec->scale == 0 ? 0 : round_to(job->dtype, spec->scale);
    for (ptrdiff_t column = 0; column < spec->d_model; column += TILE) {
        double values[TILE];
        for (int i = 0; i < TILE; i++)
            values[i] = !position->finite ? double_of_bits(0x7ff8000000000000u) : spec->quarter[column + i] ? cosine : 0;
        write_rounded(job, job->output, smaller(spec->d_model - column, TILE),
                      job->out + row * job->row_stride + column * size_of(job->dtype), values);
    }
}

/* A row beyond the fast path: each value is evaluated exactly. */
NOINLINE void exact_row(const spec_t *spec, const job_t *job, ptrdiff_t row, tally_t *tally) {
    for (ptrdiff_t column = 0; column < spec->d_model; column += TILE) {
        row_t t = {.low = {0}};
        for (int i = 0; i < TILE; i++) t.error[i] = double_of_bits((uint64_t)0x7ff << 52);
        write_settled(spec, job, job->output, row, column, smaller(spec->d_model - column, TILE),
                      job->out + row * job->row_stride + column * size_of(job->dtype), &t, tally);
    }
}

static int is_known(const position_t *position) { return !position->finite || position->padding || position->limbs == 0; }

static int is_fast(const spec_t *spec, const position_t *position) {
    return spec->fast && !is_known(position) && position->limbs <= FAST_POSITION_LIMBS;
}

static void scattered_row(const spec_t *spec, const job_t *job, ptrdiff_t row, tally_t *tally) {
    const position_t position = position_of(spec, job, row);
    char *const out = job->out + row * job->row_stride;
    if (is_known(&position)) known_row(spec, job, &position, row);
    else if (!is_fast(spec, &position)) exact_row(spec, job, row, tally);
    else
        for (ptrdiff_t column = 0; column < spec->d_model; column += TILE)
            TILE_ROW[job->dtype](spec, job, &position, row, column, smaller(spec->d_model - column, TILE),
                                 out + column * size_of(job->dtype), tally);
}

#endif
