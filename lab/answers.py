r"""Answers out of text, and when two of them are equal: extract_answer, canonical, same_answer.

A vote counts classes of answers, so equality must be an equivalence relation. Here it is one by construction: canonical()
turns an answer into a key, and two answers are equal when their keys are the same string. An answer is cut into tokens, the
tokens are read into sets, tuples, intervals and polynomials, and these are printed in one fixed order. There are no floats.
What is not understood is kept as text in quotes and equals only itself: in doubt two answers differ. Completions are
untrusted: length, nesting, numbers and work are bounded, and Python evaluates nothing. The papers leave all of this open;
these conventions are ours:

    comma   Before exactly three digits a comma is a thousands mark, 1,000 = 1000; inside brackets only if other commas are
            spaced: (100,200) is a pair, and so is (1,000, 2). A blank or an apostrophe can be one too: 1 000 = 1'000.
    number  2\frac12 and 2 1/2 are mixed numbers; 1e-3 is a power of ten; 0.(3) = 0.\overline{3} = 1/3, which is not 0.333;
            52_8 is the number 42.
    marks   28% = 28, which is not 0.28; $5 = 5; 90° = 90, but inside a function the mark counts: \cos 90° is not \cos 90.
    unit    Words after a number are dropped if all of them are units, or things that are often counted; with any other
            word the answer is text: 7 tenths, 8 at most, 5 feet left. But 5 million = 5000000.
    label   x = 5 and Area = 5 are 5. In a list, labels that differ stay: x=1, y=2 is not x=2, y=1.
    list    A bare list is unordered and equals the set; a set of one is its element; a tuple is ordered. \pm is two answers.
            Between inequalities "or" makes a union, and with "and" they stay text; between solutions both are commas.
    TeX     \frac12 and \sqrt23 take one digit each, as in TeX; after ^ and _ all digits count, so 2^10 = 1024.
    slash   1/2x has two readings, so it stays text.
    words   Case matters in variables, not in words. Three letters with a vowel and two capitals are words; ab is a product.
    root    A root of a quotient is the quotient of the roots, as for positive numbers.
"""

import re
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache, reduce
from math import factorial, floor, gcd, isqrt, lcm, prod

from lab.extract import DECIMAL, MAX_CHARS, NUMBER, SCALES, STYLES, boxes, extract_answer, plain  # noqa: F401

MAX_DEPTH = 12  # nested brackets
MAX_WORK = 2000  # products of two terms, and tokens read, in one answer
MAX_BITS = 3000  # of any numerator or denominator, about 900 digits


class Unreadable(ValueError):
    """This has no reading as mathematics here, or is too large."""


def require(condition):  # to go on: else the text is not what it was taken for
    if not condition:
        raise Unreadable


# ---------------------------------------------------------------- Keys: when two answers are equal


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
        return text if re.fullmatch('"[^"]*"', text) else _quoted(text.split())
    if text.isascii() and text.removeprefix("-").isdecimal():
        return str(int(text))  # the short way: most answers are whole numbers
    return _canonical(text) or text


@lru_cache(maxsize=4096)
def _canonical(text):
    for mark in ("**", "__", "*", "_", "`"):  # markdown
        if text.startswith(mark) and text.endswith(mark):
            text = text[len(mark) : -len(mark)]
    tokens = tokenize(text)
    if len(tokens) > 1 and (tokens[-1] == "." != tokens[-2] or (isinstance(tokens[-2], Letter) and tokens[1:] == [")"])):
        tokens.pop()  # the full stop of a sentence; A)
    try:
        _work.set(0)
        reader = _Reader(tokens)
        key = show(reader.list())
        require(not reader.peek())
    except Unreadable:
        key = _quoted(tokens)
    return key if len(key) <= MAX_CHARS else _quoted(tokens)


def _quoted(tokens):
    """Text that equals only itself. A lone word is its own text, so that keys are fixed points."""
    inner = " ".join(token.strip('"') if isinstance(token, (Word, Letter)) else token for token in tokens).replace('"', "''")
    return f'"{inner}"' if inner else ""


# ---------------------------------------------------------------- Tokens
# A token is a string whose class says what it is. What is no number, word or variable is a sign, a plain str.


class Number(str):
    """A numeral without its thousands marks: 1234, 0.5, 0.(3), 1e-3."""


class Word(str):
    """A word, or a text that was not understood, in double quotes."""


class Letter(str):
    """A variable. In quotes it is a text of its own, \\text{m}, and may be a unit."""


_TOKEN = re.compile(
    rf"""
      (?P<quoted>"[^"]+")
    | \\(?:text\w*|[mh]box|mathrm|operatorname\*?)\s*\{{(?P<text>[^{{}}]*)\}}
    | (?P<degree>(?:\^\s*(?:\\circ|\{{\s*\\circ\s*\}})|°)(?:\s*[CF](?![A-Za-z]))?)
    | (?P<number>{DECIMAL}\.?)
    | (?P<skip>\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\s*\.? | [$~] | \\[$\s,!;:()\[\]]
        | \\(?:q?quad|displaystyle|textstyle|limits|[bf]?box(?:ed)?|bf|rm|it|math[a-z]+|text|boldsymbol|bm)(?![A-Za-z])
        | (?:USD|EUR|GBP|INR|JPY|CNY|CAD|AUD|CHF|US|Rs\.?)\s*(?=[\d$]))
    | \\(?P<matrix>begin|end)\s*\{{(?:[pbB]?matrix|array)\}}(?:(?<=array\}})\{{[^{{}}]*\}})?
    | \\\\ | \\[A-Za-z]+ | \\. | \*\* | [<>]=
    | (?P<times>(?<=[\d\s])x\s*(?=10\s*(?:\^|\*\*)))
    | (?P<letters>[^\W\d_]+)
    | \S
    """,
    re.X | re.S,
)
_TIGHT = re.compile(r'"[^"]*"|(?<=[(\[])[^()\[\]\s"]*(?=[)\]])|(?<=\\\{)[^\s"]*?(?=\\\})')  # (100,200): no blank inside
_NAMES = """gram meter metre liter litre watt mile yard acre pound ounce ton gallon quart pint cup degree radian unit point
    second minute hour day week month year dollar cent euro percent page apple orange egg cookie book pencil ball marble card
    coin stamp ticket toy flower tree student girl boy friend player dog cat chicken cow car slice piece bottle bag step way
    vote game newton joule volt ohm amp pascal mole calorie byte tonne teaspoon tablespoon rupee peso""".split()
_OTHERS = """in inch inches foot feet celsius fahrenheit cm mm km nm kg mg ml ft yd mi lb lbs oz hr hrs min sec sq cu mph kph
    square cubic per person people men women child children boxes usd eur gbp yen yuan hz pence""".split()
_COUNTED = [f"{prefix}{name}{s}" for name in _NAMES for prefix in ("", "centi", "milli", "kilo") for s in ("", "s")]
_UNITS = {f'"{name}"' for name in [*_COUNTED, *_OTHERS, *"mgshlLJNWVACFKa"]}
_FUNCTIONS = frozenset(f"\\{name}" for name in "sin cos tan cot sec csc arcsin arccos arctan log ln exp".split())
_GREEK = """alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi
    varphi chi psi omega Gamma Delta Theta Lambda Pi Sigma Phi Psi Omega infty ell""".split()
_ALIASES = {
    **{"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\varnothing": "\\emptyset", "\\colon": ":", ";": ","},
    **{"\\cdot": "*", "\\times": "*", "\\ast": "*", "\\div": "/", "**": "^", "\\%": "%", "\\degree": "°"},
    **{"\\le": "\\leq", "\\leqslant": "\\leq", "<=": "\\leq", "\\ge": "\\geq", "\\geqslant": "\\geq", ">=": "\\geq"},
    **{"\\lt": "<", "\\gt": ">", "\\lbrace": "\\{", "\\rbrace": "\\}", "\\vee": "\\lor", "\\wedge": "\\land"},
    **{"or": "\\lor", "and": "\\land", "sqrt": "\\sqrt", "pi": "\\pi", **{name[1:]: name for name in _FUNCTIONS}},
}


def tokenize(text, words=False):
    r"""The tokens of a text, without spaces, sizing and dollar signs. words: in \text, where letters are words."""
    text = _TIGHT.sub(lambda found: found[0] if found[0][:1] == '"' else found[0].replace(",", " ,"), plain(text))
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "text":
            tokens += tokenize(match["text"], words=True)
        elif kind == "quoted":
            tokens.append(Letter(token) if len(token) == 3 and token[1].isalpha() else Word(token))
        elif kind == "number":
            token = re.sub(r"(?:\\[a-z]|\(|\[).*", lambda found: f"({re.sub('[^0-9]', '', found[0])})", token)
            tokens.append(Number(re.sub(r"[^0-9.()eE+-]|\.\Z", "", token)))
        elif kind == "letters":
            tokens += _letters(token, words)
        elif kind != "skip":
            token = {"degree": "°", "times": "*", "matrix": f"\\{match['matrix']}{{matrix}}"}.get(kind, token)
            token = _ALIASES.get(token, token)
            tokens.append(Letter(token) if token[1:] in _GREEK else token)
    return tokens


def _letters(run, words):
    """A run of letters: a separator of lists (or, and), a function, a word, or variables side by side."""
    lower = run.casefold()
    if lower in ("or", "and") or (run in _ALIASES and not words):
        return [_ALIASES.get(run) or _ALIASES[lower]]
    if len(run) == 1:
        return [Letter(f'"{run}"' if words else run)]
    is_word = words or run.isupper() or not run.isascii() or lower == "no" or f'"{lower}"' in _UNITS
    if is_word or (len(run) > 2 and set("aeiou") & set(lower)):
        return [Word(f'"{lower}"')]
    return [Letter(letter) for letter in run]


# ---------------------------------------------------------------- Reading: from tokens to a value
# A value is a polynomial, or a str, the key of anything else: a word, a set, a tuple, an interval.

_CLOSER = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle", "\\begin{matrix}": "\\end{matrix}"}
_NAME = r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi|omega)) (?:_ (?:\{ \w+ \}|\w+) )?"  # a blank ends a token
_LABEL = re.compile(  # x, f(x), f(2), (x,y), angle ABC, Area; or nothing, as in "= 5"
    rf"({_NAME}|[fghFGHP] \( (?:{_NAME}|[0-9]+ )\) |\( {_NAME}(?:, {_NAME})+\) "
    r'|(?:m )?(?:\\angle )?(?:[A-Z] |(?:"[^" ]*" )+)|)(?:=|\\in) '
)
_SCALE = rf'((?:"(?:{"|".join(SCALES)})" )*)'
_UNIT = re.compile(rf'{_SCALE}((?:(?:[/*] )?(?:{"|".join(sorted(_UNITS))}) (?:\^ (?:\{{ (?:- )?\d+ \}} |(?:- )?\d+ ))?)*)')


class _Reader:
    """Recursive descent: every method reads on from self.at, and each binds tighter than the ones above it."""

    def __init__(self, tokens):
        self.tokens, self.units, self.bounded = [*tokens, ""], set(), set()
        self.at = self.depth = self.functions = self.met = 0
        self.sign = self.label = ""

    def peek(self):
        return self.tokens[self.at]

    def take(self, *wanted):
        """The next token if it is one of these, else ''."""
        token = self.tokens[self.at]
        self.at += token in wanted
        return token if token in wanted else ""

    def match(self, pattern):
        """The match of a pattern with the next tokens, each with a blank behind it. What matches is taken."""
        found = pattern.match(" ".join([*self.tokens[self.at : self.at + 20], ""]))
        self.at += found[0].count(" ") if found else 0
        return found

    def chain(self, read, *joints):
        """(values, joints): what `read` reads between these tokens, and which of them stand there. A value may be missing."""
        values, met, joint = [], [], "first"
        while joint:
            if self.peek() not in ("", *joints, *_CLOSER.values()):
                values.append(read())
            joint = self.take(*joints)
            met.append(joint)
        return values, met[:-1]

    def list(self, closer=""):
        """A list without order: the value of its only item, or a set, or a bare list in which an item repeats."""
        found, joints = self.chain(self.item, ",", "\\lor", "\\land")
        pairs = [pair for item in found for pair in item]
        labels = {label for label, _ in pairs if label}
        require(len(self.units) < 2 and not (len(labels) > 1 and "\\lor" in joints))  # 5 feet, 3 inches; x = 1 or y = 2
        keys = [f"{label}={show(value)}" if label and len(labels) > 1 else show(value) for label, value in pairs]
        if len(found) > 1 and self.bounded:
            require(len(self.bounded) == 1 and "\\land" not in joints)  # not x < 2 or y > 5, nor x > 1 and x < 5
            if "\\lor" in joints:
                return "\\cup ".join(sorted(set(keys)))
        distinct = sorted(set(keys))
        if len(distinct) < len(keys) and closer != "\\}":
            return "{" + ", ".join(sorted(keys)) + "}"
        require(pairs or closer != "}")
        return pairs[0][1] if len(distinct) == 1 else "\\{" + ", ".join(distinct) + "\\}" if pairs or closer else ""

    def item(self):
        """(label, value) of one item, or of the two that it stands for with a \\pm."""
        start, outer, found = self.at, (self.sign, self.met), {}
        for self.sign in "+-":
            self.at, self.met, self.label = start, 0, ""
            value = self.labelled()
            found[show(value)] = self.label, value
            if not self.met:
                break
        require(self.met < 2)
        self.sign, self.met = outer
        return found.values()

    def labelled(self):
        """A relation, without its label: x = 5, f(x) = 5, Area = 5, x \\in S. But n = 3n is an equation."""
        start = self.at
        if found := self.match(_LABEL):
            name, middle = found[1].replace(" ", ""), self.at
            value = self.relation()
            own = name if name.startswith("(") else name[:1]
            if not any(token.isalpha() and token in own for token in self.tokens[middle : self.at]):
                self.label = name
                return value
            self.at = start
        return self.relation()

    def relation(self):
        """Sides joined by =, < and the like; an inequality of one variable is an interval."""
        start = self.at
        sides, signs = self.chain(self.union, "=", "<", ">", "\\leq", "\\geq")
        require(len(sides) == len(signs) + 1)
        if not signs:
            return sides[0]
        keys = [show(side) for side in sides]
        variables = [key for key in keys if len(key) == 1 and key.isalpha()]
        if set(signs) == {"="}:
            if len(keys) == 2 and keys[1] in variables and keys[1] not in self.tokens[start : self.at - 1]:
                self.label = keys[1]  # 5 = x
                return sides[0]
            return sides[0] if len(set(keys)) == 1 else _equation(sides)  # 10/2 = 5
        if signs[0] in (">", "\\geq"):
            keys, signs = keys[::-1], [{">": "<", "\\geq": "\\leq"}.get(sign) for sign in signs[::-1]]
        require(set(signs) <= {"<", "\\leq"})
        if len(keys) == 2 and len(variables) == 1:  # x < 3 is -\infty < x < 3
            k = keys.index(variables[0])
            keys.insert(2 * k, ("-\\infty", "\\infty")[k])
            signs.insert(k, "<")
        self.bounded.update(variables or keys)
        if len(keys) == 3 and variables == [keys[1]]:
            return f"{'(' if signs[0] == '<' else '['}{keys[0]}, {keys[2]}{')' if signs[1] == '<' else ']'}"
        return keys[0] + "".join(f"{sign} {key}" for sign, key in zip(signs, keys[1:], strict=True))

    def union(self):
        """Quantities joined by \\cup, or by the colon of a ratio."""
        values, joints = self.chain(self.quantity, "\\cup", ":")
        require(len(values) == len(joints) + 1 and len(set(joints)) < 2)
        if not joints:
            return values[0]
        return ": ".join(map(show, values)) if ":" in joints else "\\cup ".join(sorted(set(map(show, values))))

    def quantity(self):
        """A sum; behind a number, words of scale are multiplied and units dropped."""
        start, value = self.at, self.sum()
        if self.peek()[:1] == '"' and isinstance(value, dict):
            require(not any(token.isalpha() for token in self.tokens[start : self.at]))
            scales, unit = self.match(_UNIT).groups()
            value = multiply(value, constant(prod(SCALES[word] for word in re.findall(r"\w+", scales))))
            self.units |= {unit} - {""}
        return value

    def sum(self):
        """A sum of products of factors, -2x^2 + 3/4: one loop over the factors, each with the operator before it."""
        total, term, operator = {}, None, self.take("+", "-", "\\pm")
        while True:
            if operator == "\\pm":
                operator, self.met = self.sign, self.met + 1
            negative = operator == "-" or (operator in ("*", "/") and self.take("-"))
            first, factor = self.peek(), self.factor()
            if isinstance(factor, str):
                require(term is None and not operator)
                return factor
            if term is None or operator in ("+", "-"):
                total, term = add(total, term or {}), factor
            else:
                term = multiply(term, power(factor, Fraction(-1)) if operator == "/" else factor)
            if negative:
                term = multiply(term, constant(-1))
            divided, operator = operator == "/", self.take("+", "-", "\\pm", "*", "/")
            if not operator and not self.at_factor(after=first):
                return add(total, term)
            require(operator or not divided)  # 1/2x

    def at_factor(self, after):
        """Whether a factor follows without an operator. A number may, but only behind a root, a fraction, a bracket."""
        token = self.peek()
        if isinstance(token, Number):
            return after in ("\\sqrt", "\\frac", "(")
        return (isinstance(token, Letter) and token not in _UNITS) or token in ("(", "[", "{", "\\frac", "\\sqrt", *_FUNCTIONS)

    def factor(self):
        """A primary with what is written behind it. A percent sign changes no value, and a degree mark none but in functions."""
        value = self.primary()
        while mark := self.take("^", "!", "%", "°"):
            require(isinstance(value, dict))
            if mark == "^":
                value = raised(value, self.script())
                require(self.peek() != "^")  # x^2^3
            elif mark == "!":
                n = as_number(value)
                require(n in range(300) and self.peek() != "!")  # 5!! is 5*3*1 to some, (5!)! to others
                value = constant(factorial(int(n)))
            elif mark == "°" and self.functions:
                value = multiply(value, atom("°"))  # cos 60° is not cos 60
        return value

    def primary(self):
        """What stands alone: a number, a variable, a word, a bracket, a fraction, a root, a function."""
        self.depth += 1
        spend(1)
        require(self.depth <= MAX_DEPTH)
        token = self.peek()
        self.at += token != ""
        if isinstance(token, Number):
            value = self.number(token)
        elif isinstance(token, Letter):
            name = token.strip('"')
            name += f"_{{{show(self.script())}}}" if self.take("_") else ""
            value = atom(name) if name != "i" else atom(-1, Fraction(1, 2))
        elif isinstance(token, Word) or token == "\\emptyset":
            value = str(token) if token[0] == '"' else "\\{\\}"
        elif token in _CLOSER:
            value = self.bracket(token)
        elif token == "\\frac":
            top = self.script(digits=1)
            value = multiply(top, power(self.script(digits=1), Fraction(-1)))
        elif token == "\\sqrt":
            degree = self.script(digits=1) if self.peek() == "[" else constant(2)
            value = raised(self.script(digits=1), power(degree, Fraction(-1)))
        else:
            require(token in _FUNCTIONS or (token == "°" and self.functions))
            value = self.function(token) if token in _FUNCTIONS else atom(token)
        self.depth -= 1
        return value

    def bracket(self, opener):
        """A matrix, a set, a tuple, an interval, or what stands in grouping brackets."""
        closer = _CLOSER[opener]
        if opener in ("{", "\\{"):
            variable = opener == "\\{" and self.match(re.compile(r"([A-Za-z]) (?:\\mid|\||:) "))  # {x | x > 2}
            value = self.list(closer)
            require(not variable or self.bounded == {variable[1]})
        elif opener == "\\begin{matrix}":
            cells, joints = self.chain(self.relation, "&", "\\\\")
            joints = joints[: -1 if joints[-1:] == ["\\\\"] and len(joints) == len(cells) else None]  # one may end the last row
            require(len(cells) == len(joints) + 1)
            value = opener + "".join(show(cell) + joint for cell, joint in zip(cells, [*joints, closer], strict=True))
        else:
            items, _ = self.chain(self.relation, ",", "\\lor", "\\land")
            if opener != "\\langle" and self.peek() in (")", "]"):
                closer = self.peek()
            require(items)
            listed = opener + " " * opener.startswith("\\") + ", ".join(map(show, items)) + closer
            value = items[0] if len(items) == 1 and closer == _CLOSER[opener] else listed
        require(self.take(closer))
        return value

    def number(self, numeral):
        """A numeral; with a subscript, in that base; with a fraction of numerals right behind it, a mixed number."""
        if self.take("_"):
            base = as_number(self.script())
            require(numeral.isdecimal() and base in range(2, 11) and int(max(numeral)) < base)
            return constant(int(numeral, int(base)))
        value, start = constant(exact(numeral)), self.at
        if numeral.isdecimal() and self.peek() == "\\frac":  # 2\frac{1}{2}
            fraction = self.primary()
            require(self.peek() not in ("^", "!"))
            mixed = all(token.isdecimal() or token in "{}" for token in self.tokens[start + 1 : self.at])
            return add(value, fraction) if mixed else multiply(value, fraction)
        if numeral.isdecimal() and self.peek().isdecimal():  # 2 1/2
            top = self.script()
            require(self.take("/") and self.peek().isdecimal())
            value = add(value, multiply(top, power(self.script(), Fraction(-1))))
            require(not self.at_factor(after="") and self.peek() not in ("^", "!"))
        return value

    def script(self, digits=None):
        """A group, a variable or a numeral, after ^ and _ also with a minus. A TeX command takes one of a numeral's digits."""
        sign, token = -1 if digits is None and self.take("-") else 1, self.peek()
        if not isinstance(token, Number):
            value = self.primary()
            require(isinstance(value, dict))
            return multiply(value, constant(sign))
        if digits and token.isdecimal():
            self.tokens[self.at : self.at + 1] = [Number(part) for part in (token[:digits], token[digits:]) if part]
        self.at += 1
        return constant(sign * exact(self.tokens[self.at - 1]))

    def function(self, name):
        """sin x, sin(x), sin^2 x, log_2 3: an atom. Without brackets the argument is all that is written together."""
        if self.take("_"):
            name += f"_{{{show(self.script())}}}"
        exponent = self.script() if self.take("^") else constant(1)
        require(exponent != constant(-1))  # the inverse function
        self.functions += 1
        bracketed = self.peek() in ("(", "[", "{")
        argument = self.primary() if bracketed else self.factor()
        require(isinstance(argument, dict))
        while not bracketed and self.at_factor(after="") and self.peek() not in _FUNCTIONS:
            argument = multiply(argument, self.factor())
        require(bracketed or self.peek() != "/")  # log x/2
        self.functions -= 1
        return raised(atom(f"{name}({show(argument)})"), exponent)


def exact(numeral):
    """The value of a decimal numeral such as 12, 0.5, .5, 0.(3) or 1e-3."""
    start, _, repeated = f"0{numeral.rstrip(')')}".partition("(")
    require(abs(int(start.lower().partition("e")[2][:9] or 0)) < MAX_BITS // 4)
    places = 10 ** len(start.partition(".")[2])
    return Fraction(start) + (Fraction(int(repeated), places * (10 ** len(repeated) - 1)) if repeated else 0)


def _equation(sides):
    """`polynomial = 0`, or the solution if there is one unknown and it stands alone."""
    require(len(sides) == 2 and all(isinstance(side, dict) for side in sides))
    difference = add(sides[0], multiply(constant(-1), sides[1]))
    unknowns = [monomial for monomial in difference if monomial != ONE]
    require(unknowns)  # not 1 = 2
    if len(unknowns) == 1 and re.fullmatch(_NAME, show({unknowns[0]: Fraction(1)}) + " "):
        return constant(-difference.get(ONE, 0) / difference[unknowns[0]])  # 2x + 1 = 7
    return show(primitive(difference)[1]) + "=0"


# ---------------------------------------------------------------- Algebra: polynomials with one printed form each
# A polynomial is a dict {monomial: Fraction}, a monomial a frozenset of (atom, exponent); exponents are Fractions and may
# be negative. Two facts make the form unique where it matters: a root of a number is split into roots of primes, so that
# sqrt(12) = 2 * 3^(1/2), and products of sums are multiplied out. Atoms are
#     int        a prime (or a number that we cannot factor) under a root, its exponent between 0 and 1; i is (-1)^(1/2)
#     str        the printed name of a variable, of a function applied to something, or of a power such as 2^n
#     frozenset  the items of a polynomial under a negative or fractional power, such as (x+1)^(-1)
# What would be too large is Unreadable: completions are untrusted (9^{9^{9^9}}). Incomplete on purpose: fractions of sums
# are not cancelled, nested roots and identities of functions are not used. So some equal expressions print differently.

ONE = frozenset()  # the empty monomial
_work = ContextVar("_work", default=0)  # what the answer that is being read has cost so far


def spend(work):
    """Count the work on one answer."""
    _work.set(_work.get() + work)
    require(_work.get() <= MAX_WORK)


def constant(value):
    """The polynomial that is this number; zero has no terms."""
    return {ONE: Fraction(value)} if value else {}


def as_number(p):
    """The value of a constant polynomial, else None."""
    return p.get(ONE, Fraction(0)) if set(p) <= {ONE} else None


def atom(name, exponent=1):
    """The polynomial name^exponent: one term, coefficient 1."""
    return {frozenset({(name, Fraction(exponent))}): Fraction(1)}


def collect(terms):
    """The polynomial that is the sum of these terms (monomial, coefficient)."""
    total = {}
    for monomial, c in terms:
        total[monomial] = total.get(monomial, 0) + c
    require(all(max(c.numerator.bit_length(), c.denominator.bit_length()) <= MAX_BITS for c in total.values()))
    return {monomial: c for monomial, c in total.items() if c}


def add(a, b):
    """a + b."""
    return collect([*a.items(), *b.items()])


def multiply(a, b):
    """a * b."""
    spend(len(a) * len(b))
    return collect(term for m, c in a.items() for n, d in b.items() for term in _product([*m, *n], c * d).items())


def number_power(c, e):
    """The Fraction c to the whole power e; the size is checked before the power is taken."""
    bits = max(abs(c.numerator).bit_length(), c.denominator.bit_length()) - 1
    require((c or e > 0) and bits * abs(e) <= MAX_BITS)
    return c**e


def _product(factors, c):
    """c times the product of these atom^exponent, in normal form: 2^(3/2) = 2 * 2^(1/2), i^2 = -1, ((x+1)^(1/2))^2 = x+1."""
    exponents, kept, sums = {}, [], []
    for base, e in factors:
        exponents[base] = exponents.get(base, 0) + e
    for base, e in exponents.items():
        if isinstance(base, int):
            c *= number_power(Fraction(base), floor(e))
            e -= floor(e)
        elif isinstance(base, frozenset) and e.denominator == 1 and (e > 0 or len(base) == 1 or _has_conjugate(dict(base))):
            sums.append(power(dict(base), e))
            e = 0
        if e:
            kept.append((base, e))
    return reduce(multiply, sums, {frozenset(kept): c})


def _has_conjugate(p):
    """Whether p is made of numbers and their square roots alone, so that 1/p can be written without a denominator."""
    return all(isinstance(base, int) and 2 * e == 1 for monomial in p for base, e in monomial)


def power(p, e):
    """p to the power e, a Fraction. Odd roots of negative numbers are real; their square roots have i."""
    whole = e.denominator == 1
    if not p or e == 0:
        require(p or e > 0)
        return constant(1) if p else {}
    if whole and len(p) == 1:
        ((monomial, c),) = p.items()
        return _product([(base, k * e) for base, k in monomial], number_power(c, int(e)))
    if whole and e > 0:
        require(e <= 60)
        return reduce(multiply, [p] * int(e))
    if whole and e < -1:
        return power(power(p, Fraction(-1)), -e)
    if whole and _has_conjugate(p):  # 1 / (a + b r) = (a - b r) / (a^2 - b^2 r^2)
        r = next(base for monomial in p for base, _ in monomial)
        conjugate = {monomial: -c if r in dict(monomial) else c for monomial, c in p.items()}
        return multiply(conjugate, power(multiply(p, conjugate), e))
    below = {}  # the common denominator of the terms: sqrt(1/n) = 1/sqrt(n)
    for base, k in (factor for monomial in p for factor in monomial if factor[1] < 0):
        below[base] = max(below.get(base, 0), -k)
    if below:
        above = collect(term for monomial, c in p.items() for term in _product([*monomial, *below.items()], c).items())
        return multiply(power(above, e), power(_product(below.items(), Fraction(1)), -e))
    content, rest = primitive(p, signed=whole or as_number(p) is not None)
    outside = constant(1 / content) if whole else _root(content, e)
    return outside if as_number(rest) == 1 else multiply(outside, atom(frozenset(rest.items()), e))


def raised(p, exponent):
    """p to the power of a polynomial; 2^n is an atom."""
    e = as_number(exponent)
    return atom(f"(({show(p)})^({show(exponent)}))") if e is None else power(p, e)


def primitive(p, signed=True):
    """(content, p / content), the latter with whole coefficients of gcd 1, the first one positive (if signed)."""
    content = Fraction(gcd(*(c.numerator for c in p.values())), lcm(*(c.denominator for c in p.values())))
    if signed and p[min(p, key=_order)] < 0:
        content = -content
    return content, {monomial: c / content for monomial, c in p.items()}


def _root(c, e):
    """The number c to the power e, not a whole one, as a product of roots of primes."""
    require(c > 0 or e.denominator == 2 or e.denominator % 2)
    sign = [(-1, e if e.denominator == 2 else Fraction(e.numerator))] * (c < 0)
    factors = [(p, e) for p in _factors(abs(c.numerator))] + [(p, -e) for p in _factors(c.denominator)]
    return _product(sign + factors, Fraction(1))


@lru_cache(maxsize=1024)
def _factors(n):
    """Numbers whose product is n: primes below 1000, then what is left, unsplit unless it is a square."""
    found, times = [], 1
    for p in range(2, 1000):
        while n % p == 0:
            n //= p
            found.append(p)
        if p * p > n:
            break
    while n > 1 and isqrt(n) ** 2 == n:
        n, times = isqrt(n), times * 2
    return found + [n] * (times if n > 1 else 0)


def show(value):
    """The key of a value. A polynomial has one, and it reads back as the same polynomial."""
    if isinstance(value, str):
        return value
    text = ""
    for (_, name), c in sorted((_order(monomial), c) for monomial, c in value.items()):
        size = str(abs(c))
        term = name if name and size == "1" else f"{size}*{name}" if name else size
        text += ("-" if c < 0 else "+" if text else "") + term
    return text or "0"


def _order(monomial):
    """(minus its degree, its printed form)."""
    factors = []
    for base, k in monomial:
        name = f"({show(dict(base))})" if isinstance(base, frozenset) else str(base)
        name += "" if k == 1 else f"^{k}" if k > 0 and k.denominator == 1 else f"^({k})"
        factors.append("i" if base == -1 else name)
    return -sum(k for _, k in monomial), "*".join(sorted(factors))
