# encode and add_to: the preparation and execution of a call.

# ---- calls ---------------------------------------------------------------------------------------------

cdef struct table_call_t:
    # encode or add_to
    run_t run
    positions_t positions
    Py_buffer out                       # the array to which rows are stored or added
    const spec_t *spec
    job_t job                           # execute_table reads dtype, output (STORE or ADD) and x_scale
    digits_t digits                     # of the job, if it has any
    # whether all batch entries share one axis of positions; if not, each row has its own position
    bint shares_positions
    int threads                         # 0 for the default
    ptrdiff_t all_rows


def encode(Columns columns not None, object positions, object dtype, object out, object threads):
    """Return encodings: see `posenc.encode`."""
    cdef table_call_t call
    cdef positions_t *p = &call.positions
    cdef ptrdiff_t d_model = columns.spec.d_model
    cdef bint has_out_dtype = dtype is None and isinstance(out, ndarray)
    cdef DType element
    hold_nothing(p, &call.out)
    try:
        element = element_of(out.dtype if has_out_dtype else "float32" if dtype is None else dtype,
                             "out has dtype" if has_out_dtype else "dtype is", "float64, float32")
        call.job.output = STORE
        call.job.x_scale = 1
        call.job.dtype = element.code
        call.threads = threads_of(threads)
        read_positions(p, positions, columns.spec.position_offset)
        call.shares_positions = p.axes == 1
        if out is None:
            out = new_rows(shape_of(p, d_model), <double>p.rows * d_model, element, "positions")
        hold_rows(&call.out, out, element, "out")
        if call.out.shape[call.out.ndim - 1] != d_model or not has_shape(
                layout_of(&call.out, call.out.ndim - 1), p.axes, p.shape):
            raise ValueError(f"out has shape {out.shape}, expected {shape_of(p, d_model)}")
        settle_positions(p, &call.out)
        execute_table(&call, columns)
    finally:
        release(p, &call.out)
    return out


def add_to(Columns columns not None, object x, object positions, object x_scale, object threads):
    """Add encodings to x: see `posenc.add_to`."""
    cdef table_call_t call
    cdef positions_t *p = &call.positions
    cdef double factor, offset = columns.spec.position_offset
    cdef ptrdiff_t d_model = columns.spec.d_model
    cdef layout_t rows
    cdef DType element
    if not isinstance(x, ndarray):
        raise checks.wrong_type("x", x, "a numpy.ndarray")
    hold_nothing(p, &call.out)
    try:
        # Conversions may run user code that changes x, so x is checked after all of them.
        factor = finite_number(x_scale, "x_scale")
        call.threads = threads_of(threads)
        if positions is not None:
            read_positions(p, positions, offset)
        element = element_of(x.dtype, "x has dtype", "float64, float32")
        call.job.dtype = element.code
        hold_rows(&call.out, x, element, "x")
        if call.out.shape[call.out.ndim - 1] != d_model:
            raise ValueError(f"x has shape {x.shape}, expected (..., {d_model})")
        call.job.output = ADD
        call.job.x_scale = rounded_in_default(call.job.dtype, factor)
        if call.job.x_scale - call.job.x_scale != 0:
            raise ValueError(f"x_scale is {factor}, expected a number within the range of {x.dtype.name}")
        rows = layout_of(&call.out, call.out.ndim - 1)
        read_positions_of(p, positions, rows, x, offset)
        call.shares_positions = p.axes == 1 and rows.axes and p.rows == rows.shape[rows.axes - 1]
        if not call.shares_positions and not has_shape(rows, p.axes, p.shape):
            replace_positions(p, checks.broadcast(p.view.obj, x.shape[:x.ndim - 1]))
        settle_positions(p, &call.out)
        execute_table(&call, columns)
    finally:
        release(p, &call.out)


cdef object shape_of(const positions_t *p, ptrdiff_t columns):
    """Return the shape of a table."""
    if p.axes == 1:
        return p.rows, columns
    return (*[p.shape[i] for i in range(p.axes)], columns)


# ---- execution -----------------------------------------------------------------------------------------

cdef int execute_table(table_call_t *call, Columns columns) except -1:
    """Merge the axes of `out`, and run one job for each index into all merged axes but the last."""
    cdef const positions_t *p = &call.positions
    cdef const Py_buffer *out = &call.out
    cdef extent_t axes
    cdef job_t *job = &call.job
    cdef output_t output = job.output
    cdef ptrdiff_t which, first, length = 1, stride = 0
    cdef int axis
    if out.len == 0:
        return 0
    call.spec = &columns.spec
    axes.axes = 0
    for axis in range(out.ndim - 1 - call.shares_positions):
        append_axis(&axes, out.shape[axis], 0, out.strides[axis], 0)
    if axes.axes:
        length = axes.shape[axes.axes - 1]
        stride = axes.out_strides[axes.axes - 1]
    job.batch, job.batch_stride, call.all_rows, job.row_stride = 1, 0, length, stride
    if call.shares_positions:
        job.batch, job.batch_stride = length, stride
        call.all_rows, job.row_stride = out.shape[out.ndim - 2], out.strides[out.ndim - 2]
    for which in range(elements_of(&axes) // length):
        first = which * length
        job.out = <char *>out.buf + place_at(&axes, first).out
        job.output = output
        set_positions(job, p, 0 if call.shares_positions else first)
        execute_job(call, columns)
    return 0


cdef int execute_job(table_call_t *call, Columns columns) except -1:
    """Plan a job and run it in blocks of rows and of batch entries."""
    cdef job_t *job = &call.job
    cdef object tables = arrange(job, &call.digits, call.all_rows, columns, call.threads)
    cdef int threads = allowed_for(
        call.threads, <double>call.all_rows * call.spec.columns * job.batch, table_per_thread(job, call.spec))
    cdef bytes span = new_span(call, columns, threads) if job.span_rows else None
    call.run.plan = plan_table(job, call.spec, call.all_rows, threads)
    call.run.bytes = job.memory
    run_call(&call.run, rows_block, "panels of rows")
    return 0


cdef bytes new_span(table_call_t *call, Columns columns, int threads):
    """Compute the span table of a job, with the threads that will copy its rows, and return its memory."""
    cdef job_t *job = &call.job
    cdef table_call_t span = call[0]
    cdef double size = <double>job.span_rows * job.span_pitch
    cdef bytes memory = allocate(size, f"{job.span_rows} rows of d_model {columns.spec.d_model}")
    span.threads = threads
    span.all_rows = job.span_rows
    span.job.output = STORE
    span.job.out = on_cache_line(memory)
    span.job.row_stride = job.span_pitch
    span.job.batch = 1
    span.job.integers = NULL
    span.job.start = <uint64_t>job.span_start
    span.job.step = 1
    execute_job(&span, columns)
    job.span = span.job.out
    return memory


cdef void rows_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef table_call_t *call = <table_call_t *>context
    cdef plan_t *plan = &context.plan
    cdef ptrdiff_t block = block_at(plan, which)
    cdef ptrdiff_t row = block % plan.row_blocks * plan.rows, entry = block // plan.row_blocks * plan.entries
    cdef job_t job = call.job
    job.out += entry * job.batch_stride
    job.batch = min(plan.entries, job.batch - entry)
    context.kernel.write_rows(call.spec, &job, row, min(plan.rows, call.all_rows - row), memory, tally)
