"""The command that measures a cohort before training: both readings by hand, its figure's numbers, the command end to end."""

import json
import math
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from matplotlib.figure import Figure

from lab import diversity
from lab.data import Problem
from lab.diversity import kappa_with_itself, main, two_readings
from lab.evaluate import grade


def found(*groups):
    """A report on questions whose answer is 1, from a string of answers for each; "-" is a missing one."""
    answers = [[None if a == "-" else a for a in group] for group in groups]
    return grade([Problem(str(i), "1") for i in range(len(groups))], answers, tokens=10, ended=4)


# ---------------------------------------------------------------- the two readings


def test_two_readings_by_hand():
    """Guards: samples of different questions held together; a tie or a bloc of missing answers taken for a majority."""
    reports = {"A": found("113", "122", "12-"), "B": found("111", "221", "---")}
    single, voted = two_readings(reports, ["1"] * 3)
    assert single[0].shares == pytest.approx(np.array([2, 2, 2, 3]) / 9)  # 11 11 31 | 12 22 21 | 1- 2- --
    assert single[0].omega == pytest.approx((0 + 4 + 0) / (1 * 0 + 2 * 2 + 2 * 3))  # wrong: 3, - | 22, 22 | 2-, ---
    assert voted[0].shares == pytest.approx(np.array([1, 0, 0, 2]) / 3)  # A: 1, 2, tie; B: 1, 2, nobody
    assert voted[0].omega == pytest.approx(1 / 2)


def test_each_answer_meets_its_own_reference():
    """Guards: the samples of one question held against the reference of another."""
    reports = {"A": found("11", "22", "33"), "B": found("12", "22", "31")}
    single, _ = two_readings(reports, ["1", "2", "3"])
    assert single[0].shares == pytest.approx(np.array([4, 2, 0, 0]) / 6)


def test_pairs_are_sorted_by_kappa():
    """Guards: an agent paired with itself, a pair listed twice, or the pair whose errors coincide most on top."""
    single, _ = two_readings({"A": found(*"1122"), "B": found(*"1122"), "C": found(*"2211")}, ["1"] * 4)
    assert [(p.a, p.b, p.found["kappa"], p.found["rescue"]) for p in single] == [
        ("A", "C", -1.0, 1.0), ("B", "C", -1.0, 1.0), ("A", "B", 1.0, 0.0)]


def test_kappa_with_itself():
    """Guards: an agent held against the very same sample, which would always give 1."""
    assert kappa_with_itself(found("11", "22")) == 1
    assert kappa_with_itself(found("12", "21")) == -1
    assert kappa_with_itself(found("1", "2")) is None


def test_kappa_error_is_the_jackknife():
    """Guards: the error of samples in place of problems; reference: kappa of marks without one problem, in numpy."""
    a, b = found("12", "11", "22", "21", "11"), found("11", "12", "22", "22", "21")

    def kappa(x, y):
        observed, chance = (x == y).mean(), x.mean() * y.mean() + (1 - x.mean()) * (1 - y.mean())
        return (observed - chance) / (1 - chance)

    x, y = np.array(a.right), np.array(b.right)
    left = np.array([kappa(np.delete(x, i, 0), np.delete(y, i, 0)) for i in range(5)])
    single, _ = two_readings({"A": a, "B": b}, ["1"] * 5)
    assert single[0].error == pytest.approx(math.sqrt(4 / 5 * ((left - left.mean()) ** 2).sum()))


# ---------------------------------------------------------------- the figure


def test_bars_hold_the_four_cells():
    """Guards: colours or cells exchanged, and the mark of independence at another place than 1 - P(A wrong) P(B wrong)."""
    single, _ = two_readings({"A": found(*"1112"), "B": found(*"1222")}, ["1"] * 4)
    axis = Figure().subplots()
    diversity.draw_bar(axis, single[0], 0)
    assert [patch.get_width() for patch in axis.patches] == [0.5, 0.25, 0.0, 0.25]  # only A, both, only B, neither
    assert axis.collections[0].get_segments()[0][0][0] == pytest.approx(1 - 0.25 * 0.75)


@pytest.mark.parametrize("agents", [2, 3])
def test_kappa_and_omega_stand_beside_the_bars(agents, tmp_path):
    """Guards: a figure that calls errors the same because kappa is high, where omega says that no two mistakes are; a number
    of another pair; a backend or a figure left behind in a notebook."""
    answers = {"A": "1122", "B": "1133", "C": "3411"}
    reports = {name: found(*given) for name, given in list(answers.items())[:agents]}
    single, _ = two_readings(reports, ["1"] * 4)
    figure = diversity.draw(reports, single, [], "4 problems")
    numbers = [text.get_text() for text in figure.axes[1].texts]
    assert numbers[-3:] == ["1.00 ± 0.00", "0.00", "0.00"]  # A and B: right on the same questions, never the same mistake
    assert ("red" in figure.axes[1].get_xticklabels()[0].get_text()) == (agents > 2) == bool(figure.axes[1].images)
    figure.savefig(tmp_path / "a.png")


# ---------------------------------------------------------------- the command


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Two folders with random models, and eight problems in two forms, in the working folder."""
    monkeypatch.chdir(tmp_path)
    template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = template
    for seed, name in enumerate(("one", "two")):
        tiny.model("qwen3", seed).save_pretrained(name), tokenizer.save_pretrained(name)
    lines = [{"question": f"w{i} w4", "answer": str(i), "topic": f"t{i % 2}", "rephrased": f"w4 w{i}"} for i in range(5, 13)]
    Path("d.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return ["one", "two"]


def test_the_command(models, capsys):
    """Guards: a table or a figure that is missing, a limit that is not kept, draws that depend on anything but the seed."""
    command = [*models, "--data", "d.jsonl", "--k", "3", "--max-new-tokens", "4", "--answer", "number", "--limit", "6"]
    assert main([*command, "--out", "o.png"]) == 0
    first = capsys.readouterr().out
    assert "6 problems of d.jsonl, 3 samples" in first and "t0 " in first and "A B " in first
    assert "single answers, 18" in first and "majority answers, 6" in first and "maj@3" in first
    assert Path("o.png").read_bytes()[:4] == b"\x89PNG"
    assert main([*command, "--out", "o.png"]) == 0 and capsys.readouterr().out == first


def test_one_model_in_two_forms(models, capsys, monkeypatch):
    """Guards: the two agents of one model drawing the same numbers, or both or neither reading the rephrased form."""
    asked = []
    monkeypatch.setattr(diversity, "evaluate", lambda agent, problems, k, new, temperature, generator: asked.append(
        (agent.prompt(problems[0]), agent.model, generator.initial_seed())) or found("12", "21"))
    options = ["--rephrase", "B", "--limit", "2", "--k", "2", "--max-new-tokens", "4"]
    assert main(["one", "one", "--data", "d.jsonl", *options]) == 0
    (one, model, draws), (other, same, others) = asked
    assert (one.split(), other.split()) == (["w5", "w4"], ["w4", "w5"])
    assert model is same and draws != others
    assert "one, rephrased" in capsys.readouterr().out


@pytest.mark.parametrize("arguments, reason", [
    (["one", "--data", "d.jsonl"], "a pair needs two agents"),
    (["one", "two"], "--data"),
    (["tiny", "--data", "sums"], "tiny"),
    (["tiny", "one", "--data", "tiny"], "tiny"),
    (["tiny", "--agents", "3", "--cohort", "same"], "--cohort same"),
    (["one", "two", "--data", "d.jsonl", "--cohort", "same"], "--cohort same"),
    (["one", "two", "--data", "none.jsonl"], "no file none.jsonl"),
    (["one", "./nowhere", "--data", "d.jsonl"], "cannot load the model './nowhere'"),
    (["one", "two", "--data", "d.jsonl", "--rephrase", "C"], "the agents are A B"),
    (["one", "two", "--data", "bare.jsonl", "--rephrase", "B"], "holds no rephrased question"),
    (["one", "two", "--data", "open.jsonl"], "open.jsonl holds no reference answer"),
    (["one", "two", "--data", "d.jsonl", "--k", "0"], "--k must be at least 1"),
    (["one", "two", "--data", "d.jsonl", "--temperature", "nan"], "--temperature"),
    (["one", "two", "--data", "d.jsonl", "--out", "no/such.png"], "--out no/such.png"),
    (["one", "two", "--data", "d.jsonl", "--out", "a.pdf"], "--out a.pdf"),
    (["one", "two", "--data", "d.jsonl", "--device", "no"], "--device no"),
    (["one", "two", "--dat", "d.jsonl"], "--dat"),
])
def test_refused_in_one_line(arguments, reason, models, capsys):
    """Guards: a traceback, or minutes of sampling, before a mistake is told."""
    Path("bare.jsonl").write_text('{"question": "w5", "answer": "5"}')
    Path("open.jsonl").write_text('{"question": "w5"}')
    assert main(arguments) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("lab.diversity: ") and reason in told and "\n" not in told


def test_the_command_explains_itself(capsys, monkeypatch):
    """Guards: `python -m lab.diversity` without a main; its --help must explain the cells."""
    monkeypatch.setattr(sys, "argv", ["diversity.py", "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(diversity.__file__, run_name="__main__")
    assert end.value.code == 0 and "double fault" in capsys.readouterr().out
