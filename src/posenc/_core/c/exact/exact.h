/* Exact evaluation of values whose rounding the fast path does not decide. */
#ifndef POSENC_EXACT_H
#define POSENC_EXACT_H

#include "exact/real.h"

enum { MAX_TURN_LIMBS = 200 };      /* frequencies.py allows at most 184 */

/* Computes the magnitude and the sign of a column's value at a finite position.  Returns the number of sure bits (real.h);
 * the results are not usable if this number is below MIN_SURE_BITS. */
int posenc_evaluate(const spec_t *, const position_t *, ptrdiff_t column, real_t *value, int *negative);

/* Returns a column's value at a finite position, correctly rounded to dtype, as a double. */
double posenc_exact(const spec_t *, const position_t *, ptrdiff_t column, dtype_t);

/* Returns factors[0] * value(column) + factors[1] * value(column + 1) at a finite position, correctly rounded to dtype.  The
 * columns must be the cosine and the sine of one frequency; the factors must be finite.  A sum of exactly 0 gives +0. */
double posenc_combination(const spec_t *, const position_t *, ptrdiff_t column, const double factors[2], dtype_t);

/* Returns x rounded to the nearest number of dtype, in any rounding mode of the host program. */
double posenc_rounded(dtype_t, double x);

/* Writes the bits of positions, each rounded once to dtype, to `out`; NaN gives the canonical quiet NaN.  The positions are
 * reals, or integers, or start + i * step if both arrays are NULL.  The rounding mode must be to nearest. */
void posenc_rounded_bits(dtype_t, ptrdiff_t rows, const double *reals, const int64_t *integers, uint64_t start, uint64_t step,
                         void *out);

#endif
