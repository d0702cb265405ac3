"""Votes, and the reward of every method: r_k^n, what rollout k of agent n earns on a prompt.

Most methods are a *label* function: they name one answer per prompt, and a rollout earns 1 where its answer equals that
label and 0 elsewhere (Co-RL, section "The Co-RL Framework": r = 1[a = label]). The others grade a rollout directly.
All functions share one signature, f(n, cohort, truths): n is the agent, cohort[n] what it wrote in this step, and truths
a list of P reference answers or None. To add a method, write one function and one entry of REWARDS.

A label function is given the ballots of every agent (`Ballots`: the answers that vote). A direct reward is given their
rollouts, of which it reads
    answers    P lists of K `str | None`; None where a completion has no answer, truncated ones included
    entropy    [P,K] mean entropy of the policy over the completion's tokens, in nats
    certainty  [P,K] mean KL(uniform || p) over the completion's tokens, in nats
    scores     P lists of K scores 1, 2, 3 or None, with CoMAS alone (`judges.py`)

Who votes and who is trained need not be the same rollouts: with `--votes V` the label comes from all V rollouts of a
prompt and the first K of them are trained on (TTRL's authors: V = 64, K = 32), and Co-rewarding-II lets a teacher vote.

Ours and not the papers': a tie gives no label, and a prompt without a label pays nobody (the papers do not say; with
the first-seen answer as label it would depend on the order of the rollouts). A label needs no least share beyond that.
"""

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from answers import canonical, same_answer


def majority(answers):
    """The unique most frequent answer, as its canonical key; None where there is a tie or nobody answered.

    answers: iterable of `str | None`. None and blank answers abstain, even where they are the largest bloc. Spellings
    of one value are counted together, so the result does not depend on the order of the answers.
    """
    votes = Counter(canonical(answer) for answer in answers)
    del votes[""]  # the key of None and of blanks; a Counter has no KeyError here
    top_two = votes.most_common(2)
    if not top_two or (len(top_two) == 2 and top_two[0][1] == top_two[1][1]):
        return None
    return top_two[0][0]


def agreement(answers, label):
    """1.0 for each answer that equals the label, 0.0 for the others; without a label (None) nobody agrees."""
    return [float(same_answer(answer, label)) for answer in answers]


def conversion(challenger_correct, drafter_correct):
    """Agon's reward of the challenger b who read the draft of a: 2 c(b) + c(b) (1 - c(a)), so 0, 2 or 3.

    Being right pays 2; being right where the draft was wrong pays 1 more.
    """
    c_b, c_a = float(challenger_correct), float(drafter_correct)
    return 2 * c_b + c_b * (1 - c_a)


def interaction(score):
    """CoMAS: what one discussion pays its (solver, evaluator, scorer). `score` is 1, 2, 3 or None: it cannot be read.

    With the score mapped to 0, 1/2, 1 the solver earns it and the evaluator, who looked for mistakes, the rest to 1.
    A score that cannot be read costs its scorer 1 and pays nobody (Xue et al. 2025, and the authors' code).
    """
    if score is None:
        return 0.0, 0.0, -1.0
    share = (score - 1) / 2
    return share, 1 - share, 0.0


@dataclass(frozen=True)
class Ballots:
    """The answers of one agent that vote: P lists of V `str | None`."""

    answers: list

    @functools.cached_property
    def votes(self):
        """The majority of each prompt (P items, None where there is none), counted once however many ask for it."""
        return [majority(group) for group in self.answers]


# --- Label functions: (n, ballots of all agents, truths) -> list of P labels (`str | None`). ---


def peer_vote(n, ballots, truths):
    """Co-RL: the majority answer of the peer, agent n-1 on the directed ring (agent 0 is graded by the last one)."""
    return ballots[n - 1].votes


def self_vote(n, ballots, truths):
    """TTRL: the majority answer of the agent's own rollouts. Co-rewarding-II: of its teacher's, whose ballots these are."""
    return ballots[n].votes


def other_form_vote(n, ballots, truths):
    """Co-rewarding-I: the majority on the other form of the question; 2P prompts, the P original ones first.

    Zhang et al. 2025, "Co-rewarding", Section 3. Their published settings: 8 rollouts of each form, KL weight 0.001,
    learning rate 3e-6.
    """
    votes = ballots[n].votes
    half = len(votes) // 2
    return votes[half:] + votes[:half]


def pooled_vote(n, ballots, truths):
    """The matched-budget ensemble: the majority answer over the rollouts of all agents, the agent's own included."""
    groups_of_prompt = zip(*(member.answers for member in ballots), strict=True)
    return [majority(answer for group in groups for answer in group) for groups in groups_of_prompt]


def ground_truth(n, ballots, truths):
    """GT-Reward, the supervised reference: the data's own answer."""
    return truths


# --- Direct rewards: (n, cohort, truths) -> P lists of K, or a tensor [P,K]. ---


def semantic_cluster(n, cohort, truths):
    """EMPO: the share of the group's K rollouts that give the same answer as this one; a missing answer earns 0."""
    return [[sum(agreement(group, answer)) / len(group) for answer in group] for group in cohort[n].answers]


def negative_entropy(n, cohort, truths):
    """RENT: minus the mean token entropy, so that a confident completion earns more."""
    return -cohort[n].entropy


def self_certainty(n, cohort, truths):
    """Intuitor: mean over the tokens of KL(uniform || p) = logsumexp(logits) - mean_V(logits) - log V.

    The last term is a constant, which the group's mean takes away.
    """
    return cohort[n].certainty


def judged_score(n, cohort, truths):
    """CoMAS, the solver's part: (s - 1) / 2 where another agent gave the solution the score s."""
    return [[interaction(score)[0] for score in group] for group in cohort[n].scores]


@dataclass(frozen=True)
class Method:
    """One way to reward, and what it needs. Exactly one of `label` and `direct` is given."""

    formula: str  # one line for --help and the README
    label: Callable | None = None
    direct: Callable | None = None
    needs_labels: bool = False  # a reference answer for every problem: without them every reward would be 0
    needs_rephrased: bool = False  # every problem in two forms; each agent reads both
    needs_chat: bool = False  # models that can evaluate and score a solution when they are asked to
    needs_teacher: bool = False  # a slow copy of each agent, which votes in its place (`teachers.py`)
    min_agents: int = 1

    @property
    def votes(self):
        """Whether the label is a vote, so that --votes means something."""
        return self.label is not None and not self.needs_labels

    @property
    def cost(self):
        """Texts that are written for each question and rollout: both forms; teacher and agent; solve, evaluate, score."""
        return 3 if self.needs_chat else 2 if self.needs_rephrased or self.needs_teacher else 1

    def labels(self, n, ballots, truths):
        """The label that agent n is trained towards, per prompt: P items, None where there is none."""
        return self.label(n, ballots, truths) if self.label else [None] * len(truths)

    def __call__(self, n, cohort, truths, labels=None):
        """Rewards [P,K] float32 of agent n's rollouts. Without `labels`, the rollouts themselves vote for them."""
        if self.direct:
            return torch.as_tensor(self.direct(n, cohort, truths), dtype=torch.float32)  # [P,K]
        if labels is None:
            labels = self.labels(n, [Ballots(member.answers) for member in cohort], truths)
        rewards = [agreement(group, label) for group, label in zip(cohort[n].answers, labels, strict=True)]
        return torch.tensor(rewards, dtype=torch.float32)  # [P,K]


REWARDS = {
    "corl": Method("1 if equal to the majority answer of agent n-1", label=peer_vote, min_agents=2),
    "ttrl": Method("1 if equal to the majority answer of the agent itself", label=self_vote),
    "gt": Method("1 if equal to the reference answer", label=ground_truth, needs_labels=True),
    "pooled": Method("1 if equal to the majority answer of all agents together", label=pooled_vote, min_agents=2),
    "corewarding1": Method(
        "1 if equal to the agent's majority answer to the other form of the question",
        label=other_form_vote,
        needs_rephrased=True,
    ),
    "corewarding2": Method(
        "1 if equal to the majority answer of the agent's teacher, an average of its past weights",
        label=self_vote,
        needs_teacher=True,
    ),
    "empo": Method("share of the group that gives the same answer", direct=semantic_cluster),
    "rent": Method("minus the mean token entropy", direct=negative_entropy),
    "intuitor": Method("mean KL(uniform || p) over the tokens", direct=self_certainty),
    "comas": Method(
        "(score - 1) / 2 by another agent's judgement", direct=judged_score, needs_chat=True, min_agents=2
    ),
}
