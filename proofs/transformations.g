# The exact transformations of doubledouble.h.  The other scripts use their theorems: the lower number of a
# result is the exact error.
#
# fast_two_sum: Dekker 1971, for |a| >= |b| or a = 0.  two_sum, two_difference: Knuth 1969.  two_product
# without fused operations: Dekker 1971, with Veltkamp's splitting.  All have formal proofs (Boldo; Flocq).
#
# The fused two_product is proved here for a and b in [1, 2].  Scaling by powers of two extends the proof to
# other numbers, because nothing underflows or overflows.  A product has the factor `scale` and at most three
# sines, which are 0 or at least the unit of a phase.  The error of a product is 0 or at least 2**-106 of the
# product.  Veltkamp's splitting multiplies by 2**27 + 1.
#! constants _core/columns.pxi: self.spec.has_fast_path = 2.0**{MIN_SCALE} <= abs(scale) <= 2.0**{MAX_SCALE}
#! constants doubledouble.h: f64_set(0x1p27 + {SPLITTER})
#! variants FUSED=1
@rnd = float<53,ne>;
a = rnd(any_a);
b = rnd(any_b);
#! code rounded a=a b=b WITHOUT_THEOREMS=1
#= r = two_product(a, b);
exact = a * b - r_high;
{ a in [1,2] /\ b in [1,2] -> r_low - exact in [0,0]
  /\ {{SPLITTER - 1}} + 0 in [0,0] /\ {{MIN_SCALE - 3 * 32 * PHASE_LIMBS - 106}} + 0 in [-1022,0] /\ {{MAX_SCALE + 27 + 2}} + 0 in [0,1023] }
$ a in (1.5), b in (1.5);
