"""One step of Agon and of its controls, and how the trained pair is used: read this file beside the paper.

The drafter answers each problem N times and learns from plain correctness. The challenger reads the summary of each draft
(`drafts.py` withholds the answer), solves the problem once for each, and learns from what `Recipe.pays` gives. Vanilla GRPO
and self-refinement are the same step with another reader, or none (Beliaev, "Agon", Sections 4.3, 4.4 and 5.4).

Shapes: P problems, N drafts of each, and N solutions, one for each draft. The challenger's N prompts are all different, and
still one group: what is compared is how one problem was solved against N drafts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import drafts
import rivals
import runs
from answers import same_answer
from evaluate import Report, evaluate, grade
from grpo import group_advantages, update
from rollout import Agent, Rollouts, sample
from tasks import Problem

# ---------------------------------------------------------------- what the challenger is paid; all tensors [P,N]


def correctness(c_b: Tensor, c_a: Tensor) -> Tensor:
    """The cooperative exchange: the challenger is paid for being right, whatever the draft was."""
    return c_b


def conversion(c_b: Tensor, c_a: Tensor) -> Tensor:
    """Agon: 2 c(b) + c(b) (1 - c(a)), so 0 for wrong, 2 for right, 3 for right where the draft was wrong (Section 4.4)."""
    return 2 * c_b + c_b * (1 - c_a)


def margin(c_b: Tensor, c_a: Tensor) -> Tensor:
    """The plain margin c(b) - c(a): its second term is nothing that the challenger can change, so noise in its advantage."""
    return c_b - c_a


def shorter_first(rewards: Tensor, c_b: Tensor, lengths: Tensor, most: float) -> Tensor:
    """The paper's "density lever" (Section 5.6): up to `most` more for the correct challengers of a group, by shortness.

    The shortest correct one gets all of it, the longest correct one nothing. `most` below 1 never turns the order of
    the conversion round. How the paper scales it its summary does not say; linear in the length is ours.
    """
    right = c_b.bool()
    longest = lengths.masked_fill(~right, -torch.inf).amax(-1, keepdim=True)  # [P,1]
    shortest = lengths.masked_fill(~right, torch.inf).amin(-1, keepdim=True)
    saved = (longest - lengths) / (longest - shortest).clamp(min=1)
    return rewards + most * torch.where(right, saved, 0.0)


@dataclass(frozen=True)
class Recipe:
    """How a method trains: who reads the drafts, and what that is paid."""

    says: str  # one line for --help and the table
    reader: str | None  # "rival", "itself", or None: no drafts are read, all 2N rollouts are plain
    pays: Callable[[Tensor, Tensor], Tensor] = correctness
    paired: bool = True  # a draft of its own for each solution of a group; else the group shares one


RECIPES = {
    "grpo": Recipe("vanilla GRPO: one adapter, 2N plain rollouts", None),
    "self-refine": Recipe("one adapter drafts, reads its own drafts and refines", "itself"),
    "shared": Recipe("Agon, but a whole group reads one draft", "rival", conversion, paired=False),
    "cooperative": Recipe("exchange of drafts; the reader is paid for being right", "rival"),
    "margin": Recipe("exchange of drafts; the reader is paid c(b) - c(a)", "rival", margin),
    "agon": Recipe("exchange of drafts; the reader is paid 2 c(b) + c(b) (1 - c(a))", "rival", conversion),
}


# ---------------------------------------------------------------- who writes what


def challenge(agent: Agent, problem: Problem, draft: str, answer: str | None, tiny: bool) -> str:
    """The challenger's prompt: the problem and the summary of one draft, its final answer withheld."""
    if tiny:
        return rivals.reading(problem.question, drafts.withhold(draft, answer, rivals.MARK))
    opened = agent.prompt(problem).rstrip().endswith("<think>")  # some templates open the reasoning themselves
    summary = drafts.summary("<think>" * opened + draft)
    return agent.wrap(drafts.challenge(problem.question, drafts.withhold(summary, answer)))


def challenges(agent: Agent, problems: Sequence[Problem], written: Rollouts, paired: bool, tiny: bool) -> list[str]:
    """P*N prompts, group after group: one for each draft, or N times the group's first draft."""
    prompts = []
    for problem, texts, answers in zip(problems, written.texts, written.answers, strict=True):
        group = [challenge(agent, problem, *draft, tiny) for draft in zip(texts, answers, strict=True)]
        prompts += group if paired else group[:1] * len(group)
    return prompts


def right(rollouts: Rollouts, problems: Sequence[Problem]) -> Tensor:
    """c: 1 where a rollout gives the reference answer, [P,N]; the rollouts lie problem after problem, however grouped."""
    flat = [answer for group in rollouts.answers for answer in group]
    n = len(flat) // len(problems)
    return torch.tensor([[float(same_answer(a, p.answer)) for a in flat[i * n : i * n + n]] for i, p in enumerate(problems)])


def readable(rollouts: Rollouts, like: Tensor) -> Tensor:
    """1 where a rollout has an answer at all, in the shape of `like` [P,N]."""
    return torch.tensor([float(a is not None) for group in rollouts.answers for a in group]).view_as(like)


# ---------------------------------------------------------------- one step


def learn(agent: Agent, rollouts: Rollouts, rewards: Tensor, c: Tensor, role: str, began: float, o) -> dict:
    """One GRPO step on groups [P,N] of `rewards`, and the figures of this half step.

    The challenger's rollouts are P*N prompts with one completion each. A group's advantages are taken over its N
    *different* prompts; the loss weighs every rollout alike, so it is told nothing of groups.
    """
    sampled = time.perf_counter()
    advantages = group_advantages(rewards).view(rollouts.mask.shape[:2])  # [P,N], or [P*N,1]
    per_group = len(rollouts.mask) // len(rewards)  # prompts of one group: 1 for a drafter, N for a challenger
    learned = update(
        agent, rollouts, advantages, temperature=o.temperature, max_grad_norm=o.max_grad_norm,
        micro_batch=o.micro_batch * per_group,
    )  # fmt: skip
    lengths = rollouts.mask.sum(-1).float()
    return learned | {
        "role": role,
        "reward_mean": rewards.mean().item(),
        "reward_std": rewards.std(-1, correction=0).mean().item(),
        "signal": rewards.ne(rewards[:, :1]).any(-1).float().mean().item(),
        "accuracy": c.mean().item(),
        "length": lengths.mean().item(),
        "truncated": 1 - rollouts.finished.float().mean().item(),
        "entropy": rollouts.entropy.mean().item(),
        "tokens": int(lengths.sum()),
        "rollouts": c.numel(),
        "sample_seconds": sampled - began,
        "learn_seconds": time.perf_counter() - sampled,
    }


def train_step(agents: Sequence[Agent], problems: Sequence[Problem], step: int, o) -> dict:
    """Draft, learn, challenge, learn: 2N rollouts of each problem. Returns the step's line of metrics."""
    recipe, tiny = RECIPES[o.method], o.data == "tiny"
    turn = step % 2 if recipe.reader == "rival" else 0
    drafter, challenger = agents[turn], agents[1 - turn] if recipe.reader == "rival" else agents[0]
    rng = [runs.generator(o.seed, runs.SAMPLING, step, role) for role in (0, 1)]

    began = time.perf_counter()
    n = o.n if recipe.reader else 2 * o.n
    written = sample(drafter, [drafter.prompt(p) for p in problems], n, o.max_new_tokens, o.temperature, rng[0])
    c_a = right(written, problems)  # [P,N]
    figures = [learn(drafter, written, c_a + o.format * readable(written, c_a), c_a, "drafter", began, o)]
    if recipe.reader:
        began = time.perf_counter()
        prompts = challenges(challenger, problems, written, recipe.paired, tiny)
        solved = sample(challenger, prompts, 1, o.max_new_tokens, o.temperature, rng[1])
        c_b = right(solved, problems)  # [P,N]
        read = c_a if recipe.paired else c_a[:, :1].expand_as(c_a)  # the draft that each solution has read
        rewards = recipe.pays(c_b, read) + o.format * readable(solved, c_b)
        if o.tiebreak:
            rewards = shorter_first(rewards, c_b, solved.mask.sum(-1).view_as(c_b).float(), o.tiebreak)
        figures.append(learn(challenger, solved, rewards, c_b, "challenger", began, o))
        figures[1]["converted"] = (c_b * (1 - read)).mean().item()  # right where the draft was wrong
    writers = (drafter, challenger)[: len(figures)]
    return {"step": step, "halves": {f"{f['role']} {a.name}": f for f, a in zip(figures, writers, strict=True)}}


# ---------------------------------------------------------------- inference


def cascade(drafter: Agent, reader: Agent, problems: Sequence[Problem], k: int, o, generator) -> tuple[Report, list]:
    """One drafts, the other reads the summary and answers, k times each problem. The report on the answers, and the exchanges."""
    answers, tokens, ended, seen = [], 0, 0, []
    chunk = max(1, 256 // k)  # problems in memory at a time
    for start in range(0, len(problems), chunk):
        part = problems[start : start + chunk]
        written = sample(drafter, [drafter.prompt(p) for p in part], k, o.max_new_tokens, o.temperature, generator)
        prompts = challenges(reader, part, written, True, o.data == "tiny")
        solved = sample(reader, prompts, 1, o.max_new_tokens, o.temperature, generator)
        answers += [[solved.answers[i * k + j][0] for j in range(k)] for i in range(len(part))]
        tokens, ended = tokens + int(solved.mask.sum()), ended + int(solved.finished.sum())
        seen += [(p, written.texts[i][0], prompts[i * k], solved.texts[i * k][0]) for i, p in enumerate(part)]
    return grade(problems, answers, tokens, ended), seen


def ways(agents: Sequence[Agent], method: str) -> dict[str, tuple[Agent, Agent | None]]:
    """How the result of a method is used: name -> (drafter, reader), or (agent, None) for one pass."""
    if method == "untrained":
        a, b = agents
        return {"A": (a, None), "B": (b, None), "A > B": (a, b), "B > A": (b, a)}
    reader = RECIPES[method].reader
    if reader == "rival":
        a, b = agents
        return {"A > B": (a, b), "B > A": (b, a)}
    a = agents[0]
    return {"A > A": (a, a)} if reader else {"A": (a, None), "A > A": (a, a)}


def assess(agents: Sequence[Agent], test: Sequence[Problem], k: int, o) -> dict:
    """Held-out accuracy in every way in which the method is used."""
    line = {"eval": {}}
    for i, (name, (drafter, reader)) in enumerate(ways(agents, o.method).items()):
        generator = runs.generator(o.seed, runs.EVALUATION, i)
        if reader is None:
            found = evaluate(drafter, test, k, o.max_new_tokens, o.temperature, generator)
        else:
            found, _ = cascade(drafter, reader, test, k, o, generator)
        line["eval"][name] = {
            "pass1": found.pass1, "low": found.interval[0], "high": found.interval[1], "problems": found.problems, "k": k,
            "length": found.length, "truncated": found.truncated, "topics": found.by_topic,
        }  # fmt: skip
    return line
