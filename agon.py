"""Agon: two adapters over one frozen base, each the other's grader. Needs reference answers: correctness is what is paid.

One step (Beliaev, "Agon: Competitive Cross-Model RL with Implicit Rival Grading of Reasoning", Section 4.3):
  1. The drafter, A in even steps and B in odd ones, answers each problem N times from the plain prompt, is paid for being
     correct, and takes a GRPO step.
  2. Each draft becomes a summary: its private reasoning and its final answer are taken out (`drafts.py`).
  3. The challenger reads problem and summary, one solution for each draft: N different prompts, one group. It is paid
     2 c(b) + c(b) (1 - c(a)): being right, and more where the draft was wrong. It takes a GRPO step.
At inference the pair works as it was trained: one drafts, the other reads the summary and answers.

The same step with another recipe (`exchange.RECIPES`) is vanilla GRPO, self-refinement and the paper's other controls:

    python agon.py                          # the tiny world: zero-shot, untrained pair, GRPO and Agon
    python agon.py --compare --seeds 0 1 2  # every row of the table
    python agon.py --model SMOLLM2 --data sums --methods agon --steps 8 --prompts 4 --n 4 --lr 2e-5 --max-new-tokens 14

Departures from the paper: the drafter learns before the challenger reads, so that a model which plays both parts stays
on-policy (for a pair the order makes no difference; self-refinement's one adapter takes two optimizer steps a step);
the tie-break is linear in the length; the default world is `rivals.py`, which no paper has.
"""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

import lora
import memory
import report
import rivals
import runs
import tinyworld
from evaluate import AT_ONCE
from exchange import RECIPES, assess, cascade, challenge, train_step, ways
from grpo import Agent, end_tokens, tokens_with
from options import TRAINING, Above, Count, Group, Training, Whole, check, parse
from tasks import Problem, UserError, answer_style, encode

# ---------------------------------------------------------------- options


@dataclass
class Options(Training):
    """All there is to set. Defaults are those of the tiny world."""

    TABLE = {name: recipe.says for name, recipe in RECIPES.items()}
    methods: list[Literal[tuple(RECIPES)]] | None = None  # what to train beside the untrained pair (default: grpo agon): {table}
    compare: bool = False  # train them all: every row of the paper's Table 3
    model: str | None = None  # a Hugging Face causal LM, hub name or folder; without it, the tiny world's own
    misleading: bool = False  # tiny world: drafts are wrong more often, and readers begin by copying more
    # system text of every prompt; always set, so that no template puts in its own (default: You are a helpful assistant, and
    # where answers are read from boxes, a request for one)
    system: str | None = None
    thinking: bool = False  # private reasoning first, where the chat template knows the switch; never shown in a draft
    n: Group = 8  # drafts of each problem, and solutions that read them (N); vanilla GRPO takes 2N plain ones
    rank: Count = 8  # of the adapters (16 in the paper)
    alpha: Above = 16.0  # scale of the adapters: their product counts alpha / rank
    b_std: float = 0.02  # at its birth, adapter B has noise of this size in its B matrix, adapter A zeros
    format: float = 0.1  # paid, to drafter and challenger, for giving an answer that can be read
    tiebreak: float = 0.0  # the density lever: up to this much more for shorter correct solutions of a group
    drafts_shown: Whole = 3  # print so many exchanges of the last trained method: draft, what its reader saw, its solution
    method: str | None = None  # set by the command itself for each of its runs; you say --methods
    steps: Count = 45  # training steps; the roles change every step
    prompts: Count = 16
    lr: Above = 1e-3
    eval_every: Whole = 15
    eval_problems: Count = 360
    eval_k: Count = 4  # samples of each, before and after; one of each in between


RULES = [
    *TRAINING,
    (lambda o: (o.model is None) != (o.data == "tiny"),
     "the tiny adapters solve the tiny world, and real models real problems: give --model and --data together"),
    (lambda o: o.data == "tiny" and o.max_new_tokens > 100,
     "--max-new-tokens: the tiny model reads 256 tokens in all, a draft among them: at most 100 new ones"),
    (lambda o: not 0 <= o.tiebreak < 1 or not 0 <= o.format < 1 or not 0 <= o.b_std < 1,
     "--tiebreak, --format and --b-std are at least 0 and below 1 (the first two never outweigh being right)"),
    (lambda o: o.method and not o.resume, "--method is set by the command itself: name what to train with --methods"),
    (lambda o: o.model is None and (o.dtype != "float32" or o.system is not None or o.thinking or o.answer or o.stop),
     "--dtype, --system, --thinking, --answer and --stop belong to real models: give --model and --data"),
    (lambda o: o.model and o.misleading, "--misleading is for the tiny world: leave --model and --data out"),
    (lambda o: o.compare and o.methods, "--compare trains every method, --methods those you name: give one of them"),
    (lambda o: len(set(o.methods or ())) < len(o.methods or ()), "--methods names something twice"),
]  # fmt: skip


# ---------------------------------------------------------------- a run


def make_agents(o: Options) -> list[Agent]:
    """Adapters A and B over one frozen base; methods of one adapter train A and never touch B."""
    device = runs.pick_device(o.device)
    if o.model is None:
        model, tokenizer = rivals.pair(
            rivals.Rivals(o.seed, o.rank, o.alpha, o.b_std, **(rivals.MISLEADING if o.misleading else {}))
        )
        model.to(device)
    else:
        model, tokenizer = runs.load_model(o.model, device, o.dtype)
        lora.inject(model, o.rank, o.alpha, ["A", "B"], b_std=[0.0, o.b_std], seed=o.seed)
    if o.checkpointing:
        lora.checkpointing(model)
    style = o.answer or answer_style(o.data)
    asked = " Please reason step by step, and put your final answer within \\boxed{}." if style == "boxed" else ""
    system = None if o.model is None else f"You are a helpful assistant.{asked}" if o.system is None else o.system
    fused = device.type in ("cpu", "cuda")
    agents = []
    for name in "AB":
        agent = Agent(name, model, tokenizer, adapter=name, answer=style, system=system,
                      thinking=o.thinking, stop=o.stop, checkpointing=o.checkpointing)  # fmt: skip
        agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=o.lr, weight_decay=0.0, fused=fused)
        agents.append(agent)
    end_tokens(model, tokenizer)  # refused now if it has none, before anything is written
    if o.stop:
        tokens_with(tokenizer, o.stop)
    return agents


def read_data(o: Options) -> tuple[list[Problem], list[Problem]]:
    """The problems to train on and those held out (`runs.read_data`); all need a reference answer."""
    train, test = runs.read_data(o.data, o.eval_problems)
    if not all(p.answer for p in [*train, *test]):
        raise UserError(f"Agon pays for being correct, so every problem of {o.data} needs a reference answer")
    return train, test


def load_work(o: Options, data: tuple[list[Problem], list[Problem]], last: bool) -> runs.Work:
    """One method, ready to be trained; after the `last` one some exchanges are shown."""
    agents = make_agents(o)
    train_set, test = (that_fit(part, agents, o) for part in data)
    texts = o.n if o.method == "untrained" or RECIPES[o.method].reader else 2 * o.n
    need = memory.estimate(
        agents,
        memory.AtATime(
            sampled=o.prompts * texts,
            evaluated=min(AT_ONCE, o.eval_problems * o.eval_k),
            prompt=memory.PROMPT + o.max_new_tokens,  # a reader's prompt holds a draft
            learned=min(o.micro_batch, o.prompts) * texts,
            new=o.max_new_tokens,
            k="--n",
            in_one_pass=False,
        ),
    )
    if o.model and o.method != "untrained":
        print(need)

    def take(step: int) -> dict:
        if o.data == "tiny":
            return train_step(agents, tinyworld.problems(None, o.prompts, seed=(o.seed << 20) + step), step, o)
        return train_step(agents, [train_set[i] for i in runs.positions(len(train_set), o.prompts, step, o.seed)], step, o)

    return runs.Work(
        agents=agents,
        take=take,
        measure=lambda step: assess(agents, test, o.eval_k if step in (0, o.steps) else 1, o),
        need=need,
        finish=lambda: print(show(agents, test, o)) if last and o.drafts_shown else None,
    )


def show(agents: Sequence[Agent], test: Sequence[Problem], o: Options) -> str:
    """A few exchanges of the trained adapters, as the reader saw them."""
    drafter, reader = next(way for way in ways(agents, o.method).values() if way[1])
    spread = test[:: max(1, len(test) // o.drafts_shown)][: o.drafts_shown]  # over all topics
    _, seen = cascade(drafter, reader, spread, 1, o, runs.generator(o.seed, runs.EVALUATION, len(test)))
    return report.exchanges(seen, drafter.name, reader.name)


def that_fit(problems: list[Problem], agents: Sequence[Agent], o: Options) -> list[Problem]:
    """Leave out, aloud, the problems whose prompt does not fit the model's context, with what a reader is told beside a draft."""
    if not problems:
        return problems
    plain, reading = (len(encode(p, agents[0].tokenizer)) for p in
                      (agents[0].prompt(problems[0]), challenge(agents[0], problems[0], "", None, o)))  # fmt: skip
    return runs.fitting(problems, agents, o.max_new_tokens + reading - plain)


def compare(o: Options) -> int:
    """The same starting adapters, problems and budget under each method; one table and one figure."""
    data, methods = read_data(o), ["untrained", *(RECIPES if o.compare else o.methods or ["grpo", "agon"])]
    last = methods[-1], (o.seeds or [o.seed])[-1]

    def alone(method: str, seed: int) -> Options:
        own = {"method": method, "seed": seed, "steps": 0 if method == "untrained" else o.steps}
        return dataclasses.replace(o, **own, seeds=None, compare=False, methods=None, resume=None)

    def whole() -> Path:
        folder = runs.create(o.out, o.name, "agon")
        runs.write_json(folder / "config.json", dataclasses.asdict(o) | {"rows": methods[1:]})
        return folder

    def load(one: Options) -> runs.Work:
        return load_work(one, data, (one.method, one.seed) == last)

    folder = runs.compare(o, methods, load, alone, whole, "agon.py")
    if folder:
        report.finish(folder)
    return 0 if folder else 130


def resume(o: Options) -> int:
    """Continue one method's run from its newest whole checkpoint."""
    data = read_data(o)
    folder = runs.single(o, lambda o: load_work(o, data, True), "", "agon.py")
    if folder:
        print(f"\nthe table of all methods: python report.py {folder.parent}")
    return 0 if folder else 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""

    def act() -> int:
        o = parse(arguments, __doc__, Options)
        check(o, RULES)
        return resume(o) if o.resume and o.method else compare(o)

    lower = "--prompts, --n or --max-new-tokens, or give --dtype bfloat16 --checkpointing"
    return runs.command("agon.py", act, "what was saved before is whole", lower)


if __name__ == "__main__":
    sys.exit(main())
