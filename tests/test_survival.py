"""Runs that are killed, that meet a full disk, or whose checkpoints are damaged: what is resumed is the unbroken run, bit by bit.

Every run is a process of its own, forked from a server that has everything imported (so it starts in a fraction of a second), and
is ended by the kernel: by SIGKILL, or by a limit on the size of files, which lets a write go as far as the limit and no farther.
"""

import ast
import json
import multiprocessing
import multiprocessing.forkserver
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3Config
from transformers.utils import logging  # noqa: F401 (for WARM_UP)

import cohort
import lora
from grpo import Agent
from lab import models, report, runs
from lab.data import UserError

CONTEXT = multiprocessing.get_context("forkserver")
ROOT = Path(__file__).resolve().parent.parent
# Intuitor pays every completion, also those of random models, so that every step learns something.
SMALL = [
    *("--method", "intuitor", "--answer", "number", "--steps", "3", "--prompts", "2", "--k", "2", "--lr", "1e-2"),
    *("--max-new-tokens", "4", "--eval-problems", "2", "--eval-k", "1", "--eval-every", "2", "--save-every", "1"),
]
KINDS = {"full": [], "lora": ["--lora-rank", "4"]}


def model(seed: int = 0):
    """A random model of one layer."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(Qwen3Config(**tiny.SMALL | {"num_hidden_layers": 1}, head_dim=8)).eval()


# ---------------------------------------------------------------- a run in a process of its own


def die(*_) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(module, name: str, when, do) -> None:
    """Have `do(*arguments)` called before each call of module.name for which `when(*arguments)` is true."""
    real = getattr(module, name)

    def watched(*arguments, **more):
        if when(*arguments):
            do(*arguments)
        return real(*arguments, **more)

    setattr(module, name, watched)


def limit_files(size: int, deadly: bool) -> None:
    """From here on a write goes as far as byte `size` of its file; then the process ends (deadly), or the write fails."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def cut_weights(deadly: bool) -> None:
    """The third checkpoint's file of weights is cut in the middle."""

    def cut(run, *_):
        smaller, _ = sizes(run)
        limit_files(smaller // 2, deadly)

    before(runs, "save", lambda run, step, agents: step == 3, cut)


def cut_optimizer(deadly: bool) -> None:
    """The third checkpoint's weights are whole, its optimizer's state is cut."""
    before(runs, "save", lambda run, step, agents: step == 3, lambda run, *_: limit_files(sum(sizes(run)) // 2, deadly))


def sizes(run: Path) -> list[int]:
    """Bytes of the two largest files of an agent: its weights, and AdamW's two moments of them."""
    return sorted(p.stat().st_size for p in (run / "checkpoint-000002" / "A").iterdir())[-2:]


def cut_line(deadly: bool) -> None:
    """The third step's line of metrics is cut in the middle; deadly: and the process ends before that is put right."""

    def cut(path, record):
        limit_files(path.stat().st_size + len(json.dumps(record)) // 2, deadly)
        if deadly:  # the kernel reports what was cut first, and would end the process at the next attempt
            before(os, "truncate", lambda *_: True, die)

    before(runs, "append_line", lambda path, record: record["step"] == 3, cut)


def renaming(done: bool) -> None:
    """The process ends when the third checkpoint gets its name: before it, or (done) right after."""
    real = os.replace

    def replace(source, target):
        third = Path(target).name == "checkpoint-000003"
        if third and not done:
            die()
        real(source, target)
        if third:
            die()

    os.replace = replace


def removing() -> None:
    """The process ends when one file of the oldest checkpoint is removed and the others are not."""

    def remove_one(place):
        next(p for p in sorted(place.rglob("*")) if p.is_file()).unlink()
        die()

    before(shutil, "rmtree", lambda place: Path(place).name == "checkpoint-000001" and place.exists(), remove_one)


def as_another_user() -> None:
    """All is loaded, then root becomes somebody, who cannot write everywhere; others keep what rights they have."""

    def become(*_):
        if os.geteuid() == 0:
            os.setgroups([]), os.setgid(65534), os.setuid(65534)

    before(runs, "create", lambda *_: True, become)
    before(runs, "restore", lambda *_: True, become)


# Where a run ends or a file of it is cut: name -> what is arranged in its process before it begins.
KILLED = {
    "before the first checkpoint": lambda: before(runs, "save", lambda *_: True, die),
    "in the weights": lambda: cut_weights(deadly=True),
    "in the optimizer": lambda: cut_optimizer(deadly=True),
    "before the manifest": lambda: before(runs, "seal", lambda manifest: manifest["step"] == 3, die),
    "before the rename": lambda: renaming(done=False),
    "after the rename": lambda: renaming(done=True),
    "amid the removal": removing,
    "in a line of metrics": lambda: cut_line(deadly=True),
}
KILLED_ON_RESUME = {
    "before the metrics are cut": lambda: before(os, "truncate", lambda *_: True, die),
    "before the options are in place": lambda: before(os, "replace", lambda *_: True, die),
}
FULL_DISK = {
    "disk full at the weights": lambda: cut_weights(deadly=False),
    "disk full at the optimizer": lambda: cut_optimizer(deadly=False),
    "disk full at a line of metrics": lambda: cut_line(deadly=False),
}
FILES_CUT = ("in the weights", "in the optimizer", "disk full at the weights", "disk full at the optimizer")
PLACES = {"nowhere": lambda: None, "as another user": as_another_user} | KILLED | KILLED_ON_RESUME | FULL_DISK


def run_child(commands: list[tuple[list[str], str]], place: str) -> None:
    """What a process does: commands in turn, each with its output and, if it lives to see it, its exit code in a file."""
    torch.set_num_threads(1)
    report.finish = lambda folder: None  # drawing takes longer than the training, and tests/test_cohort.py has it
    outputs = [os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for _, told in commands]
    PLACES[place]()
    for (arguments, _), output in zip(commands, outputs, strict=True):
        os.dup2(output, 1), os.dup2(output, 2)
        print(f"\nexit {cohort.main(arguments)}", flush=True)


WARM_UP = """
import tempfile, test_survival, torch, torch._dynamo
torch.set_num_threads(1)
test_survival.logging.disable_progress_bar()
with tempfile.TemporaryDirectory() as folder:
    test_survival.model().save_pretrained(folder)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """start(command, ..., place=...) -> a running process, with the list of files that it tells its outcome in."""
    folder = tmp_path_factory.mktemp("told")
    (folder / "warm_up.py").write_text(WARM_UP)

    def begin(*commands: list, place: str = "nowhere"):
        first = len(list(folder.iterdir()))
        told = [folder / f"{first + n}.txt" for n in range(len(commands))]
        for file in told:
            file.touch()
        work = [([str(a) for a in command], str(file)) for command, file in zip(commands, told, strict=True)]
        process = CONTEXT.Process(target=run_child, args=(work, place))
        process.start()
        return process, told

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join(str(path) for path in (folder, ROOT, ROOT / "tests")))
        CONTEXT.set_forkserver_preload(["warm_up"])  # once, for all processes: they inherit what is imported
        assert outcomes(begin()) == []
    return begin


def outcomes(started) -> list[tuple[int, list[str]]]:
    """(exit code, lines of complaint) of each command of a process; a killed one has its signal as code: -9."""
    process, files = started
    process.join(100)
    found = []
    for file in files:
        lines = file.read_text().replace("\r", "\n").splitlines()
        code = [int(line[5:]) for line in lines if line.startswith("exit ")] or [process.exitcode]
        found.append((code[0], [line for line in lines if line.startswith(("cohort.py: ", "Traceback"))]))
    return found


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> list[str]:
    """The options that name a random model, as two agents, and six problems for it."""
    folder = tmp_path_factory.mktemp("inputs")
    model().save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    lines = (json.dumps({"question": f"w{i} w{i + 1}", "answer": str(i)}) for i in range(3, 9))
    (folder / "data.jsonl").write_text("\n".join(lines))
    return ["--models", str(folder / "model"), str(folder / "model"), "--data", str(folder / "data.jsonl")]


def command(inputs: list[str], kind: str, folder: Path) -> list[str]:
    return [*inputs, *SMALL, *KINDS[kind], "--out", str(folder.parent), "--name", folder.name]


def begun(folder: Path) -> None:
    """Wait until the run has made its folder: all before is loading."""
    while not folder.exists():
        time.sleep(0.002)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, start, inputs) -> dict[str, tuple[dict, float]]:
    """kind -> (end state, seconds from the making of the folder) of a run that nothing happens to."""
    found = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp("unbroken") / kind
        started = start(command(inputs, kind, folder))
        begun(folder)
        began = time.monotonic()
        assert outcomes(started) == [(0, [])]
        found[kind] = end_state(folder), time.monotonic() - began
    return found


def end_state(folder: Path) -> dict:
    """All that a run leaves, seconds apart: metrics, samples; of the last checkpoint each tensor, and each other file's hash."""
    assert not [p.name for p in folder.iterdir() if p.name.startswith(".")]
    assert [p.name for p in runs.checkpoints(folder)] == ["checkpoint-000002", "checkpoint-000003"]
    metrics = runs.read_lines(folder / "metrics.jsonl")
    for line in metrics:
        assert ("agents" in line) == (line.pop("seconds", 0) > 0)
        for agent in line.get("agents", {}).values():
            assert agent["grad_norm"] > 0  # else nothing was learnt, and nothing could be lost
    state = {"metrics": metrics, "samples": runs.read_lines(folder / "samples.jsonl")}
    for path, file in runs.whole(folder / "checkpoint-000003")["files"].items():
        state[path] = file["sha256"]
        if path.endswith(".safetensors"):  # its header has no fixed order
            tensors = load_file(folder / "checkpoint-000003" / path)
            state[path] = {name: t.numpy().tobytes() for name, t in tensors.items()}
    return state


# ---------------------------------------------------------------- killed


def check_resume(start, folders: dict[str, Path], wanted: dict) -> None:
    """All are resumed, by one process, and end as the unbroken run did; where there is no checkpoint it says so in one line."""
    possible = [runs.newest(folder) is not None for folder in folders.values()]
    found = outcomes(start(*(["--resume", folder] for folder in folders.values())))
    for (name, folder), can, (code, said) in zip(folders.items(), possible, found, strict=True):
        if can:
            assert (code, said) == (0, []), name
            assert end_state(folder) == wanted, name
        else:
            assert code == 2 and len(said) == 1, (name, code, said)
            assert "is not a run" in said[0] or "no whole checkpoint to resume from" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments(kind, start, inputs, unbroken, tmp_path):
    """T19: whenever the power goes, the resumed run ends as the unbroken one, or says that there is nothing to go on from."""
    wanted, seconds = unbroken[kind]
    rng, folders = random.Random(kind), {}
    for number in range(10):
        moment = rng.uniform(0, seconds)
        folder = folders[f"after {moment:.3f} of {seconds:.3f} s"] = tmp_path / f"run{number}"
        started = start(command(inputs, kind, folder))
        begun(folder)
        time.sleep(moment)
        started[0].kill()
        assert outcomes(started) in ([(-signal.SIGKILL, [])], [(0, [])])
    check_resume(start, folders, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_a_place(kind, start, inputs, unbroken, tmp_path):
    """Windows of microseconds that no random moment hits: the checkpoint before must be there and be enough."""
    newest = {"before the first checkpoint": None, "after the rename": 3, "amid the removal": 3}
    places = [place for place in KILLED if kind == "full" or place in FILES_CUT]
    folders = {place: tmp_path / place.replace(" ", "-") for place in places}
    for place, folder in folders.items():
        ((code, said),) = outcomes(start(command(inputs, kind, folder), place=place))
        assert code in (-signal.SIGKILL, -signal.SIGXFSZ) and not said, (place, code, said)
        step = newest.get(place, 2)
        assert runs.newest(folder) == (step and folder / f"checkpoint-{step:06d}"), place
    check_resume(start, folders, unbroken[kind][0])


@pytest.mark.slow
def test_half_a_line_is_read_past(start, inputs, tmp_path, monkeypatch, capsys):
    """The tables and figures of a run that was killed while it wrote a line: those of the steps before."""
    folder = tmp_path / "run"
    outcomes(start(command(inputs, "full", folder), place="in a line of metrics"))
    assert not (folder / "metrics.jsonl").read_text().endswith("\n")
    assert [line["step"] for line in runs.read_lines(folder / "metrics.jsonl")] == [0, 1, 2]
    monkeypatch.setattr(sys, "argv", ["report.py", str(folder)])
    assert report.main() == 0 and "after" in capsys.readouterr().out and (folder / "training.png").exists()


@pytest.mark.slow
def test_killed_on_resume(start, inputs, unbroken, tmp_path):
    """A run that is killed a second time, while it is put together again, must not be lost by that."""
    folders = {place: tmp_path / place.replace(" ", "-") for place in KILLED_ON_RESUME}
    for place, folder in folders.items():
        outcomes(start(command(inputs, "full", folder), place="in the weights"))
        assert outcomes(start(["--resume", folder], place=place)) == [(-signal.SIGKILL, [])]
    check_resume(start, folders, unbroken["full"][0])


# ---------------------------------------------------------------- no room, no right to write


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_full_disk(kind, start, inputs, unbroken, tmp_path):
    """One line that says so, nothing half-written left behind, and the last good checkpoint takes the run to its end."""
    places = [place for place in FULL_DISK if kind == "full" or place in FILES_CUT]
    folders = {place: tmp_path / place.replace(" ", "-") for place in places}
    left = {"config.json", "metrics.jsonl", "samples.jsonl", "checkpoint-000001", "checkpoint-000002"}
    for place, folder in folders.items():
        ((code, said),) = outcomes(start(command(inputs, kind, folder), place=place))
        assert code == 2 and len(said) == 1 and "cannot write" in said[0], (place, code, said)
        assert place == "disk full at a line of metrics" or str(folder / "checkpoint-000002") in said[0], said
        assert {p.name for p in folder.iterdir()} == left and (folder / "metrics.jsonl").read_text().endswith("\n"), place
    check_resume(start, folders, unbroken[kind][0])


@pytest.mark.slow
def test_no_right_to_write(start, inputs, capsys):
    """A folder of another user, mounted read-only, or with a file in its way: one line, and what is there stays as it is."""
    with tempfile.TemporaryDirectory() as place:  # not under tmp_path, which no other user may enter
        folder = Path(place) / "run"
        os.chmod(place, 0o755)
        outcomes(start(command(inputs, "full", folder), place="before the rename"))
        there = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        everything = [Path(place), *Path(place).rglob("*")]
        for p in everything:
            p.chmod(0o555)
        new = command(inputs, "full", Path(place) / "new")
        ((made, told),) = outcomes(start(new, place="as another user"))
        ((resumed, complaint),) = outcomes(start(["--resume", folder], place="as another user"))
        for p in everything:
            p.chmod(0o755)
        assert made == resumed == 2 and len(told) == len(complaint) == 1, (told, complaint)
        assert "cannot make a folder" in told[0] and "choose another --out" in told[0] and "Permission denied" in complaint[0]
        assert there == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    data = inputs[-1]
    for out in (data, f"{data}/below", "/dev/null/below"):
        assert cohort.main([*inputs, *SMALL, "--out", out]) == 2
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 1 and "cannot make a folder" in told[0] and "choose another --out" in told[0]


NAMES = ["..", ".", "", ".hidden", "-x", "a/b", "../x", "a\\b", "C:x", "a b", " x", "x\n", "a\nb", "a\0b", "~", "é", "*"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_stays_in_the_out_folder(name, tmp_path):
    """A name that climbs out of the folder, or that a shell would read as something else, makes nothing anywhere."""
    with pytest.raises(UserError, match="--name"):
        runs.create(str(tmp_path / "out"), name, "corl")
    assert not list(tmp_path.iterdir())


def test_what_is_refused_of_a_folder(tmp_path):
    """Files that are no run's, or half of one: a line that names the file, no traceback."""
    with pytest.raises(UserError, match="exists already"):
        runs.create(str(tmp_path), "x", "corl"), runs.create(str(tmp_path), "x", "corl")
    for content, reason in (("[1]", "does not hold an object"), ("{", "cannot read"), (b"\xff", "cannot read")):
        (tmp_path / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(UserError, match=reason):
            runs.read_json(tmp_path / "config.json")
    with pytest.raises(UserError, match="not a run that has begun"):
        runs.read_lines(tmp_path / "metrics.jsonl")
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"step"\n{"step": 2}\n')  # not at the end: no kill does that
    with pytest.raises(UserError, match="cannot read"):
        runs.read_lines(tmp_path / "metrics.jsonl")
    with pytest.raises(UserError, match="cannot write"):
        runs.write_json(tmp_path / "nowhere" / "config.json", {})
    with pytest.raises(UserError, match="no whole checkpoint"):
        runs.restore(tmp_path, [], 1)
    with pytest.raises(UserError, match="--device meta"):
        models.pick_device("meta")


def test_a_folder_of_another_version(tmp_path, monkeypatch, capsys):
    """Figures of a run whose options have other names: a line that says so, no traceback."""
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["report.py", str(tmp_path)])
    assert report.main() == 2 and "not a whole run of this version" in capsys.readouterr().err


def test_models_that_are_not_whole(inputs, tmp_path):
    """Weights under other names would be drawn at random, half a file or a missing tokenizer be met with a traceback."""
    source, cpu = Path(inputs[1]), torch.device("cpu")
    for name in ("renamed", "cut", "mute"):
        shutil.copytree(source, tmp_path / name)
    weights = {f"x.{name}": tensor for name, tensor in load_file(source / "model.safetensors").items()}
    save_file(weights, tmp_path / "renamed" / "model.safetensors", metadata={"format": "pt"})
    os.truncate(tmp_path / "cut" / "model.safetensors", 9_000)
    (tmp_path / "mute" / "tokenizer.json").unlink()
    for name, reason in (("renamed", "do not fit"), ("cut", "cannot load the model"), ("mute", "tokenizer|cannot load")):
        with pytest.raises(UserError, match=reason) as error:
            models.load_model(str(tmp_path / name), cpu, "float32")
        assert "\n" not in str(error.value)
    assert models.load_model(str(source), cpu, "float32")[0].training is False


@pytest.mark.slow
def test_comparison_with_a_killed_run(inputs, tmp_path, monkeypatch, capsys):
    """The table of a comparison leaves out, aloud, a run that did not come to its end; without any it says so."""
    for module, name in ((report, "draw_training"), (report, "draw_comparison")):  # tests/test_cohort.py has the figures
        monkeypatch.setattr(module, name, lambda *_: None)
    compared = ["--method", "corl", "--compare", "intuitor", "rent"]  # SMALL names a method, --compare names its own
    assert cohort.main([*inputs, *SMALL, "--out", str(tmp_path), "--name", "x", *compared]) == 0
    assert "reward std" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["report.py", str(tmp_path / "x")])
    for killed, code in (("rent-seed0", 0), ("intuitor-seed0", 2)):
        metrics = tmp_path / "x" / killed / "metrics.jsonl"
        os.truncate(metrics, metrics.stat().st_size - 5)
        assert report.main() == code
        told = capsys.readouterr()
        assert f"left out: {tmp_path / 'x' / killed}" in told.err and "Traceback" not in told.err
        assert ("Intuitor" in told.out and "RENT" not in told.out) or "no finished run" in told.err.splitlines()[-1]


# ---------------------------------------------------------------- damaged


@pytest.fixture
def two_checkpoints(tmp_path) -> Path:
    """A run of two steps with a checkpoint after each: agent A with all its weights, agent B with an adapter."""
    agents = [Agent("A", model(0), tiny.tokenizer()), Agent("B", model(1), tiny.tokenizer(), adapter="B")]
    lora.inject(agents[1].model, 2, 4.0, ["B"])
    for agent in agents:
        agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=1e-3)
    for step in (1, 2):
        for agent in agents:
            for parameter in agent.parameters():
                parameter.grad = torch.ones_like(parameter)
            agent.optimizer.step()
        runs.append_line(tmp_path / "metrics.jsonl", {"step": step})
        runs.save(tmp_path, step, agents)
    return tmp_path


def test_damage_of_any_byte_is_noticed(two_checkpoints):
    """A checkpoint of which one file is cut, longer, changed in one bit, or gone must not be taken for a whole one."""
    first, second = runs.checkpoints(two_checkpoints)
    files = sorted(p for p in second.rglob("*") if p.is_file())
    kinds = {path.name for path in files}
    assert {"model.safetensors", "adapter_model.safetensors", "optimizer.pt", "tokenizer.json", "manifest.json"} <= kinds
    rng = random.Random(0)
    for path in files:
        whole = path.read_bytes()
        last = len(whole) - (path.name == "manifest.json")  # it ends in a line end, without which it says the same
        for _ in range(15):
            place, bit = rng.randrange(last), 1 << rng.randrange(8)
            flipped = bytearray(whole)
            flipped[place] ^= bit
            for damaged in (whole[:place], bytes(flipped)):
                path.write_bytes(damaged)
                assert runs.newest(two_checkpoints) == first, (path, place, bit)
        path.write_bytes(whole + b"x")
        assert runs.newest(two_checkpoints) == first, path
        path.unlink()
        assert runs.newest(two_checkpoints) == first, path
        path.write_bytes(whole)
        assert runs.newest(two_checkpoints) == second, path


def test_metrics_shorter_than_the_checkpoint(two_checkpoints):
    """A checkpoint is of no use without the metrics before it: the newest that has all of its own is taken."""
    metrics = two_checkpoints / "metrics.jsonl"
    whole = metrics.read_bytes()
    newest = {0: None, len(whole) // 2: "checkpoint-000001", len(whole): "checkpoint-000002"}  # two lines of one length
    for size in reversed(range(len(whole) + 1)):
        os.truncate(metrics, size)
        found = runs.newest(two_checkpoints)
        assert (found and found.name) == newest[max(s for s in newest if s <= size)], size


# ---------------------------------------------------------------- nothing that is read is run


PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def unsafe(source: str) -> list[str]:
    """The places in Python source that would run text or data as a program, as "line: what"."""
    found = []
    for node in ast.walk(ast.parse(source)):
        said = {}  # names that are given a value: keywords of a call, keys of a dict
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [f"{node.lineno}: {name}" for name in names if name.split(".")[0] in PICKLES]
        elif isinstance(node, ast.Dict):
            said = {key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Call):
            said, called = {keyword.arg: keyword.value for keyword in node.keywords}, ast.unparse(node.func)
            if called in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"):
                found.append(f"{node.lineno}: {called}")
            if called.endswith(".from_pretrained") and not {"trust_remote_code", None} & said.keys():
                found.append(f"{node.lineno}: from_pretrained without trust_remote_code")
            if called == "torch.load" and ast.unparse(said.get("weights_only", node.func)) != "True":
                found.append(f"{node.lineno}: torch.load without weights_only")
        for name in ("trust_remote_code", "allow_pickle", "shell"):
            if name in said and ast.unparse(said[name]) != "False":
                found.append(f"{node.lineno}: {name}")
    return found


def test_no_module_runs_what_it_reads():
    """Completions, data files, checkpoints and hub models are untrusted."""
    paths = [*ROOT.glob("*.py"), *ROOT.glob("lab/*.py"), *ROOT.glob("benchmarks/*.py")]
    assert len(paths) > 10 and {str(path): found for path in paths if (found := unsafe(path.read_text()))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "x = eval(text)",
        "exec(text)",
        "import os, pickle",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "AutoConfig.from_pretrained(name)",
        "load(name, **{'trust_remote_code': o.trust})",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_what_would_run_is_noticed(line):
    """The search itself must be able to find something."""
    assert len(unsafe(f"def f():\n    {line}\n")) == 1
    assert unsafe("model.eval()\nre.compile(p)\ntorch.load(p, weights_only=True)\nload(n, trust_remote_code=False)\n") == []
