#define ISA avx2
#define IS_SUPPORTED posenc_has_avx2
#define SIMD "isa/simd_avx2.h"
#include "isa/kernel_template.h"
