"""How many threads are worth having: the processors that this process may use, and what the user said."""

import functools
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


def allowed(openmp: int) -> int:
    """Threads that a large call takes by default, at least 1.

    Parameters
    ----------
    openmp : int
        What OpenMP would take now in this thread, which has OMP_NUM_THREADS in it, and whatever limits threadpoolctl and
        others set.
    """
    processors = _usable()
    return max(1, min(wanted() or min(openmp, _torch() or openmp), processors, quota() or processors))


def _torch() -> int | None:
    """What torch would take now in this thread, where it is loaded: it may have an OpenMP runtime of its own."""
    number: Callable[[], int] | None = getattr(sys.modules.get("torch"), "get_num_threads", None)
    return number() if number else None


def _usable() -> int:
    """Processors that this thread may use; all, where the system does not tell, or a sandbox lets nobody ask."""
    with suppress(AttributeError, OSError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def quota(root: str = "/") -> int | None:
    """Processors' worth of time that the control groups of the process grant it, rounded up; None without a limit."""
    try:
        groups = os.fsdecode(Path(root, "proc/self/cgroup").read_bytes())
    except OSError:
        return None
    granted: list[float] = []
    for line in filter(None, groups.split("\n")):      # a group's name may have any other character
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            granted += _grants(Path(root, "sys/fs/cgroup"), group, _version_2)
        elif "cpu" in controllers.split(","):
            granted += _grants(Path(root, "sys/fs/cgroup/cpu"), group, _version_1)
    return max(1, math.ceil(min(granted))) if granted else None


def _grants(mount: Path, group: str, read: Callable[[Path], tuple[int, int]]) -> Iterator[float]:
    """What each of a group and its parents grants; in a container the group's own folder may be the mount itself."""
    folder = Path(mount, group.lstrip("/"))
    for each in (folder, *folder.parents):
        with suppress(OSError, ValueError):         # no such file; "max", for no limit
            granted, period = read(each)
            if granted > 0 and period > 0:          # -1: no limit
                yield granted / period
        if each == mount:
            break


def _version_2(folder: Path) -> tuple[int, int]:
    granted, period = (folder / "cpu.max").read_bytes().split()
    return int(granted), int(period)


def _version_1(folder: Path) -> tuple[int, int]:
    return int((folder / "cpu.cfs_quota_us").read_bytes()), int((folder / "cpu.cfs_period_us").read_bytes())


@functools.cache
def wanted() -> int | None:
    """POSENC_NUM_THREADS, or None."""
    text = os.environ.get("POSENC_NUM_THREADS")
    if not text:
        return None
    with suppress(ValueError):
        if int(text) >= 1:
            return int(text)
    raise ValueError(f"POSENC_NUM_THREADS is {text!r}, expected an integer of at least 1")


def stack_size() -> int:
    """Bytes of the stack of each of OpenMP's threads, 0 where nobody set them."""
    for name in ("OMP_STACKSIZE", "GOMP_STACKSIZE"):
        found = re.fullmatch(r"\s*(\d+)\s*([bkmg]?)\s*", os.environ.get(name, ""), re.IGNORECASE | re.ASCII)
        if found:
            return min(int(found[1]) << {"b": 0, "m": 20, "g": 30}.get(found[2].lower(), 10), sys.maxsize)
    return 0
