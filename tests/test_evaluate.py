"""Intervals, votes and error overlap by hand-computable numbers; `evaluate` with an agent whose answers stand here."""

import itertools
import math
import random
from types import SimpleNamespace

import pytest
import torch

from lab import evaluate
from lab.data import Problem, UserError
from lab.evaluate import clopper_pearson, count_cells, maj_at_k, measures, omega, share_interval


def upper_tail(successes, trials, p):
    """P(X >= successes), X ~ Bin(trials, p), from exact binomial coefficients."""
    return sum(math.comb(trials, i) * p**i * (1 - p) ** (trials - i) for i in range(successes, trials + 1))


# ---------------------------------------------------------------- intervals


@pytest.mark.parametrize("successes, trials, low, high", [
    (183, 300, 0.5523, 0.6655), (90, 300, 0.2487, 0.3553), (0, 300, 0.0, 0.0122), (300, 300, 0.9878, 1.0),
    (0, 1, 0.0, 0.975), (1, 1, 0.025, 1.0), (0, 0, 0.0, 1.0), (1, 2, 0.0126, 0.9874),
])
def test_clopper_pearson_reference_values(successes, trials, low, high):
    """Guards: a normal approximation, a one-sided level, or a failure at 0, all, or no trials."""
    assert clopper_pearson(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_clopper_pearson_solves_its_equations():
    """Guards: limits that are off by one success, in a sum of exact terms that shares no code with ours."""
    for successes, trials, level in [(3, 10, 0.95), (7, 64, 0.9), (60, 64, 0.99)]:
        low, high = clopper_pearson(successes, trials, level)
        assert upper_tail(successes, trials, low) == pytest.approx((1 - level) / 2, rel=1e-9)
        assert 1 - upper_tail(successes + 1, trials, high) == pytest.approx((1 - level) / 2, rel=1e-9)


def test_clopper_pearson_of_many_trials():
    """Guards: overflow or underflow of the binomial terms; the normal approximation is close there."""
    margin = 1.96 * math.sqrt(0.25 / 20_000)
    assert clopper_pearson(10_000, 20_000) == pytest.approx((0.5 - margin, 0.5 + margin), abs=1e-4)


@pytest.mark.parametrize("successes, trials, level", [(-1, 3, 0.95), (4, 3, 0.95), (1.5, 3, 0.95), (1, 3, 95)])
def test_clopper_pearson_refuses_nonsense(successes, trials, level):
    """Guards: an interval made of a share instead of a count, or of a level in per cent."""
    with pytest.raises(ValueError):
        clopper_pearson(successes, trials, level)


def test_share_interval_counts_problems_not_samples():
    """Guards: K equal samples of each problem narrowing the interval although they say nothing new."""
    once = [[True]] * 6 + [[False]] * 4
    assert share_interval(once) == clopper_pearson(6, 10)
    assert share_interval([group * 16 for group in once]) == clopper_pearson(6, 10)
    halves = [[True, False]] * 5  # 2.5 of 5: from the lower limit of 2 to the upper limit of 3
    assert share_interval(halves) == (clopper_pearson(2, 5)[0], clopper_pearson(3, 5)[1])


@pytest.mark.slow
def test_share_interval_covers_the_accuracy_over_all_problems():
    """Guards: an interval that misses the truth more often than 5 %, for hard-or-easy and for middling problems."""
    draw, hits, runs = random.Random(0), {0.3: 0, 3.0: 0}, 200
    seen = {}  # the interval of a sum, of 80 samples of 20 problems
    for spread, _ in itertools.product(hits, range(runs)):
        chances = [draw.betavariate(spread * 0.7, spread * 0.3) for _ in range(20)]  # their mean is 0.7
        right = [[draw.random() < p for _ in range(4)] for p in chances]
        total = sum(map(sum, right))
        low, high = seen[total] = seen.get(total) or share_interval(right)
        hits[spread] += low <= 0.7 <= high
    assert min(hits.values()) / runs >= 0.95


# ---------------------------------------------------------------- several samples of one problem


@pytest.mark.parametrize("answers, truth, score", [
    (["5", "5", "7"], "5", 1.0),
    (["5", "7", "7"], "5", 0.0),
    (["5", "5", "7", "7"], "5", 0.5),
    (["5", "7", "8"], "5", 1 / 3),
    (["5", None, None, None, "", " "], "5", 1.0),
    (["1/2", "0.5", "7", "7"], r"\frac{1}{2}", 0.5),
    ([None, None], "5", 0.0),
    (["5"], None, 0.0),
    ([], "5", 0.0),
])
def test_maj_at_k(answers, truth, score):
    """Guards: None winning the vote, equal answers written differently splitting it, a tie settled by order."""
    assert maj_at_k(answers, truth) == pytest.approx(score)


# ---------------------------------------------------------------- evaluate


def fake(monkeypatch, completions):
    """An agent that answers a question by `completions[question]`: (answer, length, whether it ended), one a sample."""
    calls = []

    def sample(agent, prompts, k, max_new_tokens, temperature, generator, top_p):
        calls.append((list(prompts), k, max_new_tokens, temperature, generator, top_p))
        groups = [completions[prompt.removeprefix("Q: ")] for prompt in prompts]
        mask = torch.zeros(len(prompts), k, max_new_tokens)
        for i, group in enumerate(groups):
            for j, (_, length, _) in enumerate(group):
                mask[i, j, :length] = 1
        return SimpleNamespace(answers=[[a for a, _, _ in group] for group in groups], mask=mask,
                               finished=torch.tensor([[ended for _, _, ended in group] for group in groups]))

    monkeypatch.setattr(evaluate, "sample", sample)
    return SimpleNamespace(name="A", prompt=lambda problem: f"Q: {problem.question}"), calls


PROBLEMS = [Problem("a", "1", "easy"), Problem("unlabelled"), Problem("b", "2", "hard"), Problem("c", "3", "hard")]
COMPLETIONS = {"a": [("1", 2, True), ("1.0", 4, True)], "b": [("2", 3, True), ("7", 3, True)],
               "c": [(None, 8, False), ("4", 4, True)]}


@pytest.mark.parametrize("rows", [1, 4, 256])
def test_evaluate(rows, monkeypatch):
    """Guards: unlabelled problems counted as wrong, samples mixed between chunks or topics, lengths of padding."""
    agent, calls = fake(monkeypatch, COMPLETIONS)
    generator = torch.Generator()
    report = evaluate.evaluate(agent, PROBLEMS, 2, 8, temperature=0.6, generator=generator, rows=rows, top_p=0.9)
    assert [len(call[0]) for call in calls] == {1: [1, 1, 1], 4: [2, 1], 256: [3]}[rows]
    assert all(call[1:] == (2, 8, 0.6, generator, 0.9) for call in calls)
    assert (report.problems, report.k) == (3, 2)
    assert report.right == [[True, True], [True, False], [False, False]]
    assert report.answers == [["1", "1.0"], ["2", "7"], [None, "4"]]
    assert report.pass1 == pytest.approx(3 / 6)
    assert report.interval == (clopper_pearson(1, 3)[0], clopper_pearson(2, 3)[1])
    assert report.majk == pytest.approx((1 + 0.5 + 0) / 3)
    assert report.length == pytest.approx(24 / 6)
    assert report.truncated == pytest.approx(1 / 6)
    assert report.by_topic == {"easy": 1.0, "hard": 0.25}


def test_evaluate_needs_a_reference(monkeypatch):
    """Guards: a division by zero where no problem has an answer."""
    agent, _ = fake(monkeypatch, {})
    with pytest.raises(UserError, match="no problem has a reference answer"):
        evaluate.evaluate(agent, [Problem("a")], 2, 8)


# ---------------------------------------------------------------- error overlap


def test_cells_and_their_measures_by_hand():
    """Guards: cells b and c exchanged, rates over the wrong total, kappa with the wrong chance agreement."""
    a = [1] * 4 + [1] * 3 + [0] * 1 + [0] * 2
    b = [1] * 4 + [0] * 3 + [1] * 1 + [0] * 2
    assert count_cells(a, b) == (4, 3, 1, 2)
    found = measures(4, 3, 1, 2)
    chance = 0.7 * 0.5 + 0.3 * 0.5  # Cohen's own form: (observed - chance)/(1 - chance)
    assert found == pytest.approx({
        "Q": (8 - 3) / (8 + 3), "rho": 5 / math.sqrt(7 * 3 * 5 * 5), "disagreement": 0.4, "double_fault": 0.2,
        "kappa": (0.6 - chance) / (1 - chance), "rescue": 4 / 8,  # of 8 errors, 4 meet a peer that is right
    })


@pytest.mark.parametrize("cells, Q, rho, kappa, rescue", [
    ((5, 0, 0, 0), 0, 0, 0, 0),  # nobody errs
    ((0, 0, 0, 5), 0, 0, 0, 0),  # nobody is ever right
    ((3, 2, 0, 0), 0, 0, 0, 1),  # A is always right: of no association with anything
    ((0, 2, 0, 3), 0, 0, 0, 0.25),
    ((3, 0, 0, 2), 1, 1, 1, 0),  # the same errors
    ((0, 3, 2, 0), -1, -1, -12 / 13, 1),  # never the same verdict
])
def test_measures_at_the_edges(cells, Q, rho, kappa, rescue):
    """Guards: NaN or a crash where an agent is always right or always wrong."""
    found = measures(*cells)
    assert [found[name] for name in ("Q", "rho", "kappa", "rescue")] == pytest.approx([Q, rho, kappa, rescue])


def test_cells_need_the_same_questions():
    """Guards: marks of unequal length cut to the shorter list in silence."""
    with pytest.raises(ValueError):
        count_cells([True], [True, False])


def test_omega_by_hand():
    """Guards: sample j held beside sample j only, right answers that both give or two missing ones counted as one mistake,
    spellings told apart. Question 1: A is wrong by 75 and 715, B by 75: 2 pairs, 1 alike. Question 2 (truth 15): nobody of
    either is right: 3 x 3 pairs, of which A's 20 meets B's 20.0 and A's second 20 does; no None meets another. Question 3: A is
    never wrong."""
    a = [["85", "75", "715"], [None, "20", "20"], ["5", "5", "5.0"]]
    b = [["75.0", "85", "85"], ["20.0", None, "1/2"], ["4", "4", "5"]]
    assert omega(a, b, ["85", "15", "5"]) == pytest.approx((1 + 2 + 0) / (2 * 1 + 3 * 3 + 0 * 2))
    assert omega(b, a, ["85", "15", "5"]) == omega(a, b, ["85", "15", "5"])
    assert omega([["85"]], [["85"]], ["85"]) is None
    assert omega([[None]], [[None]], ["85"]) == 0
    assert omega([["1/2", "7"]], [["0.5"]], ["1"]) == 0.5  # as many samples as each has
    with pytest.raises(ValueError):
        omega(a, b, ["85", "15"])
