"""Pictures of encodings with matplotlib: ``pip install matplotlib``, then ``import posenc.plot``.

The title of a plot is its encoding.  Without `ax`, a function draws on a new figure that is not registered
with pyplot, so you need not close it.  To show the figure in a notebook, run ``%matplotlib inline`` once and
end a cell with ``ax.figure``; to save it, call ``ax.figure.savefig("pe.png")``.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.arrays import Positions
from posenc._encoding.encoding import Encoding, without_durations

with checks.importing_for("posenc.plot"):
    from matplotlib import axes, cm, figure, layout_engine, ticker

__all__ = ["heatmap", "similarity", "waves"]

WIDE, SQUARE = (8, 4.5), (5.6, 4.5)         # inches, 100 pixels each
LARGE_POSITION = 10**7             # positions are shown relative to the first one with at least this magnitude
MAX_VALUES = 2**24                # largest number of values in a picture; a default picture has fewer pixels
CURVES = 4              # default number of curves
LEGEND_ROWS = 16                # number of entries in a column of a legend


def _values(encoding: Encoding, positions: Positions) -> tuple[NDArray[Any], list[Any], str]:
    """Return the encodings in float64, the positions relative to an origin, and the label of the position
    axis.
    """
    rows = checks.positions_of(positions, without_durations(encoding, "a plot").position_offset)
    if not isinstance(rows, range) and rows.ndim != 1:
        raise ValueError(f"positions has shape {rows.shape}, expected one dimension")
    _check_size(len(rows), encoding.d_model)
    values = encoding.encode(rows, dtype="float64")
    numbers = list(rows) if isinstance(rows, range) else rows.tolist()
    origin = next((p for p in numbers if math.isfinite(p) and abs(p) >= LARGE_POSITION), 0)
    label = f"position \N{MINUS SIGN} {origin:,}" if origin else "position"
    return values, [p - origin for p in numbers], label


def _check_size(*shape: int) -> None:
    if not 0 < math.prod(shape) <= MAX_VALUES:
        raise ValueError(f"positions give {shape[0]} x {shape[1]} values, expected from 1 to {MAX_VALUES}")


def _axes(encoding: Encoding, ax: axes.Axes | None, inches: tuple[float, float] = WIDE) -> axes.Axes:
    """Return the Axes to draw on, with the encoding as their title."""
    if ax is None:
        # with a margin in inches; compress removes the gap between a square picture and its colour bar
        layout = layout_engine.ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, compress=True)
        ax = figure.Figure(inches, layout=layout).subplots()
    checks.check_type("ax", ax, axes.Axes, "a matplotlib.axes.Axes")
    ax.set_title(repr(encoding), wrap=True)
    return ax


def _ticks(axis: Any, label: str, numbers: Sequence[Any]) -> None:
    """Label an axis of rows or columns and show their numbers at the ticks."""
    axis.set_label_text(label)
    axis.set_major_locator(ticker.MaxNLocator(steps=(1, 2, 5, 10), integer=True))
    axis.set_major_formatter(ticker.FuncFormatter(
        lambda index, _: f"{numbers[int(index)]:.7g}" if 0 <= index < len(numbers) else ""))


def heatmap(encoding: Encoding, positions: Positions, *, ax: axes.Axes | None = None) -> axes.Axes:
    """Draw a table as colours, with a row for each position and a column for each dimension; NaN is grey.

    Parameters
    ----------
    encoding : Encoding
        A `posenc.Encoding`.
    positions : int, range or one-dimensional array_like
        Positions of the rows, as in `posenc.encode`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with the picture.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or if the picture does not have 1 to 2**24 values.

    See Also
    --------
    waves : Draw chosen dimensions as curves.
    posenc.encode : Compute the values.

    Examples
    --------
    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.heatmap(posenc.Encoding(128), 100)
    >>> ax.get_xlabel(), ax.get_ylabel(), ax.images[0].get_array().shape
    ('dimension', 'position', (100, 128))
    """
    values, numbers, label = _values(encoding, positions)
    ax = _axes(encoding, ax)
    limit = abs(encoding.scale) or 1.0
    image = ax.imshow(values, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.set_facecolor("grey")
    ax.figure.colorbar(image, ax=ax, label="value")
    _ticks(ax.xaxis, "dimension", range(encoding.d_model))
    _ticks(ax.yaxis, label, numbers)
    return ax


def waves(
    encoding: Encoding, positions: Positions, *, dimensions: Iterable[SupportsIndex] | None = None,
    ax: axes.Axes | None = None,
) -> axes.Axes:
    """Draw chosen dimensions as curves over the positions.

    Parameters
    ----------
    encoding : Encoding
        A `posenc.Encoding`.
    positions : int, range or one-dimensional array_like
        Positions as in `posenc.encode`; fractional positions make the curves of high frequencies smooth.
    dimensions : iterable of int, optional
        Columns of the table; by default four, equally spaced.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with the picture.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or if the whole table does not have 1 to 2**24 values.

    See Also
    --------
    heatmap : Draw all dimensions as colours.

    Examples
    --------
    >>> import numpy as np, posenc, posenc.plot
    >>> positions = np.linspace(0, 100, 1001)
    >>> ax = posenc.plot.waves(posenc.Encoding(20), positions, dimensions=range(4, 8))
    >>> [line.get_label() for line in ax.lines]
    ['4', '5', '6', '7']
    """
    values, numbers, label = _values(encoding, positions)
    d_model = encoding.d_model
    if dimensions is None:
        dimensions = range(0, d_model, max(1, d_model // CURVES))[:CURVES]
    columns = checks.integers("dimensions", list(dimensions) if isinstance(dimensions, Iterable) else dimensions)
    if max(columns, default=-1) >= d_model:
        raise ValueError(f"dimensions has {max(columns)}, expected less than {d_model}, the number of columns")
    ax = _axes(encoding, ax)
    for dimension, color in zip(columns, cm.viridis(np.linspace(0, 1, len(columns))), strict=True):
        ax.plot(numbers, values[:, dimension], label=str(dimension), color=color)
    ax.set_xlabel(label)
    ax.set_ylabel("value")
    ax.margins(x=0)
    legend = {"bbox_to_anchor": (1, 0.5), "frameon": False, "ncols": 1 + (len(columns) - 1) // LEGEND_ROWS}
    ax.legend(loc="center left", title="dimension", **legend)
    return ax


def similarity(encoding: Encoding, positions: Positions, *, ax: axes.Axes | None = None) -> axes.Axes:
    """Draw the dot products of the encodings of all pairs of positions.

    Parameters
    ----------
    encoding : Encoding
        A `posenc.Encoding`.
    positions : int, range or one-dimensional array_like
        Positions of the rows, as in `posenc.encode`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes with the picture.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or if the table or the picture does not have 1 to 2**24
        values.

    See Also
    --------
    heatmap : Draw the values.

    Examples
    --------
    If each frequency has a sine and a cosine, the dot product depends only on the distance between the
    positions.  Its maximum, on the diagonal, is ``scale**2 * d_model / 2``:

    >>> import posenc, posenc.plot
    >>> ax = posenc.plot.similarity(posenc.Encoding(128), 100)
    >>> ax.images[0].get_array()[[0, 0, 50], [0, 10, 60]].round(3).tolist()
    [64.0, 42.82, 42.82]
    """
    values, numbers, label = _values(encoding, positions)
    _check_size(len(values), len(values))
    ax = _axes(encoding, ax, SQUARE)
    image = ax.imshow(values @ values.T, cmap="viridis")
    ax.figure.colorbar(image, ax=ax, label="dot product")
    _ticks(ax.xaxis, label, numbers)
    _ticks(ax.yaxis, label, numbers)
    return ax
