#include "isa/cpu.h"
#if defined(POSENC_NEON)
#define ISA neon
#define IS_SUPPORTED posenc_always
#include "isa/simd_neon.h"
#include "isa/kernel_template.h"
#endif
