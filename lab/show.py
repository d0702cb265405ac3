"""What a run shows while it goes on: completions with their rewards, its progress line, its metrics in another tool.

The completions are among those that a step trains on. Nothing is sampled to be shown, so training is the same with and without.
"""

import contextlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from grpo import Rollouts
from lab.data import Problem
from lab.models import TEXT

TOPICS, PROBLEMS = 6, 3  # how many problems of a step are shown: one of each topic; without topics, the first few
LINES = 3  # of the screen, for one completion

# ---------------------------------------------------------------- completions


def pick(who: str, problems: Sequence[Problem], prompts: Sequence[str], written: Rollouts, rewards: Tensor | None = None,
         labels: Sequence[str | None] | None = None) -> list[dict]:  # fmt: skip
    """The first completion of one problem of each topic, with its reward [P,K] and the label [P] it was compared with.

    `written` lies problem after problem, as P groups of K or as P*K groups of one; in the second case each completion had a
    prompt of its own, and that is kept as "reads".
    """
    first = {problem.topic: i for i, problem in reversed(list(enumerate(problems)))}
    chosen = sorted(first.values())[:TOPICS] if len(first) > 1 else range(len(problems))[:PROBLEMS]
    texts, answers = sum(written.texts, []), sum(written.answers, [])
    k, own = len(texts) // len(problems), len(prompts) // len(problems)
    return [
        {"topic": problems[i].topic, "question": problems[i].question, "reference": problems[i].answer, "agent": who}
        | ({"picture": problems[i].image.name} if problems[i].image else {})
        | {"reads" if own > 1 else "prompt": prompts[i * own].replace(TEXT, "")}
        | {"completion": texts[i * k], "answer": answers[i * k]}
        | ({} if labels is None else {"label": labels[i]})
        | ({} if rewards is None else {"reward": round(rewards.flatten()[i * k].item(), 6)})
        for i in chosen
    ]


def escaped(text: str) -> str:
    """The text on one line: line breaks and what would move the cursor are spelled out, as is what the screen cannot show."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def completions(samples: Sequence[dict], width: int = 80) -> str:
    """Samples as text: each problem once, and under it what every agent wrote, with what it was paid."""
    groups, rows = {}, []  # rows of (what stands on the left, the text beside it)
    for sample in samples:
        groups.setdefault((sample["topic"], sample["question"], sample["reference"]), []).append(sample)
    for (topic, question, reference), group in groups.items():
        about = question if topic in ("", question) else f"{topic}: {question}"
        about += f" [{group[0]['picture']}]" if "picture" in group[0] else ""
        rows.append(("", about if reference is None else f"{about}  (reference answer {reference})"))
        for sample in group:
            if "reads" in sample:
                rows.append((f"  {sample['agent']}  reads", sample["reads"]))
            paid = f"  reward {sample['reward']:.2f}" if "reward" in sample else ""
            paid += f"  label {escaped(sample['label'] or 'none')[:12]}" if "label" in sample else ""
            rows.append((f"  {sample['agent']}{paid}", sample["completion"] + "  (no answer)" * (sample["answer"] is None)))
    left, lines = max(len(head) for head, _ in rows) + 2, []
    for head, text in rows:
        room = width - left if head else width
        parts = textwrap.wrap(shortened(escaped(text), LINES * room - 20), room) or [""]  # words leave gaps at the ends of lines
        lines += [f"{start:<{width - room}}{part}" for start, part in itertools.zip_longest([head], parts, fillvalue="")]
    return "\n".join(line.rstrip() for line in lines)


def shortened(text: str, most: int) -> str:
    """At most so many characters: the beginning, and the end, where the answer stands."""
    kept = (most - 7) // 2
    return text if len(text) <= most else f"{text[:kept]} [...] {text[-kept:]}"


# ---------------------------------------------------------------- how far it is


def progress(line: dict, seen: str, room: int) -> str:
    """The live figures of a step of cohort.py (agents) or of agon.py (halves), as many as fit; `seen`, the accuracies, first."""
    parts, agents = [seen] if seen else [], line.get("agents", {}).values()
    for name, key in (("labels", "label_accuracy"), ("reward", "reward_mean")):
        if values := [agent[key] for agent in agents if agent.get(key) is not None]:
            parts.append(f"{name} {'/'.join(f'{value:.2f}' for value in values)}")
    if line.get("agreement") is not None:
        parts.append(f"agree {line['agreement']:.2f}")
    parts += [f"{name} {half['accuracy']:.2f}" for name, half in line.get("halves", {}).items()]
    widths = itertools.accumulate(len(part) + 2 for part in parts)  # tqdm puts ", " before each
    return ", ".join(part for part, width in zip(parts, widths, strict=True) if width <= room)


def accuracies(line: dict, which: str = "eval") -> str:
    """What was measured after a step, on problems that are held out, or of "eval on DATA" on others."""
    told = " ".join(f"{name} {e['pass1']:.2f}" for name, e in line.get(which, {}).items())
    return told and f"pass@1 {told}{which.removeprefix('eval')}"


# ---------------------------------------------------------------- the metrics in another tool


@contextlib.contextmanager
def logged(tool: str | None, folder: Path, config: dict) -> Iterator[Callable[[dict], None]]:
    """What takes each line of metrics.jsonl to Weights & Biases or to TensorBoard too; without a `tool`, nothing does."""
    if tool == "wandb":
        import wandb

        with wandb.init(project="cohort", name=folder.name, dir=str(folder), config=config) as run:
            yield lambda line: run.log(numbers(line), step=line["step"])
    elif tool == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(folder)) as writer:
            yield lambda line: [writer.add_scalar(name, value, line["step"]) for name, value in numbers(line).items()]
    else:
        yield lambda line: None


def numbers(part: dict, above: str = "") -> dict[str, float]:
    """The numbers of a nested record by their paths: agents/A/reward_mean."""
    inside = [numbers(value, f"{above}{name}/") for name, value in part.items() if isinstance(value, dict)]
    own = {above + name: value for name, value in part.items() if isinstance(value, int | float)}
    return own | {name: value for found in inside for name, value in found.items()}
