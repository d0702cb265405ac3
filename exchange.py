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
from answers import extract_answer
from evaluate import Report, evaluate, grade
from grpo import Agent, Rollouts, fits, group_advantages, group_statistics, sample, update
from rewards import agreement
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

    The shortest correct one gets all of it, the longest correct one nothing; where all are equally long, nobody does.
    `most` below 1 never turns the order of the conversion round. Linear in the length is ours.
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


def challenge(agent: Agent, problem: Problem, draft: str, answer: str | None, o) -> str:
    """The challenger's prompt: the problem and the summary of one draft, its final answer withheld.

    A draft that did not end has no answer; then its last number, or what its box holds so far, is taken for one. A
    summary that does not fit the model's context loses its beginning. Drafter and challenger share base and template.
    """
    if o.data == "tiny":
        summary, mark = draft, rivals.MARK
        answer = answer or rivals.stated(draft)
    else:
        opened = agent.prompt(problem).rstrip().endswith("<think>")  # some templates open the reasoning themselves
        summary, mark = drafts.summary("<think>" * opened + draft), drafts.MARK
    summary = drafts.withhold(summary, answer or extract_answer(summary, agent.answer), mark)

    def prompt(text: str) -> str:
        return rivals.reading(problem.question, text) if o.data == "tiny" else agent.wrap(drafts.ask(problem.question, text))

    while summary and not fits(agent, prompt(summary), o.max_new_tokens):
        summary = summary[len(summary) // 2 + 1 :]
    return prompt(summary)


def challenges(agent: Agent, problems: Sequence[Problem], written: Rollouts, paired: bool, o) -> list[str]:
    """P*N prompts, group after group: one for each draft, or N times the group's first draft."""
    prompts = []
    for problem, texts, answers in zip(problems, written.texts, written.answers, strict=True):
        n = len(texts)
        shown = list(zip(texts, answers, strict=True))[: n if paired else 1]
        group = [challenge(agent, problem, text, answer, o) for text, answer in shown]
        prompts += group if paired else group * n
    return prompts


def by_problem(rollouts: Rollouts, problems: Sequence[Problem]) -> list[list[str | None]]:
    """The answers [P][N] of rollouts that lie problem after problem, as P groups of N or as P*N groups of one."""
    flat = [answer for group in rollouts.answers for answer in group]
    n = len(flat) // len(problems)
    return [flat[i : i + n] for i in range(0, len(flat), n)]


def right(rollouts: Rollouts, problems: Sequence[Problem]) -> Tensor:
    """c: 1 where a rollout gives the reference answer, else 0, [P,N]."""
    groups = zip(by_problem(rollouts, problems), problems, strict=True)
    return torch.tensor([agreement(group, problem.answer) for group, problem in groups])


def readable(rollouts: Rollouts, problems: Sequence[Problem]) -> Tensor:
    """1 where a rollout has an answer at all, else 0, [P,N]."""
    return torch.tensor([[float(a is not None) for a in group] for group in by_problem(rollouts, problems)])


# ---------------------------------------------------------------- one step


def learn(agent: Agent, rollouts: Rollouts, rewards: Tensor, c: Tensor, began: float, o) -> dict:
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
    return learned | group_statistics(rollouts, rewards) | {
        "accuracy": c.mean().item(),
        "tokens": int(rollouts.mask.sum()),
        "rollouts": c.numel(),
        "sample_seconds": sampled - began,
        "learn_seconds": time.perf_counter() - sampled,
    }


def train_step(agents: Sequence[Agent], problems: Sequence[Problem], step: int, o) -> dict:
    """Draft, learn, challenge, learn: 2N rollouts of each problem. Returns the step's line of metrics."""
    recipe = RECIPES[o.method]
    if recipe.reader == "rival":  # the roles change every step
        drafter, challenger = agents[step % 2], agents[1 - step % 2]
    else:
        drafter = challenger = agents[0]
    rng = [runs.generator(o.seed, runs.SAMPLING, step, role) for role in (0, 1)]

    began = time.perf_counter()
    n = o.n if recipe.reader else 2 * o.n
    written = sample(drafter, [drafter.prompt(p) for p in problems], n, o.max_new_tokens, o.temperature, rng[0])
    c_a = right(written, problems)  # [P,N]
    rewards = c_a + o.format * readable(written, problems)
    halves = {f"drafter {drafter.name}": learn(drafter, written, rewards, c_a, began, o)}
    if recipe.reader:
        began = time.perf_counter()
        prompts = challenges(challenger, problems, written, recipe.paired, o)
        solved = sample(challenger, prompts, 1, o.max_new_tokens, o.temperature, rng[1])
        c_b = right(solved, problems)  # [P,N]
        read = c_a if recipe.paired else c_a[:, :1].expand_as(c_a)  # the draft that each solution has read
        rewards = recipe.pays(c_b, read) + o.format * readable(solved, problems)
        if o.tiebreak:
            rewards = shorter_first(rewards, c_b, solved.mask.sum(-1).view_as(c_b).float().cpu(), o.tiebreak)
        half = learn(challenger, solved, rewards, c_b, began, o)
        half["converted"] = (c_b * (1 - read)).mean().item()  # right where the draft was wrong
        halves[f"challenger {challenger.name}"] = half
    return {"step": step, "halves": halves}


# ---------------------------------------------------------------- inference


def cascade(drafter: Agent, reader: Agent, problems: Sequence[Problem], k: int, o, generator) -> tuple[Report, list]:
    """One drafts, the other reads the summary and answers, k times each problem. The report on the answers, and the exchanges."""
    answers, tokens, ended, seen = [], 0, 0, []
    chunk = max(1, 256 // k)  # problems in memory at a time
    for start in range(0, len(problems), chunk):
        part = problems[start : start + chunk]
        written = sample(drafter, [drafter.prompt(p) for p in part], k, o.max_new_tokens, o.temperature, generator)
        prompts = challenges(reader, part, written, True, o)
        solved = sample(reader, prompts, 1, o.max_new_tokens, o.temperature, generator)
        answers += by_problem(solved, part)
        tokens, ended = tokens + int(solved.mask.sum()), ended + int(solved.finished.sum())
        seen += [(p, written.texts[i][0], prompts[i * k], solved.texts[i * k][0]) for i, p in enumerate(part)]
    return grade(problems, answers, tokens, ended), seen


WAYS = ("A", "B", "A > B", "B > A", "A > A")  # how adapters are used: alone, or one drafts and another (or itself) reads


def ways(agents: Sequence[Agent], method: str) -> dict[str, tuple[Agent, Agent | None]]:
    """The ways in which a method's result is used: name -> (drafter, reader), or (agent, None) for one pass."""
    a, b = agents
    reader = "untrained" if method == "untrained" else RECIPES[method].reader
    used = {"untrained": WAYS, "rival": WAYS[:4], "itself": ("A", "A > A"), None: ("A", "A > A")}[reader]
    who = {"A": (a, None), "B": (b, None), "A > B": (a, b), "B > A": (b, a), "A > A": (a, a)}
    return {name: who[name] for name in used}


def assess(agents: Sequence[Agent], test: Sequence[Problem], k: int, o) -> dict:
    """Held-out accuracy in every way in which the method is used."""
    line = {"eval": {}}
    for name, (drafter, reader) in ways(agents, o.method).items():
        generator = runs.generator(o.seed, runs.EVALUATION, WAYS.index(name))  # the same numbers for every method
        if reader is None:
            found = evaluate(drafter, test, k, o.max_new_tokens, o.temperature, generator)
        else:
            found, _ = cascade(drafter, reader, test, k, o, generator)
        line["eval"][name] = {
            "pass1": found.pass1, "low": found.interval[0], "high": found.interval[1], "problems": found.problems, "k": k,
            "length": found.length, "truncated": found.truncated, "topics": found.by_topic,
        }  # fmt: skip
    return line
