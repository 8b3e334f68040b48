"""``posenc info``: prints what is installed and what runs."""

from __future__ import annotations

import argparse

import posenc
from posenc._cli.options import OK, Parser, add_command, report

EXAMPLES = """\
examples:
  posenc info
  posenc info --json
"""


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "info", "print what is installed and what runs", EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    runtime = posenc.show_runtime()
    width = max(map(len, runtime))
    report(args, runtime, "\n".join(f"{name:{width}}  {in_words(value)}" for name, value in runtime.items()))
    return OK


def in_words(value: object) -> object:
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else value
