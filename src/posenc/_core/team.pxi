# The team of threads that runs the blocks of a call, and the signal checks between pieces of the work.

cdef enum:
    # PER_THREAD: values that justify another thread.  PER_CHECK: values that a thread computes before time is first measured.
    # A value takes 0.3 to 2 ns if advanced from an anchor, 3 to 20 ns if evaluated directly, 3 to 15 us if evaluated exactly.
    ADVANCED_PER_THREAD = 1 << 18
    ADVANCED_PER_CHECK = 1 << 24
    DIRECT_PER_THREAD = 1 << 14
    DIRECT_PER_CHECK = 1 << 13
    SMALL = 32                          # a job is small if it has fewer values than SMALL times PER_THREAD
    LONGEST_PAUSE = 256                 # largest value of `single_jobs`

cdef double PIECE_SECONDS = 0.05

cdef int threads_in_use = 0             # threads of all calls that use more than one thread
cdef int single_jobs = 0                # number of small jobs that run in one thread after an uneven team: see run_team
cdef int single_jobs_left = 0           # number of these jobs that are still to run

OPENMP = POSENC_OPENMP

cdef struct slot_t:
    # a thread's tally, padded to a cache line
    tally_t tally
    char padding[48]


cdef struct undecided_t:
    # to evaluate the values of a spec_t that the kernel leaves undecided: see undecided.pxi
    PyObject *value                     # a borrowed `exact.Values`
    PyObject *error                     # the first exception
    bint serial                         # whether the call uses one thread


cdef struct run_t:
    # the first member of the context of every call
    const kernel_t *kernel
    undecided_t *undecided              # one for each spec_t
    int specs
    size_t bytes                        # size of each thread's memory, a multiple of LINE
    char *memory
    slot_t *slots


openmp_loaded(default_threads.stack_size())


def allowed_threads():
    """Return the largest number of threads that a call uses by default."""
    return 1 if is_serial() else min(default_threads.allowed(openmp_threads()), MAX_THREADS)


cdef bint is_serial() noexcept nogil:
    """Whether calls use one thread: without OpenMP, in a parallel region, or in a forked child, where GNU's runtime hangs."""
    return not POSENC_OPENMP or openmp_in_parallel() or openmp_is_forked()


cdef int team_size(int threads, ptrdiff_t values, ptrdiff_t per_thread, ptrdiff_t blocks) except -1:
    """Return the largest number of threads for a job; docs/reliability.md, "Threads", states the rule.

    `threads` is the argument of the call, 0 for the default.
    """
    global single_jobs_left
    cdef ptrdiff_t most = threads
    if blocks <= 1 or threads == 1 or threads == 0 and values < 2 * per_thread or is_serial():
        return 1
    if single_jobs_left > 0 and values < SMALL * per_thread:
        with cython.critical_section(lock):
            single_jobs_left -= 1
        return 1
    if threads == 0:
        most = min(<ptrdiff_t>allowed_threads(), values // per_thread)
    return <int>min(most, blocks)


cdef int run_call(run_block_t block, run_t *run, ptrdiff_t blocks, ptrdiff_t per_check, int threads, str purpose) except -1:
    """Run the blocks of a call, whose context begins with `run`; then raise the first exception of an undecided value.

    Each thread has `run.bytes` of memory and a tally.  If the memory is not available, the error states its `purpose`.
    """
    cdef slot_t slots[MAX_THREADS]
    cdef char *memory = NULL
    cdef int i
    if run.bytes:
        memory = <char *>malloc(threads * run.bytes + LINE)
        if memory == NULL:
            raise MemoryError(f"Unable to allocate {threads * run.bytes} bytes for {purpose}")
        run.memory = <char *>on_cache_line(memory)
    run.slots = slots
    for i in range(threads):
        slots[i].tally.uncertain = slots[i].tally.exact = 0
    for i in range(run.specs):
        run.undecided[i].error = NULL
        run.undecided[i].serial = threads == 1
    try:
        run_team(block, run, blocks, per_check, threads)
        for i in range(run.specs):
            if run.undecided[i].error != NULL:
                raise <object>run.undecided[i].error
    finally:
        free(memory)
        for i in range(run.specs):
            Py_XDECREF(run.undecided[i].error)
        with cython.critical_section(lock):
            for i in range(threads):
                counted.uncertain += slots[i].tally.uncertain
                counted.exact += slots[i].tally.exact
    return 0


cdef int run_team(run_block_t block, void *context, ptrdiff_t blocks, ptrdiff_t per_check, int threads) except -1:
    """Run blocks on `threads` threads, minus those that other calls use and those that the system refuses.

    If other processes use the processors, or if the system runs two threads on one processor, the threads of a team may wait
    for each other longer than a small job takes.  A team is uneven if the calling thread ran more than 3/4 of all blocks,
    or less than 1/4 of an equal share.  The next small jobs then run in one thread: 1 job after the first uneven team, 2 jobs
    after the next one, then 4, ..., until a team shares its blocks evenly.
    """
    global threads_in_use, single_jobs, single_jobs_left
    cdef int team = 1, granted = 1
    cdef ptrdiff_t own = 0
    cdef bint uneven
    if threads > 1:
        with cython.critical_section(lock):
            team = max(1, threads - threads_in_use)
            threads_in_use += team
    try:
        with nogil:
            if team > 1:
                granted = openmp_team(team)
            own = run_pieces(block, context, blocks, per_check, granted)
    finally:
        if threads > 1:
            with cython.critical_section(lock):
                threads_in_use -= team
                if granted > 1:
                    uneven = 4 * own > 3 * blocks or 4 * granted * own < blocks
                    single_jobs = min(max(1, 2 * single_jobs), LONGEST_PAUSE) if uneven else 0
                    single_jobs_left = single_jobs
    return 0


cdef ptrdiff_t run_pieces(run_block_t block, void *context, ptrdiff_t blocks, ptrdiff_t per_check, int team) except -1 nogil:
    """Run blocks in pieces of at most about 50 ms; return the number of blocks that the calling thread ran in a team.

    Signals are checked between pieces; a handler may raise or fork.
    """
    cdef ptrdiff_t first = 0, last, which, piece = per_check * team, own = 0
    cdef double start = now() if piece < blocks else 0, checked = start, end
    while True:
        last = min(first + piece, blocks)
        if team == 1:
            for which in range(first, last):
                block(context, which, 0)
        else:
            own += openmp_run(block, context, first, last, team)
        if last == blocks:
            return own
        first = last
        end = now()
        if end - start < PIECE_SECONDS / 2:
            piece *= 16 if end - start < PIECE_SECONDS / 32 else 2
        elif end - start > PIECE_SECONDS:
            piece = max(<ptrdiff_t>team, piece // 2)
        if abs(end - checked) >= PIECE_SECONDS / 2:
            # does nothing outside the main thread; only Python can reliably detect which thread this is
            with gil:
                PyErr_CheckSignals()
            checked = end = now()
        start = end
        if team > 1 and openmp_is_forked():
            team = 1


cdef double now() noexcept nogil:
    """Return the wall-clock time in seconds.  If the clock is reset, only the lengths of a few pieces change."""
    cdef timespec t
    timespec_get(&t, TIME_UTC)
    return <double>t.tv_sec + 1e-9 * <double>t.tv_nsec


cdef void *on_cache_line(void *memory) noexcept nogil:
    """Return the first address in `memory` at which a cache line starts; at most LINE - 1 bytes are lost."""
    return <char *>memory + -<uintptr_t>memory % LINE
