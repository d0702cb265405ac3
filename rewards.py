"""Votes, and the reward of every method: r_k^n, what rollout k of agent n earns on a prompt.

Most methods are a *label* function: they name one answer per prompt, and a rollout earns 1 where its answer equals that
label and 0 elsewhere (Co-RL, section "The Co-RL Framework": r = 1[a = label]). The others grade a rollout directly.
Every function sees the rollouts of the whole cohort in this step, so all of them share one signature
f(n, cohort, truths): n is the agent, cohort[n] holds its rollouts, and truths is a list of P reference answers or None.
To add a method, write one function and one entry of REWARDS.

Of a cohort's member only three attributes are read:
    answers    P lists of K `str | None`; None where a completion has no answer, truncated ones included
    entropy    [P,K] mean entropy of the policy over the completion's tokens, in nats
    certainty  [P,K] mean KL(uniform || p) over the completion's tokens, in nats

Ours and not the papers': a tie gives no label, and a prompt without a label pays nobody (the papers do not say; with
the first-seen answer as label it would depend on the order of the rollouts). A label needs no least share beyond that.
"""

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


# --- Label functions: (n, cohort, truths) -> list of P labels (`str | None`). ---


def peer_vote(n, cohort, truths):
    """Co-RL: the majority answer of the peer, agent n-1 on the directed ring (agent 0 is graded by the last one)."""
    return [majority(group) for group in cohort[n - 1].answers]


def self_vote(n, cohort, truths):
    """TTRL: the majority answer of the agent's own rollouts."""
    return [majority(group) for group in cohort[n].answers]


def pooled_vote(n, cohort, truths):
    """The matched-budget ensemble: the majority answer over the rollouts of all agents, the agent's own included."""
    groups_of_prompt = zip(*(rollouts.answers for rollouts in cohort), strict=True)
    return [majority(answer for group in groups for answer in group) for groups in groups_of_prompt]


def ground_truth(n, cohort, truths):
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


@dataclass(frozen=True)
class Method:
    """One way to reward. Exactly one of `label` and `direct` is given; the rest is for the reader and the command."""

    formula: str  # one line for --help and the README
    label: Callable | None = None
    direct: Callable | None = None
    needs_labels: bool = False  # without reference answers every reward would be 0
    min_agents: int = 1

    def labels(self, n, cohort, truths):
        """The label that agent n is trained towards, per prompt: P items, None where there is none."""
        return self.label(n, cohort, truths) if self.label else [None] * len(cohort[n].answers)

    def __call__(self, n, cohort, truths):
        """Rewards [P,K] float32 of agent n's rollouts."""
        if self.direct:
            return torch.as_tensor(self.direct(n, cohort, truths), dtype=torch.float32)  # [P,K]
        labels = self.labels(n, cohort, truths)
        rewards = [agreement(group, label) for group, label in zip(cohort[n].answers, labels, strict=True)]
        return torch.tensor(rewards, dtype=torch.float32)  # [P,K]


REWARDS = {
    "corl": Method("1 if equal to the majority answer of agent n-1", label=peer_vote, min_agents=2),
    "ttrl": Method("1 if equal to the majority answer of the agent itself", label=self_vote),
    "gt": Method("1 if equal to the reference answer", label=ground_truth, needs_labels=True),
    "pooled": Method("1 if equal to the majority answer of all agents together", label=pooled_vote, min_agents=2),
    "empo": Method("share of the group that gives the same answer", direct=semantic_cluster),
    "rent": Method("minus the mean token entropy", direct=negative_entropy),
    "intuitor": Method("mean KL(uniform || p) over the tokens", direct=self_certainty),
}


def pseudo_labels(name, n, cohort, truths):
    """The labels that method `name` trains agent n towards (P items, `str | None`), to log how often they are right."""
    return REWARDS[name].labels(n, cohort, truths)
