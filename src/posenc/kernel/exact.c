/* Exact evaluation to 320 bits: plain, slow, with a bound of its error.
 *
 * Method: position * turns is an exact product of integers; its whole quarter turns are dropped; what is left, at most an
 * eighth of a turn, times 2 pi, goes into the Taylor series of sin or cos in fixed point.
 * Bound (docs/numerics.md, section 3): `turns` is right to two units of its last place, which makes an error of the phase
 * that is known, and relative to what is left of the phase it is 2**d.  Neither sin nor cos has a larger relative error from
 * it; all that is cut off later is below 2**-285.8 of the value.  The sum is below 2**(max(d, -285) + 1).
 * A value that is so near a half-way point that this does not decide its rounding is left to spec->decide, which evaluates
 * it to more and more bits.
 */
#include "environment.h"
#include "exact.h"
#include "rounding.h"

enum { N = 10 };                 /* limbs of the working precision, 320 bits */
enum { SERIES = 30 };            /* terms: (pi/4)**62 / 62! < 2**-304 */
enum { SMALLEST_ERROR = -285 };  /* relative, a power of two */
enum { FEWEST_SURE = 64 };       /* fewer sure bits may leave even the sign open */

/* 0.m * 2**exponent, m[N - 1] highest, normalised */
typedef struct {
    uint32_t m[N];
    int exponent;
} real_t;

/* 2 pi / 8, rounded down: floor(pi / 4 * 2**320) */
static const uint32_t EIGHTH_OF_TWO_PI[N] = {
    0x8e3404ddu, 0x514a0879u, 0x3b139b22u, 0x020bbea6u, 0x8a67cc74u,
    0x29024e08u, 0x80dc1cd1u, 0xc4c6628bu, 0x2168c234u, 0xc90fdaa2u,
};

static int larger(int a, int b) { return a > b ? a : b; }

static int leading_zeros(uint32_t x) {
    int n = 0;
    for (; !(x & 0x80000000u); x <<= 1) n++;
    return n;
}

/* The leading N limbs of the number w[0 .. n) * 2**(32 * (place - n)), whose highest limb is not 0. */
static real_t normalise(const uint32_t *w, int n, int place) {
    real_t r = {.exponent = 32 * place};
    const int shift = leading_zeros(w[n - 1]);
    for (int i = 0; i < N; i++) {
        const int at = n - N + i;
        const uint32_t high = at >= 0 ? w[at] : 0, low = at >= 1 ? w[at - 1] : 0;
        r.m[i] = shift ? high << shift | low >> (32 - shift) : high;
    }
    r.exponent -= shift;
    return r;
}

static void multiply(const uint32_t *a, int na, const uint32_t *b, int nb, uint32_t *product) {
    memset(product, 0, sizeof *product * (size_t)(na + nb));
    for (int i = 0; i < na; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < nb; j++) {
            carry += (uint64_t)a[i] * b[j] + product[i + j];
            product[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        product[i + nb] = (uint32_t)carry;
    }
}

static real_t times(const uint32_t *a, int na, const uint32_t *b, int nb, int exponent) {
    uint32_t product[2 * N];
    multiply(a, na, b, nb, product);
    const int n = na + nb, top = product[n - 1] ? n : n - 1;
    real_t r = normalise(product, top, top - n);
    r.exponent += exponent;
    return r;
}

/* Fixed point: N limbs, the highest one the integer part. */

/* s = 1 - u * s / divisor */
static void horner(uint32_t s[N], const uint32_t u[N], uint32_t divisor) {
    uint32_t product[2 * N];
    uint64_t rest = 0, borrow = 0;
    multiply(u, N, s, N, product);
    for (int i = N - 1; i >= 0; i--) {
        rest = rest << 32 | product[i + N - 1];
        s[i] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    for (int i = 0; i < N; i++) {
        const uint64_t minuend = i == N - 1;
        const uint64_t difference = minuend - s[i] - borrow;
        s[i] = (uint32_t)difference;
        borrow = difference >> 63;
    }
}

/* sin(angle) or cos(angle) for 0 < angle <= pi/4 */
static real_t series(const real_t *angle, int cosine) {
    uint32_t u[N] = {0}, s[N] = {0}, square[2 * N];
    multiply(angle->m, N, angle->m, N, square);             /* u = angle**2: `square` shifted right into fixed point */
    const int right = -2 * angle->exponent + 32 * (N + 1), limbs = right / 32, bits = right % 32;
    for (int i = 0; i < N; i++) {
        const int at = i + limbs;
        const uint32_t low = at < 2 * N ? square[at] : 0, high = at + 1 < 2 * N ? square[at + 1] : 0;
        u[i] = bits ? low >> bits | high << (32 - bits) : low;
    }
    s[N - 1] = 1;
    for (uint32_t k = SERIES; k > 0; k--) horner(s, u, cosine ? (2 * k - 1) * (2 * k) : 2 * k * (2 * k + 1));
    if (cosine) {
        const int top = s[N - 1] ? N : N - 1;
        return normalise(s, top, top - N + 1);
    }
    real_t r = times(angle->m, N, s, N, angle->exponent + 32);
    return r;
}

/* Bits of a value from its highest; those above it are 0. */
static int bit(const real_t *value, int i) { return i < 0 ? 0 : (int)(value->m[N - 1 - i / 32] >> (31 - i % 32) & 1); }

/* Whether value * (1 - 2**-sure) and value * (1 + 2**-sure) round to the same number of `keep` bits: next to a half-way point
 * all sure bits beyond the one that is worth half a unit of the last place are its complement. */
static int decided(const real_t *value, int sure, int keep) {
    for (int i = keep + 1; i < sure; i++)
        if (bit(value, i) == bit(value, keep)) return 1;
    return 0;
}

/* Bits of value that are kept in dtype; below 0 where value is less than half of the smallest number. */
static int kept_bits(const real_t *value, format_t f) {
    const int exponent = value->exponent - 1;
    return exponent < f.min_exponent ? f.precision - (f.min_exponent - exponent) : f.precision;
}

/* value, which lies on no half-way point */
static double rounded(const real_t *value, int negative, int keep, format_t f) {
    const int exponent = value->exponent - 1;
    const uint64_t sign = (uint64_t)(negative != 0) << 63;
    if (keep < 0) return double_of_bits(sign);
    const uint64_t top = (uint64_t)value->m[N - 1] << 32 | value->m[N - 2];
    uint64_t q = keep ? top >> (64 - keep) : 0;
    q += top >> (63 - keep) & 1;
    if (q == 0) return double_of_bits(sign);
    /* q * 2**(exponent - keep + 1) */
    int e = exponent - keep + 1;
    if (q >> 53) { /* rounded up to a power of two */
        q >>= 1;
        e++;
    }
    const int width = 64 - (leading_zeros((uint32_t)(q >> 32 ? q >> 32 : q)) + (q >> 32 ? 0 : 32));
    const uint64_t infinity = (uint64_t)0x7ff << 52;
    if (e + width - 1 > 1023) return double_of_bits(infinity | sign);
    uint64_t magnitude;
    if (e + width - 1 < -1022) magnitude = q << (e + 1074);
    else magnitude = ((q << (53 - width)) & 0xfffffffffffffu) | (uint64_t)(e + width - 1 + 1023) << 52;
    if (double_of_bits(magnitude) > f.max) magnitude = infinity;
    return double_of_bits(magnitude | sign);
}

double posenc_exact(const spec_t *spec, const position_t *position, ptrdiff_t column, dtype_t dtype) {
    uint32_t turns[MAX_TURN_LIMBS], product[MAX_TURN_LIMBS + POSITION_LIMBS + 2] = {0};
    const int limbs = spec->integer_limbs + spec->fraction_limbs;
    uint32_t any = 0;
    for (int i = 0; i < limbs; i++) any |= turns[i] = spec->turns[(limbs - 1 - i) * spec->pitch + column];
    if (!any || position->limbs == 0 || spec->scale == 0)
        return spec->quarter[column] && spec->scale != 0 ? round_to(dtype, spec->scale) : 0.0;
    multiply(position->limb, position->limbs, turns, limbs, product);

    /* turns below the point: limbs 0 .. top of the product, the highest of weight 2**-32 */
    const int top = spec->fraction_limbs - position->exponent - 1;
    const int used = limbs + position->limbs;
    int n = top + 1;
    uint32_t wide[MAX_TURN_LIMBS + POSITION_LIMBS + 64] = {0};
    for (int i = 0; i < n && i < used; i++) wide[i] = product[i];
    int quadrant = (int)(((uint64_t)wide[top] + ((uint32_t)1 << 29)) >> 30);
    wide[top] -= (uint32_t)quadrant << 30;
    int negative = (int)(wide[top] >> 31);
    if (negative) {
        uint64_t carry = 1;
        for (int i = 0; i < n; i++) {
            carry += (uint32_t)~wide[i];
            wide[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    while (n > 0 && wide[n - 1] == 0) n--;
    if (n == 0) return spec->decide(spec->context, position, spec->first + column, dtype);

    const uint64_t scale_bits = bits_of_double(spec->scale);
    const real_t turn = normalise(wide, n, n - 1 - top);
    /* the bits that are sure: the phase's error is below 2 |position| units of the last limb of `turns` */
    const int size = 32 * (position->limbs + position->exponent) - leading_zeros(position->limb[position->limbs - 1]);
    const int error = size + 1 - 32 * spec->fraction_limbs - (turn.exponent - 1);
    const int sure = -(larger(error, SMALLEST_ERROR) + 1);
    const real_t angle = times(turn.m, N, EIGHTH_OF_TWO_PI, N, turn.exponent + 3);

    /* sin(angle + quadrant / 4 + quarter / 4), where the sign of position and frequency turns the angle round */
    if (position->negative ^ (int)(spec->sign[column] >> 63)) {
        negative = !negative;
        quadrant = -quadrant;
    }
    quadrant += spec->quarter[column] ? 1 : 0;
    const int cosine = quadrant & 1;
    real_t value = series(&angle, cosine);
    negative = (negative && !cosine) ^ (quadrant >> 1 & 1) ^ (int)(scale_bits >> 63);

    int e = (int)(scale_bits >> 52 & 0x7ff);
    uint64_t m = scale_bits & 0xfffffffffffffu;
    if (e) m |= (uint64_t)1 << 52;
    else e = 1;
    e += 53 - 1075;
    m <<= 11;
    for (; !(m >> 63); m <<= 1) e--;
    const uint32_t scale[2] = {(uint32_t)m, (uint32_t)(m >> 32)};
    value = times(value.m, N, scale, 2, value.exponent + e);
    const format_t f = format_of(dtype);
    const int keep = kept_bits(&value, f);
    if (sure < FEWEST_SURE || !decided(&value, sure, keep)) return spec->decide(spec->context, position, spec->first + column, dtype);
    return rounded(&value, negative, keep, f);
}

double posenc_rounded(dtype_t dtype, double x) {
    const environment_t host = environment_enter();
    /* volatile: a compiler may move arithmetic, but not these accesses, past a change of the environment */
    volatile double in = x;
    volatile double out = round_to(dtype, in);
    environment_leave(host);
    return out;
}
