/* Includes the SIMD primitives of the instruction set for which a kernel_*.c is compiled; else those of the baseline. */
#ifndef SIMD
#define SIMD "isa/simd_baseline.h"
#endif
#include SIMD
