# The lower words that the tests of rotated values examine (test_pairs in rope/pairs.h).
#
# w is the lower word of a value.  For float32, w contains bits 16 .. 31 of the double, of which the mask
# keeps 13 bits, and r contains the 16 bits below.  For the other types, w contains all dropped bits.  The
# word passes if w + ADDEND, modulo 2 * HALF, is at least WORDS.  Then the dropped bits d are at least MARGIN
# units from the half-way point.  Other half-way points are far away, and rounding is monotonic: see
# near_half.g.
#! constants rope/pairs.h: const uint32_t half = dtype == BFLOAT16 ? 1u << {HALF_BFLOAT16} : 1u << {HALF},
#! constants rope/pairs.h: words = dtype == FLOAT32 ? {WORDS_FLOAT32} : {WORDS_FLOAT};
#! constants rope/pairs.h: set_words(l.addend, 1u << below, half + words / {PART}, dtype);
#! constants rope/pairs.h: set_words(l.mask, 0x7fff, 2 * half - {LESS}, dtype);
#! let HALVES = [2**HALF, 2**HALF, 2**HALF_BFLOAT16]
#! let WORDS = [WORDS_FLOAT32, WORDS_FLOAT, WORDS_FLOAT]
#! let ADDENDS = [h + (w - w % PART) / PART for h, w in [[HALVES[0], WORDS[0]], [HALVES[1], WORDS[1]], [HALVES[2], WORDS[2]]]]
#! let UNIT = [2**16, 1, 1]
#! let MARGIN = [2**16, (WORDS_FLOAT + 1) / 2, (WORDS_FLOAT + 1) / 2]
#! variants I=0..2 WRAPPED=no,yes
sum = w + {{ADDENDS[I]}};
rest = sum - {{2 * HALVES[I]}};
d = w * {{UNIT[I]}} + r;
{ w in [0,{{2 * HALVES[I] - LESS}}] /\ r in [0,{{UNIT[I] - 1}}]
#? WRAPPED=no /\ sum in [{{WORDS[I]}},{{2 * HALVES[I] - 1}}] -> d - {{HALVES[I] * UNIT[I]}} in [{{-2 * HALVES[I] * UNIT[I]}},{{-MARGIN[I]}}]
#? WRAPPED=yes /\ rest in [{{WORDS[I]}},{{2 * HALVES[I]}}] -> d - {{HALVES[I] * UNIT[I]}} in [{{MARGIN[I]}},{{2 * HALVES[I] * UNIT[I]}}]
  /\ {{HALVES[I] - (2**15 if I == 2 else 2**12)}} + 0 in [0,0] /\ {{LESS - 1}} + 0 in [0,0] }
#? WRAPPED=no d - {{HALVES[I] * UNIT[I]}} -> (sum - {{ADDENDS[I] + HALVES[I]}}) * {{UNIT[I]}} + r;
#? WRAPPED=yes d - {{HALVES[I] * UNIT[I]}} -> (rest + {{HALVES[I] - ADDENDS[I]}}) * {{UNIT[I]}} + r;
