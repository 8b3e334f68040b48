#define ISA avx512
#define IS_SUPPORTED posenc_has_avx512
#include "simd_avx512.h"
#include "cpu.h"
#include "kernels.h"
