/* Includes the SIMD primitives of the instruction set for which a kernel_*.c is compiled, else those of the baseline, and
 * defines further ones from them; simd_baseline.h explains them. */
#ifndef POSENC_SIMD_OF_ISA_H
#define POSENC_SIMD_OF_ISA_H

#ifndef SIMD
#define SIMD "isa/simd_baseline.h"
#endif
#include SIMD

/* The upper half of each lane is not p[2 i + 1] if LANES is 1. */
static inline vu64 u64_load_even32(const uint32_t *p) {
    return LANES == 1 ? u64_load32(p) : u64_load((const uint64_t *)(const void *)p);
}

/* Of two numbers in 32 bits, the first one is in the lower half, or, on big-endian processors, in the upper half. */
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
