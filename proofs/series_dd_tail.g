# direct_series in direct_dd (table/direct.h): the terms in double.
#
# These terms use only the upper number of z, whose relative error from the exact square Z is at most Z_HIGH.
#! from direct_dd_polynomials.sollya: X_MOST_DD
#! let Z_HIGH = 1.001 * u
#! bound SIN_TAIL_DD = 1.1 * u: direct_dd, terms of sin in double
#! bound COS_TAIL_DD = 1.1 * u: direct_dd, terms of cos in double
@rnd = float<53,ne>;
#! code rounded tail=SIN_TAIL SUFFIX=_s
#= vdd z = {z_high, z_low};
#: direct_series t
#! again exact tail=SIN_TAIL z_high=Z z_low=ZERO SUFFIX=_se
#! again rounded tail=COS_TAIL SUFFIX=_c
#! again exact tail=COS_TAIL z_high=Z z_low=ZERO SUFFIX=_ce
{ z_high in [0,{{(1 + 2*u) * X_MOST_DD * X_MOST_DD}}] /\ |z_high -/ Z| <= {{Z_HIGH}} -> |t_s -/ t_se| <= {{SIN_TAIL_DD}} /\ |t_c -/ t_ce| <= {{COS_TAIL_DD}}
  /\ t_se / {{SIN_TAIL[0]}} in [0.69,1] /\ t_ce / {{COS_TAIL[0]}} in [0.69,1] }
