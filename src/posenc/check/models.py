"""Models: the queries and keys of each attention are compared with the rotation in the configuration.

`check_rotary` runs a model on one repeated token, and takes the queries and keys where they enter an
attention.  Before their rotation, their rows are equal; running.py finds the first tensor that has them,
their source.  From then on, the model is run with known vectors in the source.  So an attention is a function
of vectors and positions, an `Attention`, and `matched` compares it as it compares the function of a user.
The verdict depends neither on the names of modules nor on their code.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from posenc import Rotary
from posenc._arguments import checks
from posenc._rotary.model_config import look_up
from posenc.check import running
from posenc.check.match import Array, Reals, axes_of, float64_of, size_of
from posenc.check.reading import REACH, REACHES, Rotation, array_of
from posenc.check.report import RotaryMatch, RotaryReport, RotaryRow, row_of, unchecked_row
from posenc.check.rotations import configuration, longest, matched, not_rotated
from posenc.check.running import Model, Source, Taken

CHECK = "pass a function of x and positions that rotates them to posenc.check.assert_rotary(f, config)"
CACHED = 24, 5, 1           # rows of a call, and of those that continue it with a cache
LATE = 509                  # rows of a run that compares layers, if the model chooses the positions
UNROTATED = "the queries and keys do not depend on the position"
VARIES = "vectors depend on the position before they are projected to queries and keys"
STATED = "the configuration has no rotation for this layer"
SEVERAL = f"the configuration has several rotations, but not the type of this layer; {CHECK}"
OWN = "the positions of this part are not those that were given, but other parts have these; check this part alone"
UNIT = 0.5                  # length of rescaled vectors: powers of two keep bits, and 1 would hide a rounding
BOTH = ("queries", "keys")
LISTS = ("layer_types", "no_rope_layers")       # in a configuration
# DeepSeek-V4's names of rotations, for its types of layers
ROTATIONS = {"sliding_attention": "main", "compressed_sparse_attention": "compress",
             "heavily_compressed_attention": "compress"}


def check_rotary(model: torch.nn.Module, config: Any = None, *, inputs: Any = None) -> RotaryReport:
    """Run a model with known vectors as queries and keys, and compare their rotation with the configuration.

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
        The positions of other arguments must be consecutive, from 0 on.  With several axes, the positions
        have the shape (axes, n).  The default is a single token, repeated, as the first argument, and
        ``position_ids`` if the model has this parameter.

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
    Queries and keys are taken where they enter the attention: ``scaled_dot_product_attention``, an attention
    function of transformers, or a product that is followed by a softmax.  Vectors such as unit vectors
    replace the first tensor that has them before their rotation.  Products with weights are not computed.

    Examples
    --------
    >>> import posenc, posenc.torch, torch
    >>> from torch.nn.functional import scaled_dot_product_attention
    >>> class Attention(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.qk = torch.nn.Linear(8, 128)
    ...         self.rotary_emb = posenc.torch.RotaryEmbedding(posenc.Rotary(64))
    ...     def forward(self, input_ids, position_ids):
    ...         q, k = self.qk(torch.ones(*input_ids.shape, 8)).chunk(2, -1)
    ...         cos, sin = self.rotary_emb(q, position_ids)
    ...         q, k = (x * cos + torch.cat([-x[..., 32:], x[..., :32]], -1) * sin for x in (q, k))
    ...         return scaled_dot_product_attention(q[:, None], k[:, None], k[:, None])
    >>> config = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
    >>> report = posenc.check.check_rotary(Attention(), config)
    >>> report.ok, report[0].faults
    (False, ('base is 10000, expected 500000',))
    """
    if not isinstance(model, torch.nn.Module):
        raise checks.wrong_type("model", model, "a torch.nn.Module")
    given = configuration(config, "config")
    with torch.no_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, reason = [], f"no attention was found; {CHECK}"
        try:
            copy = Model(model, inputs)
            rows = _rows(copy, _attentions(copy, given))
        except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
            raised = f"the model raises {type(error).__name__}: {error}"
            reason = raised if isinstance(error, ImportError) else f"{raised}; pass its arguments as inputs=, or {CHECK}"
        return RotaryReport(rows or [unchecked_row("model", None, reason)])


# ---- configurations ----------------------------------------------------------------------------------------


def _expected(config: Any, layer_type: Any = None, flag: Any = None) -> tuple[Any, str]:
    """Return the rotation of a layer in a configuration, if any, and the reason why it is not certain.

    `flag` is 0 if the configuration states that the layer has no rotation.
    """
    if flag == 0:
        return None, STATED
    if config is None or isinstance(config, Rotary):
        return config, "" if config else "no configuration was given; pass config="
    try:
        types = Rotary.layer_types(config)
        known = [name for name in (layer_type, ROTATIONS.get(layer_type)) if name in types]
        return Rotary.from_config(config, (known or types)[0]), "" if known or len(types) == 1 else SEVERAL
    except (TypeError, ValueError) as error:
        return None, str(error)


# ---- attentions --------------------------------------------------------------------------------------------


class Attention(Rotation):
    """The queries and keys of an attention, as a function of vectors before their rotation and of positions.

    It is the attention `number` of a run, and one of those with the configuration, `kin`.  Unless `reason`
    states why it cannot be compared, it has `sources`.
    """

    has_any_order = True                # products of queries and keys are the same
    start = 0                           # the first column that may be rotated

    def __init__(self, model: Model, number: int, taken: Sequence[Taken], config: Any, kin: Sequence[int]):
        own = taken[number]
        self.model, self.number, self.name, self.vectors = model, number, own.name, own.vectors
        self.config, self.length = config, longest(config)
        # calls of one module might exchange their keys in a cache
        self.has_cache = model.cache != "" and sum(other.name == own.name for other in taken) == 1
        (self.rows, self.width), self.keys = self.vectors[0].shape[1:], self.vectors[1].shape[1]
        self.is_free = model.takes_positions
        most = self.keys if self.keys != self.rows else self.reach if self.is_free else model.reach
        self.reach = min(most, self.length or most)
        # if not empty, queries and keys are divided by these factors (0: each row by its own length), and the
        # rotated columns multiplied by UNIT, others by the expected size
        self.divisors: dict[int, float] = {}
        self.sources: dict[int, Source] = {}                            # of queries (0) and of keys (1)
        self.labels = []                                                # of the heads
        # lists of the configuration with a value for each attention
        lists = [() if isinstance(config, Rotary) else look_up(config, name) or () for name in LISTS]
        self.layer_type, self.flag = [v[kin.index(number)] if len(v) == len(kin) else None for v in lists]
        self.rotary, self.reason = _expected(config, self.layer_type, self.flag)
        columns = np.concatenate([running.moved(vectors) for vectors in self.vectors])
        self.rotates = len(columns) > 0 or self.rows == 1
        if self.rotary is not None:
            self.reason = self._find_sources(taken, columns)

    def _find_sources(self, taken: Sequence[Taken], columns: Array) -> str:
        """Find the vectors before the rotation, given the columns that differ between rows.

        Return the reason if there are none.
        """
        own, head_dim = taken[self.number], self.rotary.head_dim
        if not self.rotates:
            return f"{VARIES}; {CHECK}" if own.varies else UNROTATED
        if self.reason:
            return self.reason
        if self.rotary.axes and not (self.is_free and self.keys == self.rows):
            return f"positions on several axes must be a parameter, or those of inputs=, a function; {CHECK}"
        # a function of inputs may use a cache
        if self.rows == 1 or self.keys != self.rows and not callable(self.model.inputs):
            return f"the numbers of queries and keys in an attention are {self.rows} and {self.keys}; {CHECK}"
        if head_dim > self.width:
            return f"queries have {self.width} columns, expected head_dim {head_dim}; {CHECK}"
        if min(columns) >= self.width - head_dim:
            self.start = self.width - head_dim
        # an attention may have the keys of one before it
        shared = any(running.close(own.vectors[1], other.vectors[1]) for other in taken[: self.number])
        for index, vectors in enumerate(own.vectors[: 1 if shared else 2]):
            source = running.source_of(vectors[..., self.start :], own.records, self.rotary)
            if source is None:
                return f"the {BOTH[index]} before the rotation were not found; {CHECK}"
            self.sources[index] = source
            labels = ("keys: " * index + f"head {head}: " * (head > 0) for head in range(len(vectors)))
            self.labels = [*self.labels, *labels]
        return ""

    def key(self) -> tuple[Any, ...]:
        """Return a key that is equal for attentions that rotate to the same bits, or have the same reason."""
        bits = [array_of("x", self.vectors[index])[0].tobytes() for index in self.sources]
        return id(self.config), self.layer_type, self.reason, self.rotates, self.start, *bits

    def random(self, rows: int) -> Array:
        """Return random vectors before the rotation."""
        return np.random.default_rng(2).normal(size=(rows, self.rotary.head_dim)).astype(np.float32)

    def factors(self, rotated: Tensor, x: Array) -> Tensor:
        """Return the lengths of the rotated columns as multiples of those before the rotation."""
        columns = slice(self.rotary.rotary_dim)
        after, before = (torch.linalg.vector_norm(rows[..., columns].double(), dim=-1, keepdim=True)
                         for rows in (rotated, torch.from_numpy(x)))
        return cast(Tensor, after / before.clamp(min=1e-9))

    def __call__(self, x: Array, positions: Array) -> list[tuple[Reals, str]]:
        """Call the model with the positions, or with all positions if they cannot be chosen."""
        at, rows, chosen = positions, x, np.arange(len(x))
        if not self.is_free:
            at, chosen = np.arange(max(positions.max() + 1, self.model.count)), positions
            rows = np.ones((len(at), x.shape[1]), np.float32)
            rows[chosen] = x
        items = {self.number: [(source, rows) for source in self.sources.values()]}
        vectors = self.model.run(len(rows), at, items, self.number)[0][self.number].vectors
        results = []
        for index in self.sources:
            # in a cache of any length, the number of a row is the position of its key
            is_cache = index == 1 and self.vectors[1].shape[1] == self.keys != self.rows
            of_rows = positions if is_cache else chosen
            y = vectors[index][:, of_rows, self.start : self.start + x.shape[1]].cpu()
            if self.divisors:
                factors: Any = self.divisors[index] or self.factors(y, x).clamp(min=1e-9)
                is_rotated = torch.arange(x.shape[1]) < self.rotary.rotary_dim
                y = (y.double() / factors * torch.where(is_rotated, UNIT, abs(size_of(self.rotary)))).to(y.dtype)
            heads = [array_of("x", head) for head in y]
            results += [(float64_of(*head), head[1]) for head in heads]
        return results


def _sources(attentions: Sequence[Attention], count: int, rows: slice = slice(None)) -> dict[int, Any]:
    """Return the sources of attentions with some of so many random vectors, for a run."""
    return {a.number: [(source, a.random(count)[rows]) for source in a.sources.values()] for a in attentions}


def _compare_cache(group: Sequence[Attention]) -> tuple[list[str], str]:
    """Compare calls that continue with a cache with a single call; return the faults, and a remark."""
    if not group:
        return [], ""
    model, total, end, label = group[0].model, sum(CACHED), 0, ", also with a cache"
    cache, wrong = dict[str, Any](), dict[str, None]()
    try:
        whole, _ = model.run(total, None, _sources(group, total), group[-1].number)
        for count in CACHED:
            rows, end = slice(end, end + count), end + count
            taken, result = model.run(count, None, _sources(group, total, rows), use_cache=True, **cache)
            for k, index in [(each.number, index) for each in group for index in each.sources]:
                own, length = taken[k].vectors[index], taken[k].vectors[1].shape[1]
                if index == 0:                          # the queries of one head may be rows of another one
                    own = own.reshape(-1, count, own.shape[2])
                found = running.contains(own, whole[k].vectors[index])
                # a sliding window holds the keys of fewer positions; unused rows may be more
                least = count if index == 0 else min(length, end)
                if length == count < end:                               # perhaps the model is not a decoder
                    label = "; not with a cache, because a call that continues has no earlier keys"
                elif found.sum() < least or not found[rows].all():
                    wrong[BOTH[index]] = None
            cache = {model.cache: getattr(result, model.cache)}
    except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
        return [], f"; not with a cache, because a call raises {type(error).__name__}: {error}"
    different = f"{' and '.join(wrong)} of a call with a cache have other values than those of a call without"
    return [different] if wrong else [], label


def _attentions(model: Model, config: Any) -> list[Attention]:
    """Run the model; return its attentions."""
    if model.is_fixed:
        taken, _ = model.run(running.ANY, last=0)
        model.count = model.reach = next((part.vectors[0].shape[1] for part in taken if part.vectors[0].numel()), 0)
    given = config if config is not None else configuration(getattr(model.module, "config", None))
    model.axes = axes_of(_expected(given)[0])
    taken = model.run(model.count, np.arange(model.count))[0] if model.count else []
    configs = [configuration(part.config) if config is None else config for part in taken]
    # the second part of an attention has the same queries and keys
    numbers = [k for k, part in enumerate(taken) if not any(
        all(map(running.close, part.vectors, other.vectors)) for other in taken[:k])]
    return [Attention(model, k, taken, configs[k], [other for other in numbers if configs[other] is configs[k]])
            for k in numbers]


# ---- rows --------------------------------------------------------------------------------------------------


def _rows(model: Model, attentions: Sequence[Attention]) -> list[RotaryRow]:
    """Return a row for each group of attentions that rotate the same random vectors to the same bits."""
    compared = [each for each in attentions if not each.reason]
    for last in (max(each.length or REACH for each in compared), *REACHES) if compared else ():
        rows = max(model.count, min(last, LATE))
        if model.takes_positions or model.is_fixed:
            rows = model.count + model.takes_positions      # to distinguish a cache from other keys
        at = np.rint(np.geomspace(1, last, rows)).astype(np.int64) - 1
        with contextlib.suppress(Exception):                            # a table may end
            taken, _ = model.run(rows, at, _sources(compared, rows))
            for each in compared:
                each.vectors = taken[each.number].vectors
            break
    groups: dict[Any, list[Attention]] = {}
    for attention in attentions:
        groups.setdefault(attention.key(), []).append(attention)
    return [_row(group, attentions) for group in groups.values()]


def _row(group: Sequence[Attention], attentions: Sequence[Attention]) -> RotaryRow:
    """Compare the first attention of a group with the expected rotation, and calls with a cache of all."""
    attention, others = group[0], len(group) - 1
    name = attention.name + (f" and {others} more" if others else "")
    if attention.reason:
        return _uncompared_row(name, attention, attentions)
    of_cache, label = _compare_cache([each for each in group if each.has_cache])
    try:
        result, remarks = _compared(attention)
        reason = OWN * (bool(result.faults) and attention.is_free and _has_own_positions(attention, attentions))
    except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
        reason = f"a call raises {type(error).__name__}: {error}; {CHECK}"
    if reason:
        return unchecked_row(name, attention.rotary, reason)
    result = result._replace(faults=(*result.faults, *of_cache))
    return row_of(name, result, attention.rotary, "; ".join([f"queries and keys{label}", *remarks]))


def _has_own_positions(own: Attention, attentions: Sequence[Attention]) -> bool:
    """Return whether an attention, and each with its configuration, has other positions than those given.

    If all given positions are equal, its vectors still differ.  If no other attention has the given positions,
    the model ignores them, which is a fault.
    """
    taken, _ = own.model.run(own.model.count, np.zeros(own.model.count, np.int64))
    given = {id(taken[each.number].config) for each in attentions if each.rotates
             and not all(len(running.moved(vectors)) for vectors in taken[each.number].vectors)}
    return bool(given) and id(taken[own.number].config) not in given


def _uncompared_row(name: str, attention: Attention, attentions: Sequence[Attention]) -> RotaryRow:
    """Return the row of an attention without a rotation: right only if the configuration says so."""
    rotary, reason = attention.rotary, attention.reason
    types = {each.layer_type for each in attentions if each.config is attention.config and each.rotates}
    if not attention.rotates and (rotary is None or types and attention.layer_type not in types):
        return unchecked_row(name, rotary, reason)._replace(verdict="no rotation")
    if attention.rotates and reason == STATED:
        words = "queries and keys are rotated, the configuration has no rotation for this layer"
    elif reason == UNROTATED and (attention.flag is not None or not types and attention.layer_type is None):
        words = not_rotated(range(rotary.rotary_dim // 2))
    else:
        more = ", and the configuration does not state that these have no rotation"
        return unchecked_row(name, rotary, reason + more * (reason == UNROTATED))
    return row_of(name, RotaryMatch(None, math.inf, "", (words,)), rotary, "queries and keys")


def _compared(f: Attention) -> tuple[RotaryMatch, list[str]]:
    """Compare queries and keys, and return remarks about factors that are not part of the rotation."""
    rotary, result = f.rotary, matched(f, f.rotary)
    size, remarks = abs(size_of(rotary)), list[str]()
    for index in f.sources if result.faults else ():
        y, what = f.vectors[index][0, :, f.start :].cpu(), BOTH[index]
        factors = f.factors(y, f.random(len(y))).nan_to_num().numpy() / size
        factor = float(np.median(factors))
        # the softmax scale may be part of the queries, or half of it of queries and keys
        scales = [1.0, f.width**-0.5, f.width**-0.25, *([factor] if index == 0 and size == 1 else [])]
        scale = next((each for each in scales if math.isclose(factor, each, rel_tol=0.01)), 1.0)
        f.divisors[index] = scale * size
        if np.ptp(factors) > 0.02 * factor:
            f.divisors[index] = 0.0
            remarks.append(f"the lengths of {what} are not those before the rotation, and were not compared")
        elif scale != 1:
            remarks.append(f"{what} are multiplied by {scale:.6g}")
    if not remarks:
        return result, []
    other = matched(f, rotary.replace(scale=rotary.scale * UNIT / size))
    return (result, []) if other.faults else (other._replace(rotary=rotary), remarks)
