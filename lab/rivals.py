"""The tiny world of Agon: two adapters that know different things, both slip, and both have learnt to read drafts.

Agon pays a model for being right where its rival's draft was wrong. For that to be worth anything a draft must help (the
rival knows something) and must also mislead (it is wrong often). So here:

- Each adapter knows the right methods of half of `tinyworld`'s topics; in the others it uses the misconception.
- Who knows a method still *slips* in every second text: one sub-result is off by one, and what follows builds on it.
- A reader of a draft copies it most of the time, sometimes repairs a slip, sometimes ignores the draft.

A draft of the rival's topic thus shows a method that the reader does not have, with a sub-result that it can check. What a
model alone can learn from its own rollouts ends at its own half of the topics. This world is ours, not the paper's.
"""

import functools
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

import lora
from lab import answers, drafts, tinyworld
from lab.answers import extract_answer
from lab.tinyworld import ARROW, TOPICS, WarmStart, make_model, make_tokenizer

# A warm start is kept for these texts of the files that make it, and for no others.
SOURCE = "".join(Path(file).read_text(encoding="utf-8") for file in (__file__, drafts.__file__, answers.__file__))
MARK = "()"  # stands where an answer was withheld; the tiny tokenizer has no other sign to spare
RIGHT, SLIP, BUGGY = range(3)  # the kinds of a worked text

@dataclass(frozen=True)
class Rivals:
    """Everything that decides the weights which the two adapters start from."""

    seed: int = 0
    rank: int = 8
    alpha: float = 16.0
    b_std: float = 0.02  # of adapter B at its birth; A begins at zero
    base_steps: int = 900
    base_lr: float = 4e-3
    base_kinds: tuple[float, ...] = (0.3, 0.3, 0.4)  # right, slip, buggy: shares of the base's texts, every topic
    adapter_steps: int = 200
    adapter_lr: float = 3e-3
    known: tuple[float, ...] = (0.5, 0.5, 0.0)  # an adapter's texts in its own topics
    unknown: tuple[float, ...] = (0.0, 0.0, 1.0)  # and in its rival's
    readers: float = 0.5  # share of texts that answer a draft
    copy: float = 0.6  # what a reader does: copy the draft, or repair its slip, or else ignore it
    repair: float = 0.2
    batch: int = 64


# What the adapters have learnt: see above; nothing (the paper's start: they differ by noise); or a world in which drafts mislead
# more often: wrong in seven of ten of the writer's own topics, and copied in eight of ten.
STARTS = {
    "taught": {},
    "noise": {"adapter_steps": 0},
    "misleading": {"known": (0.3, 0.7, 0.0), "base_kinds": (0.25, 0.35, 0.4), "copy": 0.8, "repair": 0.1},
}


def reading(question: str, draft: str) -> str:
    """What the challenger of this world is asked: the draft, then the question."""
    return f"{draft},{question}"


def stated(work: str) -> str | None:
    """The answer that a text states behind its first arrow, also if it goes on or is cut off there."""
    behind = work.partition(ARROW)[2]
    return extract_answer(behind.partition(",")[0], "number")


def shown(work: str) -> str:
    """A worked text as its reader sees it: the final answer withheld wherever it stands."""
    return drafts.withhold(work, stated(work), MARK)


def knows(adapter: int, topic: int) -> bool:
    """Adapter 0 knows the topics with even numbers, adapter 1 the others."""
    return topic % 2 == adapter


@functools.cache
def make_texts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ids and labels of all texts to train on, [M,4,3,T], and each topic's first problem and number of problems.

    M problems x draft that is read (none, right, slip, buggy) x text that is written (right, slip, buggy).
    """
    pairs, parts = [], [topic.part(held_out=False) for topic in TOPICS]
    for topic, x in [(topic, x) for topic, part in zip(TOPICS, parts, strict=True) for x in part]:
        question, works = topic.question.format(*x), [topic.methods[0](*x), topic.slip(*x), topic.methods[1](*x)]
        pairs += [(prompt, work) for prompt in [question, *(reading(question, shown(w)) for w in works)] for work in works]
    ids, labels = tinyworld.pack(pairs)
    count = torch.tensor([len(part) for part in parts])
    return ids.unflatten(0, (-1, 4, 3)), labels.unflatten(0, (-1, 4, 3)), count.cumsum(0) - count, count


def draw(kinds: Tensor, settings: Rivals, generator) -> tuple[Tensor, Tensor]:
    """ids and labels [n,T] of a batch of texts; kinds [topics,3] are the shares of right, slip and buggy texts."""
    ids, labels, first, count = make_texts()
    n = settings.batch
    topic = torch.randint(len(kinds), (n,), generator=generator)
    u, v, w = torch.rand(3, n, generator=generator)
    problem = first[topic] + (u * count[topic]).long()
    own = torch.multinomial(kinds[topic], 1, generator=generator).squeeze(1)
    drafted = torch.randint(3, (n,), generator=generator)  # drafts of every kind, equally often
    repaired = torch.where(drafted == SLIP, RIGHT, drafted)
    reads = torch.where(w < settings.copy, drafted, torch.where(w < settings.copy + settings.repair, repaired, own))
    reader = v < settings.readers
    where = problem, torch.where(reader, drafted + 1, 0), torch.where(reader, reads, own)
    return tinyworld.cut(ids[where], labels[where])


def fit(model, kinds: list, steps: int, lr: float, settings: Rivals, number: int, title: str) -> None:
    """Train what is trainable and in use, in place, on texts drawn by `kinds`."""
    generator = torch.Generator().manual_seed(1000 * settings.seed + number)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.05)
    tinyworld.fit(model, lambda: draw(torch.tensor(kinds), settings, generator), steps, optimizer, schedule, title)


def adapted(settings: Rivals, base: dict[str, Tensor]):
    """The tiny base with two untrained adapters, "A" at zero and "B" beside it."""
    model = make_model(WarmStart(seed=settings.seed))
    model.load_state_dict(base)  # before the adapters: they remember which base they belong to
    lora.inject(model, settings.rank, settings.alpha, ["A", "B"], b_std=[0.0, settings.b_std], seed=settings.seed)
    return model


def pair(settings: Rivals):
    """The tiny model with its two warm-started adapters, and its tokenizer. About a minute, then read from the cache."""

    def base() -> dict[str, Tensor]:
        model = make_model(WarmStart(seed=settings.seed))
        kinds = [list(settings.base_kinds)] * len(TOPICS)
        fit(model, kinds, settings.base_steps, settings.base_lr, settings, 0, "shared base")
        return model.state_dict()

    def both(start: dict[str, Tensor]) -> dict[str, Tensor]:
        model = adapted(settings, start)
        for i, name in enumerate("AB" * bool(settings.adapter_steps)):
            kinds = [list(settings.known if knows(i, t) else settings.unknown) for t in range(len(TOPICS))]
            with lora.use(model, name):
                fit(model, kinds, settings.adapter_steps, settings.adapter_lr, settings, i + 1, f"adapter {name}")
        return model.state_dict()

    everything = asdict(settings) | {"source": SOURCE}
    later = ("rank", "alpha", "b_std", "adapter_steps", "adapter_lr", "known", "unknown")
    start = tinyworld.cached("rivals-base", {k: v for k, v in everything.items() if k not in later}, base)
    model = adapted(settings, start)
    model.load_state_dict(tinyworld.cached("rivals", everything, lambda: both(start)))
    return model.eval(), make_tokenizer()
