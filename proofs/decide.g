# Values that are evaluated again in double-double (table/decide_rounding.h): small_sine, and the combination in decided_value.
#
# X is the exact angle, times 2**(32 skip); Z6 is the square of the angle, divided by 6.  x is computed with the relative error
# a (direct_dd.g; the absolute error of the phase is DIRECT_DD_FLOOR).  sin X = X (1 - Z6 + q), where q is the rest of the
# series.  The term of third order has six roundings (e), and subtracting it from x.low one (r): |x.low| <= 3.1 u |x|.
#
# A combination adds two terms, a and b, with |low| <= u |high|; they are scaled so that |a| + |b| <= 1.  two_sum is exact.
#! from direct_dd.g: ANGLE_DD
#! from dd_product.g: DD_TIMES_DOUBLE DD_PRODUCT_LOW
#! constant DD_ERROR table/direct.h: #define DD_ERROR {}
#! constant COMBINATION_ERROR table/decide_rounding.h: #define COMBINATION_ERROR {}
#! constant SIXTH table/decide_rounding.h: #define SIXTH {}
#! bound DD_ERROR: values evaluated again, of the value
#! bound COMBINATION_ERROR: combination of cosine and sine, of its terms
#@ -Eprecision=300
third = {{SIXTH}} * 6 - 1;
computed = (1 + a) * (1 - Z6 * (1 + a) * (1 + a) * (1 + third) * (1 + e) + r);
sine = 1 - Z6 + q;
low = (sum_low + (a_low + b_low) * (1 + e1)) * (1 + e2);
combination = t * (term_a + term_b) + (low - (sum_low + a_low + b_low)) + low * e3;
{ |a| <= {{ANGLE_DD}} /\ Z6 in [0,1b-66] /\ |e| <= {{6.01*u}} /\ |r| <= {{3.1*u*u}} /\ |q| <= 1b-130
  /\ |t| <= {{DD_TIMES_DOUBLE}} /\ |d| <= {{4*u*u}}
  /\ term_a in [0,1] /\ term_b in [0,1] /\ |sum_low| <= {{u}} /\ |a_low| <= {{u}} /\ |b_low| <= {{u}}
  /\ |e1| <= {{u}} /\ |e2| <= {{u}} /\ |e3| <= {{u}}
  -> |computed - sine| <= 1b-101 /\ |d + (computed - sine) * 1.001 + t| <= {{DD_ERROR}} /\ |combination| <= {{COMBINATION_ERROR}} }
computed - sine -> a * (1 - Z6 * (1 + a) * (1 + a) * (1 + third) * (1 + e) + r) - Z6 * ((1 + a) * (1 + a) * (1 + third) * (1 + e) - 1) + r - q;
(1 + a) * (1 + a) * (1 + third) * (1 + e) - 1 -> (2 * a + a * a) * (1 + third) * (1 + e) + third * (1 + e) + e;
low - (sum_low + a_low + b_low) -> (a_low + b_low) * e1 + (sum_low + (a_low + b_low) * (1 + e1)) * e2;
