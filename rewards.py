"""Votes, and the reward of every method: r_k^n, what rollout k of agent n earns on a prompt.

Most methods are a *label* function: they name one answer per prompt, and a rollout earns 1 where its answer equals that
label and 0 elsewhere (Co-RL, section "The Co-RL Framework": r = 1[a = label]). The others grade a rollout directly.
    label functions    f(n, ballots, truths) -> P labels, `str | None`
    direct rewards     f(n, graded, truths) -> [P,K]
n is the agent that is paid, and truths holds a reference answer for each prompt, or None where it has none. ballots[m] are
the answers of agent m that vote (`Ballots`). To add a method, write one function and one entry of REWARDS.

graded[m] is what agent m is paid for in this step (`rollout.Rollouts`), of which a direct reward reads
    answers    P lists of K `str | None`; None where a completion has no answer, truncated ones included
    entropy    [P,K] mean entropy of the policy over the completion's tokens, in nats
    certainty  [P,K] mean over the completion's tokens of KL(uniform || p) up to the constant log V, in nats
With CoMAS graded[m] is what became of it (`judges.Judged`), of which its reward reads
    scores     P lists of K scores 1, 2, 3 or None

Shapes, here and in the files that follow: P prompts, K rollouts of each that are trained on, W that vote, V tokens in the
vocabulary. W is K unless said otherwise: with `--votes W` the label comes from all W rollouts of a prompt and the first K of
them are trained on (TTRL's authors: W = 64, K = 32), and Co-rewarding-II lets a teacher vote.

Ours and not the papers': a tie gives no label, and a prompt without a label pays nobody (the papers do not say; with
the first-seen answer as label it would depend on the order of the rollouts). Any most frequent answer will do,
however small its share of the votes.
"""

import functools
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
    del votes[""]  # the key of None and of blanks; a Counter has no KeyError here
    top_two = votes.most_common(2)
    if not top_two or (len(top_two) == 2 and top_two[0][1] == top_two[1][1]):
        return None
    return top_two[0][0]


def agreement(answers, label):
    """1.0 for each answer that equals the label, 0.0 for the others; without a label (None) nobody agrees."""
    return [float(same_answer(answer, label)) for answer in answers]


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
    """The answers of one agent that vote: P lists of W `str | None`."""

    answers: list

    @functools.cached_property
    def majorities(self):
        """The majority of each prompt (P items, None where there is none), counted once however many ask for it."""
        return [majority(group) for group in self.answers]


# --- Label functions: (n, ballots of all agents, truths) -> list of P labels (`str | None`). ---


def peer_vote(n, ballots, truths):
    """Co-RL: the majority answer of the peer, agent n-1 on the directed ring (agent 0 is graded by the last one)."""
    return ballots[n - 1].majorities


def self_vote(n, ballots, truths):
    """TTRL: the majority answer of the agent's own rollouts. Co-rewarding-II: of its teacher's, whose ballots these are."""
    return ballots[n].majorities


def other_form_vote(n, ballots, truths):
    """Co-rewarding-I: the majority on the other form of the question; 2P prompts, the P original ones first.

    Zhang et al. 2025, "Co-rewarding", Section 3. Their published settings: 8 rollouts of each form, KL weight 0.001,
    learning rate 3e-6.
    """
    majorities = ballots[n].majorities
    half = len(majorities) // 2
    return majorities[half:] + majorities[:half]


def pooled_vote(n, ballots, truths):
    """The majority answer over the rollouts of all agents, the agent's own included.

    As a reward, ours; the paper pools rollouts only to evaluate (its ensemble at a matched budget).
    """
    groups_of_prompt = zip(*(member.answers for member in ballots), strict=True)
    return [majority(answer for group in groups for answer in group) for groups in groups_of_prompt]


def ground_truth(n, ballots, truths):
    """GT-Reward, the supervised reference: the data's own answer."""
    return truths


# --- Direct rewards: (n, graded, truths) -> P lists of K, or a tensor [P,K]. ---


def semantic_cluster(n, graded, truths):
    """EMPO: the share of the group's K rollouts that give the same answer as this one; a missing answer earns 0."""
    return [[sum(agreement(group, answer)) / len(group) for answer in group] for group in graded[n].answers]


def negative_entropy(n, graded, truths):
    """RENT: minus the mean token entropy, so that a confident completion earns more."""
    return -graded[n].entropy


def self_certainty(n, graded, truths):
    """Intuitor: mean over the tokens of KL(uniform || p) = logsumexp(logits) - mean(logits) - log V, mean over V.

    The last term is left out: it is a constant, which the group's mean would take away.
    """
    return graded[n].certainty


def judged_score(n, graded, truths):
    """CoMAS, the solver's part: (s - 1) / 2 where the solution was given the score s, 0 where that cannot be read."""
    return [[interaction(score)[0] for score in group] for group in graded[n].scores]


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
    theory: str | None = None  # the key of dynamics.FIELDS that forecasts it; None: no forecast is printed

    @property
    def by_vote(self):
        """Whether the label is a vote, so that --votes means something."""
        return self.label is not None and not self.needs_labels

    def voters(self, k, votes=None):
        """How many rollouts of a prompt vote for its label: `votes` (--votes) where it is given and means something, else k."""
        return votes if votes and self.by_vote else k

    def texts(self, k, votes=None):
        """How many texts each agent writes for one question, k of which are trained on: the budget of --compare."""
        if self.needs_chat:
            return 3 * k  # solutions, evaluations, scores
        if self.needs_teacher:
            return k + self.voters(k, votes)
        return self.voters(k, votes) * (2 if self.needs_rephrased else 1)  # both forms of the question

    def labels(self, n, ballots, truths):
        """The label that agent n is trained towards, per prompt: P items, None where there is none."""
        return self.label(n, ballots, truths) if self.label else [None] * len(truths)

    def rewards(self, n, graded, truths, labels):
        """Rewards [P,K] float32 of agent n's rollouts; `labels` are those of `self.labels`."""
        if self.direct:
            return torch.as_tensor(self.direct(n, graded, truths), dtype=torch.float32)  # [P,K]
        marks = [agreement(group, label) for group, label in zip(graded[n].answers, labels, strict=True)]
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
        "(s - 1) / 2: one agent looks for mistakes in the solution, another scores it s = 1, 2 or 3",
        direct=judged_score,
        needs_chat=True,
        min_agents=2,
    ),
}
