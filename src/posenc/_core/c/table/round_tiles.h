/* Rounds tiles of a row whose cosines and sines are products of factors (direct.h), and stores them. */
#ifndef POSENC_ROUND_TILES_H
#define POSENC_ROUND_TILES_H

#include "table/decide_rounding.h"

/* The error bounds of sines ([0]) and of cosines ([1]), and the addends of their fast test (not for float64).  If
 * columns are not paired, [0] is for all columns. */
typedef struct {
    ALIGNED double error[2][TILE];
    ALIGNED uint64_t addend[2][TILE / 2];
} limit_t;

/* The smallest |value| with this error that may pass the fast test. */
INLINE double smallest_of(double error, dtype_t dtype) {
    return error * (smallest_share(dtype) / DOUBLE_ERROR) + 2 * smallest_normal(dtype);
}

/* Computes the addends for the error bounds of `count` angles; only columns of zeros have an error of 0. */
static void set_addends(limit_t *limit, int count, dtype_t dtype) {
    ALIGNED double least[TILE];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < count; i++) {
            const double error = limit->error[k][i];
            least[i] = error == 0 ? 0 : smallest_of(error, dtype);
        }
        store_addends(limit->addend[k], least, count, dtype);
    }
}

/* Adjacent tiles of a row: the product of some factors (all but the first may be NULL) and, if `radians` is not NULL,
 * of the cosines and sines of rest * (radians + radians_low).  The next tile of a factor is `stride` numbers later.
 * Pairs are interleaved or, if `half_bytes` is not 0, their second columns are stored `half_bytes` bytes after the
 * first columns. */
typedef struct {
    const double *factor[3], *radians, *radians_low;
    ptrdiff_t stride, half_bytes;
    double rest;
    int tiles, streamed;
    order_t order;
    uint64_t sign; /* the sign bit of the position */
    const uint64_t *quarter; /* of the first column */
    const limit_t *limits;
} product_t;

INLINE void complex_product(vf64 c, vf64 s, vf64 cosine, vf64 sine, vf64 *c_product, vf64 *s_product) {
    *c_product = f64_mulsub(c, cosine, f64_mul(s, sine));
    *s_product = f64_muladd(s, cosine, f64_mul(c, sine));
}

/* Multiplies vectors of (c, s) by a factor. */
INLINE void multiply_by(const double *factor, int angles, int vectors, vf64 *c, vf64 *s) {
    for (int v = 0; v < vectors; v++, factor += LANES)
        complex_product(c[v], s[v], f64_load(factor), f64_load(factor + angles), &c[v], &s[v]);
}

/* Multiplies (c, s) by the cosine and sine of an angle t of at most 2**-5; the truncation errors are below
 * 2**-55 and, for the sine, 2**-58 t. */
INLINE void multiply_by_rest(vf64 t, vf64 *c, vf64 *s) {
    const vf64 z = f64_mul(t, t);
    vf64 sine = f64_set(SIN_COEFFICIENTS[3][0]), cosine = f64_set(COS_COEFFICIENTS[3][0]);
    for (int k = 2; k > 0; k--) sine = f64_muladd(sine, z, f64_set(SIN_COEFFICIENTS[k][0]));
    for (int k = 2; k >= 0; k--) cosine = f64_muladd(cosine, z, f64_set(COS_COEFFICIENTS[k][0]));
    complex_product(*c, *s, cosine, f64_muladd(f64_mul(sine, z), t, t), c, s);
}

/* Computes cos and sin of vectors of angles, from angle `at` of a tile on. */
INLINE void multiply(const product_t *p, int tile, int at, int angles, int vectors, vf64 *c, vf64 *s) {
    const ptrdiff_t from = tile * p->stride + at;
    for (int v = 0; v < vectors; v++) {
        c[v] = f64_load(p->factor[0] + from + v * LANES);
        s[v] = f64_load(p->factor[0] + from + v * LANES + angles);
    }
    if (p->factor[1]) multiply_by(p->factor[1] + from, angles, vectors, c, s);
    if (p->factor[2]) multiply_by(p->factor[2] + from, angles, vectors, c, s);
    if (p->radians) {
        const double *const radians = p->radians + tile * angles + at;
        for (int v = 0; v < vectors; v++)
            multiply_by_rest(f64_mul(f64_load(radians + v * LANES), f64_set(p->rest)), &c[v], &s[v]);
    }
}

/* Adds 0, which replaces -0, the sine of a frequency of 0, by 0. */
INLINE vf64 with_sign(vf64 x, uint64_t sign) {
    return f64_add(f64_of_bits(u64_xor(bits_of_f64(x), u64_set(sign))), f64_set(0));
}

INLINE vf64 select_column(const uint64_t *quarter, vf64 s, vf64 c) {
    return f64_of_bits(u64_select(u64_load(quarter), bits_of_f64(c), bits_of_f64(s)));
}

/* How the columns of a product are stored; columns that are not paired are selected by `quarter`. */
typedef enum { SELECTED, INTERLEAVED_PAIRS, HALVES } pairing_t;

INLINE int angles_of_product(const product_t *p) { return p->order == UNPAIRED || p->half_bytes ? TILE : TILE / 2; }

/* Computes the columns of a tile, rounded to dtype.  Returns whether a value is uncertain. */
INLINE int round_tile(const product_t *p, int tile, char *out, pairing_t pairing, int streamed, dtype_t dtype) {
    const int paired = pairing != SELECTED, interleaved = pairing == INTERLEAVED_PAIRS;
    const int angles = interleaved ? TILE / 2 : TILE, vectors = angles / LANES < 4 ? angles / LANES : 4;
    const uint64_t *const quarter = p->quarter + tile * TILE;
    const limit_t *const limit = p->limits + tile;
    mask16 passed = mask16_all();
    for (int i = 0; i < angles; i += vectors * LANES) {
        vf64 c[4], s[4];
        vf32 f[4], other[4];
        multiply(p, tile, i, angles, vectors, c, s);
        for (int v = 0; v < vectors && p->sign; v++) s[v] = with_sign(s[v], p->sign);
        for (int v = 0; v < vectors; v += 2) {
            const int at = (i + v * LANES) / 2;
            for (int j = v; j < v + 2; j++) {
                if (!paired) s[j] = select_column(quarter + i + j * LANES, s[j], c[j]);
            }
            const vf32 x = f32_of_f64(s[v], s[v + 1]);
            passed = fast_test(passed, s + v, x, u64_load(limit->addend[0] + at), dtype);
            if (paired) {
                const vf32 y = f32_of_f64(c[v], c[v + 1]);
                passed = fast_test(passed, c + v, y, u64_load(limit->addend[1] + at), dtype);
                const vf32 a = p->order == SIN_FIRST ? x : y, b = p->order == SIN_FIRST ? y : x;
                if (interleaved) f32_interleave(a, b, f + v, f + v + 1);
                else f[v / 2] = a, other[v / 2] = b;
            } else {
                f[v / 2] = x;
            }
        }
        for (int g = 0; g < (interleaved ? vectors : vectors / 2); g += dtype == FLOAT32 ? 1 : 2, out += sizeof(vu64)) {
            u64_store(out, bits_of(f + g, dtype), streamed);
            if (pairing == HALVES) u64_store(out + p->half_bytes, bits_of(other + g, dtype), streamed);
        }
    }
    return !mask16_is_all(passed);
}

INLINE void complex_product_dd(vdd cosine, vdd sine, vdd *c, vdd *s) {
    const vdd before = *c;
    *c = dd_product_sum(before, cosine, dd_negated(*s), sine);
    *s = dd_product_sum(*s, cosine, before, sine);
}

/* Multiplies (c, s) by the cosine and sine of an angle t of at most 2**-11; the truncation errors are below 2**-103
 * and, for the sine, 2**-106 t. */
INLINE void multiply_by_rest_dd(vdd t, vdd *c, vdd *s) {
    const vdd product = dd_product(t, t), z = fast_two_sum(product.high, product.low);
    vdd sine = {f64_set(SIN_COEFFICIENTS[1][0]), f64_set(SIN_COEFFICIENTS[1][1])}, cosine = {f64_set(-0.5), f64_set(0)};
    const vf64 s3 = f64_muladd(f64_set(SIN_COEFFICIENTS[3][0]), z.high, f64_set(SIN_COEFFICIENTS[2][0]));
    const vf64 c3 = f64_muladd(f64_set(COS_COEFFICIENTS[3][0]), z.high, f64_set(COS_COEFFICIENTS[2][0]));
    sine = dd_product(dd_fast_sum(sine, (vdd){f64_mul(s3, z.high), f64_set(0)}), z);
    cosine = dd_product(dd_fast_sum(cosine, (vdd){f64_mul(c3, z.high), f64_set(0)}), z);
    sine = dd_fast_sum(t, dd_product(sine, t));
    cosine = dd_fast_sum(dd_of(1), cosine);
    complex_product_dd(fast_two_sum(cosine.high, cosine.low), fast_two_sum(sine.high, sine.low), c, s);
}

/* Multiplies (c, s) by a factor in double-double, for one vector. */
INLINE void multiply_dd(const double *factor, int angles, vdd *c, vdd *s) {
    complex_product_dd(dd_load(factor, factor + 2 * angles), dd_load(factor + angles, factor + 3 * angles), c, s);
}
INLINE void load_dd(const double *factor, int angles, vdd *c, vdd *s) {
    *c = dd_load(factor, factor + 2 * angles);
    *s = dd_load(factor + angles, factor + 3 * angles);
}

/* The cosines and sines of a product for one vector. */
INLINE void product_dd(const product_t *p, int tile, int at, int angles, vdd *c, vdd *s) {
    const ptrdiff_t from = tile * p->stride + at;
    load_dd(p->factor[0] + from, angles, c, s);
    for (int k = 1; k < 3 && p->factor[k]; k++) multiply_dd(p->factor[k] + from, angles, c, s);
    if (p->radians) {
        const ptrdiff_t angle = tile * angles + at;
        const vdd radians = dd_load(p->radians + angle, p->radians_low + angle);
        multiply_by_rest_dd(dd_times_double(radians, f64_set(p->rest)), c, s);
    }
}

/* Does the same as round_tile, for float64. */
INLINE int round_tile_dd(const product_t *p, int tile, char *out, pairing_t pairing) {
    const int paired = pairing != SELECTED, interleaved = pairing == INTERLEAVED_PAIRS, angles = interleaved ? TILE / 2 : TILE;
    const uint64_t *const quarter = p->quarter + tile * TILE;
    const limit_t *const limit = p->limits + tile;
    vu64 undecided = u64_set(0);
    for (int i = 0; i < angles; i += LANES, out += (interleaved ? 2 : 1) * sizeof(vf64)) {
        vdd c, s;
        product_dd(p, tile, i, angles, &c, &s);
        s = (vdd){with_sign(s.high, p->sign), with_sign(s.low, p->sign)};
        if (!paired) s = (vdd){select_column(quarter + i, s.high, c.high), select_column(quarter + i, s.low, c.low)};
        vf64 x = rounded_dd(s, f64_load(limit->error[0] + i), &undecided);
        if (paired) {
            const vf64 y = rounded_dd(c, f64_load(limit->error[1] + i), &undecided);
            vf64 a = p->order == SIN_FIRST ? x : y, b = p->order == SIN_FIRST ? y : x;
            if (interleaved) f64_interleave(a, b, &a, &b);
            u64_store(out + (interleaved ? (ptrdiff_t)sizeof(vf64) : p->half_bytes), bits_of_f64(b), 0);
            x = a;
        }
        u64_store(out, bits_of_f64(x), 0);
    }
    return !u64_is_zero(undecided);
}

/* Computes all tiles of a product, rounded to dtype.  Returns a bit for each tile with an uncertain value. */
INLINE unsigned round_product(const product_t *product, char *out, pairing_t pairing, int streamed, dtype_t dtype) {
    const product_t p = *product; /* a copy, which stores to `out` cannot change */
    unsigned uncertain = 0;
    for (int tile = 0; tile < p.tiles; tile++, out += TILE * size_of(dtype)) {
        const int fails =
            dtype == FLOAT64 ? round_tile_dd(&p, tile, out, pairing) : round_tile(&p, tile, out, pairing, streamed, dtype);
        uncertain |= (unsigned)fails << tile;
    }
    return uncertain;
}

#define DEFINE_ROUND(T) \
    NOINLINE unsigned round_##T(const product_t *p, char *out) { \
        const pairing_t pairing = p->order == UNPAIRED ? SELECTED : p->half_bytes ? HALVES : INTERLEAVED_PAIRS; \
        if (T == FLOAT32 && p->streamed && pairing == HALVES) return round_product(p, out, HALVES, 1, T); \
        if (T == FLOAT32 && p->streamed && pairing != SELECTED) return round_product(p, out, INTERLEAVED_PAIRS, 1, T); \
        if (pairing == INTERLEAVED_PAIRS) return round_product(p, out, INTERLEAVED_PAIRS, 0, T); \
        if (T == FLOAT32 && pairing == HALVES) return round_product(p, out, HALVES, 0, T); \
        return round_product(p, out, T == FLOAT32 ? SELECTED : pairing, 0, T); /* in one copy: less code, and as fast */ \
    }
DEFINE_ROUND(FLOAT64)
DEFINE_ROUND(FLOAT32)
DEFINE_ROUND(FLOAT16)
DEFINE_ROUND(BFLOAT16)
static unsigned (*const ROUND[])(const product_t *, char *) = {round_FLOAT64, round_FLOAT32, round_FLOAT16, round_BFLOAT16};

/* Computes the product of some factors in some tiles. */
NOINLINE void multiply_factors(const double *const *factor, int factors, int tiles, int angles, int is_float64, double *to) {
    const ptrdiff_t stride = is_float64 ? 4 * angles : 2 * angles;
    for (ptrdiff_t tile = 0; tile < tiles; tile++)
        for (ptrdiff_t i = tile * stride; i < tile * stride + angles; i += LANES) {
            if (is_float64) {
                vdd c, s;
                load_dd(factor[0] + i, angles, &c, &s);
                for (int k = 1; k < factors; k++) multiply_dd(factor[k] + i, angles, &c, &s);
                dd_store(to + i, to + i + 2 * angles, c);
                dd_store(to + i + angles, to + i + 3 * angles, s);
            } else {
                vf64 c = f64_load(factor[0] + i), s = f64_load(factor[0] + i + angles);
                for (int k = 1; k < factors; k++) multiply_by(factor[k] + i, angles, 1, &c, &s);
                f64_store(to + i, c);
                f64_store(to + i + angles, s);
            }
        }
}

/* Computes a tile again, and rounds each value with its error bound. */
COLD void settle_product(const product_t *p, int tile, const spec_t *spec, const job_t *job, const tile_t *t, tally_t *tally) {
    const int angles = angles_of_product(p), paired = angles < TILE;
    const limit_t *const limit = p->limits + tile;
    double factor[FACTOR];
    tile_t part = *t;
    for (int i = 0; i < angles; i += LANES) {
        vdd c = {f64_set(0), f64_set(0)}, s = c;
        if (job->dtype == FLOAT64) product_dd(p, tile, i, angles, &c, &s);
        else multiply(p, tile, i, angles, 1, &c.high, &s.high);
        dd_store(factor + i, factor + i + 2 * angles, c);
        dd_store(factor + i + angles, factor + i + 3 * angles, (vdd){with_sign(s.high, p->sign), with_sign(s.low, p->sign)});
    }
    for (int half = 0; half <= (p->half_bytes != 0); half++) {
        const uint64_t *const quarter = p->quarter + tile * TILE + half * spec->half;
        values_t v;
        for (int i = 0; i < TILE; i += LANES) {
            f64_store(v.high + i, columns_from(factor, factor + angles, quarter, paired, i));
            f64_store(v.low + i, columns_from(factor + 2 * angles, factor + 3 * angles, quarter, paired, i));
            f64_store(v.error + i, columns_from(limit->error[1], limit->error[0], quarter, paired, i));
        }
        write_settled(spec, job, &part, &v, tally);
        part.column += spec->half;
        part.out += spec->half * size_of(job->dtype);
    }
}

#endif
