"""Problems out of files and downloads, and prompts out of problems. The tokenizers are made here, of words."""

import hashlib
import json
import sys
import types

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from lab import data
from lab.answers import same_answer
from lab.data import NAMES, SOURCES, Problem, Source, UserError, answer_style, hold_out, load_problems, place, train_and_test
from lab.models import TEXT, chat, encode


def write(folder, name, *records):
    """A .jsonl or .json file of records; a record that is a string is written as it is."""
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path = folder / name
    path.write_text("\n".join(lines) if name.endswith("l") else f"[{','.join(lines)}]", encoding="utf-8")
    return path


def complaint(call, *arguments):
    """The text of the UserError that a call raises; it must be one line."""
    with pytest.raises(UserError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


# ---------------------------------------------------------------- records and files


@pytest.mark.parametrize("record, problem", [
    ({"question": "Q", "answer": "#### 9\nHe has 9*2=<<9*2=18>>18.\n#### 18"}, Problem("Q", "18")),
    ({"problem": "Q", "solution": r"It is \boxed{1}.", "answer": r"\frac32", "subject": "Algebra", "level": 2},
     Problem("Q", r"\frac32", "Algebra")),
    ({"problem": "Q", "solution": r"So \boxed{1}, no, $\boxed{\frac{3}{2}}$. \boxed{}", "level": 2},
     Problem("Q", r"\frac{3}{2}", "2")),
    ({"problem": "Q", "solution": r"It is \boxed{\left\{1,2\right.}."}, Problem("Q", r"\left\{1,2\right.")),
    ({"problem": "Q", "solution": "It is left to the reader."}, Problem("Q", None)),
    ({"problem": "Q", "solution": "18"}, Problem("Q", "18")),
    ({"prompt": "Q", "answer": "204", "source": "aime", "id": "0"}, Problem("Q", "204", "aime")),
    ({"original": "Q", "rewritten": "R"}, Problem("Q", None, "", "R")),
    ({"question": " Q ", "final_answer": 7, "topic": "t", "source": "s", "rephrased": "R"},
     Problem("Q", "7", "t", "R")),
    ({"question": "Q", "answer": None, "final_answer": ""}, Problem("Q")),
    ({"question": "Q", "expected_answer": "5"}, Problem("Q", "5")),
    ({"question": "Q", "ground_truth": 5}, Problem("Q", "5")),
    ({"question": "Q", "final_answer": ["(1,2)"]}, Problem("Q", "(1,2)")),
    ({"problem": "Q", "solution": r"So \fbox{5}, done."}, Problem("Q", "5")),
    ({"question": "Q", "answer": "5", "topic": ["a"], "subject": "b", "rephrased": ["R"]}, Problem("Q", "5", "b")),
])
def test_usual_field_names(record, problem, tmp_path):
    """Guards: a data set of another naming read as unlabelled, or a whole worked solution taken for the answer."""
    assert load_problems(write(tmp_path, "a.jsonl", record)) == [problem]
    assert load_problems(write(tmp_path, "a.json", record)) == [problem]


def test_numbers_stay_the_digits_written(tmp_path):
    """Guards: 0.1000000000000000055 rounded through a float, so that the exact comparison of answers is not exact."""
    path = write(tmp_path, "a.jsonl", '{"question": "Q", "answer": 0.1000000000000000055}')
    assert load_problems(path)[0].answer == "0.1000000000000000055"


@pytest.mark.parametrize("text, answer", [
    ("#### 5\nSo he has five.", "5"),
    ("He has five. #### 5", "5"),
    ("#### $1,000", "$1,000"),
    ("#### Answer: 5", "5"),
    ("#### **Final answer:** 5", "5"),
    ("#### two apples", "two apples"),
    ("#### Step 1\nAdd.\n#### Final Answer\n$\\boxed{\\frac12}$", "\\frac12"),
    ("\\boxed{5}\n#### Remark", "5"),
    ("#### 1\nAdd.\n#### 2\nSo $\\boxed{7}$.", "7"),
    ("##### Result\nIt is \\fbox{5}.", "5"),
    ("\\boxed{7}, no:\n#### 8", "8"),
    ("#### Step 1\nAdd.\n#### Step 2\nIt is five.", None),
])
def test_a_heading_is_no_mark(text, answer, tmp_path):
    """Guards: "Final Answer ..." taken for a reference that nothing equals, since Markdown writes headings with #### too."""
    for name in ("answer", "solution"):
        assert load_problems(write(tmp_path, "a.jsonl", {"question": "Q", name: text}))[0].answer == answer


@pytest.mark.parametrize("text", [
    r"\frac{1}{2}", r"$\theta$", r"2 \times 3", r"5 \text{ cm}", r"\textbf{B}", r"\rho + 1", r"2 \right)", r"\nabla f",
    r"x \neq 5", r"x \ne 5", r"$\nu$", r"$\tan x$", r"\beta", r"{\rm cm}", r"\triangle ABC", r"\to 5", r"\binom52",
])
def test_tex_with_one_backslash_is_refused(text, tmp_path):
    r"""Guards: "\frac{1}{2}", one backslash of which JSON makes a form feed, read as the answer rac{1}{2}; \theta as heta."""
    for name in ("question", "answer"):
        records = {"question": "Q"}, f'{{"problem": "Q", "{name}": "{text}"}}'
        told = complaint(load_problems, write(tmp_path, "a.jsonl", *records))
        assert "line 2" in told and f'field "{name}"' in told and "two backslashes" in told
        assert "entry 2" in complaint(load_problems, write(tmp_path, "a.json", *records))
    sound = {"question": f"Q {text}", "answer": text}
    assert load_problems(write(tmp_path, "a.jsonl", sound)) == [Problem(f"Q {text}", text)]


@pytest.mark.parametrize("text", [
    "one\nnot two\nnu\nexactly\ne.g. three", "a\tb\tan apple\tother\textra", "old\rmac lines", "$$\nx = 5\n$$", "{\nx}",
    "two\r\nright ends"])
def test_line_ends_and_tabs_are_text(text, tmp_path):
    """Guards: a text refused because a word after a line end or a tab looks like the end of a TeX command."""
    assert load_problems(write(tmp_path, "a.jsonl", {"question": text}))[0].question == text


@pytest.mark.parametrize("line, reason", [
    ("{'question': 1}", "not JSON"),
    ('["Q", "A"]', "not a JSON object"),
    ('{"answer": "5"}', "no question"),
    ('{"question": "  "}', "no question"),
    ('{"question": ["Q"]}', '"question" holds a list'),
    ('{"question": "Q", "answer": true}', '"answer" holds a bool'),
    ('{"question": "Q", "answer": NaN}', "NaN is not JSON"),
    ('{"question": "Q", "answer": "text ####"}', "nothing after its ####"),
    ('{"question": "Q \\ud800"}', "no Unicode text"),
    ('{"question": "Q", "answer": "1", "answer": "2"}', "stands twice"),
    ('{"question": "Q", "answer": ' + "9" * 5000 + "}", "digits"),
    ("[" * 200000, "recursion"),
])
def test_bad_line_is_named(line, reason, tmp_path):
    """Guards: a traceback, or a bad record skipped in silence, instead of file, line number and reason."""
    path = write(tmp_path, "a.jsonl", {"question": "Q"}, "", line)
    text = complaint(load_problems, path)
    assert str(path) in text and "line 3" in text and reason in text


def test_bad_entry_of_a_list_is_named(tmp_path):
    """Guards: no place given for a bad entry of a .json list."""
    assert "entry 2: no question" in complaint(load_problems, write(tmp_path, "a.json", {"question": "Q"}, {}))


def test_line_separator_inside_a_string(tmp_path):
    """Guards: splitlines(), which cuts a JSON line at U+2028; and a byte order mark taken for a bad first line."""
    path = tmp_path / "a.jsonl"
    path.write_text('\ufeff{"question": "one\u2028two", "answer": "5"}\r\n', encoding="utf-8")
    assert load_problems(path) == [Problem("one\u2028two", "5")]


def test_unusable_files(tmp_path):
    """Guards: a traceback for a file that is missing, empty, a folder, of another kind, or not UTF-8."""
    (tmp_path / "latin.jsonl").write_bytes('{"question": "caf\xe9"}'.encode("latin-1"))
    (tmp_path / "empty.jsonl").write_text(" \n\n")
    (tmp_path / "data.csv").write_text("question,answer")
    (tmp_path / "object.json").write_text('{"question": "Q"}')
    (tmp_path / "none.json").write_text("[]")
    (tmp_path / "broken.json").write_text('[{"question": "Q"},')
    expected = {"missing.jsonl": "no file", "gms8k": "no file", "": "folder", "data.csv": "neither .jsonl",
                "latin.jsonl": "not UTF-8", "empty.jsonl": "empty",
                "object.json": "not a list", "none.json": "not a list", "broken.json": "not JSON"}
    for name, reason in expected.items():
        assert reason in complaint(load_problems, tmp_path / name)


def test_published_shapes(tmp_path):
    """Guards: a change of reading that loses the answers of files as they are published (records made up here, shapes theirs)."""
    ttrl = [{"prompt": "Find $x$.", "answer": "025", "source": "aime", "id": "0"},
            {"prompt": "Q", "answer": "142.0", "source": "amc", "id": "0"},
            {"prompt": "Q", "answer": "\\left( 3, \\frac{\\pi}{2} \\right)", "source": "math", "id": "test/precalculus/1.json"}]
    found = load_problems(write(tmp_path, "test.json", *ttrl))
    assert [same_answer(p.answer, a) for p, a in zip(found, ["25", "142", "(3, \\pi/2)"], strict=True)] == [True] * 3
    gsm8k = {"question": "How many?", "answer": "She has 16 - 3 = <<16-3=13>>13 left.\nSo $<<13*2=26>>26.\n#### 1,026"}
    assert same_answer(load_problems(write(tmp_path, "g.jsonl", gsm8k))[0].answer, "1026")
    pair = {"original": "Let $$f(x) = \\left\\{\n\\begin{array}{cl} ax,\n\\end{array}\n\\right.$$", "rewritten": "A firm ..."}
    assert load_problems(write(tmp_path, "r.jsonl", pair)) == [Problem(pair["original"], rephrased="A firm ...")]
    (tmp_path / "r.jsonl").rename(tmp_path / "R.JSONL")
    assert load_problems(tmp_path / "R.JSONL")  # an ending in capitals


def test_only_some_levels(tmp_path):
    """Guards: "Level 5" read as no number, bounds that leave out their ends, a record without the field kept."""
    levels = ["Level 1", 3, "Level 5", 4.5, None]
    path = write(tmp_path, "a.jsonl", *({"question": str(level), "answer": "1", "level": level} for level in levels))
    assert [p.question for p in load_problems(f"{path}@level=3-5")] == ["3", "Level 5", "4.5"]
    assert "holds no problem" in complaint(load_problems, f"{path}@level=6-7")


def test_no_answer_at_all(tmp_path):
    """Guards: a file whose answers stand in an unknown field, measured or trained on as if there were none to find."""
    found = load_problems(write(tmp_path, "a.jsonl", {"question": "Q", "gold": "5"}))
    told = complaint(data.need_answers, found, "a.jsonl", "method gt")
    assert told.startswith("method gt: a.jsonl holds no reference answer: none of")
    assert data.need_answers([Problem("Q"), Problem("R", "1")], "a.jsonl", "gt") == [Problem("R", "1")]


def test_limit(tmp_path):
    """Guards: a limit that takes other problems than the first ones, or that quietly gives none."""
    path = write(tmp_path, "a.jsonl", *({"question": str(i)} for i in range(5)))
    assert [p.question for p in load_problems(path, limit=2)] == ["0", "1"]
    assert len(load_problems(path, limit=9)) == 5
    assert "at least 1" in complaint(load_problems, path, "train", 0)


def test_sums():
    """Guards: another wording or another set of sums than the measured task."""
    problems = load_problems("sums")
    assert len(problems) == len(set(problems)) == 64 and problems == load_problems("sums", "test")
    assert Problem("What is 7 + 5? Reply with only the number.", "12", "7+5",
                   "Add 7 and 5. Reply with only the number.") in problems
    assert {int(p.answer) for p in problems} == set(range(4, 19))


def test_products():
    """Guards: a test product that was trained on, a split that depends on the seed or on the limit, another set or wording."""
    train, test = train_and_test("products", 1000)
    both = [(int(a), int(b)) for p in train + test for a, b in [p.topic.split("*")]]
    assert len(both) == len(set(both)) == 567 == 81 * 7 and (len(train), len(test)) == (388, 179)
    assert {a for a, _ in both} == {a for a in range(11, 100) if a % 10} and {b for _, b in both} == set(range(3, 10))
    assert all(p.answer == str(eval(p.topic)) for p in train + test)
    assert Problem("What is 12 * 7? Reply with only the number.", "84", "12*7",
                   "Multiply 12 by 7. Reply with only the number.") in train + test
    assert (load_problems("products"), load_problems("products", "test")) == (train, test)
    some = train_and_test("products", 60)[1]
    assert len(set(some)) == 60 and [p for p in test if p in some] == some
    assert {p.topic[-1] for p in some} == set("3456789")  # evenly, not the first ones
    assert answer_style("products") == answer_style("sums") == "number"


# ---------------------------------------------------------------- downloads


def test_download_is_checked_cached_and_whole(tmp_path, monkeypatch):
    """Guards: a wrong or broken file that stays in the cache, and a second download of what is there."""
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path / "cache"))
    source = write(tmp_path, "train.jsonl", {"question": "Q", "answer": "#### 5"})
    good = hashlib.sha256(source.read_bytes()).hexdigest()
    monkeypatch.setitem(SOURCES, "gsm8k/train", Source(source.as_uri(), "0" * 64, "number", "MIT"))
    assert "not the expected file" in complaint(load_problems, "gsm8k")
    assert not [path for path in tmp_path.glob("cache/**/*") if path.is_file()]

    monkeypatch.setitem(SOURCES, "gsm8k/train", Source(source.as_uri(), good, "number", "MIT"))
    assert load_problems("gsm8k") == [Problem("Q", "5")]
    assert [path.name for path in tmp_path.glob("cache/gsm8k/*")] == ["train.jsonl"]
    source.unlink()
    assert load_problems("gsm8k") == [Problem("Q", "5")]  # from the cache

    (tmp_path / "cache/gsm8k/train.jsonl").write_text("cut off")
    text = complaint(load_problems, "gsm8k")  # a damaged copy is not used, and the source is gone
    assert "cannot download" in text and str(tmp_path / "cache/gsm8k/train.jsonl") in text


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    """Guards: a traceback where the cache is a file, or another's folder."""
    (tmp_path / "file").write_text("")
    source = write(tmp_path, "train.jsonl", {"question": "Q"})
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path / "file"))
    row = Source(source.as_uri(), hashlib.sha256(source.read_bytes()).hexdigest(), "number", "MIT")
    monkeypatch.setitem(SOURCES, "gsm8k/train", row)
    assert "COHORT_CACHE" in complaint(load_problems, "gsm8k")


def test_a_benchmark_is_kept_whole(tmp_path, monkeypatch):
    """Guards: a hub benchmark of which a tenth is measured, fetched again each time, or lost for want of the package."""
    rows = [{"question": f"Q{i}", "final_answer": [str(i)]} for i in range(20)]
    sets = types.SimpleNamespace(load_dataset=lambda name, config: {"test": rows} if name == "math-ai/olympiadbench" else 1 / 0)
    monkeypatch.setitem(sys.modules, "datasets", sets)
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path))
    found = load_problems("olympiad", "test")
    assert found == load_problems("olympiad", "train") == [Problem(f"Q{i}", str(i)) for i in range(20)]
    assert place("olympiad/test") == tmp_path / "olympiad" / "test.jsonl" == data.fetch("olympiad/test")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert load_problems("olympiad", "test") == found


def test_every_source_is_a_whole_row():
    """Guards: a row of the table without its test part, hash, or style, found out when somebody asks for it."""
    for key, row in SOURCES.items():
        name = key.partition("/")[0]
        assert f"{name}/test" in SOURCES and answer_style(name) == row.style in ("number", "boxed") and row.licence
        assert row.url.startswith("hub:") if row.sha256 is None else len(bytes.fromhex(row.sha256)) == 32
    assert place("gsm8k/train").name == "train.jsonl" and place("aime24/test").name == "test.json"
    assert {"gsm8k", "math500", "aime24", "aime25", "amc23", "minerva", "olympiad", "deepmath-hard"} == set(NAMES)
    assert answer_style("math500@level=3-5") == answer_style("own.jsonl") == "boxed"


def test_hub_set_needs_the_datasets_package(monkeypatch):
    """Guards: an ImportError traceback, or the optional package becoming a requirement."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install datasets" in complaint(load_problems, "hub:zwhe99/DeepMath-103K")


def test_hub_set(monkeypatch):
    """Guards: the same problems in both parts of a set that has no test part; and the row of a bad record."""
    rows = {"one/part": {"train": [{"question": str(i), "final_answer": "1"} for i in range(20)]},
            "only/test": {"test": [{"question": str(i)} for i in range(20)]},
            "two/parts": {"train": [{"problem": "Q"}, {"problem": "R"}], "test": [{"problem": "T"}]},
            "bad/row": {"train": [{"problem": "Q"}, {"x": 1}], "test": []}}
    asked = []

    def load_dataset(name, config):
        asked.append((name, config))
        if name not in rows:
            raise ConnectionError("no network\nand a long explanation")
        return rows[name]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    for name in ("hub:one/part:main", "hub:only/test"):
        train, test = load_problems(name), load_problems(name, "test")
        assert len(train) == 18 and len(test) == 2 and not set(train) & set(test)
    assert asked[0] == ("one/part", "main") and asked[-1] == ("only/test", None)
    assert load_problems("hub:two/parts", "test") == [Problem("T")]
    assert load_problems("hub:two/parts", "train", limit=1) == [Problem("Q")]
    assert "row 2 of train: no question" in complaint(load_problems, "hub:bad/row")
    assert "holds no problem" in complaint(load_problems, "hub:bad/row", "test")
    assert "no network" in complaint(load_problems, "hub:un/known")


# ---------------------------------------------------------------- holding out


def test_hold_out():
    """Guards: a test question that was trained on, in its own or in the other wording; and a split that changes."""
    problems = [Problem(f"q{i}", "1") for i in range(20)] + [Problem(f" Q{i} ", "1") for i in range(20)]
    problems += [Problem(f"new {i}", rephrased=f"q{i}") for i in range(20)]
    train, test = hold_out(problems, 0.1, seed=3)
    assert len(test) == 6 and hold_out(problems, 6, seed=3) == (train, test)
    assert hold_out(problems, 6, seed=4)[1] != test

    def texts(side):
        return {text.strip().lower() for p in side for text in (p.question, p.rephrased) if text}

    assert not texts(train) & texts(test)
    assert [p for p in problems if p in train] == train  # in their own order


def test_hold_out_leaves_both_sides_something():
    """Guards: an empty test or an empty training part, found out only after the run."""
    problems = [Problem("a"), Problem("b")]
    assert "cannot hold out 2 of 2" in complaint(hold_out, problems, 2)
    assert "cannot hold out 0 of 2" in complaint(hold_out, problems, 0.1)
    assert "nothing is left" in complaint(hold_out, [Problem("a"), Problem("A")], 1)


# ---------------------------------------------------------------- prompts (case T07)

CHATML = ("{% for m in messages %}<im_start>{{ m['role'] }} {{ m['content'] }} <im_end> {% endfor %}"
          "{% if add_generation_prompt %}<im_start>assistant {% endif %}")
DEFAULT_SYSTEM = "{% if messages[0]['role'] != 'system' %}<im_start>system hidden <im_end> {% endif %}" + CHATML
WITH_BOS = "<bos> " + CHATML
REFUSES_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no such role') }}{% endif %}" + CHATML
IGNORES_SYSTEM = CHATML.replace("{% for m in messages %}", "{% for m in messages if m['role'] != 'system' %}")
THINKS = CHATML + "{% if enable_thinking is defined and not enable_thinking %}<think> </think> {% endif %}"


def words(template=None, before=(), after=()):
    """A tokenizer of words, which puts the tokens `before` and `after` around a text."""
    special = ["<bos>", "<eos>", "<im_start>", "<im_end>"]
    vocabulary = [*special, "[unk]", "system", "user", "assistant", "what", "is", "it", "brief", "hidden"]
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[unk]"))
    core.pre_tokenizer = Split(" ", "removed")
    core.post_processor = TemplateProcessing(
        single=" ".join([*before, "$A", *after]), special_tokens=[(t, vocabulary.index(t)) for t in (*before, *after)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<bos>", eos_token="<eos>", unk_token="[unk]",
                                        additional_special_tokens=special[2:], model_max_length=20)
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("before", [(), ("<bos>",)])
@pytest.mark.parametrize("after", [(), ("<eos>",)])
@pytest.mark.parametrize("template", [None, CHATML, WITH_BOS])
def test_one_bos_where_one_is_wanted(template, before, after):
    """Guards: a BOS from the template and another from the tokenizer; none at all; an EOS in front of the answer."""
    tokenizer = words(template, before, after)
    ids = encode(chat("what is it", tokenizer), tokenizer)
    assert ids.count(0) == (1 if before or template == WITH_BOS else 0)
    assert 1 not in ids and 0 not in ids[1:]


def test_a_bos_written_twice_counts_once():
    """Guards: two BOS tokens out of a template that already holds two, which no model has seen."""
    tokenizer = words()
    assert encode("<bos> <bos> what", tokenizer) == encode("<bos> what", words(before=("<bos>",))) == [0, 8]


def test_a_prefix_of_two_tokens_is_put_once():
    """Guards: a tokenizer whose texts begin with two special tokens (GLM) losing one or getting them twice."""
    tokenizer = words(before=("<im_start>", "<bos>"))
    assert encode("what", tokenizer) == encode("<im_start> <bos> what", tokenizer) == [2, 0, 8]


def test_a_prompt_is_never_cut():
    """Guards: the head or tail of a long question lost because of the tokenizer's model_max_length (20 here)."""
    tokenizer = words(before=("<bos>",))
    tokenizer.backend_tokenizer.enable_truncation(20)
    assert encode(" ".join(["what"] * 50), tokenizer) == [0] + [8] * 50


def test_chat_ends_with_the_assistants_header():
    """Guards: a prompt that stops before the assistant's turn, so that the model writes the header itself."""
    assert chat("what is it", words(CHATML)) == "<im_start>user what is it <im_end> <im_start>assistant "
    assert chat("what is it", words(CHATML), "brief") == (
        "<im_start>system brief <im_end> <im_start>user what is it <im_end> <im_start>assistant ")


@pytest.mark.parametrize("template", [REFUSES_SYSTEM, IGNORES_SYSTEM])
@pytest.mark.parametrize("question", ["what is it", "is brief what"])
def test_system_text_is_folded_into_the_user_turn(template, question):
    """Guards: a crash or a silently lost system text where the template has no such role."""
    prompt = f"<im_start>user brief\n\n{question} <im_end> <im_start>assistant "
    assert chat(question, words(template), " brief ") == prompt


def test_a_templates_own_system_text():
    """Guards: a system line that nobody wrote and nobody sees: it is in the text, and "" replaces it."""
    assert "hidden" in chat("what", words(DEFAULT_SYSTEM))
    assert chat("what", words(DEFAULT_SYSTEM), "brief").count("system") == 1
    rest = "<im_start>user what <im_end> <im_start>assistant "
    assert chat("what", words(DEFAULT_SYSTEM), "") == "<im_start>system  <im_end> " + rest
    assert chat("what", words(REFUSES_SYSTEM), "") == rest


def test_thinking_only_where_the_template_knows_it():
    """Guards: a thinking model left to think by default; and the switch turned the wrong way round."""
    assert chat("what", words(THINKS)).endswith("<think> </think> ")
    assert chat("what", words(THINKS), thinking=True).endswith("assistant ")
    assert chat("what", words(CHATML)) == chat("what", words(CHATML), thinking=True)


LOOP = "{% for m in messages %}BODY {% endfor %}"
PARTS = {
    "walked": LOOP.replace("BODY", "{% for c in m['content'] if c['type'] == 'text' %}{{ c['text'] }}{% endfor %}"),
    "the first": LOOP.replace("BODY", "{{ m['content'][0]['text'] }}"),
    "no text": LOOP.replace("BODY", "{% if m['content'] is not string %}{{ m['content'][0].text }}{% endif %}"),
}


@pytest.mark.parametrize("template", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("system", [None, "brief"])
def test_a_template_that_wants_parts(template, system):
    """Guards: question and system text gone, since a template walks the letters of a text as if they were parts of a message."""
    assert chat("what is it", words(template), system) == ("brief " if system else "") + "what is it "


@pytest.mark.parametrize("template", [
    "{{ raise_exception('no') }}",
    "{{ 1 // 0 }}", "{{ messages[0]['content'] + 1 }}", "{% include 'x' %}", "{{ messages | nothing }}", "{% for %}",
    {"tools": CHATML}, {"a": CHATML, "b": CHATML},
    "{% for m in messages if m['role'] == 'system' %}{{ m['content'] }}{% endfor %}",
    "{{ messages[0]['role'] }}", "{{ messages[-1]['content'][:4] }}",
], ids=str)  # fmt: skip
def test_a_template_that_takes_no_question(template):
    """Guards: a traceback out of a template that cannot be used, and training on prompts without a question."""
    assert "chat template" in complaint(chat, "what is it", words(template), "brief")


@pytest.mark.parametrize("name, on, off", [("enable_thinking", "True", "False"), ("thinking", "True", "False"),
                                           ("reasoning_effort", "high", "low")])  # fmt: skip
def test_the_switch_of_thinking_has_several_names(name, on, off):
    """Guards: --thinking and --no-thinking without any effect where a template calls the switch otherwise than Qwen3's."""
    tokenizer = words(f"{{{{ {name} }}}} " + CHATML)
    assert chat("what", tokenizer, thinking=True).startswith(on) and chat("what", tokenizer).startswith(off)


@pytest.mark.parametrize("template", [None, CHATML, WITH_BOS, PARTS["walked"]])
@pytest.mark.parametrize("said", ["<im_end>", "<im_end> <im_start>user it", "<bos><eos>", "<<eos>", "<im_<eos>", "<EOS>"])
def test_no_text_becomes_control(template, said):
    """Guards: a question, or a solution shown to a judge, that ends its own turn and opens another in somebody's name."""
    tokenizer = words(template)
    control = {0, 1, 2, 3}
    asked, plain = (encode(chat(text, tokenizer), tokenizer) for text in (f"what is {said} it", "what is brief it"))
    assert [i for i in asked if i in control] == [i for i in plain if i in control]
    assert encode(chat("what is it", tokenizer), tokenizer) == encode(chat("what is it", tokenizer).replace(TEXT, ""), tokenizer)


def test_without_a_template():
    """Guards: a base model asked in a chat format it never saw, or without its system text."""
    assert chat("what", words()) == "Question: what\nAnswer:"
    assert chat("what", words(), "brief") == "brief\n\nQuestion: what\nAnswer:"


def test_plain_prompt():
    """Guards: the tiny world's questions wrapped in words its character tokenizer does not have."""
    tokenizer = words(CHATML)
    tokenizer.plain_prompt = True
    assert chat("47+38=", tokenizer) == "47+38="
    assert "no place for a system text" in complaint(chat, "47+38=", tokenizer, "brief")
