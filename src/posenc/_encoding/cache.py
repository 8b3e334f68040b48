"""The Encoding that a function's arguments specify, from a cache if possible."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from posenc._arguments import checks
from posenc._encoding.encoding import Encoding, check_encoding

WIDEST_CACHED = 2**16                   # columns; an Encoding of this width takes 4 MB, or more with an extreme base
CACHEABLE = {int, float, str, type(None), np.float64, np.float32}   # no tensors, whose hash does not depend on their value
_cached = functools.lru_cache(maxsize=8, typed=True)(Encoding)


def cached_encoding(d_model: Any, convention: Mapping[str, Any]) -> Encoding:
    """Return d_model if it is an Encoding, else the Encoding with d_model columns and these keywords.

    The Encoding comes from the cache if d_model is an int of at most WIDEST_CACHED and the types of all keywords are CACHEABLE.
    """
    if isinstance(d_model, Encoding):
        for name in convention:
            raise TypeError(f"an Encoding and {name} are both given, expected only one of them; use replace({name}=...)")
        return d_model
    if isinstance(d_model, str):
        raise checks.wrong_type("d_model", d_model, "an integer or an Encoding such as posenc.preset(name, d_model)")
    if type(d_model) is int and d_model <= WIDEST_CACHED and CACHEABLE.issuperset(map(type, scalars(convention))):
        return _cached(d_model, **convention)
    return Encoding(d_model, **convention)


def encoding_for(x: Any, encoding: Encoding | None, convention: Mapping[str, Any]) -> Encoding:
    """Return `encoding` if it fits x.  If `encoding` is None, return one with as many columns as x."""
    if encoding is None:
        return cached_encoding(x.shape[-1], convention)
    check_encoding(encoding)
    if vars(encoding)["d_model"] != x.shape[-1]:        # faster than the attribute
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {encoding.d_model})")
    return cached_encoding(encoding, convention)


def scalars(convention: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values of a convention; for a tuple, yield its elements instead."""
    for value in convention.values():
        if type(value) is tuple:
            yield from value
        else:
            yield value
