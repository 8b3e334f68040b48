/* Verbs of AVX-512 (F, DQ, BW, VL): see simd_baseline.h for what each does. */
#ifndef POSENC_SIMD_H
#define POSENC_SIMD_H

#include <immintrin.h>
#include "rounding.h"

typedef __m512d V;
typedef __m512i U;
typedef __mmask16 M;
typedef __m512 F;
typedef __mmask32 N;
enum { W = 8, FUSED = 1, PASS = TILE };

static inline V v_set(double x) { return _mm512_set1_pd(x); }
static inline V v_load(const double *p) { return _mm512_loadu_pd(p); }
static inline void v_store(double *p, V v) { _mm512_storeu_pd(p, v); }
static inline void v_put(double *p, V v, int stream) {
    if (stream) _mm512_stream_pd(p, v);
    else _mm512_storeu_pd(p, v);
}
static inline U u_set(uint64_t x) { return _mm512_set1_epi64((long long)x); }
static inline U u_load(const uint64_t *p) { return _mm512_loadu_si512(p); }
static inline U u_load32(const uint32_t *p) {
    return _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline U u_load_even32(const uint32_t *p) { return _mm512_loadu_si512(p); }
static inline U u_load_even(const uint64_t *p) {
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    return _mm512_permutex2var_epi64(u_load(p), even, u_load(p + 8));
}
static inline V v_bits(U u) { return _mm512_castsi512_pd(u); }
static inline U u_bits(V v) { return _mm512_castpd_si512(v); }

static inline V v_add(V a, V b) { return _mm512_add_pd(a, b); }
static inline V v_plus(V a, V b) { return _mm512_fmadd_pd(a, _mm512_set1_pd(1), b); }
static inline V v_sub(V a, V b) { return _mm512_sub_pd(a, b); }
static inline V v_mul(V a, V b) { return _mm512_mul_pd(a, b); }
static inline V v_muladd(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
static inline V v_fms(V a, V b, V c) { return _mm512_fmsub_pd(a, b, c); }

static inline U u_add(U a, U b) { return _mm512_add_epi64(a, b); }
static inline U u_sub(U a, U b) { return _mm512_sub_epi64(a, b); }
static inline U u_and(U a, U b) { return _mm512_and_si512(a, b); }
static inline U u_or(U a, U b) { return _mm512_or_si512(a, b); }
static inline U u_xor(U a, U b) { return _mm512_xor_si512(a, b); }
static inline U u_shl(U a, int n) { return _mm512_slli_epi64(a, (unsigned)n); }
static inline U u_shr(U a, int n) { return _mm512_srli_epi64(a, (unsigned)n); }
static inline U u_select(U mask, U a, U b) { return _mm512_ternarylogic_epi64(mask, a, b, 0xca); }
static inline int u_is_zero(U a) { return _mm512_test_epi64_mask(a, a) == 0; }
static inline U u_mul32(U a, U b) { return _mm512_mul_epu32(a, b); }

static inline void v_interleave(V a, V b, V *low, V *high) {
    *low = _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), b);
    *high = _mm512_permutex2var_pd(a, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), b);
}

/* A bit for each half of a lane. */
static inline M m_all(void) { return 0xffff; }
static inline M m_and_nonzero(M m, U x, U mask) { return _mm512_mask_test_epi32_mask(m, x, mask); }
static inline int m_is_all(M m) { return m == 0xffff; }

static inline F f_pair(V a, V b) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a)), _mm512_cvtpd_ps(b), 1);
}
static inline void f_put(float *p, F f, int stream) {
    if (stream) _mm512_stream_ps(p, f);
    else _mm512_storeu_ps(p, f);
}
static inline void sixteen_put(uint16_t *p, __m512i x, int stream) {
    if (stream) _mm512_stream_si512((__m512i *)(void *)p, x);
    else _mm512_storeu_si512(p, x);
}
static inline void h_put(uint16_t *p, F a, F b, int stream) {
    const __m256i low = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT), high = _mm512_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT);
    sixteen_put(p, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), stream);
}
static inline void b_put(uint16_t *p, F a, F b, int stream) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i upper = _mm512_set_epi64(0x003f003d003b0039, 0x0037003500330031, 0x002f002d002b0029, 0x0027002500230021,
                                           0x001f001d001b0019, 0x0017001500130011, 0x000f000d000b0009, 0x0007000500030001);
    const __m512i low = _mm512_add_epi32(_mm512_castps_si512(a), half), high = _mm512_add_epi32(_mm512_castps_si512(b), half);
    sixteen_put(p, _mm512_permutex2var_epi16(low, upper, high), stream);
}

static inline N n_all(void) { return 0xffffffff; }
static inline N n_and_nonzero(N n, F f, U addend, uint32_t mask) {
    const __m512i x = _mm512_add_epi32(_mm512_castps_si512(f), addend);
    return _mm512_mask_test_epi16_mask(n, x, _mm512_set1_epi32((int)mask));
}
static inline int n_is_all(N n) { return n == 0xffffffff; }
static inline void stream_fence(void) { _mm_sfence(); }

#include "half_f16c.h"

#endif
