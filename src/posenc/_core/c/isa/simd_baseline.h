/* SIMD primitives for the baseline: SSE2 with GCC and clang, or single numbers with other compilers and on other processors.
 *
 * Every simd_*.h defines the same types and functions; this file explains them.
 *     vf64, vu64       LANES doubles, or as many integers of 64 bits; f64_*, u64_* compute on them
 *     vf32             2 LANES floats; bits_of_f32 returns their bits; u32_* compute on the 32-bit halves of a vu64
 *     mask16           the words of 16 bits that passed a test; u16_* compute on the words of a vu64
 *
 *     u64_load32       p[0], p[1] ..., each zero-extended
 *     u64_load_even    p[0], p[2] ...; u64_load_even32 does not define the upper half of a lane, which u64_mul32 does not read
 *     f64_add_fma      a + b, computed as a fused 1 * a + b where that keeps the adders free for other sums
 *     f64_muladd, f64_mulsub, f32_muladd, f32_mulsub: fused or not fused; used only where the error bound allows both
 *     f64_interleave, f32_interleave: a[0], b[0], a[1], b[1] ...; f32_deinterleave is the inverse
 *     u16_excess       a - b, or 0 where a < b
 *     u16_odd          bits 16 .. 31 and 48 .. 63 of the lanes of two vectors; those of b move to bits 0 .. 15 and 32 .. 47
 *     f64_load_f32, f64_store_f32: LANES floats as doubles, and LANES doubles rounded to floats
 *     f64_of_f32       widens one vector to two
 *     f32_of_f64       rounds two vectors to floats
 *     f16_load         2 LANES numbers
 *     f16_of_f32, bf16_of_f32: narrow two vectors of floats, and return the bits; for bfloat16, no float may be half-way
 *                      between two numbers
 *     bf16_split       numbers 0, 2, 4 ... and 1, 3, 5 ... of a vector of 4 LANES numbers; bf16_join narrows two vectors in
 *                      this order
 *     u64_flush        stores output; a non-temporal store bypasses the caches and needs an address aligned to a vector
 *     mask16_and_nonzero: m without the words in which x & bits is zero; in mask16_all, all words have passed
 */
#ifndef POSENC_SIMD_H
#define POSENC_SIMD_H

#include <string.h>
#include "compiler.h"
#include "rounding.h"

#if defined(__SSE2__) && defined(__GNUC__)
#include <emmintrin.h>

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
static inline void u64_flush(void *p, vu64 x, int non_temporal) {
    if (non_temporal) _mm_stream_si128(p, (__m128i)x);
    else _mm_storeu_si128(p, (__m128i)x);
}
static inline void flush_fence(void) { _mm_sfence(); }
#else
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
static inline vu64 u64_mul32(vu64 a, vu64 b) { return a * b; }
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
static inline void u64_flush(void *p, vu64 x, int non_temporal) {
    (void)non_temporal;
    memcpy(p, &x, sizeof x);
}
static inline void flush_fence(void) {}
#endif
#include "isa/operators.h"

enum { FUSED = 0 };             /* f64_mulsub rounds twice, so two_product splits its factors */
enum { PASS_COLUMNS = 16 };     /* columns of float32 per pass: see advance.h */

static inline vf64 f64_muladd(vf64 a, vf64 b, vf64 c) { return a * b + c; }
static inline vf64 f64_mulsub(vf64 a, vf64 b, vf64 c) { return a * b - c; }
static inline vu64 u16_min(vu64 a, vu64 b) { return u16_sub(a, u16_excess(a, b)); }
static inline vu64 u16_max(vu64 a, vu64 b) { return u16_add(b, u16_excess(a, b)); }

NOINLINE vu64 f16_of_f32(vf32 a, vf32 b) {
    float t[4 * LANES];
    uint16_t half[4 * LANES];
    uint32_t special = 0;
    memcpy(t, &a, sizeof a);
    memcpy(t + 2 * LANES, &b, sizeof b);
    for (int i = 0; i < 4 * LANES; i++) {
        const uint32_t u = bits_of_float(t[i]), magnitude = u & 0x7fffffffu;
        half[i] = (uint16_t)((magnitude - (112u << 23) + 0xfffu + (u >> 13 & 1)) >> 13 | (u >> 16 & 0x8000u));
        special |= (uint32_t)(magnitude - 0x38800000u >= 0x47000000u - 0x38800000u); /* outside 2**-14 .. 2**15 */
    }
    if (special)
        for (int i = 0; i < 4 * LANES; i++) half[i] = half_of_float(t[i]);
    vu64 bits;
    memcpy(&bits, half, sizeof bits);
    return bits;
}
NOINLINE vf32 f16_load(const uint16_t *p) {
    float t[2 * LANES];
    for (int i = 0; i < 2 * LANES; i++) t[i] = float_of_half(p[i]);
    return f32_load(t);
}

#endif
