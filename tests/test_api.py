"""Results for valid arguments, and a few errors; test_mistakes.py tests most invalid arguments."""

import copy
import gc
import os
import pickle
import platform
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import Tensor, assert_same_bits, python_output
from posenc import Encoding
from posenc._encoding.encoding import _cached


def test_integers_stay_exact_next_to_real_numbers():
    integers = [2**62, -(2**53) - 2, 7]
    mixed = posenc.encode([*integers, 0.5, np.inf], 8, dtype="float64")
    assert (mixed[:3] == posenc.encode(integers, 8, dtype="float64")).all()


def test_floating_point_flags_are_not_raised():
    with np.errstate(all="raise"):
        posenc.encode([np.nan, np.inf, 1e-300, 5e-324, 0.5], 64, scale=1e300)
        row = posenc.encode(np.array([0x7FA00000], np.uint32).view(np.float32), 3)      # a signalling NaN
    assert (row.view(np.uint32) == 0x7FC00000).all()


def test_positions_may_overlap_the_output():
    out = np.arange(40.0).reshape(4, 10)
    expected = posenc.encode(np.arange(4.0), 10, dtype="float64")
    assert_same_bits(posenc.encode(out.reshape(-1)[:4], 10, dtype="float64", out=out), expected)
    x = np.arange(9.0).reshape(3, 3)
    expected = posenc.add_to(x.copy(), x[1].copy())
    assert_same_bits(posenc.add_to(x, x[1]), expected)


class WithoutValues(Encoding):
    def encode(self, positions, **_):
        return None


@pytest.mark.parametrize("offset", [1, 0.5, 1.5, -3.5, 2.0**62 + 1024, 2.0**63 - 1024])
def test_an_endless_stream_ends_with_the_domain(offset):
    encoding = Encoding(4, position_offset=offset)
    assert_same_bits(next(encoding.stream(chunk_rows=9)).values, encoding.encode(9))
    chunks = list(WithoutValues(4, position_offset=offset).stream(chunk_rows=2**62))
    last = chunks[-1].positions[-1]
    encoding.encode(np.array(last))
    assert sum(len(c.positions) for c in chunks) == last + 1
    with pytest.raises(ValueError, match="positions has"):
        encoding.encode(range(last + 1, last + 2))


def test_chunks_of_a_stream_share_no_memory():
    chunks = list(posenc.stream(10, 4, chunk_rows=4))
    assert not any(np.shares_memory(a.values, b.values) for a in chunks for b in chunks if a is not b)


class Doubled(Encoding):
    """A subclass; pickle requires a class at module level."""

    def encode(self, positions, **keywords):
        return 2 * super().encode(positions, **keywords)


@pytest.mark.parametrize("duplicate",
                         [copy.copy, copy.deepcopy, lambda encoding: pickle.loads(pickle.dumps(encoding))])
def test_copies_keep_the_subclass(duplicate):
    doubled = Doubled(4, base=3)
    assert type(duplicate(doubled)) is Doubled
    assert duplicate(doubled).encode(2).tobytes() == doubled.encode(2).tobytes()


@pytest.mark.skipif(platform.machine() not in ("aarch64", "arm64") or os.name == "nt",
                    reason="not built with NEON")
def test_neon_runs_on_arm64():
    assert posenc.show_runtime()["instruction_sets"] == {"neon": True, "baseline": True}


def test_x_scale_is_rounded_once():
    # above a tie, but not in float32; a tie
    for x_scale, expected in ((1 + 2**-8 + 2**-40, 1 + 2**-7), (1 + 2**-8, 1)):
        x = np.ones((1, 2), ml_dtypes.bfloat16)
        posenc.add_to(x, x_scale=x_scale)
        assert x[0, 0] == expected
    x = np.ones((1, 2), np.float32)
    with np.errstate(all="raise"):
        posenc.add_to(x, x_scale=1e-46)
        assert x.tolist() == [[0.0, 1.0]]
        with pytest.raises(ValueError, match="x_scale is 1e\\+300"):
            posenc.add_to(x, x_scale=1e300)
    assert x.tolist() == [[0.0, 1.0]]


def test_an_x_resized_during_the_checks_is_refused():
    x = np.zeros((1, 5000))

    class Scale:
        def __float__(self):
            x.resize((1, 1), refcheck=False)
            return 1.0

    with pytest.raises(ValueError, match="x has shape"):
        posenc.Encoding(5000).add_to(x, x_scale=Scale())


def test_fork_while_another_thread_builds_the_offset_table():
    code = """
        import os, posenc, threading, time
        for delay in (0, 1e-4, 3e-4, 1e-3):
            encoding = posenc.Encoding(2048, base=3 + delay)
            thread = threading.Thread(target=encoding.encode, args=(64,))
            thread.start()
            time.sleep(delay)
            child = os.fork()
            if child == 0:
                encoding.encode(64)
                os._exit(7)
            thread.join()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    python_output(code, PYTHONWARNINGS="ignore")


def test_optional_packages_are_imported_on_demand():
    calls = "posenc.encode([1.5, numpy.nan], 4, dtype='float64'); posenc.add_to(numpy.ones((2, 4)), [1, 2])"
    calls += "; posenc.encode(3, 4, base=5); posenc.encode(numpy.array([numpy.nan]), 4)"
    code = "import sys, posenc; assert not {'ml_dtypes', 'matplotlib', 'torch', 'zarr'} & set(sys.modules); "
    code += "import numpy; before = set(sys.modules); "
    python_output(f"{code}{calls}; assert set(sys.modules) == before")


def test_frequencies_of_an_encoding_are_read_only():
    for encoding in (posenc.Encoding(8), posenc.Encoding(4, frequencies=[1, 0.5])):
        before = encoding.frequencies.tolist()
        with pytest.raises(ValueError, match="read-only"):
            encoding.frequencies[0] = 3
        with pytest.raises(ValueError, match="WRITEABLE"):
            encoding.frequencies.flags.writeable = True
        assert encoding.frequencies.tolist() == before


def test_a_changed_argument_is_converted_again():
    """A tensor stays equal to itself when its value changes."""
    number = Tensor("torch.float64", 10.0)
    before = posenc.encode(3, 4, base=number)
    number.number = 5.0
    after = posenc.encode(3, 4, base=number)
    assert (after == Encoding(4, base=5.0).encode(3)).all() and (after != before).any()
    reference = weakref.ref(number)
    del number
    assert reference() is None
    width = Tensor("torch.int64", 4)
    assert posenc.encode(3, width).shape == (3, 4)
    width.number = 6
    assert posenc.encode(3, width).shape == (3, 6)


@pytest.mark.parametrize("convert", [list, np.array, np.float32])
def test_lists_and_arrays_of_frequencies_use_the_cache(convert):
    frequencies = convert([0.25, 0.125])
    before, hits = posenc.encode(3, 4, frequencies=frequencies), _cached.cache_info().hits
    assert_same_bits(posenc.encode(3, 4, frequencies=frequencies), before)
    assert _cached.cache_info().hits == hits + 1
    frequencies[1] = 0.5
    assert_same_bits(posenc.encode(3, 4, frequencies=frequencies), Encoding(4, frequencies=(0.25, 0.5)).encode(3))
    unhashable = [[1, 2]] if convert is list else np.ones((1, 2))
    with pytest.raises(ValueError, match=r"frequencies has shape \(1, 2\)"):
        posenc.encode(3, 4, frequencies=unhashable)
    with pytest.raises(TypeError, match=r"base is \[1, 2\] of type list"):
        posenc.encode(3, 4, base=[1, 2])


def test_very_wide_encodings_are_not_cached():
    posenc.encode(1, 2**16 + 2)
    assert not [e for e in gc.get_objects() if type(e) is Encoding and e.d_model == 2**16 + 2]


def test_the_type_of_a_keyword_is_checked_after_an_equal_value_was_cached():
    posenc.encode(3, 4, padding_idx=1)
    with pytest.raises(TypeError, match="padding_idx"):
        posenc.encode(3, 4, padding_idx=1.0)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.memory
def test_cached_encodings_take_bounded_memory():
    """Read VmHWM, because ru_maxrss of a new process starts at the value of its parent."""
    code = """
        import posenc
        for i in range(64):
            posenc.encode(100, 8192, position_scale=1 / (i + 1))
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
        assert int(peak.split()[1]) < 300_000
    """
    python_output(code)


@pytest.mark.parametrize("convention, expected", [
    ({"base": 1e300, "shift": 1.75, "position_scale": 2.0**1000}, [1, 0]),
    ({"base": 1e300, "position_scale": 0}, [1, 1e-150]),
    ({"base": 1e200, "shift": 2.25, "position_scale": 1e-300}, [1, np.inf]),
    ({"base": 1e-200, "shift": 1.75, "position_scale": 1e-300, "frequency_scale": -3}, [-3, -np.inf]),
    ({"base": 2.0**-1000, "shift": 1.0, "frequency_scale": 2.0**-1074}, [2.0**-1074, 2.0**-74]),
])
def test_frequencies_outside_the_range_of_float64(convention, expected):
    assert_same_bits(posenc.Encoding(4, **convention).frequencies, np.array(expected, np.float64))


def test_frequencies_are_limited_even_if_the_position_scale_is_zero():
    with pytest.raises(ValueError, match=r"frequencies range from 2\*\*-3989"):
        _ = posenc.Encoding(4, base=1e300, shift=1.75, position_scale=0).frequencies


@pytest.mark.parametrize("shift", [1e300, -1e300, 1.7e308, -1.7e308])
@pytest.mark.parametrize("convention", [{}, {"base": 1 + 2.0**-52}, {"exponents": "column"}], ids=str)
def test_frequencies_with_an_extreme_shift(convention, shift):
    assert (posenc.Encoding(4, shift=shift, **convention).frequencies == 1).all()
