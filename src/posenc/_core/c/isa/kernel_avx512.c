#define ISA avx512
#define SIMD "isa/simd_avx512.h"
#include "isa/kernel_template.h"
