"""Read positions and the rows of arrays into C structures for the kernels.

The readers handle the common cases.  They return False for other arguments, which `_arguments` converts or refuses.
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.math cimport floor
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport malloc
from posenc._core.kernel cimport extent_t


cdef extern from "kernel.h":
    enum:
        MOST_AXES


cdef struct positions_t:
    # evenly spaced from `start`, or an array of integers or of reals
    ptrdiff_t rows
    uint64_t start, step
    const int64_t *integers
    const double *reals
    int axes                            # of the array
    ptrdiff_t shape[MOST_AXES]


cdef struct rows_t:
    # the rows of an array; adjacent axes that one stride covers are merged
    char *data
    int axes
    ptrdiff_t shape[MOST_AXES]
    ptrdiff_t strides[MOST_AXES]


cdef inline bint is_inside(int64_t lowest, int64_t highest, double offset) noexcept:
    """Whether position + offset is certain to lie in the domain for all positions from `lowest` to `highest`."""
    cdef int64_t half = <int64_t>1 << 62
    return offset == 0 or -half <= lowest and highest < half and -half <= offset <= half


cdef inline bint read_range(object positions, double offset, bint checked, positions_t *p) except -1:
    """Read an int or a range; return False for a negative int or, unless `checked`, if a position may be outside the domain."""
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
                start = positions.start
                last = positions[p.rows - 1]
            p.start = <uint64_t>start
            if p.rows > 1:
                p.step = (<uint64_t>last - <uint64_t>start) // <uint64_t>(p.rows - 1) if last > start else \
                    -((<uint64_t>start - <uint64_t>last) // <uint64_t>(p.rows - 1))
    except OverflowError:
        return False
    p.shape[0] = p.rows
    return checked or is_inside(min(start, last), max(start, last), offset)


cdef inline bint read_array(object positions, double offset, bint checked, Py_buffer *view, positions_t *p) except -1:
    """Hold the buffer of a contiguous int64 or float64 array; return False for other arrays.

    Unless `checked`, also return False if a position may be outside the domain.
    """
    cdef ptrdiff_t i
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
            if checked or are_reals_inside(p.reals, p.rows, offset):
                return True
        elif view.format[0] in b"lq":
            p.integers = <const int64_t *>view.buf
            if checked or are_integers_inside(p.integers, p.rows, offset):
                return True
    PyBuffer_Release(view)
    return False


cdef inline bint are_reals_inside(const double *p, ptrdiff_t rows, double offset) noexcept:
    cdef double bound = 2.0**63 if offset == 0 else 2.0**62
    cdef ptrdiff_t i
    if offset != 0 and not -bound <= offset <= bound:
        return False
    for i in range(rows):
        # accepts NaN (its comparisons are false) and infinity (inf - inf is NaN): their rows are NaN
        if (p[i] >= bound or p[i] < -bound) and p[i] - p[i] == 0:
            return False
    return True


cdef inline bint are_integers_inside(const int64_t *p, ptrdiff_t rows, double offset) noexcept:
    cdef int64_t lowest = 0, highest = 0
    cdef ptrdiff_t i
    if offset != 0:
        for i in range(rows):
            lowest = min(lowest, p[i])
            highest = max(highest, p[i])
    return is_inside(lowest, highest, offset)


cdef inline bint are_rows_apart(const Py_buffer *view, ptrdiff_t extent) noexcept:
    """Whether rows of `extent` bytes do not overlap: each stride must span all rows of the axes with smaller strides."""
    cdef uint64_t used = 0
    cdef ptrdiff_t stride, least
    cdef int axes = view.ndim - 1, i, _, chosen
    for _ in range(axes):
        chosen = -1
        least = 0
        for i in range(axes - 1, -1, -1):
            stride = view.strides[i] if view.strides[i] >= 0 else -view.strides[i]
            if view.shape[i] > 1 and not used >> i & 1 and (chosen < 0 or stride < least):
                chosen = i
                least = stride
        if chosen < 0:
            return True
        if least < extent or least % view.itemsize:
            return False
        used |= <uint64_t>1 << chosen
        extent = least * view.shape[chosen]
    return True


cdef inline bint read_rows(object array, ptrdiff_t itemsize, ptrdiff_t d_model, bint checked, Py_buffer *view,
                           int flags=PyBUF_STRIDES | PyBUF_WRITABLE) except -1:
    """Hold the buffer of an array whose rows have d_model contiguous elements; by default, it must be writeable.

    Return False for other arrays and, unless `checked`, if rows may overlap.
    """
    try:
        PyObject_GetBuffer(array, view, flags)
    except (BufferError, ValueError):
        return False
    if (view.ndim > 0 and view.itemsize == itemsize and view.shape[view.ndim - 1] == d_model
            and (view.len == 0 or <uintptr_t>view.buf % <size_t>itemsize == 0
                 and (d_model == 1 or view.strides[view.ndim - 1] == itemsize))):
        if checked or view.len == 0:
            return True
        if are_rows_apart(view, d_model * itemsize):
            return True
    PyBuffer_Release(view)
    return False


cdef inline void merge_axes(rows_t *rows, char *data, const Py_ssize_t *shape, const Py_ssize_t *strides, int axes) noexcept:
    """Merge adjacent axes if one stride covers them."""
    cdef int i, n = 0
    for i in range(axes):
        if shape[i] == 1:
            continue
        if n and rows.strides[n - 1] == shape[i] * strides[i]:
            rows.shape[n - 1] *= shape[i]
            rows.strides[n - 1] = strides[i]
        else:
            rows.shape[n] = shape[i]
            rows.strides[n] = strides[i]
            n += 1
    if n == 0:
        rows.shape[0] = 1
        rows.strides[0] = 0
        n = 1
    rows.data = data
    rows.axes = n


cdef inline void append_axis(extent_t *extent, ptrdiff_t length, ptrdiff_t x_stride, ptrdiff_t out_stride) noexcept:
    """Append an axis, or merge it with the last one if one stride covers both."""
    cdef int last = extent.axes - 1
    if length == 1:
        return
    if (last >= 0 and extent.x_strides[last] == length * x_stride and extent.out_strides[last] == length * out_stride):
        extent.shape[last] *= length
    else:
        last = extent.axes
        extent.axes += 1
        extent.shape[last] = length
    extent.x_strides[last] = x_stride
    extent.out_strides[last] = out_stride


cdef inline void span(const Py_buffer *view, char **lowest, char **beyond) noexcept:
    """Set `lowest` to the address of the first byte of an array, and `beyond` to the address after its last byte."""
    cdef int i
    lowest[0] = <char *>view.buf
    beyond[0] = lowest[0] + view.itemsize
    for i in range(view.ndim):
        if view.strides[i] < 0:
            lowest[0] += (view.shape[i] - 1) * view.strides[i]
        else:
            beyond[0] += (view.shape[i] - 1) * view.strides[i]


cdef inline bint overlap(const Py_buffer *read, const Py_buffer *written) noexcept:
    """Whether two arrays may share memory: their ranges of addresses overlap."""
    cdef char *first
    cdef char *beyond
    cdef char *other_first
    cdef char *other_beyond
    if read.len == 0 or written.len == 0:
        return False
    span(read, &first, &beyond)
    span(written, &other_first, &other_beyond)
    return first < other_beyond and other_first < beyond


cdef inline uint64_t distance(int64_t a, int64_t b) noexcept nogil:
    """The distance between two positions, up or down."""
    return <uint64_t>b - <uint64_t>a if b > a else <uint64_t>a - <uint64_t>b


cdef inline uint64_t majority_step(const int64_t *p, ptrdiff_t rows, ptrdiff_t *matches) noexcept nogil:
    """Return the distance that at least half of the pairs of neighbours have, else 0; count the pairs in `matches`.

    The Boyer-Moore vote always finds a distance that more than half have.  It may miss one that exactly half have, and
    then returns 0.
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


cdef inline bint is_monotonic(const int64_t *p, ptrdiff_t rows, uint64_t step) noexcept nogil:
    """Whether positions only rise or only fall; all neighbours must be `step` apart, which must be positive.

    The division is exact.  The product of `step` and the number of pairs could exceed 64 bits.
    """
    return distance(p[0], p[rows - 1]) // step == <uint64_t>(rows - 1)


cdef inline int64_t *integers_of(const double *reals, ptrdiff_t rows) noexcept nogil:
    """Return positions as integers, which the caller must free; NULL if one is not an integer or memory is exhausted."""
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
