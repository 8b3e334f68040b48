"""The commands ``posenc identify`` and ``posenc check``, which use `posenc.check`."""

from __future__ import annotations

import argparse
import functools
import glob
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

import posenc.check
from posenc import Rotary
from posenc._arguments import checks
from posenc._arguments.arrays import DTYPES
from posenc._arguments.specification import changes_of
from posenc._cli import options
from posenc._files.functions import opened_table
from posenc._files.table import explaining, read_safetensors
from posenc.check.reading import array_of
from posenc.check.report import row_of, unchecked_row
from posenc.check.rotations import matched

NO_MATCH = ("no match: every row must match; positions must be along the first axis, and consecutive and "
            "near 0 unless they are given; grids, learned and transposed tables are not recognized")


def add_identify_options(parser: argparse.ArgumentParser) -> None:
    options.add_table(parser)
    options.add_range(parser, "default: find it", "default 1 with --start")


def identify(args: argparse.Namespace) -> int:
    """Name the convention of the table in a file.

    examples:
      posenc identify pe.npy
      posenc identify late.npy --start 1_700_000_000 --json
      posenc identify whisper.safetensors --key embed_positions.weight
    """
    if args.step is not None and args.start is None:
        raise ValueError("--step is given without --start, expected both")
    with opened_table(args.file, key=args.key) as table:
        positions = None if args.start is None else options.selected_positions(args, table.shape[0])
        rows = table.read(0, table.shape[0])
        values = rows if table.dtype == "bfloat16" else rows.view(table.dtype)
        matches = posenc.check.identify(values, positions)
    options.report(args, {
        "path": args.file, "shape": list(table.shape), "dtype": table.dtype,
        "matches": list(map(match_document, matches)),
    }, "\n".join(map(str, matches)) or NO_MATCH)
    return options.OK if matches else options.FAILED


def match_document(match: posenc.check.Match) -> dict[str, Any]:
    """Return a match as a dict for JSON."""
    assert isinstance(match.positions, range)       # both the options and a search yield a range
    start, step = match.positions.start, match.positions.step
    return {"convention": changes_of(match.encoding), "start": start, "step": step,
            "presets": list(match.presets), "difference": match.difference, "reason": match.reason}


def add_check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a model's config.json, or a folder with config.json and weights")
    parser.add_argument("--tables", metavar="FILE",
                        help="a file of weights, or a .npy file with [cos | sin] or frequencies")
    parser.add_argument("--key", metavar="NAME", action="append",
                        help="tensor in FILE; if given twice, first the cosines, then the sines")


def check(args: argparse.Namespace) -> int:
    """Compare the stored tables of rotary embeddings with a model's configuration.

    For a config.json without --tables, print the rotation that it describes.  Otherwise, compare the tables
    with this rotation; the exit code is 1 unless all of them are right or have float32 angles.

    examples:
      posenc check config.json
      posenc check config.json --tables model.safetensors
      posenc check config.json --tables tables.safetensors --key cos --key sin
      posenc check llama/ --json
    """
    if args.key and (not args.tables or len(args.key) > 2):
        raise ValueError(f"--key is given {len(args.key)} times, expected once or twice, with --tables")
    is_folder = os.path.isdir(args.path)
    path = os.path.join(args.path, "config.json") if is_folder else args.path
    expected = expected_rotations(path)
    files = [args.tables] if args.tables else weights_in(args.path)
    rows = [row for file in files for row in rows_of(file, args.key, expected)]
    if args.tables and not rows:
        hint = "no tensor has a name such as inv_freq or cos_cached; select one by --key"
        raise ValueError(f"{args.tables}: {hint}")
    if is_folder and not rows:
        reason = COMPUTED if files else f"the folder has no file such as {', '.join(WEIGHTS)}"
        rows = [unchecked_row(args.path, None, reason)]
    report = posenc.check.RotaryReport(rows)
    rotations = [{"layer_type": name, **rotary.to_dict()} for name, rotary in expected.items()]
    tables = [row_document(row) for row in report]
    document = {"path": path, "expected": rotations, "tables": tables, "ok": report.ok or not rows}
    lines = [f"{path}: {rotary}{f' for {name}' if name else ''}" for name, rotary in expected.items()]
    options.report(args, document, "\n".join([*lines, *([str(report)] if rows else [])]))
    return options.OK if document["ok"] else options.FAILED


def expected_rotations(path: str) -> dict[str | None, Rotary]:
    """Return the rotation of each layer type in a configuration, or raise a ValueError if there is none."""
    with explaining(f"{path}: expected a model's configuration, a JSON object"), open(path, "rb") as file:
        config = json.load(file)
        if not isinstance(config, dict):
            raise ValueError(f"not a {type(config).__name__}")
    with explaining(path):
        return {name: Rotary.from_config(config, name) for name in Rotary.layer_types(config)}


WEIGHTS = "*.safetensors", "pytorch_model*.bin", "*.pt", "*.pth"
COMPUTED = "the files have no tables, as the model computes them; use posenc.check.check_rotary(model)"


def weights_in(folder: str) -> list[str]:
    """Return the files with weights in a folder, those of the first kind that it has."""
    kinds = (sorted(glob.glob(os.path.join(glob.escape(folder), pattern))) for pattern in WEIGHTS)
    return next(filter(None, kinds), [])


def rows_of(
    path: str, keys: list[str] | None, expected: Mapping[str | None, Rotary]
) -> Iterator[posenc.check.RotaryRow]:
    """Yield a row for each table in a file; tables with the same values share a row."""
    tables: dict[bytes, tuple[tuple[Any, ...], list[str]]] = {}
    for name, arrays in tables_in(path, keys):
        content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        tables.setdefault(content, (arrays, []))[1].append(name)
    for arrays, names in tables.values():
        label = f"{names[0]} and {len(names) - 1} more" if names[1:] else names[0]
        yield compared(label, arrays if len(arrays) == 2 else arrays[0], expected)


def compared(name: str, rotation: Any, expected: Mapping[str | None, Rotary]) -> posenc.check.RotaryRow:
    """Compare tables or frequencies with each expected rotation; return the row with the best agreement."""
    label = "tables" if isinstance(rotation, tuple) or np.ndim(rotation) > 1 else "frequencies"
    rows = []
    for rotary in expected.values():
        try:
            rows.append(row_of(name, matched(rotation, rotary.replace(axes=None)), rotary, label))
        except (TypeError, ValueError) as error:
            rows.append(unchecked_row(name, rotary, str(error)))
    return min(rows, key=lambda row: (row.verdict == "wrong", len(row.faults)))


def tables_in(path: str, keys: list[str] | None) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the name and the arrays of each table: frequencies, [cos | sin], or both cosines and sines."""
    if path.endswith(".npy"):
        if keys:
            raise ValueError(f"--key does not apply to {path}")
        with explaining(path):
            yield os.path.basename(path), (np.lib.format.open_memmap(path, mode="r"),)
        return
    tensors = tensors_in(path)
    if absent := {*(keys or ())} - tensors.keys():
        raise ValueError(f"{path}: no tensor {min(absent)!r}, expected one of: {', '.join(sorted(tensors))}")
    for names in (keys,) if keys else groups(tensors):
        with explaining(f"{path}: {names[0]}"):
            yield " and ".join(names), tuple(tensors[name]() for name in names)


# the dtypes of .safetensors files; complex numbers are cos + i sin
CODES = {**{row.safetensors: row.stored for row in DTYPES.values()}, "C64": "<c8"}


def tensors_in(path: str) -> dict[str, Callable[[], Any]]:
    """Return a function for each tensor of a file, which reads it; bfloat16 is read as its bits, uint16."""
    if path.endswith((".bin", ".pt", ".pth")):
        return tensors_of_torch(path)
    with explaining(path), open(path, "rb") as file:
        entries, _, start = read_safetensors(file)

    def read(dtype: str, shape: list[int], data_offsets: list[int]) -> Any:
        if dtype not in CODES:
            raise ValueError(f"dtype {dtype}, expected {', '.join(CODES)}")
        return np.fromfile(path, CODES[dtype], math.prod(shape), offset=start + data_offsets[0]).reshape(shape)

    return {name: functools.partial(read, **entry) for name, entry in entries.items()}


def tensors_of_torch(path: str) -> dict[str, Callable[[], Any]]:
    """Return the same for a file that torch.save wrote."""
    with checks.importing_for(path):
        import torch
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        call = "torch.load(weights_only=True, mmap=True)"
        raise ValueError(f"{path}: {call} raises {type(error).__name__}: {error}") from error
    parts, tensors = [("", state)], dict[str, Callable[[], Any]]()
    for prefix, part in parts:
        if isinstance(part, dict):
            parts += [(f"{prefix}.{name}".lstrip("."), value) for name, value in part.items()]
        elif isinstance(part, torch.Tensor):
            tensors[prefix] = functools.partial(lambda *tensor: array_of(*tensor)[0], prefix, part)
    return tensors


# names that projects give to the tables or frequencies of a rotation
NAMES = re.compile(r"(\w+_)?inv_freqs?|cos_sin_cache|freqs_cis|rope_cache"
                   r"|(cos|sin)(_cached|_cache|_table|_emb)?|freqs_(cos|sin)")


def groups(names: Collection[str]) -> Iterator[list[str]]:
    """Yield the name of each rotary table, or both names if cosines and sines are separate tensors."""
    for name in names:
        module, dot, buffer = name.rpartition(".")
        if not NAMES.fullmatch(buffer) or buffer.startswith("original_"):
            continue
        sines, cosines = (module + dot + buffer.replace(*words) for words in (("cos", "sin"), ("sin", "cos")))
        if "cos" in buffer and "sin" not in buffer and sines in names:
            yield [name, sines]
        elif "sin" not in buffer or "cos" in buffer or cosines not in names:
            yield [name]


def row_document(row: posenc.check.RotaryRow) -> dict[str, Any]:
    """Return a row as a dict for JSON; `reason` states why a row was not checked."""
    faults, reason = ((), row.faults[0]) if row.verdict == "not checked" else (row.faults, "")
    errors = {str(position): error for position, error in row.errors.items()}
    document = row._asdict() | {"faults": faults, "reason": reason, "errors": errors}
    return {key: value.to_dict() if isinstance(value, Rotary) else value for key, value in document.items()}
