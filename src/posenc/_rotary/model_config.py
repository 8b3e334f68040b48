"""Read the rotation from a model's configuration: a transformers object, its dict, or a parsed config.json.

Configurations do not state all properties of a rotation.  The others follow from the model type:
`model_types.json`, which tools/model_types.py measures, has a line for each type of transformers.
"""

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, TypeAlias

from posenc._arguments import checks
from posenc._arguments.specification import Specification
from posenc._rotary.scaling import ORIGINAL, alternating, type_of_scaling

Values: TypeAlias = dict[str, Any]

# ---- keys of configurations --------------------------------------------------------------------------------

BASES = ("rope_theta", "rotary_emb_base", "rotary_embedding_base")
SHARES = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percent", "rotary_percentage",
          "rotary_emb_fraction")
# posenc uses rotary_dim for minimax_m3_vl_text, too.  transformers documents this key as the number of
# rotated columns but ignores it.  For MiniMax-M2, transformers ignored it by mistake (issue 48241).
WIDTHS = ("rotary_dim", "rotary_ndims", "attn_rotary_emb")
INTERLEAVES = ("rope_interleave", "rope_interleaved", "rotary_interleaved", "rotary_emb_interleaved")
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
# the part of a configuration with the language model
PARTS = ("text_config", "llm_config", "language_config")
# older keys for the base of each layer type
LAYER_BASES = {"sliding_attention": ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta"),
               "full_attention": ("global_rope_theta", "rope_theta"), "compress": ("compress_rope_theta",)}
ABOUT_ROTATIONS = re.compile(r"rope(?!r)|rotary|yarn|ntk|theta|xpos|alibi")
# keys that never change a rotation, and keys that do not change it with one of these values
WITHOUT_EFFECT = {"no_rope_layers", "no_rope_layer_interval", "rotary_value", "indexer_rope_interleave",
                  "original_rope", "ignore_keys_at_rope_validation"}
HARMLESS: dict[str, tuple[Any, ...]] = {
    "rotary": (True,), "use_rope": (True,), "use_rotary": (True,), "use_rotary_pos_emb": (True,),
    "use_rotary_embedding": (True,), "use_dynamic_ntk": (False,), "alibi": (False,), "rope_ratio": (1,),
    "rope_type": ("default",),
}


# ---- model types -------------------------------------------------------------------------------------------


@functools.cache
def model_types() -> dict[str, dict[str, Any]]:
    """Return the properties of each model type of transformers, by its name."""
    text = Path(__file__).with_name("model_types.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["types"])


def look_up(config: Any, *names: str) -> Any:
    """Look up `names` in a configuration, in order; return the first value that is not None, else None."""
    for name in names:
        value = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
        if value is not None:
            return value
    return None


class Keys:
    """The configuration of a language model, from a part if there are parts, and the properties of its type.

    `check_all_used` refuses a configuration with a key for rotations that was not looked up.
    """

    def __init__(self, config: Any) -> None:
        self.used, part, inner = {"model_type"}, config, None
        while True:
            if isinstance(part, Specification) or not (isinstance(part, Mapping) or hasattr(part, "to_dict")):
                raise checks.wrong_type("config", part, "a configuration such as model.config, or its dict")
            self.config, self.name = part, look_up(part, "model_type") or inner
            self.properties = model_types().get(str(self.name), {})
            key, inner = self.properties.get("part", ("text_config", None))
            part = look_up(part, key, *PARTS) if inner or not self.properties else None
            if part is None:
                break
            if ignored := [name for name in self._rotary_keys() if look_up(part, name) is None]:
                raise _has(f"{ignored[0]} beside the part with the language model; add it there")
        if inner is not None:                   # the configuration itself has the keys of the part
            self.name, self.properties = inner, model_types().get(inner, {})

    def get(self, *names: str) -> Any:
        self.used.update(names)
        return look_up(self.config, *names)

    def check_supported(self, layout: Any) -> None:
        """Raise a ValueError if the model has no rotation, or if its layout is unknown."""
        key, value, default = self.properties.get("switch", (None, None, None))
        if key is not None and (stated := self.get(key) or default) != value:
            raise _has(f"{key} {stated!r}, expected {value!r}, with which {self.name} rotates")
        if "refused" in self.properties:
            raise _has(f"model_type {self.name!r}, {self.properties['refused']}")
        if "layout" not in self.properties and layout is None:
            reason = self.properties.get("unmeasured", "whose layout posenc does not know")
            raise _has(f"model_type {self.name!r}, {reason}; pass layout='halves' or layout='interleaved' to "
                       "Rotary.from_config, and axes= if the configuration has mrope_section")

    def check_all_used(self) -> None:
        """Raise a ValueError for a key about rotations that was not looked up, unless it has no effect."""
        for key in self._rotary_keys():
            if key not in self.used:
                value = checks.shown(look_up(self.config, key))
                raise _has(f"{key} {value}, which posenc does not read for {self.name!r}; call Rotary itself")

    def _rotary_keys(self) -> list[str]:
        """Return the keys about rotations that may have an effect."""
        config = self.config if isinstance(self.config, Mapping) else vars(self.config)
        names = (key for key in config if isinstance(key, str) and ABOUT_ROTATIONS.search(key))
        return [key for key in names if key not in WITHOUT_EFFECT
                and look_up(self.config, key) not in (None, {}, [], *HARMLESS.get(key, ()))]


# ---- settings ----------------------------------------------------------------------------------------------


def settings_of(config: Any, layer_type: Any, length: Any, layout: Any, axes: Any) -> tuple[int, Values]:
    """Return head_dim and the keywords with which to call `Rotary`."""
    checks.check_type("layer_type", layer_type, (str, NoneType), "a name such as 'full_attention'")
    if length is not None:
        length = checks.integer("length", length, 1)
    keys = Keys(config)
    keys.check_supported(layout)
    scaling = _parameters(keys, layer_type)
    properties = keys.properties | keys.properties.get("layers", {}).get(layer_type, {})
    keys.config = _of_layer(keys.config, layer_type)
    head_dim = head_dim_of(keys.config, properties.get("head_dim", 0))
    if (interleaved := keys.get(*INTERLEAVES)) is not None:
        properties["layout"] = "interleaved" if checks.boolean("rope_interleave", interleaved) else "halves"
    layout = properties["layout"] if layout is None else layout
    keywords: dict[str, Any] = {"layout": layout, "scaling": scaling}

    # the models of a measured type read one key for the base, and a share only if the type has one
    is_measured = "layout" in keys.properties and "layers" not in keys.properties
    stated = keys.get(properties.get("base_key", "rope_theta")) if is_measured else keys.get(*BASES)
    if properties.get("is_scaled") and not _stated_parameters(keys):  # the default of the type has a scaling
        raise _lacks("rope_parameters")
    base = scaling.setdefault("rope_theta", properties.get("base") if stated is None else stated)
    if base is None:
        raise _lacks("rope_theta")
    base = checks.real("rope_theta", base)
    keys.used.update(key for key in BASES if look_up(keys.config, key) == base)
    if other_bases := set(keys.get("layer_rope_theta") or ()) - {0, base}:
        raise _has(f"layer_rope_theta with {min(other_bases)}, expected one base; make several Rotary")

    share, width = keys.get(*SHARES), keys.get(*WIDTHS)
    if keys.get("qk_rope_head_dim") is not None:              # qk_rope_head_dim counts only rotated columns
        scaling.pop("partial_rotary_factor", None)
    elif "partial_rotary_factor" not in scaling:
        if isinstance(keys.config, Mapping) and keys.config.keys().isdisjoint((*SHARES, *WIDTHS)):
            share, width = properties.get("share"), properties.get("rotary_dim")
        if share is not None:
            scaling["partial_rotary_factor"], width = share, None
        keywords["rotary_dim"] = width

    _set_lengths(scaling, keys, length)
    value = scaling.get("partial_rotary_factor", keywords.get("rotary_dim"))
    is_whole = is_measured and properties.keys().isdisjoint(("share", "rotary_dim"))
    if is_whole and type_of_scaling(scaling) != "proportional" and value is not None:
        key = next((key for key in (*SHARES, *WIDTHS) if keys.get(key) is not None), "partial_rotary_factor")
        if checks.real(key, value) not in (1, head_dim):
            raise _has(f"{key} {value}, but models of type {keys.name!r} rotate all {head_dim} columns")
    if axes is not None:
        keywords["axes"] = axes
        scaling.pop("mrope_section", None)
    else:
        _set_axes(keywords, keys)
    keys.check_all_used()
    return head_dim, keywords


def _has(text: str) -> ValueError:
    return ValueError(f"config has {text}")


def _lacks(key: str) -> ValueError:
    return ValueError(f"config lacks {key}; add it, or pass an object of the class of the configuration")


def head_dim_of(config: Any, default: int | None = 0) -> int:
    """Return head_dim.

    Its default is `default`; if this is 0, hidden_size / num_attention_heads; if it is None, there is none.
    """
    head_dim = look_up(config, "qk_rope_head_dim", "head_dim", "attention_head_dim", "kv_channels") or default
    if not head_dim:
        width = look_up(config, "hidden_size", "n_embd", "d_model")
        heads = look_up(config, "num_attention_heads", "n_head", "n_heads", "decoder_num_attention_heads")
        if head_dim is None or width is None or heads is None:
            raise _lacks("head_dim")
        width = checks.integer("hidden_size", width, 1)
        heads = checks.integer("num_attention_heads", heads, 1)
        if width % heads:
            raise _has(f"hidden_size {width}, expected a multiple of {heads} attention heads")
        head_dim = width // heads
    return checks.integer("head_dim", head_dim, 1)


def _set_lengths(scaling: dict[str, Any], keys: Keys, length: int | None) -> None:
    """Set the lengths that the scaling type needs but that are not among the rope parameters."""
    rope_type, trained_length = type_of_scaling(scaling), keys.get(*LENGTHS)
    if rope_type in ("llama3", "yarn", "longrope"):
        is_nested = _is_nested(_stated_parameters(keys))
        # as in transformers, the key of the configuration overrides that of rope_parameters
        lengths = (None if is_nested else keys.get(ORIGINAL), scaling.get(ORIGINAL), trained_length)
        scaling[ORIGINAL] = next((value for value in lengths if value is not None), None)
    if rope_type == "dynamic" or rope_type in ("yarn", "longrope") and "factor" not in scaling:
        scaling.setdefault("max_position_embeddings", trained_length)
    if length is not None and rope_type in ("dynamic", "longrope"):
        scaling["length"] = length


def _set_axes(keywords: dict[str, Any], keys: Keys) -> None:
    """Set the axes of a model whose configuration or type has sections."""
    scaling, order = keywords["scaling"], keys.properties.get("axes")
    if order is None:
        if "mrope_section" in scaling:
            raise _has(f"mrope_section, but posenc does not know the axes of {keys.name!r}; pass axes=")
        return
    scaling.setdefault("mrope_section", keys.properties["sections"])
    if order == "alternating":
        keywords["axes"] = alternating(scaling.pop("mrope_section"))
    scaling["mrope_interleaved"] = order == "interleaved"


# ---- layers of different types -----------------------------------------------------------------------------


def _parameters(keys: Keys, layer_type: str | None) -> dict[str, Any]:
    """Return a copy of the rope parameters for a layer type, without those that are None."""
    by_type = parameters_by_type(keys)
    if None in by_type and layer_type in (keys.get("layer_types") or ()):
        layer_type = None                                   # the layers of all types are alike
    if layer_type not in by_type:
        raise ValueError(f"layer_type is {layer_type!r}, expected {' or '.join(map(repr, by_type))}")
    return {key: value for key, value in by_type[layer_type].items() if value is not None}


def parameters_by_type(keys: Keys) -> dict[str | None, Values]:
    """Return the rope parameters of each layer type that has a rotation.

    If all layers are alike, the only key is None.
    """
    parameters = dict(_stated_parameters(keys))
    # as in transformers, these parameters override the keys for the base of a layer type
    if _is_nested(parameters):
        keys.used.update(*LAYER_BASES.values())
        return {name: dict(value) for name, value in parameters.items() if value is not None}
    unscaled = {key: parameters[key] for key in parameters.keys() & {"rope_theta", "partial_rotary_factor"}}
    by_type: dict[str | None, Values] = {None: parameters}
    if "layers" in keys.properties:        # an older configuration of a type that distinguishes layer types
        by_type = _older_parameters(keys, parameters, unscaled)
    elif (layers := keys.get("rope_scaling_layers")) is not None:           # Molmo2
        count = checks.integer("num_hidden_layers", keys.get("num_hidden_layers"), 1)
        are_scaled = {i in layers for i in range(count)}
        by_type = {"scaled" if each else "unscaled": parameters if each else unscaled for each in are_scaled}
    first, *others = by_type.values()
    return by_type if any(each != first for each in others) else {None: first}


def _older_parameters(keys: Keys, parameters: Values, unscaled: Values) -> dict[str | None, Values]:
    """Return the parameters of the layer types, as transformers reads them from older keys."""
    layers = keys.properties["layers"]
    takes_scaling = any(layer["takes_scaling"] for layer in layers.values())
    if len(layers) == 1 or parameters != unscaled and not takes_scaling:
        raise _lacks("rope_parameters with a dict for each type of layers")
    shared = ["rope_theta"] * (len({layer["base"] for layer in layers.values()}) == 1)
    by_type: dict[str | None, Values] = {}
    for name, layer in layers.items():
        own = by_type[name] = dict(parameters if layer["takes_scaling"] else unscaled)
        names = [key for key in (layer["key"], *LAYER_BASES.get(name, ()), *shared) if key]
        base = keys.get(*names)
        if base is not None or "rope_theta" not in own or "rope_theta" not in names:
            own["rope_theta"] = layer["base"] if base is None else base
        if type_of_scaling(own) == "yarn" and "attention_factor" in layer:
            own.setdefault("attention_factor", layer["attention_factor"])
    return by_type


def _stated_parameters(keys: Keys) -> Mapping[str, Any]:
    """Return rope_parameters, or rope_scaling (its former name), or an empty dict."""
    values = (keys.get(name) for name in ("rope_parameters", "rope_scaling"))
    statements = [value for value in values if value not in (None, {})] or [{}]
    for each in statements:
        checks.check_type("config.rope_parameters or config.rope_scaling", each, Mapping, "a dict")
    if statements[0] != statements[-1]:
        raise _has("both rope_parameters and rope_scaling, expected only one of them")
    return dict(statements[0])


def _is_nested(parameters: Mapping[str, Any]) -> bool:
    values = parameters.values()
    return bool(values) and all(value is None or isinstance(value, Mapping) for value in values)


def _of_layer(config: Any, layer_type: str | None) -> Any:
    """Return the configuration for a layer type.  In Gemma 4, head_dim differs between the types."""
    if not isinstance(config, Mapping):
        is_heterogeneous = getattr(config, "is_heterogeneous", False)
        if is_heterogeneous and layer_type is None:
            raise ValueError("layer_type is None, expected a name from config.layer_types: the layers differ")
        return config.per_layer_config[layer_type] if is_heterogeneous else config
    if config.get("per_layer_config"):
        raise _has("per_layer_config; pass an object of the class of the configuration")
    key = {"full_attention": "global_head_dim", "sliding_attention": "swa_head_dim"}.get(str(layer_type), "")
    values = {} if config.get(key) is None else {"head_dim": config[key]}
    if values and config.get("qk_rope_head_dim") is not None:
        raise _has(f"{key} and qk_rope_head_dim; pass an object of the class of the configuration")
    return {**config, **values}
