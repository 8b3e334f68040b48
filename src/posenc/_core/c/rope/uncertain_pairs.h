/* Rounds pairs with an uncertain value, using the error bound of each value, and evaluates those that remain undecided. */
#ifndef POSENC_UNCERTAIN_PAIRS_H
#define POSENC_UNCERTAIN_PAIRS_H

#include "rope/pairs.h"

#define UNDERFLOW_ERROR 0x1p-900

/* A row of one head. */
typedef struct {
    const rotation_t *rotation;
    const limits_t *limits;
    ptrdiff_t position;                         /* its index */
    const double *factors;
    const char *x, *ahead;                      /* `ahead` is a row to prefetch */
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

/* Rounds factors[0] * cosine + factors[1] * sine, which `settle_half` left undecided; c and s have errors. */
static double undecided_value(const head_row_t *h, ptrdiff_t pair, const double factors[2], double c, double s, double value,
                              double error) {
    const rotation_t *r = h->rotation;
    const int is_finite = factors[0] - factors[0] == 0 && factors[1] - factors[1] == 0;
    if (is_finite && r->has_fast_path) {
        const double below = round_to(r->dtype, value - error), above = round_to(r->dtype, value + error);
        if (bits_of_double(below) == bits_of_double(above)) return below;
    }
    if (factors[0] != factors[0] || factors[1] != factors[1]) return double_of_bits(0x7ff8000000000000u);
    const double uncertain = 2 * h->limits->floor;
    if (is_finite || !r->has_fast_path || magnitude_of(c) <= uncertain || magnitude_of(s) <= uncertain) {
        h->tally->exact++;
        ptrdiff_t column;
        const rotary_axis_t *t = columns_of_pair(r, pair, &column);
        const position_t position = position_of(t->spec, &t->table, h->position);
        if (!position.finite) return double_of_bits(0x7ff8000000000000u);
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
        /* without a fast path, `undecided_value` tests whether the position is finite */
        const int is_nan = c[i] != c[i] && !no_fast_path, is_zero = first[i] == 0 && second[i] == 0 && !no_fast_path;
        if (is_nan || is_zero) undecided[i] = 0;
        any |= undecided[i];
        result[i] = (float)double_of_bits(below >> drop << drop);
        if (is_zero) result[i] = 0;
        if (is_nan) result[i] = (float)double_of_bits(0x7ff8000000000000u);
    }
    for (int i = 0; any && i < width; i++) {
        const double factors[2] = {first[i], second[i]};
        if (undecided[i]) result[i] = (float)undecided_value(h, pair + i, factors, c[i], s[i], value[i], error[i]);
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

/* Copies BUNCH pairs as floats. */
INLINE void load_bunch(const char *in_a, const char *in_b, float a[BUNCH], float b[BUNCH], dtype_t dtype, int interleaved) {
    if (dtype == FLOAT32) {
        const float *const first = (const float *)(const void *)in_a, *const second = (const float *)(const void *)in_b;
        for (int i = 0; i < BUNCH; i++) {
            a[i] = interleaved ? first[2 * i] : first[i];
            b[i] = interleaved ? first[2 * i + 1] : second[i];
        }
    } else {
        const pairs_t v = load_pairs(in_a, in_b, dtype, interleaved);
        for (int g = 0; g < GROUPS; g++) {
            u64_flush(a + g * 2 * LANES, bits_of_f32(v.a[g]), 0);
            u64_flush(b + g * 2 * LANES, bits_of_f32(v.b[g]), 0);
        }
    }
}

INLINE void store_bunch(char *out_a, char *out_b, const float a[BUNCH], const float b[BUNCH], dtype_t dtype, int interleaved) {
    if (dtype == FLOAT32) {
        float *const first = (float *)(void *)out_a, *const second = (float *)(void *)out_b;
        for (int i = 0; i < BUNCH; i++) {
            *(interleaved ? first + 2 * i : first + i) = a[i];
            *(interleaved ? first + 2 * i + 1 : second + i) = b[i];
        }
    } else {
        pairs_t v;
        for (int g = 0; g < GROUPS; g++) {
            v.a[g] = f32_load(a + g * 2 * LANES);
            v.b[g] = f32_load(b + g * 2 * LANES);
        }
        store_pairs(out_a, out_b, &v, dtype, interleaved);
    }
}

/* Rotates `width` pairs, using the error bound of each value; values that remain undecided are evaluated exactly. */
NOINLINE void settle_bunch(const head_row_t *h, ptrdiff_t pair, int width, const char *in_a, const char *in_b, char *out_a,
                           char *out_b) {
    const rotation_t *r = h->rotation;
    const double *const factors = h->factors + 2 * pair;
    const float *const split = (const float *)(const void *)factors;
    ALIGNED float a[BUNCH], b[BUNCH];
    double x[BUNCH], y[BUNCH], turned_x[BUNCH], turned_y[BUNCH], c[BUNCH], s[BUNCH];
    FOR_ORDER(r, load_bunch(in_a, in_b, a, b, DTYPE, INTERLEAVED))
    for (int i = 0; i < BUNCH; i++) {
        x[i] = a[i];
        y[i] = b[i];
        turned_x[i] = r->inverse ? -x[i] : x[i];
        turned_y[i] = r->inverse ? y[i] : -y[i];
        if (r->dtype != FLOAT32) {
            const float *const at = split + factor_index(i, 4 * BLOCK_PAIRS);
            c[i] = (double)at[0] + at[BLOCK_PAIRS];
            s[i] = (double)at[2 * BLOCK_PAIRS] + at[3 * BLOCK_PAIRS];
        } else {
            const double *const at = factors + factor_index(i, 2 * BLOCK_PAIRS);
            c[i] = at[0];
            s[i] = at[BLOCK_PAIRS];
        }
        if (r->inverse) s[i] = -s[i];
    }
    settle_half(h, pair, width, x, turned_y, c, s, a);
    settle_half(h, pair, width, y, turned_x, c, s, b);
    h->tally->uncertain++;
    FOR_ORDER(r, store_bunch(out_a, out_b, a, b, DTYPE, INTERLEAVED))
}

#endif
