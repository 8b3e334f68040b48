# The series of the exact evaluation (horner and series in exact/exact.c), in fixed point with 288 bits below the binary point.
#
# U is the exact square of the angle, and u is U truncated to its limbs.  The division limb by limb and the truncation of the
# product round down.
#! let SERIES_ERROR = 2.02 * 2**-288
#! bound SERIES_ERROR: exact evaluation, series
#! constant TERMS exact/exact.c: SERIES = {},
#! constant LIMBS exact/real.h: LIMBS = {},
#! variants FUNCTION=sin,cos
#! functions horner:e63834a9 series:03292a44 multiply:f2f76ae5
#! mutation exact/real.h: LIMBS = 10, => LIMBS = 9,
#! refused exact/exact.c: (2 * k - 1) * (2 * k) : 2 * k * (2 * k + 1) => (2 * k - 1) * (2 * k) : 2 * k * (2 * k - 1)
#@ -Eprecision=400
#! quote exact/exact.c
#|    multiply(u, LIMBS, s, LIMBS, product);
#|    for (int i = LIMBS - 1; i >= 0; i--) {
#|        rest = rest << 32 | product[i + LIMBS - 1];
#|        s[i] = (uint32_t)(rest / divisor);
#|        rest %= divisor;
#|    }
#! quote exact/exact.c
#|    const int right = -2 * angle->exponent + 32 * (LIMBS + 1), limbs = right / 32, bits = right % 32;
#! quote exact/exact.c
#|    for (uint32_t k = SERIES; k > 0; k--) horner(s, u, cosine ? (2 * k - 1) * (2 * k) : 2 * k * (2 * k + 1));
@cut = fixed<{{-32*(LIMBS-1)}},dn>;
u = cut(U);
s_{{TERMS}} = 1;
S_{{TERMS}} = 1;
#! repeat K=TERMS..1 #? FUNCTION=sin s_{{K-1}} = 1 - cut(cut(u * s_{{K}}) / {{2*K*(2*K+1)}});
#! repeat K=TERMS..1 #? FUNCTION=sin S_{{K-1}} = 1 - (U * S_{{K}}) / {{2*K*(2*K+1)}};
#! repeat K=TERMS..1 #? FUNCTION=cos s_{{K-1}} = 1 - cut(cut(u * s_{{K}}) / {{(2*K-1)*(2*K)}});
#! repeat K=TERMS..1 #? FUNCTION=cos S_{{K-1}} = 1 - (U * S_{{K}}) / {{(2*K-1)*(2*K)}};
{ U in [0,0.61686] -> |s_0 - S_0| <= {{SERIES_ERROR}} }
