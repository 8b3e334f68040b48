#define ISA baseline
#define IS_SUPPORTED posenc_always
#include "isa/simd_baseline.h"
#include "isa/cpu.h"
#include "isa/kernel_template.h"
