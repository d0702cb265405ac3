"""Co-RL: a cohort of language models teaches itself to reason, without labels; and the other methods of `rewards.REWARDS`.

One step of Co-RL (Yang et al., "Co-RL", Section 3):
  1. every agent samples K answers to each question of a batch;
  2. the majority answer of agent n-1 becomes the label for agent n (a directed ring: peer votes, never one's own);
  3. each rollout earns 1 where it equals that label, else 0, and each agent takes one GRPO step on its own rollouts.
Nothing else is shared: no weights, no gradients. Exchange the reward function (`rewards.REWARDS`) and the same loop is TTRL
(own votes), training on ground truth, and the rest. The step itself is `step.py`; here are the run and the comparison around it.

Departures from the paper: a tie gives no label; agents may share one frozen base through LoRA adapters; the default cohort is two
tiny transformers with complementary misconceptions (`tinyworld.py`), which no paper has, to be watched on a laptop.

    python cohort.py                                       # the tiny cohort, one to two minutes
    python cohort.py --compare corl ttrl gt --seeds 0 1 2  # the same starts under three rewards
    python cohort.py --models A B --data gsm8k             # any two causal language models
"""

import copy
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import lora
import memory
import report
import runs
import tinyworld
from grpo import Agent, end_tokens, tokens_with
from judges import INSTRUCTIONS, need_chat
from options import Options, agent_names, check, parse
from rewards import REWARDS
from step import assess, train_step
from tasks import Problem, UserError, answer_style, need_rephrased
from teachers import make_teachers, teacher_name

# ---------------------------------------------------------------- the cohort and its problems


def load(o: Options, device: torch.device) -> list[tuple]:
    """The (model, tokenizer) of each agent, loaded or warmed up."""
    if o.models is None:
        settings = tinyworld.WarmStart(seed=o.seed, kind=o.cohort)
        if o.strengths:
            settings = dataclasses.replace(settings, strong=o.strengths[0], weak=o.strengths[1])
        return [(model.to(device).eval(), tokenizer) for model, tokenizer in tinyworld.cohort(o.agents, settings=settings)]
    if o.lora_rank:
        bases = {source: runs.load_model(source, device, o.dtype) for source in dict.fromkeys(o.models)}
        return [bases[source] for source in o.models]  # agents of one model share its base
    return [runs.load_model(source, device, o.dtype) for source in o.models]


def make_agents(o: Options) -> list[Agent]:
    """The cohort at its start: models loaded (or warmed up), adapters put on, one optimizer each."""
    device = runs.pick_device(o.device)
    loaded = load(o, device)
    style = o.answer or answer_style(o.data)
    names = agent_names(len(loaded))
    agents = [
        Agent(name, model, tokenizer, answer=style, system=o.system, stop=o.stop, rephrase=name in (o.rephrase or ()))
        for name, (model, tokenizer) in zip(names, loaded, strict=True)
    ]
    for model in {id(a.model): a.model for a in agents}.values():
        sharing = [agent for agent in agents if agent.model is model]
        if o.lora_rank:
            names = [agent.name for agent in sharing]
            if REWARDS[o.method].needs_teacher:
                names += [teacher_name(name) for name in names]
            lora.inject(model, o.lora_rank, o.lora_alpha, adapters=names, targets=o.lora_targets, seed=o.seed)
        if o.checkpointing:
            lora.checkpointing(model)
        for agent in sharing:
            agent.adapter = agent.name if o.lora_rank else None
            agent.checkpointing = o.checkpointing
            if o.beta and not o.lora_rank:
                agent.reference = copy.deepcopy(model).requires_grad_(False)
            fused = device.type in ("cpu", "cuda")
            lr = o.lrs[agents.index(agent)] if o.lrs else o.lr
            agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=lr, weight_decay=0.0, fused=fused)
    return agents


def make_cohort(o: Options, methods: Sequence[str] | None = None) -> tuple[list[Agent], list[Agent]]:
    """The agents and, where the method has them, their teachers. Refuses models that one of `methods` cannot use.

    And those whose completions could not end: whatever can be refused is, before anything is written.
    """
    agents = make_agents(o)
    for agent in agents:
        end_tokens(agent.model, agent.tokenizer)
        if o.stop:
            tokens_with(agent.tokenizer, o.stop)
    for name in methods or [o.method]:
        if REWARDS[name].needs_chat:
            need_chat(agents, name)
    return agents, make_teachers(agents) if REWARDS[o.method].needs_teacher else []


def read_data(o: Options) -> tuple[list[Problem], list[Problem]]:
    """The problems to train on, the same for every method of a comparison, and those held out (`runs.read_data`)."""
    train, test = runs.read_data(o.data, o.eval_problems, o.topics)
    if o.data == "tiny":
        return train, test  # it has answers and rephrased forms of all its problems
    if o.rephrase:
        need_rephrased(train, o.data, "--rephrase")
    for name in sharing_problems(o):
        if REWARDS[name].needs_labels and not all(p.answer for p in train):
            raise UserError(
                f"method {name} needs a reference answer for every problem of {o.data}; corl and ttrl need none"
            )
        if REWARDS[name].needs_rephrased:
            kept = need_rephrased(train, o.data, f"method {name}")
            if len(kept) < len(train):
                left_out = f"{len(train) - len(kept)} of {len(train)} problems to train on"
                print(f"left out {left_out}: {name} needs a rephrased form, and they have none", file=sys.stderr)
            train = kept
    return train, test


def sharing_problems(o: Options) -> list[str]:
    """The methods that share the run's problems: those of --compare, of the comparison that a resumed run is of, or its own."""
    saved = runs.read_json(Path(o.resume) / "config.json") if o.resume else {}
    return o.compare or saved.get("compared") or [o.method]


def batches(
    o: Options, agents: Sequence[Agent], train: list[Problem], methods: Sequence[str]
) -> Callable[[int], list[Problem]]:
    """The questions of step s, as a function of s alone, out of those that fit the context under every one of `methods`."""
    if o.data == "tiny":
        return lambda step: tinyworld.problems(o.topics, o.prompts, seed=(o.seed << 20) + step)
    readers, room = list(agents), o.max_new_tokens
    if any(REWARDS[name].needs_rephrased for name in methods):
        readers += [dataclasses.replace(agent, rephrase=True) for agent in agents]
    if any(REWARDS[name].needs_chat for name in methods):  # the longest prompt of a judge holds a solution and an evaluation
        room = 3 * o.max_new_tokens + INSTRUCTIONS
    train = runs.fitting(train, readers, room)
    return lambda step: [train[i] for i in runs.positions(len(train), o.prompts, step, o.seed)]


# ---------------------------------------------------------------- a run


def load_work(o: Options, data: tuple[list[Problem], list[Problem]], methods: Sequence[str]) -> runs.Work:
    """One method on one cohort, ready to be trained; `methods` are those that share its problems."""
    agents, teachers = make_cohort(o, methods)
    batch, test = batches(o, agents, data[0], methods), runs.fitting(data[1], agents, o.max_new_tokens)
    need = memory.estimate([*agents, *teachers], memory.at_a_time(o))
    if o.models:
        print(need)
    per_topic = [sum(q.topic == topic for q in test) * o.eval_k for topic in {p.topic for p in test}]
    return runs.Work(
        agents=[*agents, *teachers],
        take=lambda step: train_step(agents, batch(step), step, o, teachers),
        measure=lambda step: assess(agents, test, o),
        need=need,
        config={"agent_names": [a.name for a in agents], "compared": list(methods), "probe_samples": min(per_topic, default=0)},
    )


def run(o: Options) -> int:
    """One method on one cohort: load, train, report. Returns the exit code."""
    data = read_data(o)
    folder = runs.single(o, lambda o: load_work(o, data, sharing_problems(o)), o.method, "cohort.py")
    if folder:
        report.finish(folder)
    return 0 if folder else 130


def matched(o: Options, method: str) -> tuple[int, str]:
    """How many questions a step of `method` has, so that it writes as much as one with K texts for each of --prompts.

    And a line that says how much it writes where that does not come out even, else "".
    """
    budget, each = o.prompts * o.k, REWARDS[method].texts(o.k, o.votes)
    prompts = max(1, round(budget / each))
    written = prompts * each
    if written == budget:
        return prompts, ""
    return prompts, (
        f"{method} writes {written} texts in a step ({each} for each of {prompts} questions), {written / budget - 1:+.0%} "
        f"beside the {budget} of --prompts x --k"
    )


def compare(o: Options) -> int:
    """The same starting weights, problems, seeds and budget under each method of --compare; one table and one figure."""
    data, shares = read_data(o), {method: matched(o, method) for method in o.compare}
    if not any(p.answer for p in data[1]):
        raise UserError("--compare needs reference answers to measure by, and these problems have none")

    def alone(method: str, seed: int) -> Options:
        votes = o.votes if REWARDS[method].by_vote else None
        own = {"method": method, "seed": seed, "prompts": shares[method][0], "votes": votes}
        return dataclasses.replace(o, **own, compare=None, seeds=None, resume=None)

    def whole() -> Path:
        folder = runs.create(o.out, o.name, "compare")
        runs.write_json(folder / "config.json", dataclasses.asdict(o))
        print("".join(f"{line}\n" for _, line in shares.values() if line), end="")
        return folder

    def load(one: Options) -> runs.Work:
        return load_work(one, data, o.compare)

    folder = runs.compare(o, o.compare, load, alone, whole, "cohort.py", report.draw_training)
    if folder:
        report.finish(folder)
    return 0 if folder else 130


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""

    def act() -> int:
        o = parse(arguments, __doc__)
        check(o)
        return compare(o) if o.compare else run(o)

    lower = "--prompts, --k or --max-new-tokens, or give --lora-rank 16 --dtype bfloat16 --checkpointing"
    return runs.command("cohort.py", act, "what was saved before is whole", lower)


if __name__ == "__main__":
    sys.exit(main())
