#include "isa/cpu.h"
#if defined(POSENC_NEON)
#define ISA neon
#define IS_SUPPORTED posenc_always
#define SIMD "isa/simd_neon.h"
#include "isa/kernel_template.h"
#endif
