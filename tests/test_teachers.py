"""The teacher of Co-rewarding-II: its schedule and its average, against numbers worked out by hand."""

import tiny
import torch

import lora
from grpo import Agent
from lab.judges import alpha, follow, make_teachers


def adapted(names: list[str], seed: int = 0):
    """A tiny model with these adapters."""
    model = tiny.model("qwen2")
    lora.inject(model, 2, 4.0, adapters=names, seed=seed)
    return model


def test_schedule_by_hand():
    """a_0 at the first step, half-way between at T/2 + 1, never quite a_1: off by one step and the last a would be a_1."""
    assert alpha(1, 4) == 0.01
    assert abs(alpha(2, 4) - 0.00853700) < 1e-8  # 1e-5 + 0.00999 (1 + cos 45) / 2
    assert abs(alpha(3, 4) - 0.005005) < 1e-9  # the cosine is 0
    assert abs(alpha(4, 4) - 0.00147300) < 1e-8


def test_average_by_hand():
    """(1 - a) teacher + a policy: with the roles exchanged the teacher would be the policy, and the method TTRL."""
    policy = Agent("A", tiny.model("qwen2"), tiny.tokenizer())
    (teacher,) = make_teachers([policy])
    for p in policy.parameters():
        p.data.fill_(2.0)
    for p in teacher.parameters():
        p.data.fill_(1.0)
    follow(teacher, policy, 0.25)
    assert all((p == 1.25).all() for p in teacher.parameters())
    assert all((p == 2.0).all() for p in policy.parameters())


def test_a_bfloat16_policy_has_a_float32_teacher():
    """1 % of a difference of 1/128 is lost in bfloat16: that teacher would never move."""
    policy = Agent("A", tiny.model("qwen2").bfloat16(), tiny.tokenizer())
    (teacher,) = make_teachers([policy])
    slow, fast = (agent.parameters()[0] for agent in (teacher, policy))
    fast.data.fill_(1 + 1 / 128)
    slow.data.fill_(1.0)
    follow(teacher, policy, 0.01)
    assert slow.dtype == torch.float32 and torch.allclose(slow, torch.tensor(1 + 0.01 / 128), atol=1e-7, rtol=0)
    assert not any(p.requires_grad for p in teacher.parameters()) and teacher.optimizer is None


def test_adapters_are_averaged_and_start_as_the_policy():
    """A and B each; the teacher's adapter is drawn anew by `inject` and must be made equal, and leave the policy's alone."""
    model = adapted(["A", "A-teacher"])
    policy = Agent("A", model, tiny.tokenizer(), adapter="A")
    before = [p.clone() for p in policy.parameters()]
    (teacher,) = make_teachers([policy])
    assert teacher.adapter == "A-teacher" and teacher.model is model
    assert all(torch.equal(a, b) for a, b in zip(teacher.parameters(), before, strict=True))
    for p in policy.parameters():
        p.data += 1
    follow(teacher, policy, 0.5)
    assert all(torch.allclose(a, b + 0.5) for a, b in zip(teacher.parameters(), before, strict=True))
    assert all(torch.equal(a, b + 1) for a, b in zip(policy.parameters(), before, strict=True))


def test_a_teacher_does_not_change_where_the_policy_starts():
    """In --compare every method begins with the same weights, though this one has more adapters."""
    alone, beside = adapted(["A", "B"]), adapted(["A", "B", "A-teacher", "B-teacher"])
    for name in "AB":
        pairs = zip(lora.parameters(alone, name), lora.parameters(beside, name), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
