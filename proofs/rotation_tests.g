# The tests of rotated values (rope/pairs.h, rope/uncertain_pairs.h).
#
# The two results of a pair are within a factor of 2**BINADES, so A <= 2**BINADES (1 + 2**-19) |x| for each of them: A**2 = x**2 +
# y**2, and the slack covers the errors of x and y, and the lower halves of doubles, which the test of float32 does not compare.
# |a c| + |b s| <= A (Cauchy and Schwarz), and |a| + |b| <= 1.4143 A / |m|, where |m| >= 2**LEAST_SCALE.  x is in [1, 2]: an ulp is 2**-52
# in double, 2**-23 in float.
# Underflow: a product has an error of at most 2**-150 in float (2**-1075 in double), and a value has four.  The smallest ulp is
# 2**-(LOWEST + BINADES + 23); the sums do not underflow.  In double, two sines below 2**-1022 have an error of 2**-1075 each, times
# a number below 2**128; two products and the products of the error bound add less.  The fast test leaves 2**-12 ulp for this.
# A factor that is split has an error of 2 * 2**-150 if both floats are below 2**-126.
# Overflow: the first result is below 2**END, so the second one is below 2**128, and no operation overflows.  In double, values
# are below 2**(128 + MOST_SCALE + 1), so none exceeds the limits.
# Subnormal results drop more bits: the smallest results that pass are normal numbers of their type.
# settle_half rounds value - error, by at most u (|value| + error), like undecided_double (tests_double.g); the sums that
# bound the error are rounded four times.
#! constant ROTATION_ERROR rope/pairs.h: #define ROTATION_ERROR {}
#! constant DIRECT_ROTATION_ERROR rope/pairs.h: #define DIRECT_ROTATION_ERROR {}
#! constant DIRECT_ROTATION_FLOOR rope/pairs.h: #define DIRECT_ROTATION_FLOOR {}
#! constant SPLIT_ERROR rope/pairs.h: #define SPLIT_ERROR {}
#! constant SPLIT_FLOOR rope/pairs.h: #define SPLIT_FLOOR {}
#! constant BINADES rope/pairs.h: const uint32_t binades = {} << below;
#! constant END rope/pairs.h: end = dtype == FLOAT32 ? {_} : {};
#! constant END_DOUBLE rope/pairs.h: end = dtype == FLOAT32 ? {} : {_};
#! constant END_SETTLED rope/uncertain_pairs.h: (uint64_t)(magnitude >= (uint64_t)(1023 + {}) << 52)
#! constant LOWEST rope/pairs.h: const uint32_t lowest = dtype == FLOAT16 ? {_} : {},
#! constant LOWEST_FLOAT16 rope/pairs.h: const uint32_t lowest = dtype == FLOAT16 ? {} : {_},
#! constant BIAS_DOUBLE rope/pairs.h: const uint32_t bias = dtype == FLOAT32 ? {} : {_},
#! constant BIAS rope/pairs.h: const uint32_t bias = dtype == FLOAT32 ? {_} : {},
#! constant BELOW_DOUBLE rope/pairs.h: below = dtype == FLOAT32 ? {} : {_},
#! constant BELOW rope/pairs.h: below = dtype == FLOAT32 ? {_} : {},
#! constant UNDERFLOW_ERROR rope/uncertain_pairs.h: #define UNDERFLOW_ERROR {}
#! constant LEAST_SCALE _core/execute.pxi: if not 2.0**{} <= abs(columns.spec.scale) <= 2.0**{_}:
#! constant MOST_SCALE _core/execute.pxi: if not 2.0**{_} <= abs(columns.spec.scale) <= 2.0**{}:
#! constant MIN_FLOAT32 exact/rounding.h: case FLOAT32: return (format_t){24, {}, 0x1.fffffep127};
#! constant MIN_FLOAT16 exact/rounding.h: case FLOAT16: return (format_t){11, {}, 0x1.ffcp15};
#! constant MIN_BFLOAT16 exact/rounding.h: default: return (format_t){8, {}, 0x1.fep127};
#! constant MARGIN_FLOAT rope/pairs.h: const uint32_t margin = dtype != FLOAT32 ? {} : direct_scale != 0 ? 1u << {_} : 1u << {_};
#! constant BITS_DIRECT rope/pairs.h: const uint32_t margin = dtype != FLOAT32 ? {_} : direct_scale != 0 ? 1u << {} : 1u << {_};
#! constant BITS rope/pairs.h: const uint32_t margin = dtype != FLOAT32 ? {_} : direct_scale != 0 ? 1u << {_} : 1u << {};
#! from rotation_double.g: ROTATION ROTATION_DIRECT
#! from rotation_split.g: ROTATION_SPLIT ROTATION_SPLIT_DIRECT
#! from rotation_float.g: ROTATION_FLOAT
#! from phase.g: DROPPED_DOUBLE
#! let MARGIN = 2**BITS
#! let MARGIN_DIRECT = 2**BITS_DIRECT
#! let UNDERFLOW = 4 * 2**-150 * 2**(LOWEST + BINADES + 23)
#! let SPLIT_UNDERFLOW = 2 * 2**-150
#! let UNDERFLOW_DOUBLE = (2 * 2**128 + 8) * 2**-1075
#! let ABSOLUTE = 1.4143 * (DROPPED_DOUBLE + 2**-LEAST_SCALE * SPLIT_UNDERFLOW)
#! bound ROTATION_ERROR: rotation, correctly rounded factors, tested with this error
#! bound DIRECT_ROTATION_ERROR: rotation, factors evaluated directly, tested with this error
#! bound DIRECT_ROTATION_FLOOR: rotation, factors evaluated directly, of the amplitude
#! bound SPLIT_ERROR: rotation, split factors, tested with this error in addition
#! bound SPLIT_FLOOR: rotation, split factors that underflow, of `abs(a) + abs(b)`
#! bound UNDERFLOW_ERROR: rotation, underflow
#! bound MARGIN: rotation of float32, fast test, ulp of a double
#! bound MARGIN_DIRECT: rotation of float32, factors evaluated directly, fast test, ulp of a double
#! bound MARGIN_FLOAT: rotation of float16 and bfloat16, fast test, ulp of a float
#! functions limits_of:44764628 settle_half:219f945c undecided_value:d6c0ca0a settle_bunch:1477a356
#! mutation rope/pairs.h: #define ROTATION_ERROR 0x1.1p-51 => #define ROTATION_ERROR 0x1.ap-52
#! mutation rope/pairs.h: #define SPLIT_ERROR 0x1p-36 => #define SPLIT_ERROR 0x1p-37
#! mutation rope/pairs.h: #define SPLIT_FLOOR 0x1p-148 => #define SPLIT_FLOOR 0x1p-149
#! mutation rope/pairs.h: 1u << 16 : 1u << 14; => 1u << 16 : 1u << 13;
#! mutation rope/pairs.h: 1u << 16 : 1u << 14; => 1u << 14 : 1u << 14;
#! mutation rope/pairs.h: dtype != FLOAT32 ? 5 : => dtype != FLOAT32 ? 4 :
#! mutation rope/pairs.h: const uint32_t binades = 12u => const uint32_t binades = 13u
#! mutation rope/pairs.h: dtype == FLOAT32 ? 200 : 116; => dtype == FLOAT32 ? 200 : 128;
#! mutation rope/pairs.h: dtype == FLOAT16 ? 13 : 100, => dtype == FLOAT16 ? 13 : 113,
#! mutation rope/uncertain_pairs.h: #define UNDERFLOW_ERROR 0x1p-900 => #define UNDERFLOW_ERROR 0x1p-1080
#! mutation rope/pairs.h: dtype == FLOAT16 ? 13 : 100, => dtype == FLOAT16 ? 20 : 100,
#! mutation rope/pairs.h: below = dtype == FLOAT32 ? 20 : 23 => below = dtype == FLOAT32 ? 21 : 23
#! mutation rope/pairs.h: bias = dtype == FLOAT32 ? 1023 : 127 => bias = dtype == FLOAT32 ? 1023 : 126
#! mutation _core/execute.pxi: if not 2.0**-64 <= => if not 2.0**-120 <=
#! mutation _core/execute.pxi: <= 2.0**64: => <= 2.0**100:
#! refused rope/uncertain_pairs.h: (uint64_t)(magnitude < normal + half) | => 0 |
#@ -Eprecision=200
#! quote rope/pairs.h
#|    limits_t l = {.share = direct_scale != 0 ? DIRECT_ROTATION_ERROR : ROTATION_ERROR,
#|                  .floor = direct_scale * DIRECT_ROTATION_FLOOR};
#|    if (dtype != FLOAT32) l.share += SPLIT_ERROR, l.floor += SPLIT_FLOOR;
#! quote rope/pairs.h
#|    set_both_halves(l.binades, binades);
#|    set_both_halves(l.ratio, 2 * binades);
#|    set_both_halves(l.smallest, smallest);
#|    set_both_halves(l.range, ((lowest + end) << below) - 1);
#! quote rope/pairs.h
#|    keep_largest(&tests->ratio, u32_add(u32_sub(x, y), u64_load(limits->binades)), first);
#|    keep_largest(&tests->range, u32_sub(x, smallest), first);
#! quote rope/uncertain_pairs.h
#|        error[i] = (magnitude_of(p) + magnitude_of(q)) * share;
#|        error[i] += (magnitude_of(first[i]) + magnitude_of(second[i])) * floor + UNDERFLOW_ERROR;
#|        /* rounds half-way points away from zero; such values are always undecided */
#|        const uint64_t below = bits_of_double(value[i] - error[i]) + half, above = bits_of_double(value[i] + error[i]) + half;
A = x * (1 + 1b-19);
# |value| and the error, relative to |a c| + |b s| = 1; `after` and `factors` are the roundings after the error of a factor and
# those of the bound
slow = {{ROTATION}} + {{u}} * (value + error);
slow_direct = {{ROTATION_DIRECT}} + {{u}} * (value + error);
split = {{ROTATION_SPLIT}} + {{u}} * (value_split + error_split);
split_direct = {{ROTATION_SPLIT_DIRECT}} + {{u}} * (value_split + error_split);
{ x in [1,2] /\ value in [0,{{1+12*u}}] /\ error in [0,1b-49] /\ |factors - 1| <= {{10*u}} /\ |after - 1| <= {{4*u}}
  /\ value_split in [0,{{1+2**-36}}] /\ error_split in [0,1b-35] /\ |factors_split - 1| <= {{2**-37+12*u}}
  -> slow / factors <= {{ROTATION_ERROR}}
  /\ slow_direct / factors <= {{DIRECT_ROTATION_ERROR}}
  /\ split / factors_split <= {{ROTATION_ERROR + SPLIT_ERROR}}
  /\ split_direct / factors_split <= {{DIRECT_ROTATION_ERROR + SPLIT_ERROR}}
  /\ ({{DROPPED_DOUBLE}} * after + {{2 * u * DIRECT_ROTATION_FLOOR}}) / factors <= {{DIRECT_ROTATION_FLOOR}}
  /\ ({{SPLIT_UNDERFLOW}} * after + {{2 * u * SPLIT_FLOOR}}) / factors_split <= {{SPLIT_FLOOR}}
  /\ |(A * {{(ROTATION + ABSOLUTE) * 2**BINADES}}) * 1b52 + 1b-12| <= {{MARGIN}}
  /\ |(A * {{(ROTATION_DIRECT + ABSOLUTE) * 2**BINADES}}) * 1b52 + 1b-12| <= {{MARGIN_DIRECT}}
  /\ |(1b-23 * (1 + 1b-20) * x + A * {{(ROTATION_FLOAT + ROTATION_DIRECT + ABSOLUTE) * 2**BINADES}}) * 1b23 + {{UNDERFLOW}}| <= {{MARGIN_FLOAT}}
  /\ {{BINADES + END}} + 0 in [0,128] /\ {{128 + MOST_SCALE + 1}} + 0 in [0,{{min(END_DOUBLE,END_SETTLED)}}]
  /\ {{BIAS_DOUBLE - 1023}} + 0 in [0,0] /\ {{BIAS - 127}} + 0 in [0,0] /\ {{BELOW_DOUBLE + 32 - 52}} + 0 in [0,0]
  /\ {{BELOW - 23}} + 0 in [0,0]
  /\ |{{UNDERFLOW_DOUBLE}} * after| <= {{UNDERFLOW_ERROR}} /\ {{UNDERFLOW_DOUBLE * 2**(LOWEST + BINADES + 53)}} + 0 in [0,1b-12]
  /\ {{2**(LOWEST_FLOAT16 + MIN_FLOAT16)}} / (1 - {{MARGIN_FLOAT * 2**-23}}) in [0,1]
  /\ {{2**(LOWEST + BINADES + max(MIN_FLOAT32,MIN_BFLOAT16))}} / (1 - 1b-10) in [0,1] }
