/* Exact evaluation to 320 bits.  It is slow, but its error bound decides the rounding of almost all values.
 *
 * Method: position * turns (see kernel.h) is an exact product of integers.  Subtracting the nearest multiple of a
 * quarter turn leaves at most 1/8 turn, which is multiplied by 2 pi; the series of sin or cos is summed in fixed point.
 * Bound (docs/numerics.md, section 3): the error of `turns` is below two units of its last place.  If the resulting
 * relative error of the remaining angle is below 2**d, that of the value is below 2**(max(d, -285) + 1), because all later
 * errors are below 2**-285.8.  If the bound does not decide the rounding of a value, spec->decide uses more bits.
 */
#include "float_environment.h"
#include "exact/exact.h"
#include "exact/position.h"

enum {
    SERIES = 30,                 /* terms after the leading 1; the next one is at most (pi/4)**62 / 62! < 2**-304 */
    SMALLEST_ERROR = -285        /* smallest bound of the relative error, as an exponent of 2 */
};

/* 2 pi / 8, rounded down: floor(pi / 4 * 2**320) */
static const uint32_t EIGHTH_OF_TWO_PI[LIMBS] = {
    0x8e3404ddu, 0x514a0879u, 0x3b139b22u, 0x020bbea6u, 0x8a67cc74u,
    0x29024e08u, 0x80dc1cd1u, 0xc4c6628bu, 0x2168c234u, 0xc90fdaa2u,
};

/* Sets s = 1 - u * s / divisor, in fixed point; the highest limb is the integer part. */
static void horner(uint32_t s[LIMBS], const uint32_t u[LIMBS], uint32_t divisor) {
    uint32_t product[2 * LIMBS];
    uint64_t rest = 0, borrow = 0;
    multiply(u, LIMBS, s, LIMBS, product);
    for (int i = LIMBS - 1; i >= 0; i--) {
        rest = rest << 32 | product[i + LIMBS - 1];
        s[i] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    for (int i = 0; i < LIMBS; i++) {
        const uint64_t minuend = i == LIMBS - 1;
        const uint64_t difference = minuend - s[i] - borrow;
        s[i] = (uint32_t)difference;
        borrow = difference >> 63;
    }
}

/* sin(angle) or cos(angle) for 0 < angle <= pi/4 */
static real_t series(const real_t *angle, int cosine) {
    uint32_t u[LIMBS] = {0}, s[LIMBS] = {0}, square[2 * LIMBS];
    multiply(angle->m, LIMBS, angle->m, LIMBS, square); /* u = angle**2, which is `square` shifted right to fixed point */
    const int right = -2 * angle->exponent + 32 * (LIMBS + 1), limbs = right / 32, bits = right % 32;
    for (int i = 0; i < LIMBS; i++) {
        const int at = i + limbs;
        const uint32_t low = at < 2 * LIMBS ? square[at] : 0, high = at + 1 < 2 * LIMBS ? square[at + 1] : 0;
        u[i] = bits ? low >> bits | high << (32 - bits) : low;
    }
    s[LIMBS - 1] = 1;
    for (uint32_t k = SERIES; k > 0; k--) horner(s, u, cosine ? (2 * k - 1) * (2 * k) : 2 * k * (2 * k + 1));
    if (cosine) {
        const int top = s[LIMBS - 1] ? LIMBS : LIMBS - 1;
        return normalise(s, top, top - LIMBS + 1);
    }
    return times(angle->m, LIMBS, s, LIMBS, angle->exponent + 32);
}

int posenc_evaluate(const spec_t *spec, const position_t *position, ptrdiff_t column, real_t *value, int *sign) {
    uint32_t turns[MAX_TURN_LIMBS], product[MAX_TURN_LIMBS + POSITION_LIMBS + 2] = {0};
    const int limbs = spec->integer_limbs + spec->fraction_limbs;
    uint32_t any = 0;
    for (int i = 0; i < limbs; i++) any |= turns[i] = spec->turns[(limbs - 1 - i) * spec->pitch + column];
    if (!any || position->limbs == 0 || spec->scale == 0) {
        *sign = spec->scale < 0;
        *value = real_of(spec->quarter[column] ? spec->scale : 0);
        return EXACT;
    }
    multiply(position->limb, position->limbs, turns, limbs, product);

    /* limbs 0 .. top of the product are the fraction of a turn; the unit of limb `top` is 2**-32 turns */
    const int top = spec->fraction_limbs - position->exponent - 1;
    const int used = limbs + position->limbs;
    int n = top + 1;
    uint32_t wide[MAX_TURN_LIMBS + POSITION_LIMBS + 64] = {0};
    for (int i = 0; i < n && i < used; i++) wide[i] = product[i];
    int quadrant = (int)(((uint64_t)wide[top] + ((uint32_t)1 << 29)) >> 30);
    wide[top] -= (uint32_t)quadrant << 30;
    int negative = (int)(wide[top] >> 31);
    if (negative) negate(wide, n);
    while (n > 0 && wide[n - 1] == 0) n--;
    if (n == 0) return 0;

    const real_t turn = normalise(wide, n, n - 1 - top);
    /* the error of the phase is below 2 |position| units of the last limb of `turns` */
    const int size = 32 * (position->limbs + position->exponent) - leading_zeros(position->limb[position->limbs - 1]);
    const int error = size + 1 - 32 * spec->fraction_limbs - (turn.exponent - 1);
    const int sure = -(larger(error, SMALLEST_ERROR) + 1);
    const real_t angle = times(turn.m, LIMBS, EIGHTH_OF_TWO_PI, LIMBS, turn.exponent + 3);

    /* the value is scale * sin(phase + quarter / 4 turns), where phase is quadrant / 4 turns plus `angle`, or minus `angle` if
     * `negative` is set; a negative position or frequency negates the phase */
    if (position->negative ^ (int)(spec->sign[column] >> 63)) {
        negative = !negative;
        quadrant = -quadrant;
    }
    quadrant += spec->quarter[column] ? 1 : 0;
    const int cosine = quadrant & 1;
    *value = series(&angle, cosine);
    *sign = (negative && !cosine) ^ (quadrant >> 1 & 1) ^ (spec->scale < 0);
    *value = product_of(value, spec->scale);
    return sure;
}

double posenc_exact(const spec_t *spec, const position_t *position, ptrdiff_t column, dtype_t dtype) {
    real_t value;
    int negative;
    const int sure = posenc_evaluate(spec, position, column, &value, &negative);
    if (sure == EXACT) return spec->quarter[column] && spec->scale != 0 ? round_to(dtype, spec->scale) : 0.0;
    const format_t f = format_of(dtype);
    if (sure < MIN_SURE_BITS || !decided(&value, sure, precision_of(&value, f)))
        return spec->decide(spec->context, position, spec->first + column, NULL, dtype);
    return rounded(&value, negative, precision_of(&value, f), f);
}

double posenc_rounded(dtype_t dtype, double x) {
    const environment_t host = environment_enter();
    /* volatile: the compiler may move arithmetic past a change of the environment, but not these accesses */
    volatile double in = x;
    volatile double out = round_to(dtype, in);
    environment_leave(host);
    return out;
}

/* An int64 as a double, rounded to odd: if bits are dropped, the last remaining bit is set.  At least 43 bits remain, so the
 * result and the integer round to the same number of a dtype of at most 24 bits (Boldo and Melquiond). */
static double odd_double_of(uint64_t two_complement) {
    const int negative = (int)(two_complement >> 63);
    uint64_t m = negative ? 0 - two_complement : two_complement;
    if (m >> 53) m = (m >> 11 | ((m & 2047) != 0)) << 11;
    return negative ? -(double)m : (double)m;
}

void posenc_rounded_bits(dtype_t dtype, ptrdiff_t rows, const double *reals, const int64_t *integers, uint64_t start,
                         uint64_t step, void *out) {
    for (ptrdiff_t i = 0; i < rows; i++) {
        const uint64_t integer = integers ? (uint64_t)integers[i] : start + (uint64_t)i * step;
        double x = reals ? reals[i] : dtype == FLOAT64 ? (double)(int64_t)integer : odd_double_of(integer);
        if (x != x) x = double_of_bits(0x7ff8000000000000u);
        x = round_to(dtype, x);
        switch (dtype) {
        case FLOAT64: ((uint64_t *)out)[i] = bits_of_double(x); break;
        case FLOAT32: ((uint32_t *)out)[i] = bits_of_float((float)x); break;
        case FLOAT16: ((uint16_t *)out)[i] = half_of_float((float)x); break;
        case BFLOAT16: ((uint16_t *)out)[i] = bfloat_of_float((float)x); break;
        }
    }
}
