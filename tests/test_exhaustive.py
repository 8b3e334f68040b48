"""Compare the values at every position below 2**20 with MPFR, for several values of d_model and all dtypes.

``pytest -m exhaustive`` takes minutes and needs a C compiler and the headers of MPFR (libmpfr-dev).
"""

import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import gmpy2
import numpy as np
import pytest

import posenc
from conftest import DTYPES, HERE, bits_of, instruction_set
from reference import Reference

pytestmark = pytest.mark.exhaustive

COUNT = 2**20
FIELDS = np.dtype([("float64", "u8"), ("float32", "u4"), ("float16", "u2"), ("bfloat16", "u2")])


@pytest.fixture(scope="module")
def compute_column(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    program = tmp_path_factory.mktemp("reference") / "exhaustive"
    source = Path(__file__).with_name("exhaustive.c")
    subprocess.run([compiler, "-O2", "-o", program, source, "-lmpfr", "-lgmp"], check=True)

    def column(frequency, function, first, count):
        output = subprocess.run([program, frequency, function, str(first), str(count)], check=True,
                                capture_output=True)
        return np.frombuffer(output.stdout, FIELDS)

    return column


@pytest.mark.parametrize("d_model, base", [(2, 10000.0), (6, 10000.0), (11, 10000.0), (8, 500000.0), (16, 1e8)])
def test_every_position_is_correctly_rounded(compute_column, d_model, base):
    reference = Reference(d_model, base=base)
    tables = {(isa, dtype): encoded(isa, dtype, d_model, base) for isa in HERE for dtype in DTYPES}
    for column, (index, function) in enumerate(reference.columns):
        frequency = gmpy2.mpfr(reference.frequency(index, 320), 320)
        expected = compute_column(f"{frequency:.95g}", function, 0, COUNT)
        assert len(expected) == COUNT
        for (isa, dtype), table in tables.items():
            wrong = np.flatnonzero(bits_of(table)[:, column] != expected[dtype])
            assert not len(wrong), f"{isa}, {dtype}, column {column}: {len(wrong)} wrong, the first at position {wrong[0]}"


@lru_cache(maxsize=16)
def encoded(isa, dtype, d_model, base):
    with instruction_set(isa):
        return posenc.encode(COUNT, d_model, dtype=dtype, base=base)
