/* SIMD primitives for AVX2 with FMA and F16C; simd.h explains them. */
#ifndef POSENC_SIMD_AVX2_H
#define POSENC_SIMD_AVX2_H

#include <immintrin.h>
#include "rounding.h"

typedef __m256d vf64;
typedef __m256i vu64;
typedef __m256 vf32;
typedef __m128i half_t; /* half a vu64 */
enum { LANES = 4, FUSED = 1, PASS_COLUMNS = TILE };

#define V(name) _mm256_##name
#define VI(name) _mm256_##name##256
#define H(name) _mm_##name
#define HI(name) _mm_##name##128
#include "isa/x86.h"

static inline vu64 u64_set(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
static inline vu64 u64_load_even(const uint64_t *p) {
    return _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(u64_load(p), u64_load(p + 4)), 0xd8);
}
static inline vf64 f64_of_bits(vu64 u) { return _mm256_castsi256_pd(u); }
static inline vf32 f32_of_bits(vu64 u) { return _mm256_castsi256_ps(u); }

static inline vu64 u64_shl(vu64 a, int n) { return _mm256_slli_epi64(a, n); }
static inline vu64 u64_shr(vu64 a, int n) { return _mm256_srli_epi64(a, n); }
static inline vu64 u64_select(vu64 mask, vu64 a, vu64 b) {
    return _mm256_castpd_si256(_mm256_blendv_pd(_mm256_castsi256_pd(b), _mm256_castsi256_pd(a), _mm256_castsi256_pd(mask)));
}
static inline int u64_is_zero(vu64 a) { return _mm256_testz_si256(a, a); }
static inline vu64 u16_odd(vu64 a, vu64 b) { return _mm256_blend_epi16(a, _mm256_srli_epi64(b, 16), 0x55); }

static inline void f64_interleave(vf64 a, vf64 b, vf64 *low, vf64 *high) {
    const vf64 even = _mm256_unpacklo_pd(a, b), odd = _mm256_unpackhi_pd(a, b);
    *low = _mm256_permute2f128_pd(even, odd, 0x20);
    *high = _mm256_permute2f128_pd(even, odd, 0x31);
}

static inline void f32_interleave(vf32 a, vf32 b, vf32 *low, vf32 *high) {
    const vf32 even = _mm256_unpacklo_ps(a, b), odd = _mm256_unpackhi_ps(a, b);
    *low = _mm256_permute2f128_ps(even, odd, 0x20);
    *high = _mm256_permute2f128_ps(even, odd, 0x31);
}
static inline void f32_deinterleave(vf32 low, vf32 high, vf32 *a, vf32 *b) {
    const vf32 even = _mm256_permute2f128_ps(low, high, 0x20), odd = _mm256_permute2f128_ps(low, high, 0x31);
    *a = _mm256_shuffle_ps(even, odd, 0x88);
    *b = _mm256_shuffle_ps(even, odd, 0xdd);
}
static inline void f64_of_f32(vf32 f, vf64 *low, vf64 *high) {
    *low = _mm256_cvtps_pd(_mm256_castps256_ps128(f));
    *high = _mm256_cvtps_pd(_mm256_extractf128_ps(f, 1));
}
static inline vf32 f32_of_f64(vf64 a, vf64 b) { return _mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)); }
static inline vu64 f16_of_f32(vf32 a, vf32 b) {
    return _mm256_set_m128i(_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
/* The conversion in simd.h would take 4 to 9 % longer for tables of bfloat16. */
#define HAS_BF16_OF_F32
static inline vu64 bf16_of_f32(vf32 a, vf32 b) {
    const __m256i half = _mm256_set1_epi32(0x8000);
    const __m256i low = _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(a), half), 16);
    const __m256i high = _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(b), half), 16);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}
#endif
