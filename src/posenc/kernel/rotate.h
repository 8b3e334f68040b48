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

INLINE V v_abs(V a) { return v_bits(u_and(u_bits(a), u_set(INT64_MAX))); }
INLINE VV pair_at(const double *high, const double *low, int v) { return (VV){v_load(high + v * W), v_load(low + v * W)}; }

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
    const V floor = v_mul(v_abs(v_set(spec->scale)), v_set(DIRECT_PAIR_FLOOR));
    /* downwards the angles of the offsets are negative, which a negative Q is equal to */
    const U down = u_set((uint64_t)((int64_t)job->step < 0) << 63);
    for (int v = 0; v < TILE_VECTORS; v++) {
        const ptrdiff_t column = tile * TILE + v * W;
        VV p = {v_set(0), v_set(0)}, q = p;
        if (job->dtype == FLOAT64) direct_pair(spec, position, column, COLUMNS, &p, &q);
        else direct_scaled(spec, position, column, COLUMNS, &p.high, &q.high);
        const V ap = v_abs(p.high), aq = v_abs(q.high), turning = v_load(job->offsets->turning + column);
        v_store(first->p + v * W, p.high);
        v_store(first->q + v * W, v_bits(u_xor(u_bits(q.high), down)));
        v_store(first->p_low + v * W, p.low);
        v_store(first->q_low + v * W, v_bits(u_xor(u_bits(q.low), down)));
        v_store(first->fixed + v * W, v_muladd(v_add(ap, aq), v_load(job->offsets->reach + column), ap));
        v_store(first->least + v * W, v_mul(job->dtype == FLOAT64 ? floor : v_set(2 * smallest_normal(job->dtype)), turning));
    }
}

/* Anchor k of a block, in the middle of its rows k * FINE .. (k + 1) * FINE - 1. */
NOINLINE void anchor_of(const job_t *job, const first_row_t *first, ptrdiff_t tile, int k, anchor_t *a) {
    ALIGNED double smallest[TILE];
    const double *high = offsets_at(job->offsets->coarse, tile, COARSE, k);
    const double *low = offsets_at(job->offsets->coarse_low, tile, COARSE, k);
    for (int v = 0; v < TILE_VECTORS; v++) {
        const VV c = pair_at(high, low, v), s = pair_at(high + TILE, low + TILE, v);
        const VV p0 = pair_at(first->p, first->p_low, v), q0 = pair_at(first->q, first->q_low, v);
        const V least = v_load(first->least + v * W);
        const V magnitude = v_muladd(v_abs(q0.high), v_abs(s.high), v_load(first->fixed + v * W));
        if (job->dtype == FLOAT64) {
            const VV p = dd_product_sum(p0, c, q0, s), q = dd_product_sum(q0, c, dd_negated(p0), s);
            v_store(a->p + v * W, p.high);
            v_store(a->q + v * W, q.high);
            v_store(a->p_low + v * W, p.low);
            v_store(a->q_low + v * W, q.low);
            v_store(a->error + v * W, v_muladd(magnitude, v_set(PAIR_ERROR), least));
        } else {
            v_store(a->p + v * W, v_muladd(p0.high, c.high, v_mul(q0.high, s.high)));
            v_store(a->q + v * W, v_sub(v_mul(q0.high, c.high), v_mul(p0.high, s.high)));
            v_store(smallest + v * W, v_muladd(magnitude, v_set(smallest_share(job->dtype)), least));
            v_store(a->error + v * W, v_mul(magnitude, v_set(DOUBLE_ERROR)));
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

INLINE void rotated(V p, V q, V c, V s, V *above, V *below) {
    const V x = v_mul(p, c), y = v_mul(q, s);
    *above = v_add(x, y);
    *below = v_sub(x, y);
}

/* The same in double-double: a double and a much smaller rest. */
INLINE void rotated_pair(VV p, VV q, VV c, VV s, VV *above, VV *below) {
    const VV x = two_product(p.high, c.high), y = two_product(q.high, s.high);
    const V x_rest = v_muladd(p.high, c.low, v_muladd(p.low, c.high, x.low));
    const V y_rest = v_muladd(q.high, s.low, v_muladd(q.low, s.high, y.low));
    *above = two_sum(x.high, y.high);
    *below = two_difference(x.high, y.high);
    above->low = v_plus(above->low, v_plus(x_rest, y_rest));
    below->low = v_plus(below->low, v_sub(x_rest, y_rest));
}

/* A pass over the rows of a group takes PASS columns of float32, as many as registers hold what does not change from row to row
 * for: P, Q and an addend for each vector.  Of the other dtypes fewer columns are less than a cache line, or no faster. */
INLINE int pass_columns(dtype_t dtype) { return dtype == FLOAT32 ? PASS : TILE; }

typedef struct {
    V p[TILE_VECTORS], q[TILE_VECTORS];
    U addend[TILE_VECTORS];
} kept_t;

/* Vector v of the rows at an offset. */
INLINE void values_at(const kept_t *k, const double *fine, int v, V *above, V *below) {
    rotated(k->p[v], k->q[v], v_load(fine + v * W), v_load(fine + TILE + v * W), above, below);
}

INLINE void pairs_at(const anchor_t *a, const double *fine, const double *fine_low, int v, VV *above, VV *below) {
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
    for (int i = 0; i < columns; i += W) {
        const int v = (pass + i) / W;
        VV above = {v_set(0), v_set(0)}, below = above;
        if (g->job->dtype == FLOAT64) pairs_at(a, fine, fine_low, v, &above, &below);
        else
            rotated(v_load(a->p + v * W), v_load(a->q + v * W), v_load(fine + v * W), v_load(fine + TILE + v * W), &above.high,
                    &below.high);
        v_store(t.high + i, is_above ? above.high : below.high);
        v_store(t.low + i, is_above ? above.low : below.low);
        v_store(t.error + i, v_load(a->error + v * W));
    }
    write_settled(g->spec, g->job, g->output, g->row + row, g->column + pass, width,
                  g->out + row * g->row_stride + pass * size_of(g->job->dtype), &t, g->tally);
}

/* The columns of a pass of a row, in `f` or `value`, to their address. */
INLINE void write_float_row(const group_t *g, int pass, char *out, const F f[TILE_VECTORS / 2], int whole, dtype_t dtype,
                            output_t output) {
    if (whole) {
        write_floats(g->job, out, f, pass_columns(dtype), dtype, output);
    } else {
        ALIGNED char t[TILE * sizeof(float)];
        write_floats(g->job, t, f, pass_columns(dtype), dtype, STORE);
        write_narrow(g->job, out, t, smaller(g->width - pass, pass_columns(dtype)), dtype, g->output);
    }
}

INLINE void write_double_row(const group_t *g, int pass, char *out, const V value[TILE_VECTORS], int whole, output_t output) {
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
    const int vectors = pass_columns(dtype) / W;
    char *const out = g->out + pass * size_of(dtype);
    char *out_above = out + row_above(r) * row_stride, *out_below = out + row_below(r) * row_stride;
    const double *fine = g->fine + r * 2 * TILE + pass;
    const uint64_t *const addend = dtype == FLOAT32 ? a->addend + pass : a->addend;
    kept_t kept;
    for (int v = 0; v < vectors; v++) {
        kept.p[v] = v_load(a->p + pass + v * W);
        kept.q[v] = v_load(a->q + pass + v * W);
        if (dtype == FLOAT32 || v < vectors / 2) kept.addend[v] = u_load(addend + v * W);
    }
    for (; r < last; r++, fine += 2 * TILE, out_above += row_stride, out_below -= row_stride) {
        if (output == ADD) prefetch_lines(g->prefetch, 2 * pass_columns(dtype) * size_of(dtype) / LINE);
        F above[TILE_VECTORS / 2], below[TILE_VECTORS / 2];
        passed_t passed_above = passed_all(), passed_below = passed_all();
        for (int v = 0; v < vectors; v += 2) {
            V above_0, above_1, below_0, below_1;
            values_at(&kept, fine, v, &above_0, &below_0);
            values_at(&kept, fine, v + 1, &above_1, &below_1);
            above[v / 2] = f_pair(above_0, above_1);
            below[v / 2] = f_pair(below_0, below_1);
            if (with_above) passed_above = quick_test(passed_above, above_0, above_1, above[v / 2], kept.addend, v, dtype);
            passed_below = quick_test(passed_below, below_0, below_1, below[v / 2], kept.addend, v, dtype);
        }
        if (UNLIKELY(!is_passed(passed_above, dtype) || !is_passed(passed_below, dtype))) {
            /* The same values again: to keep them in registers until here would cost more. */
            const double *again = fine;
            FORGET(again);
            U undecided = u_set(0);
            for (int v = 0; v < vectors; v += 2) {
                V values_above[2], values_below[2];
                for (int i = 0; i < 2; i++) {
                    const V error = v_load(a->error + pass + (v + i) * W);
                    values_at(&kept, again, v + i, &values_above[i], &values_below[i]);
                    if (with_above) undecided = u_or(undecided, undecided_double(&values_above[i], error, dtype));
                    undecided = u_or(undecided, undecided_double(&values_below[i], error, dtype));
                }
                above[v / 2] = f_pair(values_above[0], values_above[1]);
                below[v / 2] = f_pair(values_below[0], values_below[1]);
            }
            if (!u_is_zero(undecided)) return r;
        }
        if (with_above) write_float_row(g, pass, out_above, above, whole, dtype, output);
        write_float_row(g, pass, out_below, below, whole, dtype, output);
    }
    return r;
}

INLINE int rows_pair(const group_t *g, const anchor_t *a, int pass, int r, int last, int with_above, int whole,
                     output_t output) {
    const ptrdiff_t row_stride = g->row_stride;
    const int vectors = pass_columns(FLOAT64) / W, first = pass / W;
    char *const out = g->out + pass * size_of(FLOAT64);
    char *out_above = out + row_above(r) * row_stride, *out_below = out + row_below(r) * row_stride;
    const double *fine = g->fine + r * 2 * TILE, *fine_low = g->fine_low + r * 2 * TILE;
    for (; r < last; r++, fine += 2 * TILE, fine_low += 2 * TILE, out_above += row_stride, out_below -= row_stride) {
        if (output == ADD) prefetch_lines(g->prefetch, 2 * pass_columns(FLOAT64) * size_of(FLOAT64) / LINE);
        V above[TILE_VECTORS], below[TILE_VECTORS];
        U undecided = u_set(0);
        for (int v = 0; v < vectors; v++) {
            const V error = v_load(a->error + pass + v * W);
            VV sum_above, sum_below;
            pairs_at(a, fine, fine_low, first + v, &sum_above, &sum_below);
            if (with_above) above[v] = rounded_pair(sum_above, error, &undecided);
            below[v] = rounded_pair(sum_below, error, &undecided);
        }
        if (UNLIKELY(!u_is_zero(undecided))) return r;
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
