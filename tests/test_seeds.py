"""Tables printed by the notebooks that preceded this library.

The notebooks use float32 arithmetic, but its errors do not change the printed digits: each correctly rounded
value is within half a unit of the last printed digit.
"""

from decimal import Decimal

import posenc

PAPER = """
 0.0000  1.0000  0.0000  1.0000  0.0000  1.0000
 0.8415  0.5403  0.0464  0.9989  0.0022  1.0000
 0.9093 -0.4161  0.0927  0.9957  0.0043  1.0000
 0.1411 -0.9900  0.1388  0.9903  0.0065  1.0000
-0.7568 -0.6536  0.1846  0.9828  0.0086  1.0000
-0.9589  0.2837  0.2300  0.9732  0.0108  0.9999
-0.2794  0.9602  0.2749  0.9615  0.0129  0.9999
 0.6570  0.7539  0.3192  0.9477  0.0151  0.9999
 0.9894 -0.1455  0.3629  0.9318  0.0172  0.9999
 0.4121 -0.9111  0.4057  0.9140  0.0194  0.9998
"""

# d_model 11; this table ends before the end of the last row
ODD = """
 0.0000e+00  1.0000e+00  0.0000e+00  1.0000e+00  0.0000e+00  1.0000e+00  0.0000e+00  1.0000e+00  0.0000e+00  1.0000e+00  0.0000e+00
 8.4147e-01  5.4030e-01  1.8629e-01  9.8250e-01  3.5105e-02  9.9938e-01  6.5793e-03  9.9998e-01  1.2328e-03  1.0000e+00  2.3101e-04
 9.0930e-01 -4.1615e-01  3.6605e-01  9.3059e-01  7.0166e-02  9.9754e-01  1.3158e-02  9.9991e-01  2.4657e-03  1.0000e+00  4.6203e-04
 1.4112e-01 -9.8999e-01  5.3300e-01  8.4611e-01  1.0514e-01  9.9446e-01  1.9737e-02  9.9981e-01  3.6985e-03  9.9999e-01  6.9304e-04
-7.5680e-01 -6.5364e-01  6.8129e-01  7.3201e-01  1.3999e-01  9.9015e-01  2.6314e-02  9.9965e-01  4.9314e-03  9.9999e-01  9.2405e-04
-9.5892e-01  2.8366e-01  8.0573e-01  5.9228e-01  1.7466e-01  9.8463e-01  3.2891e-02  9.9946e-01  6.1642e-03
"""

# an exponent per column
PER_COLUMN_8 = """
 0.0000000e+00  1.0000000e+00  0.0000000e+00  1.0000000e+00  0.0000000e+00  1.0000000e+00  0.0000000e+00  1.0000000e+00
 8.4147096e-01  9.5041525e-01  9.9833414e-02  9.9950004e-01  9.9998331e-03  9.9999499e-01  9.9999981e-04  9.9999994e-01
 9.0929741e-01  8.0657840e-01  1.9866933e-01  9.9800068e-01  1.9998666e-02  9.9997997e-01  1.9999987e-03  9.9999982e-01
 1.4112000e-01  5.8275360e-01  2.9552022e-01  9.9550337e-01  2.9995501e-02  9.9995500e-01  2.9999956e-03  9.9999952e-01
-7.5680250e-01  3.0113748e-01  3.8941833e-01  9.9201065e-01  3.9989334e-02  9.9992001e-01  3.9999895e-03  9.9999923e-01
"""


def assert_prints(values, table):
    """Assert that `values` round to a printed table, which may end before the last of them."""
    for value, cell in zip(values.ravel().tolist(), map(Decimal, table.split()), strict=False):
        unit = Decimal(1).scaleb(cell.as_tuple().exponent)
        assert abs(Decimal(value) - cell) <= unit / 2, f"{value!r} does not print as {cell}"


def test_table_of_the_paper():
    assert_prints(posenc.encode(10, 6), PAPER)


def test_table_of_odd_d_model():
    assert_prints(posenc.encode(6, 11), ODD)


def test_exponents_per_column():
    assert_prints(posenc.encode(10, 8, exponents="column"), PER_COLUMN_8)
