"""What a method adds to a step of cohort.py beside its reward: `rewards.Method.adds` names an entry of HOOKS.

    nothing      all K completions vote and are trained on; with --votes W, W of them vote and the first K are trained on
    both forms   Co-rewarding-I: every question is asked in both of its forms
    a teacher    Co-rewarding-II: a slow copy of each agent votes in its place
    judges       CoMAS: the agents judge each other's solutions, and learn from their judgements too

The step itself does not know which method it serves: it asks its hooks, in the order in which they stand in `Hooks`.
"""

import copy
import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from grpo import Agent, Rollouts, group_advantages, sample_cohort
from lab import runs
from lab.data import Problem, UserError
from lab.drafts import summary
from lab.models import chat, fits, opening
from rewards import REWARDS


class Hooks:
    """The hooks of most methods, which add nothing; other methods change some of them."""

    needs_rephrased = False  # every problem in two forms; each agent reads both
    needs_chat = False  # models that can judge a solution when they are asked to
    needs_teacher = False  # a slow copy of each agent, which is part of every checkpoint
    first = 0  # place on the ring of the first agent in this process; lab/ranks.py has others in other processes
    write = None  # what writes completions in the place of grpo.complete (lab/engine.py)

    def __init__(self, o, agents: Sequence[Agent]):
        self.o, self.agents = o, agents
        self.teachers: list[Agent] = []

    @classmethod
    def accept(cls, agents: Sequence[Agent], method: str) -> None:
        """Refuse, with a UserError, models that the method cannot use."""

    @classmethod
    def completions(cls, k: int, voters: int) -> int:
        """How much each agent writes for one question, of which k rollouts are trained on: the budget of --compare."""
        return voters

    @property
    def width(self) -> int:
        """How many rollouts of a question each agent writes (W)."""
        return voters(self.o)

    def questions(self, problems: Sequence[Problem]) -> Sequence[Problem]:
        """The questions that are asked in this step."""
        return problems

    def ballots(self, written: Sequence[Rollouts], problems: Sequence[Problem], step: int) -> list[list]:
        """The answers that vote for each agent: N lists [P][W]."""
        return [rollouts.answers for rollouts in written]

    def exchange(self, own: list[list], step: int) -> list[list]:
        """The ballots of all agents, where `own` are those of the agents in this process: all there are."""
        return own

    def rollouts(self, written: Sequence[Rollouts], problems: Sequence[Problem], step: int) -> list[Rollouts]:
        """What is paid and trained on: N Rollouts of [P,K]."""
        return [rollouts.first(self.o.k) for rollouts in written]

    def batch(self, n: int, rollouts: Sequence[Rollouts], advantages: Tensor) -> tuple[Rollouts, Tensor]:
        """What agent n learns from: rollouts and their advantages."""
        return rollouts[n], advantages

    def figures(self, n: int, written: Sequence[Rollouts]) -> dict:
        """More metrics of agent n. `tokens` counts all that was written for it, trained on or not."""
        return {"tokens": written_tokens(written[n])}

    def after(self, step: int, line: dict) -> None:
        """What happens once every agent has learned; `line` are the metrics of the step."""

    def reports(self, found: dict, step: int) -> dict:
        """The reports of all agents in an evaluation, where `found` are those of the agents in this process."""
        return found


def voters(o) -> int:
    """How many rollouts of a question vote for its label: --votes where it is given and the method takes a vote, else K."""
    return o.votes if o.votes and REWARDS[o.method].by_vote else o.k


def written_tokens(*rollouts: Rollouts) -> int:
    """Tokens that were generated."""
    return sum(int(part.mask.sum()) for part in rollouts)


class BothForms(Hooks):
    """Co-rewarding-I. The mean over 2P groups replaces the paper's sum of two losses: AdamW divides the factor 2 out again."""

    needs_rephrased = True

    @classmethod
    def completions(cls, k, voters):
        return 2 * voters

    def questions(self, problems):
        """2P problems: the P original ones, then the same P in their rephrased form."""
        return [*problems, *(dataclasses.replace(p, question=p.rephrased) for p in problems)]


# ---------------------------------------------------------------- Co-rewarding-II: the slow teacher

FIRST, LAST = 0.01, 1e-5  # share of the policy in the teacher's first move; what it falls to


class Teachers(Hooks):
    """Co-rewarding-II: each agent learns from a slow copy of itself, its teacher, which votes in its place.

    Zhang et al. 2025, "Co-rewarding: Stable Self-supervised RL for Eliciting Reasoning in Large Language Models". After step t
    of T

        teacher <- (1 - a_t) teacher + a_t policy,    a_t = LAST + (FIRST - LAST) (1 + cos(pi (t - 1) / T)) / 2

    so the label is the majority of what the agent *was*: when a policy begins to agree with itself on something wrong, what it
    is paid for does not move at once. FIRST and LAST are the values of the authors' run script, which moves the teacher
    after every step, as here.

    Ours: with LoRA the teacher is a second adapter of the same base, and A and B are averaged separately, so the teacher's
    product B A is not the average of the products. The teacher is float32 whatever the policy is: in bfloat16, an average that
    moves by 1% of a small difference would round back to where it was.
    """

    needs_teacher = True

    def __init__(self, o, agents):
        super().__init__(o, agents)
        self.teachers = make_teachers(agents)

    @classmethod
    def completions(cls, k, voters):
        return k + voters

    @property
    def width(self):
        return self.o.k  # the agent writes only what it trains on

    def ballots(self, written, problems, step):
        prompts = [[teacher.prompt(problem) for problem in problems] for teacher in self.teachers]
        draws = runs.generators(self.o.seed, runs.TEACHING, step, len(prompts))
        self.wrote = sample_cohort(self.teachers, prompts, voters(self.o), self.o.max_new_tokens, self.o.temperature, draws)
        return [rollouts.answers for rollouts in self.wrote]

    def figures(self, n, written):
        return {"tokens": written_tokens(written[n], self.wrote[n])}

    def after(self, step, line):
        for teacher, agent in zip(self.teachers, self.agents, strict=True):
            follow(teacher, agent, alpha(step, self.o.steps))


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


# ---------------------------------------------------------------- CoMAS: the agents judge each other

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


def interaction(score: int | None) -> tuple[float, float, float]:
    """What one discussion pays its (solver, evaluator, scorer). `score` is 1, 2, 3, or None if it cannot be read.

    The score, mapped to 0, 1/2, 1, is what the solver earns; the evaluator, who looked for mistakes, earns what is left to 1.
    The scorer loses 1 if its score cannot be read, and then nobody is paid (Xue et al. 2025, and the authors' code).
    """
    if score is None:
        return 0.0, 0.0, -1.0
    share = (score - 1) / 2
    return share, 1 - share, 0.0


@dataclass
class Judged(Rollouts):
    """An agent's solutions with what they were given, and what it wrote as a judge.

    Judging rollouts are groups of one, question by question: P*K of them.
    """

    scores: list[list[int | None]] = dataclasses.field(default_factory=list)  # [P][K], what its solutions were given
    evaluations: Rollouts | None = None  # [P*K,1]
    evaluator_rewards: Tensor | None = None  # [P,K]
    scorings: Rollouts | None = None  # [P*K,1]
    scorer_rewards: Tensor | None = None  # [P,K]


class Judges(Hooks):
    """CoMAS (Xue et al. 2025, "CoMAS: Co-Evolving Multi-Agent Systems via Interaction Rewards").

    A *discussion* is a solution by one agent, an evaluation of it by another that looks for mistakes, and a score of 1, 2 or 3
    given in view of both. The score pays all three (`interaction`), and each agent learns from everything it wrote.

    Who judges whom. For each question two numbers are drawn, e in 0..N-1 and s != e, and all is counted round the ring:

        solver n  ->  evaluator n+e  ->  scorer n+s          agent m solves, evaluates m-e, and scores m-s

    So the judges are random, the scorer is never the evaluator, and each agent writes K completions of each kind for each
    question: three times as many as with a method that has no judges, each with weight 1/(3PK) in the agent's loss. An agent may
    evaluate or score its own solution; with N = 2 one of the two judges always is the solver itself. Judges are shown the
    question as it is (`Problem.question`), also where the solver read it in other words (--rephrase).

    Groups, which GRPO needs and CoMAS does not have. K solutions of a question are a group as usual. The K evaluations that an
    agent writes for a question read K different solutions, and so do its K scores; they share a mean and a std all the same. That
    baseline is fair, since it does not depend on any one completion, but noisier than K completions of one prompt, which would
    need K times the tokens.

    Departures: CoMAS trains by REINFORCE++ (advantages normalised over the whole batch), with one solution of each agent to each
    question, in two rounds, the second of which shows solvers two discussions of the first (settings of the authors' code, with
    four Qwen2.5-3B-Instruct); here it is GRPO and one round. Its scorer and evaluator may be the same agent. The wording of the
    prompts is ours. A score that was cut off before its end token counts as unreadable, as a cut-off answer does elsewhere. What
    a judge is shown must fit its model's context; another model's text can need more tokens than it had when it was written,
    and then its middle is left out.
    """

    needs_chat = True

    @classmethod
    def accept(cls, agents, method):
        for agent in agents:
            if not getattr(agent.tokenizer, "chat_template", None):
                raise UserError(f"method {method} needs chat models, which judge when asked; that of {agent.name} is none")

    @classmethod
    def completions(cls, k, voters):
        return 3 * k  # solutions, evaluations, scores

    def rollouts(self, written, problems, step):
        draws = runs.generators(self.o.seed, runs.JUDGING, step, len(self.agents) + 1)
        self.judged = judge(self.agents, written, problems, self.o.max_new_tokens, self.o.temperature, draws)
        return self.judged

    def batch(self, n, rollouts, advantages):
        mine = self.judged[n]
        judging = [(mine.evaluations, mine.evaluator_rewards), (mine.scorings, mine.scorer_rewards)]
        return join([(mine, advantages), *((wrote, group_advantages(paid, self.o.scale)) for wrote, paid in judging)])

    def figures(self, n, written):
        mine = self.judged[n]
        given = [score is not None for group in mine.scores for score in group]
        return {
            "scored": sum(given) / len(given),  # share of this agent's solutions whose score could be read
            "evaluator_reward": mine.evaluator_rewards.mean().item(),
            "scorer_reward": mine.scorer_rewards.mean().item(),
            "tokens": written_tokens(written[n], mine.evaluations, mine.scorings),
        }


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


def judge(agents: Sequence[Agent], cohort: Sequence[Rollouts], problems: Sequence[Problem], max_new_tokens: int,
          temperature: float, generators: Sequence[torch.Generator]) -> list[Judged]:  # fmt: skip
    """Every solution of `cohort` evaluated and scored. `generators` are N + 1, the last of which draws who judges whom."""
    k, count = len(cohort[0].texts[0]), len(agents)
    judges = draw_judges(count, len(problems), generators[-1])

    def write(form: str, solver_of: int, **shown: list) -> list[Rollouts]:
        """What every agent m writes on `form`, about the solutions of agent m minus e or s; shown[name][n][p] are K texts."""
        prompts = [[ask(agent, form, problem.question, max_new_tokens, **dict(zip(shown, quoted, strict=True)))
                    for p, problem in enumerate(problems)
                    for quoted in zip(*(texts[(m - judges[p][solver_of]) % count][p] for texts in shown.values()), strict=True)]
                   for m, agent in enumerate(agents)]  # fmt: skip
        return sample_cohort(agents, prompts, 1, max_new_tokens, temperature, generators[:-1])

    def by_solver(of: int, values: list[list]) -> list[list[list]]:
        """[m][P*K], by who wrote them, to [n][P][K], by whose solution they are about."""
        return [[values[(n + judges[p][of]) % count][p * k : (p + 1) * k] for p in range(len(problems))] for n in range(count)]

    solutions = [rollouts.texts for rollouts in cohort]
    evaluated = write(EVALUATE, 0, solution=solutions)
    evaluations = by_solver(0, [[text for (text,) in rollouts.texts] for rollouts in evaluated])
    scored = write(SCORE, 1, solution=solutions, evaluation=evaluations)
    opened = [opening(chat("?", agent.tokenizer, thinking=agent.thinking)) for agent in agents]  # a score in reasoning is none
    scores = by_solver(1, [
        [read_score(summary(start + t)) if ok else None for (t,), (ok,) in zip(r.texts, r.finished.tolist(), strict=True)]
        for start, r in zip(opened, scored, strict=True)
    ])
    paid = pay(scores, judges)
    return [Judged(**vars(cohort[n]), scores=scores[n], evaluations=evaluated[n], evaluator_rewards=paid[n][0],
                   scorings=scored[n], scorer_rewards=paid[n][1]) for n in range(count)]  # fmt: skip


def pay(scores: Sequence[list[list[int | None]]], judges: Sequence[tuple[int, int]]) -> list[tuple[Tensor, Tensor]]:
    """Rewards [P,K] of each agent as evaluator and as scorer. scores[n][p][k] were given to the solutions of agent n."""
    def paid(m: int, judge: int) -> Tensor:  # judge 0 is the evaluator, 1 the scorer
        solver = [(m - far[judge]) % len(scores) for far in judges]
        return torch.tensor([[interaction(x)[1 + judge] for x in scores[n][p]] for p, n in enumerate(solver)])

    return [(paid(m, 0), paid(m, 1)) for m in range(len(scores))]


def join(parts: Sequence[tuple[Rollouts, Tensor]]) -> tuple[Rollouts, Tensor]:
    """(rollouts [P,K], advantages [P,K]) of several kinds as one batch of groups of one, [n,1], for one optimizer step.

    Each rollout then carries its own prompt. Prompts are padded on the left and completions on the right, to the longest.
    """
    joined = {}
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "mask", "logprobs", "entropy", "certainty", "finished"):
        tensors = [getattr(rollouts, name) for rollouts, _ in parts]
        if name.startswith("prompt"):  # [P,T], repeated for each of the K
            tensors = [t.repeat_interleave(r.mask.shape[1], 0) for t, (r, _) in zip(tensors, parts, strict=True)]
        else:  # [P,K,...]
            tensors = [t.flatten(0, 1)[:, None] for t in tensors]
        if tensors[0].ndim == (2 if name.startswith("prompt") else 3):
            longest = max(t.shape[-1] for t in tensors)
            tensors = [pad(t, (longest - t.shape[-1], 0) if name.startswith("prompt") else (0, longest - t.shape[-1]))
                       for t in tensors]  # fmt: skip
        joined[name] = torch.cat(tensors)
    joined["seen"] = [one for rollouts, _ in parts for one in rollouts.seen for _ in range(rollouts.mask.shape[1])]
    return Rollouts(**joined), torch.cat([advantages.reshape(-1, 1) for _, advantages in parts])


HOOKS = {"nothing": Hooks, "both forms": BothForms, "a teacher": Teachers, "judges": Judges}


def hooks_of(method: str) -> type[Hooks]:
    """The hooks that a method of rewards.REWARDS names."""
    return HOOKS[REWARDS[method].adds]
