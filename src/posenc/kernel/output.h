/* Rounded values to memory: stored, stored past the caches, or added. */
#ifndef POSENC_OUTPUT_H
#define POSENC_OUTPUT_H

#include "doubledouble.h"
#include "kernel.h"

enum { TILE_VECTORS = TILE / LANES };

#define EVERY_DTYPE(CASE) \
    CASE(FLOAT64) \
    CASE(FLOAT32) \
    CASE(FLOAT16) \
    CASE(BFLOAT16)

INLINE ptrdiff_t size_of(dtype_t dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }
INLINE int smaller(ptrdiff_t a, ptrdiff_t b) { return (int)(a < b ? a : b); }

/* ---- storing ------------------------------------------------------------------------------------------------------------- */

/* Stores 4 LANES values that are rounded to floats. */
INLINE void store(char *out, const vf32 f[2], dtype_t dtype, int stream) {
    switch (dtype) {
    case FLOAT32:
        f32_flush((float *)(void *)out, f[0], stream);
        f32_flush((float *)(void *)out + 2 * LANES, f[1], stream);
        break;
    case FLOAT16: f16_flush((uint16_t *)(void *)out, f[0], f[1], stream); break;
    default: bf16_flush((uint16_t *)(void *)out, f[0], f[1], stream); break;
    }
}

/* Copies by non-temporal stores of whole cache lines. */
INLINE void stream_bytes(char *out, const char *from, ptrdiff_t bytes) {
    ptrdiff_t at = (ptrdiff_t)(-(uintptr_t)out % LINE);
    if (at > bytes) at = bytes;
    memcpy(out, from, (size_t)at);
    for (; at + LINE <= bytes; at += LINE)
        for (int i = 0; i < LINE; i += (int)sizeof(vf64))
            f64_flush((double *)(void *)(out + at + i), f64_load((const double *)(const void *)(from + at + i)), 1);
    memcpy(out + at, from + at, (size_t)(bytes - at));
}

/* ---- adding -------------------------------------------------------------------------------------------------------------- */

INLINE void half_load_tile(float f[TILE], const uint16_t p[TILE], dtype_t dtype) {
    if (dtype == FLOAT16) f16_load_tile(f, p);
    else
        for (int i = 0; i < TILE; i++) f[i] = float_of_bfloat(p[i]);
}
INLINE void half_store_tile(uint16_t p[TILE], const float f[TILE], dtype_t dtype) {
    if (dtype == FLOAT16) f16_store_tile(p, f);
    else
        for (int i = 0; i < TILE; i++) p[i] = bfloat_of_float(f[i]);
}

/* Rows go by pieces, before which x is prefetched so many bytes ahead: past the ends of pages the hardware does not. */
enum { PIECE = 256, AHEAD = 2048 };
INLINE void prefetch_piece(const void *x) {
    for (int i = 0; i < PIECE; i += LINE) PREFETCH((const char *)x + AHEAD + i);
}

/* x * x_scale + t, product and sum rounded to dtype.  In float for the halves: products of two 11-bit (8-bit) numbers are
 * exact there, and its 24 >= 2 * 11 + 2 bits round a sum innocuously. */
INLINE void add(char *out, const char *t, ptrdiff_t width, dtype_t dtype, double x_scale) {
    if (dtype == FLOAT64) {
        double *x = (double *)(void *)out;
        const double *value = (const double *)(const void *)t;
        enum { COUNT = PIECE / (int)sizeof *x };
        for (; width >= COUNT; x += COUNT, value += COUNT, width -= COUNT) {
            prefetch_piece(x);
            for (int i = 0; i < COUNT; i++) x[i] = x[i] * x_scale + value[i];
        }
        for (ptrdiff_t i = 0; i < width; i++) x[i] = x[i] * x_scale + value[i];
    } else if (dtype == FLOAT32) {
        float *x = (float *)(void *)out;
        const float *value = (const float *)(const void *)t;
        enum { COUNT = PIECE / (int)sizeof *x };
        for (; width >= COUNT; x += COUNT, value += COUNT, width -= COUNT) {
            prefetch_piece(x);
            for (int i = 0; i < COUNT; i++) x[i] = x[i] * (float)x_scale + value[i];
        }
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
            half_load_tile(a, to, dtype);
            half_load_tile(b, width < TILE ? some[1] : value, dtype);
            for (int i = 0; i < TILE; i++) a[i] *= (float)x_scale;
            half_store_tile(product, a, dtype);
            half_load_tile(a, product, dtype);
            for (int i = 0; i < TILE; i++) a[i] += b[i];
            half_store_tile(to, a, dtype);
            if (width < TILE) memcpy(x, to, bytes);
        }
    }
}

/* The same to `batch` addresses. */
NOINLINE void add_to_batch(const job_t *job, char *out, const char *t, ptrdiff_t width, ptrdiff_t batch) {
    for (ptrdiff_t b = 0; b < batch; b++, out += job->batch_stride) {
#define CASE(T) \
    case T: add(out, t, width, T, job->x_scale); break;
        switch (job->dtype) { EVERY_DTYPE(CASE) }
#undef CASE
    }
}

/* ---- a row of a tile ------------------------------------------------------------------------------------------------------- */

/* Columns of a row that are rounded to floats.  ADD: there is no batch. */
INLINE void write_floats(const job_t *job, char *out, const vf32 f[TILE_VECTORS / 2], int columns, dtype_t dtype,
                         output_t output) {
    ALIGNED char t[TILE * sizeof(float)];
    for (int v = 0; v < columns / LANES; v += 4)
        store((output == ADD ? t : out) + v * LANES * size_of(dtype), f + v / 2, dtype, output == STREAM);
    if (output == ADD) add(out, t, columns, dtype, job->x_scale);
}

INLINE void write_doubles(const job_t *job, char *out, const vf64 value[TILE_VECTORS], int columns, output_t output) {
    ALIGNED double t[TILE];
    for (int v = 0; v < columns / LANES; v++)
        f64_flush((output == ADD ? t : (double *)(void *)out) + v * LANES, value[v], output == STREAM);
    if (output == ADD) add(out, (const char *)t, columns, FLOAT64, job->x_scale);
}

/* The first `width` columns of a row to one address. */
INLINE void write_narrow(const job_t *job, char *out, const char *t, int width, dtype_t dtype, output_t output) {
    if (output == ADD) add_to_batch(job, out, t, width, 1);
    else memcpy(out, t, (size_t)(width * size_of(dtype)));
}

/* The first `width` columns of a row that dtype holds or that its conversion rounds, to all of a batch. */
INLINE void write_values(const job_t *job, char *out, const vf64 value[TILE_VECTORS], int width, dtype_t dtype,
                         output_t output) {
    ALIGNED char t[TILE * sizeof(double)];
    char *const to = width == TILE && output != ADD ? out : t;
    if (dtype == FLOAT64) {
        write_doubles(job, to, value, TILE, STORE);
    } else {
        vf32 f[TILE_VECTORS / 2];
        for (int v = 0; v < TILE_VECTORS; v += 2) f[v / 2] = f32_of_f64(value[v], value[v + 1]);
        write_floats(job, to, f, TILE, dtype, STORE);
    }
    if (output == ADD) add_to_batch(job, out, t, width, job->batch);
    else if (to == t) memcpy(out, t, (size_t)(width * size_of(dtype)));
}

#endif
