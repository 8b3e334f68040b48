# The tests of rotated values (rope/pairs.h, rope/uncertain_pairs.h).
#
# The two results of a pair are within a factor of 2**BINADES, so A <= 2**BINADES (1 + 2**-20) |x| for each of them: A**2 = x**2 +
# y**2, and the slack covers the errors of x and y.  |a c| + |b s| <= A (Cauchy and Schwarz).  x is in [1, 2]: an ulp is 2**-52
# in double, 2**-23 in float.
# settle_half rounds value - error, by at most u (|value| + error), like undecided_double (tests_double.g); the sums that
# bound the error are rounded four times.
#! constant ROTATION_ERROR rope/pairs.h: #define ROTATION_ERROR {}
#! constant DIRECT_ROTATION_ERROR rope/pairs.h: #define DIRECT_ROTATION_ERROR {}
#! constant DIRECT_ROTATION_FLOOR rope/pairs.h: #define DIRECT_ROTATION_FLOOR {}
#! constant BINADES rope/pairs.h: const uint32_t binades = (dtype == FLOAT16 ? {_} : {}) << 23;
#! constant BINADES_FLOAT16 rope/pairs.h: const uint32_t binades = (dtype == FLOAT16 ? {} : {_}) << 23;
#! constant BITS rope/pairs.h: const uint32_t margin = dtype == FLOAT32 ? scale != 0 ? 1u << {_} : 1u << {} : dtype == FLOAT16 ? 1 : {_};
#! constant BITS_DIRECT rope/pairs.h: const uint32_t margin = dtype == FLOAT32 ? scale != 0 ? 1u << {} : 1u << {_} : dtype == FLOAT16 ? 1 : {_};
#! constant MARGIN_BFLOAT16 rope/pairs.h: const uint32_t margin = dtype == FLOAT32 ? scale != 0 ? 1u << {_} : 1u << {_} : dtype == FLOAT16 ? 1 : {};
#! from rotation_double.g: ROTATION ROTATION_DIRECT
#! from rotation_float.g: ROTATION_FLOAT
#! from phase.g: DROPPED_DOUBLE
#! let MARGIN = 2**BITS
#! let MARGIN_DIRECT = 2**BITS_DIRECT
#! let HALF_ULP_OF_FLOAT = 2**-24
#! bound ROTATION_ERROR: rotation, correctly rounded factors, tested with this error
#! bound DIRECT_ROTATION_ERROR: rotation, factors evaluated directly, tested with this error
#! bound DIRECT_ROTATION_FLOOR: rotation, factors evaluated directly, of the amplitude
#! bound MARGIN: rotation of float32, fast test, ulp of a double
#! bound MARGIN_DIRECT: rotation of float32, factors evaluated directly, fast test, ulp of a double
#! bound MARGIN_BFLOAT16: rotation of bfloat16, fast test, ulp of a float
#! bound HALF_ULP_OF_FLOAT: rotation of float16, fast test, half an ulp / value
#! mutation rope/pairs.h: #define ROTATION_ERROR 0x1.1p-51 => #define ROTATION_ERROR 0x1.ap-52
#! mutation rope/pairs.h: 1u << 14 : dtype == FLOAT16 => 1u << 13 : dtype == FLOAT16
#! mutation rope/pairs.h: scale != 0 ? 1u << 16 : => scale != 0 ? 1u << 14 :
#! mutation rope/pairs.h: dtype == FLOAT16 ? 1 : 3; => dtype == FLOAT16 ? 1 : 2;
#! mutation rope/pairs.h: (dtype == FLOAT16 ? 20u : 12u) << 23 => (dtype == FLOAT16 ? 20u : 13u) << 23
#! mutation rope/pairs.h: (dtype == FLOAT16 ? 20u : 12u) << 23 => (dtype == FLOAT16 ? 28u : 12u) << 23
#@ -Eprecision=200
#! quote rope/pairs.h
#|    limits_t l = {.share = scale != 0 ? DIRECT_ROTATION_ERROR : ROTATION_ERROR, .floor = scale * DIRECT_ROTATION_FLOOR};
#! quote rope/pairs.h
#|    set_both_halves(l.binades, binades);
#|    set_both_halves(l.ratio, 2 * binades);
#! quote rope/pairs.h
#|    keep_largest(&tests->ratio, u32_add(u32_sub(x, y), u64_load(limits->binades)), first);
#! quote rope/pairs.h
#|    keep_largest(&tests->near, u32_sub(u64_shl(dropped, dropped_shift(dtype)), u64_load(limits->past_half)), first);
#! quote rope/uncertain_pairs.h
#|        error[i] = (magnitude_of(p) + magnitude_of(q)) * share;
#|        error[i] += (magnitude_of(first[i]) + magnitude_of(second[i])) * floor + UNDERFLOW_ERROR;
#|        /* rounds half-way points away from zero; such values are always undecided */
#|        const uint64_t below = bits_of_double(value[i] - error[i]) + half, above = bits_of_double(value[i] + error[i]) + half;
A = x * (1 + 1b-20);
# |value| and the error, relative to |a c| + |b s| = 1; `factors` are the roundings of the bound
slow = {{ROTATION}} + {{u}} * (value + error);
slow_direct = {{ROTATION_DIRECT}} + {{u}} * (value + error);
{ x in [1,2] /\ value in [0,{{1+12*u}}] /\ error in [0,1b-49] /\ |factors - 1| <= {{10*u}}
  -> slow / factors <= {{ROTATION_ERROR}}
  /\ slow_direct / factors <= {{DIRECT_ROTATION_ERROR}}
  /\ {{DROPPED_DOUBLE}} / factors <= {{DIRECT_ROTATION_FLOOR}}
  /\ |A * {{ROTATION * 2**BINADES}} * 1b52| <= {{MARGIN}}
  /\ |A * {{(ROTATION_DIRECT + 2 * DROPPED_DOUBLE) * 2**BINADES}} * 1b52| <= {{MARGIN_DIRECT}}
  /\ |(1b-23 * (1 + 1b-20) * x + A * {{(ROTATION_FLOAT + ROTATION_DIRECT + 2 * DROPPED_DOUBLE) * 2**BINADES}}) * 1b23| <= {{MARGIN_BFLOAT16}}
  /\ |A * {{(ROTATION_DIRECT + 2 * DROPPED_DOUBLE) * 2**BINADES_FLOAT16}}| <= {{HALF_ULP_OF_FLOAT}} }
