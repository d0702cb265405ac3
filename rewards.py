"""Votes, and the reward of every method: r_k^n, what rollout k of agent n earns on a question.

Most methods are a *label* function. It names one answer for each question, and a rollout earns 1 if its answer equals that label,
else 0 (Co-RL, section "The Co-RL Framework": r = 1[a = label]). The others grade a rollout directly:

    label functions    f(n, ballots, truths)   -> P labels, `str | None`
    direct rewards     f(n, rollouts, truths)  -> [P,K]

    n               the agent that is paid
    ballots[m]      the answers of agent m that vote: P lists of W `str | None`; W is K, unless --votes asks for more
    rollouts[m]     what agent m wrote (`grpo.Rollouts`): `answers`, P lists of K; `entropy` and `certainty` [P,K], in nats
    truths          P reference answers, None where a question has none

An answer is None where a completion has none, and where it was cut off. To add a method, write one function and one entry of
REWARDS; it draws nothing at random, or a resumed run would differ. Shapes: P questions, K rollouts of each (a *group*). A
rollout is a completion with its answer.

Where this departs from the papers: a tie gives no label, and a question without a label pays nobody. The papers do not say
what a tie does; taking the answer that came first would make the label depend on the order of the rollouts.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from lab.answers import canonical, same_answer


def majority(answers):
    """The unique most frequent answer, as its canonical key; None where there is a tie or nobody answered.

    answers: iterable of `str | None`. None and blank answers abstain, even where they are the largest bloc. Spellings
    of one value are counted together, so the result does not depend on the order of the answers.
    """
    votes = Counter(canonical(answer) for answer in answers)
    del votes[""]  # the key of None and of blanks; a Counter lets a missing key be deleted
    top_two = votes.most_common(2)
    if not top_two or (len(top_two) == 2 and top_two[0][1] == top_two[1][1]):
        return None
    return top_two[0][0]


def agreement(answers, label):
    """1.0 for each answer that equals the label, 0.0 for the others; without a label (None) nobody agrees."""
    return [float(same_answer(answer, label)) for answer in answers]


def majorities(groups):
    """The majority of each group: P lists of answers -> P labels, None where there is none."""
    return [majority(group) for group in groups]


# --- Label functions: (n, ballots of all agents, truths) -> P labels (`str | None`). ---


def peer_vote(n, ballots, truths):
    """Co-RL: the majority answer of the peer, agent n-1 on the directed ring (the last agent is the peer of agent 0)."""
    return majorities(ballots[n - 1])


def self_vote(n, ballots, truths):
    """TTRL: the majority answer of the agent's own rollouts."""
    return majorities(ballots[n])


def other_form_vote(n, ballots, truths):
    """Co-rewarding-I: the majority on the other form of the question; 2P questions, the P original ones first.

    Zhang et al. 2025, "Co-rewarding", Section 3. Their published settings: 8 rollouts of each form, KL weight 0.001,
    learning rate 3e-6.
    """
    labels = majorities(ballots[n])
    half = len(labels) // 2
    return labels[half:] + labels[:half]


def pooled_vote(n, ballots, truths):
    """The majority answer over the rollouts of all agents, the agent's own included.

    As a reward this is ours; the paper pools rollouts only to evaluate (its ensemble at a matched budget).
    """
    return majorities(sum(groups, []) for groups in zip(*ballots, strict=True))


def ground_truth(n, ballots, truths):
    """GT-Reward, the supervised reference: the data's own answer."""
    return truths


# --- Direct rewards: (n, rollouts of all agents, truths) -> P lists of K, or a tensor [P,K]. ---


def semantic_cluster(n, rollouts, truths):
    """EMPO: the share of the group's K rollouts that give the same answer as this one; a missing answer earns 0."""
    return [[sum(agreement(group, answer)) / len(group) for answer in group] for group in rollouts[n].answers]


def negative_entropy(n, rollouts, truths):
    """RENT: minus the mean token entropy, so that a confident completion earns more."""
    return -rollouts[n].entropy


def self_certainty(n, rollouts, truths):
    """Intuitor: mean over the tokens of KL(uniform || p) = logsumexp(logits) - mean(logits) - log V; V words.

    log V is left out: it is a constant, which the group's mean would take away.
    """
    return rollouts[n].certainty


def judged_score(n, rollouts, truths):
    """CoMAS, the solver's part: (s - 1) / 2 for a solution with the score s = 1, 2, 3, and 0 if its score cannot be read.

    The scores (only this method's rollouts have them) come from judges, who are paid too, and
    of whom the solver may be one: see `lab/methods.py`.
    """
    return [[(score - 1) / 2 if score else 0.0 for score in group] for group in rollouts[n].scores]


# --- The table of methods. ---


@dataclass(frozen=True)
class Method:
    """One way to reward, and what it needs. Exactly one of `label` and `direct` is given."""

    formula: str  # one line for --help and the README
    label: Callable | None = None
    direct: Callable | None = None
    needs_labels: bool = False  # a reference answer for every problem: without them every reward would be 0
    min_agents: int = 1
    adds: str = "nothing"  # what the method does in a step beside rewarding: an entry of lab.methods.HOOKS
    theory: str | None = None  # the key of dynamics.FIELDS that forecasts it; None: no forecast is printed

    @property
    def by_vote(self):
        """Whether the label is a vote, so that --votes means something."""
        return self.label is not None and not self.needs_labels

    def labels(self, n, ballots, truths):
        """The label that agent n is trained towards on each question: P items, None where there is none."""
        return self.label(n, ballots, truths) if self.label else [None] * len(truths)

    def rewards(self, n, rollouts, truths, labels):
        """Rewards [P,K] float32 of agent n's rollouts; `labels` are those of `self.labels`."""
        if self.direct:
            return torch.as_tensor(self.direct(n, rollouts, truths), dtype=torch.float32)  # [P,K]
        marks = [agreement(group, label) for group, label in zip(rollouts[n].answers, labels, strict=True)]
        return torch.tensor(marks, dtype=torch.float32)  # [P,K]


REWARDS = {
    "corl": Method("1 if equal to the majority answer of agent n-1", label=peer_vote, min_agents=2, theory="corl"),
    "ttrl": Method("1 if equal to the majority answer of the agent itself", label=self_vote, theory="ttrl"),
    "gt": Method("1 if equal to the reference answer", label=ground_truth, needs_labels=True, theory="gt"),
    "pooled": Method(
        "1 if equal to the majority answer of all agents together", label=pooled_vote, min_agents=2, theory="pooled"
    ),
    "corewarding1": Method(
        "1 if equal to the agent's majority answer to the other form of the question",
        label=other_form_vote,
        adds="both forms",
    ),
    "corewarding2": Method(
        "1 if equal to the majority answer of the agent's teacher, an average of its past weights",
        label=self_vote,
        adds="a teacher",
    ),
    "empo": Method("share of the group that gives the same answer", direct=semantic_cluster),
    "rent": Method("minus the mean token entropy", direct=negative_entropy),
    "intuitor": Method("mean KL(uniform || p) over the tokens", direct=self_certainty),
    "comas": Method(
        "(s - 1) / 2: one agent looks for mistakes in the solution, another scores it s = 1, 2 or 3",
        direct=judged_score,
        min_agents=2,
        adds="judges",
    ),
}
