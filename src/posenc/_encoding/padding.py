"""Functions that compute the positions of padded and packed batches, for `encode` and `add_to`."""

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import arrays, checks


def positions_from_mask(
    mask: ArrayLike, *, padding_idx: SupportsIndex = -1, start: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Compute the positions of padded sequences: the number of tokens before each token, plus `start`.

    Parameters
    ----------
    mask : array_like, shape (..., n)
        True or 1 at tokens, False or 0 at padding, as in Hugging Face's ``attention_mask``; PyTorch's
        ``key_padding_mask`` is the opposite.  The dtype may be boolean, integer or real; a real mask must
        contain a 1.
    padding_idx : int, optional
        The position given to all padding.
    start : int or array_like of int, optional
        The position of the first token of each sequence, broadcast to the shape (...); by default
        ``padding_idx + 1``.

    Returns
    -------
    ndarray of int64, shape (..., n)
        The position of each token, and `padding_idx` at padding.  `encode` and `add_to` encode this position,
        too, even -1, unless they get the same `padding_idx`, as in ``add_to(x, positions, padding_idx=-1)``;
        then its encoding is zero, even for a token.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example a mask that contains a number other than 0 and
        1.  A mask of a real dtype must contain a 1, because an additive mask of a batch without padding
        contains only 0.

    See Also
    --------
    positions_from_segments : Compute the positions of packed sequences.
    add_to : Add the encodings of these positions to embeddings.

    Notes
    -----
    By default the result is ``cumsum(mask) * mask + padding_idx``, as in fairseq's ``make_positions`` and in
    ``create_position_ids_from_input_ids`` for M2M100, NLLB-MoE and Speech2Text in Hugging Face's
    transformers.  After `past` cached tokens, use ``start=padding_idx + 1 + past``.  For the positions that
    ``generate`` in transformers gives to a left-padded batch (``attention_mask.cumsum(-1) - 1``, and 0 at
    padding), use ``padding_idx=0, start=0``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> mask = [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 1, 0]]
    >>> posenc.positions_from_mask(mask)
    array([[ 0,  1,  2,  3],
           [-1, -1,  0,  1],
           [ 0,  1,  2, -1]])
    >>> positions = posenc.positions_from_mask(mask, padding_idx=1)       # fairseq
    >>> positions
    array([[2, 3, 4, 5],
           [1, 1, 2, 3],
           [2, 3, 4, 1]])
    >>> x = np.zeros((3, 4, 6), np.float32)
    >>> posenc.add_to(x, positions, padding_idx=1)[:, :, 1]     # cos(position), and 0 for padding
    array([[-0.41614684, -0.9899925 , -0.6536436 ,  0.2836622 ],
           [ 0.        ,  0.        , -0.41614684, -0.9899925 ],
           [-0.41614684, -0.9899925 , -0.6536436 ,  0.        ]],
          dtype=float32)
    """
    mask = _array("mask", mask, "biuf", "booleans or numbers", 1)
    token = mask.astype(bool)
    hint = "; for an additive mask, pass mask == 0" if mask.dtype.kind == "f" else ""
    if mask.dtype.kind != "b" and not (mask == token).all():
        raise ValueError(f"mask has {mask[mask != token][0]}, expected 0 at padding and 1 at tokens{hint}")
    if hint and mask.size and not token.any():      # an additive mask of a batch without padding
        raise ValueError(f"mask has dtype {mask.dtype} and no 1, expected 0 at padding and 1 at tokens{hint}")
    count = np.cumsum(token, axis=-1, dtype=np.int64)
    count -= 1
    return _with_padding(count, ~token, padding_idx, start)


def positions_from_segments(
    segment_ids: ArrayLike, *, padding_segment: SupportsIndex | None = None, padding_idx: SupportsIndex = -1,
    start: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """Compute the positions of packed sequences from segment ids: a sequence begins where the id changes.

    Parameters
    ----------
    segment_ids : array_like of int, shape (..., n)
        The id of each token's sequence; adjacent sequences must have different ids.
    padding_segment : int, optional
        The id that marks padding, such as 0 in T5X and in Flax's examples.  By default there is no padding.
    padding_idx : int, optional
        The position given to all padding: see `positions_from_mask`.
    start : int or array_like of int, optional
        The position of the first token of each sequence, broadcast to the shape (...); by default
        ``padding_idx + 1``.

    Returns
    -------
    ndarray of int64, shape (..., n)
        The position of each token within its sequence, and `padding_idx` at padding.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.

    See Also
    --------
    positions_from_lengths : Compute positions from the lengths of the sequences.
    positions_from_mask : Compute the positions of padded sequences.

    Examples
    --------
    >>> import posenc
    >>> posenc.positions_from_segments([[1, 1, 1, 2, 2, 0], [1, 2, 2, 2, 2, 3]], padding_segment=0)
    array([[ 0,  1,  2,  0,  1, -1],
           [ 0,  0,  1,  2,  3,  0]])
    """
    ids = _array("segment_ids", segment_ids, "iu", "integers", 1)
    column = np.arange(ids.shape[-1], dtype=np.int64)
    is_first = np.ones(ids.shape, bool)
    is_first[..., 1:] = ids[..., 1:] != ids[..., :-1]
    count = column - np.maximum.accumulate(np.where(is_first, column, 0), axis=-1)
    padding = False if padding_segment is None else ids == checks.position("padding_segment", padding_segment)
    return _with_padding(count, padding, padding_idx, start)


def positions_from_lengths(lengths: ArrayLike, *, start: ArrayLike = 0) -> NDArray[np.int64]:
    """Compute the positions of packed sequences from their lengths.

    Parameters
    ----------
    lengths : array_like of int, shape (sequences,)
        The number of tokens in each sequence, at least 0.  For FlashAttention's ``cu_seqlens``, pass
        ``np.diff(cu_seqlens)``. Three or more lengths that begin with 0 and never decrease are refused,
        because they may be ``cu_seqlens``.
    start : int or array_like of int, shape (sequences,), optional
        The position of the first token of each sequence, by default 0.

    Returns
    -------
    ndarray of int64, shape (sum(lengths),)
        The position of each token within its sequence.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.

    See Also
    --------
    positions_from_segments : Compute positions from segment ids.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> posenc.positions_from_lengths([3, 2, 4])
    array([0, 1, 2, 0, 1, 0, 1, 2, 3])
    >>> posenc.positions_from_lengths(np.diff([0, 3, 5, 9]), start=[0, 100, 7])
    array([  0,   1,   2, 100, 101,   7,   8,   9,  10])
    """
    lengths = _integers("lengths", lengths)
    if lengths.ndim != 1:
        raise ValueError(f"lengths has shape {lengths.shape}, expected one dimension")
    if (lengths < 0).any():
        raise ValueError(f"lengths has {lengths[lengths < 0][0]}, expected at least 0")
    if len(lengths) > 2 and lengths[0] == 0 < lengths[-1] and (lengths[1:] >= lengths[:-1]).all():
        raise ValueError(f"lengths begins with 0, never decreases and ends with {lengths[-1]}, like cumulative "
                         "lengths; pass numpy.diff(lengths), or leave out empty sequences at the beginning")
    start = _starts(start, lengths.shape, lengths)
    total = sum(lengths.tolist())
    try:
        positions = np.arange(min(total, 2**62), dtype=np.int64)        # NumPy would take 2**63 for 0
    except (MemoryError, ValueError) as error:
        raise arrays.too_large("lengths", (total,), error) from None
    # exact, because overflows cancel
    positions += np.repeat(start - (np.cumsum(lengths) - lengths), lengths.astype(np.intp))
    return positions


# ---- arguments ---------------------------------------------------------------------------------------------


def _array(name: str, value: Any, kinds: str, expected: str, dimensions: int = 0) -> NDArray[Any]:
    """Return an array whose `dtype.kind` is in `kinds`, with at least this number of dimensions, 0 or 1.

    An empty list, which NumPy converts to float64, is also accepted.
    """
    array = arrays.widened(arrays.as_array(name, value))
    if array.dtype.kind not in kinds and not (array.size == 0 and isinstance(value, (list, tuple))):
        raise TypeError(f"{name} has dtype {array.dtype}, expected {expected}")
    if array.ndim < dimensions:
        raise ValueError(f"{name} has shape (), expected (..., n)")
    return array


def _integers(name: str, value: Any) -> NDArray[np.int64]:
    array = _array(name, value, "iu", "integers of at most 64 bits")
    if array.dtype.kind == "u" and (array > np.uint64(checks.BEYOND - 1)).any():
        raise ValueError(f"{name} has {array.max()}, expected -2**63 <= {name} < 2**63")
    return array.astype(np.int64)


def _starts(start: Any, shape: tuple[int, ...], n: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the starts as an int64 array of `shape`.

    Check that the n positions of each sequence are below 2**63.
    """
    array = _integers("start", start)
    try:
        starts = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"start has shape {array.shape}, expected one that broadcasts to {shape}") from None
    beyond = starts > checks.BEYOND - 1 - np.maximum(n - 1, 0)
    if beyond.any():
        raise ValueError(f"start has {starts[beyond][0]}, expected positions below 2**63")
    return starts


def _with_padding(
    count: NDArray[np.int64], padding: bool | NDArray[np.bool_], padding_idx: Any, start: Any
) -> NDArray[np.int64]:
    """Overwrite and return `count`: ``start + count`` at tokens, and `padding_idx` at padding."""
    padding_idx = checks.position("padding_idx", padding_idx)
    start = padding_idx + 1 if start is None else start
    count += _starts(start, count.shape[:-1], count.shape[-1])[..., np.newaxis]
    np.copyto(count, padding_idx, where=padding)
    return count
