"""Arrays written by a cluster: a worker of Dask is killed.

The long tests run the programs of docs/scale-out.md.
"""

import os
import re
import shutil
import signal
import subprocess
import threading
import time

import distributed
import pytest
import zarr

import posenc.dask
from code_blocks import OFFLINE, environment_with_commands
from conftest import assert_same_bits
from test_docs import BLOCK, ROOT, packages_of, programs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="requires SIGKILL")
PAGE = (ROOT / "docs/scale-out.md").read_text()


def test_a_killed_worker_loses_no_data(tmp_path):
    """Two local processes write 150 chunks.

    A nanny restarts the one that dies, and Dask repeats its tasks.
    """
    n, path = 150_000, tmp_path / "pe.zarr"
    keywords = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.Client(n_workers=2, threads_per_worker=1, processes=True, **keywords) as client:
        writer = threading.Thread(target=lambda: posenc.dask.table(n, 64, chunks=1000).to_zarr(path))
        writer.start()
        while len(written := list(path.glob("c/*/0"))) < 15:
            assert writer.is_alive()
            time.sleep(0.002)
        victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        writer.join(timeout=300)
        assert not writer.is_alive() and len(written) < 150 and victim not in client.run(os.getpid).values()
    assert posenc.verify(path, n, posenc.Encoding(64)) == n
    assert_same_bits(zarr.open_array(path, mode="r")[:], posenc.encode(n, 64))


# A stand-in for sbatch: it runs the last argument, in ten tasks if it has a task number, and prints the
# number of the job.
SBATCH = """#!/bin/bash
for task in $([[ $* == *--array* ]] && seq 0 9 || echo); do
    SLURM_ARRAY_TASK_ID=$task bash -ec "${@: -1}" >&2 || exit 1
done
echo 7
"""


@pytest.mark.long
@pytest.mark.parametrize("engine", ["from distributed", "import ray", "from pyspark", "sbatch"])
def test_programs_of_the_documentation_run(engine, tmp_path):
    module, = (block for block in BLOCK.findall(PAGE) if "def write" in block)
    (tmp_path / "table.py").write_text(module)
    environment = environment_with_commands(tmp_path / "bin") | OFFLINE
    if engine == "sbatch":
        (tmp_path / "bin/sbatch").write_text(SBATCH)
        (tmp_path / "bin/sbatch").chmod(0o755)
        command = ["bash", "-ec", *re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)]
    else:
        program, = (block for block in programs() if engine in block)
        for package in packages_of(program):
            pytest.importorskip(package)
        if engine == "from pyspark" and not shutil.which("java"):
            pytest.skip("Spark needs Java")
        (tmp_path / "program.py").write_text(f"{module.replace('pe.zarr', str(tmp_path / 'pe.zarr'))}\n{program}")
        command = ["python", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    store, = tmp_path.glob("*.zarr")
    assert_same_bits(zarr.open_array(store, mode="r")[:], posenc.encode(1_000_000, 64))
