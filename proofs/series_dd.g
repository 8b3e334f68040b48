# direct_series in direct_dd (table/direct.h): the terms in double-double, those of sin and then those of cos.
# Each K is a step.
#
# A step computes C + z r from the result r of the previous step.  r has the relative error PREVIOUS_RHO[K] from
# the exact R, and z has the error of a product.  R is between 0.69 and 1 times the coefficient of the previous
# step, because z r reduces C by less than 31 % in each step.  The condition of fast_two_sum, |C| >= |z r|, is
# proved, too.  LOW bounds the lower number of r.
#! from dd_product.g: DD_PRODUCT
#! from direct_dd_polynomials.sollya: X_MOST_DD
#! let Z_MOST = X_MOST_DD * X_MOST_DD
#! from series_dd_tail.g: SIN_TAIL_DD COS_TAIL_DD
#! bound SIN_SERIES = 2**-102.5: direct_dd, series of sin
#! bound COS_SERIES = 2**-101.5: direct_dd, series of cos
#! let SIN_RHO = [SIN_SERIES, 2**-101.0, 2**-96.5, 2**-90.5, 2**-84.0, 2**-77.0, 2**-69.5, 2**-61.5]
#! let COS_RHO = [COS_SERIES, 2**-103, 2**-102.0, 2**-97, 2**-91.5, 2**-84.5, 2**-77, 2**-69, 2**-61.5]
#! let RHO = SIN_RHO + COS_RHO
#! let PREVIOUS_RHO = SIN_RHO[1:] + [SIN_TAIL_DD] + COS_RHO[1:] + [COS_TAIL_DD]
#! let LEADING = SIN_COEFFICIENTS + COS_COEFFICIENTS
#! let PREVIOUS = SIN_COEFFICIENTS[1:] + [[SIN_TAIL[0]]] + COS_COEFFICIENTS[1:] + [[COS_TAIL[0]]]
#! let LOW = 5 * u
#! variants K=0..SIN_LEADING+COS_LEADING-1
#@ -Eprecision=200
@rnd = float<53,ne>;
#! code rounded leading=LEADING k={{K}}
#= vdd z = {z_high, z_low}, r = {i_high, i_low};
#: direct_series loop:r
z = z_high + z_low;
i = i_high + i_low;
cross = z_high * i_low + z_low * i_high;
C = {{LEADING[K][0]}} + {{LEADING[K][1]}};
exact = C + Z * R;
sum = r_high + r_low;
{ z_high in [0,{{(1 + 2*u) * Z_MOST}}] /\ |z_low| <= {{u * Z_MOST}} /\ Z in [0,{{Z_MOST}}] /\ |z -/ Z| <= {{DD_PRODUCT}}
  /\ |i -/ R| <= {{PREVIOUS_RHO[K]}} /\ |i_low| <= {{LOW*abs(PREVIOUS[K][0])}}
  /\ R / {{PREVIOUS[K][0]}} in [0.69,1.000001]
  -> |sum -/ exact| <= {{RHO[K]}} /\ |r_low| <= {{LOW*abs(LEADING[K][0])}}
  /\ exact / {{LEADING[K][0]}} in [0.69,1.000001]
  /\ |r_p_high| <= {{abs(LEADING[K][0])}} }
sum - (C + z * i) -> (r_low - (r_s_low_0 + ({{LEADING[K][1]}} + (r_p_low_0 + cross)))) - z_low * i_low;
sum - exact -> (sum - (C + z * i)) + (z * i - Z * R);
