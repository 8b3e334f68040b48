"""Results with any number of threads, the number of threads that calls use, and calls while no thread can
start.
"""

import os
import platform
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest

import posenc
from conftest import bits_of, compiled, python_output
from posenc._core import default_threads, kernel

LARGE = "posenc.encode(8192, 512)"
linux = pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
openmp = pytest.mark.skipif(not kernel.OPENMP, reason="built without OpenMP")
root = pytest.mark.skipif(
    sys.platform != "win32" and os.getuid() != 0, reason="requires root, to become a user without processes")


# ---- bits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_several_threads_build_the_offset_table(threads):
    """With this many columns, the offset table is not cached; each call builds it in blocks."""
    from reference import Reference

    d_model = 9001
    encoding = posenc.Encoding(d_model)
    table = encoding.encode(range(0, 7 * 130, 7), dtype="float64", threads=threads)
    columns = np.array([0, 1, 511, 512, 513, 1023, 8190, 9000])
    reference = Reference(d_model)
    rows = np.array([0, 1, 31, 32, 33, 129])
    expected = reference.table([7 * int(row) for row in rows], "float64", columns)
    assert (bits_of(table[np.ix_(rows, columns)]) == expected).all()


def test_concurrent_callers_share_encodings():
    shared = posenc.Encoding(512, base=123.0)
    expected = posenc.Encoding(512, base=123.0).encode(9000, threads=1)
    start = threading.Barrier(8)

    def call(i):
        start.wait()
        for n in (9000, 40, 9000, 33 + i, 5000):
            out = np.full((n, 512), np.nan, np.float32)
            shared.encode(n, out=out, threads=(None, 2, 64)[i % 3])
            assert (bits_of(out) == bits_of(expected[:n])).all()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8)))


# ---- number of threads -------------------------------------------------------------------------------------


def threads_after(code, **variables):
    """Return how many threads code starts in a new process."""
    count = "len(os.listdir('/proc/self/task'))"
    return int(python_output(f"import os, numpy, posenc; before = {count}; {code}; print({count} - before)",
                             **variables))


@linux
@openmp
def test_threads_are_started_only_when_useful():
    assert threads_after("posenc.encode(500, 512); posenc.encode(10**3, 1); posenc.encode(1, 10**5)") == 0
    assert threads_after(LARGE, OMP_NUM_THREADS="1") == 0
    assert threads_after("posenc.encode(8192, 512, threads=1)") == 0
    assert threads_after("posenc.encode(8192, 512, threads=3)") == 2
    assert threads_after("posenc.encode(65, 512, threads=64)") == 1         # two blocks
    assert threads_after("posenc.encode(8192, 512, threads=10**30)") == 63
    rotate = "posenc.Rotary(128).rotate(numpy.ones(({0}, 32, 1, 128), 'f4'), numpy.arange({0})[:, None, None] ** 3, threads=2)"
    assert threads_after(rotate.format(64)) == 0            # a sleeping thread would start too late to help
    assert threads_after(rotate.format(128)) == 1
    processors = len(os.sched_getaffinity(0))
    if processors > 1 and default_threads.quota() is None:
        assert 1 <= threads_after(LARGE, OMP_NUM_THREADS="") <= processors - 1
        assert threads_after("posenc.encode(numpy.arange(3000), 512)", OMP_NUM_THREADS="") >= 1


@pytest.mark.skipif(kernel.OPENMP != 0, reason="built with OpenMP")
def test_one_thread_without_openmp():
    assert runtime_threads() == 1
    if sys.platform == "linux":
        assert threads_after("posenc.encode(8192, 512, threads=3)") == 0


@linux
@openmp
def test_concurrent_callers_share_the_thread_pool():
    """During a call with four threads, a signal handler starts other calls.

    The threads in use count toward their limits.
    """
    code = """if True:
        import os, signal, threading, numpy as np, posenc
        def tasks():
            return len(os.listdir("/proc/self/task"))
        started = []
        def call(threads):
            before = tasks()
            posenc.encode(8192, 512, threads=threads)
            started.append(tasks() - before)
        def handler(*_):
            for threads in (2, 4, 6):
                caller = threading.Thread(target=call, args=[threads])
                caller.start()
                caller.join()
                while os.path.exists(f"/proc/self/task/{caller.native_id}"):    # until the thread has ended
                    pass
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        posenc.encode(np.full(200, 5e-324), 512, dtype="float64", threads=4)
        print(*started)
        call(4)
        print(started[-1])
    """
    assert python_output(code).split() == ["0", "0", "1", "0"]


@linux
@openmp
def test_parallel_regions_of_the_host_get_one_thread(tmp_path):
    source = """
    void in_a_region(void (*call)(void)) {
        #pragma omp parallel num_threads(2)
        #pragma omp critical
        call();
    }
    """
    library = compiled(tmp_path, source, "-fopenmp")
    code = f"""if True:
        import ctypes, os, posenc
        threads = []
        def call():
            threads.append(posenc.show_runtime()["threads"])
            before = len(os.listdir("/proc/self/task"))
            posenc.encode(8192, 512, threads=8)
            threads.append(len(os.listdir("/proc/self/task")) - before)
        library = ctypes.CDLL({str(library)!r})
        with open("/proc/self/maps") as file:
            runtimes = {{line.split()[-1] for line in file if "libgomp" in line or "libomp" in line}}
        library.in_a_region(ctypes.CFUNCTYPE(None)(call))
        print(len(runtimes), *threads)
    """
    runtimes, *threads = python_output(code).split()
    if runtimes != "1":
        pytest.skip("posenc and the compiled library have different OpenMP runtimes")
    assert threads == ["1", "0", "1", "0"]


def runtime_threads(setup="pass", **variables):
    return int(python_output(f"import os, posenc; {setup}; print(posenc.show_runtime()['threads'])",
                             **variables))


@openmp
def test_the_environment_limits_the_threads():
    default = runtime_threads(OMP_NUM_THREADS="", POSENC_NUM_THREADS="")
    for name in ("OMP_NUM_THREADS", "POSENC_NUM_THREADS"):
        assert runtime_threads(**{name: "1"}) == 1
        assert runtime_threads(**{name: "1000000000"}) == default
    assert runtime_threads(OMP_NUM_THREADS="1", POSENC_NUM_THREADS=str(default)) == default
    assert runtime_threads(OMP_NUM_THREADS="1,5") == 1
    assert runtime_threads(OMP_NUM_THREADS="many", POSENC_NUM_THREADS="") == default
    if hasattr(os, "sched_setaffinity"):
        assert runtime_threads("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})") == 1
    if find_spec("torch"):
        assert runtime_threads("import torch; torch.set_num_threads(1)", POSENC_NUM_THREADS="") == 1
        assert int(python_output("import torch, posenc; torch.set_num_threads(1); print(posenc.show_runtime()['threads'])",
                          POSENC_NUM_THREADS="")) == 1


@openmp
def test_threadpoolctl_limits_the_threads():
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1, user_api="openmp"):
        assert posenc.show_runtime()["threads"] == 1


ANY = os.fsdecode(b"\xff")
V1 = "sys/fs/cgroup/cpu/{}cpu.cfs_{}_us"
# files of the control groups, /proc/self/cgroup, expected quota
QUOTAS = {
    "version 2": ({"sys/fs/cgroup/job/cpu.max": "150000 100000\n"}, "0::/job\n", 2),
    "no limit": ({"sys/fs/cgroup/job/cpu.max": "max 100000\n"}, "0::/job\n", None),
    "limit of the parent": (
        {"sys/fs/cgroup/a/cpu.max": "50000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, "0::/a/b\n",
        1),
    "a name with line breaks": ({"sys/fs/cgroup/a\x0cb\x85/cpu.max": "200000 100000\n"}, "0::/a\x0cb\x85\n",
                                2),
    "a name of any bytes": ({f"sys/fs/cgroup/{ANY}/cpu.max": "200000 100000"}, f"0::/{ANY}\n", 2),
    "in a container": ({"sys/fs/cgroup/cpu.max": "400000 100000"}, "0::/\n", 4),
    "outside of the namespace": ({"sys/fs/cgroup/cpu.max": "400000 100000"}, "0::/../other\n", 4),
    "version 1": (
        {V1.format("docker/", "quota"): "250000\n", V1.format("docker/", "period"): "100000\n"},
        "5:memory:/docker\n4:cpu,cpuacct:/docker\n0::/docker\n", 3),
    "version 1, no limit": ({V1.format("", "quota"): "-1\n", V1.format("", "period"): "100000\n"},
                            "4:cpu:/docker\n", None),
    "missing files": ({}, "0::/job\n", None),
    "no groups": ({}, "", None),
    "no control groups": ({}, None, None),
}


@linux
@pytest.mark.parametrize("files, groups, expected", QUOTAS.values(), ids=QUOTAS)
def test_cgroup_quotas_are_read(tmp_path, files, groups, expected):
    for name, text in (files | {"proc/self/cgroup": groups} if groups is not None else {}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(os.fsencode(text))
    assert default_threads.quota(tmp_path) == expected


@pytest.mark.parametrize("expected, openmp, limits", [
    (4, 4, {}), (8, 16, {}), (6, 4, {"requested": 6}), (8, 4, {"requested": 10**30}), (3, 8, {"quota": 3}),
    (8, 16, {"quota": 20}), (2, 8, {"torch": 2}), (2, 2, {"torch": 8}), (5, 8, {"torch": 2, "requested": 5}),
    (7, 7, {"torch": "importing"}), (3, 10**6, {"affinity": PermissionError}),
])
def test_the_default_number_of_threads(monkeypatch, expected, openmp, limits):
    torch = limits.get("torch")
    module = types.SimpleNamespace() if torch == "importing" else torch and types.SimpleNamespace(get_num_threads=lambda: torch)
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(default_threads, "requested", lambda: limits.get("requested"))
    monkeypatch.setattr(default_threads, "quota", lambda: limits.get("quota"))
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    def affinity(pid):
        if "affinity" in limits:
            raise limits["affinity"]
        return set(range(8))

    monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)
    assert default_threads.allowed(openmp) == expected


SIZES = {"": 0, "512": 512 << 10, "2M": 2 << 20, " 1 g ": 1 << 30, "4096B": 4096, "9" * 30: sys.maxsize,
         "-1": 0, "many": 0}


@pytest.mark.parametrize("text, expected", SIZES.items(), ids=str)
def test_stack_sizes_are_parsed(monkeypatch, text, expected):
    monkeypatch.delenv("GOMP_STACKSIZE", raising=False)
    monkeypatch.setenv("OMP_STACKSIZE", text)
    assert default_threads.stack_size() == expected


SETTINGS = {
    "none": ({}, "2000"), "libgomp": ({"GOMP_SPINCOUNT": "77"}, "77"),
    "any runtime": ({"OMP_WAIT_POLICY": "passive"}, "0"),
}


@linux
@openmp
@pytest.mark.parametrize("variables, expected", SETTINGS.values(), ids=SETTINGS)
def test_openmp_settings_are_restored_after_import(variables, expected):
    """libgomp prints the settings that it read; the import leaves the environment unchanged."""
    names = ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"]
    code = f"import os; before = dict(os.environ); import posenc; print(before == dict(os.environ), *map(os.getenv, {names}))"
    environment = {name: value for name, value in os.environ.items() if name not in names} | variables
    environment["OMP_DISPLAY_ENV"] = "verbose"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.split() == ["True", *(str(variables.get(name)) for name in names)]
    if "GOMP_SPINCOUNT" in done.stderr:                     # LLVM's runtime does not print it
        assert f"GOMP_SPINCOUNT = '{expected}'" in done.stderr


# ---- limits of the system ----------------------------------------------------------------------------------

ALONE = """if True:
    import os, resource, sys, numpy as np, posenc
    expected = posenc.encode(8192, 512, threads=1)
    same = np.empty(expected.shape, bool)       # allocated here: threads may use the remaining memory
    {refuse}
    for threads in (None, 2, 64):
        assert np.equal(posenc.encode(8192, 512, threads=threads), expected, out=same).all()
    print(len(os.listdir("/proc/self/task")))
"""


# root changes to another user, because the limit does not apply to root
PROCESS_LIMIT = """
    if os.getuid() == 0:
        os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    """
# the remaining memory is just enough for the arrays of the calls
MEMORY_LIMIT = """
    kept = [np.empty((8192, 512), np.float32) for _ in range(3)]
    size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    del kept
    hoard = []
    while True:
        try:
            hoard.append(np.empty(1 << 19, np.uint8))
        except MemoryError:
            break
    del hoard[:66]
    """


@linux
@pytest.mark.parametrize("refuse, most", [
    (PROCESS_LIMIT, 1), pytest.param(MEMORY_LIMIT, 63, marks=pytest.mark.memory),
], ids=["processes", "memory"])
def test_calls_succeed_at_a_limit(refuse, most):
    assert int(python_output(ALONE.format(refuse=refuse), OPENBLAS_NUM_THREADS="1")) <= most


@linux
@openmp
@root
def test_calls_succeed_at_a_limit_reached_repeatedly():
    """The limit is three threads; in each round, the team grows from two threads to three."""
    code = """if True:
        import os, resource, posenc
        os.setuid(1 << 20 | os.getpid())
        resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
        most = 0
        for _ in range(500):
            posenc.encode(129, 64, threads=64)
            most = max(most, len(os.listdir("/proc/self/task")))
            posenc.encode(65, 64, threads=2)
        print(most)
    """
    assert python_output(code, OPENBLAS_NUM_THREADS="1") == "3"


@linux
@openmp
@root
def test_callers_grow_their_teams_at_a_limit():
    """The process ends if two callers test the same last threads of the limit, and both then start them."""
    code = """if True:
        import os, random, resource, threading, posenc
        os.setuid(1 << 20 | os.getpid())
        start = threading.Barrier(9)
        def call():
            start.wait()
            for _ in range(100):
                posenc.encode(4480, 64, threads=random.choice((2, 8, 16, 24, 32, 48, 64)))
        callers = [threading.Thread(target=call) for _ in range(8)]
        for caller in callers:
            caller.start()
        limit = len(os.listdir("/proc/self/task")) + 6
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        start.wait()
        for caller in callers:
            caller.join()
    """
    python_output(code, OPENBLAS_NUM_THREADS="1")


@linux
@openmp
@pytest.mark.parametrize("size, expected", [("48k", 0), ("1m", 2)])
def test_threads_with_small_stacks_do_not_start(size, expected):
    assert threads_after("posenc.encode(8192, 512, threads=3)", OMP_STACKSIZE=size) == expected


SMALL_STACKS = {
    "threading.stack_size": """
        threading.stack_size(1 << 16)
        caller = threading.Thread(target=call)
        caller.start()
        caller.join()
    """,
    "ulimit -s": """
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 16, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        call()
    """,
}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.parametrize("remedy", SMALL_STACKS)
def test_a_caller_with_a_small_stack_is_refused(remedy):
    code = """if True:
        import resource, threading, posenc
        def call():
            try:
                posenc.encode(100, 512)
            except MemoryError as error:
                print(error)
    """
    assert remedy in python_output(code + SMALL_STACKS[remedy])


@linux
@openmp
def test_threads_start_after_a_limit_is_lifted():
    code = """if True:
        import os, resource, posenc
        if os.getuid() == 0:
            os.seteuid(65534)
            os.setresuid(65534, 65534, 0)
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
        posenc.encode(8192, 512, threads=2)
        print(len(os.listdir("/proc/self/task")))
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
        posenc.encode(8192, 512, threads=2)
        print(len(os.listdir("/proc/self/task")))
    """
    assert python_output(code, OPENBLAS_NUM_THREADS="1").split() == ["1", "2"]


@linux
@openmp
def test_worker_threads_block_signals():
    """Run in a separate process, because the threads of other libraries may block every signal."""
    masks = python_output(f"""
import pathlib, posenc
{LARGE.replace(")", ", threads=2)")}
for status in pathlib.Path("/proc/self/task").glob("*/status"):
    print(next(line for line in status.read_text().splitlines() if line.startswith("SigBlk")).split()[1])
""")
    masks = [int(mask, 16) for mask in masks.split()]
    assert any(mask >> (2 - 1) & 1 for mask in masks)               # SIGINT
    # SIGSEGV, which the thread itself can cause
    assert not any(mask >> (11 - 1) & 1 for mask in masks)
