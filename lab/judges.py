"""CoMAS: the agents judge each other's solutions (Xue et al. 2025, "CoMAS: Co-Evolving Multi-Agent Systems via Interaction
Rewards").

A *discussion* is a solution by one agent, an evaluation of it by another that looks for mistakes, and a score of 1, 2 or 3
given in view of both. The score pays all three (`rewards.interaction`), and each agent learns from everything it wrote.

Who judges whom. For each question two numbers are drawn, e in 0..N-1 and s != e, and all is counted round the ring:

    solver n  ->  evaluator n+e  ->  scorer n+s          agent m solves, evaluates m-e, and scores m-s

So who judges is random, the scorer is never the evaluator, and each agent writes K texts of each kind for each question:
three times as many as with a method that has no judges, each with weight 1/(3PK) in the agent's loss. An agent may evaluate
or score its own solution; with N = 2 one of the two judges always is the solver itself. Judges are shown the question as it
is (`Problem.question`), also where the solver read it in other words (--rephrase).

Groups, which GRPO needs and CoMAS has not. K solutions to a question are a group as usual. The K evaluations that an agent
writes for a question read K different solutions, and so do its K scores; they share a mean and a std all the same. That
baseline is fair, since it does not depend on any one text, but noisier than K texts on one prompt, which would need K times
the tokens.

Departures: CoMAS trains by REINFORCE++ (advantages normalised over the whole batch), one solution of each agent to each
question, in two rounds, the second of which shows solvers two discussions of the first (settings of the authors' code, with
four Qwen2.5-3B-Instruct); here it is GRPO and one round. Its scorer and evaluator may be the same agent. The wording of the
prompts is ours. A score that was cut off before its end token counts as unreadable, as a cut-off answer does elsewhere. What
a judge is shown must fit its model's context; another model's text can need more tokens than it had when it was written,
and then its middle is left out.
"""

import copy
import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grpo import Agent, Rollouts, fits, sample_cohort
from lab.data import Problem, UserError
from lab.models import chat
from rewards import interaction

EVALUATE = """\
Here is a problem and somebody's solution to it.

Problem:
{question}

Solution:
{solution}

Check the solution. Name every mistake in it and say briefly why it is one; if there is none, say so."""

SCORE = """\
Here is a problem, somebody's solution to it, and what a reader objects to in the solution.

Problem:
{question}

Solution:
{solution}

Objections:
{evaluation}

Decide which objections are justified. Give a reason in one or two sentences, then one of these scores:
3 = the solution is right, and no objection holds
2 = an objection holds, but the result is right all the same
1 = a mistake makes the result wrong
End with the score between tags, like this: <score>2</score>"""

INSTRUCTIONS = 256  # tokens: room for the words of SCORE and of a chat template


@dataclass
class Judged:
    """What one agent's texts earned. Judging rollouts are groups of one, question by question: P*K of them."""

    scores: list[list[int | None]]  # [P][K], what its solutions were given
    evaluations: Rollouts  # [P*K,1]
    evaluator_rewards: Tensor  # [P,K]
    scorings: Rollouts  # [P*K,1]
    scorer_rewards: Tensor  # [P,K]


def need_chat(agents: Sequence[Agent], method: str) -> None:
    """Refuse models that were never trained to follow an instruction."""
    for agent in agents:
        if not getattr(agent.tokenizer, "chat_template", None):
            raise UserError(f"method {method} needs chat models, which judge when asked; that of {agent.name} is none")


def read_score(text: str) -> int | None:
    """The score in the last <score> ... </score> of a text; None unless it is 1, 2 or 3."""
    found = re.findall(r"<score>(.*?)</score>", text, re.IGNORECASE | re.DOTALL)
    score = found[-1].strip() if found else ""
    return int(score) if score in ("1", "2", "3") else None


def draw_judges(agents: int, questions: int, generator: torch.Generator) -> list[tuple[int, int]]:
    """For each question how far round the ring its evaluator and its scorer stand from the solver: (e, s), e != s."""
    e = torch.randint(agents, (questions,), generator=generator)
    s = (e + torch.randint(1, agents, (questions,), generator=generator)) % agents
    return list(zip(e.tolist(), s.tolist(), strict=True))


def ask(agent: Agent, form: str, question: str, max_new_tokens: int, **quoted: str) -> str:
    """A judge's prompt: `form` filled in, with `max_new_tokens` of room for what the judge says.

    Its system text is left out: that tells a solver how to answer. Where the context is too short, the quoted texts lose
    their middles, a tenth more of each at a time; the end, where the answer stands, and the beginning are kept longest.
    """
    for tenths in range(10, -1, -1):
        shown = {name: without_middle(text.strip(), tenths / 10) for name, text in quoted.items()}
        prompt = chat(form.format(question=question, **shown), agent.tokenizer, thinking=agent.thinking)
        if fits(agent, prompt, max_new_tokens):
            break
    return prompt


def without_middle(text: str, share: float) -> str:
    """The first and the last part of a text, `share` of it together, with "[...]" where its middle was."""
    if share == 1:
        return text
    kept = int(len(text) * share / 2)
    return f"{text[:kept]} [...] {text[len(text) - kept :]}"


def evaluation_prompts(
    m: int, agent: Agent, solutions: Sequence[list[list[str]]], problems: Sequence[Problem], judges, max_new_tokens: int
) -> list[str]:
    """What agent m is asked as evaluator: P*K prompts. solutions[n][p][k] are texts."""
    return [
        ask(agent, EVALUATE, problem.question, max_new_tokens, solution=solution)
        for p, (problem, (e, _)) in enumerate(zip(problems, judges, strict=True))
        for solution in solutions[(m - e) % len(solutions)][p]
    ]


def scoring_prompts(
    m: int,
    agent: Agent,
    solutions: Sequence[list[list[str]]],
    evaluations: Sequence[list[list[str]]],
    problems: Sequence[Problem],
    judges,
    max_new_tokens: int,
) -> list[str]:
    """What agent m is asked as scorer: P*K prompts. evaluations[m][p][k] are those *by* agent m."""
    prompts = []
    for p, (problem, (e, s)) in enumerate(zip(problems, judges, strict=True)):
        solver = (m - s) % len(solutions)
        evaluator = (solver + e) % len(solutions)
        prompts += [
            ask(agent, SCORE, problem.question, max_new_tokens, solution=solution, evaluation=evaluation)
            for solution, evaluation in zip(solutions[solver][p], evaluations[evaluator][p], strict=True)
        ]
    return prompts


def groups(items: Sequence, k: int) -> list[list]:
    """[P*K] -> [P][K]"""
    return [list(items[i : i + k]) for i in range(0, len(items), k)]


def pay(scores: Sequence[list[list[int | None]]], judges: Sequence[tuple[int, int]]) -> list[tuple[Tensor, Tensor]]:
    """Rewards [P,K] of each agent as evaluator and as scorer. scores[n][p][k] were given to the solutions of agent n."""
    n = len(scores)
    return [
        (
            torch.tensor([[interaction(x)[1] for x in scores[(m - e) % n][p]] for p, (e, _) in enumerate(judges)]),
            torch.tensor([[interaction(x)[2] for x in scores[(m - s) % n][p]] for p, (_, s) in enumerate(judges)]),
        )
        for m in range(n)
    ]


def judge(
    agents: Sequence[Agent],
    cohort: Sequence[Rollouts],
    problems: Sequence[Problem],
    max_new_tokens: int,
    temperature: float,
    generators: Sequence[torch.Generator],
) -> list[Judged]:
    """Every solution of `cohort` evaluated and scored. `generators` are N + 1, the last of which draws who judges whom."""
    k, count = len(cohort[0].texts[0]), len(agents)
    judges = draw_judges(count, len(problems), generators[-1])
    solutions = [rollouts.texts for rollouts in cohort]

    def write(prompts: list[list[str]]) -> list[Rollouts]:
        return sample_cohort(agents, prompts, 1, max_new_tokens, temperature, generators[:-1])

    shown = problems, judges, max_new_tokens
    evaluated = write([evaluation_prompts(m, a, solutions, *shown) for m, a in enumerate(agents)])
    evaluations = [groups([text for (text,) in rollouts.texts], k) for rollouts in evaluated]
    scored = write([scoring_prompts(m, a, solutions, evaluations, *shown) for m, a in enumerate(agents)])
    given = [
        groups([read_score(t) if ok else None for (t,), (ok,) in zip(r.texts, r.finished.tolist(), strict=True)], k)
        for r in scored
    ]
    scores = [[given[(n + s) % count][p] for p, (_, s) in enumerate(judges)] for n in range(count)]
    paid = pay(scores, judges)
    return [Judged(scores[n], evaluated[n], paid[n][0], scored[n], paid[n][1]) for n in range(count)]


def join(parts: Sequence[tuple[Rollouts, Tensor]]) -> tuple[Rollouts, Tensor]:
    """(rollouts [P,K], advantages of as many) of several kinds as one batch of groups of one, [n,1], for one optimizer step.

    Each rollout then carries its own prompt. Prompts are padded on the left and completions on the right, to the longest.
    """
    alone = [[split(rollouts), advantages.reshape(-1, 1)] for rollouts, advantages in parts]
    prompt = max(part["prompt_ids"].shape[-1] for part, _ in alone)
    longest = max(part["completion_ids"].shape[-1] for part, _ in alone)
    joined = {}
    for name in alone[0][0]:
        left, right = name in ("prompt_ids", "prompt_mask"), name in ("completion_ids", "mask", "logprobs")
        tensors = [part[name] for part, _ in alone]
        if left or right:
            padding = [((prompt - t.shape[-1]) * left, (longest - t.shape[-1]) * right) for t in tensors]
            tensors = [torch.nn.functional.pad(t, pad) for t, pad in zip(tensors, padding, strict=True)]
        joined[name] = torch.cat(tensors)
    return Rollouts(**joined), torch.cat([advantages for _, advantages in alone])


def split(rollouts: Rollouts) -> dict[str, Tensor]:
    """The tensors of rollouts [P,K,...] as P*K groups of one; a prompt is repeated for each of its K."""
    k = rollouts.mask.shape[1]
    tensors = {name: value for name, value in vars(rollouts).items() if isinstance(value, Tensor)}
    return {
        name: t.repeat_interleave(k, 0) if name.startswith("prompt") else t.flatten(0, 1)[:, None]
        for name, t in tensors.items()
    }


# ---------------------------------------------------------------- Co-rewarding-II: the slow teacher
# Co-rewarding-II: each agent learns from a slow copy of itself, the teacher, which votes in its place.
#
# Zhang et al. 2025, "Co-rewarding: Stable Self-supervised RL for Eliciting Reasoning in Large Language Models". After step t of T
#
#     teacher <- (1 - a_t) teacher + a_t policy,    a_t = LAST + (FIRST - LAST) (1 + cos(pi (t - 1) / T)) / 2
#
# so the label is the majority of what the agent *was*, and a policy that begins to agree with itself on something wrong does
# not at once move what it is paid for. FIRST = 0.01 and LAST = 1e-5 are the values of the authors' run script, which moves the
# teacher after every step, as here.
#
# Ours: with LoRA the teacher is a second adapter of the same base, and A and B are averaged each by itself, so its product
# B A is not the average of the products. The teacher is float32 whatever the policy is: in bfloat16 an average that moves by
# 1 % of a small difference would round back to where it was.

FIRST, LAST = 0.01, 1e-5  # share of the policy in the teacher's first move; what it falls to


def alpha(step: int, steps: int) -> float:
    """The share of the policy that goes into the teacher after step `step`, counted from 1, of `steps`."""
    return LAST + (FIRST - LAST) * (1 + math.cos(math.pi * (step - 1) / steps)) / 2


def teacher_name(name: str) -> str:
    """What the teacher of agent `name` is called: its folder in a checkpoint, and its adapter."""
    return f"{name}-teacher"


@torch.no_grad()
def make_teachers(agents: Sequence[Agent]) -> list[Agent]:
    """One teacher for each agent, equal to it, which nothing but `follow` moves; with LoRA its adapter is there already."""
    teachers = []
    for agent in agents:
        own = {"name": teacher_name(agent.name), "optimizer": None, "reference": None}
        if agent.adapter is not None:
            teacher = dataclasses.replace(agent, adapter=teacher_name(agent.name), **own)
        else:
            teacher = dataclasses.replace(agent, model=copy.deepcopy(agent.model).float().requires_grad_(False), **own)
        follow(teacher, agent, 1.0)
        teachers.append(teacher)
    return teachers


@torch.no_grad()
def follow(teacher: Agent, agent: Agent, share: float) -> None:
    """teacher <- (1 - share) teacher + share policy, in float32."""
    for slow, fast in zip(teacher.parameters(), agent.parameters(), strict=True):
        slow.lerp_(fast.to(slow.dtype), share)
