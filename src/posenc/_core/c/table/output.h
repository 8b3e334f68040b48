/* Writes rounded values by stores, non-temporal stores or additions. */
#ifndef POSENC_OUTPUT_H
#define POSENC_OUTPUT_H

#include "doubledouble.h"
#include "kernel.h"

enum { TILE_VECTORS = TILE / LANES };

/* Compiles `statement` for each dtype, with DTYPE as a constant, and runs the statement for `dtype`. */
#define FOR_DTYPE(dtype, statement) \
    switch (dtype) { \
        DTYPE_CASE(FLOAT64, statement) \
        DTYPE_CASE(FLOAT32, statement) \
        DTYPE_CASE(FLOAT16, statement) \
        DTYPE_CASE(BFLOAT16, statement) \
    }
#define DTYPE_CASE(T, statement) \
    case T: { \
        const dtype_t DTYPE = T; \
        statement; \
    } break;

/* Copies bytes, with non-temporal stores for whole cache lines. */
INLINE void flush_bytes(char *out, const char *from, ptrdiff_t bytes) {
    ptrdiff_t at = min_int((ptrdiff_t)(-(uintptr_t)out % LINE), bytes);
    memcpy(out, from, (size_t)at);
    for (; at + LINE <= bytes; at += LINE)
        for (int i = 0; i < LINE; i += (int)sizeof(vu64))
            u64_store(out + at + i, u64_load((const uint64_t *)(const void *)(from + at + i)), 1);
    memcpy(out + at, from + at, (size_t)(bytes - at));
}

/* ---- adding: x * x_scale + value, product and sum rounded to dtype ------------------------------------- */

enum { ADD_BYTES = 256, PREFETCH_DISTANCE = 2048 };

/* In long rows, cache lines of x are read and written whole, and the lines 2 KiB ahead, usually of a later row, are
 * prefetched. */
#define DEFINE_ADD(name, type) \
    INLINE void name(type *x, const type *value, ptrdiff_t width, type x_scale) { \
        enum { COUNT = ADD_BYTES / (int)sizeof *x }; \
        for (; width > TILE && (uintptr_t)x % LINE; x++, value++, width--) *x = *x * x_scale + *value; \
        for (; width >= COUNT; x += COUNT, value += COUNT, width -= COUNT) { \
            for (int i = 0; i < ADD_BYTES; i += LINE) PREFETCH((const char *)x + PREFETCH_DISTANCE + i); \
            for (int i = 0; i < COUNT; i++) x[i] = x[i] * x_scale + value[i]; \
        } \
        for (ptrdiff_t i = 0; i < width; i++) x[i] = x[i] * x_scale + value[i]; \
    }
DEFINE_ADD(add_doubles, double)
DEFINE_ADD(add_floats, float)

/* Loads 4 LANES 16-bit numbers, those of bfloat16 in the order of bf16_split. */
INLINE void load_halves(vf32 f[2], const uint16_t *p, dtype_t dtype) {
    if (dtype == FLOAT16) f[0] = f16_load(p), f[1] = f16_load(p + 2 * LANES);
    else bf16_split(u64_load((const uint64_t *)(const void *)p), &f[0], &f[1]);
}

/* Stores results of operations on 16-bit numbers, rounded to nearest, ties to even.  A NaN remains NaN: its lower
 * 16 bits are 0, so the rounding cannot carry into its exponent. */
INLINE void store_halves(uint16_t *p, vf32 f[2], dtype_t dtype) {
    const vu64 one = u64_set(0x0000000100000001);
    for (int k = 0; k < 2 && dtype == BFLOAT16; k++) { /* bf16_join rounds half-way points up */
        const vu64 bits = bits_of_f32(f[k]), is_odd = u64_and(u64_shr(bits, 16), one);
        f[k] = f32_of_bits(u32_add(bits, u32_sub(is_odd, one)));
    }
    u64_store(p, dtype == FLOAT16 ? f16_of_f32(f[0], f[1]) : bf16_join(f[0], f[1]), 0);
}

/* Computes in float, where products of two float16 (11-bit) or bfloat16 (8-bit) numbers are exact.  A sum
 * that is first rounded to 24 >= 2 * 11 + 2 bits rounds to the same number as the exact sum (Figueroa).  A cache
 * line has TILE numbers. */
INLINE void add_halves(uint16_t *x, const uint16_t *value, ptrdiff_t width, dtype_t dtype, float x_scale) {
    for (ptrdiff_t count; width > 0; x += count, value += count, width -= count) {
        const ptrdiff_t in_line = TILE - (ptrdiff_t)((uintptr_t)x % LINE / sizeof *x);
        uint16_t part[2][TILE];
        count = min_size(width, in_line);
        uint16_t *const to = count < TILE ? part[0] : x;
        PREFETCH((const char *)x + PREFETCH_DISTANCE);
        if (count < TILE) {
            memset(part, 0, sizeof part);
            memcpy(part[0], x, (size_t)count * sizeof *x);
            memcpy(part[1], value, (size_t)count * sizeof *x);
        }
        for (int i = 0; i < TILE; i += 4 * LANES) {
            vf32 f[2], v[2];
            load_halves(f, to + i, dtype);
            load_halves(v, (count < TILE ? part[1] : value) + i, dtype);
            if (x_scale != 1) {
                for (int k = 0; k < 2; k++) f[k] = f32_mul(f[k], f32_set(x_scale));
                store_halves(to + i, f, dtype);
                load_halves(f, to + i, dtype);
            }
            for (int k = 0; k < 2; k++) f[k] = f32_add(f[k], v[k]);
            store_halves(to + i, f, dtype);
        }
        if (count < TILE) memcpy(x, part[0], (size_t)count * sizeof *x);
    }
}

INLINE void add(void *x, const void *value, ptrdiff_t width, dtype_t dtype, double x_scale) {
    if (dtype == FLOAT64) add_doubles(x, value, width, x_scale);
    else if (dtype == FLOAT32) add_floats(x, value, width, (float)x_scale);
    else add_halves(x, value, width, dtype, (float)x_scale);
}

NOINLINE void add_to_batch(const job_t *job, char *out, const char *values, ptrdiff_t width, ptrdiff_t batch) {
    for (; batch > 0; batch--, out += job->batch_stride) FOR_DTYPE(job->dtype, add(out, values, width, DTYPE, job->x_scale))
}

/* ---- a row of a tile ----------------------------------------------------------------------------------- */

/* The number of vectors of doubles that fill one vector of dtype. */
INLINE int vectors_per_store(dtype_t dtype) { return 8 / (int)size_of(dtype); }

/* Packs values that are already rounded to floats into a vector of dtype, which must not be float64. */
INLINE vu64 bits_of(const vf32 f[2], dtype_t dtype) {
    return dtype == FLOAT32 ? bits_of_f32(f[0]) : dtype == FLOAT16 ? f16_of_f32(f[0], f[1]) : bf16_of_f32(f[0], f[1]);
}

INLINE void write_line(char *out, const vu64 bits[LINE / sizeof(vu64)], output_t output) {
    for (int i = 0; i < LINE / (int)sizeof(vu64); i++) u64_store(out + i * (int)sizeof(vu64), bits[i], output == STREAM);
}

/* Stores the first `width` values, or adds them to all batch entries. */
INLINE void write_staged(const job_t *job, char *out, const char *values, int width, output_t output) {
    if (output == ADD) add_to_batch(job, out, values, width, job->batch);
    else memcpy(out, values, (size_t)(width * size_of(job->dtype)));
}

/* Stores a row of a tile, rounded to dtype. */
INLINE void store_tile(char *to, const vf64 value[TILE_VECTORS], dtype_t dtype) {
    for (int v = 0; v < TILE_VECTORS; v += vectors_per_store(dtype), to += sizeof(vu64)) {
        vf32 f[2];
        for (int i = 0; i + 1 < vectors_per_store(dtype); i += 2) f[i / 2] = f32_of_f64(value[v + i], value[v + i + 1]);
        u64_store(to, dtype == FLOAT64 ? bits_of_f64(value[v]) : bits_of(f, dtype), 0);
    }
}

/* Columns column .. column + width - 1 of some rows, at most TILE values.  Row row[i] of the job is written to
 * out + (row[i] - row[0]) * job->row_stride. */
typedef struct {
    const ptrdiff_t *row;
    ptrdiff_t column;
    int rows, width;
    output_t output;
    char *out;
} tile_t;

/* Returns whether a tile is stored in one piece of memory. */
INLINE int is_contiguous(const job_t *job, const tile_t *t) {
    return t->output != ADD && (t->rows == 1 || (job->row_stride == t->width * size_of(job->dtype) &&
                                                 t->row[t->rows - 1] - t->row[0] == t->rows - 1));
}

/* Writes the values of a tile, whose rows are adjacent in `values`. */
static void write_tile(const job_t *job, const tile_t *t, const char *values) {
    const int is_one = is_contiguous(job, t), width = is_one ? t->rows * t->width : t->width;
    for (int i = 0; i < (is_one ? 1 : t->rows); i++, values += width * size_of(job->dtype))
        write_staged(job, t->out + (t->row[i] - t->row[0]) * job->row_stride, values, width, t->output);
}

/* Writes the values of a tile, which must be numbers of the dtype. */
COLD void write_rounded(const job_t *job, const tile_t *t, const double values[TILE]) {
    ALIGNED char staged[TILE * sizeof(double)];
    vf64 rounded[TILE_VECTORS];
    for (int v = 0; v < TILE_VECTORS; v++) rounded[v] = f64_load(values + v * LANES);
    char *const to = t->rows * t->width == TILE && is_contiguous(job, t) ? t->out : staged;
    FOR_DTYPE(job->dtype, store_tile(to, rounded, DTYPE))
    if (to == staged) write_tile(job, t, staged);
}

#endif
