"""Common mistakes in calls of each public function: every message must name the argument and the remedy.

Each row has a call, at least two spaces, and the fragments that the message must contain, separated by " | ".
"""

import contextlib
import json
import os
import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import posenc
from conftest import names

# Two mistakes in the keywords of a convention, which are tested with every function in CALLS; for the others, see Encoding
CONVENTION = """
theta=500                                   'theta' | did you mean 'base'?
base=0                                      base is 0 | a positive number
"""
CALLS = {
    "encode": "posenc.encode(12, 64, {})",
    "add_to": "posenc.add_to(x, {})",
    "stream": "posenc.stream(12, 64, {})",
    "preset": "posenc.preset('vaswani', 64, {})",
    "grid": "posenc.grid((3, 4), 128, {})",
    "points": "posenc.points(np.zeros((5, 2)), 128, {})",
    "torch.encode": "posenc.torch.encode(12, 64, {})",
    "torch.add_to": "posenc.torch.add_to(t, {})",
    "torch.PositionalEncoding": "posenc.torch.PositionalEncoding(64, {})",
    "torch.PositionalTable": "posenc.torch.PositionalTable(64, {})",
    "torch.ChunkDataset": "posenc.torch.ChunkDataset(12, 64, {})",
    "dask.table": "posenc.dask.table(12, 64, {})",
    "dask.add_to": "posenc.dask.add_to(lazy, {})",
    "dask.to_zarr": "posenc.dask.to_zarr('pe.zarr', 12, 64, {})",
}
MISTAKES = {
    "encode": """
posenc.encode(12, "whisper")                            d_model is 'whisper' | an Encoding such as posenc.preset('whisper'
posenc.encode(12, "no model")                           d_model is 'no model' of type str | an integer or an Encoding
posenc.encode(enc, 12)                                  positions is Encoding(64) | pass an Encoding as d_model or encoding
posenc.encode(12.0, 64)                                 positions is 12.0 of type float | a range or an array such as [12.0]
posenc.encode("12", 64)                                 positions is '12' of type str | an integer, a range or an array
posenc.encode(-1, 64)                                   positions is -1 | at least 0
posenc.encode(None, 64)                                 positions is None | an integer, a range or an array
posenc.encode([1, None], 64)                            positions has 1 null | fill or drop it
posenc.encode(["1", "2"], 64)                           positions has dtype <U1 | integers of at most 64 bits
posenc.encode([[0], [1, 2]], 64)                        positions is of type list | expected an array
posenc.encode([2**63], 64)                              positions has 9223372036854775808 | < 2**63
posenc.encode(range(2**63, 2**63 + 2), 64)              positions has 9223372036854775808 | < 2**63
posenc.encode([2**53 + 1, 0.5], 64)                     positions has 9007199254740993 beside real or negative numbers
posenc.encode(10**14, 64)                               positions needs an array of shape | too large; stream yields chunks
posenc.encode(np.array([1, 2], object), 64)             positions has dtype object | positions.astype("int64")
posenc.encode(torch.rand(3, requires_grad=True), 64)    positions | grad | posenc.torch
posenc.encode(12, 64.0)                                 d_model is 64.0 of type float | an integer
posenc.encode(12, -64)                                  d_model is -64 | at least 0
posenc.encode(12, x)                                    d_model is array | an integer
posenc.encode(12, 63, odd="error")                      d_model is 63 | an even number
posenc.encode(12, 64, dtype="bf16")                     dtype is 'bf16' | did you mean 'bfloat16'?
posenc.encode(12, 64, dtype="int8")                     dtype is 'int8' | float64, float32, float16 or bfloat16
posenc.encode(12, 64, out=[])                           out is of type list | a numpy.ndarray
posenc.encode(12, 64, out=t)                            out is of type Tensor | posenc.torch
posenc.encode(12, 64, dtype="f4", out=x.astype("f8"))   out has dtype float64, expected float32, the value of dtype
posenc.encode(12, 64, out=x.astype("u2"))               out has dtype uint16 | for the bits of bfloat16, pass dtype='bfloat16'
posenc.encode(12, 64, out=x.astype("i8"))               out has dtype int64, expected float64, float32, float16 or bfloat16
posenc.encode(12, 64, out=x.astype(">f4"))              out has dtype >f4, expected native byte order
posenc.encode(12, 64, out=x[:10])                       out has shape (10, 64), expected (12, 64)
posenc.encode(12, 64, out=np.zeros((64, 12), "f4").T)   out has strides | contiguous last dimension
posenc.encode(12, 64, threads=0)                        threads is 0 | at least 1
posenc.encode(12, 64, threads="all")                    threads is 'all' of type str | an integer
posenc.encode(12, enc, base=500)                        an Encoding and base | replace(base=...)
""",
    "add_to": """
posenc.add_to(x, enc)                                   positions is Encoding(64) | pass an Encoding as d_model or encoding
posenc.add_to(x, np.array(7))                           positions has shape () | all 12 rows of x
posenc.add_to(x, [7])                                   positions has shape (1,) | all 12 rows of x; for consecutive rows
posenc.add_to(x.tolist())                               x is of type list | a numpy.ndarray
posenc.add_to(lazy)                                     x is of type Array | a numpy.ndarray
posenc.add_to(np.zeros((12, 64), "int32"))              x has dtype int32 | float64, float32, float16 or bfloat16
posenc.add_to(np.zeros(64, "f4"))                       x has shape (64,) | (..., n, 64)
posenc.add_to(np.zeros((64, 12), "f4").T)               x has strides | contiguous last dimension
posenc.add_to(np.broadcast_to(x[0], (12, 64)))          x is read-only | writeable
posenc.add_to(x, 10)                                    positions has length 10, expected 12
posenc.add_to(x, np.arange(10))                         positions has shape (10,) | broadcasts to (12,)
posenc.add_to(x, "12")                                  positions is '12' of type str | an integer, a range or an array
posenc.add_to(x, [None] * 12)                           positions has 12 nulls | fill or drop them
posenc.add_to(x, encoding=64)                           encoding is 64 of type int | a posenc.Encoding
posenc.add_to(x, encoding=posenc.Encoding(32))          x has shape (12, 64) | (..., 32)
posenc.add_to(x, encoding=enc, base=500)                an Encoding and base | replace(base=...)
posenc.add_to(x, x_scale="8")                           x_scale is '8' of type str | a real number
posenc.add_to(x, x_scale=float("inf"))                  x_scale is inf | a finite number
posenc.add_to(x.astype("f2"), x_scale=1e6)              x_scale is 1000000.0 | the range of float16
posenc.add_to(x, threads=0)                             threads is 0 | at least 1
""",
    "stream": """
posenc.stream(12.0, 64)                                 positions is of type float | an integer, a range or None
posenc.stream(np.arange(12), 64)                        positions is of type ndarray | a range or None; encode takes arrays
posenc.stream("12", 64)                                 positions is of type str | an integer, a range or None
posenc.stream(-1, 64)                                   positions is -1 | at least 0
posenc.stream(range(2**63, 2**64), 64)                  positions has 9223372036854775808 | < 2**63
posenc.stream(12, 64, dtype="half precision")           dtype is 'half precision' | float64, float32, float16 or bfloat16
posenc.stream(12, 64, chunk_rows=0)                     chunk_rows is 0 | at least 1
posenc.stream(12, 64, out=x[:, :32])                    out has shape (12, 32) | (chunk_rows, 64)
posenc.stream(12, 64, out=x, chunk_rows=4)              chunk_rows is 4, expected 12
posenc.stream(12, 64, out=t)                            out is of type Tensor | posenc.torch
posenc.stream(12, 64, threads=-1)                       threads is -1 | at least 1
posenc.stream(12, enc, scale=2)                         an Encoding and scale | replace(scale=...)
""",
    "Encoding": """
posenc.Encoding(10**8)                                  d_model is 100000000 | at most 16777216
posenc.Encoding(64, shift=32)                           shift is 32.0 | other than 32
posenc.Encoding(64, frequencies=np.eye(2))              frequencies has shape (2, 2) | one dimension
posenc.Encoding(64, frequencies=[1, float("nan")])      frequencies has nan | finite numbers
posenc.Encoding(64, base=1 / 3 * 1j)                    base is | of type complex | a real number
enc.add_to(np.zeros((12, 32), "f4"))                    x has shape (12, 32) | (..., 64)
enc.add_to(t)                                           x is of type Tensor | posenc.torch
enc.replace(theta=500)                                  'theta' | did you mean 'base'?
enc.replace(base=0)                                     base is 0 | a positive number
enc.base = 500                                          'base'
posenc.Encoding.from_dict(64)                           document is 64 of type int | a dict
posenc.Encoding.from_dict({"d_model": 64})              document lacks convention | convention
posenc.Encoding.from_dict({"d_model": 64, "convention": {"theta": 5}})  convention has theta | base
posenc.Encoding(64, base="10000")                       base is '10000' of type str | a real number
posenc.Encoding(64, base=0)                             base is 0 | a positive number
posenc.Encoding(64, scale=None)                         scale is None | a real number
posenc.Encoding(64, layout="concat")                    layout is 'concat' | 'interleaved', 'halves'
posenc.Encoding(64, odd="pad")                          odd is 'pad' | 'truncate' | 'zero' | 'error'
posenc.Encoding(64, order="cosine")                     order is 'cosine' | 'sin', 'cos'
posenc.Encoding(64, spacing="linear")                   spacing is 'linear' | 'paper', 'endpoint'
posenc.Encoding(64, exponents="columns")                exponents is 'columns' | 'pair', 'column'
posenc.Encoding(64, spacing="endpoint", shift=1)        spacing | shift | only one of them
posenc.Encoding(64, frequencies=[1.0, 0.5])             frequencies has length 2, expected
posenc.Encoding(64, frequencies=[1.0] * 32, base=500)   frequencies and base | only one of them
posenc.Encoding(64, padding_idx=1.0)                    padding_idx is 1.0 of type float | an integer
posenc.Encoding(64, position_offset=2**63)              position_offset is 9.22337 | 2**63
""",
    "Rotary": """
posenc.Rotary(64, layout="neox")                        layout is 'neox' | did you mean 'halves'?
posenc.Rotary("64")                                     head_dim is '64' of type str | an integer
posenc.Rotary(2**25)                                    head_dim is 33554432 | at most 16777216
posenc.Rotary(64, base=0)                               base is 0 | a positive number
posenc.Rotary(64, base="10000")                         base is '10000' of type str | a real number
posenc.Rotary(64, scaling="yarn")                       scaling is 'yarn' of type str | a dict such as
posenc.Rotary.from_dict({"head_dim": 8})                document lacks rotary
posenc.Rotary.from_dict([8])                            document is [8] of type list | a dict
posenc.Rotary.preset("qwen2vl", 128)                    name is 'qwen2vl' | expected one of
posenc.Rotary.preset("qwen3-vl", 80)                    head_dim is 80 | a multiple of 32 for qwen3-vl
rotary.tables(12.0)                                     positions is 12.0 of type float | a range or an array
rotary.rotate(x, inverse=1)                             inverse is 1 of type int | a bool
rotary.rotate(x, [7])                                   positions has shape (1,) | all 12 rows of x; for consecutive rows
rotary.rotate(x, np.array(7))                           positions has shape () | all 12 rows of x
rotary.rotate(x, 10)                                    positions has length 10, expected 12
rotary.rotate(np.ones((2, 8, 3, 64), "f4"), [[4, 5, 6]] * 2)    positions has shape (2, 3) | positions[:, None]
rotary.rotate(x[:, :32])                                x has shape (12, 32) | (..., 64)
rotary.rotate(x.astype("f8"))                           x has dtype float64 | float32, float16 or bfloat16
rotary.rotate(t)                                        x is of type Tensor | posenc.torch
rotary.rotate(x, threads=0)                             threads is 0 | at least 1
""",
    "preset": """
posenc.preset("wisper", 64)                             name is 'wisper' | did you mean 'whisper'?
posenc.preset("vaswany", 64)                            name is 'vaswany' | vaswani
posenc.preset("Fairseq", 64)                            name is 'Fairseq' | fairseq
posenc.preset("whisper", "64")                          d_model is '64' of type str | an integer
posenc.preset("whisper", 63)                            d_model is 63 | an even number
posenc.preset("whisper", 64, max_timescale="1e4")       max_timescale is '1e4' of type str | a real number
""",
    "grid": """
posenc.grid(np.zeros((7, 7)), 64)                       shape is an array of shape (7, 7) | the size of each axis
posenc.grid((7, 7.0), 64)                               shape[1] is 7.0 of type float | an integer
posenc.grid((7, xy), 64)                                shape[1] has coordinates of shape (5, 2) | one dimension
posenc.grid("3x4", 128)                                 shape is '3x4' of type str | an integer
posenc.grid((), 128)                                    shape is empty | at least one axis
posenc.grid((3, dates), 128)                            datetime64[D] | .astype("int64")
posenc.grid((3, 4), 66)                                 d_model is 66 | a multiple of 4 | odd='zero'
posenc.grid((3, 4), 128.0)                              d_model is 128.0 of type float | an integer
posenc.grid((3, 4), 128, start=(0, 0, 0))               start has length 3, expected 2
posenc.grid((3, 4), 128, start="0")                     start is '0' of type str | a real number
posenc.grid((3, 4), 128, coordinates="normal")          coordinates is 'normal' | 'index', 'normalized', 'centered'
posenc.grid((3, 4), 128, coordinates=(0, 1, 2))         coordinates is (0, 1, 2) | (low, high)
posenc.grid((3, 4), 128, axes=(1, 2))                   axes is (1, 2) | each of (0, 1) once
posenc.grid((3, 4), 128, widths=(100, 30))              widths has sum 130, expected 128
posenc.grid((3, 4), 128, widths=(63, 65))               widths has 63 | even numbers
posenc.grid((3, 4), 128, group="axes")                  group is 'axes' | 'axis', 'function', 'frequency'
posenc.grid((3, 4), 128, extra_tokens=True)             extra_tokens is a bool | an integer
posenc.grid((3, 4), 128, channel_first="first")         channel_first is 'first' of type str | a bool
posenc.grid((3, 4), 128, temperature=20)                'temperature' | did you mean 'base'?
posenc.grid((3, 4), 128, base=[1e4] * 3)                base has length 3, expected 2
posenc.grid((3, 4), 128, dtype="bf16")                  dtype is 'bf16' | did you mean 'bfloat16'?
posenc.grid((3, 4), 128, out=x)                         out has shape (12, 64), expected (3, 4, 128)
""",
    "points": """
posenc.points(np.zeros(5), 64)                          d_model is 64 | a multiple of 10
posenc.points(3, 8)                                     coordinates has shape () | (..., axes)
posenc.points(None, 8)                                  coordinates is None | an array
posenc.points("xy", 8)                                  coordinates has dtype <U2 | integers of at most 64 bits
posenc.points(enc, xy)                                  coordinates has dtype object and contains Encoding(64) of type Encoding
posenc.points(np.zeros((5, 0)), 8)                      coordinates has shape (5, 0) | at least one axis
posenc.points([[True, False]], 8)                       coordinates has dtype bool | integers of at most 64 bits
posenc.points([[1j, 0]], 8)                             coordinates has dtype complex128 | integers of at most 64 bits
posenc.points([[0.0, 2.0**63]], 8)                      coordinates[..., 1] has 9.22 | < 2**63
posenc.points([[0, 2**62]], 8, position_offset=(0, 2.0**62))  coordinates[..., 1] has 4611686018427387904 with position_offset
posenc.points([[2**70, 0]], 8)                          coordinates has 1180591620717411303424 | < 2**63
posenc.points(np.zeros(5, "f4,f4"), 8)                  coordinates has dtype [('f0', '<f4'), ('f1', '<f4')]
posenc.points(pd.DataFrame({"x": [1, None]}, dtype="Int64"), 8)  coordinates has 1 null | fill or drop it
posenc.points(np.ma.array([[1, 2]], mask=[[0, 1]]), 8)  coordinates is of type MaskedArray | without a mask
posenc.points(xy, 6)                                    d_model is 6 | a multiple of 4 | odd='zero'
posenc.points(xy, [4, 4])                               d_model is [4, 4] of type list | an Encoding
posenc.points(xy, 10**9)                                d_model is 1000000000 | at most 16777216 columns for each axis
posenc.points(xy, [enc, 64])                            d_model is 64 of type int | an Encoding, as for the other axes
posenc.points(xy, [enc] * 3)                            d_model has length 3, expected 2
posenc.points(xy, posenc.Encoding(7))                   d_model has Encoding(7) | an even number of columns
posenc.points(xy, enc, base=500)                        an Encoding and base | only one of them
posenc.points(xy, enc, widths=(64, 64))                 an Encoding and widths | only one of them
posenc.points(xy, 8, axes=2)                            axes is 2 of type int | a sequence of integers, one for each axis
posenc.points(xy, 8, axes="xy")                         axes is 'xy' of type str | a sequence of integers
posenc.points(xy, 8, widths=4)                          widths is 4 of type int | a sequence of integers
posenc.points(xy, 8, widths=(4.0, 4.0))                 widths is 4.0 of type float | an integer
posenc.points(xy, 8, group=None)                        group is None | 'axis', 'function', 'frequency'
posenc.points(xy, 8, include_input=True)                include_input is True | 'first', 'last'
posenc.points(xy, 8, include_input="first")             d_model is 8 | 2 more than a multiple of 4
posenc.points(xy, 1, include_input="last")              d_model is 1 | at least 2
posenc.points(xy, 8, start=1)                           'start' | did you mean 'position_offset'?
posenc.points(xy, 8, dtype="int32")                     dtype is 'int32' | float64, float32, float16 or bfloat16
posenc.points(xy, 8, threads=0)                         threads is 0 | at least 1
posenc.points(xy, 8, out=t)                             out is of type Tensor | posenc.torch
""",
    "save": """
posenc.save("a", 12, enc)                               path is 'a' | a name with the suffix .npy, .safetensors, .zarr
posenc.save("s3://b/pe.npy", 12, enc)                   path is 's3://b/pe.npy', expected a local path; only a store | .zarr
posenc.save("a\\0.npy", 12, enc)                        path is 'a\\x00.npy', expected a path without a null character
posenc.save(x, 12, enc)                                 path is of type ndarray | a path such as 'pe.npy'
posenc.save(None, 12, enc)                              path is of type NoneType | a path such as
posenc.save(enc, 12, "a.npy")                           path is of type Encoding | a path such as
posenc.save("pe.npy", 12, enc)                          File exists | overwrite=True replaces it | 'pe.npy'
posenc.save("folder.npy", 12, enc, overwrite=True)      Is a directory | 'folder.npy'
posenc.save("none/a.npy", 12, enc)                      No such file or directory | create its folder first | 'none/a.npy'
posenc.save("a.npy", enc, 12)                           positions is of type Encoding | an integer or a range
posenc.save("a.npy", t, enc)                            positions is of type Tensor | a range; encode takes arrays
posenc.save("a.npy", [1, 2], enc)                       positions is of type list | a range; encode takes arrays
posenc.save("a.npy", None, enc)                         positions is of type NoneType | an integer or a range
posenc.save("a.npy", range(2**63 - 1, 2**63 + 1), enc)  positions has 9223372036854775808 | < 2**63
posenc.save("a.npy", 10**14, enc)                       25.6 PB needed | free | 'a.npy'
posenc.save("a.npy", 12, 64)                            encoding is 64 of type int | such as posenc.Encoding(64)
posenc.save("a.npy", 12, "whisper")                     encoding is 'whisper' of type str | posenc.preset('whisper', d_model)
posenc.save("a.npy", 12, enc.to_dict())                 encoding is { | of type dict | posenc.Encoding.from_dict(encoding)
posenc.save("a.npy", 12, None)                          encoding is None | a posenc.Encoding
posenc.save("a.npy", 12, x)                             encoding is array | of type ndarray | a posenc.Encoding
posenc.save("a.npy", 12, enc, dtype="int8")             dtype is 'int8' | float64, float32, float16 or bfloat16
posenc.save("a.npy", 12, enc, dtype=None)               dtype is None | float64, float32, float16 or bfloat16
posenc.save("a.npy", 12, enc, overwrite="w")            overwrite is 'w' of type str | a bool
posenc.save("a.npy", 12, enc, key="pe")                 key is 'pe', expected None, because key does not apply to 'a.npy'
posenc.save("a.safetensors", 12, enc, key=b"pe")        key is b'pe' of type bytes | a str
posenc.save("a.safetensors", 12, enc, key="__metadata__")  key is '__metadata__' | another name
posenc.save("a.safetensors", 12, enc, chunk_rows=2)     chunk_rows is 2, expected None, because chunk_rows does not apply to 'a.safetensors'
posenc.save("a.zarr", 12, enc, chunk_rows=0)            chunk_rows is 0 | at least 1
posenc.save("a.zarr", 12, enc, chunk_rows=(4, 64))      chunk_rows is (4, 64) of type tuple | an integer
posenc.save("a.npy", 12, enc, threads=0)                threads is 0 | at least 1
posenc.save("a.npy", 12, enc, progress=True)            progress is True of type bool | a function
""",
    "open": """
posenc.open(None)                                       path is of type NoneType | a path such as 'pe.npy'
posenc.open(3)                                          path is of type int | a path such as
posenc.open(["pe.npy"])                                 path is of type list | a path such as
posenc.open(posenc.open("pe.npy"))                      path is of type File | a path such as
posenc.open("none.npy")                                 No such file or directory | 'none.npy'
posenc.open("notes.txt")                                notes.txt: not a .npy file
posenc.open("pe.npz")                                   path is 'pe.npz' | .npy, .safetensors, .zarr; numpy.load reads .npz
posenc.open("x.pt")                                     path is 'x.pt' | .npy, .safetensors, .zarr; torch.load reads .pt
posenc.open("s3://b/pe.npy")                            path is 's3://b/pe.npy', expected a local path; only a store | .zarr
posenc.open("a\\0.npy")                                 path is 'a\\x00.npy', expected a path without a null character
posenc.open("int.npy")                                  int.npy: dtype int64 | float32, float64, float16 or uint16
posenc.open("line.npy")                                 line.npy: shape (4,), expected (positions, columns)
posenc.open("cube.npy")                                 cube.npy: shape (2, 3, 4), expected (positions, columns)
posenc.open("columns.npy")                              columns.npy: Fortran order, expected C order
posenc.open("half.npy")                                 half.npy: 160 bytes, expected 3200 for shape (12, 64)
posenc.open("pe.npy", key="pe")                         key is 'pe', expected None, because key does not apply to 'pe.npy'
posenc.open("pe.safetensors", key=0)                    key is 0 of type int | a str
posenc.open("pe.safetensors", key="pos")                no tensor 'pos', expected key to be one of: 'pe'
""",
    "verify": """
posenc.verify(None)                                     path is of type NoneType | a path such as 'pe.npy'
posenc.verify("none.npy")                               No such file or directory | 'none.npy'
posenc.verify("zeros.npy")  stores no encoding, and differs from Encoding(4) at position 0, column 1 | pass encoding=...
posenc.verify("pe.npy", encoding=64)                    encoding is 64 of type int | such as posenc.Encoding(64)
posenc.verify("pe.npy", encoding=posenc.Encoding(8))    encoding has d_model 8, expected 64, the number of columns of pe.npy
posenc.verify("pe.npy", encoding=enc.replace(base=9))   pe.npy: position 1, column 2: found | expected
posenc.verify("pe.npy", positions=4)                    positions has length 4, expected 12, the number of rows of pe.npy
posenc.verify("pe.npy", positions=np.arange(12))        positions is of type ndarray | an integer or a range
posenc.verify("pe.npy", enc)                            positions is of type Encoding | an integer or a range
posenc.verify("a\\0.npy")                               path is 'a\\x00.npy', expected a path without a null character
posenc.verify("pe.npy", positions=range(2**63 - 3, 2**63 + 9))  positions has 9223372036854775816 | < 2**63
posenc.verify("pe.npy", samples=0)                      samples is 0 | at least 1
posenc.verify("pe.npy", threads=1.5)                    threads is 1.5 of type float | an integer
posenc.verify("pe.npy", progress="bar")                 progress is 'bar' of type str | a function
""",
    "check.identify": """
posenc.check.identify(posenc.open("pe.npy"))                  table is of type File, expected an array
posenc.check.identify("table.npy")                            table is 'table.npy', expected an array | numpy.load
posenc.check.identify(x.tolist()[0])                          table has shape (64,) | (n, d_model)
posenc.check.identify(np.zeros((2, 3, 64)))                   table has shape (2, 3, 64) | (n, d_model)
posenc.check.identify(np.zeros((12, 64), int))                table has dtype int64 | float64, float32
posenc.check.identify(np.zeros((12, 64), complex))            table has dtype complex128 | float
posenc.check.identify(np.zeros((12, 64), bool))               table has dtype bool | float
posenc.check.identify(enc)                                    table has dtype object | float64, float32
posenc.check.identify(np.zeros((1, 2**17), "f4"))             table has 131072 columns | at most 65536
posenc.check.identify([["a", "b"]])                           table has dtype <U1 | float
posenc.check.identify(x, 10)                                  positions has shape (10,), expected (12,)
posenc.check.identify(x, 12.0)                                positions is 12.0 of type float
posenc.check.identify(x, range(2**63, 2**63 + 12))            positions has 9223372036854775808 | < 2**63
""",
    "check.identify_rotary": """
posenc.check.identify_rotary(None)                            rotation is None, expected an array
posenc.check.identify_rotary("tables.npy")                    rotation is 'tables.npy', expected an array
posenc.check.identify_rotary(posenc.Rotary)                   rotation is the class Rotary | tables, frequencies, a function
posenc.check.identify_rotary(len)                             rotation is a function | expect or head_dim
posenc.check.identify_rotary((x,))                            rotation is a tuple of length 1, expected the pair (cos, sin)
posenc.check.identify_rotary(np.zeros(0))                     rotation has shape (0,)
posenc.check.identify_rotary(np.zeros((2, 3, 4, 5)))          rotation has shape (2, 3, 4, 5), expected (n, 2 * pairs)
posenc.check.identify_rotary((x, x[:5]))                      sin has shape (5, 64) | the shape and dtype of cos, (12, 64)
posenc.check.identify_rotary((x, x.astype(int)))              sin has dtype int64, expected float64, float32
posenc.check.identify_rotary((x, x), positions=5)             positions has shape (5,), expected (12,)
posenc.check.identify_rotary((x, x), positions="a")           positions is 'a' of type str
posenc.check.identify_rotary((x, x), expect="llama")          expect is 'llama' of type str | a configuration from transformers
posenc.check.identify_rotary((x, x), expect=enc)              expect is Encoding(64 | a posenc.Rotary
""",
    "positions_from_mask": """
posenc.positions_from_mask([1, 1, 2])                   mask has 2 | 0 at padding and 1 at tokens
posenc.positions_from_mask([0.0, np.nan])               mask has nan | 0 at padding and 1 at tokens
posenc.positions_from_mask([0.0, -np.inf])              mask has -inf | 0 at padding and 1 at tokens
posenc.positions_from_mask([[0.0, -np.inf], [0, 0]])    mask has -inf | for an additive mask, pass mask == 0
posenc.positions_from_mask(np.zeros((2, 3), "f4"))      mask has dtype float32 and no 1 | for an additive mask, pass mask == 0
posenc.positions_from_mask(1)                           mask has shape () | (..., n)
posenc.positions_from_mask("110")                       mask | booleans or numbers
posenc.positions_from_mask(None)                        mask is None | an array
posenc.positions_from_mask([1j])                        mask has dtype complex128 | booleans or numbers
posenc.positions_from_mask([1, 0], padding_idx=None)    padding_idx is None | an integer
posenc.positions_from_mask([1, 0], padding_idx=2**63)   padding_idx is 9223372036854775808 | < 2**63
posenc.positions_from_mask([1, 0], start=1.0)           start has dtype float64 | integers
posenc.positions_from_mask([1, 0], start=[0, 1])        start has shape (2,) | broadcasts to ()
posenc.positions_from_mask([1, 0], start=2**63 - 1)     start has 9223372036854775807 | below 2**63
""",
    "positions_from_segments": """
posenc.positions_from_segments(1)                       segment_ids has shape () | (..., n)
posenc.positions_from_segments([0.0, 1.0])              segment_ids has dtype float64 | integers
posenc.positions_from_segments([True, False])           segment_ids has dtype bool | integers
posenc.positions_from_segments(["a", "b"])              segment_ids has dtype <U1 | integers
posenc.positions_from_segments([2**70])                 segment_ids has dtype object | integers
posenc.positions_from_segments([1, 2], padding_segment=0.0)  padding_segment is 0.0 of type float | an integer
posenc.positions_from_segments([1, 2], padding_idx=None)  padding_idx is None | an integer
posenc.positions_from_segments([1, 2], start=2**63)     start has 9223372036854775808 | < 2**63
""",
    "positions_from_lengths": """
posenc.positions_from_lengths(3)                        lengths has shape () | one dimension
posenc.positions_from_lengths([[3, 2]])                 lengths has shape (1, 2) | one dimension
posenc.positions_from_lengths([3.0, 2.0])               lengths has dtype float64 | integers
posenc.positions_from_lengths([3, -2])                  lengths has -2 | at least 0
posenc.positions_from_lengths([2**60, 2**60])           lengths add up to | less than 2**60
posenc.positions_from_lengths([2**63])                  lengths has 9223372036854775808 | < 2**63
posenc.positions_from_lengths(np.array([3], "m8[s]"))   lengths has dtype timedelta64[s] | .astype("int64")
posenc.positions_from_lengths([3, 2], start=0.0)        start has dtype float64 | integers
""",
    "torch.encode": """
posenc.torch.encode(12.0, 64)                           positions is 12.0 of type float
posenc.torch.encode(t.requires_grad_(), 64)             positions requires grad | positions.detach()
posenc.torch.encode(torch.zeros(3, dtype=torch.bool), 64)  positions has dtype torch.bool | integers or real numbers
posenc.torch.encode(torch.zeros(3, device="meta"), 64, device="cpu")  positions is on the meta device | with values
posenc.torch.encode(12, "64")                           d_model is '64' of type str | an integer
posenc.torch.encode(12, 64, dtype="float32")            dtype is 'float32' | did you mean torch.float32?
posenc.torch.encode(12, 64, dtype="bf16")               dtype is 'bf16' | did you mean torch.bfloat16?
posenc.torch.encode(12, 64, dtype=torch.int32)          dtype is torch.int32 | torch.float64, torch.float32
posenc.torch.encode(12, 64, dtype=None)                 dtype is None | torch.float64, torch.float32
posenc.torch.encode(12, 64, device="gpu")               device
posenc.torch.encode(12, 64, base=t.sum().requires_grad_())  base requires grad | a constant
posenc.torch.encode(12, enc, base=500)                  an Encoding and base | replace(base=...)
""",
    "torch.add_to": """
posenc.torch.add_to(t, torch.tensor([3]))               positions has shape (1,) | all 12 rows of x
posenc.torch.add_to(x)                                  x is of type ndarray | a torch.Tensor | posenc.add_to
posenc.torch.add_to([[0.0]])                            x is of type list | a torch.Tensor
posenc.torch.add_to(t.int())                            x has dtype torch.int32 | torch.float64, torch.float32
posenc.torch.add_to(t[0])                               x has shape (64,) | (..., n, d_model)
posenc.torch.add_to(t.T)                                x has strides | contiguous last dimension
posenc.torch.add_to(t.requires_grad_())                 x is a leaf that requires grad | x.clone() or torch.no_grad()
posenc.torch.add_to(t, torch.rand(12, requires_grad=True))  positions requires grad | positions.detach()
posenc.torch.add_to(t, encoding=64)                     encoding is 64 of type int | a posenc.Encoding
posenc.torch.add_to(t, encoding=posenc.Encoding(32))    x has shape (12, 64) | (..., 32)
posenc.torch.add_to(t, encoding=enc, base=500)          an Encoding and base | replace(base=...)
posenc.torch.add_to(t, x_scale="8")                     x_scale is '8' of type str | a real number
""",
    "torch.PositionalEncoding": """
posenc.torch.PositionalEncoding("whisper")              d_model is 'whisper' | an Encoding such as posenc.preset('whisper'
posenc.torch.PositionalEncoding("64")                   d_model is '64' of type str | an integer
posenc.torch.PositionalEncoding(64, 5000)               dropout is 5000 of type int | max_len=5000
posenc.torch.PositionalEncoding(64, dropout=-1)         dropout is -1.0 | from 0 to 1
posenc.torch.PositionalEncoding(64, dropout="0.1")      dropout is '0.1' of type str | a real number
posenc.torch.PositionalEncoding(64, max_len=5e3)        max_len is 5000.0 of type float | an integer
posenc.torch.PositionalEncoding(64, batch_first=1)      batch_first is 1 of type int | a bool
posenc.torch.PositionalEncoding(64, x_scale="8")        x_scale is '8' of type str | a real number
posenc.torch.PositionalEncoding(64, learned_scale=True)  learned_scale is True of type bool | a real number
posenc.torch.PositionalEncoding(64)(x)                  x is of type ndarray | a torch.Tensor
posenc.torch.PositionalEncoding(64)(torch.zeros(12, 32))  x has shape (12, 32) | (..., n, 64)
posenc.torch.PositionalEncoding(64)()                   x and max_len are None | a tensor or a length
posenc.torch.PositionalEncoding(64)(None)               x and max_len are None | a tensor or a length
posenc.torch.PositionalEncoding(64)(nested)             x is a nested tensor | .to_padded_tensor(0)
posenc.torch.rotate(nested, rotary=rotary)              x is a nested tensor | .to_padded_tensor(0)
posenc.torch.PositionalEncoding(64, 0.1, 5000)          d_model and dropout by position | pass 5000 as max_len=5000, and batch_first=False if
posenc.torch.PositionalEncoding(64)(t, start=0.0)       start is 0.0 of type float | an integer
posenc.torch.PositionalEncoding(64)(t, positions=5)     positions is of type int | a torch.Tensor
posenc.torch.PositionalEncoding(64, batch_first=False)(torch.zeros(12, 1, 64), positions=torch.tensor(5))  shape () | all 12 rows
posenc.torch.PositionalEncoding(64)(t, positions=torch.arange(5))  positions has shape (5,) | broadcasts to (12,)
""",
    "torch.PositionalTable": """
posenc.torch.PositionalTable(64, 10.0)                  max_sequence_length is 10.0 of type float | an integer
posenc.torch.PositionalTable(64)()                      x and max_sequence_length are None | a tensor or a length
posenc.torch.PositionalTable(64)(x)                     x is of type ndarray | a torch.Tensor
posenc.torch.PositionalTable(64)(t, start="1")          start is '1' of type str | an integer
posenc.torch.PositionalTable(64)(t, start=2**63)        start is 9223372036854775808 | < 2**63
posenc.torch.PositionalTable(64)(t, start=1, positions=torch.arange(12))  start is 1 | positions | only one of them
""",
    "torch.RotaryEmbedding": """
posenc.torch.RotaryEmbedding("model/config.json")       config is 'model/config.json' of type str | as json.load reads it
posenc.torch.RotaryEmbedding(model)                     of type SimpleNamespace | such as model.config
posenc.torch.RotaryEmbedding(64)                        config is 64 of type int | a configuration
posenc.torch.RotaryEmbedding(None)                      config is None | a configuration
posenc.torch.RotaryEmbedding(enc)                       config is Encoding(64) of type Encoding | a configuration
posenc.torch.RotaryEmbedding({"head_dim": 64})          config lacks rope_theta
posenc.torch.RotaryEmbedding({"rope_theta": 1e4})       config lacks head_dim, or hidden_size
posenc.torch.RotaryEmbedding(config | {"head_dim": 63})  head_dim is 63 | an even number
posenc.torch.RotaryEmbedding(config | {"head_dim": "64"})  head_dim is '64' of type str | an integer
posenc.torch.RotaryEmbedding(config | {"rope_scaling": "yarn"})  rope_scaling is 'yarn' of type str | a dict
posenc.torch.RotaryEmbedding(config | {"rope_scaling": {"type": "ntk"}})  scaling has rope_type 'ntk' | expected one of
posenc.torch.RotaryEmbedding(config | {"hidden_size": 512})(t[None], torch.zeros(1, 12))  x has shape (1, 12, 64) | (..., 512)
posenc.torch.RotaryEmbedding(config | {"hidden_size": 512})(t.expand(2, -1, -1), torch.zeros(1, 12))  x has shape (2, 12, 64)
posenc.torch.RotaryEmbedding(config, length=0)          length is 0 | at least 1
posenc.torch.RotaryEmbedding(config, max_len=0)         max_len is 0 | at least 1
posenc.torch.RotaryEmbedding(config, max_len=1e5)       max_len is 100000.0 of type float | an integer
posenc.torch.RotaryEmbedding(config, dtype="float32")   dtype is 'float32' | did you mean torch.float32?
posenc.torch.RotaryEmbedding(config, max_len=9)(t, torch.zeros(1, 12))  positions has dtype torch.float32 | integers, because max_len is given
posenc.torch.RotaryEmbedding(config, max_len=9)(t, torch.arange(12)[None])  positions has 11 | 0 <= position < 9, which is max_len
posenc.torch.RotaryEmbedding(rotary)(x, torch.zeros(1, 12))  x is of type ndarray | a torch.Tensor
posenc.torch.RotaryEmbedding(rotary)(t, range(12))      positions is of type range | a torch.Tensor
posenc.torch.RotaryEmbedding(rotary)(t.int(), torch.zeros(1, 12))  x has dtype torch.int32
posenc.torch.RotaryEmbedding(rotary)(t, torch.zeros(1, 12), "full")  layer_type is 'full' | None
posenc.torch.RotaryEmbedding(rotary).rotary("full")     layer_type is 'full' | None
""",
    "posenc": """
posenc.PositionalEncoding(64)                           did you mean posenc.torch.PositionalEncoding?
posenc.rotate(x)                                        no attribute 'rotate' | did you mean posenc.Rotary.rotate?
posenc.rotary(64)                                       no attribute 'rotary' | did you mean posenc.Rotary?
posenc.load("pe.npy")                                   no attribute 'load' | did you mean posenc.open?
posenc.encoding                                         no attribute 'encoding'
""",
    "torch.ChunkDataset": """
posenc.torch.ChunkDataset(12.0, 64)                     positions is of type float | an integer or a range
posenc.torch.ChunkDataset(12, "64")                     d_model is '64' of type str | an integer
posenc.torch.ChunkDataset(12, 64, chunk_rows=0)         chunk_rows is 0 | at least 1
posenc.torch.ChunkDataset(12, 64, dtype="float32")      dtype is 'float32' | did you mean torch.float32?
""",
    "dask.table": """
posenc.dask.table(12.0, 64)                             positions is 12.0 of type float
posenc.dask.table(lazy > 0, 64)                         positions has dtype bool | integers of at most 64 bits
posenc.dask.table(12, "64")                             d_model is '64' of type str | an integer
posenc.dask.table(12, 64, chunks=0)                     chunks is 0 | at least 1
posenc.dask.table(12, 64, chunks=(5, 5))                chunks
posenc.dask.table(12, 64, dtype="fp16")                 dtype is 'fp16' | did you mean 'float16'?
""",
    "dask.add_to": """
posenc.dask.add_to(x)                                   x is of type ndarray | a dask.array.Array
posenc.dask.add_to(lazy.astype("int32"))                x has dtype int32 | float64, float32, float16 or bfloat16
posenc.dask.add_to(lazy[0])                             x has shape (64,) | (..., n, 64)
posenc.dask.add_to(lazy[lazy[:, 0] > 0])                x has shape (nan, 64) | compute_chunk_sizes
posenc.dask.add_to(lazy, 10)                            positions has length 10, expected 12
posenc.dask.add_to(lazy, [7])                           positions has shape (1,) | all 12 rows
posenc.dask.add_to(lazy, np.arange(10))                 positions has shape (10,) | broadcasts to (12,)
posenc.dask.add_to(lazy, 12.0)                          positions is 12.0 of type float
posenc.dask.add_to(lazy, encoding=64)                   encoding is 64 of type int | a posenc.Encoding
""",
    "dask.to_zarr": """
posenc.dask.to_zarr(None, 12, 64)                       path is None | a path, a URL or a Zarr store
posenc.dask.to_zarr("pe.zarr", 12.0, 64)                positions is of type float | an integer or a range
posenc.dask.to_zarr("pe.zarr", 12, "64")                d_model is '64' of type str | an integer
posenc.dask.to_zarr("pe.zarr", 12, 64, chunks=(5, 7))   chunks is (5, 7) | equal chunks
posenc.dask.to_zarr("pe.zarr", 12, 64, dtype="bf16")    dtype is 'bf16' | did you mean 'bfloat16'?
posenc.dask.to_zarr("pe.zarr", 12, 64, overwrite=1)     overwrite is 1 of type int | a bool
""",
    "check.check_rotary": """
posenc.check.check_rotary(posenc.Rotary(64))            model is Rotary(64) of type Rotary, expected a torch.nn.Module
posenc.check.check_rotary(torch.nn.Linear)              model is <class | of type type, expected a torch.nn.Module
posenc.check.check_rotary(torch.nn.Linear(2, 2), "llama")  config is 'llama' of type str, expected a configuration from transformers
""",
}
PLOTS = """
posenc.plot.{}(64, 12)                                  encoding is 64 of type int | such as posenc.Encoding(64)
posenc.plot.{}(enc, 0)                                  positions | 0 x 64 values | from 1 to
posenc.plot.{}(enc, 12, ax=5)                           ax is 5 of type int | matplotlib.axes.Axes
"""
MISTAKES |= {f"plot.{name}": PLOTS.replace("{}", name) for name in ("heatmap", "similarity", "waves")}
MISTAKES["plot.heatmap"] += """\
posenc.plot.heatmap(enc, 12.0)                          positions is 12.0 of type float
posenc.plot.heatmap(enc, True)                          positions is True of type bool | an integer, a range or an array
posenc.plot.heatmap(enc, [[1, 2]])                      positions has shape (1, 2) | one dimension
posenc.plot.heatmap(enc, ["a"])                         positions has dtype <U1 | integers of at most 64 bits
"""
MISTAKES["plot.waves"] += """\
posenc.plot.waves(enc, 12, dimensions=4)                dimensions is 4 of type int | iterable
posenc.plot.waves(enc, 12, dimensions=[64])             dimensions has 64 | less than the number of columns, 64
posenc.plot.waves(enc, 12, dimensions=[0.5])            dimensions is 0.5 of type float | an integer
"""
ROTATIONS = """
posenc.torch.{}(x, rotary=rotary)                       x is of type ndarray | torch.Tensor; posenc.Rotary.rotate takes arrays
posenc.torch.{}(t)                                      rotary is None | a posenc.Rotary, unless positions is a posenc.RotaryAt
posenc.torch.{}(t, rotary.at(12), rotary=rotary)        rotary is Rotary(64), expected no rotary
posenc.torch.{}(t, rotary.at(12), inverse=True)         inverse is True, expected no inverse
posenc.torch.{}(t, rotary.at(10))                       positions has shape (10,) | (12
posenc.torch.{}(t, 10, rotary=rotary)                   positions has length 10, expected 12
posenc.torch.{}(t, torch.rand(12, requires_grad=True), rotary=rotary)  positions requires grad
"""
MISTAKES |= {f"torch.{name}": ROTATIONS.replace("{}", name) for name in ("rotate", "rotate_")}
MISTAKES["torch.rotate"] += """\
posenc.torch.rotate(t, rotary=config)                   rotary is {'head_dim': 64 | such as posenc.Rotary.from_config(config)
posenc.torch.rotate([[0.0]], rotary=rotary)            x is of type list | a torch.Tensor
posenc.torch.rotate(t.double(), rotary=rotary)         x has dtype torch.float64 | torch.float32, torch.float16
posenc.torch.rotate(t.int(), rotary=rotary)            x has dtype torch.int32 | torch.float32, torch.float16
posenc.torch.rotate(t[0], rotary=rotary)               x has shape (64,) | (..., n, 64)
posenc.torch.rotate(t[:, :32], rotary=rotary)          x has shape (12, 32) | (..., n, 64)
posenc.torch.rotate(t, rotary=64)                      rotary is 64 of type int | such as posenc.Rotary(64)
posenc.torch.rotate(t, rotary=enc)                     rotary is Encoding(64) of type Encoding | a posenc.Rotary
posenc.torch.rotate(t, rotary=None)                    rotary is None | a posenc.Rotary
posenc.torch.rotate(t, rotary=rotary, inverse=1)       inverse is 1 of type int | a bool
posenc.torch.rotate(t, torch.arange(10), rotary=rotary)     positions has shape (10,) | broadcasts to (12,)
posenc.torch.rotate(t, 12.0, rotary=rotary)            positions is 12.0 of type float
posenc.torch.rotate(t, rotary=posenc.Rotary(64, axes=[0, 1] * 16))  positions is None | (2, ...)
"""
PACKAGES = {"torch": "torch", "pd": "pandas", "pl": "polars", "da": "dask.array", "lazy": "dask.array", "t": "torch",
            "nested": "torch", "dask": "dask.array", "plot": "matplotlib", "to_zarr": "zarr"}


def rows():
    """Yield (function, call, fragments)."""
    for function, mistakes in MISTAKES.items():
        shared = CONVENTION if function in CALLS else ""
        for lines, call in ((mistakes, "{}"), (shared, CALLS.get(function))):
            for line in lines.strip().splitlines():
                argument, fragments = re.split(r" {2,}", line, maxsplit=1)
                yield function, call.replace("{}", argument), fragments.split(" | ")


ROWS = list(rows())
REFUSALS = (TypeError, ValueError, RuntimeError, MemoryError, AttributeError, OSError, UserWarning)


def write_files():
    """Create, in the current folder, the files that the calls of save, open and verify use."""
    arrays = {
        "pe": posenc.encode(12, 64), "int": np.zeros((3, 4), np.int64), "line": np.zeros(4), "cube": np.zeros((2, 3, 4)),
        "columns": np.zeros((3, 4), order="F"), "zeros": np.zeros((3, 4)),
    }
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    np.save("scaled.npy", 2 * arrays["pe"])
    np.savez("pe.npz", pe=arrays["pe"])
    posenc.save("pe.safetensors", 12, posenc.Encoding(64))
    Path("notes.txt").write_text("text")
    Path("empty.npy").touch()
    Path("half.npy").write_bytes(Path("pe.npy").read_bytes()[:160])
    Path("folder.npy").mkdir()


def scope_of(call):
    """Return the names that a call may use; skip the test if a package is not installed."""
    names = set(re.findall(r"\b[a-z_]+\b", re.sub(r'"[^"]*"', "", call)))
    modules = {name: pytest.importorskip(PACKAGES[name]) for name in PACKAGES if name in names}
    if "safetensors" in call:
        pytest.importorskip("safetensors")
    torch, da = modules.get("t") or modules.get("nested"), modules.get("lazy")
    return {
        "posenc": posenc, "np": np, "os": os, "json": json, **modules,
        "enc": posenc.Encoding(64), "rotary": posenc.Rotary(64), "config": {"head_dim": 64, "rope_theta": 5e5},
        "model": SimpleNamespace(config={"head_dim": 64, "rope_theta": 5e5}),
        "x": np.zeros((12, 64), np.float32), "xy": np.zeros((5, 2)),
        "dates": np.array(["2024-01-01"], "M8[D]"),
        "t": torch and torch.zeros(12, 64),
        "nested": torch and torch.nested.nested_tensor([torch.ones(2, 64)], layout=torch.jagged),
        "lazy": da is not None and da.zeros((12, 64), dtype="float32"),
    }


def message_of(call):
    """Return the message of the error that a call raises."""
    with pytest.raises(REFUSALS) as refused:
        exec(call, scope_of(call))
    return str(refused.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    with contextlib.chdir(folder):
        write_files()
    return folder


@pytest.mark.parametrize("call, fragments", [row[1:] for row in ROWS], ids=[row[1] for row in ROWS])
def test_messages_name_the_argument_and_the_remedy(call, fragments, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = names(folder)
    message = message_of(call)
    assert [fragment for fragment in fragments if fragment not in message] == [], message
    assert names(folder) == before


# the classes are result types
WITHOUT_ARGUMENTS = {
    "Chunk", "File", "Match", "Preset", "RotaryAt", "RotaryMatch", "RotaryReport", "RotaryRow", "presets", "show_runtime",
}

def test_every_function_has_mistakes():
    functions = {row[0] for row in ROWS}
    assert {name for name in posenc.__all__ if callable(getattr(posenc, name))} - functions <= WITHOUT_ARGUMENTS
    for module in ("torch", "dask", "plot"):
        if find_spec({"plot": "matplotlib"}.get(module, module)):
            names = set(getattr(posenc, module).__all__) - WITHOUT_ARGUMENTS
            assert {f"{module}.{name}" for name in names} <= functions
