"""Programs as answers: hostile ones do no harm, equal behaviour is one answer, tests are read, and drafts lose their code."""

import json
import sys
import time
from pathlib import Path

import pytest
import tiny

import agon
import cohort
from lab import code, data, drafts, tinycode
from lab.code import FAILED, LIMIT, Inputs, Sandbox, SandboxError, behaviours, key, last_program, read_tests, show
from lab.data import Prompt
from lab.extract import extract_answer
from lab.models import read_answers
from rewards import REWARDS, majority

READ = Inputs(("3", "5"), False)
F = Inputs(("f(3)", "f(5)"), True)


@pytest.fixture(scope="module")
def box():
    """One nursery, and limits that make an endless program short."""
    made = Sandbox(1, seconds=0.1)
    yield made
    made.close()


def pid(box) -> int:
    """The process of the one nursery."""
    nursery = box.idle.get()
    box.idle.put(nursery)
    return nursery.pid


# ---------------------------------------------------------------- hostile programs

C = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
MAP = C + "libc.mmap.restype = ctypes.c_void_p\np = libc.mmap(None, 4096, 3, 34, -1, 0)\n"
NO, OVER = (FAILED,), (LIMIT,)
HOSTILE = {  # name: (program, what it may say); HERE is a folder that must stay as it is
    "reads a file": ("print(open('HERE/kept').read())", NO),
    "writes a file": ("open('HERE/new', 'w').write('x')", NO),
    "writes by number": ("import os\nos.open('HERE/new', os.O_CREAT | os.O_WRONLY)", NO),
    "makes a folder": ("import os\nos.mkdir('HERE/new')", NO),
    "removes a file": ("import os\nos.remove('HERE/kept')", NO),
    "renames a file": ("import os\nos.rename('HERE/kept', 'HERE/new')", NO),
    "links a file": ("import os\nos.symlink('HERE/kept', 'HERE/new')", NO),
    "changes rights": ("import os\nos.chmod('HERE/kept', 0)", NO),
    "lists a folder": ("import os\nprint(os.listdir('HERE'))", NO),
    "asks for the descriptors": ("import os\nprint(os.listdir('/proc/self/fd'))", NO),
    "reads memory by file": ("print(open('/proc/self/mem', 'rb').read(1))", NO),
    "reads every descriptor": ("import os\n[os.read(n, 9) for n in range(9)]", NO),
    "environment": ("import os\nprint(*{*os.environ} - {'PYTHONHASHSEED', 'LC_CTYPE'})", ("",)),
    "imports the project": ("import sys\nsys.path.append('ROOT')\nimport rewards", NO),
    "imports a package": ("import numpy", NO),
    "socket": ("import socket\nsocket.create_connection(('127.0.0.1', 80))", NO),
    "socket in C": (C + "print(libc.socket(2, 1, 0))", ("-1",)),
    "shell": ("import os\nprint(os.system('touch HERE/new') == 0)", (*NO, "False")),
    "shell in C": (C + "print(libc.system(b'touch HERE/new') == 0)", (*NO, "False")),
    "subprocess": ("import subprocess\nsubprocess.run(['touch', 'HERE/new'])", NO),
    "spawn": ("import os\nos.posix_spawn('/bin/touch', ['touch', 'HERE/new'], {})", NO),
    "exec": ("import os\nos.execv('/bin/touch', ['touch', 'HERE/new'])", NO),
    "fork": ("import os\nos.fork()", NO),
    "fork bomb": ("import os\nwhile True:\n try: os.fork()\n except OSError: pass", OVER),
    "fork in C": (C + "print(libc.fork())", ("-1",)),
    "thread": ("import _thread\n_thread.start_new_thread(print, ())", NO),
    "threads": ("from concurrent.futures import ThreadPoolExecutor as T\nT(2).submit(print).result()", NO),
    "kills its parent": ("import os\nos.kill(os.getppid(), 9)", NO),
    "kills the group": ("import os\nos.killpg(0, 9)", NO),
    "kills everybody": (C + "print(libc.kill(-1, 9))", ("-1",)),
    "stops itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", NO),
    "signal handler": ("import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)", NO),
    "turns off its timer": ("import signal\nsignal.setitimer(signal.ITIMER_PROF, 0)\nwhile True: pass", OVER),
    "raises its limits": ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))", NO),
    "undoes the filter": (C + "print(libc.prctl(22, 0, 0, 0, 0), libc.syscall(317, 0, 0, 0))", ("-1 -1",)),
    "traces": (C + "print(libc.ptrace(0, 0, 0, 0))", ("-1",)),
    "reads another process": (C + "print(libc.process_vm_readv(1, 0, 0, 0, 0, 0))", ("-1",)),
    "processes by number": (C + "print(*(libc.syscall(n, 0, 0, 0, 0, 0) for n in (56, 58, 435, 322, 434)))", ("-1 -1 -1 -1 -1",)),
    "files by number": (C + "print(*(libc.syscall(n, 3, 0, 0, 0, 0) for n in (319, 323, 321, 16, 72)))", ("-1 -1 -1 -1 -1",)),
    "clocks of other processes": (C + "print(libc.clock_gettime(ctypes.c_int((~1 << 3) | 2), (ctypes.c_long * 2)()))", ("-1",)),
    "memory that the kernel shares": (MAP + "print(libc.madvise(ctypes.c_void_p(p), 4096, 12))", ("-1",)),
    "memory that is taken out of use": (MAP + "print(libc.madvise(ctypes.c_void_p(p), 0, 100))", ("-1",)),
    "memory beside Python's": (MAP + "n = 1\nwhile libc.mmap(None, 1 << 24, 3, 33, -1, 0) != 2 ** 64 - 1: n += 1\n"
                               "print(n < 17)", ("True",)),
    "io_uring": (C + "print(libc.syscall(425, 1, 0))", ("-1",)),
    "call of x32": (C + "print(libc.syscall(0x40000000 + 57))", ("-1",)),
    "machine code, i386": (C + "libc.mmap.restype = ctypes.c_void_p\np = libc.mmap(None, 4096, 7, 34, -1, 0)\n"
                           "ctypes.memmove(p, bytes([0xB8, 2, 0, 0, 0, 0xCD, 0x80, 0xC3]), 8)\n"
                           "print(ctypes.CFUNCTYPE(ctypes.c_int)(p)())", NO),
    "segfault": ("import ctypes\nctypes.string_at(0)", NO),
    "abort": ("import os\nos.abort()", NO),
    "ends in the middle": ("import os\nprint(1)\nos._exit(0)", NO),
    "ends by force in a destructor": ("import os\nclass A:\n def __del__(self): os._exit(0)\na = A()\ndel a", NO),
    "exit in a destructor": ("class A:\n def __del__(self): raise SystemExit\na = A()\ndel a\nprint(2)", ("2",)),
    "closes the pipe": ("import os\nos.close(3)", NO),
    "swaps the pipe": ("import os\nos.dup2(0, 3)", NO),
    "forges a result": ("import os\nos.write(3, (2).to_bytes(4, 'big') + b'=7')\nos._exit(0)", ("7", FAILED)),
    "forges half a result": ("import os\nos.write(3, b'\\0\\0\\xff\\xff=')\nos._exit(0)", NO),
    "forges nonsense": ("import os\nos.write(3, b'[' * 60000)\nos._exit(0)", NO),
    "forges what is too long": ("import os\nx = (70001).to_bytes(4, 'big') + b'=' * 70001\nwhile x: x = x[os.write(3, x):]\n"
                                "os._exit(0)", NO),
    "floods the pipe": ("import os\nwhile True: os.write(3, b'x' * 65536)", OVER),
    "1 GB of output": ("for _ in range(10 ** 4): print('x' * 10 ** 5)", OVER),
    "output without end": ("while True: print('x')", OVER),
    "memory at once": ("x = 'x' * 10 ** 10", OVER),
    "memory in steps": ("x = [0]\nwhile True: x += x", OVER),
    "memory, caught": ("x = [0]\nwhile True:\n try: x += x\n except MemoryError: pass", OVER),
    "endless": ("while True: pass", OVER),
    "endless, caught": ("while True:\n try:\n  while True: pass\n except BaseException: pass", OVER),
    "endless in C": ("list(iter(int, 1))", OVER),
    "endless sleep": ("import time\nwhile True: time.sleep(100)", NO),
    "waits for a lock": ("import _thread\nlock = _thread.allocate_lock()\nlock.acquire()\nlock.acquire()", NO),
    "waits for a signal": ("import signal\nsignal.pause()", (*NO, "")),
    "regular expression": ("import re\nre.match('(a*)*b', 'a' * 40)", OVER),
    "huge power": ("x = 10 ** 10 ** 8", OVER),
    "huge number as text": ("print(7 ** 10 ** 5)", NO),
    "recursion": ("f = lambda: f()\nf()", NO),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10 ** 9)\nf = lambda: f()\nf()", (*NO, *OVER)),
    "recursion in C": ("import sys\nsys.setrecursionlimit(10 ** 9)\nx = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
                       (*NO, *OVER)),
    "deep text": ("(" * 10 ** 5, NO),
    "minus after minus": ("-" * 10 ** 5 + "1", (*NO, *OVER)),
    "settrace": ("import sys\nsys.settrace(lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))\ndef f(): pass\nf()", NO),
    "profiler that exits": ("import sys\nsys.setprofile(lambda *a: sys.exit(3))\nprint(1)", (*NO, "1")),
    "shuts its output": ("import sys\nsys.stdout.close()", NO),
    "replaces its output": ("import sys\nsys.stdout = None\nprint(1)", ("",)),
    "replaces builtins": ("import builtins, json, os\nbuiltins.len = builtins.print = os.write = None", (*NO, "")),
    "no text": ("\0", NO),
    "half a character": ("print('\\ud800')", ("\\ud800",)),
    "a surrogate in the program": ("print('\ud800')", (*NO, "\\ud800", "?")),
    "raises what nobody catches": ("class E(BaseException): pass\nraise E", NO),
    "an exception that cannot be shown": ("class E(Exception):\n def __str__(self): raise E\nraise E", NO),
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_contained(name, box, tmp_path):
    """Nothing is made, removed or learnt; the nursery lives on, and the next program is run as if nothing had been."""
    program, allowed = HOSTILE[name]
    (tmp_path / "kept").write_text("secret")
    before = pid(box)
    program = program.replace("HERE", str(tmp_path)).replace("ROOT", str(Path(code.__file__).parent.parent))
    (said,), after = box.run([(program, Inputs(("3",), False)), ("print(int(input()) + 1)", Inputs(("3",), False))])
    assert said in allowed and after == ["4"] and pid(box) == before
    assert [p.name for p in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept").read_text() == "secret"
    assert not Path(f"/proc/{before}/task/{before}/children").read_text()  # nobody of them is left


SCAN = C + """import gc, sys
word, frame = input()[::-1].encode(), sys._getframe()
while frame.f_back:
    frame = frame.f_back
room, libc.sbrk.restype = frame.f_globals["ROOM"], ctypes.c_void_p
pools = {id(thing) >> 14 for thing in gc.get_objects()}
found = [ctypes.string_at(pool << 14, 1 << 14).count(word) for pool in pools]
print(bytes(room).count(word), ctypes.string_at(libc.sbrk(0) - 500_000, 500_000).count(word), sum(found))"""


@pytest.mark.parametrize("wiped", [True, False])
def test_what_one_program_wrote_is_gone_before_the_next(wiped, monkeypatch):
    """A program that finds a rival's outputs in memory would win votes by copying; the scan does, where nothing is wiped."""
    if not wiped:
        monkeypatch.setattr(code, "NURSERY", code.NURSERY.replace("ROOM[:got], job[:] =", "_ ="))
    box = Sandbox(1)
    said, ((scan,),) = box.run([("print('marker-7')", READ)])[0], box.run([(SCAN, Inputs(("7-rekram",), False))])
    box.close()
    in_room, in_heap, in_pools = map(int, scan.split())
    assert said == ["marker-7"] * 2 and (in_room == 0) == wiped
    assert not wiped or max(in_heap, in_pools) <= 1  # the word that it looks for


def test_a_program_that_dies_fails_on_that_input_alone(box):
    """One crash, or one endless loop, must not take the outputs on all other inputs with it."""
    five = Inputs(tuple("01234"), False)
    ends = "import os\nn = int(input())\nif n == 2: os._exit(0)\nprint(n)"
    loops = "n = int(input())\nwhile n == 2: pass\nprint(n)"
    fails = "n = int(input())\nprint(6 // (n - 2))"
    assert box.run([(ends, five), (loops, five), (fails, five)]) == [
        ["0", "1", FAILED, "3", "4"], ["0", "1", LIMIT, "3", "4"], ["-3", "-6", FAILED, "6", "3"]]  # fmt: skip


def test_forged_frames_cost_their_reader_no_time():
    """A million results without content: each copied what was left, so that one program held the trainer up for five seconds."""
    start = time.process_time()
    assert code.outputs(bytes(1 << 20), 20) == [] and code.outputs(b"\0\0\0\1!" * 200_000, 20) == [FAILED] * 20
    assert code.outputs(b"\0\0\0\2=7\0\0\0\2~7\0\0", 20) == ["7", LIMIT] and time.process_time() - start < 0.5


def test_outputs_may_be_long_on_every_input(box):
    """What fits on one input fits on each."""
    program = "print(input() * 65_000)"
    assert [len(one) for one in box.run([(program, Inputs(("x",) * 20, False))])[0]] == [65_000] * 20


def test_usual_programs_run(box):
    """What contest programs and functions do as a matter of course."""
    rows = {
        "import sys\nprint(sum(map(int, sys.stdin.read().split())))": "12",
        "print(sum(map(int, open(0).read().split())))": "12",
        "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.readline())": "5 7",
        "import sys\ninput = sys.stdin.readline\na, b = map(int, input().split())\nprint(a)\nprint(b)": "5 7",
        "from collections import *\nfrom functools import lru_cache\nimport heapq, math\nprint(Counter('aab')['a'])\nexit()": "2",
        "def main():\n    print('in main')\nif __name__ == '__main__':\n    main()": "in main",
        "import random\nrandom.seed(4)\nprint(random.random() < 1, hash('a') == hash('a'))": "True True",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int'\nprint(P(3))": "P(x=3)",
        "import sys\nsys.setrecursionlimit(10 ** 6)\nf = lambda n: n and 1 + f(n - 1)\nprint(f(20000))": "20000",
    }
    assert box.run([(program, Inputs(("5 7\n",), False)) for program in rows]) == [[said] for said in rows.values()]


def test_runs_repeat(box):
    """Sets of words, and random numbers: a resumed run must vote as the unbroken one did, in another process."""
    program = "import random\nprint(set('abcdefgh'), random.random(), random.sample(range(99), 3))"
    other = Sandbox(1)
    assert box.run([(program, READ)]) == box.run([(program, READ)]) == other.run([(program, READ)])
    other.close()


def test_without_seccomp_nothing_runs_unless_asked(monkeypatch, tmp_path, capsys):
    """A sandbox that cannot start says so before anything is trained, and not by running programs without one."""
    monkeypatch.setattr(code, "NURSERY", code.NURSERY.replace('"x86_64"', '"?"').replace('"aarch64"', '"??"'))
    with pytest.raises(SandboxError, match="--unsafe-code"):
        Sandbox(1)
    loose = Sandbox(1, unsafe=True)
    rows = [("import os\nprint(os.getpid() > 0)", READ), ("while True: pass", Inputs(("",), False))]
    rows += [(C + "print(libc.prctl(3, 0, 0, 0, 0))", READ)] * (sys.platform == "linux")  # whether a crash would leave a core
    assert loose.run(rows) == [["True"] * 2, [LIMIT], ["0"] * 2][: len(rows)]
    loose.close()
    code.sandbox.cache_clear()
    try:
        assert cohort.main(["--data", "tinycode", "--out", str(tmp_path / "runs")]) == 2
        assert "--unsafe-code gives them all your rights" in capsys.readouterr().err and not (tmp_path / "runs").exists()
    finally:
        code.sandbox.cache_clear()


def test_a_filter_that_does_not_hold_is_noticed(monkeypatch):
    """In a container without seccomp the call is refused; in an emulator it may seem to succeed. Either must stop everything."""
    monkeypatch.setattr(code, "NURSERY", code.NURSERY.replace("libc.prctl(22, 2, rules, 0, 0)", "False"))
    with pytest.raises(SandboxError):
        Sandbox(1)


# ---------------------------------------------------------------- behaviour as the answer


def test_programs_that_behave_alike_are_one_answer():
    """Voting by text splits the right ones: two spellings of n + 1 lose to two copies of n - 1."""
    right, same, wrong = "def f(n): return n + 1", "def f(n):\n    # next\n    return 1 + n", "def f(n): return n - 1"
    fails, partly = "def f(n): return n / 0", "def f(n): return n + 1 if n < 4 else n // 0"
    keys = behaviours([(text, F) for text in (right, same, same, wrong, wrong, fails, fails, partly, None)])
    assert keys[0] == keys[1] == key(["4", "6"], True) and keys[3] == key(["2", "4"], True)
    assert keys[5:7] == [None, None] and keys[7] == key(["4", FAILED], True) and keys[8] is None
    assert majority(keys) == keys[0]  # None abstains
    assert REWARDS["corl"].rewards(0, [type("R", (), {"answers": [keys[:4]]})], ["?"], [keys[0]]).tolist() == [[1, 1, 1, 0]]


@pytest.mark.parametrize("hex_only", ["12e34", "qwrtzpsd", "000000000000000000000001"])
def test_a_key_is_no_mathematics(hex_only):
    """As a bare word 12e34 is a number, and letters are a product of variables, so that other hashes could equal it."""
    text = key([hex_only], False)
    assert majority([text]) == text and len(text) == 26


def test_nothing_said_is_no_answer():
    """A function that prints and returns None everywhere would otherwise be the most common behaviour of small models."""
    assert key([FAILED, LIMIT, ""], False) is None and key(["None", FAILED], True) is None
    assert key(["", "0"], False) and key(["None", "0"], True) and key(["None", FAILED], False)


def test_values_that_python_calls_equal_are_shown_alike():
    """assert f() == [1, 2] passes for [1.0, 2]; so the key must not tell them apart, nor the order of a set."""
    alike = [(1, 1.0, True), ([1, 2], [1.0, 2]), ({3, 1}, {1, 3.0}), ({"b": 1, "a": 2}, {"a": 2.0, "b": True}), (0.3, 0.1 + 0.2)]
    assert all(len({show(value) for value in values}) == 1 for values in alike)
    apart = [1, "1", [1], (1,), {1}, {1: 1}, None, 1.5, "", [], (), set(), {}, [[1]], 1e-10, float("inf")]
    assert len({show(value) for value in apart}) == len(apart)
    assert show(10**30) == show(1e30) or show(10**30) != show(1e30)  # as Python has it: 1e30 is another integer
    assert show(object()) == "<object object>"


FENCED = "Think.\n```python\ndef f(n):\n    return n\n```\nDone."


@pytest.mark.parametrize(("text", "program"), [
    (FENCED, "def f(n):\n    return n"),
    ("```\nx = 1\n```", "x = 1"),
    ("```py\na\n```\n```python\nb\n```\n```text\n42\n```", "b"),  # the last that is marked, not the output behind it
    ("```\na\n```\n```bash\nls\n```", "a"),
    ("```python\na\n```\nThen\n```\n3\n```", "a"),
    ("1. So:\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1"),
    ("~~~python\na\n~~~", "a"),
    ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''"),
    ("```PYTHON\na\n```", "a"),
    ("print(1)", "print(1)"),  # nothing is fenced
    ("```python\nprint(1)", None),  # cut off
    ("```python\na\n```\nOr better:\n```python\nb", None),
    ("```python\n```", None),
    ("```bash\nls\n```", None),
    ("", None),
    ("  \n", None),
    ("<think>```python\na\n```</think>```python\nb\n```", "b"),
    ("<think>```python\na\n```", None),
])  # fmt: skip
def test_the_program_of_a_completion(text, program):
    """Output blocks, indented blocks, cut-off blocks: the wrong one fails everywhere, and its author abstains."""
    assert extract_answer(text, "code") == program
    assert program is None or "think" in text or last_program(text) == program


def test_reading_programs_takes_no_time():
    """A completion of nothing but fences, or of one long line."""
    for text in ("```\n" * 50_000, "`" * 100_000, "~~~python" * 20_000, "```a\n~~~b\n" * 20_000, " " * 50_000 + "x",
                 "[ for" * 9000, "[" + " for" * 9000, "lambda" + " " * 50_000, "lambda " * 9000, "| " * 9000, "1) " * 9000,
                 "<a" * 9000, "a" * 20_000, "x = " * 5000, "return a + " * 2000):
        last_program(text)
        drafts.withhold_program(text[:20_000], None)


def test_answers_are_read_in_one_place():
    """`sample_cohort` knows prompts only; a judge's prompt, which has no problem, has no program either."""
    problem = data.to_problem({"text": "Next.", "test_list": ["assert f(3) == 4", "assert f(5) == 6"]})
    texts = [[FENCED, FENCED.replace("return n", "return n + 1"), FENCED.replace("return n", "return n + 1")]]
    asked = [Prompt("Next.", problem)]
    assert read_answers("code", asked, texts, [[True, True, False]]) == [[key(["3", "5"], True), problem.answer, None]]
    assert read_answers("code", ["judge this"], texts, [[True] * 3]) == [[None] * 3]
    for style, other in (("boxed", problem), ("code", data.Problem("2+2?", "4"))):
        with pytest.raises(data.UserError, match="--answer code"):
            read_answers(style, [Prompt("?", other)], [["4"]], [[True]])


# ---------------------------------------------------------------- problems with tests

LISTS = {"input": ["1 2", "3\n4\n"], "output": ["3", " 7\n"]}


def read(record: dict):
    return read_tests(data.parse_json(json.dumps(record)))


def test_both_shapes_are_read():
    """Standard input as in CodeContests and APPS, asserts as in MBPP and HumanEval."""
    stdin = (Inputs(("1 2", "3\n4\n"), False), key(["3", "7"], False))
    for record in ({"tests": LISTS}, {"public_tests": {"input": ["1 2"], "output": ["3"]},
                                      "generated_tests": {"input": ["3\n4\n"], "output": ["7"]}},
                   {"input_output": json.dumps({"inputs": LISTS["input"], "outputs": LISTS["output"]})}):  # fmt: skip
        assert read(record)[:2] == stdin and "standard input" in read(record)[2]
    call = (Inputs(("f(1)", "f(2)"), True), key([show({1, 2}), show([2])], True))
    check = "METADATA = {'author': 'x'}\n\ndef check(candidate):\n    assert candidate(1) == {1, 2}, 'first'\n    assert True\n"
    for record in ({"test_list": ["assert f(1) == set([1, 2])", "assert f(2) == [2]"]},
                   {"tests": ["assert f(1)=={2,1}", "assert f(2)==[2]"]},
                   {"entry_point": "f", "test": check + "    assert candidate(2) == [2]\n"}):  # fmt: skip
        assert read(record)[:2] == call and "function f, which is called like this: f(1)" in read(record)[2]
    assert read({"test_list": ["assert sorted(f(2)) == [-2]", "assert f(1) is None"]})[0].texts == ("sorted(f(2))", "f(1)")
    assert read({"tests": {"input": ["1"]}})[:2] == (Inputs(("1",), False), None)  # Co-RL needs no outputs
    assert read({"question": "2+2?", "answer": "4"}) is None
    many = {"input": list(map(str, range(99))), "output": list(map(str, range(99)))}
    assert len(read({"tests": many})[0].texts) == code.TESTS


@pytest.mark.parametrize(("record", "reason"), [
    ({"test_list": ["assert f(1) =="]}, "a test is no line assert"),
    ({"test_list": ["print(f(1))"]}, "print(f(1))"),
    ({"test_list": ["assert f(1) < 2"]}, "assert f(1) < 2"),
    ({"test_list": ["assert f(1) == g(1)"]}, "== VALUE, a literal"),
    ({"test_list": ["assert f(1) == open('/etc/passwd').read()"]}, "== VALUE, a literal"),
    ({"test_list": ["assert 1 == 1"]}, "assert 1 == 1"),
    ({"test_list": ["assert f(" + 999 * "-" + "1) == 1"]}, "a test is no line assert"),
    ({"test_list": ["assert f(1) == " + 10**5 * "-" + "1"]}, "a test is no line assert"),
    ({"test_list": [1, 2]}, "a test is no line assert"),
    ({"entry_point": "g", "test_list": ["assert f(1) == 2"]}, "assert g(...) == VALUE"),
    ({"test": "for i in range(3):\n    assert f(i) == i"}, "a test is no line assert"),
    ({"tests": {"input": ["1"], "output": [2]}}, 'field "tests" must hold input and output, two lists of texts'),
    ({"tests": {"input": ["1", "2"], "output": ["2"]}}, "equally long"),
    ({"tests": {"input": "1", "output": "2"}}, "two lists of texts"),
    ({"tests": 5}, "two lists of texts"),
    ({"input_output": "{not json"}, "not JSON"),
])  # fmt: skip
def test_bad_tests_cost_one_line(record, reason, tmp_path):
    """File, line and reason; not a traceback, and not a problem that nobody can solve."""
    path = tmp_path / "bad.jsonl"
    fine = {"text": "Fine.", "test_list": ["assert f(1) == 1"]}
    path.write_text(f"{json.dumps(fine)}\n{json.dumps({'text': 'Bad.'} | record)}\n")
    with pytest.raises(data.UserError) as error:
        data.load_problems(path)
    assert str(error.value).startswith(f"{path}, line 2: ") and reason in str(error.value) and "\n" not in str(error.value)


def test_our_function_problems_are_right():
    """benchmarks/functions.jsonl: its own programs pass its tests, and a program that does nothing has no answer."""
    path = Path(code.__file__).parent.parent / "benchmarks" / "functions.jsonl"
    problems = data.load_problems(path)
    programs = [json.loads(line)["code"] for line in path.read_text().splitlines()]
    assert behaviours([(text, p.tests) for text, p in zip(programs, problems, strict=True)]) == [p.answer for p in problems]
    assert behaviours([("pass", p.tests) for p in problems]) == [None] * len(problems)
    assert len(problems) == len({p.question for p in problems}) == 60 and all(4 <= len(p.tests.texts) <= 8 for p in problems)


# ---------------------------------------------------------------- a draft without its program

CODE = "def f(a, b):\n    total = a + 2 * b\n    return total % 7"
DRAFTS = [  # every one holds CODE, or part of it, and says "the remainder"
    f"We need the remainder.\n\n```python\n{CODE}\n```\n\nThat takes the remainder by 7.",
    f"First try:\n```python\nprint('no')\n```\nWrong: it lacks the remainder. Now:\n```python\n{CODE}\n```",
    f"The remainder.\n```\n{CODE}\n```",
    f"The remainder.\n```python\n{CODE}",  # cut off
    f"Here is the remainder:\n\n{CODE}\n\nIt is right.",  # not fenced
    f"```python\n{CODE}\n```\nThe line `total = a + 2*b` adds, and `return total % 7` takes the remainder.",
    f"```python\n{CODE}\n```\nSo total=a+2*b comes first, then total%7, the remainder.",
    f"The remainder:\n\n    {CODE.replace(chr(10), chr(10) + '    ')}\n",  # Markdown's indented block
    f"~~~~py\n{CODE}\n~~~~\nAll of the remainder.",
    "The remainder:\n\ndef f(a,\n      b):\n    total = (a +\n        2 * b)\n    return total % 7\n\nEnd.",
    f"> the remainder\n> {CODE.replace(chr(10), chr(10) + '> ')}",
    "So we take the remainder: def f(a, b): return (a + 2*b) % 7, and are done.",
    "1. the remainder\n2. total = a + 2 * b\n3. return total % 7",
    "- the remainder\n* total = a + 2 * b\n+ return total % 7",
    "**the remainder**\n\n| line | code |\n|---|---|\n| 1 | total = a + 2 * b |\n| 2 | return total % 7 |",
    f"The remainder:\n<pre>{CODE}</pre>",
    "The remainder is \\boxed{lambda a, b: (a + 2 * b) % 7}",
    "In [1]: def f(a, b): return (a + 2 * b) % 7\nThe remainder.",
    "The remainder:\n>>> def f(a, b):\n...     total = a + 2 * b\n...     return total % 7\n>>> f(3, 1)",
    "The remainder:\n1 def f(a, b):\n2     total = a + 2 * b\n3     return total % 7",
    "The remainder: set total = a + 2 * b and return total % 7 at last.\n- total = a + 2 * b: the sum",
    "**Loop**: `for total in range(a+2*b)` takes the remainder.",
    "The remainder is <code>return total % 7</code> or \\boxed{return (a + 2 * b) % 7}.",
    "The remainder: we set total = a + 2 * b; then return total % 7.",
    "The remainder is sum(total % 7 for total in a + 2 * b) for sure.",
    "The remainder is what print((a + 2 * b) % 7) says.",
    f"<b>the remainder</b>\n```python\n{CODE}\n```\n```text\n3\n```",
]


@pytest.mark.parametrize("draft", DRAFTS)
def test_no_code_leaks_from_a_draft(draft):
    """The program is the answer: a reader who is shown a line of it copies, and is paid for copying."""
    shown = drafts.withhold_program(draft, None, drafts.MARK)
    squeezed = "".join(shown.split())
    assert drafts.MARK in shown and "remainder" in shown
    assert not any(part in squeezed for part in ("deff(", "total=a", "a+2*b", "return", "total%7", "print("))
    assert drafts.withhold_program(shown, None, drafts.MARK) == shown


@pytest.mark.parametrize("prose", [
    "Sort the list first, then take every second element: the answer follows.",
    "For each item in the list, add it if it is even.\nExample: 3 is odd.\n- keep a count\n* return nothing for an empty list",
    "If n is even, halve it. Else: triple it and add 1.\n1. read n\n2. print the sum",
    "The value x + 1 is larger than `x`; so is O(n log n).",
    "1. Print the sum.\n2. If the list [1, 2] is empty for some n, return 0 in the end.\n- **Note**: 3 > 2 is defined (always).",
    "First return the left-most item (one for each in the list), then n = 5 is left. If n is even, return n in the end.",
    "Time: O(n)\nSpace: O(1)\nExample: f(3) = 7\n- f(3) == 7\n## Solution (short)\n| n | f(n) |\n5 (odd)",
    "1. We start the sum at zero.\n   - Nothing is counted yet.\n\n   The rest is easy; see `len(s)` and `f(3)`.",
    "First sort the list.\n\nThen take every second element.\n",
    "| n | sum |\n|---|---|\n| 3 | 6 |\nThe printed sum, the lambda of the chain, <b>is right</b>.",
])
def test_prose_stays(prose):
    """What the draft explains is what the challenger is to read."""
    assert drafts.withhold_program(prose, None) == prose
    assert drafts.withhold_program(f"{prose}\n```python\n{CODE}\n```", None).startswith(prose)


# ---------------------------------------------------------------- from end to end


@pytest.fixture
def tiny_cohort(monkeypatch, tmp_path_factory):
    """Agents of the tiny world of code that have hardly learnt anything yet, kept for the session."""
    import functools

    monkeypatch.setattr(tinycode, "WarmStart", functools.partial(tinycode.WarmStart, base_steps=30, agent_steps=5))
    monkeypatch.setenv("COHORT_CACHE", str(tmp_path_factory.getbasetemp() / "code-cache"))


SHORT = ["--prompts", "6", "--k", "3", "--eval-problems", "12", "--eval-k", "2", "--eval-every", "0"]


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_tiny_world_of_code(tiny_cohort, tmp_path, capsys):
    """Trained, compared, resumed bit by bit, and forecast by the theory as the other tiny world is."""
    out = ["--out", str(tmp_path), *SHORT]
    assert cohort.main(["--data", "tinycode", "--steps", "2", "--name", "whole", *out]) == 0
    assert cohort.main(["--data", "tinycode", "--steps", "1", "--name", "parts", *out]) == 0
    assert cohort.main(["--resume", str(tmp_path / "parts"), "--steps", "2"]) == 0
    kept = [lines(tmp_path / name)[-1] | {"seconds": 0} for name in ("whole", "parts")]
    assert kept[0] == kept[1] and set(kept[0]["probes"]["A"]) == {topic.name for topic in tinycode.TOPICS}
    assert "forecast" in (tmp_path / "whole" / "table.txt").read_text()
    assert cohort.main(["--data", "tinycode", "--steps", "1", "--compare", "corl", "gt", "--name", "both", *out]) == 0
    assert (tmp_path / "both" / "compare.png").exists()
    assert cohort.main(["--data", "tinycode", "--topics", "carry", *out]) == 2
    assert cohort.main(["--data", "tinycode", "--cohort", "errors", *out]) == 2
    assert "choose from bound, sum, slice, boxes, mean, power" in capsys.readouterr().err


@pytest.mark.parametrize("topic", tinycode.TOPICS, ids=lambda topic: topic.name)
def test_a_misconception_is_one_everywhere(topic):
    """On every problem the two right spellings are one answer, and the wrong program gives another, or none."""
    assert len(topic.operands) > 150
    for x in topic.operands[::17]:
        problem = topic.problem(x)
        same, wrong = behaviours([(tinycode.BEGIN + method(*x), problem.tests) for method in (topic.same, topic.wrong)])
        assert problem.answer == same != wrong and (wrong is None) == (topic.name == "power")


@pytest.fixture(scope="module")
def coder(tmp_path_factory) -> Path:
    """A random chat model whose words are programs that add something to a number."""
    from tokenizers import Tokenizer, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = json.loads(tiny.tokenizer().backend_tokenizer.to_str())
    made["model"]["vocab"] = {f"print(int(input())+{i % 4}){' ' * i}\n" if word[0] == "w" else word: i
                              for word, i in made["model"]["vocab"].items()}  # fmt: skip
    core = Tokenizer.from_str(json.dumps(made))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder, model = tmp_path_factory.mktemp("coder"), tiny.model("qwen3")
    model.config.max_position_embeddings = 1024
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>", pad_token="<eos>",
                            chat_template="{{ messages[-1]['content'] }}").save_pretrained(folder)  # fmt: skip
    tests = [{"input": ["1", "5"], "output": [str(1 + i % 4), str(5 + i % 4)]} for i in range(20)]
    rows = [json.dumps({"description": f"Add {i}.", "tests": one}) for i, one in enumerate(tests)]
    (folder / "problems.jsonl").write_text("\n".join(rows))
    return folder


@pytest.mark.slow
def test_a_file_of_problems_with_tests(coder, tmp_path, capsys):
    """Trained, measured again and resumed: programs as answers need nothing but --answer code."""
    path, stop = str(coder / "problems.jsonl"), ["--stop", "\n", "--max-new-tokens", "2", "--out", str(tmp_path)]
    real = ["--models", str(coder), str(coder), "--data", path, "--answer", "code", *stop, *SHORT]
    assert cohort.main([*real, "--steps", "2", "--name", "run"]) == 0
    assert cohort.main(["--resume", str(tmp_path / "run"), "--steps", "3"]) == 0
    run = lines(tmp_path / "run")
    assert [line["step"] for line in run] == [0, 1, 2, 3] and 0 < run[0]["eval"]["A"]["pass1"] < 0.8  # one in four
    assert any(part["signal"] for line in run[1:] for part in line["agents"].values())
    from lab import measure

    capsys.readouterr()
    assert measure.main([str(tmp_path / "run")]) == 0
    assert f"{run[-1]['eval']['A']['pass1']:.3f}" in capsys.readouterr().out
    few = ["--steps", "2", "--n", "3", "--prompts", "2", "--eval-problems", "3", "--eval-k", "2", "--name", "agon"]
    assert agon.main(["--model", str(coder), "--data", path, "--answer", "code", *stop, "--methods", "agon", *few]) == 0
    samples = [json.loads(line) for line in (tmp_path / "agon" / "agon-seed0" / "samples.jsonl").read_text().splitlines()]
    reads = [sample["reads"] for sample in samples if "reads" in sample]
    assert reads and not any("print(" in text for text in reads) and any(drafts.MARK in text for text in reads)
    assert cohort.main([*real[:5], *stop, "--steps", "1"]) == 2
    assert "--answer code" in capsys.readouterr().err
