"""dynamics.py against closed forms, Monte Carlo of real updates, and references written here from the formulas in float64."""

import contextlib
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backend_bases import MouseEvent
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import dynamics as d
from dynamics import BOUNDARY, RIGHT, SPLIT, UNDECIDED, WRONG
from lab import motion, portraits, style
from lab.data import UserError
from lab.runs import Run

P11 = np.linspace(0, 1, 11)

# ---------------------------------------------------------------- references, one number at a time


def ref_sums(p, K, value):
    """Sum over k of Bin(K, p)(k) value(k)."""
    return sum(math.comb(K, k) * p**k * (1 - p) ** (K - k) * value(k) for k in range(K + 1))


def ref_field(a, b, K, eta, scale, omega):
    """dP/dt of two agents, straight from the formulas of the design."""
    def q(p, k):
        if scale == "none":
            return (1 - 1 / k) * p**2 * (1 - p) ** 2
        return p * (1 - p) * (1 if scale == "paper" else ref_sums(p, k, lambda i: math.sqrt(i / k * (1 - i / k))))

    def g(p, k):
        return ref_sums(p, k, lambda i: (2 * i > k) - omega * (2 * i < k))

    return eta[0] * q(a, K[0]) * g(b, K[1]), eta[1] * q(b, K[1]) * g(a, K[0])


def ref_goes_right(a, b, *theory, dt=0.1):
    """Simulate one start by Heun's method until both agents are clearly on one side."""
    while not (a > 0.55 and b > 0.55):
        if a < 0.3 and b < 0.3:
            return False
        u = ref_field(a, b, *theory)
        v = ref_field(a + dt * u[0], b + dt * u[1], *theory)
        a, b = a + dt / 2 * (u[0] + v[0]), b + dt / 2 * (u[1] + v[1])
    return True


def ref_update(right, label, scale):
    """One GRPO step on the logits (right, wrong) of each group, rollout by rollout: the right logit's change per eta.

    right [R, K] are the rollouts, label [R] is +1 / -1 / 0 for right / wrong / nobody."""
    reward = np.where(label[:, None] == 1, right, np.where(label[:, None] == -1, 1 - right, 0.0))
    advantage = reward - reward.mean(1, keepdims=True)
    if scale == "std":
        std = reward.std(1, keepdims=True)
        advantage = np.where(std > 0, advantage / np.where(std > 0, std, 1), 0)
    p = 0.37  # d log pi(a) / d logit(right) = 1[a right] - p, whatever p is
    return (advantage * (right - p)).mean(1)


def ref_vote(right):
    return np.sign(2 * right.sum(1) - right.shape[1]).astype(int)


# ---------------------------------------------------------------- votes, rates, drifts


def test_closed_forms():
    """A majority that counts ties, or a spread with the sample variance, misses these."""
    p = P11
    assert np.allclose(d.phi(p, 1), 2 * p - 1, atol=1e-14)
    assert np.allclose(d.phi(p, 3), 6 * p**2 - 4 * p**3 - 1, atol=1e-14)
    for j in (1, 2, 5, 32, 512):
        assert np.allclose(d.phi(p, 2 * j), d.phi(p, 2 * j - 1), atol=1e-12)
    assert np.allclose(d.spread(p, 2), p * (1 - p), atol=1e-14)
    assert np.allclose(d.spread(p, 3), math.sqrt(2) * p * (1 - p), atol=1e-14)
    assert np.allclose(d.rate(p, 2), p**2 * (1 - p) ** 2) and np.allclose(d.rate(p, 4, "paper"), p * (1 - p))
    assert np.allclose(d.rate(p, 4, "none"), 0.75 * p**2 * (1 - p) ** 2)
    assert np.all(d.rate(p, 1) == 0) and np.all(d.rate(p, 1, "none") == 0)


def test_large_groups_and_the_ends():
    """Binomials as products overflow near K = 1,030 and give 0 * log 0 = NaN at p = 0 and 1."""
    for K in (1, 2, 64, 1024):
        pmf = d.pmf(np.array([0.0, 1e-300, 0.3, 0.5, 1.0]), K)
        assert np.isfinite(pmf).all() and np.allclose(pmf.sum(-1), 1, atol=1e-12)
        assert pmf[0, 0] == 1 and pmf[-1, -1] == 1
        assert d.phi(0.0, K) == -1 and d.phi(1.0, K) == 1 and d.spread(0.0, K) == 0 == d.spread(1.0, K)
    assert d.phi(0.55, 1024) == pytest.approx(0.9986, abs=5e-4)  # normal: 2 Phi(0.05 sqrt(1023 / .2475)) - 1
    assert d.pmf(0.3, 8).tolist() == pytest.approx([math.comb(8, k) * 0.3**k * 0.7 ** (8 - k) for k in range(9)], rel=1e-12)


CASES = [(3, 0.3, 0.6), (4, 0.5, 0.45), (8, 0.2, 0.7), (8, 0.9, 0.35), (16, 0.6, 0.5), (5, 0.05, 0.9)]


@pytest.mark.parametrize("K,p,peer", CASES)
def test_drifts_against_sampled_updates(K, p, peer):
    """The mean of real GRPO updates is the drift: a label taken from the wrong group, the product phi * h for self-vote,
    a wrong pool or an omega that pays the wrong agent is more than 3 standard errors away."""
    rng, R = np.random.default_rng(K * 1000 + int(100 * p)), 60_000
    own, other = ((rng.random((R, K)) < x).astype(float) for x in (p, peer))
    foreign = rng.random(R) < 0.6  # omega 0.4
    vote = ref_vote(other)
    for scale in ("std", "none"):
        gain = d.rate(p, K, scale) / (p * (1 - p))
        pairs = [(vote, gain * d.phi(peer, K)),
                 (np.where((vote == -1) & foreign, 0, vote), gain * d.phi(peer, K, 0.4)),
                 (ref_vote(own), d.self_drift(p, K, scale)),
                 (ref_vote(np.hstack([own, other])), d.pooled_drift(p, peer, K, scale))]
        for label, drift in pairs:
            sample = ref_update(own, label, scale)
            assert abs(sample.mean() - drift) < 3 * sample.std() / math.sqrt(R)


def test_self_vote_is_not_the_product():
    """The design's numbers: label and group are one sample."""
    assert d.self_drift(0.3, 3) == pytest.approx(-0.119, abs=5e-4)
    assert d.spread(0.3, 3) * d.phi(0.3, 3) == pytest.approx(-0.169, abs=5e-4)


def test_grpo_step_is_the_sampled_gradient():
    """Three answers, by hand: 4 rollouts 2,1,1, label = answer 1. A unanimous group and no label give nothing at all."""
    step = d.grpo_step(np.array([2, 1, 1]), np.array(1))
    std = math.sqrt(3) / 4  # rewards 0, 0, 1, 0
    assert step.tolist() == pytest.approx([-0.5 / 4 / std, 0.25 * 0.75 / std, -0.25 / 4 / std])
    assert np.all(d.grpo_step(np.array([[0, 4, 0], [2, 1, 1], [4, 0, 0]]), np.array([1, -1, 1])) == 0)
    assert d.grpo_step(np.array([2, 2]), np.array(0), "none").tolist() == [0.25, -0.25]
    assert d.vote(np.array([[2, 1, 1], [2, 2, 0], [0, 0, 4]])).tolist() == [0, -1, 2]


@pytest.mark.parametrize("method", list(d.FIELDS))
def test_one_sampled_step_is_two_eta_of_time(method):
    """Two logits move apart: a clock off by 2 would be invisible in every basin, and wrong in every comparison of time.
    And the sampler must label as the field of its method does."""
    P, eta = np.tile([0.6, 0.25], (100_000, 1)), 0.01
    moved = d.sample_grpo(P, 8, eta, steps=1, method=method) - P
    error = moved.std(0) / math.sqrt(len(P))
    assert np.all(np.abs(moved.mean(0) - 2 * eta * d.FIELDS[method](P[0], 8)) < 4 * error)


# ---------------------------------------------------------------- fields and trajectories


@pytest.mark.parametrize("method", ["corl", "ttrl", "pooled"])
def test_antisymmetry(method):
    """p -> 1-p turns right into wrong: the caveat of every basin. A tie given to one side breaks it."""
    P = np.random.default_rng(0).random((50, 2))
    for scale in d.SCALES:
        field = d.FIELDS[method](P, 8, 1.0, scale)
        assert np.allclose(field, -d.FIELDS[method](1 - P, 8, 1.0, scale), atol=1e-14)
        assert np.allclose(field[:, ::-1], d.FIELDS[method](P[:, ::-1], 8, 1.0, scale), atol=1e-14)


def test_ring_field_reads_the_agent_before():
    """Agent n learns from n-1, with its own K and eta for speed and the peer's K for the label."""
    P, K, eta = np.array([0.2, 0.6, 0.9]), (3, 8, 5), (1.0, 2.0, 0.5)
    got = d.ring_field(P, K, eta)
    want = [eta[n] * d.rate(P[n], K[n]) * d.phi(P[n - 1], K[n - 1]) for n in range(3)]
    assert got.tolist() == pytest.approx(want)
    assert d.ring_field([0.6, 0.3], (4, 8), (1, 3), "std", 0.5).tolist() == pytest.approx(
        ref_field(0.6, 0.3, (4, 8), (1, 3), "std", 0.5))


def test_rk4_has_order_four():
    """A wrong weight in the step still converges, only slower: halving the step must divide the error by 16."""
    start = np.array([0.7, 0.2])
    ends = {}
    for n in (5, 10, 20, 640):
        P = start
        for _ in range(n):
            P = d.rk4_step(lambda x: d.ring_field(x, 8), P, 10 / n)
        ends[n] = P
    errors = [np.abs(ends[n] - ends[640]).max() for n in (5, 10, 20)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.all((orders > 3.7) & (orders < 4.5))


@pytest.mark.slow
@pytest.mark.parametrize("K,eta,scale,omega", [(8, 1, "std", 1), (3, (1, 4), "none", 1), ((4, 16), (2, 1), "std", 0.5),
                                                 (8, (1, 2), "paper", 0.2), (8, 1, "std", 0.0)])
def test_conserved_quantity(K, eta, scale, omega):
    """E must not change by 1e-8 along any trajectory, with unequal agents and omega too."""
    starts = np.array([[0.6, 0.45], [0.85, 0.25], [0.2, 0.7]])
    dt = d.step_size(np.broadcast_to(K, 2), np.broadcast_to(eta, 2), scale) / 12
    _, P = d.simulate(starts, K, eta, scale, omega, dt=dt, t_max=40, close=0.02)
    E = d.conserved(P[..., 0], P[..., 1], K, eta, scale, omega)
    assert len(P) > 100 and np.abs(E - E[0]).max() < 1e-8
    assert np.abs(P[-1] - starts).max() > 0.05  # it moved


@pytest.mark.slow
def test_halving_the_step_changes_no_label():
    """Too large a step pushes starts over the boundary."""
    rng = np.random.default_rng(1)
    for N, K, eta, scale, omega in [(2, 8, 1, "std", 1), (3, 8, 1, "none", 1), (3, (4, 8, 16), (1, 2, 1), "std", 0.5),
                                      (4, 3, 1, "paper", 1)]:
        P = rng.random((250, N))
        dt = d.step_size(np.broadcast_to(K, N), np.broadcast_to(eta, N), scale)
        labels = [d.settle(P, K, eta, scale, omega, dt=step) for step in (dt, dt / 2)]
        assert np.array_equal(*labels) and set(np.unique(labels[0])) == {RIGHT, WRONG}


def test_simulate_stops_when_all_have_settled():
    """It ends before the clock at a corner, and never leaves [0, 1]; a start on the line ends by the clock in the middle."""
    t, P = d.simulate([[0.7, 0.6], [0.2, 0.3]], 8)
    assert t[-1] < 200 and P.min() >= 0 and P.max() <= 1
    assert np.all(P[-1, 0] > 0.98) and np.all(P[-1, 1] < 0.02) and np.diff(t) == pytest.approx(t[1])
    _, P = d.simulate([0.3, 0.7], 8, t_max=30)
    assert P[-1] == pytest.approx([0.5, 0.5], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("scale", d.SCALES)
def test_a_start_on_the_line_ends_in_the_saddle(scale):
    """Theorem 1, third case. Rounding grows on the line, and once sent 63 of 63 such starts into a corner."""
    a = np.array([0.1, 0.3, 0.45, 0.5, 0.55, 0.7, 0.9])
    for K, eta in ((2, 1.0), (3, 1.0), (8, 0.1), (8, 4.0), (64, 1.0)):
        P = d.simulate(np.stack([a, 1 - a], -1), K, eta, scale)[1]
        assert np.abs(P.sum(-1) - 1).max() < 1e-12
        assert P[-1] == pytest.approx(np.full((7, 2), 0.5), abs=1e-4)
        assert np.all(np.abs(np.diff(np.abs(P[..., 0] - 0.5), axis=0)) < 0.1)  # it walks there, it is not put there


@pytest.mark.slow
def test_other_boundaries_hold_too():
    """Unequal agents and omega < 1 have another separatrix and another saddle; self-vote's agent at one half stays."""
    for K, eta, omega in (((3, 4), (1, 2), 1.0), (3, 1.0, 0.5)):
        a, dt = np.array([0.2, 0.8]), 3 * d.step_size(K, np.broadcast_to(eta, 2))
        P = d.simulate(np.stack([a, d.separatrix(a, K, eta, omega=omega)], -1), K, eta, omega=omega, dt=dt, t_max=100)[1]
        saddle = [d.threshold(k, omega) for k in np.broadcast_to(K, 2).tolist()]
        assert P[-1] == pytest.approx(np.array([saddle, saddle]), abs=1e-4)
        assert np.abs(d.conserved(P[..., 0], P[..., 1], K, eta, omega=omega)).max() < 1e-8
    assert d.simulate([[0.7, 0.3], [0.9, 0.1]], 8, method="pooled")[1][-1] == pytest.approx(np.full((2, 2), 0.5), abs=1e-4)
    end = d.simulate([[0.5, 0.9], [0.1, 0.5]], 8, method="ttrl")[1][-1]
    assert end[0, 0] == 0.5 and end[1, 1] == 0.5 and end[0, 1] > 0.98 and end[1, 0] < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("K,eta,scale,omega", [(8, 1, "std", 1), (3, (1, 4), "none", 1), ((4, 16), (2, 1), "std", 0.5),
                                               (8, (1, 2), "paper", 0.2), (64, 1, "std", 1)])
def test_default_steps_conserve_six_digits(K, eta, scale, omega):
    """A curve in a figure is drawn with the step that `simulate` chooses: E must hold to 1e-6 of itself along it."""
    P = np.random.default_rng(0).random((20, 2))
    E0 = d.conserved(P[:, 0], P[:, 1], K, eta, scale, omega)
    states = d.simulate(P[np.abs(E0) > 0.01], K, eta, scale, omega)[1]
    E = d.conserved(states[..., 0], states[..., 1], K, eta, scale, omega)
    assert np.nanmax(np.abs(E / E[0] - 1)) < 1e-6


# ---------------------------------------------------------------- basins


@pytest.mark.parametrize("scale", d.SCALES)
@pytest.mark.parametrize("K", [3, 8, 64])
def test_basins_follow_the_sum_rule(scale, K):
    """Theorem 1 on 2,000 starts, for the conserved quantity and, independently, for the simulation."""
    P = np.random.default_rng(K).random((2000, 2))
    rule = np.where(P.sum(1) > 1, RIGHT, WRONG)
    assert np.array_equal(d.basin(P, K, 1.0, scale), rule)
    assert np.array_equal(d.settle(P, K, 1.0, scale), rule)


@pytest.mark.parametrize("a,K,eta,scale,omega,known", [
    (0.8, (8, 8), (1, 4), "std", 1, 0.061), (0.8, (8, 8), (4, 1), "std", 1, 0.339),
    (0.7, (4, 8), (1, 2), "none", 1, None), (0.2, (8, 3), (1, 1), "std", 0.5, None)])
def test_separatrix_against_bisection(a, K, eta, scale, omega, known):
    """The moved boundary: eta on the wrong side of the quotient, or the peer's K in H, moves it the other way."""
    low, high = 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (low, middle) if ref_goes_right(a, middle, K, eta, scale, omega) else (middle, high)
    got = float(d.separatrix(a, K, eta, scale, omega))
    assert low - 1e-3 < got < high + 1e-3
    if known:
        assert got == pytest.approx(known, abs=6e-4)
    labels = d.basin([[a, got - 1e-6], [a, got], [a, got + 1e-6]], K, eta, scale, omega)
    assert labels.tolist() == [WRONG, BOUNDARY, RIGHT]


def test_near_an_edge_a_start_is_not_on_the_boundary():
    """E grows without bound towards 0, so E divided by its slope is small there, however far the separatrix is."""
    starts = [[9e-10, 0.9], [1.1e-9, 0.9], [0.9, 9e-10], [1 - 9e-10, 0.1], [0.7, 0.3], [0.7, 0.3 + 5e-10]]
    assert d.basin(starts).tolist() == [WRONG, WRONG, WRONG, RIGHT, BOUNDARY, BOUNDARY]


@pytest.mark.parametrize("theory", [{"K": 1}, {"K": 2, "method": "ttrl"}])
def test_where_nothing_moves_a_portrait_says_so(theory):
    """A line and fixed points over a field of zeros: a picture of what is not there."""
    ax = Figure().subplots()
    assert portraits.portrait(ax, **theory) == 0 and "Nothing moves" in ax.get_title()
    assert not ax.lines


def test_separatrix_of_equal_agents_is_the_line():
    """And its ends, where H is infinite; at omega 0 there is none."""
    for scale in d.SCALES:
        assert np.allclose(d.separatrix(P11, 8, 1.0, scale), 1 - P11, atol=1e-12)
    assert np.isnan(d.separatrix(P11, 8, omega=0.0)).all()


def test_a_q_of_your_own():
    """The boundary of equal agents does not depend on q as long as q(p) = q(1 - p); a lopsided q bends it."""
    P = np.random.default_rng(3).random((500, 2))
    P = P[np.abs(P.sum(1) - 1) > 1e-3]
    rule = np.where(P.sum(1) > 1, RIGHT, WRONG)

    def even(p, K):
        return p * (1 - p) * (2 + np.cos(6 * np.pi * (p - 0.5)))

    assert np.allclose(d.rate(P11, 8, even), even(P11, 8), atol=1e-15) and np.all(d.rate([0.0, 1.0], 8, even) == 0)
    assert np.array_equal(d.basin(P, 8, scale=even), rule)
    assert np.array_equal(d.settle(P, 8, scale=even), rule)
    assert np.allclose(d.ring_field(P, 8, 1.0, lambda p, K: p * (1 - p)), d.ring_field(P, 8, 1.0, "paper"))

    def lopsided(p, K):
        return p**2 * (1 - p)

    assert np.mean(d.basin(P, 8, scale=lopsided) != rule) > 0.05
    assert np.array_equal(d.basin(P, 8, scale=lopsided), d.settle(P, 8, scale=lopsided))
    p = P11[1:-1]
    assert np.allclose(d.self_drift(p, 8, even), even(p, 8) / (p * (1 - p)) * d.phi(p, 8))
    with pytest.raises(ValueError, match="scale is one of std, none, paper"):
        d.rate(0.5, 8, "own")


def test_boundary_and_undecided_are_never_guessed():
    """Rounding sends these starts somewhere; the label must not."""
    on_line = np.stack([P11, 1 - P11], -1)
    assert np.all(d.basin(on_line, 8) == BOUNDARY)
    assert d.basin([0.5] * 3, 8) == UNDECIDED and d.basin([0.3, 0.7, 0.3, 0.7], 8) == UNDECIDED
    assert d.basin([0.0, 1.0, 1.0], 8) == UNDECIDED  # at rest
    for method in d.FIELDS:
        assert np.all(d.basin([[0.9, 0.8], [0.1, 0.2]], 1, method=method) == UNDECIDED)  # one vote teaches nothing
    assert d.basin([0.0, 0.6], 8, omega=0.0) == UNDECIDED
    assert d.basin([[1, 0.5], [0.5, 1], [0, 0.9], [1, 0.1], [0, 0], [1, 1]], 8).tolist() == [1, 1, -1, 1, -1, 1]


def test_ring_counterexamples():
    """The boundary for three agents is not sum(p) = 3/2, and the direction of the ring matters."""
    for scale in ("std", "none"):
        assert d.basin([[0.06, 0.98, 0.27], [0.9, 0.1, 0.45], [0.45, 0.1, 0.9], [0.95, 0.92, 0.02]], 8, 1.0,
                       scale).tolist() == [RIGHT, WRONG, RIGHT, WRONG]
    assert d.basin([0.95, 0.92, 0.02], 8, 1.0, "paper") == RIGHT
    P = np.random.default_rng(0).random((400, 3))
    label = d.basin(P, 8)
    assert np.array_equal(d.basin(1 - P, 8), -label) and np.array_equal(d.basin(np.roll(P, 1, 1), 8), label)
    assert 0.01 < np.mean(label != np.where(P.sum(1) > 1.5, RIGHT, WRONG)) < 0.15


def test_omega_moves_the_threshold():
    """Fewer shared errors only ever turn wrong into right; without any, every p rises."""
    P = np.random.default_rng(0).random((500, 2))
    last = np.full(500, WRONG)
    for omega in (1.0, 0.5, 0.2, 0.0):
        label = d.basin(P, 8, omega=omega)
        assert np.all(label >= last)
        assert abs(d.phi(d.threshold(8, omega), 8, omega)) < 1e-12
        last = label
    assert np.all(last == RIGHT) and np.all(d.ring_field(P, 8, omega=0.0) > 0)
    assert np.array_equal(d.basin(P, 8, omega=0.5), d.settle(P, 8, omega=0.5))


def test_proposition_2_self_vote():
    """Self-vote is self-confirming: the sign of p - 1/2, each agent by itself."""
    p = np.linspace(0.01, 0.99, 99)
    for K in (3, 4, 8, 64):
        for scale in d.SCALES:
            drift = d.self_drift(p, K, scale)
            assert np.array_equal(np.sign(np.where(np.abs(drift) < 1e-15, 0, drift)), np.sign(np.round(p - 0.5, 9)))
    assert d.basin([[0.6, 0.7], [0.6, 0.4], [0.1, 0.2], [0.5, 0.9]], 8, method="ttrl").tolist() == [
        RIGHT, SPLIT, WRONG, BOUNDARY]
    assert np.all(d.self_drift(p, 2) == 0) and d.basin([0.6, 0.7], 2, method="ttrl") == UNDECIDED  # tied or unanimous
    end = d.simulate([0.6, 0.4], 8, method="ttrl")[1][-1]
    assert end[0] > 0.98 and end[1] < 0.02


def test_pooled_vote_has_the_same_boundary():
    """Claimed in the figure of starts: p_A + p_B = 1 decides under the pooled vote too."""
    P = np.random.default_rng(2).random((200, 2))
    P = P[np.abs(P.sum(1) - 1) > 0.02]
    for scale in ("std", "none"):
        end = d.simulate(P, 4, 1.0, scale, method="pooled", t_max=60)[1][-1]
        assert np.array_equal(np.where(end.sum(1) > 1, RIGHT, WRONG), d.basin(P, 4, 1.0, scale, method="pooled"))


def test_uniform_starts_end_half_right_either_way():
    """The symmetry caveat, counted: of all agents half end right under both methods."""
    x = (np.arange(100) + 0.5) / 100
    P = np.stack(np.meshgrid(x, x), -1)
    assert np.mean(d.basin(P, 8) == RIGHT) == 0.495 and np.mean(P > 0.5) == 0.5  # 100 of 10,000 on the line
    assert np.mean(d.basin(P, 8, method="ttrl") == RIGHT) == 0.25


# ---------------------------------------------------------------- sampled GRPO


def test_noise_near_the_line():
    """(.6, .45), K = 8: about 95 % right at eta .02 and 77 to 81 % at .1; far from the line no noise remains."""
    share = [(d.sample_grpo(np.tile([0.6, 0.45], (n, 1)), 8, eta, 4000) > 0.5).all(1).mean()
             for eta, n in ((0.02, 600), (0.1, 1500))]
    assert 0.93 < share[0] < 0.99 and 0.75 < share[1] < 0.85
    assert np.all(d.sample_grpo(np.tile([0.8, 0.6], (200, 1)), 8, 0.05) > 0.9)
    assert np.all(d.sample_grpo(np.tile([0.8, 0.1], (200, 1)), 8, 0.05, method="ttrl")[:, 1] < 0.1)


def test_scattered_mistakes_are_outvoted():
    """With many wrong answers the plurality is right long before p = 1/2: the threshold is the commonest mistake."""
    P = np.tile([0.35, 0.35], (200, 1))
    assert np.mean(d.sample_grpo(P, 16, 0.1, 1500, wrong=(1.0,)) > 0.5) < 0.05
    assert np.mean(d.sample_grpo(P, 16, 0.1, 1500, wrong=(1.0,) * 6) > 0.5) > 0.95
    own = [[1.0, 0.0], [0.0, 1.0]]  # one mistake each, but different ones: omega 0
    assert np.mean(d.sample_grpo(P, 16, 0.1, 1500, wrong=own) > 0.5) > 0.95
    assert np.mean(d.sample_grpo(P, 16, 0.1, 1500, omega=0.0) > 0.5) > 0.95


# ---------------------------------------------------------------- runs


def write_run(folder, starts, ends, steps=6, omega=None, **config):
    """A run whose accuracies go straight from start to end."""
    folder.mkdir(parents=True)
    names = "ABC"[:len(next(iter(starts.values())))]
    config = {"method": "corl", "k": 8, "scale": True, "agents": len(names), "seed": 0, "data": "tiny", "models": None,
              "cohort": "complementary", "probe_samples": 100} | config
    (folder / "config.json").write_text(json.dumps(config))
    lines = []
    for i in range(steps):
        at = {t: np.array(starts[t]) + (np.array(ends[t]) - starts[t]) * i / max(steps - 1, 1) for t in starts}
        probes = {a: {t: v[n] for t, v in at.items()} for n, a in enumerate(names)}
        lines.append({"step": 10 * i, "probes": probes, "eval": {}} | ({"omega": omega} if omega else {}))
        lines.append({"step": 10 * i + 1, "loss": 0.5})
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return Run(folder)


STARTS = {"carry": (0.84, 0.40), "bracket": (0.33, 0.85), "fraction": (0.25, 0.33)}
ENDS = {"carry": (0.95, 0.92), "bracket": (0.06, 0.05), "fraction": (0.0, 0.02)}


def words(fig):
    """Every text of a figure."""
    return "\n".join(text.get_text() for text in fig.findobj(lambda artist: hasattr(artist, "get_text")))


def test_rows_tell_forecast_and_outcome(tmp_path):
    """A row must not copy the outcome into the forecast: bracket is forecast right and ends wrong. Staying put would
    call two starts split that end together."""
    rows = portraits.topic_rows(write_run(tmp_path / "run", STARTS, ENDS))
    assert [(r.topic, r.forecast, r.outcome, r.hit, r.stays) for r in rows] == [
        ("carry", "right", "right", True, "split"), ("bracket", "right", "wrong", False, "split"),
        ("fraction", "wrong", "wrong", True, "wrong")]
    assert rows[0].start == pytest.approx((0.84, 0.40)) and rows[0].end == pytest.approx((0.95, 0.92)) and rows[0].omega == 1
    assert portraits.score(rows) == "2 of 3 forecasts came true (staying put: 1 of 3)"


def test_only_an_end_is_counted(tmp_path):
    """After few steps the theory has not failed, and four steps towards the right have not borne it out."""
    ends = {"carry": (0.95, 0.92), "bracket": (0.6, 0.85), "fraction": (0.25, 0.1)}
    rows = portraits.topic_rows(write_run(tmp_path / "run", STARTS, ends))
    assert [r.outcome for r in rows] == ["right", "under way", "under way"] and [r.hit for r in rows] == [True, None, None]
    assert portraits.score(rows) == (
        "1 of 1 forecasts came true (staying put: 0 of 1); 2 topics are under way after 50 steps")
    assert portraits.score(rows[1:2]) == "1 topic is under way after 50 steps"
    assert [portraits.outcome(end) for end in ([0.9, 0.1], [0.81, 0.9], [0.1, 0.19], [0.5, 0.9], [0.8, 0.9])] == [
        "split", "right", "wrong", "under way", "under way"]


@pytest.mark.slow
def test_forecasts_use_the_measured_omega(tmp_path):
    """(.42, .42) lies below the line of omega = 1, and above the boundary of omega = .2."""
    starts, ends = {t: (0.42, 0.42) for t in "xyz"}, {t: (0.9, 0.9) for t in "xyz"}
    rows = portraits.topic_rows(run := write_run(tmp_path / "run", starts, ends, omega={"x": 1.0, "y": 0.2, "z": None}))
    assert [(r.omega, r.forecast) for r in rows] == [(1.0, "wrong"), (0.2, "right"), (1.0, "wrong")]
    assert "ω = 0.73" in words(portraits.overlay(run))
    assert {r.forecast for r in portraits.topic_rows(run, omega=0.1)} == {"right"}
    assert "ω = 0.1" in words(portraits.overlay(run, omega=0.1))


def test_no_forecast_where_the_theory_is_silent(tmp_path):
    """Real data, a method without a field, the pooled vote of three, mistakes made to differ that nobody measured."""
    three = {"x": (0.9, 0.8, 0.9)}, {"x": (1.0, 1.0, 1.0)}
    for i, config in enumerate(({"data": "sums"}, {"method": "empo"}, {"method": "unknown"}, {"cohort": "errors"})):
        run = write_run(tmp_path / str(i), STARTS, ENDS, **config)
        rows = portraits.topic_rows(run)
        assert {(r.forecast, r.hit) for r in rows} == {("", None)} and portraits.score(rows) == ""
        assert "came true" not in words(portraits.overlay(run)) and "predicted" not in words(portraits.overlay(run))
    assert portraits.topic_rows(write_run(tmp_path / "p", *three, method="pooled"))[0].forecast == ""
    assert portraits.topic_rows(write_run(tmp_path / "r", *three))[0].forecast == "right"
    assert portraits.topic_rows(write_run(tmp_path / "t", STARTS, ENDS, method="ttrl", cohort="errors"))[0].forecast == "split"
    measured = write_run(tmp_path / "m", STARTS, ENDS, cohort="errors", omega={"carry": 0.02, "bracket": 0.02, "fraction": 0.02})
    assert [r.forecast for r in portraits.topic_rows(measured)] == ["right"] * 3
    pooled = write_run(tmp_path / "o", STARTS, ENDS, cohort="errors", method="pooled", omega={"carry": 0.02})
    assert portraits.topic_rows(pooled)[0].forecast == ""  # its theory is that of omega = 1


def test_one_measurement_is_no_outcome(tmp_path):
    """A run that was killed before its second evaluation scored its start against itself: 2 of 2 forecasts came true."""
    rows = portraits.topic_rows(write_run(tmp_path / "run", {"x": (0.9, 0.95)}, {"x": (0.9, 0.95)}, steps=1))
    assert rows[0].outcome == "under way" and "came true" not in portraits.score(rows)


@pytest.mark.parametrize("words, said", [
    ("--start .6 .45 --omega 0", "0.45: right; E = 0.5569\n"), ("--start 1 1", "1: right; at p_A = 1 it needs p_B > 0\n"),
    ("--start .6 .4", "boundary; E = 0; at p_A"), ("--start .6 .4 --method ttrl --omega .5", "--omega goes with --method corl"),
    ("--slice 3 1.5", "between 0 and 1, not 1.5"), ("--portrait --save p9", "has no format: end it in .png"),
])  # fmt: skip
def test_what_the_command_says_at_the_edges(words, said, tmp_path, monkeypatch, capsys):
    """NaN printed as a number, omega dropped without a word, 6,400 starts in one message."""
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(SystemExit):
        portraits.main(words.split())
    assert said in "".join(capsys.readouterr())


@pytest.mark.slow
def test_forecasts_know_rates_and_votes(tmp_path):
    """(.6, .35) lies below the line of equal agents; if B learns four times faster it ends right. With 64 votes and groups of 8
    the theory, which has one K, says nothing; as many votes as rollouts are the usual case."""
    at = {"x": (0.6, 0.35)}, {"x": (0.9, 0.9)}
    for i, (told, config) in enumerate((("wrong", {}), ("wrong", {"lrs": [1e-4, 1e-4]}), ("right", {"lrs": [1e-4, 4e-4]}),
                                        ("", {"votes": 64}), ("wrong", {"votes": 8}))):  # fmt: skip
        run = write_run(tmp_path / str(i), *at, **config)
        assert portraits.topic_rows(run)[0].forecast == told
        portraits.overlay(run)


def test_overlay_says_what_happened(tmp_path):
    """Each topic is named where it is drawn, with its fate in words that cannot be read the other way round."""
    with style.look():
        fig = portraits.overlay(write_run(tmp_path / "run", STARTS, ENDS))
        FigureCanvasAgg(fig).draw()
        box, (width, height) = fig.get_tightbbox(), fig.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    text = words(fig)
    for said in ("2 of 3 forecasts came true (staying put: 1 of 3)", "fraction\nends wrong, as predicted", "K = 8", "seed 0",
                 "bracket\npredicted right, ended wrong", "50 steps", "± 1 standard error, n = 100", "$p_A + p_B = 1$"):
        assert said in text, said


@pytest.mark.slow
def test_many_topics_are_still_topics(tmp_path):
    """A seventh topic once turned the figure into its form for many problems, without a word."""
    starts = {f"topic{i}": (0.2 + 0.05 * i, 0.5) for i in range(11)}
    fig = portraits.overlay(write_run(tmp_path / "run", starts, {t: (0.9, 0.9) for t in starts}))
    assert all(f"{t}\n" in words(fig) or f"{t}*\n" in words(fig) for t in starts) and "predicted from the start" in words(fig)


def test_problems_of_real_data_are_counted_by_area(tmp_path):
    """64 sums lie on a grid of 9 x 9 places, one upon the other. No portrait is behind them unless omega asks for one."""
    starts = {str(i): ((0.5, 0.25) if i < 9 else (1.0, 0.0)) for i in range(10)}
    run = write_run(tmp_path / "run", starts, {t: (1.0, 1.0) for t in starts}, data="sums", models=["a/SmolLM2", "b/Gemma"])
    fig = portraits.overlay(run)
    sizes = sorted(fig.axes[0].collections[0].get_sizes())
    assert sizes[1] == 9 * sizes[0] and "10 problems under Co-RL: 10 ended right" in words(fig)
    assert "SmolLM2" in fig.axes[0].get_xlabel() and "Gemma" in fig.axes[0].get_ylabel() and "boundary" not in words(fig)
    asked = words(portraits.overlay(run, omega=0.15))
    assert "ω = 0.15" in asked and "boundary" in asked and "came true" not in asked


def test_forecast_near_the_line_is_marked_unsure(tmp_path):
    """A start of 20 samples at (.55, .5) cannot tell the side; one of 20,000 can."""
    for samples, unsure in ((20, True), (20_000, False)):
        run = write_run(tmp_path / str(samples), {"x": (0.55, 0.5)}, {"x": (1, 1)}, probe_samples=samples)
        assert portraits.unsure(*portraits.topic_rows(run), samples, {"K": 8, "method": "corl"}) is unsure
        assert ("too near the boundary to call" in words(portraits.overlay(run))) is unsure


def test_runs_are_read_with_their_own_field(tmp_path):
    """Under ttrl (.84, .40) splits; Dr. GRPO's run has scale none."""
    ends = {"carry": (0.97, 0.03), "bracket": (0.02, 0.98), "fraction": (0, 0)}
    run = write_run(tmp_path / "a", STARTS, ends, method="ttrl")
    assert portraits.score(portraits.topic_rows(run)) == "3 of 3 forecasts came true (staying put: 3 of 3)"
    assert "q of GRPO without std" in words(portraits.overlay(write_run(tmp_path / "c", STARTS, ends, scale=False)))


def test_distance_by_hand():
    """To the nearest place of the curve, not to its nearest vertex and not beyond its ends."""
    curve = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    assert portraits.distance(np.array([[0.5, 0.3], [1.1, 0.5], [1.3, 1.4], [0.2, 0.0]]), curve) == pytest.approx(
        (0.3 + 0.1 + 0.5 + 0) / 4)


# ---------------------------------------------------------------- figures, window, command

DRAWN = [lambda fig: portraits.draw_basins(fig=fig), lambda fig: portraits.draw_unequal(fig=fig),
         lambda fig: portraits.draw_omega(fig=fig), lambda fig: portraits.draw_noise(fig=fig, runs=1),
         lambda fig: portraits.draw_ring(fig=fig), lambda fig: portraits.draw_starts(fig=fig, questions=20)]


@pytest.fixture
def quick_ring(monkeypatch):
    """The boundary of a ring of three takes seconds of simulation, and has a test of its own."""
    monkeypatch.setattr(portraits, "ring_boundary", lambda x, *_, **__: 1 - x)


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWN)
def test_no_figure_is_cut_off(draw, quick_ring):
    """Titles and legends grow; text beyond the canvas is lost in the file. K and q stand on every figure."""
    with style.look():
        fig = draw(None)
        FigureCanvasAgg(fig).draw()
        box, (width, height) = fig.get_tightbbox(), fig.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    assert "K = 8" in words(fig) and "q of GRPO" in words(fig) and fig.get_suptitle()


@pytest.mark.slow
def test_a_figure_of_your_own_is_taken():
    """A notebook's own figure is drawn into and comes back."""
    mine = Figure(figsize=(8, 6))
    assert portraits.draw_basins(4, fig=mine) is mine and "K = 4" in words(mine)


def test_the_two_basins_differ_in_greyscale():
    """In a grey printout the blue and the orange basin were one: 1.02 : 1 of luminance."""
    def luminance(colour):
        c = np.array([int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)])
        return np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    right, wrong = (luminance(portraits.SHADES[end]) + 0.05 for end in (RIGHT, WRONG))
    assert right / wrong > 1.4


def test_ring_boundary_of_the_figure():
    """It must be the edge of `basin`, between the two sides of it, also of unequal agents."""
    x = np.array([0.2, 0.6, 0.9])
    for theory in ({"K": 8}, {"K": (4, 8, 16), "eta": (1, 2, 1)}):
        y = portraits.ring_boundary(x, 3, 0.27, **theory)
        for side, label in ((-2e-3, WRONG), (2e-3, RIGHT)):
            assert np.all(d.basin(np.stack([x, y + side, np.full(3, 0.27)], -1), **theory) == label)
    with pytest.raises(ValueError, match="agent 1, 2 or 3"):
        portraits.portrait(Figure().subplots(), slice=(4, 0.5))


@pytest.mark.slow
def test_portrait_says_what_it_shows():
    """The picture of K = 4 cannot be told from that of K = 8 unless it says so; a title of one's own replaces it."""
    ax = Figure().subplots()
    assert portraits.portrait(ax, K=(4, 64), eta=(1, 4), omega=0.3, legend=True) > 0.5
    assert all(said in ax.get_title() for said in ("Co-RL", "K = 4, 64", "η = 1, 4", "ω = 0.3")) and ax.figure.legends
    portraits.portrait(ax, method="ttrl", title="mine")
    assert ax.get_title() == "mine"


@pytest.mark.parametrize("method", list(d.FIELDS))
def test_a_portrait_fits_its_file(method, tmp_path, monkeypatch):
    """The legend of seven entries once ran over both edges."""
    boxes = []
    monkeypatch.setattr(style, "save", lambda fig, path: boxes.append((fig.get_tightbbox(), fig.get_size_inches())))
    assert portraits.main(["--portrait", "--method", method]) == 0
    ((box, (width, height)),) = boxes
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height


@pytest.mark.slow
def test_window_click_and_sliders():
    """A click gives a verdict, a slider changes it, a click outside does nothing, a right click clears."""
    fig = Figure(figsize=(7, 8))
    canvas = FigureCanvasAgg(fig)
    window = motion.Window(fig, portraits.portrait, portraits.paths)

    def click(p, button=1):
        MouseEvent("button_press_event", canvas, *window.ax.transData.transform(p), button=button)._process()

    click((0.8, 0.1))
    assert "wrong" in window.text.get_text() and "E = " in window.text.get_text() and "0.2" in window.text.get_text()
    window.sliders["eta_b"].set_val(2.0)  # 2 ** 2 = 4 times as fast
    assert "right" in window.text.get_text() and "0.0608" in window.text.get_text()
    assert window.sliders["eta_b"].valtext.get_text() == "4.00"
    window.sliders["eta_b"].set_val(0.0)
    window.sliders["omega"].set_val(0.0)
    assert "right" in window.text.get_text()
    click((1.5, 0.5))
    assert len(window.starts) == 1
    click((0.5, 0.5), button=3)
    assert window.starts == [] and window.text.get_text() == motion.HELP
    assert fig.window is window  # a notebook keeps the figure, and the sliders die with their window


@pytest.mark.parametrize("options,words", [
    (["--start", ".6", "1.4"], "between 0 and 1"), (["--start", ".6", "nan"], "between 0 and 1"),
    (["--start", ".6"], "at least two agents"), (["--start", ".6", ".4", "--k", "0"], "at least 1"),
    (["--start", ".6", ".4", "--eta", "-1"], "positive"), (["--start", ".6", ".4", "--omega", "2"], "between 0 and 1"),
    (["--k", "0"], "at least 1"), (["--eta", "1", "2"], "--eta does not go with the six figures"), (["--show"], "screen"),
    (["--overlay", "nowhere"], "no config.json"), (["--overlay", "x", "--k", "8"], "--k does not go with --overlay"),
    (["--overlay", "x", "--scale", "std"], "--scale does not go"), (["--overlay", "x", "--eta", "1"], "--eta does not go"),
    (["--portrait", "--start", ".6", ".4", ".3"], "two numbers"), (["--slice", "4", ".5"], "agent 1, 2 or 3"),
    (["--slice", "3", ".5", "--start", ".6", ".4"], "--start does not go"), (["--animate", "--save", "x.png"], "a .gif"),
    (["--portrait", "--save", "x.foo"], "has no format"), (["--portrait", "--k", "1", "2", "3"], "2 agents")])
def test_bad_options_get_one_line(options, words, capsys, tmp_path, monkeypatch):
    """A traceback, an option that is passed over, nonsense drawn from a nonsense option, or an empty folder left behind."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        portraits.main(options)
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and words in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_overlay_has_its_own_options(tmp_path):
    """--out would be ignored: the figure goes into the run's folder, or to --save."""
    write_run(tmp_path / "run", STARTS, ENDS)
    with pytest.raises(SystemExit):
        portraits.main(["--overlay", str(tmp_path / "run"), "--out", str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()
    assert portraits.main(["--overlay", str(tmp_path / "run"), "--omega", ".3"]) == 0
    assert (tmp_path / "run" / "overlay.png").stat().st_size > 20_000


def test_figures_are_written_where_they_are_asked_for(tmp_path, monkeypatch, capsys):
    """The command without options draws into --out, which it makes. The paper's q has no sampled form: two figures once
    showed GRPO's in its place; they are left out, aloud."""
    monkeypatch.setattr(portraits, "FIGURES", {name: lambda K, scale: Figure() for name in portraits.FIGURES})
    assert portraits.main(["--k", "4", "--out", str(tmp_path / "new")]) == 0
    assert len(list((tmp_path / "new").iterdir())) == 6 and "ring.png" in capsys.readouterr().out
    assert portraits.main(["--scale", "paper", "--out", str(tmp_path / "paper")]) == 0
    assert sorted(p.stem for p in (tmp_path / "paper").iterdir()) == ["basins", "omega", "ring", "unequal"]
    said = capsys.readouterr().err
    assert "left out" in said and "noise.png" in said and "starts.png" in said


def test_runs_that_cannot_be_drawn(tmp_path, capsys):
    """Each with its own line: three agents, no evaluation, a broken file, no k."""
    run = write_run(tmp_path / "three", {"x": (0.8, 0.7, 0.6)}, {"x": (1, 1, 1)})
    with pytest.raises(UserError, match="two agents"):
        portraits.overlay(run)
    folder = write_run(tmp_path / "no-k", {"x": (0.8, 0.7)}, {"x": (1, 1)}).folder
    (folder / "config.json").write_text('{"method": "corl"}')
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}")
    for text, said in (('{"step": 0}\n', "two agents"), ('{"step": \n', "cannot read"), (None, "lacks")):
        if text:
            (tmp_path / "empty" / "metrics.jsonl").write_text(text)
        with pytest.raises(SystemExit) as stopped:
            portraits.main(["--overlay", str(tmp_path / "empty" if text else folder)])
        assert stopped.value.code == 2 and said in capsys.readouterr().err


def test_command_prints_a_forecast(capsys):
    """The numbers of one start, for two agents and for a ring."""
    assert portraits.main(["--start", ".8", ".07", "--eta", "1", "4"]) == 0
    assert portraits.main(["--start", ".9", ".1", ".45", "--start", ".45", ".1", ".9"]) == 0
    two, ring, other = capsys.readouterr().out.splitlines()
    assert "right" in two and "0.06085" in two and ring.endswith("wrong") and other.endswith("right")


@pytest.mark.slow
def test_a_portrait_takes_every_number_of_the_theory(tmp_path, quick_ring):
    """The ending of --save is the format. An --out x.pdf once made a folder of that name with six PNGs."""
    options, starts = "--portrait --k 4 16 --eta 1 4 --omega .3".split(), "--start .6 .45 --start .2 .7".split()
    for ending, first in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        assert portraits.main([*options, *starts * (ending == "pdf"), "--save", str(tmp_path / f"a.{ending}")]) == 0
        assert (tmp_path / f"a.{ending}").read_bytes().startswith(first)
    assert portraits.main(["--slice", "3", ".27", "--save", str(tmp_path / "new" / "slice.png")]) == 0


def test_starts_fall_in_an_animation(tmp_path):
    """The points of the last frame are not where they began; frames as asked for."""
    with style.look():
        motion.fall(portraits.portrait, tmp_path / "fall.gif", points=20, frames=3, K=4)
    with Image.open(tmp_path / "fall.gif") as image:
        first = np.asarray(image.convert("RGB"), int)
        assert image.n_frames == 3
        image.seek(2)
        assert np.abs(np.asarray(image.convert("RGB"), int) - first).max() > 50


@pytest.mark.slow
def test_dynamics_hands_over_to_the_command():
    """`python dynamics.py` runs the command of lab/portraits.py; importing either leaves pyplot and the backend alone, and the
    seconds that PyTorch takes to load."""
    root = Path(d.__file__).parent
    done = subprocess.run([sys.executable, "dynamics.py", "--start", ".6", ".45"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and "right" in done.stdout
    code = "import sys, dynamics, lab.portraits; print({'matplotlib.pyplot', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.slow
def test_plotting_examples_run(tmp_path, monkeypatch, quick_ring):
    """Every Python example of docs/plotting.md, as it stands, and every command of it, in a folder with a run."""
    text = (Path(d.__file__).parent / "docs" / "plotting.md").read_text()
    write_run(tmp_path / "runs" / "corl-001", STARTS, ENDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(motion, "show", lambda *_, **__: "a window")
    monkeypatch.setattr(motion.fall, "__defaults__", (None, 20, 2, 24.0, 12))  # few points, two frames
    save = Figure.savefig  # figures are made, not rendered: other tests look at them
    monkeypatch.setattr(Figure, "savefig", lambda figure, to, **how: (
        Path(to).touch() if isinstance(to, str | Path) else save(figure, to, **how)))
    examples = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(examples) >= 6 and all(len(example.strip().splitlines()) <= 8 for example in examples)
    for example in examples:
        exec(compile(example, "docs/plotting.md", "exec"), {})
    commands = re.findall(r"^python dynamics\.py(.*?)(?:#.*)?$", text, re.M)
    assert len(commands) >= 6
    for command in commands:
        if command.split():  # all six figures have tests of their own
            assert portraits.main(command.split()) == 0
