/* The SIMD primitives that are operators of C, for the baseline and NEON; simd.h explains them. */
#if !defined(POSENC_BASELINE_H) && !defined(POSENC_SIMD_NEON_H)
#include "isa/baseline.h" /* a linter compiles this header alone */
#else

#include <string.h>
#include "rounding.h"

static inline vf64 f64_load(const double *p) {
    vf64 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void f64_store(double *p, vf64 v) { memcpy(p, &v, sizeof v); }
static inline vu64 u64_load(const uint64_t *p) {
    vu64 u;
    memcpy(&u, p, sizeof u);
    return u;
}
DEFINE_COPY(f64_of_bits, vf64, vu64)
DEFINE_COPY(bits_of_f64, vu64, vf64)
DEFINE_COPY(f32_of_bits, vf32, vu64)
DEFINE_COPY(bits_of_f32, vu64, vf32)

static inline vf64 f64_add(vf64 a, vf64 b) { return a + b; }
static inline vf64 f64_add_fma(vf64 a, vf64 b) { return a + b; } /* NEON: fused and plain additions use the same pipes */
static inline vf64 f64_sub(vf64 a, vf64 b) { return a - b; }
static inline vf64 f64_mul(vf64 a, vf64 b) { return a * b; }

static inline vu64 u64_add(vu64 a, vu64 b) { return a + b; }
static inline vu64 u64_sub(vu64 a, vu64 b) { return a - b; }
static inline vu64 u64_and(vu64 a, vu64 b) { return a & b; }
static inline vu64 u64_or(vu64 a, vu64 b) { return a | b; }
static inline vu64 u64_xor(vu64 a, vu64 b) { return a ^ b; }
static inline vu64 u64_shl(vu64 a, int n) { return a << n; }
static inline vu64 u64_shr(vu64 a, int n) { return a >> n; }
static inline vu64 u64_select(vu64 mask, vu64 a, vu64 b) { return b ^ ((a ^ b) & (0 - (mask >> 63))); }

#endif
