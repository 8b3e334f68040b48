"""Models: a model with our vectors in place of its queries and keys is a function of x and positions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc._rotary.model_config import look_up
from posenc.check.comparison import RotaryMatch
from posenc.check.match import ALIKE, Array, Reals, axes_of, float64_of, rounded, size_of
from posenc.check.mistakes import not_rotated
from posenc.check.reading import Rotation, array_of, number
from posenc.check.report import RotaryReport, RotaryRow, best_of, row_of, unchecked_row
from posenc.check.rotations import SOURCE, longest, matched, merged
from posenc.check.running import Model, Module, Source, Taken, array_of_tensor, close, contains, moved, source_of, undisturbed

CHECK = "pass a function of x and positions that rotates them to posenc.check.assert_rotary(f, config)"
CACHED = 24, 5, 1           # rows of a call, and of those that continue it with a cache
ROWS = (67, 23, 11)         # rows of the first runs, as many as the model takes; no other axis should have such a length
CONSECUTIVE = 2048          # positions of a model that chooses them; its scores may have as many rows and columns
UNROTATED = "the queries and keys do not depend on the position"
STATED = "the configuration has no rotation for this layer"
OTHER = 0.37                # the elements of the keys while queries are compared, and of the queries while keys are compared
BOTH = ("queries", "keys")


class Place(NamedTuple):
    """An attention of a model, and the rotation that it should have; or the reason why it is not compared."""

    number: int                         # in a run
    name: str
    taken: Taken                        # in the first run
    config: Any = None                  # None if no configuration was given
    layer_type: Any = None              # in the configuration
    rotary: Rotary | None = None
    reason: str = ""
    rotates: bool = True                # whether its queries or keys depend on the position
    start: int = 0                      # the first column that may be rotated
    sources: tuple[Source | None, Source | None] = (None, None)


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
            if at is None and is_fixed:
                taken, _ = copy.run(0, last=0)
                at = np.arange(taken[0].vectors[0].shape[1] if taken else 0)
            places = _places(copy, config, at)
        except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
            reason = f"the model raises {type(error).__name__}: {error}; pass its arguments as inputs=, or {CHECK}"
            return RotaryReport([unchecked_row("model", None, reason)])
        if not places:
            return RotaryReport([unchecked_row("model", None, f"no attention was found; {CHECK}")])
        return RotaryReport(_rows(copy, places, at))


# ---- configurations ----------------------------------------------------------------------------------------


def _readable(config: Any) -> Any:
    """Return an argument for `Rotary.from_config`: a configuration, the attributes of an object, or None."""
    if isinstance(config, Mapping) or hasattr(config, "to_dict"):
        return config
    return None if isinstance(config, type) else getattr(config, "__dict__", None) or None


def _listed(config: Any, name: str, length: int) -> Sequence[Any]:
    """Return a list in a configuration with an element for each attention, or else an empty one."""
    values = () if isinstance(config, Rotary) or config is None else look_up(_readable(config), name) or ()
    return values if len(values) == length else ()


def _expectations(given: Any) -> list[dict[str, Any]]:
    """Return for each layer type in a configuration the rotation, or the reason why there is none."""
    config = None if isinstance(given, Rotary) else _readable(given)
    if config is None:
        return [{"rotary": given, "reason": "no configuration was given; pass config=" if given is None else ""}]
    try:
        return [{"layer_type": name, "rotary": Rotary.from_config(config, name)} for name in Rotary.layer_types(config)]
    except (TypeError, ValueError) as error:
        return [{"reason": str(error)}]


def _places(model: Model, config: Any, positions: Array | None) -> list[list[Place]]:
    """Run the model; return for each attention the places with the rotations that it may have."""
    axes = axes_of(_expectations(config if config is not None else getattr(model.module, "config", None))[0].get("rotary"))
    for rows in ROWS if positions is None else (positions.shape[-1],):
        try:
            taken, _ = model.run(rows, on_axes(np.arange(rows), axes) if model.takes_positions else None, recording=True)
            break
        except Exception:
            if rows == ROWS[-1] or positions is not None:
                raise
    found: list[Place] = []
    for number_, part in enumerate(taken):
        if any(_is_equal(part, other.taken, 0) and _is_equal(part, other.taken, 1) for other in found):
            continue                    # an attention in two parts
        of_modules: list[Any] = [m.config for m in part.modules if getattr(m, "config", None) is not None]
        # those of diffusers do not describe the rotation
        of_modules = [c for c in of_modules if not type(c).__module__.startswith("diffusers.")]
        name = next((model.names[id(m)] for m in reversed(part.modules) if id(m) in model.names), "")
        found.append(Place(number_, name or "model", part, of_modules[-1] if config is None and of_modules else config))
    places = []
    for place in found:
        same = [other.number for other in found if other.config is place.config]
        types, flags = (_listed(place.config, name, len(same)) for name in ("layer_types", "no_rope_layers"))
        index, every = same.index(place.number), _expectations(place.config)
        kind = types[index] if types else None
        if flags and not flags[index]:
            every = [{"reason": STATED}]
        chosen = [each for each in every if each.get("layer_type") == kind] or every
        variants: list[Place] = [place._replace(**dict[str, Any](each | {"layer_type": kind})) for each in chosen]
        places.append([_located(model, each, found) for each in variants])
    return places


def _is_equal(a: Taken, b: Taken, index: int) -> bool:
    return a.vectors[index].shape == b.vectors[index].shape and bool((a.vectors[index] == b.vectors[index]).all())


def _located(model: Model, place: Place, found: Sequence[Place]) -> Place:
    """Find the vectors before the rotation."""
    taken, rotary = place.taken, place.rotary
    changing = [moved(vectors) for vectors in taken.vectors]
    (rows, width), keys = taken.vectors[0].shape[1:], taken.vectors[1].shape[1]
    head_dim = width if rotary is None else rotary.head_dim
    if not any(part.any() for part in changing):
        return place._replace(reason=place.reason or UNROTATED, rotates=False)
    if rotary is None:
        return place
    if keys != rows and not callable(model.inputs):         # a function of positions may use a cache with a row for each
        return place._replace(reason=f"an attention has {keys} keys for {rows} queries; {CHECK}")
    if head_dim > width:
        return place._replace(reason=f"queries have {width} columns, {SOURCE} head_dim {head_dim}; {CHECK}")
    first = min(int(np.flatnonzero(part)[0]) for part in changing if part.any())
    start = width - head_dim if first >= width - head_dim else 0
    sources: list[Source | None] = []
    for index, vectors in enumerate(taken.vectors):
        if index and any(_is_equal(taken, other.taken, 1) for other in found if other.number < place.number):
            sources.append(None)            # the keys of another layer
            continue
        source = source_of(vectors[..., start:], taken.records, head_dim, rotary.rotary_dim, model.known[index])
        if source is None:
            return place._replace(reason=f"the {BOTH[index]} before the rotation were not found; {CHECK}")
        sources.append(source)
    return place._replace(start=start, sources=(sources[0], sources[1]))


# ---- rows --------------------------------------------------------------------------------------------------


def _rows(model: Model, places: Sequence[list[Place]], positions: Array | None) -> list[RotaryRow]:
    """Return a row for each group of attentions that rotate alike."""
    firsts: list[Place] = [choices[0] for choices in places]
    groups: list[list[list[Place]]] = []
    values = _values(model, [place for place in firsts if not place.reason], positions)
    for choices in places:
        alike = next((group for group in groups if _are_alike(choices[0], group[0][0], values)), None)
        groups.append([choices]) if alike is None else alike.append(choices)
    rows = []
    for group in groups:
        first = group[0][0]
        name = first.name + (f" and {len(group) - 1} more" if len(group) > 1 else "")
        if first.reason:
            rows.append(_uncompared_row(name, first, firsts))
            continue
        is_called_once = sum(other.name == first.name for other in firsts) == 1
        of_cache, label = _with_cache(model, first) if is_called_once else ((), "queries and keys")
        faults = (*_faults_of_heads(first, values[first.number]), *of_cache)
        rows.append(best_of([_row(model, name, place, positions, faults, label) for place in group[0]]))
    return rows


def _uncompared_row(name: str, place: Place, places: Sequence[Place]) -> RotaryRow:
    """Return the row of an attention without a rotation: right only if the configuration says so."""
    same = [other for other in places if other.config is place.config]
    alike = [other for other in same if other.layer_type == place.layer_type]
    still = [not any(other.rotates for other in others) for others in (same, alike)]
    fault = ""
    if place.rotates:
        fault = f"queries and keys are rotated, {STATED}" if place.reason == STATED else ""
    elif place.rotary is None or still[1] and not still[0]:         # the other types of layers have a rotation
        return unchecked_row(name, place.rotary, place.reason)._replace(verdict="no rotation")
    elif still[0] or _listed(place.config, "no_rope_layers", len(same)):
        fault = not_rotated(range(place.rotary.rotary_dim // 2))
    if fault:
        return row_of(name, RotaryMatch(None, math.inf, "", (fault,)), place.rotary, "queries and keys")
    unstated = "" if place.rotates else ", and the configuration does not state that these have no rotation"
    return unchecked_row(name, place.rotary, f"{place.reason}{unstated}")


def _values(model: Model, places: Sequence[Place], positions: Array | None) -> dict[int, Taken]:
    """Return rotated queries and keys by the number of the attention, for the same random vectors."""
    rows = ROWS[1] if positions is None else positions.shape[-1]
    items = {place.number: _random(place, rows) for place in places}
    last = max((longest(place.config) or 2**17 for place in places), default=2**17)
    for at in (np.rint(np.geomspace(1, last, rows)).astype(np.int64) - 1, np.arange(rows)):
        with contextlib.suppress(Exception):            # a table may end
            axes = max(axes_of(place.rotary) for place in places)
            taken, _ = model.run(rows, on_axes(at, axes) if model.takes_positions else None, items)
            return dict(enumerate(taken))
    return {place.number: place.taken for place in places}


def _random(place: Place, rows: int) -> list[tuple[Source, Array]]:
    """Return the sources of an attention, with the same random vectors for attentions of the same width."""
    both = np.random.default_rng(2).normal(size=(2, rows, len(_columns(place)))).astype(np.float32)
    return [(source, x) for source, x in zip(place.sources, both, strict=True) if source is not None]


def _columns(place: Place) -> range:
    """Return the columns of queries and keys that are compared."""
    assert place.rotary is not None
    return range(place.start, place.start + place.rotary.head_dim)


def _are_alike(place: Place, other: Place, values: Mapping[int, Taken]) -> bool:
    """Return whether two attentions rotate alike, or have the same reason not to be compared."""
    kinds = [(id(each.config), each.layer_type, each.reason, each.rotates, each.start, [s is None for s in each.sources])
             for each in (place, other)]
    return kinds[0] == kinds[1] and (bool(place.reason) or all(
        source is None or close(values[place.number].vectors[index], values[other.number].vectors[index])
        for index, source in enumerate(place.sources)))


def _faults_of_heads(place: Place, values: Taken) -> tuple[str, ...]:
    """Return a fault if the same vectors were rotated otherwise in a head than in the first one."""
    faults = []
    for source, vectors, of_keys in zip(place.sources, values.vectors, ("", "keys: "), strict=True):
        heads = vectors[..., _columns(place)]
        differing = [k for k in range(len(heads)) if source is not None and not close(heads, heads[k:])]
        faults += [f"{of_keys}the heads are not rotated alike: head {differing[0]} differs from head 0"] if differing else []
    return tuple(faults)


def _with_cache(model: Model, place: Place) -> tuple[tuple[str, ...], str]:
    """Compare calls that continue with a cache with a single call; return the faults and a label."""
    total, start, cache, number, label = sum(CACHED), 0, None, place.number, "queries and keys"
    vectors, wrong = _random(place, total), set()
    with contextlib.suppress(Exception):            # the model has no such cache
        whole = model.run(total, None, {number: vectors}, number)[0][number]
        for rows in CACHED if model.cache else ():
            part = {number: [(source, x[start : start + rows]) for source, x in vectors]}
            taken, result = model.run(rows, None, part, use_cache=True, **({} if cache is None else {model.cache: cache}))
            cache = getattr(result, model.cache)
            if start and taken[number].vectors[1].shape[1] == rows:         # the model is not a decoder
                return (), label
            for index, what in enumerate(BOTH):
                is_equal = contains(taken[number].vectors[index], whole.vectors[index][:, start : start + rows])
                wrong |= set() if place.sources[index] is None or is_equal else {what}
            if not start and wrong:             # the first call has no cache, so something else differs
                return (), label
            start += rows
            label = "queries and keys, also with a cache" if start == total else label
    fault = f"{' and '.join(sorted(wrong, reverse=True))} of a call with a cache have other values than those of a call without"
    return (fault,) if wrong else (), label


def _row(model: Model, name: str, place: Place, positions: Array | None, faults: tuple[str, ...], label: str) -> RotaryRow:
    """Compare queries and keys with the expected rotation."""
    rotary = place.rotary
    assert rotary is not None
    results, labels = [], [label]
    try:
        for index in (0, 1):
            if place.sources[index] is not None:
                result, remark = _result(Measured(model, place, index, rotary, positions), rotary, place.config is rotary)
                results.append(result)
                labels += [remark] if remark else []
    except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
        return unchecked_row(name, rotary, f"a call raises {type(error).__name__}: {error}; {CHECK}")
    result = merged(results, rotary)
    orders = {part for each in results for part in [*each.reason.split("; "), ""] if "columns in another order" in part}
    counts = [sum(order in each.reason for each in results) for order in orders]
    if len(results) > len({*counts}) == 1 and counts[0] < len(results) or len(orders) > 1:
        faults = ("keys: the columns have another order than those of queries", *faults)
    return row_of(name, result._replace(faults=(*result.faults, *faults)), rotary, "; ".join(labels))


# ---- queries and keys as functions -------------------------------------------------------------------------


class Measured(Rotation):
    """The queries (index 0) or keys (index 1) of an attention, as a function of x and positions."""

    def __init__(self, model: Model, place: Place, index: int, rotary: Rotary, positions: Array | None):
        self.model, self.place, self.index, self.positions = model, place, index, positions
        self.choices = None if positions is None else np.unique(positions, axis=-1)     # rows may have equal positions
        self.head_dim, self.axes, self.length = rotary.head_dim, axes_of(rotary), longest(place.config)
        queries, vectors = place.taken.vectors[0], place.taken.vectors[index]
        # the keys may be those of a cache that has a row for each position
        self.is_free = model.takes_positions and vectors.shape[1] == queries.shape[1]
        self.width, self.dtype = queries.shape[-1], str(queries.dtype).removeprefix("torch.")
        most = CONSECUTIVE if vectors.shape[1] == queries.shape[1] else vectors.shape[1]
        self.reach = min(self.reach if self.is_free else most, self.length or self.reach)
        self.unit: float | None = None          # the length of all results for x of length 1, if the model normalizes them

    def __call__(self, x: Array, positions: Array) -> list[Array]:
        """Call the model once if its positions can be chosen, else for each of the arrays."""
        if self.is_free:
            flat = x.reshape(-1, self.head_dim)
            result = self._run(flat, on_axes(np.tile(positions, len(x)), self.axes), len(flat)).reshape(x.shape)
        else:
            at = np.arange(max(int(positions.max()) + 1, ROWS[-1])) if self.positions is None else self.positions
            is_at = (positions[..., :, None] == at[..., None, :]).reshape(-1, x.shape[1], at.shape[-1]).all(axis=0)
            padded = np.full((len(x), at.shape[-1], self.head_dim), OTHER, np.float32)
            padded[:, np.argmax(is_at, axis=1)] = x
            chosen = on_axes(at, self.axes) if self.model.takes_positions else None
            result = np.stack([self._run(part, chosen, at.shape[-1]) for part in padded])[:, np.argmax(is_at, axis=1)]
        if self.unit is None:
            return [result]
        y = float64_of(*array_of("x", result))
        lengths = np.linalg.norm(y, axis=-1, keepdims=True)
        y = y / np.where(lengths > 0, lengths, 1) * self.unit * np.linalg.norm(x, axis=-1, keepdims=True)
        return [rounded(y, self.dtype).astype(np.float32)]

    def _run(self, x: Array, positions: Array | None, rows: int) -> Array:
        number, both = self.place.number, [np.full_like(x, OTHER), np.full_like(x, OTHER)]
        both[self.index] = x
        items = [(source, vectors) for source, vectors in zip(self.place.sources, both, strict=True) if source is not None]
        taken, _ = self.model.run(rows, positions, {number: items}, number)
        return array_of_tensor("x", taken[number].vectors[self.index][0, :rows, _columns(self.place)])

    def grows(self, length: int) -> bool:
        """Return whether a call with so many consecutive positions succeeds, as with a table that grows."""
        with contextlib.suppress(Exception):
            return self.is_free and length <= 4 * CONSECUTIVE and bool(
                self.model.run(length, None, last=self.place.number))
        return False

    def lengths(self) -> Reals:
        """Return the lengths of vectors and of their doubles after the rotation, as shares of those before."""
        far, near = np.unique(np.geomspace(1, self.reach, 24).astype(np.int64) - 1), np.arange(16)
        for at in (self.choices,) if self.choices is not None else (far, near) if self.is_free else (near,):
            x = np.random.default_rng(1).integers(-16, 16, (1, at.shape[-1], self.head_dim)).astype(np.float32) / 8
            with contextlib.suppress(Exception):            # a table may end
                y = np.concatenate([*self.values(x, at), *self.values(2 * x, at)])
                shares = np.linalg.norm(y, axis=-1) / np.linalg.norm([x[0], 2 * x[0]], axis=-1)
                if np.isfinite(shares).all():
                    break
        return np.asarray(shares.ravel())


def on_axes(positions: Array, axes: int) -> Array:
    """Return positions of shape (n,) with the same positions on each axis, if there are several."""
    return np.tile(positions, (axes, 1)) if axes > 1 and positions.ndim == 1 else positions


def _result(f: Measured, rotary: Rotary, is_given: bool) -> tuple[RotaryMatch, str]:
    """Compare the queries or keys, and return a remark about a factor that is not part of the rotation."""
    what, size, source = BOTH[f.index], abs(size_of(rotary)), "expected" if is_given else SOURCE
    if f.choices is not None and f.choices.ndim == 2:           # the axes have different positions, which are given
        x = np.random.default_rng(3).normal(size=(1, f.choices.shape[-1], f.head_dim)).astype(np.float32)
        y, = f.values(x, f.choices)
        error = float(np.abs(y - rotary.rotate(x.copy(), f.choices)).max() / np.abs(x).max())
        fault = f"{what} differ from the expected ones by up to {error:.2g} of the largest element"
        return RotaryMatch(rotary, error, "", () if error <= ALIKE * size else (fault,)), ""
    lengths, target, remark = f.lengths(), rotary, ""
    factor = float(np.median(lengths))
    # the softmax scale may be part of the queries, or half of it of queries and keys
    for scale in (1.0, f.width**-0.5, f.width**-0.25, factor / size if f.index == 0 and size == 1 else 1.0):
        if np.ptp(lengths) <= 0.02 * factor and any(
                math.isclose(factor, scale * c, rel_tol=0.01) for c in (size, 1.0, size**2, 1 / size)):
            if scale != 1:
                target, remark = rotary.replace(scale=rotary.scale * scale), f"{what} are multiplied by {number(scale)}"
            break
    result, _ = matched(f, target, source, f.choices, any_order=True, computes_in=f.dtype)
    if result.faults and np.ptp(lengths) > 0.02 * factor:
        # a power of two, so that a cosine of 1 is exact; not 1, because values are rounded once more
        f.unit, remark = 0.5, f"the lengths of {what} are not those before the rotation, and were not compared"
        target = rotary.replace(scale=rotary.scale * f.unit / size)
        other, _ = matched(f, target, source, f.choices, any_order=True, computes_in=f.dtype)
        result = result if other.faults else other
    if result.rotary is not None and target is not rotary:
        result = result._replace(rotary=result.rotary.replace(scale=result.rotary.scale * rotary.scale / target.scale))
    return result, remark
