"""The specification that a call of an operator needs: as an object or, in a graph, as text."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_scalar

from posenc import Encoding, Rotary
from posenc._encoding.encoding import cached_encoding
from posenc.torch._tensor_arguments import constant


@torch.compiler.assume_constant_result
def text_of(specification: Encoding | Rotary | str) -> str:
    """Return a specification as JSON, in which every float64 is exact; if it is text already, return it."""
    return specification if isinstance(specification, str) else _cached_text(specification)


@functools.lru_cache(maxsize=16)
def _cached_text(specification: Encoding | Rotary) -> str:
    return json.dumps(specification.to_dict())


@functools.lru_cache(maxsize=16)
def specification_of(text: str) -> Any:
    document = json.loads(text)
    return (Encoding if "d_model" in document else Rotary).from_dict(document)


def encoding_of(d_model: Any, convention: Mapping[str, Any]) -> Any:
    """Return the Encoding that a function's arguments specify; in compiled code, return its text."""
    if torch.compiler.is_compiling():
        return _text_of_arguments(_specialized(d_model), {name: _specialized(value) for name, value in convention.items()})
    return cached_encoding(constant("d_model", d_model), {name: constant(name, value) for name, value in convention.items()})


@torch.compiler.assume_constant_result
def _text_of_arguments(d_model: Any, convention: Mapping[str, Any]) -> str:
    return text_of(torch.compiler.disable(cached_encoding)(d_model, convention))


def _specialized(value: Any) -> Any:
    """Convert symbolic numbers of torch.compile to constants, so that a call with other numbers is compiled again."""
    if isinstance(value, (list, tuple)):
        return [_specialized(number) for number in value]
    return guard_scalar(value) if type(value) in (int, float) else value
