# The error of the limbs that direct_phase (table/direct.h) drops.  In radians, it is the error relative to
# the amplitude.
#
# A limb of the position is below 2**32.  Relative to the weight of this limb, the dropped limbs of the
# frequency are a fraction below 2**(-32 (limbs + 1)).  The last sum is truncated below 2**(-32 limbs).  The
# frequency itself has an error of two units of 2**-Q (docs/numerics.md, section 1), where Q >= SIGNIFICANT,
# and |position| < 2**64.
#! bound DROPPED_DOUBLE = 2**-87.7: direct_double, dropped limbs, of the amplitude
#! bound DROPPED_DD = 2**-152: direct_dd, dropped limbs, of the amplitude
#! constants _core/frequencies.py: SIGNIFICANT_BITS = {SIGNIFICANT} GUARD_BITS
#! constants table/direct.h: direct_phase(spec, position, column, lanes, {DOUBLE_LIMBS})
dropped_double = {{POSITION_LIMBS}} * p * f3 + l3 + e;
dropped_dd = {{POSITION_LIMBS}} * p * f5 + l5 + e;
{ p in [0,1b32] /\ f3 in [0,{{2**(-32*(DOUBLE_LIMBS+1))}}] /\ l3 in [0,{{2**(-32*DOUBLE_LIMBS)}}] /\ |e| <= {{2 * 2**(64 - SIGNIFICANT)}}
  /\ f5 in [0,{{2**(-32*(PHASE_LIMBS+1))}}] /\ l5 in [0,{{2**(-32*PHASE_LIMBS)}}] /\ two_pi in [6.2,6.284]
  -> |two_pi * dropped_double| <= {{DROPPED_DOUBLE}} /\ |two_pi * dropped_dd| <= {{DROPPED_DD}} }
