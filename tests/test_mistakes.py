"""Wrong arguments of each public function: an error of a NumPy kind that names the argument, before anything
is written.

The test enumerates the signatures: every argument gets an object, None (unless it is the default), the values
in WRONG, and a misspelled name.
"""

import contextlib
import importlib
import inspect
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import Tensor
from keywords import INVALID

REFUSALS = (TypeError, ValueError, MemoryError, AttributeError)
CONFIG = {"head_dim": 64, "rope_theta": 5e5}
FUNCTIONS = {           # valid arguments of each function, as functions of the scope that `scope_of` returns
    "encode": "positions=12, d_model=64, out=x", "add_to": "x=x, positions=12",
    "stream": "positions=12, d_model=64, out=x", "Encoding": "d_model=64",
    "Encoding(64).encode": "positions=12, out=x", "Encoding(64).add_to": "x=x",
    "Encoding(64).stream": "positions=12", "Encoding(64).replace": "",
    "Encoding.from_dict": "document={'d_model': 64, 'convention': {}}",
    "Rotary": "head_dim=64",
    "Rotary(64).tables": "positions=12",
    "Rotary(64).rotate": "x=x",
    "Rotary(64).at": "positions=12",
    "Rotary(64).at(12).rotate": "x=x",
    "Rotary(64).at(12).tables": "",
    "check.identify": "table=enc.encode(12)",
    "check.identify_rotary": "rotation=rotary.tables(12)",
    "Rotary.preset": "name='pixtral', head_dim=64",
    "Rotary.from_config": "config=CONFIG",
    "preset": "name='whisper', d_model=64",
    "grid": "shape=(3, 4), d_model=64",
    "points": "coordinates=np.zeros((5, 2)), d_model=64",
    "save": "path='a.npy', positions=12, encoding=enc",
    "open": "path='pe.npy'",
    "verify": "path='pe.npy'",
    "positions_from_mask": "mask=[1, 0]",
    "positions_from_segments": "segment_ids=[1, 2]",
    "positions_from_lengths": "lengths=[3, 2]",
    "torch.encode": "positions=12, d_model=64",
    "torch.add_to": "x=t",
    "torch.rotate": "x=t, rotary=rotary",
    "torch.grid": "shape=(3, 4), d_model=64",
    "torch.points": "coordinates=np.zeros((5, 2)), d_model=64",
    "torch.positions_from_mask": "mask=[1, 0]",
    "torch.positions_from_lengths": "lengths=[3, 2]",
    "torch.PositionalEncoding": "d_model=64",
    "torch.PositionalTable": "d_model=64",
    "torch.RotaryEmbedding": "config=rotary",
    "torch.ChunkDataset": "positions=12, d_model=64",
    "dask.table": "positions=12, d_model=64",
    "plot.heatmap": "encoding=enc, positions=12",
    "plot.similarity": "encoding=enc, positions=12",
    "plot.waves": "encoding=enc, positions=12",
}


def readonly(array):
    array.flags.writeable = False
    return array


def strided(strides):
    return np.lib.stride_tricks.as_strided(np.zeros(12 * 64, F4), SHAPE, strides)


F4, SHAPE = np.float32, (12, 64)
MASKED, MASKED_PAIR = np.ma.array(64, mask=True), np.ma.array([1, 1], mask=[False, True])
ARRAYS = {
    TypeError: [
        np.zeros(SHAPE, np.int32), np.zeros(SHAPE, np.uint32), np.zeros(SHAPE, bool),
        np.zeros(SHAPE, np.complex64), np.zeros(SHAPE, object), np.zeros(SHAPE, "f4,f4"), [[0.0] * 64] * 12,
        memoryview(bytearray(4 * 12 * 64)), 0.0, np.ma.zeros(SHAPE, F4),
        np.zeros(SHAPE, F4).view(type("Sub", (np.ndarray,), {})), np.zeros(SHAPE, F4).view(np.matrix),
    ],
    ValueError: [
        np.zeros((), F4), readonly(np.zeros(SHAPE, F4)), np.zeros(SHAPE, np.dtype(F4).newbyteorder()),
        np.zeros(4 * 12 * 64 + 1, np.uint8)[1:].view(F4).reshape(SHAPE),           # misaligned
        # not contiguous in the last dimension
        np.zeros(SHAPE, F4, order="F"), np.zeros((12, 128), F4)[:, ::2], np.zeros(SHAPE, F4)[:, ::-1],
        strided((0, 0)),
        # overlapping rows
        strided((0, 4)), strided((128, 4)), strided((128, 4))[::-1],
    ],
}
WRONG = {               # wrong values of each argument, some by the kind of the error
    "positions": {
        TypeError: [
            3.0, "3", b"3", True, np.bool_(True), np.float64(3), 1j, {}, np.array([True, False]),
            np.array(["a"]), np.array([b"a"]), np.array([1j]), np.array([object()]), np.array([1, 2], object),
            np.array(3, object), np.array(["2020-01-01"], "M8[ns]"), np.array([1], "m8[s]"),
            np.array([(1, 2)], "i4,i4"), np.ma.array([1, 2], mask=[True, False]),
            np.zeros(2, ml_dtypes.float8_e4m3fn), np.array([1.0], np.longdouble), [MASKED], [[MASKED, 1]],
            [MASKED_PAIR], np.zeros(2, ml_dtypes.float8_e5m2), [True, 2], [(2.5, np.bool_(True))], [[2], np.array([True])],
        ],
        ValueError: [
            [0.5, 10**400], [1, 2**70], [10**5000],
            -1, np.int8(-1), 2**64, 2**70, np.array([None, 1]), [2**63], np.array([5, 2**63], np.uint64),
            [2**53 + 1, 0.5], [[0.5, np.inf], [-1, np.int64(2**62 + 1)]],
            [np.uint64(2**62 + 1), np.int64(-1)], [np.array(2**53 + 1), np.array(0.5)],
            [[np.array(2**62 + 1, np.uint64), np.array(-1)]], [0.0, 2.0**63], np.array([0.0, 2.0**63]),
            [0.0, -1e300], range(2**63, 2**63 + 12), range(2**63 - 5, 2**63 + 5), range(2**64, 2**64 + 3),
            range(11, 11 + 2**70, 2**62), range(-(2**63) + 1, -(2**63) - 3, -1),
            range(-(2**63) - 5, -(2**63) + 5), range(10**5000, 10**5000 + 2), range(10**5000),
        ],
    },
    "d_model": {TypeError: [4.0, True, "4", [4], MASKED, Tensor("torch.bool", 1), Tensor("torch.int64", 4, ndim=1)],
                ValueError: [-1, 2**24 + 1, 2**40, 2**63, 2**70, 10**5000]},
    "dtype": {TypeError: ["int32", "float128", "half precision", "<0)", "complex64", object, 4, [], "f4,f4", 10**5000,
                         np.array([1, 2], object)], ValueError: [">f4"]},
    "out": ARRAYS | {ValueError: [*ARRAYS[ValueError], np.zeros((12, 65), F4), np.zeros(12 * 64, F4),
                                  np.zeros((4, 12, 64), F4)]},
    "x": ARRAYS | {ValueError: [*ARRAYS[ValueError], np.zeros(64, F4), np.broadcast_to(np.zeros(64, F4), SHAPE)]},
    "threads": {TypeError: [2.7, True, "2", Tensor("torch.bool", 1)], ValueError: [0, -1, -(2**70), -(10**5000)]},
    "chunk_rows": {TypeError: [2.0, True, "1", Tensor("torch.bool", 1)], ValueError: [0, -1]},
    "x_scale": {TypeError: ["2", True, Tensor("torch.bool", 1), np.ones(2), np.complex64(2 + 1j)],
                ValueError: [np.nan, np.inf, 10**400, 2**53 + 1]},
    "coordinates": [3, "xy", np.zeros((5, 0)), [[True, False]], [MASKED_PAIR], [[1j, 0]], [[0.0, 2.0**63]], [[2**70, 0]], (0, 1e308)],
    "shape": ["3x4", (), (7, 7.5), (-1, 2), (2**62,) * 32], "head_dim": ["64", 63, -2, 2**25],
    "encoding": [64, "whisper", {}], "name": ["wisper", 64], "mask": [[2, 0], "10", [[1, 0], [1]], [MASKED_PAIR]],
    "start": ["0", [0.5]], "lengths": [[-1], 3, [2**62, 2**62]], "segment_ids": [[0.5], 7],
    "padding_segment": [0.5], "path": [3, ["pe.npy"], "a\0.npy", ""], "overwrite": [1, "w"],
    "chunks": ["oops", -7, 0, {}.keys], "samples": [0, 2.5, "all"],
    "progress": [True, "bar"], "inverse": [1, "no"],
    "rotary_dim": [63, 66, 2.5],
    "scaling": ["yarn", {"rope_type": "ntk", "factor": 2}, {"factor": 2}], "axes": [[0, 2], "xy", [-1] * 32, range(10**30)],
    "widths": [(100, 30), 4, (4.0, 4.0)], "group": ["axes", None], "include_input": [True, "middle"],
    "extra_tokens": [True, -1, 10**400, 10**5000], "channel_first": ["first", 1], "dimensions": [[64], [0.5]],
    "length": [-1, 0.5],
    "shard_rows": [0, 1.5, 10],
    "dropout": [-0.1, 2.0, "0.1"], "max_len": [-1, 2.5, Tensor("torch.bool", 1)], "max_sequence_length": [2.5, Tensor("torch.bool", 1)], "config": ["meta-llama/Llama-3", {"head_dim": 64}, 3],
    "document": [64, {"d_model": 64}],
} | INVALID
ACCEPTED = {            # what a function accepts, or passes to another library that refuses it
    ("plot.heatmap", "ax"), ("plot.similarity", "ax"), ("plot.waves", "ax"), ("torch.RotaryEmbedding", "device"),
}


def scope_of(name):
    """Return the names that a call may use; skip the test if a package is not installed."""
    module = name.partition(".")[0]
    scope = {"posenc": posenc, "np": np, "enc": posenc.Encoding(64), "rotary": posenc.Rotary(64),
             "CONFIG": CONFIG, "x": np.full((12, 64), 7, np.float32)}
    if module == "torch":
        scope["t"] = pytest.importorskip("torch").full((12, 64), 7.0)
    if module in ("torch", "dask", "plot"):
        importlib.import_module(f"posenc.{module}")
    return scope


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    posenc.save("pe.npy", 12, posenc.Encoding(64))
    return tmp_path


def refused(name, changes, named="", kind=REFUSALS):
    """Return the problem with a call that must be refused with an error of this kind, or None."""
    scope = scope_of(name)
    function = eval(f"posenc.{name}", scope)
    arguments = eval(f"dict({FUNCTIONS[name]})", scope)
    arrays = [array for array in (scope["x"], *changes.values()) if isinstance(array, np.ndarray)]
    before = sorted(Path().rglob("*")), [array.tobytes() for array in arrays]
    try:
        function(**{**arguments, **changes})
    except REFUSALS as error:
        if named not in str(error) or not isinstance(error, kind):
            return f"{changes}: {error!r}"
    else:
        return f"{changes} is accepted"
    unchanged = before == (sorted(Path().rglob("*")), [array.tobytes() for array in arrays]) and bool(np.all(np.asarray(scope.get("t", 7)) == 7))
    return None if unchanged else f"{changes}: written"


def cases_of(name, keyword, values):
    """Yield wrong values and the kind of the error.

    Functions that take only ranges refuse arrays by their type.
    """
    loose = name.startswith(("torch", "dask", "check", "save", "verify")) or keyword == "positions" and "stream" in name
    for kind, group in values.items() if isinstance(values, dict) else [(REFUSALS, values)]:
        yield from ((value, REFUSALS if loose else kind) for value in group)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_arguments_are_refused_before_anything_is_written(name, folder):
    scope = scope_of(name)
    function = eval(f"posenc.{name}", scope)
    eval(f"dict({FUNCTIONS[name]})", scope)
    problems = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            cases = {"theta": [5], "bse": [5]}
            if parameter.name == "convention":
                cases |= INVALID
            takes = [posenc.Encoding, posenc.Rotary][name.startswith("Rotary")]
            cases = {k: v for k, v in cases.items()
                     if k in ("theta", "bse") or k in inspect.signature(takes).parameters}
        elif (name, parameter.name) in ACCEPTED or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        else:
            takes_none = parameter.default is None or name.endswith("stream") or parameter.name == "samples" or (
                name.startswith("dask") and parameter.name == "dtype"
            )
            none = [] if takes_none else [None]
            problems += [refused(name, {parameter.name: value}, parameter.name[:4])
                         for value in (object(), *none)]
            cases = {parameter.name: WRONG.get(parameter.name, []), f"{parameter.name}x": [1]}
        for keyword, values in cases.items():
            for value, kind in cases_of(name, keyword, values):
                problems.append(refused(name, {keyword: value}, keyword.partition("_")[0][:4], kind))
    assert [problem for problem in problems if problem] == []


def test_every_function_is_tried():
    tried = {name.partition("(")[0] for name in FUNCTIONS}
    results = {"Chunk", "File", "Preset", "RotaryAt"}
    assert set(posenc.__all__) - tried - results <= {"presets", "show_runtime"}
    for module in ("torch", "dask", "plot"):
        with contextlib.suppress(ImportError):
            names = set(importlib.import_module(f"posenc.{module}").__all__)
            assert {f"{module}.{name}" for name in names} - tried <= {"torch.rotate_"}


@pytest.mark.parametrize("call", [
    "encode(12, 64, theta=5)", "grid((3, 4), 64, theta=20)", "Encoding(64).replace(theta=5)", "Rotary(8, theta=5)",
    "preset('vaswani', 64, theta=5)", "add_to(x, theta=0)", "Rotary.preset('pixtral', 64, theta=5)",
])
def test_an_unknown_keyword_is_refused_with_the_valid_ones(call):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'theta', called base in posenc; .* takes .*base, "):
        eval(f"posenc.{call}", scope_of(""))


@pytest.mark.parametrize("call", ["encode(12, dim=64)", "Encoding(d=64)", "Rotary(dim=64)"])
def test_the_width_has_another_name(call):
    with pytest.raises(TypeError, match=r"argument 'd(im)?', called d_model or head_dim in posenc; "):
        eval(f"posenc.{call}", scope_of(""))


def test_add_to_takes_no_d_model():
    with pytest.raises(TypeError, match=r"argument 'd_model'; .* takes base, "):
        posenc.add_to(np.ones((2, 8)), d_model=8)
