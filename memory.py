"""How much memory a run of real models will need: an estimate before it begins, and advice where it was too much.

Its parts are weights, optimizer, and the larger of sampling (cache and logits) and learning (logits); activations come on top.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluate import AT_ONCE
from grpo import Agent
from judges import INSTRUCTIONS
from rewards import REWARDS

PROMPT = 256  # tokens of a prompt, a guess: an estimate is made before all data are read
EVALUATION_DECIDES = f"--max-new-tokens (evaluations hold {AT_ONCE} texts at a time), --eval-problems, --eval-k"


@dataclass(frozen=True)
class AtATime:
    """What a run holds in memory at a time, and the options that decide it."""

    sampled: int  # texts that an agent writes in a step
    evaluated: int  # texts of an agent while it is evaluated
    prompt: int  # tokens that each of them reads
    learned: int  # texts of a micro-batch
    new: int  # tokens of the longest text
    less_sampling: str = "--prompts, --k, --max-new-tokens"
    less_learning: str = "--micro-batch, --k, --max-new-tokens"
    in_one_pass: bool = True  # agents of one base write together


def at_a_time(o) -> AtATime:
    """What a run of `cohort.py` with the options `o` holds at a time: the most that its method ever samples, or evaluates."""
    method = REWARDS[o.method]
    forms, voters = 2 if method.needs_rephrased else 1, method.voters(o.k, o.votes)
    learned = 3 * o.prompts if method.needs_chat else forms * o.prompts  # groups: judges' texts are learned from too
    read = INSTRUCTIONS + 2 * o.max_new_tokens if method.needs_chat else 0  # a scorer is shown a solution and an evaluation
    return AtATime(
        sampled=forms * o.prompts * voters,
        evaluated=min(AT_ONCE, o.eval_problems * o.eval_k),
        prompt=PROMPT + read,
        learned=min(o.micro_batch, learned) * o.k,
        new=o.max_new_tokens,
        less_sampling=f"--prompts, {'--votes' if voters > o.k else '--k'}, --max-new-tokens",
    )


@dataclass(frozen=True)
class Memory:
    """An estimate in bytes, activations apart."""

    weights: int
    optimizer: int
    cache: int
    drawing: int  # logits while sampling
    learning: int  # logits while learning
    held: AtATime
    lowers_sampling: str  # the options that do: those of training, or those of evaluating where that takes more

    def __str__(self) -> str:
        giga = 2**30
        total = self.weights + self.optimizer + max(self.cache + self.drawing, self.learning)
        return (
            f"memory: about {total / giga:.1f} GiB = weights {self.weights / giga:.1f} + optimizer {self.optimizer / giga:.1f} "
            f"+ the larger of sampling {(self.cache + self.drawing) / giga:.1f} (cache {self.cache / giga:.1f}, logits "
            f"{self.drawing / giga:.1f}; prompts of {self.held.prompt} tokens; lower {self.lowers_sampling}) and learning "
            f"{self.learning / giga:.1f} (logits alone; lower {self.held.less_learning})"
        )

    def advice(self) -> str:
        """What lowers the need, and by how much, for a run that found too little."""
        giga = 2**30
        return (
            f"by the estimate, sampling takes {(self.cache + self.drawing) / giga:.1f} GiB, in proportion to each of "
            f"{self.lowers_sampling}; learning {self.learning / giga:.1f} GiB, in proportion to each of "
            f"{self.held.less_learning}, and activations, which --checkpointing lowers; weights {self.weights / giga:.1f} GiB "
            f"(with LoRA --dtype bfloat16 halves them); optimizer {self.optimizer / giga:.1f} GiB (next to none with LoRA)"
        )


def estimate(agents: Sequence[Agent], held: AtATime) -> Memory:
    """An estimate, before training, of what fills memory.

    Sampling holds the cache of every rollout, and logits of one token of each, as float32, three times (scores,
    probabilities, their sums); agents that share a base are sampled in one pass. Learning holds the logits of every token
    of a micro-batch, their float32 copies and gradients: about 2 size + 18 bytes a logit, as measured with checkpointing
    (benchmarks/README.md, g). Models sample and agents learn one after the other, so the largest counts.
    """
    models = {id(a.model): a.model for a in agents}.values()
    weights = sum(p.numel() * p.element_size() for m in models for p in m.parameters())
    weights += sum(p.numel() * p.element_size() for a in agents if a.reference for p in a.reference.parameters())
    trained = [p for a in agents if a.optimizer for p in a.parameters()]  # not a teacher's
    cache, drawing, learning, less = [], [], [], EVALUATION_DECIDES
    for model in models:
        config, size = model.config.get_text_config(), next(model.parameters()).element_size()
        writers = sum(a.model is model and a.optimizer is not None for a in agents) if held.in_one_pass else 1
        rows = held.sampled * max(1, writers)  # a teacher of its own model writes alone
        if rows >= held.evaluated:
            less = held.less_sampling
        rows = max(rows, held.evaluated)
        cache.append(rows * (held.prompt + held.new) * cached_per_token(config) * size)
        drawing.append(rows * 3 * 4 * config.vocab_size)
        learning.append(held.learned * held.new * (2 * size + 18) * config.vocab_size)
    return Memory(
        weights=weights,
        optimizer=3 * sum(p.numel() * p.element_size() for p in trained),  # gradient, two moments
        cache=max(cache),
        drawing=max(drawing),
        learning=max(learning),
        held=held,
        lowers_sampling=less,
    )


def cached_per_token(config) -> int:
    """Numbers that the cache keeps of one token: a key and a value in every layer."""
    if not hasattr(config, "num_attention_heads"):
        return 0  # a recurrent state, whose size does not grow with the text
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * getattr(config, "num_key_value_heads", config.num_attention_heads) * head
