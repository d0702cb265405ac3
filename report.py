"""What a run tells its reader: the progress line, the closing table, the figures.

Everything is read back from the run's own files (config.json, metrics.jsonl), so a table or a figure can be made again:

    python report.py runs/corl-001          # table, training.png; overlay.png for two agents, several topics, corl or ttrl
    python report.py runs/compare-001       # the comparison's tables and compare.png (comparison.py)

`training.png` has the panels of the Co-RL paper's Figures 2 (a to c) and 4.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import dynamics
import dynamics_runs
import runs
from tasks import UserError

COLOURS = [
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#F0E442",
]  # Okabe and Ito: safe for the colour-blind


# ---------------------------------------------------------------- while it runs


def progress(line: dict) -> str:
    """The live figures of a step: reward of each agent, agreement of the majorities, accuracy where it was just measured."""
    agents = line["agents"]
    parts = ["reward " + "/".join(f"{a['reward_mean']:.2f}" for a in agents.values())]
    if line["agreement"] is not None:
        parts.append(f"agree {line['agreement']:.2f}")
    right = [a["label_accuracy"] for a in agents.values() if a["label_accuracy"] is not None]
    if right:
        parts.append("labels right " + "/".join(f"{x:.2f}" for x in right))
    if "eval" in line:
        parts.append("acc " + "/".join(f"{e['pass1']:.2f}" for e in line["eval"].values()))
    return ", ".join(parts)


# ---------------------------------------------------------------- the closing table


def evaluations(lines: Sequence[dict]) -> list[dict]:
    """The lines on which the agents were evaluated."""
    return [line for line in lines if "eval" in line]


def finish(folder: Path) -> None:
    """Draw the figures of a run and print its closing table."""
    config, lines = runs.read_json(folder / "config.json"), runs.read_lines(folder / "metrics.jsonl")
    draw_training(folder)
    measured = evaluations(lines)
    print()
    if measured and config["data"] == "tiny":
        print(topic_table(config, measured))
    elif measured:
        print(accuracy_table(measured, config["probe_samples"]))
    if measured and measured[-1]["step"] < lines[-1]["step"]:
        print(f"after: at step {measured[-1]['step']}; the run stopped at step {lines[-1]['step']}, and was not evaluated there")
    if measured and config["agents"] == 2 and config["method"] in ("corl", "ttrl") and len(by_topic(measured[0])) > 1:
        try:
            dynamics_runs.overlay(folder, folder / "overlay.png")
        except ValueError as error:
            print(f"no overlay.png: {error}", file=sys.stderr)
    print(
        f"\nwritten: {folder}/ ({', '.join(sorted(p.name for p in folder.iterdir() if p.suffix in ('.png', '.jsonl')))})"
    )
    print(what_next(config, folder))


def what_next(config: dict, folder: Path) -> str:
    """Commands to try after a run."""
    if config["data"] != "tiny":
        commands = [
            ("python cohort.py ... --method ttrl", "the same options, each agent rewarded by its own vote"),
            ("python cohort.py ... --compare corl ttrl gt --seeds 0 1 2", "the same starts under three rewards"),
        ]
        if runs.checkpoints(folder):
            commands.append((f"python cohort.py --resume {folder} --steps {2 * config['steps']}", "twice as long"))
    else:
        other, says = ("ttrl", "its own vote") if config["method"] != "ttrl" else ("corl", "its peer's vote")
        commands = [
            (f"python cohort.py --method {other}", f"the same agents, each rewarded by {says}"),
            ("python cohort.py --compare corl ttrl gt --seeds 0 1 2", "the three rewards side by side"),
            ("python cohort.py --topics bracket", "one topic alone: does the forecast fare better?"),
        ]
        if config["agents"] == 2:
            commands.append((f"python dynamics.py --overlay {folder}", "the measured paths on the phase portrait"))
    width = max(len(command) for command, _ in commands)
    return "\n".join(["next:", *(f"  {command:<{width}}  {says}" for command, says in commands)])


def forecasts(config: dict, start: np.ndarray) -> list[str]:
    """What the theory says of each topic from its start [topics,N]: "right", "wrong", ...; "" where it says nothing."""
    method = config["method"]
    # Wrong answers that scatter lose the vote long before p = 1/2: the two-answer theory does not speak of real data.
    if config["data"] != "tiny" or start.shape[1] < 2:
        return [""] * len(start)
    if method == "gt":
        return ["right"] * len(start)
    if method not in ("corl", "ttrl") and (method, start.shape[1]) != ("pooled", 2):  # pooled: known for two agents
        return [""] * len(start)
    if method != "ttrl" and config.get("cohort") in ("errors", "different"):
        return [""] * len(start)  # mistakes that differ: the forecast takes omega (benchmarks/diversity.py)
    labels = dynamics.basin(start, K=config["k"], scale="std" if config["scale"] else "none", method=method)
    return [dynamics.NAMES[int(label)] for label in labels]


@dataclass(frozen=True)
class Row:
    """One topic of the closing table."""

    topic: str
    start: list[float]  # accuracy of each agent
    end: list[float]
    forecast: str
    outcome: str

    @property
    def told(self) -> bool:
        """Whether the theory said how it would end."""
        return self.forecast in ("right", "wrong", "split")


def topic_rows(config: dict, measured: Sequence[dict]) -> list[Row]:
    """Each topic's way from the first evaluation to the last."""
    first, last = measured[0]["probes"], measured[-1]["probes"]
    topics = list(next(iter(first.values())))
    start, end = (
        [[probes[name][topic] for name in config["agent_names"]] for topic in topics] for probes in (first, last)
    )
    return [
        Row(t, s, e, f, dynamics_runs.outcome(e))
        for t, s, e, f in zip(topics, start, end, forecasts(config, np.array(start)), strict=True)
    ]


def topic_table(config: dict, measured: Sequence[dict]) -> str:
    """Each topic before and after, the side of the line it started on, and whether the forecast came true."""
    names, rows = config["agent_names"], topic_rows(config, measured)
    two = len(names) == 2
    head = (
        f"{'topic':<12}"
        + "".join(f"{name:>4} before  after" for name in names)
        + ("   p_A + p_B" if two else "")
        + "   forecast  outcome"
    )
    lines = [head, "-" * len(head)]
    for row in rows:
        total = sum(row.start)
        side = f"   {total:.2f} {'> 1' if total > 1 else '< 1' if total < 1 else '= 1'}  " if two else ""
        verdict = "" if not row.told else "  as forecast" if row.forecast == row.outcome else "  NOT as forecast"
        lines.append(
            f"{row.topic:<12}"
            + "".join(f"{s:>11.2f}  {e:>5.2f}" for s, e in zip(row.start, row.end, strict=True))
            + side
            + f"   {row.forecast or '-':<8}  {row.outcome:<7}{verdict}"
        )
    means = "".join(
        f"{np.mean([row.start[n] for row in rows]):>11.2f}  {np.mean([row.end[n] for row in rows]):>5.2f}"
        for n in range(len(names))
    )
    told = [row for row in rows if row.told]
    hits = f"{sum(row.forecast == row.outcome for row in told)} of {len(told)} forecasts came true" if told else ""
    return "\n".join([*lines, f"{'mean':<12}{means}   {hits}"])


def accuracy_table(measured: Sequence[dict], samples: int) -> str:
    """pass@1 with its interval and maj@k, before and after; `samples` are behind each topic's accuracy."""
    lines = [f"{'agent':<8}{'':<8}{'pass@1':>8}  {'95 % interval':<16}{'maj@k':>6}{'length':>8}{'truncated':>11}"]
    for name in measured[0]["eval"]:
        for when, line in (("before", measured[0]), ("after", measured[-1])):
            e = line["eval"][name]
            lines.append(
                f"{name:<8}{when:<8}{e['pass1']:>8.3f}  ({e['low']:.3f}, {e['high']:.3f})  "
                f"{e['majk']:>6.3f}{e['length']:>8.1f}{e['truncated']:>11.2f}"
            )
    lines += [
        f"hardened wrong, right in under 10 % of samples: {name} {listed(found, measured[-1])}"
        for name, found in hardened(measured[-1], samples).items()
        if found
    ]
    return "\n".join(lines)


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


def accuracy_title(data: str) -> str:
    """What a figure calls the accuracy over training. All 64 sums are trained on; elsewhere it is of problems held out."""
    return "pass@1" if data == "sums" else "held-out pass@1"


def by_topic(line: dict) -> dict[str, list[float]]:
    """topic -> accuracy of every agent on an evaluated line."""
    names = list(line["probes"])
    return {topic: [line["probes"][name][topic] for name in names] for topic in line["probes"][names[0]]}


# ---------------------------------------------------------------- figures


def draw_training(folder: Path) -> None:
    """training.png: accuracy, agreement and pseudo-label accuracy, reward std, completion length over the steps."""
    config, lines = runs.read_json(folder / "config.json"), runs.read_lines(folder / "metrics.jsonl")
    measured, steps = evaluations(lines), [line for line in lines if "agents" in line]
    figure, axes = plt.subplots(2, 2, figsize=(8, 5.6), sharex=True, layout="constrained")
    (accuracy, agreement), (spread, length) = axes
    x = [line["step"] for line in steps]
    for i, name in enumerate(config["agent_names"]):
        colour = COLOURS[i % len(COLOURS)]
        if measured:
            t, e = [m["step"] for m in measured], [m["eval"][name] for m in measured]
            accuracy.plot(t, [m["pass1"] for m in e], "o-", ms=3, color=colour, label=name)
            accuracy.fill_between(t, [m["low"] for m in e], [m["high"] for m in e], color=colour, alpha=0.12, lw=0)
        own = [line["agents"][name] for line in steps]
        agreement.plot(x, smooth([a["label_accuracy"] for a in own]), color=colour, label=f"label of {name} right")
        spread.plot(x, smooth([a["reward_std"] for a in own]), color=colour, label=name)
        length.plot(x, smooth([a["length"] for a in own]), color=colour, label=name)
    agreement.plot(x, smooth([line["agreement"] for line in steps]), color="black", ls="--", label="majorities agree")
    for axis, title in (
        (accuracy, accuracy_title(config["data"])),
        (agreement, "agreement and pseudo-label accuracy"),
        (spread, "reward std within a group"),
        (length, "completion length (tokens)"),
    ):
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8, frameon=False)
    accuracy.set_ylim(0, 1), agreement.set_ylim(0, 1.03)
    spread.set_xlabel("step"), length.set_xlabel("step")
    figure.suptitle(
        f"{config['method']}, {config['agents']} agents, K = {config['k']}, seed {config['seed']}", fontsize=11
    )
    save(figure, folder / "training.png")


def save(figure, path: Path) -> None:
    """Write a figure beside its place and rename it."""
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, dpi=150, format="png")
    plt.close(figure)
    temporary.replace(path)


def smooth(values: Sequence[float | None], width: int = 5) -> np.ndarray:
    """Running mean over the last `width` steps; steps without a value are passed over."""
    x = np.array([np.nan if v is None else v for v in values], dtype=float)
    if not len(x):
        return x
    known = ~np.isnan(x)
    total, count = (np.convolve(y, np.ones(width))[: len(x)] for y in (np.where(known, x, 0), known.astype(float)))
    return np.divide(total, count, out=np.full(len(x), np.nan), where=count > 0)


def mean_curve(seeds: Sequence[tuple[Sequence[int], Sequence[float]]]) -> tuple[list[int], list[float]]:
    """The mean of curves (steps, values), at the steps that all have: a run taken up alone may have been measured once more."""
    known = [dict(zip(*curve, strict=True)) for curve in seeds]
    shared = [step for step in known[0] if all(step in curve for curve in known)]
    return shared, [float(np.mean([curve[step] for curve in known])) for step in shared]


def main() -> int:
    """Draw and print a finished run, or a comparison, again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that cohort.py wrote")
    folder = parser.parse_args().folder
    from comparison import finish_comparison  # it imports this module

    try:
        finish_comparison(folder) if runs.read_json(folder / "config.json")["compare"] else finish(folder)
        return 0
    except UserError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 2
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        print(
            f"report.py: {folder} is not a whole run of this version: {type(error).__name__}: {error}", file=sys.stderr
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
