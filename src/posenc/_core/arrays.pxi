# Arrays: allocation, the buffers and rows of arguments, and tests for overlapping memory.

cdef enum:
    ALIGNED_BYTES = 1 << 12             # arrays of at least this size start on a cache line

cdef const char *FORMATS = "dfeH"       # format of the buffer of each dtype_t; bfloat16 has none, but its bits have


cdef class Element:
    """A dtype; that of the bits of bfloat16 may be uint16."""

    cdef dtype_t code
    cdef object dtype


cdef dict ELEMENTS = {}                 # {dtype argument: Element}


cdef Element element_of(object dtype, str subject, str expected):
    """Return the element for a dtype argument.  The error for an unsupported dtype begins with `subject`."""
    cdef Element element = None
    try:
        element = ELEMENTS.get(dtype)
    except TypeError:                   # not hashable
        pass
    if element is None:
        name, converted = checks.dtype(dtype, subject, expected)
        element = Element.__new__(Element)
        element.code = <dtype_t><int>DTYPES[name].code
        element.dtype = converted
        if converted.name == name:      # false if uint16 holds the bits of bfloat16 numbers
            for key in (converted, converted.type, name):
                ELEMENTS[key] = element
    return element


cdef ptrdiff_t itemsize_of(dtype_t dtype) noexcept nogil:
    return 8 if dtype == FLOAT64 else 4 if dtype == FLOAT32 else 2


cdef object aligned_array(tuple shape, object element, ptrdiff_t size):
    """Return an uninitialised array of `size` bytes; a large array starts on a cache line."""
    cdef Py_buffer view
    if size < ALIGNED_BYTES:
        return empty(shape, element)
    memory = empty(size + LINE, uint8)
    PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
    size = <char *>on_cache_line(view.buf) - <char *>view.buf
    PyBuffer_Release(&view)
    return ndarray(shape, element, memory, size)


def new_array(tuple shape, element, str name):
    """Return an uninitialised array.  `name` is the argument that determines its size, for the error if it is too large."""
    size = prod(shape) * element.itemsize
    try:
        return aligned_array(shape, element, size) if size < 2**62 else empty(shape, element)
    except (MemoryError, ValueError) as error:
        raise checks.too_large(name, shape, error) from None


cdef bint read_rows(Py_buffer *view, object array, Element element, int flags) except -1:
    """Hold the buffer of an array that has a dtype and contiguous rows; return False for other arrays."""
    if element.code == BFLOAT16 and array.dtype == element.dtype:
        array = array.view(uint16)
    try:
        PyObject_GetBuffer(array, view, flags | PyBUF_FORMAT)
    except (BufferError, ValueError):
        return False
    if (view.format[0] == FORMATS[<int>element.code] and view.format[1] == 0 and view.ndim > 0
            and (view.len == 0 or <uintptr_t>view.buf % <size_t>view.itemsize == 0
                 and (view.shape[view.ndim - 1] == 1 or view.strides[view.ndim - 1] == view.itemsize))):
        return True
    PyBuffer_Release(view)
    return False


cdef int hold_rows(Py_buffer *view, object array, Element element, str name, bint written=True) except -1:
    """Check an array and hold its buffer.  If `written`, the array must be writeable and its rows must not overlap."""
    cdef int flags = PyBUF_STRIDES | PyBUF_WRITABLE if written else PyBUF_STRIDES
    if type(array) is ndarray and read_rows(view, array, element, flags):
        if not written or are_rows_apart(view):
            return 0
        PyBuffer_Release(view)
    checks.check_array(name, array, element.dtype, written)
    if not read_rows(view, array, element, flags):
        raise ValueError(f"{name} changed its dtype or strides during the call")
    return 0


cdef bint are_rows_apart(const Py_buffer *view) noexcept:
    """Whether no rows of an array overlap, that is, each stride spans all rows of the axes with smaller strides."""
    cdef uint64_t used = 0
    cdef ptrdiff_t stride, least, extent
    cdef int axes = view.ndim - 1, i, _, chosen
    if view.len == 0:
        return True
    extent = view.shape[axes] * view.itemsize
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


cdef void span(const Py_buffer *view, char **lowest, char **beyond) noexcept:
    """Set `lowest` to the address of the first byte of an array, and `beyond` to the address after its last byte."""
    cdef int i
    lowest[0] = <char *>view.buf
    beyond[0] = lowest[0] + view.itemsize
    for i in range(view.ndim):
        if view.strides[i] < 0:
            lowest[0] += (view.shape[i] - 1) * view.strides[i]
        else:
            beyond[0] += (view.shape[i] - 1) * view.strides[i]


cdef bint overlap(const Py_buffer *read, const Py_buffer *written) noexcept:
    """Whether the address ranges of two arrays overlap, so that the arrays may share memory."""
    cdef char *first
    cdef char *beyond
    cdef char *other_first
    cdef char *other_beyond
    if read.len == 0 or written.len == 0:
        return False
    span(read, &first, &beyond)
    span(written, &other_first, &other_beyond)
    return first < other_beyond and other_first < beyond


cdef struct rows_t:
    # the rows of an array; adjacent axes are merged if a single stride describes them
    char *data
    int axes
    ptrdiff_t shape[MOST_DIMENSIONS]
    ptrdiff_t strides[MOST_DIMENSIONS]


cdef void merge_axes(rows_t *rows, char *data, const Py_ssize_t *shape, const Py_ssize_t *strides, int axes) noexcept:
    """Set `rows`, and merge adjacent axes if a single stride describes them."""
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


cdef void append_axis(extent_t *extent, ptrdiff_t length, ptrdiff_t x_stride, ptrdiff_t out_stride,
                      ptrdiff_t position_stride) noexcept:
    """Append an axis, or merge it with the last axis if a single stride describes both in x, in `out` and in the positions."""
    cdef int last = extent.axes - 1
    if length == 1:
        return
    if (last >= 0 and extent.x_strides[last] == length * x_stride and extent.out_strides[last] == length * out_stride
            and extent.position_strides[last] == length * position_stride):
        extent.shape[last] *= length
    else:
        last = extent.axes
        extent.axes += 1
        extent.shape[last] = length
    extent.x_strides[last] = x_stride
    extent.out_strides[last] = out_stride
    extent.position_strides[last] = position_stride
