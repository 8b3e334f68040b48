#!/usr/bin/env python3
"""Apply the faults of faults.toml one by one to a copy of the tree, and run the tests: each fault must make a test fail.

A fault replaces text that occurs exactly once in a file.  The test files that it names run first; if they pass, the whole
default suite runs.  The exit code is 1 if the tests miss a fault.  Faults in posenc.torch need PyTorch.
"""

import argparse
import importlib.util
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_name("faults.toml")
COMPILED = (".c", ".h", ".pyx", ".pxd", ".pxi")
LONGEST = 1800              # seconds; a fault may cause a deadlock


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="run only faults whose file, text or tests contain a word")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="use N copies of the tree side by side")
    parser.add_argument("--named", action="store_true", help="run only the named test files, not the default suite")
    parser.add_argument("--check", action="store_true", help="only check that the texts occur exactly once")
    args = parser.parse_args()
    faults = read_table()
    if args.check:
        print(f"{len(faults)} faults")
        return 0
    chosen = [f for f in faults if not args.words or any(word in str(f.values()) for word in args.words)]
    if not importlib.util.find_spec("torch"):
        chosen = [f for f in chosen if "/torch/" not in f["file"]]
    check_clean(chosen)
    waiting = queue.SimpleQueue()
    for fault in sorted(chosen, key=lambda f: f["file"].endswith(COMPILED)):        # grouped, because this needs fewer builds
        waiting.put(fault)
    with ThreadPoolExecutor(args.jobs) as pool:
        for worker in [pool.submit(work, waiting, args.named) for _ in range(args.jobs)]:
            worker.result()
    print("\n| file | fault | caught by |\n|---|---|---|")
    for fault in chosen:
        print(f"| {fault['file']} | {shown(fault)} | {fault.get('caught') or '**nothing**'} |")
    missed = [f for f in chosen if not f.get("caught")]
    print(f"\n{len(chosen)} faults, {len(missed)} not caught")
    return bool(missed)


def read_table():
    """Return the faults, or end the program if the text of a fault does not occur exactly once."""
    faults = tomllib.loads(TABLE.read_text("utf-8"))["fault"]
    wrong = []
    for fault in faults:
        count = (ROOT / fault["file"]).read_text("utf-8").count(fault["old"])
        if count != 1 or fault["old"] == fault["new"]:
            wrong.append(f"{fault['file']}: {fault['old']!r} occurs {count} times, expected once")
        wrong += [f"{test} does not exist" for test in fault["tests"].split() if not (ROOT / "tests" / test).exists()]
    if wrong:
        sys.exit("\n".join(wrong))
    return faults


def shown(fault):
    text = f"`{fault['old']}` to `{fault['new']}`" if fault["new"] else f"without `{fault['old']}`"
    return " ".join(text.split()).replace("|", "\\|") + (f"; {fault['note']}" if "note" in fault else "")


# ---- a copy of the tree ---------------------------------------------------------------------------------------------


def copied(folder):
    copy = Path(folder, "posenc")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


def check_clean(faults):
    """End the program if a named test fails without a fault, because this test would seem to catch every fault."""
    with tempfile.TemporaryDirectory(prefix="posenc-faults-") as folder:
        copy = copied(folder)
        build(copy)
        if failed := run_tests(copy, sorted({f"tests/{test}" for fault in faults for test in fault["tests"].split()})):
            sys.exit(f"{failed} fails without a fault")


def work(waiting, named_only):
    with tempfile.TemporaryDirectory(prefix="posenc-faults-") as folder:
        copy = copied(folder)
        stale = True
        while not waiting.empty():
            try:
                fault = waiting.get_nowait()
            except queue.Empty:
                return
            begin = time.monotonic()
            path = copy / fault["file"]
            text = path.read_text("utf-8")
            path.write_text(text.replace(fault["old"], fault["new"]), "utf-8")
            compiled = path.suffix in COMPILED
            if stale or compiled:
                build(copy)
            fault["caught"] = run_tests(copy, [f"tests/{test}" for test in fault["tests"].split()])
            if not fault["caught"] and not named_only:
                fault["caught"] = run_tests(copy, [])
            path.write_text(text, "utf-8")
            stale = compiled
            result = f"caught by {fault['caught']}" if fault["caught"] else "NOT CAUGHT"
            print(f"{fault['file']}: {shown(fault)}: {result} ({time.monotonic() - begin:.0f} s)", flush=True)


def environment(copy):
    # tests must import the copy, without stale bytecode: a restored file may have the size and the time of the changed file
    return os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def build(copy):
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the build ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def run_tests(copy, files):
    """Return the first test that failed, or the signal or time limit that ended the tests; "" if all passed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *files]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=copy, env=environment(copy), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return f"{' '.join(files) or 'the default suite'} (no end after {LONGEST} s)"
        output.seek(0)
        text = output.read()
    if code == 0:
        return ""
    if code < 0:
        return f"{' '.join(files) or 'the default suite'} (signal {-code})"
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    if not failed:
        sys.exit(f"{' '.join(command)} ended with {code}:\n{text[-2000:]}")
    return failed[1].removeprefix("tests/")


if __name__ == "__main__":
    sys.exit(main())
