"""How much memory a run of real models will need: an estimate before it begins, and advice where it was too much.

Its parts are weights, optimizer, and the larger of sampling (cache and logits) and learning (logits); activations come on top.
"""

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import torch

from grpo import Agent
from lab.data import Problem, UserError
from lab.evaluate import AT_ONCE
from lab.methods import INSTRUCTIONS, hooks_of, voters
from lab.models import encode_all

PROMPT, GIGA = 256, 2**30  # tokens of a prompt, a guess: an estimate is made before all data are read


class AtATime(NamedTuple):
    """What a run holds in memory at a time, and the options that decide it."""

    sampled: int  # texts that an agent writes in a step
    evaluated: int  # texts of an agent while it is evaluated
    prompt: int  # tokens that each of them reads
    learned: int  # texts of a micro-batch
    new: int  # tokens of the longest text
    k: str = "--k"  # what lowers it, beside --prompts and --max-new-tokens
    in_one_pass: bool = True  # agents of one base write together


def pictures(agents: Sequence[Agent], problems: Sequence[Problem], some: int = 4) -> int:
    """Tokens of the longest prompt with a picture, of `some` at the head of the problems; 0 without pictures."""
    asked = [problem for problem in problems if problem.image][:some]
    return max((len(encode_all(a.prompt(p), a.tokenizer)[0]) for a in agents for p in asked), default=0)


def at_a_time(o, prompt: int = 0) -> AtATime:
    """What a run of `cohort.py` with the options `o` holds at a time: the most that its method ever samples, or evaluates.

    prompt: the tokens of a prompt, where they are known to be more than PROMPT.
    """
    chat, wide = hooks_of(o.method).needs_chat, voters(o)
    forms = 2 if hooks_of(o.method).needs_rephrased else 1
    return AtATime(
        sampled=forms * o.prompts * wide,
        evaluated=min(AT_ONCE, o.eval_problems * o.eval_k),
        # A scorer is shown a solution and an evaluation.
        prompt=max(PROMPT, prompt) + (INSTRUCTIONS + 2 * o.max_new_tokens) * chat,
        learned=min(o.micro_batch, (3 if chat else forms) * o.prompts) * o.k,  # judges' texts are learned from too
        new=o.max_new_tokens,
        k="--votes" if wide > o.k else "--k",
    )


def of_agon(o, texts: int) -> AtATime:
    """The same for `agon.py`, whose drafter writes so many completions of each problem; a reader's prompt holds a draft."""
    held = min(AT_ONCE, o.eval_problems * o.eval_k)
    return AtATime(o.prompts * texts, held, PROMPT + o.max_new_tokens, min(o.micro_batch, o.prompts) * texts, o.max_new_tokens,
                   k="--n", in_one_pass=False)  # fmt: skip


class Memory(NamedTuple):
    """An estimate in bytes, activations apart."""

    weights: int
    optimizer: int
    cache: int
    drawing: int  # logits while sampling
    learning: int  # logits while learning
    prompt: int
    lowers: tuple[str, str]  # the options that lower sampling (or evaluating, where that takes more), and learning

    def __str__(self) -> str:
        weights, optimizer, cache, drawing, learning = (f"{part / GIGA:.1f}" for part in self[:5])
        sampling = self.cache + self.drawing
        return (
            f"memory: about {(self.weights + self.optimizer + max(sampling, self.learning)) / GIGA:.1f} GiB = weights {weights} "
            f"+ optimizer {optimizer} + the larger of sampling {sampling / GIGA:.1f} (cache {cache}, logits {drawing}; prompts "
            f"of {self.prompt} tokens; lower {self.lowers[0]}) and learning {learning} (logits alone; lower {self.lowers[1]})"
        )

    def advice(self) -> str:
        """What lowers the need, and by how much, for a run that found too little."""
        return (
            f"by the estimate, sampling takes {(self.cache + self.drawing) / GIGA:.1f} GiB, in proportion to each of "
            f"{self.lowers[0]}; learning {self.learning / GIGA:.1f} GiB, in proportion to each of {self.lowers[1]}, and "
            f"activations, which --checkpointing lowers; weights {self.weights / GIGA:.1f} GiB (with LoRA --dtype bfloat16 "
            f"halves them); optimizer {self.optimizer / GIGA:.1f} GiB (next to none with LoRA)"
        )


def fit(size: float, device: torch.device, what: str) -> None:
    """UserError if `size` bytes are more than a device has in all: then it is said before they are filled."""
    if device.type == "cuda":
        whole = torch.cuda.get_device_properties(device).total_memory
    else:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf  # not Windows
    if size > whole:
        raise UserError(f"out of memory: {what}; this machine has {whole / GIGA:.0f} GiB")


def fit_adapters(model, rank: int, count: int) -> None:
    """UserError if so many adapters of that rank do not fit: r (in + out) numbers a layer, their gradients and two moments."""
    size = 4 * 4 * count * rank * sum(sum(p.shape) for p in model.parameters() if p.ndim == 2)
    fit(size, model.device, f"{count} adapters of rank {rank} take about {size / GIGA:.0f} GiB")


def estimate(agents: Sequence[Agent], held: AtATime) -> Memory:
    """An estimate, before training, of what fills memory. Models sample and agents learn one after the other: the largest counts.

    Sampling holds the cache of every rollout, and logits of one token of each, as float32, three times (scores,
    probabilities, their sums). Learning holds the logits of every token of a micro-batch, their float32 copies and gradients:
    about 2 size + 18 bytes a logit, as measured with checkpointing (benchmarks/README.md, g).
    """
    def size(parameters) -> int:
        return sum(p.numel() * p.element_size() for p in parameters)

    models = {id(a.model): a.model for a in agents}.values()
    parts = []
    for model in models:
        config, each = model.config.get_text_config(), next(model.parameters()).element_size()
        writers = sum(a.model is model and a.optimizer is not None for a in agents)  # a teacher of its own model writes alone
        sampled = held.sampled * max(1, writers if held.in_one_pass else 1)
        rows, learning = max(sampled, held.evaluated), held.learned * held.new * (2 * each + 18) * config.vocab_size
        cache = rows * (held.prompt + held.new) * cached_per_token(config) * each
        parts.append((cache, rows * 3 * 4 * config.vocab_size, learning))
    evaluations = f"--max-new-tokens (evaluations hold {AT_ONCE} texts at a time), --eval-problems, --eval-k"
    sampling = f"--prompts, {held.k}, --max-new-tokens" if sampled >= held.evaluated else evaluations
    references = (p for a in agents if a.reference for p in a.reference.parameters())
    trained = (p for a in agents if a.optimizer for p in a.parameters())
    found = Memory(
        size(p for m in models for p in m.parameters()) + size(references),
        3 * size(trained),  # gradient, two moments
        *map(max, zip(*parts, strict=True)),
        held.prompt,
        (sampling, f"--micro-batch, {'--n' if held.k == '--n' else '--k'}, --max-new-tokens"),
    )
    fit((found.weights + found.optimizer + max(found.cache + found.drawing, found.learning)) / 2, model.device, found.advice())
    return found  # refused only at twice the machine: it is an estimate


def cached_per_token(config) -> int:
    """Numbers that the cache keeps of one token: a key and a value in every layer."""
    if not hasattr(config, "num_attention_heads"):
        return 0  # a recurrent state, whose size does not grow with the text
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * getattr(config, "num_key_value_heads", config.num_attention_heads) * head
