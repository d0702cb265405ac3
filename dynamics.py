"""The learning dynamics of Co-RL: why a peer's vote enlarges the basin of correct convergence, and when it does not.

Read this file beside the paper's section "Learning Dynamics of Co-RL". One question, two answers (the right one and one
systematic mistake); agent n gives the right one with probability p_n. A label is the majority of K votes, the reward is
agreement with the label, the policy is a softmax over the answers. Everything is about the mean field

    dp_n/dt = eta_n q(p_n) phi_K(p_peer)        Co-RL: the label is the peer's vote (Theorem 1)
    dp_n/dt = eta_n p_n (1 - p_n) E[...]        self-vote (TTRL): the label is the agent's own vote (Proposition 2)

Where this file departs from the paper, a docstring says "ours": the q that GRPO itself gives (the paper takes p(1-p)),
self-vote's exact drift, unequal agents, overlap of errors, rings of three and more, pooled votes, finite samples.

A caveat to keep in mind with every picture: all of it is symmetric under p -> 1 - p. From uniformly random starts
Co-RL and self-vote both end right half of the time. Peer votes gain only where agents start right more often than
wrong, and lose where they start wrong more often than right.

    python dynamics.py                                   six figures into runs/dynamics/
    python dynamics.py --start .6 .45                    the forecast for one start (also for a ring: .06 .98 .27)
    python dynamics.py --show                            a window: click a start, move the sliders
    python dynamics.py --overlay runs/NAME               theory against the probes of a training run
    python dynamics.py --coupling RUN... --alone RUN...  topics trained together against one at a time
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

RIGHT, WRONG, BOUNDARY, UNDECIDED, SPLIT = 1, -1, 0, 2, 3
NAMES = {RIGHT: "right", WRONG: "wrong", BOUNDARY: "boundary", UNDECIDED: "undecided", SPLIT: "split"}
SCALES = ("std", "none", "paper")
NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)  # quadrature of H on [-1, 1]


# ---------------------------------------------------------------- arguments


def _probability(p) -> np.ndarray:
    p = np.asarray(p, float)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a probability lies between 0 and 1")
    return p


def _fraction(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} lies between 0 and 1, not {value}")
    return float(value)


def _scale(scale: str) -> str:
    if scale not in SCALES:
        raise ValueError(f"scale is one of {', '.join(SCALES)}, not {scale!r}")
    return scale


def _agents(P, K, eta):
    """P [..., N] with K and eta spread over the N >= 2 agents: array, tuple of ints, array."""
    P = _probability(P)
    if P.ndim == 0 or P.shape[-1] < 2:
        raise ValueError("a ring has at least two agents: the last axis of P is the agents")
    N = P.shape[-1]
    if np.size(K) not in (1, N) or np.size(eta) not in (1, N):
        raise ValueError(f"K and eta are one number or one for each of the {N} agents")
    eta = np.broadcast_to(np.asarray(eta, float), (N,))
    if not ((eta > 0) & np.isfinite(eta)).all():
        raise ValueError("rates (eta) are positive")
    K = tuple(np.broadcast_to(K, (N,)).tolist())
    for k in K:
        _counts(k)
    return P, K, eta


def _logit(p):
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-np.asarray(p, float))


# ---------------------------------------------------------------- votes


@lru_cache(maxsize=64)
def _counts(K: int):
    """For k = 0..K right votes, m = k/K: log C(K, k), sign of the vote, sqrt(m(1-m)), m(1-m). Each [K+1]."""
    if not (isinstance(K, (int, np.integer)) and K >= 1):
        raise ValueError(f"K is a number of votes, a whole number of at least 1, not {K!r}")
    k = np.arange(K + 1)
    log_choose = np.array([math.log(math.comb(K, int(i))) for i in k])  # exact integers first, so no overflow
    variance = (k / K) * (1 - k / K)
    return log_choose, np.sign(2 * k - K).astype(float), np.sqrt(variance), variance


def _pmf_log(log_p, log_not_p, K: int) -> np.ndarray:
    """Bin(K, p) from log p and log(1-p): [...] -> [..., K+1]. The floor makes 0 * log 0 = 0 without a special case."""
    k = np.arange(K + 1.0)
    logs = np.maximum(np.stack([log_p, log_not_p], axis=-1), -1e5)  # [..., 2]
    terms = logs @ np.stack([k, K - k])  # [..., K+1]: k log p + (K-k) log(1-p)
    terms += _counts(K)[0]
    return np.exp(terms, out=terms)


def pmf(p, K: int) -> np.ndarray:
    """P(k of K votes are right) for k = 0..K: [...] -> [..., K+1]. Exact at p = 0 and 1; K to 1,024 and beyond."""
    p = _probability(p)
    with np.errstate(divide="ignore"):
        return _pmf_log(np.log(p), np.log1p(-p), K)


def _label(votes: np.ndarray, K: int, overlap: float) -> np.ndarray:
    """Mean label, r - overlap * w, from the distribution of the votes [..., K+1]."""
    sign = _counts(K)[1]
    return votes @ np.where(sign < 0, overlap * sign, sign)


def _gain(votes: np.ndarray, p, K: int, scale: str) -> np.ndarray:
    """What a certain label does to the right answer's logit, per unit of eta (see `rate`)."""
    if scale == "std":
        return votes @ _counts(K)[2]
    return (1 - 1 / K) * p * (1 - p) if scale == "none" else np.ones_like(p)


def phi(p, K: int, overlap: float = 1.0) -> np.ndarray:
    """phi_K(p) = r_K(p) - overlap * w_K(p), with r = P(majority right), w = P(majority wrong) (paper, Proposition 1).

    A tie pushes nobody, hence phi_2j = phi_(2j-1). `overlap` is ours: with that probability the peer's wrong answer is
    also this agent's wrong answer; otherwise a wrong label pays nobody, all rewards are equal and nothing is learned.
    """
    return _label(pmf(p, K), K, _fraction("overlap", overlap))


def spread(p, K: int) -> np.ndarray:
    """h_K(p) = E[sqrt(m(1-m))], m = Bin(K, p)/K: the mean population std of a group's rewards (ours)."""
    return pmf(p, K) @ _counts(K)[2]


def rate(p, K: int, scale: str = "std") -> np.ndarray:
    """q(p) in dp/dt = eta q(p) phi_K(peer).

    "std": p(1-p) h_K(p), GRPO with advantages divided by the group's std (ours: the mean of the sampled update).
    "none": (1-1/K) p^2 (1-p)^2, GRPO without that division, as in Dr. GRPO (ours).
    "paper": p(1-p), the paper's simple choice.
    With K = 1 a group has one reward, so its advantage and both derived rates are zero.
    One step moves the right answer's logit by eta q phi / (p(1-p)) on average. A policy with one logit for each answer
    moves the wrong one's logit by as much the other way, so one step of `sample_grpo` is 2 eta of this time.
    """
    p, votes = _probability(p), pmf(p, K)
    return p * (1 - p) * _gain(votes, p, K, _scale(scale))


# ---------------------------------------------------------------- drifts of the logit, per step and unit of eta


def peer_drift(p, peer, K: int, scale: str = "std", overlap: float = 1.0, peer_K: int | None = None) -> np.ndarray:
    """Mean change of the right answer's logit under the label of a peer: gain(p) phi_K(peer) (paper, Proposition 1).

    The label is drawn independently of the agent's own group, so the mean factorises.
    """
    p = _probability(p)
    return _gain(pmf(p, K), p, K, _scale(scale)) * phi(peer, peer_K or K, overlap)


def self_drift(p, K: int, scale: str = "std") -> np.ndarray:
    """The same under the agent's own majority (TTRL): E[sgn(m - 1/2) sqrt(m(1-m))], exact (ours).

    Not gain(p) phi_K(p): label and group are one sample, and the groups with the surest label have the smallest spread.
    The sign is the paper's: that of p - 1/2 (Proposition 2). scale="paper" gives the paper's product, with gain 1.
    With K = 2 a vote is unanimous (no advantage) or tied (no label), and self-vote learns nothing.
    """
    _, sign, root, variance = _counts(K)
    return pmf(p, K) @ (sign * {"std": root, "none": variance, "paper": np.ones(K + 1)}[_scale(scale)])


def pooled_drift(p, peer, K: int, scale: str = "std") -> np.ndarray:
    """The same when both agents learn from the majority of all their 2K votes (ours): own count k, peer's count j."""
    _, _, root, variance = _counts(K)
    weight = {"std": root, "none": variance, "paper": np.ones(K + 1)}[_scale(scale)]
    k = np.arange(K + 1)
    sign = np.sign(k[:, None] + k[None, :] - K)  # [own, peer]
    return np.sum((pmf(p, K) * weight) @ sign * pmf(peer, K), axis=-1)


# ---------------------------------------------------------------- fields


def ring_field(P, K=8, eta=1.0, scale: str = "std", overlap: float = 1.0) -> np.ndarray:
    """dP/dt for N >= 2 agents on a directed ring, agent n labelled by agent n-1. P [..., N] -> [..., N].

    K and eta: one number, or one for each agent (unequal agents are ours). N = 2 is Theorem 1's system.
    """
    P, K, eta = _agents(P, K, eta)
    speed, label = np.empty_like(P), np.empty_like(P)
    for k in set(K):
        at = np.equal(K, k)
        p = P[..., at]
        votes = pmf(p, k)  # [..., n, K+1]; used twice: for the agent's own group and as its neighbour's label
        speed[..., at] = eta[at] * p * (1 - p) * _gain(votes, p, k, _scale(scale))
        label[..., at] = _label(votes, k, _fraction("overlap", overlap))
    return speed * np.roll(label, 1, axis=-1)


def self_field(P, K=8, eta=1.0, scale: str = "std", overlap: float = 1.0) -> np.ndarray:
    """dP/dt when every agent learns from its own vote. An agent always shares its own errors: overlap has no effect."""
    P, K, eta = _agents(P, K, eta)
    drift = np.stack([eta[n] * self_drift(P[..., n], k, scale) for n, k in enumerate(K)], axis=-1)
    return P * (1 - P) * drift


def pooled_field(P, K=8, eta=1.0, scale: str = "std", overlap: float = 1.0) -> np.ndarray:
    """dP/dt for two agents with equal K that both learn from the majority of all their votes. Errors overlap fully."""
    P, K, eta = _agents(P, K, eta)
    if P.shape[-1] != 2 or K[0] != K[1]:
        raise ValueError("the pooled vote is written for two agents with the same K")
    drift = [pooled_drift(P[..., n], P[..., 1 - n], K[n], scale) for n in (0, 1)]
    return P * (1 - P) * np.stack(drift, axis=-1) * eta


def truth_field(P, K=8, eta=1.0, scale: str = "std", overlap: float = 1.0) -> np.ndarray:
    """dP/dt when every label is the truth (GT-Reward): q(p), always upwards."""
    P, K, eta = _agents(P, K, eta)
    return np.stack([eta[n] * rate(P[..., n], k, scale) for n, k in enumerate(K)], axis=-1)


FIELDS = {"corl": ring_field, "ttrl": self_field, "pooled": pooled_field, "gt": truth_field}


# ---------------------------------------------------------------- trajectories


def rk4_step(field, P: np.ndarray, dt: float) -> np.ndarray:
    """One classical Runge-Kutta step of dP/dt = field(P). Rounding may not leave [0, 1]."""
    a = field(P)
    b = field(np.clip(P + dt / 2 * a, 0, 1))
    c = field(np.clip(P + dt / 2 * b, 0, 1))
    d = field(np.clip(P + dt * c, 0, 1))
    return np.clip(P + dt / 6 * (a + 2 * b + 2 * c + d), 0, 1)


def step_size(K=8, eta=1.0, scale: str = "std") -> float:
    """A step of 1/5 over the steepest slope of the field: halving it changes no label (tests check it)."""
    _, K, eta = _agents(np.zeros(max(2, np.size(K), np.size(eta))), K, eta)
    grid = np.linspace(0, 1, 401)
    q = [rate(grid, k, scale) for k in K]
    steep = [np.abs(np.gradient(phi(grid, k), grid)).max() for k in K]
    own = [np.abs(np.gradient(x, grid)).max() for x in q]
    slopes = [eta[n] * (own[n] + q[n].max() * steep[n - 1]) for n in range(len(K))]
    return 0.2 / max(slopes) if max(slopes) > 0 else 1.0


def simulate(P, K=8, eta=1.0, scale="std", overlap=1.0, method="corl", dt=None, t_max=400.0, close=0.01):
    """Trajectories from the starts P [..., N] by fixed-step RK4: times [T] and states [T, ..., N].

    Stops when every start has settled (all its agents within `close` of 0 or of 1, and agreed unless each follows its
    own vote), or at t_max / max(eta); a start on the boundary only settles by the clock.
    """
    P, K, eta = _agents(P, K, eta)
    dt = dt or step_size(K, eta, scale)

    def field(x):
        return FIELDS[method](x, K, eta, scale, overlap)

    states = [P]
    while (len(states) - 1) * dt * eta.max() < t_max:
        low, high = close >= P, close >= 1 - P
        done = (high | low).all(-1) if method == "ttrl" else high.all(-1) | low.all(-1)
        if done.all():
            break
        P = rk4_step(field, P, dt)
        states.append(P)
    return dt * np.arange(len(states)), np.stack(states)


@lru_cache(maxsize=256)
def threshold(K: int, overlap: float = 1.0) -> float:
    """The p at which a label stops pulling down: phi_K(p) = r - overlap * w = 0. One half at overlap 1, 0 at overlap 0.

    Agents all above their thresholds rise for ever, agents all below fall for ever: so `settle` can stop early.
    """
    if overlap == 1:
        return 0.5
    low, high = 0.0, 0.5
    for _ in range(60 if overlap > 0 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if phi(middle, K, overlap) < 0 else (low, middle)
    return low


def settle(P, K=8, eta=1.0, scale="std", overlap=1.0, dt=None, t_max=2000.0) -> np.ndarray:
    """Where Co-RL's trajectories from P [..., N] end, by simulation: RIGHT, WRONG, or UNDECIDED at t_max / max(eta).

    A start is done once all its agents are on one side of their thresholds; those that are done leave the batch.
    It does not know the boundary: there rounding decides. `basin` does.
    """
    P, K, eta = _agents(P, K, eta)
    dt = dt or step_size(K, eta, scale)
    cut = np.array([threshold(k, overlap) for k in K])
    flat, label = P.reshape(-1, P.shape[-1]), np.full(P[..., 0].size, UNDECIDED)
    alive = np.arange(label.size)
    for _ in range(int(t_max / dt / eta.max()) + 1):
        up, down = (flat > cut).all(-1), (flat < cut).all(-1)
        label[alive[up]], label[alive[down]] = RIGHT, WRONG
        alive, flat = alive[~(up | down)], flat[~(up | down)]
        if not alive.size:
            break
        step = rk4_step(lambda x: ring_field(x, K, eta, scale, overlap), flat, dt)
        moved = (step != flat).any(-1)  # a start that a step does not change by a bit is at rest, and stays undecided
        alive, flat = alive[moved], step[moved]
    return label.reshape(P.shape[:-1])


# ---------------------------------------------------------------- two agents: conserved quantity, separatrix


def potential(p, K: int, scale: str = "std", overlap: float = 1.0) -> np.ndarray:
    """H(p), the integral of phi_K / q from the threshold (one half at overlap 1) to p; infinite at p = 0 and 1.

    In the logit x, dp = p(1-p) dx turns it into the integral of phi / gain, which is smooth: Gauss-Legendre. Without
    overlap (0) there is no threshold: from one half, and H(0) is finite.
    """
    if K == 1 and scale != "paper":
        raise ValueError("with K = 1 a group has no advantage, nothing moves and nothing is conserved; take K >= 2")
    p = _probability(p)
    values, where = np.unique(p, return_inverse=True)  # a grid of 201 x 201 has 201 different p
    start = _logit(threshold(K, overlap) if overlap > 0 else 0.5)
    half = (np.clip(_logit(values), -40, 40) - start)[:, None] / 2  # [U, 1]
    x = start + half * (1 + NODES)  # [U, nodes]
    votes = _pmf_log(-np.logaddexp(0, -x), -np.logaddexp(0, x), K)  # from the logit: exact in both tails
    share = 1 / (1 + np.exp(-x))
    tail = 1 / (1 + np.exp(x))
    gain = (1 - 1 / K) * share * tail if scale == "none" else _gain(votes, share, K, _scale(scale))
    H = half[:, 0] * ((_label(votes, K, _fraction("overlap", overlap)) / gain) @ WEIGHTS)
    H[(values == 1) | ((values == 0) & (overlap > 0))] = np.inf
    return H[where].reshape(p.shape)


def conserved(p_a, p_b, K=8, eta=1.0, scale: str = "std", overlap: float = 1.0) -> np.ndarray:
    """E = H_A(p_A)/eta_A - H_B(p_B)/eta_B, constant along every trajectory of two agents (proof of Theorem 1).

    Divide the two equations: the variables separate. Unequal rates, group sizes and overlap (all ours) keep that form.
    On the separatrix E = 0. K and eta: one number or a pair. (0, 1) and (1, 0) give NaN.
    """
    _, K, eta = _agents(np.zeros(2), K, eta)
    with np.errstate(invalid="ignore"):
        return potential(p_a, K[0], scale, overlap) / eta[0] - potential(p_b, K[1], scale, overlap) / eta[1]


def separatrix(p_a, K=8, eta=1.0, scale: str = "std", overlap: float = 1.0) -> np.ndarray:
    """The p_B above which the start (p_a, p_B) ends all right: the branch of E = 0 on the other side of the threshold.

    Equal agents at overlap 1: p_B = 1 - p_a, the line of Theorem 1. At overlap 0 nothing pulls down: NaN everywhere.
    """
    _, K, eta = _agents(np.zeros(2), K, eta)
    p_a = _probability(p_a)
    if overlap == 0:
        return np.full(p_a.shape, np.nan)
    goal = potential(p_a, K[0], scale, overlap) * eta[1] / eta[0]
    near = np.full(p_a.shape, _logit(threshold(K[1], overlap)))
    far = np.where(p_a > threshold(K[0], overlap), -40.0, 40.0)
    for _ in range(52):  # H grows from 0 at the threshold (near) without bound towards the edge (far)
        middle = (near + far) / 2
        beyond = potential(1 / (1 + np.exp(-middle)), K[1], scale, overlap) > goal
        near, far = np.where(beyond, near, middle), np.where(beyond, middle, far)
    p_b = 1 / (1 + np.exp(-near))
    return np.where(p_a == 0, 1.0, np.where(p_a == 1, 0.0, p_b))


def basin(P, K=8, eta=1.0, scale="std", overlap=1.0, method="corl") -> np.ndarray:
    """Where the starts P [..., N] end: RIGHT, WRONG, BOUNDARY, UNDECIDED (never guessed), or SPLIT (self-vote only:
    each agent runs to its own nearer end).

    Co-RL, N = 2: exact, from the conserved quantity; BOUNDARY within 1e-9 of the separatrix. N >= 3 (ours): no closed
    form; only all-right and all-wrong attract, and the boundary is one surface but not sum(p) = N/2.
    """
    P, K, eta = _agents(P, K, eta)
    if method == "ttrl":
        return _basin_self(P, K, scale)
    if method == "gt":
        return np.where((P > 0).all(-1), RIGHT, UNDECIDED)
    if method == "pooled":
        return _basin_pooled(P, K, eta)
    if method != "corl":
        raise ValueError(f"no theory for the method {method!r}; there is one for {', '.join(FIELDS)}")
    if scale != "paper" and 1 in K:
        return np.full(P.shape[:-1], UNDECIDED)  # one vote has no advantage: nothing moves
    label = (_basin_two if P.shape[-1] == 2 else _basin_ring)(P, K, eta, scale, overlap)
    return np.where((P == 0).any(-1) & (overlap == 0), UNDECIDED, label)  # held at 0, with nobody to pull it down or up


def _basin_self(P, K, scale):
    """Each agent runs to its own nearer end (Proposition 2). One or two votes are unanimous or tied: nothing moves (ours)."""
    if scale != "paper" and min(K) <= 2:
        return np.full(P.shape[:-1], UNDECIDED)
    side = np.sign(P - 0.5)
    agreed = np.where(side[..., 0] > 0, RIGHT, WRONG)
    label = np.where((side == side[..., :1]).all(-1), agreed, SPLIT)
    return np.where((side == 0).any(-1), BOUNDARY, label)


def _basin_pooled(P, K, eta):
    """Two equal agents: p_A + p_B = 1 is the boundary here too (ours): on it the logits move oppositely."""
    if P.shape[-1] != 2 or K[0] != K[1] or eta[0] != eta[1]:
        raise ValueError("the pooled vote's basin is known for two agents with equal K and eta")
    excess = P.sum(-1) - 1
    return np.where(np.abs(excess) < 1e-9, BOUNDARY, np.sign(excess)).astype(int)


def _basin_two(P, K, eta, scale, overlap, tolerance=1e-9):
    """One agent above its threshold, one below: the sign of E decides. Both on one side: they stay there."""
    a, b = P[..., 0], P[..., 1]
    side_a, side_b = np.sign(a - threshold(K[0], overlap)), np.sign(b - threshold(K[1], overlap))
    energy, open_ = np.zeros(a.shape), side_a + side_b == 0
    energy[open_] = conserved(a[open_], b[open_], K, eta, scale, overlap)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = [phi(p, k, overlap) / rate(p, k, scale) / e for p, k, e in zip((a, b), K, eta, strict=True)]
        near = np.isfinite(energy) & (np.abs(energy) <= tolerance * np.hypot(*slope))  # |E| / |grad E| is a distance
        split = np.where(near | np.isnan(energy) | (side_a == 0), BOUNDARY, np.sign(energy) * side_a)
    return np.where(side_a + side_b > 0, RIGHT, np.where(side_a + side_b < 0, WRONG, split)).astype(int)


def _basin_ring(P, K, eta, scale, overlap, margin=1e-6):
    """By simulation, from two starts a little below and above.

    phi grows with the peer's p, so the system is cooperative: a start that is higher in every agent stays higher for
    ever. If even the lower start goes right, so does P; where the two disagree the label would be a guess.
    """
    shift = margin * P * (1 - P)
    low, high = settle(np.stack([P - shift, P + shift]), K, eta, scale, overlap)
    return np.where(low == RIGHT, RIGHT, np.where(high == WRONG, WRONG, UNDECIDED))


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


def sample_grpo(P, K=8, eta=0.1, steps=2000, scale="std", overlap=1.0, wrong=(1.0,), method="corl", seed=0, close=0.02):
    """Sampled GRPO from the starts P [..., N], all at once: p of the right answer after at most `steps` steps.

    wrong: how the rest, 1-p, is shared among one or more wrong answers, [M-1] or [N, M-1] (agents with different
    favourite mistakes). overlap: the chance, drawn at each step, that a peer's wrong label means anything to this one.
    Runs leave the batch when all their agents agree within `close` of 0 or 1. Noise is ours; the paper has the limit.
    """
    P = _probability(P)
    if scale not in ("std", "none"):
        raise ValueError("sampled GRPO has its own rate: scale is 'std' or 'none'")
    rng, shape = np.random.default_rng(seed), P.shape
    N = shape[-1]
    wrong = np.broadcast_to(np.asarray(wrong, float), (N, np.shape(wrong)[-1]))
    out = P.reshape(-1, N).copy()
    wrong = wrong / wrong.sum(-1, keepdims=True)  # [N, M-1]
    with np.errstate(divide="ignore"):
        logits = np.log(np.concatenate([out[..., None], (1 - out)[..., None] * wrong], -1))
    logits, alive = np.maximum(logits, -700.0), np.arange(len(out))  # [R, N, M]; answer 0 is the right one
    for step in range(steps + 1):
        probs = np.exp(logits - logits.max(-1, keepdims=True))
        probs /= probs.sum(-1, keepdims=True)
        out[alive] = p = probs[..., 0]
        high, low = p >= 1 - close, p <= close
        keep = ~(high | low).all(-1) if method == "ttrl" else ~(high.all(-1) | low.all(-1))
        if step == steps or not keep.any():
            break
        logits, probs, alive = logits[keep], probs[keep], alive[keep]
        counts = rng.multinomial(K, probs)  # [R, N, M]
        logits = logits + eta * grpo_step(counts, _labels(counts, method, overlap, rng), scale)
    return out.reshape(shape)


def _labels(counts, method, overlap, rng):
    """The label of each agent [R, N]: its peer's vote, its own, or that of the pooled counts."""
    if method == "pooled":
        return np.broadcast_to(vote(counts.sum(1))[:, None], counts.shape[:2])
    if method == "ttrl":
        return vote(counts)
    label = np.roll(vote(counts), 1, axis=1)
    foreign = (label > 0) & (rng.random(label.shape) >= overlap) if overlap < 1 else False
    return np.where(foreign, -1, label)


if __name__ == "__main__":
    from lab.portraits import main

    raise SystemExit(main())
