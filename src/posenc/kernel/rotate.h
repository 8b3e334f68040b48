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
#include "exact.h"
#include "environment.h"

enum { VECTORS = TILE / W };

#define DOUBLE_ERROR 0x1p-50
#define PAIR_ERROR 0x1p-94
#define DIRECT_ERROR 0x1p-112           /* of the full amplitude, where the phase is tiny */
#define SMALLEST_SHARE 0x1p-12          /* of M that a value may be before it is in doubt */

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define INLINE static inline
#define NOINLINE static
#define UNLIKELY(x) (x)
#endif

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
    const U threshold = u_shl(u_shr(u_shr(u_bits(smallest), 32), q.shift), 32);
    return u_add(u_sub(u_set((uint64_t)1 << (62 - q.shift)), threshold), u_set(q.near_half));
}

INLINE M quick_doubt(M doubt, quick_t q, V value, U addend) {
    const U mask = u_set((uint64_t)1 << (62 - q.shift) | q.low_mask);
    return m_or_zero(doubt, u_add(q.shift ? u_shr(u_bits(value), q.shift) : u_bits(value), addend), mask);
}

/* ---- settling what is in doubt --------------------------------------------------------------------------------------- */

NOINLINE void settle(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, row_t *values,
                     tally_t *tally) {
    const dtype_t dtype = job->dtype;
    position_t position;
    int known = 0;
    for (int i = 0; i < width; i++) {
        const double high = values->high[i], low = values->low[i], error = values->error[i];
        const double below = round_to(dtype, high + (low - error)), above = round_to(dtype, high + (low + error));
        tally->doubted++;
        if (bits_of_double(below) == bits_of_double(above)) {
            values->high[i] = below;
            continue;
        }
        if (!known) position = position_of(spec, job, row);
        known = 1;
        tally->exact++;
        values->high[i] = posenc_exact(spec, &position, column + i, dtype);
    }
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
    settle(spec, job, row, column, width, values, tally);
    V settled[VECTORS];
    for (int v = 0; v < VECTORS; v++) settled[v] = v_load(values->high + v * W);
#define CASE(T) case T: if (job->delivery == ADD) deliver(job, out, settled, width, T, ADD); \
                        else deliver(job, out, settled, width, T, STORE); break;
    switch (job->dtype) { CASE(FLOAT64) CASE(FLOAT32) CASE(FLOAT16) CASE(BFLOAT16) }
#undef CASE
}

/* ---- anchors --------------------------------------------------------------------------------------------------------- */

/* The first row of a block, or a row of its own: its columns' value and the value a quarter turn ahead, scaled.
 * Adding 0 turns -0 into 0. */
INLINE void anchor(const spec_t *spec, const position_t *position, ptrdiff_t column, VV *p, VV *q) {
    const V scale = v_set(spec->scale), zero = v_set(0);
    direct(spec, position, column, 1, p, q);
    *p = dd_scaled(*p, scale);
    *q = dd_scaled(*q, scale);
    p->high = v_add(p->high, zero);
}

INLINE V v_abs(V a) { return v_bits(u_and(u_bits(a), u_set(0x7fffffffffffffffu))); }

/* x where gate is not 0, else 0: the values of a zero column are exact, their magnitude is 0. */
INLINE V v_where_nonzero(V gate, V x) {
    const U one = u_shr(u_add(u_and(u_bits(gate), u_set(INT64_MAX)), u_set(INT64_MAX)), 63);
    return v_bits(u_and(u_sub(u_set(0), one), u_bits(x)));
}

INLINE const double *offsets_at(const double *table, ptrdiff_t tile, int rows, int row) {
    return table + (tile * rows + row) * 2 * TILE;
}

/* ---- evenly spaced rows ---------------------------------------------------------------------------------------------- */

INLINE void even_tile_double(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t first,
                             ptrdiff_t count, ptrdiff_t tile, dtype_t dtype, delivery_t delivery, tally_t *tally) {
    const ptrdiff_t column = tile * TILE;
    const int width = (int)(spec->d_model - column < TILE ? spec->d_model - column : TILE);
    const quick_t quick = quick_of(dtype);
    const V smallest_normal = v_set(dtype == FLOAT16 ? 0x1p-14 : 0x1p-126);
    V p0[VECTORS], q0[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        VV p, q;
        anchor(spec, position, column + v * W, &p, &q);
        p0[v] = p.high;
        q0[v] = q.high;
    }
    for (int k = 0; k * FINE < count; k++) {
        const double *coarse = offsets_at(job->offsets.coarse, tile, COARSE, k);
        V p[VECTORS], q[VECTORS], magnitude[VECTORS];
        U addend[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            const V c = v_load(coarse + v * W), s = v_load(coarse + TILE + v * W);
            const V reach = v_load(job->offsets.reach + column + v * W);
            const V ap = v_abs(p0[v]), aq = v_abs(q0[v]), as = v_abs(s);
            p[v] = v_muladd(p0[v], c, v_mul(q0[v], s));
            q[v] = v_sub(v_mul(q0[v], c), v_mul(p0[v], s));
            magnitude[v] = v_add(v_muladd(aq, as, ap), v_mul(v_muladd(ap, as, aq), reach));
            addend[v] = quick_addend(quick, v_where_nonzero(magnitude[v],
                                                            v_muladd(magnitude[v], v_set(SMALLEST_SHARE), smallest_normal)));
        }
        const ptrdiff_t row = first + (ptrdiff_t)k * FINE;
        const int rows = (int)(first + count - row < FINE ? first + count - row : FINE);
        char *out = job->out + row * job->row_stride + column * (ptrdiff_t)size_of(dtype);
        const double *fine = offsets_at(job->offsets.fine, tile, FINE, 0);
        for (int r = 0; r < rows; r++, fine += 2 * TILE, out += job->row_stride) {
            V value[VECTORS];
            M doubt = m_none();
            for (int v = 0; v < VECTORS; v++) {
                value[v] = v_muladd(p[v], v_load(fine + v * W), v_mul(q[v], v_load(fine + TILE + v * W)));
                doubt = quick_doubt(doubt, quick, value[v], addend[v]);
            }
            if (UNLIKELY(m_any(doubt))) {
                row_t t = {.low = {0}};
                for (int v = 0; v < VECTORS; v++) {
                    v_store(t.high + v * W, value[v]);
                    v_store(t.error + v * W, v_mul(magnitude[v], v_set(DOUBLE_ERROR)));
                }
                deliver_settled(spec, job, row + r, column, width, out, &t, tally);
            } else {
                deliver(job, out, value, width, dtype, delivery);
            }
        }
    }
}

INLINE void even_tile_pair(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t first,
                           ptrdiff_t count, ptrdiff_t tile, delivery_t delivery, tally_t *tally) {
    const ptrdiff_t column = tile * TILE;
    const int width = (int)(spec->d_model - column < TILE ? spec->d_model - column : TILE);
    const V absolute = v_mul(v_abs(v_set(spec->scale)), v_set(DIRECT_ERROR));
    VV p0[VECTORS], q0[VECTORS];
    for (int v = 0; v < VECTORS; v++) anchor(spec, position, column + v * W, &p0[v], &q0[v]);
    for (int k = 0; k * FINE < count; k++) {
        const double *high = offsets_at(job->offsets.coarse, tile, COARSE, k);
        const double *low = offsets_at(job->offsets.coarse_low, tile, COARSE, k);
        VV p[VECTORS], q[VECTORS];
        V error[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            const VV c = {v_load(high + v * W), v_load(low + v * W)};
            const VV s = {v_load(high + TILE + v * W), v_load(low + TILE + v * W)};
            const V reach = v_load(job->offsets.reach + column + v * W);
            const V ap = v_abs(p0[v].high), aq = v_abs(q0[v].high), as = v_abs(s.high);
            p[v] = dd_product_sum(p0[v], c, q0[v], s);
            q[v] = dd_product_sum(q0[v], c, dd_negated(p0[v]), s);
            const V magnitude = v_add(v_muladd(aq, as, ap), v_mul(v_muladd(ap, as, aq), reach));
            error[v] = v_where_nonzero(magnitude, v_muladd(magnitude, v_set(PAIR_ERROR), absolute));
        }
        const ptrdiff_t row = first + (ptrdiff_t)k * FINE;
        const int rows = (int)(first + count - row < FINE ? first + count - row : FINE);
        char *out = job->out + row * job->row_stride + column * (ptrdiff_t)sizeof(double);
        high = offsets_at(job->offsets.fine, tile, FINE, 0);
        low = offsets_at(job->offsets.fine_low, tile, FINE, 0);
        for (int r = 0; r < rows; r++, high += 2 * TILE, low += 2 * TILE, out += job->row_stride) {
            V value[VECTORS], rest[VECTORS];
            M doubt = m_none();
            for (int v = 0; v < VECTORS; v++) {
                const VV c = {v_load(high + v * W), v_load(low + v * W)};
                const VV s = {v_load(high + TILE + v * W), v_load(low + TILE + v * W)};
                const VV a = two_product(p[v].high, c.high), b = two_product(q[v].high, s.high);
                const VV sum = two_sum(a.high, b.high);
                const V cross = v_muladd(p[v].high, c.low, v_muladd(p[v].low, c.high,
                                v_muladd(q[v].high, s.low, v_mul(q[v].low, s.high))));
                rest[v] = v_add(sum.low, v_add(v_add(a.low, b.low), cross));
                value[v] = v_add(sum.high, v_sub(rest[v], error[v]));
                doubt = m_or_unequal(doubt, value[v], v_add(sum.high, v_add(rest[v], error[v])));
                rest[v] = v_add(v_sub(sum.high, value[v]), rest[v]);
            }
            if (UNLIKELY(m_any(doubt))) {
                row_t t;
                for (int v = 0; v < VECTORS; v++) {
                    v_store(t.high + v * W, value[v]);
                    v_store(t.low + v * W, rest[v]);
                    v_store(t.error + v * W, error[v]);
                }
                deliver_settled(spec, job, row + r, column, width, out, &t, tally);
            } else {
                deliver(job, out, value, width, FLOAT64, delivery);
            }
        }
    }
}

/* ---- rows on their own ----------------------------------------------------------------------------------------------- */

INLINE void single_tile(const spec_t *spec, const job_t *job, const position_t *position, ptrdiff_t row, ptrdiff_t column,
                        dtype_t dtype, delivery_t delivery, tally_t *tally) {
    const int width = (int)(spec->d_model - column < TILE ? spec->d_model - column : TILE);
    const quick_t quick = quick_of(dtype);
    const V absolute = v_mul(v_abs(v_set(spec->scale)), v_set(DIRECT_ERROR));
    const V smallest = v_muladd(absolute, v_set(0x1p50), v_set(dtype == FLOAT16 ? 0x1p-14 : 0x1p-126));
    const U addend = quick_addend(quick, smallest);
    char *out = job->out + row * job->row_stride + column * (ptrdiff_t)size_of(dtype);
    V value[VECTORS];
    M doubt = m_none();
    row_t t;
    for (int v = 0; v < VECTORS; v++) {
        VV p, q;
        anchor(spec, position, column + v * W, &p, &q);
        const V error = v_muladd(v_abs(p.high), v_set(PAIR_ERROR), absolute);
        value[v] = p.high;
        if (dtype == FLOAT64) {
            value[v] = v_add(p.high, v_sub(p.low, error));
            doubt = m_or_unequal(doubt, value[v], v_add(p.high, v_add(p.low, error)));
        } else {
            doubt = quick_doubt(doubt, quick, value[v], addend);
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

#define EVERY_CASE(CASE) \
    CASE(FLOAT64, STORE) CASE(FLOAT64, STREAM) CASE(FLOAT64, ADD) CASE(FLOAT32, STORE) CASE(FLOAT32, STREAM) CASE(FLOAT32, ADD) \
    CASE(FLOAT16, STORE) CASE(FLOAT16, ADD) CASE(BFLOAT16, STORE) CASE(BFLOAT16, ADD)

static void scattered_rows(const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count, tally_t *tally) {
    const environment_t host = environment_enter();
    for (ptrdiff_t row = first; row < first + count; row++) {
        const position_t position = position_of(spec, job, row);
        if (!is_fast(spec, &position)) {
            exact_row(spec, job, &position, row, tally);
            continue;
        }
#define CASE(T, D) \
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
#define CASE(T, D) \
    if (job->dtype == T && job->delivery == D) \
        for (ptrdiff_t tile = 0; tile < tiles; tile++) \
            if (T == FLOAT64) even_tile_pair(spec, job, &position, first, count, tile, D, tally); \
            else even_tile_double(spec, job, &position, first, count, tile, T, D, tally);
    EVERY_CASE(CASE)
#undef CASE
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
            uint32_t turning = 0;
            const double *fine = offsets_at(offsets->fine, tile, FINE, 0) + TILE + column % TILE;
            for (int r = 0; r < FINE; r++, fine += 2 * TILE)
                if (*fine > reach || -*fine > reach) reach = *fine < 0 ? -*fine : *fine;
            for (int i = 0; i < spec->integer_limbs + spec->fraction_limbs; i++) turning |= spec->turns[i * spec->columns + column];
            offsets->reach[column] = reach + (turning ? 0x1p-60 : 0);
        }
    }
    environment_leave(host);
}

const kernel_t JOIN(posenc_kernel, ISA) = {STRING(ISA), RUNS_HERE, tabulate, even_rows, scattered_rows};

#endif
