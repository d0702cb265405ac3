"""GRPO: the group-relative advantage, the clipped loss and the update.

One question is answered K times; the K completions are a *group*. A completion is good when its reward is above the mean
of its group, so no value network is needed:

    A_k  = (r_k - mean(r)) / std(r)                                                                       (advantage)
    loss = -(1/K) sum_k (1/|y_k|) sum_t min(rho A_k, clip(rho, 1 - delta, 1 + delta) A_k) + beta KL(pi || pi_ref)
    rho  = pi(token) / pi_old(token)

What to know beside the paper (Shao et al. 2024, DeepSeekMath, eq. 3), and where most code of that name differs:
  - A unanimous group has advantage exactly 0 (no epsilon under the fraction), and without a KL term the model is not run on it.
  - One pass over fresh rollouts is on-policy: rho is 1 in value and carries the gradient, so nothing is ever clipped.
  - The prompt is read once per group here too, and the gradient flows back through its cache, exactly (tests/test_grpo.py).
  - Dropout is off: the policy that is scored is the policy that was sampled.

Shapes: P prompts, K rollouts of each, T prompt tokens, L completion tokens, V vocabulary; p groups in memory at a time, of
whose completions only the longest one's length is read (still written L), n tokens that are scored.
"""

import contextlib
import math

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

import lora
from rollout import Agent, Rollouts, can_share_prompt, head_reads_only, read


def group_advantages(rewards: Tensor, scale: bool = True) -> Tensor:
    """Rewards [P,K] to advantages [P,K]: centred on each group and, with `scale`, divided by its population std.

    A group whose rewards are all equal gives exactly 0. `scale=False` is Dr. GRPO (Liu et al. 2025).
    """
    unanimous = (rewards == rewards[:, :1]).all(-1, keepdim=True)  # [P,1]
    centred = rewards - rewards.mean(-1, keepdim=True)  # [P,K]
    std = rewards.std(-1, correction=0, keepdim=True) if scale else 1.0  # [P,1]
    return torch.where(unanimous, 0.0, centred / torch.where(unanimous, 1.0, std))


def group_statistics(rollouts: Rollouts, rewards: Tensor) -> dict[str, float]:
    """What groups looked like before they were learnt from. `rewards` [P,K]; the rollouts may be [P,K] or [PK,1]."""
    return {
        "reward_mean": rewards.mean().item(),
        "reward_std": rewards.std(-1, correction=0).mean().item(),  # within groups: what advantages are made of
        "signal": rewards.ne(rewards[:, :1]).any(-1).float().mean().item(),  # share of groups that are not unanimous
        "length": rollouts.mask.sum(-1).float().mean().item(),
        "truncated": 1 - rollouts.finished.float().mean().item(),
        "entropy": rollouts.entropy.mean().item(),
    }


def token_weights(mask: Tensor, average: str = "sequence", max_new_tokens: int | None = None) -> Tensor:
    """How much each token counts in the loss of the whole step, [P,K,L].

    "sequence": 1/(P K |y|), the paper's; "token": 1/all tokens (DAPO); "constant": 1/(P K max_new_tokens) (Dr. GRPO).
    Made once, for the whole step, so that cutting it into micro-batches changes nothing.
    """
    n_prompts, k, longest = mask.shape
    weights = {
        "sequence": lambda: mask / (n_prompts * k * mask.sum(-1, keepdim=True).clamp(min=1)),
        "token": lambda: mask / mask.sum(),
        "constant": lambda: mask / (n_prompts * k * (max_new_tokens or longest)),
    }
    return weights[average]()


def kl_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(pi || ref) at each token: r - log r - 1 with r = ref/pi; never negative. Any shape."""
    log_ratio = ref_logp - logp
    return log_ratio.exp() - log_ratio - 1


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    weights: Tensor,
    clip: float = 0.2,
    ref_logp: Tensor | None = None,
    beta: float = 0.0,
) -> Tensor:
    """The clipped surrogate of p groups, to be minimised; all [p,K,L], advantages [p,K], `weights` from `token_weights`."""
    scored = weights > 0  # [p,K,L], as all that follow
    # Zeroed before exp: a masked position may hold anything, and inf * 0 would be NaN in the gradient.
    log_ratio = torch.where(scored, logp - old_logp, 0.0)
    ratio = log_ratio.exp()
    a = advantages[..., None]  # [p,K,1]
    gain = torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)
    if beta:
        gain = gain - beta * kl_k3(torch.where(scored, logp, 0.0), torch.where(scored, ref_logp, 0.0))
    return -(gain * weights).sum()


def pick_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """log pi(ids) under softmax(logits / temperature): logits [n,V], m ids a row [n,m] -> [n,m]."""
    scaled = logits.float()
    if temperature != 1:  # left out where it is 1: a copy of the logits costs n V 4 bytes, and its gradient as much
        scaled = scaled / temperature
    return scaled.gather(-1, ids) - scaled.logsumexp(-1, keepdim=True)


def token_logprobs(model: PreTrainedModel, rollouts: Rollouts, groups: Tensor, temperature: float) -> Tensor:
    """Log-probs of the completions of p groups, differentiable, at the sampling temperature: [p,K,L].

    `groups` [p] are their places among the P groups.
    """
    prompt_ids, prompt_mask = rollouts.prompt_ids[groups], rollouts.prompt_mask[groups]  # [p,T]
    ids, mask = rollouts.completion_ids[groups], rollouts.mask[groups]  # [p,K,L]
    padding = int(prompt_mask.argmax(-1).min())  # columns that none of these groups needs
    prompt_ids, prompt_mask = prompt_ids[:, padding:], prompt_mask[:, padding:]  # [p,T]
    longest, full = int(mask.sum(-1).max()), ids.shape[-1]
    ids, mask = ids[..., :longest].flatten(0, 1), mask[..., :longest].flatten(0, 1)  # [p*K,L]
    # Models are in eval mode except while gradient checkpointing is on, under which the library keeps no cache.
    path = over_shared_prompt if can_share_prompt(model) and not model.training else over_repeated_prompt
    logp = path(model, prompt_ids, prompt_mask, ids, mask, temperature)  # [p*K,L]
    return torch.nn.functional.pad(logp, (0, full - longest)).view(len(groups), -1, full)


def over_shared_prompt(
    model: PreTrainedModel, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor, temperature: float
) -> Tensor:
    """Read each prompt once and its K completions over that cache; gradients flow back through the cache, exactly. [p*K,L]"""
    p, k = len(prompt_ids), len(ids) // len(prompt_ids)
    cache = DynamicCache(config=model.config)
    first = read(model, prompt_ids, prompt_mask, cache, last_only=True)[:, -1]  # [p,V]
    first = pick_logprobs(first, ids[:, 0].view(p, k), temperature).view(p * k, 1)  # [p*K,1]
    if ids.shape[1] == 1:
        return first
    cache.batch_repeat_interleave(k)
    whole_mask = torch.cat([prompt_mask.repeat_interleave(k, 0), mask[:, :-1]], 1)  # [p*K,T+L-1]
    predicting = mask[:, 1:].bool()  # [p*K,L-1]; the logits at token t predict token t+1
    with head_reads_only(model, predicting):
        logits = read(model, ids[:, :-1], whole_mask, cache)[0]  # [n,V], n scored tokens
    rest = pick_logprobs(logits, ids[:, 1:][predicting][:, None], temperature)  # [n,1]
    # masked_scatter puts the n log-probs back at their places, row by row, and passes gradients.
    return torch.cat([first, torch.zeros(predicting.shape, device=ids.device).masked_scatter(predicting, rest)], 1)


def over_repeated_prompt(
    model: PreTrainedModel, prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor, temperature: float
) -> Tensor:
    """The plain way, for models whose cache cannot be repeated: every completion reads its own copy of the prompt. [p*K,L]"""
    k = len(ids) // len(prompt_ids)
    whole = torch.cat([prompt_ids.repeat_interleave(k, 0), ids[:, :-1]], 1)  # [p*K,T+L-1]
    whole_mask = torch.cat([prompt_mask.repeat_interleave(k, 0), mask[:, :-1]], 1)
    scored = mask.bool()  # [p*K,L]
    before = scored.new_zeros(len(ids), prompt_ids.shape[1] - 1)
    predicting = torch.cat([before, scored], 1)  # [p*K,T+L-1]; the last prompt token predicts the first of the completion
    with head_reads_only(model, predicting):
        logits = read(model, whole, whole_mask)[0]  # [n,V]
    return torch.zeros(ids.shape, device=ids.device).masked_scatter(
        scored, pick_logprobs(logits, ids[scored][:, None], temperature)
    )


@torch.no_grad()
def reference_logprobs(agent: Agent, rollouts: Rollouts, groups: Tensor, temperature: float) -> Tensor:
    """Log-probs under the policy that training began with: the bare base of an adapter, else the frozen copy."""
    if agent.adapter is not None:
        with lora.use(agent.model, None):
            return token_logprobs(agent.model, rollouts, groups, temperature)
    return token_logprobs(agent.reference, rollouts, groups, temperature)


def update(
    agent: Agent,
    rollouts: Rollouts,
    advantages: Tensor,
    *,
    temperature: float = 1.0,
    epochs: int = 1,
    clip: float = 0.2,
    beta: float = 0.0,
    average: str = "sequence",
    max_new_tokens: int | None = None,
    micro_batch: int = 8,
    max_grad_norm: float = 1.0,
) -> dict[str, float]:
    """One GRPO step: `epochs` optimizer steps on these rollouts, `micro_batch` groups in memory at a time.

    Groups without a signal (all advantages 0) add nothing to the gradient and are left out, unless there is a KL term;
    where no group has one, no step is taken.

    Returns loss and grad_norm, means over the epochs, and over the scored tokens approx_kl and clip_fraction, the share whose
    rho lies outside the clipping interval, whether or not the minimum takes the clipped side. With one epoch, no KL term and
    average="sequence" the *value* of the loss is 0 (rho is 1, and the advantages of a group sum to 0); its gradient is not.
    approx_kl then only shows how far sampler and learner disagree by rounding.
    Raises FloatingPointError when the loss or its gradient is not finite, before that optimizer step; or when weights are not,
    after it.
    """
    weights = token_weights(rollouts.mask, average, max_new_tokens)  # [P,K,L]
    advantages = advantages.to(agent.device)
    with_signal = advantages.abs().sum(-1).nonzero().squeeze(-1)  # the places of those groups
    everything = torch.arange(len(advantages), device=agent.device)
    chosen = everything if beta else with_signal  # the KL term speaks of every group
    old, totals = {}, {"loss": 0.0, "approx_kl": 0.0, "clip_fraction": 0.0, "grad_norm": 0.0}
    if not len(chosen):
        return totals
    n_tokens = int(rollouts.mask[chosen].sum()) * epochs
    for _ in range(epochs):
        agent.optimizer.zero_grad(set_to_none=True)
        for i, groups in enumerate(chosen.split(micro_batch)):
            with agent.in_use(), recomputing(agent):
                logp = token_logprobs(agent.model, rollouts, groups, temperature)  # [p,K,L]
            # The first pass *is* the old policy: rho is exactly 1 there (the sampler rounds otherwise), and what it was stays
            # fixed for the passes after it. Every epoch is cut alike, so i names the same groups.
            before = old.setdefault(i, logp.detach())
            ref = reference_logprobs(agent, rollouts, groups, temperature) if beta else None
            loss = policy_loss(logp, before, advantages[groups], weights[groups], clip, ref, beta)
            loss.backward()
            totals["loss"] += loss.item() / epochs
            add_ratio_means(totals, logp.detach(), before, rollouts, groups, clip, n_tokens)
        norm = torch.nn.utils.clip_grad_norm_(agent.parameters(), max_grad_norm).item()
        totals["grad_norm"] += norm / epochs
        if not math.isfinite(norm + totals["loss"]):
            raise FloatingPointError(f"agent {agent.name}: loss {totals['loss']:g} or gradient norm {norm:g} is not finite")
        agent.optimizer.step()
        if not all(p.isfinite().all() for p in agent.parameters()):  # else it would be saved as a good checkpoint
            raise FloatingPointError(f"agent {agent.name}: the step made weights that are not finite")
    return totals


@contextlib.contextmanager
def recomputing(agent: Agent):
    """Training mode, in which blocks are recomputed, where gradient checkpointing is on; dropout is 0 anyway."""
    agent.model.train(agent.checkpointing)
    try:
        yield
    finally:
        agent.model.eval()


def add_ratio_means(
    totals: dict[str, float],
    logp: Tensor,
    before: Tensor,
    rollouts: Rollouts,
    groups: Tensor,
    clip: float,
    n_tokens: int,
) -> None:
    """approx_kl: k3 from the policy *as it was sampled* to now, so a sampler that disagrees with the learner shows too."""
    mask = rollouts.mask[groups]
    totals["approx_kl"] += (kl_k3(rollouts.logprobs[groups], logp) * mask).sum().item() / n_tokens
    totals["clip_fraction"] += (((logp - before).exp() - 1).abs().gt(clip) * mask).sum().item() / n_tokens
