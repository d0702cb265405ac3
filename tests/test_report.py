"""Tables and figures, from metrics that are written by hand: what they say can be computed on paper."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from lab import charts, report, runs, style
from lab.data import UserError

STEP = {"reward_std": 0.1, "length": 9.0, "truncated": 0.25, "entropy": 0.2, "grad_norm": 0.3, "labelled": 0.75,
        "label_accuracy": 0.5, "accuracy": 0.5, "tokens": 500_000}  # fmt: skip


def write(place: Path, config: dict, lines: list[dict]) -> Path:
    """The files of a run."""
    place.mkdir(parents=True)
    runs.write_json(place / "config.json", config)
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def evaluated(step: int, probes: dict, problems: int = 20) -> dict:
    """A line of an evaluation of cohort.py; probes: agent -> topic -> accuracy."""
    score = {name: {"pass1": sum(p.values()) / len(p), "low": 0.3, "high": 0.7, "majk": 0.6, "length": 9.0, "truncated": 0.0}
             for name, p in probes.items()}  # fmt: skip
    return {"step": step, "probes": probes, "problems": problems, "eval": score}


def run_of(place: Path, start: dict, end: dict, steps: int = 2, **changed) -> Path:
    """A run of cohort.py of some steps, evaluated before and after."""
    config = {"method": "corl", "data": "tiny", "compare": None, "agents": len(start), "agent_names": list(start), "k": 8,
              "seed": 3, "scale": True, "cohort": "complementary", "probe_samples": 25, "steps": 2, "eval_k": 8}  # fmt: skip
    lines = [{"step": s, "seconds": 3.0, "agreement": 0.5, "agents": dict.fromkeys(start, STEP)} for s in range(1, steps + 1)]
    return write(place, config | changed, [evaluated(0, start), *lines[:-1], lines[-1] | evaluated(steps, end)])


def comparison(folder: Path, methods: dict[str, dict], start: dict, seeds=(3,), data="tiny", steps=2) -> Path:
    """The folder of a comparison by cohort.py; methods: method -> its end."""
    folder.mkdir(parents=True)
    whole = {"compare": list(methods), "seeds": list(seeds), "seed": 0, "steps": 2, "data": data}
    runs.write_json(folder / "config.json", whole)
    for method, end in methods.items():
        for seed in seeds:
            run_of(folder / f"{method}-seed{seed}", start, end, steps, method=method, seed=seed, data=data)
    return folder


def agon_comparison(folder: Path, methods: dict[str, list[float]]) -> Path:
    """The folder of a comparison by agon.py; methods: method -> pass@1 at the end, by seed, in every way of using it."""
    config = {"data": "tiny", "compare": True, "seeds": [0, 1], "seed": 0, "steps": 2, "prompts": 4, "n": 3, "eval_k": 2}
    folder.mkdir(parents=True)
    runs.write_json(folder / "config.json", config | {"rows": [method for method in methods if method != "untrained"]})
    for method, scores in methods.items():
        for seed, score in enumerate(scores):
            def line(step, p):
                e = {"pass1": p, "low": 0.1, "high": 0.9, "problems": 40, "k": 2, "length": 12.0, "truncated": 0.0, "topics": {}}
                return {"step": step, "eval": dict.fromkeys(("A", "B", "A > B", "B > A", "A > A"), e)}

            halves = {"drafter A": STEP | {"rollouts": 12}, "challenger B": STEP | {"rollouts": 12, "converted": 0.1}}
            trained = {"seconds": 3.0, "halves": halves}
            steps = [] if method == "untrained" else [{"step": 1} | trained, line(2, score) | trained]
            own = {"method": method, "seed": seed, "compare": False}
            write(folder / f"{method}-seed{seed}", config | own, [line(0, 0.2), *steps])
    return folder


def texts(figure) -> str:
    """All words of a figure."""
    words = [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]
    return "\n".join(words)


def told(folder: Path, capsys) -> str:
    """The table that `finish` prints and keeps: at most 80 columns wide."""
    report.finish(folder)
    said = (folder / "table.txt").read_text()
    assert said in capsys.readouterr().out and max(map(len, said.splitlines())) <= 80, said
    return said


# ---------------------------------------------------------------- one run


def test_a_table_of_words_and_numbers():
    """Numbers of unequal length that start in one column cannot be compared at a glance."""
    assert report.align([["", "p", "ends"], ["carry", "9.5", "right"], ["x", "10.5", "-"]]) == (
        "          p  ends\ncarry   9.5  right\nx      10.5  -"
    )


@pytest.mark.slow
def test_the_closing_table_of_a_run(tmp_path, capsys):
    """Forecast beside outcome, what staying put would have scored, how sure the numbers are, and what the run took.

    Starts .9 + .4 > 1: right, and it ends right, though B started below one half; .3 + .2 < 1: wrong. Standard error at
    most .5 / sqrt(25) = .1; two steps of two agents take 2 * 2 * 1.5 s and write 2 M tokens.
    """
    start, end = {"A": {"u": 0.9, "v": 0.3}, "B": {"u": 0.4, "v": 0.2}}, {"A": {"u": 0.95, "v": 0.05}, "B": {"u": 0.9, "v": 0.06}}
    said = told(run_of(tmp_path / "x", start, end), capsys)
    assert "u      0.90 -> 0.95  0.40 -> 0.90       1.30  right     right\n" in said
    assert "v      0.30 -> 0.05  0.20 -> 0.06       0.50  wrong     wrong\n" in said
    assert "mean   0.60 -> 0.50  0.30 -> 0.48" in said
    assert "2 of 2 forecasts came true (staying put: 1 of 2)" in said
    assert "25 samples, standard error at most 0.10" in said and "20 problems: A (0.30, 0.70), B (0.30, 0.70)" in said
    assert "2 steps took 6 s, evaluations not counted, and wrote 2.00 M tokens" in said
    assert "next:" not in said and (tmp_path / "x" / "training.png").exists() and (tmp_path / "x" / "overlay.png").exists()


def test_a_short_run_has_not_failed(tmp_path, capsys):
    """After two steps nothing has ended: "NOT as forecast" would blame the theory for the lack of time."""
    middle = {"A": {"u": 0.7}, "B": {"u": 0.6}}
    said = told(run_of(tmp_path / "x", middle, middle), capsys)
    assert "after 2 steps of Co-RL" in said and "under way" in said and "1 of 1" not in said


@pytest.mark.slow
def test_the_measured_omega_is_shown(tmp_path, capsys):
    """At omega .1 the sum of the starts does not decide: the reader must see what did."""
    start, end = {"A": {"u": 0.5}, "B": {"u": 0.4}}, {"A": {"u": 0.9}, "B": {"u": 0.9}}
    place = run_of(tmp_path / "x", start, end)
    first, *rest = runs.read_lines(place / "metrics.jsonl")
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [first | {"omega": {"u": 0.1}}, *rest]))
    said = told(place, capsys)
    assert "p_A + p_B  omega  forecast  outcome" in said and "0.90   0.10  right     right" in said


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"method": "empo"}, {"data": "sums"}])
def test_no_theory_no_forecast(tmp_path, capsys, changed):
    """A method without a theory, and real data, of which the two-answer theory does not speak: no forecast and no count."""
    high = {"A": {"1+2": 0.9, "3+4": 0.05}, "B": {"1+2": 0.9, "3+4": 0.95}}
    said = told(run_of(tmp_path / "x", high, high, **changed), capsys)
    assert "forecast" not in said and "p_A" not in said
    assert ("A is right in under 10% of samples of 1 of 2 problems: 3+4" in said) is ("data" in changed)


@pytest.mark.parametrize("n", [1, 3, 4, 5])
def test_any_number_of_agents_fits_80_columns(tmp_path, capsys, n):
    """p_A + p_B means nothing for three; of more than four the table has the mean."""
    p = {name: {"precedence": 0.5 + n / 100} for name in "ABCDE"[:n]}
    said = told(run_of(tmp_path / "x", p, p), capsys)
    assert "p_A + p_B" not in said and f"{0.5 + n / 100:.2f}->" in said.replace(" ->", "->")
    assert ("mean of the agents" in said) is (n == 5)


@pytest.mark.slow
def test_a_stopped_run_says_which_evaluation_it_shows(tmp_path, capsys):
    """After Ctrl-C the last evaluation is older than the last step; "after" must not pass for the end."""
    half = {"A": {"u": 0.5}, "B": {"u": 0.5}}
    place = run_of(tmp_path / "x", half, half)
    assert "was not evaluated there" not in told(place, capsys)
    runs.append_line(place / "metrics.jsonl", {"step": 3, "agreement": 0.5, "agents": dict.fromkeys("AB", STEP)})
    assert "after: at step 2; the run stopped at step 3" in told(place, capsys)


def test_training_says_what_it_shows(tmp_path):
    """Axes that begin at 0, whole steps, one legend, and every band, dash and mean explained in the picture."""
    half = {"A": {"u": 0.5}, "B": {"u": 0.5}}
    figure = charts.draw_training(run_of(tmp_path / "x", half, half))
    said = texts(figure)
    for words in ("Co-RL on the tiny world, seed 3", "2 agents, K = 8, seed 3, 20 held-out problems x 8 samples",
                  "label given to A, B is right", "dotted: it has a label; dashed: majorities agree", "band: 95% interval",
                  "means of 5 steps"):  # fmt: skip
        assert words in said, words
    for axis in figure.axes:
        assert axis.get_xlim() == (0, 2) and axis.get_ylim()[0] == 0 and axis.get_legend() is None
        assert all(tick == int(tick) for tick in axis.get_xticks())
    assert len(figure.legends) == 1


# ---------------------------------------------------------------- methods side by side

START = {"A": {"u": 0.9, "v w": 0.9}, "B": {"u": 0.9, "v w": 0.9}}
SPLIT = {"A": {"u": 0.9, "v w": 0.9}, "B": {"u": 0.05, "v w": 0.9}}


def test_a_comparison_counts_ends_and_names_its_misses(tmp_path, capsys):
    """A count of forecasts hides which came false. TTRL: (.9, .9) was to stay right and B lost u; staying put is 1 of 2, too.

    pass@1 goes from .9 to (.9 + .475) / 2 = .6875; four parts of STEP are 2 M tokens.
    """
    said = told(comparison(tmp_path / "x", {"ttrl": SPLIT}, START), capsys)
    assert "TTRL     0.900  0.688" in said and "0.69   0.60  2.00 M" in said
    assert "TTRL        1      1      0          0     1 of 2       1 of 2" in said
    assert "  TTRL, seed 3, u: 0.90, 0.90 -> 0.90, 0.05, not right\n" in said
    assert "TTRL           0.50      0.75       0.100     9.0     0.25    0.200" in said  # label right, labelled, ...


@pytest.mark.slow
def test_what_is_stuck_on_real_data(tmp_path, capsys):
    """A model that always answers 7 is .98 of the way to the others' mean: each seed and agent shows its own count."""
    said = told(comparison(tmp_path / "x", {"ttrl": SPLIT}, START, seeds=(3, 4), data="sums"), capsys)
    assert "stuck, by seed and agent" in said and "0 1 0 1\n" in said and "forecast" not in said
    one = {"A": {"": 0.0}, "B": {"": 0.0}}
    assert "stuck" not in told(comparison(tmp_path / "one", {"ttrl": one}, one, data="sums"), capsys)


def test_an_interrupted_comparison_shows_what_is_there(tmp_path, capsys):
    """A run that stopped, and one that never began, are named; 150 steps beside 100 would pass for the method's merit."""
    folder = comparison(tmp_path / "x", {"corl": START, "ttrl": START}, START)
    runs.write_json(folder / "config.json", runs.read_json(folder / "config.json") | {"compare": ["corl", "ttrl", "gt"]})
    metrics = folder / "ttrl-seed3" / "metrics.jsonl"
    metrics.write_text("".join(f"{line}\n" for line in metrics.read_text().splitlines()[:-1]))
    report.finish(folder)
    said = capsys.readouterr()
    assert f"left out: {folder}/ttrl-seed3 (at step 1" in said.err and f"left out: {folder}/gt-seed3 (not begun" in said.err
    assert "Co-RL" in said.out and "TTRL" not in said.out
    extended = comparison(tmp_path / "y", {"ttrl": START}, START, steps=3)
    assert [runs.in_comparison(extended / "ttrl-seed3", steps) for steps in (2, 3)] == [True, False]
    with pytest.raises(UserError, match="no finished run"):
        report.finish(extended)


def test_the_mean_of_seeds_is_over_the_steps_that_all_have():
    """One run of a comparison, stopped at 3 and resumed alone, was evaluated there too: rows of unequal length, no mean."""
    assert charts.mean_curve([([0, 4], [0.0, 1.0]), ([0, 3, 4], [0.5, 9.0, 0.0])]) == ([0, 4], [0.25, 0.5])


def test_a_running_mean_passes_over_what_is_not_known():
    """A step without a label is no zero; where nothing is known there is nothing to draw."""
    assert charts.smooth([None, 1.0, None, 0.0])[1:] == [1.0, 1.0, 0.5] and np.isnan(charts.smooth([None])[0])


def sides(folder: Path) -> dict[str, charts.Side]:
    """The methods of a comparison, ready to be drawn."""
    whole = runs.read_json(folder / "config.json")
    return {m: charts.Side(charts.NAMES[m], style.METHODS[m], charts.finished(folder, whole, m)) for m in whole["compare"]}


def test_compare_has_the_papers_panels(tmp_path):
    """Accuracy, reward std, length, labels with agreement; each topic's way; names in the colour of their method."""
    folder = comparison(tmp_path / "x", {"corl": START, "ttrl": SPLIT}, START, seeds=(0, 1))
    figure = charts.draw_comparison(sides(folder), folder / "compare.png")
    said = texts(figure)
    for words in ("Right after 2 steps on the tiny world: Co-RL 0.90, TTRL 0.69", "seeds 0 1", "bar: 95% interval",
                  "reward std", "length of a completion", "solid: label is right", "dashed: majorities agree",
                  "A: circle, B: triangle", "open: before, filled: after", "thin: a seed"):  # fmt: skip
        assert words in said, words
    labels = {text.get_text(): text.get_color() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))}
    assert labels["Co-RL"] == style.METHODS["corl"] and labels["TTRL"] == style.METHODS["ttrl"]


@pytest.mark.slow
def test_many_methods_are_rows_in_groups(tmp_path):
    """Nine curves in one panel hide each other: rows by whom a method listens to, and a panel for each."""
    methods = ["corl", "pooled", "ttrl", "corewarding1", "corewarding2", "empo", "rent", "intuitor", "gt"]
    folder = comparison(tmp_path / "x", dict.fromkeys(methods, SPLIT), START)
    said = texts(charts.draw_comparison(sides(folder), folder / "compare.png"))
    assert all(group in said for group in charts.LISTENS) and all(said.count(charts.NAMES[m]) >= 2 for m in methods)
    assert "1 / 1 / 0 / 0" in said and "line: 95% interval of the problems" in said


def test_problems_of_two_numbers_are_a_map(tmp_path):
    """64 sums are no 64 lines: a map of a by b for each method; of products the tens by the digit."""
    topics = {f"{a}+{b}": a / 10 for a in range(2, 10) for b in range(2, 10)}
    folder = comparison(tmp_path / "x", {"corl": {"A": topics, "B": topics}}, {"A": topics, "B": topics}, data="sums")
    figure = charts.draw_comparison(sides(folder), folder / "compare.png")
    (image,) = [image for axis in figure.axes for image in axis.get_images()]
    assert np.allclose(image.get_array(), np.repeat(np.arange(2, 10)[:, None] / 10, 8, 1)) and "trained on" in texts(figure)
    products = [f"{a}*{b}" for a in (12, 19, 34) for b in range(3, 9)]
    assert charts.grid(products)[[0, 6, 12]].tolist() == [[10, 3], [10, 3], [30, 3]]
    assert charts.grid(["carry"] * 20) is None and charts.grid(["2+3"]) is None


def test_of_many_topics_those_that_moved_are_drawn(tmp_path):
    """Forty rows of words cannot be read; a method that the tables do not know goes by its key."""
    start = {name: {f"t{chr(97 + i)}": 0.5 for i in range(20)} for name in "AB"}
    end = {name: {topic: 0.9 if topic == "ts" else 0.5 for topic in start[name]} for name in "AB"}
    folder = comparison(tmp_path / "x", {"corl": end}, start, data="file.jsonl")
    said = texts(charts.draw_comparison(sides(folder), folder / "compare.png"))
    assert "the 10 of 20 topics that moved most" in said and "\nts\n" in said and "\ntt\n" not in said


# ---------------------------------------------------------------- Agon


@pytest.mark.slow
def test_agon_rows_and_paired_differences(tmp_path, capsys):
    """Agon .6 and .8 against cooperative .5 and .9: the mean difference is 0; against two passes of GRPO at .4 it is .3.

    24 rollouts of 4 problems in a step: 6 for each; the table says so, so that equal budgets can be seen.
    """
    ends = {"untrained": [0.2, 0.2], "grpo": [0.4, 0.4], "cooperative": [0.5, 0.9], "agon": [0.6, 0.8]}
    folder = agon_comparison(tmp_path / "x", ends)
    said = told(folder, capsys)
    rows = {line[:16].strip(): line for line in said.splitlines() if line[:16].strip()}
    assert rows["Agon"].split() == "Agon A > B 0.700, B > A 0.700 0.60 0.80 +0.300 +0.000".split()
    assert said.count("12.0  2.00 M         6        6") == 5 and "margin" not in said
    assert (folder / "agon.png").exists()
    (folder / "agon-seed1" / "metrics.jsonl").unlink()
    report.finish(folder)
    assert f"left out: {folder}/agon-seed1 (not begun" in capsys.readouterr().err


def test_agon_figure_groups_what_may_be_compared(tmp_path):
    """One pass and two passes stand apart; differences are drawn seed by seed."""
    folder = agon_comparison(tmp_path / "x", {"grpo": [0.4, 0.5], "agon": [0.6, 0.8]})
    found = {method: charts.finished(folder, runs.read_json(folder / "config.json"), method) for method in ("grpo", "agon")}
    groups = {passes: [charts.Side(name, colour, found[m], ways) for name, (m, ways, colour) in rows.items() if m in found]
              for passes, rows in report.ROWS.items()}  # fmt: skip
    figure = charts.draw_agon(groups, tmp_path / "agon.png")
    said = texts(figure)
    for words in ("one pass", "two passes", "minus GRPO with as\nmany passes", "minus cooperative", "Agon 0.70, GRPO 0.45",
                  "a dot: a seed", "line: 95% interval"):  # fmt: skip
        assert words in said, words
    dots = [line.get_xdata() for line in figure.axes[1].get_lines() if len(line.get_xdata()) == 2 and line.get_marker() == "o"]
    assert any(np.allclose(x, [0.2, 0.3]) for x in dots)


@pytest.mark.slow
def test_one_method_of_agon(tmp_path, capsys):
    """Its own folder can be read as well: before and after in each way, and training by role."""
    folder = agon_comparison(tmp_path / "x", {"untrained": [0.2], "agon": [0.6]})
    said = told(folder / "agon-seed0", capsys)
    assert "A > B  after    0.600  (0.100, 0.900)" in said and (folder / "agon-seed0" / "training.png").exists()
    words = texts(charts.draw_training(folder / "agon-seed0"))
    assert "Agon on the tiny world, seed 0" in words and "drafter" in words and "right where the draft was wrong" in words
    assert "after" not in told(folder / "untrained-seed0", capsys)


# ---------------------------------------------------------------- the command


def test_a_folder_that_is_none_of_these(tmp_path, monkeypatch, capsys):
    """One clear line and exit code 2, for a folder of runs, a place that is not there, and a run that has not begun."""
    (tmp_path / "begun").mkdir()
    runs.write_json(tmp_path / "begun" / "config.json", {"compare": None})
    (tmp_path / "begun" / "metrics.jsonl").write_text("")
    for place, reason in ((".", "is not a run"), ("nowhere", "is not a run"), ("begun", "no step yet")):
        monkeypatch.setattr(sys, "argv", ["report.py", str(tmp_path / place)])
        assert report.main() == 2
        err = capsys.readouterr().err
        assert reason in err and err.count("\n") == 1
