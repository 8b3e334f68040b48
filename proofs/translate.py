"""Translate statements of the C headers to definitions in Gappa's language.

The translator executes the statements one by one.  It represents a floating-point number by the text of an
expression, and an integer by its value, so loops over integers are unrolled.  Inline functions are executed,
too, except two_sum, fast_two_sum, two_difference and two_product.  These are replaced by their theorems: the
lower number of the result is the exact rounding error.  A condition on a floating-point number is refused,
because its result is unknown.
"""

import operator
import re
from fractions import Fraction

from headers import ProofError, number_of, parse
from pycparser import c_ast

# not translated
OPAQUE = {"direct_phase", "phase_limb", "symmetry_of", "apply_symmetry", "direct_double", "direct_dd"}
LOADS = {"f64_load", "f32_load", "f64_load_f32"}
EXACT = {"fast_two_sum": "+", "two_sum": "+", "two_difference": "-", "two_product": "*"}
INTEGERS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "<<": operator.lshift,
            "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne}
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

    mode: "rounded" writes the rounding operator of Gappa; "exact" leaves roundings out; "factors" multiplies
    by 1 + e instead of rounding, so that a value is linear in its inputs, and inputs may be Zero.  `suffix`
    is appended to each name. Assignments to a variable in `given` are ignored.
    """

    def __init__(self, headers, fused, mode, variables=(), precision=53, suffix="", given=()):
        self.suffix = suffix or ("_e" if mode == "exact" else "")
        self.headers, self.fused, self.mode, self.precision = headers, fused, mode, precision
        self.lines, self.hypotheses, self.versions, self.factors, self.renamed = [], [], {}, set(), []
        self.given = set(given)
        self.inputs = set()                         # names that have no definition in the code
        # prefix of names in an inline function; name of the assigned variable
        self.prefix, self.target = "", ""
        self.variables = {**dict(variables), "FUSED": int(fused)}

    def run(self, text):
        self.run_all(parse(text))

    def definitions(self):
        """Return the definitions.  The last value has the name of its variable; earlier ones a number, too."""
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
        match node:
            case c_ast.Compound():
                self.run_all(node.block_items)
            case c_ast.DeclList():
                self.run_all(node.decls)
            case c_ast.Decl():
                if node.init:
                    self.assign(c_ast.ID(node.name), node.init)
            case c_ast.Assignment(rvalue=c_ast.Assignment()):       # a = b = c
                self.execute(node.rvalue)
                self.assign(node.lvalue, node.rvalue.rvalue)
            case c_ast.Assignment():
                source = node.rvalue if node.op == "=" else c_ast.BinaryOp(node.op[:-1], node.lvalue, node.rvalue)
                self.assign(node.lvalue, source)
            case c_ast.UnaryOp(op="p++" | "++" | "p--" | "--"):
                self.assign(node.expr, c_ast.BinaryOp(node.op[-1], node.expr, c_ast.Constant("int", "1")))
            case c_ast.For():
                self.execute(node.init)
                while self.condition(node.cond):
                    self.run_all([node.stmt, node.next])
            case c_ast.If():
                self.run_all([node.iftrue if self.condition(node.cond) else node.iffalse])
            case c_ast.Return():
                self.target = self.prefix.removesuffix("_")
                raise Return(self.evaluate(node.expr))
            case _:
                self.evaluate(node)

    def run_all(self, nodes):
        for node in filter(None, nodes or []):
            self.execute(node)

    def assign(self, target, source):
        self.target = self.prefix + self.path(target)
        self.set(target, self.evaluate(source))

    def set(self, target, value):
        match target:
            case c_ast.StructRef(name=c_ast.ID(name=name)) if isinstance(self.variables.get(name), dict):
                member = target.field.name
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
        """Return the name of a variable or an address; indices are left out, except named constants."""
        match node:
            case c_ast.ID():
                return node.name
            case c_ast.StructRef():
                return f"{self.path(node.name)}_{node.field.name}"
            case c_ast.ArrayRef():
                return self.path(node.name) + self.constant_offset(node.subscript)
            case c_ast.UnaryOp(op="*" | "&") | c_ast.Cast():
                return self.path(node.expr)
            case c_ast.BinaryOp(op="+"):
                return self.path(node.left) + self.constant_offset(node.right)
        raise ProofError(f"{node} is not a variable")

    def constant_offset(self, node):
        match node:
            case c_ast.ID() if node.name.isupper() and node.name != "LANES":
                return f"_{node.name}"
            case c_ast.BinaryOp(op="*", left=c_ast.Constant()) if name := self.constant_offset(node.right):
                return f"_{node.left.value}{name}"
        return ""

    def evaluate(self, node):
        match node:
            case c_ast.Constant():
                return number_of(node.value)
            case c_ast.ID():
                return self.lookup(node.name)
            case c_ast.StructRef():
                return self.member(node)
            case c_ast.ArrayRef():
                return self.element(node)
            case c_ast.FuncCall():
                return self.call(node.name.name, node.args.exprs if node.args else [])
            case c_ast.CompoundLiteral():
                return self.evaluate(node.init)
            case c_ast.InitList():
                high, low = (self.evaluate(member) for member in node.exprs)
                return {"high": real(high), "low": real(low)}
            case c_ast.BinaryOp():
                return self.binary(node.op, self.evaluate(node.left), self.evaluate(node.right))
        raise ProofError(f"{type(node).__name__} is not translated")

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
        if isinstance(node.name, c_ast.ID) and isinstance(base := self.variables.get(node.name.name), dict):
            return base[node.field.name]
        return self.lookup(self.path(node))

    def element(self, node):
        try:
            base = self.evaluate(node.name)
        except ProofError:
            base = None
        if isinstance(base, list):
            return base[self.evaluate(node.subscript)]
        return self.lookup(self.path(node))

    def negated(self, value):
        return value if isinstance(value, Zero) else Real(f"-{wrapped(value)}")

    def binary(self, sign, left, right):
        if isinstance(left, Real) or isinstance(right, Real):       # arithmetic on scalars in C is rounded
            return self.rounded(self.combined(sign, left, right))
        return INTEGERS[sign](left, right)

    def combined(self, sign, left, right):
        """Return left + right, left - right or left * right without rounding."""
        if sign not in ("+", "-", "*"):
            raise ProofError(f"{left} {sign} {right} is not a sum or product")
        left, right = real(left), real(right)
        if sign == "*":
            return ZERO if isinstance(left, Zero) or isinstance(right, Zero) else Real(f"{wrapped(left)} * {wrapped(right)}")
        if isinstance(left, Zero) or isinstance(right, Zero):
            other = left if isinstance(right, Zero) else right if sign == "+" else self.negated(right)
            return other if isinstance(other, Zero) else Double(other)
        return Real(f"{left} {sign} {wrapped(right)}")

    def rounded(self, value):
        """Return a rounded value."""
        if isinstance(value, Zero):
            return value
        if self.mode == "exact" or isinstance(value, Double) and self.mode == "rounded":
            return value
        if self.mode == "rounded":
            return Real(f"rnd({value})")
        name = self.fresh("r")
        self.factors.add(name)
        self.hypotheses.append(f"{name} -/ ({value}) in [-1b-{self.precision},1b-{self.precision}]")
        return Real(name)

    # ---- calls ----

    def call(self, name, arguments):
        if name in OPAQUE:
            numbers = [argument.value for argument in arguments if isinstance(argument, c_ast.Constant)]
            self.inputs.add(result := "_".join([name, *numbers]))
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
                self.set(c_ast.ID(self.path(target)), part)
            return None
        values = [self.evaluate(argument) for argument in arguments]
        if name == "f64_set":
            return ZERO if isinstance(arguments[0], c_ast.Constant) and values[0] == 0 else real(values[0])
        if name in EXACT and "WITHOUT_THEOREMS" not in self.variables:
            return self.exact(name, *values)
        name = name.replace("f32_", "f64_")
        if name in ROUNDED:
            return self.rounded(self.combined(ROUNDED[name], *values))
        if name in ("f64_muladd", "f64_mulsub"):
            product = self.combined("*", values[0], values[1])
            first, sign = product if self.fused else self.rounded(product), "+" if name == "f64_muladd" else "-"
            total = self.combined(sign, first, values[2])
            is_product = self.fused and not isinstance(product, Zero) and isinstance(values[2], Zero)
            return self.rounded(Real(total) if is_product else total)
        if name in ("f64_abs", "magnitude_of"):
            return values[0] if "POSITIVE" in self.variables or isinstance(values[0], Zero) else Real(f"|{values[0]}|")
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
