/* SIMD primitives for compilers and processors without vectors, which compute one number at a time; simd.h
 * explains them. */
#ifndef POSENC_SIMD_SCALAR_H
#define POSENC_SIMD_SCALAR_H

#include <stdint.h>
#include <string.h>

typedef double vf64;
typedef uint64_t vu64;
typedef struct {
    float lane[2];
} vf32;
enum { LANES = 1 };
static inline vf64 f64_set(double x) { return x; }
static inline vf64 f64_load_f32(const float *p) { return *p; }
static inline void f64_store_f32(float *p, vf64 v) { *p = (float)v; }
static inline vu64 u64_set(uint64_t x) { return x; }
static inline vu64 u64_load32(const uint32_t *p) { return *p; }
static inline vu64 u64_load_even(const uint64_t *p) { return *p; }
static inline vu64 u64_mul32(vu64 a, vu64 b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
static inline int u64_is_zero(vu64 a) { return a == 0; }
static inline void f64_interleave(vf64 a, vf64 b, vf64 *low, vf64 *high) { *low = a, *high = b; }
#define DEFINE_U16(name, result) \
    static inline vu64 name(vu64 a, vu64 b) { \
        uint64_t words = 0; \
        for (int i = 0; i < 64; i += 16) { \
            const uint64_t x = a >> i & 0xffff, y = b >> i & 0xffff; \
            words |= (uint64_t)(uint16_t)(result) << i; \
        } \
        return words; \
    }
DEFINE_U16(u16_add, x + y)
DEFINE_U16(u16_sub, x - y)
DEFINE_U16(u16_excess, x > y ? x - y : 0)
static inline vu64 u32_add(vu64 a, vu64 b) { return ((a >> 32) + (b >> 32)) << 32 | (uint32_t)(a + b); }
static inline vu64 u32_sub(vu64 a, vu64 b) { return ((a >> 32) - (b >> 32)) << 32 | (uint32_t)(a - b); }
static inline vu64 u16_odd(vu64 a, vu64 b) { return (a & 0xffff0000ffff0000) | (b >> 16 & 0x0000ffff0000ffff); }
#define DEFINE_F32(name, parameters, value) \
    static inline vf32 name parameters { \
        vf32 f; \
        for (int i = 0; i < 2; i++) f.lane[i] = value; \
        return f; \
    }
DEFINE_F32(f32_set, (float x), x)
DEFINE_F32(f32_load, (const float *p), p[i])
DEFINE_F32(f32_add, (vf32 a, vf32 b), a.lane[i] + b.lane[i])
DEFINE_F32(f32_mul, (vf32 a, vf32 b), a.lane[i] * b.lane[i])
DEFINE_F32(f32_muladd, (vf32 a, vf32 b, vf32 c), a.lane[i] * b.lane[i] + c.lane[i])
DEFINE_F32(f32_mulsub, (vf32 a, vf32 b, vf32 c), a.lane[i] * b.lane[i] - c.lane[i])
DEFINE_F32(f32_of_f64, (vf64 a, vf64 b), (float)(i ? b : a))
static inline void f32_interleave(vf32 a, vf32 b, vf32 *low, vf32 *high) {
    *low = (vf32){{a.lane[0], b.lane[0]}};
    *high = (vf32){{a.lane[1], b.lane[1]}};
}
static inline void f32_deinterleave(vf32 low, vf32 high, vf32 *a, vf32 *b) { f32_interleave(low, high, a, b); }
static inline void f64_of_f32(vf32 f, vf64 *low, vf64 *high) { *low = f.lane[0], *high = f.lane[1]; }
static inline void u64_store(void *p, vu64 x, int non_temporal) {
    (void)non_temporal;
    memcpy(p, &x, sizeof x);
}
static inline void store_fence(void) {}

#endif
