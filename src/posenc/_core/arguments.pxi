# Reads and checks the arguments of a call before anything is written: threads, dtypes, arrays with rows, and
# positions.  The module `checks` converts less common kinds of arguments, and creates most errors.

cdef enum:
    ALIGNED_BYTES = 1 << 12             # arrays of at least this size start on a cache line
    MAPPED_BYTES = 1 << 22              # arrays of at least this size start on a huge page: see new_rows
    HUGE_PAGE = 1 << 21

# buffer format of each dtype_t; bfloat16 has none, so its bits are read as uint16
cdef const char *BUFFER_FORMATS = "dfeH"
cdef dict ELEMENTS = {}                 # {dtype argument: DType}


cdef class DType:
    """A dtype.  For bfloat16, `dtype` may be uint16, for arrays of the bits."""

    cdef dtype_t code
    cdef object dtype


cdef class default_environment:
    """A context with the default rounding mode and without flush-to-zero, for arithmetic in Python.

    The kernels set and restore their floating-point environment themselves.
    """

    cdef environment_t host

    def __enter__(self):
        self.host = environment_enter()

    def __exit__(self, *error):
        environment_leave(self.host)


cdef int threads_of(object threads) except -1:
    """Return `threads`, limited to MAX_THREADS, or 0 for None."""
    if threads is None:
        return 0
    if type(threads) is not int or threads < 1:
        threads = checks.threads(threads)
    return MAX_THREADS if threads > MAX_THREADS else threads


cdef double finite_number(object value, str name) except? -1:
    """Return a finite number as a float64."""
    cdef double x
    if type(value) is float or type(value) is int and -(1 << 53) <= value <= 1 << 53:
        x = value
        if x - x == 0:
            return x
    with default_environment():
        return checks.real(name, value)


cdef DType element_of(object dtype, str subject, str expected):
    """Return the DType for a dtype argument.  The error for an unsupported dtype begins with `subject`."""
    cdef DType element = None
    try:
        element = ELEMENTS.get(dtype)
    except TypeError:                   # not hashable
        pass
    if element is None:
        name, converted = arrays.dtype(dtype, subject, expected)
        element = DType.__new__(DType)
        element.code = <dtype_t><int>DTYPES[name].code
        element.dtype = converted
        if converted.name == name:      # false if uint16 holds the bits of bfloat16 numbers
            for key in (converted, converted.type, name):
                ELEMENTS[key] = element
    return element


# ---- arrays --------------------------------------------------------------------------------------------


cdef object new_rows(tuple shape, double values, DType element, str name):
    """Return an uninitialised array of `values` elements; a large one starts on a cache line or a huge page.

    NumPy asks the system for huge pages for arrays of at least MAPPED_BYTES.  Without a huge page, the system
    takes longer to provide its 512 small pages than the kernel takes to write them.  If the array is too large,
    the error states the argument that determines its size, `name`.
    """
    cdef Py_buffer view
    cdef double size = values * size_of(element.code)
    cdef ptrdiff_t past, alignment = LINE if size < MAPPED_BYTES else HUGE_PAGE
    if element.code == BFLOAT16 and element.dtype == uint16:
        feature = "dtype bfloat16 without an array `out` of uint16"
        raise checks.not_installed(feature, "ml_dtypes")
    try:
        if not ALIGNED_BYTES <= size < 2.0**62:
            return empty(shape, element.dtype)
        memory = empty(<ptrdiff_t>size + alignment, uint8)
        PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
        past = -<uintptr_t>view.buf % alignment
        PyBuffer_Release(&view)
        return ndarray(shape, element.dtype, memory, past)
    except (MemoryError, ValueError) as error:
        raise arrays.too_large(name, shape, error) from None


def output_array(out, tuple shape, str dtype_name, str name):
    """Check and return `out`, or return a new array if `out` is None.  new_rows describes `name`."""
    cdef DType element = element_of(dtype_name, None, None)
    cdef Py_buffer view
    if out is None:
        return new_rows(shape, prod(shape), element, name)
    memset(&view, 0, sizeof(Py_buffer))
    try:
        hold_rows(&view, out, element, "out")
    finally:
        PyBuffer_Release(&view)
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}, expected {shape}")
    return out


cdef int hold_rows(Py_buffer *view, object array, DType element, str name, bint written=True) except -1:
    """Hold the buffer of an array; check its dtype, and that the elements of a row are contiguous and aligned.

    If `written`, the array must be writeable, and its rows must not overlap.  The caller releases the buffer, even
    after an error.
    """
    cdef ptrdiff_t itemsize = size_of(element.code)
    cdef uintptr_t addresses
    cdef int last_axis, axis
    cdef bint is_aligned
    if type(array) is not ndarray and type(array) is not memmap:
        raise checks.wrong_type(name, array, "a numpy.ndarray")
    try:
        bits = array.view(uint16) if element.code == BFLOAT16 and array.dtype == element.dtype else array
        PyObject_GetBuffer(bits, view, PyBUF_STRIDES | PyBUF_FORMAT)
    except (BufferError, ValueError):
        raise arrays.dtype_error(name, array.dtype, element.dtype) from None
    addresses = <uintptr_t>view.buf
    for axis in range(view.ndim):
        if view.shape[axis] > 1:
            addresses |= <uintptr_t>view.strides[axis]
    is_aligned = addresses % <uintptr_t>itemsize == 0
    if view.format[0] != BUFFER_FORMATS[<int>element.code] or view.format[1] != 0:
        if is_aligned or array.dtype != element.dtype:  # the format of an array also depends on its alignment
            raise arrays.dtype_error(name, array.dtype, element.dtype)
    if written and view.readonly:
        raise ValueError(f"{name} is read-only, expected a writeable array")
    if view.ndim == 0:
        raise ValueError(f"{name} has shape (), expected at least one dimension")
    if view.len == 0:
        return 0
    if not is_aligned:
        raise ValueError(f"{name} is not aligned, expected elements at multiples of {itemsize} bytes")
    last_axis = view.ndim - 1
    if view.shape[last_axis] > 1 and view.strides[last_axis] != itemsize:
        raise ValueError(
            f"{name} has strides {array.strides}, expected a contiguous last dimension (a last stride of {itemsize})")
    if written and not rows_are_apart(layout_of(view, last_axis), view.shape[last_axis] * itemsize):
        raise ValueError(f"{name} has strides {array.strides}, expected rows that do not overlap")
    return 0


cdef layout_t layout_of(const Py_buffer *view, int axes) noexcept:
    """Return the first axes of an array."""
    cdef layout_t layout
    layout.axes = axes
    layout.shape = <const ptrdiff_t *>view.shape
    layout.strides = <const ptrdiff_t *>view.strides
    return layout


cdef bint overlap(const Py_buffer *read, const Py_buffer *written) noexcept:
    """Whether the address ranges of two arrays overlap, so that the arrays may share memory."""
    return ranges_overlap(memory_range_of(read.buf, layout_of(read, read.ndim), read.itemsize),
                          memory_range_of(written.buf, layout_of(written, written.ndim), written.itemsize))


# ---- positions -----------------------------------------------------------------------------------------


cdef struct positions_t:
    # evenly spaced positions from `start` on, or an array of integers or reals
    ptrdiff_t rows
    uint64_t start, step
    const int64_t *integers
    const double *reals
    int axes                            # of the array
    ptrdiff_t shape[MAX_DIMENSIONS]
    bint is_array
    Py_buffer view                      # of the array
    int64_t *whole                      # memory of the integers that replace reals, or NULL


cdef int read_positions(positions_t *p, object positions, double offset) except -1:
    """Read positions; hold the buffer if they are an array.  Each position + offset must lie in the
    domain, [-2**63, 2**63)."""
    if type(positions) is int or type(positions) is range:
        if read_range(p, positions, offset):
            return 0
    elif type(positions) is ndarray and read_array(p, positions):
        if are_reals_inside(p.reals, p.rows, offset) if p.reals != NULL else are_integers_inside(p.integers, p.rows, offset):
            return 0
    with default_environment():
        positions = checks.positions_of(positions, offset)
    if type(positions) is range:
        read_range(p, positions, 0)
        return 0
    return replace_positions(p, positions)


cdef int read_positions_of(positions_t *p, object positions, layout_t rows, object x, double offset) except -1:
    """Read 0, 1, 2 ... if `positions` is None.  Check that positions other than an array match the rows of x."""
    if rows.axes and positions is None:
        read_positions(p, rows.shape[rows.axes - 1], offset)
    elif p.is_array:
        return 0
    elif not rows.axes:
        raise ValueError(f"x has shape {x.shape}, expected (..., n, {x.shape[0]}) unless positions is an array")
    if p.rows != rows.shape[rows.axes - 1]:
        raise checks.length_error(p.rows, rows.shape[rows.axes - 1])
    return 0


cdef bint read_range(positions_t *p, object positions, double offset) except -1:
    """Read an int or a range; return False for a negative int, or if a position may be outside the domain."""
    cdef int64_t start = 0, end = 0
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
            end = p.rows - 1
        else:
            p.rows = len(positions)
            if p.rows:
                start = end = positions.start
            p.start = <uint64_t>start
            if p.rows > 1:
                end = positions[p.rows - 1]
                p.step = positions.step % (1 << 64)
    except OverflowError:
        return False
    p.shape[0] = p.rows
    return is_inside(min(start, end), max(start, end), offset)


cdef bint read_array(positions_t *p, object positions, int flags=PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) except -1:
    """Hold the buffer of an int64 or float64 array, which is contiguous by default; return False for
    other arrays."""
    cdef Py_buffer *view = &p.view
    cdef int i
    try:
        PyObject_GetBuffer(positions, view, flags)
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


cdef int replace_positions(positions_t *p, object array) except -1:
    """Release the positions, and hold the buffer of a converted array instead."""
    release(p, NULL)
    if not read_array(p, array):
        raise ValueError("positions changed its shape, dtype or strides during the call")
    return 0


cdef int settle_positions(positions_t *p, const Py_buffer *written) except -1:
    """Copy positions that may share memory with the array that will be written, if any.  Then replace reals
    by integers if all of them are integers."""
    if p.is_array and written != NULL and overlap(&p.view, written):
        replace_positions(p, p.view.obj.copy())
    if p.is_array and p.reals != NULL:
        with nogil:
            p.whole = integers_of(p.reals, p.rows)
        if p.whole != NULL:             # all are integers, which are computed faster as such
            p.integers = p.whole
            p.reals = NULL
    return 0


cdef void set_positions(job_t *job, const positions_t *p, ptrdiff_t first) noexcept:
    """Set the positions of a job: those of an array from `first` on, or evenly spaced ones."""
    job.start = p.start
    job.step = p.step
    job.integers = p.integers + first if p.integers != NULL else NULL
    job.reals = p.reals + first if p.reals != NULL else NULL


cdef void hold_nothing(positions_t *p, Py_buffer *array) noexcept:
    """Initialise positions and an array, so that they hold no buffer."""
    p.is_array = False
    p.whole = NULL
    memset(array, 0, sizeof(Py_buffer))


cdef void release(positions_t *p, Py_buffer *array) noexcept:
    """Release what positions and an array hold."""
    if p.is_array:
        PyBuffer_Release(&p.view)
        free(p.whole)
        p.whole = NULL
        p.is_array = False
    if array != NULL:
        PyBuffer_Release(array)
