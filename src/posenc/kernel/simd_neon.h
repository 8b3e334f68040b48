/* Verbs of NEON, as every arm64 processor has it: see simd_baseline.h for what each does.
 *
 * `stream` has no effect: where whole lines are written one after the other, Neoverse processors detect it and do not read them
 * first (write streaming).  STNP is only a hint, stores two vectors at once, and has no intrinsic in GCC. */
#ifndef POSENC_SIMD_H
#define POSENC_SIMD_H

#include <arm_neon.h>
#include "rounding.h"

typedef float64x2_t V;
typedef uint64x2_t U;
typedef uint32x4_t M;
typedef float32x4_t F;
typedef uint16x8_t N;
enum { W = 2, FUSED = 1, PASS = 16 };

static inline V v_set(double x) { return vdupq_n_f64(x); }
static inline V v_load(const double *p) { return vld1q_f64(p); }
static inline void v_store(double *p, V v) { vst1q_f64(p, v); }
static inline void v_put(double *p, V v, int stream) {
    (void)stream;
    vst1q_f64(p, v);
}
static inline U u_set(uint64_t x) { return vdupq_n_u64(x); }
static inline U u_load(const uint64_t *p) { return vld1q_u64(p); }
static inline U u_load32(const uint32_t *p) { return vmovl_u32(vld1_u32(p)); }
static inline U u_load_even32(const uint32_t *p) { return vreinterpretq_u64_u32(vld1q_u32(p)); }
static inline U u_load_even(const uint64_t *p) { return vuzp1q_u64(u_load(p), u_load(p + 2)); }
static inline V v_bits(U u) { return vreinterpretq_f64_u64(u); }
static inline U u_bits(V v) { return vreinterpretq_u64_f64(v); }

static inline V v_add(V a, V b) { return vaddq_f64(a, b); }
static inline V v_plus(V a, V b) { return vaddq_f64(a, b); }         /* additions and products share their pipes */
static inline V v_sub(V a, V b) { return vsubq_f64(a, b); }
static inline V v_mul(V a, V b) { return vmulq_f64(a, b); }
static inline V v_muladd(V a, V b, V c) { return vfmaq_f64(c, a, b); }
/* the negation takes the place of a copy: the fused operation overwrites what it adds to */
static inline V v_fms(V a, V b, V c) { return vfmaq_f64(vnegq_f64(c), a, b); }

static inline U u_add(U a, U b) { return vaddq_u64(a, b); }
static inline U u_sub(U a, U b) { return vsubq_u64(a, b); }
static inline U u_and(U a, U b) { return vandq_u64(a, b); }
static inline U u_or(U a, U b) { return vorrq_u64(a, b); }
static inline U u_xor(U a, U b) { return veorq_u64(a, b); }
/* operators: the intrinsics that shift by a constant do not accept an argument of a function */
static inline U u_shl(U a, int n) { return a << n; }
static inline U u_shr(U a, int n) { return a >> n; }
static inline U u_select(U mask, U a, U b) { return vbslq_u64(mask, a, b); }
static inline int u_is_zero(U a) { return vmaxvq_u32(vreinterpretq_u32_u64(a)) == 0; }
static inline U u_mul32(U a, U b) { return vmull_u32(vmovn_u64(a), vmovn_u64(b)); }

static inline void v_interleave(V a, V b, V *low, V *high) {
    *low = vzip1q_f64(a, b);
    *high = vzip2q_f64(a, b);
}

/* No half of a lane is zero. */
static inline M m_all(void) { return vdupq_n_u32(UINT32_MAX); }
static inline M m_and_nonzero(M m, U x, U mask) { return vminq_u32(m, vreinterpretq_u32_u64(vandq_u64(x, mask))); }
static inline int m_is_all(M m) { return vminvq_u32(m) != 0; }

static inline F f_pair(V a, V b) { return vcvt_high_f32_f64(vcvt_f32_f64(a), b); }
static inline void f_put(float *p, F f, int stream) {
    (void)stream;
    vst1q_f32(p, f);
}
static inline uint16x8_t h_pair(F a, F b) { return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a), b)); }
static inline void h_put(uint16_t *p, F a, F b, int stream) {
    (void)stream;
    vst1q_u16(p, h_pair(a, b));
}
static inline void b_put(uint16_t *p, F a, F b, int stream) {
    const uint32x4_t half = vdupq_n_u32(0x8000);
    (void)stream;
    /* adds, and keeps the upper half of each sum */
    vst1q_u16(p, vaddhn_high_u32(vaddhn_u32(vreinterpretq_u32_f32(a), half), vreinterpretq_u32_f32(b), half));
}

static inline N n_all(void) { return vdupq_n_u16(UINT16_MAX); }
static inline N n_and_nonzero(N n, F f, U addend, uint32_t mask) {
    const uint32x4_t x = vaddq_u32(vreinterpretq_u32_f32(f), vreinterpretq_u32_u64(addend));
    return vminq_u16(n, vreinterpretq_u16_u32(vandq_u32(x, vdupq_n_u32(mask))));
}
static inline int n_is_all(N n) { return vminvq_u16(n) != 0; }
static inline void stream_fence(void) {}

static inline void h_store(uint16_t p[TILE], const float f[TILE]) {
    for (int i = 0; i < TILE; i += 8) vst1q_u16(p + i, h_pair(vld1q_f32(f + i), vld1q_f32(f + i + 4)));
}
static inline void h_load(float f[TILE], const uint16_t p[TILE]) {
    for (int i = 0; i < TILE; i += 4) vst1q_f32(f + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + i))));
}

#endif
