/* Rotates pairs of columns in double or float, and tests whether a rounded value is uncertain.
 *
 * Bounds of the error of a value (docs/numerics.md, section 7) for a pair (a, b), with c = m cos t and s = m sin t (m and t as
 * in kernel.h), u = 2**-53 and A = |m| sqrt(a**2 + b**2):
 *     in double, c and s correctly rounded:   3.1 u (|a c| + |b s|) <= 3.1 u A;
 *     in double, c and s evaluated directly:  8 u A + 2**-89 A;
 *     in float:                               2**-23 |value| + 2**-34.6 A.
 * The rotated values of a pair determine A.  If neither is smaller than 2**-12 times the other, these bounds are below
 * 2**14 ulp of a double, 2**16 ulp of a double and 4.7 ulp of a float.
 */
#ifndef POSENC_PAIRS_H
#define POSENC_PAIRS_H

#include "table/rows.h"

/* used by settle_half, which rounds value - error: this adds u */
#define ROTATION_ERROR 0x1.1p-51        /* 4.25 u */
#define DIRECT_ROTATION_ERROR 0x1.5p-50 /* 10.5 u */
#define DIRECT_ROTATION_FLOOR 0x1p-88   /* relative to |m| (|a| + |b|) */
#define SPLIT_ERROR 0x1p-36             /* of a product with a factor that is split into two floats */
#define SPLIT_FLOOR 0x1p-148            /* relative to |a| + |b| */

enum {
    BUNCH = 4 * LANES > 16 ? 4 * LANES : 16,    /* pairs rotated together, which fill whole vectors for every dtype */
    GROUPS = BUNCH / (2 * LANES),               /* vectors of floats for one column of BUNCH pairs */
    BLOCK_PAIRS = 16                            /* pairs whose factors are stored together: see factors.h */
};

/* Returns the index of pair i of a bunch in its factors, which are 2 BLOCK_PAIRS numbers, or twice as many, for each block. */
INLINE ptrdiff_t factor_index(ptrdiff_t i, ptrdiff_t numbers) { return i / BLOCK_PAIRS * numbers + i % BLOCK_PAIRS; }

/* The first (a) and second (b) columns of BUNCH pairs. */
typedef struct {
    vf32 a[GROUPS], b[GROUPS];
} pairs_t;

/* The same in double. */
typedef struct {
    vf64 a[2 * GROUPS], b[2 * GROUPS];
} double_pairs_t;

/* ---- loads and stores ---------------------------------------------------------------------------------------------------- */

INLINE double magnitude_of(double x) { return x < 0 ? -x : x; }

/* Numbers of a type of 16 bits. */
INLINE vf32 load_floats(const char *p, dtype_t dtype) {
    return (dtype == FLOAT16 ? f16_load : bf16_load)((const uint16_t *)(const void *)p);
}

INLINE void store_floats(char *p, vf32 first, vf32 second, dtype_t dtype) {
    u64_flush(p, dtype == FLOAT16 ? f16_of_f32(first, second) : bf16_of_f32(first, second), 0);
}

/* If `interleaved`, both columns are read from `a`, and `b` is not used. */
INLINE pairs_t load_pairs(const char *a, const char *b, dtype_t dtype, int interleaved) {
    const ptrdiff_t bytes = 2 * LANES * size_of(dtype);
    pairs_t v;
    for (int g = 0; g < GROUPS; g++) {
        if (interleaved)
            f32_deinterleave(load_floats(a + 2 * g * bytes, dtype), load_floats(a + (2 * g + 1) * bytes, dtype), &v.a[g],
                             &v.b[g]);
        else v.a[g] = load_floats(a + g * bytes, dtype), v.b[g] = load_floats(b + g * bytes, dtype);
    }
    return v;
}

INLINE void store_pairs(char *a, char *b, const pairs_t *v, dtype_t dtype, int interleaved) {
    const ptrdiff_t bytes = 4 * LANES * size_of(dtype);
    if (interleaved) {
        for (int g = 0; g < GROUPS; g++) {
            vf32 low, high;
            f32_interleave(v->a[g], v->b[g], &low, &high);
            store_floats(a + g * bytes, low, high, dtype);
        }
    } else {
        for (int g = 0; g < GROUPS; g += 2) {
            store_floats(a + g / 2 * bytes, v->a[g], v->a[g + 1], dtype);
            store_floats(b + g / 2 * bytes, v->b[g], v->b[g + 1], dtype);
        }
    }
}

/* The same for float32, in double. */
INLINE double_pairs_t load_double_pairs(const char *in_a, const char *in_b, int interleaved) {
    const float *const a = (const float *)(const void *)in_a, *const b = (const float *)(const void *)in_b;
    double_pairs_t v;
    for (int g = 0; g < GROUPS; g++) {
        if (interleaved) {
            vf32 first, second;
            f32_deinterleave(f32_load(a + 4 * g * LANES), f32_load(a + (4 * g + 2) * LANES), &first, &second);
            f64_of_f32(first, &v.a[2 * g], &v.a[2 * g + 1]);
            f64_of_f32(second, &v.b[2 * g], &v.b[2 * g + 1]);
        } else {
            for (int i = 2 * g; i < 2 * g + 2; i++) v.a[i] = f64_load_f32(a + i * LANES), v.b[i] = f64_load_f32(b + i * LANES);
        }
    }
    return v;
}

INLINE void store_double_pairs(char *to_a, char *to_b, const double_pairs_t *v, int interleaved) {
    float *const a = (float *)(void *)to_a, *const b = (float *)(void *)to_b;
    for (int g = 0; g < GROUPS; g++) {
        if (interleaved) {
            vf32 low, high;
            f32_interleave(f32_of_f64(v->a[2 * g], v->a[2 * g + 1]), f32_of_f64(v->b[2 * g], v->b[2 * g + 1]), &low, &high);
            u64_flush(a + 4 * g * LANES, bits_of_f32(low), 0);
            u64_flush(a + (4 * g + 2) * LANES, bits_of_f32(high), 0);
        } else {
            for (int i = 2 * g; i < 2 * g + 2; i++)
                f64_store_f32(a + i * LANES, v->a[i]), f64_store_f32(b + i * LANES, v->b[i]);
        }
    }
}

/* ---- the fast path ------------------------------------------------------------------------------------------------------- */

/* Three tests of each value, on lanes of 32 bits.  A lane passes a test if an unsigned number does not exceed a limit.  The
 * largest number of each test is kept:
 *     near    the bits that rounding drops, shifted to the top of the lane, minus (half-way point + margin);
 *     ratio   the bits of the first magnitude of a pair minus those of the second, plus the largest allowed difference;
 *     range   the first value of a pair (float16: both) minus the smallest allowed; infinity and NaN exceed the limit.
 * For float32, `near` reads the lower halves of doubles, and the others read the upper halves. */
typedef struct {
    vu64 near, ratio, range;
} tests_t;

/* The terms and limits of the tests, in memory because the compiler would rebuild constants for each bunch.  The error of a
 * rotated value in double is below `share` (|a c| + |b s|) + `floor` (|a| + |b|). */
typedef struct {
    ALIGNED uint64_t past_half[LANES], near[LANES], binades[LANES], ratio[LANES], smallest[LANES], range[LANES];
    double share, floor;
} limits_t;

INLINE int dropped_shift(dtype_t dtype) { return dtype == FLOAT32 ? 3 : dtype == FLOAT16 ? 19 : 16; }

static void set_both_halves(uint64_t lanes[LANES], uint32_t x) {
    for (int i = 0; i < LANES; i++) lanes[i] = (uint64_t)x << 32 | x;
}

static limits_t limits_of(dtype_t dtype, double direct_scale) {
    const uint32_t half = dtype == FLOAT32 ? 1u << 28 : dtype == FLOAT16 ? 1u << 12 : 1u << 15;
    /* a value at least this far from a half-way point passes; in ulp of a double for float32, else of a float */
    const uint32_t margin = dtype != FLOAT32 ? 5 : direct_scale != 0 ? 1u << 16 : 1u << 14;
    /* of the numbers that are tested: exponent of 1, bits below the exponent, and largest exponent + 1; the second value of a
     * pair is at most 2**12 times the first one, hence finite */
    const uint32_t bias = dtype == FLOAT32 ? 1023 : 127, below = dtype == FLOAT32 ? 20 : 23, end = dtype == FLOAT32 ? 200 : 116;
    const uint32_t binades = 12u << below;
    /* 2**-13 for float16, twice its smallest normal number; else 2**-100, so that no significant bits underflow */
    const uint32_t lowest = dtype == FLOAT16 ? 13 : 100, smallest = (bias - lowest) << below;
    limits_t l = {.share = direct_scale != 0 ? DIRECT_ROTATION_ERROR : ROTATION_ERROR,
                  .floor = direct_scale * DIRECT_ROTATION_FLOOR};
    if (dtype != FLOAT32) l.share += SPLIT_ERROR, l.floor += SPLIT_FLOOR;
    set_both_halves(l.past_half, (half + margin) << dropped_shift(dtype));
    set_both_halves(l.near, ~((2 * margin - 1) << dropped_shift(dtype)));
    set_both_halves(l.binades, binades);
    set_both_halves(l.ratio, 2 * binades);
    set_both_halves(l.smallest, smallest);
    set_both_halves(l.range, ((lowest + end) << below) - 1);
    return l;
}

INLINE void keep_largest(vu64 *largest, vu64 x, int first) { *largest = first ? x : u32_max(*largest, x); }

INLINE void test_near(tests_t *tests, const limits_t *limits, vu64 dropped, dtype_t dtype, int first) {
    keep_largest(&tests->near, u32_sub(u64_shl(dropped, dropped_shift(dtype)), u64_load(limits->past_half)), first);
}

/* a and b are the bits of floats, or the upper halves of doubles. */
INLINE void test_pair(tests_t *tests, const limits_t *limits, vu64 a, vu64 b, dtype_t dtype, int first) {
    const vu64 magnitude = u64_set((uint64_t)INT32_MAX << 32 | INT32_MAX), smallest = u64_load(limits->smallest);
    const vu64 x = u64_and(a, magnitude), y = u64_and(b, magnitude);
    keep_largest(&tests->ratio, u32_add(u32_sub(x, y), u64_load(limits->binades)), first);
    keep_largest(&tests->range, u32_sub(x, smallest), first);
    if (dtype == FLOAT16) keep_largest(&tests->range, u32_sub(y, smallest), 0);
}

INLINE vu64 excess(vu64 x, const uint64_t *limit) { return u64_xor(u32_max(x, u64_load(limit)), u64_load(limit)); }

INLINE int is_uncertain(const tests_t *tests, const limits_t *limits) {
    const vu64 near = excess(tests->near, limits->near), ratio = excess(tests->ratio, limits->ratio);
    return !u64_is_zero(u64_or(near, u64_or(ratio, excess(tests->range, limits->range))));
}

/* Rotates BUNCH pairs by `factors`.  Returns whether a value is uncertain. */
INLINE int rotate_in_double(double_pairs_t *v, const double *factors, const limits_t *limits) {
    tests_t tests;
    for (int g = 0; g < GROUPS; g++) {
        vu64 x[2], y[2];
        for (int i = 0; i < 2; i++) {
            const double *const at = factors + factor_index((2 * g + i) * LANES, 2 * BLOCK_PAIRS);
            const vf64 c = f64_load(at), s = f64_load(at + BLOCK_PAIRS), a = v->a[2 * g + i], b = v->b[2 * g + i];
            v->a[2 * g + i] = f64_mulsub(a, c, f64_mul(b, s));
            v->b[2 * g + i] = f64_muladd(b, c, f64_mul(a, s));
            x[i] = bits_of_f64(v->a[2 * g + i]);
            y[i] = bits_of_f64(v->b[2 * g + i]);
        }
        test_near(&tests, limits, u64_low_halves(x[0], x[1]), FLOAT32, g == 0);
        test_near(&tests, limits, u64_low_halves(y[0], y[1]), FLOAT32, 0);
        test_pair(&tests, limits, u64_high_halves(x[0], x[1]), u64_high_halves(y[0], y[1]), FLOAT32, g == 0);
    }
    return is_uncertain(&tests, limits);
}

/* Does the same in float; each factor is a sum of two floats.  Products with the larger float are exact. */
INLINE int rotate_in_float(pairs_t *v, const float *factors, const limits_t *limits, dtype_t dtype) {
    tests_t tests;
    for (int g = 0; g < GROUPS; g++) {
        const float *const at = factors + factor_index(g * 2 * LANES, 4 * BLOCK_PAIRS);
        const vf32 c = f32_load(at), c_low = f32_load(at + BLOCK_PAIRS);
        const vf32 s = f32_load(at + 2 * BLOCK_PAIRS), s_low = f32_load(at + 3 * BLOCK_PAIRS);
        const vf32 a = v->a[g], b = v->b[g];
        v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c_low, f32_mul(b, s_low)));
        v->b[g] = f32_add(f32_muladd(b, c, f32_mul(a, s)), f32_muladd(b, c_low, f32_mul(a, s_low)));
        test_near(&tests, limits, bits_of_f32(v->a[g]), dtype, g == 0);
        test_near(&tests, limits, bits_of_f32(v->b[g]), dtype, 0);
        test_pair(&tests, limits, bits_of_f32(v->a[g]), bits_of_f32(v->b[g]), dtype, g == 0);
    }
    return is_uncertain(&tests, limits);
}

#endif
