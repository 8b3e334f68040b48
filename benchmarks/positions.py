"""Measure positions as pipelines bring them against fast code with NumPy, numba or torch.compile:
``python benchmarks/positions.py``

Writes ratios of times, with one and two threads, and the time of a row of 512 columns by the share of
irregular rows and by the magnitude of positions, to docs/data/positions.json; updates the tables and the
plot.
"""

import statistics
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import loops
import numba
import numpy as np
import pages
import plots
import torch
from common import pause, quartiles, save, times_of
from rivals import compiled, copied, cosine, factors, frequencies, interleaved

import posenc

RANDOM = np.random.default_rng(1)
DAYS = np.array([1, 7, 30.5, 365.2425]) * 86_400 * 10**9         # nanoseconds


def recipe(positions, out):
    """Compute sines and cosines in the dtype of `out`, in blocks that stay in the cache."""
    positions, rates = positions.astype(out.dtype)[:, None], frequencies(out.shape[1]).astype(out.dtype)
    rows = min(2**16 // out.shape[1], 1024, len(positions))
    angles = np.empty((rows, len(rates)), out.dtype)

    def fill():
        for i in range(0, len(positions), rows):
            block = out[i : i + rows]
            np.multiply(positions[i : i + rows], rates, out=angles[: len(block)])
            np.sin(angles[: len(block)], out=block[:, 0::2])
            np.cos(angles[: len(block)], out=block[:, 1::2])

    return fill


def polynomial(rates, angles, dtype, positions, out):
    """Compute angles in turns, and cosines by a polynomial, in these dtypes; rates are turns by pair."""
    positions = torch.from_numpy(positions).view(len(positions), -1, 1)
    columns = torch.from_numpy(out).view(*positions.shape[:2], -1)
    rates = torch.from_numpy(rates.repeat(2)).to(angles)
    phases = torch.tensor([-0.25, 0.0], dtype=angles).repeat(len(rates) // 2)
    return compiled(lambda p, rates, phases, out: out.copy_(cosine(p.to(angles) * rates + phases, dtype)),
                    positions, rates, phases, columns)


def polynomials(rates, *dtypes):
    """Return {rival: function of positions and out} for dtypes of the angles and the polynomial."""
    names = {(torch.float32, torch.float32): "float32 polynomial", (torch.float64, torch.float64): "float64 polynomial",
             (torch.float64, torch.float32): "float32 polynomial, float64 angles"}
    return {names[angles, dtype]: partial(polynomial, rates, angles, dtype) for angles, dtype in dtypes}


def taken(rows, positions, out):
    table = posenc.encode(rows, out.shape[1])
    return lambda: np.take(table, positions, axis=0, out=out, mode="clip")


def selected(rows, positions, out):
    table, out = torch.tensor(posenc.encode(rows, out.shape[1])), torch.from_numpy(out)
    return partial(torch.index_select, table, 0, torch.from_numpy(positions), out=out)


def table_in_call(rows, positions, out):
    table = np.empty((rows, out.shape[1]), np.float32)
    fill = recipe(np.arange(rows), table)
    return lambda: (fill(), np.take(table, positions, axis=0, out=out, mode="clip"))


def added(rows, step, positions, out):
    """Compute rows by angle addition from an anchor in each `step` rows, in float64."""
    double, _ = factors(step * np.arange(rows // step), np.arange(step), *interleaved(out.shape[1]))
    return lambda: loops.fill_at(positions, *double, out)


def by_period(times, out):
    """Compute sines and cosines of fractions of periods; the remainder `times % period` takes longer."""
    def call():
        for first in range(0, len(times), 8192):
            block = times[first : first + 8192].astype(np.float64)
            for i, period in enumerate(DAYS):
                turns = block * (1 / period)
                turns -= np.floor(turns)
                angles = turns.astype(np.float32) * np.float32(2 * np.pi)
                np.sin(angles, out=out[first : first + 8192, 2 * i])
                np.cos(angles, out=out[first : first + 8192, 2 * i + 1])
    return call


def recipe_of_axes(points, out):
    width = out.shape[1] // 2
    fills = [recipe(each, out[:, i * width : (i + 1) * width]) for i, each in enumerate(points.T)]
    return lambda: [fill() for fill in fills]


def encoding_cases():
    """Yield a name, positions, keywords of an encoding, and {rival: function of positions and out}."""
    numpy, single, double = {"float32 recipe": recipe}, torch.float32, torch.float64
    dtypes = [(single, single), (double, single), (double, double)]
    yield ("4,096 timesteps below 1,000, x 320", RANDOM.integers(0, 1000, 4096), {"d_model": 320},
           {"float32 table in the call, `np.take`": partial(table_in_call, 1000),
            "angle addition, numba float64": partial(added, 1000, 25),
            "`np.take`": partial(taken, 1000), "`torch.index_select`": partial(selected, 1000)})
    yield ("4,096 real timesteps, x 320", RANDOM.uniform(0, 1000, 4096), {"d_model": 320},
           numpy | polynomials(frequencies(320) / (2 * np.pi), *dtypes))
    yield ("4,096 real timesteps, x 320, in float64", RANDOM.uniform(0, 1000, 4096), {"d_model": 320},
           {"float64 recipe": recipe} | polynomials(frequencies(320) / (2 * np.pi), (double, double)))
    yield ("8,192 positions below 131,072, x 512", RANDOM.integers(0, 131_072, 8192), {"d_model": 512},
           numpy | {"angle addition, numba float64": partial(added, 131_072, 512), "`np.take`": partial(taken, 131_072),
                    "`torch.index_select`": partial(selected, 131_072)})
    yield ("one position 16,384 times, x 512", np.full(16_384, 77), {"d_model": 512},
           {"`np.take`": partial(taken, 131_072), "`torch.index_select`": partial(selected, 131_072)})
    times = RANDOM.integers(17 * 10**17, 19 * 10**17, 400_000)
    periods = {"d_model": 8, "periods": tuple(DAYS)}
    yield ("400,000 timestamps, x 8", times, periods,
           {"`t / period` less its floor, float32": by_period} | polynomials(1 / DAYS, *dtypes[1:]))
    places = np.column_stack([RANDOM.uniform(-90, 90, 100_000), RANDOM.uniform(-180, 180, 100_000)])
    yield ("100,000 latitudes and longitudes, x 64", places, {"d_model": 64},
           {"float32 recipe": recipe_of_axes} | polynomials(frequencies(32) / (2 * np.pi), *dtypes))


def ratios_of(ours, calls):
    """Return {rival: quartiles of its time divided by ours}; a rival has calls for some numbers of threads, of
    which the fastest counts.
    """
    names = [rival for rival, each in calls.items() for _ in each]
    ours, *others = times_of([ours, *(call for each in calls.values() for call in each)], before=pause)
    ratios = {}
    for rival, times in sorted(zip(names, others, strict=True), key=lambda row: -statistics.median(row[1])):
        ratios[rival] = statistics.quantiles([b / a for a, b in zip(ours, times, strict=True)], n=4)
    return {rival: ratios[rival] for rival in calls}


def additions(share, threads, pool):
    """Return a call of posenc and {rival: calls} that add to a batch with a share of padding on the left."""
    x, table = copied(np.zeros((32, 512, 512), np.float32)), posenc.encode(512, 512)
    tensor, rows = torch.from_numpy(x), torch.tensor(table)
    padding = np.clip(RANDOM.normal(512 * share, 40, 32), 0, 500).astype(int)
    positions = np.maximum(np.arange(512) - padding[:, None], -1)

    def add(part):
        for i in part:
            x[i, padding[i] :] += table[: 512 - padding[i]]

    def add_all():
        torch._foreach_add_([tensor[i, first:] for i, first in enumerate(padding)],
                            [rows[: 512 - first] for first in padding])

    calls = [partial(add, range(32))]
    if threads > 1:
        calls.append(lambda: list(pool.map(add, np.array_split(range(32), threads))))
    return (partial(posenc.Encoding(512, padding_idx=-1).add_to, x, positions, threads=threads),
            {"slices of a table": calls, "slices of a table, `torch._foreach_add_`": [add_all]})


def measured(threads, pool):
    """Yield each case and its ratios.  The pool calls NumPy; torch and numba have threads of their own."""
    torch.set_num_threads(threads)
    numba.set_num_threads(threads)
    for name, positions, keywords, rivals in encoding_cases():
        torch.compiler.reset()          # the number of compilations of a function is limited
        dtype = np.float64 if name.endswith("in float64") else np.float32
        out = copied(np.ones((len(positions), keywords["d_model"]), dtype))
        encode = posenc.Encoding(**keywords).encode if positions.ndim == 1 else partial(posenc.points,
                                                                                        **keywords)
        calls = {}
        for rival, make in rivals.items():
            calls[rival] = [make(positions, out)]
            if threads > 1 and not any(word in rival for word in ("torch", "numba", "polynomial")):
                parts = [make(*arrays) for arrays in zip(np.array_split(positions, threads),
                                                         np.array_split(out, threads), strict=True)]
                calls[rival].append(lambda parts=parts: list(pool.map(lambda call: call(), parts)))
        yield name, ratios_of(partial(encode, positions, out=out, threads=threads), calls)
    for share in (0.3, 0.51):
        yield f"add to 32 x 512 x 512, {share:.0%} padding", ratios_of(*additions(share, threads, pool))


def curves():
    """Return the quartiles of the time of 8,192 x 512 by the share of irregular rows, and by their bits."""
    out, encoding = copied(np.ones((8192, 512), np.float32)), posenc.Encoding(512)
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
                    print(f"{name:46} {threads} thread(s)  {rival:50} {values[1]:6.2f}", flush=True)
                    ratios.setdefault(name, {}).setdefault(rival, {})[threads] = [round(v, 3) for v in values]
    save("positions", {"ratios": ratios, "curves": curves()})
    pages.update()
    plots.draw(plots.positions)
