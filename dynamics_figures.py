"""Six figures of the learning dynamics, and the command of `python dynamics.py`. The mathematics is all in dynamics.py.

Figures are 8 to 10 inches wide with 11-point text, so that they can be read at 800 pixels. Colours: Okabe and Ito's,
which people with any colour vision can tell apart; blue is right, orange is wrong, in every figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

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
        import dynamics_window

        dynamics_window.show(**one)
    elif args.overlay or args.coupling:
        import dynamics_runs

        dynamics_runs.command(args.overlay, args.coupling, args.alone, args.out)
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
