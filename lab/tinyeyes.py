"""A tiny world to be seen: small models of LLaVA's architecture that read pictures as students do, mistakes included.

Each topic is a kind of picture, with a right way to read it and a *misconception*: an axis read from the top, big dots counted
twice, a dial read the wrong way round, bars numbered from the right, ticks counted as ones, the part compared with the rest
and not with the whole. As in tinyworld.py an agent's *profile* gives, for each topic, the share of right readings in its warm-up
texts; the model becomes calibrated to it, and the theory of `dynamics.py` can be watched on models that see. A picture has 6 x 6
cells of 4 x 4 pixels, and the eye a patch for each cell: with details smaller than a patch most readings came out wrong.
`python -m lab.tinyeyes` shows the topics and how well calibrated the agents are. This world is ours, not the papers'.
"""

import argparse
import functools
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from lab.data import Problem, UserError
from lab.tinyworld import ARROW, cached, make_tokenizer, profiles
from lab.tinyworld import WarmStart as OfTexts
from lab.vision import Picture

SOURCE = Path(__file__).read_text(encoding="utf-8")  # a warm start is kept for this text of the file and for no other
GRID, PATCH = 6, 4  # cells each way, and pixels of a cell each way
SIZE, PLACES = GRID * PATCH, GRID * GRID  # pixels of a picture each way, and the places that it takes in a prompt
COLOURS = [(200, 30, 30), (30, 140, 30), (40, 40, 200), (150, 90, 0), (120, 0, 140), (20, 20, 20)]
PAPER = [(255, 250, 240), (240, 250, 255), (245, 255, 240)]
RING = [(0, 3), (1, 4), (2, 5), (3, 5), (4, 4), (5, 3), (5, 2), (4, 1), (3, 0), (2, 0), (1, 1), (0, 2)]  # from twelve o'clock

# ---------------- Topics and their pictures


@dataclass(frozen=True)
class Topic:
    """One kind of picture and its two readings. To add one, add it to TOPICS, and new words to WORDS; the last one is lost."""

    name: str
    question: str
    right: Callable[..., str]  # the readings, of the operands
    wrong: Callable[..., str]
    cells: Callable[..., dict]  # (row from the top, column) -> pixels each way of the square that is painted there
    operands: list[tuple[int, ...]]  # those where both readings differ; the last one is the colours

    def paint(self, operands: tuple[int, ...]):
        """The picture [24,24,3], as PIL has it."""
        from PIL import Image  # it comes with matplotlib

        picture = np.full((SIZE, SIZE, 3), PAPER[operands[-1] % 3], np.uint8)
        for place, size in self.cells(*operands).items():
            y, x = (PATCH * i + (PATCH - size) // 2 for i in place)
            picture[y : y + size, x : x + size] = COLOURS[operands[-1] % 6]
        return Image.fromarray(picture)

    def problem(self, operands: tuple[int, ...]) -> Problem:
        """The question about a picture; its answer is the right reading's."""
        return Problem(self.question, self.right(*operands).rpartition(ARROW)[2], self.name,
                       image=Picture(self.paint(operands), f"{self.name} {operands}"))  # fmt: skip

    def part(self, held_out: bool) -> list[tuple[int, ...]]:
        """The pictures to train on, or the fifth that is held out; a hash of the operands decides, for ever."""
        return [x for x in self.operands if (zlib.crc32(f"{self.name}{x}".encode()) % 5 == 0) == held_out]


def column(height: int, x: int, size: int = 4) -> dict:
    """Squares from the ground up: a bar, or ticks if they are small."""
    return {(GRID - 1 - i, x): size for i in range(height)}


def scattered(small: int, big: int, tint: int) -> dict:
    """Dots of two sizes."""
    cells = random.Random(f"{small} {big} {tint}").sample(range(PLACES), small + big)
    return {divmod(cell, GRID): 4 if i >= small else 2 for i, cell in enumerate(cells)}


def bars(place: int, tint: int) -> dict:
    """Five bars, of which number `place` is the tallest by far: with less of a difference it was not always learnt."""
    draw = random.Random(f"{place} {tint}")
    heights = [GRID if x + 1 == place else draw.randint(1, 2) for x in range(5)]
    return {cell: 4 for x, height in enumerate(heights) for cell in column(height, x)}


LOOKS = range(GRID), range(18)  # where it stands, and its colours
TOPICS = (
    Topic("axis", "height=", lambda h, *_: f"up {h} -> {h}", lambda h, *_: f"down {7 - h} -> {7 - h}",
          lambda h, x, _: column(h, x), list(product(range(1, 7), *LOOKS))),  # how high a bar is; from the top
    Topic("dots", "dots=", lambda s, b, _: f"{s}+{b} -> {s + b}", lambda s, b, _: f"{s}+{b}*2 -> {s + 2 * b}",
          scattered, list(product(range(1, 6), range(1, 4), range(60)))),  # how many dots; big ones counted twice
    Topic("dial", "hour=", lambda h, *_: f"right {h} -> {h}", lambda h, *_: f"left {12 - h} -> {12 - h}",
          lambda h, hub, _: dict.fromkeys(RING, 2) | {RING[h]: 4, (2, 2): hub, (3, 3): hub},  # the big mark; anticlockwise
          list(product((3, 4, 5, 7, 8, 9), (0, 2), range(36)))),
    Topic("tallest", "tallest=", lambda n, *_: f"from left {n} -> {n}", lambda n, *_: f"from right {6 - n} -> {6 - n}",
          bars, [x for x in product(range(1, 6), range(180)) if x[0] != 3]),  # which bar is the tallest; from the right
    Topic("ticks", "scale=", lambda n, *_: f"{n}*2 -> {2 * n}", lambda n, *_: f"{n}*1 -> {n}",
          lambda n, x, _: column(n, x, 3), list(product(range(1, 7), *LOOKS))),  # a tick stands for two; for one
    Topic("piece", "share=", lambda k, n, *_: f"of all {n} -> {k}/{n}", lambda k, n, *_: f"to rest {n - k} -> {k}/{n - k}",
          lambda k, n, y, _: {(y, i): 4 if i < k else 2 for i in range(n)},  # filled cells to all; to the rest
          [x for x in product(range(1, 6), range(2, 7), range(6), range(6)) if x[0] < x[1]]),
)  # fmt: skip
MARK, TEMPLATE = "<image>", "{% for part in messages[-1].content %}{{ part.text or '<image>' }}{% endfor %}"
WORDS = [ARROW, MARK, "up ", "down ", "right ", "left ", "from left ", "from right ", "of all ", "to rest ",
         *(topic.question[:-1] for topic in TOPICS)]  # fmt: skip


def select(names: Sequence[str] | None = None) -> list[Topic]:
    """The topics of these names, in the table's order; None means all. UserError on an unknown name."""
    if unknown := set(names or ()) - {topic.name for topic in TOPICS}:
        known = ", ".join(topic.name for topic in TOPICS)
        raise UserError(f"no topic {min(unknown)!r} in the tiny world of pictures: choose from {known}")
    return [topic for topic in TOPICS if not names or topic.name in names]


def problems(topics: Sequence[str] | None, n: int, seed: int) -> list[Problem]:
    """n training problems in random order, drawn with replacement, every topic equally often (give or take one)."""
    draw, parts = random.Random(seed), [(topic, topic.part(held_out=False)) for topic in select(topics)]
    drawn = [topic.problem(draw.choice(part)) for topic, part in (draw.sample(parts, len(parts)) * n)[:n]]
    return draw.sample(drawn, n)


def probes(topics: Sequence[str] | None = None, n: int = 20) -> list[Problem]:
    """Held-out problems, n of each topic: the same on every call, and never trained on."""
    parts = [(topic, topic.part(held_out=True)) for topic in select(topics)]
    return [topic.problem(x) for topic, part in parts for x in random.Random(0).sample(part, min(n, len(part)))]


# ---------------- Processor and model


@dataclass(frozen=True)
class WarmStart(OfTexts):
    """Everything that decides the weights which the agents start from; what is not here is as in the world of texts."""

    batch: int = 32  # texts per step
    agent_steps: int = 160


@functools.cache
def make_processor() -> transformers.LlavaProcessor:
    """LLaVA's own processor, over a tokenizer with a token for each sign and for each of WORDS."""
    tokenizer = make_tokenizer(WORDS, "0123456789+-*/=", TEMPLATE, extra_special_tokens={"image_token": MARK})
    images = transformers.CLIPImageProcessorPil(
        size={"height": SIZE, "width": SIZE}, do_center_crop=False, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    tokenizer.processor = transformers.LlavaProcessor(  # the first place of the eye is its summary, which LLaVA leaves out
        images, tokenizer, patch_size=PATCH, vision_feature_select_strategy="default", num_additional_image_tokens=1)
    return tokenizer.processor


def make_model(settings: WarmStart) -> transformers.LlavaForConditionalGeneration:
    """An untrained model in float32, about 0.2 M parameters: CLIP's eye, a Qwen2 behind it."""
    tokenizer, width = make_processor().tokenizer, settings.hidden
    eye = transformers.CLIPVisionConfig(
        hidden_size=width, intermediate_size=2 * width, num_hidden_layers=settings.layers, num_attention_heads=4,
        image_size=SIZE, patch_size=PATCH, projection_dim=width)
    text = transformers.Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=4 * width, num_hidden_layers=settings.layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=True,
        initializer_range=0.05, bos_token_id=None, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
    config = transformers.LlavaConfig(
        vision_config=eye, text_config=text, image_token_id=tokenizer.convert_tokens_to_ids(MARK), vision_feature_layer=-1,
        vision_feature_select_strategy="default", image_seq_length=PLACES, tie_word_embeddings=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return transformers.LlavaForConditionalGeneration(config)


# ---------------- Worked texts, and training on them


class Texts(NamedTuple):
    """All pictures, topic after topic, and their two worked texts."""

    pixels: Tensor  # [M,3,24,24]
    ids: Tensor  # [M,2,T], right-padded
    labels: Tensor  # [M,2,T]: the ids of the completion; -100, which the loss leaves out, elsewhere
    count: list[int]  # pictures of each topic


@functools.cache
def make_texts(held_out: bool) -> Texts:
    """The texts of all pictures to train on, or of all that are held out."""
    processor, rows, labels = make_processor(), [], []
    tokenizer, parts = processor.tokenizer, [topic.part(held_out) for topic in TOPICS]
    every = [(topic, x) for topic, part in zip(TOPICS, parts, strict=True) for x in part]
    for topic, x in every:
        asked = tokenizer(MARK * PLACES + topic.question)["input_ids"]
        for text in (topic.right(*x), topic.wrong(*x)):
            said = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
            rows.append(torch.tensor(asked + said))
            labels.append(torch.tensor([-100] * len(asked) + said))
    padded = [pad_sequence(part, batch_first=True, padding_value=value).unflatten(0, (-1, 2))
              for part, value in ((rows, tokenizer.pad_token_id), (labels, -100))]  # fmt: skip
    pixels = processor.image_processor([topic.paint(x) for topic, x in every], return_tensors="pt")["pixel_values"]
    return Texts(pixels, *padded, [len(part) for part in parts])


def train(model, right: Sequence[float], steps: int, lr: float, settings: WarmStart, number: int) -> None:
    """Train `model` in place on texts of which a share `right` of each topic reads right, `number` seeding the draws."""
    texts, generator = make_texts(held_out=False), torch.Generator().manual_seed(1000 * settings.seed + number)
    first, count = torch.tensor([sum(texts.count[:i]) for i in range(len(TOPICS))]), torch.tensor(texts.count)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.05, cycle_momentum=False)
    title = f"agent {number}" if number else "base"
    for _ in tqdm(range(steps), f"warm start, {title}", unit="step", leave=False, disable=None):
        topic = torch.randint(len(count), (settings.batch,), generator=generator)
        u, v = torch.rand(2, settings.batch, generator=generator)
        one, method = first[topic] + (u * count[topic]).long(), (v >= torch.tensor(right)[topic]).long()  # [n]
        loss = model(input_ids=texts.ids[one, method], pixel_values=texts.pixels[one], labels=texts.labels[one, method],
                     use_cache=False).loss  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def calibration(model) -> dict[str, tuple[float, float]]:
    """For each topic, the probability of the right text and of the mistaken one, over held-out pictures; the rest are slips."""
    texts = make_texts(held_out=True)
    rows, labels = texts.ids.flatten(0, 1), texts.labels.flatten(0, 1)  # [2M,T]
    logits = model(input_ids=rows, pixel_values=texts.pixels.repeat_interleave(2, 0), use_cache=False).logits  # [2M,T,V]
    logp = logits[:, :-1].log_softmax(-1).gather(-1, rows[:, 1:, None])[..., 0]  # [2M,T-1]
    probability = torch.where(labels[:, 1:] >= 0, logp, 0).sum(-1).exp().view(-1, 2)  # [M,2]
    means = [tuple(part.mean(0).tolist()) for part in probability.split(texts.count)]
    return dict(zip([topic.name for topic in TOPICS], means, strict=True))


# ---------------- The cohort


def cohort(n_agents: int = 2, settings: WarmStart | None = None) -> list[tuple]:
    """The N warm-started agents: a list of (model, tokenizer), models in float32 on the CPU.

    One base is trained on both readings of every topic, and each agent goes on from it with its own profile. It takes two
    minutes of one slow core for two agents, and is then read from the cache (`tinyworld.cached`).
    """
    settings = settings or WarmStart()

    def trained(start: dict[str, Tensor] | None, right: Sequence[float], steps: int, lr: float, number: int):
        model = make_model(settings)
        model.load_state_dict(start or model.state_dict())
        train(model, right, steps, lr, settings, number)
        return model.state_dict()

    everything = {k: v for k, v in asdict(settings).items() if k not in ("strong", "weak", "lost", "kind")} | {"source": SOURCE}
    base = cached("eyes", {k: v for k, v in everything.items() if k not in ("agent_steps", "agent_lr")}, lambda: trained(
        None, [settings.base_right] * len(TOPICS), settings.base_steps, settings.base_lr, number=0))
    agents = []
    for number, (right, *_) in enumerate(profiles(n_agents, settings), start=1):  # six topics too, the last one lost
        model = make_model(settings)
        model.load_state_dict(cached(f"eyes-agent{number}", everything | {"right": right}, lambda p=right, n=number: (
            trained(base, p, settings.agent_steps, settings.agent_lr, n))))
        agents.append((model, make_processor().tokenizer))
    return agents


def main() -> None:
    """Show each topic with its two readings, and each agent's profile beside what it does on held-out pictures."""
    parser = argparse.ArgumentParser("python -m lab.tinyeyes", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    settings = WarmStart(seed=parser.parse_args().seed)
    for topic in TOPICS:
        x = topic.operands[len(topic.operands) // 2]
        print(f"{topic.name:<8} {topic.question:<9} right: {topic.right(*x):<16} mistake: {topic.wrong(*x)}")
    for agent, (model, _), profile in zip("AB", cohort(2, settings), profiles(2, settings), strict=True):
        print(f"\nagent {agent}  profile  right  mistake  slips")
        for share, (name, (right, wrong)) in zip(profile.right, calibration(model.eval()).items(), strict=True):
            print(f"{name:<7} {share:8.2f} {right:6.2f} {wrong:8.2f} {1 - right - wrong:6.3f}")


if __name__ == "__main__":
    main()
