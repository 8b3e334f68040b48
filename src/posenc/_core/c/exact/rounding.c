/* Rounding for callers outside the kernels, in any floating-point environment. */
#include "exact/rounding.h"
#include "float_environment.h"

double posenc_rounded(dtype_t dtype, double x) {
    const environment_t host = environment_enter();
    /* volatile: the compiler may move arithmetic past a change of the environment, but not these accesses */
    volatile double in = x;
    volatile double out = round_to(dtype, in);
    environment_leave(host);
    return out;
}
