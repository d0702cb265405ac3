"""dynamics.py against closed forms, Monte Carlo of real updates, and references written here from the formulas in float64."""

import json
import math

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backend_bases import MouseEvent
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import dynamics as d
from dynamics import BOUNDARY, RIGHT, SPLIT, UNDECIDED, WRONG
from lab import portraits as dynamics_window
from lab import portraits as figures
from lab import portraits as runs

P11 = np.linspace(0, 1, 11)

# ---------------------------------------------------------------- references, one number at a time


def ref_sums(p, K, value):
    """Sum over k of Bin(K, p)(k) value(k)."""
    return sum(math.comb(K, k) * p**k * (1 - p) ** (K - k) * value(k) for k in range(K + 1))


def ref_field(a, b, K, eta, scale, overlap):
    """dP/dt of two agents, straight from the formulas of the design."""
    def q(p, k):
        if scale == "none":
            return (1 - 1 / k) * p**2 * (1 - p) ** 2
        return p * (1 - p) * (1 if scale == "paper" else ref_sums(p, k, lambda i: math.sqrt(i / k * (1 - i / k))))

    def g(p, k):
        return ref_sums(p, k, lambda i: (2 * i > k) - overlap * (2 * i < k))

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
    a wrong pool or an overlap that pays the wrong agent is more than 3 standard errors away."""
    rng, R = np.random.default_rng(K * 1000 + int(100 * p)), 60_000
    own, other = ((rng.random((R, K)) < x).astype(float) for x in (p, peer))
    foreign = rng.random(R) < 0.6  # overlap 0.4
    vote = ref_vote(other)
    for scale in ("std", "none"):
        pairs = [(vote, d.peer_drift(p, peer, K, scale)),
                 (np.where((vote == -1) & foreign, 0, vote), d.peer_drift(p, peer, K, scale, overlap=0.4)),
                 (ref_vote(own), d.self_drift(p, K, scale)),
                 (ref_vote(np.hstack([own, other])), d.pooled_drift(p, peer, K, scale))]
        for label, drift in pairs:
            sample = ref_update(own, label, scale)
            assert abs(sample.mean() - drift) < 3 * sample.std() / math.sqrt(R)


def test_self_vote_is_not_the_product():
    """The design's numbers: label and group are one sample."""
    assert d.self_drift(0.3, 3) == pytest.approx(-0.119, abs=5e-4)
    assert d.peer_drift(0.3, 0.3, 3) == pytest.approx(-0.169, abs=5e-4)


def test_grpo_step_is_the_sampled_gradient():
    """Three answers, by hand: 4 rollouts 2,1,1, label = answer 1. A unanimous group and no label give nothing at all."""
    step = d.grpo_step(np.array([2, 1, 1]), np.array(1))
    std = math.sqrt(3) / 4  # rewards 0, 0, 1, 0
    assert step.tolist() == pytest.approx([-0.5 / 4 / std, 0.25 * 0.75 / std, -0.25 / 4 / std])
    assert np.all(d.grpo_step(np.array([[0, 4, 0], [2, 1, 1], [4, 0, 0]]), np.array([1, -1, 1])) == 0)
    assert d.grpo_step(np.array([2, 2]), np.array(0), "none").tolist() == [0.25, -0.25]
    assert d.vote(np.array([[2, 1, 1], [2, 2, 0], [0, 0, 4]])).tolist() == [0, -1, 2]


@pytest.mark.parametrize("method", ["corl", "ttrl", "pooled"])
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


@pytest.mark.parametrize("K,eta,scale,overlap", [(8, 1, "std", 1), (3, (1, 4), "none", 1), ((4, 16), (2, 1), "std", 0.5),
                                                 (8, (1, 2), "paper", 0.2), (8, 1, "std", 0.0)])
def test_conserved_quantity(K, eta, scale, overlap):
    """E must not change by 1e-8 along any trajectory, with unequal agents and overlap too."""
    starts = np.array([[0.6, 0.45], [0.85, 0.25], [0.2, 0.7]])
    dt = d.step_size(np.broadcast_to(K, 2), np.broadcast_to(eta, 2), scale) / 12
    _, P = d.simulate(starts, K, eta, scale, overlap, dt=dt, t_max=40, close=0.02)
    E = d.conserved(P[..., 0], P[..., 1], K, eta, scale, overlap)
    assert len(P) > 100 and np.abs(E - E[0]).max() < 1e-8
    assert np.abs(P[-1] - starts).max() > 0.05  # it moved


def test_halving_the_step_changes_no_label():
    """Too large a step pushes starts over the boundary."""
    rng = np.random.default_rng(1)
    for N, K, eta, scale, overlap in [(2, 8, 1, "std", 1), (3, 8, 1, "none", 1), (3, (4, 8, 16), (1, 2, 1), "std", 0.5),
                                      (4, 3, 1, "paper", 1)]:
        P = rng.random((250, N))
        dt = d.step_size(np.broadcast_to(K, N), np.broadcast_to(eta, N), scale)
        labels = [d.settle(P, K, eta, scale, overlap, dt=step) for step in (dt, dt / 2)]
        assert np.array_equal(*labels) and set(np.unique(labels[0])) == {RIGHT, WRONG}


def test_simulate_stops_when_all_have_settled():
    """It ends before the clock at a corner, and never leaves [0, 1]; a start on the line ends by the clock in the middle."""
    t, P = d.simulate([[0.7, 0.6], [0.2, 0.3]], 8)
    assert t[-1] < 200 and P.min() >= 0 and P.max() <= 1
    assert np.all(P[-1, 0] > 0.98) and np.all(P[-1, 1] < 0.02) and np.diff(t) == pytest.approx(t[1])
    _, P = d.simulate([0.3, 0.7], 8, t_max=30)
    assert P[-1] == pytest.approx([0.5, 0.5], abs=1e-4)


# ---------------------------------------------------------------- basins


@pytest.mark.parametrize("scale", d.SCALES)
@pytest.mark.parametrize("K", [3, 8, 64])
def test_basins_follow_the_sum_rule(scale, K):
    """Theorem 1 on 2,000 starts, for the conserved quantity and, independently, for the simulation."""
    P = np.random.default_rng(K).random((2000, 2))
    rule = np.where(P.sum(1) > 1, RIGHT, WRONG)
    assert np.array_equal(d.basin(P, K, 1.0, scale), rule)
    assert np.array_equal(d.settle(P, K, 1.0, scale), rule)


@pytest.mark.parametrize("a,K,eta,scale,overlap,known", [
    (0.8, (8, 8), (1, 4), "std", 1, 0.061), (0.8, (8, 8), (4, 1), "std", 1, 0.339),
    (0.7, (4, 8), (1, 2), "none", 1, None), (0.2, (8, 3), (1, 1), "std", 0.5, None)])
def test_separatrix_against_bisection(a, K, eta, scale, overlap, known):
    """The moved boundary: eta on the wrong side of the quotient, or the peer's K in H, moves it the other way."""
    low, high = 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (low, middle) if ref_goes_right(a, middle, K, eta, scale, overlap) else (middle, high)
    got = float(d.separatrix(a, K, eta, scale, overlap))
    assert low - 1e-3 < got < high + 1e-3
    if known:
        assert got == pytest.approx(known, abs=6e-4)
    labels = d.basin([[a, got - 1e-6], [a, got], [a, got + 1e-6]], K, eta, scale, overlap)
    assert labels.tolist() == [WRONG, BOUNDARY, RIGHT]


def test_separatrix_of_equal_agents_is_the_line():
    """And its ends, where H is infinite; at overlap 0 there is none."""
    for scale in d.SCALES:
        assert np.allclose(d.separatrix(P11, 8, 1.0, scale), 1 - P11, atol=1e-12)
    assert np.isnan(d.separatrix(P11, 8, overlap=0.0)).all()


def test_boundary_and_undecided_are_never_guessed():
    """Rounding sends these starts somewhere; the label must not."""
    on_line = np.stack([P11, 1 - P11], -1)
    assert np.all(d.basin(on_line, 8) == BOUNDARY)
    assert d.basin([0.5] * 3, 8) == UNDECIDED and d.basin([0.3, 0.7, 0.3, 0.7], 8) == UNDECIDED
    assert d.basin([0.0, 1.0, 1.0], 8) == UNDECIDED  # at rest
    assert np.all(d.basin([[0.9, 0.8], [0.1, 0.2]], 1) == UNDECIDED)  # one vote teaches nothing
    assert d.basin([0.0, 0.6], 8, overlap=0.0) == UNDECIDED
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


def test_overlap_moves_the_threshold():
    """Fewer shared errors only ever turn wrong into right; without any, every p rises."""
    P = np.random.default_rng(0).random((500, 2))
    last = np.full(500, WRONG)
    for overlap in (1.0, 0.5, 0.2, 0.0):
        label = d.basin(P, 8, overlap=overlap)
        assert np.all(label >= last)
        assert abs(d.phi(d.threshold(8, overlap), 8, overlap)) < 1e-12
        last = label
    assert np.all(last == RIGHT) and np.all(d.ring_field(P, 8, overlap=0.0) > 0)
    assert np.array_equal(d.basin(P, 8, overlap=0.5), d.settle(P, 8, overlap=0.5))


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
    own = [[1.0, 0.0], [0.0, 1.0]]  # one mistake each, but different ones: overlap 0
    assert np.mean(d.sample_grpo(P, 16, 0.1, 1500, wrong=own) > 0.5) > 0.95
    assert np.mean(d.sample_grpo(P, 16, 0.1, 1500, overlap=0.0) > 0.5) > 0.95


# ---------------------------------------------------------------- runs


def write_run(folder, starts, ends, steps=6, **config):
    """A run whose probes go straight from start to end."""
    folder.mkdir(parents=True)
    config = {"method": "corl", "k": 8, "scale": True, "lr": 1e-4, "agents": 2, "seed": 0, "topics": None} | config
    (folder / "config.json").write_text(json.dumps(config))
    lines = []
    for i in range(steps):
        at = {t: np.array(starts[t]) + (np.array(ends[t]) - starts[t]) * i / (steps - 1) for t in starts}
        names = "ABC"[:len(next(iter(starts.values())))]
        lines.append({"step": 10 * i, "probes": {a: {t: v[n] for t, v in at.items()} for n, a in enumerate(names)}})
        lines.append({"step": 10 * i + 1, "loss": 0.5})
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return folder


STARTS = {"carry": (0.84, 0.40), "bracket": (0.33, 0.85), "fraction": (0.25, 0.33)}
GOOD = {"carry": (0.95, 0.92), "bracket": (0.99, 1.0), "fraction": (0.0, 0.02)}
COUPLED = GOOD | {"bracket": (0.06, 0.05)}


def test_overlay_tells_forecast_and_outcome(tmp_path):
    """The table must not copy the outcome into the forecast: bracket is forecast right and ends wrong."""
    folder = write_run(tmp_path / "run", STARTS, COUPLED, probe_samples=100)
    rows = runs.overlay(folder, folder / "overlay.png")
    assert [(r.topic, r.forecast, r.outcome, r.hit) for r in rows] == [
        ("carry", "right", "right", True), ("bracket", "right", "wrong", False), ("fraction", "wrong", "wrong", True)]
    assert rows[0][1:3] == pytest.approx((0.84, 0.40)) and rows[1].distance > 0.2 > rows[0].distance
    assert (folder / "overlay.png").stat().st_size > 20_000
    assert "2 of 3 forecasts came true" in runs.table(rows)


def test_forecast_near_the_line_is_marked_unsure(tmp_path):
    """A probe of 20 samples at (.55, .5) cannot tell the side; one of 20,000 can."""
    for samples, unsure in ((20, True), (20_000, False), (None, False)):
        folder = write_run(tmp_path / str(samples), {"x": (0.55, 0.5)}, {"x": (1, 1)}, probe_samples=samples)
        (row,) = runs.compare(runs.load_run(folder))
        assert row.unsure is unsure and ("binomial error" in runs.table([row])) is unsure


def test_self_vote_runs_are_read_with_self_votes_field(tmp_path):
    """Under ttrl (.84, .40) splits; an unknown method is drawn without a forecast; Dr. GRPO's run has scale none."""
    ends = {"carry": (0.97, 0.03), "bracket": (0.02, 0.98), "fraction": (0, 0)}
    rows = runs.compare(runs.load_run(write_run(tmp_path / "a", STARTS, ends, method="ttrl")))
    assert [r.forecast for r in rows] == ["split", "split", "wrong"] and all(r.hit for r in rows)
    rows = runs.overlay(write_run(tmp_path / "b", STARTS, ends, method="entropy"), tmp_path / "b.png")
    assert {(r.forecast, r.hit, r.distance) for r in rows} == {("none", None, None)} and rows[0].outcome == "split"
    assert runs.load_run(write_run(tmp_path / "c", STARTS, ends, scale=False)).scale == "none"


def test_missing_and_broken_probes_are_skipped(tmp_path):
    """NaN, null, a missing topic or agent at one evaluation costs that point; a topic without a start is left out."""
    folder = write_run(tmp_path / "run", {"x": (0.8, 0.7)}, {"x": (1, 1)}, steps=2)
    more = [{"A": {"x": float("nan")}, "B": {"x": 0.5}}, {"A": {"x": None}, "B": {"x": 0.5}}, {"A": {"x": 0.5}},
            {"A": {"x": 0.9, "new": 1.0}, "B": {"x": 0.8}}]
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("\n".join(json.dumps({"step": 99, "probes": p}) for p in more))
    paths = runs.load_run(folder).paths
    assert list(paths) == ["x"] and paths["x"][:, 0].tolist() == pytest.approx([0.8, 1.0, 0.9])


def test_distance_by_hand():
    """To the nearest place of the curve, not to its nearest vertex and not beyond its ends."""
    curve = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    assert runs.distance(np.array([[0.5, 0.3], [1.1, 0.5], [1.3, 1.4], [0.2, 0.0]]), curve) == pytest.approx(
        (0.3 + 0.1 + 0.5 + 0) / 4)


def test_coupling_counts_alone_and_together(tmp_path):
    """Three seeds: bracket comes true alone and fails together; a seed must not be counted on the other side."""
    together = [write_run(tmp_path / f"t{s}", STARTS, COUPLED if s else GOOD, seed=s) for s in range(3)]
    alone = [write_run(tmp_path / f"{t}{s}", {t: STARTS[t]}, {t: GOOD[t]}, seed=s) for t in ("carry", "bracket")
             for s in range(3)]
    pairs = runs.coupling(together, alone, tmp_path / "coupling.png")
    assert [p[0] for p in pairs] == ["carry", "bracket"] and (tmp_path / "coupling.png").exists()
    assert [[sum(r.hit for r in rows) for rows in p[1:]] for p in pairs] == [[3, 3], [3, 1]]
    text = runs.coupling_table(pairs)
    assert "alone: 6 of 6" in text and "together: 4 of 6" in text
    with pytest.raises(ValueError, match="not trained on one topic"):
        runs.coupling(together, together, tmp_path / "x.png")


# ---------------------------------------------------------------- figures, window, command


@pytest.mark.parametrize("draw", [lambda: figures.draw_basins(8, "std"), lambda: figures.draw_unequal(8, "std"),
                                  lambda: figures.draw_overlap(8, "std"), lambda: figures.draw_noise("std", runs=1),
                                  lambda: figures.draw_ring(8, "std"),
                                  lambda: figures.draw_starts(8, "std", questions=20)])
def test_no_figure_is_cut_off(draw):
    """Titles and legends grow; text beyond the canvas is lost in the file."""
    with rc_context(figures.STYLE):
        fig = draw()
        FigureCanvasAgg(fig)
        box, (width, height) = fig.get_tightbbox(), fig.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    for ax in fig.axes:
        assert ax.get_title() or ax.get_xlabel() or ax.get_ylabel()


def test_ring_boundary_of_the_figure():
    """It must be the edge of `basin`, between the two sides of it."""
    x = np.array([0.2, 0.6, 0.9])
    y = figures.ring_boundaries(x, [(2, 0.27)], 8, "std")[0]
    for side, label in ((-2e-3, WRONG), (2e-3, RIGHT)):
        assert np.all(d.basin(np.stack([x, y + side, np.full(3, 0.27)], -1), 8) == label)


def test_window_click_and_sliders():
    """A click gives a verdict, a slider changes it, a click outside does nothing, a right click clears."""
    fig = Figure(figsize=(7, 8))
    canvas = FigureCanvasAgg(fig)
    window = dynamics_window.Window(fig)

    def click(p, button=1):
        MouseEvent("button_press_event", canvas, *window.ax.transData.transform(p), button=button)._process()

    click((0.8, 0.1))
    assert "wrong" in window.text.get_text() and "E = " in window.text.get_text() and "0.200" in window.text.get_text()
    window.sliders["eta_b"].set_val(4.0)
    assert "right" in window.text.get_text() and "0.061" in window.text.get_text()
    window.sliders["eta_b"].set_val(1.0)
    window.sliders["overlap"].set_val(0.0)
    assert "right" in window.text.get_text()
    click((1.5, 0.5))
    assert len(window.starts) == 1
    click((0.5, 0.5), button=3)
    assert window.starts == [] and window.text.get_text() == dynamics_window.HELP


@pytest.mark.parametrize("options,words", [
    (["--start", ".6", "1.4"], "between 0 and 1"), (["--start", ".6", "nan"], "between 0 and 1"),
    (["--start", ".6"], "at least two agents"), (["--start", ".6", ".4", "--k", "0"], "at least 1"),
    (["--start", ".6", ".4", "--eta", "-1"], "positive"), (["--start", ".6", ".4", "--overlap", "2"], "between 0 and 1"),
    (["--k", "0"], "at least 1"), (["--eta", "1", "2"], "go with"), (["--alone", "x"], "goes with"),
    (["--coupling", "x"], "no config.json"), (["--overlay", "nowhere"], "no config.json"), (["--show"], "screen")])
def test_bad_options_get_one_line(options, words, capsys, tmp_path):
    """A traceback, nonsense drawn from a nonsense option, or an empty folder left behind."""
    with pytest.raises(SystemExit) as stopped:
        figures.main([*options, "--out", str(tmp_path / "new" / "folder")])
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and words in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_figures_are_written_where_they_are_asked_for(tmp_path, monkeypatch, capsys):
    """The command without options draws into --out, which it makes; drawing itself is tested above."""
    monkeypatch.setattr(figures, "figures", lambda K, scale: {"ring.png": Figure(), f"K{K}.png": Figure()})
    assert figures.main(["--k", "4", "--out", str(tmp_path / "new")]) == 0
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["K4.png", "ring.png"]
    assert "ring.png" in capsys.readouterr().out


def test_runs_that_cannot_be_drawn(tmp_path):
    """Each with its own line: no probes, three agents, a broken line by number, no k."""
    folder = write_run(tmp_path / "three", {"x": (0.8, 0.7, 0.6)}, {"x": (1, 1, 1)})
    with pytest.raises(ValueError, match="three has 3 agents"):
        runs.overlay(folder, tmp_path / "x.png")
    folder = write_run(tmp_path / "empty", {"x": (0.8, 0.7)}, {"x": (1, 1)})
    (folder / "metrics.jsonl").write_text('{"step": 0, "loss": 1}\n')
    with pytest.raises(ValueError, match="no probes"):
        runs.load_run(folder)
    (folder / "metrics.jsonl").write_text('{"step": 0}\n{"step": \n')
    with pytest.raises(ValueError, match="line 2, is not JSON"):
        runs.load_run(folder)
    (folder / "metrics.jsonl").write_text('{"step": 0, "probes": {"A": [0.5], "B": {"x": 0.5}}}\n')
    with pytest.raises(ValueError, match="agent -> topic -> share"):
        runs.load_run(folder)
    folder = write_run(tmp_path / "no-k", {"x": (0.8, 0.7)}, {"x": (1, 1)}, k=None)
    with pytest.raises(ValueError, match="has no k"):
        runs.load_run(folder)


def test_command_prints_a_forecast(capsys):
    """The numbers of one start, for two agents and for a ring."""
    assert figures.main(["--start", ".8", ".07", "--eta", "1", "4"]) == 0
    assert figures.main(["--start", ".9", ".1", ".45"]) == 0
    two, ring = capsys.readouterr().out.splitlines()
    assert "right" in two and "0.06085" in two and ring.endswith("wrong")
