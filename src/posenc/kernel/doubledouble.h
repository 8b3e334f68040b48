/* Double-double arithmetic on the verbs: an unevaluated sum high + low with |low| <= 2**-52 |high|.
 * Sources: Dekker 1971; Joldes, Muller, Popescu, "Tight and rigorous error bounds for basic building blocks of double-word
 * arithmetic", 2017.  u = 2**-53.
 */
#ifndef POSENC_DOUBLEDOUBLE_H
#define POSENC_DOUBLEDOUBLE_H

#include "inline.h"

typedef struct {
    V high, low;
} VV;

/* a + b exactly, for |a| >= |b| or a = 0 */
INLINE VV quick_two_sum(V a, V b) {
    const V s = v_add(a, b);
    return (VV){s, v_sub(b, v_sub(s, a))};
}

/* a + b exactly */
INLINE VV two_sum(V a, V b) {
    const V s = v_add(a, b), t = v_sub(s, a);
    return (VV){s, v_add(v_sub(a, v_sub(s, t)), v_sub(b, t))};
}

/* a - b exactly */
INLINE VV two_difference(V a, V b) {
    const V s = v_sub(a, b), t = v_sub(s, a);
    return (VV){s, v_sub(v_sub(a, v_sub(s, t)), v_add(b, t))};
}

/* a * b exactly, but for underflow; without a fused operation |a|, |b| < 2**996 (Veltkamp's splitting) */
INLINE VV two_product(V a, V b) {
    const V p = v_mul(a, b);
    if (FUSED) return (VV){p, v_fms(a, b, p)};
    const V splitter = v_set(0x1p27 + 1);
    const V ca = v_mul(splitter, a), cb = v_mul(splitter, b);
    const V ah = v_sub(ca, v_sub(ca, a)), bh = v_sub(cb, v_sub(cb, b));
    const V al = v_sub(a, ah), bl = v_sub(b, bh);
    const V e = v_add(v_add(v_add(v_sub(v_mul(ah, bh), p), v_mul(ah, bl)), v_mul(al, bh)), v_mul(al, bl));
    return (VV){p, e};
}

/* a * b with an error below 7 u**2 |a b|, not renormalised: |low| <= 4 u |high| */
INLINE VV dd_product(VV a, VV b) {
    VV p = two_product(a.high, b.high);
    p.low = v_add(p.low, v_muladd(a.high, b.low, v_mul(a.low, b.high)));
    return p;
}

INLINE VV dd_scaled(VV a, V b) {
    VV p = two_product(a.high, b);
    p.low = v_muladd(a.low, b, p.low);
    return quick_two_sum(p.high, p.low);
}

/* a + b for |a| >= |b|, with an error below 4 u**2 |a|, not renormalised */
INLINE VV dd_quick_sum(VV a, VV b) {
    VV s = quick_two_sum(a.high, b.high);
    s.low = v_add(s.low, v_add(a.low, b.low));
    return s;
}

/* a * b + c * d, with an error below 2**-101 (|a b| + |c d|), renormalised */
INLINE VV dd_product_sum(VV a, VV b, VV c, VV d) {
    const VV p = two_product(a.high, b.high), q = two_product(c.high, d.high), s = two_sum(p.high, q.high);
    const V cross = v_muladd(a.high, b.low, v_muladd(a.low, b.high, v_muladd(c.high, d.low, v_mul(c.low, d.high))));
    return quick_two_sum(s.high, v_add(s.low, v_add(v_add(p.low, q.low), cross)));
}

INLINE VV dd_negated(VV a) { return (VV){v_sub(v_set(0), a.high), v_sub(v_set(0), a.low)}; }

#endif
