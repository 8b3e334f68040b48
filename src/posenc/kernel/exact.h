/* Exact evaluation of values whose rounding the fast path does not decide. */
#ifndef POSENC_EXACT_H
#define POSENC_EXACT_H

#include "kernel.h"

enum { MAX_TURN_LIMBS = 200 };      /* _frequencies.py allows at most 184 */

/* The value of a column at a finite position, correctly rounded to dtype (as a double). */
double posenc_exact(const spec_t *, const position_t *, ptrdiff_t column, dtype_t);

/* x rounded to dtype, to nearest in any rounding mode of the host program. */
double posenc_rounded(dtype_t, double x);

#endif
