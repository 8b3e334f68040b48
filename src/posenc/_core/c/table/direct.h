/* Evaluates sin and cos for one vector of columns directly, from the phase, which is the angle in turns.  The
 * method below is that of direct_dd; direct_double uses 3 limbs and doubles.
 *
 * Phase: the product of the position's limbs and the limbs of `turns`, modulo one turn, in 5 limbs (160 bits)
 * below the binary point; the error is below 2**-156 turns.  The reduction to the nearest quarter turn subtracts
 * integers.  Series: Taylor's series for |x| <= pi/4, with the leading coefficients and all of their products in
 * double-double.  Bound (docs/numerics.md, section 4): the error of sin and of cos is below 2**-97 of the value
 * plus 2**-113 of the amplitude.
 */
#ifndef POSENC_DIRECT_H
#define POSENC_DIRECT_H

#include "doubledouble.h"
#include "positions.h"

enum { PHASE_LIMBS = 5 };

/* the bound in use: relative to the value, plus relative to the amplitude, for tiny phases */
#define DD_ERROR 0x1p-94
#define DIRECT_DD_FLOOR 0x1p-110

static int is_known(const position_t *position) { return !position->finite || position->padding || position->limbs == 0; }

static int is_fast(const spec_t *spec, const position_t *position) { return spec->has_fast_path && !is_known(position); }

enum { SIN_LEADING = 8, COS_LEADING = 9, TAIL = 6 };

/* (-1)**k / (2k + 1)! for k = 0 .. 7 in double-double, then 8 .. 13 in double; the truncation error is below
 * z**14 / 29! < 2**-112, where z = x**2 */
static const double SIN_COEFFICIENTS[SIN_LEADING][2] = {
    {0x1.0000000000000p+0, 0x0.0p+0},
    {-0x1.5555555555555p-3, -0x1.5555555555555p-57},
    {0x1.1111111111111p-7, 0x1.1111111111111p-63},
    {-0x1.a01a01a01a01ap-13, -0x1.a01a01a01a01ap-73},
    {0x1.71de3a556c734p-19, -0x1.c154f8ddc6c00p-73},
    {-0x1.ae64567f544e4p-26, 0x1.c062e06d1f209p-80},
    {0x1.6124613a86d09p-33, 0x1.f28e0cc748ebep-87},
    {-0x1.ae7f3e733b81fp-41, -0x1.1d8656b0ee8cbp-97},
};
static const double SIN_TAIL[TAIL] = {
    0x1.952c77030ad4ap-49,  -0x1.2f49b46814157p-57, 0x1.71b8ef6dcf572p-66,
    -0x1.761b41316381ap-75, 0x1.3f3ccdd165fa9p-84,  -0x1.d1ab1c2dccea3p-94,
};
/* (-1)**k / (2k)! for k = 0 .. 8 in double-double, then 9 .. 14 in double; the truncation error is below
 * z**15 / 30! < 2**-117 */
static const double COS_COEFFICIENTS[COS_LEADING][2] = {
    {0x1.0000000000000p+0, 0x0.0p+0},
    {-0x1.0000000000000p-1, 0x0.0p+0},
    {0x1.5555555555555p-5, 0x1.5555555555555p-59},
    {-0x1.6c16c16c16c17p-10, 0x1.f49f49f49f49fp-65},
    {0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-76},
    {-0x1.27e4fb7789f5cp-22, -0x1.cbbc05b4fa99ap-76},
    {0x1.1eed8eff8d898p-29, -0x1.2aec959e14c06p-83},
    {-0x1.93974a8c07c9dp-37, -0x1.05d6f8a2efd1fp-92},
    {0x1.ae7f3e733b81fp-45, 0x1.1d8656b0ee8cbp-101},
};
static const double COS_TAIL[TAIL] = {
    -0x1.6827863b97d97p-53, 0x1.e542ba4020225p-62,  -0x1.0ce396db7f853p-70,
    0x1.f2cf01972f578p-80,  -0x1.88e85fc6a4e5ap-89, 0x1.0a18a2635085dp-98,
};

INLINE vdd direct_series(vdd z, const double leading[][2], int count, const double tail[TAIL]) {
    vf64 t = f64_set(tail[TAIL - 1]);
    for (int k = TAIL - 2; k >= 0; k--) t = f64_muladd(t, z.high, f64_set(tail[k]));
    vdd r = {t, f64_set(0)};
    for (int k = count - 1; k >= 0; k--)
        r = dd_fast_sum((vdd){f64_set(leading[k][0]), f64_set(leading[k][1])}, dd_product(z, r));
    return fast_two_sum(r.high, r.low);
}

/* The angles of a vector: one for each of LANES columns (ANGLES), or for each of LANES pairs of columns (PAIRS),
 * which are sin and cos of one frequency, in either order. */
typedef enum { ANGLES, PAIRS } lanes_t;

/* The phases of a vector: whole quarter turns, in the upper two bits of `turn`, and a rest of -1/8 .. 1/8 turn.
 * `first` has the first 32 bits of the rest, in turns; rest[1], rest[2] ... are the next limbs of 32 bits, to be
 * multiplied by `unit`. */
typedef struct {
    double unit; /* 2**-shift of the position; if it is below 1, there are no quarter turns */
    vu64 turn;
    vf64 first;
    vu64 rest[PHASE_LIMBS];
} phase_t;

/* An integer below 2**52, minus `bias`, as a double. */
INLINE vf64 double_of_integer(vu64 u, double bias) {
    return f64_sub(f64_of_bits(u64_or(u, u64_set(0x4330000000000000u))), f64_set(0x1p52 + bias));
}

/* Limb i of the rest, in turns. */
INLINE vf64 phase_limb(const phase_t *phase, int i) {
    return f64_mul(double_of_integer(phase->rest[i], 0), f64_set(power_of_two(-32 * (i + 1)) * phase->unit));
}

enum { EXACT_PHASE_BITS = 91, EXACT_PHASE_MASK = 7, EXACT_SHORT_BITS = 58 };

/* Whether the distance of every phase from a quarter turn is 0 or at least 2**-bits turns, as for periods: then
 * direct_phase (with EXACT_PHASE_BITS) and replace_zeros (with EXACT_SHORT_BITS) identify quarter turns
 * (docs/numerics.md, section 3).  No position has more than 6 limbs here. */
static int has_exact_phases(const spec_t *spec, const position_t *position, int bits) {
    return spec->phase_bits + (position->exponent < 0 ? -32 * position->exponent : 0) <= bits;
}

/* The number of columns of a vector. */
INLINE int columns_of(lanes_t lanes) { return lanes == PAIRS ? 2 * LANES : LANES; }

INLINE vu64 load_limb(const uint32_t *limb, lanes_t lanes) { return lanes == PAIRS ? u64_load_even32(limb) : u64_load32(limb); }

/* Positions whose magnitudes are whole + fraction * 2**-64, one for each lane of the vectors of a tile. */
typedef struct lanes {
    ALIGNED uint64_t whole[TILE + LANES], fraction[TILE + LANES], sign[TILE + LANES];
} position_lanes_t;

/* The lane of a column of the first tile. */
INLINE ptrdiff_t lane_of(ptrdiff_t column, lanes_t lanes) {
    return (ptrdiff_t)((size_t)column / (size_t)columns_of(lanes) * LANES);
}

/* Loads limb a of the position of some vectors of lanes into the lower halves of the lanes.  If each lane has its own
 * position, the exponent is at least -2. */
INLINE void load_positions(const position_t *position, int a, ptrdiff_t column, lanes_t lanes, int vectors, vu64 p[]) {
    const int limb = position->exponent + a;
    if (position->lanes) {
        const uint64_t *const from = (limb < 0 ? position->lanes->fraction : position->lanes->whole) + lane_of(column, lanes);
        for (int v = 0; v < vectors; v++) p[v] = u64_shr(u64_load(from + v * LANES), 32 * (limb & 1));
    } else {
        for (int v = 0; v < vectors; v++) p[v] = u64_set(position->limb[a]);
    }
}

/* Computes the first `limbs` limbs of the phase. */
INLINE phase_t direct_phase(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, int limbs) {
    const vu64 limb_mask = u64_set(0xffffffffu);
    const int turns_limbs = spec->integer_limbs + spec->fraction_limbs;
    vu64 sum[PHASE_LIMBS + 1]; /* highest first: weights 2**-32, 2**-64 ... */
    for (int i = 0; i <= limbs; i++) sum[i] = u64_set(0);
    for (int a = 0; a < position->limbs; a++) {
        vu64 p;
        load_positions(position, a, column, lanes, 1, &p);
        const int shift = spec->integer_limbs + position->exponent + a;
        for (int i = 0; i <= limbs; i++) {
            const int at = shift + i;
            if (at < 0 || at >= turns_limbs) continue;
            const vu64 product = u64_mul32(p, load_limb(spec->turns + at * spec->pitch + column, lanes));
            sum[i] = u64_add(sum[i], u64_and(product, limb_mask));
            if (i) sum[i - 1] = u64_add(sum[i - 1], u64_shr(product, 32));
        }
    }
    phase_t phase = {.unit = power_of_two(-position->shift)};
    const int is_exact = has_exact_phases(spec, position, EXACT_PHASE_BITS);
    /* the sum is below the phase by less than this number of units of the last limb */
    if (is_exact) sum[limbs - 1] = u64_add(sum[limbs - 1], u64_set((uint64_t)position->limbs + 1));
    for (int i = limbs; i > 0; i--) {
        sum[i - 1] = u64_add(sum[i - 1], u64_shr(sum[i], 32));
        phase.rest[i - 1] = u64_and(sum[i - 1], limb_mask);
    }
    if (is_exact) phase.rest[limbs - 1] = u64_and(phase.rest[limbs - 1], u64_set(~(uint64_t)EXACT_PHASE_MASK));
    const vu64 shifted = u64_add(phase.rest[0], u64_set(1u << 29));
    phase.turn = u64_shl(shifted, 32);
    phase.first = f64_mul(double_of_integer(u64_and(shifted, u64_set((1u << 30) - 1)), 0x1p29), f64_set(0x1p-32 * phase.unit));
    return phase;
}

/* Turns sin and cos of the rest, (s, c), into those of the angle: their sign bits exchange s and c, or flip
 * their signs.  Each quarter turn is one step of (s, c) -> (c, -s) -> (-s, -c) -> (-c, s). */
typedef struct {
    vu64 exchange, sin_sign, cos_sign;
} symmetry_t;

INLINE symmetry_t symmetry_of(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, vu64 turn) {
    const vu64 bit = u64_set((uint64_t)1 << 63), next = u64_shl(turn, 1);
    const vu64 sign = lanes == PAIRS ? u64_load_even(spec->sign + column) : u64_load(spec->sign + column);
    const vu64 backwards = u64_xor(sign, position->lanes ? u64_load(position->lanes->sign + lane_of(column, lanes))
                                                         : u64_set((uint64_t)(position->negative != 0) << 63));
    return (symmetry_t){
        .exchange = next, .sin_sign = u64_xor(u64_and(turn, bit), backwards), .cos_sign = u64_and(u64_xor(turn, next), bit)};
}

INLINE void apply_symmetry(const symmetry_t *t, vf64 s, vf64 c, vf64 *sine, vf64 *cosine) {
    const vu64 u = bits_of_f64(s), v = bits_of_f64(c);
    *sine = f64_of_bits(u64_xor(u64_select(t->exchange, v, u), t->sin_sign));
    *cosine = f64_of_bits(u64_xor(u64_select(t->exchange, u, v), t->cos_sign));
}

/* The rest in double-double, in turns. */
INLINE vdd phase_dd(const phase_t *phase) {
    const vf64 last = f64_add(phase_limb(phase, 3), phase_limb(phase, 4));
    vdd turn = fast_two_sum(phase->first, phase_limb(phase, 1));
    turn = fast_two_sum(turn.high, f64_add(turn.low, f64_add(phase_limb(phase, 2), last)));
    return turn;
}

/* sin and cos of an angle in turns, in double-double; the two parts of the angle are passed in registers. */
NOINLINE void series_dd(vf64 high, vf64 low, vdd *sine, vdd *cosine) {
    const vdd turn = {high, low};
    vdd x = dd_product(turn, (vdd){f64_set(TWO_PI_HIGH), f64_set(TWO_PI_LOW)});
    x = fast_two_sum(x.high, x.low);
    vdd z = dd_product(x, x);
    z = fast_two_sum(z.high, z.low);
    const vdd s = dd_product(x, direct_series(z, SIN_COEFFICIENTS, SIN_LEADING, SIN_TAIL));
    *sine = fast_two_sum(s.high, s.low);
    *cosine = direct_series(z, COS_COEFFICIENTS, COS_LEADING, COS_TAIL);
}

/* sin and cos in double-double. */
INLINE void direct_dd(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, vdd *sine, vdd *cosine) {
    const phase_t phase = direct_phase(spec, position, column, lanes, PHASE_LIMBS);
    const symmetry_t t = symmetry_of(spec, position, column, lanes, phase.turn);
    const vdd turn = phase_dd(&phase);
    vdd s, c;
    series_dd(turn.high, turn.low, &s, &c);
    apply_symmetry(&t, s.high, c.high, &sine->high, &cosine->high);
    apply_symmetry(&t, s.low, c.low, &sine->low, &cosine->low);
}

/* sin and cos in double.  The series end with x**19 and x**18; their next terms are below 2**-65. */
INLINE void direct_double(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, vf64 *sine,
                          vf64 *cosine) {
    const phase_t phase = direct_phase(spec, position, column, lanes, 3);
    /* added in this order, because the first two terms cancel near a zero of the sine; their sum is then
     * exact */
    const vf64 turn = f64_add(f64_add(phase.first, phase_limb(&phase, 1)), phase_limb(&phase, 2));
    const vf64 x = f64_mul(turn, f64_set(TWO_PI_HIGH)), z = f64_mul(x, x);
    vf64 s = f64_set(SIN_TAIL[1]), c = f64_set(COS_TAIL[0]);
    s = f64_muladd(s, z, f64_set(SIN_TAIL[0]));
    for (int k = SIN_LEADING - 1; k > 0; k--) s = f64_muladd(s, z, f64_set(SIN_COEFFICIENTS[k][0]));
    for (int k = COS_LEADING - 1; k >= 0; k--) c = f64_muladd(c, z, f64_set(COS_COEFFICIENTS[k][0]));
    s = f64_muladd(f64_mul(s, z), x, x);
    const symmetry_t t = symmetry_of(spec, position, column, lanes, phase.turn);
    apply_symmetry(&t, s, c, sine, cosine);
}

/* sin and cos times the scale, as double-doubles or, unless `is_dd`, as doubles. */
INLINE void direct_values(const spec_t *spec, const position_t *position, ptrdiff_t column, lanes_t lanes, int is_dd, vdd *sine,
                          vdd *cosine) {
    const vf64 scale = f64_set(spec->scale);
    if (is_dd) {
        direct_dd(spec, position, column, lanes, sine, cosine);
        *sine = dd_times_double(*sine, scale);
        *cosine = dd_times_double(*cosine, scale);
    } else {
        direct_double(spec, position, column, lanes, &sine->high, &cosine->high);
        sine->high = f64_mul(sine->high, scale);
        cosine->high = f64_mul(cosine->high, scale);
        sine->low = cosine->low = f64_set(0);
    }
}

/* Returns zero in lanes of columns with a frequency of 0. */
INLINE vu64 turns_of(const spec_t *spec, ptrdiff_t column) {
    vu64 turns = u64_set(0);
    for (int i = 0; i < spec->integer_limbs + spec->fraction_limbs; i++)
        turns = u64_or(turns, u64_load32(spec->turns + i * spec->pitch + column));
    return turns;
}

/* ---- tiles --------------------------------------------------------------------------------------------- */

/* Computes the factor of a tile, times the scale.  A factor has the cosines of the angles, then their sines; in
 * double-double, the low parts of both follow.  If columns are not paired, each column is an angle. */
NOINLINE void direct_factor(const spec_t *spec, const position_t *position, ptrdiff_t column, int is_dd, double *factor) {
    const lanes_t lanes = spec->order != UNPAIRED ? PAIRS : ANGLES;
    const int step = columns_of(lanes), angles = TILE * LANES / step;
    for (int i = 0; i < TILE; i += step, factor += LANES) {
        vdd s, c;
        direct_values(spec, position, column + i, lanes, is_dd, &s, &c);
        f64_store(factor, c.high);
        f64_store(factor + angles, s.high);
        if (is_dd) f64_store(factor + 2 * angles, c.low);
        if (is_dd) f64_store(factor + 3 * angles, s.low);
    }
}

/* Returns columns i .. i + LANES - 1 of a tile whose angles have the given sines and cosines. */
INLINE vf64 columns_from(const double *cosines, const double *sines, const uint64_t *quarter, int paired, int i) {
    const int at = paired ? i / (2 * LANES) * LANES : i;
    vf64 c = f64_load(cosines + at), s = f64_load(sines + at), other;
    if (paired && i / LANES % 2) f64_interleave(c, c, &other, &c), f64_interleave(s, s, &other, &s);
    else if (paired) f64_interleave(c, c, &c, &other), f64_interleave(s, s, &s, &other);
    return f64_of_bits(u64_select(u64_load(quarter + i), bits_of_f64(c), bits_of_f64(s)));
}

/* ---- short phases -------------------------------------------------------------------------------------- */

/* Half a quarter turn, and half a unit of the 52 bits that are converted, in units of 2**-64 turns. */
#define SHORT_ROUNDING (((uint64_t)1 << 61) + ((uint64_t)1 << 9))

/* Vectors that are evaluated together, so that the chains of their operations overlap. */
enum { TOGETHER = LANES < 8 ? 4 : 2 };

/* The limbs of the frequencies by which the limbs of a position are multiplied: limb a of the position by limb[a],
 * limb[a + 1] and limb[a + 2]. */
typedef struct {
    const uint32_t *limb[POSITION_LIMBS + 2];
} turns_t;

static void set_turns(const spec_t *spec, const position_t *position, turns_t *turns) {
    const int last = spec->integer_limbs + spec->fraction_limbs; /* a limb of zeros follows the last limb */
    for (int k = 0; k < position->limbs + 2; k++) {
        const int at = spec->integer_limbs + position->exponent + k;
        turns->limb[k] = spec->turns + (at < 0 || at > last ? last : at) * spec->pitch;
    }
}

/* Coefficients of minimax polynomials in x**2 for (sin x - x) / x**3 and cos x, |x| <= pi/4; the script is
 * proofs/direct_short_polynomials.sollya. */
static const double SIN_MINIMAX[] = {
    -0x1.555555555553dp-3, 0x1.111111110eaacp-7,   -0x1.a01a019aaa356p-13,
    0x1.71de346e42016p-19, -0x1.ae5dafddf7f58p-26, 0x1.5d63a62aaa127p-33,
};
static const double COS_MINIMAX[] = {
    0x1p0,
    -0x1.fffffffffffa3p-2,
    0x1.555555554f98ap-5,
    -0x1.6c16c1648d6b7p-10,
    0x1.a019f8862c0b5p-16,
    -0x1.27df6cbb9bd1cp-22,
    0x1.1b962d63da4f7p-29,
};

/* sin and cos of some vectors of angles. */
INLINE void short_series(const vf64 x[], int vectors, vf64 s[], vf64 c[]) {
    vf64 z[TOGETHER];
    for (int v = 0; v < vectors; v++) {
        z[v] = f64_mul(x[v], x[v]);
        s[v] = f64_set(SIN_MINIMAX[5]);
        c[v] = f64_set(COS_MINIMAX[6]);
    }
    for (int k = 4; k >= 0; k--)
        for (int v = 0; v < vectors; v++) s[v] = f64_muladd(s[v], z[v], f64_set(SIN_MINIMAX[k]));
    for (int k = 5; k >= 0; k--)
        for (int v = 0; v < vectors; v++) c[v] = f64_muladd(c[v], z[v], f64_set(COS_MINIMAX[k]));
    for (int v = 0; v < vectors; v++) s[v] = f64_muladd(f64_mul(s[v], z[v]), x[v], x[v]);
}

/* Computes `angles` cosines, then as many sines, times the scale, with an error below DOUBLE_ERROR |scale|.
 * A phase has 64 bits, of which 54 are converted (docs/numerics.md, section 4).  The phases are stored unless
 * `phases` is NULL. */
INLINE void store_short(const spec_t *spec, const position_t *position, const turns_t *turns, ptrdiff_t column, lanes_t lanes,
                        int angles, double *factor, uint64_t *phases) {
    const int step = columns_of(lanes);
    const vf64 scale = f64_set(spec->scale);
    const double unit = power_of_two(-position->shift);
    for (int i = 0; i < angles; i += TOGETHER * LANES, column += TOGETHER * step, factor += TOGETHER * LANES) {
        vu64 phase[TOGETHER];
        vf64 x[TOGETHER], s[TOGETHER], c[TOGETHER];
        for (int v = 0; v < TOGETHER; v++) phase[v] = u64_set(SHORT_ROUNDING);
        for (int a = 0; a < position->limbs; a++) {
            vu64 p[TOGETHER];
            load_positions(position, a, column, lanes, TOGETHER, p);
            for (int v = 0; v < TOGETHER; v++) {
                const ptrdiff_t at = column + v * step;
                const vu64 first = u64_mul32(p[v], load_limb(turns->limb[a] + at, lanes));
                const vu64 second = u64_mul32(p[v], load_limb(turns->limb[a + 1] + at, lanes));
                const vu64 third = u64_mul32(p[v], load_limb(turns->limb[a + 2] + at, lanes));
                phase[v] = u64_add(phase[v], u64_add(u64_add(u64_shl(first, 32), second), u64_shr(third, 32)));
            }
        }
        for (int v = 0; v < TOGETHER; v++) {
            const vf64 rest = double_of_integer(u64_shr(u64_shl(phase[v], 2), 12), 0x1p51);
            x[v] = f64_mul(rest, f64_set(TWO_PI_HIGH * 0x1p-54 * unit));
            if (phases) u64_store(phases + i + v * LANES, phase[v], 0);
        }
        short_series(x, TOGETHER, s, c);
        for (int v = 0; v < TOGETHER; v++) {
            const symmetry_t t = symmetry_of(spec, position, column + v * step, lanes, phase[v]);
            vf64 sine, cosine;
            apply_symmetry(&t, s[v], c[v], &sine, &cosine);
            /* + 0 replaces -0 */
            f64_store(factor + v * LANES, f64_muladd(cosine, scale, f64_set(0)));
            f64_store(factor + angles + v * LANES, f64_muladd(sine, scale, f64_set(0)));
        }
    }
}

/* Computes the factor of a tile with short phases. */
NOINLINE void short_factor(const spec_t *spec, const position_t *position, const turns_t *turns, ptrdiff_t column,
                           double *factor, uint64_t *phases) {
    if (spec->order == UNPAIRED) store_short(spec, position, turns, column, ANGLES, TILE, factor, phases);
    else store_short(spec, position, turns, column, PAIRS, TILE / 2, factor, phases);
}

#endif
