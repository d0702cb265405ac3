"""Measure what was trained, or any model: pass@1 with its interval, maj@k, length, and how many completions did not end.

    python -m lab.evaluate runs/corl-001                               # a run's newest checkpoint, as the run itself measures
    python -m lab.evaluate runs/corl-001/checkpoint-000100/A --k 16    # one of its agents, more samples
    python -m lab.evaluate runs/corl-001 --data gsm8k --temperature 0  # all of its agents on other problems, greedily
    python -m lab.evaluate MODEL ADAPTER --data math500 --pool         # full models, and adapters whose config names their base

What lies in a run's folder is measured with the run's own settings, draws and held-out problems unless an option says otherwise,
so its numbers equal those that the run's metrics.jsonl ends with. --pool is the ensemble of the Co-RL paper's Table 11 at a
matched budget: the agents write --k completions together, and all of these vote (the paper's maj@8 of two agents: --k 8
--temperature 0.6 --top-p 0.95).
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import agon
import cohort
from grpo import Agent
from lab import models, options, peft, runs, setup
from lab.data import WORLDS, Problem, UserError, answer_style, load_problems
from lab.evaluate import Report, evaluate, mean_interval, pooled
from lab.options import Above, Count, NotBelow0, Sampling, Seed, agent_names, command
from lab.report import align

Loaded = tuple[list[tuple[int, Agent]], list[Problem], "Options"]  # agents by their place in the cohort, problems, settings
OWN = {"k": 8, "max_new_tokens": 512, "temperature": 1.0, "seed": 0, "eval_problems": None}  # where neither run nor user says


@dataclass(kw_only=True)
class Options(Sampling):
    """All there is to set. What is not given is as in the run, or else the default named here."""

    models: list[str]  # runs, their checkpoints, or an agent's folder in one; or full models and adapters, by folder or hub name
    data: str | None = None  # problems with answers: a source of lab/data.py (its test part), tiny, eyes (default: the run's own)
    k: Count | None = None  # samples of each problem (default: 8; 1 for temperature 0)
    max_new_tokens: Count | None = None  # longest completion (default: 512)
    temperature: NotBelow0 | None = None  # of sampling; 0 takes the most probable token (default: 1)
    top_p: Above = 1.0  # draw from the most probable tokens that have this probability in all
    eval_problems: Count | None = None  # only so many problems (default: all, or as many as the run)
    pool: bool = False  # all agents write --k completions together, and vote
    seed: Seed | None = None  # decides every draw (default: 0)

    def settled(self, own: dict) -> "Options":
        """With the values of `own` for what was not given; greedy search needs one sample."""
        found = {name: own[name] for name in OWN if getattr(self, name) is None}
        return dataclasses.replace(self, **found | ({"k": 1} if self.temperature == 0 else {}))


RULES = [
    (lambda o: o.top_p > 1, "--top-p is a probability: at most 1"),
    (lambda o: o.temperature == 0 and (o.top_p < 1 or o.pool or (o.k or 1) > 1),
     "--temperature 0 always writes the same: leave --k, --top-p and --pool out"),
]  # fmt: skip


# ---------------------------------------------------------------- loading


def load(source: str, n: int, o: Options) -> Loaded:
    """What the n-th name on the command line stands for."""
    path = Path(source).resolve()
    for run, place, only in ((path, None, None), (path.parent, path, None), (path.parent.parent, path.parent, path.name)):
        if (run / "metrics.jsonl").exists() and (run / "config.json").exists():
            place = place or runs.newest(run)
            if place is None or not runs.whole(place):
                raise UserError(f"{source} is, or lies in, no whole checkpoint of the run {run}")
            return load_run(run, place, only, o)
    return load_model(source, n, o)


def load_run(run: Path, place: Path, only: str | None, o: Options) -> Loaded:
    """The agents of a checkpoint, or `only` one; the run decides what is not given."""
    kind = agon if "tiebreak" in runs.read_json(run / "config.json") else cohort
    own = options.resumed(str(run), {}, kind.Options)
    o = o.settled(vars(own) | {"k": own.eval_k})
    device = own.device if o.device == "auto" else o.device
    own = dataclasses.replace(own, checkpointing=False, max_new_tokens=o.max_new_tokens, device=device)
    places = [str(place / name) for name in agent_names(getattr(own, "agents", 2))]
    here = [n for n, folder in enumerate(places) if Path(folder).exists()]  # where every process saves its own: not all
    if o.data in (None, own.data):
        problems = runs.read_data(own.data, o.eval_problems, getattr(own, "topics", None))[1]
    else:
        problems = load_problems(o.data, "test", o.eval_problems)
    if kind is cohort and not own.lora_rank:  # the checkpoint holds whole models: those that training began with are not needed
        agents = setup.make_cohort(dataclasses.replace(own, models=places, beta=0.0), problems, here)
        for agent in agents:
            agent.tokenizer.plain_prompt = own.data in WORLDS
    else:
        agents = agon.make_agents(own) if kind is agon else setup.make_cohort(own, problems, here)
        for agent in agents:
            peft.load(agent.model, agent.adapter, place / agent.name)
    problems = agon.that_fit(problems, agents, own) if kind is agon else runs.fitting(problems, agents, o.max_new_tokens)
    kept = [(n, dataclasses.replace(agent, rephrase=False)) for n, agent in enumerate(agents) if only in (None, agent.name)]
    return kept, problems, dataclasses.replace(o, data=o.data or own.data)


def load_model(source: str, n: int, o: Options) -> Loaded:
    """A full model, or an adapter and the base that its config names."""
    o, config, base = o.settled(OWN), Path(source) / peft.CONFIG_FILE, source
    if o.data is None:
        raise UserError(f"{source} lies in no run that names its problems: give --data")
    if config.exists():
        base = json.loads(config.read_text()).get("base_model_name_or_path")
        if not base or (Path(source) / "config.json").exists():
            raise UserError(f"{source} holds an adapter without the name of its base, or a full model beside it: mend {config}")
    most = o.eval_problems
    problems = runs.read_data(o.data, most or 120)[1] if o.data in WORLDS else load_problems(o.data, "test", most)
    model, tokenizer = models.load_model(base, models.pick_device(o.device), o.dtype, any(p.image for p in problems))
    tokenizer.plain_prompt = o.data in WORLDS
    agent = Agent(agent_names(n + 1)[n], model, tokenizer, peft.load(model, "A", source) if config.exists() else None,
                  answer_style=o.answer or answer_style(o.data), system=o.system, stop=o.stop)  # fmt: skip
    return [(n, agent)], runs.fitting(problems, [agent], o.max_new_tokens), o


# ---------------------------------------------------------------- measuring


def measure(loaded: Loaded, share: int | None = None) -> list[Report]:
    """The report on each agent, of `share` samples or k, with the draws of a run's own evaluations."""
    agents, problems, o = loaded
    return [evaluate(agent, problems, share or o.k, o.max_new_tokens, o.temperature,
                     runs.generator(o.seed, runs.EVALUATION, n), top_p=o.top_p) for n, agent in agents]  # fmt: skip


def table(rows: Sequence[tuple[str, Report]], first: str) -> str:
    """A row for each name and report."""
    cells = [(first, "problems", "pass@1", "95% interval", "maj@k", "95% interval", "k", "length", "cut off")]
    for name, r in rows:
        middle = "({:.3f}, {:.3f})".format
        cells.append((name, str(r.problems), f"{r.pass1:.3f}", middle(*r.interval), f"{r.majk:.3f}",
                      middle(*mean_interval(r.majk, r.problems)), str(r.k), f"{r.length:.1f}", f"{r.truncated:.2f}"))  # fmt: skip
    return align(cells)


def report(o: Options) -> int:
    """Measure and print. Returns the exit code."""
    loaded = [load(source, n, o) for n, source in enumerate(o.models)]
    (_, problems, s), names = loaded[0], [f"{a.name}: {source}" for source, (agents, *_) in zip(o.models, loaded, strict=True)
                                          for _, a in agents]  # fmt: skip
    if o.pool and (len(names) < 2 or s.k % len(names) or any(found[1] != problems for found in loaded)):
        raise UserError("--pool takes two or more agents on the same problems, and a --k that they can share evenly")
    found = [r for one in loaded for r in measure(one, s.k // len(names) if o.pool else None)]
    rows = list(zip(names, found, strict=True)) + ([("all of them, pooled", pooled(found, problems))] if o.pool else [])
    how = f"temperature {s.temperature:g}, top-p {s.top_p:g}, at most {s.max_new_tokens} tokens"
    print(f"{Path(s.data).name}, {how}\n\n{table(rows, 'agent')}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""
    return command("lab.evaluate", arguments, __doc__, Options, RULES, report, "nothing was written")


if __name__ == "__main__":
    sys.exit(main())
