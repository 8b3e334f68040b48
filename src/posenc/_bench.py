"""``posenc bench``: each figure beside its rivals in one run, with the machine's own roof line.

The contenders of a scene take turns (A B C A B C ...), so that a pair of times is seconds apart at most; ratios are formed
pair by pair and their median is quoted.  The roof line is the faster of ``memset`` and a fill by non-temporal stores, same
bytes, same threads, in the same rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.metadata
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

import posenc
from posenc import _arguments, _frequencies, _kernel

ROWS, WIDTH = 65_536, 512
NARROW = 64                             # d_model of the stream
PEER_ROWS = 4_096                       # one of the peers fills its table in a Python loop
STEPS = 1_000                           # decode steps in a call
ROUNDS, QUICK_ROUNDS = 15, 3
SAMPLE_SECONDS = 2e-3                   # shorter calls are repeated until they take as long
LONG_SECONDS = 5.0                      # a longer call is its own warm-up
MOST_SECONDS = 10.0                     # then a contender sits out the remaining rounds
STREAM_SECONDS = 60.0                   # a longer stream is not timed
DISTURBED = 0.1                         # processors that other programs took: beyond, a figure is marked
CACHE_LINE = 64
BUFFERS = {"aligned": 0, "plain": 16}   # start beyond a cache line; np.empty gives 16 bytes for whatever is large
ROOF = "roof"
OF_ROOF = 0.85                          # of what the roof line reaches against a rival, where that is less than the target
PACKAGES = ("numpy", "torch", "positional-encodings", "transformers")
Contenders: TypeAlias = dict[str, Callable[[], object]]     # by name
Times: TypeAlias = dict[str, list[float]]                   # seconds a call, one for each round, by contender
T = TypeVar("T")
Record: TypeAlias = dict[str, Any]                          # of the JSON document


# ---- figures --------------------------------------------------------------------------------------------------------


class Figure(NamedTuple):
    """A number that the benchmark quotes: `value` and `target` are functions of the times of a scene.

    `wanted` is the target in full, where the roof line may lower it.
    """

    text: str
    value: Callable[[Times], float]
    target: Callable[[Times], float | None]
    unit: str = "x"
    at_most: bool = False
    wanted: float | None = None


class Scene(NamedTuple):
    """What is timed together: `contenders` by name, `units` of work in a call of each (default 1)."""

    title: str
    threads: int
    buffer: str
    contenders: Contenders
    figures: list[Figure]
    nbytes: int = 0
    units: dict[str, int] | None = None


def pairwise(times: Times, rival: str, ours: str) -> float:
    """How many times as fast `ours` is as `rival`: the median over the rounds that both took part in."""
    return float(np.median([r / o for r, o in zip(times[rival], times[ours], strict=False)]))


def constant(target: float | None) -> Callable[[Times], float | None]:
    return lambda times: target


def faster(text: str, rival: str, target: float | None = None, ours: str = "posenc") -> Figure:
    return Figure(text, lambda times: pairwise(times, rival, ours), constant(target))


def faster_or_roof(text: str, rival: str, target: float | None = None) -> Figure:
    """As `faster`, where no more is asked for than a part of what the roof line reaches."""

    def lower(times: Times) -> float | None:
        return target and min(target, OF_ROOF * pairwise(times, rival, ROOF))

    return faster(text, rival)._replace(target=lower, wanted=target)


def share(text: str, target: float | None = None, ours: str = "posenc") -> Figure:
    return faster(f"{text}, share of the roof line", ROOF, target, ours)._replace(unit="")


def seconds(text: str, ours: str, target: float | None = None, unit: str = "ms") -> Figure:
    scale = {"ms": 1e3, "us": 1e6}[unit]
    return Figure(text, lambda times: scale * float(np.median(times[ours])), constant(target), unit, at_most=True)


def spread(text: str, names: Sequence[str], target: float) -> Figure:
    def value(times: Times) -> float:
        medians = [np.median(times[name]) for name in names]
        return float(max(medians) / min(medians))

    return Figure(text, value, constant(target), unit="", at_most=True)


# ---- measuring ------------------------------------------------------------------------------------------------------


def timed(call: Callable[[], object], number: int = 1) -> float:
    """Seconds that a call takes, of `number` in a row."""
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


def measure(contenders: Contenders, rounds: int) -> Times:
    """Lists of seconds a call, a round each, for each contender."""
    warm = {name: timed(call) for name, call in contenders.items()}
    times = {name: [t] if t > LONG_SECONDS else [] for name, t in warm.items()}
    number = {name: 1 if t > LONG_SECONDS else enough(contenders[name]) for name, t in warm.items()}
    spent = {name: sum(times[name]) for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            if spent[name] < MOST_SECONDS:
                if number[name] > 1:
                    call()              # finds its caches warm, as the calls after it do
                times[name].append(timed(call, number[name]))
                spent[name] += times[name][-1] * number[name]
    return times


def taken_by_others() -> float | None:
    """Processor seconds that other programs took since the start of the system; None where it does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, stat.read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") - time.process_time()


def with_others(call: Callable[[], T]) -> tuple[T, float | None]:
    """What a call returns, and how many processors other programs took meanwhile."""
    before, start = taken_by_others(), time.perf_counter()
    result = call()
    after, end = taken_by_others(), time.perf_counter()
    return result, None if before is None or after is None else max(0.0, (after - before) / (end - start))


def enough(call: Callable[[], object]) -> int:
    """How many calls make a sample."""
    once = timed(call)
    return 1 if once > SAMPLE_SECONDS else max(1, round(SAMPLE_SECONDS / timed(call, 3)))


def with_roof(times: Times) -> Times:
    """`times` with the roof line, the faster one of the fills."""
    fills = [name for name in ("memset", "non-temporal fill") if name in times]
    return times | ({ROOF: times[min(fills, key=lambda name: np.median(times[name]))]} if fills else {})


def quote(figure: Figure, scene: Scene, times: Times, others: float | None) -> Record:
    """A figure as a record; its value is None where its rival is not installed."""
    value: float | None
    try:
        value, target = figure.value(times), figure.target(times)
    except KeyError:
        value = target = None
    met = None if value is None or target is None else (value <= target if figure.at_most else value >= target)
    return {
        "figure": figure.text,
        "threads": scene.threads,
        "buffer": scene.buffer,
        "value": value,
        "unit": figure.unit,
        "target": target,
        "wanted": figure.wanted if figure.wanted != target else None,
        "at_most": figure.at_most,
        "met": met,
        "others": others,
    }


def play(scene: Scene, rounds: int) -> tuple[list[Record], Record]:
    """Measures a scene: its figures and its times as records."""
    times, others = with_others(partial(measure, scene.contenders, rounds))
    units = scene.units or {}
    times = with_roof({name: [t / units.get(name, 1) for t in ts] for name, ts in times.items()})
    figures = [quote(figure, scene, times, others) for figure in scene.figures]
    contenders = {
        name: {"median": float(np.median(ts)), "least": min(ts), "rounds": len(ts)}
        for name, ts in times.items()
        if name != ROOF
    }
    return figures, {
        "scene": scene.title,
        "threads": scene.threads,
        "buffer": scene.buffer,
        "nbytes": scene.nbytes,
        "others": others,
        "seconds": contenders,
    }


# ---- contenders -----------------------------------------------------------------------------------------------------


def empty(shape: tuple[int, ...], dtype: Any, buffer: str) -> NDArray[Any]:
    """An array that starts on a cache line, or where `np.empty` starts a large one."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + 2 * CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE + BUFFERS[buffer]
    array: NDArray[Any] = memory[start : start + nbytes].view(dtype).reshape(shape)
    return array


def table(positions: int, d_model: int, buffer: str, dtype: str = "float32") -> NDArray[Any]:
    """A cached table for the rivals."""
    element = element_of(dtype)
    return posenc.encode(positions, d_model, dtype=dtype, out=empty((positions, d_model), element, buffer))


def element_of(dtype: str) -> np.dtype[Any]:
    return posenc.encode(0, 1, dtype=dtype).dtype


def memset(out: NDArray[Any], threads: int) -> Callable[[], None]:
    """libc's memset, with another byte each time: some processors write zeros faster."""
    share = -(-out.nbytes // threads)
    parts = [(out.ctypes.data + i * share, min(share, out.nbytes - i * share)) for i in range(threads)]
    values = itertools.cycle(range(1, 256))
    run: Any = ThreadPoolExecutor(threads).map if threads > 1 else map

    def call() -> None:
        value = next(values)
        list(run(lambda part: ctypes.memset(part[0], value, part[1]), parts))

    return call


def roof(out: NDArray[Any], threads: int) -> Contenders:
    """The contenders for the roof line."""
    return {"memset": memset(out, threads), "non-temporal fill": partial(_kernel.fill_roof, out, threads)}


def forced(name: str, call: Callable[[], object]) -> Callable[[], None]:
    """A call with the instruction set `name`."""

    def with_instruction_set() -> None:
        before = _kernel.instruction_set()
        _kernel.use_instruction_set(name)
        try:
            call()
        finally:
            _kernel.use_instruction_set(before)

    return with_instruction_set


def numpy_recipe(positions: NDArray[Any], d_model: int, dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    """The usual NumPy notebook: float64 arithmetic on a full grid, each column with an exponent of its own."""
    n = len(positions)
    pe = np.zeros((n, d_model), dtype)
    position = np.asarray(positions, dtype).reshape(n, -1)
    even = np.tile(np.arange(0, d_model, 2), (n, 1))
    odd = np.tile(np.arange(1, d_model, 2), (n, 1))
    pe[:, 0::2] = np.sin(position / np.power(10000, even / d_model))
    pe[:, 1::2] = np.cos(position / np.power(10000, odd / d_model))
    return pe


def numpy_float32_recipe(positions: NDArray[Any], d_model: int) -> NDArray[np.float32]:
    """The quickest NumPy: float32 throughout, one row of frequencies."""
    pe = np.empty((len(positions), d_model), np.float32)
    frequencies = np.power(np.float32(10000), -np.arange(0, d_model, 2, dtype=np.float32) / np.float32(d_model))
    angles = np.asarray(positions, np.float32)[:, None] * frequencies
    np.sin(angles, out=pe[:, 0::2])
    np.cos(angles, out=pe[:, 1::2])
    return pe


def torch_recipe(torch: Any, positions: Any, d_model: int) -> Any:
    """The usual torch notebook: float32, sines and cosines stacked."""
    even = torch.arange(0, d_model, 2).float()
    denominator = torch.pow(10000, even / d_model)
    position = positions.float().reshape(len(positions), 1)
    stacked = torch.stack([torch.sin(position / denominator), torch.cos(position / denominator)], dim=2)
    return torch.flatten(stacked, start_dim=1, end_dim=2)


def int64_positions(rows: int) -> NDArray[np.int64]:
    """Positions drawn from the whole int64 range."""
    info = np.iinfo(np.int64)
    return np.random.default_rng(0).integers(info.min, info.max, rows, dtype=np.int64, endpoint=True)


# ---- scenes ---------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """What was asked for, and the rivals that turned out not to be installed."""

    threads: list[int]
    quick: bool
    missing: set[str]

    def optional(self, module: str, make: Callable[[Any], Contenders], threads: int = 1) -> Contenders:
        """The contenders that `make` makes of a module; none where it is not installed."""
        try:
            imported = importlib.import_module(module)
            torch = importlib.import_module("torch")
        except ImportError as error:
            self.missing.add(error.name or module)
            return {}
        torch.set_num_threads(threads)
        return make(imported)

    def settings(self) -> Iterator[tuple[int, str]]:
        return itertools.product(self.threads, BUFFERS)


def float32_scenes(run: Run) -> Iterator[Scene]:
    targets = {"avx2": 0.70, "baseline": 0.40}
    others = [name for name, runs in _kernel.instruction_sets().items() if runs and name != _kernel.instruction_set()]
    for threads, buffer in run.settings():
        out, cached = empty((ROWS, WIDTH), np.float32, buffer), table(ROWS, WIDTH, buffer)
        ours = partial(posenc.encode, ROWS, WIDTH, out=out, threads=threads)
        contenders: Contenders = {
            "posenc": ours,
            **{f"posenc, {name}": forced(name, ours) for name in others},
            **roof(out, threads),
            "np.copyto": partial(np.copyto, out, cached),
            "ndarray.fill": partial(out.fill, 0.5),
        }
        figures = [
            share("float32 table", 0.90),
            *(share(f"float32 table, {name} forced", targets.get(name), f"posenc, {name}") for name in others),
            faster_or_roof("float32 table against np.copyto", "np.copyto", {1: 2.5, 2: 5.0}.get(threads)),
            faster_or_roof("float32 table against ndarray.fill", "ndarray.fill", {1: 1.7}.get(threads)),
        ]
        yield Scene(f"float32 table, {ROWS:,} x {WIDTH}", threads, buffer, contenders, figures, out.nbytes)


def dtype_scenes(run: Run) -> Iterator[Scene]:
    for dtype, target in {"float64": 0.60, "float16": 0.40, "bfloat16": 0.40}.items():
        for threads, buffer in run.settings():
            out, cached = empty((ROWS, WIDTH), element_of(dtype), buffer), table(ROWS, WIDTH, buffer, dtype)
            contenders: Contenders = {
                "posenc": partial(posenc.encode, ROWS, WIDTH, dtype=dtype, out=out, threads=threads),
                **roof(out, threads),
                "np.copyto": partial(np.copyto, out, cached),
            }
            figures = [share(f"{dtype} table", target)]
            yield Scene(f"{dtype} table, {ROWS:,} x {WIDTH}", threads, buffer, contenders, figures, out.nbytes)


def torch_recipe_rival(torch: Any) -> Contenders:
    return {"torch recipe": partial(torch_recipe, torch, torch.arange(ROWS), WIDTH)}


def recipe_scenes(run: Run) -> Iterator[Scene]:
    threads, positions = max(run.threads), np.arange(ROWS)
    targets = {"NumPy recipe": 200, "torch recipe": 30, "NumPy float32 recipe": 10} if threads > 1 else {}
    for buffer in BUFFERS:
        out = empty((ROWS, WIDTH), np.float32, buffer)
        contenders: Contenders = {
            "posenc": partial(posenc.encode, ROWS, WIDTH, out=out, threads=threads),
            "posenc, fresh array": partial(posenc.encode, ROWS, WIDTH, threads=threads),
            "NumPy recipe": partial(numpy_recipe, positions, WIDTH),
            "NumPy float32 recipe": partial(numpy_float32_recipe, positions, WIDTH),
            **run.optional("torch", torch_recipe_rival, threads),
        }
        rivals = ("NumPy recipe", "torch recipe", "NumPy float32 recipe")
        figures = [faster(f"float32 table against the {rival}", rival, targets.get(rival)) for rival in rivals]
        figures += [faster(f"the same into a fresh array against the {r}", r, ours="posenc, fresh array") for r in rivals]
        yield Scene(f"recipes, {ROWS:,} x {WIDTH}", threads, buffer, contenders, figures, out.nbytes)


def tatp_peer(module: Any) -> Contenders:
    peer = module.PositionalEncoding1D(WIDTH)
    x = importlib.import_module("torch").from_numpy(np.zeros((1, PEER_ROWS, WIDTH), np.float32))

    def call() -> None:
        peer.cached_penc = None
        peer(x)

    return {"positional-encodings": call}


def marian_peer(module: Any) -> Contenders:
    return {"transformers, Marian": module.MarianSinusoidalPositionalEmbedding(PEER_ROWS, WIDTH).create_weight}


def peer_scenes(run: Run) -> Iterator[Scene]:
    threads = max(run.threads)
    contenders: Contenders = {
        "posenc": partial(posenc.encode, PEER_ROWS, WIDTH, threads=threads),
        **run.optional("positional_encodings.torch_encodings", tatp_peer, threads),
        **run.optional("transformers.models.marian.modeling_marian", marian_peer, threads),
    }
    figures = [faster(f"against {rival}", rival) for rival in ("positional-encodings", "transformers, Marian")]
    yield Scene(f"peers, {PEER_ROWS:,} x {WIDTH}", threads, "fresh", contenders, figures, PEER_ROWS * WIDTH * 4)


def torch_add(x: NDArray[Any], cached: NDArray[Any], torch: Any) -> Contenders:
    return {"torch x.add_": partial(torch.from_numpy(x).add_, torch.from_numpy(cached))}


def add_scenes(run: Run) -> Iterator[Scene]:
    for threads, buffer in run.settings():
        x, cached = empty((ROWS, WIDTH), np.float32, buffer), table(ROWS, WIDTH, buffer)
        x.fill(0.5)
        contenders: Contenders = {
            "posenc": partial(posenc.add_to, x, threads=threads),
            "np.add": partial(np.add, x, cached, out=x),
            "x += 1": partial(x.__iadd__, np.float32(1)),
            **run.optional("torch", partial(torch_add, x, cached), threads),
        }
        figures = [
            faster("add_to against np.add(x, table, out=x)", "np.add", {1: 1.25}.get(threads)),
            faster("add_to against torch x.add_(table)", "torch x.add_", 1.25),
            faster("add_to against x += 1", "x += 1"),
        ]
        yield Scene(f"add_to, {ROWS:,} x {WIDTH}", threads, buffer, contenders, figures, x.nbytes)


def batch_scenes(run: Run) -> Iterator[Scene]:
    batch, rows = 32, 2_048
    for threads, buffer in run.settings():
        x, cached = empty((batch, rows, WIDTH), np.float32, buffer), table(rows, WIDTH, buffer)
        x.fill(0.5)
        contenders: Contenders = {
            "posenc": partial(posenc.add_to, x, threads=threads),
            "np.add": partial(np.add, x, cached, out=x),
            **run.optional("torch", partial(torch_add, x, cached), threads),
        }
        figures = [faster("add_to on a batch against torch x.add_(pe)", "torch x.add_", 1.0)]
        yield Scene(f"add_to, {batch} x {rows:,} x {WIDTH}", threads, buffer, contenders, figures, x.nbytes)


def scattered_scenes(run: Run) -> Iterator[Scene]:
    shuffled = np.random.default_rng(0).permutation(ROWS)
    for threads, buffer in run.settings():
        out, cached = empty((ROWS, WIDTH), np.float32, buffer), table(ROWS, WIDTH, buffer)

        def embedding(torch: Any, cached: NDArray[Any] = cached) -> Contenders:
            layer = torch.nn.Embedding.from_pretrained(torch.from_numpy(cached))
            return {"nn.Embedding": partial(layer, torch.from_numpy(shuffled))}

        contenders: Contenders = {
            "posenc, shuffled": partial(posenc.encode, shuffled, WIDTH, out=out, threads=threads),
            "posenc, int64": partial(posenc.encode, int64_positions(ROWS), WIDTH, out=out, threads=threads),
            "np.take": partial(np.take, cached, shuffled, axis=0, out=out),
            "np.take, clip": partial(np.take, cached, shuffled, axis=0, out=out, mode="clip"),
            **run.optional("torch", embedding, threads),
        }
        figures = [
            faster(f"{text} against {rival}", rival, target, ours)
            for text, ours, targets in (
                ("positions shuffled over 0..65535", "posenc, shuffled", {"np.take": 1.0}),
                ("positions from the whole int64 range", "posenc, int64", {"np.take": 0.7}),
            )
            for rival, target in ({"np.take, clip": None, "nn.Embedding": None} | targets).items()
        ]
        yield Scene(f"scattered, {ROWS:,} x {WIDTH}", threads, buffer, contenders, figures, out.nbytes)


def cache_scenes(run: Run) -> Iterator[Scene]:
    for buffer in BUFFERS:
        out, cached = empty((WIDTH, WIDTH), np.float32, buffer), table(WIDTH, WIDTH, buffer)
        contenders: Contenders = {
            "posenc": partial(posenc.encode, WIDTH, WIDTH, out=out, threads=1),
            "np.copyto": partial(np.copyto, out, cached),
        }
        figures = [faster(f"in cache ({WIDTH} x {WIDTH}) against np.copyto", "np.copyto", 0.8)]
        yield Scene(f"in cache, {WIDTH} x {WIDTH}", 1, buffer, contenders, figures, out.nbytes)


def row_scenes(run: Run) -> Iterator[Scene]:
    encoding = posenc.Encoding(WIDTH)
    for buffer in BUFFERS:
        x = empty((1, WIDTH), np.float32, buffer)
        x.fill(0.5)

        def steps(add: Callable[[int], object]) -> Callable[[], None]:
            def call() -> None:
                for p in range(STEPS):
                    add(p)

            return call

        def torch_steps(torch: Any, x: NDArray[Any] = x) -> Contenders:
            row, pe = torch.from_numpy(x), torch.from_numpy(table(STEPS, WIDTH, "aligned"))
            plain = steps(lambda p: row.add_(pe[p : p + 1]))
            return {"torch": plain, "torch, inference mode": torch.inference_mode()(plain)}

        def posenc_steps(add_to: Callable[..., object], x: NDArray[Any] = x) -> Callable[[], None]:
            return steps(lambda p: add_to(x, range(p, p + 1)))

        contenders: Contenders = {
            "add_to(x, ...)": posenc_steps(posenc.add_to),
            "encoding.add_to(x, ...)": posenc_steps(encoding.add_to),
            **run.optional("torch", torch_steps),
        }
        forms = {"functional": "add_to(x, ...)", "method": "encoding.add_to(x, ...)"}
        figures = [
            faster(f"one row, {form} form, against {rival}", rival, 1.0, ours)
            for form, ours in forms.items()
            for rival in ("torch", "torch, inference mode")
        ]
        figures += [seconds(f"one row, {form} form", ours, unit="us") for form, ours in forms.items()]
        units = dict.fromkeys(contenders, STEPS)
        yield Scene(f"one row of {WIDTH}, sequential positions", 1, buffer, contenders, figures, x.nbytes, units)


def build_scenes(run: Run) -> Iterator[Scene]:
    def first(d_model: int) -> posenc.Encoding:
        _frequencies.pi.cache_clear()
        return posenc.Encoding(d_model)

    def rows(d_model: int) -> NDArray[Any]:
        return posenc.Encoding(d_model).encode(64)

    targets = {512: 2.0, 8_192: 30.0}
    contenders: Contenders = {}
    figures: list[Figure] = []
    for d_model, target in targets.items():
        kinds: Contenders = {
            f"Encoding({d_model})": partial(posenc.Encoding, d_model),
            f"Encoding({d_model}), the first of a process": partial(first, d_model),
            f"Encoding({d_model}) and 64 rows": partial(rows, d_model),
        }
        contenders |= kinds
        figures += [seconds(name, name, bound) for name, bound in zip(kinds, (target, target, None), strict=True)]
    yield Scene("building an encoding", 1, "", contenders, figures)


def exhaust(n: int) -> None:
    for _ in posenc.stream(n, NARROW):
        pass


def stream_scenes(run: Run) -> Iterator[Scene]:
    powers = list(range(3, 8 if run.quick else 9))
    reachable = not run.quick and 100 * timed(partial(exhaust, 10**7)) < STREAM_SECONDS
    powers += [9] * reachable
    contenders: Contenders = {f"10**{k} positions": partial(exhaust, 10**k) for k in powers}
    units = {f"10**{k} positions": 10**k * NARROW for k in powers}
    names = [name for name, n in units.items() if n >= 10**5 * NARROW]
    text = f"cost of an element, 10**5 to 10**{powers[-1]} positions in fresh chunks, slowest to quickest"
    yield Scene(f"stream, d_model {NARROW}, an element", 0, "fresh", contenders, [spread(text, names, 1.3)], 0, units)


def caller_scenes(run: Run) -> Iterator[Scene]:
    rows, calls = 8_192, 16
    tables = [empty((rows, WIDTH), np.float32, "aligned") for _ in range(calls)]
    encode = posenc.Encoding(WIDTH).encode

    def by(pool: ThreadPoolExecutor) -> None:
        list(pool.map(lambda table: encode(rows, out=table), tables))

    contenders: Contenders = {"one after the other": lambda: [encode(rows, out=table) for table in tables]}
    figures = []
    for callers in (2, 4, 16):
        name = f"{callers} callers at once"
        contenders[name] = partial(by, ThreadPoolExecutor(callers))
        figures.append(faster(f"{calls} tables by {callers} Python threads", "one after the other", 0.8, name))
    yield Scene(f"callers, {calls} tables of {rows:,} x {WIDTH}", 0, "aligned", contenders, figures, calls * tables[0].nbytes)


SCENES = {
    "float32": float32_scenes,
    "dtypes": dtype_scenes,
    "recipes": recipe_scenes,
    "peers": peer_scenes,
    "add": add_scenes,
    "batch": batch_scenes,
    "scattered": scattered_scenes,
    "cache": cache_scenes,
    "row": row_scenes,
    "build": build_scenes,
    "stream": stream_scenes,
    "callers": caller_scenes,
}


# ---- the report -----------------------------------------------------------------------------------------------------


def processor() -> str:
    """The processor's name, as well as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def header(args: argparse.Namespace) -> Record:
    """What ran, where, and how."""
    only = ["--only", *args.only] if args.only else []
    command = ["posenc", "bench", *["--quick"] * args.quick, "--threads", *map(str, args.threads), *only]
    versions = {"python": platform.python_version(), "posenc": posenc.__version__} | {name: version(name) for name in PACKAGES}
    return {
        "command": " ".join(command),
        "cpu": processor(),
        "processors": os.cpu_count(),
        "system": platform.system(),
        "instruction_set": _kernel.instruction_set(),
        "threads": args.threads,
        "rounds": QUICK_ROUNDS if args.quick else ROUNDS,
        "versions": versions,
    }


def readable(seconds: float) -> str:
    unit, scale = next((u for u in (("s", 1), ("ms", 1e3), ("us", 1e6)) if seconds * u[1] >= 0.1), ("ns", 1e9))
    return f"{seconds * scale:.3g} {unit}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text as lines of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def figure_row(figure: Record) -> list[str]:
    verdict = {True: "met", False: "MISSED", None: ""}
    others = figure["others"] or 0
    value, target, unit = figure["value"], figure["target"], figure["unit"]
    lowered = f" ({OF_ROOF} of the roof line's; else {figure['wanted']})" if figure["wanted"] and target else ""
    return [
        figure["figure"],
        str(figure["threads"] or ""),
        figure["buffer"],
        "skipped" if value is None else f"{value:.3g} {unit}".rstrip(),
        "" if target is None else f"{'<=' if figure['at_most'] else '>='} {target:.3g}{lowered}",
        verdict[figure["met"]],
        f"others took {others:.1f} processors" if others > DISTURBED else "",
    ]


def scene_rows(scene: Record) -> Iterator[list[str]]:
    where = [scene["scene"], str(scene["threads"] or ""), scene["buffer"]]
    for name, t in scene["seconds"].items():
        rate = f"{scene['nbytes'] / t['median'] / 1e9:.1f} GB/s" if scene["nbytes"] else ""
        yield [*where, name, readable(t["median"]), readable(t["least"]), str(t["rounds"]), rate]


def report(document: Record) -> str:
    """The document as text."""
    machine = document["header"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if number)
    figures = [["figure", "threads", "buffer", "value", "target", "", ""], *map(figure_row, document["figures"])]
    scenes = [["scene", "threads", "buffer", "contender", "median", "least", "rounds", "written"]]
    scenes += itertools.chain.from_iterable(map(scene_rows, document["scenes"]))
    return "\n".join(
        [
            machine["command"],
            f"{machine['cpu']}, {machine['processors']} processors, {machine['system']}, {machine['instruction_set']}",
            versions,
            f"threads {machine['threads']}, at most {machine['rounds']} rounds",
            *(f"skipped: {name} is not installed" for name in document["missing"]),
            "",
            *columns(figures),
            "",
            *columns(scenes),
        ]
    )


def add_arguments(parser: argparse.ArgumentParser, integer: Callable[[str], int]) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter streams")
    parser.add_argument("--threads", type=integer, nargs="+", default=[1, 2], metavar="N", help="thread counts (default: 1 2)")
    parser.add_argument("--only", nargs="+", choices=SCENES, metavar="NAME", help=f"some of {', '.join(SCENES)}")


def run(args: argparse.Namespace) -> int:
    """Measures and prints; 0 whether targets are met or missed."""
    settings = Run([_arguments.integer("threads", n, 1) for n in args.threads], args.quick, set())
    document: Record = {"header": header(args), "missing": [], "figures": [], "scenes": []}
    for name in args.only or SCENES:
        for scene in SCENES[name](settings):
            figures, times = play(scene, document["header"]["rounds"])
            document["figures"] += figures
            document["scenes"].append(times)
    document["missing"] = sorted(settings.missing)
    print(json.dumps(document, indent=1) if args.json else report(document))
    return 0
