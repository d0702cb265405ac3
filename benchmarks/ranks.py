"""What one agent a process costs and saves: seconds a step, waiting, votes that are some steps old. Figures: docs/scale.md.

    python benchmarks/ranks.py speed [--model FOLDER]     one process of one thread and two of one thread each, in turn
    python benchmarks/ranks.py waiting --model FOLDER     simulated on measured lengths of completions
    python benchmarks/ranks.py stale                      the separatrix when votes are s steps old
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

import cohort  # noqa: E402
import dynamics  # noqa: E402
from grpo import sample  # noqa: E402
from lab import ranks, setup  # noqa: E402

SETTINGS = ["--eval-every", "0", "--eval-problems", "6", "--eval-k", "1", "--save-every", "-1", "--seed", "0"]


# ---------------------------------------------------------------- seconds a step


def child(words: list[str]) -> None:
    """One process of a run: `python benchmarks/ranks.py child FILE cohort|ranks WORDS`. Writes [seconds, processor, waiting]."""
    file, command, *words = words
    torch.set_num_threads(1)
    steps, waits, step, tell = [], [0.0], cohort.train_step, ranks.Board.tell

    def timed_tell(*given):
        began = time.perf_counter()
        try:
            return tell(*given)
        finally:
            waits[0] += time.perf_counter() - began

    def timed_step(*given):
        waits[0], began, used = 0.0, time.perf_counter(), time.process_time()
        line = step(*given)
        steps.append((time.perf_counter() - began, time.process_time() - used, waits[0]))
        return line

    ranks.Board.tell, cohort.train_step = timed_tell, timed_step
    code = (cohort if command == "cohort" else ranks).main(words)
    Path(file).write_text(json.dumps(steps))
    sys.exit(code)


def busy() -> float:
    """Processor seconds that this machine has spent since it started, on all cores."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def timed(words: list[str], processes: int) -> tuple[list, list[float], float, int]:
    """Run it. Per process and step (seconds, processor seconds, waiting); what else the cores did, in cores; bytes of votes."""
    with tempfile.TemporaryDirectory() as home:
        place = ["--folder", f"{home}/run"] if processes > 1 else ["--out", home, "--name", "run"]
        began, spent = time.time(), busy()
        started = []
        for rank in range(processes):
            told = {"RANK": str(rank), "WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "child", f"{home}/{rank}.json", "ranks" if processes > 1 else "cohort"]
            started.append(subprocess.Popen([*command, *words, *place], env=os.environ | told, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL))  # fmt: skip
        ours = 0.0
        for one in started:
            _, status, usage = os.wait4(one.pid, 0)
            assert status == 0, f"a process ended with {status}"
            ours += usage.ru_utime + usage.ru_stime
        others = (busy() - spent - ours) / (time.time() - began)
        votes = [path.stat().st_size for path in Path(home, "run").glob("votes/*-votes-*")]
        return [json.loads(Path(home, f"{rank}.json").read_text()) for rank in range(processes)], others, votes


def speed(o) -> None:
    """Medians over the steps (the first is left out) of all repeats, one process and two in turn."""
    words = [*SETTINGS, "--steps", str(o.steps)]
    if o.model:
        words += ["--models", o.model, o.model, "--data", "sums", "--rephrase", "B", "--prompts", "6", "--k", "8"]
        words += ["--max-new-tokens", "14", "--lr", "1e-5"]
    found, sizes = {1: [], 2: []}, []
    for _ in range(o.repeats):
        for processes in (1, 2):
            steps, others, votes = timed(words, processes)
            table = np.array(steps)[:, 1:]  # [processes,steps,3]
            found[processes].append(table)
            sizes += votes
            wall, used, waited = table[..., 0].max(0), table[..., 1], table[..., 2]
            print(f"{processes} process{'es' * (processes > 1)}: {np.median(wall):.2f} s a step, processor seconds of each "
                  f"{' and '.join(f'{x:.2f}' for x in np.median(used, 1))}, waiting "
                  f"{' and '.join(f'{x:.2f}' for x in np.median(waited, 1))}; others kept {others:.1f} cores busy, "
                  f"load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    one, two = (np.concatenate(found[processes], 1) for processes in (1, 2))
    seconds = [np.median(table[..., 0].max(0)) for table in (one, two)]
    spent = [np.median(table[..., 1].max(0)) for table in (one, two)]
    print(f"medians: {seconds[0]:.2f} s and {seconds[1]:.2f} s a step, {seconds[0] / seconds[1]:.2f} times as fast; processor "
          f"seconds {spent[0]:.2f} and, of the slower of two, {spent[1]:.2f}: {spent[0] / spent[1]:.2f} times less")  # fmt: skip
    print(f"votes: {statistics.median(sizes):.0f} bytes an agent and step ({min(sizes)} to {max(sizes)})")


# ---------------------------------------------------------------- waiting


def lengths(o) -> np.ndarray:
    """Lengths of completions of the 64 sums, [64,K], as a model writes them at its start."""
    words = ["--models", o.model, o.model, "--data", "sums", "--max-new-tokens", str(o.longest)]
    options = cohort.parse(words)
    problems = setup.read_data(options)[0][:64]
    (agent,) = setup.make_cohort(options, problems, [0])
    draws, found = torch.Generator().manual_seed(0), []
    for i in range(0, len(problems), 8):
        prompts = [agent.prompt(problem) for problem in problems[i : i + 8]]
        found.append(sample(agent, prompts, o.k, o.longest, generator=draws).mask.sum(-1))
    return torch.cat(found).numpy()


def durations(measured: np.ndarray, agents: int, steps: int, prompts: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """(writing, learning) of each agent and step [N,S], each 1/2 on average: writing takes as long as the longest completion of
    the batch, learning as long as its tokens together."""
    drawn = measured[rng.integers(len(measured), size=(agents, steps, prompts))].reshape(agents, steps, -1)
    parts = drawn.max(-1).astype(float), drawn.sum(-1).astype(float)
    return tuple(part / part.mean() / 2 for part in parts)


def pace(write: np.ndarray, learn: np.ndarray, old: int | None) -> float:
    """Seconds a step where a label may be the peer's vote of `old` steps before; None: each waits for the votes of all."""
    agents, steps = write.shape
    done, votes = np.zeros(agents), np.zeros((steps, agents))
    for t in range(steps):
        votes[t] = ready = done + write[:, t]
        if old is None:
            ready = np.full(agents, ready.max())
        elif t >= old:
            ready = np.maximum(ready, np.roll(votes[t - old], 1))
        done = ready + learn[:, t]
    return done.max() / steps


def waiting(o) -> None:
    """Seconds a step, where one agent alone would take 1 on average."""
    measured = lengths(o)
    cuts = np.percentile(measured, [10, 50, 90])
    print(f"lengths: mean {measured.mean():.1f}, 10 / 50 / 90 % {cuts[0]:.0f} / {cuts[1]:.0f} / {cuts[2]:.0f}, "
          f"at the limit of {o.longest}: {(measured == o.longest).mean():.0%}")  # fmt: skip
    print("agents  slower agent   all   peer  1 old  4 old")
    for agents in (2, 8, 64):
        for factor in (1.0, 1.5):
            rng = np.random.default_rng(0)
            write, learn = durations(measured, agents, 600, o.prompts, rng)
            write[0] *= factor
            learn[0] *= factor
            print(f"{agents:6}  {factor:12.1f}  " + "  ".join(f"{pace(write, learn, old):5.2f}" for old in (None, 0, 1, 4)))


# ---------------------------------------------------------------- votes that are some steps old


def ends_right(p_a: float, p_b: float, old: tuple[int, int], eta: np.ndarray, K: int = 8, steps: int = 40_000) -> bool:
    """Whether both end right if A learns from B's vote of old[0] steps before, and B from A's of old[1] steps before.

    Votes before the first step are those of the start. One step moves p by eta q(p) phi(vote).
    """
    past = [np.array([p_a, p_b])] * (max(old) + 1)
    for _ in range(steps):
        now = past[-1]
        labels = dynamics.phi(np.array([past[-1 - old[0]][1], past[-1 - old[1]][0]]), K)
        new = np.clip(now + eta * dynamics.rate(now, K) * labels, 0.0, 1.0)
        if (new > 0.9).all() or (new < 0.1).all():
            break
        past = [*past[1:], new]
    return new.sum() > 1


def border(p_a: float, old: tuple[int, int], eta: np.ndarray) -> float:
    """p_B on the separatrix at p_A, by bisection."""
    low, high = 0.0, 1.0
    while high - low > 5e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if ends_right(p_a, middle, old, eta) else (middle, high)
    return (low + high) / 2


def stale(_) -> None:
    """The separatrix at p_A = .7 and .9, K = 8, GRPO's q; eta is of one step."""
    print("eta A, B     s of A, B    p_B at p_A = .7    .9")
    for eta in ((0.1, 0.1), (0.4, 0.1)):
        exact = dynamics.separatrix(np.array([0.7, 0.9]), K=8, eta=eta)
        print(f"{eta[0]:.1f} {eta[1]:.1f}      by H_A/eta_A = H_B/eta_B    {exact[0]:.3f}   {exact[1]:.3f}")
        for old in ((0, 0), (1, 1), (8, 8), (32, 32), (8, 0), (0, 8), (32, 0), (0, 32)):
            found = [border(p_a, old, np.array(eta)) for p_a in (0.7, 0.9)]
            print(f"{eta[0]:.1f} {eta[1]:.1f}      {old[0]:5} {old[1]:5}          {found[0]:.3f}   {found[1]:.3f}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["child"]:
        return child(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "waiting", "stale"])
    parser.add_argument("--model", help="a folder: of speed (default: the tiny world), of waiting")
    parser.add_argument("--repeats", type=int, default=3, help="of speed")
    parser.add_argument("--steps", type=int, default=9, help="of speed")
    parser.add_argument("--longest", type=int, default=128, help="tokens of a completion, of waiting")
    parser.add_argument("--prompts", type=int, default=16, help="questions of a step, of waiting")
    parser.add_argument("--k", type=int, default=8, help="completions of each, of waiting")
    o = parser.parse_args()
    {"speed": speed, "waiting": waiting, "stale": stale}[o.what](o)


if __name__ == "__main__":
    main()
