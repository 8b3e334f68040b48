"""The scripts of proofs/ are about this code, and Gappa and Sollya prove them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "prove.py"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="requires the source tree")
needs_programs = pytest.mark.skipif(not (shutil.which("gappa") and shutil.which("sollya")), reason="requires gappa and sollya")


def run(*arguments):
    return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True)


def test_the_proofs_quote_the_headers():
    """If this fails, the code has changed: change the quotation in proofs/, and prove the bound again (tools/prove.py)."""
    result = run("--check")
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[0]) > 80


@pytest.mark.long
@needs_programs
def test_every_bound_is_proved():
    result = run("--fast")
    assert result.returncode == 0, result.stderr
    proofs = TOOL.parents[1] / "proofs"
    assert result.stdout.count(": proved") == len([*proofs.glob("*.g"), *proofs.glob("*.sollya")]) > 20


@pytest.mark.long
@needs_programs
def test_a_proof_fails_if_the_code_changes():
    result = run("--mutations", "direct_double_phase")
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("not proved") == 3 and result.stdout.endswith("0 changes still proved\n")
