# sin and cos in double-double (series_dd and direct_values in table/direct.h), from the bounds of the parts
# of the computation.
#
# As in direct_double.g, Sin and Cos are the sine and cosine of the rounded angle x; Sine and Cosine are those
# of the exact angle X = 2 pi T.  FLOOR_DD covers two absolute errors of T: the error near zero
# (direct_dd_phase.g), and the error of the dropped limbs.  fast_two_sum does not change a sum.  A renormalised
# number has |low| <= u |high|.
#! from pi.sollya: TWO_PI_BELOW TWO_PI_ABOVE
#! from phase.g: DROPPED_DD
#! from direct_dd_phase.g: PHASE_DD PHASE_DD_ABSOLUTE T_MOST
#! from direct_dd_polynomials.sollya: SIN_POLYNOMIAL_DD COS_POLYNOMIAL_DD X_MOST_DD
#! from series_dd.g: SIN_SERIES COS_SERIES
#! from dd_product.g: DD_PRODUCT DD_TIMES_DOUBLE
#! bound ANGLE_DD = 2**-102.6: direct_dd, angle
#! let COS_ANGLE_DD = 0.786 * ANGLE_DD
#! bound DIRECT_DD = 2**-100.85: direct_dd, sin and cos times scale
#! bound TABLE_HIGH = 1.0001 * u: upper number of sin and cos
#! bound FLOOR_DD = 2**-114.3: direct_dd, of the amplitude
#@ -Eprecision=200
two_pi_dd = {{TWO_PI_HIGH}} + {{TWO_PI_LOW}};
{ two_pi in [{{TWO_PI_BELOW}},{{TWO_PI_ABOVE}}] /\ T <> 0 /\ |T| <= {{T_MOST}} /\ scale <> 0
  /\ |turn -/ T| <= {{PHASE_DD}} /\ |x -/ (turn * two_pi_dd)| <= {{DD_PRODUCT}}
  /\ |error| <= {{PHASE_DD_ABSOLUTE}} /\ |dropped| <= {{DROPPED_DD}}
  /\ |s -/ (x * series)| <= {{DD_PRODUCT}} /\ |series -/ exact_series| <= {{SIN_SERIES}}
  /\ |(x * exact_series) -/ Sin| <= {{SIN_POLYNOMIAL_DD}} /\ |Sin -/ Sine| <= {{ANGLE_DD}}
  /\ |p -/ (s * scale)| <= {{DD_TIMES_DOUBLE}}
  /\ |c -/ exact_c| <= {{COS_SERIES}} /\ |exact_c -/ Cos| <= {{COS_POLYNOMIAL_DD}} /\ |Cos -/ Cosine| <= {{COS_ANGLE_DD}}
  /\ |q -/ (c * scale)| <= {{DD_TIMES_DOUBLE}}
  /\ |high -/ v| <= {{u*1.000001}} /\ |v -/ exact_v| <= {{DIRECT_DD}}
  -> |x -/ (T * two_pi)| <= {{ANGLE_DD}} /\ |x| <= {{X_MOST_DD}}
  /\ |two_pi * error + dropped| <= {{FLOOR_DD}}
  /\ |p -/ (Sine * scale)| <= {{DIRECT_DD}}
  /\ |q -/ (Cosine * scale)| <= {{DIRECT_DD}}
  /\ |high -/ exact_v| <= {{TABLE_HIGH}} }
