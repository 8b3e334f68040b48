# direct_series for sin in direct_dd (table/direct.h): the terms in double-double, one step for each K.
#
# A step computes C + z r from the result r of the previous step.  r has the relative error RHO[K + 1] from
# the exact R, and z has the error of a product.  R is between 0.69 and 1 times the coefficient of the
# previous step, because z r reduces C by less than 31 % in each step.  The condition of fast_two_sum, |C| >=
# |z r|, is proved, too.  LOW bounds the lower number of r.
#! from dd_product.g: DD_PRODUCT
#! from direct_dd_polynomials.sollya: X_MOST_DD
#! let Z_MOST = X_MOST_DD * X_MOST_DD
#! from series_dd_tail.g: SIN_TAIL_DD
#! let LEADING = SIN_COEFFICIENTS + [[SIN_TAIL[0]]]
#! let SIN_SERIES = 2**-102.5
#! let RHO = [SIN_SERIES, 2**-101.0, 2**-96.5, 2**-90.5, 2**-84.0, 2**-77.0, 2**-69.5, 2**-61.5] + [SIN_TAIL_DD]
#! let LOW = 5 * u
#! bound SIN_SERIES: direct_dd, series of sin
#! variants K=0..SIN_LEADING-1
#@ -Eprecision=200
@rnd = float<53,ne>;
#! code rounded leading=SIN_COEFFICIENTS k={{K}}
#= vdd z = {z_high, z_low}, r = {i_high, i_low};
#: direct_series loop:r
z = z_high + z_low;
i = i_high + i_low;
cross = z_high * i_low + z_low * i_high;
C = {{LEADING[K][0]}} + {{LEADING[K][1]}};
exact = C + Z * R;
sum = r_high + r_low;
{ z_high in [0,{{(1 + 2*u) * Z_MOST}}] /\ |z_low| <= {{u * Z_MOST}} /\ Z in [0,{{Z_MOST}}] /\ |z -/ Z| <= {{DD_PRODUCT}}
  /\ |i -/ R| <= {{RHO[K+1]}} /\ |i_low| <= {{LOW*abs(LEADING[K+1][0])}}
  /\ R / {{LEADING[K+1][0]}} in [0.69,1.000001]
  -> |sum -/ exact| <= {{RHO[K]}} /\ |r_low| <= {{LOW*abs(LEADING[K][0])}}
  /\ exact / {{LEADING[K][0]}} in [0.69,1.000001]
  /\ |r_p_high| <= {{abs(LEADING[K][0])}} }
sum - (C + z * i) -> (r_low - (r_s_low_0 + ({{LEADING[K][1]}} + (r_p_low_0 + cross)))) - z_low * i_low;
sum - exact -> (sum - (C + z * i)) + (z * i - Z * R);
