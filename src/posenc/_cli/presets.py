"""``posenc presets``: list the conventions of known models."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import Any

import posenc
from posenc._cli import options

EXAMPLES = """\
examples:
  posenc presets
  posenc presets --json
  posenc generate 1500 384 -o whisper.npy --preset whisper
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    options.add_command(commands, "presets", "list the conventions of known models", EXAMPLES, run)


def run(args: argparse.Namespace) -> int:
    presets = [preset._asdict() | {"parameters": preset.parameters} for preset in posenc.presets()]
    for preset in presets:
        preset["d_model"] = "even" if preset.pop("convention")(8).get("odd") == "error" else "any"
    options.report(args, {"presets": presets}, in_words(presets))
    return options.OK


def in_words(presets: list[dict[str, Any]]) -> str:
    """Return a table of names, d_model and conventions, with the sources if they fit the width of the terminal."""
    rows = [("preset", "d_model", "convention", "source")]
    rows += [(p["name"], p["d_model"], p["summary"].replace(", even d_model only", ""), p["source"]) for p in presets]
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    width = shutil.get_terminal_size().columns
    columns = 4 if sum(widths) <= width else 3
    lines = ("".join(map(str.ljust, row, widths[:columns])).rstrip() for row in rows)
    wrapper = textwrap.TextWrapper(max(width, 60), subsequent_indent=" " * sum(widths[:2]))
    return "\n".join(map(wrapper.fill, lines))
