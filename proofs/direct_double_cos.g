# cos in double (direct_double and direct_values in table/direct.h), with the factor `scale`.
#
# Cos is the cosine of the rounded angle x, Cosine that of the exact angle X.  For x = X (1 + d), the mean value theorem gives
# |Cos - Cosine| <= |X d| sin y for a y between x and X, so the relative error is below |d| X tan y <= 0.786 |d|.
#! from direct_double_polynomials.sollya: COS_POLYNOMIAL
#! from direct_double_phase.g: PHASE_DOUBLE
#! let COS_DOUBLE = 5.4 * u
#! let COS_ANGLE = 0.786 * PHASE_DOUBLE
#! bound COS_DOUBLE: direct_double, cos times scale
#! variants FUSED=0,1
#! mutation table/direct.h: const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, x); => const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, turn);
#! mutation table/direct.h: c = f64_muladd(c, z, f64_set(COS_COEFFICIENTS[k][0])); => c = f64_mulsub(c, z, f64_set(COS_COEFFICIENTS[k][0]));
@rnd = float<53,ne>;
x = rnd(angle);
z rnd= x * x;
z_e = x * x;
#! quote table/direct.h
#|    const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, x);
#! code table/direct.h rounded
#|    vf64 s = f64_set(SIN_TAIL[1]), c = f64_set(COS_TAIL[0]);
#|    s = f64_muladd(s, z, f64_set(SIN_TAIL[0]));
#|    for (int k = SIN_LEADING - 1; k > 0; k--) s = f64_muladd(s, z, f64_set(SIN_COEFFICIENTS[k][0]));
#|    for (int k = COS_LEADING - 1; k >= 0; k--) c = f64_muladd(c, z, f64_set(COS_COEFFICIENTS[k][0]));
#|    s = f64_muladd(f64_mul(s, z), x, x);
#! again exact z=z_e
#! code table/direct.h rounded p_high=s q_high=c zero=ZERO
#|        p->high = f64_muladd(p->high, scale, zero);
#|        q->high = f64_mul(q->high, scale);
{ |x| in [0,0x1.921fb54442d19p-1] /\ scale <> 0 /\ Cosine <> 0 /\ |c_e -/ Cos| <= {{COS_POLYNOMIAL}}
  /\ |Cos -/ Cosine| <= {{COS_ANGLE}}
  -> |q_high -/ (Cosine * scale)| <= {{COS_DOUBLE}} }
$ x in 8;
