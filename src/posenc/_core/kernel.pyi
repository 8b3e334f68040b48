from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

MOST_AXES: int
OPENMP: int

def instruction_sets() -> dict[str, bool]: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str | None = None, what: str = "instruction set") -> None: ...
def check_settings() -> None: ...

@disjoint_base
class default_environment:
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

def rounded(dtype: str, x: float) -> float: ...
def skip_rounding_test(skip: bool) -> None: ...
def counters() -> dict[str, int]: ...
def allowed_threads() -> int: ...

@disjoint_base
class Offsets: ...

@disjoint_base
class Columns:
    def __new__(
        cls,
        d_model: int,
        turns: bytes,
        integer_limbs: int,
        fraction_limbs: int,
        sign: bytes,
        quarter: bytes,
        order: int,
        scale: float,
        position_offset: float,
        padding_idx: int | None,
        value: Callable[[int, int, int, int, tuple[float, float] | None], float],
    ) -> Columns: ...

@disjoint_base
class Rotation:
    def __new__(
        cls, axes: Sequence[tuple[Columns, bytes | None]], head_dim: int, pairs: int, interleaved: bool
    ) -> Rotation: ...

def encode(columns: Columns, positions: object, dtype: object, out: NDArray[Any] | None, threads: object) -> NDArray[Any]: ...
def add_to(columns: Columns, x: object, positions: object, x_scale: object, threads: object) -> None: ...
def rotate(
    rotation: Rotation, x: object, positions: object, inverse: object, out: NDArray[Any] | None, threads: object
) -> None: ...
def pitched(d_model: int) -> int: ...
def new_array(shape: tuple[int, ...], element: np.dtype[Any], name: str) -> NDArray[Any]: ...
def output_array(
    out: NDArray[Any] | None, shape: tuple[int, ...], element: np.dtype[Any], dtype_name: str, name: str
) -> NDArray[Any]: ...
