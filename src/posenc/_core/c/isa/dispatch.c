/* Detects instruction sets, and lists the kernels, best first. */
#include "kernel.h"

#if defined(POSENC_X86)

#if defined(_MSC_VER)
#include <intrin.h>
static void cpuid(int leaf, unsigned r[4]) { __cpuidex((int *)r, leaf, 0); }
static unsigned enabled_state(void) { return (unsigned)_xgetbv(0); }
#else
#include <cpuid.h>
static void cpuid(int leaf, unsigned r[4]) {
    r[0] = r[1] = r[2] = r[3] = 0;
    __get_cpuid_count((unsigned)leaf, 0, &r[0], &r[1], &r[2], &r[3]);
}
static unsigned enabled_state(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
#endif

static int has_bits(unsigned x, unsigned bits) { return (x & bits) == bits; }

/* AVX2, FMA and F16C, which setup.py enables for kernel_avx2.c */
static int has_avx2(void) {
    unsigned one[4], seven[4];
    cpuid(1, one);
    cpuid(7, seven);
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29, avx2 = 1u << 5;
    return has_bits(one[2], fma | osxsave | avx | f16c) && has_bits(seven[1], avx2) && has_bits(enabled_state(), 0x06);
}

/* AVX-512 F, DQ, BW and VL, and the features above */
static int has_avx512(void) {
    unsigned seven[4];
    cpuid(7, seven);
    const unsigned f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
    return has_avx2() && has_bits(seven[1], f | dq | bw | vl) && has_bits(enabled_state(), 0xe6);
}

extern const kernel_t posenc_kernel_avx2, posenc_kernel_avx512;
#endif

#if defined(POSENC_NEON)
extern const kernel_t posenc_kernel_neon;
#endif
extern const kernel_t posenc_kernel_baseline;

const kernel_t *const posenc_kernels[] = {
#if defined(POSENC_X86)
    &posenc_kernel_avx512,   &posenc_kernel_avx2,
#endif
#if defined(POSENC_NEON)
    &posenc_kernel_neon,
#endif
    &posenc_kernel_baseline, NULL,
};

int posenc_is_supported(const kernel_t *kernel) {
#if defined(POSENC_X86)
    if (kernel == &posenc_kernel_avx512) return has_avx512();
    if (kernel == &posenc_kernel_avx2) return has_avx2();
#endif
    return kernel != NULL;
}
