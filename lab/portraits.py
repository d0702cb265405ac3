"""Six figures of the learning dynamics, and the command of `python dynamics.py`. The mathematics is all in dynamics.py.

Figures are 8 to 10 inches wide with 11-point text, so that they can be read at 800 pixels. Colours: Okabe and Ito's,
which people with any colour vision can tell apart; blue is right, orange is wrong, in every figure.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import patheffects, rc_context
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.widgets import Slider

from dynamics import (
    BOUNDARY,
    FIELDS,
    NAMES,
    RIGHT,
    SCALES,
    SPLIT,
    UNDECIDED,
    WRONG,
    basin,
    conserved,
    sample_grpo,
    separatrix,
    simulate,
    threshold,
)

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)
GREY = "#888888"
SHADES = {WRONG: "#FBE3BF", BOUNDARY: "#FFFFFF", RIGHT: "#CFE8F7", UNDECIDED: "#FFFFFF", SPLIT: "#ECECEC"}
TITLES = {"corl": "Co-RL: from the peer's vote", "ttrl": "Self-vote (TTRL): from its own vote",
          "pooled": "Pooled vote: from all votes", "gt": "Ground truth"}
STYLE = {"font.size": 11, "axes.titlesize": 11.5, "figure.titlesize": 12, "axes.spines.top": False,
         "axes.spines.right": False, "legend.frameon": False, "savefig.dpi": 200}


# ---------------------------------------------------------------- one square (p_A, p_B), drawn in every figure


def square(ax, xlabel="$p_A$  (A is right)", ylabel="$p_B$  (B is right)"):
    """Axes of two probabilities."""
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], xlabel=xlabel, ylabel=ylabel)
    ax.set_aspect("equal")


def shade(ax, label, x, y):
    """Colour the squares of a grid by their basin, labels [len(y), len(x)]."""
    ax.pcolormesh(x, y, label, cmap=ListedColormap([SHADES[v] for v in sorted(SHADES)]), vmin=-1.5, vmax=3.5,
                  shading="nearest", rasterized=True)


def portrait(ax, K=8, eta=1.0, scale="std", overlap=1.0, method="corl", arrows=15):
    """Basins, the direction of the field, and the boundary of two agents. Returns the share that ends right."""
    x = (np.arange(200) + 0.5) / 200
    label = basin(np.stack(np.meshgrid(x, x), -1), K, eta, scale, overlap, method)
    shade(ax, label, x, x)
    at = (np.arange(arrows) + 0.5) / arrows
    P = np.stack(np.meshgrid(at, at), -1)
    v = FIELDS[method](P, K, eta, scale, overlap)
    v = v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-12)  # direction only: speeds differ 1000-fold
    ax.quiver(P[..., 0], P[..., 1], v[..., 0], v[..., 1], color="#9A9A9A", scale=arrows * 1.7, width=0.004, pivot="mid",
              headwidth=4, zorder=2)
    if method == "corl":
        line = np.linspace(0, 1, 201)
        ax.plot(line, separatrix(line, K, eta, scale, overlap), color=BLACK, lw=1.6, ls="--", zorder=3)
    if method == "pooled":
        ax.plot([0, 1], [1, 0], color=BLACK, lw=1.6, ls="--", zorder=3)
    if method == "ttrl":
        ax.plot([0.5, 0.5, np.nan, 0, 1], [0, 1, np.nan, 0.5, 0.5], color=BLACK, lw=1.6, ls="--", zorder=3)
    square(ax)
    return (label == RIGHT).mean()


def paths(ax, starts, **theory):
    """Trajectories from the starts, coloured by where they end, with an arrow half way along."""
    starts = np.array(starts, float)
    ends = basin(starts, **theory)
    _, P = simulate(starts, t_max=1500, **theory)  # [T, S, 2]
    for start, end, line in zip(starts, ends, np.swapaxes(P, 0, 1), strict=True):
        color = {RIGHT: BLUE, WRONG: RED}.get(int(end), "#555555")
        ax.plot(*line.T, color=color, lw=1.8, zorder=4)
        ax.plot(*start, "o", color=color, ms=4, zorder=4)
        along = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
        i = int(np.clip(np.searchsorted(along, along[-1] / 2), 1, len(line) - 1))
        ax.annotate("", line[i], line[i - 1], arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.8}, zorder=4)


def fixed_points(ax, attract=(), saddle=(), repel=()):
    """Filled disc, diamond, open circle."""
    for points, marker, face in ((attract, "o", BLACK), (saddle, "D", YELLOW), (repel, "o", "white")):
        for x, y in points:
            ax.plot(x, y, marker, ms=8, mfc=face, mec=BLACK, mew=1.4, zorder=6, clip_on=False)


def key(fig, y=0.0):
    """The legend of shades and fixed points, below the panels."""
    def dot(marker, face, text):
        return Line2D([], [], ls="", marker=marker, mfc=face, mec=BLACK, ms=8, label=text)

    handles = [Patch(color=SHADES[RIGHT], label="both end right"), Patch(color=SHADES[WRONG], label="both end wrong"),
               Patch(color=SHADES[SPLIT], label="one right, one wrong"),
               Line2D([], [], color=BLACK, ls="--", label="boundary"), dot("o", BLACK, "attracting"),
               dot("D", YELLOW, "saddle"), dot("o", "white", "repelling")]
    fig.legend(handles=handles, loc="lower center", ncol=4, bbox_to_anchor=(0.5, y), columnspacing=1.4)


# ---------------------------------------------------------------- the six figures


def draw_basins(K, scale):
    """Self-vote beside Co-RL: the same square, and what each method brings right of it."""
    fig = Figure(figsize=(8, 5.5))
    left, right = fig.subplots(1, 2)
    starts = [(0.9, 0.2), (0.2, 0.9), (0.62, 0.45), (0.8, 0.65), (0.1, 0.8), (0.85, 0.08), (0.4, 0.46), (0.2, 0.4)]
    for ax, method in ((left, "ttrl"), (right, "corl")):
        share = portrait(ax, K, scale=scale, method=method)
        paths(ax, starts, K=K, scale=scale, method=method)
        ax.set_title(f"{TITLES[method]}\nboth end right from {share:.0%} of the square")
    corners = [(0, 0), (1, 1), (0, 1), (1, 0)]
    fixed_points(left, corners, [(0.5, 0), (0.5, 1), (0, 0.5), (1, 0.5)], [(0.5, 0.5)])
    fixed_points(right, corners[:2], [(0.5, 0.5)], corners[2:])
    right.text(0.315, 0.745, "$p_A + p_B = 1$", rotation=-45, ha="center", va="center", fontsize=11,
               bbox={"fc": SHADES[RIGHT], "ec": "none", "pad": 0}, zorder=5)
    right.set_ylabel("")
    fig.subplots_adjust(left=0.08, right=0.98, top=0.9, bottom=0.27, wspace=0.14)
    key(fig, 0.06)
    note = "By symmetry an average agent ends right from half of the square under both methods:\n"
    note += "peer votes help where starts are right more often than wrong."
    fig.text(0.5, 0.035, note, ha="center", va="center", fontsize=10, color="#444444")
    return fig


def draw_unequal(K, scale):
    """How the separatrix moves when one agent learns faster or votes with more samples."""
    fig = Figure(figsize=(8, 4.1))
    axes = fig.subplots(1, 2)
    edge = np.geomspace(1e-4, 0.02, 40)
    line = np.concatenate([edge, np.linspace(0.02, 0.98, 193), 1 - edge[::-1]])
    rates = [("16", 16, BLUE), ("4", 4, SKY), ("1", 1, BLACK), ("1/4", 1 / 4, ORANGE), ("1/16", 1 / 16, RED)]
    for text, ratio, color in rates:
        axes[0].plot(line, separatrix(line, K, (1, ratio), scale), color=color, lw=2.2, label=text)
    for pair, color in ((4, 64), BLUE), ((K, K), BLACK), ((64, 4), RED):
        axes[1].plot(line, separatrix(line, pair, 1.0, scale), color=color, lw=2.2, label=f"{pair[0]}, {pair[1]}")
    for ax, legend, title in ((axes[0], r"$\eta_B\,/\,\eta_A$", f"learning rates (K = {K})"),
                              (axes[1], "$K_A,\\ K_B$", "group sizes (equal rates)")):
        square(ax)
        ax.set_title(title)
        ax.legend(title=legend, loc="center left", bbox_to_anchor=(0.99, 0.5), handlelength=1.2)
        fixed_points(ax, saddle=[(0.5, 0.5)])
    at = float(separatrix(0.8, K, (1, 4), scale))
    axes[0].plot(0.8, at, "o", color=SKY, mec=BLACK, zorder=6)
    axes[0].annotate(f"(0.8, {at:.3f})", (0.8, at), (0.08, 0.1), fontsize=10, va="center",
                     arrowprops={"arrowstyle": "-", "color": GREY})
    axes[1].set_ylabel("")
    fig.suptitle("Unequal agents move the boundary: above a curve both end right, below it both end wrong", y=0.97)
    fig.subplots_adjust(left=0.08, right=0.875, top=0.85, bottom=0.13, wspace=0.46)
    return fig


def draw_overlap(K, scale):
    """Fewer shared mistakes, larger basin: a wrong label that nobody shares pays nobody."""
    fig = Figure(figsize=(10, 3.6))
    axes = fig.subplots(1, 4, sharey=True)
    for ax, overlap in zip(axes, (1.0, 0.5, 0.2, 0.0), strict=True):
        theory = {"K": K, "scale": scale, "overlap": overlap}
        share = portrait(ax, arrows=11, **theory)
        paths(ax, [(0.35, 0.42), (0.1, 0.55), (0.25, 0.1), (0.75, 0.15)], **theory)
        fixed_points(ax, [(1, 1)])
        if overlap > 0:
            cut = threshold(K, overlap)
            fixed_points(ax, [(0, 0)], [(cut, cut)], [(0, 1), (1, 0)])
        ax.set_title(rf"$\omega$ = {overlap:g}:  {share:.0%} right")
    for ax in axes[1:]:
        ax.set_ylabel("")
    title = r"Overlap of errors $\omega$: the chance that the peer's wrong answer is mine too; at 0 every $p$ rises"
    fig.suptitle(title, y=0.97)
    fig.subplots_adjust(left=0.065, right=0.985, top=0.83, bottom=0.15, wspace=0.1)
    return fig


def draw_noise(scale, eta=0.3, runs=30):
    """The probability of ending right under sampled GRPO. Runs at (a, b), (b, a) and their complements are pooled."""
    scale = "std" if scale == "paper" else scale
    fig = Figure(figsize=(10, 3.9))
    axes = fig.subplots(1, 3, sharey=True)
    colors = LinearSegmentedColormap.from_list("wrong-right", [RED, "#F6C89F", "#F7F7F7", SKY, BLUE])
    x = (np.arange(24) + 0.5) / 24
    starts = np.broadcast_to(np.stack(np.meshgrid(x, x), -1), (runs, 24, 24, 2))
    for ax, K in zip(axes, (4, 8, 64), strict=True):
        right = (sample_grpo(starts, K, eta, scale=scale, seed=K) > 0.5).all(-1).mean(0)
        right = (right + right.T) / 2
        right = (right + 1 - right[::-1, ::-1]) / 2
        image = ax.pcolormesh(x, x, right, cmap=colors, vmin=0, vmax=1, shading="nearest", rasterized=True)
        lines = ax.contour(x, x, right, levels=[0.05, 0.95], colors=BLACK, linewidths=1)
        ax.clabel(lines, fmt=lambda v: f"{v:.0%}", fontsize=9)
        ax.plot([0, 1], [1, 0], "--", color=BLACK, lw=1.6)
        square(ax)
        ax.set_title(f"K = {K}")
    for ax in axes[1:]:
        ax.set_ylabel("")
    fig.subplots_adjust(left=0.065, right=0.9, top=0.82, bottom=0.14, wspace=0.1)
    bar = fig.colorbar(image, cax=fig.add_axes((0.92, 0.16, 0.016, 0.64)), ticks=[0, 0.5, 1])
    bar.ax.set_yticklabels(["0", "½", "1"])
    bar.set_label("P(both end right)", labelpad=2)
    fig.suptitle(rf"Sampled GRPO ($\eta$ = {eta:g}): near the line $p_A + p_B = 1$ chance decides", y=0.97)
    return fig


def ring_boundaries(x, slices, K, scale):
    """Height of the boundary above each x, [slices, X]; a slice (agent, p) of the cube holds that agent at p.

    Whatever lies above a start that goes right goes right too, so along y that basin begins once.
    """
    low, high = np.full((len(slices), len(x)), 0.005), np.full((len(slices), len(x)), 0.995)  # at 0 and 1 nothing moves
    for _ in range(2):  # 33 points, then 33 in the gap
        y = np.linspace(low, high, 33)  # [33, slices, X]
        plane = np.stack([np.broadcast_to(x, y.shape), y], -1)
        P = np.stack([np.insert(plane[:, s], *held, axis=-1) for s, held in enumerate(slices)], 1)
        first = (basin(P, K, scale=scale) != RIGHT).sum(0)[None]  # index of the lowest y that goes right
        low = np.take_along_axis(y, np.maximum(first - 1, 0), 0)[0]
        high = np.take_along_axis(y, np.minimum(first, 32), 0)[0]
    return (low + high) / 2


def draw_ring(K, scale):
    """Three agents: slices of the cube. The rule sum(p) = 3/2 is not the boundary, and the order of agents matters."""
    fig = Figure(figsize=(10, 4.4))
    axes = fig.subplots(1, 3)
    x = np.linspace(0.005, 0.995, 80)
    slices = [(2, 0.27, [(0.06, 0.98)]), (2, 0.02, [(0.95, 0.92)]), (1, 0.1, [(0.9, 0.45), (0.45, 0.9)])]
    heights = ring_boundaries(x, [s[:2] for s in slices], K, scale)
    for ax, y, (fixed, value, marks) in zip(axes, heights, slices, strict=True):
        ax.fill_between(x, 0, y, color=SHADES[WRONG], lw=0)
        ax.fill_between(x, y, 1, color=SHADES[RIGHT], lw=0)
        ax.plot(x, y, color=BLACK, lw=2)
        ax.plot([0.5 - value, 1], [1, 0.5 - value], "--", color=PINK, lw=2.2)
        square(ax, "$p_1$", "$p_3$" if fixed == 1 else "$p_2$")
        ax.set_title(f"$p_{fixed + 1}$ = {value:g}")
        for mark in marks:
            end = int(basin(np.insert(np.array(mark), fixed, value), K, scale=scale))
            ax.plot(*mark, "*", ms=15, mfc={RIGHT: BLUE, WRONG: RED}.get(end, "white"), mec=BLACK, zorder=6)
            shift, side = ((-11, -10), "right") if mark[0] > 0.4 else ((11, -1), "left")
            ax.annotate(NAMES[end], mark, shift, textcoords="offset points", ha=side, va="center",
                        bbox={"fc": SHADES[end], "ec": "none", "pad": 0.5}, zorder=5)
    fig.suptitle("Ring of three (1 labels 2, 2 labels 3, 3 labels 1): the sum rule is not the boundary", y=0.97)
    handles = [Patch(color=SHADES[RIGHT], label="all end right"), Patch(color=SHADES[WRONG], label="all end wrong"),
               Line2D([], [], color=BLACK, lw=2, label="true boundary"),
               Line2D([], [], color=PINK, lw=2.2, ls="--", label="sum rule $p_1+p_2+p_3=3/2$")]
    fig.legend(handles=handles, loc="lower center", ncol=4, columnspacing=1.4)
    fig.subplots_adjust(left=0.065, right=0.98, top=0.85, bottom=0.22, wspace=0.25)
    return fig


def draw_starts(K, scale, questions=1000, spread=4.0, eta=0.2):
    """Accuracy after training when starts are drawn from Beta(spread * mean, spread * (1 - mean)).

    Left: sampled GRPO. Right: the limit; an agent ends right if p_A + p_B > 1 (Co-RL) or if its p > 1/2 (self-vote).
    """
    scale = "std" if scale == "paper" else scale
    rng = np.random.default_rng(0)
    means = np.linspace(0.3, 0.7, 9)
    P = np.stack([rng.beta(spread * m, spread * (1 - m), (20000, 2)) for m in means])  # [mean, question, agent]
    some = P[:, :questions]
    final = {m: sample_grpo(some, K, eta, 3000, scale, method=m).mean((1, 2)) for m in ("ttrl", "corl", "pooled")}
    fig = Figure(figsize=(8, 4.5))
    left, right = fig.subplots(1, 2)
    left.plot(means, means, color=GREY, lw=1.5, ls=":", label="at the start")
    for method, color, mark, text in (("ttrl", ORANGE, "s-", "self-vote"), ("corl", BLUE, "o-", "Co-RL"),
                                      ("pooled", BLACK, "x--", "pooled vote")):
        left.plot(means, final[method], mark, color=color, lw=2, label=text, ms=7 if method == "pooled" else 6)
    left.set(xlabel="mean accuracy at the start", ylabel="mean accuracy at the end", ylim=(0, 1),
             title="Two agents, independent starts")
    left.legend(loc="upper left")
    for alike, color in ((0.0, BLUE), (0.5, SKY), (1.0, GREY)):
        same = rng.random(P.shape[:2]) < alike
        Q = np.stack([P[..., 0], np.where(same, P[..., 0], P[..., 1])], -1)
        gain = (Q.sum(-1) > 1).mean(1) - (Q > 0.5).mean((1, 2))
        right.plot(means, 100 * gain, "o-", color=color, lw=2, label=f"{alike:.0%}")
    right.axhline(0, color=BLACK, lw=0.8, zorder=0)
    right.set(xlabel="mean accuracy at the start", ylabel="Co-RL minus self-vote (points)", yticks=range(-10, 11, 5),
              ylim=(-11, 11), title="The gain comes from difference")
    right.legend(title="questions on which\nthe two start alike", loc="upper left")
    right.text(0.7, -9.8, "peer votes hurt where starts\nare wrong more often", ha="right", color="#444444")
    fig.subplots_adjust(left=0.085, right=0.985, top=0.91, bottom=0.13, wspace=0.27)
    return fig


def figures(K=8, scale="std") -> dict:
    """All six, by file name."""
    return {"basins.png": draw_basins(K, scale), "unequal.png": draw_unequal(K, scale),
            "overlap.png": draw_overlap(K, scale), "noise.png": draw_noise(scale), "ring.png": draw_ring(K, scale),
            "starts.png": draw_starts(K, scale)}


# ================================================================ theory against models really trained
# Theory against models really trained: the measured path of each topic over the phase portrait of dynamics.py.
#
# A run's folder has `config.json` (method, k, scale) and `metrics.jsonl`, where the line of every evaluation carries
# `probes`: the share of samples that are right, by agent and topic. Two agents make a point (p_A, p_B); the theory's
# forecast is made from the first point alone, and nothing is fitted. The theory treats each topic as one question learned
# by itself, with small steps, one systematic mistake, no KL and no clipping; where a real run misses, that is a finding.

COLORS = (BLUE, RED, GREEN, PINK, BLACK, ORANGE)
MARKERS = ("o", "s", "^", "D", "P", "v")
HALO = [patheffects.Stroke(linewidth=3.6, foreground="white"), patheffects.Normal()]
ENDS = (Line2D([], [], marker="o", mfc="white", mec="#444444", mew=1.8, ms=8, ls="", label="before training"),
        Line2D([], [], marker="o", mfc="#444444", mec="white", ms=9, ls="", label="after training"))


@dataclass(frozen=True)
class Run:
    """A training run as the theory sees it."""

    name: str
    method: str
    K: int
    scale: str  # "std" or "none"
    seed: int
    agents: list[str]
    samples: int | None  # behind each probe
    paths: dict[str, np.ndarray]  # topic -> measured points [T, N], the first before training


class Row(NamedTuple):
    """Forecast and outcome of one topic. `hit` is None without a forecast; for `sure` see `_sure`."""

    topic: str
    p_a: float
    p_b: float
    forecast: str
    sure: float | None
    outcome: str
    hit: bool | None
    distance: float | None
    end_a: float
    end_b: float

    @property
    def unsure(self) -> bool:
        """The start is within its binomial error of a boundary."""
        return self.sure is not None and self.sure < 0.95


# ---------------------------------------------------------------- reading


def _json(text: str, where: str) -> dict:
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError(f"{where} is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not a JSON object")
    return value


def load_run(folder) -> Run:
    """Read runs/<name>; ValueError, in one line, for what is missing. Points outside [0, 1] and NaN are skipped."""
    folder = Path(folder)
    for name in ("config.json", "metrics.jsonl"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} is not a run: it has no {name}")
    config = _json((folder / "config.json").read_text(), f"{folder / 'config.json'}")
    lines = enumerate((folder / "metrics.jsonl").read_text().splitlines(), 1)
    records = [_json(line, f"{folder / 'metrics.jsonl'}, line {i},") for i, line in lines if line.strip()]
    probes = [r["probes"] for r in records if r.get("probes")]
    if not probes:
        raise ValueError(f"{folder} has no probes: nothing was measured that a theory could be laid over")
    if not all(isinstance(p, dict) and all(isinstance(topics, dict) for topics in p.values()) for p in probes):
        raise ValueError(f"{folder / 'metrics.jsonl'} has probes that are not agent -> topic -> share")
    if not isinstance(config.get("probe_samples") or 0, int):
        raise ValueError(f"{folder / 'config.json'}: probe_samples is not a number of samples")
    if not isinstance(config.get("k"), int) or config["k"] < 1:
        raise ValueError(f"{folder / 'config.json'} has no k, the number of rollouts in a group")
    agents = list(probes[0])
    scale = "std" if config.get("scale", True) else "none"
    return Run(folder.resolve().name, str(config.get("method")), config["k"], scale, config.get("seed", 0), agents,
               config.get("probe_samples") or None, _paths(probes, agents))


def _paths(probes: list[dict], agents: list[str]) -> dict[str, np.ndarray]:
    """The measured points [T, N] of each topic, in the order of the first probe; a topic without a start is left out."""
    paths = {}
    for topic in probes[0][agents[0]]:
        values = [[probe.get(agent, {}).get(topic) for agent in agents] for probe in probes]
        points = np.array([[np.nan if v is None else v for v in row] for row in values], float)  # [T, N]
        good = ((points >= 0) & (points <= 1)).all(1)
        if good[0]:
            paths[topic] = points[good]
    return paths


# ---------------------------------------------------------------- forecast and outcome


def outcome(end) -> str:
    """The last probe in a word: right above one half for all, wrong below for all, else split."""
    end = np.asarray(end)
    return NAMES[RIGHT if (end > 0.5).all() else WRONG if (end < 0.5).all() else SPLIT]


def _sure(start, samples, forecast, theory) -> float | None:
    """How sure the forecast is, given that a probe is a share of n samples: its share among 2,000 starts drawn from
    Beta(right + 1, wrong + 1)."""
    if not samples:
        return None
    draws = np.random.default_rng(0).beta(1 + samples * start, 1 + samples * (1 - start), (2000, len(start)))
    return float((basin(draws, **theory) == forecast).mean())


def distance(points: np.ndarray, curve: np.ndarray) -> float:
    """Mean distance of measured points [T, N] from a polyline [S, N], in units of probability; time plays no part."""
    a, step = curve[:-1], np.diff(curve, axis=0)  # [S-1, N]
    along = ((points[:, None] - a) * step).sum(-1) / np.maximum((step**2).sum(-1), 1e-300)  # [T, S-1]
    nearest = a + np.clip(along, 0, 1)[..., None] * step
    return float(np.linalg.norm(points[:, None] - nearest, axis=-1).min(1).mean())


def compare(run: Run) -> list[Row]:
    """One row a topic. A method without a theory (see dynamics.FIELDS) gets no forecast, only its outcome."""
    if len(run.agents) != 2:
        raise ValueError(f"{run.name} has {len(run.agents)} agents; the phase portrait is for two")
    if not run.paths:
        raise ValueError(f"{run.name} has no usable probe before training, so there is no start to forecast from")
    theory, rows = {"K": run.K, "scale": run.scale, "method": run.method}, []
    for topic, points in run.paths.items():
        start, end = points[0], outcome(points[-1])
        forecast, sure, hit, far = "none", None, None, None
        if run.method in FIELDS:
            label = int(basin(start, **theory))
            forecast, sure = NAMES[label], _sure(start, run.samples, label, theory)
            hit = forecast == end if label in (RIGHT, WRONG, SPLIT) else None
            far = distance(points[1:], predicted(run, start)) if len(points) > 1 else None
        rows.append(Row(topic, *start, forecast, sure, end, hit, far, *points[-1]))
    return rows


def predicted(run: Run, start: np.ndarray) -> np.ndarray:
    """The theory's curve from a start, [S, 2]; of one point twice if nothing moves."""
    curve = simulate(start, run.K, scale=run.scale, method=run.method, t_max=1000.0, close=0.02)[1]
    return np.repeat(curve, 2, axis=0) if len(curve) == 1 else curve


def table(rows: list[Row]) -> str:
    """The rows as text, with the count of forecasts that came true and the starts too near the line to call."""
    width = max(len("topic"), *(len(r.topic) for r in rows))
    lines = [f"{'topic':{width}}  start p_A, p_B   forecast   sure  outcome  hit   off path"]
    for r in rows:
        sure, far = ("-" if x is None else f"{x:.2f}" for x in (r.sure, r.distance))
        hit = {True: "yes", False: "NO", None: "-"}[r.hit]
        near = "  start within its binomial error of the boundary" if r.unsure else ""
        start = f"{r.p_a:9.2f}, {r.p_b:.2f}"
        lines.append(f"{r.topic:{width}}  {start}   {r.forecast:9}  {sure:>4}  {r.outcome:7}  {hit:3}  {far:>8}{near}")
    return "\n".join([*lines, score(rows)])


def score(rows: list[Row]) -> str:
    """How many of the forecasts that could be judged came true."""
    called = [r for r in rows if r.hit is not None]
    return f"{sum(r.hit for r in called)} of {len(called)} forecasts came true"


# ---------------------------------------------------------------- the overlay


def overlay(run, path) -> list[Row]:
    """Draw a two-agent run (a Run or its folder) over the phase portrait into `path`; the rows of the table come back."""
    run = run if isinstance(run, Run) else load_run(run)
    rows = compare(run)
    with rc_context(STYLE):
        fig = Figure(figsize=(8, 5.6))
        ax = fig.add_axes((0.075, 0.105, 0.577, 0.824))
        _background(ax, run)
        if len(rows) <= len(COLORS):
            for row, color, marker in zip(rows, COLORS, MARKERS, strict=False):
                _measured(ax, run, row, color, marker)
            _list(fig, rows)
        else:
            for row in rows:
                _measured(ax, run, row, {"right": BLUE, "wrong": RED}.get(row.outcome, GREY), "o", thin=True)
        _legend(fig, run, rows)
        title = f"{TITLES.get(run.method, run.method).split(':')[0]}, K = {run.K}"
        if run.method in FIELDS:
            title += f". Theory against trained models: {score(rows)}"
        fig.text(0.075, 0.95, title, fontsize=12)
        fig.savefig(path)
    return rows


def _background(ax, run):
    if run.method in FIELDS:
        portrait(ax, run.K, scale=run.scale, method=run.method)
    a, b = run.agents
    square(ax, f"$p_A$, agent {a} is right", f"$p_B$, agent {b} is right")


def _measured(ax, run, row, color, marker, thin=False):
    """The predicted curve, faint; the measured points joined; start open, with its standard error, and end filled.
    Thin, for many problems: start and end alone."""
    points = run.paths[row.topic]
    if thin:
        ax.plot(*points[[0, -1]].T, color=color, lw=1, alpha=0.5, zorder=5)
    else:
        ax.plot(*points.T, color=color, lw=1.8, marker=".", ms=5, zorder=5, path_effects=HALO)
    if run.method in FIELDS and not thin:
        ax.plot(*predicted(run, points[0]).T, color=color, lw=6, alpha=0.25, zorder=3, solid_capstyle="round")
    if run.samples and not thin:
        error = np.sqrt(points[0] * (1 - points[0]) / run.samples)
        ax.errorbar(*points[0], xerr=error[0], yerr=error[1], color=color, lw=1.2, zorder=4)
    size = 5 if thin else 9
    ax.plot(*points[0], marker, ms=size, mfc="white", mec=color, mew=1.8, zorder=6, clip_on=False)
    ax.plot(*points[-1], marker, ms=size, mfc=color, mec="white", mew=1, zorder=7, clip_on=False)


def _list(fig, rows):
    """Beside the portrait: what happened to each topic."""
    for i, (row, color, marker) in enumerate(zip(rows, COLORS, MARKERS, strict=False)):
        y = 0.905 - 0.108 * i
        fig.add_artist(Line2D([0.69], [y], marker=marker, ms=9, mfc=color, mec="white", ls=""))
        fig.text(0.715, y, row.topic, color=color, weight="bold", va="center")
        told = f"forecast {row.forecast}{'?' if row.unsure else ''}"
        told = {True: f"{told} ✓", False: f"{told}, ended {row.outcome} ✗", None: f"ended {row.outcome}"}[row.hit]
        moved = f"({row.p_a:.2f}, {row.p_b:.2f}) → ({row.end_a:.2f}, {row.end_b:.2f})"
        fig.text(0.715, y - 0.019, f"{moved}\n{told}", fontsize=9, va="top", linespacing=1.25)


def _legend(fig, run, rows):
    """How to read it, bottom right."""
    many = len(rows) > len(COLORS)
    grey = {"color": "#444444"}
    handles = [*ENDS,
               Line2D([], [], marker="" if many else ".", **grey, label="from start to end" if many else "measured")]
    if run.method in FIELDS:
        shades = [(RIGHT, "right"), (WRONG, "wrong")] + [(SPLIT, "apart")] * (run.method == "ttrl")
        if not many:
            handles += [Line2D([], [], lw=6, alpha=0.25, **grey, label="predicted from the start")]
        handles += [Line2D([], [], lw=8, color=SHADES[s], label=f"predicted to end {word}") for s, word in shades]
    if any(r.unsure for r in rows) and not many:
        handles += [Line2D([], [], ls="", marker="$?$", **grey, label="start within sampling error")]
    if many:
        count = {name: sum(r.outcome == name for r in rows) for name in ("right", "wrong", "split")}
        handles += [Line2D([], [], lw=2, color=color, label=f"ended {name}: {count[name]}")
                    for name, color in (("right", BLUE), ("wrong", RED), ("split", GREY))]
    fig.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.665, 0.5 if many else 0.0), fontsize=9,
               labelspacing=0.35)


# ---------------------------------------------------------------- coupling: topics together against one at a time


def coupling(together: list, alone: list, path) -> list[tuple[str, list[Row], list[Row]]]:
    """Runs on several topics against runs on one each, over any number of seeds: (topic, rows alone, rows together).

    The theorem lets each question learn by itself. Weights are shared, so topics pull on one another; how often the
    forecast holds in each case shows how much. Only topics that were also trained alone are compared.
    """
    together, alone = ([r if isinstance(r, Run) else load_run(r) for r in runs] for runs in (together, alone))
    if not alone:
        raise ValueError("--coupling needs --alone: runs on one topic each, such as cohort.py --topics bracket")
    for run in alone:
        if len(run.paths) != 1:
            raise ValueError(f"{run.name} was not trained on one topic alone: it has {', '.join(run.paths) or 'none'}")
    if len({(r.method, r.K, r.scale) for r in together + alone}) > 1:
        raise ValueError("these runs differ in method, k or scale: they are not on one phase portrait")
    rows = [[row for run in runs for row in compare(run)] for runs in (alone, together)]
    topics = [t for t in dict.fromkeys(r.topic for r in rows[1]) if t in {r.topic for r in rows[0]}]
    if not topics:
        raise ValueError("no topic of the --alone runs appears in the --coupling runs")
    pairs = [(t, [r for r in rows[0] if r.topic == t], [r for r in rows[1] if r.topic == t]) for t in topics]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    _draw_coupling(pairs, together[0], path)
    return pairs


def _draw_coupling(pairs, run, path):
    with rc_context(STYLE):
        fig = Figure(figsize=(8, 5.1))
        axes = fig.subplots(1, 2, sharey=True)
        for side, (ax, title) in enumerate(zip(axes, ("Each topic trained alone", "All topics together"), strict=True), 1):
            _background(ax, run)
            for i, pair in enumerate(pairs):
                for row in pair[side]:
                    _arrow(ax, row, COLORS[i % len(COLORS)])
            ax.set_title(f"{title}\n{score([r for pair in pairs for r in pair[side]])}")
        axes[1].set_ylabel("")
        handles = [Line2D([], [], color=COLORS[i % len(COLORS)], lw=2.2, label=p[0]) for i, p in enumerate(pairs)]
        handles += [*ENDS, Line2D([], [], color="#444444", ls=":", lw=2, label="forecast failed")]
        fig.legend(handles=handles, loc="lower center", ncol=(len(handles) + 1) // 2, columnspacing=1.1, fontsize=10)
        fig.subplots_adjust(left=0.08, right=0.98, top=0.9, bottom=0.23, wspace=0.1)
        fig.savefig(path)


def _arrow(ax, row, color):
    """From start to end; a forecast that failed is dotted."""
    style = ":" if row.hit is False else "-"
    ax.plot([row.p_a, row.end_a], [row.p_b, row.end_b], style, color=color, lw=2, zorder=5)
    ax.plot(row.p_a, row.p_b, "o", ms=7, mfc="white", mec=color, mew=1.8, zorder=6, clip_on=False)
    ax.plot(row.end_a, row.end_b, "o", ms=8, mfc=color, mec="white", zorder=7, clip_on=False)


def coupling_table(pairs) -> str:
    """Topic by topic: mean start, and how many runs met the forecast and ended right, alone and together."""
    def cell(rows):
        return f"{sum(bool(r.hit) for r in rows)}/{len(rows)} met, {sum(r.outcome == 'right' for r in rows)} right"

    width = max(len("topic"), *(len(p[0]) for p in pairs))
    lines = [f"{'topic':{width}}  mean start   {'alone':18}  together"]
    for topic, alone, together in pairs:
        a, b = np.mean([[r.p_a, r.p_b] for r in alone + together], axis=0)
        lines.append(f"{topic:{width}}  {a:.2f}, {b:.2f}   {cell(alone):18}  {cell(together)}")
    for side, name in ((1, "alone"), (2, "together")):
        lines.append(f"{name}: {score([r for p in pairs for r in p[side]])}")
    return "\n".join(lines)


def command(run, together, alone, out: Path) -> None:
    """What `dynamics.py --overlay` and `--coupling` print and write."""
    if run:
        path = Path(run) / "overlay.png"
        print(table(overlay(run, path)))
    else:
        path = out / "coupling.png"
        print(coupling_table(coupling(together, alone or [], path)))
    print(path)


# ================================================================ the window

HELP = "Left click: a start. Right click: clear."


class Window:
    """The square with sliders for K, both learning rates and the overlap of errors, on a given figure."""

    def __init__(self, fig, K=8, eta=1.0, scale="std", overlap=1.0):
        eta_a, eta_b = np.broadcast_to(eta, 2)
        self.fig, self.scale, self.starts = fig, scale, []
        self.ax = fig.add_axes((0.1, 0.33, 0.8, 0.6))
        self.text = fig.text(0.5, 0.235, HELP, ha="center", va="center")
        self.sliders = {
            "K": self._slider(0, "votes K", 2, 64, K, 1),
            "eta_a": self._slider(1, r"rate $\eta_A$", 0.25, 4, eta_a, None),
            "eta_b": self._slider(2, r"rate $\eta_B$", 0.25, 4, eta_b, None),
            "overlap": self._slider(3, r"overlap $\omega$", 0, 1, overlap, None),
        }
        fig.canvas.mpl_connect("button_press_event", self.click)
        self.draw()

    def _slider(self, row, label, low, high, start, step) -> Slider:
        ax = self.fig.add_axes((0.25, 0.165 - 0.042 * row, 0.55, 0.03))
        slider = Slider(ax, label, low, high, valinit=start, valstep=step, color=BLUE)
        slider.on_changed(lambda _: self.draw())
        return slider

    def theory(self) -> dict:
        """What the sliders say, as arguments of the functions of dynamics.py."""
        v = {name: slider.val for name, slider in self.sliders.items()}
        return {"K": int(v["K"]), "eta": (v["eta_a"], v["eta_b"]), "scale": self.scale, "overlap": v["overlap"]}

    def click(self, event) -> None:
        """A left click in the square adds a start; a right click removes all."""
        if event.inaxes is not self.ax:
            return
        if event.button == 1:
            self.starts.append((float(np.clip(event.xdata, 0, 1)), float(np.clip(event.ydata, 0, 1))))
        elif event.button == 3:
            self.starts.clear()
        self.draw()

    def draw(self) -> None:
        """Everything anew: a slider changes the field, the basins and every trajectory."""
        theory = self.theory()
        self.ax.clear()
        share = portrait(self.ax, **theory)
        self.ax.set_title(f"both end right from {share:.0%} of the square")
        if self.starts:
            paths(self.ax, self.starts, **theory)
        self.text.set_text(self.verdict(theory) if self.starts else HELP)
        self.fig.canvas.draw_idle()

    def verdict(self, theory) -> str:
        """The last start in words."""
        a, b = self.starts[-1]
        end = int(basin(np.array([a, b]), **theory))
        text = f"({a:.3f}, {b:.3f})  ends {NAMES[end]}" if end != UNDECIDED else f"({a:.3f}, {b:.3f})  is undecided"
        text += f"     conserved E = {float(conserved(a, b, **theory)):.4g}"
        if theory["overlap"] > 0:
            text += f"\nwith this $p_A$ it needs $p_B$ > {float(separatrix(a, **theory)):.3f}"
        return text


def show(K=8, eta=1.0, scale="std", overlap=1.0) -> None:
    """Open the window and wait until it is closed. ValueError where there is no screen or the sliders do not reach."""
    import matplotlib.pyplot as plt

    rates = np.asarray(eta, float)
    if np.size(K) > 1 or not 2 <= K <= 64 or rates.size > 2 or not ((rates >= 0.25) & (rates <= 4)).all():
        raise ValueError("--show takes one --k from 2 to 64 and one or two --eta from 0.25 to 4")
    if not 0 <= overlap <= 1:
        raise ValueError(f"overlap lies between 0 and 1, not {overlap}")
    if mpl.get_backend().lower() == "agg":
        raise ValueError("--show needs a screen; without one, take --start, or no option for the figures")
    with mpl.rc_context(STYLE):
        window = Window(plt.figure("Learning dynamics of Co-RL", figsize=(7, 8)), K, eta, scale, overlap)
        plt.show()
    del window  # the sliders live as long as somebody holds them


# ---------------------------------------------------------------- the command


def options() -> argparse.ArgumentParser:
    """The command line of `dynamics.py`."""
    parser = argparse.ArgumentParser("dynamics.py", description="Learning dynamics of Co-RL: six figures, or one of:")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--start", nargs="+", type=float, metavar="P", help="p of each agent: print where it ends")
    what.add_argument("--show", action="store_true", help="a window: click a start, move the sliders")
    what.add_argument("--overlay", metavar="RUN", help="a two-agent run's probes over the theory: RUN/overlay.png")
    what.add_argument("--coupling", nargs="+", metavar="RUN", help="runs on several topics, to compare with --alone")
    parser.add_argument("--alone", nargs="+", metavar="RUN", help="runs on one of those topics each")
    parser.add_argument("--k", type=int, default=[8], nargs="+", help="votes per group, one for all or each (8)")
    parser.add_argument("--eta", type=float, default=[1.0], nargs="+", help="rates, one for all or each (1)")
    parser.add_argument("--scale", choices=SCALES, default="std", help="the rate q (std: GRPO's own)")
    parser.add_argument("--overlap", type=float, default=1.0, help="share of a peer's mistakes that are mine (1)")
    parser.add_argument("--out", type=Path, default=Path("runs/dynamics"), help="folder of the figures (runs/dynamics)")
    return parser


def verdict(P, **theory) -> str:
    """One start in words."""
    text = f"start {', '.join(f'{p:g}' for p in P)}: {NAMES[int(basin(P, **theory))]}"
    if len(P) == 2 and not {1} & set(np.ravel(theory["K"])):
        text += f"; E = {conserved(*P, **theory):.4g}"
        text += f"; at p_A = {P[0]:g} it needs p_B > {separatrix(P[0], **theory):.4g}"
    return text


def write_figures(folder: Path, K: int, scale: str) -> None:
    """Draw the six figures into `folder` and print where each one is."""
    with rc_context(STYLE):
        drawn = figures(K, scale)
        folder.mkdir(parents=True, exist_ok=True)
        for name, fig in drawn.items():
            fig.savefig(folder / name)
            print(folder / name)


def run(args) -> None:
    """What the options ask for. ValueError for what cannot be."""
    one = {"K": args.k if len(args.k) > 1 else args.k[0], "eta": args.eta if len(args.eta) > 1 else args.eta[0],
           "scale": args.scale, "overlap": args.overlap}
    if args.alone and not args.coupling:
        raise ValueError("--alone goes with --coupling: name the runs on several topics too")
    if args.start:
        print(verdict(np.array(args.start), **one))
    elif args.show:
        show(**one)
    elif args.overlay or args.coupling:
        command(args.overlay, args.coupling, args.alone, args.out)
    else:
        if len(args.k) > 1 or args.eta != [1.0] or args.overlap != 1:
            raise ValueError("the figures take one --k and a --scale; --eta and --overlap go with --start or --show")
        write_figures(args.out, args.k[0], args.scale)


def main(argv=None) -> int:
    parser = options()
    args = parser.parse_args(argv)
    try:
        run(args)
    except (ValueError, OSError) as error:
        parser.exit(2, f"dynamics.py: {error}\n")
    return 0


# ================================================================ stand-in for the contract with lab/report.py


def outcome(line_or_end) -> str:
    """right: every agent above .8; wrong: every agent below .2; split: each on one of these sides; else under way."""
    high, low = [p > 0.8 for p in line_or_end], [p < 0.2 for p in line_or_end]
    if all(h or w for h, w in zip(high, low, strict=True)):
        return "right" if all(high) else "wrong" if all(low) else "split"
    return "under way"


class Row(NamedTuple):
    """One topic's way from the first evaluation to the last."""

    topic: str
    start: list[float]
    end: list[float]
    omega: float
    forecast: str
    outcome: str

    @property
    def hit(self):
        """Whether it ended as the theory said; None without a forecast, or while it is under way."""
        called = self.forecast in ("right", "wrong", "split") and self.outcome != "under way"
        return self.forecast == self.outcome if called else None

    @property
    def stays(self):
        """What "staying put" would forecast: the side of 1/2 that each agent starts on."""
        high = [p > 0.5 for p in self.start]
        return "right" if all(high) else "split" if any(high) else "wrong"


def topic_rows(run) -> list[Row]:
    """A row for each topic."""
    from lab.runs import by_topic
    from rewards import REWARDS

    first, last = by_topic(run.measured[0]), by_topic(run.measured[-1])
    theory, n = getattr(REWARDS.get(run.config["method"]), "theory", None), len(next(iter(first.values())))
    known = run.config["data"] == "tiny" and n > 1 and theory and (theory != "pooled" or n == 2)
    rows = []
    for topic, start in first.items():
        omega = (run.measured[0].get("omega") or {}).get(topic)
        omega = 1.0 if omega is None else omega
        scale = "std" if run.config["scale"] else "none"
        label = int(basin(np.array(start), run.config["k"], 1.0, scale, omega, theory)) if known and theory != "gt" else RIGHT
        rows.append(Row(topic, start, last[topic], omega, NAMES[label] if known else "", outcome(last[topic])))
    return rows


def score(rows) -> str:
    """How many of the forecasts that could be judged came true, and how many staying put would have got right."""
    called = [r for r in rows if r.hit is not None]
    if not any(r.forecast for r in rows):
        return ""
    still = sum(r.outcome == "under way" for r in rows)
    told = f"{sum(r.hit for r in called)} of {len(called)} forecasts came true "
    told += f"(staying put: {sum(r.stays == r.outcome for r in called)} of {len(called)})"
    return told + (f"; {still} topics are under way" if still else "")


def overlay(run) -> Figure:
    """The measured paths."""
    fig = Figure(figsize=(5, 5))
    fig.subplots().set_title(f"{run.config['method']} overlay")
    return fig
