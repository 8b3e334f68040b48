# Rotation in double (rotate_in_double in rope/pairs.h, settle_half in rope/uncertain_pairs.h), relative to |a c| + |b s|.
#
# As in rows_double.g, each term is multiplied by the factors of the operations on its way.  a and b are exact.  c and s are
# correctly rounded, or evaluated directly, with absolute errors that DIRECT_ROTATION_FLOOR covers.
#! from direct_double_sin.g: SIN_DOUBLE
#! from direct_double_cos.g: COS_DOUBLE
#! let ROTATION = 3.001 * u
#! let ROTATION_DIRECT = 7.801 * u
#! bound ROTATION: rotation in double, correctly rounded factors
#! bound ROTATION_DIRECT: rotation in double, factors evaluated directly
#! variants FUSED=0,1 FACTORS=rounded,direct
#! mutation rope/pairs.h: x[i] = f64_mulsub(a[i], c, f64_mul(b[i], s)); => x[i] = f64_muladd(a[i], c, f64_mul(b[i], s));
#! mutation rope/uncertain_pairs.h: value[i] = p + q; => value[i] = p - q;
#! code rope/pairs.h factors SUFFIX=_1 a=a b=b factors=c factors_BUNCH=ZERO
#|            const vf64 c = f64_load(factors + (2 * g + i) * LANES), s = f64_load(factors + BUNCH + (2 * g + i) * LANES);
#|            x[i] = f64_mulsub(a[i], c, f64_mul(b[i], s));
#|            y[i] = f64_muladd(b[i], c, f64_mul(a[i], s));
#! again factors SUFFIX=_2 a=a b=b factors=ZERO factors_BUNCH=s
#! code rope/uncertain_pairs.h factors SUFFIX=_3 first=a second=b s=ZERO
#|        const double p = first[i] * c[i], q = second[i] * s[i];
#|        value[i] = p + q;
#! again factors SUFFIX=_4 first=a second=b c=ZERO
{ {{hypotheses}}
#? FACTORS=rounded /\ |c -/ C| <= {{u}} /\ |s -/ S| <= {{u}} -> |x_1 -/ (a * C)| <= {{ROTATION}} /\ |y_1 -/ (b * C)| <= {{ROTATION}}
#? FACTORS=rounded /\ |x_2 -/ -(b * S)| <= {{ROTATION}} /\ |y_2 -/ (a * S)| <= {{ROTATION}}
#? FACTORS=rounded /\ |value_3 -/ (a * C)| <= {{ROTATION}} /\ |value_4 -/ (b * S)| <= {{ROTATION}} }
#? FACTORS=direct /\ |c -/ C| <= {{COS_DOUBLE}} /\ |s -/ S| <= {{SIN_DOUBLE}}
#? FACTORS=direct -> |x_1 -/ (a * C)| <= {{ROTATION_DIRECT}} /\ |y_1 -/ (b * C)| <= {{ROTATION_DIRECT}}
#? FACTORS=direct /\ |x_2 -/ -(b * S)| <= {{ROTATION_DIRECT}} /\ |y_2 -/ (a * S)| <= {{ROTATION_DIRECT}}
#? FACTORS=direct /\ |value_3 -/ (a * C)| <= {{ROTATION_DIRECT}} /\ |value_4 -/ (b * S)| <= {{ROTATION_DIRECT}} }
