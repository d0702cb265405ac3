"""A tiny world of programs: transformers of 0.14 M parameters write one-line Python functions, mistakes of students included.

    python cohort.py --data tinycode    # Co-RL on it
    python -m lab.tinycode              # its topics: what is asked, two right spellings, the misconception, and what these do

As in `tinyworld.py`, agents begin with a known share of right texts in each topic. What is new is the answer: a program's
behaviour, found by running it in the sandbox of `code.py`. Each topic has two right spellings, which count as one answer. The
misconceptions are those of students: < for <=, the end of a range, / for //, the order of operations, a forgotten base case. The
last never ends its recursion, so it fails everywhere and has no vote: it cannot win, however common it is (omega is 0).
"""

import functools
import math
import random
import zlib
from collections.abc import Callable, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from lab import tinyworld
from lab.code import Inputs, behaviour, sandbox
from lab.data import Problem, UserError
from lab.tinyworld import WarmStart

SOURCE = Path(__file__).read_text(encoding="utf-8")  # a warm start is kept for this text of the file
BEGIN = "f=lambda x:"  # of every program
NUMBERS, LISTS = (0, 1, 2, 5, 11), (list(range(22)), [9, 3, 21, 14, 0, 7] * 4)


class Topic(NamedTuple):
    """One kind of problem. The three functions make what follows BEGIN."""

    name: str
    question: str
    right: Callable[..., str]
    same: Callable[..., str]  # the same in another spelling
    wrong: Callable[..., str]
    inputs: Sequence  # what x is
    operands: list[tuple[int, ...]]
    lost: bool = False  # both agents are weak at it

    def problem(self, x: tuple[int, ...]) -> Problem:
        """The problem with these operands; its answer is what the right program does."""
        tests = Inputs(tuple(f"f({one})" for one in self.inputs), True)
        return Problem(self.question.format(*x), behaviour(BEGIN + self.right(*x), tests), self.name, tests=tests)

    def part(self, held_out: bool) -> list[tuple[int, ...]]:
        """The problems to train on, or the fifth that is held out."""
        return [x for x in self.operands if (zlib.crc32(self.question.format(*x).encode()) % 5 == 0) == held_out]


SMALL = range(1, 20)
TOPICS = (
    Topic("bound", "items of x from {} to {}:", lambda a, b: f"[v for v in x if {a}<=v<={b}]",
          lambda a, b: f"[v for v in x if v>={a} and v<={b}]", lambda a, b: f"[v for v in x if {a}<v<{b}]",
          LISTS, list(combinations(range(21), 2))),
    Topic("sum", "sum of {} to x+{}:", lambda a, b: f"sum(range({a},x+{b}+1))", lambda a, b: f"x+{b}+sum(range({a},x+{b}))",
          lambda a, b: f"sum(range({a},x+{b}))", NUMBERS, list(combinations(range(1, 21), 2))),
    Topic("slice", "x, places {} to {}:", lambda a, b: f"x[{a}:{b}+1]", lambda a, b: f"x[:{b}+1][{a}:]",
          lambda a, b: f"x[{a}:{b}]", LISTS, list(combinations(range(20), 2))),
    Topic("boxes", "full boxes of {} from x+{}:", lambda a, b: f"(x+{b})//{a}", lambda a, b: f"int((x+{b})/{a})",
          lambda a, b: f"(x+{b})/{a}", NUMBERS, list(product(range(2, 20), SMALL))),
    Topic("mean", "mean of x, {} and {}:", lambda a, b: f"(x+{a}+{b})/3", lambda a, b: f"({a}+{b}+x)/3",
          lambda a, b: f"x+{a}+{b}/3", NUMBERS, list(product(SMALL, SMALL)), lost=True),
    Topic("power", "times {}, x times, from {}:", lambda a, b: f"{a}*f(x-1) if x else {b}", lambda a, b: f"{a}**x*{b}",
          lambda a, b: f"{a}*f(x-1)", NUMBERS, list(product(range(2, 20), SMALL)), lost=True),
)  # fmt: skip


def select(names: Sequence[str] | None = None) -> list[Topic]:
    """The topics of these names, in the table's order; None means all. UserError on an unknown name."""
    if unknown := set(names or ()) - {topic.name for topic in TOPICS}:
        raise UserError(f"no topic {min(unknown)!r} in the tiny world of code: choose from {', '.join(t.name for t in TOPICS)}")
    return [topic for topic in TOPICS if not names or topic.name in names]


def problems(topics: Sequence[str] | None, n: int, seed: int) -> list[Problem]:
    """n training problems in random order, drawn with replacement, every topic equally often (give or take one)."""
    rng, chosen = random.Random(seed), select(topics)
    rng.shuffle(chosen)
    drawn = rng.sample([chosen[i % len(chosen)] for i in range(n)], n)
    return [topic.problem(rng.choice(topic.part(held_out=False))) for topic in drawn]


def probes(topics: Sequence[str] | None = None, n: int = 20) -> list[Problem]:
    """Held-out problems, n of each topic (all it has if fewer): the same on every call, and never trained on."""
    parts = [(topic, topic.part(held_out=True)) for topic in select(topics)]
    return [topic.problem(x) for topic, part in parts for x in random.Random(0).sample(part, min(n, len(part)))]


# ---------------------------------------------------------------- tokenizer, model, warm start


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each word of a question and for the longer pieces of programs, else one for a character."""
    pieces = {piece for topic in TOPICS for piece in topic.question.split("{}")} | {
        BEGIN, "[v for v in x if ", " and ", "sum(range(", "int(", "*f(x-1)", " if x else "}  # fmt: skip
    words = sorted((piece for piece in pieces if len(piece) > 1), key=lambda piece: (-len(piece), piece))
    return tinyworld.make_tokenizer(words, "0123456789+-*/()[]=,:<>xv")


def make_model(settings: WarmStart) -> Qwen2ForCausalLM:
    """An untrained model, as in `tinyworld.py` but for its vocabulary."""
    config = tinyworld.make_model(settings).config
    config.vocab_size = len(make_tokenizer())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return Qwen2ForCausalLM(config)


@functools.cache
def make_texts() -> tuple[Tensor, Tensor, Tensor]:
    """(ids, labels, counts): three texts of each problem to train on, right, right otherwise, wrong; [M,3,T] and [topics].

    Labels are -100, which the loss leaves out, on question and padding.
    """
    tokenizer, rows, labels = make_tokenizer(), [], []
    parts = [topic.part(held_out=False) for topic in TOPICS]
    counts = torch.tensor([len(part) for part in parts])
    for topic, x in ((topic, x) for topic, part in zip(TOPICS, parts, strict=True) for x in part):
        for method in (topic.right, topic.same, topic.wrong):
            asked, written = (tokenizer(text)["input_ids"] for text in (topic.question.format(*x), BEGIN + method(*x)))
            written.append(tokenizer.eos_token_id)
            if tokenizer.unk_token_id in asked + written:
                raise ValueError(f"topic {topic.name} has a sign that make_tokenizer does not know: add it there")
            rows.append(torch.tensor(asked + written))
            labels.append(torch.tensor([-100] * len(asked) + written))
    ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id).view(-1, 3, max(map(len, rows)))
    return ids, pad_sequence(labels, batch_first=True, padding_value=-100).view_as(ids), counts


def train(model, right: list[float], steps: int, lr: float, settings: WarmStart, number: int) -> None:
    """Train `model` in place on texts of which a share `right[topic]` is right, half of these in either spelling."""
    ids, labels, count = make_texts()
    generator = torch.Generator().manual_seed(1000 * settings.seed + number)

    def draw() -> tuple[Tensor, Tensor]:
        topic = torch.randint(len(count), (settings.batch,), generator=generator)
        u, v, w = torch.rand(3, settings.batch, generator=generator)
        problem = (count.cumsum(0) - count)[topic] + (u * count[topic]).long()
        method = torch.where(v < torch.tensor(right)[topic], (w < 0.5).long(), 2)
        return ids[problem, method], labels[problem, method]

    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(  # as in tinyworld.py
        optimizer, lambda step: min(1, (step + 1) / 30) * (1 + math.cos(math.pi * step / steps)) / 2)
    tinyworld.fit(model, draw, steps, optimizer, schedule, f"agent {number}" if number else "shared base")


def cohort(n_agents: int, settings: WarmStart) -> list[tuple]:
    """The N warm-started agents: (model, tokenizer) each. Strengths rotate over the topics as in `tinyworld.profiles`."""
    agents = []

    def trained(start: dict[str, Tensor] | None, right: list[float], steps: int, lr: float, number: int) -> dict[str, Tensor]:
        shared = "seed hidden layers batch base_steps base_lr base_right".split()
        key = {"right": right, "steps": steps, "lr": lr, "source": SOURCE} | {name: getattr(settings, name) for name in shared}

        def build() -> dict[str, Tensor]:
            model = make_model(settings)
            model.load_state_dict(start or model.state_dict())
            train(model, right, steps, lr, settings, number)
            return model.state_dict()

        return tinyworld.cached(f"code{number}", key, build)

    base = trained(None, [settings.base_right] * len(TOPICS), settings.base_steps, settings.base_lr, 0)
    for n in range(n_agents):
        strong = [settings.strong if (i + n) % n_agents < (n_agents + 1) // 2 else settings.weak for i in range(len(TOPICS))]
        right = [settings.lost[n % 2] if topic.lost else p for topic, p in zip(TOPICS, strong, strict=True)]
        model = make_model(settings)
        model.load_state_dict(trained(base, right, settings.agent_steps, settings.agent_lr, n + 1))
        agents.append((model, make_tokenizer()))
    return agents


def main() -> None:
    """Show each topic: what is asked, its three programs, and what each of them says."""
    for topic in TOPICS:
        x = topic.operands[len(topic.operands) // 2]
        print(f"{topic.name}: {topic.question.format(*x)}")
        for name, method in zip(("right", "same", "wrong"), (topic.right, topic.same, topic.wrong), strict=True):
            said = sandbox().one((BEGIN + method(*x), topic.problem(x).tests))
            print(f"    {name:<6}{BEGIN + method(*x):<48}{'  '.join(said).replace(chr(0), '')[:64]}")


if __name__ == "__main__":
    main()
