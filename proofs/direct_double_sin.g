# sin in double (direct_double and direct_values in table/direct.h, direct_row in rope/factors.h), with the factor `scale`.
#
# Sin is the sine of the rounded angle x; Sine is that of the exact angle X.  The sine is concave on [0, pi], so Sin / Sine is
# between 1 and 1 + d for x = X (1 + d), |d| < 1/2.  The relative error of Sin is therefore at most that of x.
#! from direct_double_polynomials.sollya: SIN_POLYNOMIAL
#! from direct_double_phase.g: PHASE_DOUBLE X_MOST
#! let SIN_DOUBLE = 5.8 * u
#! bound SIN_DOUBLE: direct_double, sin times scale
#! variants FUSED=0,1
#! mutation table/direct.h: s = f64_muladd(f64_mul(s, z), x, x); => s = f64_muladd(f64_mul(s, x), z, x);
#! mutation table/direct.h: s = f64_muladd(f64_mul(s, z), x, x); => s = f64_mul(f64_muladd(s, z, f64_set(1)), x);
#! mutation table/direct.h: const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, x); => const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, turn);
#! mutation table/direct.h: s = f64_muladd(f64_mul(s, z), x, x); => s = f64_muladd(f64_mul(s, z), x, x); s = f64_mul(s, f64_set(0x1.00000000001p0));
#! mutation table/direct.h: scale = f64_set(spec->scale), zero = f64_set(0); => scale = f64_set(spec->scale), zero = f64_set(0x1p-60);
#! mutation table/direct.h: p->high = f64_muladd(p->high, scale, zero); => p->high = f64_muladd(f64_muladd(p->high, scale, zero), f64_set(3), zero);
#! mutation rope/factors.h: f64_store(to + FACTOR_PAIRS, f64_mul(s, scale)); => f64_store(to + FACTOR_PAIRS, f64_mul(f64_mul(s, s), scale));
#! refused table/direct.h: apply_symmetry(&t, s, c, sine, cosine); => apply_symmetry(&t, c, s, sine, cosine);
@rnd = float<53,ne>;
#! code table/direct.h rounded
#|INLINE void direct_double(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, vf64 *sine,
#|                          vf64 *cosine) {
#|    const phase_t phase = direct_phase(spec, position, column, lanes, 3, 0);
#|    const vf64 turn = f64_add(f64_add(phase.first, phase_limb(&phase, 1)), phase_limb(&phase, 2));
#|    const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, x);
#|    vf64 s = f64_set(SIN_TAIL[1]), c = f64_set(COS_TAIL[0]);
#|    s = f64_muladd(s, z, f64_set(SIN_TAIL[0]));
#|    for (int k = SIN_LEADING - 1; k > 0; k--) s = f64_muladd(s, z, f64_set(SIN_COEFFICIENTS[k][0]));
#|    for (int k = COS_LEADING - 1; k >= 0; k--) c = f64_muladd(c, z, f64_set(COS_COEFFICIENTS[k][0]));
#|    s = f64_muladd(f64_mul(s, z), x, x);
#|    const symmetry_t t = symmetry_of(spec, position, column, lanes, phase.quadrant);
#|    apply_symmetry(&t, s, c, sine, cosine);
#|}
z_e = x * x;
#! again exact x:=x z:=z_e
#! code table/direct.h rounded spec_scale=scale p_high=s q_high=c dtype=1 FLOAT64=0
#|INLINE void direct_values(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, dtype_t dtype,
#|                          vdd *p, vdd *q) {
#|    const vf64 scale = f64_set(spec->scale), zero = f64_set(0);
#|    if (dtype == FLOAT64) {
#|        direct_dd(spec, position, column, lanes, p, q);
#|        *p = dd_times_double(*p, scale);
#|        *q = dd_times_double(*q, scale);
#|        p->high = f64_add(p->high, zero);
#|    } else {
#|        p->low = q->low = zero;
#|        direct_double(spec, position, column, lanes, &p->high, &q->high);
#|        p->high = f64_muladd(p->high, scale, zero);
#|        q->high = f64_mul(q->high, scale);
#|    }
#|}
#! code rope/factors.h rounded
#|        direct_double(&spec, &position, 2 * pair, PAIRS, &s, &c);
#|        f64_store(to, f64_mul(c, scale));
#|        f64_store(to + FACTOR_PAIRS, f64_mul(s, scale));
{ |x| in [1b-97,{{X_MOST}}] /\ scale <> 0 /\ Sine <> 0 /\ |s_e -/ Sin| <= {{SIN_POLYNOMIAL}}
  /\ |Sin -/ Sine| <= {{PHASE_DOUBLE}}
  -> |p_high -/ (Sine * scale)| <= {{SIN_DOUBLE}} /\ |to_FACTOR_PAIRS -/ (Sine * scale)| <= {{SIN_DOUBLE}} }
rnd(s_7 * z) * x + x -> (1 + rnd(s_7 * z)) * x;
(s_e_7 * z_e) * x + x -> (1 + s_e_7 * z_e) * x;
