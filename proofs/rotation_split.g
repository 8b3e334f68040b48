# Rotation of float16 and bfloat16 in double, with factors that are sums of two floats (settle_bunch and settle_half in
# rope/uncertain_pairs.h), relative to |a c| + |b s|.
#
# c_low is c - c_upper, which is at most SMALL |c| (rotation_float.g), rounded to 24 bits.  The rest is as in rotation_double.g;
# SPLIT_FLOOR covers floats that underflow.
#! from direct_double_sin.g: SIN_DOUBLE
#! from direct_double_cos.g: COS_DOUBLE
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! from rotation_float.g: SMALL
#! let ROTATION_SPLIT = 2**-37 + 4.001 * u
#! let ROTATION_SPLIT_DIRECT = 2**-37 + 8.801 * u
#! bound ROTATION_SPLIT: rotation in double, split factors, correctly rounded
#! bound ROTATION_SPLIT_DIRECT: rotation in double, split factors, evaluated directly
#! variants FACTORS=rounded,direct
#! mutation rope/uncertain_pairs.h: c[i] = (double)at[0] + at[BLOCK_PAIRS]; => c[i] = (double)at[0] - at[BLOCK_PAIRS];
#! mutation rope/factors.h: ((uint64_t)1 << 39)) & ~(((uint64_t)1 << 40) - 1)); => ((uint64_t)1 << 40)) & ~(((uint64_t)1 << 41) - 1));
#@ -Eprecision=200
#! quote rope/uncertain_pairs.h
#|            const float *const at = split + factor_index(i, 4 * BLOCK_PAIRS);
#! code rope/uncertain_pairs.h factors SUFFIX=_1 at=c_upper at_BLOCK_PAIRS=c_low at_2_BLOCK_PAIRS=ZERO at_3_BLOCK_PAIRS=ZERO first=a second=b
#|            c[i] = (double)at[0] + at[BLOCK_PAIRS];
#|            s[i] = (double)at[2 * BLOCK_PAIRS] + at[3 * BLOCK_PAIRS];
#= {}
#|        const double p = first[i] * c[i], q = second[i] * s[i];
#|        value[i] = p + q;
#! again factors SUFFIX=_2 at=ZERO at_BLOCK_PAIRS=ZERO at_2_BLOCK_PAIRS=s_upper at_3_BLOCK_PAIRS=s_low first=a second=b
{ {{hypotheses}} /\ |c_upper + c_low -/ c| <= {{SMALL * 2**-24}} /\ |s_upper + s_low -/ s| <= {{SMALL * 2**-24}}
#? FACTORS=rounded /\ |c -/ C| <= {{u}} /\ |s -/ S| <= {{u}}
#? FACTORS=rounded -> |value_1 -/ (a * C)| <= {{ROTATION_SPLIT}} /\ |value_2 -/ (b * S)| <= {{ROTATION_SPLIT}} }
#? FACTORS=direct /\ |c -/ C| <= {{DIRECT}} /\ |s -/ S| <= {{DIRECT}}
#? FACTORS=direct -> |value_1 -/ (a * C)| <= {{ROTATION_SPLIT_DIRECT}} /\ |value_2 -/ (b * S)| <= {{ROTATION_SPLIT_DIRECT}} }
