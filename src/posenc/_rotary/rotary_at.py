"""RotaryAt, a rotation at given positions, with cosines and sines that are computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.arrays import AnyDType, ArrayT
from posenc._core import kernel


@dataclass(frozen=True, eq=False, repr=False, init=False)
class RotaryAt:
    """A rotation at given positions, for many arrays.

    Cosines and sines are computed once.  Create instances with `Rotary.at`.

    Indexing selects some of the positions, as for arrays: with slices, integers, ``...`` and None, without
    copying cosines and sines; with arrays or a negative step, they are computed again.  A `RotaryAt` is immutable and
    picklable, and several threads may use it.

    Attributes
    ----------
    rotary : Rotary
        The specification of the rotation.
    inverse : bool
        Whether the rotation is by the negative angles.
    shape : tuple of int
        The shape of the positions, without their first dimension if they have several axes.

    See Also
    --------
    Rotary.rotate : Rotate a single array.

    Notes
    -----
    The cosines and sines are computed when the first array of each dtype is rotated.  They take 16 bytes for
    each position and pair, where the number of pairs is rounded up to a multiple of 32; 4,096 positions and
    64 pairs take 4 MiB.  A selection keeps all cosines and sines in memory; a pickle contains the rotation
    and the selected positions, but no cosines or sines.

    Examples
    --------
    >>> import numpy as np
    >>> from posenc import Rotary
    >>> at = Rotary(64).at(1000)
    >>> at[100:101].rotate(np.ones((8, 1, 64), np.float32)).shape
    (8, 1, 64)
    """

    rotary: Any
    inverse: bool
    shape: tuple[int, ...]
    _factors: kernel.Factors
    _positions: NDArray[Any]        # a view of _factors.positions; without negative strides, as torch requires

    def __init__(self) -> None:
        raise TypeError("RotaryAt cannot be called; rotary.at(positions) returns an instance")

    def __reduce__(self) -> tuple[Callable[[NDArray[Any]], Any], tuple[NDArray[Any]]]:
        return functools.partial(self.rotary.at, inverse=self.inverse), (self.positions,)

    def __repr__(self) -> str:
        """Return the specification, and the shape and range of the positions."""
        positions, inverse = self.positions, ", inverse" if self.inverse else ""
        extent = f", {positions.min()} to {positions.max()}" if positions.size else ""
        return f"<{self.rotary!r} at positions of shape {positions.shape}{extent}{inverse}>"

    def __getitem__(self, key: Any) -> RotaryAt:
        """Return the rotation at some of the positions."""
        keys = key if isinstance(key, tuple) else (key,)
        if not any(part is ... for part in keys):
            keys += (...,)                      # NumPy then returns a view, not a number
        axes = () if self.rotary.axes is None else (slice(None),)
        positions = self._positions[axes + keys]
        if min(positions.strides, default=0) < 0 or not np.may_share_memory(positions, self._positions):
            return self.rotary.at(positions, inverse=self.inverse)
        return rotary_at(self.rotary, self._factors, positions)

    @property
    def positions(self) -> NDArray[Any]:
        """The positions, an array of int64 or float64 that cannot be made writable.

        See Also
        --------
        Rotary.at : Create a `RotaryAt`.

        Examples
        --------
        >>> from posenc import Rotary
        >>> Rotary(64).at(range(7, 10))[1:].positions
        array([8, 9])
        """
        return np.asarray(self._positions.data.toreadonly())

    @property
    def nbytes(self) -> int:
        """The bytes of the positions, cosines and sines, which this object shares with its selections.

        See Also
        --------
        RotaryAt : The notes state the size.

        Examples
        --------
        >>> import numpy as np
        >>> from posenc import Rotary
        >>> at = Rotary(128).at(1000)
        >>> _ = at[:1].rotate(np.ones((1, 128), np.float32))
        >>> at.nbytes == 1000 * (8 + 64 * 16)
        True
        """
        return self._factors.nbytes

    def rotate(self, x: ArrayT, *, out: ArrayT | None = None, threads: SupportsIndex | None = None) -> ArrayT:
        """Rotate queries or keys.

        The result has the bits of ``rotary.rotate(x, positions, inverse=inverse)``.

        Parameters
        ----------
        x : ndarray, shape (..., n, head_dim)
            The queries or keys, as for `Rotary.rotate`.  The positions must have shape (n,), or they must
            have as many dimensions as ``x.shape[:-1]`` and broadcast to this shape.
        out : ndarray, optional
            The array to write to, with the shape and dtype of x.
        threads : int, optional
            As in `encode`; a small rotation uses one.

        Returns
        -------
        ndarray
            `out`, or `x` itself.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value; nothing is written.
        MemoryError
            If there is not enough memory for the cosines and sines; nothing is written.

        See Also
        --------
        Rotary.rotate : Rotate a single array.

        Examples
        --------
        >>> import numpy as np
        >>> from posenc import Rotary
        >>> at = Rotary(64).at(range(100, 103))
        >>> q, k = np.ones((8, 3, 64), np.float32), np.ones((2, 3, 64), np.float32)
        >>> at.rotate(q) is q, at.rotate(k) is k
        (True, True)
        """
        kernel.rotate_at(self._factors, x, self._positions, out, threads)
        return x if out is None else out

    def tables(
        self, *, dtype: AnyDType | None = None, threads: SupportsIndex | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the cosines and sines, correctly rounded to a dtype.  Each call computes them again.

        Parameters
        ----------
        dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
            The dtype of the result; by default float32.
        threads : int, optional
            As in `encode`.

        Returns
        -------
        cos : ndarray, shape ``shape + (rotary_dim / 2,)``
            The cosines, times ``scale`` and ``attention_scaling``.
        sin : ndarray
            The sines, with the same shape and factors; if ``inverse``, the sines of the negative angles.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value.

        See Also
        --------
        Rotary.tables : The cosines and sines at any positions.

        Examples
        --------
        >>> from posenc import Rotary
        >>> cos, sin = Rotary(4).at(range(1, 2)).tables()
        >>> sin
        array([[0.84147096, 0.00999983]], dtype=float32)
        """
        cos, sin = self.rotary.tables(self.positions, dtype=dtype, threads=threads)
        if self.inverse:
            np.subtract(sin.dtype.type(0), sin, out=sin)        # not -sin, as the sine of angle 0 is +0
        return cos, sin


def rotary_at(rotary: Any, factors: kernel.Factors, positions: NDArray[Any]) -> RotaryAt:
    """Return the rotation at some of the positions of `factors`."""
    result, shape = object.__new__(RotaryAt), positions.shape[rotary.axes is not None :]
    values = {"rotary": rotary, "inverse": factors.inverse, "shape": shape}
    vars(result).update(values, _factors=factors, _positions=positions)
    return result
