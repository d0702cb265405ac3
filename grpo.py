"""GRPO from the first token to the optimizer step: an agent writes, its groups are compared, it learns.

One question is answered K times; the K completions are a *group*. A completion is good when its reward is above the mean
of its group, so no value network is needed:

    A_k  = (r_k - mean(r)) / std(r)                                                                       (advantage)
    loss = -(1/K) sum_k (1/|y_k|) sum_t min(rho A_k, clip(rho, 1 - delta, 1 + delta) A_k) + beta KL(pi || pi_ref)
    rho  = pi(token) / pi_old(token), of token t of completion y_k; pi_old is the policy that wrote it, delta is `clip`

What to know beside the paper (Shao et al. 2024, DeepSeekMath, eq. 3), and where most GRPO code differs:
  - A prompt is read once per group, when sampling and when learning: its keys and values are repeated for the K completions,
    and the gradient flows back through them, exactly. (Learning reads it K times with gradient checkpointing, or where a
    model's cache cannot be copied.) Rows that have ended leave the batch (tests/test_grpo.py).
  - A token is drawn by inverting the cumulative distribution at one number fixed beforehand, so that a rollout does not depend
    on its neighbours. Of the model's own generation_config nothing but the end tokens is used.
  - A unanimous group has advantage exactly 0 (no epsilon under the fraction), and without a KL term the model is not run on it.
  - One pass over fresh rollouts is on-policy: rho is 1 in value and carries the gradient, so nothing is ever clipped.
  - Dropout is off: the policy that is scored is the policy that was sampled.

Shapes: P prompts, K rollouts of each, T prompt tokens, L completion tokens, V vocabulary; p groups or n rows in memory at a time.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import lora
from lab.data import Problem, Prompt, UserError
from lab.models import (
    can_share_prompt,
    chat,
    check_room,
    encode_all,
    end_tokens,
    inputs,
    read_answers,
    spoken,
    stopped,
    with_own_prompt,
)
from lab.vision import Cache

# ---------------------------------------------------------------- an agent and what it wrote


@dataclass
class Agent:
    """A policy: a language model, or one LoRA adapter of a model that several agents share."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    adapter: str | int | None = None  # the adapter that is this agent; None: the model's own weights are
    optimizer: torch.optim.Optimizer | None = None
    answer_style: str = "boxed"  # how an answer is read from a completion (lab.models.read_answers)
    system: str | None = None
    rephrase: bool = False  # reads `Problem.rephrased` where there is one (the paper's data decoupling)
    thinking: bool = False  # asks chat templates that know the switch for private reasoning first (Qwen3)
    stop: str | None = None  # ends a completion besides the end token; base models need one, such as a line break
    checkpointing: bool = False  # activations are recomputed while learning (`lora.checkpointing` has been called)
    reference: PreTrainedModel | None = None  # frozen copy for the KL term; None with adapters: theirs is the bare base
    agrees: bool = False  # what it sampled was compared with what it scores (`check_agreement`), once, before its first step

    @property
    def device(self) -> torch.device:
        return self.model.device

    def prompt(self, problem: Problem) -> Prompt:
        """The text this agent is given: its form of the question in its own chat template."""
        return self.wrap(problem.rephrased if self.rephrase and problem.rephrased else problem.question, problem)

    def wrap(self, question: str, problem: Problem | None = None) -> Prompt:
        """A question, and the picture of its problem, in this agent's chat template, up to where its answer begins."""
        sees = problem is not None and problem.image is not None
        return Prompt(chat(question, self.tokenizer, self.system, self.thinking, sees), problem)

    def parameters(self) -> list[torch.nn.Parameter]:
        """What training moves: the adapter, or every weight of the model."""
        return list(lora.parameters(self.model, self.adapter) if self.adapter is not None else self.model.parameters())

    def in_use(self) -> contextlib.AbstractContextManager:
        """Context in which `self.model` *is* this agent."""
        return lora.use(self.model, self.adapter)


@dataclass
class Rollouts:
    """K completions of each of P prompts, written by one agent. The values are those of the policy that was sampled."""

    prompt_ids: Tensor  # [P,T], left-padded
    prompt_mask: Tensor  # [P,T]
    completion_ids: Tensor  # [P,K,L], right-padded
    mask: Tensor  # [P,K,L], 1 through the first end token: found by position, since pad and end are often one id
    logprobs: Tensor  # [P,K,L]
    entropy: Tensor  # [P,K], mean over tokens, nats
    certainty: Tensor  # [P,K], mean over tokens of KL(uniform || policy) up to the constant log V
    finished: Tensor  # [P,K], bool: an end token was written
    texts: list[list[str]] = field(default_factory=list)
    answers: list[list[str | None]] = field(default_factory=list)  # a truncated completion has none
    seen: list[dict[str, Tensor]] = field(default_factory=list)  # P, what the prompts' pictures became (`encode_all`)

    def prompts(self, some: slice) -> "Rollouts":
        """The rollouts of some of the prompts: every tensor and list has them first."""
        return Rollouts(**{name: value[some] for name, value in vars(self).items()})

    def first(self, k: int) -> "Rollouts":
        """The first k of each prompt. All are drawn alike, so the first k are as good as any."""
        whole = {n: x for n, x in vars(self).items() if n in ("prompt_ids", "prompt_mask", "seen")}
        cut = {n: [g[:k] for g in x] if isinstance(x, list) else x[:, :k] for n, x in vars(self).items() if n not in whole}
        return Rollouts(**whole | cut)


# ---------------------------------------------------------------- sampling


def left_pad(sequences: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token lists to (ids [P,T], mask [P,T]), padded on the left so that every prompt ends where its completion begins."""
    longest = max(map(len, sequences))
    ids = torch.tensor([[pad] * (longest - len(s)) + list(s) for s in sequences], device=device)
    return ids, torch.tensor([[0] * (longest - len(s)) + [1] * len(s) for s in sequences], device=device)


def forward(model, ids: Tensor, mask: Tensor, cache: Cache | None = None, last_only: bool = False, seen=()) -> Tensor:
    """One forward pass: logits of `ids` [n,S], which continue what `cache` holds, and are added to it.

    `mask` [n,cached+S] covers both, and gives each token its position: padding does not count. `seen`: what each row sees.
    Returns [n,S,V], or [n,1,V] with `last_only` (the library's logits_to_keep: 1 keeps the last position, 0 keeps all).
    """
    return model(**inputs(model, ids, mask, cache, seen), logits_to_keep=int(last_only)).logits


def draw_token(
    logits: Tensor, temperature: float, uniform: Tensor, top_p: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution at `uniform` [n] in [0,1).

    temperature 0 takes the most probable token (log-probs are then those at temperature 1). top_p below 1 draws from the fewest
    most probable tokens that have this probability in all (Holtzman et al. 2020). The values stay those of the whole
    distribution: top_p serves evaluation and is never trained on.
    Returns token, its log-prob, entropy and certainty of the distribution, each [n].
    """
    scaled = logits.float() if temperature in (0, 1) else logits.float() / temperature  # [n,V]
    log_z = scaled.logsumexp(-1)  # [n]
    if not log_z.isfinite().all():
        raise FloatingPointError("the model's logits are not finite")
    probs = (scaled - log_z[:, None]).exp_()  # [n,V]
    entropy = log_z - torch.linalg.vecdot(probs, scaled)  # [n]
    if temperature == 0:
        token = scaled.argmax(-1)
    else:
        if top_p < 1:
            ranked, places = probs.sort(-1, descending=True)  # [n,V]
            probs.scatter_(-1, places, ranked.masked_fill(ranked.cumsum(-1) - ranked >= top_p, 0.0))
        cumulative = probs.cumsum_(-1)  # [n,V], in place: with V = 150,000 a copy costs time and memory
        # The factor keeps rounding from pointing behind the last token that has any probability.
        target = uniform[:, None].to(probs) * cumulative[:, -1:] * (1 - 1e-6)  # [n,1]
        token = torch.searchsorted(cumulative, target, right=True).squeeze(-1)  # [n]
    return token, scaled.gather(-1, token[:, None]).squeeze(-1) - log_z, entropy, log_z - scaled.mean(-1)


def sample(
    agent: Agent, prompts: Sequence[str], k: int, max_new_tokens: int, temperature=1.0, generator=None, top_p: float = 1.0
) -> Rollouts:
    """K completions of each prompt by one agent. `generator` lives on the CPU, so that every device draws alike."""
    return sample_cohort([agent], [prompts], k, max_new_tokens, temperature, [generator], top_p)[0]


def sample_cohort(
    agents: Sequence[Agent], prompts: Sequence[Sequence[str]], k: int, max_new_tokens: int, temperature=1.0, generators=None,
    top_p: float = 1.0, write=None,
) -> list[Rollouts]:
    """Every agent's rollouts, `prompts[n]` for agent n; agents that share one base are sampled in one pass over it.

    write: what stands in the place of `complete`, if anything does (lab/engine.py).
    """
    generators, rollouts = generators or [None] * len(agents), [None] * len(agents)
    for model in {id(a.model): a.model for a in agents}.values():
        who = [n for n, a in enumerate(agents) if a.model is model]
        uniform = torch.cat([torch.rand(len(prompts[n]) * k, max_new_tokens, generator=generators[n]) for n in who])
        ids, seen = zip(*[encode_all(text, agents[n].tokenizer) for n in who for text in prompts[n]], strict=True)
        adapters = [agents[n].adapter for n in who for _ in prompts[n]]
        first, start = agents[who[0]], 0  # agents of one base have one tokenizer, and one --stop
        try:
            written = (write or complete)(model, first.tokenizer, ids, adapters, k, temperature, uniform, first.stop, top_p, seen)
        except FloatingPointError as error:
            raise FloatingPointError(f"agent {'/'.join(agents[n].name for n in who)}: {error}") from None
        for n in who:
            part = rollouts[n] = written.prompts(slice(start, start + len(prompts[n])))
            start += len(prompts[n])
            part.answers = read_answers(agents[n].answer_style, prompts[n], part.texts, part.finished.tolist())
    return rollouts


@torch.no_grad()
def complete(model, tokenizer, prompts: Sequence[Sequence[int]], adapters: Sequence, k: int, temperature: float,
             uniform: Tensor, stop: str | None = None, top_p: float = 1.0, seen: Sequence[dict] = ()) -> Rollouts:  # fmt: skip
    """The one sampling loop. `uniform` [P*K,L] are the numbers that decide each draw; `adapters[i]` writes for prompt i.

    The prompts are read once, and seen[i], what prompt i shows, with them; their cache is repeated K times, and rows that have
    written an end leave the batch.
    """
    silent = end_tokens(model, tokenizer)  # no part of the text; of the token that completes `stop`, what stands before it is
    ends = torch.tensor(sorted(silent), device=model.device)
    prompt_ids, prompt_mask = left_pad(prompts, int(ends[0]), model.device)  # [P,T]
    rows, most = uniform.shape  # P*K, max_new_tokens
    check_room(model, prompt_ids.shape[1], most)
    tokens = torch.full((rows, most), int(ends[0]), device=model.device)  # [P*K,L]
    values = torch.zeros(3, rows, most, device=model.device)  # log-prob, entropy, certainty of each token
    finished = torch.zeros(rows, dtype=torch.bool, device=model.device)
    lengths = torch.full((rows,), most, device=model.device)  # [P*K], through the first end: known by its place

    def writing(prompt: list[int]):  # row i of the batch goes through the adapter that writes for its prompt
        return lora.use(model, adapters[0] if len(set(adapters)) == 1 else [adapters[i] for i in prompt])

    cache, uniform = Cache(config=model.config), uniform.to(model.device)
    with writing(list(range(len(prompts)))):
        logits = forward(model, prompt_ids, prompt_mask, cache, last_only=True, seen=seen)[:, -1]  # [P,V]
    alive = torch.arange(rows, device=model.device)  # which rollouts the batch still holds
    cache.reorder_cache(alive // k)  # meant for beam search: repeats each prompt's row K times, in every kind of cache
    logits, mask = logits[alive // k], prompt_mask[alive // k]  # [P*K,V], [P*K,T]
    for t in range(most):
        token, *value = draw_token(logits, temperature, uniform[alive, t], top_p)
        tokens[alive, t], values[:, alive, t] = token, torch.stack(value)
        ended = torch.isin(token, ends)
        if stop:
            ended |= stopped(tokenizer, tokens[alive, : t + 1], stop)
        finished[alive[ended]], lengths[alive[ended]] = True, t + 1
        if ended.all() or t + 1 == most:
            break
        if ended.any():
            cache.reorder_cache((~ended).nonzero().squeeze(-1))
            alive, token, mask = alive[~ended], token[~ended], mask[~ended]
        mask = pad(mask, (0, 1), value=1)
        with writing((alive // k).tolist()):
            logits = forward(model, token[:, None], mask, cache)[:, -1]

    written = (torch.arange(most, device=model.device) < lengths[:, None]).long()  # [P*K,L]
    longest = int(lengths.max())
    texts = [spoken(tokenizer, row, n, silent, stop) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    means = values[:, :, :longest].sum(-1) / lengths  # [3,P*K]
    found = tokens[:, :longest], written[:, :longest], values[0, :, :longest], means[1], means[2], finished
    groups = [x.unflatten(0, (len(prompts), k)) for x in found]  # [P*K,...] -> [P,K,...]
    return Rollouts(prompt_ids, prompt_mask, *groups, [texts[i : i + k] for i in range(0, rows, k)], seen=list(seen))


# ---------------------------------------------------------------- the advantage and the loss


def group_advantages(rewards: Tensor, scale: bool = True) -> Tensor:
    """Rewards [P,K] to advantages [P,K]: centred on each group and, with `scale`, divided by its population std
    (of the K rewards themselves, as in the paper's example and in `dynamics.spread`).

    A group whose rewards are all equal gives exactly 0. `scale=False` is Dr. GRPO (Liu et al. 2025).
    """
    unanimous = (rewards == rewards[:, :1]).all(-1, keepdim=True)  # [P,1]
    std = rewards.std(-1, correction=0, keepdim=True) if scale else 1.0  # [P,1]
    return torch.where(unanimous, 0.0, (rewards - rewards.mean(-1, keepdim=True)) / torch.where(unanimous, 1.0, std))


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
    if average == "token":
        return mask / mask.sum()
    each = mask.sum(-1, keepdim=True).clamp(min=1) if average == "sequence" else max_new_tokens or longest
    return mask / (n_prompts * k * each)


def kl_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(pi || ref) at each token: r - log r - 1 with r = ref/pi; never negative. Any shape."""
    log_ratio = ref_logp - logp
    return log_ratio.exp() - log_ratio - 1


def policy_loss(logp, old_logp, advantages, weights, clip: float = 0.2, ref_logp=None, beta: float = 0.0) -> Tensor:
    """The clipped surrogate of p groups, to be minimised; all [p,K,L], advantages [p,K], `weights` from `token_weights`."""
    scored = weights > 0  # [p,K,L], as all that follow
    # Zeroed before exp: a masked position may hold anything, and inf * 0 would be NaN in the gradient.
    ratio = torch.where(scored, logp - old_logp, 0.0).exp()
    a = advantages[..., None]  # [p,K,1]
    gain = torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)
    if beta:
        gain = gain - beta * kl_k3(torch.where(scored, logp, 0.0), torch.where(scored, ref_logp, 0.0))
    return -(gain * weights).sum()


# ---------------------------------------------------------------- log-probs of what was written, with their gradient


def pick_logprobs(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """log pi(ids) under softmax(logits / temperature): logits [n,V], m ids a row [n,m] -> [n,m]."""
    scaled = logits.float()
    if temperature != 1:  # left out where it is 1: a copy of the logits costs n V 4 bytes, and its gradient as much
        scaled = scaled / temperature
    return scaled.gather(-1, ids) - scaled.logsumexp(-1, keepdim=True)


def token_logprobs(model: PreTrainedModel, rollouts: Rollouts, groups: Tensor, temperature: float) -> Tensor:
    """Log-probs [p,K,L] of the completions of the groups at the places `groups` [p], at the sampling temperature."""
    prompt_ids, prompt_mask = rollouts.prompt_ids[groups], rollouts.prompt_mask[groups]  # [p,T]
    ids, mask = rollouts.completion_ids[groups].flatten(0, 1), rollouts.mask[groups].flatten(0, 1)  # [p*K,L]
    seen = [rollouts.seen[i] for i in groups.tolist() if rollouts.seen]
    padding, longest, full = int(prompt_mask.argmax(-1).min()), int(mask.sum(-1).max()), ids.shape[-1]  # not all is needed
    batch = prompt_ids[:, padding:], prompt_mask[:, padding:], ids[:, :longest], mask[:, :longest]
    # Models are in eval mode except while gradient checkpointing is on, under which the library keeps no cache.
    if can_share_prompt(model) and not model.training:
        logp = over_shared_prompt(model, *batch, temperature, seen)
    else:
        seen = [one for one in seen for _ in range(len(ids) // len(groups))]
        logp = next_logprobs(model, *with_own_prompt(*batch), None, temperature, seen)[:, -longest:]
    return pad(logp, (0, full - longest)).view(len(groups), -1, full)


@contextlib.contextmanager
def head_reads_only(model: PreTrainedModel, wanted: Tensor):
    """Within it the output layer sees the positions `wanted` [n,S] (bool) alone: logits come out as [1,wanted.sum(),V].

    With a vocabulary of 150,000 the logits are what fills memory; padding should not have any.
    """
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, args: (args[0][wanted][None], *args[1:]))
    try:
        yield
    finally:
        hook.remove()


def over_shared_prompt(model, prompt_ids, prompt_mask, ids: Tensor, mask: Tensor, temperature: float, seen=()) -> Tensor:
    """Read each prompt once and its K completions over that cache; gradients flow back through it, exactly. [p*K,L]"""
    p, k, cache = len(prompt_ids), len(ids) // len(prompt_ids), Cache(config=model.config)
    first = forward(model, prompt_ids, prompt_mask, cache, last_only=True, seen=seen)[:, -1]  # [p,V]
    first = pick_logprobs(first, ids[:, 0].view(p, k), temperature).view(p * k, 1)  # [p*K,1]
    if ids.shape[1] == 1:
        return first
    cache.batch_repeat_interleave(k)
    whole_mask = torch.cat([prompt_mask.repeat_interleave(k, 0), mask[:, :-1]], 1)  # [p*K,T+L-1]
    rest = next_logprobs(model, ids[:, :-1], whole_mask, ids[:, 1:], mask[:, 1:], cache, temperature)  # [p*K,L-1]
    return torch.cat([first, rest], 1)


def next_logprobs(model, ids, mask, wanted: Tensor, scored: Tensor, cache, temperature: float, seen=()) -> Tensor:
    """Log-probs of `wanted` [n,S] as the tokens that follow `ids` [n,S]; 0 where not `scored`, and no logits are made there."""
    scored = scored.bool()
    with head_reads_only(model, scored):
        logits = forward(model, ids, mask, cache, seen=seen)[0]  # [m,V], m scored tokens
    found = pick_logprobs(logits, wanted[scored][:, None], temperature)  # [m,1]
    # masked_scatter puts them back at their places, row by row, and passes gradients.
    return torch.zeros(scored.shape, device=ids.device).masked_scatter(scored, found)


def policy_logprobs(agent: Agent, rollouts: Rollouts, groups: Tensor, temperature: float) -> Tensor:
    """Log-probs under the policy that is trained, with their gradient."""
    agent.model.train(agent.checkpointing)  # blocks are recomputed in training mode only; dropout is 0 anyway
    try:
        with agent.in_use():
            return token_logprobs(agent.model, rollouts, groups, temperature)  # [p,K,L]
    finally:
        agent.model.eval()


@torch.no_grad()
def reference_logprobs(agent: Agent, rollouts: Rollouts, groups: Tensor, temperature: float) -> Tensor:
    """Log-probs under the policy that training began with: the bare base of an adapter, else the frozen copy."""
    with lora.use(agent.model, None):
        return token_logprobs(agent.reference or agent.model, rollouts, groups, temperature)


# ---------------------------------------------------------------- the update


def check_agreement(agent: Agent, sampled: Tensor, scored: Tensor, mask: Tensor, temperature: float) -> None:
    """UserError where log-probs of the same tokens by the same weights differ, all [..., L]: another policy would learn.

    So it is with a model that reads what comes after, keeps its state elsewhere than in the cache, or is given wrong positions.
    Rounding takes 1e-5 of a token in float32 (8e-4 in hybrids); in bfloat16 .2 of single tokens, .04 on average.
    """
    gaps = (sampled - scored).detach().abs()[mask.bool()] * min(1.0, temperature or 1.0)  # logits are divided by it
    exact = agent.model.dtype.itemsize > 2
    if (gap := (gaps.max() if exact else gaps.mean()).item()) > (1e-3 if exact else 0.2):
        raise UserError(f"agent {agent.name} ({type(agent.model).__name__}) scores its own tokens as another model than it wrote "
                        f"them as, log-probs {gap:.2g} apart: it cannot be trained here; choose another model")  # fmt: skip


def update(
    agent: Agent, rollouts: Rollouts, advantages: Tensor, *, temperature: float = 1.0, epochs: int = 1, clip: float = 0.2,
    beta: float = 0.0, average="sequence", max_new_tokens: int | None = None, rows: int = 64, max_grad_norm=1.0,
) -> dict[str, float]:  # fmt: skip
    """One GRPO step: `epochs` optimizer steps on these rollouts, groups of about `rows` completions in memory at a time.

    Groups without a signal (all advantages 0) add nothing to the gradient and are left out, unless there is a KL term;
    where no group has one, no step is taken.

    Returns loss and grad_norm, means over the epochs, and over the scored tokens approx_kl (k3 from the policy *as it was
    sampled* to now, so a sampler that disagrees with the learner shows too) and clip_fraction, the share whose rho lies outside
    the clipping interval. With one epoch, no KL term and average="sequence" the *value* of the loss is 0 (rho is 1, and the
    advantages of a group sum to 0); its gradient is not.
    Raises FloatingPointError when the loss or its gradient is not finite, before that optimizer step; or when weights are not,
    after it.
    """
    weights, advantages = token_weights(rollouts.mask, average, max_new_tokens), advantages.to(agent.device)  # [P,K,L], [P,K]
    chosen = (advantages.abs().sum(-1) if not beta else torch.ones(len(advantages), device=agent.device)).nonzero().squeeze(-1)
    old, totals = {}, dict.fromkeys(("loss", "approx_kl", "clip_fraction", "grad_norm"), 0.0)
    if not len(chosen):
        return totals
    n_tokens = int(rollouts.mask[chosen].sum()) * epochs
    for _ in range(epochs):
        agent.optimizer.zero_grad(set_to_none=True)
        for i, groups in enumerate(chosen.split(max(1, rows // rollouts.mask.shape[1]))):
            logp = policy_logprobs(agent, rollouts, groups, temperature)  # [p,K,L]
            # The first pass *is* the old policy: rho is exactly 1 there (sampling rounds differently), and what it was stays
            # fixed for the passes after it. Every epoch is cut alike, so i names the same groups.
            before = old.setdefault(i, logp.detach())
            if not agent.agrees:
                check_agreement(agent, rollouts.logprobs[groups], before, rollouts.mask[groups], temperature)
            ref = reference_logprobs(agent, rollouts, groups, temperature) if beta else None
            loss = policy_loss(logp, before, advantages[groups], weights[groups], clip, ref, beta)
            loss.backward()
            now, mask = logp.detach(), rollouts.mask[groups]
            totals["loss"] += loss.item() / epochs
            totals["approx_kl"] += (kl_k3(rollouts.logprobs[groups], now) * mask).sum().item() / n_tokens
            totals["clip_fraction"] += (((now - before).exp() - 1).abs().gt(clip) * mask).sum().item() / n_tokens
        norm = torch.nn.utils.clip_grad_norm_(agent.parameters(), max_grad_norm).item()
        totals["grad_norm"] += norm / epochs
        if not math.isfinite(norm + totals["loss"]):
            raise FloatingPointError(f"agent {agent.name}: loss {totals['loss']:g} or gradient norm {norm:g} is not finite")
        agent.agrees = True
        agent.optimizer.step()
        if not all(p.isfinite().all() for p in agent.parameters()):  # else it would be saved as a good checkpoint
            raise FloatingPointError(f"agent {agent.name}: the step made weights that are not finite")
    return totals
