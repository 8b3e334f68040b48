# Types of tables.pxi.

cdef class Offsets:
    cdef offsets_t table
    cdef bytes memory


cdef class Digits:
    cdef digits_t table
    cdef list memory


cdef class Columns:
    cdef spec_t spec
    # number of rows that had a digit for each level, in the other dtypes and in float64
    cdef int64_t wanted[2][LEVELS]
    cdef int fractions
    cdef object radians
    cdef frozenset key                  # the columns in the keys of kept tables; it also owns their memory
    cdef object value


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
