"""Votes and rewards, each against numbers worked out by hand."""

import itertools

import pytest
import torch

from lab.answers import extract_answer, same_answer
from lab.methods import Judged, hooks_of, interaction
from rewards import REWARDS, Method, agreement, majority

HALF = ["1/2", r"\frac12", "0.5"]


def cohort_of(*answers, entropy=None, certainty=None, scores=None):
    """Agents whose rollouts gave these answers, one P x K nested list each; a reward may read all that rollouts have."""
    cohort = []
    for given in answers:
        p, k = len(given), len(given[0])
        lengths = 1 + torch.arange(p * k).view(p, k) % 5  # [P,K]
        mask = (torch.arange(5) < lengths[..., None]).long()  # [P,K,5]
        finished = torch.tensor([[answer is not None for answer in group] for group in given])
        cohort.append(Judged(
            prompt_ids=torch.ones(p, 3, dtype=torch.long), prompt_mask=torch.ones(p, 3, dtype=torch.long),
            completion_ids=mask * 7, mask=mask, logprobs=-0.5 * mask, finished=finished,
            entropy=torch.full((p, k), 0.5) if entropy is None else entropy,
            certainty=torch.full((p, k), 0.5) if certainty is None else certainty,
            texts=[[f"so {answer}" for answer in group] for group in given], answers=given, scores=scores,
        ))  # fmt: skip
    return cohort


def labels_of(name, cohort, truths):
    """The labels of every agent, where each agent's own rollouts vote."""
    ballots = [member.answers for member in cohort]
    return [REWARDS[name].labels(n, ballots, truths) for n in range(len(cohort))]


def paid(name, n, cohort, truths):
    """The rewards of agent n, where each agent's own rollouts vote."""
    return REWARDS[name].rewards(n, cohort, truths, labels_of(name, cohort, truths)[n])


@pytest.mark.parametrize(
    ("answers", "winner", "rewards"),
    [
        ([None, None, None], None, [0, 0, 0]),  # no answers, no label, and nobody agrees with None
        ([None, "", " ", "7", "7.0"], "7", [0, 0, 0, 1, 1]),  # blanks are the largest bloc
        (["3", "5", "3", "5"], None, [0, 0, 0, 0]),  # a tie
        (["1", "2", "3"], None, [0, 0, 0]),
        (["3", "5", "3", "5", "5"], "5", [0, 1, 0, 1, 1]),
        ([HALF[0], "3", HALF[1], "3", HALF[2]], "1/2", [1, 0, 1, 0, 1]),  # spellings vote together
        (["9", None, None], "9", [1, 0, 0]),
        ([r"\foo{", r"\foo{", "1"], r"\foo{", [1, 1, 0]),  # unreadable answers are a class too
        (["1,2", "2,1", "12"], r"\{1,2\}", [1, 1, 0]),
        ([], None, []),
    ],
)
def test_majority_in_every_order(answers, winner, rewards):
    """Guards against first-seen tie-breaking, blocs of missing answers, and votes split by spelling."""
    for order in itertools.permutations(range(len(answers))):
        shuffled = [answers[k] for k in order]
        label = majority(shuffled)
        assert label is None if winner is None else same_answer(label, winner)
        assert agreement(shuffled, label) == [rewards[k] for k in order]


def test_from_completions():
    """Truncated, unboxed and thinking completions abstain, also when there are more of them than of any answer."""
    texts = ["no idea", r"<think>\boxed{4}", r"\boxed{4", r"\boxed{}", r"so \boxed{7}", r"\boxed{7.0}"]
    answers = [extract_answer(text) for text in texts]
    assert answers == [None, None, None, None, "7", "7.0"]
    assert majority(answers) == "7" and agreement(answers, "7") == [0, 0, 0, 0, 1, 1]


def test_peer_self_and_pooled_labels():
    """Agent n is graded by n-1 (agent 0 by the last); by itself; by all. Two prompts, so that P and K cannot swap."""
    cohort = cohort_of(
        [["1", "1", "2"], ["5", "5", None]],
        [["2", "2", "1"], ["6", "7", "8"]],
        [["1", "3", "3"], ["5", "6", "6"]],
    )
    truths = ["2", "5"]
    expected = {  # method: the labels of agents 0, 1, 2
        "corl": [["3", "6"], ["1", "5"], ["2", None]],
        "ttrl": [["1", "5"], ["2", None], ["3", "6"]],
        "pooled": [["1", None]] * 3,  # 1: 4 votes, 2: 3, 3: 2; then 5: 3 votes, 6: 3
        "gt": [["2", "5"]] * 3,
    }
    for name, labels in expected.items():
        assert labels_of(name, cohort, truths) == labels, name
    assert paid("corl", 0, cohort, truths).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert paid("corl", 1, cohort, truths).tolist() == [[0, 0, 1], [0, 0, 0]]
    assert paid("corl", 2, cohort, truths).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert paid("ttrl", 0, cohort, truths).tolist() == [[1, 1, 0], [1, 1, 0]]
    assert paid("pooled", 2, cohort, truths).tolist() == [[1, 0, 0], [0, 0, 0]]
    assert paid("gt", 2, cohort, truths).tolist() == [[0, 0, 0], [1, 0, 0]]


def test_two_agents_teach_each_other():
    """With two agents each is the other's peer; an agent's own vote must not enter."""
    cohort = cohort_of([["A", "A", "B"]], [["B", "B", "A"]])
    assert paid("corl", 0, cohort, [None]).tolist() == [[0, 0, 1]]
    assert paid("corl", 1, cohort, [None]).tolist() == [[0, 0, 1]]


def test_each_form_is_labelled_by_the_other():
    """Co-rewarding-I: a form that is graded by its own votes is TTRL; here the two forms of question 1 disagree."""
    forms = [["7", "7", "8"], ["1", "2", "2"], ["8", "8", "7"], ["2", None, "2"]]  # questions 1 and 2, then rephrased
    cohort = cohort_of(forms)
    assert labels_of("corewarding1", cohort, [None] * 4) == [["8", "2", "7", "2"]]
    rewards = paid("corewarding1", 0, cohort, [None] * 4)
    assert rewards.tolist() == [[0, 0, 1], [0, 1, 1], [0, 0, 1], [1, 0, 1]]


def test_who_votes_need_not_be_who_is_trained():
    """W = 5 votes, K = 3 trained on; or a teacher's votes: the label is theirs, the rewards the agent's own."""
    voters = [[["1", "1", "2", "2", "2"]]]
    cohort = cohort_of([["1", "1", "2"]])  # the first three of the five, whose own majority is 1
    for name in ("ttrl", "corewarding2"):
        labels = REWARDS[name].labels(0, voters, [None])
        assert labels == ["2"] and REWARDS[name].rewards(0, cohort, [None], labels).tolist() == [[0, 0, 1]]


def test_what_a_discussion_pays():
    """CoMAS: solver (s-1)/2, evaluator what is left to 1, and an unreadable score costs its scorer 1 and pays nobody."""
    assert [interaction(s) for s in (1, 2, 3, None)] == [(0, 1, 0), (0.5, 0.5, 0), (1, 0, 0), (0, 0, -1)]
    cohort = cohort_of([["a", "b", "c", "d"]], scores=[[1, 2, 3, None]])
    assert paid("comas", 0, cohort, [None]).tolist() == [[0, 0.5, 1, 0]]


def test_empo_share():
    """2 of 5 agree -> .4; spellings agree; a missing answer earns nothing but counts in the group's size."""
    cohort = cohort_of([["0.5", r"\frac12", "3", None, None], [None] * 5])
    rewards = paid("empo", 0, cohort, [None, None])
    assert torch.allclose(rewards, torch.tensor([[0.4, 0.4, 0.2, 0, 0], [0.0] * 5]))


def test_confidence_rewards():
    """RENT pays low entropy, Intuitor high certainty; neither looks at the answers."""
    entropy, certainty = torch.tensor([[0.5, 2.0]]), torch.tensor([[3.0, 1.0]])
    cohort = cohort_of([[None, "1"]], entropy=entropy, certainty=certainty)
    assert torch.equal(paid("rent", 0, cohort, [None]), -entropy)
    assert torch.equal(paid("intuitor", 0, cohort, [None]), certainty)


@pytest.mark.parametrize("name", REWARDS)
def test_every_method(name):
    """One signature for all: [P,K] float32, unequal per-agent answers allowed, and a permutation only permutes."""
    torch.manual_seed(0)
    rollouts = [["1", "2", "2", None], ["3", None, None, "3"], [None] * 4, ["1", "1", "2", None]]
    shape = (4, 4)
    scores = [[1, 2, 3, None], [3, 3, 1, 2], [None] * 4, [2] * 4]
    cohort = cohort_of(rollouts, rollouts[::-1], entropy=torch.rand(shape), certainty=torch.rand(shape), scores=scores)
    truths = ["2", None, "4", "1"]
    method = REWARDS[name]
    rewards = paid(name, 1, cohort, truths)
    assert rewards.shape == shape and rewards.dtype == torch.float32 and rewards.isfinite().all()
    assert isinstance(method, Method) and method.formula and (method.label is None) != (method.direct is None)
    assert [len(labels) for labels in labels_of(name, cohort, truths)] == [4, 4]

    order = [2, 0, 3, 1]
    for member in cohort:
        for field in ("answers", "texts", "scores"):
            setattr(member, field, [[group[k] for k in order] for group in getattr(member, field)])
        for field in ("completion_ids", "mask", "logprobs", "entropy", "certainty", "finished"):
            setattr(member, field, getattr(member, field)[:, order])
    assert torch.equal(paid(name, 1, cohort, truths), rewards[:, order])


def test_no_label_no_reward():
    """A missing reference answer, an all-None peer or a tie pays nobody, not everybody."""
    cohort = cohort_of([["1", None]], [[None, None]])
    assert paid("gt", 0, cohort, [None]).sum() == 0
    assert paid("corl", 0, cohort, [None]).sum() == 0
    assert paid("corl", 1, cohort, [None]).sum() == 0  # agent 0 says 1, but nobody of agent 1 answers
    assert labels_of("rent", cohort, [None]) == [[None], [None]]


def test_what_methods_need():
    """The command refuses a method by these fields, and forecasts one by its theory. A reward of your own needs no row here."""
    ours = "corl ttrl gt pooled corewarding1 corewarding2 empo rent intuitor comas".split()
    assert {name for name in ours if REWARDS[name].needs_labels} == {"gt"}
    assert {name for name in ours if hooks_of(name).needs_rephrased} == {"corewarding1"}
    assert {name for name in ours if hooks_of(name).needs_teacher} == {"corewarding2"}
    assert {name for name in ours if hooks_of(name).needs_chat} == {"comas"}
    assert {name for name in ours if REWARDS[name].min_agents > 1} == {"corl", "pooled", "comas"}
    assert {name for name in ours if REWARDS[name].by_vote} == {"corl", "ttrl", "pooled", "corewarding1", "corewarding2"}
    assert [name for name in ours if REWARDS[name].theory == name] == [n for n in ours if REWARDS[n].theory] == ours[:4]


def test_completions_of_a_question_by_hand():
    """K = 8, W = 32: a vote takes W, in both forms 2 W; a teacher writes W and its agent K, judges 3 K."""
    special = {"corewarding1": 64, "corewarding2": 40, "comas": 24}
    assert {name: hooks_of(name).completions(8, 32) for name in REWARDS} == dict.fromkeys(REWARDS, 32) | special
