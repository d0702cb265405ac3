"""How good an agent is, and how different two agents are.

How good: pass@1 with its interval, and maj@k. How different: the overlap of two agents' errors (Kuncheva & Whitaker 2003,
"Measures of Diversity in Classifier Ensembles"), which is what makes a peer worth listening to. `omega`, and the interval for
more than one sample of each problem, are our choices and are explained where they are made.

    python -m lab.evaluate CHECKPOINT --data D    # measures saved models: the command is in measure.py
"""

import math
import runpy
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.distributions import Binomial
from tqdm import tqdm

from grpo import Agent, sample
from lab.answers import canonical, same_answer
from lab.data import Problem, UserError

# ---------------------------------------------------------------- How sure one can be of a share


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a binomial share (Clopper & Pearson 1934); (0, 1) without any trial.

    At low, `successes` or more are as rare as (1 - level)/2; at high, `successes` or fewer are.
    Raises ValueError unless 0 <= successes <= trials, and for counts that are not whole.
    """
    if successes != int(successes) or trials != int(trials) or not 0 <= successes <= trials or not 0 < level < 1:
        raise ValueError(f"no interval for {successes} successes in {trials} trials at level {level}")
    rare = math.log((1 - level) / 2)

    def low(least: int) -> float:
        if least == 0:
            return 0.0
        counts = torch.arange(least, trials + 1, dtype=torch.float64)
        below, above = 0.0, 1.0
        for _ in range(60):  # the chance of `least` or more grows with p; each round halves the gap
            p = torch.tensor((below + above) / 2, dtype=torch.float64)
            log_chance = Binomial(trials, p, validate_args=False).log_prob(counts).logsumexp(0)
            below, above = (p.item(), above) if log_chance < rare else (below, p.item())
        return below

    return low(int(successes)), 1.0 - low(int(trials - successes))  # failures are successes with p turned round


def share_interval(right: Sequence[Sequence[bool]], level: float = 0.95) -> tuple[float, float]:
    """Interval of pass@1 from `right` [P][K]: Clopper-Pearson with P trials, however many samples K each problem has.

    K samples of one problem are not K independent trials: a problem is easy or hard for all of them. What was drawn
    independently is the P problems, each giving a share in [0, 1] whose mean is p, and of all such shares those that
    are always 0 or 1 vary most: Var <= p(1-p)/P, the binomial variance. So the interval takes P trials and the sum of
    the shares as successes, rounded down for the lower and up for the upper limit. For K = 1 this is the exact
    interval; for K > 1 it errs on the wide side, the more so the more the samples of a problem differ.

    It speaks of all problems of this kind. Where the P problems *are* all there is, and only the sampling is random
    (the 64 sums), `clopper_pearson(sum of right, P * K)` also holds, and is narrower (Hoeffding 1956: chances that
    differ from trial to trial vary less than their mean). Neither covers the chance in training: that takes seeds.
    """
    samples = sum(len(group) for group in right)
    total = sum(sum(group) for group in right)
    return mean_interval(total / samples, len(right), level)


def mean_interval(mean: float, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of `share_interval` from a mean share in [0, 1] of so many problems, over any number of samples."""
    successes = round(mean * trials, 9)  # so that 0.29 * 100 = 28.999999999999996 is 29
    return clopper_pearson(math.floor(successes), trials, level)[0], clopper_pearson(math.ceil(successes), trials, level)[1]


def maj_at_k(answers: Sequence[str | None], truth: str | None) -> float:
    """1 if the most frequent answer is right, 0 if not; one of several tied winners counts 1/(number tied).

    That is the expected score of breaking the tie by lot (in training a tie gives no label: `rewards.majority`). None and
    blank answers do not vote; without a vote it is 0.
    """
    votes = Counter(canonical(answer) for answer in answers if answer is not None and answer.strip())
    most = max(votes.values(), default=0)
    winners = [answer for answer, count in votes.items() if count == most]
    return 1 / len(winners) if truth is not None and canonical(truth) in winners else 0.0


# ---------------------------------------------------------------- One agent on a set of problems

AT_ONCE = 256  # completions in memory at a time


@dataclass(frozen=True)
class Report:
    """What `evaluate` found. Shares are in [0, 1], lengths in tokens."""

    problems: int  # P, those that have a reference answer
    k: int  # samples of each
    pass1: float  # mean share of right samples
    interval: tuple[float, float]  # of pass1, 95%, see share_interval
    majk: float  # mean of maj_at_k
    length: float  # mean length of a completion, its end token included
    truncated: float  # share of completions that did not end in time; they count as wrong
    by_topic: dict[str, float]  # pass1 of each topic, in the order in which topics appear
    answers: list[list[str | None]]  # [P][K], for `omega` and the pairs of `diversity.py`
    right: list[list[bool]]  # [P][K], for intervals of parts

    def record(self) -> dict:
        """What a line of metrics keeps of it."""
        low, high = self.interval
        return {"pass1": self.pass1, "low": low, "high": high, "majk": self.majk, "length": self.length,
                "truncated": self.truncated, "problems": self.problems}  # fmt: skip


def evaluate(agent: Agent, problems: Sequence[Problem], k: int, max_new_tokens: int, temperature: float = 1.0,
             generator: torch.Generator | None = None, rows: int = AT_ONCE, top_p: float = 1.0) -> Report:
    """K samples of every problem that has a reference answer, graded; about `rows` samples are in memory at a time.

    The sampled policy is the one that training moves, at its temperature; temperature 0 (greedy) and top_p below 1 are not.
    Raises UserError if no problem has a reference answer.
    """
    problems = [problem for problem in problems if problem.answer is not None]
    if not problems:
        raise UserError("no problem has a reference answer, so nothing can be graded: add a field answer to the data")
    answers, tokens, ended = [], 0, 0  # answers [P][K]
    chunk = max(1, rows // k)  # prompts
    for start in tqdm(range(0, len(problems), chunk), f"evaluating {agent.name}", leave=False, disable=None):
        prompts = [agent.prompt(problem) for problem in problems[start : start + chunk]]
        rollouts = sample(agent, prompts, k, max_new_tokens, temperature, generator, top_p)
        answers += rollouts.answers
        tokens += int(rollouts.mask.sum())
        ended += int(rollouts.finished.sum())
    return grade(problems, answers, tokens, ended)


def grade(problems: Sequence[Problem], answers: list[list[str | None]], tokens: int, ended: int) -> Report:
    """The report on `answers` [P][K]; the completions have `tokens` tokens in all, and `ended` of them ended."""
    right = [[same_answer(answer, problem.answer) for answer in group]
             for problem, group in zip(problems, answers, strict=True)]
    topics = defaultdict(list)
    for problem, marks in zip(problems, right, strict=True):
        topics[problem.topic] += marks
    samples = sum(map(len, right))
    majorities = [maj_at_k(group, problem.answer) for problem, group in zip(problems, answers, strict=True)]
    return Report(
        problems=len(problems),
        k=samples // len(problems),
        pass1=sum(map(sum, right)) / samples,
        interval=share_interval(right),
        majk=sum(majorities) / len(problems),
        length=tokens / samples,
        truncated=1 - ended / samples,
        by_topic={topic: sum(marks) / len(marks) for topic, marks in topics.items()},
        answers=answers,
        right=right,
    )


def pooled(reports: Sequence[Report], problems: Sequence[Problem]) -> Report:
    """The report on all agents' completions of the same problems, taken as those of one agent: its majk is the ensemble's."""
    answers = [[answer for group in groups for answer in group] for groups in zip(*(r.answers for r in reports), strict=True)]
    written = [r.problems * r.k for r in reports]
    tokens = round(sum(r.length * n for r, n in zip(reports, written, strict=True)))
    return grade(problems, answers, tokens, round(sum((1 - r.truncated) * n for r, n in zip(reports, written, strict=True))))


# ---------------------------------------------------------------- Two agents on the same problems


def count_cells(right_a: Sequence[bool], right_b: Sequence[bool]) -> tuple[int, int, int, int]:
    """(both, only A, only B, neither): how often who is right, from two agents' marks on the same questions in the same order."""
    cells = Counter((bool(x), bool(y)) for x, y in zip(right_a, right_b, strict=True))
    return cells[True, True], cells[True, False], cells[False, True], cells[False, False]


def measures(a: int, b: int, c: int, d: int) -> dict[str, float]:
    """How far two agents' errors overlap, from the four cells a = both right, b = only A, c = only B, d = neither.

    The Co-RL paper's c, which our summary of it does not define, may be `disagreement` or `rescue`. Where both agents are right
    half of the time, either goes from 23.5 to 31.0% as kappa falls from .53 to .38; the paper's c goes from 23.2 to 30.8%.
    A measure whose denominator is zero is 0: there was no error to rescue, or no association can be seen (an agent that is
    always right, or always wrong, tells nothing about the other).
    """

    def ratio(top: float, bottom: float) -> float:
        return top / bottom if bottom else 0.0

    excess = a * d - b * c
    return {
        "kappa": ratio(2 * excess, (a + b) * (b + d) + (a + c) * (c + d)),  # Cohen's: agreement of the marks beyond chance
        "Q": ratio(excess, a * d + b * c),  # Yule's: 1 = errors coincide, 0 = independent, -1 = they exclude each other
        "rho": ratio(excess, math.sqrt((a + b) * (c + d) * (a + c) * (b + d))),  # correlation of the marks
        "disagreement": ratio(b + c, a + b + c + d),
        "double_fault": ratio(d, a + b + c + d),
        "rescue": ratio(b + c, b + c + 2 * d),  # the chance that the peer is right where one is wrong
    }


Groups = Sequence[Sequence[str | None]]  # [P][K] answers: K of each of P questions


def omega(answers_a: Groups, answers_b: Groups, truths: Sequence[str]) -> float | None:
    """The chance that two wrong answers are the same: the omega of `dynamics.py`, where a wrong label harms only who shares it.

    answers_a, answers_b: [P][K] answers of two agents to the same P questions, truths [P] the right ones. Counted over all
    pairs of a wrong sample of A and a wrong sample of B of the same question; None if there is no such pair. A missing answer is
    wrong, and is the same as no other. The measure is ours.
    """
    alike = pairs = 0
    for group_a, group_b, truth in zip(answers_a, answers_b, truths, strict=True):
        wrong_a, wrong_b = ([canonical(x) for x in group if not same_answer(x, truth)] for group in (group_a, group_b))
        alike += sum(wrong_b.count(key) for key in wrong_a if key)  # the key of a missing answer is ""
        pairs += len(wrong_a) * len(wrong_b)
    return alike / pairs if pairs else None


if __name__ == "__main__":
    runpy.run_module("lab.measure", run_name="__main__", alter_sys=True)
