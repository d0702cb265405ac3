"""What Agon tells its reader: the progress line, exchanges side by side, the matrix of methods, agon.png.

Table and figure are read back from the runs' own files, so they can be made again:

    python agon_report.py runs/agon-001

`agon.png` has the paper's Figure 7: accuracy against the length of the final answer (a), and over the problems processed (b).
"""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import runs
from evaluate import clopper_pearson
from report import COLOURS, save
from tasks import UserError

ROWS = {  # row of the table -> (the run that it reads, how many passes its answer takes); the paper's Table 3, and the margin
    "zero-shot": ("untrained", 1),
    "MoA, no training": ("untrained", 2),
    "GRPO": ("grpo", 1),
    "GRPO, two passes": ("grpo", 2),
    "self-refinement": ("self-refine", 2),
    "shared opponent": ("shared", 2),
    "margin": ("margin", 2),
    "cooperative": ("cooperative", 2),
    "Agon": ("agon", 2),
}


def progress(line: dict) -> str:
    """Live figures of a step: how often drafts and solutions were right, and the held-out accuracy where just measured."""
    parts = [f"{name} right {half['accuracy']:.2f}" for name, half in line["halves"].items()]
    if "eval" in line:
        parts.append("held out " + ", ".join(f"{way} {e['pass1']:.2f}" for way, e in line["eval"].items()))
    return ", ".join(parts)


def exchanges(seen: Sequence[tuple], drafter: str, reader: str, width: int = 62) -> str:
    """Exchanges side by side: left the draft as it was written, right what the challenger was given, below its solution."""
    blocks = []
    for problem, draft, prompt, solution in seen:
        columns = [
            [part for line in text.splitlines() or [""] for part in textwrap.wrap(line, width) or [""]]
            for text in (f"draft of {drafter}\n{draft}", f"what {reader} is given\n{prompt}")
        ]
        height = max(map(len, columns))
        left, right = (column + [""] * (height - len(column)) for column in columns)
        rows = [f"{a:<{width}} | {b}" for a, b in zip(left, right, strict=True)]
        head, end = f"{problem.question}  (reference answer {problem.answer})", f"solution of {reader}: {solution}"
        blocks.append("\n".join([head, *rows, end]))
    rule = "-" * (2 * width + 3)
    return f"\n{rule}\n".join(["", *blocks, ""])


# ---------------------------------------------------------------- reading a comparison back


@dataclass
class Measured:
    """One row of the table, over all seeds. Accuracies are means over the directions in which the pair is used."""

    passes: int
    by_seed: list[float]  # final pass@1
    directions: dict[str, float]  # way of use -> pass@1, mean over the seeds
    trials: int  # held-out problems: the same for every seed and direction, so not independent trials
    length: float  # tokens of the final answer
    tokens: int  # written in training
    rollouts: set[int]  # generations for each problem and step: must be one number, the same for every trained row
    seconds: float
    curve: list[tuple[int, float]]  # (problems processed, pass@1), mean over the seeds


def passes(way: str) -> int:
    """ "A" is one pass, "A > B" two."""
    return 1 + (">" in way)


def children(folder: Path, method: str) -> list[Path]:
    """The finished runs of one method, one for each seed."""
    found = []
    for place in sorted(folder.glob(f"{method}-seed*")):
        config, lines = runs.read_json(place / "config.json"), runs.read_lines(place / "metrics.jsonl")
        if method == "untrained" or lines[-1]["step"] == config["steps"] and "eval" in lines[-1]:
            found.append(place)
        else:
            print(f"left out: {place} (not finished)", file=sys.stderr)
    return found


def accuracy(line: dict, n_passes: int) -> float:
    """pass@1 on an evaluated line, mean of the directions of so many passes."""
    return float(np.mean([e["pass1"] for way, e in line["eval"].items() if passes(way) == n_passes]))


def measured(folder: Path, method: str, n_passes: int) -> Measured | None:
    """All that the table and the figure say of one row; None without a finished run."""
    finals, curves, steps, directions = [], [], [], {}
    for place in children(folder, method):
        config, lines = runs.read_json(place / "config.json"), runs.read_lines(place / "metrics.jsonl")
        wanted = [line for line in lines if any(passes(way) == n_passes for way in line.get("eval", {}))]
        finals.append(wanted[-1])
        curves.append([(line["step"] * config["prompts"], accuracy(line, n_passes)) for line in wanted])
        steps += [(config["prompts"], line["halves"].values()) for line in lines if "halves" in line]
    if not finals:
        return None
    last = [e for line in finals for way, e in line["eval"].items() if passes(way) == n_passes]
    for line in finals:
        for way, e in line["eval"].items():
            if passes(way) == n_passes:
                directions.setdefault(way, []).append(e["pass1"])
    return Measured(
        passes=n_passes,
        by_seed=[accuracy(line, n_passes) for line in finals],
        directions={way: float(np.mean(p)) for way, p in directions.items()},
        trials=last[0]["problems"],
        length=float(np.mean([e["length"] for e in last])),
        tokens=sum(half["tokens"] for _, halves in steps for half in halves),
        rollouts={sum(half["rollouts"] for half in halves) // prompts for prompts, halves in steps},
        seconds=sum(half["sample_seconds"] + half["learn_seconds"] for _, halves in steps for half in halves),
        curve=[(points[0][0], float(np.mean([y for _, y in points]))) for points in zip(*curves, strict=False)],
    )


def matrix(folder: Path) -> dict[str, Measured]:
    """The rows for which there are runs, in the table's order."""
    found = {row: measured(folder, method, n) for row, (method, n) in ROWS.items()}
    if not any(found.values()):
        raise UserError(f"{folder} has no finished run of agon.py")
    return {row: m for row, m in found.items() if m}


# ---------------------------------------------------------------- table and figure


def table(rows: dict[str, Measured]) -> str:
    """The matrix: held-out pass@1 with its interval, by direction and by seed, passes, length, budget, seconds."""
    form = "{:<18}{:>7}  {:<15}{:>7}{:>8}{:>9}{:>13}{:>9}   {:<24}  {}"
    head = ("", "pass@1", "95 % interval", "passes", "length", "tokens", "a problem", "seconds", "by direction", "by seed")
    lines = [form.format(*head)]
    for row, m in rows.items():
        low, high = clopper_pearson(round(float(np.mean(m.by_seed)) * m.trials), m.trials)
        lines.append(
            form.format(
                row,
                f"{np.mean(m.by_seed):.3f}",
                f"({low:.3f}, {high:.3f})",
                m.passes,
                f"{m.length:.1f}",
                f"{m.tokens / 1e6:.2f} M" if m.tokens else "-",
                f"{min(m.rollouts)} rollouts" if len(m.rollouts) == 1 else "-",
                f"{m.seconds:.0f}" if m.seconds else "-",
                "  ".join(f"{way} {p:.3f}" for way, p in m.directions.items()),
                " ".join(f"{p:.2f}" for p in m.by_seed),
            )
        )
    return "\n".join(lines)


def draw(rows: dict[str, Measured], path: Path) -> None:
    """agon.png: (a) accuracy against the length of the final answer, (b) accuracy over the problems processed."""
    figure, (against, over) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", width_ratios=(1, 1.2))
    for i, (row, m) in enumerate(rows.items()):
        colour, marker = COLOURS[i % len(COLOURS)], "o" if m.passes == 1 else "s"
        y = float(np.mean(m.by_seed))
        against.errorbar(m.length, y, [[y - min(m.by_seed)], [max(m.by_seed) - y]], fmt=marker, color=colour, capsize=2, lw=1)
        against.annotate(row, (m.length, y), (5, 4), textcoords="offset points", fontsize=8, color=colour)
        if len(m.curve) > 1:
            over.plot(*zip(*m.curve, strict=True), f"{marker}-", ms=3.5, color=colour, lw=1.6, label=row)
        else:
            over.axhline(y, color=colour, ls=":", lw=1.2, label=row)
    against.set_xlabel("length of the final answer (tokens)"), against.set_ylabel("held-out pass@1")
    against.set_title("(a) bars: lowest and highest seed; square: two passes", fontsize=10)
    over.set_xlabel("problems processed"), over.set_title("(b) mean over the seeds", fontsize=10)
    over.legend(frameon=False, fontsize=8, ncols=2)
    for axis in (against, over):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    against.margins(x=0.25, y=0.12)
    save(figure, path)


def finish(folder: Path) -> None:
    """Print the table of a comparison and draw agon.png."""
    rows = matrix(folder)
    print(f"\n{table(rows)}")
    draw(rows, folder / "agon.png")
    print(f"\nwritten: {folder}/ (agon.png, and a folder for each run)")


def main() -> int:
    """Print and draw a comparison again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that agon.py wrote")
    folder = parser.parse_args().folder
    try:
        finish(folder)
        return 0
    except UserError as error:
        print(f"agon_report.py: {error}", file=sys.stderr)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        print(f"agon_report.py: {folder} is not a whole run: {type(error).__name__}: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
