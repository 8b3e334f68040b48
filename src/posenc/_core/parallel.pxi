# Runs the blocks of a call: run_call -> run_pieces, with the parallel region -> take_blocks, the loop of each
# thread.
#
# A call is planned as blocks of rows (c/plan.h).  A team of threads runs them in pieces of about
# PIECE_SECONDS.

cdef enum:
    MAX_UNDECIDED = 1 << 12     # a thread with this many undecided values takes no block before they are evaluated

cdef double PIECE_SECONDS = 0.05        # after this time, no thread takes another block of the piece

cdef object lock = object()             # guards the following numbers, and the kept tables
cdef tally_t counted                    # the counts of all threads since the last call of `counters`
cdef int threads_in_use = 0             # threads reserved by calls that may use more than one

counted.uncertain = counted.exact = 0

OPENMP = POSENC_OPENMP


cdef struct run_t
ctypedef void (*block_t)(run_t *run, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil


cdef struct run_t:
    # the first member of the context of every call
    const kernel_t *kernel
    plan_t plan
    block_t block
    size_t bytes                        # size of each thread's memory, a multiple of LINE
    char *memory
    tally_t *tallies                    # one for each thread of the plan
    counter_t next                      # the first block that no thread has taken
    double start                        # of the piece that the team runs, in seconds


# records the process, to detect forks, and the stack size set for OpenMP threads
openmp_loaded(default_threads.stack_size())


cdef void take_blocks(run_t *run, int thread) noexcept nogil:
    """Take the next block and run it, until none is left, time is up, or this thread has many
    undecided values."""
    cdef tally_t *tally = &run.tallies[thread]
    cdef char *memory = run.memory + thread * run.bytes
    cdef ptrdiff_t which
    while True:
        which = next_block(&run.next)
        if which >= run.plan.blocks:
            break
        run.block(run, which, memory, tally)
        # no clock check after the last block; abs() guards against a clock that is set back
        if which + 1 < run.plan.blocks and (tally.count >= MAX_UNDECIDED or abs(seconds() - run.start) > PIECE_SECONDS):
            break


cdef int run_pieces(run_t *run, int team) except -1 nogil:
    """Run blocks in pieces.  Between pieces, evaluate undecided values, and check signals, whose handlers may
    raise or fork."""
    cdef ptrdiff_t first = 0, undecided
    cdef int i
    while True:
        set_counter(&run.next, first)
        run.start = seconds() if run.plan.blocks > 1 else 0
        if team == 1:
            take_blocks(run, 0)
        else:
            # Not prange, whose variables are lastprivate: GCC puts a barrier before such a loop, at
            # which the calling thread would wait for threads that start late.
            with parallel(num_threads=team):
                take_blocks(run, openmp_thread_number())
        first = next_block(&run.next)           # the first block that no thread has run
        undecided = 0
        for i in range(run.plan.threads):
            undecided += run.tallies[i].count + run.tallies[i].is_full
        if undecided or first < run.plan.blocks:
            with gil:
                evaluate_undecided(run)
                PyErr_CheckSignals()  # has no effect in other threads; no test for the main thread is reliable
        if first >= run.plan.blocks:
            return 0
        if team > 1 and openmp_is_forked():     # by a signal handler; this is the child
            team = 1


# ---- values that the kernels leave undecided -----------------------------------------------------------

cdef int evaluate_undecided(run_t *run) except -1:
    """Evaluate and write the values that the blocks of a piece have left undecided.

    This is outside of the parallel region, because a signal handler may run here, and fork.
    """
    cdef tally_t *tally
    cdef undecided_t *u
    cdef ptrdiff_t i
    cdef int thread, limb
    for thread in range(run.plan.threads):
        tally = &run.tallies[thread]
        if tally.is_full:
            raise MemoryError(f"Unable to allocate {2 * tally.count * sizeof(undecided_t)} bytes for undecided values")
        for i in range(tally.count):
            u = &tally.undecided[i]
            number = 0
            for limb in range(u.position.limbs - 1, -1, -1):
                number = number << 32 | u.position.limb[limb]
            if u.position.negative:
                number = -number
            pair = (u.factors[0], u.factors[1]) if u.is_combined else None
            with default_environment():         # of floating-point arithmetic
                value = (<object>u.context)(
                    number, 32 * u.position.exponent - u.position.shift, u.column, <int>u.job.dtype, pair)
                run.kernel.write(&u.job, value)
        tally.count = 0
    return 0


# ---- calls ---------------------------------------------------------------------------------------------

cdef int run_call(run_t *run, block_t block, str purpose) except -1:
    """Run the blocks of a call as planned in run.plan; `run` must be the first member of its context.

    Threads that other calls use, and those that the system refuses, are not available.  Each thread has
    `run.bytes` of memory and a tally.  If the memory is not available, the error states its `purpose`.
    """
    global threads_in_use
    cdef tally_t tallies[MAX_THREADS]
    if not has_stack():
        raise MemoryError("the stack of the calling thread is too small; increase threading.stack_size or ulimit -s")
    cdef int threads = run.plan.threads, i, reserved = 1, team = 1
    cdef bytes memory = allocate(<double>threads * run.bytes, purpose) if run.bytes else b""
    run.kernel = active
    run.block = block
    run.memory = on_cache_line(memory)
    run.tallies = tallies
    memset(tallies, 0, threads * sizeof(tally_t))
    if threads > 1:
        with cython.critical_section(lock):
            reserved = max(1, threads - threads_in_use)
            threads_in_use += reserved
    try:
        if run.plan.keeps_gil:
            run_pieces(run, 1)
        else:
            with nogil:
                if reserved > 1:
                    team = openmp_team(reserved)
                run_pieces(run, team)
    finally:
        with cython.critical_section(lock):
            if threads > 1:
                threads_in_use -= reserved
            for i in range(threads):
                counted.uncertain += tallies[i].uncertain
                counted.exact += tallies[i].exact
                free(tallies[i].undecided)
    return 0


cdef bytes allocate(double size, str purpose):
    """Return memory that holds `size` bytes from the first cache line on.  If it is not available, the error
    states its `purpose`."""
    try:
        return PyBytes_FromStringAndSize(NULL, <ptrdiff_t>min(size, 2.0**62) + LINE)
    except MemoryError:
        raise MemoryError(f"Unable to allocate {size:.0f} bytes for {purpose}") from None


cdef char *on_cache_line(bytes memory) noexcept:
    """Return the first address in `memory` at which a cache line starts, at most LINE - 1 bytes from its start."""
    return <char *>memory + -<uintptr_t><char *>memory % LINE


def counters():
    """Return two counts since the last call: uncertain groups of values, and values evaluated exactly.

    A group is a row of a tile or, in a rotation, a bunch of pairs.  Most of its values need no exact
    evaluation: see `tally_t` in kernel.h.
    """
    with cython.critical_section(lock):
        result = {"uncertain": counted.uncertain, "exact": counted.exact}
        counted.uncertain = counted.exact = 0
    return result


# ---- number of threads ---------------------------------------------------------------------------------


def allowed_threads():
    """Return the largest number of threads that a call uses by default."""
    return allowed_for(0, INFINITY, 1)


cdef bint is_serial() noexcept nogil:
    """Whether calls use one thread: without OpenMP, in a parallel region, or in a forked child, where
    GNU's runtime would hang."""
    return not POSENC_OPENMP or openmp_in_parallel() or openmp_is_forked()


cdef int allowed_for(int requested, double values, ptrdiff_t per_thread) except -1:
    """Return the most threads that a call may use; docs/reliability.md, "Threads", states the rule.

    `values` is the work of the call, and `per_thread` the least work that justifies a thread.  `requested` is the
    argument of the call, at most MAX_THREADS, or 0 for the default.
    """
    if requested == 1 or requested == 0 and values < 2 * per_thread or is_serial():
        return 1
    return requested or <int>min(values / per_thread, <double>default_threads.allowed(openmp_threads()), <double>MAX_THREADS)
