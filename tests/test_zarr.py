"""Stores written in parts: any process writes any chunk, once; a killed job continues; a store is complete after `finish`."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import posenc.zarr
from conftest import assert_same_bits, names, python
from posenc._files import formats, zarr_store

POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only")
ENCODING = posenc.Encoding(6, base=77.0)
N, CHUNK = 100, 7       # 15 chunks, the last of 2 rows


def object_store(tmp_path):
    obstore = pytest.importorskip("obstore")
    return zarr.storage.ObjectStore(obstore.store.MemoryStore())


PLACES = {
    "folder": lambda tmp_path: tmp_path / "pe.zarr",
    "text": lambda tmp_path: f"{tmp_path}/pe.zarr/",
    "file URL": lambda tmp_path: f"file://{tmp_path}/pe.zarr",
    "LocalStore": lambda tmp_path: zarr.storage.LocalStore(tmp_path / "pe.zarr"),
    "memory URL": lambda tmp_path: f"memory://{tmp_path}/pe.zarr",
    "MemoryStore": lambda tmp_path: zarr.storage.MemoryStore(),
    "StorePath": lambda tmp_path: zarr.storage.StorePath(zarr.storage.MemoryStore(), "a/b"),
    "dict": lambda tmp_path: {},
    "ObjectStore": object_store,
}


@pytest.fixture(params=PLACES)
def any_store(request, tmp_path):
    """Return a store of each kind; it does not exist yet."""
    return PLACES[request.param](tmp_path)


@pytest.fixture(params=["folder", "memory URL"])
def store(request, tmp_path):
    return PLACES[request.param](tmp_path)


def create(store, n=N, encoding=ENCODING, **keywords):
    return posenc.zarr.create(store, n, encoding, **{"chunk_rows": CHUNK} | keywords)


def complete(store, **keywords):
    """Create, write and finish a store; return the array."""
    chunks = create(store, **keywords)
    assert posenc.zarr.write(store, 0, 1) == chunks
    return posenc.zarr.finish(store)


def opened(store):
    return zarr_store.opened(zarr_store.place_of(store))


def get(store, key):
    """Return the value of a key."""
    return zarr_store.sync((zarr_store.place_of(store).root / key).get()).to_bytes()


def put(store, key, content):
    """Replace the value of a key."""
    root = zarr_store.place_of(store).root
    zarr_store.sync((root / key).set(zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(content)))


def delete(store):
    zarr_store.sync(zarr_store.place_of(store).root.delete_dir())


@pytest.fixture
def written(monkeypatch):
    """Record the chunks that are written."""
    units, method = [], zarr_store.put
    spy = lambda place, table, array, unit, values: units.append(unit) or method(place, table, array, unit, values)  # noqa: E731
    monkeypatch.setattr(zarr_store, "put", spy)
    return units


# ---- content --------------------------------------------------------------------------------------------------------


def test_every_kind_of_store(any_store):
    array = complete(any_store)
    assert (array.chunks, array.metadata.zarr_format, array.attrs["complete"]) == ((CHUNK, 6), 3, True)
    assert array.metadata.dimension_names == ("position", "column") and np.isnan(array.fill_value)
    assert_same_bits(array[:], ENCODING.encode(N))
    assert posenc.zarr.finish(any_store).shape == (N, 6)        # again
    assert posenc.zarr.write(any_store, 0, 1) == 0 and posenc.zarr.missing(any_store) == []


def test_every_dtype(tmp_path, dtype):
    positions, path = range(2**62, 2**62 - 300, -3), tmp_path / "pe.zarr"
    array = complete(path, n=positions, dtype=dtype)
    expected = ENCODING.encode(positions, dtype=dtype)
    assert_same_bits(array[:].view(expected.dtype), expected)
    assert array.attrs["posenc"]["dtype"] == dtype
    assert (path / "c/3/0").read_bytes() == expected[21:28].tobytes()
    (path / "c/3/0").unlink()
    chunk = np.frombuffer((path / "c/14/0").read_bytes(), expected.dtype).reshape(CHUNK, 6)         # padded
    for rows in (zarr.open_array(path, mode="r")[21:28].view(expected.dtype), chunk[2:]):
        assert np.isnan(rows.astype(float)).all()
    complete(tmp_path / "again.zarr", n=positions, dtype=dtype)
    assert (path / "zarr.json").read_bytes() == (tmp_path / "again.zarr/zarr.json").read_bytes()


@pytest.mark.parametrize("shard_rows, shards", [(7, 15), (21, 5), (700, 1)])
def test_shards(store, shard_rows, shards, written):
    assert create(store, shard_rows=shard_rows) == shards
    assert posenc.zarr.write(store, 0, 2) + posenc.zarr.write(store, 1, 2) == shards
    assert posenc.zarr.write(store, 0, 1) == 0
    array = posenc.zarr.finish(store)
    assert sorted(written) == list(range(shards))
    assert (array.chunks, array.shards) == ((CHUNK, 6), (shard_rows, 6))
    assert_same_bits(array[:], ENCODING.encode(N))


@pytest.mark.parametrize("n, d_model", [(0, 6), (5, 0), (0, 0), (1, 1)])
def test_tables_of_every_shape(store, n, d_model):
    chunks = posenc.zarr.create(store, n, posenc.Encoding(d_model))
    assert chunks == (n > 0 < d_model) and posenc.zarr.write(store, 0, 3) + posenc.zarr.write(store, 2, 3) == chunks
    assert_same_bits(posenc.zarr.finish(store)[:], posenc.encode(n, d_model))


def test_the_default_chunks_are_nearly_equal_and_at_most_32_mib(store):
    assert posenc.zarr.create(store, 300_000, posenc.Encoding(64)) == 3
    assert zarr.open_array(store, mode="r").chunks == (100_000, 64)


# ---- parts ----------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 100), st.integers(1, 60), st.integers(0, 4), st.integers(1, 70), st.integers())
def test_parts_write_every_chunk_exactly_once(n, chunk, per_shard, parts, seed):
    store = zarr.storage.MemoryStore()
    units = create(store, n, chunk_rows=chunk, shard_rows=chunk * per_shard or None)
    order = list(range(parts))
    random.Random(seed).shuffle(order)
    counts = [posenc.zarr.write(store, part, parts) for part in order]
    assert sum(counts) == units == -(-n // (max(1, min(chunk, n)) if not per_shard else chunk * per_shard))
    assert max(counts) - min(counts) <= 1
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(n))


def in_threads(functions):
    """Call functions at the same moment; return their results, in any order."""
    barrier = threading.Barrier(len(functions))
    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(lambda function: barrier.wait() + 1 and function(), functions))


def test_threads_create_and_write_at_once(store):
    for _ in range(2):
        assert in_threads([lambda: create(store)] * 4) == [15] * 4
        assert sum(in_threads([lambda k=k: posenc.zarr.write(store, k % 5, 5) for k in range(10)])) >= 15
        assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(N))
        create(store, 3, overwrite=True)
        delete(store)


def test_processes_write_parts_at_once(tmp_path):
    create(tmp_path / "pe.zarr")
    code = "import posenc.zarr, sys; print(posenc.zarr.write(sys.argv[1], int(sys.argv[2]), 2))"
    processes = [subprocess.Popen(python(code, tmp_path / "pe.zarr", k), stdout=subprocess.PIPE) for k in range(2)]
    assert [int(process.communicate()[0]) for process in processes] == [7, 8]
    assert_same_bits(posenc.zarr.finish(tmp_path / "pe.zarr")[:], ENCODING.encode(N))


# ---- the state of a store -------------------------------------------------------------------------------------------


def test_a_job_that_runs_again_writes_only_missing_chunks(any_store, written):
    """Also when the store is complete."""
    for before, after in ((0, 6), (6, 13), (13, 15), (15, 15)):
        assert create(any_store) == 15
        assert posenc.zarr.missing(any_store) == list(range(before, 15))
        for k in range(before, after):
            assert posenc.zarr.write(any_store, k, 15) == 1
        if after == 15:
            assert_same_bits(posenc.zarr.finish(any_store)[:], ENCODING.encode(N))
    assert written == list(range(15))


def test_an_unfinished_store_is_refused(any_store):
    create(any_store)
    for k in (0, 2, 3, 4, 14):
        posenc.zarr.write(any_store, k, 15)
    assert posenc.zarr.missing(any_store) == [1, *range(5, 14)]
    with pytest.raises(ValueError, match="some of 15 chunks are missing or damaged, first c/1/0, c/5/0, c/6/0; "):
        posenc.zarr.finish(any_store)
    assert posenc.zarr.write(any_store, 0, 1) == 10
    is_path = isinstance(any_store, (str, os.PathLike))
    for function in (posenc.open, posenc.verify) if is_path else (lambda store: opened(store).__enter__(),):
        with pytest.raises(ValueError, match=r"not complete; to resume, call posenc\.zarr\.create"):
            function(any_store)
    posenc.zarr.finish(any_store)
    with opened(any_store) as table:
        assert table.specification == (range(N), ENCODING, "float32")


CHANGED = {
    "positions range(0, 100), not range(0, 99)": {"n": 99},
    "encoding Encoding(6, base=77.0), not Encoding(6)": {"encoding": posenc.Encoding(6)},
    "dtype float32, not float64": {"dtype": "float64"},
    "chunk_rows 7, not 20": {"chunk_rows": 20},
    "shard_rows None, not 14": {"shard_rows": 14},
}


@pytest.mark.parametrize("message, keywords, is_complete", [
    *[(*case, False) for case in CHANGED.items()], (*next(iter(CHANGED.items())), True),
])
@pytest.mark.parametrize("store", ["folder"], indirect=True)
def test_a_store_with_other_arguments_is_replaced_only_with_overwrite(store, keywords, message, is_complete):
    create(store)
    posenc.zarr.write(store, 0, 1 if is_complete else 3)
    chunks = posenc.zarr.missing(store)
    if is_complete:
        posenc.zarr.finish(store)
    with pytest.raises(FileExistsError) as caught:
        create(store, **keywords)
    assert caught.value.strerror == f"The store exists with {message}; overwrite=True replaces it"
    assert posenc.zarr.missing(store) == chunks
    count = create(store, overwrite=True, **keywords)
    assert posenc.zarr.missing(store) == list(range(count))
    posenc.zarr.write(store, 0, 2)
    assert create(store, overwrite=True, **keywords) == count > len(posenc.zarr.missing(store))         # continues
    posenc.zarr.write(store, 0, 1)
    posenc.zarr.finish(store)
    assert posenc.verify(store, keywords.get("n", N), keywords.get("encoding", ENCODING)) == keywords.get("n", N)


def test_a_complete_store_is_written_again_with_overwrite(store):
    complete(store)
    assert create(store, overwrite=True) == 15 and len(posenc.zarr.missing(store)) == 15


@pytest.mark.parametrize("shard_rows, damage", [(None, "lost"), (7, "truncated"), (None, "truncated"), (None, "longer")])
def test_a_damaged_chunk_is_reported_and_written_again(store, shard_rows, damage):
    """Not every store writes atomically: over SFTP, fsspec writes a file in place."""
    complete(store, shard_rows=shard_rows)
    if damage == "lost":
        zarr_store.sync((zarr_store.place_of(store).root / "c/3/0").delete())
    else:
        chunk = get(store, "c/3/0")
        put(store, "c/3/0", chunk[:99] if damage == "truncated" else chunk + b"\0")
    assert posenc.zarr.missing(store) == [3]
    for function in (posenc.zarr.finish, posenc.open, lambda path: posenc.verify(path, samples=1)):
        with pytest.raises(ValueError, match=r"some of 15 (chunks|shards) are missing or damaged, first c/3/0; "):
            function(store)
    assert posenc.zarr.write(store, 0, 1) == 1
    assert posenc.verify(store) == N


CALLS = (posenc.zarr.write, 0, 1), (posenc.zarr.missing,), (posenc.zarr.finish,)


def test_a_store_that_was_not_created_is_refused(any_store, tmp_path):
    for function, *arguments in CALLS:
        with pytest.raises(FileNotFoundError, match="No Zarr array is visible to this process"):
            function(any_store, *arguments)
    assert names(tmp_path) == []


def test_arrays_of_other_programs(store):
    zarr.create_array(store, shape=(10, 4), chunks=(3, 2), dtype="f4")[:] = 1
    for function, *arguments in CALLS:
        with pytest.raises(ValueError, match=r"pe\.zarr: another array, expected one that posenc\.zarr\.create has started"):
            function(store, *arguments)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        create(store)
    assert_same_bits(complete(store, overwrite=True)[:], ENCODING.encode(N))


def other_data():
    yield "folder", lambda path: (path.mkdir(), (path / "thesis.tex").write_text("precious"))
    yield "file", lambda path: path.write_text("precious")
    yield "group", lambda path: zarr.create_group(path).create_array("x", shape=(10,), dtype="f4")
    yield "damaged", lambda path: (path.mkdir(), (path / "zarr.json").write_text("{"))
    yield "fifo", os.mkfifo


@POSIX
@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in other_data()])
def test_other_data_are_never_overwritten(tmp_path, call, make):
    make(tmp_path / "pe.zarr")
    before = sorted(tmp_path.rglob("*"))
    for overwrite in (False, True):
        for function in (create, lambda path, overwrite: posenc.save(path, N, ENCODING, overwrite=overwrite)):
            with pytest.raises((OSError, ValueError), match=r"(?i)pe\.zarr.*not a|not a.*pe\.zarr"):
                function(tmp_path / "pe.zarr", overwrite=overwrite)
        assert call("generate", N, 6, "-o", tmp_path / "pe.zarr", *["--force"] * overwrite)[0] in (1, 2)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_process_killed_while_it_creates_a_store_leaves_an_empty_place(tmp_path):
    (tmp_path / "pe.zarr").mkdir()
    (tmp_path / "pe.zarr" / "zarr.0123456789abcdef.partial").write_text("{")
    assert_same_bits(complete(tmp_path / "pe.zarr")[:], ENCODING.encode(N))


def test_chunks_without_metadata_are_replaced_only_with_overwrite(store):
    """If two jobs replace a store, and both are killed, these chunks may remain."""
    complete(store)
    zarr_store.sync((zarr_store.place_of(store).root / "zarr.json").delete())
    with pytest.raises(OSError, match="Not a Zarr array, so it is not overwritten"):
        create(store)
    assert_same_bits(complete(store, encoding=posenc.Encoding(6), overwrite=True)[:], posenc.encode(N, 6))


def test_other_data_in_a_store_in_memory_are_never_overwritten():
    store = zarr.storage.MemoryStore()
    put(store, "thesis.tex", b"precious")
    for overwrite in (False, True):
        with pytest.raises(OSError, match="Not a Zarr array, so it is not overwritten"):
            create(store, overwrite=overwrite)
    assert list(store._store_dict) == ["thesis.tex"]


# ---- processes that are killed, and several jobs ---------------------------------------------------------------------


@POSIX
def test_a_killed_process_leaves_no_incomplete_chunk(tmp_path):
    path, code = tmp_path / "pe.zarr", "import posenc.zarr, sys; posenc.zarr.write(sys.argv[1], 0, 1)"
    chunks = posenc.zarr.create(path, 400_000, posenc.Encoding(64), chunk_rows=4000)
    before = 0
    for _ in range(2):
        with subprocess.Popen(python(code, path)) as process:
            while process.poll() is None and len(list(path.glob("c/*/0"))) < before + 9:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        sizes = [file.stat().st_size for file in path.glob("c/*/0")]
        assert set(sizes) == {4000 * 256} and before < len(sizes) == chunks - len(posenc.zarr.missing(path))
        before = len(sizes)
    assert posenc.zarr.write(path, 0, 1) == chunks - before
    posenc.zarr.finish(path)
    assert posenc.verify(path) == 400_000


def test_an_interrupted_overwrite_can_be_repeated(store, monkeypatch):
    """Nobody takes the remains for a complete store."""
    for make in (complete, lambda store: zarr.create_array(store, shape=(3, 3), dtype="f4", overwrite=True)):
        make(store)
        with monkeypatch.context() as patch:
            patch.setattr(zarr, "create_array", None)
            with pytest.raises(TypeError):
                create(store, n=50, overwrite=True)
        with pytest.raises(ValueError, match="the store is not complete"):
            posenc.open(store)
        with pytest.raises(FileExistsError):
            create(store, n=50)
        assert_same_bits(complete(store, n=50, overwrite=True)[:], ENCODING.encode(50))


@pytest.mark.parametrize("other", [lambda store: create(store, n=50, overwrite=True), delete])
def test_a_chunk_of_a_job_whose_store_is_replaced_is_deleted(store, monkeypatch, other):
    """Otherwise, a worker that is still running could add a chunk of the old table to the new one."""
    create(store)
    encode, pending = posenc.Encoding.encode, [other]

    def slow(self, *arguments, **keywords):
        while pending:
            pending.pop()(store)
        return encode(self, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(posenc.Encoding, "encode", slow)
        with pytest.raises(OSError, match="Another job has replaced or deleted the store"):
            posenc.zarr.write(store, 0, 15)
    assert create(store, n=50, overwrite=True) == 8
    assert posenc.zarr.missing(store) == list(range(8))


@pytest.mark.parametrize("old, shard_rows", [
    ({"encoding": posenc.Encoding(6)}, None), ({"n": range(0, 2 * N, 2)}, None), ({"n": range(N - 1, -1, -1)}, 14),
])
def test_a_chunk_of_another_job_is_written_again(store, shard_rows, old):
    """A process of that job was killed after it had written the chunk, and before it could delete the chunk."""
    keywords = {"shard_rows": shard_rows}
    units = create(store, **keywords | old)
    posenc.zarr.write(store, 1, units)
    chunk = get(store, "c/1/0")
    create(store, overwrite=True, **keywords)
    put(store, "c/1/0", chunk)
    assert posenc.zarr.missing(store) == list(range(units))
    for part in (0, *range(2, units)):
        posenc.zarr.write(store, part, units)
    put(store, "c/1/0", chunk)
    with pytest.raises(ValueError, match="first c/1/0;"):
        posenc.zarr.finish(store)
    assert posenc.zarr.write(store, 0, 1) == 1
    posenc.zarr.finish(store)
    assert posenc.verify(store) == N


def restart(store, **keywords):
    complete(store, n=50, overwrite=True)
    create(store, overwrite=True, **keywords)


@pytest.mark.parametrize("other, moment", [
    (lambda store: create(store, n=50, overwrite=True), 1), (restart, 1), (restart, 2), (delete, 2),
    (lambda store: restart(store, dtype="float64"), 2),
])
def test_finish_does_not_complete_the_store_of_another_job(store, monkeypatch, other, moment):
    """The other job replaces the store after the chunks were checked, or after the store was marked as complete."""
    create(store)
    posenc.zarr.write(store, 0, 1)
    check, calls = zarr_store.StoredTable.check, []

    def late(self, name, **keywords):
        calls.append(name)
        if len(calls) == 2 and moment == 2:
            other(store)
        check(self, name, **keywords)
        if len(calls) == 1 and moment == 1:
            other(store)

    with monkeypatch.context() as patch:
        patch.setattr(zarr_store.StoredTable, "check", late)
        with pytest.raises((OSError, ValueError), match=r"missing or damaged|No Zarr array|another array"):
            posenc.zarr.finish(store)
    with pytest.raises((FileNotFoundError, ValueError)):
        posenc.open(store)


def test_processes_finish_a_store_at_once(store, monkeypatch):
    create(store)
    posenc.zarr.write(store, 0, 1)
    check, pending = zarr_store.StoredTable.check, [posenc.zarr.finish]

    def late(self, name, **keywords):
        check(self, name, **keywords)
        while pending:
            pending.pop()(store)

    monkeypatch.setattr(zarr_store.StoredTable, "check", late)
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(N))
    assert posenc.verify(store) == N


@POSIX
@pytest.mark.long
@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_processes_never_leave_a_wrong_store(tmp_path, monkeypatch, overwrite):
    """Four processes write each of 500 stores, and one of them is killed; with `overwrite`, they belong to two jobs."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)       # which takes most of the time
    choice, outcomes = random.Random(0), {"complete": 0, "refused": 0}

    def work(path, job, seed):
        random_of_process = random.Random(seed)
        with suppress(OSError, ValueError):
            create(path, 24, posenc.Encoding(4, base=10.0 + job), chunk_rows=4, overwrite=overwrite)
            posenc.zarr.write(path, random_of_process.randrange(4), 4)
            posenc.zarr.write(path, 0, 1)
            if random_of_process.random() < 0.7:
                posenc.zarr.finish(path)

    for trial in range(500):
        path, processes = tmp_path / f"{trial}.zarr", []
        for k in range(4):
            processes.append(os.fork())
            if not processes[-1]:
                work(path, k % 2 if overwrite else 0, 4 * trial + k)
                os._exit(0)
        time.sleep(choice.random() * 0.08)
        os.kill(processes[0], signal.SIGKILL)
        assert {os.waitpid(process, 0)[1] for process in processes} <= {0, signal.SIGKILL}
        try:
            posenc.open(path)
        except (FileNotFoundError, ValueError):
            outcomes["refused"] += 1
            with pytest.raises((FileNotFoundError, ValueError), match=r"not complete|No Zarr array|missing or damaged"):
                posenc.verify(path)
        else:
            outcomes["complete"] += 1
            assert posenc.verify(path) == 24 and json.loads((path / "zarr.json").read_text())["attributes"]["complete"]
        create(path, 24, chunk_rows=4, overwrite=True)
        posenc.zarr.write(path, 0, 1)
        posenc.zarr.finish(path)
        assert posenc.verify(path, encoding=ENCODING) == 24
        shutil.rmtree(path)
    print(outcomes)
    assert min(outcomes.values()) > 5


# ---- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument, keywords", [      # test_mistakes.py tries every argument
    ("positions", {"positions": np.arange(9)}), ("shard_rows", {"shard_rows": 10, "chunk_rows": 4}),
    ("storage_options", {"storage_options": {}}),
])
def test_invalid_arguments_of_create(tmp_path, argument, keywords):
    with pytest.raises((TypeError, ValueError), match=f"^{argument} is "):
        posenc.zarr.create(**{"store": tmp_path / "pe.zarr", "positions": 10, "encoding": ENCODING} | keywords)
    assert names(tmp_path) == []


def test_insufficient_disk_space_is_reported_first(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: (10**9, 10**9 - 1000, 1000))
    with pytest.raises(OSError, match=r"2\.4 kB needed, 1 kB free"):
        create(tmp_path / "pe.zarr")
    assert names(tmp_path) == []


# ---- URLs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path, expected", [
    ("s3://bucket/pe.zarr", True), ("memory://pe.zarr", True), ("simplecache::s3://bucket/pe.zarr", True),
    ("pe.zarr", False), ("/a/b:/pe.zarr", False), ("C:\\pe.zarr", False), ("file:///a/pe.zarr", False), (b"s3://b", False),
    (zarr.storage.MemoryStore(), False), (None, False),
])
def test_urls_are_recognized(path, expected):
    assert formats.is_url(path) is expected


def test_a_url_with_options_and_old_listings():
    import fsspec
    from fsspec.implementations import memory

    class Guarded(memory.MemoryFileSystem):
        protocol = "guarded"

        def __init__(self, token=None, **keywords):
            if token != "secret":
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            super().__init__(**keywords)
            self.listings = {}

        def find(self, path, **keywords):
            return self.listings.setdefault(path, super().find(path, **keywords))

        def invalidate_cache(self, path=None):
            self.listings.clear()

        @classmethod
        def _strip_protocol(cls, path):
            return super()._strip_protocol(path.removeprefix("guarded://"))

    fsspec.register_implementation("guarded", Guarded, clobber=True)
    store, options = f"guarded://{os.urandom(8).hex()}.zarr", {"storage_options": {"token": "secret"}}
    with pytest.raises(PermissionError):
        create(store)
    assert create(store, **options) == create(store, **options) == 15
    assert posenc.zarr.write(store, 0, 2, **options) == 7
    assert posenc.zarr.missing(store, **options) == list(range(7, 15))
    assert posenc.zarr.write(store, 1, 2, **options) == 8
    assert_same_bits(posenc.zarr.finish(store, **options)[:], ENCODING.encode(N))
    assert posenc.save(store, 9, ENCODING, overwrite=True, **options) == 9 * 24
    assert posenc.verify(store, **options) == 9


# ---- untrusted stores -----------------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("name", ["../../victim", "/tmp/victim", "..", ".", "", "victim\0", "c/0/0"])
def test_no_name_in_a_store_is_used_as_a_path(tmp_path, name):
    """Every text in the attributes of a store, and in the files beside it, is the path of another folder."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "0").write_text("precious")
    (victim / "zarr.json").write_text("precious")
    before = {path: path.read_bytes() for path in victim.rglob("*")}
    path = tmp_path / "shared" / "pe.zarr"
    partial = path.parent / ".pe.zarr.partial" / "1"
    partial.mkdir(parents=True)
    (partial / "unfinished.json").write_text(json.dumps({"id": name, "overwrite": True, "metadata": {"path": name}}))
    create(path)
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["attributes"] |= {"job": name, "path": name, "complete": name, "id": name, "store": name}
    metadata["attributes"]["posenc"] |= {"version": name}
    (path / "zarr.json").write_text(json.dumps(metadata))
    for function in (posenc.open, posenc.verify):
        with pytest.raises(ValueError):
            function(path)
    assert create(path) == 15 and posenc.zarr.write(path, 0, 1) == 15
    assert posenc.zarr.finish(path).attrs["complete"] is True and posenc.verify(path) == N
    create(path, n=50, overwrite=True)
    posenc.save(path, 5, ENCODING, overwrite=True)
    assert {path: path.read_bytes() for path in victim.rglob("*")} == before
    assert names(path.parent) == [".pe.zarr.partial", "pe.zarr"] and names(tmp_path) == ["shared", "victim"]


@POSIX
def test_symbolic_links_in_a_store_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "0").write_text("precious")
    for link in ("c", "c/3", "c/3/0"):
        path = tmp_path / "pe.zarr"
        create(path)
        (path / link).parent.mkdir(parents=True, exist_ok=True)
        (path / link).symlink_to(victim / "0" if link == "c/3/0" else victim)
        with pytest.raises(OSError):
            posenc.zarr.write(path, 3, 15)
        with suppress(OSError):
            create(path, n=50, overwrite=True)
        assert (victim / "0").read_text() == "precious" and names(victim) == ["0"]
        shutil.rmtree(path)
