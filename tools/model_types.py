#!/usr/bin/env python
"""Measure the rotation of every model type of the installed transformers: tools/model_types.py [TYPE ...]

Each type is built with its default configuration, but with two layers and without memory for weights.  Its
rotary module is called with positions, and the functions that apply the tables are called with random
queries.  The result is written to src/posenc/_rotary/model_types.json, with a line for each type; if types
are given, their lines are printed instead.
"""

import contextlib
import importlib
import inspect
import itertools
import json
import re
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from posenc._rotary.axes_of_pairs import alternating, blocks, interleaved
from posenc._rotary.model_config import head_dim_of

FILE = Path(__file__).parents[1] / "src/posenc/_rotary/model_types.json"
ROTARY, APPLY = re.compile(r"[Rr]otary|R[Oo][Pp][Ee](?![a-z])"), re.compile(r"apply.*(rot|rope)")
MOVES_COLUMNS = re.compile(r"(de)?interleave")
# keys that select the kind of positional encoding, with the value for a rotation, and another value
SWITCHES = {"use_mem_rope": (True, False), "position_embedding_type": ("rotary", "rope", "absolute"),
            "position_embeddings_type": ("rotary", "relative")}
# keys of older configurations for the base of a type of layers, each with another value
BASES = {"rope_theta": 301.0, "rope_local_base_freq": 302.0, "local_rope_theta": 303.0,
         "global_rope_theta": 304.0, "swa_rope_theta": 305.0, "compress_rope_theta": 306.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
POSITIONS = np.array([[0, 1, 2, 3, 17]])
SEVERAL_AXES = "whose positions have several axes; Rotary.preset has rotations with several axes"
SEVERAL_PARTS = "which has several parts with rotations; pass the configuration of a part"
NO_ROTATION = "which has no rotary embeddings"
NEGATIVE = "which negates angles; call Rotary with frequency_scale=-1"
DEFINITE = {SEVERAL_AXES, SEVERAL_PARTS, NO_ROTATION, NEGATIVE}


class NotMeasured(Exception):
    """The reason why a type has no measured rotation, as the end of a sentence about a configuration."""


# ---- models ------------------------------------------------------------------------------------------------


def configured(name, **options):
    """Return the default configuration of a type and its parts, with two layers."""
    config = transformers.AutoConfig.for_model(name, **options)
    shorten(config)
    return config


def shorten(config):
    for name in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"):
        if not getattr(config, "layer_types", None) and isinstance(getattr(config, name, None), int):
            with contextlib.suppress(NotImplementedError):          # a property
                setattr(config, name, min(2, getattr(config, name)))
    if getattr(config, "vocab_size", 0) is None:
        config.vocab_size = 8
    for part in parts_of(config).values():
        shorten(part)


def parts_of(config):
    kind = transformers.PreTrainedConfig
    return {key: part for key, part in vars(config).items() if isinstance(part, kind)}


def classes_for(config, base):
    """Return the classes of modules in the code of a model."""
    code = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    return [kind for kind in vars(code).values() if inspect.isclass(kind) and issubclass(kind, base)]


def built(config):
    """Return a model on the meta device, of the first class with this configuration that can be built."""
    error = LookupError("no model has this configuration")
    for kind in classes_for(config, transformers.PreTrainedModel):
        is_model = kind.config_class is type(config) and kind.forward is not torch.nn.Module.forward
        for _ in range(4 * is_model):
            try:
                with torch.device("meta"):
                    return kind(config)
            except Exception as failure:  # noqa: BLE001 (a model may raise any error)
                error = failure
            if isinstance(error, AttributeError) and isinstance(error.obj, transformers.PreTrainedConfig):
                setattr(error.obj, error.name, 0)           # the class of a part lacks an attribute
    raise error


def rotary_modules(config):
    """Return the rotary modules of a model, as pairs of class and configuration, and the classes of modules.

    If no model can be built, these are the classes in its code.
    """
    classes = classes_for(config, torch.nn.Module)
    try:
        parts = dict(built(config).named_modules())
    except Exception:
        kinds = [kind for kind in classes if is_rotary(kind) and type(config) in {
            parameter.annotation for parameter in inspect.signature(kind).parameters.values()}]
        if not kinds:
            raise
        return [(kind, config) for kind in kinds], classes
    used = [*{type(part): None for part in parts.values()}]
    modules = [(type(part), getattr(part, "config", config)) for part in parts.values() if is_rotary(type(part))]
    if not modules and functions_of(used):              # RoFormer: the tables are a weight
        modules = [(lambda _, part=part: type(part)(*part.weight.shape), config) for part in parts.values()
                   if "input_ids_shape" in inspect.signature(part.forward).parameters]
    return modules, used


def is_rotary(kind):
    return bool(ROTARY.search(kind.__name__)) and "query" not in inspect.signature(kind.forward).parameters


# ---- tables ------------------------------------------------------------------------------------------------


class Tables:
    """The tables of a rotary module: `values` has ``cos + i sin`` for each position and pair."""

    def __init__(self, module, positions, layer_type=None):
        x, n = torch.zeros(1, 18, 8), POSITIONS.shape[1]
        if takes_positions(module):
            result = module(x, torch.from_numpy(positions), *([layer_type] if layer_type else []))
        elif hasattr(module, "create_weight"):                      # RoFormer: [sin | cos]
            result = module.create_weight()[POSITIONS].chunk(2, -1)
        else:                                                       # Wav2Vec2-Conformer: [cos, sin]
            result = tuple(module(x)[:, POSITIONS[0], 0, 0][:, None])
        self.given = result if isinstance(result, tuple) else (result,)
        if len(self.given) == 1:
            values, self.form = result.numpy(), "complex"
        else:
            cos, sin = (each.double().numpy() for each in result)
            swapped = not positions.flat[0] and cos.ndim == 3 and not cos[0, 0].any()
            values = sin + 1j * cos if swapped else cos + 1j * sin
            half = values.shape[-1] // 2
            if np.array_equal(values[..., :half], values[..., half:]):
                values, self.form = values[..., :half], "twice"
            elif np.array_equal(values[..., ::2], values[..., 1::2]):
                values, self.form = values[..., ::2], "in pairs"
            else:
                self.form = "sin, cos" if swapped else "once"
        if values.ndim != 3 or values.shape[:2] != (1, n):
            raise NotMeasured(f"whose rotary module returns tables of shape {values.shape}")
        self.values = values[0]


def takes_positions(module):
    parameters = inspect.signature(module.forward).parameters
    return "position_ids" in parameters and not hasattr(module, "create_weight")


def tables_of(kind, config, layer_type):
    """Return the largest number of axes of positions that the module accepts, and its tables."""
    reasons = {}
    for axes in (4, 3, 2, 1) if takes_positions(kind(config)) else (1,):
        positions = np.repeat(POSITIONS[None], axes, 0) if axes > 1 else POSITIONS
        try:
            return axes, Tables(kind(config), positions, layer_type)
        except Exception as error:  # noqa: BLE001 (a model may raise any error)
            reasons[axes] = error if isinstance(error, NotMeasured) else NotMeasured(
                f"whose rotary module raises {type(error).__name__}: {error}")
    for shape in ((1, 5, 2), (5, 2)):
        try:
            kind(config)(torch.zeros(1), torch.zeros(shape, dtype=torch.int64))
        except Exception:  # noqa: BLE001
            continue
        reasons[1] = NotMeasured(SEVERAL_AXES)
    raise reasons[1]


def sections_of(kind, config, layer_type, axes, pairs):
    """Return the order of the axes, and the default of mrope_section."""
    default = getattr(kind(config), "mrope_section", None)
    if axes != 3 or default is None:
        raise NotMeasured(SEVERAL_AXES)
    small, large = pairs // 4, 3 * pairs // 8
    for order, function, sections in (("blocks", blocks, [pairs - 2 * large, large, large]),
                                      ("interleaved", interleaved, [pairs - 2 * small, small, small]),
                                      ("alternating", alternating, [large, large, pairs - 2 * large])):
        config.rope_parameters["mrope_section"] = sections
        measured = np.full(pairs, -1)
        for axis, row in enumerate(np.eye(3, dtype=int)):
            positions = row[:, None, None].repeat(POSITIONS.shape[1], -1)
            with contextlib.suppress(RuntimeError):             # the model expects other sections
                measured[Tables(kind(config), positions, layer_type).values[0].imag != 0] = axis
        if measured.tolist() == [*function(sections)]:
            return {"axes": order, "sections": [*default]}
    raise NotMeasured("whose mrope_section has an unknown order")


# ---- layout ------------------------------------------------------------------------------------------------


def functions_of(classes):
    """Return the functions that apply tables, each with those that move columns in the code around it."""
    found = {}
    for kind in {base for each in classes if "Indexer" not in each.__name__ for base in each.__mro__}:
        for name, method in vars(kind).items():
            method = inspect.unwrap(method.__func__ if isinstance(method, staticmethod) else method)
            if not inspect.isfunction(method):
                continue
            named = {each: method.__globals__.get(each) for each in method.__code__.co_names} | {name: method}
            moves = [value for each, value in named.items() if MOVES_COLUMNS.match(each) and callable(value)]
            found |= {(each, bool(moves)): (value, moves) for each, value in named.items()
                      if APPLY.search(each) and inspect.isfunction(value)}
    return [*found.values()]


def rotated(function, moves, tables, x, axis, sections):
    """Return queries of shape (1, heads, n, width), rotated by a function with the heads on `axis`."""
    q = x if axis == 1 else x.transpose(1, 2)
    for move in moves:
        q = move(q)
    cos, sin = tables.values.real, tables.values.imag
    once = torch.from_numpy(np.concatenate([sin, cos], -1)).float()
    twice = torch.from_numpy(np.stack([np.tile(cos, 2), np.tile(sin, 2)])).float()
    names = ("sin", "cos") if tables.form == "sin, cos" else ("cos", "sin")
    known = dict(zip(names, tables.given, strict=False)) | {
        "freqs_cis": tables.given[0], "unsqueeze_dim": axis, "mrope_section": sections, "position_ids": None,
        "self": types.SimpleNamespace(num_heads=q.shape[2], head_size=q.shape[3]),
        "sinusoidal_pos": once[None, None], "relative_position_embeddings": twice[:, :, None, None]}
    parameters = inspect.signature(function).parameters
    given = q.flatten(2) if "relative_position_embeddings" in parameters else q
    result = function(**{name: known.get(name, given) for name, parameter in parameters.items()
                         if name in known or parameter.default is parameter.empty})
    result = (result[0] if isinstance(result, tuple) else result).reshape(q.shape)
    return (result if axis == 1 else result.transpose(1, 2)).double().numpy()


def layouts_of(x, result, values):
    """Yield the layouts in which the first or last columns of x, rotated by `values`, are as in `result`."""
    width, dim = x.shape[-1], 2 * values.shape[-1]
    columns = np.arange(dim)
    for layout, pairs in (("halves", columns.reshape(2, -1)), ("interleaved", columns.reshape(-1, 2).T)):
        for first, second in (pairs, pairs + width - dim):
            for name, turns in ((layout, values), ("negative", values.conj())):
                expected, turned = x.copy(), (x[..., first] + 1j * x[..., second]) * turns
                expected[..., first], expected[..., second] = turned.real, turned.imag
                # a model may move interleaved columns of queries and keys to halves, which does not change
                # their products
                moved = expected[..., [*range(0, width, 2), *range(1, width, 2)]]
                forms = (expected, moved) if width == dim else (expected,)
                if any(np.allclose(form, result, atol=1e-5) for form in forms):
                    yield name


def layout_of(config, classes, tables, sections):
    """Return the layout in which the functions of some classes rotate."""
    found, dim, n = set(), 2 * tables.values.shape[1], POSITIONS.shape[1]
    functions = functions_of(classes) or functions_of(classes_for(config, torch.nn.Module))
    for (function, moves), axis, width in itertools.product(functions, (1, 2), (dim, 2 * dim)):
        x = torch.randn(1, 2, n, width, generator=torch.Generator().manual_seed(0))
        with contextlib.suppress(Exception):            # a function of another kind, or for other columns
            result = rotated(function, moves, tables, x, axis, sections)
            found |= {*layouts_of(x.double().numpy(), result, tables.values)}
    if len(found) == 2 and getattr(config, "rope_interleave", None) is not None:    # selects one of them
        found = {"interleaved" if config.rope_interleave else "halves"}
    if found == {"negative"}:
        raise NotMeasured(NEGATIVE)
    if len(found) != 1:
        raise NotMeasured(f"whose functions rotate in {len(found)} layouts known to posenc")
    return found.pop()


# ---- properties --------------------------------------------------------------------------------------------


def base_of(tables, stated):
    """Return the stated base of frequencies or, if they have another, this one; None if they are scaled."""
    angles = np.angle(tables.values[1])
    for columns in (2 * len(angles), 2 * len(angles) - 1):      # an odd number: the last is half a pair
        exponents = -2 * np.arange(len(angles)) / columns
        has_base = len(angles) > 1 and angles[-1] > 0
        for base in (stated, float(f"{angles[-1] ** (1 / exponents[-1]):.4g}") if has_base else None):
            if base and np.allclose(angles, base**exponents, 1e-4, 0):
                return float(base)
    return None


def properties_of(kind, config, classes):
    """Return the properties of a type with a rotary module."""
    parameters, layers, row = getattr(config, "rope_parameters", None) or {}, {}, {}
    is_stated = bool(parameters)
    if not is_stated and "layer_type" in inspect.signature(getattr(kind, "forward", kind)).parameters:
        layer_types = getattr(config, "layer_types", None) or ()
        parameters = {name: {"rope_type": "default", "rope_theta": 1e4} for name in layer_types}
        config.rope_parameters = parameters or getattr(config, "rope_parameters", None)
    names = sorted(name for name, value in parameters.items() if isinstance(value, dict))
    if not names:
        return properties_of_layer(kind, config, classes, None, parameters)
    for name in names:
        try:
            row = properties_of_layer(kind, config, classes, name, parameters[name])
            layers[name] = {key: row.pop(key) for key in ("base", "share", "is_scaled") if key in row}
        except NotMeasured as error:
            reason = error              # two layers may lack one of this type
    if not layers:
        raise reason
    former = []                         # the parameters of configurations with the keys of older ones
    for options in ({}, {"rope_scaling": dict(YARN)}):
        with contextlib.suppress(Exception):
            former.append(type(config)(**BASES, **options).rope_parameters or {})
    keys = {base: key for key, base in BASES.items()}
    for name, layer in layers.items():
        unscaled, scaled = ((each.get(name) or {}) for each in former) if len(former) == 2 else ({}, {})
        layer["key"] = keys.get(unscaled.get("rope_theta"))
        layer["takes_scaling"] = scaled.get("rope_type") == "yarn"
        layer |= {key: scaled[key] for key in ("attention_factor",) if key in scaled}
        if not is_stated:
            layer["base"] = None
    return row | {"layers": layers}


def properties_of_layer(kind, config, classes, layer_type, parameters):
    try:
        axes, tables = tables_of(kind, config, layer_type)
    except NotMeasured:
        sections = getattr(kind(config), "mrope_section", None)
        if not sections:
            raise
        # the default sections do not fit the default number of columns
        config.head_dim = round(2 * sum(sections) / parameters.get("partial_rotary_factor", 1))
        axes, tables = tables_of(kind, config, layer_type)
    pairs, row = tables.values.shape[1], {}
    if axes > 1:
        row |= sections_of(kind, config, layer_type, axes, pairs)
        axes, tables = tables_of(kind, config, layer_type)
    row["layout"] = layout_of(config, classes, tables, parameters.get("mrope_section"))
    row["tables"], stated = tables.form, parameters.get("rope_theta")
    row["base"] = base_of(tables, stated or getattr(config, "rotary_embedding_base", None))
    if parameters.get("rope_type", "default") != "default":
        row |= {"base": parameters["rope_theta"], "is_scaled": True}
    if parameters.get("rope_type") == "proportional":
        return row
    share = parameters.get("partial_rotary_factor")
    with contextlib.suppress(ValueError):               # the default sizes do not give a head_dim
        head_dim = head_dim_of(config.to_dict())
        if share is None or int(head_dim * share) // 2 != pairs:
            share = min(1, 2 * pairs / head_dim)        # a type of layers may have more columns than others
    return row if share in (None, 1) else row | {"share": share}


# ---- types -------------------------------------------------------------------------------------------------


def survey(names):
    """Return the rotary modules by type, and for each other type the reason why no module was found."""
    found, direct, reasons = {}, set(), {}
    for name in names:
        try:
            config = configured(name)
            switches = {key: values for key, values in SWITCHES.items() if hasattr(config, key)}
            for options in [{}, *({key: value} for key, values in switches.items() for value in values[:-1])]:
                config = configured(name, **options)
                modules, classes = rotary_modules(config)
                for kind, part in modules:
                    if part.model_type == config.model_type and name not in direct:
                        found[name] = kind, part, classes, options
                        direct.add(name)
                    found.setdefault(part.model_type, (kind, part, classes, {}))
                if name in direct:
                    break
            else:
                missing = "whose rotary module was not found" if functions_of(classes) else NO_ROTATION
                reasons[name] = SEVERAL_PARTS if modules else missing
        except Exception as error:  # noqa: BLE001 (a configuration or a model may raise any error)
            reasons[name] = f"whose model raises {type(error).__name__}: {error}"
    return found, reasons


def row_of(name, found, reasons):
    """Return the properties of a type, the part of its configuration with a rotation, or the lack of both."""
    row, reason = {}, reasons.get(name)
    if name in found:
        kind, config, classes, options = found[name]
        try:
            row = properties_of(kind, config, classes)
        except NotMeasured as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001
            reason = f"whose rotary module raises {type(error).__name__}: {error}"
    if not row:
        if reason.startswith("whose rotary") and hasattr(CONFIG_MAPPING[name](), "patch_size"):
            reason = SEVERAL_AXES
        kind = "refused" if reason in DEFINITE else "unmeasured"
        return part_of(name) or {kind: " ".join(reason.split())[:120]}
    defaults = [getattr(type(config), key, None) for key in ("qk_rope_head_dim", "head_dim")]
    defaults = [value for value in defaults if isinstance(value, int)]
    if defaults:                                            # the default, even if the model has another width
        row["head_dim"] = defaults[0]
    else:
        values = type(config)().to_dict()
        with contextlib.suppress(ValueError):
            sizes = {key: values.get(key) for key in ("hidden_size", "num_attention_heads")}
            if head_dim_of(values) != head_dim_of(sizes):
                row["head_dim"] = None                      # the configuration class computes it
    for key, value in options.items():
        row["switch"] = [key, value, getattr(CONFIG_MAPPING[name](), key)]
    return row


def part_of(name):
    """Return the part of a configuration with the language model: its key, and its type."""
    with contextlib.suppress(Exception):
        config = transformers.AutoConfig.for_model(name)
        text = config.get_text_config()
        for key, part in parts_of(config).items():
            if part is text or text in parts_of(part).values():
                return {"part": [key, part.model_type]}
    return None


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    names = sys.argv[1:] or sorted(CONFIG_MAPPING)
    found, reasons = survey(names)
    rows = ",\n".join(
        f'"{name}": {json.dumps(row_of(name, found, reasons))}' for name in sorted({*found, *names}))
    text = f'{{"transformers": "{transformers.__version__}", "types": {{\n{rows}\n}}}}\n'
    if sys.argv[1:]:
        print(text)
    else:
        FILE.write_text(text)


if __name__ == "__main__":
    main()
