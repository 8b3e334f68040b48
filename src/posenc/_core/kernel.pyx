# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""Python interface to the C kernels: it plans each call, provides its buffers and threads, and checks signals."""

import os
from math import prod

import cython
from numpy import dtype as np_dtype
from numpy import empty, ndarray, uint8, uint16

from posenc._core import limits

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cython.parallel cimport prange, threadid
from libc.math cimport floor
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from posenc._buffers cimport (
    integers_of,
    append_axis,
    is_monotonic,
    majority_step,
    merge_axes,
    overlap,
    positions_t,
    read_array,
    read_range,
    read_rows,
    rows_t,
)

cdef enum:
    # Fewest rows that are rotated with an offset table.  Building a table takes as long as the direct evaluation of about 100
    # rows in double-double, as for float64, or of 300 to 500 rows in double; a kept table also speeds up later calls.
    ROWS_WITH_TABLE = 4                 # if the table exists
    ROWS_FOR_KEPT_TABLE = 32            # if the table is built and kept
    ROWS_FOR_TABLE_FLOAT64 = 128        # if the table is built for one call, and direct evaluation is in double-double
    ROWS_FOR_TABLE = 512                # if the table is built for one call, and direct evaluation is in double
    KEPT_TABLES = 2                     # offset tables that an encoding keeps
    KEPT_COLUMNS = 1 << 13              # most columns of a kept table; each takes 1.3 kB
    # Number of values that justify another thread, and number that a thread computes before the speed is first measured.
    # A rotated value takes 0.3 to 2 ns, a directly evaluated one 3 to 20 ns, an exact one 3 to 15 us.
    ROTATED_PER_THREAD = 1 << 17
    ROTATED_PER_CHECK = 1 << 24
    DIRECT_PER_THREAD = 1 << 14
    DIRECT_PER_CHECK = 1 << 13
    SMALL = 32                          # a job is small if it has fewer values than SMALL times the number per thread
    LONGEST_PAUSE = 256                 # largest value of `pause`
    MIN_ENTRIES = 64                    # fewest batch entries in a block: each block of the batch computes the rows again
    TILES_PER_BLOCK = 16                # tiles of an offset table in a block, 20 us each
    STREAM_BYTES = 1 << 23              # outputs of at least this size exceed the caches and use non-temporal stores ...
    FRESH_BYTES = 1 << 25               # ... except new arrays of at least this size, whose pages the system has just zeroed
    ALIGNED_BYTES = 1 << 12             # arrays of at least this size start on a cache line
    TABLE_BYTES = 1 << 17               # size of the cosines and sines that a thread keeps in L2 during a rotation
    FEWEST_TABLE_ROWS = 4               # fewest rows of cosines and sines that a thread computes together
    FEWEST_HEADS = 8                    # fewest heads in a block, if a rotation is divided among threads
    MOST_TURNED = 1 << 20               # most values in a block of a rotation: limits its time if all are evaluated exactly
    MOST_TURNINGS = 16                  # largest number of position axes

cdef double PIECE_SECONDS = 0.05

cdef const kernel_t *active = NULL
cdef bint rounding_test_skipped = False
cdef tally_t counted
cdef int threads_in_use = 0             # by all calls that use more than one thread
cdef int pause = 0                      # number of small jobs that run in one thread after an uneven team: see _run
cdef int paused = 0                     # number of these jobs still to come
cdef object lock = object()             # guards `counted`, the three variables above, and `error` of every call_t
cdef str invalid_setting = None
counted.uncertain = counted.exact = 0

DTYPES = {"float64": FLOAT64, "float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}
OPENMP = POSENC_OPENMP

ctypedef void (*block_t)(void *context, ptrdiff_t which, int member) noexcept nogil


cdef struct slot_t:
    # a thread's tally, padded to a cache line
    tally_t tally
    char padding[48]


cdef struct plan_t:
    bint rotated
    output_t output
    ptrdiff_t first                     # first column of the offset table
    size_t panel                        # bytes
    int threads                         # most threads
    ptrdiff_t rows, entries             # in a block: rows of the table, and entries of the batch
    ptrdiff_t row_blocks, blocks        # blocks for all rows of the table, and for all rows and batch entries
    ptrdiff_t per_check                 # blocks that each thread runs in the first piece


cdef struct run_t:
    # a job that runs in blocks
    const kernel_t *kernel
    const spec_t *spec
    const call_t *call
    const job_t *job
    ptrdiff_t all_rows
    plan_t plan
    ptrdiff_t ranges                    # contiguous ranges of blocks, one for each thread
    char *panels
    slot_t *slots


cdef struct call_t:
    # the context of `decide`
    PyObject *value                     # a borrowed `_exact.Values`
    PyObject *error                     # the first exception
    bint serial


cdef struct request_t:
    call_t *call
    const position_t *position
    ptrdiff_t column
    const double *factors               # the factors of this column and the next one, or NULL
    dtype_t dtype
    double value
    PyThread_type_lock lock             # released when `value` is set; NULL if the call uses one thread


cdef struct turn_t:
    # a rotation that runs in blocks of rows and heads
    const kernel_t *kernel
    const rotation_t *rotation
    const call_t *calls                 # one for each turning
    ptrdiff_t all_rows, all_heads
    ptrdiff_t rows, heads               # in a block
    ptrdiff_t row_blocks
    size_t bytes                        # size of each thread's memory
    char *memory
    slot_t *slots


cdef struct tables_t:
    # an offset table that is computed in blocks of tiles
    const kernel_t *kernel
    const spec_t *spec
    const offsets_t *offsets
    ptrdiff_t tiles


# ---- settings and counters -------------------------------------------------------------------------------------------------


def instruction_sets():
    """Return {name: whether this processor supports it} for the instruction sets that were built, best first."""
    result = {}
    cdef int i = 0
    while posenc_kernels[i] != NULL:
        result[(posenc_kernels[i].name).decode()] = bool(posenc_kernels[i].is_supported())
        i += 1
    return result


def instruction_set():
    """Return the name of the instruction set in use."""
    return (active.name).decode()


def use_instruction_set(name=None, what="instruction set"):
    """Select the kernels of an instruction set, by default the best one.  This function is not thread-safe."""
    global active
    for i, (built, runs) in enumerate(instruction_sets().items()):
        if runs and name in (None, built):
            active = posenc_kernels[<int>i]
            return
    available = [built for built, runs in instruction_sets().items() if runs]
    raise ValueError(f"{what} is {name!r}, expected one of the instruction sets of this processor: {', '.join(available)}")


cdef class default_environment:
    """A context with the default rounding mode and without flush-to-zero, for arithmetic in Python.

    The kernels set and restore their floating-point environment themselves.
    """

    cdef environment_t host

    def __enter__(self):
        self.host = environment_enter()

    def __exit__(self, kind, error, traceback):
        environment_leave(self.host)


def rounded(str dtype, double x):
    """Return x rounded to a dtype, as a float."""
    return posenc_rounded(<dtype_t><int>DTYPES[dtype], x)


def skip_rounding_test(bint skip):
    """Set whether rotated values are stored without a rounding test.  Tests use this to show that the test is needed."""
    global rounding_test_skipped
    rounding_test_skipped = skip


def counters():
    """Return two counts since the last call: uncertain groups of values, and values that were evaluated exactly.

    A group is a row of a tile or, in a rotation, a bunch of pairs: see `tally_t` in kernel.h.
    """
    with cython.critical_section(lock):
        result = {"uncertain": counted.uncertain, "exact": counted.exact}
        counted.uncertain = counted.exact = 0
    return result


def check_settings():
    """Raise ValueError if an environment variable is invalid.  Not called at import, where few programs catch errors."""
    if invalid_setting is not None:
        raise ValueError(invalid_setting)


use_instruction_set()
try:
    use_instruction_set(os.environ.get("POSENC_ISA") or None, "POSENC_ISA")
    limits.requested()
except ValueError as error:
    invalid_setting = str(error)
openmp_loaded(limits.stack_size())


# ---- threads, pieces and signals -------------------------------------------------------------------------------------------


def allowed_threads():
    """Return the largest number of threads that a call uses by default."""
    return 1 if _is_serial() else min(limits.allowed(openmp_threads()), MAX_THREADS)


cdef bint _is_serial() noexcept nogil:
    """Whether calls use one thread: without OpenMP, in a parallel region, or in a forked child, where GNU's runtime hangs."""
    return not POSENC_OPENMP or openmp_in_parallel() or openmp_is_forked()


cdef int _team_size(object threads, ptrdiff_t values, ptrdiff_t per_thread, ptrdiff_t blocks) except -1:
    """Return the largest number of threads for a job; docs/reliability.md, "Threads", states the rule."""
    global paused
    cdef ptrdiff_t most
    if blocks <= 1 or threads is not None and threads == 1 or threads is None and values < 2 * per_thread or _is_serial():
        return 1
    if paused > 0 and values < SMALL * per_thread:
        with cython.critical_section(lock):
            paused -= 1
        return 1
    if threads is None:
        most = min(<ptrdiff_t>allowed_threads(), values // per_thread)
    else:
        most = MAX_THREADS if threads > MAX_THREADS else threads
    return <int>min(most, blocks)


cdef int _run(block_t block, void *context, ptrdiff_t blocks, ptrdiff_t per_check, int threads) except -1:
    """Run blocks on `threads` threads, minus those that other calls use and those that the system refuses.

    If other processes use the processors, or if the system runs two threads on one processor, the threads of a team may wait
    for each other longer than a small job takes.  So if a team is uneven (the calling thread ran more than 3/4 of all
    blocks, or less than 1/4 of an equal share), the next small jobs run in one thread: 1 job after the first uneven team, then
    2, 4, ..., until a team shares its blocks evenly.
    """
    global threads_in_use, pause, paused
    cdef int team = 1
    cdef ptrdiff_t own = 0
    cdef bint uneven
    if threads > 1:
        with cython.critical_section(lock):
            team = max(1, threads - threads_in_use)
            threads_in_use += team
    try:
        with nogil:
            own = _run_pieces(block, context, blocks, per_check, openmp_team(team) if team > 1 else 1)
    finally:
        if threads > 1:
            with cython.critical_section(lock):
                threads_in_use -= team
                if team > 1:
                    uneven = 4 * own > 3 * blocks or 4 * team * own < blocks
                    pause = min(max(1, 2 * pause), LONGEST_PAUSE) if uneven else 0
                    paused = pause
    return 0


cdef ptrdiff_t _run_pieces(block_t block, void *context, ptrdiff_t blocks, ptrdiff_t per_check, int team) except -1 nogil:
    """Run blocks in pieces of at most about 50 ms; return how many blocks the calling thread ran as a member of a team.

    Signals are checked between pieces; a handler may raise or fork.
    """
    cdef ptrdiff_t first = 0, last, which, piece = per_check * team, own = 0
    cdef double start = _now() if piece < blocks else 0, checked = start, end
    while True:
        last = min(first + piece, blocks)
        if team == 1:
            for which in range(first, last):
                block(context, which, 0)
        else:
            for which in prange(first, last, schedule="dynamic", num_threads=team):
                block(context, which, threadid())
                own += threadid() == 0
        if last == blocks:
            return own
        first = last
        end = _now()
        if end - start < PIECE_SECONDS / 2:
            piece *= 16 if end - start < PIECE_SECONDS / 32 else 2
        elif end - start > PIECE_SECONDS:
            piece = max(<ptrdiff_t>team, piece // 2)
        if abs(end - checked) >= PIECE_SECONDS / 2:
            # does nothing outside the main thread; only Python can reliably tell which thread this is
            with gil:
                PyErr_CheckSignals()
            checked = end = _now()
        start = end
        if team > 1 and openmp_is_forked():
            team = 1


cdef double _now() noexcept nogil:
    """Return the wall-clock time in seconds.  If the clock is reset, only the lengths of a few pieces change."""
    cdef timespec t
    timespec_get(&t, TIME_UTC)
    return <double>t.tv_sec + 1e-9 * <double>t.tv_nsec


# ---- offset tables -----------------------------------------------------------------------------------------------------------


cdef class Offsets:
    """An immutable offset table for rows that are `step` apart, from column `first` on."""

    cdef offsets_t table
    cdef void *memory

    def __dealloc__(self):
        free(self.memory)


cdef Offsets _tabulated(const spec_t *spec, uint64_t step, ptrdiff_t first, object threads):
    cdef Offsets result = Offsets.__new__(Offsets)
    cdef offsets_t *table = &result.table
    cdef ptrdiff_t blocks
    cdef size_t size = OFFSETS_PER_COLUMN * spec.columns * sizeof(double) + LINE
    cdef tables_t tables
    result.memory = malloc(size)
    if result.memory == NULL:
        raise MemoryError(f"Unable to allocate {size} bytes for the offset table of d_model {spec.d_model}")
    table[0] = offsets_in(<double *>_on_cache_line(result.memory), spec.columns, step, first)
    tables.kernel = active
    tables.spec = spec
    tables.offsets = table
    tables.tiles = spec.columns // TILE
    blocks = (tables.tiles + TILES_PER_BLOCK - 1) // TILES_PER_BLOCK
    _run(tabulate_block, &tables, blocks, 1, _team_size(threads, (HALF + COARSE) * spec.columns, DIRECT_PER_THREAD, blocks))
    return result


cdef void tabulate_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef tables_t *tables = <tables_t *>context
    cdef ptrdiff_t first = which * TILES_PER_BLOCK
    tables.kernel.tabulate(tables.spec, tables.offsets, first, min(first + TILES_PER_BLOCK, tables.tiles))


cdef void *_on_cache_line(void *memory) noexcept nogil:
    """Return the first address in `memory` at which a cache line starts; at most LINE - 1 bytes are lost."""
    return <char *>memory + -<uintptr_t>memory % LINE


# ---- plans and blocks --------------------------------------------------------------------------------------------------------


cdef plan_t _plan(const spec_t *spec, const job_t *job, ptrdiff_t rows, uint64_t step, bint has_table, bint may_stream,
                  object threads) except *:
    """Return the plan of a job.

    Parameters
    ----------
    job
        Its `offsets` and `panel` are not set yet; `output` is ADD or STORE.
    step : int
        Distance between rows that can be rotated, 0 if there are none.
    has_table : bool
        Whether the encoding keeps the offset table of `step`.
    may_stream : bool
        False if the pages of `out` are new: the system zeroes them as they are written, so their lines are in the cache.
    """
    cdef plan_t plan
    cdef ptrdiff_t itemsize = _itemsize(job.dtype)
    cdef ptrdiff_t columns = spec.columns, values = rows * columns * job.batch, row_bytes = spec.d_model * itemsize
    cdef ptrdiff_t pitch, per_thread, per_check
    plan.output = job.output
    plan.first = 0
    plan.panel = 0
    plan.rotated = _is_rotated(
        spec, rows, step, has_table, ROWS_FOR_TABLE_FLOAT64 if job.dtype == FLOAT64 else ROWS_FOR_TABLE)
    if plan.rotated:
        pitch = min(columns * itemsize, STRIP * TILE * itemsize) + LINE
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
    if (plan.rotated and spec.has_fast_path and (spec.fast_test or job.dtype == FLOAT64)
            and _few_limbs(spec.position_offset, job, rows)):
        per_thread = ROTATED_PER_THREAD
        per_check = ROTATED_PER_CHECK
        plan.rows = BLOCK
    else:
        per_thread = DIRECT_PER_THREAD
        per_check = DIRECT_PER_CHECK
        plan.rows = max(1, min(<ptrdiff_t>BLOCK, per_check // columns))
    plan.threads = _team_size(threads, values, per_thread, (rows * job.batch + FINE - 1) // FINE)
    while plan.rows > FINE and (plan.threads > 1 and rows < 4 * plan.threads * plan.rows
                                or plan.rows * columns * min(job.batch, <ptrdiff_t>MIN_ENTRIES) > per_check):
        plan.rows //= 2
    plan.entries = min(job.batch, max(<ptrdiff_t>MIN_ENTRIES, per_check // (plan.rows * columns)))
    plan.row_blocks = (rows + plan.rows - 1) // plan.rows
    plan.blocks = plan.row_blocks * ((job.batch + plan.entries - 1) // plan.entries)
    plan.per_check = max(1, per_check // (plan.rows * columns * plan.entries))
    return plan


cdef bint _is_rotated(const spec_t *spec, ptrdiff_t rows, uint64_t step, bint has_table, ptrdiff_t rows_for_table) noexcept:
    """Whether rows that are `step` apart are rotated with an offset table; it is built for at least `rows_for_table` rows."""
    cdef ptrdiff_t min_rows = ROWS_WITH_TABLE if has_table else \
        ROWS_FOR_KEPT_TABLE if step == 1 and spec.columns <= KEPT_COLUMNS else rows_for_table
    # the limit keeps step times the longest offset inside the int64 range
    return 0 < step < <uint64_t>1 << 50 and rows >= min_rows


cdef uint64_t _spacing(job_t *job, ptrdiff_t rows) noexcept nogil:
    """Return the distance between rows that can be rotated, 0 if there are none; the positions must be integers.

    An evenly spaced array is replaced by its first position and its step.
    """
    cdef ptrdiff_t matches
    cdef uint64_t step
    if job.integers == NULL:
        return -job.step if <int64_t>job.step < 0 else job.step
    step = majority_step(job.integers, rows, &matches)
    if step and matches == rows - 1 and is_monotonic(job.integers, rows, step):
        job.start = <uint64_t>job.integers[0]
        job.step = step if job.integers[rows - 1] > job.integers[0] else -step
        job.integers = NULL
    return step


cdef bint _few_limbs(double offset, const job_t *job, ptrdiff_t rows) noexcept:
    """Whether position + offset fits the 4 limbs of the fast path: 2 before and 2 after the point, or 1 and 3."""
    cdef int64_t first = <int64_t>job.start, last = <int64_t>(job.start + <uint64_t>(rows - 1) * job.step)
    if floor(offset * 2.0**64) == offset * 2.0**64:
        return True
    return (job.integers == NULL and floor(offset * 2.0**96) == offset * 2.0**96
            and min(first, last) > -(<int64_t>1 << 31) and max(first, last) < <int64_t>1 << 31)


cdef void encode_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    """Run a block.  Successive blocks are in different ranges, so that threads do not all fault on the same huge page."""
    cdef run_t *run = <run_t *>context
    cdef plan_t *plan = &run.plan
    cdef ptrdiff_t range_blocks = (plan.blocks + run.ranges - 1) // run.ranges
    cdef ptrdiff_t block = which % run.ranges * range_blocks + which // run.ranges
    cdef ptrdiff_t row = block % plan.row_blocks * plan.rows, entry = block // plan.row_blocks * plan.entries
    cdef job_t job = run.job[0]
    if block >= plan.blocks or run.call.error != NULL:
        return                          # past the end of the last range, or after an error
    job.out += entry * job.batch_stride
    job.batch = min(plan.entries, job.batch - entry)
    run.kernel.rows(run.spec, &job, row, min(plan.rows, run.all_rows - row), run.panels + member * plan.panel,
                    &run.slots[member].tally)


# ---- values that the kernel leaves undecided ---------------------------------------------------------------------------------


cdef double decide(void *context, const position_t *position, ptrdiff_t column, const double *factors,
                   dtype_t dtype) noexcept nogil:
    """Return the value that exact.c or combination.c leaves undecided.

    In a parallel region a new thread evaluates it, because in the main thread Python could run a signal handler, which may
    raise or fork.
    """
    cdef request_t request
    request.call = <call_t *>context
    request.position = position
    request.column = column
    request.factors = factors
    request.dtype = dtype
    request.lock = NULL if request.call.serial else PyThread_allocate_lock()
    if request.lock == NULL:
        evaluate(&request)
        return request.value
    PyThread_acquire_lock(request.lock, True)
    # -1: PYTHREAD_INVALID_THREAD_ID
    if PyThread_start_new_thread(evaluate, &request) == <unsigned long>-1:
        evaluate(&request)
    PyThread_acquire_lock(request.lock, True)
    PyThread_free_lock(request.lock)
    return request.value


cdef void evaluate(void *argument) noexcept nogil:
    cdef request_t *request = <request_t *>argument
    cdef PyThread_type_lock lock = request.lock
    with gil:
        evaluate_in_python(request)
    if lock != NULL:
        PyThread_release_lock(lock)


cdef void evaluate_in_python(request_t *request) noexcept:
    """Set the value of a request.  The first exception is kept and raised at the end of the call."""
    cdef const position_t *position = request.position
    cdef call_t *call = request.call
    cdef int i
    request.value = 0
    if call.error != NULL:
        return
    try:
        number = 0
        for i in range(position.limbs - 1, -1, -1):
            number = number << 32 | position.limb[i]
        if position.negative:
            number = -number
        factors = None if request.factors == NULL else (request.factors[0], request.factors[1])
        request.value = (<object>call.value)(number, 32 * position.exponent, request.column, <int>request.dtype, factors)
    except BaseException as error:
        with cython.critical_section(lock):
            if call.error == NULL:
                Py_INCREF(error)
                call.error = <PyObject *>error


# ---- arrays and dtypes -------------------------------------------------------------------------------------------------------


cdef ptrdiff_t _itemsize(dtype_t dtype) noexcept nogil:
    return 8 if dtype == FLOAT64 else 4 if dtype == FLOAT32 else 2


cdef object _new(tuple shape, object element, ptrdiff_t size):
    """Return an uninitialised array; a large one starts on a cache line."""
    cdef Py_buffer view
    if size < ALIGNED_BYTES:
        return empty(shape, element)
    memory = empty(size + LINE, uint8)
    PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
    size = <char *>_on_cache_line(view.buf) - <char *>view.buf
    PyBuffer_Release(&view)
    return ndarray(shape, element, memory, size)


def new_array(tuple shape, element):
    """Return an uninitialised array; a large one starts on a cache line."""
    size = prod(shape) * element.itemsize
    return _new(shape, element, size) if size < 2**62 else empty(shape, element)


# dtype argument -> (dtype_t, np.dtype)
cdef dict ELEMENTS = {}


cdef tuple _register(str name, object element):
    cdef tuple result = (DTYPES[name], element)
    if element.name == name:            # else uint16 holds the bits of a bfloat16
        for key in (element, element.type, name):
            ELEMENTS[key] = result
    return result


for _name in ("float64", "float32", "float16"):
    _register(_name, np_dtype(_name))


cdef tuple _element(object dtype):
    try:
        return ELEMENTS.get(dtype)
    except TypeError:                   # not hashable
        return None


# ---- calls from Python -------------------------------------------------------------------------------------------------------


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
        uint64, for each of these columns: the sign bit of its frequency, and all ones if it is a cosine.
    order : {0, 1, 2}
        1 if columns 2 i and 2 i + 1 are sin and cos of one frequency, 2 if they are cos and sin, else 0.
    scale, position_offset : float
    padding_idx : int or None
        The position, before the offset, whose row is all zeros.
    value : callable
        An `_exact.Values`, which evaluates the values that exact.c leaves undecided.
    for_encode, for_add_to : callable
        Functions from `_arguments` that convert arguments outside the common cases, or raise.
    """

    cdef spec_t spec
    cdef list tables                    # offset tables for consecutive positions, newest first
    cdef object memory, value, for_encode, for_add_to

    def __cinit__(self, ptrdiff_t d_model, bytes turns, int integer_limbs, int fraction_limbs, bytes sign, bytes quarter,
                  int order, double scale, double position_offset, object padding_idx,
                  object value, object for_encode, object for_add_to):
        check_settings()
        if integer_limbs + fraction_limbs > MAX_TURN_LIMBS:
            raise ValueError(f"turns has {integer_limbs + fraction_limbs} limbs, expected at most {MAX_TURN_LIMBS}")
        self.memory = (turns, sign, quarter)
        self.value = value
        self.for_encode = for_encode
        self.for_add_to = for_add_to
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
        self.spec.order = <order_t>order
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
        self.spec.fast_test = abs(scale) <= 2.0**10
        self.spec.decide = decide

    def encode(self, object positions, object dtype, object out, object threads):
        """See `posenc.encode`."""
        cdef job_t job
        if dtype is None:
            dtype = getattr(out, "dtype", "float32")
        memset(&job, 0, sizeof(job_t))
        job.output = STORE
        result = self._fill(&job, positions, out, _element(dtype), threads, False)
        if result is None:
            with default_environment():
                positions, name, element, out, threads = self.for_encode(
                    positions, dtype, out, threads, self.spec.d_model, self.spec.position_offset)
            result = self._fill(&job, positions, out, _register(name, element), threads, True)
            if result is None:
                raise ValueError("an array changed its shape, dtype or strides during the call")
        return result

    def add_to(self, object x, object positions, object x_scale, object threads):
        """See `posenc.add_to`."""
        if not self._add_to(x, positions, x_scale, threads, False):
            with default_environment():
                positions, x_scale, threads = self.for_add_to(
                    x, positions, x_scale, threads, self.spec.d_model, self.spec.position_offset)
            _register(x.dtype.name, x.dtype)
            if not self._add_to(x, positions, x_scale, threads, True):
                raise ValueError("an array changed its shape, dtype or strides during the call")

    cdef bint _add_to(self, object x, object positions, object x_scale, object threads, bint checked) except -1:
        cdef job_t job
        cdef tuple element
        if type(x_scale) is int and -(1 << 53) <= x_scale <= 1 << 53:
            x_scale = float(x_scale)
        if type(x) is not ndarray and not checked or type(x_scale) is not float:
            return False
        element = _element(x.dtype)
        if element is None:
            return False
        if positions is None and x.ndim > 1:
            positions = x.shape[x.ndim - 2]
        memset(&job, 0, sizeof(job_t))
        job.output = ADD
        job.x_scale = posenc_rounded(<dtype_t><int>element[0], x_scale)
        return job.x_scale - job.x_scale == 0 and self._fill(&job, positions, x, element, threads, checked) is not None

    cdef object _fill(self, job_t *job, object positions, object out, tuple element, object threads, bint checked):
        """Store the encodings of positions in `out`, or in a new array if it is None; for ADD, add them to `out`.

        Returns
        -------
        ndarray or None
            `out`, or None if an argument must be converted or refused; then nothing was written.
        """
        cdef Py_buffer read, written
        cdef positions_t p
        cdef bint is_array = False, may_stream = True
        cdef ptrdiff_t itemsize, size
        if element is None or not (threads is None or type(threads) is int and threads > 0):
            return None
        job.dtype = <dtype_t><int>element[0]
        itemsize = _itemsize(job.dtype)
        if type(positions) is int or type(positions) is range:
            if not read_range(positions, self.spec.position_offset, checked, &p):
                return None
        elif type(positions) is ndarray and read_array(positions, self.spec.position_offset, checked, &read, &p):
            is_array = True
        else:
            return None
        try:
            if out is None:
                if <double>p.rows * self.spec.d_model > 2.0**58:
                    return None
                shape = (p.rows, self.spec.d_model) if p.axes == 1 else (*positions.shape, self.spec.d_model)
                try:
                    size = p.rows * self.spec.d_model * itemsize
                    out = _new(shape, element[1], size)
                    may_stream = size < FRESH_BYTES
                except MemoryError:
                    return None
            elif type(out) is not ndarray and not checked:
                return None
            # uint16 may hold the bits of a bfloat16
            elif out.dtype != element[1] and not (job.dtype == BFLOAT16 and out.dtype == uint16):
                return None
            bits = out.view(uint16) if job.dtype == BFLOAT16 else out
            if not read_rows(bits, itemsize, self.spec.d_model, checked, &written):
                return None
            try:
                return self._write(job, out, &written, positions, &read if is_array else NULL, &p, element, threads, checked,
                                   may_stream)
            finally:
                PyBuffer_Release(&written)
        finally:
            if is_array:
                PyBuffer_Release(&read)

    cdef object _write(self, job_t *job, object out, const Py_buffer *written, object positions, const Py_buffer *read,
                       const positions_t *p, tuple element, object threads, bint checked, bint may_stream):
        """Merge the axes of `out` and write its rows, with one job for each index of the merged axes except the last one."""
        cdef rows_t rows
        # whether all batch entries have the same positions (a stored table is a batch of one); otherwise, each row has its own
        cdef bint is_table = (p.axes == 1 and written.ndim > 1 and p.rows == written.shape[written.ndim - 2]
                              and (job.output == ADD or written.ndim == 2))
        cdef ptrdiff_t n, count = 1, which, rest, i
        cdef int axis, last
        if not is_table:
            if p.axes != written.ndim - 1 or read == NULL:
                return None
            for axis in range(p.axes):
                if written.shape[axis] != p.shape[axis]:
                    return None
        if written.len == 0:
            return out
        if read != NULL and overlap(read, written):
            return self._fill(job, positions.copy(), out, element, threads, checked)
        job.batch = 1
        merge_axes(&rows, <char *>written.buf, written.shape, written.strides, written.ndim - 1 - is_table)
        if is_table:
            job.batch = rows.shape[rows.axes - 1]
            job.batch_stride = rows.strides[rows.axes - 1]
            rows.shape[rows.axes - 1] = written.shape[written.ndim - 2]
            rows.strides[rows.axes - 1] = written.strides[written.ndim - 2]
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
            i = 0 if is_table else which * n
            job.start = p.start
            job.step = p.step
            job.integers = p.integers + i if p.integers != NULL else NULL
            job.reals = p.reals + i if p.reals != NULL else NULL
            self._launch(job, n, may_stream, threads)
        return out

    cdef int _launch(self, job_t *job, ptrdiff_t rows, bint may_stream, object threads) except -1:
        """Determine the spacing of the positions, plan the job and run it."""
        cdef int64_t *integers = NULL
        cdef output_t output = job.output
        cdef uint64_t step
        cdef plan_t plan
        cdef Offsets table
        try:
            if job.reals != NULL and rows >= ROWS_FOR_KEPT_TABLE:
                with nogil:
                    integers = integers_of(job.reals, rows)
                if integers != NULL:
                    job.integers = integers
                    job.reals = NULL
            if job.reals != NULL:
                step = 0
            else:
                with nogil:
                    step = _spacing(job, rows)
            table = self._find_table(step, 0)
            plan = _plan(&self.spec, job, rows, step, table is not None, may_stream, threads)
            if plan.rotated:
                table = self._table(step, plan.first, threads)
                job.offsets = &table.table
            else:
                job.offsets = NULL
            job.output = plan.output
            job.panel = plan.panel
            job.skip_rounding_test = rounding_test_skipped
            self._run_job(job, rows, &plan)
        finally:
            free(integers)
            job.output = output
        return 0

    cdef Offsets _find_table(self, uint64_t step, ptrdiff_t first):
        cdef Offsets table
        if step == 1:
            with cython.critical_section(self):
                for table in self.tables:
                    if table.table.first == first:
                        return table
        return None

    cdef Offsets _table(self, uint64_t step, ptrdiff_t first, object threads):
        """Return an offset table.

        No lock is held while a table is built, because a child forked meanwhile would inherit the locked lock.  So two threads
        may build the same table.
        """
        cdef Offsets table = self._find_table(step, first)
        if table is None:
            table = _tabulated(&self.spec, step, first, threads)
            if step == 1 and self.spec.columns <= KEPT_COLUMNS:
                with cython.critical_section(self):
                    self.tables = [table, *self.tables[:KEPT_TABLES - 1]]
        return table

    cdef int _run_job(self, const job_t *job, ptrdiff_t rows, const plan_t *plan) except -1:
        """Run a job in blocks of rows and of batch entries, divided among threads."""
        cdef slot_t slots[MAX_THREADS]
        cdef run_t run
        cdef call_t call
        cdef spec_t spec = self.spec
        cdef int threads = plan.threads
        cdef char *memory = NULL
        call.value = <PyObject *>self.value
        call.error = NULL
        call.serial = threads == 1
        spec.context = &call
        run.kernel = active
        run.spec = &spec
        run.call = &call
        run.job = job
        run.all_rows = rows
        run.plan = plan[0]
        run.ranges = threads
        run.slots = slots
        run.panels = NULL
        memset(slots, 0, threads * sizeof(slot_t))
        if plan.panel:
            memory = <char *>malloc(threads * plan.panel + LINE)
            if memory == NULL:
                raise MemoryError(f"Unable to allocate {threads * plan.panel} bytes for panels of rows")
            run.panels = <char *>_on_cache_line(memory)
        try:
            _run(encode_block, &run, (plan.blocks + threads - 1) // threads * threads, plan.per_check, threads)
            if call.error != NULL:
                raise <object>call.error
        finally:
            Py_XDECREF(call.error)
            free(memory)
            _count(slots, threads)
        return 0


# ---- rotation ----------------------------------------------------------------------------------------------------------------


cdef class Rotation:
    """The rotation of pairs of columns by the angles of their positions.

    Parameters
    ----------
    turnings : sequence of (Columns, bytes or None)
        For each axis of positions, the columns of the pairs that it rotates: columns 2 j and 2 j + 1 must be the cosine and
        the sine of one frequency, without an offset or a padding position; all axes must have the same scale.  The bytes are an
        intp array, whose element j is the index of the pair rotated by columns 2 j and 2 j + 1; None, allowed for a single
        axis, means pair j.
    pairs : int
        Number of pairs.
    interleaved : bool
        Whether pair i is columns 2 i and 2 i + 1 of an array; otherwise, it is columns i and i + pairs.
    """

    cdef list turnings
    cdef ptrdiff_t pairs
    cdef bint interleaved

    def __cinit__(self, object turnings, ptrdiff_t pairs, bint interleaved):
        if not 0 < len(turnings) <= MOST_TURNINGS:
            raise ValueError(f"{len(turnings)} axes of positions, expected 1 to {MOST_TURNINGS}")
        self.turnings = list(turnings)
        self.pairs = pairs
        self.interleaved = interleaved

    def rotate(self, object x, object positions, bint inverse, object out, object threads, bint checked=False):
        """Rotate the pairs of `x`, write all columns to `out`, and return True.

        Return False, and write nothing, if an argument has a form not listed below; the caller must convert or refuse it.

        Parameters
        ----------
        x : ndarray, shape (..., n, columns)
            Array of float32, float16 or bfloat16 (ml_dtypes), with at least 2 * pairs columns, which must be contiguous; the
            other axes may have any strides.
        positions : None, range, int or ndarray of int64
            None means ``range(n)``; a range must have length n, and an integer must be n.  An array must be C-contiguous, have
            one axis or as many as ``x.shape[:-1]``, and broadcast to it.  If there are several axes of positions, an array is required, and its first
            dimension, in addition to those, has one element for each axis of positions.
        out : ndarray, optional
            Array with the shape and dtype of x, and rows that do not overlap each other or x.  If None or x, x is overwritten.
        threads : int, optional
        checked : bool
            Whether the caller knows that the rows of `out` (or x) do not overlap; uint16 then holds the bits of bfloat16.
        """
        cdef Py_buffer read, x_view, out_view
        cdef positions_t p
        cdef ptrdiff_t itemsize, columns
        cdef tuple element
        cdef bint is_array = False, has_out = out is not None and out is not x
        if not (type(x) is ndarray or checked and isinstance(x, ndarray)) or x.ndim == 0:
            return False
        element = _element(x.dtype)
        if element is None and (x.dtype.name == "bfloat16" or checked and x.dtype == uint16):
            element = (BFLOAT16, x.dtype)
        if element is None or <int>element[0] == FLOAT64 or not (threads is None or type(threads) is int and threads > 0):
            return False
        if has_out and (type(out) is not ndarray and not checked or out.dtype != x.dtype or out.shape != x.shape):
            return False
        itemsize = _itemsize(<dtype_t><int>element[0])
        columns = x.shape[x.ndim - 1]
        if columns < 2 * self.pairs:
            return False
        if positions is None and x.ndim > 1:
            positions = x.shape[x.ndim - 2]
        if type(positions) is int or type(positions) is range:
            if not read_range(positions, 0, checked, &p) or x.ndim < 2 or x.shape[x.ndim - 2] != p.rows:
                return False
        elif type(positions) is ndarray and read_array(positions, 0, checked, &read, &p):
            is_array = True
        else:
            return False
        try:
            if p.reals != NULL or not is_array and len(self.turnings) > 1:
                return False
            source = x.view(uint16) if itemsize == 2 else x
            if not read_rows(source, itemsize, columns, True, &x_view, PyBUF_STRIDES):
                return False
            try:
                target = source if not has_out else out.view(uint16) if itemsize == 2 else out
                if not read_rows(target, itemsize, columns, checked, &out_view):
                    return False
                try:
                    if has_out and overlap(&x_view, &out_view):
                        return False
                    if is_array and overlap(&read, &out_view):
                        return self.rotate(x, positions.copy(), inverse, out, threads, checked)
                    return self._rotate(&x_view, &out_view, &read if is_array else NULL, &p, inverse, element, threads)
                finally:
                    PyBuffer_Release(&out_view)
            finally:
                PyBuffer_Release(&x_view)
        finally:
            if is_array:
                PyBuffer_Release(&read)

    cdef bint _rotate(self, const Py_buffer *x, const Py_buffer *out, const Py_buffer *read, const positions_t *p, bint inverse,
                      tuple element, object threads) except -1:
        cdef rotation_t r
        cdef turning_t turning[MOST_TURNINGS]
        cdef spec_t specs[MOST_TURNINGS]
        cdef call_t calls[MOST_TURNINGS]
        cdef ptrdiff_t rows = 1, heads = 1
        cdef int turnings = len(self.turnings), skipped = turnings > 1, axes = x.ndim - 1, axis, at, i
        cdef Columns columns
        cdef job_t *job
        cdef Offsets table
        cdef uint64_t step
        cdef list tables = []           # keeps the tables alive
        if read != NULL and (skipped and (p.axes == 0 or p.shape[0] != turnings)
                             or p.axes - skipped > 1 and p.axes - skipped != axes or p.axes - skipped > axes):
            return False
        memset(&r, 0, sizeof(rotation_t))
        for axis in range(axes):
            at = axis - (axes - p.axes) if read != NULL else axis - (axes - 1)
            if at < skipped or read != NULL and p.shape[at] == 1:
                append_axis(&r.heads, x.shape[axis], x.strides[axis], out.strides[axis])
                heads *= x.shape[axis]
            elif p.shape[at] != x.shape[axis]:
                return False
            else:
                append_axis(&r.rows, x.shape[axis], x.strides[axis], out.strides[axis])
                rows *= x.shape[axis]
        if x.len == 0:
            return True
        r.dtype = <dtype_t><int>element[0]
        r.interleaved = self.interleaved
        r.inverse = inverse
        r.has_fast_path = True
        r.pairs = self.pairs
        r.rest = x.shape[axes] - 2 * self.pairs
        r.x = <const char *>x.buf
        r.out = <char *>out.buf
        r.turnings = turnings
        r.turning = turning
        r.skip_rounding_test = rounding_test_skipped
        for i in range(turnings):
            columns = self.turnings[i][0]
            pair = self.turnings[i][1]
            specs[i] = columns.spec
            specs[i].context = &calls[i]
            calls[i].value = <PyObject *>columns.value
            calls[i].error = NULL
            turning[i].spec = &specs[i]
            turning[i].pair = NULL
            if pair is not None:
                turning[i].pair = <const ptrdiff_t *><const char *>(<bytes>pair)
            job = &turning[i].table
            memset(job, 0, sizeof(job_t))
            job.dtype = FLOAT64
            job.output = STORE
            job.batch = 1
            job.start = p.start
            job.step = p.step
            job.integers = p.integers + i * rows if p.integers != NULL else NULL
            with nogil:
                step = _spacing(job, rows)
            table = columns._find_table(step, 0)
            if _is_rotated(&specs[i], rows, step, table is not None, ROWS_FOR_TABLE):
                table = columns._table(step, 0, threads)
                tables.append(table)
                job.offsets = &table.table
            if not 2.0**-64 <= abs(specs[i].scale) <= 2.0**64:
                r.has_fast_path = False
        _turn(&r, calls, rows, heads, threads)
        return True


cdef int _turn(rotation_t *r, call_t *calls, ptrdiff_t rows, ptrdiff_t heads, object threads) except -1:
    """Rotate in blocks of rows and heads, divided among threads."""
    cdef slot_t slots[MAX_THREADS]
    cdef turn_t turn
    cdef ptrdiff_t columns = 2 * r.pairs + r.rest, values = rows * heads * columns
    cdef ptrdiff_t per_check = MOST_TURNED if r.has_fast_path else DIRECT_PER_CHECK // 2, head_blocks, least
    cdef int team = _team_size(threads, values, ROTATED_PER_THREAD if r.has_fast_path else DIRECT_PER_THREAD,
                               (rows * heads + FINE - 1) // FINE), i
    cdef char *memory
    turn.rows = min(rows, max(<ptrdiff_t>FEWEST_TABLE_ROWS, min(<ptrdiff_t>FINE, TABLE_BYTES // (2 * r.pairs * 8 + 1))))
    turn.heads = min(heads, max(<ptrdiff_t>1, per_check // (turn.rows * columns)))
    if team > 1:
        while turn.rows > FEWEST_TABLE_ROWS and (rows + turn.rows - 1) // turn.rows < 4 * team:
            turn.rows //= 2
        least = (4 * team * turn.rows + rows - 1) // rows       # fewest blocks of heads
        turn.heads = min(turn.heads, max(<ptrdiff_t>FEWEST_HEADS, (heads + least - 1) // least))
    r.most_rows = turn.rows
    turn.kernel = active
    turn.rotation = r
    turn.calls = calls
    turn.all_rows = rows
    turn.all_heads = heads
    turn.row_blocks = (rows + turn.rows - 1) // turn.rows
    head_blocks = (heads + turn.heads - 1) // turn.heads
    turn.bytes = (active.rotation_memory(r) + LINE - 1) // LINE * LINE
    turn.slots = slots
    memset(slots, 0, team * sizeof(slot_t))
    memory = <char *>malloc(team * turn.bytes + LINE)
    if memory == NULL:
        raise MemoryError(f"Unable to allocate {team * turn.bytes} bytes for cosines and sines")
    turn.memory = <char *>_on_cache_line(memory)
    for i in range(r.turnings):
        calls[i].serial = team == 1
    try:
        _run(turn_block, &turn, turn.row_blocks * head_blocks,
             max(<ptrdiff_t>1, per_check // (4 * turn.rows * turn.heads * columns)), team)
        for i in range(r.turnings):
            if calls[i].error != NULL:
                raise <object>calls[i].error
    finally:
        free(memory)
        for i in range(r.turnings):
            Py_XDECREF(calls[i].error)
        _count(slots, team)
    return 0


cdef void turn_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef turn_t *turn = <turn_t *>context
    cdef ptrdiff_t row = which % turn.row_blocks * turn.rows, head = which // turn.row_blocks * turn.heads
    cdef int i
    for i in range(turn.rotation.turnings):
        if turn.calls[i].error != NULL:
            return
    turn.kernel.rotate(turn.rotation, row, min(turn.rows, turn.all_rows - row), head, min(turn.heads, turn.all_heads - head),
                       turn.memory + member * turn.bytes, &turn.slots[member].tally)


cdef void _count(const slot_t *slots, int team) noexcept:
    cdef int i
    with cython.critical_section(lock):
        for i in range(team):
            counted.uncertain += slots[i].tally.uncertain
            counted.exact += slots[i].tally.exact


def pitched(ptrdiff_t d_model):
    """Return the number of columns in a specification's arrays: whole tiles, and one more to allow any first column."""
    return (d_model + TILE - 1) // TILE * TILE + TILE
