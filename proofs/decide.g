# Values that are evaluated again in double-double (decided_value in table/decide_rounding.h).
#
# Two terms, a and b, are added, with |low| <= u |high|; they are scaled so that |a| + |b| <= 1.  two_sum is
# exact.
#! from direct_dd.g: DIRECT_DD
#! from dd_product.g: DD_TIMES_DOUBLE
#! bound DD_ERROR: values evaluated again, of the value
#! bound COMBINATION_ERROR: combination of cosine and sine, of its terms
#@ -Eprecision=300
low = (sum_low + (a_low + b_low) * (1 + e1)) * (1 + e2);
combination = t * (term_a + term_b) + (low - (sum_low + a_low + b_low)) + low * e3;
{ |d| <= {{DIRECT_DD}} /\ |t| <= {{DD_TIMES_DOUBLE}}
  /\ term_a in [0,1] /\ term_b in [0,1] /\ |sum_low| <= {{u}} /\ |a_low| <= {{u}} /\ |b_low| <= {{u}}
  /\ |e1| <= {{u}} /\ |e2| <= {{u}} /\ |e3| <= {{u}}
  -> |d * 1.001 + 4 * {{u*u}}| <= {{DD_ERROR}} /\ |combination| <= {{COMBINATION_ERROR}} }
low - (sum_low + a_low + b_low) -> (a_low + b_low) * e1 + (sum_low + (a_low + b_low) * (1 + e1)) * e2;
