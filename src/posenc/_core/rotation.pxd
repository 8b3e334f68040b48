# Types of rotation.pxi.

cdef class Rotation:
    cdef list axes
    cdef ptrdiff_t head_dim, pairs
    cdef bint interleaved


cdef class Factors:
    cdef Rotation rotation
    cdef readonly bint inverse
    cdef readonly object positions
    cdef positions_t p
    cdef ptrdiff_t rows, row_bytes
    cdef dict forms                     # {dtype_t: (memory, direct_scale of rotation_t)}, for the dtypes computed so far


cdef struct rotation_call_t:
    run_t run
    positions_t positions               # or the rows of factors
    Py_buffer x                         # not held if x is rotated in place
    layout_t source                     # the axes of x without its columns
    Py_buffer out
    rotation_t rotation                 # prepared, except for its axes of positions
    rotary_axis_t axes[MAX_POSITION_AXES]
    ptrdiff_t rows, heads, factor_rows
    int threads
    double *factors                     # those to compute, at factor_rows positions
