"""Stores written in parts: any process writes any chunk, once; a killed job continues; complete stores are published."""

import errno
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posenc
from conftest import assert_same_bits, names, python
from posenc._files import atomic

zarr = pytest.importorskip("zarr")

import posenc.zarr  # noqa: E402
from posenc._files import stores  # noqa: E402
from posenc._files import zarr as _zarr  # noqa: E402
from posenc._files.urls import is_url  # noqa: E402

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
    """Yield a folder, then a store that is written in place."""
    return PLACES[request.param](tmp_path)


def create(store, n=N, encoding=ENCODING, **keywords):
    return posenc.zarr.create(store, n, encoding, **{"chunk_rows": CHUNK} | keywords)


def complete(store, **keywords):
    """Create, write and finish a store; return the array."""
    for k in range(parts := create(store, **keywords)):
        assert posenc.zarr.write(store, k, parts) == 1
    return posenc.zarr.finish(store)


def place(store):
    return stores.place_of(store)


def keys(store):
    """Return the keys of an unfinished store."""
    where = place(store)
    return set(stores.keys(where.working(where.job())))


@pytest.fixture
def put(monkeypatch):
    """Record the keys of the chunks that are written."""
    written = []
    for kind in (stores.Folder, stores.Remote):
        method = kind.put
        def spy(self, job, key, value, method=method):
            method(self, job, key, value)
            if key != stores.METADATA:
                written.append(key)

        monkeypatch.setattr(kind, "put", spy)
    return written


# ---- content --------------------------------------------------------------------------------------------------------


def test_every_kind_of_store(any_store):
    array = complete(any_store)
    assert (array.chunks, array.fill_value) == ((CHUNK, 6), pytest.approx(np.nan, nan_ok=True))
    assert_same_bits(array[:], ENCODING.encode(N))
    assert posenc.zarr.finish(any_store).shape == (N, 6)        # again
    assert posenc.zarr.write(any_store, 0, 1) == 0 and posenc.zarr.missing(any_store) == []


def test_every_dtype(tmp_path, dtype):
    positions = range(2**62, 2**62 - 300, -3)
    array = complete(tmp_path / "pe.zarr", n=positions, dtype=dtype)
    expected = ENCODING.encode(positions, dtype=dtype)
    assert_same_bits(array[:].view(expected.dtype), expected)
    assert array.attrs["posenc"]["dtype"] == dtype


def test_a_chunk_is_the_bytes_of_its_rows(tmp_path):
    complete(tmp_path / "pe.zarr")
    expected = ENCODING.encode(N)
    assert (tmp_path / "pe.zarr/c/3/0").read_bytes() == expected[21:28].tobytes()
    last = np.frombuffer((tmp_path / "pe.zarr/c/14/0").read_bytes(), "f4").reshape(CHUNK, 6)
    assert_same_bits(last[:2], expected[98:])
    assert np.isnan(last[2:]).all()


@pytest.mark.parametrize("shard_rows, shards", [(7, 15), (21, 5), (700, 1)])
def test_shards(store, shard_rows, shards, put):
    assert create(store, shard_rows=shard_rows) == shards
    assert posenc.zarr.write(store, 0, 2) + posenc.zarr.write(store, 1, 2) == shards
    assert posenc.zarr.write(store, 0, 1) == 0
    array = posenc.zarr.finish(store)
    assert sorted(put) == sorted(f"c/{k}/0" for k in range(shards))
    assert (array.chunks, array.shards) == ((CHUNK, 6), (shard_rows, 6))
    assert_same_bits(array[:], ENCODING.encode(N))


@pytest.mark.parametrize("n, d_model", [(0, 6), (5, 0), (0, 0), (1, 1)])
def test_tables_of_every_shape(store, n, d_model):
    chunks = posenc.zarr.create(store, n, posenc.Encoding(d_model))
    assert chunks == (n > 0 < d_model) and posenc.zarr.write(store, 0, 3) + posenc.zarr.write(store, 2, 3) == chunks
    assert_same_bits(posenc.zarr.finish(store)[:], posenc.encode(n, d_model))


def test_the_default_chunks_are_nearly_equal_and_at_most_32_mib(store):
    assert posenc.zarr.create(store, 300_000, posenc.Encoding(64)) == 3
    assert place(store).job()["metadata"]["chunk_grid"]["configuration"]["chunk_shape"] == [100_000, 64]


# ---- parts ----------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
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


def test_threads_write_parts_at_once(store, put):
    create(store)
    threads = [threading.Thread(target=posenc.zarr.write, args=(store, k % 5, 5)) for k in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(put) == {f"c/{k}/0" for k in range(15)}
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(N))


def test_processes_write_parts_at_once(tmp_path):
    create(tmp_path / "pe.zarr")
    code = "import posenc.zarr, sys; print(posenc.zarr.write(sys.argv[1], sys.argv[2] == 'second', 2))"
    code = code.replace("sys.argv[2] == 'second'", "int(sys.argv[2])")
    processes = [subprocess.Popen(python(code, tmp_path / "pe.zarr", k), stdout=subprocess.PIPE) for k in range(2)]
    assert [int(process.communicate()[0]) for process in processes] == [7, 8]
    assert_same_bits(posenc.zarr.finish(tmp_path / "pe.zarr")[:], ENCODING.encode(N))


def outcomes_of_creating(store, counts):
    """Create a store from several threads at once; return the outcomes."""
    outcomes, barrier = [], threading.Barrier(len(counts))

    def start(n):
        barrier.wait()
        try:
            outcomes.append((n, create(store, n)))
        except ValueError:
            outcomes.append((n, None))

    threads = [threading.Thread(target=start, args=(n,)) for n in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_threads_may_create_a_store_at_once(store):
    for _ in range(10):
        assert outcomes_of_creating(store, [50] * 4) == [(50, 8)] * 4
        posenc.zarr.write(store, 0, 1)
        assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(50))
        create(store, 3, overwrite=True)
        where = place(store)
        if is_url(store):
            where.discard(where.mark())
        else:
            shutil.rmtree(store)
            where.remove(where.mark())


def test_concurrent_calls_create_one_of_two_tables(tmp_path):
    for trial in range(10):
        path = tmp_path / f"{trial}.zarr"
        outcomes = outcomes_of_creating(path, [50, 60] * 3)
        (n, chunks), = {outcome for outcome in outcomes if outcome[1]}
        assert len([outcome for outcome in outcomes if outcome[1]]) == 3
        assert posenc.zarr.write(path, 0, 1) == chunks
        assert_same_bits(posenc.zarr.finish(path)[:], ENCODING.encode(n))


# ---- resuming -------------------------------------------------------------------------------------------------------


def test_a_restarted_client_continues(store, put):
    for written in (0, 6, 13):
        assert create(store) == 15
        assert posenc.zarr.missing(store) == list(range(written, 15))
        for k in posenc.zarr.missing(store)[: {0: 6, 6: 7, 13: 2}[written]]:
            assert posenc.zarr.write(store, k, 15) == 1
    assert posenc.zarr.write(store, 0, 1) == 0
    assert put == [f"c/{k}/0" for k in range(15)]
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(N))


def test_only_missing_chunks_are_computed(store, monkeypatch):
    create(store)
    posenc.zarr.write(store, 1, 3)
    computed, encoded = [], _zarr.Work.encoded
    spy = lambda self, unit, threads: computed.append(unit) or encoded(self, unit, threads)         # noqa: E731
    monkeypatch.setattr(_zarr.Work, "encoded", spy)
    assert posenc.zarr.write(store, 0, 1) == 10
    assert computed == [*range(5), *range(10, 15)]


@pytest.mark.parametrize("keywords, message", [
    ({"n": 99}, "positions is range(0, 99), but the array was started with range(0, 100)"),
    ({"encoding": posenc.Encoding(6)}, "encoding is Encoding(6), but the array was started with Encoding(6, base=77.0)"),
    ({"dtype": "float64"}, "dtype is float64, but the array was started with float32"),
    ({"chunk_rows": 20}, "chunk_rows is 20, but the array was started with 7"),
    ({"shard_rows": 14}, "shard_rows is 14, but the array was started with None"),
])
def test_other_arguments_are_refused(store, keywords, message):
    create(store)
    posenc.zarr.write(store, 0, 3)
    with pytest.raises(ValueError) as caught:
        create(store, **keywords)
    assert str(caught.value) == f"{store} is unfinished: {message}; overwrite it to start again"
    assert len(posenc.zarr.missing(store)) == 10
    create(store, overwrite=True, **keywords)
    assert keys(store) <= {stores.UNFINISHED}
    posenc.zarr.write(store, 0, 1)
    arguments = {"n": N, "encoding": ENCODING, "dtype": "float32"} | keywords
    expected = arguments["encoding"].encode(arguments["n"], dtype=arguments["dtype"])
    assert_same_bits(posenc.zarr.finish(store)[:], expected)


def test_a_process_of_a_discarded_job_cannot_write(store, monkeypatch):
    """Without this, a worker that is still running could add a chunk of the old table to the new one."""
    create(store)
    encoded = _zarr.Work.encoded

    def slow(self, unit, threads):
        if self.dtype == "float32":
            create(store, dtype="float64", overwrite=True)
        return encoded(self, unit, threads)

    monkeypatch.setattr(_zarr.Work, "encoded", slow)
    with pytest.raises(OSError):
        posenc.zarr.write(store, 0, 15)
    assert posenc.zarr.missing(store) == list(range(15))
    assert posenc.zarr.write(store, 0, 1) == 15
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(N, dtype="float64"))


# ---- killed processes -----------------------------------------------------------------------------------------------


def test_a_chunk_that_is_not_complete_does_not_exist(tmp_path, monkeypatch):
    write_at = atomic.write_at

    def fail(fd, data, offset):
        write_at(fd, data[: len(data) // 2], offset)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    create(tmp_path / "pe.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write_at", fail)
        with pytest.raises(OSError, match=r"pe\.zarr"):
            posenc.zarr.write(tmp_path / "pe.zarr", 0, 1)
    assert posenc.zarr.missing(tmp_path / "pe.zarr") == list(range(15))


@pytest.mark.parametrize("shard_rows", [None, 7])
def test_a_chunk_of_the_wrong_size_is_missing(store, shard_rows):
    """Not every store writes atomically: over SFTP, fsspec writes a file in place."""
    create(store, shard_rows=shard_rows)
    posenc.zarr.write(store, 0, 1)
    where = place(store)
    job = where.job()
    where.put(job, "c/3/0", b"half of a chunk")
    assert posenc.zarr.missing(store) == [3]
    with pytest.raises(OSError, match=r"1 of 15 (chunks|shards) are missing or incomplete, the first of them c/3/0; write"):
        posenc.zarr.finish(store)
    assert posenc.zarr.write(store, 0, 1) == 1
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(N))


@pytest.mark.skipif(os.name != "posix", reason="requires SIGKILL")
def test_a_killed_process_leaves_no_incomplete_chunk(tmp_path):
    """Its temporary file is removed when the store is published."""
    path, code = tmp_path / "pe.zarr", "import posenc.zarr, sys; posenc.zarr.write(sys.argv[1], 0, 1)"
    chunks = posenc.zarr.create(path, 400_000, posenc.Encoding(64), chunk_rows=4000)
    before = 0
    for _ in range(3):
        with subprocess.Popen(python(code, path)) as process:
            while process.poll() is None and len(list(tmp_path.glob(".pe.zarr.partial/*/store/c/*/0"))) < before + 9:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        sizes = [file.stat().st_size for file in tmp_path.glob(".pe.zarr.partial/*/store/c/*/0")]
        assert set(sizes) == {4000 * 256} and before < len(sizes) == chunks - len(posenc.zarr.missing(path))
        before = len(sizes)
    folder = next(tmp_path.glob(".pe.zarr.partial/*/store/c/0"))
    (folder / os.path.basename(atomic.name_beside("0"))).write_text("half")
    assert posenc.zarr.write(path, 0, 1) == chunks - before
    assert_same_bits(posenc.zarr.finish(path)[:], posenc.encode(400_000, 64))
    assert names(tmp_path) == ["pe.zarr"] and not list(path.rglob("*.tmp"))


def test_create_continues_after_it_was_killed(tmp_path):
    create(tmp_path / "pe.zarr")
    next(tmp_path.glob(".pe.zarr.partial/*/unfinished.json")).write_text("damaged")
    with pytest.raises(ValueError, match="is unfinished"):
        create(tmp_path / "pe.zarr")
    create(tmp_path / "pe.zarr", overwrite=True)
    assert len(posenc.zarr.missing(tmp_path / "pe.zarr")) == 15
    shutil.rmtree(next(tmp_path.glob(".pe.zarr.partial/*")))
    assert_same_bits(complete(tmp_path / "pe.zarr")[:], ENCODING.encode(N))
    assert names(tmp_path) == ["pe.zarr"]


def test_finish_after_it_was_killed(store, monkeypatch, tmp_path):
    """It is killed before the last step: the store is published, but the data of the job remain."""
    with monkeypatch.context() as patch:
        for kind in (stores.Folder, stores.Remote):
            patch.setattr(kind, "discard", lambda self, job: None)
        complete(store)
    assert posenc.zarr.write(store, 0, 1) == 0 and place(store).mark()
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(N))
    assert place(store).mark() is None and names(tmp_path) == ["pe.zarr"] * (not is_url(store))
    with pytest.raises(FileExistsError):
        create(store)
    assert_same_bits(complete(store, n=50, overwrite=True)[:], ENCODING.encode(50))


def test_overwriting_in_place_after_it_was_killed(monkeypatch, tmp_path):
    store = PLACES["memory URL"](tmp_path)
    complete(store)

    async def fail(self, prefix):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(zarr.storage.FsspecStore, "delete_dir", fail)
        with pytest.raises(OSError, match="Input/output error"):
            create(store, n=50, overwrite=True)
    with pytest.raises(ValueError, match="a call that overwrites it was interrupted"):
        create(store, n=50)
    with pytest.raises(FileNotFoundError):
        posenc.zarr.write(store, 0, 1)
    assert_same_bits(complete(store, n=50, overwrite=True)[:], ENCODING.encode(50))


# ---- publishing -----------------------------------------------------------------------------------------------------


def restart(store):
    """Discard a job and start it again, as two other processes may do while a third one publishes the store."""
    create(store, n=50, overwrite=True)
    create(store, overwrite=True)


@pytest.mark.parametrize("discard", [lambda store: create(store, n=50, overwrite=True), restart])
@pytest.mark.parametrize("steps", [("publish", "publish"), ("put", "_set")])
def test_a_job_discarded_meanwhile_is_not_published(store, monkeypatch, steps, discard):
    """Another process discards the job after its chunks were checked, or just before its metadata are written."""
    create(store)
    posenc.zarr.write(store, 0, 1)
    pending = [discard]
    for kind, step in zip((stores.Folder, stores.Remote), steps, strict=True):
        method = getattr(kind, step)

        def late(self, *arguments, step=step, method=method):
            if step == "publish" or stores.METADATA in arguments:
                while pending:
                    pending.pop()(store)
            return method(self, *arguments)

        monkeypatch.setattr(kind, step, late)
    with pytest.raises(OSError, match=r"([0-9]+) of \1 chunks are missing"):
        posenc.zarr.finish(store)
    assert not pending
    with pytest.raises(FileNotFoundError):
        zarr.open_array(store, mode="r")
    posenc.zarr.write(store, 0, 1)
    assert not np.isnan(posenc.zarr.finish(store)[:]).any()


def test_a_job_is_not_published_while_its_chunks_are_deleted(tmp_path, monkeypatch):
    path, rmtree, results = tmp_path / "pe.zarr", shutil.rmtree, []
    create(path)
    posenc.zarr.write(path, 0, 1)
    job = place(path).job()

    def interrupted(folder, **keywords):
        if not results:
            next(chunk for chunk in tmp_path.rglob("c/3/0")).unlink()
            results.append(place(path).publish(job))
        rmtree(folder, **keywords)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    create(path, n=50, overwrite=True)
    assert results == [False] and not path.exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_processes_finish_a_store_at_once(store, monkeypatch, overwrite):
    """The second one publishes the store while the first one is about to do so."""
    if overwrite:
        complete(store, n=50)
    create(store, overwrite=overwrite)
    posenc.zarr.write(store, 0, 1)
    pending = [posenc.zarr.finish]
    for kind in (stores.Folder, stores.Remote):
        def late(self, job, method=kind.publish):
            while pending:
                pending.pop()(store)
            return method(self, job)

        monkeypatch.setattr(kind, "publish", late)
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(N))


def test_a_replaced_store_is_restored_if_the_job_is_discarded(tmp_path, monkeypatch):
    """A process was killed after it had moved the old store, and before it renamed the new one."""
    path, rename = tmp_path / "pe.zarr", os.rename
    complete(path)
    create(path, n=50, overwrite=True)
    posenc.zarr.write(path, 0, 1)

    def killed(source, target):
        if os.fspath(target) == os.fspath(path) and not path.exists():
            raise SystemExit
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(SystemExit):
            posenc.zarr.finish(path)
    assert not path.exists()
    create(path, n=70, overwrite=True)
    assert_same_bits(zarr.open_array(path, mode="r")[:], ENCODING.encode(N))


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork and SIGKILL")
def test_racing_processes_publish_only_complete_stores(tmp_path, monkeypatch):
    """Four processes start, overwrite, write and publish each of 2,000 stores; two of them are killed."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)       # which takes most of the time
    rng, published, encodings = random.Random(0), 0, [posenc.Encoding(4, base=base) for base in (10.0, 20.0)]

    def race(path, own):
        """Start, write and publish the store twice; return whether a published store was incomplete."""
        for _ in range(2):
            with suppress(OSError, ValueError):
                posenc.zarr.create(path, own.choice((24, 32)), own.choice(encodings), chunk_rows=8, overwrite=True)
                posenc.zarr.write(path, own.randrange(2), 2)
                posenc.zarr.write(path, 0, 1)
                posenc.zarr.finish(path)
            with suppress(FileNotFoundError):
                before = path.stat()
                rows, chunks = json.loads((path / "zarr.json").read_text())["shape"][0], len(list(path.glob("c/*/0")))
                if rows != 8 * chunks and path.stat().st_ctime_ns == before.st_ctime_ns:        # else it was replaced
                    return True
        return False

    def check(path):
        array = zarr.open_array(path, mode="r")
        assert_same_bits(array[:], posenc.open(path).encoding.encode(array.shape[0]))

    for trial in range(2000):
        path, processes = tmp_path / f"{trial}.zarr", []
        for k in range(4):
            processes.append(os.fork())
            if not processes[-1]:
                os._exit(race(path, random.Random(4 * trial + k)))
        for process in processes[:2]:
            time.sleep(rng.random() * 0.1)
            os.kill(process, signal.SIGKILL)
        assert {os.waitpid(process, 0)[1] for process in processes} <= {0, signal.SIGKILL}
        if path.exists():
            check(path)
            published += 1
        complete(path, n=16, encoding=encodings[0], overwrite=True)
        check(path)
        shutil.rmtree(path)
    assert published > 1800
    assert all(re.fullmatch(r"\.[0-9]+\.zarr\.[0-9]+\.[0-9a-f]+\.tmp", name) for name in names(tmp_path))



def test_missing_chunks_are_reported(store):
    create(store)
    for k in (0, 2, 3, 4, 14):
        posenc.zarr.write(store, k, 15)
    message = "10 of 15 chunks are missing or incomplete, the first of them c/1/0, c/5/0, c/6/0; write them"
    with pytest.raises(OSError, match=message):
        posenc.zarr.finish(store)
    assert posenc.zarr.missing(store) == [1, *range(5, 14)]
    assert posenc.zarr.write(store, 0, 1) == 10
    posenc.zarr.finish(store)


@pytest.mark.parametrize("shard_rows", [None, 7])
def test_chunks_lost_after_publication_are_reported(tmp_path, shard_rows):
    path = tmp_path / "pe.zarr"
    complete(path, shard_rows=shard_rows)
    assert posenc.zarr.missing(path) == []
    (path / "c/3/0").unlink()
    assert posenc.zarr.missing(path) == [3]
    with pytest.raises(ValueError, match=r"1 of 15 .* c/3/0; write the store again with overwrite=True"):
        posenc.verify(path)
    create(path, shard_rows=shard_rows, overwrite=True)
    posenc.zarr.write(path, 0, 1)
    posenc.zarr.finish(path)
    assert posenc.zarr.missing(path) == [] and posenc.verify(path)


def test_readers_refuse_an_unfinished_store(any_store, tmp_path, call):
    create(any_store)
    posenc.zarr.write(any_store, 0, 1)
    library = str(any_store) if hasattr(any_store, "root") else any_store
    with pytest.raises(FileNotFoundError):
        zarr.open_array(library, mode="r")
    if isinstance(any_store, (str, os.PathLike)):
        with pytest.raises(ValueError, match=r"pe.zarr/?: unfinished: write the missing chunks"), _zarr.opened(any_store):
            pass
        if not is_url(any_store) and "://" not in str(any_store):
            code, _, error = call("verify", any_store)
            assert code == 1 and "unfinished" in error
    posenc.zarr.finish(any_store)
    assert_same_bits(zarr.open_array(any_store, mode="r")[:], ENCODING.encode(N))


def test_a_store_that_was_not_created_is_refused(any_store, tmp_path):
    for function, *arguments in ((posenc.zarr.write, 0, 1), (posenc.zarr.missing,), (posenc.zarr.finish,)):
        with pytest.raises(FileNotFoundError, match="No unfinished store is visible: create it first"):
            function(any_store, *arguments)
    assert names(tmp_path) == []


def test_a_published_store_is_replaced_only_with_overwrite(store):
    complete(store)
    with pytest.raises(FileExistsError):
        create(store)
    assert create(store, n=50, overwrite=True) == 8
    if is_url(store):
        with pytest.raises(FileNotFoundError):
            zarr.open_array(store, mode="r")
    else:
        assert zarr.open_array(store, mode="r").shape == (N, 6)        # until finish
    assert create(store, n=50, overwrite=True) == 8                    # continues
    posenc.zarr.write(store, 0, 1)
    assert_same_bits(posenc.zarr.finish(store)[:], ENCODING.encode(50))


def test_other_data_are_never_overwritten(tmp_path):
    (tmp_path / "pe.zarr").mkdir()
    (tmp_path / "pe.zarr/thesis.tex").write_text("precious")
    store = zarr.storage.MemoryStore({"thesis.tex": zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"precious")})
    for where, overwrite in itertools.product((tmp_path / "pe.zarr", store), (False, True)):
        with pytest.raises(OSError, match="Not a Zarr store, so it is not overwritten"):
            create(where, overwrite=overwrite)
    assert names(tmp_path) == ["pe.zarr"] and names(tmp_path / "pe.zarr") == list(store._store_dict) == ["thesis.tex"]


def test_groups_and_arrays_of_other_libraries_are_overwritten_in_place():
    store = zarr.storage.MemoryStore()
    group = zarr.create_group(store)
    group.create_array("x", shape=(10,), chunks=(2,), dtype="f4")[:] = 1
    with pytest.raises(FileExistsError):
        create(store)
    assert_same_bits(complete(store, overwrite=True)[:], ENCODING.encode(N))
    assert {key.split("/")[0] for key in store._store_dict} == {"c", "zarr.json"}


def test_a_store_published_meanwhile_is_kept(tmp_path):
    path = tmp_path / "pe.zarr"
    create(path)
    posenc.zarr.write(path, 0, 1)
    _zarr.write(path, posenc.Encoding(8), range(10))
    with pytest.raises(FileExistsError):
        posenc.zarr.finish(path)
    assert zarr.open_array(path, mode="r").shape == (10, 8)


def test_a_job_is_continued_with_overwrite(tmp_path):
    """Start the job without and with overwrite."""
    path = tmp_path / "pe.zarr"
    for _ in range(2):
        create(path, overwrite=path.exists())
        posenc.zarr.write(path, 0, 3)
        _zarr.write(path, posenc.Encoding(8), range(10), overwrite=True)
        assert create(path, overwrite=True) == 15
        assert posenc.zarr.write(path, 0, 1) == 10
        assert_same_bits(posenc.zarr.finish(path)[:], ENCODING.encode(N))
        assert names(tmp_path) == ["pe.zarr"]


def test_insufficient_disk_space_is_reported_first(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: (10**9, 10**9 - 1000, 1000))
    with pytest.raises(OSError, match=r"2\.52 kB needed, 1 kB free"):
        create(tmp_path / "pe.zarr")
    assert names(tmp_path) == []


# ---- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keywords, error, message", [
    ({"store": None}, TypeError, "store is None of type NoneType, expected a path, a URL or a Zarr store"),
    ({"store": 5}, TypeError, "store is 5 of type int, expected a path, a URL or a Zarr store"),
    ({"store": "q.npy"}, ValueError, "store is 'q.npy', expected a name with the suffix .zarr; posenc.save writes"),
    ({"store": "q.safetensors/"}, ValueError, "store is 'q.safetensors/', expected a name with the suffix .zarr"),
    ({"store": "q.pt"}, ValueError, "store is 'q.pt', expected a name with the suffix .npy, .safetensors, .zarr"),
    ({"store": "q\0.zarr"}, ValueError, r"store is 'q\\x00.zarr', expected a path without a null character"),
    ({"positions": np.arange(9)}, TypeError, "positions is of type ndarray, expected an integer or a range"),
    ({"positions": -1}, ValueError, "positions is -1"),
    ({"positions": range(2**63, 2**63 + 2)}, ValueError, "positions has 9223372036854775808"),
    ({"encoding": 64}, TypeError, "encoding is 64 of type int, expected a posenc.Encoding"),
    ({"dtype": "int8"}, TypeError, "int8"),
    ({"chunk_rows": 0}, ValueError, "chunk_rows is 0, expected at least 1"),
    ({"chunk_rows": 2.0}, TypeError, "chunk_rows is 2.0 of type float, expected an integer"),
    ({"shard_rows": 10}, ValueError, "shard_rows is 10, expected a multiple of chunk_rows, which is None"),
    ({"shard_rows": 10, "chunk_rows": 4}, ValueError, "shard_rows is 10, expected a multiple of chunk_rows, which is 4"),
    ({"overwrite": 1}, TypeError, "overwrite is 1 of type int, expected a bool"),
    ({"storage_options": {}}, TypeError, "storage_options is given for a folder or a Zarr store, expected None"),
])
def test_invalid_arguments_of_create(tmp_path, keywords, error, message):
    arguments = {"store": tmp_path / "pe.zarr", "positions": 10, "encoding": ENCODING} | keywords
    with pytest.raises(error, match=message):
        posenc.zarr.create(**arguments)
    assert names(tmp_path) == []


@pytest.mark.parametrize("part, parts, error, message", [
    (0, 0, ValueError, "parts is 0, expected at least 1"),
    (-1, 3, ValueError, "part is -1, expected at least 0"),
    (3, 3, ValueError, "part is 3, expected less than parts, which is 3"),
    (0.0, 3, TypeError, "part is 0.0 of type float, expected an integer"),
    (0, True, TypeError, "parts is a bool, expected an integer"),
])
def test_invalid_parts(tmp_path, part, parts, error, message):
    create(tmp_path / "pe.zarr")
    with pytest.raises(error, match=message):
        posenc.zarr.write(tmp_path / "pe.zarr", part, parts)
    with pytest.raises(ValueError, match="threads is 0"):
        posenc.zarr.write(tmp_path / "pe.zarr", 0, 1, threads=0)
    assert len(posenc.zarr.missing(tmp_path / "pe.zarr")) == 15


# ---- URLs in the functions of the command line ----------------------------------------------------------------------


@pytest.mark.parametrize("path, expected", [
    ("s3://bucket/pe.zarr", True), ("memory://pe.zarr", True), ("simplecache::s3://bucket/pe.zarr", True),
    ("pe.zarr", False), ("/a/b:/pe.zarr", False), ("C:\\pe.zarr", False), ("file:///a/pe.zarr", False), (b"s3://b", False),
    (zarr.storage.MemoryStore(), False), (None, False),
])
def test_urls_are_recognized(path, expected):
    assert is_url(path) is expected


def test_a_url_is_written_and_read_as_a_file():
    url = f"memory://{os.urandom(8).hex()}/pe.zarr"
    for n, overwrite in ((1000, False), (500, True)):
        assert _zarr.write(url, posenc.Encoding(16), range(n), "float64", chunk_rows=100, overwrite=overwrite) == n * 128
        with _zarr.opened(url) as table:
            assert table.described == (posenc.Encoding(16), range(n)) and table.dtype == "float64"
            expected = posenc.encode(n, 16, dtype="float64")
            assert (table.read(50, 300) == expected[50:350].view("u8")).all()
    with pytest.raises(FileExistsError):
        _zarr.write(url, posenc.Encoding(16), range(10))
    with pytest.raises(ValueError, match="not a Zarr array"), _zarr.opened(url + "x"):
        pass


def test_a_url_with_options_and_old_listings():
    fsspec = pytest.importorskip("fsspec")
    memory = pytest.importorskip("fsspec.implementations.memory")

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
    with _zarr.opened(store, **options) as table:
        assert table.shape == (N, 6)
    assert _zarr.write(store, ENCODING, range(9), overwrite=True, **options) == 9 * 24


def test_the_metadata_are_json(tmp_path):
    complete(tmp_path / "pe.zarr")
    metadata = json.loads((tmp_path / "pe.zarr/zarr.json").read_text())
    assert (metadata["zarr_format"], metadata["node_type"], metadata["fill_value"]) == (3, "array", "NaN")
