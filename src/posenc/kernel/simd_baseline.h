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
typedef double V __attribute__((vector_size(16)));
typedef uint64_t U __attribute__((vector_size(16)));
typedef uint32_t U32 __attribute__((vector_size(16)));
enum { W = 2 };
static inline V v_set(double x) { return (V){x, x}; }
static inline U u_set(uint64_t x) { return (U){x, x}; }
static inline U u_load32(const uint32_t *p) { return (U){p[0], p[1]}; }
/* p[0], p[2] ...; u_mul32 of the former looks at the low halves of the lanes only */
static inline U u_load_even32(const uint32_t *p) { return (U){p[0], p[2]}; }
static inline U u_load_even(const uint64_t *p) { return (U){p[0], p[2]}; }
static inline void v_interleave(V a, V b, V *low, V *high) {
    *low = (V){a[0], b[0]};
    *high = (V){a[1], b[1]};
}
static inline U m_zero32(U x) { return (U)((U32)x == 0); }
#else
typedef double V;
typedef uint64_t U;
enum { W = 1 };
static inline V v_set(double x) { return x; }
static inline U u_set(uint64_t x) { return x; }
static inline U u_load32(const uint32_t *p) { return *p; }
static inline U u_load_even32(const uint32_t *p) { return *p; }
static inline U u_load_even(const uint64_t *p) { return *p; }
static inline void v_interleave(V a, V b, V *low, V *high) {
    *low = a;
    *high = b;
}
static inline U m_zero32(U x) { return (x >> 32 == 0) | ((uint32_t)x == 0); }
#endif
typedef U M;                     /* where all is well: no bit */
enum { FUSED = 0, PASS = 16 };     /* there is no v_fms: two_product splits its factors */

static inline V v_load(const double *p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void v_store(double *p, V v) { memcpy(p, &v, sizeof v); }
static inline U u_load(const uint64_t *p) {
    U u;
    memcpy(&u, p, sizeof u);
    return u;
}
static inline V v_bits(U u) {
    V v;
    memcpy(&v, &u, sizeof v);
    return v;
}
static inline U u_bits(V v) {
    U u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static inline V v_add(V a, V b) { return a + b; }
/* a + b where multipliers would idle */
static inline V v_plus(V a, V b) { return a + b; }
static inline V v_sub(V a, V b) { return a - b; }
static inline V v_mul(V a, V b) { return a * b; }
static inline V v_muladd(V a, V b, V c) { return a * b + c; }        /* fused or not: only where the bound allows both */
static inline V v_fms(V a, V b, V c) { return a * b - c; }           /* never called: FUSED is 0 */

static inline U u_add(U a, U b) { return a + b; }
static inline U u_sub(U a, U b) { return a - b; }
static inline U u_and(U a, U b) { return a & b; }
static inline U u_or(U a, U b) { return a | b; }
static inline U u_xor(U a, U b) { return a ^ b; }
static inline U u_shl(U a, int n) { return a << n; }
static inline U u_shr(U a, int n) { return a >> n; }
static inline U u_select(U mask, U a, U b) { return (mask & a) | (~mask & b); }
#if defined(__SSE2__)
static inline U u_mul32(U a, U b) { return (U)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
static inline U u_mul32(U a, U b) { return a * b; }                  /* of numbers below 2**32 */
#endif

static inline M m_all(void) { return u_set(0); }
/* ... and both halves of each lane of x & mask are not zero */
static inline M m_and_nonzero(M m, U x, U mask) { return m | m_zero32(x & mask); }

/* F: two vectors rounded to floats.  N: whether both 16-bit halves of each lane of F plus its addend are not zero under a
 * mask; where all is well: no bit. */
#if defined(__SSE2__)
typedef __m128 F;
typedef __m128i N;
static inline int u_is_zero(U m) { return _mm_movemask_epi8(_mm_cmpeq_epi32((__m128i)m, _mm_setzero_si128())) == 0xffff; }
static inline int m_is_all(M m) { return _mm_movemask_epi8((__m128i)m) == 0; }
static inline F f_pair(V a, V b) { return _mm_movelh_ps(_mm_cvtpd_ps((__m128d)a), _mm_cvtpd_ps((__m128d)b)); }
/* Writes 2 W floats; `stream`: past the caches, from a boundary of as many bytes. */
static inline void f_put(float *p, F f, int stream) {
    if (stream) _mm_stream_ps(p, f);
    else _mm_storeu_ps(p, f);
}
static inline void v_put(double *p, V v, int stream) {
    if (stream) _mm_stream_pd(p, (__m128d)v);
    else v_store(p, v);
}
/* Writes 4 W floats, of which none lies half-way between two bfloat16. */
static inline void b_put(uint16_t *p, F a, F b, int stream) {
    /* rounded, then narrowed with signed saturation, which changes nothing after an arithmetic shift */
    const __m128i half = _mm_set1_epi32(0x8000);
    const __m128i low = _mm_srai_epi32(_mm_add_epi32(_mm_castps_si128(a), half), 16);
    const __m128i high = _mm_srai_epi32(_mm_add_epi32(_mm_castps_si128(b), half), 16);
    const __m128i x = _mm_packs_epi32(low, high);
    if (stream) _mm_stream_si128((__m128i *)(void *)p, x);
    else _mm_storeu_si128((__m128i *)(void *)p, x);
}
static inline N n_all(void) { return _mm_setzero_si128(); }
static inline N n_and_nonzero(N n, F f, U addend, uint32_t mask) {
    const __m128i x = _mm_add_epi32(_mm_castps_si128(f), (__m128i)addend);
    return _mm_or_si128(n, _mm_cmpeq_epi16(_mm_and_si128(x, _mm_set1_epi32((int)mask)), _mm_setzero_si128()));
}
static inline int n_is_all(N n) { return _mm_movemask_epi8(n) == 0; }
static inline void stream_fence(void) { _mm_sfence(); }
#else
typedef struct {
    float lane[2 * W];
} F;
typedef uint32_t N;
static inline int u_is_zero(U m) {
    uint64_t lanes[W], any = 0;
    memcpy(lanes, &m, sizeof lanes);
    for (int i = 0; i < W; i++) any |= lanes[i];
    return any == 0;
}
static inline int m_is_all(M m) { return u_is_zero(m); }
static inline F f_pair(V a, V b) {
    double t[2 * W];
    F f;
    v_store(t, a);
    v_store(t + W, b);
    for (int i = 0; i < 2 * W; i++) f.lane[i] = (float)t[i];
    return f;
}
static inline void f_put(float *p, F f, int stream) {
    (void)stream;
    memcpy(p, &f, sizeof f);
}
static inline void v_put(double *p, V v, int stream) {
    (void)stream;
    v_store(p, v);
}
static inline void b_put(uint16_t *p, F a, F b, int stream) {
    (void)stream;
    for (int i = 0; i < 2 * W; i++) p[i] = (uint16_t)((bits_of_float(a.lane[i]) + 0x8000u) >> 16);
    for (int i = 0; i < 2 * W; i++) p[2 * W + i] = (uint16_t)((bits_of_float(b.lane[i]) + 0x8000u) >> 16);
}
static inline N n_all(void) { return 0; }
static inline N n_and_nonzero(N n, F f, U addend, uint32_t mask) {
    uint32_t lanes[2 * W];
    memcpy(lanes, &addend, sizeof lanes);
    for (int i = 0; i < 2 * W; i++) {
        const uint32_t x = (bits_of_float(f.lane[i]) + lanes[i]) & mask;
        n |= (uint32_t)(x >> 16 == 0) | (uint32_t)((x & 0xffff) == 0);
    }
    return n;
}
static inline int n_is_all(N n) { return n == 0; }
static inline void stream_fence(void) {}
#endif

/* Writes 4 W floats, of which none lies half-way between two float16. */
static inline void h_put(uint16_t *p, F a, F b, int stream) {
    float t[4 * W];
    uint16_t half[4 * W];
    uint32_t special = 0;
    (void)stream;
    f_put(t, a, 0);
    f_put(t + 2 * W, b, 0);
    for (int i = 0; i < 4 * W; i++) {
        const uint32_t u = bits_of_float(t[i]), magnitude = u & 0x7fffffffu;
        half[i] = (uint16_t)((magnitude - (112u << 23) + 0x1000u) >> 13 | (u >> 16 & 0x8000u));
        special |= (uint32_t)(magnitude - 0x38800000u >= 0x47000000u - 0x38800000u);       /* outside 2**-14 .. 2**15 */
    }
    if (special)
        for (int i = 0; i < 4 * W; i++) half[i] = half_of_float(t[i]);
    memcpy(p, half, sizeof half);
}
static inline void h_store(uint16_t p[TILE], const float f[TILE]) {
    for (int i = 0; i < TILE; i++) p[i] = half_of_float(f[i]);
}
static inline void h_load(float f[TILE], const uint16_t p[TILE]) {
    for (int i = 0; i < TILE; i++) f[i] = float_of_half(p[i]);
}

#endif
