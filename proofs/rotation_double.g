# Rotation in double (rotate_in_double in rope/pairs.h, round_pairs in rope/pairs.h), relative to |a c| + |b
# s|.
#
# As in rows_double.g, one term is bounded at a time.  a and b are exact.  c and s are correctly rounded; a
# rounding that is left undecided is off by at most 2**-40 u.  Absolute errors of c and s, as those of direct
# evaluation, are in the floors.
#! bound ROTATION = 3.001 * u: rotation in double, correctly rounded factors
#! code factors SUFFIX=_1 v_a=a v_b=b at=c at_FACTOR_PAIRS=ZERO
#: rotate_in_double c v_a v_b
#! again factors SUFFIX=_2 v_a=a v_b=b at=ZERO at_FACTOR_PAIRS=s
#! code factors SUFFIX=_3 s=ZERO
#: round_pairs x
#! again factors SUFFIX=_4 c=ZERO
#! code factors SUFFIX=_5 factors=a s=ZERO
#: undecided_value value
#! again factors SUFFIX=_6 factors=b c=ZERO
{ {{hypotheses}}
  /\ |c -/ C| <= {{u + 2**-40*u}} /\ |s -/ S| <= {{u + 2**-40*u}} -> |v_a_1 -/ (a * C)| <= {{ROTATION}} /\ |v_b_1 -/ (b * C)| <= {{ROTATION}}
  /\ |v_a_2 -/ -(b * S)| <= {{ROTATION}} /\ |v_b_2 -/ (a * S)| <= {{ROTATION}}
  /\ |x_3 -/ (a * C)| <= {{ROTATION}} /\ |y_3 -/ (b * C)| <= {{ROTATION}}
  /\ |x_4 -/ -(b * S)| <= {{ROTATION}} /\ |y_4 -/ (a * S)| <= {{ROTATION}}
  /\ |value_5 -/ (a * C)| <= {{ROTATION}} /\ |value_6 -/ (b * S)| <= {{ROTATION}} }
