"""Flags of the user do not change the bits; the program of tools/sanitize.sh fits the kernels."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import HERE
from test_hash import HASH, ROTATION_HASH

ROOT = Path(__file__).parents[1]
KERNEL = ROOT / "src/posenc/_core/c"
FAST = ["-Ofast", "-ffast-math", "-funsafe-math-optimizations", "-ffinite-math-only", "-fassociative-math",
        "-freciprocal-math", "-fno-signed-zeros", "-fno-trapping-math"]
COMPILERS = [pytest.param(name, flags,
                          marks=pytest.mark.skipif(not shutil.which(name), reason="not installed"), id=name)
             for name, flags in (("gcc", [*FAST, "-mfpmath=387"]), ("clang", FAST))]

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="requires the source tree")


@pytest.mark.long
@pytest.mark.parametrize("compiler, flags", COMPILERS)
def test_flags_do_not_change_the_bits_or_the_program(compiler, flags, tmp_path):
    built = tmp_path / "site"
    shutil.copytree(ROOT / "src", built, ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    environment = {**os.environ, "CC": compiler, "CFLAGS": " ".join(["-g0", *flags]), "PYTHONPATH": str(built)}
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-temp", tmp_path, "--build-lib", built], cwd=ROOT,
                   env=environment, check=True)
    print_hashes = "import test_hash; print(test_hash.table_hash(), test_hash.rotation_hash(), test_hash.posenc.__file__)"
    # the import must not let the processor flush subnormal numbers to zero
    code = f"import sys; sys.path.append({str(ROOT / 'tests')!r}); {print_hashes}; assert float('1e-310') * 0.5 > 0"
    for isa in HERE:
        output = subprocess.check_output([sys.executable, "-c", code], env={**environment, "POSENC_ISA": isa},
                                         text=True)
        assert output.split() == [HASH, ROTATION_HASH, str(built / "posenc/__init__.py")], isa


@pytest.mark.parametrize("flag",
                         ["-ffast-math", "-ffinite-math-only", "-fsingle-precision-constant", "-mfpmath=387"])
def test_the_kernels_refuse_inexact_arithmetic(flag):
    version = subprocess.run(["gcc", "--version"], capture_output=True,
                             text=True).stdout if shutil.which("gcc") else "none"
    if "Free Software Foundation" not in version:               # on macOS, gcc is clang
        pytest.skip("requires GCC")
    command = ["gcc", f"-I{KERNEL}", "-fsyntax-only", "-x", "c", KERNEL / "kernel.h"]
    assert subprocess.run(command, capture_output=True).returncode == 0
    refused = subprocess.run([*command, flag], capture_output=True, text=True)
    assert refused.returncode != 0 and re.search("posenc needs|recognized", refused.stderr)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_program_for_the_thread_sanitizer_compiles():
    script = (ROOT / "tools/sanitize.sh").read_text(encoding="utf-8")
    arguments = re.search(r"\$compiler \$flags (.* tests/race\.c) ", script)[1].split()
    result = subprocess.run(["cc", "-fsyntax-only", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
