# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The crossing from Python to the C kernels: buffers, threads, interrupts."""

import os

import cython
from numpy import ndarray

from posenc import _processors

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
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
    LINES_PER_BLOCK = 1 << 13           # of the roof line
    FILLED_PER_LOOK = 1 << 9            # of its blocks
    LINE = 64                           # bytes of a cache line
    STREAM_BYTES = 1 << 23              # outputs beyond the caches are written past them

cdef double SECONDS_OF_A_PIECE = 0.05

cdef const kernel_t *active = NULL
cdef bint trust = False
cdef tally_t counted
cdef int computing = 0                  # threads of all calls that asked for more than one
cdef object counting = object()         # the lock of `counted` and `computing`
cdef str wrong_setting = None
counted.doubted = counted.exact = 0

DTYPES = {"float64": FLOAT64, "float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}
OPENMP = POSENC_OPENMP

ctypedef void (*block_t)(void *context, ptrdiff_t which, int member) noexcept nogil


cdef struct slot_t:
    # a thread's tally on a cache line of its own
    tally_t tally
    char padding[48]


cdef struct share_t:
    # a job that is done in blocks
    const kernel_t *kernel
    const spec_t *spec
    const job_t *job
    bint even
    ptrdiff_t all_rows
    ptrdiff_t rows, entries             # of a block: rows of the table, and places in the batch that they go to
    ptrdiff_t row_blocks, blocks        # of all rows, and of the batch too
    ptrdiff_t stretches                 # that the blocks are taken from in turn, one for each thread
    char *stages
    size_t stage_size
    slot_t *slots


cdef struct tables_t:
    # a table of offsets that is made in blocks of tiles
    const kernel_t *kernel
    const spec_t *spec
    const offsets_t *offsets
    uint64_t step
    ptrdiff_t tiles


cdef struct roof_t:
    const kernel_t *kernel
    double *start
    ptrdiff_t lines


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
    global trust
    trust = yes


def counters():
    """How many rows of a tile were looked at again, and how many values evaluated exactly, since the last call."""
    with cython.critical_section(counting):
        result = {"doubted": counted.doubted, "exact": counted.exact}
        counted.doubted = counted.exact = 0
    return result


def check_settings():
    """ValueError of a variable of the environment: of its first use, as a program cannot catch what ends its own import."""
    if wrong_setting is not None:
        raise ValueError(wrong_setting)


use_instruction_set()
try:
    use_instruction_set(os.environ.get("POSENC_ISA") or None, "POSENC_ISA")
    _processors.wanted()
except ValueError as error:
    wrong_setting = str(error)
openmp_found(_processors.stack_size())


def allowed_threads():
    """Threads that a large call takes by default."""
    return 1 if _alone() else min(_processors.allowed(openmp_threads()), MAX_THREADS)


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


cdef class Columns:
    """The columns of an encoding as the kernels read them, with the offsets of consecutive positions once needed.

    Parameters
    ----------
    d_model : int
    turns : bytes
        uint32 limbs, highest first, each for all columns; `d_model` is rounded up to whole tiles.
    integer_limbs, fraction_limbs : int
    sign, quarter : bytes
        uint64, for each column.
    order : {0, 1, 2}
        Whether columns 2 i and 2 i + 1 are sin and cos (1), or cos and sin (2), of one frequency.
    scale, position_offset : float
    padding_idx : int or None
        The position, before the offset, whose row is all zeros.
    """

    cdef spec_t spec
    cdef offsets_t consecutive
    cdef bint has_consecutive
    cdef object keep

    def __cinit__(self, ptrdiff_t d_model, bytes turns, int integer_limbs, int fraction_limbs, bytes sign, bytes quarter,
                  int order, double scale, double position_offset, object padding_idx):
        check_settings()
        if integer_limbs + fraction_limbs > MAX_TURN_LIMBS:
            raise ValueError(f"{integer_limbs + fraction_limbs} limbs, expected at most {MAX_TURN_LIMBS}")
        self.keep = (turns, sign, quarter)
        self.has_consecutive = False
        memset(&self.consecutive, 0, sizeof(offsets_t))
        self.spec.d_model = d_model
        self.spec.columns = padded(d_model)
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
        self.spec.fast = 2.0**-400 <= abs(scale) <= 2.0**400
        self.spec.quick = abs(scale) <= 2.0**10

    def __dealloc__(self):
        free(self.consecutive.memory)

    cdef int tabulate(self, uint64_t step, offsets_t *offsets, object threads) except -1:
        """Allocates and fills offsets; the caller frees offsets.memory."""
        cdef ptrdiff_t fine = 2 * HALF * self.spec.columns, coarse = 2 * COARSE * self.spec.columns
        cdef size_t size = (2 * fine + 2 * coarse + 2 * self.spec.columns) * sizeof(double) + LINE
        cdef char *memory = <char *>malloc(size)
        cdef tables_t tables
        cdef ptrdiff_t blocks
        if memory == NULL:
            raise MemoryError(f"Unable to allocate {size} bytes for the offsets of d_model {self.spec.d_model}")
        offsets.memory = memory
        offsets.fine = <double *>(memory + LINE - <uintptr_t>memory % LINE)     # loads must not straddle cache lines
        offsets.coarse = offsets.fine + fine
        offsets.fine_low = offsets.coarse + coarse
        offsets.coarse_low = offsets.fine_low + fine
        offsets.reach = offsets.coarse_low + coarse
        offsets.turning = offsets.reach + self.spec.columns
        tables.kernel = active
        tables.spec = &self.spec
        tables.offsets = offsets
        tables.step = step
        tables.tiles = self.spec.columns // TILE
        blocks = (tables.tiles + TILES_PER_BLOCK - 1) // TILES_PER_BLOCK
        try:
            _run(tabulate_block, &tables, blocks, 1,
                 _team(threads, (HALF + COARSE) * self.spec.columns, SINGLE_PER_THREAD, blocks))
        except:
            free(memory)
            raise
        return 0

    def run_plain(self, object out, object positions, int dtype, bint add, double x_scale):
        """What `run` does, for the plainest of calls only: a decode step must not cost more to check than to compute.

        Returns False, and does nothing, unless `out` is a writeable C-ordered matrix of `dtype` (of any float dtype with a
        buffer format if that is -1) with as many rows as `positions`, None, an int or a range.  What is refused here goes
        the checked way, which tells what is wrong.
        """
        cdef Py_buffer view
        cdef job_t job
        cdef ptrdiff_t rows
        cdef int64_t start = 0, step = 1, _last
        if type(out) is not ndarray or self.spec.position_offset != 0 or not -1e30 < x_scale < 1e30:
            return False
        try:
            PyObject_GetBuffer(out, &view, PyBUF_STRIDES | PyBUF_WRITABLE | PyBUF_FORMAT)
        except (BufferError, ValueError):
            return False
        try:
            if view.ndim != 2 or view.shape[1] != self.spec.d_model or view.len == 0 or view.format[1] != 0:
                return False
            rows = view.shape[0]
            if positions is not None:
                if type(positions) is range:
                    if len(positions) != rows:
                        return False
                    start = positions.start
                    if rows > 1:
                        step = positions.step
                        _last = positions[rows - 1]       # OverflowError beyond int64
                elif type(positions) is not int or positions != rows:
                    return False
            elif not add:
                return False
            memset(&job, 0, sizeof(job_t))
            if view.format[0] == b"f":
                job.dtype = FLOAT32
                x_scale = posenc_rounded(FLOAT32, x_scale)
            elif view.format[0] == b"d":
                job.dtype = FLOAT64
            elif view.format[0] == b"e" and x_scale == 1:
                job.dtype = FLOAT16
            else:
                return False
            if dtype >= 0 and dtype != <int>job.dtype:
                return False
            if (view.strides[1] != view.itemsize or view.strides[0] < view.shape[1] * view.itemsize
                    or view.strides[0] % view.itemsize or <uintptr_t>view.buf % <size_t>view.itemsize):
                return False
            job.delivery = ADD if add else STORE
            job.out = <char *>view.buf
            job.row_stride = view.strides[0]
            job.batch = 1
            job.x_scale = x_scale
            job.start = <uint64_t>start
            job.step = <uint64_t>step
            self.launch(&job, rows, view.itemsize, None)
            return True
        except OverflowError:
            return False                # a position beyond int64
        finally:
            PyBuffer_Release(&view)

    def run(self, object out, int dtype, bint add, uint64_t start, uint64_t step, object positions, object threads,
            double x_scale):
        """Writes or adds the rows of `positions`, or of start + row * step, onto out.

        Parameters
        ----------
        out : ndarray, shape (rows, d_model), or (batch, rows, d_model) to add
            Columns contiguous, elements aligned, of `dtype` or of its size.
        positions : ndarray or None
            int64 or float64, contiguous, shape (rows,).
        """
        cdef Py_buffer view, given
        cdef job_t job
        cdef ptrdiff_t rows
        memset(&job, 0, sizeof(job_t))
        PyObject_GetBuffer(out, &view, PyBUF_STRIDES | PyBUF_WRITABLE)
        try:
            rows = view.shape[view.ndim - 2]
            if (view.shape[view.ndim - 1] != self.spec.d_model or positions is not None and len(positions) != rows
                    or view.itemsize != (8 if dtype == FLOAT64 else 4 if dtype == FLOAT32 else 2)
                    or view.shape[view.ndim - 1] > 1 and view.strides[view.ndim - 1] != view.itemsize):
                raise ValueError("the array changed its shape, dtype or strides during the call")
            job.dtype = <dtype_t>dtype
            job.delivery = ADD if add else STORE
            job.out = <char *>view.buf
            job.row_stride = view.strides[view.ndim - 2]
            job.batch = view.shape[0] if view.ndim == 3 else 1
            job.batch_stride = view.strides[0] if view.ndim == 3 else 0
            job.x_scale = x_scale
            job.start = start
            job.step = step
            if positions is not None:
                PyObject_GetBuffer(positions, &given, PyBUF_STRIDES)
                if positions.dtype.kind == "f":
                    job.reals = <const double *>given.buf
                else:
                    job.integers = <const int64_t *>given.buf
                PyBuffer_Release(&given)        # the caller holds positions
            if view.len and self.spec.d_model:
                self.launch(&job, rows, view.itemsize, threads)
        finally:
            PyBuffer_Release(&view)

    cdef int launch(self, job_t *job, ptrdiff_t rows, ptrdiff_t itemsize, object threads) except -1:
        """Chooses how a job is done: past the caches or not, with which offsets."""
        cdef bint even = job.integers == NULL and job.reals == NULL
        job.trust = trust
        if even and <int64_t>job.step < 0 and -job.step != job.step:
            # the same rows from the last one, upwards
            job.start += <uint64_t>(rows - 1) * job.step
            job.step = -job.step
            job.out += (rows - 1) * job.row_stride
            job.row_stride = -job.row_stride
        # beyond, an offset times the step would leave the int64 range
        even = even and job.step < <uint64_t>1 << 50 and rows >= self.worthwhile(job.step)
        if even and job.delivery == STORE and rows * self.spec.d_model * itemsize >= STREAM_BYTES:
            job.delivery = SHIFT if (<uintptr_t>job.out | <size_t>job.row_stride) % LINE else STREAM
        if even:
            return self.rotate(job, rows, threads)
        return self.work(job, rows, False, threads)

    cdef bint find_consecutive(self, offsets_t *offsets) noexcept:
        """The kept table of offsets, if there is one."""
        with cython.critical_section(self):
            if self.has_consecutive:
                offsets[0] = self.consecutive
                return True
        return False

    cdef ptrdiff_t worthwhile(self, uint64_t step) noexcept:
        """Rows of this step that are worth a table of offsets."""
        cdef offsets_t offsets
        if step != 1 or self.spec.columns > KEPT_COLUMNS:
            return MANY_ROWS
        return FEW_ROWS if self.find_consecutive(&offsets) else SOME_ROWS

    cdef int rotate(self, job_t *job, ptrdiff_t rows, object threads) except -1:
        """Evenly spaced rows, with the offsets of their step."""
        if job.step == 1 and self.spec.columns <= KEPT_COLUMNS:
            if not self.find_consecutive(&job.offsets):
                self.make_consecutive(&job.offsets, threads)
            return self.work(job, rows, True, threads)
        self.tabulate(job.step, &job.offsets, threads)
        try:
            return self.work(job, rows, True, threads)
        finally:
            free(job.offsets.memory)

    cdef int make_consecutive(self, offsets_t *offsets, object threads) except -1:
        """Two threads may both make the table: a lock held meanwhile would be inherited locked by a forked child."""
        cdef void *surplus = NULL
        self.tabulate(1, offsets, threads)
        with cython.critical_section(self):
            if self.has_consecutive:
                surplus = offsets.memory
                offsets[0] = self.consecutive
            else:
                self.consecutive = offsets[0]
                self.has_consecutive = True
        free(surplus)
        return 0

    cdef int work(self, const job_t *job, ptrdiff_t rows, bint even, object threads) except -1:
        """Blocks of rows, and of the batch where one block of all would take long, over threads."""
        cdef slot_t slots[MAX_THREADS]
        cdef share_t share
        cdef spec_t *spec = &self.spec
        cdef ptrdiff_t columns = spec.columns, values = rows * columns * job.batch, per_thread, per_look
        cdef int team, i
        if even and spec.fast and (spec.quick or job.dtype == FLOAT64) and _few_limbs(spec.position_offset, job, rows):
            per_thread = ROTATED_PER_THREAD
            per_look = ROTATED_PER_LOOK
            share.rows = BLOCK
        else:
            per_thread = SINGLE_PER_THREAD
            per_look = SINGLE_PER_LOOK
            share.rows = max(1, min(<ptrdiff_t>BLOCK, per_look // columns))
        team = _team(threads, values, per_thread, (rows * job.batch + FINE - 1) // FINE)
        while share.rows > FINE and (team > 1 and rows < 2 * team * share.rows
                                     or share.rows * columns * min(job.batch, <ptrdiff_t>FEWEST_ENTRIES) > per_look):
            share.rows //= 2
        share.entries = min(job.batch, max(<ptrdiff_t>FEWEST_ENTRIES, per_look // (share.rows * columns)))
        share.row_blocks = (rows + share.rows - 1) // share.rows
        share.kernel = active
        share.spec = spec
        share.job = job
        share.all_rows = rows
        share.even = even
        share.slots = slots
        share.stages = NULL
        share.stage_size = 0
        share.blocks = share.row_blocks * ((job.batch + share.entries - 1) // share.entries)
        share.stretches = team
        memset(slots, 0, team * sizeof(slot_t))
        if even:
            share.stage_size = share.kernel.stage_size(spec, job)
            share.stages = NULL if share.stage_size == 0 else <char *>malloc(team * share.stage_size)
            if share.stages == NULL and share.stage_size:
                raise MemoryError(f"Unable to allocate {team * share.stage_size} bytes for the rows in work")
        try:
            _run(encode_block, &share, (share.blocks + team - 1) // team * team,
                 max(1, per_look // (share.rows * columns * share.entries)), team)
        finally:
            free(share.stages)
            with cython.critical_section(counting):
                for i in range(team):
                    counted.doubted += slots[i].tally.doubted
                    counted.exact += slots[i].tally.exact
        return 0


cdef bint _few_limbs(double offset, const job_t *job, ptrdiff_t rows) noexcept:
    """Whether evenly spaced positions fit the 4 limbs of the fast path, 2 or 1 of them before the point."""
    cdef int64_t first = <int64_t>job.start, last = <int64_t>(job.start + <uint64_t>(rows - 1) * job.step)
    if floor(offset * 2.0**64) == offset * 2.0**64:
        return True
    return floor(offset * 2.0**96) == offset * 2.0**96 and first > -(<int64_t>1 << 31) and last < <int64_t>1 << 31


cdef void encode_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    """Blocks in turn from each stretch: two threads that begin to write one huge page would both clear all of it."""
    cdef share_t *share = <share_t *>context
    cdef ptrdiff_t stretch = (share.blocks + share.stretches - 1) // share.stretches
    cdef ptrdiff_t block = which % share.stretches * stretch + which // share.stretches
    cdef ptrdiff_t row = block % share.row_blocks * share.rows, entry = block // share.row_blocks * share.entries
    cdef ptrdiff_t rows = min(share.rows, share.all_rows - row)
    cdef tally_t *tally = &share.slots[member].tally
    cdef job_t job = share.job[0]
    if block >= share.blocks:
        return                          # the last stretch is shorter
    job.out += entry * job.batch_stride
    job.batch = min(share.entries, job.batch - entry)
    if share.even:
        share.kernel.even_rows(share.spec, &job, row, rows, share.stages + member * share.stage_size, tally)
    else:
        share.kernel.scattered_rows(share.spec, &job, row, rows, tally)


cdef void tabulate_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef tables_t *tables = <tables_t *>context
    cdef ptrdiff_t first = which * TILES_PER_BLOCK
    tables.kernel.tabulate(tables.spec, tables.step, tables.offsets, first, min(first + TILES_PER_BLOCK, tables.tiles))


def padded(ptrdiff_t d_model):
    """Columns that the kernels' tables hold for d_model: whole tiles."""
    return (d_model + TILE - 1) // TILE * TILE


def fill_roof(out, int threads):
    """Fills an array with a number by non-temporal stores: the roof line of the benchmark.

    `out` is contiguous; up to a cache line at either end is left as it is.
    """
    cdef Py_buffer view
    cdef roof_t roof
    PyObject_GetBuffer(out, &view, PyBUF_STRIDES | PyBUF_WRITABLE)
    try:
        roof.kernel = active
        roof.start = <double *>((<uintptr_t>view.buf + LINE - 1) // LINE * LINE)
        roof.lines = (<char *>view.buf + view.len - <char *>roof.start) // LINE
        _run(fill_block, &roof, (roof.lines + LINES_PER_BLOCK - 1) // LINES_PER_BLOCK, FILLED_PER_LOOK,
             _team(threads, roof.lines, 1, roof.lines))
    finally:
        PyBuffer_Release(&view)


cdef void fill_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef roof_t *roof = <roof_t *>context
    cdef ptrdiff_t first = which * LINES_PER_BLOCK
    roof.kernel.fill(roof.start + first * 8, min(<ptrdiff_t>LINES_PER_BLOCK, roof.lines - first) * 8, 0.1)
