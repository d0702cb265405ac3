"""What two agents that see read before and after training: a figure for a lecture, of one run of the tiny world of pictures.

    python cohort.py --data eyes                                        # about three minutes the first time
    python benchmarks/eyes.py runs/corl-001 --figure figures/eyes.png   # of its folder

Each kind of picture has one example, the first of those that are held out and that the run was measured on. The agents of the
warm start and those of the newest checkpoint read it 100 times each. The title counts what the run's own evaluations found.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import cohort  # noqa: E402
from grpo import Agent  # noqa: E402
from lab import charts, measure, options, runs, setup, style, tinyeyes  # noqa: E402
from lab.data import UserError  # noqa: E402
from lab.evaluate import evaluate  # noqa: E402

SAMPLES = 100
ASKS = {"axis": "How high\nis the bar?", "dots": "How many\ndots?", "dial": "What is\nthe hour?",
        "tallest": "Which bar\nis tallest?", "ticks": "A tick is 2.\nHow much?", "piece": "What part\nis large?"}  # fmt: skip
MISTAKES = {"axis": "from the top", "dots": "big ones twice", "dial": "anticlockwise", "tallest": "from the right",
            "ticks": "ticks as 1", "piece": "large to small"}  # fmt: skip


def example(topic: tinyeyes.Topic) -> tuple[int, ...]:
    """The operands of the first problem of a topic in `tinyeyes.probes`."""
    return random.Random(0).sample(topic.part(held_out=True), 20)[0]


def readings(topic: tinyeyes.Topic) -> tuple[str, str]:
    """What the example of a topic says, and what it says by mistake."""
    right, wrong = (method(*example(topic)).rpartition(tinyeyes.ARROW)[2] for method in (topic.right, topic.wrong))
    return right, wrong


def usual(agent: Agent, n: int, topic: tinyeyes.Topic, run: runs.Run) -> tuple[str, float]:
    """The most frequent of an agent's readings of the example, and its share of the samples."""
    draws = runs.generator(run.config["seed"], runs.EVALUATION, n)
    found = evaluate(agent, [topic.problem(example(topic))], SAMPLES, run.config["max_new_tokens"], generator=draws).answers[0]
    (answer, count), *_ = Counter(found).most_common(1)
    return answer or "none", count / SAMPLES


def both_right(line: dict) -> int:
    """Of how many topics each agent reads more than half of its samples right."""
    return sum(min(shares) > 0.5 for shares in runs.by_topic(line).values())


def draw(run: runs.Run) -> Figure:
    """An example of each topic, and below it for each agent what it reads before training and after it."""
    started = setup.make_cohort(options.resumed(str(run.folder), {}, cohort.Options))
    trained = [agent for _, agent in measure.load(str(run.folder), 0, measure.Options(models=[str(run.folder)]))[0]]
    topics = [topic for topic in tinyeyes.TOPICS if topic.name in runs.by_topic(run.measured[0])]
    rows = [(f"{agent.name} {when}", n, agent) for n, pair in enumerate(zip(started, trained, strict=True))
            for when, agent in zip(("before", "after"), pair, strict=True)]  # fmt: skip
    name = charts.NAMES.get(run.config["method"], run.config["method"])
    first, last = (f"{both_right(run.measured[i])} of {len(topics)}" for i in (0, -1))
    title = f"Kinds of pictures that both agents read right: {first} before {name}, {last} after"
    told = (f"{charts.caption(run, [run.config['seed']])}; right: more than half of each agent's samples\n"
            f"Below: one picture of each kind, an agent's most frequent reading of it, and the share of {SAMPLES} samples")
    figure = style.titled(None, (10, 3.7 + 0.42 * len(rows)), title, told)
    grid = figure.subplots(2 + len(rows), len(topics), height_ratios=[4, 1.3] + [1] * len(rows), squeeze=False)
    for column, topic in zip(grid.T, topics, strict=True):
        colours = dict(zip(readings(topic), (style.BLUE, style.ORANGE), strict=True))
        picture, told, *cells = column
        picture.imshow(topic.paint(example(topic)), interpolation="nearest")
        picture.set_title(ASKS[topic.name])
        for y, text, colour in zip((0.9, 0.35), ("right: {}", f"{MISTAKES[topic.name]}: {{}}"), colours.items(), strict=True):
            told.text(0.5, y, text.format(colour[0]), ha="center", va="center", color=colour[1])
        for ax, (_, n, agent) in zip(cells, rows, strict=True):
            answer, share = usual(agent, n, topic, run)
            ax.text(0.46, 0.5, answer, ha="right", va="center_baseline", weight="bold", fontsize=14,
                    color=colours.get(answer, style.INK))  # fmt: skip
            ax.text(0.54, 0.5, f"{share:.0%}", ha="left", va="center_baseline", color=style.INK)
    for ax, (words, *_) in zip(grid[2:, 0], rows, strict=True):
        ax.text(-0.05, 0.5, words, ha="right", va="center_baseline")
    for ax in grid.flat:
        ax.set_xticks([]), ax.set_yticks([])
        ax.spines[:].set_visible(ax in grid[0])
        ax.spines[:].set_color("#BBBBBB")
        ax.patch.set_visible(False)
    for ax in grid[2::2].flat:  # a line above each agent
        ax.spines["top"].set_visible(True)
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
