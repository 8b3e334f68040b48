/* Rotates pairs of columns; each value is rounded once.
 *
 * The cosines and sines of a few rows are computed in float64, and stay in the cache while all heads are rotated.  float32
 * and float16 values are rotated in double; bfloat16 values in float, where each cosine and sine is split into two floats.
 *
 * Bounds of the error of a value (docs/numerics.md, section 7) for a pair (a, b), with c = m cos t and s = m sin t (m and t as
 * in kernel.h), u = 2**-53 and A = |m| sqrt(a**2 + b**2):
 *     in double, c and s correctly rounded:   3.25 u (|a c| + |b s|) <= 3.25 u A;
 *     in double, c and s evaluated directly:  10.5 u A + 2**-88 A;
 *     in float:                               2**-23 |value| + 2**-37.6 A.
 * The rotated values of a pair determine A.  If neither is smaller than 2**-12 times the other, these bounds are below
 * 2**14 ulp of a double, 2**16 ulp of a double and 2.4 ulp of a float.
 */
#ifndef POSENC_ROTARY_H
#define POSENC_ROTARY_H

#include "table/rows.h"

#define ROTATION_ERROR 0x1.ap-52        /* 3.25 u */
#define DIRECT_ROTATION_ERROR 0x1.5p-50 /* 10.5 u */
#define DIRECT_ROTATION_FLOOR 0x1p-88   /* relative to |m| (|a| + |b|) */
#define UNDERFLOW_ERROR 0x1p-900

enum {
    BUNCH = 4 * LANES > 16 ? 4 * LANES : 16,    /* pairs rotated together, which fill whole vectors for every dtype */
    GROUPS = BUNCH / (2 * LANES),               /* vectors of floats for one column of BUNCH pairs */
    ROWS_TOGETHER = 16,                         /* rows whose factors stay in L1 while all heads are rotated */
    HEADS_TOGETHER = 64
};

/* The first (a) and second (b) columns of BUNCH pairs. */
typedef struct {
    vf32 a[GROUPS], b[GROUPS];
} pairs_t;

/* ---- loads and stores ---------------------------------------------------------------------------------------------------- */

INLINE double magnitude_of(double x) { return x < 0 ? -x : x; }

INLINE vf32 load_floats(const char *p, dtype_t dtype) {
    return dtype == FLOAT32   ? f32_load((const float *)(const void *)p)
           : dtype == FLOAT16 ? f16_load((const uint16_t *)(const void *)p)
                              : bf16_load((const uint16_t *)(const void *)p);
}

INLINE void store_floats(char *p, vf32 first, vf32 second, dtype_t dtype) {
    if (dtype == FLOAT32) {
        u64_flush(p, bits_of_f32(first), 0);
        u64_flush(p + sizeof(vf32), bits_of_f32(second), 0);
    } else {
        u64_flush(p, dtype == FLOAT16 ? f16_of_f32(first, second) : bf16_of_f32(first, second), 0);
    }
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

/* ---- the fast path ------------------------------------------------------------------------------------------------------- */

/* Three tests of each value, on lanes of 32 bits.  A lane passes a test if an unsigned number does not exceed a limit.  The
 * largest number of each test is kept:
 *     near    the bits that rounding drops, shifted to the top of the lane, minus (half-way point + margin);
 *     ratio   the bits of the first magnitude of a pair minus those of the second, plus the largest allowed difference;
 *     range   the first value of a pair (float16: both) minus the smallest allowed; infinity and NaN exceed the limit. */
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

/* `scale` is |m| if the cosines and sines are evaluated directly, else 0. */
static limits_t limits_of(dtype_t dtype, double scale) {
    const uint32_t half = dtype == FLOAT32 ? 1u << 28 : dtype == FLOAT16 ? 1u << 12 : 1u << 15;
    /* a value at least this far from a half-way point passes; in ulp of a double for float32, else of a float */
    const uint32_t margin = dtype == FLOAT32 ? scale != 0 ? 1u << 16 : 1u << 14 : dtype == FLOAT16 ? 1 : 3;
    const uint32_t binades = (dtype == FLOAT16 ? 20u : 12u) << 23;
    /* 2**-13 for float16, twice its smallest normal number; else 2**-100, so that no significant bits underflow */
    const uint32_t smallest = (127u - (dtype == FLOAT16 ? 13u : 100u)) << 23;
    limits_t l = {.share = scale != 0 ? DIRECT_ROTATION_ERROR : ROTATION_ERROR, .floor = scale * DIRECT_ROTATION_FLOOR};
    set_both_halves(l.past_half, (half + margin) << dropped_shift(dtype));
    set_both_halves(l.near, ~((2 * margin - 1) << dropped_shift(dtype)));
    set_both_halves(l.binades, binades);
    set_both_halves(l.ratio, 2 * binades);
    set_both_halves(l.smallest, smallest);
    set_both_halves(l.range, 0x7f7fffffu - smallest);
    return l;
}

INLINE void keep_largest(vu64 *largest, vu64 x, int first) { *largest = first ? x : u32_max(*largest, x); }

INLINE void test_near(tests_t *tests, const limits_t *limits, vu64 dropped, dtype_t dtype, int first) {
    keep_largest(&tests->near, u32_sub(u64_shl(dropped, dropped_shift(dtype)), u64_load(limits->past_half)), first);
}

INLINE void test_pair(tests_t *tests, const limits_t *limits, vf32 a, vf32 b, dtype_t dtype, int first) {
    const vu64 magnitude = u64_set((uint64_t)INT32_MAX << 32 | INT32_MAX), smallest = u64_load(limits->smallest);
    const vu64 x = u64_and(bits_of_f32(a), magnitude), y = u64_and(bits_of_f32(b), magnitude);
    keep_largest(&tests->ratio, u32_add(u32_sub(x, y), u64_load(limits->binades)), first);
    keep_largest(&tests->range, u32_sub(x, smallest), first);
    if (dtype == FLOAT16) keep_largest(&tests->range, u32_sub(y, smallest), 0);
    if (dtype != FLOAT32) {
        test_near(tests, limits, bits_of_f32(a), dtype, first);
        test_near(tests, limits, bits_of_f32(b), dtype, 0);
    }
}

INLINE vu64 excess(vu64 x, const uint64_t *limit) { return u64_xor(u32_max(x, u64_load(limit)), u64_load(limit)); }

INLINE int is_uncertain(const tests_t *tests, const limits_t *limits) {
    const vu64 near = excess(tests->near, limits->near), ratio = excess(tests->ratio, limits->ratio);
    return !u64_is_zero(u64_or(near, u64_or(ratio, excess(tests->range, limits->range))));
}

/* Rotates BUNCH pairs by `factors`, BUNCH cosines and then BUNCH sines.  Returns whether a value is uncertain. */
INLINE int rotate_in_double(pairs_t *v, const char *in_a, const char *in_b, const double *factors, const limits_t *limits,
                            dtype_t dtype, int interleaved) {
    tests_t tests;
    for (int g = 0; g < GROUPS; g++) {
        vf64 a[2], b[2], x[2], y[2];
        if (dtype != FLOAT32 || interleaved) {
            f64_of_f32(v->a[g], &a[0], &a[1]);
            f64_of_f32(v->b[g], &b[0], &b[1]);
        }
        for (int i = 0; i < 2; i++) {
            if (dtype == FLOAT32 && !interleaved) {
                a[i] = f64_load_f32((const float *)(const void *)in_a + (2 * g + i) * LANES);
                b[i] = f64_load_f32((const float *)(const void *)in_b + (2 * g + i) * LANES);
            }
            const vf64 c = f64_load(factors + (2 * g + i) * LANES), s = f64_load(factors + BUNCH + (2 * g + i) * LANES);
            x[i] = f64_mulsub(a[i], c, f64_mul(b[i], s));
            y[i] = f64_muladd(b[i], c, f64_mul(a[i], s));
        }
        v->a[g] = f32_of_f64(x[0], x[1]);
        v->b[g] = f32_of_f64(y[0], y[1]);
        if (dtype == FLOAT32) {
            test_near(&tests, limits, u64_low_halves(bits_of_f64(x[0]), bits_of_f64(x[1])), dtype, g == 0);
            test_near(&tests, limits, u64_low_halves(bits_of_f64(y[0]), bits_of_f64(y[1])), dtype, 0);
        }
        test_pair(&tests, limits, v->a[g], v->b[g], dtype, g == 0);
    }
    return is_uncertain(&tests, limits);
}

/* Does the same in float; each factor is a sum of two floats.  Products with the larger float are exact. */
INLINE int rotate_in_float(pairs_t *v, const float *factors, const limits_t *limits, dtype_t dtype) {
    tests_t tests;
    for (int g = 0; g < GROUPS; g++) {
        const float *const at = factors + g * 2 * LANES;
        const vf32 c = f32_load(at), c_low = f32_load(at + BUNCH), s = f32_load(at + 2 * BUNCH),
                   s_low = f32_load(at + 3 * BUNCH);
        const vf32 a = v->a[g], b = v->b[g];
        v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c_low, f32_mul(b, s_low)));
        v->b[g] = f32_add(f32_muladd(b, c, f32_mul(a, s)), f32_muladd(b, c_low, f32_mul(a, s_low)));
        test_pair(&tests, limits, v->a[g], v->b[g], dtype, g == 0);
    }
    return is_uncertain(&tests, limits);
}

/* ---- pairs with an uncertain value --------------------------------------------------------------------------------------- */

/* A row of one head.  `table` has the interleaved cosines and sines of the row; `factors` has the factors
 * that `spread` computes from them. */
typedef struct {
    const rotation_t *rotation;
    const limits_t *limits;
    ptrdiff_t row;
    const double *factors, *table;
    const char *x;
    const char *ahead; /* the same row of the next head, to prefetch */
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

/* Rounds factors[0] * cosine + factors[1] * sine, which `settle_half` left undecided. */
static double undecided_value(const head_row_t *h, ptrdiff_t pair, const double factors[2], double value, double error) {
    const rotation_t *r = h->rotation;
    const int is_finite = factors[0] - factors[0] == 0 && factors[1] - factors[1] == 0;
    if (is_finite && r->has_fast_path) {
        const double below = round_to(r->dtype, value - error), above = round_to(r->dtype, value + error);
        if (bits_of_double(below) == bits_of_double(above)) return below;
    }
    if (factors[0] != factors[0] || factors[1] != factors[1]) return double_of_bits(0x7ff8000000000000u);
    double c = h->table[2 * pair], s = h->table[2 * pair + 1];
    const double uncertain = 2 * h->limits->floor;
    if (is_finite || !r->has_fast_path || magnitude_of(c) <= uncertain || magnitude_of(s) <= uncertain) {
        h->tally->exact++;
        ptrdiff_t column;
        const rotary_axis_t *t = columns_of_pair(r, pair, &column);
        const position_t position = position_of(t->spec, &t->table, h->row);
        if (is_finite) return posenc_combination(t->spec, &position, column, factors, r->dtype);
        c = posenc_exact(t->spec, &position, column, FLOAT64);
        s = posenc_exact(t->spec, &position, column + 1, FLOAT64);
    }
    /* only the signs of c and s matter */
    const double infinite = factors[0] * c + factors[1] * s;
    return infinite == infinite ? infinite : double_of_bits(0x7ff8000000000000u);
}

/* Rounds first[i] * c[i] + second[i] * s[i] for each pair, using the error bound of each value. */
NOINLINE void settle_half(const head_row_t *h, ptrdiff_t pair, int width, const double *first, const double *second,
                          const double *c, const double *s, float *result) {
    const format_t format = format_of(h->rotation->dtype);
    const uint64_t no_fast_path = !h->rotation->has_fast_path;
    const double share = h->limits->share, floor = h->limits->floor;
    const int drop = 53 - format.precision;
    const uint64_t half = (uint64_t)1 << (drop - 1), normal = bits_of_double(power_of_two(format.min_exponent));
    double value[BUNCH], error[BUNCH];
    uint64_t undecided[BUNCH], any = 0;
    for (int i = 0; i < BUNCH; i++) {
        const double p = first[i] * c[i], q = second[i] * s[i];
        value[i] = p + q;
        error[i] = (magnitude_of(p) + magnitude_of(q)) * share;
        error[i] += (magnitude_of(first[i]) + magnitude_of(second[i])) * floor + UNDERFLOW_ERROR;
        /* rounds half-way points away from zero; such values are always undecided */
        const uint64_t below = bits_of_double(value[i] - error[i]) + half, above = bits_of_double(value[i] + error[i]) + half;
        const uint64_t magnitude = below & INT64_MAX;
        undecided[i] = (below ^ above) >> drop | (uint64_t)(magnitude < normal + half) |
                       (uint64_t)(magnitude >= (uint64_t)(1023 + 200) << 52) | no_fast_path;
        if (first[i] == 0 && second[i] == 0) undecided[i] = 0;
        any |= undecided[i];
        result[i] = (float)double_of_bits(below >> drop << drop);
        if (first[i] == 0 && second[i] == 0) result[i] = 0;
    }
    for (int i = 0; any && i < width; i++) {
        const double factors[2] = {first[i], second[i]};
        if (undecided[i]) result[i] = (float)undecided_value(h, pair + i, factors, value[i], error[i]);
    }
}

/* Compiles `statement` for each dtype and layout of the pairs, with DTYPE and INTERLEAVED as constants. */
#define ORDER_CASES(T, r, statement) \
    case T: { \
        const dtype_t DTYPE = T; \
        if ((r)->interleaved) { \
            const int INTERLEAVED = 1; \
            statement; \
        } else { \
            const int INTERLEAVED = 0; \
            statement; \
        } \
    } break;
#define FOR_ORDER(r, statement) \
    switch ((r)->dtype) { \
        ORDER_CASES(FLOAT32, r, statement) \
        ORDER_CASES(FLOAT16, r, statement) \
        ORDER_CASES(BFLOAT16, r, statement) \
    default: break; \
    }

NOINLINE void load_bunch(const rotation_t *r, const char *in_a, const char *in_b, float a[BUNCH], float b[BUNCH]) {
    pairs_t v;
    FOR_ORDER(r, v = load_pairs(in_a, in_b, DTYPE, INTERLEAVED))
    for (int g = 0; g < GROUPS; g++) {
        u64_flush(a + g * 2 * LANES, bits_of_f32(v.a[g]), 0);
        u64_flush(b + g * 2 * LANES, bits_of_f32(v.b[g]), 0);
    }
}

NOINLINE void store_bunch(const rotation_t *r, char *out_a, char *out_b, const float a[BUNCH], const float b[BUNCH]) {
    pairs_t v;
    for (int g = 0; g < GROUPS; g++) {
        v.a[g] = f32_load(a + g * 2 * LANES);
        v.b[g] = f32_load(b + g * 2 * LANES);
    }
    FOR_ORDER(r, store_pairs(out_a, out_b, &v, DTYPE, INTERLEAVED))
}

/* Rotates `width` pairs, using the error bound of each value; values that remain undecided are evaluated exactly. */
NOINLINE void settle_bunch(const head_row_t *h, ptrdiff_t pair, int width, const char *in_a, const char *in_b, char *out_a,
                           char *out_b) {
    const rotation_t *r = h->rotation;
    const double *table = h->table + 2 * pair;
    ALIGNED float a[BUNCH], b[BUNCH];
    double x[BUNCH], y[BUNCH], turned_x[BUNCH], turned_y[BUNCH], c[BUNCH], s[BUNCH];
    load_bunch(r, in_a, in_b, a, b);
    for (int i = 0; i < BUNCH; i++) {
        x[i] = a[i];
        y[i] = b[i];
        turned_x[i] = r->inverse ? -x[i] : x[i];
        turned_y[i] = r->inverse ? y[i] : -y[i];
        c[i] = table[2 * i];
        s[i] = table[2 * i + 1];
    }
    settle_half(h, pair, width, x, turned_y, c, s, a);
    settle_half(h, pair, width, y, turned_x, c, s, b);
    h->tally->uncertain++;
    store_bunch(r, out_a, out_b, a, b);
}

/* ---- a row --------------------------------------------------------------------------------------------------------------- */

INLINE void rotate_pairs(const head_row_t *h, ptrdiff_t pair, int width, const char *in_a, const char *in_b, char *a, char *b,
                         dtype_t dtype, int interleaved) {
    const double *factors = h->factors + 2 * pair;
    pairs_t v = load_pairs(in_a, in_b, dtype, interleaved);
    const int uncertain = dtype == BFLOAT16 ? rotate_in_float(&v, (const float *)(const void *)factors, h->limits, dtype)
                                            : rotate_in_double(&v, in_a, in_b, factors, h->limits, dtype, interleaved);
    if (UNLIKELY(uncertain) && !h->rotation->skip_rounding_test) settle_bunch(h, pair, width, in_a, in_b, a, b);
    else store_pairs(a, b, &v, dtype, interleaved);
}

/* Copies the last pairs of a row, fewer than BUNCH, to a buffer, and sets the rest of it to 1; these values pass the tests. */
NOINLINE void load_last_pairs(const head_row_t *h, ptrdiff_t pair, char buffer[2 * BUNCH * sizeof(float)]) {
    const rotation_t *r = h->rotation;
    const ptrdiff_t size = size_of(r->dtype), at = pair * size;
    const size_t bytes = (size_t)((r->pairs - pair) * size);
    const uint64_t ones = r->dtype == FLOAT32 ? 0x3f8000003f800000 : r->dtype == FLOAT16 ? 0x3c003c003c003c00 : 0x3f803f803f803f80;
    for (size_t i = 0; i < 2 * BUNCH * sizeof(float); i += sizeof ones) memcpy(buffer + i, &ones, sizeof ones);
    if (r->interleaved) {
        memcpy(buffer, h->x + 2 * at, 2 * bytes);
    } else {
        memcpy(buffer, h->x + at, bytes);
        memcpy(buffer + BUNCH * size, h->x + r->pairs * size + at, bytes);
    }
}

NOINLINE void store_last_pairs(const head_row_t *h, ptrdiff_t pair, const char *buffer) {
    const rotation_t *r = h->rotation;
    const ptrdiff_t size = size_of(r->dtype), at = pair * size;
    const size_t bytes = (size_t)((r->pairs - pair) * size);
    if (r->interleaved) {
        memcpy(h->out + 2 * at, buffer, 2 * bytes);
    } else {
        memcpy(h->out + at, buffer, bytes);
        memcpy(h->out + r->pairs * size + at, buffer + BUNCH * size, bytes);
    }
}

INLINE void rotate_head_row(const head_row_t *h, dtype_t dtype, int interleaved) {
    const rotation_t *r = h->rotation;
    const ptrdiff_t size = size_of(dtype), half = interleaved ? 0 : r->pairs * size, step = (interleaved ? 2 : 1) * size;
    ALIGNED char buffer[2 * BUNCH * sizeof(float)];
    for (ptrdiff_t pair = 0; pair < r->pairs; pair += BUNCH) {
        const char *a = h->x + pair * step, *b = a + half;
        char *to_a = h->out + pair * step, *to_b = to_a + half;
        const int width = minimum(r->pairs - pair, BUNCH);
        if (UNLIKELY(width < BUNCH)) {
            load_last_pairs(h, pair, buffer);
            a = to_a = buffer;
            b = to_b = buffer + BUNCH * size;
        } else {
            for (ptrdiff_t i = 0; i < BUNCH * step; i += LINE) {
                PREFETCH(h->ahead + pair * step + i);
                if (!interleaved) PREFETCH(h->ahead + half + pair * step + i);
            }
        }
        rotate_pairs(h, pair, width, a, b, to_a, to_b, dtype, interleaved);
        if (UNLIKELY(width < BUNCH)) store_last_pairs(h, pair, buffer);
    }
    if (r->rest && h->out != h->x) memcpy(h->out + 2 * r->pairs * size, h->x + 2 * r->pairs * size, (size_t)(r->rest * size));
}

/* ---- rows of all heads --------------------------------------------------------------------------------------------------- */

/* Computes the offsets, in bytes, of the indices first .. first + count - 1 of an extent. */
static void offsets_of(const extent_t *e, ptrdiff_t first, ptrdiff_t count, ptrdiff_t *x, ptrdiff_t *out) {
    for (ptrdiff_t i = 0; i < count; i++) {
        ptrdiff_t rest = first + i;
        x[i] = out[i] = 0;
        for (int axis = e->axes - 1; axis >= 0; axis--) {
            const ptrdiff_t index = rest % e->shape[axis];
            rest /= e->shape[axis];
            x[i] += index * e->x_strides[axis];
            out[i] += index * e->out_strides[axis];
        }
    }
}

/* A group of rows and heads, with their offsets in bytes; `factors` and `table` have `pitch` numbers for each row. */
typedef struct {
    const rotation_t *rotation;
    const limits_t *limits;
    ptrdiff_t row, rows, heads, pitch;
    const ptrdiff_t *row_x, *row_out;
    ptrdiff_t head_x[HEADS_TOGETHER], head_out[HEADS_TOGETHER];
    const double *factors, *table;
    tally_t *tally;
} patch_t;

INLINE void rotate_at(const patch_t *p, ptrdiff_t i, ptrdiff_t head, dtype_t dtype, int interleaved) {
    const head_row_t h = {.rotation = p->rotation,
                          .limits = p->limits,
                          .row = p->row + i,
                          .factors = p->factors + i * p->pitch,
                          .table = p->table + i * p->pitch,
                          .x = p->rotation->x + p->row_x[i] + p->head_x[head],
                          .ahead = p->rotation->x + p->row_x[i] + p->head_x[head + 1 < p->heads ? head + 1 : head],
                          .out = p->rotation->out + p->row_out[i] + p->head_out[head],
                          .tally = p->tally};
    rotate_head_row(&h, dtype, interleaved);
}

INLINE ptrdiff_t last_stride(const extent_t *e) {
    const ptrdiff_t stride = e->axes ? e->x_strides[e->axes - 1] : 0;
    return stride < 0 ? -stride : stride;
}

/* The inner loop runs over heads or rows, whichever have the smaller stride. */
INLINE void rotate_patch(const patch_t *p, dtype_t dtype, int interleaved) {
    const int heads_inside = last_stride(&p->rotation->heads) < last_stride(&p->rotation->rows);
    const ptrdiff_t outside = heads_inside ? p->rows : p->heads, inside = heads_inside ? p->heads : p->rows;
    for (ptrdiff_t i = 0; i < outside; i++)
        for (ptrdiff_t j = 0; j < inside; j++) rotate_at(p, heads_inside ? i : j, heads_inside ? j : i, dtype, interleaved);
}

NOINLINE void patch_of_order(const patch_t *p) { FOR_ORDER(p->rotation, rotate_patch(p, DTYPE, INTERLEAVED)) }

/* ---- cosines and sines --------------------------------------------------------------------------------------------------- */

static ptrdiff_t pitch_of(const rotation_t *r) { return 2 * ((r->pairs + BUNCH - 1) / BUNCH * BUNCH); }

/* Evaluates the cosines and sines of a row directly, in double. */
NOINLINE void direct_row(const spec_t *spec, const position_t *position, double *row) {
    const vf64 scale = f64_set(spec->scale);
    for (ptrdiff_t column = 0; column < spec->d_model; column += 2 * LANES) {
        ALIGNED double pairs[2 * LANES];
        vf64 s, c, low, high;
        direct_double(spec, position, column, PAIRS, &s, &c);
        f64_interleave(f64_mul(c, scale), f64_mul(s, scale), &low, &high);
        f64_store(pairs, low);
        f64_store(pairs + LANES, high);
        memcpy(row + column, pairs, (size_t)minimum(spec->d_model - column, 2 * LANES) * sizeof *row);
    }
}

/* Returns whether cosines and sines are evaluated directly: if there is a fast path but no offset table. */
static int is_direct(const rotation_t *r, const rotary_axis_t *t) { return t->table.offsets == NULL && r->has_fast_path; }

/* Writes the interleaved cosines and sines of `count` rows to `table`, and 1 and 1/2 for the unused pairs of the last bunch. */
NOINLINE void fill_table(const rotation_t *r, ptrdiff_t row, ptrdiff_t count, double *table, double *part, tally_t *tally) {
    const ptrdiff_t pitch = pitch_of(r);
    for (const rotary_axis_t *t = r->axis; t < r->axis + r->position_axes; t++) {
        job_t job = t->table;
        double *const to = t->pair ? part : table;
        job.out = (char *)to;
        job.row_stride = pitch * (ptrdiff_t)sizeof(double);
        if (job.integers) job.integers += row;
        else job.start += (uint64_t)row * job.step;
        for (ptrdiff_t i = 0; i < count && is_direct(r, t); i++) {
            const position_t position = position_of(t->spec, &job, i);
            direct_row(t->spec, &position, to + i * pitch);
        }
        if (!is_direct(r, t)) rows(t->spec, &job, 0, count, NULL, tally);
        for (ptrdiff_t i = 0; t->pair && i < count; i++)
            for (ptrdiff_t j = 0; 2 * j < t->spec->d_model; j++)
                memcpy(table + i * pitch + 2 * t->pair[j], part + i * pitch + 2 * j, 2 * sizeof(double));
    }
    for (ptrdiff_t i = 0; i < count; i++)
        for (ptrdiff_t j = 2 * r->pairs; j < pitch; j += 2) table[i * pitch + j] = 1, table[i * pitch + j + 1] = 0.5;
}

INLINE double upper_bits(double x) {
    return double_of_bits((bits_of_double(x) + ((uint64_t)1 << 36)) & ~(((uint64_t)1 << 37) - 1));
}

/* Converts a row of the table to factors: for every BUNCH pairs, first their cosines c, then their sines s.  For bfloat16, each
 * is split into two floats, in the order c, c_low, s, s_low, where c and s have 16 significant bits. */
NOINLINE void spread(const rotation_t *r, const double *table, double *factors) {
    /* without a fast path, the factors are NaN, which makes every value uncertain */
    const double unit = r->has_fast_path ? 1 : double_of_bits(0x7ff8000000000000u), sign = r->inverse ? -unit : unit;
    const ptrdiff_t end = pitch_of(r);
    for (ptrdiff_t at = 0; at < end; at += 2 * BUNCH, table += 2 * BUNCH, factors += 2 * BUNCH) {
        if (r->dtype != BFLOAT16) {
            for (int i = 0; i < BUNCH; i++) factors[i] = unit * table[2 * i], factors[BUNCH + i] = sign * table[2 * i + 1];
            continue;
        }
        float *const split = (float *)(void *)factors;
        for (int i = 0; i < BUNCH; i++) {
            const double c = unit * table[2 * i], s = sign * table[2 * i + 1], c_upper = upper_bits(c), s_upper = upper_bits(s);
            split[i] = (float)c_upper;
            split[BUNCH + i] = (float)(c - c_upper);
            split[2 * BUNCH + i] = (float)s_upper;
            split[3 * BUNCH + i] = (float)(s - s_upper);
        }
    }
}

/* ---- entry points -------------------------------------------------------------------------------------------------------- */

static size_t rotation_memory(const rotation_t *r) {
    const int has_parts = r->position_axes > 1 || (r->position_axes && r->axis->pair);
    const ptrdiff_t numbers = pitch_of(r) * ((1 + has_parts) * r->most_rows + ROWS_TOGETHER);
    const ptrdiff_t offsets = 2 * r->most_rows;
    return (size_t)numbers * sizeof(double) + (size_t)offsets * sizeof(ptrdiff_t) + LINE;
}

static void rotation(const rotation_t *r, ptrdiff_t row, ptrdiff_t count, ptrdiff_t head, ptrdiff_t heads, char *memory,
                     tally_t *tally) {
    const environment_t host = environment_enter();
    const ptrdiff_t pitch = pitch_of(r), end = head + heads;
    double *const table = (double *)(void *)memory, *const factors = table + pitch * r->most_rows;
    ptrdiff_t *const row_x = (ptrdiff_t *)(void *)(factors + pitch * ROWS_TOGETHER), *const row_out = row_x + r->most_rows;
    double *const part = (double *)(void *)(row_out + r->most_rows);
    double direct_scale = 0;
    for (int i = 0; i < r->position_axes; i++)
        if (is_direct(r, &r->axis[i])) direct_scale = magnitude_of(r->axis[i].spec->scale);
    const limits_t limits = limits_of(r->dtype, direct_scale);
    tally_t table_tally = {0};
    fill_table(r, row, count, table, part, &table_tally);
    offsets_of(&r->rows, row, count, row_x, row_out);
    for (ptrdiff_t first = 0; first < count; first += ROWS_TOGETHER) {
        patch_t p = {.rotation = r,
                     .limits = &limits,
                     .row = row + first,
                     .rows = minimum(count - first, ROWS_TOGETHER),
                     .pitch = pitch,
                     .row_x = row_x + first,
                     .row_out = row_out + first,
                     .factors = factors,
                     .table = table + first * pitch,
                     .tally = tally};
        for (ptrdiff_t i = 0; i < p.rows; i++) spread(r, p.table + i * pitch, factors + i * pitch);
        for (ptrdiff_t h = head; h < end; h += HEADS_TOGETHER) {
            p.heads = minimum(end - h, HEADS_TOGETHER);
            offsets_of(&r->heads, h, p.heads, p.head_x, p.head_out);
            patch_of_order(&p);
        }
    }
    environment_leave(host);
}

#endif
