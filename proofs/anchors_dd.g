# Anchors in double-double (anchor_of in table/advance.h, dd_product_sum in doubledouble.h).
#
# As in rows_double.g, one term of the sum is bounded at a time, and the other terms are set to zero.  The
# exact term is scaled to 1; the computed factors are a = 1 + ea and b = 1 + eb, where ea and eb are their
# errors.
#
# fast_two_sum(s, rest) is exact if |s| >= |rest|.  If terms cancel, |s| may be smaller.  The lower number
# then has an error, `inexact`.  Let s' = (s + rest) (1 + e1), and let e2 and e3 be the rounding errors of s'
# - s and of rest - (s' - s).  Then |inexact| <= |e2 (rest + e1 (s + rest)) (1 + e3)| + |e1 e3 (s + rest)| <=
# u (1 + 5 u) |rest|. |rest| is at most REST times the sum of the magnitudes of the terms.
#! from direct_dd.g: DIRECT_DD
#! bound ANCHORS_DD = 2**-99.43: anchors in double-double, of the terms
#! let REST = 6.01 * u
#@ -Eprecision=200
a_high = 1 + ea - a_low;
b_high = 1 + eb - b_low;
#! code factors zero=ZERO
#= vdd a = {a_high, a_low}, b = {b_high, b_low}, none = {zero, zero};
#= x = dd_product_sum(a, b, none, none);
#= y = dd_product_sum(none, none, a, b);
cross = a_high * b_low + a_low * b_high;
ab = a_high * b_high + cross;
{ |ea| <= {{DIRECT_DD}} /\ |eb| <= {{DIRECT_DD}} /\ |a_low| <= {{1.0001*u}} /\ |b_low| <= {{1.0001*u}} /\ {{hypotheses}}
  /\ |inexact| <= {{1.0001 * u * REST}}
  -> |x_high + x_low - 1 + inexact| <= {{ANCHORS_DD}} /\ |y_high + y_low - 1 + inexact| <= {{ANCHORS_DD}}
  /\ |x_low + inexact| <= {{1.0001*u}} /\ |y_low + inexact| <= {{1.0001*u}} /\ |x_rest| <= {{REST}} /\ |y_rest| <= {{REST}} }
(x_high + x_low) - 1 -> (x_rest - (x_s_low + (x_p_low + cross))) + (ab - 1);
(y_high + y_low) - 1 -> (y_rest - (y_s_low + (y_q_low + cross))) + (ab - 1);
ab - 1 -> ea + eb + ea * eb - a_low * b_low;
