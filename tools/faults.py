#!/usr/bin/env python3
"""Make the changes of faults.txt one by one in a copy of the tree: a test or a proof must fail.

The copy has the files of git's index.  The test files or the proof that a line names run first; if they pass,
the whole default suite of tests runs. The exit code is 1 if a fault is missed.  Faults in posenc.torch need
PyTorch, and proofs need Gappa and Sollya.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import prove  # adds proofs/ to the path
from headers import replaced

LIST = Path(__file__).with_name("faults.txt")
COMPILED = (".c", ".h", ".pyx", ".pxd", ".pxi")
LONGEST = "1800"            # seconds; a fault may cause a deadlock


class Fault(NamedTuple):
    file: str
    finders: tuple[str, ...]    # test files, or a proof
    old: str
    new: str

    def __str__(self):
        return f"{self.file}: `{self.old}` to `{self.new}`" if self.new else f"{self.file}: without `{self.old}`"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="run only faults whose file, text, tests or proof contain a word")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="use N copies of the tree side by side")
    parser.add_argument("--named", action="store_true", help="run only the named test files, not the default suite")
    parser.add_argument("--check", action="store_true", help="only check that the texts occur exactly once")
    args = parser.parse_args()
    faults = read_list()
    if args.check:
        print(f"{len(faults)} faults")
        return 0
    chosen = [f for f in faults if not args.words or any(word in f"{f} {f.finders}" for word in args.words)]
    if not importlib.util.find_spec("torch"):
        chosen = [f for f in chosen if "/torch/" not in f.file]
    proofs = [f for f in chosen if f.finders[0].startswith("proofs/")]
    # fewer builds
    others = sorted((f for f in chosen if f not in proofs), key=lambda f: f.file.endswith(COMPILED))
    found = {f: f.finders[0] for f in proofs if prove.finds(f.finders[0], f[:1] + f[2:])}
    if others:
        check_clean(others)
    with ThreadPoolExecutor(args.jobs) as pool:
        for result in pool.map(lambda k: work(others[k :: args.jobs], args.named), range(args.jobs)):
            found |= result
    for fault in chosen:
        print(f"{fault}: {found.get(fault) or 'NOT FOUND'}")
    missed = len([fault for fault in chosen if not found.get(fault)])
    print(f"{len(chosen)} faults, {missed} not found")
    return missed > 0


def read_list():
    """Return the faults, or end the program if the text of a fault does not occur exactly once."""
    faults, wrong, file = [], [], ""
    for line in re.sub(r"\n {8,}", " ", LIST.read_text("utf-8")).splitlines():
        if not line.startswith("    "):
            file = line
            continue
        finders, change = line.strip().split(": ", 1)
        finders = tuple(f"{'tests' if name.endswith('.py') else 'proofs'}/{name}" for name in finders.split())
        faults.append(Fault(file, finders, *(text.strip() for text in f"{change} ".split(" => "))))
        count = replaced((prove.ROOT / file).read_text("utf-8"), *faults[-1][2:])[1]
        if count != 1:
            wrong.append(f"{faults[-1]}: {count} occurrences, expected one")
        wrong += [f"{name} does not exist" for name in faults[-1].finders if not (prove.ROOT / name).exists()]
    if wrong:
        sys.exit("\n".join(wrong))
    return faults


# ---- a copy of the tree ------------------------------------------------------------------------------------


def copied(folder):
    subprocess.run(["git", "checkout-index", "--all", f"--prefix={folder}/posenc/"], cwd=prove.ROOT, check=True)
    return Path(folder, "posenc")


def check_clean(faults):
    """End the program if a named test fails without a fault, because it would seem to find every fault."""
    with tempfile.TemporaryDirectory(prefix="posenc-faults-") as folder:
        copy = copied(folder)
        build(copy)
        if failed := run_tests(copy, sorted({name for fault in faults for name in fault.finders})):
            sys.exit(f"{failed} fails without a fault")


def work(faults, named_only):
    """Return what finds each fault."""
    result, stale = {}, True
    with tempfile.TemporaryDirectory(prefix="posenc-faults-") as folder:
        copy = copied(folder)
        for fault in faults:
            begin, path = time.monotonic(), copy / fault.file
            text, compiled = path.read_text("utf-8"), path.suffix in COMPILED
            path.write_text(replaced(text, fault.old, fault.new)[0], "utf-8")
            if stale or compiled:
                build(copy)
            found = run_tests(copy, fault.finders) or not named_only and run_tests(copy, [])
            path.write_text(text, "utf-8")
            result[fault], stale = found, compiled
            print(f"{fault}: {found or 'NOT FOUND'} ({time.monotonic() - begin:.0f} s)", flush=True)
    return result


def environment(copy):
    # tests must import the copy, without stale bytecode: a restored file may have the size and the time of
    # the changed file
    return os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def build(copy):
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the build ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def run_tests(copy, files):
    """Return the first test that failed, a signal or the time limit; "" if all passed."""
    command = ["timeout", "--signal=KILL", LONGEST, sys.executable, "-m", "pytest", "-x", "-q", "--tb=no",
               "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, text=True)
    if done.returncode < 0 or done.returncode > 128:
        return f"{' '.join(files) or 'the default suite'} (a signal, or no end after {LONGEST} s)"
    failed = re.search(r"^(?:PARALLEL )?(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode and not failed:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}")
    return failed[1].removeprefix("tests/") if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
