"""One agent a process: real processes, whatever happens to them, end as one process does, bit by bit; or in one line.

As in test_survival.py, they are forked from a server that has everything imported. Random models of eight words stand for real
ones: they end early, and their few answers agree often enough for every method to learn something.
"""

import json
import multiprocessing
import os
import pickle
import random
import runpy
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as words
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

import cohort
import dynamics
from grpo import Agent
from lab import guards, measure, models, ranks, report, runs
from lab.data import UserError

CONTEXT = multiprocessing.get_context("forkserver")
ROOT = Path(__file__).resolve().parent.parent
SMALL = [
    *("--answer", "number", "--steps", "3", "--prompts", "3", "--k", "4", "--lr", "1e-2", "--max-new-tokens", "6"),
    *("--eval-problems", "3", "--eval-k", "2", "--eval-every", "2", "--save-every", "1", "--patience", "60"),
]
CASES = {  # name -> (agents, processes, options)
    "corl": (2, 2, []),
    "ttrl": (2, 2, ["--method", "ttrl"]),
    "ring of three": (3, 3, []),
    "pooled by three in two": (3, 2, ["--method", "pooled", "--votes", "5", "--beta", "0.01", "--epochs", "2"]),
    "gt with adapters": (2, 2, ["--method", "gt", "--lora-rank", "2", "--rephrase", "B"]),
}


def run_child(arguments: list[str], told: str, rank: int | None, world: int, more: dict) -> None:
    """What a process does: one command, cohort.py's or its part in a run of several processes; its output goes to a file."""
    output = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1), os.dup2(output, 2)
    torch.set_num_threads(1)
    report.finish = lambda folder: None
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(world)} | more)
    os._exit(cohort.main(arguments) if rank is None else ranks.main(arguments))


class Started:
    """A process, and the file that its output goes to."""

    number = 0

    def __init__(self, folder: Path, arguments: list, rank: int | None = None, world: int = 2, **more: str):
        Started.number += 1
        self.told = folder / f"told-{Started.number}.txt"
        arguments = [str(a) for a in arguments]
        self.process = CONTEXT.Process(target=run_child, args=(arguments, str(self.told), rank, world, more))
        self.process.start()

    def end(self) -> tuple[int | None, list[str]]:
        """(exit code, or minus the signal; None if it hangs, and the lines of complaint)."""
        self.process.join(80)
        code = self.process.exitcode
        self.process.kill()
        lines = self.told.read_text().replace("\r", "\n").splitlines() if self.told.exists() else []
        return code, [line for line in lines if line.startswith(("lab.ranks: ", "cohort.py: ", "Traceback"))]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with three models of eight words and a file of problems; and the server that processes are forked from."""
    folder = tmp_path_factory.mktemp("ranks")
    vocabulary = {word: n for n, word in enumerate(["<unk>", "<bos>", "<eos>", "3", "4", "5", "6", "7"])}
    core = Tokenizer(words.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>")
    for seed, name in enumerate("ABC"):
        torch.manual_seed(seed)
        config = Qwen3Config(**tiny.SMALL | {"num_hidden_layers": 1, "vocab_size": 8}, head_dim=8)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    pairs = [(i, j) for i in (3, 4, 5) for j in (5, 6, 7)]
    lines = [{"question": f"{i} {j}", "rephrased": f"{j} {i}", "answer": str(j)} for i, j in pairs]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "warm_up.py").write_text("import test_ranks, torch, torch._dynamo\ntorch.set_num_threads(1)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join(str(path) for path in (folder, ROOT, ROOT / "tests")))
        CONTEXT.set_forkserver_preload(["warm_up"])
        yield folder


def command(home: Path, case: str) -> list[str]:
    agents, _, more = CASES[case]
    models = [str(home / name) for name in "ABC"[:agents]]
    return ["--models", *models, "--data", str(home / "data.jsonl"), *SMALL, *more]


def alone(home: Path, case: str) -> dict:
    """What one process comes to."""
    words = command(home, case)
    cut = words.index("--patience")  # which cohort.py does not know
    folder = home / f"alone {case}".replace(" ", "-")
    started = Started(home, [*words[:cut], *words[cut + 2 :], "--out", folder.parent, "--name", folder.name])
    assert started.end() == (0, [])
    return end_state([folder])


def folders(run: Path) -> list[Path]:
    return [run, *sorted(run.glob("rank-*"))]


def end_state(parts: list[Path]) -> dict:
    """All that a run leaves, seconds apart: the metrics of the first folder; of all folders samples, weights, optimizers."""
    metrics = runs.read_lines(parts[0] / "metrics.jsonl")
    for line in metrics:
        line.pop("seconds", 0)
    state = {"metrics": metrics, "samples": [line for part in parts for line in runs.read_lines(part / "samples.jsonl")]}
    state["samples"].sort(key=lambda line: (line["step"], line["agent"]))
    for part in parts:
        assert [place.name for place in runs.checkpoints(part)] == ["checkpoint-000002", "checkpoint-000003"]
        last = runs.checkpoints(part)[-1]
        for path, file in runs.whole(last)["files"].items():
            state[path] = file["sha256"]
            if path.endswith(".safetensors"):  # its header has no fixed order
                state[path] = {name: t.numpy().tobytes() for name, t in load_file(last / path).items()}
    return state


@pytest.fixture(scope="module")
def wanted(home) -> dict:
    """The run that others are to equal, in which every agent learnt something."""
    state = alone(home, "corl")
    for name in "AB":
        assert sum(line["agents"][name]["grad_norm"] for line in state["metrics"][1:]) > 0
    return state


@pytest.fixture(scope="module")
def finished(home, wanted) -> tuple[Path, float]:
    """A run of two processes, compared with that of one; the seconds that it took."""
    folder, began = home / "finished", time.monotonic()
    both = [Started(home, [*command(home, "corl"), "--folder", folder], rank) for rank in (0, 1)]
    assert [one.end() for one in both] == [(0, []), (0, [])]
    seconds = time.monotonic() - began
    assert end_state(folders(folder)) == wanted
    return folder, seconds


# ---------------------------------------------------------------- the same, bit by bit


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case != "corl"])
def test_equals_one_process(case, home):
    """Draws that depend on the process, a label of the wrong peer, adapters that start elsewhere, an omega of one agent."""
    folder, (_, world, _) = home / case.replace(" ", "-"), CASES[case]
    all_of = [Started(home, [*command(home, case), "--folder", folder], rank, world) for rank in range(world)]
    expected = alone(home, case)
    assert [one.end() for one in all_of] == [(0, [])] * world
    assert end_state(folders(folder)) == expected


@pytest.mark.slow
def test_killed_at_random_moments(home, wanted, finished):
    """Each of two is killed ten times and started again alone: it rereads what it missed, the other only waits. No hang."""
    rng, folder = random.Random(0), home / "killed"
    words = [*command(home, "corl"), "--folder", folder]
    both = [Started(home, words, rank) for rank in (0, 1)]
    for kill in range(20):
        time.sleep(rng.uniform(0, finished[1] / 2))
        both[kill % 2].process.kill()
        assert both[kill % 2].end()[0] in (-signal.SIGKILL, 0)
        both[kill % 2] = Started(home, words, kill % 2)
    assert [one.end() for one in both] == [(0, []), (0, [])]
    assert end_state(folders(folder)) == wanted


@pytest.mark.slow
def test_a_server_that_is_lost(home, wanted):
    """Both and the server are killed when their checkpoints may differ. With a new server each says again what it had said."""
    folder, words = home / "server", [*command(home, "corl"), "--tcp", "--folder", home / "server"]
    for lives in (True, False):
        server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port)}
        both = [Started(home, words, rank, **place) for rank in (0, 1)]
        while lives and both[0].process.is_alive() and runs.newest(folder / "rank-1") is None:
            time.sleep(0.005)
        for one in both if lives else ():
            one.process.kill()
        ends = [one.end() for one in both]
        del server
    assert ends == [(0, []), (0, [])]
    assert end_state(folders(folder)) == wanted


def test_one_that_does_not_come(home):
    """The other waits a bounded time, and then says whom it waited for and where it stands."""
    words = [*command(home, "corl"), "--folder", home / "lone", "--patience", "0.5"]
    code, (said,) = Started(home, words, 0).end()
    assert code == 2 and "evaluation of agent B (rank 1) for 0.5 s" in said and "checkpoint here is None" in said


def test_the_agent_of_another_process_can_be_measured(finished, capsys):
    """Its checkpoint holds B alone; the command went for A's folder, which is not there."""
    assert measure.main([str(finished[0] / "rank-1" / "checkpoint-000003" / "B"), "--k", "2"]) == 0
    assert "B" in capsys.readouterr().out


# ---------------------------------------------------------------- what is refused


def refused(arguments: list, monkeypatch, capsys, rank: int = 1, world: int = 2) -> str:
    """The one line that it costs, in this process."""
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world))
    assert ranks.main([str(a) for a in arguments]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lab.ranks: ")]
    return line


def test_other_options_data_or_versions_are_refused_by_name(home, finished, monkeypatch, capsys, tmp_path):
    """One process with another learning rate, other problems, another torch: a run that is neither the one nor the other."""
    words = [*command(home, "corl"), "--folder", finished[0]]
    assert "inputs: lr changed" in refused([*words, "--lr", "1e-3"], monkeypatch, capsys)
    other = tmp_path / "data.jsonl"
    other.write_text((home / "data.jsonl").read_text().replace('"answer": "7"', '"answer": "6"'))
    assert "inputs: data, problems changed" in refused([*words, "--data", other], monkeypatch, capsys)
    real = runs.origin()
    monkeypatch.setattr(runs, "origin", lambda *_: real | {"commit": "another"})
    assert "inputs: commit changed" in refused(words, monkeypatch, capsys)
    assert runs.newest(finished[0]).name == "checkpoint-000003"


def test_what_does_not_go_together(home, monkeypatch, capsys, tmp_path):
    """Each in one line, before anything is loaded."""
    words = [*command(home, "corl"), "--folder", tmp_path / "run"]
    assert "give --folder" in refused(command(home, "corl"), monkeypatch, capsys)
    assert "give --folder" in refused([*words, "--name", "x"], monkeypatch, capsys)
    assert "train it with cohort.py" in refused([*words, "--method", "corewarding2"], monkeypatch, capsys)
    assert "at most one process for each of 2 agents" in refused(words, monkeypatch, capsys, 2, 3)
    assert "(RANK -1 of -1)" in refused(words, monkeypatch, capsys, -1, -1)
    assert not (tmp_path / "run").exists()


def test_two_of_one_rank(home, finished, monkeypatch, capsys):
    """A process that was thought dead, and was started again: both would write one folder."""
    with guards.held(finished[0] / "rank-1"):
        assert "in use by another process" in refused([*command(home, "corl"), "--folder", finished[0]], monkeypatch, capsys)


# ---------------------------------------------------------------- what comes from outside


class Opened:
    """What a pickle can do to whoever opens it."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def board(folder: Path, rank: int = 0) -> ranks.Board:
    return ranks.Board(ranks.Options(folder=str(folder), patience=0.2), rank, 2)


def test_hostile_messages(tmp_path):
    """Bytes of all kinds in the place of a vote: one line each, and nothing is run."""
    good = [["5"], [None]]
    for hostile in (
        pickle.dumps(Opened(tmp_path / "opened")), b"", b"\xff\xfe\x00", b"[" * 100_000, b"9" * 5000, b'{"a": 1}', b"[[1], [2]]",
        b'[["5"]]', b'[["5"], ["6"], ["7"]]', b'[["5", "6"], ["7"]]', b'[["5"], [["6"]]]', b'[["5"], {}]', b'"[[5], [6]]"',
        *(random.Random(n).randbytes(40) for n in range(200)),
    ):  # fmt: skip
        (tmp_path / "votes").mkdir(exist_ok=True)
        (tmp_path / "votes" / "1-B").write_bytes(hostile)
        with pytest.raises(UserError, match="1 of agent B .rank 1. cannot be read"):
            board(tmp_path).tell("1", [good], ["A", "B"])
    (tmp_path / "votes" / "1-B").write_bytes(b'[["1/2"], ["x"]]')
    assert board(tmp_path).tell("1", [good], ["A", "B"]) == {"A": good, "B": [["1/2"], ["x"]]}
    assert not (tmp_path / "opened").exists()


def test_what_was_said_first_counts(tmp_path):
    """A GPU may write otherwise when a step is done again: the others have learnt from the first vote."""
    assert board(tmp_path).tell("1", [[["5"]]], ["A"]) == board(tmp_path).tell("1", [[["6"]]], ["A"]) == {"A": [["5"]]}
    (tmp_path / "votes" / ".1-B.77.part").write_bytes(b"[")  # left by a kill
    with pytest.raises(UserError, match="no word of 1 of agent B .rank 1. for 0.2 s"):
        board(tmp_path).tell("1", [[["5"]]], ["A", "B"])


# ---------------------------------------------------------------- what docs/scale.md says of waiting, and of old votes


def test_what_waiting_costs():
    """A simulation in which the wrong neighbour is waited for, or in which waiting costs nothing."""
    pace = runpy.run_path(str(ROOT / "benchmarks" / "ranks.py"))["pace"]
    even = np.full((3, 50), 0.5)
    assert [round(pace(even, even, old), 6) for old in (None, 0, 1)] == [1, 1, 1]
    by_lot = np.random.default_rng(0).exponential(0.5, (8, 400))
    all_of, peer, old = (pace(by_lot, by_lot[::-1], old) for old in (None, 0, 4))
    assert 1 < old < peer < all_of
    late = even * np.array([[1], [1], [2]])  # the first waits for the last, and in the end so does everybody
    assert round(pace(late, even, None), 6) == 1.5 and 1.4 < pace(late, even, 0) < 1.51


def test_the_separatrix_when_votes_are_old():
    """Equal agents keep theirs; if one alone is behind, the other's vote as it was at the start counts for longer."""
    right = runpy.run_path(str(ROOT / "benchmarks" / "ranks.py"))["ends_right"]
    eta = np.array([0.4, 0.1])
    exact = float(dynamics.separatrix(np.array([0.7]), K=8, eta=tuple(eta))[0])
    assert right(0.7, exact + 0.01, (0, 0), eta) and not right(0.7, exact - 0.01, (0, 0), eta)
    same = np.array([0.1, 0.1])
    assert right(0.7, 0.31, (32, 32), same) and not right(0.7, 0.29, (32, 32), same)
    assert not right(0.7, 0.35, (32, 0), same) and right(0.7, 0.25, (0, 32), same)


# ---------------------------------------------------------------- what it stands on


def test_a_checkpoint_without_weights_is_not_whole(tmp_path, monkeypatch):
    """With a process group, `save_pretrained` writes nothing on ranks above 0; the rest was sealed as a whole checkpoint."""
    agent = Agent("B", tiny.model(), tiny.tokenizer())
    monkeypatch.setattr(type(agent.model), "save_pretrained", lambda *_, **__: None)
    with pytest.raises(UserError, match="no weights of agent B"):
        runs.save(tmp_path, 1, [agent])
    assert runs.checkpoints(tmp_path) == []


def test_each_process_takes_its_own_gpu(monkeypatch):
    """All processes of a machine on its first GPU, which is then full."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert models.pick_device("auto") == torch.device("cuda", 3)
    monkeypatch.delenv("LOCAL_RANK")
    assert models.pick_device("auto").type == "cuda"
