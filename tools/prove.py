#!/usr/bin/env python3
"""Prove the error bounds of docs/numerics.md with Gappa and Sollya:

    tools/prove.py [WORD ...]                 the scripts whose names contain a word; default: all
    tools/prove.py --check [WORD ...]         only reads the sources; needs neither program
    tools/prove.py --show SCRIPT [NAME=VALUE ...]     prints what Gappa or Sollya reads

Each proof is also run with a false conclusion.  This run must fail; if it succeeds, the hypotheses contradict
each other.

A script proofs/*.g or proofs/*.sollya has directives, lines that begin with "#!".  PATH is relative to
src/posenc/_core/c, or to src/posenc for Python and Cython:

    constants PATH: TEXT        the numbers at {NAME} in a source; TEXT must occur there exactly once.  Macros,
                                enumeration constants and arrays of the headers need no directive
    let NAME = EXPRESSION       EXPRESSION may use the names above; it is rounded as in {{}}
    from SCRIPT: NAME ...       numbers of another script, and bounds that it proves, used as hypotheses
    bound NAME = EXPRESSION: DESCRIPTION      the same; the script proves this bound
    bound NAME: DESCRIPTION     the script proves this constant of the sources; the table in
                                docs/development/proofs.md has a row for it
    variants NAME=A,B,C ...     the script is run for each combination; NAME=0..7 is a range.  With code, FUSED is
                                0 and 1 unless it is stated
    code MODE [SETTING ...]     is replaced by the translation of the lines that follow.  "#: FUNCTION NAME ..."
                                takes the statements of a function that assign the names, or all of them:
                                A..B takes those from A to B, loop:NAME the body of a loop.  "#= TEXT" is
                                C text that is not in the sources
    again MODE [SETTING ...]    translates the last code once more
    repeat NAME=0..7 TEXT       is replaced by one TEXT for each value

MODE selects how operations are translated (proofs/translate.py): "rounded", "exact" or "factors".  A setting
is

    NAME=TEXT           the value of a C variable: a number, a name in Gappa's language, ZERO, or the name of
                        an array
    NAME:=TEXT          the same; assignments to the variable are ignored
    SUFFIX=TEXT         TEXT is appended to all names that the code defines
    PRECISION=24        the precision in mode "factors", in bits; default: 53
    POSITIVE=1          absolute values are translated as the values themselves
    WITHOUT_THEOREMS=1  the exact transformations are translated, too

If neither the code nor a setting defines a variable, it is a name in Gappa's language, which the script must
define or bound.
--show prints these names as the inputs of each piece of code.  The text between directives may contain

    {{EXPRESSION}}      its exact value, from all names above, u = 2**-53 and the constants of the headers; a
                        value that is not an integer divided by a power of two is rounded up to 32 bits
    {{hypotheses}}      the bounds of the factors of mode "factors"
    #? NAME=VALUE TEXT  TEXT in the runs with this variant, nothing in other runs
    #@ OPTION           an option of Gappa, which reads it from this comment
"""

import argparse
import itertools
import math
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROOFS = ROOT / "proofs"
SOURCES = ROOT / "src/posenc/_core/c"
sys.path.insert(0, str(PROOFS))

from headers import NAME_IN_BRACES, Headers, ProofError, number_of  # noqa: E402
from translate import ZERO, Real, Translator, gappa_number  # noqa: E402

U = Fraction(1, 2**53)
LONGEST = 120               # seconds of a run
FUNCTIONS = {"N": lambda text: Fraction(number_of(text)), "u": U, "abs": abs, "enumerate": enumerate, "max": max, "min": min,
             "sum": sum}


class Script:
    """A script of proofs/: `headers` are the sources."""

    def __init__(self, path, headers):
        self.path, self.headers = path, headers
        self.names, self.bounds, self.variants, self.origin = {}, {}, {}, {}
        self.parts = []                 # the text between directives, and the blocks of code
        self.errors = []                # of constants and statements that are not in the sources
        lines = path.read_text("utf-8").splitlines()
        while lines:
            line = lines.pop(0)
            if not line.startswith("#!"):
                self.parts.append(line)
                continue
            word, _, rest = line[2:].strip().partition(" ")
            code = []
            while lines and lines[0].startswith(("#:", "#=")):
                code.append(lines.pop(0))
            getattr(self, f"read_{word}")(rest, code)
        if self.errors:
            raise ProofError(*self.errors)

    def found(self, otherwise, find, *arguments):
        """Return find(*arguments), or `otherwise` if it fails, so that the other directives are read, too."""
        try:
            return find(*arguments)
        except ProofError as error:
            self.errors.append(f"{self.path.name}: {error}")
            return otherwise

    def read_constants(self, rest, _):
        path, _, text = rest.partition(": ")
        found = self.found(dict.fromkeys(re.findall(NAME_IN_BRACES, text), 1), self.headers.capture, path, text)
        self.names |= found
        self.origin |= dict.fromkeys(found, path)

    def read_let(self, rest, _):
        name, _, expression = rest.partition(" = ")
        self.names[name] = dyadic(self.value(expression))

    def read_from(self, rest, _):
        other, names = rest.split(": ")
        try:
            script = imported(other, self.headers)
        except ProofError as error:
            self.errors += error.args
            self.names.update(dict.fromkeys(names.split(), 1))
            return
        self.names.update({name: script.names[name] for name in names.split()})

    def read_bound(self, rest, _):
        definition, _, description = rest.partition(": ")
        if " = " in definition:
            self.read_let(definition, _)
        else:
            self.bounds[definition] = description

    def read_variants(self, rest, _):
        self.variants |= {name: self.values_of(text) for name, text in (item.split("=") for item in rest.split())}

    def read_repeat(self, rest, _):
        name, values, text = re.fullmatch(r"(\w+)=(\S+) (.*)", rest).groups()
        self.parts += [self.expanded(text, {name: k}) for k in self.values_of(values)]

    def values_of(self, text):
        if ".." not in text:
            return [int(x) if x.isdigit() else x for x in text.split(",")]
        first, last = (int(self.value(x)) for x in text.split(".."))
        return range(first, last + 1)

    def read_code(self, rest, code):
        self.variants.setdefault("FUSED", (0, 1))
        self.last = "\n".join(line[2:] if line[1] == "=" else self.found("", self.headers.statements, *line[2:].split())
                              for line in code)
        self.parts.append((rest, self.last))

    def read_again(self, rest, _):
        self.parts.append((rest, self.last))

    def value(self, expression, names=None):
        """Return the value of an expression with exact numbers."""
        expression = re.sub(r"(?<![\w.])(0x[\da-f.]+p[+-]?\d+|\d+\.\d+|2(?=\*\*)|1(?= ?/))", r"N('\1')", expression)
        known = {**FUNCTIONS, **self.names, **(names or {})}
        for name in set(re.findall(r"[A-Za-z_]\w*", expression)) - known.keys():
            known[name] = self.headers.constant(name)
            if name.isupper() and known[name] is None:
                raise ProofError(f"{self.path.name}: the headers have no constant {name}")
        return eval(expression, {"__builtins__": {}, **known})

    def combinations(self):
        return [dict(zip(self.variants, values, strict=True)) for values in itertools.product(*self.variants.values())]

    def text(self, variant):
        """Return the input of Gappa or Sollya for one combination of variants."""
        result, hypotheses = [], []
        for part in self.parts:
            if isinstance(part, tuple):
                translator = self.translator(part[0], variant)
                translator.run(self.expanded(part[1], variant))
                inputs = ", ".join(sorted(translator.inputs)) or "none"
                comment = "#" if self.path.suffix == ".g" else "//"
                result += [f"{comment} inputs of this code: {inputs}", translator.definitions()]
                hypotheses += translator.hypotheses
            elif found := re.match(r"#\? (\w+)=(\w+) (.*)", part):
                result += [found[3]] if str(variant[found[1]]) == found[2] else []
            else:
                result.append(part)
        text = "\n".join(result).replace("{{hypotheses}}", " /\\ ".join(hypotheses))
        text = self.expanded(text, variant)
        return sollya(text) if self.path.suffix == ".sollya" else text

    def expanded(self, text, variant):
        def replacement(found):
            value = self.value(found[1], variant)
            return value if isinstance(value, str) else gappa_number(dyadic(value))

        return re.sub(r"{{(.+?)}}", replacement, text)

    def translator(self, directive, variant):
        mode, *settings = directive.split()
        variables = {name: ZERO if value == "ZERO" else self.setting(value, variant)
                     for name, value in (re.split(":?=", item) for item in settings)}
        given = [item.split(":=")[0] for item in settings if ":=" in item]
        precision, suffix = int(variables.pop("PRECISION", 53)), variables.pop("SUFFIX", "")
        return Translator(self.headers, variant["FUSED"], mode, variables, precision, suffix, given)

    def setting(self, value, variant):
        value = self.expanded(value, variant)
        if re.fullmatch(r"-?\d+", value):
            return int(value)
        constant = self.names.get(value, self.headers.constant(value))
        return Real(value) if constant is None else constant

    def failure(self):
        """Return the output of the first run that fails, or an empty text if everything is proved."""
        for variant in self.combinations():
            if output := prove(self.text(variant), self.path.suffix):
                return f"{variant} {output}"
        return ""

    def contradiction(self):
        """Return a message about the first run that proves a false statement, or an empty text."""
        for variant in self.combinations() if self.path.suffix == ".g" else ():
            definitions, brace, rest = self.text(variant).partition("\n{")
            formula, end, hints = rest.partition("}")
            formula = formula.replace("->", "/\\", 1) + " -> 1b-1 + 1b-1 in [2,2] "
            if not prove(definitions + brace + formula + end + hints, ".g"):
                return f"{variant} has contradictory hypotheses"
        return ""


@lru_cache(maxsize=64)
def imported(name, headers):
    return Script(PROOFS / name, headers)


def dyadic(x):
    """Return a number rounded up to 32 bits, because Gappa's numbers are sums of powers of two."""
    if isinstance(x, list):
        return [dyadic(item) for item in x]
    if isinstance(x, str) or x == 0 or Fraction(x).denominator & (Fraction(x).denominator - 1) == 0:
        return x
    unit = Fraction(2) ** (math.floor(math.log2(abs(x))) - 31)
    return math.ceil(x / unit) * unit


def sollya(text):
    """Translate the numbers of Gappa to Sollya."""
    return re.sub(r"(?<![\w.])(\d+)b(-?\d+)", r"\1*2^(\2)", text)


def prove(text, suffix):
    """Return an empty text if Gappa or Sollya proves the text; otherwise, its output or an explanation."""
    command = ["gappa", "-Eno-auto-dichotomy"] if suffix == ".g" else ["sollya", "--warnonstderr"]
    try:
        run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return f"no result after {LONGEST} seconds"
    # two names of one value cause a warning
    output = re.sub(r"Warning: renaming identifier .*\n?", "", run.stdout + run.stderr).strip()
    if "syntax error" in output:
        raise ProofError(output)
    if suffix == ".g":
        return output or ("" if run.returncode == 0 else "failed")
    return "" if output == "proved" else output or "failed"


def shown(x):
    """Return a constant in the units of docs/numerics.md."""
    return f"{float(x / U):g} u" if 2**-54 < x < 2**-44 else f"`2**{math.log2(x):g}`"


def scripts(words):
    paths = sorted([*PROOFS.glob("*.g"), *PROOFS.glob("*.sollya")])
    return [path for path in paths if not words or any(word in path.name for word in words)]


def rows():
    """Return a row for each bound that is a constant of the kernel: description, script and value."""
    headers = Headers(SOURCES)
    return [[description, f"`{path.name}`", f"{shown(script.value(name))} (`{(headers.origin | script.origin)[name]}`)"]
            for path in scripts(()) for script in [Script(path, headers)] for name, description in script.bounds.items()]


def finds(path, change):
    """Return whether a script fails, or does not find its statements, after a change of the sources."""
    try:
        return bool(Script(ROOT / path, Headers(SOURCES, change)).failure())
    except ProofError:
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--show", metavar="SCRIPT")
    args = parser.parse_args()
    headers = Headers(SOURCES)
    try:
        return run(args, headers)
    except ProofError as error:
        sys.exit("\n".join(error.args))


def run(args, headers):
    if args.show:
        script = Script(PROOFS / args.show, headers)
        chosen = dict(word.split("=") for word in args.words)
        print(next(script.text(v) for v in script.combinations() if all(str(v[n]) == x for n, x in chosen.items())))
        return 0
    paths = scripts(args.words)
    if args.check:
        return check(paths, headers)
    for program in ("gappa", "sollya"):
        if not shutil.which(program):
            sys.exit(f"{program} is not installed (Debian, Ubuntu: apt-get install gappa sollya)")
    failed = False
    for path in paths:
        script = Script(path, headers)
        output = script.failure() or script.contradiction()
        failed |= bool(output)
        print(f"{path.name}: {f'not proved: {output}' if output else 'proved'}", flush=True)
    return failed


def check(paths, headers):
    """Print all constants and statements that are not in the sources."""
    runs, errors = 0, {}
    for path in paths:
        try:
            script = Script(path, headers)
            runs += len([script.text(variant) for variant in script.combinations()])
        except ProofError as error:
            errors.update(dict.fromkeys(error.args))
    print(*errors, sep="\n", file=sys.stderr, end="\n" * bool(errors))
    print(f"{runs} runs of {len(paths)} scripts")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
