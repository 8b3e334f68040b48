#ifndef POSENC_EXACT_H
#define POSENC_EXACT_H

#include "kernel.h"

enum { MAX_TURN_LIMBS = 200 };      /* of the frequencies that _frequencies.py lets through, 184 at most */

/* The value of a column at a finite position, correctly rounded to dtype (as a double). */
double posenc_exact(const spec_t *, const position_t *, ptrdiff_t column, dtype_t);

/* x rounded to dtype, to nearest whatever rounding the host program set. */
double posenc_rounded(dtype_t, double x);

#endif
