"""`python dynamics.py --show`: click a start in the square, move the sliders, see where it ends.

A right click removes the starts. Everything shown is computed by dynamics.py: the trajectory by `simulate`, the conserved
value by `conserved`, the verdict by `basin`.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.widgets import Slider

from dynamics import NAMES, UNDECIDED, basin, conserved, separatrix
from dynamics_figures import BLUE, STYLE, paths, portrait

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
