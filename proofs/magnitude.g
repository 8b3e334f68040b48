# M, computed in double (origin_of and anchor_of in table/advance.h), with `reach` (tabulate in table/advance.h).
#
# All terms are positive, so the relative error of M is at most the largest relative error of a term.  The terms with |P0| are
# scaled so that their sum is 1 + reach; those with |Q0| are scaled so that their sum is |sin| + reach = 1.  `reach` is the
# largest |sin'| of the table plus a constant, rounded.
#! from direct_double_sin.g: SIN_DOUBLE
#! from direct_double_cos.g: COS_DOUBLE
#! from direct_dd.g: TABLE_HIGH
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! let MAGNITUDE = 11.81 * u
#! bound MAGNITUDE: M, computed
#! variants FUSED=0,1
#! mutation table/advance.h: f64_muladd(f64_abs(q0.high), f64_abs(s.high), f64_load(o->fixed_magnitude + i)) => f64_muladd(f64_abs(q0.high), f64_abs(s.low), f64_load(o->fixed_magnitude + i))
#! mutation table/advance.h: f64_store(o->fixed_magnitude + i, f64_muladd(f64_add(abs_p, abs_q), reach, abs_p)); => f64_store(o->fixed_magnitude + i, f64_muladd(f64_add(abs_p, abs_q), reach, abs_q));
#! quote table/advance.h
#|            for (int r = 0; r < HALF; r++, sine += 2 * TILE)
#|                if (*sine > reach || -*sine > reach) reach = *sine < 0 ? -*sine : *sine;
#! code table/advance.h factors SUFFIX=_1 p_i_high=p q_i_high=ZERO q0_high=ZERO s_high=s job_offsets_reach=reach POSITIVE=1
#|        const vf64 abs_p = f64_abs(p_i.high), abs_q = f64_abs(q_i.high), reach = f64_load(job->offsets->reach + column);
#=
#|        f64_store(o->fixed_magnitude + i, f64_muladd(f64_add(abs_p, abs_q), reach, abs_p));
#=
#|        const vf64 magnitude = f64_muladd(f64_abs(q0.high), f64_abs(s.high), f64_load(o->fixed_magnitude + i));
#! again factors SUFFIX=_2 p_i_high=ZERO q_i_high=q q0_high=q s_high=s job_offsets_reach=reach POSITIVE=1
M1 = 1 * Reach + 1;
M2 = 1 * Sin + 1 * Reach;
{ |p -/ 1| <= {{DIRECT}} /\ |q -/ 1| <= {{DIRECT}} /\ Reach in [0,1.0001] /\ |reach -/ Reach| <= {{TABLE_HIGH + 1.0001*u}}
  /\ Sin in [0,1] /\ |s -/ Sin| <= {{TABLE_HIGH}} /\ M2 in [1,1] /\ {{hypotheses}}
  -> |magnitude_1 -/ M1| <= {{MAGNITUDE}} /\ |magnitude_2 -/ M2| <= {{MAGNITUDE}} }
$ Reach in 16;
$ Sin in 16;
