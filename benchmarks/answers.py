"""Our equality of answers beside math-verify's, on real gold answers.

    pip install -r benchmarks/requirements.txt
    python benchmarks/answers.py DATA_FOLDER

DATA_FOLDER holds .json (lists of objects) or .jsonl files with an `answer` field; of a GSM8K solution, what follows
#### counts.
1. Respellings: gold answers rewritten by the rules below, none of which changes the value. Who recognises them?
2. Every pair of distinct gold answers: who takes two of them for equal? The pairs are printed, for a person to judge.
3. Seconds per comparison, from two texts to a verdict; ours without its cache. Microseconds per key of ours, too.
"""

import argparse
import itertools
import json
import logging
import random
import re
import sys
import time
from fractions import Fraction
from pathlib import Path

try:
    from math_verify import parse, verify
except ModuleNotFoundError:
    sys.exit("benchmarks/answers.py needs math-verify: pip install -r benchmarks/requirements.txt")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # before this folder, where this file has the same name
from lab import answers as ours  # noqa: E402
from lab.options import above_0  # noqa: E402


def gold_answers(folder):
    """The distinct gold answers of all files in a folder, sorted."""
    found = set()
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json":
            records = json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            records = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        else:
            continue
        found |= {str(record["answer"]).split("####")[-1].strip() for record in records if "answer" in record}
    return sorted(found)


# ---- Respelling. A rule takes (text, rng) and gives another spelling of the value; the text itself if it does not fit.


def as_fraction(text):
    """The value of a plain number or of a fraction of whole numbers, else None."""
    plain = re.sub(r"\\[$!]|,(?=(?:\\! ?)?\d{3})| ", "", text)
    if re.fullmatch(r"-?\d*\.?\d+", plain):
        return Fraction(plain)
    match = re.fullmatch(r"(-?)\\[dt]?frac(?:\{(\d+)\}\{(\d+)\}|(\d)(\d)|(\d)\{(\d+)\})", plain)
    return Fraction(*[int(g) for g in match.groups()[1:] if g]) * (-1 if match[1] else 1) if match else None


def number(text, rng):
    value = as_fraction(text)
    if value is None:
        return text
    n, d, sign, k = abs(value.numerator), value.denominator, "-" * (value < 0), rng.randint(2, 9)
    forms = [rf"{sign}\frac{{{n * k}}}{{{d * k}}}", f"{sign}{n * k}/{d * k}"]
    if d == 1:
        commas = f"{n:,}"
        forms += [str(n), f"{n}.0", f"{n}.00", commas, commas.replace(",", "{,}"), commas.replace(",", r",\!")]
        forms += [rf"\${commas}", f"0{n}"]
        return rng.choice(forms[:2] + [sign + form for form in forms[2:]])
    forms += [f"{sign}{n}/{d}", rf"\frac{{{sign}{n}}}{{{d}}}", rf"{sign}\dfrac{{{n}}}{{{d}}}"]
    if n < 10 and d < 10:
        forms.append(rf"{sign}\frac{n}{d}")
    if n > d:
        forms += [rf"{sign}{n // d}\frac{{{n % d}}}{{{d}}}", f"{sign}{n // d} {n % d}/{d}"]
    if 10**7 % d == 0:
        forms.append(f"{sign}{n // d}.{n % d * 10**7 // d:07d}".rstrip("0"))
    return rng.choice(forms)


def unit(text, rng):
    if as_fraction(text) is None:
        return text
    return text + rng.choice([r"\text{ cm}", r" \text{ units}", r"\mbox{ cm}^2", r"^\circ", r"\text{ dollars}"])


def label(text, rng):
    return rng.choice(["x = ", "n=", "y="]) + text if as_fraction(text) is not None else text


def brackets(text, rng):
    if r"\left" in text:
        return text.replace(r"\left", "").replace(r"\right", "")
    if "matrix" in text:
        return text.replace("pmatrix", "bmatrix")
    text = re.sub(r"(?<![\\a-z])[(\[]", lambda m: r"\left" + m[0], text)
    text = re.sub(r"[)\]]", lambda m: r"\right" + m[0], text)
    return text.replace(r"\{", r"\left\{").replace(r"\}", r"\right\}")


def spaces(text, rng):
    if re.search(r"\\text|\\mbox|matrix", text):
        return text
    return re.sub(r"(?<=[\w})\]])([+\-=])", lambda m: rng.choice([" {} ", "{}", r"\,{}\,"]).format(m[1]), text)


def braces(text, rng):
    r"""x^2 and x^{2}; \sqrt5 and \sqrt{5}; \frac34 and \frac{3}{4}; \frac and \dfrac."""
    patterns = [
        (r"\^(\w)(?!\w)", r"^{\1}"),
        (r"\^\{(\w)\}", r"^\1"),
        (r"\\sqrt\{(\d)\}(?!\w)", r"\\sqrt\1"),
        (r"_\{(\d)\}", r"_\1"),
        (r"_(\d)$", r"_{\1}"),
        (r"\\frac\{(\d)\}\{(\d)\}", r"\\frac\1\2"),
        (r"\\frac ?(\d)(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac", r"\\dfrac"),
        (r"\\frac", r"\\tfrac"),
    ]
    fitting = [pair for pair in patterns if re.search(pair[0], text)]
    return re.sub(*rng.choice(fitting), text) if fitting else text


def product(text, rng):
    r"""2\sqrt3, 2\cdot\sqrt3 and \sqrt3\cdot 2; also with \pi or a letter."""
    match = re.fullmatch(r"(\d+) ?(\\sqrt\{?\d+\}?|\\pi|[a-z])", text)
    if not match:
        return text
    form = rng.choice([r"{1} \cdot {0}", r"{0}\cdot {1}", r"{0}\times {1}", r"{0}\,{1}", "{0} {1}"])
    return form.format(*match.groups())


def root(text, rng):
    r"""2\sqrt3, \sqrt{12} and \frac{6}{\sqrt3}."""
    match = re.fullmatch(r"(-?)(\d*) ?\\sqrt\{?(\d+)\}?", text)
    if not match:
        return text
    a, n = int(match[2] or 1), int(match[3])
    return match[1] + rng.choice([rf"\sqrt{{{a * a * n}}}", rf"\frac{{{a * n}}}{{\sqrt{{{n}}}}}"])


def sum_order(text, rng):
    """The terms of a sum without brackets in another order."""
    if re.search(r"[(\[,=&]|\\(?:text|mbox|pm|cup|in|left|begin)|\{[^{}]*[+\-]", text):
        return text
    terms = re.findall(r"[+\-]?[^+\-]+", text.replace(" ", ""))
    if len(terms) < 2:
        return text
    rng.shuffle(terms)
    return "".join(term if term[0] in "+-" else "+" + term for term in terms).removeprefix("+")


def list_order(text, rng):
    """A bare list or a set in another order."""
    inner = re.fullmatch(r"\\\{(.*)\\\}", text)
    body = inner[1] if inner else text
    if re.search(r"[(\[]|\\(?:text|begin|left|right|in\b|!)|=|\d,\d{3}|\{,\}", body) or "," not in body:
        return text
    items = [item.strip() for item in body.split(",")]
    rng.shuffle(items)
    body = ", ".join(items)
    return rf"\{{{body}\}}" if inner or rng.random() < 0.5 else body


def plus_minus(text, rng):
    if text.count(r"\pm") != 1 or "{" in text.split(r"\pm")[0]:
        return text
    return ", ".join(rng.sample([text.replace(r"\pm", "+"), text.replace(r"\pm", "-")], 2))


def words(text, rng):
    match = re.fullmatch(r"\\text\{([A-Za-z]+|\([A-Z]\))\}", text)
    return rng.choice([r"{}", r"\textbf{{{}}}", r"\mathrm{{{}}}", r"\text{{ {} }}"]).format(match[1]) if match else text


def wrap(text, rng):
    around = [("$", "$"), (r"\boxed{", "}"), (r"\displaystyle ", ""), (" ", " "), ("", "."), ("{", "}")]
    before, after = rng.choice(around)
    return before + text + after


RULES = [number, unit, label, brackets, spaces, braces, product, root, sum_order, list_order, plus_minus, words]


def respellings(golds, count, rng):
    """`count` pairs (gold, another spelling), half of them of golds that are not plain numbers."""
    plain = [gold for gold in golds if re.fullmatch(r"-?[\d,]*\.?\d*", gold)]
    others = sorted(set(golds) - set(plain))
    pairs = []
    while len(pairs) < count:
        gold = rng.choice(rng.choice([plain, others]))
        changes = [rule for rule in RULES if rule(gold, rng) != gold]
        text = gold
        for rule in rng.sample(changes, min(len(changes), rng.randint(1, 2))):
            text = rule(text, rng)
        if rng.random() < 0.3:
            text = wrap(text, rng)
        if text != gold:
            pairs.append((gold, text))
    return pairs


# ---- Comparison. ----


def their_parse(text):
    """As math-verify reads it best: between dollar signs (measured against \\boxed{}, which it recognises less of)."""
    return parse(text if "$" in text.replace(r"\$", "") or r"\boxed" in text else f"${text}$", parsing_timeout=None)


def their_verdict(a, b):
    return verify(their_parse(a), their_parse(b), timeout_seconds=None)


def our_verdict(a, b):
    ours._canonical.cache_clear()
    return ours.same_answer(a, b)


def timed(verdict, pairs):
    start = time.perf_counter()
    verdicts = [verdict(a, b) for a, b in pairs]
    return verdicts, (time.perf_counter() - start) / len(pairs)


def compare_respellings(golds, options):
    pairs = respellings(golds, options.respellings, random.Random(options.seed))
    mine, my_seconds = timed(our_verdict, pairs)
    theirs, their_seconds = timed(their_verdict, pairs)
    print(f"{len(golds)} distinct gold answers, {len(pairs)} respellings")
    for name, verdicts in (("ours", mine), ("math-verify", theirs)):
        missed = [pair for pair, recognised in zip(pairs, verdicts, strict=True) if not recognised]
        print(f"\n{name} recognises {1 - len(missed) / len(pairs):.2%} and misses {len(missed)}")
        show(missed, options.show)
    ratio = their_seconds / my_seconds
    print(f"\nseconds a comparison: ours {my_seconds:.6f}, math-verify {their_seconds:.6f}, ratio {ratio:.0f}")


def time_keys(golds):
    """Print what a key costs, without the cache: for all golds, for those that are not whole numbers, and for whole numbers."""
    others = [gold for gold in golds if not gold.removeprefix("-").isdecimal()]
    print("\nmicroseconds a key:", end="")
    for name, texts in (("gold answers", golds), ("not whole numbers", others), ("whole numbers", list(map(str, range(1000))))):
        _, seconds = timed(our_verdict, [(text, None) for text in texts])
        print(f" {name} {1e6 * seconds:.1f}", end=";" if name != "whole numbers" else "\n")


def compare_pairs(golds, options):
    keys = {gold: ours.canonical(gold) for gold in golds}
    parsed = {gold: their_parse(gold) for gold in golds}
    merged = {"both": [], "ours alone": [], "math-verify alone": []}
    pairs = list(itertools.combinations(golds, 2))
    for a, b in pairs:
        we, they = keys[a] == keys[b], verify(parsed[a], parsed[b], timeout_seconds=None)
        if we or they:
            merged["both" if we and they else "ours alone" if we else "math-verify alone"].append((a, b))
    print(f"\n{len(pairs)} pairs of distinct gold answers")
    for name, rows in merged.items():
        print(f"taken for equal by {name}: {len(rows)}")
        show(rows, options.show)


def show(pairs, most):
    for a, b in pairs[:most]:
        print(f"    {a!r}  {b!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of .json and .jsonl files")
    parser.add_argument("--respellings", type=above_0, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=40, help="print at most so many pairs of each kind")
    parser.add_argument("--skip-pairs", action="store_true", help="only the respellings (all pairs take ten minutes)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # math-verify warns at every call without a time limit
    try:
        golds = gold_answers(options.data)
    except (OSError, ValueError, TypeError) as error:
        sys.exit(f"benchmarks/answers.py: {options.data} cannot be read: {error}")
    if not golds:
        sys.exit(f"benchmarks/answers.py: no .json or .jsonl file in {options.data} has an answer")
    time_keys(golds)
    compare_respellings(golds, options)
    if not options.skip_pairs:
        compare_pairs(golds, options)


if __name__ == "__main__":
    main()
