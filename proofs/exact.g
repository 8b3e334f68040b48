# The relative error of an exact evaluation (posenc_evaluate in exact/exact.c), and of the sum of two exact evaluations (sum_of
# in exact/combination.c).
#
# The relative error of the phase is below 2**d.  The relative error of its sine or cosine is no larger, because x cot x <= 1
# and x tan x < 1 for x <= pi/4.  Let m = max(d, SMALLEST_ERROR).  The errors are scaled by 2**-m; the bound in use is 2**(m+1).
# Five numbers are truncated to 32 * LIMBS bits: turn, pi/4, angle, the series times the angle, and the product with the scale.
#
# The errors of a sum are scaled by 2**-error.  Alignment cuts off less than one `unit`, and normalisation cuts off at most two.
# If both terms are exact, they have no error; otherwise, `unit` is below 2**-34, because a term has at most 286 sure bits
# (exact/real.h).
#! from exact_series.g: SERIES_ERROR
#! from exact_series.sollya: REST
#! constant SMALLEST_ERROR exact/exact.c: SMALLEST_ERROR = {}
#! constant LIMBS exact/real.h: LIMBS = {},
#! constant MIN_SURE_BITS exact/real.h: MIN_SURE_BITS = {},
#! let LATER = 2**-286.3
#! constant BITS exact/exact.c: const int sure = -(larger(error, SMALLEST_ERROR) + {});
#! constant BITS_SUM exact/combination.c: sum.sure = sum.magnitude.exponent - 1 - (error + {});
#! let SURE = 2**BITS
#! let SURE_SUM = 2**BITS_SUM
#! bound LATER: exact evaluation, errors after the phase
#! bound SURE: exact evaluation, in units of `2**max(d, -285)`
#! bound SURE_SUM: exact evaluation of a rotated value, in units of its largest error
#! variants TERMS=exact,inexact
#! functions posenc_evaluate:59ea676c posenc_exact:f260fafb term_of:24e220aa sum_of:0d904091 rounded_exact:92a21b4a normalise:da9c5f59 times:36b3f91f product_of:37e41807 decided:17c857ab
#! mutation exact/exact.c: SMALLEST_ERROR = -285 => SMALLEST_ERROR = -287
#! mutation exact/exact.c: const int sure = -(larger(error, SMALLEST_ERROR) + 1); => const int sure = -(larger(error, SMALLEST_ERROR) + 0);
#! mutation exact/combination.c: sum.sure = sum.magnitude.exponent - 1 - (error + 2); => sum.sure = sum.magnitude.exponent - 1 - (error + 1);
#@ -Eprecision=400
#! quote exact/exact.c
#|    const int size = 32 * (position->limbs + position->exponent) - leading_zeros(position->limb[position->limbs - 1]);
#|    const int error = size + 1 - 32 * spec->fraction_limbs - (turn.exponent - 1);
#! quote exact/exact.c
#|    const real_t angle = times(turn.m, LIMBS, EIGHTH_OF_TWO_PI, LIMBS, turn.exponent + 3);
#! quote exact/exact.c
#|    return times(angle->m, LIMBS, s, LIMBS, angle->exponent + 32);
#! quote exact/exact.c
#|    *value = product_of(value, spec->scale);
#! quote exact/combination.c
#|    const int error = larger(larger(top - a->sure, b->magnitude.exponent - b->sure), top - 32 * LIMBS);
#! quote exact/combination.c
#|    sum.magnitude = normalise(w, n, n - LIMBS);
truncated = (1 - t1) * (1 - t2) * (1 - t3) * (1 - t4) * (1 - t5);
later = truncated * (1 + s) * (1 + r);
sum = a + b + unit + 2 * unit;
{ t1 in [0,{{2**(1-32*LIMBS)}}] /\ t2 in [0,{{2**(1-32*LIMBS)}}] /\ t3 in [0,{{2**(1-32*LIMBS)}}] /\ t4 in [0,{{2**(1-32*LIMBS)}}]
  /\ t5 in [0,{{2**(1-32*LIMBS)}}] /\ |s| <= {{SERIES_ERROR / 0.7071}} /\ |r| <= {{REST}}
  /\ phase in [0,1] /\ |rest| <= {{LATER * 2**-SMALLEST_ERROR}} /\ both in [0,{{2**(1-MIN_SURE_BITS)}}]
#? TERMS=exact /\ a in [0,0] /\ b in [0,0] /\ unit in [0,1]
#? TERMS=inexact /\ a in [0,1] /\ b in [0,1] /\ unit in [0,1b-34]
  -> |later - 1| <= {{LATER}} /\ |phase + rest + both * rest| <= {{SURE}} /\ |sum| <= {{SURE_SUM}} }
