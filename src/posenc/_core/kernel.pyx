# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
# cython: auto_pickle=False, binding=False
"""Calls of the C kernels.

Each call is first prepared: its arguments are read, converted and checked (arguments.pxi), before anything is written.  Then it
is executed: c/plan.h divides its rows into blocks, and the OpenMP-parallel loop in parallel.pxi runs them.  tables.pxi contains
both steps for tables, rotation.pxi for rotations.
"""

cdef object checks, empty, ndarray, uint16      # C variables, which are found faster than Python globals

import os
from math import prod

import cython
from numpy import arange, empty, int64, memmap, ndarray, uint8, uint16, uint64

from posenc._arguments import arrays, checks
from posenc._arguments.arrays import DTYPES
from posenc._core import default_threads

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDES
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport parallel
from libc.math cimport floor
from libc.stdint cimport uintptr_t
from libc.stdlib cimport free
from libc.string cimport memset


def encode(Columns columns not None, object positions, object dtype, object out, object threads):
    """Return encodings: see `posenc.encode`."""
    cdef table_call_t call
    hold_nothing(&call.positions, &call.out)
    try:
        out = prepare_encode(&call, &columns.spec, positions, dtype, out, threads)
        execute_table(&call, columns)
    finally:
        release(&call.positions)
        PyBuffer_Release(&call.out)
    return out


def add_to(Columns columns not None, object x, object positions, object x_scale, object threads):
    """Add encodings to x: see `posenc.add_to`."""
    cdef table_call_t call
    hold_nothing(&call.positions, &call.out)
    try:
        prepare_add_to(&call, &columns.spec, x, positions, x_scale, threads)
        execute_table(&call, columns)
    finally:
        release(&call.positions)
        PyBuffer_Release(&call.out)


def rotate(Rotation rotation not None, object x, object positions, object inverse, object out, object threads):
    """Rotate x: see `posenc.Rotary.rotate`."""
    rotate_by(rotation, None, x, positions, inverse, out, threads)


def rotate_at(Factors factors not None, object x, object rows, object out, object threads):
    """Rotate x by some rows of `factors`; `rows` is a view of 0, 1, 2 ...: see `posenc.RotaryAt.rotate`."""
    rotate_by(factors.rotation, factors, x, rows, factors.inverse, out, threads)


cdef int rotate_by(Rotation rotation, Factors factors, object x, object positions, object inverse, object out,
                   object threads) except -1:
    cdef rotation_call_t call
    hold_nothing(&call.positions, &call.out)
    memset(&call.x, 0, sizeof(Py_buffer))
    try:
        prepare_rotate(&call, rotation, x, positions, inverse, out, threads, factors is not None)
        execute_rotation(&call, rotation, factors)
    finally:
        release(&call.positions)
        PyBuffer_Release(&call.x)
        PyBuffer_Release(&call.out)
    return 0


def rounded(str dtype, double x):
    """Return x rounded to a dtype, as a float."""
    return rounded_in_default(<dtype_t><int>DTYPES[dtype].code, x)


include "settings.pxi"
include "parallel.pxi"
include "arguments.pxi"
include "tables.pxi"
include "rotation.pxi"
