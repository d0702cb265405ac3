"""Pictures: that a prompt's one pass is the only one that sees them, for every family of models, and what becomes of bad ones."""

import base64
import io
import json
import struct
import zlib

import pytest
import tiny
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch.nn.functional import pad

pytest.importorskip("PIL")
import numpy as np  # noqa: E402
import transformers  # noqa: E402
from PIL import Image  # noqa: E402
from transformers.processing_utils import ProcessorMixin  # noqa: E402

import cohort  # noqa: E402
import grpo  # noqa: E402
import lora  # noqa: E402
from grpo import Agent, policy_logprobs, sample_cohort  # noqa: E402
from lab import data, guards, measure, memory, setup, tinyeyes, vision  # noqa: E402
from lab.data import Problem, UserError, hold_out, load_problems  # noqa: E402
from lab.models import encode_all, end_tokens, load_model, read_pictures  # noqa: E402
from lab.vision import Picture  # noqa: E402

# ---------------------------------------------------------------- tiny random models with eyes, each with its own processor

SIGNS = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<image>", "<boi>", "<eoi>", "<img>", "</img>",
         "<IMG_CONTEXT>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<video>", "\n\n"]  # fmt: skip
TEMPLATE = ("{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}MARK {% else %}{{ c['text'] }}"
            "{% endif %}{% endfor %}{% endfor %}")  # fmt: skip
EYE = {"num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "patch_size": 4,
       "image_size": 16}  # fmt: skip
SQUARE = {"height": 16, "width": 16}


def make_tokenizer(**named: str):
    words = {"<unk>": 0, "<bos>": 1, "<eos>": 2} | {f"w{i}": i for i in range(3, 64 - len(SIGNS))}
    core = Tokenizer(models.WordLevel(words | {s: len(words) + i for i, s in enumerate(SIGNS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>",
                                                pad_token="<eos>", extra_special_tokens=named)  # fmt: skip
    made.add_tokens([AddedToken(sign, special=True, normalized=False) for sign in SIGNS])
    return made


def make(kind, **parts):
    """A processor without its part for video, which alone wants torchvision."""
    checked = ProcessorMixin.check_argument_for_proper_class
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProcessorMixin, "check_argument_for_proper_class",
                      lambda self, name, part: type(None) if part is None else checked(self, name, part))  # fmt: skip
        return kind(**parts)


def qwen(kind):
    images = transformers.Qwen2VLImageProcessorPil(patch_size=4, temporal_patch_size=2, merge_size=2,
                                                   size={"shortest_edge": 64, "longest_edge": 4096})  # fmt: skip
    names = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}
    ids = {f"{name}_token_id": SIGNS.index(f"<|{sign}|>") + 64 - len(SIGNS) for name, sign in names.items()}
    return make(kind, image_processor=images, tokenizer=make_tokenizer(), video_processor=None), ids


ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
QWEN_EYE = {"depth": 2, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "out_hidden_size": 32}  # fmt: skip


def qwen2_5_vl():
    processor, ids = qwen(transformers.Qwen2_5_VLProcessor)
    eye = QWEN_EYE | {"fullatt_block_indexes": [1], "window_size": 16}
    return processor, {"text_config": tiny.SMALL | {"rope_parameters": ROPE}, "vision_config": eye} | ids


def qwen3_vl():
    processor, ids = qwen(transformers.Qwen3VLProcessor)
    eye = QWEN_EYE | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}
    return processor, {"text_config": tiny.SMALL | {"head_dim": 8, "rope_parameters": ROPE}, "vision_config": eye} | ids


def gemma3():
    tokenizer = make_tokenizer(image_token="<image>", boi_token="<boi>", eoi_token="<eoi>")
    processor = transformers.Gemma3Processor(transformers.Gemma3ImageProcessorPil(size=SQUARE), tokenizer, image_seq_length=4)
    ids = {name: tokenizer.convert_tokens_to_ids(sign) for name, sign in (
        ("image_token_index", "<image>"), ("boi_token_index", "<boi>"), ("eoi_token_index", "<eoi>"))}  # fmt: skip
    text = tiny.SMALL | {"head_dim": 8, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
    return processor, {"text_config": text, "vision_config": EYE, "mm_tokens_per_image": 4} | ids


def internvl():
    tokenizer = make_tokenizer(start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>",
                               video_token="<video>")  # fmt: skip
    images = transformers.GotOcr2ImageProcessorPil(size=SQUARE, crop_to_patches=True, min_patches=1, max_patches=4)
    processor = make(transformers.InternVLProcessor, image_processor=images, tokenizer=tokenizer, video_processor=None,
                     image_seq_length=4)  # fmt: skip
    eye = EYE | {"image_size": [16, 16], "patch_size": [4, 4]}
    return processor, {"text_config": tiny.SMALL | {"model_type": "qwen2"}, "vision_config": eye, "image_seq_length": 4,
                       "image_token_id": tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"), "downsample_ratio": 0.5}  # fmt: skip


def idefics3(kind="Idefics3"):
    tokenizer = make_tokenizer(image_token="<image>", fake_image_token="<fake_token_around_image>",
                               global_image_token="<global-img>", end_of_utterance_token="<end_of_utterance>")  # fmt: skip
    images = getattr(transformers, f"{kind}ImageProcessorPil")(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    video = {"video_processor": None} if kind == "SmolVLM" else {}
    processor = make(getattr(transformers, f"{kind}Processor"), image_processor=images, tokenizer=tokenizer, image_seq_len=4,
                     **video)  # fmt: skip
    return processor, {"text_config": tiny.SMALL | {"model_type": "llama"}, "vision_config": EYE, "scale_factor": 2,
                       "image_token_id": tokenizer.convert_tokens_to_ids("<image>")}  # fmt: skip


def smolvlm():
    return idefics3("SmolVLM")


def llava():
    tokenizer = make_tokenizer(image_token="<image>")
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size=SQUARE)
    processor = transformers.LlavaProcessor(images, tokenizer, patch_size=4, vision_feature_select_strategy="default",
                                            num_additional_image_tokens=1)  # fmt: skip
    eye = EYE | {"model_type": "clip_vision_model"}
    return processor, {"text_config": tiny.SMALL | {"model_type": "qwen2"}, "vision_config": eye,
                       "image_token_index": tokenizer.convert_tokens_to_ids("<image>")}  # fmt: skip


FAMILIES = {made.__name__: made for made in (qwen2_5_vl, qwen3_vl, internvl, gemma3, smolvlm, idefics3, llava)}
MARKS = {"qwen": "<|vision_start|> <|image_pad|> <|vision_end|>", "inte": "<IMG_CONTEXT>", "gemm": "<boi>"}


def seeing(name: str, k: int = 1):
    """k agents A, B of a random model of a family; more than one share it through adapters."""
    processor, parts = FAMILIES[name]()
    processor.chat_template = TEMPLATE.replace("MARK", MARKS.get(name[:4], "<image>"))
    torch.manual_seed(0)
    model = transformers.AutoModelForImageTextToText.from_config(transformers.AutoConfig.for_model(name, **parts)).eval()
    for weight in model.parameters():  # what a model leaves at 0, or empty, says nothing about a picture
        if weight.ndim > 1 and (not weight.isfinite().all() or not weight.any()):
            weight.data.normal_(0, 0.2)
    tokenizer = read_pictures(processor)
    if k > 1:
        lora.inject(model, 2, 16.0, ["A", "B"], b_std=0.2)
    return [Agent(who, model, tokenizer, who if k > 1 else None) for who in "AB"[:k]]


def noise(height: int, width: int, seed: int = 0) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Picture(Image.fromarray(pixels), "noise")


PROBLEMS = [Problem("w5 w6 w7 w8 w9", image=noise(16, 32)), Problem("w9", image=noise(24, 16, 1)), Problem("w4 w5 w6")]


def write(agents, problems, k=4, length=10):
    prompts = [[agent.prompt(problem) for problem in problems] for agent in agents]
    return sample_cohort(agents, prompts, k, length, generators=[torch.Generator().manual_seed(n) for n in range(len(agents))])


def plain(agent, problem, row):
    """Log-probs of a row of tokens where the library's model reads the processor's own output and the row, told nothing else."""
    text, picture = agent.prompt(problem), [problem.image.pixels()] if problem.image else None
    found = dict(agent.tokenizer.processor(text=[str(text)], images=picture, return_tensors="pt"))
    begins, mark = found["input_ids"].shape[1], agent.model.config.image_token_id
    fed = torch.where(row == mark, 3, row)  # the last one may be a mark, of which nobody reads the logits
    found["input_ids"] = torch.cat([found["input_ids"], fed[None]], 1)
    found["attention_mask"] = torch.ones_like(found["input_ids"])
    for name in found:
        if name.endswith("token_type_ids"):
            found[name] = pad(found[name], (0, len(row)))
    with torch.no_grad(), agent.in_use():
        logits = agent.model(**found, use_cache=False).logits[0, begins - 1 : -1]
    return logits.log_softmax(-1).gather(-1, row[:, None])[:, 0]


@pytest.mark.parametrize("name", FAMILIES)
def test_sampled_scored_and_plain_agree(name, monkeypatch):
    """A picture at the wrong place, positions that forget its size, a type of token left out: silently another model."""
    (agent,), groups = seeing(name), torch.arange(3)
    (found,) = write([agent], PROBLEMS)
    for p, problem in enumerate(PROBLEMS):
        for row, mask, logprobs in zip(found.completion_ids[p], found.mask[p], found.logprobs[p], strict=True):
            n = int(mask.sum())
            assert torch.allclose(logprobs[:n], plain(agent, problem, row[:n]), atol=1e-5)
    row = found.completion_ids[0, 0, : int(found.mask[0, 0].sum())]
    other = Problem(PROBLEMS[0].question, image=noise(16, 32, 9))
    assert (plain(agent, PROBLEMS[0], row) - plain(agent, other, row)).abs().max() > 1e-2, "another picture says something else"

    def scored(groups):
        agent.model.zero_grad()
        logprobs = policy_logprobs(agent, found, groups, 1.0)
        (logprobs * found.mask[groups]).sum().backward()
        gradient = {n: p.grad.clone() for n, p in agent.model.named_parameters() if p.grad is not None}
        return logprobs * found.mask[groups], gradient

    shared, gradient = scored(groups)
    assert torch.allclose(shared, found.logprobs * found.mask, atol=1e-5)
    assert any(g.any() for n, g in gradient.items() if "vis" in n), "the eye learns too where all weights do"
    alone = torch.cat([scored(one)[0] for one in groups.split(1)])
    assert torch.allclose(alone, shared, atol=1e-5)
    monkeypatch.setattr(grpo, "can_share_prompt", lambda _: False)
    repeated, other = scored(groups)
    assert torch.allclose(repeated, shared, atol=1e-5)
    assert gradient.keys() == other.keys()
    for n, g in gradient.items():
        assert torch.allclose(g, other[n], atol=1e-5 * max(1.0, g.abs().max())), n
