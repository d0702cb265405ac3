"""Problems: where they come from, and how a question becomes the prompt that a model reads.

A source is a name ("sums", "gsm8k", "math500", "hub:NAME") or a local .jsonl / .json file with the usual field names.
Nothing is downloaded unless its name is asked for. How a question becomes a prompt is told in models.py.
"""

import hashlib
import http.client
import importlib
import json
import logging
import os
import random
import re
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import hf_hub_url


class UserError(Exception):
    """A mistake that the user can mend. Its text is one line that says what to do; commands exit with code 2."""


@dataclass(frozen=True)
class Problem:
    """One question. `answer` is the reference (None: unlabelled), `rephrased` the same question in other words."""

    question: str
    answer: str | None = None
    topic: str = ""
    rephrased: str | None = None


SOURCES = "sums, gsm8k, math500, hub:NAME, or a .jsonl / .json file"
# What may be downloaded: (source, split) -> address and SHA-256. MATH-500 is a test set and has no other part.
GSM8K = "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/"
MATH500 = hf_hub_url("HuggingFaceH4/MATH-500", "test.jsonl", repo_type="dataset")
MATH500_SHA256 = "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"
DOWNLOADS = {
    ("gsm8k", "train"): (GSM8K + "train.jsonl", "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"),
    ("gsm8k", "test"): (GSM8K + "test.jsonl", "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"),
    ("math500", "train"): (MATH500, MATH500_SHA256),
    ("math500", "test"): (MATH500, MATH500_SHA256),
}

# Field names met in public data sets; of several in one record the first that is filled counts.
QUESTION = ("question", "problem", "prompt", "original")
ANSWER = ("answer", "final_answer", "solution")
REPHRASED = ("rephrased", "rewritten")
TOPIC = ("topic", "subject", "level", "source")


# ---------------------------------------------------------------- One record of a file -> one Problem


def field(record: dict, names: tuple[str, ...]) -> tuple[str, str]:
    """The name and the text of the first filled field among `names`, or ("", ""). ValueError if it holds no text."""
    for name in names:
        value = record.get(name)
        if value is None or value == "":
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f'field "{name}" holds a {type(value).__name__}, not text or a number')
        text = str(value).strip()
        if text:
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError(f'field "{name}" holds half a surrogate pair, which is no Unicode text') from None
            return name, text
    return "", ""


def last_boxed(text: str) -> str | None:
    r"""What stands in the last non-empty \boxed{...} whose braces balance, or None."""
    found = None
    for match in re.finditer(r"\\boxed\s*\{", text):
        depth, start = 1, match.end()
        for brace in re.finditer(r"\\[{}]|[{}]", text[start:]):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)  # an escaped brace is a character of the answer
            if depth == 0:
                found = text[start : start + brace.start()].strip() or found
                break
    return found


def reference_answer(name: str, text: str) -> str | None:
    r"""The reference answer in a field: after GSM8K's last `####`, else in the last \boxed{}, else all of the text.

    A worked `solution` of several words that marks no answer has none: its prose is not an answer.
    """
    if "####" in text:
        answer = text.rpartition("####")[2].strip()
        if not answer:
            raise ValueError(f'field "{name}" has nothing after its ####')
        return answer
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    return None if name == "solution" and len(text.split()) > 1 else text or None


def to_problem(record) -> Problem:
    """A Problem from one record with the usual field names. ValueError, with the reason, if it is unusable."""
    if not isinstance(record, dict):
        raise ValueError(f"not a JSON object with named fields but a {type(record).__name__}")
    _, question = field(record, QUESTION)
    if not question:
        raise ValueError(f"no question: none of the fields {', '.join(QUESTION)} is filled")
    answer = reference_answer(*field(record, ANSWER))
    return Problem(question, answer, topic=field(record, TOPIC)[1], rephrased=field(record, REPHRASED)[1] or None)


# ---------------------------------------------------------------- Local files


def parse_json(text: str):
    """One JSON value. Decimal numbers stay the digits that were written, since answers are compared exactly."""

    def refuse(name: str):
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_float=str, parse_constant=refuse)


def read_text(path: Path) -> str:
    """The text of a file, or a UserError that says why there is none."""
    try:
        if path.is_dir():
            raise UserError(f"{path} is a folder: name one .jsonl or .json file in it")
        if not path.exists():
            raise UserError(f"there is no file {path}: the data can be {SOURCES}")
        if path.suffix not in (".jsonl", ".json"):
            raise UserError(f"{path} ends in neither .jsonl (one JSON object a line) nor .json (one list of objects)")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if not text.strip():
        raise UserError(f"{path} is empty")
    return text


def read_file(path: Path) -> list[Problem]:
    """All problems of a .jsonl or .json file. The first bad line stops it, named by file, line and reason."""
    text, where = read_text(path), "line"
    # Not splitlines(): that also cuts at U+2028 and others, which JSON allows inside a string.
    entries = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if path.suffix == ".json":
        where = "entry"
        try:
            whole = parse_json(text)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not JSON: {error}") from None
        if not isinstance(whole, list) or not whole:
            raise UserError(f"{path} is not a list of problems: expected [{{...}}, ...] with at least one entry")
        entries = list(enumerate(whole, start=1))
    problems = []
    for number, entry in entries:
        try:
            problems.append(to_problem(parse_json(entry) if where == "line" else entry))
        except (ValueError, RecursionError) as error:
            reason = f"not JSON: {error.msg}" if isinstance(error, json.JSONDecodeError) else error
            raise UserError(f"{path}, {where} {number}: {reason}") from None
    return problems


# ---------------------------------------------------------------- What a source means for its readers


def answer_style(source: str) -> str:
    """How answers to these problems are read unless --answer says otherwise: "number" or "boxed"."""
    return "number" if source in ("tiny", "sums", "gsm8k") else "boxed"


def need_rephrased(problems: Sequence[Problem], source: str, who: str) -> list[Problem]:
    """The problems that have a rephrased form. UserError if none has: `who` (an option, a method) reads it."""
    found = [problem for problem in problems if problem.rephrased]
    if not found:
        raise UserError(f"{who}: {source} holds no rephrased question; python -m lab.rephrase writes them")
    return found


# ---------------------------------------------------------------- Named sources


def sums() -> list[Problem]:
    """The 64 sums of two digits from 2 to 9, in two wordings: the smallest task for a real pretrained model."""
    return [
        Problem(
            question=f"What is {a} + {b}? Reply with only the number.",
            answer=str(a + b),
            topic=f"{a}+{b}",
            rephrased=f"Add {a} and {b}. Reply with only the number.",
        )
        for a in range(2, 10)
        for b in range(2, 10)
    ]


def cache_folder() -> Path:
    """Where downloads and warm starts are kept: $COHORT_CACHE, else the platform's cache folder."""
    if os.environ.get("COHORT_CACHE"):
        return Path(os.environ["COHORT_CACHE"]).expanduser()
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "cohort"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "cohort"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cohort"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all: under a temporary name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def download(url: str, sha256: str, path: Path) -> Path:
    """`path`, holding the content of `url`. A copy with the right SHA-256 is used; a wrong download is never kept."""
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
        return path
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            print(f"downloading {url}", file=sys.stderr)
            content = response.read()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(f"cannot download {url} ({reason}): get it elsewhere and put it at {path}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise UserError(f"{url} is not the expected file (SHA-256 {found[:12]}..., not {sha256[:12]}...): not kept")
    try:
        write_whole(path, content)
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror}): set COHORT_CACHE to a folder of yours") from None
    return path


def hub(name: str, split: str) -> list[Problem]:
    """One part of any hub data set, by OWNER/NAME or OWNER/NAME:CONFIG.

    A set that has no train and test part is divided here, one tenth for the test, always the same one.
    """
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise UserError(f"hub:{name} needs the datasets package: pip install datasets") from None
    repository, _, config = name.partition(":")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # not six lines about retries before our one
    try:
        splits = datasets.load_dataset(repository, config or None)
    except Exception as error:  # the package raises errors of half a dozen libraries
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"cannot load the hub data set {name}: {reason}") from None
    whole = {"train", "test"} <= set(splits)
    chosen = split if whole else "train" if "train" in splits else next(iter(splits))
    problems = []
    for number, row in enumerate(splits[chosen], start=1):
        try:
            problems.append(to_problem(row))
        except ValueError as error:
            raise UserError(f"hub:{name}, row {number} of {chosen}: {error}") from None
    return problems if whole else hold_out(problems, 0.1)[split == "test"]


def load_problems(source: str | Path, split: str = "train", limit: int | None = None) -> list[Problem]:
    """The first `limit` problems of a source (see SOURCES), in their own order.

    `split` ("train" or "test") matters for gsm8k and hub sets. The sums are the same list for both (every sum is
    practised and tested); math500 and files are one list for both too, of which `hold_out` makes two.
    Raises UserError, in one line, for everything that a user can mend.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is train or test, not {split!r}")
    if limit is not None and limit < 1:
        raise UserError(f"the number of problems must be at least 1, not {limit}")
    source = str(source)
    if source == "sums":
        problems = sums()
    elif (source, split) in DOWNLOADS:
        url, sha256 = DOWNLOADS[source, split]
        problems = read_file(download(url, sha256, cache_folder() / source / url.rpartition("/")[2]))
    elif source.startswith("hub:"):
        problems = hub(source.removeprefix("hub:"), split)
    else:
        problems = read_file(Path(source).expanduser())
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
        return {" ".join(text.split()).casefold() for text in (problem.question, problem.rephrased) if text}

    test = [problem for index, problem in enumerate(problems) if index in chosen]
    seen = set().union(*map(wordings, test))
    train = [p for index, p in enumerate(problems) if index not in chosen and not wordings(p) & seen]
    if not train:
        raise UserError("nothing is left to train on: every problem repeats a question held out for the test")
    return train, test


def train_and_test(source: str, most: int) -> tuple[list[Problem], list[Problem]]:
    """(to train on, held out); at most `most` are held out, and of a file at most a fifth: the same ones for every seed.

    The sums are all there is, so they are trained on and evaluated on: the paper's test-time setting.
    """
    if source == "gsm8k" or source.startswith("hub:"):
        return load_problems(source, "train"), load_problems(source, "test", most)
    problems = load_problems(source)
    if source == "sums":
        return problems, problems
    return hold_out(problems, min(most, max(1, len(problems) // 5)))


# ---------------------------------------------------------------- From a question to a prompt
