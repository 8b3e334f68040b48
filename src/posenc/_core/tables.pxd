# Types of tables.pxi.

cdef class Offsets:
    cdef offsets_t table
    cdef bytes memory


cdef class Digits:
    cdef digits_t table
    cdef list memory


cdef class Columns:
    cdef spec_t spec
    cdef list digits                    # for the other dtypes, and for float64; a Digits or None
    cdef int64_t wanted[2][LEVELS]      # number of rows that had a digit for each level, for both
    cdef int fractions
    cdef object radians
    cdef list tables                    # offset tables for consecutive positions, newest first
    cdef object memory, value


cdef struct table_call_t:
    # encode or add_to
    run_t run
    positions_t positions
    Py_buffer out                       # the array to which rows are stored or added
    const spec_t *spec
    job_t job                           # prepared: dtype, output (STORE or ADD) and x_scale
    bint is_table                       # whether batch entries share positions; if not, there is a position for each row
    int threads                         # 0 for the default
    ptrdiff_t all_rows
    ptrdiff_t ranges                    # number of contiguous ranges of blocks, one for each thread


cdef enum:
    # Fewest rows that are advanced with an offset table.  Building a table takes as long as the direct evaluation of about 100
    # rows in double-double (float64), or of 300 to 500 rows in double.  A kept table also speeds up later calls.
    ROWS_WITH_TABLE = 4                 # if the table exists
    ROWS_FOR_KEPT_TABLE = 32            # if the table is built and kept
    ROWS_FOR_TABLE_FLOAT64 = 128        # if the table is built for one call, and direct evaluation is in double-double
    ROWS_FOR_TABLE = 512                # if the table is built for one call, and direct evaluation is in double
