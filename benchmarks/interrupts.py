"""How soon after Ctrl-C a long call ends:  python benchmarks/interrupts.py [TRIALS]

Each trial starts a process, sends it SIGINT at a random moment of the call, and takes the time until KeyboardInterrupt is
caught, or for `posenc generate` until it is raised and until the process is gone.  Needs 7 GB of memory and a folder that
holds some GB.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CALLS = {
    "encode": ("out = np.ones((2**20, 512), 'f8')", "posenc.encode(2**20, 512, dtype='float64', out=out, threads={threads})"),
    "encode, scattered": (
        "out = np.ones((2**19, 512), 'f4'); p = np.random.default_rng(0).integers(0, 2**40, len(out))",
        "posenc.encode(p, 512, out=out, threads={threads})",
    ),
    "encode, the slowest values": (
        "out = np.ones((2000, 512)); p = np.full(2000, 5e-324)",
        "posenc.encode(p, 512, dtype='float64', out=out, threads={threads})",
    ),
    "add_to": ("x = np.ones((768, 4096, 512), 'f4')", "posenc.add_to(x, threads={threads})"),
    "stream": ("", "for _ in posenc.stream(None, 512, threads={threads}): pass"),
    "stream, chunks of 1 GB": ("", "for _ in posenc.stream(None, 512, chunk=2**19, threads={threads}): pass"),
}
TRIAL = """
import time, numpy as np, posenc
{setup}
try:
    print("now", flush=True)
    {call}
    print("over")
except KeyboardInterrupt:
    print(time.monotonic())
"""


def of_a_call(setup, call):
    """Seconds, or None where the call was over before."""
    process = subprocess.Popen([sys.executable, "-c", TRIAL.format(setup=setup, call=call)], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(random.uniform(0.02, 0.45))
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    end = process.communicate()[0].strip()
    return float(end) - sent if end and end != "over" else None


GENERATE = """
import signal, sys, time
from posenc._cli import main

def handler(*_):
    print(time.monotonic(), flush=True)
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, handler)
sys.exit(main(["generate", "2000000", "512", "-o", sys.argv[1]]))
"""


def of_generate():
    """Seconds until KeyboardInterrupt is raised, and until the process is gone: the system takes its time to free the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.npy")
        command = [sys.executable, "-c", GENERATE, str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while not os.listdir(folder):
            time.sleep(1e-3)
        time.sleep(random.uniform(0.02, 1.0))
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        raised = process.communicate()[0]
        gone = time.monotonic() - sent
        over = path.exists()
        assert over or not os.listdir(folder)
        return None if over or not raised else (float(raised) - sent, gone)


def main(trials=20):
    for name, (setup, call) in CALLS.items():
        for threads in (1, 2):
            seconds = [of_a_call(setup, call.format(threads=threads)) for _ in range(trials)]
            report(f"{name}, threads={threads}", [s for s in seconds if s is not None])
    both = [s for s in (of_generate() for _ in range(trials)) if s is not None]
    report("generate, raised", [raised for raised, _ in both])
    report("generate, process gone", [gone for _, gone in both])


def report(name, seconds):
    print(f"{name:40} {len(seconds):3} interrupted, the last after {max(seconds, default=0):.3f} s", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
