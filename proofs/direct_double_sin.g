# sin in double (direct_double and direct_values in table/direct.h), with the factor `scale`.
#
# Sin is the sine of the rounded angle x, Sine that of the exact angle X.  The sine is concave on [0, pi]: for x = X (1 + d),
# |d| < 1/2, Sin / Sine is between 1 and 1 + d, so its relative error is at most that of x.
#! from direct_double_polynomials.sollya: SIN_POLYNOMIAL
#! from direct_double_phase.g: PHASE_DOUBLE
#! let SIN_DOUBLE = 5.8 * u
#! bound SIN_DOUBLE: direct_double, sin times scale
#! variants FUSED=0,1
#! mutation table/direct.h: s = f64_muladd(f64_mul(s, z), x, x); => s = f64_muladd(f64_mul(s, x), z, x);
#! mutation table/direct.h: s = f64_muladd(f64_mul(s, z), x, x); => s = f64_mul(f64_muladd(s, z, f64_set(1)), x);
#! mutation table/direct.h: const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, x); => const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, turn);
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
{ |x| in [1b-97,0x1.921fb54442d19p-1] /\ scale <> 0 /\ Sine <> 0 /\ |s_e -/ Sin| <= {{SIN_POLYNOMIAL}}
  /\ |Sin -/ Sine| <= {{PHASE_DOUBLE}}
  -> |p_high -/ (Sine * scale)| <= {{SIN_DOUBLE}} }
rnd(s_7 * z) * x + x -> (1 + rnd(s_7 * z)) * x;
(s_e_7 * z_e) * x + x -> (1 + s_e_7 * z_e) * x;
