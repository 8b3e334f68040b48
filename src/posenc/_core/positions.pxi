# Positions: an int, a range, or the buffer of an int64 or float64 array.

cdef struct positions_t:
    # evenly spaced positions from `start` on, or an array of integers or reals
    ptrdiff_t rows
    uint64_t start, step
    const int64_t *integers
    const double *reals
    int axes                            # of the array
    ptrdiff_t shape[MOST_DIMENSIONS]
    bint is_array
    Py_buffer view                      # of the array


cdef int read_positions(positions_t *p, object positions, double offset) except -1:
    """Read positions; hold the buffer if they are an array.  Each position + offset must lie in the domain, [-2**63, 2**63)."""
    p.is_array = False
    if type(positions) is int or type(positions) is range:
        if read_range(p, positions, offset):
            return 0
    elif type(positions) is ndarray and read_array(p, positions):
        if is_array_inside(p, offset):
            return 0
        release(p)
    with default_environment():
        positions = checks.converted_positions(positions, offset)
    if not (read_range(p, positions, 0) if type(positions) is range else read_array(p, positions)):
        raise ValueError("positions changed its shape, dtype or strides during the call")
    return 0


cdef bint read_range(positions_t *p, object positions, double offset) except -1:
    """Read an int or a range; return False for a negative int, or if a position may be outside the domain."""
    cdef int64_t start = 0, last = 0
    p.axes = 1
    p.integers = NULL
    p.reals = NULL
    p.start = 0
    p.step = 1
    try:
        if type(positions) is int:
            p.rows = positions
            if p.rows < 0:
                return False
            last = p.rows - 1
        else:
            p.rows = len(positions)
            if p.rows:
                start = last = positions.start
            p.start = <uint64_t>start
            if p.rows > 1:
                last = positions[p.rows - 1]
                p.step = (<uint64_t>last - <uint64_t>start) // <uint64_t>(p.rows - 1) if last > start else \
                    -((<uint64_t>start - <uint64_t>last) // <uint64_t>(p.rows - 1))
    except OverflowError:
        return False
    p.shape[0] = p.rows
    return is_inside(min(start, last), max(start, last), offset)


cdef bint read_array(positions_t *p, object positions) except -1:
    """Hold the buffer of a contiguous int64 or float64 array; return False for other arrays."""
    cdef Py_buffer *view = &p.view
    cdef int i
    try:
        PyObject_GetBuffer(positions, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    except (BufferError, ValueError):
        return False
    p.start = p.step = 0
    p.integers = NULL
    p.reals = NULL
    p.rows = view.len // 8
    p.axes = view.ndim
    for i in range(view.ndim):
        p.shape[i] = view.shape[i]
    if view.itemsize == 8 and view.format[1] == 0 and <uintptr_t>view.buf % 8 == 0:
        if view.format[0] == b"d":
            p.reals = <const double *>view.buf
            p.is_array = True
        elif view.format[0] in b"lq":
            p.integers = <const int64_t *>view.buf
            p.is_array = True
    if not p.is_array:
        PyBuffer_Release(view)
    return p.is_array


cdef void release(positions_t *p) noexcept:
    if p.is_array:
        PyBuffer_Release(&p.view)
        p.is_array = False


cdef bint is_inside(int64_t lowest, int64_t highest, double offset) noexcept:
    """Whether position + offset is certain to lie in the domain for all positions from `lowest` to `highest`."""
    cdef int64_t half = <int64_t>1 << 62
    return offset == 0 or -half <= lowest and highest < half and -half <= offset <= half


cdef bint is_array_inside(const positions_t *p, double offset) noexcept:
    """Whether position + offset is certain to lie in the domain for a whole array; NaN and infinity are accepted."""
    cdef double bound = 2.0**63 if offset == 0 else 2.0**62
    cdef int64_t lowest = 0, highest = 0
    cdef ptrdiff_t i
    if p.reals != NULL:
        if offset != 0 and not -bound <= offset <= bound:
            return False
        for i in range(p.rows):
            # the comparisons are false for NaN, and inf - inf is NaN
            if (p.reals[i] >= bound or p.reals[i] < -bound) and p.reals[i] - p.reals[i] == 0:
                return False
        return True
    if offset != 0:
        for i in range(p.rows):
            lowest = min(lowest, p.integers[i])
            highest = max(highest, p.integers[i])
    return is_inside(lowest, highest, offset)


cdef uint64_t spacing(job_t *job, ptrdiff_t rows) noexcept:
    """Return the absolute step between the positions of rows that angle addition can compute, or 0 if there are none.

    An evenly spaced array of integers is replaced by its first position and its step.
    """
    cdef ptrdiff_t matches
    cdef uint64_t step
    if job.reals != NULL:
        return 0
    if job.integers == NULL:
        return -job.step if <int64_t>job.step < 0 else job.step
    with nogil:
        step = majority_step(job.integers, rows, &matches)
        if step and matches == rows - 1 and is_monotonic(job.integers, rows, step):
            job.start = <uint64_t>job.integers[0]
            job.step = step if job.integers[rows - 1] > job.integers[0] else -step
            job.integers = NULL
    return step


cdef uint64_t distance(int64_t a, int64_t b) noexcept nogil:
    """Return the absolute difference of two positions."""
    return <uint64_t>b - <uint64_t>a if b > a else <uint64_t>a - <uint64_t>b


cdef uint64_t majority_step(const int64_t *p, ptrdiff_t rows, ptrdiff_t *matches) noexcept nogil:
    """Return the distance that at least half of all pairs of neighbours have, or 0; set `matches` to the number of these pairs.

    The Boyer-Moore vote always finds a distance that more than half of the pairs have.  It may miss a distance that exactly
    half of them have; the result is then 0.
    """
    cdef uint64_t step = 1
    cdef ptrdiff_t i, votes = 0
    for i in range(rows - 1):
        if votes == 0:
            step = distance(p[i], p[i + 1])
        votes += 1 if distance(p[i], p[i + 1]) == step else -1
    matches[0] = 0
    for i in range(rows - 1):
        matches[0] += distance(p[i], p[i + 1]) == step
    return step if 2 * matches[0] >= rows - 1 else 0


cdef bint is_monotonic(const int64_t *p, ptrdiff_t rows, uint64_t step) noexcept nogil:
    """Whether positions only rise or only fall.  All neighbours must be `step` apart, and `step` must be positive.

    The division is exact.  A product of `step` and the number of pairs could exceed 64 bits.
    """
    return distance(p[0], p[rows - 1]) // step == <uint64_t>(rows - 1)


cdef int64_t *integers_of(const double *reals, ptrdiff_t rows) noexcept nogil:
    """Allocate an array of the positions as integers.  Return NULL if a position is not an integer or memory is exhausted."""
    cdef ptrdiff_t i
    cdef int64_t *integers
    for i in range(rows):
        if floor(reals[i]) != reals[i] or reals[i] - reals[i] != 0:
            return NULL
    integers = <int64_t *>malloc(rows * sizeof(int64_t))
    if integers != NULL:
        for i in range(rows):
            integers[i] = <int64_t>reals[i]
    return integers
