/* Writes single rows: each value is evaluated directly or exactly, or is known without evaluation. */
#ifndef POSENC_DIRECT_ROWS_H
#define POSENC_DIRECT_ROWS_H

#include "table/decide_rounding.h"

#define DIRECT_DOUBLE_ERROR 0x1p-50     /* relative to the value, plus ... */
#define DIRECT_DOUBLE_FLOOR 0x1p-87     /* ... relative to the full amplitude, for tiny phases */

/* Evaluates `width` columns of a tile directly, and sets the others to 1; only float64 needs the low
 * parts. */
INLINE void evaluate_tile(const spec_t *spec, const position_t *position, ptrdiff_t column, int width, dtype_t dtype,
                          row_t *t) {
    for (int i = 0; i < TILE; i += 2 * LANES) {
        vdd p[2] = {{f64_set(1), f64_set(0)}, {f64_set(1), f64_set(0)}}, q[2];
        if (i < width) direct_vectors(spec, position, column + i, dtype, p, q);
        for (int j = 0; j < 2; j++) {
            f64_store(t->high + i + j * LANES, p[j].high);
            if (dtype == FLOAT64) f64_store(t->low + i + j * LANES, p[j].low);
        }
    }
}

/* Writes an evaluated row of a tile. */
INLINE void write_evaluated(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t column,
                            int width, char *out, row_t *t, dtype_t dtype, tally_t *tally) {
    const vf64 amplitude = f64_abs(f64_set(spec->scale));
    const vf64 share = f64_set(dtype == FLOAT64 ? DD_ERROR : DIRECT_DOUBLE_ERROR);
    const vf64 floor = f64_mul(amplitude, f64_set(dtype == FLOAT64 ? DIRECT_DD_FLOOR : DIRECT_DOUBLE_FLOOR));
    vf64 value[TILE_VECTORS];
    mask16 passed = mask16_all();
    vu64 undecided = u64_set(0);
    if (dtype == FLOAT64) {
        for (int v = 0; v < TILE_VECTORS; v++) {
            const vdd evaluated = dd_load(t->high + v * LANES, t->low + v * LANES);
            value[v] = rounded_dd(evaluated, f64_muladd(f64_abs(evaluated.high), share, floor), &undecided);
        }
    } else {
        /* a value >= 2**-40 times the amplitude has a relative error below 2**-48, which is at most 32 ulp */
        const vf64 smallest = f64_muladd(amplitude, f64_set(0x1p-40), f64_set(2 * smallest_normal(dtype)));
        const vu64 addend = test_addend(smallest, smallest, dtype);
        for (int v = 0; v < TILE_VECTORS; v += 2) {
            value[v] = f64_load(t->high + v * LANES);
            value[v + 1] = f64_load(t->high + (v + 1) * LANES);
            passed = fast_test(passed, value + v, f32_of_f64(value[v], value[v + 1]), addend, dtype);
        }
    }
    if (UNLIKELY(!(dtype == FLOAT64 || spec->has_fast_test) || !mask16_is_all(passed) || !u64_is_zero(undecided))) {
        for (int i = 0; i < TILE; i += LANES) {
            if (dtype != FLOAT64) f64_store(t->low + i, f64_set(0));
            f64_store(t->error + i, f64_muladd(f64_abs(f64_load(t->high + i)), share, floor));
        }
        for (int i = 0; i < TILE && has_exact_phases(spec, position); i++)
            if (t->high[i] == 0) t->error[i] = 0;
        write_settled(spec, job, job->output, row, column, width, out, t, tally);
    } else {
        write_tile(job, out, value, width, dtype, job->output);
    }
}

/* Writes columns column .. end - 1 of a row to `out`. */
NOINLINE void direct_columns(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t column,
                             ptrdiff_t end, char *out, tally_t *tally) {
    ALIGNED row_t t;
    for (; column < end; column += TILE, out += TILE * size_of(job->dtype)) {
        const int width = minimum(end - column, TILE);
        if (job->dtype == FLOAT64) evaluate_tile(spec, position, column, width, FLOAT64, &t);
        else evaluate_tile(spec, position, column, width, FLOAT32, &t); /* one copy for three dtypes */
        FOR_DTYPE(job->dtype, write_evaluated(spec, job, position, row, column, width, out, &t, DTYPE, tally))
    }
}

/* Writes a row without a fast path.  The bounds of errors are infinite, so every value is evaluated
 * exactly. */
COLD void exact_row(const spec_t *spec, const job_t *job, ptrdiff_t row, char *out, tally_t *tally) {
    row_t t = {.low = {0}};
    for (int i = 0; i < TILE; i++) t.error[i] = double_of_bits(0x7ff0000000000000u);
    for (ptrdiff_t column = 0; column < spec->d_model; column += TILE)
        write_settled(spec, job, job->output, row, column, minimum(spec->d_model - column, TILE),
                      out + column * size_of(job->dtype), &t, tally);
}

/* Writes a row whose values are known: its position is not finite, or is the padding position, or all of its
 * angles are 0. */
NOINLINE void known_row(const spec_t *spec, const job_t *job, const position_t *position, char *out) {
    const double cosine = position->padding || spec->scale == 0 ? 0 : round_to(job->dtype, spec->scale);
    const vu64 bits = position->finite ? bits_of_f64(f64_set(cosine)) : u64_set(0x7ff8000000000000u);
    const vu64 all = u64_set(position->finite ? 0 : UINT64_MAX); /* all columns are NaN, else cosines have these bits */
    for (ptrdiff_t column = 0; column < spec->d_model; column += TILE) {
        double values[TILE];
        for (int i = 0; i < TILE; i += LANES)
            f64_store(values + i, f64_of_bits(u64_and(bits, u64_or(all, u64_load(spec->quarter + column + i)))));
        write_rounded(job, job->output, minimum(spec->d_model - column, TILE), out + column * size_of(job->dtype), values);
    }
}

/* Whether the rows of x at the padding position stay as they are: zeros would be added. */
INLINE int leaves_padding(const spec_t *spec, const job_t *job) {
    return spec->has_padding && !spec->padding_is_nan && job->output == ADD && job->x_scale == 1;
}

NOINLINE void scattered_row(const spec_t *spec, const job_t *job, ptrdiff_t row, tally_t *tally) {
    const position_t position = position_of(spec, job, row);
    char *const out = job->out + row * job->row_stride;
    if (position.padding && leaves_padding(spec, job)) return;
    if (is_known(&position) || spec->scale == 0) known_row(spec, job, &position, out);
    else if (spec->has_fast_path) direct_columns(spec, job, &position, row, 0, spec->d_model, out, tally);
    else exact_row(spec, job, row, out, tally);
}

#endif
