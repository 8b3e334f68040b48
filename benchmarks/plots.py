"""Draw docs/images/accuracy.svg (README) and positions.svg (docs/performance.md):
``python benchmarks/plots.py``

The files adapt to the colour scheme of the browser: if it is dark, a style sheet replaces each colour with a
dark one.
"""

import hashlib
import io
import json
import re

import matplotlib as mpl
import pages
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

IMAGES = pages.ROOT / "docs" / "images"
WIDTH = 700 / 96                        # inches
# (light, dark), distinguishable by colour-blind readers (Okabe and Ito)
PAPER, INK, GREY, GRID = ("#ffffff", "#0d1117"), ("#1f2328", "#e6edf3"), ("#6b7280", "#9aa4af"), ("#e3e7eb",
                                                                                                  "#2a3038")
POSENC, TORCH, NUMPY = ("#0072b2", "#56b4e9"), ("#d55e00", "#ff9a4d"), ("#00855f", "#2cc79a")
STYLE = {
    "font.size": 12,
    "svg.fonttype": "none",
    "svg.hashsalt": "posenc",
    "figure.facecolor": PAPER[0],
    "axes.facecolor": PAPER[0],
    "axes.edgecolor": GREY[0],
    "axes.labelcolor": INK[0],
    "text.color": INK[0],
    "xtick.color": GREY[0],
    "ytick.color": GREY[0],
    "xtick.labelcolor": INK[0],
    "ytick.labelcolor": INK[0],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID[0],
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.2,
    "lines.solid_capstyle": "round",
}


def power(value, _):
    """Format a power of ten as in Python, such as 1e6."""
    exponent = f"{value:.0e}".partition("e")[2]
    return f"1e{int(exponent)}" if int(exponent) else "1"


def fix_ticks(axis, ticks, form):
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(form))


def title(ax, text):
    ax.set_title(text, loc="left", size=13, weight="bold", pad=8)


# ---- plots -------------------------------------------------------------------------------------------------


def accuracy():
    data = pages.load("accuracy")
    figure = Figure((WIDTH, 560 / 96), layout="constrained")
    tables, rotations = figure.subplots(2, 1, sharex=True, height_ratios=[5, 3])
    draw_errors(tables, data["errors"], [
        ("torch recipe, bfloat16", TORCH, 3e2, 10, "left"),
        ("torch recipe, float32", TORCH, 2e3, 2e-5, "left"),
        ("NumPy recipe, float64", NUMPY, 3e5, 1e-12, "left"),
        ("posenc, bfloat16", POSENC, 2e18, 3e-4, "right"),
        ("posenc, float32", POSENC, 2e18, 4e-9, "right"),
        ("posenc, float64", POSENC, 2e18, 4e-16, "right"),
    ])
    tables.axhline(2**-25, color=GREY[0], linewidth=8, alpha=0.35, zorder=1)
    tables.text(2e18, 2e-7, "half an ulp of float32", ha="right", va="center")
    tables.text(2e18, 10, "2: no correct digit", ha="right", va="center")
    tables.set(xlim=(1, 2e18), ylim=(1e-17, 30))
    fix_ticks(tables.yaxis, [10.0**n for n in range(-16, 1, 4)], power)
    title(tables, "Largest error by position, d_model 512")
    (llama,
     ) = (name.rpartition(",")[0] for name in data["rotation errors"] if name.endswith("Llama, float32"))
    (other,) = (name for name in data["rotation errors"] if name.startswith("rotary-")
                and name.endswith("bfloat16"))
    draw_errors(rotations, data["rotation errors"], [
        (other, NUMPY, 1e3, 8, "left"),
        (f"{llama}, bfloat16", TORCH, 4e6, 2.5e-2, "left"),
        (f"{llama}, float32", TORCH, 2e4, 2e-5, "left"),
        ("posenc, bfloat16", POSENC, 2e18, 8e-4, "right"),
        ("posenc, float32", POSENC, 2e18, 1e-8, "right"),
    ])
    rotations.set(ylim=(1e-9, 30))
    fix_ticks(rotations.yaxis, [10.0**n for n in range(-8, 1, 4)], power)
    fix_ticks(rotations.xaxis, [10**n for n in range(0, 19, 3)], power)
    rotations.set_xlabel("position (a timestamp in nanoseconds is about 1.7e18)")
    title(rotations, "Rotary embeddings: error relative to the length of the pair")
    return figure


def positions():
    figure = Figure((WIDTH, 260 / 96), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    labels = ["share of irregular rows in %", "bits of positions"]
    for ax, label, times in zip(axes, labels, pages.load("positions")["curves"].values(), strict=True):
        low, middle, high = ([seconds[i] / 8192 * 1e9 for seconds in times.values()] for i in range(3))
        ax.plot([int(x) for x in times], middle, color=POSENC[0], marker="o", markersize=4)
        ax.fill_between([int(x) for x in times], low, high, color=POSENC[0], alpha=0.3, linewidth=0)
        ax.set_xlabel(label)
    axes[0].set(ylabel="ns per row", ylim=(0, None))
    title(axes[0], "Time of a row of 512 columns, float32, one thread")
    return figure


def draw_errors(ax, errors, lines):
    """Draw and label lines (name, colour, x and y of the label, its alignment)."""
    for name, colour, x, y, align in lines:
        ax.plot([int(p) for p in errors[name]], list(errors[name].values()), color=colour[0])
        ax.text(x, y, name, color=colour[0], ha=align, va="center")
    ax.set(xscale="log", yscale="log")


def digest(name):
    """Return a hash of the data; tests/test_docs.py compares it with the hash in the image."""
    return hashlib.sha256(json.dumps(pages.load(name)).encode()).hexdigest()


def style_sheet():
    rules = [f'[style*="{key}: {light}"] {{ {key}: {dark} !important }}' for light, dark in
             (PAPER, INK, GREY, GRID, POSENC, TORCH, NUMPY) for key in ("fill", "stroke")]
    text = "text { font-family: system-ui, sans-serif !important }"
    return f"<style>{text}\n@media (prefers-color-scheme: dark) {{\n" + "\n".join(rules) + "\n}</style>"


def draw(plot):
    """Write a plot to docs/images in one line, with coordinates to a hundredth of a point."""
    file, name = io.StringIO(), plot.__name__
    with mpl.rc_context(STYLE):
        plot().savefig(file, format="svg", metadata={"Date": None, "Description": digest(name)})
    text = file.getvalue().replace("<defs>", f"{style_sheet()}<defs>", 1)
    text = re.sub(r"(\.\d\d)\d+", r"\1", " ".join(text.split()))
    (IMAGES / f"{name}.svg").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw(accuracy)
    draw(positions)
