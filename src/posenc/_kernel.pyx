# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The crossing from Python to the C kernels: buffers, threads, interrupts."""

import os
from math import prod

import cython
from numpy import dtype as np_dtype
from numpy import empty, ndarray, uint8, uint16

from posenc import _threads

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_SIMPLE,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cython.parallel cimport prange, threadid
from libc.math cimport floor
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef enum:
    # Rows that are worth a table of offsets, which costs about HALF + COARSE directly evaluated rows to make.
    FEW_ROWS = 4                        # where it is there
    SOME_ROWS = 32                      # where it will be kept
    MANY_ROWS = 64                      # where it is for one call
    KEPT_COLUMNS = 1 << 13              # 1.3 kB of offsets each
    # Values that are worth a thread, and the most that one computes before anybody looks for Ctrl-C unless that proved to be
    # quick: rotated from their neighbours at 0.3 to 2 ns each, or on their own at 3 to 20 ns, a rare one 3 to 15 us.
    ROTATED_PER_THREAD = 1 << 17
    ROTATED_PER_LOOK = 1 << 24
    SINGLE_PER_THREAD = 1 << 14
    SINGLE_PER_LOOK = 1 << 13
    FEWEST_ENTRIES = 64                 # of a batch in a block: its rows are computed again for the next ones
    TILES_PER_BLOCK = 16                # of a table of offsets, 20 us each
    KEPT_TABLES = 2                     # of an encoding
    STREAM_BYTES = 1 << 23              # outputs beyond the caches are written past them
    ALIGNED_BYTES = 1 << 12             # arrays of this size and more are made on a cache line
    MOST_AXES = 64                      # of an array, as in NumPy

cdef double SECONDS_OF_A_PIECE = 0.05

cdef const kernel_t *active = NULL
cdef bint skip_rounding_test = False
cdef tally_t counted
cdef int computing = 0                  # threads of all calls that asked for more than one
cdef object counting = object()         # the lock of `counted` and `computing`
cdef str wrong_setting = None
counted.uncertain = counted.exact = 0

DTYPES = {"float64": FLOAT64, "float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}
OPENMP = POSENC_OPENMP

ctypedef void (*block_t)(void *context, ptrdiff_t which, int member) noexcept nogil


cdef struct slot_t:
    # a thread's tally on a cache line of its own
    tally_t tally
    char padding[48]


cdef struct plan_t:
    # how a job is done
    bint rotated
    output_t output
    ptrdiff_t first                     # column that the tables of offsets begin with
    size_t panel
    int threads                         # at most
    ptrdiff_t rows, entries             # of a block: rows of the table, and entries of the batch that they go to
    ptrdiff_t row_blocks, blocks        # of all rows, and of the batch too
    ptrdiff_t per_look                  # blocks that a thread runs before signals are checked, unless that proves quick


cdef struct share_t:
    # a job that is done in blocks
    const kernel_t *kernel
    const spec_t *spec
    const call_t *call
    const job_t *job
    ptrdiff_t all_rows
    plan_t plan
    ptrdiff_t ranges                    # contiguous ranges of blocks, one for each thread, that they are taken from in turn
    char *panels
    slot_t *slots


cdef struct call_t:
    # what a value needs that the kernel does not decide
    PyObject *value                     # of _exact.py, borrowed
    PyObject *error                     # the first one
    bint alone                          # there are no helpers


cdef struct question_t:
    call_t *call
    const position_t *position
    ptrdiff_t column
    dtype_t dtype
    double answer
    PyThread_type_lock lock             # held until there is an answer, or NULL


cdef struct tables_t:
    # a table of offsets that is made in blocks of tiles
    const kernel_t *kernel
    const spec_t *spec
    const offsets_t *offsets
    ptrdiff_t tiles


cdef list _built():
    cdef list names = []
    cdef int i = 0
    while posenc_kernels[i] != NULL:
        names.append((posenc_kernels[i].name).decode())
        i += 1
    return names


def instruction_sets():
    """Names of the instruction sets that were built, best first, each with whether it runs here."""
    return {name: bool(posenc_kernels[i].runs_here()) for i, name in enumerate(_built())}


def instruction_set():
    """Name of the instruction set whose kernels run."""
    return (active.name).decode()


def use_instruction_set(name=None, what="instruction set"):
    """Chooses the kernels, the best that run here if `name` is None.  Not while another thread computes."""
    global active
    cdef int i
    for i, built in enumerate(_built()):
        if posenc_kernels[i].runs_here() and name in (None, built):
            active = posenc_kernels[i]
            return
    here = [built for built, runs in instruction_sets().items() if runs]
    raise ValueError(f"{what} is {name!r}, expected one that runs here: {', '.join(here)}")


cdef class default_environment:
    """A context with the default rounding and no flush-to-zero, whatever the host program set.

    The kernels see to it themselves; this is for the arithmetic on arguments in Python.
    """

    cdef environment_t host

    def __enter__(self):
        self.host = environment_enter()

    def __exit__(self, kind, error, traceback):
        environment_leave(self.host)


def rounded(str dtype, double x):
    """x rounded to a dtype, as a float."""
    return posenc_rounded(<dtype_t><int>DTYPES[dtype], x)


def trust_fast_path(bint yes):
    """Whether values are taken from the fast path without a test, for tests that show what the test is for."""
    global skip_rounding_test
    skip_rounding_test = yes


def counters():
    """How many rows of a tile were looked at again, and how many values evaluated exactly, since the last call."""
    with cython.critical_section(counting):
        result = {"uncertain": counted.uncertain, "exact": counted.exact}
        counted.uncertain = counted.exact = 0
    return result


def check_settings():
    """ValueError of a variable of the environment: of its first use, as a program cannot catch what ends its own import."""
    if wrong_setting is not None:
        raise ValueError(wrong_setting)


use_instruction_set()
try:
    use_instruction_set(os.environ.get("POSENC_ISA") or None, "POSENC_ISA")
    _threads.wanted()
except ValueError as error:
    wrong_setting = str(error)
openmp_found(_threads.stack_size())


def allowed_threads():
    """Threads that a large call takes by default."""
    return 1 if _alone() else min(_threads.allowed(openmp_threads()), MAX_THREADS)


cdef bint _alone() noexcept nogil:
    """Whether a call has one thread: without OpenMP, inside a parallel region, or where GNU's runtime would wait for ever."""
    return not POSENC_OPENMP or openmp_in_parallel() or openmp_is_forked()


cdef int _team(object threads, ptrdiff_t values, ptrdiff_t per_thread, ptrdiff_t blocks) except -1:
    """How many threads share the work at most: docs/reliability.md, "Threads", has the rule."""
    cdef ptrdiff_t most
    if blocks <= 1 or threads is None and values < 2 * per_thread or _alone():
        return 1
    if threads is None:
        most = min(<ptrdiff_t>allowed_threads(), values // per_thread)
    else:
        most = MAX_THREADS if threads > MAX_THREADS else threads
    return <int>min(most, blocks)


cdef int _run(block_t block, void *context, ptrdiff_t blocks, ptrdiff_t per_look, int threads) except -1:
    """Runs blocks, by so many threads fewer as other calls have, and as the system refuses."""
    global computing
    cdef int team = 1
    if threads > 1:
        with cython.critical_section(counting):
            team = max(1, threads - computing)
            computing += team
    try:
        with nogil:
            _run_pieces(block, context, blocks, per_look, openmp_team(team) if team > 1 else 1)
    finally:
        if threads > 1:
            with cython.critical_section(counting):
                computing -= team
    return 0


cdef int _run_pieces(block_t block, void *context, ptrdiff_t blocks, ptrdiff_t per_look, int team) except -1 nogil:
    """Runs blocks in pieces of at most about 50 ms, with a look for Ctrl-C between them: the handler may raise, or fork."""
    cdef ptrdiff_t first = 0, last, which, piece = per_look * team
    cdef double begun = _now() if piece < blocks else 0, looked = begun, end
    while True:
        last = min(first + piece, blocks)
        if team == 1:
            for which in range(first, last):
                block(context, which, 0)
        else:
            for which in prange(first, last, schedule="dynamic", num_threads=team):
                block(context, which, threadid())
        if last == blocks:
            return 0
        first = last
        end = _now()
        if end - begun < SECONDS_OF_A_PIECE / 2:
            piece *= 2
        elif end - begun > SECONDS_OF_A_PIECE:
            piece = max(<ptrdiff_t>team, piece // 2)
        if end - looked >= SECONDS_OF_A_PIECE / 2:
            # does nothing in other threads than the main one, which only Python knows for sure: `threading` may be patched
            with gil:
                PyErr_CheckSignals()
            looked = end = _now()
        begun = end
        if team > 1 and openmp_is_forked():
            team = 1


cdef double _now() noexcept nogil:
    """Seconds of a clock: should it be set, a piece is longer or shorter."""
    cdef timespec t
    timespec_get(&t, TIME_UTC)
    return <double>t.tv_sec + 1e-9 * <double>t.tv_nsec


# ---- tables of offsets --------------------------------------------------------------------------------------------------


cdef class Offsets:
    """The offsets of rows `step` apart, from column `first` on: immutable once made."""

    cdef offsets_t table
    cdef void *memory

    def __dealloc__(self):
        free(self.memory)


cdef Offsets _tabulated(const spec_t *spec, uint64_t step, ptrdiff_t first, object threads):
    cdef Offsets made = Offsets.__new__(Offsets)
    cdef offsets_t *table = &made.table
    cdef ptrdiff_t blocks
    cdef size_t size = OFFSETS_PER_COLUMN * spec.columns * sizeof(double) + LINE
    cdef tables_t tables
    made.memory = malloc(size)
    if made.memory == NULL:
        raise MemoryError(f"Unable to allocate {size} bytes for the offsets of d_model {spec.d_model}")
    table[0] = offsets_in(<double *>(<uintptr_t>made.memory + LINE - <uintptr_t>made.memory % LINE), spec.columns, step, first)
    tables.kernel = active
    tables.spec = spec
    tables.offsets = table
    tables.tiles = spec.columns // TILE
    blocks = (tables.tiles + TILES_PER_BLOCK - 1) // TILES_PER_BLOCK
    _run(tabulate_block, &tables, blocks, 1, _team(threads, (HALF + COARSE) * spec.columns, SINGLE_PER_THREAD, blocks))
    return made


cdef void tabulate_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef tables_t *tables = <tables_t *>context
    cdef ptrdiff_t first = which * TILES_PER_BLOCK
    tables.kernel.tabulate(tables.spec, tables.offsets, first, min(first + TILES_PER_BLOCK, tables.tiles))


# ---- how a job is done -----------------------------------------------------------------------------------------------------


cdef plan_t _plan(const spec_t *spec, const job_t *job, ptrdiff_t rows, uint64_t step, bint has_table, object threads) except *:
    """How a job is done.

    Parameters
    ----------
    job
        Without `offsets` and `panel`; `output` is ADD or STORE.
    step : int
        The distance of the rows that may be rotated from one another, 0 if there are none.
    has_table : bool
        Whether their offsets are there.
    """
    cdef plan_t plan
    cdef ptrdiff_t itemsize = _itemsize(job.dtype)
    cdef ptrdiff_t columns = spec.columns, values = rows * columns * job.batch, row_bytes = spec.d_model * itemsize
    cdef ptrdiff_t worthwhile = FEW_ROWS if has_table else SOME_ROWS if step == 1 and columns <= KEPT_COLUMNS else MANY_ROWS
    cdef ptrdiff_t pitch, per_thread, per_look
    plan.output = job.output
    plan.first = 0
    plan.panel = 0
    # beyond, an offset times the step would leave the int64 range
    plan.rotated = 0 < step < <uint64_t>1 << 50 and rows >= worthwhile
    if plan.rotated:
        pitch = min(columns * itemsize, STRIP * TILE * itemsize) + LINE
        if job.output == ADD:
            if job.batch > 1 or itemsize == 2:
                plan.panel = pitch * min(rows, FINE)
        elif rows * row_bytes >= STREAM_BYTES:
            plan.output = STREAM
            if job.row_stride % LINE == 0 and <uintptr_t>job.out % LINE == 0:
                pass
            elif job.row_stride == row_bytes and row_bytes % LINE == 0:
                plan.first = (LINE - <uintptr_t>job.out % LINE) // itemsize
            else:
                plan.panel = pitch * FINE
        if plan.panel:
            # the rows may begin within a line, and the last one's spare columns are stored, too
            plan.panel = (plan.panel + LINE + TILE * itemsize + LINE - 1) // LINE * LINE
    if plan.rotated and spec.fast and (spec.quick or job.dtype == FLOAT64) and _few_limbs(spec.position_offset, job, rows):
        per_thread = ROTATED_PER_THREAD
        per_look = ROTATED_PER_LOOK
        plan.rows = BLOCK
    else:
        per_thread = SINGLE_PER_THREAD
        per_look = SINGLE_PER_LOOK
        plan.rows = max(1, min(<ptrdiff_t>BLOCK, per_look // columns))
    plan.threads = _team(threads, values, per_thread, (rows * job.batch + FINE - 1) // FINE)
    while plan.rows > FINE and (plan.threads > 1 and rows < 4 * plan.threads * plan.rows
                                or plan.rows * columns * min(job.batch, <ptrdiff_t>FEWEST_ENTRIES) > per_look):
        plan.rows //= 2
    plan.entries = min(job.batch, max(<ptrdiff_t>FEWEST_ENTRIES, per_look // (plan.rows * columns)))
    plan.row_blocks = (rows + plan.rows - 1) // plan.rows
    plan.blocks = plan.row_blocks * ((job.batch + plan.entries - 1) // plan.entries)
    plan.per_look = max(1, per_look // (plan.rows * columns * plan.entries))
    return plan


cdef bint _few_limbs(double offset, const job_t *job, ptrdiff_t rows) noexcept:
    """Whether evenly spaced positions fit the 4 limbs of the fast path, 2 or 1 of them before the point."""
    cdef int64_t first = <int64_t>job.start, last = <int64_t>(job.start + <uint64_t>(rows - 1) * job.step)
    if floor(offset * 2.0**64) == offset * 2.0**64:
        return True
    return (job.integers == NULL and floor(offset * 2.0**96) == offset * 2.0**96
            and min(first, last) > -(<int64_t>1 << 31) and max(first, last) < <int64_t>1 << 31)


cdef void encode_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    """Blocks in turn from each range: two threads that begin to write one huge page would both clear all of it."""
    cdef share_t *share = <share_t *>context
    cdef plan_t *plan = &share.plan
    cdef ptrdiff_t range_blocks = (plan.blocks + share.ranges - 1) // share.ranges
    cdef ptrdiff_t block = which % share.ranges * range_blocks + which // share.ranges
    cdef ptrdiff_t row = block % plan.row_blocks * plan.rows, entry = block // plan.row_blocks * plan.entries
    cdef job_t job = share.job[0]
    if block >= plan.blocks or share.call.error != NULL:
        return                          # the last range is shorter
    job.out += entry * job.batch_stride
    job.batch = min(plan.entries, job.batch - entry)
    share.kernel.rows(share.spec, &job, row, min(plan.rows, share.all_rows - row), share.panels + member * plan.panel,
                      &share.slots[member].tally)


# ---- values that the kernel does not decide -------------------------------------------------------------------------------


cdef double decide(void *context, const position_t *position, ptrdiff_t column, dtype_t dtype) noexcept nogil:
    """The value that exact.c requests.

    Beside other threads of the region it is left to a thread of its own: a signal handler, which may raise or fork, runs in
    the main thread wherever that runs Python.
    """
    cdef question_t question
    question.call = <call_t *>context
    question.position = position
    question.column = column
    question.dtype = dtype
    question.lock = NULL if question.call.alone else PyThread_allocate_lock()
    if question.lock == NULL:
        answer(&question)
        return question.answer
    PyThread_acquire_lock(question.lock, True)
    # -1: PYTHREAD_INVALID_THREAD_ID
    if PyThread_start_new_thread(answer, &question) == <unsigned long>-1:
        answer(&question)
    PyThread_acquire_lock(question.lock, True)
    PyThread_free_lock(question.lock)
    return question.answer


cdef void answer(void *asked) noexcept nogil:
    cdef question_t *question = <question_t *>asked
    cdef PyThread_type_lock lock = question.lock
    with gil:
        find_answer(question)
    if lock != NULL:
        PyThread_release_lock(lock)


cdef void find_answer(question_t *question) noexcept:
    """An exception is kept for the end of the call."""
    cdef const position_t *position = question.position
    cdef call_t *call = question.call
    cdef int i
    question.answer = 0
    if call.error != NULL:
        return
    try:
        number = 0
        for i in range(position.limbs - 1, -1, -1):
            number = number << 32 | position.limb[i]
        if position.negative:
            number = -number
        question.answer = (<object>call.value)(number, 32 * position.exponent, question.column, <int>question.dtype)
    except BaseException as error:
        with cython.critical_section(counting):
            if call.error == NULL:
                Py_INCREF(error)
                call.error = <PyObject *>error


# ---- arguments as the kernels read them --------------------------------------------------------------------------------------


cdef struct positions_t:
    # evenly spaced from start, or an array of integers or of real numbers
    ptrdiff_t rows
    uint64_t start, step
    const int64_t *integers
    const double *reals
    int axes                            # of the array they come in
    ptrdiff_t shape[MOST_AXES]


cdef struct rows_t:
    # an array as rows, in as few axes as their addresses have
    char *data
    int axes
    ptrdiff_t shape[MOST_AXES]
    ptrdiff_t strides[MOST_AXES]


cdef bint _is_inside(int64_t lowest, int64_t highest, double offset) noexcept:
    """Whether the sums of positions and offset are sure to be in the domain."""
    cdef int64_t half = <int64_t>1 << 62
    return offset == 0 or -half <= lowest and highest <= half and -half <= offset <= half


cdef bint _read_range(object positions, double offset, bint checked, positions_t *p) except -1:
    """An int or a range; False if it is outside the domain."""
    cdef int64_t start, last
    p.axes = 1
    p.integers = NULL
    p.reals = NULL
    p.start = 0
    p.step = 1
    try:
        if type(positions) is int:
            p.rows = positions
            if p.rows < 0:
                return False
            start = 0
            last = p.rows - 1
        else:
            p.rows = len(positions)
            if p.rows:
                start = positions.start
                last = positions[p.rows - 1]
                p.start = <uint64_t>start
                if p.rows > 1:
                    p.step = (<uint64_t>last - <uint64_t>start) // <uint64_t>(p.rows - 1) if last > start else \
                        -((<uint64_t>start - <uint64_t>last) // <uint64_t>(p.rows - 1))
            else:
                start = last = 0
    except OverflowError:
        return False
    p.shape[0] = p.rows
    return checked or _is_inside(min(start, last), max(start, last), offset)


cdef bint _read_array(object positions, double offset, bint checked, Py_buffer *view, positions_t *p) except -1:
    """A C-contiguous array of int64 or float64, whose buffer is held on success; False for others, or outside the domain."""
    cdef ptrdiff_t i
    cdef int64_t lowest = 0, highest = 0
    cdef double bound = 2.0**63 if offset == 0 else 2.0**62
    cdef char kind
    try:
        PyObject_GetBuffer(positions, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    except (BufferError, ValueError):
        return False
    kind = view.format[0]
    p.start = p.step = 0
    p.integers = NULL
    p.reals = NULL
    p.rows = view.len // 8
    p.axes = view.ndim
    if kind not in b"lqd" or view.format[1] != 0 or view.itemsize != 8 or <uintptr_t>view.buf % 8:
        PyBuffer_Release(view)
        return False
    for i in range(view.ndim):
        p.shape[i] = view.shape[i]
    if kind == b"d":
        p.reals = <const double *>view.buf
        for i in range(p.rows if not checked else 0):
            # the comparisons are false for NaN, which is a position
            if (p.reals[i] >= bound or p.reals[i] < -bound or bound < 2.0**63 and not -bound <= offset <= bound) \
                    and p.reals[i] - p.reals[i] == 0:
                PyBuffer_Release(view)
                return False
        return True
    p.integers = <const int64_t *>view.buf
    if offset != 0 and not checked:
        for i in range(p.rows):
            lowest = min(lowest, p.integers[i])
            highest = max(highest, p.integers[i])
        if not _is_inside(lowest, highest, offset):
            PyBuffer_Release(view)
            return False
    return True


cdef uint64_t _usual_step(const int64_t *p, ptrdiff_t rows, ptrdiff_t *matches) noexcept nogil:
    """The distance of most neighbours, up or down, 0 if there is none: Boyer and Moore's majority vote, then a count."""
    cdef uint64_t step = 1, distance
    cdef ptrdiff_t i, votes = 0
    for i in range(rows - 1):
        distance = <uint64_t>p[i + 1] - <uint64_t>p[i] if p[i + 1] > p[i] else <uint64_t>p[i] - <uint64_t>p[i + 1]
        if votes == 0:
            step = distance
        votes += 1 if distance == step else -1
    matches[0] = 0
    for i in range(rows - 1):
        distance = <uint64_t>p[i + 1] - <uint64_t>p[i] if p[i + 1] > p[i] else <uint64_t>p[i] - <uint64_t>p[i + 1]
        matches[0] += distance == step
    return step if 2 * matches[0] >= rows - 1 else 0


cdef bint _is_one_way(const int64_t *p, ptrdiff_t rows, uint64_t step) noexcept nogil:
    """Whether rows that are all `step` apart go up, or all go down."""
    cdef uint64_t distance = <uint64_t>(rows - 1) * step
    return <uint64_t>p[rows - 1] - <uint64_t>p[0] in (distance, -distance)


cdef int64_t *_integral(const double *reals, ptrdiff_t rows) noexcept nogil:
    """Positions as integers, or NULL if one is none; the caller frees them."""
    cdef ptrdiff_t i
    cdef int64_t *integers
    for i in range(rows):
        if floor(reals[i]) != reals[i] or reals[i] - reals[i] != 0:
            return NULL
    integers = <int64_t *>malloc(rows * sizeof(int64_t))
    if integers != NULL:
        for i in range(rows):
            integers[i] = <int64_t>reals[i]
    return integers


cdef bint _overlap(const Py_buffer *given, const Py_buffer *written) noexcept:
    """Whether the memory of a contiguous array reaches into that of another."""
    cdef char *lowest = <char *>written.buf
    cdef char *beyond = lowest + written.itemsize
    cdef int i
    for i in range(written.ndim):
        if written.strides[i] < 0:
            lowest += (written.shape[i] - 1) * written.strides[i]
        else:
            beyond += (written.shape[i] - 1) * written.strides[i]
    return <char *>given.buf < beyond and lowest < <char *>given.buf + given.len


cdef ptrdiff_t _itemsize(dtype_t dtype) noexcept nogil:
    return 8 if dtype == FLOAT64 else 4 if dtype == FLOAT32 else 2


cdef tuple _shape(const positions_t *p, ptrdiff_t d_model):
    cdef int i
    if p.axes == 1:
        return (p.rows, d_model)
    return (*[p.shape[i] for i in range(p.axes)], d_model)


cdef bint _read_rows(object array, ptrdiff_t itemsize, ptrdiff_t d_model, bint checked, Py_buffer *view) except -1:
    """A writeable array of rows of d_model elements, whose buffer is held on success; False where it needs a closer look."""
    cdef ptrdiff_t extent, stride
    cdef int i
    try:
        PyObject_GetBuffer(array, view, PyBUF_STRIDES | PyBUF_WRITABLE)
    except (BufferError, ValueError):
        return False
    if (view.ndim > 0 and view.itemsize == itemsize and view.shape[view.ndim - 1] == d_model
            and (view.len == 0 or <uintptr_t>view.buf % <size_t>itemsize == 0
                 and (d_model == 1 or view.strides[view.ndim - 1] == itemsize))):
        if checked or view.len == 0:
            return True
        extent = d_model * itemsize
        for i in range(view.ndim - 2, -1, -1):
            stride = view.strides[i] if view.strides[i] >= 0 else -view.strides[i]
            if view.shape[i] > 1 and (stride < extent or stride % itemsize):
                break                   # rows that may overlap
            extent = max(extent, stride * view.shape[i])
        else:
            return True
    PyBuffer_Release(view)
    return False


cdef void _merge_axes(rows_t *rows, char *data, const Py_ssize_t *shape, const Py_ssize_t *strides, int axes) noexcept:
    """Axes that one stride can walk are made one."""
    cdef int i, n = 0
    for i in range(axes):
        if shape[i] == 1:
            continue
        if n and rows.strides[n - 1] == shape[i] * strides[i]:
            rows.shape[n - 1] *= shape[i]
            rows.strides[n - 1] = strides[i]
        else:
            rows.shape[n] = shape[i]
            rows.strides[n] = strides[i]
            n += 1
    if n == 0:
        rows.shape[0] = 1
        rows.strides[0] = 0
        n = 1
    rows.data = data
    rows.axes = n


cdef object _new(tuple shape, object element, ptrdiff_t size):
    """An array; a large one begins on a cache line."""
    cdef Py_buffer view
    if size < ALIGNED_BYTES:
        return empty(shape, element)
    memory = empty(size + LINE, uint8)
    PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE)
    size = -<uintptr_t>view.buf % LINE
    PyBuffer_Release(&view)
    return ndarray(shape, element, memory, size)


# ---- the entry ---------------------------------------------------------------------------------------------------------------


# what a dtype may be given as: the kernels' number for it, and the np.dtype
cdef dict KINDS = {}


cdef tuple _learned(str name, object element):
    cdef tuple kind = (DTYPES[name], element)
    if element.name == name:            # or it is uint16, in place of a bfloat16 that no package has
        for key in (element, element.type, name):
            KINDS[key] = kind
    return kind


for _name in ("float64", "float32", "float16"):
    _learned(_name, np_dtype(_name))


cdef tuple _kind(object dtype):
    try:
        return KINDS.get(dtype)
    except TypeError:                   # not hashable
        return None


cdef bint _is_of_kind(object out, tuple kind) except -1:
    """Whether an array has the dtype, or is for the bits of a bfloat16."""
    return out.dtype == kind[1] or kind[0] == BFLOAT16 and out.dtype == uint16


cdef class Columns:
    """The columns of an encoding as the kernels read them, with the offsets of consecutive positions once needed.

    Parameters
    ----------
    d_model : int
    turns : bytes
        uint32 limbs, highest first, each for all columns, and the first columns again up to `pitched` columns.
    integer_limbs, fraction_limbs : int
    sign, quarter : bytes
        uint64, for each column.
    order : {0, 1, 2}
        Whether columns 2 i and 2 i + 1 are sin and cos (1), or cos and sin (2), of one frequency.
    scale, position_offset : float
    padding_idx : int or None
        The position, before the offset, whose row is all zeros.
    value : callable
        position, exponent, column, dtype -> float: the value at position * 2**exponent, offset included, rounded.
    for_encode, for_add_to : callable
        Convert the arguments of a call that are of a kind that is not common, or raise the error: see `_arguments`.
    """

    cdef spec_t spec
    cdef list kept                      # tables of offsets of consecutive positions, the one last made first
    cdef object memory, value, for_encode, for_add_to

    def __cinit__(self, ptrdiff_t d_model, bytes turns, int integer_limbs, int fraction_limbs, bytes sign, bytes quarter,
                  int order, double scale, double position_offset, object padding_idx,
                  object value, object for_encode, object for_add_to):
        check_settings()
        if integer_limbs + fraction_limbs > MAX_TURN_LIMBS:
            raise ValueError(f"{integer_limbs + fraction_limbs} limbs, expected at most {MAX_TURN_LIMBS}")
        self.memory = (turns, sign, quarter)
        self.value = value
        self.for_encode = for_encode
        self.for_add_to = for_add_to
        self.kept = []
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
        self.spec.fast = 2.0**-400 <= abs(scale) <= 2.0**400
        self.spec.quick = abs(scale) <= 2.0**10
        self.spec.decide = decide

    def encode(self, object positions, object dtype, object out, object threads):
        """See `posenc.encode`.  Kinds of arguments that are not common are first converted, or refused, in Python."""
        if dtype is None:
            dtype = getattr(out, "dtype", "float32")
        found = self._encode(positions, _kind(dtype), out, threads, False)
        if found is None:
            with default_environment():
                positions, name, element, out, threads = self.for_encode(
                    positions, dtype, out, threads, self.spec.d_model, self.spec.position_offset)
            found = self._encode(positions, _learned(name, element), out, threads, True)
            if found is None:
                raise ValueError("an array changed its shape, dtype or strides during the call")
        return found

    cdef object _encode(self, object positions, tuple kind, object out, object threads, bint checked):
        """`out`, or a new array, with the encodings; None where an argument is of a kind that is not common, or wrong."""
        cdef Py_buffer view, given
        cdef positions_t p
        cdef rows_t rows
        cdef job_t job
        cdef bint is_array = False
        cdef ptrdiff_t itemsize, size
        cdef int i
        if kind is None or not (threads is None or type(threads) is int and threads > 0):
            return None
        memset(&job, 0, sizeof(job_t))
        job.dtype = <dtype_t><int>kind[0]
        job.output = STORE
        job.batch = 1
        itemsize = _itemsize(job.dtype)
        if type(positions) is int or type(positions) is range:
            if not _read_range(positions, self.spec.position_offset, checked, &p):
                return None
        elif type(positions) is ndarray and _read_array(positions, self.spec.position_offset, checked, &given, &p):
            is_array = True
        else:
            return None
        try:
            if out is None:
                if <double>p.rows * self.spec.d_model > 2.0**58:
                    return None
                size = p.rows * self.spec.d_model * itemsize
                try:
                    out = _new(_shape(&p, self.spec.d_model), kind[1], size)
                except MemoryError:
                    return None
            elif type(out) is not ndarray and not checked or not _is_of_kind(out, kind):
                return None
            if not _read_rows(out.view(uint16) if job.dtype == BFLOAT16 else out, itemsize, self.spec.d_model, checked, &view):
                return None
            try:
                if view.ndim != p.axes + 1:
                    return None
                for i in range(p.axes):
                    if view.shape[i] != p.shape[i]:
                        return None
                if view.len == 0:
                    return out
                if is_array and _overlap(&given, &view):
                    return self._encode(positions.copy(), kind, out, threads, checked)
                _merge_axes(&rows, <char *>view.buf, view.shape, view.strides, view.ndim - 1)
                self._write(&job, &rows, &p, threads)
                return out
            finally:
                PyBuffer_Release(&view)
        finally:
            if is_array:
                PyBuffer_Release(&given)

    def add_to(self, object x, object positions, object x_scale, object threads):
        """See `posenc.add_to`.  Kinds of arguments that are not common are first converted, or refused, in Python."""
        if not self._add_to(x, positions, x_scale, threads, False):
            with default_environment():
                positions, x_scale, threads = self.for_add_to(
                    x, positions, x_scale, threads, self.spec.d_model, self.spec.position_offset)
            _learned(x.dtype.name, x.dtype)
            if not self._add_to(x, positions, x_scale, threads, True):
                raise ValueError("an array changed its shape, dtype or strides during the call")

    cdef bint _add_to(self, object x, object positions, object x_scale, object threads, bint checked) except -1:
        cdef Py_buffer view, given
        cdef positions_t p
        cdef rows_t rows
        cdef job_t job
        cdef bint is_array = False, is_table
        cdef int i
        if type(x_scale) is int and -(1 << 53) <= x_scale <= 1 << 53:
            x_scale = float(x_scale)
        if type(x) is not ndarray and not checked or type(x_scale) is not float:
            return False
        kind = _kind(x.dtype)
        if kind is None or not (threads is None or type(threads) is int and threads > 0):
            return False
        memset(&job, 0, sizeof(job_t))
        job.dtype = <dtype_t><int>kind[0]
        job.output = ADD
        job.x_scale = posenc_rounded(job.dtype, x_scale)
        if job.x_scale - job.x_scale != 0:
            return False
        plain = x.view(uint16) if job.dtype == BFLOAT16 else x
        if not _read_rows(plain, _itemsize(job.dtype), self.spec.d_model, checked, &view):
            return False
        try:
            if positions is None and view.ndim > 1:
                positions = <object>view.shape[view.ndim - 2]
            if type(positions) is int or type(positions) is range:
                if not _read_range(positions, self.spec.position_offset, checked, &p):
                    return False
            elif type(positions) is ndarray and _read_array(positions, self.spec.position_offset, checked, &given, &p):
                is_array = True
            else:
                return False
            # one table for all of a batch, or a position of its own for each row
            is_table = p.axes == 1 and view.ndim > 1 and p.rows == view.shape[view.ndim - 2]
            if not is_table:
                if not is_array or p.axes != view.ndim - 1:
                    return False
                for i in range(p.axes):
                    if view.shape[i] != p.shape[i]:
                        return False
            if view.len == 0:
                return True
            if is_array and _overlap(&given, &view):
                return self._add_to(x, positions.copy(), x_scale, threads, checked)
            if is_table:
                _merge_axes(&rows, <char *>view.buf, view.shape, view.strides, view.ndim - 2)
                rows.shape[rows.axes] = view.shape[view.ndim - 2]
                rows.strides[rows.axes] = view.strides[view.ndim - 2]
                rows.axes += 1
                job.batch = rows.shape[rows.axes - 2]
                job.batch_stride = rows.strides[rows.axes - 2]
                rows.shape[rows.axes - 2] = 1
            else:
                job.batch = 1
                _merge_axes(&rows, <char *>view.buf, view.shape, view.strides, view.ndim - 1)
            self._write(&job, &rows, &p, threads)
            return True
        finally:
            PyBuffer_Release(&view)
            if is_array:
                PyBuffer_Release(&given)

    cdef int _write(self, job_t *job, const rows_t *rows, const positions_t *p, object threads) except -1:
        """The rows of the last axis, for each index of the axes before it."""
        cdef ptrdiff_t n = rows.shape[rows.axes - 1], count = 1, which, rest, i
        cdef int axis
        for axis in range(rows.axes - 1):
            count *= rows.shape[axis]
        job.row_stride = rows.strides[rows.axes - 1]
        for which in range(count):
            job.out = rows.data
            rest = which
            for axis in range(rows.axes - 2, -1, -1):
                job.out += rest % rows.shape[axis] * rows.strides[axis]
                rest //= rows.shape[axis]
            # a table for all, or the next n of the positions
            i = which * n if p.rows != n else 0
            job.start = p.start
            job.step = p.step
            job.integers = p.integers + i if p.integers != NULL else NULL
            job.reals = p.reals + i if p.reals != NULL else NULL
            self._launch(job, n, threads)
        return 0

    cdef int _launch(self, job_t *job, ptrdiff_t rows, object threads) except -1:
        """Chooses how a job is done, and does it."""
        cdef int64_t *integers = NULL
        cdef uint64_t step
        cdef plan_t plan
        cdef Offsets table
        cdef ptrdiff_t matches
        try:
            if job.reals != NULL and rows >= SOME_ROWS:
                with nogil:
                    integers = _integral(job.reals, rows)
                if integers != NULL:
                    job.integers = integers
                    job.reals = NULL
            if job.reals != NULL:
                step = 0
            elif job.integers == NULL:
                step = -job.step if <int64_t>job.step < 0 else job.step
            else:
                with nogil:
                    step = _usual_step(job.integers, rows, &matches)
                if step and matches == rows - 1 and _is_one_way(job.integers, rows, step):
                    job.start = <uint64_t>job.integers[0]
                    job.step = step if job.integers[rows - 1] > job.integers[0] else -step
                    job.integers = NULL
            table = self._find_table(step, 0)
            plan = _plan(&self.spec, job, rows, step, table is not None, threads)
            if plan.rotated:
                table = self._table(step, plan.first, threads)
                job.offsets = &table.table
            else:
                job.offsets = NULL
            job.output = plan.output
            job.panel = plan.panel
            job.skip_rounding_test = skip_rounding_test
            self._work(job, rows, &plan)
        finally:
            free(integers)
            job.output = ADD if job.output == ADD else STORE
        return 0

    cdef Offsets _find_table(self, uint64_t step, ptrdiff_t first):
        cdef Offsets table
        if step == 1:
            with cython.critical_section(self):
                for table in self.kept:
                    if table.table.first == first:
                        return table
        return None

    cdef Offsets _table(self, uint64_t step, ptrdiff_t first, object threads):
        """Two threads may both make a table: a lock held meanwhile would be inherited locked by a forked child."""
        cdef Offsets table = self._find_table(step, first)
        if table is None:
            table = _tabulated(&self.spec, step, first, threads)
            if step == 1 and self.spec.columns <= KEPT_COLUMNS:
                with cython.critical_section(self):
                    self.kept = [table, *self.kept[:KEPT_TABLES - 1]]
        return table

    cdef int _work(self, const job_t *job, ptrdiff_t rows, const plan_t *plan) except -1:
        """Blocks of rows, and of the batch where one block of all would take long, over threads."""
        cdef slot_t slots[MAX_THREADS]
        cdef share_t share
        cdef call_t call
        cdef spec_t spec = self.spec
        cdef int threads = plan.threads, i
        cdef char *memory
        call.value = <PyObject *>self.value
        call.error = NULL
        call.alone = threads == 1
        spec.context = &call
        share.kernel = active
        share.spec = &spec
        share.call = &call
        share.job = job
        share.all_rows = rows
        share.plan = plan[0]
        share.ranges = threads
        share.slots = slots
        share.panels = NULL
        memory = NULL
        memset(slots, 0, threads * sizeof(slot_t))
        if plan.panel:
            memory = <char *>malloc(threads * plan.panel + LINE)
            if memory == NULL:
                raise MemoryError(f"Unable to allocate {threads * plan.panel} bytes for the rows in work")
            share.panels = memory + LINE - <uintptr_t>memory % LINE
        try:
            _run(encode_block, &share, (plan.blocks + threads - 1) // threads * threads, plan.per_look, threads)
            if call.error != NULL:
                raise <object>call.error
        finally:
            Py_XDECREF(call.error)
            free(memory)
            with cython.critical_section(counting):
                for i in range(threads):
                    counted.uncertain += slots[i].tally.uncertain
                    counted.exact += slots[i].tally.exact
        return 0


def pitched(ptrdiff_t d_model):
    """Columns that the arrays of a specification hold for d_model: whole tiles, and one tile more to begin anywhere in it."""
    return (d_model + TILE - 1) // TILE * TILE + TILE


def new_array(tuple shape, element):
    """An array that is not initialised; a large one begins on a cache line."""
    size = prod(shape) * element.itemsize
    return _new(shape, element, size) if size < 2**62 else empty(shape, element)
