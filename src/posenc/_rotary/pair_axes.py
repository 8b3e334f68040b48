"""The axis of positions of each pair of columns, for rotations with several axes."""

from collections.abc import Sequence


def blocks(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 0 for the first ``sections[0]`` pairs, 1 for the next ``sections[1]`` pairs, and so on."""
    return tuple(axis for axis, count in enumerate(sections) for _ in range(count))


def interleaved(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 0, 1, 2, 0, 1, 2 ..., with 0 in place of an axis that already has all of its pairs."""
    if len(sections) != 3:
        raise ValueError(f"mrope_section has length {len(sections)}, expected 3 for mrope_interleaved")
    axes = [0] * sum(sections)
    for axis in (1, 2):
        for pair in range(axis, min(3 * sections[axis], len(axes)), 3):
            axes[pair] = axis
    return tuple(axes)


def alternating(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 1 and 2 in turn, then 0.  `sections` has the numbers of pairs for axes 1, 2 and 0."""
    return (1, 2) * sections[0] + (0,) * sections[2]
