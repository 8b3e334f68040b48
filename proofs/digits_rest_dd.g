# The sine and cosine of a rest (multiply_by_rest_dd in table/round_tiles.h) in double-double, for |T| <= 2**-11.
# Sine and Cosine have no truncated terms, and the sine is scaled to T = 1.  z has the relative error ez from T**2.
# et, e1 and e2 are the errors of t, of all factors of the second term, and of the sum.
#! bound REST_DD = 2**-96: digits in double-double, sine (of itself) and cosine of a rest
#@ -Eprecision=200
@rnd = float<53,ne>;
zh = rnd(Z * (1 + ez));
#! code rounded
#= vdd z = {zh, zl};
#: multiply_by_rest_dd s3 c3
#= s = f64_mul(s3, zh);
#= c = f64_mul(c3, zh);
#! again exact SUFFIX=_e
S = Z * (1 / 120 - Z / 5040);
C = Z * (1 / 24 - Z / 720);
Sine = 1 + (S - 1 / 6) * Z;
Cosine = 1 + (C - 1 / 2) * Z;
sine = (1 + et + (s - 1 / 6) * (1 + e1) * Z) * (1 + e2);
cosine = (1 + (c - 1 / 2) * (1 + e1) * Z) * (1 + e2);
{ Z in [1b-1000,1b-22] /\ |ez| <= {{2 * u}} /\ |et| <= 1b-98 /\ |e1| <= 1b-95 /\ |e2| <= 1b-98
  -> |sine - Sine| <= {{REST_DD}} /\ |cosine - Cosine| <= {{REST_DD}} }
sine - Sine -> et + ((s - S) + (s - 1 / 6) * e1) * Z + e2 * (1 + et + (s - 1 / 6) * (1 + e1) * Z);
cosine - Cosine -> ((c - C) + (c - 1 / 2) * e1) * Z + e2 * (1 + (c - 1 / 2) * (1 + e1) * Z);
s_e - S -> ({{SIN_COEFFICIENTS[2][0]}} - 1 / 120) * zh + ({{SIN_COEFFICIENTS[3][0]}} + 1 / 5040) * zh * zh + (zh - Z) * (1 / 120 - (zh + Z) / 5040);
c_e - C -> ({{COS_COEFFICIENTS[2][0]}} - 1 / 24) * zh + ({{COS_COEFFICIENTS[3][0]}} + 1 / 720) * zh * zh + (zh - Z) * (1 / 24 - (zh + Z) / 720);
zh - Z -> (zh - Z * (1 + ez)) + Z * ez;
