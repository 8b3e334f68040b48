"""Translate statements of the C headers to definitions in Gappa's language.

The translator executes the statements one by one.  It represents a floating-point number by the text of an
expression, and an integer by its value, so loops over integers are unrolled.  Inline functions are executed, too, except
two_sum, fast_two_sum, two_difference and two_product.  These are replaced by their theorems: the lower number of the result is
the exact rounding error.  A condition on a floating-point number is refused, because its result is unknown.
"""

import re
from fractions import Fraction

from c_parser import ProofError, parse

OPAQUE = {"direct_phase", "phase_limb", "symmetry_of", "apply_symmetry", "direct_double", "direct_dd"}     # not translated
LOADS = {"f64_load", "f32_load", "f64_load_f32"}
EXACT = {"fast_two_sum": "+", "two_sum": "+", "two_difference": "-", "two_product": "*"}
ROUNDED = {"f64_add": "+", "f64_sub": "-", "f64_mul": "*", "f64_add_fma": "+"}


def gappa_number(x):
    """Return the text of a dyadic rational in Gappa's language."""
    x = Fraction(x)
    exponent = x.denominator.bit_length() - 1
    if x.denominator != 1 << exponent:
        raise ProofError(f"{x} is not a sum of powers of two")
    return f"{x.numerator}b-{exponent}" if exponent else str(x.numerator)


class Real(str):
    """The text of an expression in Gappa's language."""

    __slots__ = ()


class Zero(Real):
    """A term that is left out of a linear form, or a sum of these terms."""

    __slots__ = ()


class Double(Real):
    """The sum of a double and zero, which rounding does not change."""

    __slots__ = ()


ZERO = Zero("0")


def real(value):
    if isinstance(value, Real):
        return value
    if isinstance(value, (int, Fraction)):
        return Real(gappa_number(value))
    raise ProofError(f"{value!r} is not a floating-point number")


def wrapped(text):
    return text if re.fullmatch(r"\w+|\d+b-?\d+", text) else f"({text})"


class Return(Exception):
    def __init__(self, value):
        self.value = value


class Translator:
    """Executes C statements.  `lines` are the definitions; `hypotheses` bound the factors of roundings.

    mode: "rounded" writes the rounding operator of Gappa; "exact" leaves roundings out; "factors" multiplies by 1 + e instead
    of rounding, so that a value is linear in its inputs, and inputs may be Zero.  `suffix` is appended to each name.
    Assignments to a variable in `given` are ignored.
    """

    def __init__(self, headers, fused, mode, variables=(), precision=53, suffix="", given=()):
        self.suffix = suffix or ("_e" if mode == "exact" else "")
        self.headers, self.fused, self.mode, self.precision = headers, fused, mode, precision
        self.lines, self.hypotheses, self.versions, self.factors, self.renamed = [], [], {}, set(), []
        self.given = set(given)
        self.inputs = set()                         # names that have no definition in the code
        self.prefix, self.target = "", ""           # prefix of names in an inline function; name of the assigned variable
        self.variables = {**dict(variables), "FUSED": int(fused)}

    def run(self, text):
        for statement in parse(text):
            self.execute(statement)

    def definitions(self):
        """Return the definitions.  The last value has the name of its variable; names of earlier values end with a number."""
        text = "\n".join(self.lines)
        for name, version in self.versions.items():
            if version and name not in self.factors:
                self.renamed += [(rf"\b{name}\b", f"{name}_0"), (rf"\b{name}_{version}\b", name)]
        self.hypotheses = [self.rename(hypothesis) for hypothesis in self.hypotheses]
        return self.rename(text)

    def rename(self, text):
        for pattern, name in self.renamed:
            text = re.sub(pattern, name, text)
        return text

    # ---- statements ----

    def execute(self, node):
        kind = node[0]
        if kind == "block":
            for statement in node[1]:
                self.execute(statement)
        elif kind == "assign":
            if node[2] is not None:
                self.target = self.prefix + self.path(node[1])
                self.assign(node[1], self.evaluate(node[2]))
        elif kind == "for":
            self.execute(node[1])
            while self.condition(node[2]):
                self.execute(node[4])
                self.execute(node[3])
        elif kind == "if":
            self.execute(node[2] if self.condition(node[1]) else node[3])
        elif kind == "return":
            self.target = self.prefix.removesuffix("_")
            raise Return(self.evaluate(node[1]))
        elif kind == "expression":
            self.evaluate(node[1])

    def assign(self, target, value):
        if target[0] == "member" and target[1][0] == "name" and isinstance(self.variables.get(target[1][1]), dict):
            name, member = target[1][1], target[2]
            self.variables[name] = {**self.variables[name], member: self.named(f"{self.prefix}{name}_{member}", value)}
            return
        name = self.path(target)
        if name not in self.given:
            self.variables[name] = self.named(self.prefix + name, value)

    def named(self, name, value):
        """Define a name for a value, and return the name."""
        if isinstance(value, dict):
            return {member: self.named(f"{name}_{member}", part) for member, part in value.items()}
        if not isinstance(value, Real) or isinstance(value, Zero):
            return value
        if re.fullmatch(r"-?\w+(b-\d+)?", value) and self.is_input(value):
            return value
        if value != self.current(name):
            self.lines.append(f"{self.fresh(name)} = {value};")
        return Real(self.current(name))

    def current(self, name):
        name += self.suffix
        return f"{name}_{version}" if (version := self.versions.get(name, 0)) else name

    def is_input(self, name):
        return not any(line.startswith(f"{name} =") for line in self.lines) and name not in self.factors

    def fresh(self, name):
        name += self.suffix
        version = self.versions.get(name, -1) + 1
        self.versions[name] = version
        return f"{name}_{version}" if version else name

    # ---- expressions ----

    def path(self, node):
        """Return the name of a variable or an address; indices are left out, unless they are named constants."""
        kind = node[0]
        if kind == "name":
            return node[1]
        if kind == "member":
            return f"{self.path(node[1])}_{node[2]}"
        if kind == "index":
            return self.path(("+", node[1], node[2]))
        if kind == "unary" and node[1] in "*&":
            return self.path(node[2])
        if kind == "cast":
            return self.path(node[2])
        if kind == "+":
            return self.path(node[1]) + (f"_{constant}" if (constant := self.constant_offset(node[2])) else "")
        raise ProofError(f"{node} is not a variable")

    def constant_offset(self, node):
        if node[0] == "name" and node[1].isupper() and node[1] != "LANES":
            return node[1]
        if node[0] == "*" and node[1][0] == "number" and (name := self.constant_offset(node[2])):
            return f"{node[1][1]}_{name}"
        return ""

    def evaluate(self, node):
        kind = node[0]
        if kind == "number":
            return node[1]
        if kind == "name":
            return self.lookup(node[1])
        if kind == "member":
            return self.member(node)
        if kind == "index":
            return self.element(node)
        if kind == "call":
            return self.call(node[1], node[2])
        if kind == "struct":
            high, low = (self.evaluate(member) for member in node[1])
            return {"high": real(high), "low": real(low)}
        if kind == "?":
            return self.evaluate(node[2] if self.condition(node[1]) else node[3])
        if kind == "cast":
            return self.cast(node)
        if kind == "unary":
            return self.unary(node)
        return self.binary(kind, self.evaluate(node[1]), self.evaluate(node[2]))

    def condition(self, node):
        value = self.evaluate(node)
        if isinstance(value, Real):
            raise ProofError(f"{value} is not an integer, so a condition on it is not translated")
        return value

    def lookup(self, name):
        if name in self.variables:
            return self.variables[name]
        constant = self.headers.constant(name)
        if constant is None:
            self.inputs.add(name)
            return Real(name)
        return constant

    def member(self, node):
        if node[1][0] == "name" and isinstance(base := self.variables.get(node[1][1]), dict):
            return base[node[2]]
        return self.lookup(self.path(node))

    def element(self, node):
        try:
            base = self.evaluate(node[1])
        except ProofError:
            base = None
        if isinstance(base, list):
            return base[self.evaluate(node[2])]
        return self.lookup(self.path(node))

    def cast(self, node):
        value = self.evaluate(node[2])
        return self.rounded(value, "float32") if node[1] == "float" and isinstance(value, Real) else value

    def unary(self, node):
        if node[1] in "*&":
            return self.lookup(self.path(node[2]))
        if node[1] in "!~":
            value = self.condition(node[2])
            return int(not value) if node[1] == "!" else ~value
        value = self.evaluate(node[2])
        return self.negated(value) if isinstance(value, Real) else -value

    def negated(self, value):
        return value if isinstance(value, Zero) else Real(f"-{wrapped(value)}")

    def binary(self, operator, left, right):
        if isinstance(left, Real) or isinstance(right, Real):       # arithmetic on scalars in C is rounded
            return self.rounded(self.combined(operator, left, right))
        operations = {
            "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "<": lambda a, b: a < b,
            ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, "==": lambda a, b: a == b,
            "!=": lambda a, b: a != b, "/": lambda a, b: a // b, "<<": lambda a, b: a << b,
        }
        return operations[operator](left, right)

    def combined(self, operator, left, right):
        """Return left + right, left - right or left * right without rounding."""
        if operator not in ("+", "-", "*"):
            raise ProofError(f"{left} {operator} {right} is not a sum or product")
        left, right = real(left), real(right)
        if operator == "*":
            return ZERO if isinstance(left, Zero) or isinstance(right, Zero) else Real(f"{wrapped(left)} * {wrapped(right)}")
        if isinstance(left, Zero) or isinstance(right, Zero):
            other = left if isinstance(right, Zero) else right if operator == "+" else self.negated(right)
            return other if isinstance(other, Zero) else Double(other)
        return Real(f"{left} {operator} {wrapped(right)}")

    def rounded(self, value, operator="rnd"):
        """Return a rounded value."""
        if isinstance(value, Zero):
            return value
        if self.mode == "exact" or isinstance(value, Double) and self.mode == "rounded":
            return value
        if self.mode == "rounded":
            return Real(f"{operator}({value})")
        name = self.fresh("r")
        self.factors.add(name)
        self.hypotheses.append(f"{name} -/ ({value}) in [-1b-{self.precision},1b-{self.precision}]")
        return Real(name)

    # ---- calls ----

    def call(self, name, arguments):
        if name in OPAQUE:
            self.inputs.add(result := "_".join([name, *(str(a[1]) for a in arguments if a[0] == "number")]))
            return Real(result)
        if name in LOADS:
            return self.lookup(self.path(arguments[0]))
        if name == "dd_load":
            high, low = (self.lookup(self.path(a)) for a in arguments)
            return {"high": real(high), "low": real(low)}
        if name in ("f64_store", "dd_store"):
            *targets, value = arguments
            value = self.evaluate(value)
            for target, part in zip(targets, value.values() if isinstance(value, dict) else [value], strict=True):
                self.assign(("name", self.path(target)), part)
            return None
        if name == "f64_interleave":                # moves numbers without changing them
            for target, source in zip(arguments[2:], arguments[:2], strict=True):
                self.assign(("name", self.path(target)), self.evaluate(source))
            return None
        values = [self.evaluate(argument) for argument in arguments]
        if name == "f64_set":
            return ZERO if arguments[0] == ("number", 0) else real(values[0])
        if name in EXACT and "WITHOUT_THEOREMS" not in self.variables:
            return self.exact(name, *values)
        name = name.replace("f32_", "f64_")
        if name in ROUNDED:
            return self.rounded(self.combined(ROUNDED[name], *values))
        if name in ("f64_muladd", "f64_mulsub"):
            product = self.combined("*", values[0], values[1])
            first, operator = product if self.fused else self.rounded(product), "+" if name == "f64_muladd" else "-"
            total = self.combined(operator, first, values[2])
            is_product = self.fused and not isinstance(product, Zero) and isinstance(values[2], Zero)
            return self.rounded(Real(total) if is_product else total)
        if name in ("f64_abs", "magnitude_of"):
            return values[0] if "POSITIVE" in self.variables or isinstance(values[0], Zero) else Real(f"|{values[0]}|")
        if name == "dd_negated":
            return {member: self.negated(part) for member, part in values[0].items()}
        return self.inline(name, values)

    def exact(self, name, a, b):
        """Return the result of an operation (rounded unless `mode` is "exact") and its exact error."""
        value = self.combined(EXACT[name], a, b)
        if isinstance(value, Zero) or self.mode == "exact":
            return {"high": value, "low": ZERO}
        target = self.target
        if name == "fast_two_sum" and not re.fullmatch(r"\w+", b) or b in self.factors:
            b = self.named(f"{target}_rest", b)
            value = self.combined(EXACT[name], a, b)
        high = self.named(f"{target}_high", self.rounded(value))
        return {"high": high, "low": self.named(f"{target}_low", Real(f"-({high} - ({value}))"))}

    def inline(self, name, values):
        parameters, body = self.headers.function(name)
        saved = self.variables, self.prefix, self.target
        self.prefix = f"{self.target}_" if self.target else ""
        self.variables = {"FUSED": int(self.fused), **dict(zip(parameters, values, strict=True))}
        try:
            self.run(body)
        except Return as result:
            return result.value
        finally:
            self.variables, self.prefix, self.target = saved
        return None
