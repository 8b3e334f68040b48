# Rows advanced from an anchor, in double (anchor_of and advance in table/advance.h).
#
# All operations are products and sums, and each rounding multiplies by a factor 1 + e, |e| <= u.  Therefore,
# a value is the sum of the four terms below, each multiplied by the factors of the operations that are
# applied to it.  Gappa bounds the relative error of one term at a time, with the other terms set to zero.  By
# the triangle inequality, the error of the value is at most this bound times the sum of the magnitudes of the
# terms.  This sum is at most M, because |cos| <= 1 and |sin'| <= reach.
#! from direct_double.g: SIN_DOUBLE COS_DOUBLE
#! from direct_dd.g: TABLE_HIGH
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! bound ROWS_DOUBLE = 11.81 * u: rows in double, of M
#! code factors SUFFIX=_1 o_p=p0 o_q=ZERO high=c high_TILE=ZERO o_p_low=ZERO o_q_low=ZERO low=ZERO low_TILE=ZERO fine=cc fine_TILE=ZERO
#: anchor_of c p0 a_p a_q
#= p = a->p; q = a->q;
#: advance
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
