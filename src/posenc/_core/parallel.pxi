# Runs the blocks of a call: run_call -> run_blocks -> run_pieces, which contains the parallel loop.

cdef enum:
    SMALL = 32                          # a job is small if it has fewer values than SMALL times the values for another thread
    LONGEST_PAUSE = 256                 # largest value of `single_jobs`

cdef double PIECE_SECONDS = 0.05

cdef object lock = object()             # guards the following numbers, `counted`, and `error` of every run_t
cdef int threads_in_use = 0             # threads of all calls that use more than one thread
cdef int single_jobs = 0                # number of small jobs that run in one thread after an uneven team: see run_blocks
cdef int single_jobs_left = 0           # number of these jobs that are still to run

OPENMP = POSENC_OPENMP


cdef struct piece_t:
    # blocks that a team runs
    block_t block
    void *context
    counter_t next                      # the first block that no thread has taken
    ptrdiff_t last                      # the block after the last one
    ptrdiff_t by_caller                 # number of blocks that the calling thread has run
    affinity_t affinity


openmp_loaded(default_threads.stack_size())


cdef void take_blocks(piece_t *piece) noexcept nogil:
    """Take the next block and run it, until none is left.  Each thread of a team calls this function."""
    cdef int thread = openmp_thread_number()
    cdef ptrdiff_t which
    if thread:
        thread_started(&piece.affinity, thread)
    while True:
        which = next_block(&piece.next)
        if which >= piece.last:
            break
        piece.block(piece.context, which, thread)
        if not thread:
            piece.by_caller += 1
    if not thread:
        fetch_late_threads(&piece.affinity)


cdef ptrdiff_t run_pieces(block_t block, void *context, ptrdiff_t blocks, ptrdiff_t per_check, int team) except -1 nogil:
    """Run blocks in pieces of at most about 50 ms; return the number of blocks that the calling thread ran in a team.

    Signals are checked between pieces; a handler may raise or fork.
    """
    cdef piece_t piece
    cdef ptrdiff_t first = 0, size = per_check * team, which
    cdef double start = seconds() if size < blocks else 0, checked = start, end
    piece.block = block
    piece.context = context
    piece.by_caller = 0
    while True:
        piece.last = min(first + size, blocks)
        if team == 1:
            for which in range(first, piece.last):
                block(context, which, 0)
        else:
            set_counter(&piece.next, first)
            leave_processor(&piece.affinity, team)
            # No variable is assigned in the region.  GCC puts a barrier before a loop that is the last to assign a variable, as
            # prange is.  There, the calling thread would wait for late threads, and then often wake on the processor of one.
            with parallel(num_threads=team):
                take_blocks(&piece)
            restore_masks(&piece.affinity)
        if piece.last == blocks:
            return piece.by_caller
        first = piece.last
        end = seconds()
        if end - start < PIECE_SECONDS / 2:
            size *= 16 if end - start < PIECE_SECONDS / 32 else 2
        elif end - start > PIECE_SECONDS:
            size = max(<ptrdiff_t>team, size // 2)
        if abs(end - checked) >= PIECE_SECONDS / 2:
            # does nothing outside the main thread; only Python can reliably detect which thread this is
            with gil:
                PyErr_CheckSignals()
            checked = end = seconds()
        start = end
        if team > 1 and openmp_is_forked():
            team = 1


cdef int run_blocks(block_t block, void *context, ptrdiff_t blocks, ptrdiff_t per_check, int threads) except -1:
    """Run blocks on `threads` threads, minus those that other calls use and those that the system refuses.

    If other processes use the processors, or if the system runs two threads on one processor, the threads of a team may wait
    for each other longer than a small job takes.  A team is uneven if the calling thread ran more than 3/4 of all blocks,
    or less than 1/4 of an equal share.  The next small jobs then run in one thread: 1 job after the first uneven team, 2 jobs
    after the next one, then 4, ..., until a team shares its blocks evenly.
    """
    global threads_in_use, single_jobs, single_jobs_left
    cdef int reserved = 1, team = 1
    cdef ptrdiff_t by_caller = 0
    cdef bint uneven
    if threads > 1:
        with cython.critical_section(lock):
            reserved = max(1, threads - threads_in_use)
            threads_in_use += reserved
    try:
        with nogil:
            if reserved > 1:
                team = openmp_team(reserved)
            by_caller = run_pieces(block, context, blocks, per_check, team)
    finally:
        if threads > 1:
            with cython.critical_section(lock):
                threads_in_use -= reserved
                if team > 1:
                    uneven = 4 * by_caller > 3 * blocks or 4 * team * by_caller < blocks
                    single_jobs = min(max(1, 2 * single_jobs), LONGEST_PAUSE) if uneven else 0
                    single_jobs_left = single_jobs
    return 0


cdef int run_call(block_t block, run_t *run, ptrdiff_t blocks, ptrdiff_t per_check, int threads, str purpose) except -1:
    """Run the blocks of a call, whose context begins with `run`; then raise the first exception of an undecided value.

    Each thread has `run.bytes` of memory and a tally.  If the memory is not available, the error states its `purpose`.
    """
    cdef slot_t slots[MAX_THREADS]
    cdef Memory memory = None
    cdef int i
    if run.bytes:
        memory = Memory.__new__(Memory)
        allocate(memory, <double>threads * run.bytes, purpose)
        run.memory = memory.first
    run.kernel = active
    run.slots = slots
    run.error = NULL
    for i in range(threads):
        slots[i].tally.uncertain = slots[i].tally.exact = 0
    try:
        run_blocks(block, run, blocks, per_check, threads)
        if run.error != NULL:
            raise <object>run.error
    finally:
        Py_XDECREF(run.error)
        with cython.critical_section(lock):
            for i in range(threads):
                counted.uncertain += slots[i].tally.uncertain
                counted.exact += slots[i].tally.exact
    return 0


cdef class Memory:
    """Memory that begins on a cache line."""

    def __dealloc__(self):
        free(self.allocated)


cdef int allocate(Memory memory, double size, str purpose) except -1:
    """Allocate memory.  If it is not available, the error states its `purpose`."""
    if size < 2.0**62:
        memory.allocated = malloc(<size_t>size + LINE)
    if memory.allocated == NULL:
        raise MemoryError(f"Unable to allocate {size:.0f} bytes for {purpose}")
    memory.first = <char *>on_cache_line(memory.allocated)
    return 0


cdef void *on_cache_line(void *memory) noexcept nogil:
    """Return the first address in `memory` at which a cache line starts; at most LINE - 1 bytes are lost."""
    return <char *>memory + -<uintptr_t>memory % LINE


# ---- number of threads ----------------------------------------------------------------------------------------------------


def allowed_threads():
    """Return the largest number of threads that a call uses by default."""
    return 1 if is_serial() else min(default_threads.allowed(openmp_threads()), MAX_THREADS)


cdef bint is_serial() noexcept nogil:
    """Whether calls use one thread: without OpenMP, in a parallel region, or in a forked child, where GNU's runtime hangs."""
    return not POSENC_OPENMP or openmp_in_parallel() or openmp_is_forked()


cdef int thread_count(const plan_t *plan, int requested) except -1:
    """Return the largest number of threads for a plan; docs/reliability.md, "Threads", states the rule.

    `requested` is the argument of the call, 0 for the default.
    """
    global single_jobs_left
    if plan.most_threads <= 1 or requested == 1 or requested == 0 and plan.values < 2 * plan.per_thread or is_serial():
        return 1
    if single_jobs_left > 0 and plan.values < SMALL * plan.per_thread:
        with cython.critical_section(lock):
            single_jobs_left -= 1
        return 1
    if requested == 0:
        requested = <int>min(<ptrdiff_t>allowed_threads(), plan.values // plan.per_thread)
    return <int>min(<ptrdiff_t>requested, plan.most_threads)


# ---- values that the kernels leave undecided -------------------------------------------------------------------------------

cdef double decide(void *context, const position_t *position, ptrdiff_t column, const double *factors,
                   dtype_t dtype) noexcept nogil:
    """Return an undecided value, rounded; `factors` are those of this column and the next one, or NULL."""
    with gil:
        return decided_in_python(<undecided_t *>context, position, column, factors, dtype)


cdef double decided_in_python(undecided_t *undecided, const position_t *position, ptrdiff_t column, const double *factors,
                              dtype_t dtype) noexcept:
    """Evaluate a value.  The first exception, also that of a signal handler, is kept and raised at the end of the call."""
    cdef run_t *run = undecided.run
    cdef int i
    if run.error != NULL:
        return 0
    try:
        number = 0
        for i in range(position.limbs - 1, -1, -1):
            number = number << 32 | position.limb[i]
        if position.negative:
            number = -number
        pair = None if factors == NULL else (factors[0], factors[1])
        return (<object>undecided.value)(number, 32 * position.exponent, column, <int>dtype, pair)
    except BaseException as error:
        with cython.critical_section(lock):
            if run.error == NULL:
                Py_INCREF(error)
                run.error = <PyObject *>error
    return 0
