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
"""

import re
from fractions import Fraction
from functools import lru_cache

from algebra import ONE, Unreadable, add, constant, multiply, primitive, show
from expressions import is_letter, is_word, read, tokenize

MAX_CHARS = 600  # longer answers are compared as text, spaces aside
MAX_DEPTH = 12  # nested brackets

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
