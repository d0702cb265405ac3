"""The learning dynamics of Co-RL: six figures, forecasts, portraits of your own, a trained run laid over its portrait.

  python dynamics.py                                         six figures into runs/dynamics/ (noise.png: K = 4, --k and 64)
  python dynamics.py --start .6 .45                          the forecast for one start; .06 .98 .27 is a ring of three
  python dynamics.py --portrait --k 4 64 --start .6 .45 --save mine.pdf
  python dynamics.py --slice 3 .27 --save ring.svg           a ring of three, of which agent 3 starts at .27
  python dynamics.py --animate --omega .3 --save fall.gif    self-vote beside Co-RL
  python dynamics.py --overlay runs/corl-001                 theory against a trained run

The mathematics is in dynamics.py, the drawing in lab/portraits.py: `portrait` and `paths` draw into axes of your own, and every
draw_* takes a figure or makes one, and returns it (docs/plotting.md). Blue is right and orange is wrong everywhere.
"""  # What needs PyTorch is imported where a run is read: the theory does without, and starts in a second.

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import colors
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dynamics import FIELDS, NAMES, RIGHT, SCALES, SPLIT, WRONG, basin, sample_grpo, separatrix, simulate, threshold
from lab import motion, style
from lab.data import TINY, UserError
from lab.style import BLACK, BLUE, GREY, HALO, INK, ORANGE, PINK, SKY, YELLOW

SHADES = dict.fromkeys(NAMES, "#FFFFFF") | {WRONG: "#F3BC74", RIGHT: "#DDEFFA", SPLIT: "#D8D8D8"}  # apart in greyscale too
METHODS = {"corl": "Co-RL", "ttrl": "Self-vote (TTRL)", "pooled": "Pooled vote", "gt": "Ground truth"}
RATES = {"std": "q of GRPO", "none": "q of GRPO without std", "paper": "q = p(1 − p)"}

# ---------------------------------------------------------------- one square (p_A, p_B), drawn in every figure


def square(ax, xlabel="$p_A$  (A is right)", ylabel="$p_B$  (B is right)"):
    """Axes of two probabilities; beside others that share their y axis, without its label."""
    inner = len(ax.get_shared_y_axes().get_siblings(ax)) > 1 and not ax.get_subplotspec().is_first_col()
    ticks, words = np.arange(5) / 4, ["0", "", "0.5", "", "1"]
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xticks=ticks, yticks=ticks, xticklabels=words,
           yticklabels=words, xlabel=xlabel, ylabel="" if inner else ylabel)  # fmt: skip


def settings(K=8, eta=1.0, scale="std", omega=1.0, method="corl") -> str:
    """The theory's numbers in words, as every figure carries them."""
    votes, rates = (", ".join(f"{x:g}" for x in np.ravel(values)) for values in (K, eta))
    said = [f"K = {votes}", RATES.get(scale, "q of your own"), *[f"η = {rates}"] * bool(np.any(np.asarray(eta) != 1))]
    return ", ".join(said + [f"ω = {omega:.2g}"] * (method == "corl"))


def portrait(ax, K=8, eta=1.0, scale="std", omega=1.0, method="corl", arrows=15, slice=None, title=None, legend=False) -> float:
    """Basins, boundary, fixed points and the direction of the field, into `ax`. Returns the share of starts that end right.

    slice: (agent, p) draws a ring of three instead, with that agent (1, 2 or 3) held at p. title: your own, "" for none, None
    for one that says what is drawn; legend: below the figure. ValueError as in dynamics.py.
    """
    theory = {"K": K, "eta": eta, "scale": scale, "omega": omega, "method": method}
    x = (np.arange(200) + 0.5) / 200
    if slice:
        share, whose = _slice(ax, *slice, **theory), f" with $p_{int(slice[0])}$ = {slice[1]:g}: all three"
    else:
        label = basin(np.stack(np.meshgrid(x, x), -1), **theory)  # [200, 200]
        ax.pcolormesh(x, x, label, cmap=colors.ListedColormap([SHADES[v] for v in sorted(SHADES)]), vmin=-1.5, vmax=3.5,
                      shading="nearest", rasterized=True)  # fmt: skip
        at = (np.arange(arrows) + 0.5) / arrows
        P = np.stack(np.meshgrid(at, at), -1)
        v = FIELDS[method](P, K, eta, scale, omega)
        v = v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-12)  # direction only: speeds differ 1000-fold
        ax.quiver(P[..., 0], P[..., 1], v[..., 0], v[..., 1], color="#8A8A8A", scale=arrows * 1.7, width=0.004, pivot="mid",
                  headwidth=4, zorder=2)  # fmt: skip
        ax.plot(*_boundary(**theory), color=BLACK, lw=1.6, ls="--", zorder=3)
        _fixed_points(ax, K, omega, method)
        if method == "corl" and omega == 1 and len({*np.ravel(K)}) == len({*np.ravel(eta)}) == 1 and not callable(scale):
            ax.text(0.3, 0.7, "$p_A + p_B = 1$", rotation=-45, ha="center", va="center", path_effects=HALO, zorder=5)
        square(ax)
        share, whose = (label == RIGHT).mean(), ": both"
    text = f"{METHODS[method]}{whose} end right from {share:.0%} of starts\n{settings(**theory)}"
    ax.set_title(text if title is None else title)
    if legend:
        key(ax.figure, "right", "wrong", *["split"] * (method == "ttrl"), "boundary", *(() if slice else POINTS), ncols=3)
    return share


def _boundary(K, eta, scale, omega, method):
    """x and y of the line between the basins of two agents."""
    line = np.concatenate([np.geomspace(1e-4, 0.02, 40), np.linspace(0.02, 0.98, 193), 1 - np.geomspace(0.02, 1e-4, 40)])
    fixed = {"pooled": ([0, 1], [1, 0]), "ttrl": ([0.5, 0.5, np.nan, 0, 1], [0, 1, np.nan, 0.5, 0.5]), "gt": ([], [])}
    return fixed[method] if method in fixed else (line, separatrix(line, K, eta, scale, omega))


def _fixed_points(ax, K, omega, method):
    """Filled disc: stable. Diamond: saddle. Open circle: unstable."""
    corners, sides = [(0, 0), (1, 1), (0, 1), (1, 0)], [(0.5, 0), (0.5, 1), (0, 0.5), (1, 0.5)]
    middle = [[threshold(int(k), omega) if method == "corl" else 0.5 for k in np.broadcast_to(K, 2)]]
    kinds = (corners, sides, middle) if method == "ttrl" else (corners[:2], middle, corners[2:])
    kinds = ([(1, 1)],) if method == "gt" or omega == 0 else kinds
    for points, marker, face in zip(kinds, "oDo", (BLACK, YELLOW, "white"), strict=False):
        ax.plot(*np.transpose(points), marker, ls="", ms=8, mfc=face, mec=BLACK, mew=1.4, zorder=6, clip_on=False)


def ring_boundary(x, agent: int, p: float, **theory) -> np.ndarray:
    """Height of the boundary above each x [X] in a slice of the ring of three, where one agent starts at p.

    Whatever lies above a start that goes right goes right too, so along y that basin begins once.
    """
    low, high = np.full(len(x), 0.005), np.full(len(x), 0.995)  # at 0 and 1 nothing moves
    for _ in range(2):  # 33 points, then 33 in the gap
        y = np.linspace(low, high, 33)  # [33, X]
        P = np.insert(np.stack([np.broadcast_to(x, y.shape), y], -1), agent - 1, p, axis=-1)
        first = (basin(P, **theory) != RIGHT).sum(0)[None]  # index of the lowest y that goes right
        low = np.take_along_axis(y, np.maximum(first - 1, 0), 0)[0]
        high = np.take_along_axis(y, np.minimum(first, 32), 0)[0]
    return np.where(first[0] > 32, 1.0, (low + high) / 2)  # nothing goes right


def _fill(ax, x, y):
    ax.fill_between(x, y, 1, color=SHADES[RIGHT], lw=0)
    ax.fill_between(x, 0, y, color=SHADES[WRONG], lw=0)


def _slice(ax, agent, p, **theory) -> float:
    """A slice of the cube of three agents' starts; returns the share of it that ends right."""
    if theory["method"] != "corl" or agent not in (1, 2, 3):
        raise ValueError("a slice is (agent, p): agent 1, 2 or 3 of a ring of three under Co-RL, and where it starts")
    x = np.linspace(0.005, 0.995, 80)
    y = ring_boundary(x, int(agent), p, **theory)
    _fill(ax, x, y)
    ax.plot(x, y, color=BLACK, lw=1.6, ls="--")
    square(ax, *(f"$p_{n}$" for n in (1, 2, 3) if n != agent))
    return 1 - y.mean()


def paths(ax, starts, **theory) -> None:
    """Trajectories from the starts [S, 2], coloured by where they end, with an arrow half way along each."""
    if any(np.size(start) != 2 for start in starts):
        raise ValueError("a start in the square is two numbers, p of each agent")
    _, P = simulate(starts, t_max=1500, **theory)  # [T, S, 2]
    for start, end, line in zip(starts, basin(starts, **theory), np.swapaxes(P, 0, 1), strict=True):
        color = {RIGHT: BLUE, WRONG: ORANGE}.get(int(end), "#555555")
        ax.plot(*line.T, color=color, lw=1.8, zorder=4)
        ax.plot(*start, "o", color=color, ms=4, zorder=4)
        along = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
        if along[-1] > 0:
            i = int(np.clip(np.searchsorted(along, along[-1] / 2), 1, len(line) - 1))
            ax.annotate("", line[i], line[i - 1], arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.8}, zorder=4)


def _dot(marker, face, text) -> Line2D:
    return Line2D([], [], ls="", marker=marker, mfc=face, mec=BLACK, ms=8, label=text)


POINTS = _dot("o", BLACK, "stable fixed point"), _dot("D", YELLOW, "saddle"), _dot("o", "white", "unstable")
KEY = {
    "right": Patch(color=SHADES[RIGHT], label="all agents end right"), "wrong": Patch(color=SHADES[WRONG], label="all end wrong"),
    "split": Patch(color=SHADES[SPLIT], label="one right, one wrong"),
    "gain": Patch(fc=SHADES[RIGHT], ec=BLUE, hatch="///", lw=0, label="split by self-vote, right by Co-RL"),
    "boundary": Line2D([], [], color=BLACK, ls="--", label="boundary"),
}  # fmt: skip


def key(fig, *entries, ncols=4) -> None:
    """The one legend of a figure, below its panels: names of KEY, or handles."""
    fig.legend(handles=[KEY.get(entry, entry) for entry in entries], loc="outside lower center", ncols=ncols, columnspacing=1.4)


# ---------------------------------------------------------------- the six figures


def draw_basins(K=8, scale="std", fig=None) -> Figure:
    """Self-vote beside Co-RL: the same square, and what each method brings right of it."""
    fig = style.titled(fig, (8.3, 6.4), "A peer's vote turns half of the splits into agreement on the right answer",
                       f"Two agents, {settings(K, 1.0, scale)}. Co-RL turns the other half wrong: counted agent by agent, both\n"
                       "methods end right from half of the square. Peers help where starts are more often right.")  # fmt: skip
    axes = fig.subplots(1, 2, sharey=True)
    starts = [(0.9, 0.2), (0.2, 0.9), (0.62, 0.45), (0.8, 0.65), (0.1, 0.8), (0.85, 0.08), (0.4, 0.46), (0.2, 0.4)]
    for ax, method, whose in zip(axes, ("ttrl", "corl"), ("its own majority", "its peer's"), strict=True):
        share = portrait(ax, K, scale=scale, method=method, title="")
        paths(ax, starts, K=K, scale=scale, method=method)
        ax.set_title(f"{METHODS[method]}: each follows {whose}\nboth end right from {share:.0%} of starts")
    for x, top in (([0, 0.5], 1), ([0.5, 1], 0.5)):  # the triangles above the line in the two grey squares
        axes[1].fill_between(x, 1 - np.array(x), top, fc="none", ec=BLUE, hatch="///", lw=0, alpha=0.45)
    key(fig, "right", "wrong", "split", "gain", "boundary", *POINTS, ncols=3)
    return fig


def draw_unequal(K=8, scale="std", fig=None) -> Figure:
    """How the separatrix moves when one agent learns faster or votes with more samples."""
    fig = style.titled(fig, (8.3, 6), "A faster learner, or one with more votes, bends the boundary",
                       f"{RATES[scale]}, ω = 1; above a curve both end right, below it both end wrong; shaded: equal agents\n"
                       "(curves cross on the right: more votes label more surely, and learn faster near 0 and 1)")  # fmt: skip
    axes, (line, _) = fig.subplots(1, 2, sharey=True), _boundary(K, 1.0, scale, 1.0, "corl")
    speeds = [("16 ×", 16, 0.57), ("4 ×", 4, 0.66), ("as fast", 1, 0.78), ("¼ ×", 1 / 4, 0.84), ("1/16 ×", 1 / 16, 0.9)]
    sizes = [(f"{a}, {b}", x, {"K": (a, b)}) for a, b, x in ((4, 64, 0.7), (K, K, 0.76), (64, 4, 0.65))]
    panels = {f"B learns … as fast as A (K = {K})": [(text, x, {"K": K, "eta": (1, ratio)}) for text, ratio, x in speeds],
              "group sizes $K_A$, $K_B$ (equal rates)": sizes}  # fmt: skip
    for ax, (title, curves) in zip(axes, panels.items(), strict=True):
        ax.set_title(title)
        _fill(ax, [0, 1], [1, 0])
        for text, x, theory in curves:
            y = separatrix(line, scale=scale, **theory)
            ax.plot(line, y, color=BLACK, lw=2)
            ax.text(x, np.interp(x, line, y), text, ha="center", va="center", path_effects=HALO, fontsize=10.5)
        square(ax)
    at = float(separatrix(0.8, K, (1, 4), scale))
    axes[0].annotate(f"a slow A at 0.8\nsaves a B at {at:.2f}\nthat learns 4 ×\nas fast", (0.8, at), (0.03, 0.05), fontsize=10,
                     arrowprops={"arrowstyle": "-|>", "color": BLACK})  # fmt: skip
    key(fig, "right", "wrong")
    return fig


def draw_omega(K=8, scale="std", fig=None) -> Figure:
    """Fewer shared mistakes, larger basin: a wrong label that nobody shares pays nobody."""
    fig = style.titled(fig, (10, 4.2), "The fewer mistakes two agents share, the larger the basin of the right answer",
                       f"Co-RL, K = {K}, {RATES[scale]}; ω: the chance that two wrong answers are the same. "
                       "At ω = 0 every p rises, and only p = 0 stays.")  # fmt: skip
    for ax, omega in zip(fig.subplots(1, 4, sharey=True), (1.0, 0.5, 0.2, 0.0), strict=True):
        share = portrait(ax, K, scale=scale, omega=omega, arrows=8, title="")
        paths(ax, [(0.35, 0.42), (0.1, 0.55), (0.25, 0.1), (0.75, 0.15)], K=K, scale=scale, omega=omega)
        ax.set_title(f"ω = {omega:g}: {share:.0%} of starts\nend right")
    key(fig, "right", "wrong", "boundary", *POINTS, ncols=6)
    return fig


def draw_noise(K=8, scale="std", fig=None, eta=0.3, runs=30) -> Figure:
    """The probability of ending right under sampled GRPO. Runs at (a, b), (b, a) and their complements are pooled."""
    fig = style.titled(fig, (10, 4.5), "Finite samples: near the line $p_A + p_B = 1$ chance decides",
                       f"Co-RL by sampled GRPO, {RATES[scale]}, η = {eta:g}, ω = 1; {runs} runs from each of 24 × 24 starts.\n"
                       "Symmetrised: a cell is pooled with its three mirror images, where the theory is the same.")  # fmt: skip
    groups, x = sorted({4, K, 64}), (np.arange(24) + 0.5) / 24
    starts = np.broadcast_to(np.stack(np.meshgrid(x, x), -1), (runs, 24, 24, 2))
    axes = fig.subplots(1, len(groups), sharey=True)
    palette = colors.LinearSegmentedColormap.from_list("wrong-right", [ORANGE, "#F6C89F", "#F7F7F7", SKY, BLUE])
    for ax, votes in zip(axes, groups, strict=True):
        right = (sample_grpo(starts, votes, eta, scale=scale, seed=votes) > 0.5).all(-1).mean(0)  # [24, 24]
        right = (right + right.T + 2 - (right + right.T)[::-1, ::-1]) / 4
        image = ax.pcolormesh(x, x, right, cmap=palette, vmin=0, vmax=1, shading="nearest", rasterized=True)
        ax.plot([0, 1], [1, 0], "--", color=BLACK, lw=1.6)
        square(ax)
        ax.set_title(f"K = {votes}: chance decides (5 to\n95% right) from {np.mean(abs(right - 0.5) < 0.45):.0%} of starts")
    fig.colorbar(image, ax=axes, ticks=[0, 0.5, 1], label="share of runs that end right", shrink=0.8)
    return fig


def draw_ring(K=8, scale="std", fig=None) -> Figure:
    """Three agents: slices of the cube. The rule sum(p) = 3/2 is not the boundary, and the order of agents matters."""
    fig = style.titled(fig, (10, 4.2), "A ring of three: the sum of the starts does not decide, and their order matters",
                       f"Co-RL, {settings(K, 1.0, scale)}; slices of the cube of starts, one agent held; simulated boundary")
    axes = fig.subplots(1, 4, width_ratios=(1, 1, 1, 0.5))
    slices = [(3, 0.27, [(0.06, 0.98)]), (3, 0.02, [(0.95, 0.92)]), (2, 0.1, [(0.9, 0.45), (0.45, 0.9)])]
    for ax, (agent, value, marks) in zip(axes, slices, strict=False):
        portrait(ax, K, scale=scale, slice=(agent, value), title="")
        ax.set_title(f"$p_{agent}$ = {value:g}" + ": same numbers, other order" * (len(marks) > 1))
        ax.plot([0.5 - value, 1], [1, 0.5 - value], color=PINK, lw=2.2)
        for mark in marks:
            start = np.insert(np.array(mark), agent - 1, value)
            end = int(basin(start, K, scale=scale))
            ax.plot(*mark, "*", ms=15, mfc={RIGHT: BLUE, WRONG: ORANGE}.get(end, "white"), mec=BLACK, zorder=6)
            ax.text(max(mark[0] - 0.25, 0.3), mark[1] - 0.08, f"({', '.join(f'{p:g}' for p in start)})\n{NAMES[end]}",
                    ha="center", va="top", fontsize=10, path_effects=HALO, zorder=5)  # fmt: skip
    corners, arrow = [(0.5, 0.8), (0.95, 0.3), (0.05, 0.3)], {"arrowstyle": "-|>", "shrinkB": 14, "fc": BLACK}
    for n, corner in enumerate(corners):
        axes[3].annotate(n + 1, corners[(n + 1) % 3], corner, arrowprops=arrow, ha="center", va="center",
                         bbox={"boxstyle": "circle", "fc": "white"})  # fmt: skip
    axes[3].set(xlim=(-0.2, 1.2), ylim=(0, 1.1), aspect="equal", title="who labels\nwhom")
    axes[3].axis("off")
    key(fig, "right", "wrong", "boundary", Line2D([], [], color=PINK, lw=2.2, label="sum rule $p_1+p_2+p_3=3/2$"))
    return fig


def draw_starts(K=8, scale="std", fig=None, questions=1000, concentration=4.0, eta=0.2) -> Figure:
    """Accuracy after training from starts of Beta(c m, c (1 - m)): by sampled GRPO, and the gain of Co-RL in the limit."""
    rng, many, means = np.random.default_rng(0), 20_000, np.linspace(0.3, 0.7, 9)
    P = np.stack([rng.beta(concentration * m, concentration * (1 - m), (many, 2)) for m in means])  # [mean, question, agent]
    final = {m: sample_grpo(P[:, :questions], K, eta, 3000, scale, method=m).mean(-1) for m in ("ttrl", "corl", "pooled")}
    error = max(x.std(1).max() for x in final.values()) / questions**0.5
    fig = style.titled(fig, (8.3, 5.2), "Co-RL gains where the two agents differ and start right more often than wrong",
                       f"starts of both agents from Beta({concentration:g}m, {concentration:g}(1 − m)); left: sampled GRPO, "
                       f"{settings(K, 1.0, scale)}, η = {eta:g},\n{questions:,} questions (standard error at most {error:.3f}); "
                       f"right: the limit of small steps, {many:,} questions")  # fmt: skip
    left, right = fig.subplots(1, 2)
    left.plot(means, means, color=GREY, lw=1.5, ls=":", label="at the start")
    for method, mark in (("ttrl", "s-"), ("corl", "o-"), ("pooled", "x--")):
        left.plot(means, final[method].mean(1), mark, color=style.METHODS[method], lw=2, label=METHODS[method])
    for alike, color in ((0.0, BLUE), (0.5, SKY), (1.0, GREY)):
        Q = np.stack([P[..., 0], np.where(rng.random(P.shape[:2]) < alike, P[..., 0], P[..., 1])], -1)
        gain = (Q.sum(-1) > 1).mean(1) - (Q > 0.5).mean((1, 2))  # right: p_A + p_B > 1 (Co-RL), own p > 1/2 (self-vote)
        right.plot(means, gain, "o-", color=color, lw=2, label=f"on {alike:.0%} of questions")
    for ax in (left, right):
        ax.set(xlabel="mean accuracy m at the start", xticks=np.linspace(0.3, 0.7, 5))
        ax.legend(loc="upper left", title="both start alike" if ax is right else None, fontsize=10)
    left.set(ylabel="mean accuracy at the end", ylim=(0, 1), title="independent starts")
    right.set(ylabel="gain of Co-RL over self-vote", yticks=np.linspace(-0.1, 0.1, 5), title="starts alike on some questions")
    return fig


FIGURES = {draw.__name__[5:]: draw for draw in (draw_basins, draw_unequal, draw_omega, draw_ring, draw_noise, draw_starts)}

# ---------------------------------------------------------------- a run: forecast, outcome and overlay


def outcome(end) -> str:
    """The last accuracies in a word: "right" (all above .8), "wrong" (all below .2), "split" (some of each), else "under way"."""
    high, low = np.asarray(end) > 0.8, np.asarray(end) < 0.2
    return "under way" if not (high | low).all() else "right" if high.all() else "wrong" if low.all() else "split"


class Row(NamedTuple):
    """One topic's way from the first evaluation of a run to the last."""

    topic: str
    start: list[float]  # accuracy of each agent
    end: list[float]
    omega: float  # measured at the start where it was, else 1
    forecast: str  # right, wrong, split, boundary or undecided; "" where the theory says nothing
    outcome: str
    steps: int = 0

    @property
    def hit(self) -> bool | None:
        """Whether it ended as forecast; None where nothing was, or while it is under way."""
        told = self.forecast in ("right", "wrong", "split") and self.outcome != "under way"
        return self.forecast == self.outcome if told else None

    @property
    def stays(self) -> str:
        """What "staying put" would forecast: the side of one half on which each agent starts."""
        sides = {p > 0.5 for p in self.start}
        return "split" if len(sides) > 1 else "right" if sides == {True} else "wrong"


def topic_rows(run, omega: float | None = None) -> list[Row]:
    """A row for each topic of a `lab.runs.Run`; `omega` in place of the measured one.

    The forecast is made from the first evaluation alone, and nothing is fitted. The theory treats each topic as one question
    learned by itself, with small steps and one systematic mistake; where a real run misses, that is a finding.
    """
    rows, steps = [], run.measured[-1]["step"]
    for topic, points in _tracks(run).items():
        measured = run.measured[0].get("omega", {}).get(topic) if omega is None else omega
        says, start, end = _forecast(run.config, points[0], measured), points[0].tolist(), points[-1].tolist()
        ended = outcome(end) if len(points) > 1 else "under way"  # measured once, it has gone nowhere yet
        rows.append(Row(topic, start, end, 1.0 if measured is None else measured, says, ended, steps))
    return rows


def _tracks(run) -> dict[str, np.ndarray]:
    """topic -> the measured accuracies of the agents, [T, N]."""
    from lab.runs import by_topic

    lines = [by_topic(line) for line in run.measured]
    return {topic: np.array([line[topic] for line in lines], float) for topic in lines[0]}


def _theory(config: dict) -> dict:
    """The theory of a run, as arguments of dynamics.py; method None where there is none."""
    from rewards import REWARDS

    method = REWARDS[config["method"]].theory if config["method"] in REWARDS else None
    if config.get("votes") not in (None, config["k"]) and method != "gt":
        method = None  # the theory has one K, for the group and for the vote
    rates = config.get("lrs") or [1.0]
    eta = tuple(rate / min(rates) for rate in rates) if len(set(rates)) > 1 else 1.0
    return {"K": config["k"], "eta": eta, "scale": "std" if config["scale"] else "none", "method": method}


def _forecast(config: dict, start: np.ndarray, omega: float | None) -> str:
    """What the theory says; "" for other methods, one agent, and real data, where wrong answers scatter and lose the vote."""
    method = _theory(config)["method"]
    if not method or config["data"] not in TINY or len(start) < 2 or (method == "pooled" and len(start) > 2):
        return ""
    if (method == "pooled" or omega is None and method == "corl") and config.get("cohort") in ("errors", "different"):
        return ""  # agents made to err differently: the pooled theory knows no omega, and elsewhere nobody measured it
    return NAMES[int(basin(start, **_theory(config), omega=1.0 if omega is None else omega))]


def score(rows: list[Row]) -> str:
    """How many forecasts came true, of those whose topic has reached an end, and how many staying put would have got right."""
    called, waiting = [r for r in rows if r.hit is not None], [r for r in rows if r.forecast and r.outcome == "under way"]
    true, put = (f"{sum(found)} of {len(called)}" for found in ([r.hit for r in called], [r.stays == r.outcome for r in called]))
    parts = [f"{true} forecasts came true (staying put: {put})"] * bool(called)
    for row in waiting[:1]:
        parts.append(f"{len(waiting)} topic{'s are' if len(waiting) > 1 else ' is'} under way after {row.steps} steps")
    return "; ".join(parts)


def overlay(run, omega: float | None = None, fig=None) -> Figure:
    """A run of two agents over the phase portrait of its method; over none where the theory makes no forecast.

    omega: in place of the measured one; on real data it asks for the portrait. UserError for other numbers of agents.
    """
    if not run.measured or len(run.measured[0]["probes"]) != 2:
        raise UserError(f"{run.folder} is no evaluated run of two agents, and the phase portrait is for two")
    rows, config, tiny = topic_rows(run, omega), run.config, run.config["data"] in TINY
    theory = _theory(config) | {"omega": float(np.mean([row.omega for row in rows]))}
    name, method = METHODS.get(config["method"], config["method"]), theory["method"]
    tracks, curves = _tracks(run), {row.topic: predicted(row, theory) for row in rows if row.forecast}
    behind = method and (curves or omega is not None)  # real data: only if it is asked for
    about = [name, "tiny world" if tiny else config["data"], settings(**theory) if behind else f"K = {config['k']}",
             f"seed {config['seed']}", f"{rows[0].steps} steps", f"{config['probe_samples']} samples of each"]  # fmt: skip
    ends = Counter(row.outcome if row.outcome == "under way" else f"ended {row.outcome}" for row in rows).most_common()
    title = f"{len(rows)} {'topics' if tiny else 'problems'} under {name}: " + ", ".join(f"{n} {word}" for word, n in ends)
    near = [row.topic for row in rows if row.forecast and unsure(row, config["probe_samples"], theory)]
    if curves:
        far = {topic: distance(tracks[topic], curve) for topic, curve in curves.items()}
        title, worst = score(rows).replace("; ", "\n"), max(far, key=far.get)
        about[-1] += f"\non average {np.mean([*far.values()]):.3f} off the predicted curve, at most {far[worst]:.2f} ({worst})"
        about[-1] += "\n*: start too near the boundary to call" * bool(near)
    fig = style.titled(fig, (7.6, 8.2), title, ", ".join(about))
    ax = fig.subplots()
    if behind:
        portrait(ax, **theory, title="")
    models = [f": {Path(model).name}" for model in config.get("models") or []] * 2 or ["", ""]
    square(ax, *(f"$p_{n}$  (agent {n} is right{model})" for n, model in zip(run.measured[0]["probes"], models, strict=False)))
    handles = _topics(ax, rows, tracks, curves, near, config["probe_samples"]) if tiny else _problems(ax, rows)
    key(fig, *(["right", "wrong", *["split"] * (method == "ttrl"), "boundary"] if behind else []), *handles, ncols=3)
    return fig


def predicted(row: Row, theory: dict) -> np.ndarray:
    """The theory's curve [S, 2] from a row's start, with its own omega; of one point twice if nothing moves."""
    curve = simulate(row.start, **theory | {"omega": row.omega}, t_max=1000.0, close=0.02)[1]
    return np.repeat(curve, 2, axis=0) if len(curve) == 1 else curve


def distance(points: np.ndarray, curve: np.ndarray) -> float:
    """Mean distance of measured points [T, N] from a polyline [S, N], in units of probability; time plays no part."""
    a, step = curve[:-1], np.diff(curve, axis=0)  # [S-1, N]
    along = ((points[:, None] - a) * step).sum(-1) / np.maximum((step**2).sum(-1), 1e-300)  # [T, S-1]
    nearest = a + np.clip(along, 0, 1)[..., None] * step
    return float(np.linalg.norm(points[:, None] - nearest, axis=-1).min(1).mean())


def unsure(row: Row, samples: int, theory: dict) -> bool:
    """Whether, of 2,000 starts that agree with so many samples, Beta(right + 1, wrong + 1), under 95% have the row's forecast."""
    start = samples * np.array(row.start)
    draws = np.random.default_rng(0).beta(1 + start, 1 + samples - start, (2000, 2))
    ends = basin(draws, **theory | {"omega": row.omega})
    return bool(samples) and bool(np.mean([NAMES[int(end)] == row.forecast for end in ends]) < 0.95)


def _topics(ax, rows, tracks, curves, near, samples) -> list:
    """Each topic's measured path, its predicted curve and a label beside it; returns handles for the key."""
    taken, dashed = np.concatenate([*tracks.values(), [(0.3, 0.7)]]), {"color": BLACK, "lw": 1.2, "ls": (0, (4, 2))}
    for row, marker in zip(rows, "os^DPvX*" * len(rows), strict=False):
        points = tracks[row.topic]
        ax.plot(*points.T, color=INK, lw=1.8, marker=".", ms=6, zorder=5, path_effects=HALO)
        ax.plot(*curves.get(row.topic, points[:1]).T, **dashed, zorder=4)
        for point, face in zip(points[[0, -1]], ("white", INK), strict=True):
            ax.errorbar(*point, *np.sqrt(point * (1 - point) / max(1, samples))[::-1], color=INK, lw=1.2, zorder=4)
            ax.plot(*point, marker, ms=9, mfc=face, mec=INK, mew=1.6, zorder=7, clip_on=False)
        told = {True: f"ends {row.outcome}, as predicted", False: f"predicted {row.forecast}, ended {row.outcome}"}
        told = told.get(row.hit, row.outcome if row.outcome == "under way" else f"ended {row.outcome}")
        spot = _room(points, taken)
        taken = np.concatenate([taken, spot + np.array([(0, 0), (-0.12, 0), (0.12, 0)])])
        ax.annotate(f"{row.topic}{'*' * (row.topic in near)}\n{told}", points[0], spot, ha="center", va="center", fontsize=9.5,
                    arrowprops={"arrowstyle": "-", "color": INK, "lw": 0.8}, path_effects=HALO, zorder=8)  # fmt: skip
    return [_dot("o", "white", "before training"), _dot("o", INK, "after training"),
            Line2D([], [], color=INK, marker=".", label="measured"),
            Line2D([], [], color=INK, marker="+", ms=12, ls="", label=f"± 1 standard error, n = {samples}"),
            *[Line2D([], [], **dashed, label="predicted from the start")] * bool(curves)]  # fmt: skip


def _room(points, taken) -> np.ndarray:
    """Where a label of two lines goes beside the path [T, 2]: near its start if what is taken [M, 2] leaves room there."""
    shifts = np.array([(0, 0.062), (0, -0.062), (0.17, 0), (-0.17, 0), (0.17, 0.05), (-0.17, -0.05), (0.17, -0.05)])
    spots = (points[:, None] + shifts).reshape(-1, 2)
    late = np.arange(len(spots)) // len(shifts) / 20
    room = np.abs((spots[:, None] - taken) / (0.16, 0.06)).max(-1).min(1)
    inside = ((spots > (0.13, 0.02)) & (spots < (0.87, 0.98))).all(1)
    return spots[np.argmax(np.minimum(room, 1) - late - ~inside)]


def _problems(ax, rows) -> list:
    """Many single problems: where they start and end, the area of a dot being how many; returns handles for the key."""
    ends = np.array([[row.start, row.end] for row in rows])  # [P, 2, 2]
    ax.plot(*ends.transpose(2, 1, 0), color=INK, lw=0.8, alpha=0.3, zorder=4)
    for at, face in enumerate(("white", INK)):
        places, counts = np.unique(ends[:, at], axis=0, return_counts=True)
        ax.scatter(*places.T, s=24 * counts, fc=face, ec=INK, alpha=0.8, zorder=6 - at, clip_on=False)
    return [_dot("o", "white", "before training (area: problems)"), _dot("o", INK, "after training")]


# ---------------------------------------------------------------- the command

TAKES = {"slice": "k eta scale omega save", "portrait": "start k eta scale omega method save", "overlay": "omega save",
         "animate": "k eta scale omega save", "show": "k eta scale omega method", "start": "k eta scale omega method",
         "figures": "k scale out"}  # fmt: skip


def options() -> argparse.ArgumentParser:
    """The command line of `dynamics.py`."""
    parser = argparse.ArgumentParser("dynamics.py", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    what = parser.add_argument_group("what to make (six figures, if nothing is said)").add_mutually_exclusive_group()
    what.add_argument("--portrait", action="store_true", help="one phase portrait, with the paths from --start, into --save")
    what.add_argument("--slice", nargs=2, type=float, metavar=("N", "P"), help="a portrait of a ring of three, agent N at P")
    what.add_argument("--animate", action="store_true", help="a cloud of starts falling, self-vote beside Co-RL, into --save")
    what.add_argument("--show", action="store_true", help="a window: click a start, move the sliders")
    what.add_argument("--overlay", type=Path, metavar="RUN", help="a run of two agents over its portrait: RUN/overlay.png")
    theory = parser.add_argument_group("of which theory")
    theory.add_argument("--start", nargs="+", type=float, action="append", metavar="P", help="p of each agent; may be repeated")
    theory.add_argument("--k", nargs="+", type=int, help="votes in a group, one number for all or one for each agent (8)")
    theory.add_argument("--eta", nargs="+", type=float, help="learning rates, one for all or one for each agent (1)")
    theory.add_argument("--scale", choices=SCALES, help="q: GRPO's, GRPO's without std, the paper's p(1-p) (std)")
    theory.add_argument("--omega", type=float, help="the chance that two wrong answers are the same (1; a run's: as measured)")
    theory.add_argument("--method", choices=list(FIELDS), help="who labels: peer, self, both, truth (corl)")
    where = parser.add_argument_group("where to")
    where.add_argument("--save", type=Path, help="a file, whose ending is its format: png, pdf, svg; gif or mp4 if animated")
    where.add_argument("--out", type=Path, help="folder of the six figures (runs/dynamics)")
    return parser


def show(K=8, eta=1.0, scale="std", omega=1.0, method="corl") -> motion.Window:
    """Open a window to click starts into, also from a notebook. ValueError where there is no screen."""
    return motion.show(portrait, paths, K=K, eta=eta, scale=scale, omega=omega, method=method)


def run(args) -> None:
    """What the options ask for."""
    what = next((name for name in TAKES if getattr(args, name, None)), "figures")
    for name in "start k eta scale omega method save out".split():
        if getattr(args, name) is not None and name not in (what + " " + TAKES[what]).split():
            takes, whose = ", --".join(TAKES[what].split()), "the six figures" if what == "figures" else f"--{what}"
            raise UserError(f"--{name} does not go with {whose}, which take{'s' * (what != 'figures')} --{takes}")
    if args.omega is not None and args.method not in (None, "corl"):
        raise UserError(f"--omega goes with --method corl: {args.method} has no label of a peer's, or that of omega = 1")
    theory = {"K": 8, "eta": 1.0, "scale": "std", "omega": 1.0, "method": "corl"}
    given = {name: getattr(args, name.lower()) for name in theory if getattr(args, name.lower()) is not None}
    theory |= {name: x[0] if isinstance(x, list) and len(x) == 1 else x for name, x in given.items()}
    path = args.save or (args.overlay or Path()) / {"animate": "fall.gif"}.get(what, f"{what}.png")
    if what == "start":
        print("\n".join(motion.verdict(np.array(start), **theory) for start in args.start))
    elif what == "show":
        show(**theory)
    elif what == "animate":
        motion.fall(portrait, path, **theory)
    elif what == "overlay":
        from lab.runs import Run

        trained = Run(args.overlay)
        style.save(overlay(trained, args.omega), path)
        print(score(topic_rows(trained, args.omega)) or "no forecast: the theory does not speak of this run")
    elif what in ("portrait", "slice"):
        fig = Figure((6.6, 7.8), layout="constrained")
        portrait(ax := fig.subplots(), **theory, slice=args.slice, legend=True)
        if args.start:
            paths(ax, args.start, **theory)
        style.save(fig, path)
    for name, draw in FIGURES.items() if what == "figures" else ():
        path = (args.out or Path("runs/dynamics")) / f"{name}.png"
        if theory["scale"] == "paper" and name in ("noise", "starts"):
            print(f"left out: {path}, of sampled GRPO, which has a rate of its own and not the paper's", file=sys.stderr)
        else:
            style.save(draw(theory["K"], theory["scale"]), path)
            print(path)
    if what in ("portrait", "slice", "animate", "overlay"):
        print(path)


def main(argv=None) -> int:
    """The command of `dynamics.py`; a mistake gets one line and exit code 2."""
    parser = options()
    args = parser.parse_args(argv)
    try:
        with style.look():
            run(args)
    except (ValueError, OSError, UserError) as error:
        parser.exit(2, f"dynamics.py: {error}\n")
    except LookupError as error:
        parser.exit(2, f"dynamics.py: {args.overlay} is not a whole run of this version: it lacks {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
