"""Models: a model that runs with our vectors in place of its queries and keys is a function of x and positions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc._rotary.model_config import look_up
from posenc.check.comparison import RotaryMatch
from posenc.check.functions import Rotation
from posenc.check.match import ALIKE, Array, Reals, axes_of, float64_of, rounded, size_of
from posenc.check.mistakes import not_rotated
from posenc.check.reading import array_of, number
from posenc.check.report import RotaryReport, RotaryRow, best_of, row_of, unchecked_row
from posenc.check.rotations import SOURCE, longest, matched, merged
from posenc.check.running import Model, Module, Source, Taken, array_of_tensor, close, is_equal, moved, source_of, undisturbed

CHECK = "pass a function of x and positions that rotates them to posenc.check.assert_rotary(f, config)"
CACHED = 24, 5, 1           # rows of a call, and of those that continue it with a cache
ROWS = (67, 23, 11)         # rows of the first runs, as many as the model takes; no other axis should have such a length
CONSECUTIVE = 2048          # positions of a model that chooses them itself; its scores may have as many rows and columns
UNROTATED = "the queries and keys do not depend on the position"
STATED = "no rotation"       # in place of a layer type
OTHER = 0.37                # the elements of the keys while queries are compared, and of the queries while keys are compared


class Expected(NamedTuple):
    """The rotation in a configuration, or the reason why it has none; `config` is None if no configuration was given."""

    config: Any = None
    layer_type: str | None = None
    rotary: Rotary | None = None
    reason: str = ""


class Attention(NamedTuple):
    """An attention of a model: its number in a run, its name, and what was taken there in the first run."""

    number: int
    name: str
    taken: Taken
    config: Any


def check_rotary(model: Module, config: Any = None, *, inputs: Any = None, positions: Any = None) -> RotaryReport:
    """Run a model with known vectors in place of its queries and keys, and compare their rotation with the configuration.

    Parameters
    ----------
    model : torch.nn.Module
        The model, or a part of it with an attention.  A copy is called, with the same weights; the model does
        not change.
    config : transformers.PreTrainedConfig, mapping, dataclass or posenc.Rotary, optional
        The configuration, as for `posenc.Rotary.from_config`, or the expected rotation.  The default is the
        attribute ``config`` of the nearest module that contains the attention and has this attribute.
    inputs : mapping, tuple, tensor or callable, optional
        The arguments of the model, or a function that returns them for an array of positions, such as
        ``lambda positions: {"tokens": torch.ones(1, len(positions), dtype=int), "input_pos": positions}``.
        The default is a single token, repeated, as the first argument, and ``position_ids`` if the model has
        this parameter.
    positions : array_like, optional
        The positions of the rows if `inputs` is not callable, by default ``range(n)``.  With several axes, the shape is
        (axes, n).

    Returns
    -------
    RotaryReport
        A row for each attention; attentions that rotate alike share a row.  ``ok`` is True if the rotation of
        each was measured, and is right.  What cannot be measured is "not checked".

    Raises
    ------
    TypeError
        If an argument has a wrong type.

    See Also
    --------
    assert_rotary : Check a function of queries or keys and positions.
    identify_rotary : Identify a single table, function or module.
    posenc.torch.RotaryEmbedding : A replacement for a rotary module that is wrong or inexact.

    Notes
    -----
    Queries and keys are taken where they enter the attention: ``scaled_dot_product_attention``, an attention function of
    transformers, or a product that is followed by a softmax.  The first tensor that has them before their rotation is
    replaced by vectors such as unit vectors.  Products with weights are not computed.

    Examples
    --------
    >>> import posenc, posenc.torch, torch
    >>> from torch.nn.functional import scaled_dot_product_attention
    >>> class Attention(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.qk, self.rotary_emb = torch.nn.Linear(8, 128), posenc.torch.RotaryEmbedding(posenc.Rotary(64))
    ...     def forward(self, input_ids, position_ids):
    ...         q, k = self.qk(torch.ones(*input_ids.shape, 8)).chunk(2, -1)
    ...         cos, sin = self.rotary_emb(q, position_ids)
    ...         q, k = (x * cos + torch.cat([-x[..., 32:], x[..., :32]], -1) * sin for x in (q, k))
    ...         return scaled_dot_product_attention(q[:, None], k[:, None], k[:, None])
    >>> report = posenc.check.check_rotary(Attention(), {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
    >>> report.ok, report[0].faults
    (False, ('base is 10000, the configuration has 500000',))
    """
    if not isinstance(model, Module):
        raise TypeError(f"model is {model!r} of type {type(model).__name__}, expected a torch.nn.Module")
    if config is not None and not isinstance(config, Rotary):
        readable = _readable(config)
        if readable is None:
            raise TypeError(f"config is {config!r} of type {type(config).__name__}, "
                            "expected a configuration from transformers, its dict, or a posenc.Rotary")
        config = look_up(readable, "text_config") or readable
    is_fixed = inputs is not None and not callable(inputs)
    if positions is not None and not is_fixed:
        raise TypeError("positions is given without inputs, expected both")
    with undisturbed():
        copy = Model(model, inputs)
        if copy.on_meta:
            return RotaryReport([unchecked_row("model", None, f"{copy.on_meta[0]} is on the meta device; load the weights")])
        try:
            at = None if positions is None else np.asarray(positions)
            at = np.arange(copy.rows()) if at is None and is_fixed else at
            attentions = _attentions(copy, config, at)
        except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
            reason = f"the model raises {type(error).__name__}: {error}; pass its arguments as inputs=, or {CHECK}"
            return RotaryReport([unchecked_row("model", None, reason)])
        if not attentions:
            return RotaryReport([unchecked_row("model", None, f"no attention was found; {CHECK}")])
        return RotaryReport(_rows(copy, attentions, at))


# ---- attentions ------------------------------------------------------------------------------------------------------


def _attentions(model: Model, config: Any, positions: Array | None) -> list[Attention]:
    """Run the model, and return its attentions."""
    axes = axes_of(_expectations(config if config is not None else getattr(model.module, "config", None))[0].rotary)
    for rows in ROWS if positions is None else (positions.shape[-1],):
        try:
            taken, _ = model.run(rows, on_axes(np.arange(rows), axes) if model.takes_positions else None, recording=True)
            break
        except Exception:
            if rows == ROWS[-1] or positions is not None:
                raise
    result: list[Attention] = []
    for number_, part in enumerate(taken):
        if any(all(map(is_equal, part.vectors, other.taken.vectors)) for other in result):
            continue                    # an attention in two parts
        of_modules: list[Any] = [m.config for m in part.modules if getattr(m, "config", None) is not None]
        # those of diffusers do not describe the rotation
        of_modules = [c for c in of_modules if not type(c).__module__.startswith("diffusers.")]
        name = next((model.names[id(m)] for m in reversed(part.modules) if id(m) in model.names), "")
        result.append(Attention(number_, name or "model", part, of_modules[-1] if config is None and of_modules else config))
    return result


def _readable(config: Any) -> Any:
    """Return an argument for `Rotary.from_config`: a configuration, or the attributes of another object, or None."""
    if isinstance(config, Mapping) or hasattr(config, "to_dict"):
        return config
    return None if isinstance(config, type) else getattr(config, "__dict__", None) or None


def _expectations(given: Any) -> list[Expected]:
    """Return the rotation of each layer type in a configuration."""
    if isinstance(given, Rotary):
        return [Expected(given, None, given)]
    config = _readable(given)
    if config is None:
        return [Expected(reason="no configuration was given; pass config=")]
    try:
        return [Expected(config, name, Rotary.from_config(config, name)) for name in Rotary.layer_types(config)]
    except (TypeError, ValueError) as error:
        return [Expected(config, reason=str(error))]


def _expected(attention: Attention, attentions: Sequence[Attention]) -> list[Expected]:
    """Return the rotation of an attention, or those of all layer types if the configuration does not say which it has."""
    every = _expectations(attention.config)
    same = [other.number for other in attentions if other.config is attention.config]
    flags = _listed(attention.config, "no_rope_layers")
    if len(flags) == len(same) and not flags[same.index(attention.number)]:
        return [Expected(attention.config, STATED)]
    names = [name for name in _listed(attention.config, "layer_types") if name in [each.layer_type for each in every]]
    if len(names) == len(same):
        name = names[same.index(attention.number)]
        return [each for each in every if each.layer_type == name]
    return every


def _listed(config: Any, name: str) -> Sequence[Any]:
    return () if isinstance(config, Rotary) or config is None else look_up(_readable(config), name) or ()


# ---- rows ------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """An attention with the sources of its vectors, or the reason why it has none."""

    attention: Attention
    expected: Expected
    sources: tuple[Source | None, Source | None] = (None, None)
    start: int = 0
    reason: str = ""


def _rows(model: Model, attentions: Sequence[Attention], positions: Array | None) -> list[RotaryRow]:
    """Return a row for each group of attentions that rotate alike."""
    groups: list[tuple[list[list[Place]], Any]] = []
    places = [[_place(model, attention, each, attentions) for each in _expected(attention, attentions)]
              for attention in attentions]
    taken = _values(model, [choices[0] for choices in places], positions)
    for choices in places:
        values = taken[choices[0].attention.number]
        for other, others in groups:
            if _are_alike(choices[0], values, other[0][0], others):
                other.append(choices)
                break
        else:
            groups.append(([choices], values))
    rows = []
    unrotated = {choices[0].attention.number for choices in places if choices[0].reason == UNROTATED}
    for group, values in groups:
        first = group[0]
        name = first[0].attention.name + (f" and {len(group) - 1} more" if len(group) > 1 else "")
        if first[0].reason == UNROTATED:
            rows.append(_unrotated_row(name, first[0], attentions, unrotated))
        else:
            is_called_once = sum(other.name == first[0].attention.name for other in attentions) == 1
            of_cache, label = _with_cache(model, first[0]) if is_called_once else ((), "queries and keys")
            faults = (*_faults_of_heads(first[0], values), *of_cache)
            rows.append(best_of([_row(model, name, place, positions, faults, label) for place in first]))
    return rows


def _faults_of_heads(place: Place, values: Taken) -> tuple[str, ...]:
    """Return a fault if a head has other vectors than the first one, in which the same vectors were rotated."""
    faults = []
    for source, vectors, what in zip(place.sources, values.vectors, ("", "keys: "), strict=True):
        stop = place.start + (len(source.columns[0]) if source is not None else 0)
        heads = vectors[..., place.start : stop]
        differing = [k for k in range(len(heads)) if source is not None and not close(heads, heads[k:])]
        faults += [f"{what}the heads are not rotated alike: head {differing[0]} differs from head 0"] if differing else []
    return tuple(faults)


def _with_cache(model: Model, place: Place) -> tuple[tuple[str, ...], str]:
    """Compare calls that continue with a cache with a single call; return the faults, and the label of what was compared."""
    total, start, cache, number, label = sum(CACHED), 0, None, place.attention.number, "queries and keys"
    vectors, wrong = _random(place, total), set()
    with contextlib.suppress(Exception):            # the model has no such cache
        whole = model.run(total, None, {number: vectors}, number)[0][number]
        for rows in CACHED if model.cache else ():
            part = {number: [(source, x[start : start + rows]) for source, x in vectors]}
            taken, result = model.run(rows, None, part, use_cache=True, **({} if cache is None else {model.cache: cache}))
            cache = getattr(result, model.cache)
            if start and taken[number].vectors[1].shape[1] == rows:         # the model is not a decoder
                return (), label
            for index, what in ((0, "queries"), (1, "keys")):
                parts = whole.vectors[index][:, start : start + rows], taken[number].vectors[index][:, -rows:]
                wrong |= set() if place.sources[index] is None or close(*parts) else {what}
            if not start and wrong:             # the first call has no cache, so something else differs
                return (), label
            start += rows
            label = "queries and keys, also with a cache" if start == total else label
    fault = f"{' and '.join(sorted(wrong, reverse=True))} of a call with a cache have other values than those of a call without"
    return (fault,) if wrong else (), label


def _unrotated_row(name: str, place: Place, attentions: Sequence[Attention], unrotated: set[int]) -> RotaryRow:
    """Return the row of attentions that do not rotate: right only if the configuration says which do not."""
    config, rotary = place.attention.config, place.expected.rotary
    row = unchecked_row(name, rotary, UNROTATED)
    same = [each.number for each in attentions if each.config is config]
    types, is_stated = _listed(config, "layer_types"), False
    if len(types) == len(same) and unrotated < {*same}:
        is_stated = not {types[k] for k, n in enumerate(same) if n in unrotated} & {
            types[k] for k, n in enumerate(same) if n not in unrotated}
    if rotary is None or is_stated:
        return row._replace(verdict="no rotation", faults=(place.expected.reason or UNROTATED,))
    if len(_listed(config, "no_rope_layers")) == len(same) or unrotated >= {*same}:
        result = RotaryMatch(None, math.inf, "", (not_rotated(range(rotary.rotary_dim // 2)),))
        return row_of(name, result, rotary, "queries and keys")
    return row._replace(faults=(f"{UNROTATED}, and the configuration does not state that these have no rotation",))


def _place(model: Model, attention: Attention, expected: Expected, attentions: Sequence[Attention]) -> Place:
    """Find the vectors before the rotation."""
    taken, rotary = attention.taken, expected.rotary
    width = taken.vectors[0].shape[-1]
    changing = [moved(vectors) for vectors in taken.vectors]
    if not any(part.any() for part in changing):
        return Place(attention, expected, reason=UNROTATED)
    rows, keys = (vectors.shape[1] for vectors in taken.vectors)
    if keys != rows and not callable(model.inputs):         # a function of positions may use a cache with a row for each
        return Place(attention, expected, reason=f"an attention has {keys} keys for {rows} queries; {CHECK}")
    head_dim = width if rotary is None else rotary.head_dim
    if head_dim > width:
        return Place(attention, expected, reason=f"queries have {width} columns, {SOURCE} head_dim {head_dim}; {CHECK}")
    first = min(int(np.flatnonzero(part)[0]) for part in changing if part.any())
    start = width - head_dim if first >= width - head_dim else 0
    rotated = head_dim if rotary is None else rotary.rotary_dim
    sources: list[Source | None] = []
    for index, vectors in enumerate(taken.vectors):
        if index and any(is_equal(vectors, other.taken.vectors[1]) for other in attentions if other.number < attention.number):
            sources.append(None)            # the keys of another layer
            continue
        source = source_of(vectors, taken.records, start, head_dim, rotated, model.known[index])
        if source is None:
            reason = f"the {('queries', 'keys')[index]} before the rotation were not found; {CHECK}"
            return Place(attention, expected, reason=reason)
        sources.append(source)
    return Place(attention, expected, (sources[0], sources[1]), start, "" if rotary is not None else expected.reason)


def _values(model: Model, places: Sequence[Place], positions: Array | None) -> Any:
    """Return rotated queries and keys by the number of the attention, for the same random vectors."""
    rows = ROWS[1] if positions is None else positions.shape[-1]
    items = {place.attention.number: _random(place, rows) for place in places}
    last = max((longest(place.attention.config) or 2**17 for place in places), default=2**17)
    for at in (np.rint(np.geomspace(1, last, rows)).astype(np.int64) - 1, np.arange(rows)):
        with contextlib.suppress(Exception):            # a table may end
            axes = max(axes_of(place.expected.rotary) for place in places)
            taken, _ = model.run(rows, on_axes(at, axes) if model.takes_positions else None, items)
            return taken
    return {place.attention.number: place.attention.taken for place in places}


def _random(place: Place, rows: int) -> list[tuple[Source, Array]]:
    """Return the sources of an attention, with the same random vectors for attentions of the same width."""
    rotary, width = place.expected.rotary, place.attention.taken.vectors[0].shape[-1]
    both = np.random.default_rng(2).normal(size=(2, rows, width if rotary is None else rotary.head_dim)).astype(np.float32)
    return [(source, x) for source, x in zip(place.sources, both, strict=True) if source is not None]


def _are_alike(place: Place, values: Any, other: Place, others: Any) -> bool:
    """Return whether two attentions rotate alike, or have the same reason not to be compared."""
    if (place.expected.config is not other.expected.config or place.expected.layer_type != other.expected.layer_type or
            place.reason != other.reason or place.start != other.start):
        return False
    if place.reason and place.sources == (None, None):
        return True
    if [s is None for s in place.sources] != [s is None for s in other.sources]:
        return False
    parts = zip(place.sources, values.vectors, others.vectors, strict=True)
    return all(source is None or close(a, b) for source, a, b in parts)


def _row(model: Model, name: str, place: Place, positions: Array | None, faults: tuple[str, ...], label: str) -> RotaryRow:
    rotary = place.expected.rotary
    if place.expected.layer_type == STATED:
        fault = "queries and keys are rotated, the configuration has no rotation for this layer"
        return row_of(name, RotaryMatch(None, math.inf, "", (fault,)), None, "queries and keys")
    if place.reason or rotary is None:
        return unchecked_row(name, rotary, place.reason)
    is_given = place.expected.config is rotary
    results, labels = [], [label]
    try:
        for index in (0, 1):
            if place.sources[index] is not None:
                f = Measured(model, place, index, rotary, positions)
                f.reach = min(f.reach if f.is_free else CONSECUTIVE, longest(place.expected.config) or f.reach)
                result, remark = _result(f, rotary, "expected" if is_given else SOURCE)
                results.append(result._replace(faults=(*result.faults, *_ends(f, result, longest(place.expected.config)))))
                labels += [remark] if remark else []
    except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
        return unchecked_row(name, rotary, f"a call raises {type(error).__name__}: {error}; {CHECK}")
    result = merged(results, rotary)
    orders = {part for each in results for part in [*each.reason.split("; "), ""] if "columns in another order" in part}
    counts = [sum(order in each.reason for each in results) for order in orders]
    if len(results) > len({*counts}) == 1 and counts[0] < len(results) or len(orders) > 1:
        faults = ("keys: the columns have another order than those of queries", *faults)
    return row_of(name, result._replace(faults=(*result.faults, *faults)), rotary, "; ".join(labels))


# ---- queries and keys as functions -----------------------------------------------------------------------------------


class Measured(Rotation):
    """The rotation of the queries (index 0) or keys (index 1) of an attention, as a function of x and positions."""

    def __init__(self, model: Model, place: Place, index: int, rotary: Rotary, positions: Array | None):
        self.model, self.place, self.index, self.positions = model, place, index, positions
        self.head_dim, self.axes = rotary.head_dim, axes_of(rotary)
        taken = place.attention.taken
        # the keys may be those of a cache that has a row for each position
        self.is_free = model.takes_positions and taken.vectors[0].shape[1] == taken.vectors[index].shape[1]
        self.width, self.dtype = taken.vectors[0].shape[-1], str(taken.vectors[0].dtype).removeprefix("torch.")
        self.length: float | None = None        # that of all results for x of length 1, if the model normalizes them

    def __call__(self, x: Array, positions: Array) -> list[Array]:
        result = self._rotated(x, positions)
        if self.length is None:
            return [result]
        y = float64_of(*array_of("x", result))
        lengths = np.linalg.norm(y, axis=1, keepdims=True)
        y = y / np.where(lengths > 0, lengths, 1) * self.length * np.linalg.norm(x, axis=1, keepdims=True)
        return [rounded(y, self.dtype).astype(np.float32)]

    def _rotated(self, x: Array, positions: Array) -> Array:
        """Call the model once if its positions can be chosen, else as many times as a position occurs."""
        if self.is_free:
            return self._run(x, on_axes(positions, self.axes), len(x))
        if self.positions is None:
            rows, length = positions.astype(int), max(int(positions.max()) + 1, ROWS[-1])
        else:
            is_at = positions[..., :, None] == self.positions[..., None, :]
            rows, length = np.argmax(is_at.reshape(-1, *is_at.shape[-2:]).all(axis=0), axis=1), self.positions.shape[-1]
        turns = np.array([np.count_nonzero(rows[:k] == row) for k, row in enumerate(rows)])
        parts = []
        for turn in range(turns.max() + 1):
            chosen = np.flatnonzero(turns == turn)
            padded = np.full((length, self.head_dim), OTHER, np.float32)
            padded[rows[chosen]] = x[chosen]
            at = on_axes(np.arange(length), self.axes) if self.model.takes_positions else None
            parts.append(self._run(padded, at, length)[rows[chosen]])
        order = np.concatenate([np.flatnonzero(turns == turn) for turn in range(turns.max() + 1)])
        return np.concatenate(parts)[np.argsort(order)]

    def _run(self, x: Array, positions: Array | None, rows: int) -> Array:
        number, both = self.place.attention.number, [np.full_like(x, OTHER), np.full_like(x, OTHER)]
        both[self.index] = x
        items = [(source, vectors) for source, vectors in zip(self.place.sources, both, strict=True) if source is not None]
        taken, _ = self.model.run(rows, positions, {number: items}, number)
        heads = array_of_tensor("x", taken[number].vectors[self.index][:, :rows])
        return heads[0, :, self.place.start : self.place.start + self.head_dim]

    def lengths(self) -> Reals:
        """Return the lengths of random vectors and of their doubles after the rotation, as shares of those before."""
        at = np.arange(16) if self.positions is None else self.positions
        x = np.random.default_rng(1).integers(-16, 16, (at.shape[-1], self.head_dim)).astype(np.float32) / 8
        y = [*self.values(x, at), *self.values(2 * x, at)]
        lengths = np.concatenate([np.linalg.norm(part, axis=1) / np.linalg.norm(x, axis=1) for part in y])
        return np.asarray(lengths / np.repeat((1, 2), len(x)))


def on_axes(positions: Array, axes: int) -> Array:
    """Return positions of shape (n,) with the same positions on each axis, if there are several."""
    return np.tile(positions, (axes, 1)) if axes > 1 and positions.ndim == 1 else positions


def _ends(f: Measured, result: RotaryMatch, length: int | None) -> tuple[str, ...]:
    """Return the fault if a call fails at positions that the configuration allows."""
    end = next((part for part in result.reason.split("; ") if part.startswith("a call with positions")), "")
    if not end or length is None:
        return ()
    last = int(end.split()[6].replace(",", ""))
    with contextlib.suppress(Exception):        # a table may grow with the sequence
        if f.is_free and last < 4 * CONSECUTIVE:
            f.model.run(last + 1, None, last=f.place.attention.number)
            return ()
    return (f"{end}; {SOURCE} max_position_embeddings {length:,}",)


def _at_points(f: Measured, rotary: Rotary) -> RotaryMatch:
    """Compare random vectors at given positions that differ between the axes."""
    assert f.positions is not None
    x = np.random.default_rng(3).normal(size=(f.positions.shape[-1], f.head_dim)).astype(np.float32)
    y, = f.values(x, f.positions)
    error = float(np.abs(y - rotary.rotate(x.copy(), f.positions)).max() / np.abs(x).max())
    fault = f"{('queries', 'keys')[f.index]} differ from the expected ones by up to {error:.2g} of the largest element"
    return RotaryMatch(rotary, error, "", () if error <= ALIKE * size_of(rotary) else (fault,))


def _result(f: Measured, rotary: Rotary, source: str) -> tuple[RotaryMatch, str]:
    """Compare the queries or keys, and return a remark about a factor that is not part of the rotation."""
    if f.positions is not None and f.positions.ndim == 2:
        return _at_points(f, rotary), ""
    lengths, size, what = f.lengths(), abs(size_of(rotary)), ("queries", "keys")[f.index]
    factor, target, remark = float(np.median(lengths)), rotary, ""
    # the softmax scale may be part of the queries, or half of it of queries and keys
    for scale in (1.0, f.width**-0.5, f.width**-0.25, factor / size if f.index == 0 and size == 1 else 1.0):
        if np.ptp(lengths) <= 0.02 * factor and any(
                math.isclose(factor, scale * c, rel_tol=0.01) for c in (size, 1.0, size**2, 1 / size)):
            if scale != 1:
                target, remark = rotary.replace(scale=rotary.scale * scale), f"{what} are multiplied by {number(scale)}"
            break
    result, _ = matched(f, target, source, f.positions, any_order=True, computes_in=f.dtype)
    if result.faults and np.ptp(lengths) > 0.02 * factor:
        # a power of two, so that a cosine of 1 is exact; not 1, because values are rounded once more
        f.length, remark = 0.5, f"the lengths of {what} are not those before the rotation, and were not compared"
        target = rotary.replace(scale=rotary.scale * f.length / size)
        other, _ = matched(f, target, source, f.positions, any_order=True, computes_in=f.dtype)
        result = result if other.faults else other
    if result.rotary is not None and target is not rotary:
        result = result._replace(rotary=result.rotary.replace(scale=result.rotary.scale * rotary.scale / target.scale))
    return result, remark
