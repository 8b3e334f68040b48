# Rotation in float (rotate_in_float in rope/pairs.h), for bfloat16: |error| <= 2**-23 (1 + 2**-25) |x| + ROTATION_FLOAT A.
#
# A is scaled to 1.  a and b have 8 bits.  c = c_upper + c_lower, where c_upper has 16 bits, so the products of the upper floats
# are exact, and |c_lower| <= 2**-16 |c|.  x is the exact result for the doubles c and s; d is the part of c_lower and s_lower in
# it, |d| <= 2**-16 A (Cauchy and Schwarz).  e1 and e2 are the roundings of the upper sum and of the last sum;
# e2 is not in LOWER.
#! constant CUT rope/factors.h: + ((uint64_t)1 << {_})) & ~(((uint64_t)1 << {}) - 1));
#! constant CUT_HALF rope/factors.h: + ((uint64_t)1 << {})) & ~(((uint64_t)1 << {_}) - 1));
#! let UPPER_BITS = 53 - CUT
#! let SMALL = 2**-(52 - CUT_HALF)
#! let LOWER = 3.0001 * 2**-24
#! let ROTATION_FLOAT = 2**-37.999
#! bound LOWER: rotation in float, products with the lower floats
#! bound ROTATION_FLOAT: rotation in float, of A
#! from rotation_double.g: ROTATION_DIRECT
#! variants FUSED=0,1
#! mutation rope/factors.h: ((uint64_t)1 << 36)) & ~(((uint64_t)1 << 37) - 1)); => ((uint64_t)1 << 37)) & ~(((uint64_t)1 << 38) - 1));
#! mutation rope/factors.h: ((uint64_t)1 << 36)) & ~(((uint64_t)1 << 37) - 1)); => ((uint64_t)1 << 35)) & ~(((uint64_t)1 << 36) - 1));
#! mutation rope/pairs.h: v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c_low, f32_mul(b, s_low))); => v->a[g] = f32_add(f32_mulsub(a, c, f32_mul(b, s)), f32_mulsub(a, c, f32_mul(b, s_low)));
#@ -Eprecision=200
@rnd = float<24,ne>;
#! quote rope/factors.h
#|            const double c = unit * table[2 * i], s = sign * table[2 * i + 1], c_upper = upper_bits(c), s_upper = upper_bits(s);
#|            split[i] = (float)c_upper;
#|            split[BUNCH + i] = (float)(c - c_upper);
#|            split[2 * BUNCH + i] = (float)s_upper;
#|            split[3 * BUNCH + i] = (float)(s - s_upper);
#! quote rope/pairs.h
#|        const vf32 c = f32_load(at), c_low = f32_load(at + BUNCH), s = f32_load(at + 2 * BUNCH),
#|                   s_low = f32_load(at + 3 * BUNCH);
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
{ @FLT(a,8) /\ @FLT(b,8) /\ @FLT(c,{{UPPER_BITS}}) /\ @FLT(s,{{UPPER_BITS}}) /\ {{hypotheses}}
  /\ |c_low -/ CL| <= 1b-24 /\ |s_low -/ SL| <= 1b-24 /\ |last| <= 1b-24
  /\ |x| <= 1 /\ |d| <= {{SMALL}} /\ |e1| <= 1b-24 /\ |e2| <= 1b-24 /\ |lower - d| <= {{LOWER * SMALL}}
  -> ac - a * c in [0,0] /\ bs - b * s in [0,0] /\ bc - b * c in [0,0] /\ as - a * s in [0,0]
#? FUSED=0 /\ |v_a_u -/ (ac - bs)| <= 1b-24 /\ |v_b_u -/ (bc + as)| <= 1b-24
#? FUSED=1 /\ |v_a_u -/ (a * c - bs)| <= 1b-24 /\ |v_b_u -/ (b * c + as)| <= 1b-24
  /\ |v_a_c -/ (a * CL)| <= {{LOWER + 2**-24}} /\ |v_b_c -/ (b * CL)| <= {{LOWER + 2**-24}}
  /\ |v_a_s -/ -(b * SL)| <= {{LOWER + 2**-24}} /\ |v_b_s -/ (a * SL)| <= {{LOWER + 2**-24}}
  /\ |result - x * ((1 + e1) * (1 + e2))| <= {{ROTATION_FLOAT}} }
result - x * ((1 + e1) * (1 + e2)) -> ((lower - d) - d * e1) * (1 + e2);
