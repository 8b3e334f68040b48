# The columns of an encoding, and arithmetic on their frequencies.


cdef class Columns:
    """The columns of an encoding as the kernels read them, with counters that decide when tables are built.

    Parameters
    ----------
    d_model : int
    turns : bytes
        uint32, shape (limbs, ``pitched(d_model)``), highest limb first: the frequencies of all columns in
        turns per position, then those of the first columns again.
    integer_limbs, fraction_limbs : int
        Numbers of limbs of `turns` before and after the binary point.
    sign, quarter : bytes
        uint64, one for each of these columns: `sign` is the sign bit of the frequency; `quarter` is all ones
        for a cosine, 0 for a sine.
    order : {0, 1, 2, 3}
        1 if columns 2 i and 2 i + 1 are sin and cos of one frequency, 2 if they are cos and sin; 3 if
        columns i and d_model / 2 + i are sin and cos, or cos and sin, of one frequency (used if d_model is a
        multiple of 2 * TILE); else 0.
    scale, position_offset : float
    padding_idx : int or None
        The position, before the offset, whose row is all zeros, or NaN if `padding_is_nan`.
    phase_bits : int or None
        If given, a product of an integer and a frequency in turns is a multiple of a quarter turn, or at
        least 2**-phase_bits turns away from one.
    zeros : float
        With `phase_bits`: the number of values in a row that are exactly 0, on average over integers.
    evaluate : callable
        An `exact.ExactColumns`, which evaluates the values that the kernels leave undecided.
    """

    cdef spec_t spec
    # number of rows so far that have a digit for each level: [0] in float32, float16 and bfloat16, [1] in float64
    cdef int64_t wanted[2][LEVELS]
    cdef double zeros
    cdef int64_t consecutive            # rows of all calls that needed the offset table of step 1
    cdef int fractions                  # as in digits_t
    cdef bytes radians                  # or None, before the first use of digit tables
    cdef tuple contents                 # identifies equal columns, and owns their arrays
    cdef frozenset key                  # `contents`, with its hash cached, or None before the first use
    cdef list last                      # for each kind of tables: None, or a weak reference to those used last
    cdef object evaluate

    def __cinit__(self, ptrdiff_t d_model, bytes turns, int integer_limbs, int fraction_limbs, bytes sign, bytes quarter,
                  int order, double scale, double position_offset, object padding_idx, bint padding_is_nan, object phase_bits,
                  double zeros, object evaluate):
        check_settings()
        turns += bytes(pitched(d_model) * sizeof(uint32_t))     # one more limb of zeros: see set_turns
        self.contents = turns, sign, quarter, integer_limbs, order, scale, phase_bits
        self.zeros, self.evaluate = zeros, evaluate
        self.last = [None, None, None]
        self.spec.d_model, self.spec.pitch = d_model, pitched(d_model)
        self.spec.columns = (d_model + TILE - 1) // TILE * TILE
        self.spec.integer_limbs, self.spec.fraction_limbs = integer_limbs, fraction_limbs
        self.spec.turns = <const uint32_t *><const char *>turns
        self.spec.sign = <const uint64_t *><const char *>sign
        self.spec.quarter = <const uint64_t *><const char *>quarter
        self.spec.order = order % 3
        self.spec.half = d_model // 2 if order == 3 and d_model % (2 * TILE) == 0 else 0
        self.spec.scale, self.spec.position_offset = scale, position_offset
        self.spec.padding_is_nan = padding_is_nan
        self.spec.phase_bits = NO_PHASE_BITS if phase_bits is None else phase_bits
        self.spec.has_padding = padding_idx is not None
        if padding_idx is not None:
            self.spec.padding = padding_idx
            self.spec.padding_real = padding_idx if float(padding_idx) == padding_idx else float("nan")
        self.spec.has_zero = floor(position_offset) == position_offset and position_offset > -2.0**63
        if self.spec.has_zero:
            self.spec.zero = -<int64_t>position_offset
        self.spec.has_fast_path = 2.0**-400 <= abs(scale) <= 2.0**400
        self.spec.has_fast_test = 2.0**-400 <= abs(scale) <= 2.0**10
        self.spec.context = <void *>evaluate


def pitched(ptrdiff_t d_model):
    """Return the number of columns in a specification's arrays: whole tiles, and one more for any first column."""
    return (d_model + TILE - 1) // TILE * TILE + TILE


def powers(bytes factors, ptrdiff_t count, ptrdiff_t dropped):
    """Return first * r**i for i = 0 ... count - 1, then 0.  `factors` has first and r * 2**(32 * dropped).

    All numbers are integers of the same number of uint32 limbs, lowest first.  The lowest `dropped` limbs of each
    product are discarded; of these, only the top two are computed, for the carry.  The error is below two units.
    """
    cdef ptrdiff_t limbs = len(factors) // 8, i, j, k
    cdef bytes memory = PyBytes_FromStringAndSize(NULL, (count + 1) * limbs * 4)
    cdef const uint32_t *ratio = <const uint32_t *><const char *>factors + limbs
    cdef uint32_t *to = <uint32_t *><char *>memory
    cdef const uint32_t *last
    cdef uint64_t low, high, product
    memcpy(to, <const char *>factors, limbs * 4)
    with nogil:
        for i in range(1, count):
            last = to
            to += limbs
            high = 0
            for k in range(max(0, dropped - 2), limbs + dropped):
                low = <uint32_t>high
                high >>= 32
                for j in range(max(0, k - limbs + 1), min(k + 1, limbs)):
                    product = <uint64_t>last[j] * ratio[k - j]
                    low += <uint32_t>product
                    high += product >> 32
                high += low >> 32
                if k >= dropped:
                    to[k - dropped] = <uint32_t>low
        memset(to + limbs, 0, limbs * 4)
    return memory
