"""Types for annotations."""

from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

ArrayT = TypeVar("ArrayT", bound=NDArray[Any])

Positions: TypeAlias = SupportsIndex | range | ArrayLike

AnyDType: TypeAlias = str | type[Any] | np.dtype[Any]

Odd: TypeAlias = Literal["truncate", "zero", "error"]
Spacing: TypeAlias = Literal["paper", "endpoint"]
Exponents: TypeAlias = Literal["pair", "column"]
Layout: TypeAlias = Literal["interleaved", "halves"]
Order: TypeAlias = Literal["sin", "cos"]


class Convention(TypedDict, total=False):
    """The keywords of a convention: see `posenc.Encoding`."""

    base: SupportsFloat
    frequency_scale: SupportsFloat
    position_offset: SupportsFloat
    position_scale: SupportsFloat
    padding_idx: SupportsIndex | None
    scale: SupportsFloat
    odd: Odd
    spacing: Spacing
    shift: SupportsFloat | None
    exponents: Exponents
    frequencies: ArrayLike | None
    layout: Layout
    order: Order
