/* Exact evaluation of values whose rounding the fast path does not decide. */
#ifndef POSENC_EXACT_H
#define POSENC_EXACT_H

#include "real.h"

enum { MAX_TURN_LIMBS = 200 };      /* _frequencies.py allows at most 184 */

/* The magnitude and the sign of the value of a column at a finite position.  Returns the number of sure bits: the relative
 * error is below 2**-(sure bits). */
int posenc_evaluate(const spec_t *, const position_t *, ptrdiff_t column, real_t *value, int *negative);

/* The value of a column at a finite position, correctly rounded to dtype (as a double). */
double posenc_exact(const spec_t *, const position_t *, ptrdiff_t column, dtype_t);

/* factors[0] * value(column) + factors[1] * value(column + 1) at a finite position, correctly rounded to dtype; the two columns
 * must be the cosine and the sine of one frequency, and the factors finite.  Zero is +0. */
double posenc_combination(const spec_t *, const position_t *, ptrdiff_t column, const double factors[2], dtype_t);

/* x rounded to dtype, to nearest in any rounding mode of the host program. */
double posenc_rounded(dtype_t, double x);

#endif
