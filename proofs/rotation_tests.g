# The tests of rotated values (rope/pairs.h, rope/pairs.h).
#
# The test of upper words compares a sign, an exponent and BELOW bits, so the results of a pair are within a
# factor of 2**BINADES (1 + 2**-BELOW).  Because A**2 = x**2 + y**2, A <= 2**BINADES (1 + 2**-BELOW) (1 +
# 2**-19) |x| for each result x; the last factor covers the errors of x and y.  |a c| + |b s| <= A (Cauchy and
# Schwarz), and |a| + |b| <= 1.4143 A / |m|, where |m| >= 2**MIN_SCALE.  x is scaled to [1, 2], where an ulp
# is 2**-52 in double and 2**-23 in float.
#
# Underflow.  A product has an error of at most 2**-150 in float (2**-1075 in double), and a value has four
# products.  The smallest ulp is 2**-(LOWEST + 23); the sums do not underflow.  In double, two sines below
# 2**-1022 have an error of 2**-1075 each, multiplied by a number below 2**128.  A product in the error bound
# has an error of 2**-1075, which is multiplied by two numbers below 2**128; the errors of two other products
# are smaller.  The fast test leaves 2**-12 ulp for these errors.  A split factor has an error of 2 * 2**-150
# if both floats are below 2**-126.
#
# Overflow.  If an operation in float overflows, a result of the pair is infinite or NaN, because no later
# operation turns an infinity or a NaN into a finite number.  This result has the largest exponent, so the
# addend makes the upper word smaller than 2**BELOW, and the test fails.  In double, values are below 2**(128
# + MAX_SCALE + 1), the limit of round_values.
#
# The results of pairs (0, 0) are exact; if the test is repeated, it reads the bits of 2 in their place.
#
# Rounding to a subnormal number drops more bits, but the smallest results that pass are normal numbers of
# their type.
#
# The error bound of a pair is relative to (|a| + |b|) (|c| + |s|), which is at least |a c| + |b s|.
# undecided_double rounds value - error with an error of at most u (|value| + error) (tests_double.g).  The
# sums and products of the bound are rounded six times, and c and s have their errors.  The floors are
# absolute errors of c and s, as fractions of |m|: those of undecided roundings (decided_value), or of direct
# evaluation with short phases, and of the scale.
#! constants rope/pairs.h: const uint32_t binades = dtype == FLOAT32 && !is_direct ? {BINADES} : {BINADES_DIRECT};
#! constants rope/pairs.h: u64_set(((uint64_t)(1023 + {END_SETTLED}) << 52) - 1)
#! constants rope/pairs.h: const uint32_t lowest = dtype == FLOAT16 ? {LOWEST_FLOAT16} : {LOWEST};
#! constants rope/pairs.h: const uint32_t bias = dtype == FLOAT32 ? {BIAS_DOUBLE} : {BIAS}, below = dtype == FLOAT32 ? {BELOW_DOUBLE} : {BELOW};
#! constants _core/rotation.pxi: if not 2.0**{MIN_SCALE} <= abs(columns.spec.scale) <= 2.0**{MAX_SCALE}:
#! from rounded_bits.g: MIN_FLOAT32 MIN_FLOAT16 MIN_BFLOAT16
#! from rotation_near.g: WORDS_FLOAT
#! from rotation_double.g: ROTATION
#! from rotation_split.g: ROTATION_SPLIT
#! from rotation_float.g: ROTATION_FLOAT
#! from direct_short.g: SHORT
#! bound MARGIN = 2**16: rotation of float32, fast test, ulp of a double
#! bound MARGIN_DIRECT = 2**16: rotation of float32, factors evaluated directly, fast test, ulp of a double
#! bound MARGIN_FLOAT = (WORDS_FLOAT + 1) / 2: rotation of float16 and bfloat16, fast test, ulp of a float
#! let UNDERFLOW = 4 * 2**-150 * 2**(LOWEST + 23)
#! let SPLIT_UNDERFLOW = 2 * 2**-150
#! let UNDERFLOW_DOUBLE = (4 * 2**128 + 8) * 2**-1075
#! let FACTOR_FLOOR = 1.01 * DIRECT_DD_FLOOR
#! let FACTOR_DIRECT = SHORT + 1.01 * u
#! let ABSOLUTE = 1.4143 * (FACTOR_FLOOR + 2**-MIN_SCALE * SPLIT_UNDERFLOW)
#! let ABSOLUTE_DIRECT = 1.4143 * (FACTOR_DIRECT + 2**-MIN_SCALE * SPLIT_UNDERFLOW)
#! bound ROTATION_ERROR: rotation, correctly rounded factors, tested with this error
#! bound ROTATION_FLOOR: rotation, correctly rounded factors, of the amplitude
#! bound DIRECT_ROTATION_FLOOR: rotation, factors evaluated directly, of the amplitude
#! bound SPLIT_ERROR: rotation, split factors, tested with this error in addition
#! bound SPLIT_FLOOR: rotation, split factors that underflow, of `abs(a) + abs(b)`
#! bound UNDERFLOW_ERROR: rotation, underflow
#@ -Eprecision=200
A = x * ((1 + 1b-19) * (1 + {{2**-BELOW_DOUBLE}}));
A_float = x * ((1 + 1b-19) * (1 + {{2**-BELOW}}));
# |value| and the error are relative to (|a| + |b|) (|c| + |s|) = 1; `after` covers the roundings after the
# error of a factor; `factors` covers the roundings of the bound
slow = {{ROTATION}} + {{u}} * (value + error);
split = {{ROTATION_SPLIT}} + {{u}} * (value_split + error_split);
{ x in [1,2] /\ value in [0,{{1+12*u}}] /\ error in [0,1b-49] /\ |factors - 1| <= {{20*u}} /\ |after - 1| <= {{4*u}}
  /\ value_split in [0,{{1+2**-36}}] /\ error_split in [0,1b-35] /\ |factors_split - 1| <= {{2**-37+22*u}}
  -> slow / factors <= {{ROTATION_ERROR}}
  /\ split / factors_split <= {{ROTATION_ERROR + SPLIT_ERROR}}
  /\ ({{FACTOR_FLOOR}} * after + {{2 * u * ROTATION_FLOOR}}) / factors <= {{ROTATION_FLOOR}}
  /\ ({{FACTOR_DIRECT}} * after + {{2 * u * DIRECT_ROTATION_FLOOR}}) / factors <= {{DIRECT_ROTATION_FLOOR}}
  /\ ({{SPLIT_UNDERFLOW}} * after + {{2 * u * SPLIT_FLOOR}}) / factors_split <= {{SPLIT_FLOOR}}
  /\ |(A * {{(ROTATION + ABSOLUTE) * 2**BINADES}}) * 1b52 + 1b-12| <= {{MARGIN}}
  /\ |(A * {{(ROTATION + ABSOLUTE_DIRECT) * 2**BINADES_DIRECT}}) * 1b52 + 1b-12| <= {{MARGIN_DIRECT}}
  /\ |(1b-23 * (1 + 1b-20) * x + A_float * {{(ROTATION_FLOAT + ROTATION + ABSOLUTE_DIRECT) * 2**BINADES_DIRECT}}) * 1b23 + {{UNDERFLOW}}| <= {{MARGIN_FLOAT}}
  /\ {{128 + MAX_SCALE + 1}} + 0 in [0,{{END_SETTLED}}]
  /\ {{BIAS_DOUBLE - 1023}} + 0 in [0,0] /\ {{BIAS - 127}} + 0 in [0,0] /\ {{BELOW_DOUBLE + 48 - 52}} + 0 in [0,0]
  /\ {{BELOW + 16 - 23}} + 0 in [0,0]
  /\ |{{UNDERFLOW_DOUBLE}} * after| <= {{UNDERFLOW_ERROR}} /\ {{UNDERFLOW_DOUBLE * 2**(LOWEST + 53)}} + 0 in [0,1b-12]
  /\ {{2**(LOWEST_FLOAT16 + MIN_FLOAT16)}} / (1 - {{MARGIN_FLOAT * 2**-23}}) in [0,1]
  /\ {{2**(LOWEST + max(MIN_FLOAT32,MIN_BFLOAT16))}} / (1 - 1b-10) in [0,1] }
