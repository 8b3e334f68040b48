# Rotation in float (rotate_in_float in rope/pairs.h), for float16 and bfloat16:
# |error| <= 2**-23 (1 + 2**-25) |x| + ROTATION_FLOAT A.
#
# A is scaled to 1.  a and b have 11 bits (bfloat16: 8).  c = c_upper + c_lower, where c_upper has 13 bits, so products with the
# upper floats are exact.  |c_lower| <= SMALL |c|, because upper_bits adds 2**CUT_HALF to the bits of a double and cuts off the
# last CUT bits.  x is the exact result for the doubles c and s; d is the part of x that comes from c_lower and s_lower.  By the
# inequality of Cauchy and Schwarz, |d| <= SMALL A.  e1 is the rounding error of the sum of the upper products, and e2 that of
# the last sum.
#
# The products with the lower floats are bounded one at a time, as in rows_double.g, with the rounded terms r_c ... and r_s ...
# The last rounding is that of the last sum (e2); LOWER bounds the error of a term before this rounding.
#! constant CUT rope/factors.h: f64_of_bits(u64_and(rounded, u64_set(~(((uint64_t)1 << {}) - 1))));
#! constant CUT_HALF rope/factors.h: const vu64 rounded = u64_add(bits_of_f64(x), u64_set((uint64_t)1 << {}));
#! let UPPER_BITS = 53 - CUT
#! let SMALL = max(2**CUT_HALF, 2**CUT - 2**CUT_HALF) * 2**-52
#! export SMALL
#! let LOWER = 3.0001 * 2**-24
#! let ROTATION_FLOAT = 2**-34.999
#! bound LOWER: rotation in float, products with the lower floats
#! bound ROTATION_FLOAT: rotation in float, of A
#! variants FUSED=0,1
#! mutation rope/factors.h: u64_set(~(((uint64_t)1 << 40) - 1)) => u64_set(~(((uint64_t)1 << 41) - 1))
#! mutation rope/factors.h: u64_set(~(((uint64_t)1 << 40) - 1)) => u64_set(~(((uint64_t)1 << 39) - 1))
#! mutation rope/factors.h: u64_set((uint64_t)1 << 39) => u64_set((uint64_t)1 << 38)
#! mutation rope/pairs.h: v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c_low, f32_mul(b, s_low))); => v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c, f32_mul(b, s_low)));
#@ -Eprecision=200
@rnd = float<24,ne>;
#! quote rope/factors.h
#|            const vf64 top[2] = {upper_bits(number[0]), upper_bits(number[1])};
#|            upper[g] = f32_of_f64(top[0], top[1]);
#|            lower[g] = f32_of_f64(f64_sub(number[0], top[0]), f64_sub(number[1], top[1]));
#! quote rope/factors.h
#|        for (int i = 0; i < FACTOR_PAIRS; i++) numbers[i] = (is_sine ? sign : unit) * row[i];
#! quote rope/pairs.h
#|        const float *const at = float_factors(factors, pair, g, dtype, interleaved);
#|        const vf32 c = f32_load(at), c_low = f32_load(at + FACTOR_PAIRS);
#|        const vf32 s = f32_load(at + 2 * FACTOR_PAIRS), s_low = f32_load(at + 3 * FACTOR_PAIRS);
#|        const vf32 a = v->a[g], b = v->b[g];
#! code rope/pairs.h rounded SUFFIX=_u a=a b=b c=c s=s c_low=ZERO s_low=ZERO
#|        v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c_low, f32_mul(b, s_low)));
#|        v->b[g] = f32_add(f32_muladd(b, c, f32_mul(a, s)), f32_muladd(b, c_low, f32_mul(a, s_low)));
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
