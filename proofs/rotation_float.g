# Rotation in float (rotate_in_float in rope/pairs.h), for float16 and bfloat16:
# |error| <= 2**-23 (1 + 2**-25) |x| + ROTATION_FLOAT A.
#
# A is scaled to 1.  a and b have 11 bits (bfloat16: 8).  c = c_upper + c_lower, where c_upper has 13 bits, so
# products with the upper floats are exact.  |c_lower| <= SMALL |c|, because upper_bits adds 2**CUT_HALF to
# the bits of a double and cuts off the last CUT bits.  x is the exact result for the doubles c and s; d is
# the part of x that comes from c_lower and s_lower.  By the inequality of Cauchy and Schwarz, |d| <= SMALL A.
# e1 is the rounding error of the sum of the upper products, and e2 that of the last sum.
#
# The products with the lower floats are bounded one at a time, as in rows_double.g, with the rounded terms
# r_c ... and r_s ... The last rounding is that of the last sum (e2); LOWER bounds the error of a term before
# this rounding.
#! constants rope/factors.h: f64_of_bits(u64_and(rounded, u64_set(~(((uint64_t)1 << {CUT}) - 1))));
#! constants rope/factors.h: const vu64 rounded = u64_add(bits_of_f64(x), u64_set((uint64_t)1 << {CUT_HALF}));
#! let UPPER_BITS = 53 - CUT
#! let SMALL = max(2**CUT_HALF, 2**CUT - 2**CUT_HALF) * 2**-52
#! bound LOWER = 3.0001 * 2**-24: rotation in float, products with the lower floats
#! bound ROTATION_FLOAT = 2**-34.999: rotation in float, of A
#@ -Eprecision=200
@rnd = float<24,ne>;
#! code rounded SUFFIX=_u a=a b=b c=c s=s c_low=ZERO s_low=ZERO
#: rotate_in_float v_a v_b
#! again factors PRECISION=24 SUFFIX=_c c=ZERO s=ZERO s_low=ZERO a=a b=b c_low=c_low
#! again factors PRECISION=24 SUFFIX=_s c=ZERO s=ZERO c_low=ZERO a=a b=b s_low=s_low
ac = rnd(a * c);
bs = rnd(b * s);
bc = rnd(b * c);
as = rnd(a * s);
upper = (x - d) * (1 + e1);
result = (upper + lower) * (1 + e2);
{ @FLT(a,11) /\ @FLT(b,11) /\ @FLT(c,{{UPPER_BITS}}) /\ @FLT(s,{{UPPER_BITS}}) /\ {{hypotheses}}
  /\ |c_low -/ CL| <= 1b-24 /\ |s_low -/ SL| <= 1b-24
  /\ |x| <= 1 /\ |d| <= {{SMALL}} /\ |e1| <= 1b-24 /\ |e2| <= 1b-24 /\ |lower - d| <= {{LOWER * SMALL}}
  -> ac - a * c in [0,0] /\ bs - b * s in [0,0] /\ bc - b * c in [0,0] /\ as - a * s in [0,0]
#? FUSED=0 /\ |v_a_u -/ (ac - bs)| <= 1b-24 /\ |v_b_u -/ (bc + as)| <= 1b-24
#? FUSED=1 /\ |v_a_u -/ (a * c - bs)| <= 1b-24 /\ |v_b_u -/ (b * c + as)| <= 1b-24
#? FUSED=0 /\ |r_c_1 -/ (a * CL)| <= {{LOWER}} /\ |r_c_4 -/ (b * CL)| <= {{LOWER}}
#? FUSED=0 /\ |v_a_c -/ r_c_1| <= 1b-24 /\ |v_b_c -/ r_c_4| <= 1b-24
#? FUSED=1 /\ |r_c -/ (a * CL)| <= {{LOWER}} /\ |r_c_2 -/ (b * CL)| <= {{LOWER}}
#? FUSED=1 /\ |v_a_c -/ r_c| <= 1b-24 /\ |v_b_c -/ r_c_2| <= 1b-24
  /\ |r_s_1 -/ -(b * SL)| <= {{LOWER}} /\ |r_s_4 -/ (a * SL)| <= {{LOWER}}
  /\ |v_a_s -/ r_s_1| <= 1b-24 /\ |v_b_s -/ r_s_4| <= 1b-24
  /\ |result - x * ((1 + e1) * (1 + e2))| <= {{ROTATION_FLOAT}} }
result - x * ((1 + e1) * (1 + e2)) -> ((lower - d) - d * e1) * (1 + e2);
