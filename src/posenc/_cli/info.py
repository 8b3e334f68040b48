"""``posenc info``: print the versions, kernels and threads in use."""

from __future__ import annotations

import argparse
from typing import Any

import posenc
from posenc._cli import options

EXAMPLES = "examples:\n  posenc info\n  posenc info --json"
OPENMP = {              # date of the specification (the value of the macro _OPENMP): version
    0: "none, so every call uses one thread", 200203: "2.0", 200805: "3.0", 201107: "3.1", 201307: "4.0", 201511: "4.5",
    201811: "5.0", 202011: "5.1", 202111: "5.2", 202411: "6.0",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    options.add_command(commands, "info", "print the versions, kernels and threads in use", EXAMPLES, run)


def run(args: argparse.Namespace) -> int:
    runtime = posenc.show_runtime()
    options.report(args, runtime, "\n".join(f"{name:18}{text}" for name, text in in_words(runtime).items()))
    return options.OK


def in_words(runtime: dict[str, Any]) -> dict[str, object]:
    """Return {name: text} for the lines to print."""
    current = runtime["instruction_set"]
    not_used = [
        name if usable else f"{name} (not supported here)"
        for name, usable in runtime["instruction_sets"].items() if name != current
    ]
    return {
        "posenc": runtime["version"],
        "instruction set": current,
        "also built": ", ".join(not_used) or "none",
        "OpenMP": OPENMP.get(runtime["openmp"], f"specification of {runtime['openmp']}"),
        "threads": runtime["threads"],
        "NumPy": runtime["numpy"],
        "Python": runtime["python"],
        "machine": runtime["machine"],
    }
