"""Measure everything, and update the tables of the pages: ``python benchmarks [performance | accuracy | proofs ...]``

Run it on an idle system with the final sources: about four minutes without the proofs, which need gappa and
sollya.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PARTS = ["performance", "accuracy", "proofs"]


def prove():
    import pages
    from common import save
    subprocess.run([HERE.parent / "tools/prove.py", "--write"], check=True)
    save("proofs", {"rows": json.loads((pages.DATA / "proofs.json").read_text(encoding="utf-8"))})
    pages.update()


for part in sys.argv[1:] or PARTS:
    print(part, flush=True)
    if part == "proofs":
        prove()
    else:
        subprocess.run([sys.executable, HERE / f"{part}.py"], check=True)
