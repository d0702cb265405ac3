"""Co-RL: a cohort of language models teaches itself to reason, without labels; and the other methods of `rewards.REWARDS`.

One step of Co-RL (Yang et al., "Co-RL", Section 3):
  1. every agent samples K answers to each question of a batch;
  2. the majority answer of agent n-1 becomes the label for agent n (a directed ring: peer votes, never one's own);
  3. each rollout earns 1 where it equals that label, else 0, and each agent takes one GRPO step on its own rollouts.
Nothing else is shared: no trained weights, no gradients. Exchange the reward function (`rewards.REWARDS`) and the same loop is
TTRL (own votes), training on ground truth, and the rest.

Departures from the paper: a tie gives no label; the KL term is off unless --beta is given; agents may share one frozen base
through LoRA adapters; the default cohort is two tiny transformers with complementary misconceptions (lab/tinyworld.py), which no
paper has, to be watched on a laptop. The paper's hyper-parameters are not known here: all defaults are ours (docs/papers.md).

    python cohort.py                                       # the tiny cohort, one to two minutes
    python cohort.py --compare corl ttrl gt --seeds 0 1 2  # the same starts under three rewards
    python cohort.py --models A B --data gsm8k             # any two causal language models
"""

import lab  # noqa: F401, I001 (comes first: it says what Ctrl-C does while the rest is imported)
import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from grpo import Agent, Rollouts, group_advantages, group_statistics, sample_cohort, update
from lab import charts, engine, guards, memory, options, report, runs, setup, show, tinyworld
from lab.answers import same_answer
from lab.data import Problem, UserError
from lab.evaluate import Report, evaluate, omega
from lab.methods import Hooks, hooks_of
from lab.options import Above, Count, Group, NotBelow0, Training, Whole
from rewards import REWARDS, majorities


@dataclass
class Options(Training):
    """All there is to set in cohort.py. Defaults are those of the tiny cohort."""

    TABLE = {name: m.formula for name, m in REWARDS.items()}
    # defaults, which explicit options override: two small Qwen models, one 24 GB GPU (ours: the paper's are not known)
    preset: Literal["qwen"] | None = None
    method: Literal[tuple(REWARDS)] = "corl"  # what is paid (default: corl): see the table below
    # train the same starting weights once with each of these methods, from the same pool of problems and with the same seeds;
    # each may write --prompts x --k texts in a step, so one that writes more for a question (both forms, a teacher's, judges',
    # --votes) gets fewer questions
    compare: list[Literal[tuple(REWARDS)]] | None = None
    compare_agents: list[Count] | None = None  # agents of each of these methods, --models repeated (default: --agents for all)
    models: list[str] | None = None  # one Hugging Face causal LM for each agent, hub name or folder; without it, the tiny models
    agents: Count | None = None  # on the ring; agent n is graded by agent n-1 (default: 2, or one for each of --models)
    topics: list[str] | None = None  # tiny world: only these topics (carry borrow product precedence bracket fraction)
    strengths: list[float] | None = None  # tiny world: share of the right method in strong and in weak topics (0.88 0.42)
    # tiny world, what tells B from A: same = nothing; seed = its warm start drew other texts; errors = it makes other mistakes;
    # complementary = it is strong where A is weak; different = both of these; rephrased = it is strong where A is weak, but only
    # if it reads the rephrased questions (--rephrase B)
    cohort: Literal[tuple(tinyworld.KINDS)] = "complementary"
    rephrase: list[str] | None = None  # the agents (A B ...) that train on the rephrased question, where there is one
    k: Group = 8  # rollouts of each question that are trained on (K); a group of one has nothing to be compared with
    votes: Count | None = None  # rollouts of each question that vote for its label; the first K are trained on (default: K)
    lrs: list[Above] | None = None  # a learning rate for each agent: families differ tenfold in what they bear
    epochs: Count = 1  # passes over the rollouts of a step; clipping can act from the second on
    clip: Above = 0.2  # delta: the ratio is clipped to 1 - delta .. 1 + delta
    beta: NotBelow0 = 0.0  # weight of the KL term against the starting policy (the paper's is not known)
    average: Literal["sequence", "token", "constant"] = "sequence"  # a token's weight: 1/|y| (the paper), equal, 1/L (Dr. GRPO)
    scale: bool = True  # divide advantages by the group's std; --no-scale is Dr. GRPO
    lora_rank: Whole = 0  # train LoRA adapters of this rank over frozen bases instead of all weights; 0 = all weights
    lora_alpha: Above = 16.0  # scale of the adapters: their product counts alpha / rank
    lora_targets: list[str] | None = None  # layers that get an adapter, by name or ending (default: all linear, none of an eye)
    # what writes the completions that are trained on, for adapters of real models (default: the loop in grpo.py). vllm needs
    # requirements-vllm.txt; its draws are not ours, so that such a run is neither repeated nor resumed bit for bit
    engine: Literal["vllm"] | None = None

    def __post_init__(self):
        if self.agents is None:
            self.agents = len(self.models) if self.models else 2

    def learning(self) -> dict:
        """What `grpo.update` is told of these options."""
        names = "temperature epochs clip beta average max_new_tokens max_grad_norm".split()
        return {name: getattr(self, name) for name in names} | {"rows": self.micro_batch * self.k}


# ---------------------------------------------------------------- one step


def train_step(agents: Sequence[Agent], problems: Sequence[Problem], step: int, o: Options, hooks: Hooks) -> dict:
    """Write, vote, pay, learn: one step of Co-RL, and with another reward of every other method. Returns its line of metrics."""
    method, problems = REWARDS[o.method], hooks.questions(problems)
    truths = [problem.answer for problem in problems]  # P answers; only ground truth and the metrics read them
    # 1. Every agent answers every question K times.
    prompts = [[agent.prompt(problem) for problem in problems] for agent in agents]
    draws = runs.generators(o.seed, runs.SAMPLING, step, len(agents), hooks.first)
    written = sample_cohort(agents, prompts, hooks.width, o.max_new_tokens, o.temperature, draws, write=hooks.write)  # N of [P,W]
    # 2. The votes, in Co-RL the only thing that agents tell each other. W = K, unless --votes asks for more.
    own = hooks.ballots(written, problems, step)  # N lists [P][W] of answers
    ballots = hooks.exchange(own, step)  # the same, unless agents live in other processes (lab/ranks.py)
    rollouts = hooks.rollouts(written, problems, step)  # N Rollouts of [P,K]: those that are trained on
    line = {"step": step, "agreement": agreement_on_ring([part.answers for part in written]), "agents": {}, "samples": []}
    for n, agent in enumerate(agents):
        # 3. Each rollout is paid for giving the label: in Co-RL the majority answer of agent n-1.
        labels = method.labels(n, ballots, truths)  # P answers, or None
        rewards = method.rewards(n, rollouts, truths, labels)  # [P,K]
        # 4. The agent takes one GRPO step on its own rollouts.
        advantages = group_advantages(rewards, o.scale)  # [P,K]
        learned = update(agent, *hooks.batch(n, rollouts, advantages), **o.learning())
        line["agents"][agent.name] = describe(rollouts[n], rewards, labels, truths) | learned | hooks.figures(n, written)
        line["samples"] += show.pick(agent.name, problems, prompts[n], rollouts[n], rewards, labels)
    hooks.after(step, line)
    return line


# ---------------------------------------------------------------- what a step looked like


def describe(rollouts: Rollouts, rewards: Tensor, labels: Sequence[str | None], truths: Sequence[str | None]) -> dict:
    """One agent's metrics of a step. `labels` are what it was paid to agree with, None where there was none.

    Accuracies are over the questions whose truth is known; a question without a label counts as one whose label is wrong.
    """
    known = [p for p, truth in enumerate(truths) if truth is not None]
    right = [same_answer(answer, truths[p]) for p in known for answer in rollouts.answers[p]]
    labelled_right = [same_answer(labels[p], truths[p]) for p in known]
    return group_statistics(rollouts, rewards) | {
        "labelled": sum(label is not None for label in labels) / len(labels),
        "accuracy": sum(right) / len(right) if known else None,
        "label_accuracy": sum(labelled_right) / len(known) if known and any(labels) else None,
    }


def agreement_on_ring(answers: Sequence[list]) -> float | None:
    """Share of (agent, question) pairs in which agent and peer have the same majority answer; None without a peer.

    `answers` are those of N agents, [P][K] each. A question on which either has no majority counts as disagreement.
    """
    votes = [majorities(groups) for groups in answers]  # N lists of P
    pairs = [same_answer(*pair) for n, own in enumerate(votes) for pair in zip(own, votes[n - 1], strict=True)]
    return sum(pairs) / len(pairs) if len(answers) > 1 else None


def examine(agents: Sequence[Agent], test: Sequence[Problem], o: Options, first: int = 0) -> dict[str, list[Report]]:
    """Every agent's two reports on the held-out problems: in the original wording, and in the one that it trains on.

    `first` is the place on the ring of the first of these agents. Empty where no problem has an answer to be graded by.
    """
    if not any(p.answer for p in test):
        return {}

    def measured(n: int, rephrase: bool) -> Report:
        reader, draws = dataclasses.replace(agents[n], rephrase=rephrase), runs.generator(o.seed, runs.EVALUATION, first + n)
        return evaluate(reader, test, o.eval_k, o.max_new_tokens, o.temperature, draws)

    found = [measured(n, rephrase=False) for n in range(len(agents))]
    own = [measured(n, rephrase=True) if agent.rephrase else found[n] for n, agent in enumerate(agents)]
    return {agent.name: list(pair) for agent, *pair in zip(agents, found, own, strict=True)}


def assess(found: dict[str, list[Report]], test: Sequence[Problem], o: Options) -> dict:
    """Held-out accuracy of every agent from its reports: `eval` over all problems, in the original wording for everybody.

    What the theory speaks of is measured on the wording that each agent reads in training: `probes`, the probability p by topic,
    and for two agents `omega` by topic, the chance that two wrong answers are the same. `own_wording` is `eval` on that wording.
    """
    if not found:
        return {}
    first = next(iter(found.values()))[0]
    line = {
        "probes": {name: reports[-1].by_topic for name, reports in found.items()},
        "eval": {name: reports[0].record() for name, reports in found.items()},
        "problems": first.problems,
        "own_wording": {name: reports[1].record() for name, reports in found.items() if name in (o.rephrase or ())},
    }
    if len(found) == 2:
        graded = [problem for problem in test if problem.answer is not None]
        by_topic = {t: [i for i, p in enumerate(graded) if p.topic == t] for t in first.by_topic}
        line["omega"] = {
            topic: omega(*([own[-1].answers[i] for i in where] for own in found.values()), [graded[i].answer for i in where])
            for topic, where in by_topic.items()
        }
    return line


# ---------------------------------------------------------------- a run


def load_work(o: Options, data: tuple[list[Problem], list[Problem]], methods: Sequence[str], agents: Sequence[Agent] = (),
              **others) -> runs.Work:  # fmt: skip
    """One method on one cohort, ready to be trained; `methods` are those that share its problems.

    `agents` are those of this process, if not all; `others` are hooks that know of the rest (lab/ranks.py).
    """
    agents = agents or setup.make_cohort(o, sum(data, []))
    for method in methods:
        hooks_of(method).accept(agents, method)
    hooks = hooks_of(o.method)(o, agents)
    vars(hooks).update(others)  # they take the place of the hooks of the same names
    train = setup.readable(o, agents, data[0], methods)
    if o.engine:
        hooks.write = engine.VLLM(o, agents, train)
    batch, test = setup.batches(o, train, o.topics), runs.fitting(data[1], agents, o.max_new_tokens)
    everybody, elsewhere = [*agents, *hooks.teachers], setup.elsewhere(o, agents)
    samples = [sum(q.topic == topic for q in test) * o.eval_k for topic in {p.topic for p in test}]
    return runs.Work(
        agents=everybody,
        take=lambda step: train_step(agents, batch(step), step, o, hooks),
        measure=lambda step: assess(hooks.reports(examine(agents, test, o, hooks.first), step), test, o) | {
            f"eval on {source}": assess(examine(*there, o), there[1], o)["eval"] for source, there in elsewhere.items()
        },
        need=memory.estimate(everybody, memory.at_a_time(o, memory.pictures(agents, test))),
        config={"agent_names": [a.name for a in agents], "compared": list(methods), "probe_samples": min(samples, default=0),
                "inputs": guards.inputs(o, agents, (train, test))},
    )


def run(o: Options) -> int:
    """One method on one cohort: load, train, report. Returns the exit code."""
    data = setup.read_data(o)
    folder = runs.single(o, lambda o: load_work(o, data, setup.sharing_problems(o)), o.method, "cohort.py")
    if folder:
        report.finish(folder)
    return 0 if folder else 130


def matched(o: Options, method: str, agents: int) -> tuple[int, str]:
    """How many questions a step of `method` has, so that it writes as much as --agents with K completions for each of --prompts.

    And a line that says how much it writes where that does not divide evenly, else "".
    """
    votes = o.votes if o.votes and REWARDS[method].by_vote else o.k
    budget, each = o.prompts * o.k * o.agents, hooks_of(method).completions(o.k, votes) * agents
    prompts = max(1, round(budget / each))
    return prompts, "" if prompts * each == budget else (
        f"{method} writes {prompts * each} completions in a step ({each} for each of {prompts} questions), "
        f"{prompts * each / budget - 1:+.0%} compared with the {budget} of --prompts x --k x --agents"
    )


def compare(o: Options) -> int:
    """The same starting weights, problems, seeds and budget under each method of --compare; one table and one figure."""
    data, agents = setup.read_data(o), dict(zip(o.compare, o.compare_agents or [o.agents] * len(o.compare), strict=True))
    shares = {method: matched(o, method, agents[method]) for method in o.compare}
    if not any(p.answer for p in data[1]):
        raise UserError("--compare needs reference answers to measure by, and these problems have none")

    def alone(method: str, seed: int) -> Options:
        votes = o.votes if REWARDS[method].by_vote else None
        own = {"method": method, "seed": seed, "prompts": shares[method][0], "votes": votes, "agents": agents[method]}
        own["models"] = o.models and [o.models[n % len(o.models)] for n in range(agents[method])]
        return dataclasses.replace(o, **own, compare=None, compare_agents=None, seeds=None, resume=None)

    def whole() -> Path:
        folder = runs.create(o.out, o.name, "compare")
        runs.write_json(folder / "config.json", dataclasses.asdict(o) | runs.origin())
        print("".join(f"{line}\n" for _, line in shares.values() if line), end="")
        return folder

    def load(one: Options) -> runs.Work:
        return load_work(one, data, o.compare)

    folder = runs.compare(o, o.compare, load, alone, whole, "cohort.py", charts.draw_training)
    if folder:
        report.finish(folder)
    return 0 if folder else 130


# ---------------------------------------------------------------- the command


def parse(arguments: Sequence[str] | None = None, description: str = "") -> Options:
    """The command line as Options."""
    return options.parse(arguments, description, Options)


def check(o: Options) -> None:
    """Refuse, with a UserError, what can be refused before anything is loaded."""
    options.check(o, options.RULES, options.METHOD_RULES)


def act(o: Options) -> int:
    """One run, or a comparison."""
    return compare(o) if o.compare else run(o)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""
    lower = "--prompts, --k or --max-new-tokens, or give --lora-rank 16 --dtype bfloat16 --checkpointing"
    return options.command("cohort.py", arguments, __doc__, Options, options.RULES, act, "what was saved before is whole", lower,
                           options.METHOD_RULES)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
