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

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from lab import portraits, runs, style
from lab.data import UserError
from lab.evaluate import mean_interval
from lab.runs import Run, by_topic
from rewards import REWARDS

LISTENS = {  # whom an agent listens to -> the methods and their names
    "listens to a peer": {"corl": "Co-RL", "pooled": "pooled vote", "comas": "CoMAS"},
    "listens to itself": {"ttrl": "TTRL", "corewarding1": "Co-rewarding I", "corewarding2": "Co-rewarding II", "empo": "EMPO",
                          "rent": "RENT", "intuitor": "Intuitor"},
    "listens to labels": {"gt": "ground truth"},
}  # fmt: skip
NAMES = {key: name for group in LISTENS.values() for key, name in group.items()} | {"agon": "Agon", "grpo": "GRPO"}
WORLDS = {"tiny": "the tiny world", "sums": "the 64 sums"}
FEW_TOPICS, FEW_METHODS, FEW_AGENTS, FEW_SEEDS = 10, 4, 4, 3  # so many are shown one by one
SMOOTH, LAST = 5, 10  # steps of a running mean; steps at the end of training that the table describes
ENDS = ("right", "split", "wrong", "under way")
MARKERS = "o^sDvP"  # agent A is a circle, B a triangle, ...
ALONE, PAIR = ("A", "B"), ("A > B", "B > A")
ROWS = {  # Agon's rows -> (run that is read, ways of using it, whose mean is taken): one pass first, then two
    "zero-shot": ("untrained", ("A",)),
    "GRPO": ("grpo", ("A",)),
    "shared, one pass": ("shared", ALONE),
    "Agon, one pass": ("agon", ALONE),
    "untrained pair": ("untrained", PAIR),
    "GRPO, two passes": ("grpo", ("A > A",)),
    "self-refinement": ("self-refine", ("A > A",)),
    "shared opponent": ("shared", PAIR),
    "margin": ("margin", PAIR),
    "cooperative": ("cooperative", PAIR),
    "Agon": ("agon", PAIR),
}
HEROES = {"GRPO": style.BLACK, "cooperative": style.BLUE, "Agon": style.ORANGE}  # rows whose way through training is drawn

# ---------------------------------------------------------------- text


def exchanges(seen: Sequence[tuple], drafter: str, reader: str, width: int = 38) -> str:
    """Agon's exchanges side by side: left the draft, right what the challenger was given, below its solution."""
    blocks = []
    for problem, draft, prompt, solution in seen:
        left, right = (
            [part for line in text.splitlines() or [""] for part in textwrap.wrap(line, width) or [""]]
            for text in (f"draft of {drafter}\n{draft}", f"what {reader} is given\n{prompt}")
        )
        rows = [f"{a:<{width}} | {b}" for a, b in itertools.zip_longest(left, right, fillvalue="")]
        head, end = f"{problem.question}  (reference answer {problem.answer})", f"solution of {reader}: {solution}"
        blocks.append("\n".join([head, *rows, end]))
    return f"\n{'-' * (2 * width + 3)}\n".join(["", *blocks, ""])


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the head first, as a table: columns of numbers to the right, of words to the left."""
    columns = list(zip(*rows, strict=True))
    sides = [">" if all(cell[-1:].isdigit() or cell in "-" for cell in column[1:]) else "<" for column in columns]
    forms = [f"{{:{side}{max(map(len, column))}}}" for side, column in zip(sides, columns, strict=True)]
    return "\n".join("  ".join(form.format(cell) for form, cell in zip(forms, row, strict=True)).rstrip() for row in rows)


def by_seed(values: Sequence[float], form: str = ".2f") -> str:
    """A figure of each seed; of many seeds the lowest and the highest."""
    shown = [f"{value:{form}}" for value in (values if len(values) <= FEW_SEEDS else (min(values), max(values)))]
    return (" " if len(values) <= FEW_SEEDS else " to ").join(shown)


# ---------------------------------------------------------------- reading a run back


def parts(line: dict) -> dict[str, dict]:
    """What was trained in a step: of cohort.py the agents, of agon.py the roles, which its adapters play in turn."""
    return line.get("agents") or {name.split()[0]: half for name, half in line.get("halves", {}).items()}


def known_mean(values: Sequence[float | None]) -> float | None:
    """The mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def mean_of(line: dict, name: str, ways: Sequence[str] | None = None) -> float:
    """pass1, majk or length on an evaluated line, mean of the agents or of some `ways` of using them."""
    return float(np.mean([line["eval"][way][name] for way in ways or line["eval"]]))


def problems(line: dict) -> int:
    """How many problems an evaluation had."""
    return line.get("problems") or next(iter(line["eval"].values()))["problems"]


def stuck(run: Run) -> dict[str, list[str]]:
    """agent -> the topics (or single problems) that it ends with right in under 10% of samples.

    {} where there is but one topic, or where fewer than 8 samples of each cannot tell.
    """
    if len(by_topic(run.measured[-1])) == 1 or run.config["probe_samples"] < 8:
        return {}
    return {name: [topic for topic, p in probes.items() if p < 0.1] for name, probes in run.measured[-1]["probes"].items()}


def smooth(values: Sequence[float | None]) -> np.ndarray:
    """Running mean over the last SMOOTH steps; steps without a value are passed over."""
    means = [known_mean(values[max(0, i + 1 - SMOOTH) : i + 1]) for i in range(len(values))]
    return np.array([np.nan if mean is None else mean for mean in means])


def curve(run: Run, name: str) -> tuple[list[int], np.ndarray]:
    """(steps, values): measured accuracy as it is; a figure of training smoothed, mean of the agents."""
    if name == "accuracy":
        return [line["step"] for line in run.measured], np.array([mean_of(line, "pass1") for line in run.measured])
    values = [line[name] if name == "agreement" else known_mean([part[name] for part in parts(line).values()])
              for line in run.trained]  # fmt: skip
    return [line["step"] for line in run.trained], smooth(values)


def mean_curve(seeds: Sequence[tuple[Sequence[int], Sequence[float]]]) -> tuple[list[int], list[float]]:
    """The mean of curves (steps, values), at the steps that all have: a run resumed alone may have been measured once more."""
    known = [dict(zip(*one, strict=True)) for one in seeds]
    shared = [step for step in known[0] if all(step in one for one in known)]
    return shared, [float(np.mean([one[step] for one in known])) for step in shared]


def finished(folder: Path, whole: dict, method: str) -> list[Run]:
    """The runs of one method of a comparison that are at their end, one for each seed; others are left out, aloud."""
    found, steps = [], 0 if method == "untrained" else whole["steps"]
    expected = {folder / f"{method}-seed{seed}" for seed in whole.get("seeds") or [whole["seed"]]}
    for place in sorted(expected | set(folder.glob(f"{method}-seed*"))):
        run = Run(place) if (place / "metrics.jsonl").exists() and (place / "config.json").exists() else None
        if run and run.measured and run.lines[-1] is run.measured[-1] and run.lines[-1]["step"] == steps:
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
    config, measured, last, text = run.config, run.measured, run.lines[-1]["step"], []
    if measured:
        cohort = "probes" in measured[0]
        text.append(topic_table(run) if cohort and config["data"] == "tiny" else accuracy_table(run))
        if measured[-1]["step"] < last:
            text.append(f"after: at step {measured[-1]['step']}; the run stopped at step {last}, and was not evaluated there")
        if cohort and len(measured) > 1 and len(measured[0]["probes"]) == 2:
            with style.look():
                style.save(portraits.overlay(run), folder / "overlay.png")
    if taken := [part for line in run.lines for part in parts(line).values()]:
        draw_training(folder)
        seconds = sum(part["sample_seconds"] + part["learn_seconds"] for part in taken)
        tokens = sum(part["tokens"] for part in taken) / 1e6
        took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        text.append(f"{last} steps took {took}, evaluations not counted, and wrote {tokens:.2f} M tokens")
    return "\n".join(text)


def topic_table(run: Run) -> str:
    """Each topic's accuracy before and after, forecast and outcome; how many forecasts came true; how sure the numbers are."""
    names, rows, samples = run.config["agent_names"], portraits.topic_rows(run), run.config["probe_samples"]
    said, first, last = any(row.forecast for row in rows), run.measured[0], run.measured[-1]
    peer = said and len(names) == 2 and REWARDS[run.config["method"]].theory == "corl"
    apart = peer and any(row.omega != 1 for row in rows)  # some wrong answers of the two differ
    several = len(names) > FEW_AGENTS
    arrow, shown = " -> " if len(names) < FEW_AGENTS else "->", ["mean of the agents"] if several else names
    cells = [["topic", *shown, *["p_A + p_B"] * peer, *["omega"] * apart, *["forecast"] * said, "outcome"]]

    def pairs(start, end):
        points = [(np.mean(start), np.mean(end))] if several else zip(start, end, strict=True)
        return [f"{a:.2f}{arrow}{b:.2f}" for a, b in points]

    for row in rows:
        total = round(sum(row.start), 9)
        side = f"{total:.2f} {'>' if total > 1 else '<' if total < 1 else '='} 1"
        cells.append([row.topic, *pairs(row.start, row.end), *[side] * peer, *[f"{row.omega:.2f}"] * apart,
                      *[row.forecast or "-"] * said, row.outcome])  # fmt: skip
    means = pairs(*([line["eval"][name]["pass1"] for name in names] for line in (first, last)))
    cells.append(["mean", *means, *[""] * (len(cells[0]) - len(means) - 1)])
    intervals = ", ".join(f"{name} ({last['eval'][name]['low']:.2f}, {last['eval'][name]['high']:.2f})" for name in names)
    return "\n".join([
        f"right answers by topic, before -> after {last['step']} steps of {NAMES.get(run.config['method'], run.config['method'])}",
        align(cells),
        *filter(None, [portraits.score(rows)]),
        f"of a topic: {samples} samples, standard error at most {0.5 / max(samples, 1) ** 0.5:.2f}",
        *textwrap.wrap(f"mean after, 95% interval of the {problems(last)} problems: {intervals}", 80),
    ])  # fmt: skip


def accuracy_table(run: Run) -> str:
    """pass@1 with its interval, maj@k and lengths, before and after; and on what an agent is stuck."""
    cells = [["", "", "pass@1", "95% interval", "maj@k", "length", "cut off"]]
    for name in run.measured[-1]["eval"]:
        for when, line in (("before", run.measured[0]), ("after", run.measured[-1]))[: len(run.measured)]:
            if (e := line["eval"].get(name)) is None:  # agon.py measures the start in every way, the end in those of the method
                continue
            cells.append([name, when, f"{e['pass1']:.3f}", f"({e['low']:.3f}, {e['high']:.3f})",
                          f"{e['majk']:.3f}" if "majk" in e else "-", f"{e['length']:.1f}", f"{e['truncated']:.2f}"])  # fmt: skip
    text = [align(cells), f"{problems(run.measured[0])} problems, to which the interval refers"]
    for name, found in stuck(run).items() if "probes" in run.measured[0] else ():
        if found:
            total = len(by_topic(run.measured[0]))
            named = "all" if len(found) == total else f"{len(found)} of {total}: {', '.join(found)}"
            text += textwrap.wrap(f"{name} is stuck on a wrong answer (right in under 10% of samples): {named}", 80)
    return "\n".join(text)


# ---------------------------------------------------------------- methods of cohort.py side by side


def report_comparison(folder: Path, whole: dict) -> str:
    """Draw compare.png; the tables of a comparison."""
    methods = {method: found for method in whole["compare"] if (found := finished(folder, whole, method))}
    if not methods:
        raise UserError(f"{folder} has no finished run with an evaluation, so there is nothing to compare")
    draw_comparison(methods, folder / "compare.png")
    return comparison_tables(methods)


def comparison_tables(methods: dict[str, list[Run]]) -> str:
    """How often each method is right; where topics end, and whether as forecast; and its completions in the last steps.

    Intervals are those of the problems, which are the same for every agent and seed, so no independent trials.
    """
    some = next(iter(methods.values()))[0]
    rows = {method: [(run, row) for run in members for row in portraits.topic_rows(run)] for method, members in methods.items()}
    said, real = any(row.forecast for found in rows.values() for _, row in found), bool(stuck(some)) and some.config["data"] != "tiny"
    right = [["method", "before", "after", "95% interval", "by seed", "maj@k", "tokens"]]
    ends = [["method", *ENDS, *["forecasts", "staying put"] * said, *["stuck, by seed and agent"] * real]]
    last_steps = [["method", "label right", "labelled", "reward std", "length", "cut off", "entropy"]]
    misses = []
    for method, members in methods.items():
        name, (before, after) = NAMES.get(method, method), ([mean_of(run.measured[i], "pass1") for run in members] for i in (0, -1))
        low, high = mean_interval(float(np.mean(after)), problems(some.measured[-1]))
        steps = [part for run in members for line in run.trained for part in parts(line).values()]
        late = [part for run in members for line in run.trained[-LAST:] for part in parts(line).values()]
        majority, tokens = np.mean([mean_of(run.measured[-1], "majk") for run in members]), sum(part["tokens"] for part in steps)
        right.append([name, f"{np.mean(before):.3f}", f"{np.mean(after):.3f}", f"({low:.3f}, {high:.3f})", by_seed(after),
                      f"{majority:.2f}", f"{tokens / 1e6:.2f} M"])  # fmt: skip
        outcomes, called = [row.outcome for _, row in rows[method]], [row for _, row in rows[method] if row.hit is not None]
        counts = [f"{sum(found)} of {len(called)}" if called else "-"
                  for found in ([row.hit for row in called], [row.stays == row.outcome for row in called])]  # fmt: skip
        held = " ".join(str(len(found)) for run in members for found in stuck(run).values())
        ends.append([name, *(str(outcomes.count(end)) for end in ENDS), *counts * said, *[held] * real])
        misses += [f"  {name}, seed {run.config['seed']}, {row.topic}: {join(row.start)} -> {join(row.end)}, "
                   f"forecast {row.forecast}, ended {row.outcome}" for run, row in rows[method] if row.hit is False]  # fmt: skip
        means = [(known_mean([part.get(key) for part in late]), form) for key, form in (
            ("label_accuracy", ".2f"), ("labelled", ".2f"), ("reward_std", ".3f"), ("length", ".1f"), ("truncated", ".2f"),
            ("entropy", ".3f"))]  # fmt: skip
        last_steps.append([name, *("-" if mean is None else f"{mean:{form}}" for mean, form in means)])
    return "\n".join([
        align(right),
        f"interval: of the {problems(some.measured[-1])} problems, the same for all methods; by seed: the chance in training",
        f"\nwhere {len(by_topic(some.measured[0]))} topics x {len(next(iter(methods.values())))} seeds ended",
        align(ends),
        "right, wrong: every agent above 0.8, below 0.2; split: some above and some below",
        *["not as forecast:", *misses] * bool(misses),
        f"\nin training, mean of the last {LAST} steps; a question without a label is not right",
        align(last_steps),
    ])  # fmt: skip


def join(point: Sequence[float]) -> str:
    """A point of shares in a line of text."""
    return ", ".join(f"{p:.2f}" for p in point)


# ---------------------------------------------------------------- methods of agon.py side by side


def report_agon(folder: Path, whole: dict) -> str:
    """Draw agon.png; the matrix of methods: held-out pass@1, length, budget, seconds, and differences seed by seed."""
    done = {method: finished(folder, whole, method) for method in ("untrained", *whole["rows"])}
    shown = {row: (done[method], ways) for row, (method, ways) in ROWS.items() if done.get(method)}  # row -> (runs, ways)
    if not shown:
        raise UserError(f"{folder} has no finished run of agon.py")
    results = [["", "pass@1", "95% interval", "length", "tokens", "rollouts", "seconds"]]
    spread = [["", "by way of using it", "by seed", "vs GRPO", "vs cooperative"]]
    for row, (found, ways) in shown.items():
        lasts = [run.lines[-1] for run in found]
        halves = [half for run in found for line in run.lines for half in parts(line).values()]
        total = {key: sum(half[key] for half in halves) / len(found)
                 for key in ("tokens", "rollouts", "sample_seconds", "learn_seconds")}  # fmt: skip
        asked = found[0].lines[-1]["step"] * found[0].config["prompts"]  # problems processed
        (mean, low, high), budget = interval(found, ways), [
            f"{total['tokens'] / 1e6:.2f} M", f"{total['rollouts'] / max(asked, 1):.0f}",
            f"{total['sample_seconds'] + total['learn_seconds']:.0f}",
        ]  # fmt: skip
        length = np.mean([mean_of(line, "length", ways) for line in lasts])
        results.append([row, f"{mean:.3f}", f"({low:.3f}, {high:.3f})", f"{length:.1f}", *(budget if halves else "---")])
        way = "  ".join(f"{w} {np.mean([mean_of(line, 'pass1', [w]) for line in lasts]):.3f}" for w in ways)
        differences = [np.mean(paired(shown, row, base)) if paired(shown, row, base) else None for base in bases(row)]
        spread.append([row, way, by_seed([mean_of(line, "pass1", ways) for line in lasts]),
                       *("-" if d is None else f"{d:+.3f}" for d in differences)])  # fmt: skip
    draw_agon(shown, folder / "agon.png")
    return "\n".join([
        align(results), "interval: of the problems; rollouts: for each problem; tokens and seconds: of training, mean of the seeds\n",
        align(spread), "A > B: A drafts, B reads the summary and answers",
        "vs: mean over the seeds of the paired difference, to GRPO with as many passes",
    ])  # fmt: skip


def interval(found: Sequence[Run], ways: Sequence[str]) -> tuple[float, float, float]:
    """(mean, low, high) of pass@1 at the end, over ways and seeds; 95%, of the problems."""
    mean = float(np.mean([mean_of(run.lines[-1], "pass1", ways) for run in found]))
    return mean, *mean_interval(mean, problems(found[0].lines[-1]))


def bases(row: str) -> tuple[str, str | None]:
    """What a row of Agon's is held against: GRPO with as many passes, and cooperative, which takes two."""
    two = ">" in ROWS[row][1][0]
    return ("GRPO, two passes", "cooperative") if two else ("GRPO", None)


def paired(shown: dict[str, tuple], row: str, base: str | None) -> list[float]:
    """pass@1 of a row less that of another, at the end, for each seed that both have."""
    if row == base or base not in shown:
        return []
    ours, theirs = ({run.config["seed"]: mean_of(run.lines[-1], "pass1", ways) for run in found}
                    for found, ways in (shown[row], shown[base]))  # fmt: skip
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


# ---------------------------------------------------------------- figures


def caption(run: Run, seeds: Sequence[int]) -> str:
    """What was run, for the line below a figure's title."""
    config = run.config
    given = dict.fromkeys(Path(model).name for model in config.get("models") or [config.get("model")] if model)
    size = f"{config['agents']} agents, K = {config['k']}" if "k" in config else f"2 adapters, N = {config['n']}"
    seeds = f"seed{'s' * (len(seeds) > 1)} {' '.join(map(str, seeds))}"
    tested = f", {problems(run.measured[-1])} problems x {config['eval_k']} samples" if run.measured else ""
    return f"{', '.join(given) or 'tiny transformers'}; {size}, {seeds}{tested}"


def world(config: dict) -> str:
    """What the problems are called."""
    return WORLDS.get(config["data"], Path(config["data"]).name)


def accuracy_title(config: dict) -> str:
    """What a figure calls the accuracy over training. All 64 sums are trained on; elsewhere it is of problems held out."""
    return "accuracy on the sums that are trained on" if config["data"] == "sums" else "accuracy on held-out problems"


def steps_axis(axis, title: str, last: int, top: float | None = None) -> None:
    """An axis of steps from 0, whole numbers only, and of values from 0; `top` is the most that can be."""
    axis.set_title(title)
    axis.set_xlim(0, max(last, 1))
    axis.set_ylim(0, 1.03 * (top or 1.05 * axis.dataLim.ymax if axis.dataLim.ymax > 0 else 1))
    axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


@style.look()
def draw_training(folder: Path) -> Figure:
    """training.png: accuracy, labels and agreement, reward std, length, entropy, gradient norm over the steps of a run."""
    run = Run(folder)
    config, steps, last = run.config, [line["step"] for line in run.lines if parts(line)], run.lines[-1]["step"]
    taken = [parts(line) for line in run.lines if parts(line)]
    names = list(dict.fromkeys(name for step in taken for name in step))
    figure = Figure(figsize=(9, 9), layout="constrained")
    axes = figure.subplot_mosaic("ab;cd;ef", sharex=True)
    measured = list(run.measured[0]["eval"]) if run.measured else []
    colours = dict(zip(dict.fromkeys([*names, *measured]), itertools.cycle(style.AGENTS), strict=False))
    for name in measured:
        known = [(line["step"], line["eval"][name]) for line in run.measured if name in line["eval"]]
        t, low, high = [step for step, _ in known], [e["low"] for _, e in known], [e["high"] for _, e in known]
        axes["a"].plot(t, [e["pass1"] for _, e in known], "o-", ms=4, color=colours[name], clip_on=False)
        axes["a"].fill_between(t, low, high, color=colours[name], alpha=0.12, lw=0)
    cohort = "agents" in (run.trained or [{}])[0]
    panels = {"c": ("reward_std", "-"), "d": ("length", "-"), "e": ("entropy", "-"), "f": ("grad_norm", "-")}
    labels = {"label_accuracy": "-", "labelled": ":"} if cohort else {"accuracy": "-", "converted": ":"}
    for name in names:
        for panel, (key, dash) in [*panels.items(), *(("b", pair) for pair in labels.items())]:
            axes[panel].plot(steps, smooth([step.get(name, {}).get(key) for step in taken]), dash, color=colours[name])
    if cohort:
        axes["b"].plot(steps, smooth([line["agreement"] for line in run.trained]), "--", color=style.BLACK)
    given = ", ".join(names)
    told = (f"solid: label given to {given} is right\ndotted: it has a label; dashed: majorities agree" if cohort
            else "solid: right in training\ndotted: right where the draft was wrong")  # fmt: skip
    titles = {"a": f"{accuracy_title(config)}\n(band: 95% interval of the problems)", "b": told,
              "c": "reward std within a group", "d": "length of a completion (tokens)", "e": "entropy (nats a token)",
              "f": "norm of the gradient"}  # fmt: skip
    for panel, axis in axes.items():
        steps_axis(axis, titles[panel], last, 1 if panel in "ab" else None)
        if panel in "ef":
            axis.set_xlabel("step")
    figure.legend(handles=[Line2D([], [], color=colour, label=name) for name, colour in colours.items()],
                  loc="outside lower center", ncols=len(colours))  # fmt: skip
    method = NAMES.get(config["method"], config["method"])
    figure.suptitle(f"{method} on {world(config)}, seed {config['seed']}\n{caption(run, [config['seed']])}\n"
                    f"curves of training are means of {SMOOTH} steps")  # fmt: skip
    style.save(figure, folder / "training.png")
    return figure


@style.look()
def draw_comparison(methods: dict[str, list[Run]], path: Path) -> Figure:
    """compare.png. Few methods: the panels of the paper's Figures 4 and 5, and the way of each topic, or a map of the problems.

    Many methods: a row for each, and its curve, or its map, in a panel of its own.
    """
    some = next(iter(methods.values()))[0]
    topics, last = list(by_topic(some.measured[-1])), some.lines[-1]["step"]
    cells = grid(topics)  # [T,2] or None
    figure = Figure(figsize=(10, 8.8), layout="constrained")
    if len(methods) > FEW_METHODS:
        left, right = figure.subfigures(1, 2, width_ratios=(1.15, 1))
        draw_dots(left.subplots(), methods)
        axes = right.subplots(-(-len(methods) // 2), 2, sharex=True, sharey=True)
        for axis, method in zip(axes.flat, methods, strict=False):
            if cells is not None:
                draw_map(axis, methods[method], cells)
            else:
                draw_curves(axis, methods, "accuracy", method)
                steps_axis(axis, "", last, 1)
            axis.set_title(NAMES.get(method, method))
        for axis in axes.flat[len(methods) :]:
            axis.set_axis_off()
        told = "maps: problem by problem, after training" if cells is not None else "curves: accuracy over the steps, grey: the others"
    else:
        top, bottom = figure.subfigures(2, 1, height_ratios=(1.7, 1))
        maps = len(methods) if cells is not None else 1
        axes = top.subplots(1, 1 + maps, width_ratios=(1.6, *[1] * maps) if cells is not None else (1, 1.25))
        draw_curves(axes[0], methods, "accuracy")
        steps_axis(axes[0], f"{accuracy_title(some.config)}\n(bar: 95% interval of the problems)", last, 1)
        label_ends(axes[0], methods, last)
        if cells is not None:
            for axis, (method, members) in zip(axes[1:], methods.items(), strict=True):
                image = draw_map(axis, members, cells)
                axis.set_title(NAMES.get(method, method), color=style.METHODS.get(method, style.GREY))
            top.colorbar(image, ax=axes[1:], label="accuracy after training, mean of agents and seeds", location="bottom", aspect=40)
        else:
            draw_topics(axes[1], methods)
        panels = bottom.subplots(1, 3)
        titles = "reward std within a group", "length of a completion (tokens)", "solid: label is right\ndashed: majorities agree"
        for axis, name, title in zip(panels, ("reward_std", "length", "label_accuracy"), titles, strict=True):
            draw_curves(axis, methods, name)
            if name == "label_accuracy":
                draw_curves(axis, methods, "agreement", dash="--")
            steps_axis(axis, title, last, 1 if name == "label_accuracy" else None)
            axis.set_xlabel("step")
        told = f"thin: a seed, bold: their mean; mean of the agents; curves of training are means of {SMOOTH} steps"
    ends = {NAMES.get(method, method): np.mean([mean_of(run.measured[-1], "pass1") for run in found]) for method, found in methods.items()}
    order = sorted(ends, key=ends.get, reverse=True)
    told_ends = ", ".join(f"{name} {ends[name]:.2f}" for name in (order if len(order) <= FEW_METHODS else [order[0], order[-1]]))
    seeds = sorted({run.config["seed"] for found in methods.values() for run in found})
    figure.suptitle(f"{world(some.config)}: right after {last} steps: {told_ends}\n{caption(some, seeds)}\n{told}")
    style.save(figure, path)
    return figure


def draw_curves(axis, methods: dict[str, list[Run]], name: str, one: str | None = None, dash: str = "-") -> None:
    """A figure over the steps: each seed thin, their mean bold; with `one` method named, the means of the others grey."""
    for method, members in methods.items():
        colour = style.METHODS.get(method, style.GREY) if one in (None, method) else "#cccccc"
        seeds = [curve(run, name) for run in members]
        if one in (None, method):
            for seed in seeds:
                axis.plot(*seed, dash, lw=0.7, alpha=0.5, color=colour)
        bold = one in (None, method)
        axis.plot(*mean_curve(seeds), dash, lw=2.2 if bold else 0.8, color=colour, zorder=3 if bold else 1)


def label_ends(axis, methods: dict[str, list[Run]], last: int) -> None:
    """Beside the last step of an axis: the interval of the problems for each method, then its name where its curve ends."""
    after = [float(np.mean([mean_of(run.measured[-1], "pass1") for run in members])) for members in methods.values()]
    places = apart(after, 0.06)
    for i, (method, members) in enumerate(methods.items()):
        low, high = mean_interval(after[i], problems(members[0].measured[-1]))
        colour = style.METHODS.get(method, style.GREY)
        axis.plot([last * (1.03 + 0.03 * i)] * 2, [low, high], color=colour, lw=2, clip_on=False)
        axis.text(last * (1.05 + 0.03 * len(methods)), places[i], NAMES.get(method, method), color=colour, va="center")


def apart(values: Sequence[float], gap: float) -> np.ndarray:
    """Heights near `values`, in the same order, of which no two are closer than `gap`: places for labels."""
    order = np.argsort(values, kind="stable")
    heights = np.array(values, dtype=float)[order]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    heights -= (heights - np.sort(values)).mean()
    placed = np.empty_like(heights)
    placed[order] = heights
    return placed


def draw_topics(axis, methods: dict[str, list[Run]]) -> None:
    """Each topic's way from start (open) to end (filled), by agent and method, mean of the seeds; of many, those that moved most."""
    paths = {method: np.mean([[list(by_topic(run.measured[i]).values()) for i in (0, -1)] for run in members], 0)
             for method, members in methods.items()}  # fmt: skip ; method -> [2,T,N]
    topics = list(by_topic(next(iter(methods.values()))[0].measured[0]))
    moved = sum(np.abs(path[1] - path[0]).sum(-1) for path in paths.values())  # [T]
    kept = sorted(np.argsort(-moved, kind="stable")[:FEW_TOPICS])
    for row, t in enumerate(kept):
        agents = paths[next(iter(paths))].shape[-1]
        heights = row + np.linspace(-0.38, 0.38, len(methods) * agents) if len(methods) * agents > 1 else [row]
        for i, (method, path) in enumerate(paths.items()):
            look = {"color": style.METHODS.get(method, style.GREY), "clip_on": False}
            for n in range(agents):
                y, (start, end), marker = heights[i * agents + n], path[:, t, n], MARKERS[n % len(MARKERS)]
                axis.plot([start, end], [y, y], lw=1.2, **look)
                axis.plot(start, y, marker, mfc="white", ms=4.5, **look)
                axis.plot(end, y, marker, ms=5.5, **look)
    axis.hlines(np.arange(1, len(kept)) - 0.5, 0, 1, color="#dddddd", lw=0.8)
    axis.set_yticks(range(len(kept)), [topics[t] or "all problems" for t in kept])
    axis.set(xlim=(0, 1), ylim=(len(kept) - 0.5, -0.5), xlabel="accuracy, mean of the seeds")
    shapes = ", ".join(f"{name} {'circle triangle square diamond'.split()[n]}" for n, name in enumerate("ABCD"[:agents]))
    few = "" if len(kept) == len(topics) else f"; the {len(kept)} of {len(topics)} that moved most"
    axis.set_title(f"by topic: open before, filled after training\n{shapes}{few}")


def grid(topics: Sequence[str]) -> np.ndarray | None:
    """[T,2]: the two numbers of which each topic is made, as 3 and 8 of "3+8"; large ones by their first digit. Else None."""
    found = [re.fullmatch(r"(\d+)\D+(\d+)", topic) for topic in topics]
    if len(topics) <= FEW_TOPICS or not all(found):
        return None
    numbers = np.array([[int(number) for number in match.groups()] for match in found])
    unit = np.array([10 ** (len(str(most)) - 1) if most > 12 else 1 for most in numbers.max(0)])
    return numbers // unit * unit


def draw_map(axis, members: Sequence[Run], cells: np.ndarray):
    """Accuracy after training as a map of first by second number, mean of agents and seeds. Returns the image."""
    p = np.mean([list(by_topic(run.measured[-1]).values()) for run in members], (0, 2))  # [T]
    (rows, row), (columns, column) = (np.unique(cells[:, j], return_inverse=True) for j in (0, 1))
    total, count = np.zeros((len(rows), len(columns))), np.zeros((len(rows), len(columns)))
    np.add.at(total, (row, column), p), np.add.at(count, (row, column), 1)
    image = axis.imshow(np.where(count > 0, total / np.maximum(count, 1), np.nan), cmap="cividis", vmin=0, vmax=1)
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    return image


def draw_dots(axis, methods: dict[str, list[Run]]) -> None:
    """A row for each method, grouped by whom it listens to: accuracy before and after, the interval, where topics ended."""
    others = {"others": {method: method for method in methods if method not in NAMES}}
    y, ticks = 0, {}
    for group, names in (LISTENS | others).items():
        present = [method for method in names if method in methods]
        if present:
            axis.text(0, y, group, weight="bold", va="center")
        for y, method in enumerate(present, y + 1):
            members, look = methods[method], {"color": style.METHODS.get(method, style.GREY), "clip_on": False}
            before, after = ([mean_of(run.measured[i], "pass1") for run in members] for i in (0, -1))
            axis.plot(mean_interval(float(np.mean(after)), problems(members[0].measured[-1])), [y, y], lw=2, alpha=0.5, **look)
            axis.plot(before, [y] * len(before), "o", mfc="white", **look)
            axis.plot(after, [y] * len(after), "o", **look)
            outcomes = [row.outcome for run in members for row in portraits.topic_rows(run)]
            axis.text(1.04, y, " / ".join(str(outcomes.count(end)) for end in ENDS), va="center")
            ticks[y] = NAMES.get(method, method)
        y += bool(present)
    axis.text(1.04, -0.9, "topics right /\nsplit / wrong /\nunder way", va="center")
    axis.set_yticks(list(ticks), list(ticks.values()))
    axis.set(xlim=(0, 1), ylim=(y - 0.5, -0.5), xlabel=accuracy_title(next(iter(methods.values()))[0].config))
    axis.set_title("open: before, filled: after (a dot a seed)\nline: 95% interval of the problems")


@style.look()
def draw_agon(shown: dict[str, tuple], path: Path) -> Figure:
    """agon.png: a row for each method, pass@1 with its interval and the paired differences seed by seed; three ways of learning."""
    figure = Figure(figsize=(10, 9), layout="constrained")
    axes = figure.subplot_mosaic([["rows", "GRPO", "cooperative"], ["way"] * 3], height_ratios=(1.7, 1), width_ratios=(1.5, 1, 1))
    two = sum(">" not in ROWS[row][1][0] for row in shown)  # rows with one pass stand above
    for y, (row, (found, ways)) in enumerate(shown.items()):
        colour, at = HEROES.get(row, style.GREY), y + 0.6 * (y >= two)
        axes["rows"].plot(interval(found, ways)[1:], [at, at], lw=2, alpha=0.5, color=colour)
        seeds = [mean_of(run.lines[-1], "pass1", ways) for run in found]
        axes["rows"].plot(seeds, [at] * len(seeds), "o", ms=5, color=colour)
        for name, base in zip(("GRPO", "cooperative"), bases(row), strict=True):
            differences = paired(shown, row, base)
            axes[name].plot(differences, [at] * len(differences), "o", ms=5, color=colour)
            if differences:
                axes[name].plot(np.mean(differences), at, "|", ms=14, mew=2, color=colour)
    heights = [y + 0.6 * (y >= two) for y in range(len(shown))]
    for name, title in (("rows", "pass@1 on held-out problems"), ("GRPO", "less GRPO with as\nmany passes, by seed"),
                        ("cooperative", "less cooperative,\nby seed")):  # fmt: skip
        axes[name].set(title=title, ylim=(heights[-1] + 0.6, -0.6))
        axes[name].set_yticks(heights, shown if name == "rows" else [])
        if name != "rows":
            axes[name].axvline(0, color=style.BLACK, lw=0.8)
            reach = max(0.05, *np.abs(axes[name].get_xlim()))
            axes[name].set_xlim(-reach, reach)
    axes["rows"].set_xlim(0, 1)
    ends = {}
    for row, colour in HEROES.items():
        if row in shown:
            found, ways = shown[row]
            prompts = found[0].config["prompts"]
            seeds = [([line["step"] * prompts for line in run.measured], [mean_of(line, "pass1", ways) for line in run.measured])
                     for run in found]  # fmt: skip
            for seed in seeds:
                axes["way"].plot(*seed, lw=0.7, alpha=0.5, color=colour)
            x, y = mean_curve(seeds)
            axes["way"].plot(x, y, "o-", lw=2.2, color=colour)
            ends[row] = y[-1], x[-1]
    for (row, (_, x)), height in zip(ends.items(), apart([y for y, _ in ends.values()], 0.09), strict=True):
        passes = "two passes" if ">" in ROWS[row][1][0] else "one pass"
        axes["way"].text(1.02 * x, height, f"{row} ({passes})", color=HEROES[row], va="center")
    axes["way"].set(title="over training (thin: a seed, bold: their mean)", xlabel="problems processed", ylim=(0, 1))
    axes["way"].set_xlim(0)
    some = next(iter(shown.values()))[0]
    best = max(shown, key=lambda row: interval(*shown[row])[0])
    figure.suptitle(f"{world(some[0].config)}: best is {best}, {interval(*shown[best])[0]:.2f}\n"
                    f"{caption(some[0], [run.config['seed'] for run in some])}\n"
                    "a dot: a seed; line: 95% interval of the problems; bar: mean of the differences")  # fmt: skip
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
