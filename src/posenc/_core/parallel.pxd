# Types of parallel.pxi.

ctypedef void (*block_t)(void *context, ptrdiff_t which, int thread) noexcept nogil


cdef struct slot_t:
    # a thread's tally, padded to a cache line
    tally_t tally
    char padding[48]


cdef struct run_t:
    # the first member of the context of every call
    const kernel_t *kernel
    size_t bytes                        # size of each thread's memory, a multiple of LINE
    char *memory
    slot_t *slots
    PyObject *error                     # the first exception of an undecided value


cdef struct undecided_t:
    # to evaluate the values of a spec_t that the kernel leaves undecided
    run_t *run
    PyObject *value                     # a borrowed `exact.Values`


cdef class Memory:
    cdef void *allocated
    cdef char *first
