"""What a run shows: completions as they were paid, a line that fits the screen, metrics in another tool."""

import contextlib
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import agon
import cohort
from lab import options, runs, show, tinyworld
from lab.data import Problem

TINY = ["--steps", "2", "--prompts", "12", "--k", "2", "--eval-problems", "6", "--eval-k", "1", "--max-new-tokens", "12"]
PROBLEMS = [Problem("1+1=", "2", "sum"), Problem("2+1=", "3", "sum"), Problem("2*3=", "6", "product")]


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Agents that have hardly learnt anything yet."""
    monkeypatch.setattr(tinyworld, "WarmStart", lambda **given: WARM(**given, base_steps=5, agent_steps=2))
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path / "cache"))


WARM = tinyworld.WarmStart


def written(texts: list[list[str]]) -> SimpleNamespace:
    """Rollouts of these completions, whose last character is the answer."""
    return SimpleNamespace(texts=texts, answers=[[text[-1:] or None for text in group] for group in texts])


def test_one_completion_of_each_topic():
    """P = 3 problems of 2 topics, K = 2: the first completion of the first sum and of the product, with reward and label."""
    found = show.pick("A", PROBLEMS, ["a", "b", "c"], written([["x2", "x3"], ["y3", "y4"], ["z5", "z6"]]),
                      torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), ["2", "3", None])  # fmt: skip
    assert found == [
        {"topic": "sum", "question": "1+1=", "reference": "2", "agent": "A", "prompt": "a", "completion": "x2", "answer": "2",
         "label": "2", "reward": 1.0},
        {"topic": "product", "question": "2*3=", "reference": "6", "agent": "A", "prompt": "c", "completion": "z5",
         "answer": "5", "label": None, "reward": 0.0},
    ]  # fmt: skip


def test_without_topics_the_first_problems():
    """Real data has no topic, or a hundred: three problems, or one of each of six topics."""
    def chosen(problems):
        found = show.pick("A", problems, [p.question for p in problems], written([["x"]] * len(problems)))
        return [sample["question"] for sample in found]

    assert chosen([Problem(f"q{i}") for i in range(9)]) == ["q0", "q1", "q2"]
    assert chosen([Problem(f"q{i}", topic=f"t{i // 2}") for i in range(18)]) == ["q0", "q2", "q4", "q6", "q8", "q10"]


def test_a_challengers_own_prompt_is_shown():
    """P*K groups of one: completion i*K is problem i's first, and its prompt holds the draft that it read."""
    prompts, rewards = [f"draft {i}" for i in range(6)], torch.arange(6.0).view(3, 2)
    found = show.pick("challenger B", PROBLEMS, prompts, written([[f"s{i}"] for i in range(6)]), rewards)
    assert [(s["reads"], s["completion"], s["reward"]) for s in found] == [("draft 0", "s0", 0.0), ("draft 4", "s4", 4.0)]
    said = show.completions(found).splitlines()
    assert said[:3] == ["sum: 1+1=  (reference answer 2)", "  challenger B  reads        draft 0",
                        "  challenger B  reward 0.00  s0"]  # fmt: skip


def test_completions_cannot_write_on_the_screen():
    """A completion is a stranger's text: control characters are spelled out, and a long one is cut in its middle."""
    sample = {"topic": "", "question": "q\n?", "reference": None, "agent": "A", "label": None, "reward": 0.0, "answer": None}
    said = show.completions([sample | {"completion": "a\x1b[2J\r\u202eb\n" + "word " * 200 + "the end"}])
    assert said.splitlines()[0] == "q\\n?" and "a\\x1b[2J\\r\\u202eb\\nword" in said and said.endswith("the end  (no answer)")
    assert " [...] " in said and all(c.isprintable() or c == "\n" for c in said)
    assert len(said.splitlines()) <= 1 + show.LINES and max(map(len, said.splitlines())) <= 80


def test_a_screen_without_the_letters(monkeypatch):
    """A terminal that knows only ASCII gets escapes; the run does not end in a UnicodeEncodeError after its first step."""
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(encoding="ascii"))
    assert show.escaped("caf\u00e9 \u221a2") == "caf\\xe9 \\u221a2"


def test_the_line_fits_and_keeps_the_accuracies():
    """In a terminal of 80 columns the line used to end before the accuracies, and only they say whether anything is learnt."""
    agent = {"reward_mean": 0.321, "label_accuracy": 0.5}
    line = {"agents": {"A": agent, "B": agent}, "agreement": 0.25}
    seen = show.accuracies({"eval": {name: {"pass1": 0.8} for name in "AB"}})
    assert show.progress(line, seen, 80) == "pass@1 A 0.80 B 0.80, labels 0.50/0.50, reward 0.32/0.32, agree 0.25"
    assert show.progress(line, seen, 45) == "pass@1 A 0.80 B 0.80, labels 0.50/0.50"
    assert show.progress({"halves": {"drafter B": {"accuracy": 0.5}}}, "", 80) == "drafter B 0.50"


@pytest.mark.slow
def test_a_run_keeps_its_samples(tmp_path, capsys, quick):
    """First and last step, six topics, two agents; resumed, the file is that of the unbroken run, without what came later."""
    assert cohort.main([*TINY, "--steps", "3", "--samples", "2", "--save-every", "1", "--out", str(tmp_path), "--name", "a"]) == 0
    told, whole = capsys.readouterr().out, (tmp_path / "a" / "samples.jsonl").read_text()
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [line["step"] for line in lines] == [1] * 12 + [2] * 12 + [3] * 12
    assert len({line["topic"] for line in lines}) == 6 and {line["agent"] for line in lines} == {"A", "B"}
    assert told.count("completions of step") == 3 and "step    0  pass@1 A" in told and "step    3  pass@1 A" in told
    assert told.startswith("loading the agents") and f"{tmp_path / 'a'}: corl, 2 agents of 0.13 M weights on cpu" in told
    assert [line["step"] for line in runs.read_lines(tmp_path / "a" / "metrics.jsonl") if "samples" in line] == []
    (tmp_path / "a" / "samples.jsonl").write_text(whole + whole[:40])  # as a kill may leave it
    runs.shutil.rmtree(tmp_path / "a" / "checkpoint-000003")
    assert cohort.main(["--resume", str(tmp_path / "a")]) == 0
    assert (tmp_path / "a" / "samples.jsonl").read_text() == whole
    (tmp_path / "a" / "samples.jsonl").write_text("[]\n" + whole)
    capsys.readouterr()
    assert cohort.main(["--resume", str(tmp_path / "a")]) == 2
    assert "samples.jsonl was changed by somebody else: put it back, or remove it" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_says_where_it_comes_from(tmp_path, quick):
    """The command line as typed (each of them), the commit, the threads: what a number cannot be had again without."""
    typed = [*TINY, "--out", str(tmp_path), "--name", "a"]
    assert cohort.main(typed) == 0 and cohort.main(["--resume", str(tmp_path / "a")]) == 0
    config = runs.read_json(tmp_path / "a" / "config.json")
    assert config["commands"] == [shlex.join(["python", "cohort.py", *given]) for given in (typed, ["--resume", f"{tmp_path}/a"])]
    assert config["threads"] == torch.get_num_threads() and config["versions"]["torch"] == torch.__version__
    assert config["commit"] is None or len(config["commit"].partition("-")[0]) == 40


def test_no_commit_where_there_is_no_git(monkeypatch):
    """An unpacked archive, or a machine without git, is no error."""
    def missing(*_, **more):
        raise FileNotFoundError

    monkeypatch.setattr(runs.subprocess, "run", missing)
    assert runs.origin()["commit"] is None


def test_wandb_and_tensorboard(monkeypatch, tmp_path):
    """Each line's numbers, by their paths; here with stand-ins that have the two calls which are used."""
    line, sent = {"step": 3, "agents": {"A": {"loss": 0.5, "label_accuracy": None}}, "note": "x"}, []

    def init(**given):
        assert given["config"] == {"lr": 1} and given["name"] == tmp_path.name
        return contextlib.nullcontext(SimpleNamespace(log=lambda numbers, step: sent.append((step, numbers))))

    def writer(_):
        return contextlib.nullcontext(SimpleNamespace(add_scalar=lambda name, value, step: sent.append((step, name, value))))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=writer))
    for tool in ("wandb", "tensorboard", None):
        with show.logged(tool, tmp_path, {"lr": 1}) as log:
            log(line)
    assert sent == [(3, {"step": 3, "agents/A/loss": 0.5}), (3, "step", 3), (3, "agents/A/loss", 0.5)]


def test_a_missing_tool_is_one_line(capsys, tmp_path):
    """Said before anything is loaded, not after the warm start."""
    assert cohort.main([*TINY, "--log", "wandb", "--out", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err == "cohort.py: --log wandb needs a package that is missing: pip install wandb\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("kind", [cohort.Options, agon.Options])
def test_every_option_has_its_group(kind, capsys):
    """What matters first is a dozen; an option that is in no group would stand above it."""
    grouped = " ".join(options.GROUPS.values()).split()
    fields = {f.name for f in cohort.dataclasses.fields(kind)}
    assert fields <= set(grouped) and len(grouped) == len(set(grouped))
    assert len(fields & set(options.GROUPS["what matters first"].split())) <= 12
    with pytest.raises(SystemExit):
        options.parse(["--help"], "", kind)
    told = capsys.readouterr().out
    places = [told.index(f"\n{title}:\n") for title in options.GROUPS]
    assert places == sorted(places) and "\nmethods:\n" in told
    assert (" --method " in told) == (kind is cohort.Options)  # agon.py sets it itself


@pytest.mark.slow
def test_a_comparison_shows_its_last_run(tmp_path, capsys, quick):
    """Every run keeps its completions; nine runs on the screen would bury the table."""
    given = [*TINY, "--compare", "corl", "ttrl", "--seeds", "0", "1", "--out", str(tmp_path), "--save-every", "-1"]
    assert cohort.main(given) == 0
    told = capsys.readouterr().out
    assert told.count("completions of step") == 2 and told.count("pass@1 A") == 8
    assert len(list(Path(tmp_path).glob("compare-001/*/samples.jsonl"))) == 4
