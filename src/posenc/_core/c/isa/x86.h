/* The SIMD primitives whose intrinsics have the same names for AVX2 and AVX-512; simd.h explains them.
 * V(add_pd) is _mm256_add_pd or _mm512_add_pd, and VI(and_si) is _mm256_and_si256 or _mm512_and_si512.  H and
 * HI are intrinsics for vectors of half the size. */
#if !defined(V)
#include "isa/simd_avx2.h" /* a linter compiles this header alone */
#else

static inline vf64 f64_set(double x) { return V(set1_pd)(x); }
static inline vf64 f64_load(const double *p) { return V(loadu_pd)(p); }
static inline void f64_store(double *p, vf64 v) { V(storeu_pd)(p, v); }
static inline vu64 u64_load(const uint64_t *p) { return VI(loadu_si)((const vu64 *)(const void *)p); }
static inline vu64 u64_load32(const uint32_t *p) { return V(cvtepu32_epi64)(HI(loadu_si)((const half_t *)(const void *)p)); }
static inline vu64 bits_of_f64(vf64 v) { return VI(castpd_si)(v); }

static inline vf64 f64_add(vf64 a, vf64 b) { return V(add_pd)(a, b); }
static inline vf64 f64_add_fma(vf64 a, vf64 b) { return V(fmadd_pd)(a, V(set1_pd)(1), b); }
static inline vf64 f64_sub(vf64 a, vf64 b) { return V(sub_pd)(a, b); }
static inline vf64 f64_mul(vf64 a, vf64 b) { return V(mul_pd)(a, b); }
static inline vf64 f64_muladd(vf64 a, vf64 b, vf64 c) { return V(fmadd_pd)(a, b, c); }
static inline vf64 f64_mulsub(vf64 a, vf64 b, vf64 c) { return V(fmsub_pd)(a, b, c); }

static inline vu64 u64_add(vu64 a, vu64 b) { return V(add_epi64)(a, b); }
static inline vu64 u64_sub(vu64 a, vu64 b) { return V(sub_epi64)(a, b); }
static inline vu64 u64_and(vu64 a, vu64 b) { return VI(and_si)(a, b); }
static inline vu64 u64_or(vu64 a, vu64 b) { return VI(or_si)(a, b); }
static inline vu64 u64_xor(vu64 a, vu64 b) { return VI(xor_si)(a, b); }
static inline vu64 u64_mul32(vu64 a, vu64 b) { return V(mul_epu32)(a, b); }
static inline vu64 u16_add(vu64 a, vu64 b) { return V(add_epi16)(a, b); }
static inline vu64 u16_sub(vu64 a, vu64 b) { return V(sub_epi16)(a, b); }
static inline vu64 u16_excess(vu64 a, vu64 b) { return V(subs_epu16)(a, b); }
static inline vu64 u16_min(vu64 a, vu64 b) { return V(min_epu16)(a, b); }
static inline vu64 u16_max(vu64 a, vu64 b) { return V(max_epu16)(a, b); }
static inline vu64 u32_add(vu64 a, vu64 b) { return V(add_epi32)(a, b); }
static inline vu64 u32_sub(vu64 a, vu64 b) { return V(sub_epi32)(a, b); }

static inline vu64 bits_of_f32(vf32 f) { return VI(castps_si)(f); }
static inline vf32 f32_set(float x) { return V(set1_ps)(x); }
static inline vf32 f32_load(const float *p) { return V(loadu_ps)(p); }
static inline vf32 f16_load(const uint16_t *p) { return V(cvtph_ps)(HI(loadu_si)((const half_t *)(const void *)p)); }
static inline vf32 f32_add(vf32 a, vf32 b) { return V(add_ps)(a, b); }
static inline vf32 f32_mul(vf32 a, vf32 b) { return V(mul_ps)(a, b); }
static inline vf32 f32_muladd(vf32 a, vf32 b, vf32 c) { return V(fmadd_ps)(a, b, c); }
static inline vf32 f32_mulsub(vf32 a, vf32 b, vf32 c) { return V(fmsub_ps)(a, b, c); }
static inline vf64 f64_load_f32(const float *p) { return V(cvtps_pd)(H(loadu_ps)(p)); }
/* in AVX2, two stores of 16 bytes take less time than one of 32 bytes after _mm256_set_m128 */
static inline void f64_store_f32(float *p, vf64 v) { H(storeu_ps)(p, V(cvtpd_ps)(v)); }

static inline void u64_store(void *p, vu64 x, int non_temporal) {
    if (non_temporal) VI(stream_si)(p, x);
    else VI(storeu_si)(p, x);
}
static inline void store_fence(void) { _mm_sfence(); }

#endif
