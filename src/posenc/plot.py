"""Pictures of encodings, drawn by matplotlib: ``pip install 'posenc[plot]'``, then ``import posenc.plot``.

Without `ax` a picture is drawn on a figure of its own, which pyplot does not know: nothing is shown and nothing need be
closed.  ``ax.figure`` as the last line of a notebook's cell shows it, ``ax.figure.savefig("pe.png")`` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, SupportsIndex

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from posenc import _arguments
from posenc._encoding import Encoding, keywords_of
from posenc._types import Positions

__all__ = ["heatmap", "similarity", "waves"]

WIDE, SQUARE = (8, 4.5), (5.6, 4.5)         # inches, of 100 pixels each
LONGEST = 10**7             # positions from here on are shown as distances from the first of them
MOST = 2**24                # values of a table or of a matrix of similarities: a picture has fewer pixels
DIMENSIONS = 4              # that waves draws of itself


# ---- what the pictures share ----------------------------------------------------------------------------------------


def _values(encoding: Encoding, positions: Positions) -> tuple[NDArray[Any], list[Any], str]:
    """The encodings in float64, the positions as Python's numbers, which they belong to, and the label of their axis."""
    if not isinstance(encoding, Encoding):
        raise TypeError(f"encoding is of type {type(encoding).__name__}, expected a posenc.Encoding")
    given = _arguments.range_or_array(positions)
    if not isinstance(given, range) and given.ndim != 1:
        raise ValueError(f"positions has shape {given.shape}, expected one dimension")
    _check_size(_arguments.length(given), encoding.d_model)
    values = encoding.encode(given, dtype="float64")
    numbers = list(given) if isinstance(given, range) else given.tolist()
    origin = next((p for p in numbers if math.isfinite(p) and abs(p) >= LONGEST), 0)
    label = f"position \N{MINUS SIGN} {origin:,}" if origin else "position"
    return values, [p - origin for p in numbers], label


def _check_size(*shape: int) -> None:
    if not 0 < math.prod(shape) <= MOST:
        raise ValueError(f"the picture has {shape[0]} x {shape[1]} values, expected from 1 to {MOST}")


def _axes(ax: Axes | None, inches: tuple[float, float] = WIDE) -> Axes:
    return Figure(inches, layout="constrained").subplots() if ax is None else ax


def _count(axis: Axis, label: str) -> None:
    """Ticks at whole numbers only."""
    axis.set_major_locator(MaxNLocator(steps=(1, 2, 5, 10), integer=True))
    axis.set_label_text(label)


def _count_rows(axis: Axis, numbers: list[Any], label: str) -> None:
    """Ticks at rows, each with its position."""
    _count(axis, label)
    axis.set_major_formatter(FuncFormatter(lambda row, _: f"{numbers[int(row)]:.7g}" if 0 <= row < len(numbers) else ""))


# ---- the pictures ---------------------------------------------------------------------------------------------------


def heatmap(encoding: Encoding, positions: Positions, *, ax: Axes | None = None) -> Axes:
    """Draw a table as colours, a row for each position and a column for each dimension; NaN is grey.

    Parameters
    ----------
    encoding : Encoding
        What is drawn: a `posenc.Encoding`.
    positions : int, range or array_like of one dimension
        Those of the rows, as in `posenc.encode`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the Axes of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn on; its ``figure`` is the picture.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, or a picture of no value or of more than 2**24.

    See Also
    --------
    waves : Chosen dimensions as curves.
    posenc.encode : The values.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.heatmap(posenc.Encoding(128), 100)
    >>> ax.get_xlabel(), ax.get_ylabel(), ax.images[0].get_array().shape
    ('dimension', 'position', (100, 128))
    """
    values, numbers, label = _values(encoding, positions)
    ax = _axes(ax)
    limit = abs(keywords_of(encoding)["scale"]) or 1.0
    image = ax.imshow(values, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.set_facecolor("grey")
    ax.figure.colorbar(image, ax=ax, label="value")
    _count(ax.xaxis, "dimension")
    _count_rows(ax.yaxis, numbers, label)
    return ax


def waves(
    encoding: Encoding, positions: Positions, *, dimensions: Iterable[SupportsIndex] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw chosen dimensions as curves over position.

    Parameters
    ----------
    encoding : Encoding
        What is drawn: a `posenc.Encoding`.
    positions : int, range or array_like of one dimension
        Those of the rows, as in `posenc.encode`; fractional positions make smooth curves of fast dimensions.
    dimensions : iterable of int, optional
        Columns of the table; by default four in equal steps, which are four speeds.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the Axes of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn on; its ``figure`` is the picture.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, or a picture of no value or of more than 2**24.

    See Also
    --------
    heatmap : All dimensions as colours.

    Examples
    --------
    >>> import numpy as np, posenc, posenc.plot
    >>> ax = posenc.plot.waves(posenc.Encoding(20), np.linspace(0, 100, 1001), dimensions=range(4, 8))
    >>> [line.get_label() for line in ax.lines]
    ['4', '5', '6', '7']
    """
    values, numbers, label = _values(encoding, positions)
    d_model = encoding.d_model
    if dimensions is None:
        dimensions = range(0, d_model, max(1, d_model // DIMENSIONS))[:DIMENSIONS]
    columns = [_arguments.integer("dimensions", dimension, 0) for dimension in dimensions]
    for dimension in columns:
        if dimension >= d_model:
            raise ValueError(f"dimensions has {dimension}, expected less than d_model = {d_model}")
    ax = _axes(ax)
    for dimension in columns:
        ax.plot(numbers, values[:, dimension], label=str(dimension))
    ax.set_xlabel(label)
    ax.set_ylabel("value")
    ax.margins(x=0)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=DIMENSIONS, frameon=False, title="dimension")
    return ax


def similarity(encoding: Encoding, positions: Positions, *, ax: Axes | None = None) -> Axes:
    """Draw the dot products between the encodings of all pairs of positions.

    Parameters
    ----------
    encoding : Encoding
        What is drawn: a `posenc.Encoding`.
    positions : int, range or array_like of one dimension
        Those of the rows, as in `posenc.encode`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default the Axes of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        What was drawn on; its ``figure`` is the picture.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, or a picture of no value or of more than 2**24.

    See Also
    --------
    heatmap : The values themselves.

    Examples
    --------
    Where sines and cosines come in pairs, the dot product depends on the distance alone and is largest, d_model / 2, on the
    diagonal:

    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.similarity(posenc.Encoding(128), 100)
    >>> ax.images[0].get_array()[[0, 0, 50], [0, 10, 60]].round(3).tolist()
    [64.0, 42.82, 42.82]
    """
    values, numbers, label = _values(encoding, positions)
    _check_size(len(values), len(values))
    ax = _axes(ax, SQUARE)
    image = ax.imshow(values @ values.T, cmap="viridis")
    ax.figure.colorbar(image, ax=ax, label="dot product")
    _count_rows(ax.xaxis, numbers, label)
    _count_rows(ax.yaxis, numbers, label)
    return ax
