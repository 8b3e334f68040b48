/* SIMD primitives for SSE2, with the vector extensions of GCC and clang; simd.h explains them. */
#ifndef POSENC_SIMD_SSE2_H
#define POSENC_SIMD_SSE2_H

#include <emmintrin.h>
#include <stdint.h>

typedef double vf64 __attribute__((vector_size(16)));
typedef uint64_t vu64 __attribute__((vector_size(16)));
typedef uint32_t vu32 __attribute__((vector_size(16)));
typedef uint16_t vu16 __attribute__((vector_size(16)));
typedef __m128 vf32;
enum { LANES = 2 };
static inline vf64 f64_set(double x) { return (vf64){x, x}; }
static inline vf64 f64_load_f32(const float *p) {
    return (vf64)_mm_cvtps_pd(_mm_loadl_pi(_mm_setzero_ps(), (const __m64 *)(const void *)p));
}
static inline void f64_store_f32(float *p, vf64 v) { _mm_storel_pi((__m64 *)(void *)p, _mm_cvtpd_ps((__m128d)v)); }
static inline vu64 u64_set(uint64_t x) { return (vu64){x, x}; }
static inline vu64 u64_load32(const uint32_t *p) { return (vu64){p[0], p[1]}; }
static inline vu64 u64_load_even(const uint64_t *p) { return (vu64){p[0], p[2]}; }
static inline vu64 u64_mul32(vu64 a, vu64 b) { return (vu64)_mm_mul_epu32((__m128i)a, (__m128i)b); }
static inline int u64_is_zero(vu64 a) { return _mm_movemask_epi8(_mm_cmpeq_epi32((__m128i)a, _mm_setzero_si128())) == 0xffff; }
static inline void f64_interleave(vf64 a, vf64 b, vf64 *low, vf64 *high) {
    *low = (vf64){a[0], b[0]};
    *high = (vf64){a[1], b[1]};
}
static inline vu64 u16_add(vu64 a, vu64 b) { return (vu64)((vu16)a + (vu16)b); }
static inline vu64 u16_sub(vu64 a, vu64 b) { return (vu64)((vu16)a - (vu16)b); }
static inline vu64 u16_excess(vu64 a, vu64 b) { return (vu64)_mm_subs_epu16((__m128i)a, (__m128i)b); }
static inline vu64 u32_add(vu64 a, vu64 b) { return (vu64)((vu32)a + (vu32)b); }
static inline vu64 u32_sub(vu64 a, vu64 b) { return (vu64)((vu32)a - (vu32)b); }
static inline vu64 u16_odd(vu64 a, vu64 b) { return (a & u64_set(0xffff0000ffff0000)) | (vu64)((vu32)b >> 16); }
static inline vf32 f32_set(float x) { return _mm_set1_ps(x); }
static inline vf32 f32_load(const float *p) { return _mm_loadu_ps(p); }
static inline vf32 f32_add(vf32 a, vf32 b) { return _mm_add_ps(a, b); }
static inline vf32 f32_mul(vf32 a, vf32 b) { return _mm_mul_ps(a, b); }
static inline vf32 f32_muladd(vf32 a, vf32 b, vf32 c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
static inline vf32 f32_mulsub(vf32 a, vf32 b, vf32 c) { return _mm_sub_ps(_mm_mul_ps(a, b), c); }
static inline void f32_interleave(vf32 a, vf32 b, vf32 *low, vf32 *high) {
    *low = _mm_unpacklo_ps(a, b);
    *high = _mm_unpackhi_ps(a, b);
}
static inline void f32_deinterleave(vf32 low, vf32 high, vf32 *a, vf32 *b) {
    *a = _mm_shuffle_ps(low, high, 0x88);
    *b = _mm_shuffle_ps(low, high, 0xdd);
}
static inline void f64_of_f32(vf32 f, vf64 *low, vf64 *high) {
    *low = (vf64)_mm_cvtps_pd(f);
    *high = (vf64)_mm_cvtps_pd(_mm_movehl_ps(f, f));
}
static inline vf32 f32_of_f64(vf64 a, vf64 b) { return _mm_movelh_ps(_mm_cvtpd_ps((__m128d)a), _mm_cvtpd_ps((__m128d)b)); }
static inline void u64_store(void *p, vu64 x, int non_temporal) {
    if (non_temporal) _mm_stream_si128(p, (__m128i)x);
    else _mm_storeu_si128(p, (__m128i)x);
}
static inline void store_fence(void) { _mm_sfence(); }

#endif
