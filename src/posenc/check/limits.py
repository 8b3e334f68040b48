"""Every threshold of this package, with its reason."""

import math

# ---- rounding -------------------------------------------------------------------------------------------------------

FLOAT32 = 2.0**-24          # half an ulp of float32, relative
TIGHT = 64 * FLOAT32        # frequencies computed in float32: the exponential of a rounded logarithm is off by 40 half ulps
LOOSE = 2.0**-7             # frequencies rounded to bfloat16, and again as a product: two half ulps of 2**-8
SIGMAS = 8                  # an estimate is accepted within this multiple of its error, because errors of sines are not normal
SLACK = 1.5                 # half ulps for correctly rounded values, because the parameters are estimates
NARROW_SHARE = 0.02         # angles halfway between two 16-bit numbers may be rounded either way: about 1 value in 200
NARROW_ROW = 0.5            # but not most values of one row
BLURRED = 0.75              # if the bound exceeds the values in more than this share of them, agreement proves nothing
SMALL = 1e-9                # smaller elements of a rotation matrix are rounding errors of zeros
ALIKE = 1e-2                # two elements of a matrix agree; float16 arithmetic is off by less
REPEATABLE = 1e-2           # two calls agree: SIMD code may round values at equal positions differently

# ---- samples --------------------------------------------------------------------------------------------------------

FIRST, SPREAD = 256, 128    # rows of a rotation's sample: the first ones, and evenly spaced ones
REACHES = tuple(2**k for k in (17, 15, 13, 12, 11, 10, 9, 8, 6, 4, 1))      # positions of a function, as far as its table goes
PROBES = 6                  # positions at which all unit vectors are rotated: 6 * 256**2 values at most
TABLE_SAMPLE = 2**20        # values in the first rows of a table's sample, 8 MiB as float64; 16 to 256 rows
NEAR, REACH = 2**12, 2**20  # largest |start| of a table: in the first search, then in the last one
OFFSETS = (0, 1, -1, 0.5, -0.5, *range(2, 33), *range(-2, -33, -1))   # of the positions of a rotation, the usual ones first
WIDEST = 2**16              # columns of a table; wider ones take minutes
CHUNK = 2**18               # values that are compared at a time: 2 MiB

# ---- fits -----------------------------------------------------------------------------------------------------------

KNOWN = 0.05                # error of the logarithm of a frequency: a larger one would bend the line of frequencies
MOST_PHASES = 0.7           # share of the pairs whose phases an offset must explain; the fastest may be unknown

PLACED = 0.15               # distance from a row of the table, as a share of the scale: noise of 0.05, three times

# ---- decisions ------------------------------------------------------------------------------------------------------

ENOUGH = 12                 # bits: a table must be explained better than by chance, one in 4,000
TIE = 24                    # bits: results this close are all reported; one with longer parameters may be the true one
FITTED_DIGITS = ((64, 1e-6), (4, 1e-12), (1, 1e-15))        # numbers are rounded within so many standard errors, and this error
PRESET_BITS, FIT_BITS, DIGIT_BITS = 5, 8, 3.4       # cost of one of 39 presets, of a fit, and of a decimal digit
MOST_OTHER_ROWS = 0.1       # rows of a table that may differ: padding, special tokens
NOISE = 0.1                 # noise above this share of the scale hides the convention
NOISE_ROWS = 32             # fewer rows may be near those of another convention, with errors that look like noise
VISIBLE = {"16 bits": 0.5, "wide": 0.05}    # typical error, as a share of the scale, beyond which columns prove nothing
GOOD_COLUMN = 0.9           # share of the rows that must agree for a column of the nearest convention
MOST_COLUMNS = 0.5          # share of the columns, or pairs, that the nearest candidate must explain
WIDEST_RATIO = math.log(1e20)       # of two frequencies in a fit: beyond it, one of them does not turn
EXTREME_BASE = 30           # logarithm of a base of e**30 or more: the fit went wrong
NOT_KNOWN = 0.1             # relative error of a frequency beyond which the report says that it is not determined
NO_DIGIT = 0.1              # default of `largest_error`: a larger error leaves no correct digit of a cosine
ERRORS_AT = (1_000, 100_000, 1_000_000)     # positions of a report; each stands for itself and the seven positions before it
