"""The command from end to end: what it writes, that runs repeat and resume bit by bit, and that mistakes cost one line."""

import dataclasses
import functools
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import cohort
import cohort as step
from grpo import Agent, sample, sample_cohort
from lab import memory, runs, setup, tinyworld
from lab.data import UserError
from lab.methods import hooks_of

FAST = ["--steps", "2", "--prompts", "3", "--k", "4", "--eval-problems", "6", "--eval-k", "2", "--max-new-tokens", "12"]


@pytest.fixture(autouse=True)
def short_warm_start(monkeypatch, tmp_path_factory):
    """Agents that have hardly learnt anything yet, cached for all tests of this file."""
    monkeypatch.setattr(tinyworld, "WarmStart", functools.partial(tinyworld.WarmStart, base_steps=60, agent_steps=5))
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path_factory.getbasetemp() / "cohort-cache"))


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    """A random model in a folder, as a user would name one."""
    folder = tmp_path_factory.mktemp("model")
    tiny.model("qwen3").save_pretrained(folder)  # qwen2 would make AutoTokenizer take its own class
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory) -> Path:
    """A random model with a chat template and room for what a judge reads."""
    folder = tmp_path_factory.mktemp("chat")
    model, tokenizer = tiny.model("qwen3"), tiny.tokenizer()
    model.config.max_position_embeddings = 1024
    tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data_file(tmp_path_factory) -> Path:
    """Twelve problems with answers that nobody will find."""
    path = tmp_path_factory.mktemp("data") / "problems.jsonl"
    path.write_text("".join(json.dumps({"question": f"w{i} w{i + 1}", "answer": str(i)}) + "\n" for i in range(3, 15)))
    return path


def go(tmp_path, *arguments: str) -> int:
    return cohort.main([*FAST, "--out", str(tmp_path / "runs"), *arguments])


def lines(folder: Path) -> list[dict]:
    """metrics.jsonl without the seconds."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in runs.read_lines(folder / "metrics.jsonl")]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(runs.newest(folder).glob("*/*.safetensors"))
    return {f"{file.parent.name}/{name}": t for file in files for name, t in load_file(file).items()}


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# ---------------------------------------------------------------- what a run writes


@pytest.mark.rendered
def test_a_run_writes_all_it_promises(tmp_path, capsys):
    """A figure, a metric or a checkpoint that is missing, or does not load, is noticed by the user after the run."""
    assert go(tmp_path, "--eval-every", "1") == 0
    folder = tmp_path / "runs" / "corl-001"
    figures = {"training.png", "overlay.png"}
    assert {p.name for p in folder.iterdir()} == figures | {"config.json", "metrics.jsonl", "samples.jsonl", "table.txt",
                                                            "checkpoint-000002"}  # fmt: skip
    first, *rest = lines(folder)
    assert (
        first["step"] == 0
        and set(first["probes"]) == {"A", "B"}
        and list(first["probes"]["A"]) == [t.name for t in tinyworld.TOPICS]
    )
    assert [line["step"] for line in rest] == [1, 2] and all("eval" in line for line in rest)
    assert set(rest[0]["agents"]["B"]) == {
        "reward_mean",
        "reward_std",
        "signal",
        "labelled",
        "label_accuracy",
        "accuracy",
        "length",
        "truncated",
        "entropy",
        "tokens",
        "loss",
        "approx_kl",
        "clip_fraction",
        "grad_norm",
    }
    assert 0 <= rest[0]["agreement"] <= 1 and rest[0]["agents"]["A"]["approx_kl"] < 1e-6
    saved = folder / "checkpoint-000002" / "A"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(saved), AutoTokenizer.from_pretrained(saved)
    rollouts = sample(Agent("A", model, tokenizer, answer_style="number"), ["47+38="], 2, 12)
    assert rollouts.texts[0][0]
    told = capsys.readouterr().out
    assert "forecast" in told and "outcome" in told


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_a_ring_of_n(tmp_path, n, capsys):
    """More than two agents: each is graded by the one before it, and the table still says what the theory forecasts."""
    assert go(tmp_path, "--agents", str(n), "--steps", "1") == 0
    line = lines(tmp_path / "runs" / "corl-001")[-1]
    assert list(line["agents"]) == ["A", "B", "C", "D"][:n]
    assert "forecast" in capsys.readouterr().out


def test_the_ring_is_directed():
    """Agent n is paid for its peer's majority, agent n-1's, not for its own and not for the next one's."""

    class Said:
        def __init__(self, *answers):
            self.answers = [list(answers)]

    written = [Said("1", "1", "2"), Said("2", "2", "1"), Said("3", "3", "1")]
    ballots, corl = [said.answers for said in written], cohort.REWARDS["corl"]
    paid = [corl.rewards(n, written, [None], corl.labels(n, ballots, [None])).tolist() for n in range(3)]
    assert paid == [[[0, 0, 0]], [[0, 0, 1]], [[0, 0, 0]]]


@pytest.mark.parametrize("method", list(cohort.REWARDS))
def test_every_method_runs(tmp_path, method, chat_folder, data_file):
    """A registry entry that no command can run is not a method."""
    real = ["--models", *[str(chat_folder)] * 2, "--data", str(data_file)] if hooks_of(method).needs_chat else []
    assert go(tmp_path, "--method", method, "--steps", "1", *real) == 0
    assert lines(tmp_path / "runs" / f"{method}-001")[-1]["agents"]["A"]["reward_std"] >= 0


def test_real_models_and_data(tmp_path, model_folder, data_file, capsys):
    """Folders as models, a file as data: held-out accuracy with its interval, before and after."""
    assert (
        go(tmp_path, "--models", str(model_folder), str(model_folder), "--data", str(data_file), "--answer", "number")
        == 0
    )
    told = capsys.readouterr().out
    assert "95% interval" in told and "memory: about" in told
    assert lines(tmp_path / "runs" / "corl-001")[-1]["eval"]["B"]["high"] > 0


@pytest.mark.slow
def test_problems_of_another_source_are_measured_too(tmp_path, model_folder, data_file, capsys):
    """--eval-data: trained on one source, measured on others, each read as it needs: here boxes and numbers."""
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(json.dumps({"question": f"w{i} w4", "answer": f"\\boxed{{{i}}}"}) for i in range(5, 9)))
    models = ["--models", str(model_folder), str(model_folder), "--data", str(data_file)]
    assert go(tmp_path, *models, "--eval-data", str(other), "sums", "--eval-every", "1") == 0
    told, first = capsys.readouterr().out, lines(tmp_path / "runs" / "corl-001")[0]
    assert [first[f"eval on {source}"]["B"]["problems"] for source in (other, "sums")] == [4, 6]
    assert f" on {other}" in told and "A on sums" in told  # of each evaluation a line, and of the closing table two
    assert cohort.main(["--resume", str(tmp_path / "runs" / "corl-001"), "--steps", "3"]) == 0
    assert "eval on sums" in lines(tmp_path / "runs" / "corl-001")[-1]


@pytest.mark.slow
def test_training_is_towards_the_label(tmp_path, monkeypatch):
    """Ground truth on one topic: after 25 steps the reward is well above where it began, for both agents."""
    monkeypatch.setattr(tinyworld, "WarmStart", functools.partial(tinyworld.WarmStart, base_steps=200, agent_steps=20))
    options = "--method gt --topics fraction --steps 25 --prompts 12 --k 8 --lr 2e-4 --max-new-tokens 24 --eval-every 0"
    assert go(tmp_path, *options.split()) == 0
    record = lines(tmp_path / "runs" / "gt-001")
    for name in ("A", "B"):
        rewards = [line["agents"][name]["reward_mean"] for line in record[1:]]
        assert sum(rewards[-5:]) > sum(rewards[:5]) + 0.25, rewards


# ---------------------------------------------------------------- runs that repeat and resume


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--lora-rank", "2", "--lr", "1e-2"]])
def test_resume_is_bitwise_a_continuation(tmp_path, options):
    """T19: a resumed run that draws other samples, or forgets AdamW's moments, is another run."""
    options = [*options, "--method", "intuitor"]  # these agents know nothing yet: votes would pay nobody, and nothing would move
    assert go(tmp_path, "--steps", "4", "--name", "whole", "--eval-every", "2", *options) == 0
    assert go(tmp_path, "--steps", "2", "--name", "parts", "--eval-every", "2", *options) == 0
    assert cohort.main(["--resume", str(tmp_path / "runs" / "parts"), "--steps", "4"]) == 0
    assert lines(tmp_path / "runs" / "whole") == lines(tmp_path / "runs" / "parts")
    assert same(weights(tmp_path / "runs" / "whole"), weights(tmp_path / "runs" / "parts"))
    assert all(agent["grad_norm"] > 0 for line in lines(tmp_path / "runs" / "whole")[1:] for agent in line["agents"].values())


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--lora-rank", "2", "--lr", "1e-2"]])
def test_a_teacher_is_resumed_bit_for_bit(tmp_path, options, model_folder, data_file, capsys, monkeypatch):
    """A teacher that starts again as the policy, or as drawn, votes otherwise; and its pace depends on --steps."""
    # Agents that know nothing yet earn nothing: something must move them, or the teacher would have nothing to follow.
    monkeypatch.setattr(step, "group_advantages", lambda rewards, scale: torch.linspace(-1, 1, 4).expand_as(rewards))
    run = ["--method", "corewarding2", "--steps", "2", "--save-every", "1", "--name", "whole", "--eval-every", "0"]
    assert go(tmp_path, *run, *options, "--models", *[str(model_folder)] * 2, "--data", str(data_file)) == 0
    whole, cut = tmp_path / "runs" / "whole", tmp_path / "runs" / "cut"
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoint-000002")
    assert cohort.main(["--resume", str(cut)]) == 0
    assert lines(whole) == lines(cut) and same(weights(whole), weights(cut))
    kept = weights(cut)
    slow = {name for name in kept if name.startswith("A-teacher/")}
    assert slow and not all(torch.equal(kept[name], kept[name.replace("A-teacher", "A")]) for name in slow)
    damaged = next((cut / "checkpoint-000002" / "A-teacher").glob("*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert runs.newest(cut).name == "checkpoint-000001"
    assert cohort.main(["--resume", str(cut), "--steps", "5"]) == 2
    assert "--steps was 2" in capsys.readouterr().err


def test_resume_to_before_the_checkpoint_is_refused(tmp_path, capsys):
    """--steps below what is done would write its wish into config.json and leave the run as it is."""
    assert go(tmp_path, "--name", "x") == 0
    folder = tmp_path / "runs" / "x"
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert cohort.main(["--resume", str(folder), "--steps", "1"]) == 2
    assert "--steps 1 is less than what is done" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.slow
def test_what_both_forms_need_is_filtered_for_all(tmp_path, model_folder, capsys):
    """A file of `tasks.py rephrase` in which some rewrites failed: the rest is trained on, by every method, also when resumed."""
    path = tmp_path / "some.jsonl"
    records = [{"question": f"w{i} w{i + 1}", "answer": str(i)} for i in range(3, 15)]
    for record in records[:9]:
        record["rephrased"] = "w9 " + record["question"]
    path.write_text("\n".join(map(json.dumps, records)))
    real = ["--models", *[str(model_folder)] * 2, "--data", str(path), "--answer", "number", "--eval-every", "0"]
    assert go(tmp_path, *real, "--compare", "intuitor", "corewarding1", "--save-every", "1", "--name", "x") == 0
    told = capsys.readouterr()
    assert told.err.count("problems to train on: corewarding1 needs a rephrased form") == 1
    assert told.out.count("memory: about") == 2
    whole, cut = tmp_path / "runs" / "x" / "intuitor-seed0", tmp_path / "cut"
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoint-000002")
    assert cohort.main(["--resume", str(cut)]) == 0
    assert lines(whole) == lines(cut) and same(weights(whole), weights(cut))
    o = cohort.parse([*real, "--method", "corewarding1"], "")
    assert all(p.rephrased for p in setup.read_data(o)[0])


def test_a_full_gpu_costs_one_line(tmp_path, monkeypatch, capsys):
    """The options that lower the need, and what each part takes: the user knows what to try."""

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has ...")

    monkeypatch.setattr(cohort, "train_step", full)
    assert go(tmp_path) == 2
    told = capsys.readouterr().err.replace("\r", "\n").splitlines()[-1]
    assert told.startswith("cohort.py: out of memory (tried to allocate 2.32 gib); by the estimate, sampling takes 0.")
    assert "--prompts, --k" in told and "--micro-batch" in told and "--dtype" in told
    monkeypatch.setattr(setup, "make_cohort", full)
    assert go(tmp_path) == 2 and "lower --prompts, --k" in capsys.readouterr().err


def test_memory_by_hand():
    """votes, both forms and a judge's prompts are held too; agents of one base write in one pass."""
    agents = [Agent(name, tiny.model("qwen3"), tiny.tokenizer()) for name in "AB"]
    for agent in agents:
        agent.optimizer = torch.optim.AdamW(agent.parameters())

    def need(*more, of=agents):
        arguments = ["--prompts", "8", "--k", "4", "--max-new-tokens", "16", "--eval-problems", "2", "--eval-k", "2", *more]
        return memory.estimate(of, memory.at_a_time(cohort.parse(arguments, "")))

    plain = need()
    numbers = sum(p.numel() for p in agents[0].model.parameters())
    assert plain.weights == 2 * 4 * numbers and plain.optimizer == 3 * plain.weights
    # 32 rollouts of 256 + 16 tokens: a key and a value of 2 heads of 8 in 2 layers; 64 logits, three times.
    assert plain.cache == 32 * 272 * 64 * 4 and plain.drawing == 32 * 3 * 4 * 64
    assert plain.learning == 8 * 4 * 16 * 26 * 64
    assert need("--votes", "12").cache == 3 * plain.cache and need("--votes", "12", "--method", "gt").cache == plain.cache
    assert need("--method", "corewarding1").cache == 2 * plain.cache
    assert need("--method", "comas").cache == 32 * (272 + 256 + 2 * 16) * 64 * 4
    shared = [agents[0], dataclasses.replace(agents[0], name="B")]
    assert need(of=shared).cache == 2 * plain.cache and need(of=shared).weights == plain.weights / 2
    assert "lower --prompts, --votes" in str(need("--votes", "12"))
    assert "lower --max-new-tokens (evaluations hold 256" in str(need("--eval-problems", "99", "--eval-k", "9"))


@pytest.mark.slow
def test_same_seed_same_run_and_another_seed_another(tmp_path):
    """Without this no figure in the README could be checked."""
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        assert go(tmp_path, "--name", name, "--seed", seed) == 0
    a, b, c = (lines(tmp_path / "runs" / name) for name in "abc")
    assert a == b and a != c


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    """A file cut short, as by a full disk or a kill, must be told by its manifest, and the checkpoint before it be used."""
    assert go(tmp_path, "--steps", "3", "--save-every", "1", "--name", "x") == 0
    folder = tmp_path / "runs" / "x"
    assert sorted(p.name for p in folder.glob("checkpoint-*")) == [
        "checkpoint-000002",
        "checkpoint-000003",
    ]  # the last two are kept
    for victim in ("A/model.safetensors", "B/optimizer.pt"):
        path = folder / "checkpoint-000003" / victim
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        assert runs.newest(folder).name == "checkpoint-000002"
        path.write_bytes(whole)
    assert runs.newest(folder).name == "checkpoint-000003"
    manifest = folder / "checkpoint-000003" / "manifest.json"
    for broken in ("{", "[]", '{"files": {}}', manifest.read_text().replace('"step": 3', '"step": 2')):
        manifest.write_text(broken)
        assert runs.newest(folder).name == "checkpoint-000002"
    assert cohort.main(["--resume", str(folder)]) == 0
    assert [line["step"] for line in lines(folder)] == [0, 1, 2, 3]


def test_each_agent_learns_at_its_own_rate():
    """A rate given to the wrong agent, or to all: a pair of different families would lose one of them."""
    for more in ([], ["--lora-rank", "2"]):
        agents = setup.make_cohort(cohort.parse(["--lrs", "1e-4", "2e-5", *more], ""))
        assert [agent.optimizer.param_groups[0]["lr"] for agent in agents] == [1e-4, 2e-5]
    assert [a.optimizer.param_groups[0]["lr"] for a in setup.make_cohort(cohort.parse([], ""))] == [1e-4, 1e-4]


def test_changed_option_is_refused_on_resume(tmp_path, capsys):
    """A run half at one learning rate and half at another looks like a run, and is none."""
    assert go(tmp_path, "--name", "x") == 0
    assert cohort.main(["--resume", str(tmp_path / "runs" / "x"), "--lr", "3e-4"]) == 2
    assert "--lr was 0.0001" in capsys.readouterr().err


def test_a_typed_default_is_not_taken_for_silence(tmp_path, capsys):
    """--lr 1e-4 typed on the resume of a run at 1e-3 equals the default: it must be refused, not passed over."""
    assert go(tmp_path, "--name", "x", "--lr", "1e-3") == 0
    assert cohort.main(["--resume", str(tmp_path / "runs" / "x"), "--lr", "1e-4"]) == 2
    assert "--lr was 0.001" in capsys.readouterr().err


@pytest.mark.slow
def test_resume_remembers_the_new_end(tmp_path):
    """Extended to 4 steps and stopped there, the run's own config must say 4, or the next resume trains nothing."""
    assert go(tmp_path, "--name", "x") == 0
    assert cohort.main(["--resume", str(tmp_path / "runs" / "x"), "--steps", "4"]) == 0
    assert runs.read_json(tmp_path / "runs" / "x" / "config.json")["steps"] == 4


def test_one_agent_alone(tmp_path, capsys):
    """TTRL needs no peer: no ring to forecast, no agreement to report, and no traceback after the training."""
    assert go(tmp_path, "--agents", "1", "--method", "ttrl") == 0
    assert lines(tmp_path / "runs" / "ttrl-001")[-1]["agreement"] is None
    assert "mean" in capsys.readouterr().out


def test_preset_gives_way_to_what_is_typed():
    """A preset that overrides the user's own option trains something else than was asked for."""
    o = cohort.parse(["--preset", "qwen", "--k", "8", "--lr", "1e-4"], "")
    assert (o.data, o.dtype, o.max_new_tokens) == ("gsm8k", "bfloat16", 512) and (o.k, o.lr) == (8, 1e-4)


def test_interrupt_leaves_a_loadable_checkpoint(tmp_path, monkeypatch, capsys):
    """Ctrl-C in the middle of a step: the step is finished, saved, and the command says how to go on."""
    real = cohort.train_step

    def pressed(agents, problems, step, *rest):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real(agents, problems, step, *rest)

    monkeypatch.setattr(cohort, "train_step", pressed)
    assert go(tmp_path, "--steps", "9", "--name", "x") == 130
    assert "--resume" in capsys.readouterr().err
    saved = runs.newest(tmp_path / "runs" / "x")
    assert saved.name == "checkpoint-000002"
    AutoModelForCausalLM.from_pretrained(saved / "A")


@pytest.mark.slow
def test_a_comparison_goes_on_as_a_whole(tmp_path, monkeypatch, capsys):
    """Broken off, a comparison is finished by --resume, and is the unbroken one: else its rows are of different budgets.

    corl is finished, ttrl has a checkpoint of step 1, gt a folder without any, as a kill leaves it; rent has not begun. Then
    Ctrl-C comes once more, in the last step of gt: it must not be taken for that run's end alone.
    """
    methods, real, taken = ["corl", "ttrl", "gt", "rent"], cohort.train_step, []

    def pressed(agents, problems, step, o, teachers):
        taken.append((o.method, step))
        if taken[-1] in (("ttrl", 1), ("gt", 2)):
            os.kill(os.getpid(), signal.SIGINT)
        return real(agents, problems, step, o, teachers)

    assert go(tmp_path, "--compare", *methods, "--name", "whole") == 0
    monkeypatch.setattr(cohort, "train_step", pressed)
    assert go(tmp_path, "--compare", *methods, "--name", "parts") == 130
    whole, parts = tmp_path / "runs" / "whole", tmp_path / "runs" / "parts"
    assert f"--resume {parts}\n" in capsys.readouterr().err
    (parts / "gt-seed0").mkdir()
    taken.clear()
    assert [cohort.main(["--resume", str(parts), *changed]) for changed in (["--lr", "1e-3"], ["--steps", "3"])] == [2, 2]
    assert not taken and cohort.main(["--resume", str(parts)]) == 130
    assert taken == [("ttrl", 2), ("gt", 1), ("gt", 2)]
    assert "gt-seed0 was interrupted and has no whole checkpoint" in capsys.readouterr().err
    assert cohort.main(["--resume", str(parts)]) == 0 and taken[3:] == [("rent", 1), ("rent", 2)]
    for method in methods:
        assert (parts / f"{method}-seed0" / "training.png").exists()
        a, b = (weights(folder / f"{method}-seed0") for folder in (whole, parts))
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        assert lines(whole / f"{method}-seed0") == lines(parts / f"{method}-seed0")


def test_not_finite_stops_with_the_place_named(tmp_path, monkeypatch, capsys):
    """A NaN that goes on unnoticed costs the night; the message names step, agent and the last good checkpoint."""
    calls = iter(range(100))
    monkeypatch.setattr(
        step, "group_advantages", lambda rewards, scale: rewards * (float("nan") if next(calls) >= 5 else 0)
    )
    assert go(tmp_path, "--steps", "9", "--save-every", "1", "--name", "x") == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "step 3, agent B" in told and "checkpoint-000002" in told and "--lr" in told


@pytest.mark.slow
def test_compare_starts_every_method_alike(tmp_path, capsys):
    """The same starting weights, problems and seeds, or the comparison compares nothing."""
    assert go(tmp_path, "--compare", "corl", "ttrl", "gt", "--seeds", "0", "1", "--name", "x") == 0
    folder = tmp_path / "runs" / "x"
    assert (folder / "compare.png").exists()
    for seed in (0, 1):
        starts = [lines(folder / f"{method}-seed{seed}")[0] for method in ("corl", "ttrl", "gt")]
        assert starts[0] == starts[1] == starts[2]
    table = capsys.readouterr().out
    assert all(table.count(f"\n{name} ") == 3 for name in ("Co-RL", "TTRL", "ground truth"))


@pytest.mark.slow
def test_compare_at_one_budget(tmp_path, capsys):
    """A method that writes more for each question would win by it: it gets fewer questions, and what is left over is said.

    3 questions x K = 4 are 12 texts. With 8 votes TTRL writes 8 for a question, a teacher and its agent 12, ground truth 4.
    """
    methods = ("gt", "ttrl", "corewarding2")
    assert go(tmp_path, "--compare", *methods, "--votes", "8", "--steps", "1", "--name", "x") == 0
    places = [tmp_path / "runs" / "x" / f"{name}-seed0" for name in methods]
    configs = [runs.read_json(place / "config.json") for place in places]
    assert [(c["prompts"], c["votes"]) for c in configs] == [(3, None), (2, 8), (1, 8)]
    starts = [lines(place)[0] for place in places]
    assert starts[0] == starts[1] == starts[2]
    told = capsys.readouterr().out
    assert "ttrl writes 32 completions in a step (16 for each of 2 questions), +33% compared with the 24" in told
    assert told.count("compared with the 24") == 1


@pytest.mark.slow
def test_a_method_may_have_its_own_number_of_agents(tmp_path, capsys):
    """Table 2: two agents under Co-RL beside four under another method. Four that answer as many questions
    would get twice the budget.

    4 questions x K = 4 x 2 agents are 32 completions: 2 questions x 4 x 4 agents. The start of two is not that of four.
    """
    options = "--prompts 4 --compare corl gt --compare-agents 2 4 --steps 1 --name x".split()
    assert go(tmp_path, *options) == 0
    two, four = (tmp_path / "runs" / "x" / f"{name}-seed0" for name in ("corl", "gt"))
    configs = [runs.read_json(folder / "config.json") for folder in (two, four)]
    assert [(c["prompts"], c["agents"]) for c in configs] == [(4, 2), (2, 4)]
    assert list(lines(two)[0]["eval"]) == ["A", "B"] and list(lines(four)[0]["eval"]) == ["A", "B", "C", "D"]
    assert "compared with" not in (told := capsys.readouterr().out) and "ground truth" in told


def test_plain_methods_keep_their_questions():
    """The numbers of the README: as many questions as --prompts says, whatever else is compared."""
    o = cohort.parse(["--prompts", "24", "--k", "8"], "")
    shares = {name: cohort.matched(o, name, 2) for name in cohort.REWARDS}
    assert shares == dict.fromkeys(cohort.REWARDS, (24, "")) | {
        "corewarding1": (12, ""), "corewarding2": (12, ""), "comas": (8, "")
    }


def test_help_shows_each_option_once(capsys):
    """`--eval_every EVAL_EVERY, --eval-every EVAL_EVERY` is noise: one form, with a word for what it takes."""
    with pytest.raises(SystemExit):
        cohort.parse(["--help"], "")
    told = capsys.readouterr().out
    assert "--eval-every N " in told and "--lr X " in told and "_every" not in told and "--max_new" not in told


def test_as_many_agents_as_models():
    """--agents beside --models is neither needed nor passed over in silence; an equal number is no mistake."""
    models = ["--models", "A", "B", "C", "--data", "x"]
    assert cohort.parse(models, "").agents == 3 and cohort.parse([], "").agents == 2
    cohort.check(cohort.parse([*models, "--agents", "3"], ""))


# ---------------------------------------------------------------- a shared base


def test_agents_of_one_base_are_sampled_in_one_pass(model_folder, data_file, monkeypatch):
    """Three adapters over one model: loaded once, read once, and each agent writes what it would have written alone."""
    o = cohort.parse(
        ["--models", *[str(model_folder)] * 3, "--data", str(data_file), "--lora-rank", "2", "--answer", "number"], ""
    )
    agents = setup.make_cohort(o)
    assert len({id(a.model) for a in agents}) == 1 and [a.adapter for a in agents] == ["A", "B", "C"]
    generator = torch.Generator().manual_seed(1)
    for agent in agents:
        for p in agent.parameters():
            p.data += torch.randn(p.shape, generator=generator) * 0.3
    prompts = [[f"w{3 + n} w{9 + i}" for i in range(2)] for n in range(3)]
    together = sample_cohort(agents, prompts, 4, 10, generators=[runs.generator(n) for n in range(3)])
    for n, agent in enumerate(agents):
        alone = sample(agent, prompts[n], 4, 10, generator=runs.generator(n))
        longest = alone.mask.shape[-1]
        assert torch.equal(together[n].completion_ids[..., :longest] * alone.mask, alone.completion_ids * alone.mask)
        assert torch.allclose(together[n].logprobs[..., :longest], alone.logprobs, atol=1e-5)
    assert together[0].texts != together[1].texts


# ---------------------------------------------------------------- mistakes


BAD = {
    "unknown option": ["--stepz", "3"],
    "abbreviated option": ["--step", "3"],
    "unknown method": ["--method", "sarl"],
    "other problems, none with an answer": ["--models", "MODEL", "MODEL", "--data", "FILE", "--eval-data", "UNLABELLED"],
    "the same problems as other ones": ["--models", "MODEL", "MODEL", "--data", "FILE", "--eval-data", "FILE"],
    "other problems for tiny agents": ["--eval-data", "gsm8k"],
    "numbers of agents without methods": ["--compare-agents", "2", "4"],
    "a number of agents for one of two methods": ["--compare", "corl", "gt", "--compare-agents", "2"],
    "one rollout": ["--k", "1"],
    "no agents": ["--agents", "0"],
    "one agent": ["--agents", "1"],
    "temperature zero": ["--temperature", "0"],
    "negative rate": ["--lr", "-1"],
    "rate not a number": ["--lr", "fast"],
    "not a finite rate": ["--lr", "nan"],
    "no clip": ["--clip", "0"],
    "negative KL": ["--beta", "-1"],
    "no tokens": ["--max-new-tokens", "0"],
    "unknown topic": ["--topics", "carry", "sums"],
    "topics of real data": ["--topics", "carry", "--data", "FILE", "--models", "MODEL", "MODEL"],
    "real data, tiny models": ["--data", "FILE"],
    "real models, tiny data": ["--models", "MODEL", "MODEL"],
    "missing file": ["--data", "none.jsonl", "--models", "MODEL", "MODEL"],
    "empty file": ["--data", "EMPTY", "--models", "MODEL", "MODEL"],
    "bad line": ["--data", "BROKEN", "--models", "MODEL", "MODEL"],
    "no answers for gt": ["--data", "UNLABELLED", "--models", "MODEL", "MODEL", "--method", "gt"],
    "not a model": ["--data", "FILE", "--models", "MODEL", "FOLDER"],
    "no such model": ["--data", "FILE", "--models", "MODEL", "FOLDER/nothing"],
    "prompts too long": ["--data", "FILE", "--models", "MODEL", "MODEL", "--max-new-tokens", "1000"],
    "absent GPU": ["--device", "cuda:7"],
    "no such device": ["--device", "abacus"],
    "name that climbs": ["--name", "../x"],
    "absolute name": ["--name", "/tmp/x"],
    "empty name": ["--name", ""],
    "name in use": ["--name", "used"],
    "rephrase for nobody": ["--rephrase", "Z"],
    "seeds without compare": ["--seeds", "0", "1"],
    "resume nothing": ["--resume", "FOLDER"],
    "not a finite temperature": ["--temperature", "inf"],
    "no layer of that name": ["--lora-rank", "2", "--lora-targets", "q_prj"],
    "negative rank": ["--lora-rank", "-1"],
    "one strength": ["--strengths", "0.9"],
    "negative seed": ["--seed", "-1"],
    "a method twice": ["--compare", "corl", "corl"],
    "no steps": ["--steps", "0"],
    "more agents than models": ["--data", "FILE", "--models", "MODEL", "MODEL", "--agents", "3"],
    "fewer votes than rollouts": ["--votes", "7"],
    "votes where none are taken": ["--votes", "16", "--method", "gt"],
    "votes where none of several are taken": ["--votes", "16", "--compare", "gt", "rent"],
    "a seed that is another one": ["--seed", str(2**32)],
    "layers of no adapter": ["--lora-targets", "q_proj", "--data", "FILE", "--models", "MODEL", "MODEL"],
    "a judge that is cut short": ["--data", "FILE", "--models", "MODEL", "MODEL", "--method", "comas", "--stop", "w3"],
    "rephrase what was not": ["--data", "FILE", "--models", "MODEL", "MODEL", "--rephrase", "B"],
    "no rephrased form": ["--data", "FILE", "--models", "MODEL", "MODEL", "--method", "corewarding1"],
    "both forms, and one": ["--method", "corewarding1", "--rephrase", "B"],
    "judges in the tiny world": ["--method", "comas"],
    "one judge": ["--data", "FILE", "--models", "MODEL", "--method", "comas"],
    "judges that do not chat": ["--data", "FILE", "--models", "MODEL", "MODEL", "--method", "comas"],
    "a learning rate too few": ["--lrs", "1e-4"],
    "one rate and several": ["--lr", "1e-4", "--lrs", "1e-4", "1e-5"],
    "a learning rate of 0": ["--lrs", "1e-4", "0"],
    "bfloat16 without adapters": ["--data", "FILE", "--models", "MODEL", "MODEL", "--dtype", "bfloat16"],
    "tiny texts that do not fit": ["--max-new-tokens", "247"],
    "a stop that cannot be written": ["--data", "FILE", "--models", "MODEL", "MODEL", "--stop", "END"],
    "the same in a comparison": ["--data", "FILE", "--models", "MODEL", "MODEL", "--stop", "END", "--compare", "corl", "gt"],
    "no end, in a comparison": ["--data", "FILE", "--models", "ENDLESS", "ENDLESS", "--compare", "corl", "gt"],
    "judges in a comparison": ["--data", "FILE", "--models", "MODEL", "MODEL", "--compare", "ttrl", "comas"],
}


def endless(folder: Path) -> None:
    """A model and a tokenizer that know no end token."""
    model, tokenizer = tiny.model("qwen3"), tiny.tokenizer()
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token = None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("mistake", BAD)
def test_a_mistake_costs_one_line_and_nothing_else(mistake, tmp_path, model_folder, data_file, capsys):
    """Exit code 2, one line that says what to do, no traceback, no folder left behind."""
    (tmp_path / "runs" / "used").mkdir(parents=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_text('{"question": "1+1", "answer": "2"}\n{"question": \n')
    (tmp_path / "unlabelled.jsonl").write_text('{"question": "1+1"}\n{"question": "1+2"}\n')
    places = {
        "FILE": data_file,
        "MODEL": model_folder,
        "EMPTY": tmp_path / "empty.jsonl",
        "BROKEN": tmp_path / "broken.jsonl",
        "UNLABELLED": tmp_path / "unlabelled.jsonl",
        "FOLDER": tmp_path / "folder",
        "FOLDER/nothing": tmp_path / "folder" / "nothing",
        "ENDLESS": tmp_path / "endless",
    }
    if "ENDLESS" in BAD[mistake]:
        endless(tmp_path / "endless")
    before = sorted(tmp_path.rglob("*"))
    try:
        code = cohort.main(["--out", str(tmp_path / "runs"), *(str(places.get(a, a)) for a in BAD[mistake])])
    except SystemExit as end:  # argparse's own errors
        code = end.code
    told = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert told[-1].startswith(("cohort.py: ", "cohort.py: error: ", "usage")) or "error:" in told[-1], told
    assert not any("Traceback" in line for line in told) and len(told[-1]) < 400
    assert sorted(tmp_path.rglob("*")) == before


def test_bad_line_is_named(tmp_path, model_folder, capsys):
    """File, line and reason: the user fixes it without opening a debugger."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"question": "1+1", "answer": "2"}\n{"question": \n')
    assert cohort.main(["--models", str(model_folder), str(model_folder), "--data", str(path)]) == 2
    told = capsys.readouterr().err
    assert "x.jsonl" in told and "2" in told


def test_full_disk_takes_the_half_line_back(tmp_path, monkeypatch):
    """metrics.jsonl with half a line at its end cannot be read back."""
    path = tmp_path / "metrics.jsonl"
    runs.append_line(path, {"step": 0})

    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def write(self, data):
            with open(path, "ab") as file:
                file.write(data[:3])
            return 3

    monkeypatch.setattr(
        "builtins.open", lambda *a, _open=open, **k: Full() if k.get("buffering") == 0 else _open(*a, **k)
    )
    with pytest.raises(UserError, match="no space left"):
        runs.append_line(path, {"step": 1})
    assert runs.read_lines(path) == [{"step": 0}]


def test_positions_pass_over_all_problems_in_turn():
    """Every problem once in each pass, another order in the next, and a resumed run reads on where it stopped."""
    order = [i for step in range(1, 6) for i in runs.positions(10, 4, step, seed=0)]
    assert sorted(order[:10]) == sorted(order[10:]) == list(range(10)) and order[:10] != order[10:]
    assert runs.positions(10, 4, 3, seed=0) == order[8:12] and runs.positions(10, 4, 3, seed=1) != order[8:12]
