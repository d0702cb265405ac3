r"""How the answer of a completion is read out of its text: extract_answer, by one of the STYLES.

What a numeral looks like is said here once, for completions, for the tokens of `answers.py`, and for the drafts of Agon.

    boxed   The last complete, non-empty \boxed or \fbox after any </think>; None if a later box is cut off.
    number  The last number, as it is written; None where it is only a part of what is written, as in 3\sqrt2.
    choice  The letter of a multiple choice; None where two letters stand, or where it is denied.
    code    A program: the last fenced Python block, see code.py; what it does is its answer.
"""

import re
from collections import deque
from unicodedata import category, decimal, decomposition, normalize

from lab.code import last_program

MAX_CHARS = 600  # longer answers are compared as text, spaces aside

# ---------------------------------------------------------------- Numerals: one pattern for completions, tokens and drafts

DASHES = r"\-‐‑‒–—―−﹣－˗➖"  # what people type for a minus sign
SCALES = {"dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SCALES |= {f"{word}s": value for word, value in SCALES.items()}
SCALE = rf"(?i:{'|'.join(sorted(SCALES, reverse=True))})(?![A-Za-z])"
_LEAD = r"(?<![\^_,])(?!0)\d{1,3}"
_GROUPED = rf"""(?:{_LEAD}(?:(?:[,，'’_]|(?:\{{,\}}|,?\\[,!;:\ ])\s*)\d{{3}})+(?!\d|,\d)
    | (?<![\d/]\s)(?<!/){_LEAD}(?:[^\S\n]\d{{3}})+(?!\d|,\d|\s?/) | \d+)"""  # 1,000, 1{{,}}000, 1'000; 1 000; 1000
_REPEATED = r"(?:\\(?:overline|bar|dot)\s*(?:\{\d+\}|\d)(?:\d*\\dot\s*(?:\{\d\}|\d))?|\(\d+\)|\[\d+\])"
DECIMAL = rf"""(?:(?:{_GROUPED}|(?<![\w.]))\.\d*{_REPEATED}
    | (?:{_GROUPED}(?:\.\d+)?|(?<![\w.])\.\d+)(?:[eE][+-]?\d+)?)"""  # 0.(3); 12, 1,234.5, .5, 1e-3
_POWER = rf"(?:(?:\^\s?|\*\*)(?:\{{\s*[{DASHES}]?\d+\s*\}}|[{DASHES}]?\d+)|[⁺⁻]?[⁰¹²³⁴-⁹]+)"
NUMERAL = rf"""(?:(?:\d+\s?)?\\[dtc]?frac\s*(?:\{{\s*[{DASHES}]?\d+\s*\}}|\d)\s*(?:\{{\s*\d+\s*\}}|\d)  # 2\frac12
    | {DECIMAL}(?:\s?(?:[×·⋅*xX]|\\times|\\cdot)\s?10{_POWER}|\s?/\s?{DECIMAL}|[ ]\d+/\d+|_\{{?\d+\}}?|[¼-¾⅐-⅞])?
    | [¼-¾⅐-⅞]) (?:\\?%)?(?:\s{SCALE})*"""
_BEHIND = "|".join(rf"(?<=\\{name})" for name in "times cdot div pm approx equiv ne neq le leq ge geq lt gt to quad".split())
NUMBER = re.compile(
    rf"""
    (?:(?: (?:(?<![^\W_])(?<![)\]}}\^{DASHES}])|{_BEHIND})[{DASHES}]                     # a sign, unless it subtracts
      | (?:(?<=[=(<>≈:$])|(?<=[=(<>≈:$]\s)|(?<=\bis\s))[-−–]\s ) (?:\\?[$£€¥₹])?)?
    (?: (?<![A-Za-z\d^])(?<![A-Za-z\d]_)(?<![\^_]\{{)(?<!\^[{DASHES}])(?<!\^\{{[{DASHES}])  # x2 and x_2 are names, ^2 is a power
      | {_BEHIND} | (?<=USD|EUR|GBP|INR|JPY|CNY|CAD|AUD|CHF) | (?<=Rs|US) )
    {NUMERAL} (?:{_POWER} | (?::\d+)+)?
    """,
    re.X,
)
_BEYOND = re.compile(r"\s*(?:\^(?!\s*\{?\s*\\circ)|\\sqrt|\\pi(?![A-Za-z])|[√π])")  # behind a number that is only a part, 3\sqrt2
_WITHIN = re.compile(r"(?:√|sqrt)\s*[{(]?\Z")  # and before one

# ---------------------------------------------------------------- Signs

_SIGNS = dict(zip("×·⋅÷⁄∕≤≥∈∪∩∧∨≠∠º˚、。⁻₋θπ√±∅∞", r"""* * * / / / \leq \geq \in \cup \cap \land \lor \ne \angle ° ° , . ^{-} _{-}
    \theta \pi \sqrt \pm \emptyset \infty""".split(), strict=True))


def _ascii(c):
    r"""A sign in ASCII, as far as that says the same: ２ is 2, ² is ^{2}, ½ is \frac{1}{2}; invisible characters go."""
    kind, tag, base = category(c), decomposition(c).partition(" ")[0], normalize("NFKC", c)
    if sign := "-" if c in DASHES else _SIGNS.get(c) or _SIGNS.get(base):
        return sign if len(sign) == 1 or "{" in sign else f"{sign} "
    if kind in ("Cf", "Sc", "Zs", "Nd"):
        return {"Cf": "", "Sc": "$", "Zs": " "}.get(kind) or str(decimal(c, ""))
    if tag == "<fraction>":
        return "\\frac{{{}}}{{{}}} ".format(*base.split("⁄"))
    return {"<super>": f"^{{{base}}}", "<sub>": f"_{{{base}}}", "<circle>": c}.get(tag, base if tag[:1] == "<" else c)


def _plain(match):
    """What is not ASCII in ASCII; but what stands in quotes stays."""
    return match[0] if match[0][0] == '"' else "".join(map(_ascii, match[0])).replace("}^{", "").replace("}_{", "")


def plain(text):
    """A text in ASCII, as far as that says the same; what stands in quotes stays as it is."""
    return text if text.isascii() else re.sub(r'"[^"]+"|[^"\x00-\x7f]+', _plain, text)

# ---------------------------------------------------------------- Completions: from the text to the raw answer

_BLANK = re.compile(r"[{}$~\s]|\\(?:[\s,!;:]|q?quad(?![A-Za-z]))")  # what prints nothing
_BOX = re.compile(r"\\{1,2}(?:boxed|fbox|framebox)(?:\s*(?:\{|\Z)|\s*(?P<bare>[0-9A-Za-z])(?=[\s$.]))|\\.|[{}]", re.S)


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
        elif match["bare"]:  # \boxed 5
            found.append((match.start(), match.end(), slice(*match.span("bare"))))
        elif match[0] == "{" or "box" in match[0]:
            open_braces.append((match.start() if "box" in match[0] else None, match.end()))
    closed = [(start, end, text[inside].strip()) for start, end, inside in found]
    last_end = closed[-1][1] if closed else 0
    return closed + [(start, len(text), None) for start, _ in open_braces if start is not None and start >= last_end]


def last_box(text):
    """The content of the last box in which something is printed; None where there is none, or where the text ends in it."""
    for *_, content in reversed(boxes(text)):
        if content is None or _BLANK.sub("", plain(content)):
            return content
    return None


def last_number(text):
    r"""The last number, as it is written; None where it is only a part of what is written, as in 3\sqrt2."""
    text = re.sub("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]", "", text)  # invisible
    last = next(iter(deque(NUMBER.finditer(text), maxlen=1)), None)
    if last is None or _BEYOND.match(text, last.end()) or _WITHIN.search(text, max(0, last.start() - 9), last.start()):
        return None
    return last[0]


_OPTION = r"""(?<!\w)[(\[]\s*([A-Ja-h])\s*[)\]] | \b(?i:option|choice)\s+([A-Ja-h])\b | ^[^\S\n]*([A-Ja-h])\s*(?:[.):]|$)
    | \b([A-J])\s+is\s+(?:the\s|my\s)?(?:correct|right|best|final|answer)"""
_LETTER = r"(?<![\w-])([A-J])(?!['’]?\w|-)(?!\s(?!(?:is|are|was|and|or)\b)[a-z])"  # B; but "A train leaves" has none


def last_choice(text):
    """The letter of a multiple choice, as a capital: in the last box, or after "answer", or marked as (B), B) or option B.

    None where two letters stand there, where the letter is a word of its sentence, or where it is denied.
    """
    boxed = boxes(text) != []
    text = (last_box(text) or "") if boxed else text
    text = re.sub(r"\\(?:text\w*|math\w+|mbox|[ ,;:])|[*_`${}~]", " ", text)
    *stated, said = re.split(r"(?i)\banswer\b(?:\s+is\b)?[\s:]*", text)
    if stated and not boxed:  # its sentence, up to the reason that it gives
        said = re.split(r"[.\n](?!\S)|\b(?:because|since|as|which)\b", said)[0]
    for passage, pattern in ((said, f"{_OPTION}|{_LETTER}" if stated or boxed else _OPTION), (text, _OPTION)):
        letters = {"".join(groups).upper() for groups in re.findall(pattern, passage, re.X | re.M)}
        if letters:
            denied = re.search(r"\b(?i:not|neither|nor)\b|n['’]t\b", passage)
            return letters.pop() if len(letters) == 1 and not denied else None
    return None


STYLES = {"boxed": last_box, "number": last_number, "choice": last_choice, "code": last_program}  # a new one is one row


def extract_answer(text, style="boxed"):
    """The raw answer that a completion ends with, read by STYLES[style] from what follows the reasoning; None without one."""
    if style not in STYLES:
        raise ValueError(f"an answer style must be one of {', '.join(STYLES)}, not {style!r}")
    if not isinstance(text, str):
        return None
    final = re.split(r"</think(?:ing)?>", text)[-1]
    return None if re.search(r"<think(?:ing)?>", final) else STYLES[style](final)
