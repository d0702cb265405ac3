"""What is tried before anything of a run is written: a model that this code would get wrong costs one line, and no training."""

import contextlib
import sys
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from grpo import Agent, Rollouts, check_agreement, pick_logprobs, policy_logprobs, sample_cohort
from lab.data import UserError
from lab.models import fits

QUESTIONS, NEW = ("12+30=", "7"), 8  # two lengths, so that one prompt is padded; tokens that are written
# What the library's hundreds of models raise where they are used otherwise than they expect.
FOREIGN = AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, ZeroDivisionError


def try_out(agents: Sequence[Agent]) -> None:
    """Let each agent write a few tokens as in a step, and refuse it unless three readings of them agree.

    sampled   token by token, over the cache, all adapters of a base in one batch
    scored    as they are learnt from, with a gradient where the agent is to learn
    plain     each text alone and in one pass, with nothing said of masks or positions: the model as it is by itself
    """
    prompts = [[agent.wrap(question) for question in QUESTIONS] for agent in agents]
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
            logits = agent.model(ids[None, :-1]).logits[0, -n:]  # [n,V]
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
