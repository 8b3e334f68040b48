"""Measure positions as pipelines bring them against the fastest NumPy code:
``python benchmarks/positions.py``

Writes ratios of times, with one and two threads, and the time of a row of 512 columns by the share of
irregular rows and by the magnitude of positions, to docs/data/positions.json; updates the tables and the
plot.
"""

import statistics
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pages
import plots
from common import quartiles, save, times_of
from rivals import numpy_sin_cos

import posenc

RANDOM = np.random.default_rng(1)
DAYS = np.array([1, 7, 30.5, 365.2425]) * 86_400 * 10**9         # nanoseconds


def recipe(positions, out):
    return partial(numpy_sin_cos(out.shape[1], np.float32, positions), out)


def taken(rows, positions, out):
    table = posenc.encode(rows, out.shape[1])
    return lambda: np.take(table, positions, axis=0, out=out, mode="clip")


def table_in_call(rows, positions, out):
    table = np.empty((rows, out.shape[1]), np.float32)
    fill = numpy_sin_cos(out.shape[1], np.float32, np.arange(rows))
    return lambda: (fill(table), np.take(table, positions, axis=0, out=out, mode="clip"))


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
    recipes = {"float32 recipe": recipe}
    yield ("4,096 timesteps below 1,000, x 320", RANDOM.integers(0, 1000, 4096), {"d_model": 320},
           recipes | {"float32 table in the call, `np.take`": partial(table_in_call, 1000),
                      "`np.take`": partial(taken, 1000)})
    yield "4,096 real timesteps, x 320", RANDOM.uniform(0, 1000, 4096), {"d_model": 320}, recipes
    yield ("8,192 positions below 131,072, x 512", RANDOM.integers(0, 131_072, 8192), {"d_model": 512},
           recipes | {"`np.take`": partial(taken, 131_072)})
    yield ("one position 16,384 times, x 512", np.full(16_384, 77), {"d_model": 512},
           {"`np.take`": partial(taken, 131_072)})
    times = RANDOM.integers(17 * 10**17, 19 * 10**17, 400_000)
    periods = {"d_model": 8, "periods": tuple(DAYS)}
    yield "400,000 timestamps, x 8", times, periods, {"`t % period`, float32": remainders}
    places = np.column_stack([RANDOM.uniform(-90, 90, 100_000), RANDOM.uniform(-180, 180, 100_000)])
    axes = {"float32 recipe": recipe_of_axes}
    yield "100,000 latitudes and longitudes, x 64", places, {"d_model": 64}, axes


def ratios_of(calls):
    """Return {rival: quartiles of its time divided by that of posenc, the first call}."""
    ours, *others = times_of(list(calls.values()))
    return {rival: statistics.quantiles([b / a for a, b in zip(ours, times, strict=True)], n=4)
            for rival, times in zip(list(calls)[1:], others, strict=True)}


def measured(threads, pool):
    """Yield each case and its ratios."""
    for name, positions, keywords, rivals in encoding_cases():
        out = np.empty((len(positions), keywords["d_model"]), np.float32)
        encode = posenc.Encoding(**keywords).encode if positions.ndim == 1 else partial(posenc.points,
                                                                                        **keywords)
        calls = {"posenc": partial(encode, positions, out=out, threads=threads)}
        parts = np.array_split(np.arange(len(positions)), threads)
        for rival, make in rivals.items():
            parted = [make(positions[p[0] : p[-1] + 1], out[p[0] : p[-1] + 1]) for p in parts]
            calls[rival] = parted[0] if threads == 1 else lambda parted=parted: list(pool.map(lambda f: f(),
                                                                                              parted))
        yield name, ratios_of(calls)
    for share in (0.3, 0.51, 0.7):
        x, table = np.zeros((32, 512, 512), np.float32), posenc.encode(512, 512)
        padding = np.clip(RANDOM.normal(512 * share, 40, 32), 0, 500).astype(int)
        positions = np.maximum(np.arange(512) - padding[:, None], -1)
        encoding = posenc.Encoding(512, padding_idx=-1)

        def slices(x=x, table=table, padding=padding):
            def add(part):
                for i in part:
                    x[i, padding[i] :] += table[: 512 - padding[i]]
            list((pool.map if threads > 1 else map)(add, np.array_split(range(32), threads)))
        calls = {"posenc": partial(encoding.add_to, x, positions, threads=threads),
                 "slices of a table": slices}
        yield f"add to 32 x 512 x 512, {share:.0%} padding", ratios_of(calls)


def curves():
    """Return the quartiles of the time of 8,192 x 512 by the share of irregular rows, and by their bits."""
    out, encoding = np.empty((8192, 512), np.float32), posenc.Encoding(512)
    consecutive, scattered = np.arange(8192) + 10**6, RANDOM.integers(0, 2**24, 8192)
    shares = {share: np.where(RANDOM.random(8192) * 100 < share, scattered, consecutive)
              for share in (0, 1, 2, 5, 10, 20, 30, 50, 70, 90, 100)}
    bits = {bits: RANDOM.integers(0, 2**bits, 8192) for bits in range(6, 63, 2)}
    return [quartiles({x: partial(encoding.encode, p, out=out, threads=1) for x, p in arrays.items()})
            for arrays in (shares, bits)]


if __name__ == "__main__":
    ratios = {}
    for threads in (1, 2):
        with ThreadPoolExecutor(threads) as pool:
            for name, found in measured(threads, pool):
                for rival, values in found.items():
                    print(f"{name:46} {threads} thread(s)  {rival:24} {values[1]:6.2f}", flush=True)
                    ratios.setdefault(name, {}).setdefault(rival, {})[threads] = [round(v, 3) for v in values]
    save("positions", {"ratios": ratios, "curves": curves()})
    pages.update()
    plots.draw(plots.positions)
