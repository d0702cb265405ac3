"""The theory in motion: a window to click in, and clouds of starts that fall. lab/portraits.py hands in what they draw.

Pyplot is imported where a window is opened, and nowhere else.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import animation
from matplotlib.widgets import Slider

from dynamics import NAMES, RIGHT, WRONG, basin, conserved, separatrix, simulate
from lab import style

HELP = "Left click: a start. Right click: clear."


def verdict(P, **theory) -> str:
    """One start [N] in words: where it ends, and for two agents of Co-RL the conserved quantity and what B needs."""
    text = f"start {', '.join(f'{p:.4g}' for p in P)}: {NAMES[int(basin(P, **theory))]}"
    if len(P) == 2 and theory["method"] == "corl" and (theory["scale"] == "paper" or 1 not in np.ravel(theory["K"])):
        two = {name: theory[name] for name in ("K", "eta", "scale", "omega")}
        value, needed = conserved(*P, **two), separatrix(P[0], **two)
        text += f"; E = {round(float(value), 12) + 0:.4g}" * bool(np.isfinite(value))  # not at a corner
        text += f"; at p_A = {P[0]:.4g} it needs p_B > {needed:.4g}" * bool(needed < 1)  # there is none at p_A = 0, or omega = 0
    return text


class Window:
    """A square with sliders for K, both learning rates and omega, on a given figure.

    portrait(ax, **theory) and paths(ax, starts, **theory) draw into the square: those of lab/portraits.py. The figure holds
    its window, so that the sliders live as long as the figure does.
    """

    def __init__(self, fig, portrait, paths, K=8, eta=1.0, scale="std", omega=1.0, method="corl"):
        fig.window, self.fig, self.portrait, self.paths, self.starts = self, fig, portrait, paths, []
        self.fixed = {"scale": scale, "method": method}
        self.ax = fig.add_axes((0.12, 0.34, 0.8, 0.58))
        self.text = fig.text(0.5, 0.235, HELP, ha="center", va="center")
        rates = np.log2(np.broadcast_to(eta, 2))
        self.sliders = {
            "K": self._slider(0, "votes K", 2, 64, K, 1),
            "eta_a": self._slider(1, r"rate $\eta_A$", -2, 2, rates[0]),
            "eta_b": self._slider(2, r"rate $\eta_B$", -2, 2, rates[1]),
            "omega": self._slider(3, r"shared mistakes $\omega$", 0, 1, omega),
        }
        fig.canvas.mpl_connect("button_press_event", self.click)
        self.draw()

    def _slider(self, row, label, low, high, start, step=None) -> Slider:
        ax = self.fig.add_axes((0.29, 0.165 - 0.042 * row, 0.52, 0.03))
        slider = Slider(ax, label, low, high, valinit=start, valstep=step, color=style.BLUE)
        slider.on_changed(lambda _: self.draw())
        return slider

    def theory(self) -> dict:
        """What the sliders say, as arguments of the functions of dynamics.py; rates run on a logarithmic scale."""
        v = {name: slider.val for name, slider in self.sliders.items()}
        return {"K": int(v["K"]), "eta": (2 ** v["eta_a"], 2 ** v["eta_b"]), "omega": float(v["omega"]), **self.fixed}

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
        """Everything anew: a slider changes the field, the basins and every path."""
        for name in ("eta_a", "eta_b"):
            self.sliders[name].valtext.set_text(f"{2 ** self.sliders[name].val:.2f}")
        theory = self.theory()
        self.ax.clear()
        self.portrait(self.ax, **theory)
        if self.starts:
            self.paths(self.ax, self.starts, **theory)
        text = verdict(np.array(self.starts[-1]), **theory) if self.starts else HELP
        self.text.set_text(text.replace("; at", "\nat"))
        self.fig.canvas.draw_idle()


def show(portrait, paths, **theory) -> Window:
    """Open a window. A terminal waits until it is closed; a notebook goes on, and the window stays alive.

    ValueError where there is no screen or the sliders do not reach.
    """
    import matplotlib.pyplot as plt

    rates = np.asarray(theory["eta"], float)
    if np.size(theory["K"]) > 1 or not 2 <= theory["K"] <= 64 or rates.size > 2 or not ((rates >= 0.25) & (rates <= 4)).all():
        raise ValueError("--show takes one --k from 2 to 64 and one or two --eta from 0.25 to 4")
    if mpl.get_backend().lower() == "agg":
        raise ValueError("--show needs a screen; without one, take --start, --portrait, or no option for the six figures")
    with style.look():
        window = Window(plt.figure("Learning dynamics of Co-RL", figsize=(7, 8)), portrait, paths, **theory)
        plt.show()
    return window


def fall(portrait, path: Path, fig=None, points=150, frames=48, until=24.0, fps=12, **theory) -> None:
    """Write an animation: the same random starts fall under self-vote and under Co-RL. A .gif, or .mp4 with ffmpeg."""
    writer = {".gif": "pillow", ".mp4": "ffmpeg"}.get(path.suffix)
    if not writer or not animation.writers.is_available(writer):
        raise ValueError(f"{path} cannot be written: an animation is a .gif, or a .mp4 where ffmpeg is installed")
    fig = style.titled(fig, (8, 4.7), "The same random starts under self-vote and under Co-RL",
                       f"{points} starts, {until:g} units of time")  # fmt: skip
    P, clouds = np.random.default_rng(0).random((points, 2)), []
    for method, ax in zip(("ttrl", "corl"), fig.subplots(1, 2, sharey=True), strict=True):
        field = theory | {"method": method}
        portrait(ax, **field, arrows=11)
        times, states = simulate(P, **field, t_max=until * np.max(theory.get("eta", 1.0)))  # [T], [T, S, 2]
        states = states[np.searchsorted(times, np.linspace(0, until, frames)).clip(max=len(times) - 1)]
        colors = [{RIGHT: style.BLUE, WRONG: style.ORANGE}.get(int(end), style.GREY) for end in basin(P, **field)]
        clouds.append((ax.scatter(*states[0].T, s=16, c=colors, ec="white", lw=0.4, zorder=7), states))

    def frame(i):
        for dots, states in clouds:
            dots.set_offsets(states[i])

    path.parent.mkdir(parents=True, exist_ok=True)
    animation.FuncAnimation(fig, frame, frames=frames).save(path, writer=writer, fps=fps, dpi=80)
