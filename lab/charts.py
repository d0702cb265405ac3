"""The figures of runs and of comparisons, and what both they and the tables of `report.py` read back from a run's files.

`training.png` and `compare.png` have the panels of the Co-RL paper's Figures 2 (a to c), 4 and 5; `agon.png` says what Agon's
Table 3 says. A question without a label counts as not right in label accuracy, and as disagreement in agreement.
"""

import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from lab import portraits, style
from lab.data import WORLDS
from lab.evaluate import mean_interval
from lab.runs import Run, by_topic

LISTENS = {  # whom an agent listens to -> method -> its name
    "listens to a peer": {"corl": "Co-RL", "pooled": "pooled vote", "comas": "CoMAS"},
    "listens to itself": {"ttrl": "TTRL", "corewarding1": "Co-rewarding I", "corewarding2": "Co-rewarding II", "empo": "EMPO",
                          "rent": "RENT", "intuitor": "Intuitor"},
    "listens to labels": {"gt": "ground truth"},
}  # fmt: skip
NAMES = {key: name for group in LISTENS.values() for key, name in group.items()} | {"agon": "Agon", "grpo": "GRPO"}
PAIR = ("A > B", "B > A")
BASES = {"one pass": ("GRPO",), "two passes": ("GRPO, two passes", "cooperative")}  # what a row is held against, seed by seed
ENDS = ("right", "split", "wrong", "under way")
PANELS = {"reward_std": "reward std within a group", "length": "length of a completion (tokens)",
          "label_accuracy": "solid: label is right\ndashed: majorities agree"}  # fmt: skip
FEW, MANY = 4, 10  # so many agents or methods, so many topics, are shown one by one
SMOOTH = 5  # steps of a running mean

# ---------------------------------------------------------------- reading a run back


def parts(line: dict) -> dict[str, dict]:
    """What was trained in a step: of cohort.py the agents, of agon.py the roles, which its adapters play in turn."""
    return line.get("agents") or {name.split()[0]: half for name, half in line.get("halves", {}).items()}


def mean(values: Sequence[float | None]) -> float:
    """The mean of what is known; NaN where nothing is."""
    return float(np.mean([value for value in values if value is not None] or [np.nan]))


def smooth(values: Sequence[float | None]) -> list[float]:
    """Running mean over the last SMOOTH steps; steps without a value are passed over."""
    return [mean(values[max(0, i + 1 - SMOOTH) : i + 1]) for i in range(len(values))]


def problems(line: dict) -> int:
    """How many problems an evaluation had."""
    return line.get("problems") or next(iter(line["eval"].values()))["problems"]


def stuck(run: Run) -> dict[str, list[str]]:
    """agent -> the problems of real data that it gets right in under 10% of samples at the end; {} if too few were drawn."""
    if run.config["data"] in WORLDS or run.config.get("probe_samples", 0) < 8 or len(by_topic(run.measured[-1])) == 1:
        return {}
    return {name: [topic for topic, p in probes.items() if p < 0.1] for name, probes in run.measured[-1]["probes"].items()}


class Side(NamedTuple):
    """One line of a comparison over its seeds: a method of cohort.py, or a method of agon.py in some ways of using it."""

    name: str
    colour: str
    runs: list[Run]
    ways: Sequence[str] | None = None  # names of an evaluation, whose mean is taken; None: all agents

    def score(self, at: int = -1, name: str = "pass1", which: str = "eval") -> list[float]:
        """pass1, majk or length of each seed at an evaluation, by default the last; "eval on DATA" are other problems."""
        return [self.at(run.measured[at], name, which) for run in self.runs]

    def at(self, line: dict, name: str = "pass1", which: str = "eval") -> float:
        """The same on one line."""
        return mean([line[which][way][name] for way in self.ways or line[which]])

    def interval(self) -> tuple[float, float, float]:
        """(mean, low, high) of pass@1 at the end; 95%, of the problems, which all seeds share."""
        middle = mean(self.score())
        return middle, *mean_interval(middle, problems(self.runs[0].measured[-1]))

    def curves(self, name: str) -> list[tuple[list[int], list[float]]]:
        """(steps, values) of each seed: "accuracy" as it was measured, figures of training smoothed."""
        if name == "accuracy":
            return [([line["step"] for line in run.measured], [self.at(line) for line in run.measured]) for run in self.runs]
        return [([line["step"] for line in run.trained], smooth([
            line[name] if name == "agreement" else mean([part[name] for part in parts(line).values()]) for line in run.trained
        ])) for run in self.runs]  # fmt: skip


def evaluations(run: Run) -> list[str]:
    """What a run was measured on: "eval", and "eval on DATA" for each of --eval-data."""
    return [name for name in run.measured[-1] if name.split(" on ")[0] == "eval"]


def mean_curve(seeds: Sequence[tuple[Sequence[int], Sequence[float]]]) -> tuple[list[int], list[float]]:
    """The mean of curves (steps, values), at the steps that all have: a run resumed alone may have been measured once more."""
    known = [dict(zip(*one, strict=True)) for one in seeds]
    shared = [step for step in known[0] if all(step in one for one in known)]
    return shared, [mean([one[step] for one in known]) for step in shared]


def finished(folder: Path, whole: dict, method: str) -> list[Run]:
    """The runs of one method of a comparison that are at their end, one for each seed; others are left out, aloud."""
    found, steps = [], 0 if method == "untrained" else whole["steps"]
    expected = {folder / f"{method}-seed{seed}" for seed in whole.get("seeds") or [whole["seed"]]}
    for place in sorted(expected | set(folder.glob(f"{method}-seed*"))):
        run = Run(place) if (place / "metrics.jsonl").exists() else None
        if run and run.lines and "eval" in run.lines[-1] and run.lines[-1]["step"] == steps:
            found.append(run)
        else:
            at = f"at step {run.lines[-1]['step']}" if run and run.lines else "not begun"
            print(f"left out: {place} ({at}, not at the end of step {steps})", file=sys.stderr)
    return found


def paired(side: Side, base: Side | None) -> list[float]:
    """pass@1 at the end less that of another side, for each seed that both have."""
    if base is None or base.name == side.name:
        return []
    ours, theirs = ({run.config["seed"]: score for run, score in zip(s.runs, s.score(), strict=True)} for s in (side, base))
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


# ---------------------------------------------------------------- figures


def world(config: dict) -> str:
    """What the problems are called."""
    known = {"tiny": "the tiny world", "eyes": "tiny pictures", "tinycode": "the tiny world of code", "sums": "the 64 sums"}
    return known.get(config["data"], Path(config["data"]).name)


def caption(run: Run, seeds: Sequence[int]) -> str:
    """What was run: models, agents, K, seeds, problems x samples, and whether these were trained on."""
    config = run.config
    given = dict.fromkeys(Path(model).name for model in config.get("models") or [config.get("model")] if model)
    size = f"{config['agents']} agents, K = {config['k']}" if "k" in config else f"2 adapters, N = {config['n']}"
    held = "problems that are trained on" if config["data"] == "sums" else "held-out problems"
    tested = f", {problems(run.measured[-1])} {held} x {config['eval_k']} samples" if run.measured else ""
    return f"{', '.join(given) or 'tiny transformers'}; {size}, seed{'s' * (len(seeds) > 1)} {' '.join(map(str, seeds))}{tested}"


def headline(sides: Sequence[Side], told: str) -> str:
    """The title of a comparison: how often its methods are right, the best first; and how to read it."""
    some, ends = sides[0].runs[0], sorted(sides, key=lambda side: -side.interval()[0])
    shown, between = (ends, ", ") if len(ends) <= FEW else ((ends[0], ends[-1]), " to ")
    found = between.join(f"{side.name} {side.interval()[0]:.2f}" for side in shown)
    seeds = sorted({run.config["seed"] for side in sides for run in side.runs})
    steps = max(run.lines[-1]["step"] for side in sides for run in side.runs)
    return f"Right after {steps} steps on {world(some.config)}: {found}\n{caption(some, seeds)}\n{told}"


def steps_axis(axis, title: str, last: int, share: bool = False) -> None:
    """An axis of steps from 0, whole numbers only, and of values from 0; shares go to 1."""
    axis.set_title(title)
    axis.set(xlim=(0, last), ylim=(0, 1.03 if share else 1.08 * max(axis.dataLim.ymax, 1e-9)))
    axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


@style.look()
def draw_training(folder: Path) -> Figure:
    """training.png: accuracy, labels and agreement, reward std, length, entropy, gradient norm over the steps of a run."""
    run = Run(folder)
    config, lines = run.config, [line for line in run.lines if parts(line)]
    steps, last, cohort = [line["step"] for line in lines], run.lines[-1]["step"], "agents" in lines[0]
    trained, measured = list(parts(lines[0])), list(run.measured[-1]["eval"]) if run.measured else []
    colours = dict(zip(dict.fromkeys([*trained, *measured]), itertools.cycle(style.AGENTS), strict=False))
    figure = Figure(figsize=(9, 9), layout="constrained")
    axes = figure.subplot_mosaic("ab;cd;ef", sharex=True)
    for name in measured:
        low, middle, high = ([line["eval"][name][key] for line in run.measured] for key in ("low", "pass1", "high"))
        t = [line["step"] for line in run.measured]
        axes["a"].plot(t, middle, "o-", ms=4, color=colours[name], clip_on=False)
        axes["a"].fill_between(t, low, high, color=colours[name], alpha=0.12, lw=0)
    right, dotted = ("label_accuracy", "labelled") if cohort else ("accuracy", "converted")
    shown = [("b", right, "-"), ("b", dotted, ":")]
    shown += [("c", "reward_std", "-"), ("d", "length", "-"), ("e", "entropy", "-"), ("f", "grad_norm", "-")]
    for name, (panel, key, dash) in itertools.product(trained, shown):
        axes[panel].plot(steps, smooth([parts(line)[name].get(key) for line in lines]), dash, color=colours[name])
    if cohort:
        axes["b"].plot(steps, smooth([line["agreement"] for line in lines]), "--", color=style.BLACK)
    titles = {
        "a": "accuracy (band: 95% interval of the problems)", "c": "reward std within a group", "e": "entropy (nats a token)",
        "b": f"label given to {', '.join(trained)} is right\ndotted: it has a label; dashed: majorities agree" if cohort
        else "right in training\ndotted: right where the draft was wrong", "d": "length of a completion (tokens)",
        "f": "norm of the gradient",
    }  # fmt: skip
    for panel, axis in axes.items():
        steps_axis(axis, titles[panel], last, panel in "ab")
    axes["e"].set_xlabel("step"), axes["f"].set_xlabel("step")
    handles = [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    figure.suptitle(f"{NAMES.get(config['method'], config['method'])} on {world(config)}, seed {config['seed']}\n"
                    f"{caption(run, [config['seed']])}\ncurves of training are means of {SMOOTH} steps")  # fmt: skip
    style.save(figure, folder / "training.png")
    return figure


@style.look()
def draw_comparison(methods: dict[str, Side], path: Path) -> Figure:
    """compare.png. Few methods: the panels of the paper's Figures 4 and 5, and each topic's way, or a map of the problems.

    Many methods: a row for each, and its curve, or its map, in a panel of its own.
    """
    sides, some = list(methods.values()), next(iter(methods.values())).runs[0]
    cells, last = grid(list(by_topic(some.measured[-1]))), some.lines[-1]["step"]
    figure, told = Figure(figsize=(10, 8.8), layout="constrained"), "mean of the agents"
    if len(sides) > FEW:
        left, right = figure.subfigures(1, 2, width_ratios=(1.25, 1))
        others = {"others": {method: "" for method in methods if method not in NAMES}}
        draw_dots(left.subplots(), {group: [methods[method] for method in names if method in methods]
                                    for group, names in (LISTENS | others).items()}, outcomes=True)  # fmt: skip
        panels = list(right.subplots(-(-len(sides) // 2), 2, sharex=True, sharey=True).flat)
        told += "; a dot: a seed; " + ("maps: each problem" if cells is not None else "curves: accuracy, grey: the others")
    else:
        top, bottom = figure.subfigures(2, 1, height_ratios=(1.7, 1))
        ratios = (1, 1.25) if cells is None else (1.6, *[1] * len(sides))
        accuracy, *panels = top.subplots(1, len(ratios), width_ratios=ratios)
        draw_curves(accuracy, sides, "accuracy")
        label_ends(accuracy, sides, last)
        steps_axis(accuracy, "accuracy\n(bar: 95% interval of the problems)", last, True)
        for axis, (name, title) in zip(bottom.subplots(1, 3), PANELS.items(), strict=True):
            draw_curves(axis, sides, name)
            if name == "label_accuracy":
                draw_curves(axis, sides, "agreement", "--")
            steps_axis(axis, title, last, name == "label_accuracy")
            axis.set_xlabel("step")
        told += f"; thin: a seed, bold: the mean of the seeds; curves of training are means of {SMOOTH} steps"
    for axis, side in itertools.zip_longest(panels, sides):
        if side is None:
            axis.set_axis_off()
        elif cells is not None:
            image = draw_map(axis, side, cells)
        elif len(sides) > FEW:
            draw_curves(axis, [side._replace(colour="#cccccc") for side in sides], "accuracy")
            draw_curves(axis, [side], "accuracy")
            steps_axis(axis, side.name, last, True)
        elif axis is not None:
            draw_topics(axis, sides)
    if cells is not None:
        figure.colorbar(image, ax=panels, label="accuracy at the end", location="bottom", aspect=40)
    figure.suptitle(headline(sides, told))
    style.save(figure, path)
    return figure


def draw_curves(axis, sides: Sequence[Side], name: str, dash: str = "-") -> None:
    """A figure over the steps: each seed thin, their mean bold."""
    for side in sides:
        seeds = side.curves(name)
        for seed in seeds:
            axis.plot(*seed, dash, lw=0.7, alpha=0.5, color=side.colour)
        axis.plot(*mean_curve(seeds), dash, lw=2.2, color=side.colour)


def label_ends(axis, sides: Sequence[Side], last: int) -> None:
    """Beside the last step: the interval of the problems for each side, and its name where its curve ends, none over another."""
    height = -1.0
    for i, side in enumerate(sorted(sides, key=Side.interval)):
        middle, *ends = side.interval()
        height = max(middle, height + 0.07)
        axis.plot([last * (1.03 + 0.03 * i)] * 2, ends, color=side.colour, lw=2, clip_on=False)
        axis.text(last * (1.05 + 0.03 * len(sides)), height, side.name, color=side.colour, va="center")


def draw_topics(axis, sides: Sequence[Side]) -> None:
    """Each topic's way from start (open) to end (filled) by agent and method, mean of the seeds; of many, what moved most."""
    topics = list(by_topic(sides[0].runs[0].measured[0]))
    ways = [np.mean([[list(by_topic(run.measured[at]).values()) for at in (0, -1)] for run in side.runs], 0) for side in sides]
    if len({way.shape for way in ways}) > 1:  # methods with other numbers of agents: the mean of each
        ways = [way.mean(-1, keepdims=True) for way in ways]
    ways = np.array(ways).transpose(2, 0, 3, 1)  # [T,S,N,2]
    kept = sorted(np.argsort(-np.abs(ways[..., 1] - ways[..., 0]).sum((1, 2)), kind="stable")[:MANY])
    agents = ways.shape[2]
    for row, t in enumerate(kept):
        heights = row + (np.arange(len(sides) * agents) + 0.5) / (len(sides) * agents) * 0.86 - 0.43
        for y, (i, n) in zip(heights, np.ndindex(len(sides), agents), strict=True):
            look, (start, end) = {"color": sides[i].colour, "clip_on": False, "marker": "o^sDvP"[n % 6]}, ways[t, i, n]
            axis.plot([start, end], [y, y], lw=1.2, color=sides[i].colour)
            axis.plot(start, y, mfc="white", ms=4.5, **look)
            axis.plot(end, y, ms=5.5, **look)
    axis.hlines(np.arange(1, len(kept)) - 0.5, 0, 1, color="#dddddd", lw=0.8)
    axis.set_yticks(range(len(kept)), [topics[t] or "all problems" for t in kept])
    axis.set(xlim=(0, 1), ylim=(len(kept) - 0.5, -0.5), xlabel="accuracy, mean of the seeds")
    words = "circle triangle square diamond".split()
    shapes = ", ".join(f"{name}: {word}" for name, word in zip("ABCD"[:agents], words, strict=False)) if agents > 1 else "mean"
    most = f"\nthe {MANY} of {len(topics)} topics that moved most" if len(topics) > MANY else ""
    axis.set_title(f"open: before, filled: after training\n{shapes}{most}")


def grid(topics: Sequence[str]) -> np.ndarray | None:
    """[T,2]: the two numbers of which each topic is made, as 3 and 8 of "3+8"; large ones by their first digit. Else None."""
    found = [re.fullmatch(r"(\d+)\D+(\d+)", topic) for topic in topics]
    if len(topics) <= MANY or not all(found):
        return None
    numbers = np.array([[int(number) for number in match.groups()] for match in found])
    unit = np.array([10 ** (len(str(most)) - 1) if most > 12 else 1 for most in numbers.max(0)])
    return numbers // unit * unit


def draw_map(axis, side: Side, cells: np.ndarray):
    """Accuracy at the end as a map of first by second number, mean of agents and seeds. Returns the image."""
    p = np.mean([list(by_topic(run.measured[-1]).values()) for run in side.runs], (0, 2))  # [T]
    rows, columns = (np.unique(cells[:, j]) for j in (0, 1))
    image = [[mean(p[(cells == (a, b)).all(1)]) for b in columns] for a in rows]  # NaN, and blank, where there is no problem
    axis.set_title(side.name, color=side.colour)
    axis.set_xticks(range(len(columns)), columns), axis.set_yticks(range(len(rows)), rows)
    return axis.imshow(image, cmap="cividis", vmin=0, vmax=1)


def draw_dots(axis, groups: dict[str, list[Side]], outcomes: bool = False) -> dict[str, int]:
    """A row for each side under its group's name: accuracy before and after, the interval. Returns the height of each."""
    y, heights = 0, {}
    for group, sides in groups.items():
        if sides:
            axis.text(0, y, group, weight="bold", va="center")
        for side in sides:
            y += 1
            look, heights[side.name] = {"color": side.colour, "clip_on": False}, y
            axis.plot(side.interval()[1:], [y, y], lw=2, alpha=0.5, **look)
            axis.plot(side.score(0), [y] * len(side.runs), "o", mfc="white", **look)
            axis.plot(side.score(), [y] * len(side.runs), "o", **look)
            if outcomes:
                found = [row.outcome for run in side.runs for row in portraits.topic_rows(run)]
                axis.text(1.04, y, " / ".join(str(found.count(end)) for end in ENDS), va="center")
        y += bool(sides)
    axis.set_yticks(list(heights.values()), list(heights))
    axis.set(xlim=(0, 1), ylim=(y - 0.5, -0.5), xlabel="accuracy" + f"\nright: topics {' / '.join(ENDS)}" * outcomes,
             title="open: before, filled: after\nline: 95% interval of the problems")  # fmt: skip
    return heights


@style.look()
def draw_paths(left: Run, right: Run, path: Path) -> Figure:
    """paths.png: the same starts under two methods, the measured path of each topic over its method's portrait."""
    figure = Figure(figsize=(15, 8.6), layout="constrained")
    for part, run in zip(figure.subfigures(1, 2), (left, right), strict=True):
        portraits.overlay(run, fig=part)
    style.save(figure, path)
    return figure


@style.look()
def draw_agon(groups: dict[str, list[Side]], path: Path) -> Figure:
    """agon.png: a row for each method, pass@1 with its interval and the differences seed by seed; three ways of learning."""
    sides = {side.name: side for group in groups.values() for side in group}
    figure = Figure(figsize=(10, 9), layout="constrained")
    axes = figure.subplot_mosaic([["rows", "0", "1"], ["way"] * 3], height_ratios=(1.7, 1), width_ratios=(1.5, 1, 1))
    heights = draw_dots(axes["rows"], groups)
    for panel, title in enumerate(("minus GRPO with as\nmany passes, by seed", "minus cooperative,\nby seed")):
        axis = axes[str(panel)]
        for passes, group in groups.items():
            for side in group if panel < len(BASES[passes]) else ():
                if found := paired(side, sides.get(BASES[passes][panel])):
                    axis.plot(found, [heights[side.name]] * len(found), "o", ms=5, color=side.colour)
                    axis.plot(mean(found), heights[side.name], "|", ms=14, mew=2, color=side.colour)
        axis.axvline(0, color=style.BLACK, lw=0.8)
        reach = max(0.05, *np.abs(axis.get_xlim()))
        axis.set(title=title, xlim=(-reach, reach), ylim=axes["rows"].get_ylim(), yticks=[], xlabel="bar: mean")
    drawn = [sides[name] for name in ("GRPO", "cooperative", "Agon") if name in sides] or list(sides.values())
    last, prompts = drawn[0].runs[0].lines[-1]["step"], drawn[0].runs[0].config["prompts"]
    draw_curves(axes["way"], drawn, "accuracy")
    label_ends(axes["way"], drawn, max(last, 1))
    steps_axis(axes["way"], "accuracy (thin: a seed, bold: their mean; bar: 95% interval of the problems)", last, True)
    axes["way"].set_xlabel(f"step, of {prompts} problems each")
    figure.suptitle(headline(drawn, "a dot: a seed; curves: GRPO answers in one pass, the others in two"))
    style.save(figure, path)
    return figure
