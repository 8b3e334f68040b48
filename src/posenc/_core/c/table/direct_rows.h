/* Writes rows whose values are evaluated directly, or are known without evaluation. */
#ifndef POSENC_DIRECT_ROWS_H
#define POSENC_DIRECT_ROWS_H

#include "table/round_tiles.h"

/* Rows that are evaluated together, tile by tile: one row, or several narrow rows, for which the arrays of `spec`
 * repeat the columns. */
typedef struct {
    const spec_t *spec;
    const job_t *job;
    position_t position;         /* of the columns of a tile */
    turns_t turns;               /* for this position */
    limit_t limit;               /* of values that are evaluated with short phases */
    int has_short_phases;        /* whether values are first evaluated with short phases */
    product_t product;           /* with one factor */
    ALIGNED double factor[2 * TILE];
    ALIGNED uint64_t phases[TILE];
} direct_t;

static void start_direct(direct_t *d, const spec_t *spec, const job_t *job) {
    d->spec = spec;
    d->job = job;
    d->position = (position_t){.finite = 0};
    d->has_short_phases = job->dtype != FLOAT64 && spec->has_fast_test;
    const vf64 smallest = f64_set(smallest_of(magnitude_of(spec->scale) * DOUBLE_ERROR, job->dtype));
    const vu64 addend = test_addend(smallest, smallest, job->dtype);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < TILE / 2; i += LANES) u64_store(d->limit.addend[k] + i, addend, 0);
    d->product = (product_t){.factor = {d->factor}, .tiles = 1, .order = spec->order, .limits = &d->limit};
}

/* Evaluates the values of a tile with their error bounds, and writes it. */
NOINLINE void write_evaluated(const direct_t *d, const tile_t *t, tally_t *tally) {
    const int count = t->rows * t->width;
    values_t v;
    evaluate_tile(d->spec, &d->position, t->column, count, d->job->dtype == FLOAT64, &v);
    tally->uncertain++;
    settle_tile(d->spec, d->job, t, &v, 1, tally);
}

/* Replaces exact zeros in the factor by 1, which passes the fast test; returns whether there may be any.  The phase
 * of a zero is too small by less than 16 units; with EXACT_SHORT_BITS, any other phase is at least 64 units away
 * from a quarter turn. */
NOINLINE int replace_zeros(direct_t *d) {
    const int angles = angles_of_tile(d->spec);
    if (!has_exact_phases(d->spec, &d->position, EXACT_SHORT_BITS)) return 0;
    for (int i = 0; i < 2 * angles; i += LANES) {
        const vu64 distance = u64_sub(u64_shl(u64_load(d->phases + i % angles), 2), u64_set(4 * (SHORT_ROUNDING - 32)));
        const vf64 value = f64_load(d->factor + i);
        const vu64 zeros = u64_and(zeros_of(value), zeros_of(f64_of_bits(u64_shr(distance, 8))));
        f64_store(d->factor + i, f64_of_bits(u64_select(zeros, bits_of_f64(f64_set(1)), bits_of_f64(value))));
    }
    return 1;
}

/* Writes a tile, with short phases if they are used and no value is uncertain, otherwise with error bounds. */
INLINE void write_direct_tile(direct_t *d, const tile_t *t, tally_t *tally) {
    const spec_t *const spec = d->spec;
    const int writes_out = t->rows * t->width == TILE && is_contiguous(d->job, t);
    if (d->has_short_phases) {
        ALIGNED char staged[2][TILE * sizeof(double)];
        d->product.quarter = spec->quarter + t->column;
        short_factor(spec, &d->position, &d->turns, t->column, d->factor, d->phases);
        if (!UNLIKELY(ROUND[d->job->dtype](&d->product, writes_out ? t->out : staged[0])) ||
            (replace_zeros(d) && !ROUND[d->job->dtype](&d->product, staged[1]))) {
            if (!writes_out) write_tile(d->job, t, staged[0]);
            return;
        }
    }
    write_evaluated(d, t, tally);
}

/* Writes columns column .. end - 1 of a row to `out`. */
COLD void direct_columns(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t column,
                         ptrdiff_t end, char *out, tally_t *tally) {
    direct_t d;
    tile_t t = {.row = &row, .column = column, .rows = 1, .output = job->output, .out = out};
    start_direct(&d, spec, job);
    d.position = *position;
    set_turns(spec, position, &d.turns);
    for (; t.column < end; t.column += TILE, t.out += TILE * size_of(job->dtype)) {
        t.width = min_int(end - t.column, TILE);
        write_direct_tile(&d, &t, tally);
    }
}

/* Writes a row whose values are known: its position is not finite, or is the padding position, or all of its
 * angles are 0. */
NOINLINE void known_row(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row) {
    const double cosine = position->padding || spec->scale == 0 ? 0 : round_to(job->dtype, spec->scale);
    const vu64 bits = position->finite ? bits_of_f64(f64_set(cosine)) : u64_set(0x7ff8000000000000u);
    const vu64 all = u64_set(position->finite ? 0 : UINT64_MAX); /* `bits` are those of all columns, or of cosines */
    tile_t t = {.row = &row, .rows = 1, .output = job->output, .out = job->out + row * job->row_stride};
    for (; t.column < spec->d_model; t.column += TILE, t.out += TILE * size_of(job->dtype)) {
        double values[TILE];
        for (int i = 0; i < TILE; i += LANES)
            f64_store(values + i, f64_of_bits(u64_and(bits, u64_or(all, u64_load(spec->quarter + t.column + i)))));
        t.width = min_int(spec->d_model - t.column, TILE);
        write_rounded(job, &t, values);
    }
}

/* Whether rows of x at the padding position remain unchanged, because only zeros would be added. */
INLINE int leaves_padding(const spec_t *spec, const job_t *job) {
    return spec->has_padding && !spec->padding_is_nan && job->output == ADD && job->x_scale == 1;
}

NOINLINE void scattered_row(const spec_t *spec, const job_t *job, ptrdiff_t row, tally_t *tally) {
    const position_t position = position_of(spec, job, row);
    if (position.padding && leaves_padding(spec, job)) return;
    if (is_known(&position) || spec->scale == 0) known_row(spec, job, &position, row);
    else direct_columns(spec, job, &position, row, 0, spec->d_model, job->out + row * job->row_stride, tally);
}

/* ---- narrow rows --------------------------------------------------------------------------------------- */

INLINE int is_narrow(const spec_t *spec) { return spec->d_model <= MOST_NARROW; }

/* Adds the position of a row to those of a tile, of which the first `at` lanes are set. */
INLINE void add_lanes(position_lanes_t *lanes, int at, int count, fixed_t x) {
    for (int i = at; i < at + count; i += LANES) {
        u64_store(lanes->whole + i, u64_set(x.whole), 0);
        u64_store(lanes->fraction + i, u64_set(x.fraction), 0);
        u64_store(lanes->sign + i, u64_set((uint64_t)x.negative << 63), 0);
    }
}

/* Sets the limbs of a position with lanes, of which the first `at` are set; the other lanes repeat the first one.
 * `bits` has the bits of all lanes. */
INLINE void set_limbs(position_t *position, position_lanes_t *lanes, int at, int end, fixed_t bits) {
    for (; at < end; at++) {
        lanes->whole[at] = lanes->whole[0];
        lanes->fraction[at] = lanes->fraction[0];
        lanes->sign[at] = lanes->sign[0];
    }
    const int first = (uint32_t)bits.fraction ? -2 : bits.fraction ? -1 : (uint32_t)bits.whole ? 0 : 1;
    position->limbs = (bits.whole >> 32 ? 2 : bits.whole ? 1 : bits.fraction >> 32 ? 0 : -1) - first;
    position->exponent = first;
}

/* Returns the position of the columns of joined rows, which is not finite if fixed_position fails for a row. */
static position_t joined_position(const spec_t *spec, const job_t *job, ptrdiff_t row, int joined, position_lanes_t *lanes) {
    const int end = order_of_joined(spec) == UNPAIRED ? TILE : TILE / 2, each = (int)spec->d_model * end / TILE;
    position_t position = {.finite = 1, .lanes = lanes};
    fixed_t all = {0};
    for (int i = 0; i < joined; i++) {
        fixed_t x;
        if (!fixed_position(spec, job, row + i, &x)) return (position_t){0};
        all.whole |= x.whole;
        all.fraction |= x.fraction;
        add_lanes(lanes, i * each, each, x);
    }
    set_limbs(&position, lanes, joined * each, end, all);
    return position;
}

/* Writes rows of at most MOST_NARROW columns, several in a tile: the arrays of a specification repeat the columns. */
static void narrow_rows(const spec_t *wide, const job_t *job, ptrdiff_t row, ptrdiff_t count, tally_t *tally) {
    spec_t spec = *wide;
    spec.order = order_of_joined(wide);
    const int lanes = angles_of_tile(&spec), width = (int)spec.d_model, angles = width * lanes / TILE, most = TILE / width;
    const ptrdiff_t end = row + count;
    position_lanes_t positions;
    direct_t d;
    ptrdiff_t rows[TILE];
    tile_t t = {.row = rows, .width = width, .output = job->output};
    start_direct(&d, &spec, job);
    d.position = (position_t){.finite = 1, .lanes = &positions};
    while (row < end) {
        fixed_t all = {0};
        int at = 0;
        for (t.rows = 0; row < end && t.rows < most; row++) {
            fixed_t fixed;
            if (!fixed_position(wide, job, row, &fixed) || (fixed.whole | fixed.fraction) == 0) {
                scattered_row(wide, job, row, tally);
                continue;
            }
            all.whole |= fixed.whole;
            all.fraction |= fixed.fraction;
            add_lanes(&positions, at, angles, fixed);
            at += angles;
            rows[t.rows++] = row;
        }
        if (t.rows == 0) continue;
        const int exponent = d.position.exponent, limbs = d.position.limbs;
        set_limbs(&d.position, &positions, at, lanes, all);
        if (exponent != d.position.exponent || limbs != d.position.limbs) set_turns(&spec, &d.position, &d.turns);
        t.out = job->out + rows[0] * job->row_stride;
        write_direct_tile(&d, &t, tally);
    }
}

/* Writes rows one by one, or several narrow rows in a tile. */
static void direct_rows(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t count, tally_t *tally) {
    if (is_narrow(spec)) narrow_rows(spec, job, row, count, tally);
    else
        for (ptrdiff_t end = row + count; row < end; row++) scattered_row(spec, job, row, tally);
}

#endif
