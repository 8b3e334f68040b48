# rotate: rotations, their factors at given positions, and the preparation and execution of a call.

MAX_AXES = MAX_POSITION_AXES          # largest number of position axes of a rotation


cdef class Rotation:
    """A rotation of pairs of columns, by angles that depend on the position of each row.

    Parameters
    ----------
    axes : sequence of (Columns, bytes or None)
        The pairs of each axis of positions, at most `MAX_AXES` axes.  Columns 2 j and 2 j + 1 of each must be
        the cosine and the sine of one frequency, without an offset or a padding position.  All axes must have
        the same scale.  The bytes are an intp array, whose element j is the index of the pair that columns 2 j
        and 2 j + 1 rotate.  None, allowed only for a single axis, means that the index is j.
    head_dim : int
        Number of columns of an array.
    pairs : int
        Number of pairs.
    interleaved : bool
        Whether pair i is columns 2 i and 2 i + 1 of an array; otherwise, it is columns i and i + pairs.
    """

    cdef list axes
    cdef ptrdiff_t head_dim, pairs
    cdef bint interleaved

    def __cinit__(self, object axes, ptrdiff_t head_dim, ptrdiff_t pairs, bint interleaved):
        self.axes = list(axes)
        self.head_dim = head_dim
        self.pairs = pairs
        self.interleaved = interleaved


cdef class Factors:
    """Positions, and the factors of a rotation there, which are computed at the first rotation in each dtype.

    Parameters
    ----------
    rotation : Rotation
    positions : int, range or array_like
        As for `posenc.Rotary.tables`.
    inverse : bool

    Attributes
    ----------
    positions : ndarray of int64 or float64
        The positions, which must not be changed.  With several axes of positions, the first dimension selects
        the axis.
    inverse : bool
    nbytes : int
        Number of bytes of the positions and of the factors.
    """

    cdef Rotation rotation
    cdef readonly bint inverse
    cdef readonly object positions
    cdef positions_t p
    cdef ptrdiff_t rows, row_bytes
    cdef dict forms          # {dtype_t: (memory, direct_scale of rotation_t)}, for the dtypes computed so far

    def __cinit__(self, Rotation rotation not None, object positions, object inverse):
        cdef positions_t *p = &self.p
        self.inverse = checks.boolean("inverse", inverse)
        self.rotation = rotation
        self.forms = {}
        self.row_bytes = factor_pitch(rotation.pairs) * sizeof(double)
        read_positions(p, positions, 0)
        check_axes(p, rotation, positions)
        self.rows = p.rows // len(rotation.axes)
        self.positions = p.view.obj.copy() if p.is_array else arange(p.rows, dtype=int64) * <int64_t>p.step + <int64_t>p.start
        replace_positions(p, self.positions)
        settle_positions(p, NULL)

    def __dealloc__(self):
        release(&self.p, NULL)

    @property
    def nbytes(self):
        return self.positions.nbytes + self.rows * self.row_bytes * len(self.forms)


# ---- calls ---------------------------------------------------------------------------------------------

cdef struct rotation_call_t:
    run_t run
    positions_t positions
    Py_buffer x                         # not held if x is rotated in place
    layout_t source                     # the axes of x without its columns
    Py_buffer out
    rotation_t rotation                 # prepared, except for its axes of positions
    rotary_axis_t axes[MAX_POSITION_AXES]
    ptrdiff_t rows, heads, factor_rows
    int threads
    double *factors                     # the factors to compute, at factor_rows positions


def rotate(Rotation rotation not None, object x, object positions, object inverse, object out, object threads):
    """Rotate x: see `posenc.Rotary.rotate`."""
    cdef rotation_call_t call
    cdef positions_t *p = &call.positions
    cdef bint several = len(rotation.axes) > 1
    hold_nothing(p, &call.out)
    memset(&call.x, 0, sizeof(Py_buffer))
    try:
        call.rotation.inverse = inverse if type(inverse) is bool else checks.boolean("inverse", inverse)
        call.threads = threads_of(threads)
        if positions is not None:
            read_positions(p, positions, 0)
        hold_arrays(&call, rotation, x, out)
        if several:
            check_axes(p, rotation, positions)
        else:
            read_positions_of(p, positions, call.source, x, 0)
        divide_rows_and_heads(&call, x, several)
        settle_positions(p, &call.out)
        execute_rotation(&call, rotation, None)
    finally:
        release(p, &call.out)
        PyBuffer_Release(&call.x)


def rotate_at(Factors factors not None, object x, object positions, object out, object threads):
    """Rotate x at positions that are a view of those of `factors`: see `posenc.RotaryAt.rotate`."""
    cdef rotation_call_t call
    hold_nothing(&call.positions, &call.out)
    memset(&call.x, 0, sizeof(Py_buffer))
    try:
        call.rotation.inverse = factors.inverse
        call.threads = threads_of(threads)
        # the kernel uses only the first index and the strides, which are also those of the factors
        read_array(&call.positions, positions, PyBUF_STRIDES | PyBUF_FORMAT)
        hold_arrays(&call, factors.rotation, x, out)
        divide_rows_and_heads(&call, x, len(factors.rotation.axes) > 1)
        if call.positions.view.len:
            call.rotation.first_position = (<char *>call.positions.view.buf - <char *>factors.p.view.buf) // 8
        execute_rotation(&call, factors.rotation, factors)
    finally:
        release(&call.positions, &call.out)
        PyBuffer_Release(&call.x)


cdef int check_axes(const positions_t *p, Rotation rotation, object positions) except -1:
    """If a rotation has several axes of positions, check that the first dimension selects the axis."""
    cdef ptrdiff_t axes = len(rotation.axes)
    if axes > 1 and (not p.is_array or p.axes == 0 or p.shape[0] != axes):
        raise checks.axes_error(positions, axes)
    return 0


cdef int hold_arrays(rotation_call_t *call, Rotation rotation, object x, object out) except -1:
    """Check and hold the arrays of a rotation, after all conversions, which may run user code that
    changes x."""
    cdef DType element
    cdef rotation_t *r = &call.rotation
    cdef const Py_buffer *source = &call.x
    if not isinstance(x, ndarray):
        raise checks.wrong_type("x", x, "a numpy.ndarray")
    if x.ndim == 0 or x.shape[x.ndim - 1] != rotation.head_dim:
        raise ValueError(f"x has shape {x.shape}, expected (..., {rotation.head_dim})")
    element = element_of(x.dtype, "x has dtype", "float32")
    if element.code == FLOAT64:
        raise TypeError("x has dtype float64, expected float32, float16 or bfloat16: float64 would not be correctly rounded")
    if out is None or out is x:
        hold_rows(&call.out, x, element, "x")
        source = &call.out
    else:
        hold_rows(&call.x, x, element, "x", False)
        hold_rows(&call.out, out, element, "out")
        if out.dtype != x.dtype or out.shape != x.shape:
            raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}, expected {x.shape} and {x.dtype}, as x")
        if overlap(&call.x, &call.out) and (call.x.buf != call.out.buf or x.strides != out.strides):
            raise ValueError("the memory ranges of out and x overlap, expected x itself or an array in other memory")
    r.dtype = element.code
    r.interleaved = rotation.interleaved
    r.pairs = rotation.pairs
    r.rest = rotation.head_dim - 2 * rotation.pairs
    r.x = <const char *>source.buf
    r.out = <char *>call.out.buf
    r.factors = NULL
    r.direct_scale = 0
    r.first_position = 0
    call.source = layout_of(source, source.ndim - 1)
    return 0


cdef int divide_rows_and_heads(rotation_call_t *call, object x, bint several) except -1:
    """Divide the axes of x into rows and heads: see divide_axes in c/strides.h."""
    cdef positions_t *p = &call.positions
    cdef rotation_t *r = &call.rotation
    cdef layout_t layout
    layout.axes = p.axes
    layout.shape = p.shape
    layout.strides = <const ptrdiff_t *>p.view.strides if p.is_array else NULL
    if not divide_axes(r, call.source, <const ptrdiff_t *>call.out.strides, layout, several):
        checks.check_broadcast(p.view.obj.shape, x.shape[:x.ndim - 1], several)
        raise ValueError("x changed its shape during the call")
    call.rows = elements_of(&r.rows)
    call.heads = elements_of(&r.heads)
    return 0


# ---- execution -----------------------------------------------------------------------------------------


cdef int execute_rotation(rotation_call_t *call, Rotation rotation, Factors factors) except -1:
    """Rotate in blocks of rows and heads.  If `factors` is not None, use its cosines and sines."""
    cdef rotation_t *r = &call.rotation
    cdef list tables
    if call.out.len == 0:
        return 0
    if factors is None:
        tables = set_axes(call, rotation, &call.positions, True)
    else:
        tables = set_factors(call, factors)
    call.run.plan = plan_rotation(r, call.rows, call.heads, allowed_for(
        call.threads, <double>call.rows * (call.heads + DIRECT_HEADS) * rotation.head_dim, rotation_per_thread(r)))
    r.most_rows = call.run.plan.rows
    call.run.bytes = (active.rotation_memory(r) + LINE - 1) // LINE * LINE
    run_call(&call.run, rotation_block, "cosines and sines")
    return 0


cdef list set_factors(rotation_call_t *call, Factors factors):
    """Set the factors of a rotation, which are computed at the first rotation in its dtype.

    Return the factors and the tables of `set_axes`, which the caller must keep alive.
    """
    cdef rotation_t *r = &call.rotation
    cdef double size = <double>factors.rows * factors.row_bytes
    cdef tuple form = factors.forms.get(<int>r.dtype)
    cdef list tables = set_axes(call, factors.rotation, &factors.p, form is None)
    if form is None:                    # two threads may compute the same factors: see `arrange`
        form = allocate(size, f"the cosines and sines of {factors.rows} positions"), r.direct_scale
        call.factors = <double *>on_cache_line(form[0])
        call.factor_rows = factors.rows
        call.run.plan = plan_rotation(r, factors.rows, 1, allowed_for(
            call.threads, size / sizeof(double), rotation_per_thread(r)))
        call.run.bytes = call.run.plan.rows * factors.row_bytes if r.position_axes > 1 else 0
        run_call(&call.run, factors_block, "cosines and sines")
        factors.forms[<int>r.dtype] = form
    tables.append(form)                 # which another thread may replace
    r.factors = <double *>on_cache_line(form[0])
    r.direct_scale = form[1]
    return tables


cdef list set_axes(rotation_call_t *call, Rotation rotation, const positions_t *p, bint evaluated):
    """Set the axes of positions of a rotation.  Return the offset tables, which the caller must keep alive.

    If `evaluated`, also choose how to compute cosines and sines.
    """
    cdef Columns columns
    cdef rotation_t *r = &call.rotation
    cdef job_t *job
    cdef list tables = []
    cdef ptrdiff_t rows = p.rows // len(rotation.axes)
    cdef int i
    r.has_fast_path = True
    r.position_axes = len(rotation.axes)
    r.axis = call.axes
    for i in range(r.position_axes):
        columns, pair = rotation.axes[i]
        call.axes[i].spec = &columns.spec
        call.axes[i].pair = NULL
        if pair is not None:
            call.axes[i].pair = <const ptrdiff_t *><const char *>(<bytes>pair)
        job = &call.axes[i].table
        memset(job, 0, sizeof(job_t))
        job.dtype = FLOAT64
        job.output = STORE
        job.batch = 1
        set_positions(job, p, i * rows)
        if not 2.0**-64 <= abs(columns.spec.scale) <= 2.0**64:
            r.has_fast_path = False
        if evaluated:
            tables.append(arrange(job, NULL, rows, columns, call.threads))
            if job.offsets == NULL:
                r.direct_scale = abs(columns.spec.scale)
    return tables


cdef void rotation_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef rotation_call_t *call = <rotation_call_t *>context
    cdef plan_t *plan = &context.plan
    cdef ptrdiff_t row = which % plan.row_blocks * plan.rows, head = which // plan.row_blocks * plan.entries
    context.kernel.rotate(&call.rotation, row, min(plan.rows, call.rows - row), head, min(plan.entries, call.heads - head),
                          memory, tally)


cdef void factors_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef rotation_call_t *call = <rotation_call_t *>context
    cdef ptrdiff_t row = which * context.plan.rows, pitch = factor_pitch(call.rotation.pairs)
    context.kernel.write_factors(&call.rotation, row, min(context.plan.rows, call.factor_rows - row),
                                 call.factors + row * pitch, memory)
