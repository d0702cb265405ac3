"""What a run tells its reader: the progress line, the closing tables, the figures, all read back from the run's own files.

    python report.py runs/corl-001       # one run: its table, training.png; overlay.png for two agents of corl or ttrl
    python report.py runs/compare-001    # methods of cohort.py side by side: two tables and compare.png
    python report.py runs/agon-001       # methods of agon.py: the rows of the paper's Table 3, and agon.png, its Figure 7

`training.png` has the panels of the Co-RL paper's Figures 2 (a to c) and 4. In a comparison how often a method is right stands
beside what its texts are like at the end, so that one whose texts degenerate shows it.
"""

import argparse
import itertools
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import dynamics
from lab import portraits, runs
from lab.data import UserError
from lab.evaluate import mean_interval
from lab.runs import Run, by_topic

COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #F0E442".split()  # Okabe and Ito: safe for the colour-blind
FEW = 10  # so many topics are shown one by one
WINDOW = 10  # steps at the beginning and at the end of a run over which its texts are described
ENDINGS = ("right", "split", "wrong")
TEXTS = {"reward_std": "reward std", "length": "length", "truncated": "cut off", "entropy": "entropy"}
COLLAPSE = f"""\
* collapse, of some agent in some seed, from its first {WINDOW} steps to its last {WINDOW}: (a) more than half of its texts are
  cut off, and more than at first; or (b) they are less than a quarter, or more than four times, as long. Low entropy alone
  does not count: a model that has become right is confident too."""
PAIR, BOTH = ("A > B", "B > A"), ("A", "B")
ROWS = {  # Agon's rows -> (run that is read, ways of use: their mean, colour); the paper's Table 3, margin, single passes
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
READING = """\
A > B: A drafts, B reads the summary and answers. Tokens and seconds are those of training, mean of the seeds. The interval is
that of the problems, the spread of the seeds stands beside it."""

# ---------------------------------------------------------------- while it runs


def exchanges(seen: Sequence[tuple], drafter: str, reader: str, width: int = 62) -> str:
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


# ---------------------------------------------------------------- reading a run back


def mean_of(line: dict, name: str, ways: Sequence[str] | None = None) -> float:
    """pass1, majk or length on an evaluated line, mean of the agents or of some `ways` of using them."""
    return float(np.mean([line["eval"][way][name] for way in ways or line["eval"]]))


def hardened(line: dict, samples: int) -> dict[str, list[str]]:
    """agent -> the topics (or single problems) that it gets right in under 10 % of samples.

    {} where there is but one topic, or where fewer than 8 samples of each cannot tell.
    """
    if len(by_topic(line)) == 1 or samples < 8:
        return {}
    return {name: [topic for topic, p in probes.items() if p < 0.1] for name, probes in line["probes"].items()}


def listed(found: Sequence[str], line: dict) -> str:
    """Some of the topics of an evaluated line, or "all"."""
    return "all" if len(found) == len(by_topic(line)) else ", ".join(found)


def forecasts(config: dict, start: np.ndarray) -> list[str]:
    """What the theory says of each topic from its start [topics,N]: "right", "wrong", ...; "" where it says nothing."""
    method, two = config["method"], start.shape[1] == 2
    known = {"gt": True, "ttrl": True, "corl": True, "pooled": two}.get(method, False)  # pooled: for two agents
    # Wrong answers that scatter lose the vote long before p = 1/2: the two-answer theory does not speak of real data. And
    # mistakes that differ from agent to agent take omega (benchmarks/diversity.py), which matters where a peer votes.
    differ = method in ("corl", "pooled") and config.get("cohort") in ("errors", "different")
    if config["data"] != "tiny" or start.shape[1] < 2 or not known or differ:
        return [""] * len(start)
    if method == "gt":
        return ["right"] * len(start)
    labels = dynamics.basin(start, K=config["k"], scale="std" if config["scale"] else "none", method=method)
    return [dynamics.NAMES[int(label)] for label in labels]


@dataclass(frozen=True)
class Row:
    """One topic's way from the first evaluation to the last."""

    topic: str
    start: list[float]  # accuracy of each agent
    end: list[float]
    forecast: str
    outcome: str

    @property
    def hit(self) -> bool | None:
        """Whether it ended as the theory said; None where the theory did not say."""
        return self.forecast == self.outcome if self.forecast in ("right", "wrong", "split") else None


def topic_rows(run: Run) -> list[Row]:
    """A row for each topic."""
    first, last = by_topic(run.measured[0]), by_topic(run.measured[-1])
    told = forecasts(run.config, np.array(list(first.values())))
    return [Row(t, first[t], last[t], says, portraits.outcome(last[t])) for t, says in zip(first, told, strict=True)]


def curve(run: Run, name: str) -> tuple[list, np.ndarray]:
    """(steps, values smoothed) of a figure of training, mean of the agents."""
    values = [np.mean([agent[name] for agent in line["agents"].values()]) for line in run.trained]
    return [line["step"] for line in run.trained], smooth(values)


def smooth(values: Sequence[float | None], width: int = 5) -> np.ndarray:
    """Running mean over the last `width` steps; steps without a value are passed over."""
    x = np.array([np.nan if v is None else v for v in values], dtype=float)
    seen = [x[max(0, i + 1 - width) : i + 1] for i in range(len(x))]
    return np.array([np.nanmean(part) if not np.isnan(part).all() else np.nan for part in seen])


def mean_curve(seeds: Sequence[tuple[Sequence[int], Sequence[float]]]) -> tuple[list[int], list[float]]:
    """The mean of curves (steps, values), at the steps that all have: a run taken up alone may have been measured once more."""
    known = [dict(zip(*curve, strict=True)) for curve in seeds]
    shared = [step for step in known[0] if all(step in curve for curve in known)]
    return shared, [float(np.mean([curve[step] for curve in known])) for step in shared]


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the head first, as a table: columns of numbers to the right, of words to the left."""
    columns = list(zip(*rows, strict=True))
    sides = [">" if all(cell[-1:].isdigit() or cell in "-" for cell in column[1:]) else "<" for column in columns]
    forms = [f"{{:{side}{max(map(len, column))}}}" for side, column in zip(sides, columns, strict=True)]
    return "\n".join("  ".join(form.format(cell) for form, cell in zip(forms, row, strict=True)).rstrip() for row in rows)


# ---------------------------------------------------------------- one run


def finish_run(folder: Path) -> None:
    """Draw the figures of a run and print its closing table."""
    run = Run(folder)
    config, measured, last_step = run.config, run.measured, run.lines[-1]["step"]
    draw_training(folder)
    print()
    if measured:
        print(topic_table(run) if config["data"] == "tiny" else accuracy_table(run))
        if measured[-1]["step"] < last_step:
            print(f"after: at step {measured[-1]['step']}; the run stopped at step {last_step}, and was not evaluated there")
        if config["agents"] == 2 and config["method"] in ("corl", "ttrl") and len(by_topic(measured[0])) > 1:
            try:
                portraits.overlay(folder, folder / "overlay.png")
            except ValueError as error:
                print(f"no overlay.png: {error}", file=sys.stderr)
    print(f"\nwritten: {folder}/ ({', '.join(sorted(p.name for p in folder.iterdir() if p.suffix in ('.png', '.jsonl')))})")
    print(what_next(config, folder))


def what_next(config: dict, folder: Path) -> str:
    """Commands to try after a run."""
    own, compare = config["method"] == "ttrl", "--compare corl ttrl gt --seeds 0 1 2"
    if config["data"] == "tiny":
        commands = {
            f"python cohort.py --method {'corl' if own else 'ttrl'}": f"each rewarded by its {'peer' if own else 'own'} vote",
            f"python cohort.py {compare}": "the three rewards side by side",
            "python cohort.py --topics bracket": "one topic alone: does the forecast fare better?",
        } | ({f"python dynamics.py --overlay {folder}": "the paths on the phase portrait"} if config["agents"] == 2 else {})
    else:
        commands = {
            "python cohort.py ... --method ttrl": "the same options, each agent rewarded by its own vote",
            f"python cohort.py ... {compare}": "the same starts under three rewards",
        }
        if runs.checkpoints(folder):
            commands[f"python cohort.py --resume {folder} --steps {2 * config['steps']}"] = "twice as long"
    return "next:\n" + "\n".join(f"  {command:<{max(map(len, commands))}}  {says}" for command, says in commands.items())


def topic_table(run: Run) -> str:
    """Each topic before and after, the side of the line it started on, and whether the forecast came true."""
    names, rows = run.config["agent_names"], topic_rows(run)
    two = len(names) == 2
    head = ["topic", *(f"{name} {when}" for name in names for when in ("before", "after"))]
    cells = [[*head, *["p_A + p_B"] * two, "forecast", "outcome", ""]]
    for row in rows:
        p, total = [x for pair in zip(row.start, row.end, strict=True) for x in pair], sum(row.start)
        side = [f"{total:.2f} {'> 1' if total > 1 else '< 1' if total < 1 else '= 1'}"] * two
        verdict = {None: "", True: "as forecast", False: "NOT as forecast"}[row.hit]
        cells.append([row.topic, *(f"{x:.2f}" for x in p), *side, row.forecast or "-", row.outcome, verdict])
    means = np.mean([[row.start, row.end] for row in rows], 0).T.flatten()  # A before, A after, B before, ...
    cells.append(["mean", *(f"{x:.2f}" for x in means), *[""] * (two + 3)])
    told = [row.hit for row in rows if row.hit is not None]
    return align(cells) + (f"\n{sum(told)} of {len(told)} forecasts came true" if told else "")


def accuracy_table(run: Run) -> str:
    """pass@1 with its interval and maj@k, before and after; and what hardened wrong."""
    cells, measured = [["agent", "", "pass@1", "95 % interval", "maj@k", "length", "truncated"]], run.measured
    for name in measured[0]["eval"]:
        for when, e in (("before", measured[0]["eval"][name]), ("after", measured[-1]["eval"][name])):
            interval = f"({e['low']:.3f}, {e['high']:.3f})"
            figures = f"{e['majk']:.3f}", f"{e['length']:.1f}", f"{e['truncated']:.2f}"
            cells.append([name, when, f"{e['pass1']:.3f}", interval, *figures])
    wrong = hardened(measured[-1], run.config["probe_samples"])
    return "\n".join([align(cells), *(f"hardened wrong, right in under 10 % of samples: {name} {listed(found, measured[-1])}"
                                      for name, found in wrong.items() if found)])  # fmt: skip


# ---------------------------------------------------------------- methods of cohort.py side by side


def finish_comparison(folder: Path) -> None:
    """Print the tables of a comparison and draw compare.png; runs that are not at its end are left out, aloud."""
    whole = runs.read_json(folder / "config.json")
    methods: dict[str, list[Run]] = {method: [] for method in whole["compare"]}
    for place in sorted(folder.iterdir()):
        if (place / "metrics.jsonl").exists():
            run = Run(place)
            if len(run.measured) > 1 and "eval" in run.lines[-1] and run.lines[-1]["step"] == whole["steps"]:
                methods[run.config["method"]].append(run)
            else:
                print(f"left out: {place} (not at step {whole['steps']}, or no reference answers)", file=sys.stderr)
    methods = {method: found for method, found in methods.items() if found}
    if not methods:
        raise UserError(f"{folder} has no finished run with an evaluation, so there is nothing to compare")
    print(f"\n{comparison_tables(methods)}")
    draw_comparison(methods, folder / "compare.png")
    width = max(map(len, methods))
    lines = [
        f"  {method:<{width}}  seed {run.config['seed']} {name}: {len(found):>2}  {listed(found, run.measured[-1])}"
        for method, members in methods.items() for run in members
        for name, found in hardened(run.measured[-1], run.config["probe_samples"]).items() if whole["data"] != "tiny"
    ]  # fmt: skip
    if lines:
        print("\n".join(["\nhardened wrong (right in under 10 % of samples), by method, seed and agent:", *lines]))
    print(f"\nwritten: {folder}/ (compare.png, and a folder for each run)")


def comparison_tables(methods: dict[str, list[Run]]) -> str:
    """How often each method is right: accuracy, interval, ends of topics, forecasts, tokens. And its texts in the last steps.

    Intervals are those of the problems, which are the same for every agent and seed, so no independent trials.
    """
    right = [["method", "before", "after", "95 % interval", "by seed", "maj@k", *ENDINGS, "forecasts", "tokens"]]
    texts, misses, collapsed = [["method", *TEXTS.values()]], [], []
    for method, members in methods.items():
        first, last = ([run.measured[i] for run in members] for i in (0, -1))
        before, after = ([mean_of(line, "pass1") for line in lines] for lines in (first, last))
        majority = [np.mean([mean_of(line, "majk") for line in lines]) for lines in (first, last)]
        rows = [(run.config["seed"], row) for run in members for row in topic_rows(run)]
        told = [row.hit for _, row in rows if row.hit is not None]
        for seed, row in rows:
            if row.hit is False:
                start, end = (", ".join(f"{p:.2f}" for p in point) for point in (row.start, row.end))
                misses.append(f"  not as forecast: {method}, seed {seed}, {row.topic}: ({start}) -> ({end}), "
                              f"forecast {row.forecast}, ended {row.outcome}")  # fmt: skip
        steps = [[line["agents"][name] for line in run.trained] for run in members for name in run.config["agent_names"]]
        began, ended = [text_means(s[:WINDOW]) for s in steps], [text_means(s[-WINDOW:]) for s in steps]
        if any(map(degenerate, began, ended)):
            collapsed.append(method)
        marked = method + " *" * (method in collapsed)
        low, high = mean_interval(float(np.mean(after)), last[0]["problems"])
        outcomes = [row.outcome for _, row in rows]
        right.append([
            marked, f"{np.mean(before):.3f}", f"{np.mean(after):.3f}", f"({low:.3f}, {high:.3f})",
            " ".join(f"{a:.2f}" for a in after), "{:.2f} to {:.2f}".format(*majority),
            *(str(outcomes.count(name)) for name in ENDINGS),
            f"{sum(told)} of {len(told)}" if told else "-", f"{sum(a['tokens'] for s in steps for a in s) / 1e6:.2f} M",
        ])  # fmt: skip
        mean = {name: np.mean([text[name] for text in ended]) for name in TEXTS}
        texts.append([marked, *(f"{mean[name]:{form}}" for name, form in zip(TEXTS, (".3f", ".1f", ".2f", ".3f"), strict=True))])
    says = [COLLAPSE, f"  Here: {', '.join(collapsed) or 'none'}."]
    return "\n".join([align(right), *misses, f"\nin training, last {WINDOW} steps", align(texts), *says])


def text_means(steps: Sequence[dict]) -> dict[str, float]:
    """The means of one agent's TEXTS over some steps."""
    return {name: float(np.mean([step[name] for step in steps])) for name in TEXTS}


def degenerate(began: dict[str, float], ended: dict[str, float]) -> bool:
    """Whether an agent's texts have collapsed, as COLLAPSE explains it; from their means in the first and last steps."""
    cut_off = ended["truncated"] > max(0.5, began["truncated"])
    return cut_off or not began["length"] / 4 <= ended["length"] <= began["length"] * 4


# ---------------------------------------------------------------- methods of agon.py side by side


def finish_agon(folder: Path) -> None:
    """Print the matrix of methods (held-out pass@1, passes, length, budget, seconds) and draw agon.png."""
    cells = [["", "pass@1", "95 % interval", "passes", "length", "tokens", "per problem", "seconds", "by way", "by seed"]]
    done = {method: finished(folder, method) for method in dict.fromkeys(method for method, _, _ in ROWS.values())}
    shown = {}  # row -> (length, accuracy by seed, curve over the problems processed, look)
    for row, (method, ways, colour) in ROWS.items():
        if not (found := done[method]):
            continue
        accuracy = [mean_of(run.lines[-1], "pass1", ways) for run in found]
        length = np.mean([mean_of(run.lines[-1], "length", ways) for run in found])
        way = [f"{w} {np.mean([mean_of(run.lines[-1], 'pass1', [w]) for run in found]):.3f}" for w in ways]
        low, high = mean_interval(float(np.mean(accuracy)), found[0].lines[-1]["eval"][ways[0]]["problems"])
        steps = [list(line["halves"].values()) for run in found for line in run.lines if "halves" in line]
        halves, prompts = [half for step in steps for half in step], found[0].config["prompts"]
        each = {sum(half["rollouts"] for half in step) // prompts for step in steps}  # must be one number for all trained rows
        seconds = sum(half["sample_seconds"] + half["learn_seconds"] for half in halves) / len(found)
        cells.append([
            row, f"{np.mean(accuracy):.3f}", f"({low:.3f}, {high:.3f})", str(1 + (">" in ways[0])), f"{length:.1f}",
            f"{sum(half['tokens'] for half in halves) / len(found) / 1e6:.2f} M" if halves else "-",
            f"{min(each)} rollouts" if len(each) == 1 else "-", f"{seconds:.0f}" if halves else "-",
            "  ".join(way), " ".join(f"{p:.2f}" for p in accuracy),
        ])  # fmt: skip
        points = [[(m["step"] * prompts, mean_of(m, "pass1", ways)) for m in run.measured] for run in found]
        curves = [tuple(zip(*curve, strict=True)) for curve in points]
        shown[row] = length, accuracy, mean_curve(curves), {"color": colour, "marker": "s" if ">" in ways[0] else "o"}
    if not shown:
        raise UserError(f"{folder} has no finished run of agon.py")
    print(f"\n{align(cells)}")
    draw_agon(shown, folder / "agon.png")
    print(f"\n{READING}\n\nwritten: {folder}/ (agon.png, and a folder for each run)\n\nnext:")
    print("  python agon.py --compare --seeds 0 1 2                 every row of the paper's table")
    print("  python agon.py --methods cooperative agon              does the competition add to the exchange?")
    print("  python agon.py --methods agon --tiebreak 0.5           the density lever: shorter solutions first")


def finished(folder: Path, method: str) -> list[Run]:
    """The finished runs of one method of agon.py, one for each seed; others are left out, aloud."""
    found, steps = [], runs.read_json(folder / "config.json")["steps"]
    for place in sorted(folder.glob(f"{method}-seed*")):
        run = Run(place) if (place / "metrics.jsonl").exists() else None
        if run and run.lines and "eval" in run.lines[-1] and (method == "untrained" or run.lines[-1]["step"] == steps):
            found.append(run)
        else:
            print(f"left out: {place} (not at step {steps})", file=sys.stderr)
    return found


# ---------------------------------------------------------------- figures


def save(figure, path: Path, axes: dict | None = None, titles: dict[str, str] | None = None) -> None:
    """Give the named axes their titles, then write a figure beside its place and rename it."""
    for name, title in (titles or {}).items():
        axes[name].set_title(title, fontsize=10)
        axes[name].grid(alpha=0.3)
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, dpi=150, format="png")
    plt.close(figure)
    temporary.replace(path)


def accuracy_title(data: str) -> str:
    """What a figure calls the accuracy over training. All 64 sums are trained on; elsewhere it is of problems held out."""
    return "pass@1" if data == "sums" else "held-out pass@1"


def draw_training(folder: Path) -> None:
    """training.png: accuracy, agreement and pseudo-label accuracy, reward std, completion length over the steps."""
    run = Run(folder)
    config, measured, x = run.config, run.measured, [line["step"] for line in run.trained]
    figure, axes = plt.subplot_mosaic("ab;cd", figsize=(8, 5.6), sharex=True, layout="constrained")
    for name, colour in zip(config["agent_names"], itertools.cycle(COLOURS), strict=False):
        if measured:
            t, e = [m["step"] for m in measured], [m["eval"][name] for m in measured]
            axes["a"].plot(t, [m["pass1"] for m in e], "o-", ms=3, color=colour, label=name)
            axes["a"].fill_between(t, [m["low"] for m in e], [m["high"] for m in e], color=colour, alpha=0.12, lw=0)
        own = [line["agents"][name] for line in run.trained]
        labels = ("b", "label_accuracy", f"label of {name} right"), ("c", "reward_std", name), ("d", "length", name)
        for panel, key, label in labels:
            axes[panel].plot(x, smooth([step[key] for step in own]), color=colour, label=label)
    axes["b"].plot(x, smooth([line["agreement"] for line in run.trained]), "k--", label="majorities agree")
    for axis in axes.values():
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8, frameon=False)
    axes["a"].set_ylim(0, 1), axes["b"].set_ylim(0, 1.03), axes["c"].set_xlabel("step"), axes["d"].set_xlabel("step")
    figure.suptitle(f"{config['method']}, {config['agents']} agents, K = {config['k']}, seed {config['seed']}", fontsize=11)
    save(figure, folder / "training.png", axes, {
        "a": accuracy_title(config["data"]), "b": "agreement and pseudo-label accuracy",
        "c": "reward std within a group", "d": "completion length (tokens)",
    })  # fmt: skip


def draw_comparison(methods: dict[str, list[Run]], path: Path) -> None:
    """compare.png: accuracy over the steps, final accuracy by topic, length and entropy of the texts in training.

    A thin line a seed, a bold one for their mean. A dot is one topic, agent and seed; where topics are many, each agent and
    seed is a line of its sorted accuracies, and where that leaves 0 is how many hardened wrong.
    """
    figure, axes = plt.subplot_mosaic([["accuracy", "topics"], ["length", "entropy"]], figsize=(10, 6.2), layout="constrained",
                                      width_ratios=(1, 1.3), height_ratios=(1.6, 1))  # fmt: skip
    some = next(iter(methods.values()))[0]
    topics = list(by_topic(some.measured[-1]))
    few, last = len(topics) <= FEW, axes["topics"]
    for i, (method, members) in enumerate(methods.items()):
        look = {"color": COLOURS[i % 7], "ls": ("-", (0, (4, 1.5)))[i // 7 % 2]}  # 14 methods can be told apart
        curves = {name: [curve(run, name) for run in members] for name in ("length", "entropy")}
        curves["accuracy"] = [([m["step"] for m in run.measured], [mean_of(m, "pass1") for m in run.measured]) for run in members]
        for name, seeds in curves.items():
            for curve in seeds:
                axes[name].plot(*curve, lw=0.7, alpha=0.5, **look)
            axes[name].plot(*mean_curve(seeds), lw=2.2, **look, label=method)
        for run in members:
            p = np.array(list(by_topic(run.measured[-1]).values()))  # [T,N]
            if few:
                x = np.arange(len(topics)) + (i - (len(methods) - 1) / 2) * 0.8 / len(methods)
                last.plot(x, p, "o^"[i // 7 % 2], ms=4, color=look["color"], alpha=0.6, mew=0)
            else:
                last.plot(np.arange(1, len(p) + 1), np.sort(p, 0), lw=1.3, alpha=0.6, drawstyle="steps-mid", **look)
    if few:
        last.set_xticks(range(len(topics)), topics, rotation=20, fontsize=9)
        last.vlines(np.arange(1, len(topics)) - 0.5, -0.03, 1.03, color="#cccccc", lw=0.8)
    else:
        last.set_xscale("log", subs=[])
        last.set_xticks([n * 10**d for d in range(5) for n in (1, 2, 5) if n * 10**d <= len(topics)])
        last.xaxis.set_major_formatter("{x:.0f}")
        last.set_xlabel(f"rank of the topic, of {len(topics)} (1: the one most often wrong)")
    for name in ("accuracy", "length", "entropy"):
        axes[name].set_xlabel("step")
        axes[name].set_ylim(0, 1.05 * axes[name].dataLim.ymax or 1)
    axes["accuracy"].set_ylim(-0.03, 1.03), last.set_ylim(-0.03, 1.03)
    lines = axes["accuracy"].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=min(5, len(methods)), frameon=False)
    save(figure, path, axes, {
        "accuracy": f"{accuracy_title(some.config['data'])}, mean of the agents",
        "topics": f"final accuracy by topic (a {'dot' if few else 'line'}: one agent, one seed)",
        "length": "length of the texts in training (tokens)",
        "entropy": "their entropy (nats a token)",
    })  # fmt: skip


def draw_agon(rows: dict[str, tuple], path: Path) -> None:
    """agon.png: (a) accuracy against the length of the final answer, (b) accuracy over the problems processed."""
    figure, axes = plt.subplot_mosaic("ab", figsize=(10.5, 5), layout="constrained", width_ratios=(1, 1.3))
    for row, (length, accuracy, curve, look) in rows.items():
        y = float(np.mean(accuracy))
        spread = [[y - min(accuracy)], [max(accuracy) - y]]
        axes["a"].errorbar(length, y, spread, **look, ls="", capsize=2, lw=1, alpha=0.85, label=row)
        if len(curve[0]) > 1:
            axes["b"].plot(*curve, **look, ms=4, lw=1.6)
        else:
            axes["b"].axhline(y, color=look["color"], ls=":", lw=1.2)
    middle, (low, high) = float(np.mean([length for length, *_ in rows.values()])), axes["a"].get_xlim()
    axes["a"].set_xlim(min(low, 0.9 * middle), max(high, 1.1 * middle))  # so that a hair's breadth does not look like a change
    axes["a"].set(xlabel="length of the final answer (tokens)", ylabel="held-out pass@1")
    axes["b"].set_xlabel("problems processed")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, title="circle: one pass, square: two")
    titles = "(a) after training: mean, lowest and highest seed", "(b) over training: mean of the seeds"
    save(figure, path, axes, dict(zip("ab", titles, strict=True)))


# ---------------------------------------------------------------- the command


def finish(folder: Path) -> None:
    """Print and draw what is in a folder that cohort.py or agon.py wrote: a comparison, or one run."""
    config = runs.read_json(folder / "config.json")
    (finish_agon if "rows" in config else finish_comparison if config["compare"] else finish_run)(folder)


def main() -> int:
    """Draw and print a finished run, or a comparison, again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
