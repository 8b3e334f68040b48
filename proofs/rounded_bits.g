# The rounding of a double's bits to a type with fewer bits (undecided_double in table/decide_rounding.h):
# half an ulp of this type is added, and the last bits are cut off.
#
# The integer b has the bits of a normal number.  The result r is a multiple of the ulp of the narrower type,
# at most half an ulp from b.  A carry into the exponent is correct, because the bits of positive numbers,
# read as integers, are in the order of the numbers.
#! constants table/decide_rounding.h: const int drop = {DROP} - format.precision; const vu64 half = u64_set((uint64_t)1 << (drop - {LESS})),
#! constants rounding.h: case FLOAT32: return (format_t){{BITS_FLOAT32}, {MIN_FLOAT32}, 0x1.fffffep127};
#! constants rounding.h: case FLOAT16: return (format_t){{BITS_FLOAT16}, {MIN_FLOAT16}, 0x1.ffcp15};
#! constants rounding.h: default: return (format_t){{BITS_BFLOAT16}, {MIN_BFLOAT16}, 0x1.fep127};
#! let WIDTH = [BITS_FLOAT32, BITS_FLOAT16, BITS_BFLOAT16]
#! let PRECISION = [24, 11, 8]
#! variants TYPE=0..2
@cut = fixed<{{DROP - WIDTH[TYPE]}},dn>;
half = {{2**(DROP - WIDTH[TYPE] - LESS)}};
r = cut(b + half);
{ @FIX(b,0) /\ b in [1b52,1b53] -> |r - b| <= {{2**(52 - PRECISION[TYPE])}} /\ @FIX(r,{{53 - PRECISION[TYPE]}}) }
r - b -> (r - (b + half)) + half;
