"""List the conventions of known models.

examples:
  posenc presets
  posenc presets --json
  posenc generate 1500 384 -o whisper.npy --preset whisper
"""

from __future__ import annotations

import argparse

import posenc
from posenc._cli import options


def run(args: argparse.Namespace) -> int:
    presets = [preset._asdict() | {"parameters": preset.parameters} for preset in posenc.presets()]
    lines = ["preset                d_model  convention"]
    for preset in presets:
        preset["d_model"] = "even" if preset.pop("convention")(8).get("odd") == "error" else "any"
        lines.append(f"{preset['name']:22}{preset['d_model']:9}{preset['summary'].replace(', even d_model only', '')}")
    options.report(args, {"presets": presets}, "\n".join(lines))
    return options.OK
