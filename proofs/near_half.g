# The bits that the fast test examines (table/decide_rounding.h): if a value passes the test, it rounds to the
# same number as the true value.
#
# float32: v is the computed value and w the true value, both in ulp of v.  The integer d consists of the 29
# bits that rounding drops.  v passes if the sum d + NEAR, without the bit 2**29 that the mask leaves out, is
# at least the lowest bit of the mask. Then v is at least MARGIN from the half-way point 2**28, and |w - v| <
# MARGIN (tests_double.g), so v and w are on the same side of the point.  Other half-way points are at least
# 2**27 away, and rounding is monotonic.  The program adds only the bits from 16 to 31, which gives the same
# sum, because the lower bits of NEAR are 0.
#
# float16, bfloat16: v is rounded to the float f.  A half-way point h between 1 and 2 is also a float.  If f
# is not h, f and h differ by n ulp of a float, and an ulp is 2**-23.  r = v - f is at most half an ulp, and e
# = w - v is below half an ulp (tests_double.g), so w is on the same side of h as f.  The masks cover all
# dropped bits, and half a mask, rounded up, is the bit pattern of half-way points.
#! constants table/decide_rounding.h: return dtype == FLOAT32 ? {NEAR} : dtype == FLOAT16 ? {HALF_FLOAT16} : {HALF_BFLOAT16}; }
#! constants table/decide_rounding.h: const vu64 bits = u64_set(UPPER_64 | {MASK});
#! constants table/decide_rounding.h: : u32_set(UPPER_32 | (dtype == FLOAT16 ? {MASK_FLOAT16} : {MASK_BFLOAT16}));
#! let MARGIN = NEAR - 2**28
#! variants SIDE=below,above
sum = d + {{NEAR}};
rest = sum - 1b29;
{ @FIX(d,0) /\ d in [0,536870911] /\ |e| <= {{MARGIN - 2**-20}} /\ n in [1,1b23] /\ |r| <= 1b-24 /\ |e_float| <= {{2**-24 - 2**-40}}
#? SIDE=below /\ sum in [0,536870911]
#? SIDE=above /\ rest in [{{2**29-MASK}},536870911]
  ->
#? SIDE=below d - 1b28 in [-1b28,{{-MARGIN}}] /\ d + e - 1b28 <= -1b-20 /\
#? SIDE=above d - 1b28 in [{{MARGIN}},1b28] /\ d + e - 1b28 >= 1b-20 /\
  1b-23 * n + r + e_float >= 1b-40 /\ {{MASK_FLOAT16 + 1 - 2 * HALF_FLOAT16}} + 0 in [0,0]
  /\ {{MASK_BFLOAT16 + 1 - 2 * HALF_BFLOAT16}} + 0 in [0,0] /\ {{HALF_FLOAT16 - 2**12}} + 0 in [0,0]
  /\ {{HALF_BFLOAT16 - 2**15}} + 0 in [0,0] /\ {{NEAR % 2**16 + MASK % 2**16}} + 0 in [0,0] }
#? SIDE=below d - 1b28 -> sum - {{NEAR + 2**28}};
#? SIDE=above d - 1b28 -> rest + {{2**28 - NEAR}};
#? SIDE=below d + e - 1b28 -> (sum - {{NEAR + 2**28}}) + e;
#? SIDE=above d + e - 1b28 -> (rest + {{2**28 - NEAR}}) + e;
