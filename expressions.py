"""TeX or plain text into tokens, and the tokens of one expression into a polynomial (algebra.py).

Tokens are numerals without their thousands marks, TeX commands under one name, single signs, runs of letters (variables
side by side), and words in double quotes. The reader is a recursive descent: a sum of products of factors. Where TeX
leaves two readings (1/2x, 3 4, x^2^3) it takes neither and raises Unreadable.
"""

import re
from fractions import Fraction
from math import factorial

from algebra import Unreadable, add, as_number, atom, constant, multiply, number_power, power, show

MAX_DEPTH = 12  # nested brackets and commands
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

_CLOSER = {"(": ")", "[": "]", "{": "}"}


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
        return token.isalpha() or token in _CLOSER or token in ("\\frac", "\\sqrt") or token in GREEK | FUNCTIONS

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
        elif token in _CLOSER:
            value = self.sum()
            self.expect(_CLOSER[token])
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
        if self.peek() in _CLOSER:
            argument = self.primary()
        else:
            argument = self.factor()
            while self.at_factor(after="") and self.peek() not in FUNCTIONS:
                argument = self.times(argument, self.factor())
            if self.peek() == "/":
                raise Unreadable  # log x/2
        return self.raised(atom(f"{name}({show(argument)})"), exponent)
