# M, computed in double (origin_of in table/advance.h), with `reach` and `farthest` (tabulate in table/advance.h).
#
# All terms are positive, so the relative error of M is at most the largest relative error of a term.  The
# terms with |P0| are scaled so that their sum is 1 + reach; those with |Q0| are scaled so that their sum is
# S + reach = 1.  `reach` is the largest |sin'| of the fine rows plus a constant, rounded; `farthest`, or S, is the
# largest of all rows.
#! from direct_double.g: SIN_DOUBLE COS_DOUBLE
#! from direct_dd.g: TABLE_HIGH
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! bound MAGNITUDE = 11.81 * u: M, computed
#! code factors SUFFIX=_1 a_p=p a_q=ZERO job_offsets_reach=reach job_offsets_farthest=s POSITIVE=1
#: origin_of abs_p reach magnitude
#! again factors SUFFIX=_2 a_p=ZERO a_q=q job_offsets_reach=reach job_offsets_farthest=s POSITIVE=1
M1 = 1 * Reach + 1;
M2 = 1 * Reach + 1 * Sin;
{ |p -/ 1| <= {{DIRECT}} /\ |q -/ 1| <= {{DIRECT}} /\ Reach in [0,1.0001] /\ |reach -/ Reach| <= {{TABLE_HIGH + 1.0001*u}}
  /\ Sin in [0,1] /\ |s -/ Sin| <= {{TABLE_HIGH}} /\ M2 in [1,1] /\ {{hypotheses}}
  -> |magnitude_1 -/ M1| <= {{MAGNITUDE}} /\ |magnitude_2 -/ M2| <= {{MAGNITUDE}} }
$ Reach in 16;
$ Sin in 16;
