"""Programs as answers: what running one costs, and what a vote by behaviour is worth on a real model's programs.

    python benchmarks/code.py                                 # programs per second: the sandbox, and a bare Python for each
    python benchmarks/code.py --model FOLDER --dtype bfloat16  # pass@1 and maj@k on functions.jsonl, by behaviour and by text
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402

from grpo import Agent, sample  # noqa: E402
from lab import models  # noqa: E402
from lab.answers import same_answer  # noqa: E402
from lab.code import Inputs, Sandbox, last_program  # noqa: E402
from lab.data import load_problems  # noqa: E402
from lab.evaluate import maj_at_k, mean_interval  # noqa: E402
from lab.options import above_0  # noqa: E402

PROGRAM = "n = int(input())\nprint(sum(i for i in range(n) if i % 3 == 0))  # {}"


def spent(work: Callable[[], object], n: int) -> tuple[float, float]:
    """(processor, wall) milliseconds for each of n programs, all processes together."""
    def processor() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    began, start = processor(), time.perf_counter()
    work()
    return 1e3 * (processor() - began) / n, 1e3 * (time.perf_counter() - start) / n


def boxed(n: int, inputs: int) -> None:
    """n different programs in one nursery, its start and end included."""
    box = Sandbox(1)
    box.run([(PROGRAM.format(i), Inputs(tuple(map(str, range(inputs))), False)) for i in range(n)])
    box.close()


def bare(n: int) -> None:
    """n programs with one input, each in a Python of its own: no isolation at all."""
    for i in range(n):
        subprocess.run([sys.executable, "-I", "-S", "-c", PROGRAM.format(i)], input="9", capture_output=True, text=True, env={})


def speed(n: int, repeats: int) -> None:
    """One line for each way, the best of the repeats, which alternate."""
    ways = {"sandbox": lambda: boxed(n, 1), "sandbox, 10 inputs": lambda: boxed(n, 10), "python -I -S -c": lambda: bare(n)}
    found = [{name: spent(work, n) for name, work in ways.items()} for _ in range(repeats)]
    best = {name: [min(one[name][i] for one in found) for i in (0, 1)] for name in ways}
    for name, (cpu, wall) in best.items():
        print(f"{name:<20}{cpu:7.2f} ms of processor{wall:8.2f} ms{1e3 / wall:8.0f}/s"
              f"{best['python -I -S -c'][0] / cpu:7.1f} times a bare Python's rate, by processor")  # fmt: skip


@torch.no_grad()
def votes(o) -> None:
    """K programs of each problem by a model: how often one is right, how often the majority is, by behaviour and by text."""
    model, tokenizer = models.load_model(o.model, models.pick_device("auto"), o.dtype)
    agent, problems = Agent("A", model, tokenizer, answer_style="code"), load_problems(HERE / "functions.jsonl", limit=o.problems)
    right, by_text, by_behaviour, texts, behaviours, none = [], [], [], [], [], 0
    for n, problem in enumerate(problems):
        wrote = sample(agent, [agent.prompt(problem)], o.k, o.max_new_tokens, o.temperature, torch.Generator().manual_seed(n))
        (answers,), programs = wrote.answers, [last_program(text) for text in wrote.texts[0]]
        marks = [same_answer(answer, problem.answer) for answer in answers]
        commonest = max(programs, key=programs.count)
        tied = {one: mark for one, mark in zip(programs, marks, strict=True) if programs.count(one) == programs.count(commonest)}
        right.append(sum(marks) / o.k)
        by_text.append(sum(tied.values()) / len(tied))  # ties by lot, as in maj_at_k
        by_behaviour.append(maj_at_k(answers, problem.answer))
        texts.append(len(set(programs)))
        behaviours.append(len({*answers} - {None}))
        none += answers.count(None)
        found = f"{sum(marks)} of {o.k} right, {texts[-1]} texts, {behaviours[-1]} behaviours"
        print(f"{problem.question[:60]:<62}{found}", flush=True)
    for name, found in (("pass@1", right), (f"maj@{o.k} by behaviour", by_behaviour), (f"maj@{o.k} by text", by_text)):
        mean = sum(found) / len(found)
        print(f"{name:<22}{mean:.3f}  95% interval ({', '.join(f'{x:.3f}' for x in mean_interval(mean, len(found)))})")
    print(f"{sum(texts) / len(texts):.1f} different texts a problem, {sum(behaviours) / len(texts):.1f} behaviours; "
          f"{none / len(texts) / o.k:.2f} of the programs have none")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or hub name; without it, the throughput is measured")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--programs", type=above_0, default=300)
    parser.add_argument("--repeats", type=above_0, default=3)
    parser.add_argument("--problems", type=above_0, default=48)
    parser.add_argument("--k", type=above_0, default=8)
    parser.add_argument("--max-new-tokens", type=above_0, default=192)
    parser.add_argument("--temperature", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    votes(options) if options.model else speed(options.programs, options.repeats)
