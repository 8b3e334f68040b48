"""Wrong arguments of each public function: an error of a NumPy kind that names the argument, before anything is written.

The test enumerates the signatures: every argument gets an object, None (unless it is the default), the values in WRONG, and a
misspelled name.
"""

import contextlib
import importlib.util
import inspect
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import posenc
from conftest import Tensor

REFUSALS = (TypeError, ValueError, MemoryError, AttributeError)
CONFIG = {"head_dim": 64, "rope_theta": 5e5}
FUNCTIONS = {           # valid arguments of each function, as functions of the scope that `scope_of` returns
    "encode": "positions=12, d_model=64, out=x",
    "add_to": "x=x, positions=12",
    "stream": "positions=12, d_model=64",
    "Encoding": "d_model=64",
    "Encoding(64).encode": "positions=12, out=x",
    "Encoding(64).add_to": "x=x",
    "Encoding(64).stream": "positions=12",
    "Encoding(64).replace": "",
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
    "torch.PositionalEncoding": "d_model=64",
    "torch.PositionalTable": "d_model=64",
    "torch.RotaryEmbedding": "config=rotary",
    "torch.ChunkDataset": "positions=12, d_model=64",
    "dask.table": "positions=12, d_model=64",
    "dask.to_zarr": "path='a.zarr', positions=12, d_model=64",
    "zarr.create": "store='a.zarr', positions=12, encoding=enc",
    "zarr.write": "store='parts.zarr', part=0, parts=1",
    "zarr.missing": "store='parts.zarr'",
    "zarr.finish": "store='parts.zarr'",
    "plot.heatmap": "encoding=enc, positions=12",
    "plot.similarity": "encoding=enc, positions=12",
    "plot.waves": "encoding=enc, positions=12",
}
WRONG = {
    "positions": ["12", 12.5, -1, range(2**63, 2**63 + 12), range(11, 11 + 2**70, 2**62), True],
    "coordinates": [3, "xy", np.zeros((5, 0)), [[True, False]], [[1j, 0]], [[0.0, 2.0**63]], [[2**70, 0]]],
    "shape": ["3x4", (), (7, 7.5), (-1, 2)], "d_model": ["64", 64.5, -64, True, 2**40], "head_dim": ["64", 63, -2, 2**25],
    "dtype": ["int8", "half precision", 5], "out": [[0.0], np.zeros((12, 64), "i8"), np.zeros((3, 5), "f4")],
    "threads": [0, "all", 1.5, True], "x": [[0.0], "x"], "x_scale": ["8", float("inf"), float("nan")],
    "chunk_rows": [0, 1.5, "4"], "encoding": [64, "whisper", {}], "name": ["wisper", 64], "mask": [[2, 0], "10", [[1, 0], [1]]],
    "padding_idx": [1.0, 2**63, -(2**63) - 1, 10**5000, True, [1], Tensor("torch.bool", 1)], "start": ["0", [0.5]], "lengths": [[-1], 3, [2**62, 2**62]], "segment_ids": [[0.5], 7],
    "padding_segment": [0.5], "path": [3, ["pe.npy"], "a\0.npy"], "overwrite": [1, "w"], "samples": [0, 2.5, "all"],
    "progress": [True, "bar"], "inverse": [1, "no"], "scale": ["2", None, float("nan")],
    "base": [0, -1.0, "10000", [10000], True, 1j, None, np.complex128(1 + 1j), np.array("100"), np.array("100", object), np.nan,
             np.array(True), np.timedelta64(5), np.datetime64(5, "s"), memoryview(b"100"), Tensor("torch.bool", 1), np.inf,
             Tensor("torch.complex64", 1), 10**400, 10**5000, 2**53 + 1, Fraction(1, 3), Decimal("0.1")],
    "layout": ["concat", 1], "order": ["tan"], "odd": ["pad"], "spacing": ["linear"], "exponents": ["columns"],
    "frequencies": [[1.0, float("nan")], np.eye(2), "1", ["a", "b"], [True], np.full(32, 1j), [1.0], [[1.0], [2.0, 3.0]],
                    np.ma.array([1, 2], mask=[True, False]), [2**53 + 1] * 32, [2**53 + 1] + [0.5] * 31], "shift": [32, "1"],
    "position_offset": [2.0**63, "1", np.array(2**53 + 1), np.int64(2**53 + 1), float("nan")],
    "position_scale": ["1", float("inf")], "frequency_scale": ["1", float("inf")], "rotary_dim": [63, 66, 2.5],
    "scaling": ["yarn", {"rope_type": "ntk", "factor": 2}, {"factor": 2}], "axes": [[0, 2], "xy", [-1] * 32],
    "widths": [(100, 30), 4, (4.0, 4.0)], "group": ["axes", None], "include_input": [True, "middle"],
    "extra_tokens": [True, -1], "channel_first": ["first", 1], "dimensions": [[64], [0.5]], "length": [-1, 0.5],
    "store": [3, ["pe.npy"]], "shard_rows": [0, 1.5, 10], "part": [-1, 1, 0.5], "parts": [0, -1, 1.5],
    "dropout": [-0.1, 2.0, "0.1"], "max_len": [-1, 2.5], "config": ["meta-llama/Llama-3", {"head_dim": 64}, 3],
    "document": [64, {"d_model": 64}],
}
ACCEPTED = {            # what a function accepts, or passes to another library that refuses it
    ("plot.heatmap", "ax"), ("plot.similarity", "ax"), ("plot.waves", "ax"), ("torch.RotaryEmbedding", "device"),
    ("dask.table", "chunks"), ("dask.to_zarr", "chunks"), ("open", "storage_options"), ("save", "storage_options"), ("verify", "storage_options"), ("dask.to_zarr", "storage_options"),
}


def scope_of(name):
    """Return the names that a call may use; skip the test if a package is not installed."""
    module = name.partition(".")[0]
    scope = {"posenc": posenc, "np": np, "enc": posenc.Encoding(64), "rotary": posenc.Rotary(64), "CONFIG": CONFIG,
             "x": np.full((12, 64), 7, np.float32)}
    if module == "torch":
        scope["t"] = pytest.importorskip("torch").full((12, 64), 7.0)
    if module in ("torch", "dask", "plot", "zarr"):
        importlib.import_module(f"posenc.{module}")
    return scope


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    posenc.save("pe.npy", 12, posenc.Encoding(64))
    if importlib.util.find_spec("zarr"):
        posenc.zarr.create("parts.zarr", 12, posenc.Encoding(64))
    return tmp_path


def refused(name, changes, named=""):
    """Return the problem with a call that must be refused, or None."""
    scope = scope_of(name)
    function = eval(f"posenc.{name}", scope)
    arguments = eval(f"dict({FUNCTIONS[name]})", scope)
    before = sorted(Path().rglob("*"))
    try:
        function(**{**arguments, **changes})
    except REFUSALS as error:
        if named not in str(error):
            return f"{changes}: {error}"
    else:
        return f"{changes} is accepted"
    written = [array for array in (scope["x"], scope.get("t")) if array is not None and not bool((array == 7).all())]
    return f"{changes}: written" if written or sorted(Path().rglob("*")) != before else None


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
                cases |= {keyword: WRONG[keyword] for keyword in ("base", "layout", "odd", "order", "frequencies")}
            takes = [posenc.Encoding, posenc.Rotary][name.startswith("Rotary")]
            cases = {k: v for k, v in cases.items() if k in ("theta", "bse") or k in inspect.signature(takes).parameters}
        elif (name, parameter.name) in ACCEPTED or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        else:
            takes_none = parameter.default is None or name.endswith("stream") or parameter.name == "samples" or (
                name.startswith("dask") and parameter.name == "dtype"
            )
            none = [] if takes_none else [None]
            cases = {parameter.name: [object(), *none, *WRONG.get(parameter.name, [])], f"{parameter.name}x": [1]}
        for keyword, values in cases.items():
            for value in values:
                problems += filter(None, [refused(name, {keyword: value}, keyword.partition("_")[0][:4])])
    assert problems == []


def test_every_function_is_tried():
    tried = {name.partition("(")[0] for name in FUNCTIONS}
    results = {"Chunk", "File", "Preset", "RotaryAt"}
    assert set(posenc.__all__) - tried - results <= {"presets", "show_runtime"}
    for module in ("torch", "dask", "plot", "zarr"):
        with contextlib.suppress(ImportError):
            names = set(importlib.import_module(f"posenc.{module}").__all__)
            assert {f"{module}.{name}" for name in names} - tried <= {"torch.rotate_", "dask.add_to"}


@pytest.mark.parametrize("call, keyword", [
    ("encode(12, 64, theta=5)", "'base'"), ("encode(12, 64, inv_freq=[1])", "'frequencies'"),
    ("grid((3, 4), 64, temperature=20)", "'base'"), ("points(np.zeros((5, 2)), 8, omega=0.3)", "'frequencies'"),
    ("preset('vaswani', 64, layuot='halves')", "'layout'"), ("add_to(x, padding=0)", "'padding_idx'"),
    ("Encoding(64).replace(theta=5)", "'base'"), ("Rotary.preset('pixtral', 64, rope_theta=5)", "'base'"),
    ("encode(12, 64, flip_sin_to_cos=True)", "'order'"), ("Encoding(8, theta=5)", "'base'"), ("Rotary(8, rope_theta=5)", "'base'"),
    ("Rotary(8, rope_scaling={})", "'scaling'"),
])
def test_other_names_of_keywords_lead_to_the_right_one(call, keyword):
    with pytest.raises(TypeError, match=f"did you mean {keyword}"):
        eval(f"posenc.{call}", scope_of(""))
