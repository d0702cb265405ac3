"""The command that measures a cohort before training: rings by hand-made matrices, both readings, the command end to end."""

import json
import math
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import tiny

from lab import diversity as overlap
from lab import diversity as overlap_figure
from lab.data import Problem
from lab.diversity import kappa_with_itself, main, ring_orders, ring_text, square, two_readings
from lab.evaluate import grade


def symmetric(n, edges):
    """[n,n] with the given value at both places of each edge, 0.5 elsewhere."""
    matrix = np.full((n, n), 0.5)
    for (i, j), value in edges.items():
        matrix[i, j] = matrix[j, i] = value
    return matrix


def found(*groups):
    """A report on questions whose answer is 1, from a string of answers for each; "-" is a missing one."""
    answers = [[None if a == "-" else a for a in group] for group in groups]
    return grade([Problem(str(i), "1") for i in range(len(groups))], answers, tokens=10, ended=4)


# ---------------------------------------------------------------- the ring


def test_the_best_of_four_agents():
    """Guards: an order whose last agent's edge back to the first is not counted, or the largest overlap suggested."""
    # Around A-C-B-D-A every edge is 0.1; the other two rings use two of the edges at 0.4 and two at 0.1.
    neither = symmetric(4, {(0, 2): 0.1, (2, 1): 0.1, (1, 3): 0.1, (3, 0): 0.1, (0, 1): 0.4, (2, 3): 0.4})
    orders = ring_orders(neither)
    assert len(orders) == 6 and {order for _, order in orders} == {(0, *rest) for _, (_, *rest) in orders}
    assert orders[0] == (pytest.approx(0.1), (0, 2, 1, 3))
    assert orders[1] == (pytest.approx(0.1), (0, 3, 1, 2))  # the same ring the other way round
    assert [cost for cost, _ in orders[2:]] == pytest.approx([0.25] * 4)


def test_three_agents_have_one_ring():
    """Guards: a choice suggested where every order has the same neighbours."""
    orders = ring_orders(symmetric(3, {(0, 1): 0.1, (1, 2): 0.2, (0, 2): 0.6}))
    assert orders == [(pytest.approx(0.3), (0, 1, 2)), (pytest.approx(0.3), (0, 2, 1))]


def test_ring_text_names_the_order():
    """Guards: letters of another order than the one that was found; a suggestion for two agents or for nine."""
    bits = {"A": "1100", "B": "1001", "C": "1100", "D": "0110"}  # A with C errs together, B with D never is right
    reports = {name: found(*("1" if mark == "1" else "2" for mark in marks)) for name, marks in bits.items()}
    _, voted = two_readings(reports, ["1"] * 4)
    text = ring_text(voted, list(bits))
    # neither right: AB 1/4, AC 2/4, AD 1/4, BC 1/4, BD 0, CD 1/4. A-B-D-C: (1 + 0 + 1 + 2)/16; A-B-C-D: 4/16.
    assert "order A B C D " in text and "is 0.250" in text
    assert "fewer than four" in ring_text(voted[:1], ["A", "B"])
    assert "more than 8" in ring_text(voted, list("ABCDEFGHI"))


def test_fewest_double_faults_is_most_disagreement():
    """Guards: the claim of --help, that over the ring's edges b + c + 2d has one sum in every order."""
    rng = np.random.default_rng(0)
    wrong = rng.random((5, 40)) < 0.5
    both, one = ((wrong[:, None] & wrong).mean(-1), (wrong[:, None] ^ wrong).mean(-1))
    least, most = ring_orders(both)[0][1], ring_orders(one)[-1][1]
    assert least in (most, (0, *most[:0:-1]))


# ---------------------------------------------------------------- the two readings


def test_two_readings_by_hand():
    """Guards: samples of different questions held together; a tie or a bloc of missing answers taken for a majority."""
    reports = {"A": found("113", "122", "12-"), "B": found("111", "221", "---")}
    single, voted = two_readings(reports, ["1"] * 3)
    o = single[0].overlap  # pairs: 11 11 31 | 12 22 21 | 1- 2- --
    assert (o.both, o.only_a, o.only_b, o.neither) == (2, 2, 2, 3)
    assert single[0].omega == pytest.approx(1 / 3)
    o = voted[0].overlap  # A: 1, 2, tie; B: 1, 2, nobody
    assert (o.both, o.only_a, o.only_b, o.neither) == (1, 0, 0, 2)
    assert voted[0].omega == pytest.approx(1 / 2)


def test_each_answer_meets_its_own_reference():
    """Guards: the samples of one question held against the reference of another."""
    reports = {"A": found("11", "22", "33"), "B": found("12", "22", "31")}
    single, _ = two_readings(reports, ["1", "2", "3"])
    assert (single[0].overlap.both, single[0].overlap.only_a) == (4, 2)


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
    assert overlap.kappa_error(a, b) == pytest.approx(math.sqrt(4 / 5 * ((left - left.mean()) ** 2).sum()))


# ---------------------------------------------------------------- the figure


def test_bars_hold_the_four_cells():
    """Guards: colours or cells exchanged, and the mark of independence at another place than 1 - P(A wrong) P(B wrong)."""
    single, _ = two_readings({"A": found(*"1112"), "B": found(*"1222")}, ["1"] * 4)
    _, axis = plt.subplots()
    overlap_figure.draw_bar(axis, single[0], 0, 0.4)
    assert [patch.get_width() for patch in axis.patches] == [0.5, 0.25, 0.0, 0.25]  # only A, both, only B, neither
    assert axis.collections[0].get_segments()[0][0][0] == pytest.approx(1 - 0.25 * 0.75)
    plt.close()


def test_square_is_symmetric():
    """Guards: a pair sorted to the front put at another pair's place of the matrix."""
    single, _ = two_readings({"A": found(*"1122"), "B": found(*"1122"), "C": found(*"2211")}, ["1"] * 4)
    matrix = square(single, ["A", "B", "C"], lambda pair: pair.overlap.kappa)
    assert np.array_equal(matrix, [[np.nan, 1, -1], [1, np.nan, -1], [-1, -1, np.nan]], equal_nan=True)


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
    monkeypatch.setattr(overlap, "evaluate", lambda agent, problems, k, new, temperature, generator: asked.append(
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
    (["one", "two", "--data", "open.jsonl"], "no problem of open.jsonl has a reference answer"),
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
    assert told.startswith("evaluate.py: ") and reason in told and "\n" not in told


def test_evaluate_is_the_command(capsys, monkeypatch):
    """Guards: `python evaluate.py` without a main; its --help must explain the cells."""
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(Path(overlap.__file__).with_name("diversity.py")), run_name="__main__")
    assert end.value.code == 0 and "double\nfault" in capsys.readouterr().out
