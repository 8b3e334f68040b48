# sin in double (direct_double and direct_values in table/direct.h), with the factor `scale`.
#
# Sin is the sine of the rounded angle x; Sine is that of the exact angle X.  The sine is concave on [0, pi],
# so Sin / Sine is between 1 and 1 + d for x = X (1 + d), |d| < 1/2.  The relative error of Sin is therefore
# at most that of x.
#! from direct_double_polynomials.sollya: SIN_POLYNOMIAL
#! from direct_double_phase.g: PHASE_DOUBLE X_MOST
#! let SIN_DOUBLE = 5.8 * u
#! bound SIN_DOUBLE: direct_double, sin times scale
@rnd = float<53,ne>;
#! code rounded
#: direct_double
z_e = x * x;
#! again exact x:=x z:=z_e
#! code rounded spec_scale=scale sine_high=s cosine_high=c is_dd=0
#: direct_values sine_high
{ |x| in [1b-97,{{X_MOST}}] /\ scale <> 0 /\ Sine <> 0 /\ |s_e -/ Sin| <= {{SIN_POLYNOMIAL}}
  /\ |Sin -/ Sine| <= {{PHASE_DOUBLE}}
  -> |sine_high -/ (Sine * scale)| <= {{SIN_DOUBLE}} }
rnd(s_7 * z) * x + x -> (1 + rnd(s_7 * z)) * x;
(s_e_7 * z_e) * x + x -> (1 + s_e_7 * z_e) * x;
