"""The repr and the HTML table of an Encoding."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from posenc import Encoding
from posenc._arguments.base_class import changes_of
from posenc._encoding.encoding import DEFAULTS

ENCODINGS = [
    Encoding(0),
    Encoding(512),
    Encoding(7, odd="zero", layout="halves", order="cos", scale=7**-0.5),
    Encoding(384, spacing="endpoint", position_offset=-1.5, position_scale=1 / 3),
    Encoding(6, exponents="column", shift=1, base=2.0**-0.5, frequency_scale=-np.pi),
    Encoding(16, frequencies=np.geomspace(1, 1e-4, 8)),
]


def parsed(html):
    """Return the caption, the text of the cell for each keyword, and the names of the bold cells."""
    table = ET.fromstring(html)
    cells = {row.find("th").text: row.find("td") for row in table.iter("tr")}
    return table.findtext("caption/code"), {name: "".join(cell.itertext()) for name, cell in cells.items()}, {
        name for name, cell in cells.items() if cell.find("b") is not None}


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_repr_evaluates_to_the_encoding(encoding):
    assert eval(repr(encoding), {"Encoding": Encoding}) == encoding


def test_repr_omits_defaults():
    assert repr(Encoding(512, base=10000, order="sin")) == "Encoding(512)"
    assert repr(Encoding(512, base=500, order="cos")) == "Encoding(512, base=500.0, order='cos')"


def test_repr_abbreviates_many_frequencies():
    encoding = Encoding(8192, frequencies=np.geomspace(1, 2**-12, 4096))
    assert repr(encoding) == "Encoding(8192, frequencies=<4096 numbers from 1.0 to 0.000244140625>)"
    with pytest.raises(SyntaxError):        # the text must not evaluate to a different encoding
        eval(repr(encoding), {"Encoding": Encoding})
    assert len(encoding._repr_html_()) < 2000


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_html_shows_the_whole_convention(encoding):
    caption, cells, bold = parsed(encoding._repr_html_())
    assert caption == repr(encoding) and list(cells) == ["d_model", *DEFAULTS]
    assert Encoding(**{name: eval(value) for name, value in cells.items()}) == encoding
    assert bold == {"d_model", *changes_of(encoding)}


def test_html_is_escaped():
    encoding = Encoding(18, frequencies=range(9))
    assert "<9" in repr(encoding) and "<9" not in encoding._repr_html_()
    assert parsed(encoding._repr_html_())[1]["frequencies"] == "<9 numbers from 0.0 to 8.0>"
