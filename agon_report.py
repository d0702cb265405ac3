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
from evaluate import mean_interval
from report import mean_curve, save
from tasks import UserError

PAIR, BOTH = ("A > B", "B > A"), ("A", "B")
ROWS = {  # row of the table -> (run that it reads, ways of use: their mean, colour); the paper's Table 3, margin, single passes
    "zero-shot": ("untrained", BOTH, "#999999"),
    "MoA, no training": ("untrained", PAIR, "#666666"),
    "GRPO": ("grpo", ("A",), "#000000"),
    "GRPO, two passes": ("grpo", ("A > A",), "#E69F00"),
    "self-refinement": ("self-refine", ("A > A",), "#CC79A7"),
    "shared, one pass": ("shared", BOTH, "#88CCEE"),
    "shared opponent": ("shared", PAIR, "#56B4E9"),
    "margin": ("margin", PAIR, "#009E73"),
    "cooperative": ("cooperative", PAIR, "#0072B2"),
    "Agon, one pass": ("agon", BOTH, "#EE9988"),
    "Agon": ("agon", PAIR, "#D55E00"),
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
    """One row of the table. Accuracies are means over the ways in which the adapters are used; seeds are kept apart."""

    passes: int
    by_seed: list[float]  # final pass@1
    by_way: dict[str, float]  # way of use -> pass@1, mean over the seeds
    trials: int  # held-out problems: the same for every seed and way, so not independent trials
    length: float  # tokens of the final answer
    tokens: float  # written in training, mean of the seeds
    rollouts: set[int]  # generations for each problem and step: must be one number, the same for every trained row
    seconds: float  # of training, mean of the seeds
    curve: list[tuple[int, float]]  # (problems processed, pass@1), mean over the seeds


def finished(folder: Path, method: str) -> list[tuple[dict, list[dict]]]:
    """(config, lines of metrics) of the finished runs of one method, one for each seed."""
    found, steps = [], runs.read_json(folder / "config.json")["steps"]
    for place in sorted(folder.glob(f"{method}-seed*")):
        lines = runs.read_lines(place / "metrics.jsonl") if (place / "metrics.jsonl").exists() else []
        if lines and "eval" in lines[-1] and (method == "untrained" or lines[-1]["step"] == steps):
            found.append((runs.read_json(place / "config.json"), lines))
        else:
            print(f"left out: {place} (not at step {steps})", file=sys.stderr)
    return found


def measure(found: list[tuple[dict, list[dict]]], ways: tuple[str, ...]) -> Measured:
    """All that table and figure say of one row, from the finished runs that it reads."""

    def accuracy(line: dict) -> float:
        return float(np.mean([line["eval"][way]["pass1"] for way in ways]))

    finals = [lines[-1]["eval"] for _, lines in found]
    measured = [[line for line in lines if "eval" in line] for _, lines in found]
    curves = [([line["step"] for line in lines], [accuracy(line) for line in lines]) for lines in measured]
    prompts = found[0][0]["prompts"]  # the same in all runs of a comparison
    halves = [half for _, lines in found for line in lines for half in line.get("halves", {}).values()]
    per_step = [
        sum(half["rollouts"] for half in line["halves"].values()) // config["prompts"]
        for config, lines in found for line in lines if "halves" in line
    ]  # fmt: skip
    return Measured(
        passes=2 if ">" in ways[0] else 1,
        by_seed=[accuracy(lines[-1]) for _, lines in found],
        by_way={way: float(np.mean([final[way]["pass1"] for final in finals])) for way in ways},
        trials=finals[0][ways[0]]["problems"],
        length=float(np.mean([final[way]["length"] for final in finals for way in ways])),
        tokens=sum(half["tokens"] for half in halves) / len(found),
        rollouts=set(per_step),
        seconds=sum(half["sample_seconds"] + half["learn_seconds"] for half in halves) / len(found),
        curve=[(step * prompts, y) for step, y in zip(*mean_curve(curves), strict=True)],
    )


def matrix(folder: Path) -> dict[str, Measured]:
    """The rows for which there are finished runs, in the table's order."""
    found = {method: finished(folder, method) for method in dict.fromkeys(method for method, _, _ in ROWS.values())}
    rows = {row: measure(found[method], ways) for row, (method, ways, _) in ROWS.items() if found[method]}
    if not rows:
        raise UserError(f"{folder} has no finished run of agon.py")
    return rows


# ---------------------------------------------------------------- table and figure


def table(rows: dict[str, Measured]) -> str:
    """The matrix: held-out pass@1 with its interval, by direction and by seed, passes, length, budget, seconds."""
    form = "{:<18}{:>7}  {:<15}{:>7}{:>8}{:>9}{:>13}{:>9}   {:<24}  {}"
    head = ("", "pass@1", "95 % interval", "passes", "length", "tokens", "per problem", "seconds", "by way", "by seed")
    lines = [form.format(*head)]
    for row, m in rows.items():
        low, high = mean_interval(float(np.mean(m.by_seed)), m.trials)
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
                "  ".join(f"{way} {p:.3f}" for way, p in m.by_way.items()),
                " ".join(f"{p:.2f}" for p in m.by_seed),
            )
        )
    return "\n".join(lines)


def draw(rows: dict[str, Measured], path: Path) -> None:
    """agon.png: (a) accuracy against the length of the final answer, (b) accuracy over the problems processed."""
    figure, (against, over) = plt.subplots(1, 2, figsize=(10.5, 5), layout="constrained", width_ratios=(1, 1.3))
    for row, m in rows.items():
        y, style = float(np.mean(m.by_seed)), {"color": ROWS[row][2], "marker": "o" if m.passes == 1 else "s"}
        spread = [[y - min(m.by_seed)], [max(m.by_seed) - y]]
        against.errorbar(m.length, y, spread, **style, ls="", capsize=2, lw=1, alpha=0.85, label=row)
        if len(m.curve) > 1:
            over.plot(*zip(*m.curve, strict=True), **style, ms=4, lw=1.6)
        else:
            over.axhline(y, color=style["color"], ls=":", lw=1.2)
    middle = float(np.mean([m.length for m in rows.values()]))
    low, high = against.get_xlim()
    against.set_xlim(min(low, 0.9 * middle), max(high, 1.1 * middle))  # so that a hair's breadth does not look like a change
    against.set_xlabel("length of the final answer (tokens)"), against.set_ylabel("held-out pass@1")
    against.set_title("(a) after training: mean, lowest and highest seed", fontsize=10)
    over.set_xlabel("problems processed"), over.set_title("(b) over training: mean of the seeds", fontsize=10)
    for axis in (against, over):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, title="circle: one pass, square: two")
    save(figure, path)


READING = """\
A > B: A drafts, B reads the summary and answers. Tokens and seconds are those of training, mean of the seeds. The interval is
that of the problems, the spread of the seeds stands beside it."""
NEXT = """\
next:
  python agon.py --compare --seeds 0 1 2                 every row of the paper's table
  python agon.py --methods cooperative agon              does the competition add to the exchange?
  python agon.py --methods agon --tiebreak 0.5           the density lever: shorter solutions first"""


def finish(folder: Path) -> None:
    """Print the table of a comparison and draw agon.png."""
    rows = matrix(folder)
    print(f"\n{table(rows)}")
    draw(rows, folder / "agon.png")
    print(f"\n{READING}\n\nwritten: {folder}/ (agon.png, and a folder for each run)\n\n{NEXT}")


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
    except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        print(f"agon_report.py: {folder} is not a whole run: {type(error).__name__}: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
