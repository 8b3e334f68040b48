# rotate: rotations, their factors at given positions, and the preparation and execution of a call.

MOST_AXES = MOST_POSITION_AXES          # largest number of position axes of a rotation


cdef class Rotation:
    """A rotation of pairs of columns, by angles that depend on the position of each row.

    Parameters
    ----------
    axes : sequence of (Columns, bytes or None)
        The pairs of each axis of positions.  Columns 2 j and 2 j + 1 of each must be the cosine and the sine of one frequency,
        without an offset or a padding position.  All axes must have the same scale.  The bytes are an intp array; element j is
        the index of the pair with this frequency.  None, allowed only for a single axis, means that this index is j.
    head_dim : int
        Number of columns of an array.
    pairs : int
        Number of pairs.
    interleaved : bool
        Whether pair i is columns 2 i and 2 i + 1 of an array; otherwise, it is columns i and i + pairs.
    """

    def __cinit__(self, object axes, ptrdiff_t head_dim, ptrdiff_t pairs, bint interleaved):
        if not 0 < len(axes) <= MOST_POSITION_AXES:
            raise ValueError(f"{len(axes)} axes of positions, expected 1 to {MOST_POSITION_AXES}")
        self.axes = list(axes)
        self.head_dim = head_dim
        self.pairs = pairs
        self.interleaved = interleaved


cdef class Numbers(Memory):
    """Immutable factors."""


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
            self.positions = (arange(p.rows, dtype=uint64) * uint64(p.step) + uint64(p.start)).view(int64)
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


cdef int prepare_rotate(rotation_call_t *call, Rotation rotation, object x, object positions, object inverse, object out,
                        object threads, bint has_factors) except -1:
    """Prepare a rotation.  If `has_factors`, `positions` are the rows of the factors: a view of 0, 1, 2 ..."""
    cdef Element element
    cdef positions_t *p = &call.positions
    cdef rotation_t *r = &call.rotation
    cdef bint in_place = out is None or out is x
    cdef const Py_buffer *source
    if not isinstance(x, ndarray):
        raise checks.array_type_error("x", x, in_place)
    if type(inverse) is not bool:
        inverse = checks.boolean("inverse", inverse)
    # Conversions may run user code that changes x, so x is checked after all of them.
    call.threads = threads_of(threads)
    if has_factors:
        hold_view(p, positions)
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
    prepare_rows_and_heads(call, rotation, x, positions, source, not has_factors and len(rotation.axes) > 1)
    if not has_factors:
        settle_positions(p, &call.out)
    elif p.view.len:
        r.first_position = (<const int64_t *>p.view.buf)[0]
    return 0


cdef int hold_view(positions_t *p, object rows) except -1:
    """Hold the buffer of a view of 0, 1, 2 ...: of the first number and the strides, the kernel computes all others."""
    cdef int i
    PyObject_GetBuffer(rows, &p.view, PyBUF_STRIDES)
    p.is_array = True
    p.integers = NULL
    p.reals = NULL
    p.axes = p.view.ndim
    for i in range(p.axes):
        p.shape[i] = p.view.shape[i]
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
    call.rows = size_of(&r.rows)
    call.heads = size_of(&r.heads)
    return 0


# ---- execution ---------------------------------------------------------------------------------------------------------------

cdef struct rotation_run_t:
    run_t run
    const rotation_t *rotation
    rotary_axis_t axes[MOST_POSITION_AXES]
    ptrdiff_t rows, heads
    double *factors                     # the factors to compute


cdef int execute_rotation(rotation_call_t *call, Rotation rotation, Factors factors) except -1:
    """Rotate in blocks of rows and heads.  If `factors` is not None, use its cosines and sines."""
    cdef rotation_t *r = &call.rotation
    cdef rotation_run_t run
    cdef plan_t *plan = &run.run.plan
    cdef Numbers numbers = None
    cdef list tables
    cdef int threads
    if call.out.len == 0:
        return 0
    if factors is not None:
        numbers = <Numbers>factors.forms.get(<int>r.dtype)
    tables = set_axes(r, &run, rotation, &call.positions if factors is None else &factors.p, numbers is None, call.threads)
    if factors is not None:
        if numbers is None:             # two threads may compute the same factors: see `advance`
            numbers = new_numbers(factors, r, &run, call.threads)
            factors.forms[<int>r.dtype] = numbers
        r.factors = <double *>numbers.first
        r.direct_scale = numbers.direct_scale
    plan[0] = plan_rotation(r, call.rows, call.heads)
    threads = thread_count(plan, call.threads)
    divide_rotation(plan, r, call.rows, call.heads, threads)
    r.most_rows = plan.rows
    run.rows = call.rows
    run.heads = call.heads
    run.run.bytes = (active.rotation_memory(r) + LINE - 1) // LINE * LINE
    run_call(rotation_block, &run.run, plan.blocks, threads, "cosines and sines")
    return 0


cdef list set_axes(rotation_t *r, rotation_run_t *run, Rotation rotation, const positions_t *p, bint evaluated, int threads):
    """Set the axes of positions of a rotation.  Return the offset tables, which the caller must keep alive.

    If `evaluated`, cosines and sines are computed; choose how.
    """
    cdef Columns columns
    cdef job_t *job
    cdef list tables = []
    cdef ptrdiff_t rows = p.rows // len(rotation.axes)
    cdef int i
    r.has_fast_path = True
    r.position_axes = len(rotation.axes)
    r.axis = run.axes
    for i in range(r.position_axes):
        columns, pair = rotation.axes[i]
        run.axes[i].spec = &columns.spec
        run.axes[i].pair = NULL
        if pair is not None:
            run.axes[i].pair = <const ptrdiff_t *><const char *>(<bytes>pair)
        job = &run.axes[i].table
        memset(job, 0, sizeof(job_t))
        job.dtype = FLOAT64
        job.output = STORE
        job.batch = 1
        job.start = p.start
        job.step = p.step
        job.integers = p.integers + i * rows if p.integers != NULL else NULL
        job.reals = p.reals + i * rows if p.reals != NULL else NULL
        if not 2.0**-64 <= abs(columns.spec.scale) <= 2.0**64:
            r.has_fast_path = False
        if evaluated:
            tables.append(advance(job, rows, columns, ROWS_FOR_TABLE, threads))
            if job.offsets == NULL and job.reals == NULL:
                r.direct_scale = abs(columns.spec.scale)
    run.rotation = r
    return tables


cdef void rotation_block(run_t *context, ptrdiff_t which, int thread) noexcept nogil:
    cdef rotation_run_t *run = <rotation_run_t *>context
    cdef plan_t *plan = &context.plan
    cdef ptrdiff_t row = which % plan.row_blocks * plan.rows, head = which // plan.row_blocks * plan.entries
    context.kernel.rotate(run.rotation, row, min(plan.rows, run.rows - row), head, min(plan.entries, run.heads - head),
                          context.memory + thread * context.bytes, &context.slots[thread].tally)


cdef Numbers new_numbers(Factors factors, const rotation_t *r, rotation_run_t *run, int threads):
    """Compute the factors of a rotation at all positions."""
    cdef Numbers result = Numbers.__new__(Numbers)
    cdef plan_t *plan = &run.run.plan
    allocate(result, <double>factors.rows * factors.row_bytes, f"the cosines and sines of {factors.rows} positions")
    run.factors = <double *>result.first
    result.direct_scale = r.direct_scale
    plan[0] = plan_factors(r, factors.rows)
    run.rows = factors.rows
    run.run.bytes = plan.rows * factors.row_bytes if r.position_axes > 1 else 0
    run_call(factors_block, &run.run, plan.blocks, thread_count(plan, threads), "cosines and sines")
    return result


cdef void factors_block(run_t *context, ptrdiff_t which, int thread) noexcept nogil:
    cdef rotation_run_t *run = <rotation_run_t *>context
    cdef ptrdiff_t row = which * context.plan.rows, pitch = factor_pitch(run.rotation.pairs)
    context.kernel.factors(run.rotation, row, min(context.plan.rows, run.rows - row), run.factors + row * pitch,
                           context.memory + thread * context.bytes)
