"""Compare the speed of posenc with other libraries and the project's targets.  ``python benchmarks/rivals.py [NAME ...]``

Each line shows the median and the 10th and 90th percentiles of time ratios; above 1, posenc is faster.  The cases of a line
alternate.  posenc writes to reused memory unless a line says "fresh memory"; recipes and peers always allocate fresh memory.
NumPy uses one thread; torch uses as many threads as posenc.
"""

import importlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType

import numpy as np
from common import array_at, main, report, times_of

import posenc
from posenc._core.frequencies import pi

ROWS, WIDTH, PEER_ROWS = 65_536, 512, 4_096     # fewer rows for peers: one of them fills its table in a Python loop
MOST_SECONDS = 5.0


# ---- rivals -------------------------------------------------------------------------------------------------------------


def numpy_recipe(positions, d_model, dtype=np.float32):
    """Return the table of the common NumPy recipe: float64 arithmetic on a full grid, and an exponent per column."""
    n = len(positions)
    pe = np.zeros((n, d_model), dtype)
    position = np.asarray(positions, dtype).reshape(n, -1)
    even = np.tile(np.arange(0, d_model, 2), (n, 1))
    odd = np.tile(np.arange(1, d_model, 2), (n, 1))
    pe[:, 0::2] = np.sin(position / np.power(10000, even / d_model))
    pe[:, 1::2] = np.cos(position / np.power(10000, odd / d_model))
    return pe


def numpy_float32_recipe(positions, d_model):
    """Return the table of the fastest NumPy recipe: float32 arithmetic and one row of frequencies."""
    pe = np.empty((len(positions), d_model), np.float32)
    frequencies = np.power(np.float32(10000), -np.arange(0, d_model, 2, dtype=np.float32) / np.float32(d_model))
    angles = np.asarray(positions, np.float32)[:, None] * frequencies
    np.sin(angles, out=pe[:, 0::2])
    np.cos(angles, out=pe[:, 1::2])
    return pe


def torch_recipe(torch, positions, d_model):
    """Return the table of the common torch recipe: float32 arithmetic, with the sines and cosines stacked."""
    even = torch.arange(0, d_model, 2).float()
    denominator = torch.pow(10000, even / d_model)
    position = positions.float().reshape(len(positions), 1)
    stacked = torch.stack([torch.sin(position / denominator), torch.cos(position / denominator)], dim=2)
    return torch.flatten(stacked, start_dim=1, end_dim=2)


def int64_positions(rows):
    """Return uniformly random int64 positions."""
    info = np.iinfo(np.int64)
    return np.random.default_rng(0).integers(info.min, info.max, rows, dtype=np.int64, endpoint=True)


def exhaust(n):
    for _ in posenc.stream(n, 64):
        pass


def installed(name, threads=1):
    """Set the number of threads of torch; return the module `name`, or None if it or torch cannot be imported."""
    try:
        importlib.import_module("torch").set_num_threads(threads)
        return importlib.import_module(name)
    except ImportError:
        report(name, "is not installed")
        return None


# ---- reports ------------------------------------------------------------------------------------------------------------


def compare(name, ours, rivals, targets=MappingProxyType({})):
    """Print a line for each rival, with its target if there is one."""
    seconds, *all_seconds = times_of([ours, *rivals.values()], most_seconds=MOST_SECONDS)
    for rival, theirs in zip(rivals, all_seconds, strict=True):
        ratios = [their_time / our_time for their_time, our_time in zip(theirs, seconds, strict=False)]
        low, median, high = np.percentile(ratios, (10, 50, 90))
        target = targets.get(rival)
        result = "" if target is None else f"; target {target}: {'met' if median >= target else 'missed'}"
        report(f"{name}, against {rival}", f"{median:.2f} ({low:.2f} to {high:.2f}){result}")


def median_seconds(case):
    (seconds,) = times_of([case], most_seconds=MOST_SECONDS)
    return np.median(seconds)


def at_most(name, value, unit, target):
    report(name, f"{value:.2f} {unit}; target {target}: {'met' if value <= target else 'missed'}")


# ---- measurements -------------------------------------------------------------------------------------------------------


def copies():
    out, table = array_at((ROWS, WIDTH), np.float32, 0), posenc.encode(ROWS, WIDTH)
    rivals = {"np.copyto": partial(np.copyto, out, table), "ndarray.fill": partial(out.fill, 0.5)}
    for threads, targets in ((1, {"np.copyto": 2.5, "ndarray.fill": 1.7}), (2, {"np.copyto": 5.0})):
        ours = partial(posenc.encode, ROWS, WIDTH, out=out, threads=threads)
        compare(f"float32, {threads} threads", ours, rivals, targets)


def recipes():
    out, positions = array_at((ROWS, WIDTH), np.float32, 0), np.arange(ROWS)
    rivals = {"NumPy": partial(numpy_recipe, positions, WIDTH)}
    rivals["NumPy float32"] = partial(numpy_float32_recipe, positions, WIDTH)
    if torch := installed("torch", 2):
        rivals["torch"] = partial(torch_recipe, torch, torch.arange(ROWS), WIDTH)
    targets = {"NumPy": 200, "NumPy float32": 10, "torch": 30}
    compare("recipes, 2 threads", partial(posenc.encode, ROWS, WIDTH, out=out, threads=2), rivals, targets)
    compare("recipes, 2 threads, fresh memory", partial(posenc.encode, ROWS, WIDTH, threads=2), rivals)


def peers():
    rivals = {}
    if module := installed("positional_encodings.torch_encodings", 2):
        peer, x = module.PositionalEncoding1D(WIDTH), importlib.import_module("torch").zeros(1, PEER_ROWS, WIDTH)

        def table():
            peer.cached_penc = None
            peer(x)

        rivals["positional-encodings"] = table
    if module := installed("transformers.models.marian.modeling_marian", 2):
        rivals["transformers, Marian"] = module.MarianSinusoidalPositionalEmbedding(PEER_ROWS, WIDTH).create_weight
    compare(f"{PEER_ROWS} x {WIDTH}, 2 threads, fresh memory", partial(posenc.encode, PEER_ROWS, WIDTH, threads=2), rivals)


def matrix():
    x, table = array_at((ROWS, WIDTH), np.float32, 0), posenc.encode(ROWS, WIDTH)
    for threads in (1, 2):
        rivals = {"np.add": partial(np.add, x, table, out=x), "x += 1": partial(x.__iadd__, np.float32(1))}
        if torch := installed("torch", threads):
            rivals["torch x.add_"] = partial(torch.from_numpy(x).add_, torch.from_numpy(table))
        targets = {"np.add": 1.25 if threads == 1 else None, "torch x.add_": 1.25}
        compare(f"add_to, {threads} threads", partial(posenc.add_to, x, threads=threads), rivals, targets)


def scattered():
    out, table = array_at((ROWS, WIDTH), np.float32, 0), posenc.encode(ROWS, WIDTH)
    shuffled = np.random.default_rng(0).permutation(ROWS)
    for threads in (1, 2):
        rivals = {"np.take": partial(np.take, table, shuffled, axis=0, out=out)}
        rivals["np.take, clip"] = partial(np.take, table, shuffled, axis=0, out=out, mode="clip")
        if torch := installed("torch", threads):
            layer = torch.nn.Embedding.from_pretrained(torch.from_numpy(table))
            rivals["nn.Embedding"] = partial(layer, torch.from_numpy(shuffled))
        for name, positions, target in (("shuffled", shuffled, 1.0), ("random int64", int64_positions(ROWS), 0.7)):
            ours = partial(posenc.encode, positions, WIDTH, out=out, threads=threads)
            compare(f"{name}, {threads} threads", ours, rivals, {"np.take": target})


def one_row():
    encoding, rows = posenc.Encoding(WIDTH), [range(p, p + 1) for p in range(1_000)]
    x, table = np.ones((1, WIDTH), np.float32), posenc.encode(len(rows), WIDTH)

    def steps_of(add_to):
        for positions in rows:
            add_to(x, positions)

    if torch := installed("torch"):
        row, pe = torch.from_numpy(x), torch.from_numpy(table)

        def steps():
            for p in range(len(rows)):
                row.add_(pe[p : p + 1])

        rivals = {"torch": steps, "torch, inference mode": torch.inference_mode()(steps)}
        for name, add_to in (("encoding.add_to", encoding.add_to), ("posenc.add_to", posenc.add_to)):
            compare(f"one row, {name}", partial(steps_of, add_to), rivals, dict.fromkeys(rivals, 1.0))


def building():
    def build(d_model):
        pi.cache_clear()       # a new process must compute pi
        posenc.Encoding(d_model)

    for d_model, target in ((512, 2.0), (8_192, 30.0)):
        at_most(f"first Encoding({d_model}) of a process", median_seconds(partial(build, d_model)) * 1e3, "ms", target)


def streams():
    """Check that the time per position does not depend on the number of positions."""
    times = [median_seconds(partial(exhaust, 10**k)) / 10**k for k in range(5, 9)]
    at_most("stream of 10**5 to 10**8 positions, slowest per position", max(times) / min(times), "x the fastest", 1.3)


def callers():
    tables = [array_at((8_192, WIDTH), np.float32, 0) for _ in range(16)]
    encode = posenc.Encoding(WIDTH).encode

    def with_threads(threads):
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda table: encode(len(table), out=table), tables))

    for threads in (2, 4, 16):
        rivals = {"one": partial(with_threads, 1)}
        compare(f"16 tables in {threads} Python threads", partial(with_threads, threads), rivals, {"one": 0.8})


if __name__ == "__main__":
    main(__doc__, copies, recipes, peers, matrix, scattered, one_row, building, streams, callers)
