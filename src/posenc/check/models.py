"""Models: the rotations of a model in PyTorch, read by calls of its rotary modules and of functions that apply the tables."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from posenc import Rotary
from posenc.check import calls
from posenc.check.arithmetic import axes_of
from posenc.check.functions import valid_positions
from posenc.check.report import RotaryReport, RotaryRow, faults_of, guide, is_rotary, new_row, total_errors, with_length
from posenc.check.rotations import SOURCE, RotaryMatch, entry_of, longest, matched
from posenc.torch import RotaryEmbedding

# the functions that apply tables, if the code of an attention refers to them by these names
APPLY = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb", "apply_rotary", "apply_rope",
         "apply_multimodal_rotary_pos_emb", "apply_rotary_pos_emb_vision", "apply_rotary_position_embeddings",
         "apply_rotary_embedding", "apply_rope_emb", "rotate_queries_and_keys", "apply_rotary_time_emb")
LONG = 1_000_001            # the length of long sequences, for scaling types that depend on it
MOVES_COLUMNS = re.compile(r"(?:de)?interleave", re.IGNORECASE)
DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
HOW = "pass a function of x and positions that calls it to posenc.check.assert_rotary(f, config)"


# ---- the check ------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A module that has the tables or frequencies of a rotation, and the modules that contain it."""

    name: str
    module: nn.Module
    owners: tuple[nn.Module, ...]           # from the nearest one to the whole model


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


class Judged(NamedTuple):
    """The result of one comparison."""

    match: RotaryMatch | None = None
    errors: Mapping[int, float | None] = {}
    compared: str = ""
    function: str = ""              # the name of a function that has a fault
    unchecked: str = ""             # if nothing was compared, the reason

    @property
    def faults(self) -> tuple[str, ...]:
        return () if self.match is None else faults_of(self.match)


def check_rotary(model: nn.Module, config: Any = None, *, apply: Callable[..., Any] | None = None) -> RotaryReport:
    """Find the rotary embeddings of a model, and compare each one with the model's configuration.

    Parameters
    ----------
    model : torch.nn.Module
        The model, or a part of it.  Copies of the rotary modules are called, with their forward hooks; the model does not
        change, and its weights are not used.
    config : transformers.PreTrainedConfig, mapping, dataclass or posenc.Rotary, optional
        The configuration, as for `posenc.Rotary.from_config`, or the expected rotation.  The default is the attribute
        ``config`` of the nearest module that contains the rotary module and has this attribute.
    apply : callable, optional
        The function with which the attention applies the tables, such as ``apply_rotary_pos_emb(q, k, cos, sin)``.  By default,
        it is found by its name, if this is one of about a dozen usual names and the attention's code refers to it.

    Returns
    -------
    RotaryReport
        A row for each rotary module; modules with equal values share a row.  The first line of the printed report states what
        was compared: the tables, or the tables and the function that applies them.  How the attention calls the function is not
        compared.  ``ok`` is True if something was compared, and all of it is right.  What cannot be called is "not checked".

    Raises
    ------
    TypeError
        If an argument has a wrong type.

    See Also
    --------
    identify_rotary : Identify a single table, function or module.
    assert_rotary : Check a function of queries or keys and positions, such as one that calls the attention's code.
    posenc.torch.RotaryEmbedding : A replacement for a rotary module that is wrong or inexact.

    Notes
    -----
    A rotary module is called as ``module(x, position_ids)`` with x of shape (1, heads, n, head_dim) or (1, n, heads, head_dim),
    and position_ids of shape (1, n) or (n,); arguments are recognized by usual names.  The function is called with the same x
    and the tables as the module returns them, or as (n, columns).

    Examples
    --------
    >>> import torch, posenc.torch
    >>> config = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
    >>> model = torch.nn.ModuleDict({"rotary_emb": posenc.torch.RotaryEmbedding(posenc.Rotary(64))})
    >>> report = posenc.check.check_rotary(model, config)
    >>> report.ok
    False
    >>> report[0].faults
    ('base is 10000, the configuration has 500000',)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is {model!r} of type {type(model).__name__}, expected a torch.nn.Module")
    if config is not None and not isinstance(config, Rotary):
        readable = _readable(config)
        if readable is None:
            raise TypeError(f"config is {config!r} of type {type(config).__name__}, "
                            "expected a configuration from transformers, its dict, or a posenc.Rotary")
        config = readable
    if apply is not None and (not callable(apply) or calls.roles_of(apply) is None):
        raise TypeError(f"apply is {apply!r}, expected a function with parameters such as (q, k, cos, sin) or (x, freqs_cis)")
    rows: list[RotaryRow] = []
    largest = max((p for p in model.parameters() if p.is_floating_point()), key=torch.numel, default=None)
    dtype = torch.float32 if largest is None else largest.dtype         # the model is assumed to compute in it
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        groups: dict[Any, list[tuple[Place, list[Callable[..., Any]]]]] = {}
        for name, module in model.named_modules():
            if calls.is_place(module):
                parts = name.split(".") if name else []
                owners = [model.get_submodule(".".join(parts[:length])) for length in range(len(parts))]
                place = Place(name, module, tuple(reversed(owners)) or (model,))
                functions = [apply] if apply is not None else _functions_of(place)
                tensors = {k: v for k, v in calls.tensors_of(module).items() if is_rotary(k) or k == "embed_positions"}
                nearest = None if config is not None else id(_config(place))
                key = _token(module if calls.is_called(module) else tensors), tuple(map(id, functions)), nearest
                groups.setdefault(key, []).append((place, functions))
        for group in groups.values():
            rows += _rows([place for place, _ in group], group[0][1], _expectations(group[0][0], config), dtype)
    return RotaryReport(rows or [new_row("model", None, unchecked=_next_step(model))])


def _next_step(model: nn.Module) -> str:
    """Return the reason why no rotation was found, with the methods that may rotate."""
    named = [f"{name}.{attribute}".lstrip(".") for name, module in model.named_modules() for attribute in vars(type(module))
             if calls.CLASS.search(attribute) and callable(getattr(module, attribute, None))]
    seen = f"the model has {', '.join(named[:3])}; " if named else ""
    return f"no rotary embedding was found; {seen}{HOW.replace('calls it', 'rotates queries or keys')}"


def _token(value: Any) -> Any:
    """Return a hashable value that is equal for modules that compute the same values."""
    if isinstance(value, Tensor):
        bits = b"" if value.is_meta else value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return str(value.dtype), tuple(value.shape), value.is_meta, hash(bits)
    if isinstance(value, nn.Module):
        return type(value), _token({k: list(v.values()) if k.endswith(("_hooks", "_kwargs")) and isinstance(v, dict) else v
                                    for k, v in vars(value).items() if k not in ("layer_idx", "training")})
    if isinstance(value, dict):
        return tuple((key, _token(item)) for key, item in value.items())
    if isinstance(value, (list, tuple, set)):
        return tuple(map(_token, sorted(value) if isinstance(value, set) else value))
    if inspect.ismethod(value):
        return id(value.__func__), type(value.__self__)
    if inspect.isfunction(value):
        return id(value.__code__), tuple(type(cell.cell_contents) for cell in value.__closure__ or ())
    if isinstance(value, Rotary):
        return value
    return (type(value), repr(value)) if isinstance(value, (int, float, str, bool, type(None), torch.dtype)) else id(value)


# ---- expected rotations ---------------------------------------------------------------------------------------------


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
    nearest = _readable(_config(place))
    if config is None and (nearest is None or type(nearest).__module__.startswith("diffusers.")):
        return [Expected()]         # configurations of diffusers do not describe the rotation
    chosen = nearest if config is None else _part(config, entry_of(nearest, "model_type"))
    try:
        types = Rotary.layer_types(chosen)
        used = [name for name in types if name is None or name in (entry_of(chosen, "layer_types") or types)]
        return [Expected(chosen, name, Rotary.from_config(chosen, name)) for name in used or types]
    except (TypeError, ValueError) as error:
        return [Expected(chosen, None, None, str(error))]


def _part(config: Any, kind: Any) -> Any:
    """Return the part of a given configuration for a module whose own configuration is of this model type."""
    def parts(whole: Any) -> Iterator[Any]:
        yield whole
        for value in (whole if isinstance(whole, Mapping) else vars(whole)).values():
            if entry_of(value, "model_type") is not None:
                yield from parts(value)

    matching = [part for part in parts(config) if kind is not None and entry_of(part, "model_type") == kind]
    return (matching or [entry_of(config, "text_config") or config])[0]


def _variants(setting: calls.Setting, expected: Expected, module: nn.Module) -> list[tuple[calls.Setting, Rotary]]:
    """Return the rotation to check, with its setting; return two if long sequences are rotated differently."""
    rotary = expected.rotary
    assert rotary is not None
    is_config = not isinstance(expected.config, Rotary)
    if isinstance(module, RotaryEmbedding) and is_config:
        with suppress(ValueError):      # raised if the module does not have this layer type
            length = (module.rotary(setting.layer_type).scaling or {}).get("length")
            return [(setting, Rotary.from_config(expected.config, expected.layer_type, length))]
    limit, length = valid_positions(rotary), (rotary.scaling or {}).get("length")
    if limit is None or length is not None:
        return [(setting._replace(length=length), rotary)]
    variants = [(setting._replace(length=limit), rotary)]
    if is_config:
        variants.append((setting._replace(length=LONG), Rotary.from_config(expected.config, expected.layer_type, LONG)))
    return variants


# ---- rows -----------------------------------------------------------------------------------------------------------


def _rows(
    places: Sequence[Place], functions: Sequence[Callable[..., Any]], expectations: Sequence[Expected], dtype: torch.dtype
) -> list[RotaryRow]:
    """Return the rows of equal modules: one for each layer type if the module takes the argument ``layer_type``, else one."""
    place = places[0]
    name = (place.name or "model") + (f" and {len(places) - 1} more" if len(places) > 1 else "")
    meta = [key for key, value in calls.tensors_of(place.module).items() if value.is_meta]
    if meta:
        reason = f"{meta[0]} is on the meta device; load the weights, then check again"
        return [new_row(name, expectations[0].rotary, unchecked=reason)]
    per_type = "layer_type" in inspect.signature(type(place.module).forward).parameters
    rows = []
    for expected in expectations:
        label = f"{name} ({expected.layer_type})" if per_type and len(expectations) > 1 else name
        row, function = _row(label, place, functions, expected, dtype, per_type)
        rows.append(row._replace(remedy=_remedy(row, function, places, functions, expected, dtype, per_type)))
    # a module for a single layer type: return the row for the type with which it agrees best
    return rows if per_type else [min(rows, key=lambda row: (row.verdict == "wrong", len(row.faults)))]


def _row(
    name: str, place: Place, functions: Sequence[Callable[..., Any]], expected: Expected, dtype: torch.dtype, per_type: bool
) -> tuple[RotaryRow, str]:
    """Return the row for a module, and the name of the function that has a fault, or an empty string."""
    rotary, module = expected.rotary, place.module
    if rotary is None and expected.config is not None:
        return new_row(name, None, unchecked=expected.reason), ""
    if hasattr(module, "scale_base"):
        return new_row(name, rotary, unchecked="xPos is not supported"), ""
    if rotary is None:
        return new_row(name, None, unchecked="no configuration was given; pass config="), ""
    device = next((tensor.device for tensor in calls.tensors_of(module).values()), torch.device("cpu"))
    widths = tuple(dict.fromkeys((rotary.head_dim, rotary.rotary_dim)))
    setting = calls.Setting(widths, expected.layer_type if per_type else None, axes_of(rotary), device=device)
    variants = _variants(setting, expected, module)
    if dtype in DTYPES:             # the module may round positions to this dtype
        variants.append((variants[0][0]._replace(dtype=dtype), variants[0][1]))
    judged = [_judged(module, functions, one, wanted, expected.source, DTYPES.get(dtype, "")) for one, wanted in variants]
    first = next((one for one in judged if one.faults), judged[0])
    if first.match is None or first.unchecked:
        return new_row(name, rotary, first.match, unchecked=first.unchecked)._replace(compared=first.compared), ""
    faults = tuple(dict.fromkeys(fault for one in judged for fault in one.faults))
    match = first.match._replace(faults=faults)
    rows = calls.stored_rows(module)
    if rows is not None and not isinstance(module, RotaryEmbedding):
        match = with_length(match, rows, longest(expected.config) or 0 if not isinstance(expected.config, Rotary) else 0)
    errors = first.errors if rows is None else {p: error for p, error in first.errors.items() if p < rows}
    return new_row(name, rotary, match, errors, first.compared), first.function


def _judged(
    module: nn.Module, functions: Sequence[Callable[..., Any]], setting: calls.Setting, rotary: Rotary, source: str,
    computes_in: str,
) -> Judged:
    """Compare the rotation of a module with an expected one."""
    def judge(rotation: Any, what: str) -> Judged:
        try:
            match = matched(rotation, rotary, source, computes_in=computes_in)
        except calls.FAILURES as error:
            return Judged(unchecked=str(error))
        return Judged(match, total_errors(rotation if callable(rotation) else None, match, rotary), what)

    try:
        called = _copied(module) if calls.is_called(module) else module
        rotate, tables = calls.forward_of(called, setting) if calls.is_called(module) else (None, None)
        tables = tables or (calls.stored_tables(called) if rotate is None else None)
    except calls.FAILURES as error:
        return Judged(unchecked=f"a call of the module raises {type(error).__name__}: {error}; {HOW}")
    frequencies = _frequencies(called, setting.layer_type)
    if rotate is not None:
        whole = judge(calls.numpy_function(rotate, setting), "the module's rotation")
        return _with_parts(whole, frequencies, None, judge)
    if tables is None:
        if frequencies is None:
            return Judged(unchecked=f"posenc cannot read a rotation from the module; {HOW}")
        only = judge(frequencies, "frequencies")
        return only if only.faults else only._replace(
            unchecked=f"only frequencies were compared, because posenc cannot call the module; {HOW}")
    alone = judge(calls.numpy_function(lambda x, p: list(tables(x, p)[:2]), setting, each_once=True), "tables")
    applied = []
    for function in functions:
        rotated = calls.composed(function, tables, setting)
        if rotated is not None:
            label = ".".join(filter(None, (getattr(function, "__module__", ""), getattr(function, "__qualname__", ""))))
            applied.append((label, judge(calls.numpy_function(rotated, setting), f"tables and the function {label}")))
    if any(one.faults for _, one in applied) and not all(one.faults for _, one in applied):
        names = " and ".join(label for label, _ in applied)
        return _with_parts(alone, frequencies, None, judge)._replace(
            compared=f"tables (the code refers to {names}, only some of which agree with them; pass apply=)")
    if not applied or applied[0][1].unchecked:
        return _with_parts(alone, frequencies, None, judge)
    label, whole = applied[0]
    guilty = label if whole.faults and not alone.faults else ""
    return _with_parts(whole, frequencies, alone, judge)._replace(function=guilty)


def _with_parts(whole: Judged, frequencies: Any, alone: Judged | None, judge: Callable[..., Judged]) -> Judged:
    """List the faults of the frequencies and of the tables before those that only the whole rotation has."""
    if not whole.faults or whole.match is None:
        return whole
    parts = [] if alone is None else [alone]
    if frequencies is not None and (alone is None or alone.faults or alone.unchecked):
        parts.insert(0, judge(frequencies, ""))
    earlier = next((part for part in parts if part.faults), whole)
    others = () if whole.match.rotary is None else tuple(fault for fault in whole.faults if fault not in earlier.faults)
    rotary = whole.match.rotary or (earlier.match and earlier.match.rotary)
    return whole._replace(match=whole.match._replace(faults=earlier.faults + others, rotary=rotary))


def _frequencies(module: nn.Module, layer_type: str | None) -> Any:
    tensors = calls.tensors_of(module)
    for name in ((f"{layer_type}_inv_freq",) if layer_type else ("inv_freq", "inv_freqs")):
        if name in tensors and tensors[name].ndim == 1:
            return tensors[name].detach()
    return None


def _remedy(
    row: RotaryRow, function: str, places: Sequence[Place], functions: Sequence[Callable[..., Any]], expected: Expected,
    dtype: torch.dtype, per_type: bool,
) -> str:
    """Return a statement that mends the faults of a row, or the line of the guide; the statement is tried on a copy."""
    if row.verdict in ("right", "not checked"):
        return ""
    elsewhere = f"in {function}: {guide(row.faults)}" if function and row.faults else guide(row.faults)
    parameters = inspect.signature(type(places[0].module).forward).parameters
    target = _target([place.name for place in places])
    if isinstance(expected.config, Rotary) or "position_ids" not in parameters or not target or function \
            or not calls.is_called(places[0].module):
        return elsewhere
    try:
        module = RotaryEmbedding(expected.config)
        mended, _ = _row("", places[0]._replace(module=module), functions, expected, dtype, per_type)
    except (TypeError, ValueError, ImportError):
        return elsewhere
    per_length = expected.rotary is not None and valid_positions(expected.rotary) is not None
    if mended.verdict != "right" or mended.compared != row.compared or per_length:
        return elsewhere
    config = "config" if isinstance(expected.config, Mapping) or not hasattr(places[0].owners[-1], "config") else "model.config"
    statement = target.format(f"posenc.torch.RotaryEmbedding({config})")
    return statement if row.faults else f"for long sequences: {statement}"


def _target(names: Sequence[str]) -> str:
    """Return a statement that assigns {} to modules of these names, or an empty string if there is no short one."""
    if len(names) == 1:
        return f"model{_path(names[0])} = {{}}" if names[0] else ""
    matches = [re.fullmatch(r"(.*?)\.?\b(\d+)\.(\w+(?:\.[a-z_]\w*)*)", name) for name in names]
    shapes = {(m[1], m[3]) for m in matches if m}
    if all(matches) and len(shapes) == 1:
        (before, after), = shapes
        if sorted(int(m[2]) for m in matches if m) == list(range(len(names))):
            return f"for part in model{_path(before)}: part{_path(after)} = {{}}"
    return ""


def _path(name: str) -> str:
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in name.split(".") if part)


# ---- modules --------------------------------------------------------------------------------------------------------


def _copied(module: nn.Module) -> nn.Module:
    """Return a deep copy of a module, because a call may change the object that is called; parameters are shared."""
    memo: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in calls.tensors_of(module).values()}
    result = memo[id(module)] = type(module).__new__(type(module))
    for name, value in vars(module).items():
        try:
            result.__dict__[name] = copy.deepcopy(value, memo)
        except Exception:  # noqa: BLE001  (an object that cannot be copied may raise any error)
            result.__dict__[name] = copy.copy(value) if isinstance(value, (dict, list, set)) else value
    return result.eval()


def _functions_of(place: Place) -> list[Callable[..., Any]]:
    """Return the functions of `APPLY` to which the code of the nearest owner refers, in the module that defines the code."""
    for owner in (place.module, *place.owners):
        functions: dict[int, Callable[..., Any]] = {}
        for part in owner.modules():
            if part is not place.module and part is not owner and calls.is_place(part):
                continue
            for kind in type(part).__mro__:
                for method in vars(kind).values() if not kind.__module__.startswith("torch") else ():
                    code = inspect.unwrap(method) if inspect.isfunction(method) else None
                    # code that moves the columns before the call does not use the function as it is
                    if code is None or any(map(MOVES_COLUMNS.match, code.__code__.co_names)):
                        continue
                    for name in APPLY:
                        function = code.__globals__.get(name) if name in code.__code__.co_names else None
                        if callable(function) and calls.roles_of(function) is not None:
                            functions[id(function)] = function
        if functions:
            return list(functions.values())
    return []
