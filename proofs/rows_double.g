# Rows advanced from an anchor, in double (anchor_of and advance in table/advance.h).
#
# All operations are products and sums, and each rounding multiplies by a factor 1 + e, |e| <= u.  Therefore, a value is the sum
# of the four terms below, each multiplied by the factors of the operations that are applied to it.  Gappa bounds the relative
# error of one term at a time, with the other terms set to zero.  By the triangle inequality, the error of the value is at most
# this bound times the sum of the magnitudes of the terms.  This sum is at most M, because |cos| <= 1 and |sin'| <= reach.
#! from direct_double_sin.g: SIN_DOUBLE
#! from direct_double_cos.g: COS_DOUBLE
#! from direct_dd.g: TABLE_HIGH
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! let ROWS_DOUBLE = 11.81 * u
#! bound ROWS_DOUBLE: rows in double, of M
#! variants FUSED=0,1
#! mutation table/advance.h: *above = f64_muladd(p, cosine, y); => *above = f64_mulsub(p, cosine, y);
#! refused table/advance.h: f64_store(a->p + i, f64_muladd(p0.high, c.high, f64_mul(q0.high, s.high))); => f64_store(a->p + i, f64_add(f64_mul(p0.high, c.high), f64_mul(q0.high, s.high)));
#! mutation table/advance.h: f64_store(a->p + i, f64_muladd(p0.high, c.high, f64_mul(q0.high, s.high))); => f64_store(a->p + i, f64_mulsub(p0.high, c.high, f64_mul(q0.high, s.high)));
#! mutation table/advance.h: f64_store(a->q + i, f64_sub(f64_mul(q0.high, c.high), f64_mul(p0.high, s.high))); => f64_store(a->q + i, f64_sub(f64_mul(p0.high, c.high), f64_mul(q0.high, s.high)));
#! code table/advance.h factors SUFFIX=_1 o_p=p0 o_q=ZERO high=c high_TILE=ZERO o_p_low=ZERO o_q_low=ZERO low=ZERO low_TILE=ZERO fine=cc fine_TILE=ZERO
#|        const vdd c = dd_load(high + i, low + i), s = dd_load(high + TILE + i, low + TILE + i);
#|        const vdd p0 = dd_load(o->p + i, o->p_low + i), q0 = dd_load(o->q + i, o->q_low + i);
#=
#|            f64_store(a->p + i, f64_muladd(p0.high, c.high, f64_mul(q0.high, s.high)));
#|            f64_store(a->q + i, f64_sub(f64_mul(q0.high, c.high), f64_mul(p0.high, s.high)));
#= p = a->p; q = a->q;
#|    const vf64 cosine = f64_load(fine), y = f64_mul(q, f64_load(fine + TILE));
#|    *above = f64_muladd(p, cosine, y);
#|    *below = f64_mulsub(p, cosine, y);
#! again factors SUFFIX=_2 o_p=ZERO o_q=q0 high=ZERO high_TILE=s o_p_low=ZERO o_q_low=ZERO low=ZERO low_TILE=ZERO fine=cc fine_TILE=ZERO
#! again factors SUFFIX=_3 o_p=ZERO o_q=q0 high=c high_TILE=ZERO o_p_low=ZERO o_q_low=ZERO low=ZERO low_TILE=ZERO fine=ZERO fine_TILE=ss
#! again factors SUFFIX=_4 o_p=p0 o_q=ZERO high=ZERO high_TILE=s o_p_low=ZERO o_q_low=ZERO low=ZERO low_TILE=ZERO fine=ZERO fine_TILE=ss
PS = -(P0 * S);
{ |p0 -/ P0| <= {{DIRECT}} /\ |q0 -/ Q0| <= {{DIRECT}} /\ |c -/ C| <= {{TABLE_HIGH}} /\ |s -/ S| <= {{TABLE_HIGH}}
  /\ |cc -/ CC| <= {{TABLE_HIGH}} /\ |ss -/ SS| <= {{TABLE_HIGH}} /\ {{hypotheses}}
  -> |above_1 -/ (P0 * C * CC)| <= {{ROWS_DOUBLE}} /\ |below_1 -/ (P0 * C * CC)| <= {{ROWS_DOUBLE}}
  /\ |above_2 -/ (Q0 * S * CC)| <= {{ROWS_DOUBLE}} /\ |below_2 -/ (Q0 * S * CC)| <= {{ROWS_DOUBLE}}
  /\ |above_3 -/ (Q0 * C * SS)| <= {{ROWS_DOUBLE}} /\ |below_3 -/ -(Q0 * C * SS)| <= {{ROWS_DOUBLE}}
  /\ |above_4 -/ (PS * SS)| <= {{ROWS_DOUBLE}} /\ |below_4 -/ -(PS * SS)| <= {{ROWS_DOUBLE}} }
