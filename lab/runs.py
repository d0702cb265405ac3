"""A run on disk: its folder, its metrics, its checkpoints; and what all commands do alike.

    runs/<name>/config.json            the options, and what else decides the numbers: versions, threads, the commit
    runs/<name>/metrics.jsonl          one line per step
    runs/<name>/samples.jsonl          completions of the first step, of the last one, and of every --samples steps
    runs/<name>/checkpoint-000050/     A/, B/, ...: each agent (a model folder, or an adapter in PEFT's format) and its optimizer
                                       A-teacher/, ...: the same of its teacher, where the method has one
                                       manifest.json: size and SHA-256 of every file, written last

A checkpoint appears whole or not at all: it is written beside its place and renamed. Nothing random is stored, because nothing
random is carried along: each step seeds its own generators from (seed, step, agent), so a resumed run draws what the unbroken
run would have drawn.
"""

import contextlib
import hashlib
import itertools
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers
from tqdm import tqdm
from transformers.utils import logging as hf_logging

import lora
from grpo import Agent
from lab import code, guards, peft, show, tinycode, tinyeyes, tinyworld
from lab.data import WORLDS, Problem, UserError, train_and_test
from lab.models import fits, whole_model
from lab.vision import saved_with

# The second part of every key, so that no two purposes share their numbers. Evaluations have no step in theirs: the same
# numbers each time, so that a difference between two is the policy's.
SAMPLING, ORDER, EVALUATION, TEACHING, JUDGING, REPHRASING = range(6)


def generator(*key: int) -> torch.Generator:
    """A CPU generator that depends on all of `key` (seed, purpose, step, agent) and on nothing else.

    Two things would give two keys the same numbers. A key of less than four numbers is filled up with zeros, so (1, 2) and
    (1, 2, 0) are alike: all keys of one purpose must be equally long. A number of 2**32 or more counts as two: such seeds are
    refused.
    """
    state = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state >> 1)


def generators(seed: int, purpose: int, step: int, n: int, first: int = 0) -> list[torch.Generator]:
    """One generator for each of n agents, in one step; `first` is the place of the first of them on the ring."""
    return [generator(seed, purpose, step, first + i) for i in range(n)]


def check_name(out: str, name: str | None) -> None:
    """A --name is one new folder in --out: it can neither climb out of it nor hold a run already."""
    if not out.isprintable():  # a byte that is no UTF-8, or a NUL: a folder could be made, and its checkpoints not
        raise UserError(f"--out {out!a}: use characters that can be printed")
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UserError(f"--name {name!r}: use letters, digits, '.', '_' and '-', beginning with a letter or digit")
    if name and (Path(out) / name).exists():
        raise UserError(f"{Path(out) / name} exists already: choose another --name, or continue a run of it with --resume")


def create(out: str, name: str | None, prefix: str) -> Path:
    """Make the folder of a new run: `out/name`, or `out/prefix-NNN` with the first free number."""
    check_name(out, name)
    root = Path(out)
    try:
        root.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1_000_000):
            folder = root / (name or f"{prefix}-{number:03d}")
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                if name:  # made by another process since it was checked
                    raise UserError(f"{folder} exists already: choose another --name") from None
    except OSError as error:
        raise UserError(f"cannot make a folder in {root}: {error.strerror}; choose another --out") from None
    raise UserError(f"{root} is full of runs: choose another --out")


def write_json(path: Path, content: dict) -> None:
    """Write beside the place and rename, so that a reader never sees half a file."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def read_json(path: Path) -> dict:
    """The object in a JSON file of a run."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a run: it has no {path.name}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a run's file: it does not hold an object")
    return content


def append_line(path: Path, record: dict) -> None:
    """Add one line to a .jsonl file; a line that cannot be written whole is taken back."""
    line = (json.dumps(record) + "\n").encode()
    size = path.stat().st_size if path.exists() else 0
    try:
        with open(path, "ab", buffering=0) as file:
            written = file.write(line)
        if written != len(line):
            raise OSError(28, "no space left on device")
    except OSError as error:
        if path.exists():
            os.truncate(path, size)
        raise UserError(f"cannot write {path}: {error.strerror}; what was saved before is whole") from None


def read_lines(path: Path) -> list[dict]:
    """All records of a .jsonl file of a run."""
    try:
        whole = path.read_text().split("\n")[:-1]  # what follows the last line end was cut off by a kill
        return [json.loads(line) for line in whole if line.strip()]
    except FileNotFoundError:
        raise UserError(f"{path.parent} is not a run that has begun: it has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


class Run:
    """The files of a run: its options, its lines of metrics, and of these the steps and the evaluations."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.config = read_json(folder / "config.json")
        if is_comparison(self.config):
            raise UserError(f"{folder} is a comparison: name one of its runs, METHOD-seedN in it")
        self.lines = read_lines(folder / "metrics.jsonl")
        self.trained = [line for line in self.lines if "agents" in line]
        self.measured = [line for line in self.lines if "eval" in line]


def by_topic(line: dict) -> dict[str, list[float]]:
    """topic -> accuracy of every agent on an evaluated line."""
    names = list(line["probes"])
    return {topic: [line["probes"][name][topic] for name in names] for topic in line["probes"][names[0]]}


# ---------------------------------------------------------------- checkpoints


def digest(path: Path) -> str:
    """SHA-256 of a file, a megabyte at a time: weights can be larger than what memory is left."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def save(run: Path, step: int, agents: Sequence[Agent], keep: int = 2) -> Path:
    """Write checkpoint-<step> and drop all but the last `keep`. A failure leaves the older ones as they are."""
    final, temporary = run / f"checkpoint-{step:06d}", run / f".checkpoint-{step:06d}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        for agent in agents:
            folder = temporary / agent.name
            folder.mkdir(parents=True)
            if agent.adapter is not None:
                peft.save(agent.model, agent.adapter, folder)
            else:
                agent.model.save_pretrained(folder)
            if not any(folder.glob("*.safetensors")):  # the library saves none in a process that it takes for a helper of others
                raise OSError(f"no weights of agent {agent.name} were written")
            saved_with(agent.tokenizer).save_pretrained(folder)
            if agent.optimizer is not None:  # a teacher has none
                torch.save(agent.optimizer.state_dict(), folder / "optimizer.pt")
        files = sorted(p for p in temporary.rglob("*") if p.is_file())
        parts = {str(p.relative_to(temporary)): {"bytes": p.stat().st_size, "sha256": digest(p)} for p in files}
        metrics = run / "metrics.jsonl"
        manifest = {"step": step, "metrics_bytes": metrics.stat().st_size if metrics.exists() else 0, "files": parts}
        write_json(temporary / "manifest.json", manifest | {"sha256": seal(manifest)})
        shutil.rmtree(final, ignore_errors=True)
        os.replace(temporary, final)
    except Exception as error:  # torch, tokenizers and safetensors each report a full disk in a way of their own
        shutil.rmtree(temporary, ignore_errors=True)
        older = newest(run)
        raise UserError(
            f"cannot write {final} ({error}): is the disk full? The last good checkpoint is {older or 'none'}"
        ) from None
    for old in checkpoints(run)[:-keep]:
        shutil.rmtree(old)
    return final


def checkpoints(run: Path) -> list[Path]:
    """The checkpoint folders of a run, oldest first; a user's own copies, under other names, are left alone."""
    return sorted(p for p in run.glob("checkpoint-*") if p.is_dir() and re.fullmatch(r"checkpoint-\d{6,}", p.name))


def seal(manifest: dict) -> str:
    """SHA-256 of a manifest's content."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def whole(folder: Path) -> dict | None:
    """The manifest of a checkpoint of which no byte is missing or changed, else None."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        sealed = manifest.pop("sha256") == seal(manifest)
        files = manifest["files"].items()
        intact = all((folder / p).stat().st_size == f["bytes"] and digest(folder / p) == f["sha256"] for p, f in files)
        metrics = folder.parent / "metrics.jsonl"
        kept = (metrics.stat().st_size if metrics.exists() else 0) >= manifest["metrics_bytes"]
        return manifest if sealed and intact and kept else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def newest_whole(run: Path) -> tuple[Path | None, dict]:
    """The newest checkpoint that is whole, and its manifest; each is hashed once, they can be large."""
    for folder in reversed(checkpoints(run)):
        if manifest := whole(folder):
            return folder, manifest
    return None, {}


def newest(run: Path) -> Path | None:
    """The newest checkpoint that is whole."""
    return newest_whole(run)[0]


def load_agent(agent: Agent, place: Path) -> None:
    """Weights or adapter, and optimizer state (a teacher has none), from the agent's folder in a checkpoint."""
    if agent.adapter is not None:
        peft.load(agent.model, agent.adapter, place)
    else:
        # Through the library, which may store weights under other names than the model has, then strictly.
        saved = whole_model(place, hasattr(agent.tokenizer, "processor"), dtype=agent.model.dtype)
        agent.model.load_state_dict(saved.state_dict(), strict=True)
    if agent.optimizer is not None:
        state = torch.load(place / "optimizer.pt", weights_only=True, map_location=agent.device)
        agent.optimizer.load_state_dict(state | {"param_groups": agent.optimizer.state_dict()["param_groups"]})
        for p, moments in agent.optimizer.state.items():
            if any(value.shape not in (p.shape, ()) for value in moments.values()):
                raise ValueError(f"{place}/optimizer.pt is of other weights")


def restore(run: Path, agents: Sequence[Agent], total: int) -> int:
    """Put the newest whole checkpoint into `agents`, cut metrics.jsonl back to it, and return its step.

    Refused, with nothing changed, where the run is to end (`total`) before that step.
    """
    folder, manifest = newest_whole(run)
    if folder is None:
        raise UserError(f"{run} holds no whole checkpoint to resume from")
    if total < manifest["step"]:
        raise UserError(f"--steps {total} is less than what is done: {folder} is at step {manifest['step']}")
    if kept_steps(run, manifest)[-1:] != [manifest["step"]]:
        raise UserError(f"{run}/metrics.jsonl was changed since {folder} was written: put it back as it was")
    for other in [*checkpoints(run), *run.glob(".checkpoint-*.tmp")]:
        if other.name > folder.name or other.suffix == ".tmp":
            if not other.suffix:
                print(f"{other} is damaged and removed; the run goes on from {folder}", file=sys.stderr)
            shutil.rmtree(other)  # cut off or damaged: it must not count among the last two
    for old in checkpoints(run)[:-2]:
        shutil.rmtree(old)  # a kill may have come just before its removal
    for agent in agents:
        try:
            load_agent(agent, folder / agent.name)
        except Exception as error:  # what torch, safetensors and the library raise on files of other content has no common kind
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UserError(f"{folder} does not fit the models of {run}/config.json, have they changed? {reason}") from None
    if (run / "metrics.jsonl").exists():
        os.truncate(run / "metrics.jsonl", manifest["metrics_bytes"])
    cut_back(run / "samples.jsonl", manifest["step"])
    return manifest["step"]


def cut_back(path: Path, step: int) -> None:
    """Leave out what a .jsonl file holds of later steps, and a line that a kill cut off."""
    try:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        kept = itertools.takewhile(lambda line: line.endswith(b"\n") and json.loads(line)["step"] <= step, lines)
        if lines:
            os.truncate(path, sum(map(len, kept)))
    except (ValueError, LookupError, TypeError):
        raise UserError(f"{path} was changed by somebody else: put it back, or remove it") from None


def kept_steps(run: Path, manifest: dict) -> list[int]:
    """The steps of the lines of metrics.jsonl that a checkpoint came after; [] where one cannot be read."""
    try:
        lines = (run / "metrics.jsonl").read_bytes()[: manifest["metrics_bytes"]].split(b"\n")
        return [json.loads(line)["step"] for line in lines[:-1]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def begin(place: Path, agents: Sequence[Agent], steps: int) -> int:
    """Resume the begun run of a comparison in `place`, or start it over; returns the last step that is done."""
    if newest(place):
        return restore(place, agents, steps)
    print(f"{place} was interrupted and has no whole checkpoint: it starts over", file=sys.stderr)
    for name in ("metrics.jsonl", "samples.jsonl"):
        (place / name).unlink(missing_ok=True)
    for part in [*checkpoints(place), *place.glob(".checkpoint-*.tmp")]:
        shutil.rmtree(part)
    return 0


# ---------------------------------------------------------------- what a run reads, its steps, and how it is stopped


def world(source: str):
    """The module of a world that is made here."""
    return {"tiny": tinyworld, "eyes": tinyeyes, "tinycode": tinycode}[source]


def read_data(source: str, most: int, topics: Sequence[str] | None = None) -> tuple[list[Problem], list[Problem]]:
    """(to train on, held out), `most` of these at most. A tiny world makes its problems as it goes: none here to train on."""
    if source in WORLDS:
        return [], world(source).probes(topics, max(1, most // len(world(source).select(topics))))
    return train_and_test(source, most)


def positions(total: int, batch: int, step: int, seed: int) -> list[int]:
    """Which problems step `step` (from 1) reads: `batch` places further in an endless row of shuffled passes."""
    places = range((step - 1) * batch, step * batch)
    passes = {i // total for i in places}
    orders = {number: torch.randperm(total, generator=generator(seed, ORDER, number)).tolist() for number in passes}
    return [orders[i // total][i % total] for i in places]


def fitting(problems: Sequence[Problem], agents: Sequence[Agent], max_new_tokens: int) -> list[Problem]:
    """Leave out the problems whose prompt does not fit a model's context, and say how many they are."""
    kept = [p for p in problems if all(fits(agent, agent.prompt(p), max_new_tokens) for agent in agents)]
    if problems and not kept:
        raise UserError(
            f"no problem fits the context of every model with {max_new_tokens} new tokens: lower --max-new-tokens"
        )
    if len(kept) < len(problems):
        print(
            f"left out {len(problems) - len(kept)} of {len(problems)} problems: too long for the context of a model",
            file=sys.stderr,
        )
    return kept


@dataclass
class Work:
    """One run, loaded: what a command hands over to be trained. `start` is the evaluation before training, where it is known."""

    agents: Sequence[Agent]  # all that a checkpoint holds, teachers too
    take: Callable[[int], dict]  # one step of training: its line of metrics.jsonl, and under "samples" those of samples.jsonl
    measure: Callable[[int], dict]  # what an evaluation after some step adds to that line
    need: object  # memory.Memory
    config: dict = field(default_factory=dict)  # what a reader of the run needs beside its options


def single(o, load: Callable[[object], Work], prefix: str, command: str) -> Path | None:
    """One run of the options `o`, new or resumed: its folder, or None if it was stopped."""
    announce(o)
    work = load(o)
    folder = Path(o.resume) if o.resume else create(o.out, o.name, prefix)
    with guards.held(folder), out_of_memory(work.need.advice()):
        if o.resume:
            guards.same_inputs(folder, read_json(folder / "config.json"), work.config["inputs"])
        done = restore(folder, work.agents, o.steps) if o.resume else 0
        return folder if train(work, o, folder, done, command) else None


def compare(o, methods: Sequence[str], load: Callable[[object], Work], alone: Callable[[str, int], object],
            whole: Callable[[], Path], command: str, after: Callable[[Path], None] = lambda place: None) -> Path | None:
    """Every method for every seed, each in a folder of its own: that of the comparison, or None if it was stopped.

    alone(method, seed) are the options of one run, whole() makes the folder: once the first cohort is loaded, so that nothing
    stands in the way. Runs that have all their steps are left as they are. The start of a seed is the same for every method with
    as many agents, so it is measured once, by the first. after(folder of a run) may draw it. Completions of the last run are
    printed.
    """
    announce(o)
    folder, last = Path(o.resume) if o.resume else None, (methods[-1], (o.seeds or [o.seed])[-1])
    for seed in o.seeds or [o.seed]:
        for method in methods:
            one, name = alone(method, seed), f"{method}-seed{seed}"
            written = folder and (folder / name / "metrics.jsonl").exists() and read_lines(folder / name / "metrics.jsonl")
            if not written or written[-1]["step"] < one.steps:  # else its numbers are whole, with or without a checkpoint
                work = load(one)
                folder = folder or whole()
                for path in folder.glob("*/config.json"):
                    guards.same_inputs(path.parent, read_json(path), work.config["inputs"])
                new = not (folder / name).exists() and create(str(folder), name, "")
                with guards.held(folder / name), out_of_memory(work.need.advice()):
                    done = 0 if new else begin(folder / name, work.agents, one.steps)
                    first = folder / f"{methods[0]}-seed{seed}"
                    alike = method != methods[0] and Run(first).config.get("agents") == getattr(one, "agents", None)
                    start = Run(first).lines[0] if alike else None
                    if not train(work, one, folder / name, done, command, start, (method, seed) == last):
                        return None
                del work  # before the next cohort is made: memory for one is enough
            after(folder / name)  # a kill may have come just before it
    return folder


def train(work: Work, o, folder: Path, done: int, command: str, start: dict | None = None, shown: bool = True) -> bool:
    """Steps `done`+1 .. o.steps, each a line of metrics.jsonl, checkpoints as --save-every says. False if Ctrl-C came.

    Completions go to samples.jsonl, and to the terminal if they are to be `shown`.
    """
    if o.data not in WORLDS and o.steps:
        print(work.need)
    config = note_options(work, o, folder, done)
    first = {"step": 0} | (work.measure(0) if start is None else start) if done == 0 else {}
    if first:
        append_line(folder / "metrics.jsonl", first)
        tell(first)
    form, seen = "{desc} {n_fmt}/{total_fmt} {elapsed}<{remaining}{postfix}", show.accuracies(first)  # no bar: 80 columns
    learnt, room = False, 79 - len(f"{o.method} {o.steps}/{o.steps} 00:00<00:00")
    with (Stop() as stop, show.logged(o.log, folder, config) as log,
          tqdm(total=o.steps, initial=done, desc=o.method, bar_format=form, disable=not o.steps) as bar):  # fmt: skip
        for step in range(done + 1, o.steps + 1):
            try:
                began = time.perf_counter()
                line = work.take(step)
                line["seconds"] = time.perf_counter() - began
                if step == o.steps or (o.eval_every and step % o.eval_every == 0):
                    line |= work.measure(step)
            except FloatingPointError as error:
                kept = f"the last good checkpoint is {newest(folder) or 'none (see --save-every)'}"
                raise UserError(f"step {step}, {error}, so the run ends here; {kept}; try a lower --lr (or --lrs)") from None
            learnt |= any(part.get("signal") for part in [*line.get("agents", {}).values(), *line.get("halves", {}).values()])
            samples = line.pop("samples", [])
            append_line(folder / "metrics.jsonl", line)
            log(line)
            if samples and (step in (1, o.steps) or (o.samples and step % o.samples == 0)):
                keep(samples, folder, step, shown)
            tell(line)
            seen = show.accuracies(line) or seen
            bar.set_postfix_str(show.progress(line, seen, room), refresh=False)
            bar.update()
            last = step == o.steps or stop.asked
            if (last and o.save_every >= 0) or (o.save_every > 0 and step % o.save_every == 0):
                save(folder, step, work.agents)
            if stop.asked and (step < o.steps or in_comparison(folder, o.steps)):
                print(f"\nstopped after step {step}; {how_to_continue(folder, o.steps, command)}", file=sys.stderr)
                return False
    if o.steps > done and not learnt:
        print("nothing could be learnt: in no step did the rewards within a group differ; see the answers that were read "
              "(--answer, --stop), and how many completions did not end (--max-new-tokens)", file=sys.stderr)  # fmt: skip
    return True


def how_to_continue(folder: Path, steps: int, command: str) -> str:
    """What to type after a stop, if anything helps: a comparison goes on as a whole."""
    whole = folder.parent if in_comparison(folder, steps) else folder
    if whole == folder and not newest(folder):
        return "no checkpoint was kept (see --save-every), so it cannot be continued"
    return f"continue with: python {command} --resume {whole}"


def note_options(work: Work, o, folder: Path, done: int) -> dict:
    """Write config.json, and return it; say what is trained, and what is another than when a resumed run began."""
    config = asdict(o) | {"resume": None} | origin(folder if done else None) | work.config
    if done and (before := read_json(folder / "config.json").get("versions")) != config["versions"]:
        now = f"now {config['versions']}: its numbers may differ from an unbroken run's"
        print(f"{folder} was begun with {before}, {now}", file=sys.stderr)
    write_json(folder / "config.json", config)
    if o.steps:
        learners = [agent for agent in work.agents if agent.optimizer]
        sizes = dict.fromkeys(f"{sum(p.numel() for p in agent.model.parameters()) / 1e6:.2f} M" for agent in learners)
        print(f"{folder}: {o.method}, {len(learners)} agents of {' and '.join(sizes)} weights on {learners[0].device}, "
              f"steps {done + 1} to {o.steps}", flush=True)  # fmt: skip
    return config


def announce(o) -> None:
    """Say what takes the time before the first step."""
    named = getattr(o, "models", None) or [model for model in [getattr(o, "model", None)] if model]
    print(f"loading {', '.join(dict.fromkeys(named))}" if named else
          "loading the agents of the tiny world; the first time they are made, in about a minute", flush=True)  # fmt: skip


def keep(samples: Sequence[dict], folder: Path, step: int, shown: bool) -> None:
    """Completions of a step go into samples.jsonl, and if they are to be `shown` on the screen."""
    for sample in samples:
        append_line(folder / "samples.jsonl", {"step": step} | sample)
    if shown:
        tqdm.write(f"\ncompletions of step {step}\n{show.completions(samples)}\n")


def tell(line: dict) -> None:
    """An evaluation as a line that stays on the screen."""
    for which in [name for name in line if name.split(" on ")[0] == "eval"]:
        tqdm.write(f"step {line['step']:>4}  {show.accuracies(line, which)}")


typed: list[str] = []  # the command line; options.command sets it


def origin(resumed: Path | None = None) -> dict:
    """Where a run comes from: every command line that it had, this code's commit (-dirty: changed since), threads, versions."""
    before = read_json(resumed / "config.json").get("commands") if resumed else None
    before = before if isinstance(before, list) else []
    ask = ["git", "--git-dir=.git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        commit = subprocess.run(ask, cwd=Path(__file__).parent.parent, capture_output=True, text=True).stdout.strip() or None
    except OSError:  # no git here
        commit = None
    return {"commands": [*before, shlex.join(typed)], "commit": commit, "threads": torch.get_num_threads(),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}  # fmt: skip


def is_comparison(config: dict) -> bool:
    """Whether a config.json is that of a comparison, by cohort.py or by agon.py, and not of one run."""
    return bool(config.get("compare") or "rows" in config)


def in_comparison(folder: Path, total: int) -> bool:
    """Whether a run of `total` steps is one of a comparison's; one that is extended by itself is no longer."""
    whole = folder.parent / "config.json"
    config = read_json(whole) if whole.exists() else {}
    return is_comparison(config) and config.get("steps") == total


class Stop:
    """Ctrl-C ends the run after the step in hand, so that what is saved is whole; a second one ends it at once.

    So does what a machine sends before it ends a process (SIGTERM), or a terminal that closes (SIGHUP).
    """

    def __enter__(self):
        self.asked, self.before = False, {}
        for name in ("SIGINT", "SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ():
            which = getattr(signal, name, None)  # Windows has no SIGHUP, nohup ignores it
            if which and (name != "SIGHUP" or signal.getsignal(which) != signal.SIG_IGN):
                self.before[which] = signal.signal(which, self.ask)
        return self

    def ask(self, *_):
        self.asked = True
        self.__exit__()
        try:
            tqdm.write("stopping after this step; Ctrl-C again stops at once", file=sys.stderr)
        except OSError:  # the terminal has gone, and nobody reads what follows
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)

    def __exit__(self, *_):
        for which, handler in self.before.items():
            signal.signal(which, handler)


# ---------------------------------------------------------------- a command


@contextlib.contextmanager
def out_of_memory(advice: str):
    """Within it, a GPU or a machine that is full ends the command with one line, which says what lowers the need."""
    try:
        yield
    except RuntimeError as error:  # of which torch.OutOfMemoryError, a GPU's, is one; the CPU's allocator has none of its own
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        tried = re.search(r"[Tt]ried to allocate [\d.]+ (?:[KMGT]iB|bytes)", str(error))
        raise UserError(f"out of memory{f' ({tried.group().lower()})' if tried else ''}; {advice}") from None


def command(name: str, act: Callable[[], int], left: str, lower: str) -> int:
    """The exit code of `act()`. A user's mistake, or what the machine refuses, is one line on stderr and exit code 2.

    `left` says what is left when it ends early, `lower` which options lower the need for memory.
    """
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()  # loading has its own bars, which would break ours
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # without a network it would tell of every retry
    try:
        with contextlib.redirect_stdout(guards.Shown(sys.stdout)), out_of_memory(f"lower {lower}"):
            return act()
    except (UserError, lora.LoraError, code.SandboxError) as error:
        print(f"{name}: {error}", file=guards.Shown(sys.stderr))
    except FloatingPointError as error:
        print(f"{name}: {error}: the model's weights or --temperature are at fault", file=sys.stderr)
    except OSError as error:
        print(f"{name}: {error}; {left}", file=guards.Shown(sys.stderr))
    except KeyboardInterrupt:
        print(f"\nstopped at once; {left}", file=sys.stderr)
        return 130
    return 2
