/* Includes the SIMD primitives of the instruction set for which a kernel_*.c is compiled, else those of the
 * baseline, and defines further primitives from them.
 *
 * Every simd_*.h defines the same types and functions; operators.h and x86.h have those that several share.
 *     vf64, vu64       LANES doubles, or LANES 64-bit integers; f64_* and u64_* compute on them
 *     vf32             2 LANES floats; bits_of_f32 returns their bits; u32_* compute on the 32-bit halves of a vu64
 *     mask16           the 16-bit words that passed a test; u16_* compute on the words of a vu64
 *
 *     u64_load32       p[0], p[1] ..., each zero-extended
 *     u64_load_even    p[0], p[2] ...; u64_load_even32 leaves the upper half of a lane undefined, which u64_mul32
 *                      does not read
 *     u64_select       a in lanes where the sign bit of the mask is set, else b
 *     f64_add_fma      a + b, computed as a fused 1 * a + b where this keeps the adders free for other sums
 *     f64_muladd, f64_mulsub, f32_muladd, f32_mulsub: fused or not; used only where the error bound allows both
 *     f64_interleave, f32_interleave: a[0], b[0], a[1], b[1] ...; f32_deinterleave is the inverse
 *     u16_excess       a - b, or 0 where a < b
 *     u16_odd          bits 16 .. 31 and 48 .. 63 of the lanes of two vectors; those of b move to bits 0 .. 15 and
 *                      32 .. 47
 *     f64_load_f32, f64_store_f32: LANES floats as doubles, and LANES doubles rounded to floats
 *     f64_of_f32       widens one vector to two
 *     f32_of_f64       rounds two vectors to floats
 *     f16_load         2 LANES numbers
 *     f16_of_f32, bf16_of_f32: narrow two vectors of floats, and return the bits; for bfloat16, no float may be
 *                      half-way between two numbers
 *     bf16_split       numbers 0, 2, 4 ... and 1, 3, 5 ... of a vector of 4 LANES numbers; bf16_join narrows two
 *                      vectors in this order
 *     u64_store        stores output; a non-temporal store bypasses the caches, and needs an address aligned to a
 *                      vector
 *     mask16_and_nonzero: m without the words in which x & bits is zero; in mask16_all, all words have passed
 */
#ifndef POSENC_SIMD_H
#define POSENC_SIMD_H

#ifndef SIMD
#define SIMD "isa/baseline.h"
#endif
#include SIMD

/* The upper half of each lane is not p[2 i + 1] if LANES is 1. */
static inline vu64 u64_load_even32(const uint32_t *p) {
    return LANES == 1 ? u64_load32(p) : u64_load((const uint64_t *)(const void *)p);
}

/* The first of two 16-bit numbers in 32 bits is in the lower half, or, on big-endian processors, in the upper
 * half. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LOWER_IS_FIRST 0
#else
#define LOWER_IS_FIRST 1
#endif
static inline void bf16_split(vu64 x, vf32 *even, vf32 *odd) {
    const vu64 upper = u64_set(0xffff0000ffff0000);
    *(LOWER_IS_FIRST ? even : odd) = f32_of_bits(u64_and(u64_shl(x, 16), upper));
    *(LOWER_IS_FIRST ? odd : even) = f32_of_bits(u64_and(x, upper));
}
static inline vu64 bf16_join(vf32 even, vf32 odd) {
    const vu64 half = u64_set(0x0000800000008000);
    const vu64 a = u32_add(bits_of_f32(even), half), b = u32_add(bits_of_f32(odd), half);
    return LOWER_IS_FIRST ? u16_odd(b, a) : u16_odd(a, b);
}

#if !defined(HAS_BF16_OF_F32)
static inline vu64 bf16_of_f32(vf32 a, vf32 b) {
    vf32 even, odd;
    f32_deinterleave(a, b, &even, &odd);
    return bf16_join(even, odd);
}
#endif

#if !defined(HAS_MASKS)
/* The minimum of x & bits over all tests of a word, which is zero if a test failed. */
typedef vu64 mask16;
static inline mask16 mask16_all(void) { return u64_set(UINT64_MAX); }
static inline mask16 mask16_and_nonzero(mask16 m, vu64 x, vu64 bits) { return u16_min(m, u64_and(x, bits)); }
static inline int mask16_is_all(mask16 m) { return u64_is_zero(u16_excess(u64_set(0x0001000100010001), m)); }
#endif

#endif
