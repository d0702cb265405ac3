"""GRPO by hand-computable numbers, against independent references in float64, and exactness of the shared prompt."""

import math

import pytest
import tiny
import torch
from test_rollout import write

import grpo
import lora
from grpo import (
    Agent,
    Rollouts,
    group_advantages,
    kl_k3,
    left_pad,
    pick_logprobs,
    policy_loss,
    token_logprobs,
    token_weights,
    update,
)
from lab.data import UserError
from lab.models import with_own_prompt


def test_advantages_by_hand():
    """The papers' summary gives std .366 for (1, .5, .2); the population std is .330."""
    assert group_advantages(torch.tensor([[1.0, 0.5, 0.2]]))[0].tolist() == pytest.approx(
        [1.313, -0.202, -1.111], abs=1e-3
    )
    assert group_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), scale=False)[0].tolist() == [
        0.75,
        -0.25,
        -0.25,
        -0.25,
    ]


def test_unanimous_groups_are_exactly_zero():
    """T09: P always right, Q always wrong must teach nothing; a tiny epsilon under the fraction blows rounding up to a signal."""
    rewards = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.1, 0.1]])
    assert torch.equal(group_advantages(rewards), torch.zeros(3, 2))
    third = torch.full((1, 3), 1 / 3)  # its mean rounds
    assert torch.equal(group_advantages(third), torch.zeros(1, 3))


def test_advantages_keep_groups_apart():
    """T09: statistics over the batch, or groups interleaved, mix prompts: shuffling groups must only shuffle advantages."""
    rewards = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 1, 4, 0, 2])
    assert torch.equal(group_advantages(rewards)[order], group_advantages(rewards[order]))


def reference_advantages(rewards):
    """From the formula, in float64 Python."""
    mean = sum(rewards) / len(rewards)
    std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards))
    return [(r - mean) / std if std else 0.0 for r in rewards]


def reference_loss(logp, old, ref, advantages, lengths, clip, beta, average, longest):
    """The clipped surrogate with a KL term, token by token, as the formula is written."""
    total, n_tokens = 0.0, sum(sum(row) for row in lengths)
    for p, group in enumerate(logp):
        for k, row in enumerate(group):
            for t in range(lengths[p][k]):
                rho = math.exp(row[t] - old[p][k][t])
                clipped = min(max(rho, 1 - clip), 1 + clip)
                gain = min(rho * advantages[p][k], clipped * advantages[p][k])
                x = ref[p][k][t] - row[t]
                gain -= beta * (math.exp(x) - x - 1)
                groups = len(logp) * len(group)
                total -= (
                    gain
                    / {"sequence": groups * lengths[p][k], "token": n_tokens, "constant": groups * longest}[average]
                )
    return total


@pytest.mark.parametrize("average", ["sequence", "token", "constant"])
def test_loss_against_an_independent_reference(average):
    """Vectorised code with masks, clips and averages hides slips; the plain loops over tokens do not."""
    g = torch.Generator().manual_seed(5)
    logp, old, ref = (-torch.rand(3, 4, 6, generator=g, dtype=torch.float64) * 2 for _ in range(3))
    rewards = torch.randint(0, 2, (3, 4), generator=g).double()
    lengths = torch.randint(1, 7, (3, 4), generator=g)
    mask = (torch.arange(6) < lengths[..., None]).double()
    ours = policy_loss(logp, old, group_advantages(rewards), token_weights(mask, average, 9), 0.2, ref, 0.07)
    advantages = [reference_advantages(row) for row in rewards.tolist()]
    theirs = reference_loss(
        logp.tolist(), old.tolist(), ref.tolist(), advantages, lengths.tolist(), 0.2, 0.07, average, 9
    )
    assert ours.item() == pytest.approx(theirs, abs=1e-12)


def test_average_of_tokens_by_hand():
    """T10: losses (1,1,1,1) and (4): 2.5 by sequence, 1.6 by token."""
    losses, mask = torch.tensor([[[1.0, 1, 1, 1], [4.0, 0, 0, 0]]]), torch.tensor([[[1, 1, 1, 1], [1, 0, 0, 0]]])
    assert (losses * token_weights(mask, "sequence")).sum().item() == pytest.approx(2.5)
    assert (losses * token_weights(mask, "token")).sum().item() == pytest.approx(1.6)
    assert (losses * token_weights(mask, "constant", 8)).sum().item() == pytest.approx(0.5)


def test_first_step_has_value_zero_and_a_gradient():
    """T11: people 'fix' a loss of 0. Advantages +-1, 3 tokens each: the value is 0, the gradients are -1/6 and +1/6 a token."""
    logp = torch.full((1, 2, 3), -1.0, requires_grad=True)
    loss = policy_loss(logp, logp.detach(), torch.tensor([[1.0, -1.0]]), token_weights(torch.ones(1, 2, 3)))
    loss.backward()
    assert loss.item() == 0
    assert torch.allclose(logp.grad, torch.tensor([[[-1 / 6] * 3, [1 / 6] * 3]]))


@pytest.mark.parametrize(
    ("advantage", "ratio", "kept"), [(1, 1.5, False), (1, 0.5, True), (-1, 1.5, True), (-1, 0.5, False), (1, 1.1, True)]
)
def test_clip_holds_for_both_signs(advantage, ratio, kept):
    """T11: a clip written for one sign only lets a bad action be pushed away without limit, or never corrected."""
    logp = torch.tensor([[[math.log(ratio)]]], requires_grad=True)
    policy_loss(logp, torch.zeros(1, 1, 1), torch.tensor([[float(advantage)]]), torch.ones(1, 1, 1)).backward()
    assert (logp.grad.item() != 0) == kept


def test_masked_positions_may_hold_anything():
    """exp of a garbage log-ratio is inf, and inf * 0 is NaN: it must be zeroed before exp, in the KL term too."""
    logp = torch.tensor([[[-1.0, 500.0], [-2.0, -torch.inf]]], requires_grad=True)
    old, weights = torch.tensor([[[-1.0, -500.0], [-2.0, 0.0]]]), token_weights(torch.tensor([[[1, 0], [1, 0]]]))
    policy_loss(logp, old, torch.tensor([[1.0, -1.0]]), weights, ref_logp=old, beta=0.1).backward()
    assert torch.isfinite(logp.grad).all() and (logp.grad[..., 1] == 0).all()


def test_k3_by_hand():
    """T13: (policy, reference) = (-1,-2), (-2,-1), (-1,-1) give .3679, .7183, 0; never negative."""
    found = kl_k3(torch.tensor([-1.0, -2.0, -1.0]), torch.tensor([-2.0, -1.0, -1.0]))
    assert found.tolist() == pytest.approx([0.3679, 0.7183, 0], abs=1e-4)


def test_scoring_uses_the_temperature():
    """T05: logits (2, 0), T = .5, token 0: -.01815 when scoring as when sampling."""
    assert pick_logprobs(torch.tensor([[2.0, 0.0]]), torch.tensor([[0]]), 0.5).item() == pytest.approx(
        -0.01815, abs=1e-5
    )


class Successor(torch.nn.Module):
    """Puts +20 on id + 1 and -20 elsewhere, whatever came before; stands in for a model in `forward`."""

    def logits(self, ids):
        return torch.full((*ids.shape, 32), -20.0).scatter(-1, (ids + 1)[..., None], 20.0)


def test_logprobs_are_not_shifted(monkeypatch):
    """T12: an unshifted gather scores each token by its own logits, -40 here; the first one is told by the last prompt token."""
    monkeypatch.setattr(grpo, "forward", lambda model, ids, mask, *_, **__: model.logits(ids)[model.wanted][None])
    model, completions = Successor(), torch.tensor([[5, 6, 7], [10, 11, 12]])

    class Only:
        def __init__(self, wanted):
            model.wanted = wanted

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(grpo, "head_reads_only", lambda _, wanted: Only(wanted))
    prompts, mask = left_pad([[3, 4], [7, 8, 9]], 0, torch.device("cpu"))  # of unequal lengths, in one batch
    batch = with_own_prompt(prompts, mask, completions, torch.ones(2, 3).long())
    found = grpo.next_logprobs(model, *batch, None, 1.0)[:, -3:]
    assert torch.allclose(found, torch.zeros(2, 3), atol=1e-4)


def gradients(model, rollouts, weights):
    model.zero_grad()
    logp = token_logprobs(model, rollouts, torch.arange(len(rollouts.mask)), 1.3)
    (logp * weights).sum().backward()
    return logp.detach(), [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("name", tiny.EVERY)
def test_shared_prompt_is_exact(name, monkeypatch):
    """Log-probs and gradients through the repeated cache equal those of the plain path, with unequal prompts and lengths."""
    model = tiny.model(name)
    rollouts = write(model, temperature=1.3)
    weights = torch.randn(rollouts.mask.shape, generator=torch.Generator().manual_seed(2)) * rollouts.mask
    logp, shared = gradients(model, rollouts, weights)
    monkeypatch.setattr(grpo, "can_share_prompt", lambda _: False)
    plain_logp, plain = gradients(model, rollouts, weights)
    assert torch.allclose(logp, plain_logp, rtol=0, atol=1e-5)
    assert torch.allclose(logp * rollouts.mask, rollouts.logprobs, rtol=0, atol=1e-5)  # and those seen while sampling
    for ours, theirs in zip(shared, plain, strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm() + 1e-7


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_logits_are_made_only_where_a_token_is_scored(name):
    """The output layer sees the end of each prompt once, and each completion token that predicts another: no padding."""
    model, seen = tiny.model(name), []
    rollouts = write(model)
    hook = model.get_output_embeddings().register_forward_hook(lambda _, given, __: seen.append(given[0].shape[:-1].numel()))
    token_logprobs(model, rollouts, torch.arange(3), 1.0)
    hook.remove()
    assert sum(seen) == 3 + int(rollouts.mask.sum()) - 3 * 4 < rollouts.mask.numel()


def test_the_temperature_is_the_same_everywhere():
    """T05: at T = .7 the sampler, the learner and the reference speak of one policy: no drift, and no KL at the start."""
    agent, _, advantages = agent_and_rollouts()
    agent.reference = tiny.model()
    rollouts = write(agent.model, temperature=0.7)
    still = update(agent, rollouts, torch.zeros(3, 4), temperature=0.7, beta=1.0)
    assert still["approx_kl"] < 1e-9 and still["grad_norm"] < 1e-5 and abs(still["loss"]) < 1e-5
    assert update(agent, rollouts, advantages, temperature=1.0)["approx_kl"] > 1e-3  # so that the test can fail


def test_checkpointing_gives_the_same_gradient():
    """T18: with re-entrant checkpoints over a frozen base only the top adapter gets a gradient, and nothing says so."""
    found = []
    for on in (False, True):
        model = tiny.model()
        lora.inject(model, 4, 8.0, b_std=0.3)
        agent = Agent("A", model, tiny.tokenizer(), adapter=0)
        if on:
            lora.checkpointing(model)
            agent.checkpointing = True
        agent.optimizer = torch.optim.SGD(agent.parameters(), lr=0.0)
        rollouts, agent.agrees = write(model), True  # by the bare base: what is compared is two gradients, not two policies
        update(
            agent,
            rollouts,
            group_advantages(torch.rand(3, 4, generator=torch.Generator().manual_seed(0))),
            max_grad_norm=math.inf,
        )
        found.append([p.grad for p in agent.parameters()])
        assert not model.training
    for plain, recomputed in zip(*found, strict=True):
        assert recomputed.norm() > 0 and (plain - recomputed).norm() <= 1e-5 * plain.norm()


def agent_and_rollouts(seed=0):
    model = tiny.model(seed=seed)
    agent = Agent("A", model, tiny.tokenizer())
    agent.optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rollouts = write(model)
    rewards = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 1]])
    return agent, rollouts, group_advantages(rewards)


def moved(**options):
    """How far one SGD step of rate 1 moves the weights: minus the (unclipped) gradient."""
    agent, rollouts, advantages = agent_and_rollouts()
    before = [p.detach().clone() for p in agent.model.parameters()]
    found = update(agent, rollouts, advantages, max_grad_norm=math.inf, **options)
    return torch.cat([(p.detach() - b).flatten() for p, b in zip(agent.model.parameters(), before, strict=True)]), found


@pytest.mark.parametrize("average", ["sequence", "token", "constant"])
def test_micro_batches_change_memory_not_the_gradient(average):
    """T10: a token mean for each micro-batch trains another objective; a short last micro-batch keeps its true weight."""
    whole, _ = moved(average=average, rows=12, max_new_tokens=12)
    for size in (1, 2):
        assert torch.allclose(moved(average=average, rows=4 * size, max_new_tokens=12)[0], whole, atol=1e-6)
    assert whole.norm() > 1e-3


def test_groups_without_signal_are_left_out_exactly():
    """The middle group is unanimous. Reading it (a KL term of weight 1e-12 does) gives the same gradient."""
    agent, rollouts, advantages = agent_and_rollouts()
    agent.reference = tiny.model()
    before = [p.detach().clone() for p in agent.model.parameters()]
    update(agent, rollouts, advantages, beta=1e-12, max_grad_norm=math.inf)
    read_all = torch.cat([(p.detach() - b).flatten() for p, b in zip(agent.model.parameters(), before, strict=True)])
    assert torch.allclose(read_all, moved()[0], atol=1e-6)


def test_the_reference_of_an_adapter_is_the_bare_base():
    """A KL term measured against the adapter itself is 0 for ever, and holds nobody back."""
    agent, rollouts, _ = agent_and_rollouts()
    bare = token_logprobs(agent.model, rollouts, torch.arange(3), 1.0).detach()
    lora.inject(agent.model, 2, 4.0, ["A"], b_std=0.3)
    agent.adapter = "A"
    agent.optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    assert torch.allclose(grpo.reference_logprobs(agent, rollouts, torch.arange(3), 1.0), bare, atol=1e-6)
    with agent.in_use():
        assert not torch.allclose(token_logprobs(agent.model, rollouts, torch.arange(3), 1.0), bare, atol=1e-3)
    # No reward tells the rollouts apart: what moves the adapter is the KL term alone. They are the bare base's.
    agent.agrees = True
    assert update(agent, rollouts, torch.zeros(3, 4), beta=1.0)["grad_norm"] > 0


def test_no_signal_no_step():
    """Where no group has a signal, AdamW's momentum alone must not move the policy."""
    agent, rollouts, _ = agent_and_rollouts()
    before = [p.detach().clone() for p in agent.model.parameters()]
    found = update(agent, rollouts, torch.zeros(3, 4))
    assert (
        all(torch.equal(p, b) for p, b in zip(agent.model.parameters(), before, strict=True))
        and found["grad_norm"] == 0
    )


def test_second_epoch_is_clipped_against_the_first():
    """T11: old log-probs recomputed in each pass make the ratio 1 for ever, and clipping never acts."""
    _, one = moved(epochs=1)
    _, three = moved(epochs=3)
    assert one["approx_kl"] < 1e-9 and one["clip_fraction"] == 0
    assert three["approx_kl"] > 1e-3 and three["clip_fraction"] > 0


def test_learning_raises_what_was_rewarded():
    """The sign: after a step, rewarded completions are more probable and the others less."""
    agent, rollouts, advantages = agent_and_rollouts()
    agent.optimizer = torch.optim.SGD(agent.model.parameters(), lr=0.05)
    update(agent, rollouts, advantages)
    with torch.no_grad():
        change = (
            (token_logprobs(agent.model, rollouts, torch.arange(3), 1.0) - rollouts.logprobs) * rollouts.mask
        ).sum(-1)
    assert (change[0] * advantages[0]).mean() > 0 and (change[2] * advantages[2]).mean() > 0


def test_not_finite_stops_before_the_weights_are_touched():
    """A NaN that reaches the weights ends the run for good; the step must fail while they are whole."""
    agent, rollouts, advantages = agent_and_rollouts()
    before = [p.detach().clone() for p in agent.model.parameters()]
    with pytest.raises(FloatingPointError, match="agent A"):
        update(agent, rollouts, advantages * torch.nan)
    assert all(torch.equal(p, b) for p, b in zip(agent.model.parameters(), before, strict=True))


def test_a_step_that_breaks_the_weights_is_told():
    """A finite gradient and an absurd rate make infinite weights; saved, they would be the last good checkpoint."""
    agent, rollouts, advantages = agent_and_rollouts()
    agent.optimizer = torch.optim.SGD(agent.model.parameters(), lr=1e38)
    with pytest.raises(FloatingPointError, match="agent A: the step made weights"):
        update(agent, rollouts, 1e6 * advantages, max_grad_norm=math.inf)


def test_scoring_twice_agrees_bitwise():
    """T11: dropout while scoring makes the ratio noise."""
    model = tiny.model("gpt2")  # its configuration has dropout .1
    rollouts: Rollouts = write(model)
    with torch.no_grad():
        first, second = (token_logprobs(model, rollouts, torch.arange(3), 1.0) for _ in range(2))
    assert torch.equal(first, second)


def test_the_first_step_checks_that_sampler_and_learner_agree():
    """Guards: a policy that is scored as another than it was sampled as, trained on that difference."""
    agent, rollouts, advantages = agent_and_rollouts()
    before = [p.clone() for p in agent.parameters()]
    rollouts.logprobs = rollouts.logprobs - 0.01 * rollouts.mask
    with pytest.raises(UserError, match="0.01 apart"):
        update(agent, rollouts, advantages)
    assert all(map(torch.equal, agent.parameters(), before)) and not agent.agrees
    agent.agrees = True  # later steps may follow other settings
    update(agent, rollouts, advantages)
