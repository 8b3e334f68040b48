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
#! constant DOUBLE_ERROR table/decide_rounding.h: #define DOUBLE_ERROR {}
#! constant DIRECT_DOUBLE_ERROR table/direct_rows.h: #define DIRECT_DOUBLE_ERROR {}
#! constant DIRECT_DOUBLE_FLOOR table/direct_rows.h: #define DIRECT_DOUBLE_FLOOR {}
#! constant DD_ERROR table/direct.h: #define DD_ERROR {}
#! constant DIRECT_DD_FLOOR table/direct.h: #define DIRECT_DD_FLOOR {}
#! constant REACH table/advance.h: offsets->reach[column] = has_turns ? reach + {} : 0;
#! constant SHARE table/decide_rounding.h: return dtype == FLOAT32 ? {} : {_};
#! constant SHARE_FLOATS table/decide_rounding.h: return dtype == FLOAT32 ? {_} : {};
#! constant NEAR table/decide_rounding.h: return dtype == FLOAT32 ? {} : dtype == FLOAT16 ?
#! constant TIMES table/advance.h: : f64_set({} * smallest_normal(job->dtype));
#! constant NORMAL_FLOAT16 table/decide_rounding.h: return dtype == FLOAT16 ? {} : {_}; }
#! constant NORMAL table/decide_rounding.h: return dtype == FLOAT16 ? {_} : {}; }
#! constant MAX_SCALE _core/tables.pxi: self.spec.has_fast_test = 2.0**-400 <= abs(scale) <= 2.0**{}
#! constant MIN_FLOAT32 rounding.h: case FLOAT32: return (format_t){24, {}, 0x1.fffffep127};
#! constant MIN_FLOAT16 rounding.h: case FLOAT16: return (format_t){11, {}, 0x1.ffcp15};
#! constant MIN_BFLOAT16 rounding.h: default: return (format_t){8, {}, 0x1.fep127};
#! from direct_double_sin.g: SIN_DOUBLE
#! from direct_double_cos.g: COS_DOUBLE
#! from direct_dd.g: DIRECT_DD FLOOR_DD
#! from phase.g: DROPPED_DOUBLE
#! from rows_double.g: ROWS_DOUBLE
#! from magnitude.g: MAGNITUDE
#! let DIRECT = max(SIN_DOUBLE, COS_DOUBLE)
#! let MARGIN = (NEAR - 2**28) * 2**-52
#! let HALF_ULP_OF_FLOAT = 2**-24
#! bound DOUBLE_ERROR: rows in double, tested with this error, of M
#! bound REACH: rows in double, term of M for absolute errors
#! bound MARGIN: rows in double, fast test of float32, margin / value
#! bound HALF_ULP_OF_FLOAT: rows in double, fast test of float16 and bfloat16, half an ulp / value
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
