# Rotation in double (rotate_in_double in rope/pairs.h, round_pairs in rope/pairs.h), relative to |a c| + |b s|.
#
# As in rows_double.g, one term is bounded at a time.  a and b are exact.  c and s are either correctly rounded, or evaluated
# directly with absolute errors that DIRECT_ROTATION_FLOOR covers; a rounding that is left undecided is off by at most 2**-40 u.  apply_symmetry may exchange the sine and the cosine of the
# rest of an angle, so the larger error, DIRECT, is used for both.
#! from direct_double_sin.g: SIN_DOUBLE
#! from direct_double_cos.g: COS_DOUBLE
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! let ROTATION = 3.001 * u
#! let ROTATION_DIRECT = 7.801 * u
#! bound ROTATION: rotation in double, correctly rounded factors
#! bound ROTATION_DIRECT: rotation in double, factors evaluated directly
#! variants FUSED=0,1 FACTORS=rounded,direct
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
#? FACTORS=rounded /\ |c -/ C| <= {{u + 2**-40*u}} /\ |s -/ S| <= {{u + 2**-40*u}} -> |v_a_1 -/ (a * C)| <= {{ROTATION}} /\ |v_b_1 -/ (b * C)| <= {{ROTATION}}
#? FACTORS=rounded /\ |v_a_2 -/ -(b * S)| <= {{ROTATION}} /\ |v_b_2 -/ (a * S)| <= {{ROTATION}}
#? FACTORS=rounded /\ |x_3 -/ (a * C)| <= {{ROTATION}} /\ |y_3 -/ (b * C)| <= {{ROTATION}}
#? FACTORS=rounded /\ |x_4 -/ -(b * S)| <= {{ROTATION}} /\ |y_4 -/ (a * S)| <= {{ROTATION}}
#? FACTORS=rounded /\ |value_5 -/ (a * C)| <= {{ROTATION}} /\ |value_6 -/ (b * S)| <= {{ROTATION}} }
#? FACTORS=direct /\ |c -/ C| <= {{DIRECT}} /\ |s -/ S| <= {{DIRECT}}
#? FACTORS=direct -> |v_a_1 -/ (a * C)| <= {{ROTATION_DIRECT}} /\ |v_b_1 -/ (b * C)| <= {{ROTATION_DIRECT}}
#? FACTORS=direct /\ |v_a_2 -/ -(b * S)| <= {{ROTATION_DIRECT}} /\ |v_b_2 -/ (a * S)| <= {{ROTATION_DIRECT}}
#? FACTORS=direct /\ |x_3 -/ (a * C)| <= {{ROTATION_DIRECT}} /\ |y_3 -/ (b * C)| <= {{ROTATION_DIRECT}}
#? FACTORS=direct /\ |x_4 -/ -(b * S)| <= {{ROTATION_DIRECT}} /\ |y_4 -/ (a * S)| <= {{ROTATION_DIRECT}}
#? FACTORS=direct /\ |value_5 -/ (a * C)| <= {{ROTATION_DIRECT}} /\ |value_6 -/ (b * S)| <= {{ROTATION_DIRECT}} }
