"""Measure everything, and update the tables of the pages: ``python benchmarks [PART ...]``

The parts are performance, positions, accuracy and proofs.  Run it on an idle system with the final sources.
The proofs need gappa and sollya.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PARTS = ["performance", "positions", "accuracy", "proofs"]


def prove():
    import pages
    from common import save
    subprocess.run([HERE.parent / "tools/prove.py", "--write"], check=True)
    save("proofs", {"rows": json.loads((pages.DATA / "proofs.json").read_text(encoding="utf-8"))})
    pages.update()


parser = argparse.ArgumentParser("python benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("parts", nargs="*")
parts = parser.parse_args().parts or PARTS
if unknown := set(parts) - set(PARTS):
    parser.error(f"unknown parts: {', '.join(unknown)}")
for part in parts:
    print(part, flush=True)
    if part == "proofs":
        prove()
    else:
        subprocess.run([sys.executable, HERE / f"{part}.py"], check=True)
