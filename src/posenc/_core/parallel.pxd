# Types of parallel.pxi.

cdef struct run_t:
    # the first member of the context of every call
    const kernel_t *kernel
    plan_t plan
    size_t bytes                        # size of each thread's memory, a multiple of LINE
    char *memory
    tally_t *tallies                    # one for each thread of the plan


ctypedef void (*block_t)(run_t *run, ptrdiff_t which, char *memory, tally_t *tally) noexcept nogil
