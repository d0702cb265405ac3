"""Completions by vLLM in the place of `grpo.complete`: cohort.py --engine vllm, for adapters over real models.

    python cohort.py --models A B --data gsm8k --lora-rank 16 --engine vllm

vLLM draws tokens; everything else is as it is. Before each step's writing it is handed the adapters as they are now, in PEFT's
format under a new name, so that nothing it remembers of an older one is used. Entropy and certainty are our own model's, by one
pass over what was written. The log-probs that vLLM says it drew from are compared with that pass, and stay in the rollouts:
`approx_kl`, whose other side is `token_logprobs` of the learner, shows how far the engine is off.

What is lost: our draws. What is drawn depends on vLLM's batch too, so no run is repeated or resumed bit for bit. Evaluations,
teachers and judges stay with our loop. All weights are refused: vLLM took new ones in part, without an error (docs/scale.md).
"""

import contextlib
import os
import tempfile
from collections.abc import Sequence

import torch
from torch import Tensor

import lora
from grpo import Agent, Rollouts, forward, head_reads_only, left_pad
from lab import peft
from lab.data import Problem, UserError
from lab.guards import FOREIGN
from lab.models import check_room, context_length, encode, end_tokens, spoken, with_own_prompt

RANKS = 1, 8, 16, 32, 64, 128, 256, 320, 512  # that vLLM has room for
SHARE = 0.4  # of a GPU's memory for the engine's copy of the bases and its caches; the learner has the rest
APART = 0.1  # nats a token on average. Rounding takes 1e-5 in float32, .04 in bfloat16; stale weights took .25 and more


class VLLM:
    """One engine for each base of these agents. Called as `grpo.complete` is."""

    def __init__(self, o, agents: Sequence[Agent], problems: Sequence[Problem]):
        """Start the engines, for prompts as long as those of `problems`. Raises UserError where vLLM cannot serve them."""
        self.at_a_time, self.handed, self.engines = o.micro_batch, 0, {}
        if any(problem.image for problem in problems):
            raise UserError("--engine vllm is not shown pictures: leave it out")
        if agents[0].device.index:
            raise UserError("vLLM takes the first GPU that a process sees: set CUDA_VISIBLE_DEVICES, and --device cuda:0")
        for agent in agents:
            agent.agrees = True  # compared here in every step; other kernels need not meet `check_agreement`'s bound for float32
        bases, texts = {id(agent.model): agent for agent in agents}, {p.question for p in problems}
        texts |= {p.rephrased for p in problems if p.rephrased}
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # or it sends its maker what it runs on
        for key, agent in bases.items():
            longest = max(len(encode(agent.wrap(text), agent.tokenizer)) for text in texts) + o.max_new_tokens
            with understood():
                from vllm import LLM  # not installed by requirements.txt, and slow to import

                self.engines[key] = LLM(
                    agent.model.config._name_or_path, dtype=o.dtype, max_model_len=min(longest, context_length(agent.model)),
                    enable_lora=True, max_loras=len(agents), max_lora_rank=next(rank for rank in RANKS if rank >= o.lora_rank),
                    gpu_memory_utilization=SHARE / len(bases), logprobs_mode="processed_logprobs", generation_config="vllm",
                    skip_tokenizer_init=not o.stop, enable_chunked_prefill=False,
                )  # fmt: skip

    @torch.no_grad()
    def __call__(self, model, tokenizer, prompts: Sequence[Sequence[int]], adapters: Sequence, k: int, temperature: float,
                 uniform: Tensor, stop: str | None = None, top_p: float = 1.0, seen=()) -> Rollouts:  # fmt: skip
        """K completions of each prompt, as `grpo.complete`; of `uniform` [P*K,L] one number a prompt becomes vLLM's seed."""
        silent, (rows, most), device = end_tokens(model, tokenizer), uniform.shape, model.device
        check_room(model, max(map(len, prompts)), most)
        seeds = (uniform[::k, 0] * 2**31).long().tolist()
        with understood():
            found = self.write(model, prompts, adapters, seeds, dict(
                n=k, temperature=temperature, top_p=top_p, max_tokens=most, logprobs=0, stop_token_ids=sorted(silent),
                stop=stop, include_stop_str_in_output=True, detokenize=bool(stop)))  # fmt: skip
        wrote = [one for group in found for one in sorted(group.outputs, key=lambda one: one.index)]  # P*K
        lengths = torch.tensor([len(one.token_ids) for one in wrote], device=device)
        longest, end = int(lengths.max()), min(silent)
        ids = torch.tensor([[*one.token_ids, *[end] * (longest - len(one.token_ids))] for one in wrote], device=device)
        mask = (torch.arange(longest, device=device) < lengths[:, None]).long()  # [P*K,L], as ids
        drawn = [step[token].logprob for one in wrote for token, step in zip(one.token_ids, one.logprobs, strict=True)]
        said = torch.zeros(mask.shape, device=device).masked_scatter(mask.bool(), torch.tensor(drawn, device=device))
        finished = torch.tensor([one.finish_reason == "stop" for one in wrote], device=device)
        prompt_ids, prompt_mask = left_pad(prompts, end, device)  # [P,T]
        places = torch.arange(rows, device=device).split(self.at_a_time * k)
        ours = [self.score(model, prompt_ids, prompt_mask, ids, mask, adapters, at, temperature) for at in places]
        logp, entropy, certainty = torch.cat(ours, 1)  # [P*K,L] each
        if (gap := ((said - logp).abs() * mask).sum().item() / len(drawn)) > APART:
            raise UserError(f"vLLM writes as another model than is trained, log-probs {gap:.2g} apart: leave --engine out")
        texts = [spoken(tokenizer, row, n, silent, stop) for row, n in zip(ids.tolist(), lengths.tolist(), strict=True)]
        parts = ids, mask, said, entropy.sum(-1) / lengths, certainty.sum(-1) / lengths, finished
        groups = [x.unflatten(0, (-1, k)) for x in parts]  # [P*K,...] -> [P,K,...]
        return Rollouts(prompt_ids, prompt_mask, *groups, [texts[i : i + k] for i in range(0, rows, k)], seen=list(seen))

    def write(self, model, prompts, adapters: Sequence, seeds: list[int], how: dict) -> list:
        """vLLM's outputs for P prompts; each goes through its adapter as that is now, and has its own seed."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        with tempfile.TemporaryDirectory() as place:
            now = {}
            for adapter in dict.fromkeys(adapters):
                self.handed += 1
                peft.save(model, adapter, folder := f"{place}/{self.handed}")
                now[adapter] = LoRARequest(f"{adapter}-{self.handed}", self.handed, folder)
            return self.engines[id(model)].generate(
                [{"prompt_token_ids": list(ids)} for ids in prompts], [SamplingParams(seed=seed, **how) for seed in seeds],
                use_tqdm=False, lora_request=[now[adapter] for adapter in adapters])  # fmt: skip

    def score(self, model, prompt_ids, prompt_mask, ids, mask, adapters: Sequence, at: Tensor, temperature: float) -> Tensor:
        """Log-prob, entropy and certainty of each token of the rows `at` [n] under our own model, [3,n,L]; 0 behind an end."""
        prompt = at // (len(ids) // len(prompt_ids))  # of each row
        whole, whole_mask, wanted, scored = with_own_prompt(prompt_ids[prompt], prompt_mask[prompt], ids[at], mask[at])
        scored = scored.bool()  # [n,T+L-1], as the other three
        with lora.use(model, [adapters[i] for i in prompt.tolist()]), head_reads_only(model, scored):
            logits = forward(model, whole, whole_mask)[0].float() / temperature  # [m,V], m scored tokens
        logp = logits.log_softmax(-1)
        chosen, entropy = logp.gather(-1, wanted[scored][:, None])[:, 0], -(logp.exp() * logp).sum(-1)  # [m]
        values = torch.stack([chosen, entropy, logits.logsumexp(-1) - logits.mean(-1)])  # [3,m]
        return torch.zeros(3, *scored.shape, device=ids.device).masked_scatter(scored, values)[:, :, -ids.shape[1] :]


@contextlib.contextmanager
def understood():
    """Within it what vLLM raises becomes one line."""
    try:
        yield
    except (*FOREIGN, OSError, ImportError) as error:
        reason = next(iter(str(error).strip().splitlines()), "no reason given")
        raise UserError(f"vLLM cannot serve this model here ({type(error).__name__}: {reason:.160})") from None
