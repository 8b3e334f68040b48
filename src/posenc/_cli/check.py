"""Compare the stored tables of rotary embeddings with a model's configuration.

Without tables, print the rotation that the configuration describes.  With tables, compare the
tables with this rotation; the exit code is 1 if a table is wrong, or if none could be compared.

examples:
  posenc check config.json
  posenc check config.json --tables model.safetensors
  posenc check config.json --tables tables.safetensors --key cos --key sin
  posenc check --model llama --json
"""

from __future__ import annotations

import argparse
import glob
import json
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from posenc._cli import options
from posenc._rotary.rotary import Rotary
from posenc.check import RotaryReport, RotaryRow
from posenc.check.names import is_rotary
from posenc.check.report import compared


def add_options(parser: argparse.ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("config", metavar="CONFIG", nargs="?", help="a model's config.json")
    model.add_argument("--model", metavar="FOLDER", help="the folder of a checkpoint, with config.json and .safetensors files")
    parser.add_argument("--tables", metavar="FILE", help="a .safetensors file, or a .npy file with [cos | sin] or frequencies")
    parser.add_argument("--key", metavar="NAME", action="append",
                        help="tensor in FILE; if given twice, first the cosines, then the sines")


def run(args: argparse.Namespace) -> int:
    if args.model and args.tables:
        raise ValueError("--tables is given with --model, expected only one of them")
    if args.key and (not args.tables or len(args.key) > 2):
        raise ValueError(f"--key is given {len(args.key)} times, expected once or twice, with --tables")
    path = args.config or os.path.join(args.model, "config.json")
    expected = expected_rotations(path)
    files = [args.tables] if args.tables else sorted(glob.glob(os.path.join(glob.escape(args.model or ""), "*.safetensors")))
    rows: list[RotaryRow] = []
    for file in files if args.tables or args.model else ():
        rows += rows_of(file, args.key, expected)
    if args.tables and not rows:
        raise options.Failure(f"{args.tables}: no tensor has a name such as inv_freq or cos_cached; select a tensor with --key")
    report = RotaryReport(rows)
    document = {
        "path": path, "expected": [{"layer_type": name, **rotary.to_dict()} for name, rotary in expected.items()],
        "tables": [row_document(row) for row in report], "ok": report.ok or not rows,
    }
    lines = [f"{path}: {rotary}{f' for {name}' if name else ''}" for name, rotary in expected.items()]
    if args.model and not rows:
        lines.append(f"{args.model}: no stored rotary tables, because the model computes them")
    options.report(args, document, "\n".join([*lines, *([str(report)] if rows else [])]))
    return options.OK if document["ok"] else options.FAILED


def expected_rotations(path: str) -> dict[str | None, Rotary]:
    """Return the rotation of each layer type in a configuration; raise Failure if the configuration describes none."""
    description = "expected a model's configuration, a JSON object"
    try:
        with open(path, "rb") as file:
            config = json.load(file)
    except ValueError as error:
        raise options.Failure(f"{path}: CONFIG is not a JSON file, {description}: {error}") from error
    try:
        if not isinstance(config, dict):
            raise ValueError(f"CONFIG is a JSON {type(config).__name__}, {description}")
        part = config.get("text_config")
        if isinstance(part, dict) and not {"head_dim", "hidden_size"} & config.keys():
            config = part
        return {name: Rotary.from_config(config, name) for name in Rotary.layer_types(config)}
    except (TypeError, ValueError) as error:
        raise options.Failure(f"{path}: {error}") from error


def rows_of(path: str, keys: list[str] | None, expected: Mapping[str | None, Rotary]) -> Iterator[RotaryRow]:
    """Yield a row for each table in a file; tables with the same values share a row."""
    tables: dict[bytes, tuple[tuple[Any, ...], list[str]]] = {}
    for name, arrays in tables_in(path, keys):
        content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        tables.setdefault(content, (arrays, []))[1].append(name)
    for arrays, names in tables.values():
        label = f"{names[0]} and {len(names) - 1} more" if names[1:] else names[0]
        yield compared(label, arrays if len(arrays) == 2 else arrays[0], expected)


def tables_in(path: str, keys: list[str] | None) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the name and the arrays of each table: one array of frequencies or [cos | sin], or two of cosines and sines."""
    if path.endswith(".npy"):
        if keys:
            raise ValueError(f"--key does not apply to {path}")
        try:
            yield os.path.basename(path), (np.lib.format.open_memmap(path, mode="r"),)
        except ValueError as error:
            raise options.Failure(f"{path}: {error}") from error
        return
    from safetensors import SafetensorError, safe_open

    try:
        file: Any = safe_open(path, "np")
        tensors = file.offset_keys()
        for names in (keys,) if keys else groups(tensors):
            if absent_names := [name for name in names if name not in tensors]:
                raise options.Failure(f"{path}: no tensor {absent_names[0]!r}, expected one of: {', '.join(sorted(tensors))}")
            yield " and ".join(names), tuple(file.get_tensor(name) for name in names)
    except SafetensorError as error:
        raise options.Failure(f"{path}: not a .safetensors file: {error}") from error


def groups(names: Collection[str]) -> Iterator[list[str]]:
    """Yield the name of each rotary table, or both names if cosines and sines are separate tensors."""
    for name in names:
        module, dot, buffer = name.rpartition(".")
        if not is_rotary(buffer) or buffer.startswith("original_"):
            continue
        sines, cosines = (f"{module}{dot}{buffer.replace(*words)}" for words in (("cos", "sin"), ("sin", "cos")))
        if "cos" in buffer and "sin" not in buffer and sines in names:
            yield [name, sines]
        elif "sin" not in buffer or "cos" in buffer or cosines not in names:
            yield [name]


def row_document(row: RotaryRow) -> dict[str, Any]:
    """Return a row as a dict for JSON.  For a row that was not checked, `reason` states why, and `faults` is empty."""
    faults, reason = ((), row.faults[0]) if row.verdict == "not checked" else (row.faults, "")
    errors = {str(position): error for position, error in row.errors.items()}
    document = row._asdict() | {"faults": faults, "reason": reason, "errors": errors}
    return {key: value.to_dict() if isinstance(value, Rotary) else value for key, value in document.items()}
