"""Models that would be got wrong are refused in one line, before a run has a folder; and those that must not be refused."""

import json
import pickle

import pytest
import tiny
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import lora
from grpo import Agent, sample_cohort
from lab import guards, memory, models, peft
from lab.data import UserError

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
# name -> (type, settings beside tiny.SMALL, what the refusal says or None: of all weights, LoRA, LoRA and checkpointing)
KINDS = {
    "mamba": ("mamba", {"state_size": 8}, (None, "dt_proj.weight", "dt_proj.weight")),
    "falcon-mamba": ("falcon_mamba", {"state_size": 8}, (None, "dt_proj.weight", "dt_proj.weight")),
    "bert": ("bert", {}, ("apart",) * 3),
    "electra": ("electra", {}, ("apart",) * 3),
    "roberta": ("roberta", {"is_decoder": True, "max_position_embeddings": 130}, ("apart",) * 3),
    "rwkv": ("rwkv", {}, ("apart", "output.weight", "output.weight")),
    "minimax": ("minimax", {"num_local_experts": 4, "head_dim": 8, "block_size": 8}, ("MiniMax",) * 3),
    "mixtral": ("mixtral", EXPERTS, (None,) * 3),
    "gpt-oss": ("gpt_oss", EXPERTS | {"head_dim": 8}, (None,) * 3),
    "phi-moe": ("phimoe", EXPERTS, (None, None, "apart")),
    "opt": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}, (None,) * 3),
    "modernbert-decoder": ("modernbert-decoder", {}, (None,) * 3),
    "ctrl": ("ctrl", {"n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 48, "n_positions": 128}, (None, None, None)),
}


def make(kind: str, settings: dict):
    """A random tiny model of a type of the library's."""
    config = AutoConfig.for_model(kind, **tiny.SMALL | settings)
    models.no_dropout(config)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def agents_of(model, learning: bool = True) -> list[Agent]:
    """A and B, adapters where the model has some."""
    found = [Agent(name, model, tiny.tokenizer(), name if hasattr(model, "_lora") else None) for name in "AB"]
    for agent in found if learning else ():
        agent.optimizer = torch.optim.AdamW(agent.parameters())
    return found


def refusal(call, *arguments) -> str:
    """The one line of a refusal, "" where there is none."""
    try:
        call(*arguments)
        return ""
    except UserError as error:
        assert "\n" not in str(error)
        return str(error)


@pytest.mark.parametrize("way", range(3), ids=["all weights", "lora", "checkpointing"])
@pytest.mark.parametrize("name", KINDS)
def test_what_is_tried_before_a_run(name, way):
    """Guards: a model that reads what comes after, wrong positions, states that nobody keeps: trained on log-probs of another."""
    kind, settings, reasons = KINDS[name]
    model = make(kind, settings)
    if way:
        lora.inject(model, 2, 16.0, ["A", "B"])
    agents = agents_of(model)
    if way == 2 and model.supports_gradient_checkpointing:
        lora.checkpointing(model)
        for agent in agents:
            agent.checkpointing = True
    said = refusal(guards.try_out, agents)
    assert (reasons[way] in said and model.__class__.__name__ in said) if reasons[way] else not said, said


@pytest.mark.parametrize("name", tiny.EVERY)
def test_trying_leaves_everything_as_it_was(name):
    """Guards: weights, gradients or the global random state moved by the trial."""
    model = tiny.model(name)
    lora.inject(model, 2, 16.0, ["A", "B"], b_std=[0.0, 0.1])
    before, state = {n: p.clone() for n, p in model.state_dict().items()}, torch.get_rng_state()
    guards.try_out(agents_of(model))
    assert all(torch.equal(p, before[n]) for n, p in model.state_dict().items()) and torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())


def test_rows_that_go_through_anothers_adapter_are_seen(monkeypatch):
    """Guards: at the start all adapters are alike, so that a layer which takes rows for other agents' would not be noticed."""
    model = tiny.model()
    lora.inject(model, 2, 16.0, ["A", "B"])
    right = lora.LoRALinear.change_by_row

    def mixed(self, choice, x):
        return right(self, choice._replace(adapters=choice.adapters[::-1]), x)

    monkeypatch.setattr(lora.LoRALinear, "change_by_row", mixed)
    assert "apart" in refusal(guards.try_out, agents_of(model))


def test_what_mamba_writes_in_a_batch_is_what_it_writes_alone():
    """Guards: while decoding, the mask of the whole text multiplied into a one-token input: log-probs 2 nats off."""
    (agent, _), prompts = agents_of(make("mamba", {"state_size": 8})), ["w5 w6 w7 w8 w9 w10 w11", "w12 w13 w14"]
    (wrote,) = sample_cohort([agent], [prompts], 3, 12, generators=[torch.Generator().manual_seed(1)])
    assert ((guards.plain_logprobs(agent, wrote) - wrote.logprobs) * wrote.mask).abs().max() < 1e-4


@pytest.mark.parametrize("kind, settings, share", [("mixtral", EXPERTS, "14%"), ("gpt_oss", EXPERTS | {"head_dim": 8}, "14%"),
                                                   ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}, "")])  # fmt: skip
def test_the_share_of_weights_under_adapters_is_said(kind, settings, share, capsys):
    """Guards: experts, which are most of a model, left out by --lora-rank without a word."""
    model = make(kind, settings)
    lora.inject(model, 2, 16.0)
    guards.say_coverage(model)
    said = capsys.readouterr().err
    assert (f"lie on {share}" in said and "experts.gate_up_proj" in said) if share else not said


def with_eyes():
    """A model that reads pictures too."""
    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    return AutoConfig.for_model("gemma3", vision_config=sizes, text_config=tiny.SMALL | {"head_dim": 8, "attention_dropout": 0.5})


def test_a_model_with_eyes():
    """Guards: dropout left on in a part of a model; adapters on a part that no text goes through."""
    config = with_eyes()
    models.no_dropout(config)
    model = AutoModelForCausalLM.from_config(config).eval()
    assert config.text_config.attention_dropout == 0.0
    names = lora.inject(model, 2, 16.0, ["A", "B"])
    assert names and not [name for name in names if "vision" in name or "lm_head" in name]
    lora.checkpointing(model)
    agents = agents_of(model)
    for agent in agents:
        agent.checkpointing = True
    guards.try_out(agents)


def test_what_does_not_fit_is_refused_before_it_is_made():
    """Guards: a machine that swaps until it is switched off, for --lora-rank 1000000 or --prompts 1000000000."""
    model = tiny.model()
    assert "rank 100000000" in refusal(memory.fit_adapters, model, 10**8, 2)
    assert not refusal(memory.fit_adapters, model, 64, 2)
    much = memory.AtATime(sampled=10**10, evaluated=1, prompt=256, learned=8, new=40)
    assert "--prompts" in refusal(memory.estimate, agents_of(model), much)


# ---------------------------------------------------------------- folders of models


class Runs:
    """Whoever unpickles it runs what it says."""

    def __reduce__(self):
        return exec, ("raise SystemExit('run')",)


def config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weights(folder, content: bytes):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)


def longer(folder):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["more"])
    tokenizer.save_pretrained(folder)


BROKEN = {
    "tokenizer longer than the embedding": (longer, "64"),
    "tokenizer of a newer kind": (lambda f: (f / "tokenizer.json").write_text('{"model": {"type": "New"}}'), "cannot load"),
    "weights are a pointer": (lambda f: weights(f, b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n"), "cannot load"),
    "weights are HTML": (lambda f: weights(f, b"<!doctype html><p>404"), "cannot load"),
    "weights are empty": (lambda f: weights(f, b""), "cannot load"),
    "weights are an object": (lambda f: weights(f, pickle.dumps(Runs())), "cannot load"),
    "no heads": (lambda f: config(f, num_attention_heads=0), "cannot load"),
    "text for a number": (lambda f: config(f, hidden_size="many"), "cannot load"),
    "code": (lambda f: config(f, auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}, model_type="evil"),
             "cannot load"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A model's folder."""
    tiny.model("qwen3").save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "evil.py").write_text("raise SystemExit('run')")
    return tmp_path / "model"


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_one_line(name, folder):
    """Guards: a traceback out of the library, after a run has a folder; and code or objects that come with a model being run."""
    breaks, says = BROKEN[name]
    assert not refusal(models.load_model, str(folder), torch.device("cpu"), "float32")
    breaks(folder)
    assert says in refusal(models.load_model, str(folder), torch.device("cpu"), "float32")


def test_a_models_own_settings_of_sampling_are_not_kept(folder):
    """Guards: a generation_config that the library reads but refuses to write: the whole run lost at its first save."""
    (folder / "generation_config.json").write_text('{"temperature": 0.6, "do_sample": false, "eos_token_id": [2, 7]}')
    model, tokenizer = models.load_model(str(folder), torch.device("cpu"), "float32")
    assert models.end_tokens(model, tokenizer) == {2, 7}
    model.save_pretrained(folder / "saved")
    assert json.loads((folder / "saved" / "generation_config.json").read_text()).get("temperature") is None


def test_an_adapter_beside_the_weights(folder):
    """Guards: base plus adapter measured and trained as if it were the model."""
    pytest.importorskip("peft")
    model = tiny.model("qwen3")
    lora.inject(model, 2, 4.0, ["A"])
    peft.save(model, "A", folder)
    assert "adapter_config.json" in refusal(models.load_model, str(folder), torch.device("cpu"), "float32")


def test_linear_layers_of_an_expert_may_fold_rows():
    """Guards: "use() was given 4 rows, but the batch has 112" of a block that flattens its batch to [rows * S, in]."""
    net = nn.Sequential(nn.Linear(4, 3))
    lora.inject(net, 2, 4.0, ["A", "B"], b_std=0.1)
    x = torch.randn(4, 5, 4)
    with lora.use(net, ["B", "A", "A", "B"]):
        assert torch.equal(net(x).flatten(0, 1), net(x.flatten(0, 1)))
