/* The kernel for one instruction set.  Each kernel_*.c defines ISA and SIMD, then includes this file. */
#include "rope/rotate.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)

const kernel_t JOIN(posenc_kernel, ISA) = {STRING(ISA),     tabulate,      tabulate_level, write_rows,
                                           rotation_memory, write_factors, rotate,         write_value};
