#define ISA avx2
#define SIMD "isa/simd_avx2.h"
#include "isa/kernel_template.h"
