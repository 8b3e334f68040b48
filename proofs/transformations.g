# The exact transformations of doubledouble.h.  The other scripts use their theorems: the lower number of a result is the
# exact error.
#
# fast_two_sum: Dekker 1971, for |a| >= |b| or a = 0.  two_sum, two_difference: Knuth 1969.  two_product without fused
# operations: Dekker 1971, with Veltkamp's splitting.  All have formal proofs (Boldo; Flocq).
#
# The fused two_product is proved here for a and b in [1, 2].  Scaling by powers of two extends the proof to other numbers,
# because nothing underflows or overflows.  A product has the factor `scale` and at most three sines, which are 0 or at least
# the unit of a phase.  The error of a product is 0 or at least 2**-106 of the product.  Veltkamp's splitting multiplies by
# 2**27 + 1.
#! constant LEAST_SCALE _core/tables.pxi: self.spec.has_fast_path = 2.0**{} <= abs(scale) <= 2.0**{_}
#! constant MOST_SCALE _core/tables.pxi: self.spec.has_fast_path = 2.0**{_} <= abs(scale) <= 2.0**{}
#! constant LIMBS table/direct.h: enum { PHASE_LIMBS = {} }
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
#! refused doubledouble.h: const vf64 splitter = f64_set(0x1p27 + 1); => const vf64 splitter = f64_set(0x1p27);
#! mutation _core/tables.pxi: self.spec.has_fast_path = 2.0**-400 <= => self.spec.has_fast_path = 2.0**-500 <=
#! mutation _core/tables.pxi: abs(scale) <= 2.0**400 => abs(scale) <= 2.0**1000
@rnd = float<53,ne>;
a = rnd(any_a);
b = rnd(any_b);
#! code doubledouble.h rounded a=a b=b WITHOUT_THEOREMS=1
#= r = two_product(a, b);
exact = a * b - r_high;
{ a in [1,2] /\ b in [1,2] -> r_low - exact in [0,0]
  /\ {{LEAST_SCALE - 3 * 32 * LIMBS - 106}} + 0 in [-1022,0] /\ {{MOST_SCALE + 27 + 2}} + 0 in [0,1023] }
$ a in (1.5), b in (1.5);
