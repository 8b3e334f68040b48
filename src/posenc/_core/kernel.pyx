# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
# cython: auto_pickle=False, binding=False
"""Calls of the C kernels.

`encode` and `add_to` are in encode.pxi, `rotate` and `rotate_at` in rotation.pxi.  Each function first reads,
converts and checks its arguments, with the functions in arguments.pxi, before anything is written.  Then
c/plan.h divides the rows of the call into blocks, and run_call in parallel.pxi runs the blocks in an OpenMP
parallel region, in which each thread takes the next block until none is left.
"""

# names used in every call: C variables, which are found faster than Python globals
cdef object checks, empty, ndarray, uint16

import os
from math import prod
from weakref import ref

import cython
from numpy import arange, empty, int64, memmap, ndarray, uint8, uint16

from posenc._arguments import arrays, checks
from posenc._arguments.arrays import DTYPES
from posenc._core import default_threads

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDES
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport parallel
from libc.math cimport INFINITY, floor
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset


def rounded(str dtype, double x):
    """Return x rounded to a dtype, as a float."""
    return rounded_in_default(<dtype_t><int>DTYPES[dtype].code, x)


# ---- the instruction set -------------------------------------------------------------------------------

cdef const kernel_t *active = NULL      # the kernels in use
cdef str invalid_setting = None         # error of an environment variable


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


def use_instruction_set(name=None, source="instruction set"):
    """Select the kernels of an instruction set, by default the best one that the processor supports.

    This function is not thread-safe.
    """
    global active
    for i, (built, runs) in enumerate(instruction_sets().items()):
        if runs and name in (None, built):
            active = posenc_kernels[<int>i]
            return
    available = [built for built, runs in instruction_sets().items() if runs]
    raise ValueError(f"{source} is {name!r}, expected one of the instruction sets of this processor: {', '.join(available)}")


def check_settings():
    """Raise ValueError if an environment variable is invalid.

    The import does not raise it, because few programs would catch it.
    """
    if invalid_setting is not None:
        raise ValueError(invalid_setting)


use_instruction_set()                   # stays in use if a setting is invalid
try:
    use_instruction_set(os.environ.get("POSENC_ISA") or None, "POSENC_ISA")
    default_threads.requested()         # raises if POSENC_NUM_THREADS is invalid
except ValueError as error:
    invalid_setting = str(error)


include "parallel.pxi"
include "arguments.pxi"
include "columns.pxi"
include "tables.pxi"
include "encode.pxi"
include "rotation.pxi"
