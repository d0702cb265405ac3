"""Draws figures/schematic-corl.png and figures/schematic-agon.png: one step of each method, on one sum of the tiny world.

    python docs/schematics.py

Nothing in the pictures is typed in but which texts the agents happened to write: the texts come from the tiny worlds, and
votes, summaries, rewards and advantages from the functions that training calls.
"""

import argparse
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
import agon  # noqa: E402
from grpo import group_advantages  # noqa: E402
from lab import rivals, style, tinyworld  # noqa: E402
from lab.tinyworld import ARROW  # noqa: E402
from rewards import agreement, majority  # noqa: E402

A, B, INK, SOFT, PALE = *style.AGENTS[:2], "#222222", "#555555", "#F4F4F4"
TINT = {A: "#E3F0F8", B: "#FBEADD"}
SMALL, BODY, HEAD = 10, 11, 13  # points; at 830 pixels a point is 1.15 pixels
CARRY, SUM = tinyworld.select(["carry"])[0], (4, 7, 3, 8)  # 47+38=
QUESTION = CARRY.question.format(*SUM)
RIGHT, WRONG, SLIP = CARRY.methods[0](*SUM), CARRY.methods[1](*SUM), CARRY.slip(*SUM)


# ---------------------------------------------------------------- a sheet measured in inches


class Sheet:
    """A blank figure whose coordinates are inches, (0, 0) at the lower left. Text sizes are in points."""

    def __init__(self, width: float, height: float, title: str, subtitle: str):
        self.figure = Figure(figsize=(width, height), facecolor="white")
        self.ax = self.figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height), aspect="equal")
        self.ax.axis("off")
        self.text(0.25, height - 0.32, title, size=15, weight="bold", ha="left")
        self.text(0.25, height - 0.63, subtitle, size=BODY, color=SOFT, ha="left")

    def text(self, x, y, words, size=BODY, **look):
        self.ax.text(x, y, words, fontsize=size, **{"color": INK, "ha": "center", "va": "center", "zorder": 5} | look)

    def mono(self, x, y, words, size=SMALL + 0.5, **look):
        """A text of the tiny world, as it was written."""
        self.text(x, y, words, size, family="monospace", **look)

    def box(self, x, y, width, height, edge=INK, face="white", line=1.4, dashed=False, round_=0.09, zorder=2):
        self.ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=f"round,pad=0,rounding_size={round_}", edgecolor=edge,
                                         facecolor=face, linewidth=line, linestyle="--" if dashed else "-", zorder=zorder))

    def arrow(self, start, end, color=INK, bend=0.0, width=1.6, zorder=3):
        self.ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=15, linewidth=width, color=color,
                                          connectionstyle=f"arc3,rad={bend}", shrinkA=0, shrinkB=0, zorder=zorder))

    def mark(self, x, y, value: float, color=INK, radius=0.15):
        """A reward: a filled disc where it pays, an empty one where it does not."""
        paid = value > 0
        self.ax.add_patch(Circle((x, y), radius, facecolor=color if paid else "white", edgecolor=color, linewidth=1.4, zorder=4))
        self.text(x, y - 0.01, f"{value:g}", size=SMALL, weight="bold", color="white" if paid else color)


def answer(work: str) -> str:
    """The answer that a worked text ends with."""
    return work.rpartition(ARROW)[2]


# ---------------------------------------------------------------- one step of Co-RL


def corl() -> Figure:
    """Two agents, K = 4 answers each: the votes cross, and nothing else does."""
    sheet = Sheet(10, 8.35, "One step of Co-RL: each agent is paid for agreeing with its peer's majority",
                  "An example from the tiny world with K = 4 answers for each agent; a run takes K = 8 and 24 questions a step.")
    wrote = {"A": [RIGHT] * 4, "B": [WRONG, RIGHT, WRONG, WRONG]}
    answers = {name: [answer(text) for text in texts] for name, texts in wrote.items()}
    votes = {name: majority(said) for name, said in answers.items()}
    half = 4.1  # width of one agent's side

    sheet.box(4.1, 6.62, 2.6, 0.72, face=PALE)
    sheet.mono(5.4, 7.09, QUESTION, size=HEAD, weight="bold")
    sheet.text(5.4, 6.8, f"{answer(RIGHT)} is right, but no one says so", size=SMALL, color=SOFT)
    sheet.ax.plot([5.4, 5.4], [6.45, 0.9], color=SOFT, linewidth=1.2, linestyle=(0, (2, 3)), zorder=1)

    for number, (y, word) in enumerate([(5.35, "write"), (3.92, "vote"), (2.62, "pay"), (1.45, "learn")], start=1):
        sheet.text(0.48, y + 0.13, str(number), size=HEAD, weight="bold", color=SOFT)
        sheet.text(0.48, y - 0.13, word, size=BODY, color=SOFT)

    for name, peer, x, color, habit in (("A", "B", 1.0, A, "knows how to carry"), ("B", "A", 5.7, B, "often forgets to carry")):
        middle = x + half / 2
        sheet.arrow((4.1 if name == "A" else 6.7, 6.98), (middle, 6.47), bend=0.18 if name == "A" else -0.18)
        sheet.box(x, 4.42, half, 2.0, edge=color, face=TINT[color], line=2)
        sheet.text(x + 0.18, 6.2, f"Agent {name}", size=HEAD, weight="bold", color=color, ha="left")
        sheet.text(x + half - 0.18, 6.2, habit, color=SOFT, ha="right")
        columns = [x + 0.72 + 0.9 * k for k in range(4)]  # of the K answers, in the rows below
        for k, text in enumerate(wrote[name]):
            y = 5.85 - 0.36 * k
            sheet.text(x + 0.32, y, f"$a_{k + 1}$", color=SOFT)
            work, _, said = text.rpartition(ARROW)
            sheet.mono(x + 0.62, y, work + ARROW, ha="left")
            sheet.mono(x + half - 0.72, y, said, weight="bold", size=BODY + 0.5)
        # vote
        sheet.arrow((middle, 4.4), (middle, 4.19), color=color)
        sheet.box(middle - 0.95, 3.68, 1.9, 0.48, edge=color, face=color)
        sheet.text(middle - 0.05, 3.92, "majority", color="white", weight="bold", ha="right")
        sheet.mono(middle + 0.12, 3.92, votes[name], color="white", weight="bold", size=HEAD, ha="left")
        # pay: the peer's vote is the label
        theirs = B if name == "A" else A
        sheet.box(x, 2.15, half, 0.92, edge=color, face=TINT[color], line=2)
        sheet.text(middle - 0.02, 2.89, f"label for {name}:", ha="right")
        sheet.mono(middle + 0.12, 2.89, votes[peer], weight="bold", size=BODY + 1, color=theirs, ha="left")
        rewards = agreement(answers[name], votes[peer])
        for k, (said, reward) in enumerate(zip(answers[name], rewards, strict=True)):
            sheet.mono(columns[k] - 0.2, 2.47, said, weight="bold")
            sheet.mark(columns[k] + 0.2, 2.47, reward)
        # learn
        advantages = group_advantages(torch.tensor([rewards]))[0].tolist()
        sheet.box(x, 0.95, half, 1.0, edge=color, face=TINT[color], line=2)
        for k, value in enumerate(advantages):
            shown = f"{value:+.2f}".replace("-", "−") if value else "0"
            sheet.text(columns[k], 1.68, shown, weight="bold" if value > 0 else "normal")
        sheet.text(middle, 1.38, "advantage  $A_k = (r_k - \\mathrm{mean}) / \\mathrm{std}$", size=SMALL, color=SOFT)
        says = f"GRPO step: {votes[peer]} becomes likelier" if any(advantages) else "All rewards are equal: nothing to learn"
        sheet.text(middle, 1.13, says, weight="bold" if any(advantages) else "normal")

    sheet.arrow((3.65, 3.68), (6.85, 3.08), color=A, width=3.2)
    sheet.ax.plot([5.03, 5.77], [3.3, 3.46], color="white", linewidth=10, zorder=3)  # A's arrow passes beneath B's
    sheet.arrow((7.15, 3.68), (3.95, 3.08), color=B, width=3.2, zorder=4)
    sheet.box(4.5, 3.74, 1.8, 0.36, edge="white", face="white", line=0, zorder=2)
    sheet.text(5.4, 3.92, "the votes cross", weight="bold")
    sheet.text(5.4, 0.6, "Nothing else is shared: no weights, no gradients, no completions.", weight="bold")
    sheet.text(5.4, 0.29, "A, which is sure, stays as it is, and B learns from A. "
               "A mistake that both make would become the label of both.", color=SOFT)
    return sheet.figure


# ---------------------------------------------------------------- one step of Agon


def agon_step() -> Figure:
    """Four drafts, each read by one solution: right or wrong after right or wrong, and what each is paid."""
    sheet = Sheet(10, 7.6, "One step of Agon: be right where your rival was wrong",
                  "An example from the tiny world with N = 4 drafts, each read by one solution; a run takes N = 8.")
    pairs = [(RIGHT, RIGHT, "follows the draft"), (SLIP, RIGHT, "mends the draft"),
             (RIGHT, WRONG, "keeps its own mistake"), (SLIP, SLIP, "copies the draft")]
    c_a, c_b = (torch.tensor([agreement([answer(pair[i]) for pair in pairs], answer(RIGHT))]) for i in (0, 1))  # [1,N]
    paid = agon.conversion(c_b, c_a)  # [1,N]
    drafts, shown, solved, pay = (0.25, 2.35), (2.92, 2.62), (5.86, 2.35), (8.35, 1.4)  # left edge and width of the columns

    sheet.box(0.25, 6.12, 2.35, 0.56, face=PALE)
    sheet.mono(0.4, 6.4, QUESTION, size=HEAD, weight="bold", ha="left")
    sheet.text(2.45, 6.4, f"answer: {answer(RIGHT)}", color=SOFT, ha="right")
    sheet.arrow((1.42, 6.1), (1.42, 5.82))
    sheet.text(2.95, 6.53, "A knows how to carry, but slips in half of its drafts. B forgets to carry.", ha="left")
    sheet.text(2.95, 6.27, "The answer of the problem is known, and used only to tell right from wrong.", ha="left")
    headings = {"A drafts": (drafts, A), "the answer is withheld": (shown, INK), "B reads and solves": (solved, B),
                "B is paid": (pay, B)}
    for number, (words, ((x, _), color)) in enumerate(headings.items(), start=1):
        sheet.text(x + 0.05, 5.62, str(number), size=HEAD, weight="bold", color=SOFT, ha="left")
        sheet.text(x + 0.28, 5.62, words, size=BODY + 1, weight="bold", ha="left", color=color)

    for i, (draft, solution, habit) in enumerate(pairs):
        y, right, bonus = 4.66 - 0.86 * i, c_b[0, i].item(), (c_b * (1 - c_a))[0, i].item()
        middle = y + 0.36
        sheet.box(drafts[0], y, drafts[1], 0.72, edge=A, face=TINT[A], line=1.8)
        sheet.mono(drafts[0] + 0.12, middle + 0.15, draft, ha="left")
        sheet.text(drafts[0] + 0.12, middle - 0.18, "right" if c_a[0, i] else "a slip: 7+8=16", size=SMALL, color=SOFT, ha="left")
        sheet.mark(drafts[0] + drafts[1] - 0.2, middle - 0.17, c_a[0, i].item(), A, radius=0.13)
        sheet.arrow((drafts[0] + drafts[1] + 0.04, middle), (shown[0] - 0.04, middle))
        sheet.box(shown[0], y, shown[1], 0.72, dashed=True)
        sheet.mono(shown[0] + shown[1] / 2, middle, rivals.reading(QUESTION, rivals.shown(draft)))
        sheet.arrow((shown[0] + shown[1] + 0.04, middle), (solved[0] - 0.04, middle))
        sheet.box(solved[0], y, solved[1], 0.72, edge=B, face=TINT[B], line=1.8)
        sheet.mono(solved[0] + 0.12, middle + 0.15, solution, ha="left")
        sheet.text(solved[0] + 0.12, middle - 0.18, habit, size=SMALL, color=SOFT, ha="left")
        sheet.mark(solved[0] + solved[1] - 0.2, middle - 0.17, right, B, radius=0.13)
        if bonus:
            sheet.box(pay[0] - 0.02, y, pay[1], 0.72, edge=B, line=2.2)
            sheet.text(pay[0] + 0.5, middle - 0.23, "bonus", size=SMALL, weight="bold", color=B)
        sheet.text(pay[0] + 0.12, middle, f"{2 * right:g} + {bonus:g}  =", size=BODY + 1, ha="left")
        sheet.text(pay[0] + 1.15, middle, f"{paid[0, i]:g}", size=HEAD + 3, weight="bold", color=B if paid[0, i] else SOFT)

    # who learns from what
    bottom = 2.04
    sheet.arrow((1.42, bottom), (1.42, 1.74), color=A, width=2.4)
    sheet.arrow((9.05, bottom), (9.05, 1.74), color=B, width=2.4)
    sheet.box(0.25, 1.14, 4.5, 0.58, edge=A, face=A)
    sheet.text(2.5, 1.43, "adapter A: a GRPO step, paid  $c(a)$", color="white", weight="bold")
    sheet.box(4.95, 1.14, 4.8, 0.58, edge=B, face=B)
    sheet.text(7.35, 1.43, "adapter B: a GRPO step, paid  $2\\,c(b) + c(b)\\,(1-c(a))$", color="white", weight="bold")
    sheet.box(0.25, 0.74, 9.5, 0.36, face=PALE)
    sheet.text(5, 0.915, "one frozen base model under both adapters")
    sheet.text(5, 0.52, "$c$ is 1 for a right answer, else 0. Being right is worth 2, and 3 where the draft was wrong.",
               weight="bold")
    sheet.text(5, 0.24, "In the next step B drafts and A reads. When the pair is used, it works the same way: "
               "one drafts, the other answers.", color=SOFT)
    return sheet.figure


def main() -> None:
    with style.look():
        for name, figure in (("corl", corl()), ("agon", agon_step())):
            path = ROOT / "figures" / f"schematic-{name}.png"
            style.save(figure, path)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
