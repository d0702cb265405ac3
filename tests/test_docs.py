"""README and docs: links that lead somewhere, commands that run, pictures whose text can be read.

Every line of a ```sh block, and every `python ...` in running text, is run here for one step with small settings, in the order
of the pages: real models become random ones, downloads a small file. HOW is the table to amend when a program is new, or when
its options change.
"""

import ast
import functools
import importlib
import itertools
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from matplotlib.backends.backend_agg import FigureCanvasAgg
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lab import rivals, tinycode, tinyeyes, tinyworld

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOK = ROOT / "docs" / "cohort.ipynb"
LAB = sorted(path.stem for path in (ROOT / "lab").glob("*.py") if "if __name__ ==" in path.read_text(encoding="utf-8"))

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # runpy, of what tests imported

# What is put behind a command's own arguments (the later one counts), or what makes the arguments; None: not run here.
TRAINS = ["--steps", "1", "--prompts", "2", "--eval-problems", "6", "--eval-k", "1", "--eval-every", "0", "--max-new-tokens", "8"]
HOW = {
    "cohort.py": [*TRAINS, "--k", "2"],
    "agon.py": [*TRAINS, "--n", "2"],
    "dynamics.py": lambda given: given or ["--start", ".6", ".45"],  # all figures take 8 s, and have tests of their own
    "benchmarks/diversity.py": ["--kinds", "errors", "--steps", "1", "--out", "kinds", "--figure", "kinds.png"],
    "lab.diversity": ["--limit", "6", "--k", "2", "--max-new-tokens", "8"],
    "lab.evaluate": ["--k", "2", "--max-new-tokens", "8"],
    "lab.suite": lambda given: ["model", "--only", "problems.jsonl", "--k", "2", "--max-new-tokens", "8"],  # no downloads
    "lab.rephrase": ["--limit", "2", "--votes", "2", "--max-new-tokens", "4"],
    "lab.report": [],
    "lab.tinycode": [],
    "benchmarks/code.py": ["--programs", "9", "--repeats", "1", "--problems", "2", "--k", "2", "--max-new-tokens", "4"],
    "lab.tinyworld": None,  # a full warm start; --help is run below
    "lab.tinyeyes": None,  # so too
    "benchmarks/eyes.py": None,  # of a run on pictures: drawn in test_vision.py
    "benchmarks/ranks.py": None,  # times, and simulations that test_ranks.py does in small
    "lab.ranks": None,  # waits for another process; see test_ranks.py
    # One process in the place of two: it is the starting that is tried.
    "torch.distributed.run": lambda given: ["--nproc-per-node", "1", *given[2:], "--models", "model", "model",
                                            "--data", "problems.jsonl", *TRAINS, "--k", "2"],
    "docs/schematics.py": None,  # writes into the repository; drawn below
    "pytest": None,  # these are the tests
    "pip": None,
    "git": None,
}
MADE = ["gsm8k", "math500@level=3-5", "FILE", "rephrased.jsonl", "pictures.jsonl", "split.jsonl"]  # of --data
FILES = dict.fromkeys(MADE, "problems.jsonl")
FILES["benchmarks/functions.jsonl"] = str(ROOT / "benchmarks" / "functions.jsonl")
SHELL = r"""emit() { printf '%s\0' "$@" END; }
python() { emit python "$@"; }; pip() { emit pip "$@"; }; git() { emit git "$@"; }; cd() { :; }
"""


def commands(page: Path) -> list[tuple[str, ...]]:
    """Every command of a page as its words, which bash itself takes apart: variables, quotes and comments included."""
    text, found = page.read_text(encoding="utf-8"), []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) + re.findall(r"`(python [^`]+)`", text):
        said = subprocess.run(["bash", "-euc", SHELL + block], capture_output=True, text=True, check=True).stdout
        words = itertools.groupby(said.split("\0")[:-1], lambda word: word == "END")
        found += [tuple(group) for ends, group in words if not ends]
    return found


# Those of plotting.md run in test_dynamics.py, with a run to lay over.
COMMANDS = list(dict.fromkeys(command for page in PAGES if page.name != "plotting.md" for command in commands(page)))


def program(command: tuple[str, ...]) -> tuple[str, list[str]]:
    """Its key in HOW, and the arguments."""
    if command[0] != "python":
        return command[0], list(command[1:])
    return (command[2], list(command[3:])) if command[1] == "-m" else (command[1], list(command[2:]))


# ---------------------------------------------------------------- what is written


def test_readme_fits_its_budget():
    """A README that grows back into a laboratory diary is no longer a door."""
    lines = PAGES[0].read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150 and [line for line in lines if len(line) > 110] == []


def anchors(page: Path) -> set[str]:
    """The #anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_stand_in_sh_blocks(page):
    """A command in a block without a language is not found by the tests below."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        assert language == "sh" or not re.search(r"^python ", block, re.M), block


@pytest.mark.parametrize("page", [*PAGES, NOTEBOOK], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """A file that moved, a heading that was renamed, a figure that was never committed."""
    for target in re.findall(r"\]\(([^)\s\"]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if target.startswith("https://"):
            continue
        there = page.parent / path if path else page
        assert there.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(there), f"{page.name}: {target}"


def test_the_notebook_is_small_and_whole():
    """It is executed in CI; here: its cells compile, what they import is there, and its outputs are those of one clean run."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(output["output_type"] != "error" for cell in code for output in cell["outputs"])
    assert NOTEBOOK.stat().st_size < 400_000
    for cell in code:
        tree = ast.parse("".join(line for line in cell["source"] if not line.startswith("%")))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "lab":
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


# ---------------------------------------------------------------- what is to be typed


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A working folder as a reader would have it: a file of problems in two forms, a random chat model, one finished run."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(ROOT / "docs" / "data", home / "docs" / "data")
    problems = [{"question": f"w{i} w4", "answer": str(i), "rephrased": f"w4 w{i}"} for i in range(5, 17)]
    (home / "problems.jsonl").write_text("\n".join(map(json.dumps, problems)))
    model, words = tiny.model("qwen3"), tiny.tokenizer().backend_tokenizer.to_str().replace('"w63"', '"\\n"')  # for --stop
    model.config.max_position_embeddings = 1024  # room for what a judge reads
    model.save_pretrained(home / "model")
    core = Tokenizer.from_str(words)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Split(" ", "removed")])
    PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>", pad_token="<eos>",
        chat_template="{{ messages[-1]['content'] }}",
    ).save_pretrained(home / "model")  # fmt: skip
    return home


@pytest.fixture(scope="module")
def at_home(home, tmp_path_factory):
    """In that folder, with agents that have hardly learnt anything yet, kept for all tests of the session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("PYTHONPATH", str(ROOT))  # of processes that a command starts
        patch.setenv("COHORT_CACHE", str(tmp_path_factory.getbasetemp() / "cohort-cache"))
        patch.setattr(tinyworld, "WarmStart", functools.partial(tinyworld.WarmStart, base_steps=60, agent_steps=5))
        patch.setattr(tinycode, "WarmStart", functools.partial(tinycode.WarmStart, base_steps=30, agent_steps=3))
        patch.setattr(tinyeyes, "WarmStart", functools.partial(tinyeyes.WarmStart, base_steps=30, agent_steps=3))
        patch.setattr(rivals, "Rivals", functools.partial(rivals.Rivals, base_steps=5, adapter_steps=5))
        patch.setattr(rivals, "TOPICS", rivals.TOPICS[4:])
        rivals.make_texts.cache_clear()
        yield
        rivals.make_texts.cache_clear()


def run(name: str, arguments: list[str], monkeypatch) -> int:
    """What `python NAME ARGUMENTS` does, in this process; the exit code."""
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    try:
        if name.endswith(".py"):
            runpy.run_path(str(ROOT / name), run_name="__main__")
        else:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code or 0
    return 0


def smaller(name: str, arguments: list[str]) -> list[str]:
    """The arguments with random models, the file of problems, one seed, and HOW's settings."""
    given, option = [], ""
    for word in arguments:
        if word.startswith("--"):
            option = word
        elif option == "--data" or name == "lab.rephrase" and not option:
            word = FILES.get(word, word)
        elif option == "--eval-data" and given[-1] == option:
            word = "sums"  # which is no download
        elif option == "--stop" and given[-1] == option:
            word = "\n"  # which the random model's tokenizer knows
        elif word == "MODEL" or option in ("--models", "--model") or name == "lab.diversity" and not option and word != "tiny":
            word = "model"
        elif option in ("--seeds", "--eval-data") and given[-1] != option:
            continue
        elif option == "--compare" and len(given) - given.index(option) > 3:
            continue  # one seed and three methods stand for all
        given.append(word)
    if "--resume" in given:  # whose other options are the run's own
        return [*given, "--steps", "2"]
    if "--preset" in given:  # which names a download
        given += ["--data", "problems.jsonl"]
    return HOW[name](given) if callable(HOW[name]) else [*given, *HOW[name]]


@pytest.mark.parametrize("name", LAB)
def test_help(name, monkeypatch, capsys):
    """A command behind the door that cannot even say what it does. It stands before `at_home`, which makes warm starts short."""
    assert run(f"lab.{name}", ["--help"], monkeypatch) == 0
    assert len(capsys.readouterr().out) > 200


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=shlex.join)
def test_command_runs(command, at_home, monkeypatch, capsys):
    """A README whose command ends in a traceback, as one did for weeks. A new program needs a row in HOW."""
    name, arguments = program(command)
    assert name in HOW, f"say in HOW how {shlex.join(command)} is run for one step"
    if HOW[name] is None:
        return
    if "--engine" in arguments:
        pytest.skip("needs vllm, and a model that it takes: test_engine.py")
    if "runs/corl-001" in command and not Path("runs/corl-001").exists():
        assert run("cohort.py", HOW["cohort.py"], monkeypatch) == 0
    assert run(name, smaller(name, arguments), monkeypatch) == 0, capsys.readouterr().err


# ---------------------------------------------------------------- what is drawn


@pytest.mark.parametrize("name", ["corl", "agon_step"])
def test_schematic_can_be_read(name):
    """Text too small to read at the width of a README, or one text over another."""
    figure = runpy.run_path(str(ROOT / "docs" / "schematics.py"))[name]()
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = figure.axes[0].texts
    assert min(text.get_fontsize() for text in texts) / 72 * 830 / figure.get_figwidth() >= 11
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    assert [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2) if one.overlaps(other)] == []
    assert [a for a, box in boxes if box.x0 < 0 or box.x1 > figure.bbox.width] == []
