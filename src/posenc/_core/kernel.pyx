# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
# cython: auto_pickle=False, binding=False
"""Calls of the C kernels.  First, a call is prepared and its arguments are checked; then a team of threads executes it.

Each included file uses only the files before it.
"""

cdef object checks, empty, ndarray, uint16      # C variables, which are found faster than Python globals

import os
from math import prod

import cython
from numpy import empty, float64, frombuffer, int64, ndarray, uint8, uint16

from posenc._arguments import checks
from posenc._arguments.dtypes import DTYPES
from posenc._core import default_threads

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.math cimport floor
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset


MOST_AXES = MOST_POSITION_AXES          # largest number of position axes of a rotation

include "settings.pxi"
include "team.pxi"
include "undecided.pxi"
include "arrays.pxi"
include "positions.pxi"
include "columns.pxi"


cdef class Rotation:
    """A rotation of pairs of columns, by angles that depend on the position of each row.

    Parameters
    ----------
    axes : sequence of (Columns, bytes or None)
        The pairs of each axis of positions.  Columns 2 j and 2 j + 1 of each must be the cosine and the sine of one frequency,
        without an offset or a padding position.  All axes must have the same scale.  The bytes are an intp array; element j is
        the index of the pair with this frequency.  None, allowed only for a single axis, means that this index is j.
    head_dim : int
        Number of columns of an array.
    pairs : int
        Number of pairs.
    interleaved : bool
        Whether pair i is columns 2 i and 2 i + 1 of an array; otherwise, it is columns i and i + pairs.
    """

    cdef list axes
    cdef ptrdiff_t head_dim, pairs
    cdef bint interleaved

    def __cinit__(self, object axes, ptrdiff_t head_dim, ptrdiff_t pairs, bint interleaved):
        if not 0 < len(axes) <= MOST_POSITION_AXES:
            raise ValueError(f"{len(axes)} axes of positions, expected 1 to {MOST_POSITION_AXES}")
        self.axes = list(axes)
        self.head_dim = head_dim
        self.pairs = pairs
        self.interleaved = interleaved


include "prepare.pxi"
include "plan.pxi"
include "execute.pxi"


def rounded(str dtype, double x):
    """Return x rounded to a dtype, as a float."""
    return posenc_rounded(<dtype_t><int>DTYPES[dtype].code, x)


def rounded_bits(str dtype, object positions):
    """Return the bits of positions, each rounded once to a dtype, in an array of unsigned integers."""
    cdef dtype_t code = <dtype_t><int>DTYPES[dtype].code
    cdef positions_t p
    cdef Py_buffer out
    cdef environment_t host
    read_positions(&p, positions, 0)
    try:
        bits = empty(shape_of(&p, 1), f"u{itemsize_of(code)}")
        PyObject_GetBuffer(bits, &out, PyBUF_SIMPLE)
        with nogil:
            host = environment_enter()
            posenc_rounded_bits(code, p.rows, p.reals, p.integers, p.start, p.step, out.buf)
            environment_leave(host)
        PyBuffer_Release(&out)
    finally:
        release(&p)
    return bits[..., 0]


def encode(Columns columns not None, object positions, object dtype, object out, object threads):
    """Return encodings: see `posenc.encode`."""
    cdef table_call_t call
    call.positions.is_array = False     # holds no buffer yet
    memset(&call.out, 0, sizeof(Py_buffer))
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
    call.positions.is_array = False     # holds no buffer yet
    memset(&call.out, 0, sizeof(Py_buffer))
    try:
        prepare_add_to(&call, &columns.spec, x, positions, x_scale, threads)
        execute_table(&call, columns)
    finally:
        release(&call.positions)
        PyBuffer_Release(&call.out)


def rotate(Rotation rotation not None, object x, object positions, object inverse, object out, object threads):
    """Rotate x: see `posenc.Rotary.rotate`."""
    cdef rotation_call_t call
    call.positions.is_array = False     # holds no buffer yet
    memset(&call.x, 0, sizeof(Py_buffer))
    memset(&call.out, 0, sizeof(Py_buffer))
    try:
        prepare_rotate(&call, rotation, x, positions, inverse, out, threads)
        execute_rotation(&call, rotation)
    finally:
        release(&call.positions)
        PyBuffer_Release(&call.x)
        PyBuffer_Release(&call.out)


def rotate_at(Factors factors not None, object x, object rows, object out, object threads):
    """Rotate x at the positions of `factors` with the indices `rows`, a view of 0, 1, 2 ...: see `posenc.RotaryAt.rotate`."""
    cdef rotation_call_t call
    call.positions.is_array = False     # holds no buffer yet
    memset(&call.x, 0, sizeof(Py_buffer))
    memset(&call.out, 0, sizeof(Py_buffer))
    try:
        prepare_rotate(&call, factors.rotation, x, rows, factors.inverse, out, threads, factors)
        execute_rotation(&call, factors.rotation, factors)
    finally:
        release(&call.positions)
        PyBuffer_Release(&call.x)
        PyBuffer_Release(&call.out)
