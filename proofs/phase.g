# The error of the limbs that direct_phase (table/direct.h) drops.  In radians, it is the error relative to the amplitude.
#
# A limb of the position is below 2**32.  Relative to the weight of this limb, the dropped limbs of the frequency are a fraction
# below 2**(-32 (limbs + 1)).  The last sum is truncated below 2**(-32 limbs).  The frequency itself has an error of two units
# of 2**-Q (docs/numerics.md, section 1), where Q >= SIGNIFICANT, and |position| < 2**64.
#
# is_fast limits the number of limbs of a position, except in decide.h (only double-double).  Two callers do not use is_fast: direct_row, whose positions are integers
# (the offset of a rotation is the default, 0), and offset tables, whose positions are half steps.
#! let DROPPED_DOUBLE = 2**-91
#! let DROPPED_DD = 2**-152
#! bound DROPPED_DOUBLE: direct_double, dropped limbs, of the amplitude
#! bound DROPPED_DD: direct_dd, dropped limbs, of the amplitude
#! constant MOST table/direct.h: enum { FAST_POSITION_LIMBS = {},
#! constant INTEGER_LIMBS exact/position.h: p.limbs = m >> 32 ? {} : m != 0;
#! constant HALVES_LIMBS exact/position.h: .finite = 1, .limbs = {}, .exponent = -1,
#! constant OFFSET _encoding/encoding.py: position_offset: Keyword[SupportsFloat, float] = Keyword({}, _offset, "added to the positions")
#! constant SIGNIFICANT _core/frequencies.py: SIGNIFICANT_BITS = {} GUARD_BITS
#! constant ALL kernel.h: POSITION_LIMBS = {}
#! constant DD_LIMBS table/direct.h: FAST_POSITION_LIMBS = 4, PHASE_LIMBS = {} }
#! constant DOUBLE_LIMBS table/direct.h: direct_phase(spec, position, column, lanes, {}, 0)
#! quote table/direct.h
#|        const int shift = spec->integer_limbs + position->exponent + a + skip;
#|        for (int i = 0; i <= limbs; i++) {
#! quote table/direct.h
#|            if (i) sum[i - 1] = u64_add(sum[i - 1], u64_shr(product, 32));
#! quote table/direct.h
#|    return spec->has_fast_path && !is_known(position) && position->limbs <= FAST_POSITION_LIMBS;
#! quote table/blocks.h
#|    if (!is_fast(spec, &b.position) || (shifted.first && !is_fast(spec, &b.next)) ||
#! quote rope/factors.h
#|        const int is_direct = t->table.offsets == NULL && t->table.reals == NULL && r->has_fast_path;
#! quote rope/factors.h
#|            } else if (is_direct) {
#! quote _rotary/kernel_rotation.py
#|    convention = DEFAULTS | {"order": "cos", "scale": scale}
#! mutation table/direct.h: direct_phase(spec, position, column, lanes, 3, 0) => direct_phase(spec, position, column, lanes, 2, 0)
#! mutation table/direct.h: FAST_POSITION_LIMBS = 4 => FAST_POSITION_LIMBS = 5
#! refused table/direct.h: for (int i = 0; i <= limbs; i++) { => for (int i = 0; i < limbs; i++) {
#! mutation _core/frequencies.py: SIGNIFICANT_BITS = 256 => SIGNIFICANT_BITS = 192
#! mutation exact/position.h: p.limbs = m >> 32 ? 2 : m != 0; => p.limbs = m >> 32 ? 5 : m != 0;
#! mutation _encoding/encoding.py: Keyword(0.0, _offset, => Keyword(0.5, _offset,
#! refused table/direct.h: position->limbs <= FAST_POSITION_LIMBS; => position->limbs <= FAST_POSITION_LIMBS + 4;
#! refused rope/factors.h: t->table.reals == NULL && r->has_fast_path; => r->has_fast_path;
dropped_double = {{MOST}} * p * f3 + l3 + e;
dropped_dd = {{ALL}} * p * f5 + l5 + e;
{ p in [0,1b32] /\ f3 in [0,{{2**(-32*(DOUBLE_LIMBS+1))}}] /\ l3 in [0,{{2**(-32*DOUBLE_LIMBS)}}] /\ |e| <= {{2 * 2**(64 - SIGNIFICANT)}}
  /\ f5 in [0,{{2**(-32*(DD_LIMBS+1))}}] /\ l5 in [0,{{2**(-32*DD_LIMBS)}}] /\ two_pi in [6.2,6.284]
  -> {{max(INTEGER_LIMBS, HALVES_LIMBS)}} + 0 in [1,{{MOST}}] /\ {{OFFSET}} + 0 in [0,0]
  /\ |two_pi * dropped_double| <= {{DROPPED_DOUBLE}} /\ |two_pi * dropped_dd| <= {{DROPPED_DD}} }
