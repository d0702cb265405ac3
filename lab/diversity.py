"""How different the agents of a cohort are before any training: the four cells of each pair (the paper's Tables 5 to 7).

    python -m lab.diversity tiny                                     # the tiny world's agents
    python -m lab.diversity SMOLLM2 GEMMA --data sums --k 8          # any causal language models, hub names or folders
    python -m lab.diversity SMOLLM2 SMOLLM2 --data sums --rephrase B # one model, which reads two forms of the question

Co-RL needs a peer that is right where one is wrong. Every question falls into one of four cells: both agents right, only
the first, only the second, neither. From these come kappa (high: they are right and wrong on the same questions), Q, rho,
disagreement, double fault and rescue (where one is wrong, how often the other is right); the paper's c may be disagreement or
rescue. Omega is another thing: the chance that two wrong answers to one question are the same. Agents can fail on the same
questions (kappa high) and still never make the same mistake (omega 0). All are explained in evaluate.py.

Two readings, of K samples of each question:
  single answers    sample j of one agent beside sample j of the other. The paper counts one answer of a model to a
                    problem (as far as we know); this is the mean of K such counts, and the same for --k 1.
  majority answers  the agents' majority answers, one a question: the labels that Co-RL exchanges. A tie is not right.
Even one model's own two samples differ, so a pair's kappa is to be read beside the kappa of each agent with itself.
"""

import itertools
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from grpo import Agent
from lab import runs, setup, style, tinyworld
from lab.answers import same_answer
from lab.data import Problem, answer_style, load_problems, need_answers, need_rephrased
from lab.evaluate import Groups, Report, count_cells, evaluate, measures, omega
from lab.options import Count, Sampling, agent_names, command
from lab.report import align
from rewards import majority

# ---------------------------------------------------------------- measuring


class Pair(NamedTuple):
    """Two agents on the same questions."""

    a: str
    b: str
    shares: np.ndarray  # [4], of the questions: both right, only the first, only the second, neither
    found: dict[str, float]  # evaluate.measures
    error: float  # standard error of kappa, by leaving out one problem at a time (jackknife)
    omega: float | None  # evaluate.omega
    kind: str = ""  # how far apart the two agents are: one of KINDS


KINDS = ("other family", "same family", "same model")  # the blocks of the paper's Table 6 and Figure 2d, most different first


def kind_of(a: Agent, b: Agent) -> str:
    """How far apart two agents are: by the architecture of their models, and whether they are one and the same model."""
    families = {agent.model.config.model_type for agent in (a, b)}
    return KINDS[0] if len(families) > 1 else KINDS[2] if a.model is b.model else KINDS[1]


def pairs(answers: dict[str, Groups], truths: Sequence[str], kinds: dict[tuple[str, str], str] | None = None) -> list[Pair]:
    """Every two agents, by kind, and in each the least kappa (the most complementary pair) first. Answers are [P][K]."""
    right = {name: [[same_answer(x, truth) for x in group] for group, truth in zip(given, truths, strict=True)]
             for name, given in answers.items()}  # fmt: skip
    table = []
    for a, b in itertools.combinations(answers, 2):
        cells = np.array([count_cells(x, y) for x, y in zip(right[a], right[b], strict=True)])  # [P,4]
        whole = cells.sum(0)  # [4]
        left = np.array([measures(*row)["kappa"] for row in (whole - cells).tolist()])  # [P]
        error = float(np.sqrt((len(left) - 1) * left.var()))
        found, kind = measures(*whole.tolist()), (kinds or {}).get((a, b), "")
        table.append(Pair(a, b, whole / whole.sum(), found, error, omega(answers[a], answers[b], truths), kind))
    return sorted(table, key=lambda pair: (KINDS.index(pair.kind) if pair.kind else 0, pair.found["kappa"]))


def two_readings(reports: dict[str, Report], truths: Sequence[str], kinds=None) -> tuple[list[Pair], list[Pair]]:
    """All pairs by single answers and by majority answers, in the order of `pairs`."""
    single = {name: found.answers for name, found in reports.items()}
    voted = {name: [[majority(group)] for group in given] for name, given in single.items()}
    return pairs(single, truths, kinds), pairs(voted, truths, kinds)


def kappa_with_itself(found: Report) -> float | None:
    """Kappa of an agent's sample j with its sample j+1: what sampling alone leaves of the overlap. None for one sample."""
    cells = np.sum([count_cells(group, [*group[1:], group[0]]) for group in found.right], axis=0)  # [4]
    return measures(*cells.tolist())["kappa"] if found.k > 1 else None


# ---------------------------------------------------------------- text


def digits(value: float | None) -> str:
    """Two digits, or a stroke where there is no value."""
    return "-" if value is None else f"{value:.2f}"


def agent_table(reports: dict[str, Report], sources: Sequence[str]) -> str:
    """pass@1 with its interval and maj@k of each agent, by topic where there are a few."""
    k, topics = next(iter(reports.values())).k, next(iter(reports.values())).by_topic
    rows = [("agent", "pass@1", "95% interval", f"maj@{k}", "length", "cut off", "kappa with itself", "model")]
    rows += [(name, f"{r.pass1:.3f}", "({:.3f}, {:.3f})".format(*r.interval), f"{r.majk:.3f}", f"{r.length:.1f}",
              f"{r.truncated:.2f}", digits(kappa_with_itself(r)), source)
             for (name, r), source in zip(reports.items(), sources, strict=True)]  # fmt: skip
    by_topic = [("pass@1 by topic", *reports), *((t, *(digits(r.by_topic[t]) for r in reports.values())) for t in topics)]
    return align(rows) + (f"\n\n{align(by_topic)}" if 2 <= len(topics) <= 12 else "")


def pair_table(table: Sequence[Pair]) -> str:
    """The cells, as shares, and the measures of every pair, in the order given; kappa with its standard error."""
    words = (name.replace("_", " ") for name in table[0].found)
    rows = [("pair", "of", "both", "only 1st", "only 2nd", "neither", *words, "omega")]
    for pair in table:
        kappa, *others = map(digits, pair.found.values())
        cells = (f"{share:.3f}" for share in pair.shares)
        rows.append((f"{pair.a} {pair.b}", pair.kind or "-", *cells, f"{kappa} ± {pair.error:.2f}", *others, digits(pair.omega)))
    told = ["(an agent that is always right, or always wrong, tells nothing of the other: kappa, Q, rho are 0)"]
    one_sided = any(0 in (s[0] + s[1], s[2] + s[3], s[0] + s[2], s[1] + s[3]) for s in (pair.shares for pair in table))
    return "\n".join([align(rows), *told * one_sided])


# ---------------------------------------------------------------- the figure

CELLS = {"only the first is right": style.SKY, "both": style.GREEN, "only the second": style.AMBER, "neither": "#bbbbbb"}
HEADS = ("kappa:{}\nright and wrong\non the same\nquestions", "rescue:\none is wrong,\nthe other is\nright",
         "omega:{}\ntwo wrong\nanswers are\nthe same")  # fmt: skip


def draw(reports: dict[str, Report], single: Sequence[Pair], voted: Sequence[Pair], what: str) -> Figure:
    """overlap.png: the four cells of each pair and reading, a bar each; beside it its kappa, rescue and omega."""
    rows = [(q, reading) for p in single for reading, table in (("single", single), ("majority", voted))
            for q in table if (q.a, q.b) == (p.a, p.b)]  # fmt: skip
    figure = Figure(figsize=(10, 2.6 + 0.5 * len(rows)), layout="constrained")
    cells, numbers = figure.subplots(1, 2, sharey=True, width_ratios=(5, 4))
    for y, (pair, _) in enumerate(rows):
        draw_bar(cells, pair, y)
    cells.set_yticks(range(len(rows)), [f"{p.kind}\n" * bool(p.kind) + f"{p.a}, {p.b}: {reading}" for p, reading in rows])
    cells.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5), xlabel="share of the questions", title="Who is right")
    bars = [cells.bar(0, 0, color=colour, label=label) for label, colour in CELLS.items()]
    mark = cells.plot([], [], "|", color=style.BLACK, ms=12, mew=2, label='where "neither" would begin by chance')
    figure.legend(handles=[*bars, *mark], loc="outside lower center", ncols=5, columnspacing=0.9, handlelength=1.2, fontsize=10)
    draw_numbers(numbers, [pair for pair, _ in rows], coloured=len(reports) > 2)
    if voted:
        own = ", ".join(f"{name} {digits(kappa_with_itself(r))}" for name, r in reports.items())
        numbers.set_xlabel(f"kappa of an agent with itself:\n{own}", fontsize=10)
    p = single[0]
    same = "" if p.omega is None else f"; two wrong answers are the same in {p.omega:.0%} of cases"
    title = f"{p.a} and {p.b}: where one is wrong, the other is right in {p.found['rescue']:.0%} of cases{same}"
    figure.suptitle("\n".join([title, *textwrap.wrap(what, 100)]), fontsize=11)
    return figure


def draw_bar(axis, pair: Pair, y: float) -> None:
    """One pair's cells side by side, so that each agent's part is one piece; a mark where independent errors would end it."""
    both, only_a, only_b, neither = pair.shares
    start = 0.0
    for share, colour in zip((only_a, both, only_b, neither), CELLS.values(), strict=True):
        axis.barh(y, share, 0.7, start, color=colour, edgecolor="white", lw=0.8)
        if share >= 0.07:
            axis.text(start + share / 2, y, f"{share:.2f}", ha="center", va="center", fontsize=10,
                      bbox={"fc": colour, "ec": "none", "pad": 1})  # fmt: skip
        start += share
    axis.vlines(1 - (only_b + neither) * (only_a + neither), y - 0.35, y + 0.35, color=style.BLACK, lw=2)


def draw_numbers(axis, table: Sequence[Pair], coloured: bool) -> None:
    """kappa, rescue and omega of each row; the colours of kappa and omega find a pair among many."""
    shades = np.array([[p.found["kappa"], np.nan, np.nan if p.omega is None else p.omega] for p in table])  # [rows,3]
    if coloured:
        axis.imshow(shades, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for y, p in enumerate(table):
        for x, text in enumerate((f"{digits(p.found['kappa'])} ± {p.error:.2f}", digits(p.found["rescue"]), digits(p.omega))):
            ink = "white" if coloured and abs(shades[y, x]) > 0.6 else "black"
            axis.text(x, y, text, ha="center", va="center", color=ink)
    axis.set_xticks(range(3), [head.format(" red =" if coloured else "") for head in HEADS], fontsize=10)
    axis.set_xlim(-0.5, 2.5)
    axis.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False, labelleft=False)
    axis.spines[:].set_visible(False)


# ---------------------------------------------------------------- the command


@dataclass(kw_only=True)
class Options(Sampling):
    """All there is to set."""

    models: list[str]  # hub names or folders of causal language models, at least two; or tiny, the tiny world
    data: str | None = None  # problems with answers: tiny, or a source of lab/data.py (its test part): sums, gsm8k, a file, ...
    limit: Count | None = None  # only the first problems (tiny: so many in all, evenly over its topics; default 120)
    agents: Count = 2  # tiny world: how many agents
    cohort: Literal[tuple(tinyworld.KINDS)] = "complementary"  # tiny world: kind of a cohort of two
    k: Count = 8  # samples of each problem
    max_new_tokens: Count | None = None  # longest completion (default: 40; 512 for others than tiny, sums and products)
    rephrase: list[str] | None = None  # the agents (A B ...) that read the rephrased question
    out: str = "overlap.png"  # the figure

    def __post_init__(self):
        self.tiny = self.models == ["tiny"]
        self.data = self.data or ("tiny" if self.tiny else None)
        self.names = agent_names(self.agents if self.tiny else len(self.models))
        self.max_new_tokens = self.max_new_tokens or (40 if self.data in ("tiny", "sums", "products") else 512)
        self.answer, self.rephrase = self.answer or answer_style(self.data or ""), self.rephrase or []


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
        found = need_answers(load_problems(o.data, "test", o.limit), o.data, "measuring")
    if o.rephrase:
        need_rephrased(found, o.data, "--rephrase")
    return found


def measure(o: Options) -> int:
    """Sample, print the tables, draw the figure. Returns the exit code."""
    problems, loaded = read_problems(o), setup.load(o, share=True)
    agents = setup.make_agents(o, loaded, [None] * len(loaded), rephrase=o.rephrase)
    if o.tiny:
        o.models = [f"tiny world, {o.cohort}"] * len(loaded)
    problems = runs.fitting(problems, agents, o.max_new_tokens)
    reports = {
        a.name: evaluate(a, problems, o.k, o.max_new_tokens, o.temperature, runs.generator(o.seed, runs.EVALUATION, n))
        for n, a in enumerate(agents)
    }
    sources = [m + (", rephrased" if name in o.rephrase else "") for m, name in zip(o.models, o.names, strict=True)]
    kinds = {(a.name, b.name): kind_of(a, b) for a, b in itertools.combinations(agents, 2)}
    single, voted = two_readings(reports, [p.answer for p in problems], kinds)
    what = f"{len(problems)} problems of {Path(o.data).name}, {o.k} samples of each at temperature {o.temperature:g}"
    print(f"{what}\n\n{agent_table(reports, sources)}")
    print(f"\nsingle answers, {len(problems) * o.k} of each agent\n{pair_table(single)}")
    if o.k > 1:
        print(f"\nmajority answers, {len(problems)} of each agent\n{pair_table(voted)}")
    who = ", ".join(f"{name} = {Path(source).name}" for name, source in zip(o.names, sources, strict=True))
    with style.look():
        style.save(draw(reports, single, voted if o.k > 1 else [], f"{who}, before training: {what}"), Path(o.out))
    print(f"\nwritten: {o.out}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; a user's mistake is one line and exit code 2."""
    return command("lab.diversity", arguments, __doc__, Options, RULES, measure, "nothing was written")


if __name__ == "__main__":
    sys.exit(main())
