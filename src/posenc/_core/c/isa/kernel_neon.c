#include "kernel.h"
#if defined(POSENC_NEON)
#define ISA neon
#define SIMD "isa/simd_neon.h"
#include "isa/kernel_template.h"
#endif
