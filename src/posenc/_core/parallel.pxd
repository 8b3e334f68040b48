# Types of parallel.pxi.

cdef struct slot_t:
    # a thread's tally, padded to a cache line
    tally_t tally
    char padding[64]


cdef struct run_t:
    # the first member of the context of every call
    const kernel_t *kernel
    plan_t plan
    size_t bytes                        # size of each thread's memory, a multiple of LINE
    char *memory
    int threads                         # most threads of the call
    slot_t *slots                       # one for each thread


ctypedef void (*block_t)(run_t *run, ptrdiff_t which, int thread) noexcept nogil


cdef class Memory:
    cdef void *allocated
    cdef char *first
