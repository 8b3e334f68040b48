/* Rotates pairs of columns in double or float, and tests whether the rounding of a value is uncertain.
 * Rounds pairs that have an uncertain value with an error bound for each pair, and evaluates undecided values
 * exactly.
 *
 * Bounds: docs/numerics.md, section 7.
 */
#ifndef POSENC_PAIRS_H
#define POSENC_PAIRS_H

#include "table/rows.h"

/* for the test with an error bound for each pair; the bounds include u, because value - error is rounded */
#define ROTATION_ERROR 0x1.1p-51        /* 4.25 u */
#define ROTATION_FLOOR 0x1p-108         /* relative to |m| (|a| + |b|) */
#define DIRECT_ROTATION_FLOOR 0x1p-50   /* the same if factors are evaluated directly */
#define SPLIT_ERROR 0x1p-36             /* added if factors are split into two floats */
#define SPLIT_FLOOR 0x1p-148            /* relative to |a| + |b| */

enum {
    BUNCH = 4 * LANES > 16 ? 4 * LANES : 16,    /* pairs rotated together: whole vectors for every dtype */
    GROUPS = BUNCH / (2 * LANES)                /* vectors of floats for one column of BUNCH pairs */
};

/* Whether the factors of pairs with an even index precede those with an odd index, as in bf16_split. */
INLINE int is_split(const rotation_t *r) { return r->dtype == BFLOAT16 && !r->interleaved; }

/* Returns the index of a pair's first factor.  `numbers` is the number of factors of a pair.  A row of
 * factors has a block for every FACTOR_PAIRS pairs. */
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

/* ---- loads and stores ---------------------------------------------------------------------------------- */

/* Loads and stores for the 16-bit dtypes. */
INLINE vf32 load_float16s(const char *p) { return f16_load((const uint16_t *)(const void *)p); }

INLINE void store_16bit(char *p, vf32 first, vf32 second, dtype_t dtype) {
    u64_store(p, dtype == FLOAT16 ? f16_of_f32(first, second) : bf16_join(first, second), 0);
}

INLINE vu64 load_bits(const char *p) { return u64_load((const uint64_t *)(const void *)p); }

/* If `interleaved`, both columns are read from `a`, and `b` is not used.  Otherwise, vectors 2 i and 2 i + 1 of a
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
            u64_store(a + g * bytes, dtype == FLOAT16 ? f16_of_f32(low, high) : bf16_join(v->a[g], v->b[g]), 0);
        }
    } else {
        for (int g = 0; g < GROUPS; g += 2) {
            store_16bit(a + g / 2 * bytes, v->a[g], v->a[g + 1], dtype);
            store_16bit(b + g / 2 * bytes, v->b[g], v->b[g + 1], dtype);
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
            u64_store(a + 4 * g * LANES, bits_of_f32(low), 0);
            u64_store(a + (4 * g + 2) * LANES, bits_of_f32(high), 0);
        } else {
            for (int i = 2 * g; i < 2 * g + 2; i++)
                f64_store_f32(a + i * LANES, v->a[i]), f64_store_f32(b + i * LANES, v->b[i]);
        }
    }
}

/* ---- the fast path ------------------------------------------------------------------------------------- */

/* The tests examine two 16-bit words of each value: an upper word with the first bits of the value, and a lower
 * word with the first bits that rounding drops, or all of them.  For float32, these are words 3 and 1 of the double;
 * for float16 and bfloat16, they are the two words of the float.  tests_t has the extremes over all pairs:
 *     least   the minimum of each word after `addend` (limits_t) was added.  The sum is small for small values.  It
 *             wraps to a small number for infinity and NaN, and if the dropped bits are next to a half-way point;
 *     ratio   the largest difference of the upper words of a pair, which is large if one value is much larger than
 *             the other. */
typedef struct {
    vu64 least, ratio;
} tests_t;

/* The operands of the tests, in memory, because the compiler would build constants again for each bunch.  The
 * error of a rotated value in double is below share * (|a c| + |b s|) + floor * (|a| + |b|). */
typedef struct {
    ALIGNED uint64_t addend[LANES], mask[LANES], least[LANES], ratio[LANES];
    double share, floor;
} limits_t;

/* Sets the upper and lower words of all lanes, in the order in which test_pairs reads them. */
static void set_words(uint64_t lanes[LANES], uint64_t upper, uint64_t lower, dtype_t dtype) {
    const vu64 words =
        u64_set(dtype == FLOAT32 ? upper << 48 | lower << 16 : (upper << 16 | lower) << 32 | upper << 16 | lower);
    u64_store(lanes, dtype == FLOAT32 ? u16_odd(words, words) : words, 0);
}

static limits_t limits_of(const rotation_t *r) {
    const dtype_t dtype = r->dtype;
    const int is_direct = r->direct_scale != 0;
    /* for lower words: the half-way point, and the number of words next to it that fail.  For float32, these
     * words cover 2**16 ulp of a double on both sides.  For the other dtypes, a value passes if it is at least
     * 5 ulp of a float from the half-way point. */
    const uint32_t half = dtype == BFLOAT16 ? 1u << 15 : 1u << 12, words = dtype == FLOAT32 ? 2 : 9;
    /* for upper words: the exponent of 1, the number of bits below the exponent, and the largest number of binades
     * between the values of a pair */
    const uint32_t bias = dtype == FLOAT32 ? 1023 : 127, below = dtype == FLOAT32 ? 4 : 7;
    const uint32_t binades = dtype == FLOAT32 && !is_direct ? 14 : 12;
    /* 2**-lowest is the least |value| that passes: for float16, twice its smallest normal number; else far
     * above underflow */
    const uint32_t lowest = dtype == FLOAT16 ? 13 : 100;
    /* the addition wraps the upper words of infinity and NaN, without their sign, to less than 1 << below */
    limits_t l = {.share = ROTATION_ERROR,
                  .floor = magnitude_of(r->axis->spec->scale) * (is_direct ? DIRECT_ROTATION_FLOOR : ROTATION_FLOOR)};
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

/* Returns zero for words that pass. */
INLINE vu64 failed_words(const tests_t *tests, const limits_t *limits) {
    const vu64 missing = u16_excess(u64_load(limits->least), tests->least);
    return u64_or(missing, u16_excess(tests->ratio, u64_load(limits->ratio)));
}

/* Returns the bits of 2, which passes the tests, in lanes where a and b are 0, and 0 in the others.  a and b are
 * the bits of floats, or of doubles with the values of floats; `unit` is the lowest of the 32 upper bits. */
INLINE vu64 twos_of_zeros(vu64 a, vu64 b, uint64_t unit) {
    const vu64 magnitude = u64_and(u64_or(a, b), u64_set((unit << 31) - unit));
    return u64_shr(u64_and(u32_sub(magnitude, u64_set(unit)), u64_set(unit << 31)), 1);
}

/* Rotates BUNCH pairs from `pair` on by the factors of a row.  Returns nonzero words if a value is uncertain.
 * If `zeros`, pairs (0, 0) pass. */
INLINE vu64 rotate_in_double(double_pairs_t *v, const double *factors, ptrdiff_t pair, const limits_t *limits, int zeros) {
    tests_t tests;
    for (int g = 0; g < GROUPS; g++) {
        vu64 x[2], y[2];
        for (int j = 0; j < 2; j++) {
            const int i = 2 * g + j;
            const double *const at = factors + factor_index(pair, 2, 0) + i * LANES;
            const vf64 c = f64_load(at), s = f64_load(at + FACTOR_PAIRS), a = v->a[i], b = v->b[i];
            v->a[i] = f64_mulsub(a, c, f64_mul(b, s));
            v->b[i] = f64_muladd(b, c, f64_mul(a, s));
            const vu64 twos = zeros ? twos_of_zeros(bits_of_f64(a), bits_of_f64(b), (uint64_t)1 << 32) : u64_set(0);
            x[j] = u64_or(bits_of_f64(v->a[i]), twos);
            y[j] = u64_or(bits_of_f64(v->b[i]), twos);
        }
        test_pairs(&tests, limits, u16_odd(x[0], x[1]), u16_odd(y[0], y[1]), g == 0);
    }
    return failed_words(&tests, limits);
}

/* Returns the address of the first factors of vector g in the bunch that begins with `pair`. */
INLINE const float *float_factors(const double *factors, ptrdiff_t pair, int g, dtype_t dtype, int interleaved) {
    const int split = dtype == BFLOAT16 && !interleaved;
    const ptrdiff_t offset = split ? g / 2 * 2 * LANES + g % 2 * (FACTOR_PAIRS / 2) : g * 2 * LANES;
    return (const float *)(const void *)factors + factor_index(pair, 4, split) + offset;
}

/* Does the same as rotate_in_double, but in float.  Each factor is a sum of two floats; products with the larger
 * float are exact. */
INLINE vu64 rotate_in_float(pairs_t *v, const double *factors, ptrdiff_t pair, const limits_t *limits, dtype_t dtype,
                            int interleaved, int zeros) {
    tests_t tests;
    for (int g = 0; g < GROUPS; g++) {
        const float *const at = float_factors(factors, pair, g, dtype, interleaved);
        const vf32 c = f32_load(at), c_low = f32_load(at + FACTOR_PAIRS);
        const vf32 s = f32_load(at + 2 * FACTOR_PAIRS), s_low = f32_load(at + 3 * FACTOR_PAIRS);
        const vf32 a = v->a[g], b = v->b[g];
        v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c_low, f32_mul(b, s_low)));
        v->b[g] = f32_add(f32_muladd(b, c, f32_mul(a, s)), f32_muladd(b, c_low, f32_mul(a, s_low)));
        const vu64 twos = zeros ? twos_of_zeros(bits_of_f32(a), bits_of_f32(b), 0x0000000100000001) : u64_set(0);
        test_pairs(&tests, limits, u64_or(bits_of_f32(v->a[g]), twos), u64_or(bits_of_f32(v->b[g]), twos), g == 0);
    }
    return failed_words(&tests, limits);
}

/* Rotates and stores BUNCH pairs, or, if a value is uncertain, returns nonzero words and stores nothing. */
INLINE vu64 rotate_pairs(const double *factors, ptrdiff_t pair, const limits_t *limits, const char *in_a, const char *in_b,
                         char *a, char *b, dtype_t dtype, int interleaved, int zeros) {
    vu64 failed;
    if (dtype == FLOAT32) {
        double_pairs_t v = load_double_pairs(in_a, in_b, interleaved);
        failed = rotate_in_double(&v, factors, pair, limits, zeros);
        for (int i = 0; zeros && i < 2 * GROUPS; i++) /* -0 becomes +0 */
            v.a[i] = f64_add(v.a[i], f64_set(0)), v.b[i] = f64_add(v.b[i], f64_set(0));
        if (!UNLIKELY(!u64_is_zero(failed))) store_double_pairs(a, b, &v, interleaved);
    } else {
        pairs_t v = load_pairs(in_a, in_b, dtype, interleaved);
        failed = rotate_in_float(&v, factors, pair, limits, dtype, interleaved, zeros);
        for (int g = 0; zeros && g < GROUPS; g++) v.a[g] = f32_add(v.a[g], f32_set(0)), v.b[g] = f32_add(v.b[g], f32_set(0));
        if (!UNLIKELY(!u64_is_zero(failed))) store_pairs(a, b, &v, dtype, interleaved);
    }
    return failed;
}

/* ---- uncertain pairs ----------------------------------------------------------------------------------- */

#define UNDERFLOW_ERROR 0x1p-760

/* A row of one head. */
typedef struct {
    const rotation_t *rotation;
    const limits_t *limits;
    ptrdiff_t position; /* index of the row's position */
    const double *factors;
    const char *x, *ahead; /* `ahead` is a row to prefetch */
    char *out;
    tally_t *tally;
} head_row_t;

/* Returns the rotary_axis_t that contains a pair, and sets *column to the pair's first column in it. */
static const rotary_axis_t *columns_of_pair(const rotation_t *r, ptrdiff_t pair, ptrdiff_t *column) {
    for (const rotary_axis_t *t = r->axis;; t++) {
        ptrdiff_t j = t->pair ? 0 : pair;
        while (t->pair && 2 * j < t->spec->d_model && t->pair[j] != pair) j++;
        *column = 2 * j;
        if (*column < t->spec->d_model) return t;
    }
}

/* Rounds factors[0] * cosine + factors[1] * sine, the first or, if `is_second`, the second value of a pair.
 * c and s approximate the cosine and the sine; the value computed from c and s has an error below `error`. */
COLD double undecided_value(const head_row_t *h, ptrdiff_t pair, int is_second, const double factors[2], double c, double s,
                            double error) {
    const rotation_t *r = h->rotation;
    const int is_finite = factors[0] - factors[0] == 0 && factors[1] - factors[1] == 0;
    if (r->has_fast_path && c != c) return double_of_bits(0x7ff8000000000000u);
    if (r->has_fast_path && factors[0] == 0 && factors[1] == 0) return 0;
    if (is_finite && r->has_fast_path) {
        const double value = factors[0] * c + factors[1] * s;
        const double below = round_to(r->dtype, value - error), above = round_to(r->dtype, value + error);
        if (bits_of_double(below) == bits_of_double(above)) return below;
    }
    if (factors[0] != factors[0] || factors[1] != factors[1]) return double_of_bits(0x7ff8000000000000u);
    const double uncertain = 2 * h->limits->floor;
    if (is_finite || !r->has_fast_path || magnitude_of(c) <= uncertain || magnitude_of(s) <= uncertain) {
        undecided_t u = {.is_combined = 1, .factors = {factors[0], factors[1]}, .job = {.dtype = r->dtype, .output = STORE}};
        const rotary_axis_t *t = columns_of_pair(r, pair, &u.column);
        u.position = position_of(t->spec, &t->table, h->position);
        u.job.out = h->out + (r->interleaved ? 2 * pair + is_second : pair + is_second * r->pairs) * size_of(r->dtype);
        if (!u.position.finite) return double_of_bits(0x7ff8000000000000u);
        if (is_finite) return decided_value(t->spec, &u, h->tally);
        c = sign_of(t->spec, &u.position, u.column);
        s = sign_of(t->spec, &u.position, u.column + 1);
    }
    /* a number of the pair is infinite, so only the signs of c and s matter */
    const double infinite = factors[0] * c + factors[1] * s;
    return infinite == infinite ? infinite : double_of_bits(0x7ff8000000000000u);
}

/* Compiles `statement` for each dtype and layout of the pairs, with DTYPE and INTERLEAVED as constants. */
#define FOR_ORDER(r, statement) \
    switch ((r)->dtype) { \
        DTYPE_CASE(FLOAT32, FOR_LAYOUT(r, statement)) \
        DTYPE_CASE(FLOAT16, FOR_LAYOUT(r, statement)) \
        DTYPE_CASE(BFLOAT16, FOR_LAYOUT(r, statement)) \
    default: UNREACHABLE; \
    }
#define FOR_LAYOUT(r, statement) \
    if ((r)->interleaved) { \
        const int INTERLEAVED = 1; \
        statement; \
    } else { \
        const int INTERLEAVED = 0; \
        statement; \
    }

/* BUNCH pairs in the order of load_pairs: their numbers (a, b), factors (c, s), rotated values (x, y) and
 * error bounds.  An element of undecided_x or undecided_y is nonzero if the bound does not decide how the
 * value is rounded. */
typedef struct {
    ALIGNED double a[BUNCH], b[BUNCH], c[BUNCH], s[BUNCH], x[BUNCH], y[BUNCH], error[BUNCH];
    ALIGNED uint64_t undecided_x[BUNCH], undecided_y[BUNCH];
} settled_t;

/* Evaluates the undecided values of the first `width` pairs. */
COLD void round_undecided(const head_row_t *h, ptrdiff_t pair, int width, settled_t *v) {
    const rotation_t *r = h->rotation;
    const double sign = r->inverse ? -1 : 1;
    for (int i = 0; i < BUNCH; i++) {
        const int at = is_split(r) ? i / (4 * LANES) * (4 * LANES) + i / (2 * LANES) % 2 + i % (2 * LANES) * 2 : i;
        const double for_x[2] = {v->a[i], -sign * v->b[i]}, for_y[2] = {v->b[i], sign * v->a[i]}, s = sign * v->s[i];
        if (at >= width) continue;
        if (v->undecided_x[i]) v->x[i] = undecided_value(h, pair + at, 0, for_x, v->c[i], s, v->error[i]);
        if (v->undecided_y[i]) v->y[i] = undecided_value(h, pair + at, 1, for_y, v->c[i], s, v->error[i]);
    }
}

/* Stores the sums of two vectors of floats, computed in double. */
INLINE void store_sums(double *to, vf32 a, vf32 b) {
    vf64 upper[2], lower[2];
    f64_of_f32(a, &upper[0], &upper[1]);
    f64_of_f32(b, &lower[0], &lower[1]);
    for (int i = 0; i < 2; i++) f64_store(to + i * LANES, f64_add(upper[i], lower[i]));
}

/* Loads pairs and factors, and converts them to double. */
INLINE void load_settled(settled_t *v, const double *factors, ptrdiff_t pair, const char *a, const char *b, dtype_t dtype,
                         int interleaved) {
    if (dtype == FLOAT32) {
        const double_pairs_t in = load_double_pairs(a, b, interleaved);
        for (int i = 0; i < BUNCH; i += LANES) {
            const double *const at = factors + factor_index(pair + i, 2, 0);
            f64_store(v->a + i, in.a[i / LANES]);
            f64_store(v->b + i, in.b[i / LANES]);
            f64_store(v->c + i, f64_load(at));
            f64_store(v->s + i, f64_load(at + FACTOR_PAIRS));
        }
        return;
    }
    const pairs_t in = load_pairs(a, b, dtype, interleaved);
    for (int g = 0; g < GROUPS; g++) {
        const int i = g * 2 * LANES;
        const float *const at = float_factors(factors, pair, g, dtype, interleaved);
        store_sums(v->a + i, in.a[g], f32_set(0));
        store_sums(v->b + i, in.b[g], f32_set(0));
        store_sums(v->c + i, f32_load(at), f32_load(at + FACTOR_PAIRS));
        store_sums(v->s + i, f32_load(at + 2 * FACTOR_PAIRS), f32_load(at + 3 * FACTOR_PAIRS));
    }
}

INLINE void store_settled(const settled_t *v, char *a, char *b, dtype_t dtype, int interleaved) {
    double_pairs_t wide;
    pairs_t narrow;
    for (int i = 0; i < 2 * GROUPS; i++) wide.a[i] = f64_load(v->x + i * LANES), wide.b[i] = f64_load(v->y + i * LANES);
    for (int g = 0; g < GROUPS; g++) {
        narrow.a[g] = f32_of_f64(wide.a[2 * g], wide.a[2 * g + 1]);
        narrow.b[g] = f32_of_f64(wide.b[2 * g], wide.b[2 * g + 1]);
    }
    if (dtype == FLOAT32) store_double_pairs(a, b, &wide, interleaved);
    else store_pairs(a, b, &narrow, dtype, interleaved);
}

/* Rounds each value for which value - error and value + error round to the same number.  Returns a vector that is
 * nonzero in the lanes of other values, and of values that are infinite, NaN or at least 2**200. */
INLINE vu64 round_values(vf64 *value, vf64 error, dtype_t dtype) {
    const vu64 magnitude = u64_and(bits_of_f64(*value), u64_set(INT64_MAX));
    const vu64 too_large = u64_shr(u64_sub(u64_set(((uint64_t)(1023 + 200) << 52) - 1), magnitude), 63);
    return u64_or(too_large, undecided_double(value, error, dtype));
}

/* Rotates the pairs, and rounds the values whose rounding the error bounds decide.  Returns zero if all values are
 * decided. */
INLINE vu64 round_pairs(settled_t *v, const limits_t *limits, dtype_t dtype) {
    const vf64 share = f64_set(limits->share), floor = f64_set(limits->floor), underflow = f64_set(UNDERFLOW_ERROR);
    vu64 any = u64_set(0);
    for (int i = 0; i < BUNCH; i += LANES) {
        const vf64 a = f64_load(v->a + i), b = f64_load(v->b + i), c = f64_load(v->c + i), s = f64_load(v->s + i);
        const vf64 factors = f64_add(f64_abs(c), f64_abs(s)), numbers = f64_add(f64_abs(a), f64_abs(b));
        const vf64 error = f64_add(f64_mul(numbers, f64_add(f64_mul(factors, share), floor)), underflow);
        vf64 x = f64_sub(f64_mul(a, c), f64_mul(b, s)), y = f64_add(f64_mul(b, c), f64_mul(a, s));
        const vu64 undecided_x = round_values(&x, error, dtype), undecided_y = round_values(&y, error, dtype);
        any = u64_or(any, u64_or(undecided_x, undecided_y));
        u64_store(v->undecided_x + i, undecided_x, 0);
        u64_store(v->undecided_y + i, undecided_y, 0);
        f64_store(v->x + i, x);
        f64_store(v->y + i, y);
        f64_store(v->error + i, error);
    }
    return any;
}

/* Repeats the fast test, in which pairs (0, 0) now pass.  Returns whether all pairs passed and were stored. */
NOINLINE int rotate_with_zeros(const head_row_t *h, ptrdiff_t pair, const char *in_a, const char *in_b, char *a, char *b) {
    vu64 failed;
    FOR_ORDER(h->rotation, failed = rotate_pairs(h->factors, pair, h->limits, in_a, in_b, a, b, DTYPE, INTERLEAVED, 1))
    return u64_is_zero(failed);
}

/* Rotates `width` pairs that failed the fast test.  The test is repeated if a value is 0.  Then an error bound for
 * each pair is used, and values that remain undecided are evaluated exactly. */
NOINLINE void settle_bunch(const head_row_t *h, ptrdiff_t pair, int width, const char *in_a, const char *in_b, char *out_a,
                           char *out_b, vu64 failed) {
    const rotation_t *const r = h->rotation;
    settled_t v;
    const vu64 ones = u64_set(0x0001000100010001), least = u64_load(h->limits->least);
    vu64 any = u16_excess(failed, u16_sub(least, u16_add(u64_load(h->limits->addend), ones)));
    if (!u64_is_zero(any) && rotate_with_zeros(h, pair, in_a, in_b, out_a, out_b)) return;
    FOR_ORDER(r, load_settled(&v, h->factors, pair, in_a, in_b, DTYPE, INTERLEAVED))
    any = r->dtype == FLOAT32   ? round_pairs(&v, h->limits, FLOAT32)
          : r->dtype == FLOAT16 ? round_pairs(&v, h->limits, FLOAT16)
                                : round_pairs(&v, h->limits, BFLOAT16);
    if (UNLIKELY(!u64_is_zero(any))) round_undecided(h, pair, width, &v);
    FOR_ORDER(r, store_settled(&v, out_a, out_b, DTYPE, INTERLEAVED))
    h->tally->uncertain++;
}

#endif
