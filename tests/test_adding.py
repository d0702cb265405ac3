"""What a student adds first: a reward, a topic, a rule of who is whose peer, a field of a data file. Each is one place."""

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import agon
import cohort
from lab import data, report, rivals, runs, tinyworld
from lab.tinyworld import Topic

ROOT = Path(__file__).resolve().parent.parent
FAST = ["--steps", "1", "--prompts", "3", "--eval-problems", "12", "--eval-k", "2", "--max-new-tokens", "12"]
REWARD = '''

def longest(n, rollouts, truths):
    """Pays length, in tokens."""
    return rollouts[n].mask.sum(-1)


REWARDS["longest"] = Method("tokens of the completion", direct=longest)


def both_neighbours(n, ballots, truths):
    """An undirected ring: the majority of both neighbours' answers together."""
    return majorities(a + b for a, b in zip(ballots[n - 1], ballots[(n + 1) % len(ballots)], strict=True))


REWARDS["undirected"] = Method("1 if equal to both neighbours' majority", label=both_neighbours, min_agents=3)
'''
TOPIC = Topic(
    "double", "{}{}+{}{}=", "{}{} plus {}{}=", (
        lambda a, b, c, d: f"{b}+{d}={b + d},{a}+{c}={a + c} -> {a + c}{b + d}",
        lambda a, b, c, d: f"{a}+{c}={a + c} -> {a + c}0",
        lambda a, b, c, d: f"{b}+{d}={b + d} -> {b + d}",
    ), slip=lambda a, b, c, d: f"{b}+{d}={b + d + 1},{a}+{c}={a + c} -> {a + c}{b + d + 1}",
    operands=[(a, b, c, d) for a in range(1, 5) for b in range(1, 5) for c in range(1, 5) for d in range(1, 5)],
)  # fmt: skip


@pytest.fixture(autouse=True)
def short_warm_start(monkeypatch, tmp_path):
    """Agents that have hardly learnt anything yet."""
    monkeypatch.setattr(tinyworld, "WarmStart", functools.partial(tinyworld.WarmStart, base_steps=5, agent_steps=2))
    monkeypatch.setattr(rivals, "Rivals", functools.partial(rivals.Rivals, base_steps=5, adapter_steps=5))
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
def test_a_reward_is_one_function_and_one_entry(tmp_path):
    """In a copy of the project: the command knows the method, trains by it, and the tests of every method still pass."""
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "runs", "figures", "__pycache__", ".pytest_cache"))
    with (copy / "rewards.py").open("a") as file:
        file.write(REWARD)
    code = f"""
import functools, sys, pytest, cohort
from lab import tinyworld
tinyworld.WarmStart = functools.partial(tinyworld.WarmStart, base_steps=5, agent_steps=2)
sys.exit(cohort.main({[*FAST, "--method", "longest", "--out", str(tmp_path / "runs")]!r})
         or pytest.main(["-q", "-p", "no:cacheprovider", "tests/test_rewards.py"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "longest" in done.stdout and "forecast" not in done.stdout  # no theory speaks of it
    line = runs.read_lines(tmp_path / "runs" / "longest-001" / "metrics.jsonl")[1]["agents"]["A"]
    assert line["reward_mean"] == line["length"]


@pytest.mark.slow
def test_a_topic_is_one_entry(tmp_path, monkeypatch, capsys):
    """A seventh topic once turned the headline figure into another one, and broke agon.py; now both worlds just have it."""
    topics = (*tinyworld.TOPICS[4:-1], TOPIC, tinyworld.TOPICS[-1])  # few, since their texts take seconds to make
    for module in (tinyworld, rivals):
        monkeypatch.setattr(module, "TOPICS", topics)
    for cached in (tinyworld.make_texts, rivals.make_texts):
        cached.cache_clear()
    try:
        assert cohort.main([*FAST, "--out", str(tmp_path)]) == 0
        assert "double " in capsys.readouterr().out and (tmp_path / "corl-001" / "overlay.png").exists()
        assert agon.main([*FAST, "--n", "2", "--methods", "agon", "--out", str(tmp_path)]) == 0
    finally:
        for cached in (tinyworld.make_texts, rivals.make_texts):
            cached.cache_clear()
    with pytest.raises(ValueError, match="'7\\^2=' has a sign that make_tokenizer does not know"):
        tinyworld.pack([("3+4=", "7"), ("7^2=", "")])
    with pytest.raises(ValueError, match="topic small has 9 problems"):
        Topic("small", "{}+{}=", "{} plus {}=", (str, str, str), str, [(a, b) for a in range(3) for b in range(3)])


@pytest.mark.slow
def test_another_peer_rule_has_no_forecast(tmp_path, monkeypatch, capsys):
    """A ring without a direction is another theory: a table that goes on forecasting by the old one is wrong without a word."""
    def both_neighbours(n, ballots, truths):
        return cohort.majorities([a + b for a, b in zip(ballots[n - 1], ballots[(n + 1) % len(ballots)], strict=True)])

    monkeypatch.setitem(cohort.REWARDS, "ttrl", cohort.REWARDS["ttrl"].__class__("both neighbours", label=both_neighbours))
    assert cohort.main([*FAST, "--method", "ttrl", "--agents", "3", "--out", str(tmp_path)]) == 0
    assert "forecast" not in capsys.readouterr().out
    report.finish(tmp_path / "ttrl-001")
    assert "forecast" not in capsys.readouterr().out


def test_a_field_of_a_data_file_is_one_word(tmp_path, monkeypatch):
    """Other people's files name their fields otherwise; the message about a missing one lists the new names by itself."""
    monkeypatch.setattr(data, "QUESTION", (*data.QUESTION, "prompt_text"))
    monkeypatch.setattr(data, "ANSWER", (*data.ANSWER, "gold"))
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps({"prompt_text": "2+2?", "gold": 4}) + "\n")
    assert [(p.question, p.answer) for p in data.load_problems(path)] == [("2+2?", "4")]
