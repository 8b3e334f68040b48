/* sin and cos of position * turns, straight from the exact phase, in double-double: one vector of columns at a time.
 *
 * Phase: the product of the position's limbs and the limbs of `turns`, kept modulo one turn to 5 limbs (160 bits) below the
 * point; what is cut off is below 2**-156 turns.  Reduction to the nearest quarter turn is a subtraction of integers.
 * Series: Taylor on |x| <= pi/4, the leading coefficients and all of their products in double-double.
 * Bound (docs/numerics.md): the relative error of sin and of cos is below 2**-97, plus 2**-114 of a full amplitude.
 */
#ifndef POSENC_DIRECT_H
#define POSENC_DIRECT_H

#include "doubledouble.h"
#include "position.h"

enum { FAST_POSITION_LIMBS = 4, PHASE_LIMBS = 5 };

#define TWO_PI_HIGH 0x1.921fb54442d18p+2
#define TWO_PI_LOW 0x1.1a62633145c07p-52

enum { SIN_PAIRS = 8, COS_PAIRS = 9, TAIL = 6 };

/* (-1)**k / (2k + 1)! for k = 0 .. 7 as pairs, then 8 .. 13; its error is below z**14 / 29! < 2**-112, z = x**2 */
static const double SIN_COEFFICIENTS[SIN_PAIRS][2] = {
    {0x1.0000000000000p+0, 0x0.0p+0},
    {-0x1.5555555555555p-3, -0x1.5555555555555p-57},
    {0x1.1111111111111p-7, 0x1.1111111111111p-63},
    {-0x1.a01a01a01a01ap-13, -0x1.a01a01a01a01ap-73},
    {0x1.71de3a556c734p-19, -0x1.c154f8ddc6c00p-73},
    {-0x1.ae64567f544e4p-26, 0x1.c062e06d1f209p-80},
    {0x1.6124613a86d09p-33, 0x1.f28e0cc748ebep-87},
    {-0x1.ae7f3e733b81fp-41, -0x1.1d8656b0ee8cbp-97},
};
static const double SIN_TAIL[TAIL] = {
    0x1.952c77030ad4ap-49, -0x1.2f49b46814157p-57, 0x1.71b8ef6dcf572p-66,
    -0x1.761b41316381ap-75, 0x1.3f3ccdd165fa9p-84, -0x1.d1ab1c2dccea3p-94,
};
/* (-1)**k / (2k)! for k = 0 .. 8 as pairs, then 9 .. 14; its error is below z**15 / 30! < 2**-117 */
static const double COS_COEFFICIENTS[COS_PAIRS][2] = {
    {0x1.0000000000000p+0, 0x0.0p+0},
    {-0x1.0000000000000p-1, 0x0.0p+0},
    {0x1.5555555555555p-5, 0x1.5555555555555p-59},
    {-0x1.6c16c16c16c17p-10, 0x1.f49f49f49f49fp-65},
    {0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-76},
    {-0x1.27e4fb7789f5cp-22, -0x1.cbbc05b4fa99ap-76},
    {0x1.1eed8eff8d898p-29, -0x1.2aec959e14c06p-83},
    {-0x1.93974a8c07c9dp-37, -0x1.05d6f8a2efd1fp-92},
    {0x1.ae7f3e733b81fp-45, 0x1.1d8656b0ee8cbp-101},
};
static const double COS_TAIL[TAIL] = {
    -0x1.6827863b97d97p-53, 0x1.e542ba4020225p-62, -0x1.0ce396db7f853p-70,
    0x1.f2cf01972f578p-80, -0x1.88e85fc6a4e5ap-89, 0x1.0a18a2635085dp-98,
};

static inline VV direct_series(VV z, const double coefficients[][2], int pairs, const double tail[TAIL]) {
    V t = v_set(tail[TAIL - 1]);
    for (int k = TAIL - 2; k >= 0; k--) t = v_muladd(t, z.high, v_set(tail[k]));
    VV r = {t, v_set(0)};
    for (int k = pairs - 1; k >= 0; k--)
        r = dd_quick_sum((VV){v_set(coefficients[k][0]), v_set(coefficients[k][1])}, dd_product(z, r));
    return quick_two_sum(r.high, r.low);
}

/* An integer below 2**52 as a double, less `bias`. */
static inline V direct_number(U u, double bias) {
    return v_sub(v_bits(u_or(u, u_set(0x4330000000000000u))), v_set(0x1p52 + bias));
}

static inline VV direct_flip(VV a, U sign) {
    return (VV){v_bits(u_xor(u_bits(a.high), sign)), v_bits(u_xor(u_bits(a.low), sign))};
}

static inline VV direct_select(U mask, VV a, VV b) {
    return (VV){v_bits(u_select(mask, u_bits(a.high), u_bits(b.high))), v_bits(u_select(mask, u_bits(a.low), u_bits(b.low)))};
}

/* For columns column .. column + W - 1: sin and cos of the angle, where `with_quarters` the columns' quarter turns added. */
static inline void direct(const spec_t *spec, const position_t *position, ptrdiff_t column, int with_quarters,
                          VV *sine, VV *cosine) {
    const U limb_mask = u_set(0xffffffffu);
    U phase[PHASE_LIMBS + 1];                       /* highest first: weights 2**-32, 2**-64 ... */
    for (int i = 0; i <= PHASE_LIMBS; i++) phase[i] = u_set(0);
    for (int a = 0; a < position->limbs; a++) {
        const U p = u_set(position->limb[a]);
        const int shift = spec->integer_limbs + position->exponent + a;
        for (int i = 0; i <= PHASE_LIMBS; i++) {
            const int at = shift + i;
            if (at < 0 || at >= spec->integer_limbs + spec->fraction_limbs) continue;
            const U product = u_mul32(p, u_load32(spec->turns + at * spec->columns + column));
            phase[i] = u_add(phase[i], u_and(product, limb_mask));
            if (i) phase[i - 1] = u_add(phase[i - 1], u_shr(product, 32));
        }
    }
    for (int i = PHASE_LIMBS; i > 0; i--) {
        phase[i - 1] = u_add(phase[i - 1], u_shr(phase[i], 32));
        phase[i] = u_and(phase[i], limb_mask);
    }
    const U shifted = u_add(u_and(phase[0], limb_mask), u_set(1u << 29));
    const U quadrant = u_shr(shifted, 30);

    /* the rest, -1/8 .. 1/8 turn */
    const V d0 = v_mul(direct_number(u_and(shifted, u_set((1u << 30) - 1)), 0x1p29), v_set(0x1p-32));
    const V d1 = v_mul(direct_number(phase[1], 0), v_set(0x1p-64));
    const V d2 = v_mul(direct_number(phase[2], 0), v_set(0x1p-96));
    const V d3 = v_mul(direct_number(phase[3], 0), v_set(0x1p-128));
    const V d4 = v_mul(direct_number(phase[4], 0), v_set(0x1p-160));
    VV turn = quick_two_sum(d0, d1);
    turn = quick_two_sum(turn.high, v_add(turn.low, v_add(d2, v_add(d3, d4))));

    VV x = dd_product(turn, (VV){v_set(TWO_PI_HIGH), v_set(TWO_PI_LOW)});
    x = quick_two_sum(x.high, x.low);
    VV z = dd_product(x, x);
    z = quick_two_sum(z.high, z.low);
    VV s = dd_product(x, direct_series(z, SIN_COEFFICIENTS, SIN_PAIRS, SIN_TAIL));
    s = quick_two_sum(s.high, s.low);
    const VV c = direct_series(z, COS_COEFFICIENTS, COS_PAIRS, COS_TAIL);

    /* quarter turns: (s, c) -> (c, -s) -> (-s, -c) -> (-c, s) */
    const U odd = u_sub(u_set(0), u_and(quadrant, u_set(1)));
    const U sin_sign = u_shl(u_shr(quadrant, 1), 63), cos_sign = u_shl(u_shr(u_add(quadrant, u_set(1)), 1), 63);
    VV sin_part = direct_flip(direct_select(odd, c, s), sin_sign);
    VV cos_part = direct_flip(direct_select(odd, s, c), cos_sign);
    const U backwards = u_xor(u_load(spec->sign + column), u_set((uint64_t)(position->negative != 0) << 63));
    sin_part = direct_flip(sin_part, backwards);
    if (with_quarters) {
        const U quarter = u_load(spec->quarter + column);
        const VV turned = direct_select(quarter, cos_part, sin_part);
        cos_part = direct_select(quarter, dd_negated(sin_part), cos_part);
        sin_part = turned;
    }
    *sine = sin_part;
    *cosine = cos_part;
}

#endif
