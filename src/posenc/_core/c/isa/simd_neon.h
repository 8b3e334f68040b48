/* SIMD primitives for NEON, which every arm64 processor has; simd.h explains them.
 *
 * The argument `non_temporal` of u64_store has no effect.  Neoverse processors detect lines that are written
 * whole and in order, and do not read these lines first (write streaming).  STNP is only a hint, stores two
 * vectors at once, and has no intrinsic in GCC. */
#ifndef POSENC_SIMD_NEON_H
#define POSENC_SIMD_NEON_H

#include <arm_neon.h>

typedef float64x2_t vf64;
typedef uint64x2_t vu64;
typedef float32x4_t vf32;
enum { LANES = 2, FUSED = 1, PASS_COLUMNS = 16 };
#include "isa/operators.h"

static inline vf64 f64_set(double x) { return vdupq_n_f64(x); }
static inline vu64 u64_set(uint64_t x) { return vdupq_n_u64(x); }
static inline vu64 u64_load32(const uint32_t *p) { return vmovl_u32(vld1_u32(p)); }
static inline vu64 u64_load_even(const uint64_t *p) { return vuzp1q_u64(u64_load(p), u64_load(p + 2)); }

static inline vf64 f64_muladd(vf64 a, vf64 b, vf64 c) { return vfmaq_f64(c, a, b); }
/* without the negation, c would have to be copied, because the fused operation overwrites its addend */
static inline vf64 f64_mulsub(vf64 a, vf64 b, vf64 c) { return vfmaq_f64(vnegq_f64(c), a, b); }

static inline int u64_is_zero(vu64 a) { return vmaxvq_u32(vreinterpretq_u32_u64(a)) == 0; }
static inline vu64 u64_mul32(vu64 a, vu64 b) { return vmull_u32(vmovn_u64(a), vmovn_u64(b)); }
#define DEFINE_U16(name, intrinsic) \
    static inline vu64 name(vu64 a, vu64 b) { return (vu64)intrinsic((uint16x8_t)a, (uint16x8_t)b); }
DEFINE_U16(u16_add, vaddq_u16)
DEFINE_U16(u16_sub, vsubq_u16)
DEFINE_U16(u16_excess, vqsubq_u16)
DEFINE_U16(u16_min, vminq_u16)
DEFINE_U16(u16_max, vmaxq_u16)
static inline vu64 u16_odd(vu64 a, vu64 b) { return (vu64)vtrn2q_u16((uint16x8_t)b, (uint16x8_t)a); }
static inline vu64 u32_add(vu64 a, vu64 b) { return (vu64)((uint32x4_t)a + (uint32x4_t)b); }
static inline vu64 u32_sub(vu64 a, vu64 b) { return (vu64)((uint32x4_t)a - (uint32x4_t)b); }

static inline void f64_interleave(vf64 a, vf64 b, vf64 *low, vf64 *high) {
    *low = vzip1q_f64(a, b);
    *high = vzip2q_f64(a, b);
}

static inline vf32 f32_set(float x) { return vdupq_n_f32(x); }
static inline vf32 f32_load(const float *p) { return vld1q_f32(p); }
static inline vf32 f16_load(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline vf32 f32_add(vf32 a, vf32 b) { return vaddq_f32(a, b); }
static inline vf32 f32_mul(vf32 a, vf32 b) { return vmulq_f32(a, b); }
static inline vf32 f32_muladd(vf32 a, vf32 b, vf32 c) { return vfmaq_f32(c, a, b); }
static inline vf32 f32_mulsub(vf32 a, vf32 b, vf32 c) { return vfmaq_f32(vnegq_f32(c), a, b); }
static inline void f32_interleave(vf32 a, vf32 b, vf32 *low, vf32 *high) {
    *low = vzip1q_f32(a, b);
    *high = vzip2q_f32(a, b);
}
static inline void f32_deinterleave(vf32 low, vf32 high, vf32 *a, vf32 *b) {
    *a = vuzp1q_f32(low, high);
    *b = vuzp2q_f32(low, high);
}
static inline vf64 f64_load_f32(const float *p) { return vcvt_f64_f32(vld1_f32(p)); }
static inline void f64_store_f32(float *p, vf64 v) { vst1_f32(p, vcvt_f32_f64(v)); }
static inline void f64_of_f32(vf32 f, vf64 *low, vf64 *high) {
    *low = vcvt_f64_f32(vget_low_f32(f));
    *high = vcvt_high_f64_f32(f);
}
static inline vf32 f32_of_f64(vf64 a, vf64 b) { return vcvt_high_f32_f64(vcvt_f32_f64(a), b); }
static inline vu64 f16_of_f32(vf32 a, vf32 b) { return vreinterpretq_u64_f16(vcvt_high_f16_f32(vcvt_f16_f32(a), b)); }
static inline void u64_store(void *p, vu64 x, int non_temporal) {
    (void)non_temporal;
    vst1q_u8(p, vreinterpretq_u8_u64(x));
}
static inline void store_fence(void) {}

#endif
