# Execute a prepared call: plan its jobs and run their blocks.

cdef struct table_run_t:
    run_t run
    spec_t spec
    job_t job
    undecided_t undecided
    ptrdiff_t all_rows
    plan_t plan
    ptrdiff_t ranges                    # number of contiguous ranges of blocks, one for each thread


cdef struct rotation_run_t:
    run_t run
    const rotation_t *rotation
    ptrdiff_t all_rows, all_heads
    plan_t plan


cdef int execute_table(const table_call_t *call, Columns columns) except -1:
    """Merge the axes of `out`, and run one job for each index into all merged axes but the last."""
    cdef const positions_t *p = &call.positions
    cdef const Py_buffer *out = &call.out
    cdef rows_t rows
    cdef table_run_t run
    cdef job_t *job = &run.job
    cdef ptrdiff_t count = 1, which, rest, i
    cdef int axis, last
    if out.len == 0:
        return 0
    run.run.kernel = active
    run.run.undecided = &run.undecided
    run.run.specs = 1
    run.spec = columns.spec
    run.spec.context = &run.undecided
    run.undecided.value = <PyObject *>columns.value
    job.dtype = call.dtype
    job.x_scale = call.x_scale
    job.skip_rounding_test = rounding_test_skipped
    job.batch = 1
    job.batch_stride = 0
    merge_axes(&rows, <char *>out.buf, out.shape, out.strides, out.ndim - 1 - call.is_table)
    if call.is_table:
        job.batch = rows.shape[rows.axes - 1]
        job.batch_stride = rows.strides[rows.axes - 1]
        rows.shape[rows.axes - 1] = out.shape[out.ndim - 2]
        rows.strides[rows.axes - 1] = out.strides[out.ndim - 2]
    last = rows.axes - 1
    run.all_rows = rows.shape[last]
    job.row_stride = rows.strides[last]
    for axis in range(last):
        count *= rows.shape[axis]
    for which in range(count):
        job.out = rows.data
        rest = which
        for axis in range(last - 1, -1, -1):
            job.out += rest % rows.shape[axis] * rows.strides[axis]
            rest //= rows.shape[axis]
        i = 0 if call.is_table else which * run.all_rows
        job.output = call.output
        job.start = p.start
        job.step = p.step
        job.integers = p.integers + i if p.integers != NULL else NULL
        job.reals = p.reals + i if p.reals != NULL else NULL
        execute_job(&run, columns, not call.is_fresh or out.len < FRESH_BYTES, call.threads)
    return 0


cdef int execute_job(table_run_t *run, Columns columns, bint may_stream, int threads) except -1:
    """Plan a job and run it in blocks of rows and of batch entries."""
    cdef int64_t *integers = NULL
    cdef ptrdiff_t rows = run.all_rows
    cdef Offsets table
    cdef job_t *job = &run.job
    cdef plan_t *plan = &run.plan
    try:
        if job.reals != NULL and rows >= ROWS_FOR_KEPT_TABLE:
            with nogil:
                integers = integers_of(job.reals, rows)
            if integers != NULL:
                job.integers = integers
                job.reals = NULL
        plan_table(plan, columns, job, rows, may_stream, threads)
        job.offsets = NULL
        if plan.step:
            table = offset_table(columns, plan.step, plan.first, threads)
            job.offsets = &table.table
        job.output = plan.output
        job.panel = plan.panel
        run.run.bytes = plan.panel
        run.ranges = plan.threads
        run_call(table_block, &run.run, (plan.blocks + plan.threads - 1) // plan.threads * plan.threads, plan.per_check,
                 plan.threads, "panels of rows")
    finally:
        free(integers)
    return 0


cdef void table_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    """Run a block.  Successive blocks come from different ranges, so that threads do not wait for the same new huge page."""
    cdef table_run_t *run = <table_run_t *>context
    cdef plan_t *plan = &run.plan
    cdef ptrdiff_t range_blocks = (plan.blocks + run.ranges - 1) // run.ranges
    cdef ptrdiff_t block = which % run.ranges * range_blocks + which // run.ranges
    cdef ptrdiff_t row = block % plan.row_blocks * plan.rows, entry = block // plan.row_blocks * plan.entries
    cdef job_t job = run.job
    if block >= plan.blocks or run.run.undecided.error != NULL:
        return                          # past the end of the last range, or after an error
    job.out += entry * job.batch_stride
    job.batch = min(plan.entries, job.batch - entry)
    run.run.kernel.rows(&run.spec, &job, row, min(plan.rows, run.all_rows - row), run.run.memory + member * run.run.bytes,
                        &run.run.slots[member].tally)


cdef struct rotation_axes_t:
    # the axes of positions of a rotation
    rotary_axis_t axes[MOST_POSITION_AXES]
    spec_t specs[MOST_POSITION_AXES]
    undecided_t undecided[MOST_POSITION_AXES]


cdef list set_axes(rotation_t *r, run_t *run, rotation_axes_t *a, Rotation rotation, const positions_t *p, ptrdiff_t rows,
                   int threads):
    """Set `a` (the position axes of a rotation) and `run`.  Return the offset tables, which the caller must keep alive.

    `rows` is the number of positions on each axis.  If `r.factors` is NULL, also choose how to compute cosines and sines.
    """
    cdef Columns columns
    cdef job_t *job
    cdef Offsets table
    cdef list tables = []
    cdef uint64_t step
    cdef int i
    r.has_fast_path = True
    r.position_axes = len(rotation.axes)
    r.axis = a.axes
    for i in range(r.position_axes):
        columns, pair = rotation.axes[i]
        a.specs[i] = columns.spec
        a.specs[i].context = &a.undecided[i]
        a.undecided[i].value = <PyObject *>columns.value
        a.axes[i].spec = &a.specs[i]
        a.axes[i].pair = NULL
        if pair is not None:
            a.axes[i].pair = <const ptrdiff_t *><const char *>(<bytes>pair)
        job = &a.axes[i].table
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
        if r.factors != NULL:
            continue
        step = advanced_step(columns, job, rows, ROWS_FOR_TABLE)
        if step:
            table = offset_table(columns, step, 0, threads)
            tables.append(table)
            job.offsets = &table.table
        elif job.reals == NULL:
            r.direct_scale = abs(columns.spec.scale)
    run.kernel = active
    run.undecided = a.undecided
    run.specs = r.position_axes
    return tables


cdef int execute_rotation(rotation_call_t *call, Rotation rotation, Factors factors=None) except -1:
    """Rotate in blocks of rows and heads.  If `factors` is not None, use its cosines and sines."""
    cdef rotation_t *r = &call.rotation
    cdef rotation_axes_t axes
    cdef rotation_run_t run
    cdef Numbers numbers
    if call.out.len == 0:
        return 0
    if factors is not None:
        numbers = numbers_of(factors, r.dtype, call.threads)
        r.factors = numbers.first
        r.direct_scale = numbers.direct_scale
    tables = set_axes(r, &run.run, &axes, rotation, &call.positions, call.rows if factors is None else factors.rows,
                      call.threads)
    plan_rotation(&run.plan, r, call.rows, call.heads, call.threads)
    r.most_rows = run.plan.rows
    run.rotation = r
    run.all_rows = call.rows
    run.all_heads = call.heads
    run.run.bytes = (active.rotation_memory(r) + LINE - 1) // LINE * LINE
    run_call(rotation_block, &run.run, run.plan.blocks, run.plan.per_check, run.plan.threads, "cosines and sines")
    return 0


cdef bint has_error(const run_t *run) noexcept nogil:
    """Whether the evaluation of an undecided value raised an exception."""
    cdef int i
    for i in range(run.specs):
        if run.undecided[i].error != NULL:
            return True
    return False


cdef void rotation_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef rotation_run_t *run = <rotation_run_t *>context
    cdef plan_t *plan = &run.plan
    cdef ptrdiff_t row = which % plan.row_blocks * plan.rows, head = which // plan.row_blocks * plan.entries
    if has_error(&run.run):
        return
    run.run.kernel.rotate(run.rotation, row, min(plan.rows, run.all_rows - row), head, min(plan.entries, run.all_heads - head),
                          run.run.memory + member * run.run.bytes, &run.run.slots[member].tally)


cdef struct factors_run_t:
    run_t run
    const rotation_t *rotation
    double *first
    ptrdiff_t rows, block_rows


cdef Numbers numbers_of(Factors factors, dtype_t dtype, int threads):
    """Return `factors.forms[dtype]`, computed if it is missing.  Two threads may compute the same factors: see offset_table."""
    cdef Numbers result = <Numbers>factors.forms.get(<int>dtype)
    if result is None:
        result = new_numbers(factors, dtype, threads)
        factors.forms[<int>dtype] = result
    return result


cdef Numbers new_numbers(Factors factors, dtype_t dtype, int threads):
    cdef Numbers result = Numbers.__new__(Numbers)
    cdef rotation_t r
    cdef rotation_axes_t axes
    cdef factors_run_t run
    cdef positions_t p
    cdef ptrdiff_t blocks, columns, per_check
    memset(&r, 0, sizeof(rotation_t))
    memset(&p, 0, sizeof(positions_t))
    r.dtype = dtype
    r.interleaved = factors.rotation.interleaved
    r.inverse = factors.inverse
    r.pairs = factors.rotation.pairs
    set_positions(&p, factors)
    result.memory = factors.allocated()
    result.first = <double *>on_cache_line(result.memory)
    if factors.rows == 0:
        return result
    tables = set_axes(&r, &run.run, &axes, factors.rotation, &p, factors.rows, threads)
    result.direct_scale = r.direct_scale
    columns = 2 * max(<ptrdiff_t>1, r.pairs)
    per_check = ADVANCED_PER_CHECK if r.has_fast_path else DIRECT_PER_CHECK
    run.rotation = &r
    run.first = result.first
    run.rows = factors.rows
    run.block_rows = max(1, min(<ptrdiff_t>FINE, per_check // columns))
    run.run.bytes = run.block_rows * factors.row_bytes if r.position_axes > 1 else 0
    blocks = (run.rows + run.block_rows - 1) // run.block_rows
    threads = rotation_team(&r, threads, run.rows * columns, blocks)
    run_call(factors_block, &run.run, blocks, max(1, per_check // (run.block_rows * columns)), threads, "cosines and sines")
    return result


cdef void factors_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef factors_run_t *run = <factors_run_t *>context
    cdef ptrdiff_t row = which * run.block_rows, pitch = factor_pitch(run.rotation.pairs)
    if not has_error(&run.run):
        run.run.kernel.factors(run.rotation, row, min(run.block_rows, run.rows - row), run.first + row * pitch,
                               run.run.memory + member * run.run.bytes)
