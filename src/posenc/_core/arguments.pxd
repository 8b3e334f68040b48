# Types of arguments.pxi.

cdef class DType:
    cdef dtype_t code
    cdef object dtype


cdef struct positions_t:
    # evenly spaced positions from `start` on, or an array of integers or reals
    ptrdiff_t rows
    uint64_t start, step
    const int64_t *integers
    const double *reals
    int axes                            # of the array
    ptrdiff_t shape[MAX_DIMENSIONS]
    bint is_array
    Py_buffer view                      # of the array
    int64_t *whole                      # memory of the integers that replace reals, or NULL
