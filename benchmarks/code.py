"""Programs as answers: what running one costs, and what a vote by behaviour is worth on a real model's programs.

    python benchmarks/code.py                                 # programs per second: the sandbox, and a bare Python for each
    python benchmarks/code.py --model FOLDER --dtype bfloat16  # pass@1 and maj@k on functions.jsonl, by behaviour and by text
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

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


def one_problem(problem, texts: list[str], answers: list, ended: list[bool]) -> tuple[float, ...]:
    """pass@1, maj@K by behaviour and by text (ties by lot), numbers of texts, behaviours, cut off ones, others without answer."""
    programs = [last_program(text) if done else None for text, done in zip(texts, ended, strict=True)]
    marks = [same_answer(answer, problem.answer) for answer in answers]
    right = {text: mark for text, mark in zip(programs, marks, strict=True) if text}
    most = max(map(programs.count, right), default=0)
    winners = [mark for text, mark in right.items() if programs.count(text) == most]
    by_text = sum(winners) / max(1, len(winners))
    behaviours, cut = len({*answers} - {None}), ended.count(False)
    return fmean(marks), maj_at_k(answers, problem.answer), by_text, len(right), behaviours, cut, answers.count(None) - cut


def votes(o) -> None:
    """K programs of each problem by a model: how often one is right, and how often the majority is."""
    model, tokenizer = models.load_model(o.model, models.pick_device("auto"), o.dtype)
    agent, problems = Agent("A", model, tokenizer, answer_style="code"), load_problems(HERE / "functions.jsonl", limit=o.problems)
    found, generator = [], torch.Generator().manual_seed(o.seed)
    for start in range(0, len(problems), 8):
        part = problems[start : start + 8]
        wrote = sample(agent, [agent.prompt(problem) for problem in part], o.k, o.max_new_tokens, o.temperature, generator)
        for problem, *group in zip(part, wrote.texts, wrote.answers, wrote.finished.tolist(), strict=True):
            found.append(one_problem(problem, *group))
            right, most, _, texts, behaviours, cut, _ = found[-1]
            print(f"{problem.question[:60]!r:<64} right {right:.2f}, maj {most:.2f}, texts {texts}, behaviours {behaviours}, "
                  f"cut off {cut}", flush=True)  # fmt: skip
    *shares, texts, behaviours, cut, none = map(fmean, zip(*found, strict=True))
    for name, mean in zip(("pass@1", f"maj@{o.k} by behaviour", f"maj@{o.k} by text"), shares, strict=True):
        print(f"{name:<22}{mean:.3f}  95% interval ({', '.join(f'{x:.3f}' for x in mean_interval(mean, len(found)))})")
    gains = [most - right for right, most, *_ in found]
    error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0
    print(f"the vote by behaviour adds {fmean(gains):+.3f}, standard error over problems {error:.3f}")
    print(f"{o.k} completions of a problem: {texts:.2f} texts, {behaviours:.2f} behaviours; {cut:.2f} are cut off at "
          f"{o.max_new_tokens} tokens, {none:.2f} others have no answer")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or hub name; without it, the throughput is measured")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--programs", type=above_0, default=300)
    parser.add_argument("--repeats", type=above_0, default=3)
    parser.add_argument("--problems", type=above_0, default=60)
    parser.add_argument("--k", type=above_0, default=8)
    parser.add_argument("--max-new-tokens", type=above_0, default=256)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    votes(options) if options.model else speed(options.programs, options.repeats)
