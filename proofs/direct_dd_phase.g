# The phase in double-double (phase_dd in table/direct.h): the sum of five limbs.
#
# If |a| < 2**-12, the first sum is exact, and the error is absolute; otherwise, the error is relative.
# fast_two_sum is exact in both places.  The first limb is 0 or at least 2**-32, and the second limb is
# smaller than 2**-32.  The first sum is 0 or at least 2**-64, and the sum of the other limbs is smaller than
# 2**-64.
#! from direct_double_phase.g: FIRST_UNIT FIRST_LEAST FIRST_MOST
#! let T_MOST = 2**-3 + 2**-60
#! bound PHASE_DD = 2**-104.99: direct_dd, phase, relative
#! bound PHASE_DD_ABSOLUTE = 2**-116.99: direct_dd, phase near zero, in turns
#! variants A=near_zero,positive,negative
#@ -Eprecision=200
@rnd = float<53,ne>;
phase_first = {{FIRST_UNIT}} * i0;
phase_limb_1 = 1b-64 * i1;
phase_limb_2 = 1b-96 * i2;
phase_limb_3 = 1b-128 * i3;
phase_limb_4 = 1b-160 * i4;
#! code rounded
#: phase_dd last..turn
a = phase_first + phase_limb_1;
small = phase_limb_2 + (phase_limb_3 + phase_limb_4);
T = a + small;
sum = turn_high + turn_low;
{ @FIX(i0,0) /\ @FIX(i1,0) /\ i0 in [{{FIRST_LEAST}},{{FIRST_MOST}}] /\ i1 in [0,4294967295] /\ i2 in [0,4294967295]
  /\ i3 in [0,4294967295] /\ i4 in [0,4294967295] /\
#? A=near_zero a in [-1b-12,1b-12] -> |sum - T| <= {{PHASE_DD_ABSOLUTE}} /\ |T| <= {{T_MOST}} }
#? A=positive a in [1b-12,1] -> |T| <= {{T_MOST}} /\ |sum -/ T| <= {{PHASE_DD}} /\ |turn_rest| <= 1b-50 }
#? A=negative a in [-1,-1b-12] -> |T| <= {{T_MOST}} /\ |sum -/ T| <= {{PHASE_DD}} /\ |turn_rest| <= 1b-50 }
sum - T -> turn_rest - (turn_low_0 + small);
#? A=positive $ a in (1b-11,1b-10,1b-9,1b-8,1b-7,1b-6,1b-5,1b-4,1b-3);
#? A=negative $ a in (-1b-3,-1b-4,-1b-5,-1b-6,-1b-7,-1b-8,-1b-9,-1b-10,-1b-11);
