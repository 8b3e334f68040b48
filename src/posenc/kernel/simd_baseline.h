/* Verbs of the baseline: 16-byte vectors of GCC and clang (SSE2 on x86-64, NEON on arm64, plain registers elsewhere), or
 * single numbers for other compilers. */
#ifndef POSENC_SIMD_H
#define POSENC_SIMD_H

#include <string.h>
#include "rounding.h"

#if defined(__GNUC__)
typedef double V __attribute__((vector_size(16)));
typedef uint64_t U __attribute__((vector_size(16)));
typedef uint32_t U32 __attribute__((vector_size(16)));
enum { W = 2 };
static inline V v_set(double x) { return (V){x, x}; }
static inline U u_set(uint64_t x) { return (U){x, x}; }
static inline U u_load32(const uint32_t *p) { return (U){p[0], p[1]}; }
static inline int m_any(U m) { return (m[0] | m[1]) != 0; }
static inline U m_zero32(U x) { return (U)((U32)x == 0); }
static inline U m_unequal(V a, V b) { return (U)(a != b); }
#else
typedef double V;
typedef uint64_t U;
enum { W = 1 };
static inline V v_set(double x) { return x; }
static inline U u_set(uint64_t x) { return x; }
static inline U u_load32(const uint32_t *p) { return *p; }
static inline int m_any(U m) { return m != 0; }
static inline U m_zero32(U x) { return (x >> 32 == 0) | ((uint32_t)x == 0); }
static inline U m_unequal(V a, V b) { return a != b; }
#endif
typedef U M;                     /* a mask, for `any` only */
enum { FUSED = 0 };              /* v_fma is not to be had: two_product splits its factors */

static inline V v_load(const double *p) { V v; memcpy(&v, p, sizeof v); return v; }
static inline void v_store(double *p, V v) { memcpy(p, &v, sizeof v); }
static inline U u_load(const uint64_t *p) { U u; memcpy(&u, p, sizeof u); return u; }
static inline void u_store(uint64_t *p, U u) { memcpy(p, &u, sizeof u); }
static inline V v_bits(U u) { V v; memcpy(&v, &u, sizeof v); return v; }
static inline U u_bits(V v) { U u; memcpy(&u, &v, sizeof u); return u; }

static inline V v_add(V a, V b) { return a + b; }
static inline V v_sub(V a, V b) { return a - b; }
static inline V v_mul(V a, V b) { return a * b; }
static inline V v_muladd(V a, V b, V c) { return a * b + c; }        /* fused or not: only where the bound allows both */
static inline V v_fma(V a, V b, V c) { return a * b + c; }           /* never called: FUSED is 0 */

static inline U u_add(U a, U b) { return a + b; }
static inline U u_sub(U a, U b) { return a - b; }
static inline U u_and(U a, U b) { return a & b; }
static inline U u_or(U a, U b) { return a | b; }
static inline U u_xor(U a, U b) { return a ^ b; }
static inline U u_shl(U a, int n) { return a << n; }
static inline U u_shr(U a, int n) { return a >> n; }
static inline U u_select(U mask, U a, U b) { return (mask & a) | (~mask & b); }
static inline U u_mul32(U a, U b) { return a * b; }                  /* of numbers below 2**32 */

static inline M m_none(void) { return u_set(0); }
/* also true where a half of a lane of x & mask is zero */
static inline M m_or_zero(M m, U x, U mask) { return m | m_zero32(x & mask); }
static inline M m_or_unequal(M m, V a, V b) { return m | m_unequal(a, b); }

static inline void f_store(float *p, V a, V b) {
    double t[2 * W];
    v_store(t, a);
    v_store(t + W, b);
    for (int i = 0; i < 2 * W; i++) p[i] = (float)t[i];
}
static inline void f_stream(float *p, V a, V b) { f_store(p, a, b); }
static inline void v_stream(double *p, V v) { v_store(p, v); }
static inline void stream_fence(void) {}

#define POSENC_HALVES_BY_HAND 1
#endif
