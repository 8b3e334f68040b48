# Rotation of float16 and bfloat16 in double, with factors that are sums of two floats (round_pairs in
# rope/pairs.h), relative to |a c| + |b s|.
#
# c_low is c - c_upper, rounded to 24 bits, where |c - c_upper| <= SMALL |c| (rotation_float.g).  SPLIT_FLOOR covers floats that
# underflow.  All other steps are as in rotation_double.g.
#! from direct_double_sin.g: SIN_DOUBLE
#! from direct_double_cos.g: COS_DOUBLE
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! from rotation_float.g: SMALL
#! let ROTATION_SPLIT = 2**-37 + 4.001 * u
#! let ROTATION_SPLIT_DIRECT = 2**-37 + 8.801 * u
#! bound ROTATION_SPLIT: rotation in double, split factors, correctly rounded
#! bound ROTATION_SPLIT_DIRECT: rotation in double, split factors, evaluated directly
#! variants FACTORS=rounded,direct
#! mutation rope/pairs.h: f64_add(upper[i], lower[i]) => f64_sub(upper[i], lower[i])
#! mutation rope/factors.h: u64_set(~(((uint64_t)1 << 40) - 1)) => u64_set(~(((uint64_t)1 << 41) - 1))
#@ -Eprecision=200
#! code rope/pairs.h factors SUFFIX=_c upper=c_upper lower=c_low
#|    for (int i = 0; i < 2; i++) f64_store(to + i * LANES, f64_add(upper[i], lower[i]));
#! again factors SUFFIX=_s upper=s_upper lower=s_low
#! quote rope/pairs.h
#|        store_sums(v->c + i, f32_load(at), f32_load(at + FACTOR_PAIRS));
#|        store_sums(v->s + i, f32_load(at + 2 * FACTOR_PAIRS), f32_load(at + 3 * FACTOR_PAIRS));
#! code rope/pairs.h factors SUFFIX=_1 c=to_c s=ZERO
#|        vf64 x = f64_sub(f64_mul(a, c), f64_mul(b, s)), y = f64_add(f64_mul(b, c), f64_mul(a, s));
#! again factors SUFFIX=_2 c=ZERO s=to_s
#! code rope/pairs.h factors SUFFIX=_3 factors=a c=to_c s=ZERO
#|        const double value = factors[0] * c + factors[1] * s;
#! again factors SUFFIX=_4 factors=b c=ZERO s=to_s
{ {{hypotheses}} /\ |c_upper + c_low -/ c| <= {{SMALL * 2**-24}} /\ |s_upper + s_low -/ s| <= {{SMALL * 2**-24}}
#? FACTORS=rounded /\ |c -/ C| <= {{u}} /\ |s -/ S| <= {{u}}
#? FACTORS=rounded -> |x_1 -/ (a * C)| <= {{ROTATION_SPLIT}} /\ |y_1 -/ (b * C)| <= {{ROTATION_SPLIT}}
#? FACTORS=rounded /\ |x_2 -/ -(b * S)| <= {{ROTATION_SPLIT}} /\ |y_2 -/ (a * S)| <= {{ROTATION_SPLIT}}
#? FACTORS=rounded /\ |value_3 -/ (a * C)| <= {{ROTATION_SPLIT}} /\ |value_4 -/ (b * S)| <= {{ROTATION_SPLIT}} }
#? FACTORS=direct /\ |c -/ C| <= {{DIRECT}} /\ |s -/ S| <= {{DIRECT}}
#? FACTORS=direct -> |x_1 -/ (a * C)| <= {{ROTATION_SPLIT_DIRECT}} /\ |y_1 -/ (b * C)| <= {{ROTATION_SPLIT_DIRECT}}
#? FACTORS=direct /\ |x_2 -/ -(b * S)| <= {{ROTATION_SPLIT_DIRECT}} /\ |y_2 -/ (a * S)| <= {{ROTATION_SPLIT_DIRECT}}
#? FACTORS=direct /\ |value_3 -/ (a * C)| <= {{ROTATION_SPLIT_DIRECT}} /\ |value_4 -/ (b * S)| <= {{ROTATION_SPLIT_DIRECT}} }
