/* The kernels of one instruction set: included once by each kernel_*.c, after its verbs, with ISA its name.
 *
 * Evenly spaced rows.  A block's first row is evaluated directly (P = value, Q = the value a quarter turn ahead).  Rows are
 * reached by two rotations with tabulated offsets: of COARSE anchors from the first row, of FINE rows from each anchor,
 *     P' = P cos + Q sin,   Q' = Q cos - P sin,
 * in double for float32 and the halves, in double-double for float64.  Tiles of columns are the outer loop and rows the
 * inner one, so that a tile's anchors and offsets stay in L1, at any d_model.
 *
 * Bounds (docs/numerics.md), with M = |P0| + |Q0 sin_k| + (|P0| + |Q0|) reach, where P0, Q0 belong to the first row, sin_k
 * to the anchor, and reach >= |sin| of all fine rows: the error of a value is below 13.5 * 2**-53 M in double, 2**-94 M in
 * double-double.  It is relative to the products, not to their sum: small angles keep their precision.
 */
#ifndef POSENC_ROTATE_H
#define POSENC_ROTATE_H

#include "direct.h"
#include "deliver.h"
#include "environment.h"

enum { LINE = 64 };             /* bytes of a cache line */

#define DOUBLE_ERROR 0x1.bp-50
#define PAIR_ERROR 0x1p-94
#define DIRECT_DOUBLE_ERROR 0x1p-50     /* of the value ... */
#define DIRECT_DOUBLE_FLOOR 0x1p-89     /* ... and of the full amplitude, where the phase is tiny */
#define DIRECT_PAIR_FLOOR 0x1p-110

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)

#define EVERY_DTYPE(CASE, D) \
    CASE(FLOAT64, D) \
    CASE(FLOAT32, D) \
    CASE(FLOAT16, D) \
    CASE(BFLOAT16, D)
#define EVERY_CASE(CASE) \
    EVERY_DTYPE(CASE, STORE) \
    EVERY_DTYPE(CASE, STREAM) \
    EVERY_DTYPE(CASE, SHIFT) \
    CASE(FLOAT64, ADD) \
    CASE(FLOAT32, ADD)

INLINE V v_abs(V a) { return v_bits(u_and(u_bits(a), u_set(INT64_MAX))); }

INLINE VV pair_at(const double *high, const double *low, int v) { return (VV){v_load(high + v * W), v_load(low + v * W)}; }

INLINE const double *offsets_at(const double *table, ptrdiff_t tile, int rows, int row) {
    return table + (tile * rows + row) * 2 * TILE;
}

/* ---- direct evaluation, scaled ----------------------------------------------------------------------------------------- */

/* The columns' values at a position, and those a quarter turn ahead (PAIRS: sin and cos).  Adding 0 turns -0 into 0. */
INLINE void value_pair(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, VV *p, VV *q) {
    const V scale = v_set(spec->scale);
    direct(spec, position, column, lanes, p, q);
    *p = dd_scaled(*p, scale);
    *q = dd_scaled(*q, scale);
    p->high = v_add(p->high, v_set(0));
}

INLINE void value_double(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, V *p, V *q) {
    const V scale = v_set(spec->scale);
    direct_double(spec, position, column, lanes, p, q);
    *p = v_muladd(*p, scale, v_set(0));
    *q = v_mul(*q, scale);
}

/* ---- fine rows --------------------------------------------------------------------------------------------------------- */

/* What the fine rows of a tile are rotated from, with the error bound of the result and the addends of its quick test. */
typedef struct {
    ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE], error[TILE];
    ALIGNED uint64_t addend[TILE];
} anchor_t;

/* FINE rows from `row` in the tile of columns from `column`, and where they go: row i to out + i * row_stride.  The anchor
 * lies in their middle: what it turns by cos and sin of an offset gives two rows, one above and one below,
 *     P cos + Q sin,   P cos - Q sin. */
typedef struct {
    ptrdiff_t row, column;
    int width;
    const double *fine, *fine_low;
    char *out;
    ptrdiff_t row_stride;
    struct shift *shift;         /* by way of which rows go to their place, or NULL */
    struct fetch *fetch;         /* what will be added onto next, or NULL */
} patch_t;

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

/* ---- rows that are read ---------------------------------------------------------------------------------------------------- */

/* Memory gives its best only to who reads it in order: the rows of the next anchor are asked for line by line while those
 * before them are computed and added tile by tile. */
typedef struct fetch {
    const char *row;
    ptrdiff_t at, row_bytes, row_stride;
} fetch_t;

INLINE void fetch_lines(fetch_t *fetch, int lines) {
    for (int i = 0; i < lines; i++) {
        PREFETCH(fetch->row + fetch->at);
        fetch->at += LINE;
        if (fetch->at >= fetch->row_bytes) {
            fetch->at = 0;
            fetch->row += fetch->row_stride;
        }
    }
}

/* ---- rows off cache lines -------------------------------------------------------------------------------------------------- */

/* Rows that do not begin on cache lines go past the caches by whole lines all the same: behind what the tile before left of
 * its last line.  They are read again DELAY offsets after they were put: then more stores have been issued than any processor
 * holds back, so that they come from the first-level cache, and memory is written to while the next rows are computed. */
enum { DELAY = 8 };

typedef struct shift {
    ALIGNED char row[FINE][LINE + TILE * sizeof(double)]; /* a line carried over, then the columns */
    char *out; /* where the columns of row 0 belong */
    ptrdiff_t row_stride;
    size_t bytes;
    int is_first, is_last; /* whether the tile is */
    int sent; /* offsets whose rows are in their place */
} shift_t;

INLINE void send_row(shift_t *shift, int row) {
    char *const t = shift->row[row] + LINE, *const out = shift->out + row * shift->row_stride;
    const size_t into_line = (uintptr_t)out % LINE;
    char *to = out - into_line, *from = t - into_line, *const end = t + shift->bytes;
    if (shift->is_first && into_line) {
        const size_t head = LINE - into_line < shift->bytes ? LINE - into_line : shift->bytes;
        memcpy(out, t, head);
        to += LINE;
        from += LINE;
    }
    for (; end - from >= LINE; to += LINE, from += LINE)
        for (size_t i = 0; i < LINE; i += sizeof(V)) v_put((double *)(void *)(to + i), v_load((double *)(void *)(from + i)), 1);
    if (!shift->is_last) memcpy(t - LINE, end - LINE, LINE);
    else if (end > from) memcpy(to, from, (size_t)(end - from));
}

INLINE void send_offsets(shift_t *shift, int last) {
    for (; shift->sent < last; shift->sent++) {
        send_row(shift, row_above(shift->sent));
        send_row(shift, row_below(shift->sent));
    }
}

NOINLINE void send_rest(shift_t *shift, int last, int alone) {
    send_offsets(shift, last);
    for (int r = alone; r < HALF; r++) send_row(shift, row_below(r));
}

/* ---- the rows of a patch --------------------------------------------------------------------------------------------------- */

/* What does not change from row to row, for the compiler to keep in registers. */
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

/* Evaluates a row again, each value with its own error bound, and exactly where that leaves it open. */
COLD void doubtful_row(const spec_t *spec, const job_t *job, const anchor_t *a, const patch_t *patch, int r, int is_above,
                       tally_t *tally) {
    const int row = is_above ? row_above(r) : row_below(r);
    const double *fine = patch->fine + r * 2 * TILE, *fine_low = patch->fine_low + r * 2 * TILE;
    row_t t;
    for (int v = 0; v < TILE_VECTORS; v++) {
        VV above = {v_set(0), v_set(0)}, below = above;
        if (job->dtype == FLOAT64) pairs_at(a, fine, fine_low, v, &above, &below);
        else
            rotated(v_load(a->p + v * W), v_load(a->q + v * W), v_load(fine + v * W), v_load(fine + TILE + v * W), &above.high,
                    &below.high);
        v_store(t.high + v * W, is_above ? above.high : below.high);
        v_store(t.low + v * W, is_above ? above.low : below.low);
        v_store(t.error + v * W, v_load(a->error + v * W));
    }
    deliver_settled(spec, job, patch->row + row, patch->column, patch->width, patch->out + row * patch->row_stride, &t, tally);
}

/* The rows of a patch at the offsets r .. last - 1, of which those above the anchor are wanted or not, up to the first
 * offset with a row in doubt, which is returned.  Nothing is called from the loops, so that what is kept stays in registers. */
INLINE int fine_rows_double(const job_t *job, const anchor_t *a, const patch_t *patch, int r, int last, int with_above,
                            int whole, dtype_t dtype, delivery_t delivery) {
    const int width = whole ? TILE : patch->width;
    const ptrdiff_t row_stride = patch->row_stride;
    char *out_above = patch->out + row_above(r) * row_stride, *out_below = patch->out + row_below(r) * row_stride;
    const double *fine = patch->fine + r * 2 * TILE;
    kept_t kept;
    for (int v = 0; v < TILE_VECTORS; v++) {
        kept.p[v] = v_load(a->p + v * W);
        kept.q[v] = v_load(a->q + v * W);
        kept.addend[v] = u_load(a->addend + v * W);
    }
    for (; r < last; r++, fine += 2 * TILE, out_above += row_stride, out_below -= row_stride) {
        if (delivery == ADD) fetch_lines(patch->fetch, 2 * TILE * (int)size_of(dtype) / LINE);
        F above[TILE_VECTORS / 2], below[TILE_VECTORS / 2];
        good_t good_above = good_all(), good_below = good_all();
        for (int v = 0; v < TILE_VECTORS; v += 2) {
            V above_0, above_1, below_0, below_1;
            values_at(&kept, fine, v, &above_0, &below_0);
            values_at(&kept, fine, v + 1, &above_1, &below_1);
            above[v / 2] = f_pair(above_0, above_1);
            below[v / 2] = f_pair(below_0, below_1);
            if (with_above) good_above = quick_test(good_above, above_0, above_1, above[v / 2], kept.addend, v, dtype);
            good_below = quick_test(good_below, below_0, below_1, below[v / 2], kept.addend, v, dtype);
        }
        if (UNLIKELY(!good_is_all(good_above, dtype) || !good_is_all(good_below, dtype))) {
            /* The same values again: to keep them in registers until here would cost more. */
            const double *again = fine;
            FORGET(again);
            U open_above = u_set(0), open_below = u_set(0);
            for (int v = 0; v < TILE_VECTORS; v += 2) {
                V settled_above[2], settled_below[2];
                for (int i = 0; i < 2; i++) {
                    const V error = v_load(a->error + (v + i) * W);
                    values_at(&kept, again, v + i, &settled_above[i], &settled_below[i]);
                    if (with_above) open_above = u_or(open_above, unsettled(&settled_above[i], error, dtype));
                    open_below = u_or(open_below, unsettled(&settled_below[i], error, dtype));
                }
                above[v / 2] = f_pair(settled_above[0], settled_above[1]);
                below[v / 2] = f_pair(settled_below[0], settled_below[1]);
            }
            if (!u_is_zero(u_or(open_above, open_below))) return r;
        }
        if (with_above) put_row(job, out_above, above, width, whole, dtype, delivery);
        put_row(job, out_below, below, width, whole, dtype, delivery);
        if (delivery == SHIFT && with_above) send_offsets(patch->shift, r + 1 - DELAY);
    }
    return r;
}

/* Rounds a double-double; adds to `open` the bits in which value - error and value + error differ. */
INLINE V settled_pair(VV sum, V error, U *open) {
    const V below = v_add(sum.high, v_sub(sum.low, error)), above = v_plus(sum.high, v_plus(sum.low, error));
    *open = u_or(*open, u_xor(u_bits(below), u_bits(above)));
    return below;
}

INLINE int fine_rows_pair(const job_t *job, const anchor_t *a, const patch_t *patch, int r, int last, int with_above, int whole,
                          delivery_t delivery) {
    const int width = whole ? TILE : patch->width;
    const ptrdiff_t row_stride = patch->row_stride;
    char *out_above = patch->out + row_above(r) * row_stride, *out_below = patch->out + row_below(r) * row_stride;
    const double *fine = patch->fine + r * 2 * TILE, *fine_low = patch->fine_low + r * 2 * TILE;
    for (; r < last; r++, fine += 2 * TILE, fine_low += 2 * TILE, out_above += row_stride, out_below -= row_stride) {
        if (delivery == ADD) fetch_lines(patch->fetch, 2 * TILE * (int)sizeof(double) / LINE);
        V above[TILE_VECTORS], below[TILE_VECTORS];
        U open = u_set(0);
        for (int v = 0; v < TILE_VECTORS; v++) {
            const V error = v_load(a->error + v * W);
            VV sum_above, sum_below;
            pairs_at(a, fine, fine_low, v, &sum_above, &sum_below);
            if (with_above) above[v] = settled_pair(sum_above, error, &open);
            below[v] = settled_pair(sum_below, error, &open);
        }
        if (UNLIKELY(!u_is_zero(open))) return r;
        if (with_above) put_wide_row(job, out_above, above, width, whole, delivery);
        put_wide_row(job, out_below, below, width, whole, delivery);
        if (delivery == SHIFT && with_above) send_offsets(patch->shift, r + 1 - DELAY);
    }
    return r;
}

INLINE void fine_rows(const spec_t *spec, const job_t *job, const anchor_t *a, const patch_t *patch, int first, int last,
                      int with_above, int whole, dtype_t dtype, delivery_t delivery, tally_t *tally) {
    for (int r = first; r < last; r++) {
        r = dtype == FLOAT64 ? fine_rows_pair(job, a, patch, r, last, with_above, whole, delivery)
                             : fine_rows_double(job, a, patch, r, last, with_above, whole, dtype, delivery);
        if (r == last) return;
        doubtful_row(spec, job, a, patch, r, 0, tally);
        if (with_above) doubtful_row(spec, job, a, patch, r, 1, tally);
    }
}

/* One function for each dtype, for what is rare and delivered by `deliver`: rows of fewer columns, rows without one above. */
#define CASE(T) \
    NOINLINE void odd_rows_##T(const spec_t *spec, const job_t *job, const anchor_t *a, const patch_t *patch, int first, \
                               int last, int with_above, tally_t *tally) { \
        if (with_above) fine_rows(spec, job, a, patch, first, last, 1, 0, T, STORE, tally); \
        else fine_rows(spec, job, a, patch, first, last, 0, 0, T, STORE, tally); \
    }
CASE(FLOAT64)
CASE(FLOAT32)
CASE(FLOAT16)
CASE(BFLOAT16)
#undef CASE

/* One for each dtype and delivery: all rows of a patch. */
typedef void fine_rows_t(const spec_t *, const job_t *, const anchor_t *, const patch_t *, int rows, tally_t *);
#define CASE(T, D) \
    NOINLINE void fine_rows_##T##_##D(const spec_t *spec, const job_t *job, const anchor_t *a, const patch_t *patch, int rows, \
                                      tally_t *tally) { \
        const int alone = rows < HALF ? HALF - rows : rows - HALF; \
        if (patch->width == TILE || D == SHIFT) fine_rows(spec, job, a, patch, 0, rows - HALF, 1, 1, T, D, tally); \
        else if (D == ADD) fine_rows(spec, job, a, patch, 0, rows - HALF, 1, 0, T, D, tally); \
        else odd_rows_##T(spec, job, a, patch, 0, rows - HALF, 1, tally); \
        odd_rows_##T(spec, job, a, patch, alone, HALF, 0, tally); \
        if (D == SHIFT) send_rest(patch->shift, rows - HALF, alone); \
    }
EVERY_CASE(CASE)
#undef CASE
#define CASE(T, D) [D][T] = fine_rows_##T##_##D,
static fine_rows_t *const FINE_ROWS[4][4] = {EVERY_CASE(CASE)};
#undef CASE

/* ---- blocks of evenly spaced rows ---------------------------------------------------------------------------------------- */

/* The first row of a block, and what does not change from anchor to anchor: M = fixed + |Q0 sin_k| with
 * fixed = |P0| + (|P0| + |Q0|) reach. */
typedef struct {
    ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE], fixed[TILE], least[TILE];
} first_row_t;

NOINLINE void first_row(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t tile, first_row_t *first) {
    const V floor = v_mul(v_abs(v_set(spec->scale)), v_set(DIRECT_PAIR_FLOOR));
    for (int v = 0; v < TILE_VECTORS; v++) {
        const ptrdiff_t column = tile * TILE + v * W;
        VV p = {v_set(0), v_set(0)}, q = p;
        if (job->dtype == FLOAT64) value_pair(spec, position, column, COLUMNS, &p, &q);
        else value_double(spec, position, column, COLUMNS, &p.high, &q.high);
        const V ap = v_abs(p.high), aq = v_abs(q.high), turning = v_load(job->offsets.turning + column);
        v_store(first->p + v * W, p.high);
        v_store(first->q + v * W, q.high);
        v_store(first->p_low + v * W, p.low);
        v_store(first->q_low + v * W, q.low);
        v_store(first->fixed + v * W, v_muladd(v_add(ap, aq), v_load(job->offsets.reach + column), ap));
        v_store(first->least + v * W, v_mul(job->dtype == FLOAT64 ? floor : v_set(2 * smallest_normal(job->dtype)), turning));
    }
}

NOINLINE void anchor_of(const job_t *job, const first_row_t *first, ptrdiff_t tile, int k, anchor_t *a) {
    ALIGNED double smallest[TILE];
    const double *high = offsets_at(job->offsets.coarse, tile, COARSE, k);
    const double *low = offsets_at(job->offsets.coarse_low, tile, COARSE, k);
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

/* The fine rows of anchor k in a tile, at most FINE, from `row` of the table: row i to out + i * row_stride. */
static void tile_rows(const spec_t *spec, const job_t *job, const first_row_t *first, ptrdiff_t tile, int k, ptrdiff_t row,
                      int rows, char *out, ptrdiff_t row_stride, delivery_t delivery, shift_t *shift, fetch_t *fetch,
                      tally_t *tally) {
    anchor_t a;
    anchor_of(job, first, tile, k, &a);
    const patch_t patch = {.row = row,
                           .column = tile * TILE,
                           .width = smaller(spec->d_model - tile * TILE, TILE),
                           .fine = offsets_at(job->offsets.fine, tile, HALF, 0),
                           .fine_low = offsets_at(job->offsets.fine_low, tile, HALF, 0),
                           .out = out,
                           .row_stride = row_stride,
                           .shift = shift,
                           .fetch = fetch};
    FINE_ROWS[delivery][job->dtype](spec, job, &a, &patch, rows, tally);
}

/* A tile of a block, straight to its place: its first row is evaluated directly, its anchors are rotated from it, its rows
 * from them. */
static void straight_tile(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t count,
                          ptrdiff_t tile, tally_t *tally) {
    char *const out = job->out + tile * TILE * (ptrdiff_t)size_of(job->dtype);
    first_row_t first;
    first_row(spec, job, position, tile, &first);
    for (int k = 0; k * FINE < count; k++) {
        const ptrdiff_t at = row + k * FINE;
        tile_rows(spec, job, &first, tile, k, at, smaller(count - k * FINE, FINE), out + at * job->row_stride, job->row_stride,
                  job->delivery, NULL, NULL, tally);
    }
}

/* By way of a stage: the fine rows of one anchor are made for all tiles before those of the next. */
typedef struct {
    shift_t shift;
    first_row_t first[];
} stage_t;

/* Rows off cache lines. */
static void shifted_rows(const spec_t *spec, const job_t *job, stage_t *stage, int k, ptrdiff_t row, int rows, tally_t *tally) {
    const ptrdiff_t tiles = spec->columns / TILE, size = (ptrdiff_t)size_of(job->dtype);
    shift_t *const shift = &stage->shift;
    for (ptrdiff_t tile = 0; tile < tiles; tile++) {
        shift->out = job->out + row * job->row_stride + tile * TILE * size;
        shift->row_stride = job->row_stride;
        shift->bytes = (size_t)(smaller(spec->d_model - tile * TILE, TILE) * size);
        shift->is_first = tile == 0;
        shift->is_last = tile == tiles - 1;
        shift->sent = 0;
        tile_rows(spec, job, &stage->first[tile], tile, k, row, rows, shift->row[0] + LINE, sizeof shift->row[0], SHIFT, shift,
                  NULL, tally);
    }
}

/* Onto one table. */
static void added_rows(const spec_t *spec, const job_t *job, stage_t *stage, int k, ptrdiff_t row, int rows, tally_t *tally) {
    const ptrdiff_t size = (ptrdiff_t)size_of(job->dtype);
    char *const out = job->out + row * job->row_stride;
    fetch_t fetch = {out + FINE * job->row_stride, 0, spec->d_model * size, job->row_stride};
    for (ptrdiff_t tile = 0; tile < spec->columns / TILE; tile++)
        tile_rows(spec, job, &stage->first[tile], tile, k, row, rows, out + tile * TILE * size, job->row_stride, ADD, NULL,
                  &fetch, tally);
}

/* Onto a batch, or 16-bit numbers: each row is made once, and stays in a cache while it is added to every element. */
enum { SOME_BYTES = 1 << 15 };
static void batch_rows(const spec_t *spec, const job_t *job, stage_t *stage, int k, ptrdiff_t row, int rows, tally_t *tally) {
    const ptrdiff_t tiles = spec->columns / TILE, size = (ptrdiff_t)size_of(job->dtype), row_bytes = spec->columns * size;
    char *const t = (char *)(stage->first + tiles);
    job_t to_stage = *job, to_one = *job;
    to_stage.delivery = STORE;
    to_one.batch = 1;
    for (ptrdiff_t tile = 0; tile < tiles; tile++)
        tile_rows(spec, &to_stage, &stage->first[tile], tile, k, row, rows, t + tile * TILE * size, row_bytes, STORE, NULL,
                  NULL, tally);
    const int some = row_bytes < SOME_BYTES ? (int)(SOME_BYTES / row_bytes) : 1;
    for (int first = 0; first < rows; first += some) {
        for (ptrdiff_t b = 0; b < job->batch; b++) {
            char *out = job->out + b * job->batch_stride + (row + first) * job->row_stride;
            fetch_t fetch = {out + job->batch_stride, 0, spec->d_model * size, job->row_stride};
            for (int r = first; r < rows && r < first + some; r++, out += job->row_stride) {
                fetch_lines(&fetch, (int)(row_bytes / LINE));
                add_to_batch(&to_one, out, t + r * row_bytes, spec->d_model);
            }
        }
    }
}

static size_t stage_size(const spec_t *spec, const job_t *job) {
    const size_t tiles = (size_t)(spec->columns / TILE);
    if (job->delivery == STORE || job->delivery == STREAM) return 0;
    return LINE + sizeof(stage_t) +
           tiles * (sizeof(first_row_t) + (job->batch > 1 || size_of(job->dtype) == 2 ? FINE * TILE * sizeof(double) : 0));
}

static void block(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t count,
                  void *memory, tally_t *tally) {
    const ptrdiff_t tiles = spec->columns / TILE;
    if (!memory) {
        for (ptrdiff_t tile = 0; tile < tiles; tile++) straight_tile(spec, job, position, row, count, tile, tally);
        return;
    }
    stage_t *const stage = (stage_t *)(((uintptr_t)memory + LINE - 1) & ~(uintptr_t)(LINE - 1));
    for (ptrdiff_t tile = 0; tile < tiles; tile++) first_row(spec, job, position, tile, &stage->first[tile]);
    for (int k = 0; k * FINE < count; k++) {
        const int rows = smaller(count - k * FINE, FINE);
        if (job->delivery == SHIFT) shifted_rows(spec, job, stage, k, row + k * FINE, rows, tally);
        else if (job->batch > 1 || size_of(job->dtype) == 2) batch_rows(spec, job, stage, k, row + k * FINE, rows, tally);
        else added_rows(spec, job, stage, k, row + k * FINE, rows, tally);
    }
}

/* ---- rows on their own ----------------------------------------------------------------------------------------------- */

/* Directly evaluated values of a tile: of each column, or of each pair of columns at once. */
INLINE void single_values(const spec_t *spec, const position_t *position, ptrdiff_t column, dtype_t dtype,
                          VV value[TILE_VECTORS]) {
    for (int v = 0; v < TILE_VECTORS; v += 2) {
        const ptrdiff_t here = column + v * W;
        VV p = {v_set(0), v_set(0)}, q = p;
        if (spec->order == UNPAIRED) {
            for (int i = 0; i < 2; i++) {
                if (dtype == FLOAT64) value_pair(spec, position, here + i * W, COLUMNS, &p, &q);
                else value_double(spec, position, here + i * W, COLUMNS, &p.high, &q.high);
                value[v + i] = p;
            }
            continue;
        }
        if (dtype == FLOAT64) value_pair(spec, position, here, PAIRS, &p, &q);
        else value_double(spec, position, here, PAIRS, &p.high, &q.high);
        const VV first = spec->order == SIN_FIRST ? p : q, second = spec->order == SIN_FIRST ? q : p;
        v_interleave(first.high, second.high, &value[v].high, &value[v + 1].high);
        v_interleave(first.low, second.low, &value[v].low, &value[v + 1].low);
    }
}

INLINE void single_tile(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t tile,
                        dtype_t dtype, tally_t *tally) {
    const ptrdiff_t column = tile * TILE;
    const int width = smaller(spec->d_model - column, TILE);
    const V amplitude = v_abs(v_set(spec->scale));
    const V share = v_set(dtype == FLOAT64 ? PAIR_ERROR : DIRECT_DOUBLE_ERROR);
    const V floor = v_mul(amplitude, v_set(dtype == FLOAT64 ? DIRECT_PAIR_FLOOR : DIRECT_DOUBLE_FLOOR));
    char *out = job->out + row * job->row_stride + column * (ptrdiff_t)size_of(dtype);
    VV direct_value[TILE_VECTORS];
    V value[TILE_VECTORS];
    good_t good = good_all();
    U open = u_set(0);
    single_values(spec, position, column, dtype, direct_value);
    if (dtype == FLOAT64) {
        for (int v = 0; v < TILE_VECTORS; v++) {
            const V error = v_muladd(v_abs(direct_value[v].high), share, floor);
            value[v] = settled_pair(direct_value[v], error, &open);
        }
    } else {
        ALIGNED uint64_t addend[TILE];
        ALIGNED double smallest[TILE];
        /* |value| >= 2**-40 of the amplitude: the error is below 2**-48 of it, a few units of its last place */
        for (int v = 0; v < TILE_VECTORS; v++)
            v_store(smallest + v * W, v_muladd(amplitude, v_set(0x1p-40), v_set(2 * smallest_normal(dtype))));
        quick_addends(smallest, addend, dtype);
        U addends[TILE_VECTORS];
        for (int v = 0; v < TILE_VECTORS; v++) addends[v] = u_load(addend + v * W);
        for (int v = 0; v < TILE_VECTORS; v += 2) {
            value[v] = direct_value[v].high;
            value[v + 1] = direct_value[v + 1].high;
            good = quick_test(good, value[v], value[v + 1], f_pair(value[v], value[v + 1]), addends, v, dtype);
        }
    }
    if (UNLIKELY(!(dtype == FLOAT64 || spec->quick) || !good_is_all(good, dtype) || !u_is_zero(open))) {
        row_t t;
        for (int v = 0; v < TILE_VECTORS; v++) {
            v_store(t.high + v * W, direct_value[v].high);
            v_store(t.low + v * W, direct_value[v].low);
            v_store(t.error + v * W, v_muladd(v_abs(direct_value[v].high), share, floor));
        }
        deliver_settled(spec, job, row, column, width, out, &t, tally);
    } else {
        put_values(job, out, value, width, width == TILE && job->delivery != ADD, dtype);
    }
}

/* A row beyond the fast path, of a position that is not finite, or of the padding position. */
NOINLINE void exact_row(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, tally_t *tally) {
    const double nan = double_of_bits(0x7ff8000000000000u), infinity = double_of_bits((uint64_t)0x7ff << 52);
    for (ptrdiff_t column = 0; column < spec->d_model; column += TILE) {
        row_t t = {.low = {0}};
        for (int i = 0; i < TILE; i++) {
            t.high[i] = position->finite ? 0 : nan;
            t.error[i] = position->finite && !position->padding ? infinity : 0;
        }
        deliver_settled(spec, job, row, column, smaller(spec->d_model - column, TILE),
                        job->out + row * job->row_stride + column * (ptrdiff_t)size_of(job->dtype), &t, tally);
    }
}

/* ---- the entries of the table ------------------------------------------------------------------------------------------ */

#define CASE(T) \
    NOINLINE void single_tile_##T(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, \
                                  ptrdiff_t tile, tally_t *tally) { \
        single_tile(spec, job, position, row, tile, T, tally); \
    }
CASE(FLOAT64)
CASE(FLOAT32)
CASE(FLOAT16)
CASE(BFLOAT16)
#undef CASE
#define CASE(T) [T] = single_tile_##T,
static void (*const SINGLE_TILE[])(const spec_t *, const job_t *, const position_t *, ptrdiff_t row, ptrdiff_t tile,
                                   tally_t *) = {CASE(FLOAT64) CASE(FLOAT32) CASE(FLOAT16) CASE(BFLOAT16)};
#undef CASE

static int is_fast(const spec_t *spec, const position_t *position) {
    return spec->fast && position->finite && !position->padding && position->limbs <= FAST_POSITION_LIMBS;
}

static void scattered_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, tally_t *tally) {
    const environment_t host = environment_enter();
    for (ptrdiff_t row = first; row < first + count; row++) {
        const position_t position = position_of(spec, job, row);
        if (!is_fast(spec, &position)) exact_row(spec, job, &position, row, tally);
        else
            for (ptrdiff_t tile = 0; tile < spec->columns / TILE; tile++)
                SINGLE_TILE[job->dtype](spec, job, &position, row, tile, tally);
    }
    environment_leave(host);
}

static void rotated_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, void *stage, tally_t *tally) {
    const position_t position = position_of(spec, job, first);
    if (!is_fast(spec, &position) || (job->dtype != FLOAT64 && !spec->quick)) {
        scattered_rows(spec, job, first, count, tally);
        return;
    }
    const environment_t host = environment_enter();
    block(spec, job, &position, first, count, stage, tally);
    if (job->delivery == STREAM || job->delivery == SHIFT) stream_fence();
    environment_leave(host);
}

static void even_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, void *stage, tally_t *tally) {
    ptrdiff_t before = count;
    if (spec->has_padding) {
        /* Modulo 2**64 a position before the first row's is beyond the last's: positions do not wrap.  One between two rows
         * sets the lower of them apart, which does no harm. */
        const uint64_t ahead = ((uint64_t)spec->padding - (job->start + (uint64_t)first * job->step)) / job->step;
        if (ahead < (uint64_t)count) before = (ptrdiff_t)ahead;
    }
    if (before) rotated_rows(spec, job, first, before, stage, tally);
    if (before < count) scattered_rows(spec, job, first + before, 1, tally);
    if (before + 1 < count) rotated_rows(spec, job, first + before + 1, count - before - 1, stage, tally);
}

/* Not inline: its arithmetic must not move past the change of the environment. */
NOINLINE void tabulate_rows(const spec_t *spec, uint64_t first, uint64_t spacing, double *high, double *low, ptrdiff_t tile,
                            int rows) {
    for (int r = 0; r < rows; r++) {
        const position_t position = position_from_halves(first + 2 * (uint64_t)r * spacing);
        const ptrdiff_t at = (tile * rows + r) * 2 * TILE;
        for (int v = 0; v < TILE_VECTORS; v++) {
            VV s, c;
            direct(spec, &position, tile * TILE + v * W, ANGLES, &s, &c);
            v_store(high + at + v * W, c.high);
            v_store(low + at + v * W, c.low);
            v_store(high + at + TILE + v * W, s.high);
            v_store(low + at + TILE + v * W, s.low);
        }
    }
}

static void tabulate(const spec_t *spec, uint64_t step, const offsets_t *offsets, ptrdiff_t first_tile, ptrdiff_t last_tile) {
    const environment_t host = environment_enter();
    for (ptrdiff_t tile = first_tile; tile < last_tile; tile++) {
        tabulate_rows(spec, step, step, offsets->fine, offsets->fine_low, tile, HALF);
        tabulate_rows(spec, step * (FINE - 1), step * FINE, offsets->coarse, offsets->coarse_low, tile, COARSE);
        for (ptrdiff_t column = tile * TILE; column < (tile + 1) * TILE; column++) {
            double reach = 0;
            uint32_t turns = 0;
            const double *fine = offsets_at(offsets->fine, tile, HALF, 0) + TILE + column % TILE;
            for (int r = 0; r < HALF; r++, fine += 2 * TILE)
                if (*fine > reach || -*fine > reach) reach = *fine < 0 ? -*fine : *fine;
            for (int i = 0; i < spec->integer_limbs + spec->fraction_limbs; i++)
                turns |= spec->turns[i * spec->columns + column];
            /* no less than the absolute error of a direct evaluation, of which it is a share */
            offsets->reach[column] = turns ? reach + 0x1p-36 : 0;
            offsets->turning[column] = turns ? 1 : 0;
        }
    }
    environment_leave(host);
}

/* The roof line of the benchmark: what writing past the caches costs when there is nothing to compute. */
static void fill(double *out, ptrdiff_t count, double value) {
    const V x = v_set(value);
    for (ptrdiff_t i = 0; i + W <= count; i += W) v_put(out + i, x, 1);
    stream_fence();
}

const kernel_t JOIN(posenc_kernel, ISA) = {STRING(ISA), RUNS_HERE, tabulate, stage_size, even_rows, scattered_rows, fill};

#endif
