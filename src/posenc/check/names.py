"""Names by which tensors, arguments and functions of rotary embeddings are recognized, and the forms of calls."""

import re
from collections.abc import Callable

NAMES = re.compile(
    r"(?:\w+_)?inv_freqs?|cos_sin_cache|freqs_cis|rope_cache|(?:cos|sin)(?:_cached|_cache|_table|_emb)?|freqs_(?:cos|sin)"
)
# the functions that apply tables, if the code of an attention refers to them by these names
APPLY = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb", "apply_rotary", "apply_rope",
         "apply_multimodal_rotary_pos_emb", "apply_rotary_pos_emb_vision", "apply_rotary_position_embeddings",
         "apply_rotary_embedding", "apply_rope_emb", "rotate_queries_and_keys", "apply_rotary_time_emb")
ROLES = {
    "x": ("x", "q", "query", "queries", "query_states", "xq", "hidden_states", "tensor", "input"),
    "keys": ("k", "key", "keys", "key_states", "xk"),
    "positions": ("position_ids", "positions", "position", "pos", "input_pos"),
    "cos": ("cos", "cos_cached", "freqs_cos"),
    "sin": ("sin", "sin_cached", "freqs_sin"),
    "table": ("freqs_cis", "freqs", "rope_cache", "rotary_pos_emb", "rope", "cos_sin", "position_embeddings"),
    "layer_type": ("layer_type",),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
CLASS = re.compile(r"rotary|ro_?pe(?![a-z])", re.IGNORECASE)            # matches LlamaRotaryEmbedding, RoPE, RopeScaling
# the shapes of x for n rows of d columns; with more than two axes, the positions have the shape (1, n) instead of (n,)
CALL_FORMS: tuple[Callable[[int, int], tuple[int, ...]], ...] = (
    lambda n, d: (n, d), lambda n, d: (1, 1, n, d), lambda n, d: (1, n, 1, d))


def is_rotary(name: str) -> bool:
    """Return whether the name of a tensor is one that projects give to the tables or frequencies of a rotation."""
    return NAMES.fullmatch(name) is not None
