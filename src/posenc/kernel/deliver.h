/* Delivery of a row of a group of columns: the quick test, the settling of what it doubts, rounding, storing, adding.
 *
 * Rounding test.  If value - error and value + error round to the same number, so does the true value between them.
 * float64 values, in double-double, are tested just so (rotate.h).  For the others a cheaper test goes first: with
 * |value| >= 2**-12 M the error is below 2**16 units of the double's last place, so only values whose dropped bits lie
 * within 2**16 units of a half-way point are in doubt.
 */
#ifndef POSENC_DELIVER_H
#define POSENC_DELIVER_H

#include "exact.h"
#include "position.h"

/* The largest group of columns handled at once. */
enum { WIDEST = TILE };

typedef struct { double high[WIDEST], low[WIDEST], error[WIDEST]; } row_t;

INLINE size_t size_of(dtype_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }
INLINE int smaller(ptrdiff_t a, ptrdiff_t b) { return (int)(a < b ? a : b); }

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

INLINE M quick_test(M good, quick_t q, V value, U addend) {
    const U mask = u_set((uint64_t)1 << (62 - q.shift) | q.low_mask);
    return m_and_nonzero(good, u_add(q.shift ? u_shr(u_bits(value), q.shift) : u_bits(value), addend), mask);
}

/* The test with each value's own error bound, in vectors: true if all are settled, and then rounded to dtype. */
INLINE int settled_vectors(V *value, const double *error, int vectors, dtype_t dtype) {
    const format_t format = format_of(dtype);
    const int drop = 53 - format.precision;
    const U half = u_set((uint64_t)1 << (drop - 1)), normal = u_set(bits_of_double(power_of_two(format.min_exponent)));
    U open = u_set(0);
    for (int v = 0; v < vectors; v++) {
        /* Rounded half away from zero: no value but an exact one lies on a half-way point. */
        const V e = v_load(error + v * W);
        const U below = u_shr(u_add(u_bits(v_sub(value[v], e)), half), drop);
        const U above = u_shr(u_add(u_bits(v_add(value[v], e)), half), drop);
        const U subnormal = u_shr(u_sub(u_and(u_bits(value[v]), u_set(INT64_MAX)), normal), 63);
        open = u_or(open, u_or(u_xor(below, above), subnormal));
        value[v] = v_bits(u_shl(below, drop));
    }
    return u_is_zero(open);
}

/* ---- settling what is in doubt --------------------------------------------------------------------------------------- */

/* Rounds the values of a row, each by its own error bound; what that leaves open is evaluated directly. */
INLINE void settle(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, row_t *values,
                   dtype_t dtype, tally_t *tally) {
    const format_t format = format_of(dtype);
    const int drop = 53 - format.precision;
    const uint64_t half = drop ? (uint64_t)1 << (drop - 1) : 0, normal = bits_of_double(power_of_two(format.min_exponent));
    uint64_t open[WIDEST], any = 0;
    double rounded[WIDEST];
    for (int i = 0; i < WIDEST; i++) {
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
            rounded[i] = job->trust ? round_to(dtype, high + low) : below;
            if (job->trust || bits_of_double(below) == bits_of_double(above)) continue;
            if (!known) position = position_of(spec, job, row);
            known = 1;
            tally->exact++;
            rounded[i] = posenc_exact(spec, &position, column + i, dtype);
        }
    }
    memcpy(values->high, rounded, sizeof rounded);
}

/* ---- storing and adding ------------------------------------------------------------------------------------------------ */

/* Stores `vectors` vectors of values that are rounded by the conversion. */
INLINE void put(char *out, const V *value, int vectors, dtype_t dtype, int stream) {
    for (int v = 0; v < vectors; v += 2) {
        char *p = out + (size_t)(v * W) * size_of(dtype);
        switch (dtype) {
        case FLOAT64:
            v_put((double *)(void *)p, value[v], stream);
            v_put((double *)(void *)p + W, value[v + 1], stream);
            break;
        case FLOAT32: f_put((float *)(void *)p, value[v], value[v + 1], stream); break;
        case FLOAT16: h_put((uint16_t *)(void *)p, value[v], value[v + 1], stream); break;
        case BFLOAT16: b_put((uint16_t *)(void *)p, value[v], value[v + 1], stream); break;
        }
    }
}

INLINE void sixteen_load(float *f, const uint16_t *p, int n, dtype_t dtype) {
    if (dtype == FLOAT16) h_load(f, p, n);
    else for (int i = 0; i < n; i++) f[i] = float_of_bfloat(p[i]);
}
INLINE void sixteen_store(uint16_t *p, const float *f, int n, dtype_t dtype) {
    if (dtype == FLOAT16) h_store(p, f, n);
    else for (int i = 0; i < n; i++) p[i] = bfloat_of_float(f[i]);
}

/* x * x_scale + t, product and sum rounded to dtype.  In float for the halves: products of two 11-bit (8-bit) numbers are
 * exact there, and its 24 >= 2 * 11 + 2 bits round a sum innocuously. */
INLINE void add(char *out, const char *t, ptrdiff_t width, dtype_t dtype, double x_scale) {
    if (dtype == FLOAT64) {
        double *x = (double *)(void *)out;
        const double *value = (const double *)(const void *)t;
        for (ptrdiff_t i = 0; i < width; i++) x[i] = x[i] * x_scale + value[i];
    } else if (dtype == FLOAT32) {
        float *x = (float *)(void *)out;
        const float *value = (const float *)(const void *)t;
        for (ptrdiff_t i = 0; i < width; i++) x[i] = x[i] * (float)x_scale + value[i];
    } else {
        uint16_t *x = (uint16_t *)(void *)out;
        const uint16_t *value = (const uint16_t *)(const void *)t;
        for (; width > 0; x += WIDEST, value += WIDEST, width -= WIDEST) {
            const int n = smaller(width, WIDEST);
            float a[WIDEST], b[WIDEST];
            uint16_t product[WIDEST];
            sixteen_load(a, x, n, dtype);
            sixteen_load(b, value, n, dtype);
            for (int i = 0; i < n; i++) a[i] *= (float)x_scale;
            sixteen_store(product, a, n, dtype);
            sixteen_load(a, product, n, dtype);
            for (int i = 0; i < n; i++) a[i] += b[i];
            sixteen_store(x, a, n, dtype);
        }
    }
}

/* Adds whole vectors onto x: what `add` does, from registers. */
INLINE void add_vectors(char *out, const V *value, int vectors, dtype_t dtype, double x_scale) {
    if (dtype == FLOAT64) {
        for (int v = 0; v < vectors; v++) {
            double *x = (double *)(void *)out + v * W;
            v_put(x, v_add(v_mul(v_load(x), v_set(x_scale)), value[v]), 0);
        }
    } else {
        for (int v = 0; v < vectors; v += 2) f_add((float *)(void *)out + v * W, value[v], value[v + 1], (float)x_scale);
    }
}

/* Writes or adds a row of a group, of which `width` columns exist.  `vectors`, `whole` (every column exists), `dtype` and
 * `delivery` are constants where this is inlined. */
INLINE void deliver(const job_t *job, char *out, const V *value, int vectors, int whole, int width, dtype_t dtype,
                    delivery_t delivery) {
    const size_t size = size_of(dtype);
    if (whole && delivery != ADD) {
        /* past the caches by whole cache lines only */
        put(out, value, vectors, dtype, delivery == STREAM && (size_t)(vectors * W) * size >= 64);
        return;
    }
    if (whole && (dtype == FLOAT64 || dtype == FLOAT32)) {
        for (ptrdiff_t b = 0; b < job->batch; b++) add_vectors(out + b * job->batch_stride, value, vectors, dtype, job->x_scale);
        return;
    }
    ALIGNED char t[WIDEST * sizeof(double)];
    put(t, value, vectors, dtype, 0);
    if (delivery != ADD) memcpy(out, t, (size_t)width * size);
    else for (ptrdiff_t b = 0; b < job->batch; b++) add(out + b * job->batch_stride, t, width, dtype, job->x_scale);
}

/* Settles and delivers a row that is in doubt. */
NOINLINE void deliver_settled(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, char *out,
                              row_t *values, tally_t *tally) {
    enum { VECTORS = WIDEST / W };
    V settled[VECTORS];
#define CASE(T) \
    case T: \
        settle(spec, job, row, column, width, values, T, tally); \
        for (int v = 0; v < VECTORS; v++) settled[v] = v_load(values->high + v * W); \
        deliver(job, out, settled, VECTORS, 0, width, T, job->delivery == ADD ? ADD : STORE); \
        break;
    switch (job->dtype) { CASE(FLOAT64) CASE(FLOAT32) CASE(FLOAT16) CASE(BFLOAT16) }
#undef CASE
}

#endif
