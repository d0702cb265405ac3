"""What a run tells its reader: closing tables and figures, all read back from the files of a run or of a comparison.

    python -m lab.report runs/corl-001             # a run of cohort.py: its table, training.png, overlay.png for two agents
    python -m lab.report runs/compare-001          # methods of cohort.py side by side: their tables and compare.png
    python -m lab.report runs/agon-001             # methods of agon.py: the rows of the paper's Table 3, and agon.png
    python -m lab.report runs/agon-001/agon-seed0  # one of these methods: its table and training.png

`training.png` and `compare.png` have the panels of the Co-RL paper's Figures 2 (a to c), 4 and 5. What is printed is also
kept as table.txt. A question without a label counts as not right in label accuracy, and as disagreement in agreement.
"""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from lab import portraits, runs, style
from lab.charts import (
    BASES,
    ENDS,
    FEW,
    NAMES,
    PAIR,
    Side,
    draw_agon,
    draw_comparison,
    draw_paths,
    draw_training,
    evaluations,
    finished,
    mean,
    paired,
    parts,
    problems,
    stuck,
)
from lab.data import WORLDS, UserError
from lab.runs import Run, by_topic
from rewards import REWARDS

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
LATE = {"label_accuracy": ("label right", ".2f"), "labelled": ("labelled", ".2f"), "reward_std": ("reward std", ".3f"),
        "length": ("length", ".1f"), "truncated": ("cut off", ".2f"), "entropy": ("entropy", ".3f")}  # fmt: skip
LAST = 10  # steps at the end of training that a table describes

# ---------------------------------------------------------------- text


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


# ---------------------------------------------------------------- one run


def report_run(folder: Path) -> str:
    """Draw the figures of a run; its closing table."""
    run = Run(folder)
    if not run.lines:
        raise UserError(f"{folder} has no step yet, so there is nothing to show")
    measured, last, text = run.measured, run.lines[-1]["step"], []
    if measured:
        cohort = "probes" in measured[0]
        text.append(topic_table(run) if cohort and run.config["data"] in WORLDS else accuracy_table(run))
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
    for which, name in [(on, name) for on in evaluations(run) for name in run.measured[-1][on]]:
        for when, line in list(zip(("before", "after"), (run.measured[0], run.measured[-1]), strict=True))[: len(run.measured)]:
            e = line[which][name]  # of agon.py the start is measured in more ways
            figures = f"{e['majk']:.3f}" if "majk" in e else "-", f"{e['length']:.1f}", f"{e['truncated']:.2f}"
            cells.append([name + which[4:], when, f"{e['pass1']:.3f}", f"({e['low']:.3f}, {e['high']:.3f})", *figures])
    text = [align(cells), f"interval: of the {problems(run.measured[0])} problems"]
    for name, found in stuck(run).items():
        which = f"{len(found)} of {len(by_topic(run.measured[0]))} problems: {', '.join(found) or 'none'}"
        text += textwrap.wrap(f"{name} is right in under 10% of samples of {which}", 80)
    return "\n".join(text)


# ---------------------------------------------------------------- methods side by side


def report_comparison(folder: Path, whole: dict) -> str:
    """Draw compare.png, and paths.png for Co-RL beside TTRL; the tables of a comparison of cohort.py."""
    done = {method: found for method in whole["compare"] if (found := finished(folder, whole, method))}
    if not done:
        raise UserError(f"{folder} has no finished run with an evaluation, so there is nothing to compare")
    sides = {method: Side(NAMES.get(method, method), style.METHODS.get(method, style.GREY), members)
             for method, members in done.items()}  # fmt: skip
    draw_comparison(sides, folder / "compare.png")
    if whole["data"] in WORLDS and {"ttrl", "corl"} <= set(done) and len(done["corl"][0].measured[0]["probes"]) == 2:
        draw_paths(done["ttrl"][0], done["corl"][0], folder / "paths.png")
    return comparison_tables(list(sides.values()))


def comparison_tables(sides: Sequence[Side]) -> str:
    """How often each method is right; where its topics end, and whether as forecast; its completions in the last steps."""
    some = sides[0].runs[0]
    held = bool(stuck(some))
    rows = {side.name: [(run, row) for run in side.runs for row in portraits.topic_rows(run)] for side in sides}
    said, misses = any(row.forecast for found in rows.values() for _, row in found), []
    seeds = " or ".join(map(str, sorted({len(side.runs) for side in sides})))
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
        f"\nwhere {len(by_topic(some.measured[0]))} topics x {seeds} seeds ended",
        align(ends),
        "right, wrong: every agent above 0.8, below 0.2; split: some above and some below",
        *["not as forecast:", *misses] * bool(misses),
        f"\nin training, mean of the last {LAST} steps; a question without a label is not right",
        align(late), *elsewhere(sides),
    ])  # fmt: skip


def elsewhere(sides: Sequence[Side]) -> list[str]:
    """Every side on the problems of --eval-data, before and after; [] without any."""
    cells = [["other problems", "", "before", "after", "by seed"]]
    for which in evaluations(sides[0].runs[0])[1:]:
        for side in sides:
            before, after = side.score(0, which=which), side.score(which=which)
            cells.append([which[8:], side.name, f"{mean(before):.3f}", f"{mean(after):.3f}", by_seed(after)])
    return ["", align(cells)] if cells[1:] else []


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
        "vs: mean of the differences seed by seed; to GRPO with as many passes", *elsewhere(list(sides.values())),
    ])  # fmt: skip


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
    except (UserError, OSError) as error:
        print(f"report.py: {error}", file=sys.stderr)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        print(f"report.py: {folder} is not a whole run of this version: {type(error).__name__}: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
