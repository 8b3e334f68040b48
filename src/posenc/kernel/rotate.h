/* The kernels of one instruction set: included once by each kernel_*.c, after its verbs, with ISA its name.
 *
 * Evenly spaced rows.  A block's first row is evaluated directly (P = value, Q = the value a quarter turn ahead).  Rows are
 * reached by two rotations with tabulated offsets: of COARSE anchors from the first row, of FINE rows from each anchor,
 *     P' = P cos + Q sin,   Q' = Q cos - P sin,
 * in double for float32 and the halves, in double-double for float64.  Groups of columns are the outer loop and rows the
 * inner one, so that a group's anchors stay in registers and its offsets in L1, at any d_model.
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

enum { DOUBLE_VECTORS = GROUP / W, PAIR_VECTORS = 16 / W };

#define DOUBLE_ERROR 0x1.bp-50
#define PAIR_ERROR 0x1p-94
#define DIRECT_DOUBLE_ERROR 0x1p-50     /* of the value ... */
#define DIRECT_DOUBLE_FLOOR 0x1p-89     /* ... and of the full amplitude, where the phase is tiny */
#define DIRECT_PAIR_FLOOR 0x1p-110
#define SMALLEST_SHARE 0x1p-12          /* of M that a value may be before it is in doubt */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)

/* Every dtype and delivery, with the precision of its rotation. */
#define EVERY_DTYPE(CASE, D) CASE(FLOAT64, D, pair) CASE(FLOAT32, D, double) CASE(FLOAT16, D, double) CASE(BFLOAT16, D, double)
#define EVERY_CASE(CASE) EVERY_DTYPE(CASE, STORE) EVERY_DTYPE(CASE, STREAM) EVERY_DTYPE(CASE, ADD)

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

/* What the fine rows of a tile are rotated from, with the error bound of the result and the addend of its quick test. */
typedef struct {
    ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE], error[TILE];
    ALIGNED uint64_t addend[TILE];
} anchor_t;

/* Rows [row, row + rows) of the table in the group of columns that begins at `column`, `at` columns into its tile. */
typedef struct { ptrdiff_t row; int rows; ptrdiff_t column; int at, width; char *out; const double *fine, *fine_low; } patch_t;

/* P cos + Q sin in double-double: a double and a much smaller rest. */
INLINE VV rotated_pair(VV p, VV q, VV c, VV s) {
    const VV x = two_product(p.high, c.high), y = two_product(q.high, s.high);
    VV sum = two_sum(x.high, y.high);
    const V cross = v_muladd(p.high, c.low, v_muladd(p.low, c.high, v_muladd(q.high, s.low, v_muladd(q.low, s.high, y.low))));
    sum.low = v_add(sum.low, v_add(x.low, cross));
    return sum;
}

NOINLINE void doubtful_row(const spec_t *spec, const job_t *job, const anchor_t *a, const patch_t *patch, int r, tally_t *tally) {
    const double *fine = patch->fine + r * 2 * TILE, *fine_low = patch->fine_low + r * 2 * TILE;
    const int vectors = job->dtype == FLOAT64 ? PAIR_VECTORS : DOUBLE_VECTORS;
    row_t t = {.high = {0}};
    for (int v = 0; v < vectors; v++) {
        const int i = patch->at + v * W;
        const VV p = {v_load(a->p + i), v_load(a->p_low + i)}, q = {v_load(a->q + i), v_load(a->q_low + i)};
        VV value = {v_muladd(p.high, v_load(fine + v * W), v_mul(q.high, v_load(fine + TILE + v * W))), v_set(0)};
        if (job->dtype == FLOAT64) value = rotated_pair(p, q, pair_at(fine, fine_low, v), pair_at(fine + TILE, fine_low + TILE, v));
        v_store(t.high + v * W, value.high);
        v_store(t.low + v * W, value.low);
        v_store(t.error + v * W, v_load(a->error + i));
    }
    deliver_settled(spec, job, patch->row + r, patch->column, patch->width, patch->out + r * job->row_stride, &t, tally);
}

/* Asks for what the staged rows of a patch will be added onto, one row at a time, while they are computed. */
INLINE const char *fetch_from(const job_t *job, const patch_t *patch, int r, dtype_t dtype) {
    if (!job->fetch) return NULL;
    return job->fetch + (patch->row + r) * job->fetch_stride + patch->column * (ptrdiff_t)size_of(dtype);
}
INLINE const char *fetch_row(const job_t *job, const char *from, int columns, dtype_t dtype) {
    if (!from) return NULL;
    for (size_t byte = 0; byte < (size_t)columns * size_of(dtype); byte += 64) PREFETCH(from + byte);
    return from + job->fetch_stride;
}

/* Rows r, r + 1 ... of a patch, up to the first one in doubt, whose number is returned.  Nothing is called from the loops,
 * so that the anchors stay in registers. */
INLINE int fine_rows_double(const job_t *job, const anchor_t *a, const patch_t *patch, int r, int whole, dtype_t dtype,
                            delivery_t delivery) {
    enum { VECTORS = DOUBLE_VECTORS };
    const quick_t quick = quick_of(dtype);
    const ptrdiff_t row_stride = job->row_stride;
    const int width = patch->width;
    const double *fine = patch->fine + r * 2 * TILE;
    char *out = patch->out + r * row_stride;
    V p[VECTORS], q[VECTORS];
    U addend[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        const int i = patch->at + v * W;
        p[v] = v_load(a->p + i);
        q[v] = v_load(a->q + i);
        addend[v] = u_load(a->addend + i);
    }
    const char *from = delivery == STORE ? fetch_from(job, patch, r, dtype) : NULL;
    for (; r < patch->rows; r++, fine += 2 * TILE, out += row_stride) {
        V value[VECTORS];
        if (delivery == STORE) from = fetch_row(job, from, VECTORS * W, dtype);
        M good = m_all();
        for (int v = 0; v < VECTORS; v++) {
            value[v] = v_muladd(p[v], v_load(fine + v * W), v_mul(q[v], v_load(fine + TILE + v * W)));
            good = quick_test(good, quick, value[v], addend[v]);
        }
        if (UNLIKELY(!m_is_all(good)) && !settled_vectors(value, a->error + patch->at, VECTORS, dtype)) return r;
        deliver(job, out, value, VECTORS, whole, width, dtype, delivery);
    }
    return r;
}

INLINE int fine_rows_pair(const job_t *job, const anchor_t *a, const patch_t *patch, int r, int whole, dtype_t dtype,
                          delivery_t delivery) {
    enum { VECTORS = PAIR_VECTORS };
    const ptrdiff_t row_stride = job->row_stride;
    const int width = patch->width;
    const double *high = patch->fine + r * 2 * TILE, *low = patch->fine_low + r * 2 * TILE;
    char *out = patch->out + r * row_stride;
    VV p[VECTORS], q[VECTORS];
    V error[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        const int i = patch->at + v * W;
        p[v] = (VV){v_load(a->p + i), v_load(a->p_low + i)};
        q[v] = (VV){v_load(a->q + i), v_load(a->q_low + i)};
        error[v] = v_load(a->error + i);
    }
    const char *from = delivery == STORE ? fetch_from(job, patch, r, dtype) : NULL;
    for (; r < patch->rows; r++, high += 2 * TILE, low += 2 * TILE, out += row_stride) {
        V value[VECTORS];
        if (delivery == STORE) from = fetch_row(job, from, VECTORS * W, dtype);
        M good = m_all();
        for (int v = 0; v < VECTORS; v++) {
            const VV sum = rotated_pair(p[v], q[v], pair_at(high, low, v), pair_at(high + TILE, low + TILE, v));
            value[v] = v_add(sum.high, v_sub(sum.low, error[v]));
            good = m_and_equal(good, value[v], v_add(sum.high, v_add(sum.low, error[v])));
        }
        if (UNLIKELY(!m_is_all(good))) return r;
        deliver(job, out, value, VECTORS, whole, width, dtype, delivery);
    }
    return r;
}

typedef int fine_rows_t(const job_t *, const anchor_t *, const patch_t *, int r);

/* One function for each dtype and delivery, with the common case of a full group apart. */
enum { group_double = DOUBLE_VECTORS * W, group_pair = PAIR_VECTORS * W };
#define CASE(T, D, PRECISION) \
    NOINLINE int fine_rows_##T##_##D(const job_t *job, const anchor_t *a, const patch_t *patch, int r) { \
        if (patch->width == group_##PRECISION) return fine_rows_##PRECISION(job, a, patch, r, 1, T, D); \
        return fine_rows_##PRECISION(job, a, patch, r, 0, T, D); \
    }
EVERY_CASE(CASE)
#undef CASE
#define CASE(T, D, PRECISION) [D][T] = fine_rows_##T##_##D,
static fine_rows_t *const FINE_ROWS[3][4] = {EVERY_CASE(CASE)};
#undef CASE

/* ---- blocks of evenly spaced rows ---------------------------------------------------------------------------------------- */

/* The first row of a block, and what does not change from anchor to anchor: M = fixed + |Q0 sin_k| with
 * fixed = |P0| + (|P0| + |Q0|) reach. */
typedef struct { ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE], fixed[TILE], least[TILE]; } first_row_t;

INLINE void first_row(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t tile, dtype_t dtype,
                      first_row_t *first) {
    const V smallest_normal = v_set(dtype == FLOAT16 ? 0x1p-14 : 0x1p-126);
    const V floor = v_mul(v_abs(v_set(spec->scale)), v_set(DIRECT_PAIR_FLOOR));
    for (int v = 0; v < TILE / W; v++) {
        const ptrdiff_t column = tile * TILE + v * W;
        VV p = {v_set(0), v_set(0)}, q = p;
        if (dtype == FLOAT64) value_pair(spec, position, column, COLUMNS, &p, &q);
        else value_double(spec, position, column, COLUMNS, &p.high, &q.high);
        const V ap = v_abs(p.high), aq = v_abs(q.high), turning = v_load(job->offsets.turning + column);
        v_store(first->p + v * W, p.high);
        v_store(first->q + v * W, q.high);
        v_store(first->p_low + v * W, p.low);
        v_store(first->q_low + v * W, q.low);
        v_store(first->fixed + v * W, v_muladd(v_add(ap, aq), v_load(job->offsets.reach + column), ap));
        v_store(first->least + v * W, v_mul(dtype == FLOAT64 ? floor : smallest_normal, turning));
    }
}

INLINE void anchor_of(const job_t *job, const first_row_t *first, ptrdiff_t tile, int k, dtype_t dtype, anchor_t *a) {
    const quick_t quick = quick_of(dtype);
    const double *high = offsets_at(job->offsets.coarse, tile, COARSE, k);
    const double *low = offsets_at(job->offsets.coarse_low, tile, COARSE, k);
    for (int v = 0; v < TILE / W; v++) {
        const VV c = pair_at(high, low, v), s = pair_at(high + TILE, low + TILE, v);
        const VV p0 = pair_at(first->p, first->p_low, v), q0 = pair_at(first->q, first->q_low, v);
        const V least = v_load(first->least + v * W);
        const V magnitude = v_muladd(v_abs(q0.high), v_abs(s.high), v_load(first->fixed + v * W));
        if (dtype == FLOAT64) {
            const VV p = dd_product_sum(p0, c, q0, s), q = dd_product_sum(q0, c, dd_negated(p0), s);
            v_store(a->p + v * W, p.high);
            v_store(a->q + v * W, q.high);
            v_store(a->p_low + v * W, p.low);
            v_store(a->q_low + v * W, q.low);
            v_store(a->error + v * W, v_muladd(magnitude, v_set(PAIR_ERROR), least));
        } else {
            v_store(a->p + v * W, v_muladd(p0.high, c.high, v_mul(q0.high, s.high)));
            v_store(a->q + v * W, v_sub(v_mul(q0.high, c.high), v_mul(p0.high, s.high)));
            u_store(a->addend + v * W, quick_addend(quick, v_muladd(magnitude, v_set(SMALLEST_SHARE), least)));
            v_store(a->error + v * W, v_mul(magnitude, v_set(DOUBLE_ERROR)));
        }
    }
}

/* The fine rows of anchor k: rows row .. row + rows - 1 of the table. */
INLINE void tile_rows(const spec_t *spec, const job_t *job, const first_row_t *first, ptrdiff_t tile, int k, ptrdiff_t row,
                      int rows, dtype_t dtype, tally_t *tally) {
    enum { PAIR = group_pair, DOUBLE = group_double };
    const int group = dtype == FLOAT64 ? PAIR : DOUBLE;
    fine_rows_t *const fine_rows = FINE_ROWS[job->delivery][dtype];
    anchor_t a;
    anchor_of(job, first, tile, k, dtype, &a);
    for (int at = 0; at < TILE && tile * TILE + at < spec->d_model; at += group) {
        patch_t patch = {
            .row = row, .rows = rows, .column = tile * TILE + at, .at = at,
            .fine = offsets_at(job->offsets.fine, tile, FINE, 0) + at,
            .fine_low = offsets_at(job->offsets.fine_low, tile, FINE, 0) + at};
        patch.width = smaller(spec->d_model - patch.column, group);
        patch.out = job->out + row * job->row_stride + patch.column * (ptrdiff_t)size_of(dtype);
        for (int r = 0; (r = fine_rows(job, &a, &patch, r)) < rows; r++) doubtful_row(spec, job, &a, &patch, r, tally);
    }
}

/* A tile of a block, straight to its place: its first row is evaluated directly, its anchors are rotated from it, its rows
 * from them. */
INLINE void even_tile(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t count,
                      ptrdiff_t tile, dtype_t dtype, tally_t *tally) {
    first_row_t first;
    first_row(spec, job, position, tile, dtype, &first);
    for (int k = 0; k * FINE < count; k++)
        tile_rows(spec, job, &first, tile, k, row + (ptrdiff_t)k * FINE, smaller(count - (ptrdiff_t)k * FINE, FINE), dtype, tally);
}

/* ---- rows by way of a stage ------------------------------------------------------------------------------------------------ */

/* Where whole rows must be read, or do not begin on cache lines, memory wants them one after the other: the fine rows of all
 * tiles are made in the second-level cache first. */

static size_t stage_size(const spec_t *spec) {
    return 64 + (size_t)(spec->columns / TILE) * sizeof(first_row_t) + (size_t)(FINE * spec->columns) * sizeof(double);
}

/* Copies a row past the caches, but for the parts of cache lines at its ends. */
INLINE void stream_row(char *out, const char *t, size_t bytes) {
    size_t head = (64 - (uintptr_t)out % 64) % 64;
    if (head > bytes) head = bytes;
    memcpy(out, t, head);
    size_t i = head;
    for (; i + 64 <= bytes; i += 64)
        for (int v = 0; v < 64; v += (int)sizeof(V)) {
            V x;
            memcpy(&x, t + i + v, sizeof x);
            v_put((double *)(void *)(out + i + v), x, 1);
        }
    memcpy(out + i, t + i, bytes - i);
}

INLINE void staged_rows(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t count,
                        void *stage, dtype_t dtype, tally_t *tally) {
    const ptrdiff_t tiles = spec->columns / TILE, size = (ptrdiff_t)size_of(dtype);
    first_row_t *const first = (first_row_t *)(((uintptr_t)stage + 63) & ~(uintptr_t)63);
    char *const rows = (char *)(first + tiles);
    job_t to_stage = *job;
    to_stage.delivery = STORE;
    to_stage.row_stride = spec->columns * size;
    to_stage.fetch = job->delivery == ADD ? job->out : NULL;
    to_stage.fetch_stride = job->row_stride;
    for (ptrdiff_t tile = 0; tile < tiles; tile++) first_row(spec, job, position, tile, dtype, &first[tile]);
    for (int k = 0; k * FINE < count; k++) {
        const ptrdiff_t at = row + (ptrdiff_t)k * FINE;
        const int fine = smaller(count - (ptrdiff_t)k * FINE, FINE);
        to_stage.out = rows - at * to_stage.row_stride;
        for (ptrdiff_t tile = 0; tile < tiles; tile++) tile_rows(spec, &to_stage, &first[tile], tile, k, at, fine, dtype, tally);
        for (ptrdiff_t b = 0; b < job->batch; b++) {
            char *out = job->out + b * job->batch_stride + at * job->row_stride;
            const char *t = rows;
            for (int r = 0; r < fine; r++, out += job->row_stride, t += to_stage.row_stride) {
                if (job->delivery == ADD) add(out, t, spec->d_model, dtype, job->x_scale);
                else stream_row(out, t, (size_t)(spec->d_model * size));
            }
        }
    }
}

/* ---- rows on their own ----------------------------------------------------------------------------------------------- */

/* Directly evaluated values of a tile: of each column, or of each pair of columns at once. */
INLINE void single_values(const spec_t *spec, const position_t *position, ptrdiff_t column, dtype_t dtype, VV value[TILE / W]) {
    for (int v = 0; v < TILE / W; v += 2) {
        const ptrdiff_t here = column + v * W, next = here + W;
        VV p = {v_set(0), v_set(0)}, q = p, r = p, ahead;
        if (spec->order == UNPAIRED) {
            if (dtype == FLOAT64) {
                value_pair(spec, position, here, COLUMNS, &p, &ahead);
                value_pair(spec, position, next, COLUMNS, &r, &ahead);
            } else {
                value_double(spec, position, here, COLUMNS, &p.high, &ahead.high);
                value_double(spec, position, next, COLUMNS, &r.high, &ahead.high);
            }
            value[v] = p;
            value[v + 1] = r;
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
                        dtype_t dtype, delivery_t delivery, tally_t *tally) {
    enum { VECTORS = TILE / W };
    const ptrdiff_t column = tile * TILE;
    const int width = smaller(spec->d_model - column, TILE);
    const quick_t quick = quick_of(dtype);
    const V amplitude = v_abs(v_set(spec->scale));
    /* |value| >= 2**-40 of the amplitude: the error is below 2**-48 of it, a few units of its last place */
    const V smallest = v_muladd(amplitude, v_set(0x1p-40), v_set(dtype == FLOAT16 ? 0x1p-14 : 0x1p-126));
    const V share = v_set(dtype == FLOAT64 ? PAIR_ERROR : DIRECT_DOUBLE_ERROR);
    const V floor = v_mul(amplitude, v_set(dtype == FLOAT64 ? DIRECT_PAIR_FLOOR : DIRECT_DOUBLE_FLOOR));
    const U addend = quick_addend(quick, smallest);
    char *out = job->out + row * job->row_stride + column * (ptrdiff_t)size_of(dtype);
    VV direct_value[VECTORS];
    V value[VECTORS];
    M good = m_all();
    single_values(spec, position, column, dtype, direct_value);
    for (int v = 0; v < VECTORS; v++) {
        value[v] = direct_value[v].high;
        if (dtype == FLOAT64) {
            const V error = v_muladd(v_abs(direct_value[v].high), share, floor);
            value[v] = v_add(direct_value[v].high, v_sub(direct_value[v].low, error));
            good = m_and_equal(good, value[v], v_add(direct_value[v].high, v_add(direct_value[v].low, error)));
        } else {
            good = quick_test(good, quick, value[v], addend);
        }
    }
    const int tested = dtype == FLOAT64 || spec->quick;
    if (UNLIKELY(!tested || !m_is_all(good))) {
        row_t t;
        for (int v = 0; v < VECTORS; v++) {
            v_store(t.high + v * W, direct_value[v].high);
            v_store(t.low + v * W, direct_value[v].low);
            v_store(t.error + v * W, v_muladd(v_abs(direct_value[v].high), share, floor));
        }
        deliver_settled(spec, job, row, column, width, out, &t, tally);
    } else if (width == TILE) {
        deliver(job, out, value, VECTORS, 1, width, dtype, delivery);
    } else {
        deliver(job, out, value, VECTORS, 0, width, dtype, delivery);
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
    NOINLINE void even_tile_##T(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, \
                                ptrdiff_t count, ptrdiff_t tile, tally_t *tally) { \
        even_tile(spec, job, position, row, count, tile, T, tally); \
    } \
    NOINLINE void staged_rows_##T(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, \
                                  ptrdiff_t count, void *stage, tally_t *tally) { \
        staged_rows(spec, job, position, row, count, stage, T, tally); \
    } \
    NOINLINE void single_tile_##T(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, \
                                  ptrdiff_t tile, tally_t *tally) { \
        if (job->delivery == ADD) single_tile(spec, job, position, row, tile, T, ADD, tally); \
        else single_tile(spec, job, position, row, tile, T, STORE, tally); \
    }
CASE(FLOAT64) CASE(FLOAT32) CASE(FLOAT16) CASE(BFLOAT16)
#undef CASE
static const struct {
    void (*even)(const spec_t *, const job_t *, const position_t *, ptrdiff_t row, ptrdiff_t count, ptrdiff_t tile, tally_t *);
    void (*staged)(const spec_t *, const job_t *, const position_t *, ptrdiff_t row, ptrdiff_t count, void *stage, tally_t *);
    void (*single)(const spec_t *, const job_t *, const position_t *, ptrdiff_t row, ptrdiff_t tile, tally_t *);
} TILES[] = {
    [FLOAT64] = {even_tile_FLOAT64, staged_rows_FLOAT64, single_tile_FLOAT64},
    [FLOAT32] = {even_tile_FLOAT32, staged_rows_FLOAT32, single_tile_FLOAT32},
    [FLOAT16] = {even_tile_FLOAT16, staged_rows_FLOAT16, single_tile_FLOAT16},
    [BFLOAT16] = {even_tile_BFLOAT16, staged_rows_BFLOAT16, single_tile_BFLOAT16},
};

static int is_fast(const spec_t *spec, const position_t *position) {
    return spec->fast && position->finite && !position->padding && position->limbs <= FAST_POSITION_LIMBS;
}

static void scattered_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, tally_t *tally) {
    const environment_t host = environment_enter();
    for (ptrdiff_t row = first; row < first + count; row++) {
        const position_t position = position_of(spec, job, row);
        if (!is_fast(spec, &position)) exact_row(spec, job, &position, row, tally);
        else for (ptrdiff_t tile = 0; tile < spec->columns / TILE; tile++)
            TILES[job->dtype].single(spec, job, &position, row, tile, tally);
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
    if (job->staged) TILES[job->dtype].staged(spec, job, &position, first, count, stage, tally);
    else for (ptrdiff_t tile = 0; tile < spec->columns / TILE; tile++)
        TILES[job->dtype].even(spec, job, &position, first, count, tile, tally);
    if (job->delivery == STREAM) stream_fence();
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
NOINLINE void tabulate_rows(const spec_t *spec, uint64_t step, double *high, double *low, ptrdiff_t tile, int rows) {
    for (int r = 0; r < rows; r++) {
        const position_t position = position_from_integer((uint64_t)r * step, 0);
        const ptrdiff_t at = (tile * rows + r) * 2 * TILE;
        for (int v = 0; v < TILE / W; v++) {
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
        tabulate_rows(spec, step, offsets->fine, offsets->fine_low, tile, FINE);
        tabulate_rows(spec, step * FINE, offsets->coarse, offsets->coarse_low, tile, COARSE);
        for (ptrdiff_t column = tile * TILE; column < (tile + 1) * TILE; column++) {
            double reach = 0;
            uint32_t turns = 0;
            const double *fine = offsets_at(offsets->fine, tile, FINE, 0) + TILE + column % TILE;
            for (int r = 0; r < FINE; r++, fine += 2 * TILE)
                if (*fine > reach || -*fine > reach) reach = *fine < 0 ? -*fine : *fine;
            for (int i = 0; i < spec->integer_limbs + spec->fraction_limbs; i++) turns |= spec->turns[i * spec->columns + column];
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
