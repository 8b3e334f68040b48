# Rotation of float16 and bfloat16 in double, with factors that are sums of two floats (round_pairs in
# rope/pairs.h), relative to |a c| + |b s|.
#
# c_low is c - c_upper, rounded to 24 bits, where |c - c_upper| <= SMALL |c| (rotation_float.g).  SPLIT_FLOOR
# covers floats that underflow.  All other steps are as in rotation_double.g.
#! from rotation_float.g: SMALL
#! bound ROTATION_SPLIT = 2**-37 + 4.001 * u: rotation in double, split factors, correctly rounded
#@ -Eprecision=200
#! code factors SUFFIX=_c upper=c_upper lower=c_low
#: store_sums to
#! again factors SUFFIX=_s upper=s_upper lower=s_low
#! code factors SUFFIX=_1 c=to_c s=ZERO
#: round_pairs x
#! again factors SUFFIX=_2 c=ZERO s=to_s
#! code factors SUFFIX=_3 factors=a c=to_c s=ZERO
#: undecided_value value
#! again factors SUFFIX=_4 factors=b c=ZERO s=to_s
{ {{hypotheses}} /\ |c_upper + c_low -/ c| <= {{SMALL * 2**-24}} /\ |s_upper + s_low -/ s| <= {{SMALL * 2**-24}}
  /\ |c -/ C| <= {{u}} /\ |s -/ S| <= {{u}}
  -> |x_1 -/ (a * C)| <= {{ROTATION_SPLIT}} /\ |y_1 -/ (b * C)| <= {{ROTATION_SPLIT}}
  /\ |x_2 -/ -(b * S)| <= {{ROTATION_SPLIT}} /\ |y_2 -/ (a * S)| <= {{ROTATION_SPLIT}}
  /\ |value_3 -/ (a * C)| <= {{ROTATION_SPLIT}} /\ |value_4 -/ (b * S)| <= {{ROTATION_SPLIT}} }
