"""Run a model with vectors of our own in place of its queries and keys, and take them where they enter the attention.

Only this file uses PyTorch.  A `Run` sees every function that the model calls.  Projections return fixed
random vectors instead of products, so that no time is spent on weights.  A `Source` is the first tensor that
has the vectors before the rotation.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode

from posenc.check.match import Array

Module = nn.Module
PRODUCTS = {torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__, torch.baddbmm, Tensor.baddbmm, torch.einsum}
SOFTMAX = {torch.softmax, functional.softmax, Tensor.softmax}
SAME = 0.02             # distance of equal vectors that were computed in 16 bits, as a share of their length


class Done(BaseException):
    """Ends a run when the last attention that is needed has its queries and keys."""


def array_of_tensor(name: str, tensor: Tensor) -> Array:
    """Return a tensor as an array, with the bits of bfloat16 as uint16."""
    if tensor.is_meta:
        raise ValueError(f"{name} is on the meta device, expected a tensor with values")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy()
    return tensor.numpy()


def stored_tensors(path: str) -> dict[str, Callable[[], Array]]:
    """Return a function for each tensor of a file that torch.save wrote, which returns it as an array."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise ValueError(f"{path}: torch.load(weights_only=True, mmap=True) raises {type(error).__name__}: {error}") from error
    tensors: dict[str, Callable[[], Array]] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, Tensor):
            is_narrow = value.dtype.itemsize == 1 and value.is_floating_point()
            tensors[prefix] = lambda: array_of_tensor(prefix, value.float() if is_narrow else value)
        for name, part in value.items() if isinstance(value, dict) else ():
            add(f"{prefix}.{name}" if prefix else str(name), part)

    add("", state)
    return tensors


def with_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that calls a function of tensors."""
    return lambda *arrays: function(*(torch.from_numpy(array.copy()) for array in arrays))


# ---- one run ---------------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """Queries and keys of shape (heads, rows, columns) where they enter an attention, with the modules that are running."""

    vectors: tuple[Tensor, Tensor]
    modules: tuple[Module, ...]
    records: Sequence[Record] = ()


class Record(NamedTuple):
    """The first row of a tensor with an axis of rows, and the form of the tensor."""

    form: tuple[Any, ...]       # the function that returned it, the axis, and the lengths of the other axes
    row: Tensor
    is_constant: bool           # whether the last row is equal


class Source(NamedTuple):
    """A tensor that has vectors before the rotation: `columns` of a row has their elements for each head."""

    record: Record
    columns: Tensor


class Run(TorchFunctionMode):
    """A call of a model with some number of rows.

    `sources` has, for the number of an attention, the source of queries or keys and the vectors to put there.
    """

    def __init__(self, rows: int, weights: Mapping[int, int], sources: Mapping[int, Any], last: int | None, recording: bool):
        super().__init__()
        self.rows, self.weights, self.sources, self.last, self.recording = rows, weights, sources, last, recording
        self.taken: list[Taken] = []
        self.modules: list[Module] = []
        self._start_attention()

    def _start_attention(self) -> None:
        self.records: list[Record] = []
        self.product: tuple[Tensor, Tensor] | None = None
        self.pending = list(self.sources.get(len(self.taken), ()))

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is functional.scaled_dot_product_attention:
            q, k, v = (kwargs.get(name, args[i] if i < len(args) else None) for i, name in enumerate(("query", "key", "value")))
            return self.take(q, k, q.new_zeros(*q.shape[:-1], v.shape[-1]))
        if function in SOFTMAX and self.product is not None:
            scores = args[0] if args else kwargs["input"]
            if scores.ndim > 1 and scores.shape[-2] == self.rows <= scores.shape[-1]:
                self.take(*self.product)
        is_projection = function is functional.linear and len(args) > 1 and id(args[1]) in self.weights
        result = self._projected(*args[:2]) if is_projection else function(*args, **kwargs)
        is_product = function in PRODUCTS and isinstance(result, Tensor) and result.ndim > 1
        if is_product and result.shape[-2] == self.rows <= result.shape[-1]:
            self.product = _factors(function, args) or self.product
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if self.recording or self.pending:
                self._see(function, tensor)
        return result

    def _projected(self, x: Tensor, weight: Tensor) -> Tensor:
        random = torch.Generator().manual_seed(self.weights[id(weight)])
        # the length should not be that of a normalized vector
        row = 3 * torch.randn(weight.shape[0], generator=random).to(x.device, x.dtype)
        return row.expand(*x.shape[:-1], -1).clone()

    def _see(self, function: Any, tensor: Any) -> None:
        """Record a tensor with an axis of rows; put vectors into it if it is the source of some."""
        if type(tensor) not in (Tensor, nn.Parameter) or not tensor.is_floating_point() or self.rows not in tensor.shape:
            return
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return
        axis = tensor.shape.index(self.rows)
        form = function, axis, (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
        if self.recording and tensor.numel() // self.rows > 1:
            first, last = (tensor.select(axis, k).detach().reshape(-1) for k in (0, -1))
            is_constant = bool((first - last).norm() <= SAME * first.norm())
            self.records.append(Record(form, first.clone(), is_constant))
        matching = [item for item in self.pending if self._is_source(item[0].record, function, tensor)]
        if matching:
            axis = matching[0][0].record.form[1]
            table = tensor.movedim(axis, 0)
            values = table.reshape(self.rows, -1).clone()
            for source, vectors in matching:
                for columns in source.columns:
                    values[:, columns] = vectors.to(values)
            table.copy_(values.reshape(table.shape))
            self.pending = [item for item in self.pending if not any(item is other for other in matching)]

    def _is_source(self, record: Record, function: Any, tensor: Tensor) -> bool:
        name, axis, lengths = record.form
        if name is not function or tensor.shape != (*lengths[:axis], self.rows, *lengths[axis:]):
            return False
        row = tensor.select(axis, 0).reshape(-1)
        return bool((row - record.row).norm() <= SAME * row.norm())

    def take(self, queries: Tensor, keys: Tensor, result: Any = None) -> Any:
        """Keep queries and keys; return the result."""
        queries, keys = (x.detach().reshape(-1, *x.shape[-2:]) for x in (queries, keys))
        self.taken.append(Taken((queries, keys), tuple(self.modules), self.records))
        if len(self.taken) - 1 == self.last:
            raise Done
        self._start_attention()
        return result

    def leave(self, *_: Any) -> None:
        self.modules.pop()

    def attention(self, module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Take the place of a function of transformers' AttentionInterface."""
        b, h, n = query.shape[:3]
        return self.take(query, key, query.new_zeros(b, n, h, value.shape[-1])), None


def _factors(function: Any, args: Sequence[Any]) -> tuple[Tensor, Tensor] | None:
    """Return the queries and keys of shape (..., rows, columns) in a product with the shape (..., rows, keys)."""
    if function is not torch.einsum:
        a, b = args[-2:]
        return a, b.mT
    equation, *rest = args
    operands = rest[0] if isinstance(rest[0], (tuple, list)) else rest
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    names = inputs.split(",")
    common = {*names[0]} - {*output}
    if not arrow or len(names) != 2 or len(common) != 1 or not common <= {*names[1]}:
        return None
    parts = []
    for letter in output[-2:]:
        index = next((i for i in (0, 1) if letter in names[i]), 0)
        kept = [name for name in names[index] if name not in (letter, *common)]
        order = [*kept, letter, *common]
        parts.append(operands[index].permute([names[index].index(name) for name in order]))
    return parts[0], parts[1]


# ---- models ----------------------------------------------------------------------------------------------------------


class Model:
    """A copy of a model with the same weights, and its arguments."""

    def __init__(self, model: Module, inputs: Any):
        shared = {id(p): p for p in model.parameters()}
        try:
            self.module = copy.deepcopy(model, shared).eval()
        except Exception:  # noqa: BLE001  (locks, generators and tensors of a graph cannot be copied)
            self.module = model
        self.inputs = inputs
        self.names = {id(module): name for name, module in self.module.named_modules()}
        self.weights = {id(p): number for number, p in enumerate(self.module.parameters())}
        tensors = [*self.module.parameters(), *self.module.buffers()]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.on_meta = [name for name, t in (*self.module.named_parameters(), *self.module.named_buffers()) if t.is_meta]
        parameters = inspect.signature(self.module.forward).parameters
        self.takes_positions = callable(inputs) or inputs is None and "position_ids" in parameters
        names = [name for name in ("past_key_values", "cache") if {name, "use_cache"} <= parameters.keys()]
        self.known: tuple[set[Any], set[Any]] = set(), set()        # see source_of: those of queries, and those of keys
        self.cache = names[0] if names and inputs is None else ""           # the parameter for a cache of keys and values

    def token(self) -> int:
        """Return the number of a token that has no special meaning."""
        config = vars(getattr(self.module, "config", None) or self)
        special = [value for name, value in config.items() if name.endswith(("token_id", "token_index"))]
        return next(i for i in range(1, 99) if all(i != value and i not in np.ravel(value) for value in special))

    def arguments(self, rows: int, positions: Array | None) -> tuple[Sequence[Any], Mapping[str, Any]]:
        given = self.inputs
        if positions is not None:
            at = torch.from_numpy(positions.copy()).to(self.device)
            if callable(given):
                given = given(at)
            else:
                at = at[..., None, :] if at.ndim == 1 else at[:, None]
                return [torch.full((1, rows), self.token(), device=self.device)], {"position_ids": at}
        elif given is None:
            return [torch.full((1, rows), self.token(), device=self.device)], {}
        return ((), given) if isinstance(given, Mapping) else (given if isinstance(given, tuple) else (given,), {})

    def rows(self) -> int:
        """Return the number of rows of the first attention if the arguments are given."""
        run = Run(0, self.weights, {}, 0, False)
        args, kwargs = self.arguments(0, None)
        with _observed(run), run, contextlib.suppress(Done):
            self.module(*args, **kwargs)
        return run.taken[0].vectors[0].shape[1] if run.taken else 0

    def run(self, rows: int, positions: Array | None = None, sources: Mapping[int, Any] = {}, last: int | None = None,
            recording: bool = False, **more: Any) -> tuple[list[Taken], Any]:
        """Call the model; return the queries and keys of each attention, and the result."""
        tensors = {number: [(source, torch.from_numpy(x.copy())) for source, x in items]
                   for number, items in sources.items()}
        run = Run(rows, self.weights, tensors, last, recording)
        args, kwargs = self.arguments(rows, positions)
        result = None
        with _observed(run), run, contextlib.suppress(Done):
            result = self.module(*args, **kwargs, **more)
        return run.taken, result


@contextlib.contextmanager
def _observed(run: Run) -> Iterator[None]:
    """Let a run know the modules that are running, and take the place of attention functions of transformers."""
    handles = [hooks.register_module_forward_pre_hook(lambda module, _: run.modules.append(module)),
               hooks.register_module_forward_hook(run.leave)]
    code = sys.modules.get("transformers.modeling_utils")
    interface = getattr(code, "ALL_ATTENTION_FUNCTIONS", None)
    before = dict(interface._local_mapping) if interface is not None else {}
    try:
        if interface is not None:
            interface._local_mapping.update(dict.fromkeys(list(interface), run.attention))
        yield
    finally:
        for handle in handles:
            handle.remove()
        if interface is not None:
            interface._local_mapping.clear()
            interface._local_mapping.update(before)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run a block without gradients, warnings, and changes of PyTorch's random numbers."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def moved(vectors: Tensor) -> Array:
    """Return a mask of the columns that differ between rows, in any head."""
    x = vectors.float()
    is_still = (x - x[:, :1]).abs() <= 0.01 * x.abs().nan_to_num().amax((1, 2), keepdim=True)
    return (~is_still).any(1).any(0).cpu().numpy()


def is_equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)


def close(a: Tensor, b: Tensor) -> bool:
    """Return whether the first heads have equal vectors, up to rounding errors."""
    if a.shape[1:] != b.shape[1:]:
        return False
    tolerance = 1e-3 if a.dtype.itemsize > 2 else 0.03
    a, b = a[0].float(), b[0].float()
    return bool((((a - b).abs() <= tolerance * a.nan_to_num().abs().max()) | a.isnan() & b.isnan()).all())


# ---- sources ---------------------------------------------------------------------------------------------------------


def source_of(
    vectors: Tensor, records: Sequence[Record], start: int, width: int, rotated: int, known: set[tuple[Any, ...]]
) -> Source | None:
    """Return the first record that has the first row of some vectors before their rotation, or None.

    The vectors are `width` columns from `start` on, the first `rotated` of which are rotated.  At position 0,
    the rotation changes no vector, except for a factor and the order of columns.  At any position, it changes
    no length of a pair.  A record with other factors than the last one precedes a normalization.  `known` has
    the numbers and forms of records that were found in other layers, which are tried first.
    """
    rows = vectors[:, 0, start : start + rotated].double().cpu()
    rows = torch.where(rows.isfinite(), rows, 0.0)
    unique = [row for i, row in enumerate(rows) if not any(torch.equal(row, other) for other in rows[:i])]
    constant = [record for record in records if record.is_constant]
    likely = [record for k, record in enumerate(records) if (k, record.form) in known]
    small = 1e-4 if vectors.dtype.itemsize == 2 else 1e-6
    for kept, error in ((likely, small), (constant, small), (constant, 1e-4), (records, 1e-6)):
        found = []
        for record in kept:
            row = record.row.double().cpu()
            columns: list[Tensor] = []
            factors: list[Tensor] = []
            for vector in unique if len(row) >= width else ():
                at = next((o for form in _offsets(row, vector, rotated, error) for o in form if o + width <= len(row)), None)
                if at is None:
                    break
                columns.append(torch.arange(at, at + width))
                factors.append(row[at : at + rotated].norm() / vector.norm())
            if len(columns) == len(unique):
                found.append((Source(record, torch.stack(columns)), torch.stack(factors)))
        for source, lengths in found:
            if torch.allclose(lengths, found[-1][1], rtol=SAME):
                known.add((next(k for k, record in enumerate(records) if record is source.record), source.record.form))
                return source
    return None


def _offsets(row: Tensor, vector: Tensor, width: int, error: float) -> Iterator[list[int]]:
    """Yield the offsets of a vector in a row, up to a factor: of its columns in three orders, or of the lengths of pairs."""
    half = width // 2
    first, second = vector[:half], vector[half : 2 * half]
    for order in (vector, torch.stack([first, second], 1).flatten(), torch.cat([vector[::2], vector[1::2]])):
        if len(order) == width:
            yield _aligned(row, order, 1, error)
    for lengths in (torch.hypot(first, second), torch.hypot(vector[::2], vector[1::2])) if half > 3 and width % 2 == 0 else ():
        for step, distance in ((1, half), (2, 1)):
            yield _aligned(torch.hypot(row[:-distance], row[distance:]), lengths, step, error)


def _aligned(row: Tensor, vector: Tensor, step: int, error: float) -> list[int]:
    """Return the offsets at which every `step`-th element of a row is a multiple of a vector."""
    if len(row) < step * (len(vector) - 1) + 1:
        return []
    products, squares = (functional.conv1d(x[None, None], y[None, None], dilation=step)[0, 0] for x, y in (
        (row, vector), (row**2, (vector != 0).to(row))))
    cosines = products.abs() / (squares.clamp_min(0).sqrt() * vector.norm()).clamp_min(1e-30)
    return torch.nonzero(cosines > 1 - error).flatten().tolist()
