# Types of rotation.pxi.

cdef class Rotation:
    cdef list axes
    cdef ptrdiff_t head_dim, pairs
    cdef bint interleaved


cdef class Numbers(Memory):
    cdef double direct_scale            # see rotation_t


cdef class Factors:
    cdef Rotation rotation
    cdef readonly bint inverse
    cdef readonly object positions
    cdef positions_t p
    cdef ptrdiff_t rows, row_bytes
    cdef dict forms                     # {dtype_t: Numbers}, for the dtypes computed so far


cdef struct rotation_call_t:
    positions_t positions               # or the rows of factors
    Py_buffer x                         # not held if x is rotated in place
    Py_buffer out
    rotation_t rotation                 # execute_rotation sets its axes of positions
    ptrdiff_t rows, heads
    int threads
