"""What a run tells its reader: closing tables and figures, all read back from the files of a run or of a comparison.

    python -m lab.report runs/corl-001             # a run of cohort.py: its table, training.png, overlay.png for two agents
    python -m lab.report runs/compare-001          # methods of cohort.py side by side: their tables and compare.png
    python -m lab.report runs/agon-001             # methods of agon.py: the rows of the paper's Table 3, and agon.png
    python -m lab.report runs/agon-001/agon-seed0  # one of these methods: its table and training.png

`training.png` and `compare.png` have the panels of the Co-RL paper's Figures 2 (a to c), 4 and 5. What is printed is also
kept as table.txt. A question without a label counts as not right in label accuracy, and as disagreement in agreement.
"""

import argparse
import itertools
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from lab import portraits, runs, style
from lab.data import UserError
from lab.evaluate import mean_interval
from lab.runs import Run, by_topic
from rewards import REWARDS

LISTENS = {  # whom an agent listens to -> method -> its name
    "listens to a peer": {"corl": "Co-RL", "pooled": "pooled vote", "comas": "CoMAS"},
    "listens to itself": {"ttrl": "TTRL", "corewarding1": "Co-rewarding I", "corewarding2": "Co-rewarding II", "empo": "EMPO",
                          "rent": "RENT", "intuitor": "Intuitor"},
    "listens to labels": {"gt": "ground truth"},
}  # fmt: skip
NAMES = {key: name for group in LISTENS.values() for key, name in group.items()} | {"agon": "Agon", "grpo": "GRPO"}
PAIR = ("A > B", "B > A")
ROWS = {  # Agon: passes -> row -> (run that is read, ways of using it, whose mean is taken, its colour)
    "one pass": {
        "zero-shot": ("untrained", ("A",), style.GREY),
        "GRPO": ("grpo", ("A",), style.BLACK),
        "shared opponent": ("shared", ("A", "B"), style.GREY),
        "Agon, one pass": ("agon", ("A", "B"), style.GREY),
    },
    "two passes": {
        "untrained pair": ("untrained", PAIR, style.GREY),
        "GRPO, two passes": ("grpo", ("A > A",), style.GREY),
        "self-refinement": ("self-refine", ("A > A",), style.GREY),
        "margin": ("margin", PAIR, style.GREY),
        "cooperative": ("cooperative", PAIR, style.BLUE),
        "Agon": ("agon", PAIR, style.ORANGE),
    },
}
BASES = {"one pass": ("GRPO",), "two passes": ("GRPO, two passes", "cooperative")}  # what a row is held against, seed by seed
ENDS = ("right", "split", "wrong", "under way")
LATE = {"label_accuracy": ("label right", ".2f"), "labelled": ("labelled", ".2f"), "reward_std": ("reward std", ".3f"),
        "length": ("length", ".1f"), "truncated": ("cut off", ".2f"), "entropy": ("entropy", ".3f")}  # fmt: skip
PANELS = {"reward_std": "reward std within a group", "length": "length of a completion (tokens)",
          "label_accuracy": "solid: label is right\ndashed: majorities agree"}  # fmt: skip
FEW, MANY = 4, 10  # so many agents or methods, so many topics, are shown one by one
SMOOTH, LAST = 5, 10  # steps of a running mean; steps at the end of training that a table describes

# ---------------------------------------------------------------- text


def exchanges(seen: Sequence[tuple], drafter: str, reader: str, width: int = 38) -> str:
    """Agon's exchanges side by side: left the draft, right what the challenger was given, below its solution."""

    def column(title: str, text: str) -> list[str]:
        return [title, *(part for line in text.splitlines() for part in textwrap.wrap(line, width) or [""])]

    blocks = []
    for problem, draft, prompt, solution in seen:
        given = column(f"what {reader} is given", prompt)
        both = itertools.zip_longest(column(f"draft of {drafter}", draft), given, fillvalue="")
        head, end = f"{problem.question}  (reference answer {problem.answer})", f"solution of {reader}: {solution}"
        blocks.append("\n".join([head, *(f"{left:<{width}} | {right}" for left, right in both), end]))
    return f"\n{'-' * (2 * width + 3)}\n".join(["", *blocks, ""])


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the head first, as a table: columns of numbers to the right, of words to the left."""
    columns = list(zip(*rows, strict=True))
    sides = [">" if all(cell[-1:].isdigit() or cell in "-" for cell in column[1:]) else "<" for column in columns]
    forms = [f"{{:{side}{max(map(len, column))}}}" for side, column in zip(sides, columns, strict=True)]
    return "\n".join("  ".join(form.format(cell) for form, cell in zip(forms, row, strict=True)).rstrip() for row in rows)


def by_seed(values: Sequence[float]) -> str:
    """The figure of each seed; of more than three seeds the lowest and the highest."""
    few = len(values) < FEW
    return (" " if few else " to ").join(f"{value:.2f}" for value in (values if few else (min(values), max(values))))


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
    if run.config["data"] == "tiny" or run.config.get("probe_samples", 0) < 8 or len(by_topic(run.measured[-1])) == 1:
        return {}
    return {name: [topic for topic, p in probes.items() if p < 0.1] for name, probes in run.measured[-1]["probes"].items()}


class Side(NamedTuple):
    """One line of a comparison over its seeds: a method of cohort.py, or a method of agon.py in some ways of using it."""

    name: str
    colour: str
    runs: list[Run]
    ways: Sequence[str] | None = None  # names of an evaluation, whose mean is taken; None: all agents

    def score(self, at: int = -1, name: str = "pass1") -> list[float]:
        """pass1, majk or length of each seed at an evaluation, by default the last."""
        return [self.at(run.measured[at], name) for run in self.runs]

    def at(self, line: dict, name: str = "pass1") -> float:
        """The same on one line."""
        return mean([line["eval"][way][name] for way in self.ways or line["eval"]])

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


# ---------------------------------------------------------------- one run


def report_run(folder: Path) -> str:
    """Draw the figures of a run; its closing table."""
    run = Run(folder)
    if not run.lines:
        raise UserError(f"{folder} has no step yet, so there is nothing to show")
    measured, last, text = run.measured, run.lines[-1]["step"], []
    if measured:
        cohort = "probes" in measured[0]
        text.append(topic_table(run) if cohort and run.config["data"] == "tiny" else accuracy_table(run))
        if measured[-1]["step"] < last:
            text.append(f"after: at step {measured[-1]['step']}; the run stopped at step {last}, and was not evaluated there")
        if cohort and len(measured) > 1 and len(measured[0]["probes"]) == 2:
            with style.look():
                style.save(portraits.overlay(run), folder / "overlay.png")
    if taken := [part for line in run.lines for part in parts(line).values()]:
        draw_training(folder)
        seconds, tokens = sum(line.get("seconds", 0) for line in run.lines), sum(part["tokens"] for part in taken)
        took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        text.append(f"{last} steps took {took}, evaluations not counted, and wrote {tokens / 1e6:.2f} M tokens")
    return "\n".join(text)


def topic_table(run: Run) -> str:
    """Each topic's accuracy before and after, forecast and outcome; how many forecasts came true; how sure the numbers are."""
    config, rows, samples = run.config, portraits.topic_rows(run), max(1, run.config["probe_samples"])
    names, first, last = config["agent_names"], run.measured[0], run.measured[-1]
    said = any(row.forecast for row in rows)
    peer = said and len(names) == 2 and REWARDS[config["method"]].theory == "corl"
    apart = peer and any(row.omega != 1 for row in rows)  # some wrong answers of the two differ
    arrow, shown = " -> " if len(names) < FEW else "->", names if len(names) <= FEW else ["mean of the agents"]

    def ways(start: Sequence[float], end: Sequence[float]) -> list[str]:
        points = zip(start, end, strict=True) if shown is names else [(mean(start), mean(end))]
        return [f"{a:.2f}{arrow}{b:.2f}" for a, b in points]

    cells = [["topic", *shown, *["p_A + p_B"] * peer, *["omega"] * apart, *["forecast"] * said, "outcome"]]
    for row in rows:
        theory = [f"{sum(row.start):.2f}"] * peer + [f"{row.omega:.2f}"] * apart + [row.forecast or "-"] * said
        cells.append([row.topic, *ways(row.start, row.end), *theory, row.outcome])
    means = ways(*([line["eval"][name]["pass1"] for name in names] for line in (first, last)))
    cells.append(["mean", *means, *[""] * (peer + apart + said + 1)])
    intervals = ", ".join(f"{name} ({last['eval'][name]['low']:.2f}, {last['eval'][name]['high']:.2f})" for name in names)
    return "\n".join([
        f"right answers by topic, before -> after {last['step']} steps of {NAMES.get(config['method'], config['method'])}",
        align(cells),
        *filter(None, [portraits.score(rows)]),
        f"of a topic: {samples} samples, standard error at most {0.5 / samples**0.5:.2f}",
        *textwrap.wrap(f"mean after, 95% interval of the {problems(last)} problems: {intervals}", 80),
    ])  # fmt: skip


def accuracy_table(run: Run) -> str:
    """pass@1 with its interval, maj@k and lengths, before and after; and on what an agent is stuck."""
    cells = [["", "", "pass@1", "95% interval", "maj@k", "length", "cut off"]]
    for name in run.measured[-1]["eval"]:  # of agon.py the start is measured in more ways
        for when, line in list(zip(("before", "after"), (run.measured[0], run.measured[-1]), strict=True))[: len(run.measured)]:
            e = line["eval"][name]
            figures = f"{e['majk']:.3f}" if "majk" in e else "-", f"{e['length']:.1f}", f"{e['truncated']:.2f}"
            cells.append([name, when, f"{e['pass1']:.3f}", f"({e['low']:.3f}, {e['high']:.3f})", *figures])
    text = [align(cells), f"interval: of the {problems(run.measured[0])} problems"]
    for name, found in stuck(run).items():
        which = f"{len(found)} of {len(by_topic(run.measured[0]))} problems: {', '.join(found) or 'none'}"
        text += textwrap.wrap(f"{name} is right in under 10% of samples of {which}", 80)
    return "\n".join(text)


# ---------------------------------------------------------------- methods side by side


def report_comparison(folder: Path, whole: dict) -> str:
    """Draw compare.png; the tables of a comparison of cohort.py."""
    done = {method: found for method in whole["compare"] if (found := finished(folder, whole, method))}
    if not done:
        raise UserError(f"{folder} has no finished run with an evaluation, so there is nothing to compare")
    sides = {method: Side(NAMES.get(method, method), style.METHODS.get(method, style.GREY), members)
             for method, members in done.items()}  # fmt: skip
    draw_comparison(sides, folder / "compare.png")
    return comparison_tables(list(sides.values()))


def comparison_tables(sides: Sequence[Side]) -> str:
    """How often each method is right; where its topics end, and whether as forecast; its completions in the last steps."""
    some = sides[0].runs[0]
    held = bool(stuck(some))
    rows = {side.name: [(run, row) for run in side.runs for row in portraits.topic_rows(run)] for side in sides}
    said, misses = any(row.forecast for found in rows.values() for _, row in found), []
    right = [["method", "before", "after", "95% interval", "by seed", "maj@k", "tokens"]]
    ends = [["method", *ENDS, *["forecasts", "staying put"] * said, *["stuck, by seed and agent"] * held]]
    late = [["method", *(head for head, _ in LATE.values())]]
    for side in sides:
        after, low, high = side.interval()
        tokens = sum(part["tokens"] for run in side.runs for line in run.trained for part in parts(line).values())
        right.append([side.name, f"{mean(side.score(0)):.3f}", f"{after:.3f}", f"({low:.3f}, {high:.3f})", by_seed(side.score()),
                      f"{mean(side.score(name='majk')):.2f}", f"{tokens / 1e6:.2f} M"])  # fmt: skip
        outcomes = [row.outcome for _, row in rows[side.name]]
        called = [row for _, row in rows[side.name] if row.hit is not None]
        true = [row.hit for row in called], [row.stays == row.outcome for row in called]
        counts = [f"{sum(found)} of {len(called)}" if called else "-" for found in true]
        wrong = " ".join(str(len(found)) for run in side.runs for found in stuck(run).values())
        ends.append([side.name, *(str(outcomes.count(end)) for end in ENDS), *counts * said, *[wrong] * held])
        for run, row in rows[side.name]:
            if row.hit is False:
                way = " -> ".join(", ".join(f"{p:.2f}" for p in point) for point in (row.start, row.end))
                misses.append(f"  {side.name}, seed {run.config['seed']}, {row.topic}: {way}, not {row.forecast}")
        steps = [part for run in side.runs for line in run.trained[-LAST:] for part in parts(line).values()]
        figures = [f"{mean([step[key] for step in steps]):{form}}" for key, (_, form) in LATE.items()]
        late.append([side.name, *("-" if figure == "nan" else figure for figure in figures)])
    return "\n".join([
        align(right),
        f"interval: of the {problems(some.measured[-1])} problems, the same for all; by seed: the chance in training",
        f"\nwhere {len(by_topic(some.measured[0]))} topics x {len(sides[0].runs)} seeds ended",
        align(ends),
        "right, wrong: every agent above 0.8, below 0.2; split: some above and some below",
        *["not as forecast:", *misses] * bool(misses),
        f"\nin training, mean of the last {LAST} steps; a question without a label is not right",
        align(late),
    ])  # fmt: skip


def report_agon(folder: Path, whole: dict) -> str:
    """Draw agon.png; the matrix of methods: held-out pass@1, length, budget, seconds, and differences seed by seed."""
    done = {method: finished(folder, whole, method) for method in ("untrained", *whole["rows"])}
    groups = {passes: [Side(name, colour, found, ways) for name, (method, ways, colour) in rows.items()
                       if (found := done.get(method))] for passes, rows in ROWS.items()}  # fmt: skip
    sides = {side.name: side for group in groups.values() for side in group}
    if not sides:
        raise UserError(f"{folder} has no finished run of agon.py")
    results = [["", "pass@1", "95% interval", "length", "tokens", "rollouts", "seconds"]]
    spread = [["", "by way of using it", "by seed", "vs GRPO", "vs coop."]]
    for passes, group in groups.items():
        for side in group:
            steps = [part for run in side.runs for line in run.lines for part in parts(line).values()]
            tokens, rollouts = (sum(part[key] for part in steps) / len(side.runs) for key in ("tokens", "rollouts"))
            seconds = sum(line.get("seconds", 0) for run in side.runs for line in run.lines) / len(side.runs)
            asked = whole["steps"] * whole["prompts"]  # problems, by each seed
            budget = [f"{tokens / 1e6:.2f} M", f"{rollouts / asked:.0f}", f"{seconds:.0f}"] if steps else "---"
            after, low, high = side.interval()
            length = mean(side.score(name="length"))
            results.append([side.name, f"{after:.3f}", f"({low:.3f}, {high:.3f})", f"{length:.1f}", *budget])
            way = ", ".join(f"{way} {mean(side._replace(ways=[way]).score()):.3f}" for way in side.ways)
            found = [paired(side, sides.get(base)) for base in BASES[passes]]
            less = [f"{mean(differences):+.3f}" if differences else "-" for differences in [*found, []][:2]]
            spread.append([side.name, way, by_seed(side.score()), *less])
    draw_agon(groups, folder / "agon.png")
    return "\n".join([
        align(results), "interval: of the problems; rollouts: for each; tokens and seconds: of training",
        "", align(spread), "A > B: A drafts, B reads the summary and answers",
        "vs: mean of the differences seed by seed; to GRPO with as many passes",
    ])  # fmt: skip


def paired(side: Side, base: Side | None) -> list[float]:
    """pass@1 at the end less that of another side, for each seed that both have."""
    if base is None or base.name == side.name:
        return []
    ours, theirs = ({run.config["seed"]: score for run, score in zip(s.runs, s.score(), strict=True)} for s in (side, base))
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


# ---------------------------------------------------------------- figures


def world(config: dict) -> str:
    """What the problems are called."""
    return {"tiny": "the tiny world", "sums": "the 64 sums"}.get(config["data"], Path(config["data"]).name)


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
    ways = np.array([np.mean([[list(by_topic(run.measured[at]).values()) for at in (0, -1)] for run in side.runs], 0)
                     for side in sides]).transpose(2, 0, 3, 1)  # fmt: skip ; [T,S,N,2]
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
    shapes = ", ".join(f"{name}: {word}" for name, word in zip("ABCD"[:agents], words, strict=False))
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


# ---------------------------------------------------------------- the command


def finish(folder: Path) -> None:
    """Print and draw what is in a folder that cohort.py or agon.py wrote: a comparison, one of its runs, or a run alone."""
    config = runs.read_json(folder / "config.json")
    whole = "rows" in config or bool(config["compare"])
    text = report_agon(folder, config) if "rows" in config else report_comparison(folder, config) if whole else report_run(folder)
    (folder / "table.txt").write_text(text + "\n", encoding="utf-8")
    files = sorted(p.name for p in folder.iterdir() if p.suffix in (".png", ".jsonl", ".txt"))
    print(f"\n{text}\n\nwritten: {folder}/ ({', '.join(files)}{', and a folder for each run' * whole})")


def main() -> int:
    """Draw and print a finished run, or a comparison, again."""
    parser = argparse.ArgumentParser("python -m lab.report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", type=Path, help="a folder that cohort.py or agon.py wrote")
    folder = parser.parse_args().folder
    try:
        finish(folder)
        return 0
    except UserError as error:
        print(f"report.py: {error}", file=sys.stderr)
    except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        print(f"report.py: {folder} is not a whole run of this version: {type(error).__name__}: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
