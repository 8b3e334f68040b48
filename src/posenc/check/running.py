"""Run a model with known vectors as its queries and keys, and take these where they enter the attention.

In a run, a `Model` sees every function that is called.  Projections return fixed random vectors, equal in all
rows, instead of products.  So a tensor whose rows are equal has vectors before the rotation, and a `Source`
is the first one from which the queries or keys can come.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from posenc import Rotary
from posenc.check.match import ROUNDED, Array, on_axes

PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default}
SOFTMAX = {torch.softmax, functional.softmax, Tensor.softmax}
CONSECUTIVE = 2048      # positions of a model that chooses them; scores may have as many rows and columns
ROWS = 23               # rows of a run; no other axis should have this length
SAME = 0.02             # relative difference of factors that are equal up to roundings to 16 bits
ANY = -1                # rows of a run with an unknown number: no axis has this length
SMALL = 1e-4            # difference of the cosine from 1 for vectors of one direction


class Done(BaseException):
    """Ends a run when the last attention that is needed has its queries and keys."""


# ---- tensors -----------------------------------------------------------------------------------------------


def moved(vectors: Tensor) -> Array:
    """Return the columns that differ between rows, in any head."""
    return np.flatnonzero((~_near(vectors, vectors[:, :1], 0.01)).any(1).any(0).cpu())


def close(a: Tensor, b: Tensor) -> bool:
    """Return whether vectors are nearly equal: all heads, or the first if their numbers differ."""
    if a.shape[1:] != b.shape[1:]:
        return False
    heads = len(a) if len(a) == len(b) else 1
    return bool(_near(a[:heads], b[:heads], 1e-3 if a.dtype.itemsize > 2 else 0.03).all())


def _near(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    """Return a mask of the elements that are equal up to a share of the largest one, or NaN in both."""
    a, b = a.float(), b.float()
    return ((a - b).abs() <= tolerance * a.nan_to_num().abs().max()) | a.isnan() & b.isnan()


def contains(vectors: Tensor, rows: Tensor) -> Tensor:
    """Return a mask of the rows that are among those of the heads, up to roundings.

    The order is the same for all heads.  That of a rolling cache is not the order of the positions.  Either
    may have repeated heads.  A few rows may be rounded otherwise in the dtype, as after a normalization.
    """
    heads = max(len(vectors), len(rows))
    vectors, rows = (x.repeat_interleave(heads // len(x), 0) for x in (vectors, rows))
    order = torch.cdist(rows[0].float(), vectors[0].float()).argmin(1)
    tolerances = ROUNDED, max(ROUNDED, 2 * torch.finfo(rows.dtype).eps)
    equal, near = (_near(rows, vectors[:, order], each).all(2).all(0) for each in tolerances)
    return near if 2 * equal.sum() >= near.sum() - 1 else equal


# ---- sources -----------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """A tensor with equal rows: the function that returned it, the axis of rows, and a row.

    `columns` of the row have the elements of vectors before the rotation, for each head.
    """

    function: Any
    axis: int
    row: Tensor
    columns: Any = None

    def is_in(self, function: Any, tensor: Tensor) -> bool:
        """Return whether a tensor of another run is the same one, with another number of rows."""
        if self.function is not function or tensor.ndim != 1 + self.row.ndim:
            return False
        row = tensor.select(self.axis, 0)
        return row.shape == self.row.shape and close(row, self.row)

    def put(self, vectors: Array, tensor: Tensor) -> None:
        """Put vectors into the columns of a tensor, in place."""
        table = tensor.movedim(self.axis, 0)
        values = table.reshape(len(table), -1).clone()
        values[:, self.columns] = torch.from_numpy(vectors[:, None].copy()).to(values)
        table.copy_(values.reshape(table.shape))


def source_of(vectors: Tensor, records: Sequence[Source], rotary: Rotary) -> Source | None:
    """Return the first record that has the first row of some vectors before their rotation, or None.

    The last such record has it surely.  An earlier one with another length precedes a normalization, so it is
    no source.
    """
    heads, last, found = vectors[:, 0, : rotary.rotary_dim].double().cpu(), None, None
    finite = heads.isfinite().all(0)
    after = _forms(heads[:, finite])
    for record in reversed(records):
        row = record.row.double().cpu().reshape(-1)
        step = math.gcd(rotary.head_dim, len(row))
        if len(row) < rotary.head_dim:
            continue
        windows = row.unfold(0, rotary.head_dim, step)[:, : rotary.rotary_dim]
        before = _forms(windows[:, finite])
        pairs = [(before[0], after[0]), *itertools.product(before[1:], after[1:])]
        cosines, places = torch.stack([(a @ b.mT).abs() for a, b in pairs]).amax(0).round(decimals=9).max(0)
        if (cosines < 1 - SMALL).any():
            continue
        columns = places[:, None] * step + torch.arange(rotary.head_dim)
        factors = row[columns[:, : rotary.rotary_dim]].norm(dim=1) / heads.nan_to_num().norm(dim=1)
        last = factors if last is None else last
        if torch.allclose(factors, last, rtol=SAME):
            found = record._replace(columns=torch.unique(columns, dim=0))
    return found


def _forms(vectors: Tensor) -> list[Tensor]:
    """Return unit vectors, and those of the lengths of pairs in each layout.

    At position 0, the rotation changes no vector, except for a factor and the order of columns.  At any
    position, it changes no length of a pair.
    """
    half, forms = vectors.shape[1] // 2, [vectors]
    if half > 3 and vectors.shape[1] == 2 * half:
        forms.append(torch.hypot(vectors[:, :half], vectors[:, half:]))
        forms.append(torch.hypot(vectors[:, ::2], vectors[:, 1::2]))
    return [functional.normalize(form, dim=1) for form in forms]


# ---- models ------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """Queries and keys of shape (heads, rows, columns) in an attention.

    `name` and `config` are those of the innermost module that runs and has them, and `records` are possible
    sources.  `varies` states whether an argument of a projection had different rows.
    """

    vectors: tuple[Tensor, Tensor]
    name: str
    config: Any
    records: Sequence[Source]
    varies: bool


class Model(TorchFunctionMode):
    """A copy of a model with the same weights, and its arguments.

    In a run, it sees every function that is called.
    """

    def __init__(self, model: nn.Module, inputs: Any):
        super().__init__()
        self.inputs, self.axes, self.count, self.reach = inputs, 1, ROWS, CONSECUTIVE
        self.is_fixed = inputs is not None and not callable(inputs)
        self.module = copy.deepcopy(model, {id(p): p for p in model.parameters()}).eval()
        if "flash" in str(getattr(getattr(self.module, "config", None), "_attn_implementation", "")):
            cast(Any, self.module).set_attn_implementation("eager")     # fused kernels are not PyTorch's
        self.names = {id(module): name for name, module in self.module.named_modules()}
        self.weights = {id(p): number for number, p in enumerate(self.module.parameters())}
        tensors = itertools.chain(self.module.parameters(), self.module.buffers())
        self.device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        parameters = inspect.signature(self.module.forward).parameters
        self.takes_positions = callable(inputs) or inputs is None and "position_ids" in parameters
        self.positions = [name for name in ("position_ids", "decoder_position_ids") if name in parameters]
        names = [name for name in ("past_key_values", "cache") if {name, "use_cache"} <= parameters.keys()]
        self.cache = names[0] if names and inputs is None else ""       # the parameter for a cache
        self.more = {"use_cache": False} if "use_cache" in parameters and inputs is None else {}

    def token(self) -> int:
        """Return the number of a token that has no special meaning."""
        config = vars(getattr(self.module, "config", None) or self)
        special = [value for name, value in config.items() if name.endswith(("token_id", "token_index"))]
        return next(i for i in range(1, 99) if not any(i in np.ravel(value) for value in special))

    def arguments(self, rows: int, positions: Array | None) -> tuple[Sequence[Any], Mapping[str, Any]]:
        at = None if positions is None else torch.from_numpy(on_axes(positions, self.axes)).to(self.device)
        if self.inputs is None:
            tokens = [torch.full((1, rows), self.token(), device=self.device)]
            return tokens, {} if at is None else dict.fromkeys(self.positions, at[..., None, :])
        given = self.inputs(at) if callable(self.inputs) else self.inputs
        if isinstance(given, Mapping):
            return (), given
        return given if isinstance(given, tuple) else (given,), {}

    def run(
        self, rows: int, positions: Array | None = None, sources: Mapping[int, Any] = {},
        last: int | None = None, **more: Any
    ) -> tuple[list[Taken], Any]:
        """Call the model with some rows; return the queries and keys of each attention, and the result.

        `sources` has, for the number of an attention, sources and the vectors to put there; without sources,
        tensors with equal rows are recorded.  The run ends with the attention `last`.
        """
        args, kwargs = self.arguments(rows, positions if self.takes_positions else None)
        self.rows, self.sources, self.last, result = rows, sources, last, None
        self.taken: list[Taken] = []
        self.modules: list[nn.Module] = []
        self._start_attention()
        before = hooks.register_module_forward_pre_hook(lambda module, _: self.modules.append(module))
        after = hooks.register_module_forward_hook(lambda *_: self.modules.__delitem__(-1))
        with contextlib.suppress(Done), before, after, self, Products(self):
            result = self.module(*args, **{**kwargs, **self.more, **more})
        return self.taken, result

    def _start_attention(self) -> None:
        self.records: list[Source] = []
        self.varies = False
        self.product: tuple[Tensor, Tensor] | None = None
        self.pending = dict(enumerate(self.sources.get(len(self.taken), ())))

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is functional.scaled_dot_product_attention:
            q, k, v = (*args, *map(kwargs.get, ("query", "key", "value")[len(args) :]))[:3]
            self._take(q, k)
            return q.new_zeros(*q.shape[:-1], v.shape[-1])
        if function in SOFTMAX and self.product is not None:
            shape = (0, *(args[0] if args else kwargs["input"]).shape)
            # a column may be added to the scores; a router of experts has others
            if self.rows in (shape[-2], ANY) and shape[-1] - self.product[1].shape[-2] in (0, 1):
                self._take(*self.product)
        if function is functional.linear and len(args) > 1 and id(args[1]) in self.weights:
            result = self._projected(*args[:2])
        else:
            product, result = self.product, function(*args, **kwargs)
            if function is functional.linear:       # of other weights, such as converted ones of a router
                self.product = product
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            self._see(function, tensor)
        return result

    def _projected(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.rows in x.shape[:-1] and x.numel():
            axis = x.shape.index(self.rows)
            self.varies |= not close(x.select(axis, 0), x.select(axis, -1))
        random = torch.Generator().manual_seed(self.weights[id(weight)])
        # the length should not be that of a normalized vector
        row = 3 * torch.randn(weight.shape[0], generator=random).to(x.device, x.dtype)
        return row.expand(*x.shape[:-1], -1).clone()

    def _see(self, function: Any, tensor: Any) -> None:
        """Record a tensor with equal rows, or put vectors into it if it is the source of some."""
        if type(tensor) not in (Tensor, nn.Parameter) or torch._C._functorch.is_batchedtensor(tensor):
            return
        if not tensor.is_floating_point() or self.rows not in tensor.shape:
            return
        axis = tensor.shape.index(self.rows)
        table = tensor.movedim(axis, 0)
        if not self.sources and tensor.numel() > self.rows and close(table[0], table[-1]):
            self.records.append(Source(function, axis, table[0].clone()))
        here = [key for key, (source, _) in self.pending.items() if source.is_in(function, tensor)]
        for source, vectors in map(self.pending.pop, here):
            source.put(vectors, tensor)

    def _take(self, queries: Tensor, keys: Tensor) -> None:
        queries, keys = (x.detach().reshape(math.prod(x.shape[:-2]), *x.shape[-2:]) for x in (queries, keys))
        name = next(filter(None, (self.names.get(id(module)) for module in reversed(self.modules))), "model")
        configs = (getattr(module, "config", None) for module in reversed(self.modules))
        config = next((each for each in configs if each is not None), None)
        self.taken.append(Taken((queries, keys), name, config, self.records, self.varies))
        if len(self.taken) - 1 == self.last:
            raise Done
        self._start_attention()


class Products(TorchDispatchMode):      # type: ignore[no-untyped-call]
    """Shows a model the operands of products, also of those that `einsum` computes."""

    def __init__(self, model: Model):
        super().__init__()              # type: ignore[no-untyped-call]
        self.model = model

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in PRODUCTS:
            queries, keys = args[-2:]
            if self.model.rows in (queries.shape[-2], ANY) and self.model.rows <= keys.shape[-1]:
                self.model.product = queries, keys.mT
        return function(*args, **(kwargs or {}))
