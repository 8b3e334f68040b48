/* Writes rows whose values are evaluated directly or exactly, or are known without evaluation. */
#ifndef POSENC_DIRECT_ROWS_H
#define POSENC_DIRECT_ROWS_H

#include "table/advance.h"
#include "table/round_tiles.h"

#define DIRECT_DOUBLE_ERROR 0x1p-50     /* relative to the value, plus ... */
#define DIRECT_DOUBLE_FLOOR 0x1p-87     /* ... relative to the full amplitude, for tiny phases */

/* Rows whose values are in a tile, one after another; row i is written to out + (row[i] - row[0]) * job->row_stride. */
typedef struct {
    const spec_t *spec;
    const job_t *job;
    position_t position; /* of the columns of the tile */
    ptrdiff_t row[TILE], column;
    int rows, width;
    char *out;
} direct_tile_t;

/* Returns ones in lanes where x is 0. */
INLINE vu64 zeros_of(vu64 x) { return u64_sub(u64_set(0), u64_shr(u64_sub(u64_and(x, u64_set(INT64_MAX)), u64_set(1)), 63)); }

/* Computes the error bounds of the values of a tile.  They are 0 for a value of 0 that is exact, because its phase is exact or its
 * frequency is 0. */
INLINE void set_errors(const direct_tile_t *d, row_t *t, dtype_t dtype) {
    const spec_t *spec = d->spec;
    const vf64 amplitude = f64_abs(f64_set(spec->scale)), share = f64_set(dtype == FLOAT64 ? DD_ERROR : DIRECT_DOUBLE_ERROR);
    const vf64 floor = f64_mul(amplitude, f64_set(dtype == FLOAT64 ? DIRECT_DD_FLOOR : DIRECT_DOUBLE_FLOOR));
    const int limbs = has_exact_phases(spec, &d->position) ? 0 : spec->integer_limbs + spec->fraction_limbs;
    for (int i = 0; i < TILE; i += LANES) {
        const vf64 value = f64_add(f64_load(t->high + i), f64_set(0)); /* replaces -0 */
        const vu64 error = bits_of_f64(f64_muladd(f64_abs(value), share, floor)), zeros = zeros_of(bits_of_f64(value));
        vu64 turns = u64_set(0);
        for (int k = 0; k < limbs && !u64_is_zero(zeros); k++)
            turns = u64_or(turns, u64_load32(spec->turns + k * spec->pitch + d->column + i));
        const vu64 exact = u64_and(zeros, zeros_of(turns));
        f64_store(t->high + i, value);
        f64_store(t->low + i, dtype == FLOAT64 ? f64_add(f64_load(t->low + i), f64_set(0)) : f64_set(0));
        f64_store(t->error + i, f64_of_bits(u64_select(exact, u64_set(0), error)));
    }
}

/* Rounds the values of a tile to dtype, or so that a conversion to float32 rounds them correctly.  Returns whether a value is
 * undecided. */
INLINE int round_evaluated(const row_t *t, vf64 value[TILE_VECTORS], dtype_t dtype) {
    vu64 undecided = u64_set(0);
    for (int v = 0; v < TILE_VECTORS; v++) {
        const vf64 error = f64_load(t->error + v * LANES);
        value[v] = f64_load(t->high + v * LANES);
        if (dtype == FLOAT64) {
            value[v] = rounded_dd((vdd){value[v], f64_load(t->low + v * LANES)}, error, &undecided);
        } else if (dtype == FLOAT32) {
            if (v % 2) undecided = u64_or(undecided, undecided_values(value + v - 1, t->error + (v - 1) * LANES, dtype));
        } else {
            const vu64 bits = undecided_double(&value[v], error, dtype);
            undecided = u64_or(undecided, u64_select(zeros_of(bits_of_f64(error)), u64_set(0), bits));
        }
    }
    return !u64_is_zero(undecided);
}

/* Rounds each value of an evaluated tile with its error bound. */
COLD void settle_rows(const direct_tile_t *d, const row_t *t, tally_t *tally) {
    const job_t *job = d->job;
    for (int i = 0; i < d->rows; i++) {
        const size_t width = (size_t)d->width * sizeof(double);
        row_t values = {.high = {0}};
        memcpy(values.high, t->high + i * d->width, width);
        memcpy(values.low, t->low + i * d->width, width);
        memcpy(values.error, t->error + i * d->width, width);
        write_settled(d->spec, job, job->output, d->row[i], d->column, d->width,
                      d->out + (d->row[i] - d->row[0]) * job->row_stride, &values, tally);
    }
}

/* Returns whether the rows of a tile are stored one after another. */
INLINE int is_contiguous(const direct_tile_t *d) {
    const job_t *job = d->job;
    return job->output != ADD && (d->rows == 1 || (job->row_stride == d->width * size_of(job->dtype) &&
                                                   d->row[d->rows - 1] - d->row[0] == d->rows - 1));
}

/* Writes the rows of a tile from a buffer. */
static void write_rows(const direct_tile_t *d, const char *staged) {
    const job_t *job = d->job;
    const ptrdiff_t bytes = d->width * size_of(job->dtype);
    if (is_contiguous(d)) {
        memcpy(d->out, staged, (size_t)(d->rows * bytes));
        return;
    }
    for (int i = 0; i < d->rows; i++, staged += bytes)
        write_staged(job, d->out + (d->row[i] - d->row[0]) * job->row_stride, staged, d->width, job->dtype, job->output,
                     job->batch);
}

/* Writes the rows of an evaluated tile. */
INLINE void write_evaluated(const direct_tile_t *d, row_t *t, dtype_t dtype, tally_t *tally) {
    vf64 value[TILE_VECTORS];
    set_errors(d, t, dtype);
    if (!(dtype == FLOAT64 || d->spec->has_fast_test) || round_evaluated(t, value, dtype)) {
        settle_rows(d, t, tally);
    } else {
        ALIGNED char staged[TILE * sizeof(double)];
        store_tile(staged, value, dtype);
        write_rows(d, staged);
    }
}

/* Evaluates and writes a tile. */
NOINLINE void write_direct_tile(const spec_t *spec, const direct_tile_t *d, tally_t *tally) {
    ALIGNED row_t t;
    const int width = d->rows * d->width;
    direct_tile(spec, &d->position, d->column, width, d->job->dtype, t.high, NULL, t.low, NULL);
    for (int i = width; i < TILE; i++) t.high[i] = 1, t.low[i] = 0;
    FOR_DTYPE(d->job->dtype, write_evaluated(d, &t, DTYPE, tally))
}

/* Writes columns column .. end - 1 of a row to `out`. */
NOINLINE void direct_columns(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t column,
                             ptrdiff_t end, char *out, tally_t *tally) {
    direct_tile_t d = {.spec = spec, .job = job, .position = *position, .row = {row}, .column = column, .rows = 1, .out = out};
    for (; d.column < end; d.column += TILE, d.out += TILE * size_of(job->dtype)) {
        d.width = minimum(end - d.column, TILE);
        write_direct_tile(spec, &d, tally);
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

/* ---- tiles with short phases --------------------------------------------------------------------------- */

/* Sets the limits of values that are evaluated with short phases (direct_short in direct.h). */
static void set_short_limit(const spec_t *spec, const job_t *job, limit_t *limit) {
    for (int i = 0; i < TILE; i++) limit->error[0][i] = limit->error[1][i] = magnitude_of(spec->scale) * DOUBLE_ERROR;
    set_addends(limit, TILE, job->dtype);
}

/* Evaluates and writes a tile with short phases, or directly if a value is uncertain. */
static void write_short_tile(const spec_t *spec, const direct_tile_t *d, const turns_t *turns, const limit_t *limit,
                             tally_t *tally) {
    const job_t *job = d->job;
    const int is_direct = d->rows * d->width == TILE && is_contiguous(d);
    ALIGNED double factor[2 * TILE];
    ALIGNED char staged[TILE * sizeof(double)];
    product_t p; /* without an initializer, which would set all factors to 0 */
    p.factor[0] = factor;
    p.radians = NULL;
    p.first_stride = p.stride = 0;
    p.factors = p.tiles = 1;
    p.streamed = 0;
    p.order = spec->order;
    p.rest = 0;
    p.sign = 0;
    p.quarter = spec->quarter + d->column;
    p.limits = limit;
    direct_factor(spec, &d->position, turns, d->column, factor);
    if (UNLIKELY(ROUND[job->dtype](&p, is_direct ? d->out : staged))) write_direct_tile(spec, d, tally);
    else if (!is_direct) write_rows(d, staged);
}

static void direct_tiles(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, char *out,
                         tally_t *tally) {
    direct_tile_t d = {.spec = spec, .job = job, .position = *position, .row = {row}, .rows = 1, .out = out};
    turns_t turns;
    if (job->dtype == FLOAT64 || !spec->has_fast_test) {
        direct_columns(spec, job, position, row, 0, spec->d_model, out, tally);
        return;
    }
    limit_t limit;
    set_short_limit(spec, job, &limit);
    set_turns(spec, position, &turns);
    for (; d.column < spec->d_model; d.column += TILE, d.out += TILE * size_of(job->dtype)) {
        d.width = minimum(spec->d_model - d.column, TILE);
        write_short_tile(spec, &d, &turns, &limit, tally);
    }
}

NOINLINE void scattered_row(const spec_t *spec, const job_t *job, ptrdiff_t row, tally_t *tally) {
    const position_t position = position_of(spec, job, row);
    char *const out = job->out + row * job->row_stride;
    if (position.padding && leaves_padding(spec, job)) return;
    if (is_known(&position) || spec->scale == 0) known_row(spec, job, &position, out);
    else if (spec->has_fast_path) direct_tiles(spec, job, &position, row, out, tally);
    else exact_row(spec, job, row, out, tally);
}

/* ---- narrow rows --------------------------------------------------------------------------------------- */

INLINE int is_narrow(const spec_t *spec, const job_t *job) {
    return spec->d_model <= MOST_NARROW && spec->has_fast_path && (spec->has_fast_test || job->dtype == FLOAT64);
}

/* Writes rows of at most MOST_NARROW columns, several in a tile: the arrays of a specification repeat its columns. */
static void narrow_rows(const spec_t *wide, const job_t *job, ptrdiff_t row, ptrdiff_t count, tally_t *tally) {
    spec_t spec = *wide;
    if (spec.d_model % 2) spec.order = UNPAIRED; /* the first column of the next row follows a sine */
    const int lanes = angles_of_tile(&spec), width = (int)spec.d_model, angles = width * lanes / TILE, most = TILE / width;
    const ptrdiff_t end = row + count;
    position_lanes_t positions;
    direct_tile_t d = {.spec = wide, .job = job, .width = width, .position = {.finite = 1, .lanes = &positions}};
    turns_t turns;
    limit_t limit;
    if (job->dtype != FLOAT64) set_short_limit(&spec, job, &limit);
    while (row < end) {
        uint64_t whole = 0, fraction = 0;
        int at = 0;
        for (d.rows = 0; row < end && d.rows < most; row++) {
            fixed_t fixed;
            if (!fixed_position(wide, job, row, &fixed)) {
                scattered_row(wide, job, row, tally);
                continue;
            }
            whole |= fixed.whole;
            fraction |= fixed.fraction;
            for (int i = 0; i < angles; i += LANES) {
                u64_flush(positions.whole + at + i, u64_set(fixed.whole), 0);
                u64_flush(positions.fraction + at + i, u64_set(fixed.fraction), 0);
                u64_flush(positions.sign + at + i, u64_set((uint64_t)fixed.negative << 63), 0);
            }
            at += angles;
            d.row[d.rows++] = row;
        }
        if (d.rows == 0) continue;
        for (; at < lanes; at++) { /* other lanes repeat the first row, whose values are not exactly 0 */
            positions.whole[at] = positions.whole[0];
            positions.fraction[at] = positions.fraction[0];
            positions.sign[at] = positions.sign[0];
        }
        const int first = (uint32_t)fraction ? -2 : fraction ? -1 : (uint32_t)whole ? 0 : 1;
        const int limbs = (whole >> 32 ? 2 : whole ? 1 : fraction >> 32 ? 0 : -1) - first;
        d.out = job->out + d.row[0] * job->row_stride;
        if (job->dtype != FLOAT64 && (first != d.position.exponent || limbs != d.position.limbs)) {
            d.position.exponent = first;
            d.position.limbs = limbs;
            set_turns(&spec, &d.position, &turns);
        }
        d.position.exponent = first;
        d.position.limbs = limbs;
        if (job->dtype == FLOAT64) write_direct_tile(&spec, &d, tally);
        else write_short_tile(&spec, &d, &turns, &limit, tally);
    }
}

#endif
