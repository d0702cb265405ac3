"""What is tried before anything of a run is written: a model that this code would get wrong costs one line, and no training."""

from collections.abc import Sequence

import torch

from grpo import Agent, check_agreement, pick_logprobs, policy_logprobs, sample_cohort
from lab.data import UserError
from lab.models import fits

QUESTIONS, NEW = ("12+30=", "7"), 8  # two lengths, so that one prompt is padded; tokens that are written
OURS = UserError, FloatingPointError, torch.OutOfMemoryError  # these say themselves what to do


def try_out(agents: Sequence[Agent]) -> None:
    """Let each agent write a few tokens as in a step, and refuse it unless three readings of them agree.

    sampled   token by token, over the cache, all adapters of a base in one batch
    scored    as they are learnt from
    plain     each text alone and in one pass, with nothing said of masks or positions: the model as it is by itself
    """
    prompts = [[agent.wrap(question) for question in QUESTIONS] for agent in agents]
    if not all(fits(agent, text, NEW) for agent, texts in zip(agents, prompts, strict=True) for text in texts):
        return  # then no problem fits either, which is said where problems are read
    draws = [torch.Generator().manual_seed(0) for _ in agents]
    kinds = ", ".join(dict.fromkeys(type(agent.model).__name__ for agent in agents))
    try:
        for agent, wrote in zip(agents, sample_cohort(agents, prompts, 2, NEW, generators=draws), strict=True):
            scored = policy_logprobs(agent, wrote, torch.arange(len(QUESTIONS)), 1.0).detach()  # [P,K,L]
            check_agreement(agent, wrote.logprobs, scored, wrote.mask, 1.0)
            check_agreement(agent, wrote.logprobs, plain_logprobs(agent, wrote), wrote.mask, 1.0)
    except OURS:
        raise
    except Exception as error:  # whatever the library's hundreds of models raise where they are used in another way than theirs
        reason = next(iter(str(error).splitlines()), "")
        raise UserError(f"{kinds} cannot be sampled and trained here ({type(error).__name__}: {reason:.120})") from None


@torch.no_grad()
def plain_logprobs(agent: Agent, wrote) -> torch.Tensor:
    """Log-probs of the completions [P,K,L] where the model reads each text by itself; 0 behind its end."""
    found = torch.zeros_like(wrote.logprobs)
    with agent.in_use():
        for p, k in torch.ones(found.shape[:2]).nonzero().tolist():
            n, prompt = int(wrote.mask[p, k].sum()), wrote.prompt_ids[p][wrote.prompt_mask[p].bool()]  # [T]
            ids = torch.cat([prompt, wrote.completion_ids[p, k, :n]])  # [T+n]
            logits = agent.model(ids[None, :-1]).logits[0, -n:]  # [n,V]
            found[p, k, :n] = pick_logprobs(logits, ids[-n:, None], 1.0)[:, 0]
    return found
