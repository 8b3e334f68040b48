# Evaluates values that exact.c or combination.c leaves undecided, with Python integers.

cdef struct request_t:
    undecided_t *undecided
    const position_t *position
    ptrdiff_t column
    const double *factors               # the factors of this column and the next one, or NULL
    dtype_t dtype
    double value
    PyThread_type_lock lock             # released when `value` is set; NULL if the call uses one thread


cdef double decide(void *context, const position_t *position, ptrdiff_t column, const double *factors,
                   dtype_t dtype) noexcept nogil:
    """Return an undecided value, rounded.

    In a parallel region, a new thread evaluates the value, because in the main thread, Python could run a signal handler,
    which may raise or fork.
    """
    cdef request_t request
    request.undecided = <undecided_t *>context
    request.position = position
    request.column = column
    request.factors = factors
    request.dtype = dtype
    request.lock = NULL if request.undecided.serial else PyThread_allocate_lock()
    if request.lock == NULL:
        evaluate(&request)
        return request.value
    PyThread_acquire_lock(request.lock, True)
    # -1: PYTHREAD_INVALID_THREAD_ID
    if PyThread_start_new_thread(evaluate, &request) == <unsigned long>-1:
        evaluate(&request)
    PyThread_acquire_lock(request.lock, True)
    PyThread_free_lock(request.lock)
    return request.value


cdef void evaluate(void *argument) noexcept nogil:
    cdef request_t *request = <request_t *>argument
    cdef PyThread_type_lock lock = request.lock
    with gil:
        evaluate_in_python(request)
    if lock != NULL:
        PyThread_release_lock(lock)


cdef void evaluate_in_python(request_t *request) noexcept:
    """Set the value of a request.  The first exception is kept and raised at the end of the call."""
    cdef const position_t *position = request.position
    cdef undecided_t *undecided = request.undecided
    cdef int i
    request.value = 0
    if undecided.error != NULL:
        return
    try:
        number = 0
        for i in range(position.limbs - 1, -1, -1):
            number = number << 32 | position.limb[i]
        if position.negative:
            number = -number
        factors = None if request.factors == NULL else (request.factors[0], request.factors[1])
        request.value = (<object>undecided.value)(number, 32 * position.exponent, request.column, <int>request.dtype, factors)
    except BaseException as error:
        with cython.critical_section(lock):
            if undecided.error == NULL:
                Py_INCREF(error)
                undecided.error = <PyObject *>error
