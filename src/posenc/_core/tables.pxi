# The tables of a job: tables that calls share, and the choice of the tables from which rows are computed.

cdef enum:
    ROWS_FOR_LEVEL = 64                 # rows evaluated directly in the time that a level takes
    DIGITS_BYTES = 1 << 24         # most bytes of the levels from WHOLE on, for each precision of an encoding
    KEPT_BYTES = 1 << 26                # most bytes of all kept tables


# ---- kept tables ---------------------------------------------------------------------------------------

cdef dict kept = {}                     # {key: Tables}, the oldest ones first
cdef ptrdiff_t kept_bytes = 0

# kinds of tables: digits for float32, float16 and bfloat16; digits for float64; offsets
cdef enum:
    DIGITS, DIGITS_FLOAT64, OFFSETS


cdef class Tables:
    """Tables that calls share, until others need their memory."""

    cdef object __weakref__
    cdef list memory                    # which does not change
    cdef ptrdiff_t variant              # of an offset table: its first column, or -joined; 0 for digits
    cdef bint is_used                   # since other tables last needed memory


cdef struct tiles_run_t:
    # an offset table, or a level of digit tables, that is computed in blocks of tiles
    run_t run
    const spec_t *spec
    ptrdiff_t tiles
    const offsets_t *offsets            # or NULL
    double *level
    int index, parts                    # of the level


cdef tuple key_of(Columns columns, int kind, ptrdiff_t variant):
    with cython.critical_section(columns):
        if columns.key is None:
            columns.key = frozenset([columns.contents])
        return columns.key, kind, variant


cdef Tables kept_tables(Columns columns, int kind, ptrdiff_t variant):
    """Return kept tables, or None.  A weak reference to the tables of the last call avoids the lookup."""
    cdef object last = columns.last[kind]
    cdef Tables tables = None if last is None else last()
    if tables is None or tables.variant != variant:
        with cython.critical_section(lock):
            tables = kept.get(key_of(columns, kind, variant))
        columns.last[kind] = None if tables is None else ref(tables)
    if tables is not None:
        tables.is_used = True
    return tables


cdef int keep_tables(Columns columns, int kind, ptrdiff_t variant, list memory) except -1:
    """Keep tables.  While the total exceeds KEPT_BYTES, drop tables not used recently (clock algorithm)."""
    global kept_bytes
    cdef Tables tables = Tables.__new__(Tables), oldest
    cdef tuple key = key_of(columns, kind, variant)
    tables.memory, tables.variant, tables.is_used = memory, variant, True
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


cdef int compute_table(tiles_run_t *run, int threads) except -1:
    run.run.bytes = 0
    run.run.plan = plan_tiles(run.tiles, allowed_for(threads, (HALF + COARSE) * run.tiles * TILE, DIRECT_PER_THREAD))
    run_call(&run.run, tiles_block, None)
    return 0


cdef void tiles_block(run_t *context, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil:
    cdef tiles_run_t *run = <tiles_run_t *>context
    cdef ptrdiff_t first = which * context.plan.rows, last = min(first + context.plan.rows, run.tiles)
    if run.offsets != NULL:
        context.kernel.tabulate(run.spec, run.offsets, first, last)
    else:
        context.kernel.tabulate_level(run.spec, run.index, run.parts, run.level, first, last)


# ---- the tables of a job -------------------------------------------------------------------------------

cdef object arrange(job_t *job, digits_t *digits, ptrdiff_t rows, Columns columns, int threads):
    """Choose how the rows of a job are computed; return the memory of its tables, which the caller keeps alive.

    Evenly spaced rows have an offset table, unless there are too few of them or many exact zeros.  In other arrays,
    integers have a span (its table is not computed here), and an offset table if there are runs; the remaining
    rows, unless they are narrow, have digit tables, described by `digits`.  A rotation has only an offset table,
    and `digits` is NULL.  Without a table, rows are evaluated directly.

    No lock is held while a table is built, because a child process that is forked at this time would inherit the
    locked lock.  Two threads may therefore build the same table.
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
    if rows < MIN_ADVANCED * joined:
        return None
    if job.integers == NULL:
        step = even_step(job, rows)
    else:
        with nogil:
            step = even_step(job, rows)
    if columns.spec.phase_bits != NO_PHASE_BITS and (
            step == 0 or 8 * TILE * step * joined * columns.zeros > columns.spec.columns):
        return None                     # an eighth of the tiles may have exact zeros: faster if evaluated directly
    # the limit keeps step times the longest offset inside the int64 range
    if 0 < step < (<uint64_t>1 << 50) // joined:
        return set_offset_table(job, rows, columns, step, joined, threads)
    if job.integers == NULL and job.reals == NULL or joined > 1:
        return None
    with cython.critical_section(columns):
        if columns.radians is None:
            columns.radians = PyBytes_FromStringAndSize(NULL, 2 * columns.spec.columns * sizeof(double))
            columns.fractions = radians_of_columns(&columns.spec, <double *><char *>columns.radians,
                                                   <double *><char *>columns.radians + columns.spec.columns)
    memset(with_digits, 0, sizeof(with_digits))
    # with this number of levels, a rest is an angle of at most 2**-5 or, for float64, 2**-11
    fractions = columns.fractions + (job.dtype == FLOAT64) if job.reals != NULL or not columns.spec.has_zero else 0
    if fractions > WHOLE:
        return None
    with nogil:
        if job.integers != NULL and digits != NULL and columns.spec.columns > TILE:
            choose_span(&columns.spec, job, rows)
        in_runs = count_digits(&columns.spec, job, rows, fractions, with_digits)
    if digits == NULL:                  # a rotation evaluates rows directly unless most are in runs
        return set_offset_table(job, rows, columns, 1, 1, threads) if 2 * in_runs >= rows - 1 else None
    return (set_offset_table(job, rows, columns, 1, 1, threads) if in_runs >= ROWS_FOR_KEPT_TABLE else None,
            set_digit_tables(job, digits, columns, fractions, with_digits, threads))


cdef list set_offset_table(job_t *job, ptrdiff_t rows, Columns columns, uint64_t step, int joined, int threads):
    """Set the offset table of a job, and return its memory, or None if too few rows need it.

    A kept table counts the rows of all calls.
    """
    cdef const spec_t *spec = &columns.spec
    cdef ptrdiff_t first = first_column(job, spec, rows), fewest
    cdef ptrdiff_t variant = first if joined == 1 else -joined
    cdef bint is_kept = step == 1 and spec.columns <= KEPT_COLUMNS
    cdef Tables shared = kept_tables(columns, OFFSETS, variant) if is_kept else None
    cdef list tables = None if shared is None else shared.memory
    cdef double size = <double>OFFSETS_PER_COLUMN * spec.columns * sizeof(double)
    cdef tiles_run_t run
    cdef offsets_t *offsets
    if tables is None:
        if is_kept:
            with cython.critical_section(columns):
                columns.consecutive += rows
                rows = columns.consecutive
        # a rotation, which has no `out`, evaluates rows directly in double
        fewest = ROWS_FOR_TABLE_FLOAT64 if job.dtype == FLOAT64 and job.out != NULL else ROWS_FOR_TABLE
        if rows < joined * (ROWS_FOR_KEPT_TABLE if is_kept else fewest):
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


cdef list set_digit_tables(job_t *job, digits_t *digits, Columns columns, int fractions, const ptrdiff_t *with_digits,
                           int threads):
    """Set the digit tables of a job, and return their memory, or None.

    A level is built once `ROWS_FOR_LEVEL` rows of this call and earlier ones have had a digit for it.
    """
    cdef const spec_t *spec = &columns.spec
    cdef bint is_float64 = job.dtype == FLOAT64
    cdef int lowest = WHOLE - fractions, level, most
    cdef double level_bytes = <double>angle_tiles(spec) * angles_of_tile(spec) * RADIX * (32 if is_float64 else 16)
    cdef tiles_run_t run
    if not spec.has_fast_path or not (is_float64 or spec.has_fast_test):
        return None
    if spec.fraction_limbs > MAX_LIMBS:    # radians could underflow
        return None
    # with_digits has no element for further levels
    most = <int>min(<double>min(LEVELS, lowest + LEVELS - 1), WHOLE + DIGITS_BYTES / level_bytes)
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
