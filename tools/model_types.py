#!/usr/bin/env python
"""Measure the rotation of every model type of the installed transformers: tools/model_types.py [TYPE ...]

Each type is built with its default configuration, but with few layers, and with weights that take no memory.
`check_rotary` runs the model and finds how its queries and keys are rotated, also with other values of the
keys for the base and the number of columns.  The result is written to src/posenc/_rotary/model_types.json,
with a line for each type; if types are given, their lines are printed instead.
"""

import contextlib
import functools
import importlib
import inspect
import itertools
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from posenc import Rotary
from posenc._rotary.model_config import BASES as KEYS_OF_BASES
from posenc._rotary.model_config import LAYER_BASES, SHARES, WIDTHS, head_dim_of
from posenc._rotary.scaling import alternating, blocks, interleaved
from posenc.check import check_rotary

FILE = Path(__file__).parents[1] / "src/posenc/_rotary/model_types.json"
# for types that cannot be run with the default configuration and tokens: keywords of the configuration, or
# shapes of arguments, in which -1 stands for the number of rows; for others, properties read in their code
NEEDS = json.loads(Path(__file__).with_name("small_models.json").read_text())
# a class of a rotary module, or a call of a function that rotates
MENTION = re.compile(r"class \w*([Rr]otary|R[Oo][Pp][Ee](?![a-z]))|apply\w*(rot|rope)\w*\(")
# positions of several axes, made from those of one
SEVERAL = re.compile(r"position_ids\b.*\.expand\([2-9],|position_ids\.ndim == 3")
# keys that select the kind of positional encoding, with values for a rotation
SWITCHES = {"use_mem_rope": [True], "position_embedding_type": ["rotary", "rope"],
            "position_embeddings_type": ["rotary"]}
# keys of older configurations for the base of a type of layers, and keys for the base and the number of
# rotated columns, with values that no type has by default
BASES = {key: 301.0 + i for i, key in enumerate(itertools.chain(*LAYER_BASES.values()))}
STATED_BASES = {key: 771 + i for i, key in enumerate(KEYS_OF_BASES)}
STATED_WIDTHS = dict.fromkeys(SHARES, 0.75) | dict.fromkeys(WIDTHS, 8)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
ORDERS = {"blocks": blocks, "interleaved": interleaved, "alternating": alternating}
SEVERAL_AXES = "whose positions have several axes; Rotary.preset has rotations with several axes"
NO_ROTATION = re.compile("do not depend on the position|(is|are) not rotated|no attention was found")
REVERSED, VARIES = "the signs of the sines are reversed", "vectors depend on the position before"

# the number of layers, and their kinds; sizes that do not matter
LAYERS = {"num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"}
KINDS = ("layer_types", "layers_block_type", "block_types")
SIZES = re.compile(r".*(intermediate|ffn).*|(num|n)_(local_|routed_)?experts")
INTEGERS = re.compile("_ids|_code|lengths|mask")


class NotMeasured(Exception):
    """The reason why a type has no measured rotation, as the end of a sentence about a configuration."""


class Refused(NotMeasured):
    """A reason that is a property of the type."""


# ---- models ------------------------------------------------------------------------------------------------


def shorten(config):
    """Give a configuration and its parts one layer of each kind and small sizes, and return it."""
    for key, value in vars(config).copy().items():
        if isinstance(value, transformers.PreTrainedConfig):
            shorten(value)
        elif key in LAYERS and isinstance(value, int) and value > 1:
            lists = {name: values for name, values in vars(config).items()
                     if isinstance(values, (list, tuple)) and len(values) == value}
            kinds = [*next((lists[name] for name in KINDS if name in lists), [""])]
            chosen = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
            for name, values in lists.items():
                setattr(config, name, [values[i] for i in chosen])
            setattr(config, key, len(chosen))
        elif SIZES.fullmatch(key) and isinstance(value, int) and value > 64:
            setattr(config, key, 64)
        elif isinstance(value, dict) and "llama_4_scaling_beta" in value:       # a factor of late queries
            value["llama_4_scaling_beta"] = 0.0
    return config


def built(kind, config):
    """Return a model with random weights.  The elements of large ones repeat, so they take no memory."""
    with torch.device("meta"):
        model = kind(config)
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                is_large = weight.numel() > 2**17
                values = 0.02 * torch.randn(sum(weight.shape)) if is_large else torch.zeros(weight.shape)
                strides = [1] * weight.ndim if is_large else values.stride()
                module._parameters[name] = torch.nn.Parameter(values.as_strided(weight.shape, strides))
                module._parameters[name]._is_hf_initialized = is_large
        module._buffers |= {name: torch.zeros_like(buffer, device="cpu")
                            for name, buffer in module._buffers.items() if buffer is not None}
    model.initialize_weights()
    model.set_experts_implementation("eager")
    return model.eval()


@functools.lru_cache(4)
def model_of(whole, kind, keywords):
    """Return a model of a type, with the keywords of its configuration, as JSON."""
    return built(kind, shorten(transformers.AutoConfig.for_model(whole, **json.loads(keywords))))


def classes_for(config):
    """Return the classes of models in the code of a model that take the configuration."""
    code = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    classes = [each for each in vars(code).values() if inspect.isclass(each)
               and issubclass(each, transformers.PreTrainedModel)]
    return [each for each in classes if each.forward is not torch.nn.Module.forward and type(config) in (
        each.config_class, *(value.annotation for value in inspect.signature(each).parameters.values()))]


# ---- runs --------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """A way to run a model: the type that is built, the key of a part, the class, keywords, and arguments."""

    whole: str
    part: str
    kind: Any
    options: dict[str, Any]
    inputs: Any = None

    def model(self, **more):
        """Return the model, with more keywords of the configuration."""
        keywords = self.options | more
        keywords = {self.part: keywords} if self.part and keywords else keywords
        return model_of(self.whole, self.kind, json.dumps(keywords))


class Rotation(NamedTuple):
    """A row of a report with a rotation: the configuration of its module, and the form of tables."""

    rotary: Rotary
    row: Any
    config: Any
    tables: str

    def frequencies(self):
        """Return the frequencies of the rotated pairs."""
        return np.abs(self.rotary.frequencies[self.rotary.frequencies != 0])

    def is_in(self, name, kinds, parameters):
        """Return whether a type of layers has this rotation: the first layer of the row, or those like it."""
        layer = re.search(r"\.(\d+)\.", self.row.module)
        is_first = name in kinds and layer and kinds[int(layer[1])] == name
        may_be_other = " and " in self.row.module or name not in kinds
        return is_first or may_be_other and self.rotary.base == parameters["rope_theta"]


def inputs_of(model, name):
    """Return the arguments of a model: None for tokens, or tensors of ones.

    If the model takes positions, they are a function of these.
    """
    shapes = NEEDS.get(name, {}).get("inputs")
    if shapes is None:
        return None

    def at_positions(positions):
        tensors = {key: shape if isinstance(shape, int) else torch.ones(
            [len(positions) if length < 0 else length for length in shape],
            dtype=torch.int64 if INTEGERS.search(key) else torch.float32) for key, shape in shapes.items()}
        return tensors | ({"position_ids": positions[None]} if takes_positions else {})

    takes_positions = "position_ids" in inspect.signature(model.forward).parameters and "-1" in str(shapes)
    return at_positions if takes_positions else at_positions(torch.arange(64))


def part_in(model, name):
    """Return the first module of a model that has the configuration of a type, or None."""
    return next((each for each in model.modules()
                 if getattr(getattr(each, "config", None), "model_type", None) == name), None)


def ways_of(name, options, unbuilt):
    """Yield ways to run a model with a type, alone or as a part of another.

    The reasons why others cannot be built are appended to a list.
    """
    wholes = [(name, "")] + [(key, part) for key, each in CONFIG_MAPPING.items()
                             for part, kind in each.sub_configs.items() if kind is CONFIG_MAPPING[name]]
    for whole, part in wholes:
        for kind in classes_for(CONFIG_MAPPING[whole]()):
            try:
                way = Way(whole, part, kind, options)
                if part_in(way.model(), name):
                    yield way._replace(inputs=inputs_of(way.model(), name))
            except Exception as error:  # noqa: BLE001 (a model may raise any error)
                unbuilt.append(f"whose model raises {type(error).__name__}: {error}")


def report_of(model, expected, inputs):
    """Return the report of `check_rotary`.

    In an attention whose hidden states are rotated, the identity replaces the projections of these.
    """
    report = check_rotary(model, expected, inputs=inputs)
    varying = [row for row in report if any(fault.startswith(VARIES) for fault in row.faults)]
    for row in varying:
        attention = model.get_submodule(row.module.split(" ")[0])
        for name, module in attention.named_children():
            if getattr(module, "in_features", 0) == getattr(module, "out_features", 1):
                setattr(attention, name, torch.nn.Identity())
    return check_rotary(model, expected, inputs=inputs) if varying else report


def form_of(pairs):
    """Return the form of the first pair of cosines and sines, or None."""
    for pair in pairs:
        if len(pair) == 1 and pair[0].is_complex():
            return "complex"
        if len(pair) != 2 or pair[0].shape != pair[1].shape or not pair[0].is_floating_point():
            continue
        cos, sin = (each.detach().double().reshape(-1, each.shape[-1]).numpy() for each in pair)
        sizes, half = np.hypot(cos, sin), cos.shape[-1] // 2
        if half and np.ptp(sizes) < 0.01 * sizes.max() and np.ptp(cos, axis=0).any():
            if not cos[0].any():
                return "sin, cos"
            is_twice = np.array_equal(cos[:, :half], cos[:, half:])
            is_in_pairs = cos.shape[-1] == 2 * half and np.array_equal(cos[:, ::2], cos[:, 1::2])
            return "twice" if is_twice else "in pairs" if is_in_pairs else "once"
    return None


def run(way, name, more, expected=None):
    """Run a model with more keywords; return the report, and the rotations that were found."""
    model, results, outputs = way.model(**more), {}, []
    own = part_in(model, name).config

    def keep(module, arguments, output):
        output = output if isinstance(output, tuple) or getattr(output, "ndim", 0) > 3 else (output,)
        if len(output) < 3 and all(isinstance(each, torch.Tensor) for each in output):
            outputs.append(output)

    base = (getattr(own, "rope_parameters", None) or {}).get("rope_theta") or 10000.0
    for layout, sign in (("halves", 1), ("interleaved", 1), ("halves", -1)):
        rotary = expected or Rotary(
            head_dim_of(own.to_dict()), base=base, layout=layout, frequency_scale=sign)
        with torch.nn.modules.module.register_module_forward_hook(keep):
            report = report_of(model, rotary, way.inputs)
        tables = [each.chunk(2, -1) for each in (*model.buffers(), *model.parameters()) if each.ndim == 2]
        for row in report:
            if row.found is not None and row.module not in results:
                path = row.module.split(" ")[0]
                parents = [model.get_submodule(path[: match.start()]) for match in re.finditer(r"\.|$", path)]
                configs = [each.config for each in parents if hasattr(each, "config")] or [model.config]
                form = form_of([*outputs, *tables]) or "twice"
                results[row.module] = Rotation(row.found, row, configs[-1], form)
        if all(row.found is not None or row.verdict == "not checked" for row in report):
            break
    return report, [*results.values()]


def frequencies_of(way, name, more):
    """Return the frequencies with more keywords, or None if the model cannot be run with them."""
    with contextlib.suppress(Exception):
        own = [each for each in run(way, name, more)[1] if each.config.model_type == name]
        return own[0].frequencies()
    return None


# ---- properties --------------------------------------------------------------------------------------------


def base_of(frequencies, stated):
    """Return the stated base of frequencies or, if they have another, this one; None if they are scaled."""
    for columns in (2 * len(frequencies), 2 * len(frequencies) - 1):    # if odd, the last is half a pair
        exponents = -2 * np.arange(len(frequencies)) / columns
        own = float(f"{frequencies[-1] ** (1 / exponents[-1]):.4g}") if len(frequencies) > 1 else None
        for base in (stated, own):
            if base and np.allclose(frequencies, base**exponents, 1e-4, 0):
                return float(base)
    return None


def properties_of(rotation, parameters):
    """Return the properties of a rotation in the layers with these parameters."""
    if REVERSED in rotation.row.faults or rotation.rotary.frequency_scale < 0:
        raise Refused("which negates angles; call Rotary with frequency_scale=-1")
    frequencies, head_dim = rotation.frequencies(), rotation.rotary.head_dim
    stated = parameters.get("rope_theta", getattr(rotation.config, "rotary_embedding_base", None))
    row = {"layout": rotation.rotary.layout, "tables": rotation.tables, "base": base_of(frequencies, stated)}
    if parameters.get("rope_type", "default") != "default":
        row |= {"base": parameters["rope_theta"], "is_scaled": True}
    if parameters.get("rope_type") == "proportional":
        return row
    share = parameters.get("partial_rotary_factor")
    if share is None or int(head_dim * share) // 2 != len(frequencies):
        share = min(1, 2 * len(frequencies) / head_dim)     # a type of layers may have its own width
    return row if share == 1 else row | {"share": share}


def properties_of_layers(rotations, parameters):
    """Return the properties of a type with several types of layers."""
    own, former, layers, row = rotations[0].config, [{}, {}], {}, {}
    with contextlib.suppress(Exception):        # the parameters of configurations with the keys of older ones
        former = [type(own)(**BASES, **more).rope_parameters for more in ({}, {"rope_scaling": YARN})]
    keys = {base: key for key, base in BASES.items()}
    kinds = next((getattr(own, key) for key in KINDS if getattr(own, key, None)), ())
    for name in sorted(key for key, value in parameters.items() if isinstance(value, dict)):
        of_type = [each for each in rotations if each.is_in(name, kinds, parameters[name])]
        if of_type:
            row = properties_of(of_type[0], parameters[name])
            unscaled, scaled = ((each or {}).get(name) or {} for each in former)
            layers[name] = {key: row.pop(key) for key in ("base", "share", "is_scaled") if key in row}
            layers[name]["key"] = keys.get(unscaled.get("rope_theta"))
            layers[name]["takes_scaling"] = scaled.get("rope_type") == "yarn"
            layers[name] |= {key: scaled[key] for key in ("attention_factor",) if key in scaled}
    return row | {"layers": layers}


def axes_of(way, name, rotary, sections):
    """Return the order of the axes, and the default of mrope_section."""
    for order, function in ORDERS.items():
        with contextlib.suppress(Exception):            # the sections do not fit this order
            _, rotations = run(way, name, {}, rotary.replace(axes=function(sections)))
            if rotations and not rotations[0].row.faults:
                return {"axes": order, "sections": [*sections]}
    raise NotMeasured("whose mrope_section has an unknown order")


def with_keys(row, way, name, rotation):
    """Return the properties of a type with those of the keys that its models read."""
    bases, widths = (frequencies_of(way, name, more) for more in (STATED_BASES, STATED_WIDTHS))
    if stated := [width for key in WIDTHS if (width := getattr(rotation.config, key, None))]:
        row = {key: value for key, value in row.items() if key != "share"} | {"rotary_dim": stated[0]}
    elif widths is None or len(widths) != len(rotation.frequencies()):
        row.setdefault("share", 1)
    keys = {base: key for key, base in STATED_BASES.items()}
    key = None if bases is None else keys.get(base_of(bases, None))
    return row if key in (None, "rope_theta") else row | {"base_key": key}


# ---- types -------------------------------------------------------------------------------------------------


def measured(name):
    """Return the properties of a type, and the configuration with its rotation."""
    default = transformers.AutoConfig.for_model(name)
    switches = [{key: value} for key, values in SWITCHES.items() if hasattr(default, key) for value in values]
    reasons, unbuilt, found, mentions = [], [], set(), False
    for switch in [{}, *switches]:
        for way in ways_of(name, NEEDS.get(name, {}).get("keywords", {}) | switch, unbuilt):
            kinds = {type(module) for module in part_in(way.model(), name).modules()}
            code = "".join(inspect.getsource(kind) for kind in kinds if "transformers" in kind.__module__)
            mentions = mentions or MENTION.search(code)
            try:
                report, rotations = run(way, name, {})
            except Exception as error:  # noqa: BLE001 (a model may raise any error)
                reasons.append(f"whose model raises {type(error).__name__}: {error}")
                report, rotations = [], []
            if own := [each for each in rotations if each.config.model_type == name]:
                parameters = getattr(own[0].config, "rope_parameters", None) or {}
                if any(isinstance(value, dict) for value in parameters.values()):
                    row = properties_of_layers(own, parameters)
                else:
                    row = properties_of(own[0], parameters)
                    sections = [getattr(each, "mrope_section", None) for each in way.model().modules()]
                    if any(sections):
                        row = axes_of(way, name, own[0].rotary, next(filter(None, sections))) | row
                    elif SEVERAL.search(code):
                        raise Refused(SEVERAL_AXES)
                    row = with_keys(row, way, name, own[0])
                for key, value in switch.items():
                    row["switch"] = [key, value, getattr(default, key)]
                return row, own[0].config
            faults = [fault for row in report for fault in row.faults]
            reasons += faults
            if rotations or any(map(NO_ROTATION.search, faults)):
                found.add("a rotation of another part" if rotations else "no rotation")
            if not mentions:
                raise Refused("which has no rotary embeddings")
    if not reasons:
        raise NotMeasured((unbuilt or ["which no model takes"])[0])
    if found == {"no rotation"} and not hasattr(default, "patch_size"):
        raise Refused("whose queries and keys do not depend on the position")
    if found - {"no rotation"} or default.sub_configs:
        raise Refused("which has several parts with rotations; pass the configuration of a part")
    if hasattr(default, "patch_size"):
        raise Refused(SEVERAL_AXES)
    raise NotMeasured(reasons[0].split(";")[0])


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
    name = CONFIG_MAPPING[name].model_type
    if known := part_of(name) or NEEDS.get(name, {}).get("read"):
        return known
    try:
        row, config = measured(name)
    except Exception as error:  # noqa: BLE001 (a configuration or a model may raise any error)
        raised = "" if isinstance(error, NotMeasured) else f"whose model raises {type(error).__name__}: "
        kind, reason = "refused" if isinstance(error, Refused) else "unmeasured", f"{raised}{error}"
        return {kind: " ".join(reason.split())[:120]}
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
