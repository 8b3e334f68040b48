/* Verbs of AVX2 with FMA and F16C: see simd_baseline.h for what each does. */
#ifndef POSENC_SIMD_H
#define POSENC_SIMD_H

#include <immintrin.h>
#include "rounding.h"

typedef __m256d V;
typedef __m256i U;
typedef __m256i M;
typedef __m256 F;
typedef __m256i N;
enum { W = 4, FUSED = 1, PASS = TILE };

static inline V v_set(double x) { return _mm256_set1_pd(x); }
static inline V v_load(const double *p) { return _mm256_loadu_pd(p); }
static inline void v_store(double *p, V v) { _mm256_storeu_pd(p, v); }
static inline void v_put(double *p, V v, int stream) {
    if (stream) _mm256_stream_pd(p, v);
    else _mm256_storeu_pd(p, v);
}
static inline U u_set(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
static inline U u_load(const uint64_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline U u_load32(const uint32_t *p) { return _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(const void *)p)); }
static inline U u_load_even32(const uint32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline U u_load_even(const uint64_t *p) {
    return _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(u_load(p), u_load(p + 4)), 0xd8);
}
static inline V v_bits(U u) { return _mm256_castsi256_pd(u); }
static inline U u_bits(V v) { return _mm256_castpd_si256(v); }

static inline V v_add(V a, V b) { return _mm256_add_pd(a, b); }
static inline V v_plus(V a, V b) { return _mm256_fmadd_pd(a, _mm256_set1_pd(1), b); }
static inline V v_sub(V a, V b) { return _mm256_sub_pd(a, b); }
static inline V v_mul(V a, V b) { return _mm256_mul_pd(a, b); }
static inline V v_muladd(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
static inline V v_fms(V a, V b, V c) { return _mm256_fmsub_pd(a, b, c); }

static inline U u_add(U a, U b) { return _mm256_add_epi64(a, b); }
static inline U u_sub(U a, U b) { return _mm256_sub_epi64(a, b); }
static inline U u_and(U a, U b) { return _mm256_and_si256(a, b); }
static inline U u_or(U a, U b) { return _mm256_or_si256(a, b); }
static inline U u_xor(U a, U b) { return _mm256_xor_si256(a, b); }
static inline U u_shl(U a, int n) { return _mm256_slli_epi64(a, n); }
static inline U u_shr(U a, int n) { return _mm256_srli_epi64(a, n); }
static inline U u_select(U mask, U a, U b) { return _mm256_blendv_epi8(b, a, mask); }
static inline int u_is_zero(U a) { return _mm256_testz_si256(a, a); }
static inline U u_mul32(U a, U b) { return _mm256_mul_epu32(a, b); }

static inline void v_interleave(V a, V b, V *low, V *high) {
    const V even = _mm256_unpacklo_pd(a, b), odd = _mm256_unpackhi_pd(a, b);
    *low = _mm256_permute2f128_pd(even, odd, 0x20);
    *high = _mm256_permute2f128_pd(even, odd, 0x31);
}

/* No half of a lane is zero. */
static inline M m_all(void) { return _mm256_set1_epi32(-1); }
static inline M m_and_nonzero(M m, U x, U mask) { return _mm256_min_epu32(m, _mm256_and_si256(x, mask)); }
static inline int m_is_all(M m) { return _mm256_movemask_epi8(_mm256_cmpeq_epi32(m, _mm256_setzero_si256())) == 0; }

static inline F f_pair(V a, V b) { return _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)); }
static inline void f_put(float *p, F f, int stream) {
    if (stream) _mm256_stream_ps(p, f);
    else _mm256_storeu_ps(p, f);
}
static inline void sixteen_put(uint16_t *p, __m256i x, int stream) {
    __m256i *q = (__m256i *)(void *)p;
    if (stream) _mm256_stream_si256(q, x);
    else _mm256_storeu_si256(q, x);
}
static inline void h_put(uint16_t *p, F a, F b, int stream) {
    sixteen_put(p,
                _mm256_set_m128i(_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)),
                stream);
}
static inline void b_put(uint16_t *p, F a, F b, int stream) {
    const __m256i half = _mm256_set1_epi32(0x8000);
    const __m256i low = _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(a), half), 16);
    const __m256i high = _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(b), half), 16);
    sixteen_put(p, _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8), stream);
}

static inline N n_all(void) { return _mm256_set1_epi32(-1); }
static inline N n_and_nonzero(N n, F f, U addend, uint32_t mask) {
    const __m256i x = _mm256_add_epi32(_mm256_castps_si256(f), addend);
    return _mm256_min_epu16(n, _mm256_and_si256(x, _mm256_set1_epi32((int)mask)));
}
static inline int n_is_all(N n) { return _mm256_movemask_epi8(_mm256_cmpeq_epi16(n, _mm256_setzero_si256())) == 0; }
static inline void stream_fence(void) { _mm_sfence(); }

#include "half_f16c.h"

#endif
