"""Theory against models really trained: the measured path of each topic over the phase portrait of dynamics.py.

A run's folder has `config.json` (method, k, scale) and `metrics.jsonl`, where the line of every evaluation carries
`probes`: the share of samples that are right, by agent and topic. Two agents make a point (p_A, p_B); the theory's
forecast is made from the first point alone, and nothing is fitted. The theory treats each topic as one question learned
by itself, with small steps, one systematic mistake, no KL and no clipping; where a real run misses, that is a finding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import patheffects, rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dynamics import FIELDS, NAMES, RIGHT, SPLIT, WRONG, basin, simulate
from dynamics_figures import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SHADES, STYLE, TITLES, portrait, square

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
