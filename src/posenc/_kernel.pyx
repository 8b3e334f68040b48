# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The crossing from Python to the C kernels: buffers, threads, interrupts."""

import os

import cython
from numpy import ndarray

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport prange, threadid
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef extern from *:
    """
    #include <time.h>
    #if defined(_WIN32)
    #include <process.h>
    #define posenc_getpid _getpid
    #else
    #include <unistd.h>
    #define posenc_getpid getpid
    #endif
    #if defined(_OPENMP)
    #include <omp.h>
    #define POSENC_OPENMP _OPENMP
    #else
    #define POSENC_OPENMP 0
    static int omp_get_max_threads(void) { return 1; }
    static int omp_in_parallel(void) { return 0; }
    #endif
    static double posenc_now(void) {
        struct timespec t;
        timespec_get(&t, TIME_UTC);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    }
    """
    int posenc_getpid() nogil
    int POSENC_OPENMP
    int omp_get_max_threads() nogil
    int omp_in_parallel() nogil
    double posenc_now() nogil

cdef enum:
    MAX_THREADS = 64
    # Rows that are worth a table of offsets, which costs about HALF + COARSE directly evaluated rows to make.
    FEW_ROWS = 4                        # where it is there
    SOME_ROWS = 32                      # where it will be kept
    MANY_ROWS = 64                      # where it is for one call
    KEPT_COLUMNS = 1 << 13              # 1.5 kB of offsets each
    VALUES_PER_THREAD = 1 << 20         # below about 1 ms of work threads cost more than they bring
    VALUES_PER_ROUND = 1 << 24          # between looks at the clock
    LINE = 64                           # bytes of a cache line
    STREAM_BYTES = 1 << 23              # outputs beyond the caches are written past them

cdef double SECONDS_BETWEEN_CHECKS = 0.1

cdef const kernel_t *active = NULL
cdef bint trust = False
cdef int home_process = posenc_getpid()
cdef tally_t counted
counted.doubted = counted.exact = 0

DTYPES = {"float64": FLOAT64, "float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}
OPENMP = POSENC_OPENMP


cdef struct slot_t:
    # a thread's tally on a cache line of its own
    tally_t tally
    char padding[48]


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


def use_instruction_set(name=None):
    """Chooses the kernels, the best that run here if `name` is None.  Not while another thread computes."""
    global active
    cdef int i
    for i, built in enumerate(_built()):
        if posenc_kernels[i].runs_here() and name in (None, built):
            active = posenc_kernels[i]
            return
    here = [built for built, runs in instruction_sets().items() if runs]
    raise ValueError(f"instruction set {name!r} is not available, expected one of {here}")


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
    """How many rows of a tile were looked at again, and how many values evaluated directly, since the last call."""
    result = {"doubted": counted.doubted, "exact": counted.exact}
    counted.doubted = counted.exact = 0
    return result


def _go_serial():
    global home_process
    home_process = -1


try:
    use_instruction_set(os.environ.get("POSENC_ISA") or None)
except ValueError as error:
    raise ValueError(f"POSENC_ISA: {error}") from None
if hasattr(os, "register_at_fork"):
    # beside the comparison of process numbers, which may repeat in another namespace
    os.register_at_fork(after_in_child=_go_serial)


cdef int _allowed_threads() except -1:
    """Threads that the process may use now: OpenMP's setting and the processors left to it."""
    cdef int most = omp_get_max_threads()
    if hasattr(os, "sched_getaffinity"):
        most = min(most, len(os.sched_getaffinity(0)))
    return most


cdef int _team(object threads, ptrdiff_t values, ptrdiff_t blocks) except -1:
    """How many threads share the work: see design section 4."""
    cdef ptrdiff_t most
    if blocks <= 1 or not POSENC_OPENMP:
        return 1
    if threads is None:
        if values < 2 * VALUES_PER_THREAD:
            return 1
        most = min(<ptrdiff_t>_allowed_threads(), values // VALUES_PER_THREAD)
    else:
        most = MAX_THREADS if threads > MAX_THREADS else threads
    if most <= 1 or omp_in_parallel() or posenc_getpid() != home_process:
        # GNU OpenMP waits for ever for the threads that a forked child did not inherit.
        return 1
    return <int>min(most, blocks, <ptrdiff_t>MAX_THREADS)


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

    cdef int tabulate(self, uint64_t step, offsets_t *offsets) except -1:
        """Allocates and fills offsets; the caller frees offsets.memory."""
        cdef ptrdiff_t fine = 2 * HALF * self.spec.columns, coarse = 2 * COARSE * self.spec.columns
        cdef size_t size = (2 * fine + 2 * coarse + 2 * self.spec.columns) * sizeof(double) + LINE
        cdef char *memory = <char *>malloc(size)
        if memory == NULL:
            raise MemoryError(f"Unable to allocate {size} bytes for the offsets of d_model {self.spec.d_model}")
        offsets.memory = memory
        offsets.fine = <double *>(memory + LINE - <uintptr_t>memory % LINE)     # loads must not straddle cache lines
        offsets.coarse = offsets.fine + fine
        offsets.fine_low = offsets.coarse + coarse
        offsets.coarse_low = offsets.fine_low + fine
        offsets.reach = offsets.coarse_low + coarse
        offsets.turning = offsets.reach + self.spec.columns
        with nogil:
            active.tabulate(&self.spec, step, offsets, 0, self.spec.columns // TILE)
        return 0

    def quick(self, object out, object positions, int dtype, bint add, double x_scale):
        """What `run` does, for the plainest of calls only: a decode step must not cost more to check than to compute.

        Returns False, and does nothing, unless `out` is a writeable C-ordered matrix of `dtype` (of any float dtype with a
        buffer format if that is -1) with as many rows as `positions`, None, an int or a range.  What is refused here goes
        the checked way, which tells what is wrong.
        """
        cdef Py_buffer view
        cdef job_t job
        cdef ptrdiff_t rows
        cdef int64_t start = 0, step = 1, last
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
                        last = positions[-1]
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
            if view.shape[view.ndim - 1] != self.spec.d_model or positions is not None and len(positions) != rows:
                raise ValueError("the array changed its shape during the call")
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

    cdef ptrdiff_t worthwhile(self, uint64_t step) noexcept:
        """Rows of this step that are worth a table of offsets."""
        if step != 1 or self.spec.columns > KEPT_COLUMNS:
            return MANY_ROWS
        return FEW_ROWS if self.has_consecutive else SOME_ROWS

    cdef int rotate(self, job_t *job, ptrdiff_t rows, object threads) except -1:
        """Evenly spaced rows, with the offsets of their step."""
        if job.step == 1 and self.spec.columns <= KEPT_COLUMNS:
            if not self.has_consecutive:
                self.remember_consecutive()
            job.offsets = self.consecutive
            return self.work(job, rows, True, threads)
        self.tabulate(job.step, &job.offsets)
        try:
            return self.work(job, rows, True, threads)
        finally:
            free(job.offsets.memory)

    cdef int remember_consecutive(self) except -1:
        """Two threads may both make the table: a lock held meanwhile would be inherited locked by a forked child."""
        cdef offsets_t offsets
        self.tabulate(1, &offsets)
        with cython.critical_section(self):
            if not self.has_consecutive:
                self.consecutive = offsets
                self.has_consecutive = True
                offsets.memory = NULL
        free(offsets.memory)
        return 0

    cdef int work(self, const job_t *job, ptrdiff_t rows, bint even, object threads) except -1:
        """Blocks of rows over threads, with a look for Ctrl-C between rounds of blocks, at most every 100 ms."""
        cdef slot_t slots[MAX_THREADS]
        cdef char *stages = NULL
        cdef size_t stage_size = 0
        cdef spec_t *spec = &self.spec
        cdef const kernel_t *kernel = active
        cdef ptrdiff_t values = rows * spec.columns * job.batch
        cdef ptrdiff_t unit = BLOCK, blocks, per_round
        cdef int team, i
        team = _team(threads, values, (rows + FINE - 1) // FINE)
        while team > 1 and unit > FINE and rows < 4 * team * unit:
            unit //= 2
        blocks = (rows + unit - 1) // unit
        memset(slots, 0, team * sizeof(slot_t))
        per_round = max(<ptrdiff_t>team, VALUES_PER_ROUND // (unit * spec.columns))
        if per_round > blocks:
            per_round = blocks
        if even:
            stage_size = kernel.stage_size(spec, job)
            stages = NULL if stage_size == 0 else <char *>malloc(team * stage_size)
            if stages == NULL and stage_size:
                raise MemoryError(f"Unable to allocate {team * stage_size} bytes for the rows in work")
        try:
            self.rounds(job, rows, even, unit, blocks, per_round, team, stages, stage_size, slots)
        finally:
            free(stages)
            for i in range(team):
                counted.doubted += slots[i].tally.doubted
                counted.exact += slots[i].tally.exact
        return 0

    cdef int rounds(self, const job_t *job, ptrdiff_t rows, bint even, ptrdiff_t unit, ptrdiff_t blocks, ptrdiff_t per_round,
                    int team, char *stages, size_t stage_size, slot_t *slots) except -1:
        cdef const spec_t *spec = &self.spec
        cdef const kernel_t *kernel = active
        cdef ptrdiff_t first = 0, last, b
        cdef double checked, now
        with nogil:
            checked = posenc_now() if per_round < blocks else 0
            while first < blocks:
                last = min(first + per_round, blocks)
                if team == 1:
                    for b in range(first, last):
                        run_block(kernel, spec, job, b * unit, min(unit, rows - b * unit), even, stages, &slots[0].tally)
                else:
                    for b in prange(first, last, schedule="static", num_threads=team):
                        run_block(kernel, spec, job, b * unit, min(unit, rows - b * unit), even,
                                  stages + threadid() * stage_size, &slots[threadid()].tally)
                first = last
                if first < blocks:
                    now = posenc_now()
                    if now - checked >= SECONDS_BETWEEN_CHECKS or now < checked:
                        checked = now
                        with gil:
                            PyErr_CheckSignals()
        return 0


cdef void run_block(const kernel_t *kernel, const spec_t *spec, const job_t *job, ptrdiff_t first, ptrdiff_t count,
                    bint even, void *stage, tally_t *tally) noexcept nogil:
    if even:
        kernel.even_rows(spec, job, first, count, stage, tally)
    else:
        kernel.scattered_rows(spec, job, first, count, tally)


def padded(ptrdiff_t d_model):
    """Columns that the kernels' tables hold for d_model: whole tiles."""
    return (d_model + TILE - 1) // TILE * TILE


def allowed_threads():
    """Threads that a large call takes by default."""
    return min(_allowed_threads(), MAX_THREADS) if POSENC_OPENMP else 1


def fill_roof(out, int threads):
    """Fills an array with a number by non-temporal stores: the roof line of the benchmark.

    `out` is contiguous; up to a cache line at either end is left as it is.
    """
    cdef Py_buffer view
    cdef const kernel_t *kernel = active
    cdef double *start
    cdef ptrdiff_t lines, share, i
    PyObject_GetBuffer(out, &view, PyBUF_STRIDES | PyBUF_WRITABLE)
    start = <double *>((<uintptr_t>view.buf + LINE - 1) // LINE * LINE)
    lines = (<char *>view.buf + view.len - <char *>start) // LINE
    share = (lines + threads - 1) // threads
    with nogil:
        for i in prange(threads, schedule="static", num_threads=threads):
            kernel.fill(start + i * share * 8, min(share, max(0, lines - i * share)) * 8, 0.1)
    PyBuffer_Release(&view)
