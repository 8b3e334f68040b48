/* Rows rotated from an anchor, in double for float32 and the halves, in double-double for float64.
 *
 * With P the value at the anchor and Q the value a quarter turn ahead, an offset of the anchor gives two rows, one above and
 * one below:
 *     P cos + Q sin,   P cos - Q sin.
 *
 * Bounds (docs/numerics.md), with M = |P0| + |Q0 sin_k| + (|P0| + |Q0|) reach, where P0, Q0 belong to the first row of the
 * block, sin_k to the anchor, and reach >= |sin| of all offsets: the error of a value is below 13.5 * 2**-53 M in double,
 * 2**-94 M in double-double.  It is relative to the products, not to their sum: small angles keep their precision.
 */
#ifndef POSENC_ROTATE_H
#define POSENC_ROTATE_H

#include "settle.h"
#include "tables.h"

#define DOUBLE_ERROR 0x1.bp-50
#define PAIR_ERROR 0x1p-94
#define DIRECT_PAIR_FLOOR 0x1p-110      /* error of a direct evaluation where the phase is tiny, of the full amplitude */

INLINE vf64 f64_abs(vf64 a) { return f64_of_bits(u64_and(bits_of_f64(a), u64_set(INT64_MAX))); }
INLINE vdd pair_at(const double *high, const double *low, int v) {
    return (vdd){f64_load(high + v * LANES), f64_load(low + v * LANES)};
}

/* ---- anchors ------------------------------------------------------------------------------------------------------------- */

/* The first row of a block in a tile, and what does not change from anchor to anchor: M = fixed + |Q0 sin_k| with
 * fixed = |P0| + (|P0| + |Q0|) reach. */
typedef struct {
    ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE], fixed[TILE], least[TILE];
} first_row_t;

/* An anchor in a tile, with the error bound of the rows rotated from it and the addends of their quick test. */
typedef struct {
    ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE], error[TILE];
    ALIGNED uint64_t addend[TILE];
} anchor_t;

NOINLINE void first_row_of(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t tile,
                           first_row_t *first) {
    const vf64 floor = f64_mul(f64_abs(f64_set(spec->scale)), f64_set(DIRECT_PAIR_FLOOR));
    /* downwards the angles of the offsets are negative, which a negative Q is equal to */
    const vu64 down = u64_set((uint64_t)((int64_t)job->step < 0) << 63);
    for (int v = 0; v < TILE_VECTORS; v++) {
        const ptrdiff_t column = tile * TILE + v * LANES;
        vdd p = {f64_set(0), f64_set(0)}, q = p;
        if (job->dtype == FLOAT64) direct_pair(spec, position, column, COLUMNS, &p, &q);
        else direct_scaled(spec, position, column, COLUMNS, &p.high, &q.high);
        const vf64 ap = f64_abs(p.high), aq = f64_abs(q.high), turning = f64_load(job->offsets->turning + column);
        f64_store(first->p + v * LANES, p.high);
        f64_store(first->q + v * LANES, f64_of_bits(u64_xor(bits_of_f64(q.high), down)));
        f64_store(first->p_low + v * LANES, p.low);
        f64_store(first->q_low + v * LANES, f64_of_bits(u64_xor(bits_of_f64(q.low), down)));
        f64_store(first->fixed + v * LANES, f64_muladd(f64_add(ap, aq), f64_load(job->offsets->reach + column), ap));
        f64_store(first->least + v * LANES,
                  f64_mul(job->dtype == FLOAT64 ? floor : f64_set(2 * smallest_normal(job->dtype)), turning));
    }
}

/* Anchor k of a block, in the middle of its rows k * FINE .. (k + 1) * FINE - 1. */
NOINLINE void anchor_of(const job_t *job, const first_row_t *first, ptrdiff_t tile, int k, anchor_t *a) {
    ALIGNED double smallest[TILE];
    const double *high = offsets_at(job->offsets->coarse, tile, COARSE, k);
    const double *low = offsets_at(job->offsets->coarse_low, tile, COARSE, k);
    for (int v = 0; v < TILE_VECTORS; v++) {
        const vdd c = pair_at(high, low, v), s = pair_at(high + TILE, low + TILE, v);
        const vdd p0 = pair_at(first->p, first->p_low, v), q0 = pair_at(first->q, first->q_low, v);
        const vf64 least = f64_load(first->least + v * LANES);
        const vf64 magnitude = f64_muladd(f64_abs(q0.high), f64_abs(s.high), f64_load(first->fixed + v * LANES));
        if (job->dtype == FLOAT64) {
            const vdd p = dd_product_sum(p0, c, q0, s), q = dd_product_sum(q0, c, dd_negated(p0), s);
            f64_store(a->p + v * LANES, p.high);
            f64_store(a->q + v * LANES, q.high);
            f64_store(a->p_low + v * LANES, p.low);
            f64_store(a->q_low + v * LANES, q.low);
            f64_store(a->error + v * LANES, f64_muladd(magnitude, f64_set(PAIR_ERROR), least));
        } else {
            f64_store(a->p + v * LANES, f64_muladd(p0.high, c.high, f64_mul(q0.high, s.high)));
            f64_store(a->q + v * LANES, f64_sub(f64_mul(q0.high, c.high), f64_mul(p0.high, s.high)));
            f64_store(smallest + v * LANES, f64_muladd(magnitude, f64_set(smallest_share(job->dtype)), least));
            f64_store(a->error + v * LANES, f64_mul(magnitude, f64_set(DOUBLE_ERROR)));
        }
    }
    if (job->dtype != FLOAT64) quick_addends(smallest, a->addend, job->dtype);
}

/* ---- the rows of an anchor ------------------------------------------------------------------------------------------------- */

/* Adding reads rows in the order of tiles, which defeats the hardware's prefetcher: the rows of the next anchor are
 * prefetched line by line meanwhile. */
typedef struct {
    const char *row;
    ptrdiff_t at, row_bytes, row_stride;
} prefetch_t;

INLINE void prefetch_lines(prefetch_t *prefetch, ptrdiff_t lines) {
    for (ptrdiff_t i = 0; i < lines; i++) {
        PREFETCH(prefetch->row + prefetch->at);
        prefetch->at += LINE;
        if (prefetch->at >= prefetch->row_bytes) {
            prefetch->at = 0;
            prefetch->row += prefetch->row_stride;
        }
    }
}

/* At most FINE rows from `row` of the job in the tile of columns from `column`, and where they go: row i to
 * out + i * row_stride.  A group is `whole` if all TILE columns may be stored, also those beyond `width`. */
typedef struct {
    const spec_t *spec;
    const job_t *job;
    output_t output;
    ptrdiff_t row, column;
    int rows, width, whole;
    char *out;
    ptrdiff_t row_stride;
    const double *fine, *fine_low;
    prefetch_t *prefetch;
    tally_t *tally;
} group_t;

INLINE int row_above(int r) { return HALF + r; }
INLINE int row_below(int r) { return HALF - 1 - r; }

INLINE void rotated(vf64 p, vf64 q, vf64 c, vf64 s, vf64 *above, vf64 *below) {
    const vf64 x = f64_mul(p, c), y = f64_mul(q, s);
    *above = f64_add(x, y);
    *below = f64_sub(x, y);
}

/* The same in double-double: a double and a much smaller rest. */
INLINE void rotated_pair(vdd p, vdd q, vdd c, vdd s, vdd *above, vdd *below) {
    const vdd x = two_product(p.high, c.high), y = two_product(q.high, s.high);
    const vf64 x_rest = f64_muladd(p.high, c.low, f64_muladd(p.low, c.high, x.low));
    const vf64 y_rest = f64_muladd(q.high, s.low, f64_muladd(q.low, s.high, y.low));
    *above = two_sum(x.high, y.high);
    *below = two_difference(x.high, y.high);
    above->low = f64_add_fused(above->low, f64_add_fused(x_rest, y_rest));
    below->low = f64_add_fused(below->low, f64_sub(x_rest, y_rest));
}

/* A pass over the rows of a group takes PASS columns of float32, as many as registers hold what does not change from row to row
 * for: P, Q and an addend for each vector.  Of the other dtypes fewer columns are less than a cache line, or no faster. */
INLINE int pass_columns(dtype_t dtype) { return dtype == FLOAT32 ? PASS : TILE; }

typedef struct {
    vf64 p[TILE_VECTORS], q[TILE_VECTORS];
    vu64 addend[TILE_VECTORS];
} kept_t;

/* Vector v of the rows at an offset. */
INLINE void values_at(const kept_t *k, const double *fine, int v, vf64 *above, vf64 *below) {
    rotated(k->p[v], k->q[v], f64_load(fine + v * LANES), f64_load(fine + TILE + v * LANES), above, below);
}

INLINE void pairs_at(const anchor_t *a, const double *fine, const double *fine_low, int v, vdd *above, vdd *below) {
    rotated_pair(pair_at(a->p, a->p_low, v), pair_at(a->q, a->q_low, v), pair_at(fine, fine_low, v),
                 pair_at(fine + TILE, fine_low + TILE, v), above, below);
}

/* Computes a row of the pass from column `pass` again, with the error bound of each value, and settles it. */
COLD void write_uncertain(const group_t *g, const anchor_t *a, int pass, int r, int is_above) {
    const int row = is_above ? row_above(r) : row_below(r), columns = pass_columns(g->job->dtype);
    const int width = smaller(g->width - pass, columns);
    const double *fine = g->fine + r * 2 * TILE, *fine_low = g->fine_low + r * 2 * TILE;
    row_t t = {.high = {0}};
    if (width <= 0) return; /* spare columns of a whole group */
    for (int i = 0; i < columns; i += LANES) {
        const int v = (pass + i) / LANES;
        vdd above = {f64_set(0), f64_set(0)}, below = above;
        if (g->job->dtype == FLOAT64) pairs_at(a, fine, fine_low, v, &above, &below);
        else
            rotated(f64_load(a->p + v * LANES), f64_load(a->q + v * LANES), f64_load(fine + v * LANES),
                    f64_load(fine + TILE + v * LANES), &above.high, &below.high);
        f64_store(t.high + i, is_above ? above.high : below.high);
        f64_store(t.low + i, is_above ? above.low : below.low);
        f64_store(t.error + i, f64_load(a->error + v * LANES));
    }
    write_settled(g->spec, g->job, g->output, g->row + row, g->column + pass, width,
                  g->out + row * g->row_stride + pass * size_of(g->job->dtype), &t, g->tally);
}

/* The columns of a pass of a row, in `f` or `value`, to their address. */
INLINE void write_float_row(const group_t *g, int pass, char *out, const vf32 f[TILE_VECTORS / 2], int whole, dtype_t dtype,
                            output_t output) {
    if (whole) {
        write_floats(g->job, out, f, pass_columns(dtype), dtype, output);
    } else {
        ALIGNED char t[TILE * sizeof(float)];
        write_floats(g->job, t, f, pass_columns(dtype), dtype, STORE);
        write_narrow(g->job, out, t, smaller(g->width - pass, pass_columns(dtype)), dtype, g->output);
    }
}

INLINE void write_double_row(const group_t *g, int pass, char *out, const vf64 value[TILE_VECTORS], int whole,
                             output_t output) {
    if (whole) {
        write_doubles(g->job, out, value, pass_columns(FLOAT64), output);
    } else {
        ALIGNED char t[TILE * sizeof(double)];
        write_doubles(g->job, t, value, pass_columns(FLOAT64), STORE);
        write_narrow(g->job, out, t, smaller(g->width - pass, pass_columns(FLOAT64)), FLOAT64, g->output);
    }
}

/* The columns of a pass of the rows at the offsets r .. last - 1, of which those above the anchor are wanted or not, up to the
 * first offset with an undecided value, which is returned.  The loops call no function, so that `kept` stays in registers. */
INLINE int rows_double(const group_t *g, const anchor_t *a, int pass, int r, int last, int with_above, int whole, dtype_t dtype,
                       output_t output) {
    const ptrdiff_t row_stride = g->row_stride;
    const int vectors = pass_columns(dtype) / LANES;
    char *const out = g->out + pass * size_of(dtype);
    char *out_above = out + row_above(r) * row_stride, *out_below = out + row_below(r) * row_stride;
    const double *fine = g->fine + r * 2 * TILE + pass;
    const uint64_t *const addend = dtype == FLOAT32 ? a->addend + pass : a->addend;
    kept_t kept;
    for (int v = 0; v < vectors; v++) {
        kept.p[v] = f64_load(a->p + pass + v * LANES);
        kept.q[v] = f64_load(a->q + pass + v * LANES);
        if (dtype == FLOAT32 || v < vectors / 2) kept.addend[v] = u64_load(addend + v * LANES);
    }
    for (; r < last; r++, fine += 2 * TILE, out_above += row_stride, out_below -= row_stride) {
        if (output == ADD) prefetch_lines(g->prefetch, 2 * pass_columns(dtype) * size_of(dtype) / LINE);
        vf32 above[TILE_VECTORS / 2], below[TILE_VECTORS / 2];
        passed_t passed_above = passed_all(), passed_below = passed_all();
        for (int v = 0; v < vectors; v += 2) {
            vf64 above_0, above_1, below_0, below_1;
            values_at(&kept, fine, v, &above_0, &below_0);
            values_at(&kept, fine, v + 1, &above_1, &below_1);
            above[v / 2] = f32_of_f64(above_0, above_1);
            below[v / 2] = f32_of_f64(below_0, below_1);
            if (with_above) passed_above = quick_test(passed_above, above_0, above_1, above[v / 2], kept.addend, v, dtype);
            passed_below = quick_test(passed_below, below_0, below_1, below[v / 2], kept.addend, v, dtype);
        }
        if (UNLIKELY(!is_passed(passed_above, dtype) || !is_passed(passed_below, dtype))) {
            /* The same values again: to keep them in registers until here would cost more. */
            const double *again = fine;
            FORGET(again);
            vu64 undecided = u64_set(0);
            for (int v = 0; v < vectors; v += 2) {
                vf64 values_above[2], values_below[2];
                for (int i = 0; i < 2; i++) {
                    const vf64 error = f64_load(a->error + pass + (v + i) * LANES);
                    values_at(&kept, again, v + i, &values_above[i], &values_below[i]);
                    if (with_above) undecided = u64_or(undecided, undecided_double(&values_above[i], error, dtype));
                    undecided = u64_or(undecided, undecided_double(&values_below[i], error, dtype));
                }
                above[v / 2] = f32_of_f64(values_above[0], values_above[1]);
                below[v / 2] = f32_of_f64(values_below[0], values_below[1]);
            }
            if (!u64_is_zero(undecided)) return r;
        }
        if (with_above) write_float_row(g, pass, out_above, above, whole, dtype, output);
        write_float_row(g, pass, out_below, below, whole, dtype, output);
    }
    return r;
}

INLINE int rows_pair(const group_t *g, const anchor_t *a, int pass, int r, int last, int with_above, int whole,
                     output_t output) {
    const ptrdiff_t row_stride = g->row_stride;
    const int vectors = pass_columns(FLOAT64) / LANES, first = pass / LANES;
    char *const out = g->out + pass * size_of(FLOAT64);
    char *out_above = out + row_above(r) * row_stride, *out_below = out + row_below(r) * row_stride;
    const double *fine = g->fine + r * 2 * TILE, *fine_low = g->fine_low + r * 2 * TILE;
    for (; r < last; r++, fine += 2 * TILE, fine_low += 2 * TILE, out_above += row_stride, out_below -= row_stride) {
        if (output == ADD) prefetch_lines(g->prefetch, 2 * pass_columns(FLOAT64) * size_of(FLOAT64) / LINE);
        vf64 above[TILE_VECTORS], below[TILE_VECTORS];
        vu64 undecided = u64_set(0);
        for (int v = 0; v < vectors; v++) {
            const vf64 error = f64_load(a->error + pass + v * LANES);
            vdd sum_above, sum_below;
            pairs_at(a, fine, fine_low, first + v, &sum_above, &sum_below);
            if (with_above) above[v] = rounded_pair(sum_above, error, &undecided);
            below[v] = rounded_pair(sum_below, error, &undecided);
        }
        if (UNLIKELY(!u64_is_zero(undecided))) return r;
        if (with_above) write_double_row(g, pass, out_above, above, whole, output);
        write_double_row(g, pass, out_below, below, whole, output);
    }
    return r;
}

INLINE void rows_at_offsets(const group_t *g, const anchor_t *a, int first, int last, int with_above, int whole, dtype_t dtype,
                            output_t output) {
    for (int pass = 0; pass < (whole ? TILE : g->width); pass += pass_columns(dtype)) {
        for (int r = first; r < last; r++) {
            r = dtype == FLOAT64 ? rows_pair(g, a, pass, r, last, with_above, whole, output)
                                 : rows_double(g, a, pass, r, last, with_above, whole, dtype, output);
            if (r == last) break;
            write_uncertain(g, a, pass, r, 0);
            if (with_above) write_uncertain(g, a, pass, r, 1);
        }
    }
}

/* ---- one function for each dtype and output -------------------------------------------------------------------------------- */

/* What is rare goes through write_narrow: rows of fewer columns, and rows below the anchor without one above. */
#define CASE(T) \
    NOINLINE void narrow_rows_##T(const group_t *g, const anchor_t *a, int first, int last, int with_above) { \
        if (with_above) rows_at_offsets(g, a, first, last, 1, 0, T, STORE); \
        else rows_at_offsets(g, a, first, last, 0, 0, T, STORE); \
    }
EVERY_DTYPE(CASE)
#undef CASE

#define EVERY_CASE(CASE) \
    CASE(FLOAT64, STORE) \
    CASE(FLOAT32, STORE) \
    CASE(FLOAT16, STORE) \
    CASE(BFLOAT16, STORE) \
    CASE(FLOAT64, STREAM) \
    CASE(FLOAT32, STREAM) \
    CASE(FLOAT16, STREAM) \
    CASE(BFLOAT16, STREAM) \
    CASE(FLOAT64, ADD) \
    CASE(FLOAT32, ADD)

#define CASE(T, OUTPUT) \
    NOINLINE void group_##T##_##OUTPUT(const group_t *g, const anchor_t *a) { \
        const int alone = g->rows < HALF ? HALF - g->rows : g->rows - HALF; \
        if (g->whole) rows_at_offsets(g, a, 0, g->rows - HALF, 1, 1, T, OUTPUT); \
        else narrow_rows_##T(g, a, 0, g->rows - HALF, 1); \
        narrow_rows_##T(g, a, alone, HALF, 0); \
    }
EVERY_CASE(CASE)
#undef CASE
#define CASE(T, OUTPUT) [OUTPUT][T] = group_##T##_##OUTPUT,
static void (*const GROUP[3][4])(const group_t *, const anchor_t *) = {EVERY_CASE(CASE)};
#undef CASE

#endif
