"""Compare the speed of rotary embeddings with other libraries.  ``python benchmarks/rotation.py [NAME ...]``

A case rotates q (32 heads) and k (8 heads) of one layer with each library's public functions.  posenc and `torch.compile, in
place` overwrite q and k, onnxruntime writes to existing arrays, and the others return new arrays.  posenc computes cosines and
sines in each call, except in the measurements "at", which use `Rotary.at`; the others do so only in the measurements "with
tables".  `pass` is np.negative on integers of the same size, in place and in one thread.  NumPy uses one thread.  The libraries
of a case alternate; those that are not installed are omitted.  The last line of a case is the time of each form of posenc,
relative to that of the fastest other library, and in passes.  The measurements named after a dtype compare posenc only with
onnxruntime and `torch.compile, in place`.
"""

import functools
import importlib
from functools import partial
from typing import NamedTuple

import numpy as np
from common import chosen, collect, medians, pause, report

import pages
import posenc

HEADS, HEAD_DIM, LENGTH, LONGEST, BASE = (32, 8), 128, 4096, 100_000, 500_000.0
ROTARY = posenc.Rotary(HEAD_DIM, base=BASE)
MOST_SECONDS = 1.5                      # for a case, after its first call


class Case(NamedTuple):
    """q and k of shape (batch, heads, n, HEAD_DIM), and positions of shape (batch, n), None for range(n) in a batch of 1."""

    arrays: list
    positions: np.ndarray | None
    threads: int

    def indices(self):
        return np.arange(self.arrays[0].shape[2])[None] if self.positions is None else self.positions


@functools.cache
def needed(name):
    """Return a module; if it is not installed, print a message and return None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        report(name, "is not installed")
        return None


def array(dtype, shape):
    bits = np.random.default_rng(0).standard_normal(shape, np.float32)
    return bits.astype(needed("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)


# ---- libraries: functions from a case to {name: function without arguments} ----------------------------------------------


def ours(case):
    positions = None if case.positions is None else case.positions[:, None]

    def rotate():
        for x in case.arrays:
            ROTARY.rotate(x, positions, threads=case.threads)

    at = ROTARY.at(LENGTH if positions is None else positions)

    def rotate_at():
        for x in case.arrays:
            at.rotate(x, threads=case.threads)

    return {"posenc": rotate, "posenc, at": rotate_at}


def passes(case):
    integers = [np.ones(x.shape, f"i{x.itemsize}") for x in case.arrays]

    def negate():
        for x in integers:
            np.negative(x, out=x)

    return {"pass": negate}


def numpy(case):
    if case.arrays[0].dtype != np.float32 or case.threads > 1:
        return {}
    half = HEAD_DIM // 2
    frequencies = BASE ** (-np.arange(half) / half)

    def tables():
        angles = case.indices()[:, None, :, None] * frequencies
        return [np.concatenate([f(angles)] * 2, axis=-1).astype(np.float32) for f in (np.cos, np.sin)]

    def rotate(cos, sin):
        return [x * cos + np.concatenate([-x[..., half:], x[..., :half]], axis=-1) * sin for x in case.arrays]

    return {"NumPy": partial(rotate, *tables()), "NumPy, with tables": lambda: rotate(*tables())}


def tensors(torch, case):
    torch.set_num_threads(case.threads)
    kind = getattr(torch, case.arrays[0].dtype.name)
    return [torch.from_numpy(x.view(f"i{x.itemsize}")).view(kind) for x in case.arrays]


def ours_in_torch(case):
    if not (torch := needed("torch")):
        return {}
    rotate_ = importlib.import_module("posenc.torch").rotate_
    both = tensors(torch, case)
    positions = None if case.positions is None else torch.from_numpy(case.positions[:, None])

    def rotate():
        for x in both:
            rotate_(x, positions, rotary=ROTARY)

    at = ROTARY.at(LENGTH if positions is None else positions.numpy())

    def rotate_at():
        for x in both:
            rotate_(x, at)

    return {"posenc.torch.rotate_": rotate, "posenc.torch.rotate_, at": rotate_at}


def transformers(case):
    if not needed("torch") or not (llama := needed("transformers.models.llama.modeling_llama")):
        return {}
    torch, apply = needed("torch"), llama.apply_rotary_pos_emb
    q, k = tensors(torch, case)
    config = llama.LlamaConfig(head_dim=HEAD_DIM, rope_parameters={"rope_type": "default", "rope_theta": BASE})
    embedding, positions = llama.LlamaRotaryEmbedding(config), torch.from_numpy(case.indices())
    cos, sin = embedding(q, positions)

    def with_tables(q, k, positions):
        return apply(q, k, *embedding(q, positions))

    def in_place(q, k, cos, sin):
        for x, rotated in zip((q, k), apply(q, k, cos, sin), strict=True):
            x.copy_(rotated)

    torch.compiler.reset()              # compiled code has a fixed number of threads
    compiled = partial(torch.compile, dynamic=False)
    return {
        "transformers": partial(apply, q, k, cos, sin),
        "transformers, with tables": partial(with_tables, q, k, positions),
        "torch.compile": partial(compiled(apply), q, k, cos, sin),
        "torch.compile, with tables": partial(compiled(with_tables), q, k, positions),
        "torch.compile, in place": partial(compiled(in_place), q, k, cos, sin),
    }


def onnxruntime(case):
    dtype = case.arrays[0].dtype
    if dtype.name == "bfloat16" or not (needed("onnx") and needed("onnxruntime")):
        return {}                       # its RotaryEmbedding for the CPU has no bfloat16
    helper, runtime = importlib.import_module("onnx.helper"), needed("onnxruntime")
    info = partial(helper.make_tensor_value_info, elem_type=helper.np_dtype_to_tensor_dtype(dtype), shape=None)
    angles = np.arange(LONGEST)[:, None] * BASE ** (-np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))
    cache = {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype), "positions": case.indices()}
    options = runtime.SessionOptions()
    options.intra_op_num_threads = case.threads
    runs = []
    for x in case.arrays:
        heads = {}
        if not x.flags.c_contiguous:    # shape (batch, n, heads * HEAD_DIM)
            heads, x = {"num_heads": x.shape[1]}, x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)
        node = helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "positions"], ["y"], **heads)
        inputs = [*map(info, ("x", "cos", "sin")), info("positions", elem_type=needed("onnx").TensorProto.INT64)]
        graph = helper.make_graph([node], "rotation", inputs, [info("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, value in ({"x": x} | cache).items():
            binding.bind_ortvalue_input(name, runtime.OrtValue.ortvalue_from_numpy(value))
        binding.bind_ortvalue_output("y", runtime.OrtValue.ortvalue_from_numpy(np.ones_like(x)))
        runs.append(partial(session.run_with_iobinding, binding))
    return {"onnxruntime": lambda: [run() for run in runs]}


# ---- measurements: each yields pairs (name, dict of median seconds) ------------------------------------------------------


def prefill():
    """Rotate 4,096 positions in contiguous arrays."""
    for dtype in ("float32", "bfloat16", "float16"):
        for threads in (1, 2):
            arrays = [array(dtype, (1, heads, LENGTH, HEAD_DIM)) for heads in HEADS]
            yield f"{dtype}, {pages.threads(threads)}", measured(Case(arrays, None, threads))


def transposed():
    """Rotate views of arrays of shape (batch, n, heads, HEAD_DIM), as in most models; tables are precomputed."""
    for dtype in ("float32", "bfloat16", "float16"):
        for threads in (1, 2):
            arrays = [array(dtype, (1, LENGTH, heads, HEAD_DIM)).swapaxes(1, 2) for heads in HEADS]
            yield f"{dtype}, {pages.threads(threads)}", measured(Case(arrays, None, threads), tables=False)


def decode():
    """Rotate one position of each sequence of a batch."""
    for threads in (1, 2):
        for dtype in ("float32", "bfloat16", "float16"):
            for batch in (1, 8, 64):
                arrays = [array(dtype, (batch, heads, 1, HEAD_DIM)) for heads in HEADS]
                positions = np.random.default_rng(1).integers(0, LONGEST, (batch, 1))
                name = f"{dtype}, batch {batch}" + (", 2 threads" if threads == 2 else "")
                yield name, measured(Case(arrays, positions, threads), number=50)


def cells(dtype):
    """Yield the cases of `prefill`, `transposed` and `decode` for a dtype, with few libraries."""

    def compiled(case):
        return {name: run for name, run in transformers(case).items() if name == "torch.compile, in place"}

    few, random = (passes, ours, compiled, onnxruntime), np.random.default_rng(1)
    for threads in (1, 2):
        named = pages.threads(threads)
        case = Case([array(dtype, (1, heads, LENGTH, HEAD_DIM)) for heads in HEADS], None, threads)
        yield f"heads, positions, {named}", measured(case, libraries=few)
        case = Case([array(dtype, (1, LENGTH, heads, HEAD_DIM)).swapaxes(1, 2) for heads in HEADS], None, threads)
        yield f"positions, heads, {named}", measured(case, libraries=few)
        for batch in (1, 8, 64):
            arrays = [array(dtype, (batch, heads, 1, HEAD_DIM)) for heads in HEADS]
            case = Case(arrays, random.integers(0, LONGEST, (batch, 1)), threads)
            yield f"decode, batch {batch}, {named}", measured(case, libraries=few, number=50)


def float32():
    """Compare posenc with the fastest other libraries in float32."""
    yield from cells("float32")


def bfloat16():
    """Compare posenc with the fastest other libraries in bfloat16."""
    yield from cells("bfloat16")


def float16():
    """Compare posenc with the fastest other libraries in float16."""
    yield from cells("float16")


def measured(case, tables=True, libraries=(passes, ours, ours_in_torch, transformers, onnxruntime, numpy), **options):
    cases = {}
    for library in libraries:
        cases |= {name: run for name, run in library(case).items() if tables or "with tables" not in name}
    return medians(cases, rounds=7, most_seconds=MOST_SECONDS, before=pause, **options)


def print_ratios(case, seconds):
    """Print the times of posenc divided by that of the fastest other library, and by that of a pass."""
    others = {name: time for name, time in seconds.items() if name != "pass" and not name.startswith("posenc")}
    fastest = min(others, key=others.get, default="pass")
    for base in dict.fromkeys((fastest, "pass")):
        each = (f"{name} {time / seconds[base]:.2f}" for name, time in seconds.items() if name.startswith("posenc"))
        report(f"    {case}, relative to {base}:", ", ".join(each))


if __name__ == "__main__":
    for measure in chosen(__doc__, (prefill, transposed, decode, float32, bfloat16, float16)).values():
        for case, seconds in collect(measure).items():
            print_ratios(case, seconds)
