"""Gappa and Sollya prove the scripts of proofs/.

`tools/lint.sh` checks that their statements are in the sources.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "prove.py"
pytest.importorskip("pycparser")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not TOOL.exists(), reason="requires the source tree")]
needs_programs = pytest.mark.skipif(not (shutil.which("gappa") and shutil.which("sollya")),
                                    reason="requires gappa and sollya")


@pytest.fixture
def prove(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(TOOL.parent), str(TOOL.parents[1] / "proofs"), *sys.path])
    return __import__("prove")


@pytest.mark.parametrize("fused", [0, 1])
@pytest.mark.parametrize("operation", ["f64_muladd", "f64_mulsub"])
def test_a_product_plus_zero_is_rounded(prove, fused, operation):
    translator = prove.Translator(prove.Headers(prove.SOURCES), fused, "rounded")
    translator.run(f"y = {operation}(a, b, f64_set(0));")
    assert translator.definitions().startswith("y = rnd(")


@pytest.mark.parametrize("statement",
                         ["if (a < b) y = a;", "y = a > b ? a : b;", "y = a == b;", "if (!a) y = b;"])
def test_a_condition_on_a_real_number_is_refused(prove, statement):
    with pytest.raises(prove.ProofError, match="is not"):
        prove.Translator(prove.Headers(prove.SOURCES), 0, "rounded").run(statement)


@needs_programs
def test_contradictory_hypotheses_fail(prove, tmp_path):
    script = tmp_path / "x.g"
    for hypotheses, fails in (("x in [1,2] /\\ y in [5,6]", True), ("x in [1,2] /\\ y in [2,6]", False)):
        script.write_text(f"y = x + 1;\n{{ {hypotheses} -> y in [2,3] }}\n")
        script_of = prove.Script(script, prove.Headers(prove.SOURCES))
        assert script_of.failure() == "" and bool(script_of.contradiction()) == fails


def test_statements_are_taken_by_function_and_name(prove):
    headers = prove.Headers(prove.SOURCES)
    assert headers.statements("two_sum", "s").startswith("const vf64 s = f64_add(a, b), t =")
    assert headers.statements("direct_series", "loop:r").startswith("r = dd_fast_sum(")
    assert headers.statements("direct_double", "x..s").count(";\n") == 5
    with pytest.raises(prove.ProofError, match="two_sum assigns no z"):
        headers.statements("two_sum", "z")


@pytest.mark.parametrize("file, old, new, names", [
    ("direct.h", "vdd direct_series(", "vdd other(", {"series_dd.g", "series_dd_tail.g"}),
    ("digits.h", "#define DIGIT_ERROR", "#define OTHER", {"digits_double.g"}),
])
def test_the_check_lists_every_script_whose_statements_are_missing(prove, capsys, file, old, new, names):
    headers = prove.Headers(prove.SOURCES, (f"src/posenc/_core/c/table/{file}", old, new))
    assert prove.check(prove.scripts(["series_dd", "digits"]), headers)
    refused = {line.split(":")[0] for line in capsys.readouterr().err.splitlines() if ".g:" in line}
    assert refused == names


@needs_programs
def test_every_bound_is_proved():
    result = subprocess.run([sys.executable, TOOL], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    proofs = TOOL.parents[1] / "proofs"
    assert result.stdout.count(": proved") == len([*proofs.glob("*.g"), *proofs.glob("*.sollya")]) > 20


@needs_programs
def test_a_proof_fails_if_the_code_changes():
    command = [sys.executable, TOOL.with_name("faults.py"), "direct_double_phase"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "5 faults, 0 not found"), result.stdout
