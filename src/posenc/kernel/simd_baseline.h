/* Verbs of the baseline: 16-byte vectors of GCC and clang (SSE2 on x86-64, NEON on arm64, plain registers elsewhere), or
 * single numbers for other compilers. */
#ifndef POSENC_SIMD_H
#define POSENC_SIMD_H

#include <string.h>
#include "rounding.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(__GNUC__)
typedef double vf64 __attribute__((vector_size(16)));
typedef uint64_t vu64 __attribute__((vector_size(16)));
typedef uint32_t vu32 __attribute__((vector_size(16)));
enum { LANES = 2 };
static inline vf64 f64_set(double x) { return (vf64){x, x}; }
static inline vu64 u64_set(uint64_t x) { return (vu64){x, x}; }
static inline vu64 u64_load32(const uint32_t *p) { return (vu64){p[0], p[1]}; }
/* p[0], p[2] ...; u64_mul32 of the former looks at the low halves of the lanes only */
static inline vu64 u64_load_even32(const uint32_t *p) { return (vu64){p[0], p[2]}; }
static inline vu64 u64_load_even(const uint64_t *p) { return (vu64){p[0], p[2]}; }
static inline void f64_interleave(vf64 a, vf64 b, vf64 *low, vf64 *high) {
    *low = (vf64){a[0], b[0]};
    *high = (vf64){a[1], b[1]};
}
static inline vu64 u32_is_zero(vu64 x) { return (vu64)((vu32)x == 0); }
#else
typedef double vf64;
typedef uint64_t vu64;
enum { LANES = 1 };
static inline vf64 f64_set(double x) { return x; }
static inline vu64 u64_set(uint64_t x) { return x; }
static inline vu64 u64_load32(const uint32_t *p) { return *p; }
static inline vu64 u64_load_even32(const uint32_t *p) { return *p; }
static inline vu64 u64_load_even(const uint64_t *p) { return *p; }
static inline void f64_interleave(vf64 a, vf64 b, vf64 *low, vf64 *high) {
    *low = a;
    *high = b;
}
static inline vu64 u32_is_zero(vu64 x) { return (x >> 32 == 0) | ((uint32_t)x == 0); }
#endif
typedef vu64 mask64;                     /* where all is well: no bit */
enum { FUSED = 0, PASS = 16 };     /* there is no f64_mulsub: two_product splits its factors */

static inline vf64 f64_load(const double *p) {
    vf64 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void f64_store(double *p, vf64 v) { memcpy(p, &v, sizeof v); }
static inline vu64 u64_load(const uint64_t *p) {
    vu64 u;
    memcpy(&u, p, sizeof u);
    return u;
}
static inline vf64 f64_of_bits(vu64 u) {
    vf64 v;
    memcpy(&v, &u, sizeof v);
    return v;
}
static inline vu64 bits_of_f64(vf64 v) {
    vu64 u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static inline vf64 f64_add(vf64 a, vf64 b) { return a + b; }
/* a + b where multipliers would idle */
static inline vf64 f64_add_fused(vf64 a, vf64 b) { return a + b; }
static inline vf64 f64_sub(vf64 a, vf64 b) { return a - b; }
static inline vf64 f64_mul(vf64 a, vf64 b) { return a * b; }
static inline vf64 f64_muladd(vf64 a, vf64 b, vf64 c) { return a * b + c; } /* fused or not: only where the bound allows both */
static inline vf64 f64_mulsub(vf64 a, vf64 b, vf64 c) { return a * b - c; } /* never called: FUSED is 0 */

static inline vu64 u64_add(vu64 a, vu64 b) { return a + b; }
static inline vu64 u64_sub(vu64 a, vu64 b) { return a - b; }
static inline vu64 u64_and(vu64 a, vu64 b) { return a & b; }
static inline vu64 u64_or(vu64 a, vu64 b) { return a | b; }
static inline vu64 u64_xor(vu64 a, vu64 b) { return a ^ b; }
static inline vu64 u64_shl(vu64 a, int n) { return a << n; }
static inline vu64 u64_shr(vu64 a, int n) { return a >> n; }
static inline vu64 u64_select(vu64 mask, vu64 a, vu64 b) { return (mask & a) | (~mask & b); }
#if defined(__SSE2__)
static inline vu64 u64_mul32(vu64 a, vu64 b) { return (vu64)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
static inline vu64 u64_mul32(vu64 a, vu64 b) { return a * b; }                  /* of numbers below 2**32 */
#endif

static inline mask64 mask64_all(void) { return u64_set(0); }
/* ... and both halves of each lane of x & mask are not zero */
static inline mask64 mask64_and_nonzero(mask64 m, vu64 x, vu64 mask) { return m | u32_is_zero(x & mask); }

/* vf32: two vectors rounded to floats.  mask32: whether both 16-bit halves of each lane of vf32 plus its addend are not zero under a
 * mask; where all is well: no bit. */
#if defined(__SSE2__)
typedef __m128 vf32;
typedef __m128i mask32;
static inline int u64_is_zero(vu64 m) { return _mm_movemask_epi8(_mm_cmpeq_epi32((__m128i)m, _mm_setzero_si128())) == 0xffff; }
static inline int mask64_is_all(mask64 m) { return _mm_movemask_epi8((__m128i)m) == 0; }
static inline vf32 f32_of_f64(vf64 a, vf64 b) { return _mm_movelh_ps(_mm_cvtpd_ps((__m128d)a), _mm_cvtpd_ps((__m128d)b)); }
/* Writes 2 LANES floats; `stream`: past the caches, from a boundary of as many bytes. */
static inline void f32_flush(float *p, vf32 f, int stream) {
    if (stream) _mm_stream_ps(p, f);
    else _mm_storeu_ps(p, f);
}
static inline void f64_flush(double *p, vf64 v, int stream) {
    if (stream) _mm_stream_pd(p, (__m128d)v);
    else f64_store(p, v);
}
/* Writes 4 LANES floats, of which none lies half-way between two bfloat16. */
static inline void bf16_flush(uint16_t *p, vf32 a, vf32 b, int stream) {
    /* rounded, then narrowed with signed saturation, which changes nothing after an arithmetic shift */
    const __m128i half = _mm_set1_epi32(0x8000);
    const __m128i low = _mm_srai_epi32(_mm_add_epi32(_mm_castps_si128(a), half), 16);
    const __m128i high = _mm_srai_epi32(_mm_add_epi32(_mm_castps_si128(b), half), 16);
    const __m128i x = _mm_packs_epi32(low, high);
    if (stream) _mm_stream_si128((__m128i *)(void *)p, x);
    else _mm_storeu_si128((__m128i *)(void *)p, x);
}
static inline mask32 mask32_all(void) { return _mm_setzero_si128(); }
static inline mask32 mask32_and_nonzero(mask32 n, vf32 f, vu64 addend, uint32_t mask) {
    const __m128i x = _mm_add_epi32(_mm_castps_si128(f), (__m128i)addend);
    return _mm_or_si128(n, _mm_cmpeq_epi16(_mm_and_si128(x, _mm_set1_epi32((int)mask)), _mm_setzero_si128()));
}
static inline int mask32_is_all(mask32 n) { return _mm_movemask_epi8(n) == 0; }
static inline void stream_fence(void) { _mm_sfence(); }
#else
typedef struct {
    float lane[2 * LANES];
} vf32;
typedef uint32_t mask32;
static inline int u64_is_zero(vu64 m) {
    uint64_t lanes[LANES], any = 0;
    memcpy(lanes, &m, sizeof lanes);
    for (int i = 0; i < LANES; i++) any |= lanes[i];
    return any == 0;
}
static inline int mask64_is_all(mask64 m) { return u64_is_zero(m); }
static inline vf32 f32_of_f64(vf64 a, vf64 b) {
    double t[2 * LANES];
    vf32 f;
    f64_store(t, a);
    f64_store(t + LANES, b);
    for (int i = 0; i < 2 * LANES; i++) f.lane[i] = (float)t[i];
    return f;
}
static inline void f32_flush(float *p, vf32 f, int stream) {
    (void)stream;
    memcpy(p, &f, sizeof f);
}
static inline void f64_flush(double *p, vf64 v, int stream) {
    (void)stream;
    f64_store(p, v);
}
static inline void bf16_flush(uint16_t *p, vf32 a, vf32 b, int stream) {
    (void)stream;
    for (int i = 0; i < 2 * LANES; i++) p[i] = (uint16_t)((bits_of_float(a.lane[i]) + 0x8000u) >> 16);
    for (int i = 0; i < 2 * LANES; i++) p[2 * LANES + i] = (uint16_t)((bits_of_float(b.lane[i]) + 0x8000u) >> 16);
}
static inline mask32 mask32_all(void) { return 0; }
static inline mask32 mask32_and_nonzero(mask32 n, vf32 f, vu64 addend, uint32_t mask) {
    uint32_t lanes[2 * LANES];
    memcpy(lanes, &addend, sizeof lanes);
    for (int i = 0; i < 2 * LANES; i++) {
        const uint32_t x = (bits_of_float(f.lane[i]) + lanes[i]) & mask;
        n |= (uint32_t)(x >> 16 == 0) | (uint32_t)((x & 0xffff) == 0);
    }
    return n;
}
static inline int mask32_is_all(mask32 n) { return n == 0; }
static inline void stream_fence(void) {}
#endif

/* Writes 4 LANES floats, of which none lies half-way between two float16. */
static inline void f16_flush(uint16_t *p, vf32 a, vf32 b, int stream) {
    float t[4 * LANES];
    uint16_t half[4 * LANES];
    uint32_t special = 0;
    (void)stream;
    f32_flush(t, a, 0);
    f32_flush(t + 2 * LANES, b, 0);
    for (int i = 0; i < 4 * LANES; i++) {
        const uint32_t u = bits_of_float(t[i]), magnitude = u & 0x7fffffffu;
        half[i] = (uint16_t)((magnitude - (112u << 23) + 0x1000u) >> 13 | (u >> 16 & 0x8000u));
        special |= (uint32_t)(magnitude - 0x38800000u >= 0x47000000u - 0x38800000u); /* outside 2**-14 .. 2**15 */
    }
    if (special)
        for (int i = 0; i < 4 * LANES; i++) half[i] = half_of_float(t[i]);
    memcpy(p, half, sizeof half);
}
static inline void f16_store_tile(uint16_t p[TILE], const float f[TILE]) {
    for (int i = 0; i < TILE; i++) p[i] = half_of_float(f[i]);
}
static inline void f16_load_tile(float f[TILE], const uint16_t p[TILE]) {
    for (int i = 0; i < TILE; i++) f[i] = float_of_half(p[i]);
}

#endif
