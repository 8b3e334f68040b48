"""``posenc info``: print the versions, kernels and threads in use."""

from __future__ import annotations

import argparse

import posenc
from posenc._cli import options

EXAMPLES = "examples:\n  posenc info\n  posenc info --json"


def add(commands: argparse._SubParsersAction[options.Parser]) -> None:
    options.add_command(commands, "info", "print the versions, kernels and threads in use", EXAMPLES, run)


def run(args: argparse.Namespace) -> int:
    runtime = posenc.show_runtime()
    width = max(map(len, runtime))
    options.report(args, runtime, "\n".join(f"{name:{width}}  {in_words(value)}" for name, value in runtime.items()))
    return options.OK


def in_words(value: object) -> object:
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else value
