"""Random tiny models of many architectures, and a tokenizer of digits, shared by the tests."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

SMALL = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=2,
    initializer_range=0.2,
)
CONFIGS = {
    "qwen2": lambda: Qwen2Config(**SMALL),
    "qwen3": lambda: Qwen3Config(**SMALL, head_dim=8),
    "llama": lambda: LlamaConfig(**SMALL),
    "mistral, window 5": lambda: MistralConfig(**SMALL, sliding_window=5),
    "gemma3, windows 5": lambda: Gemma3TextConfig(
        **SMALL, head_dim=8, sliding_window=5, layer_types=["sliding_attention", "full_attention"]
    ),
    "gpt2": lambda: GPT2Config(
        vocab_size=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.2,
    ),
}
# Layers whose cache is a recurrent state: it can be copied for sampling, and carries no gradient to share a prompt with.
RECURRENT = {
    "qwen3.5": lambda: AutoConfig.for_model(
        "qwen3_5_text", **SMALL, head_dim=8, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4,
    ),
    "lfm2": lambda: AutoConfig.for_model("lfm2", **SMALL, layer_types=["conv", "full_attention"], conv_L_cache=3),
    "falcon-h1": lambda: AutoConfig.for_model(
        "falcon_h1", **SMALL, head_dim=8, mamba_d_ssm=64, mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=1, mamba_d_state=8,
        mamba_chunk_size=8,
    ),
}  # fmt: skip
EVERY = CONFIGS | RECURRENT


def model(name: str = "qwen2", seed: int = 0):
    """A random model in eval mode, the same for the same seed."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(EVERY[name]()).eval()


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each of 64 words: <unk>, <bos>, <eos> (also the pad token, as in many models), then "w3" .. "w63"."""
    vocabulary = {"<unk>": 0, "<bos>": 1, "<eos>": 2} | {f"w{i}": i for i in range(3, 64)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>", pad_token="<eos>"
    )
    made.plain_prompt = True
    return made
