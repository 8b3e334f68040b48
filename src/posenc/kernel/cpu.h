/* The instruction sets that this processor and operating system support. */
#ifndef POSENC_CPU_H
#define POSENC_CPU_H

/* Every arm64 processor has NEON.  MSVC, which defines neither macro, and big-endian processors use the baseline. */
#if defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define POSENC_NEON 1
#endif

int posenc_always(void);
int posenc_has_avx2(void);       /* the flags of setup.py: AVX2, FMA, F16C */
int posenc_has_avx512(void);     /* AVX-512 F, DQ, BW, VL, and those of AVX2 */

#endif
