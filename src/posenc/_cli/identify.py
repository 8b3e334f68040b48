"""``posenc identify``: names the convention of the table in a file."""

from __future__ import annotations

import argparse
import math
from typing import Any

import posenc
from posenc._cli.options import FAILED, OK, Parser, add_command, add_table, integer, positions_of, report, table_of
from posenc._encoding import changes_of
from posenc._identify import identify_file

EXAMPLES = """\
examples:
  posenc identify pe.npy
  posenc identify late.npy --start 1_700_000_000 --json
  posenc identify whisper.safetensors --key embed_positions.weight
"""


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "identify", "name the convention of the table in a file", EXAMPLES)
    add_table(parser)
    parser.add_argument("--start", type=integer, metavar="INT", help="position of the first row (by default searched)")
    parser.add_argument("--step", type=integer, metavar="INT", help="from one row to the next (default 1 with --start)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.step is not None and args.start is None:
        raise ValueError("--step is given, expected --start, too")
    with table_of(args) as table:
        positions = None if args.start is None else positions_of(args, table.shape[0])
        matches = identify_file(table, positions)
    document = {
        "path": args.file,
        "shape": list(table.shape),
        "dtype": table.dtype,
        "matches": [match_document(match) for match in matches],
        "version": posenc.__version__,
    }
    report(args, document, "\n".join(map(str, matches)) or "none")
    return OK if matches else FAILED


def match_document(match: posenc.Match) -> dict[str, Any]:
    """A match as JSON can hold it."""
    assert isinstance(match.positions, range)       # as they were given, or searched
    return {
        "presets": list(match.presets),
        "convention": changes_of(match.encoding),
        "start": match.positions.start,
        "step": match.positions.step,
        "difference": match.difference if math.isfinite(match.difference) else None,
        "reason": match.reason,
    }
