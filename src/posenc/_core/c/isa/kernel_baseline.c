#define ISA baseline
#define SIMD "isa/baseline.h"
#include "isa/kernel_template.h"
