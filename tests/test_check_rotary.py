"""check_rotary: it names the faults of known projects, raises no false alarm, and changes nothing in the model."""

import re

import pytest

torch = pytest.importorskip("torch")
import rotary_faults  # noqa: E402
from posenc.torch import check_rotary  # noqa: E402
from rotary_faults import FAULTS, LLAMA3, RotaryEmbedding, model  # noqa: E402


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults_are_named(fault):
    report = check_rotary(fault.model())
    faults = "; ".join(sentence for row in report for sentence in row.faults)
    assert not report.ok and [row.verdict for row in report] == ["wrong"], str(report)
    for sentence in fault.sentences:
        assert re.search(sentence, faults), faults
