"""What a comparison of methods tells its reader: two tables and compare.png, read back from the files of its runs.

    python report.py runs/compare-001       # the same again

How often each method is right stands beside what its texts are like at the end, so that one whose texts degenerate shows it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import runs
from evaluate import clopper_pearson
from report import COLOURS, by_topic, evaluations, hardened, save, smooth, topic_rows
from tasks import UserError

# ---------------------------------------------------------------- reading


def children(folder: Path) -> dict[str, list[Path]]:
    """method -> the finished and evaluated runs of a comparison, one for each seed."""
    order = runs.read_json(folder / "config.json")["compare"]
    found: dict[str, list[Path]] = {method: [] for method in order}
    for place in sorted(folder.iterdir()):
        if not (place / "metrics.jsonl").exists():
            continue
        config, lines = runs.read_json(place / "config.json"), runs.read_lines(place / "metrics.jsonl")
        if len(evaluations(lines)) > 1 and lines[-1]["step"] == config["steps"] and config["method"] in found:
            found[config["method"]].append(place)
        else:
            print(f"left out: {place} (not finished, or its problems have no reference answers)", file=sys.stderr)
    if not any(found.values()):
        raise UserError(f"{folder} has no finished run with an evaluation, so there is nothing to compare")
    return {method: places for method, places in found.items() if places}


# ---------------------------------------------------------------- text


def finish_comparison(folder: Path) -> None:
    """Print the tables of a comparison and draw compare.png."""
    methods = children(folder)
    print(f"\n{comparison_table(methods)}")
    draw_comparison(methods, folder / "compare.png")
    if runs.read_json(folder / "config.json")["data"] != "tiny":
        print(f"\n{hardened_table(methods)}")
    print(f"\nwritten: {folder}/ (compare.png, and a folder for each run)")


def hardened_table(methods: dict[str, list[Path]]) -> str:
    """What each agent of each run has hardened wrong."""
    lines, width = ["hardened wrong (right in under 10 % of samples), by method, seed and agent:"], max(map(len, methods))
    for method, places in methods.items():
        for place in places:
            seed = runs.read_json(place / "config.json")["seed"]
            last = evaluations(runs.read_lines(place / "metrics.jsonl"))[-1]
            lines += [
                f"  {method:<{width}}  seed {seed} {name}: {len(found):>2}  {' '.join(found)}"
                for name, found in hardened(last).items()
            ]
    return "\n".join(lines)


WINDOW = 10  # steps at the beginning and at the end of a run over which its texts are described
COLLAPSE = f"""\
* collapse, in some seed: of the texts of an agent more than half were cut off in the last {WINDOW} steps (and more than in the
  first {WINDOW}), or they were less than a quarter, or more than four times, as long as in the first. Low entropy alone is
  none: who is right is sure as well."""


@dataclass(frozen=True)
class Compared:
    """One method of a comparison, over its seeds."""

    before: list[float]  # accuracy, one for each seed
    after: list[float]
    problems: int  # held out: the same for every agent and seed, so they are not independent trials
    outcomes: list[str]  # of every topic and seed
    hits: list[bool]  # whether a forecast came true
    tokens: int
    texts: dict[str, float]  # figures of the texts in the last steps, mean of agents and seeds
    collapsed: bool


def compared(places: Sequence[Path]) -> Compared:
    """What is read from the runs of one method."""
    before, after, outcomes, hits, tokens, texts, collapsed = [], [], [], [], 0, [], False
    for place in places:
        config, record = runs.read_json(place / "config.json"), runs.read_lines(place / "metrics.jsonl")
        first, *_, last = evaluations(record)
        steps = [line["agents"] for line in record if "agents" in line]
        before.append(mean_accuracy(first))
        after.append(mean_accuracy(last))
        rows = topic_rows(config, [first, last])
        outcomes += [row[4] for row in rows]
        hits += [row[3] == row[4] for row in rows if row[3] in ("right", "wrong", "split")]
        tokens += sum(agent["tokens"] for agents in steps for agent in agents.values())
        for name in config["agent_names"]:
            began, ended = (figures([agents[name] for agents in part]) for part in (steps[:WINDOW], steps[-WINDOW:]))
            texts.append(ended)
            collapsed |= degenerate(began, ended)
    mean = {name: float(np.mean([figure[name] for figure in texts])) for name in FIGURES}
    return Compared(before, after, last["problems"], outcomes, hits, tokens, mean, collapsed)


FIGURES = {"reward_std": "reward std", "length": "length", "truncated": "cut off", "entropy": "entropy"}


def figures(steps: Sequence[dict]) -> dict[str, float]:
    """The means of one agent's FIGURES over some steps."""
    return {name: float(np.mean([step[name] for step in steps])) for name in FIGURES}


def degenerate(began: dict[str, float], ended: dict[str, float]) -> bool:
    """Whether an agent's texts have collapsed, as COLLAPSE explains it; from their figures in the first and last steps."""
    cut_off = ended["truncated"] > max(0.5, began["truncated"])
    return cut_off or not began["length"] / 4 <= ended["length"] <= began["length"] * 4


def comparison_table(methods: dict[str, list[Path]]) -> str:
    """Two tables with a line for each method: how often it is right, and what its texts are like at the end of training."""
    found = {method: compared(places) for method, places in methods.items()}
    marked = {method + " *" * one.collapsed: one for method, one in found.items()}
    width = max(10, *(len(name) + 1 for name in marked))
    collapsed = [method for method, one in found.items() if one.collapsed]
    return "\n".join(
        [
            *accuracy_lines(marked, width),
            "",
            *texts_lines(marked, width),
            COLLAPSE,
            f"  Here: {', '.join(collapsed) or 'none'}.",
        ]
    )


def accuracy_lines(found: dict[str, Compared], width: int) -> list[str]:
    """Mean accuracy before and after, its interval over all seeds, ends of topics, forecasts, and the tokens written."""
    seeds = max(15, *(5 * len(one.after) for one in found.values()))
    form = f"{{:<{width}}}{{:>7}}{{:>7}}  {{:<15}}{{:<{seeds}}}  {{:>6}}{{:>6}}{{:>6}}  {{:<11}}{{:>9}}"
    head = ("method", "before", "after", "95 % interval", "by seed", "right", "split", "wrong", "forecasts", "tokens")
    lines = [form.format(*head)]
    for method, one in found.items():
        low, high = clopper_pearson(round(float(np.mean(one.after)) * one.problems), one.problems)
        lines.append(
            form.format(
                method,
                f"{np.mean(one.before):.3f}",
                f"{np.mean(one.after):.3f}",
                f"({low:.3f}, {high:.3f})",
                " ".join(f"{a:.2f}" for a in one.after),
                *(one.outcomes.count(name) for name in ("right", "split", "wrong")),
                f"{sum(one.hits)} of {len(one.hits)}" if one.hits else "-",
                f"{one.tokens / 1e6:.2f} M",
            )
        )
    return lines


def texts_lines(found: dict[str, Compared], width: int) -> list[str]:
    """Reward std within groups, length, share cut off and entropy of what was written in the last steps."""
    form = f"{{:<{width}}}{{:>11}}{{:>9}}{{:>9}}{{:>9}}   {{}}"
    lines = [form.format("method", *FIGURES.values(), f"(training, last {WINDOW} steps)").rstrip()]
    for method, one in found.items():
        std, length, cut_off, entropy = (one.texts[name] for name in FIGURES)
        lines.append(form.format(method, f"{std:.3f}", f"{length:.1f}", f"{cut_off:.2f}", f"{entropy:.3f}", "").rstrip())
    return lines


def mean_accuracy(line: dict) -> float:
    """pass@1 on an evaluated line, mean of the agents."""
    return float(np.mean([e["pass1"] for e in line["eval"].values()]))


# ---------------------------------------------------------------- the figure


def style(i: int) -> dict:
    """Colour and dash of method number i: 14 of them can be told apart."""
    return {"color": COLOURS[i % 7], "ls": ("-", (0, (4, 1.5)))[i // 7 % 2]}


def draw_comparison(methods: dict[str, list[Path]], path: Path) -> None:
    """compare.png: accuracy over the steps, final accuracy by topic, length and entropy of the texts in training."""
    figure, axes = plt.subplot_mosaic(
        [["accuracy", "topics"], ["length", "entropy"]],
        figsize=(10, 6.2),
        layout="constrained",
        width_ratios=(1, 1.3),
        height_ratios=(1.6, 1),
    )
    for i, places in enumerate(methods.values()):
        records = [runs.read_lines(place / "metrics.jsonl") for place in places]
        draw_curves(axes, records, style(i))
        draw_final(axes["topics"], records, i, len(methods))
    name_topics(axes["topics"], list(by_topic(evaluations(records[0])[-1])))
    for name, title in {
        "accuracy": "held-out pass@1, mean of the agents",
        "topics": "final accuracy by topic (a dot: one agent, one seed)",
        "length": "length of the texts in training (tokens)",
        "entropy": "their entropy (nats a token)",
    }.items():
        axes[name].set_title(title, fontsize=10)
        axes[name].grid(alpha=0.3)
    for name in ("accuracy", "topics"):
        axes[name].set_ylim(-0.03, 1.03)
    for name in ("accuracy", "length", "entropy"):
        axes[name].set_xlabel("step")
    for name in ("length", "entropy"):
        axes[name].set_ylim(0, 1.05 * axes[name].dataLim.ymax or 1)
    handles = [plt.Line2D([], [], lw=2.2, label=method, **style(i)) for i, method in enumerate(methods)]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(methods)), frameon=False)
    save(figure, path)


def draw_curves(axes: dict, records: Sequence[list[dict]], look: dict) -> None:
    """One method's accuracy, length and entropy: a thin line a seed, a bold one for their mean."""
    curves: dict[str, list] = {"accuracy": [], "length": [], "entropy": []}
    for record in records:
        measured, steps = evaluations(record), [line for line in record if "agents" in line]
        curves["accuracy"].append(([m["step"] for m in measured], [mean_accuracy(m) for m in measured]))
        for name in ("length", "entropy"):
            values = [np.mean([agent[name] for agent in line["agents"].values()]) for line in steps]
            curves[name].append(([line["step"] for line in steps], smooth(values)))
    for name, seeds in curves.items():
        for x, y in seeds:
            axes[name].plot(x, y, lw=0.7, alpha=0.5, **look)
        axes[name].plot(seeds[0][0], np.mean([y for _, y in seeds], 0), lw=2.2, **look)


def draw_final(axis, records: Sequence[list[dict]], i: int, methods: int) -> None:
    """Final accuracies of method i of so many: a dot for each topic, agent and seed; a topic's methods side by side."""
    x = (i - (methods - 1) / 2) * 0.8 / methods
    for record in records:
        for topic, p in enumerate(by_topic(evaluations(record)[-1]).values()):
            axis.plot([topic + x] * len(p), p, "o^"[i // 7 % 2], ms=4, color=style(i)["color"], alpha=0.6, mew=0)


def name_topics(axis, topics: Sequence[str]) -> None:
    """The topics (of real data: the problems) along the axis, and lines between a few of them."""
    few = len(topics) < 10
    axis.set_xticks(range(len(topics)), topics, rotation=20 if few else 90, fontsize=9 if few else 5)
    if few:
        for i in range(1, len(topics)):
            axis.axvline(i - 0.5, color="#cccccc", lw=0.8)
