"""posenc.torch: tensors with the same bits as posenc's arrays.

Modules, compiled graphs, checkpoints and DataLoader workers.
"""

import copy
import math
import multiprocessing
import pickle
import re
from functools import partial

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, bits_of
from posenc._core import kernel

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import posenc.torch  # noqa: E402
from posenc.torch import ChunkDataset, PositionalEncoding, PositionalTable  # noqa: E402
from posenc.torch._tensor_arguments import DTYPES, array_of, text_of  # noqa: E402
from workers import CountingThreads, use_two_threads  # noqa: E402

# from torch itself
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
NAMES = {name: dtype for dtype, name in DTYPES.items()}
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}
TEXT = '{"d_model": 6, "convention": {"base": 100.0}}'      # an encoding in a graph


def tensor_bits(tensor):
    """Return the bits of a tensor's elements, as an array of unsigned integers."""
    return tensor.detach().contiguous().view(BITS[tensor.dtype.itemsize]).numpy().view(f"u{tensor.dtype.itemsize}")


def assert_bits(tensor, values):
    __tracebackhide__ = True
    assert tensor.dtype == NAMES[values.dtype.name]
    assert_same_bits(tensor_bits(tensor), bits_of(values))


def embeddings(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


# ---- functions and operators -------------------------------------------------------------------------------


POSITIONS = {
    "int": 37, "range": range(10**12 + 5, 10**12 - 60, -7), "integers": torch.tensor([[0, 3], [-5, 2**62]]),
    "reals": torch.tensor([0.5, -2.25, 1e9], dtype=torch.float64),
    "bfloat16": torch.tensor([0.5, 255.0], dtype=torch.bfloat16), "strided": torch.arange(20)[::2],
    "up and down": torch.arange(9) % 2 * 2**62, "array": np.arange(5)[::-1], "list": [1.5, 2.5],
    "one": range(5, 6, 2**100), "one down": range(5, 4, -(2**100)), "empty": range(2**100, 0),
    "large steps": range(0, 2**63, 2**62), "larger steps": range(-(2**63), 2**63, 2**63 + 5),
    "larger steps down": range(2**63 - 1, -(2**63) - 1, -(2**63) - 5),
    "big-endian": np.array([[1, -2]], ">i2"),
}


def arrays(positions):
    """Return positions with tensors replaced by arrays."""
    if isinstance(positions, torch.Tensor):
        return (positions.double() if positions.is_floating_point() else positions).numpy()
    return positions


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
def test_bits_are_those_of_posenc(positions, dtype):
    convention = {"layout": "halves", "base": 500}
    expected = posenc.encode(arrays(positions), 18, dtype=dtype, **convention)
    assert_bits(posenc.torch.encode(positions, 18, dtype=NAMES[dtype], **convention), expected)
    x = embeddings(*expected.shape, dtype=NAMES[dtype])
    expected = posenc.add_to(array_of(x.clone()), arrays(positions), x_scale=6**0.5, **convention)

    def add(x):
        return posenc.torch.add_to(x.clone(), positions, x_scale=6**0.5, **convention)

    assert_bits(add(x), expected)
    assert_bits(torch.func.vjp(add, x)[0], expected)
    assert posenc.torch.add_to(x, positions, x_scale=6**0.5, **convention) is x
    assert_bits(x, expected)


SCALE, TWO, FREQUENCIES = torch.tensor(0.1, dtype=torch.bfloat16), torch.tensor(2), torch.tensor([0.1, 2.0, 1e-3])


@pytest.mark.parametrize("convention, same", [
    ({"base": torch.tensor(500), "scale": SCALE, "padding_idx": TWO},
     {"base": 500, "scale": SCALE.item(), "padding_idx": 2}),
    ({"frequencies": FREQUENCIES}, {"frequencies": FREQUENCIES.tolist()}),
    ({"frequencies": range(1, 4)}, {"frequencies": [1, 2, 3]}),
    ({"frequencies": np.array([1, 2, 3], np.int8)}, {"frequencies": [1, 2, 3]}),
    *[({"scale": np.float32(0.1), "position_scale": x},
       {"scale": float(np.float32(0.1)), "position_scale": x})
      for x in (5e-324, 1 / 3)],
], ids=str)
def test_constants_are_exact(convention, same):
    assert_bits(posenc.torch.encode(5, torch.tensor(6), **convention), posenc.encode(5, 6, **same))
    assert PositionalTable(6, **convention).encoding == posenc.Encoding(6, **same)


META = torch.arange(3, device="meta")


CALLS = {
    "add_to": lambda p: posenc.torch.add_to(torch.ones(3, 4), p),
    "encode": lambda p: posenc.torch.encode(p, 4, device="cpu"),
    "module": lambda p: PositionalEncoding(4)(torch.ones(3, 4), positions=p),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_positions_without_a_value_or_with_a_tangent(call):
    for function in (call, lambda p: torch.func.vmap(lambda x: call(p))(torch.ones(2))):
        with pytest.raises(ValueError, match="positions is on the meta device, expected values for a result"):
            function(META)
    p = torch.arange(3.0)
    with pytest.raises(RuntimeError, match="has a tangent, expected a constant"):
        torch.func.jvp(call, (p,), (torch.ones(3),))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="has a tangent, expected a constant"):
        call(forward_ad.make_dual(p, torch.ones(3)))
    trained = p.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=r"^positions requires grad or"):
        call(trained)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(call(trained), call(p))


LEARNED = {
    "encode": lambda p: posenc.torch.encode(3, 4, scale=p),
    "frequencies": lambda p: posenc.torch.encode(3, 4, frequencies=p.expand(2)),
    "add_to": lambda p: posenc.torch.add_to(torch.ones(3, 4), position_offset=p),
    "add_to's x_scale": lambda p: posenc.torch.add_to(torch.ones(3, 4), x_scale=p),
    "table": lambda p: PositionalTable(4, position_scale=p),
    "module's x_scale": lambda p: PositionalEncoding(4, x_scale=p),
    "dropout": lambda p: PositionalEncoding(4, p),
    "dataset": lambda p: ChunkDataset(3, 4, scale=p),
    "grid": lambda p: posenc.torch.grid((2, 2), 8, scale=p),
    "grid's frequencies": lambda p: posenc.torch.grid((2, 2), 8, frequencies=p.expand(2)),
    "grid's start": lambda p: posenc.torch.grid((2, 2), 8, start=(p, 0)),
    "grid's coordinates": lambda p: posenc.torch.grid((2, 2), 8, coordinates=[p, 3.0]),
    "points": lambda p: posenc.torch.points([[1, 2]], 8, position_scale=p),
}


@pytest.mark.parametrize("call", LEARNED.values(), ids=LEARNED)
def test_trainable_arguments_are_rejected(call):
    message = r"or has a tangent, expected a constant such as \w+\.detach\(\)"
    with pytest.raises(RuntimeError, match=message):
        call(nn.Parameter(torch.tensor(0.5)))
    # a module constructed here may be trained later
    with torch.no_grad(), pytest.raises(RuntimeError, match=message):
        call(nn.Parameter(torch.tensor(0.5)))
    for derivative in (torch.func.grad, torch.func.jacfwd):
        with pytest.raises(RuntimeError, match=message):
            derivative(call)(torch.tensor(0.5))
    with pytest.raises(ValueError, match=r"^\w+ is on the meta device, expected values"):
        call(torch.tensor(0.5, device="meta"))
    call(torch.tensor(0.5))


def scaled_sum(x, positions=None):
    return posenc.torch.add_to(x.clone(), positions, x_scale=6**0.5)


def test_add_to_has_the_same_bits_in_forward_mode_and_transforms(dtype):
    x = embeddings(2, 5, 6, dtype=NAMES[dtype])
    for positions in (None, torch.tensor([3, 1, 4, 1, 5])):
        expected = scaled_sum(x, positions)
        with forward_ad.dual_level():
            value, tangent = forward_ad.unpack_dual(scaled_sum(forward_ad.make_dual(x, torch.ones_like(x)),
                                                               positions))
        assert torch.equal(value, expected)
        assert (tangent == kernel.rounded(dtype, 6**0.5)).all()
        value, tangent = torch.func.jvp(partial(scaled_sum, positions=positions), (x,), (torch.ones_like(x),))
        assert torch.equal(value, expected)
        assert (tangent == kernel.rounded(dtype, 6**0.5)).all()
        assert torch.equal(torch.func.vmap(partial(scaled_sum, positions=positions))(x), expected)


def test_derivatives_of_add_to():
    x = embeddings(3, 4).double()
    for derivative in (torch.func.jacfwd, torch.func.jacrev):
        assert (derivative(scaled_sum)(x).reshape(12, 12) == 6**0.5 * torch.eye(12).double()).all()
    assert (torch.func.hessian(lambda x: scaled_sum(x).sum())(x) == 0).all()
    assert (torch.func.grad(lambda x: scaled_sum(x).sum())(x) == 6**0.5).all()
    assert torch.autograd.gradcheck(scaled_sum, (x.requires_grad_(),), check_forward_ad=True)


def test_add_to_changes_the_version_of_x():
    factor = embeddings(5, 6).requires_grad_() * 1
    for x in (factor, embeddings(5, 6)):
        product = factor * x
        posenc.torch.add_to(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


def test_the_gradient_is_multiplied_by_the_rounded_scale():
    grad = torch.arange(1, 256).repeat(2, 1).T.to(torch.bfloat16)
    operator = partial(torch.ops.posenc.add, positions=torch.arange(255),
                       encoding=text_of(posenc.Encoding(2)))
    for add in (posenc.torch.add_to, operator):         # compiled code calls the operator
        x = torch.zeros(255, 2, dtype=torch.bfloat16, requires_grad=True)
        add(x * 1, x_scale=1 / 3).backward(grad)
        assert torch.equal(x.grad, grad * torch.tensor(1 / 3, dtype=x.dtype))


def test_add_to_a_leaf_that_requires_grad():
    leaf = nn.Parameter(torch.ones(5, 6))
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        posenc.torch.add_to(leaf, x_scale=2.0)
    assert (leaf == 1).all()
    with torch.no_grad():
        posenc.torch.add_to(leaf)
    assert_bits(leaf, 1 + posenc.encode(5, 6))


def test_fake_tensors():
    with FakeTensorMode():
        x = torch.ones(3, 4)
        assert posenc.torch.add_to(x) is x
        for fake in (posenc.torch.encode(3, 4), posenc.torch.encode(torch.arange(3), 4),
                     PositionalEncoding(4)(x)):
            assert isinstance(fake, FakeTensor)
            assert fake.shape == (3, 4)
        positions = torch.arange(3)
    # the positions are fake outside the mode too
    assert isinstance(posenc.torch.encode(positions, 4), FakeTensor)
    real = torch.ones(3, 4)
    with pytest.raises(AssertionError, match="convert all Tensors to FakeTensors"):
        posenc.torch.add_to(real, positions)
    assert (real == 1).all()


class Wrapped(torch.Tensor):
    """A subclass that holds its elements in another tensor."""

    @staticmethod
    def __new__(cls, elements):
        return torch.Tensor._make_wrapper_subclass(cls, elements.shape, dtype=elements.dtype)

    def __init__(self, elements):
        self.elements = elements

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*(x.elements if isinstance(x, cls) else x for x in args), **kwargs or {})


def test_subclasses_and_lazily_negated_positions():
    x, expected = Wrapped(torch.ones(3, 4)), posenc.encode(range(5, 8), 4)
    posenc.torch.add_to(x, Wrapped(torch.arange(5, 8)))
    assert_bits(x.elements, 1 + expected)
    for positions in (Wrapped(torch.arange(5, 8)), torch._neg_view(-torch.arange(5.0, 8))):
        assert_bits(posenc.torch.add_to(torch.ones(3, 4), positions), 1 + expected)
        assert_bits(posenc.torch.encode(positions, 4), expected)
    assert_bits(posenc.torch.points(positions[:, None], 4), expected)
    assert posenc.torch.positions_from_mask(torch._neg_view(-torch.ones(2))).tolist() == [0, 1]


def test_inference_mode():
    x = torch.ones(3, 4)
    product = torch.ones(3, 4, requires_grad=True) * x
    with torch.inference_mode():
        y = torch.ones(3, 4)
        assert posenc.torch.add_to(y) is y
        assert posenc.torch.encode(3, 4).is_inference()
        posenc.torch.add_to(x)
    assert_bits(x, 1 + posenc.encode(3, 4))
    assert torch.equal(y, x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_the_cache_of_conventions():
    """The cache never uses tensors as keys."""
    scale = torch.tensor(1.0)
    for value in (1.0, 2.0):
        scale.fill_(value)
        assert_bits(posenc.torch.add_to(torch.zeros(3, 8), scale=scale), posenc.encode(3, 8, scale=value))


@pytest.mark.parametrize("call, name", [
    (posenc.add_to, "x"), (lambda x: posenc.encode(3, 4, out=x), "out"), (posenc.Rotary(4).rotate, "x"),
    (lambda x: posenc.add_to(x.numpy(), encoding=posenc.Encoding(4).replace(base=x)), "base"),
], ids=["add_to", "out", "rotate", "base"])
def test_errors_of_posenc_name_the_functions_for_tensors_and_print_no_values(call, name):
    with pytest.raises(TypeError, match=f"^{name} is of type Tensor, expected") as error:
        call(torch.full((3, 4), 0.125))
    assert "0.125" not in str(error.value)
    assert name == "base" or "posenc.torch.add_to, encode and rotate accept tensors" in str(error.value)


# A call, its error, and a fragment of the message.  test_mistakes.py tries every argument with values that
# are not tensors.
MISTAKES = """
posenc.torch.add_to(torch.ones(()))  ValueError  (..., n, d_model)
posenc.encode(3, 4, scale=torch.ones((), requires_grad=True))  TypeError  scale is tensor(1., requires_grad=True)
posenc.torch.add_to(torch.ones(1, 4).expand(3, 4))  ValueError  overlap
posenc.torch.encode(torch.ones(2) * 1j, 4)  TypeError  positions
posenc.torch.encode(torch.ones(2).to(torch.float8_e5m2), 4)  TypeError  positions
posenc.torch.encode(torch.ones(2).to_sparse(), 4)  TypeError  positions is nested or has layout torch.sparse_coo
posenc.torch.add_to(torch.ones(3, 4), out=torch.ones(3, 4).to_sparse())  TypeError  out is nested or has layout
PositionalEncoding(6)(torch.ones(3, 6), positions=torch.ones(2, 3))  ValueError  positions
posenc.torch.encode(3, 4, out=torch.ones(3, 4), device="meta")  ValueError  is on cpu, expected meta
posenc.torch.grid((3,), 4, out=torch.ones(3, 4, device="meta"))  TypeError  unexpected keyword argument 'out'
posenc.torch.points(torch.ones(3, 1), 4, device="cpu")  TypeError  unexpected keyword argument 'device'; besides
PositionalTable(20, 11)(torch.zeros(2, 7, 11))  ValueError  (..., n, 20)
"""


@pytest.mark.parametrize("line", MISTAKES.strip().split("\n"))
def test_mistakes(line):
    call, kind, fragment = re.split(r"  +", line)
    with pytest.raises((TypeError, ValueError)) as error:
        eval(call)
    assert error.type.__name__ == kind and fragment in str(error.value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operators_pass_opcheck(dtype):
    check = torch.library.opcheck
    check(torch.ops.posenc.encode.default, (torch.arange(6).reshape(2, 3), TEXT, dtype, torch.device("cpu")))
    x = embeddings(2, 5, 6, dtype=dtype)
    check(torch.ops.posenc.add.default, (x.requires_grad_(), torch.arange(3, 8), 1.5, TEXT))
    check(torch.ops.posenc.add.default, (x.detach()[0], torch.arange(5), 1.0, TEXT))


def test_periods():
    """Numbers are accepted everywhere; times only by functions, because there are no tensors of them."""
    rows = posenc.torch.encode(5, periods=[24, 7.5])
    assert_bits(rows, posenc.encode(5, periods=[24, 7.5]))
    functions = {
        "encode": lambda x: posenc.torch.encode(torch.arange(5), periods=(24, 7.5)) + 0 * x,
        "add_to": lambda x: posenc.torch.add_to(x * 1, periods=[24, 7.5]),
        "module": PositionalEncoding(4, periods=[24, 7.5]),
    }
    for function in functions.values():
        for run in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
            assert torch.equal(run(torch.zeros(5, 4)), rows)
    times = np.datetime64("2026-01-01T05", "h") + np.arange(5)
    expected = posenc.torch.encode(times, periods=["1D", "7D"])
    assert_bits(expected, posenc.encode(times, periods=["1D", "7D"]))
    for requires_grad in (False, True):
        x = torch.zeros(5, 4, requires_grad=requires_grad) * 1
        assert torch.equal(posenc.torch.add_to(x, times, periods=["1D", "7D"]), expected)
    for call in (PositionalEncoding, PositionalTable, partial(ChunkDataset, 5)):
        with pytest.raises(TypeError, match=r"periods are durations, expected numbers, as the positions of .* are numbers"):
            call(4, periods=["1D", "7D"])


# ---- modules -----------------------------------------------------------------------------------------------


def test_table_and_sum(dtype):
    x = embeddings(2, 7, 6, dtype=NAMES[dtype])
    assert_bits(PositionalTable(6)(x), posenc.encode(7, 6, dtype=dtype))
    assert_bits(PositionalEncoding(6)(x), posenc.add_to(array_of(x.clone())))
    assert_bits(PositionalEncoding(6, x_scale=6**0.5)(x), posenc.add_to(array_of(x.clone()), x_scale=6**0.5))


def test_bfloat16_is_rounded_once():
    """Casting a float32 table, as ``nn.Module.to`` does, would round twice and give different values."""
    module = PositionalTable(64, 4096)
    rounded_twice = module.pe.to(torch.bfloat16)
    expected = posenc.encode(4096, 64, dtype="bfloat16")
    assert (tensor_bits(rounded_twice) != bits_of(expected)).any()
    for table in (module(torch.empty(4096, 64, dtype=torch.bfloat16)), module.to(torch.bfloat16).pe,
                  module.bfloat16()()):
        assert_bits(table, expected)
    assert_bits(module.double().pe, posenc.encode(4096, 64, dtype="float64"))


def test_the_table_grows_but_not_to_a_large_start():
    module = PositionalEncoding(6)
    for n, rows in ((0, 0), (5, 5), (6, 10), (3, 10), (1000, 1000)):
        assert_bits(module(torch.zeros(2, n, 6))[1], posenc.encode(n, 6))
        assert len(module.pe) == rows
    for start in (10**15, 2**63 - 3, -5, -(2**63), np.int8(127), np.uint8(255), np.int64(2**63 - 3)):
        assert_bits(module(torch.zeros(3, 6), start=start),
                    posenc.encode(range(int(start), int(start) + 3), 6))
    assert len(module.pe) == 1000
    module = PositionalEncoding(6, max_len=8)
    assert_bits(module(torch.zeros(9, 6)), posenc.encode(9, 6))


def test_a_table_computed_in_inference_mode_can_be_used_in_training():
    module = PositionalEncoding(6)
    with torch.inference_mode():
        module(torch.zeros(2, 9, 6))
        module(torch.zeros(2, 9, 6))            # with the rows of the first call
    assert not module.pe.is_inference()
    x = torch.ones(2, 9, 6, requires_grad=True)
    (module(x) * module.pe).sum().backward()
    assert_bits(x.grad[0], posenc.encode(9, 6))


def test_repeated_calls():
    """A module keeps the rows of its last call, which do not serve another start, length, dtype or device."""
    module = PositionalEncoding(6)
    for start, n, dtype in [(1, 3, "float32")] * 2 + [(2, 3, "float32"), (2, 2, "float32"), (2, 2, "float64")]:
        x = torch.zeros(n, 6, dtype=getattr(torch, dtype))
        assert_bits(module(x, start=start), posenc.encode(range(start, start + n), 6, dtype=dtype))
        assert module(x.to("meta"), start=start).is_meta
    for start in (2.0, True):
        with pytest.raises(TypeError, match="start is "):
            module(x, start=start)
    assert not copy.deepcopy(module)._tables.__dict__


@pytest.mark.parametrize("batch_first", [True, False])
def test_cached_decoding(batch_first):
    module = PositionalEncoding(6, batch_first=batch_first)
    x = embeddings(2, 9, 6) if batch_first else embeddings(9, 2, 6)
    whole = module(x)
    for t in range(9):
        step = slice(None), slice(t, t + 1)
        step = step if batch_first else step[::-1]
        assert torch.equal(module(x[step], start=t), whole[step])


def test_positions():
    """Positions of shape (n,) apply to the axis of the rows, even if n is also the batch size."""
    module, x = PositionalEncoding(6), embeddings(3, 3, 6)
    starts = torch.tensor([[0], [100], [7]]) + torch.arange(3)
    for positions in (torch.tensor([0, 1, 0]), starts):
        rows = posenc.encode(positions.numpy(), 6)
        assert_bits(module(x, positions=positions), x.numpy() + rows)
        assert_bits(PositionalTable(6)(x, positions=positions), rows)
    positions = torch.tensor([4, 0, 9])
    y = PositionalEncoding(6, batch_first=False)(x, positions=positions)
    assert_bits(y, x.numpy() + posenc.encode(positions.numpy(), 6)[:, None])


def test_dropout():
    for length in (1, np.int64(1), 512, 1.5):
        with pytest.raises(ValueError, match=rf"dropout is {length}, .* pass a length as max_len="):
            PositionalEncoding(64, length)
    module = PositionalEncoding(64, 0.5)
    x = torch.full((4, 100, 64), 10.0)
    zeros = (module(x) == 0).float().mean()
    assert 0.4 < zeros < 0.6
    assert_bits(module.eval()(x)[0], np.float32(10) + posenc.encode(100, 64))
    module.dropout.train()          # Monte Carlo dropout: the rest of the module stays in eval mode
    assert 0.4 < (module(x) == 0).float().mean() < 0.6
    module.dropout = nn.Identity()
    assert torch.equal(module(x), module.eval()(x))
    module.dropout.register_forward_hook(lambda _module, _args, y: y + 1)
    assert torch.equal(module(x), x + posenc.torch.encode(100, 64) + 1)


def test_autocast():
    """The output of a layer in autocast has the dtype bfloat16, and the sum keeps it."""
    module, layer = PositionalEncoding(6), nn.Linear(6, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(embeddings(5, 6))
        assert_bits(module(y), posenc.add_to(array_of(y.detach().clone())))
        assert module(torch.zeros(5, 6)).dtype == torch.float32


def test_copies():
    module = PositionalEncoding(6, 0.25, max_len=8, base=100.0, x_scale=2.0, batch_first=False).eval()
    x = embeddings(9, 2, 6)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))
        assert other.encoding == module.encoding == posenc.Encoding(6, base=100.0)
        assert repr(other) == repr(module)
        assert other.pe.data_ptr() != module.pe.data_ptr()
    assert "Encoding(6, base=100.0), max_len=8, batch_first=False, x_scale=2.0" in repr(module)
    assert "PositionalTable(Encoding(6), max_sequence_length=9)" in repr(PositionalTable(6, max_sequence_length=9))


def test_meta_device():
    """``to_empty`` leaves buffers uninitialized, so the table must be recomputed."""
    with torch.device("meta"):
        module = nn.Sequential(PositionalEncoding(6, max_len=50), PositionalEncoding(6))
    assert module[0].pe.is_meta
    assert module[1](torch.empty(2, 3, 6, device="meta")).shape == (2, 3, 6)
    module.to_empty(device="cpu")
    assert_bits(module[0].pe, posenc.encode(50, 6))
    assert_bits(module(torch.zeros(7, 6)), 2 * posenc.encode(7, 6))
    x = torch.ones(3, 4, device="meta")
    assert posenc.torch.add_to(x, [1, 2, 3]) is x
    assert posenc.torch.encode(META, 4).is_meta and posenc.torch.encode([1, 2, 3], 4, device="meta").shape == (3, 4)


def test_tables_cannot_be_overwritten():
    module = PositionalTable(6, 50)
    module().add_(1)                    # a copy
    module(torch.zeros(3, 6)).add_(1)
    assert not [*module.buffers(), *module.parameters()]
    with pytest.raises(AttributeError):
        module.pe = torch.zeros(50, 6)
    assert_bits(module(), posenc.encode(50, 6))


# ---- outputs, nested tensors and other devices -------------------------------------------------------------


def test_out(dtype):
    positions, out = torch.tensor([[3, 1], [4, 1]]), torch.zeros(2, 2, 6, dtype=NAMES[dtype])
    memory = torch.zeros(2, 4, 6, dtype=NAMES[dtype])
    for target in (out, memory[:, ::2]):
        assert posenc.torch.encode(positions, 6, out=target) is target
        assert_bits(target, posenc.encode(positions.numpy(), 6, dtype=dtype))
        before = embeddings(2, 4, 6, dtype=NAMES[dtype])
        x = before.clone()[:, ::2]
        assert posenc.torch.add_to(x, positions, out=target, x_scale=0.3) is target
        assert torch.equal(x, before[:, ::2])
        assert torch.equal(target, posenc.torch.add_to(x, positions, x_scale=0.3))
    assert (memory[:, 1::2] == 0).all()
    for function in (lambda x, out: posenc.torch.encode(2, 6, out=out[0]),
                     lambda x, out: posenc.torch.add_to(x, out=out)):
        result = function(x, out.zero_()).clone()
        assert torch.equal(torch.compile(function, fullgraph=True, backend="aot_eager")(x, out.zero_()),
                           result)
        assert torch.equal(out if out.shape == result.shape else out[0], result)


@pytest.mark.parametrize("wrong", [
    torch.ones(3, 4), torch.ones(2, 4, dtype=torch.float64), torch.ones(2, 4, device="meta"),
    np.ones((2, 4), np.float32), torch.ones(1, 4).expand(2, 4),
], ids=["shape", "dtype", "device", "array", "overlap"])
def test_wrong_out(wrong):
    for call in (lambda: posenc.torch.encode(2, 4, out=wrong, dtype=torch.float32, device="cpu"),
                 lambda: posenc.torch.add_to(torch.ones(2, 4), out=wrong)):
        with pytest.raises((TypeError, ValueError, RuntimeError), match=r"out|written"):
            call()
    assert wrong.is_meta if getattr(wrong, "is_meta", False) else (wrong == 1).all()


@pytest.mark.parametrize("call, message", [
    (PositionalEncoding(6), r"x is nested .*, expected dense, as x\.values\(\)"),
    (posenc.torch.add_to, r"x is nested .*, expected dense, as x\.values\(\)"),
    (lambda x: posenc.torch.RotaryEmbedding(posenc.Rotary(6))(torch.ones(1), x.long()), "position_ids is nested"),
    (lambda x: PositionalEncoding(6)(torch.ones(2, 3, 6), positions=x.long()),
     "positions is nested or has layout torch.jagged"),
])
def test_nested_tensors_are_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call(torch.nested.nested_tensor([torch.ones(n, 6) for n in (4, 0, 2)], layout=torch.jagged))


def test_another_device():
    """Tables stay on the device: only results are copied to the CPU, here by the test."""
    fake_device = pytest.importorskip("fake_device")
    x, ids = embeddings(2, 5, 6), torch.tensor([[0, 1, 2, -1, -1], [0, 1, 2, 3, 40]])
    for module in (PositionalEncoding(6, padding_idx=-1), PositionalEncoding(6, padding_idx=-1, max_len=50)):
        for positions in (None, ids, ids.numpy(), ids[0], ids.to("fake")):
            expected = module(x,
                              positions=positions.cpu() if isinstance(positions, torch.Tensor) else positions)
            fake_device.COPIES.clear()
            y = module(x.to("fake"), positions=positions)
            assert y.device.type == "fake" and torch.equal(y.cpu(), expected)
            assert fake_device.COPIES == [(2, 5, 6)]
    assert torch.equal(module(x.to("fake"), positions=ids.to("fake") + 2**40).cpu().isnan(),
                       torch.full(x.shape, True))
    mask, lengths = torch.tensor([[1, 1], [0, 1]]).to("fake"), torch.tensor([2, 1]).to("fake")
    for result, expected in (
        (posenc.torch.positions_from_mask(mask, padding_idx=0, start=lengths), [[2, 3], [0, 1]]),
        (posenc.torch.positions_from_lengths(lengths, start=lengths), [2, 3, 1]),
        (posenc.torch.points(lengths[:, None], 2), posenc.points([[2], [1]], 2).tolist()),
        (posenc.torch.grid((2,), 2, device="fake", dtype=torch.float64),
         posenc.grid((2,), 2, dtype="float64").tolist()),
        (posenc.torch.encode(lengths, 2, out=torch.zeros(2, 2).to("fake")),
         posenc.encode([2, 1], 2).tolist()),
    ):
        assert result.device.type == "fake" and result.cpu().tolist() == expected


# ---- checkpoints and a trained model -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(5000, 1, 64), (1, 5000, 64), (5000, 64)], ids=str)
@pytest.mark.parametrize("key", ["pe", "pos_encoding", "pos_table"])
def test_old_checkpoints(key, shape, dtype):
    # as in PyTorch's tutorials
    frequencies = torch.exp(torch.arange(0, 64, 2) * (-math.log(10000.0) / 64))
    angles = torch.arange(5000)[:, None] * frequencies
    table = torch.stack([angles.sin(), angles.cos()], -1).reshape(shape).to(dtype)
    module = PositionalEncoding(64, batch_first=shape[1] != 1)
    assert module.state_dict() == {}
    module.load_state_dict({key: table}, strict=True)
    nn.ModuleDict({"encoder": nn.Sequential(module)}).load_state_dict({f"encoder.0.{key}": table}, strict=True)
    assert_bits(module(torch.zeros(9, 64)), posenc.encode(9, 64))


OTHER_TABLES = {
    "layout": (posenc.torch.encode(100, 64, layout="halves"), "does not match Encoding\\(64\\) up to float32 rounding"),
    "spacing": (posenc.torch.encode(100, 64, spacing="endpoint"), "does not match"),
    "shift": (posenc.torch.encode(100, 64, shift=0.01), "does not match"),
    "offset": (posenc.torch.encode(range(1, 100), 64), "does not match"),
    "learned": (embeddings(100, 64), "does not match"),
    "NaN": (torch.full((100, 64), math.nan), "does not match"),
    "width": (posenc.torch.encode(100, 32), r"pe of shape \(100, 32\)"),
    "sequence first": (posenc.torch.encode(100, 64)[:, None],
                       r"shape \(100, 1, 64\) .*batch_first=False"),
    "batch": (torch.zeros(3, 100, 64), r"of shape \(3, 100, 64\)"),
    "meta": (torch.zeros(100, 32, device="meta"), "of shape"),
    "scalar": (torch.tensor(1.0), r"of shape \(\)"),
    "integers": (torch.zeros(100, 64, dtype=torch.int64), "and dtype torch.int64 does not match"),
}


@pytest.mark.parametrize("table, message", OTHER_TABLES.values(), ids=OTHER_TABLES)
@pytest.mark.parametrize("strict", [True, False])
def test_checkpoints_of_another_convention_are_rejected(table, message, strict):
    with pytest.raises(RuntimeError, match=message):
        PositionalEncoding(64).load_state_dict({"pe": table}, strict=strict)
    PositionalEncoding(64).load_state_dict({"pe": torch.zeros(100, 64, device="meta")}, strict=strict)


# ---- a learned factor --------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", [None, torch.tensor([[3, 1, 4], [1, 5, 9]])], ids=["rows", "positions"])
def test_derivatives_with_a_learned_factor(positions):
    module = PositionalEncoding(6, x_scale=6**0.5, learned_scale=0.7).double()

    def run(x, alpha):
        return torch.func.functional_call(module, {"alpha": alpha}, (x,), {"positions": positions})

    x, alpha = embeddings(2, 3, 6).double().requires_grad_(), module.alpha
    table = posenc.torch.encode(3 if positions is None else positions, 6, dtype=torch.float64)
    torch.testing.assert_close(module(x, positions=positions), x * 6**0.5 + alpha * table)
    assert torch.autograd.gradcheck(run, (x, alpha), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(run, (x, alpha))


def test_a_learned_factor_of_one_changes_no_bit_or_dtype(dtype):
    x = embeddings(2, 50, 48, dtype=NAMES[dtype])
    module = PositionalEncoding(48, learned_scale=1.0)
    for cast in (module, copy.deepcopy(module).to(NAMES[dtype])):
        for enabled in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                assert torch.equal(cast(x), PositionalEncoding(48)(x)) and cast(x).dtype == x.dtype
        cast(x).sum().backward()
        assert cast.alpha.grad.dtype == cast.alpha.dtype


def test_a_learned_factor_is_a_parameter():
    module = PositionalEncoding(6, max_len=5, learned_scale=0.5, x_scale=2.0)
    assert dict(module.named_parameters()) == {"alpha": module.alpha}
    assert "x_scale=2.0, learned_scale=0.5" in repr(module)
    assert torch.equal(module(), 0.5 * posenc.torch.encode(5, 6))
    # some checkpoints store alpha with this shape
    module.load_state_dict({"alpha": torch.tensor([0.25])})
    assert torch.equal(copy.deepcopy(module)(), 0.25 * posenc.torch.encode(5, 6))
    with pytest.raises(RuntimeError, match=r'Missing key.* "alpha"'):
        module.load_state_dict({})
    assert list(PositionalEncoding(6).parameters()) == []
    PositionalEncoding(6).reset_parameters()
    with torch.device("meta"):
        module = PositionalEncoding(6, max_len=5, learned_scale=0.5)
    assert module.alpha.is_meta
    module.to_empty(device="cpu").reset_parameters()
    assert torch.equal(module(), 0.5 * posenc.torch.encode(5, 6))


# ---- compiled graphs ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")       # from inductor
def test_compiles(backend):
    for options in ({}, {"max_len": 12}, {"batch_first": False, "layout": "halves"}, {"learned_scale": 0.5}):
        torch._dynamo.reset()
        module = PositionalEncoding(6, x_scale=2.0, **options)
        compiled = torch.compile(copy.deepcopy(module), fullgraph=True, dynamic=True, backend=backend)
        for n, start in ((5, 0), (9, 3), (30, 0), (3, 10**12)):
            x = embeddings(n, 4, 6) if options.get("batch_first") is False else embeddings(4, n, 6)
            assert torch.equal(compiled(x, start=start), module(x, start=start))
            positions = torch.arange(n) * 3 % options.get("max_len", 99) - 1
            assert torch.equal(compiled(x, positions=positions), module(x, positions=positions))


TRANSFORMS = {
    "compiled": lambda module: torch.compile(module, backend="aot_eager"),
    "compiled for any length": lambda module: torch.compile(module, dynamic=True, backend="aot_eager"),
    "vmap": lambda module: lambda x, **options: torch.vmap(partial(module, **options))(x),
    "jvp": lambda module: lambda x, **options: torch.func.jvp(partial(module, **options), (x,), (x,))[0],
    "make_fx": lambda module: lambda x, **options: make_fx(partial(module, **options))(x)(x),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_positions_outside_the_domain_in_graphs(transform):
    """Integers of 64 bits wrap around, to positions that have other encodings."""
    x = torch.zeros(1, 4, 6)
    call = transform(PositionalEncoding(6))
    for start in (7, 2**62, 2**63 - 4, -(2**63)):
        assert_bits(call(x, start=start)[0], posenc.encode(range(start, start + 4), 6))
    for start in (2**63 - 3, 2**63 + 5, -(2**63) - 1):
        with pytest.raises(ValueError, match=r"^(start is|positions has) -?9223372036854775\d{3}, expected"):
            call(x, start=start)
    call = transform(PositionalEncoding(6, max_len=16, padding_idx=-1))
    rows = call(x, positions=torch.tensor([2**64 - 1, 2**63, 2**63 + 3, 3], dtype=torch.uint64))[0]
    assert rows[:3].isnan().all()
    assert_bits(rows[3], posenc.encode([3], 6)[0])


def test_positions_after_calls_without_positions():
    """After three lengths of x, its length is symbolic in the graph; that of the first positions is not."""
    module = PositionalEncoding(6)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for n in (5, 9, 30):
        compiled(embeddings(4, n, 6))
    for positions in (torch.arange(7), torch.arange(28).reshape(4, 7)):
        assert torch.equal(compiled(embeddings(4, 7, 6), positions=positions),
                           module(embeddings(4, 7, 6), positions=positions))


@pytest.mark.parametrize("positions", [0, range(7, 3), range(2**70, 2**70), range(4, 6, 9)], ids=str)
def test_no_rows_and_one_row_in_a_graph(positions):
    rotary = posenc.Rotary(6)

    def functions(x):
        encoded = posenc.torch.encode(positions, 6)
        return encoded, posenc.torch.add_to(x * 1, positions), posenc.torch.rotate(x, positions, rotary=rotary)

    x = embeddings(int(positions == range(4, 6, 9)), 6)
    results = torch.compile(functions, fullgraph=True, backend="aot_eager")(x)
    assert all(map(torch.equal, results, functions(x)))


class Functional(nn.Module):
    def __init__(self, encoding=None, **convention):
        super().__init__()
        self.encoding, self.convention = encoding, convention

    def forward(self, x):
        if self.encoding is not None:
            return posenc.torch.add_to(x * 1, encoding=self.encoding) + posenc.torch.encode(x.shape[-2], self.encoding)
        x = posenc.torch.add_to(x * 1, x.shape[-2], **self.convention)
        x = posenc.torch.add_to(x, range(7, 7 + x.shape[-2]), x_scale=2)
        return x + posenc.torch.encode(x.shape[-2], x.shape[-1], **self.convention)


@pytest.mark.parametrize("dynamic", [True, None])
def test_conventions_from_attributes_in_a_graph(dynamic):
    """torch.compile treats float attributes as variables.

    Each new value in a convention must cause a recompilation.
    """
    module = Functional(base=100.0, frequency_scale=2, layout="halves")
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for n, base in ((3, 100.0), (5, 100.0), (5, 250.5), (7, 1 / 3)):
        module.convention["base"] = base
        assert torch.equal(compiled(torch.ones(n, 4)), module(torch.ones(n, 4)))
    encoding = posenc.Encoding(4, base=100.0, position_offset=2.5)
    for module in (Functional(frequencies=[1.0, 0.1]), Functional(encoding)):
        compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        for n in (3, 5):
            x = embeddings(n, 4).requires_grad_()
            y = compiled(x)
            assert torch.equal(y, module(x))
            y.sum().backward()
            assert (x.grad == (1 if module.encoding else 2)).all()


def test_conventions_that_a_graph_cannot_contain():
    """Arrays, tensors and NumPy scalars cause a graph break, which does not change the values."""
    for convention in ({"frequencies": np.array([1.0, 0.1])}, {"scale": torch.tensor(0.5)},
                       {"base": np.float64(100)}):
        module = Functional(**convention)
        compiled = torch.compile(module, dynamic=True, backend="aot_eager")
        assert torch.equal(compiled(torch.ones(3, 4)), module(torch.ones(3, 4)))


@pytest.mark.filterwarnings("ignore")
def test_torchscript(tmp_path):
    """A traced module has rows for each length, even if it had a shorter table.

    Without a table, tracing is refused.
    """
    short, x = torch.zeros(2, 1, 16), embeddings(2, 50, 16)
    for module in (PositionalEncoding(16), nn.Sequential(PositionalEncoding(16)), PositionalTable(16)):
        module(short)
        with pytest.raises((RuntimeError, torch.jit.frontend.UnsupportedNodeError)):
            torch.jit.script(module)
        for call in (partial(torch.jit.trace, module, short),
                     partial(torch.onnx.export, module, (short,), tmp_path / "pe.onnx", dynamo=False)):
            with pytest.raises(RuntimeError, match=r"torch\.export"):
                call()
    for module in (PositionalEncoding(16, max_len=50), PositionalEncoding(16, max_len=50, batch_first=False)):
        traced = torch.jit.trace(module, short)
        assert torch.equal(traced(x), module(x))
        with pytest.raises(RuntimeError, match="size of tensor"):
            traced(torch.zeros(60, 60, 16))
    assert torch.jit.trace(PositionalEncoding(16, max_len=1), short)(x[:, :2])[:, 1].isnan().all()


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_positions_in_onnx_and_exported_programs(dynamo, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    module = PositionalEncoding(8, max_len=20, padding_idx=-1).eval()
    x, positions = embeddings(2, 5, 8), torch.tensor([[-1, -1, 0, 1, 2], [19, 7, 3, 1, 0]])
    expected = module(x, positions=positions)
    torch.onnx.export(module, (x, 0, positions), tmp_path / "pe.onnx", dynamo=dynamo, verbose=False)
    session = runtime.InferenceSession(tmp_path / "pe.onnx")
    inputs = {value.name: positions.numpy() if "int" in value.type else x.numpy()
              for value in session.get_inputs()}
    assert_same_bits(session.run(None, inputs)[0], expected.numpy())
    program = torch.export.export(module, (x,), {"positions": positions}).module()
    assert torch.equal(program(x, positions=positions), expected)
    assert program(x, positions=positions + 20).isnan().all(-1).tolist() == [[False, False, True, True, True], [True] * 5]


@pytest.mark.parametrize("max_len", [None, 64])
def test_export(max_len, tmp_path):
    module = PositionalEncoding(6, max_len=max_len)
    length = torch.export.Dim("length", max=64)
    # earlier calls do not change the exported program
    module(torch.zeros(2, 64, 6))
    program = torch.export.export(module, (torch.zeros(2, 5, 6),), dynamic_shapes={"x": {1: length}})
    operators = {str(node.target) for node in program.graph.nodes}
    assert ("posenc.encode.default" in operators) == (max_len is None)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    x = embeddings(2, 41, 6)
    assert torch.equal(loaded(x), module(x))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_export_to_onnx(dtype, tmp_path):
    """ONNX Runtime returns the bits of ``posenc.add_to`` for lengths other than the exported one."""
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    module = PositionalEncoding(64, max_len=128, layout="halves").to(dtype).eval()
    length = torch.export.Dim("length", max=128)
    arguments = (torch.zeros(2, 5, 64, dtype=dtype),)
    torch.onnx.export(module, arguments, tmp_path / "pe.onnx", dynamic_shapes={"x": {1: length}},
                      verbose=False)
    session = runtime.InferenceSession(tmp_path / "pe.onnx")
    for n in (1, 41, 128):
        x = embeddings(2, n, 64, dtype=dtype).numpy()
        assert_same_bits(bits_of(session.run(None, {"x": x})[0]),
                         bits_of(posenc.add_to(x.copy(), layout="halves")))


# ---- DataLoader --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
# Python 3.12 or later, if other threads exist
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_workers(start_method):
    """Chunks equal posenc.encode and are in the order of the positions.

    Each takes one thread and at most 30 s.
    """
    if start_method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {start_method}")
    # after these calls, starting threads in a forked child could hang
    posenc.encode(1 << 16, 64, threads=2)
    torch.set_num_threads(2)
    (torch.ones(1 << 20) + 1).sum()

    positions = range(10**9, 10**9 - 7 * 40_000, -7)
    dataset = CountingThreads(positions, 512, chunk_rows=1 << 13, dtype=torch.bfloat16, base=500.0)
    # torch's threads hang in a forked child
    start = None if start_method == "fork" else use_two_threads
    workers = {"num_workers": 2, "multiprocessing_context": start_method, "worker_init_fn": start,
               "timeout": 30}
    tensors, values, started = zip(*DataLoader(dataset, batch_size=None, **workers), strict=True)
    assert len(tensors) == len(dataset) == 5
    assert torch.cat(tensors).tolist() == list(positions)
    assert_bits(torch.cat(values), posenc.encode(positions, 512, dtype="bfloat16", base=500.0))
    # the first chunk of each worker; the worker's queue starts threads later
    assert started[:2] == (0, 0)


@pytest.mark.parametrize("positions", [
    range(2**63 - 2, 2**63), range(-(2**63) + 1, -(2**63) - 1, -1), range(-(2**63), 2**63, 2**63 + 5),
    range(2**63 - 1, -(2**63) - 1, -(2**61) - 1), range(5, 6, 2**100), range(2**100, 0),
], ids=str)
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_chunks_of_every_range(positions, chunk):
    dataset = ChunkDataset(positions, 8, chunk_rows=chunk)
    chunks, expected = list(dataset), list(posenc.stream(positions, 8, chunk_rows=chunk))
    assert len(dataset) == len(chunks) == len(expected)
    for (tensor, values), same in zip(chunks, expected, strict=True):
        assert tensor.dtype == torch.int64
        assert tensor.tolist() == list(same.positions)
        assert_bits(values, same.values)


def test_chunks_of_a_very_long_range():
    dataset = ChunkDataset(range(-(2**63), 2**63, 4), 8, chunk_rows=1 << 10)
    assert len(dataset) == 2**52
    positions, _ = next(iter(dataset))
    assert positions.tolist() == list(range(-(2**63), -(2**63) + 4096, 4))
