/* The kernels of one instruction set: included once by each kernel_*.c, after its verbs, with ISA its name.
 *
 * Evenly spaced rows.  A block's first row is evaluated directly (P = value, Q = the value a quarter turn ahead).  Rows are
 * reached by two rotations with tabulated offsets: of COARSE anchors from the first row, of FINE rows from each anchor,
 *     P' = P cos + Q sin,   Q' = Q cos - P sin,
 * in double for float32 and the halves, in double-double for float64.
 *
 * Bounds (docs/numerics.md), with M = |P0| + |Q0 sin_k| + (|Q0| + |P0 sin_k|) reach, where P0, Q0 belong to the first row,
 * sin_k to the anchor, and reach >= |sin| of all fine rows: the error of a value is below 2**-50 M in double, 2**-94 M in
 * double-double.  It is relative to the products, not to their sum: small angles keep their precision.
 *
 * Rounding test.  If value - error and value + error round to the same number, so does the true value between them.
 * For float64 that is what is computed.  For the others a cheaper test goes first: with |value| >= 2**-12 M the error is
 * below 2**15 units of the double's last place, so only dropped bits within 2**16 units of a half-way point are in doubt.
 */
#ifndef POSENC_ROTATE_H
#define POSENC_ROTATE_H

#include "direct.h"
#include "environment.h"
#include "exact.h"

enum { VECTORS = TILE / W };

#define DOUBLE_ERROR 0x1.8p-50
#define DIRECT_DOUBLE_ERROR 0x1p-50
#define PAIR_ERROR 0x1p-94
#define DIRECT_ERROR 0x1p-112           /* of the full amplitude, where the phase is tiny */
#define SMALLEST_SHARE 0x1p-12          /* of M that a value may be before it is in doubt */

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)

typedef struct { double high[TILE], low[TILE], error[TILE]; } row_t;

static size_t size_of(dtype_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }

/* ---- the quick test ------------------------------------------------------------------------------------------------ */

/* The double's bits are shifted right until the half-way bit and 12 bits below it lie in the low half of the lane.
 * The halves are converted through float, so there the doubtful zone is wider than half a float's last place. */
typedef struct { int shift; uint64_t near_half, low_mask; } quick_t;

INLINE quick_t quick_of(dtype_t dtype) {
    switch (dtype) {
    case FLOAT32: return (quick_t){0, 0x10010000u, 0x1ffe0000u};     /* 29 bits dropped, doubt within 2**16 units */
    case FLOAT16: return (quick_t){10, 0x80080000u, 0xfff00000u};    /* 42 dropped, within 2**29 */
    default: return (quick_t){13, 0x80010000u, 0xfffe0000u};         /* 45 dropped, within 2**29 */
    }
}

/* What is added to the shifted bits: afterwards bit 62 - shift tells whether |value| >= smallest, and the low mask
 * whether the dropped bits keep their distance from the half-way point. */
INLINE U quick_addend(quick_t q, V smallest) {
    const U threshold = u_and(q.shift ? u_shr(u_bits(smallest), q.shift) : u_bits(smallest), u_set(0xffffffff00000000u));
    return u_sub(u_set((uint64_t)1 << (62 - q.shift) | q.near_half), threshold);
}

INLINE M quick_doubt(M doubt, quick_t q, V value, U addend) {
    const U mask = u_set((uint64_t)1 << (62 - q.shift) | q.low_mask);
    return m_or_zero(doubt, u_add(q.shift ? u_shr(u_bits(value), q.shift) : u_bits(value), addend), mask);
}

/* ---- settling what is in doubt --------------------------------------------------------------------------------------- */

/* Rounds the values of a row of a tile, each by its own error bound; what that leaves open is evaluated directly. */
INLINE void settle(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, row_t *values,
                   dtype_t dtype, tally_t *tally) {
    const format_t format = format_of(dtype);
    const int drop = 53 - format.precision;
    const uint64_t half = drop ? (uint64_t)1 << (drop - 1) : 0, normal = bits_of_double(power_of_two(format.min_exponent));
    uint64_t open[TILE], any = 0;
    double rounded[TILE];
    for (int i = 0; i < TILE; i++) {
        /* Rounded half away from zero: no value but an exact one lies on a half-way point. */
        const uint64_t below = bits_of_double(values->high[i] + (values->low[i] - values->error[i])) + half;
        const uint64_t above = bits_of_double(values->high[i] + (values->low[i] + values->error[i])) + half;
        rounded[i] = double_of_bits(below >> drop << drop);
        open[i] = ((below ^ above) >> drop) | (uint64_t)((below & INT64_MAX) < normal + half);
        any |= open[i];
    }
    tally->doubted++;
    if (any) {
        position_t position;
        int known = 0;
        for (int i = 0; i < width; i++) {
            if (!open[i]) continue;
            const double high = values->high[i], low = values->low[i], error = values->error[i];
            const double below = round_to(dtype, high + (low - error)), above = round_to(dtype, high + (low + error));
            rounded[i] = below;
            if (bits_of_double(below) == bits_of_double(above)) continue;
            if (!known) position = position_of(spec, job, row);
            known = 1;
            tally->exact++;
            rounded[i] = posenc_exact(spec, &position, column + i, dtype);
        }
    }
    memcpy(values->high, rounded, sizeof rounded);
}

/* ---- delivery -------------------------------------------------------------------------------------------------------- */

#ifdef POSENC_HALVES_BY_HAND
INLINE void halves_store(uint16_t *p, const float *f, int n) { for (int i = 0; i < n; i++) p[i] = half_of_float(f[i]); }
INLINE void halves_load(float *f, const uint16_t *p, int n) { for (int i = 0; i < n; i++) f[i] = float_of_half(p[i]); }
#else
INLINE void halves_store(uint16_t *p, const float *f, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(p + i), _mm256_cvtps_ph(_mm256_loadu_ps(f + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) p[i] = half_of_float(f[i]);
}
INLINE void halves_load(float *f, const uint16_t *p, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(f + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + i))));
    for (; i < n; i++) f[i] = float_of_half(p[i]);
}
#endif
INLINE void bfloats_store(uint16_t *p, const float *f, int n) { for (int i = 0; i < n; i++) p[i] = bfloat_of_float(f[i]); }
INLINE void bfloats_load(float *f, const uint16_t *p, int n) { for (int i = 0; i < n; i++) f[i] = float_of_bfloat(p[i]); }

INLINE void sixteen_store(uint16_t *p, const float *f, int n, dtype_t dtype) {
    if (dtype == FLOAT16) halves_store(p, f, n); else bfloats_store(p, f, n);
}
INLINE void sixteen_load(float *f, const uint16_t *p, int n, dtype_t dtype) {
    if (dtype == FLOAT16) halves_load(f, p, n); else bfloats_load(f, p, n);
}
INLINE void sixteen_round(float *f, int n, dtype_t dtype) {
    uint16_t t[TILE];
    sixteen_store(t, f, n, dtype);
    sixteen_load(f, t, n, dtype);
}

/* Writes or adds one row of a tile.  `dtype` and `delivery` are constants where this is inlined. */
INLINE void deliver(const job_t *job, char *out, const V value[VECTORS], int width, dtype_t dtype, delivery_t delivery) {
    if (delivery == STREAM && width == TILE) {
        if (dtype == FLOAT64) for (int v = 0; v < VECTORS; v++) v_stream((double *)(void *)out + v * W, value[v]);
        if (dtype == FLOAT32) for (int v = 0; v < VECTORS; v += 2) f_stream((float *)(void *)out + v * W, value[v], value[v + 1]);
        if (dtype == FLOAT64 || dtype == FLOAT32) return;
    }
    if (delivery != ADD && width == TILE) {
        if (dtype == FLOAT64) for (int v = 0; v < VECTORS; v++) v_store((double *)(void *)out + v * W, value[v]);
        if (dtype == FLOAT32) for (int v = 0; v < VECTORS; v += 2) f_store((float *)(void *)out + v * W, value[v], value[v + 1]);
        if (dtype == FLOAT64 || dtype == FLOAT32) return;
    }
    const size_t bytes = (size_t)width * size_of(dtype);
    if (dtype == FLOAT64) {
        double t[TILE];
        for (int v = 0; v < VECTORS; v++) v_store(t + v * W, value[v]);
        if (delivery != ADD) { memcpy(out, t, bytes); return; }
        for (ptrdiff_t b = 0; b < job->batch; b++, out += job->batch_stride) {
            double *x = (double *)(void *)out;
            for (int i = 0; i < width; i++) x[i] = x[i] * job->x_scale + t[i];
        }
        return;
    }
    float t[TILE];
    for (int v = 0; v < VECTORS; v += 2) f_store(t + v * W, value[v], value[v + 1]);
    if (dtype == FLOAT32 && delivery != ADD) { memcpy(out, t, bytes); return; }
    const float x_scale = (float)job->x_scale;
    if (dtype == FLOAT32) {
        for (ptrdiff_t b = 0; b < job->batch; b++, out += job->batch_stride) {
            float *x = (float *)(void *)out;
            for (int i = 0; i < width; i++) x[i] = x[i] * x_scale + t[i];
        }
        return;
    }
    if (delivery != ADD) {
        sixteen_store((uint16_t *)(void *)out, t, width, dtype);
        return;
    }
    /* Products of two 11-bit (8-bit) numbers are exact in float, and 24 >= 2 * 11 + 2 bits round a sum innocuously. */
    sixteen_round(t, width, dtype);
    for (ptrdiff_t b = 0; b < job->batch; b++, out += job->batch_stride) {
        float x[TILE];
        sixteen_load(x, (const uint16_t *)(void *)out, width, dtype);
        for (int i = 0; i < width; i++) x[i] *= x_scale;
        sixteen_round(x, width, dtype);
        for (int i = 0; i < width; i++) x[i] += t[i];
        sixteen_store((uint16_t *)(void *)out, x, width, dtype);
    }
}

/* Settles and delivers a row that is in doubt. */
NOINLINE void deliver_settled(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, char *out,
                              row_t *values, tally_t *tally) {
    V settled[VECTORS];
#define CASE(T) \
    case T: \
        settle(spec, job, row, column, width, values, T, tally); \
        for (int v = 0; v < VECTORS; v++) settled[v] = v_load(values->high + v * W); \
        deliver(job, out, settled, width, T, job->delivery == ADD ? ADD : STORE); \
        break;
    switch (job->dtype) { CASE(FLOAT64) CASE(FLOAT32) CASE(FLOAT16) CASE(BFLOAT16) }
#undef CASE
}

/* ---- anchors --------------------------------------------------------------------------------------------------------- */

INLINE V v_abs(V a) { return v_bits(u_and(u_bits(a), u_set(0x7fffffffffffffffu))); }

/* The columns' values at a position, and those a quarter turn ahead, scaled.  Adding 0 turns -0 into 0. */
INLINE void anchor_pair(const spec_t *spec, const position_t *position, ptrdiff_t column, VV *p, VV *q) {
    const V scale = v_set(spec->scale);
    direct(spec, position, column, 1, p, q);
    *p = dd_scaled(*p, scale);
    *q = dd_scaled(*q, scale);
    p->high = v_add(p->high, v_set(0));
}

INLINE void anchor_double(const spec_t *spec, const position_t *position, ptrdiff_t column, V *p, V *q) {
    const V scale = v_set(spec->scale);
    direct_double(spec, position, column, p, q);
    *p = v_muladd(*p, scale, v_set(0));
    *q = v_mul(*q, scale);
}

INLINE const double *offsets_at(const double *table, ptrdiff_t tile, int rows, int row) {
    return table + (tile * rows + row) * 2 * TILE;
}

/* ---- evenly spaced rows ---------------------------------------------------------------------------------------------- */

/* What the fine rows of a tile are rotated from. */
typedef struct {
    ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE], error[TILE];
    ALIGNED uint64_t addend[TILE];
} anchor_t;

/* Rows [row, row + rows) of the table, columns [column, column + width) of them. */
typedef struct { ptrdiff_t row; int rows; ptrdiff_t column; int width; char *out; const double *fine, *fine_low; } patch_t;

INLINE VV pair_at(const double *high, const double *low, int v) {
    return (VV){v_load(high + v * W), v_load(low + v * W)};
}

/* A value in double-double: the sum of a double and a much smaller rest. */
INLINE VV pair_value(const anchor_t *a, const double *high, const double *low, int v) {
    const VV p = pair_at(a->p, a->p_low, v), q = pair_at(a->q, a->q_low, v);
    const VV c = pair_at(high, low, v), s = pair_at(high + TILE, low + TILE, v);
    const VV x = two_product(p.high, c.high), y = two_product(q.high, s.high);
    VV sum = two_sum(x.high, y.high);
    const V cross = v_muladd(p.high, c.low, v_muladd(p.low, c.high, v_muladd(q.high, s.low, v_mul(q.low, s.high))));
    sum.low = v_add(sum.low, v_add(v_add(x.low, y.low), cross));
    return sum;
}

NOINLINE void doubtful_row(const spec_t *spec, const job_t *job, const anchor_t *a, const patch_t *patch, int r, char *out,
                           tally_t *tally) {
    const double *fine = patch->fine + r * 2 * TILE, *fine_low = patch->fine_low + r * 2 * TILE;
    row_t t;
    for (int v = 0; v < VECTORS; v++) {
        VV value = {v_muladd(v_load(a->p + v * W), v_load(fine + v * W), v_mul(v_load(a->q + v * W), v_load(fine + TILE + v * W))),
                    v_set(0)};
        if (job->dtype == FLOAT64) value = pair_value(a, fine, fine_low, v);
        v_store(t.high + v * W, value.high);
        v_store(t.low + v * W, value.low);
    }
    memcpy(t.error, a->error, sizeof t.error);
    deliver_settled(spec, job, patch->row + r, patch->column, patch->width, out, &t, tally);
}

/* Rows r, r + 1 ... of a patch, up to the first one in doubt, whose number is returned.  Nothing is called from the loop, so
 * that the anchors stay in registers. */
INLINE int fine_rows_double(const job_t *job, const anchor_t *a, const patch_t *patch, int r, int width, dtype_t dtype,
                            delivery_t delivery) {
    const quick_t quick = quick_of(dtype);
    const ptrdiff_t row_stride = job->row_stride;
    const double *fine = patch->fine + r * 2 * TILE;
    char *out = patch->out + r * row_stride;
    V p[VECTORS], q[VECTORS];
    U addend[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        p[v] = v_load(a->p + v * W);
        q[v] = v_load(a->q + v * W);
        addend[v] = u_load(a->addend + v * W);
    }
    for (; r < patch->rows; r++, fine += 2 * TILE, out += row_stride) {
        V value[VECTORS];
        M doubt = m_none();
        for (int v = 0; v < VECTORS; v++) {
            value[v] = v_muladd(p[v], v_load(fine + v * W), v_mul(q[v], v_load(fine + TILE + v * W)));
            doubt = quick_doubt(doubt, quick, value[v], addend[v]);
        }
        if (UNLIKELY(m_any(doubt))) return r;
        deliver(job, out, value, width, dtype, delivery);
    }
    return r;
}

INLINE int fine_rows_pair(const job_t *job, const anchor_t *a, const patch_t *patch, int r, int width, dtype_t dtype,
                          delivery_t delivery) {
    const ptrdiff_t row_stride = job->row_stride;
    const double *high = patch->fine + r * 2 * TILE, *low = patch->fine_low + r * 2 * TILE;
    char *out = patch->out + r * row_stride;
    for (; r < patch->rows; r++, high += 2 * TILE, low += 2 * TILE, out += row_stride) {
        V value[VECTORS];
        M doubt = m_none();
        for (int v = 0; v < VECTORS; v++) {
            const VV sum = pair_value(a, high, low, v);
            const V error = v_load(a->error + v * W);
            value[v] = v_add(sum.high, v_sub(sum.low, error));
            doubt = m_or_unequal(doubt, value[v], v_add(sum.high, v_add(sum.low, error)));
        }
        if (UNLIKELY(m_any(doubt))) return r;
        deliver(job, out, value, width, dtype, delivery);
    }
    return r;
}

/* One function for each dtype and delivery, with the common case of a full tile apart. */
#define EVERY_DTYPE(CASE, D) CASE(FLOAT64, D, pair) CASE(FLOAT32, D, double) CASE(FLOAT16, D, double) CASE(BFLOAT16, D, double)
#define EVERY_CASE(CASE) EVERY_DTYPE(CASE, STORE) EVERY_DTYPE(CASE, STREAM) EVERY_DTYPE(CASE, ADD)

typedef int fine_rows_t(const job_t *, const anchor_t *, const patch_t *, int r);

#define CASE(T, D, PRECISION) \
    NOINLINE int fine_rows_##T##_##D(const job_t *job, const anchor_t *a, const patch_t *patch, int r) { \
        if (patch->width == TILE) return fine_rows_##PRECISION(job, a, patch, r, TILE, T, D); \
        return fine_rows_##PRECISION(job, a, patch, r, patch->width, T, D); \
    }
EVERY_CASE(CASE)
#undef CASE
#define CASE(T, D, PRECISION) [D][T] = fine_rows_##T##_##D,
static fine_rows_t *const FINE_ROWS[3][4] = {EVERY_CASE(CASE)};
#undef CASE

/* The first row of a block, and what does not change from anchor to anchor: M = fixed + |Q0| |sin| with
 * fixed = |P0| + (|P0| + |Q0|) reach. */
typedef struct { ALIGNED double p[TILE], q[TILE], p_low[TILE], q_low[TILE], fixed[TILE], least[TILE]; } first_row_t;

INLINE void first_row(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t tile, dtype_t dtype,
                      first_row_t *first) {
    const V smallest_normal = v_set(dtype == FLOAT16 ? 0x1p-14 : 0x1p-126);
    const V absolute = v_mul(v_abs(v_set(spec->scale)), v_set(DIRECT_ERROR));
    for (int v = 0; v < VECTORS; v++) {
        const ptrdiff_t column = tile * TILE + v * W;
        VV p = {v_set(0), v_set(0)}, q = p;
        if (dtype == FLOAT64) anchor_pair(spec, position, column, &p, &q);
        else anchor_double(spec, position, column, &p.high, &q.high);
        const V ap = v_abs(p.high), aq = v_abs(q.high), turning = v_load(job->offsets.turning + column);
        v_store(first->p + v * W, p.high);
        v_store(first->q + v * W, q.high);
        v_store(first->p_low + v * W, p.low);
        v_store(first->q_low + v * W, q.low);
        v_store(first->fixed + v * W, v_muladd(v_add(ap, aq), v_load(job->offsets.reach + column), ap));
        v_store(first->least + v * W, v_mul(dtype == FLOAT64 ? absolute : smallest_normal, turning));
    }
}

INLINE void anchor_of(const job_t *job, const first_row_t *first, ptrdiff_t tile, int k, dtype_t dtype, anchor_t *a) {
    const quick_t quick = quick_of(dtype);
    const double *high = offsets_at(job->offsets.coarse, tile, COARSE, k);
    const double *low = offsets_at(job->offsets.coarse_low, tile, COARSE, k);
    for (int v = 0; v < VECTORS; v++) {
        const V c = v_load(high + v * W), s = v_load(high + TILE + v * W);
        const V p0 = v_load(first->p + v * W), q0 = v_load(first->q + v * W), least = v_load(first->least + v * W);
        const V magnitude = v_muladd(v_abs(q0), v_abs(s), v_load(first->fixed + v * W));
        if (dtype == FLOAT64) {
            const VV cc = {c, v_load(low + v * W)}, ss = {s, v_load(low + TILE + v * W)};
            const VV pp = pair_at(first->p, first->p_low, v), qq = pair_at(first->q, first->q_low, v);
            const VV p = dd_product_sum(pp, cc, qq, ss), q = dd_product_sum(qq, cc, dd_negated(pp), ss);
            v_store(a->p + v * W, p.high);
            v_store(a->q + v * W, q.high);
            v_store(a->p_low + v * W, p.low);
            v_store(a->q_low + v * W, q.low);
            v_store(a->error + v * W, v_muladd(magnitude, v_set(PAIR_ERROR), least));
        } else {
            v_store(a->p + v * W, v_muladd(p0, c, v_mul(q0, s)));
            v_store(a->q + v * W, v_sub(v_mul(q0, c), v_mul(p0, s)));
            u_store(a->addend + v * W, quick_addend(quick, v_muladd(magnitude, v_set(SMALLEST_SHARE), least)));
            v_store(a->error + v * W, v_mul(magnitude, v_set(DOUBLE_ERROR)));
        }
    }
}

/* A tile of a block: its first row is evaluated directly, its anchors are rotated from it, its rows from them. */
INLINE void even_tile(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t count,
                      ptrdiff_t tile, dtype_t dtype, tally_t *tally) {
    fine_rows_t *const fine_rows = FINE_ROWS[job->delivery][dtype];
    first_row_t first;
    anchor_t a;
    patch_t patch = {.column = tile * TILE};
    patch.width = (int)(spec->d_model - patch.column < TILE ? spec->d_model - patch.column : TILE);
    patch.fine = offsets_at(job->offsets.fine, tile, FINE, 0);
    patch.fine_low = offsets_at(job->offsets.fine_low, tile, FINE, 0);
    first_row(spec, job, position, tile, dtype, &first);
    for (int k = 0; k * FINE < count; k++) {
        anchor_of(job, &first, tile, k, dtype, &a);
        patch.row = row + (ptrdiff_t)k * FINE;
        patch.rows = (int)(row + count - patch.row < FINE ? row + count - patch.row : FINE);
        patch.out = job->out + patch.row * job->row_stride + patch.column * (ptrdiff_t)size_of(dtype);
        for (int r = 0; (r = fine_rows(job, &a, &patch, r)) < patch.rows; r++)
            doubtful_row(spec, job, &a, &patch, r, patch.out + r * job->row_stride, tally);
    }
}

#define CASE(T) \
    NOINLINE void even_tile_##T(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, \
                                ptrdiff_t count, ptrdiff_t tile, tally_t *tally) { \
        even_tile(spec, job, position, row, count, tile, T, tally); \
    }
CASE(FLOAT64) CASE(FLOAT32) CASE(FLOAT16) CASE(BFLOAT16)
#undef CASE
typedef void even_tile_t(const spec_t *, const job_t *, const position_t *, ptrdiff_t, ptrdiff_t, ptrdiff_t, tally_t *);
static even_tile_t *const EVEN_TILE[4] = {
    [FLOAT64] = even_tile_FLOAT64, [FLOAT32] = even_tile_FLOAT32, [FLOAT16] = even_tile_FLOAT16, [BFLOAT16] = even_tile_BFLOAT16};

/* ---- rows on their own ----------------------------------------------------------------------------------------------- */

INLINE void single_tile(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t column,
                        dtype_t dtype, delivery_t delivery, tally_t *tally) {
    const int width = (int)(spec->d_model - column < TILE ? spec->d_model - column : TILE);
    const quick_t quick = quick_of(dtype);
    const V amplitude = v_abs(v_set(spec->scale));
    char *out = job->out + row * job->row_stride + column * (ptrdiff_t)size_of(dtype);
    V value[VECTORS];
    M doubt = m_none();
    row_t t;
    for (int v = 0; v < VECTORS; v++) {
        VV p = {v_set(0), v_set(0)}, q;
        V error;
        if (dtype == FLOAT64) {
            anchor_pair(spec, position, column + v * W, &p, &q);
            error = v_muladd(v_abs(p.high), v_set(PAIR_ERROR), v_mul(amplitude, v_set(DIRECT_ERROR)));
            value[v] = v_add(p.high, v_sub(p.low, error));
            doubt = m_or_unequal(doubt, value[v], v_add(p.high, v_add(p.low, error)));
        } else {
            /* |value| >= 2**-40 of the amplitude: the error is below 2**-49 of it, a few units of its last place */
            const V smallest = v_muladd(amplitude, v_set(0x1p-40), v_set(dtype == FLOAT16 ? 0x1p-14 : 0x1p-126));
            anchor_double(spec, position, column + v * W, &p.high, &q.high);
            error = v_muladd(v_abs(p.high), v_set(DIRECT_DOUBLE_ERROR), v_mul(amplitude, v_set(0x1p-89)));
            value[v] = p.high;
            doubt = quick_doubt(doubt, quick, value[v], quick_addend(quick, smallest));
        }
        v_store(t.high + v * W, p.high);
        v_store(t.low + v * W, p.low);
        v_store(t.error + v * W, error);
    }
    if (UNLIKELY(m_any(doubt))) deliver_settled(spec, job, row, column, width, out, &t, tally);
    else deliver(job, out, value, width, dtype, delivery);
}

/* A row beyond the fast path, or of a position that is not finite. */
NOINLINE void exact_row(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, tally_t *tally) {
    const double nan = double_of_bits(0x7ff8000000000000u), infinity = double_of_bits((uint64_t)0x7ff << 52);
    for (ptrdiff_t column = 0; column < spec->d_model; column += TILE) {
        const int width = (int)(spec->d_model - column < TILE ? spec->d_model - column : TILE);
        row_t t = {.low = {0}};
        for (int i = 0; i < TILE; i++) {
            t.high[i] = position->finite ? 0 : nan;
            t.error[i] = position->finite ? infinity : 0;
        }
        deliver_settled(spec, job, row, column, width, job->out + row * job->row_stride + column * (ptrdiff_t)size_of(job->dtype),
                        &t, tally);
    }
}

/* ---- the entries of the table ------------------------------------------------------------------------------------------ */

static int is_fast(const spec_t *spec, const position_t *position) {
    return spec->fast && position->finite && position->limbs <= FAST_POSITION_LIMBS;
}

static void scattered_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, tally_t *tally) {
    const environment_t host = environment_enter();
    for (ptrdiff_t row = first; row < first + count; row++) {
        const position_t position = position_of(spec, job, row);
        if (!is_fast(spec, &position)) {
            exact_row(spec, job, &position, row, tally);
            continue;
        }
#define CASE(T, D, PRECISION) \
        if (job->dtype == T && job->delivery == D) \
            for (ptrdiff_t column = 0; column < spec->d_model; column += TILE) \
                single_tile(spec, job, &position, row, column, T, D, tally);
        EVERY_CASE(CASE)
#undef CASE
    }
    if (job->delivery == STREAM) stream_fence();
    environment_leave(host);
}

static void even_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, tally_t *tally) {
    const position_t position = position_of(spec, job, first);
    const ptrdiff_t tiles = spec->columns / TILE;
    if (!is_fast(spec, &position)) {
        scattered_rows(spec, job, first, count, tally);
        return;
    }
    const environment_t host = environment_enter();
    for (ptrdiff_t tile = 0; tile < tiles; tile++) EVEN_TILE[job->dtype](spec, job, &position, first, count, tile, tally);
    if (job->delivery == STREAM) stream_fence();
    environment_leave(host);
}

static void tabulate_rows(const spec_t *spec, uint64_t step, double *high, double *low, ptrdiff_t tile, int rows) {
    for (int r = 0; r < rows; r++) {
        const position_t position = position_from_integer((uint64_t)r * step, 0);
        const ptrdiff_t at = (tile * rows + r) * 2 * TILE;
        for (int v = 0; v < VECTORS; v++) {
            VV s, c;
            direct(spec, &position, tile * TILE + v * W, 0, &s, &c);
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
    for (ptrdiff_t i = 0; i + W <= count; i += W) v_stream(out + i, x);
    stream_fence();
}

const kernel_t JOIN(posenc_kernel, ISA) = {STRING(ISA), RUNS_HERE, tabulate, even_rows, scattered_rows, fill};

#endif
