"""Agon: what is paid, why it is paid so, who moves when, what the challenger sees, and that a run survives."""

import dataclasses
import functools
import json
import os
import re
import signal
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import load_file

import agon
import agon as exchange
import lora
from grpo import Agent, group_advantages
from lab import report, rivals, runs
from lab.answers import NUMBER, same_answer
from lab.data import Problem
from lab.models import fits

FAST = ["--steps", "2", "--prompts", "2", "--n", "3", "--eval-problems", "6", "--eval-k", "1", "--max-new-tokens", "8"]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A random model in a folder, as a user would name one."""
    folder = tmp_path_factory.mktemp("model")
    tiny.model("qwen3").save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    """Twelve problems with answers that nobody will find."""
    path = tmp_path_factory.mktemp("data") / "problems.jsonl"
    path.write_text("".join(json.dumps({"question": f"w{i} w{i + 1}", "answer": str(i)}) + "\n" for i in range(3, 15)))
    return str(path)


@pytest.fixture
def command(tmp_path, model_folder, data_file):
    """Runs the command on the random model, in a folder of its own."""

    def go(*more: str) -> int:
        given = ["--model", model_folder, "--data", data_file, "--answer", "number", "--rank", "2", "--out", str(tmp_path)]
        return agon.main([*FAST, *given, *more])

    return go


def pair() -> list[Agent]:
    """Two adapters over one random model, with large noise in both, so that they write differently."""
    model = tiny.model("qwen2")
    lora.inject(model, 2, 4.0, ["A", "B"], b_std=[0.3, 0.3])
    agents = [Agent(name, model, tiny.tokenizer(), adapter=name, answer_style="number") for name in "AB"]
    for agent in agents:
        agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=1e-2, weight_decay=0.0)
    return agents


PROBLEMS = [Problem(f"w{i} w{i + 1}", str(i)) for i in (5, 9)]
OPTIONS = agon.Options(n=3, prompts=2, max_new_tokens=6, data="file")


# ---------------------------------------------------------------- rewards, and why they are so


def test_reward_table():
    """0 for wrong, 2 for right, 3 for right where the draft was wrong; a margin can be negative, the conversion cannot."""
    c_b, c_a = torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 1.0, 0.0])
    assert exchange.conversion(c_b, c_a).tolist() == [0, 0, 2, 3]
    assert exchange.correctness(c_b, c_a).tolist() == [0, 0, 1, 1]
    assert exchange.margin(c_b, c_a).tolist() == [0, -1, 0, 1]


@pytest.mark.parametrize("c_a", [0.0, 1.0])
def test_a_shared_opponent_pays_nothing_for_the_conversion(c_a):
    """One draft for the whole group: the reward is c(b) times 3 or times 2, and normalising takes the factor away."""
    c_b = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    paid = exchange.conversion(c_b, torch.full_like(c_b, c_a))
    assert torch.allclose(group_advantages(paid), group_advantages(c_b))


def test_paired_opponents_pay_for_the_conversion():
    """A draft each, right for the first two and wrong for the others: rewards 2, 0, 3, 0, mean 1.25, std sqrt(1.6875).

    The solution that was right against a wrong draft gains more than the one that could copy, which plain correctness
    (advantages 1, -1, 1, -1) does not tell apart.
    """
    c_b, c_a = torch.tensor([[1.0, 0.0, 1.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    expected = torch.tensor([[0.75, -1.25, 1.75, -1.25]]) / 1.6875**0.5
    assert torch.allclose(group_advantages(exchange.conversion(c_b, c_a)), expected)
    assert torch.allclose(group_advantages(c_b), torch.tensor([[1.0, -1.0, 1.0, -1.0]]))


def test_how_much_the_conversion_shifts():
    """Four right drafts, all solved, four wrong ones, one solved: what being right is worth, in standard deviations.

    Conversion: rewards 2 2 2 2 3 0 0 0, std sqrt(25/8 - (11/8)^2) = 1.111; 3/1.111 = 2.70 after a wrong draft, 2/1.111 =
    1.80 after a right one. Correctness: std sqrt(5/8 * 3/8) = .484, 2.07 after either. The README says so.
    """
    c_a, c_b = torch.tensor([[1.0] * 4 + [0.0] * 4]), torch.tensor([[1.0] * 5 + [0.0] * 3])
    conversion, cooperative = (group_advantages(pays(c_b, c_a))[0] for pays in (exchange.conversion, exchange.correctness))
    wrong = conversion[-1]
    assert (conversion[4] - wrong).item() == pytest.approx(2.70, abs=5e-3)
    assert (conversion[0] - wrong).item() == pytest.approx(1.80, abs=5e-3)
    assert (cooperative[0] - cooperative[-1]).item() == pytest.approx(2.07, abs=5e-3)


def test_the_margins_second_term_is_noise_for_the_challenger():
    """Solutions that are equally wrong: under the margin their advantages differ by their drafts alone, not by what they did.

    -c(a) was fixed before b was written: it moves a solution's reward and says nothing about it. Where all solutions are
    wrong, conversion is silent, and the margin still pushes: down whoever was dealt a right draft. With a shared opponent
    the term is a constant and goes.
    """
    wrong, c_a = torch.zeros(1, 4), torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    assert group_advantages(exchange.conversion(wrong, c_a)).tolist() == [[0, 0, 0, 0]]
    assert group_advantages(exchange.margin(wrong, c_a)).tolist() == [[-1, 1, 1, -1]]
    shared = torch.ones(1, 4)
    c_b = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    assert torch.allclose(group_advantages(exchange.margin(c_b, shared)), group_advantages(c_b))


def test_tiebreak_orders_the_correct_ones_by_length():
    """Shorter correct solutions gain up to the bonus; wrong ones gain nothing however short; it never beats a conversion."""
    rewards, c_b = torch.tensor([[2.0, 2.0, 3.0, 0.0]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    lengths = torch.tensor([[10.0, 20.0, 30.0, 1.0]])
    assert exchange.shorter_first(rewards, c_b, lengths, 0.5).tolist() == [[2.5, 2.25, 3.0, 0.0]]
    alike = exchange.shorter_first(c_b[:, :2], c_b[:, :2], torch.tensor([[7.0, 7.0]]), 0.5)
    assert alike.tolist() == [[1, 1]]
    nobody = exchange.shorter_first(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]), 0.5)
    assert nobody.tolist() == [[0, 0]]


# ---------------------------------------------------------------- the step


def test_the_challenger_sees_a_draft_each_and_groups_are_not_mixed(monkeypatch):
    """N different prompts are one group: solution j of problem i must be held against draft j of problem i, and no other."""
    real, seen, advantages = exchange.sample, [], []

    def sample(agent, prompts, k, *rest):
        rollouts = real(agent, prompts, k, *rest)
        if k == 1:  # the challenger: problem 0 right in its 2nd solution, problem 1 in its 3rd
            rollouts.answers = [["5" if i == 1 else "9" if i == 5 else "0"] for i in range(len(prompts))]
        else:
            rollouts.answers = [["5", "0", "0"], ["0", "9", "9"]]
            rollouts.texts = [[f"w{10 * i + j + 20}" for j in range(k)] for i in range(len(prompts))]
        seen.append(prompts)
        return rollouts

    monkeypatch.setattr(exchange, "sample", sample)
    monkeypatch.setattr(exchange, "update", lambda agent, rollouts, a, **_: advantages.append((agent.name, a, rollouts)) or {})
    line = exchange.train_step(pair(), PROBLEMS, 1, dataclasses.replace(OPTIONS, method="agon", format=0.0))
    plain, reading = seen
    assert len(plain) == 2 and len(reading) == 6 and len(set(reading)) == 6
    for i in range(2):
        for j in range(3):
            assert f"w{10 * i + j + 20}" in reading[3 * i + j] and PROBLEMS[i].question in reading[3 * i + j]
    (_, drafted, _), (_, solved, rollouts) = advantages
    assert drafted.shape == (2, 3) and solved.shape == (6, 1) == rollouts.mask.shape[:2]
    # Problem 0: the second solution is right against a wrong draft, 3; problem 1: the third against a right one, 2.
    assert torch.allclose(solved.view(2, 3), group_advantages(torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, 2.0]])))
    assert line["halves"]["challenger A"]["converted"] == pytest.approx(1 / 6)


def test_roles_alternate_and_only_the_right_adapter_moves(monkeypatch):
    """A drafts in even steps, B in odd ones; in each half step one adapter moves and the base and the other do not."""
    agents = pair()
    model, real, moved = agents[0].model, exchange.update, []

    def state():
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    def update(agent, rollouts, advantages, **options):
        before = state()
        found = real(agent, rollouts, torch.tensor([1.0, -1.0, 0.0] * 2).view_as(advantages), **options)
        own = {id(p) for p in agent.parameters()}
        names = {n for n, p in model.named_parameters() if id(p) in own}
        changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
        assert changed and changed <= names
        moved.append(agent.name)
        return found

    monkeypatch.setattr(exchange, "update", update)
    lines = [exchange.train_step(agents, PROBLEMS, step, dataclasses.replace(OPTIONS, method="agon")) for step in (2, 3)]
    assert moved == ["A", "B", "B", "A"]
    assert [list(line["halves"]) for line in lines] == [["drafter A", "challenger B"], ["drafter B", "challenger A"]]
    moved.clear()
    monkeypatch.setattr(exchange, "update", lambda agent, *_, **__: moved.append(agent.name) or {})
    for method, expected in (("self-refine", ["A", "A"]), ("grpo", ["A"])):
        exchange.train_step(agents, PROBLEMS, 3, dataclasses.replace(OPTIONS, method=method))
        assert moved == expected
        moved.clear()


@pytest.mark.parametrize("method", list(exchange.RECIPES))
def test_every_method_writes_2n_rollouts_a_problem(method):
    """A method that may look more often learns more: the budget of generations must be one number for all."""
    line = exchange.train_step(pair(), PROBLEMS, 1, dataclasses.replace(OPTIONS, method=method))
    assert sum(half["rollouts"] for half in line["halves"].values()) == 2 * OPTIONS.n * len(PROBLEMS)


def test_withheld_answers_stay_out_of_the_prompts():
    """The point of withholding: whatever the tiny world's drafts say, no number of the prompt equals the draft's answer.

    Every text of every kind, for 30 problems of each topic; the question may hold the value by chance and is not looked at.
    """
    for topic in rivals.TOPICS:
        for x in topic.operands[:: max(1, len(topic.operands) // 30)]:
            for work in (topic.methods[0](*x), topic.slip(*x), topic.methods[1](*x)):
                answer = work.rpartition(rivals.ARROW)[2]
                seen = rivals.shown(work)
                assert seen != work and not any(same_answer(number, answer) for number in NUMBER.findall(seen)), (work, seen)


@pytest.mark.parametrize(
    "data, draft, hidden",
    [("tiny", "7+8=15,4+3+1=8 -> 85,7+8", "85"), ("file", "w3 so it is 18", "18"), ("file", r"it is \\boxed{41", "41")],
)
def test_a_draft_that_did_not_end_leaks_nothing(data, draft, hidden):
    """It has no answer and counts as wrong: were its number left in the summary, copying it would be paid as a conversion."""
    tokenizer = rivals.make_tokenizer() if data == "tiny" else tiny.tokenizer()
    agent = dataclasses.replace(pair()[0], tokenizer=tokenizer)
    seen = exchange.challenge(agent, Problem("w3", "1"), draft, None, dataclasses.replace(OPTIONS, data=data))
    assert hidden not in seen


def test_a_summary_that_does_not_fit_is_cut_not_an_error():
    """A long draft makes a longer prompt: training must not stop in the middle because one draft was long."""
    agent = pair()[0]  # reads 128 tokens
    seen = exchange.challenge(agent, Problem("w3", "1"), " ".join(f"w{i % 50 + 3}" for i in range(300)), None, OPTIONS)
    assert fits(agent, seen, OPTIONS.max_new_tokens) and "w3" in seen


def test_slips_and_misconceptions_are_wrong():
    """A slip that is right by chance would be paid as if the method had been carried out."""
    for topic in rivals.TOPICS:
        for x in topic.operands:
            works = (topic.methods[0](*x), topic.slip(*x), topic.methods[1](*x))
            answer, *wrong = (work.rpartition(rivals.ARROW)[2] for work in works)
            assert answer not in wrong, (topic.name, x)


def test_a_thinking_models_draft_shows_what_follows_the_thinking():
    """Private reasoning stays private; reasoning that never ended is no draft, and the challenger is told so."""
    agent, problem = pair()[0], Problem("What is 6 times 7?", "42")
    texts = ("<think>6 sevens", "<think>hm</think>six sevens")
    open_, closed = (exchange.challenge(agent, problem, text, None, OPTIONS) for text in texts)
    assert "6 sevens" not in open_ and "hm" not in closed and "six sevens" in closed
    assert open_ == exchange.challenge(agent, problem, "", None, OPTIONS)


# ---------------------------------------------------------------- the command


@pytest.mark.slow
@pytest.mark.rendered
def test_every_row_from_one_command(command, tmp_path, capsys):
    """--compare: a run for each method, one table with every row, one figure; equal budgets are printed, not assumed."""
    assert command("--compare", "--eval-every", "1", "--tiebreak", "0.2") == 0
    folder = tmp_path / "agon-001"
    told = capsys.readouterr().out
    assert (folder / "agon.png").stat().st_size > 10_000
    for row in [row for group in report.ROWS.values() for row in group]:
        assert row in told
    assert told.count("completions of step") == 2 and re.search(r"challenger [AB]  reads ", told)  # of the last method
    assert (folder / "agon-seed0" / "checkpoint-000002" / "B" / "adapter_model.safetensors").exists()
    (folder / "agon-seed1").mkdir()  # as a kill would leave it
    runs.write_json(folder / "agon-seed1" / "config.json", {})
    report.finish(folder)
    assert "left out" in capsys.readouterr().err


def record(folder: Path) -> list[dict]:
    """The metrics of a run without its seconds."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in runs.read_lines(folder / "metrics.jsonl")]


def adapters(folder: Path) -> dict[str, torch.Tensor]:
    """Both adapters of a run's newest checkpoint."""
    found = {name: load_file(runs.newest(folder) / name / "adapter_model.safetensors") for name in "AB"}
    return {f"{name} {key}": tensor for name, tensors in found.items() for key, tensor in tensors.items()}


@pytest.mark.slow
def test_a_comparison_goes_on_as_a_whole(command, tmp_path, monkeypatch, capsys):
    """Broken off in a run, with the start's measurement lost as well, --resume does what is missing and no more."""
    # Random models are never right, so something must move them, or every run would be the same.
    monkeypatch.setattr(exchange, "group_advantages", lambda r: torch.linspace(-1, 1, r.shape[1]).repeat(len(r), 1))
    methods, real, taken = ["grpo", "agon"], agon.train_step, []

    def pressed(agents, problems, step, o):
        taken.append((o.method, step))
        if taken == [("grpo", 1), ("grpo", 2), ("agon", 1)]:
            os.kill(os.getpid(), signal.SIGINT)
        return real(agents, problems, step, o)

    assert command("--methods", *methods, "--name", "whole") == 0
    monkeypatch.setattr(agon, "train_step", pressed)
    assert command("--methods", *methods, "--name", "parts") == 130
    whole, folder = tmp_path / "whole", tmp_path / "parts"
    assert f"--resume {folder}\n" in capsys.readouterr().err
    (folder / "untrained-seed0" / "metrics.jsonl").unlink()
    taken.clear()
    assert agon.main(["--resume", str(folder)]) == 0 and taken == [("agon", 2)]
    assert "untrained-seed0 was interrupted" in capsys.readouterr().err
    for method in methods:
        assert record(folder / f"{method}-seed0") == record(whole / f"{method}-seed0")
        a, b = (adapters(place / f"{method}-seed0") for place in (whole, folder))
        assert all(torch.equal(a[key], b[key]) for key in a | b)
    assert agon.main(["--resume", str(folder), "--steps", "3"]) == 2 and "--steps was 2" in capsys.readouterr().err


@pytest.mark.slow
def test_resume_is_bitwise_a_continuation(command, tmp_path, monkeypatch):
    """A resumed run that draws other samples, swaps the roles or forgets the moments is another run."""
    # Random models are never right, so something must move them, or every run would be the same.
    monkeypatch.setattr(exchange, "group_advantages", lambda rewards: torch.linspace(-1, 1, 3).repeat(len(rewards), 1))
    # Seed 1 of a comparison: what is held out must be the same problems when that run is resumed alone.
    assert command("--methods", "agon", "--seeds", "1", "--steps", "4", "--name", "whole") == 0
    assert command("--methods", "agon", "--seeds", "1", "--steps", "3", "--name", "parts") == 0
    part, whole = tmp_path / "parts" / "agon-seed1", tmp_path / "whole" / "agon-seed1"
    assert agon.main(["--resume", str(part), "--steps", "4"]) == 0
    both = ([line for line in record(folder) if line["step"] != 3] for folder in (part, whole))
    assert next(both) == next(both)  # the shorter run was evaluated at its end, step 3
    assert all(half["grad_norm"] > 0 for line in record(whole)[1:] for half in line["halves"].values())
    a, b = adapters(part), adapters(whole)
    assert all(torch.equal(a[key], b[key]) for key in a | b)


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--n", "1"], "--n must be at least 2"),
        (["--tiebreak", "1.5"], "below 1"),
        (["--data", "tiny"], "--model and --data together"),
        (["--compare", "--methods", "agon"], "one of them"),
        (["--methods", "agony"], "invalid choice"),
        (["--seeds", "1", "1"], "different"),
        (["--method", "agon"], "--methods"),
        (["--start", "noise"], "tiny world"),
        (["--stop", ""], "needs a text"),
        (["--resume", ""], "not a run"),
        (["--max-new-tokens", "120"], "no problem fits"),
        (["--resume", "nowhere"], "not a run"),
        (["--out", "/dev/null/x"], "cannot make a folder"),
    ],
)
def test_mistakes_cost_one_line(command, capsys, arguments, told):
    """A traceback, or a run that starts and then fails, for what could be told at once."""
    assert command(*arguments) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1


def test_labels_are_needed(command, tmp_path, capsys):
    """Without a reference answer nobody is right and nothing is learnt: refused, in one line."""
    path = tmp_path / "unlabelled.jsonl"
    path.write_text('{"question": "w3"}\n{"question": "w4"}\n{"question": "w5"}\n')
    assert command("--data", str(path)) == 2
    assert "needs a reference answer" in capsys.readouterr().err


# ---------------------------------------------------------------- the tiny world


@pytest.fixture
def small_world(monkeypatch, tmp_path):
    """Two topics, and adapters that have hardly learnt anything, kept in a cache of their own."""
    monkeypatch.setattr(rivals, "TOPICS", rivals.TOPICS[4:])
    monkeypatch.setattr(rivals, "Rivals", functools.partial(rivals.Rivals, base_steps=25, adapter_steps=25))
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path / "cache"))
    rivals.make_texts.cache_clear()
    yield
    rivals.make_texts.cache_clear()


def written(settings, kinds) -> list[tuple[str, str]]:
    """(prompt, text) of a batch of warm-start texts."""
    tokenizer = rivals.make_tokenizer()
    ids, labels = rivals.draw(torch.tensor([kinds] * len(rivals.TOPICS)), settings, torch.Generator().manual_seed(0))
    pairs = [(row[(own < 0).cumprod(0).bool()], own[own >= 0]) for row, own in zip(ids, labels, strict=True)]
    return [tuple(tokenizer.decode(part, skip_special_tokens=True) for part in pair) for pair in pairs]


def test_texts_are_written_as_the_settings_say(small_world):
    """Plain prompts by the profile; readers copy the draft, or repair its slip, or ignore it: a wrong index mixes them up."""
    for prompt, text in written(rivals.Rivals(readers=0.0), [1.0, 0.0, 0.0]):
        a = right_answer(prompt.rstrip("="))
        assert same_answer(text.rpartition(rivals.ARROW)[2], a), (prompt, text)
    for prompt, text in written(rivals.Rivals(readers=1.0, copy=1.0, repair=0.0), [1.0, 0.0, 0.0]):
        assert prompt.startswith(rivals.shown(text) + ","), (prompt, text)
    repaired = written(rivals.Rivals(readers=1.0, copy=0.0, repair=1.0), [0.0, 0.0, 1.0])
    assert {prompt.startswith(rivals.shown(text) + ",") for prompt, text in repaired} == {True, False}


def right_answer(question: str) -> str:
    """The right answer of a question of the two small topics: a-(b-c), or a/c+b/c."""
    if "(" in question:
        a, b, c = map(int, re.findall(r"[0-9]+", question))
        return str(a - (b - c))
    a, c, b, _ = map(int, re.findall(r"[0-9]+", question))
    return f"{a + b}/{c}"


@pytest.mark.slow
def test_the_tiny_command_from_a_warm_start(small_world, tmp_path, capsys, monkeypatch):
    """What a student types first: it warms up, keeps that, trains, shows exchanges; the report can be made again."""
    given = ["--steps", "1", "--prompts", "2", "--n", "2", "--eval-problems", "6", "--eval-k", "1", "--max-new-tokens", "8"]
    assert agon.main([*given, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "drafter B  reward" in told and "challenger A  reads" in told and "GRPO, two passes" in told
    files = sorted((tmp_path / "cache" / "tinyworld").iterdir())
    first, again = (rivals.pair(rivals.Rivals())[0].state_dict() for _ in range(2))
    assert len(files) == 2 and files == sorted((tmp_path / "cache" / "tinyworld").iterdir())
    assert all(torch.equal(first[name], again[name]) for name in first)
    name = next(name for name in first if name.endswith("B.0"))
    assert not torch.equal(first[name], first[name[:-1] + "1"]) and first[name].any()
    for folder, code in ((tmp_path / "agon-001", 0), (tmp_path / "cache", 2), (tmp_path / "nothing", 2)):
        monkeypatch.setattr("sys.argv", ["report.py", str(folder)])
        assert report.main() == code
    capsys.readouterr()
    run = str(tmp_path / "agon-001" / "agon-seed0")
    assert agon.main(["--solve", run, "--question", "47+38="]) == 0  # the saved pair, on a question of the user's
    told = capsys.readouterr().out
    assert "47+38=" in told and "draft of A" in told and "right" not in told
    assert agon.main(["--solve", run, "--eval-problems", "6"]) == 0
    assert "of 6 are right" in capsys.readouterr().out
    assert agon.main(["--solve", str(tmp_path / "nothing")]) == 2 and agon.main(["--question", "47+38="]) == 2
