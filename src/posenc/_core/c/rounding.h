/* The floating-point environment of the kernels, the bits of floating-point numbers, and the rounding of a double
 * to a dtype: to nearest, ties to even. */
#ifndef POSENC_ROUNDING_H
#define POSENC_ROUNDING_H

#include <string.h>
#include "kernel.h"

/* ---- environment --------------------------------------------------------------------------------------- */

/* The environment of the kernels: round to nearest, no flush-to-zero.  The environment of the host program is
 * restored afterwards. */
#if defined(__SSE2__) || defined(_M_X64) || (defined(_M_IX86_FP) && _M_IX86_FP == 2)
#include <xmmintrin.h>
typedef unsigned int environment_t;
static inline environment_t environment_enter(void) {
    const environment_t host = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return host;
}
static inline void environment_leave(environment_t host) { _mm_setcsr(host); }

#else
#include <fenv.h>
typedef fenv_t environment_t;
static inline environment_t environment_enter(void) {
    environment_t host;
    fegetenv(&host);
    fesetenv(FE_DFL_ENV);
    return host;
}
static inline void environment_leave(environment_t host) { fesetenv(&host); }
#endif

/* ---- bits and rounding --------------------------------------------------------------------------------- */

/* The same bits as another type of the same size. */
#define DEFINE_COPY(name, to, from) \
    static inline to name(from x) { \
        to y; \
        memcpy(&y, &x, sizeof y); \
        return y; \
    }
DEFINE_COPY(bits_of_double, uint64_t, double)
DEFINE_COPY(bits_of_float, uint32_t, float)
DEFINE_COPY(float_of_bits, float, uint32_t)
DEFINE_COPY(double_of_bits, double, uint64_t)

/* |x| = significand * 2**exponent, for finite x. */
static inline uint64_t significand_of(double x, int *exponent) {
    const uint64_t u = bits_of_double(x), fraction = u & 0xfffffffffffffu;
    const int e = (int)(u >> 52 & 0x7ff);
    *exponent = (e ? e : 1) - 1075;
    return e ? fraction | (uint64_t)1 << 52 : fraction;
}

/* precision in bits, smallest exponent of a normal number, largest finite number */
typedef struct {
    int precision, min_exponent;
    double max;
} format_t;

static inline format_t format_of(dtype_t dtype) {
    switch (dtype) {
    case FLOAT64: return (format_t){53, -1022, 0x1.fffffffffffffp1023};
    case FLOAT32: return (format_t){24, -126, 0x1.fffffep127};
    case FLOAT16: return (format_t){11, -14, 0x1.ffcp15};
    default: return (format_t){8, -126, 0x1.fep127};
    }
}

static inline double magnitude_of(double x) { return double_of_bits(bits_of_double(x) & INT64_MAX); }

/* 2**e, which must be normal. */
static inline double power_of_two(int e) { return double_of_bits((uint64_t)(e + 1023) << 52); }

/* x rounded to dtype, as a double. */
static inline double round_to(dtype_t dtype, double x) {
    if (dtype == FLOAT64) return x;
    if (dtype == FLOAT32) return (double)(float)x;
    const format_t f = format_of(dtype);
    const uint64_t sign = bits_of_double(x) & (uint64_t)1 << 63, u = bits_of_double(x) ^ sign;
    double magnitude = double_of_bits(u), r;
    if (!(magnitude <= DBL_MAX)) return x;
    if (magnitude < power_of_two(f.min_exponent)) {
        /* the sum rounds to a multiple of the smallest subnormal number, which is an ulp of `shift` */
        const double shift = 1.5 * power_of_two(52 + f.min_exponent - f.precision + 1);
        r = (magnitude + shift) - shift;
    } else {
        const int drop = 53 - f.precision;
        const uint64_t odd = u >> drop & 1;
        r = double_of_bits((u + ((uint64_t)1 << (drop - 1)) - 1 + odd) >> drop << drop);
    }
    if (r > f.max) r = double_of_bits((uint64_t)0x7ff << 52);
    return double_of_bits(bits_of_double(r) | sign);
}

/* x rounded to dtype, for callers outside the kernels, in any floating-point environment. */
static inline double rounded_in_default(dtype_t dtype, double x) {
    const environment_t host = environment_enter();
    /* volatile: the compiler may move arithmetic past a change of the environment, but not these accesses */
    volatile double in = x;
    volatile double out = round_to(dtype, in);
    environment_leave(host);
    return out;
}

/* The bits of x rounded to float16. */
static inline uint16_t half_of_float(float x) {
    const uint32_t u = bits_of_float(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    const uint32_t rounded = magnitude + 0xfffu + (u >> 13 & 1u);
    if (magnitude > 0x7f800000u) return 0x7e00;
    if (rounded >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
    /* an ulp of 1/2 is the smallest subnormal number */
    return (uint16_t)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u));
}

static inline float float_of_half(uint16_t h) {
    const uint32_t special = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0, magnitude = (h & 0x7fffu) << 13;
    const uint32_t finite = bits_of_float(float_of_bits(magnitude) * 0x1p112f);
    return float_of_bits((special ? special | magnitude : finite) | (h & 0x8000u) << 16);
}

#endif
