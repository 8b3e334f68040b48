/* Delivery of a row of a tile: the quick test, the settling of what it doubts, rounding, storing, adding.
 *
 * Rounding test.  If value - error and value + error round to the same number, so does the true value between them.
 * float64 values, in double-double, are tested just so (rotate.h).  For the others a cheaper test goes first: only a value
 * whose dropped bits lie next to a half-way point is in doubt, or one so small that its error is no longer small beside it.
 */
#ifndef POSENC_DELIVER_H
#define POSENC_DELIVER_H

#include "exact.h"
#include "position.h"

enum { TILE_VECTORS = TILE / W };

typedef struct {
    double high[TILE], low[TILE], error[TILE];
} row_t;

INLINE size_t size_of(dtype_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }
INLINE int smaller(ptrdiff_t a, ptrdiff_t b) { return (int)(a < b ? a : b); }

/* ---- the quick test ------------------------------------------------------------------------------------------------ */

/* Of the size M of the products that a value is made of: below this share of M it is in doubt.  float32: the error stays
 * below 2**16 units of the double's last place.  The halves: it stays far below half a unit of a float's last place. */
INLINE double smallest_share(dtype_t dtype) { return dtype == FLOAT32 ? 0x1p-12 : 0x1p-20; }

/* Below it a value may be subnormal in dtype, where other bits are dropped. */
INLINE double smallest_normal(dtype_t dtype) { return dtype == FLOAT16 ? 0x1p-14 : 0x1p-126; }

/* What all is well with: lanes of doubles, in halves of 32 bits, or of floats, in halves of 16 bits. */
typedef struct {
    M doubles;
    N floats;
} good_t;

INLINE good_t good_all(void) { return (good_t){m_all(), n_all()}; }
INLINE int good_is_all(good_t good, dtype_t dtype) {
    return dtype == FLOAT16 || dtype == BFLOAT16 ? n_is_all(good.floats) : m_is_all(good.doubles);
}

/* The test looks at the lower and at the upper half of a lane after one addition.  The lower half is then zero, under the
 * mask, next to a half-way point: within 2**16 units of the double's 29 dropped bits, or at that point itself for a half,
 * of which the float that is to be converted is a value rounded without crossing it.  In the upper half bit 62 or 30 tells
 * whether |value| >= smallest; a carry from below moves that limit by less than a share of 2**-7. */
#define UPPER_64 ((uint64_t)1 << 62)
#define UPPER_32 ((uint32_t)1 << 30)

INLINE uint32_t near_half(dtype_t dtype) { return dtype == FLOAT32 ? 0x10010000u : dtype == FLOAT16 ? 0x1000u : 0x8000u; }

/* The addends of a tile's columns, 64 or 32 bits each, from the columns' smallest undoubted values. */
INLINE void quick_addends(const double smallest[TILE], uint64_t addend[TILE], dtype_t dtype) {
    if (dtype == FLOAT32) {
        for (int i = 0; i < TILE; i++)
            addend[i] = (UPPER_64 | near_half(dtype)) - (bits_of_double(smallest[i]) & 0xffffffff00000000u);
    } else {
        uint32_t *narrow = (uint32_t *)(void *)addend;
        for (int i = 0; i < TILE; i++)
            narrow[i] = (UPPER_32 | near_half(dtype)) - (bits_of_float((float)smallest[i]) & 0xffff0000u);
    }
}

/* Tests vectors v and v + 1 of a tile's values, which are rounded to floats f. */
INLINE good_t quick_test(good_t good, V a, V b, F f, const U addend[TILE_VECTORS], int v, dtype_t dtype) {
    if (dtype == FLOAT32) {
        const U mask = u_set(UPPER_64 | 0x1ffe0000u);
        good.doubles = m_and_nonzero(good.doubles, u_add(u_bits(a), addend[v]), mask);
        good.doubles = m_and_nonzero(good.doubles, u_add(u_bits(b), addend[v + 1]), mask);
    } else {
        good.floats = n_and_nonzero(good.floats, f, addend[v / 2], UPPER_32 | (dtype == FLOAT16 ? 0x1fffu : 0xffffu));
    }
    return good;
}

/* The test with each value's own error bound, in vectors: zero where value - error and value + error round to the same
 * number, which is not subnormal in dtype and becomes the value.  Rounded half away from zero: no value but an exact one lies
 * on a half-way point. */
INLINE U unsettled(V *value, V error, dtype_t dtype) {
    const format_t format = format_of(dtype);
    const int drop = 53 - format.precision;
    const U half = u_set((uint64_t)1 << (drop - 1)), normal = u_set(bits_of_double(smallest_normal(dtype)));
    const U below = u_shr(u_add(u_bits(v_sub(*value, error)), half), drop);
    const U above = u_shr(u_add(u_bits(v_add(*value, error)), half), drop);
    const U subnormal = u_shr(u_sub(u_and(u_bits(*value), u_set(INT64_MAX)), normal), 63);
    *value = v_bits(u_shl(below, drop));
    return u_or(u_xor(below, above), subnormal);
}

/* ---- settling what is in doubt --------------------------------------------------------------------------------------- */

/* Rounds the values of a row, each by its own error bound; what that leaves open is evaluated exactly. */
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

/* Stores 4 W values that are rounded to floats. */
INLINE void put(char *out, const F f[2], dtype_t dtype, int stream) {
    switch (dtype) {
    case FLOAT32:
        f_put((float *)(void *)out, f[0], stream);
        f_put((float *)(void *)out + 2 * W, f[1], stream);
        break;
    case FLOAT16: h_put((uint16_t *)(void *)out, f[0], f[1], stream); break;
    default: b_put((uint16_t *)(void *)out, f[0], f[1], stream); break;
    }
}

INLINE void sixteen_load(float f[TILE], const uint16_t p[TILE], dtype_t dtype) {
    if (dtype == FLOAT16) h_load(f, p);
    else
        for (int i = 0; i < TILE; i++) f[i] = float_of_bfloat(p[i]);
}
INLINE void sixteen_store(uint16_t p[TILE], const float f[TILE], dtype_t dtype) {
    if (dtype == FLOAT16) h_store(p, f);
    else
        for (int i = 0; i < TILE; i++) p[i] = bfloat_of_float(f[i]);
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
        for (; width > 0; x += TILE, value += TILE, width -= TILE) {
            uint16_t some[2][TILE], product[TILE];
            const size_t bytes = (size_t)smaller(width, TILE) * sizeof *x;
            if (width < TILE) {
                memset(some, 0, sizeof some);
                memcpy(some[0], x, bytes);
                memcpy(some[1], value, bytes);
            }
            uint16_t *const to = width < TILE ? some[0] : x;
            float a[TILE], b[TILE];
            sixteen_load(a, to, dtype);
            sixteen_load(b, width < TILE ? some[1] : value, dtype);
            for (int i = 0; i < TILE; i++) a[i] *= (float)x_scale;
            sixteen_store(product, a, dtype);
            sixteen_load(a, product, dtype);
            for (int i = 0; i < TILE; i++) a[i] += b[i];
            sixteen_store(to, a, dtype);
            if (width < TILE) memcpy(x, to, bytes);
        }
    }
}

/* The same for any dtype, to all of a batch. */
NOINLINE void add_to_batch(const job_t *job, char *out, const char *t, ptrdiff_t width) {
    for (ptrdiff_t b = 0; b < job->batch; b++, out += job->batch_stride) {
#define CASE(T) \
    case T: add(out, t, width, T, job->x_scale); break;
        switch (job->dtype) {
            CASE(FLOAT64)
            CASE(FLOAT32)
            CASE(FLOAT16)
            CASE(BFLOAT16)
        }
#undef CASE
    }
}

/* Writes or adds the `width` columns of a row that there are, rounded at t. */
INLINE void deliver(const job_t *job, char *out, const char *t, int width) {
    if (job->delivery == ADD) add_to_batch(job, out, t, width);
    else memcpy(out, t, (size_t)width * size_of(job->dtype));
}

/* put_row: rounded to floats.  A `whole` row has all columns of a tile.  ADD: there is no batch. */
INLINE void put_row(const job_t *job, char *out, const F f[TILE_VECTORS / 2], int width, int whole, dtype_t dtype,
                    delivery_t delivery) {
    const int straight = whole && delivery != ADD;
    ALIGNED char t[TILE * sizeof(float)];
    for (int v = 0; v < TILE_VECTORS; v += 4)
        put((straight ? out : t) + (size_t)(v * W) * size_of(dtype), f + v / 2, dtype, straight && delivery == STREAM);
    if (straight) return;
    if (delivery == ADD) add(out, t, width, dtype, job->x_scale);
    else deliver(job, out, t, width);
}

INLINE void put_wide_row(const job_t *job, char *out, const V value[TILE_VECTORS], int width, int whole, delivery_t delivery) {
    const int straight = whole && delivery != ADD;
    ALIGNED double t[TILE];
    for (int v = 0; v < TILE_VECTORS; v++)
        v_put((straight ? (double *)(void *)out : t) + v * W, value[v], straight && delivery == STREAM);
    if (straight) return;
    if (delivery == ADD) add(out, (const char *)t, width, FLOAT64, job->x_scale);
    else deliver(job, out, (const char *)t, width);
}

/* The same for values that dtype holds or that its conversion rounds. */
INLINE void put_values(const job_t *job, char *out, const V value[TILE_VECTORS], int width, int whole, dtype_t dtype) {
    if (dtype == FLOAT64) {
        put_wide_row(job, out, value, width, whole, STORE);
        return;
    }
    F f[TILE_VECTORS / 2];
    for (int v = 0; v < TILE_VECTORS; v += 2) f[v / 2] = f_pair(value[v], value[v + 1]);
    put_row(job, out, f, width, whole, dtype, STORE);
}

/* Settles and delivers a row that is in doubt. */
COLD void deliver_settled(const spec_t *spec, const job_t *job, ptrdiff_t row, ptrdiff_t column, int width, char *out,
                          row_t *values, tally_t *tally) {
    V settled[TILE_VECTORS];
#define CASE(T) \
    case T: \
        settle(spec, job, row, column, width, values, T, tally); \
        for (int v = 0; v < TILE_VECTORS; v++) settled[v] = v_load(values->high + v * W); \
        put_values(job, out, settled, width, 0, T); \
        break;
    switch (job->dtype) {
        CASE(FLOAT64)
        CASE(FLOAT32)
        CASE(FLOAT16)
        CASE(BFLOAT16)
    }
#undef CASE
}

#endif
