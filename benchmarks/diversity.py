"""Does diversity do what the theory says? Co-RL on six kinds of cohort, beside the forecast from each one's start.

    python benchmarks/diversity.py --seeds 0 1 2        # 18 runs of about a minute, then figures/diversity.png
    python benchmarks/diversity.py --seeds 0 1 2        # again: finished runs are read, not repeated

Agent A is the same in all kinds, only its peer B differs (tinyworld.KINDS):

    same           B is a copy of A
    seed           A's strengths and mistakes, from other warm-up texts
    errors         A's strengths, and another mistake in every topic
    complementary  strong where A is weak, A's mistakes (what cohort.py does unless told otherwise)
    different      strong where A is weak, and other mistakes
    rephrased      A's strengths in the usual notation, the complementary ones in the other, and B reads the other

The forecast of a topic is made from three measured numbers: p_A and p_B, the shares of right samples before training, and
omega, the chance that a wrong sample of A and a wrong one of B, of the same question, have the same answer. The theory is
dynamics.py's, dp_A/dt = q(p_A) [r_K(p_B) - omega w_K(p_B)] and the same for B (omega is ours, the paper has omega = 1). It
holds omega constant, though it changes as the agents do, and treats each topic by itself. Nothing is fitted.
"""

import argparse
import shutil
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import cohort  # noqa: E402
import dynamics  # noqa: E402
from cohort import Options, check, parse  # noqa: E402
from dynamics import RIGHT, WRONG  # noqa: E402
from lab import (
    runs,  # noqa: E402
    tinyworld,  # noqa: E402
)
from lab.answers import canonical, same_answer  # noqa: E402
from lab.data import UserError  # noqa: E402
from lab.evaluate import error_overlap, evaluate  # noqa: E402
from lab.portraits import BLACK, BLUE, GREY, RED, SHADES, STYLE, load_run, outcome, portrait, square  # noqa: E402  # noqa: E402

KINDS = list(tinyworld.KINDS)

# ---------------------------------------------------------------- measuring


def wrong_coincidence(a: list[list[str | None]], b: list[list[str | None]], truths: list[str]) -> tuple[int, int]:
    """(alike, pairs): of all pairs of a wrong sample of A and a wrong one of B, of the same question, those that agree.

    (`evaluate.pairs` holds sample j beside sample j only: the same quantity, from fewer pairs.)

    a, b: [P][K] answers of either agent to the same P questions. alike / pairs is omega. All K x K pairs are counted. A
    sample without an answer is wrong, and is like no other.
    """
    alike = pairs = 0
    for group_a, group_b, truth in zip(a, b, truths, strict=True):
        wrong_a, wrong_b = ([x for x in group if not same_answer(x, truth)] for group in (group_a, group_b))
        keys_b = [canonical(y) for y in wrong_b if y is not None]
        alike += sum(keys_b.count(canonical(x)) for x in wrong_a if x is not None)
        pairs += len(wrong_a) * len(wrong_b)
    return alike, pairs


def measure(agents, test, o: Options) -> dict:
    """How different the two agents are: kappa and rescue over all topics, and the pairs of wrong samples by topic."""
    found = [evaluate(agent, test, o.eval_k, o.max_new_tokens, o.temperature, runs.generator(o.seed, runs.EVALUATION, n))
             for n, agent in enumerate(agents)]  # the draws of the run's own evaluations
    marks = [[mark for group in report.right for mark in group] for report in found]
    overlap, topics = error_overlap(*marks), {}
    for topic in found[0].by_topic:
        at = [i for i, problem in enumerate(test) if problem.topic == topic]
        answers = [[report.answers[i] for i in at] for report in found]
        alike, pairs = wrong_coincidence(*answers, [test[i].answer for i in at])
        topics[topic] = {"alike": alike, "pairs": pairs}
    return {"kappa": overlap.kappa, "rescue": overlap.rescue, "topics": topics}


def train(kind: str, seed: int, args) -> Path:
    """The folder of one finished run; what is finished already is left as it is. KeyboardInterrupt if it was stopped."""
    name = f"{kind}-seed{seed}"
    folder = args.out / name
    if (folder / "diversity.json").exists():
        made_with = runs.read_json(folder / "config.json")["steps"]
        if made_with != args.steps:
            raise UserError(f"{folder} has {made_with} steps, not {args.steps}: choose another --out")
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # broken off before its end
    words = ["--cohort", kind, "--seed", str(seed), "--steps", str(args.steps), "--eval-every", "25", "--save-every", "-1",
             "--device", "cpu", "--out", str(args.out), "--name", name]
    o = parse(words + ["--rephrase", "B"] * (kind == "rephrased"), "")
    check(o)
    train_set, test = cohort.read_data(o)
    work = cohort.load_work(o, (train_set, test), [o.method])
    runs.create(o.out, o.name, "corl")
    before = measure(work.agents, test, o)
    if not runs.train(work, o, folder, 0, "benchmarks/diversity.py"):
        raise KeyboardInterrupt
    runs.write_json(folder / "diversity.json", before)  # last: it says that the run is whole
    return folder


# ---------------------------------------------------------------- forecast and outcome


def omega_of(topics: list[dict]) -> float:
    """omega over some topics; 1 where there was no pair of wrong samples, the paper's case."""
    pairs = sum(t["pairs"] for t in topics)
    return sum(t["alike"] for t in topics) / pairs if pairs else 1.0


def read_result(folder: Path) -> dict:
    """One run: its measures, and for each topic start [2], end [2], omega, forecast at omega and at 1, and outcome."""
    run, found = load_run(folder), runs.read_json(folder / "diversity.json")
    rows = []
    for topic, points in run.paths.items():
        omega = omega_of([found["topics"][topic]])
        forecasts = [dynamics.NAMES[int(dynamics.basin(points[0], run.K, scale=run.scale, overlap=w))] for w in (omega, 1.0)]
        rows.append({"topic": topic, "start": points[0], "end": points[-1], "omega": omega, "forecast": forecasts[0],
                     "paper": forecasts[1], "outcome": outcome(points[-1])})
    return {"run": run, "rows": rows, **found}


def expected_accuracy(word: str) -> float:
    """The accuracy with which a forecast says that both agents end."""
    return {"right": 1.0, "wrong": 0.0}.get(word, 0.5)


def summary(results: list[dict]) -> dict:
    """The numbers of a kind's line, from its runs over the seeds."""
    rows = [row for result in results for row in result["rows"]]
    accuracy = [float(np.mean([row["end"] for row in result["rows"]])) for result in results]
    return {
        "start": np.mean([row["start"] for row in rows], axis=0),
        "kappa": np.mean([r["kappa"] for r in results]),
        "rescue": np.mean([r["rescue"] for r in results]),
        "omega": omega_of([t for r in results for t in r["topics"].values()]),
        "accuracy": accuracy,
        "forecast": np.mean([expected_accuracy(row["forecast"]) for row in rows]),
        "paper": np.mean([expected_accuracy(row["paper"]) for row in rows]),
        "hits": sum(row["forecast"] == row["outcome"] for row in rows),
        "told": len(rows),
    }


def table(kinds: dict[str, list[dict]]) -> str:
    """A line a kind, then every topic on which forecast and outcome part."""
    lines = ["kind            p_A   p_B  kappa  rescue  omega   forecast  (omega=1)   final  by seed             came true"]
    for kind, results in kinds.items():
        s = summary(results)
        seeds = " ".join(f"{a:.2f}" for a in s["accuracy"])
        lines.append(f"{kind:<14}{s['start'][0]:5.2f} {s['start'][1]:5.2f} {s['kappa']:6.2f} {s['rescue']:7.2f} {s['omega']:6.2f}"
                     f"{s['forecast']:11.2f} {s['paper']:10.2f} {np.mean(s['accuracy']):7.2f}  {seeds:<20}"
                     f"{s['hits']:2} of {s['told']}")
    rows = [row for results in kinds.values() for result in results for row in result["rows"]]
    moved = [row for row in rows if row["forecast"] != row["paper"]]
    lines.append(f"\nomega changes the forecast of {len(moved)} of {len(rows)} topics, and "
                 f"{sum(row['forecast'] == row['outcome'] for row in moved)} of those came true as omega says")
    lines.append(f"forecast and outcome part on {sum(row['forecast'] != row['outcome'] for row in rows)}:")
    for kind, results in kinds.items():
        for result in results:
            for row in result["rows"]:
                if row["forecast"] != row["outcome"]:
                    (a, b), (c, d) = row["start"], row["end"]
                    lines.append(f"{kind:<14} seed {result['run'].seed}  {row['topic']:<11} ({a:.2f}, {b:.2f}), omega "
                                 f"{row['omega']:.2f}: forecast {row['forecast']}, ended {row['outcome']} ({c:.2f}, {d:.2f})")
    return "\n".join(lines)


# ---------------------------------------------------------------- the figure


TITLES = {
    "same": "B is a copy of A",
    "seed": "B is trained as A",
    "errors": "other mistakes",
    "complementary": "other strengths",
    "different": "both are other",
    "rephrased": "other in words",
}


def draw(kinds: dict[str, list[dict]], path: Path) -> None:
    """A square (p_A, p_B) for each kind, every topic and seed an arrow from start to end; beside them the accuracies."""
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(11, 6.8), layout="constrained")
        squares, side = figure.subfigures(1, 2, width_ratios=(2.2, 1))
        axes = squares.subplots(2, 3, sharex=True, sharey=True)
        for ax, (kind, results) in zip(axes.flat, kinds.items(), strict=False):
            s = summary(results)
            portrait(ax, results[0]["run"].K, scale=results[0]["run"].scale, overlap=round(s["omega"], 2), arrows=9)
            for row in (row for result in results for row in result["rows"]):
                arrow(ax, row)
            square(ax, "", "")
            ax.set_title(f"{kind}: {TITLES[kind]}\nω = {s['omega']:.2f}, {s['hits']} of {s['told']} as forecast", fontsize=9.5)
        squares.supxlabel("$p_A$, agent A is right", fontsize=11)
        squares.supylabel("$p_B$, agent B is right", fontsize=11)
        handles = [Line2D([], [], ls="", marker="o", mfc="white", mec=BLACK, label="before"),
                   Line2D([], [], ls="", marker="o", color=BLACK, label="after"),
                   Patch(color=SHADES[RIGHT], label="predicted to end right"),
                   Patch(color=SHADES[WRONG], label="predicted to end wrong")]
        squares.legend(handles=handles, loc="outside upper center", ncol=4, fontsize=9.5, columnspacing=1.2)
        accuracies(side.subplots(), kinds)
        figure.savefig(path)
        plt.close(figure)


def arrow(ax, row: dict) -> None:
    """From start (open) to end (filled); blue if both end right, red if both end wrong, dotted against the forecast."""
    colour = {"right": BLUE, "wrong": RED}.get(row["outcome"], GREY)
    ends = np.array([row["start"], row["end"]])  # [2,2]
    ax.plot(*ends.T, ls="-" if row["forecast"] == row["outcome"] else ":", color=colour, lw=1.2, zorder=5)
    ax.plot(*ends[0], "o", ms=4.5, mfc="white", mec=colour, zorder=6, clip_on=False)
    ax.plot(*ends[1], "o", ms=4.5, color=colour, zorder=7, clip_on=False)


def accuracies(ax, kinds: dict[str, list[dict]]) -> None:
    """Before, forecast and after, a row for each kind."""
    for i, results in enumerate(kinds.values()):
        s = summary(results)
        ax.barh(i, s["forecast"], height=0.62, color="#E4E4E4", zorder=1, label="forecast for the end" if i == 0 else None)
        ax.plot(s["start"].mean(), i, "o", ms=7, mfc="white", mec=BLACK, zorder=3, label="before" if i == 0 else None)
        ax.plot(s["accuracy"], [i] * len(s["accuracy"]), "o", ms=7, color=BLUE, alpha=0.6, mew=0, zorder=4,
                label="after, a dot a seed" if i == 0 else None)
    ax.set_yticks(range(len(kinds)), list(kinds))
    ax.invert_yaxis()
    ax.xaxis.label.set_size(10)
    ax.set(xlim=(0, 1.04), xticks=[0, 0.25, 0.5, 0.75, 1], xlabel="accuracy, mean of A and B")
    ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), fontsize=9.5)


# ---------------------------------------------------------------- the command


def main() -> None:
    """Run what is not finished yet, then print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs/diversity"), help="where the runs go, and are looked for")
    parser.add_argument("--figure", type=Path, default=Path(__file__).parent.parent / "figures" / "diversity.png")
    args = parser.parse_args()
    kinds = {kind: [] for kind in args.kinds}
    try:
        for seed in args.seeds:
            for kind in args.kinds:
                kinds[kind].append(read_result(train(kind, seed, args)))
    except UserError as error:
        sys.exit(f"diversity.py: {error}")
    print(table(kinds))
    draw(kinds, args.figure)
    print(f"\nwritten: {args.figure}")


if __name__ == "__main__":
    main()
