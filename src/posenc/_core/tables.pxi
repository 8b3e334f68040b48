# encode and add_to: the columns of an encoding, its offset tables, and the preparation and execution of a call.

cdef enum:
    KEPT_TABLES = 2                     # most offset tables that an encoding keeps
    KEPT_COLUMNS = 1 << 13              # most columns of a kept table; a column takes 1.3 kB


cdef class Offsets:
    """An immutable offset table for positions that are `step` apart, with the columns from `first` on."""


cdef class Columns:
    """The columns of an encoding as the kernels read them, and the offset tables of consecutive positions.

    Parameters
    ----------
    d_model : int
    turns : bytes
        uint32, shape (limbs, ``pitched(d_model)``), highest limb first: the frequencies of all columns in turns per position,
        then those of the first columns again.
    integer_limbs, fraction_limbs : int
        Limbs of `turns` before and after the point.
    sign, quarter : bytes
        uint64, one for each of these columns: `sign` is the sign bit of the frequency; `quarter` is all ones for a cosine,
        0 for a sine.
    order : {0, 1, 2}
        1 if columns 2 i and 2 i + 1 are sin and cos of one frequency, 2 if they are cos and sin, else 0.
    scale, position_offset : float
    padding_idx : int or None
        The position, before the offset, whose row is all zeros.
    value : callable
        An `exact.Values`, which evaluates the values that the kernels leave undecided.
    """

    def __cinit__(self, ptrdiff_t d_model, bytes turns, int integer_limbs, int fraction_limbs, bytes sign, bytes quarter,
                  int order, double scale, double position_offset, object padding_idx, object value):
        check_settings()
        self.memory = (turns, sign, quarter)
        self.value = value
        self.tables = []
        memset(&self.spec, 0, sizeof(spec_t))
        self.spec.d_model = d_model
        self.spec.columns = (d_model + TILE - 1) // TILE * TILE
        self.spec.pitch = pitched(d_model)
        self.spec.integer_limbs = integer_limbs
        self.spec.fraction_limbs = fraction_limbs
        self.spec.turns = <const uint32_t *><const char *>turns
        self.spec.sign = <const uint64_t *><const char *>sign
        self.spec.quarter = <const uint64_t *><const char *>quarter
        self.spec.order = order
        self.spec.scale = scale
        self.spec.position_offset = position_offset
        self.spec.has_padding = padding_idx is not None
        if padding_idx is not None:
            self.spec.padding = padding_idx
            self.spec.padding_real = padding_idx if float(padding_idx) == padding_idx else float("nan")
        self.spec.has_zero = floor(position_offset) == position_offset and position_offset > -2.0**63
        if self.spec.has_zero:
            self.spec.zero = -<int64_t>position_offset
        self.spec.has_fast_path = 2.0**-400 <= abs(scale) <= 2.0**400
        self.spec.fast_test = 2.0**-400 <= abs(scale) <= 2.0**10
        self.spec.context = <void *>value


def pitched(ptrdiff_t d_model):
    """Return the number of columns in a specification's arrays: whole tiles, and one more tile to allow any first column."""
    return (d_model + TILE - 1) // TILE * TILE + TILE


# ---- offset tables -----------------------------------------------------------------------------------------------------------

cdef struct offsets_run_t:
    # an offset table that is computed in blocks of tiles
    run_t run
    const spec_t *spec
    const offsets_t *offsets


cdef Offsets advance(job_t *job, ptrdiff_t rows, Columns columns, ptrdiff_t least_rows, int threads):
    """Set the offset table with which the rows of a job are advanced, and return it; None if they are evaluated directly.

    Positions that are evenly spaced are replaced.  If the table is not kept, `least_rows` is the fewest rows for which it is
    built.  No lock is held while a table is built, because a child process that is forked at this time would inherit the lock
    in its locked state.  Two threads may therefore build the same table.
    """
    cdef Offsets table, result = None
    cdef job_t advanced
    cdef uint64_t step
    cdef ptrdiff_t first
    cdef bint is_kept
    job.offsets = NULL
    job.panel = 0
    if rows < ROWS_WITH_TABLE:
        return None
    advanced = job[0]
    if job.integers == NULL:
        step = spacing(&advanced, rows)
    else:
        with nogil:
            step = spacing(&advanced, rows)
    # the limit keeps step times the longest offset inside the int64 range
    if not 0 < step < <uint64_t>1 << 50:
        return None
    first = choose_output(&advanced, &columns.spec, rows)
    is_kept = step == 1 and columns.spec.columns <= KEPT_COLUMNS
    if is_kept:
        least_rows = ROWS_FOR_KEPT_TABLE
        with cython.critical_section(columns):
            for table in columns.tables:
                if table.table.first == first:
                    result = table
    if result is None:
        if rows < least_rows:
            return None
        result = new_offsets(&columns.spec, step, first, threads)
        if is_kept:
            with cython.critical_section(columns):
                columns.tables = [result, *columns.tables[:KEPT_TABLES - 1]]
    job[0] = advanced
    job.offsets = &result.table
    return result


cdef Offsets new_offsets(const spec_t *spec, uint64_t step, ptrdiff_t first, int threads):
    cdef Offsets result = Offsets.__new__(Offsets)
    cdef offsets_run_t run
    cdef double size = <double>OFFSETS_PER_COLUMN * spec.columns * sizeof(double)
    result.memory = allocate(size, f"the offset table of d_model {spec.d_model}")
    result.table = offsets_in(<double *>on_cache_line(<char *>result.memory), spec.columns, step, first)
    run.run.bytes = 0
    run.spec = spec
    run.offsets = &result.table
    run.run.plan = plan_offsets(spec)
    run_call(offsets_block, &run.run, run.run.plan.blocks, thread_count(&run.run.plan, threads), None)
    return result


cdef void offsets_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef offsets_run_t *run = <offsets_run_t *>context
    cdef ptrdiff_t first = which * context.plan.rows
    context.kernel.tabulate(run.spec, run.offsets, first, min(first + context.plan.rows, run.spec.columns // TILE))


# ---- preparation -------------------------------------------------------------------------------------------------------------


cdef object shape_of(const positions_t *p, ptrdiff_t columns):
    """Return the shape of a table."""
    if p.axes == 1:
        return p.rows, columns
    return (*[p.shape[i] for i in range(p.axes)], columns)


cdef Element output_element(object dtype, object out):
    """Return the element of the output.  The default is the dtype of `out`, or float32 if `out` is not an array."""
    if dtype is not None:
        return element_of(dtype, "dtype is", "float64, float32")
    if isinstance(out, ndarray):
        return element_of(out.dtype, "out has dtype", "float64, float32")
    return element_of("float32", None, None)


cdef object prepare_encode(table_call_t *call, const spec_t *spec, object positions, object dtype, object out, object threads):
    """Prepare a call of `encode`.  Return `out`, or a new array if `out` is None."""
    cdef Element element = output_element(dtype, out)
    cdef positions_t *p = &call.positions
    cdef ptrdiff_t columns
    call.job.output = STORE
    call.job.x_scale = 1
    call.job.dtype = element.code
    call.threads = threads_of(threads)
    read_positions(p, positions, spec.position_offset)
    call.is_table = p.axes == 1
    if out is None:
        out = new_rows(shape_of(p, spec.d_model), <double>p.rows * spec.d_model, element, "positions")
    hold_rows(&call.out, out, element, "out")
    columns = call.out.shape[call.out.ndim - 1]
    if columns != spec.d_model or not has_shape(layout_of(&call.out, call.out.ndim - 1), p.axes, p.shape):
        raise ValueError(f"out has shape {out.shape}, expected {shape_of(p, spec.d_model)}")
    settle_positions(p, &call.out)
    return out


cdef int prepare_add_to(table_call_t *call, const spec_t *spec, object x, object positions, object x_scale,
                        object threads) except -1:
    cdef Element element
    cdef positions_t *p = &call.positions
    cdef double factor
    cdef ptrdiff_t n = 0
    call.job.output = ADD
    if not isinstance(x, ndarray):
        raise checks.wrong_type("x", x, "a numpy.ndarray")
    # Conversions may run user code that changes x, so x is checked after all of them.
    factor = finite_number(x_scale, "x_scale")
    call.threads = threads_of(threads)
    if positions is not None:
        read_positions(p, positions, spec.position_offset)
    element = element_of(x.dtype, "x has dtype", "float64, float32")
    call.job.dtype = element.code
    hold_rows(&call.out, x, element, "x")
    if call.out.shape[call.out.ndim - 1] != spec.d_model:
        raise ValueError(f"x has shape {x.shape}, expected (..., {spec.d_model})")
    call.job.x_scale = rounded_in_default(call.job.dtype, factor)
    if call.job.x_scale - call.job.x_scale != 0:
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
    if not call.is_table and not has_shape(layout_of(&call.out, call.out.ndim - 1), p.axes, p.shape):
        replace_positions(p, checks.broadcast(p.view.obj, x.shape[:x.ndim - 1]))
    settle_positions(p, &call.out)
    return 0


# ---- execution ---------------------------------------------------------------------------------------------------------------


cdef int execute_table(table_call_t *call, Columns columns) except -1:
    """Merge the axes of `out`, and run one job for each index into all merged axes but the last."""
    cdef const positions_t *p = &call.positions
    cdef const Py_buffer *out = &call.out
    cdef extent_t axes
    cdef job_t *job = &call.job
    cdef output_t output = job.output
    cdef ptrdiff_t which, first, length
    cdef int last_axis
    if out.len == 0:
        return 0
    call.spec = &columns.spec
    job.batch = 1
    job.batch_stride = 0
    merge_axes(&axes, layout_of(out, out.ndim - 1 - call.is_table))
    last_axis = axes.axes - 1
    length = axes.shape[last_axis]
    if call.is_table:
        job.batch = length
        job.batch_stride = axes.out_strides[last_axis]
        call.all_rows = out.shape[out.ndim - 2]
        job.row_stride = out.strides[out.ndim - 2]
    else:
        call.all_rows = length
        job.row_stride = axes.out_strides[last_axis]
    for which in range(elements_of(&axes) // length):
        first = which * length
        job.out = <char *>out.buf + offset_at(&axes, first).out
        job.output = output
        set_positions(job, p, 0 if call.is_table else first)
        execute_job(call, columns, call.threads)
    return 0


cdef int execute_job(table_call_t *call, Columns columns, int threads) except -1:
    """Plan a job and run it in blocks of rows and of batch entries."""
    cdef job_t *job = &call.job
    cdef plan_t *plan = &call.run.plan
    cdef ptrdiff_t least_rows = ROWS_FOR_TABLE_FLOAT64 if job.dtype == FLOAT64 else ROWS_FOR_TABLE
    cdef Offsets table = advance(job, call.all_rows, columns, least_rows, threads)
    plan_job(plan, call.spec, job, call.all_rows)
    threads = thread_count(plan, threads)
    divide_job(plan, call.spec, job, call.all_rows, threads)
    call.run.bytes = job.panel
    call.ranges = threads
    run_call(table_block, &call.run, (plan.blocks + threads - 1) // threads * threads, threads, "panels of rows")
    return 0


cdef void table_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    """Run a block.  Successive blocks come from different ranges, so that threads do not wait for the same new huge page."""
    cdef table_call_t *call = <table_call_t *>context
    cdef plan_t *plan = &context.plan
    cdef ptrdiff_t range_blocks = (plan.blocks + call.ranges - 1) // call.ranges
    cdef ptrdiff_t block = which % call.ranges * range_blocks + which // call.ranges
    cdef ptrdiff_t row = block % plan.row_blocks * plan.rows, entry = block // plan.row_blocks * plan.entries
    cdef job_t job = call.job
    if block >= plan.blocks:
        return                          # past the end of the last range
    job.out += entry * job.batch_stride
    job.batch = min(plan.entries, job.batch - entry)
    context.kernel.rows(call.spec, &job, row, min(plan.rows, call.all_rows - row), memory, tally)
