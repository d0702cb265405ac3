"""Co-rewarding-II: each agent learns from a slow copy of itself, the teacher, which votes in its place.

Zhang et al. 2025, "Co-rewarding: Stable Self-supervised RL for Eliciting Reasoning in Large Language Models". After step t of T

    teacher <- (1 - a_t) teacher + a_t policy,    a_t = LAST + (FIRST - LAST) (1 + cos(pi (t - 1) / T)) / 2

so the label is the majority of what the agent *was*, and a policy that begins to agree with itself on something wrong does
not at once move what it is paid for. FIRST = 0.01 and LAST = 1e-5 are the values of the authors' run script, which moves the
teacher after every step, as here.

Ours: with LoRA the teacher is a second adapter of the same base, and A and B are averaged each by itself, so its product
B A is not the average of the products. The teacher is float32 whatever the policy is: in bfloat16 an average that moves by
1 % of a small difference would round back to where it was.
"""

import copy
import dataclasses
import math
from collections.abc import Sequence

import torch

from grpo import Agent

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
