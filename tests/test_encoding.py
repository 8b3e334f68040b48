"""An Encoding as a value: its attributes, `replace`, dicts, and its use in place of d_model and keywords."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posenc
from conftest import python_output
from posenc import Encoding
from posenc._encoding.encoding import KEYWORDS
from posenc._files.table import TableSpecification, specification_in
from test_inputs import conventions

EXPLICIT = Encoding(6, frequencies=(0.1, -2.0, 3e-300), order="cos")

DEFAULTS = {name: keyword.default for name, keyword in KEYWORDS.items()}


@settings(deadline=None, max_examples=25)
@given(st.data(), st.integers(0, 40), st.integers(-2**62, 2**62), st.integers(1, 9))
def test_an_encoding_survives_json(data, d_model, start, step):
    convention = data.draw(conventions(d_model))
    encoding, positions = Encoding(d_model, **convention), range(start, start + 10 * step, step)
    document = json.loads(json.dumps(encoding.to_dict()))
    assert document == encoding.to_dict() and Encoding.from_dict(document) == encoding
    for name, value in convention.items():
        assert np.array_equal(getattr(encoding, name), value)
    document = json.loads(json.dumps(TableSpecification(positions, encoding, "float32").document()))
    assert specification_in(document, (10, d_model)) == (positions, encoding, "float32")


def test_a_dict_holds_every_keyword():
    document = EXPLICIT.to_dict()
    convention = DEFAULTS | {"frequencies": [0.1, -2.0, 3e-300], "order": "cos"}
    assert document == {"version": posenc.__version__, "d_model": 6, "convention": convention}
    assert Encoding.from_dict(document) == EXPLICIT


@pytest.mark.parametrize("document, message", [
    ([], "document is .* expected a dict"),
    ({"d_model": 8}, "document is .* expected a dict with d_model and"),
    ({"d_model": 8, "convention": {}, "theta": 5}, "document has theta"),
    ({"d_model": 8, "convention": []}, "document is .* expected a dict"),
    ({"d_model": 8, "convention": {"theta": 5}}, "argument 'theta'.*base"),
    ({"d_model": 8, "convention": {"base": -1.0}}, "base is -1.0"),
    ({"d_model": "8", "convention": {}}, "d_model is '8'"),
])
def test_other_dicts_are_refused(document, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Encoding.from_dict(document)


def test_attributes_are_those_of_the_constructor_and_read_only():
    encoding = Encoding(8, base=500, padding_idx=3, layout="halves")
    assert (encoding.base, type(encoding.base), encoding.padding_idx, encoding.layout) == (500.0, float, 3, "halves")
    for name, default in DEFAULTS.items():
        if name != "frequencies":
            assert getattr(Encoding(8), name) == default
        with pytest.raises(AttributeError):
            setattr(encoding, name, default)
    for instance in (encoding, posenc.Rotary(8)):
        with pytest.raises(AttributeError):
            instance.__init__(16)


@pytest.mark.parametrize("encoding", [
    Encoding(0), Encoding(7, odd="zero", layout="halves", order="cos", scale=7**-0.5),
    Encoding(384, spacing="endpoint", position_offset=-1.5, position_scale=1 / 3),
    Encoding(6, exponents="column", shift=1, base=2.0**-0.5, frequency_scale=-np.pi),
    Encoding(16, frequencies=np.geomspace(1, 1e-4, 8)),
], ids=repr)
def test_repr_evaluates_to_the_encoding(encoding):
    assert eval(repr(encoding), {"Encoding": Encoding}) == encoding


def test_repr_omits_defaults_and_abbreviates_many_frequencies():
    assert repr(Encoding(512, base=10000, order="sin")) == "Encoding(512)"
    assert repr(Encoding(512, base=500, order="cos")) == "Encoding(512, base=500.0, order='cos')"
    encoding = Encoding(8192, frequencies=np.geomspace(1, 2**-12, 4096))
    assert repr(encoding) == "Encoding(8192, frequencies=<4096 numbers from 1.0 to 0.000244140625>)"
    with pytest.raises(SyntaxError):        # the text must not evaluate to a different encoding
        eval(repr(encoding), {"Encoding": Encoding})


def test_replace():
    whisper = posenc.preset("whisper", 384)
    assert whisper.replace(d_model=512) == posenc.preset("whisper", 512)
    assert whisper.replace(shift=1) == Encoding(384, shift=1, layout="halves", odd=whisper.odd)
    assert EXPLICIT.replace(order="sin").replace(order="cos") == EXPLICIT
    assert Encoding(6, base=5.0, shift=0.5).replace(frequencies=[1, 2, 3]) == Encoding(6, frequencies=[1, 2, 3])
    assert whisper.replace() == whisper.replace(shift=None) == whisper          # None excludes nothing
    assert Encoding(6, base=5.0).replace(frequencies=None) == Encoding(6, base=5.0)
    assert EXPLICIT.__replace__(d_model=6, scale=2.0) == EXPLICIT.replace(scale=2.0)      # for copy.replace
    for base in (5.0, 10000.0):
        with pytest.raises(ValueError, match="frequencies and base"):
            EXPLICIT.replace(base=base)
    with pytest.raises(TypeError, match="theta"):
        whisper.replace(theta=5.0)


def test_an_encoding_stands_for_d_model_and_keywords():
    table = EXPLICIT.encode(7)
    np.testing.assert_array_equal(posenc.encode(7, EXPLICIT), table)
    np.testing.assert_array_equal(next(posenc.stream(7, EXPLICIT)).values, table)
    np.testing.assert_array_equal(posenc.add_to(np.ones((7, 6), np.float32), encoding=EXPLICIT), 1 + table)
    np.testing.assert_array_equal(posenc.dask.table(7, EXPLICIT).compute(), table)
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(posenc.torch.PositionalEncoding(EXPLICIT)(torch.zeros(2, 7, 6))[1].numpy(),
                                  table)
    np.testing.assert_array_equal(posenc.torch.PositionalTable(EXPLICIT, 7)().numpy(), table)


@pytest.mark.parametrize("statement, name, package", [
    ("posenc.{}", "torch", "torch"), ("import posenc.{}", "torch", "torch"),
    ("from posenc.{} import *", "torch", "torch"), ("posenc.{}", "dask", "dask"),
    ("posenc.{}", "plot", "matplotlib"),
])
def test_unknown_and_missing_optional_parts_are_reported(name, package, statement):
    with pytest.raises(AttributeError, match="module 'posenc' has no attribute 'jax'"):
        _ = posenc.jax
    code = f"""
        import sys, posenc
        sys.modules[{package!r}] = None             # as if it were not installed
        try:
            {statement.format(name)}
        except ImportError as error:
            print(error)
        """
    text = python_output(code)
    assert text.startswith(f"posenc.{name} needs {package}") and f"pip install {package}" in text
