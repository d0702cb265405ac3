"""Adapters over a frozen base, on tiny random models of five architectures; PEFT is the independent reference."""

import copy
import inspect
import json
import logging
import math
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

import lora
from lab import peft as disk

NEEDS_PEFT = "PEFT is not installed, so its file format is not compared; benchmarks/requirements.txt lists it"
# PEFT itself asks transformers 5.24 for a property by its old name.
PEFTS_OWN = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2}
CONFIGS = {
    "qwen2": lambda **extra: Qwen2Config(**SIZES, **extra),
    "qwen3": lambda **extra: Qwen3Config(**SIZES, head_dim=8, **extra),
    "llama": lambda **extra: LlamaConfig(**SIZES, **extra),
    "gemma3": lambda **extra: Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=4,
                                               layer_types=["sliding_attention", "full_attention"], **extra),
    "gpt2": lambda **extra: GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1,
                                       eos_token_id=2, **extra),
}
EVERY = pytest.mark.parametrize("kind", CONFIGS)
IDS = torch.randint(3, 64, (4, 9), generator=torch.Generator().manual_seed(5))      # [rows, tokens]


def make(kind="qwen2", dtype=torch.float32, seed=0, **extra) -> PreTrainedModel:
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIGS[kind](**extra), dtype=dtype).eval()


def logits(model, ids=IDS) -> torch.Tensor:
    with torch.no_grad():
        return model(ids).logits        # [rows, tokens, vocabulary]


def logits_of(model, adapter, ids=IDS) -> torch.Tensor:
    with lora.use(model, adapter):
        return logits(model, ids)


def snapshot(model) -> dict:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same_bits(a, b) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


class Toy(nn.Module):
    """A model with odd module names and no methods of transformers."""

    def __init__(self, width=8):
        super().__init__()
        torch.manual_seed(1)
        self.weighted_mix, self.lora_A, self.base = (nn.Linear(width, width) for _ in range(3))
        self.lora = nn.ModuleDict({"weight": nn.Linear(width, width, bias=False)})

    def forward(self, x):
        for layer in (self.weighted_mix, self.lora_A, self.base, self.lora["weight"]):
            x = torch.tanh(layer(x))
        return x


# --- the layer and its use ------------------------------------------------------------------------------------------

def test_the_formula_by_hand():
    """Guards against alpha not divided by the rank, and A and B exchanged."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False))
    lora.inject(model, rank=4, alpha=16)
    layer = model[0]
    with torch.no_grad():
        layer.base.weight.copy_(torch.tensor([[1.0, 2.0]]))
        layer.A[0].copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]))
        layer.B[0].copy_(torch.tensor([[0.5, -0.25, 9.0, 9.0]]))
    with lora.use(model, 0):
        y = model(torch.tensor([[3.0, 4.0]]))
    assert y.item() == 3 + 8 + 4 * (0.5 * 3 - 0.25 * 4)      # scale 16/4


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_with_b_zero_the_model_is_the_base_bitwise(kind, dtype):
    """Guards against a KL above 0 at step 0: a cast or a sum that moves logits although B is zero (T13)."""
    model = make(kind, dtype)
    bare = logits(model)
    lora.inject(model, 4, 8, adapters=2)
    for adapter in (0, 1, "1", [0, 1, 1, 0], None):
        assert same_bits(logits_of(model, adapter), bare)
    assert same_bits(logits(model), bare)       # outside `use`: the bare base


@EVERY
def test_all_linear_layers_of_the_blocks_and_the_parameter_count(kind):
    """Guards against layers left out and a wrong size: r (in + out) for each layer, and float32."""
    model = make(kind, torch.bfloat16)
    dense = {n: lora._shape(m) for n, m in model.named_modules()
             if isinstance(m, nn.Linear | lora.Conv1D) and n != "lm_head"}
    names = lora.inject(model, rank=3, alpha=6)
    assert names == list(dense) and len(names) == (8 if kind == "gpt2" else 14)
    mine = lora.parameters(model, 0)
    assert sum(p.numel() for p in mine) == sum(3 * (i + o) for o, i in dense.values())
    assert all(p.dtype == torch.float32 and p.requires_grad for p in mine)
    assert {id(p) for p in model.parameters() if p.requires_grad} == {id(p) for p in mine}


def test_initial_values():
    """Guards against a wrong A (bound 1/sqrt(in)), noise in the standard adapter, runs that cannot be repeated."""
    first, again, more, other = (make() for _ in range(4))
    lora.inject(first, 4, 8, ["drafter", "challenger"], b_std=[0.0, 0.02], seed=7)
    lora.inject(again, 4, 8, ["drafter", "challenger"], b_std=[0.0, 0.02], seed=torch.Generator().manual_seed(7))
    lora.inject(more, 4, 8, 3, seed=7)
    lora.inject(other, 4, 8, seed=8)
    for adapter in ("drafter", "challenger"):
        pairs = zip(lora.parameters(first, adapter), lora.parameters(again, adapter), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert torch.equal(lora.parameters(first, 0)[0], lora.parameters(more, 0)[0])
    assert not torch.equal(lora.parameters(first, 0)[0], lora.parameters(other, 0)[0])
    drafter, challenger = (lora.parameters(first, name) for name in ("drafter", "challenger"))
    for a in drafter[::2]:
        assert a.abs().max() <= 1 / math.sqrt(a.shape[1]) and a.std() > 0.4 / math.sqrt(a.shape[1])
    assert all(b.count_nonzero() == 0 for b in drafter[1::2])
    noise = torch.cat([b.flatten() for b in challenger[1::2]])
    assert abs(noise.std().item() - 0.02) < 0.001 and abs(noise.mean().item()) < 0.001
    assert not torch.equal(drafter[0], challenger[0])


def test_injection_does_not_touch_the_global_random_state():
    """Guards against runs whose sampling depends on whether adapters were added before."""
    torch.manual_seed(3)
    expected = torch.rand(1)
    model = make()
    torch.manual_seed(3)
    lora.inject(model, 4, 8, b_std=0.1)
    assert torch.equal(torch.rand(1), expected)


@EVERY
def test_the_reference_is_the_bare_base_and_use_is_restored(kind):
    """Guards against an adapter left on in the reference pass, or off after it: nested, after errors (T13)."""
    model = make(kind)
    bare = logits(model)
    lora.inject(model, 4, 8, 2, b_std=0.05)
    a, b = logits_of(model, 0), logits_of(model, 1)
    assert (a - bare).abs().max() > 1e-3 and (b - bare).abs().max() > 1e-3 and (a - b).abs().max() > 1e-3
    with lora.use(model, 0):
        assert same_bits(logits(model), a)
        with lora.use(model, None):
            assert same_bits(logits(model), bare)
            with lora.use(model, "1"):
                assert same_bits(logits(model), b)
            assert same_bits(logits(model), bare)
        with pytest.raises(KeyError), lora.use(model, None):
            raise KeyError
        assert same_bits(logits(model), a)
        with pytest.raises(lora.LoraError):
            lora.use(model, 9)
        with pytest.raises(lora.LoraError), lora.use(model, [0, 1]):
            logits(model)       # four rows, not two
        assert same_bits(logits(model), a)
    assert same_bits(logits(model), bare)


def test_a_model_without_adapters():
    """Guards against agents with their own weights that cannot go through the same code (adapter None)."""
    model = make()
    bare = logits(model)
    assert same_bits(logits_of(model, None), bare)
    for call in (lora.parameters, lora.merge, lora.use):
        with pytest.raises(lora.LoraError, match="no adapters"):
            call(model, 0)


@EVERY
def test_a_mixed_batch_gives_each_row_what_it_gets_alone(kind):
    """Guards against rows that go through a neighbour's adapter, for any order, also when finished rows have left."""
    model = make(kind)
    lora.inject(model, 4, 8, ["x", "y", "z"], b_std=0.05)
    alone = torch.stack([logits_of(model, i) for i in range(3)])        # [adapter, rows, tokens, V]
    for rows in ([0, 0, 1, 2], [2, 0, 1, 0], [1, 1, 1, 1], torch.tensor([0, 2, 2, 1]), ("z", 0, "y", "x")):
        indices = [("x", "y", "z").index(r) if isinstance(r, str) else int(r) for r in rows]
        expected = torch.stack([alone[adapter, row] for row, adapter in enumerate(indices)])
        assert (logits_of(model, rows) - expected).abs().max() < 1e-5
    left = logits_of(model, [2, 0], IDS[[1, 3]])
    assert (left - torch.stack([alone[2, 1], alone[0, 3]])).abs().max() < 1e-5


def test_a_mixed_batch_over_a_cache():
    """Guards against `use` re-entered for each token giving another result than one pass over the whole sequence."""
    model = make()
    lora.inject(model, 4, 8, 2, b_std=0.05)
    whole = logits_of(model, [1, 0, 1, 0])
    with torch.no_grad(), lora.use(model, [1, 0, 1, 0]):
        out = model(IDS[:, :5], use_cache=True)
    steps, cache = [out.logits], out.past_key_values
    renamed = "cache" in inspect.signature(model.forward).parameters        # transformers 5.24 deprecates the old name
    for t in range(5, IDS.shape[1]):
        with torch.no_grad(), lora.use(model, [1, 0, 1, 0]):
            steps.append(model(IDS[:, t:t + 1], **{"cache" if renamed else "past_key_values": cache}).logits)
    assert (torch.cat(steps, 1) - whole).abs().max() < 1e-5


def test_gradients_of_a_mixed_batch():
    """Guards against gradients that leak between the adapters of one batch."""
    model = make()
    lora.inject(model, 4, 8, 3, b_std=0.05)
    with lora.use(model, [2, 0, 2, 0]):
        model(IDS).logits.square().sum().backward()
    mixed = {i: [p.grad for p in lora.parameters(model, i)] for i in range(3)}
    assert all(g is None for g in mixed[1])
    for adapter, ids in ((0, IDS[1::2]), (2, IDS[0::2])):
        model.zero_grad()
        with lora.use(model, adapter):
            model(ids).logits.square().sum().backward()
        for p, g in zip(lora.parameters(model, adapter), mixed[adapter], strict=True):
            assert torch.allclose(p.grad, g, rtol=1e-4, atol=1e-4)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_moves_one_adapter_and_nothing_else(kind, dtype):
    """Guards against a base or an idle adapter that drifts: gradients None, not zero (AdamW decays on zeros)."""
    model = make(kind, dtype)
    lora.inject(model, 4, 8, 2, b_std=0.02)
    before = snapshot(model)
    optimizer = torch.optim.AdamW([p for i in range(2) for p in lora.parameters(model, i)], lr=1e-2, weight_decay=0.1)
    with lora.use(model, 1):
        model(IDS).logits.float().square().mean().backward()
    assert all(p.grad is None for p in lora.parameters(model, 0))
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in lora.parameters(model, 1))
    optimizer.step()
    mine = {id(p) for p in lora.parameters(model, 1)}
    for name, p in model.named_parameters():
        assert same_bits(p.detach(), before[name]) == (id(p) not in mine), name


def test_small_steps_arrive_over_a_bfloat16_base():
    """Guards against updates that bfloat16 rounds away: 100 AdamW steps of 5e-4 from 0.5 arrive at 0.45 (T15c)."""
    model = nn.Sequential(nn.Linear(4, 4).bfloat16())
    lora.inject(model, 2, 2)
    _, B = lora.parameters(model, 0)
    with torch.no_grad():
        B.fill_(0.5)
    optimizer = torch.optim.AdamW([B], lr=5e-4, weight_decay=0.0)
    for _ in range(100):
        B.grad = torch.ones_like(B)
        optimizer.step()
    assert torch.allclose(B, torch.full_like(B, 0.45), atol=1e-5)


def test_two_scorings_agree_bitwise_in_training_mode():
    """Guards against adapter dropout, which makes the importance ratio noise (T11)."""
    model = make()
    lora.inject(model, 4, 8, b_std=0.5)
    model.train()
    assert same_bits(logits_of(model, 0), logits_of(model, 0))


def test_a_copy_of_the_model_has_its_own_adapters_in_use():
    """Guards against a deep copy whose layers still listen to the original's `use`."""
    model = make()
    bare = logits(model)
    lora.inject(model, 4, 8, b_std=0.05)
    twin = copy.deepcopy(model)
    with lora.use(model, 0):
        assert same_bits(logits(twin), bare)
    assert same_bits(logits_of(twin, 0), logits_of(model, 0))


# --- which layers, and what is refused ------------------------------------------------------------------------------

def test_targets_are_names_or_endings_never_substrings():
    """Guards against names matched by substring, and against a typing error that trains nothing."""
    assert [n.rpartition(".")[2] for n in lora.inject(make(), 2, 2, targets=["q_proj", "mlp.up_proj"])] == [
        "q_proj", "up_proj", "q_proj", "up_proj"]
    assert lora.inject(make(), 2, 2, targets="model.layers.1.self_attn.q_proj") == ["model.layers.1.self_attn.q_proj"]
    assert lora.inject(Toy(), 2, 2, targets=["weighted_mix", "weight"]) == ["weighted_mix", "lora.weight"]
    for wrong in (["q_proj", "q_prj"], ["proj"], [""], ["_proj"]):
        model = make()
        with pytest.raises(lora.LoraError, match=f"{wrong[-1]!r}; linear layers here: down_proj, gate_proj, k_proj"):
            lora.inject(model, 2, 2, targets=wrong)
        assert "_lora" not in vars(model) and next(model.parameters()).requires_grad
    with pytest.raises(lora.LoraError, match=r"model.layers.0.mlp is a Qwen2MLP"):
        lora.inject(make(), 2, 2, targets=["mlp"])
    with pytest.raises(lora.LoraError, match=r"embed_tokens is a Embedding"):
        lora.inject(make(), 2, 2, targets=["embed_tokens"])


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3", "gpt2"])
def test_a_tied_head_is_refused_with_the_reason(kind, tmp_path):
    """Guards against a merge into lm_head that moves the input embeddings too (T16)."""
    model = make(kind, tie_word_embeddings=True)
    bare = logits(model)
    with pytest.raises(lora.LoraError, match=r"lm_head shares its weight with .* \(tied embeddings\)"):
        lora.inject(model, 2, 4, targets=["lm_head"])
    embeddings = model.get_input_embeddings().weight.clone()
    assert "lm_head" not in lora.inject(model, 2, 4, b_std=0.05)      # all linear layers: not the head
    changed = logits_of(model, 0)
    lora.merge(model, 0)
    assert same_bits(model.get_input_embeddings().weight, embeddings)
    assert torch.allclose(logits(model), changed, atol=1e-5) and not torch.allclose(changed, bare, atol=1e-3)
    model.save_pretrained(tmp_path)
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(tmp_path)), changed, atol=1e-5)


def test_an_untied_head_can_be_adapted(tmp_path):
    """Guards against refusing lm_head where it has a weight of its own."""
    model = make(tie_word_embeddings=False)
    assert lora.inject(model, 2, 4, targets=["q_proj", "lm_head"], b_std=0.1)[-1] == "lm_head"
    disk.save(model, 0, tmp_path)
    fresh = make(tie_word_embeddings=False)
    disk.load(fresh, "a", tmp_path)
    assert same_bits(logits_of(fresh, 0), logits_of(model, 0))


def test_mistakes_are_refused():
    """Guards against silent defaults for impossible requests."""
    for arguments in ({"rank": 0, "alpha": 1}, {"rank": 2, "alpha": 0}, {"rank": 2, "alpha": 1, "adapters": ["a", "a"]},
                      {"rank": 2, "alpha": 1, "adapters": 0}, {"rank": 2, "alpha": 1, "adapters": "drafter"},
                      {"rank": 2, "alpha": 1, "adapters": 2, "b_std": [0.1]}):
        with pytest.raises(lora.LoraError):
            lora.inject(make(), **arguments)
    model = make()
    lora.inject(model, 2, 4, ["a", "b"])
    with pytest.raises(lora.LoraError, match="adapters already"):
        lora.inject(model, 2, 4)
    for wrong in (2, -1, "c", [0, 1, 2, 0], [0, -1, 0, 0], [0, None, 0, 0]):
        with pytest.raises(lora.LoraError, match="no adapter"):
            lora.use(model, wrong)
    quantized = nn.Sequential(nn.Linear(4, 4))
    quantized[0].weight = nn.Parameter(torch.zeros(4, 4, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(lora.LoraError, match="unquantized"):
        lora.inject(quantized, 2, 4)


# --- merging --------------------------------------------------------------------------------------------------------

@EVERY
def test_merge_and_its_exact_undo(kind):
    """Guards against a merge that differs from the adapter, happens twice, or is undone only nearly (T15)."""
    model = make(kind)
    lora.inject(model, 4, 8, 2, b_std=0.05)
    before, changed, other = snapshot(model), logits_of(model, 0), logits_of(model, 1)
    assert lora.merge(model, 0) == 0.0
    assert torch.allclose(logits(model), changed, atol=1e-5)
    assert not any(isinstance(m, lora.LoRALinear) for m in model.modules())
    for again in (0, 1):
        with pytest.raises(lora.LoraError, match="merged already"):
            lora.merge(model, again)
        with pytest.raises(lora.LoraError, match="merged into the base"):
            lora.use(model, again)
    lora.unmerge(model)
    after = snapshot(model)
    assert after.keys() == before.keys() and all(same_bits(after[n], before[n]) for n in before)
    assert same_bits(logits_of(model, 0), changed) and same_bits(logits_of(model, 1), other)
    with pytest.raises(lora.LoraError, match="no adapter is merged"):
        lora.unmerge(model)


def test_bfloat16_swallows_a_small_change_and_says_so():
    """Guards against a merge that changes nothing in silence: 1.0 + 0.003 is 1.0 in bfloat16 (T15a)."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False).bfloat16())
    lora.inject(model, 1, 1)
    with torch.no_grad():
        model[0].base.weight.fill_(1.0)
        model[0].A[0].fill_(0.003)
        model[0].B[0].fill_(1.0)
    with pytest.warns(UserWarning, match=r"bfloat16 swallowed 100% of the adapter's change"):
        assert lora.merge(model, 0) == pytest.approx(1.0, abs=1e-4)
    assert model[0].weight.item() == 1.0


def test_undo_of_1000_bfloat16_weights_is_bitwise():
    """Guards against undoing by subtraction, which leaves some weights wrong; the merge itself rounds once (T15b)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 25, bias=False).bfloat16())
    lora.inject(model, 4, 8, b_std=0.05)
    layer, weight = model[0], model[0].base.weight.detach().clone()
    delta = (layer.B[0].detach().double() @ layer.A[0].detach().double()) * 2
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        share = lora.merge(model, 0)
    merged = model[0].weight.detach()
    ideal = weight.double() + delta
    assert share == pytest.approx(((merged.double() - ideal).norm() / delta.norm()).item(), rel=1e-3)
    assert (merged != ideal.bfloat16()).sum() <= 1         # one rounding; float64 may fall on the other side of a tie
    assert ((merged.double() - delta).bfloat16() != weight).sum() > 10      # subtracting would not do
    lora.unmerge(model)
    assert same_bits(model[0].base.weight.detach(), weight)


# --- files ----------------------------------------------------------------------------------------------------------

@EVERY
def test_a_file_alone_restores_the_adapter(kind, tmp_path):
    """Guards against rank, alpha or targets that are not stored: r=4, alpha=16 into a fresh model (T17)."""
    model = make(kind)
    targets = ["c_attn"] if kind == "gpt2" else ["q_proj", "down_proj"]
    lora.inject(model, 4, 16, ["lora", "b.c/d"], targets, b_std=0.05)
    for i, name in enumerate(["lora", "b.c/d"]):
        disk.save(model, name, tmp_path / str(i))
    fresh = make(kind)
    assert disk.load(fresh, "lora", tmp_path / "0") == 0 and disk.load(fresh, "b.c/d", tmp_path / "1") == 1
    assert fresh._lora.alpha / fresh._lora.rank == 4
    for name in ("lora", "b.c/d"):
        assert same_bits(logits_of(fresh, name), logits_of(model, name))
    assert disk.load(fresh, 1, tmp_path / "0") == 1         # overwrites
    assert same_bits(logits_of(fresh, 1), logits_of(model, 0))
    assert len(fresh._lora.names) == 2


def test_odd_module_names(tmp_path):
    """Guards against names rewritten by substring: `weighted_mix`, and layers called lora_A, base, weight (T17)."""
    model, x = Toy(), torch.randn(3, 8)
    lora.inject(model, 2, 4, b_std=0.3)
    disk.save(model, 0, tmp_path)
    fresh = Toy()
    disk.load(fresh, "a", tmp_path)
    with lora.use(model, 0), lora.use(fresh, 0):
        assert torch.equal(model(x), fresh(x))
    assert set(load_file(tmp_path / disk.TENSOR_FILE)) == {
        f"base_model.model.{name}.lora_{part}.weight"
        for name in ("weighted_mix", "lora_A", "base", "lora.weight") for part in "AB"}


KEY = "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight"


def _drop(tensors, config):
    del tensors[KEY]
    return KEY


def _drop_a_layer(tensors, config):
    for part in "AB":
        del tensors[f"base_model.model.model.layers.0.mlp.up_proj.lora_{part}.weight"]
    return "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"


def _add(tensors, config):
    tensors[KEY + ".extra"] = torch.zeros(1)
    return KEY + ".extra"


def _rename_prefix(tensors, config):
    tensors[KEY.removeprefix("base_model.model.")] = tensors.pop(KEY)
    return KEY


def _wrong_shape(tensors, config):
    tensors[KEY] = tensors[KEY].T.contiguous()
    return KEY


def _other_rank_in_config(tensors, config):
    config["r"] = 2
    return "lora_A.weight has shape"


def _unknown_target(tensors, config):
    config["target_modules"].append("query")
    return "'query'"


def _no_rank(tensors, config):
    del config["r"]
    return "r must be"


def _rslora(tensors, config):
    config["use_rslora"] = True
    return "use_rslora"


def _rank_pattern(tensors, config):
    config["rank_pattern"] = {"q_proj": 8}
    return "rank_pattern"


def _pissa(tensors, config):
    config["init_lora_weights"] = "pissa"
    return "init_lora_weights"


def _a_later_invention(tensors, config):
    config["use_something_new"] = True
    return "use_something_new"


def _other_method(tensors, config):
    config["peft_type"] = "LOHA"
    return "peft_type"


def _pattern(tensors, config):
    config["target_modules"] = r".*\.q_proj"
    return "target_modules"


FAULTS = [_drop, _drop_a_layer, _add, _rename_prefix, _wrong_shape, _other_rank_in_config, _no_rank, _rslora,
          _rank_pattern, _pissa, _a_later_invention, _other_method, _pattern]


@pytest.mark.parametrize(("injected", "fault"), [(False, _unknown_target)] + [(i, f) for i in (False, True) for f in FAULTS])
def test_a_file_that_does_not_fit_is_refused_by_key(injected, fault, tmp_path):
    """Guards against an untrained or too strong adapter behind a file that loaded without loading (T17)."""
    model = make()
    lora.inject(model, 4, 8, b_std=0.05)
    disk.save(model, 0, tmp_path)
    tensors = load_file(tmp_path / disk.TENSOR_FILE)
    config = json.loads((tmp_path / disk.CONFIG_FILE).read_text())
    named = fault(tensors, config)
    save_file(tensors, tmp_path / disk.TENSOR_FILE)
    (tmp_path / disk.CONFIG_FILE).write_text(json.dumps(config))
    fresh = make()
    if injected:
        lora.inject(fresh, 4, 8, b_std=0.01)
        named = "r=2" if fault is _other_rank_in_config else named
    before = snapshot(fresh)
    for adapter in ("0", "new"):
        with pytest.raises(lora.LoraError) as error:
            disk.load(fresh, adapter, tmp_path)
        assert named in str(error.value)
    after = snapshot(fresh)
    assert after.keys() == before.keys() and all(same_bits(after[n], before[n]) for n in before)     # nothing changed
    assert injected or all(p.requires_grad for p in fresh.parameters())


def test_another_base_or_rank_or_alpha_is_refused(tmp_path):
    """Guards against an adapter on a base it was not trained on, of another shape or of the same (T17)."""
    model = make()
    lora.inject(model, 4, 8, b_std=0.05)
    disk.save(model, 0, tmp_path)
    with pytest.raises(lora.LoraError, match="base_sha256"):
        disk.load(make(seed=1), "a", tmp_path)
    with pytest.raises(lora.LoraError, match="linear layers here: c_attn"):
        disk.load(make("gpt2"), "a", tmp_path)
    with pytest.raises(lora.LoraError, match=r"q_proj.lora_A.weight has shape \(4, 32\)"):
        torch.manual_seed(0)
        disk.load(AutoModelForCausalLM.from_config(Qwen2Config(**{**SIZES, "hidden_size": 64})), "a", tmp_path)
    for rank, alpha in ((8, 8), (4, 16)):
        other = make()
        lora.inject(other, rank, alpha)
        with pytest.raises(lora.LoraError, match=f"r=4, lora_alpha=8, but .* r={rank}, lora_alpha={alpha}"):
            disk.load(other, 0, tmp_path)
    with pytest.raises(lora.LoraError, match="no adapters"):
        disk.load(make(), 0, tmp_path)
    disk.load(make(dtype=torch.bfloat16), "a", tmp_path)      # the same base in another precision is the same base


def test_broken_and_missing_files(tmp_path):
    """Guards against a traceback, or a half-read adapter, after a write that was cut short."""
    with pytest.raises(lora.LoraError, match=r"adapter_config.json cannot be read"):
        disk.load(make(), "a", tmp_path)
    model = make()
    lora.inject(model, 4, 8)
    disk.save(model, 0, tmp_path)
    path = tmp_path / disk.TENSOR_FILE
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(lora.LoraError, match=r"adapter_model.safetensors cannot be read"):
        disk.load(make(), "a", tmp_path)
    path.unlink()
    with pytest.raises(lora.LoraError, match=r"adapter_model.safetensors cannot be read"):
        disk.load(make(), "a", tmp_path)
    for text in ("{", "[1]", "3", '{"r": "4"}'):
        (tmp_path / disk.CONFIG_FILE).write_text(text)
        with pytest.raises(lora.LoraError, match=r"adapter_config.json"):
            disk.load(make(), "a", tmp_path)


def test_a_layer_of_experts_flattens_its_batch():
    """Mixture-of-experts blocks view [rows,S,in] as [rows*S,in]: each position still goes through its own row's adapter."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 5))
    lora.inject(model, 2, 4.0, ["a", "b"], b_std=0.5)
    x = torch.randn(3, 4, 6)
    with lora.use(model, ["b", "a", "b"]):
        assert torch.equal(model(x.flatten(0, 1)), model(x).flatten(0, 1))
        with pytest.raises(lora.LoraError, match="3 rows, but the batch has 4"):
            model(x[0])


# --- PEFT -----------------------------------------------------------------------------------------------------------

@PEFTS_OWN
@EVERY
@pytest.mark.parametrize("targets", ["default", "one"])
def test_peft_reads_what_is_saved_here(kind, targets, tmp_path):
    """Guards against files that only this module can read: same logits through PEFT, without a warning."""
    peft = pytest.importorskip("peft", reason=NEEDS_PEFT)
    first = {"gpt2": "transformer.h.0.attn.c_attn"}.get(kind, "model.layers.0.self_attn.q_proj")
    model = make(kind)
    names = lora.inject(model, 4, 16, 2, targets=None if targets == "default" else [first], b_std=0.05)
    assert targets == "default" or names == [first]
    disk.save(model, 1, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)   # PEFT's own
        theirs = peft.PeftModel.from_pretrained(make(kind), tmp_path).eval()
    assert (logits(theirs) - logits_of(model, 1)).abs().max() < 1e-5
    assert (logits_of(model, 1) - logits_of(model, None)).abs().max() > 1e-3


def _peft_model(peft, kind, base, **settings):
    names = ["c_attn", "c_proj", "c_fc"] if kind == "gpt2" else ["q_proj", "v_proj", "o_proj", "down_proj"]
    config = peft.LoraConfig(**{"task_type": "CAUSAL_LM", "r": 6, "lora_alpha": 9, "lora_dropout": 0.1,
                                "fan_in_fan_out": kind == "gpt2", "target_modules": names} | settings)
    theirs = peft.get_peft_model(base, config).eval()
    torch.manual_seed(2)
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if "lora_" in name:
                p.normal_(0, 0.1)
    return theirs


@PEFTS_OWN
@EVERY
@pytest.mark.parametrize("targets", ["names", "all-linear"])
def test_what_peft_saves_loads_here(kind, targets, tmp_path):
    """Guards against names, scale or layout that differ from PEFT's; the adapter has another rank and alpha."""
    peft = pytest.importorskip("peft", reason=NEEDS_PEFT)
    theirs = _peft_model(peft, kind, make(kind), **({"target_modules": targets} if targets == "all-linear" else {}))
    theirs.save_pretrained(tmp_path)
    model = make(kind)
    assert disk.load(model, "a", tmp_path) == 0
    assert (logits_of(model, 0) - logits(theirs)).abs().max() < 1e-5
    assert (logits_of(model, 0) - logits_of(model, None)).abs().max() > 1e-2
    lora.merge(model, 0)
    assert (logits(model) - logits(theirs.merge_and_unload())).abs().max() < 1e-5


@PEFTS_OWN
def test_a_bfloat16_base_agrees_with_peft(tmp_path):
    """Guards against another order of rounding than PEFT's over a bfloat16 base."""
    peft = pytest.importorskip("peft", reason=NEEDS_PEFT)
    model = make(dtype=torch.bfloat16)
    lora.inject(model, 4, 16, b_std=0.05)
    disk.save(model, 0, tmp_path)
    theirs = peft.PeftModel.from_pretrained(make(dtype=torch.bfloat16), tmp_path).eval()
    assert (logits(theirs) - logits_of(model, 0)).abs().max() < 1e-5


@PEFTS_OWN
@pytest.mark.parametrize("settings", [{"use_rslora": True}, {"use_dora": True}, {"rank_pattern": {"q_proj": 2}},
                                      {"alpha_pattern": {"q_proj": 2}}, {"lora_bias": True}, {"bias": "lora_only"},
                                      {"modules_to_save": ["lm_head"]}, {"layers_to_transform": [0]},
                                      {"trainable_token_indices": [3]}, {"init_lora_weights": "olora"}])
def test_what_peft_can_and_we_cannot_is_refused_by_name(settings, tmp_path):
    """Guards against adapters that load at another strength or without a part of them: rsLoRA, DoRA, patterns."""
    peft = pytest.importorskip("peft", reason=NEEDS_PEFT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _peft_model(peft, "qwen2", make(tie_word_embeddings=False), **settings).save_pretrained(tmp_path)
    with pytest.raises(lora.LoraError, match=next(iter(settings))):
        disk.load(make(tie_word_embeddings=False), "a", tmp_path)


# --- gradient checkpointing -----------------------------------------------------------------------------------------

def _gradients(model, adapter, ids=IDS, backward_outside=False) -> list:
    model.zero_grad()
    with lora.use(model, adapter):
        loss = model(ids, use_cache=False).logits.square().mean()
        if not backward_outside:
            loss.backward()
    if backward_outside:
        with lora.use(model, 1):        # whatever is in use by then must not matter
            loss.backward()
    return [None if p.grad is None else p.grad.clone() for i in range(2) for p in lora.parameters(model, i)]


@EVERY
@pytest.mark.parametrize("adapter", [0, [1, 0, 0, 1]])
@pytest.mark.parametrize("backward_outside", [False, True])
def test_checkpointing_gives_the_same_gradients(kind, adapter, backward_outside, caplog):
    """Guards against adapters that do not train, or train through another adapter, under checkpointing (T18)."""
    extra = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0} if kind == "gpt2" else {}
    model = make(kind, **extra).train()
    names = lora.inject(model, 4, 8, 2, b_std=0.05)
    plain = _gradients(model, adapter, backward_outside=backward_outside)
    bare = logits(model)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        lora.checkpointing(model)
        calls = []
        model.get_submodule(names[0]).register_forward_hook(lambda *_: calls.append(1))
        saved = _gradients(model, adapter, backward_outside=backward_outside)
    assert len(calls) == 2 and not caplog.records               # the block did run again, and nobody was warned
    model.eval()
    assert same_bits(logits(model), bare)
    for one, other in zip(plain, saved, strict=True):
        assert (one is None) == (other is None)
        assert one is None or (one.abs().max() > 0 and torch.allclose(one, other, rtol=1e-5, atol=1e-8))
    assert sum(g is None for g in plain) == (2 * len(names) if adapter == 0 else 0)


def test_checkpointing_of_a_hand_made_stack():
    """Guards against the re-entrant fault: a frozen embedding, three adapted layers, an adapted head (T18)."""
    torch.manual_seed(0)
    embed, layers, head = nn.Embedding(8, 6), nn.ModuleList(nn.Linear(6, 6) for _ in range(3)), nn.Linear(6, 8)
    model = nn.ModuleDict({"embed": embed, "layers": layers, "head": head})
    lora.inject(model, 2, 4, b_std=0.1)
    grads = []
    for again in (False, True):
        model.zero_grad()
        with lora.use(model, 0):
            h = model["embed"](torch.arange(8))
            for layer in model["layers"]:
                h = torch.tanh(checkpoint(layer, h, use_reentrant=False) if again else layer(h))
            model["head"](h).square().sum().backward()
        grads.append([p.grad.clone() for p in lora.parameters(model, 0)])
    assert len(grads[0]) == 8 and all(g.abs().max() > 0 for g in grads[0])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_checkpointing_without_adapters():
    """Guards against full training with --checkpointing that needs adapters."""
    model = make().train()
    model(IDS, use_cache=False).logits.square().mean().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    lora.checkpointing(model)
    model(IDS, use_cache=False).logits.square().mean().backward()
    assert all(torch.allclose(p.grad, g, atol=1e-8) for p, g in zip(model.parameters(), plain, strict=True))
