# cos in double (direct_double and direct_values in table/direct.h), with the factor `scale`.
#
# Cos is the cosine of the rounded angle x; Cosine is that of the exact angle X.  For x = X (1 + d), the mean
# value theorem gives |Cos - Cosine| <= |X d| sin y for a y between x and X, so the relative error is below
# |d| X tan y <= 0.786 |d|.
#! from direct_double_polynomials.sollya: COS_POLYNOMIAL
#! from direct_double_phase.g: PHASE_DOUBLE X_MOST
#! let COS_DOUBLE = 5.4 * u
#! let COS_ANGLE = 0.786 * PHASE_DOUBLE
#! bound COS_DOUBLE: direct_double, cos times scale
@rnd = float<53,ne>;
#! code rounded
#: direct_double x..s
z_e = x * x;
#! again exact x:=x z:=z_e
#! code rounded spec_scale=scale sine_high=s cosine_high=c is_dd=0
#: direct_values cosine_high
{ |x| in [0,{{X_MOST}}] /\ scale <> 0 /\ Cosine <> 0 /\ |c_e -/ Cos| <= {{COS_POLYNOMIAL}}
  /\ |Cos -/ Cosine| <= {{COS_ANGLE}}
  -> |cosine_high -/ (Cosine * scale)| <= {{COS_DOUBLE}} }
$ x in 8;
