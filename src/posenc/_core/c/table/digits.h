/* Computes rows at any positions from the digits of the position in base 64.
 *
 * Level k of an encoding has cos and sin of d * 64**(k - WHOLE) positions for each digit d.  A position is
 * +-(n + r) units, with an integer n and |r| <= 1/2; a unit is the weight of a level.  cos and sin of the
 * position are the complex product of one entry of each level and, for a real position, of cos and sin of r
 * units, which are polynomials.  The entries of level WHOLE are multiplied by the scale.
 *
 * Bounds (docs/numerics.md, section 5): the error is below DIGIT_ERROR (DIGIT_DD_ERROR for float64) for each
 * level of the product, twice as much for the polynomials, times M; M is the amplitude or, for a sine, the
 * largest angle if this is smaller.
 */
#ifndef POSENC_DIGITS_H
#define POSENC_DIGITS_H

#include "table/advance.h"

#define DIGIT_ERROR 0x1p-51
#define DIGIT_DD_ERROR 0x1p-92

/* ---- levels -------------------------------------------------------------------------------------------- */

INLINE vdd dd_of(double x) { return (vdd){f64_set(x), f64_set(0)}; }

/* Computes the entries of a level for LANES angles: those of the powers of two directly, the others as
 * products of two. */
NOINLINE void tabulate_digits(const spec_t *spec, int level, ptrdiff_t column, lanes_t lanes, vdd c[RADIX], vdd s[RADIX]) {
    c[0] = dd_of(1);
    s[0] = dd_of(0);
    for (int d = 1; d < RADIX; d++) {
        const int last = d & -d, rest = d - last;
        if (rest) {
            c[d] = dd_product_sum(c[rest], c[last], dd_negated(s[rest]), s[last]);
            s[d] = dd_product_sum(s[rest], c[last], c[rest], s[last]);
        } else {
            const position_t position = position_from_real(d * power_of_two(6 * (level - WHOLE)), 0);
            direct_dd(spec, &position, column, lanes, &s[d], &c[d]);
        }
    }
}

/* Computes the entries of a level, and low parts if `parts` is 2. */
static void tabulate_level(const spec_t *spec, int level, int parts, double *table, ptrdiff_t first_tile, ptrdiff_t last_tile) {
    const environment_t host = environment_enter();
    const int angles = angles_of_tile(spec), columns = TILE / angles;
    const vf64 scale = f64_set(level == WHOLE ? spec->scale : 1);
    for (ptrdiff_t tile = first_tile; tile < last_tile; tile++) {
        for (int i = 0; i < angles; i += LANES) {
            const ptrdiff_t column = tile * TILE + columns * i;
            double *to = table + tile * RADIX * 2 * parts * angles + i;
            vdd c[RADIX], s[RADIX];
            tabulate_digits(spec, level, column, columns == 2 ? PAIRS : ANGLES, c, s);
            for (int d = 0; d < RADIX; d++, to += 2 * parts * angles) {
                const vdd cosine = dd_times_double(c[d], scale), sine = dd_times_double(s[d], scale);
                f64_store(to, cosine.high);
                f64_store(to + angles, sine.high);
                if (parts == 2) f64_store(to + 2 * angles, cosine.low);
                if (parts == 2) f64_store(to + 3 * angles, sine.low);
            }
        }
    }
    environment_leave(host);
}

/* ---- positions ----------------------------------------------------------------------------------------- */

/* A row at +-(n + rest) units.  `digits` is the number of digits of n, and `same` is set if the position is
 * that of the row before it in the group. */
typedef struct {
    ptrdiff_t row;
    uint64_t n, sign;
    double rest;
    int digits, same;
} digit_row_t;

/* Returns the lowest level of the rows of a job. */
INLINE int lowest_level(const spec_t *spec, const job_t *job) {
    return job->reals || spec->offset_rest != 0 ? WHOLE - job->digits->fractions : WHOLE;
}

/* Describes the position of a row; returns 0 if the row cannot be computed from digits. */
static int read_digits(const spec_t *spec, const job_t *job, ptrdiff_t row, digit_row_t *to) {
    const int lowest = lowest_level(spec, job);
    units_t units;
    if (!split_position(spec, job, row, WHOLE - lowest, &units)) return 0;
    const int negative = units.n < 0;
    to->row = row;
    to->n = distance(0, units.n);
    to->sign = (uint64_t)negative << 63;
    to->rest = negative ? -units.rest : units.rest;
    to->digits = (bits_of_integer(to->n) + 5) / 6;
    /* a small rest is evaluated directly, because its sines are small compared with M */
    return (to->n || magnitude_of(to->rest) >= 0x1p-9) && lowest + to->digits <= job->digits->levels;
}

/* ---- a tile -------------------------------------------------------------------------------------------- */

/* The angles of a tile.  If rows are narrow, these are the angles of several rows, one after another. */
typedef struct {
    ALIGNED double radians[TILE];
    ALIGNED uint64_t quarter[TILE];
} angles_t;

/* The error bounds of sines and of cosines (float64), or the addends of their fast test (other dtypes).  If
 * columns are not paired, the first ones are those of the columns. */
typedef union {
    ALIGNED double error[2][TILE];
    ALIGNED uint64_t addend[2][TILE / 2];
} limit_t;

INLINE int levels_of_digits(int lowest, int digits) { return lowest + digits > WHOLE ? digits : WHOLE + 1 - lowest; }

/* Computes the limits of positions below 64**digits units. */
static void limit_of(const spec_t *spec, const job_t *job, const angles_t *angles, int digits, limit_t *limit) {
    const int lowest = lowest_level(spec, job), paired = spec->order != UNPAIRED, is_float64 = job->dtype == FLOAT64;
    const int factors = levels_of_digits(lowest, digits) + 2 * (lowest < WHOLE), count = angles_of_tile(spec);
    const double scale = magnitude_of(spec->scale), units = power_of_two(6 * (lowest + digits - WHOLE));
    const double unit =
        scale * factors * (is_float64 ? DIGIT_DD_ERROR : DIGIT_ERROR * smallest_share(job->dtype) / DOUBLE_ERROR);
    const double floor = is_float64 ? scale * factors * DIRECT_DD_FLOOR : 2 * smallest_normal(job->dtype);
    ALIGNED double least[2][TILE];
    for (int i = 0; i < count; i++) {
        const double angle = magnitude_of(angles->radians[i]), largest = angle * units + 0x1p-36;
        const int is_cosine = !paired && angles->quarter[i];
        least[1][i] = unit + floor;
        least[0][i] = is_cosine ? unit + floor : angle == 0 ? 0 : unit * (largest < 1 ? largest : 1) + floor;
    }
    if (is_float64) memcpy(limit, least, sizeof least);
    for (int k = 0; !is_float64 && k < 2; k++) {
        for (int i = 0; i < count; i += 2 * LANES) {
            const vu64 addend = test_addend(f64_load(least[k] + i), f64_load(least[k] + i + LANES), job->dtype);
            memcpy(limit->addend[k] + i / 2, &addend, sizeof addend);
        }
    }
}

/* Adjacent tiles of a row, or a tile of several narrow rows, as a product of factors.  A factor has the
 * cosines of all angles of a tile, then their sines, and those of the next tile `stride` numbers later
 * (`rest_stride` for `rest`, which may be NULL). `sign` has the sign bits of the positions. */
typedef struct {
    const double *factor[LEVELS], *rest;
    ptrdiff_t stride, rest_stride;
    int factors, tiles, digits;
    order_t order;
    const uint64_t *sign;
    const angles_t *angles;
    limit_t (*limits)[LEVELS + 1];
} product_t;

INLINE void complex_product(vf64 c, vf64 s, vf64 cosine, vf64 sine, vf64 *c_product, vf64 *s_product) {
    *c_product = f64_mulsub(c, cosine, f64_mul(s, sine));
    *s_product = f64_muladd(s, cosine, f64_mul(c, sine));
}

/* Multiplies (c, s) by a factor. */
INLINE void multiply_by(const double *factor, int angles, vf64 *c, vf64 *s) {
    complex_product(*c, *s, f64_load(factor), f64_load(factor + angles), c, s);
}

/* Computes cos and sin of vectors of angles, from angle `at` of a tile on. */
INLINE void multiply(const product_t *p, int tile, int at, int angles, int vectors, vf64 *c, vf64 *s) {
    const ptrdiff_t from = tile * p->stride + at;
    for (int v = 0; v < vectors; v++) {
        c[v] = f64_load(p->factor[0] + from + v * LANES);
        s[v] = f64_load(p->factor[0] + from + v * LANES + angles);
    }
    for (int k = 1; k < p->factors; k++)
        for (int v = 0; v < vectors; v++) multiply_by(p->factor[k] + from + v * LANES, angles, &c[v], &s[v]);
    const double *const rest = p->rest + (p->rest ? tile * p->rest_stride + at : 0);
    for (int v = 0; v < vectors && p->rest; v++) multiply_by(rest + v * LANES, angles, &c[v], &s[v]);
}

/* The same in double-double, for one vector. */
INLINE void multiply_by_dd(const double *factor, int angles, vdd *c, vdd *s) {
    const vdd cosine = dd_load(factor, factor + 2 * angles), sine = dd_load(factor + angles, factor + 3 * angles), before = *c;
    *c = dd_product_sum(before, cosine, dd_negated(*s), sine);
    *s = dd_product_sum(*s, cosine, before, sine);
}

INLINE void multiply_dd(const product_t *p, int tile, int at, int angles, vdd *c, vdd *s) {
    const ptrdiff_t from = tile * p->stride + at, low = from + 2 * angles;
    *c = dd_load(p->factor[0] + from, p->factor[0] + low);
    *s = dd_load(p->factor[0] + from + angles, p->factor[0] + low + angles);
    for (int k = 1; k < p->factors; k++) multiply_by_dd(p->factor[k] + from, angles, c, s);
}

/* Adding 0 replaces -0, the sine of a frequency of 0, by 0. */
INLINE vf64 with_sign(vf64 x, const uint64_t *sign) {
    return f64_add(f64_of_bits(u64_xor(bits_of_f64(x), u64_load(sign))), f64_set(0));
}

INLINE vf64 select_column(const uint64_t *quarter, vf64 s, vf64 c) {
    return f64_of_bits(u64_select(u64_load(quarter), bits_of_f64(c), bits_of_f64(s)));
}

/* Computes TILE columns, rounded to dtype.  Returns whether a value is uncertain. */
INLINE int round_tile(const product_t *p, int tile, char *out, int paired, dtype_t dtype) {
    const int angles = paired ? TILE / 2 : TILE, vectors = angles / LANES < 4 ? angles / LANES : 4;
    const uint64_t *const quarter = p->angles[tile].quarter;
    const limit_t *const limit = &p->limits[tile][p->digits];
    mask16 passed = mask16_all();
    for (int i = 0; i < angles; i += vectors * LANES) {
        vf64 c[4], s[4];
        vf32 f[4];
        multiply(p, tile, i, angles, vectors, c, s);
        for (int v = 0; v < vectors; v += 2) {
            const int at = (i + v * LANES) / 2;
            for (int j = v; j < v + 2; j++) {
                s[j] = with_sign(s[j], p->sign + i + j * LANES);
                if (!paired) s[j] = select_column(quarter + i + j * LANES, s[j], c[j]);
            }
            const vf32 x = f32_of_f64(s[v], s[v + 1]);
            passed = fast_test(passed, s + v, x, u64_load(limit->addend[0] + at), dtype);
            if (paired) {
                const vf32 y = f32_of_f64(c[v], c[v + 1]);
                passed = fast_test(passed, c + v, y, u64_load(limit->addend[1] + at), dtype);
                f32_interleave(p->order == SIN_FIRST ? x : y, p->order == SIN_FIRST ? y : x, f + v, f + v + 1);
            } else {
                f[v / 2] = x;
            }
        }
        for (int g = 0; g < (paired ? vectors : vectors / 2); g += dtype == FLOAT32 ? 1 : 2, out += sizeof(vu64))
            u64_flush(out, bits_of(f + g, dtype), 0);
    }
    return !mask16_is_all(passed);
}

/* Does the same for float64. */
INLINE int round_tile_dd(const product_t *p, int tile, char *out, int paired) {
    const int angles = paired ? TILE / 2 : TILE;
    const uint64_t *const quarter = p->angles[tile].quarter;
    const limit_t *const limit = &p->limits[tile][p->digits];
    vu64 undecided = u64_set(0);
    for (int i = 0; i < angles; i += LANES, out += (paired ? 2 : 1) * sizeof(vf64)) {
        vdd c, s;
        multiply_dd(p, tile, i, angles, &c, &s);
        s = (vdd){with_sign(s.high, p->sign + i), with_sign(s.low, p->sign + i)};
        if (!paired) s = (vdd){select_column(quarter + i, s.high, c.high), select_column(quarter + i, s.low, c.low)};
        vf64 x = rounded_dd(s, f64_load(limit->error[0] + i), &undecided);
        if (paired) {
            vf64 y = rounded_dd(c, f64_load(limit->error[1] + i), &undecided);
            f64_interleave(p->order == SIN_FIRST ? x : y, p->order == SIN_FIRST ? y : x, &x, &y);
            u64_flush(out + sizeof(vf64), bits_of_f64(y), 0);
        }
        u64_flush(out, bits_of_f64(x), 0);
    }
    return !u64_is_zero(undecided);
}

/* Computes all tiles of a product, rounded to dtype.  Returns a bit for each tile with an uncertain value. */
INLINE unsigned round_product(const product_t *p, char *out, int paired, dtype_t dtype) {
    unsigned uncertain = 0;
    for (int tile = 0; tile < p->tiles; tile++, out += TILE * size_of(dtype)) {
        const int fails = dtype == FLOAT64 ? round_tile_dd(p, tile, out, paired) : round_tile(p, tile, out, paired, dtype);
        uncertain |= (unsigned)fails << tile;
    }
    return uncertain;
}

#define DEFINE_ROUND(T) \
    NOINLINE unsigned round_##T(const product_t *p, char *out) { \
        return p->order == UNPAIRED ? round_product(p, out, 0, T) : round_product(p, out, 1, T); \
    }
DEFINE_ROUND(FLOAT64)
DEFINE_ROUND(FLOAT32)
DEFINE_ROUND(FLOAT16)
DEFINE_ROUND(BFLOAT16)
static unsigned (*const ROUND[])(const product_t *, char *) = {round_FLOAT64, round_FLOAT32, round_FLOAT16, round_BFLOAT16};

/* ---- factors ------------------------------------------------------------------------------------------- */

/* cos and sin of the rest of a position, for |t| <= 2**-5; the truncation errors are below 2**-55 and, for
 * the sine, 2**-58 t. */
NOINLINE void multiply_rest(const double *radians, const double *rest, double unit, int angles, double *to) {
    for (int i = 0; i < angles; i += LANES) {
        const vf64 t = f64_mul(f64_mul(f64_load(rest + i), f64_set(unit)), f64_load(radians + i)), z = f64_mul(t, t);
        vf64 s = f64_set(SIN_COEFFICIENTS[3][0]), c = f64_set(COS_COEFFICIENTS[3][0]);
        for (int k = 2; k > 0; k--) s = f64_muladd(s, z, f64_set(SIN_COEFFICIENTS[k][0]));
        for (int k = 2; k >= 0; k--) c = f64_muladd(c, z, f64_set(COS_COEFFICIENTS[k][0]));
        f64_store(to + i, c);
        f64_store(to + angles + i, f64_muladd(f64_mul(s, z), t, t));
    }
}

#endif
