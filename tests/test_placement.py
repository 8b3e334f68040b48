"""The affinity masks that a call sets while its team runs, and restores afterwards."""

import os
import subprocess
import sys

import pytest

from conftest import compiled
from posenc._core import kernel

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or not kernel.OPENMP, reason="masks are changed on Linux, with OpenMP"),
    pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one processor"),
]
# The library prints each mask that a call sets.  If `change` is 1 or 2, it acts like `taskset -a` during the call: all
# threads are restricted to the caller's processor, or to the mask of the call.
LIBRARY = """
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int change;
int sched_setaffinity(pid_t thread, size_t size, const cpu_set_t *mask) {
    char numbers[8192] = "";
    int length = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, mask)) length += sprintf(numbers + length, ",%d", i);
    dprintf(1, "%d %d %s\\n", (int)thread, sched_getcpu(), numbers + 1);
    int result = (int)syscall(SYS_sched_setaffinity, thread, size, mask);
    cpu_set_t wanted = *mask;
    if (change == 1) {
        CPU_ZERO(&wanted);
        CPU_SET(sched_getcpu(), &wanted);
    }
    if (change) {
        syscall(SYS_sched_setaffinity, getpid(), sizeof wanted, &wanted);
        syscall(SYS_sched_setaffinity, thread, sizeof wanted, &wanted);
        change = 0;
    }
    return result;
}
void GOMP_barrier(void) { dprintf(1, "barrier\\n"); }
"""
PROGRAM = """if True:
    import ctypes, os, posenc
    def masks():
        return {{task: sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")}}
    posenc.encode(20_000, 512, threads=2)           # not so small that calls avoid a team that starts late
    if "libgomp" not in open("/proc/self/maps").read():
        os._exit(77)
    ctypes.c_int.in_dll(ctypes.CDLL("{library}"), "change").value = {change}
    os.write(1, b"begin\\n")
    posenc.encode(20_000, 512, threads=2)
    os.write(1, b"end\\n")
    print(masks())
"""


def run(program, **variables):
    inherited = {name: value for name, value in os.environ.items() if name not in ("OMP_PROC_BIND", "OMP_PLACES")}
    environment = inherited | {"OPENBLAS_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)
    if done.returncode == 77:
        pytest.skip("not GNU's runtime")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def masks_of(tmp_path_factory):
    """Return a function that returns each mask of a call, as (thread, the caller's processor, mask), and the masks after it."""
    library = compiled(tmp_path_factory.mktemp("masks"), LIBRARY)

    def masks(change=0, **variables):
        preload = f"{os.environ.get('LD_PRELOAD', '')} {library}"
        text = run(PROGRAM.format(library=library, change=change), LD_PRELOAD=preload, **variables)
        assert "barrier" not in text                # at which the caller would wait for a thread that starts late
        during, after = text.partition("begin\n")[2].split("end\n")
        rows = (line.split() for line in during.splitlines())
        return [(thread, int(here), set(map(int, mask.split(",")))) for thread, here, mask in rows], eval(after)

    return masks


def test_a_call_keeps_its_threads_off_the_callers_processor_and_restores_the_masks(masks_of):
    allowed = os.sched_getaffinity(0)
    (first, here, mask), *_, (last, _, restored) = masks_of()[0]
    assert (first, mask, restored) == (last, allowed - {here}, allowed)


def test_no_mask_allows_more_processors_than_before(masks_of):
    during, after = masks_of()
    assert all(mask <= os.sched_getaffinity(0) for _, _, mask in during)
    assert set(map(tuple, after.values())) == {tuple(sorted(os.sched_getaffinity(0)))}


def test_an_environment_variable_switches_the_placement_off(masks_of):
    assert masks_of(POSENC_NO_PLACEMENT="1")[0] == []
    assert masks_of(POSENC_NO_PLACEMENT="")[0] != []


@pytest.mark.parametrize("change", [1, 2])
def test_masks_that_another_program_sets_during_a_call_are_kept(masks_of, change):
    (_, here, mask), *others = (during := masks_of(change))[0]
    wanted = [here] if change == 1 else sorted(mask)
    assert all(mask <= set(wanted) for _, _, mask in others)
    assert all(after == wanted for after in during[1].values())


def test_masks_do_not_change():
    """For threads with the caller's mask, then for a caller on one processor, then for all threads on one processor."""
    run("""if True:
        import os, time, posenc
        def masks():
            return {task: os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")}
        def call():
            before = masks()
            for _ in range(10):
                time.sleep(0.001)
                posenc.encode(20_000, 512, threads=4)
                assert masks() == before, (masks(), before)
        posenc.encode(20_000, 512, threads=4)
        one = {min(os.sched_getaffinity(0))}
        call()
        os.sched_setaffinity(0, one)
        call()
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), one)
        call()
    """)
