# The columns of an encoding as the kernels read them, and the offset tables with which rows are advanced.

cdef enum:
    KEPT_TABLES = 2                     # most offset tables that an encoding keeps
    KEPT_COLUMNS = 1 << 13              # most columns of a kept table; a column takes 1.3 kB
    TILES_PER_BLOCK = 16                # tiles of an offset table in a block; a tile takes 20 us


cdef class Offsets:
    """An immutable offset table for positions that are `step` apart, with the columns from `first` on."""

    cdef offsets_t table
    cdef void *memory

    def __dealloc__(self):
        free(self.memory)


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
        uint64, one for each of these columns: `sign` is the sign bit of the frequency; `quarter` is all ones for a cosine,
        0 for a sine.
    order : {0, 1, 2}
        1 if columns 2 i and 2 i + 1 are sin and cos of one frequency, 2 if they are cos and sin, else 0.
    scale, position_offset : float
    padding_idx : int or None
        The position, before the offset, whose row is all zeros.
    value : callable
        An `exact.Values`, which evaluates the values that exact.c leaves undecided.
    """

    cdef spec_t spec
    cdef list tables                    # offset tables for consecutive positions, newest first
    cdef object memory, value

    def __cinit__(self, ptrdiff_t d_model, bytes turns, int integer_limbs, int fraction_limbs, bytes sign, bytes quarter,
                  int order, double scale, double position_offset, object padding_idx, object value):
        check_settings()
        if integer_limbs + fraction_limbs > MAX_TURN_LIMBS:
            raise ValueError(f"turns has {integer_limbs + fraction_limbs} limbs, expected at most {MAX_TURN_LIMBS}")
        self.memory = (turns, sign, quarter)
        self.value = value
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


def pitched(ptrdiff_t d_model):
    """Return the number of columns in a specification's arrays: whole tiles, and one more tile to allow any first column."""
    return (d_model + TILE - 1) // TILE * TILE + TILE


cdef Offsets kept_table(Columns columns, uint64_t step, ptrdiff_t first):
    """Return the offset table if `columns` keeps it, else None."""
    cdef Offsets table
    if step == 1:
        with cython.critical_section(columns):
            for table in columns.tables:
                if table.table.first == first:
                    return table
    return None


cdef Offsets offset_table(Columns columns, uint64_t step, ptrdiff_t first, int threads):
    """Return an offset table, a kept one if possible.

    No lock is held while a table is built, because a child process that is forked at this time would inherit the lock in its
    locked state.  Two threads may therefore build the same table.
    """
    cdef Offsets table = kept_table(columns, step, first)
    if table is None:
        table = new_table(&columns.spec, step, first, threads)
        if step == 1 and columns.spec.columns <= KEPT_COLUMNS:
            with cython.critical_section(columns):
                columns.tables = [table, *columns.tables[:KEPT_TABLES - 1]]
    return table


cdef struct tables_t:
    # an offset table that is computed in blocks of tiles
    const kernel_t *kernel
    const spec_t *spec
    const offsets_t *offsets
    ptrdiff_t tiles


cdef Offsets new_table(const spec_t *spec, uint64_t step, ptrdiff_t first, int threads):
    cdef Offsets result = Offsets.__new__(Offsets)
    cdef offsets_t *table = &result.table
    cdef ptrdiff_t blocks
    cdef size_t size = OFFSETS_PER_COLUMN * spec.columns * sizeof(double) + LINE
    cdef tables_t tables
    result.memory = malloc(size)
    if result.memory == NULL:
        raise MemoryError(f"Unable to allocate {size} bytes for the offset table of d_model {spec.d_model}")
    table[0] = offsets_in(<double *>on_cache_line(result.memory), spec.columns, step, first)
    tables.kernel = active
    tables.spec = spec
    tables.offsets = table
    tables.tiles = spec.columns // TILE
    blocks = (tables.tiles + TILES_PER_BLOCK - 1) // TILES_PER_BLOCK
    run_team(tabulate_block, &tables, blocks, 1, team_size(threads, (HALF + COARSE) * spec.columns, DIRECT_PER_THREAD, blocks))
    return result


cdef void tabulate_block(void *context, ptrdiff_t which, int member) noexcept nogil:
    cdef tables_t *tables = <tables_t *>context
    cdef ptrdiff_t first = which * TILES_PER_BLOCK
    tables.kernel.tabulate(tables.spec, tables.offsets, first, min(first + TILES_PER_BLOCK, tables.tiles))
