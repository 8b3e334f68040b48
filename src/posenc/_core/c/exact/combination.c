/* Exact evaluation of a rotated value: a linear combination of the cosine and the sine of one angle.
 *
 * Method: both values are evaluated to 320 bits (exact.c), multiplied by their exact factors, aligned and added.
 * Bound (docs/numerics.md, section 7): the sure bits (real.h) of the terms bound their errors, and alignment truncates the
 * smaller term below the last place of the larger one.  Cancellation increases the relative error; if the sum then has too few
 * sure bits to decide the rounding, spec->decide evaluates the combination to more bits.
 */
#include "exact/exact.h"

typedef struct {
    real_t magnitude;
    int negative, sure;
} term_t;

static term_t term_of(const spec_t *spec, const position_t *position, ptrdiff_t column, double factor) {
    term_t t = {.sure = EXACT};
    if (factor == 0) return t;
    t.sure = posenc_evaluate(spec, position, column, &t.magnitude, &t.negative);
    if (t.sure < MIN_SURE_BITS || is_zero(&t.magnitude)) return t;
    t.magnitude = product_of(&t.magnitude, factor);
    t.negative ^= factor < 0;
    return t;
}

static int is_smaller(const real_t *a, const real_t *b) {
    if (a->exponent != b->exponent) return a->exponent < b->exponent;
    for (int i = LIMBS - 1; i >= 0; i--)
        if (a->m[i] != b->m[i]) return a->m[i] < b->m[i];
    return 0;
}

/* Limb i of a mantissa that is shifted right by `bits`. */
static uint32_t shifted_limb(const real_t *a, int i, int bits) {
    const int low = i + bits / 32, shift = bits % 32;
    const uint64_t pair = (uint64_t)(low + 1 < LIMBS ? a->m[low + 1] : 0) << 32 | (low < LIMBS ? a->m[low] : 0);
    return (uint32_t)(pair >> shift);
}

/* The sum of two nonzero terms.  If all bits cancel, it has no sure bits. */
static term_t sum_of(const term_t *a, const term_t *b) {
    if (is_smaller(&a->magnitude, &b->magnitude)) return sum_of(b, a);
    const int top = a->magnitude.exponent, shift = top - b->magnitude.exponent, subtract = a->negative != b->negative;
    uint32_t w[LIMBS + 1];
    uint64_t carry = subtract != 0;
    for (int i = 0; i < LIMBS; i++) {
        const uint32_t limb = shifted_limb(&b->magnitude, i, shift < 32 * LIMBS ? shift : 32 * LIMBS);
        carry += (uint64_t)a->magnitude.m[i] + (subtract ? (uint32_t)~limb : limb);
        w[i] = (uint32_t)carry;
        carry >>= 32;
    }
    w[LIMBS] = subtract ? 0 : (uint32_t)carry;
    int n = LIMBS + 1;
    while (n > 0 && w[n - 1] == 0) n--;
    term_t sum = {.negative = a->negative, .sure = 0};
    if (n == 0) return sum;
    /* normalise() takes an exponent in limbs, but `top` counts bits */
    sum.magnitude = normalise(w, n, n - LIMBS);
    sum.magnitude.exponent += top;
    /* the errors of a, of b and of the alignment are each below 2**error */
    const int error = larger(larger(top - a->sure, b->magnitude.exponent - b->sure), top - 32 * LIMBS);
    sum.sure = sum.magnitude.exponent - 1 - (error + 2);
    return sum;
}

/* Rounds an exact value, ties to even. */
static double rounded_exact(real_t *value, int negative, format_t f) {
    const int precision = precision_of(value, f);
    if (precision >= 0 && bit(value, precision) && !(precision && bit(value, precision - 1))) {
        int rest = 0;
        for (int i = precision + 1; i < 32 * LIMBS; i++) rest |= bit(value, i);
        if (!rest) value->m[LIMBS - 1 - precision / 32] &= ~(0x80000000u >> precision % 32);
    }
    return rounded(value, negative, precision, f);
}

double posenc_combination(const spec_t *spec, const position_t *position, ptrdiff_t column, const double factors[2],
                          dtype_t dtype) {
    const term_t a = term_of(spec, position, column, factors[0]), b = term_of(spec, position, column + 1, factors[1]);
    const format_t f = format_of(dtype);
    term_t sum;
    if (a.sure < MIN_SURE_BITS || b.sure < MIN_SURE_BITS) sum.sure = 0;
    else if (is_zero(&b.magnitude)) sum = a;
    else if (is_zero(&a.magnitude)) sum = b;
    else sum = sum_of(&a, &b);
    if (sum.sure == EXACT) return is_zero(&sum.magnitude) ? 0 : rounded_exact(&sum.magnitude, sum.negative, f);
    if (sum.sure < MIN_SURE_BITS || !decided(&sum.magnitude, sum.sure, precision_of(&sum.magnitude, f)))
        return spec->decide(spec->context, position, column, factors, dtype);
    return rounded(&sum.magnitude, sum.negative, precision_of(&sum.magnitude, f), f);
}
