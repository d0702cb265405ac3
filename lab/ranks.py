"""One agent a process, on one machine or on many: all that passes between them is what the agents answered.

    torchrun --nproc-per-node 2 -m lab.ranks --folder runs/two  # two agents in two processes; the same again goes on with the run
    RANK=1 WORLD_SIZE=2 python -m lab.ranks --folder runs/two   # the second process alone, by hand

A process trains its own agents. It says their votes under (step, agent) in a store, a folder or torch.distributed's TCPStore, and
waits for the others'. There is no process group, in which one death ends all: a process that died goes on from its last whole
checkpoint, and reads the votes that it missed. Every draw depends on (seed, step, agent) alone, so on CPUs, with one thread a
process, the run is that of cohort.py bit for bit. What travels is JSON. What it costs and where it ends: docs/scale.md.
"""

import contextlib
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import cohort
from lab import guards, options, report, runs, setup
from lab.data import UserError, write_whole
from lab.evaluate import Report
from rewards import majorities

METHODS = "pooled corl ttrl gt corewarding1 empo rent intuitor".split()  # the first needs whole answers, the others majorities
FREE = "folder resume device log samples patience tcp commands threads".split()  # what may differ from process to process


@dataclass
class Options(cohort.Options):
    """Those of cohort.py, and where the processes meet; no --name, --out, --compare, --eval-data."""

    folder: str | None = None  # of the run; process 1, 2, ... has rank-1, rank-2, ... in it
    tcp: bool = False  # votes go through torchrun's server at MASTER_ADDR:MASTER_PORT, not only into the folder FOLDER/votes
    patience: options.Above = 600.0  # seconds without a word from another process after which this one stops


RULES = [
    *options.RULES,
    (lambda o: o.name or o.out != "runs" or o.compare or o.eval_data or not o.folder, "give --folder; see --help for the rest"),
    (lambda o: o.method not in METHODS, "method {method} is not offered here: train it with cohort.py"),
]


class Files:
    """TCPStore's verbs for a folder: a message is a file, there whole or not at all (a FileStore hangs on a part of one)."""

    def __init__(self, folder: Path):
        self.folder = folder

    def check(self, keys: list[str]) -> bool:
        return all((self.folder / key).exists() for key in keys)

    def get(self, key: str) -> bytes:
        return (self.folder / key).read_bytes()

    def compare_set(self, key: str, _: str, text: str) -> bytes:
        if not self.check([key]):
            write_whole(self.folder / key, text.encode())
        return self.get(key)


class Board:
    """Where the processes say things, each once and for good, and wait for what others say."""

    def __init__(self, o: Options, rank: int, world: int):
        self.o, self.names, self.run = o, options.agent_names(o.agents), Path(o.resume or o.folder)
        self.rank_of = {name: n * world // o.agents for n, name in enumerate(self.names)}
        self.own = [name for name in self.names if self.rank_of[name] == rank]  # one after another on the ring
        self.first = self.names.index(self.own[0])
        self.written = self.own if rank else self.names  # whose metrics stand in the folder of this process
        self.folder = self.run / f"rank-{rank}" if rank else self.run
        self.store = self.kept = Files(self.run / "votes")

    def tell(self, what: str, own: list, of: list[str]) -> dict:
        """Say a message for each agent here, and wait for those of the agents `of`. What was said first counts, for ever."""
        heard, began = {}, time.monotonic()
        for name, content in zip(self.own, own, strict=True):
            key, ours = f"{what}-{name}", json.dumps(content)
            self.store.compare_set(key, "", self.kept.compare_set(key, "", ours).decode())
        for name in of:
            key, who = f"{what}-{name}", f"{what} of agent {name} (rank {self.rank_of[name]})"
            while not self.store.check([key]):
                if time.monotonic() - began > self.o.patience:
                    raise UserError(f"no word of {who} for {self.o.patience:g} s: start again what died, then this; "
                                    f"the last whole checkpoint here is {runs.newest(self.folder)}")  # fmt: skip
                time.sleep(0.003)
            with contextlib.suppress(ValueError, RecursionError):
                heard[name] = json.loads(self.store.get(key))
            if not guards.like(json.loads(ours), heard.get(name, dist)):
                raise UserError(f"{who} cannot be read: {self.store.get(key)[:40]!r}; is it of another version?")
        return heard

    def exchange(self, own: list[list], step: int) -> list[list]:
        """The ballots of all agents on the ring, from the first one here on."""
        said = own if self.o.method == METHODS[0] else [[[label] for label in majorities(groups)] for groups in own]
        self.ballots = list(self.tell(f"{step:06d}-votes", said, self.names[self.first :] + self.names[: self.first]).values())
        return self.ballots

    def after(self, step: int, line: dict) -> None:
        """Complete the metrics of a step."""
        line["agents"] = self.tell(f"{step:06d}-metrics", list(line["agents"].values()), self.written)
        line["agreement"] = cohort.agreement_on_ring(self.ballots)

    def reports(self, found: dict[str, list[Report]], step: int) -> dict[str, list[Report]]:
        """The reports of an evaluation."""
        own = [[asdict(report) for report in pair] for pair in found.values()]
        told = self.tell(f"{step:06d}-evaluation", own, self.written) if found else {}
        return {name: [Report(**report) for report in pair] for name, pair in told.items()}


def act(o: Options) -> int:
    """The part of one process in a run. Returns the exit code."""
    rank, world = (int(os.environ.get(name, -1)) for name in ("RANK", "WORLD_SIZE"))
    if not 0 <= rank < world <= o.agents:
        raise UserError(f"start it with torchrun, at most one process for each of {o.agents} agents (RANK {rank} of {world})")
    board = Board(o, rank, world)
    board.folder.mkdir(parents=True, exist_ok=True)
    log = open(board.folder / "log.txt", "a", encoding="utf-8") if rank else None  # noqa: SIM115 (it ends with the process)
    with guards.held(board.folder), contextlib.redirect_stdout(log or sys.stdout), contextlib.redirect_stderr(log or sys.stderr):
        if o.tcp:  # what was said before is said again, for the server may be a new one
            address = os.environ.get("MASTER_ADDR"), int(os.environ.get("MASTER_PORT", 0)), None, False
            board.store = dist.TCPStore(*address, timeout=timedelta(seconds=o.patience))
            for path in board.kept.folder.glob("[!.]*"):
                board.store.compare_set(path.name, "", path.read_text())
        runs.announce(o)
        data = setup.read_data(o)
        agents = setup.make_cohort(o, sum(data, []), [board.names.index(name) for name in board.own])
        work = cohort.load_work(o, data, [o.method], agents, first=board.first, exchange=board.exchange,
                                after=board.after, reports=board.reports)  # fmt: skip
        work.config.update(agent_names=board.written, processes=world)
        mine = asdict(o) | runs.origin() | {"processes": world, "problems": work.config["inputs"]["problems"]}
        mine = [{name: json.dumps(value) for name, value in mine.items() if name not in FREE}] * len(board.own)
        guards.same_inputs(board.run, {"inputs": board.tell("options", mine, board.names[:1])[board.names[0]]}, mine[0])
        if begun := (board.folder / "metrics.jsonl").exists():
            guards.same_inputs(board.folder, runs.read_json(board.folder / "config.json"), work.config["inputs"])
        done = runs.begin(board.folder, agents, o.steps) if begun else 0
        with runs.out_of_memory(work.need.advice()):
            whole = runs.train(work, o, board.folder, done, f"-m torch.distributed.run --nproc-per-node {world} -m lab.ranks")
        if whole and not rank:
            report.finish(board.folder)
        return 0 if whole else 130


def main(arguments: list[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""
    left, lower = "what was saved before is whole", "--prompts, --k or --max-new-tokens"
    try:
        return options.command("lab.ranks", arguments, __doc__, Options, RULES, act, left, lower, options.METHOD_RULES)
    except dist.DistError as error:
        print(f"lab.ranks: no server of votes: {str(error).splitlines()[0]}; {left}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
