"""One step: who votes, who is trained on, what is counted."""

import dataclasses
import inspect
import re

import tiny
import torch

import agon
import cohort as step
from cohort import Options
from grpo import Agent, group_advantages, sample
from lab.data import Problem
from lab.methods import hooks_of

PROBLEMS = [Problem(f"w{i} w{i + 1}", str(i), rephrased=f"w{i + 1} w{i} w3") for i in (5, 9)]
BASE = Options(models=["a", "b"], data="d", k=3, prompts=2, max_new_tokens=8, lr=1e-3, answer="number")


def two_agents(context: int = 128) -> list[Agent]:
    """Two random agents with an optimizer each."""
    agents = []
    for seed, name in enumerate("AB"):
        model = tiny.model("qwen3", seed)
        model.config.max_position_embeddings = context
        agent = Agent(name, model, tiny.tokenizer(), answer_style="number")
        agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=1e-3)
        agents.append(agent)
    return agents


def taken(agents: list[Agent], number: int, o: Options, hooks=None) -> dict:
    """The line of one step."""
    return step.train_step(agents, PROBLEMS, number, o, hooks or hooks_of(o.method)(o, agents))


def watched(monkeypatch) -> list:
    """The (rollouts, advantages, options) that each update is given; nothing is learnt."""
    seen = []
    monkeypatch.setattr(step, "update", lambda agent, r, a, **more: seen.append((r, a, more)) or {"loss": 0.0})
    return seen


def test_all_vote_and_the_first_k_are_trained_on(monkeypatch):
    """--votes 5 --k 3: the label is the majority of five, three are graded by it, and the tokens of all five are counted."""
    seen, counted = watched(monkeypatch), []
    ttrl = step.REWARDS["ttrl"]
    watching = dataclasses.replace(ttrl, label=lambda n, ballots, _: counted.append(ballots[n]) or ttrl.label(n, ballots, _))
    monkeypatch.setitem(step.REWARDS, "ttrl", watching)
    o = dataclasses.replace(BASE, method="ttrl", votes=5)
    agents = two_agents()
    line = taken(agents, 1, o)
    whole = sample(agents[0], [p.question for p in PROBLEMS], 5, 8, generator=step.runs.generator(0, 0, 1, 0))
    assert [len(group) for group in counted[0]] == [5, 5]
    rollouts = seen[0][0]
    assert rollouts.mask.shape[:2] == (2, 3) and rollouts.texts == [group[:3] for group in whole.texts]
    assert torch.equal(rollouts.completion_ids, whole.completion_ids[:, :3])
    assert line["agents"]["A"]["tokens"] == int(whole.mask.sum()) > int(rollouts.mask.sum())


def test_the_step_learns_at_the_temperature_it_wrote_at():
    """T05: rollouts drawn at .7 and scored at 1 are those of another policy, and approx_kl shows it."""
    agents = two_agents()
    o = dataclasses.replace(BASE, method="rent", temperature=0.7)
    line = taken(agents, 1, o)
    assert all(0 <= measured["approx_kl"] < 1e-9 and measured["signal"] > 0 for measured in line["agents"].values())


def test_both_forms_are_read_and_learned_from(monkeypatch):
    """Co-rewarding-I: 2P groups, the originals first, each with the same weight."""
    seen = watched(monkeypatch)
    rewards = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 1, 0], [1, 1, 0]])
    monkeypatch.setattr(step.REWARDS["corewarding1"].__class__, "rewards", lambda *_: rewards)
    agents = two_agents()
    line = taken(agents, 1, dataclasses.replace(BASE, method="corewarding1"))
    rollouts, advantages, more = seen[0]
    words = [agents[0].tokenizer.decode(ids[m.bool()]) for ids, m in zip(rollouts.prompt_ids, rollouts.prompt_mask, strict=True)]
    assert words == ["w5 w6", "w9 w10", "w6 w5 w3", "w10 w9 w3"]
    assert torch.equal(advantages, group_advantages(rewards))
    assert line["agents"]["A"]["tokens"] == int(rollouts.mask.sum())


def test_the_teacher_votes_and_follows(monkeypatch):
    """Co-rewarding-II: the label is the teacher's and the rollouts the agent's; afterwards the teacher has moved by alpha."""
    seen, agents = watched(monkeypatch), two_agents()
    o = dataclasses.replace(BASE, method="corewarding2", steps=4, votes=4)
    hooks = hooks_of(o.method)(o, agents)
    for agent in agents:
        for p in agent.parameters():
            p.data += 0.1  # so that teacher and agent write differently
    prompts, start = [p.question for p in PROBLEMS], [p.clone() for p in hooks.teachers[0].parameters()]
    taught = sample(hooks.teachers[0], prompts, 4, 8, generator=step.runs.generator(0, step.runs.TEACHING, 3, 0))
    voted = []
    monkeypatch.setitem(step.REWARDS, o.method, dataclasses.replace(
        step.REWARDS[o.method], label=lambda n, ballots, truths: voted.append(ballots[n]) or ["2", "2"]))  # fmt: skip
    line = taken(agents, 3, o, hooks)
    assert voted[0] == taught.answers and seen[0][0].mask.shape[:2] == (2, 3)
    assert line["agents"]["A"]["tokens"] == int(seen[0][0].mask.sum()) + int(taught.mask.sum())
    now = [slow + 0.005005 * (fast - slow) for slow, fast in zip(start, agents[0].parameters(), strict=True)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(hooks.teachers[0].parameters(), now, strict=True))


def test_a_discussion_is_one_optimizer_step(monkeypatch):
    """CoMAS: solutions, evaluations and scores in one batch; in three updates, two would be off-policy and called on-policy."""
    seen = watched(monkeypatch)
    line = taken(two_agents(2048), 1, dataclasses.replace(BASE, method="comas"))
    assert len(seen) == 2
    rollouts, advantages, more = seen[0]
    assert rollouts.mask.shape[:2] == (3 * 2 * 3, 1) and advantages.shape == (18, 1)
    assert more["rows"] == BASE.micro_batch * 3
    figures = line["agents"]["A"]
    assert figures["tokens"] == int(rollouts.mask.sum())
    assert figures["scored"] == 0 and figures["scorer_reward"] == -1 and figures["labelled"] == 0


def test_label_accuracy_counts_a_tie_as_wrong():
    """Four questions: a right label, a wrong one, a tie, and one whose truth is unknown: 1 of 3 right, 3 of 4 have a label."""
    rollouts = sample(two_agents()[0], ["w5"] * 4, 2, 4)
    rollouts.answers = [["7", "8"]] * 4
    found = step.describe(rollouts, torch.zeros(4, 2), ["7", "7", None, "7"], ["7", "8", "9", None])
    assert found["labelled"] == 3 / 4 and found["label_accuracy"] == 1 / 3 and found["accuracy"] == 2 / 6


def test_the_step_is_short_and_asks_no_method():
    """The paper's algorithm in at most 25 lines, in which no question is asked about which method this is."""
    for function in (step.train_step, agon.train_step):
        lines = inspect.getsource(function).strip().splitlines()
        assert len(lines) <= 25 and not any(re.search(r"\bif\b", line.partition('"""')[0].partition("#")[0]) for line in lines)


def test_agreement_on_a_ring_of_three():
    """Pairs (0,2), (1,0), (2,1) of two questions: equal values agree, two abstentions do not."""
    answers = [[["1/2"], [None]], [["0.5"], [None]], [["3"], ["4"]]]
    assert step.agreement_on_ring(answers) == 1 / 6 and step.agreement_on_ring(answers[:1]) is None
