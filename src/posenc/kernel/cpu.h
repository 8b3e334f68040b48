/* Which instruction sets this processor and operating system run. */
#ifndef POSENC_CPU_H
#define POSENC_CPU_H

/* Every arm64 processor has NEON.  The baseline remains the only one with MSVC, which defines neither macro, and on processors
 * that store the high byte first. */
#if defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define POSENC_NEON 1
#endif

int posenc_always(void);
int posenc_has_avx2(void);       /* all that setup.py's flags name: AVX2, FMA, F16C */
int posenc_has_avx512(void);     /* AVX-512 F, DQ, BW, VL, and all of the former */

#endif
