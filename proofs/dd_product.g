# Products in double-double (doubledouble.h), relative to the product.
#
# All terms are linear in a and in b, so a and b are scaled to 1.  Each rounding multiplies by 1 + e, |e| <=
# u.  Both a and b are renormalised: |low| <= u |high|.
#! bound DD_PRODUCT = 8.001 * u * u: dd_product
#! bound DD_PRODUCT_LOW = 3.03 * u: dd_product, its lower number
#! bound DD_TIMES_DOUBLE = 3.001 * u * u: dd_times_double
#@ -Eprecision=200
a_high = 1 - a_low;
b_high = 1 - b_low;
#! code factors
#= vdd a = {a_high, a_low}, b = {b_high, b_low};
#= vdd x = dd_product(a, b);
#= vdd y = dd_times_double(a, 1);
cross = a_high * b_low + a_low * b_high;
y_sum = a_low * 1 + y_p_low_0;
{ |a_low| <= {{1.0001*u}} /\ |b_low| <= {{1.0001*u}} /\ {{hypotheses}}
  -> |x_high + x_low - 1| <= {{DD_PRODUCT}} /\ |x_low| <= {{DD_PRODUCT_LOW}}
  /\ |y_high + y_low - 1| <= {{DD_TIMES_DOUBLE}} }
x_high + x_low - 1 -> (x_p_low - (x_p_low_0 + cross)) - a_low * b_low;
y_high + y_low - 1 -> y_p_low - y_sum;
