"""How commands are spelled: a dataclass of options for each, and what is refused before anything is loaded.

An option is `name: kind = default  # its line of --help`. A kind bounds its values: Count is at least 1, Group 2, Whole 0, Above
a number above 0, Seed a number that no other seed's draws share (`runs.generator`). What does not go together is a row of
a command's RULES: (when it is wrong, what to do).
"""

import argparse
import dataclasses
import importlib.util
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

from lab import code, runs
from lab.data import WORLDS, UserError, answer_style
from lab.extract import STYLES
from lab.methods import hooks_of
from rewards import REWARDS

Whole, Count, Group, Saves = (
    Annotated[int, (f"at least {n} and at most a billion", lambda x, n=n: n <= x <= 10**9)] for n in (0, 1, 2, -1)
)
Seed = Annotated[int, ("at least 0 and below 2**32", lambda x: 0 <= x < 2**32)]
Above = Annotated[float, ("a number above 0, and below 1e30", lambda x: 0 < x < 1e30)]  # what float32 can hold
NotBelow0 = Annotated[float, ("a number of at least 0, and below 1e30", lambda x: 0 <= x < 1e30)]
Answer, Dtype = Literal[tuple(STYLES)], Literal["float32", "bfloat16"]
Rule = tuple[Callable[..., bool], str]


@dataclass
class Sampling:
    """What every command that samples can be told."""

    # problems: tiny, eyes (pictures), tinycode (programs), sums, products, gsm8k, math500, hub:NAME, or a .jsonl / .json file
    data: str = "tiny"
    # read from the last \boxed{}, the last number, the letter of a choice, or a program, which is run on the problem's tests
    # (default: boxed; tiny, eyes, sums, products, gsm8k: number; tinycode: code)
    answer: Answer | None = None
    system: str | None = None  # system text of every prompt
    stop: str | None = None  # text that ends a completion besides the end token; base models need one, such as $'\n'
    max_new_tokens: Count = 40  # longest completion; one that does not end in time has no answer
    thinking: bool = False  # private reasoning first, where the chat template knows the switch
    temperature: Above = 1.0  # sampling temperature, also that of every log-prob
    seed: Seed = 0  # decides every draw
    device: str = "auto"  # auto (cuda where there is one, else cpu), cpu, cuda, mps, ...
    unsafe_code: bool = False  # run programs that a model writes with all your rights, where there is no sandbox for them
    dtype: Dtype = "float32"  # of the model's weights; bfloat16 goes with LoRA, whose adapters are float32


@dataclass
class Training(Sampling):
    """What every command that trains can be told."""

    steps: Count = 100  # training steps
    prompts: Count = 24  # questions in a step (P)
    lr: Above = 1e-4  # AdamW's learning rate; no weight decay (about 1e-6 to 1e-5 for real models, 1e-3 for small LoRA ranks)
    max_grad_norm: Above = 1.0  # the gradient's norm is clipped to this
    micro_batch: Count = 8  # groups in memory at a time while learning; changes memory, not the gradient
    checkpointing: bool = False  # recompute activations while learning: less memory, more time
    eval_every: Whole = 10  # steps between evaluations on held-out problems; 0 = before and after only
    eval_problems: Count = 120  # held-out problems (the tiny world: split evenly over its topics)
    eval_k: Count = 8  # samples of each
    eval_data: list[str] | None = None  # other problems to be measured on too, named as --data is: what has not been trained on
    seeds: list[Seed] | None = None  # one comparison for each seed (default: --seed alone)
    out: str = "runs"  # where run folders go
    name: str | None = None  # name of the run's folder; it must not exist yet (default: the next free number)
    samples: Whole = 0  # steps between completions that are shown; 0 = after the first and the last step only
    log: Literal["wandb", "tensorboard"] | None = None  # send the metrics there too, if that package is installed
    save_every: Saves = 0  # steps between checkpoints, the last two are kept; 0 = only at the end, -1 = never
    resume: str | None = None  # folder of a run, or of a comparison, to continue


PRESETS = {
    "qwen": dict(
        models=["Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen3-0.6B"], data="gsm8k", answer="boxed", dtype="bfloat16",
        system="Please reason step by step, and put your final answer within \\boxed{}.", prompts=16, k=8, max_new_tokens=512,
        lora_rank=16, lora_alpha=32.0, lr=2e-5, micro_batch=1, checkpointing=True, eval_every=25, eval_problems=100, eval_k=4,
        save_every=25,
    ),
}  # fmt: skip
GROUPS = {  # of --help, in this order; what is named nowhere comes last
    "what matters first": "method methods compare models model agents data steps prompts k n lr seed out resume",
    "what is trained": "preset cohort strengths start b_std rank alpha lora_rank lora_alpha lora_targets device dtype",
    "on what": "compare_agents topics rephrase system answer unsafe_code stop thinking eval_data eval_problems eval_k eval_every",
    "how": "votes max_new_tokens temperature engine lrs epochs clip beta average scale format tiebreak max_grad_norm micro_batch"
           " checkpointing",
    "where to, and what is shown": "seeds name save_every samples log solve question",
}  # fmt: skip
TRAINING: list[Rule] = [
    (lambda o: o.log and not importlib.util.find_spec(o.log), "--log {log} needs a package that is missing: pip install {log}"),
    (lambda o: o.stop == "", "--stop needs a text"),
    (lambda o: o.eval_data and o.data in WORLDS, "--eval-data belongs to real models: the tiny ones know no other problems"),
    (lambda o: len({*(o.eval_data or ()), o.data}) <= len(o.eval_data or ()), "--eval-data names sources once, and not --data"),
    (lambda o: len(set(o.seeds or ())) < len(o.seeds or ()), "--seeds takes different numbers"),
]
RULES: list[Rule] = [
    *TRAINING,
    (lambda o: o.lrs and len(o.lrs) != o.agents, "--lrs takes {agents} numbers, one for each agent"),
    (lambda o: o.votes and o.votes < o.k, "--votes {votes} is less than --k {k}: the rollouts that are trained on vote too"),
    (lambda o: o.models and o.agents != len(o.models),
     "--agents {agents}, but --models names another number, one for each agent: leave --agents out"),
    (lambda o: o.dtype != "float32" and not o.models, "--dtype belongs to real models: the tiny ones are float32"),
    (lambda o: o.dtype == "bfloat16" and not o.lora_rank,
     "--dtype bfloat16 needs --lora-rank: most steps of AdamW are too small to change a bfloat16 weight"),
    (lambda o: o.lora_rank > 4096, "--lora-rank is at most 4096: a larger adapter has more weights than its layer"),
    (lambda o: o.lora_targets and not o.lora_rank,
     "--lora-targets names the layers that get an adapter: give --lora-rank, or leave it out"),
    (lambda o: o.lora_alpha != 16 and not o.lora_rank, "--lora-alpha scales the adapters: give --lora-rank, or leave it out"),
    (lambda o: o.engine and (not o.models or not 0 < o.lora_rank <= 512 or o.compare),
     "--engine vllm writes in one run of real models with adapters: give --models and --lora-rank (at most 512), not --compare"),
    (lambda o: o.engine and not importlib.util.find_spec("vllm"),
     "--engine vllm needs a package that is missing: pip install -r requirements-vllm.txt"),
    (lambda o: o.clip != 0.2 and o.epochs == 1, "--clip acts from the second epoch on: give --epochs, or leave it out"),
    (lambda o: not o.models and (o.system is not None or o.answer or o.stop or o.thinking),
     "--system, --answer, --stop and --thinking belong to real models: give --models and --data"),
    (lambda o: len(set(o.topics or ())) < len(o.topics or ()), "--topics names a topic twice"),
    (lambda o: o.checkpointing and not o.lora_rank and not o.models, "--checkpointing goes with --lora-rank or real models"),
    (lambda o: o.data in WORLDS and o.max_new_tokens > 200,
     "--max-new-tokens: the tiny models read 256 tokens in all, so at most 200 new ones (their texts take 40)"),
    (lambda o: o.topics and o.data not in WORLDS, "--topics belongs to the tiny worlds (--data tiny, eyes or tinycode)"),
    (lambda o: (o.models is None) != (o.data in WORLDS),
     "the tiny models solve the tiny worlds, and real models real problems: give --models and --data together"),
    (lambda o: o.strengths and (o.models or len(o.strengths) != 2 or not all(0 < p < 1 for p in o.strengths)),
     "--strengths takes two shares between 0 and 1, strong and weak, in the tiny world"),
    (lambda o: o.cohort != "complementary" and (o.models or o.agents != 2 or o.data != "tiny"),
     "--cohort {cohort} is for the two agents of the tiny world: leave --models, --agents and --data out"),
    (lambda o: set(o.rephrase or ()) - set(agent_names(o.agents)), "--rephrase {rephrase}: there are {agents} agents, A, B, ..."),
    (lambda o: len(set(o.compare or ())) < len(o.compare or ()), "--compare names a method twice"),
    (lambda o: o.compare_agents and (o.lrs or len(o.compare_agents) != len(o.compare or ())),
     "--compare-agents takes a number for each method of --compare, and one --lr for all"),
    (lambda o: o.compare_agents and o.cohort != "complementary", "--compare-agents: --cohort {cohort} is for two agents"),
    (lambda o: o.compare and o.method != "corl", "--method is for one run; --compare names its methods itself"),
    (lambda o: o.seeds and not o.compare, "--seeds goes with --compare; for one run say --seed"),
    (lambda o: o.votes and not any(REWARDS[name].by_vote for name in o.compare or [o.method]),
     "--votes: no method here takes a vote; leave it out"),
]  # fmt: skip
METHOD_RULES = [  # of each method; what its data and models must have is checked when they are read
    (lambda o, m: o.agents < REWARDS[m].min_agents, "needs a peer: give more than {agents} agents"),
    (lambda o, m: hooks_of(m).needs_rephrased and o.rephrase, "asks every question in both forms: leave --rephrase out"),
    (lambda o, m: hooks_of(m).needs_chat and not o.models,
     "needs chat models, which judge a solution when asked; the tiny ones know their own world only: give --models and --data"),
    (lambda o, m: hooks_of(m).needs_chat and o.stop, "has judges, whose text --stop ends too, before its score: leave it out"),
]  # fmt: skip


def bounds(hint) -> list[tuple[str, Callable]]:
    """(what a value must be, the test of it) for a kind, and for what it is made of: list[Above] | None."""
    return [*getattr(hint, "__metadata__", ()), *(bound for part in get_args(hint) for bound in bounds(part))]


def of_kind(value, hint) -> bool:
    """Whether a value that JSON gave is one that the command line could give: an int | None, a list of names."""
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) is list:
        return isinstance(value, list) and all(of_kind(one, get_args(hint)[0]) for one in value)
    if get_args(hint):  # of a union
        return any(of_kind(value, part) for part in get_args(hint))
    return type(value) in ((int, float) if hint is float else (hint,))


def check_values(kind, values: dict) -> None:
    """UserError for the first option whose value is not of its kind, or out of its bounds."""
    plain, hints = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    for name in hints:
        given = values[name]
        if not of_kind(given, plain[name]):
            raise UserError(f"{flag(name)} cannot be {given!r:.60}")
        for (must, holds), value in itertools.product(bounds(hints[name]), given if isinstance(given, list) else [given]):
            if value is not None and not holds(value):
                raise UserError(f"{flag(name)} must be {must}")


def check(o, rules: Sequence[Rule], of_each_method: Sequence[Rule] = ()) -> None:
    """Refuse what can be refused before anything is loaded: values out of bounds, and options that do not go together."""
    check_values(type(o), vars(o))
    given = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in vars(o).items()}
    for wrong, says in rules:
        if wrong(o):
            raise UserError(says.format(**given))
    for name in (o.compare or [o.method]) if of_each_method else ():
        for wrong, says in of_each_method:
            if wrong(o, name):
                raise UserError(f"method {name} {says.format(**given)}")
    if isinstance(o, Training) and not o.resume:
        runs.check_name(o.out, o.name)


def above_0(text: str) -> int:
    """A whole number from 1, as argparse reads one: of the benchmarks, which have no dataclass of options."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return int(text)


def flag(name: str) -> str:
    """A field of Options as it is typed: max_new_tokens -> --max-new-tokens."""
    return f"--{name.replace('_', '-')}"


def agent_names(n: int) -> list[str]:
    """A, B, C, ... in ring order."""
    return [chr(ord("A") + i) if n <= 26 else f"agent{i}" for i in range(n)]


def parse(arguments: Sequence[str] | None, description: str, kind):
    """Options, of the dataclass `kind`, from the command line; those of a resumed run come from its config.json."""
    table = getattr(kind, "TABLE", {})
    rows = [f"  {name:<{max(map(len, table))}}  {text}" for name, text in table.items()]
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False, argument_default=argparse.SUPPRESS,
                                     epilog="\n".join(["methods:", *rows] if rows else []))  # fmt: skip
    parser.error = refuse
    says, hints = option_help(kind), get_type_hints(kind)
    groups = {title: (parser.add_argument_group(title), names.split()) for title, names in GROUPS.items()}
    place = {name: (group, names.index(name)) for group, names in groups.values() for name in names}
    for f in sorted(dataclasses.fields(kind), key=lambda f: place.get(f.name, (None, 0))[1]):
        group = place.get(f.name, (parser, 0))[0] if f.default is not dataclasses.MISSING else parser
        one = next(t for t in (get_args(hints[f.name]) if type(None) in get_args(hints[f.name]) else [hints[f.name]]))
        many, one = get_origin(one) is list, get_args(one)[0] if get_origin(one) is list else one
        name = f.name if f.default is dataclasses.MISSING else flag(f.name)  # what has no default is typed without a flag
        silent = "default" in says[f.name] or any(f.default is no for no in (None, False, dataclasses.MISSING))
        default = "" if silent else f" (default: {f.default})"
        told = {"help": (says[f.name] + default).replace("%", "%%") if says[f.name] else argparse.SUPPRESS}
        if one is bool:
            group.add_argument(name, action=argparse.BooleanOptionalAction, **told)
            continue
        choices = get_args(one) if get_origin(one) is Literal else None
        kind_of = str if choices else one
        told |= {"metavar": {int: "N", float: "X", str: "TEXT"}[kind_of]} if not choices or many else {}
        group.add_argument(name, type=kind_of, choices=choices, nargs="+" if many else None, **told)
    typed = vars(parser.parse_args(arguments))
    if "lr" in typed and "lrs" in typed:
        raise UserError("--lr is for all agents, --lrs for each: give one of them")
    if typed.get("resume") is not None:
        return resumed(typed["resume"], typed, kind)
    return kind(**PRESETS.get(typed.get("preset"), {}) | typed)


def command(name: str, arguments: Sequence[str] | None, about: str, kind, rules: Sequence[Rule], act: Callable, left: str,
            lower="--k or --max-new-tokens, or give --dtype bfloat16", of_each_method: Sequence[Rule] = ()) -> int:  # fmt: skip
    """A command from its words to its exit code: parse, check, act. See `runs.command` for `left` and `lower`."""

    def parsed() -> int:
        runs.typed = ["python", name, *(sys.argv[1:] if arguments is None else arguments)]
        o = parse(arguments, about, kind)
        check(o, rules, of_each_method)
        code.unsafe = getattr(o, "unsafe_code", False)
        if "code" in (getattr(o, "answer", None), answer_style(getattr(o, "data", None) or "")):
            code.sandbox()  # or else it says so now
        return act(o)

    return runs.command(name, parsed, left, lower)


def option_help(kind) -> dict[str, str]:
    """The comment behind each field, or in the lines above it."""
    found = {}
    for base in reversed(kind.__mro__[:-1]):
        comments = re.findall(r"((?:^    # .*\n)*)^    (\w+): [^#\n]*(?:  # (.*))?$", inspect.getsource(base), re.M)
        for above, name, behind in comments:
            found[name] = behind or " ".join(re.sub(r" *# ", " ", above).split()) or found.get(name, "")
    return found


def refuse(message: str) -> None:
    """argparse's own complaint as one line, without the whole list of options before it."""
    raise UserError(f"{message} (--help lists all options)")


def resumed(folder: str, typed: dict, kind):
    """The options of the run to continue. What would change what is computed is refused by name."""
    saved, known = runs.read_json(Path(folder) / "config.json"), {f.name for f in dataclasses.fields(kind)}
    if known <= saved.keys():
        try:
            check_values(kind, saved)
        except UserError as error:
            raise UserError(f"{folder}/config.json: {error}") from None
    free = ["save_every", "device", "samples", "log", "unsafe_code"]
    teacher = str(saved.get("method")) in REWARDS and hooks_of(saved["method"]).needs_teacher  # it slows down over the steps
    if not runs.is_comparison(saved) and not teacher:  # the runs of a comparison stay comparable
        free.append("steps")
    for name, value in typed.items():
        if name not in ("resume", *free) and value != saved.get(name):
            raise UserError(f"{flag(name)} was {saved.get(name)} in {folder} and cannot change on --resume "
                            f"(only {', '.join(map(flag, free))} can)")  # fmt: skip
    if not known <= saved.keys():
        lacks = f"{folder}/config.json lacks {min(known - saved.keys())}"
        raise UserError(f"{lacks}: another command wrote it (cohort.py, agon.py), or another version of Cohort")
    return kind(**({name: value for name, value in saved.items() if name in known} | typed))
