"""What methods add to a step: the teacher of Co-rewarding-II and the judges of CoMAS, against numbers worked out by hand."""

from types import SimpleNamespace

import pytest
import tiny
import torch

import lora
from grpo import Agent, Rollouts, sample, token_logprobs
from lab import methods
from lab.data import Problem, UserError
from lab.methods import alpha, draw_judges, follow, hooks_of, join, judge, make_teachers, pay, read_score
from lab.models import fits


def adapted(names: list[str], seed: int = 0):
    """A tiny model with these adapters."""
    model = tiny.model("qwen2")
    lora.inject(model, 2, 4.0, adapters=names, seed=seed)
    return model


def test_schedule_by_hand():
    """a_0 at the first step, half-way between at T/2 + 1, never quite a_1: off by one step and the last a would be a_1."""
    assert alpha(1, 4) == 0.01
    assert abs(alpha(2, 4) - 0.00853700) < 1e-8  # 1e-5 + 0.00999 (1 + cos 45) / 2
    assert abs(alpha(3, 4) - 0.005005) < 1e-9  # the cosine is 0
    assert abs(alpha(4, 4) - 0.00147300) < 1e-8


def test_average_by_hand():
    """(1 - a) teacher + a policy: with the roles exchanged the teacher would be the policy, and the method TTRL."""
    policy = Agent("A", tiny.model("qwen2"), tiny.tokenizer())
    (teacher,) = make_teachers([policy])
    for p in policy.parameters():
        p.data.fill_(2.0)
    for p in teacher.parameters():
        p.data.fill_(1.0)
    follow(teacher, policy, 0.25)
    assert all((p == 1.25).all() for p in teacher.parameters())
    assert all((p == 2.0).all() for p in policy.parameters())


def test_a_bfloat16_policy_has_a_float32_teacher():
    """1 % of a difference of 1/128 is lost in bfloat16: that teacher would never move."""
    policy = Agent("A", tiny.model("qwen2").bfloat16(), tiny.tokenizer())
    (teacher,) = make_teachers([policy])
    slow, fast = (agent.parameters()[0] for agent in (teacher, policy))
    fast.data.fill_(1 + 1 / 128)
    slow.data.fill_(1.0)
    follow(teacher, policy, 0.01)
    assert slow.dtype == torch.float32 and torch.allclose(slow, torch.tensor(1 + 0.01 / 128), atol=1e-7, rtol=0)
    assert not any(p.requires_grad for p in teacher.parameters()) and teacher.optimizer is None


def test_adapters_are_averaged_and_start_as_the_policy():
    """A and B each; the teacher's adapter is drawn anew by `inject` and must be made equal, and leave the policy's alone."""
    model = adapted(["A", "A-teacher"])
    policy = Agent("A", model, tiny.tokenizer(), adapter="A")
    before = [p.clone() for p in policy.parameters()]
    (teacher,) = make_teachers([policy])
    assert teacher.adapter == "A-teacher" and teacher.model is model
    assert all(torch.equal(a, b) for a, b in zip(teacher.parameters(), before, strict=True))
    for p in policy.parameters():
        p.data += 1
    follow(teacher, policy, 0.5)
    assert all(torch.allclose(a, b + 0.5) for a, b in zip(teacher.parameters(), before, strict=True))
    assert all(torch.equal(a, b + 1) for a, b in zip(policy.parameters(), before, strict=True))


def test_a_teacher_does_not_change_where_the_policy_starts():
    """In --compare every method begins with the same weights, though this one has more adapters."""
    alone, beside = adapted(["A", "B"]), adapted(["A", "B", "A-teacher", "B-teacher"])
    for name in "AB":
        pairs = zip(lora.parameters(alone, name), lora.parameters(beside, name), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("The carry is missing. <score>1</score>", 1),
        ("<score> 3 </score>", 3),
        ("<SCORE>2</SCORE>.", 2),
        ("first <score>1</score>, but then <score>3</score>", 3),  # the last counts
        ("<score>1</score> and <score>4</score>", None),
        ("<score>2.5</score>", None),
        ("<score>3", None),  # cut off
        ("a clear 3", None),
        ("<score>1 or 2</score>", None),
        ("", None),
    ],
)
def test_read_score(text, score):
    """A digit elsewhere is no score: taking any 1, 2 or 3 of the text would pay by the problem's own numbers."""
    assert read_score(text) == score


def test_judges_are_drawn_evenly_and_never_score_their_own_evaluation():
    """Who evaluated must not decide what the evaluation earns; and no agent may be left out of a role."""
    drawn = draw_judges(3, 600, torch.Generator().manual_seed(0))
    counts = {pair: drawn.count(pair) for pair in set(drawn)}
    assert set(counts) == {(e, s) for e in range(3) for s in range(3) if e != s}
    assert all(70 < count < 130 for count in counts.values())  # 100 each on average, standard deviation 9
    assert set(draw_judges(2, 50, torch.Generator().manual_seed(0))) == {(0, 1), (1, 0)}


def test_pay_by_hand():
    """Two agents, one question, K = 2, e = 1, s = 0: agent 1 evaluates agent 0's solutions, agent 0 scores them itself."""
    scores = [[[1, None]], [[3, 2]]]  # of agent 0's and of agent 1's solutions
    (evaluator_0, scorer_0), (evaluator_1, scorer_1) = pay(scores, [(1, 0)])
    assert evaluator_0.tolist() == [[0, 0.5]] and evaluator_1.tolist() == [[1, 0]]
    assert scorer_0.tolist() == [[0, -1]] and scorer_1.tolist() == [[0, 0]]


def test_everybody_reads_and_pays_the_right_text(monkeypatch):
    """3 agents, 2 questions, K = 2: each evaluation must be shown with its own solution, and its score go back to both."""
    tokenizer = SimpleNamespace(plain_prompt=True)
    monkeypatch.setattr(methods, "fits", lambda *_: True)
    agents = [SimpleNamespace(name=name, tokenizer=tokenizer, thinking=False) for name in "ABC"]
    solutions = [[[f"<{n}{p}{k}>" for k in (0, 1)] for p in (0, 1)] for n in range(3)]
    empty = torch.zeros(2, 2)
    cohort = [Rollouts(*[empty] * 8, texts=texts) for texts in solutions]
    drawn = [(0, 2), (2, 1)]
    monkeypatch.setattr(methods, "draw_judges", lambda *_: drawn)
    # Scores of the solutions; the text of B's first to question 1 is cut off.
    given = {"000": 1, "001": 2, "010": 3, "011": 1, "100": 2, "101": 3, "110": None, "111": 1,
             "200": 3, "201": 1, "210": 2, "211": 2}
    asked = []

    def fake(agents, prompts, k, *_):
        assert k == 1
        asked.append(prompts)
        out = []
        for m, texts in enumerate(prompts):
            written = []
            for text in texts:
                key = text.split("<")[1].split(">")[0]
                score = given[key]
                written.append([f"{m} objects to {key}" if len(asked) == 1 else f"<score>{score or 3}</score>"])
            finished = torch.tensor([[len(asked) == 1 or given[t.split("<")[1].split(">")[0]] is not None] for t in texts])
            out.append(SimpleNamespace(texts=written, finished=finished))
        return out

    monkeypatch.setattr(methods, "sample_cohort", fake)
    problems = [Problem("question 0"), Problem("question 1")]
    found = judge(agents, cohort, problems, 8, 1.0, [None] * 4)
    for (n, p, k), key in [((n, p, k), f"{n}{p}{k}") for n in range(3) for p in (0, 1) for k in (0, 1)]:
        e, s = drawn[p]
        evaluator, scorer, score = (n + e) % 3, (n + s) % 3, given[key]
        evaluated, scored = asked[0][evaluator][2 * p + k], asked[1][scorer][2 * p + k]
        assert f"<{key}>" in evaluated and f"question {p}" in evaluated
        assert f"<{key}>" in scored and f"{evaluator} objects to {key}" in scored and f"question {p}" in scored
        assert found[n].scores[p][k] == score
        assert found[evaluator].evaluator_rewards[p, k] == (0 if score is None else 1 - (score - 1) / 2)
        assert found[scorer].scorer_rewards[p, k] == (-1 if score is None else 0)


def test_what_does_not_fit_loses_its_middle():
    """Another model's text can need more tokens here: it must end neither the run nor without the answer at its end."""
    agent = Agent("A", tiny.model("qwen3"), tiny.tokenizer())  # a context of 128, a token a word
    words = [f"w{3 + i % 60}" for i in range(90)]
    short = methods.ask(agent, methods.EVALUATE, "w3", 20, solution=" ".join(words[:20]))
    assert " ".join(words[:20]) in short and "[...]" not in short
    for form, more in ((methods.EVALUATE, {}), (methods.SCORE, {"evaluation": " ".join(words)})):
        prompt = methods.ask(agent, form, "w3", 20, solution=" ".join(words), **more)
        assert fits(agent, prompt, 20)
        if not more:
            assert "w3 w4 w5" in prompt and f" {words[-2]} {words[-1]}" in prompt and "[...]" in prompt
    assert methods.without_middle("abcdefgh", 0.5) == "ab [...] gh" and methods.without_middle("abcd", 0) == " [...] "


def test_joined_rollouts_are_scored_as_before():
    """Padding that shifts a prompt, or a prompt given to another's completion, changes log-probs and trains on nonsense."""
    agent = Agent("A", tiny.model("qwen3"), tiny.tokenizer(), answer_style="number")
    long = sample(agent, ["w3 w4 w5 w6 w7", "w8"], 3, 9, generator=torch.Generator().manual_seed(0))
    short = sample(agent, ["w9 w10"], 2, 4, generator=torch.Generator().manual_seed(1))
    advantages = torch.arange(6.0).view(2, 3), torch.tensor([[7.0, 8.0]])
    joined, both = join([(long, advantages[0]), (short, advantages[1])])
    assert both.tolist() == [[0], [1], [2], [3], [4], [5], [7], [8]] and joined.mask.shape[:2] == (8, 1)
    found = token_logprobs(agent.model, joined, torch.arange(8), 1.0)  # [8,1,L]
    alone = [token_logprobs(agent.model, r, torch.arange(len(r.mask)), 1.0).flatten(0, 1) for r in (long, short)]
    for row, expected in zip(found[:, 0], [*alone[0], *alone[1]], strict=True):
        assert torch.allclose(row[: len(expected)], expected, atol=1e-5)
    assert torch.equal(joined.mask.sum((1, 2)), torch.cat([long.mask.sum(-1).flatten(), short.mask.sum(-1).flatten()]))


def test_a_model_without_a_chat_template_is_no_judge():
    """A base model goes on with the text it is shown; it would be trained on noise, and nobody told why."""
    with pytest.raises(UserError, match="comas needs chat models.*B"):
        chatty = SimpleNamespace(name="A", tokenizer=SimpleNamespace(chat_template="x"))
        hooks_of("comas").accept([chatty, Agent("B", None, tiny.tokenizer())], "comas")
