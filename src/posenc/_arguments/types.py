"""Types for annotations."""

from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

ScalarT = TypeVar("ScalarT", bound=np.generic)
ArrayT = TypeVar("ArrayT", bound=NDArray[Any])

Positions: TypeAlias = SupportsIndex | range | ArrayLike

DTypeOf: TypeAlias = type[ScalarT] | np.dtype[ScalarT]
AnyDType: TypeAlias = str | type[Any] | np.dtype[Any]


class Convention(TypedDict, total=False):
    """The convention keywords: see `posenc.Encoding`."""

    base: SupportsFloat
    frequency_scale: SupportsFloat
    position_offset: SupportsFloat
    position_scale: SupportsFloat
    padding_idx: SupportsIndex | None
    scale: SupportsFloat
    odd: Literal["truncate", "zero", "error"]
    spacing: Literal["paper", "endpoint"]
    shift: SupportsFloat | None
    exponents: Literal["pair", "column"]
    frequencies: ArrayLike | None
    layout: Literal["interleaved", "halves"]
    order: Literal["sin", "cos"]
