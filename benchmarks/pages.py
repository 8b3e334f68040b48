"""Write measurements and signatures into the tables of the README and docs/.  ``python benchmarks/pages.py``

A table is the text between `<!-- table: NAME -->` and `<!-- end -->`; the function NAME of this module returns the new text
from the measurements in docs/data.  In docs/api.md, `<!-- reference: MODULE: NAMES -->` begins a table of signatures.
"""

import importlib
import inspect
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(
    ROOT / "docs" / f"{name}.md" for name in ("numerics", "performance", "rotary", "recipes/cached-keys"))]
API = ROOT / "docs" / "api.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)
REFERENCE = re.compile(r"(<!-- reference: (\S+): (.*?) -->\n).*?(\n<!-- end -->)", re.DOTALL)
SHOWN_POSITIONS = ["100", "10000", "1000000", "1000000000", "1700000000000000000"]
ONE, TWO = "1 thread", "2 threads"


def load(name):
    return json.loads((ROOT / "docs" / "data" / f"{name}.json").read_text(encoding="utf-8"))


def size(shape):
    return " x ".join(f"{n:,}" for n in shape)


def threads(number):
    return ONE if number == 1 else f"{number} threads"


def digits(number):
    """Format a positive number with two significant digits, or with all digits before the decimal point."""
    return f"{number:,.0f}" if number >= 9.95 else f"{number:#.2g}"


def ms(seconds):
    return digits(seconds * 1e3)


def times(ratio):
    return f"{digits(ratio)}x"


def code(name):
    """Put backticks around a dotted name, such as torch.compile, in the name of a case."""
    return re.sub(r"\w+(\.\w+)+", r"`\g<0>`", name)


def table(*rows, left=1):
    """Return a Markdown table; the first row is the header, and the first `left` columns are left-aligned."""
    rule = ["---"] * left + ["---:"] * (len(rows[0]) - left)
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))


# ---- tables -------------------------------------------------------------------------------------------------------------


def system():
    data = load("performance")
    system = data["system"]
    names = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    text = f"{system['processor']}, {system['processors']} processors, {system['instruction set'].upper()}; {names}"
    if (others := system["used by others"]) > 0.2:
        text += f".\n**Other processes used {others:.1f} processors during this run: repeat it on an idle system.**"
    return text


def proofs():
    """Return the table of the constants of the program, without the bounds that only scripts use."""
    rows = [row for row in load("proofs") if ".h`" in row[2]]
    return table(["bound", "script", "constant in use", "proved", "slack"], *rows, left=2)


RECIPES = ("torch recipe", "NumPy recipe", "transformers")


def fastest(seconds, number, wanted=lambda name: True):
    """Return the name and the time of the fastest rival that is `wanted`, with `number` threads (None: its best number)."""
    rivals = {}
    for key, value in seconds.items():
        name, _, threads = key.rpartition(", ")
        if number in (threads, None) and not name.startswith(("posenc", "memset")) and wanted(name):
            rivals[name] = min(value, rivals.get(name, value))
    name = min(rivals, key=rivals.get)
    return name, rivals[name]


def ratio(theirs, ours):
    return f"{theirs / ours:.1f}x"


def is_fast(name):
    return name not in RECIPES


def comparison(seconds, number):
    """Return the cells of a table: ours, the fastest rival, the fastest that computes sines and cosines, and the recipes."""
    ours = seconds[f"posenc, {number or 'default'}"]
    name, theirs = fastest(seconds, number, is_fast)
    _, direct = fastest(seconds, number, lambda name: "sin and cos" in name)
    recipes = [f"{ms(fastest(seconds, number, lambda name, recipe=recipe: name == recipe)[1])} ms" for recipe in RECIPES[:2]]
    rivals = [f"{ms(theirs)} ms, {name}", ratio(theirs, ours), f"{ms(direct)} ms", ratio(direct, ours)]
    return [f"{ms(ours)} ms", *rivals, *recipes]


COMPARED = ["posenc", "fastest rival", "ratio", "fastest with sin and cos", "ratio", "torch recipe", "NumPy recipe"]


def speed():
    rows = []
    for case, seconds in load("performance")["tables"].items():
        n, memory = case.split(", ")
        ours, rival, times_faster, direct, times_direct, *_ = comparison(seconds, None)
        rate = digits(int(n) * 512 * 4 / seconds["posenc, default"] / 1e9)
        rows.append([size((int(n), 512)), memory, f"{ours}, {rate} GB/s", rival, times_faster, direct, times_direct])
    return table(["float32 table", "memory", *COMPARED[:5]], *rows, left=2)


def tables():
    rows = []
    for case, seconds in load("performance")["tables"].items():
        n, memory = case.split(", ")
        rows += [[f"{int(n):,}", memory, number or "default", *comparison(seconds, number)] for number in (ONE, None)]
    return table(["rows", "memory", "threads", *COMPARED], *rows, left=3)


def rivals():
    """Return a table of every rival in reused memory, each at its best number of threads."""
    best = {}
    for case, measured in load("performance")["tables"].items():
        n, memory = case.split(", ")
        for key, seconds in measured.items() if memory == "reused" else ():
            row = best.setdefault(key.rpartition(", ")[0], {})
            row[int(n)] = min(seconds, row.get(int(n), seconds))
    header = ["ms, best number of threads", *(size((n, 512)) for n in best["posenc"])]
    return table(header, *([code(name), *map(ms, row.values())] for name, row in best.items()))


def adding():
    rows = []
    for shape, seconds in load("performance")["adding"].items():
        for number in (ONE, TWO):
            ours, (name, theirs) = seconds[f"posenc, {number}"], fastest(seconds, number)
            rows.append([shape, number, f"{ms(ours)} ms", f"{ms(theirs)} ms, {name}", f"{theirs / ours:.2f}x"])
    return table(["shape of `x`", "threads", "posenc", "fastest rival", "ratio"], *rows, left=2)


def rotation():
    rows = []
    for case, seconds in load("performance")["rotation"].items():
        scale, unit = (1e6, "us") if "1 position" in case else (1e3, "ms")
        for number in (ONE, TWO):
            ours, at = (seconds[f"{name}, {number}"] for name in ("posenc", "posenc, at"))
            name, theirs = fastest(seconds, number, is_fast)
            recipe = seconds[f"transformers, {number}"]
            shown = (f"{digits(value * scale)} {unit}" for value in (ours, at, theirs, recipe))
            ours, at, rival, recipe = shown
            at_seconds = seconds[f"posenc, at, {number}"]
            rows.append([case, number, ours, at, f"{rival}, {code(name)}", ratio(theirs, at_seconds), recipe])
    return table(["case", "threads", "posenc", "posenc, at", "fastest rival", "ratio to at", "transformers"], *rows, left=2)


def one_row():
    rows = load("performance")["one_row"]["one row"].items()
    return table(["call", "time in us"], *([call, digits(seconds * 1e6)] for call, seconds in rows))


def placement():
    data = load("threads")
    rows = []
    for call, pauses in data["placed"].items():
        for pause in pauses:
            pairs = (seconds[call][pause] for seconds in data.values())
            rows.append([call, f"{pause} ms", *(f"{one[0] / two[0]:.2f}" for one, two in pairs)])
    return table(["call", "pause", *data], *rows)


def accuracy():
    data = load("accuracy")
    rows = [["last position", *(f"{int(p):.2g}".replace("e+0", "e").replace("e+", "e") for p in SHOWN_POSITIONS)]]
    rows += [[name, *(f"{errors[p]:.1e}" for p in SHOWN_POSITIONS)] for name, errors in data["errors"].items()]
    return table(*rows)


def errors():
    """The table of the README: encodings, then rotations in bfloat16."""
    data, rows = load("accuracy"), [["", "at 1e6", "at 1e9"]]
    shown = [(f"{name}, encoding", each) for name, each in data["errors"].items()
             if "bfloat16" not in name and not name.startswith("positional")]
    shown += [(f"{name.removesuffix(', bfloat16')}, rotation", each) for name, each in data["rotation errors"].items()
              if name == "posenc, bfloat16" or name.endswith("Llama, bfloat16")]
    return table(*rows, *([name, *(f"{each[p]:.1e}" for p in SHOWN_POSITIONS[2:4])] for name, each in shown))


def rotation_errors():
    data, shown, share = load("accuracy"), SHOWN_POSITIONS[1:4], SHOWN_POSITIONS[2]
    rows = [["last position", *(f"{int(p):.0e}".replace("e+0", "e") for p in shown), "correctly rounded at 1e6"]]
    for name, errors in data["rotation errors"].items():
        rows.append([name, *(f"{errors[p]:.1e}" for p in shown), f"{data['correctly rounded'][name][share]:.0%}"])
    return table(*rows)


# ---- signatures ---------------------------------------------------------------------------------------------------------


def call(name, function):
    """Return a call in Markdown, with the parameters and their defaults but without types."""
    parameters = inspect.signature(function).parameters.values()
    bare = [p.replace(annotation=p.empty) for p in parameters if p.name not in ("self", "cls", "unknown")]
    return f"`{name}{inspect.Signature(bare)}`"


def summary(value):
    """Return the first paragraph of a docstring in Markdown."""
    text = " ".join(inspect.getdoc(value).partition("\n\n")[0].split())
    return re.sub(r"``(.*?)``", r"`\1`", text).replace("|", r"\|")


def methods(value):
    """Return {name: function} for the public methods of a class that posenc defines, its own before inherited ones."""
    found = {}
    for owner in inspect.getmro(value) if inspect.isclass(value) and not hasattr(value, "_fields") else ():
        for name, function in vars(owner).items() if owner.__module__.startswith("posenc") else ():
            function = getattr(function, "__func__", function)          # of a class method
            if inspect.isfunction(function) and name[0] != "_" and name != "extra_repr":
                found.setdefault(name, function)
    return found


def reference(module, names):
    """Return a table of functions and classes, with the methods of each class."""
    rows = []
    for name in names:
        value = getattr(importlib.import_module(module), name)
        fields = getattr(value, "_fields", None)
        rows.append((f"`{name}`, a tuple ({', '.join(fields)})" if fields else call(name, value), summary(value)))
        rows += [(call(f"{name}.{method}", function), summary(function)) for method, function in methods(value).items()]
    return table(["call", "purpose"], *rows, left=2)


# ---- pages --------------------------------------------------------------------------------------------------------------


def updated(text):
    """Return the text of a page with current tables."""
    text = REFERENCE.sub(lambda match: match[1] + reference(match[2], match[3].split()) + match[4], text)
    return BLOCK.sub(lambda match: match[1] + globals()[match[2]]() + match[3], text)


def update():
    for page in (*PAGES, API):
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    update()
