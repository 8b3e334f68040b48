"""Plots: the pixels, lines and labels that matplotlib draws."""

import math
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import posenc.plot
from posenc import Encoding, _cli

ROOT = Path(__file__).parent.parent
PLOTS = [posenc.plot.heatmap, posenc.plot.waves, posenc.plot.similarity]
ENCODING = Encoding(16, layout="halves", base=50.0)


def drawn(ax):
    """Draw the figure; return its pixels, top row first."""
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def colour_at(ax, pixels, x, y):
    """Return the colour at a point in data coordinates."""
    column, height = ax.transData.transform((x, y))
    return pixels[len(pixels) - 1 - int(height), int(column)] / 255


def ticks(axis):
    """Return the labels of the visible ticks by coordinate."""
    low, high = sorted(axis.get_view_interval())
    labels = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return {at: label.get_text() for at, label in labels if low <= at <= high}


def png_size(path):
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


# ---- content -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, -3.0])
def test_heatmap_shows_each_value_in_its_cell(scale):
    encoding = Encoding(16, layout="halves", base=50.0, scale=scale)
    ax = posenc.plot.heatmap(encoding, 12)
    pixels = drawn(ax)
    image = ax.images[0]
    for position in range(12):
        for dimension in range(16):
            angle = position * 50.0 ** (-(dimension % 8) / 8)
            value = scale * (math.cos(angle) if dimension >= 8 else math.sin(angle))
            expected = image.cmap((value / abs(scale) + 1) / 2)
            assert np.abs(colour_at(ax, pixels, dimension, position) - expected).max() < 0.02
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("dimension", "position")
    bar = image.colorbar
    assert bar.ax.get_ylabel() == "value" and (bar.vmin, bar.vmax) == (-abs(scale), abs(scale))
    blue, white, red = (np.array(image.cmap(x)[:3]) for x in (0.1, 0.5, 0.9))
    assert blue[2] > blue[0] and white.min() > 0.9 and red[0] > red[2]


def test_nan_is_not_drawn_as_zero():
    ax = posenc.plot.heatmap(ENCODING, np.array([0.0, np.nan]))
    pixels = drawn(ax)
    zero, nan = (colour_at(ax, pixels, 0, row)[:3] for row in (0, 1))
    assert zero.min() > 0.9 and nan.max() < 0.6


def test_waves_show_the_columns():
    positions = np.linspace(-3, 10, 40)
    ax = posenc.plot.waves(ENCODING, positions, dimensions=[1, 9])
    for line, function in zip(ax.lines, (np.sin, np.cos), strict=True):
        assert np.array_equal(line.get_xdata(), positions)
        assert np.abs(line.get_ydata() - function(positions * 50.0 ** (-1 / 8))).max() < 1e-14
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("position", "value")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1", "9"]
    assert ax.get_legend().get_title().get_text() == "dimension"


def test_similarity_shows_dot_products():
    ax = posenc.plot.similarity(ENCODING, range(3, 60, 3))
    image = ax.images[0].get_array()
    distance = 3 * (np.arange(19)[:, None] - np.arange(19))
    expected = sum(np.cos(distance * 50.0 ** (-i / 8)) for i in range(8))
    assert np.abs(image - expected).max() < 1e-13
    assert ax.get_xlabel() == ax.get_ylabel() == "position" and ax.images[0].colorbar.ax.get_ylabel() == "dot product"
    pixels = drawn(ax)
    diagonal, off = (colour_at(ax, pixels, 9, row)[:3].sum() for row in (9, 14))
    assert diagonal > off
    assert ticks(ax.xaxis) == ticks(ax.yaxis)


@pytest.mark.parametrize("positions, label, expected", [
    (range(6), "position", {0: "0", 2: "2", 5: "5"}),
    (range(30, 0, -5), "position", {0: "30", 5: "5"}),
    (np.array([0.5, 1.25, 999]), "position", {0: "0.5", 1: "1.25", 2: "999"}),
    (range(10**18, 10**18 + 18, 3), "position \N{MINUS SIGN} 1,000,000,000,000,000,000",
     {0: "0", 1: "3", 5: "15"}),
    (np.array([1.7e9, np.inf, 1.7e9 + 0.5]), "position \N{MINUS SIGN} 1,700,000,000.0",
     {0: "0", 1: "inf", 2: "0.5"}),
])
def test_rows_are_labelled_by_position(positions, label, expected):
    ax = posenc.plot.heatmap(ENCODING, positions)
    assert all(at == round(at) for at in ticks(ax.yaxis))
    ax.yaxis.set_ticks(list(expected))
    drawn(ax)
    assert ax.get_ylabel() == label and ticks(ax.yaxis) == expected


@pytest.mark.parametrize("draw", PLOTS)
def test_all_text_is_inside_the_image_and_legible(draw):
    """The image is at most 800 pixels wide, to fit in a README, and its text is at least 10 pixels high."""
    ax = draw(ENCODING.replace(scale=1.23456789, frequency_scale=0.123456789, odd="zero"),
              range(10**17, 10**17 + 200))
    pixels = drawn(ax)
    assert pixels.shape[1] <= 800
    texts = [text for text in ax.figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert {"position \N{MINUS SIGN} 100,000,000,000,000,000"} <= {text.get_text() for text in texts}
    for text in texts:
        box = text.get_window_extent()
        if text in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            continue                    # matplotlib keeps some labels beyond the axes, but does not draw them
        assert box.x0 >= 0 and box.x1 <= pixels.shape[1] and box.y0 >= 0 and box.y1 <= pixels.shape[0], text
        assert text.get_fontsize() * ax.figure.dpi / 72 >= 10


# ---- behaviour ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", PLOTS)
def test_plots_change_no_global_state(draw, monkeypatch):
    monkeypatch.setattr(pyplot, "show", lambda *args, **keywords: pytest.fail("pyplot.show was called"))
    settings, figures = dict(pyplot.rcParams), pyplot.get_fignums()
    ax, (left, right) = draw(ENCODING, 5), Figure().subplots(1, 2)
    assert draw(ENCODING, 5, ax=right) is right and right.has_data() and not left.has_data()
    assert dict(pyplot.rcParams) == settings and pyplot.get_fignums() == figures
    assert ax.figure.axes[0] is ax and ax.get_title() == "Encoding(16, base=50.0, layout='halves')"


def test_the_size_of_a_similarity_matrix_is_limited():
    with pytest.raises(ValueError, match="5000 x 5000 values"):
        posenc.plot.similarity(Encoding(2), 5000)


# ---- the command line --------------------------------------------------------------------------------------


def test_the_command_writes_an_image(tmp_path, capsys):
    path = tmp_path / "pe.png"
    for options in ([], ["--kind", "waves", "--force"]):
        assert _cli.main(["plot", "-o", str(path), *options]) == 0
        kind = options[1] if options else "heatmap"
        assert capsys.readouterr().out.startswith(f"{path}: {kind} of 100 x 128, ")
        assert png_size(path) == (800, 450) and list(tmp_path.iterdir()) == [path]
        before = path.read_bytes()
        assert _cli.main(["plot", "-o", str(path)]) == 1 and path.read_bytes() == before


def test_the_image_of_the_readme_is_up_to_date(tmp_path):
    """With the same version of matplotlib, the command in the README draws the same image."""
    picture = ROOT / "docs/images/heatmap.png"
    assert picture.stat().st_size < 60_000 and png_size(picture) == (800, 450)
    (line,) = re.findall(r"`posenc (plot .*?)` .* draws this picture", (ROOT / "README.md").read_text())
    if f"Matplotlib version{matplotlib.__version__}".encode() not in picture.read_bytes():
        pytest.skip("the image was drawn by another version of matplotlib")
    assert _cli.main(line.replace("heatmap.png", str(tmp_path / "heatmap.png")).split()) == 0
    assert (tmp_path / "heatmap.png").read_bytes() == picture.read_bytes()


@pytest.mark.parametrize("kind, suffix, start", [
    ("heatmap", ".png", b"\x89PNG"), ("heatmap", ".pdf", b"%PDF"), ("waves", ".svg", b"<?xml"),
    ("similarity", ".png", b"\x89PNG"),
])
def test_every_kind_and_format_is_written(tmp_path, kind, suffix, start):
    path = tmp_path / f"pe{suffix}"
    options = ["--positions", "9", "--d-model", "6", "--start", "-4", "--base", "2"]
    assert _cli.main(["plot", "-o", str(path), "--kind", kind, *options]) == 0
    assert path.read_bytes().startswith(start)
    if suffix == ".svg":
        assert "Encoding(6, base=2.0)" in path.read_text()


@pytest.mark.parametrize("arguments, code, message", [
    ("-o a.npy", 1, "Format 'npy' is not supported"),
    ("-o a.png --positions 1e30", 2, "'1e30'"),
    ("-o a.png --base 0", 1, "base is 0"), ("-o nope/x.png", 1, "nope/x.png: "),
])
def test_invalid_plot_arguments_are_reported(tmp_path, monkeypatch, capsys, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    assert _cli.main(["plot", *arguments.split()]) == code
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
