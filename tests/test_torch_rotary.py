"""posenc.torch.rotate, rotate_ and RotaryEmbedding: same bits as Rotary, derivatives, torch.compile and
torch.func.
"""

import copy
import pickle

import numpy as np
import pytest

import posenc
from posenc import Rotary

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad  # noqa: E402

from posenc.torch import RotaryEmbedding, rotate, rotate_  # noqa: E402
from posenc.torch._tensor_arguments import array_of  # noqa: E402

# from torch itself
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script:DeprecationWarning", "ignore:There is a performance drop:UserWarning"     # of vmap
)
PLAIN = Rotary(16, rotary_dim=12, base=500.0, scale=0.75)
AXES = Rotary(16, axes=[0, 0, 1, 1, 2, 2, 0, 1], layout="interleaved")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, GRAD = normal(2, 3, 5, 16), normal(2, 3, 5, 16, seed=1)
POSITIONS = torch.randint(0, 9999, (2, 1, 5), generator=torch.Generator().manual_seed(2))
POSITIONS_3 = torch.randint(0, 99, (3, 2, 1, 5), generator=torch.Generator().manual_seed(2))
CASES = [(PLAIN, POSITIONS), (AXES, POSITIONS_3), (PLAIN, None), (PLAIN, POSITIONS + 0.3)]
cases = pytest.mark.parametrize("rotary, positions", CASES, ids=["array", "axes", "none", "real"])


def expected(rotary, x, positions=None, inverse=False):
    """Return the result of rotary.rotate for the same values in a NumPy array, as a tensor."""
    result = x.detach().clone()
    positions = None if positions is None else positions.numpy()
    rotary.rotate(array_of(result), positions, inverse=inverse)         # the array shares the tensor's memory
    return result


@cases
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inverse", [False, True])
def test_bits_are_those_of_rotary(rotary, positions, dtype, inverse):
    x = X.to(dtype)
    result = expected(rotary, x, positions, inverse)
    assert torch.equal(rotate(x, positions, rotary=rotary, inverse=inverse), result)
    assert torch.equal(x, X.to(dtype))
    mine = x.clone()
    assert rotate_(mine, positions, rotary=rotary, inverse=inverse) is mine
    assert torch.equal(mine, result)
    at = rotary.at(5 if positions is None else positions, inverse=inverse)
    assert torch.equal(rotate(x, at), result) and torch.equal(rotate_(x.clone(), at), result)
    back = rotate(GRAD.to(dtype), positions, rotary=rotary, inverse=not inverse)
    for function in (rotate, lambda x, *p, **options: rotate_(x * 1, *p, **options)):
        mine = x.clone().requires_grad_()
        function(mine, positions, rotary=rotary, inverse=inverse).backward(GRAD.to(dtype))
        assert torch.equal(mine.grad, back)


@pytest.mark.parametrize("positions", [5, range(5), [0, 1, 2, 3, 4], torch.arange(5), np.arange(5)], ids=repr)
def test_forms_of_positions_and_strides(positions):
    for x in (X, normal(2, 5, 3, 16).transpose(1, 2), normal(16, 5).T):
        turned = rotate(x, positions, rotary=PLAIN)
        assert torch.equal(turned, expected(PLAIN, x.contiguous()))
        assert x.ndim == 2 or turned.stride() == x.stride()
    x = X.clone().requires_grad_()
    assert torch.equal(rotate(x, positions, rotary=PLAIN), expected(PLAIN, X))


@torch._dynamo.config.patch(recompile_limit=99)
@pytest.mark.parametrize("at", [
    PLAIN.at(5), PLAIN.at(range(70, 75)), PLAIN.at(POSITIONS), AXES.at(POSITIONS_3, inverse=True),
    AXES.at(POSITIONS_3), PLAIN.at(range(9))[..., 2:7], PLAIN.at(5)[::-1], AXES.at(POSITIONS_3)[..., ::-1],
    PLAIN.at(range(13))[::-3], PLAIN.at(range(13))[[7, 0, 2, 9, 4]],
], ids=repr)
def test_prepared_positions_on_every_path(at):
    """With gradients, vmap, a default device and compilation, `at` has the bits of eager calls, even with
    negative strides.
    """
    torch.compiler.reset()
    expected = rotate(X, at)
    assert torch.equal(expected, rotate(X, at.positions.copy(), rotary=at.rotary, inverse=at.inverse))
    for function in (rotate, lambda x, at: rotate_(x * 1, at)):
        assert torch.equal(torch.compile(function, backend="aot_eager", fullgraph=True)(X, at), expected)
        assert torch.equal(torch.func.vmap(lambda x, f=function: f(x, at))(torch.stack([X, X]))[1], expected)
        with torch.device("cpu"):
            assert torch.equal(function(X, at), expected)
        x = X.clone().requires_grad_()
        result = function(x, at)
        result.backward(GRAD)
        assert torch.equal(result, expected)
        assert torch.equal(x.grad,
                           rotate(GRAD, at.positions.copy(), rotary=at.rotary, inverse=not at.inverse))


def test_a_decoding_loop_compiles_once():
    torch.compiler.reset()
    graphs = []
    compiled = torch.compile(rotate, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)
    prepared = PLAIN.at(100)
    for i in range(4):
        assert torch.equal(compiled(X, prepared[i : i + 5]), rotate(X, range(i, i + 5), rotary=PLAIN))
    assert len(graphs) == 1


def test_an_exported_graph_contains_prepared_positions(tmp_path):
    class Layer(torch.nn.Module):
        def forward(self, x):
            return rotate(x, at)

    at = PLAIN.at(POSITIONS)
    torch.export.save(torch.export.export(Layer(), (X,)), tmp_path / "layer.pt2")
    assert torch.equal(torch.export.load(tmp_path / "layer.pt2").module()(X), rotate(X, at))


def test_derivative_agrees_with_torch():
    """An independent rotation by torch's own operators, in float64."""
    cos, sin = (torch.from_numpy(t) for t in PLAIN.tables(5, dtype="float64"))
    x = X.double().requires_grad_()
    a, b, rest = x.split([6, 6, 4], -1)
    (torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1) * GRAD).sum().backward()
    mine = X.clone().requires_grad_()
    (rotate(mine, rotary=PLAIN) * GRAD).sum().backward()
    assert torch.allclose(mine.grad.double(), x.grad, atol=1e-6)


def test_second_derivatives():
    x = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad((rotate(x, rotary=PLAIN) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((grad * GRAD).sum(), x)
    # the derivative of |R x|**2 is 2 R' R x; R' R is 0.75**2 on the pairs
    assert torch.allclose(second, GRAD * torch.tensor([2 * 0.75**2] * 12 + [2.0] * 4), atol=1e-5)


@cases
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_and_export(rotary, positions, dynamic):
    torch.compiler.reset()
    options = {"fullgraph": True, "dynamic": dynamic, "backend": "aot_eager"}
    new = torch.compile(lambda x, p: rotate(x * 2, p, rotary=rotary) + 1, **options)
    in_place = torch.compile(lambda x, p: rotate_(x * 2, p, rotary=rotary) + 1, **options)
    result = rotate(X * 2, positions, rotary=rotary) + 1
    assert torch.equal(new(X, positions), result) and torch.equal(in_place(X, positions), result)
    x = X.clone().requires_grad_()
    (new(x, positions) * GRAD).sum().backward()
    assert torch.equal(x.grad, 2 * rotate(GRAD, positions, rotary=rotary, inverse=True))

    class Module(torch.nn.Module):
        def forward(self, x, positions):
            return rotate(x, positions, rotary=rotary)

    program = torch.export.export(Module(), (X, positions))
    assert torch.equal(program.module()(X, positions), rotate(X, positions, rotary=rotary))


def test_vmap():
    result = rotate(X, POSITIONS, rotary=PLAIN)
    assert torch.equal(torch.vmap(lambda x, p: rotate(x, p, rotary=PLAIN))(X, POSITIONS), result)
    assert torch.equal(torch.vmap(lambda x: rotate(x, rotary=PLAIN), in_dims=1, out_dims=1)(X),
                       rotate(X, rotary=PLAIN))
    shared = torch.vmap(lambda x: rotate(x, POSITIONS[0, 0], rotary=PLAIN))(X)
    assert torch.equal(shared, rotate(X, POSITIONS[0, 0], rotary=PLAIN))
    whole = torch.vmap(lambda x: rotate(x, POSITIONS[1], rotary=PLAIN))(X)
    assert torch.equal(whole, rotate(X, POSITIONS[1][None], rotary=PLAIN))
    one = torch.vmap(lambda p: rotate(X[0], p, rotary=PLAIN))(POSITIONS)
    assert torch.equal(one, rotate(X[:1].expand(2, -1, -1, -1), POSITIONS, rotary=PLAIN))
    three = torch.vmap(lambda x, p: rotate(x, p, rotary=AXES), in_dims=(0, 1))(X, POSITIONS_3)
    assert torch.equal(three, rotate(X, POSITIONS_3, rotary=AXES))


@pytest.mark.parametrize("function", [rotate, lambda x, p, rotary: rotate_(x * 1, p, rotary=rotary)],
                         ids=["rotate", "rotate_"])
def test_transforms_and_forward_mode(function):
    def turn(x):
        return function(x, POSITIONS, rotary=PLAIN)

    grad = rotate(GRAD, POSITIONS, rotary=PLAIN, inverse=True)
    assert torch.equal(torch.func.grad(lambda x: (turn(x) * GRAD).sum())(X), grad)
    value, tangent = torch.func.jvp(turn, (X,), (GRAD,))
    assert torch.equal(value, turn(X)) and torch.equal(tangent, turn(GRAD))
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(turn(forward_ad.make_dual(X, GRAD)))
        assert torch.equal(value, turn(X)) and torch.equal(tangent, turn(GRAD))
    each = torch.vmap(torch.func.grad(lambda x, p, g: (function(x, p, rotary=PLAIN) * g).sum()))(X, POSITIONS, GRAD)
    assert torch.equal(each, grad)


def test_operators():
    text = posenc.torch._tensor_arguments.text_of(PLAIN)
    arguments = (X.clone().requires_grad_(), POSITIONS, False, text)
    torch.library.opcheck(torch.ops.posenc.rotate.default, arguments)
    torch.library.opcheck(torch.ops.posenc.encode.default, (POSITIONS, text, torch.float32, POSITIONS.device))
    assert torch.empty(2, 3, 5, 16, device="meta").shape == rotate(X.to("meta"), rotary=PLAIN).shape


@pytest.mark.parametrize("x, options, kind, message", [
    (X[..., :12], {}, ValueError, "x has shape (2, 3, 5, 12), expected (..., n, 16)"),
    (X, {"inverse": 1}, TypeError, "inverse is 1 of type int, expected a bool"),
    (X, {"positions": torch.arange(3)}, ValueError, "positions has shape (3,)"),
    (X[:, :2], {"positions": POSITIONS[:, 0]}, ValueError, "positions has shape (2, 5)"),
    (X, {"positions": torch.tensor([2.0**63, 0, 1, 2, 3])}, ValueError,
     "positions has 9.223372036854776e+18, expected"),
    (X, {"rotary": AXES, "positions": POSITIONS}, ValueError, "(3, ...)"),
    (X.to_sparse(), {}, TypeError, "x is nested or has layout torch.sparse_coo"),
])
@pytest.mark.parametrize("record", [False, True])
def test_mistakes(x, options, kind, message, record):
    if record:
        x = x.clone().requires_grad_()
    with pytest.raises(kind) as error:
        rotate(x, **{"rotary": PLAIN} | options)
    assert message in str(error.value)


def test_prepared_positions_exclude_a_direction():
    for inverse in (False, True):
        with pytest.raises(ValueError, match="inverse and positions of type RotaryAt are both given"):
            rotate(X, PLAIN.at(5, inverse=True), inverse=inverse)


def test_leaves_and_positions_that_require_grad_are_refused():
    for view in (lambda x: x, lambda x: x[:1], lambda x: (x * 1).split(1)[0], lambda x: (x * 1).unbind()[1]):
        x = view(X.clone().requires_grad_())
        before = x.detach().clone()
        with pytest.raises(RuntimeError, match=r"in-place|inplace"):
            rotate_(x, rotary=PLAIN)
        assert torch.equal(x, before)
    assert torch.equal(rotate_(torch._neg_view(X.clone()), rotary=PLAIN), rotate(-X, rotary=PLAIN))
    with pytest.raises(RuntimeError, match="positions requires grad"):
        rotate(X, torch.arange(5.0).requires_grad_(), rotary=PLAIN)


# ---- RotaryEmbedding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES])
def test_embedding_returns_each_value_twice(dtype):
    positions = torch.tensor([[0, 1, 10**6], [7, 8, 2**40]])
    cos, sin = RotaryEmbedding(PLAIN)(X.to(dtype), positions)
    name = str(dtype).removeprefix("torch.")
    for ours, table in zip((cos, sin), PLAIN.tables(positions.numpy(), dtype=name), strict=True):
        table = torch.from_numpy(np.ascontiguousarray(table).astype(np.float64)).to(dtype)
        assert ours.dtype == dtype and torch.equal(ours, torch.cat([table, table], -1))


def test_embedding_of_several_axes_and_forms():
    positions = POSITIONS_3[:, :, 0]
    cos, _ = RotaryEmbedding(AXES)(X, positions)
    assert torch.equal(cos[..., :8], torch.from_numpy(AXES.tables(positions.numpy())[0].copy()))
    equal, _ = RotaryEmbedding(AXES)(X, positions[0])
    assert torch.equal(equal, RotaryEmbedding(AXES)(X, positions[:1].expand(3, -1, -1))[0])
    tables = [torch.from_numpy(t.copy())[None] for t in Rotary(8).tables(4)]
    config = {"head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    module = {
        kind: RotaryEmbedding(config | {"model_type": kind})(X, torch.arange(4)[None])
        for kind in ("cohere", "gpt_oss", "llama4_text")
    }
    assert torch.equal(module["cohere"][0], tables[0].repeat_interleave(2, -1))
    assert torch.equal(module["gpt_oss"][1], tables[1])
    assert torch.equal(module["llama4_text"], torch.complex(*tables))


def test_attributes_of_the_embedding():
    nested = {"model_type": "gemma3_text", "head_dim": 8, "rope_parameters": {
        "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0,
                              "original_max_position_embeddings": 64},
        "none": None,
    }}
    module = RotaryEmbedding(nested)
    assert module.rotary("full_attention") == Rotary.from_config(nested, "full_attention")
    assert module.rotary("sliding_attention").attention_scaling == module.sliding_attention_attention_scaling > 1
    assert module.full_attention_inv_freq.tolist() == module.rotary("full_attention").frequencies.tolist()
    assert not module.state_dict() and not hasattr(module, "inv_freq") and not hasattr(module, "original_inv_freq")
    with pytest.raises(ValueError, match="layer_type is None, expected one of \\['full_attention', 'sliding_"):
        module(X, torch.arange(5)[None])
    flat = RotaryEmbedding(PLAIN)
    assert flat.inv_freq.tolist() == PLAIN.frequencies.tolist() and flat.attention_scaling == 1.0
    assert "rotary_dim=12" in repr(flat)


@pytest.mark.parametrize("scaling, name", [
    ({"type": "dynamic", "factor": 2.0}, "max_position_embeddings"),
    ({"type": "longrope", "factor": 2.0, "short_factor": [1] * 8, "long_factor": [2] * 8},
     "original_max_position_embeddings"),
], ids=["dynamic", "longrope"])
def test_embedding_warns_of_positions_that_need_a_length(scaling, name):
    config = {"model_type": "llama", "head_dim": 16, "rope_theta": 1e4, "rope_scaling": scaling, name: 64}
    RotaryEmbedding(config)(X, torch.tensor([[63]]))
    with pytest.warns(UserWarning, match="64 or more, .* length is None; pass it to RotaryEmbedding"):
        RotaryEmbedding(config)(X, torch.tensor([[64]]))
    RotaryEmbedding(config, length=65)(X, torch.tensor([[64]]))


def test_tables_grow_on_another_device(monkeypatch):
    """The table has the positions that calls needed, and at least doubles.

    A call copies nothing to the CPU.
    """
    fake_device = pytest.importorskip("fake_device")
    x, modules = torch.zeros(1), (RotaryEmbedding(PLAIN), RotaryEmbedding(AXES),
                                  RotaryEmbedding(PLAIN, dtype=torch.bfloat16))
    for module in modules:
        for highest, rows in ((0, 1), (8, 9), (3, 9), (9, 18), (900, 901)):
            ids = torch.tensor([[highest, 0]])
            expected = module(x, ids)
            for positions in (ids, ids.to("fake"),
                              ids.to("fake", torch.uint8) if highest < 256 else ids.numpy()):
                fake_device.COPIES.clear()
                tables = module(x.to("fake"), positions)
                assert not fake_device.COPIES and tables[0].device.type == "fake"
                assert same([table.cpu() for table in tables], expected)
            assert {len(table) - 2 for key, table in module._tables.items() if key[0] != torch.int64} == {rows}
        for positions in (torch.tensor([[2**40, -1]]), torch.tensor([[0.5]])):       # computed on the CPU
            assert same([table.cpu() for table in module(x.to("fake"), positions.to("fake"))],
                        module(x, positions))
    with torch._subclasses.fake_tensor.FakeTensorMode():
        arguments = torch.zeros(1, device="cuda"), torch.zeros(1, 5, dtype=torch.int64, device="cuda")
        assert RotaryEmbedding(PLAIN)(*arguments)[0].device.type == "cuda"


# ---- RotaryEmbedding with tables on a device ---------------------------------------------------------------


CONFIG = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
ROWS = torch.randint(0, 1000, (2, 7), generator=torch.Generator().manual_seed(3))
NESTED = {"model_type": "gemma3_text", "head_dim": 8, "rope_parameters": {
    "full_attention": {"rope_theta": 1e6, "rope_type": "default"},
    "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
}}


UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]


def listed(tables):
    """Return the tables of a module as a list: cosines and sines, or one table of complex numbers."""
    return [tables] if isinstance(tables, torch.Tensor) else [*tables]


def rows_of_table(module, x, positions, layer_type=None):
    """Return the results of a call inside a transform, which indexes the table of the module."""
    tables = torch.func.vmap(lambda p: module(x, p, layer_type))(positions[None])
    return [table[0] for table in listed(tables)]


def same(a, b):
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES])
@pytest.mark.parametrize("config, layer_type, axes", [
    (PLAIN, None, ()), (AXES, None, (3,)), (AXES, None, ()), (NESTED, "sliding_attention", ()),
    *[(CONFIG | {"model_type": kind, "rope_scaling": {"type": "default"}}, None, ())
      for kind in ("cohere", "gpt_oss", "llama4_text")],
], ids=["plain", "axes", "equal axes", "layer types", "in pairs", "once", "complex"])
def test_tables_have_the_bits_of_calls_without_max_len(config, layer_type, axes, dtype):
    positions = torch.randint(0, 100, (*axes, 2, 7), generator=torch.Generator().manual_seed(4))
    module = RotaryEmbedding(config, max_len=100)
    for converted in (module, module.to(torch.bfloat16), module.to("meta").to_empty(device="cpu"),
                      copy.deepcopy(module)):
        for ids in (positions, positions.int(), *map(positions.to, UNSIGNED)):
            with torch.inference_mode():
                rows_of_table(converted, X.to(dtype), ids, layer_type)          # fills the table for this dtype
            results = rows_of_table(converted, X.to(dtype), ids, layer_type)
            assert same(results, listed(RotaryEmbedding(config)(X.to(dtype), ids, layer_type)))
            assert not results[0].is_inference()
        assert not [*converted.buffers(), *converted.parameters()] and len(pickle.dumps(converted)) < 5000
    if "llama4" not in str(config):
        fixed = RotaryEmbedding(config, max_len=100, dtype=dtype), RotaryEmbedding(config, dtype=dtype)
        assert same(rows_of_table(fixed[0], X, positions, layer_type), fixed[1](X, positions, layer_type))


@pytest.mark.parametrize("shape", [(4, 2, 7), (7,), (1, 2, 7), ()], ids=str)
@pytest.mark.parametrize("max_len", [None, 1000])
def test_wrong_positions(shape, max_len):
    with pytest.raises(ValueError, match=r"positions is of shape .*, expected shape \(3, \.\.\.\)"):
        RotaryEmbedding(AXES, max_len=max_len)(X, torch.zeros(shape, dtype=torch.int64))


@pytest.mark.parametrize("rotary", [PLAIN, AXES], ids=["plain", "axes"])
@pytest.mark.parametrize("max_len", [None, 1000])
def test_modules_compile_and_export(rotary, max_len):
    module, positions = RotaryEmbedding(rotary, max_len=max_len), ROWS if rotary is PLAIN else ROWS.expand(3, -1, -1)
    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    exported = torch.export.export(module, (X, positions)).module()
    for function in (compiled, exported):
        assert same(function(X, positions), module(X, positions))
        assert max_len is None or torch.isnan(function(X, positions + max_len)[0]).all()


def test_positions_beyond_the_tables():
    module, unlimited = RotaryEmbedding(CONFIG, max_len=100), RotaryEmbedding(CONFIG)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    signed = [torch.tensor([[5, bad]]) for bad in (-1, 100, -(2**63), 2**63 - 1)]
    for positions in (*signed, *(signed[0].to(dtype) for dtype in UNSIGNED)):
        if positions.dtype != torch.uint64:
            assert same(module(X, positions), unlimited(X, positions))
        cos, sin = compiled(X, positions)
        assert torch.isnan(cos[0, 1]).all() and torch.isnan(sin[0, 1]).all() and torch.isfinite(cos[0, 0]).all()
    assert module(X, torch.empty(1, 0, dtype=torch.int64))[0].shape == (1, 0, 64)
    fractions = torch.tensor([[5.5]], dtype=torch.float64)
    assert same(module(X, fractions), unlimited(X, fractions))
    with pytest.raises(ValueError, match="max_len is 0, expected at least 1"):
        RotaryEmbedding(CONFIG, max_len=0)
    dynamic = CONFIG | {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 64}
    with pytest.warns(UserWarning, match="64 or more, but the frequencies are for at most 64 "):
        RotaryEmbedding(dynamic, max_len=65)(X, ROWS[:0])


def with_new_tensors_of_bfloat16(make):
    """Call make while new tensors have the dtype of the model, as in DeepSpeed's zero.Init."""
    def wrapped(function):
        def new(*arguments, **options):
            tensor = function(*arguments, **options)
            return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor

        return new

    with pytest.MonkeyPatch.context() as patch:
        for name in ("tensor", "empty", "zeros", "ones", "full", "arange", "eye", "randn"):
            patch.setattr(torch, name, wrapped(getattr(torch, name)))
        return make()


def on_meta(make):
    with torch.device("meta"):
        return make()


def autocast(module):
    forward = module.forward
    module.forward = torch.autocast("cpu", torch.bfloat16)(forward)
    return module


# how to damage a module, and whether this changes the results of the model's own module
DAMAGE = {
    "to": (lambda make: make().to(torch.bfloat16), True), "half": (lambda make: make().half(), True),
    "double": (lambda make: make().double(), False),
    "to_empty": (lambda make: make().to_empty(device="cpu"), True),
    "meta": (lambda make: on_meta(make).to_empty(device="cpu"), True),
    "meta, to": (lambda make: make().to("meta").to_empty(device="cpu").half(), True),
    "zero.Init": (with_new_tensors_of_bfloat16, True), "autocast": (lambda make: autocast(make()), False),
    "deepcopy": (lambda make: copy.deepcopy(make()), False),
    "pickle": (lambda make: pickle.loads(pickle.dumps(make())), False),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("damage, changes_the_models_own", DAMAGE.values(), ids=DAMAGE)
def test_tables_cannot_be_damaged(damage, changes_the_models_own):
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = transformers.LlamaConfig(
        hidden_size=64, num_attention_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    torch.use_deterministic_algorithms(True)            # fills uninitialized memory with NaN
    try:
        own, ours = damage(lambda: LlamaRotaryEmbedding(config)), damage(lambda: RotaryEmbedding(config, max_len=1000))
        for _ in range(2):
            assert same(rows_of_table(ours, X, ROWS), RotaryEmbedding(config)(X, ROWS))
        assert same(own(X, ROWS), LlamaRotaryEmbedding(config)(X, ROWS)) != changes_the_models_own
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("rotary", [PLAIN, AXES], ids=["plain", "axes"])
@pytest.mark.parametrize("eager", [False, True])
def test_a_call_neither_copies_nor_synchronizes(rotary, eager, monkeypatch):
    """A call on the meta device, which has the same operators as a call on a GPU."""
    monkeypatch.setattr(posenc.torch._tensor_arguments, "is_eager", lambda: eager)
    module = RotaryEmbedding(rotary, max_len=1000).to("meta")
    x, positions = torch.zeros(1, device="meta"), torch.zeros(1, 5, dtype=torch.int64, device="meta")

    def operators(module):
        class Names(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, operator, types, arguments=(), options=None):
                names.append(operator.overloadpacket.__name__)
                return operator(*arguments, **options or {})

        names = []
        with Names():
            module(x, positions)
        return set(names)

    gathered = {"gather", "expand", "select"} if rotary is AXES else set()
    assert operators(module) == {"clamp", "add", "embedding", "split", "cat"} | gathered
    assert "encode" in operators(RotaryEmbedding(rotary))


@pytest.mark.filterwarnings("ignore")
def test_tables_in_onnx(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    module = RotaryEmbedding(CONFIG, max_len=1000)
    torch.onnx.export(module, (X, ROWS), tmp_path / "rope.onnx", dynamo=True, verbose=False,
                      input_names=["x", "positions"])
    session = runtime.InferenceSession(tmp_path / "rope.onnx", providers=["CPUExecutionProvider"])
    inputs = {"positions": ROWS.numpy(), "x": X.numpy()}
    results = session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()})
    assert same(map(torch.from_numpy, results), module(X, ROWS))


def test_activation_checkpointing():
    """torch.utils.checkpoint allows only one access to the tensors saved for the derivative."""
    rotary, positions = Rotary(8), torch.tensor([5, 7, 9])

    def loss(x):
        return rotate(x, positions, rotary=rotary).square().sum()

    x, y = (torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
            for _ in range(2))
    torch.utils.checkpoint.checkpoint(loss, x, use_reentrant=False).backward()
    loss(y).backward()
    assert torch.equal(x.grad, y.grad)
