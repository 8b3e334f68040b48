# encode and add_to: the columns of an encoding, its tables, and the preparation and execution of a call.

cdef enum:
    ROWS_FOR_LEVEL = 64                 # rows evaluated directly in the time that a level takes
    DIGITS_BYTES = 1 << 24         # most bytes of the levels from WHOLE on, for each precision of an encoding
    KEPT_BYTES = 1 << 26                # most bytes of all kept tables


cdef class Columns:
    """The columns of an encoding as the kernels read them, and the offset tables of consecutive positions.

    Parameters
    ----------
    d_model : int
    turns : bytes
        uint32, shape (limbs, ``pitched(d_model)``), highest limb first: the frequencies of all columns in
        turns per position, then those of the first columns again.
    integer_limbs, fraction_limbs : int
        Limbs of `turns` before and after the point.
    sign, quarter : bytes
        uint64, one for each of these columns: `sign` is the sign bit of the frequency; `quarter` is all ones
        for a cosine, 0 for a sine.
    order : {0, 1, 2, 3}
        1 if columns 2 i and 2 i + 1 are sin and cos of one frequency, 2 if they are cos and sin; 3 if
        columns i and d_model / 2 + i are sin and cos, or cos and sin, of one frequency; else 0.
    scale, position_offset : float
    padding_idx : int or None
        The position, before the offset, whose row is all zeros, or NaN if `padding_is_nan`.
    phase_bits : int or None
        If given, a product of an integer and a frequency in turns is a multiple of a quarter turn, or at
        least 2**-phase_bits turns away from one.
    value : callable
        An `exact.ExactColumns`, which evaluates the values that the kernels leave undecided.
    """

    cdef spec_t spec
    # rows with a digit for each level: of float32, float16 and bfloat16 tables, and of float64 tables
    cdef int64_t wanted[2][LEVELS]
    cdef double zeros                   # about the number of exact zeros in a row at consecutive positions, with `phase_bits`
    cdef int64_t consecutive            # rows that wanted the offset table of step 1
    cdef int fractions                  # of digits_t
    cdef bytes radians                  # or None, before the first use of digit tables
    cdef tuple contents                 # the columns in the keys of kept tables; it also owns their memory
    cdef frozenset key                  # the same, which keeps its hash, or None before the first use
    cdef list last                      # a weak reference to the tables of each kind that the last call used, or None
    cdef object value

    def __cinit__(self, ptrdiff_t d_model, bytes turns, int integer_limbs, int fraction_limbs, bytes sign, bytes quarter,
                  int order, double scale, double position_offset, object padding_idx, bint padding_is_nan, object phase_bits,
                  object value):
        cdef ptrdiff_t limb, column
        check_settings()
        turns += bytes(pitched(d_model) * sizeof(uint32_t))
        self.contents = turns, sign, quarter, integer_limbs, order, scale, phase_bits
        self.value = value
        self.last = [None, None, None]
        self.spec.d_model, self.spec.pitch = d_model, pitched(d_model)
        self.spec.columns = (d_model + TILE - 1) // TILE * TILE
        self.spec.integer_limbs, self.spec.fraction_limbs = integer_limbs, fraction_limbs
        self.spec.turns = <const uint32_t *><const char *>turns
        self.spec.sign = <const uint64_t *><const char *>sign
        self.spec.quarter = <const uint64_t *><const char *>quarter
        self.spec.order = order % 3
        self.spec.half = d_model // 2 if order == 3 and d_model % (2 * TILE) == 0 else 0
        self.spec.scale, self.spec.position_offset = scale, position_offset
        self.spec.padding_is_nan = padding_is_nan
        self.spec.phase_bits = NO_PHASE_BITS if phase_bits is None else phase_bits
        self.spec.has_padding = padding_idx is not None
        if padding_idx is not None:
            self.spec.padding = padding_idx
            self.spec.padding_real = padding_idx if float(padding_idx) == padding_idx else float("nan")
        self.spec.has_zero = floor(position_offset) == position_offset and position_offset > -2.0**63
        if self.spec.has_zero:
            self.spec.zero = -<int64_t>position_offset
        self.spec.has_fast_path = 2.0**-400 <= abs(scale) <= 2.0**400
        self.spec.has_fast_test = 2.0**-400 <= abs(scale) <= 2.0**10
        self.spec.context = <void *>value
        for limb in range(0 if phase_bits is None else integer_limbs + min(fraction_limbs, 3)):     # of twice the frequencies
            for column in range(d_model):
                self.zeros += self.spec.turns[limb * self.spec.pitch + column] * 2.0**(32 * (integer_limbs - limb) - 31)


def pitched(ptrdiff_t d_model):
    """Return the number of columns in a specification's arrays: whole tiles, and one more to allow any first column."""
    return (d_model + TILE - 1) // TILE * TILE + TILE


def powers(bytes factors, ptrdiff_t count, ptrdiff_t dropped):
    """Return first * ratio**i for i = 0 ... count - 1, then 0, where `factors` are `first` and `ratio`.

    All are integers of the same number of uint32 limbs, lowest first.  The lowest `dropped` limbs of each
    product are discarded; of these, only the top two are computed, for the carry.  The error is below two units.
    """
    cdef ptrdiff_t limbs = len(factors) // 8, i, j, k
    cdef bytes memory = PyBytes_FromStringAndSize(NULL, (count + 1) * limbs * 4)
    cdef const uint32_t *ratio = <const uint32_t *><const char *>factors + limbs
    cdef uint32_t *to = <uint32_t *><char *>memory
    cdef const uint32_t *last
    cdef uint64_t low, high, product
    memcpy(to, <const char *>factors, limbs * 4)
    with nogil:
        for i in range(1, count):
            last = to
            to += limbs
            high = 0
            for k in range(max(0, dropped - 2), limbs + dropped):
                low = <uint32_t>high
                high >>= 32
                for j in range(max(0, k - limbs + 1), min(k + 1, limbs)):
                    product = <uint64_t>last[j] * ratio[k - j]
                    low += <uint32_t>product
                    high += product >> 32
                high += low >> 32
                if k >= dropped:
                    to[k - dropped] = <uint32_t>low
        memset(to + limbs, 0, limbs * 4)
    return memory


# ---- kept tables ---------------------------------------------------------------------------------------

cdef dict kept = {}                     # {key: Tables}, the oldest ones first
cdef ptrdiff_t kept_bytes = 0

cdef enum:                              # kinds of tables: digits of float32, float16 and bfloat16, or of float64, and offsets
    DIGITS, DIGITS_FLOAT64, OFFSETS


cdef class Tables:
    """Tables that calls share, until others need their memory."""

    cdef object __weakref__
    cdef list memory                    # which does not change
    cdef ptrdiff_t first                # of offsets_t
    cdef bint is_used                   # since other tables last needed memory


cdef struct tables_run_t:
    # an offset table, or a level of digit tables, that is computed in blocks of tiles
    run_t run
    const spec_t *spec
    ptrdiff_t tiles
    const offsets_t *offsets            # or NULL
    double *level
    int index, parts                    # of the level


cdef tuple key_of(Columns columns, int kind, ptrdiff_t first):
    with cython.critical_section(columns):
        if columns.key is None:
            columns.key = frozenset([columns.contents])
        return columns.key, kind, first


cdef Tables kept_tables(Columns columns, int kind, ptrdiff_t first):
    """Return tables that are kept, or None.  The columns refer to those of their last call, which are found faster."""
    cdef object last = columns.last[kind]
    cdef Tables tables = None if last is None else last()
    if tables is None or tables.first != first:
        with cython.critical_section(lock):
            tables = kept.get(key_of(columns, kind, first))
        columns.last[kind] = None if tables is None else ref(tables)
    if tables is not None:
        tables.is_used = True
    return tables


cdef int keep_tables(Columns columns, int kind, ptrdiff_t first, list memory) except -1:
    """Keep tables.  Drop tables that were not used recently while the total exceeds KEPT_BYTES (clock algorithm)."""
    global kept_bytes
    cdef Tables tables = Tables.__new__(Tables), oldest
    cdef tuple key = key_of(columns, kind, first)
    tables.memory, tables.first, tables.is_used = memory, first, True
    with cython.critical_section(lock):
        oldest = kept.pop(key, None)
        kept_bytes += sum(map(len, memory)) - (sum(map(len, oldest.memory)) if oldest is not None else 0)
        kept[key] = tables
        while kept_bytes > KEPT_BYTES and len(kept) > 1:
            key = next(iter(kept))
            oldest = kept.pop(key)
            if oldest.is_used:
                oldest.is_used = False
                kept[key] = oldest
            else:
                kept_bytes -= sum(map(len, oldest.memory))
        columns.last[kind] = ref(tables)
    return 0


cdef int compute_table(tables_run_t *run, int threads) except -1:
    run.run.bytes = 0
    run.run.plan = plan_tiles(run.tiles, allowed_for(threads, (HALF + COARSE) * run.tiles * TILE, DIRECT_PER_THREAD))
    run_call(&run.run, tables_block, None)
    return 0


cdef void tables_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef tables_run_t *run = <tables_run_t *>context
    cdef ptrdiff_t first = which * context.plan.rows, last = min(first + context.plan.rows, run.tiles)
    if run.offsets != NULL:
        context.kernel.tabulate(run.spec, run.offsets, first, last)
    else:
        context.kernel.tabulate_level(run.spec, run.index, run.parts, run.level, first, last)


# ---- the tables of a job -------------------------------------------------------------------------------

cdef object arrange(job_t *job, digits_t *digits, ptrdiff_t rows, Columns columns, int threads):
    """Choose how the rows of a job are computed; return the memory of its tables, which the caller must keep alive.

    Evenly spaced rows have an offset table, except most narrow ones.  In other arrays, integers have a span (its
    table is not computed here), and an offset table if there are runs; the remaining rows have digit tables,
    described by `digits`.  A rotation has only an offset table, and `digits` is NULL.  Without a table, rows are
    evaluated directly.  No lock is held while a table is built, because a child process that is forked at this
    time would inherit the lock in its locked state.  Two threads may therefore build the same table.
    """
    cdef uint64_t step
    cdef ptrdiff_t with_digits[LEVELS]
    cdef ptrdiff_t in_runs
    cdef int fractions, joined
    job.offsets = NULL
    job.digits = NULL
    job.span = NULL
    job.span_rows = 0
    joined = TILE // columns.spec.d_model if digits != NULL and columns.spec.d_model <= MOST_NARROW else 1
    if rows < ROWS_WITH_TABLE * joined:
        return None
    if job.integers == NULL:
        step = even_step(job, rows)
    else:
        with nogil:
            step = even_step(job, rows)
    if columns.spec.phase_bits != NO_PHASE_BITS and (
            step == 0 or 8 * TILE * step * joined * columns.zeros > columns.spec.columns):
        return None                     # one tile in eight may have exact zeros, which take less time directly
    # the limit keeps step times the longest offset inside the int64 range
    if 0 < step < (<uint64_t>1 << 50) // joined:
        return offsets_of(job, rows, columns, step, joined, threads)
    if job.integers == NULL and job.reals == NULL or joined > 1:
        return None
    with cython.critical_section(columns):
        if columns.radians is None:
            columns.radians = PyBytes_FromStringAndSize(NULL, 2 * columns.spec.columns * sizeof(double))
            columns.fractions = radians_of_columns(&columns.spec, <double *><char *>columns.radians,
                                                   <double *><char *>columns.radians + columns.spec.columns)
    memset(with_digits, 0, sizeof(with_digits))
    # at most 2**-5 radians or, for float64, 2**-11
    fractions = columns.fractions + (job.dtype == FLOAT64) if job.reals != NULL or not columns.spec.has_zero else 0
    if fractions > WHOLE:
        return None
    with nogil:
        if job.integers != NULL and digits != NULL and columns.spec.columns > TILE:
            choose_span(&columns.spec, job, rows)
        in_runs = count_digits(&columns.spec, job, rows, fractions, with_digits)
    if digits == NULL:                  # evaluates rows directly unless most are in runs
        return offsets_of(job, rows, columns, 1, 1, threads) if 2 * in_runs >= rows - 1 else None
    return (offsets_of(job, rows, columns, 1, 1, threads) if in_runs >= ROWS_FOR_KEPT_TABLE else None,
            digits_of(job, digits, columns, fractions, with_digits, threads))


cdef list offsets_of(job_t *job, ptrdiff_t rows, Columns columns, uint64_t step, int joined, int threads):
    """Set the offset table of a job, and return its memory; None if too few rows, of all calls if it is kept, want it."""
    cdef const spec_t *spec = &columns.spec
    cdef ptrdiff_t first = first_column(job, spec, rows) if joined == 1 else 0
    cdef ptrdiff_t variant = first if joined == 1 else -joined
    cdef bint is_kept = step == 1 and spec.columns <= KEPT_COLUMNS
    cdef Tables shared = kept_tables(columns, OFFSETS, variant) if is_kept else None
    cdef list tables = None if shared is None else shared.memory
    cdef double size = <double>OFFSETS_PER_COLUMN * spec.columns * sizeof(double)
    cdef tables_run_t run
    cdef offsets_t *offsets
    if tables is None:
        if is_kept:
            with cython.critical_section(columns):
                columns.consecutive += rows
                rows = columns.consecutive
        # a rotation, which has no `out`, evaluates rows directly in double
        if rows < joined * (ROWS_FOR_KEPT_TABLE if is_kept else
                   ROWS_FOR_TABLE_FLOAT64 if job.dtype == FLOAT64 and job.out != NULL else ROWS_FOR_TABLE):
            return None
        tables = [allocate(LINE + size, f"the offset table of d_model {spec.d_model}")]
        offsets = <offsets_t *>on_cache_line(tables[0])
        offsets[0] = offsets_in(<double *>(<char *>offsets + LINE), spec.columns, step * joined, <int>first, joined)
        run.spec = spec
        run.tiles = spec.columns // TILE
        run.offsets = offsets
        compute_table(&run, threads)
        if is_kept:
            keep_tables(columns, OFFSETS, variant, tables)
    job.offsets = <const offsets_t *>on_cache_line(tables[0])
    return tables


cdef list digits_of(job_t *job, digits_t *digits, Columns columns, int fractions, const ptrdiff_t *with_digits, int threads):
    """Set the digit tables of a job, and return their memory, or None.

    A level is built when `ROWS_FOR_LEVEL` rows have had a digit for it, in this call and earlier ones.
    """
    cdef const spec_t *spec = &columns.spec
    cdef bint is_float64 = job.dtype == FLOAT64
    cdef int lowest = WHOLE - fractions, level, most
    cdef double level_bytes = <double>angle_tiles(spec) * angles_of_tile(spec) * RADIX * (32 if is_float64 else 16)
    cdef tables_run_t run
    if not spec.has_fast_path or not (is_float64 or spec.has_fast_test):
        return None
    if spec.fraction_limbs > MAX_LIMBS:    # radians could underflow
        return None
    most = <int>min(<double>min(LEVELS, lowest + LEVELS - 1), WHOLE + DIGITS_BYTES / level_bytes)    # with_digits has no more
    digits.levels = 0
    with cython.critical_section(columns):
        for level in range(lowest, most):
            columns.wanted[is_float64][level] += with_digits[level - lowest + 1 if level > WHOLE else 0]
            if columns.wanted[is_float64][level] >= ROWS_FOR_LEVEL:
                digits.levels = level + 1
    if digits.levels <= WHOLE:
        return None
    digits.fractions = fractions
    digits.radians = <const double *><const char *>columns.radians
    digits.radians_low = digits.radians + spec.columns
    run.spec = spec
    run.tiles = angle_tiles(spec)
    run.offsets = NULL
    run.parts = 2 if is_float64 else 1
    cdef Tables shared = kept_tables(columns, is_float64, 0)
    cdef list known = [b""] * LEVELS if shared is None else shared.memory, tables = known
    for level in range(lowest, digits.levels):
        if not tables[level]:
            if tables is known:
                tables = known.copy()
            tables[level] = allocate(level_bytes, f"the digit tables of d_model {spec.d_model}")
            run.level = <double *>on_cache_line(tables[level])
            run.index = level
            compute_table(&run, threads)
        digits.level[level] = <const double *>on_cache_line(tables[level])
    if tables is not known:
        keep_tables(columns, is_float64, 0, tables)
    job.digits = digits
    return tables


# ---- calls ---------------------------------------------------------------------------------------------

cdef struct table_call_t:
    # encode or add_to
    run_t run
    positions_t positions
    Py_buffer out                       # the array to which rows are stored or added
    const spec_t *spec
    job_t job                           # prepared: dtype, output (STORE or ADD) and x_scale
    digits_t digits                     # of the job, if it has any
    bint is_table            # whether batch entries share positions; if not, there is a position for each row
    int threads                         # 0 for the default
    ptrdiff_t all_rows


def encode(Columns columns not None, object positions, object dtype, object out, object threads):
    """Return encodings: see `posenc.encode`."""
    cdef table_call_t call
    cdef positions_t *p = &call.positions
    cdef ptrdiff_t d_model = columns.spec.d_model
    cdef bint has_out_dtype = dtype is None and isinstance(out, ndarray)
    cdef DType element
    hold_nothing(p, &call.out)
    try:
        element = element_of(out.dtype if has_out_dtype else "float32" if dtype is None else dtype,
                             "out has dtype" if has_out_dtype else "dtype is", "float64, float32")
        call.job.output = STORE
        call.job.x_scale = 1
        call.job.dtype = element.code
        call.threads = threads_of(threads)
        read_positions(p, positions, columns.spec.position_offset)
        call.is_table = p.axes == 1
        if out is None:
            out = new_rows(shape_of(p, d_model), <double>p.rows * d_model, element, "positions")
        hold_rows(&call.out, out, element, "out")
        if call.out.shape[call.out.ndim - 1] != d_model or not has_shape(
                layout_of(&call.out, call.out.ndim - 1), p.axes, p.shape):
            raise ValueError(f"out has shape {out.shape}, expected {shape_of(p, d_model)}")
        settle_positions(p, &call.out)
        execute_table(&call, columns)
    finally:
        release(p, &call.out)
    return out


def add_to(Columns columns not None, object x, object positions, object x_scale, object threads):
    """Add encodings to x: see `posenc.add_to`."""
    cdef table_call_t call
    cdef positions_t *p = &call.positions
    cdef double factor, offset = columns.spec.position_offset
    cdef ptrdiff_t d_model = columns.spec.d_model
    cdef layout_t rows
    cdef DType element
    if not isinstance(x, ndarray):
        raise checks.wrong_type("x", x, "a numpy.ndarray")
    hold_nothing(p, &call.out)
    try:
        # Conversions may run user code that changes x, so x is checked after all of them.
        factor = finite_number(x_scale, "x_scale")
        call.threads = threads_of(threads)
        if positions is not None:
            read_positions(p, positions, offset)
        element = element_of(x.dtype, "x has dtype", "float64, float32")
        call.job.dtype = element.code
        hold_rows(&call.out, x, element, "x")
        if call.out.shape[call.out.ndim - 1] != d_model:
            raise ValueError(f"x has shape {x.shape}, expected (..., {d_model})")
        call.job.output = ADD
        call.job.x_scale = rounded_in_default(call.job.dtype, factor)
        if call.job.x_scale - call.job.x_scale != 0:
            raise ValueError(f"x_scale is {factor}, expected a number within the range of {x.dtype.name}")
        rows = layout_of(&call.out, call.out.ndim - 1)
        read_positions_of(p, positions, rows, x, offset)
        call.is_table = p.axes == 1 and rows.axes and p.rows == rows.shape[rows.axes - 1]
        if not call.is_table and not has_shape(rows, p.axes, p.shape):
            replace_positions(p, checks.broadcast(p.view.obj, x.shape[:x.ndim - 1]))
        settle_positions(p, &call.out)
        execute_table(&call, columns)
    finally:
        release(p, &call.out)


cdef object shape_of(const positions_t *p, ptrdiff_t columns):
    """Return the shape of a table."""
    if p.axes == 1:
        return p.rows, columns
    return (*[p.shape[i] for i in range(p.axes)], columns)


# ---- execution -----------------------------------------------------------------------------------------

cdef int execute_table(table_call_t *call, Columns columns) except -1:
    """Merge the axes of `out`, and run one job for each index into all merged axes but the last."""
    cdef const positions_t *p = &call.positions
    cdef const Py_buffer *out = &call.out
    cdef extent_t axes
    cdef job_t *job = &call.job
    cdef output_t output = job.output
    cdef ptrdiff_t which, first, length = 1, stride = 0
    cdef int axis
    if out.len == 0:
        return 0
    call.spec = &columns.spec
    axes.axes = 0
    for axis in range(out.ndim - 1 - call.is_table):
        append_axis(&axes, out.shape[axis], 0, out.strides[axis], 0)
    if axes.axes:
        length = axes.shape[axes.axes - 1]
        stride = axes.out_strides[axes.axes - 1]
    job.batch, job.batch_stride, call.all_rows, job.row_stride = 1, 0, length, stride
    if call.is_table:
        job.batch, job.batch_stride = length, stride
        call.all_rows, job.row_stride = out.shape[out.ndim - 2], out.strides[out.ndim - 2]
    for which in range(elements_of(&axes) // length):
        first = which * length
        job.out = <char *>out.buf + offset_at(&axes, first).out
        job.output = output
        set_positions(job, p, 0 if call.is_table else first)
        execute_job(call, columns)
    return 0


cdef int execute_job(table_call_t *call, Columns columns) except -1:
    """Plan a job and run it in blocks of rows and of batch entries."""
    cdef job_t *job = &call.job
    cdef object tables = arrange(job, &call.digits, call.all_rows, columns, call.threads)
    cdef int threads = allowed_for(
        call.threads, <double>call.all_rows * call.spec.columns * job.batch, table_per_thread(job, call.spec))
    cdef bytes span = new_span(call, columns, threads) if job.span_rows else None
    call.run.plan = plan_table(job, call.spec, call.all_rows, threads)
    call.run.bytes = job.memory
    run_call(&call.run, table_block, "panels of rows")
    return 0


cdef bytes new_span(table_call_t *call, Columns columns, int threads):
    """Compute the span table of a job with the threads that will copy its rows, and return its memory."""
    cdef job_t *job = &call.job
    cdef table_call_t span = call[0]
    cdef double size = <double>job.span_rows * job.span_pitch
    cdef bytes memory = allocate(size, f"{job.span_rows} rows of d_model {columns.spec.d_model}")
    span.threads = threads
    span.all_rows = job.span_rows
    span.job.output = STORE
    span.job.out = on_cache_line(memory)
    span.job.row_stride = job.span_pitch
    span.job.batch = 1
    span.job.integers = NULL
    span.job.start = <uint64_t>job.span_start
    span.job.step = 1
    execute_job(&span, columns)
    job.span = span.job.out
    return memory


cdef void table_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef table_call_t *call = <table_call_t *>context
    cdef plan_t *plan = &context.plan
    cdef ptrdiff_t block = block_at(plan, which)
    cdef ptrdiff_t row = block % plan.row_blocks * plan.rows, entry = block // plan.row_blocks * plan.entries
    cdef job_t job = call.job
    job.out += entry * job.batch_stride
    job.batch = min(plan.entries, job.batch - entry)
    context.kernel.write_rows(call.spec, &job, row, min(plan.rows, call.all_rows - row), memory, tally)
