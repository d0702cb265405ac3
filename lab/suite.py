"""Several benchmarks in one table, each with its interval.

    python -m lab.suite MODEL --temperature 0.6 --top-p 0.95  # those of our seven that are at hand
    python -m lab.suite MODEL --only gsm8k aime24 own.jsonl   # some of them, or files
    python -m lab.suite MODEL --agon                          # those that Agon's paper names
    python -m lab.suite MODEL --only aime25 --fetch           # download what is absent first

The Co-RL paper measures seven benchmarks, which the summary that we worked from does not name: this list of seven is
ours. Answers are read as each benchmark's are (a number for gsm8k, else a box) unless --answer says otherwise. The mean is
shown only where no benchmark is absent. It weighs benchmarks alike, and its interval adds their binomial variances (normal
approximation).
"""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from lab import measure, runs
from lab.data import NAMES, UserError, answer_style, load_problems, place
from lab.evaluate import Report
from lab.options import command

SEVEN = ("gsm8k", "math500", "aime24", "aime25", "amc23", "minerva", "olympiad")
AGON = ("gsm8k", "math500", "deepmath-hard")  # and code contests, which are no mathematics


@dataclass(kw_only=True)
class Options(measure.Options):
    """Those of lab.evaluate, and what to measure on."""

    only: list[str] | None = None  # these benchmarks, by name, or .jsonl / .json files
    agon: bool = False  # the benchmarks that Agon's paper names, in place of the seven
    fetch: bool = False  # download those that are absent


RULES = [*measure.RULES, (lambda o: o.data or o.pool, "--data and --pool belong to lab.evaluate; name benchmarks with --only")]


def mean(reports: Sequence[Report]) -> tuple[float, float, float]:
    """(mean of pass@1, low, high) over benchmarks, each with its binomial variance; 0 of 30 has a variance too."""
    shares = [min(max(r.pass1, 0.5 / r.problems), 1 - 0.5 / r.problems) for r in reports]
    variance = sum(p * (1 - p) / r.problems for p, r in zip(shares, reports, strict=True)) / len(reports) ** 2
    middle, half = sum(r.pass1 for r in reports) / len(reports), 1.96 * variance**0.5
    return middle, max(0.0, middle - half), min(1.0, middle + half)


def suite(o: Options) -> int:
    """Measure all that are at hand and print the table. Returns the exit code."""
    names = o.only or (AGON if o.agon else SEVEN)
    absent = [name for name in names if name in NAMES and not o.fetch and not place(f"{name}/test").is_file()]
    present, them = [name for name in names if name not in absent], " ".join(absent)
    missing = f"absent: {them}; to download and measure: python -m lab.suite {' '.join(o.models)} --only {them} --fetch"
    if not present:
        raise UserError(missing)
    problems = {name: load_problems(name, "test", o.eval_problems) for name in present}  # before any time is spent on one
    for n, source in enumerate(o.models):
        agents, _, s = measure.load(source, n, dataclasses.replace(o, data=present[0]))
        for number, agent in agents:
            rows = []
            for name in present:
                agent.answer = o.answer or answer_style(name)
                kept = runs.fitting(problems[name], [agent], s.max_new_tokens)
                rows += [(name, found) for found in measure.measure(([(number, agent)], kept, s))]
            print(f"\n{source}, agent {agent.name}\n{measure.table(rows, 'benchmark')}")
            if not absent:
                print("mean of pass@1: {:.3f} ({:.3f}, {:.3f})".format(*mean([found for _, found in rows])))
    if absent:
        print(f"\nno mean: {missing}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""
    return command("lab.suite", arguments, __doc__, Options, RULES, suite, "nothing was written")


if __name__ == "__main__":
    sys.exit(main())
