"""check_rotary: it names the faults of known projects, raises no false alarm, and changes nothing in the model."""

import re
import types
from pathlib import Path

import pytest

import posenc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import rotary_faults  # noqa: E402
from posenc import Rotary  # noqa: E402
from posenc.check import RotaryReport, check_rotary  # noqa: E402
from posenc.check.report import GUIDE  # noqa: E402
from rotary_faults import BASE, CONFIG, DIM, FAULTS, RotaryEmbedding, model, pairs  # noqa: E402

EXACT, FLOAT32, WRONG, UNCHECKED = "right", "float32 angles", "wrong", "not checked"


def verdicts(report):
    return [row.verdict for row in report]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults_are_named(fault):
    report = check_rotary(fault.model())
    faults = "; ".join(sentence for row in report for sentence in row.faults)
    assert not report.ok and verdicts(report) == [WRONG], str(report)
    for sentence in fault.sentences:
        assert re.search(sentence, faults), faults
    assert re.search(r'see ".* \.\.\." in docs/check.md$', report[0].remedy)


def test_the_page_quotes_sentences_of_faults():
    page = Path(__file__).parents[1] / "docs" / "check.md"
    table = page.read_text().split("## What to do about a fault\n")[1].split("\n## ")[0]
    quoted = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][1:]
    patterns = [pattern for fault in FAULTS for pattern in fault.sentences]
    patterns += ["the result has its columns in another order", r"\d+ of 32 elements are not finite",
                 "a call with (a single row|positions up to)", "queries and keys of a call", "the heads",
                 "x with negative elements"]
    assert all(any(line.startswith(words) for line in quoted) for words in GUIDE)
    assert [sentence for sentence in quoted if not any(re.search(pattern, sentence) for pattern in patterns)] == []


# ---- the report ---------------------------------------------------------------------------------------------------------


def test_the_report_is_an_immutable_table():
    report = check_rotary(model(RotaryEmbedding(rotary_faults.frequencies(1e4)), pairs))
    row, = report
    assert report == RotaryReport([row]) and isinstance(report, tuple)
    assert row.found == Rotary(DIM, layout="interleaved") and row.expected == Rotary(DIM, base=BASE)
    assert row.errors.keys() == {1000, 100000, 1000000}
    compared, head, values, *details = str(report).splitlines()
    assert compared == "compared: queries and keys"
    assert head.split() == ["module", "verdict", "error", "at", "1,000", "100,000", "1,000,000"]
    assert values.startswith("layers.0 and 1 more  wrong")
    assert [line.split()[0] for line in details] == ["found", "expected", "fault", "fault", "remedy"]
    with pytest.raises(AttributeError):
        report.ok = True


def test_float32_angles_have_an_error_and_a_remedy():
    row, = check_rotary(model())
    assert row.verdict == FLOAT32 and row.faults == ()
    assert 1e-6 < row.errors[1000] < 1e-4 < row.errors[100000] < 0.02 < row.errors[1000000] < 0.1
    assert row.remedy == 'for long sequences: see "float32 angles" in docs/check.md'
    row, = check_rotary(model(posenc.torch.RotaryEmbedding(CONFIG)))
    assert row.verdict == EXACT and row.remedy == "" and max(row.errors.values()) < 1e-6


def test_reports_without_a_result_are_not_ok():
    row, = check_rotary(nn.Conv1d(2, 2, 1))
    assert row.verdict == UNCHECKED and "pass its arguments as inputs=" in row.faults[0]
    assert check_rotary(nn.Embedding(9, 2))[0].faults[0].startswith("no attention was found; pass a function")
    row, = check_rotary(model(), {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 1})
    assert row.verdict == UNCHECKED and "no rotary embeddings" in row.faults[0]
    part = model()
    del part.config
    assert check_rotary(part)[0].faults == ("no configuration was given; pass config=",)
    with torch.device("meta"):
        row, = check_rotary(model())
    assert row.verdict == UNCHECKED and "is on the meta device; load the weights" in row.faults[0]


@pytest.mark.parametrize("arguments, keywords, message", [
    ((None,), {}, "model is None of type NoneType, expected a torch.nn.Module"),
    ((nn.Linear(2, 2), 5), {}, "config is 5 of type int, expected a configuration"),
    ((nn.Linear(2, 2), "llama"), {}, "config is 'llama' of type str, expected a configuration"),
    ((nn.Linear(2, 2),), {"positions": [1, 2]}, "positions is given without inputs"),
])
def test_arguments_of_wrong_types_are_refused(arguments, keywords, message):
    with pytest.raises(TypeError, match=message):
        check_rotary(*arguments, **keywords)


# ---- configurations -----------------------------------------------------------------------------------------------------


def test_the_configuration_may_be_given():
    outer = {"model_type": "llava", "text_config": CONFIG}
    for config in (CONFIG, types.SimpleNamespace(**CONFIG), Rotary(DIM, base=BASE), outer):
        assert verdicts(check_rotary(model(), config)) == [FLOAT32]
    assert verdicts(check_rotary(model(), Rotary(DIM))) == [WRONG]


def test_the_rotation_of_each_layer_is_that_of_its_type():
    bases = {"full_attention": 1e6, "sliding_attention": 1e4}
    rope = {name: {"rope_type": "default", "rope_theta": base} for name, base in bases.items()}

    def report(*of_layers, types=("sliding_attention", "full_attention")):
        part = model(config=CONFIG | {"layer_types": list(types), "rope_parameters": rope})
        for layer, base in zip(part.layers, of_layers, strict=True):
            layer.rotate = lambda q, k, *_, base=base: rotary_faults.halves(q, k, *tables(q, base))
        return check_rotary(part)

    def tables(q, base):
        return RotaryEmbedding(rotary_faults.frequencies(base))(q, at[0])

    at = []
    forward = rotary_faults.Model.forward
    rotary_faults.Model.forward = lambda self, ids, position_ids: at.__setitem__(slice(None), [position_ids]) or forward(
        self, ids, position_ids)
    rotary_faults.Model.forward.__signature__ = __import__("inspect").signature(forward)
    try:
        assert verdicts(report(1e4, 1e6)) == [FLOAT32, FLOAT32]
        assert verdicts(report(1e6, 1e4)) == [WRONG, WRONG]
        assert verdicts(report(1e4, 5e5)) == [FLOAT32, WRONG]
    finally:
        rotary_faults.Model.forward = forward


# ---- nothing is changed -------------------------------------------------------------------------------------------------


class Counting(RotaryEmbedding):
    """A module that changes itself in each call, as those of dynamic scaling do."""

    def __init__(self):
        super().__init__()
        self.nested = {"list": [], "tensor": torch.zeros(1)}

    def forward(self, x, position_ids):
        self.calls = getattr(self, "calls", 0) + 1
        self.nested["list"].append(1)
        self.nested["tensor"] += 1
        self.inv_freq.mul_(1)
        torch.rand(3)
        return super().forward(x, position_ids)


def state(part):
    tensors = {name: (id(t), t._version, t.clone()) for name, t in (*part.named_parameters(), *part.named_buffers())}
    modules = [(module.training, repr(vars(module).keys())) for module in part.modules()]
    return {name: (a, b, c.tolist()) for name, (a, b, c) in tensors.items()}, modules


def test_nothing_in_the_model_is_changed():
    part = model(Counting()).train()
    before, seed = state(part), torch.get_rng_state()
    assert verdicts(check_rotary(part)) == [FLOAT32]
    assert before == state(part) and part.rotary_emb.nested == {"list": [], "tensor": torch.zeros(1)}
    assert torch.equal(seed, torch.get_rng_state()) and torch.is_grad_enabled()


def test_layers_that_rotate_alike_are_compared_once():
    part = model(layers=32)
    report = check_rotary(part)
    assert [(row.module, row.verdict) for row in report] == [("layers.0 and 31 more", FLOAT32)]
    part.layers[7].rotate = pairs
    report = check_rotary(part)
    assert [(row.module, row.verdict) for row in report] == [("layers.0 and 30 more", FLOAT32), ("layers.7", WRONG)]


def test_a_table_must_have_the_positions_of_the_configuration():
    config = CONFIG | {"max_position_embeddings": 4096}
    short = RotaryEmbedding(positions=lambda p, x: torch.arange(512)[p])
    row, = check_rotary(model(short, config=config))
    assert row.verdict == WRONG and row.faults[0].startswith("a call with positions up to 1,023 raises IndexError: index ")
    assert row.faults[0].endswith("the configuration has max_position_embeddings 4,096")
    assert check_rotary(model(RotaryEmbedding(positions=lambda p, x: torch.arange(4096)[p]), config=config)).ok


def test_inputs_may_be_given():
    """A cache with a row for each position, as in gpt-fast; and rows at points with two axes, as in models for images."""
    class Static(nn.Module):
        def __init__(self, base=BASE):
            super().__init__()
            self.embed, self.q, self.k = nn.Embedding(9, 8), nn.Linear(8, DIM), nn.Linear(8, DIM)
            self.register_buffer("cache", torch.zeros(1, 4096, DIM))
            self.rotary_emb = RotaryEmbedding(rotary_faults.frequencies(base))

        def forward(self, tokens, input_pos):
            x = self.embed(tokens)
            q, k = rotary_faults.halves(self.q(x), self.k(x), *self.rotary_emb(x, input_pos[None]))
            self.cache[:, input_pos] = k[0]
            return scaled_dot_product_attention(q[0], self.cache, self.cache)

    config = CONFIG | {"max_position_embeddings": 4096}
    for base, verdict in ((BASE, FLOAT32), (1e4, WRONG)):
        report = check_rotary(Static(base), config, inputs=lambda at: (torch.ones(1, len(at), dtype=int), at))
        assert verdicts(report) == [verdict], report

    class Points(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = nn.Linear(8, 16), nn.Linear(8, 16)

        def forward(self, x):
            angles = torch.cat([points[0][:, None] * w[:4], points[1][:, None] * w[4:]], -1)
            tables = (torch.cat([t, t], -1)[None] for t in (angles.cos(), angles.sin()))
            q, k = rotary_faults.halves(self.q(x), self.k(x), *tables)
            return scaled_dot_product_attention(q, k, k)

    points = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2, 2, 3], [0, 1, 2, 0, 1, 2, 0, 1, 2, 7]])
    rotary = Rotary(16, axes=[0] * 4 + [1] * 4)
    w = torch.tensor(rotary.frequencies.tolist())
    x = torch.zeros(1, 10, 8)
    assert check_rotary(Points(), rotary, inputs={"x": x}, positions=points).ok
    assert not check_rotary(Points(), rotary, inputs={"x": x}, positions=points.flip(0)).ok
