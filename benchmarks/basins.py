"""A 201 x 201 grid of basins: dynamics.py against scipy.integrate.solve_ivp, which takes one start at a time.

    pip install -r requirements.txt -r benchmarks/requirements.txt && python benchmarks/basins.py

solve_ivp gets a lean right-hand side of its own (nothing of dynamics.py), skips what needs no simulation, and stops
at the same event (both agents on one side of one half), and is timed on a random sample of the grid, off the line
p_A + p_B = 1, where simulations end in the saddle; its time for the whole grid is that of the sample, extrapolated.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np

try:
    from scipy.integrate import solve_ivp
except ModuleNotFoundError:
    sys.exit("benchmarks/basins.py needs scipy: pip install -r benchmarks/requirements.txt")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import dynamics  # noqa: E402
from lab.options import above_0  # noqa: E402


def right_hand_side(K):
    """dP/dt of two equal agents under standard-normalised GRPO, for solve_ivp."""
    k = np.arange(K + 1)
    choose = np.array([math.comb(K, i) for i in k], float)
    values = np.stack([np.sqrt(k / K * (1 - k / K)), np.sign(2 * k - K)], axis=1)  # [K+1, 2]: h and phi

    def field(_, P):
        p = np.clip(P, 0, 1)[:, None]
        h, phi = ((choose * p**k * (1 - p) ** (K - k)) @ values).T
        return P * (1 - P) * h * phi[::-1]

    return field


def scipy_labels(starts, K, method):
    """+1 or -1 for each start, and the seconds it took."""
    def decided(_, P):
        return max(P.min() - 0.5, 0.5 - P.max())  # turns positive when both are on one side

    decided.terminal, field = True, right_hand_side(K)
    began = time.perf_counter()
    ends = [solve_ivp(field, (0, 2000), start, method=method, rtol=1e-6, atol=1e-9, events=decided).y[:, -1]
            if (start < 0.5).any() and (start > 0.5).any() else start for start in starts]
    return np.where(np.sum(ends, axis=1) > 1, dynamics.RIGHT, dynamics.WRONG), time.perf_counter() - began


def best_of(function, repeats=3):
    """The result, and the fewest seconds of a few runs."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - began)
    return result, min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--k", type=above_0, default=8)
    parser.add_argument("--sample", type=above_0, default=300, help="starts given to solve_ivp (300)")
    args = parser.parse_args()
    x = np.arange(201) / 200
    grid = np.stack(np.meshgrid(x, x), axis=-1)
    exact, seconds_exact = best_of(lambda: dynamics.basin(grid, args.k))
    simulated, seconds_simulated = best_of(lambda: dynamics.settle(grid, args.k))
    off_line = np.abs(grid.sum(-1) - 1) > 1e-9
    pick = np.random.default_rng(0).choice(off_line.sum(), args.sample, replace=False)
    print(f"{x.size} x {x.size} starts, K = {args.k}, standard-normalised GRPO")
    print(f"dynamics.basin  (conserved quantity)   {seconds_exact:9.4f} s")
    print(f"dynamics.settle (RK4, all at once)     {seconds_simulated:9.4f} s")
    for method in ("RK45", "LSODA"):
        labels, seconds = scipy_labels(grid[off_line][pick], args.k, method)
        whole = seconds / args.sample * x.size**2
        same = [np.mean(labels == ours[off_line][pick]) for ours in (exact, simulated)]
        print(f"solve_ivp, {method:6} start by start       {whole:9.1f} s, extrapolated from {seconds:.2f} s for {args.sample}: "
              f"{whole / seconds_exact:,.0f} x basin, {whole / seconds_simulated:,.0f} x settle; "
              f"same labels {same[0]:.1%}, {same[1]:.1%}")


if __name__ == "__main__":
    main()
