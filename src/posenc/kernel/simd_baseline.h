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
static inline U m_unequal(V a, V b) { return (U)(a != b); }
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
static inline U m_unequal(V a, V b) { return a != b; }
#endif
typedef U M;                     /* where all is well: no bit */
enum { GROUP = 16 };             /* columns of float32 or narrower that are handled together */
enum { FUSED = 0 };              /* there is no v_fms: two_product splits its factors */

static inline V v_load(const double *p) { V v; memcpy(&v, p, sizeof v); return v; }
static inline void v_store(double *p, V v) { memcpy(p, &v, sizeof v); }
static inline U u_load(const uint64_t *p) { U u; memcpy(&u, p, sizeof u); return u; }
static inline void u_store(uint64_t *p, U u) { memcpy(p, &u, sizeof u); }
static inline V v_bits(U u) { V v; memcpy(&v, &u, sizeof v); return v; }
static inline U u_bits(V v) { U u; memcpy(&u, &v, sizeof u); return u; }

static inline V v_add(V a, V b) { return a + b; }
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
static inline M m_and_equal(M m, V a, V b) { return m | m_unequal(a, b); }

#if defined(__SSE2__)
static inline int u_is_zero(U m) { return _mm_movemask_epi8(_mm_cmpeq_epi32((__m128i)m, _mm_setzero_si128())) == 0xffff; }
static inline int m_is_all(M m) { return _mm_movemask_epi8((__m128i)m) == 0; }
static inline __m128 f_pair(V a, V b) { return _mm_movelh_ps(_mm_cvtpd_ps((__m128d)a), _mm_cvtpd_ps((__m128d)b)); }
/* Writes two vectors as floats; `stream`: past the caches, from a 16-byte boundary. */
static inline void f_put(float *p, V a, V b, int stream) {
    if (stream) _mm_stream_ps(p, f_pair(a, b)); else _mm_storeu_ps(p, f_pair(a, b));
}
/* p * x_scale + the two vectors as floats */
static inline void f_add(float *p, V a, V b, float x_scale) {
    _mm_storeu_ps(p, _mm_add_ps(_mm_mul_ps(_mm_loadu_ps(p), _mm_set1_ps(x_scale)), f_pair(a, b)));
}
static inline void v_put(double *p, V v, int stream) {
    if (stream) _mm_stream_pd(p, (__m128d)v); else v_store(p, v);
}
static inline void stream_fence(void) { _mm_sfence(); }
#else
static inline int u_is_zero(U m) {
    uint64_t lanes[W], any = 0;
    memcpy(lanes, &m, sizeof lanes);
    for (int i = 0; i < W; i++) any |= lanes[i];
    return any == 0;
}
static inline int m_is_all(M m) { return u_is_zero(m); }
static inline void f_put(float *p, V a, V b, int stream) {
    double t[2 * W];
    (void)stream;
    v_store(t, a);
    v_store(t + W, b);
    for (int i = 0; i < 2 * W; i++) p[i] = (float)t[i];
}
static inline void f_add(float *p, V a, V b, float x_scale) {
    float t[2 * W];
    f_put(t, a, b, 0);
    for (int i = 0; i < 2 * W; i++) p[i] = p[i] * x_scale + t[i];
}
static inline void v_put(double *p, V v, int stream) {
    (void)stream;
    v_store(p, v);
}
static inline void stream_fence(void) {}
#endif

/* float16 and bfloat16: two vectors, and arrays. */
static inline void h_put(uint16_t *p, V a, V b, int stream) {
    float t[2 * W];
    (void)stream;
    f_put(t, a, b, 0);
    for (int i = 0; i < 2 * W; i++) p[i] = half_of_float(t[i]);
}
static inline void b_put(uint16_t *p, V a, V b, int stream) {
    float t[2 * W];
    (void)stream;
    f_put(t, a, b, 0);
    for (int i = 0; i < 2 * W; i++) p[i] = bfloat_of_float(t[i]);
}
static inline void h_store(uint16_t *p, const float *f, int n) { for (int i = 0; i < n; i++) p[i] = half_of_float(f[i]); }
static inline void h_load(float *f, const uint16_t *p, int n) { for (int i = 0; i < n; i++) f[i] = float_of_half(p[i]); }

#endif
