"""Measure the time from Ctrl-C to the end of a long call.  ``python benchmarks/interrupts.py [TRIALS]``

Each trial starts a process, sends SIGINT at a random time during the call, and measures the time until KeyboardInterrupt is
caught.  For `posenc generate`, a trial measures the times until KeyboardInterrupt is raised and until the process ends.
Requires 7 GB of memory and several GB of space for temporary files.
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
    "encode, random positions": (
        "out = np.ones((2**19, 512), 'f4'); p = np.random.default_rng(0).integers(0, 2**40, len(out))",
        "posenc.encode(p, 512, out=out, threads={threads})",
    ),
    "encode, the slowest values": (
        "out = np.ones((2000, 512)); p = np.full(2000, 5e-324)",
        "posenc.encode(p, 512, dtype='float64', out=out, threads={threads})",
    ),
    "add_to": ("x = np.ones((768, 4096, 512), 'f4')", "posenc.add_to(x, threads={threads})"),
    "rotate": (
        "x = np.ones((64, 2**13, 128), 'f4'); rotary = posenc.Rotary(128)",
        "for _ in range(99): rotary.rotate(x, threads={threads})",
    ),
    "rotate, the slowest values": (
        "x = np.ones((64, 2**13, 128), 'f4'); rotary = posenc.Rotary(128, scale=2.0**-100)",
        "rotary.rotate(x, threads={threads})",
    ),
    "stream": ("", "for _ in posenc.stream(None, 512, threads={threads}): pass"),
    "stream, chunks of 1 GB": ("", "for _ in posenc.stream(None, 512, chunk_rows=2**19, threads={threads}): pass"),
}
TRIAL = """
import time, numpy as np, posenc
{setup}
try:
    print("begin", flush=True)
    {call}
    print("end")
except KeyboardInterrupt:
    print(time.monotonic())
"""


def time_of_call(setup, call):
    """Return the seconds until KeyboardInterrupt is caught, or None if the call ended before the signal."""
    process = subprocess.Popen([sys.executable, "-c", TRIAL.format(setup=setup, call=call)], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(random.uniform(0.02, 0.45))
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    caught = process.communicate()[0].strip()
    return float(caught) - sent if caught and caught != "end" else None


GENERATE = """
import signal, sys, time
from posenc._cli import main

def handler(*_):
    print(time.monotonic(), flush=True)
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, handler)
sys.exit(main(["generate", "2000000", "512", "-o", sys.argv[1]]))
"""


def times_of_generate():
    """Return the seconds until KeyboardInterrupt and until the process ends, or None if the file was completed."""
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
        ended = time.monotonic() - sent
        complete = path.exists()
        assert complete or not os.listdir(folder)
        return None if complete or not raised else (float(raised) - sent, ended)


def main(trials=20):
    for name, (setup, call) in CALLS.items():
        for threads in (1, 2):
            seconds = [time_of_call(setup, call.format(threads=threads)) for _ in range(trials)]
            report(f"{name}, threads={threads}", [s for s in seconds if s is not None])
    pairs = [pair for pair in (times_of_generate() for _ in range(trials)) if pair is not None]
    report("generate, until raised", [raised for raised, _ in pairs])
    report("generate, until the process ends", [ended for _, ended in pairs])


def report(name, seconds):
    print(f"{name:40} {len(seconds):3} interrupted, in at most {max(seconds, default=0):.3f} s", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
