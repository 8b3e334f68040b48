#define ISA baseline
#define IS_SUPPORTED posenc_always
#define SIMD "isa/simd_baseline.h"
#include "isa/kernel_template.h"
