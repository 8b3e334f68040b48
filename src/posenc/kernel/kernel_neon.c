#include "cpu.h"
#if defined(POSENC_NEON)
#define ISA neon
#define IS_SUPPORTED posenc_always
#include "simd_neon.h"
#include "kernels.h"
#endif
