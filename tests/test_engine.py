"""Completions by vLLM: a stand-in with its interface, which knows adapters by the files it is handed alone; and, where it is
installed, vLLM itself."""

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

import cohort
import grpo
from grpo import Agent
from lab import engine, models, peft, runs
from lab.data import UserError

GIVES = "--lora-rank 2 --answer number --k 4 --prompts 3 --max-new-tokens 6 --lr 3e-2 --eval-every 0 --eval-k 2".split()


class LLM:
    """vLLM's interface over our own loop, on a copy of the base that it loads itself."""

    stale = False  # an engine that goes on with the adapters it was handed first

    def __init__(self, source, **how):
        assert how["enable_lora"] and how["max_lora_rank"] == 8 and how["logprobs_mode"] == "processed_logprobs", how
        self.model, self.tokenizer = models.load_model(source, torch.device("cpu"), how["dtype"])
        self.longest, self.known = how["max_model_len"], set()

    def generate(self, prompts, sampling_params, use_tqdm, lora_request):
        return [self.one(*asked) for asked in zip(prompts, sampling_params, lora_request, strict=True)]

    def one(self, prompt, how, request):
        adapter = request.lora_name[0] if self.stale else request.lora_name
        if adapter not in self.known:  # vLLM, too, keeps what it has under a name
            peft.load(self.model, adapter, request.lora_path)
            self.known.add(adapter)
        ids = prompt["prompt_token_ids"]
        assert len(ids) + how.max_tokens <= self.longest
        uniform = torch.rand(how.n, how.max_tokens, generator=torch.Generator().manual_seed(how.seed))
        with torch.no_grad():
            wrote = grpo.complete(self.model, self.tokenizer, [ids], [adapter], how.n, how.temperature, uniform, how.stop)
        outputs = []
        for k in reversed(range(how.n)):  # in whatever order they end
            n = int(wrote.mask[0, k].sum())
            tokens, said = wrote.completion_ids[0, k, :n].tolist(), wrote.logprobs[0, k, :n].tolist()
            logprobs = [{token: SimpleNamespace(logprob=x)} for token, x in zip(tokens, said, strict=True)]
            reason = "stop" if wrote.finished[0, k] else "length"
            outputs.append(SimpleNamespace(index=k, token_ids=tokens, logprobs=logprobs, finish_reason=reason))
        return SimpleNamespace(outputs=outputs)


@pytest.fixture
def vllm(monkeypatch):
    """A module of that name."""
    parts = {name: ModuleType(name) for name in ("vllm", "vllm.lora", "vllm.lora.request")}
    parts["vllm"].LLM, parts["vllm"].SamplingParams = LLM, SimpleNamespace
    parts["vllm.lora.request"].LoRARequest = lambda name, number, path: SimpleNamespace(lora_name=name, lora_path=path)
    for name, module in parts.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(LLM, "stale", False)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "vllm" or found(name))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A random model with heads as wide as vLLM wants them, and problems."""
    folder = tmp_path_factory.mktemp("engine")
    torch.manual_seed(0)
    config = Qwen3Config(**tiny.SMALL, head_dim=32)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "base")
    tiny.tokenizer().save_pretrained(folder / "base")
    lines = [{"question": f"w{i} w4" + " w9" * (i % 3), "answer": str(i)} for i in range(5, 17)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


def options(source, *more: str) -> cohort.Options:
    base = str(source / "base")
    return cohort.parse(["--models", base, base, "--data", str(source / "data.jsonl"), *GIVES, "--engine", "vllm", *more])


def pair(source, o) -> tuple[list[Agent], list]:
    """Two agents on one base, their adapters apart, and their problems."""
    data = cohort.setup.read_data(o)
    agents = cohort.setup.make_cohort(o, sum(data, []))
    for agent in agents:
        for weight in agent.parameters():
            weight.data += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(ord(agent.name)))
    return agents, data[0]


@pytest.mark.parametrize("more", [[], ["--stop", "w7", "--temperature", "0.7"], ["--micro-batch", "1"]], ids=" ".join)
def test_is_what_our_own_loop_writes(more, vllm, source):
    """A seed, a sorted batch, an end or a value in another row: with our own draws every part of the rollouts is as ours."""
    o = options(source, *more)
    agents, problems = pair(source, o)
    prompts = [[agent.prompt(problem) for problem in problems[:3]] for agent in agents]
    uniform = torch.rand(2 * 3 * 4, 6, generator=torch.Generator().manual_seed(1))
    ids, adapters = [models.encode(text, agents[0].tokenizer) for texts in prompts for text in texts], ["A"] * 3 + ["B"] * 3
    given = agents[0].model, agents[0].tokenizer, ids, adapters, 4, o.temperature
    got = engine.VLLM(o, agents, problems)(*given, uniform, o.stop)
    seeds = (uniform[::4, 0] * 2**31).long().tolist()
    drawn = torch.cat([torch.rand(4, 6, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
    want = grpo.complete(*given, drawn, o.stop)
    assert 0 < want.finished.float().mean() < 1
    for rollouts in (got, want):  # what stands behind an end is nobody's business
        rollouts.completion_ids *= rollouts.mask
        rollouts.logprobs *= rollouts.mask
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "mask", "finished"):
        assert torch.equal(getattr(got, name), getattr(want, name)), name
    for name in ("logprobs", "entropy", "certainty"):
        torch.testing.assert_close(getattr(got, name), getattr(want, name), atol=1e-4, rtol=1e-4)
    assert got.texts == want.texts


def run(source, tmp_path, *more: str) -> int:
    base = str(source / "base")
    words = ["--models", base, base, "--data", str(source / "data.jsonl"), *GIVES, "--engine", "vllm", "--out", str(tmp_path)]
    return cohort.main([*words, "--method", "rent", "--steps", "4", "--name", "run", *more])


@pytest.mark.slow
def test_a_run_and_the_adapters_that_it_hands_over(vllm, source, tmp_path, monkeypatch):
    """Adapters that move at a high rate are followed step by step; an engine that keeps those of before is seen in approx_kl."""
    def off(name: str) -> float:
        monkeypatch.setattr(LLM, "stale", name == "stale")
        assert run(source, tmp_path, "--name", name) == 0
        lines = [line["agents"].values() for line in runs.read_lines(tmp_path / name / "metrics.jsonl") if line.get("agents")]
        assert sum(agent["grad_norm"] for line in lines for agent in line) > 0
        return max(agent["approx_kl"] for line in lines for agent in line)

    assert off("fresh") < 1e-6
    monkeypatch.setattr(engine, "APART", 9.0)
    assert off("stale") > 1e-4


def test_an_engine_that_writes_as_another_model(vllm, source, tmp_path, monkeypatch, capsys):
    """It would be trained on what another policy says, and its ratio would measure that."""
    monkeypatch.setattr(LLM, "stale", True)
    assert run(source, tmp_path, "--lr", "1") == 2
    assert capsys.readouterr().err.count("vLLM writes as another model than is trained, log-probs ") == 1


def test_what_vllm_cannot_serve_is_one_line(vllm, source, tmp_path, monkeypatch, capsys):
    """Its reasons come as errors of all kinds, pages long."""
    monkeypatch.setattr(LLM, "__init__", lambda *_, **__: exec("raise ValueError('no room\\nand much more')"))
    assert run(source, tmp_path) == 2
    assert "cohort.py: vLLM cannot serve this model here (ValueError: no room)\n" in capsys.readouterr().err


def test_what_is_refused(source, tmp_path, monkeypatch, capsys):
    """Each in one line with exit code 2, before anything is loaded: above all, that vLLM is not there."""
    def refused(*more: str) -> str:
        assert cohort.main([*more, "--engine", "vllm", "--out", str(tmp_path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    real = ["--models", "x", "y", "--data", "sums"]
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "vllm" else found(name))
    assert "package that is missing: pip install -r requirements-vllm.txt" in refused(*real, "--lora-rank", "4")
    many = [*real, "--lora-rank", "4", "--compare", "corl", "gt"]
    for more in (real, ["--lora-rank", "4"], [*real, "--lora-rank", "513"], many):
        assert "give --models and --lora-rank (at most 512), not --compare" in refused(*more)
    o = SimpleNamespace(micro_batch=1)
    with pytest.raises(UserError, match="not shown pictures"):
        engine.VLLM(o, [], [SimpleNamespace(image=object())])
    with pytest.raises(UserError, match="first GPU that a process sees"):
        engine.VLLM(o, [SimpleNamespace(device=torch.device("cuda", 1))], [])


@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="needs vllm (requirements-vllm.txt)")
def test_the_real_one(source, tmp_path, monkeypatch):
    """vLLM itself, on two adapters of one base that move at a high rate, for four steps."""
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    assert run(source, tmp_path) == 0
    lines = [line for line in runs.read_lines(tmp_path / "run" / "metrics.jsonl") if line.get("agents")]
    assert max(agent["grad_norm"] for line in lines for agent in line["agents"].values()) > 0
    assert max(agent["approx_kl"] for line in lines for agent in line["agents"].values()) < 1e-5
