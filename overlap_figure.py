"""overlap.png: how often each agent is right, the four cells of each pair, and the matrix of kappa."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import report
from evaluate import Pair, Report, count_cells, measures

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
