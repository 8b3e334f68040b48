/* Rounds single values that the rounding tests leave undecided: from an evaluation in double-double, or, if this leaves the
 * rounding undecided, too, with Python's integers (exact.py), which the caller does after its parallel region.
 *
 * Bounds (docs/numerics.md, section 3): the error of a value is below DD_ERROR |value| + DIRECT_DD_FLOOR |scale|.  For angles
 * below 2**(-32 skip) turns, the first `skip` limbs of the phase are left out, and the second term is multiplied by this power.
 */
#ifndef POSENC_DECIDE_H
#define POSENC_DECIDE_H

#include <stdlib.h>

#include "table/direct.h"

/* TINY stands for a positive value below 2**-900, which rounds to 0 except in float64, even times a factor of a rotation. */
#define TINY 0x1p-1000
enum { LEAST_EXPONENT = -900 };
#define SIXTH 0x1.5555555555555p-3
#define COMBINATION_ERROR 0x1p-100 /* of each term of a combination */

INLINE double first_of(vf64 v, int lane) {
    double lanes[LANES];
    f64_store(lanes, v);
    return lanes[lane];
}

INLINE uint64_t first_bits(vu64 v, int lane) { return bits_of_double(first_of(f64_of_bits(v), lane)); }

/* sin(2 pi position * turns) * scale * 2**(32 *skip), for an angle below 2**(-32 *skip) turns.  Changes *skip so that the phase
 * begins with a limb that is not 0, and is below an eighth of a turn in units of 2**(-32 *skip). */
static vdd small_sine(const spec_t *spec, const position_t *position, ptrdiff_t column, int lane, int *skip) {
    phase_t phase = direct_phase(spec, position, column, COLUMNS, PHASE_LIMBS, *skip);
    if (first_bits(phase.rest[0], lane) == 0) phase = direct_phase(spec, position, column, COLUMNS, PHASE_LIMBS, ++*skip);
    if (first_bits(phase.quadrant, lane)) phase = direct_phase(spec, position, column, COLUMNS, PHASE_LIMBS, --*skip);
    vdd x = dd_product(phase_dd(&phase), (vdd){f64_set(TWO_PI_HIGH), f64_set(TWO_PI_LOW)});
    /* sin x = x - x**3 / 6; the next term is below 2**-130 x */
    const vf64 small = f64_mul(x.high, f64_set(power_of_two(-32 * (*skip < 30 ? *skip : 30))));
    x.low = f64_sub(x.low, f64_mul(x.high, f64_mul(f64_mul(small, small), f64_set(SIXTH))));
    x = fast_two_sum(x.high, x.low);
    const vu64 sign = u64_xor(u64_load(spec->sign + column), u64_set((uint64_t)(position->negative != 0) << 63));
    return dd_times_double(x, f64_of_bits(u64_xor(bits_of_f64(f64_set(spec->scale)), sign)));
}

/* Computes a value with a bound of its error, which is 0 if the value is exact, and infinite if it cannot be computed. */
COLD void evaluate(const spec_t *spec, const position_t *position, ptrdiff_t column, dtype_t dtype, double *high, double *low,
                   double *error) {
    const int limbs = spec->integer_limbs + spec->fraction_limbs, lane = (int)(column % LANES);
    const double amplitude = magnitude_of(spec->scale);
    int first = 0, skip = 0;
    while (first < limbs && spec->turns[first * spec->pitch + column] == 0) first++;
    *low = *error = 0;
    *high = spec->quarter[column] && amplitude != 0 ? spec->scale : 0;
    if (first == limbs || position->limbs == 0 || amplitude == 0) return; /* the angle is 0 */
    *error = double_of_bits((uint64_t)0x7ff << 52);
    if (!spec->has_fast_path) return;
    vdd p, q;
    const int above = position->limbs + position->exponent + spec->integer_limbs - first; /* the angle is below 2**(32 above) */
    if (above <= 0 && !spec->quarter[column]) {
        skip = -above;
        p = small_sine(spec, position, column - lane, lane, &skip);
    }
    if (skip <= 0) direct_values(spec, position, column - lane, COLUMNS, FLOAT64, &p, &q), skip = 0;
    *high = first_of(p.high, lane);
    *low = first_of(p.low, lane);
    const int exponent = (int)(bits_of_double(*high) >> 52 & 0x7ff) - 1023 - 32 * skip;
    if (skip && exponent < LEAST_EXPONENT) {
        if (dtype == FLOAT64) return;
        *high = *high < 0 ? -TINY : TINY;
        *low = 0;
        *error = TINY / 2;
    } else {
        const double half = power_of_two(-16 * skip);
        *error = (magnitude_of(*high) * DD_ERROR + amplitude * DIRECT_DD_FLOOR) * half * half;
        *high = *high * half * half;
        *low = *low * half * half;
    }
}

/* high + low, rounded to dtype.  For dtypes narrower than double, the sum is first rounded to odd: then the second rounding gives
 * the same number as a rounding of the exact sum (Boldo and Melquiond). */
static double rounded_sum(double high, double low, dtype_t dtype) {
    const double sum = high + low, added = sum - high, rest = (high - (sum - added)) + (low - added);
    uint64_t bits = bits_of_double(sum);
    if (dtype != FLOAT64 && rest != 0 && !(bits & 1)) bits += (rest > 0) == (sum > 0) ? 1 : UINT64_MAX;
    return round_to(dtype, double_of_bits(bits));
}

/* Appends a value to those that the caller evaluates, and returns -0. */
static double left_undecided(const spec_t *spec, const undecided_t *u, tally_t *tally) {
    if (tally->count == tally->capacity) {
        const ptrdiff_t capacity = 2 * tally->capacity + 16;
        undecided_t *const memory = realloc(tally->undecided, (size_t)capacity * sizeof *memory);
        tally->is_full |= memory == NULL;
        if (!memory) return -0.0;
        tally->undecided = memory;
        tally->capacity = capacity;
    }
    undecided_t *const last = tally->undecided + tally->count++;
    *last = *u;
    last->context = spec->context;
    last->column += spec->first;
    return -0.0;
}

/* Returns the value that `u` describes, correctly rounded to u->job.dtype, or leaves it undecided.  Two columns must be the
 * cosine and the sine of one frequency; the factors must be finite.  A sum of exactly 0 gives +0.
 *
 * If the tally asks for approximations, an undecided value has a relative error below 2**-53 (1 + 2**-40), or is 0 if its
 * magnitude is below 2**-900 or cannot be computed. */
COLD double decided_value(const spec_t *spec, const undecided_t *u, tally_t *tally) {
    const dtype_t dtype = u->job.dtype;
    double high = 0, low = 0, error = 0;
    tally->exact++;
    for (int k = 0; k < (u->is_combined ? 2 : 1); k++) {
        double h, l, e;
        if (u->is_combined && u->factors[k] == 0) continue;
        evaluate(spec, &u->position, u->column + k, dtype, &h, &l, &e);
        if (h == 0 && e == 0) continue;
        if (u->is_combined) {
            const vdd term = dd_times_double((vdd){f64_set(h), f64_set(l)}, f64_set(u->factors[k]));
            const vdd sum = two_sum(term.high, f64_set(high));
            e *= magnitude_of(u->factors[k]);
            if (e != 0) e += magnitude_of(first_of(term.high, 0)) * COMBINATION_ERROR;
            h = first_of(sum.high, 0);
            l = first_of(sum.low, 0) + (first_of(term.low, 0) + low);
        }
        high = h;
        low = l;
        error += e;
    }
    const double below = rounded_sum(high, low - error, dtype), above = rounded_sum(high, low + error, dtype);
    if (error <= DBL_MAX && bits_of_double(below) == bits_of_double(above)) return below;
    if (tally->is_approximate) return error <= DBL_MAX ? below : 0;
    return left_undecided(spec, u, tally);
}

/* Returns a number with the sign of a value, or 0 for 0. */
static double sign_of(const spec_t *spec, const position_t *position, ptrdiff_t column) {
    spec_t unit = *spec;
    double high, low, error;
    unit.scale = (spec->scale > 0) - (spec->scale < 0);
    unit.has_fast_path = 1;
    evaluate(&unit, position, column, FLOAT64, &high, &low, &error);
    return high;
}

#endif
