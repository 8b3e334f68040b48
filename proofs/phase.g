# The limbs that direct_phase drops (table/direct.h), in turns and in radians: an absolute error, relative to the amplitude.
#
# A limb of the position is below 2**32.  The limbs of the frequency from the first dropped one on are a fraction below
# 2**(-32 (limbs + 1)), relative to the weight of the position's limb.  The last sum is cut off below 2**(-32 limbs), and the
# frequency itself has an error of two units of 2**-Q (docs/numerics.md, section 1): Q >= 256, |position| < 2**64.
#! let DROPPED_DOUBLE = 2**-91
#! let DROPPED_DD = 2**-154
#! bound DROPPED_DOUBLE: direct_double, dropped limbs, of the amplitude
#! bound DROPPED_DD: direct_dd, dropped limbs, of the amplitude
#! constant MOST table/direct.h: enum { FAST_POSITION_LIMBS = {},
#! constant DD_LIMBS table/direct.h: FAST_POSITION_LIMBS = 4, PHASE_LIMBS = {} }
#! constant DOUBLE_LIMBS table/direct.h: direct_phase(spec, position, column, lanes, {})
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
#! mutation table/direct.h: direct_phase(spec, position, column, lanes, 3) => direct_phase(spec, position, column, lanes, 2)
#! mutation table/direct.h: FAST_POSITION_LIMBS = 4 => FAST_POSITION_LIMBS = 5
#! mutation table/direct.h: for (int i = 0; i <= limbs; i++) { => for (int i = 0; i < limbs; i++) {
dropped_double = {{MOST}} * p * f3 + l3 + e;
dropped_dd = {{MOST}} * p * f5 + l5 + e;
{ p in [0,1b32] /\ f3 in [0,{{2**(-32*(DOUBLE_LIMBS+1))}}] /\ l3 in [0,{{2**(-32*DOUBLE_LIMBS)}}] /\ |e| <= 1b-191
  /\ f5 in [0,{{2**(-32*(DD_LIMBS+1))}}] /\ l5 in [0,{{2**(-32*DD_LIMBS)}}] /\ two_pi in [6.2,6.284]
  -> |two_pi * dropped_double| <= {{DROPPED_DOUBLE}} /\ |two_pi * dropped_dd| <= {{DROPPED_DD}} }
