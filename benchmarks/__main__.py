"""Measure everything, and update the tables of the pages: ``python benchmarks [PART ...]``

The parts are performance, positions and accuracy.  Run it on an idle system with the final sources.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PARTS = ["performance", "positions", "accuracy"]

formatter = argparse.RawDescriptionHelpFormatter
parser = argparse.ArgumentParser("python benchmarks", description=__doc__, formatter_class=formatter)
parser.add_argument("parts", nargs="*")
parts = parser.parse_args().parts or PARTS
if unknown := set(parts) - set(PARTS):
    parser.error(f"unknown parts: {', '.join(unknown)}")
for part in parts:
    print(part, flush=True)
    subprocess.run([sys.executable, HERE / f"{part}.py"], check=True)
