/* Verbs of AVX2 with FMA and F16C: see simd_baseline.h for what each does. */
#ifndef POSENC_SIMD_H
#define POSENC_SIMD_H

#include <immintrin.h>
#include "rounding.h"

typedef __m256d V;
typedef __m256i U;
typedef __m256i M;
enum { W = 4, FUSED = 1 };

static inline V v_set(double x) { return _mm256_set1_pd(x); }
static inline V v_load(const double *p) { return _mm256_loadu_pd(p); }
static inline void v_store(double *p, V v) { _mm256_storeu_pd(p, v); }
static inline void v_stream(double *p, V v) { _mm256_stream_pd(p, v); }
static inline U u_set(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
static inline U u_load(const uint64_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline void u_store(uint64_t *p, U u) { _mm256_storeu_si256((__m256i *)(void *)p, u); }
static inline U u_load32(const uint32_t *p) { return _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(const void *)p)); }
static inline V v_bits(U u) { return _mm256_castsi256_pd(u); }
static inline U u_bits(V v) { return _mm256_castpd_si256(v); }

static inline V v_add(V a, V b) { return _mm256_add_pd(a, b); }
static inline V v_sub(V a, V b) { return _mm256_sub_pd(a, b); }
static inline V v_mul(V a, V b) { return _mm256_mul_pd(a, b); }
static inline V v_muladd(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
static inline V v_fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }

static inline U u_add(U a, U b) { return _mm256_add_epi64(a, b); }
static inline U u_sub(U a, U b) { return _mm256_sub_epi64(a, b); }
static inline U u_and(U a, U b) { return _mm256_and_si256(a, b); }
static inline U u_or(U a, U b) { return _mm256_or_si256(a, b); }
static inline U u_xor(U a, U b) { return _mm256_xor_si256(a, b); }
static inline U u_shl(U a, int n) { return _mm256_slli_epi64(a, n); }
static inline U u_shr(U a, int n) { return _mm256_srli_epi64(a, n); }
static inline U u_select(U mask, U a, U b) { return _mm256_blendv_epi8(b, a, mask); }
static inline U u_mul32(U a, U b) { return _mm256_mul_epu32(a, b); }

static inline M m_none(void) { return _mm256_setzero_si256(); }
static inline M m_or_zero(M m, U x, U mask) {
    return _mm256_or_si256(m, _mm256_cmpeq_epi32(_mm256_and_si256(x, mask), _mm256_setzero_si256()));
}
static inline M m_or_unequal(M m, V a, V b) { return _mm256_or_si256(m, _mm256_castpd_si256(_mm256_cmp_pd(a, b, _CMP_NEQ_OQ))); }
static inline int m_any(M m) { return !_mm256_testz_si256(m, m); }

static inline __m256 f_pair(V a, V b) { return _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)); }
static inline void f_store(float *p, V a, V b) { _mm256_storeu_ps(p, f_pair(a, b)); }
static inline void f_stream(float *p, V a, V b) { _mm256_stream_ps(p, f_pair(a, b)); }
static inline void stream_fence(void) { _mm_sfence(); }

#endif
