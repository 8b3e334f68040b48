/* The instruction sets that this processor and operating system support. */
#ifndef POSENC_CPU_H
#define POSENC_CPU_H

/* Every arm64 processor has NEON.  Big-endian processors use the baseline, and so does MSVC, which defines neither macro. */
#if defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define POSENC_NEON 1
#endif

int posenc_always(void);
int posenc_has_avx2(void);       /* AVX2, FMA and F16C, which setup.py enables for kernel_avx2.c */
int posenc_has_avx512(void);     /* AVX-512 F, DQ, BW and VL, and the features above */

#endif
