/* Real numbers with 320 bits, and their rounding.  A number with n sure bits has a relative error below 2**-n. */
#ifndef POSENC_REAL_H
#define POSENC_REAL_H

#include "exact/rounding.h"

enum {
    LIMBS = 10,                  /* 32-bit limbs of a mantissa */
    MIN_SURE_BITS = 64,          /* a value with fewer sure bits is not used; with 0 or fewer, even its sign may be wrong */
    EXACT = 1 << 20              /* sure bits of an exact number */
};

/* 0.m * 2**exponent; m[LIMBS - 1] is the highest limb, and its top bit is set unless the number is 0. */
typedef struct {
    uint32_t m[LIMBS];
    int exponent;
} real_t;

static inline int larger(int a, int b) { return a > b ? a : b; }

static inline int leading_zeros(uint32_t x) {
    int n = 0;
    for (; !(x & 0x80000000u); x <<= 1) n++;
    return n;
}

/* 0.w * 2**(32 * exponent), truncated to LIMBS limbs.  w has n limbs, and w[n - 1] must not be 0. */
static inline real_t normalise(const uint32_t *w, int n, int exponent) {
    real_t r = {.exponent = 32 * exponent};
    const int shift = leading_zeros(w[n - 1]);
    for (int i = 0; i < LIMBS; i++) {
        const int at = n - LIMBS + i;
        const uint32_t high = at >= 0 ? w[at] : 0, low = at >= 1 ? w[at - 1] : 0;
        r.m[i] = shift ? high << shift | low >> (32 - shift) : high;
    }
    r.exponent -= shift;
    return r;
}

static inline void multiply(const uint32_t *a, int na, const uint32_t *b, int nb, uint32_t *product) {
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

/* 0.a * 0.b * 2**exponent */
static inline real_t times(const uint32_t *a, int na, const uint32_t *b, int nb, int exponent) {
    uint32_t product[2 * LIMBS];
    multiply(a, na, b, nb, product);
    const int n = na + nb, top = product[n - 1] ? n : n - 1;
    real_t r = normalise(product, top, top - n);
    r.exponent += exponent;
    return r;
}

/* |x|, for finite x. */
static inline real_t real_of(double x) {
    real_t r = {.m = {0}};
    int e;
    uint64_t m = significand_of(x, &e);
    if (m == 0) return r;
    for (m <<= 11, e += 53; !(m >> 63); m <<= 1) e--;
    r.m[LIMBS - 1] = (uint32_t)(m >> 32);
    r.m[LIMBS - 2] = (uint32_t)m;
    r.exponent = e;
    return r;
}

static inline int is_zero(const real_t *value) { return value->m[LIMBS - 1] == 0; }

/* value * |x|, for x other than 0 */
static inline real_t product_of(const real_t *value, double x) {
    const real_t factor = real_of(x);
    return times(value->m, LIMBS, factor.m + LIMBS - 2, 2, value->exponent + factor.exponent);
}

/* Bit i of the mantissa, where bit 0 is the highest; 0 if i < 0. */
static inline int bit(const real_t *value, int i) {
    return i < 0 ? 0 : (int)(value->m[LIMBS - 1 - i / 32] >> (31 - i % 32) & 1);
}

/* Returns whether value * (1 - 2**-sure) and value * (1 + 2**-sure) are certain to round to the same number with `precision`
 * bits.  Bit `precision` is worth half an ulp.  The value may be next to a half-way point if all later sure bits differ from
 * this bit. */
static inline int decided(const real_t *value, int sure, int precision) {
    for (int i = precision + 1; i < sure; i++)
        if (bit(value, i) == bit(value, precision)) return 1;
    return 0;
}

/* The precision of a format at `value`: lower if `value` is subnormal, negative below half of the smallest positive number. */
static inline int precision_of(const real_t *value, format_t f) {
    const int exponent = value->exponent - 1;
    return exponent < f.min_exponent ? f.precision - (f.min_exponent - exponent) : f.precision;
}

/* Rounds a value to nearest, and half-way points away from zero. */
static inline double rounded(const real_t *value, int negative, int precision, format_t f) {
    const int exponent = value->exponent - 1;
    const uint64_t sign = (uint64_t)(negative != 0) << 63;
    if (precision < 0) return double_of_bits(sign);
    const uint64_t top = (uint64_t)value->m[LIMBS - 1] << 32 | value->m[LIMBS - 2];
    uint64_t q = precision ? top >> (64 - precision) : 0;
    q += top >> (63 - precision) & 1;
    if (q == 0) return double_of_bits(sign);
    /* the magnitude is q * 2**e */
    int e = exponent - precision + 1;
    if (q >> 53) q >>= 1, e++; /* rounded up to a power of two */
    const int width = 64 - (leading_zeros((uint32_t)(q >> 32 ? q >> 32 : q)) + (q >> 32 ? 0 : 32));
    const uint64_t infinity = (uint64_t)0x7ff << 52;
    if (e + width - 1 > 1023) return double_of_bits(infinity | sign);
    uint64_t magnitude;
    if (e + width - 1 < -1022) magnitude = q << (e + 1074);
    else magnitude = ((q << (53 - width)) & 0xfffffffffffffu) | (uint64_t)(e + width - 1 + 1023) << 52;
    if (double_of_bits(magnitude) > f.max) magnitude = infinity;
    return double_of_bits(magnitude | sign);
}

#endif
