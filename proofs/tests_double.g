# The tests of values in double: the error bound of each value, and the thresholds of the fast test
# (table/decide_rounding.h, table/advance.h, table/direct_rows.h).
#
# Rows advanced from an anchor.  M is scaled to 1; T is the sum of the magnitudes of the terms.  M - T is at
# least REACH * a, where a is the amplitude, because |P0| + |Q0| >= a.  The absolute errors (of P0, Q0 and
# four tabulated numbers, each multiplied by at most 1) are below (ROWS_DOUBLE + u) REACH a, so they need no
# further term.
#
# undecided_values rounds value - error with an error of at most u (|value| + error), which the bound
# includes.  Without this part of the bound, the rounding could give a half-way point between value - error
# and the true value, and the wrong neighbour would be returned.
#
# The fast test compares |value| with the first bits of `smallest`.  The bits left out are less than 2**-4 of
# `smallest` for float32 (4 bits after the first are kept), and less than 2**-6 for float16 and bfloat16.  v
# is in [1, 2]; an ulp of a double is 2**-52.  `smallest` must be below 2, the number whose bits are UPPER_64
# or UPPER_32.  M <= 3.42 a, because |P0| + |Q0| <= 1.4143 a; the smallest normal number adds less than
# 2**-12.
#
# Rounding to a subnormal number drops more bits.  A value that passes is at least TIMES times the smallest
# normal number, apart from the bits left out, so the true value is normal.  The values of a sine with
# frequency 0 are exactly 0, so its column needs no such limit.  If the test fails, undecided_values rounds a
# float32 value by a conversion to float, which is correct for subnormal numbers, too.
#
# Rows evaluated directly.  The amplitude is scaled to 1.
#! constants table/advance.h: offsets->reach[column] = has_turns ? reach + {REACH} : 0;
#! constants table/decide_rounding.h: return dtype == FLOAT32 ? {SHARE} : {SHARE_FLOATS};
#! constants table/advance.h: : f64_set({TIMES} * smallest_normal(job->dtype));
#! constants table/decide_rounding.h: return dtype == FLOAT16 ? {NORMAL_FLOAT16} : {NORMAL}; }
#! constants _core/columns.pxi: self.spec.has_fast_test = 2.0**-400 <= abs(scale) <= 2.0**{MAX_SCALE}
#! from rounded_bits.g: MIN_FLOAT32 MIN_FLOAT16 MIN_BFLOAT16
#! from near_half.g: NEAR
#! from direct_double.g: SIN_DOUBLE COS_DOUBLE
#! from direct_dd.g: DIRECT_DD FLOOR_DD
#! from phase.g: DROPPED_DOUBLE
#! from rows_double.g: ROWS_DOUBLE
#! from magnitude.g: MAGNITUDE
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! bound MARGIN = (NEAR - 2**28) * 2**-52: rows in double, fast test of float32, margin / value
#! bound HALF_ULP_OF_FLOAT = 2**-24: rows in double, fast test of float16 and bfloat16, half an ulp / value
#! bound DOUBLE_ERROR: rows in double, tested with this error, of M
#! bound REACH: rows in double, term of M for absolute errors
#! bound DIRECT_DOUBLE_ERROR: direct rows, tested with this error, of the value
#! bound DIRECT_DOUBLE_FLOOR: direct rows, of the amplitude
#@ -Eprecision=200
# `rows` is the error for T = 1, including the rounding of value - error; `m` is the computed M
rows = {{ROWS_DOUBLE}} + {{u}} * (value + error);
absolute = 2 * {{DROPPED_DOUBLE}} * one + 6 * {{FLOOR_DD}};
most = 1 / (m * (1 - 2 * {{u}}));
# `direct` is the error relative to the computed value; `direct_dd` is the same in double-double
direct = {{DIRECT}} * one + {{u}} * (one + 1b-49);
direct_dd = {{DIRECT_DD}} * one + {{u}} * ({{1.001*u}} + 1b-90);
{ value in [0,{{1+12*u}}] /\ error in [0,1b-49] /\ |m - 1| <= {{MAGNITUDE}} /\ |one - 1| <= {{20*u}}
  -> {{NORMAL_FLOAT16 / 2**MIN_FLOAT16}} + 0 in [1,1] /\ {{NORMAL / 2**max(MIN_FLOAT32,MIN_BFLOAT16)}} + 0 in [1,1]
  /\ 1 / ({{TIMES}} * (1 - 1b-4) * (1 - 1b-20)) in [0,1]
  /\ {{3.42 * 2**MAX_SCALE * max(SHARE,SHARE_FLOATS)}} + 1b-12 in [0,1.9]
  /\ |rows / (m * (1 - {{u}}))| <= {{DOUBLE_ERROR}}
  /\ |absolute| <= {{ROWS_DOUBLE * REACH}}
  /\ |most * {{2 * ROWS_DOUBLE}} / ({{SHARE}} * (1 - 1b-4))| <= {{MARGIN}}
  /\ |most * {{2 * ROWS_DOUBLE}} / ({{SHARE_FLOATS}} * (1 - 1b-6))| <= {{HALF_ULP_OF_FLOAT}}
  /\ |direct / (1 - 3 * {{u}})| <= {{DIRECT_DOUBLE_ERROR}}
  /\ |{{DROPPED_DOUBLE}} * one / (1 - 3 * {{u}})| <= {{DIRECT_DOUBLE_FLOOR}}
  /\ |direct_dd / (1 - 3 * {{u}})| <= {{DD_ERROR}}
  /\ |{{FLOOR_DD}} * one / (1 - 3 * {{u}})| <= {{DIRECT_DD_FLOOR}} }
