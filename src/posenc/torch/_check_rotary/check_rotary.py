"""The function check_rotary."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import nn

from posenc import Rotary
from posenc._arguments import checks
from posenc._identify.rotation.identify_rotary import SOURCE
from posenc._identify.rotation.report import RotaryReport, RotaryRow, best_match, errors_of, new_row
from posenc._rotary.model_config import layer_types
from posenc._rotary.scaling import positions_without_length
from posenc.torch._check_rotary.call_functions import FAILURES
from posenc.torch._check_rotary.find_rotary import Place, applied, copied, functions_of, is_called, is_same, places, tensors_of
from posenc.torch._check_rotary.module_rotation import Rotation, Setting, rotations
from posenc.torch._rotary_embedding import RotaryEmbedding

LONG = 1_000_001                # the length of long sequences, for scaling types that depend on it
UNKNOWN_FORM = "posenc cannot read a rotation from the module; pass a function that calls it to posenc.testing.assert_rotary"
SIXTEEN_BITS = (torch.bfloat16, torch.float16)


class Expected(NamedTuple):
    """The rotation in a configuration, or the reason why there is none; `config` is None if no configuration was given."""

    config: Any = None
    layer_type: str | None = None
    rotary: Rotary | None = None
    reason: str = ""

    @property
    def source(self) -> str:
        """The text that precedes an expected value in a message."""
        return "expected" if isinstance(self.config, Rotary) else SOURCE


def check_rotary(model: nn.Module, config: Any = None) -> RotaryReport:
    """Find the rotary embeddings of a model, and compare each one with the model's configuration.

    Parameters
    ----------
    model : torch.nn.Module
        The model, or a part of it.  Copies of the rotary modules are called, with their forward hooks; the model does not
        change, and its weights are not used.
    config : transformers.PreTrainedConfig, mapping, dataclass or posenc.Rotary, optional
        The configuration, as for `posenc.Rotary.from_config`, or the expected rotation.  The default is the attribute
        ``config`` of the nearest module that contains the rotary module and has this attribute.

    Returns
    -------
    RotaryReport
        A row for each rotary module; modules with equal values share a row.  `print` shows the rows as a table.  ``ok`` is
        False if a row is wrong, or if no rotation was checked.  A row is wrong if any function with which the attention
        rotates is wrong.  The verdict is "not checked" if a module has the right frequencies but cannot be called, or if a
        condition of unknown value selects one of several functions with different results.  A different layout is not a
        fault in a part of the attention that has its own queries and keys, such as an indexer.

    Raises
    ------
    TypeError
        If an argument has a wrong type.

    See Also
    --------
    posenc.identify_rotary : Identify a single table, function or module.
    RotaryEmbedding : A replacement for a rotary module that is wrong or inexact.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> config = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
    >>> model = torch.nn.ModuleDict({"rotary_emb": posenc.torch.RotaryEmbedding(posenc.Rotary(64))})
    >>> report = posenc.torch.check_rotary(model, config)
    >>> report.ok
    False
    >>> report[0].faults
    ('base is 10000, the configuration has 500000',)
    """
    if not isinstance(model, nn.Module):
        raise checks.wrong_type("model", model, "a torch.nn.Module")
    if config is not None and not isinstance(config, Rotary):
        found = _readable(config)
        if found is None:
            raise checks.wrong_type("config", config, "a configuration from transformers, its dict, or a posenc.Rotary")
        config = found
    rows: list[RotaryRow] = []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        dtype = _dtype(model)
        for group in _groups(places(model), config is not None):
            rows += _rows(group, _expectations(group[0], config), dtype)
    return RotaryReport(rows)


def _dtype(model: nn.Module) -> torch.dtype:
    """Return the dtype of the largest parameter, in which the model is assumed to compute."""
    found = max((p for p in model.parameters() if p.is_floating_point()), key=torch.numel, default=None)
    return torch.float32 if found is None else found.dtype


def _groups(found: Sequence[Place], one_config: bool) -> list[list[Place]]:
    """Group the places whose modules are equal, are applied by the same code, and have the same configuration."""
    groups: list[tuple[Any, list[Place]]] = []
    for place in found:
        kind, functions = applied(place)
        calls = [(function.name, function.roles, function.conditional) for function in functions]
        key = kind, calls, None if one_config else id(_config(place))
        for other, group in groups:
            if key == other and is_same(group[0].module, place.module):
                group.append(place)
                break
        else:
            groups.append((key, [place]))
    return [group for _, group in groups]


# ---- expected rotations -------------------------------------------------------------------------------------------------


def _config(place: Place) -> Any:
    """Return the configuration of the nearest owner that has a configuration, or None."""
    return next((config for owner in place.owners if (config := getattr(owner, "config", None)) is not None), None)


def _readable(config: Any) -> Any:
    """Return an argument for `Rotary.from_config`: a configuration, or the attributes of another object, or None."""
    if isinstance(config, Mapping) or hasattr(config, "to_dict"):
        return config
    attributes = getattr(config, "__dict__", None)
    return attributes if attributes and not isinstance(config, type) else None


def _expectations(place: Place, config: Any) -> list[Expected]:
    """Return the rotation of each layer type in the configuration."""
    if isinstance(config, Rotary):
        return [Expected(config, None, config)]
    own = _readable(_config(place))
    found = own if config is None else _part(config, own)
    if found is None or config is None and type(found).__module__.startswith("diffusers."):
        return [Expected()]         # configurations of diffusers do not describe the rotation
    try:
        named = _get(found, "layer_types")
        every = layer_types(found)
        used = [name for name in every if name is None or not named or name in named]
        return [Expected(found, name, Rotary.from_config(found, name)) for name in used or every]
    except (TypeError, ValueError) as error:
        return [Expected(found, None, None, str(error))]


def _part(config: Any, own: Any) -> Any:
    """Return the part of a given configuration for a module whose own configuration is `own`."""
    kind = _get(own, "model_type")
    parts = [config, *_parts(config)]
    same = [part for part in parts if kind is not None and _get(part, "model_type") == kind]
    return (same or [_get(config, "text_config") or config])[0]


def _parts(config: Any) -> Iterator[Any]:
    for value in (config if isinstance(config, Mapping) else vars(config)).values():
        if _get(value, "model_type") is not None:
            yield value
            yield from _parts(value)


def _get(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


# ---- rows ---------------------------------------------------------------------------------------------------------------


def _rows(group: Sequence[Place], expectations: Sequence[Expected], dtype: torch.dtype) -> list[RotaryRow]:
    """Return the rows of a group: one for each layer type if the module takes the argument ``layer_type``, else one."""
    place = group[0]
    name = place.name or "model"
    if len(group) > 1:
        name += f" and {len(group) - 1} more"
    meta = [key for key, value in tensors_of(place.module).items() if value.is_meta]
    if meta:
        reason = f"{meta[0]} is on the meta device; load the weights, then check again"
        return [new_row(name, None, each.rotary, unchecked=reason) for each in expectations[:1]]
    own_types = _takes_layer_type(place.module)
    rows = []
    for expected in expectations:
        label = f"{name} ({expected.layer_type})" if own_types and len(expectations) > 1 else name
        rows.append(_row(label, place, expected, dtype))
    if own_types:
        return rows
    # the module is for a single layer type: return the row for the type with which it agrees best
    return [min(rows, key=lambda row: (row.verdict == "wrong", len(row.faults)))]


def _takes_layer_type(module: nn.Module) -> bool:
    return "layer_type" in inspect.signature(type(module).forward).parameters


def _row(name: str, place: Place, expected: Expected, dtype: torch.dtype) -> RotaryRow:
    rotary = expected.rotary
    if rotary is None and expected.config is not None:
        return new_row(name, None, None, unchecked=expected.reason)
    if hasattr(place.module, "scale_base"):
        return new_row(name, None, rotary, unchecked="xPos is not supported")
    if rotary is None:
        return _without_configuration(name, place, expected)
    columns = tuple(dict.fromkeys((rotary.head_dim, rotary.rotary_dim)))
    setting = Setting(
        columns, expected.layer_type if _takes_layer_type(place.module) else None,
        axes=1 if rotary.axes is None else 1 + max(rotary.axes), device=_device(place.module),
    )
    variants = _variants(setting, expected, place.module)
    judged = [_judged(place, each, rotary, expected.source) for each, rotary in variants]
    if dtype in SIXTEEN_BITS:           # the module may round positions to this dtype
        each, its = variants[0]
        judged.append(_judged(place, each._replace(dtype=dtype), its, expected.source))
    return _merged(name, judged, place, expected)


def _device(module: nn.Module) -> torch.device:
    return next((tensor.device for tensor in tensors_of(module).values()), torch.device("cpu"))


def _without_configuration(name: str, place: Place, expected: Expected) -> RotaryRow:
    """Return the row for a rotation of unknown width; use the smallest width for which a call succeeds."""
    widths = {getattr(place.module, key, None) for key in ("head_dim", "head_size", "dim", "rotary_dim")}
    for tensor in tensors_of(place.module).values():
        widths |= {2 * tensor.shape[-1], tensor.shape[-1]} if tensor.ndim else set()
    judged = Judged(unchecked=UNKNOWN_FORM)
    for width in sorted(width for width in widths if isinstance(width, int) and width > 1 and width % 2 == 0):
        judged = _judged(place, Setting((width,), device=_device(place.module)), None, "")
        if not judged.unchecked:
            break
    return _merged(name, [judged], place, expected)


def _variants(setting: Setting, expected: Expected, module: nn.Module) -> list[tuple[Setting, Rotary]]:
    """Return the rotation to check, with its setting; return two if long sequences are rotated differently."""
    rotary = expected.rotary
    assert rotary is not None
    if isinstance(module, RotaryEmbedding) and not isinstance(expected.config, Rotary):
        with suppress(ValueError):      # raised if the module does not have this layer type
            length = (module.rotary(setting.layer_type).scaling or {}).get("length")
            return [(setting, Rotary.from_config(expected.config, expected.layer_type, length))]
    limit = positions_without_length(rotary.scaling)
    if limit is None:
        return [(setting._replace(length=(rotary.scaling or {}).get("length")), rotary)]
    found = [(setting._replace(length=limit), rotary)]
    if not isinstance(expected.config, Rotary):
        long = Rotary.from_config(expected.config, expected.layer_type, LONG)
        found.append((setting._replace(length=LONG), long))
    return found


class Judged(NamedTuple):
    found: Rotary | None = None
    faults: tuple[str, ...] = ()
    errors: Mapping[int, float | None] = {}
    reason: str = ""
    in_tables: bool = True          # whether a fault is in the tables
    function: str = ""              # the name of a function that has a fault
    conditional: bool = False       # whether a condition of unknown value decides if the function is called
    nested: bool = False            # whether the caller is a submodule of another module that applies a rotation
    unchecked: str = ""             # if nothing was compared, the reason
    only_frequencies: bool = False  # whether only frequencies were compared, because no call succeeded


def _judged(place: Place, setting: Setting, rotary: Rotary | None, source: str) -> Judged:
    module = copied(place) if is_called(place.module) else place.module
    try:
        found = rotations(module, functions_of(place), setting)
    except FAILURES as error:
        return Judged(unchecked=f"a call of the module raises {type(error).__name__}: {error}")
    if not found:
        frequencies = _frequencies(place.module, setting.layer_type)
        if frequencies is None:
            return Judged(unchecked=UNKNOWN_FORM)
        return _compared(frequencies, rotary, source)._replace(only_frequencies=True)
    tables = found[-1] if found[-1][0].columns is None else None
    composed = found[:-1] if tables else found
    best = _of_all([_together(each, rotary, source) for each in composed or found])
    if not best.faults:
        return best
    # list the faults of the frequencies and of the tables before those that only the whole rotation has
    parts = [] if tables is None or not composed else [_together(tables, rotary, source)]
    frequencies = _frequencies(module, setting.layer_type)          # read after the calls, which may change them
    if frequencies is not None and rotary is not None and (not parts or parts[0].faults or parts[0].unchecked):
        parts.insert(0, _compared(frequencies, rotary, source))
    inner = {fault for part in parts for fault in part.faults}
    earlier = next((part for part in parts if part.faults), best)
    others = () if best.found is None else tuple(fault for fault in best.faults if fault not in earlier.faults)
    in_function = tables is not None and bool(composed) and any(fault not in inner for fault in best.faults)
    return best._replace(
        found=best.found or earlier.found, faults=earlier.faults + others, in_tables=bool(inner) or not in_function,
        function=best.function if in_function else "",
    )


def _of_all(judged: Sequence[Judged]) -> Judged:
    """Return the worst of the results for the functions that a model calls.

    The rotation is not judged if a condition of unknown value selects the function and only some functions have faults.
    """
    known = [each for each in judged if not each.unchecked] or judged
    # a part that has its own queries and keys may have another layout
    known = [each for each in known if not each.nested or not _only_layout(each)] or known
    certain = [each for each in known if not each.conditional]
    if any(each.faults for each in certain):
        return max(certain, key=lambda each: len(each.faults))
    if all(each.faults for each in known) or not any(each.faults for each in known):
        return min(known, key=lambda each: len(each.faults))
    names = "; ".join(f"{each.function}: {'; '.join(each.faults) or 'no fault'}" for each in known)
    return Judged(unchecked=f"a condition of unknown value decides which of {len(known)} functions is called ({names})")


def _only_layout(judged: Judged) -> bool:
    return bool(judged.faults) and all(fault.removeprefix("keys: ").startswith("layout is ") for fault in judged.faults)


def _together(found: Sequence[Rotation], rotary: Rotary | None, source: str) -> Judged:
    """Compare the rotations of queries and of keys with the expected one."""
    queries, *keys = [
        _compared(each.rotate, rotary, source, each.columns)._replace(
            function=each.function, conditional=each.conditional, nested=each.nested)
        for each in found
    ]
    for each in keys:
        others = tuple(f"keys: {fault}" for fault in each.faults if fault not in queries.faults)
        if others:
            queries = queries._replace(faults=queries.faults + others, errors=_larger(queries.errors, each.errors))
    return queries


def _larger(errors: Mapping[int, float | None], others: Mapping[int, float | None]) -> dict[int, float | None]:
    """Return the larger of two errors at each position, or None if both are unknown."""
    pairs = {position: (errors.get(position), other) for position, other in others.items()}
    return {position: max((each for each in pair if each is not None), default=None) for position, pair in pairs.items()}


def _compared(rotation: Any, rotary: Rotary | None, source: str, columns: int | None = None) -> Judged:
    try:
        match = best_match(rotation, rotary, source, columns)
    except FAILURES as error:
        return Judged(unchecked=str(error))
    if match is None:
        return Judged(unchecked="posenc does not recognize the rotation; pass config= to compare it")
    nothing = (match.reason,) if match.rotary is None and rotary is not None else ()
    match = match._replace(faults=match.faults or nothing)
    return Judged(match.rotary, match.faults, errors_of(rotation, match, rotary), match.reason)


def _frequencies(module: nn.Module, layer_type: str | None) -> Any:
    tensors = tensors_of(module)
    for name in ((f"{layer_type}_inv_freq",) if layer_type else ("inv_freq", "inv_freqs")):
        if name in tensors and tensors[name].ndim == 1:
            return tensors[name].detach()
    return None


def _merged(name: str, judged: Sequence[Judged], place: Place, expected: Expected) -> RotaryRow:
    """Return the row for all comparisons of a module."""
    first = next((each for each in judged if each.faults), judged[0])
    if first.unchecked:
        return new_row(name, None, expected.rotary, unchecked=first.unchecked)
    faults = tuple(dict.fromkeys(fault for each in judged for fault in each.faults))
    if first.only_frequencies and not faults:
        return new_row(name, first.found, expected.rotary, unchecked=f"only frequencies were compared, because {UNKNOWN_FORM}")
    row = new_row(name, first.found, expected.rotary, first.errors, faults, first.reason)
    return row._replace(remedy=_remedy(row, first, place, expected))


def _remedy(row: RotaryRow, judged: Judged, place: Place, expected: Expected) -> str:
    """Return the proposed change for a module with faults or with float32 angles."""
    parameters = inspect.signature(type(place.module).forward).parameters
    config = "config" if isinstance(expected.config, Mapping) else "model.config"
    replacement = ""
    if expected.rotary is not None and "position_ids" in parameters and not isinstance(expected.config, Rotary):
        path = f"model.{place.name}" if place.name else "model"
        length = "" if positions_without_length(expected.rotary.scaling) is None else ", length=..."
        replacement = f"{path} = posenc.torch.RotaryEmbedding({config}{length})"
    if row.verdict == "float32 angles":
        return f"for long sequences: {replacement}" if replacement else ""
    if row.verdict != "wrong":
        return ""
    changes = [replacement or "compute the tables again from the configuration"] if judged.in_tables else []
    return "; ".join([*changes, *([f"correct {judged.function} or its call"] if judged.function else [])])
