"""A forked child uses one thread and computes the same bits, for every state of the parent and every method
of forking.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posenc

if not hasattr(os, "fork"):
    pytest.skip("no fork on this system", allow_module_level=True)

# Arguments: when to import torch (before or after posenc, or never), the folder of posenc, and the number of
# rounds.  Prints a line for each case.  A server that forks after it loaded the application, such as
# gunicorn, is the case "idle, os.fork".
MATRIX = r"""
import ctypes, multiprocessing, os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")                     # Python warns when a multithreaded process forks
when_torch, folder, rounds = sys.argv[1:]
if when_torch == "before":
    import torch
import numpy as np, posenc
if when_torch == "after":
    import torch
assert os.path.realpath(posenc.__file__).startswith(os.path.realpath(folder)), posenc.__file__
libc = ctypes.PyDLL(None)                           # keeps the interpreter lock, like a C extension
ROWS, WIDE = 2048, posenc.Encoding(512)
EXPECTED = WIDE.encode(ROWS, threads=1)
FRESH = posenc.Encoding(64, base=77.0)              # the child builds its offset table
ROTARY, KEYS = posenc.Rotary(64), np.ones((2, ROWS, 64), np.float32)
ROTATED = ROTARY.rotate(KEYS.copy(), threads=1)

def correct(threads):
    return bool((WIDE.encode(ROWS, threads=threads).view("u4") == EXPECTED.view("u4")).all()
                and (ROTARY.rotate(KEYS.copy(), threads=threads).view("u4") == ROTATED.view("u4")).all())

def tasks():
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1

def child():
    signal.alarm(20)
    before = tasks()                                # torch's libraries may have started threads in the child
    ok = correct(2) and correct(None)
    x = np.zeros((2, ROWS, 512), np.float32)
    WIDE.add_to(x, threads=2)
    ok = ok and bool((x[1] == EXPECTED).all()) and FRESH.encode(4000, threads=3).shape == (4000, 64)
    ok = ok and tasks() == before
    return 7 if ok and posenc.show_runtime()["threads"] == 1 else 1

def wait_for(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def fork_by(function):
    def run():
        pid = function()
        if pid == 0:
            os._exit(child())
        return wait_for(pid)
    return run

def by_multiprocessing():
    process = multiprocessing.get_context("fork").Process(target=lambda: os._exit(child()))
    process.start()
    process.join()
    return process.exitcode

def by_a_thread():
    result = []
    thread = threading.Thread(target=lambda: result.append(fork_by(os.fork)()))
    thread.start()
    thread.join()
    return result[0]

def by_a_child():
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(fork_by(os.fork)())
    return wait_for(pid)

METHODS = {"os.fork": fork_by(os.fork), "libc.fork": fork_by(libc.fork), "multiprocessing": by_multiprocessing,
           "a thread": by_a_thread, "a child": by_a_child}
C_FORKS = ("libc.fork", "libc._Fork")
if hasattr(libc, "_Fork"):                          # it skips the handlers registered with pthread_atfork
    METHODS["libc._Fork"] = fork_by(libc._Fork)

def idle(name):
    assert correct(2) and correct(None)
    if when_torch != "never":
        torch.set_num_threads(2)
        torch.ones(2000, 2000).sum()
    return lambda: None

def in_threads(work, arguments):
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    return threads

def during_a_call(name):
    slow = np.full(4, 5e-324)                       # slow: evaluated by Python
    if name in C_FORKS:                             # Python's child may wait for a thread that waited for the interpreter lock
        slow = 1 << 16                              # evaluated in C
    def work(count):
        WIDE.encode(slow, dtype="float64", threads=count)
        posenc.Rotary(64, scale=2.0**-100).rotate(KEYS[:, :2].copy(), threads=count)
    threads = in_threads(work, [2])
    return lambda: [thread.join() for thread in threads]

def busy_threads(name):
    stop = threading.Event()
    def work(count):
        while not stop.is_set():
            assert correct(count)
    threads = in_threads(work, [2, 3, 1])
    def end():
        stop.set()
        for thread in threads:
            thread.join()
    return end

for state in (idle, during_a_call, busy_threads) * int(rounds):
    for name, method in METHODS.items():
        if state is busy_threads and name in C_FORKS:
            continue        # as in during_a_call
        end = state(name)
        result = method()
        end()
        print(f"parent {state.__name__}, fork by {name}: {result}", flush=True)
        assert result == 7
assert correct(2)
if when_torch != "never":
    torch.set_num_threads(1)            # limits posenc, too, even if it has another OpenMP runtime
    assert posenc.show_runtime()["threads"] == 1
"""


@pytest.mark.parametrize("when_torch, rounds", [
    # 1,000 forks
    ("never", 1), ("before", 1), ("after", 1), pytest.param("never", 70, marks=pytest.mark.long),
])
def test_every_fork_in_every_state(when_torch, rounds):
    if when_torch != "never":
        pytest.importorskip("torch")
    command = [sys.executable, "-c", MATRIX, when_torch, Path(posenc.__file__).parent, str(rounds)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60 * rounds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) >= 14


# number of rows and call: values that Python evaluates after two threads have left them undecided, and
# rotated values
CALLS = {
    "encode": (2000, lambda rows, **options: posenc.encode(np.full(rows, 5e-324), 32, dtype="float64", **options)),
    "rotate": (60_000, lambda rows, threads=None, out=None: posenc.Rotary(512).rotate(
        np.ones((rows, 512), np.float32), np.full(rows, 3), out=out, threads=threads)),
}


@pytest.mark.parametrize("rows, call", CALLS.values(), ids=CALLS)
def test_a_signal_handler_may_fork_during_a_call(rows, call):
    """The child computes the remaining rows of the call with one thread."""
    expected = call(1)
    children = []
    before = signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
    out = np.full((rows, expected.shape[1]), np.nan, expected.dtype)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        while not children:
            call(rows, out=out, threads=2)
        correct = out.tobytes() == expected.tobytes() * rows
        if children == [0]:
            os._exit(7 if correct else 1)
        assert correct
        (child,) = children
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    finally:
        if children == [0]:
            os._exit(2)
        signal.signal(signal.SIGALRM, before)
