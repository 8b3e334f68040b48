#define ISA avx2
#define IS_SUPPORTED posenc_has_avx2
#include "simd_avx2.h"
#include "cpu.h"
#include "kernels.h"
