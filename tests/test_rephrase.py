"""Rewrites and their checks: by hand, with a sampler whose texts stand here, and bit by bit with a random model."""

import itertools
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
import torch

from lab import guards, models, rephrase
from lab.data import Problem, load_problems
from lab.rephrase import INSTRUCTION, answer_fault, main, numbers_fault, text_fault

# ---------------------------------------------------------------- the checks


@pytest.mark.parametrize("question, rewrite, reason", [
    ("Add 7 and 5.", "What is 5 + 7?", ""),
    ("1,000 or 1/2", r"\frac{1}{2} of 1000, that is 0.5", "numbers: new 1/2"),
    ("7 and 7 and 5", "7 and 5", "numbers: lost 7"),
    ("7 and 5", "7 and 6", "numbers: lost 5, new 6"),
    ("Let x2 be 3.", "Three is x2.", "numbers: lost 3"),
    ("no number", "none", ""),
])
def test_numbers_by_value_and_count(question, rewrite, reason):
    """Guards: numbers compared as text or as a set; the digits of a name counted."""
    assert numbers_fault(question, rewrite) == reason


def test_text_faults():
    """Guards: half a rewrite, none, or the question itself taken for one in other words."""
    assert text_fault("Add 7.", "Add 7 to", False).startswith("unfinished:")
    assert text_fault("Add 7.", "", True).startswith("empty:")
    assert text_fault("Add  7.", "Add 7.", True).startswith("unchanged:")
    assert text_fault("Add 7.", "Put 7 to it.", True) == ""


def test_answers_by_majority():
    """Guards: single answers compared instead of votes, spellings told apart, two ties or two silences agreeing."""
    assert answer_fault(["5", "5", "7"], ["8", "5.0", "5"]) == ""
    assert answer_fault(["5", "5", "7"], ["7", "7", "5"]) == "answer: 5 on the question, 7 on the rewrite"
    assert answer_fault(["5", "7"], ["5", "5"]) == "answer: no majority on the question, 5 on the rewrite"
    assert answer_fault([None, None], [None, None]).startswith("answer: no majority")


# ---------------------------------------------------------------- the command, with known texts


QUESTIONS = {  # question: (rewrite, answers to the question, answers to the rewrite)
    "Add 7 and 5.": ("<think>so</think> Give 5 plus 7.", ["12", "12", "3"], ["12", "1", "12"]),
    "Add 7 and 6.": ("Give 8 plus 6.", ["13"] * 3, ["14"] * 3),
    "Add 7 and 7.": ("Give 7 times 7.", ["14"] * 3, ["49", "49", "14"]),
    "Add 7 and 8.": ("  ", ["15"] * 3, ["15"] * 3),
    "Add 7 and 9.": (None, ["16"] * 3, ["16"] * 3),
}


@pytest.fixture
def stubbed(tmp_path, monkeypatch):
    """The working folder with DATA, and a model that says what QUESTIONS hold; returns the prompts that it was given."""
    monkeypatch.chdir(tmp_path)
    lines = [{"question": q, "answer": str(12 + i), "topic": "sums"} for i, q in enumerate(QUESTIONS)]
    Path("d.jsonl").write_text("\n".join(map(json.dumps, lines)))
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(max_position_embeddings=None))
    ends = SimpleNamespace(eos_token_id=2)
    model = SimpleNamespace(config=config, generation_config=ends)
    monkeypatch.setattr(models, "load_model", lambda *_: (model, tiny.tokenizer()))
    monkeypatch.setattr(guards, "try_out", lambda agents: None)  # it has no weights that could be tried
    rewrites = {q: text or "" for q, (text, _, _) in QUESTIONS.items()}
    answers = {q: on_q for q, (_, on_q, _) in QUESTIONS.items()}
    answers |= {(text or "").split("</think>")[-1].strip(): on_r for text, _, on_r in QUESTIONS.values()}
    asked = []

    def sample_cohort(agents, prompts, k, new, temperature, generators):
        asked.append([prompt for prompt, in prompts])
        assert len(agents) == len(prompts) == len(generators)
        for prompt in asked[-1]:
            question = prompt.removeprefix(INSTRUCTION)
            done = torch.tensor([[QUESTIONS.get(question, ("",))[0] is not None]])
            yield SimpleNamespace(texts=[[rewrites.get(question)]], finished=done, answers=[answers.get(question, [])[:k]])

    monkeypatch.setattr(rephrase, "sample_cohort", lambda *given: list(sample_cohort(*given)))
    return asked


def test_what_is_kept_and_what_is_marked(stubbed, capsys):
    """Guards: a rewrite with another number, another answer or no text that an agent would train on; a lost topic."""
    assert main(["d.jsonl", "--model", "m", "--out", "o.jsonl", "--votes", "3", "--batch", "3", "--answer", "number"]) == 0
    problems = load_problems("o.jsonl")
    assert problems[0] == Problem("Add 7 and 5.", "12", "sums", "Give 5 plus 7.")
    assert [p.rephrased for p in problems[1:]] == [None] * 4
    assert [(p.question, p.answer) for p in problems] == [(q, str(12 + i)) for i, q in enumerate(QUESTIONS)]
    lines = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    reasons = [line.get("reason", "").partition(":")[0] for line in lines]
    assert reasons == ["", "numbers", "answer", "empty", "unfinished"]
    assert lines[1]["rejected"] == "Give 8 plus 6." and lines[2]["reason"] == "answer: 14 on the question, 49 on the rewrite"
    told = capsys.readouterr().out
    assert "5 problems, 1 rephrased, 4 failed" in told and "numbers 1" in told
    # Only what passed the checks of its text is solved, in both forms.
    assert stubbed[1:3] == [["Add 7 and 5.", "Add 7 and 7."], ["Give 5 plus 7.", "Give 7 times 7."]]


def test_nothing_is_sampled_twice(stubbed, capsys):
    """Guards: a finished file written again; a larger --limit that begins anew."""
    command = ["d.jsonl", "--model", "m", "--out", "o.jsonl", "--votes", "3", "--batch", "1", "--answer", "number"]
    assert main([*command, "--limit", "2"]) == 0
    before, calls = Path("o.jsonl").read_bytes(), len(stubbed)
    assert main([*command, "--limit", "2"]) == 0 and len(stubbed) == calls
    assert main(command) == 0
    assert Path("o.jsonl").read_bytes().startswith(before) and stubbed[calls] == [INSTRUCTION + "Add 7 and 7."]
    assert "5 problems" in capsys.readouterr().out


def test_a_begun_batch_is_sampled_as_a_whole(stubbed):
    """Guards: a batch of another make-up after a break: other padding, other rounding, and now and then another text."""
    command = ["d.jsonl", "--model", "m", "--out", "o.jsonl", "--votes", "3", "--batch", "3"]
    assert main(command) == 0
    whole, asked = Path("o.jsonl").read_bytes(), list(stubbed)
    Path("o.jsonl").write_bytes(whole[: whole.index(b"\n") + 9])
    stubbed.clear()
    assert main(command) == 0 and stubbed == asked and Path("o.jsonl").read_bytes() == whole


@pytest.mark.parametrize("change, reason", [
    (["--seed", "1"], "another --seed (0, now 1)"),
    (["--votes", "4"], "another --votes"),
    (["--model", "other"], "another --model (m, now other)"),
    (["--system", "s"], "another --system"),
])
def test_other_settings_are_refused(change, reason, stubbed, capsys):
    """Guards: a file half of which was made in another way; a file that is changed before it is refused."""
    command = ["d.jsonl", "--model", "m", "--out", "o.jsonl", "--votes", "3"]
    assert main(command) == 0
    with open("o.jsonl", "a") as file:
        file.write('{"question": "ha')
    before = Path("o.jsonl").read_bytes()
    assert main([*command, *change]) == 2 and Path("o.jsonl").read_bytes() == before
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("lab.rephrase: ") and reason in told


def test_a_file_of_other_data_is_refused(stubbed, capsys):
    """Guards: rewrites of one data set filled up with those of another, or a user's file cut or appended to."""
    command = ["--model", "m", "--out", "o.jsonl", "--votes", "3"]
    assert main(["d.jsonl", *command]) == 0
    Path("e.jsonl").write_text('{"question": "Add 7 and 5.", "answer": "12"}\n{"question": "Add 1 and 1.", "answer": "2"}')
    assert main(["e.jsonl", *command]) == 2
    assert "line 2, is another problem" in capsys.readouterr().err
    for text in ("notes", "notes\nmore", '{"question": "Add 7 and 5.", "answer": "12"}\n', '{"made": 3}\n', "[]\n", "\n"):
        Path("o.jsonl").write_text(text)
        assert main(["d.jsonl", *command]) == 2 and Path("o.jsonl").read_text() == text
        assert "not written by this command" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, reason", [
    (["d.jsonl"], "--model"),
    (["d.jsonl", "--model", "m", "--out", "o.txt"], "--out o.txt"),
    (["d.jsonl", "--model", "m", "--out", "no/o.jsonl"], "--out no/o.jsonl"),
    (["none.jsonl", "--model", "m", "--out", "o.jsonl"], "no file none.jsonl"),
    (["d.jsonl", "--model", "m", "--out", "o.jsonl", "--votes", "0"], "--votes must be at least 1"),
    (["d.jsonl", "--model", "m", "--out", "o.jsonl", "--limit", "0"], "at least 1"),
    (["d.jsonl", "--model", "m", "--out", "o.jsonl", "--temperature", "0"], "--temperature"),
    (["d.jsonl", "--model", "m", "--out", "o.jsonl", "--device", "no"], "--device no"),
    (["d.jsonl", "--check"], "no problem of DATA has a rephrased form"),
    (["d.jsonl", "--mod", "m"], "--mod"),
])
def test_refused_in_one_line(arguments, reason, stubbed, capsys):
    """Guards: a traceback, or a mistake told after minutes."""
    assert main(arguments) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("lab.rephrase: ") and reason in told and "\n" not in told
    assert not Path("o.jsonl").exists()


def test_check_needs_no_model(tmp_path, capsys):
    """Guards: the numbers of given pairs counted wrongly, or problems without a rewrite counted as failed."""
    pairs = [("7 and 5", "5 and 7"), ("7 and 5", "7 and 6"), ("8", None)]
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"original": a, "rewritten": b}) for a, b in pairs))
    assert main([str(tmp_path / "p.jsonl"), "--check"]) == 0
    told = capsys.readouterr().out
    assert "problem 2, numbers: lost 5, new 6" in told and "1 of 2 rewrites keep the numbers (50.0%)" in told


def test_the_command_explains_itself(capsys, monkeypatch):
    """Guards: `python -m lab.rephrase` without a main; its --help must explain the checks."""
    for arguments, code in ((["--help"], 0), ([], 2)):
        monkeypatch.setattr(sys, "argv", ["lab/rephrase.py", *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(rephrase.__file__, run_name="__main__")
        assert end.value.code == code
    found = capsys.readouterr()
    assert "majority answer" in found.out and "rephrase: " in found.err


# ---------------------------------------------------------------- going on after a break, with a real sampler


@pytest.fixture
def random_model(tmp_path, monkeypatch):
    """The working folder with seven questions, one too long for the random model that `--model m` loads."""
    monkeypatch.chdir(tmp_path)
    questions = [f"w{i} w{i + 1} w{i + 2}" for i in range(5, 11)]
    questions.insert(3, "w9 " * 120)
    Path("d.jsonl").write_text("\n".join(json.dumps({"question": q, "answer": "1"}) for q in questions))
    tokenizer = tiny.tokenizer()
    monkeypatch.setattr(rephrase, "INSTRUCTION", "w3 w4 ")
    model = tiny.model("qwen3")
    model.config.eos_token_id = list(range(2, 20))  # some texts end
    monkeypatch.setattr(models, "load_model", lambda *_: (model, tokenizer))
    return ["d.jsonl", "--model", "m", "--votes", "2", "--batch", "2", "--max-new-tokens", "12"]


@pytest.mark.slow
def test_a_broken_file_is_continued_bit_for_bit(random_model):
    """Guards: draws that depend on where the file broke off; a half-written line, even the first, kept or doubled."""
    assert main([*random_model, "--out", "whole.jsonl"]) == 0
    whole = Path("whole.jsonl").read_bytes()
    records = [json.loads(line) for line in whole.splitlines()]
    assert records[3]["reason"].startswith("too long") and len({r.get("rejected") for r in records}) >= 5
    ends = list(itertools.accumulate(len(line) + 1 for line in whole.splitlines()))
    for size in (0, 9, ends[0] - 2, ends[0], ends[1] + 20, ends[4], ends[5] - 1):
        Path("cut.jsonl").write_bytes(whole[:size])
        assert main([*random_model, "--out", "cut.jsonl"]) == 0
        assert Path("cut.jsonl").read_bytes() == whole
    assert main([*random_model, "--out", "other.jsonl", "--seed", "1"]) == 0
    assert Path("other.jsonl").read_bytes() != whole


def test_a_problem_draws_alike_in_any_batch(random_model):
    """Guards: numbers drawn for a whole batch, so that --batch, a matter of memory, changes every text."""
    texts = []
    for batch in ("1", "7"):
        assert main([*random_model, "--out", f"{batch}.jsonl", "--batch", batch]) == 0
        lines = [json.loads(line) for line in Path(f"{batch}.jsonl").read_text().splitlines()]
        texts.append([{**line, "made": None} for line in lines])
    assert texts[0] == texts[1]
