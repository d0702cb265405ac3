"""Co-RL: a cohort of language models teaches itself to reason, without labels; and the other methods of `rewards.REWARDS`.

One step of Co-RL (Yang et al., "Co-RL", Section 3):
  1. every agent samples K answers to each question of a batch;
  2. the majority answer of agent n-1 becomes the label for agent n (a directed ring: peer votes, never one's own);
  3. each rollout earns 1 where it equals that label, else 0, and each agent takes one GRPO step on its own rollouts.
Nothing else is shared: no weights, no gradients. Exchange the reward function (`rewards.REWARDS`) and the same loop is TTRL
(own votes), training on ground truth, and the rest.

Departures from the paper: a tie gives no label; agents may share one frozen base through LoRA adapters; the default cohort is two
tiny transformers with complementary misconceptions (`tinyworld.py`), which no paper has, to be watched on a laptop.

    python cohort.py                                       # the tiny cohort, one to two minutes
    python cohort.py --compare corl ttrl gt --seeds 0 1 2  # the same starts under three rewards
    python cohort.py --models A B --data gsm8k             # any two causal language models
"""

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from grpo import Agent, Rollouts, group_advantages, group_statistics, sample_cohort, update
from lab import memory, options, report, runs, tinyworld
from lab.answers import same_answer
from lab.data import Problem, UserError
from lab.evaluate import evaluate
from lab.judges import Judged, alpha, follow, join, judge
from lab.options import Above, Count, Group, NotBelow0, Training, Whole
from lab.setup import batches, make_agents, make_cohort, read_data, sharing_problems  # noqa: F401
from rewards import REWARDS, Ballots


@dataclass
class Options(Training):
    """All there is to set in cohort.py. Defaults are those of the tiny cohort."""

    TABLE = {name: m.formula for name, m in REWARDS.items()}
    preset: Literal["qwen"] | None = None  # defaults, which any option beside it overrides: two small Qwen models, one 24 GB GPU
    method: Literal[tuple(REWARDS)] = "corl"  # reward: {table}
    # train the same starting weights once with each of these methods, from the same pool of problems and with the same seeds;
    # each may write --prompts x --k texts in a step, so one that writes more for a question (both forms, a teacher's, judges',
    # --votes) gets fewer questions
    compare: list[Literal[tuple(REWARDS)]] | None = None
    models: list[str] | None = None  # one Hugging Face causal LM for each agent, hub name or folder; without it, the tiny models
    agents: Count | None = None  # on the ring; agent n is graded by agent n-1 (default: 2, or one for each of --models)
    topics: list[str] | None = None  # tiny world: only these topics (carry borrow product precedence bracket fraction)
    strengths: list[float] | None = None  # tiny world: share of the right method in strong and in weak topics (0.88 0.42)
    # tiny world, what tells B from A: same = nothing; seed = its warm start drew other texts; errors = it makes other mistakes;
    # complementary = it is strong where A is weak; different = both of these; rephrased = it is strong where A is weak, but only
    # if it reads the rephrased questions (--rephrase B)
    cohort: Literal[tuple(tinyworld.KINDS)] = "complementary"
    rephrase: list[str] | None = None  # the agents (A B ...) that read the rephrased question, where a problem has one
    k: Group = 8  # rollouts of each question that are trained on (K); a group of one has nothing to be compared with
    votes: Count | None = None  # rollouts of each question that vote for its label; the first K are trained on (default: K)
    lrs: list[Above] | None = None  # a learning rate for each agent: families differ tenfold in what they bear
    epochs: Count = 1  # passes over the rollouts of a step; clipping can act from the second on
    clip: Above = 0.2  # delta: the ratio is clipped to 1 - delta .. 1 + delta
    beta: NotBelow0 = 0.0  # weight of the KL term against the starting policy
    average: Literal["sequence", "token", "constant"] = "sequence"  # a token's weight: 1/|y| (the paper), equal, 1/L (Dr. GRPO)
    scale: bool = True  # divide advantages by the group's std; --no-scale is Dr. GRPO
    lora_rank: Whole = 0  # train LoRA adapters of this rank over frozen bases instead of all weights; 0 = all weights
    lora_alpha: Above = 16.0  # scale of the adapters: their product counts alpha / rank
    lora_targets: list[str] | None = None  # layers that get an adapter, by name or ending (default: all linear ones)

    def __post_init__(self):
        if self.agents is None:
            self.agents = len(self.models) if self.models else 2


# ---------------------------------------------------------------- one step: write, label, reward, advantage, one GRPO step


def train_step(
    agents: Sequence[Agent], problems: Sequence[Problem], step: int, o: Options, teachers: Sequence[Agent] = ()
) -> dict:
    """Sample, vote, reward, learn; returns the step's line of metrics."""
    start = time.perf_counter()
    method = REWARDS[o.method]
    problems = both_forms(problems) if method.needs_rephrased else problems
    truths = [p.answer for p in problems]
    voters = method.voters(o.k, o.votes)  # W, how many rollouts of a prompt vote for its label
    # Where a teacher votes, the agent writes only what it trains on.
    written = write(agents, problems, o.k if teachers else voters, runs.SAMPLING, step, o)
    teacher_wrote = write(teachers, problems, voters, runs.TEACHING, step, o)
    trained = [rollouts.first(o.k) for rollouts in written]  # N Rollouts of [P,K]
    judged = discuss(agents, trained, problems, step, o) if method.needs_chat else []
    sampled = time.perf_counter()
    own = [Ballots(rollouts.answers) for rollouts in written]
    ballots = [Ballots(rollouts.answers) for rollouts in teacher_wrote] or own
    line = {"step": step, "agreement": agreement_on_ring(own), "agents": {}}
    for n, agent in enumerate(agents):
        labels = method.labels(n, ballots, truths)
        rewards = method.rewards(n, judged or trained, truths, labels)  # [P,K]
        began = time.perf_counter()
        learned = learn(agent, trained[n], rewards, judged[n] if judged else None, o)
        learn_seconds = time.perf_counter() - began
        measured = describe(trained[n], rewards, labels, truths) | learned
        if judged:
            measured |= describe_judging(judged[n])
        measured["tokens"] = tokens([written[n], *teacher_wrote[n : n + 1]], judged[n : n + 1])
        # One pass may have written for several agents, so its time is shared out.
        measured |= {"sample_seconds": (sampled - start) / len(agents), "learn_seconds": learn_seconds}
        line["agents"][agent.name] = measured
    for teacher, agent in zip(teachers, agents, strict=False):  # most methods have no teachers
        follow(teacher, agent, alpha(step, o.steps))
    return line


def both_forms(problems: Sequence[Problem]) -> list[Problem]:
    """2P problems: the P original ones, then the same P in their rephrased form."""
    return [*problems, *(dataclasses.replace(p, question=p.rephrased) for p in problems)]


def write(
    agents: Sequence[Agent], problems: Sequence[Problem], k: int, purpose: int, step: int, o: Options
) -> list[Rollouts]:
    """k rollouts of every problem by every agent; `purpose` and `step` decide the numbers they are drawn with."""
    prompts = [[agent.prompt(p) for p in problems] for agent in agents]
    generators = [runs.generator(o.seed, purpose, step, n) for n in range(len(agents))]
    return sample_cohort(agents, prompts, k, o.max_new_tokens, o.temperature, generators)


def discuss(
    agents: Sequence[Agent], cohort: Sequence[Rollouts], problems: Sequence[Problem], step: int, o: Options
) -> list[Judged]:
    """CoMAS's evaluations and scores of what the cohort wrote (`judges.py`)."""
    generators = [runs.generator(o.seed, runs.JUDGING, step, n) for n in range(len(agents) + 1)]
    return judge(agents, cohort, problems, o.max_new_tokens, o.temperature, generators)


def learn(agent: Agent, rollouts: Rollouts, rewards: Tensor, judged: Judged | None, o: Options) -> dict[str, float]:
    """One GRPO step on the agent's rollouts [P,K], and on what it wrote as a judge."""
    advantages = group_advantages(rewards, o.scale)  # [P,K]
    if judged:
        rollouts, advantages = join(
            [
                (rollouts, advantages),
                (judged.evaluations, group_advantages(judged.evaluator_rewards, o.scale)),
                (judged.scorings, group_advantages(judged.scorer_rewards, o.scale)),
            ]
        )
    # Co-rewarding-I's loss is the sum over the two forms: twice the mean over its 2P groups, so advantages and beta are both
    # doubled. AdamW divides the factor 2 out again; it shows where the gradient is clipped and in the logged loss.
    forms = 2 if REWARDS[o.method].needs_rephrased else 1
    return update(
        agent,
        rollouts,
        forms * advantages,
        temperature=o.temperature,
        epochs=o.epochs,
        clip=o.clip,
        beta=forms * o.beta,
        average=o.average,
        max_new_tokens=o.max_new_tokens,
        micro_batch=o.micro_batch * (o.k if judged else 1),  # a group is one rollout here: K of them fill the same memory
        max_grad_norm=o.max_grad_norm,
    )


# ---------------------------------------------------------------- what a step looked like


def describe(
    rollouts: Rollouts, rewards: Tensor, labels: Sequence[str | None], truths: Sequence[str | None]
) -> dict:
    """One agent's metrics of a step. `labels` are what it was paid to agree with, None where there was none."""
    known = [
        (label, truth) for label, truth in zip(labels, truths, strict=True) if label is not None and truth is not None
    ]
    right = [[same_answer(a, t) for a in g] for g, t in zip(rollouts.answers, truths, strict=True) if t is not None]
    return group_statistics(rollouts, rewards) | {
        "labelled": sum(label is not None for label in labels) / len(labels),
        "accuracy": sum(sum(marks) for marks in right) / (len(right) * rewards.shape[1]) if right else None,
        "label_accuracy": sum(same_answer(label, truth) for label, truth in known) / len(known) if known else None,
    }


def describe_judging(judged: Judged) -> dict:
    """CoMAS: the share of this agent's solutions that got a score, and what it earned as a judge."""
    given = [score is not None for group in judged.scores for score in group]
    return {
        "scored": sum(given) / len(given),
        "evaluator_reward": judged.evaluator_rewards.mean().item(),
        "scorer_reward": judged.scorer_rewards.mean().item(),
    }


def tokens(written: Sequence[Rollouts], judged: Sequence[Judged]) -> int:
    """All that was generated for one agent, trained on or not: the budget by which methods are compared."""
    return sum(int(r.mask.sum()) for r in [*written, *(r for j in judged for r in (j.evaluations, j.scorings))])


def agreement_on_ring(ballots: Sequence[Ballots]) -> float | None:
    """Share of (agent, question) pairs in which agent and peer have the same majority answer; None without a peer.

    A question on which either has no majority counts as disagreement.
    """
    if len(ballots) < 2:
        return None
    ring = range(len(ballots))
    pairs = [same_answer(*pair) for n in ring for pair in zip(ballots[n].majorities, ballots[n - 1].majorities, strict=True)]
    return sum(pairs) / len(pairs)


def assess(agents: Sequence[Agent], test: Sequence[Problem], o: Options) -> dict:
    """Held-out accuracy of every agent: `probes` by topic, the probability p that the theory speaks of, and `eval` over all."""
    if not any(p.answer for p in test):
        return {}
    line = {"probes": {}, "eval": {}}
    for n, agent in enumerate(agents):
        found = evaluate(
            agent, test, o.eval_k, o.max_new_tokens, o.temperature, runs.generator(o.seed, runs.EVALUATION, n)
        )
        line["probes"][agent.name] = found.by_topic
        line["problems"] = found.problems
        line["eval"][agent.name] = {
            "pass1": found.pass1,
            "low": found.interval[0],
            "high": found.interval[1],
            "majk": found.majk,
            "length": found.length,
            "truncated": found.truncated,
        }
    return line


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


def parse(arguments: Sequence[str] | None, description: str) -> Options:
    """The command line as Options."""
    return options.parse(arguments, description, Options)


def check(o: Options) -> None:
    """Whatever can be told before anything is loaded. Raises UserError."""
    options.check(o, options.RULES, options.METHOD_RULES)


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
