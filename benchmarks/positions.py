"""Measure positions as pipelines bring them against the fastest NumPy code, and print ratios: above 1, posenc is faster.

    python benchmarks/positions.py            the cases, with one and two threads
    python benchmarks/positions.py curves     the time of 8,192 x 512 by the share of irregular rows and by the magnitude
"""

import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from common import times_of
from rivals import numpy_sin_cos

import posenc

RANDOM = np.random.default_rng(1)
DAYS = np.array([1, 7, 30.5, 365.2425]) * 86_400 * 10**9         # nanoseconds


def recipe(positions, out):
    return partial(numpy_sin_cos(out.shape[1], np.float32, positions), out)


def taken(rows, positions, out):
    table = posenc.encode(rows, out.shape[1])
    return lambda: np.take(table, positions, axis=0, out=out, mode="clip")


def remainders(times, out):
    periods, rates = DAYS.astype(np.int64), (2 * np.pi / DAYS).astype(np.float32)

    def call():
        for first in range(0, len(times), 8192):
            block = times[first : first + 8192]
            for i, period in enumerate(periods):
                angle = (block % period).astype(np.float32) * rates[i]
                np.sin(angle, out=out[first : first + 8192, 2 * i])
                np.cos(angle, out=out[first : first + 8192, 2 * i + 1])
    return call


def recipe_of_axes(points, out):
    width = out.shape[1] // 2
    fills = [numpy_sin_cos(width, np.float32, coordinates) for coordinates in points.T]
    return lambda: [fill(out[:, i * width : (i + 1) * width]) for i, fill in enumerate(fills)]


def encoding_cases():
    """Yield a name, positions, keywords of an encoding, and {rival: function of positions and out}."""
    steps, places = RANDOM.integers(0, 1000, 4096), RANDOM.integers(0, 131_072, 8192)
    yield "4,096 timesteps x 320", steps, {"d_model": 320}, {"recipe": recipe, "take": partial(taken, 1000)}
    yield "4,096 real timesteps x 320", RANDOM.uniform(0, 1000, 4096), {"d_model": 320}, {"recipe": recipe}
    yield "8,192 scattered x 512", places, {"d_model": 512}, {"recipe": recipe, "take": partial(taken, 131_072)}
    yield "one position x 16,384 x 512", np.full(16_384, 77), {"d_model": 512}, {"take": partial(taken, 131_072)}
    times = RANDOM.integers(17 * 10**17, 19 * 10**17, 400_000)
    yield "400,000 timestamps x 8", times, {"d_model": 8, "periods": tuple(DAYS)}, {"t % period": remainders}
    places = np.column_stack([RANDOM.uniform(-90, 90, 100_000), RANDOM.uniform(-180, 180, 100_000)])
    yield "100,000 latitudes, longitudes x 64", places, {"d_model": 64}, {"recipe": recipe_of_axes}


def print_ratios(name, threads, calls):
    ours, *others = times_of(list(calls.values()))
    for rival, times in zip(list(calls)[1:], others, strict=True):
        low, middle, high = statistics.quantiles([b / a for a, b in zip(ours, times, strict=True)], n=4)
        print(f"{name:36}{threads} thread(s)  {rival:12}{middle:6.2f}  ({low:.2f} to {high:.2f})", flush=True)


def measure_cases(threads, pool):
    for name, positions, keywords, rivals in encoding_cases():
        out = np.empty((len(positions), keywords["d_model"]), np.float32)
        encode = posenc.Encoding(**keywords).encode if positions.ndim == 1 else partial(posenc.points, **keywords)
        calls = {"posenc": partial(encode, positions, out=out, threads=threads)}
        parts = np.array_split(np.arange(len(positions)), threads)
        for rival, make in rivals.items():
            parted = [make(positions[p[0] : p[-1] + 1], out[p[0] : p[-1] + 1]) for p in parts]
            calls[rival] = parted[0] if threads == 1 else lambda parted=parted: list(pool.map(lambda f: f(), parted))
        print_ratios(name, threads, calls)
    for share in (0.3, 0.51, 0.7):
        x, table = np.zeros((32, 512, 512), np.float32), posenc.encode(512, 512)
        padding = np.clip(RANDOM.normal(512 * share, 40, 32), 0, 500).astype(int)
        positions = np.maximum(np.arange(512) - padding[:, None], -1)
        encoding = posenc.Encoding(512, padding_idx=-1)

        def slices(x=x, table=table, padding=padding):
            def add(i):
                x[i, padding[i] :] += table[: 512 - padding[i]]
            list((pool.map if threads > 1 else map)(add, range(32)))
        print_ratios(f"add_to, {share:.0%} padding", threads,
                     {"posenc": partial(encoding.add_to, x, positions, threads=threads), "slices": slices})


def measure_curves():
    out, encoding = np.empty((8192, 512), np.float32), posenc.Encoding(512)
    consecutive, scattered = np.arange(8192) + 10**6, RANDOM.integers(0, 2**24, 8192)
    positions = {f"{share} % irregular": np.where(RANDOM.random(8192) * 100 < share, scattered, consecutive)
                 for share in (0, 1, 2, 5, 10, 20, 30, 50, 70, 90, 100)}
    positions |= {f"below 2**{bits}": RANDOM.integers(0, 2**bits, 8192) for bits in range(6, 63, 4)}
    times = times_of([partial(encoding.encode, p, out=out, threads=1) for p in positions.values()])
    for name, seconds in zip(positions, times, strict=True):
        low, middle, high = (1e9 * t / 8192 for t in statistics.quantiles(seconds, n=4))
        print(f"{name:24}{middle:8.0f} ns a row  ({low:.0f} to {high:.0f})")


if sys.argv[1:] == ["curves"]:
    measure_curves()
else:
    for n in (1, 2):
        with ThreadPoolExecutor(n) as workers:
            measure_cases(n, workers)
