"""One look for every figure: what a colour means, how large text is, how a figure is written.

Figures are made with `matplotlib.figure.Figure`, never with pyplot: importing this project leaves a notebook's own plots alone.
"""

import contextlib
import re
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text

from lab.data import UserError

# Okabe and Ito's palette, which people with any colour vision can tell apart.
BLACK, AMBER, SKY, GREEN, YELLOW, BLUE, ORANGE, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)
GREY, INK = "#777777", "#333333"
OURS = re.compile(r"\$(?:p_\w|\\eta_\w|\\omega|[\s\d+=/])+\$")  # the formulas of this project's own labels
HALO = [withStroke(linewidth=3, foreground="white")]  # path_effects of text that lies over lines
AGENTS = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK)  # agent A, B, C, ...
METHODS = {  # a method has one colour in every figure
    "corl": BLUE, "ttrl": ORANGE, "gt": GREEN, "pooled": SKY, "corewarding1": PINK, "corewarding2": AMBER, "empo": "#882255",
    "rent": "#999933", "intuitor": "#332288", "comas": BLACK,
}
LOOK = {"font.size": 11, "axes.titlesize": 11.5, "figure.titlesize": 12, "axes.spines.top": False, "axes.spines.right": False,
        "legend.frameon": False, "savefig.dpi": 200}


def look() -> contextlib.AbstractContextManager:
    """Context in which figures are drawn and saved in this style."""
    return rc_context(LOOK)


def titled(figure: Figure | None, size: tuple[float, float], title: str, subtitle: str) -> Figure:
    """The figure, or a new one of so many inches, with the finding as its title and below it, smaller, what was done."""
    figure = figure or Figure(figsize=size)
    if isinstance(figure, Figure):  # a part of a figure has the layout of its whole
        figure.set_layout_engine("constrained")
    head = figure.suptitle(title + "\n" * (subtitle.count("\n") + 1) + " ", weight="bold")  # the layout keeps this place free
    figure.add_artist(Annotation(subtitle, (0.5, 0), xycoords=head, ha="center", va="bottom", fontsize=10.5, color="#444444"))
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure beside its place and rename it, so that nobody sees half of one; the ending of `path` is its format.

    A name with $ in it, of a topic or a model, is drawn as it is spelled.
    """
    if path.suffix[1:].lower() not in FigureCanvasBase.get_supported_filetypes():
        raise UserError(f"a figure named {path.name or path} has no format: end it in .png, .pdf or .svg")
    for text in figure.findobj(Text):
        text.set_parse_math("$" not in OURS.sub("", text.get_text()))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    figure.savefig(temporary)
    temporary.replace(path)
