# The instruction set in use, the floating-point environment of Python code, and the counters.

cdef const kernel_t *active = NULL
cdef tally_t counted
cdef str invalid_setting = None
counted.uncertain = counted.exact = 0


def instruction_sets():
    """Return {name: whether this processor supports it} for the instruction sets in this build, best first."""
    result = {}
    cdef int i = 0
    while posenc_kernels[i] != NULL:
        result[(posenc_kernels[i].name).decode()] = bool(posenc_is_supported(posenc_kernels[i]))
        i += 1
    return result


def instruction_set():
    """Return the name of the instruction set in use."""
    return (active.name).decode()


def use_instruction_set(name=None, what="instruction set"):
    """Select the kernels of an instruction set, by default the best supported one.  This function is not thread-safe."""
    global active
    for i, (built, runs) in enumerate(instruction_sets().items()):
        if runs and name in (None, built):
            active = posenc_kernels[<int>i]
            return
    available = [built for built, runs in instruction_sets().items() if runs]
    raise ValueError(f"{what} is {name!r}, expected one of the instruction sets of this processor: {', '.join(available)}")


cdef class default_environment:
    """A context with the default rounding mode and without flush-to-zero, for arithmetic in Python.

    The kernels set and restore their floating-point environment themselves.
    """

    cdef environment_t host

    def __enter__(self):
        self.host = environment_enter()

    def __exit__(self, *error):
        environment_leave(self.host)


def counters():
    """Return two counts since the last call: uncertain groups of values, and values that were evaluated exactly.

    A group is a row of a tile or, in a rotation, a bunch of pairs: see `tally_t` in kernel.h.
    """
    with cython.critical_section(lock):
        result = {"uncertain": counted.uncertain, "exact": counted.exact}
        counted.uncertain = counted.exact = 0
    return result


def check_settings():
    """Raise ValueError if an environment variable is invalid.  Few programs would catch the error if the import raised it."""
    if invalid_setting is not None:
        raise ValueError(invalid_setting)


use_instruction_set()
try:
    use_instruction_set(os.environ.get("POSENC_ISA") or None, "POSENC_ISA")
    default_threads.requested()
except ValueError as error:
    invalid_setting = str(error)
