/* Computes rows at any positions from the digits of the position in base 64.
 *
 * Level k of an encoding has cos and sin of d * 64**(k - WHOLE) positions for each digit d.  A position is
 * +-(n + r) units, with an integer n and |r| <= 1/2; a unit is the weight of the lowest level.  cos and sin of the
 * position are the complex product of one entry of each level and, for a real position, of cos and sin of r
 * units, which are evaluated as polynomials.  The entries of level WHOLE are multiplied by the scale.
 *
 * Bounds (docs/numerics.md, section 5): the error is below DIGIT_ERROR (DIGIT_DD_ERROR for float64) for each
 * level of the product, and twice as much for the polynomials, times M.  M is the amplitude or, for a sine, the
 * largest angle if that is smaller.
 */
#ifndef POSENC_DIGITS_H
#define POSENC_DIGITS_H

#include "table/advance.h"
#include "table/round_tiles.h"

#define DIGIT_ERROR 0x1p-51
#define DIGIT_DD_ERROR 0x1p-92

/* ---- levels -------------------------------------------------------------------------------------------- */

/* Computes the entries of a level for LANES angles: those of powers of two directly, the others as products of
 * two entries. */
COLD void tabulate_digits(const spec_t *spec, int level, ptrdiff_t column, lanes_t lanes, vdd c[RADIX], vdd s[RADIX]) {
    c[0] = dd_of(1);
    s[0] = dd_of(0);
    for (int d = 1; d < RADIX; d++) {
        const int last = d & -d, rest = d - last;
        if (rest) {
            c[d] = dd_product_sum(c[rest], c[last], dd_negated(s[rest]), s[last]);
            s[d] = dd_product_sum(s[rest], c[last], c[rest], s[last]);
        } else {
            const double weight = d * power_of_two(6 * (level - WHOLE));
            const position_t position = position_of_sum(&weight, 1);
            direct_dd(spec, &position, column, lanes, &s[d], &c[d]);
        }
    }
}

/* Computes the entries of a level, with their low parts if `parts` is 2. */
COLD void tabulate_level(const spec_t *spec, int level, int parts, double *table, ptrdiff_t first_tile, ptrdiff_t last_tile) {
    const environment_t host = environment_enter();
    const int angles = angles_of_tile(spec), columns = TILE / angles;
    const vf64 scale = f64_set(level == WHOLE ? spec->scale : 1);
    for (ptrdiff_t tile = first_tile; tile < last_tile; tile++) {
        for (int i = 0; i < angles; i += LANES) {
            const ptrdiff_t column = tile * TILE + columns * i;
            double *to = table + tile * 2 * parts * angles + i;
            vdd c[RADIX], s[RADIX];
            tabulate_digits(spec, level, column, columns == 2 ? PAIRS : ANGLES, c, s);
            for (int d = 0; d < RADIX; d++, to += angle_tiles(spec) * 2 * parts * angles) {
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

/* A row at +-(n + rest) units. */
typedef struct {
    ptrdiff_t row;
    uint64_t n, sign;
    double rest;
} digit_row_t;

INLINE int digit_count(uint64_t n) { return (bits_of_integer(n) + 5) / 6; }

/* Returns the lowest level of the rows of a job. */
INLINE int lowest_level(const spec_t *spec, const job_t *job) {
    return job->reals || !spec->has_zero ? WHOLE - job->digits->fractions : WHOLE;
}

/* Describes the position of a row; returns 0 if the row cannot be computed from digits. */
static int read_digits(const spec_t *spec, const job_t *job, ptrdiff_t row, digit_row_t *to) {
    const int lowest = lowest_level(spec, job);
    units_t units;
    if (!split_position(spec, job, row, WHOLE - lowest, &units)) return 0;
    to->row = row;
    to->n = units.n;
    to->sign = (uint64_t)units.negative << 63;
    to->rest = units.rest;
    /* a small rest alone is evaluated directly, because its sines are small compared with M */
    return (to->n || magnitude_of(to->rest) >= 0x1p-9) && lowest + digit_count(to->n) <= job->digits->levels;
}

/* ---- limits -------------------------------------------------------------------------------------------- */

INLINE int levels_of_digits(int lowest, int digits) { return lowest + digits > WHOLE ? digits : WHOLE + 1 - lowest; }

/* Computes the limits of positions below 64**digits units. */
COLD void limit_of(const spec_t *spec, const job_t *job, ptrdiff_t tile, int digits, limit_t *limit) {
    const int lowest = lowest_level(spec, job), paired = spec->order != UNPAIRED || spec->half,
              is_float64 = job->dtype == FLOAT64;
    const int factors = levels_of_digits(lowest, digits) + 2 * (lowest < WHOLE), count = angles_of_tile(spec);
    const double scale = magnitude_of(spec->scale), units = power_of_two(6 * (lowest + digits - WHOLE));
    const double unit = scale * factors * (is_float64 ? DIGIT_DD_ERROR : DIGIT_ERROR);
    const double floor = is_float64 ? scale * factors * DIRECT_DD_FLOOR : 0;
    const double *const radians = job->digits->radians + tile * count;
    for (int i = 0; i < count; i++) {
        const double angle = magnitude_of(radians[i]), largest = angle * units + 0x1p-36;
        const int is_cosine = !paired && spec->quarter[tile * TILE + i];
        limit->error[1][i] = unit + floor;
        limit->error[0][i] = is_cosine ? unit + floor : angle == 0 ? 0 : unit * (largest < 1 ? largest : 1) + floor;
    }
    if (!is_float64) set_addends(limit, count, job->dtype);
}

#endif
