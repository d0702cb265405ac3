"""The learning dynamics of Co-RL: why a peer's vote enlarges the basin of correct convergence, and when it does not.

Read this file beside the paper's section "Learning Dynamics of Co-RL". One question, two answers (the right one and one
systematic mistake); agent n gives the right one with probability p_n. A label is the majority of K votes, the reward is
agreement with the label, the policy is a softmax over the answers. Everything is about the mean field

    dp_n/dt = eta_n q(p_n) phi_K(p_peer)        Co-RL: the label is the peer's vote (Theorem 1)
    dp_n/dt = eta_n p_n (1 - p_n) E[...]        self-vote (TTRL): the label is the agent's own vote (Proposition 2)

phi    the mean label, P(vote right) - omega P(vote wrong); omega is the chance that two wrong answers are the same
gain   how far a sure label moves the logit of the right answer in a step; GRPO's is the spread h_K, the rewards' mean std
drift  how far the actual label moves it on average; Co-RL's is gain times phi
rate   q = p(1-p) gain; the factor p(1-p) turns a logit's change into that of p
field  dp/dt, which is eta p(1-p) drift

Where this file goes beyond the paper, a docstring says "ours": how q follows from GRPO (the paper writes q_K, with p(1-p) as a
simple choice), self-vote's exact drift, unequal agents, omega, rings of three and more, pooled votes, noise.

Keep in mind with every picture: all of it is symmetric under p -> 1 - p. From uniformly random starts both Co-RL and
self-vote end right half of the time. Peer votes gain only where agents start right more often than wrong.

    python dynamics.py            six figures into runs/dynamics/
    python dynamics.py --help     forecasts, portraits of your own, a trained run over its portrait, a window, an animation
"""

import math
import runpy
from functools import lru_cache
from typing import NamedTuple

import numpy as np

RIGHT, WRONG, BOUNDARY, UNDECIDED, SPLIT = 1, -1, 0, 2, 3
NAMES = {RIGHT: "right", WRONG: "wrong", BOUNDARY: "boundary", UNDECIDED: "undecided", SPLIT: "split"}
SCALES = ("std", "none", "paper")  # the q's that have a name, see `rate`; any other is a function q(p, K)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)  # quadrature of H on [-1, 1]


def _within(what: str, value) -> np.ndarray:
    """The value as float64; ValueError unless all of it lies between 0 and 1."""
    value = np.asarray(value, float)
    if not (fine := (value >= 0) & (value <= 1)).all():
        raise ValueError(f"{what} lies between 0 and 1, not {value[~fine].flat[0]}")
    return value


def _agents(P, K, eta):
    """P [..., N] with K and eta spread over the N >= 2 agents: array, tuple of ints, array."""
    P = _within("a probability", P)
    if P.ndim == 0 or P.shape[-1] < 2:
        raise ValueError("a ring has at least two agents: the last axis of P is the agents")
    N, K, eta = P.shape[-1], np.asarray(K), np.asarray(eta, float)
    sizes, bounds = {K.size, eta.size} <= {1, N}, np.all((K >= 1) & (K <= 10**4)) and np.all((eta > 0) & (eta < np.inf))
    if not sizes or not bounds or K.dtype.kind not in "iu":
        raise ValueError(f"K and eta are one number or one for each of the {N} agents: K at least 1, at most 10000, eta positive")
    return P, tuple(np.broadcast_to(K, N).tolist()), np.broadcast_to(eta, N)


# ---------------------------------------------------------------- votes


class Counts(NamedTuple):
    """What depends on the count k = 0..K of right votes alone, with m = k/K. Each [K+1]."""

    log_choose: np.ndarray  # log C(K, k)
    sign: np.ndarray  # the vote: 1 right, -1 wrong, 0 a tie
    std: np.ndarray  # sqrt(m(1-m)), of the group's rewards when the label is sure
    variance: np.ndarray  # m(1-m)


@lru_cache(maxsize=64)
def _counts(K: int) -> Counts:
    if not (isinstance(K, (int, np.integer)) and K >= 1):
        raise ValueError(f"K is a number of votes, a whole number of at least 1, not {K!r}")
    m, log_choose = np.arange(K + 1) / K, np.array([math.log(math.comb(K, k)) for k in range(K + 1)])  # exact: no overflow
    return Counts(log_choose, np.sign(m - 0.5), np.sqrt(m * (1 - m)), m * (1 - m))


def pmf(p, K: int, logs=None) -> np.ndarray:
    """P(k of K votes are right) for k = 0..K: [...] -> [..., K+1]. Exact at p = 0 and 1; K to 1,024 and beyond.

    logs [..., 2]: log p and log(1-p), where the caller knows them more exactly than p gives them.
    """
    k, p = np.arange(K + 1.0), _within("a probability", p)
    if logs is None:
        with np.errstate(divide="ignore"):
            logs = np.stack([np.log(p), np.log1p(-p)], axis=-1)
    terms = np.maximum(logs, -1e5) @ np.stack([k, K - k])  # [..., K+1]; the floor makes 0 * log 0 = 0
    terms += _counts(K).log_choose
    return np.exp(terms, out=terms)


def _label(votes: np.ndarray, K: int, omega: float) -> np.ndarray:
    """Mean label, r - omega * w, from the distribution of the votes [..., K+1]."""
    sign = _counts(K).sign
    return votes @ np.where(sign < 0, _within("omega", omega) * sign, sign)


def _weight(K: int, scale) -> np.ndarray:
    """[K+1]: how far a sure label moves the logit, by the count of the group (see `rate`); 1 in the paper's simple choice."""
    if scale not in SCALES:
        raise ValueError(f"scale is one of {', '.join(SCALES)}, not {scale!r}")
    return {"std": _counts(K).std, "none": _counts(K).variance, "paper": np.ones(K + 1)}[scale]


def _gain(votes: np.ndarray, p, K: int, scale, sign=1.0) -> np.ndarray:
    """Mean of sign * weight over the votes: q(p) / (p(1-p)) where sign is 1. A q of one's own counts as 0 at p = 0 and 1."""
    if not callable(scale):
        return votes @ (sign * _weight(K, scale))
    room = p * (1 - p)
    return votes @ (sign * np.ones(K + 1)) * np.divide(scale(p, K), room, out=np.zeros_like(room), where=room > 0)


def phi(p, K: int, omega: float = 1.0) -> np.ndarray:
    """phi_K(p) = r_K(p) - omega * w_K(p), with r = P(majority right), w = P(majority wrong) (paper, Proposition 1).

    A tie pushes nobody; at omega = 1, phi_2j = phi_(2j-1). `omega` is ours: with that probability two wrong answers are the
    same. A wrong label that is not also this agent's wrong answer pays nobody: all rewards are equal, nothing is learned.
    """
    return _label(pmf(p, K), K, omega)


def spread(p, K: int) -> np.ndarray:
    """h_K(p) = E[sqrt(m(1-m))], m = Bin(K, p)/K: the mean population std of a group's rewards."""
    return pmf(p, K) @ _counts(K).std


def rate(p, K: int, scale="std") -> np.ndarray:
    """q(p) in dp/dt = eta q(p) phi_K(peer): the paper's q_K. "std" and "none" follow from GRPO (ours; see `grpo_step`).

    "std": p(1-p) h_K(p), the mean of the sampled update if GRPO divides advantages by the group's std.
    "none": p(1-p) E[m(1-m)] = (1-1/K) p^2 (1-p)^2, the same without that division, as in Dr. GRPO.
    "paper": p(1-p), the paper's simple choice. A function q(p, K) of arrays: your own. Does the boundary depend on it?
    With K = 1 a group has one reward, so its advantage and both derived rates are zero.
    One step moves the right answer's logit by eta q phi / (p(1-p)) on average. A policy with one logit for each answer
    moves the wrong one's logit by as much the other way, so one step of `sample_grpo` is 2 eta of this time.
    """
    p = _within("a probability", p)
    return p * (1 - p) * _gain(pmf(p, K), p, K, scale)


def self_drift(p, K: int, scale="std") -> np.ndarray:
    """Mean change of the right answer's logit under the agent's own majority (TTRL): E[sgn(m - 1/2) sqrt(m(1-m))] (ours).

    Not gain(p) phi_K(p): label and group are one sample, and the groups with the surest label have the smallest spread.
    The sign is the paper's: that of p - 1/2 (Proposition 2). "paper" and a q of your own give the paper's product.
    With K = 2 a vote is unanimous (no advantage) or tied (no label), and self-vote learns nothing.
    """
    p = _within("a probability", p)
    return _gain(pmf(p, K), p, K, scale, _counts(K).sign)


def pooled_drift(p, peer, K: int, scale="std") -> np.ndarray:
    """`self_drift` when both agents learn from the majority of all their 2K votes (ours): own count k, peer's count j."""
    k = np.arange(K + 1)
    sign = np.sign(k[:, None] + k[None, :] - K)  # [own, peer]
    return np.sum((pmf(p, K) * _weight(K, scale)) @ sign * pmf(peer, K), axis=-1)


# ---------------------------------------------------------------- fields


def ring_field(P, K=8, eta=1.0, scale="std", omega: float = 1.0) -> np.ndarray:
    """dP/dt for N >= 2 agents on a directed ring, agent n labelled by agent n-1. P [..., N] -> [..., N].

    N = 2 is Theorem 1's system. The label is drawn independently of the agent's own group, so the mean is the product
    q(p_n) phi_K(p_(n-1)) (Proposition 1). K and eta: one number, or one for each agent (unequal agents are ours).
    """
    P, K, eta = _agents(P, K, eta)
    q, label = np.empty_like(P), np.empty_like(P)
    for k in set(K):
        at = np.equal(K, k)
        p = P[..., at]
        votes = pmf(p, k)  # [..., n, K+1], used twice: for the agent's own group and as its neighbour's label
        q[..., at], label[..., at] = p * (1 - p) * _gain(votes, p, k, scale), _label(votes, k, omega)
    return eta * q * np.roll(label, 1, axis=-1)


def self_field(P, K=8, eta=1.0, scale="std", omega: float = 1.0) -> np.ndarray:
    """dP/dt when every agent learns from its own vote. An agent always shares its own errors: omega has no effect."""
    P, K, eta = _agents(P, K, eta)
    return eta * P * (1 - P) * np.stack([self_drift(P[..., n], k, scale) for n, k in enumerate(K)], axis=-1)


def pooled_field(P, K=8, eta=1.0, scale="std", omega: float = 1.0) -> np.ndarray:
    """dP/dt for two agents with equal K that both learn from the majority of all their votes: that of omega = 1."""
    P, K, eta = _agents(P, K, eta)
    if P.shape[-1] != 2 or K[0] != K[1]:
        raise ValueError("the pooled vote is written for two agents with the same K")
    return eta * P * (1 - P) * pooled_drift(P, P[..., ::-1], K[0], scale)


def truth_field(P, K=8, eta=1.0, scale="std", omega: float = 1.0) -> np.ndarray:
    """dP/dt when every label is the truth (GT-Reward): eta q(p), always upwards."""
    P, K, eta = _agents(P, K, eta)
    return eta * np.stack([rate(P[..., n], k, scale) for n, k in enumerate(K)], axis=-1)


FIELDS = {"corl": ring_field, "ttrl": self_field, "pooled": pooled_field, "gt": truth_field}


# ---------------------------------------------------------------- trajectories


def rk4_step(field, P: np.ndarray, dt: float) -> np.ndarray:
    """One classical Runge-Kutta step of dP/dt = field(P). Rounding may not leave [0, 1]."""
    a = field(P)
    b = field(np.clip(P + dt / 2 * a, 0, 1))
    c = field(np.clip(P + dt / 2 * b, 0, 1))
    d = field(np.clip(P + dt * c, 0, 1))
    return np.clip(P + dt / 6 * (a + 2 * b + 2 * c + d), 0, 1)


def step_size(K=8, eta=1.0, scale="std") -> float:
    """0.2 divided by the steepest slope of the field: halving it changes no label (tests check it)."""
    _, K, eta = _agents(np.zeros(max(2, np.size(K), np.size(eta))), K, eta)
    grid = np.linspace(0, 1, 401)
    q, label = np.stack([rate(grid, k, scale) for k in K]), np.stack([phi(grid, k) for k in K])  # [N, 401] each
    own, steep = (np.abs(np.gradient(x, grid, axis=1)).max(1) for x in (q, label))  # [N]
    slope = (eta * (own + q.max(1) * np.roll(steep, 1))).max()
    return 0.2 / slope if slope > 0 else 1.0


def _flow(P, K, eta, scale, omega, method, dt, t_max, done):
    """Yield the states [S, N] of the starts P, at first and after each RK4 step, in one array that is written over.

    A start that is `done`, or at rest (it moves by next to nothing), costs nothing more. Rounding would push one off
    the boundary of two agents, which is unstable, so it is put back on the separatrix after each step.
    """
    P, alive = P.reshape(-1, P.shape[-1]).copy(), np.arange(P[..., 0].size)
    tip = P.shape[-1] == 2 and method in ("corl", "pooled")
    on = basin(P, K, eta, scale, omega, method) == BOUNDARY if tip else np.zeros(len(P), bool)
    yield P
    for _ in range(int(t_max / eta.max() / dt) + 1):
        alive = alive[~done(P[alive])]
        if not alive.size:
            return
        old, here = P[alive], on[alive]
        new = rk4_step(lambda x: FIELDS[method](x, K, eta, scale, omega), old, dt)
        if here.any():
            new[here, 1] = separatrix(new[here, 0], K, eta, scale, omega if method == "corl" else 1.0)
        P[alive] = new = np.where(np.abs(new - old) > np.where(here, 1e-9, 1e-15)[:, None], new, old)
        alive = alive[(new != old).any(-1)]
        yield P


def _settled(P, close: float, method: str) -> np.ndarray:
    """Whether all agents [..., N] are within `close` of 0 or 1, and agreed unless each follows its own vote."""
    low, high = close >= P, close >= 1 - P
    return (high | low).all(-1) if method == "ttrl" else high.all(-1) | low.all(-1)


def simulate(P, K=8, eta=1.0, scale="std", omega=1.0, method="corl", dt=None, t_max=400.0, close=0.01):
    """Trajectories from the starts P [..., N] by fixed-step RK4: times [T] and states [T, ..., N].

    A start stays where it has settled: all its agents within `close` of 0 or of 1, and agreed unless each follows its own
    vote. The clock ends at t_max / max(eta). A start on the boundary of two agents stays on it, and ends in the saddle.
    """
    P, K, eta = _agents(P, K, eta)
    dt = dt or step_size(K, eta, scale) / 3  # so that E holds to six digits
    flow = _flow(P, K, eta, scale, omega, method, dt, t_max, lambda x: _settled(x, close, method))
    states = np.stack([x.copy() for x in flow])
    return dt * np.arange(len(states)), states.reshape(-1, *P.shape)


@lru_cache(maxsize=256)
def threshold(K: int, omega: float = 1.0) -> float:
    """The p at which phi_K(p) = r - omega * w = 0: agents all above theirs rise for ever, agents all below theirs fall.

    One half at omega = 1, 0 at omega = 0.
    """
    if omega == 1:
        return 0.5
    low, high = 0.0, 0.5
    for _ in range(60 if omega > 0 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if phi(middle, K, omega) < 0 else (low, middle)
    return low


def settle(P, K=8, eta=1.0, scale="std", omega=1.0, dt=None, t_max=2000.0) -> np.ndarray:
    """Where Co-RL's trajectories from P [..., N] end, by simulation: RIGHT, WRONG, or UNDECIDED at t_max / max(eta).

    As `simulate`, but a start is done once all its agents are on one side of their thresholds.
    """
    P, K, eta = _agents(P, K, eta)
    dt, cut = dt or step_size(K, eta, scale), [threshold(k, omega) for k in K]

    def side(x):
        return np.where((x > cut).all(-1), RIGHT, np.where((x < cut).all(-1), WRONG, UNDECIDED))

    *_, end = _flow(P, K, eta, scale, omega, "corl", dt, t_max, lambda x: side(x) != UNDECIDED)
    return side(end).reshape(P.shape[:-1])


# ---------------------------------------------------------------- two agents: conserved quantity, separatrix


def potential(p, K: int, scale="std", omega: float = 1.0) -> np.ndarray:
    """H(p), the integral of phi_K / q to p from the threshold (from 1/2 at omega = 0, where the threshold is 0, the end).

    In the logit x, dp = p(1-p) dx turns it into the integral of phi / gain, which is smooth: Gauss-Legendre.
    """
    if K == 1 and scale in ("std", "none"):
        raise ValueError("with K = 1 a group has no advantage, nothing moves and nothing is conserved; take K >= 2")
    values, where = np.unique(_within("a probability", p), return_inverse=True)  # a grid of 201 x 201 has 201 different p
    middle = threshold(K, omega) if omega > 0 else 0.5
    with np.errstate(divide="ignore"):
        start, end = (np.log(x) - np.log1p(-x) for x in (middle, values))
        half = (np.clip(end, -40, 40) - start)[:, None] / 2  # [U, 1]
        x = start + half * (1 + NODES)  # [U, nodes]
        share, logs = 1 / (1 + np.exp(-x)), -np.logaddexp(0, np.stack([-x, x], axis=-1))  # from the logit: exact in both tails
        votes = pmf(share, K, logs)
        H = half[:, 0] * ((_label(votes, K, omega) / _gain(votes, share, K, scale)) @ WEIGHTS)
    H[(values == 1) | ((values == 0) & (omega > 0))] = np.inf
    return H[where].reshape(np.shape(p))


def conserved(p_a, p_b, K=8, eta=1.0, scale="std", omega: float = 1.0) -> np.ndarray:
    """E = H_A(p_A)/eta_A - H_B(p_B)/eta_B, constant along every trajectory of two agents (proof of Theorem 1).

    Divide the two equations: the variables separate. Unequal rates, group sizes and omega (all ours) keep that form.
    On the separatrix E = 0. K and eta: one number or a pair. (0, 1) and (1, 0) give NaN.
    """
    _, K, eta = _agents(np.zeros(2), K, eta)
    with np.errstate(invalid="ignore"):
        return potential(p_a, K[0], scale, omega) / eta[0] - potential(p_b, K[1], scale, omega) / eta[1]


def separatrix(p_a, K=8, eta=1.0, scale="std", omega: float = 1.0) -> np.ndarray:
    """The p_B above which the start (p_a, p_B) ends all right: the branch of E = 0 on the other side of the threshold.

    Equal agents at omega = 1: p_B = 1 - p_a, the line of Theorem 1. At omega = 0 nothing pulls down: NaN everywhere.
    """
    _, K, eta = _agents(np.zeros(2), K, eta)
    p_a = _within("a probability", p_a)
    if omega == 0 or not p_a.size:  # `basin` asks for the few starts that are near, often none
        return np.full(p_a.shape, np.nan)
    if omega == 1 and K[0] == K[1] and eta[0] == eta[1] and not callable(scale):
        return 1 - p_a
    goal = potential(p_a, K[0], scale, omega) * eta[1] / eta[0]
    near = np.full(p_a.shape, -np.log(1 / threshold(K[1], omega) - 1))
    far = np.where(p_a > threshold(K[0], omega), -40.0, 40.0)
    for _ in range(52):  # H grows from 0 at the threshold (near) without bound towards the edge (far)
        middle = (near + far) / 2
        beyond = potential(1 / (1 + np.exp(-middle)), K[1], scale, omega) > goal
        near, far = np.where(beyond, near, middle), np.where(beyond, middle, far)
    return 1 / (1 + np.exp(-near))


def basin(P, K=8, eta=1.0, scale="std", omega=1.0, method="corl") -> np.ndarray:
    """Where the starts P [..., N] end: RIGHT, WRONG, BOUNDARY, UNDECIDED (never guessed), or SPLIT (self-vote alone).

    Co-RL, N = 2: exact, from the conserved quantity; BOUNDARY within 1e-9 of the separatrix. N >= 3 (ours): no closed
    form; only all-right and all-wrong attract, and the boundary is one surface but not sum(p) = N/2.
    """
    P, K, eta = _agents(P, K, eta)
    if method not in FIELDS:
        raise ValueError(f"no theory for the method {method!r}; there is one for {', '.join(FIELDS)}")
    if scale in ("std", "none") and min(K) <= (2 if method == "ttrl" else 1):
        return np.full(P.shape[:-1], UNDECIDED)  # no group has both a label and an advantage: nothing moves
    if method == "gt":
        return np.where((P > 0).all(-1), RIGHT, UNDECIDED)
    if method == "ttrl":  # each agent runs to its own nearer end (Proposition 2)
        side = np.sign(P - 0.5)
        label = np.where((side == side[..., :1]).all(-1), side[..., 0], SPLIT)
        return np.where((side == 0).any(-1), BOUNDARY, label).astype(int)
    if method == "pooled":  # ours: on p_A + p_B = 1 the logits move oppositely, so it is the boundary here too
        if P.shape[-1] != 2 or K[0] != K[1] or eta[0] != eta[1]:
            raise ValueError("the pooled vote's basin is known for two agents with equal K and eta")
        side = P.sum(-1) - 1
        return np.where(np.abs(side) < 1e-9, BOUNDARY, np.sign(side)).astype(int)
    if P.shape[-1] == 2:
        label = _basin_two(P, K, eta, scale, omega)
    else:  # phi grows with the peer's p, so a start that is higher in every agent stays higher for ever: if even a start a
        # little below goes right, so does P; where those a little below and above disagree, the label would be a guess
        low, high = settle(np.stack([P - 1e-6 * P * (1 - P), P + 1e-6 * P * (1 - P)]), K, eta, scale, omega)
        label = np.where(low == RIGHT, RIGHT, np.where(high == WRONG, WRONG, UNDECIDED))
    return np.where((P == 0).any(-1) & (omega == 0), UNDECIDED, label)  # held at 0, with nobody to pull it down or up


def _basin_two(P, K, eta, scale, omega, tolerance=1e-9):
    """One agent above its threshold, one below: the sign of E decides. Both on one side: they stay there."""
    a, b = P[..., 0], P[..., 1]
    side_a, side_b = np.sign(a - threshold(K[0], omega)), np.sign(b - threshold(K[1], omega))
    energy, open_ = np.zeros(a.shape), side_a + side_b == 0
    energy[open_] = conserved(a[open_], b[open_], K, eta, scale, omega)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = [phi(p, k, omega) / rate(p, k, scale) / e for p, k, e in zip((a, b), K, eta, strict=True)]
        near = np.array(np.isfinite(energy) & (np.abs(energy) <= tolerance * np.hypot(*slope)))  # |E| / |grad E| is a distance
        gap = b[near] - separatrix(a[near], K, eta, scale, omega), a[near] - separatrix(b[near], K[::-1], eta[::-1], scale, omega)
        near[near] = np.abs(gap).min(0) <= 2 * tolerance  # next to 0 and 1 that distance is too small
        split = np.where(near | np.isnan(energy) | (side_a == 0), BOUNDARY, np.sign(energy) * side_a)
    return np.where(side_a + side_b > 0, RIGHT, np.where(side_a + side_b < 0, WRONG, split)).astype(int)


# ---------------------------------------------------------------- GRPO as it is: finite groups, finite steps


def grpo_step(counts: np.ndarray, label: np.ndarray, scale: str = "std") -> np.ndarray:
    """The exact gradient of GRPO's loss on one group, in the logits of a tabular softmax policy.

    counts [..., M] of each of M answers in a group of K; label [...] the rewarded answer, -1 = none. One on-policy step
    moves logit j by eta (1/K) sum_k A_k (1[a_k = j] - pi_j); advantages sum to zero, so pi_j drops out.
    """
    share = counts / counts.sum(-1, keepdims=True)  # [..., M]
    hit = np.arange(counts.shape[-1]) == label[..., None]
    mean = np.sum(share * hit, -1, keepdims=True)  # of the rewards, [..., 1]
    std = np.sqrt(mean * (1 - mean)) if scale == "std" else np.ones_like(mean)
    advantage = np.divide(hit - mean, std, out=np.zeros(share.shape), where=(mean > 0) & (mean < 1))
    return share * advantage


def vote(counts: np.ndarray) -> np.ndarray:
    """The most frequent answer of each group, counts [..., M] -> [...]; -1 where the first place is shared."""
    top = counts.max(-1, keepdims=True)
    return np.where((counts == top).sum(-1) == 1, counts.argmax(-1), -1)


def sample_grpo(P, K=8, eta=0.1, steps=2000, scale="std", omega=1.0, wrong=(1.0,), method="corl", seed=0, close=0.02):
    """Sampled GRPO from the starts P [..., N], all at once: p of the right answer after at most `steps` steps.

    wrong: how the rest, 1-p, is shared among one or more wrong answers, [M-1] or [N, M-1] (agents with different
    favourite mistakes). omega: the chance, drawn at each step, that a peer's wrong answer is also one of this agent's.
    Runs stop where `simulate` would. Noise is ours; the paper has the limit.
    """
    P = _within("a probability", P)
    if scale not in ("std", "none"):
        raise ValueError("sampled GRPO has its own rate: scale is 'std' or 'none'")
    rng, wrong, out = np.random.default_rng(seed), np.asarray(wrong, float), P.reshape(-1, P.shape[-1]).copy()  # out [R, N]
    rest = (1 - out)[..., None] * (wrong / wrong.sum(-1, keepdims=True))  # [R, N, M-1]
    logits = np.log(np.maximum(np.concatenate([out[..., None], rest], -1), 1e-300))  # [R, N, M]; answer 0 is the right one
    alive = np.arange(len(out))
    for step in range(steps + 1):
        probs = np.exp(logits - logits.max(-1, keepdims=True))
        probs /= probs.sum(-1, keepdims=True)
        out[alive] = p = probs[..., 0]
        keep = ~_settled(p, close, method)
        if step == steps or not keep.any():
            break
        logits, probs, alive = logits[keep], probs[keep], alive[keep]
        counts = rng.multinomial(K, probs)  # [R, N, M]
        logits = logits + eta * grpo_step(counts, _labels(counts, method, omega, rng), scale)
    return out.reshape(P.shape)


def _labels(counts, method, omega, rng):
    """The label of each agent [R, N]: its peer's vote, its own, that of the pooled counts, or the right answer, 0."""
    own = vote(counts)
    pooled = np.broadcast_to(vote(counts.sum(1))[:, None], own.shape)
    label = {"corl": np.roll(own, 1, axis=1), "ttrl": own, "pooled": pooled, "gt": np.zeros_like(own)}[method]
    foreign = (label > 0) & (rng.random(label.shape) >= omega) if method == "corl" and omega < 1 else False
    return np.where(foreign, -1, label)


if __name__ == "__main__":  # drawing and the command line
    runpy.run_module("lab.portraits", run_name="__main__")
