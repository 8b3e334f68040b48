#define ISA baseline
#define IS_SUPPORTED posenc_always
#include "simd_baseline.h"
#include "cpu.h"
#include "kernels.h"
