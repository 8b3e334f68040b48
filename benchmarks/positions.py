"""Measure more arrays of positions, as pipelines bring them, and code with NumPy, numba or torch:
``python benchmarks/positions.py``

Writes ratios of times in five processes, with one thread, and with posenc's default of at most two, the times
at unusual values relative to usual ones, and the time of a row of 512 columns by the share of irregular rows
and by the magnitude of positions, to docs/data/positions.json; updates the tables and the plot.
"""

import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import loops
import numba
import numpy as np
import plots
import torch
from common import in_processes, pause, recorded, samples, times_of
from rivals import copied, frequencies, in_blocks, polynomial

import posenc

RANDOM = np.random.default_rng(1)
MOST = 2                # threads


def recipe(positions, out, rates=None):
    """Compute sines and cosines in the dtype of `out`, in blocks that stay in the cache."""
    rates = frequencies(out.shape[1]) if rates is None else rates
    positions, rates = positions.astype(out.dtype)[:, None], rates.astype(out.dtype)
    rows = min(2**16 // out.shape[1], 1024, len(positions))
    angles = np.empty((rows, len(rates)), out.dtype)

    def fill():
        for i in range(0, len(positions), rows):
            block = out[i : i + rows]
            np.multiply(positions[i : i + rows], rates, out=angles[: len(block)])
            np.sin(angles[: len(block)], out=block[:, 0::2])
            np.cos(angles[: len(block)], out=block[:, 1::2])

    return fill


def polynomials(rates, *dtypes):
    """Return {rival: function of positions and out}; angles and values have the same dtype."""
    return {f"{dtype.__name__} polynomial": lambda positions, out, dtype=dtype: partial(
        polynomial(rates / (2 * np.pi), dtype, positions.reshape(-1), turns=dtype), out) for dtype in dtypes}


def regular(rates):
    """Return a function of positions and out: angle addition in float64, if consecutive positions have step 1."""
    def make(positions, out):
        one, two = (in_blocks(len(out), rates, 40, parallel=parallel)[0] for parallel in (False, True))

        def fill():
            assert loops.is_regular(positions, 1)
            (one if numba.get_num_threads() == 1 else two)(out)

        return fill

    return make


def taken(rows, positions, out):
    table = copied(posenc.encode(rows, out.shape[1]), 512, 4096)        # copies within the same page are slower
    return lambda: np.take(table, positions, axis=0, out=out, mode="clip")


def selected(rows, positions, out):
    table, out = torch.tensor(posenc.encode(rows, out.shape[1])), torch.from_numpy(out)
    return partial(torch.index_select, table, 0, torch.from_numpy(positions), out=out)


def recipe_in_torch(positions, out, rates=None, dtype=None):
    """Do the same with torch, whose operators use several threads; `dtype` is that of the angles."""
    rates = frequencies(out.shape[1]) if rates is None else rates
    dtype, table = dtype or out.dtype, torch.from_numpy(out)
    positions, rates = (torch.from_numpy(x.astype(dtype)) for x in (positions[:, None], rates))

    def fill():
        angles = positions * rates
        table[:, 0::2] = angles.sin()
        table[:, 1::2] = angles.cos()

    return fill


def of_axes(recipe, points, out):
    width = out.shape[1] // points.shape[1]
    fills = [recipe(each, out[:, i * width : (i + 1) * width]) for i, each in enumerate(points.T)]
    return lambda: [fill() for fill in fills]


def encoding_cases():
    """Yield a name, positions, keywords of an encoding, and {rival: function of positions and out}."""
    recipes = {"recipe": recipe, "recipe, torch": recipe_in_torch}
    single, dtypes = {f"float32 {name}": each for name, each in recipes.items()}, [np.float32, np.float64]
    yield ("4,096 real timesteps, x 320", RANDOM.uniform(0, 1000, 4096), {"d_model": 320},
           single | polynomials(frequencies(320), *dtypes))
    yield ("100,000 positions in [0, 1), x 16", RANDOM.uniform(0, 1, 100_000), {"d_model": 16},
           single | polynomials(frequencies(16), np.float64))
    yield ("100,000 positions in [0, 1e-4), x 16", RANDOM.uniform(0, 1e-4, 100_000), {"d_model": 16},
           single | polynomials(frequencies(16), np.float64))
    rates = 2 * np.pi / np.array([6, 8, 12, 24, 168, 8766])
    for suffix in ("", ", in float64"):
        yield (f"8,760 hours, 6 frequencies `2 * np.pi / period`{suffix}", np.arange(8760), {"frequencies": rates},
               {"float64 and a cast, torch": partial(recipe_in_torch, rates=rates, dtype=np.float64)}
               | polynomials(rates, np.float64) | {"numba float64": regular(rates)})
    yield ("100,000 real positions, x 16, in float64", RANDOM.uniform(0, 1000, 100_000), {"d_model": 16},
           {f"float64 {name}": each for name, each in recipes.items()} | polynomials(frequencies(16), np.float64))
    for name, array, width, rows in (
            ("one position 16,384 times, x 512", np.full(16_384, 77), 512, 131_072),
            ("1,000,000 positions below 8,760, x 16", RANDOM.integers(0, 8760, 1_000_000), 16, 8760)):
        yield (name, array, {"d_model": width},
               {"`np.take`": partial(taken, rows), "`torch.index_select`": partial(selected, rows)})
    places = np.column_stack([RANDOM.uniform(-90, 90, 100_000), RANDOM.uniform(-180, 180, 100_000)])
    yield ("100,000 latitudes and longitudes, x 64", places, {"d_model": 64},
           {name: partial(of_axes, each) for name, each in single.items()}
           | polynomials(frequencies(32), *dtypes))
    octaves = 2.0 ** np.arange(10)      # of NeRF
    yield ("65,536 points of NeRF, x 60", RANDOM.uniform(-1, 1, (65_536, 3)), {"d_model": 60, "frequencies": octaves},
           {name: partial(of_axes, partial(each, rates=octaves)) for name, each in single.items()}
           | {"float64 and a cast, torch": partial(of_axes, partial(recipe_in_torch, rates=octaves, dtype=np.float64))}
           | polynomials(octaves, np.float64))


def ratios_of(out, ours, calls):
    """Return {rival: {threads: its times divided by ours}}, from {threads: call} for each rival.

    Beside the default of posenc, a rival may use one thread or two: the faster one counts.  All results must
    be similar.
    """
    out.fill(0)
    ours[1]()
    exact = out.copy()
    for call in (call for each in calls.values() for call in each.values()):
        out.fill(0)
        call()
        assert abs(out - exact).max() < 1e-3, calls

    def prepare(call):
        torch.set_num_threads(call.threads)
        numba.set_num_threads(call.threads)
        pause(call)

    names = [(rival, threads) for rival, each in calls.items() for threads in each]
    functions = [*ours.items(), *(call for each in calls.values() for call in each.items())]
    measured = [partial(call) for _, call in functions]
    for call, (threads, _) in zip(measured, functions, strict=True):
        call.threads = threads
    times = dict(zip([*ours, *names], times_of(measured, before=prepare), strict=True))
    ratios = {rival: {} for rival in calls}
    for rival, most in names:
        fastest = min((times[rival, threads] for threads in calls[rival] if threads <= most),
                      key=statistics.median)
        ratios[rival]["default" if most == MOST else most] = [
            theirs / mine for mine, theirs in zip(times[most], fastest, strict=True)]
    return ratios


def batch(share, pool):
    """Return a batch with a share of padding on the left, and calls of posenc and its rivals."""
    x, table = copied(np.zeros((32, 512, 512), np.float32)), posenc.encode(512, 512)
    padding = np.clip(RANDOM.normal(512 * share, 40, 32), 0, 500).astype(int)
    positions = np.maximum(np.arange(512) - padding[:, None], -1)

    def add(part):
        for i in part:
            x[i, padding[i] :] += table[: 512 - padding[i]]

    add_to = partial(posenc.Encoding(512, padding_idx=-1).add_to, x, positions)
    slices = {1: partial(add, range(32)), MOST: lambda: list(pool.map(add, np.array_split(range(32), MOST)))}
    compiled = partial(loops.adding(), x, table, padding, np.full(32, 512))
    return x, {1: partial(add_to, threads=1), MOST: add_to}, {
        "slices of a table": slices, "slices of a table, numba": dict.fromkeys((1, MOST), compiled)}


def calls_of(rival, make, positions, out, pool):
    """Return {threads: call}; the pool runs NumPy, while torch and numba have their own threads."""
    call = make(positions, out)
    if any(word in rival for word in ("torch", "numba", "polynomial")):
        return {1: call, MOST: call}
    parts = [make(*arrays)
             for arrays in zip(np.array_split(positions, MOST), np.array_split(out, MOST), strict=True)]
    return {1: call, MOST: lambda: list(pool.map(lambda call: call(), parts))}


def measured(pool):
    """Yield each case and its ratios."""
    for name, positions, keywords, rivals in encoding_cases():
        dtype = np.float64 if name.endswith("in float64") else np.float32
        width = keywords.get("d_model") or 2 * len(keywords["frequencies"])
        out = copied(np.ones((len(positions), width), dtype))
        encode = posenc.Encoding(**keywords).encode if positions.ndim == 1 else partial(posenc.points,
                                                                                        **keywords)
        ours = {1: partial(encode, positions, out=out, threads=1), MOST: partial(encode, positions, out=out)}
        yield name, ratios_of(out, ours, {rival: calls_of(rival, make, positions, out, pool)
                                     for rival, make in rivals.items()})
    for share in (0.3, 0.51):
        yield f"add to 32 x 512 x 512, {share:.0%} padding", ratios_of(*batch(share, pool))


def curves():
    """Return the times of 8,192 x 512 by the share of irregular rows, and by their bits."""
    out, encoding = copied(np.ones((8192, 512), np.float32)), posenc.Encoding(512)
    consecutive, scattered = np.arange(8192) + 10**6, RANDOM.integers(0, 2**24, 8192)
    shares = {share: np.where(RANDOM.random(8192) * 100 < share, scattered, consecutive)
              for share in (0, 1, 2, 5, 10, 20, 30, 50, 70, 90, 100)}
    bits = {bits: RANDOM.integers(0, 2**bits, 8192) for bits in range(6, 63, 2)}
    return {name: samples({x: partial(encoding.encode, p, out=out, threads=1) for x, p in arrays.items()})
            for name, arrays in {"shares": shares, "bits": bits}.items()}


def unusual():
    """Return {call: {usual values: the ratios of the times}}, with one thread."""
    reals, hours, rates = RANDOM.uniform(0, 1000, 100_000), range(8760), 2 * np.pi / np.array([6, 8, 12, 24, 168, 8766])
    centres = np.stack(np.meshgrid(*2 * [(np.arange(256) + 0.5) / 256]), -1).reshape(-1, 2)     # of pixels
    random, octaves = RANDOM.uniform(0, 1, centres.shape), {"frequencies": 2.0 ** np.arange(10), "position_scale": np.pi}

    def table(positions, dtype="float32", **keywords):
        encoding = posenc.Encoding(**keywords)
        out = copied(np.ones((len(positions), encoding.d_model), dtype))
        return partial(encoding.encode, positions, out=out, threads=1)

    def points(coordinates, **order):
        out = copied(np.ones((len(coordinates), 40), np.float32))
        return partial(posenc.points, coordinates, 40, out=out, threads=1, **octaves, **order)

    def rotation(dtype, size=1, replaced=0.0, by=0):
        q = RANDOM.normal(size=(8, 512, 128)) * size
        q = np.where(RANDOM.random(q.shape) < replaced, by, q).astype(dtype)
        return partial(posenc.Rotary(128).at(512).rotate, q, out=copied(q), threads=1)

    pairs = {
        "8,760 hours, 6 frequencies `2 * np.pi / period`": (
            "times 1.0001", table(hours, frequencies=rates), table(hours, frequencies=rates * 1.0001)),
        "centres of 256 x 256 pixels, x 40, `position_scale=np.pi`": (
            "random points", points(centres), points(random)),
        "65,536 random points, x 40, `group='function', layout='halves'`": (
            "`group='axis'`", points(random, group="function", layout="halves"), points(random)),
        "8,192 x 512, `position_scale=np.pi`": (
            "`position_scale=1`", table(range(8192), d_model=512, position_scale=np.pi), table(range(8192), d_model=512)),
        "100,000 positions in [0.1, 1), x 16": (
            "[0, 1000)", table(reals * 9e-4 + 0.1, d_model=16), table(reals, d_model=16)),
        "100,000 positions in [0, 1e-4), x 16": ("[0, 1000)", table(reals / 1e7, d_model=16), table(reals, d_model=16)),
        "8,192 x 512, `scale=4096`": (
            "`scale=1`", table(range(8192), d_model=512, scale=4096), table(range(8192), d_model=512)),
        "1,024 x 64, `base=1e30`": ("`base=10000`", table(range(1024), d_model=64, base=1e30), table(range(1024), d_model=64)),
        "1,024 positions of about 1e-100, x 16": (
            "[0, 1000)", table(reals[:1024] / 1e103, d_model=16), table(reals[:1024], d_model=16)),
        "256 x 16, in float64, `scale=2.0**401`": (
            "`scale=1`", table(range(256), "float64", d_model=16, scale=2.0**401), table(range(256), "float64", d_model=16)),
        "8,000 x 66": ("8,000 x 64", table(range(8000), d_model=66), table(range(8000), d_model=64)),
        "24,000 x 17": ("24,000 x 16", table(range(24_000), d_model=17, odd="truncate"), table(range(24_000), d_model=16)),
        "8,192 x 512, positions 0, 7, 14 ...": (
            "0, 1, 2 ...", table(range(0, 7 * 8192, 7), d_model=512), table(range(8192), d_model=512)),
        "rotation, float16, numbers of about 1e-3": ("1", rotation("float16", 1e-3), rotation("float16")),
        "rotation, float16, half of the numbers 0": ("none", rotation("float16", replaced=0.5), rotation("float16")),
        "rotation, float32, 10% of the numbers NaN": (
            "none", rotation("float32", replaced=0.1, by=np.nan), rotation("float32")),
    }
    return {name: {usual: [ours / theirs for ours, theirs in zip(*times_of(calls), strict=True)]}
            for name, (usual, *calls) in pairs.items()}


def main():
    with recorded("positions") as document:
        document |= in_processes(__file__, POSENC_NUM_THREADS=str(MOST))
        for name, rivals in document["ratios"].items():
            for rival, values in rivals.items():
                medians = ", ".join(f"{threads}: {each[1]:6.2f}" for threads, each in values.items())
                print(f"{name:46} {rival:50} {medians}", flush=True)
    plots.draw(plots.positions)


if __name__ == "__main__":
    if sys.argv[1:] == ["--samples"]:
        with ThreadPoolExecutor(MOST) as pool:
            print(json.dumps({"ratios": dict(measured(pool)), "unusual": unusual(), "curves": curves()}))
    else:
        main()
