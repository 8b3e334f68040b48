"""Read the rotation from a model's configuration: a transformers object, its dict, or a checkpoint's parsed config.json."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from posenc._arguments import checks
from posenc._arguments.base_class import Specification
from posenc._rotary import pair_axes
from posenc._rotary.models import Model, model_of
from posenc._rotary.scaling import type_of_scaling

SHARES = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percent", "rotary_percentage", "rotary_emb_fraction")
# posenc uses rotary_dim for minimax_m3_vl_text, too.  transformers 5.23 documents this key as the number of rotated columns but
# ignores it.  For MiniMax-M2, transformers ignored it by mistake (issue 48241).
WIDTHS = ("rotary_dim", "rotary_ndims", "attn_rotary_emb")
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
LOCAL, FULL = "sliding_attention", "full_attention"


def settings_of(config: Any, layer_type: Any, length: Any) -> tuple[int, dict[str, Any]]:
    """Return head_dim and the keywords with which to call `Rotary`."""
    if layer_type is not None and not isinstance(layer_type, str):
        raise checks.wrong_type("layer_type", layer_type, "a name such as 'full_attention'")
    if length is not None:
        length = checks.integer("length", length, 1)
    _check_is_configuration(config)
    model_type = _read(config, "model_type")
    model = model_of(model_type)
    _check_supported(config, model_type, model)
    config = _of_layer(config, layer_type)
    scaling, nested = _parameters(config, layer_type)
    head_dim = _head_dim(config)
    keywords: dict[str, Any] = {"layout": _layout(config, model), "scaling": scaling}
    rope_type = type_of_scaling(scaling)

    if scaling.get("rope_theta") is None:
        scaling["rope_theta"] = _read(config, "rope_theta", "rotary_emb_base")
    if scaling["rope_theta"] is None:
        if model.base is None:
            raise _lacks("rope_theta", config)
        scaling["rope_theta"] = model.base
    others = set(_read(config, "layer_rope_theta") or ()) - {0, scaling["rope_theta"]}
    if others:
        raise ValueError(
            f"config has layer_rope_theta with {min(others)}, expected one base; "
            "make a Rotary for each base, with rope_theta instead of layer_rope_theta"
        )

    if _read(config, "qk_rope_head_dim") is not None:       # qk_rope_head_dim counts only rotated columns
        scaling.pop("partial_rotary_factor", None)
    elif scaling.get("partial_rotary_factor") is None:
        share = _read(config, *SHARES)
        if share is not None:
            scaling["partial_rotary_factor"] = share
        elif (rotary_dim := _read(config, *WIDTHS)) is not None:
            keywords["rotary_dim"] = rotary_dim
        elif isinstance(config, Mapping) and model.partial and not any(name in config for name in (*SHARES, *WIDTHS)):
            raise _lacks("partial_rotary_factor", config)

    _set_lengths(scaling, rope_type, config, nested, length)
    if scaling.get("mrope_section") is None and model.sections is not None:
        columns = keywords.get("rotary_dim") or int(head_dim * (scaling.get("partial_rotary_factor") or 1))
        scaling["mrope_section"] = _sections(model.sections, model.axes, columns // 2)
    if scaling.get("mrope_section") is not None:
        if model.axes == "unsupported":
            raise ValueError(f"config has model_type {model_type!r}, whose mrope_section is unsupported; call Rotary with axes")
        if model.axes == "alternating":
            keywords["axes"] = pair_axes.alternating(scaling.pop("mrope_section"))
        elif model.axes == "interleaved":
            scaling["mrope_interleaved"] = True
    return head_dim, keywords


def _set_lengths(scaling: dict[str, Any], rope_type: str, config: Any, nested: bool, length: int | None) -> None:
    """Set the lengths that the scaling type needs and that configurations state outside of the rope parameters."""
    most = _read(config, *LENGTHS)
    if rope_type in ("llama3", "yarn", "longrope"):
        original = None if nested else _read(config, "original_max_position_embeddings")
        if original is not None:            # as in transformers, it overrides rope_parameters
            scaling["original_max_position_embeddings"] = original
        elif scaling.get("original_max_position_embeddings") is None:
            scaling["original_max_position_embeddings"] = most
    if rope_type == "dynamic" or rope_type in ("yarn", "longrope") and scaling.get("factor") is None:
        scaling.setdefault("max_position_embeddings", most)
    if length is not None and rope_type in ("dynamic", "longrope"):
        scaling["length"] = length


def max_positions(config: Any) -> int | None:
    """Return the number of positions of a model, or None if its configuration has none."""
    most = _read(config, *LENGTHS)
    return most if isinstance(most, int) and most > 0 else None


def _sections(sections: tuple[int, ...], axes: str, pairs: int) -> tuple[int, ...]:
    """Return the number of pairs of each axis; if the axes are interleaved, the first axis has the remaining pairs."""
    if axes != "interleaved":
        return sections
    others = [len(range(axis, min(3 * sections[axis], pairs), 3)) for axis in (1, 2)]
    return (pairs - sum(others), *others)


def _check_is_configuration(config: Any) -> None:
    if isinstance(config, Specification) or not isinstance(config, Mapping) and not hasattr(config, "to_dict"):
        hint = "; pass model.config" if hasattr(config, "config") else ""
        if isinstance(config, (str, PathLike)):
            hint = "; transformers.AutoConfig.from_pretrained or json.load reads one"
        raise checks.wrong_type("config", config, f"a configuration from transformers or its dict{hint}")
    if _read(config, "rope_type") is not None or isinstance(config, Mapping) and isinstance(config.get("type"), str):
        raise ValueError(
            f"config has the rope_type {_read(config, 'rope_type', 'type')!r}, so it is a scaling, expected a model's "
            "configuration; call Rotary(head_dim, scaling=...)"
        )


def _check_supported(config: Any, model_type: Any, model: Model) -> None:
    """Raise a ValueError if the model has no rotation, or if its configuration does not describe the rotation."""
    if model.refused is not None:
        raise ValueError(f"config has model_type {model_type!r}, {model.refused}")
    name, needed = model.rotates_with or ("", None)
    value = _read(config, name) if name else None
    if value is not None and value != needed:
        raise ValueError(f"config has {name} {value!r}, expected {needed!r}, because otherwise the model has no rotation")
    if _read(config, "rope_ratio") not in (None, 1):
        raise ValueError(f"config has rope_ratio {_read(config, 'rope_ratio')!r}, expected 1; multiply rope_theta by the ratio")


def _lacks(key: str, config: Any) -> ValueError:
    if isinstance(config, Mapping):
        return ValueError(
            f"config has no {key}, expected this key; for a model with rotary embeddings, pass an object of its configuration "
            f"class, which has the default, or add {key} to the dict"
        )
    own = f"{type(config).__name__} of model_type {_read(config, 'model_type')!r}"
    return ValueError(f"config is a {own}, which has no {key}, expected a model with rotary embeddings")


def _read(config: Any, *names: str) -> Any:
    """Look up `names` in a configuration, in order; return the first value that is not None, else None."""
    for name in names:
        value = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
        if value is not None:
            return value
    return None


def _of_layer(config: Any, layer_type: str | None) -> Any:
    """Return the configuration for a layer type.  In Gemma 4, head_dim differs between the types."""
    is_dict = isinstance(config, Mapping)
    differ: Any = config.get("per_layer_config") if is_dict else getattr(config, "is_heterogeneous", False)
    if differ and layer_type is None:
        raise ValueError("layer_type is None, expected a name from config.layer_types, because the layers differ")
    if not is_dict:
        return config.per_layer_config[layer_type] if differ else config
    wide = config.get("global_head_dim")
    if wide is not None and layer_type == FULL:
        config = {**config, "head_dim": wide}
    if not differ:
        return config
    own = {int(index): values for index, values in differ.items()}
    found = [own.get(i, {}) for i, name in enumerate(config.get("layer_types") or ()) if name == layer_type]
    if any(values != found[0] for values in found):
        raise ValueError(f"layer_type is {layer_type!r}, but config.per_layer_config has different values for these layers")
    return {**config, **found[0]} if found else config


def layer_types(config: Any) -> list[str | None]:
    """Return the layer types that have a rotation, if the configuration distinguishes layer types, else [None]."""
    parameters = _given(config)
    if _is_nested(parameters):
        return [name for name, value in parameters.items() if value is not None]
    return [LOCAL, FULL] if _is_local_other(config, parameters) else [None]


def _given(config: Any) -> Mapping[str, Any]:
    """Return rope_parameters, or rope_scaling (its former name), or an empty dict if the configuration has neither."""
    given = [value for name in ("rope_parameters", "rope_scaling") if (value := _read(config, name))]
    if given and given[0] != given[-1]:
        raise ValueError("config has both rope_parameters and rope_scaling, expected only one of them")
    parameters = given[0] if given else {}
    if not isinstance(parameters, Mapping):
        raise TypeError(f"config has rope_parameters or rope_scaling of type {type(parameters).__name__}, expected a dict")
    return parameters


def _is_nested(parameters: Mapping[str, Any]) -> bool:
    return bool(parameters) and all(value is None or isinstance(value, Mapping) for value in parameters.values())


def _bases(config: Any) -> dict[str, Any]:
    """Return the bases that older configurations have for each type of layer."""
    return {
        LOCAL: _read(config, "rope_local_base_freq", "local_rope_theta"),
        FULL: _read(config, "global_rope_theta"),
    }


def _is_local_other(config: Any, parameters: Mapping[str, Any]) -> bool:
    """Return whether an older configuration has different rotations for local and full attention."""
    alike = model_of(_read(config, "model_type")).local == "alike"
    return any(value is not None for value in _bases(config).values()) or bool(parameters) and not alike


def _parameters(config: Any, layer_type: str | None) -> tuple[dict[str, Any], bool]:
    """Return a copy of the rope parameters for a layer type, and whether the configuration nests them by layer type."""
    parameters = dict(_given(config))
    if _is_nested(parameters):
        if layer_type not in parameters:
            raise ValueError(f"layer_type is {layer_type!r}, expected one of {', '.join(map(repr, parameters))}")
        if parameters[layer_type] is None:
            raise ValueError(f"layer_type is {layer_type!r}, but these layers have no rotation")
        return dict(parameters[layer_type]), True
    differ = _is_local_other(config, parameters)
    types = (LOCAL, FULL) if differ else _read(config, "layer_types") or ()
    if layer_type not in types and (differ or layer_type is not None):
        expected = f"one of {', '.join(map(repr, dict.fromkeys(types)))}" if types else "None, because all layers are alike"
        raise ValueError(f"layer_type is {layer_type!r}, expected {expected}")
    if differ and layer_type is not None:
        base, model = _bases(config)[layer_type], model_of(_read(config, "model_type"))
        if layer_type == LOCAL and model.local != "alike":
            parameters = {}
            if base is None and model.local == "own base":
                raise _lacks("rope_local_base_freq", config)
        if base is not None:
            parameters["rope_theta"] = base
    return parameters, False


def _head_dim(config: Any) -> int:
    head_dim = _read(config, "qk_rope_head_dim", "head_dim", "attention_head_dim", "kv_channels")
    if head_dim is None:
        width = _read(config, "hidden_size", "n_embd", "d_model")
        heads = _read(config, "num_attention_heads", "n_head", "n_heads", "decoder_num_attention_heads")
        if width is None or heads is None:
            inner = "; pass config.text_config" if _read(config, "text_config") is not None else ""
            raise ValueError(f"config has no head_dim, expected head_dim, or hidden_size and num_attention_heads{inner}")
        width, heads = checks.integer("hidden_size", width, 1), checks.integer("num_attention_heads", heads, 1)
        if width % heads:
            raise ValueError(
                f"config has hidden_size {width}, expected a multiple of num_attention_heads, {heads}, or head_dim"
            )
        head_dim = width // heads
    return checks.integer("head_dim", head_dim, 1)


def _layout(config: Any, model: Model) -> str:
    interleaved = _read(config, "rope_interleave", "rope_interleaved", "rotary_interleaved", "rotary_emb_interleaved")
    if interleaved is None:
        return model.layout
    if not isinstance(interleaved, bool):
        raise checks.wrong_type("rope_interleave", interleaved, "a bool")
    return "interleaved" if interleaved else "halves"
