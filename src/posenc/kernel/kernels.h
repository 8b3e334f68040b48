/* The kernels for one instruction set: each kernel_*.c defines ISA as its name, then includes its SIMD primitives and this. */
#include "rotation.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)

const kernel_t JOIN(posenc_kernel, ISA) = {STRING(ISA), IS_SUPPORTED, tabulate, rows, rotation_memory, rotation};
