"""check_rotary: it names the faults of small models, raises no false alarm, and changes nothing in the model."""
import ast
import importlib
import re
import types
from pathlib import Path

import pytest

import posenc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

import rotary_models_small as small  # noqa: E402
from posenc import Rotary  # noqa: E402
from posenc.check import RotaryReport, check_rotary  # noqa: E402
from rotary_models_small import AXES, NEITHER, RIGHT, WRONG, Axes, Cached, D, Small, config, frequencies, halves, interleaved  # noqa: E402

FLOAT32, UNCHECKED, HALVES = "float32 angles", "not checked", Rotary(D)


def verdicts(report):
    return [row.verdict for row in report]


@pytest.mark.parametrize("build, expected, name", RIGHT)
def test_right_models_are_right(build, expected, name):
    report = check_rotary(build(), expected)
    assert report.ok, (name, report)


@pytest.mark.parametrize("build, expected, sentence", WRONG)
def test_faults_are_named(build, expected, sentence):
    report = check_rotary(build(), expected)
    assert not report.ok and sentence in str(report), report
    # a layer that is not rotated may be meant, so its verdict is "not checked"
    assert ("wrong" in verdicts(report)) == ("does not state" not in sentence)


@pytest.mark.parametrize("build, expected, name", NEITHER)
def test_models_without_a_known_rotation(build, expected, name):
    report = check_rotary(build(), expected)
    assert not report.ok and {*verdicts(report)} <= {"not checked", "no rotation"}, (name, report)


def sentences():
    """Return regular expressions for the texts in the code, which stand for any values in their places."""
    folder = Path(posenc.check.__file__).parent
    nodes = [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    texts = [[part.value if isinstance(part, ast.Constant) else "\0" for part in getattr(node, "values", [node])]
             for node in nodes if isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)]
    return [re.escape("".join(text)).replace("\0", ".*") for text in texts if len("".join(text)) > 12]


def test_the_page_explains_each_sentence():
    page = Path(__file__).parents[1] / "docs" / "check.md"
    table = page.read_text().split("## What to do about a fault\n")[1].split("\n## ")[0]
    quoted = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(quoted) > 20
    assert [line for line in quoted if not any(re.fullmatch(f"((keys|head 1): )?{each}", line) for each in sentences())] == []


# ---- the report --------------------------------------------------------------------------------------------


def test_the_report_is_an_immutable_table():
    report = check_rotary(Small(rotate=interleaved), Rotary(D, base=5e5))
    row, = report
    assert report == RotaryReport([row]) and isinstance(report, tuple)
    assert row.found == Rotary(D, layout="interleaved") and row.expected == Rotary(D, base=5e5)
    assert row.errors.keys() == {1000, 100000, 1000000}
    compared, head, *details, guide = str(report).splitlines()
    assert compared == "compared: queries and keys"
    assert head == "layers.0 and 1 more: wrong"
    assert [line.split()[0] for line in details] == ["found", "expected", "fault", "fault", "errors"]
    assert guide == "see docs/check.md"
    with pytest.raises(AttributeError):
        report.ok = True


def test_float32_angles_have_an_error():
    row, = check_rotary(Small(), HALVES)
    assert row.verdict == FLOAT32 and row.faults == ()
    assert 1e-6 < row.errors[1000] < 1e-4 < row.errors[100000] < 0.01 < row.errors[1000000] < 0.1
    row, = check_rotary(Small(angles=lambda p, w: p, rotate=lambda x, p: posenc.torch.rotate(x, p, rotary=HALVES)), HALVES)
    assert row.verdict == "right" and max(row.errors.values()) < 1e-6


def test_reports_without_a_result_are_not_ok():
    row, = check_rotary(nn.Conv1d(2, 2, 1))
    assert row.verdict == UNCHECKED and "pass its arguments as inputs=" in row.faults[0]
    model = nn.ReLU()
    model.forward = lambda *_: importlib.import_module("a_missing_package")
    assert check_rotary(model)[0].faults == ("the model raises ModuleNotFoundError: No module named 'a_missing_package'",)
    assert check_rotary(nn.Embedding(9, 2))[0].faults[0].startswith("no attention was found; pass a function")
    assert check_rotary(Small())[0].faults == ("no configuration was given; pass config=",)
    with torch.device("meta"):
        row, = check_rotary(Small())
    assert row.verdict == UNCHECKED and "on meta tensors" in row.faults[0]


@pytest.mark.parametrize("arguments, keywords, message", [
    ((None,), {}, "model is None of type NoneType, expected a torch.nn.Module"),
    ((nn.Linear(2, 2), 5), {}, "config is 5 of type int, expected a posenc.Rotary, or a configuration"),
    ((nn.Linear(2, 2), "llama"), {}, "config is 'llama' of type str, expected a posenc.Rotary, or a configuration"),
])
def test_arguments_of_wrong_types_are_refused(arguments, keywords, message):
    with pytest.raises(TypeError, match=message):
        check_rotary(*arguments, **keywords)


def test_the_configuration_may_be_given():
    given = config(4096)
    for expected in (given, types.SimpleNamespace(**given), HALVES, {"model_type": "llava", "text_config": given}):
        assert verdicts(check_rotary(Small(), expected)) == [FLOAT32]
    model = Small()
    model.config = types.SimpleNamespace(to_dict=lambda: None, **given)
    assert verdicts(check_rotary(model)) == [FLOAT32]
    model.config.rope_theta = 99.0
    assert verdicts(check_rotary(model)) == ["wrong"]


# ---- nothing is changed ------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Changes itself in each call, as modules of dynamic scaling do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", frequencies())
        self.nested = {"list": [], "tensor": torch.zeros(1)}

    def forward(self, p, w):
        self.calls = getattr(self, "calls", 0) + 1
        self.nested["list"].append(1)
        self.nested["tensor"] += 1
        self.inv_freq.mul_(1)
        torch.rand(3)
        return p[:, None].float() * self.inv_freq


def test_nothing_in_the_model_is_changed():
    counting = Counting()
    model = Small(angles=counting).train()
    model.counting = counting
    tensors = [(t, t._version, t.clone()) for t in (*model.parameters(), *model.buffers())]
    seed = torch.get_rng_state()
    assert verdicts(check_rotary(model, HALVES)) == [FLOAT32]
    assert all(t._version == version and torch.equal(t, before) for t, version, before in tensors)
    assert counting.nested == {"list": [], "tensor": torch.zeros(1)} and not hasattr(counting, "calls")
    assert model.training and torch.equal(seed, torch.get_rng_state()) and torch.is_grad_enabled()


def test_layers_that_rotate_alike_are_compared_once():
    report = check_rotary(Small(layers=({},) * 32), HALVES)
    assert [(row.module, row.verdict) for row in report] == [("layers.0 and 31 more", FLOAT32)]
    report = check_rotary(Small(layers=(*({},) * 7, {"rotate": interleaved}, *({},) * 8)), HALVES)
    assert [(row.module, row.verdict) for row in report] == [("layers.0 and 14 more", FLOAT32), ("layers.7", "wrong")]


@pytest.mark.parametrize("late, ok, words", [
    (0, True, "queries and keys, also with a cache"),
    (1, False, "queries and keys of a call with a cache have other values"),
    (None, True, "queries and keys; not with a cache, because a call raises TypeError"),
])
def test_calls_with_a_cache_are_compared_or_the_reason_is_given(late, ok, words):
    report = check_rotary(Cached(late), HALVES)
    assert report.ok == ok and words in str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("right, change", [
    (True, lambda k: k[:, :, -8:]),                                     # a sliding window
    (True, lambda k: torch.cat([k[:, :, :2], k[:, :, -6:]], 2)),        # and the first keys
    (True, lambda k: torch.cat([k.new_zeros(1, 2, 9, D), k], 2)),       # unused rows
    (True, lambda k: k.flip(2)), (False, lambda k: k * torch.tensor([1, 2])[:, None, None]),            # one head
    (False, lambda k: k / 2), (False, torch.neg), (False, torch.zeros_like),
    (False, lambda k: k[:, :, :1].expand_as(k)), (False, lambda k: 1.005 * k),
    (False, lambda k: halves(k, small.angles(torch.ones(k.shape[2]), frequencies()))),
])
def test_keys_in_a_cache_are_compared(right, change, dtype):
    report = check_rotary(Cached(change=change, dtype=dtype, heads=4), HALVES)
    assert report.ok == right and "also with a cache" in str(report)
    assert right or report[0].faults == ("keys of a call with a cache have other values than those of a call without",)


@pytest.mark.parametrize("every, right", [(4, True), (1, False)])
def test_a_few_keys_in_a_cache_may_be_rounded_otherwise(every, right):
    """In 16 bits, a normalization of fewer rows may be rounded otherwise; a factor of all rows is a fault."""
    report = check_rotary(Cached(change=lambda k: torch.where(torch.arange(k.shape[2])[:, None] % every == 0, 1.005 * k, k),
                                 dtype=torch.bfloat16), HALVES)
    assert report.ok == right and "also with a cache" in str(report)


def test_a_cache_without_keys_is_not_called_compared():
    report = check_rotary(Cached(change=lambda k: k[:, :, :0]), HALVES)
    assert report.ok and "; not with a cache, because a call that continues has no earlier keys" in str(report)


# ---- inputs ------------------------------------------------------------------------------------------------


class Static(nn.Module):
    """Keys of all positions, or of the last ones, stand in a cache, as in gpt-fast."""

    def __init__(self, base=1e4, rows=4096, change=lambda p: p):
        super().__init__()
        self.change = change
        self.embed, self.q, self.k = nn.Embedding(9, 8), nn.Linear(8, D), nn.Linear(8, D)
        self.register_buffer("cache", torch.zeros(1, rows, D))
        self.register_buffer("inv_freq", frequencies(base))

    def forward(self, tokens, input_pos):
        x, angles = self.embed(tokens), self.change(input_pos)[:, None].float() * self.inv_freq
        self.cache[:, input_pos % self.cache.shape[1]] = halves(self.k(x), angles)
        return scaled_dot_product_attention(halves(self.q(x), angles), self.cache, self.cache)

@pytest.mark.parametrize("options, verdict", [
    ((1e4, 4096), FLOAT32), ((1e4, 100), FLOAT32), ((1e5, 4096), "wrong"),
    ((1e4, 4096, lambda p: torch.arange(len(p))), "wrong"), ((1e4, 4096, lambda p: p % 256), "wrong"),
])
def test_inputs_may_be_a_function_of_positions(options, verdict):
    report = check_rotary(Static(*options), config(4096), inputs=lambda at: (torch.ones(1, len(at), dtype=int), at))
    assert verdicts(report) == [verdict], report


class Decoder(Small):
    """The second layer has positions of its own, as a decoder."""

    def forward(self, ids, position_ids=None, decoder_position_ids=None):
        p, x = torch.arange(ids.shape[1])[None], self.embed(ids)
        x = self.layers[0](x, (p if position_ids is None else position_ids)[0])
        return self.layers[1](x, (p if decoder_position_ids is None else decoder_position_ids)[0])


def test_a_decoder_may_have_positions_of_its_own():
    assert check_rotary(Decoder(), HALVES).ok
    assert not check_rotary(Decoder(layers=({}, {"frequencies": frequencies(9e3)})), HALVES).ok
    row, other = check_rotary(small.parts())
    assert row.verdict == FLOAT32 and other.verdict == UNCHECKED and "check this part alone" in other.faults[0]


def test_other_keys_may_follow():
    def attention(q, k, v):
        k = torch.cat([k, k.new_ones(*k.shape[:2], 4, D)], 2)
        return small.sdpa(q, k, k)

    model, ids = Small(attention=attention), torch.ones(1, 1, dtype=int)
    assert check_rotary(model, HALVES, inputs=lambda at: (ids.expand(1, len(at)), at[None])).ok


class Extra(small.Consecutive):
    """Takes other vectors, such as those of images, which may be none."""

    def forward(self, ids, extra):
        self.layers[0].out(extra)
        return super().forward(ids)


@pytest.mark.parametrize("attention", [small.sdpa, small.eager])
def test_arguments_may_have_an_axis_of_length_0(attention):
    model, inputs = Extra(attention=attention), {"ids": torch.ones(1, 12, dtype=int), "extra": torch.zeros(1, 0, 2 * D)}
    assert verdicts(check_rotary(model, HALVES, inputs=inputs)) == [FLOAT32]
    assert verdicts(check_rotary(model, small.PAIRS, inputs=inputs)) == ["wrong"]
    for rows, reason in ((0, "no attention was found"), (1, "the numbers of queries and keys in an attention are 1 and 1")):
        row, = check_rotary(model, HALVES, inputs=inputs | {"ids": torch.ones(1, rows, dtype=int)})
        assert row.verdict == UNCHECKED and row.faults[0].startswith(reason)


def test_positions_on_several_axes_must_be_chosen():
    """Positions that are equal on all axes do not show the axes, so the model is not called wrong or right."""
    ids = torch.ones(1, 10, dtype=int)
    for axes in (AXES.axes, [1] * 8 + [0] * 8):
        row, = check_rotary(Axes(axes), AXES, inputs=(ids, torch.arange(10).expand(2, 1, 10)))
        assert row.verdict == UNCHECKED and "positions on several axes must be a parameter" in row.faults[0]
        report = check_rotary(Axes(axes), AXES, inputs=lambda at: (ids[:, :1].expand(1, at.shape[1]), at[:, None]))
        assert report.ok == (axes == AXES.axes)
