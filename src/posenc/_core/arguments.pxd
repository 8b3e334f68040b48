# Declarations of arguments.pxi.

cdef class Element:
    cdef dtype_t code
    cdef object dtype


cdef struct positions_t:
    # evenly spaced positions from `start` on, or an array of integers or reals
    ptrdiff_t rows
    uint64_t start, step
    const int64_t *integers
    const double *reals
    int axes                            # of the array
    ptrdiff_t shape[MOST_DIMENSIONS]
    bint is_array
    Py_buffer view                      # of the array
    int64_t *whole                      # memory of the integers that replace reals, or NULL


cdef int threads_of(object threads) except -1
cdef Element element_of(object dtype, str subject, str expected)
cdef object new_rows(tuple shape, double values, Element element, str name)
cdef int hold_rows(Py_buffer *view, object array, Element element, str name, bint written=*) except -1
cdef layout_t layout_of(const Py_buffer *view, int axes) noexcept
cdef bint overlap(const Py_buffer *read, const Py_buffer *written) noexcept
cdef int read_positions(positions_t *p, object positions, double offset) except -1
cdef int replace_positions(positions_t *p, object array) except -1
cdef int settle_positions(positions_t *p, const Py_buffer *written) except -1
cdef void use_integers(positions_t *p) noexcept
cdef void hold_nothing(positions_t *p, Py_buffer *array) noexcept
cdef void release(positions_t *p) noexcept
