"""How different the agents of a cohort are before any training: the four cells of each pair (the paper's Tables 5 to 7).

    python evaluate.py tiny                                     # the tiny world's agents
    python evaluate.py SMOLLM2 GEMMA --data sums --k 8          # any causal language models, hub names or folders
    python evaluate.py SMOLLM2 SMOLLM2 --data sums --rephrase B # one model, which reads two forms of the question

Co-RL needs a peer that is right where one is wrong. Every question falls into one of four cells: both agents right, only
the first, only the second, neither. From these come kappa (low: errors hardly coincide), Q, rho, disagreement, double
fault, rescue, and omega (where neither is right: how often both make the same mistake). All are explained in evaluate.py.

Two readings, of K samples of each question:
  single answers    sample j of one agent beside sample j of the other. The paper counts one answer of a model to a
                    problem (as far as its summary tells); this is the mean of K such counts, and the same for --k 1.
  majority answers  the agents' majority answers, one a question: the labels that Co-RL exchanges. A tie is not right.
Even one model's own two samples differ, so a pair's kappa is to be read beside the kappa of each agent with itself.

The ring: agent n is graded by agent n-1. On any ring each agent grades once and is graded once, so the labels are as
often right in every order; what the order decides is who stands beside whom. Suggested is the order with the least mean
P(neither right) over its edges, in majority answers: there no one can put the other right. As every agent has two edges,
the sum of (b + c + 2d) is the same for all orders, so this order has the most disagreement, too. It needs four agents:
of two or three, each stands beside every other anyway. The measure is ours; the paper does not say how to order a ring.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

import runs
import tinyworld
from evaluate import Pair, Report, count_cells, evaluate, measures, pairs
from grpo import Agent
from options import Count, Sampling, agent_names, check, parse
from overlap_figure import draw, kappa_with_itself, square
from rewards import majority
from tasks import Problem, UserError, answer_style, load_problems, need_rephrased

MOST_IN_A_RING = 8  # (N-1)! orders are all tried

# ---------------------------------------------------------------- measuring


def ring_orders(neither: np.ndarray) -> list[tuple[float, tuple[int, ...]]]:
    """(mean of `neither` over the edges, order) of each of the (N-1)! directed rings that begin at agent 0, least first.

    neither: [N,N], P(neither right) of each two agents. It is symmetric, so an order and its reverse have one value.
    """
    n = len(neither)
    orders = [(0, *rest) for rest in itertools.permutations(range(1, n))]
    costs = [sum(neither[order[i - 1], order[i]] for i in range(n)) / n for order in orders]
    return sorted((round(float(cost), 12), order) for cost, order in zip(costs, orders, strict=True))


def kappa_error(first: Report, second: Report) -> float:
    """Standard error of the single answers' kappa, by leaving out one problem at a time (jackknife)."""
    cells = np.array([count_cells(a, b) for a, b in zip(first.right, second.right, strict=True)])  # [P,4]
    left = np.array([measures(*row).kappa for row in (cells.sum(0) - cells).tolist()])  # [P]
    return float(np.sqrt((len(left) - 1) * left.var()))


def two_readings(reports: dict[str, Report], truths: Sequence[str]) -> tuple[list[Pair], list[Pair]]:
    """All pairs by single answers and by majority answers, each sorted by kappa."""
    k = next(iter(reports.values())).k
    single = {name: list(itertools.chain.from_iterable(found.answers)) for name, found in reports.items()}
    voted = {name: [majority(group) for group in found.answers] for name, found in reports.items()}
    return pairs(single, [truth for truth in truths for _ in range(k)]), pairs(voted, truths)


# ---------------------------------------------------------------- text


def agent_table(reports: dict[str, Report], sources: Sequence[str]) -> str:
    """pass@1 with its interval and maj@k of each agent, by topic where there are a few."""
    k = next(iter(reports.values())).k
    lines = [f"{'agent':<7}pass@1  95 % interval   {f'maj@{k}':>6}  length  cut off  kappa with itself  model"]
    for (name, r), source in zip(reports.items(), sources, strict=True):
        own = kappa_with_itself(r)
        lines.append(
            f"{name:<7}{r.pass1:6.3f}  ({r.interval[0]:.3f}, {r.interval[1]:.3f})  {r.majk:6.3f}  {r.length:6.1f}  "
            f"{r.truncated:7.2f}  {'-' if own is None else f'{own:.2f}':>17}  {source}"
        )
    topics = next(iter(reports.values())).by_topic
    if 2 <= len(topics) <= 12:
        lines += ["", f"{'pass@1 by topic':<17}" + "".join(f"{name:>7}" for name in reports)]
        lines += [f"{t[:16]:<17}" + "".join(f"{r.by_topic[t]:7.2f}" for r in reports.values()) for t in topics]
    return "\n".join(lines)


def pair_table(table: Sequence[Pair], errors: dict[tuple[str, str], float] | None = None) -> str:
    """The cells, as shares, and the measures of every pair, in the order given; `errors`: kappa's standard errors."""
    head = f"{'pair':<9}  both  only 1st  only 2nd  neither   kappa{' +- se' if errors else '':<7}"
    lines = [head + "     Q    rho  disagree  double fault  rescue  omega"]
    for pair in table:
        o, se = pair.overlap, f" +- {errors[pair.a, pair.b]:.2f}" if errors else ""
        n = o.both + o.only_a + o.only_b + o.neither
        lines.append(
            f"{pair.a + ' ' + pair.b:<9}{o.both / n:6.3f}  {o.only_a / n:8.3f}  {o.only_b / n:8.3f}  {o.neither / n:7.3f}  "
            f"{o.kappa:6.2f}{se:<7}{o.Q:6.2f} {o.rho:6.2f}  {o.disagreement:8.3f}  {o.double_fault:12.3f}  "
            f"{o.rescue:6.2f}  {pair.omega:5.2f}"
        )
    if any(0 in margins(pair.overlap) for pair in table):
        lines.append("(an agent that is always right, or always wrong, tells nothing of the other: kappa, Q, rho are 0)")
    return "\n".join(lines)


def margins(o) -> tuple[int, int, int, int]:
    """How often the first is right and wrong, and the second."""
    return o.both + o.only_a, o.only_b + o.neither, o.both + o.only_b, o.only_a + o.neither


def ring_text(voted: Sequence[Pair], names: Sequence[str]) -> str:
    """The suggested order beside the worst one, or why there is nothing to choose."""
    if len(names) < 4:
        return "ring: with fewer than four agents every order has the same neighbours"
    if len(names) > MOST_IN_A_RING:
        return f"ring: with more than {MOST_IN_A_RING} agents the orders are too many to try them all"
    orders = ring_orders(square(voted, names, lambda pair: pair.overlap.double_fault))
    (least, best), (most, worst) = orders[0], orders[-1]
    models = " ".join(names[i] for i in best)
    return (
        f"ring: give the models in the order {models} (each grades the next, the last the first; the reverse is as good):\n"
        f"mean P(neither majority right) over its edges is {least:.3f}, the least of all orders; the worst, "
        f"{' '.join(names[i] for i in worst)}, has {most:.3f}"
    )


# ---------------------------------------------------------------- the command


@dataclass(kw_only=True)
class Options(Sampling):
    """All there is to set in evaluate.py."""

    models: list[str]  # hub names or folders of causal language models, at least two; or tiny, the tiny world
    data: str | None = None  # problems with answers: tiny, sums, gsm8k (its test part), math500, hub:NAME, .jsonl or .json file
    limit: Count | None = None  # only the first problems (tiny: so many in all, evenly over its topics; default 120)
    agents: Count = 2  # tiny world: how many agents
    cohort: Literal[tuple(tinyworld.KINDS)] = "complementary"  # tiny world: kind of a cohort of two
    k: Count = 8  # samples of each problem
    max_new_tokens: Count | None = None  # longest completion (default: 40; 512 for others than tiny and sums)
    rephrase: list[str] | None = None  # the agents (A B ...) that read the rephrased question
    out: str = "overlap.png"  # the figure

    def __post_init__(self):
        self.tiny = self.models == ["tiny"]
        self.data = self.data or ("tiny" if self.tiny else None)
        self.names = agent_names(self.agents if self.tiny else len(self.models))
        self.max_new_tokens = self.max_new_tokens or (40 if self.data in ("tiny", "sums") else 512)
        self.answer, self.rephrase = self.answer or answer_style(self.data), self.rephrase or []


RULES = [
    (lambda o: o.data is None or (o.data == "tiny") != o.tiny,
     "the tiny agents solve the tiny world, and real models real problems: give both their --data"),
    (lambda o: o.cohort != "complementary" and not (o.tiny and o.agents == 2), "--cohort {cohort} is a kind of two tiny agents"),
    (lambda o: len(o.names) < 2, "a pair needs two agents: name two models (one twice will do), or --agents 2"),
    (lambda o: set(o.rephrase) - set(o.names), "--rephrase {rephrase}: the agents are {names}"),
    (lambda o: Path(o.out).suffix != ".png" or not Path(o.out).parent.is_dir(),
     "--out {out}: name a .png file in a folder that is there"),
]  # fmt: skip


def read_problems(o: Options) -> list[Problem]:
    """The problems that have a reference answer."""
    if o.data == "tiny":
        found = tinyworld.probes(n=max(1, (o.limit or 120) // len(tinyworld.TOPICS)))
    else:
        found = [p for p in load_problems(o.data, "test", o.limit) if p.answer is not None]
    if not found:
        raise UserError(f"no problem of {o.data} has a reference answer, so nothing can be graded")
    if o.rephrase:
        need_rephrased(found, o.data, "--rephrase")
    return found


def make_agents(o: Options) -> list[Agent]:
    """The agents; a model named twice is loaded once."""
    device = runs.pick_device(o.device)
    if o.data == "tiny":
        settings = tinyworld.WarmStart(seed=o.seed, kind=o.cohort)
        loaded = [(model.to(device).eval(), t) for model, t in tinyworld.cohort(o.agents, settings=settings)]
        o.models = [f"tiny world, {o.cohort}"] * len(loaded)
    else:
        once = {source: runs.load_model(source, device, o.dtype) for source in dict.fromkeys(o.models)}
        loaded = [once[source] for source in o.models]
    return [
        Agent(name, model, tokenizer, answer=o.answer, system=o.system, stop=o.stop, rephrase=name in o.rephrase)
        for name, (model, tokenizer) in zip(o.names, loaded, strict=True)
    ]


def measure(o: Options) -> int:
    """Sample, print the tables, draw the figure. Returns the exit code."""
    problems = read_problems(o)
    agents = make_agents(o)
    problems = runs.fitting(problems, agents, o.max_new_tokens)
    reports = {
        a.name: evaluate(a, problems, o.k, o.max_new_tokens, o.temperature, runs.generator(o.seed, runs.EVALUATION, n))
        for n, a in enumerate(agents)
    }
    sources = [m + (", rephrased" if name in o.rephrase else "") for m, name in zip(o.models, o.names, strict=True)]
    single, voted = two_readings(reports, [p.answer for p in problems])
    errors = {(p.a, p.b): kappa_error(reports[p.a], reports[p.b]) for p in single}
    what = f"{len(problems)} problems of {Path(o.data).name}, {o.k} samples of each at temperature {o.temperature:g}"
    print(f"{what}\n")
    print(agent_table(reports, sources))
    print(f"\nsingle answers, {len(problems) * o.k} of each agent\n{pair_table(single, errors)}")
    if o.k > 1:
        print(f"\nmajority answers, {len(problems)} of each agent\n{pair_table(voted)}")
    print(f"\n{ring_text(voted, o.names)}")
    who = ", ".join(f"{name} = {Path(source).name}" for name, source in zip(o.names, sources, strict=True))
    draw(reports, single, voted, f"before training: {what}" + (f"\n{who}" if o.data != "tiny" else ""), Path(o.out))
    print(f"written: {o.out}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""

    def act() -> int:
        o = parse(arguments, __doc__, Options)
        check(o, RULES)
        return measure(o)

    return runs.command("evaluate.py", act, "nothing was written", "--k or --max-new-tokens, or give --dtype bfloat16")
