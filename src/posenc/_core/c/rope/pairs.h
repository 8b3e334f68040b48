/* Rotates pairs of columns in double or float, and tests whether the rounding of a value is uncertain.
 *
 * Bounds of the error of a value (docs/numerics.md, section 7) for a pair (a, b), with c = m cos t and s = m sin t (m and t as
 * in kernel.h), u = 2**-53 and A = |m| sqrt(a**2 + b**2):
 *     in double, c and s correctly rounded:   3.1 u (|a c| + |b s|) <= 3.1 u A;
 *     in double, c and s evaluated directly:  8 u A + 2**-86 A;
 *     in float:                               2**-23 |value| + 2**-34.6 A.
 * The rotated values of a pair determine A.  If the magnitudes of the two rotated values differ by a factor of at most 2**12,
 * the three bounds are below 2**14 ulp of a double, 2**16 ulp of a double and 4.7 ulp of a float, respectively.
 */
#ifndef POSENC_PAIRS_H
#define POSENC_PAIRS_H

#include "table/rows.h"

/* for the test with an error bound for each pair; the bounds include u, because value - error is rounded */
#define ROTATION_ERROR 0x1.1p-51        /* 4.25 u */
#define DIRECT_ROTATION_ERROR 0x1.5p-50 /* 10.5 u */
#define DIRECT_ROTATION_FLOOR 0x1p-86   /* relative to |m| (|a| + |b|) */
#define SPLIT_ERROR 0x1p-36             /* added if factors are split into two floats */
#define SPLIT_FLOOR 0x1p-148            /* relative to |a| + |b| */

enum {
    BUNCH = 4 * LANES > 16 ? 4 * LANES : 16,    /* pairs rotated together: whole vectors for every dtype */
    GROUPS = BUNCH / (2 * LANES)                /* vectors of floats for one column of BUNCH pairs */
};

/* Whether the factors of pairs with an even index precede those with an odd index, as in bf16_split. */
INLINE int is_split(const rotation_t *r) { return r->dtype == BFLOAT16 && !r->interleaved; }

/* Returns the index of a pair's first factor.  `numbers` is the number of factors of a pair.  A row of factors has a block for
 * every FACTOR_PAIRS pairs. */
INLINE ptrdiff_t factor_index(ptrdiff_t pair, int numbers, int split) {
    const ptrdiff_t i = pair % FACTOR_PAIRS, at = split ? i % 2 * (FACTOR_PAIRS / 2) + i / 2 : i;
    return pair / FACTOR_PAIRS * (numbers * FACTOR_PAIRS) + at;
}

/* The first (a) and second (b) columns of BUNCH pairs. */
typedef struct {
    vf32 a[GROUPS], b[GROUPS];
} pairs_t;

/* The same columns in double. */
typedef struct {
    vf64 a[2 * GROUPS], b[2 * GROUPS];
} double_pairs_t;

/* ---- loads and stores ---------------------------------------------------------------------------------------------------- */

/* Loads and stores for the 16-bit types. */
INLINE vf32 load_float16s(const char *p) { return f16_load((const uint16_t *)(const void *)p); }

INLINE void store_floats(char *p, vf32 first, vf32 second, dtype_t dtype) {
    u64_flush(p, dtype == FLOAT16 ? f16_of_f32(first, second) : bf16_join(first, second), 0);
}

INLINE vu64 load_bits(const char *p) { return u64_load((const uint64_t *)(const void *)p); }

/* If `interleaved`, both columns are read from `a`, and `b` is not used.  In the other layout, vectors 2 i and 2 i + 1 of a
 * column of bfloat16 numbers are in the order of bf16_split. */
INLINE pairs_t load_pairs(const char *a, const char *b, dtype_t dtype, int interleaved) {
    const ptrdiff_t bytes = 2 * LANES * size_of(dtype);
    pairs_t v;
    for (int g = 0; g < GROUPS; g++) {
        if (dtype == BFLOAT16 && interleaved) bf16_split(load_bits(a + 2 * g * bytes), &v.a[g], &v.b[g]);
        else if (dtype == BFLOAT16 && g % 2 == 0) {
            bf16_split(load_bits(a + g * bytes), &v.a[g], &v.a[g + 1]);
            bf16_split(load_bits(b + g * bytes), &v.b[g], &v.b[g + 1]);
        } else if (dtype == FLOAT16 && interleaved)
            f32_deinterleave(load_float16s(a + 2 * g * bytes), load_float16s(a + (2 * g + 1) * bytes), &v.a[g], &v.b[g]);
        else if (dtype == FLOAT16) v.a[g] = load_float16s(a + g * bytes), v.b[g] = load_float16s(b + g * bytes);
    }
    return v;
}

INLINE void store_pairs(char *a, char *b, const pairs_t *v, dtype_t dtype, int interleaved) {
    const ptrdiff_t bytes = 4 * LANES * size_of(dtype);
    if (interleaved) {
        for (int g = 0; g < GROUPS; g++) {
            vf32 low, high;
            if (dtype == FLOAT16) f32_interleave(v->a[g], v->b[g], &low, &high);
            u64_flush(a + g * bytes, dtype == FLOAT16 ? f16_of_f32(low, high) : bf16_join(v->a[g], v->b[g]), 0);
        }
    } else {
        for (int g = 0; g < GROUPS; g += 2) {
            store_floats(a + g / 2 * bytes, v->a[g], v->a[g + 1], dtype);
            store_floats(b + g / 2 * bytes, v->b[g], v->b[g + 1], dtype);
        }
    }
}

/* Loads pairs of float32 numbers in the order of load_pairs, and converts them to double. */
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

/* The tests examine two 16-bit words of each value: an upper word with the first bits of the value, and a lower word with the
 * first bits that rounding drops, or all of them.  For float32 these are words 3 and 1 of the double; for float16 and bfloat16
 * they are the two words of the float.  tests_t has the extremes over all pairs:
 *     least   the minimum of each word after `addend` (limits_t) was added.  The sum is small for small values.  It wraps to
 *             a small number for infinity and NaN, and if the dropped bits are next to a half-way point;
 *     ratio   the largest difference of the upper words of a pair, large if one value is much larger than the other. */
typedef struct {
    vu64 least, ratio;
} tests_t;

/* The operands of the tests.  They are in memory, because the compiler would build constants again for each bunch.  The error
 * of a rotated value in double is below share * (|a c| + |b s|) + floor * (|a| + |b|). */
typedef struct {
    ALIGNED uint64_t addend[LANES], mask[LANES], least[LANES], ratio[LANES];
    double share, floor;
} limits_t;

/* Sets the upper and lower words of all lanes, in the order in which test_pairs reads them. */
static void set_words(uint64_t lanes[LANES], uint64_t upper, uint64_t lower, dtype_t dtype) {
    const vu64 words =
        u64_set(dtype == FLOAT32 ? upper << 48 | lower << 16 : (upper << 16 | lower) << 32 | upper << 16 | lower);
    u64_flush(lanes, dtype == FLOAT32 ? u16_odd(words, words) : words, 0);
}

static limits_t limits_of(dtype_t dtype, double direct_scale) {
    /* for lower words: the half-way point, and the number of words next to it that fail.  For float32, these words cover 2**16
     * ulp of a double on both sides.  For the other types, a value passes if it is at least 5 ulp of a float from the point. */
    const uint32_t half = dtype == BFLOAT16 ? 1u << 15 : 1u << 12, words = dtype == FLOAT32 ? 2 : 9;
    /* for upper words: exponent of 1, bits below the exponent, and largest number of binades between the values of a pair */
    const uint32_t bias = dtype == FLOAT32 ? 1023 : 127, below = dtype == FLOAT32 ? 4 : 7;
    const uint32_t binades = dtype == FLOAT32 && direct_scale == 0 ? 14 : 12;
    /* 2**-lowest is the least |value| that passes: for float16, twice its smallest normal number; else far above underflow */
    const uint32_t lowest = dtype == FLOAT16 ? 13 : 100;
    /* the addition wraps the upper words of infinity and NaN, without their sign, to less than 1 << below */
    limits_t l = {.share = direct_scale != 0 ? DIRECT_ROTATION_ERROR : ROTATION_ERROR,
                  .floor = direct_scale * DIRECT_ROTATION_FLOOR};
    if (dtype != FLOAT32) l.share += SPLIT_ERROR, l.floor += SPLIT_FLOOR;
    set_words(l.addend, 1u << below, half + words / 2, dtype);
    set_words(l.mask, 0x7fff, 2 * half - 1, dtype);
    set_words(l.least, (bias - lowest + 1) << below, words, dtype);
    set_words(l.ratio, binades << below, 0xffff, dtype);
    return l;
}

INLINE vu64 tested_words(vu64 x, const limits_t *limits) {
    return u64_and(u16_add(x, u64_load(limits->addend)), u64_load(limits->mask));
}

/* x has the words of the first value of each pair, y those of the second value. */
INLINE void test_pairs(tests_t *tests, const limits_t *limits, vu64 x, vu64 y, int first) {
    const vu64 v = tested_words(x, limits), w = tested_words(y, limits), least = u16_min(v, w);
    const vu64 ratio = u16_sub(u16_max(v, w), least);
    tests->least = first ? least : u16_min(tests->least, least);
    tests->ratio = first ? ratio : u16_max(tests->ratio, ratio);
}

INLINE int is_uncertain(const tests_t *tests, const limits_t *limits) {
    const vu64 missing = u16_excess(u64_load(limits->least), tests->least);
    return !u64_is_zero(u64_or(missing, u16_excess(tests->ratio, u64_load(limits->ratio))));
}

/* Rotates BUNCH pairs from `pair` on by the factors of a row.  Returns whether a value is uncertain. */
INLINE int rotate_in_double(double_pairs_t *v, const double *factors, ptrdiff_t pair, const limits_t *limits) {
    tests_t tests;
    for (int g = 0; g < GROUPS; g++) {
        vu64 x[2], y[2];
        for (int i = 2 * g; i < 2 * g + 2; i++) {
            const double *const at = factors + factor_index(pair, 2, 0) + i * LANES;
            const vf64 c = f64_load(at), s = f64_load(at + FACTOR_PAIRS), a = v->a[i], b = v->b[i];
            v->a[i] = f64_mulsub(a, c, f64_mul(b, s));
            v->b[i] = f64_muladd(b, c, f64_mul(a, s));
            x[i % 2] = bits_of_f64(v->a[i]);
            y[i % 2] = bits_of_f64(v->b[i]);
        }
        test_pairs(&tests, limits, u16_odd(x[0], x[1]), u16_odd(y[0], y[1]), g == 0);
    }
    return is_uncertain(&tests, limits);
}

/* Returns the address of the first factors of vector g in the bunch that begins with `pair`. */
INLINE const float *float_factors(const double *factors, ptrdiff_t pair, int g, dtype_t dtype, int interleaved) {
    const int split = dtype == BFLOAT16 && !interleaved;
    const ptrdiff_t offset = split ? g / 2 * 2 * LANES + g % 2 * (FACTOR_PAIRS / 2) : g * 2 * LANES;
    return (const float *)(const void *)factors + factor_index(pair, 4, split) + offset;
}

/* Does the same as rotate_in_double, but in float.  Each factor is a sum of two floats; products with the larger are exact. */
INLINE int rotate_in_float(pairs_t *v, const double *factors, ptrdiff_t pair, const limits_t *limits, dtype_t dtype,
                           int interleaved) {
    tests_t tests;
    for (int g = 0; g < GROUPS; g++) {
        const float *const at = float_factors(factors, pair, g, dtype, interleaved);
        const vf32 c = f32_load(at), c_low = f32_load(at + FACTOR_PAIRS);
        const vf32 s = f32_load(at + 2 * FACTOR_PAIRS), s_low = f32_load(at + 3 * FACTOR_PAIRS);
        const vf32 a = v->a[g], b = v->b[g];
        v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c_low, f32_mul(b, s_low)));
        v->b[g] = f32_add(f32_muladd(b, c, f32_mul(a, s)), f32_muladd(b, c_low, f32_mul(a, s_low)));
        test_pairs(&tests, limits, bits_of_f32(v->a[g]), bits_of_f32(v->b[g]), g == 0);
    }
    return is_uncertain(&tests, limits);
}

#endif
