"""Pictures: that a prompt's one pass is the only one that sees them, for every family of models, and what becomes of bad ones."""

import base64
import functools
import io
import json
import struct
import sys
import types
import zlib

import numpy as np
import pytest
import tiny
import torch
import transformers
from PIL import Image  # it comes with matplotlib
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch.nn.functional import pad
from transformers.processing_utils import ProcessorMixin

import agon
import cohort
import grpo
import lora
from benchmarks import eyes
from grpo import Agent, policy_logprobs, sample_cohort
from lab import data, guards, measure, memory, report, runs, setup, tinyeyes, vision
from lab.data import Problem, UserError, hold_out, load_problems
from lab.models import encode_all, end_tokens, load_model
from lab.vision import Picture, read_pictures

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
    """A processor without its part for video, which alone wants torchvision, and num2words for the number of its frames."""
    checked = ProcessorMixin.check_argument_for_proper_class
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProcessorMixin, "check_argument_for_proper_class",
                      lambda self, name, part: type(None) if part is None else checked(self, name, part))  # fmt: skip
        patch.setattr("transformers.models.smolvlm.processing_smolvlm.num2words", str)
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
    try:
        images = getattr(transformers, f"{kind}ImageProcessorPil")(size={"longest_edge": 32}, max_image_size={"longest_edge": 16})
    except ImportError as error:  # transformers 5.17 wants torchvision for it, 5.24 does not
        pytest.skip(str(error).strip().split(".")[0])
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


@pytest.mark.parametrize("name", ["qwen2_5_vl", "gemma3", "idefics3", "llava"])
def test_adapters_of_two_agents_see_alike(name):
    """A batch that mixes adapters row by row; by default none of them lies on the eye."""
    agents = seeing(name, k=2)
    assert not [layer for layer in agents[0].model._lora.layers if "vis" in layer]
    for agent, found in zip(agents, write(agents, PROBLEMS), strict=True):
        for p, problem in enumerate(PROBLEMS):
            n = int(found.mask[p, 0].sum())
            assert torch.allclose(found.logprobs[p, 0, :n], plain(agent, problem, found.completion_ids[p, 0, :n]), atol=1e-5)
        scored = policy_logprobs(agent, found, torch.arange(len(PROBLEMS)), 1.0)
        assert torch.allclose(scored * found.mask, found.logprobs * found.mask, atol=1e-5)
    guards.try_out(agents)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_picture_is_read_once_a_group(name):
    """K readings of one picture, in sampling or in learning: most of a step's time, for nothing."""
    (agent,), given = seeing(name), []
    agent.model.register_forward_pre_hook(lambda _, args, named: given.append(named.get("pixel_values")), with_kwargs=True)
    (found,) = write([agent], PROBLEMS[:2], k=8)
    once = [encode_all(agent.prompt(problem), agent.tokenizer)[1]["pixel_values"] for problem in PROBLEMS[:2]]
    many = sum(pixels.numel() for pixels in once)
    assert [g is None for g in given] == [False] + [True] * (len(given) - 1) and given[0].numel() >= many
    assert given[0].numel() == many or name == "idefics3" or name == "smolvlm", "these two fill up to the most tiles"
    given.clear()
    policy_logprobs(agent, found, torch.arange(2), 1.0)
    assert [g is None for g in given] == [False, True]


def test_a_picture_moves_what_follows_by_its_longer_side():
    """Qwen-VL: 2 x 4 places stand at 1 to 4, so what follows is at 5 and not at 9; completions go on from there."""
    (agent,) = seeing("qwen2_5_vl")
    ids, seen = encode_all(agent.prompt(Problem("w5 w6", image=noise(16, 32))), agent.tokenizer)
    assert len(ids) == 1 + 8 + 1 + 2  # start, places, end, two words
    cache, mask = vision.Cache(config=agent.model.config), torch.ones(1, len(ids) + 2, dtype=torch.long)
    padded = torch.tensor([[2, 2, *ids]])
    mask[:, :2] = 0
    found = vision.positions(agent.model, padded, mask, cache, vision.together([seen], mask, agent.model))
    time, down, across = found[:, 0, 2:].tolist()
    assert time == [0, 1, 1, 1, 1, 1, 1, 1, 1, 5, 6, 7]
    assert down == [0, 1, 1, 1, 1, 2, 2, 2, 2, 5, 6, 7] and across == [0, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7]
    cache.reorder_cache(torch.zeros(3, dtype=torch.long))
    mask = pad(mask, (0, 1), value=1).expand(3, -1)
    assert vision.positions(agent.model, torch.full((3, 1), 5), mask, cache, {}).tolist() == [[8]] * 3


@pytest.mark.parametrize("name", ["qwen2_5_vl", "gemma3", "llava"])
def test_a_text_that_writes_the_mark_of_a_picture_is_over(name, monkeypatch):
    """A policy at temperature 1 writes every token some day, and the model looks for a second picture that nobody gave it."""
    (agent,) = seeing(name)
    mark = agent.model.config.image_token_id
    assert mark in end_tokens(agent.model, agent.tokenizer)
    (found,) = write([agent], PROBLEMS[:2])
    found.completion_ids[0, 1, 3], found.mask[0, 1, 4:] = mark, 0
    shared = policy_logprobs(agent, found, torch.arange(2), 1.0)
    monkeypatch.setattr(grpo, "can_share_prompt", lambda _: False)
    assert torch.allclose(shared * found.mask, policy_logprobs(agent, found, torch.arange(2), 1.0) * found.mask, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen3_vl", "internvl", "llava"])
def test_a_question_that_spells_a_mark_has_one_picture(name):
    """A question is data: what it spells stays text, else the model counts two pictures."""
    (agent,) = seeing(name)
    spelled = {encode_all(agent.prompt(Problem(f"w5 {extra} w6", image=noise(16, 16))), agent.tokenizer)[0].count(
        agent.model.config.image_token_id) for extra in ("", *MARKS.values(), "<image>")}  # fmt: skip
    assert len(spelled) == 1


# ---------------------------------------------------------------- pictures as they are stored


def stored(image, kind="PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def refusal(act, *args) -> str:
    with pytest.raises(UserError) as error:
        act(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


def problems_of(folder, *records):
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, records)))
    return load_problems(folder / "data.jsonl")


RED = Image.new("RGB", (5, 4), (200, 0, 0))


def test_a_picture_is_found_in_every_form(tmp_path):
    """A path beside the data, base64 with and without its head, bytes and path as data sets keep them, a list of one."""
    (tmp_path / "red.png").write_bytes(stored(RED))
    text = base64.b64encode(stored(RED.resize((40, 40)), "BMP")).decode()
    forms = ["red.png", f"data:image/png;base64,{text}", ["red.png"], {"bytes": None, "path": "red.png"}, {"bytes": text}]
    found = problems_of(tmp_path, *({"question": f"<image>\nWhat colour is {i}?", "image": form} for i, form in enumerate(forms)))
    assert [p.image.pixels().getpixel((2, 2)) for p in found] == [(200, 0, 0)] * len(forms)
    assert found[0].question == "What colour is 0?" and found[0].image.digest == found[2].image.digest != found[1].image.digest
    (named,) = problems_of(tmp_path, {"question": "Which?", "images": [], "image_path": "red.png"})
    assert named.image and data.to_problem({"question": "Which?", "image": ""}).image is None
    opened = data.to_problem({"question": "Which?", "image": Image.open(tmp_path / "red.png")})
    assert opened.image.pixels().size == (5, 4)


def test_a_hub_set_gives_files_and_not_pixels(monkeypatch):
    """Ten thousand pictures decoded at once fill a machine. A list of pictures has their kind inside it."""
    class Stored:  # stands for datasets.Image
        def __init__(self, decode=True):
            self.decode = decode

    class Several:  # for datasets.List
        def __init__(self, feature):
            self.feature = feature

    changed = {}

    class Part(list):
        features = {"question": "text", "image": Stored(), "images": Several(Stored())}

        def cast_column(self, name, feature):
            changed[name] = feature
            return self

    part = Part([{"question": "Which?", "image": {"bytes": stored(RED), "path": None}}] * 20)
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=lambda *_: {"train": part}, Image=Stored))
    (problem, *_) = load_problems("hub:some/pictures", None)
    assert problem.image.pixels().size == (5, 4) and not changed["image"].decode and not changed["images"].feature.decode


def test_a_bad_picture_gets_one_line(tmp_path):
    """A run that dies in its third hour of a picture that was cut off, or a machine that a small file fills."""
    (tmp_path / "cut.png").write_bytes(stored(Image.effect_noise((90, 90), 50))[:2000])
    (tmp_path / "text.png").write_text("no picture")
    for size in (9_000, 200_000):
        head = struct.pack(">II5B", size, size, 8, 2, 0, 0, 0)
        chunks = [struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
                  for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))]  # fmt: skip
        (tmp_path / f"bomb{size}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))

    def said(value):
        return refusal(problems_of, tmp_path, {"question": "Which?", "image": value})

    assert "line 1: there is no picture" in said("none.png")
    assert "no picture that can be read" in said("text.png")
    assert "9000 x 9000 pixels" in said("bomb9000.png") and "more than 40 million pixels" in said("bomb200000.png")
    assert "not downloaded" in said("https://example.org/a.png")
    assert "neither a path nor base64" in said("(no picture)" * 100)
    assert "holds 2 pictures" in said(["cut.png", "cut.png"]) and "holds a int" in said(7)
    (agent,), (problem,) = seeing("llava"), problems_of(tmp_path, {"question": "w5", "image": "cut.png"})
    assert "cut.png is damaged or cut off" in refusal(encode_all, agent.prompt(problem), agent.tokenizer)


def test_transparent_is_white_and_photographs_stand_upright(tmp_path):
    """A diagram of black lines on nothing, shown black on black; a photograph of a page, shown lying on its side."""
    lines = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    lines.putpixel((1, 1), (0, 0, 0, 255))
    shown = Picture(stored(lines), "lines").pixels()
    assert shown.getpixel((0, 0)) == (255, 255, 255) and shown.getpixel((1, 1)) == (0, 0, 0)
    turned = Image.Exif()
    turned[0x0112] = 6
    assert Picture(stored(RED, "JPEG", exif=turned), "photograph").pixels().size == (4, 5)


def test_the_same_words_about_another_picture_are_another_question(tmp_path):
    """"How high is the bar?" held out once would leave nothing to train on."""
    files = [base64.b64encode(stored(noise(9, 9, i).content)).decode() for i in (0, 1, 2, 3, 4, 0)]
    records = [{"question": "How high?", "image": f"data:image/png;base64,{file}"} for file in files]
    train, test = hold_out(problems_of(tmp_path, *records), 2)
    assert not {p.image.digest for p in train} & {p.image.digest for p in test} and len(train) >= 2
    told = guards.inputs(cohort.Options(), [], (train, test))
    assert told != guards.inputs(cohort.Options(), [], (train[::-1], test))


# ---------------------------------------------------------------- the tiny world, and models in a folder, from end to end

FAST = ["--steps", "2", "--prompts", "6", "--k", "4", "--eval-problems", "6", "--eval-k", "2", "--max-new-tokens", "10"]


@pytest.fixture
def few_texts(monkeypatch):
    """A warm start on every tenth picture: painting and reading all 3,000 takes longer than the tests that need some."""
    part, all_texts = tinyeyes.Topic.part, tinyeyes.make_texts.__wrapped__

    @functools.cache
    def some(held_out: bool):
        with monkeypatch.context() as patch:
            patch.setattr(tinyeyes.Topic, "part", lambda topic, held_out: part(topic, held_out)[::10])
            return all_texts(held_out)

    monkeypatch.setattr(tinyeyes, "make_texts", some)


@pytest.fixture
def short_warm_start(monkeypatch, tmp_path_factory, few_texts):
    """Agents that have hardly learnt anything yet, cached for all tests of this file."""
    monkeypatch.setattr(tinyeyes, "WarmStart", functools.partial(tinyeyes.WarmStart, base_steps=10, agent_steps=2))
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path_factory.getbasetemp() / "cohort-cache"))


def lines(folder) -> list[dict]:
    """metrics.jsonl without the seconds."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in runs.read_lines(folder / "metrics.jsonl")]


@pytest.mark.parametrize("topic", tinyeyes.TOPICS, ids=lambda topic: topic.name)
def test_both_readings_are_of_the_picture_and_differ(topic):
    """A mistake that gives the right answer cannot be told from it; a sign that the tokenizer lacks cannot be learnt."""
    tokenizer = tinyeyes.make_processor().tokenizer
    assert len(topic.operands) > 150 and len(set(topic.operands)) == len(topic.operands)
    for x in topic.operands:
        right, wrong = (method(*x) for method in (topic.right, topic.wrong))
        assert right.split(" -> ")[1] != wrong.split(" -> ")[1]
        assert tokenizer.unk_token_id not in tokenizer(topic.question + right + wrong)["input_ids"]
        assert all(0 <= i < 6 and 0 <= j < 6 for i, j in topic.cells(*x))
    shown = np.array(topic.problem(topic.operands[0]).image.pixels())
    assert shown.shape == (24, 24, 3) and not (shown == shown[0, 0]).all()


def test_readings_by_hand():
    """A bar of 2: its top is 2 lines above the ground and 5 below the seventh; 3 of 4 cells filled leave 1."""
    said = {topic.name: (topic.right(*x), topic.wrong(*x)) for topic, x in zip(
        tinyeyes.TOPICS, [(2, 0, 0), (3, 2, 0), (9, 0, 0), (2, 0), (3, 0, 0), (3, 4, 0, 0)], strict=True)}  # fmt: skip
    assert said == {"axis": ("up 2 -> 2", "down 5 -> 5"), "dots": ("3+2 -> 5", "3+2*2 -> 7"),
                    "dial": ("right 9 -> 9", "left 3 -> 3"), "tallest": ("from left 2 -> 2", "from right 4 -> 4"),
                    "ticks": ("3*2 -> 6", "3*1 -> 3"), "piece": ("of all 4 -> 3/4", "to rest 1 -> 3/1")}  # fmt: skip
    # Of a cell its corner is looked at, which only large squares reach.
    bar, dial = (np.array(tinyeyes.TOPICS[i].paint(x))[::4, ::4] for i, x in ((0, (2, 3, 5)), (2, (9, 0, 5))))
    assert np.argwhere(bar == (20, 20, 20))[::3, :2].tolist() == [[4, 3], [5, 3]]
    assert np.argwhere(dial == (20, 20, 20))[::3, :2].tolist() == [[2, 0]]


@pytest.mark.slow
def test_a_warm_start_learns_what_it_is_told(monkeypatch):
    """A kind of picture read right in four of five texts: after a short training the right text is several times the likelier."""
    monkeypatch.setattr(tinyeyes, "TOPICS", [topic for topic in tinyeyes.TOPICS if topic.name == "ticks"])
    monkeypatch.setattr(tinyeyes, "make_texts", functools.cache(tinyeyes.make_texts.__wrapped__))
    settings = tinyeyes.WarmStart(layers=1, batch=16)
    model = tinyeyes.make_model(settings)
    tinyeyes.train(model, [0.8], 60, 4e-3, settings, 0)
    right, wrong = tinyeyes.calibration(model)["ticks"]
    assert right > 2 * wrong and 0 < right + wrong <= 1


@pytest.mark.slow
def test_the_world_of_pictures_from_end_to_end(tmp_path, short_warm_start, monkeypatch, capsys):
    """The command: a run, its table with a forecast, resumed bit for bit, measured again from its checkpoint."""
    out = ["--out", str(tmp_path / "runs")]
    assert cohort.main(["--data", "eyes", *FAST, "--steps", "3", *out, "--name", "whole"]) == 0
    said = capsys.readouterr().out
    assert "forecast" in said and "tallest" in said and "height= [axis (" in said
    monkeypatch.setattr(report, "finish", lambda folder: None)  # tables and figures: once is enough
    assert cohort.main(["--data", "eyes", *FAST, *out, "--name", "parts"]) == 0
    assert cohort.main(["--resume", str(tmp_path / "runs" / "parts"), "--steps", "3"]) == 0
    whole, parts = (lines(tmp_path / "runs" / name) for name in ("whole", "parts"))
    assert [line for line in whole if line["step"] in (1, 3)] == [line for line in parts if line["step"] in (1, 3)]
    capsys.readouterr()
    assert measure.main([str(tmp_path / "runs" / "whole")]) == 0, capsys.readouterr().err
    assert f"{whole[-1]['eval']['A']['pass1']:.3f}" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["eyes.py", str(tmp_path / "runs" / "whole"), "--figure", str(tmp_path / "eyes.png")])
    monkeypatch.setattr(eyes, "SAMPLES", 4)
    assert eyes.main() == 0 and (tmp_path / "eyes.png").exists()
    assert cohort.main(["--data", "eyes", *FAST, *out, "--rephrase", "B"]) == 2
    assert cohort.main(["--data", "eyes", *FAST, *out, "--topics", "carry"]) == 2
    assert "pictures: choose from axis" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path):
    """A random LLaVA with its processor, as a user would name one, and six problems with pictures beside it."""
    (agent,) = seeing("llava")
    agent.model.save_pretrained(tmp_path / "model")
    agent.tokenizer.processor.save_pretrained(tmp_path / "model")
    records = [{"question": f"w{i} w5", "answer": str(i % 3), "image": f"{i}.png"} for i in range(9)]
    for i in range(9):
        (tmp_path / f"{i}.png").write_bytes(stored(noise(12 + i, 20, i).content))
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, records)))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--lora-rank", "2", "--checkpointing", "--answer", "choice"]], ids=["all", "adapters"])
def test_models_and_pictures_of_ones_own(folder, options, monkeypatch, capsys):
    """--data file.jsonl with pictures beside it: trained, resumed, measured; a model without eyes is refused by one line."""
    monkeypatch.setattr(report, "finish", lambda folder: None)
    given = ["--models", str(folder / "model"), str(folder / "model"), "--data", str(folder / "data.jsonl"),
             "--out", str(folder / "runs"), "--answer", "number", *FAST]  # fmt: skip
    assert cohort.main([*given, *options, "--name", "whole"]) == 0, capsys.readouterr().err
    assert ("the part that sees stays as it is" in capsys.readouterr().err) == bool(options)
    assert cohort.main(["--resume", str(folder / "runs" / "whole"), "--steps", "3"]) == 0
    assert measure.main([str(folder / "runs" / "whole")]) == 0
    (folder / "1.png").write_bytes(stored(RED))
    capsys.readouterr()
    assert cohort.main(["--resume", str(folder / "runs" / "whole"), "--steps", "4"]) == 2
    assert "other inputs: problems" in capsys.readouterr().err
    tiny.model("qwen3").save_pretrained(folder / "blind")
    tiny.tokenizer().save_pretrained(folder / "blind")
    assert cohort.main([*given, "--models", str(folder / "blind"), str(folder / "model")]) == 2
    assert "choose an image-text-to-text model" in capsys.readouterr().err


def test_memory_counts_the_places_of_a_picture(monkeypatch):
    """A picture of a thousand places, and an estimate that knows of prompts of 256 tokens."""
    (agent,), o = seeing("llava"), cohort.Options(models=["x", "y"], data="file")
    assert memory.pictures([agent], PROBLEMS) == 16 + 5 and memory.pictures([agent], PROBLEMS[2:]) == 0
    assert memory.at_a_time(o).prompt == memory.at_a_time(o, 21).prompt == 256 and memory.at_a_time(o, 1000).prompt == 1000


def test_judges_and_packages(tmp_path, monkeypatch):
    """CoMAS's judges are not shown the picture; a processor that wants a package says what to install."""
    (tmp_path / "data.json").write_text(json.dumps([{"question": f"w{i}", "image": "0.png"} for i in range(9)]))
    (tmp_path / "0.png").write_bytes(stored(RED))
    o = cohort.Options(models=["x", "y"], data=str(tmp_path / "data.json"), method="comas")
    assert "judges, who are not shown pictures" in refusal(setup.read_data, o)
    (agent,) = seeing("llava")
    agent.model.save_pretrained(tmp_path)

    def lacks(*_, **__):
        raise ImportError("Qwen2VLVideoProcessor requires torchvision")

    monkeypatch.setattr(transformers.AutoProcessor, "from_pretrained", lacks)
    assert "pip install -r requirements-vision.txt" in refusal(load_model, str(tmp_path), torch.device("cpu"), "float32", True)


def test_who_reads_a_draft_sees_the_picture():
    """Agon's second pass: the problem again, with a summary of a draft, and without what it is about."""
    (agent,) = seeing("llava")
    prompt = agon.challenge(agent, PROBLEMS[0], "w5 so w6", "w6", agon.Options(model="x", data="file"))
    assert prompt.problem is PROBLEMS[0] and prompt.count("<image>") == 1
