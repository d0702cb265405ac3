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
from evaluate import mean_interval
from report import COLOURS, Row, accuracy_title, by_topic, evaluations, hardened, listed, mean_curve, save, smooth, topic_rows
from tasks import UserError

# ---------------------------------------------------------------- reading


def children(folder: Path) -> dict[str, list[Path]]:
    """method -> the finished and evaluated runs of a comparison, one for each seed."""
    whole = runs.read_json(folder / "config.json")
    found: dict[str, list[Path]] = {method: [] for method in whole["compare"]}
    for place in sorted(folder.iterdir()):
        if not (place / "metrics.jsonl").exists():
            continue
        config, lines = runs.read_json(place / "config.json"), runs.read_lines(place / "metrics.jsonl")
        evaluated = len(evaluations(lines)) > 1 and "eval" in lines[-1]
        if evaluated and lines[-1]["step"] == whole["steps"] and config["method"] in found:
            found[config["method"]].append(place)
        else:
            print(f"left out: {place} (not at step {whole['steps']}, or no reference answers)", file=sys.stderr)
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
        print(hardened_table(methods))
    print(f"\nwritten: {folder}/ (compare.png, and a folder for each run)")


def hardened_table(methods: dict[str, list[Path]]) -> str:
    """What each agent of each run has hardened wrong; "" where that cannot be told."""
    lines, width = [], max(map(len, methods))
    for method, places in methods.items():
        for place in places:
            config = runs.read_json(place / "config.json")
            last = evaluations(runs.read_lines(place / "metrics.jsonl"))[-1]
            lines += [
                f"  {method:<{width}}  seed {config['seed']} {name}: {len(found):>2}  {listed(found, last)}"
                for name, found in hardened(last, config["probe_samples"]).items()
            ]
    head = "\nhardened wrong (right in under 10 % of samples), by method, seed and agent:"
    return "\n".join([head, *lines]) if lines else ""


WINDOW = 10  # steps at the beginning and at the end of a run over which its texts are described
COLLAPSE = f"""\
* collapse, of some agent in some seed, from its first {WINDOW} steps to its last {WINDOW}: (a) more than half of its texts are
  cut off, and more than at first; or (b) they are less than a quarter, or more than four times, as long. Low entropy alone
  does not count: a model that has become right is confident too."""


@dataclass(frozen=True)
class Compared:
    """One method of a comparison, over its seeds."""

    before: list[float]  # accuracy, one for each seed
    after: list[float]
    majk: list[float]  # maj@k before and after, mean of agents and seeds
    problems: int  # held out: the same for every agent and seed, so they are not independent trials
    outcomes: list[str]  # of every topic and seed
    told: int  # topics and seeds of which the theory said how they end
    misses: list[str]  # those that ended otherwise
    tokens: int
    texts: dict[str, float]  # figures of the texts in the last steps, mean of agents and seeds
    collapsed: bool


def summarize(places: Sequence[Path]) -> Compared:
    """What is read from the runs of one method."""
    before, after, majk, outcomes, told, misses, tokens, texts, collapsed = [], [], [], [], 0, [], 0, [], False
    for place in places:
        config, record = runs.read_json(place / "config.json"), runs.read_lines(place / "metrics.jsonl")
        first, *_, last = evaluations(record)
        steps = [line["agents"] for line in record if "agents" in line]
        before.append(mean_of(first, "pass1"))
        after.append(mean_of(last, "pass1"))
        majk.append([mean_of(line, "majk") for line in (first, last)])
        rows = topic_rows(config, [first, last])
        outcomes += [row.outcome for row in rows]
        told += sum(row.told for row in rows)
        misses += [miss(row, config) for row in rows if row.told and row.forecast != row.outcome]
        tokens += sum(agent["tokens"] for agents in steps for agent in agents.values())
        for name in config["agent_names"]:
            began, ended = (text_means([agents[name] for agents in part]) for part in (steps[:WINDOW], steps[-WINDOW:]))
            texts.append(ended)
            collapsed |= degenerate(began, ended)
    mean = {name: float(np.mean([one[name] for one in texts])) for name in TEXTS}
    return Compared(
        before, after, list(np.mean(majk, 0)), last["problems"], outcomes, told, misses, tokens, mean, collapsed
    )


def miss(row: Row, config: dict) -> str:
    """A topic that did not end as the theory said, in a line."""
    start, end = (", ".join(f"{p:.2f}" for p in point) for point in (row.start, row.end))
    return (
        f"{config['method']}, seed {config['seed']}, {row.topic}: ({start}) -> ({end}), forecast {row.forecast}, "
        f"ended {row.outcome}"
    )


TEXTS = {"reward_std": "reward std", "length": "length", "truncated": "cut off", "entropy": "entropy"}


def text_means(steps: Sequence[dict]) -> dict[str, float]:
    """The means of one agent's TEXTS over some steps."""
    return {name: float(np.mean([step[name] for step in steps])) for name in TEXTS}


def degenerate(began: dict[str, float], ended: dict[str, float]) -> bool:
    """Whether an agent's texts have collapsed, as COLLAPSE explains it; from their means in the first and last steps."""
    cut_off = ended["truncated"] > max(0.5, began["truncated"])
    return cut_off or not began["length"] / 4 <= ended["length"] <= began["length"] * 4


def comparison_table(methods: dict[str, list[Path]]) -> str:
    """Two tables with a line for each method: how often it is right, and what its texts are like at the end of training."""
    found = {method: summarize(places) for method, places in methods.items()}
    marked = {method + " *" * one.collapsed: one for method, one in found.items()}
    width = max(10, *(len(name) + 1 for name in marked))
    collapsed = [method for method, one in found.items() if one.collapsed]
    return "\n".join(
        [
            *accuracy_lines(marked, width),
            *(f"  not as forecast: {line}" for one in found.values() for line in one.misses),
            "",
            *texts_lines(marked, width),
            COLLAPSE,
            f"  Here: {', '.join(collapsed) or 'none'}.",
        ]
    )


def accuracy_lines(found: dict[str, Compared], width: int) -> list[str]:
    """Mean accuracy before and after, its interval over all seeds, ends of topics, forecasts, and the tokens written."""
    seeds = max(15, *(5 * len(one.after) for one in found.values()))
    form = f"{{:<{width}}}{{:>7}}{{:>7}}  {{:<15}}{{:<{seeds}}}  {{:<13}}{{:>6}}{{:>6}}{{:>6}}  {{:<11}}{{:>9}}"
    head = ("method", "before", "after", "95 % interval", "by seed", "maj@k", "right", "split", "wrong", "forecasts", "tokens")
    lines = [form.format(*head)]
    for method, one in found.items():
        low, high = mean_interval(float(np.mean(one.after)), one.problems)
        lines.append(
            form.format(
                method,
                f"{np.mean(one.before):.3f}",
                f"{np.mean(one.after):.3f}",
                f"({low:.3f}, {high:.3f})",
                " ".join(f"{a:.2f}" for a in one.after),
                "{:.2f} to {:.2f}".format(*one.majk),
                *(one.outcomes.count(name) for name in ("right", "split", "wrong")),
                f"{one.told - len(one.misses)} of {one.told}" if one.told else "-",
                f"{one.tokens / 1e6:.2f} M",
            )
        )
    return lines


def texts_lines(found: dict[str, Compared], width: int) -> list[str]:
    """Reward std within groups, length, share cut off and entropy of what was written in the last steps."""
    form = f"{{:<{width}}}{{:>11}}{{:>9}}{{:>9}}{{:>9}}   {{}}"
    lines = [form.format("method", *TEXTS.values(), f"(training, last {WINDOW} steps)").rstrip()]
    for method, one in found.items():
        std, length, cut_off, entropy = (one.texts[name] for name in TEXTS)
        lines.append(form.format(method, f"{std:.3f}", f"{length:.1f}", f"{cut_off:.2f}", f"{entropy:.3f}", "").rstrip())
    return lines


def mean_of(line: dict, name: str) -> float:
    """pass1 or majk on an evaluated line, mean of the agents."""
    return float(np.mean([e[name] for e in line["eval"].values()]))


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
        topics = list(by_topic(evaluations(records[0])[-1]))
        draw_curves(axes, records, style(i))
        if len(topics) <= FEW:
            draw_topics(axes["topics"], records, i, len(methods))
        else:
            draw_problems(axes["topics"], records, style(i))
    if len(topics) <= FEW:
        name_topics(axes["topics"], topics)
    for name, title in {
        "accuracy": f"{accuracy_title(runs.read_json(places[0] / 'config.json')['data'])}, mean of the agents",
        "topics": f"final accuracy by topic (a {'dot' if len(topics) <= FEW else 'line'}: one agent, one seed)",
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
        curves["accuracy"].append(([m["step"] for m in measured], [mean_of(m, "pass1") for m in measured]))
        for name in ("length", "entropy"):
            values = [np.mean([agent[name] for agent in line["agents"].values()]) for line in steps]
            curves[name].append(([line["step"] for line in steps], smooth(values)))
    for name, seeds in curves.items():
        for x, y in seeds:
            axes[name].plot(x, y, lw=0.7, alpha=0.5, **look)
        axes[name].plot(*mean_curve(seeds), lw=2.2, **look)


FEW = 10  # so many topics are shown one by one


def draw_topics(axis, records: Sequence[list[dict]], i: int, methods: int) -> None:
    """Final accuracies of method i of so many: a dot for each topic, agent and seed; a topic's methods side by side."""
    x = (i - (methods - 1) / 2) * 0.8 / methods
    for record in records:
        for topic, p in enumerate(by_topic(evaluations(record)[-1]).values()):
            axis.plot([topic + x] * len(p), p, "o^"[i // 7 % 2], ms=4, color=style(i)["color"], alpha=0.6, mew=0)


def name_topics(axis, topics: Sequence[str]) -> None:
    """The topics along the axis, and lines between them."""
    axis.set_xticks(range(len(topics)), topics, rotation=20, fontsize=9)
    for i in range(1, len(topics)):
        axis.axvline(i - 0.5, color="#cccccc", lw=0.8)


def draw_problems(axis, records: Sequence[list[dict]], look: dict) -> None:
    """One method's final accuracies, sorted, a line for each agent and seed: where it leaves 0 is how many hardened wrong."""
    for record in records:
        p = np.array(list(by_topic(evaluations(record)[-1]).values()))  # [T,N]
        axis.plot(np.arange(1, len(p) + 1), np.sort(p, 0), lw=1.3, alpha=0.6, drawstyle="steps-mid", **look)
    axis.set_xscale("log", subs=[])
    ticks = [n * 10**d for d in range(5) for n in (1, 2, 5)]
    axis.set_xticks([tick for tick in ticks if tick <= len(p)])
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.set_xlabel(f"rank of the topic, of {len(p)} (1: the one most often wrong)")
