# rotate: rotations, their factors at given positions, and the preparation and execution of a call.

MOST_AXES = MOST_POSITION_AXES          # largest number of position axes of a rotation


cdef class Rotation:
    """A rotation of pairs of columns, by angles that depend on the position of each row.

    Parameters
    ----------
    axes : sequence of (Columns, bytes or None)
        The pairs of each axis of positions, at most `MOST_AXES` axes.  Columns 2 j and 2 j + 1 of each must be the cosine and
        the sine of one frequency, without an offset or a padding position.  All axes must have the same scale.  The bytes are
        an intp array; element j is the index of the pair with this frequency.  None, allowed only for a single axis, means
        that this index is j.
    head_dim : int
        Number of columns of an array.
    pairs : int
        Number of pairs.
    interleaved : bool
        Whether pair i is columns 2 i and 2 i + 1 of an array; otherwise, it is columns i and i + pairs.
    """

    def __cinit__(self, object axes, ptrdiff_t head_dim, ptrdiff_t pairs, bint interleaved):
        self.axes = list(axes)
        self.head_dim = head_dim
        self.pairs = pairs
        self.interleaved = interleaved


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

    def __cinit__(self, Rotation rotation not None, object positions, object inverse):
        cdef positions_t *p = &self.p
        self.inverse = checks.boolean("inverse", inverse)
        self.rotation = rotation
        self.forms = {}
        self.row_bytes = factor_pitch(rotation.pairs) * sizeof(double)
        read_positions(p, positions, 0)
        check_axes(p, rotation, positions)
        self.rows = p.rows // len(rotation.axes)
        if p.is_array:
            self.positions = p.view.obj.copy()
        else:
            self.positions = arange(p.rows, dtype=int64)
            if p.start != 0 or p.step != 1:
                self.positions = (self.positions.view(uint64) * uint64(p.step) + uint64(p.start)).view(int64)
        replace_positions(p, self.positions)
        use_integers(p)

    def __dealloc__(self):
        release(&self.p)

    @property
    def nbytes(self):
        return self.positions.nbytes + self.rows * (<ptrdiff_t>sizeof(int64_t) + self.row_bytes * len(self.forms))


# ---- preparation -------------------------------------------------------------------------------------------------------------


cdef int check_axes(const positions_t *p, Rotation rotation, object positions) except -1:
    """If a rotation has several axes of positions, check that the first dimension selects the axis."""
    cdef ptrdiff_t axes = len(rotation.axes)
    if axes > 1 and (not p.is_array or p.axes == 0 or p.shape[0] != axes):
        raise checks.axes_error(positions, axes)
    return 0


cdef int prepare_rotate(rotation_call_t *call, Rotation rotation, Factors factors, object x, object positions,
                        object inverse, object out, object threads) except -1:
    """Prepare a rotation.  If `factors` is not None, `positions` are some of their rows: a view of 0, 1, 2 ..."""
    cdef Element element
    cdef positions_t *p = &call.positions
    cdef rotation_t *r = &call.rotation
    cdef bint in_place = out is None or out is x
    cdef const Py_buffer *source
    if not isinstance(x, ndarray):
        raise checks.wrong_type("x", x, "a numpy.ndarray")
    if factors is not None:
        inverse = factors.inverse
    elif type(inverse) is not bool:
        inverse = checks.boolean("inverse", inverse)
    # Conversions may run user code that changes x, so x is checked after all of them.
    call.threads = threads_of(threads)
    if factors is not None:
        read_array(p, positions, PyBUF_STRIDES | PyBUF_FORMAT)      # of its numbers, the kernel reads only the first
    elif positions is not None:
        read_positions(p, positions, 0)
    if x.ndim == 0 or x.shape[x.ndim - 1] != rotation.head_dim:
        raise ValueError(f"x has shape {x.shape}, expected (..., {rotation.head_dim})")
    element = element_of(x.dtype, "x has dtype", "float32")
    if element.code == FLOAT64:
        raise TypeError("x has dtype float64, expected float32, float16 or bfloat16: float64 would not be correctly rounded")
    if not in_place:
        hold_rows(&call.x, x, element, "x", False)
        hold_rows(&call.out, out, element, "out")
        if out.dtype != x.dtype or out.shape != x.shape:
            raise ValueError(f"out has shape {out.shape} and dtype {out.dtype}, expected {x.shape} and {x.dtype}, as x")
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
    r.x = <const char *>source.buf
    r.out = <char *>call.out.buf
    r.factors = NULL
    r.direct_scale = 0
    r.first_position = 0
    prepare_rows_and_heads(call, rotation, x, positions, source, factors is None and len(rotation.axes) > 1)
    if factors is None:
        settle_positions(p, &call.out)
    elif p.view.len:
        r.first_position = p.integers[0]
    return 0


cdef int prepare_rows_and_heads(rotation_call_t *call, Rotation rotation, object x, object positions,
                                const Py_buffer *source, bint several) except -1:
    """Divide the axes of x.  If `several`, the first dimension of positions selects the axis of positions."""
    cdef positions_t *p = &call.positions
    cdef rotation_t *r = &call.rotation
    cdef layout_t layout_of_positions
    cdef int axes = source.ndim - 1
    cdef ptrdiff_t n = source.shape[axes - 1] if axes else 0
    if several:
        check_axes(p, rotation, positions)
    elif positions is None and axes:
        read_positions(p, n, 0)
    elif not p.is_array and not axes:
        raise ValueError(f"x has shape {x.shape}, expected (..., n, {rotation.head_dim}) unless positions is an array")
    elif not p.is_array and p.rows != n:
        raise checks.length_error(p.rows, n)
    layout_of_positions.axes = p.axes
    layout_of_positions.shape = p.shape
    layout_of_positions.strides = NULL
    if p.is_array:
        layout_of_positions.strides = <const ptrdiff_t *>p.view.strides
    if not divide_axes(r, layout_of(source, axes), <const ptrdiff_t *>call.out.strides, layout_of_positions, several):
        checks.check_broadcast(p.view.obj.shape, x.shape[:x.ndim - 1], several)
        raise ValueError("x changed its shape during the call")
    call.rows = elements_of(&r.rows)
    call.heads = elements_of(&r.heads)
    return 0


# ---- execution ---------------------------------------------------------------------------------------------------------------


cdef int execute_rotation(rotation_call_t *call, Rotation rotation, Factors factors) except -1:
    """Rotate in blocks of rows and heads.  If `factors` is not None, use its cosines and sines."""
    cdef rotation_t *r = &call.rotation
    cdef tuple form = None
    cdef list tables
    if call.out.len == 0:
        return 0
    if factors is not None:
        form = factors.forms.get(<int>r.dtype)
    tables = set_axes(call, rotation, &call.positions if factors is None else &factors.p, form is None)
    if factors is not None:
        if form is None:                # two threads may compute the same factors: see `advance`
            form = new_form(call, factors)
            factors.forms[<int>r.dtype] = form
        r.factors = <double *>on_cache_line(<char *><bytes>form[0])
        r.direct_scale = form[1]
    call.run.plan = plan_rotation(r, call.rows, call.heads, allowed_for(
        call.threads, <double>call.rows * (call.heads + DIRECT_HEADS) * rotation.head_dim, rotation_per_thread(r)))
    r.most_rows = call.run.plan.rows
    call.run.bytes = (active.rotation_memory(r) + LINE - 1) // LINE * LINE
    run_call(rotation_block, &call.run, "cosines and sines")
    return 0


cdef list set_axes(rotation_call_t *call, Rotation rotation, const positions_t *p, bint evaluated):
    """Set the axes of positions of a rotation.  Return the offset tables, which the caller must keep alive.

    If `evaluated`, cosines and sines are computed; choose how.
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
            tables.append(arrange(job, rows, columns, ROWS_FOR_TABLE, call.threads))
            if job.offsets == NULL and job.reals == NULL:
                r.direct_scale = abs(columns.spec.scale)
    return tables


cdef void rotation_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef rotation_call_t *call = <rotation_call_t *>context
    cdef plan_t *plan = &context.plan
    cdef ptrdiff_t row = which % plan.row_blocks * plan.rows, head = which // plan.row_blocks * plan.entries
    context.kernel.rotate(&call.rotation, row, min(plan.rows, call.rows - row), head, min(plan.entries, call.heads - head),
                          memory, tally)


cdef tuple new_form(rotation_call_t *call, Factors factors):
    """Compute the factors at all positions of `factors` for the dtype of a rotation."""
    cdef bytes memory
    cdef double size = <double>factors.rows * factors.row_bytes
    memory = allocate(size, f"the cosines and sines of {factors.rows} positions")
    call.factors = <double *>on_cache_line(<char *>memory)
    call.factor_rows = factors.rows
    call.run.plan = plan_factors(&call.rotation, factors.rows, allowed_for(
        call.threads, size / sizeof(double), rotation_per_thread(&call.rotation)))
    call.run.bytes = call.run.plan.rows * factors.row_bytes if call.rotation.position_axes > 1 else 0
    run_call(factors_block, &call.run, "cosines and sines")
    return memory, call.rotation.direct_scale


cdef void factors_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef rotation_call_t *call = <rotation_call_t *>context
    cdef ptrdiff_t row = which * context.plan.rows, pitch = factor_pitch(call.rotation.pairs)
    context.kernel.factors(&call.rotation, row, min(context.plan.rows, call.factor_rows - row), call.factors + row * pitch,
                           memory)
