"""Print the versions, kernels and threads in use.

examples:
  posenc info
  posenc info --json
"""

from __future__ import annotations

import argparse

import posenc
from posenc._cli import options


def run(args: argparse.Namespace) -> int:
    runtime = posenc.show_runtime()
    supported = {True: "", False: " (not supported here)"}
    names = [f"{name}{supported[usable]}" for name, usable in runtime["instruction_sets"].items()]
    lines = runtime | {"instruction_sets": ", ".join(names), "openmp": runtime["openmp"] or "none: every call uses one thread"}
    options.report(args, runtime, "\n".join(f"{name.replace('_', ' '):18}{value}" for name, value in lines.items()))
    return options.OK
