"""An agent and how it writes: reading with a cache, drawing tokens, the one sampling loop.

The prompt is read once per group: its keys and values are repeated for the K completions, which continue over them. Rows that
have ended leave the batch, so the cost follows the tokens written and not the longest completion. Neither changes what is
written (tests/test_rollout.py).

Differences from `model.generate`:
  - Our options alone decide how tokens are drawn: the model's own generation_config is used for nothing but its end tokens.
  - A token is drawn by inverting the cumulative distribution at one uniform number fixed beforehand, so that a rollout does not
    depend on which others share its batch.
  - Log-prob, entropy and certainty of the sampled policy, at the sampling temperature, come out of the same pass.

Shapes: P prompts, K rollouts of each, T prompt tokens, L completion tokens, V vocabulary.
"""

import contextlib
import functools
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

import lora
from answers import extract_answer
from tasks import Problem, UserError, chat, encode

log = logging.getLogger(__name__)


# ---------------------------------------------------------------- an agent and what it wrote


@dataclass
class Agent:
    """A policy: a language model, or one LoRA adapter of a model that several agents share.

    Attributes:
        adapter: name of the adapter that is this agent; None when the model's own weights are.
        answer: how an answer is read from a completion, "boxed" or "number" (`answers.extract_answer`).
        rephrase: reads `Problem.rephrased` where there is one (the paper's data decoupling).
        thinking: asks chat templates that know the switch for private reasoning first (Qwen3).
        stop: text that ends a completion besides the end token; a base model that never ends needs one, such as a line break.
        checkpointing: activations are recomputed while learning (`lora.checkpointing` has been called on the model).
        reference: frozen copy for the KL term; None with adapters, whose reference is the bare base.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    adapter: str | int | None = None
    optimizer: torch.optim.Optimizer | None = None
    answer: str = "boxed"
    system: str | None = None
    rephrase: bool = False
    thinking: bool = False
    stop: str | None = None
    checkpointing: bool = False
    reference: PreTrainedModel | None = None

    @property
    def device(self) -> torch.device:
        return self.model.device

    def prompt(self, problem: Problem) -> str:
        """The text this agent is given: its form of the question in its own chat template."""
        return self.wrap(problem.rephrased if self.rephrase and problem.rephrased else problem.question)

    def wrap(self, question: str) -> str:
        """A question in this agent's chat template, up to where its answer begins."""
        return chat(question, self.tokenizer, self.system, self.thinking)

    def parameters(self) -> list[torch.nn.Parameter]:
        """What training moves: the adapter, or every weight of the model."""
        return list(lora.parameters(self.model, self.adapter) if self.adapter is not None else self.model.parameters())

    def in_use(self) -> contextlib.AbstractContextManager:
        """Context in which `self.model` *is* this agent."""
        return lora.use(self.model, self.adapter) if self.adapter is not None else contextlib.nullcontext()


@dataclass
class Rollouts:
    """K completions of each of P prompts, written by one agent.

    `mask` is 1 through the first end token, inclusive: found by its position, since pad and end are often one id.
    `logprobs`, `entropy` and `certainty` are those of the policy that was sampled, at its temperature.
    """

    prompt_ids: Tensor  # [P,T], left-padded
    prompt_mask: Tensor  # [P,T]
    completion_ids: Tensor  # [P,K,L], right-padded
    mask: Tensor  # [P,K,L]
    logprobs: Tensor  # [P,K,L]
    entropy: Tensor  # [P,K], mean over tokens, nats
    certainty: Tensor  # [P,K], mean over tokens of KL(uniform || policy) up to the constant log V
    finished: Tensor  # [P,K], bool: an end token was written
    texts: list[list[str]] = field(default_factory=list)
    answers: list[list[str | None]] = field(default_factory=list)  # a truncated completion has none


# ---------------------------------------------------------------- reading: one forward pass, with or without a cache


@functools.cache
def tokens_with(tokenizer: PreTrainedTokenizerBase, text: str) -> frozenset[int]:
    """Ids of all tokens that hold `text`; looked up once, a vocabulary is large."""
    found = frozenset(i for i in range(len(tokenizer)) if text in tokenizer.decode([i]))
    if not found:
        raise UserError(f"no single token of this model holds the --stop text {text!r}: choose a shorter one")
    return found


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids that end a completion: the tokenizer's, and those the model declares (chat models often have two)."""
    found: set[int] = set()
    declared = getattr(model.config.get_text_config(), "eos_token_id", None)  # a model with eyes has a part for text
    for ids in (tokenizer.eos_token_id, declared, model.generation_config.eos_token_id):
        found.update([ids] if isinstance(ids, int) else ids or [])
    if not found:
        raise UserError(
            "this model has no end-of-sequence token, so its completions could never end: set tokenizer.eos_token"
        )
    return frozenset(found)


def left_pad(sequences: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token lists to (ids [P,T], mask [P,T]), padded on the left so that every prompt ends where its completion begins."""
    longest = max(map(len, sequences))
    ids = torch.tensor([[pad] * (longest - len(s)) + list(s) for s in sequences], device=device)
    mask = torch.tensor([[0] * (longest - len(s)) + [1] * len(s) for s in sequences], device=device)
    return ids, mask


@functools.cache
def cache_argument(kind: type) -> str:
    """What this class of model calls its cache: transformers 5.24 renamed the argument, and warns about the old name."""
    return "cache" if "cache" in inspect.signature(kind.forward).parameters else "past_key_values"


def read(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, cache: DynamicCache | None = None, last_only: bool = False
) -> Tensor:
    """Logits of `ids` [B,S], which continue what `cache` holds; `mask` [B,S+cached] covers both.

    Returns [B,S,V], or [B,1,V] with `last_only`. The cache, if given, takes in what was read.
    """
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]  # padding does not count
    cache_name = cache_argument(type(model))
    options = {"use_cache": False} if cache is None else {cache_name: cache, "use_cache": True}
    keep = int(last_only)  # by the library's convention 1 is the last position, 0 all of them
    return model(ids, attention_mask=mask, position_ids=positions, logits_to_keep=keep, **options).logits


def can_share_prompt(model: PreTrainedModel) -> bool:
    """Whether the keys and values of a prompt can be repeated for its K completions (not so for recurrent states)."""
    shareable = all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in DynamicCache(config=model.config).layers
    )
    if not shareable and not getattr(model, "_said_plain", False):
        log.warning("%s keeps a recurrent state: each prompt is read K times instead of once", type(model).__name__)
        model._said_plain = True
    return shareable


@contextlib.contextmanager
def head_reads_only(model: PreTrainedModel, wanted: Tensor):
    """Within it the output layer sees the positions `wanted` [B,S] (bool) alone: logits come out as [1,wanted.sum(),V].

    With a vocabulary of 150,000 the logits are what fills memory; padding should not have any.
    """
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, args: (args[0][wanted][None], *args[1:]))
    try:
        yield
    finally:
        hook.remove()


# ---------------------------------------------------------------- sampling


def draw(logits: Tensor, temperature: float, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw one token a row by inverting the cumulative distribution at `uniform` [n] in [0,1).

    One number a row, whatever else is in the batch: rows that leave do not change what the others draw.
    temperature 0 takes the most probable token (log-probs are then those at temperature 1).

    Returns token, its log-prob, entropy and certainty of the distribution, each [n].
    """
    scaled = logits.float()  # [n,V]
    if temperature not in (0, 1):
        scaled = scaled / temperature
    log_z = scaled.logsumexp(-1)  # [n]
    if not log_z.isfinite().all():
        raise FloatingPointError("the model's logits are not finite")
    probs = (scaled - log_z[:, None]).exp_()  # [n,V]
    entropy = log_z - torch.linalg.vecdot(probs, scaled)  # [n]
    if temperature == 0:
        token = scaled.argmax(-1)
    else:
        cumulative = probs.cumsum_(-1)  # [n,V], in place: with V = 150,000 a copy costs time and memory
        # The factor keeps rounding from pointing behind the last token that has any probability.
        target = uniform[:, None].to(probs) * cumulative[:, -1:] * (1 - 1e-6)  # [n,1]
        token = torch.searchsorted(cumulative, target, right=True).squeeze(-1)  # [n]
    logprob = scaled.gather(-1, token[:, None]).squeeze(-1) - log_z
    return token, logprob, entropy, log_z - scaled.mean(-1)


def sample(
    agent: Agent,
    prompts: Sequence[str],
    k: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Rollouts:
    """K completions of each prompt by one agent. `generator` lives on the CPU, so that every device draws alike."""
    return sample_cohort([agent], [prompts], k, max_new_tokens, temperature, [generator])[0]


def sample_cohort(
    agents: Sequence[Agent],
    prompts: Sequence[Sequence[str]],
    k: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    generators: Sequence[torch.Generator | None] | None = None,
) -> list[Rollouts]:
    """Every agent's rollouts, `prompts[n]` for agent n; agents that share one base are sampled in one pass over it."""
    generators = generators or [None] * len(agents)
    rollouts: list[Rollouts | None] = [None] * len(agents)
    for model in {id(a.model): a.model for a in agents}.values():
        who = [n for n, a in enumerate(agents) if a.model is model]
        uniform = torch.cat([torch.rand(len(prompts[n]) * k, max_new_tokens, generator=generators[n]) for n in who])
        ids = [encode(text, agents[n].tokenizer) for n in who for text in prompts[n]]
        adapters = [agents[n].adapter for n in who for _ in prompts[n]]
        first = agents[who[0]]  # agents of one base have one tokenizer, and one --stop
        try:
            written = complete(model, first.tokenizer, ids, adapters, k, temperature, uniform, first.stop)
        except FloatingPointError as error:
            raise FloatingPointError(f"agent {'/'.join(agents[n].name for n in who)}: {error}") from None
        for n, part in zip(who, split_rollouts(written, [len(prompts[n]) for n in who]), strict=True):
            part.answers = [
                [extract_answer(text, agents[n].answer) if done else None for text, done in zip(*group, strict=True)]
                for group in zip(part.texts, part.finished.tolist(), strict=True)
            ]
            rollouts[n] = part
    return rollouts


def split_rollouts(rollouts: Rollouts, sizes: Sequence[int]) -> list[Rollouts]:
    """Cut along the prompts; every tensor and list has them first."""
    parts, start = [], 0
    for size in sizes:
        parts.append(Rollouts(**{name: value[start : start + size] for name, value in vars(rollouts).items()}))
        start += size
    return parts


@torch.no_grad()
def complete(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    adapters: Sequence[str | int | None],
    k: int,
    temperature: float,
    uniform: Tensor,
    stop: str | None = None,
) -> Rollouts:
    """The one sampling loop. `uniform` [P*K,L] are the numbers that decide each draw; `adapters[i]` writes for prompt i.

    The prompts are read once, their cache is repeated K times, and rows that have written an end leave the batch.
    """
    silent = end_tokens(model, tokenizer)  # these are no part of the text; a token that holds `stop` is, up to it
    ends = torch.tensor(sorted(silent | (tokens_with(tokenizer, stop) if stop else set())), device=model.device)
    prompt_ids, prompt_mask = left_pad(prompts, int(ends[0]), model.device)  # [P,T]
    rows, most = uniform.shape  # P*K, max_new_tokens
    check_context(model, prompt_ids.shape[1], most)
    tokens = torch.full((rows, most), int(ends[0]), device=model.device)  # [P*K,L]
    logprobs, entropy, certainty = (torch.zeros(rows, most, device=model.device) for _ in range(3))
    finished = torch.zeros(rows, dtype=torch.bool, device=model.device)

    share = can_share_prompt(model)
    repeats = 1 if share else k
    cache = DynamicCache(config=model.config)
    mask = prompt_mask.repeat_interleave(repeats, 0)
    with adapter_rows(model, adapters, repeats):
        logits = read(model, prompt_ids.repeat_interleave(repeats, 0), mask, cache, last_only=True)[:, -1]
    if share:
        cache.batch_repeat_interleave(k)
        logits, mask = (x.repeat_interleave(k, 0) for x in (logits, mask))  # [P*K,V], [P*K,T]

    alive = torch.arange(rows, device=model.device)  # which rollouts the batch still holds
    uniform = uniform.to(model.device)
    for t in range(most):
        token, *values = draw(logits, temperature, uniform[alive, t])
        tokens[alive, t] = token
        for store, value in zip((logprobs, entropy, certainty), values, strict=True):
            store[alive, t] = value
        ended = torch.isin(token, ends)
        finished[alive[ended]] = True
        if finished.all() or t + 1 == most:
            break
        if share and ended.any():
            cache.batch_select_indices(~ended)
            alive, token, mask = alive[~ended], token[~ended], mask[~ended]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        with adapter_rows(model, [adapters[i] for i in (alive // k).tolist()] if adapters[0] is not None else adapters):
            logits = read(model, token[:, None], mask, cache)[:, -1]
    rollouts = pack(prompt_ids, prompt_mask, tokens, ends, (logprobs, entropy, certainty), finished, k)
    rollouts.texts = [
        [spoken(tokenizer, row, n, silent, stop) for row, n in zip(*group, strict=True)]
        for group in zip(rollouts.completion_ids.tolist(), rollouts.mask.sum(-1).tolist(), strict=True)
    ]
    return rollouts


def spoken(tokenizer: PreTrainedTokenizerBase, row: list[int], n: int, silent: frozenset[int], stop: str | None) -> str:
    """The text of the first `n` tokens of a row, without the end token, and up to `stop` where there is one."""
    text = tokenizer.decode(row[: n - (row[n - 1] in silent)], skip_special_tokens=True)
    return text.split(stop, 1)[0] if stop else text


def adapter_rows(
    model: PreTrainedModel, adapters: Sequence[str | None], repeats: int = 1
) -> contextlib.AbstractContextManager:
    """Send row i of the batch through `adapters[i // repeats]`; without adapters nothing happens."""
    if all(name is None for name in adapters):
        return contextlib.nullcontext()
    if len(set(adapters)) == 1:
        return lora.use(model, adapters[0])
    return lora.use(model, [name for name in adapters for _ in range(repeats)])


def context_length(model: PreTrainedModel) -> float:
    """The longest text that the model can read, in tokens."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None) or float("inf")


def fits(agent: Agent, prompt: str, max_new_tokens: int) -> bool:
    """Whether a prompt and a completion of so many tokens fit the agent's context."""
    return len(encode(prompt, agent.tokenizer)) + max_new_tokens <= context_length(agent.model)


def check_context(model: PreTrainedModel, prompt: int, completion: int) -> None:
    """A prompt that does not fit is an error, never cut in silence."""
    limit = context_length(model)
    if prompt + completion > limit:
        raise UserError(
            f"a prompt of {prompt} tokens and {completion} new ones do not fit the model's context of {limit}: "
            "lower --max-new-tokens or leave the long problems out"
        )


def completion_mask(tokens: Tensor, ends: Tensor) -> Tensor:
    """1 through the first end token, inclusive: writing it was an action of the policy. [n,L] -> [n,L]"""
    ended = torch.isin(tokens, ends).long()
    return (ended.cumsum(-1) - ended == 0).long()


def pack(
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    tokens: Tensor,
    ends: Tensor,
    by_token: Sequence[Tensor],
    finished: Tensor,
    k: int,
) -> Rollouts:
    """Fold rows [P*K,L] into groups [P,K,L], cut to the longest completion. Texts and answers are for the caller."""
    mask = completion_mask(tokens, ends)
    longest = int(mask.sum(-1).max())
    tokens, mask = torch.where(mask.bool(), tokens, ends[0])[:, :longest], mask[:, :longest]
    lengths = mask.sum(-1)  # [P*K]
    logprobs, entropy, certainty = (x[:, :longest] * mask for x in by_token)

    def groups(x: Tensor) -> Tensor:
        return x.view(len(prompt_ids), k, *x.shape[1:])

    return Rollouts(
        prompt_ids,
        prompt_mask,
        groups(tokens),
        groups(mask),
        groups(logprobs),
        groups(entropy.sum(-1) / lengths),
        groups(certainty.sum(-1) / lengths),
        groups(finished),
    )
