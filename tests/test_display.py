"""The repr and the HTML table of an Encoding."""

from html.parser import HTMLParser

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


class Table(HTMLParser):
    """Parse the caption, the cells and the bold cells of a table; check that its tags match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.caption, self.cells, self.bold = [], "", {}, set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "caption" in self.open:
            self.caption += data
        elif "th" in self.open:
            self.name = data
        else:
            self.cells[self.name] = self.cells.get(self.name, "") + data
            if "b" in self.open:
                self.bold.add(self.name)


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
    table = Table(encoding._repr_html_())
    assert table.caption == repr(encoding)
    assert list(table.cells) == ["d_model", *DEFAULTS]
    assert Encoding(**{name: eval(value) for name, value in table.cells.items()}) == encoding
    assert table.bold == {"d_model", *changes_of(encoding)}


def test_html_is_escaped():
    encoding = Encoding(18, frequencies=range(9))
    assert "<9" in repr(encoding) and "<9" not in encoding._repr_html_()
    assert Table(encoding._repr_html_()).cells["frequencies"] == "<9 numbers from 0.0 to 8.0>"
