"""What two agents that see read before and after training: a figure for a lecture, of one run of the tiny world of pictures.

    python cohort.py --data eyes                                        # about three minutes the first time
    python benchmarks/eyes.py runs/corl-001 --figure figures/eyes.png   # of its folder

Under each picture stands the reading that an agent gives more often than not to held-out pictures of that kind, and the share of
its samples that read them right. All numbers are the run's own evaluations (metrics.jsonl); no model is loaded.
"""

import argparse
import sys
from pathlib import Path

from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from lab import charts, runs, style, tinyeyes  # noqa: E402
from lab.data import UserError  # noqa: E402

ASKS = {"axis": "How high\nis the bar?", "dots": "How many\ndots?", "dial": "What is\nthe hour?",
        "tallest": "Which bar\nis tallest?", "ticks": "A tick is 2.\nHow much?", "piece": "What part\nis large?"}  # fmt: skip
SHOWN = {"axis": (5, 2, 2), "dots": (3, 2, 0), "dial": (4, 2, 4), "tallest": (2, 7), "ticks": (4, 2, 1), "piece": (2, 5, 3, 4)}


def readings(topic: tinyeyes.Topic) -> tuple[str, str]:
    """What the picture of a topic says, and what it says by mistake."""
    right, wrong = (method(*SHOWN[topic.name]).rpartition(tinyeyes.ARROW)[2] for method in (topic.right, topic.wrong))
    return right, wrong


def draw(run: runs.Run) -> Figure:
    """A picture of each topic, and below it a row for each agent before training and one after."""
    first, last = run.measured[0], run.measured[-1]
    topics = [topic for topic in tinyeyes.TOPICS if topic.name in runs.by_topic(first)]
    after = {topic: shares for topic, shares in runs.by_topic(last).items() if min(shares) > 0.5}
    name, agents = charts.NAMES.get(run.config["method"], run.config["method"]), list(first["probes"])
    title = f"Under {name} the agents come to read {len(after)} of {len(topics)} kinds of pictures right"
    what = "%: right readings; blue where the right one is usual, orange where the mistake is"
    told = f"{charts.caption(run, [run.config['seed']])}\n{what}"
    figure = style.titled(None, (10, 2.9 + 0.75 * len(agents)), title, told)
    grid = figure.subplots(1 + 2 * len(agents), len(topics), height_ratios=[4] + [1] * 2 * len(agents), squeeze=False)
    for column, topic in zip(grid.T, topics, strict=True):
        column[0].imshow(topic.paint(SHOWN[topic.name]), interpolation="nearest")
        column[0].set_title(ASKS[topic.name])
        cells = iter(column[1:])
        for agent in agents:
            for line in (first, last):
                share, ax = line["probes"][agent][topic.name], next(cells)
                usual = readings(topic)[share <= 0.5]
                ax.text(0.42, 0.5, usual, ha="right", va="center", weight="bold", fontsize=14,
                        color=style.BLUE if share > 0.5 else style.ORANGE)  # fmt: skip
                ax.text(0.52, 0.5, f"{share:.0%}", ha="left", va="center", color=style.GREY)
    for ax, words in zip(grid[1:, 0], [f"{agent}, {when}" for agent in agents for when in ("before", "after")], strict=True):
        ax.text(-0.05, 0.5, words, ha="right", va="center")
    for ax in grid.flat:
        ax.set_axis_off()
    return figure


def main() -> int:
    """Draw the figure of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a run of cohort.py --data eyes")
    parser.add_argument("--figure", type=Path, help="where it is written (default: eyes.png in the folder of the run)")
    options = parser.parse_args()
    try:
        run = runs.Run(options.folder)
        if run.config["data"] != "eyes" or not run.measured:
            raise UserError(f"{options.folder} is no evaluated run of cohort.py --data eyes")
        with style.look():
            style.save(draw(run), path := options.figure or options.folder / "eyes.png")
    except UserError as error:
        print(f"eyes.py: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
