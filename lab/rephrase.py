"""Rewrites of questions, for the paper's data decoupling: two agents that read different words make different mistakes.

    python -m lab.rephrase DATA --model M --out FILE       # write a rewrite of each question with any causal language model
    python -m lab.rephrase DATA --check                    # no model: which rewrites that DATA already has keep the numbers
    python cohort.py --models A B --data FILE --rephrase B # then: agent B reads the rewrites

A rewrite must ask for the same answer. Each is checked twice before it counts (the paper checked 300 pairs and does not say how,
so both checks are ours):
  numbers   The same numbers stand in both forms, each as often. This is cheap and strict: "triple" for 3x is refused.
  answer    The majority answer of M's own --votes samples is the same on both forms. A model that seldom solves the
            problem seldom agrees with itself, so a weak M refuses much.

FILE has one JSON object a line, in the order of DATA, which any --data reads: question, answer, topic, and rephrased, or,
where a check failed, rejected and reason instead (then every agent reads the question as it is). After an interruption the
same command goes on where FILE ends: problem i draws from (seed, i) alone, and a batch that was begun is sampled again as a
whole, so the lines are those of an unbroken run.
"""

import itertools
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tqdm import tqdm

from grpo import Agent, Rollouts, sample_cohort
from lab import models, runs, setup
from lab.answers import canonical, same_answer
from lab.data import Problem, UserError, answer_style, load_problems
from lab.extract import NUMBER
from lab.models import chat, fits
from lab.options import Above, Count, Sampling, command
from rewards import majority

INSTRUCTION = ("Rewrite this problem in other words. Keep every number and what is asked, so that its answer stays the same. "
               "Do not solve it. Reply with the rewritten problem only.\n\n")  # fmt: skip
SETTINGS = "model dtype answer system stop votes temperature max_new_tokens batch seed".split()  # kept in FILE's first line
TOO_LONG = "too long: the prompt does not fit the model's context"


@dataclass(kw_only=True)
class Options(Sampling):
    """All there is to set."""

    data: str = field()  # a source of lab/data.py: sums, gsm8k, hub:NAME, a .jsonl / .json file, ...
    model: str | None = None  # a causal language model, hub name or folder; it writes the rewrites and solves both forms
    out: str | None = None  # the .jsonl file to write, or to go on with
    check: bool = False  # only count which rewrites of DATA keep the numbers, and show the others
    limit: Count | None = None  # only the first problems; a later, larger limit goes on in the same file
    votes: Count = 5  # samples of each form whose majorities must be equal
    temperature: Above = 0.7
    max_new_tokens: Count = 512  # longest rewrite, and longest solution
    batch: Count = 8  # problems that are sampled together

    def __post_init__(self):
        self.answer = self.answer or answer_style(self.data)


RULES = [
    (lambda o: not o.check and not (o.model and o.out),
     "give --model, which writes, and --out, the file to write (or --check, which needs neither)"),
    (lambda o: not o.check and (Path(o.out).suffix != ".jsonl" or not Path(o.out).parent.is_dir()),
     "--out {out}: name a .jsonl file in a folder that is there"),
]  # fmt: skip


# ---------------------------------------------------------------- the checks: a reason, or "" where nothing is wrong


def numbers(text: str) -> Counter:
    """How often each number stands in a text, by its canonical value: 1/2 and 0.5 are one number, x2 holds none."""
    return Counter(canonical(number) for number in NUMBER.findall(text))


def numbers_fault(question: str, rewrite: str) -> str:
    """Which numbers a rewrite lost and which it brought in."""
    before, after = numbers(question), numbers(rewrite)
    changes = {"lost": before - after, "new": after - before}
    told = [f"{word} {' '.join(found.elements())}" for word, found in changes.items() if found]
    return f"numbers: {', '.join(told)}" if told else ""


def text_fault(question: str, rewrite: str, finished: bool) -> str:
    """What is wrong with the text of a rewrite by itself."""
    if not finished:
        return "unfinished: the rewrite did not end within --max-new-tokens"
    if not rewrite:
        return "empty: nothing was written"
    if rewrite.split() == question.split():
        return "unchanged: the question itself"
    return numbers_fault(question, rewrite)


def answer_fault(on_question: Sequence[str | None], on_rewrite: Sequence[str | None]) -> str:
    """Whether the majority answers to both forms differ. Where one form has none (a tie, no answers), nothing is shown."""
    before, after = majority(on_question), majority(on_rewrite)
    if same_answer(before, after):
        return ""
    return f"answer: {before or 'no majority'} on the question, {after or 'no majority'} on the rewrite"


# ---------------------------------------------------------------- writing and checking one batch


def write(agent: Agent, prompts: dict[int, str], k: int, what: int, o: Options) -> dict[int, Rollouts]:
    """K completions of each prompt, in one pass. Problem i draws from (seed, i, what), whoever shares its batch."""
    generators = [runs.generator(o.seed, runs.REPHRASING, i, what) for i in prompts]
    asked = [[text] for text in prompts.values()]
    found = sample_cohort([agent] * len(asked), asked, k, o.max_new_tokens, o.temperature, generators)
    return dict(zip(prompts, found, strict=True))


def rewrite(agent: Agent, problems: dict[int, Problem], o: Options) -> list[dict]:
    """The records of one batch; `problems` by their number in DATA."""
    texts, reasons, forms = {}, dict.fromkeys(problems, TOO_LONG), {}
    asked = {i: chat(INSTRUCTION + p.question, agent.tokenizer) for i, p in problems.items()}
    short = {i: prompt for i, prompt in asked.items() if fits(agent, prompt, o.max_new_tokens)}
    for i, found in write(agent, short, 1, 0, o).items():
        texts[i] = re.split(r"</think(?:ing)?>", found.texts[0][0])[-1].strip()
        pair = agent.prompt(problems[i]), agent.prompt(Problem(texts[i]))
        if fault := text_fault(problems[i].question, texts[i], bool(found.finished[0, 0])):
            reasons[i] = fault
        elif all(fits(agent, prompt, o.max_new_tokens) for prompt in pair):
            forms[i] = pair
    before, after = (write(agent, {i: pair[f] for i, pair in forms.items()}, o.votes, 1 + f, o) for f in (0, 1))
    reasons |= {i: answer_fault(before[i].answers[0], after[i].answers[0]) for i in forms}
    return [record(p, texts.get(i, ""), reasons[i]) for i, p in problems.items()]


def record(problem: Problem, text: str, reason: str) -> dict:
    """One line of FILE."""
    known = {key: value for key, value in asdict(problem).items() if value and key != "rephrased"}
    return known | ({"rejected": text, "reason": reason} if reason else {"rephrased": text})


# ---------------------------------------------------------------- the file


def already_written(path: Path, made: dict, problems: Sequence[Problem]) -> int:
    """How many lines of FILE are there and kept; a half-written last line is cut off.

    UserError, and FILE is left as it is, unless it was made from these problems with these settings.
    """
    text = path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
    *lines, rest = text.split("\n")
    begin = json.dumps({"made": made})[:-1]
    if not lines and not begin.startswith(rest[: len(begin)]):
        raise UserError(f"{path} was not written by this command: choose another --out")
    for number, (line, problem) in enumerate(itertools.zip_longest(lines, problems[: len(lines)]), start=1):
        try:
            old = json.loads(line)
            other = [f"{name.replace('_', '-')} ({old['made'][name]!s:.40}, now {value!s:.40})"
                     for name, value in made.items() if number == 1 and old["made"][name] != value]  # fmt: skip
            key = old["question"], old.get("answer")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path}, line {number}, was not written by this command: choose another --out") from None
        if other:
            raise UserError(f"{path} was made with another --{other[0]}: choose another --out, or the same options")
        if problem and key != (problem.question, problem.answer):
            raise UserError(f"{path}, line {number}, is another problem than DATA's: choose another --out")
    if rest:
        os.truncate(path, path.stat().st_size - len(path.read_bytes().rpartition(b"\n")[2]))
    return len(lines)


def summary(path: Path) -> str:
    """How many rewrites FILE holds, and how many failed which check."""
    records = runs.read_lines(path)
    failed = Counter(r["reason"].partition(":")[0] for r in records if "reason" in r)
    told = " ({})".format(", ".join(f"{name} {count}" for name, count in failed.most_common())) if failed else ""
    return f"{path}: {len(records)} problems, {len(records) - failed.total()} rephrased, {failed.total()} failed{told}"


# ---------------------------------------------------------------- the command


def check_numbers(problems: Sequence[Problem]) -> None:
    """Print the rewrites that lost or gained a number, and the share of those that did not."""
    told = {n: numbers_fault(p.question, p.rephrased) for n, p in enumerate(problems, start=1) if p.rephrased}
    if not told:
        raise UserError("no problem of DATA has a rephrased form to check: --model and --out write some")
    print("".join(f"problem {n}, {reason}\n" for n, reason in told.items() if reason), end="")
    kept = sum(not reason for reason in told.values())
    print(f"{kept} of {len(told)} rewrites keep the numbers ({kept / len(told):.1%})")


def rephrase(o: Options, problems: Sequence[Problem]) -> None:
    """Write what is missing in FILE, a line at a time."""
    made = {name: getattr(o, name) for name in SETTINGS} | {"instruction": INSTRUCTION}
    done = already_written(Path(o.out), made, problems)
    if done < len(problems):
        (agent,) = setup.make_agents(o, [models.load_model(o.model, models.pick_device(o.device), o.dtype)], [None])
        for first in tqdm(range(done - done % o.batch, len(problems), o.batch), "rephrasing", unit="batch", dynamic_ncols=True):
            batch = dict(enumerate(problems[first : first + o.batch], start=first))
            for i, line in zip(batch, rewrite(agent, batch, o), strict=True):
                if i >= done:
                    runs.append_line(Path(o.out), {"made": made} | line if i == 0 else line)
    print(summary(Path(o.out)))


def act(o: Options) -> int:
    """Check what DATA has, or write what is missing in FILE."""
    problems = load_problems(o.data, limit=o.limit)
    check_numbers(problems) if o.check else rephrase(o, problems)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""
    lower = "--batch, --votes or --max-new-tokens"
    return command("lab.rephrase", arguments, __doc__, Options, RULES, act, "the same command goes on from here", lower)


if __name__ == "__main__":
    sys.exit(main())
