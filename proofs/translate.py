"""Translate statements of the C headers to definitions in Gappa's language.

The translator executes the statements of a quotation one by one.  A floating-point number is the text of an expression of
Gappa, an integer is a number, so loops over integers are unrolled.  Inline functions are executed, too; two_sum, fast_two_sum,
two_difference and two_product are replaced by their theorems: the lower number of the result is the exact rounding error.
"""

import re
from fractions import Fraction

TOKEN = re.compile(
    r"\s*(0x[0-9a-fA-F]*\.?[0-9a-fA-F]*p[+-]?\d+f?|0x[0-9a-fA-F]+[uUlL]*|\d+\.\d*|\d+[uUlL]*|[A-Za-z_]\w*"
    r"|->|\+\+|--|<<=?|>>=?|[-+*/|&^<>=!]=|&&|\|\||\S)"
)
BINARY = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]]
TYPES = {"vf64", "vdd", "vf32", "vu64", "double", "float", "int", "uint32_t", "uint64_t"}
LOADS = {"f64_load", "f32_load", "f64_load_f32"}
EXACT = {"fast_two_sum": "+", "two_sum": "+", "two_difference": "-", "two_product": "*"}
ROUNDED = {"f64_add": "{} + {}", "f64_sub": "{} - {}", "f64_mul": "{} * {}", "f64_add_fma": "{} + {}"}


class ProofError(Exception):
    """The headers do not have the form that a script of proofs/ expects."""


def number_of(text):
    """Return the value of a number in C, exactly."""
    if text.startswith("-"):
        return -number_of(text[1:])
    text = text.rstrip("uUlL") if "p" not in text else text.rstrip("f")
    if "p" not in text:
        return Fraction(text) if "." in text else int(text, 0)
    mantissa, exponent = text[2:].split("p")
    whole, _, fraction = mantissa.partition(".")
    return Fraction(int(whole + fraction, 16), 16 ** len(fraction)) * Fraction(2) ** int(exponent)


def gappa_number(x):
    """Return the text of a dyadic rational in Gappa's language."""
    x = Fraction(x)
    exponent = x.denominator.bit_length() - 1
    if x.denominator != 1 << exponent:
        raise ProofError(f"{x} is not a sum of powers of two")
    return f"{x.numerator}b-{exponent}" if exponent else str(x.numerator)


class Real(str):
    """The text of an expression of Gappa."""


class Zero(Real):
    """A term that a linear form leaves out, with the sums of such terms."""


class Double(Real):
    """The sum of a double and zero, which rounding does not change."""


ZERO = Zero("0")


def real(value):
    if isinstance(value, Real):
        return value
    if isinstance(value, (int, Fraction)):
        return Real(gappa_number(value))
    raise ProofError(f"{value!r} is not a floating-point number")


def wrapped(text):
    return text if re.fullmatch(r"\w+|\d+b-?\d+", text) else f"({text})"


class Parser:
    """Parses C text to nested tuples: ("call", name, arguments), ("name", path), ("number", x), and so on."""

    def __init__(self, text):
        self.tokens = TOKEN.findall(re.sub(r"/\*.*?\*/", " ", text, flags=re.S))
        self.at = 0

    def peek(self, offset=0):
        return self.tokens[self.at + offset] if self.at + offset < len(self.tokens) else ""

    def take(self, expected=None):
        token = self.peek()
        if expected and token != expected:
            raise ProofError(f"found {token!r} after {' '.join(self.tokens[max(0, self.at - 8):self.at])!r}, expected {expected!r}")
        self.at += 1
        return token

    def accept(self, token):
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def statements(self, end=""):
        result = []
        while self.peek() != end:
            result.append(self.statement())
        return result

    def statement(self):
        if self.accept("{"):
            body = self.statements("}")
            self.take("}")
            return ("block", body)
        if self.accept("for"):
            return self.loop()
        if self.accept("if"):
            self.take("(")
            condition = self.expression()
            self.take(")")
            then = self.statement()
            return ("if", condition, then, self.statement() if self.accept("else") else ("block", []))
        if self.accept("return"):
            value = self.expression()
            self.take(";")
            return ("return", value)
        self.accept("const")
        if self.peek() in TYPES and re.match(r"\w|\*", self.peek(1)):
            self.take()
            return self.declaration()
        return self.simple(";")

    def loop(self):
        self.take("(")
        self.take("int")
        start = self.declaration()
        condition = self.expression()
        self.take(";")
        step = self.simple(")")
        return ("for", start, condition, step, self.statement())

    def declaration(self):
        items = []
        while True:
            name = self.take()
            while self.accept("["):
                self.expression()
                self.take("]")
            items.append(("assign", ("name", name), self.initialiser() if self.accept("=") else None))
            if not self.accept(","):
                break
        self.take(";")
        return ("block", items)

    def initialiser(self):
        return ("struct", self.arguments("}")) if self.accept("{") else self.expression()

    def simple(self, end):
        target = self.expression()
        operator = self.take()
        if operator in ("++", "--"):
            result = ("assign", target, (operator[0], target, ("number", 1)))
        elif operator == "=":
            result = ("assign", target, self.expression())
        elif operator == "+=":
            result = ("assign", target, ("+", target, self.expression()))
        elif operator == end:
            return ("expression", target)
        else:
            raise ProofError(f"unknown statement with {operator!r}")
        if self.peek() == "," and end == ";":
            self.take()
            result = ("block", [result, self.simple(";")])
            return result
        self.take(end)
        return result

    def expression(self, level=-1):
        if level == -1:
            condition = self.expression(0)
            if not self.accept("?"):
                return condition
            then = self.expression()
            self.take(":")
            return ("?", condition, then, self.expression())
        if level == len(BINARY):
            return self.unary()
        left = self.expression(level + 1)
        while self.peek() in BINARY[level]:
            left = (self.take(), left, self.expression(level + 1))
        return left

    def unary(self):
        if self.peek() in ("-", "*", "&", "!", "~"):
            return ("unary", self.take(), self.unary())
        if self.peek() == "(" and self.peek(1) in TYPES:
            self.take()
            kind = self.take()
            self.take(")")
            if not self.accept("{"):
                return ("cast", kind, self.unary())
            members = self.arguments("}")
            return ("struct", members)
        return self.postfix()

    def arguments(self, end):
        result = []
        while not self.accept(end):
            result.append(self.expression())
            self.accept(",")
        return result

    def postfix(self):
        if self.accept("("):
            value = self.expression()
            self.take(")")
        elif re.match(r"\d", self.peek()):
            value = ("number", number_of(self.take()))
        else:
            value = ("name", self.take())
        while True:
            if self.accept("("):
                value = ("call", value[1], self.arguments(")"))
            elif self.accept("["):
                value = ("index", value, self.expression())
                self.take("]")
            elif self.peek() in (".", "->"):
                self.take()
                value = ("member", value, self.take())
            else:
                return value


class Return(Exception):
    def __init__(self, value):
        self.value = value


class Translator:
    """Executes C statements.  `lines` are the definitions; `hypotheses` bound the factors of roundings.

    mode: "rounded" writes the rounding operator of Gappa; "exact" leaves roundings out; "factors"
    multiplies by 1 + e instead of rounding, so that a value is linear in its inputs, and inputs may be Zero.  A suffix is appended
    to each name.
    """

    def __init__(self, headers, fused, mode, variables=(), precision=53, suffix=""):
        self.suffix = suffix or ("_e" if mode == "exact" else "")
        self.headers, self.fused, self.mode, self.precision = headers, fused, mode, precision
        self.lines, self.hypotheses, self.versions, self.factors, self.renamed = [], [], {}, set(), []
        self.prefix, self.target = "", ""           # of the names in an inline function; the variable that is assigned
        self.variables = {**dict(variables), "FUSED": int(fused)}

    def run(self, text):
        for statement in Parser(text).statements():
            self.execute(statement)

    def definitions(self):
        """Return the definitions.  The last value of a variable has its name, earlier ones have a number."""
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
            while self.evaluate(node[2]):
                self.execute(node[4])
                self.execute(node[3])
        elif kind == "if":
            self.execute(node[2] if self.evaluate(node[1]) else node[3])
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
        self.variables[name] = self.named(self.prefix + name, value)

    def named(self, name, value):
        """Define a name for a value, and return the name."""
        if isinstance(value, dict):
            return {member: self.named(f"{name}_{member}", part) for member, part in value.items()}
        if not isinstance(value, Real) or isinstance(value, Zero) or re.fullmatch(r"-?\w+(b-\d+)?", value) and self.is_input(value):
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
        """Return the name of a variable or an address; indices of columns and vectors are left out."""
        kind = node[0]
        if kind == "name":
            return node[1]
        if kind == "member":
            return f"{self.path(node[1])}_{node[2]}"
        if kind == "index":
            return self.path(node[1])
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
            return self.evaluate(node[2] if self.evaluate(node[1]) else node[3])
        if kind == "cast":
            return self.cast(node)
        if kind == "unary":
            return self.unary(node)
        return self.binary(kind, self.evaluate(node[1]), self.evaluate(node[2]))

    def lookup(self, name):
        if name in self.variables:
            return self.variables[name]
        constant = self.headers.constant(name)
        return Real(name) if constant is None else constant

    def member(self, node):
        if node[1][0] == "name" and isinstance(base := self.lookup(node[1][1]), dict):
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
        value = self.evaluate(node[2])
        if node[1] == "-":
            return self.negated(value) if isinstance(value, Real) else -value
        return int(not value) if node[1] == "!" else ~value

    def negated(self, value):
        return value if isinstance(value, Zero) else Real(f"-{wrapped(value)}")

    def binary(self, operator, left, right):
        if isinstance(left, Real) or isinstance(right, Real):       # arithmetic of scalars in C: rounded
            return self.rounded(self.combined(operator, left, right))
        operations = {
            "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "<": lambda a, b: a < b,
            ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, "==": lambda a, b: a == b,
            "!=": lambda a, b: a != b, "/": lambda a, b: a // b, "<<": lambda a, b: a << b,
        }
        return operations[operator](left, right)

    def combined(self, operator, left, right):
        """Return left + right, left - right or left * right without rounding."""
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
        if self.variables.get(name) == "OPAQUE":
            return Real("_".join([name, *(str(a[1]) for a in arguments if a[0] == "number")]))
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
        values = [self.evaluate(argument) for argument in arguments]
        if name == "f64_set":
            return real(values[0])
        if name in EXACT and "WITHOUT_THEOREMS" not in self.variables:
            return self.exact(name, *values)
        name = name.replace("f32_", "f64_")
        if name in ROUNDED:
            return self.rounded(self.combined(ROUNDED[name][3], *values))
        if name in ("f64_muladd", "f64_mulsub"):
            product = self.combined("*", values[0], values[1])
            return self.rounded(self.combined("+" if name == "f64_muladd" else "-",
                                              product if self.fused else self.rounded(product), values[2]))
        if name in ("f64_abs", "magnitude_of"):
            return Real(f"|{values[0]}|")
        if name == "dd_negated":
            return {member: self.negated(part) for member, part in values[0].items()}
        return self.inline(name, values)

    def exact(self, name, a, b):
        """Return a (rounded) result and its exact error."""
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


class Headers:
    """The C sources, by their path below src/posenc/_core/c."""

    def __init__(self, folder, changes=None):
        self.texts = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.[ch]"))}
        for path, old, new in changes or []:
            if self.texts[path].count(old) != 1:
                raise ProofError(f"{path} has {self.texts[path].count(old)} times {old!r}, expected once")
            self.texts[path] = self.texts[path].replace(old, new)
        self.known = {}

    def find(self, path, text):
        """Return the position after a quotation, which must occur exactly once; white space and comments do not matter."""
        source = plain(self.texts[path])
        if source.count(plain(text)) != 1:
            raise ProofError(f"{path} no longer has exactly once:\n{text}")

    def capture(self, path, text):
        """Return the number at {} in a quotation, which must occur exactly once; {_} stands for any number."""
        number = r"\s*(-?0x[\da-fA-F.]+(?:p[+-]?\d+)?[uUlL]*|-?\d[\d.]*[uUlL]*)(?![\w.])\s*"
        other = number.replace("(-?", "(?:-?", 1)
        parts = [other.join(re.escape(plain(piece)) for piece in part.split("{_}")) for part in text.split("{}")]
        found = re.findall(number.join(parts), plain(self.texts[path]))
        if len(found) != 1:
            raise ProofError(f"{path} has {len(found)} times {text!r}, expected once")
        return number_of(found[0])

    def constant(self, name):
        """Return a #define, an enum constant or an array of numbers, or None."""
        if not name.isupper():
            return None
        if name not in self.known:
            self.known[name] = self.search(name)
        return self.known[name]

    def search(self, name):
        for text in self.texts.values():
            text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
            if found := re.search(rf"#define {name} (0x[\w.]+p[+-]?\d+|\d+)", text):
                return number_of(found[1])
            if found := re.search(rf"enum {{[^}}]*\b{name} = (\d+)", text):
                return int(found[1])
            if found := re.search(rf"(?:double|uint32_t) {name}\[.*?\] = ({{.*?}});", text, flags=re.S):
                return self.array(Parser(found[1]))
        return None

    def array(self, parser):
        if not parser.accept("{"):
            sign = -1 if parser.accept("-") else 1
            return sign * Fraction(number_of(parser.take()))
        items = []
        while not parser.accept("}"):
            items.append(self.array(parser))
            parser.accept(",")
        return items

    def function(self, name):
        """Return the names of the parameters of an inline function, and its body."""
        for text in self.texts.values():
            found = re.search(rf"^(?:INLINE|NOINLINE|static)[\w ]* \*?{name}\(([^)]*)\) {{(.*?)(?:^}}| }}$)", text, re.M | re.S)
            if found:
                return [re.search(r"(\w+)(\[[^]]*\])*$", p.strip())[1] for p in found[1].split(",")], found[2]
        raise ProofError(f"no function {name}")


def plain(text):
    """Return C text without comments, with single spaces."""
    return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.S).split())
