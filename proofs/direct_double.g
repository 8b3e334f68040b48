# sin and cos in double (direct_double and direct_values in table/direct.h), with the factor `scale`.
#
# Sin and Cos are the sine and cosine of the rounded angle x; Sine and Cosine are those of the exact angle X.
# Let x = X (1 + d), where |d| < 1/2.  The sine is concave on [0, pi], so Sin / Sine is between 1 and 1 + d, and
# the relative error of Sin is at most that of x.  The mean value theorem gives |Cos - Cosine| <= |X d| sin y for
# a y between x and X, so the relative error of Cos is below |d| X tan y <= 0.786 |d|.
#! from direct_double_polynomials.sollya: SIN_POLYNOMIAL COS_POLYNOMIAL
#! from direct_double_phase.g: PHASE_DOUBLE X_MOST
#! bound SIN_DOUBLE = 5.8 * u: direct_double, sin times scale
#! bound COS_DOUBLE = 5.4 * u: direct_double, cos times scale
#! let COS_ANGLE = 0.786 * PHASE_DOUBLE
@rnd = float<53,ne>;
#! code rounded
#: direct_double
z_e = x * x;
#! again exact x:=x z:=z_e
#! code rounded spec_scale=scale sine_high=s cosine_high=c is_dd=0
#: direct_values sine_high cosine_high
{ |x| in [0,{{X_MOST}}] /\ scale <> 0 /\ Sine <> 0 /\ Cosine <> 0
  /\ |s_e -/ Sin| <= {{SIN_POLYNOMIAL}} /\ |Sin -/ Sine| <= {{PHASE_DOUBLE}}
  /\ |c_e -/ Cos| <= {{COS_POLYNOMIAL}} /\ |Cos -/ Cosine| <= {{COS_ANGLE}}
  -> (|x| >= 1b-97 -> |sine_high -/ (Sine * scale)| <= {{SIN_DOUBLE}})
  /\ |cosine_high -/ (Cosine * scale)| <= {{COS_DOUBLE}} }
rnd(s_7 * z) * x + x -> (1 + rnd(s_7 * z)) * x;
(s_e_7 * z_e) * x + x -> (1 + s_e_7 * z_e) * x;
$ x in 8;
