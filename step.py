"""One training step: the cohort writes, votes, is paid and learns; and how it is measured on problems held out.

    write -> label -> reward -> advantage -> one GRPO step for each agent

This order is every method's. What a method may add: both forms of each question (Co-rewarding-I), a teacher that votes in
the agent's place (Co-rewarding-II), a discussion of each solution (CoMAS), or more votes than rollouts that are trained on
(TTRL). `rewards.Method` says which of them it needs.
"""

import dataclasses
import time
from collections.abc import Sequence

from torch import Tensor

import runs
from answers import same_answer
from evaluate import evaluate
from grpo import Agent, Rollouts, group_advantages, group_statistics, sample_cohort, update
from judges import Judged, join, judge
from options import Options
from rewards import REWARDS, Ballots
from tasks import Problem
from teachers import alpha, follow


def train_step(
    agents: Sequence[Agent], problems: Sequence[Problem], step: int, o: Options, teachers: Sequence[Agent] = ()
) -> dict:
    """Sample, vote, reward, learn; returns the step's line of metrics."""
    start = time.perf_counter()
    method = REWARDS[o.method]
    problems = both_forms(problems) if method.needs_rephrased else problems
    truths = [p.answer for p in problems]
    voters = method.voters(o.k, o.votes)  # W, how many rollouts of a prompt vote for its label
    # Where a teacher votes, the agent writes only what it trains on.
    written = write(agents, problems, o.k if teachers else voters, runs.SAMPLING, step, o)
    teacher_wrote = write(teachers, problems, voters, runs.TEACHING, step, o)
    trained = [rollouts.first(o.k) for rollouts in written]  # N Rollouts of [P,K]
    judged = discuss(agents, trained, problems, step, o) if method.needs_chat else []
    sampled = time.perf_counter()
    own = [Ballots(rollouts.answers) for rollouts in written]
    ballots = [Ballots(rollouts.answers) for rollouts in teacher_wrote] or own
    line = {"step": step, "agreement": agreement_on_ring(own), "agents": {}}
    for n, agent in enumerate(agents):
        labels = method.labels(n, ballots, truths)
        rewards = method.rewards(n, judged or trained, truths, labels)  # [P,K]
        began = time.perf_counter()
        learned = learn(agent, trained[n], rewards, judged[n] if judged else None, o)
        learn_seconds = time.perf_counter() - began
        measured = describe(trained[n], rewards, labels, truths) | learned
        if judged:
            measured |= describe_judging(judged[n])
        measured["tokens"] = tokens([written[n], *teacher_wrote[n : n + 1]], judged[n : n + 1])
        # One pass may have written for several agents, so its time is shared out.
        measured |= {"sample_seconds": (sampled - start) / len(agents), "learn_seconds": learn_seconds}
        line["agents"][agent.name] = measured
    for teacher, agent in zip(teachers, agents, strict=False):  # most methods have no teachers
        follow(teacher, agent, alpha(step, o.steps))
    return line


def both_forms(problems: Sequence[Problem]) -> list[Problem]:
    """2P problems: the P original ones, then the same P in their rephrased form."""
    return [*problems, *(dataclasses.replace(p, question=p.rephrased) for p in problems)]


def write(
    agents: Sequence[Agent], problems: Sequence[Problem], k: int, purpose: int, step: int, o: Options
) -> list[Rollouts]:
    """k rollouts of every problem by every agent; `purpose` and `step` decide the numbers they are drawn with."""
    prompts = [[agent.prompt(p) for p in problems] for agent in agents]
    generators = [runs.generator(o.seed, purpose, step, n) for n in range(len(agents))]
    return sample_cohort(agents, prompts, k, o.max_new_tokens, o.temperature, generators)


def discuss(
    agents: Sequence[Agent], cohort: Sequence[Rollouts], problems: Sequence[Problem], step: int, o: Options
) -> list[Judged]:
    """CoMAS's evaluations and scores of what the cohort wrote (`judges.py`)."""
    generators = [runs.generator(o.seed, runs.JUDGING, step, n) for n in range(len(agents) + 1)]
    return judge(agents, cohort, problems, o.max_new_tokens, o.temperature, generators)


def learn(agent: Agent, rollouts: Rollouts, rewards: Tensor, judged: Judged | None, o: Options) -> dict[str, float]:
    """One GRPO step on the agent's rollouts [P,K], and on what it wrote as a judge."""
    advantages = group_advantages(rewards, o.scale)  # [P,K]
    if judged:
        rollouts, advantages = join(
            [
                (rollouts, advantages),
                (judged.evaluations, group_advantages(judged.evaluator_rewards, o.scale)),
                (judged.scorings, group_advantages(judged.scorer_rewards, o.scale)),
            ]
        )
    # Co-rewarding-I's loss is the sum over the two forms: twice the mean over its 2P groups, so advantages and beta are both
    # doubled. AdamW divides the factor 2 out again; it shows where the gradient is clipped and in the logged loss.
    forms = 2 if REWARDS[o.method].needs_rephrased else 1
    return update(
        agent,
        rollouts,
        forms * advantages,
        temperature=o.temperature,
        epochs=o.epochs,
        clip=o.clip,
        beta=forms * o.beta,
        average=o.average,
        max_new_tokens=o.max_new_tokens,
        micro_batch=o.micro_batch * (o.k if judged else 1),  # a group is one rollout here: K of them fill the same memory
        max_grad_norm=o.max_grad_norm,
    )


# ---------------------------------------------------------------- what a step looked like


def describe(
    rollouts: Rollouts, rewards: Tensor, labels: Sequence[str | None], truths: Sequence[str | None]
) -> dict:
    """One agent's metrics of a step. `labels` are what it was paid to agree with, None where there was none."""
    known = [
        (label, truth) for label, truth in zip(labels, truths, strict=True) if label is not None and truth is not None
    ]
    right = [[same_answer(a, t) for a in g] for g, t in zip(rollouts.answers, truths, strict=True) if t is not None]
    return group_statistics(rollouts, rewards) | {
        "labelled": sum(label is not None for label in labels) / len(labels),
        "accuracy": sum(sum(marks) for marks in right) / (len(right) * rewards.shape[1]) if right else None,
        "label_accuracy": sum(same_answer(label, truth) for label, truth in known) / len(known) if known else None,
    }


def describe_judging(judged: Judged) -> dict:
    """CoMAS: the share of this agent's solutions that got a score, and what it earned as a judge."""
    given = [score is not None for group in judged.scores for score in group]
    return {
        "scored": sum(given) / len(given),
        "evaluator_reward": judged.evaluator_rewards.mean().item(),
        "scorer_reward": judged.scorer_rewards.mean().item(),
    }


def tokens(written: Sequence[Rollouts], judged: Sequence[Judged]) -> int:
    """All that was generated for one agent, trained on or not: the budget by which methods are compared."""
    return sum(int(r.mask.sum()) for r in [*written, *(r for j in judged for r in (j.evaluations, j.scorings))])


def agreement_on_ring(ballots: Sequence[Ballots]) -> float | None:
    """Share of (agent, question) pairs in which agent and peer have the same majority answer; None without a peer.

    A question on which either has no majority counts as disagreement.
    """
    if len(ballots) < 2:
        return None
    ring = range(len(ballots))
    pairs = [same_answer(*pair) for n in ring for pair in zip(ballots[n].majorities, ballots[n - 1].majorities, strict=True)]
    return sum(pairs) / len(pairs)


def assess(agents: Sequence[Agent], test: Sequence[Problem], o: Options) -> dict:
    """Held-out accuracy of every agent: `probes` by topic, the probability p that the theory speaks of, and `eval` over all."""
    if not any(p.answer for p in test):
        return {}
    line = {"probes": {}, "eval": {}}
    for n, agent in enumerate(agents):
        found = evaluate(
            agent, test, o.eval_k, o.max_new_tokens, o.temperature, runs.generator(o.seed, runs.EVALUATION, n)
        )
        line["probes"][agent.name] = found.by_topic
        line["problems"] = found.problems
        line["eval"][agent.name] = {
            "pass1": found.pass1,
            "low": found.interval[0],
            "high": found.interval[1],
            "majk": found.majk,
            "length": found.length,
            "truncated": found.truncated,
        }
    return line
