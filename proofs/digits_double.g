# Products of digits in double (complex_product in table/digits.h).
#
# A product has a cosine c and a sine s with errors, and the factor a cosine C and a sine S, rounded from
# double-double.  As in rows_double.g, Gappa bounds the relative error that a multiplication adds to each
# term, with the other term set to zero.  By the inequality of Cauchy and Schwarz, the two terms of a result
# are at most 1 in sum, so this error is at most STEP, and its norm at most sqrt(2) (STEP - u) + u, because
# the norm of the errors of the factor is at most u.  Section 5 adds the steps up. The last line: DIGIT_ERROR
# covers a step and the rounding of the test; the first entry has no step.
#! from direct_dd.g: TABLE_HIGH
#! bound STEP = 3.001 * u: digits in double, a multiplication, of its terms
#! bound DIGIT_ERROR: digits in double, error for each digit, of M
#! code factors SUFFIX=_1 c=c1 s=ZERO cosine=cc sine=ZERO
#: complex_product
#! again factors SUFFIX=_2 c=ZERO s=s1 cosine=ZERO sine=ss
#! again factors SUFFIX=_3 c=ZERO s=s1 cosine=cc sine=ZERO
#! again factors SUFFIX=_4 c=c1 s=ZERO cosine=ZERO sine=ss
{ |cc -/ CC| <= {{TABLE_HIGH}} /\ |ss -/ SS| <= {{TABLE_HIGH}} /\ {{hypotheses}} /\ step in [{{u}},{{STEP}}] /\ root in [1,1.41422]
  -> |c_product_1 -/ (c1 * CC)| <= {{STEP}} /\ |c_product_2 -/ -(s1 * SS)| <= {{STEP}}
  /\ |s_product_3 -/ (s1 * CC)| <= {{STEP}} /\ |s_product_4 -/ (c1 * SS)| <= {{STEP}}
  /\ |root * (step - {{u}}) + {{u}}| <= {{DIGIT_ERROR}} }
