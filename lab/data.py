"""Problems: where they come from, and which of them are held out.

A source is a name of the table SOURCES, "hub:OWNER/NAME", or a local .jsonl / .json file with the usual field names. Behind it,
"@level=3-5" keeps the records whose field `level` lies between 3 and 5. Nothing is downloaded unless its name is asked for.
How a question becomes a prompt is told in models.py.
"""

import functools
import hashlib
import http.client
import importlib
import json
import logging
import os
import random
import re
import sys
import urllib.request
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import hf_hub_url

from lab.code import Inputs, read_tests
from lab.extract import NUMBER, extract_answer


class UserError(Exception):
    """A mistake that the user can mend. Its text is one line that says what to do; commands exit with code 2."""


@dataclass(frozen=True)
class Problem:
    """One question. `answer` is the reference (None: unlabelled), `rephrased` the same question in other words."""

    question: str
    answer: str | None = None
    topic: str = ""
    rephrased: str | None = None
    image: object = None  # the picture that it is about (lab.vision.Picture)
    tests: Inputs | None = None  # of a problem whose answers are programs; what they should say is `answer`, see code.py


class Prompt(str):
    """The text that an agent reads. It knows its problem: a picture goes with it, and a program is an answer by its tests."""

    problem: Problem | None

    def __new__(cls, text: str, problem: Problem | None = None):
        prompt = super().__new__(cls, text)
        prompt.problem = problem
        return prompt


class Source(NamedTuple):
    """One part of a named data set: where it comes from, how its answers are read, and under which licence it is given."""

    url: str  # of a file, or hub:OWNER/NAME, which the datasets package reads
    sha256: str | None  # of the file; a hub set is not pinned
    style: str  # "number" or "boxed", see answers.extract_answer
    licence: str  # as stated where it is published


GSM8K = "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/"
MATH500 = hf_hub_url("HuggingFaceH4/MATH-500", "test.jsonl", repo_type="dataset")
AIME24 = "https://raw.githubusercontent.com/PRIME-RL/TTRL/main/verl/data/AIME-TTT/test.json"
AIME25 = hf_hub_url("math-ai/aime25", "test.jsonl", repo_type="dataset", revision="563bb8404243c5f09de6ec262f2db674fe5bce9b")
SOURCES = {  # name/part; a name with a test part alone is one list, of which `hold_out` makes two
    "gsm8k/train": (GSM8K + "train.jsonl", "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465", "number", "MIT"),
    "gsm8k/test": (GSM8K + "test.jsonl", "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14", "number", "MIT"),
    "math500/test": (MATH500, "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132", "boxed", "MIT"),
    "aime24/test": (AIME24, "f52c531f6919731115b491d056be701e760e115d4b1cd5b57f48de2251a85d66", "boxed", "MIT"),
    "aime25/test": (AIME25, "b4e273c02d3e7fe1b74b59eae768fc8230bfb0f79539890cb56f4361caac0331", "boxed", "see its page"),
    "amc23/test": ("hub:math-ai/amc23", None, "boxed", "Apache-2.0"),
    "minerva/test": ("hub:math-ai/minervamath", None, "boxed", "see its page"),
    "olympiad/test": ("hub:math-ai/olympiadbench", None, "boxed", "see its page"),
    # Agon's hard problems. Our summary of it names no bound: 7 is ours. The set has one part, of which a tenth is held out.
    "deepmath-hard/train": ("hub:zwhe99/DeepMath-103K@difficulty=7-10", None, "boxed", "MIT"),
    "deepmath-hard/test": ("hub:zwhe99/DeepMath-103K@difficulty=7-10", None, "boxed", "MIT"),
}
SOURCES = {key: Source(*row) for key, row in SOURCES.items()}
NAMES = list(dict.fromkeys(key.partition("/")[0] for key in SOURCES))
WORLDS = ("tiny", "eyes", "tinycode")  # made here, with models of their own: tinyworld.py, tinyeyes.py, tinycode.py
KNOWN = f"sums, products, {', '.join(NAMES)}, hub:NAME, or a .jsonl / .json file"

# Field names met in public data sets; of several in one record the first that is filled counts.
QUESTION = ("question", "problem", "prompt", "original")
ANSWER = ("answer", "final_answer", "expected_answer", "ground_truth", "solution")
REPHRASED = ("rephrased", "rewritten")
STATEMENT = ("description", "text", "statement")  # of problems with tests, a question too
TOPIC = ("topic", "subject", "level", "source")
IMAGE = ("image", "images", "image_path")
# What JSON makes of a TeX command written with one backslash: of \frac a form feed and "rac", of \theta a tab and "heta".
SWALLOWED = re.compile(
    r"[\b\f\ud800-\udfff]|(?<=[${(^_])[\t\r](?=[a-z])|\r(?:ight|(?:ho|m)(?![a-z]))|\n(?:abla|otin|(?:eq|leq|geq)(?![a-z.]))"
    r"|\t(?:heta|imes|riangle|ilde|herefore|(?:au|anh|ext(?:bf|it|rm)?|frac|binom|o|op)(?![a-z]))|(?<=[ $(])\n[eu](?![A-Za-z])"
)
MARK = re.compile(r"(?<!#)####(?!#)[ \t]*(?:\**(?:final )?answer\**:\**)?[ \t]*(.*)", re.I)  # GSM8K's, or a Markdown heading


# ---------------------------------------------------------------- One record of a file -> one Problem


def field(record: dict, names: tuple[str, ...], needed: bool = True) -> tuple[str, str]:
    """The name and the text of the first filled field among `names`, or ("", "").

    ValueError if it holds no text, or text that JSON has damaged. What is not `needed` is passed over where it is no text.
    """
    for name in names:
        value = record.get(name)
        if name == "final_answer" and isinstance(value, list) and len(value) == 1:
            value = value[0]  # so in OlympiadBench
        if value is None or value == "":
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            if needed:
                raise ValueError(f'field "{name}" holds a {type(value).__name__}, not text or a number')
            continue
        text = str(value)
        if lost := SWALLOWED.search(text):
            seen = json.dumps(text[lost.start() : lost.start() + 6])[1:-1]
            raise ValueError(f'field "{name}" has a control character, or no Unicode text, in {seen}: TeX takes two backslashes')
        if text.strip():
            return name, text.strip()
    return "", ""


def reference_answer(name: str, text: str) -> str | None:
    r"""The reference answer in a field: a number behind GSM8K's last ####, else the last box, else all of the text.

    #### is also a Markdown heading. It marks an answer only where a number stands behind it and no box follows, or where its line
    ends a text that has no box. Prose is no answer: a worked `solution` that marks none has none.
    """
    boxed, marks = extract_answer(text), list(MARK.finditer(text))
    if marks and extract_answer(text[marks[-1].end() :]) is None:
        found, last = marks[-1][1].strip(), not text[marks[-1].end() :].strip()
        if last and not found:
            raise ValueError(f'field "{name}" has nothing after its ####')
        if NUMBER.fullmatch(found.lstrip("$")) or (last and boxed is None):
            return found
    prose = (marks or name == "solution") and len(text.split()) > 1
    return boxed or (None if prose else text or None)


def to_problem(record, folder: Path = Path(), place: str = "") -> Problem:
    """A Problem from one record with the usual field names. ValueError, with the reason, if it is unusable.

    Paths of pictures begin in `folder`; `place` says where the record stands.
    """
    if not isinstance(record, dict):
        raise ValueError(f"not a JSON object with named fields but a {type(record).__name__}")
    tests, answer, ask = read_tests(record) or (None, None, "")
    _, question = field(record, QUESTION + STATEMENT * bool(tests))
    if not question:
        raise ValueError(f"no question: none of the fields {', '.join(QUESTION)} is filled")
    answer, image = answer if tests else reference_answer(*field(record, ANSWER)), None
    topic, rephrased = (field(record, names, False)[1] for names in (TOPIC, REPHRASED))
    for name in [name for name in IMAGE if record.get(name)][:1]:
        from lab import vision  # with PyTorch, which the theory's figures do without

        image, question = vision.stored(name, record[name], folder, place), question.replace("<image>", "").strip()
    return Problem(f"{question}{ask}", answer, topic, rephrased and f"{rephrased}{ask}" or None, image, tests)


def parse_json(text: str):
    """One JSON value. Decimal numbers stay the digits that were written, since answers are compared exactly."""

    def refuse(name: str):
        raise ValueError(f"{name} is not JSON")

    def once(pairs: list[tuple]) -> dict:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a field stands twice in one record")
        return dict(pairs)

    return json.loads(text, parse_float=str, parse_constant=refuse, object_pairs_hook=once)


def to_problems(entries: Iterable[tuple[str, object]], bounds: tuple = (), folder: Path = Path()) -> list[Problem]:
    """The problems of (place, record or its line of JSON) pairs. The first bad one stops it, named by place and reason.

    bounds (field, low, high): only the records whose field holds a number between the two ("Level 5" counts as 5).
    """
    problems = []
    for place, entry in entries:
        try:
            record = parse_json(entry) if isinstance(entry, str) else entry
            problem = to_problem(record, folder, place)
        except (ValueError, RecursionError) as error:
            reason = f"not JSON: {error.msg}" if isinstance(error, json.JSONDecodeError) else error
            raise UserError(f"{place}: {reason}") from None
        number = re.search(r"\d+(?:\.\d+)?", str(record.get(bounds[0]))) if bounds else None
        if not bounds or (number and bounds[1] <= float(number[0]) <= bounds[2]):
            problems.append(problem)
    return problems


# ---------------------------------------------------------------- Local files


def read_file(path: Path) -> list[tuple[str, object]]:
    """(place, record or its line) of every entry of a .jsonl or .json file. UserError, in one line, if there are none."""
    kind = path.suffix.lower()
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is a folder, or no file of text: name one .jsonl or .json file")
    try:
        text = path.read_text(encoding="utf-8-sig")
        whole = parse_json(text) if kind == ".json" and text.strip() else None
    except FileNotFoundError:
        raise UserError(f"there is no file {path}: the data can be {KNOWN}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not text.strip():
        raise UserError(f"{path} is empty")
    if kind not in (".jsonl", ".json"):
        raise UserError(f"{path} ends in neither .jsonl (one JSON object a line) nor .json (one list of objects)")
    if kind == ".jsonl":  # not splitlines(): that also cuts at U+2028 and others, which JSON allows inside a string
        return [(f"{path}, line {n}", line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not isinstance(whole, list) or not whole:
        raise UserError(f"{path} is not a list of problems: expected [{{...}}, ...] with at least one entry")
    return [(f"{path}, entry {n}", record) for n, record in enumerate(whole, start=1)]


# ---------------------------------------------------------------- What a source means for its readers


def answer_style(source: str) -> str:
    """How answers to these problems are read unless --answer says otherwise: "number", "boxed" or "code"."""
    name = source.partition("@")[0]
    own = {"tinycode": "code"} | dict.fromkeys(("tiny", "eyes", "sums", "products"), "number")
    return SOURCES[f"{name}/test"].style if name in NAMES else own.get(name, "boxed")


def need(what: str, problems: Sequence[Problem], source: str, who: str) -> list[Problem]:
    """The problems whose field `what` is filled. UserError if none is: `who` (an option, a method) reads it."""
    if found := [problem for problem in problems if getattr(problem, what)]:
        return found
    hint = {"rephrased": "rephrased question; python -m lab.rephrase writes them",
            "answer": f"reference answer: none of the fields {', '.join(ANSWER)} gives one"}[what]  # fmt: skip
    raise UserError(f"{who}: {source} holds no {hint}")


need_rephrased, need_answers = functools.partial(need, "rephrased"), functools.partial(need, "answer")


# ---------------------------------------------------------------- Named sources


def drill(a: int, sign: str, b: int, answer: int, otherwise: str) -> Problem:
    """One problem of arithmetic in two wordings; its topic is itself, so that each has an accuracy of its own."""
    asked = "Reply with only the number."
    return Problem(f"What is {a} {sign} {b}? {asked}", str(answer), f"{a}{sign}{b}", f"{otherwise}. {asked}")


def sums() -> list[Problem]:
    """The 64 sums of two digits from 2 to 9: the smallest task for a real pretrained model."""
    return [drill(a, "+", b, a + b, f"Add {a} and {b}") for a in range(2, 10) for b in range(2, 10)]


def products(split: str) -> list[Problem]:
    """Two digits times one: 11 to 99, no multiples of ten, times 3 to 9. 567 in all; a hash of the question holds out 179."""
    whole = [drill(a, "*", b, a * b, f"Multiply {a} by {b}") for a in range(11, 100) if a % 10 for b in range(3, 10)]
    return [p for p in whole if (zlib.crc32(p.question.encode()) % 3 == 0) == (split == "test")]


def cache_folder() -> Path:
    """Where downloads and warm starts are kept: $COHORT_CACHE, else ~/.cache/cohort."""
    return Path(os.environ.get("COHORT_CACHE") or "~/.cache/cohort").expanduser()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all: under a temporary name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def place(key: str) -> Path:
    """Where the part `key` of SOURCES is kept once it is there."""
    return cache_folder() / key.partition("/")[0] / (key.partition("/")[2] + (Path(SOURCES[key].url).suffix or ".jsonl"))


def fetch(key: str) -> Path:
    """The file of the part `key` of SOURCES, downloaded unless a whole one is there. A wrong download is never kept."""
    (url, sha256, *_), path = SOURCES[key], place(key)
    if path.is_file() and sha256 in (None, hashlib.sha256(path.read_bytes()).hexdigest()):
        return path
    try:
        if sha256 is None:
            name, part = key.split("/")
            problems = load_problems(url, part if f"{name}/train" in SOURCES else None)
            content = "\n".join(json.dumps(asdict(problem)) for problem in problems).encode()
        else:
            with urllib.request.urlopen(url, timeout=30) as response:
                print(f"downloading {url}", file=sys.stderr)
                content = response.read()
        if sha256 not in (None, found := hashlib.sha256(content).hexdigest()):
            raise UserError(f"{url} is not the expected file (SHA-256 {found[:12]}..., not {sha256[:12]}...): not kept")
        write_whole(path, content)
    except (OSError, http.client.HTTPException) as error:
        why = f"{getattr(error, 'reason', None) or error}"
        raise UserError(f"cannot download {url} to {path} ({why}): put it there by hand, or set COHORT_CACHE") from None
    return path


def hub(name: str, split: str | None, bounds: tuple) -> list[Problem]:
    """One part of any hub data set, by OWNER/NAME or OWNER/NAME:CONFIG.

    A set that has no train and test part is divided here, one tenth for the test, always the same one; None is all of it.
    """
    repository, _, config = name.partition(":")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # not six lines about retries before our one
    try:
        parts = importlib.import_module("datasets").load_dataset(repository, config or None)
    except ImportError as error:
        raise UserError(f"hub:{name} needs the datasets package: pip install datasets ({error})") from None
    except Exception as error:  # the package raises errors of half a dozen libraries
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"cannot load the hub data set {name}: {reason}") from None
    whole = {"train", "test"} <= set(parts)
    chosen = split if whole and split else "train" if "train" in parts else next(iter(parts))
    if hasattr(part := parts[chosen], "features"):
        from lab import vision

        part = vision.as_stored(part, IMAGE)
    rows = ((f"hub:{name}, row {n} of {chosen}", row) for n, row in enumerate(part, start=1))
    problems = to_problems(rows, bounds)
    return problems if whole or split is None else hold_out(problems, 0.1)[split == "test"]


def load_problems(source: str | Path, split: str | None = "train", limit: int | None = None) -> list[Problem]:
    """The first `limit` problems of a source (see SOURCES), in their own order.

    `split` ("train" or "test") matters for products, hub sets, and what has both parts in SOURCES. The sums are the same list for
    both (every sum is practised and tested); test sets and files are one list for both too, of which `hold_out` makes two.
    Raises UserError, in one line, for everything that a user can mend.
    """
    if split not in ("train", "test", None):
        raise ValueError(f"split is train or test, not {split!r}")
    if limit is not None and limit < 1:
        raise UserError(f"the number of problems must be at least 1, not {limit}")
    asked = re.fullmatch(r"(.+?)(?:@(\w+)=(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?))?", str(source), re.S)
    name, bounds = asked[1], (asked[2], float(asked[3]), float(asked[4])) if asked[2] else ()
    key = f"{name}/{split if f'{name}/{split}' in SOURCES else 'test'}"
    if name in ("sums", "products"):
        if bounds:
            raise UserError(f"{source}: {name} have no {bounds[0]} to choose by; say --data {name}")
        problems = sums() if name == "sums" else products(split)
    elif name.startswith("hub:"):
        problems = hub(name.removeprefix("hub:"), split, bounds)
    else:
        path = fetch(key) if key in SOURCES else Path(name).expanduser()
        problems = to_problems(read_file(path), bounds, path.parent)
    if not problems:
        raise UserError(f"{source} holds no problem")
    return problems[:limit]


def hold_out(problems: list[Problem], size: float, seed: int = 0) -> tuple[list[Problem], list[Problem]]:
    """(train, test): `size` problems are drawn for the test, a share if below 1, else a count; both keep their order.

    No question, in either wording, is on both sides: what repeats a test question is left out of the training part.
    """
    count = round(size * len(problems)) if size < 1 else int(size)
    if not 1 <= count < len(problems):
        raise UserError(f"cannot hold out {count} of {len(problems)} problems for the test: each side needs at least 1")
    chosen = set(random.Random(seed).sample(range(len(problems)), count))

    def wordings(problem: Problem) -> set[str]:
        seen = problem.image.digest if problem.image else ""  # the same words about another picture are another question
        return {seen + " ".join(text.split()).casefold() for text in (problem.question, problem.rephrased) if text}

    test = [problem for index, problem in enumerate(problems) if index in chosen]
    seen = set().union(*map(wordings, test))
    train = [p for index, p in enumerate(problems) if index not in chosen and not wordings(p) & seen]
    if not train:
        raise UserError("nothing is left to train on: every problem repeats a question held out for the test")
    return train, test


def train_and_test(source: str, most: int) -> tuple[list[Problem], list[Problem]]:
    """(to train on, held out); at most `most` are held out, and of a file at most a fifth: the same ones for every seed.

    The sums are all there is: they are trained and measured on the same 64. About a third of the products is held out. Of either
    `most` are taken evenly.
    """
    name = source.partition("@")[0]
    if name in ("sums", "products"):
        train, test = (sums(), sums()) if name == "sums" else (products("train"), products("test"))
        return train, [test[i * len(test) // most] for i in range(most)] if most < len(test) else test
    if f"{name}/train" in SOURCES or name.startswith("hub:"):
        return load_problems(source, "train"), load_problems(source, "test", most)
    problems = load_problems(source)
    return hold_out(problems, min(most, max(1, len(problems) // 5)))
