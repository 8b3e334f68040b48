/* The floating-point environment of the kernels: round to nearest, no flush-to-zero.  The environment of the host program is
 * restored afterwards. */
#ifndef POSENC_FLOAT_ENVIRONMENT_H
#define POSENC_FLOAT_ENVIRONMENT_H

#include <stdint.h>

#if defined(__SSE2__) || defined(_M_X64) || (defined(_M_IX86_FP) && _M_IX86_FP == 2)
#include <xmmintrin.h>
typedef unsigned int environment_t;
static inline environment_t environment_enter(void) {
    const environment_t host = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return host;
}
static inline void environment_leave(environment_t host) { _mm_setcsr(host); }

#else
#include <fenv.h>
typedef fenv_t environment_t;
static inline environment_t environment_enter(void) {
    environment_t host;
    fegetenv(&host);
    fesetenv(FE_DFL_ENV);
    return host;
}
static inline void environment_leave(environment_t host) { fesetenv(&host); }
#endif

#endif
