"""Agon: two adapters over one frozen base, each the other's grader. Needs reference answers: correctness is what is paid.

One step (Beliaev, "Agon: Competitive Cross-Model RL with Implicit Rival Grading of Reasoning", Section 4.3):
  1. The drafter, A in even steps and B in odd ones, answers each problem N times from the plain prompt, is paid for being
     correct, and takes a GRPO step.
  2. Each draft becomes a summary: its private reasoning and its final answer are taken out (`lab/drafts.py`).
  3. The challenger reads the problem and the summary, and writes one solution for each draft: N different prompts, one group.
     It is paid 2 c(b) + c(b) (1 - c(a)), c = 1 if right, else 0; a is the draft, b the solution. It takes a GRPO step.
At inference the pair works as it was trained: one drafts, the other reads the summary and answers.

The same step with other turns (RECIPES) is vanilla GRPO, self-refinement, and the paper's other controls:

    python agon.py                          # the tiny world: zero-shot, untrained pair, GRPO and Agon
    python agon.py --compare --seeds 0 1 2  # every row of the table
    python agon.py --model MODEL --data sums --methods agon --steps 8 --prompts 4 --n 4 --lr 2e-5 --max-new-tokens 14

Departures from the paper: the drafter learns before the challenger reads, so that a model which plays both parts stays
on-policy (for a pair the order makes no difference; self-refinement's one adapter takes two optimizer steps a step);
the tie-break is linear in the length; the default world is `lab/rivals.py`, which no paper has.
"""

import lab  # noqa: F401, I001 (comes first: it says what Ctrl-C does while the rest is imported)
import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from grpo import Agent, Rollouts, group_advantages, group_statistics, sample, update
from lab import drafts, guards, memory, models, peft, report, rivals, runs, setup, show
from lab.answers import extract_answer
from lab.data import Problem, UserError, answer_style
from lab.evaluate import AT_ONCE, Report, evaluate, grade
from lab.models import encode, fits, opening
from lab.options import TRAINING, Above, Count, Group, Training, Whole, command, resumed
from rewards import agreement

# ---------------------------------------------------------------- what the challenger is paid; all tensors [P,N]


def correctness(c_b: Tensor, c_a: Tensor) -> Tensor:
    """The cooperative exchange: the challenger is paid for being right, whatever the draft was."""
    return c_b


def conversion(c_b: Tensor, c_a: Tensor) -> Tensor:
    """Agon: 2 c(b) + c(b) (1 - c(a)), so 0 for wrong, 2 for right, 3 for right where the draft was wrong (Section 4.4)."""
    return 2 * c_b + c_b * (1 - c_a)


def margin(c_b: Tensor, c_a: Tensor) -> Tensor:
    """The plain margin c(b) - c(a): the challenger cannot change the second term, which is noise in its advantage."""
    return c_b - c_a


def against_one(c_b: Tensor, c_a: Tensor) -> Tensor:
    """The conversion against one draft that the whole group shares: c(b) times 2 or 3, so GRPO once it is normalised."""
    return conversion(c_b, c_a[:, :1])


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


# ---------------------------------------------------------------- who writes what


def plain(agent: Agent, problems: Sequence[Problem], drafted: Rollouts | None, n: int, o) -> tuple[list[str], int]:
    """The prompts of somebody who reads no draft, and how many completions of each: P prompts, N of each."""
    return [agent.prompt(problem) for problem in problems], n


def reading(agent: Agent, problems: Sequence[Problem], drafted: Rollouts, n: int, o) -> tuple[list[str], int]:
    """The prompts of somebody who reads the drafts: P*N, group after group, one completion of each."""
    return [challenge(agent, problem, text, answer, o)
            for problem, texts, answers in zip(problems, drafted.texts, drafted.answers, strict=True)
            for text, answer in zip(texts, answers, strict=True)], 1  # fmt: skip


def challenge(agent: Agent, problem: Problem, draft: str, answer: str | None, o) -> str:
    """The challenger's prompt: the problem and the summary of one draft, its final answer withheld.

    A draft that did not end has no answer; then its last number, or what its box holds so far, is taken as its answer. A
    summary that does not fit the model's context loses its beginning. Drafter and challenger share base and template.
    """
    if o.data == "tiny":
        summary, mark, ask, answer = draft, rivals.MARK, rivals.reading, answer or rivals.stated(draft)
    else:
        summary, mark, ask = drafts.summary(opening(agent.prompt(problem)) + draft), drafts.MARK, drafts.ask
    withhold = drafts.withhold_program if agent.answer_style == "code" else drafts.withhold
    summary = withhold(summary, answer or extract_answer(summary, agent.answer_style), mark)

    def prompt(text: str) -> str:
        return agent.wrap(ask(problem.question, text), problem)

    while summary and not fits(agent, prompt(summary), o.max_new_tokens):
        summary = summary[len(summary) // 2 + 1 :]
    return prompt(summary)


@dataclass(frozen=True)
class Turn:
    """Half a step: somebody writes N completions of each problem, is paid, and learns."""

    role: str
    who: Callable[[int], int]  # the step -> the index of the adapter
    asks: Callable = plain
    pays: Callable[[Tensor, Tensor], Tensor] = correctness
    times: int = 1  # as many completions as --n says, times this


@dataclass(frozen=True)
class Recipe:
    """How a method trains and how its result is used."""

    says: str  # one line for --help and the table
    turns: tuple[Turn, ...]
    ways: tuple[str, ...] = ("A", "B", "A > B", "B > A")  # alone, or one drafts and the other reads


# The roles of a pair change every step; a single adapter plays both.
DRAFT, READ = Turn("drafter", lambda step: step % 2), Turn("challenger", lambda step: 1 - step % 2, reading)
ALONE = {"who": lambda step: 0}
RECIPES = {
    "grpo": Recipe("vanilla GRPO: one adapter, 2N plain rollouts", (replace(DRAFT, times=2, **ALONE),), ("A", "A > A")),
    "self-refine": Recipe("one adapter drafts, reads its own drafts and refines",
                          (replace(DRAFT, **ALONE), replace(READ, **ALONE)), ("A", "A > A")),
    "shared": Recipe("no exchange: nobody reads, a group is paid the conversion against one draft of the rival",
                     (DRAFT, replace(READ, asks=plain, pays=against_one)), ("A", "B")),
    "cooperative": Recipe("exchange of drafts; the reader is paid for being right", (DRAFT, READ)),
    "margin": Recipe("exchange of drafts; the reader is paid c(b) - c(a)", (DRAFT, replace(READ, pays=margin))),
    "agon": Recipe("exchange of drafts; the reader is paid 2 c(b) + c(b) (1 - c(a))", (DRAFT, replace(READ, pays=conversion))),
}  # fmt: skip


# ---------------------------------------------------------------- one step


def train_step(agents: Sequence[Agent], problems: Sequence[Problem], step: int, o) -> dict:
    """Draft, learn, challenge, learn: 2N completions of each problem. Returns the step's line of metrics."""
    line, drafted, c_a = {"step": step, "halves": {}, "samples": []}, None, None
    for i, turn in enumerate(RECIPES[o.method].turns):
        agent = agents[turn.who(step)]
        # 1. It answers each problem N times: the drafter from the plain prompt, the challenger from the drafts' summaries.
        prompts, k = turn.asks(agent, problems, drafted, turn.times * o.n, o)
        draws = runs.generator(o.seed, runs.SAMPLING, step, i)
        written = sample(agent, prompts, k, o.max_new_tokens, o.temperature, draws)  # [P,N] or [P*N,1]
        # 2. It is paid for being right, the challenger also for being right where the draft was wrong.
        answers = by_problem(written, problems)  # [P][N]
        c_b = torch.tensor([agreement(group, p.answer) for group, p in zip(answers, problems, strict=True)])  # [P,N]
        readable = torch.tensor([[float(answer is not None) for answer in group] for group in answers])  # [P,N]
        rewards = turn.pays(c_b, c_a) + o.format * readable
        rewards = shorter_first(rewards, c_b, written.mask.sum(-1).view_as(c_b).float().cpu(), o.tiebreak * (c_a is not None))
        # 3. It takes a GRPO step: advantages over its N completions, of N different prompts where it read N drafts.
        advantages = group_advantages(rewards).view(written.mask.shape[:2])  # [P,N] or [P*N,1]
        rows = o.micro_batch * c_b.shape[1]
        learned = update(agent, written, advantages, temperature=o.temperature, max_grad_norm=o.max_grad_norm, rows=rows)
        line["halves"][f"{turn.role} {agent.name}"] = learned | describe(written, rewards, c_b, c_a)
        line["samples"] += show.pick(f"{turn.role} {agent.name}", problems, prompts, written, rewards)
        drafted, c_a = written, c_b
    return line


def describe(written: Rollouts, rewards: Tensor, c_b: Tensor, c_a: Tensor | None) -> dict:
    """The metrics of half a step; `converted` is the share that is right where its draft was wrong."""
    converted = {} if c_a is None else {"converted": (c_b * (1 - c_a)).mean().item()}
    own = {"accuracy": c_b.mean().item(), "tokens": int(written.mask.sum()), "rollouts": c_b.numel()}
    return group_statistics(written, rewards) | own | converted


def by_problem(rollouts: Rollouts, problems: Sequence[Problem]) -> list[list[str | None]]:
    """The answers [P][N] of rollouts that lie problem after problem, as P groups of N or as P*N groups of one."""
    flat = sum(rollouts.answers, [])
    n = len(flat) // len(problems)
    return [flat[i : i + n] for i in range(0, len(flat), n)]


# ---------------------------------------------------------------- inference


def cascade(drafter: Agent, reader: Agent, problems: Sequence[Problem], k: int, o, generator) -> tuple[Report, list]:
    """One drafts, the other reads the summary and answers, k times each problem. The report on the answers, and the exchanges."""
    answers, tokens, ended, exchanges = [], 0, 0, []
    chunk = max(1, AT_ONCE // k)  # problems in memory at a time
    for start in range(0, len(problems), chunk):
        part = problems[start : start + chunk]
        asked = [drafter.prompt(problem) for problem in part]
        written = sample(drafter, asked, k, o.max_new_tokens, o.temperature, generator)
        prompts, _ = reading(reader, part, written, k, o)
        solved = sample(reader, prompts, 1, o.max_new_tokens, o.temperature, generator)
        answers += by_problem(solved, part)
        tokens, ended = tokens + int(solved.mask.sum()), ended + int(solved.finished.sum())
        exchanges += show.pick(f"draft of {drafter.name}", part, asked, written)
        exchanges += show.pick(f"solution of {reader.name}", part, prompts, solved)
    return grade(problems, answers, tokens, ended), exchanges


WAYS = ("A", "B", "A > B", "B > A", "A > A")  # how adapters are used: alone, or one drafts and another (or itself) reads


def ways(agents: Sequence[Agent], method: str) -> dict[str, tuple[Agent, Agent | None]]:
    """The ways in which a method's result is used: name -> (drafter, reader), or (agent, None) for one pass."""
    who = {agent.name: agent for agent in agents} | {None: None}
    used = WAYS if method == "untrained" else RECIPES[method].ways
    return {way: (who[way[0]], who[way[4:] or None]) for way in used}


def assess(agents: Sequence[Agent], test: Sequence[Problem], k: int, o) -> dict:
    """Held-out accuracy in every way in which the method is used."""
    line = {"eval": {}}
    for way, (drafter, reader) in ways(agents, o.method).items():
        generator = runs.generator(o.seed, runs.EVALUATION, WAYS.index(way))  # the same numbers for every method
        if reader is None:
            found = evaluate(drafter, test, k, o.max_new_tokens, o.temperature, generator)
        else:
            found, _ = cascade(drafter, reader, test, k, o, generator)
        line["eval"][way] = found.record() | {"k": k, "topics": found.by_topic}
    return line


# ---------------------------------------------------------------- options


@dataclass
class Options(Training):
    """All there is to set. Defaults are those of the tiny world."""

    TABLE = {name: recipe.says for name, recipe in RECIPES.items()}
    methods: list[Literal[tuple(RECIPES)]] | None = None  # trained beside the untrained pair, see below (default: grpo agon)
    compare: bool = False  # train them all: every row of the paper's Table 3, and the margin
    model: str | None = None  # a Hugging Face causal LM, hub name or folder; without it, the tiny world's own
    # tiny world, what the adapters have learnt at the start: taught = each half of the topics, and to read drafts; misleading =
    # the same with worse drafts and readers that copy more; noise = nothing, as in the paper: they differ by --b-std alone
    start: Literal[tuple(rivals.STARTS)] = "taught"
    solve: str | None = None  # a run of agon.py, whose pair answers --question or the test part of --data: one drafts, one reads
    question: str | None = None  # a question of your own for --solve
    # system text of every prompt; always set, so that no template puts in its own (default: You are a helpful assistant, and
    # where answers are read from boxes, a request for one)
    system: str | None = None
    n: Group = 8  # drafts of each problem, and solutions that read them (N); vanilla GRPO takes 2N plain ones
    rank: Count | None = None  # of the adapters (default: 8; of real models 16, as in the paper)
    alpha: Above = 16.0  # scale of the adapters: their product counts alpha / rank
    b_std: float = 0.02  # at the start adapter B has Gaussian noise of this size in its B matrix, adapter A zeros
    format: float = 0.1  # paid to drafter and challenger for an answer that can be read
    tiebreak: float = 0.0  # the density lever: up to this much more for shorter correct solutions of a group
    method: str | None = None
    steps: Count = 45  # training steps; the roles change every step
    prompts: Count = 16
    lr: Above = 1e-3
    eval_every: Whole = 15
    eval_problems: Count = 360
    eval_k: Count = 4  # samples of each, before and after; one of each in between
    thinking: bool = True  # private reasoning first, where the chat template knows the switch; a draft's reader never sees it

    def __post_init__(self):
        self.rank = self.rank or (16 if self.model else 8)


RULES = [
    *TRAINING,
    (lambda o: (o.model is None) != (o.data == "tiny"),
     "the tiny adapters solve the tiny world, and real models real problems: give --model and --data together"),
    (lambda o: o.data == "tiny" and o.max_new_tokens > 100,
     "--max-new-tokens: the tiny model reads 256 tokens in all, a draft among them: at most 100 new ones"),
    (lambda o: not 0 <= o.tiebreak < 1 or not 0 <= o.format < 1 or not 0 <= o.b_std < 1,
     "--tiebreak, --format and --b-std are at least 0 and below 1 (the first two never outweigh being right)"),
    (lambda o: o.rank > 4096, "--rank is at most 4096: a larger adapter has more weights than its layer"),
    (lambda o: o.method and not o.resume, "--method is set by the command itself: name what to train with --methods"),
    (lambda o: o.model is None and (o.dtype != "float32" or o.system is not None or o.answer or o.stop),
     "--dtype, --system, --answer and --stop belong to real models: give --model and --data"),
    (lambda o: o.model and o.start != "taught", "--start is for the tiny world: leave --model and --data out"),
    (lambda o: o.question and not o.solve, "--question is for a trained pair: name its run with --solve"),
    (lambda o: o.compare and o.methods, "--compare trains every method, --methods those you name: give one of them"),
    (lambda o: len(set(o.methods or ())) < len(o.methods or ()), "--methods names something twice"),
]  # fmt: skip


# ---------------------------------------------------------------- a run


def make_agents(o: Options) -> list[Agent]:
    """Adapters A and B over one frozen base; methods of one adapter train A and never touch B."""
    device = models.pick_device(o.device)
    if o.model is None:
        model, tokenizer = rivals.pair(rivals.Rivals(o.seed, o.rank, o.alpha, o.b_std, **rivals.STARTS[o.start]))
        model.to(device)
    else:
        model, tokenizer = models.load_model(o.model, device, o.dtype)
        setup.put_adapters(model, o.rank, o.alpha, ["A", "B"], b_std=[0.0, o.b_std], seed=o.seed)
        if o.system is None:
            boxed = " Please reason step by step, and put your final answer within \\boxed{}."
            o.system = "You are a helpful assistant." + boxed * ((o.answer or answer_style(o.data)) == "boxed")
    return setup.make_agents(o, [(model, tokenizer)] * 2, ["A", "B"], [o.lr] * 2)


def read_data(o: Options) -> tuple[list[Problem], list[Problem]]:
    """The problems to train on and those held out (`runs.read_data`); all need a reference answer."""
    train, test = runs.read_data(o.data, o.eval_problems)
    if not all(p.answer for p in [*train, *test]):
        raise UserError(f"Agon pays for being correct, so every problem of {o.data} needs a reference answer")
    return train, test


def load_work(o: Options, data: tuple[list[Problem], list[Problem]]) -> runs.Work:
    """One method, ready to be trained."""
    agents = make_agents(o)
    train_set, test = (that_fit(part, agents, o) for part in data)
    texts = o.n * (1 if o.method == "untrained" else RECIPES[o.method].turns[0].times)
    batch, elsewhere = setup.batches(o, train_set), setup.elsewhere(o, agents)

    def measure(step: int) -> dict:
        k = o.eval_k if step in (0, o.steps) else 1
        return assess(agents, test, k, o) | {f"eval on {at}": assess(*there, k, o)["eval"] for at, there in elsewhere.items()}

    return runs.Work(
        agents=agents,
        take=lambda step: train_step(agents, batch(step), step, o),
        measure=measure,
        need=memory.estimate(agents, memory.of_agon(o, texts)), config={"inputs": guards.inputs(o, agents, data)},
    )


def that_fit(problems: list[Problem], agents: Sequence[Agent], o: Options) -> list[Problem]:
    """Without the problems whose prompt, with what a reader is told beside a draft, does not fit the model's context."""
    if not problems:
        return problems
    plain, reading = (len(encode(p, agents[0].tokenizer)) for p in
                      (agents[0].prompt(problems[0]), challenge(agents[0], problems[0], "", None, o)))  # fmt: skip
    return runs.fitting(problems, agents, o.max_new_tokens + reading - plain)


def compare(o: Options) -> int:
    """The same starting adapters, problems and budget under each method; one table and one figure."""
    data, methods = read_data(o), ["untrained", *(RECIPES if o.compare else o.methods or ["grpo", "agon"])]

    def alone(method: str, seed: int) -> Options:
        own = {"method": method, "seed": seed, "steps": 0 if method == "untrained" else o.steps}
        return replace(o, **own, seeds=None, compare=False, methods=None, resume=None)

    def whole() -> Path:
        folder = runs.create(o.out, o.name, "agon")
        runs.write_json(folder / "config.json", dataclasses.asdict(o) | runs.origin() | {"rows": methods[1:]})
        return folder

    folder = runs.compare(o, methods, lambda one: load_work(one, data), alone, whole, "agon.py")
    if folder:
        report.finish(folder)
    return 0 if folder else 130


def resume(o: Options) -> int:
    """Continue one method's run from its newest whole checkpoint."""
    folder = runs.single(o, lambda o: load_work(o, read_data(o)), "", "agon.py")
    print(f"\nthe table of all methods: python -m lab.report {folder.parent}" if folder else "")
    return 0 if folder else 130


def solve(o: Options) -> int:
    """A trained pair at work: its exchanges, and how many of its answers are right where the right one is known."""
    run = Path(o.solve)
    own = replace(resumed(str(run), {}, Options), device=o.device, seed=o.seed)
    agents, place = make_agents(own), runs.newest(run)
    pairs = [way for way in ways(agents, own.method).values() if way[1]]
    if place is None or not pairs:
        raise UserError(f"{run} holds no whole checkpoint of a pair in which one reads the other's draft")
    for agent in agents:
        peft.load(agent.model, agent.adapter, place / agent.name)
    problems = [Problem(o.question)] if o.question else runs.read_data(o.data, o.eval_problems)[1]
    found, exchanges = cascade(*pairs[0], problems, 1, own, runs.generator(own.seed, runs.EVALUATION, len(problems)))
    print(show.completions(exchanges))
    if not o.question:
        print(f"{found.pass1:.3f} of {found.problems} are right, 95% interval {found.interval}")
    return 0


def act(o: Options) -> int:
    """A pair at work, one run resumed, or all methods side by side."""
    return solve(o) if o.solve else resume(o) if o.resume and o.method else compare(o)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""
    lower = "--prompts, --n or --max-new-tokens, or give --dtype bfloat16 --checkpointing"
    return command("agon.py", arguments, __doc__, Options, RULES, act, "what was saved before is whole", lower)


if __name__ == "__main__":
    sys.exit(main())
