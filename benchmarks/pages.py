"""Write measurements and signatures into the tables of the README and docs/.  ``python benchmarks/pages.py``

A table is the text between `<!-- table: NAME -->` and `<!-- end -->`; the function NAME of this module
returns the new text from the measurements in docs/data.  In docs/api.md, `<!-- reference: MODULE: NAMES -->`
begins a list of signatures. ``--check`` fails if docs/data has measurements of another kernel.
"""

import hashlib
import importlib
import inspect
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "data"
PAGES = [ROOT / "README.md", *(
    ROOT / "docs" / f"{name}.md" for name in ("numerics", "performance", "rotary", "development/proofs"))]
API = ROOT / "docs" / "api.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(^<!-- end -->)", re.DOTALL | re.MULTILINE)
REFERENCE = re.compile(r"(<!-- reference: (\S+): (.*?) -->\n).*?(\n<!-- end -->)", re.DOTALL)
SHOWN_POSITIONS = ["512", "8192", "131072", "1000000", "1000000000"]


def load(name):
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def kernel_hash():
    """Return a hash of the kernel's sources, without comments, docstrings and white space."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src/posenc/_core").rglob("*.*")):
        if path.suffix in (".c", ".h", ".py", ".pyx", ".pxd", ".pxi"):
            comments = r"/\*.*?\*/|//[^\n]*" if path.suffix in (".c", ".h") else r'""".*?"""|#[^\n]*'
            text = re.sub(comments, "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
            digest.update(f"{path.name} {''.join(text.split())}".encode())
    return digest.hexdigest()


def digits(number):
    """Format a positive number with two significant digits, or with all digits before the decimal point."""
    return f"{number:,.0f}" if number >= 9.95 else f"{number:#.2g}"


def duration(seconds):
    return f"{digits(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{digits(seconds * 1e6)} us"


def spread(seconds):
    """Return the median with the quartiles in parentheses."""
    low, middle, high = (duration(value) for value in seconds)
    low, high = (text.removesuffix(middle[-3:]).replace(" ", "") for text in (low, high))
    return f"{middle} ({low}-{high})"


def code(name):
    """Put backticks around a statement, or a dotted name such as torch.compile, in the name of a call."""
    return f"`{name}`" if "=" in name or "+" in name else re.sub(r"\w+(\.\w+)+", r"`\g<0>`", name)


def table(*rows, left=1):
    """Return a Markdown table; the first row is the header, and the first `left` columns are left-aligned."""
    rule = ["---"] * left + ["---:"] * (len(rows[0]) - left)
    header, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([header, f"|{'|'.join(rule)}|", *others])


# ---- tables ------------------------------------------------------------------------------------------------


def disturbed(data):
    """Return a warning if other programs used the processors during the measurement."""
    others = data["system"]["used by others"]
    if others <= 0.2:
        return ""
    return f"\n\n**Other programs used {others:.1f} processors: measure again on an idle system.**"


def system():
    """Return a line for each system and set of versions."""
    lines = []
    for data in map(load, ("performance", "positions")):
        system = data["system"]
        names = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
        isa = system["instruction set"].upper()
        processors = f"{system['processor']}, {system['processors']} processors"
        lines.append(f"{processors}, {isa}; {names}{disturbed(data)}")
    return "\n\n".join(dict.fromkeys(lines))


def proofs():
    """Return the table of the constants that proofs/ prove."""
    sys.path.insert(0, str(ROOT / "tools"))
    from prove import rows
    return table(["bound", "script", "constant"], *rows(), left=2)


def best(calls, *kinds, most=None):
    """Return the quartiles, the name and the error of the fastest call of these kinds, or None.

    It is at its best number of threads, which `most` can limit.
    """
    found = [(seconds, name.partition(", ")[2], values["error"]) for name, values in calls.items()
             if {*name.partition(", ")[0].split()} & {*kinds} for key, seconds in values.items()
             if key != "error" and (most is None or int(key) <= int(most))]
    return min(found, key=lambda row: row[0][1], default=None)


def default(calls):
    return next(seconds for key, seconds in calls["posenc, default"].items() if key != "error")


def compared(theirs, ours):
    """Return the ratio of two medians, or "equal" if it is at least 0.9 and the quartiles overlap."""
    ratio = theirs[1] / ours[1]
    is_equal = ratio >= 0.9 and theirs[0] <= ours[2] and ours[0] <= theirs[2]
    return "equal" if is_equal else f"{digits(ratio)}x"


RIVALS = (("pasted",), ("exact",), ("pasted", "exact", "fast"))
HEADINGS = ["as people paste it", "float64 and a cast", "the fastest code here"]
SPEED = {
    "16 x 512, reused": "into a buffer, 16 x 512",
    "512 x 512, reused": "into a buffer, 512 x 512",
    "5,000 x 512, new": "new table, 5,000 x 512",
    "5,000 x 512, reused": "into a buffer, 5,000 x 512",
    "5,000 x 512, float64, reused": "into a buffer, 5,000 x 512, float64",
    "4,096 x 1,024, reused": "into a buffer, 4,096 x 1,024",
    "65,536 x 512, reused": "into a buffer, 65,536 x 512",
    "400,000 x 8, reused": "into a buffer, 400,000 x 8",
    "24,000 x 20, reused": "into a buffer, 24,000 x 20",
    "timesteps, 4,096 x 320": "4,096 timesteps below 1,000, x 320",
    "scattered, 8,192 x 512": "8,192 positions below 131,072, x 512",
    "scattered, 8,192 x 512, float64": "8,192 positions below 131,072, x 512, float64",
    "timestamps, 400,000 x 8": "400,000 times in ns, x 8",
    "timestamps, 400,000 x 8, float64": "400,000 times in ns, x 8, float64",
    "hours of a year, 8,760 x 22": "8,760 hours, 11 periods",
    "hours of a year, 8,760 x 22, float64": "8,760 hours, 11 periods, float64",
    "grid, 14 x 14 x 768": "a grid, 14 x 14 x 768",
    "grid, 256 x 256 x 256, reused": "a grid, into a buffer, 256 x 256 x 256",
    "padded batch, 64 x 512 x 512": "add to a padded batch, 64 x 512 x 512",
    "module, 8 x 128 x 512, padded": "the module, 8 x 128 x 512, padded on the left",
    "module, 64 x 1 x 512": "the module, a token of each of 64 sequences, x 512",
    "add_to, 8 x 128 x 512": "add to a batch, 8 x 128 x 512",
    "add_to, 32 x 2,048 x 512": "add to a batch, 32 x 2,048 x 512",
    "add_to, 32 x 2,048 x 512, positions first": "the same, a batch of shape 2,048 x 32 x 512",
    "add_to, 65,536 x 4 x 64": "add to short sequences, 65,536 x 4 x 64",
    "add_to, 1 x 2,048 x 512": "add to one sequence, 1 x 2,048 x 512",
    "add_to, 32 x 2,048 x 512, bfloat16": "add to a batch, 32 x 2,048 x 512, bfloat16",
    "add_to, 32 x 2,048 x 512, float16": "add to a batch, 32 x 2,048 x 512, float16",
    "new sum, 32 x 2,048 x 512": "add to 32 x 2,048 x 512, into a new tensor",
    "new sum, 32 x 2,048 x 512, scaled": "the same, with `x_scale`",
    "rotation, 32 x 4,096 x 128": "rotate 32 heads of 4,096 x 128",
    "rotation, 32 x 4,096 x 128, new tensor": "the same, into a new tensor",
    "rotation, 32 x 4,096 x 128, interleaved": "the same in place, interleaved",
    "rotation, 32 x 4,096 x 128, bfloat16": "the same in place, bfloat16",
    "rotation, 32 x 4,096 x 128, float16": "the same in place, float16",
    "rotation, 32 x 4,096 x 128, scattered positions": "rotate 32 heads of 4,096 x 128, scattered positions",
    "rotation, 8 x 512 x 64, interleaved": "rotate 8 heads of 512 x 64, interleaved",
    "rotation, 32 x 512 x 128": "rotate 32 heads of 512 x 128",
    "rotation, 64 x 4,096 x 64": "rotate 64 heads of 4,096 x 64",
    "rotation, 48 x 4,096 x 80, bfloat16": "rotate 48 heads of 4,096 x 80, bfloat16",
    "rotation, batch of 64, 1 new position": "rotate 64 x 32 heads at a new position each",
}


def speed():
    """Return the table of the README."""
    data, rows = load("performance"), []
    for case in filter(data.get, SPEED):
        ours, rivals = default(data[case]), [best(data[case], *kinds) for kinds in RIVALS]
        cells = [f"{duration(rival[0][1])}, {compared(rival[0], ours)}" if rival else "" for rival in rivals]
        rows.append([SPEED[case], duration(ours[1]), *cells[:2], f"{cells[2]}, {code(rivals[2][1])}"])
    return table(["", "posenc", *HEADINGS], *rows) + disturbed(data)


def measured():
    """Return a table of all cases, with quartiles."""
    rows = []
    for case, calls in load("performance").items():
        if "posenc, default" in calls:
            ours, rivals = default(calls), [best(calls, *kinds) for kinds in RIVALS]
            cells = [f"{spread(rival[0])}, {code(rival[1])}" if rival else "" for rival in rivals]
            cells = [cell and "the same" if cell in cells[:i] else cell for i, cell in enumerate(cells)]
            cells[2] += f", {rivals[2][2]:.0e}" if rivals[2][2] else ""
            rows.append([case, spread(calls["posenc"]["1"]), spread(ours), *cells])
    return table(["case", "posenc, 1 thread", "posenc", *HEADINGS[:2], f"{HEADINGS[2]}, its error"], *rows)


def one_row():
    rows = load("performance")["one row"].items()
    return table(["call", "time"], *([call, spread(seconds)] for call, seconds in rows))


def positions():
    """Return the ratios at positions as pipelines bring them; the name of a case is in its first row."""
    rows = [["" if i else case, rival,
             *(f"{digits(middle)} ({digits(low)}-{digits(high)})" for low, middle, high in ratios.values())]
            for case, rivals in load("positions")["ratios"].items()
            for i, (rival, ratios) in enumerate(rivals.items())]
    return table(["posenc is faster above 1", "beside", "1 thread", "default"], *rows, left=2)


def unusual():
    rows = [[case, usual, f"{digits(middle)} ({digits(low)}-{digits(high)})"]
            for case, ratios in load("positions")["unusual"].items() for usual, (low, middle, high) in ratios.items()]
    return table(["call", "beside", "time"], *rows, left=2)


def isa():
    """Return a sentence about tables with AVX2."""
    first, *others = load("performance").get("instruction sets", {}).items()
    for name, tables in others:
        ratios = [seconds[1] / first[1][case][1] for case, seconds in tables.items()]
        return (f"With {name.upper()} on this system (`POSENC_ISA={name}`), reused tables take {digits(min(ratios))} to "
                f"{digits(max(ratios))} times as long as with {first[0].upper()}.")
    return ""


def worst():
    """Return the five cases of the README's and the positions' tables with the smallest ratios below 0.9.

    The ratio of a case is its smallest with posenc's default number of threads, with one thread and, in the
    README's table, with two; the other code has at most as many.
    """
    rows = [(values[1], case, rival, threads) for case, rivals in load("positions")["ratios"].items()
            for rival, ratios in rivals.items() for threads, values in ratios.items()]
    data = load("performance")
    for case in filter(data.get, SPEED):
        ours = {None: default(data[case])} | data[case]["posenc"]
        for threads in ours.keys() - {"error"}:
            theirs, name, _ = best(data[case], *RIVALS[2], most=threads)
            rows.append((theirs[1] / ours[threads][1], SPEED[case], code(name), threads or "default"))
    lowest = {row[1]: row for row in sorted(rows, reverse=True)}
    return "\n".join(f"- {case}: {ratio:.1g} of the speed of {rival} (threads: {threads})"
                     for ratio, case, rival, threads in sorted(lowest.values())[:5] if ratio < 0.9)


def at(position):
    return f"{int(position):,}" if int(position) < 10**6 else f"{int(position):.0e}".replace("e+0", "e")


def error_rows(errors, shown):
    """Return the header, and a row for each name in `shown`, with its largest errors."""
    return [["largest error at", *map(at, SHOWN_POSITIONS)],
            *([title, *(f"{errors[name][p]:.0e}" for p in SHOWN_POSITIONS)] for name, title in shown.items())]


def accuracy():
    errors = load("accuracy")["errors"]
    return table(*error_rows(errors, {name: name for name in errors}))


def errors():
    """Return the table of the README: encodings, then rotations."""
    data = load("accuracy")
    errors = data["errors"] | {f"rotation: {name}": each for name, each in data["rotation errors"].items()}
    marian, llama = (next(name for name in errors if f", {model}" in name) for model in ("Marian", "Llama"))
    llama = llama.rpartition(",")[0]
    return table(*error_rows(errors, {
        "posenc, float32": "posenc, float32",
        "torch recipe, float32": "the PyTorch tutorial, float32",
        marian: "float64 and a cast to float32",
        "rotation: posenc, bfloat16": "`posenc.torch.rotate`, bfloat16",
        f"{llama}, with posenc's tables, bfloat16": "Llama with `posenc.torch.RotaryEmbedding`, bfloat16",
        f"{llama}, bfloat16": "Llama as in transformers, bfloat16",
    }))


def rotation_errors():
    data = load("accuracy")
    shares = data["correctly rounded"]
    header, *rows = error_rows(data["rotation errors"], {name: name for name in shares})
    return table([*header, "correctly rounded at 1e6"],
                 *([*row, f"{shares[row[0]]['1000000']:.0%}"] for row in rows))


# ---- signatures --------------------------------------------------------------------------------------------


def call(name, function):
    """Return a call in Markdown, with the parameters and their defaults but without types."""
    parameters = inspect.signature(function).parameters.values()
    bare = [p.replace(annotation=p.empty) for p in parameters if p.name not in ("self", "cls", "unknown")]
    return f"`{name}{inspect.Signature(bare)}`"


def methods(value):
    """Return the public methods of a class that posenc defines, its own before inherited ones."""
    owners = inspect.getmro(value) if inspect.isclass(value) else ()
    owners = [owner for owner in owners if owner.__module__.startswith("posenc")]
    found = [name for owner in owners for name, function in vars(owner).items()
             if inspect.isfunction(getattr(function, "__func__", function)) and name[0] != "_"
             and name != "extra_repr"]
    return f"; methods {', '.join(f'`{name}`' for name in dict.fromkeys(found))}" if found else ""


def reference(module, names):
    """Return a list of functions and classes, with the names of the methods of each class."""
    rows = []
    for name in names:
        value = getattr(importlib.import_module(module), name)
        fields = getattr(value, "_fields", None)
        rows.append(f"`{name}`, a tuple ({', '.join(fields)})" if fields
                    else call(name, value) + methods(value))
    return "\n".join(f"- {row}" for row in rows)


# ---- pages -------------------------------------------------------------------------------------------------


def updated(text):
    """Return the text of a page with current tables."""
    text = REFERENCE.sub(lambda match: match[1] + reference(match[2], match[3].split()) + match[4], text)
    return BLOCK.sub(lambda match: match[1] + globals()[match[2]]() + "\n" + match[3], text)


def update():
    for page in (*PAGES, API):
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")


def stale():
    """Return the names of the files in docs/data that were measured with other sources of the kernel."""
    return [path.name for path in sorted(DATA.glob("*.json"))
            if load(path.stem).get("kernel") != kernel_hash()]


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(f"measured with another kernel: {', '.join(stale())}; run python benchmarks" if stale()
                 else 0)
    update()
