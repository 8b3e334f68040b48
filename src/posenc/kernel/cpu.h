/* Which instruction sets this processor and operating system run. */
#ifndef POSENC_CPU_H
#define POSENC_CPU_H

int posenc_always(void);
int posenc_has_avx2(void);       /* all that setup.py's flags name: AVX2, FMA, F16C */
int posenc_has_avx512(void);     /* AVX-512 F, DQ, BW, VL, and all of the former */

#endif
