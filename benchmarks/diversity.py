"""Does diversity do what the theory says? Co-RL on six kinds of cohort, beside the forecast from each one's start.

    python benchmarks/diversity.py --seeds 0 1 2        # 18 runs of about a minute, then runs/diversity/diversity.png
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
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import cohort  # noqa: E402
import dynamics  # noqa: E402
from lab import runs, setup, style, tinyworld  # noqa: E402
from lab.data import UserError  # noqa: E402
from lab.evaluate import count_cells, evaluate, measures, omega  # noqa: E402
from lab.portraits import SHADES, outcome, portrait  # noqa: E402
from lab.report import align  # noqa: E402

KINDS = list(tinyworld.KINDS)
LARGE = ("same", "errors", "complementary")  # these have a portrait in the figure, where they were run

# ---------------------------------------------------------------- measuring


def measure(agents, test, o) -> dict:
    """How different the two agents are: kappa, rescue and omega over all topics, and omega of each (None: no two are wrong)."""
    found = [evaluate(agent, test, o.eval_k, o.max_new_tokens, o.temperature, runs.generator(o.seed, runs.EVALUATION, n))
             for n, agent in enumerate(agents)]  # the draws of the run's own evaluations
    overlap = measures(*count_cells(*([mark for group in report.right for mark in group] for report in found)))

    def same_mistake(topic: str | None) -> float | None:
        at = [i for i, problem in enumerate(test) if topic in (None, problem.topic)]
        return omega(*([report.answers[i] for i in at] for report in found), [test[i].answer for i in at])

    return {"kappa": overlap["kappa"], "rescue": overlap["rescue"], "omega": same_mistake(None),
            "topics": {topic: same_mistake(topic) for topic in found[0].by_topic}}  # fmt: skip


def train(kind: str, seed: int, args) -> Path:
    """The folder of one finished run; what is finished already is left as it is. KeyboardInterrupt if it was stopped."""
    name = f"{kind}-seed{seed}"
    folder = args.out / name
    words = ["--cohort", kind, "--seed", str(seed), "--steps", str(args.steps), "--eval-every", "25", "--save-every", "-1",
             "--device", "cpu"]  # fmt: skip
    o = cohort.parse(words + ["--rephrase", "B"] * (kind == "rephrased"), "")
    cohort.check(o)
    if begun := folder.exists():
        made_with = runs.read_json(folder / "config.json")["steps"]  # refuses what is no run: nothing of another's is touched
        if made_with != args.steps:
            raise UserError(f"{folder} has {made_with} steps, not {args.steps}: choose another --out")
        if (folder / "diversity.json").exists():
            return folder
    train_set, test = setup.read_data(o)
    work = cohort.load_work(o, (train_set, test), [o.method])
    before, done = measure(work.agents, test, o), runs.begin(folder, work.agents, o.steps) if begun else 0
    folder.mkdir(exist_ok=True)
    if not runs.train(work, o, folder, done, "benchmarks/diversity.py"):
        raise KeyboardInterrupt
    runs.write_json(folder / "diversity.json", before)  # last: it says that the run is whole
    return folder


# ---------------------------------------------------------------- forecast and outcome


def read_result(folder: Path) -> dict:
    """One run: its measures, and for each topic start [2], end [2], omega, forecast at omega and at 1, staying put, outcome."""
    run, found = runs.Run(folder), runs.read_json(folder / "diversity.json")
    first, last = (runs.by_topic(line) for line in (run.lines[0], run.lines[-1]))
    k, scale, rows = run.config["k"], "std" if run.config.get("scale", True) else "none", []
    for topic, start in first.items():
        measured = 1.0 if found["topics"][topic] is None else found["topics"][topic]  # no two were wrong: the paper's case
        told, paper = (dynamics.NAMES[int(dynamics.basin(np.array(start), k, 1.0, scale, w))] for w in (measured, 1.0))
        sides = {p > 0.5 for p in start}
        stays = "split" if len(sides) == 2 else "right" if sides == {True} else "wrong"
        rows.append({"topic": topic, "start": start, "end": last[topic], "omega": measured, "forecast": told, "paper": paper,
                     "stays": stays, "outcome": outcome(last[topic])})  # fmt: skip
    return {"k": k, "scale": scale, "seed": run.config["seed"], "rows": rows, **found}


def summary(results: list[dict]) -> dict:
    """The numbers of a kind's line, means over its runs; hits are counted among the topics that have reached an end."""
    rows = [row for result in results for row in result["rows"]]
    ended = [row for row in rows if row["outcome"] in ("right", "wrong", "split")]
    worth = {"right": 1.0, "wrong": 0.0}  # the accuracy at which a forecast sees both agents end; one half for the others
    return {
        "start": np.mean([row["start"] for row in rows], axis=0),
        "accuracy": [float(np.mean([row["end"] for row in result["rows"]])) for result in results],
        **{name: np.mean([1.0 if r[name] is None else r[name] for r in results]) for name in ("kappa", "rescue", "omega")},
        **{name: np.mean([worth.get(row[name], 0.5) for row in rows]) for name in ("forecast", "paper")},
        "hits": sum(row["forecast"] == row["outcome"] for row in ended),
        "stays": sum(row["stays"] == row["outcome"] for row in ended),
        "told": len(ended),
    }


def table(kinds: dict[str, list[dict]]) -> str:
    """A line a kind, then every topic on which forecast and outcome part."""
    lines = [("kind", "p_A", "p_B", "kappa", "rescue", "omega", "forecast", "(omega=1)", "final", "by seed", "came true",
              "staying put")]  # fmt: skip
    for kind, results in kinds.items():
        s = summary(results)
        numbers = (*s["start"], s["kappa"], s["rescue"], s["omega"], s["forecast"], s["paper"], np.mean(s["accuracy"]))
        lines.append((kind, *(f"{x:.2f}" for x in numbers), " ".join(f"{a:.2f}" for a in s["accuracy"]),
                      f"{s['hits']} of {s['told']}", f"{s['stays']}"))  # fmt: skip
    rows = [(kind, result["seed"], row) for kind, results in kinds.items() for result in results for row in result["rows"]]
    moved = [row for *_, row in rows if row["forecast"] != row["paper"]]
    parted = [found for found in rows if found[2]["forecast"] != found[2]["outcome"]]
    return "\n".join([
        align(lines),
        f"\nomega changes the forecast of {len(moved)} of {len(rows)} topics, and "
        f"{sum(row['forecast'] == row['outcome'] for row in moved)} of those came true as omega says",
        f"forecast and outcome part on {len(parted)}:",
        *(f"{kind} seed {seed}, {row['topic']}: start ({row['start'][0]:.2f}, {row['start'][1]:.2f}), omega {row['omega']:.2f}, "
          f"forecast {row['forecast']}, {row['outcome']} at ({row['end'][0]:.2f}, {row['end'][1]:.2f})"
          for kind, seed, row in parted),
    ])  # fmt: skip


# ---------------------------------------------------------------- the figure


def draw(kinds: dict[str, list[dict]], steps: int) -> Figure:
    """Squares (p_A, p_B) of up to three kinds, every topic and seed an arrow from start to end; below, all kinds' accuracies."""
    figure = Figure(figsize=(10, 4.6 + 0.4 * len(kinds)), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(3.6, 1 + 0.4 * len(kinds)))
    shown = [kind for kind in LARGE if kind in kinds] or list(kinds)[:3]
    for ax, kind in zip(above.subplots(1, len(shown), sharey=True, squeeze=False).flat, shown, strict=True):
        results, s = kinds[kind], summary(kinds[kind])
        portrait(ax, results[0]["k"], 1.0, results[0]["scale"], round(float(s["omega"]), 2), arrows=9)
        for row in (row for result in results for row in result["rows"]):
            arrow(ax, row)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="$p_A$", ylabel="", title=f"{kind}: ω = {s['omega']:.2f}\n"
               f"{s['hits']} of {s['told']} as forecast (staying put: {s['stays']})")  # fmt: skip
    above.axes[0].set_ylabel("$p_B$")
    dot = {"ls": "", "marker": "o", "color": style.BLACK}
    handles = [Line2D([], [], **dot | {"mfc": "white"}, label="before"), Line2D([], [], **dot, label="after"),
               Line2D([], [], ls=":", color=style.BLACK, label="not as forecast"),
               Patch(color=SHADES[dynamics.RIGHT], label="both end right at this ω"),
               Patch(color=SHADES[dynamics.WRONG], label="both end wrong")]  # fmt: skip
    above.legend(handles=handles, loc="outside lower center", ncols=5, columnspacing=1.2, fontsize=10)
    accuracies(below.subplots(), kinds)
    seeds = max(len(results) for results in kinds.values())
    figure.suptitle(f"{finding(kinds)}\n"
                    f"Co-RL, tiny world, {steps} steps, {seeds} seeds; a panel shows the mean ω, a forecast uses its topic's",
                    fontsize=11)  # fmt: skip
    return figure


def finding(kinds: dict[str, list[dict]]) -> str:
    """What the figure shows, in numbers: how kinds whose agents make other mistakes end, beside those that make the same."""
    found = [(s["omega"] < 0.5, np.mean(s["accuracy"])) for s in map(summary, kinds.values())]
    other, same = (np.mean([a for low, a in found if low == wanted] or [np.nan]) for wanted in (True, False))
    if np.isnan(other + same):
        return "Co-RL from peers of different kinds (ω: the chance that two wrong answers are the same)"
    return f"Cohorts whose wrong answers differ (ω < ½) end at {other:.2f}, those whose wrong answers coincide at {same:.2f}"


def arrow(ax, row: dict) -> None:
    """From start (open) to end (filled), dotted where it went against the forecast."""
    ends = np.array([row["start"], row["end"]])  # [2,2]
    ax.plot(*ends.T, ls="-" if row["forecast"] == row["outcome"] else ":", color=style.BLACK, lw=1, zorder=5)
    ax.plot(*ends[0], "o", ms=4.5, mfc="white", mec=style.BLACK, zorder=6, clip_on=False)
    ax.plot(*ends[1], "o", ms=4.5, color=style.BLACK, zorder=7, clip_on=False)


def accuracies(ax, kinds: dict[str, list[dict]]) -> None:
    """Before and after, a row for each kind: an open dot, and a filled one for each seed."""
    for i, results in enumerate(kinds.values()):
        s = summary(results)
        ax.plot(s["start"].mean(), i, "o", ms=7, mfc="white", mec=style.BLACK, label="before" if i == 0 else None)
        ax.plot(s["accuracy"], [i] * len(s["accuracy"]), "o", ms=7, color=style.METHODS["corl"], alpha=0.6, mew=0,
                label="after, a dot a seed" if i == 0 else None)  # fmt: skip
        ax.text(1.02, i, f"ω {s['omega']:.2f}, κ {s['kappa']:.2f}", va="center", fontsize=10)
    ax.set_yticks(range(len(kinds)), list(kinds))
    ax.set(xlim=(0, 1), ylim=(len(kinds) - 0.5, -0.5), xlabel="accuracy, mean of A and B over all topics")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(loc="lower left", fontsize=10)


# ---------------------------------------------------------------- the command


def main() -> None:
    """Run what is not finished yet, then print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs/diversity"), help="where the runs go, and are looked for")
    parser.add_argument("--figure", type=Path, help="default: diversity.png in --out; the README's is figures/diversity.png")
    args = parser.parse_args()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        kinds = {kind: [read_result(train(kind, seed, args)) for seed in args.seeds] for kind in args.kinds}
        print(table(kinds))
        path = args.figure or args.out / "diversity.png"
        with style.look():
            style.save(draw(kinds, args.steps), path)
    except (UserError, OSError) as error:
        sys.exit(f"diversity.py: {error}")
    print(f"\nwritten: {path}")


if __name__ == "__main__":
    main()
