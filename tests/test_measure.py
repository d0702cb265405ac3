"""Saved runs measured again, models and adapters by themselves, the ensemble, and draws from the most probable tokens."""

import functools
import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import tiny
import torch
from test_cohort import FAST
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import agon
import cohort
from grpo import draw_token
from lab import data, measure, runs, suite, tinyworld
from lab.data import Problem
from lab.evaluate import grade, maj_at_k, pooled


@pytest.fixture(autouse=True)
def short_warm_start(monkeypatch, tmp_path_factory):
    """Agents that have hardly learnt anything yet, cached for all tests of this file."""
    monkeypatch.setattr(tinyworld, "WarmStart", functools.partial(tinyworld.WarmStart, base_steps=60, agent_steps=5))
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path_factory.getbasetemp() / "cohort-cache"))


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    """A random model of numbers from 3 to 63, of whose completions some end and some are right."""
    folder = tmp_path_factory.mktemp("model")
    core = Tokenizer(WordLevel({"<unk>": 0, "<bos>": 1, "<eos>": 2} | {str(i): i for i in range(3, 64)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    model = tiny.model("qwen3")
    model.config.eos_token_id = model.generation_config.eos_token_id = list(range(2, 20))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data_file(tmp_path_factory) -> Path:
    """Thirty problems in two forms, some of whose answers a random model finds."""
    path = tmp_path_factory.mktemp("data") / "problems.jsonl"
    lines = [{"question": f"{i} {i + 1}", "answer": str(20 + i), "rephrased": f"{i + 1} {i}"} for i in range(3, 33)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def measured(capsys, *arguments: str) -> list[list[str]]:
    """The cells of the rows that the command prints."""
    assert measure.main(list(arguments)) == 0, capsys.readouterr().err
    return [line.split("  ") for line in capsys.readouterr().out.splitlines() if line and ":" in line]


def evaluated(source, monkeypatch, *arguments: str) -> dict[str, dict]:
    """What `lab.evaluate` finds, in the words of metrics.jsonl: agent -> its figures, unrounded."""
    rows = {}
    monkeypatch.setattr(measure, "table", lambda found, first: rows.update(found) or "")
    assert measure.main([str(source), *arguments]) == 0
    return {name.partition(":")[0]: r.record() for name, r in rows.items()}


# ---------------------------------------------------------------- what a run says of itself


REAL = ["--models", "M", "M", "--data", "D", "--answer", "number", "--max-new-tokens", "6", "--eval-k", "256"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    [], ["--agents", "3", "--topics", "carry", "bracket", "--seed", "1"], ["--lora-rank", "2"],
    [*REAL, "--method", "rent", "--temperature", "0.7", "--stop", "40", "--system", "5 6"],
    [*REAL, "--method", "rent", "--lora-rank", "2", "--rephrase", "B"],
    [*REAL, "--method", "corewarding2", "--lora-rank", "2", "--beta", "0.1"],
])  # fmt: skip
def test_a_saved_run_measures_as_it_did(options, tmp_path, model_folder, data_file, monkeypatch):
    """Guards: an agent measured with another system text, stop, form of the question, draw or problem than in its own run, base
    weights in place of an adapter, a prompt of the tiny world wrapped in words that it does not have."""
    words = [{"M": str(model_folder), "D": str(data_file)}.get(word, word) for word in options]
    assert cohort.main([*FAST, "--lr", "1e-2", "--out", str(tmp_path), "--name", "r", *words]) == 0
    line = runs.read_lines(tmp_path / "r" / "metrics.jsonl")[-1]
    said = line["eval"]
    assert "--models" not in options or 0 < said["A"]["pass1"] != said["B"]["pass1"] and said["A"]["truncated"] < 1
    assert evaluated(tmp_path / "r", monkeypatch) == said
    assert evaluated(tmp_path / "r" / "checkpoint-000002" / "B", monkeypatch) == {"B": said["B"]}
    other = evaluated(tmp_path / "r" / "checkpoint-000002", monkeypatch, "--seed", "12345", "--max-new-tokens", "2")
    assert other.keys() == said.keys() and all(found["length"] <= 2 for found in other.values())


@pytest.mark.slow
def test_a_pair_of_adapters_measures_as_it_did(tmp_path, model_folder, data_file, monkeypatch):
    """Guards: Agon's system text, noise or draws left out; its run is told from a cohort's by nothing but its options."""
    given = ["--model", str(model_folder), "--data", str(data_file), "--answer", "number", "--rank", "2", "--out", str(tmp_path)]
    fast = ["--steps", "2", "--prompts", "2", "--n", "2", "--max-new-tokens", "6", "--eval-problems", "6", "--eval-k", "64"]
    assert agon.main([*given, *fast, "--methods", "agon", "--name", "r"]) == 0
    run = tmp_path / "r" / "agon-seed0"
    line = runs.read_lines(run / "metrics.jsonl")[-1]
    found = evaluated(run, monkeypatch)
    assert 0 < found["A"]["pass1"] != found["B"]["pass1"]
    for name in "AB":
        assert {**found[name], "majk": 0} == {"majk": 0, **{key: line["eval"][name][key] for key in found[name] if key != "majk"}}


# ---------------------------------------------------------------- models and adapters by themselves


def test_a_model_and_an_adapter(tmp_path, model_folder, data_file, monkeypatch):
    """Guards: an adapter measured as its base; a base that is not the one its config names; greedy search that draws."""
    assert cohort.main([*FAST, "--models", str(model_folder), str(model_folder), "--data", str(data_file), "--lora-rank", "2",
                        "--lr", "1e-1", "--method", "rent", "--out", str(tmp_path), "--name", "r", "--answer", "number"]) == 0
    place = tmp_path / "r" / "checkpoint-000002" / "A"
    adapter = shutil.copytree(place, tmp_path / "adapter")  # out of its run
    common = ["--data", str(data_file), "--answer", "number", "--max-new-tokens", "6"]
    common += ["--eval-problems", "20"]
    base, moved, own = (evaluated(source, monkeypatch, *common, "--k", "16")["A"] for source in (model_folder, adapter, place))
    assert base != moved != own  # its run holds out other problems
    greedy = evaluated(model_folder, monkeypatch, *common, "--temperature", "0")
    assert greedy == evaluated(model_folder, monkeypatch, *common, "--temperature", "0", "--seed", "5")


def test_what_cannot_be_measured_is_one_line(tmp_path, model_folder, data_file, capsys):
    """Guards: a traceback, or a base named by nobody, after minutes."""
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"r": 2}')
    for arguments, reason in [
        ([str(model_folder)], "give --data"),
        ([str(tmp_path / "adapter"), "--data", str(data_file)], "without the name of its base"),
        ([str(tmp_path / "none"), "--data", str(data_file)], "cannot load the model"),
        ([str(model_folder), "--data", str(data_file), "--pool", "--max-new-tokens", "4"], "--pool takes two or more"),
        ([str(model_folder)] * 2 + ["--data", str(data_file), "--pool", "--k", "5", "--max-new-tokens", "4"], "share evenly"),
        ([str(model_folder), "--data", str(data_file), "--temperature", "0", "--k", "2"], "--temperature 0"),
        ([str(model_folder), "--data", str(data_file), "--top-p", "1.5"], "--top-p"),
    ]:
        assert measure.main(arguments) == 2
        told = capsys.readouterr().err.strip()
        assert told.startswith("lab.evaluate: ") and reason in told and "\n" not in told


# ---------------------------------------------------------------- the ensemble


def test_the_pool_votes_with_all_answers(model_folder, data_file, monkeypatch, capsys):
    """Guards: two whole groups pooled, twice the budget; the mean of two majorities in place of the majority of all."""
    problems = [Problem("a", "1"), Problem("b", "2")]
    a, b = grade(problems, [["1", "3"], ["2", "2"]], 10, 3), grade(problems, [["1", "3"], [None, "4"]], 14, 4)
    both = pooled([a, b], problems)
    assert both.answers == [["1", "3", "1", "3"], ["2", "2", None, "4"]] and both.k == 4
    assert both.majk == pytest.approx((maj_at_k(["1", "3", "1", "3"], "1") + 1) / 2) == pytest.approx(0.75)
    assert (both.length, both.truncated) == (24 / 8, pytest.approx(1 / 8))
    rows = measured(capsys, str(model_folder), str(model_folder), "--data", str(data_file), "--pool", "--k", "6",
                    "--answer", "number", "--max-new-tokens", "4")  # fmt: skip
    assert len(rows) == 2


# ---------------------------------------------------------------- several benchmarks


def test_the_suite(model_folder, data_file, tmp_path, monkeypatch, capsys):
    """Guards: a mean over what happens to be at hand; an absent benchmark downloaded unasked, or left out in silence."""
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path))
    monkeypatch.setattr(data.urllib.request, "urlopen", lambda *_, **__: pytest.fail("nothing is downloaded unasked"))
    monkeypatch.setattr(data, "importlib", None)
    common = [str(model_folder), "--k", "2", "--max-new-tokens", "4"]
    assert suite.main([*common, "--only", str(data_file), "aime24", "olympiad"]) == 0
    told = capsys.readouterr().out
    assert "mean of" not in told and f"python -m lab.suite {model_folder} --only aime24 olympiad --fetch" in told
    assert suite.main(common) == 2
    assert "absent: gsm8k math500 aime24 aime25 amc23 minerva olympiad; " in capsys.readouterr().err
    data.write_whole(tmp_path / "olympiad" / "test.jsonl", b'{"question": "5 6", "answer": "7"}')
    assert suite.main([*common, "--only", str(data_file), "olympiad"]) == 0
    told = capsys.readouterr().out
    assert "mean of pass@1" in told and "olympiad" in told and "absent" not in told


def test_the_mean_of_benchmarks_by_hand():
    """Guards: benchmarks weighed by their size, an interval of no width where all is wrong."""
    problems = [Problem(str(i), "1") for i in range(10)]
    half, none = (grade(problems, [["1"]] * n + [["2"]] * (10 - n), 10, 10) for n in (5, 0))
    wide = 1.96 * (0.5 * 0.5 / 10 + 0.05 * 0.95 / 10) ** 0.5 / 2
    assert suite.mean([half, none]) == pytest.approx((0.25, 0.25 - wide, 0.25 + wide))
    assert suite.mean([none])[2] > 0.1


# ---------------------------------------------------------------- top-p


def test_nothing_outside_the_nucleus_is_drawn():
    """Guards: a nucleus one token too small or too large, one that is not renormalised, or of another row; by counting."""
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.7, 0.1, 0.1, 0.1]]).log()
    uniform = torch.linspace(0, 1, 10_001)[:-1]
    for top_p, shares in [
        (1.0, [[0.1, 0.4, 0.2, 0.3], [0.7, 0.1, 0.1, 0.1]]),
        (0.75, [[0, 4 / 9, 2 / 9, 3 / 9], None]),  # .4 + .3 is too little
        (0.65, [[0, 4 / 7, 0, 3 / 7], [1, 0, 0, 0]]),
        (1e-6, [[0, 1, 0, 0], [1, 0, 0, 0]]),  # one token stays, whatever happens
    ]:
        for row, expected in zip(logits, shares, strict=True):
            token, logprob, entropy, certainty = draw_token(row.expand(len(uniform), -1), 1.0, uniform, top_p)
            if expected:
                counted = torch.bincount(token, minlength=4) / len(uniform)
                assert counted.tolist() == pytest.approx(expected, abs=2e-4)
                assert all((counted > 0).tolist()[i] == (p > 0) for i, p in enumerate(expected))
            plain = draw_token(row.expand(len(uniform), -1), 1.0, uniform)
            assert torch.allclose(logprob, row[token]) and torch.equal(entropy, plain[2]) and torch.equal(certainty, plain[3])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # it is imported already
def test_evaluate_is_the_command(monkeypatch, capsys):
    """Guards: `python -m lab.evaluate` that does nothing, or cannot explain itself, since its command is in another file."""
    monkeypatch.setattr(sys, "argv", ["lab.evaluate", "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("lab.evaluate", run_name="__main__", alter_sys=True)
    assert not end.value.code and "most probable tokens" in " ".join(capsys.readouterr().out.split())
