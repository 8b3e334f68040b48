"""Models: find the rotary modules of a model, and compare each one with the model's configuration."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc.check import calls
from posenc.check.match import axes_of
from posenc.check.reading import CALL_FORMS
from posenc.check.report import RotaryReport, RotaryRow, best_of, is_rotary, row_of, unchecked_row, with_faults
from posenc.check.rotations import SOURCE, entry_of, longest
from posenc.torch import RotaryEmbedding

# the functions that apply tables, if the code of an attention refers to them by these names
APPLY = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb", "apply_rotary", "apply_rope",
         "apply_multimodal_rotary_pos_emb", "apply_rotary_pos_emb_vision", "apply_rotary_position_embeddings",
         "apply_rotary_embedding", "apply_rope_emb", "rotate_queries_and_keys", "apply_rotary_time_emb")
CLASS = re.compile(r"rotary|ro_?pe(?![a-z])", re.IGNORECASE)            # matches LlamaRotaryEmbedding, RoPE, RopeScaling
MOVES_COLUMNS = re.compile(r"(?:de)?interleave", re.IGNORECASE)
HOW = "pass a function of x and positions that {} to posenc.check.assert_rotary(f, config)"


class Place(NamedTuple):
    """A module that has the tables or frequencies of a rotation."""

    name: str
    module: Any
    config: Any             # that of the nearest module that contains this one and has a configuration, or None
    functions: Sequence[Callable[..., Any]]         # those that apply the tables


class Expected(NamedTuple):
    """The rotation in a configuration, or the reason why it has none; `config` is None if no configuration was given."""

    config: Any = None
    layer_type: str | None = None
    rotary: Rotary | None = None
    reason: str = ""


def check_rotary(model: calls.Module, config: Any = None, *, apply: Callable[..., Any] | None = None) -> RotaryReport:
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
    Arguments are recognized by usual names.  A rotary module is called with x and position_ids of shapes
    (n, head_dim) and (n,), then (1, 1, n, head_dim) and (1, n), then (1, n, 1, head_dim) and (1, n).  The function is called
    with x of the same shapes, and with the tables that the module returns for these positions.

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
    if not isinstance(model, calls.Module):
        raise TypeError(f"model is {model!r} of type {type(model).__name__}, expected a torch.nn.Module")
    if config is not None and not isinstance(config, Rotary):
        readable = _readable(config)
        if readable is None:
            raise TypeError(f"config is {config!r} of type {type(config).__name__}, "
                            "expected a configuration from transformers, its dict, or a posenc.Rotary")
        config = entry_of(readable, "text_config") or readable
    if apply is not None and (not callable(apply) or calls.roles_of(apply) is None):
        raise TypeError(f"apply is {apply!r}, expected a function with parameters such as (q, k, cos, sin) or (x, freqs_cis)")
    rows: list[RotaryRow] = []
    with calls.undisturbed():
        groups: dict[Any, list[Place]] = {}
        for name, module in model.named_modules():
            if is_place(module):
                place = _place(model, name, module, config, apply)
                key = key_of(module), tuple(map(id, place.functions)), id(place.config)
                groups.setdefault(key, []).append(place)
        for places in groups.values():
            rows += _rows(model, places, _expectations(places[0]))
    reason = f"no rotary embedding was found; {HOW.format('rotates queries or keys')}"
    return RotaryReport(rows or [unchecked_row("model", None, reason)])


def _place(model: Any, name: str, module: Any, config: Any, apply: Callable[..., Any] | None) -> Place:
    parts = name.split(".")
    owners = [model.get_submodule(".".join(parts[:length])) for length in reversed(range(len(parts)))]
    if config is None:
        configs = [owner.config for owner in owners if getattr(owner, "config", None) is not None]
        # those of diffusers do not describe the rotation
        config = configs[0] if configs and not type(configs[0]).__module__.startswith("diffusers.") else None
    return Place(name, module, config, functions_of(module, owners) if apply is None else [apply])


# ---- expected rotations ---------------------------------------------------------------------------------------------


def _readable(config: Any) -> Any:
    """Return an argument for `Rotary.from_config`: a configuration, or the attributes of another object, or None."""
    if isinstance(config, Mapping) or hasattr(config, "to_dict"):
        return config
    return None if isinstance(config, type) else getattr(config, "__dict__", None) or None


def _expectations(place: Place) -> list[Expected]:
    """Return the rotation of each layer type in the configuration."""
    if isinstance(place.config, Rotary):
        return [Expected(place.config, None, place.config)]
    config = _readable(place.config)
    if config is None:
        return [Expected(reason="no configuration was given; pass config=")]
    try:
        types = Rotary.layer_types(config)
        names = [name for name in types if name is None or name in (entry_of(config, "layer_types") or types)] or types
        return [Expected(config, name, Rotary.from_config(config, name, _length(place.module, name))) for name in names]
    except (TypeError, ValueError) as error:
        return [Expected(config, reason=str(error))]


def _length(module: Any, layer_type: str | None) -> int | None:
    """Return the length of the sequences for which a module of posenc has its frequencies; None for other modules."""
    if isinstance(module, RotaryEmbedding):
        with contextlib.suppress(ValueError):      # raised if the module does not have this layer type
            return (module.rotary(layer_type).scaling or {}).get("length")
    return None


# ---- modules --------------------------------------------------------------------------------------------------------


def is_called(module: calls.Module) -> bool:
    """Return whether a module only computes a rotation, so that a copy of it may be called."""
    named = any(CLASS.search(kind.__name__) for kind in type(module).__mro__) or any(map(is_rotary, calls.tensors_of(module)))
    return named and type(module).forward is not calls.Module.forward and not any(True for _ in module.children())


def is_place(module: calls.Module) -> bool:
    """Return whether a module is a rotary module, or has the tensors of one."""
    return is_called(module) or any(map(is_rotary, calls.tensors_of(module))) or stored(module) is not None


def grows(module: calls.Module) -> bool:
    """Return whether a module computes its tables again for longer sequences."""
    return is_called(module) and bool({"seq_len", "seq_length"} & inspect.signature(module.forward).parameters.keys())


def stored(module: calls.Module) -> tuple[int, calls.Rotate] | None:
    """Return the number of rows of the tables that a module stores, and the function that reads rows, or None.

    In GPT-J, a row of embed_positions has the sines first.
    """
    tensors = {name: t[0] if t.ndim == 3 and len(t) == 1 else t for name, t in calls.tensors_of(module).items() if t.ndim > 1}
    for name, table in tensors.items():
        sines = tensors.get(name.replace("cos", "sin")) if is_rotary(name) and "cos" in name and "sin" not in name else None
        if sines is not None:
            return len(table), lambda x, at, table=table, sines=sines: (table[at], sines[at])
        if name == "embed_positions" and table.shape[1] % 2 == 0:
            return len(table), lambda x, at, table=table: table[at].chunk(2, -1)[::-1]
        if is_rotary(name) and "sin_" not in name:
            is_plain = table.ndim == 2 and not table.is_complex()
            return len(table), lambda x, at, table=table, is_plain=is_plain: table[at].chunk(2, -1) if is_plain else table[at]
    return None


def key_of(module: calls.Module) -> Any:
    """Return a hashable value that is equal for modules that compute the same values.

    Attributes are equal if their texts are; that of an object contains its address.
    """
    tensors, texts = calls.tensors_of(module), []
    if is_called(module):
        ignored = {*tensors, "_parameters", "_buffers", "layer_idx", "training"}
        texts = [(name, repr(value)) for name, value in vars(module).items() if name not in ignored]
    else:
        tensors = {name: tensor for name, tensor in tensors.items() if is_rotary(name) or name == "embed_positions"}
    bits = [(name, tensor.dtype, tensor.shape, tensor.is_meta or calls.bytes_of(tensor)) for name, tensor in tensors.items()]
    return type(module), tuple(texts), tuple(bits)


def functions_of(module: calls.Module, owners: Iterable[calls.Module]) -> list[Callable[..., Any]]:
    """Return the functions with names in `APPLY` to which the code of a module refers, or that of the nearest such owner."""
    for owner in (module, *owners):
        parts = [part for part in owner.modules() if part in (module, owner) or not is_place(part)]
        kinds = {kind: None for part in parts for kind in type(part).__mro__}
        methods = [inspect.unwrap(value) for kind in kinds for value in vars(kind).values() if inspect.isfunction(value)]
        callers = [method for method in methods if not set(APPLY).isdisjoint(method.__code__.co_names)]
        functions: dict[int, Callable[..., Any]] = {}
        for method in callers:
            # code that moves the columns before the call does not use the function as it is
            names = method.__code__.co_names
            for name in () if any(map(MOVES_COLUMNS.match, names)) else names:
                function = method.__globals__.get(name) if name in APPLY else None
                if callable(function) and calls.roles_of(function) is not None:
                    functions[id(function)] = function
        if callers:
            return list(functions.values())
    return []


def rotates(read: calls.Rotate, columns: int) -> Iterator[bool]:
    """Yield whether a function returns rotated x, which is 0 for x = 0, for each form of a call that succeeds."""
    for form in CALL_FORMS:
        with contextlib.suppress(Exception):
            shape = form(3, columns)
            result = calls.with_tensors(read)(np.zeros(shape, np.float32), np.arange(3)[(None,) * (len(shape) > 2)])
            first = result[0] if isinstance(result, (tuple, list)) else result
            yield first.shape == shape and not first.any()


def reader_of(module: calls.Module, setting: calls.Setting, columns: int) -> tuple[calls.Rotate | None, bool]:
    """Return a function that calls a module or reads its stored tables, and whether it returns rotated x.

    The function is None if the module can neither be called nor has tables.
    """
    call = calls.forward_of(calls.copied(module), setting) if is_called(module) else None
    is_rotated = [] if call is None else [*rotates(call, columns)]
    if not is_rotated:
        tables = stored(module)
        return None if tables is None else tables[1], False
    return call, any(is_rotated)


# ---- rows -----------------------------------------------------------------------------------------------------------


def _rows(model: Any, places: Sequence[Place], expectations: Sequence[Expected]) -> list[RotaryRow]:
    """Return the rows of equal modules: one for each layer type if the module takes the argument ``layer_type``, else one."""
    place = places[0]
    name = (place.name or "model") + (f" and {len(places) - 1} more" if len(places) > 1 else "")
    per_type = "layer_type" in (calls.roles_of(type(place.module).forward, "positions") or {})
    rows = []
    for expected in expectations:
        label = f"{name} ({expected.layer_type})" if per_type and len(expectations) > 1 else name
        rows.append(_row(model, label, place, expected, per_type))
    # a module for a single layer type agrees best with this type
    return rows if per_type else [best_of(rows)]


def _row(model: Any, name: str, place: Place, expected: Expected, per_type: bool) -> RotaryRow:
    """Return the row for a module."""
    rotary, module, tensors = expected.rotary, place.module, calls.tensors_of(place.module)
    meta = [key for key, tensor in tensors.items() if tensor.is_meta]
    if meta or rotary is None or hasattr(module, "scale_base"):
        reason = f"{meta[0]} is on the meta device; load the weights, then check again" if meta else (
            expected.reason or "xPos is not supported")
        return unchecked_row(name, rotary, reason)
    device = next((tensor.device for tensor in tensors.values()), calls.Setting().device)
    setting = calls.Setting(expected.layer_type if per_type else None, axes_of(rotary), device=device)
    dtype = calls.dtype_of(model)
    settings = [setting, setting._replace(dtype=dtype)]         # the module may round positions to this dtype
    source = "expected" if expected.config is rotary else SOURCE

    def judge(rotation: Any, label: str) -> RotaryRow:
        return row_of(name, rotation, rotary, label, source, calls.DTYPES.get(dtype, ""))

    rows = [_compared(place, one, rotary, judge) for one in settings[: 2 if dtype in calls.DTYPES else 1]]
    row = next((row for row in rows if row.verdict == "wrong"), rows[0])._replace(module=name, expected=rotary)
    if row.verdict == "not checked":
        return row
    faults = [fault for row in rows if row.verdict == "wrong" for fault in row.faults]
    tables = None if isinstance(module, RotaryEmbedding) or grows(module) else stored(module)
    positions = longest(expected.config) or 0 if source == SOURCE else 0
    if tables is not None and tables[0] < positions:
        row = row._replace(errors={p: error if p < tables[0] else None for p, error in row.errors.items()})
        faults.append(f"the table has {tables[0]:,} rows, the configuration has max_position_embeddings {positions:,}")
    return with_faults(row, tuple(dict.fromkeys(faults)))


def _compared(place: Place, setting: calls.Setting, rotary: Rotary, judge: Callable[[Any, str], RotaryRow]) -> RotaryRow:
    """Compare the frequencies of a module, its tables, and the rotation by the functions that apply them."""
    try:
        read, is_rotated = reader_of(place.module, setting, rotary.head_dim)
    except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
        reason = f"a call of the module raises {type(error).__name__}: {error}; {HOW.format('calls it')}"
        return unchecked_row("", rotary, reason)
    names = (f"{setting.layer_type}_inv_freq",) if setting.layer_type else ("inv_freq", "inv_freqs")
    rows = [judge(tensor, "frequencies") for name, tensor in calls.tensors_of(place.module).items()
            if name in names and tensor.ndim == 1]
    if read is None:
        reason = "only frequencies were compared, because posenc cannot call the module" if rows else (
            "posenc cannot read a rotation from the module")
        row = unchecked_row("", rotary, f"{reason}; {HOW.format('calls it')}")
        return _with_parts(row._replace(found=rows[0].found, compared=rows[0].compared) if rows else row, rows)
    if is_rotated:
        return _with_parts(judge(read, "the module's rotation"), rows)

    tables = judge(calls.tables(read), "tables")
    if "cos and sin are exchanged" in tables.faults:            # an attention may unpack them in this order
        read = calls.exchanged(read)
        tables = judge(calls.tables(read), "tables, which the module returns as (sin, cos),")
    applied: dict[str, RotaryRow] = {}
    for function in place.functions:
        label = calls.label_of(function)
        for columns in dict.fromkeys((rotary.head_dim, rotary.rotary_dim)):
            row = judge(calls.composed(function, read, setting, columns), f"{tables.compared} and the function {label}")
            if row.verdict != "not checked":
                applied[label] = row
                break
    if len({bool(row.faults) for row in applied.values()}) == 2:
        labels = " and ".join(applied)
        tables = tables._replace(
            compared=f"tables (the code refers to {labels}, only some of which agree with them; pass apply=)")
        applied = {}
    return _with_parts(next(iter(applied.values()), tables), [*rows, tables])


def _with_parts(rotation: RotaryRow, parts: Sequence[RotaryRow]) -> RotaryRow:
    """Return the row of a rotation that is wrong, or was not checked, with the faults of its first wrong part."""
    part = next((part for part in parts if part.verdict == "wrong"), None)
    if part is None or rotation.verdict not in ("wrong", "not checked"):
        return rotation
    if rotation.verdict == "not checked":
        return part
    faults = () if rotation.found is None else rotation.faults
    return with_faults(rotation._replace(found=rotation.found or part.found), tuple(dict.fromkeys(part.faults + faults)))
