# The phase in double (direct_double in table/direct.h): the sum of three limbs, and its product with 2 pi.
#
# The limbs are integers times powers of two.  If |a| < 2**-12, the first sum is exact, because a is a
# multiple of 2**-64.  If this sum were rounded, the relative error would be unbounded near the zeros of the
# sine.
#
# A quarter turn is 2**QUARTER_BITS units of the first limb.  Half a quarter turn is added to the limb before
# its upper bits are taken, and subtracted from its lower bits.  The rest is therefore at most half a quarter
# turn.
#! bound PHASE_DOUBLE = 3.36 * u: direct_double, angle
#! constants table/direct.h: const vu64 shifted = u64_add(phase.rest[0], u64_set(1u << {HALF_BITS}));
#! constants table/direct.h: phase.turn = u64_shl(shifted, {SHIFT});
#! constants table/direct.h: u64_and(shifted, u64_set((1u << {REST_BITS}) - 1)), {BIAS}), f64_set({FIRST_UNIT} * phase.unit));
#! let QUARTER_BITS = 62 - SHIFT
#! let FIRST_LEAST = -BIAS
#! let FIRST_MOST = 2**REST_BITS - 1 - BIAS
#! bound X_MOST = 0x1.921fb54442d18p-1: direct_double, largest rounded angle
#! from pi.sollya: TWO_PI_BELOW TWO_PI_ABOVE
@rnd = float<53,ne>;
phase_first = {{FIRST_UNIT}} * i0;
phase_limb_1 = 1b-64 * i1;
phase_limb_2 = 1b-96 * i2;
#! code rounded
#: direct_double turn..x
#! again exact TWO_PI_HIGH=two_pi
a = phase_first + phase_limb_1;
sum = rnd(a);
{ @FIX(i0,0) /\ @FIX(i1,0) /\ @FIX(i2,0) /\ i0 in [{{FIRST_LEAST}},{{FIRST_MOST}}] /\ i1 in [0,4294967295] /\ i2 in [0,4294967295]
  /\ two_pi in [{{TWO_PI_BELOW}},{{TWO_PI_ABOVE}}] ->
  {{2**32 * FIRST_UNIT}} + 0 in [1,1] /\ {{4 * 2**QUARTER_BITS * FIRST_UNIT}} + 0 in [1,1]
  /\ {{2**REST_BITS - 2**QUARTER_BITS}} + 0 in [0,0] /\ {{2**HALF_BITS - BIAS}} + 0 in [0,0]
  /\ |x| <= {{X_MOST}}
  /\ (a in [-1b-12,1b-12] -> sum - a in [0,0])
  /\ (sum = a -> |x -/ x_e| <= {{PHASE_DOUBLE}})
  /\ (a >= 1b-12 -> |x -/ x_e| <= {{PHASE_DOUBLE}})
  /\ (a <= -1b-12 -> |x -/ x_e| <= {{PHASE_DOUBLE}}) }
