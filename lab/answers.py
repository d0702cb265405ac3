"""Answers out of text, and when two of them are equal: extract_answer, canonical, same_answer.

A vote counts classes of answers, so equality must be an equivalence relation. Here it is one by construction:
canonical() turns an answer into a key, and two answers are equal when their keys are the same string. The answer is
cut into tokens (expressions.py), lists, tuples and relations are taken apart here, and what remains is read into a
polynomial and printed in one fixed order (algebra.py); no floats. What is not understood is kept as text in quotes and
equals only itself: in doubt two answers differ. Completions are untrusted: length, nesting, numbers and work are
bounded, and nothing is evaluated by Python. The papers leave all of this open; the conventions are ours:

    box     The last complete, non-empty \\boxed or \\fbox after any </think>; None where a later box is cut off.
    comma   Before exactly three digits a comma is a thousands mark, 1,000 = 1000; inside brackets only where other
            commas are spaced: (100,200) is a pair, (1,000, 2) is one too.
    number  2\\frac12 and 2 1/2 are mixed numbers; 1e-3 is a power of ten; 1/3 is not 0.333; 52_8 is the number 42.
    marks   28% = 28, which is not 0.28; 90 degrees = 90; $5 = 5; 5 million = 5000000.
    unit    Words after a number are a unit and are dropped, unless they change what it says (pm, north, less, ...).
    label   x = 5 and Area = 5 are 5. In a list, labels that differ stay: x=1, y=2 is not x=2, y=1.
    list    A bare list is unordered and equals the set; a set of one is its element; a tuple is ordered. \\pm is two.
    TeX     \\frac12 and \\sqrt23 take one digit each, as in TeX; after ^ and _ all digits count, so 2^10 = 1024.
    slash   1/2x has two readings: it stays text.
    words   Case matters in variables, not in words. Three letters with a vowel are a word; ab is a product.

Three layers, read from below: exact algebra (a polynomial is a dict {monomial: Fraction}), the reader (TeX or plain text into
tokens, the tokens of one expression into a polynomial), and structure (lists, sets, tuples, relations, units).
"""

import re
from fractions import Fraction
from functools import lru_cache
from math import factorial, floor, gcd, isqrt, lcm

MAX_CHARS = 600  # longer answers are compared as text, spaces aside
MAX_DEPTH = 12  # nested brackets

# ================================================================ algebra
# Exact algebra for answers: polynomials with fractional exponents, each with one printed form. No floats.
#
# A polynomial is a dict {monomial: Fraction}, a monomial a frozenset of (atom, exponent); exponents are Fractions and may
# be negative. Three facts make the form unique where it matters: a root of a number is split into roots of primes,
# sqrt(12) = 2 * 3^(1/2); the imaginary unit obeys i^2 = -1; products of sums are multiplied out. Atoms are
#     int        a prime (or a number that we cannot factor) under a root, its exponent between 0 and 1
#     "i"        the imaginary unit, exponent 1
#     other str  the printed name of a variable, of a function applied to something, or of a power such as 2^n
#     frozenset  the items of a polynomial under a negative or fractional power, such as (x+1)^(-1)
# What would be too large raises Unreadable: completions are untrusted (9^{9^{9^9}}). Incomplete on purpose: fractions of
# sums are not cancelled, nested roots and identities of functions are not used. So some equal expressions print
# differently, but different ones never print the same.

MAX_BITS = 3000  # of any numerator or denominator, about 900 digits
MAX_PAIRS = 500  # of terms in one multiplication
ONE = frozenset()  # the empty monomial


class Unreadable(ValueError):
    """This has no reading as mathematics here, or is too large."""


def constant(value):
    """The polynomial that is this number; zero has no terms."""
    return {ONE: Fraction(value)} if value else {}


def as_number(p):
    """The value of a constant polynomial, else None."""
    return p.get(ONE, Fraction(0)) if set(p) <= {ONE} else None


def atom(name, exponent=1):
    """The polynomial name^exponent: one term, coefficient 1."""
    return {frozenset({(name, Fraction(exponent))}): Fraction(1)}


# ---- Arithmetic. ----


def add(a, b, sign=1):
    """a + sign * b."""
    total = dict(a)
    for monomial, c in b.items():
        total[monomial] = total.get(monomial, 0) + sign * c
    return {monomial: _bounded(c) for monomial, c in total.items() if c}


def multiply(a, b):
    """Product of two polynomials. Raises Unreadable where it would have too many terms."""
    if len(a) * len(b) > MAX_PAIRS:
        raise Unreadable
    total = {}
    for monomial_a, c_a in a.items():
        for monomial_b, c_b in b.items():
            exponents = dict(monomial_a)
            for atom, e in monomial_b:
                exponents[atom] = exponents.get(atom, 0) + e
            for monomial, c in _product(exponents, c_a * c_b).items():
                total[monomial] = total.get(monomial, 0) + c
    return {monomial: _bounded(c) for monomial, c in total.items() if c}


def _bounded(c):
    if max(c.numerator.bit_length(), c.denominator.bit_length()) > MAX_BITS:
        raise Unreadable
    return c


def number_power(c, e):
    """The Fraction c to the whole power e; the size is checked before the power is taken."""
    if (not c and e <= 0) or max(abs(c.numerator).bit_length() - 1, c.denominator.bit_length() - 1) * abs(e) > MAX_BITS:
        raise Unreadable
    return c**e


def _product(exponents, c):
    """c times the product of atom^exponent in normal form: 2^(3/2) = 2 * 2^(1/2), i^2 = -1, ((x+1)^(1/2))^2 = x+1."""
    kept, sums = {}, []
    for atom, e in exponents.items():
        if isinstance(atom, int):
            c *= number_power(Fraction(atom), floor(e))
            e -= floor(e)
        elif atom == "i":
            c *= -1 if e % 4 >= 2 else 1
            e %= 2
        elif isinstance(atom, frozenset) and e.denominator == 1:
            base = dict(atom)
            if e > 0 or len(base) == 1 or _has_conjugate(base):
                sums.append(power(base, e))
                e = 0
        if e:
            kept[atom] = e
    result = {frozenset(kept.items()): c}
    for factor in sums:
        result = multiply(result, factor)
    return result


def _has_conjugate(p):
    """Whether p is made of numbers, square roots and i alone, so that 1/p can be written without a denominator."""
    return all(atom == "i" or (isinstance(atom, int) and 2 * k == 1) for monomial in p for atom, k in monomial)


def power(p, e):
    """p to the power e, a Fraction. Odd roots of negative numbers are real; their square roots have i."""
    whole = e.denominator == 1
    if not p or e == 0:
        if not p and e <= 0:
            raise Unreadable
        return constant(1) if p else {}
    if whole and len(p) == 1:
        ((monomial, c),) = p.items()
        return _product({atom: k * e for atom, k in monomial}, number_power(c, int(e)))
    if whole and e > 0:
        if len(p) * e > 60:
            raise Unreadable
        result = p
        for _ in range(int(e) - 1):
            result = multiply(result, p)
        return result
    if whole and e < -1:
        return power(power(p, Fraction(-1)), -e)
    if whole and _has_conjugate(p):  # 1 / (a + b r) = (a - b r) / (a^2 - b^2 r^2)
        r = next(atom for monomial in p for atom, _ in monomial)
        conjugate = {monomial: -c if r in dict(monomial) else c for monomial, c in p.items()}
        return multiply(conjugate, power(multiply(p, conjugate), e))
    content, rest = primitive(p, signed=whole or as_number(p) is not None)
    outside = constant(1 / content) if whole else _root(content, e)
    return outside if as_number(rest) == 1 else multiply(outside, atom(frozenset(rest.items()), e))


def primitive(p, signed=True):
    """(content, p / content), the latter with whole coefficients of gcd 1, the first one positive (if signed)."""
    content = Fraction(gcd(*(c.numerator for c in p.values())), lcm(*(c.denominator for c in p.values())))
    if signed and _terms(p)[0][1] < 0:
        content = -content
    return content, {monomial: c / content for monomial, c in p.items()}


def _root(c, e):
    """The number c to the power e, not a whole one, as a product of roots of primes."""
    if c < 0 and e.denominator > 2 and e.denominator % 2 == 0:
        raise Unreadable
    exponents, sign = {}, 1
    if c < 0 and e.denominator == 2:
        exponents["i"] = Fraction(e.numerator)
    elif c < 0:
        sign = (-1) ** (e.numerator % 2)
    for n, direction in ((abs(c.numerator), 1), (c.denominator, -1)):
        for prime, times in _factors(n):
            exponents[prime] = exponents.get(prime, 0) + direction * times * e
    return _product(exponents, Fraction(sign))


@lru_cache(maxsize=1024)
def _factors(n):
    """[(base, exponent)] whose product is n: primes below 1000, then what is left, unsplit unless it is a square."""
    found = []
    for p in range(2, 1000):
        times = 0
        while n % p == 0:
            n, times = n // p, times + 1
        if times:
            found.append((p, times))
        if p * p > n:
            break
    times = 1
    while n > 1 and isqrt(n) ** 2 == n:
        n, times = isqrt(n), times * 2
    return found + [(n, times)] * (n > 1)


# ---- Printing. ----


def show(p):
    """The polynomial as text: one text per polynomial, and one that reads back as the same polynomial."""
    text = ""
    for name, c in _terms(p):
        size = str(abs(c))
        term = name if name and size == "1" else f"{size}*{name}" if name else size
        text += ("-" if c < 0 else "+" if text else "") + term
    return text or "0"


def _terms(p):
    """[(printed monomial, coefficient)] by falling degree, then by name."""
    terms = [(-sum(k for _, k in monomial), _show_monomial(monomial), c) for monomial, c in p.items()]
    return [(name, c) for _, name, c in sorted(terms)]


def _show_monomial(monomial):
    factors = []
    for atom, k in monomial:
        base = f"({show(dict(atom))})" if isinstance(atom, frozenset) else str(atom)
        factors.append(base if k == 1 else f"{base}^{k}" if k > 0 and k.denominator == 1 else f"{base}^({k})")
    return "*".join(sorted(factors))


# ================================================================ the reader
# TeX or plain text into tokens, and the tokens of one expression into a polynomial (algebra.py).
#
# Tokens are numerals without their thousands marks, TeX commands under one name, single signs, runs of letters (variables
# side by side), and words in double quotes. The reader is a recursive descent: a sum of products of factors. Where TeX
# leaves two readings (1/2x, 3 4, x^2^3) it takes neither and raises Unreadable.

MAX_WORK = 800  # products of two terms, in one expression

# ---- Tokens. ----

_DIGITS = r"[0-9]+(?:(?:\{,\}|,\\!|\\[,!])\s*[0-9]{3}(?![0-9]))*"
_REPEATING = r"(?:\\overline\s*\{[0-9]+\})?"
_TOKEN = re.compile(
    rf"""
      "[^"]*"                                   # a key's own text
    | \\(?:text\w*|[mh]box|mathrm|operatorname\*?)\s*\{{(?P<text>[^{{}}]*)\}}
    | (?P<degree>(?:\^\s*(?:\\circ|\{{\s*\\circ\s*\}})|°)(?:\s*[CF](?![A-Za-z]))?)
    | (?P<numeral>(?:{_DIGITS}(?:\.[0-9]*{_REPEATING})?|\.[0-9]+{_REPEATING})(?:[eE][+-]?[0-9]+)?)
    | (?P<sizing>\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\s*\.?)
    | \\(?:begin|end)\s*\{{\w+\*?\}} | \\\\ | \\[A-Za-z]+ | \\. | \*\* | [<>]=
    | (?P<letters>[^\W\d_]+)
    | (?P<comma>,(?:\s|~|\\[ ,;:])*)            # with a space behind it, or tight
    | \S
    """,
    re.X | re.S,
)
_GREEK_NAMES = """alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau
    upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Pi Sigma Phi Psi Omega infty ell"""
_FUNCTION_NAMES = "sin cos tan cot sec csc arcsin arccos arctan log ln exp"
_SKIPPED_SIGNS = r"""$ \$ € £ ~ \, \! \; \: \( \) \[ \] \quad \qquad \displaystyle \textstyle \limits \boxed \fbox
    \bf \rm \it \mathbf \mathit \mathcal \mathbb \mathsf \boldsymbol \bm \text \mathrm \mbox"""
GREEK = frozenset("\\" + name for name in _GREEK_NAMES.split())
FUNCTIONS = frozenset("\\" + name for name in _FUNCTION_NAMES.split())
_SKIPPED = frozenset(_SKIPPED_SIGNS.split()) | {"\\ ", "\\\n"}
_ALIASES = {
    **{"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac"},
    **{"\\cdot": "*", "\\times": "*", "\\ast": "*", "\\div": "/", "**": "^", "\\%": "%", "\\degree": "°"},
    **{"\\le": "\\leq", "\\leqslant": "\\leq", "<=": "\\leq", "\\lt": "<"},
    **{"\\ge": "\\geq", "\\geqslant": "\\geq", ">=": "\\geq", "\\gt": ">"},
    **{"\\lbrace": "\\{", "\\rbrace": "\\}", "\\varnothing": "\\emptyset", ";": ", ", "\\colon": ":"},
    **{name[1:]: name for name in (*FUNCTIONS, "\\sqrt", "\\pi")},  # plain text
}
_PLAIN = str.maketrans(
    {
        **{0xFEE0 + code: chr(code) for code in range(0x21, 0x7F)},  # full-width forms
        **{sign: f"^{{{k}}}" for k, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        **{sign: f"_{{{k}}}" for k, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")},
        **dict.fromkeys("\u2212\u2013", "-"),  # the minus sign and the en dash
        **dict.fromkeys("×·⋅", "*"),
        **dict.fromkeys("÷⁄", "/"),
        **{"π": "\\pi ", "θ": "\\theta ", "∞": "\\infty ", "√": "\\sqrt ", "±": "\\pm ", "∅": "\\emptyset "},
        **{"≤": "\\leq ", "≥": "\\geq ", "∈": "\\in ", "∪": "\\cup "},
        **{"½": "\\frac12 ", "⅓": "\\frac13 ", "⅔": "\\frac23 ", "¼": "\\frac14 ", "¾": "\\frac34 "},
    }
)


def tokenize(text, words=False):
    """Cut text into tokens, without spaces, sizing and dollar signs. words: this is prose, its letters are words."""
    tokens = []
    for match in _TOKEN.finditer(text.translate(_PLAIN)):
        kind, token = match.lastgroup, match[0]
        if kind == "text":
            tokens += tokenize(match["text"], words=True)
        elif kind == "numeral":
            token = re.sub(r"\{,\}|,?\\[,!]|\s|\.$", "", token)
            tokens.append(re.sub(r"\\overline\{([0-9]+)\}", r"(\1)", token))
        elif kind == "degree":
            tokens.append("°")
        elif kind == "comma":
            tokens.append(", " if len(token) > 1 else ",")  # a tight comma may turn out to be a thousands mark
        elif kind == "letters":
            tokens.append(_letters(token, words))
        elif kind != "sizing" and token not in _SKIPPED:
            tokens.append(_ALIASES.get(token, token))
    return tokens


def _letters(run, words):
    """A run of letters: a separator of lists (or, and), a function, a word in quotes, or variables side by side."""
    lower = run.casefold()
    if lower in ("or", "and"):
        return ", "
    if run in _ALIASES and not words:
        return _ALIASES[run]
    is_word = lower == "no" or (len(run) > 2 and set("aeiou") & set(lower)) or (len(run) > 1 and not run.isascii())
    return f'"{lower if len(run) > 1 else run}"' if words or is_word else run


# ---- Expressions. ----

_PAIRS = {"(": ")", "[": "]", "{": "}"}


def is_word(token):
    """Whether this token is a word, which the tokenizer marks with a leading quote."""
    return len(token) > 1 and token[0] == '"'


def is_letter(token):
    """Whether this word is one letter, which is a variable: \\text{B} is B."""
    return is_word(token) and len(token) == 3 and token[1].isalpha()


def is_numeral(token):
    """Whether this token begins as a number does: 12, 0.5, .5."""
    return token[:1] in tuple("0123456789.") and token != "."


def is_whole(token):
    """Whether this token is digits alone."""
    return token.isascii() and token.isdecimal()


def exact(numeral):
    """The value of a decimal numeral such as 12, 0.5, .5, 0.(3) or 1e-3."""
    pattern = r"([0-9]*)\.?([0-9]*)(?:\(([0-9]+)\))?(?:[eE]([+-]?[0-9]+))?"
    whole, decimals, repeated, e = re.fullmatch(pattern, numeral).groups(default="")
    if len(e) > 5:
        raise Unreadable
    value = Fraction(int(whole + decimals or 0), 10 ** len(decimals))
    if repeated:
        value += Fraction(int(repeated), 10 ** len(decimals) * (10 ** len(repeated) - 1))
    return value * number_power(Fraction(10), int(e or 0))


def read(tokens):
    """The polynomial that these tokens (of answers.py) spell; Unreadable where they spell none."""
    reader = _Reader(tokens)
    value = reader.sum()
    reader.expect("")
    return value


class _Reader:
    """Recursive descent: a sum of products of factors. Every method reads on from self.at and returns a polynomial."""

    def __init__(self, tokens):
        tokens = [token[1] if is_letter(token) else token for token in tokens]
        self.tokens = [part for token in tokens for part in (token if token.isalpha() else [token])] + [""]
        self.at = self.depth = self.work = 0

    def peek(self):
        return self.tokens[self.at]

    def take(self, *wanted):
        """The next token if it is one of these, else ''."""
        token = self.peek()
        self.at += token in wanted
        return token if token in wanted else ""

    def expect(self, token):
        if self.peek() != token:
            raise Unreadable
        self.at += 1

    def spend(self, work):
        self.work += work
        if self.work > MAX_WORK:
            raise Unreadable

    def times(self, a, b):
        self.spend(len(a) * len(b))
        return multiply(a, b)

    def raised(self, base, exponent):
        e = as_number(exponent)
        if e is None:
            return atom(f"(({show(base)})^({show(exponent)}))")
        self.spend(len(base) ** 2 * min(abs(int(e)), MAX_WORK) if len(base) > 1 else 1)
        return power(base, e)

    def sum(self):
        total, sign = {}, self.take("+", "-")
        while True:
            total = add(total, self.product(), -1 if sign == "-" else 1)
            self.spend(len(total) // 4)
            sign = self.take("+", "-")
            if not sign:
                return total

    def product(self):
        first = self.peek()
        value, operator = self.factor(), ""
        while True:
            divided, operator = operator == "/", self.take("*", "/")
            if not operator and not self.at_factor(after=first):
                return value
            if divided and not operator:
                raise Unreadable  # 1/2x
            sign = -1 if operator and self.take("-") else 1
            first = self.peek()
            factor = self.factor()
            value = self.times(value, power(factor, Fraction(-1)) if operator == "/" else factor)
            value = multiply(value, constant(sign))

    def at_factor(self, after):
        """Whether a factor follows without an operator. A number may, but only behind a root, a fraction, a bracket."""
        token = self.peek()
        if is_numeral(token):
            return after in ("\\sqrt", "\\frac", "(")
        return token.isalpha() or token in _PAIRS or token in ("\\frac", "\\sqrt") or token in GREEK | FUNCTIONS

    def factor(self):
        """A primary with what is written behind it. Percent and degree signs do not change the value."""
        value = self.primary()
        while mark := self.take("^", "!", "%", "°"):
            if mark == "^":
                value = self.raised(value, self.script())
                if self.peek() == "^":
                    raise Unreadable
            elif mark == "!":
                n = as_number(value)
                if n not in range(300) or self.peek() == "!":  # 5!! is 5*3*1 to some, (5!)! to others
                    raise Unreadable
                value = constant(factorial(int(n)))
        return value

    def primary(self):
        self.depth += 1
        self.spend(1)
        if self.depth > MAX_DEPTH:
            raise Unreadable
        token = self.peek()
        self.at += token != ""
        if is_numeral(token):
            value = self.number(token)
        elif token.isalpha() or token in GREEK:
            value = atom(f"{token}_{{{show(self.script())}}}" if self.take("_") else token)
        elif token in _PAIRS:
            value = self.sum()
            self.expect(_PAIRS[token])
        elif token == "\\frac":
            top = self.argument()
            value = self.times(top, power(self.argument(), Fraction(-1)))
        elif token == "\\sqrt":
            degree = self.primary() if self.peek() == "[" else constant(2)
            value = self.raised(self.argument(), power(degree, Fraction(-1)))
        elif token in FUNCTIONS:
            value = self.function(token)
        else:
            raise Unreadable
        self.depth -= 1
        return value

    def number(self, numeral):
        """A numeral; with a subscript, in that base; with a fraction of numerals right behind it, a mixed number."""
        if self.take("_"):
            base = as_number(self.script())
            digits = [int(digit) for digit in numeral if digit.isdecimal()]
            if not is_whole(numeral) or base not in range(2, 11) or max(digits) >= base:
                raise Unreadable
            return constant(sum(digit * base**k for k, digit in enumerate(reversed(digits))))
        value, start = constant(exact(numeral)), self.at
        if is_whole(numeral) and self.peek() == "\\frac":  # 2\frac{1}{2}
            fraction = self.primary()
            if self.peek() in ("^", "!"):
                raise Unreadable
            mixed = all(is_whole(token) or token in "{}" for token in self.tokens[start + 1 : self.at])
            return add(value, fraction) if mixed else self.times(value, fraction)
        if is_whole(numeral) and is_whole(self.peek()):  # 2 1/2
            top = self.script()
            self.expect("/")
            if not is_whole(self.peek()):
                raise Unreadable
            value = add(value, self.times(top, power(self.script(), Fraction(-1))))
            if self.at_factor(after="") or self.peek() in ("^", "!"):
                raise Unreadable
        return value

    def argument(self):
        """What a TeX command takes: a group, or one token, which is one digit of a numeral."""
        token = self.peek()
        if not is_whole(token):
            return self.primary()
        self.tokens[self.at] = token[1:]
        self.at += len(token) == 1
        return constant(int(token[0]))

    def script(self):
        """An exponent or a subscript: a group, a letter, or a whole numeral, with or without a minus."""
        sign = -1 if self.take("-") else 1
        if not is_numeral(self.peek()):
            return multiply(self.primary(), constant(sign))
        self.at += 1
        return constant(sign * exact(self.tokens[self.at - 1]))

    def function(self, name):
        """sin x, sin(x), sin^2 x, log_2 3: an atom. Without brackets the argument is all that is written together."""
        if self.take("_"):
            name += f"_{{{show(self.script())}}}"
        exponent = self.script() if self.take("^") else constant(1)
        if exponent == constant(-1):
            raise Unreadable  # the inverse function
        if self.peek() in _PAIRS:
            argument = self.primary()
        else:
            argument = self.factor()
            while self.at_factor(after="") and self.peek() not in FUNCTIONS:
                argument = self.times(argument, self.factor())
            if self.peek() == "/":
                raise Unreadable  # log x/2
        return self.raised(atom(f"{name}({show(argument)})"), exponent)


# ================================================================ answers


# ---- From a completion to the raw answer. ----

NUMBER = re.compile(
    r"""
    (?:(?<![\w)\]}\-])[-−]\$?)?                      # a sign, unless it subtracts
    (?: (?<![A-Za-z0-9_]) | (?<=\\times) | (?<=\\cdot) | (?<=\\div) )  # x2 and x12 are names
    (?: \\[dt]?frac(?:\{[0-9]+\}|[0-9])(?:\{[0-9]+\}|[0-9])
      | (?: (?<!,)[1-9][0-9]{0,2}(?:(?:,|\{,\}|,\\!)[0-9]{3})+(?![0-9])
          | [0-9]+
          | (?<![0-9.])(?=\.[0-9]) )                 # .5
        (?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?
        (?:\s?/\s?[0-9]+|[ ][0-9]+/[0-9]+)? )        # a fraction, or the rest of a mixed number
    """,
    re.X,
)
_BOX = re.compile(r"\\{1,2}(?:boxed|fbox)\s*(?:\{|\Z)|\\.|[{}]", re.S)


def boxes(text):
    """(start, end, content) of every outermost box, in order; content is None where the end of the text cuts it off.

    Braces are balanced, not searched for, and an escaped brace is a printed sign that opens nothing. One pass.
    """
    open_braces, found = [], []
    for match in _BOX.finditer(text):
        if match[0] == "}" and open_braces:
            start, inside = open_braces.pop()
            if start is not None:
                while found and found[-1][0] > start:  # boxes inside this one
                    found.pop()
                found.append((start, match.end(), slice(inside, match.start())))
        elif match[0] == "{":
            open_braces.append((None, None))
        elif "box" in match[0]:
            open_braces.append((match.start(), match.end()))
    closed = [(start, end, text[inside].strip()) for start, end, inside in found]
    last_end = closed[-1][1] if closed else 0
    return closed + [(start, len(text), None) for start, _ in open_braces if start is not None and start >= last_end]


def extract_answer(text, style="boxed"):
    """The raw final answer of a completion, or None: the last non-empty box, or with style "number" the last number."""
    if style not in ("boxed", "number"):
        raise ValueError(f'answer style must be "boxed" or "number", not {style!r}')
    if not isinstance(text, str):
        return None
    final = re.split(r"</think(?:ing)?>", text)[-1]
    if re.search(r"<think(?:ing)?>", final):
        return None  # still thinking
    if style == "number":
        numbers = NUMBER.findall(final)
        return numbers[-1] if numbers else None
    contents = [content for _, _, content in boxes(final) if content is None or not _is_blank(content)]
    return contents[-1] if contents else None


# ---- Equality. ----


def same_answer(a, b):
    """Whether a and b are the same answer. A missing (None) or blank answer equals nothing, not even itself."""
    key = canonical(a)
    return key != "" and key == canonical(b)


def canonical(answer):
    """The key of an answer: equal values give equal keys, and canonical(canonical(a)) == canonical(a).

    answer: text, a number as JSON has it, or None. The key is "" for None and blanks, plain for numbers ("1/2"), quoted
    for text. Never raises; bounded time and memory.
    """
    text = "" if answer is None else str(answer).strip()
    if len(text) > MAX_CHARS:
        return _quoted([text] if re.fullmatch('"[^"]*"', text) else text.split())
    return _canonical(text) or text


def _is_blank(content):
    """Whether a box holds nothing that prints: no more than braces, spaces and dollar signs."""
    return len(content) <= MAX_CHARS and set(tokenize(content)) <= {"{", "}"}


@lru_cache(maxsize=4096)
def _canonical(text):
    for mark in ("**", "__", "*", "_", "`"):  # markdown
        if text.startswith(mark) and text.endswith(mark):
            text = text[len(mark) : -len(mark)]
    tokens = tokenize(text)
    if len(tokens) > 1 and tokens[-1] == "." != tokens[-2]:
        tokens.pop()  # the full stop of a sentence
    try:
        key = _list(tokens, depth=0)
    except Unreadable:
        key = _quoted(tokens)
    return key if len(key) <= MAX_CHARS else _quoted(tokens)


def _quoted(tokens):
    """Text that equals only itself; a lone quoted token stays as it is, so that keys are fixed points."""
    if len(tokens) == 1 and is_word(tokens[0]):
        return tokens[0]
    inner = " ".join(token[1:-1] if is_word(token) else token for token in tokens).replace('"', "''")
    return f'"{inner}"' if inner else ""


# ---- Structure: lists, sets, tuples, intervals, relations. Functions take tokens and give a key. ----

_CLOSER = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle"}
_DEPTH = {**dict.fromkeys(_CLOSER, 1), **dict.fromkeys(_CLOSER.values(), -1)}
_FLIPPED = {">": "<", "\\geq": "\\leq"}
_NAME = r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|omega))(?:_\{?\w+\}?)?"
_LABEL = re.compile(
    rf'{_NAME}|[fghFGHP]\({_NAME}\)|[fghFGHP]\([0-9]+\)|\({_NAME}(?:, ?{_NAME})+\)'  # x, f(x), f(2), (x,y)
    r'|(?:m?\\angle)?(?:[A-Z]+|(?:"[^"]*")+)|'  # AB, angle ABC, Area; or nothing, as in "= 5"
)
_UNIT_NAMES = "cm mm km kg mg ml mL ft in yd mi lb lbs oz hr hrs sec mph kph sq cu"
_NO_UNITS = """am pm more less fewer above below over under north south east west left right up down even odd mod modulo
    remainder base squared cubed factorial half quarter third profit loss gain not"""
_UNITS = frozenset(_UNIT_NAMES.split()) | {f'"{letter}"' for letter in "mgshLlJNWVACFKa"}
_NOT_UNITS = frozenset(f'"{word}"' for word in _NO_UNITS.split())
_SCALES = {'"dozen"': 12, '"hundred"': 10**2, '"thousand"': 10**3, '"million"': 10**6, '"billion"': 10**9}


def _split(tokens, separators):
    """The parts between the separators outside all brackets, and the separators that were met."""
    parts, met, depth = [[]], [], 0
    for token in tokens:
        depth += _DEPTH.get(token, token.startswith("\\begin{") - token.startswith("\\end{"))
        if depth < 0:
            raise Unreadable
        if depth == 0 and token in separators:
            parts.append([])
            met.append(token)
        else:
            parts[-1].append(token)
    if depth:
        raise Unreadable
    return parts, met


def _items(tokens, bracketed):
    """Cut at commas, but join thousands: tight commas are marks if all of them can be (and see `comma` above)."""
    parts, commas = _split(tokens, (",", ", "))
    tight = [k for k, comma in enumerate(commas) if comma == ","]
    if all(_is_mark(parts[k], parts[k + 1], k - 1 in tight) for k in tight) and (not bracketed or ", " in commas):
        for k in reversed(tight):
            before, after = parts[k], parts[k + 1]
            parts[k : k + 2] = [[*before[:-1], before[-1] + after[0], *after[1:]]]
    return [part for part in parts if part]


def _is_mark(before, after, chained):
    """Whether a comma between these tokens can be a thousands mark. chained: another tight comma stands before them."""
    group = "[0-9]{3}" if chained and len(before) == 1 else "[1-9][0-9]{0,2}"
    return bool(before and after and re.fullmatch(group, before[-1]) and re.fullmatch(r"[0-9]{3}(\.[0-9]*)?", after[0]))


def _list(tokens, depth):
    """A bare list: unordered, and the same as a set unless an item repeats. One item is just that item."""
    keys = _keys(_items(tokens, bracketed=False), depth)
    return _set(keys) if len(set(keys)) == len(keys) else "{" + ", ".join(sorted(keys)) + "}"


def _set(keys):
    return keys[0] if len(keys) == 1 else "\\{" + ",".join(sorted(keys)) + "\\}" if keys else ""


def _keys(items, depth):
    """The keys of a list's items: labels go unless they differ, and units must agree."""
    labelled = [_label(item) for item in items]
    keep_labels = len({label for label, _ in labelled if label}) > 1
    if len({tuple(_unit(item)[1]) for _, item in labelled} - {()}) > 1:
        raise Unreadable  # 5 feet, 3 inches
    keys = []
    for label, item in labelled:
        for key in dict.fromkeys(_item(variant, depth) for variant in _variants(item)):
            keys.append(f"{label}={key}" if keep_labels and label else key)
    return keys


def _variants(item):
    """The one or two readings of an item with one \\pm. (What stands in braces gets its own turn.)"""
    if item.count("\\pm") != 1 or (item[0] in ("{", "\\{") and _is_enclosed(item)):
        return [item]
    return [[sign if token == "\\pm" else token for token in item] for sign in "+-"]


def _label(item):
    """(label, the rest) of x = 5, f(x) = 5, Area = 5, x \\in S and 5 = x; ("", item) where nothing is a label."""
    parts, met = _split(item, ("=", "\\in"))
    name, rest = "".join(parts[0]), item[len(parts[0]) + 1 :]
    own = parts[0] if name.startswith("(") else parts[0][:1]
    if met and rest and _LABEL.fullmatch(name) and not any(token.isalpha() and token in rest for token in own):
        return name, rest
    last = parts[-1][0] if len(parts[-1]) == 1 else ""
    if met == ["="] and parts[0] and len(last) == 1 and last.isalpha() and last not in parts[0]:
        return last, parts[0]
    return "", item


def _item(tokens, depth):
    """The key of one item: what it means, or else its text."""
    try:
        return _read_item(tokens, depth + 1)
    except Unreadable:
        return _quoted(tokens)


def _read_item(tokens, depth):
    if depth > MAX_DEPTH or not tokens:
        raise Unreadable
    if len(tokens) == 1 and is_word(tokens[0]) and not is_letter(tokens[0]):
        return tokens[0]
    if tokens == ["\\emptyset"]:
        return "\\{\\}"
    if _is_enclosed(tokens):
        return _bracket(tokens[0], tokens[1:-1], tokens[-1], depth)
    sides, relations = _split(tokens, ("=", "<", ">", "\\leq", "\\geq"))
    if relations:
        return _relation(sides, relations, depth)
    for joint in ("\\cup", ":"):
        parts, met = _split(tokens, (joint,))
        if met:
            keys = [_read_item(part, depth + 1) for part in parts]
            return (joint + " ").join(sorted(set(keys)) if joint == "\\cup" else keys)
    number, unit = _unit(tokens)
    scale = _SCALES.get(unit[0], 1) if unit else 1
    return show(multiply(read(number), constant(scale)))


def _is_enclosed(tokens):
    """Whether the first token opens a bracket that the last one closes."""
    depth = 0
    for k, token in enumerate(tokens):
        depth += _DEPTH.get(token, token.startswith("\\begin{") - token.startswith("\\end{"))
        if depth <= 0:
            return k > 0 and k == len(tokens) - 1
    return False


def _bracket(opener, inner, closer, depth):
    """The key of a matrix, set, tuple, interval, or of what stands in grouping brackets."""
    if opener.startswith("\\begin{"):
        if not re.fullmatch(r"\\begin\{[pbB]?matrix\}", opener):
            raise Unreadable
        rows = [_split(row, ("&",))[0] for row in _split(inner, ("\\\\",))[0] if row]
        rows = ["&".join(_item(cell, depth) for cell in row) for row in rows]
        return "\\begin{matrix}" + "\\\\".join(rows) + "\\end{matrix}"
    if closer != _CLOSER[opener] and opener + closer not in ("(]", "[)"):
        raise Unreadable
    items = _items(inner, bracketed=opener != "{")
    if opener == "\\{":
        return _set(list(dict.fromkeys(_keys(items, depth)))) or "\\{\\}"
    if not items:
        raise Unreadable
    if opener == "{" or (len(items) == 1 and closer == _CLOSER[opener]):
        return _list(inner, depth)
    return opener + " " * opener.startswith("\\") + ",".join(_item(item, depth) for item in items) + closer


def _relation(sides, relations, depth):
    """The key of sides joined by =, < and the like; inequalities of one variable are intervals."""
    keys = [_read_item(side, depth + 1) for side in sides]
    if set(relations) == {"="}:
        return keys[0] if len(set(keys)) == 1 else _equation(sides)  # 10/2 = 5
    if relations[0] in _FLIPPED:
        keys, relations = keys[::-1], [_FLIPPED.get(relation, "?") for relation in relations[::-1]]
    if not set(relations) <= {"<", "\\leq"}:
        raise Unreadable
    variables = [key for key in keys if len(key) == 1 and key.isalpha()]
    if len(keys) == 2 and len(variables) == 1:  # x < 3 is -\infty < x < 3
        before = keys[0] in variables
        keys = ["-\\infty", *keys] if before else [*keys, "\\infty"]
        relations = ["<", *relations] if before else [*relations, "<"]
    if len(keys) == 3 and variables == [keys[1]]:
        return f"{'(' if relations[0] == '<' else '['}{keys[0]},{keys[2]}{')' if relations[1] == '<' else ']'}"
    return keys[0] + "".join(f"{relation} {key}" for relation, key in zip(relations, keys[1:], strict=True))


def _equation(sides):
    """`polynomial = 0`, or the solution if there is one unknown and it stands alone."""
    if len(sides) > 2:
        raise Unreadable
    difference = add(read(sides[0]), read(sides[1]), -1)
    unknowns = [monomial for monomial in difference if monomial != ONE]
    if not unknowns:
        raise Unreadable  # 1 = 2
    if len(unknowns) == 1 and re.fullmatch(_NAME, show({unknowns[0]: Fraction(1)})):
        return show(constant(-difference.get(ONE, 0) / difference[unknowns[0]]))  # 2x + 1 = 7
    return show(primitive(difference)[1]) + "=0"


def _unit(tokens):
    """(number, unit) of a number followed by nothing but words, else (tokens, [])."""
    cut = next((k for k, token in enumerate(tokens) if token in _UNITS or is_word(token)), len(tokens))
    number, unit = tokens[:cut], tokens[cut:]
    for before, token in zip(["", *unit], unit, strict=False):
        is_unit = token in _UNITS or (is_word(token) and len(token) > 3 and token not in _NOT_UNITS)
        is_power = token in tuple("/^*{}") or (before in ("^", "{") and token.isdecimal())
        if not is_unit and not is_power:
            return tokens, []
    return (tokens, []) if not number or any(token.isalpha() for token in number) else (number, unit)
