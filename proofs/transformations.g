# The exact transformations of doubledouble.h.  The other scripts use their theorems: the lower number is the exact error.
#
# fast_two_sum: Dekker 1971, for |a| >= |b| or a = 0.  two_sum, two_difference: Knuth 1969.  two_product without fused operations:
# Dekker 1971, with Veltkamp's splitting.  All have formal proofs (Boldo; Flocq).  The fused two_product is proved here for a and
# b in [1, 2]; scaling by powers of two gives all others, because nothing underflows.
#! quote doubledouble.h
#|    const vf64 s = f64_add(a, b);
#|    return (vdd){s, f64_sub(b, f64_sub(s, a))};
#! quote doubledouble.h
#|    const vf64 s = f64_add(a, b), t = f64_sub(s, a);
#|    return (vdd){s, f64_add(f64_sub(a, f64_sub(s, t)), f64_sub(b, t))};
#! quote doubledouble.h
#|    const vf64 s = f64_sub(a, b), t = f64_sub(s, a);
#|    return (vdd){s, f64_sub(f64_sub(a, f64_sub(s, t)), f64_add(b, t))};
#! quote doubledouble.h
#|    if (FUSED) return (vdd){p, f64_mulsub(a, b, p)};
#|    const vf64 splitter = f64_set(0x1p27 + 1);
#|    const vf64 ca = f64_mul(splitter, a), cb = f64_mul(splitter, b);
#|    const vf64 ah = f64_sub(ca, f64_sub(ca, a)), bh = f64_sub(cb, f64_sub(cb, b));
#|    const vf64 al = f64_sub(a, ah), bl = f64_sub(b, bh);
#|    const vf64 e = f64_add(f64_add(f64_add(f64_sub(f64_mul(ah, bh), p), f64_mul(ah, bl)), f64_mul(al, bh)), f64_mul(al, bl));
#|    return (vdd){p, e};
#! variants FUSED=1
#! mutation doubledouble.h: if (FUSED) return (vdd){p, f64_mulsub(a, b, p)}; => if (FUSED) return (vdd){p, f64_muladd(a, b, p)};
#! mutation doubledouble.h: const vf64 splitter = f64_set(0x1p27 + 1); => const vf64 splitter = f64_set(0x1p27);
@rnd = float<53,ne>;
a = rnd(any_a);
b = rnd(any_b);
#! code doubledouble.h rounded a=a b=b WITHOUT_THEOREMS=1
#= r = two_product(a, b);
exact = a * b - r_high;
{ a in [1,2] /\ b in [1,2] -> r_low - exact in [0,0] }
$ a in (1.5), b in (1.5);
