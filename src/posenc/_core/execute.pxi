# Execute a prepared call: plan its jobs and run their blocks.

cdef struct table_run_t:
    run_t run
    const spec_t *spec
    const job_t *job
    ptrdiff_t all_rows
    plan_t plan
    ptrdiff_t ranges                    # contiguous ranges of blocks, one for each thread


cdef struct rotation_run_t:
    run_t run
    const rotation_t *rotation
    ptrdiff_t all_rows, all_heads
    plan_t plan


cdef int execute_table(const table_call_t *call, Columns columns) except -1:
    """Merge the axes of `out`, and run one job for each index of the merged axes except the last one."""
    cdef const positions_t *p = &call.positions
    cdef const Py_buffer *out = &call.out
    cdef rows_t rows
    cdef job_t job
    cdef ptrdiff_t n, count = 1, which, rest, i
    cdef int axis, last
    if out.len == 0:
        return 0
    job = call.job
    job.batch = 1
    merge_axes(&rows, <char *>out.buf, out.shape, out.strides, out.ndim - 1 - call.is_table)
    if call.is_table:
        job.batch = rows.shape[rows.axes - 1]
        job.batch_stride = rows.strides[rows.axes - 1]
        rows.shape[rows.axes - 1] = out.shape[out.ndim - 2]
        rows.strides[rows.axes - 1] = out.strides[out.ndim - 2]
    last = rows.axes - 1
    n = rows.shape[last]
    job.row_stride = rows.strides[last]
    for axis in range(last):
        count *= rows.shape[axis]
    for which in range(count):
        job.out = rows.data
        rest = which
        for axis in range(last - 1, -1, -1):
            job.out += rest % rows.shape[axis] * rows.strides[axis]
            rest //= rows.shape[axis]
        i = 0 if call.is_table else which * n
        job.start = p.start
        job.step = p.step
        job.integers = p.integers + i if p.integers != NULL else NULL
        job.reals = p.reals + i if p.reals != NULL else NULL
        execute_job(columns, job, n, not call.is_fresh or out.len < FRESH_BYTES, call.threads)
    return 0


cdef int execute_job(Columns columns, job_t job, ptrdiff_t rows, bint may_stream, int threads) except -1:
    """Determine the spacing of the positions, plan a job and run it in blocks of rows and of batch entries."""
    cdef int64_t *integers = NULL
    cdef uint64_t step = 0
    cdef Offsets table
    cdef table_run_t run
    cdef undecided_t undecided
    cdef spec_t spec = columns.spec
    cdef plan_t *plan = &run.plan
    try:
        if job.reals != NULL and rows >= ROWS_FOR_KEPT_TABLE:
            with nogil:
                integers = integers_of(job.reals, rows)
            if integers != NULL:
                job.integers = integers
                job.reals = NULL
        if job.reals == NULL:
            with nogil:
                step = spacing(&job, rows)
        plan[0] = plan_table(&spec, &job, rows, step, kept_table(columns, step, 0) is not None, may_stream, threads)
        job.offsets = NULL
        if plan.is_advanced:
            table = offset_table(columns, step, plan.first, threads)
            job.offsets = &table.table
        job.output = plan.output
        job.panel = plan.panel
        job.skip_rounding_test = rounding_test_skipped
        spec.context = &undecided
        undecided.value = <PyObject *>columns.value
        run.run.kernel = active
        run.run.undecided = &undecided
        run.run.specs = 1
        run.run.bytes = plan.panel
        run.spec = &spec
        run.job = &job
        run.all_rows = rows
        run.ranges = plan.threads
        run_call(table_block, &run.run, (plan.blocks + plan.threads - 1) // plan.threads * plan.threads, plan.per_check,
                 plan.threads, "panels of rows")
    finally:
        free(integers)
    return 0


cdef void table_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    """Run a block.  Successive blocks are in different ranges, so that threads do not all fault on the same huge page."""
    cdef table_run_t *run = <table_run_t *>context
    cdef plan_t *plan = &run.plan
    cdef ptrdiff_t range_blocks = (plan.blocks + run.ranges - 1) // run.ranges
    cdef ptrdiff_t block = which % run.ranges * range_blocks + which // run.ranges
    cdef ptrdiff_t row = block % plan.row_blocks * plan.rows, entry = block // plan.row_blocks * plan.entries
    cdef job_t job = run.job[0]
    if block >= plan.blocks or run.run.undecided.error != NULL:
        return                          # past the end of the last range, or after an error
    job.out += entry * job.batch_stride
    job.batch = min(plan.entries, job.batch - entry)
    run.run.kernel.rows(run.spec, &job, row, min(plan.rows, run.all_rows - row), run.run.memory + member * run.run.bytes,
                        &run.run.slots[member].tally)


cdef int execute_rotation(const rotation_call_t *call, Rotation rotation) except -1:
    """Prepare the job of each axis of positions, then rotate in blocks of rows and heads."""
    cdef const positions_t *p = &call.positions
    cdef rotation_t r = call.rotation
    cdef rotary_axis_t axes[MOST_POSITION_AXES]
    cdef spec_t specs[MOST_POSITION_AXES]
    cdef undecided_t undecided[MOST_POSITION_AXES]
    cdef rotation_run_t run
    cdef Columns columns
    cdef job_t *job
    cdef Offsets table
    cdef list tables = []               # keeps the tables alive
    cdef uint64_t step
    cdef int i
    if call.out.len == 0:
        return 0
    r.has_fast_path = True
    r.position_axes = len(rotation.axes)
    r.axis = axes
    for i in range(r.position_axes):
        columns, pair = rotation.axes[i]
        specs[i] = columns.spec
        specs[i].context = &undecided[i]
        undecided[i].value = <PyObject *>columns.value
        axes[i].spec = &specs[i]
        axes[i].pair = NULL
        if pair is not None:
            axes[i].pair = <const ptrdiff_t *><const char *>(<bytes>pair)
        job = &axes[i].table
        memset(job, 0, sizeof(job_t))
        job.dtype = FLOAT64
        job.output = STORE
        job.batch = 1
        job.start = p.start
        job.step = p.step
        job.integers = p.integers + i * call.rows if p.integers != NULL else NULL
        job.reals = p.reals + i * call.rows if p.reals != NULL else NULL
        step = 0
        if job.reals == NULL:
            with nogil:
                step = spacing(job, call.rows)
        if is_advanced(&specs[i], call.rows, step, kept_table(columns, step, 0) is not None, ROWS_FOR_TABLE):
            table = offset_table(columns, step, 0, call.threads)
            tables.append(table)
            job.offsets = &table.table
        if not 2.0**-64 <= abs(specs[i].scale) <= 2.0**64:
            r.has_fast_path = False
    run.plan = plan_rotation(&r, call.rows, call.heads, call.threads)
    r.most_rows = run.plan.rows
    run.rotation = &r
    run.all_rows = call.rows
    run.all_heads = call.heads
    run.run.kernel = active
    run.run.undecided = undecided
    run.run.specs = r.position_axes
    run.run.bytes = (active.rotation_memory(&r) + LINE - 1) // LINE * LINE
    run_call(rotation_block, &run.run, run.plan.blocks, run.plan.per_check, run.plan.threads, "cosines and sines")
    return 0


cdef void rotation_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef rotation_run_t *run = <rotation_run_t *>context
    cdef plan_t *plan = &run.plan
    cdef ptrdiff_t row = which % plan.row_blocks * plan.rows, head = which // plan.row_blocks * plan.entries
    cdef int i
    for i in range(run.run.specs):
        if run.run.undecided[i].error != NULL:
            return
    run.run.kernel.rotate(run.rotation, row, min(plan.rows, run.all_rows - row), head, min(plan.entries, run.all_heads - head),
                          run.run.memory + member * run.run.bytes, &run.run.slots[member].tally)
