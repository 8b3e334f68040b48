# The error of the limbs that direct_phase (table/direct.h) drops.  In radians, it is the error relative to the amplitude.
#
# A limb of the position is below 2**32.  Relative to the weight of this limb, the dropped limbs of the frequency are a fraction
# below 2**(-32 (limbs + 1)).  The last sum is truncated below 2**(-32 limbs).  The frequency itself has an error of two units
# of 2**-Q (docs/numerics.md, section 1), where Q >= SIGNIFICANT, and |position| < 2**64.
#
# is_fast limits the number of limbs of a position.  Two callers do not use is_fast: direct_row, whose positions are integers
# (the offset of a rotation is the default, 0), and offset tables, whose positions are half steps.
#! let DROPPED_DOUBLE = 2**-91
#! let DROPPED_DD = 2**-154
#! bound DROPPED_DOUBLE: direct_double, dropped limbs, of the amplitude
#! bound DROPPED_DD: direct_dd, dropped limbs, of the amplitude
#! constant MOST table/direct.h: enum { FAST_POSITION_LIMBS = {},
#! constant INTEGER_LIMBS exact/position.h: p.limbs = m >> 32 ? {} : m != 0;
#! constant HALVES_LIMBS exact/position.h: .finite = 1, .limbs = {}, .exponent = -1,
#! constant OFFSET _encoding/encoding.py: position_offset: Keyword[SupportsFloat, float] = Keyword({}, _offset, "added to the positions")
#! constant SIGNIFICANT _core/frequencies.py: SIGNIFICANT_BITS = {} GUARD_BITS
#! constant DD_LIMBS table/direct.h: FAST_POSITION_LIMBS = 4, PHASE_LIMBS = {} }
#! constant DOUBLE_LIMBS table/direct.h: direct_phase(spec, position, column, lanes, {})
#! functions direct_phase:b0ab25f3
#! quote table/direct.h
#|    for (int a = 0; a < position->limbs; a++) {
#|        const vu64 p = u64_set(position->limb[a]);
#|        const int shift = spec->integer_limbs + position->exponent + a;
#|        for (int i = 0; i <= limbs; i++) {
#|            const int at = shift + i;
#|            if (at < 0 || at >= turns_limbs) continue;
#|            const uint32_t *turns = spec->turns + at * spec->pitch + column;
#|            const vu64 product = u64_mul32(p, lanes == PAIRS ? u64_load_even32(turns) : u64_load32(turns));
#|            sum[i] = u64_add(sum[i], u64_and(product, limb_mask));
#|            if (i) sum[i - 1] = u64_add(sum[i - 1], u64_shr(product, 32));
#|        }
#|    }
#|    phase_t phase;
#|    for (int i = limbs; i > 0; i--) {
#|        sum[i - 1] = u64_add(sum[i - 1], u64_shr(sum[i], 32));
#|        phase.rest[i - 1] = u64_and(sum[i - 1], limb_mask);
#|    }
#! quote table/direct_rows.h
#|    return spec->has_fast_path && !is_known(position) && position->limbs <= FAST_POSITION_LIMBS;
#! quote table/direct_rows.h
#|    else if (is_fast(spec, &position)) direct_columns(spec, job, &position, row, 0, spec->d_model, out, tally);
#! quote table/blocks.h
#|    if (!is_fast(spec, &b.position) || (shifted.first && !is_fast(spec, &b.next)) ||
#! quote rope/factors.h
#|        const int is_direct = t->table.offsets == NULL && t->table.reals == NULL && r->has_fast_path;
#! quote rope/factors.h
#|            } else if (is_direct) {
#! quote _rotary/kernel_rotation.py
#|    convention = DEFAULTS | {"order": "cos", "scale": scale}
#! mutation table/direct.h: direct_phase(spec, position, column, lanes, 3) => direct_phase(spec, position, column, lanes, 2)
#! mutation table/direct.h: FAST_POSITION_LIMBS = 4 => FAST_POSITION_LIMBS = 5
#! refused table/direct.h: for (int i = 0; i <= limbs; i++) { => for (int i = 0; i < limbs; i++) {
#! mutation _core/frequencies.py: SIGNIFICANT_BITS = 256 => SIGNIFICANT_BITS = 192
#! mutation exact/position.h: p.limbs = m >> 32 ? 2 : m != 0; => p.limbs = m >> 32 ? 5 : m != 0;
#! mutation _encoding/encoding.py: Keyword(0.0, _offset, => Keyword(0.5, _offset,
#! refused table/direct_rows.h: position->limbs <= FAST_POSITION_LIMBS; => position->limbs <= FAST_POSITION_LIMBS + 4;
#! refused rope/factors.h: t->table.reals == NULL && r->has_fast_path; => r->has_fast_path;
dropped_double = {{MOST}} * p * f3 + l3 + e;
dropped_dd = {{MOST}} * p * f5 + l5 + e;
{ p in [0,1b32] /\ f3 in [0,{{2**(-32*(DOUBLE_LIMBS+1))}}] /\ l3 in [0,{{2**(-32*DOUBLE_LIMBS)}}] /\ |e| <= {{2 * 2**(64 - SIGNIFICANT)}}
  /\ f5 in [0,{{2**(-32*(DD_LIMBS+1))}}] /\ l5 in [0,{{2**(-32*DD_LIMBS)}}] /\ two_pi in [6.2,6.284]
  -> {{max(INTEGER_LIMBS, HALVES_LIMBS)}} + 0 in [1,{{MOST}}] /\ {{OFFSET}} + 0 in [0,0]
  /\ |two_pi * dropped_double| <= {{DROPPED_DOUBLE}} /\ |two_pi * dropped_dd| <= {{DROPPED_DD}} }
