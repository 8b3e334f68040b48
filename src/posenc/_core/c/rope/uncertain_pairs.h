/* Rounds pairs that have an uncertain value, using an error bound for each pair, and evaluates undecided values exactly. */
#ifndef POSENC_UNCERTAIN_PAIRS_H
#define POSENC_UNCERTAIN_PAIRS_H

#include "rope/pairs.h"

#define UNDERFLOW_ERROR 0x1p-760

/* A row of one head. */
typedef struct {
    const rotation_t *rotation;
    const limits_t *limits;
    ptrdiff_t position;                         /* index of the row's position */
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

/* Rounds factors[0] * cosine + factors[1] * sine, the first or, if `is_second`, the second value of a pair.  c and s approximate
 * the cosine and the sine; the value computed from c and s has an error below `error`. */
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

/* BUNCH pairs in the order of load_pairs: their numbers (a, b), factors (c, s), rotated values (x, y) and error bounds. */
typedef struct {
    ALIGNED double a[BUNCH], b[BUNCH], c[BUNCH], s[BUNCH], x[BUNCH], y[BUNCH], error[BUNCH];
} settled_t;

/* Rounds the values of the first `width` pairs; undecided ones are evaluated. */
COLD void evaluate_undecided(const head_row_t *h, ptrdiff_t pair, int width, settled_t *v) {
    const rotation_t *r = h->rotation;
    const double sign = r->inverse ? -1 : 1;
    for (int i = 0; i < BUNCH; i++) {
        const int at = is_split(r) ? i / (4 * LANES) * (4 * LANES) + i / (2 * LANES) % 2 + i % (2 * LANES) * 2 : i;
        const double for_x[2] = {v->a[i], -sign * v->b[i]}, for_y[2] = {v->b[i], sign * v->a[i]}, s = sign * v->s[i];
        if (at >= width) continue;
        v->x[i] = undecided_value(h, pair + at, 0, for_x, v->c[i], s, v->error[i]);
        v->y[i] = undecided_value(h, pair + at, 1, for_y, v->c[i], s, v->error[i]);
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

/* Rounds each value for which value - error and value + error round to the same number.  Returns a vector that is nonzero
 * for all other values, and for values that are subnormal, infinite, NaN or at least 2**200. */
INLINE vu64 round_values(vf64 *value, vf64 error, dtype_t dtype) {
    const vu64 magnitude = u64_and(bits_of_f64(*value), u64_set(INT64_MAX));
    const vu64 too_large = u64_shr(u64_sub(u64_set(((uint64_t)(1023 + 200) << 52) - 1), magnitude), 63);
    return u64_or(too_large, undecided_double(value, error, dtype));
}

/* Rotates the pairs, and rounds the values that the bounds of their errors decide.  Returns zero if these are all values. */
INLINE vu64 round_pairs(settled_t *v, const limits_t *limits, dtype_t dtype) {
    const vf64 share = f64_set(limits->share), floor = f64_set(limits->floor), underflow = f64_set(UNDERFLOW_ERROR);
    vu64 any = u64_set(0);
    for (int i = 0; i < BUNCH; i += LANES) {
        const vf64 a = f64_load(v->a + i), b = f64_load(v->b + i), c = f64_load(v->c + i), s = f64_load(v->s + i);
        const vf64 factors = f64_add(f64_abs(c), f64_abs(s)), numbers = f64_add(f64_abs(a), f64_abs(b));
        const vf64 error = f64_add(f64_mul(numbers, f64_add(f64_mul(factors, share), floor)), underflow);
        vf64 x = f64_sub(f64_mul(a, c), f64_mul(b, s)), y = f64_add(f64_mul(b, c), f64_mul(a, s));
        any = u64_or(any, u64_or(round_values(&x, error, dtype), round_values(&y, error, dtype)));
        f64_store(v->x + i, x);
        f64_store(v->y + i, y);
        f64_store(v->error + i, error);
    }
    return any;
}

/* Rotates `width` pairs, using an error bound for each pair; values that remain undecided are evaluated exactly. */
NOINLINE void settle_bunch(const head_row_t *h, ptrdiff_t pair, int width, const char *in_a, const char *in_b, char *out_a,
                           char *out_b) {
    const rotation_t *const r = h->rotation;
    settled_t v;
    vu64 any;
    FOR_ORDER(r, load_settled(&v, h->factors, pair, in_a, in_b, DTYPE, INTERLEAVED))
    any = r->dtype == FLOAT32   ? round_pairs(&v, h->limits, FLOAT32)
          : r->dtype == FLOAT16 ? round_pairs(&v, h->limits, FLOAT16)
                                : round_pairs(&v, h->limits, BFLOAT16);
    if (UNLIKELY(!u64_is_zero(any))) evaluate_undecided(h, pair, width, &v);
    FOR_ORDER(r, store_settled(&v, out_a, out_b, DTYPE, INTERLEAVED))
    h->tally->uncertain++;
}

#endif
