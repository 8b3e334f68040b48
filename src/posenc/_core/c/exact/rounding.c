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

/* An int64 as a double, rounded to odd: if bits are dropped, the last remaining bit is set.  At least 43 bits remain, so the
 * result and the integer round to the same number of a dtype of at most 24 bits (Boldo and Melquiond). */
static double odd_double_of(uint64_t two_complement) {
    const int negative = (int)(two_complement >> 63);
    uint64_t m = negative ? 0 - two_complement : two_complement;
    if (m >> 53) m = (m >> 11 | ((m & 2047) != 0)) << 11;
    return negative ? -(double)m : (double)m;
}

void posenc_rounded_bits(dtype_t dtype, ptrdiff_t rows, const double *reals, const int64_t *integers, uint64_t start,
                         uint64_t step, void *out) {
    for (ptrdiff_t i = 0; i < rows; i++) {
        const uint64_t integer = integers ? (uint64_t)integers[i] : start + (uint64_t)i * step;
        double x = reals ? reals[i] : dtype == FLOAT64 ? (double)(int64_t)integer : odd_double_of(integer);
        if (x != x) x = double_of_bits(0x7ff8000000000000u);
        x = round_to(dtype, x);
        switch (dtype) {
        case FLOAT64: ((uint64_t *)out)[i] = bits_of_double(x); break;
        case FLOAT32: ((uint32_t *)out)[i] = bits_of_float((float)x); break;
        case FLOAT16: ((uint16_t *)out)[i] = half_of_float((float)x); break;
        case BFLOAT16: ((uint16_t *)out)[i] = bfloat_of_float((float)x); break;
        }
    }
}
