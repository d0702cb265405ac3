"""A cohort at its start, and its problems: models loaded or warmed up, adapters put on, what a method needs of either."""

import copy
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import lora
from grpo import Agent
from lab import models, runs, tinyworld
from lab.data import Problem, UserError, answer_style, need_rephrased
from lab.judges import INSTRUCTIONS, make_teachers, need_chat, teacher_name
from lab.models import end_tokens, tokens_with
from lab.options import agent_names
from rewards import REWARDS


def load(o, device: torch.device) -> list[tuple]:
    """The (model, tokenizer) of each agent, loaded or warmed up."""
    if o.models is None:
        settings = tinyworld.WarmStart(seed=o.seed, kind=o.cohort)
        if o.strengths:
            settings = dataclasses.replace(settings, strong=o.strengths[0], weak=o.strengths[1])
        return [(model.to(device).eval(), tokenizer) for model, tokenizer in tinyworld.cohort(o.agents, settings=settings)]
    if o.lora_rank:
        bases = {source: models.load_model(source, device, o.dtype) for source in dict.fromkeys(o.models)}
        return [bases[source] for source in o.models]  # agents of one model share its base
    return [models.load_model(source, device, o.dtype) for source in o.models]


def make_agents(o) -> list[Agent]:
    """The cohort at its start: models loaded (or warmed up), adapters put on, one optimizer each."""
    device = models.pick_device(o.device)
    loaded = load(o, device)
    style = o.answer or answer_style(o.data)
    names = agent_names(len(loaded))
    agents = [
        Agent(name, model, tokenizer, answer=style, system=o.system, stop=o.stop, rephrase=name in (o.rephrase or ()))
        for name, (model, tokenizer) in zip(names, loaded, strict=True)
    ]
    for model in {id(a.model): a.model for a in agents}.values():
        sharing = [agent for agent in agents if agent.model is model]
        if o.lora_rank:
            names = [agent.name for agent in sharing]
            if REWARDS[o.method].needs_teacher:
                names += [teacher_name(name) for name in names]
            lora.inject(model, o.lora_rank, o.lora_alpha, adapters=names, targets=o.lora_targets, seed=o.seed)
        if o.checkpointing:
            lora.checkpointing(model)
        for agent in sharing:
            agent.adapter = agent.name if o.lora_rank else None
            agent.checkpointing = o.checkpointing
            if o.beta and not o.lora_rank:
                agent.reference = copy.deepcopy(model).requires_grad_(False)
            fused = device.type in ("cpu", "cuda")
            lr = o.lrs[agents.index(agent)] if o.lrs else o.lr
            agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=lr, weight_decay=0.0, fused=fused)
    return agents


def make_cohort(o, methods: Sequence[str] | None = None) -> tuple[list[Agent], list[Agent]]:
    """The agents and, where the method has them, their teachers. Refuses models that one of `methods` cannot use.

    And those whose completions could not end: whatever can be refused is, before anything is written.
    """
    agents = make_agents(o)
    for agent in agents:
        end_tokens(agent.model, agent.tokenizer)
        if o.stop:
            tokens_with(agent.tokenizer, o.stop)
    for name in methods or [o.method]:
        if REWARDS[name].needs_chat:
            need_chat(agents, name)
    return agents, make_teachers(agents) if REWARDS[o.method].needs_teacher else []


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
        if REWARDS[name].needs_rephrased:
            kept = need_rephrased(train, o.data, f"method {name}")
            if len(kept) < len(train):
                left_out = f"{len(train) - len(kept)} of {len(train)} problems to train on"
                print(f"left out {left_out}: {name} needs a rephrased form, and they have none", file=sys.stderr)
            train = kept
    return train, test


def sharing_problems(o) -> list[str]:
    """The methods that share the run's problems: those of --compare, of the comparison that a resumed run is of, or its own."""
    saved = runs.read_json(Path(o.resume) / "config.json") if o.resume else {}
    return o.compare or saved.get("compared") or [o.method]


def batches(
    o, agents: Sequence[Agent], train: list[Problem], methods: Sequence[str]
) -> Callable[[int], list[Problem]]:
    """The questions of step s, as a function of s alone, out of those that fit the context under every one of `methods`."""
    if o.data == "tiny":
        return lambda step: tinyworld.problems(o.topics, o.prompts, seed=(o.seed << 20) + step)
    readers, room = list(agents), o.max_new_tokens
    if any(REWARDS[name].needs_rephrased for name in methods):
        readers += [dataclasses.replace(agent, rephrase=True) for agent in agents]
    if any(REWARDS[name].needs_chat for name in methods):  # the longest prompt of a judge holds a solution and an evaluation
        room = 3 * o.max_new_tokens + INSTRUCTIONS
    train = runs.fitting(train, readers, room)
    return lambda step: [train[i] for i in runs.positions(len(train), o.prompts, step, o.seed)]
