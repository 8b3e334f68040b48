# A plan describes how a job is computed, and the blocks into which it is divided.

cdef enum:
    # Fewest rows that are advanced with an offset table.  Building a table takes as long as the direct evaluation of about 100
    # rows in double-double (float64), or of 300 to 500 rows in double.  A kept table also speeds up later calls.
    ROWS_WITH_TABLE = 4                 # if the table exists
    ROWS_FOR_KEPT_TABLE = 32            # if the table is built and kept
    ROWS_FOR_TABLE_FLOAT64 = 128        # if the table is built for one call, and direct evaluation is in double-double
    ROWS_FOR_TABLE = 512                # if the table is built for one call, and direct evaluation is in double
    MIN_ENTRIES = 64                    # fewest batch entries in a block, because each block computes its rows again
    STREAM_BYTES = 1 << 23              # outputs of at least this size exceed the caches and use non-temporal stores ...
    FRESH_BYTES = 1 << 25               # ... except new arrays of at least this size, whose pages the system has just zeroed
    TABLE_BYTES = 1 << 17               # size of the cosines and sines that a thread keeps in L2 during a rotation
    FEWEST_TABLE_ROWS = 4               # fewest rows of cosines and sines that a thread computes together
    FEWEST_HEADS = 8                    # fewest heads in a block, if a rotation is divided among threads
    DIRECT_HEADS = 6                    # heads that are rotated in the time that the cosines and sines of a row take directly
    MOST_IN_BLOCK = 1 << 20             # most values in a block of a rotation, to limit its time if all are evaluated exactly


cdef struct plan_t:
    output_t output
    uint64_t step                       # absolute step between the positions of rows that are advanced, else 0
    ptrdiff_t first                     # first column of the offset table
    size_t panel                        # bytes
    int threads                         # largest number of threads
    ptrdiff_t rows, entries             # numbers of rows and of batch entries in a block
    ptrdiff_t row_blocks, blocks        # numbers of blocks for one batch entry, and for the whole batch
    ptrdiff_t per_check                 # number of blocks for each thread in the first piece: see run_pieces


cdef uint64_t advanced_step(Columns columns, job_t *job, ptrdiff_t rows, ptrdiff_t rows_for_table) noexcept:
    """Return the absolute step between the positions of rows if angle addition computes them, else 0.

    `spacing` may replace the positions.  An offset table that is not kept needs at least `rows_for_table` rows.
    """
    cdef uint64_t step
    if rows < ROWS_WITH_TABLE:
        return 0
    step = spacing(job, rows)
    if step == 1 and columns.spec.columns <= KEPT_COLUMNS:
        rows_for_table = ROWS_FOR_KEPT_TABLE
    # the limit keeps step times the longest offset inside the int64 range
    if step < <uint64_t>1 << 50 and (rows >= rows_for_table or kept_table(columns, step, 0) is not None):
        return step
    return 0


cdef int plan_table(plan_t *plan, Columns columns, job_t *job, ptrdiff_t rows, bint may_stream, int threads) except -1:
    """Set the plan of a job.

    Parameters
    ----------
    job
        Its `offsets` and `panel` are not set yet; `output` is ADD or STORE.  `spacing` may replace its positions.
    may_stream : bool
        False if the pages of `out` are new: the system zeroes a page when it is first written, so its lines are in the cache.
    """
    plan.step = advanced_step(columns, job, rows, ROWS_FOR_TABLE_FLOAT64 if job.dtype == FLOAT64 else ROWS_FOR_TABLE)
    plan.output = job.output
    plan.first = 0
    plan.panel = 0
    if plan.step:
        plan_output(plan, &columns.spec, job, rows, may_stream)
    plan_blocks(plan, &columns.spec, job, rows, threads)
    return 0


cdef void plan_output(plan_t *plan, const spec_t *spec, const job_t *job, ptrdiff_t rows, bint may_stream) noexcept:
    """Choose the output mode, and a panel or a first column with which whole cache lines are written."""
    cdef ptrdiff_t itemsize = itemsize_of(job.dtype), row_bytes = spec.d_model * itemsize
    cdef ptrdiff_t pitch = min(spec.columns * itemsize, STRIP * TILE * itemsize) + LINE
    if job.output == ADD:
        if job.batch > 1 or itemsize == 2:
            plan.panel = pitch * min(rows, FINE)
    elif may_stream and rows * row_bytes >= STREAM_BYTES:
        plan.output = STREAM
        if job.row_stride % LINE == 0 and <uintptr_t>job.out % LINE == 0:
            pass
        elif job.row_stride == row_bytes and row_bytes % LINE == 0:
            plan.first = (LINE - <uintptr_t>job.out % LINE) // itemsize
        else:
            plan.panel = pitch * FINE
    if plan.panel:
        # add bytes for a start inside a cache line and for the spare columns of the last row
        plan.panel = (plan.panel + LINE + TILE * itemsize + LINE - 1) // LINE * LINE


cdef int plan_blocks(plan_t *plan, const spec_t *spec, const job_t *job, ptrdiff_t rows, int threads) except -1:
    cdef ptrdiff_t columns = spec.columns, per_thread, per_check
    if (plan.step and spec.has_fast_path and (spec.fast_test or job.dtype == FLOAT64)
            and few_limbs(spec.position_offset, job, rows)):
        per_thread = ADVANCED_PER_THREAD
        per_check = ADVANCED_PER_CHECK
        plan.rows = BLOCK
    else:
        per_thread = DIRECT_PER_THREAD
        per_check = DIRECT_PER_CHECK
        plan.rows = max(1, min(<ptrdiff_t>BLOCK, per_check // columns))
    plan.threads = team_size(threads, rows * columns * job.batch, per_thread, (rows * job.batch + FINE - 1) // FINE)
    while plan.rows > FINE and (plan.threads > 1 and rows < 4 * plan.threads * plan.rows
                                or plan.rows * columns * min(job.batch, <ptrdiff_t>MIN_ENTRIES) > per_check):
        plan.rows //= 2
    plan.entries = min(job.batch, max(<ptrdiff_t>MIN_ENTRIES, per_check // (plan.rows * columns)))
    plan.row_blocks = (rows + plan.rows - 1) // plan.rows
    plan.blocks = plan.row_blocks * ((job.batch + plan.entries - 1) // plan.entries)
    plan.per_check = max(1, per_check // (plan.rows * columns * plan.entries))
    return 0


cdef bint few_limbs(double offset, const job_t *job, ptrdiff_t rows) noexcept:
    """Whether position + offset fits in the 4 limbs of the fast path: 2 before the point and 2 after it, or 1 and 3."""
    cdef int64_t first = <int64_t>job.start, last = <int64_t>(job.start + <uint64_t>(rows - 1) * job.step)
    if floor(offset * 2.0**64) == offset * 2.0**64:
        return True
    return (job.integers == NULL and floor(offset * 2.0**96) == offset * 2.0**96
            and min(first, last) > -(<int64_t>1 << 31) and max(first, last) < <int64_t>1 << 31)


cdef int rotation_team(const rotation_t *r, int threads, ptrdiff_t values, ptrdiff_t blocks) except -1:
    """Return the largest number of threads for a rotation or its factors.

    Unlike `team_size`, it is also limited by the number of values if the caller gives `threads`.  A thread that sleeps takes
    longer to start than a smaller rotation takes, and the call must wait for it.
    """
    if r.has_fast_path:
        return team_size(threads, values, ADVANCED_PER_THREAD, min(blocks, values // ADVANCED_PER_THREAD))
    return team_size(threads, values, DIRECT_PER_THREAD, blocks)


cdef int plan_rotation(plan_t *plan, const rotation_t *r, ptrdiff_t rows, ptrdiff_t heads, int threads) except -1:
    """Set the plan of a rotation; its `entries` are heads."""
    cdef ptrdiff_t columns = 2 * r.pairs + r.rest, least
    cdef ptrdiff_t per_check = MOST_IN_BLOCK if r.has_fast_path else DIRECT_PER_CHECK // 2
    cdef ptrdiff_t together = heads + (DIRECT_HEADS if r.factors == NULL and r.direct_scale != 0 else 0)
    plan.threads = rotation_team(r, threads, rows * together * columns, (rows * heads + FINE - 1) // FINE)
    plan.rows = min(rows, max(<ptrdiff_t>FEWEST_TABLE_ROWS, min(<ptrdiff_t>FINE, TABLE_BYTES // (2 * r.pairs * 8 + 1))))
    plan.entries = min(heads, max(<ptrdiff_t>1, per_check // (plan.rows * columns)))
    if plan.threads > 1:
        while plan.rows > FEWEST_TABLE_ROWS and (rows + plan.rows - 1) // plan.rows < 4 * plan.threads:
            plan.rows //= 2
        least = (4 * plan.threads * plan.rows + rows - 1) // rows       # fewest blocks of heads
        plan.entries = min(plan.entries, max(<ptrdiff_t>FEWEST_HEADS, (heads + least - 1) // least))
    plan.row_blocks = (rows + plan.rows - 1) // plan.rows
    plan.blocks = plan.row_blocks * ((heads + plan.entries - 1) // plan.entries)
    plan.per_check = max(1, per_check // (4 * plan.rows * plan.entries * columns))
    return 0
