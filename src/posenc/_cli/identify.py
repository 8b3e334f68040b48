"""Name the convention of the table in a file.

examples:
  posenc identify pe.npy
  posenc identify late.npy --start 1_700_000_000 --json
  posenc identify whisper.safetensors --key embed_positions.weight
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from posenc._cli import options
from posenc.check import Match, identify
from posenc.check.conventions import changes_of

NO_MATCH = (
    "no match: only sinusoidal tables with positions along the first axis are recognized; "
    "grids, learned tables and transposed tables are not"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    options.add_table(parser)
    parser.add_argument("--start", type=options.integer, metavar="INT", help="position of the first row (default: find it)")
    parser.add_argument("--step", type=options.integer, metavar="INT", help="step between positions (default 1 with --start)")


def run(args: argparse.Namespace) -> int:
    if args.step is not None and args.start is None:
        raise ValueError("--step is given without --start, expected both")
    with options.table_of(args) as table:
        positions = None if args.start is None else options.positions_of(args, table.shape[0])
        rows = table.read(0, table.shape[0])
        matches = identify(rows if table.dtype == "bfloat16" else rows.view(table.dtype), positions, nearest=True)
    near_matches = [match for match in matches if match.reason.startswith("no match")]
    matches = [] if near_matches else matches
    document = {"path": args.file, "shape": list(table.shape), "dtype": table.dtype}
    document |= {"matches": list(map(match_document, matches)), "nearest": list(map(match_document, near_matches))}
    text = "\n".join(map(str, matches)) if matches else "\n".join([NO_MATCH, *(f"nearest: {match}" for match in near_matches)])
    options.report(args, document, text)
    return options.OK if matches else options.FAILED


def match_document(match: Match) -> dict[str, Any]:
    """Return a match as a dict for JSON."""
    assert isinstance(match.positions, range)       # both the options and a search yield a range
    difference = match.difference if math.isfinite(match.difference) else None
    return {"convention": changes_of(match.encoding), "start": match.positions.start, "step": match.positions.step,
            "presets": list(match.presets), "difference": difference, "reason": match.reason}
