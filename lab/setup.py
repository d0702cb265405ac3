"""A cohort at its start, and its problems: models loaded or warmed up, adapters put on, what a method needs of either."""

import copy
import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

import lora
from grpo import Agent
from lab import guards, memory, models, runs
from lab.data import WORLDS, Problem, UserError, answer_style, load_problems, need_answers, need_rephrased
from lab.methods import INSTRUCTIONS, hooks_of, teacher_name
from lab.models import can_write, end_tokens
from lab.options import agent_names, of_kind
from rewards import REWARDS


def load(o, share: bool, sees: bool = False, here: Sequence[int] | None = None) -> list[tuple]:
    """The (model, tokenizer) of each agent: a tiny world's, warmed up, or --models, of which equal ones are `share`d.

    sees: the problems have pictures, so that models are loaded with their eyes. here: places on the ring of those to load, if
    not all.
    """
    device = models.pick_device(o.device)
    if o.models in (None, ["tiny"]):
        world = runs.world(o.data)
        settings = world.WarmStart(seed=o.seed, kind=o.cohort)
        if getattr(o, "strengths", None):
            settings = dataclasses.replace(settings, strong=o.strengths[0], weak=o.strengths[1])
        made = world.cohort(o.agents, settings=settings)
        return [(model.to(device).eval(), tokenizer) for model, tokenizer in (made if here is None else [made[n] for n in here])]
    sources = o.models if here is None else [o.models[n] for n in here]
    read = functools.cache(models.load_model) if share else models.load_model
    return [read(source, device, o.dtype, sees) for source in sources]


def put_adapters(model, rank: int, alpha: float, names: Sequence[str], **options) -> None:
    """`lora.inject`, refused where it does not fit; a default choice of layers that leaves much of a model out is said."""
    memory.fit_adapters(model, rank, len(names))
    lora.inject(model, rank, alpha, names, **options)
    if not options.get("targets"):
        guards.say_coverage(model)
        if hasattr(model.config, "vision_config"):
            print("adapters lie on the part for language; the part that sees stays as it is (--lora-targets)", file=sys.stderr)


def make_agents(o, loaded: Sequence[tuple], adapters: Sequence[str | None], rates: Sequence[float] | None = None,
                rephrase: Sequence[str] = (), names: Sequence[str] = ()) -> list[Agent]:  # fmt: skip
    """Agents A, B, ... (or `names`) of (model, tokenizer) and, if they are to be trained at `rates`, an optimizer each.

    Refuses models whose completions could not end, and those that are sampled as one model and scored as another
    (`guards.try_out`): whatever can be refused is, before anything is written.
    """
    agents = []
    for name, (model, tokenizer), adapter in zip(names or agent_names(len(loaded)), loaded, adapters, strict=True):
        agent = Agent(name, model, tokenizer, adapter, answer_style=o.answer or answer_style(o.data), system=o.system,
                      rephrase=name in rephrase, thinking=o.thinking, stop=o.stop)  # fmt: skip
        end_tokens(model, tokenizer)
        if o.stop and not can_write(tokenizer, o.stop):
            raise UserError(f"agent {name} cannot write the --stop text {o.stop!r}: its tokenizer has no tokens for it")
        if rates:
            fused = agent.device.type in ("cpu", "cuda")
            agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=rates[len(agents)], weight_decay=0.0, fused=fused)
            agent.checkpointing = o.checkpointing
        agents.append(agent)
    for model in {id(a.model): a.model for a in agents if a.checkpointing}.values():
        try:
            lora.checkpointing(model)
        except ValueError as error:  # an old model has none
            raise UserError(f"--checkpointing: {error}") from None
    guards.try_out(agents)
    return agents


def make_cohort(o, problems: Sequence[Problem] = (), here: Sequence[int] | None = None) -> list[Agent]:
    """The agents of cohort.py at their start: models loaded (or warmed up), adapters put on, one optimizer each.

    Of `problems` it matters whether they have pictures. here: places on the ring of those to make, if not all.
    """
    here = range(o.agents) if here is None else here
    sees = any(problem.image for problem in problems)
    loaded, whole_ring = load(o, o.lora_rank > 0, sees, here), agent_names(o.agents)  # agents of one model share its frozen base
    names, rates = [whole_ring[n] for n in here], o.lrs or [o.lr] * o.agents
    if o.lora_rank:
        for n, model in {id(model): (n, model) for n, (model, _) in zip(here, loaded, strict=True)}.values():
            # Of agents elsewhere too: adapters of one model are drawn one after the other.
            sharing = [name for m, name in enumerate(whole_ring) if m == n or o.models and o.models[m] == o.models[n]]
            if hooks_of(o.method).needs_teacher:
                sharing += [teacher_name(name) for name in sharing]
            put_adapters(model, o.lora_rank, o.lora_alpha, sharing, targets=o.lora_targets, seed=o.seed)
    adapters = names if o.lora_rank else [None] * len(names)
    agents = make_agents(o, loaded, adapters, [rates[n] for n in here], o.rephrase or (), names)
    for agent in agents:
        if o.beta and not o.lora_rank:
            agent.reference = copy.deepcopy(agent.model).requires_grad_(False)
    return agents


def read_data(o) -> tuple[list[Problem], list[Problem]]:
    """The problems to train on, the same for every method of a comparison, and those held out (`runs.read_data`)."""
    train, test = runs.read_data(o.data, o.eval_problems, o.topics)
    if o.data == "tiny":
        return train, test  # it has answers and rephrased forms of all its problems
    if o.rephrase:
        need_rephrased(train, o.data, "--rephrase")
    for name in sharing_problems(o):
        if REWARDS[name].needs_labels and not all(p.answer for p in train):
            raise UserError(
                f"method {name} needs a reference answer for every problem of {o.data}; corl and ttrl need none"
            )
        if hooks_of(name).needs_chat and any(p.image for p in train):
            raise UserError(f"method {name} has judges, who are not shown pictures: choose another method for {o.data}")
        if hooks_of(name).needs_rephrased:
            kept = need_rephrased(train, o.data, f"method {name}")
            if len(kept) < len(train):
                left_out = f"{len(train) - len(kept)} of {len(train)} problems to train on"
                print(f"left out {left_out}: {name} needs a rephrased form, and they have none", file=sys.stderr)
            train = kept
    return train, test


def sharing_problems(o) -> list[str]:
    """The methods that share the run's problems: those of --compare, of the comparison that a resumed run is of, or its own."""
    compared = runs.read_json(Path(o.resume) / "config.json").get("compared") if o.resume else None
    if not of_kind(compared, list[Literal[tuple(REWARDS)]] | None):
        raise UserError(f"{o.resume}/config.json: compared cannot be {compared!r:.60}")
    return o.compare or compared or [o.method]


def readable(o, agents: Sequence[Agent], train: list[Problem], methods: Sequence[str]) -> list[Problem]:
    """The problems that fit the context under every one of `methods`, so that all of them train on the same ones."""
    readers, room = list(agents), o.max_new_tokens
    if any(hooks_of(name).needs_rephrased for name in methods):
        readers += [dataclasses.replace(agent, rephrase=True) for agent in agents]
    if any(hooks_of(name).needs_chat for name in methods):  # the longest prompt of a judge holds a solution and an evaluation
        room = 3 * o.max_new_tokens + INSTRUCTIONS
    return runs.fitting(train, readers, room)


def elsewhere(o, agents: Sequence[Agent]) -> dict[str, tuple[list[Agent], list[Problem]]]:
    """For each of --eval-data the agents, which read answers as it needs, and its test part, or all of a file."""
    found = {}
    for source in o.eval_data or ():
        problems = need_answers(load_problems(source, "test", o.eval_problems), source, "--eval-data")
        style = o.answer or answer_style(source)
        readers = [dataclasses.replace(agent, answer_style=style, rephrase=False) for agent in agents]
        found[source] = readers, runs.fitting(problems, agents, o.max_new_tokens)
    return found


def batches(o, train: list[Problem], topics: Sequence[str] | None = None) -> Callable[[int], list[Problem]]:
    """The questions of step s, as a function of s alone. The tiny world draws new ones in each step."""
    if o.data in WORLDS:
        return lambda step: runs.world(o.data).problems(topics, o.prompts, seed=(o.seed << 20) + step)
    return lambda step: [train[i] for i in runs.positions(len(train), o.prompts, step, o.seed)]
