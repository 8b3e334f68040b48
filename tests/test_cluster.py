"""Stores written by a cluster: workers and clients are killed, and the job continues with the missing chunks only.

The long tests write 1.28 GB to a folder and to an S3 server, with Dask and with Ray, and run the programs for Ray and Spark.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
import zarr

import posenc.dask
import posenc.zarr
from conftest import assert_same_bits, python
from test_docs import ROOT, packages_of, programs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="requires SIGKILL")


@contextlib.contextmanager
def local_cluster(workers):
    keywords = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    local = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, **keywords)
    with local, distributed.Client(local) as client, dask.config.set(scheduler=client):
        yield local, client


@pytest.fixture
def cluster():
    """Yield a client of two local worker processes; a nanny restarts a worker that dies."""
    with local_cluster(2) as (_, client):
        yield client


# ---- workers --------------------------------------------------------------------------------------------------------


def test_a_killed_worker_loses_no_data(cluster, tmp_path):
    n, chunks, path, result = 150_000, 1000, tmp_path / "pe.zarr", []
    writer = threading.Thread(target=lambda: result.append(posenc.dask.to_zarr(path, n, 64, chunks=chunks)))
    writer.start()
    written = until(lambda: chunks_in(path), n // chunks // 10, writer.is_alive)
    victim = next(iter(cluster.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)
    writer.join(timeout=300)
    assert not writer.is_alive() and len(written) < n // chunks
    assert victim not in cluster.run(os.getpid).values()
    assert_same_bits(result[0][:], posenc.encode(n, 64))
    assert [path.name for path in tmp_path.iterdir()] == ["pe.zarr"]
    x = da.ones((4, 1000, 64), chunks=(2, 300, 40), dtype="float32")
    assert_same_bits((x + posenc.dask.table(1000, 64)).compute(), posenc.add_to(np.ones(x.shape, np.float32)))


# ---- workers and clients --------------------------------------------------------------------------------------------

N, D_MODEL, CHUNK_ROWS = 5_000_000, 64, 50_000
CHUNKS = N // CHUNK_ROWS


def chunks_in(path):
    """Return the chunks in a folder; the values change if a chunk is written again."""
    status = {file.parent.name: file.stat() for file in path.glob("c/*/0")}
    return {name: (file.st_ino, file.st_mtime_ns, file.st_size) for name, file in status.items()}


def until(chunks, count, condition=lambda: True):
    """Wait until `count` chunks exist; return the chunks."""
    deadline = time.monotonic() + 120
    while len(found := chunks()) < count:
        assert condition() and time.monotonic() < deadline
        time.sleep(0.002)
    return found


class InFolder:
    """A store in a folder."""

    def __init__(self, tmp_path):
        self.path, self.options = tmp_path / "pe.zarr", None
        self.chunks = lambda: chunks_in(self.path)
        self.attributes = lambda: json.loads((self.path / "zarr.json").read_text())["attributes"]


class InBucket:
    """A prefix in a bucket of an S3 server on this machine."""

    def __init__(self, server):
        import boto3

        host, port = server.get_host_and_port()
        credentials = {"key": "test", "secret": "test", "endpoint_url": f"http://{host}:{port}"}
        self.options, self.path = credentials, "s3://bucket/folder/pe.zarr"
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        self._client = boto3.client("s3", endpoint_url=credentials["endpoint_url"], **keys)
        self._client.create_bucket(Bucket="bucket")

    def chunks(self):
        """Return the chunks with the server's times, which have a resolution of one second."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="folder/pe.zarr/c/")
        files = (file for page in pages for file in page.get("Contents", []))
        return {file["Key"].split("/")[-2]: (file["LastModified"], file["ETag"], file["Size"]) for file in files}

    def attributes(self):
        return json.load(self._client.get_object(Bucket="bucket", Key="folder/pe.zarr/zarr.json")["Body"])["attributes"]


@pytest.fixture(params=["folder", "s3"])
def place(request, tmp_path):
    if request.param == "folder":
        yield InFolder(tmp_path)
        return
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield InBucket(server)
    finally:
        host, port = server.get_host_and_port()
        urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
        server.stop()


# The client of Dask connects to the cluster of the test.  Both clients record their worker processes in a folder.
# Each file in it has the id of a process as its name.
DASK = """
    import os, sys
    import distributed, posenc, posenc.dask
    path, options, workers, scheduler = sys.argv[1], eval(sys.argv[2]), sys.argv[3], sys.argv[4]
    with distributed.Client(scheduler) as client:
        for worker in client.run(os.getpid).values():
            open(os.path.join(workers, str(worker)), "w").close()
        posenc.dask.to_zarr(path, N, D_MODEL, chunks=CHUNK_ROWS, storage_options=options)
    """
RAY = """
    import os, sys
    import posenc, posenc.zarr, ray
    path, options, workers = sys.argv[1], eval(sys.argv[2]), sys.argv[3]

    @ray.remote(num_cpus=1)
    def write(part):
        open(os.path.join(workers, str(os.getpid())), "w").close()
        return posenc.zarr.write(path, part, chunks, threads=1, storage_options=options)

    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", logging_level="error", log_to_driver=False)
    chunks = posenc.zarr.create(path, N, posenc.Encoding(D_MODEL), chunk_rows=CHUNK_ROWS, storage_options=options)
    ray.get([write.remote(part) for part in posenc.zarr.missing(path, storage_options=options)])
    posenc.zarr.finish(path, storage_options=options)
    """


def start(code, place, workers, *args):
    code = f"N, D_MODEL, CHUNK_ROWS = {N}, {D_MODEL}, {CHUNK_ROWS}\n" + textwrap.dedent(code)
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    return subprocess.Popen(python(code, place.path, place.options, workers, *args), env=environment)


def test_chunks_of_other_processes_are_seen(place):
    """fsspec caches the listing of the first call of `missing`; the second call must not use it."""
    chunks = posenc.zarr.create(place.path, 100, posenc.Encoding(8), chunk_rows=9, storage_options=place.options)
    assert posenc.zarr.missing(place.path, storage_options=place.options) == list(range(chunks))
    code = "import posenc.zarr, sys; posenc.zarr.write(sys.argv[1], 0, 1, storage_options=eval(sys.argv[2]))"
    subprocess.run(python(code, place.path, place.options), check=True)
    assert posenc.zarr.missing(place.path, storage_options=place.options) == []
    array = posenc.zarr.finish(place.path, storage_options=place.options)
    assert_same_bits(array[:], posenc.encode(100, 8))
    file = posenc.open(place.path, storage_options=place.options)
    assert (file.encoding, file.positions) == (posenc.Encoding(8), range(100))


@pytest.mark.long
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_killed_worker_and_a_killed_client(engine, place, tmp_path):
    """Kill a worker, then the client; a second client must compute only the chunks that are missing."""
    pytest.importorskip(engine)
    workers = tmp_path / "workers"
    workers.mkdir()
    with contextlib.ExitStack() as stack:
        arguments = DASK if engine == "dask" else RAY, place, workers
        if engine == "dask":
            arguments += stack.enter_context(local_cluster(2))[0].scheduler_address,
        with start(*arguments) as client:
            until(place.chunks, CHUNKS // 10, lambda: client.poll() is None)
            os.kill(int(min(os.listdir(workers))), signal.SIGKILL)
            until(place.chunks, CHUNKS // 3, lambda: client.poll() is None)
            client.send_signal(signal.SIGKILL)
        assert place.attributes()["complete"] is False
        before, settled = place.chunks(), {}
        while before != settled:                # workers may finish a task
            time.sleep(2)
            before, settled = place.chunks(), before
        assert CHUNKS // 3 <= len(before) < CHUNKS
        with start(*arguments) as client:
            assert client.wait(timeout=300) == 0
    after = place.chunks()
    assert len(after) == CHUNKS and after.items() >= before.items()
    stored = zarr.open_array(place.path, mode="r", storage_options=place.options)
    for first in range(0, N, 500_000):
        assert_same_bits(stored[first : first + 500_000], posenc.encode(range(first, first + 500_000), D_MODEL))
    print(f"{engine}: {len(before)} of {CHUNKS} chunks existed, {CHUNKS - len(before)} were computed after the restart")


# ---- documentation --------------------------------------------------------------------------------------------------

# A stand-in for sbatch: it runs the last argument in four tasks, one after another, and prints the number of the job.
SBATCH = """#!/bin/bash
for task in 0 1 2 3; do
    SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_ID=$task bash -ec "${@: -1}" >&2 || exit 1
done
echo 7
"""


@pytest.fixture
def programs_folder(tmp_path, monkeypatch):
    """Put the commands python, sbatch and srun first on PATH; return a folder in which to run programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    commands = {"python": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "srun": '#!/bin/sh\nexec "$@"\n', "sbatch": SBATCH}
    for name, text in commands.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("engine", ["from distributed", "SLURM", "import ray", "pyspark"])
def test_programs_of_the_documentation_run(engine, programs_folder):
    program, = (block for block in programs() if engine in block)
    for package in packages_of(program):
        pytest.importorskip(package)
    (programs_folder / "write.py").write_text(program)
    command = ["python", "write.py"]
    if engine == "SLURM":
        command = ["bash", "-ec", *re.findall(r"```bash\n(.*?)```", (ROOT / "docs/scale-out.md").read_text(), re.DOTALL)]
    done = subprocess.run(command, cwd=programs_folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    store, = programs_folder.glob("by-*.zarr")
    assert_same_bits(zarr.open_array(store, mode="r")[:], posenc.encode(1_000_000, 64))
