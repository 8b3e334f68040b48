"""The default number of threads, limited by the process, by OpenMP and by the user."""

import functools
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


def allowed(openmp: int) -> int:
    """Return the default number of threads of a large call, at least 1.

    `openmp` is the number of threads that OpenMP would use now, which OMP_NUM_THREADS or threadpoolctl may
    have set.
    """
    processors = _usable()
    return max(1, min(requested() or min(openmp, _torch() or openmp), processors, quota() or processors))


def _torch() -> int | None:
    """Return torch's number of threads, or None if torch is not loaded.  It may use another OpenMP runtime."""
    number: Callable[[], int] | None = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return number() if number else None


def _usable() -> int:
    """Return the number of processors that this thread may use or, if unknown, that the system has."""
    with suppress(AttributeError, OSError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def quota(root: str = "/") -> int | None:
    """Return the CPU quota of the process's control groups in processors, rounded up, or None without a limit."""
    try:
        groups = os.fsdecode(Path(root, "proc/self/cgroup").read_bytes())
    except OSError:
        return None
    quotas: list[float] = []
    for line in filter(None, groups.split("\n")):      # not splitlines: a group's name may contain any character except \n
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            quotas += _quotas(Path(root, "sys/fs/cgroup"), group, ["cpu.max"])
        elif "cpu" in controllers.split(","):
            quotas += _quotas(Path(root, "sys/fs/cgroup/cpu"), group, ["cpu.cfs_quota_us", "cpu.cfs_period_us"])
    return max(1, math.ceil(min(quotas))) if quotas else None


def _quotas(mount: Path, group: str, files: list[str]) -> Iterator[float]:
    """Yield the quotas of a group and its parents.  In a container, the files may be in the mount itself."""
    folder = Path(mount, group.lstrip("/"))
    for parent in (folder, *folder.parents):
        with suppress(OSError, ValueError):         # no such file, or "max": no limit
            time, period = map(int, b" ".join((parent / name).read_bytes() for name in files).split())
            if time > 0 and period > 0:             # -1: no limit
                yield time / period
        if parent == mount:
            break


@functools.cache
def requested() -> int | None:
    """Return the value of POSENC_NUM_THREADS, or None if it is not set."""
    text = os.environ.get("POSENC_NUM_THREADS")
    if not text:
        return None
    with suppress(ValueError):
        if int(text) >= 1:
            return int(text)
    raise ValueError(f"POSENC_NUM_THREADS is {text!r}, expected an integer of at least 1")


def stack_size() -> int:
    """Return the stack size of each OpenMP thread in bytes, or 0 if no environment variable sets it."""
    for name in ("OMP_STACKSIZE", "GOMP_STACKSIZE"):
        match = re.fullmatch(r"\s*(\d+)\s*([bkmg]?)\s*", os.environ.get(name, ""), re.IGNORECASE | re.ASCII)
        if match:
            return min(int(match[1]) << {"b": 0, "m": 20, "g": 30}.get(match[2].lower(), 10), sys.maxsize)
    return 0
