"""The tiny world: its arithmetic, its held-out problems, its tokenizer, its training and its cache."""

import functools
import json
import os
import re
import zlib
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.diversity import read_result, summary
from cohort import check, parse
from lab import tinyworld
from lab.answers import extract_answer, same_answer
from lab.data import UserError
from lab.models import chat, encode
from lab.tinyworld import TOPICS, Profile, WarmStart

TINY = WarmStart(hidden=16, layers=1, batch=8, base_steps=3, agent_steps=2)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path / "cache"))


EXAMPLES = [  # topic, operands, question, right text, first mistake, second mistake; worked by hand
    ("carry", (4, 7, 3, 8), "47+38=", "7+8=15,4+3+1=8 -> 85", "7+8=15,4+3=7 -> 75", "7+8=15,4+3=7 -> 715"),
    ("carry", (1, 5, 2, 5), "15+25=", "5+5=10,1+2+1=4 -> 40", "5+5=10,1+2=3 -> 30", "5+5=10,1+2=3 -> 310"),
    ("borrow", (5, 2, 3, 7), "52-37=", "12-7=5,4-3=1 -> 15", "7-2=5,5-3=2 -> 25", "0,5-3=2 -> 20"),
    ("borrow", (9, 1, 1, 9), "91-19=", "11-9=2,8-1=7 -> 72", "9-1=8,9-1=8 -> 88", "0,9-1=8 -> 80"),
    ("product", (3, 4, 6), "34*6=", "4*6=24,3*6=18,2+18=20 -> 204", "4*6=24,3*6=18 -> 184", "4*6=24,3*6=18 -> 1824"),
    ("product", (1, 5, 2), "15*2=", "5*2=10,1*2=2,1+2=3 -> 30", "5*2=10,1*2=2 -> 20", "5*2=10,1*2=2 -> 210"),
    ("precedence", (3, 4, 5), "3+4*5=", "3+(4*5),4*5=20,3+20=23 -> 23", "(3+4)*5,3+4=7,7*5=35 -> 35",
     "3+(4*5),4*5=20 -> 20"),
    ("bracket", (15, 7, 2), "15-(7-2)=", "7-2=5,15-5=10 -> 10", "15-7=8,8-2=6 -> 6", "7-2=5,15+5=20 -> 20"),
    ("fraction", (2, 3, 7), "2/7+3/7=", "/7,2+3=5 -> 5/7", "7+7=14,2+3=5 -> 5/14", "7*7=49,2+3=5 -> 5/49"),
]


def topic_named(name):
    return next(topic for topic in TOPICS if topic.name == name)


@pytest.mark.parametrize("name, operands, question, right, first, second", EXAMPLES)
def test_worked_texts(name, operands, question, right, first, second):
    """Guards against a wrong step or answer in a topic's texts, and against mistakes in another order."""
    topic = topic_named(name)
    assert [method(*operands) for method in topic.methods] == [right, first, second]
    problem = topic.problem(operands)
    assert (problem.question, problem.topic) == (question, name)
    assert problem.answer == right.split(" -> ")[1]


@pytest.mark.parametrize("name", [t.name for t in TOPICS if t.name not in ("product", "precedence")])
def test_design_examples_are_problems(name):
    """Guards against a filter that loses the examples shown to the reader."""
    operands = {example[0]: example[1] for example in reversed(EXAMPLES)}[name]
    assert operands in topic_named(name).operands


def value(expression):
    """An independent exact value of a question: integers and fractions, by precedence climbing over +, -, *, /."""
    from fractions import Fraction

    tokens = re.findall(r"\d+|[-+*/()]", expression)

    def atom():
        token = tokens.pop(0)
        if token != "(":
            return Fraction(int(token))
        inner = total()
        tokens.pop(0)
        return inner

    def product():
        result = atom()
        while tokens and tokens[0] in "*/":
            result = result * atom() if tokens.pop(0) == "*" else result / atom()
        return result

    def total():
        result = product()
        while tokens and tokens[0] in "+-":
            result = result + product() if tokens.pop(0) == "+" else result - product()
        return result

    return total()


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_every_problem(topic):
    """Guards, over all problems: a right answer that is wrong, a wrong one that is right, two mistakes with one answer,
    a step that does not hold, an answer that the reward code reads otherwise, and a problem that occurs twice."""
    questions = [topic.problem(x).question for x in topic.operands]
    assert len(set(questions)) == len(questions) > 150
    for x in topic.operands:
        problem = topic.problem(x)
        right, first, second = (extract_answer(method(*x), style="number") for method in topic.methods)
        assert right == problem.answer and value(right) == value(problem.question.rstrip("="))
        assert not same_answer(first, right) and not same_answer(second, right) and not same_answer(first, second)
        for method in topic.methods:
            for step in re.split(r",| -> ", method(*x))[:-1]:
                if "=" in step:
                    assert value(step.split("=")[0]) == value(step.split("=")[1]), step


def test_rephrased_is_the_same_problem():
    """Guards against a notation that changes the problem, or makes prompts of another length."""
    tokenizer = tinyworld.make_tokenizer()
    words = {" plus ": "+", " minus ": "-", " times ": "*", " over ": "/"}
    for problem in tinyworld.probes(n=5):
        signs = problem.rephrased
        for word, sign in words.items():
            signs = signs.replace(word, sign)
        assert signs == problem.question != problem.rephrased
        assert len(encode(problem.question, tokenizer)) == len(encode(problem.rephrased, tokenizer))


@pytest.mark.slow
def test_held_out_problems_are_never_trained_on():
    """Guards against a probe that leaks into the training problems, in either notation, or into the warm-up texts."""
    probes = tinyworld.probes(n=10**6)
    assert {p.topic for p in probes} == {t.name for t in TOPICS}
    seen = {text for p in tinyworld.problems(None, 6000, seed=1) for text in (p.question, p.rephrased)}
    assert not seen & {text for p in probes for text in (p.question, p.rephrased)}
    tokenizer = tinyworld.make_tokenizer()
    warm = {text.split("=")[0] + "=" for text in tokenizer.batch_decode(tinyworld.make_texts(False).ids[:, 0, 0])}
    assert not warm & {p.question for p in probes}
    counts = Counter(p.topic for p in tinyworld.probes(n=20))
    assert all(count == 20 for count in counts.values()) and tinyworld.probes() == tinyworld.probes()


def test_problems_are_balanced_seeded_and_selectable():
    """Guards against a topic that a small batch always leaves out, and a draw that the seed does not decide."""
    assert Counter(p.topic for p in tinyworld.problems(None, 4 * len(TOPICS), seed=0)) == {t.name: 4 for t in TOPICS}
    assert len({p.topic for seed in range(20) for p in tinyworld.problems(None, 2, seed)}) == len(TOPICS)
    assert tinyworld.problems(None, 9, 3) == tinyworld.problems(None, 9, 3) != tinyworld.problems(None, 9, 4)
    assert {p.topic for p in tinyworld.problems(["borrow", "carry"], 9, 0)} == {"carry", "borrow"}
    assert [t.name for t in tinyworld.select(["fraction", "carry"])] == ["carry", "fraction"]
    with pytest.raises(UserError, match=r"calculus.*carry, borrow"):
        tinyworld.select(["calculus"])


def test_tokenizer_round_trip(tmp_path):
    """Guards against a text that decodes with blanks between characters, and a prompt form lost when saving."""
    tokenizer = tinyworld.make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    tinyworld.make_model(WarmStart()).config.save_pretrained(tmp_path)  # beside a Qwen2 config another class reads it
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        for text in ("15-(7-2)=7-2=5,15-5=10 -> 10", "3 over 8 plus 2 over 8=/8,3+2=5 -> 5/8", "4 times 6 minus 1="):
            ids = each(text)["input_ids"]
            assert each.decode([*ids, each.eos_token_id], skip_special_tokens=True) == text
            assert each.unk_token_id not in ids
        assert len(each("12 -> 34")["input_ids"]) == 5
        assert chat("47+38=", each) == "47+38=" and len(encode("47+38=", each)) == 6
        assert (each.pad_token, each.eos_token, each.padding_side) == ("<pad>", "<eos>", "left")
        assert each.pad_token_id != each.eos_token_id


def test_labels_cover_the_completion_and_its_end_only():
    """Guards against training on the question or the padding, and against an end of sequence that is never learnt."""
    texts, tokenizer = tinyworld.make_texts(held_out=True), tinyworld.make_tokenizer()
    topic = TOPICS[5]
    for form, question in enumerate((topic.question, topic.rephrased)):
        for m, method in enumerate(topic.methods):
            x, row = topic.part(held_out=True)[0], int(texts.first[5])
            ids, labels = texts.ids[row, form, m], texts.labels[row, form, m]
            assert tokenizer.decode(labels[labels >= 0]) == method(*x) + "<eos>"
            assert tokenizer.decode(ids, skip_special_tokens=True) == question.format(*x) + method(*x)
            assert (ids[labels >= 0] == labels[labels >= 0]).all()


def test_texts_are_drawn_by_the_profile():
    """Guards against profiles that are swapped between topics, notations or methods: shares 1, 0 and 3/4 come out as
    such, other shares in the other notation, and of the mistakes a third is the second one."""
    texts, tokenizer = tinyworld.make_texts(held_out=False), tinyworld.make_tokenizer()
    profile = Profile(([1.0, 0.0, 0.75] * 9)[: len(TOPICS)], ([0.0, 1.0] + [0.5] * 9)[: len(TOPICS)], second=1 / 3)
    ids, _ = tinyworld.draw(texts, profile, 8000, 0.25, torch.Generator().manual_seed(0))
    known = {q.format(*x) + m(*x): (t.name, q is t.rephrased, t.methods.index(m))
             for t in TOPICS for x in t.operands for q in (t.question, t.rephrased) for m in t.methods}
    drawn = [known[text] for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    for topic, *shares in zip(TOPICS, profile.right, profile.rephrased, strict=True):
        assert abs(sum(name == topic.name for name, _, _ in drawn) / 8000 - 1 / len(TOPICS)) < 0.03
        for notation, share in enumerate(shares):
            right = [method == 0 for name, other, method in drawn if (name, other) == (topic.name, notation)]
            assert abs(sum(right) / len(right) - share) < 0.09 and (share not in (0, 1) or set(right) == {share == 1})
    assert abs(sum(rephrased for _, rephrased, _ in drawn) / 8000 - 0.25) < 0.03
    wrong = [method for _, _, method in drawn if method]
    assert abs(wrong.count(2) / len(wrong) - 1 / 3) < 0.03


def test_the_usual_cohort_draws_what_it_always_drew():
    """Guards against a change to the topics or the draws that moves the default warm start, and with it every figure of
    the README; a topic of your own does, too. The two sums are those of the code before there were second mistakes."""
    profile, generator = tinyworld.profiles(2, WarmStart())[0], torch.Generator().manual_seed(7)
    batch = tinyworld.draw(tinyworld.make_texts(held_out=False), profile, 64, 0.25, generator)
    assert [zlib.crc32(t.numpy().tobytes()) for t in batch] == [4197154857, 104652282]


def test_a_short_training_run_learns():
    """Guards against a loss that does not fall: 100 steps take it from ln(vocabulary), about 3.3, to below 1.9."""
    settings = WarmStart(hidden=32, batch=16)
    model = tinyworld.make_model(settings)
    profile = Profile([0.6] * len(TOPICS), [0.6] * len(TOPICS))
    losses = tinyworld.train(model, tinyworld.make_texts(False), profile, 100, 1e-2, settings, 0)
    assert losses[0] > 2.5 and sum(losses[-5:]) / 5 < 1.9


def test_calibration_is_the_exact_probability():
    """Guards against a probability that misses a token or counts the question: each text's own product, in float64."""
    model = tinyworld.make_model(WarmStart(hidden=16, layers=1)).double()
    tokenizer = tinyworld.make_tokenizer()
    topic = TOPICS[0]
    totals = [0.0, 0.0, 0.0]
    part = topic.part(held_out=True)
    for x in part:
        for m, method in enumerate(topic.methods):
            prompt, work = encode(topic.question.format(*x), tokenizer), encode(method(*x), tokenizer)
            ids = [*prompt, *work, tokenizer.eos_token_id]
            with torch.no_grad():
                p = model(torch.tensor([ids])).logits[0].softmax(-1)
            totals[m] += float(torch.stack([p[i - 1, ids[i]] for i in range(len(prompt), len(ids))]).prod()) / len(part)
    assert tinyworld.calibration(model)["carry"] == pytest.approx(tuple(totals), rel=1e-6, abs=0)


def test_profiles():
    """Guards against cohorts that are not complementary, or a topic on the wrong side of the line."""
    settings = WarmStart()
    for n in (2, 3, 4):
        cohort = tinyworld.profiles(n, settings)
        rows = [profile.right for profile in cohort]
        assert len(rows) == n and all(len(row) == len(TOPICS) for row in rows)
        assert all(profile.rephrased == profile.right and profile.second == 0 for profile in cohort)
        for shares in list(zip(*rows, strict=True))[:-1]:
            assert shares.count(settings.strong) == (n + 1) // 2 and sum(shares) / n > 0.6
        assert sum(row[-1] for row in rows) / n < 0.3
        assert len({tuple(row) for row in rows}) == n
    a, b = (profile.right for profile in tinyworld.profiles(2, settings))
    assert all({x, y} == {settings.strong, settings.weak} for x, y in zip(a[:-1], b[:-1], strict=True))


def test_kinds_of_cohort():
    """Guards against an agent A that is not the same in all kinds, and a B that differs in the wrong thing: strengths
    in the usual notation, strengths in the other one, the mistake, each worked by hand."""
    a, b = [0.88, 0.42, 0.88, 0.42, 0.88, 0.25], [0.42, 0.88, 0.42, 0.88, 0.42, 0.30]
    expected = {"same": (a, a, 0), "seed": (a, a, 0), "errors": (a, a, 1), "complementary": (b, b, 0),
                "different": (b, b, 1), "rephrased": (a, b, 0)}
    assert expected.keys() == tinyworld.KINDS.keys()
    for kind, profile in expected.items():
        assert tinyworld.profiles(2, WarmStart(kind=kind)) == [(a, a, 0), profile]


@pytest.mark.parametrize("words", ["--cohort seed --agents 3", "--cohort different --models A B --data sums"])
def test_a_kind_is_for_the_two_tiny_agents(words):
    """Guards against a kind that is silently left out of a cohort that has none."""
    with pytest.raises(UserError, match="two agents of the tiny world"):
        check(parse(words.split(), ""))
    check(parse(["--cohort", "rephrased", "--rephrase", "B"], ""))


def test_agents_of_each_kind(monkeypatch):
    """Guards against twins that differ, against a second seed that is the first, against an agent A trained anew for
    each kind, and against one notation's texts running short where a profile has two."""
    calls, drawn = counted(monkeypatch), []
    draw = tinyworld.draw
    monkeypatch.setattr(tinyworld, "draw", lambda *args: drawn.append(args[3]) or draw(*args))
    weights = {}
    for kind in tinyworld.KINDS:
        a, b = (model.state_dict() for model, _ in tinyworld.cohort(2, settings=WarmStart(**{**vars(TINY), "kind": kind})))
        weights[kind] = tinyworld.checksum(a), tinyworld.checksum(b)
    assert calls == [0, 1, 2, 2, 2, 2, 2] and drawn == [0.25] * (3 + 5 * 2) + [0.5] * 4
    assert len({a for a, _ in weights.values()}) == 1 and len({b for _, b in weights.values()}) == 6
    assert [kind for kind, (a, b) in weights.items() if a == b] == ["same"]


def test_forecast_from_the_measured_overlap(tmp_path):
    """Guards against a forecast that leaves omega out: two topics start at (.42, .42), below the line. Where no wrong
    answers coincide the theory says right, where all do it says wrong, and without a wrong pair omega is the paper's 1."""
    probes = [{"A": dict.fromkeys(("carry", "borrow", "product"), p), "B": {"carry": p, "borrow": p, "product": 0.9}}
              for p in (0.42, 0.85)]
    (tmp_path / "config.json").write_text(json.dumps({"method": "corl", "k": 8, "seed": 3}))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"probes": line}) + "\n" for line in probes))
    found = {"kappa": 0.1, "rescue": 0.2, "omega": 0.5, "topics": {"carry": 0.0, "borrow": 1.0, "product": None}}
    (tmp_path / "diversity.json").write_text(json.dumps(found))
    result = read_result(tmp_path)
    assert [(row["omega"], row["forecast"], row["paper"], row["outcome"]) for row in result["rows"]] == [
        (0, "right", "wrong", "right"), (1, "wrong", "wrong", "right"), (1, "right", "right", "right")]
    line = summary([result])
    assert (line["omega"], line["hits"], line["told"]) == (0.5, 2, 3) and line["forecast"] == pytest.approx(2 / 3)


def counted(monkeypatch):
    """Counts the calls of `train`, by the number of the agent (0: the base)."""
    calls, train = [], tinyworld.train
    monkeypatch.setattr(tinyworld, "train", lambda *args: calls.append(args[-1]) or train(*args))
    return calls


def test_cohort_is_cached_whole_and_by_its_settings(monkeypatch, tmp_path):
    """Guards against training twice, against a cache that ignores a setting, and against files half written."""
    calls = counted(monkeypatch)
    first = tinyworld.cohort(2, settings=TINY)
    assert calls == [0, 1, 2]
    again = tinyworld.cohort(2, settings=TINY)
    assert calls == [0, 1, 2]
    for (a, _), (b, _) in zip(first, again, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(first[0][0].lm_head.weight, first[1][0].lm_head.weight)
    tinyworld.cohort(2, settings=WarmStart(**{**vars(TINY), "strong": 0.7}))
    assert calls == [0, 1, 2, 1, 2]  # the base does not depend on it
    tinyworld.cohort(2, settings=WarmStart(**{**vars(TINY), "seed": 1}))
    assert calls[5:] == [0, 1, 2]
    names = os.listdir(tmp_path / "cache" / "tinyworld")
    assert len(names) == 8 and all(name.endswith(".safetensors") for name in names)


@pytest.mark.parametrize("damage", ["cut", "emptied", "one bit"])
def test_a_damaged_cache_file_is_made_anew(monkeypatch, tmp_path, damage):
    """Guards against a crash on, or silent use of, a file cut short or changed."""
    tinyworld.cohort(1, settings=TINY)
    path = next((tmp_path / "cache" / "tinyworld").glob("agent1-*"))
    content = path.read_bytes()
    wrong = {"cut": content[:-100], "emptied": b"", "one bit": content[:-1] + bytes([content[-1] ^ 1])}[damage]
    path.write_bytes(wrong)
    calls = counted(monkeypatch)
    tinyworld.cohort(1, settings=TINY)
    assert calls == [1] and path.read_bytes() == content


def test_an_interrupted_write_leaves_nothing(monkeypatch, tmp_path):
    """Guards against a file under its final name that holds only a part."""
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        tinyworld.cohort(1, settings=TINY)
    assert os.listdir(tmp_path / "cache" / "tinyworld") == []


def test_a_cache_that_cannot_be_written_costs_only_time(monkeypatch, tmp_path, capsys):
    """Guards against a warm start that is lost because the cache folder is a file or read-only."""
    (tmp_path / "cache").write_text("not a folder")
    assert len(tinyworld.cohort(1, settings=TINY)) == 1
    assert "cannot keep the warm start" in capsys.readouterr().err


def test_training_leaves_the_global_random_state_alone():
    """Guards against a run whose draws depend on whether the warm start came out of the cache."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    tinyworld.cohort(1, settings=TINY)
    assert torch.equal(before, torch.get_rng_state())


def test_a_model_saved_is_an_ordinary_qwen2(tmp_path):
    """Guards against a checkpoint that loads with other weights, or with no end-of-sequence token."""
    (model, tokenizer), = tinyworld.cohort(1, settings=TINY)
    model.save_pretrained(tmp_path / "model")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert loaded.config.model_type == "qwen2" and loaded.generation_config.eos_token_id == tokenizer.eos_token_id
    ids = torch.tensor([encode("47+38=", tokenizer)])
    assert torch.equal(model(ids).logits, loaded(ids).logits)
    assert load_file(tmp_path / "model" / "model.safetensors").keys() == dict(model.named_parameters()).keys()


@pytest.mark.slow
def test_the_command_shows_topics_and_calibration(monkeypatch, tmp_path, capsys):
    """What `python tinyworld.py` prints is how a student meets the topics: each method's text, and each agent's shares."""
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path))
    monkeypatch.setattr(tinyworld, "WarmStart", functools.partial(WarmStart, base_steps=3, agent_steps=2))
    monkeypatch.setattr("sys.argv", ["tinyworld.py", "--rephrased"])
    tinyworld.main()
    told = capsys.readouterr().out
    assert all(f"\n{topic.name}" in f"\n{told}" for topic in TOPICS)
    assert told.count("slips") == 2 and "first:" in told
