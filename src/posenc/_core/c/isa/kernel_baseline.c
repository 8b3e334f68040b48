#define ISA baseline
#define SIMD "isa/simd_baseline.h"
#include "isa/kernel_template.h"
