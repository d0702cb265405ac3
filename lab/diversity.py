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
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np

from grpo import Agent
from lab import models, report, runs, tinyworld
from lab.data import Problem, UserError, answer_style, load_problems, need_rephrased
from lab.evaluate import Pair, Report, count_cells, evaluate, measures, pairs
from lab.options import Count, Sampling, agent_names, check, parse
from rewards import majority

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


# ---------------------------------------------------------------- the figure

CELLS = ("only the first is right", "both", "only the second", "neither")  # in this order each agent's part of a bar is one piece
CELL_COLOURS = (report.COLOURS[5], report.COLOURS[2], report.COLOURS[4], "#bbbbbb")


def kappa_with_itself(found: Report) -> float | None:
    """Kappa of an agent's sample j with its sample j+1: what sampling alone leaves of the overlap. None for one sample."""
    if found.k == 1:
        return None
    turned = [[*group[1:], group[0]] for group in found.right]
    cells = [count_cells(a, b) for a, b in zip(found.right, turned, strict=True)]
    return measures(*(sum(column) for column in zip(*cells, strict=True))).kappa


def square(table: Sequence[Pair], names: Sequence[str], value) -> np.ndarray:
    """[N,N]: value(pair) at both places of every two agents, NaN on the diagonal."""
    matrix = np.full((len(names), len(names)), np.nan)
    for pair in table:
        i, j = names.index(pair.a), names.index(pair.b)
        matrix[i, j] = matrix[j, i] = value(pair)
    return matrix



def draw(reports: dict[str, Report], single: Sequence[Pair], voted: Sequence[Pair], title: str, path: Path) -> None:
    """overlap.png: accuracy of each agent, the four cells of each pair, the matrix of kappa."""
    n = len(reports)
    height = max(3.6, 1.8 + len(single) * (0.6 if n <= 4 else 0.45))  # inches
    wide = max(2.4, min(3.6, height - 1.8))  # the matrix is square
    figure, (accuracy, cells, kappa) = plt.subplots(
        1, 3, figsize=(3.6 + 6.5 + wide, height), layout="constrained", width_ratios=(min(3.0, 1.5 + 0.3 * n), 6.5, wide)
    )
    draw_accuracy(accuracy, reports)
    k = next(iter(reports.values())).k
    draw_cells(cells, single, voted if k > 1 else [])
    draw_kappa(kappa, reports, single, voted if k > 1 else single, k)
    figure.suptitle(title, fontsize=11)
    figure.legend(*cells.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    report.save(figure, path)


def draw_accuracy(axis, reports: dict[str, Report]) -> None:
    """pass@1 with its interval, and maj@k, of each agent."""
    names, found = list(reports), list(reports.values())
    middle = np.array([r.pass1 for r in found])
    reach = np.abs(np.array([r.interval for r in found]).T - middle)  # [2,N]
    axis.bar(names, middle, color="#9db8cc", width=0.6)
    axis.errorbar(names, middle, reach, fmt="none", ecolor="black", capsize=4, lw=1)
    axis.plot(names, [r.majk for r in found], "D", color=report.COLOURS[1], ms=6, clip_on=False)
    axis.set_ylim(0, 1.02), axis.set_title("How often right", fontsize=10)
    axis.set_xlabel(f"bar: pass@1, 95 % interval\ndiamond: maj@{found[0].k}", fontsize=8)
    axis.set_axisbelow(True), axis.grid(axis="y", alpha=0.3)


def draw_cells(axis, single: Sequence[Pair], voted: Sequence[Pair]) -> None:
    """A bar for each pair, and a thin one below it for the majority answers; a mark where independence would end it."""
    below = {(pair.a, pair.b): pair for pair in voted}
    for row, pair in enumerate(single):
        draw_bar(axis, pair, row, 0.42)
        if below:
            draw_bar(axis, below[pair.a, pair.b], row + 0.34, 0.2)
    axis.set_yticks(range(len(single)), [f"{p.a} and {p.b}" for p in single])
    axis.set_xlim(0, 1), axis.set_ylim(len(single) - 0.3, -0.4)
    axis.set_xlabel("share of the questions" + (" (thick bar: single answers, thin: majority answers)" if voted else ""))
    for label, colour in zip(CELLS, CELL_COLOURS, strict=True):
        axis.bar(0, 0, color=colour, label=label)
    axis.plot([], [], "|", color="black", ms=12, mew=2, label="where neither would begin if errors were independent")
    axis.set_title("The four cells of each pair, least kappa first", fontsize=10)


def draw_bar(axis, pair: Pair, y: float, thickness: float) -> None:
    """One pair's cells side by side, with their shares where there is room."""
    o = pair.overlap
    counts = np.array([o.only_a, o.both, o.only_b, o.neither])
    shares = counts / counts.sum()
    starts = np.concatenate([[0], np.cumsum(shares)[:-1]])
    axis.barh([y] * 4, shares, thickness, starts, color=CELL_COLOURS, edgecolor="white", lw=0.8)
    for share, start in zip(shares, starts, strict=True):
        if share >= 0.04 and thickness > 0.3:
            axis.text(start + share / 2, y, f"{share:.2f}", ha="center", va="center", fontsize=9)
    wrong_a, wrong_b = shares[2] + shares[3], shares[0] + shares[3]
    axis.vlines(1 - wrong_a * wrong_b, y - thickness / 2, y + thickness / 2, color="black", lw=2)


def draw_kappa(axis, reports: dict[str, Report], single: Sequence[Pair], voted: Sequence[Pair], k: int) -> None:
    """Below the diagonal single answers, above it majority answers, on it each agent with another sample of itself."""
    names = list(reports)
    lower, upper = (square(table, names, lambda pair: pair.overlap.kappa) for table in (single, voted))
    matrix = np.where(np.tri(len(names), k=-1, dtype=bool), lower, upper)  # [N,N]
    for i, found in enumerate(reports.values()):
        own = kappa_with_itself(found)
        matrix[i, i] = np.nan if own is None else own
    axis.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
    for (i, j), value in np.ndenumerate(matrix):
        text, dark = "" if np.isnan(value) else f"{value:.2f}", abs(value) > 0.6
        axis.text(j, i, text, ha="center", va="center", fontsize=10, color="white" if dark else "black")
    axis.set_xticks(range(len(names)), names), axis.set_yticks(range(len(names)), names)
    axis.tick_params(length=0)
    axis.set_title("kappa: red = errors coincide", fontsize=10)
    where = "below: single, above: majority answers\ndiagonal: two samples of one agent" if k > 1 else "single answers"
    axis.set_xlabel(where, fontsize=8)


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
    device = models.pick_device(o.device)
    if o.data == "tiny":
        settings = tinyworld.WarmStart(seed=o.seed, kind=o.cohort)
        loaded = [(model.to(device).eval(), t) for model, t in tinyworld.cohort(o.agents, settings=settings)]
        o.models = [f"tiny world, {o.cohort}"] * len(loaded)
    else:
        once = {source: models.load_model(source, device, o.dtype) for source in dict.fromkeys(o.models)}
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


if __name__ == "__main__":
    sys.exit(main())
