# Rows advanced from an anchor in double-double (advance_dd in table/advance.h), and their rounding test
# (rounded_dd in table/decide_rounding.h).
#
# As in anchors_dd.g, a term is scaled to 1: p = 1 + ep has the error of the anchor, and c = 1 + ec that of
# the table.  Each error is relative to its term, so the error of the value is relative to the sum of the
# magnitudes of the terms.  This sum is at most M (1 + 13 u), because M is computed in double.
#
# The test compares high + (low - error) with high + (low + error), both rounded to double.  The rounding
# errors of the inner sums are at most u (|low| + error), where |low| <= LOW M.  P0, Q0 and each of the four
# tabulated numbers have an absolute error FLOOR_DD; all are multiplied by factors whose sum is at most 1 (for
# example P0 c' + Q0 s', a sine).
#! from direct_dd.g: DIRECT_DD FLOOR_DD
#! from anchors_dd.g: ANCHORS_DD
#! bound ROWS_DD = 2**-98.78: rows in double-double, of the terms
#! let LOW = 5.01 * u
#! bound DD_ERROR: float64 rows, tested with this error, of M
#! bound DIRECT_DD_FLOOR: float64 rows, of the amplitude
#@ -Eprecision=200
p_high = 1 + ep - p_low;
c_high = 1 + ec - c_low;
#! code factors SUFFIX=_1 a_p=p_high a_p_low=p_low a_q=ZERO a_q_low=ZERO fine=c_high fine_low=c_low fine_TILE=ZERO fine_low_TILE=ZERO
#: advance_dd
#! again factors SUFFIX=_2 a_q=p_high a_q_low=p_low a_p=ZERO a_p_low=ZERO fine_TILE=c_high fine_low_TILE=c_low fine=ZERO fine_low=ZERO
cross = p_high * c_low + p_low * c_high;
pc = p_high * c_high + cross;
{ |ep| <= {{ANCHORS_DD}} /\ |p_low| <= {{1.0001*u}} /\ |ec| <= {{DIRECT_DD}} /\ |c_low| <= {{1.0001*u}} /\ {{hypotheses}}
  /\ |row| <= {{ROWS_DD}} /\ |low| <= {{LOW}} /\ |M - 1| <= {{13*u}}
  /\ |floor| <= {{FLOOR_DD}} /\ |one| <= 1.0001
  -> |above_high_1 + above_low_1 - 1| <= {{ROWS_DD}} /\ |above_low_1| <= {{LOW}}
  /\ |below_high_1 + below_low_1 - 1| <= {{ROWS_DD}} /\ |below_low_1| <= {{LOW}}
  /\ |above_high_2 + above_low_2 - 1| <= {{ROWS_DD}} /\ |above_low_2| <= {{LOW}}
  /\ |below_high_2 + below_low_2 + 1| <= {{ROWS_DD}} /\ |below_low_2| <= {{LOW}}
  /\ (|row| + {{u}} * (|low| + 1b-90)) / M <= {{(1-2*u)*DD_ERROR}}
  /\ |6 * floor * one| <= {{(1-2*u)*DIRECT_DD_FLOOR}} }
(above_high_1 + above_low_1) - 1 -> (above_low_1 - (above_low_1_0 + (p_high * c_low + (p_low * c_high + x_low_1)))) + (pc - 1);
(below_high_1 + below_low_1) - 1 -> (below_low_1 - (below_low_1_0 + (p_high * c_low + (p_low * c_high + x_low_1)))) + (pc - 1);
(above_high_2 + above_low_2) - 1 -> (above_low_2 - (above_low_2_0 + (p_high * c_low + (p_low * c_high + y_low_2)))) + (pc - 1);
(below_high_2 + below_low_2) + 1 -> (below_low_2 - (below_low_2_0 + -(p_high * c_low + (p_low * c_high + y_low_2)))) - (pc - 1);
pc - 1 -> ep + ec + ep * ec - p_low * c_low;
