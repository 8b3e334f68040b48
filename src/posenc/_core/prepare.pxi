# Prepare a call: read, convert and check each argument once, before anything is written.  The module `checks` does the less
# common conversions and raises the errors.  After this step, no argument is refused.

cdef struct table_call_t:
    # encode or add_to
    positions_t positions
    Py_buffer out                       # the array to which rows are stored or added
    dtype_t dtype
    output_t output                     # STORE or ADD
    double x_scale
    bint is_table                       # whether batch entries share positions; if not, there is a position for each row
    bint is_fresh                       # whether `out` is a new array
    int threads                         # 0 for the default


cdef struct rotation_call_t:
    positions_t positions
    Py_buffer x                         # not held if x is rotated in place
    Py_buffer out
    rotation_t rotation                 # execute.pxi sets its axes of positions
    ptrdiff_t rows, heads
    int threads


cdef class Numbers:
    """Immutable factors, in an array that begins on a cache line."""

    cdef void *memory
    cdef double *first
    cdef double direct_scale            # see rotation_t

    def __dealloc__(self):
        free(self.memory)


cdef class Factors:
    """Positions, and the factors of a rotation at these positions, computed at the first rotation in each dtype.

    Parameters
    ----------
    rotation : Rotation
    positions : int, range or array_like
        As for `posenc.Rotary.tables`.
    inverse : bool

    Attributes
    ----------
    positions : ndarray of int64 or float64
        The positions, which must not be changed.  With several axes of positions, the first dimension selects the axis.
    inverse : bool
    nbytes : int
        Bytes of the positions, of their indices and of the factors.
    """

    cdef Rotation rotation
    cdef readonly bint inverse
    cdef bint are_real                  # whether `values` contains float64 numbers, not int64 numbers
    cdef ptrdiff_t rows, row_bytes
    cdef dict forms                     # {dtype_t: Numbers}, for the dtypes computed so far
    cdef bytearray values               # not bytes, because torch does not accept read-only memory
    cdef tuple shape

    def __cinit__(self, Rotation rotation not None, object positions, object inverse):
        cdef positions_t p
        cdef int64_t *values
        cdef ptrdiff_t i, axes = len(rotation.axes)
        self.inverse = checks.boolean("inverse", inverse)
        self.rotation = rotation
        self.forms = {}
        self.row_bytes = factor_pitch(rotation.pairs) * sizeof(double)
        read_positions(&p, positions, 0)
        try:
            if p.reals != NULL:
                replace_positions(&p, checks.integers_if_whole(p.view.obj))
            if axes > 1 and (not p.is_array or p.axes == 0 or p.shape[0] != axes):
                raise checks.axes_error(positions, axes)
            self.rows = p.rows // axes
            self.shape = tuple([p.shape[i] for i in range(p.axes)])
            self.values = PyByteArray_FromStringAndSize(NULL, p.rows * sizeof(int64_t))
            self.are_real = p.reals != NULL
            values = <int64_t *>self.first_position()
            if p.is_array:
                memcpy(values, p.view.buf, p.rows * sizeof(int64_t))
            for i in range(0 if p.is_array else p.rows):
                values[i] = <int64_t>(p.start + <uint64_t>i * p.step)
        finally:
            release(&p)

    cdef const int64_t *first_position(self) noexcept:
        return <const int64_t *>PyByteArray_AsString(self.values)

    cdef void *allocated(self) except NULL:
        """Allocate memory for factors.  The caller must free it."""
        cdef void *memory = NULL
        if <double>self.rows * self.row_bytes < 2.0**60:
            memory = malloc(self.rows * self.row_bytes + LINE)
        if memory == NULL:
            raise MemoryError(f"Unable to allocate {<object>self.rows * self.row_bytes} bytes for the cosines and sines of "
                              f"{self.rows} positions, {self.row_bytes} bytes each")
        return memory

    @property
    def positions(self):
        """The positions, as an array of dtype int64 or float64, which must not be changed."""
        return frombuffer(self.values, float64 if self.are_real else int64).reshape(self.shape)

    @property
    def nbytes(self):
        return len(self.values) + self.rows * (sizeof(int64_t) + self.row_bytes * len(self.forms))


cdef void set_positions(positions_t *p, Factors factors) noexcept:
    """Let `p` point to the positions of `factors`."""
    if factors.are_real:
        p.reals = <const double *>factors.first_position()
    else:
        p.integers = factors.first_position()


cdef int thread_count(object threads) except -1:
    """Check `threads` and return it, limited to MAX_THREADS; return 0 for None."""
    if threads is None:
        return 0
    if type(threads) is not int or threads < 1:
        threads = checks.threads(threads)
    return MAX_THREADS if threads > MAX_THREADS else threads


def output_array(out, tuple shape, element, str dtype_name, str name):
    """Check and return `out`, or return a new array if `out` is None: see new_array for `name`."""
    if out is None:
        if dtype_name == "bfloat16" and element == uint16:
            raise checks.bfloat16_error()
        return new_array(shape, element, name)
    checks.check_array("out", out, element)
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}, expected {shape}")
    return out


cdef object shape_of(const positions_t *p, ptrdiff_t columns):
    """Return the shape of a table."""
    if p.axes == 1:
        return p.rows, columns
    return (*[p.shape[i] for i in range(p.axes)], columns)


cdef int separate(positions_t *p, const Py_buffer *written) except -1:
    """Copy the positions if they may share memory with the array that will be written."""
    if p.is_array and overlap(&p.view, written):
        replace_positions(p, p.view.obj.copy())
    return 0


cdef int replace_positions(positions_t *p, object array) except -1:
    """Release the positions, and hold the buffer of a converted array instead."""
    release(p)
    if not read_array(p, array):
        raise ValueError("positions changed its shape, dtype or strides during the call")
    return 0


# ---- encode and add_to -------------------------------------------------------------------------------------------------------


cdef object prepare_encode(table_call_t *call, const spec_t *spec, object positions, object dtype, object out, object threads):
    """Prepare a call of `encode`.  Return `out`, or a new array if `out` is None."""
    cdef Element element
    cdef positions_t *p = &call.positions
    cdef int axis
    if dtype is not None:
        element = element_of(dtype, "dtype is", "float64, float32")
    elif isinstance(out, ndarray):
        element = element_of(out.dtype, "out has dtype", "float64, float32")
    else:
        element = element_of("float32", None, None)
    call.output = STORE
    call.x_scale = 1
    call.dtype = element.code
    call.threads = thread_count(threads)
    read_positions(p, positions, spec.position_offset)
    call.is_table = p.axes == 1
    call.is_fresh = out is None
    if out is None:
        out = new_table_array(p, spec.d_model, element)
    hold_rows(&call.out, out, element, "out")
    if call.out.ndim != p.axes + 1 or call.out.shape[p.axes] != spec.d_model:
        raise ValueError(f"out has shape {out.shape}, expected {shape_of(p, spec.d_model)}")
    for axis in range(p.axes):
        if call.out.shape[axis] != p.shape[axis]:
            raise ValueError(f"out has shape {out.shape}, expected {shape_of(p, spec.d_model)}")
    separate(p, &call.out)
    return out


cdef object new_table_array(const positions_t *p, ptrdiff_t d_model, Element element):
    cdef ptrdiff_t itemsize = itemsize_of(element.code)
    shape = shape_of(p, d_model)
    if <double>p.rows * d_model < 2.0**58 and (element.code != BFLOAT16 or element.dtype != uint16):
        try:
            return aligned_array(shape, element.dtype, p.rows * d_model * itemsize)
        except MemoryError:
            pass
    return output_array(None, shape, element.dtype, "bfloat16" if element.code == BFLOAT16 else "", "positions")


cdef int prepare_add_to(table_call_t *call, const spec_t *spec, object x, object positions, object x_scale,
                        object threads) except -1:
    cdef Element element
    cdef positions_t *p = &call.positions
    cdef double factor
    cdef ptrdiff_t n = 0
    cdef int axis
    cdef bint matches
    call.output = ADD
    call.is_fresh = False
    if not isinstance(x, ndarray):
        checks.check_is_array("x", x)
    # Conversions may run user code that changes x, so x is checked after all of them.
    factor = finite_number(x_scale, "x_scale")
    call.threads = thread_count(threads)
    if positions is not None:
        read_positions(p, positions, spec.position_offset)
    element = element_of(x.dtype, "x has dtype", "float64, float32")
    call.dtype = element.code
    hold_rows(&call.out, x, element, "x")
    if call.out.shape[call.out.ndim - 1] != spec.d_model:
        raise ValueError(f"x has shape {x.shape}, expected (..., {spec.d_model})")
    call.x_scale = posenc_rounded(call.dtype, factor)
    if call.x_scale - call.x_scale != 0:
        raise ValueError(f"x_scale is {factor}, expected a number within the range of {x.dtype.name}")
    if call.out.ndim > 1:
        n = call.out.shape[call.out.ndim - 2]
    elif positions is None or not p.is_array:
        raise ValueError(f"x has shape {x.shape}, expected (..., n, {spec.d_model}) unless positions is an array")
    if positions is None:
        read_positions(p, n, spec.position_offset)
    call.is_table = p.axes == 1 and call.out.ndim > 1 and p.rows == n
    if not p.is_array and p.rows != n:
        raise checks.length_error(p.rows, n)
    if not call.is_table:
        matches = p.axes == call.out.ndim - 1
        for axis in range(p.axes):
            matches = matches and p.shape[axis] == call.out.shape[axis]
        if not matches:
            replace_positions(p, checks.broadcast(p.view.obj, x.shape[:x.ndim - 1]))
    separate(p, &call.out)
    return 0


cdef double finite_number(object value, str name) except? -1:
    """Return a finite number as a float64."""
    cdef double x
    if type(value) is float or type(value) is int and -(1 << 53) <= value <= 1 << 53:
        x = value
        if x - x == 0:
            return x
    with default_environment():
        return checks.real(name, value)


# ---- rotate ------------------------------------------------------------------------------------------------------------------


cdef int prepare_rotate(rotation_call_t *call, Rotation rotation, object x, object positions, object inverse, object out,
                        object threads, Factors factors=None) except -1:
    """Prepare a rotation.  If `factors` is given, `positions` are indices of its positions: a view of 0, 1, 2 ..."""
    cdef Element element
    cdef positions_t *p = &call.positions
    cdef rotation_t *r = &call.rotation
    cdef bint in_place = out is None or out is x
    cdef const Py_buffer *source
    checks.check_is_array("x", x, in_place)
    if type(inverse) is not bool:
        inverse = checks.boolean("inverse", inverse)
    # Conversions may run user code that changes x, so x is checked after all of them.
    call.threads = thread_count(threads)
    if factors is not None:
        view_rows(p, positions)
    elif positions is not None:
        read_positions(p, positions, 0)
    if x.ndim == 0 or x.shape[x.ndim - 1] != rotation.head_dim:
        raise ValueError(f"x has shape {x.shape}, expected (..., {rotation.head_dim})")
    element = element_of(x.dtype, "x has dtype", "float32")
    if element.code == FLOAT64:
        raise TypeError("x has dtype float64, expected float32, float16 or bfloat16: float64 would not be correctly rounded")
    if not in_place:
        hold_rows(&call.x, x, element, "x", False)
        checks.check_target(out, x)
        hold_rows(&call.out, out, element, "out")
        if overlap(&call.x, &call.out):
            if call.x.buf != call.out.buf or x.strides != out.strides:
                raise ValueError(
                    "the memory ranges of out and x overlap, expected x itself or an array in other memory")
    else:
        hold_rows(&call.out, x, element, "x")
    source = &call.out if in_place else &call.x
    r.dtype = element.code
    r.interleaved = rotation.interleaved
    r.inverse = inverse
    r.pairs = rotation.pairs
    r.rest = rotation.head_dim - 2 * rotation.pairs
    r.factors = NULL
    r.direct_scale = 0
    r.first_position = 0
    r.x = <const char *>source.buf
    r.out = <char *>call.out.buf
    r.skip_rounding_test = rounding_test_skipped
    prepare_rows_and_heads(call, rotation, x, positions, source, factors is None)
    if factors is not None:
        if p.view.len:
            r.first_position = (<const int64_t *>p.view.buf)[0]
        set_positions(p, factors)
        p.rows = factors.rows
        return 0
    separate(p, &call.out)
    return 0


cdef int view_rows(positions_t *p, object rows) except -1:
    """Hold the buffer of an array of indices of positions, a view of 0, 1, 2 ..."""
    cdef int i
    PyObject_GetBuffer(rows, &p.view, PyBUF_STRIDES)
    p.is_array = True
    p.start = p.step = 0
    p.integers = NULL
    p.reals = NULL
    p.axes = p.view.ndim
    for i in range(p.axes):
        p.shape[i] = p.view.shape[i]
    return 0


cdef int prepare_rows_and_heads(rotation_call_t *call, Rotation rotation, object x, object positions,
                                const Py_buffer *source, bint has_axes) except -1:
    """Divide the axes of x into axes along which the position changes (rows) and axes along which it does not (heads).

    If `has_axes` is set and there are several axes of positions, the first dimension of `positions` selects the axis.
    """
    cdef positions_t *p = &call.positions
    cdef rotation_t *r = &call.rotation
    cdef int several = has_axes and len(rotation.axes) > 1, axes = source.ndim - 1, axis, at, own
    cdef bint matches = True
    cdef ptrdiff_t stride
    cdef ptrdiff_t n = source.shape[axes - 1] if axes else 0
    if positions is None and axes and not several:
        read_positions(p, n, 0)
    if several:
        if not p.is_array or p.axes == 0 or p.shape[0] != len(rotation.axes):
            raise checks.axes_error(positions, len(rotation.axes))
    elif not p.is_array:
        if not axes:
            raise ValueError(f"x has shape {x.shape}, expected (..., n, {rotation.head_dim}) unless positions is an array")
        if p.rows != n:
            raise checks.length_error(p.rows, n)
    if p.reals != NULL:
        replace_positions(p, checks.integers_if_whole(p.view.obj))
    if p.is_array:
        own = p.axes - several
        matches = own == axes or own < 2 and own < axes
        if own < 2 and n > 1:               # a single position is not broadcast to n rows
            matches = own == 1 and p.shape[several] == n
    r.rows.axes = r.heads.axes = 0
    call.rows = call.heads = 1
    for axis in range(axes):
        at = axis - (axes - p.axes)
        if at < several or p.shape[at] == 1:
            append_axis(&r.heads, source.shape[axis], source.strides[axis], call.out.strides[axis], 0)
            call.heads *= source.shape[axis]
        else:
            matches = matches and p.shape[at] == source.shape[axis]
            stride = p.view.strides[at] // <ptrdiff_t>sizeof(int64_t) if p.is_array else 1
            append_axis(&r.rows, source.shape[axis], source.strides[axis], call.out.strides[axis], stride)
            call.rows *= source.shape[axis]
    if not matches:
        checks.check_broadcast(p.view.obj.shape, x.shape[:x.ndim - 1], several)
        raise ValueError("positions changed its shape, dtype or strides during the call")
    return 0
