# cos in double (direct_double and direct_values in table/direct.h, direct_row in rope/factors.h), with the factor `scale`.
#
# Cos is the cosine of the rounded angle x; Cosine is that of the exact angle X.  For x = X (1 + d), the mean value theorem
# gives |Cos - Cosine| <= |X d| sin y for a y between x and X, so the relative error is below |d| X tan y <= 0.786 |d|.
#! from direct_double_polynomials.sollya: COS_POLYNOMIAL
#! from direct_double_phase.g: PHASE_DOUBLE X_MOST
#! let COS_DOUBLE = 5.4 * u
#! let COS_ANGLE = 0.786 * PHASE_DOUBLE
#! bound COS_DOUBLE: direct_double, cos times scale
#! variants FUSED=0,1
#! mutation table/direct.h: const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, x); => const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, turn);
#! mutation table/direct.h: q->high = f64_mul(q->high, scale); => q->high = f64_mul(f64_mul(q->high, scale), f64_set(0x1.000000001p0));
#! mutation rope/factors.h: f64_store(to, f64_mul(c, scale)); => f64_store(to, f64_mul(f64_mul(c, c), scale));
@rnd = float<53,ne>;
#! code table/direct.h rounded
#|    const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, x);
#|    vf64 s = f64_set(SIN_TAIL[1]), c = f64_set(COS_TAIL[0]);
#|    s = f64_muladd(s, z, f64_set(SIN_TAIL[0]));
#|    for (int k = SIN_LEADING - 1; k > 0; k--) s = f64_muladd(s, z, f64_set(SIN_COEFFICIENTS[k][0]));
#|    for (int k = COS_LEADING - 1; k >= 0; k--) c = f64_muladd(c, z, f64_set(COS_COEFFICIENTS[k][0]));
#|    s = f64_muladd(f64_mul(s, z), x, x);
z_e = x * x;
#! again exact x:=x z:=z_e
#! code table/direct.h rounded q_high=c
#|        q->high = f64_mul(q->high, scale);
#! code rope/factors.h rounded
#|        direct_double(&spec, &position, 2 * pair, PAIRS, &s, &c);
#|        f64_store(to, f64_mul(c, scale));
#|        f64_store(to + FACTOR_PAIRS, f64_mul(s, scale));
{ |x| in [0,{{X_MOST}}] /\ scale <> 0 /\ Cosine <> 0 /\ |c_e -/ Cos| <= {{COS_POLYNOMIAL}}
  /\ |Cos -/ Cosine| <= {{COS_ANGLE}}
  -> |q_high -/ (Cosine * scale)| <= {{COS_DOUBLE}} /\ |to -/ (Cosine * scale)| <= {{COS_DOUBLE}} }
$ x in 8;
