"""Draw the plot of the README, docs/images/accuracy.svg.  ``python benchmarks/plots.py``

docs/conf.py draws the other plots when it builds the documentation.  The files adapt to the colour scheme of the browser: if
it is dark, a style sheet replaces each colour with a dark one.
"""

import hashlib
import io
import json
import re

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

import pages

IMAGES = pages.ROOT / "docs" / "images"
WIDTH = 700 / 96                        # inches
# (light, dark), distinguishable by colour-blind readers (Okabe and Ito)
PAPER, INK, GREY, GRID = ("#ffffff", "#0d1117"), ("#1f2328", "#e6edf3"), ("#6b7280", "#9aa4af"), ("#e3e7eb", "#2a3038")
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


def label_ends(ax, x, ends):
    """Write labels beside the ends of lines, at least 17 pixels apart; `ends` is {text: (y, colour)}."""
    below, gap = -1, 17 / (ax.figure.get_figheight() * 96 * ax.get_position().height)
    for text, (y, colour) in sorted(ends.items(), key=lambda item: item[1][0]):
        _, height = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))
        below = max(height, below + gap)
        ax.text(1.02, below, text, color=colour[0], transform=ax.transAxes, va="center")


# ---- plots --------------------------------------------------------------------------------------------------------------


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
    (llama,) = (name.rpartition(",")[0] for name in data["rotation errors"] if name.endswith("Llama, float32"))
    (other,) = (name for name in data["rotation errors"] if name.startswith("rotary-") and name.endswith("bfloat16"))
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


def draw_errors(ax, errors, lines):
    """Draw and label lines (name, colour, x and y of the label, its alignment)."""
    for name, colour, x, y, align in lines:
        ax.plot([int(p) for p in errors[name]], list(errors[name].values()), color=colour[0])
        ax.text(x, y, name, color=colour[0], ha=align, va="center")
    ax.set(xscale="log", yscale="log")


def performance():
    data = pages.load("performance")
    rows = [int(n) for n in data["fresh"]]
    figure = Figure((WIDTH, 760 / 96))
    figure.subplots_adjust(left=0.07, right=0.74, bottom=0.075, top=0.95, hspace=0.16)
    rates, ratios = figure.subplots(2, 1, sharex=True, height_ratios=[5, 4])
    lines = {rates: {}, ratios: {}}
    for name, colour, threads in [
        ("memset", GREY, (pages.TWO,)), ("posenc", POSENC, (pages.TWO, pages.ONE)),
        ("torch", TORCH, (pages.TWO, pages.ONE)), ("NumPy", NUMPY, (pages.ONE,)),
    ]:
        for number in threads:
            case = f"{name}, {number}"
            rate = [int(n) * 512 * 4 / seconds[case] / 1e9 for n, seconds in data["fresh"].items()]
            lines[rates][case] = rate, colour, "-" if number == pages.TWO else "--"
    for memory, line in (("fresh", "-"), ("reused", ":")):
        for name, colour in ((f"torch, {pages.TWO}", TORCH), (f"NumPy, {pages.ONE}", NUMPY)):
            ratio = [seconds[name] / seconds[f"posenc, {pages.TWO}"] for seconds in data[memory].values()]
            lines[ratios][f"over {name.partition(',')[0]}, {memory}"] = ratio, colour, line
    title(rates, "GB/s in fresh memory, float32, d_model 512")
    title(ratios, "Speed-up of posenc, 2 threads, in fresh and in reused memory")
    ratios.set_xlabel("positions")
    for ax, curves in lines.items():
        for values, colour, line in curves.values():
            ax.plot(rows, values, line, color=colour[0])
        ax.set(xscale="log", yscale="log", xlim=(rows[0], rows[-1]))
        fix_ticks(ax.xaxis, rows[1::2], lambda n, _: f"{n:,.0f}")
        low, high = ax.get_ylim()
        ticks = [k * 10.0**n for n in range(-2, 4) for k in (1, 2, 5)]
        fix_ticks(ax.yaxis, [tick for tick in ticks if low <= tick <= high], lambda y, _: f"{y:g}")
        label_ends(ax, rows[-1], {name: (values[-1], colour) for name, (values, colour, _) in curves.items()})
    return figure


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
