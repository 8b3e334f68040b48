"""check_rotary: it names the faults of known projects, raises no false alarm, and changes nothing in the model."""

import importlib
import itertools
import re
import sys
import threading
import types
import typing
from pathlib import Path

import pytest

import posenc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import rotary_faults  # noqa: E402
from peers import installed_class  # noqa: E402
from posenc import Rotary  # noqa: E402
from posenc.check import RotaryReport, check_rotary  # noqa: E402
from posenc.check.report import GUIDE  # noqa: E402
from rotary_faults import BASE, CONFIG, DIM, FAULTS, INTERLEAVED, RotaryEmbedding, model, pairs, stored  # noqa: E402

EXACT, FLOAT32, WRONG, UNCHECKED = "right", "float32 angles", "wrong", "not checked"
NUMBERS = itertools.count(1)


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
    patterns += ["the table has 16 rows, the configuration has max_position", "the result has its columns in another order"]
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
    assert compared == ("compared: tables and the function rotary_faults.pairs; "
                        "not compared: the calls in the attention and their positions")
    assert head.split() == ["module", "verdict", "error", "at", "1,000", "100,000", "1,000,000"]
    assert values.startswith("rotary_emb  wrong")
    assert [line.split()[0] for line in details] == ["found", "expected", "fault", "fault", "remedy"]
    assert row.remedy == 'see "base is ..." in docs/check.md'
    with pytest.raises(AttributeError):
        report.ok = True


def test_float32_angles_have_an_error_and_a_remedy():
    row, = check_rotary(model())
    assert row.verdict == FLOAT32 and row.faults == ()
    assert 1e-6 < row.errors[1000] < 1e-4 < row.errors[100000] < 0.02 < row.errors[1000000] < 0.1
    assert row.remedy == 'for long sequences: see "float32 angles" in docs/check.md'
    result = model()
    result.rotary_emb = posenc.torch.RotaryEmbedding(result.config)
    row, = check_rotary(result)
    assert row.verdict == EXACT and row.remedy == "" and max(row.errors.values()) < 1e-6


@pytest.mark.parametrize("attribute, is_same", [
    (lambda module: torch.arange(3), True), (lambda module: torch.arange(next(NUMBERS)), False),
    (lambda module: rotary_faults.halves, True), (lambda module: (lambda p: (p, module)), False),
    (lambda module: {"a": [1, "b"]}, True), (lambda module: [1] * next(NUMBERS), False),
    (lambda module: threading.Lock(), False), (lambda module: (i for i in "ab"), False),
])
def test_modules_with_equal_attributes_share_a_row(attribute, is_same):
    parts = [model(), model()]
    for part in parts:
        part.rotary_emb.other = attribute(part.rotary_emb)
    report = check_rotary(nn.ModuleList(parts), CONFIG)
    assert len(report) == 1 + (not is_same)


def test_errors_are_those_of_keys_or_queries():
    row, = check_rotary(model(RotaryEmbedding(positions=lambda p, x: p.bfloat16()), rotary_faults.queries_only))
    assert row.faults == ("positions were rounded to bfloat16 above 256", "keys: pairs 0 to 31 are not rotated")
    assert row.errors[1000] > 1         # bfloat16 holds 1,000, so the rotation of queries is right there


@pytest.mark.parametrize("length", [None, 9000])
@pytest.mark.parametrize("max_len", [None, 64])
def test_the_module_of_posenc_is_right(length, max_len):
    longrope = {"rope_type": "longrope", "short_factor": [1.0] * 32, "long_factor": [4.0] * 32,
                "original_max_position_embeddings": 4096, "factor": 32.0}
    for config in (CONFIG, CONFIG | {"rope_scaling": longrope}):
        module = posenc.torch.RotaryEmbedding(config, length, max_len=max_len)
        assert verdicts(check_rotary(module, config)) == [EXACT]
        with torch.device("meta"):
            module = posenc.torch.RotaryEmbedding(config, length, max_len=max_len)
        assert verdicts(check_rotary(module, config)) == [EXACT]


def test_reports_without_a_result_are_not_ok():
    for part in (nn.Linear(2, 2), nn.ModuleDict({"rotary_emb": RotaryEmbedding()})):
        assert not check_rotary(part).ok
    row, = check_rotary(nn.ModuleDict({"rotary_emb": RotaryEmbedding(uninitialised := rotary_faults.uninitialised())}))
    assert row.verdict == UNCHECKED and not uninitialised.isfinite().all()
    row, = check_rotary(model(), {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 1})
    assert row.verdict == UNCHECKED and "rope_theta" in row.faults[0]


@pytest.mark.parametrize("arguments, message", [
    ((None,), "model is None of type NoneType, expected a torch.nn.Module"),
    ((nn.Linear(2, 2), 5), "config is 5 of type int, expected a configuration"),
    ((nn.Linear(2, 2), "llama"), "config is 'llama' of type str, expected a configuration"),
])
def test_arguments_of_wrong_types_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        check_rotary(*arguments)


# ---- configurations -----------------------------------------------------------------------------------------------------


def test_the_configuration_may_be_given():
    part = model().rotary_emb
    for config in (CONFIG, types.SimpleNamespace(**CONFIG), Rotary(DIM, base=BASE)):
        assert verdicts(check_rotary(nn.ModuleDict({"rotary_emb": part}), config)) == [FLOAT32]
        assert verdicts(check_rotary(part, config)) == [FLOAT32]
    assert verdicts(check_rotary(part, Rotary(DIM))) == [WRONG]
    # the part of a configuration for this model
    other = CONFIG | {"rope_theta": 99.0, "model_type": "other"}
    outer = {"model_type": "llava", "text_config": CONFIG, "vision_config": other}
    assert verdicts(check_rotary(part, outer)) == [FLOAT32]
    assert verdicts(check_rotary(model(), outer)) == [FLOAT32]


def test_a_module_for_one_of_several_layer_types():
    bases = {"full_attention": 1e6, "sliding_attention": 1e4}
    config = CONFIG | {"layer_types": list(bases), "rope_parameters": {
        name: {"rope_type": "default", "rope_theta": base} for name, base in bases.items()}}
    result = model(config=config)
    result.rotary_emb, result.rotary_emb_local = (
        RotaryEmbedding(rotary_faults.frequencies(base)) for base in bases.values())
    assert verdicts(check_rotary(result)) == [FLOAT32, FLOAT32]
    result.rotary_emb_local = RotaryEmbedding()
    assert verdicts(check_rotary(result)) == [FLOAT32, WRONG]


# ---- nothing is changed -------------------------------------------------------------------------------------------------


def state(module):
    """Return everything that a check could change."""
    found = []
    for name, part in module.named_modules():
        values = {**vars(part), **part._buffers, **part._parameters}
        found.append((name, part.training, {
            key: (id(value), value._version, value.clone()) if isinstance(value, torch.Tensor) else repr(value)
            for key, value in values.items() if key not in ("_modules", "_buffers", "_parameters")
        }))
    return found


def assert_same_state(before, after):
    for (name, training, tensors), (other, now, found) in zip(before, after, strict=True):
        assert (name, training, tensors.keys()) == (other, now, found.keys())
        for key, value in tensors.items():
            if isinstance(value, tuple):
                assert value[:2] == found[key][:2] and torch.equal(value[2], found[key][2]), (name, key)
            else:
                assert value == found[key], (name, key)


class Counting(RotaryEmbedding):
    """A module that changes itself in each call, as those of dynamic scaling do."""

    def __init__(self):
        super().__init__()
        self.nested = {"list": [], "tensor": torch.zeros(1)}
        self.namespace = types.SimpleNamespace(calls=0)

    def forward(self, x, position_ids):
        self.calls = getattr(self, "calls", 0) + 1
        self.nested["list"].append(1)
        self.nested["tensor"] += 1
        self.namespace.calls += 1
        self.inv_freq.mul_(1)
        torch.rand(3)
        return super().forward(x, position_ids)


def test_nothing_in_the_model_is_changed():
    result = model(Counting()).train()
    hooked = []
    result.rotary_emb.register_forward_hook(lambda *arguments: hooked.append(arguments))
    before, seed = state(result), torch.get_rng_state()
    assert verdicts(check_rotary(result)) == [FLOAT32]
    assert_same_state(before, state(result))
    assert torch.equal(seed, torch.get_rng_state()) and torch.is_grad_enabled()
    assert hooked and all(module is not result.rotary_emb for module, *_ in hooked)         # hooks of a copy


def test_a_model_on_the_meta_device():
    with torch.device("meta"):
        row, = check_rotary(model())
    assert row.verdict == UNCHECKED
    assert row.faults == ("inv_freq is on the meta device; load the weights, then check again",)


def test_layers_with_equal_tables_are_computed_once(monkeypatch):
    module = importlib.import_module("posenc.check.models")
    calls, row_of = [], module.row_of
    monkeypatch.setattr(module, "row_of", lambda *arguments: calls.append(arguments) or row_of(*arguments))
    layers = nn.ModuleList(model() for _ in range(32))
    row, = check_rotary(layers, CONFIG)
    assert (row.module, row.verdict) == ("0.rotary_emb and 31 more", FLOAT32)
    assert len(calls) == 3              # frequencies, tables, tables and the function
    layers[7].rotary_emb = RotaryEmbedding(rotary_faults.frequencies(1e4))
    rows = check_rotary(layers, CONFIG)
    assert [(row.module, row.verdict) for row in rows] == [("0.rotary_emb and 30 more", FLOAT32), ("7.rotary_emb", WRONG)]
    layers[7], layers[9] = model(), model(rotate=pairs)         # one layer applies its tables by another function
    rows = check_rotary(layers, CONFIG)
    assert [(row.module, row.verdict) for row in rows] == [("0.rotary_emb and 30 more", FLOAT32), ("9.rotary_emb", WRONG)]


# ---- functions and modules ----------------------------------------------------------------------------------------------


class Divided(RotaryEmbedding):
    """Divides positions by the factor in a dict."""

    def __init__(self, factor):
        super().__init__()
        self.options = {"factor": factor, "list": [factor]}

    def positions(self, positions, x):
        return positions / self.options["factor"]


def test_modules_with_different_options_have_rows_of_their_own():
    rows = check_rotary(nn.ModuleList([*(Divided(1.0) for _ in range(3)), Divided(2.0)]), CONFIG)
    assert [(row.module, row.verdict) for row in rows] == [("0 and 2 more", FLOAT32), ("3", WRONG)]


class Unknown(RotaryEmbedding):
    """Has an argument whose meaning is unknown, and rotates by other angles than inv_freq shows."""

    def forward(self, x, step, position_ids):
        return super().forward(x, 2 * position_ids)


def test_frequencies_alone_are_not_the_rotation():
    report = check_rotary(model(Unknown()))
    row, = report
    assert not report.ok and row.verdict == UNCHECKED and row.found == Rotary(DIM, base=BASE)
    assert row.faults[0].startswith("only frequencies were compared, ")
    assert verdicts(check_rotary(model(Unknown(rotary_faults.frequencies(1e4))))) == [WRONG]
    unreadable = RotaryEmbedding(rotary_faults.frequencies(1e4), angles=lambda *_: torch.ones(3))
    assert check_rotary(model(unreadable))[0].faults == ("base is 10000, the configuration has 500000",)


def test_changes_of_an_instance_are_part_of_it():
    def negated(module, arguments, result):
        return result[0], -result[1]

    def shifted(module, arguments):
        return arguments[0], arguments[1] + 1

    def doubled(self, x, position_ids):
        return RotaryEmbedding.forward(self, x, 2 * position_ids)

    changes = [lambda m: m.register_forward_hook(negated), lambda m: m.register_forward_pre_hook(shifted),
               lambda m: setattr(m, "forward", types.MethodType(doubled, m))]
    for change in changes:
        result = model()
        change(result.rotary_emb)
        assert verdicts(check_rotary(result)) == [WRONG]
    result = model(RotaryEmbedding(rotary_faults.frequencies(1e4)))
    result.rotary_emb.forward = RotaryEmbedding().forward
    assert verdicts(check_rotary(result)) == [FLOAT32]


# ---- no false alarm -----------------------------------------------------------------------------------------------------


def torchtune(path, name, *arguments):
    return installed_class("torchtune", path, name, Optional=typing.Optional)(*arguments)


def x_transformers(**options):
    library = pytest.importorskip("x_transformers")
    layers = library.Decoder(dim=64, depth=1, heads=1, attn_dim_head=64, rotary_pos_emb=True, **options)
    return library.TransformerWrapper(num_tokens=9, max_seq_len=16, attn_layers=layers)


def rotary_embedding_torch():
    kind = pytest.importorskip("rotary_embedding_torch").RotaryEmbedding
    return kind(32, theta=5000), Rotary(64, rotary_dim=32, base=5000, layout="interleaved")


def original_llama():
    """The table of complex numbers is an attribute of the model, without a module of its own."""
    def apply_rotary_emb(xq, xk, freqs_cis):
        shape = [1, xq.shape[1], 1, freqs_cis.shape[-1]]
        turned = (torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * freqs_cis.view(shape) for x in (xq, xk))
        return tuple(torch.view_as_real(x).flatten(3) for x in turned)

    def forward(self, x):
        return apply_rotary_emb(x, x, self.freqs_cis)

    forward = types.FunctionType(forward.__code__, {"apply_rotary_emb": apply_rotary_emb}, None, None, forward.__closure__)
    result = type("Transformer", (nn.Module,), {"forward": forward})()
    result.layer = nn.Linear(2, 2)
    angles = torch.outer(torch.arange(2048).float(), rotary_faults.frequencies())
    result.freqs_cis = torch.polar(torch.ones_like(angles), angles)
    return result, INTERLEAVED | {"max_position_embeddings": 2048}


HALF = Rotary(64, rotary_dim=32, layout="interleaved")
LIBRARIES = {
    "torchtune": lambda: (torchtune("modules/position_embeddings.py", "RotaryPositionalEmbeddings", 64, 4096, 500_000),
                          Rotary(64, base=5e5, layout="interleaved")),
    "llama3": lambda: (torchtune("models/llama3_1/_position_embeddings.py", "Llama3ScaledRoPE", 64, 4096, 500_000),
                       rotary_faults.LLAMA3 | {"rope_interleave": True, "max_position_embeddings": 4096}),
    "phi3": lambda: (torchtune("models/phi3/_position_embeddings.py", "Phi3RotaryPositionalEmbeddings", 96), Rotary(96)),
    "qwen2": lambda: (torchtune("models/qwen2/_positional_embeddings.py", "Qwen2RotaryPositionalEmbeddings", 64, 2048, 1e6),
                      Rotary(64, base=1e6)),
    "rotary_embedding_torch": rotary_embedding_torch,
    "x_transformers": lambda: (x_transformers(), HALF),
    "x_transformers scaled": lambda: (x_transformers(rotary_interpolation_factor=4.0),
                                      HALF.replace(scaling={"rope_type": "linear", "factor": 4.0})),
    "vllm": lambda: (stored(), Rotary(DIM, base=BASE)),
    "original llama": original_llama,
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_modules_of_libraries_are_right(library):
    module, config = LIBRARIES[library]()
    row, = check_rotary(module, config)
    assert (row.verdict, row.faults) == (FLOAT32, ())
    other = config.replace(base=777.0) if isinstance(config, Rotary) else config | {"rope_theta": 777.0}
    row, = check_rotary(module, other)
    assert row.verdict == WRONG and "777" in row.faults[0]
    if library not in ("vllm", "original llama"):
        row, = check_rotary(module)
        assert row.faults == ("no configuration was given; pass config=",)


def test_xpos_is_not_checked():
    row, = check_rotary(x_transformers(rotary_xpos=True), HALF)
    assert (row.verdict, row.faults) == (UNCHECKED, ("xPos is not supported",))


# ---- other forms of modules -------------------------------------------------------------------------------------------


def calling(function, **attributes):
    """Return a module whose forward calls a function by the name `apply_rope`."""
    def forward(self, q, k, *tables):
        return apply_rope(q, k, *tables)  # noqa: F821

    forward = types.FunctionType(forward.__code__, {"apply_rope": function, "__name__": __name__})
    result = type("Attention", (nn.Module,), {"forward": forward})()
    result.linear = nn.Linear(2, 2)
    for name, value in attributes.items():
        setattr(result, name, value)
    return result


def tables(n=4096):
    angles = torch.outer(torch.arange(n).float(), rotary_faults.frequencies())
    return angles.cos(), angles.sin()


class Growing(nn.Module):
    """Computes the tables of all positions below seq_len, and keeps them, as older modules of transformers do."""

    def __init__(self):
        super().__init__()
        self.grow(16)

    def grow(self, n):
        self.n = n
        for name, table in zip(("cos_cached", "sin_cached"), tables(n), strict=True):
            self.register_buffer(name, torch.cat([table, table], -1), persistent=False)

    def forward(self, x, seq_len=None):
        if seq_len > self.n:
            self.grow(seq_len)
        return self.cos_cached[:seq_len].to(x.dtype), self.sin_cached[:seq_len].to(x.dtype)


def by_position_ids(q, k, cos, sin, position_ids):
    return rotary_faults.halves(q, k, cos[position_ids], sin[position_ids])


def growing():
    return calling(by_position_ids, rotary_emb=Growing()), CONFIG


def stored_in_the_model():
    """cos and sin of each column are buffers of the attention, as in litgpt."""
    def apply_rope(x, cos, sin):
        return x * cos + rotary_faults.rotate_half(x) * sin

    result = calling(apply_rope)
    for name, table in zip(("cos", "sin"), tables(), strict=True):
        result.register_buffer(name, torch.cat([table, table], -1))
    return result, CONFIG | {"max_position_embeddings": 4096}


def stacked_pairs():
    """A table of shape (n, pairs, 2), as in gpt-fast."""
    def apply_rotary_emb(x, freqs_cis):
        first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = freqs_cis.view(1, x.shape[1], 1, -1, 2).unbind(-1)
        return torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(3).type_as(x)

    result = calling(apply_rotary_emb)
    result.register_buffer("freqs_cis", torch.stack(tables(), -1))
    return result, INTERLEAVED | {"max_position_embeddings": 4096}


class Angles(RotaryEmbedding):
    """Returns angles, as in x-transformers, for positions of one dimension only."""

    def forward(self, positions):
        assert positions.ndim == 1
        angles = torch.outer(positions.float(), self.inv_freq)
        return torch.cat([angles, angles], -1)


def angles():
    def apply_rope(q, k, freqs):
        return rotary_faults.halves(q, k, freqs.cos()[None], freqs.sin()[None])

    return calling(apply_rope, rotary=Angles()), CONFIG


FORMS = [growing, stored_in_the_model, stacked_pairs, angles]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_other_forms_of_modules(form):
    module, config = form()
    before = state(module)
    row, = check_rotary(module, config)
    assert (row.verdict, row.faults) == (FLOAT32, ())
    assert_same_state(before, state(module))
    row, = check_rotary(module, config | {"rope_theta": 1e4, "rope_interleave": "rope_interleave" not in config})
    assert row.verdict == WRONG and row.faults[0].startswith("base is 500000")
    assert "layout is" in row.faults[-1]


# ---- true verdicts and remedies -----------------------------------------------------------------------------------------


class Short(RotaryEmbedding):
    """Reads a table of a few rows."""

    def __init__(self, rows):
        super().__init__()
        for name, table in zip(("cos_cached", "sin_cached"), tables(rows), strict=True):
            self.register_buffer(name, torch.cat([table, table], -1))

    def forward(self, x, position_ids):
        return self.cos_cached[position_ids].to(x.dtype), self.sin_cached[position_ids].to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_tables_in_the_dtype_of_the_model_are_right(dtype):
    result = model(dtype=dtype)
    for options in ({"max_len": 8192, "dtype": dtype}, {}):
        result.rotary_emb = posenc.torch.RotaryEmbedding(CONFIG, **options)
        assert verdicts(check_rotary(result)) == [EXACT]
    if dtype == torch.float32:          # a float32 model with tables in bfloat16 has a fault
        result.rotary_emb = posenc.torch.RotaryEmbedding(CONFIG, max_len=8192, dtype=torch.bfloat16)
        row, = check_rotary(result)
        assert row.faults == ("tables were rounded to bfloat16",)


def test_ml_dtypes_is_not_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert verdicts(check_rotary(model(dtype=torch.bfloat16))) == [FLOAT32]


def test_the_first_line_states_what_was_compared():
    names = "tables and the function rotary_faults.halves"
    assert [row.compared for row in check_rotary(model())] == [names]
    assert str(check_rotary(model())).startswith(f"compared: {names}; not compared: the calls in the attention")
    part = nn.ModuleDict({"rotary_emb": RotaryEmbedding()})
    assert [row.compared for row in check_rotary(part, CONFIG)] == ["tables"]
    report = check_rotary(part, CONFIG, apply=pairs)
    assert report[0].compared == "tables and the function rotary_faults.pairs" and not report.ok
    with pytest.raises(TypeError, match="apply is"):
        check_rotary(part, CONFIG, apply=lambda a, b: a)


def test_functions_of_which_only_some_agree_are_named():
    result = model()
    kind = type(result.layers[0])
    kind.other = types.FunctionType((lambda q: apply_rope(q)[0]).__code__, {"apply_rope": pairs})  # noqa: F821
    row, = check_rotary(result)
    assert row.verdict == FLOAT32 and "only some of which agree" in row.compared


def test_a_function_is_not_compared_if_the_code_moves_columns_before():
    """Neither is that of another part of the model, although the outer modules contain its code."""
    def forward(self, q, k, tables):
        return apply_rotary_pos_emb(deinterleave(q), deinterleave(k), *tables)  # noqa: F821

    moving = model(config=INTERLEAVED)
    for layer in moving.layers:
        kind = type("Moving", (nn.Module,), {"forward": types.FunctionType(
            forward.__code__, {"apply_rotary_pos_emb": rotary_faults.halves})})
        layer.__class__ = kind
    report = check_rotary(nn.ModuleList([moving, model()]))
    assert [(row.verdict, row.compared) for row in report] == [
        (FLOAT32, "tables"), (FLOAT32, "tables and the function rotary_faults.halves")]


def test_a_table_must_have_the_rows_of_the_configuration():
    config = CONFIG | {"max_position_embeddings": 4096}
    row, = check_rotary(model(Short(16), config=config))
    assert row.faults == ("the table has 16 rows, the configuration has max_position_embeddings 4,096",)
    assert set(row.errors.values()) == {None}
    assert verdicts(check_rotary(model(Short(4096), config=config))) == [FLOAT32]
    assert verdicts(check_rotary(nn.ModuleList([posenc.torch.RotaryEmbedding(config, max_len=16)]), config)) == [EXACT]


def test_errors_are_the_largest_near_a_position():
    row, = check_rotary(model(RotaryEmbedding(positions=lambda p, x: p.bfloat16())))
    assert row.errors[1000] > 0.9           # bfloat16 holds 1,000, but not 999


@pytest.mark.parametrize("name", ["gptj", "codegen"])
def test_attentions_with_tables_of_their_own_are_right(name):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(name, n_embd=64, n_head=2, n_layer=2, rotary_dim=32, vocab_size=9)
    assert verdicts(check_rotary(transformers.AutoModel.from_config(config))) == [FLOAT32]


class Exchanged(RotaryEmbedding):
    """Returns (sin, cos); an attention may unpack them in this order."""

    def forward(self, x, position_ids):
        return super().forward(x, position_ids)[::-1]


@pytest.mark.parametrize("base, verdict", [(BASE, FLOAT32), (1e4, WRONG)])
def test_a_module_may_return_sines_first(base, verdict):
    row, = check_rotary(model(Exchanged(rotary_faults.frequencies(base))))
    assert row.verdict == verdict and not any("exchanged" in fault for fault in row.faults)
    assert row.compared == "tables, which the module returns as (sin, cos), and the function rotary_faults.halves"


def test_a_next_step_without_a_rotation():
    class Attention(nn.Module):
        def rope(self, x):
            return x

    part = Attention()
    part.register_buffer("frequencies", torch.ones(4))
    report = check_rotary(nn.ModuleDict({"attn": part}))
    assert not report.ok
    assert "no rotary embedding was found; pass a function" in str(report)
    assert "posenc.check.assert_rotary" in str(report)
