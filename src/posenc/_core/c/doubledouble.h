/* Double-double arithmetic on vectors.  A number is the unevaluated sum high + low; if it is renormalised,
 * |low| <= 2**-52 |high|.  Sources: Dekker 1971; Joldes, Muller, Popescu, "Tight and rigorous error bounds for
 * basic building blocks of double-word arithmetic", 2017.  u = 2**-53.
 */
#ifndef POSENC_DOUBLEDOUBLE_H
#define POSENC_DOUBLEDOUBLE_H

#include "compiler.h"
#include "isa/simd.h"

typedef struct {
    vf64 high, low;
} vdd;

INLINE vf64 f64_abs(vf64 a) { return f64_of_bits(u64_and(bits_of_f64(a), u64_set(INT64_MAX))); }

INLINE vdd dd_of(double x) { return (vdd){f64_set(x), f64_set(0)}; }
INLINE vdd dd_load(const double *high, const double *low) { return (vdd){f64_load(high), f64_load(low)}; }
INLINE void dd_store(double *high, double *low, vdd a) {
    f64_store(high, a.high);
    f64_store(low, a.low);
}

/* a + b exactly, for |a| >= |b| or a = 0 */
INLINE vdd fast_two_sum(vf64 a, vf64 b) {
    const vf64 s = f64_add(a, b);
    return (vdd){s, f64_sub(b, f64_sub(s, a))};
}

/* a + b exactly */
INLINE vdd two_sum(vf64 a, vf64 b) {
    const vf64 s = f64_add(a, b), t = f64_sub(s, a);
    return (vdd){s, f64_add(f64_sub(a, f64_sub(s, t)), f64_sub(b, t))};
}

/* a - b exactly */
INLINE vdd two_difference(vf64 a, vf64 b) {
    const vf64 s = f64_sub(a, b), t = f64_sub(s, a);
    return (vdd){s, f64_sub(f64_sub(a, f64_sub(s, t)), f64_add(b, t))};
}

/* a * b exactly unless it underflows; without fused operations, |a| and |b| must be below 2**996 (Veltkamp's
 * splitting) */
INLINE vdd two_product(vf64 a, vf64 b) {
    const vf64 p = f64_mul(a, b);
    if (FUSED) return (vdd){p, f64_mulsub(a, b, p)};
    const vf64 splitter = f64_set(0x1p27 + 1);
    const vf64 ca = f64_mul(splitter, a), cb = f64_mul(splitter, b);
    const vf64 ah = f64_sub(ca, f64_sub(ca, a)), bh = f64_sub(cb, f64_sub(cb, b));
    const vf64 al = f64_sub(a, ah), bl = f64_sub(b, bh);
    const vf64 e = f64_add(f64_add(f64_add(f64_sub(f64_mul(ah, bh), p), f64_mul(ah, bl)), f64_mul(al, bh)), f64_mul(al, bl));
    return (vdd){p, e};
}

/* a * b with an error below 8.1 u**2 |a b|, not renormalised: |low| <= 4 u |high| */
INLINE vdd dd_product(vdd a, vdd b) {
    vdd p = two_product(a.high, b.high);
    p.low = f64_add(p.low, f64_muladd(a.high, b.low, f64_mul(a.low, b.high)));
    return p;
}

INLINE vdd dd_times_double(vdd a, vf64 b) {
    vdd p = two_product(a.high, b);
    p.low = f64_muladd(a.low, b, p.low);
    return fast_two_sum(p.high, p.low);
}

/* a + b for |a| >= |b|, with an error below 4 u**2 |a|, not renormalised */
INLINE vdd dd_fast_sum(vdd a, vdd b) {
    vdd s = fast_two_sum(a.high, b.high);
    s.low = f64_add(s.low, f64_add(a.low, b.low));
    return s;
}

/* a * b + c * d, with an error below 2**-101 (|a b| + |c d|), renormalised */
INLINE vdd dd_product_sum(vdd a, vdd b, vdd c, vdd d) {
    const vdd p = two_product(a.high, b.high), q = two_product(c.high, d.high), s = two_sum(p.high, q.high);
    const vf64 cross = f64_muladd(a.high, b.low, f64_muladd(a.low, b.high, f64_muladd(c.high, d.low, f64_mul(c.low, d.high))));
    return fast_two_sum(s.high, f64_add(s.low, f64_add(f64_add(p.low, q.low), cross)));
}

INLINE vdd dd_negated(vdd a) { return (vdd){f64_sub(f64_set(0), a.high), f64_sub(f64_set(0), a.low)}; }

#endif
