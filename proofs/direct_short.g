# Rows evaluated with short phases (store_short in table/direct.h); the scale is 1.
#
# The phase is below the exact one by less than two units of 2**-64 turns for each limb of the position.  Half
# a unit of 2**-54 turns is added before the lower 10 bits are cut off.  ANGLE includes both errors, in
# radians.  Sin and Cos are those of the rounded angle x, Sine and Cosine those of the exact angle X.  The
# product with the scale and the test add u each.
#! from direct_double_phase.g: X_MOST
#! from direct_short_polynomials.sollya: SIN_SHORT COS_SHORT
#! from pi.sollya: TWO_PI_BELOW TWO_PI_ABOVE
#! constants table/direct.h: #define SHORT_ROUNDING (((uint64_t)1 << 61) + ((uint64_t)1 << {HALF}))
#! let ANGLE = 3 * u
#! bound SHORT = 6 * u: short phases, of the amplitude
@rnd = float<53,ne>;
#! code rounded unit=1
#: store_short x
#! again exact TWO_PI_HIGH=two_pi unit=1
y = float<53,ne>(x);
#! code rounded x:=y vectors=1
#: short_series
#! again exact x:=y vectors=1
{ @FIX(rest,0) /\ rest in [-1b51,1b51] /\ two_pi in [{{TWO_PI_BELOW}},{{TWO_PI_ABOVE}}]
  /\ |s_e - Sin| <= {{SIN_SHORT}} /\ |c_e - Cos| <= {{COS_SHORT}} /\ |Sin - Sine| <= {{ANGLE}} /\ |Cos - Cosine| <= {{ANGLE}}
  -> |x| <= {{X_MOST}} /\ |x - x_e| <= {{ANGLE - 6.2832 * 2**-64 * (2**HALF + 2 * POSITION_LIMBS)}} /\ |s - Sine| <= {{SHORT}} /\ |c - Cosine| <= {{SHORT}}
  /\ {{SHORT + 2.01 * u}} + 0 in [0,{{DOUBLE_ERROR}}] }
