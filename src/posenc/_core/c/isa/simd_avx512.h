/* SIMD primitives for AVX-512 (F, DQ, BW, VL); simd.h explains them. */
#ifndef POSENC_SIMD_AVX512_H
#define POSENC_SIMD_AVX512_H

#include <immintrin.h>
#include "rounding.h"

typedef __m512d vf64;
typedef __m512i vu64;
typedef __m512 vf32;
typedef __mmask32 mask16;
typedef __m256i half_t; /* half a vu64 */
enum { LANES = 8, FUSED = 1, PASS_COLUMNS = TILE };

#define V(name) _mm512_##name
#define VI(name) _mm512_##name##512
#define H(name) _mm256_##name
#define HI(name) _mm256_##name##256
#include "isa/x86.h"

static inline vu64 u64_set(uint64_t x) { return _mm512_set1_epi64((long long)x); }
static inline vu64 u64_load_even(const uint64_t *p) {
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    return _mm512_permutex2var_epi64(u64_load(p), even, u64_load(p + 8));
}
static inline vf64 f64_of_bits(vu64 u) { return _mm512_castsi512_pd(u); }
static inline vf32 f32_of_bits(vu64 u) { return _mm512_castsi512_ps(u); }

static inline vu64 u64_shl(vu64 a, int n) { return _mm512_slli_epi64(a, (unsigned)n); }
static inline vu64 u64_shr(vu64 a, int n) { return _mm512_srli_epi64(a, (unsigned)n); }
static inline vu64 u64_select(vu64 mask, vu64 a, vu64 b) { return _mm512_mask_blend_epi64(_mm512_movepi64_mask(mask), b, a); }
static inline int u64_is_zero(vu64 a) { return _mm512_test_epi64_mask(a, a) == 0; }
static inline vu64 u16_odd(vu64 a, vu64 b) {
    const __m512i down = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
    return _mm512_mask_shuffle_epi8(a, 0x3333333333333333, b, down);
}

static inline void f64_interleave(vf64 a, vf64 b, vf64 *low, vf64 *high) {
    *low = _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), b);
    *high = _mm512_permutex2var_pd(a, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), b);
}

static inline void f32_interleave(vf32 a, vf32 b, vf32 *low, vf32 *high) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *low = _mm512_permutex2var_ps(a, first, b);
    *high = _mm512_permutex2var_ps(a, _mm512_add_epi32(first, _mm512_set1_epi32(8)), b);
}
static inline void f32_deinterleave(vf32 low, vf32 high, vf32 *a, vf32 *b) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *a = _mm512_permutex2var_ps(low, even, high);
    *b = _mm512_permutex2var_ps(low, _mm512_add_epi32(even, _mm512_set1_epi32(1)), high);
}
static inline void f64_of_f32(vf32 f, vf64 *low, vf64 *high) {
    *low = _mm512_cvtps_pd(_mm512_castps512_ps256(f));
    *high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(f, 1));
}
static inline vf32 f32_of_f64(vf64 a, vf64 b) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a)), _mm512_cvtpd_ps(b), 1);
}
static inline vu64 f16_of_f32(vf32 a, vf32 b) {
    const __m256i low = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT), high = _mm512_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
/* The conversion in simd.h would take 10 % longer for tables of bfloat16 on Zen 4. */
#define HAS_BF16_OF_F32
static inline vu64 bf16_of_f32(vf32 a, vf32 b) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i upper = _mm512_set_epi64(0x003f003d003b0039, 0x0037003500330031, 0x002f002d002b0029, 0x0027002500230021,
                                           0x001f001d001b0019, 0x0017001500130011, 0x000f000d000b0009, 0x0007000500030001);
    const __m512i low = _mm512_add_epi32(_mm512_castps_si512(a), half), high = _mm512_add_epi32(_mm512_castps_si512(b), half);
    return _mm512_permutex2var_epi16(low, upper, high);
}
/* A mask has a bit for each word; the tests of simd.h would take 10 % longer for 16-bit types. */
#define HAS_MASKS
static inline mask16 mask16_all(void) { return 0xffffffff; }
static inline mask16 mask16_and_nonzero(mask16 m, vu64 x, vu64 bits) { return _mm512_mask_test_epi16_mask(m, x, bits); }
static inline int mask16_is_all(mask16 m) { return m == 0xffffffff; }

#endif
