"""The embedded default world: tiny Qwen2-architecture transformers that do sums as students do, mistakes included.

Each topic of arithmetic has a right method and two *misconceptions*: wrong methods that are consistent, as people's are.
An agent's *profile* gives, for each topic, the share of its warm-up texts that use the right method, and which of the two
mistakes the others make (the first one, unless a cohort of another kind is asked for). A model trained on such texts
becomes calibrated: it samples each method with a probability close to its profile. So the profiles place each topic where
we like in the square of (p_A, p_B), the accuracies of two agents, and decide how often their errors coincide, and the
theory of `dynamics.py` can be watched on real transformers. `python -m lab.tinyworld` shows the topics and how well calibrated
the agents are. This world is ours, not the papers', which train models of 0.6 to 12 billion parameters.
"""

import argparse
import functools
import hashlib
import json
import math
import random
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from lab.data import Problem, UserError, cache_folder, write_whole

ARROW = " -> "  # what follows it is the answer
SOURCE = Path(__file__).read_text(encoding="utf-8")  # a warm start is kept for this text of the file and for no other

# ---------------- Topics and their problems


@dataclass(frozen=True)
class Topic:
    """One kind of problem, in two notations with equally many tokens, and how it is worked out; to add one, add it to TOPICS.

    What a topic must have:
      - Only signs and words of `make_tokenizer`; a new one goes there, too.
      - More than 150 problems: fewer are learnt by heart. (1/3+1/4 has too few with small numbers.)
      - Every addition that carries into the tens written out: 8+72 as one step came out wrong in problems that were held out.
      - At no place a choice between two tokens that another topic makes in the opposite way. When the right token was "," and not
        "->" in products, but "->" and not "," in fractions, training one of them on ground truth drove the other to its mistake.
    """

    name: str
    question: str
    rephrased: str
    methods: tuple[Callable[..., str], Callable[..., str], Callable[..., str]]  # right, first mistake, second mistake
    slip: Callable[..., str]  # the right method with one sub-result off by one (Agon's world)
    operands: list[tuple[int, ...]]  # all problems of the topic
    lost: bool = False  # both agents are weak at it, so that the theory calls it lost

    def __post_init__(self):
        if len(self.operands) <= 150:
            raise ValueError(f"topic {self.name} has {len(self.operands)} problems: 150 or fewer are learnt by heart")

    def problem(self, operands: tuple[int, ...]) -> Problem:
        """The problem with these operands; its answer is the right method's."""
        answer = self.methods[0](*operands).rpartition(ARROW)[2]
        return Problem(self.question.format(*operands), answer, self.name, self.rephrased.format(*operands))

    def part(self, held_out: bool) -> list[tuple[int, ...]]:
        """The problems to train on, or the fifth that is held out; a hash of the question decides, for ever."""
        return [x for x in self.operands if (zlib.crc32(self.question.format(*x).encode()) % 5 == 0) == held_out]


DIGIT, FACTOR, TEEN = range(1, 10), range(2, 10), range(10, 20)
TOPICS = (
    Topic("carry", "{}{}+{}{}=", "{}{} plus {}{}=", (
        # 47+38= by columns: 7+8=15,4+3+1=8 -> 85; without the carried one: -> 75; with both sums written out: -> 715
        lambda a, b, c, d: f"{b}+{d}={b + d},{a}+{c}+1={a + c + 1} -> {a + c + 1}{(b + d) % 10}",
        lambda a, b, c, d: f"{b}+{d}={b + d},{a}+{c}={a + c} -> {a + c}{(b + d) % 10}",
        lambda a, b, c, d: f"{b}+{d}={b + d},{a}+{c}={a + c} -> {a + c}{b + d}",
    ), slip=lambda a, b, c, d: f"{b}+{d}={b + d + 1},{a}+{c}+1={a + c + 1} -> {a + c + 1}{(b + d + 1) % 10}",
    operands=[(a, b, c, d) for a, b, c, d in product(DIGIT, repeat=4) if b + d > 9 and a + c < 9]),
    Topic("borrow", "{}{}-{}{}=", "{}{} minus {}{}=", (
        # 52-37= by columns: 12-7=5,4-3=1 -> 15; smaller digit from larger: -> 25; nothing left where it is too small: -> 20
        lambda a, b, c, d: f"{b + 10}-{d}={b + 10 - d},{a - 1}-{c}={a - 1 - c} -> {a - 1 - c}{b + 10 - d}",
        lambda a, b, c, d: f"{d}-{b}={d - b},{a}-{c}={a - c} -> {a - c}{d - b}",
        lambda a, b, c, d: f"0,{a}-{c}={a - c} -> {a - c}0",
    ), slip=lambda a, b, c, d: f"{b + 10}-{d}={b + 9 - d},{a - 1}-{c}={a - 1 - c} -> {a - 1 - c}{b + 9 - d}",
    operands=[(a, b, c, d) for a, b, c, d in product(DIGIT, repeat=4) if b < d and a > c + 1]),
    Topic("product", "{}{}*{}=", "{}{} times {}=", (
        # 34*6= digit by digit: 4*6=24,3*6=18,2+18=20 -> 204; without the carried two: -> 184; both written out: -> 1824
        lambda a, b, c: f"{b}*{c}={b * c},{a}*{c}={a * c},{b * c // 10}+{a * c}={b * c // 10 + a * c}"
        f" -> {b * c // 10 + a * c}{b * c % 10}",
        lambda a, b, c: f"{b}*{c}={b * c},{a}*{c}={a * c} -> {a * c}{b * c % 10}",
        lambda a, b, c: f"{b}*{c}={b * c},{a}*{c}={a * c} -> {a * c}{b * c}",
    ), slip=lambda a, b, c: f"{b}*{c}={b * c},{a}*{c}={a * c + 1},{b * c // 10}+{a * c + 1}="
        f"{b * c // 10 + a * c + 1} -> {b * c // 10 + a * c + 1}{b * c % 10}",
    operands=[(a, b, c) for a, b, c in product(DIGIT, FACTOR, FACTOR) if b * c > 9 and a * c % 10 + b * c // 10 < 10]),
    Topic("precedence", "{}+{}*{}=", "{} plus {} times {}=", (
        # 3+4*5= with the product first: 3+(4*5),4*5=20,3+20=23 -> 23; left to right: -> 35; stopped at the product: -> 20
        lambda a, b, c: f"{a}+({b}*{c}),{b}*{c}={b * c},{a}+{b * c}={a + b * c} -> {a + b * c}",
        lambda a, b, c: f"({a}+{b})*{c},{a}+{b}={a + b},{a + b}*{c}={(a + b) * c} -> {(a + b) * c}",
        lambda a, b, c: f"{a}+({b}*{c}),{b}*{c}={b * c} -> {b * c}",
    ), slip=lambda a, b, c: f"{a}+({b}*{c}),{b}*{c}={b * c + 1},{a}+{b * c + 1}={a + b * c + 1} -> {a + b * c + 1}",
    operands=[(a, b, c) for a, b, c in product(DIGIT, FACTOR, FACTOR) if a + b < 11 and b * c > 9 and a + b * c % 10 < 10]),
    Topic("bracket", "{}-({}-{})=", "{} minus ({} minus {})=", (
        # 15-(7-2)= with the bracket first: 7-2=5,15-5=10 -> 10; bracket ignored: -> 6; two minuses make a plus: -> 20
        lambda a, b, c: f"{b}-{c}={b - c},{a}-{b - c}={a - b + c} -> {a - b + c}",
        lambda a, b, c: f"{a}-{b}={a - b},{a - b}-{c}={a - b - c} -> {a - b - c}",
        lambda a, b, c: f"{b}-{c}={b - c},{a}+{b - c}={a + b - c} -> {a + b - c}",
    ), slip=lambda a, b, c: f"{b}-{c}={b - c + 1},{a}-{b - c + 1}={a - b + c - 1} -> {a - b + c - 1}",
    operands=[(a, b, c) for a, b, c in product(TEEN, FACTOR, DIGIT) if c < b and b + c < a]),
    Topic("fraction", "{0}/{2}+{1}/{2}=", "{0} over {2} plus {1} over {2}=", (
        # 2/7+3/7= with the bottom kept: /7,2+3=5 -> 5/7; bottoms added, too: -> 5/14; bottoms multiplied: -> 5/49
        lambda a, b, c: f"/{c},{a}+{b}={a + b} -> {a + b}/{c}",
        lambda a, b, c: f"{c}+{c}={2 * c},{a}+{b}={a + b} -> {a + b}/{2 * c}",
        lambda a, b, c: f"{c}*{c}={c * c},{a}+{b}={a + b} -> {a + b}/{c * c}",
    ), slip=lambda a, b, c: f"/{c},{a}+{b}={a + b + 1} -> {a + b + 1}/{c}",
    operands=[(a, b, c) for a, b, c in product(DIGIT, DIGIT, range(3, 20)) if a + b < min(c, 10)], lost=True),
)  # fmt: skip


def select(names: Sequence[str] | None = None) -> list[Topic]:
    """The topics of these names, in the table's order; None means all. UserError on an unknown name."""
    known = [topic.name for topic in TOPICS]
    for name in names or ():
        if name not in known:
            raise UserError(f"no topic {name!r} in the tiny world: choose from {', '.join(known)}")
    return [topic for topic in TOPICS if not names or topic.name in names]


def problems(topics: Sequence[str] | None, n: int, seed: int) -> list[Problem]:
    """n training problems in random order, drawn with replacement, every topic equally often (give or take one)."""
    rng = random.Random(seed)
    chosen = select(topics)
    rng.shuffle(chosen)
    parts = [topic.part(held_out=False) for topic in chosen]
    drawn = [chosen[i % len(chosen)].problem(rng.choice(parts[i % len(chosen)])) for i in range(n)]
    rng.shuffle(drawn)
    return drawn


def probes(topics: Sequence[str] | None = None, n: int = 20) -> list[Problem]:
    """Held-out problems, n of each topic (all it has if fewer): the same on every call, and never trained on."""
    parts = [(topic, topic.part(held_out=True)) for topic in select(topics)]
    return [topic.problem(x) for topic, part in parts for x in random.Random(0).sample(part, min(n, len(part)))]


# ---------------- Tokenizer and model


@dataclass(frozen=True)
class WarmStart:
    """Everything that decides the weights which the agents start from."""

    seed: int = 0
    hidden: int = 64
    layers: int = 2
    batch: int = 64  # texts per step
    rephrased: float = 0.25  # share of texts whose question is in the other notation
    base_steps: int = 900
    base_lr: float = 4e-3
    base_right: float = 0.6  # share of right methods in the base's texts, every topic
    agent_steps: int = 200
    agent_lr: float = 1e-3
    strong: float = 0.88  # shares of right methods in an agent's texts: see `profiles`
    weak: float = 0.42
    lost: tuple[float, float] = (0.25, 0.30)
    kind: str = "complementary"  # see KINDS


def make_tokenizer(words: Sequence[str] = (ARROW, " plus ", " minus ", " times ", " over "), signs="0123456789+-*/()=,",
                   template="{{ messages[-1]['content'] }}", **options) -> PreTrainedTokenizerFast:  # fmt: skip
    """One token for each of the signs and of the words, here the arrow and those of the rephrased questions."""
    tokens = ["<pad>", "<eos>", "<unk>", *words, *signs]
    # BPE without merges is a character each, and the words are taken whole before it: a form that AutoTokenizer, which
    # rebuilds a Qwen2 tokenizer from its vocabulary alone, reads back as it was.
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges=[], unk_token="<unk>"))
    core.add_tokens([AddedToken(word, normalized=False) for word in words])
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left",
        model_max_length=256, clean_up_tokenization_spaces=False, chat_template=template, **options)
    # The question itself is the prompt. The attribute is lost when a tokenizer is saved; the template says it again.
    tokenizer.plain_prompt = True
    return tokenizer


def make_model(settings: WarmStart) -> Qwen2ForCausalLM:
    """An untrained Qwen2-architecture model in float32, about 0.13 M parameters."""
    tokenizer = make_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=settings.hidden, intermediate_size=4 * settings.hidden,
        num_hidden_layers=settings.layers, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        tie_word_embeddings=True, initializer_range=0.05, bos_token_id=None, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return Qwen2ForCausalLM(config)


# ---------------- Worked texts and training on them


class Texts(NamedTuple):
    """All worked texts: M problems, topic after topic, x 2 notations x 3 methods x T tokens, right-padded."""

    ids: Tensor  # [M,2,3,T]
    labels: Tensor  # [M,2,3,T]: the ids of the completion; -100, which the loss leaves out, on question and padding
    first: Tensor  # [topics]: index of each topic's first problem
    count: Tensor  # [topics]: number of its problems


def pack(pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """(prompt, worked text) pairs to ids and labels, both [n,T], right-padded; labels are -100 on prompt and padding."""
    tokenizer = make_tokenizer()
    prompts, works = (tokenizer(list(texts))["input_ids"] for texts in zip(*pairs, strict=True))
    for pair, p, w in zip(pairs, prompts, works, strict=True):
        if tokenizer.unk_token_id in p + w:
            raise ValueError(f"{''.join(pair)!r} has a sign that make_tokenizer does not know: add it there")
    rows = [torch.tensor([*p, *w, tokenizer.eos_token_id]) for p, w in zip(prompts, works, strict=True)]
    ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    labels = [torch.cat([torch.full((len(p),), -100), row[len(p) :]]) for p, row in zip(prompts, rows, strict=True)]
    return ids, pad_sequence(labels, batch_first=True, padding_value=-100)


@functools.cache
def make_texts(held_out: bool) -> Texts:
    """The texts of all problems to train on, or of all that are held out."""
    parts = [topic.part(held_out) for topic in TOPICS]
    ids, labels = pack([(notation.format(*x), method(*x)) for topic, part in zip(TOPICS, parts, strict=True) for x in part
                        for notation in (topic.question, topic.rephrased) for method in topic.methods])  # fmt: skip
    count = torch.tensor([len(part) for part in parts])
    return Texts(*(x.unflatten(0, (-1, 2, 3)) for x in (ids, labels)), count.cumsum(0) - count, count)


class Profile(NamedTuple):
    """Which methods an agent's texts use."""

    right: list[float]  # share of the right method, by topic
    rephrased: list[float]  # the same where the question is in the other notation
    second: float = 0.0  # share of the second misconception among the wrong methods


def draw(texts: Texts, profile: Profile, n: int, rephrased: float, generator) -> tuple[Tensor, Tensor]:
    """ids and labels of n texts, [n,T]: a topic at random, one of its problems, a notation, a method by the profile."""
    topic = torch.randint(len(texts.first), (n,), generator=generator)
    u, v, w = torch.rand(3, n, generator=generator)
    problem = texts.first[topic] + (u * texts.count[topic]).long()
    notation = (v < rephrased).long()
    right = torch.tensor([profile.right, profile.rephrased])[notation, topic]  # [n]
    method = (w >= right).long() + (w >= 1 - profile.second * (1 - right)).long()
    return cut(texts.ids[problem, notation, method], texts.labels[problem, notation, method])


def cut(ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """A batch without the columns that are padding in all its rows."""
    longest = int((labels >= 0).any(0).nonzero().max()) + 1
    return ids[:, :longest], labels[:, :longest]


def train(model, texts: Texts, profile: Profile, steps: int, lr: float, settings: WarmStart,
          number: int) -> list[float]:
    """Train `model` in place on texts drawn by `profile`, `number` seeding the draws; the loss of each step (nats).

    A profile that differs by notation gets as many texts of either, and twice the steps: it is twice as much to learn.
    """
    rephrased = settings.rephrased
    if profile.right != profile.rephrased:
        rephrased, steps = 0.5, 2 * steps
    generator = torch.Generator().manual_seed(1000 * settings.seed + number)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(  # linear warm-up, then a cosine down to zero
        optimizer, lambda step: min(1, (step + 1) / 30) * (1 + math.cos(math.pi * step / steps)) / 2)
    title = f"agent {number}" if number else "shared base"
    return fit(model, lambda: draw(texts, profile, settings.batch, rephrased, generator), steps, optimizer, schedule, title)


def fit(model, batch: Callable, steps: int, optimizer, schedule, title: str) -> list[float]:
    """Train what is trainable and in use, in place; the loss of each step."""
    losses = []
    for _ in tqdm(range(steps), desc=f"warm start, {title}", unit="step", leave=False, disable=None):
        ids, labels = batch()
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss  # no mask: the padding comes last
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def calibration(model, rephrased: bool = False) -> dict[str, tuple[float, float, float]]:
    """For each topic, the exact probability of each method's text, right one first: means over held-out problems.

    What is missing to 1 are slips: texts of no method.
    """
    texts = make_texts(held_out=True)
    ids, labels = (t[:, int(rephrased)].flatten(0, 1).to(model.device) for t in (texts.ids, texts.labels))  # [3M,T]
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]  # [3M,T-1,V]
    logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]  # [3M,T-1]
    probability = torch.where(labels[:, 1:] >= 0, logp, 0).sum(-1).exp().view(-1, 3).cpu()  # [M,3]
    means = [part.mean(0).tolist() for part in probability.split(texts.count.tolist())]
    return {topic.name: tuple(mean) for topic, mean in zip(TOPICS, means, strict=True)}


# ---------------- The cohort


class Kind(NamedTuple):
    """What tells agent B from agent A in a cohort of two. A is the same in all kinds: it makes the first mistakes."""

    usual: bool = True  # in the usual notation B is strong where A is weak; else where A is strong
    rephrased: bool = True  # the same for the other notation
    second: float = 0.0  # share of the second misconception among B's mistakes
    twins: bool = False  # B has A's very weights; else its warm start draws other texts


# Strengths and mistakes may differ: `seed` (neither), `errors`, `complementary` and `different` (both) are the four cases.
KINDS = {
    "same": Kind(usual=False, rephrased=False, twins=True),
    "seed": Kind(usual=False, rephrased=False),
    "errors": Kind(usual=False, rephrased=False, second=1.0),
    "complementary": Kind(),
    "different": Kind(second=1.0),
    "rephrased": Kind(usual=False),
}


def profiles(n_agents: int, settings: WarmStart) -> list[Profile]:
    """The profile of each agent.

    In each topic that is not `lost`, the larger half of the agents, neighbours on the ring, is strong; who they are rotates
    from topic to topic. So two agents have complementary strengths, with p_A + p_B = 1.30: above the line with a
    margin, since topics drag each other along (they share weights; the theory treats each by itself). A lost topic
    is below the line for all: p_A + p_B = 0.55.

    With A's strengths, agent B leaves three topics below the line, two of them at p_A + p_B = 0.84. In the kind
    `rephrased` B has A's strengths in the usual notation, and in the other one, which it should be given to read,
    the complementary ones: somebody who subtracts better in words.
    """
    kind, strong = KINDS[settings.kind], (n_agents + 1) // 2
    rows = [[settings.lost[agent % 2] if topic.lost else settings.strong if (i + agent) % n_agents < strong else settings.weak
             for i, topic in enumerate(TOPICS)] for agent in range(n_agents)]
    return [Profile(row if kind.usual else rows[0], row if kind.rephrased else rows[0], kind.second if agent else 0.0)
            for agent, row in enumerate(rows)]


def checksum(tensors: dict[str, Tensor]) -> str:
    """SHA-256 of the names and contents of tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].numpy().tobytes())
    return digest.hexdigest()


def cached(name: str, key: dict, build: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors that `build` makes on one thread, kept in the cache folder under a hash of `key` and of this file's own text.

    So they depend on no number of threads, and not on who made the cache. A file whose checksum is wrong is made anew. A
    folder that cannot be written to costs only the time.
    """
    digest = hashlib.sha256(json.dumps([key, SOURCE, torch.__version__], sort_keys=True).encode()).hexdigest()
    path = cache_folder() / "tinyworld" / f"{name}-{digest[:16]}.safetensors"
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no dictionary)
            if (file.metadata() or {}).get("sha256") == checksum(tensors):
                return tensors
    except (OSError, SafetensorError):
        pass  # none yet, or a damaged one
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # how a sum is cut into threads decides its last digit, and so the weights
    try:
        tensors = {key: value.detach().clone() for key, value in build().items()}
    finally:
        torch.set_num_threads(threads)
    try:
        write_whole(path, save(tensors, metadata={"sha256": checksum(tensors)}))
    except OSError as error:
        print(f"cannot keep the warm start in {path.parent}: {error.strerror}", file=sys.stderr)
    return tensors


def cohort(n_agents: int = 2, seed: int = 0, device: str = "cpu", settings: WarmStart | None = None) -> list[tuple]:
    """The N warm-started agents of the tiny world: a list of (model, tokenizer), models in float32 on `device`.

    One base is trained on the right method and the first mistake; each agent goes on from it with its own profile, and
    if that has the second mistake, it learns it there. A kind other than complementary is for two agents. All topics are
    always in, so that a run on a few of them starts from the same weights. It takes about 40 s for two agents
    and is then read from the cache. The training is on the CPU: a GPU starts from the same weights.
    """
    settings = settings or WarmStart(seed=seed)

    def trained(start: dict[str, Tensor] | None, profile: Profile, steps: int, lr: float, number: int):
        model = make_model(settings)
        if start:
            model.load_state_dict(start)
        train(model, make_texts(held_out=False), profile, steps, lr, settings, number)
        return model.state_dict()

    everything = {k: v for k, v in asdict(settings).items() if k not in ("strong", "weak", "lost", "kind")}
    equally = [settings.base_right] * len(TOPICS)
    base = cached("base", {k: v for k, v in everything.items() if k not in ("agent_steps", "agent_lr")}, lambda: trained(
        None, Profile(equally, equally), settings.base_steps, settings.base_lr, number=0))
    agents = []
    for number, profile in enumerate(profiles(n_agents, settings), start=1):
        number = 1 if KINDS[settings.kind].twins else number
        model = make_model(settings)
        model.load_state_dict(cached(f"agent{number}", everything | {"profile": profile}, lambda p=profile, n=number: (
            trained(base, p, settings.agent_steps, settings.agent_lr, n))))
        agents.append((model.to(device), make_tokenizer()))
    return agents


def main() -> None:
    """Show each topic with its methods, and each agent's profile beside what it does on held-out problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cohort", choices=KINDS, default="complementary", help="kind of a cohort of two")
    parser.add_argument("--rephrased", action="store_true", help="ask in the other notation")
    options = parser.parse_args()
    if options.agents != 2 and options.cohort != "complementary":
        parser.error("--cohort is for two agents")
    for topic in TOPICS:
        x = topic.operands[len(topic.operands) // 2]
        texts = [f"{name}: {method(*x)}" for name, method in zip(("right", "first", "second"), topic.methods, strict=True)]
        print(f"{topic.name:<11} {topic.question.format(*x):<10} {texts[0]:<36} {texts[1]:<36} {texts[2]}")
    settings = WarmStart(seed=options.seed, kind=options.cohort)
    agents = zip(cohort(options.agents, settings=settings), profiles(options.agents, settings), strict=True)
    for number, ((model, _), profile) in enumerate(agents, start=1):
        print(f"\nagent {number:<5} profile  right  first  second  slips")
        shares = profile.rephrased if options.rephrased else profile.right
        for share, (name, found) in zip(shares, calibration(model, options.rephrased).items(), strict=True):
            print(f"{name:<11} {share:7.2f} {found[0]:6.2f} {found[1]:6.2f} {found[2]:7.2f} {1 - sum(found):6.3f}")


if __name__ == "__main__":
    main()
