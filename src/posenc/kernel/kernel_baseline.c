#define ISA baseline
#define RUNS_HERE posenc_always
#include "simd_baseline.h"
#include "cpu.h"
#include "rows.h"
