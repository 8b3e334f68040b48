"""Run a model with vectors of our own in place of its queries and keys, and take them where they enter the attention.

Only this file uses PyTorch.  A `Run` sees every function that the model calls.  Projections return fixed
random vectors, equal in all rows, instead of products.  So a tensor whose rows are equal has vectors before
the rotation, and a `Source` is the first one from which the queries or keys can come.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

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


# ---- one run -----------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """A tensor with equal rows: the function that returned it, the axis of rows, other axes, and a row."""

    function: Any
    axis: int
    lengths: tuple[int, ...]
    row: Tensor

    def is_like(self, function: Any, tensor: Tensor) -> bool:
        """Return whether a tensor of another run is the same one, with another number of rows."""
        lengths = (*tensor.shape[: self.axis], *tensor.shape[self.axis + 1 :])
        return self.function is function and self.lengths == lengths and _is_near(
            tensor.select(self.axis, 0).reshape(-1), self.row)


class Source(NamedTuple):
    """A tensor that has vectors before the rotation: `columns` of a row has their elements for each head."""

    record: Record
    columns: Tensor


class Taken(NamedTuple):
    """Queries and keys of shape (heads, rows, columns) in an attention, with the running modules."""

    vectors: tuple[Tensor, Tensor]
    modules: tuple[Module, ...]
    records: Sequence[Record]


class Run(TorchFunctionMode):
    """A call of a model with some number of rows.

    `sources` has, for the number of an attention, the sources of queries and keys and the vectors to put there.
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
        self.keys = 0                               # the number of columns of the last product
        self.pending = list(self.sources.get(len(self.taken), ()))

    def __enter__(self) -> Any:
        self.hooks = (hooks.register_module_forward_pre_hook(lambda module, _: self.modules.append(module)),
                      hooks.register_module_forward_hook(lambda *_: self.modules.__delitem__(-1)))
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> Any:
        for hook in self.hooks:
            hook.remove()
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        return error[0] is Done

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is functional.scaled_dot_product_attention:
            q, k, v = (kwargs.get(name, args[i] if i < len(args) else None) for i, name in enumerate(("query", "key", "value")))
            self._take(q, k)
            return q.new_zeros(*q.shape[:-1], v.shape[-1])
        if function in SOFTMAX and self.product is not None:
            scores = args[0] if args else kwargs["input"]
            # a column may be added to the scores; a router of experts has others
            if scores.ndim > 1 and scores.shape[-2] == self.rows and scores.shape[-1] - self.keys in (0, 1):
                self._take(*self.product)
        if function is functional.linear and len(args) > 1 and id(args[1]) in self.weights:
            result = self._projected(*args[:2])
        else:
            result = function(*args, **kwargs)
        is_product = function in PRODUCTS and isinstance(result, Tensor) and result.ndim > 1
        if is_product and result.shape[-2] == self.rows <= result.shape[-1]:
            self.product, self.keys = _factors(function, args) or self.product, result.shape[-1]
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
        """Record a tensor with equal rows; put vectors into it if it is the source of some."""
        if type(tensor) not in (Tensor, nn.Parameter) or not tensor.is_floating_point() or self.rows not in tensor.shape:
            return
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return
        axis = tensor.shape.index(self.rows)
        if self.recording and tensor.numel() > self.rows:
            first, last = (tensor.select(axis, k).detach().reshape(-1) for k in (0, -1))
            if _is_near(first, last):
                self.records.append(Record(function, axis, (*tensor.shape[:axis], *tensor.shape[axis + 1 :]), first.clone()))
        for item in [item for item in self.pending if item[0].record.is_like(function, tensor)]:
            source, vectors = item
            table = tensor.movedim(source.record.axis, 0)
            values = table.reshape(self.rows, -1).clone()
            for columns in source.columns:
                values[:, columns] = vectors.to(values)
            table.copy_(values.reshape(table.shape))
            self.pending = [other for other in self.pending if other is not item]

    def _take(self, queries: Tensor, keys: Tensor) -> None:
        queries, keys = (x.detach().reshape(-1, *x.shape[-2:]) for x in (queries, keys))
        self.taken.append(Taken((queries, keys), tuple(self.modules), self.records))
        if len(self.taken) - 1 == self.last:
            raise Done
        self._start_attention()


def _factors(function: Any, args: Sequence[Any]) -> tuple[Tensor, Tensor] | None:
    """Return the queries and keys of shape (..., rows, columns) in a product of shape (..., rows, keys)."""
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
        order = [*(name for name in names[index] if name not in (letter, *common)), letter, *common]
        parts.append(operands[index].permute([names[index].index(name) for name in order]))
    return parts[0], parts[1]


# ---- models ------------------------------------------------------------------------------------------------


class Model:
    """A copy of a model with the same weights, and its arguments."""

    def __init__(self, model: Module, inputs: Any):
        shared = {id(p): p for p in model.parameters()}
        try:
            self.module = copy.deepcopy(model, shared).eval()
        except Exception:  # noqa: BLE001  (locks, generators and tensors of a graph cannot be copied)
            self.module = model
        if "flash" in str(getattr(getattr(self.module, "config", None), "_attn_implementation", "")):
            cast(Any, self.module).set_attn_implementation("eager")        # fused kernels are not functions of PyTorch
        self.inputs = inputs
        self.names = {id(module): name for name, module in self.module.named_modules()}
        self.weights = {id(p): number for number, p in enumerate(self.module.parameters())}
        tensors = dict((*self.module.named_parameters(), *self.module.named_buffers()))
        self.device = next((t.device for t in tensors.values()), torch.device("cpu"))
        self.on_meta = [name for name, tensor in tensors.items() if tensor.is_meta]
        parameters = inspect.signature(self.module.forward).parameters
        self.takes_positions = callable(inputs) or inputs is None and "position_ids" in parameters
        names = [name for name in ("past_key_values", "cache") if {name, "use_cache"} <= parameters.keys()]
        self.cache = names[0] if names and inputs is None else ""           # the parameter for a cache of keys and values
        self.more = {"use_cache": False} if "use_cache" in parameters and inputs is None else {}
        self.known: tuple[set[int], set[int]] = set(), set()        # see source_of: those of queries, and those of keys

    def token(self) -> int:
        """Return the number of a token that has no special meaning."""
        config = vars(getattr(self.module, "config", None) or self)
        special = [value for name, value in config.items() if name.endswith(("token_id", "token_index"))]
        return next(i for i in range(1, 99) if all(i != value and i not in np.ravel(value) for value in special))

    def arguments(self, rows: int, positions: Array | None) -> tuple[Sequence[Any], Mapping[str, Any]]:
        at = None if positions is None else torch.from_numpy(positions.copy()).to(self.device)
        if self.inputs is None:
            tokens = [torch.full((1, rows), self.token(), device=self.device)]
            return tokens, {} if at is None else {"position_ids": at[..., None, :] if at.ndim == 1 else at[:, None]}
        given = self.inputs(at) if callable(self.inputs) else self.inputs
        return ((), given) if isinstance(given, Mapping) else (given if isinstance(given, tuple) else (given,), {})

    def run(self, rows: int, positions: Array | None = None, sources: Mapping[int, Any] = {}, last: int | None = None,
            recording: bool = False, **more: Any) -> tuple[list[Taken], Any]:
        """Call the model; return the queries and keys of each attention, and the result."""
        tensors = {number: [(source, torch.from_numpy(x.copy())) for source, x in items]
                   for number, items in sources.items()}
        args, kwargs = self.arguments(rows, positions)
        result = None
        with Run(rows, self.weights, tensors, last, recording) as run:
            result = self.module(*args, **{**kwargs, **self.more, **more})
        return run.taken, result


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


def close(a: Tensor, b: Tensor) -> bool:
    """Return whether the first heads have equal vectors, up to rounding errors."""
    if a.shape[1:] != b.shape[1:]:
        return False
    tolerance = 1e-3 if a.dtype.itemsize > 2 else 0.03
    a, b = a[0].float(), b[0].float()
    return bool((((a - b).abs() <= tolerance * a.nan_to_num().abs().max()) | a.isnan() & b.isnan()).all())


def contains(vectors: Tensor, rows: Tensor) -> bool:
    """Return whether the first head has these rows, in any order, as in a rolling cache."""
    order = torch.cdist(rows[0].float(), vectors[0].float()).argmin(1)
    return close(rows, vectors[:, order])


def _is_near(a: Tensor, b: Tensor) -> bool:
    """Return whether vectors are equal, also if they were computed in 16 bits."""
    return bool((a - b).norm() <= SAME * a.norm())


# ---- sources -----------------------------------------------------------------------------------------------


def source_of(vectors: Tensor, records: Sequence[Record], width: int, rotated: int, known: set[int]) -> Source | None:
    """Return the first record that has the first row of some vectors before their rotation, or None.

    The vectors have `width` columns, the first `rotated` of which are rotated.  At position 0, the rotation
    changes no vector, except for a factor and the order of columns.  At any position, it changes no length of a
    pair.  A record with other factors than the last one precedes a normalization.  `known` has the numbers of
    records that were found in other layers, which are tried first.
    """
    heads = vectors[:, 0, :rotated].double().cpu()
    is_finite = heads.isfinite().all(0)
    small, every = 1e-4 if vectors.dtype.itemsize == 2 else 1e-6, range(len(records))
    for numbers, error in ((sorted(known & {*every}), small), (every, small), (every, 1e-4)):
        found = []
        for k in numbers:
            row = records[k].row.double().cpu()
            if len(row) < width:
                continue
            windows = row.unfold(0, width, math.gcd(width, len(row)))
            cosines = _cosines(windows[:, :rotated][:, is_finite], heads[:, is_finite])
            score = cosines.amax(0)
            if bool((score > 1 - error).all()):
                at = math.gcd(width, len(row)) * (cosines > score - 1e-9).int().argmax(0)
                columns = at[:, None] + torch.arange(width)
                lengths = row[columns[:, :rotated]].norm(dim=1) / heads.nan_to_num().norm(dim=1)
                found.append((k, Source(records[k], torch.unique(columns, dim=0)), lengths))
        for k, source, lengths in found:
            if torch.allclose(lengths, found[-1][2], rtol=SAME):
                known.add(k)
                return source
    return None


def _cosines(windows: Tensor, heads: Tensor) -> Tensor:
    """Return the cosines of the angles between windows and heads, the largest of several forms.

    These are the columns in three orders, and the lengths of pairs in two layouts.
    """
    half = heads.shape[1] // 2
    orders = [heads, torch.cat([heads[:, ::2], heads[:, 1::2]], 1)]
    if heads.shape[1] == 2 * half:
        orders.append(torch.stack([heads[:, :half], heads[:, half:]], 2).flatten(1))
    forms = [(windows, order) for order in orders]
    if half > 3 and heads.shape[1] == 2 * half:
        lengths = [[torch.hypot(x[:, :half], x[:, half:]), torch.hypot(x[:, ::2], x[:, 1::2])] for x in (windows, heads)]
        forms += [(a, b) for a in lengths[0] for b in lengths[1]]
    unit = functional.normalize
    return torch.stack([(unit(a, dim=1) @ unit(b, dim=1).mT).abs() for a, b in forms]).amax(0)
