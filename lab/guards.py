"""What keeps a run from going wrong in silence.

A model that this code would get wrong is found before anything is written (`try_out`); a run is held by one process and knows
what it read; and whatever is printed is text (`Shown`).
"""

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from grpo import Agent, Rollouts, check_agreement, pick_logprobs, policy_logprobs, sample_cohort
from lab.data import WORLDS, Problem, UserError
from lab.models import TEXT, fits
from lab.vision import saved_with, together, try_pictures

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

QUESTIONS, NEW = ("12+30=", "7"), 8  # two lengths, so that one prompt is padded; tokens that are written
# What the library's hundreds of models raise where they are used otherwise than they expect.
FOREIGN = AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, ZeroDivisionError


def try_out(agents: Sequence[Agent]) -> None:
    """Let each agent write a few tokens as in a step, and refuse it unless three readings of them agree.

    sampled   token by token, over the cache, all adapters of a base in one batch
    scored    as they are learnt from, with a gradient where the agent is to learn
    plain     each text alone and in one pass, with nothing said of masks or positions: the model as it is by itself
    """
    shown = [hasattr(agent.tokenizer, "processor") for agent in agents]  # then pictures of two shapes, one with each question
    prompts = [[agent.wrap(q, Problem(q, image=picture) if picture else None)
                for q, picture in zip(QUESTIONS, try_pictures() if sees else [None] * 2, strict=True)]
               for agent, sees in zip(agents, shown, strict=True)]  # fmt: skip
    if not all(fits(agent, text, NEW) for agent, texts in zip(agents, prompts, strict=True) for text in texts):
        return  # then no problem fits either, which is said where problems are read
    draws = [torch.Generator().manual_seed(0) for _ in agents]
    kinds = ", ".join(dict.fromkeys(type(agent.model).__name__ for agent in agents))
    try:
        with apart(agents):
            for agent, wrote in zip(agents, sample_cohort(agents, prompts, 2, NEW, generators=draws), strict=True):
                scored = policy_logprobs(agent, wrote, torch.arange(len(QUESTIONS)), 1.0)  # [P,K,L]
                check_agreement(agent, wrote.logprobs, scored, wrote.mask, 1.0)
                check_agreement(agent, wrote.logprobs, plain_logprobs(agent, wrote), wrote.mask, 1.0)
                if agent.optimizer:
                    torch.autograd.grad(scored.sum(), agent.parameters(), allow_unused=True)  # eyes are not used
                    with tempfile.TemporaryDirectory() as place:  # what a checkpoint will hold beside weights can be written
                        agent.model.save_pretrained(place, state_dict={})
                        saved_with(agent.tokenizer).save_pretrained(place)
    except torch.OutOfMemoryError:
        raise
    except FOREIGN as error:
        reason = next(iter(str(error).splitlines()), "no reason given")
        raise UserError(f"{kinds} cannot be sampled and trained here ({type(error).__name__}: {reason:.160})") from None


@contextlib.contextmanager
def apart(agents: Sequence[Agent]) -> Iterator[None]:
    """Within it all adapters differ: while their B is 0 they are alike, and a row that goes through another's is not seen."""
    shared = {id(agent.model): vars(agent.model)["_lora"] for agent in agents if agent.adapter is not None}
    noisy = [b for one in shared.values() for layer in one.layers.values() for b in layer.B]  # [out, r] each
    before, draw = [b.detach().clone() for b in noisy], torch.Generator().manual_seed(0)
    try:
        for b in noisy:
            b.data += torch.empty(b.shape).normal_(0, 0.02, generator=draw).to(b.device)
        yield
    finally:
        for b, old in zip(noisy, before, strict=True):
            b.data.copy_(old)


@torch.no_grad()
def plain_logprobs(agent: Agent, wrote: Rollouts) -> torch.Tensor:
    """Log-probs of the completions [P,K,L] where the model reads each text by itself; 0 behind its end."""
    found = torch.zeros_like(wrote.logprobs)
    with agent.in_use():
        for p, k in torch.ones(found.shape[:2]).nonzero().tolist():
            n, prompt = int(wrote.mask[p, k].sum()), wrote.prompt_ids[p][wrote.prompt_mask[p].bool()]  # [T]
            ids = torch.cat([prompt, wrote.completion_ids[p, k, :n]])  # [T+n]
            seen = together(wrote.seen[p : p + 1], torch.ones_like(ids[None, :-1]), agent.model)
            logits = agent.model(input_ids=ids[None, :-1], **seen).logits[0, -n:]  # [n,V]
            found[p, k, :n] = pick_logprobs(logits, ids[-n:, None], 1.0)[:, 0]
    return found


def say_coverage(model: nn.Module) -> None:
    """One line on stderr where adapters leave much of a model alone: experts are often stored as no linear layer."""
    head, adapted = model.get_output_embeddings(), {id(layer.base.weight) for layer in model._lora.layers.values()}
    inside = [(name, module) for name, module in model.get_decoder().named_modules()
              if not isinstance(module, nn.Embedding) and module is not head]  # fmt: skip
    weights = {f"{name}.{part}": weight for name, module in inside for part, weight in module.named_parameters(recurse=False)
               if weight.ndim > 1 and not weight.requires_grad}  # fmt: skip
    rest = {name: weight.numel() for name, weight in weights.items() if id(weight) not in adapted}
    whole = sum(weight.numel() for weight in weights.values())
    if sum(rest.values()) > 0.05 * whole:
        print(f"adapters lie on {1 - sum(rest.values()) / whole:.0%} of the weights between embedding and output layer; "
              f"the rest is no plain linear layer, such as {max(rest, key=rest.get)}", file=sys.stderr)  # fmt: skip


# ---------------------------------------------------------------- a run and its folder

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a number -> the whole number of its bits


def inputs(o, agents: Sequence[Agent], data: tuple[list[Problem], list[Problem]]) -> dict[str, str]:
    """What a run reads, by name: SHA-256 of its problems and, of real models, of weights and chat template at the start.

    Weights are hashed by the sums of their rows' bits, which are exact and in no order: all weights count, and little is copied.
    """
    def told(p: Problem) -> list:
        return [p.question, p.answer, p.topic, p.rephrased, *([p.image.digest] if p.image else []), *(p.tests or [])]

    found = {"problems": json.dumps([[told(p) for p in part] for part in data]).encode()}
    weights = {}  # of each model once, adapters apart: agents may share a base
    for agent in agents if o.data not in WORLDS else ():
        if id(agent.model) not in weights:
            base = [p.detach() for p in agent.model.parameters() if agent.adapter is None or not p.requires_grad]
            rows = [p.view(BITS[p.itemsize]).sum(-1, dtype=torch.int64).flatten() for p in base]
            weights[id(agent.model)] = torch.cat(rows).cpu().numpy().tobytes()
        found[f"weights of {agent.name}"] = weights[id(agent.model)]
        found[f"chat template of {agent.name}"] = json.dumps(agent.tokenizer.chat_template).encode()
    return {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}


@contextlib.contextmanager
def held(folder: Path):
    """Within it no other process can be here: two that write one run would count its steps twice. A kill ends it too."""
    place = os.open(folder, os.O_RDONLY) if fcntl else os.open(os.devnull, os.O_RDONLY)
    try:
        if fcntl:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"{folder} is in use by another process: wait for its end") from None
    finally:
        os.close(place)


def same_inputs(folder: Path, config: dict, now: dict) -> None:
    """Refuse, by name, to go on with a run, or to compare with one, that read other problems or began with another model."""
    then = config.get("inputs")
    if other := [name for name, value in now.items() if isinstance(then, dict) and then.get(name, value) != value]:
        raise UserError(f"{folder} was made with other inputs: {', '.join(other)} changed since; put back what it began with")


def like(ours, theirs) -> bool:
    """Whether a message has the form of our own: the same keys, as many items, text where we have text; None goes for either."""
    if isinstance(ours, dict):
        return isinstance(theirs, dict) and ours.keys() == theirs.keys() and all(like(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        return isinstance(theirs, list) and len(ours) == len(theirs) and all(map(like, ours, theirs))
    kind = (str,) if isinstance(ours, str) else (int, float) if ours is not None else (str, int, float)
    return theirs is None or isinstance(theirs, kind)


# ---------------------------------------------------------------- what a terminal is shown


class Shown:
    """A stream on which the text of data and models is text: what would act on a terminal is spelled out."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name: str):
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Print a text; "?" for a sign that the terminal does not have."""
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        return self.stream.write(printable(text).encode(encoding, "replace").decode(encoding))


def printable(text: str) -> str:
    """The text with control and formatting characters spelled out (\\x1b), line ends, tabs and what joins letters apart."""
    def spelled(found: re.Match) -> str:
        sign = found[0]
        return sign if sign.isprintable() else " " if unicodedata.category(sign) == "Zs" else ascii(sign)[1:-1]

    return re.sub(r"[^\x20-\x7e\n\t\u200c\u200d]", spelled, text.replace(TEXT, ""))
