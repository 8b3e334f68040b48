"""Write to arrays next to inaccessible pages: an access outside of a buffer ends the process.

    python tests/guarded.py INSTRUCTION_SET [EVERY]

runs every EVERY-th case and prints the number of cases to stdout.  Each case is printed to stderr before it
runs; after a crash, the last line is the case that crashed.
"""

import ctypes
import itertools
import mmap
import sys
from functools import lru_cache

import ml_dtypes
import numpy as np

import posenc
from posenc._core import kernel

FILLER = 0xA5
SIDES = ("low", "high")
DTYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# values of d_model near multiples of a tile (32 columns), of a cache line in every dtype, and of a group of
# vectors
WIDTHS = (1, 2, 3, 8, 15, 16, 31, 32, 33, 47, 63, 64, 65, 96, 127, 510, 512, 513)
# numbers of rows near the minimum for rotation, near the 64 rows of an anchor, and (BLOCKS) near multiples of
# a 512-row block
LENGTHS = (1, 2, 3, 4, 5, 31, 33, 63, 64, 65, 130)
BLOCKS = (511, 512, 513, 1030)
START = -17


class GuardedBuffer:
    """Memory between two guard pages."""

    def __init__(self, size):
        page = mmap.PAGESIZE
        self.size = -(-max(size, 1) // page) * page
        self._map = mmap.mmap(-1, self.size + 2 * page)
        self.bytes = np.frombuffer(self._map, np.uint8)[page : page + self.size]
        first = self.bytes.ctypes.data - page
        for guard in (first, first + page + self.size):
            if _mprotect(guard, page, 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def array(self, shape, dtype, strides, side, shift=0):
        """Fill the buffer with FILLER.

        Return an array that begins (side "low") or ends `shift` bytes from a guard page.
        """
        below = sum(min(0, s) * (n - 1) for s, n in zip(strides, shape, strict=True))
        above = sum(max(0, s) * (n - 1) for s, n in zip(strides, shape, strict=True)) + np.dtype(dtype).itemsize
        offset = shift - below if side == "low" else self.size - shift - above
        self.bytes[:] = FILLER
        return np.ndarray(shape, dtype, self.bytes, offset, strides)

    def untouched(self, array):
        """Overwrite the array with FILLER; return whether every byte of the buffer is now FILLER."""
        array[...] = np.frombuffer(bytes([FILLER] * array.itemsize), array.dtype)[0]
        return (self.bytes == FILLER).all()


def _mprotect(address, length, protection):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc.mprotect(address, length, protection)


@lru_cache(maxsize=64)
def _cached_buffer(pages, use):
    return GuardedBuffer(pages * mmap.PAGESIZE)


def buffer_for(size, use="out"):
    return _cached_buffer(-(-size // mmap.PAGESIZE), use)


# ---- calls -------------------------------------------------------------------------------------------------


def encode_range(encoding, out, name, threads):
    encoding.encode(range(START, START + len(out)), dtype=name, out=out, threads=threads)


def encode_backwards(encoding, out, name, threads):
    encoding.encode(range(START + len(out) - 1, START - 1, -1), dtype=name, out=out[::-1], threads=threads)


def encode_integers(encoding, out, name, threads):
    encoding.encode(guarded(np.arange(START, START + len(out))), dtype=name, out=out, threads=threads)


def encode_reals(encoding, out, name, threads):
    encoding.encode(guarded(np.arange(START, START + len(out), dtype=np.float64)), dtype=name, out=out,
                    threads=threads)


def stream(encoding, out, name, threads):
    for chunk in encoding.stream(range(START, START + len(out)), dtype=name, out=out, threads=threads):
        assert chunk.values.base is not None


def add_range(encoding, x, name, threads):
    x[...] = 0
    encoding.add_to(x, range(START, START + x.shape[-2]), threads=threads)


def add_integers(encoding, x, name, threads):
    x[...] = 0
    positions = np.broadcast_to(range(START, START + x.shape[-2]), x.shape[:-1])
    encoding.add_to(x, guarded(np.ascontiguousarray(positions)), x_scale=0.5, threads=threads)


CALLS = (encode_range, encode_backwards, encode_integers, encode_reals, stream, add_range, add_integers)


def guarded(positions):
    """Return a copy of `positions` that ends at a guard page."""
    array = buffer_for(positions.nbytes, "positions").array(positions.shape, positions.dtype,
                                                            positions.strides, "high")
    array[:] = positions
    return array


# ---- cases -------------------------------------------------------------------------------------------------


def row_strides(width, itemsize):
    """Return the strides of contiguous rows, of rows padded by a few elements or to cache lines, and of
    reversed rows.
    """
    tight = width * itemsize
    padded = -(-tight // 64) * 64
    return sorted({tight, tight + itemsize, tight + 7 * itemsize, padded, padded + 64, -tight,
                   -tight - 3 * itemsize})


NUMBERS = itertools.count(1)


def chosen(cases, every):
    """Return every EVERY-th case, counted over all calls of this function."""
    return (case for case in cases if next(NUMBERS) % every == 0)


def check(case, call, encoding, expected, buffer, array, name, threads):
    print(*case, file=sys.stderr)
    call(encoding, array, name, threads)
    bits = f"u{array.itemsize}"
    # add_to adds to zeros here: -0.0 becomes 0.0, so compare its sums as numbers
    same = (array == expected).all() if call in (add_range, add_integers) else (array.view(bits) == expected.view(bits)).all()
    assert same, f"wrong values: {case}"
    assert buffer.untouched(array), f"written outside of out: {case}"


def sweep_matrices(every, lengths, widths, threads=None):
    """Test each call with matrices of every dtype, length, width, row stride and side."""
    for (name, dtype), width in itertools.product(DTYPES.items(), widths):
        encoding = posenc.Encoding(width)
        itemsize = np.dtype(dtype).itemsize
        table = encoding.encode(range(START, START + max(lengths)), dtype=name, threads=1)
        cases = itertools.product(lengths, row_strides(width, itemsize), SIDES, CALLS)
        for count, (length, stride, side, call) in enumerate(chosen(cases, every)):
            buffer = buffer_for(abs(stride) * length + 64)
            # shift 0 puts the array directly at the guard page; other shifts vary its offset from a cache
            # line
            shift = itemsize * (count % (64 // itemsize)) if count % 3 == 0 else 0
            array = buffer.array((length, width), dtype, (stride, itemsize), side, shift)
            case = (call.__name__, name, length, width, stride, side, shift)
            check(case, call, encoding, table[:length], buffer, array, name, threads)


def sweep_batches(every):
    """Test add_to with strided arrays of three and four dimensions.

    The positions are a range or a batch of integers.
    """
    for (name, dtype), width, length in itertools.product(DTYPES.items(), (1, 3, 32, 33, 65, 512), (1, 5, 40, 70)):
        encoding = posenc.Encoding(width)
        itemsize = np.dtype(dtype).itemsize
        table = encoding.encode(range(START, START + length), dtype=name)
        row, gap = width * itemsize, 3 * itemsize
        layouts = {
            "plain": ((2, 3, length, width), (3 * length * row, length * row, row, itemsize)),
            "gaps": ((2, 3, length, width),
                     (3 * length * (row + gap) + gap, length * (row + gap), row + gap, itemsize)),
            "batch inside": ((3, length, width), (row, 3 * row, itemsize)),
            "backwards": ((2, length, width), (-length * (row + gap), -(row + gap), itemsize)),
        }
        cases = itertools.product(layouts.items(), SIDES, (False, True))
        for (layout, (shape, strides)), side, scattered in chosen(cases, every):
            buffer = buffer_for(sum(abs(s) * n for s, n in zip(strides, shape, strict=True)))
            array = buffer.array(shape, dtype, strides, side)
            call = add_integers if scattered else add_range
            check((call.__name__, name, layout, shape, strides, side), call, encoding, table, buffer, array,
                  name, None)


def rotation(pairs, rest, interleaved):
    layout = "interleaved" if interleaved else "halves"
    return posenc.Rotary(2 * pairs + rest, rotary_dim=2 * pairs, layout=layout)._rotation


def sweep_rotations(every):
    """Test rotations in place and into another array, with rows and heads in several orders.

    Positions: a range or an array.
    """
    dtypes = [(name, dtype) for name, dtype in DTYPES.items() if name != "float64"]
    for (_, dtype), pairs, rest, interleaved in itertools.product(dtypes, (1, 7, 16, 20, 32, 33), (0, 3),
                                                                  (False, True)):
        turning, width, itemsize = rotation(pairs, rest, interleaved), 2 * pairs + rest, np.dtype(dtype).itemsize
        row, gap = width * itemsize, 3 * itemsize
        for length in (1, 5, 40):
            x = np.random.default_rng(length).standard_normal((2, length, width)).astype(dtype)
            expected = x.copy()
            kernel.rotate(turning, expected, range(START, START + length), False, None, 1)
            layouts = {
                "plain": (length * row, row), "gaps": (length * (row + gap) + gap, row + gap),
                "inside": (row, 2 * row), "backwards": (-length * (row + gap), -(row + gap)),
            }
            cases = itertools.product(layouts.items(), SIDES, (False, True), (False, True))
            for (layout, strides), side, scattered, has_out in chosen(cases, every):
                size = 2 * length * (row + gap) + gap
                positions = guarded(np.arange(START, START + length)) if scattered else range(START, START + length)
                buffer, source = buffer_for(size), buffer_for(size, "source")
                array = buffer.array(x.shape, dtype, (*strides, itemsize), side)
                given = source.array(x.shape, dtype, (*strides, itemsize), side) if has_out else array
                given[...] = x
                case = ("rotate", dtype, pairs, rest, interleaved, length, layout, side, scattered, has_out)
                print(*case, file=sys.stderr)
                kernel.rotate(turning, given, positions, False, array if has_out else None, None)
                bits = f"u{itemsize}"
                assert (array.view(bits) == expected.view(bits)).all(), f"wrong values: {case}"
                assert buffer.untouched(array) and (not has_out or source.untouched(given)), f"written outside of out: {case}"


def main(isa, every=1):
    every = int(every)
    kernel.use_instruction_set(isa)
    sweep_matrices(every, LENGTHS, WIDTHS)
    sweep_matrices(every, BLOCKS, (1, 33, 64, 510, 512), threads=2)
    # outputs larger than 8 MiB use non-temporal stores, directly or through a buffer
    sweep_matrices(every, (5000,), (513, 1024))
    sweep_batches(every)
    sweep_rotations(every)
    print((next(NUMBERS) - 1) // every)


if __name__ == "__main__":
    main(*sys.argv[1:])
