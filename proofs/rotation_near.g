# The bits that the test of rotated values examines (test_near in rope/pairs.h).
#
# d are the dropped bits, an integer below 2 HALF.  In a lane, they are shifted to the top, so the subtraction is modulo 2 HALF;
# the lane passes if the rest is at most 2 HALF - 1 - (2 MARGIN - 1), with ones below the shift.  Then d is at least MARGIN
# from HALF.  Other half-way points are far away, and rounding is monotonic: see near_half.g.
#! constant SHIFT_FLOAT32 rope/pairs.h: return dtype == FLOAT32 ? {} : dtype == FLOAT16 ? {_} : {_}; }
#! constant SHIFT_FLOAT16 rope/pairs.h: return dtype == FLOAT32 ? {_} : dtype == FLOAT16 ? {} : {_}; }
#! constant SHIFT_BFLOAT16 rope/pairs.h: return dtype == FLOAT32 ? {_} : dtype == FLOAT16 ? {_} : {}; }
#! constant HALF_FLOAT32 rope/pairs.h: const uint32_t half = dtype == FLOAT32 ? 1u << {} : dtype == FLOAT16 ? 1u << {_} : 1u << {_};
#! constant HALF_FLOAT16 rope/pairs.h: const uint32_t half = dtype == FLOAT32 ? 1u << {_} : dtype == FLOAT16 ? 1u << {} : 1u << {_};
#! constant HALF_BFLOAT16 rope/pairs.h: const uint32_t half = dtype == FLOAT32 ? 1u << {_} : dtype == FLOAT16 ? 1u << {_} : 1u << {};
#! constant MARGIN_FLOAT rope/pairs.h: const uint32_t margin = dtype != FLOAT32 ? {} : direct_scale != 0 ? 1u << {_} : 1u << {_};
#! constant BITS_DIRECT rope/pairs.h: const uint32_t margin = dtype != FLOAT32 ? {_} : direct_scale != 0 ? 1u << {} : 1u << {_};
#! constant BITS rope/pairs.h: const uint32_t margin = dtype != FLOAT32 ? {_} : direct_scale != 0 ? 1u << {_} : 1u << {};
#! constant FACTOR rope/pairs.h: set_both_halves(l.near, ~(({} * margin - {_}) << dropped_shift(dtype)));
#! constant MINUS rope/pairs.h: set_both_halves(l.near, ~(({_} * margin - {}) << dropped_shift(dtype)));
#! let HALF = [2**HALF_FLOAT32, 2**HALF_FLOAT32, 2**HALF_FLOAT16, 2**HALF_BFLOAT16]
#! let MARGIN = [2**BITS, 2**BITS_DIRECT, MARGIN_FLOAT, MARGIN_FLOAT]
#! let LANE = [2**(32 - SHIFT_FLOAT32), 2**(32 - SHIFT_FLOAT32), 2**(32 - SHIFT_FLOAT16), 2**(32 - SHIFT_BFLOAT16)]
#! variants I=0..3 WRAPPED=no,yes
#! refused rope/pairs.h: test_near(&tests, limits, bits_of_f32(v->b[g]), dtype, 0); => test_near(&tests, limits, bits_of_f32(v->a[g]), dtype, 0);
#! refused rope/pairs.h: keep_largest(&tests->range, u32_sub(y, smallest), 0); => keep_largest(&tests->range, u32_sub(x, smallest), 0);
#! functions test_near:b627a0a8 test_pair:775be9c9 excess:d07d1e14 is_uncertain:71017501 rotate_in_double:81119817 rotate_in_float:0f93aec2
#! mutation rope/pairs.h: ? 3 : dtype == FLOAT16 ? 19 : 16; } => ? 2 : dtype == FLOAT16 ? 19 : 16; }
#! mutation rope/pairs.h: set_both_halves(l.near, ~((2 * margin - 1) << => set_both_halves(l.near, ~((1 * margin - 1) <<
#! mutation rope/pairs.h: set_both_halves(l.near, ~((2 * margin - 1) << => set_both_halves(l.near, ~((2 * margin - 2) <<
#! mutation rope/pairs.h: ? 1u << 28 : dtype == FLOAT16 ? 1u << 12 => ? 1u << 28 : dtype == FLOAT16 ? 1u << 11
#! quote rope/pairs.h
#|    set_both_halves(l.past_half, (half + margin) << dropped_shift(dtype));
#! quote rope/pairs.h
#|    keep_largest(&tests->near, u32_sub(u64_shl(dropped, dropped_shift(dtype)), u64_load(limits->past_half)), first);
#! quote rope/pairs.h
#|INLINE vu64 excess(vu64 x, const uint64_t *limit) { return u64_xor(u32_max(x, u64_load(limit)), u64_load(limit)); }
rest = d - {{HALF[I] + MARGIN[I]}};
wrapped = d + {{LANE[I] - HALF[I] - MARGIN[I]}};
limit = {{LANE[I]}} - 1 - {{FACTOR * MARGIN[I] - MINUS}};
{ d in [0,{{2 * HALF[I] - 1}}]
#? WRAPPED=no /\ rest in [0,{{LANE[I]}}] -> d - {{HALF[I]}} in [{{MARGIN[I]}},{{HALF[I]}}]
#? WRAPPED=yes /\ wrapped - limit in [{{-LANE[I]}},0] -> d - {{HALF[I]}} in [{{-HALF[I]}},{{-MARGIN[I]}}]
  /\ {{LANE[I] - 2 * HALF[I]}} + 0 in [0,0] }
#? WRAPPED=no d - {{HALF[I]}} -> rest + {{MARGIN[I]}};
#? WRAPPED=yes d - {{HALF[I]}} -> (wrapped - limit) - {{MARGIN[I]}};
