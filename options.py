"""Everything that can be set on the command line of `cohort.py`, and what is refused before anything is loaded."""

import argparse
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformers import HfArgumentParser

import runs
import tinyworld
from rewards import REWARDS
from tasks import UserError


def option(default, text: str, **more):
    """A field of `Options` with its line of --help."""
    kind = "default_factory" if callable(default) else "default"
    return field(**{kind: default}, metadata={"help": text, **more})


@dataclass
class Options:
    """All there is to set. Defaults are those of the tiny cohort."""

    preset: str | None = option(
        None,
        "a set of defaults, which any option given beside it overrides: qwen = two small Qwen models on one 24 GB GPU",
        choices=["qwen"],
    )
    method: str = option(
        "corl", "reward: " + "; ".join(f"{name} = {m.formula}" for name, m in REWARDS.items()), choices=list(REWARDS)
    )
    compare: list[str] | None = option(
        None,
        "train the same starting weights once with each of these methods, from the same pool of problems and with the same "
        "seeds; each may write --prompts x --k texts in a step, so one that writes more of them for a question (both forms, a "
        "teacher's, judges', --votes) gets fewer questions",
        choices=list(REWARDS),
    )
    seeds: list[int] | None = option(None, "with --compare: one comparison for each seed (default: --seed alone)")

    models: list[str] | None = option(
        None, "one Hugging Face causal LM for each agent, hub name or folder; without it, the embedded tiny models"
    )
    agents: int | None = option(
        None, "how many agents stand on the ring; agent n is graded by agent n-1 (default: 2, or one for each of --models)"
    )
    data: str = option(
        "tiny",
        "problems: tiny, sums, gsm8k, math500, hub:NAME, or a .jsonl / .json file with question and answer fields",
    )
    topics: list[str] | None = option(
        None, "tiny world: only these topics (carry borrow product precedence bracket fraction)"
    )
    strengths: list[float] | None = option(
        None,
        "tiny world: how often an agent uses the right method, in its strong topics and in its weak ones (0.88 0.42)",
    )
    cohort: str = option(
        "complementary",
        "tiny world, what tells B from A: same = nothing; seed = its warm start drew other texts; errors = it makes other "
        "mistakes; complementary = it is strong where A is weak; different = both of these; rephrased = it is strong where A "
        "is weak, but only if it reads the rephrased questions (--rephrase B)",
        choices=list(tinyworld.KINDS),
    )
    answer: str | None = option(
        None,
        "how an answer is read: boxed = the last \\boxed{}, number = the last number (default: boxed, but number for tiny, "
        "sums and gsm8k)",
        choices=["boxed", "number"],
    )
    rephrase: list[str] | None = option(
        None, "names of the agents (A B ...) that read the rephrased question, where a problem has one"
    )
    system: str | None = option(None, "system text of every prompt")
    stop: str | None = option(
        None, "text that ends a completion besides the end token; base models need one, such as $'\\n'"
    )

    steps: int = option(100, "training steps")
    prompts: int = option(24, "questions in a step (P)")
    k: int = option(8, "rollouts of each question that are trained on (K)")
    votes: int | None = option(
        None, "rollouts of each question that vote for its label; the first K of them are trained on (default: K)"
    )
    max_new_tokens: int = option(40, "longest completion; one that does not end in time has no answer")
    temperature: float = option(1.0, "sampling temperature, also that of every log-prob")

    lr: float = option(
        1e-4, "AdamW's learning rate; no weight decay (about 1e-6 to 1e-5 for real models, 1e-3 for small LoRA ranks)"
    )
    lrs: list[float] | None = option(
        None, "one learning rate for each agent: models of different families can differ tenfold in what they bear"
    )
    epochs: int = option(1, "passes over the rollouts of a step; clipping can act from the second on")
    clip: float = option(0.2, "delta: the ratio is clipped to 1 - delta .. 1 + delta")
    max_grad_norm: float = option(1.0, "the gradient's norm is clipped to this")
    beta: float = option(0.0, "weight of the KL term against the starting policy")
    average: str = option(
        "sequence",
        "weight of a token in the loss: sequence = 1/|y| (the paper), token = equal, constant = 1/max_new_tokens (Dr. GRPO)",
        choices=["sequence", "token", "constant"],
    )
    scale: bool = option(True, "divide advantages by the group's std; --no-scale is Dr. GRPO")
    micro_batch: int = option(8, "groups in memory at a time while learning; changes memory, not the gradient")

    eval_every: int = option(10, "steps between evaluations on held-out problems; 0 = before and after only")
    eval_problems: int = option(120, "held-out problems (the tiny world: split evenly over its topics)")
    eval_k: int = option(8, "samples of each")

    lora_rank: int = option(
        0, "train LoRA adapters of this rank over frozen bases instead of all weights; 0 = all weights"
    )
    lora_alpha: float = option(16.0, "scale of the adapters: their product counts alpha / rank")
    lora_targets: list[str] | None = option(
        None, "layers that get an adapter, by name or ending (default: all linear layers of the blocks)"
    )
    checkpointing: bool = option(False, "recompute activations while learning: less memory, more time")

    seed: int = option(0, "decides every draw")
    device: str = option("auto", "auto (cuda where there is one, else cpu), cpu, cuda, mps, ...")
    dtype: str = option(
        "float32",
        "of the model's weights; bfloat16 goes with LoRA, whose adapters are float32",
        choices=["float32", "bfloat16"],
    )
    out: str = option("runs", "where run folders go")
    name: str | None = option(None, "name of the run's folder; it must not exist yet (default: the next free number)")
    save_every: int = option(0, "steps between checkpoints, the last two are kept; 0 = only at the end, -1 = never")
    resume: str | None = option(None, "folder of a run, or of a comparison, to continue")

    def __post_init__(self):
        if self.agents is None:
            self.agents = len(self.models) if self.models else 2


PRESETS = {
    "qwen": dict(
        models=["Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen3-0.6B"],
        data="gsm8k",
        answer="boxed",
        dtype="bfloat16",
        system="Please reason step by step, and put your final answer within \\boxed{}.",
        prompts=16,
        k=8,
        max_new_tokens=512,
        lora_rank=16,
        lora_alpha=32.0,
        lr=2e-5,
        micro_batch=1,
        checkpointing=True,
        eval_every=25,
        eval_problems=100,
        eval_k=4,
        save_every=25,
    ),
}


def check(o: Options) -> None:
    """Whatever can be told before anything is loaded. Raises UserError."""
    check_numbers(o)
    check_world(o)
    check_run(o)
    for name in o.compare or [o.method]:
        check_method(o, name)
    methods = o.compare or [o.method]
    if o.votes and not any(REWARDS[name].by_vote for name in methods):
        raise UserError(f"--votes: none of the methods takes a vote ({', '.join(methods)}); leave it out")


LEAST = {
    "agents": 1,
    "steps": 1,
    "prompts": 1,
    "k": 2,
    "max_new_tokens": 1,
    "epochs": 1,
    "micro_batch": 1,
    "eval_k": 1,
    "eval_problems": 1,
    "eval_every": 0,
    "lora_rank": 0,
    "save_every": -1,
}


def at_least(o, least: dict[str, int]) -> None:
    """Refuse options below their least value. One that was not given, and is None, passes."""
    for name, value in least.items():
        if getattr(o, name) is not None and getattr(o, name) < value:
            why = "; a group of one has nothing to be compared with" if name in ("k", "n") and value == 2 else ""
            raise UserError(f"{flag(name)} must be at least {value}{why}")


def above_zero(o, names: Sequence[str]) -> None:
    """Refuse options that are not finite numbers above 0."""
    for name in names:
        if not 0 < getattr(o, name) < math.inf:
            raise UserError(f"{flag(name)} must be a number above 0")


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that repeat, and those that would share their draws with another one (`runs.generator`)."""
    if not all(0 <= seed < 2**32 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise UserError("--seed and --seeds take different numbers of at least 0 and below 2**32")


def check_numbers(o: Options) -> None:
    """Numbers that are out of range."""
    at_least(o, LEAST)
    above_zero(o, ["temperature", "lr", "clip", "max_grad_norm"])
    if o.lrs and (len(o.lrs) != o.agents or not all(0 < lr < math.inf for lr in o.lrs)):
        raise UserError(f"--lrs takes {o.agents} numbers above 0, one for each agent")
    check_seeds([o.seed])
    check_seeds(o.seeds or [])
    if not 0 <= o.beta < math.inf or not math.isfinite(o.lora_alpha):
        raise UserError("--beta must be a number of at least 0, --lora-alpha a number")
    if o.votes is not None and o.votes < o.k:
        raise UserError(f"--votes {o.votes} is less than --k {o.k}: the rollouts that are trained on vote too")


def check_world(o: Options) -> None:
    """Models, data and agents that do not go together."""
    if o.models and o.agents != len(o.models):
        raise UserError(f"--agents {o.agents}, but --models names {len(o.models)}, one for each agent: leave --agents out")
    if o.dtype != "float32" and not o.models:
        raise UserError("--dtype belongs to real models: the tiny ones are float32")
    if o.dtype == "bfloat16" and not o.lora_rank:
        raise UserError("--dtype bfloat16 needs --lora-rank: most steps of AdamW are too small to change a bfloat16 weight")
    if o.lora_targets and not o.lora_rank:
        raise UserError("--lora-targets names the layers that get an adapter: give --lora-rank, or leave it out")
    if o.checkpointing and not o.lora_rank and not o.models:
        raise UserError("--checkpointing goes with --lora-rank, or with real models")
    if o.data == "tiny" and o.max_new_tokens > 200:
        raise UserError("--max-new-tokens: the tiny models read 256 tokens in all, so at most 200 new ones (their texts take 40)")
    if o.topics and o.data != "tiny":
        raise UserError("--topics belongs to the tiny world (--data tiny)")
    if (o.models is None) != (o.data == "tiny"):
        raise UserError(
            "the tiny models solve the tiny world, and real models real problems: give --models and --data together"
        )
    if o.strengths and (o.models or len(o.strengths) != 2 or not all(0 < p < 1 for p in o.strengths)):
        raise UserError("--strengths takes two shares between 0 and 1, strong and weak, in the tiny world")
    if o.cohort != "complementary" and (o.models or o.agents != 2):
        raise UserError(f"--cohort {o.cohort} is for the two agents of the tiny world: leave --models and --agents out")
    for name in o.rephrase or ():
        if name not in agent_names(o.agents):
            raise UserError(f"--rephrase {name}: the agents are {' '.join(agent_names(o.agents))}")


def check_run(o: Options) -> None:
    """Folders and lists of runs."""
    if not o.resume:
        runs.check_name(o.out, o.name)
    if len(set(o.compare or ())) < len(o.compare or ()):
        raise UserError("--compare names a method twice")
    if o.compare and o.method != "corl":
        raise UserError("--method is for one run; --compare names its methods itself")
    if o.stop == "":
        raise UserError("--stop needs a text")
    if o.seeds and not o.compare:
        raise UserError("--seeds goes with --compare; for one run say --seed")


def check_method(o: Options, name: str) -> None:
    """What a method needs and the options do not give; what its data and models must have is checked when they are read."""
    method = REWARDS[name]
    if o.agents < method.min_agents:
        raise UserError(f"method {name} needs at least {method.min_agents} agents, and there is {o.agents}")
    if method.needs_rephrased and o.rephrase:
        raise UserError(f"method {name} lets every agent read both forms of a question: leave --rephrase out")
    if method.needs_chat and not o.models:
        raise UserError(
            f"method {name} needs chat models, which judge a solution when asked; the tiny ones know nothing but sums: "
            "give --models and --data"
        )
    if method.needs_chat and o.stop:
        raise UserError(f"--stop ends a judge's text too, before its score: leave it out with method {name}")


def flag(name: str) -> str:
    """A field of Options as it is typed: max_new_tokens -> --max-new-tokens."""
    return f"--{name.replace('_', '-')}"


def agent_names(n: int) -> list[str]:
    """A, B, C, ... in ring order."""
    return [chr(ord("A") + i) if n <= 26 else f"agent{i}" for i in range(n)]


def parse(arguments: Sequence[str] | None, description: str, kind=Options):
    """Options, of the dataclass `kind`, from the command line; those of a resumed run come from its config.json."""
    parser = HfArgumentParser(kind, description=description, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.error = refuse
    for action in parser._actions:
        show_plainly(action)
    given = parser.parse_args(arguments)
    typed = what_was_typed(parser, arguments)
    if "lr" in typed and "lrs" in typed:
        raise UserError("--lr is for all agents, --lrs for each: give one of them")
    if given.resume is not None:
        return resumed(given.resume, typed, kind)
    return kind(**(vars(given) | PRESETS.get(getattr(given, "preset", None), {}) | typed))


def show_plainly(action: argparse.Action) -> None:
    """In --help: `--eval-every N`, not `--eval_every EVAL_EVERY, --eval-every EVAL_EVERY`. Both can still be typed."""
    action.option_strings = [text for text in action.option_strings if "_" not in text]
    if action.option_strings[0].startswith("--no-"):
        action.help = f"turn off {action.option_strings[0].replace('--no-', '--')}"
    elif all(action.default is not no for no in (None, False, argparse.SUPPRESS)) and "default" not in action.help:
        action.help += f" (default: {action.default})"
    kinds = {int: "N", float: "X", str: "TEXT"}
    if action.nargs != 0 and not (action.choices and action.nargs is None):
        action.metavar = kinds.get(action.type, "yes|no")


def refuse(message: str) -> None:
    """argparse's own complaint as one line, without the whole list of options before it."""
    raise UserError(f"{message} (--help lists all options)")


def what_was_typed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> dict:
    """The options on the command line without any default, so that a typed default is told from one that was not typed."""
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return vars(parser.parse_args(arguments))


def resumed(folder: str, typed: dict, kind=Options):
    """The options of the run to continue. What would change what is computed is refused by name."""
    saved = runs.read_json(Path(folder) / "config.json")
    known = {f.name for f in dataclasses.fields(kind)}
    free = [name for name in ("resume", "save_every", "device", "drafts_shown") if name in known]
    if not runs.is_comparison(saved):  # the runs of a comparison stay comparable
        free.append("steps")
    for name, value in typed.items():
        if name not in free and value != saved.get(name):
            raise UserError(
                f"{flag(name)} was {saved.get(name)} in {folder} and cannot change on --resume "
                f"(only {', '.join(flag(name) for name in free[1:])} can)"
            )
    teacher = saved.get("method") in REWARDS and REWARDS[saved["method"]].needs_teacher
    if teacher and typed.get("steps", saved.get("steps")) != saved.get("steps"):
        raise UserError(f"--steps was {saved.get('steps')} in {folder} and cannot change: the teacher slows down over them")
    if not known <= saved.keys():
        lacks = f"{folder}/config.json lacks {min(known - saved.keys())}"
        raise UserError(f"{lacks}: another command wrote it (cohort.py, agon.py), or another version of Cohort")
    return kind(**({name: value for name, value in saved.items() if name in known} | typed))
