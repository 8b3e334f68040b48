#define ISA avx2
#define RUNS_HERE posenc_has_avx2
#include "simd_avx2.h"
#include "cpu.h"
#include "rows.h"
