#!/usr/bin/env python
"""Measure the rotation of every model type of the installed transformers: tools/model_types.py [TYPE ...]

Each type is built with its default configuration, but with two layers and without memory for weights.  Its
rotary module is called with positions, and the functions that apply the tables are given to
`identify_rotary`.  The result is written to src/posenc/_rotary/model_types.json, with a line for each type;
if types are given, their lines are printed instead.
"""

import contextlib
import functools
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

from posenc import Rotary
from posenc._rotary.axes_of_pairs import alternating, blocks, interleaved
from posenc._rotary.model_config import BASES as KEYS_OF_BASES
from posenc._rotary.model_config import LAYER_BASES, SHARES, WIDTHS, head_dim_of
from posenc.check import identify_rotary

FILE = Path(__file__).parents[1] / "src/posenc/_rotary/model_types.json"
ROTARY, APPLY = re.compile(r"[Rr]otary|R[Oo][Pp][Ee](?![a-z])"), re.compile(r"apply.*(rot|rope)")
MOVES_COLUMNS = re.compile(r"(de)?interleave")
LAYERS = {"num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"}
# keys that select the kind of positional encoding, with values for a rotation
SWITCHES = {"use_mem_rope": [True], "position_embedding_type": ["rotary", "rope"],
            "position_embeddings_type": ["rotary"]}
# keys of older configurations for the base of a type of layers, each with another value
BASES = {key: 301.0 + i for i, key in enumerate(itertools.chain(*LAYER_BASES.values()))}
# keys for the base and the number of rotated columns, with values that no type has by default
STATED = dict.fromkeys(KEYS_OF_BASES, 777) | dict.fromkeys(SHARES, 0.75) | dict.fromkeys(WIDTHS, 8)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
POSITIONS = np.array([[0, 1, 2, 3, 17]])
SEVERAL_AXES = "whose positions have several axes; Rotary.preset has rotations with several axes"


class NotMeasured(Exception):
    """The reason why a type has no measured rotation, as the end of a sentence about a configuration."""


class Refused(NotMeasured):
    """A reason that is a property of the type."""


# ---- models ------------------------------------------------------------------------------------------------


def shorten(config):
    """Give a configuration and its parts at most two layers, and return it."""
    for name, value in vars(config).copy().items():
        if name in LAYERS and isinstance(value, int) and not getattr(config, "layer_types", None):
            setattr(config, name, min(2, value))
        elif isinstance(value, transformers.PreTrainedConfig):
            shorten(value)
    if getattr(config, "vocab_size", 0) is None:
        config.vocab_size = 8
    return config


def classes_for(config):
    """Return the classes of modules in the code of a model."""
    code = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    classes = filter(inspect.isclass, vars(code).values())
    return [kind for kind in classes if issubclass(kind, torch.nn.Module)]


def built(config):
    """Return a model on the meta device, of the first class with this configuration that can be built."""
    error, no_forward = LookupError("no model has this configuration"), torch.nn.Module.forward
    for kind in classes_for(config):
        if getattr(kind, "config_class", None) is type(config) and kind.forward is not no_forward:
            try:
                with torch.device("meta"):
                    return kind(config)
            except Exception as failure:  # noqa: BLE001 (a model may raise any error)
                error = failure
    raise error


def rotary_modules(config):
    """Return the rotary modules of a model, as pairs of class and configuration, and the classes of modules.

    If no model can be built, these are the classes in its code that take the configuration, or the modules
    of a model that it is a part of.
    """
    try:
        parts = [(type(part), getattr(part, "config", config)) for part in built(config).modules()]
    except Exception:
        parts = [(kind, config) for kind in classes_for(config) if type(config) in {
            parameter.annotation for parameter in inspect.signature(kind).parameters.values()}]
        if not any(is_rotary(kind) for kind, _ in parts):
            wholes = [each for each in CONFIG_MAPPING.values() if type(config) in each.sub_configs.values()]
            modules, classes = rotary_modules(shorten(wholes[0]())) if wholes else ([], [])
            if not any(part.model_type == config.model_type for _, part in modules):
                raise
            return modules, classes
    modules = [part for part in parts if is_rotary(part[0])]
    if not modules and functions_of(dict(parts)):           # RoFormer: the tables are a weight
        modules = [(lambda _, part=part: type(part)(*part.weight.shape), config)
                   for part in built(config).modules() if hasattr(part, "create_weight")]
    return modules, list(dict(parts))


def is_rotary(kind):
    return bool(ROTARY.search(kind.__name__)) and "query" not in inspect.signature(kind.forward).parameters


# ---- tables ------------------------------------------------------------------------------------------------


class Tables:
    """The tables of a rotary module: `values` has ``cos + i sin`` for each position and pair."""

    def __init__(self, module, positions, layer_type=None):
        x, n = torch.zeros(1, 18, 8), POSITIONS.shape[1]
        if hasattr(module, "create_weight"):                        # RoFormer: [sin | cos]
            result = module.create_weight()[positions].chunk(2, -1)
        elif "position_ids" in inspect.signature(module.forward).parameters:
            result = module(x, torch.from_numpy(positions), *([layer_type] if layer_type else []))
        else:                                                       # Wav2Vec2-Conformer: [cos, sin]
            result = tuple(module(x)[:, positions[0], 0, 0][:, None])
        self.given = result if isinstance(result, tuple) else (result,)
        if len(self.given) == 1:
            values, self.form = result.numpy(), "complex"
        else:
            cos, sin = (each.double().numpy() for each in result)
            is_swapped = not positions.flat[0] and not cos[0, 0].any()      # the first angle is 0
            values, half = sin + 1j * cos if is_swapped else cos + 1j * sin, cos.shape[-1] // 2
            if np.array_equal(values[..., :half], values[..., half:]):
                values, self.form = values[..., :half], "twice"
            elif np.array_equal(values[..., ::2], values[..., 1::2]):
                values, self.form = values[..., ::2], "in pairs"
            else:
                self.form = "sin, cos" if is_swapped else "once"
        if values.ndim != 3 or values.shape[:2] != (1, n):
            raise NotMeasured(f"whose rotary module returns tables of shape {values.shape}")
        self.values = values[0]


def tables_of(kind, config, layer_type):
    """Return the largest number of axes of positions that the module accepts, and its tables."""
    for axes in (4, 3, 2, 1):
        try:
            positions = np.repeat(POSITIONS[None], axes, 0) if axes > 1 else POSITIONS
            return axes, Tables(kind(config), positions, layer_type)
        except Exception as failure:  # noqa: BLE001 (a model may raise any error)
            error = failure if isinstance(failure, NotMeasured) else NotMeasured(
                f"whose rotary module raises {type(failure).__name__}: {failure}")
    for shape in ((1, 5, 2), (5, 2)):
        with contextlib.suppress(Exception):
            kind(config)(torch.zeros(1), torch.zeros(shape, dtype=torch.int64))
            error = Refused(SEVERAL_AXES)
    raise error


def sections_of(kind, config, layer_type):
    """Return the order of the axes, and the default of mrope_section."""
    default, pairs = kind(config).mrope_section, len(kind(config).inv_freq)
    positions = np.repeat([[[1]], [[2]], [[3]]], POSITIONS.shape[1], -1)
    small, large = pairs // 4, 3 * pairs // 8
    for order, function, sections in (("blocks", blocks, [pairs - 2 * large, large, large]),
                                      ("interleaved", interleaved, [pairs - 2 * small, small, small]),
                                      ("alternating", alternating, [large, large, pairs - 2 * large])):
        config.rope_parameters["mrope_section"] = sections
        with contextlib.suppress(RuntimeError):             # the model expects other sections
            angles, frequencies = (np.angle(Tables(kind(config), each, layer_type).values[0])
                                   for each in (positions, np.ones_like(positions)))
            if np.allclose(angles / frequencies, np.add(function(sections), 1)):
                return {"axes": order, "sections": [*default]}
    raise NotMeasured("whose mrope_section has an unknown order")


# ---- layout ------------------------------------------------------------------------------------------------


def functions_of(classes):
    """Return the functions that apply tables, each with those that move columns in the code around it."""
    found = {}
    for kind in (each for each in classes if "Indexer" not in each.__name__):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            method = inspect.unwrap(member)
            named = {each: method.__globals__.get(each) for each in method.__code__.co_names} | {name: method}
            moves = [value for each, value in named.items() if MOVES_COLUMNS.match(each) and callable(value)]
            found |= {(each, bool(moves)): (value, moves) for each, value in named.items()
                      if APPLY.search(each) and inspect.isfunction(value)}
    return [*found.values()]


def rotated(function, moves, tables, axis, x, positions):
    """Return rows of x at some positions, rotated by a function of queries with the heads on `axis`."""
    tables_at = [each[:, np.searchsorted(POSITIONS[0], positions)] for each in tables.given]
    q = torch.from_numpy(x).expand(1, 2, *x.shape)
    q = q if axis == 1 else q.transpose(1, 2)
    for move in moves:
        q = move(q)
    names = ("sin", "cos") if tables.form == "sin, cos" else ("cos", "sin")
    known = dict(zip(names, tables_at, strict=False)) | {
        "freqs_cis": tables_at[0], "unsqueeze_dim": axis, "position_ids": None,
        "self": types.SimpleNamespace(num_heads=q.shape[2], head_size=q.shape[3]),
        "sinusoidal_pos": torch.cat(tables_at, -1)[:, None],
        "relative_position_embeddings": torch.stack(tables_at)[:, 0, :, None, None]}
    parameters = inspect.signature(function).parameters
    given = q.flatten(2) if "relative_position_embeddings" in parameters else q
    result = function(**{name: known.get(name, given) for name, parameter in parameters.items()
                         if name in known or parameter.default is parameter.empty})
    result = (result[0] if isinstance(result, tuple) else result).reshape(q.shape)
    return (result if axis == 1 else result.transpose(1, 2))[0, 1]


def layout_of(config, classes, tables):
    """Return the layout in which the functions of some classes rotate, as `identify_rotary` finds it."""
    found, first = set(), tables.values[1]
    expected = Rotary(2 * len(first), frequencies=np.angle(first), scale=float(np.abs(first[0])))
    functions = functions_of(classes) or functions_of(classes_for(config))
    for (function, moves), axis in itertools.product(functions, (1, 2)):
        with contextlib.suppress(Exception):            # a function of another kind
            f = functools.partial(rotated, function, moves, tables, axis)
            match, = identify_rotary(f, expect=expected, positions=POSITIONS[0], any_order=True)
            faults = [each for each in match.faults if not each.startswith("layout is")]
            if faults in ([], ["the signs of the sines are reversed"]):
                found.add(None if faults else match.rotary.layout)
    if len(found) == 2 and getattr(config, "rope_interleave", None) is not None:    # selects one of them
        found = {"interleaved" if config.rope_interleave else "halves"}
    if found == {None}:
        raise Refused("which negates angles; call Rotary with frequency_scale=-1")
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
    parameters = getattr(config, "rope_parameters", None) or {}
    names = sorted(name for name, value in parameters.items() if isinstance(value, dict))
    if not names:
        return properties_of_layer(kind, config, classes, None, parameters)
    former, layers, row = [{}, {}], {}, {}      # the parameters of configurations with the keys of older ones
    with contextlib.suppress(Exception):
        former = [type(config)(**BASES, **more).rope_parameters for more in ({}, {"rope_scaling": YARN})]
    keys = {base: key for key, base in BASES.items()}
    for name in names:
        with contextlib.suppress(NotMeasured):          # two layers may lack one of this type
            row = properties_of_layer(kind, config, classes, name, parameters[name])
            unscaled, scaled = ((each or {}).get(name) or {} for each in former)
            layers[name] = {key: row.pop(key) for key in ("base", "share", "is_scaled") if key in row}
            layers[name]["key"] = keys.get(unscaled.get("rope_theta"))
            layers[name]["takes_scaling"] = scaled.get("rope_type") == "yarn"
            layers[name] |= {key: scaled[key] for key in ("attention_factor",) if key in scaled}
    if not layers:
        raise NotMeasured("whose rotary module returns no tables for any type of layers")
    return row | {"layers": layers}


def properties_of_layer(kind, config, classes, layer_type, parameters):
    """Return the properties of a type of layers with these parameters."""
    row = {}
    if getattr(kind(config), "mrope_section", None):
        row = sections_of(kind, config, layer_type)
    axes, tables = tables_of(kind, config, layer_type)
    if axes > 1 and not row:
        raise Refused(SEVERAL_AXES)
    row["layout"] = layout_of(config, classes, tables)
    row["tables"], pairs = tables.form, tables.values.shape[1]
    stated = parameters.get("rope_theta", getattr(config, "rotary_embedding_base", None))
    row["base"] = base_of(tables, stated)
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


def measured(name):
    """Return the properties of a type, and the configuration with its rotation."""
    default = transformers.AutoConfig.for_model(name)
    switches = {key: values for key, values in SWITCHES.items() if hasattr(default, key)}
    for options in [{}, *({key: value} for key, values in switches.items() for value in values)]:
        config = shorten(transformers.AutoConfig.for_model(name, **options))
        modules, classes = rotary_modules(config)
        for kind, part in modules:
            if part.model_type == config.model_type:
                row = properties_of(kind, part, classes)
                for key, value in options.items():
                    row["switch"] = [key, value, getattr(default, key)]
                if "layers" not in row:
                    read = {key for key, value in STATED.items() if is_read(name, options, kind, key, value)}
                    if widths := [width for key in WIDTHS if (width := getattr(default, key, None))]:
                        row = {key: value for key, value in row.items() if key != "share"} | {"rotary_dim": widths[0]}
                    elif read & {*SHARES, *WIDTHS}:
                        row.setdefault("share", 1)
                    if "rope_theta" not in read and (keys := read & {*KEYS_OF_BASES}):
                        row["base_key"] = keys.pop()
                return row, part
    if not modules and functions_of(classes):
        raise NotMeasured("whose rotary module was not found")
    raise Refused("which has several parts with rotations; pass the configuration of a part" if modules
                  else "which has no rotary embeddings")


def is_read(name, options, kind, key, value):
    """Return whether a value of a key changes the tables of a rotary module, or these are unknown."""
    tables = []
    for change in ({}, {key: value}):
        with contextlib.suppress(Exception):                # the module expects other values
            config = shorten(transformers.AutoConfig.for_model(name, **options, **change))
            tables.append(tables_of(kind, config, None)[1].values)
    return len(tables) < 2 or not np.array_equal(*tables)


def part_of(name):
    """Return the part of a configuration with the language model: its key, and its type."""
    with contextlib.suppress(Exception):
        config = transformers.AutoConfig.for_model(name)
        text = config.get_text_config()
        for key, part in vars(config).items():
            is_part = isinstance(part, transformers.PreTrainedConfig)
            if is_part and any(text is each for each in (part, *vars(part).values())):
                return {"part": [key, part.model_type]}
    return None


def row_of(name):
    """Return the properties of a type, the part of its configuration with a rotation, or the lack of both."""
    try:
        row, config = measured(name)
    except Exception as error:  # noqa: BLE001 (a configuration or a model may raise any error)
        raised = "" if isinstance(error, NotMeasured) else f"whose model raises {type(error).__name__}: "
        kind, reason = "refused" if isinstance(error, Refused) else "unmeasured", f"{raised}{error}"
        if reason.startswith("whose rotary") and hasattr(CONFIG_MAPPING[name](), "patch_size"):
            kind, reason = "refused", SEVERAL_AXES
        return part_of(name) or {kind: " ".join(reason.split())[:120]}
    defaults = [getattr(type(config), key, None) for key in ("qk_rope_head_dim", "head_dim")]
    defaults = [value for value in defaults if isinstance(value, int)]
    values = {} if defaults else type(config)().to_dict()
    sizes = {key: values.get(key) for key in ("hidden_size", "num_attention_heads")}
    with contextlib.suppress(ValueError):
        if defaults or head_dim_of(values) != head_dim_of(sizes):
            # the default, even if the model has another width; None: the configuration class computes it
            row["head_dim"] = defaults[0] if defaults else None
    return row


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_grad_enabled(False)
    names = sys.argv[1:] or sorted(CONFIG_MAPPING)
    rows = ",\n".join(f'"{name}": {json.dumps(row_of(name))}' for name in names)
    text = f'{{"transformers": "{transformers.__version__}", "types": {{\n{rows}\n}}}}\n'
    if sys.argv[1:]:
        print(text)
    else:
        FILE.write_text(text)


if __name__ == "__main__":
    main()
