"""What a run tells its reader: the progress line, the closing table, the figures.

Everything is read back from the run's own files (config.json, metrics.jsonl), so a table or a figure can be made again:

    python report.py runs/corl-001          # table, training.png and, for two agents, overlay.png
    python report.py runs/compare-001       # the comparison's table and compare.png

`training.png` has the panels of the Co-RL paper's Figures 2 (a to c) and 4.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import dynamics
import dynamics_runs
import runs
from evaluate import clopper_pearson
from rollout import Agent
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


def memory(agents: Sequence[Agent], o) -> str:
    """An estimate, before training, of what fills memory, activations apart.

    Sampling holds the cache of every rollout, and logits of one token of each, as float32, three times (scores,
    probabilities, their sums); learning holds those of every token of a micro-batch, their float32 copies and gradients:
    about 2 size + 18 bytes a logit, as measured with checkpointing (benchmarks/README.md, g). Agents sample and learn one
    after the other, so the largest counts.
    """
    giga = 2**30
    models = {id(a.model): a.model for a in agents}.values()
    weights = sum(p.numel() * p.element_size() for m in models for p in m.parameters())
    weights += sum(p.numel() * p.element_size() for a in agents if a.reference for p in a.reference.parameters())
    trained = [p for a in agents if a.optimizer for p in a.parameters()]  # not a teacher's
    optimizer = 3 * sum(p.numel() * p.element_size() for p in trained)  # gradient, two moments
    rollouts, learned = o.prompts * o.k, min(o.micro_batch, o.prompts) * o.k * o.max_new_tokens
    shapes = [(m.config.get_text_config(), next(m.parameters()).element_size()) for m in models]
    cache = max(rollouts * (o.max_new_tokens + 256) * cached_per_token(config) * size for config, size in shapes)
    sampling = cache + max(3 * 4 * rollouts * config.vocab_size for config, _ in shapes)
    learning = max((2 * size + 18) * learned * config.vocab_size for config, size in shapes)
    total = weights + optimizer + max(sampling, learning)
    return (
        f"memory: about {total / giga:.1f} GiB = weights {weights / giga:.1f} + optimizer {optimizer / giga:.1f} + the larger "
        f"of sampling {sampling / giga:.1f} (prompts of 256 tokens; lower --prompts, --k, --max-new-tokens) and "
        f"learning {learning / giga:.1f} (logits alone; lower --micro-batch, --k, --max-new-tokens)"
    )


def cached_per_token(config) -> int:
    """Numbers that the cache keeps of one token: a key and a value in every layer."""
    if not hasattr(config, "num_attention_heads"):
        return 0  # a recurrent state, whose size does not grow with the text
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * getattr(config, "num_key_value_heads", config.num_attention_heads) * head


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
        print(accuracy_table(measured))
    if measured and config["agents"] == 2 and config["method"] in ("corl", "ttrl") and len(by_topic(measured[0])) > 1:
        try:
            dynamics_runs.overlay(folder, folder / "overlay.png")
        except ValueError as error:
            print(f"no overlay.png: {error}", file=sys.stderr)
    print(
        f"\nwritten: {folder}/ ({', '.join(sorted(p.name for p in folder.iterdir() if p.suffix in ('.png', '.jsonl')))})"
    )
    if config["data"] == "tiny":
        print(NEXT.format(folder=folder))


NEXT = """\
next:
  python cohort.py --method ttrl                         the same agents, each rewarded by its own vote
  python cohort.py --compare corl ttrl gt --seeds 0 1 2  the three rewards side by side
  python cohort.py --topics bracket                      one topic alone: does the forecast fare better?
  python dynamics.py --overlay {folder}   the measured paths on the phase portrait"""


def forecasts(config: dict, start: np.ndarray) -> list[str]:
    """What the theory says of each topic from its start [topics,N]: "right", "wrong", ...; "" where it says nothing."""
    method = config["method"]
    # Wrong answers that scatter lose the vote long before p = 1/2: the two-answer theory does not speak of real data.
    if config["data"] != "tiny" or start.shape[1] < 2:
        return [""] * len(start)
    if method == "gt":
        return ["right"] * len(start)
    if method not in ("corl", "ttrl"):
        return [""] * len(start)
    labels = dynamics.basin(start, K=config["k"], scale="std" if config["scale"] else "none", method=method)
    return [dynamics.NAMES[int(label)] for label in labels]


def topic_rows(config: dict, measured: Sequence[dict]) -> list[tuple]:
    """(topic, start [N], end [N], forecast, outcome) of each topic."""
    first, last = measured[0]["probes"], measured[-1]["probes"]
    topics = list(next(iter(first.values())))
    start, end = (
        [[probes[name][topic] for name in config["agent_names"]] for topic in topics] for probes in (first, last)
    )
    return [
        (t, s, e, f, dynamics_runs.outcome(e))
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
    for topic, start, end, forecast, result in rows:
        side = f"   {sum(start):.2f} {'> 1' if sum(start) > 1 else '< 1' if sum(start) < 1 else '= 1'}  " if two else ""
        verdict = (
            ""
            if forecast not in ("right", "wrong", "split")
            else "  as forecast"
            if forecast == result
            else "  NOT as forecast"
        )
        lines.append(
            f"{topic:<12}"
            + "".join(f"{s:>11.2f}  {e:>5.2f}" for s, e in zip(start, end, strict=True))
            + side
            + f"   {forecast or '-':<8}  {result:<7}{verdict}"
        )
    means = "".join(
        f"{np.mean([r[1][n] for r in rows]):>11.2f}  {np.mean([r[2][n] for r in rows]):>5.2f}"
        for n in range(len(names))
    )
    told = [r for r in rows if r[3] in ("right", "wrong", "split")]
    hits = f"{sum(r[3] == r[4] for r in told)} of {len(told)} forecasts came true" if told else ""
    return "\n".join([*lines, f"{'mean':<12}{means}   {hits}"])


def accuracy_table(measured: Sequence[dict]) -> str:
    """pass@1 with its interval and maj@k, before and after."""
    lines = [f"{'agent':<8}{'':<8}{'pass@1':>8}  {'95 % interval':<16}{'maj@k':>6}{'length':>8}{'truncated':>11}"]
    for name in measured[0]["eval"]:
        for when, line in (("before", measured[0]), ("after", measured[-1])):
            e = line["eval"][name]
            lines.append(
                f"{name:<8}{when:<8}{e['pass1']:>8.3f}  ({e['low']:.3f}, {e['high']:.3f})  "
                f"{e['majk']:>6.3f}{e['length']:>8.1f}{e['truncated']:>11.2f}"
            )
    lines += [
        f"hardened wrong, right in under 10 % of samples: {name} {' '.join(found)}"
        for name, found in hardened(measured[-1]).items()
        if found
    ]
    return "\n".join(lines)


def hardened(line: dict) -> dict[str, list[str]]:
    """agent -> the topics (or single problems) that it gets right in under 10 % of samples; {} where there is but one topic."""
    if len(next(iter(line["probes"].values()))) == 1:
        return {}
    return {name: [topic for topic, p in probes.items() if p < 0.1] for name, probes in line["probes"].items()}


# ---------------------------------------------------------------- figures


def draw_training(folder: Path) -> None:
    """training.png: accuracy, agreement and pseudo-label accuracy, reward std, completion length over the steps."""
    config, lines = runs.read_json(folder / "config.json"), runs.read_lines(folder / "metrics.jsonl")
    measured, steps = evaluations(lines), [line for line in lines if "agents" in line]
    figure, axes = plt.subplots(2, 2, figsize=(8, 5.6), sharex=True, layout="constrained")
    (accuracy, agreement), (spread, length) = axes
    x = [line["step"] for line in steps]
    for name, colour in zip(config["agent_names"], itertools.cycle(COLOURS), strict=False):
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
        (accuracy, "held-out pass@1"),
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


# ---------------------------------------------------------------- comparisons


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


def finish_comparison(folder: Path) -> None:
    """Print the table of a comparison and draw compare.png."""
    print()
    print(comparison_table(folder))
    draw_comparison(folder)
    if runs.read_json(folder / "config.json")["data"] != "tiny":
        print("\nhardened wrong (right in under 10 % of samples), by method, seed and agent:")
        for method, places in children(folder).items():
            for place in places:
                last = evaluations(runs.read_lines(place / "metrics.jsonl"))[-1]
                seed = runs.read_json(place / "config.json")["seed"]
                print(
                    "\n".join(
                        f"  {method:<8} seed {seed} {name}: {len(found):>2}  {' '.join(found)}"
                        for name, found in hardened(last).items()
                    )
                )
    print(f"\nwritten: {folder}/ (compare.png, and a folder for each run)")


def comparison_table(folder: Path) -> str:
    """A line for each method: mean accuracy before and after, its interval over all seeds, ends of topics, forecasts."""
    form = "{:<10}{:>7}{:>7}  {:<15}{:<17}{:>6}{:>6}{:>6}  {:<11}{:>9}"
    lines = [
        form.format(
            "method", "before", "after", "95 % interval", "by seed", "right", "split", "wrong", "forecasts", "tokens"
        )
    ]
    for method, places in children(folder).items():
        before, after, tokens, results, told = [], [], 0, [], []
        for place in places:
            config, record = runs.read_json(place / "config.json"), runs.read_lines(place / "metrics.jsonl")
            first, *_, last = evaluations(record)
            before.append(mean_accuracy(first))
            after.append(mean_accuracy(last))
            trials = last["problems"]  # the same problems for every agent and seed: they are not independent trials
            tokens += sum(a["tokens"] for line in record if "agents" in line for a in line["agents"].values())
            rows = topic_rows(config, [first, last])
            results += [row[4] for row in rows]
            told += [row[3] == row[4] for row in rows if row[3] in ("right", "wrong", "split")]
        low, high = clopper_pearson(round(float(np.mean(after)) * trials), trials)
        ends = (results.count(name) for name in ("right", "split", "wrong"))
        lines.append(
            form.format(
                method,
                f"{np.mean(before):.3f}",
                f"{np.mean(after):.3f}",
                f"({low:.3f}, {high:.3f})",
                " ".join(f"{a:.2f}" for a in after),
                *ends,
                f"{sum(told)} of {len(told)}" if told else "-",
                f"{tokens / 1e6:.2f} M",
            )
        )
    return "\n".join(lines)


def mean_accuracy(line: dict) -> float:
    """pass@1 on an evaluated line, mean of the agents."""
    return float(np.mean([e["pass1"] for e in line["eval"].values()]))


def draw_comparison(folder: Path) -> None:
    """compare.png: accuracy over the steps, and final accuracy by topic; a colour a method, a thin line or a dot a seed."""
    methods = children(folder)
    figure, (curve, final) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=(1, 1.3))
    for i, (method, places) in enumerate(methods.items()):
        colour, curves = COLOURS[i % len(COLOURS)], []
        for place in places:
            measured = evaluations(runs.read_lines(place / "metrics.jsonl"))
            t = [m["step"] for m in measured]
            curves.append([mean_accuracy(m) for m in measured])
            curve.plot(t, curves[-1], color=colour, lw=0.7, alpha=0.5)
            for j, p in enumerate(by_topic(measured[-1]).values()):
                final.plot(
                    [j + (i - (len(methods) - 1) / 2) * 0.2] * len(p), p, "o", ms=4, color=colour, alpha=0.6, mew=0
                )
        curve.plot(t, np.mean(curves, 0), color=colour, lw=2.2, label=method)
    topics = list(by_topic(measured[-1]))
    final.set_xticks(
        range(len(topics)), topics, rotation=20 if len(topics) < 10 else 90, fontsize=9 if len(topics) < 10 else 5
    )
    for axis, title in (
        (curve, "held-out pass@1, mean of the agents"),
        (final, "final accuracy by topic (a dot: one agent, one seed)"),
    ):
        axis.set_title(title, fontsize=10), axis.set_ylim(-0.03, 1.03), axis.grid(alpha=0.3)
    curve.set_xlabel("step"), curve.legend(frameon=False)
    save(figure, folder / "compare.png")


def by_topic(line: dict) -> dict[str, list[float]]:
    """topic -> accuracy of every agent on an evaluated line."""
    names = list(line["probes"])
    return {topic: [line["probes"][name][topic] for name in names] for topic in line["probes"][names[0]]}


def main() -> int:
    """Draw and print a finished run, or a comparison, again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that cohort.py wrote")
    folder = parser.parse_args().folder
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
