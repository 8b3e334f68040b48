"""Measure cases of rivals.py with 1, 2, 4, 8 and 16 threads: ``python benchmarks/threads.py``

Requires at least 16 processors, and the packages of performance.py.  Writes docs/data/threads.json, and updates
the tables.
"""

import time

import pages
from common import save, versions
from performance import LIBRARIES, measured, system, used_by_others

if __name__ == "__main__":
    begin, before, document = time.perf_counter(), used_by_others(), {}
    for name in pages.SCALING:
        document[name] = measured(name, (1, 2, 4, 8, 16))
        print(name, *({key: f"{values[1] * 1e3:.4g} ms" for key, values in calls.items() if key != "error"}
                      for calls in document[name].values()), sep="\n  ", flush=True)
        others = (used_by_others() - before) / (time.perf_counter() - begin)
        save("threads", document | {"system": system(others), "versions": versions(*LIBRARIES)})
    pages.update()
