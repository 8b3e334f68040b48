"""Write measurements and signatures into the tables of the README and docs/.  ``python benchmarks/pages.py``

A table is the text between `<!-- table: NAME -->` and `<!-- end -->`; the function NAME of this module returns the new text
from the measurements in docs/data.  In docs/api.md, `<!-- reference: MODULE: NAMES -->` begins a table of signatures.
"""

import importlib
import inspect
import json
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *(
    ROOT / "docs" / f"{name}.md" for name in ("numerics", "performance", "rotary", "recipes/cached-keys"))]
API = ROOT / "docs" / "api.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)
REFERENCE = re.compile(r"(<!-- reference: (\S+): (.*?) -->\n).*?(\n<!-- end -->)", re.DOTALL)
SHOWN_POSITIONS = ["100", "10000", "1000000", "1000000000", "1700000000000000000"]
README_ROWS = ["512", "4096", "65536"]
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
    return table(["bound", "script", "constant in use", "proved", "slack"], *load("proofs"), left=2)


def speed():
    data = load("performance")
    rows = [["float32 table", "memory", "posenc", "torch", "NumPy", "speed-up over torch", "over NumPy"]]
    for memory in ("fresh", "reused"):
        for n in README_ROWS:
            ours, theirs, numpy = (data[memory][n][name] for name in (f"posenc, {TWO}", f"torch, {TWO}", f"NumPy, {ONE}"))
            rate = digits(int(n) * 512 * 4 / ours / 1e9)
            rows.append([size((int(n), 512)), memory, f"{ms(ours)} ms, {rate} GB/s", f"{ms(theirs)} ms", f"{ms(numpy)} ms",
                         times(theirs / ours), times(numpy / ours)])
    return table(*rows, left=2)


def by_size(memory):
    columns = [f"posenc, {ONE}", f"posenc, {TWO}", f"memset, {TWO}", f"torch, {ONE}", f"torch, {TWO}", f"NumPy, {ONE}"]
    rows = [["positions", *columns, "speed-up over torch", "over NumPy"]]
    for n, seconds in load("performance")[memory].items():
        ours = seconds[f"posenc, {TWO}"]
        ratios = [times(seconds[name] / ours) for name in (f"torch, {TWO}", f"NumPy, {ONE}")]
        rows.append([f"{int(n):,}", *(ms(seconds[name]) for name in columns), *ratios])
    return table(*rows)


def fresh():
    return by_size("fresh")


def reused():
    return by_size("reused")


def adding():
    rows = [["shape of `x`", "posenc", "torch", "speed-up"]]
    for case, seconds in load("performance")["adding"].items():
        ours, theirs = seconds["posenc"], seconds["torch"]
        rows.append([case, f"{ms(ours)} ms", f"{ms(theirs)} ms", f"{theirs / ours:.2f}x"])
    return table(*rows)


def one_row():
    rows = load("performance")["one_row"].items()
    return table(["call", "time in us"], *([call, digits(seconds["posenc"] * 1e6)] for call, seconds in rows))


def large():
    shares = {}
    for case, seconds in load("performance")["large"].items():
        name, _, number = case.rpartition(", ")
        roof = min(seconds["memset"], seconds["non-temporal stores"])
        shares.setdefault(name, {})[number] = [roof / seconds[start] for start in ("aligned", "unaligned")]
    header = ["table", *(f"{start}, {number}" for number in (ONE, TWO) for start in ("on a cache line", "16 bytes past"))]
    rows = [[name, *(f"{share:.2f}" for number in (ONE, TWO) for share in each[number])] for name, each in shares.items()]
    return table(header, *rows)


def small():
    rows = [["table", "case", "time in us"]]
    for case, seconds in load("performance")["small"].items():
        rows += [[case, f"`{name}`" if name.startswith("np.") else name, digits(s * 1e6)] for name, s in seconds.items()]
    return table(*rows, left=2)


def arrays():
    rows = [["", "an array", "32 calls with ranges", '`np.take(..., mode="clip")` from a table']]
    for case, seconds in load("performance")["arrays"].items():
        rows.append([case, *(f"{ms(seconds[name])} ms" for name in ("an array", "ranges", "np.take"))])
    return table(*rows)


def rotations(measure, form, is_shown=lambda case: True):
    """Return a table with a row for each library; each column is a case."""
    cases = {case: seconds for case, seconds in load("performance")[measure].items() if is_shown(case)}
    names = [name for name in next(iter(cases.values())) if name != "pass"]     # the first case has all libraries
    rows = [[code(name), *(form(seconds[name]) if name in seconds else "" for seconds in cases.values())] for name in names]
    passes = [digits(seconds["posenc"] / seconds["pass"]) for seconds in cases.values()]
    return table(["", *cases], *rows, *([["posenc, in passes", *passes]] if measure != "decode" else []))


def prefill():
    return rotations("prefill", ms)


def transposed():
    return rotations("transposed", ms)


def decode():
    return rotations("decode", lambda seconds: digits(seconds * 1e6), lambda case: "threads" not in case)


def slower():
    """Name the cases in which another library is faster than posenc, with `at` if it was measured."""
    data, found = load("performance"), {}
    for measure, shape in (("prefill", ""), ("transposed", ", views"), ("decode", "")):
        for case, seconds in data[measure].items():
            ours = seconds.get("posenc, at", seconds["posenc"])
            for name, theirs in seconds.items():
                if name != "pass" and not name.startswith("posenc") and theirs < ours:
                    found.setdefault(code(name), []).append(f"{case}{shape} ({times(ours / theirs)})")
    if not found:
        return "No library was faster in this run than posenc with `Rotary.at`."
    lines = [textwrap.fill(f"- {name}: {'; '.join(cases)}", 128, subsequent_indent="  ") for name, cases in found.items()]
    heading = "Libraries that were faster in this run than posenc with `Rotary.at`, with the ratio of the times:\n"
    return "\n".join([heading, *lines])


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


def rotation_errors():
    data, shown, share = load("accuracy"), SHOWN_POSITIONS[1:4], SHOWN_POSITIONS[2]
    rows = [["last position", *(f"{int(p):.0e}".replace("e+0", "e") for p in shown), "correctly rounded at 1e6"]]
    for name, errors in data["rotation errors"].items():
        rows.append([name, *(f"{errors[p]:.1e}" for p in shown), f"{data['correctly rounded'][name][share]:.0%}"])
    return table(*rows)


def model_differences():
    rows = [["model", "code", "largest difference", "largest angle"]]
    for name, (code, difference, angle) in load("accuracy")["model differences"].items():
        rows.append([f"`{name}`", code, f"{difference:.1e}", f"{angle:,.0f}"])
    return table(*rows, left=2)


def moves():
    data = load("accuracy")["moves"]
    numbers = list(next(iter(data.values())))
    header = ["largest relative error", *(f"{int(n):,} move{'s' * (n != '1')}" for n in numbers)]
    return table(header, *([name, *(f"{errors[n]:.1e}" for n in numbers)] for name, errors in data.items()))


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
