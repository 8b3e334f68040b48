# M, computed in double (origin_of and anchor_of in table/advance.h), with `reach` (tabulate in
# table/advance.h).
#
# All terms are positive, so the relative error of M is at most the largest relative error of a term.  The
# terms with |P0| are scaled so that their sum is 1 + reach; those with |Q0| are scaled so that their sum is
# |sin| + reach = 1.  `reach` is the largest |sin'| of the table plus a constant, rounded.
#! from direct_double.g: SIN_DOUBLE COS_DOUBLE
#! from direct_dd.g: TABLE_HIGH
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! bound MAGNITUDE = 11.81 * u: M, computed
#! code factors SUFFIX=_1 o_p=p o_q=ZERO q0_high=ZERO s_high=s job_offsets_reach=reach POSITIVE=1
#: origin_of abs_p o_fixed_magnitude
#: anchor_of magnitude
#! again factors SUFFIX=_2 o_p=ZERO o_q=q q0_high=q s_high=s job_offsets_reach=reach POSITIVE=1
M1 = 1 * Reach + 1;
M2 = 1 * Sin + 1 * Reach;
{ |p -/ 1| <= {{DIRECT}} /\ |q -/ 1| <= {{DIRECT}} /\ Reach in [0,1.0001] /\ |reach -/ Reach| <= {{TABLE_HIGH + 1.0001*u}}
  /\ Sin in [0,1] /\ |s -/ Sin| <= {{TABLE_HIGH}} /\ M2 in [1,1] /\ {{hypotheses}}
  -> |magnitude_1 -/ M1| <= {{MAGNITUDE}} /\ |magnitude_2 -/ M2| <= {{MAGNITUDE}} }
$ Reach in 16;
$ Sin in 16;
