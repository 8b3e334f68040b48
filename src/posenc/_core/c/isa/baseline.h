/* The SIMD primitives that simd_sse2.h and simd_scalar.h share; simd.h explains the primitives. */
#ifndef POSENC_BASELINE_H
#define POSENC_BASELINE_H

#include <string.h>
#include "compiler.h"
#include "rounding.h"

#if defined(__SSE2__) && defined(__GNUC__)
#include "isa/simd_sse2.h"
#else
#include "isa/simd_scalar.h"
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
    vu64 bits;
    memcpy(t, &a, sizeof a);
    memcpy(t + 2 * LANES, &b, sizeof b);
    for (int i = 0; i < 4 * LANES; i++) half[i] = half_of_float(t[i]);
    memcpy(&bits, half, sizeof bits);
    return bits;
}
NOINLINE vf32 f16_load(const uint16_t *p) {
    float t[2 * LANES];
    for (int i = 0; i < 2 * LANES; i++) t[i] = float_of_half(p[i]);
    return f32_load(t);
}

#endif
