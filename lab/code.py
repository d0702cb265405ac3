r"""Answers that are programs: two programs are one answer if they behave alike, and hostile ones are run safely.

A program is the last fenced Python block of a completion, or all of it where nothing is fenced; cut off, it is none. Its key is a
hash of its behaviour, of what it says on the problem's inputs: printed words, the value of a call, or that it failed. So votes,
rewards and ground truth need no change, and Co-RL needs no outputs. A program that says nothing on any input has no answer.

The sandbox. A *nursery*, a bare Python with an empty environment, forks a child for each program and all its inputs. The child
gives up every file but one pipe, then tells the kernel (seccomp) the nine system calls it will ever make: memory, the clock,
its timer, writing, ending. All else is refused, by whatever way a program reaches it, ctypes and machine code included: files,
network, processes, threads, signals. It takes no root, no container and no package, but Linux. Expected outputs are in neither
process, and what a program wrote is wiped before the next one is born. What remains is a fault of the kernel in these calls.
"""

import ast
import builtins
import functools
import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import NamedTuple

SECONDS, MEGABYTES, OUTPUT = 1.0, 256, 1 << 16  # processor time for an input, address space, bytes of an output
TESTS = 20  # of a problem are used, the first ones: more take time, and seldom tell programs apart
FAILED, LIMIT = "\0failed", "\0limit"  # what a program says on an input where it fails, or exceeds a limit


class SandboxError(Exception):
    """Programs cannot be run here. Its text is one line that says what to do."""


class Inputs(NamedTuple):
    """What the programs of a problem are run on. What they should say is not among it."""

    texts: tuple[str, ...]  # of standard input, or calls such as f([1, 2])
    call: bool  # which of the two


# ---------------------------------------------------------------- the sandbox


def show(value):
    """A value as text: one text for what Python calls equal, and for floats of which nine digits agree."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.9g}"
    if isinstance(value, (int, float)):
        return str(int(value))
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{show(k)}: {show(v)}" for k, v in value.items())) + "}"
    if isinstance(value, (set, frozenset)):
        return f"set({', '.join(sorted(map(show, value)))})"
    if isinstance(value, (list, tuple)):
        return f"{'tuple' * isinstance(value, tuple)}[{', '.join(map(show, value))}]"
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


NURSERY = "import sys\nsys.path[:] = filter(None, sys.path)\nimport re\n" + inspect.getsource(show) + r'''
import abc, array, bisect, builtins, calendar, cmath, collections.abc, contextlib, copy, ctypes, dataclasses, datetime, decimal
import enum, fractions, functools, gc, hashlib, heapq, io, itertools, json, math, numbers, operator, os, platform, pprint, queue
import random, resource, select, signal, statistics, string, struct, textwrap, time, traceback, types, typing, unicodedata
SECONDS, MEGABYTES, OUTPUT, UNSAFE = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
ROOM, libc = bytearray(32 * OUTPUT), ctypes.PyDLL(None)  # its fork has none of the hooks of os.fork, which take as long again
sys.platform == "linux" and libc.prctl(4, 0, 0, 0, 0)  # no core: the kernel, or a handler of its own, would write it for a child
if not UNSAFE:
    resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20,) * 2)  # macOS has none
    arch, clock, *calls = {  # clock_gettime, write mmap munmap mremap brk mprotect setitimer exit_group
        "x86_64": (0xC000003E, 228, 1, 9, 11, 25, 12, 10, 38, 231),
        "aarch64": (0xC00000B7, 113, 64, 222, 215, 216, 214, 226, 103, 94),
    }[platform.machine()]
    step = struct.Struct("HBBI").pack  # an instruction of the kernel's filter: what, how far on if yes, if no, number
    steps = [step(0x20, 0, 0, 4), step(0x15, 1, 0, arch), step(0x06, 0, 0, 0x80000000)]  # another architecture's call: killed
    steps += [step(0x20, 0, 0, 0), step(0x15, 0, 2, clock)]
    steps += [step(0x20, 0, 0, 16), step(0x35, len(calls), len(calls) + 1, 16)]  # clocks from 16 on are those of other processes
    steps += [step(0x15, len(calls) - i, 0, number) for i, number in enumerate(calls)]
    steps += [step(0x06, 0, 0, 0x00050001), step(0x06, 0, 0, 0x7FFF0000)]  # refused, EPERM; allowed
    filters = ctypes.create_string_buffer(b"".join(steps))
    rules = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(filters)))
random.seed(0)  # and so all programs draw alike
files, builtins.exit, builtins.quit = open, sys.exit, sys.exit
builtins.open = lambda file, *rest, **more: sys.stdin if file == 0 else files(file, *rest, **more)

def said(code, call, text):
    """What the program says on one input: = and its output, ! where it fails, ~ beyond a limit."""
    own, out = types.ModuleType("solution" if call else "__main__"), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"" if call else text.encode("utf-8", "replace")), "utf-8")
    sys.stdout = printed = io.TextIOWrapper(out, "utf-8", "backslashreplace", write_through=True)
    sys.stderr, sys.modules[own.__name__] = io.StringIO(), own
    try:
        try:
            exec(code, vars(own))
        except SystemExit as end:
            if call or end.code:
                return b"!"
        found = show(eval(text, vars(own))).encode("utf-8", "replace") if call else b" ".join(out.getvalue().split())
    except MemoryError:
        return b"~"
    except BaseException:
        return b"!"
    return b"=" + found if len(found) <= OUTPUT else b"~"

def live(job, pipe):
    """The child's life: it gives up what could do harm, then runs the program on each input and writes what that says."""
    os.dup2(pipe, 3)
    os.closerange(0, 3)
    os.closerange(4, 65536)
    resource.setrlimit(resource.RLIMIT_CPU, (int(3 * SECONDS) + 1,) * 2)
    if not UNSAFE and (libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, rules, 0, 0)):  # no new rights; seccomp
        os._exit(9)
    program, call, texts = json.loads(bytes(job))
    code = compile(program, "program", "exec")
    for text in texts:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        part = said(code, call, text)
        send(3, len(part).to_bytes(4, "big") + part)

def send(file, part):
    with memoryview(part) as rest:
        while rest:
            rest = rest[os.write(file, rest):]

def take(n):
    got, have = bytearray(n), 0
    while have < n:
        with memoryview(got) as view:
            have += os.readv(0, [view[have:]]) or os._exit(0)  # whoever asked is gone
    return got

gc.freeze()
while True:
    job, (read, write) = take(int.from_bytes(take(8), "big")), os.pipe()
    pid = libc.fork()
    if not pid:
        try:
            live(job, write)
        finally:
            os._exit(0)
    os.close(write)
    got, new, last = 0, 1, time.monotonic() + 12 * SECONDS + 1
    while new and got < len(ROOM) and select.select([read], [], [], max(0, last - time.monotonic()))[0]:
        with memoryview(ROOM) as view:
            new = os.readv(read, [view[got:]])
        got += new
    os.kill(pid, signal.SIGKILL)  # unless it has come to its end
    os.close(read)
    ended = os.waitpid(pid, 0)[1] & 127
    send(1, (got + 1).to_bytes(8, "big") + (b"~" if ended in (signal.SIGKILL, signal.SIGPROF, signal.SIGXCPU) else b"!"))
    send(1, memoryview(ROOM)[:got])
    ROOM[:got], job[:] = bytes(got), bytes(len(job))  # the next child is born without a trace of this one
'''


class Sandbox:
    """So many nurseries, each with one program at a time. SandboxError where programs cannot be run, or not safely."""

    def __init__(self, workers: int = min(4, os.cpu_count() or 1), seconds=SECONDS, megabytes=MEGABYTES, unsafe=False):
        self.limits = [str(limit) for limit in (seconds, megabytes, OUTPUT, unsafe)]
        self.threads, self.idle, self.most = ThreadPoolExecutor(workers), SimpleQueue(), 3 * seconds
        for _ in range(workers):
            self.idle.put(self.start())
        trials = self.run([("print(input())", Inputs(("?",), False)), ("import os\nos.pipe()", Inputs(("",), False))])
        if trials != [["?"], [FAILED]] and not (unsafe and trials[0] == ["?"]):
            self.close()
            raise SandboxError("programs run safely on Linux (x86-64, arm64) only; --unsafe-code gives them all your rights")

    def start(self) -> subprocess.Popen:
        """A new nursery. Its hash seed is fixed, so that a set has the same order in every run."""
        own = {"env": {"PYTHONHASHSEED": "0"}, "cwd": "/", "start_new_session": True, "stderr": subprocess.DEVNULL}
        command = [sys.executable, "-s", "-S", "-c", NURSERY, *self.limits]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **own)

    def one(self, job: tuple[str, Inputs]) -> list[str]:
        """The outputs of one program. A child that dies has failed on the input in hand; another one goes on behind it."""
        (program, (inputs, call)), nursery, found, until = job, self.idle.get(), [], time.monotonic() + self.most
        try:
            while len(found) < len(inputs) and (time.monotonic() < until or not found):
                asked = json.dumps([program, call, inputs[len(found) :]]).encode()
                nursery.stdin.write(len(asked).to_bytes(8, "big") + asked)
                nursery.stdin.flush()
                reply = nursery.stdout.read(int.from_bytes(nursery.stdout.read(8), "big"))
                found += outputs(reply[1:], len(inputs) - len(found))
                found += [LIMIT if reply[:1] == b"~" else FAILED] * (len(found) < len(inputs))
        except OSError:  # the nursery is gone, which no program can bring about
            nursery.kill()
            nursery, found = self.start(), [*found, FAILED]
        self.idle.put(nursery)
        return found + [LIMIT] * (len(inputs) - len(found))

    def run(self, jobs: list[tuple[str, Inputs]]) -> list[list[str]]:
        """What each program says on each of its inputs, FAILED and LIMIT included."""
        return list(self.threads.map(self.one, jobs))

    def close(self) -> None:
        """End all nurseries."""
        self.threads.shutdown()
        while not self.idle.empty():
            with self.idle.get() as nursery:
                nursery.kill()


def outputs(raw: bytes, most: int) -> list[str]:
    """The first frames that a child wrote, as far as they are whole. A forged one is one more thing that the program says."""
    found = []
    while len(found) < most and 0 < (size := int.from_bytes(raw[:4], "big")) <= min(OUTPUT + 1, len(raw) - 4):
        part, raw = raw[4 : 4 + size], raw[4 + size :]
        found.append({b"=": part[1:].decode("utf-8", "replace"), b"~": LIMIT}.get(part[:1], FAILED))
    return found


# ---------------------------------------------------------------- answers

unsafe = False  # --unsafe-code


@functools.cache
def sandbox() -> Sandbox:
    """The one of this process."""
    return Sandbox(unsafe=unsafe)


def key(said: list[str], call: bool) -> str | None:
    """The answer of a program that says this on its inputs, None if it says nothing anywhere. In quotes it is no mathematics."""
    if all(one in (FAILED, LIMIT, "None" if call else "") for one in said):
        return None
    return '"' + hashlib.sha256(json.dumps(list(said)).encode()).hexdigest()[:24] + '"'


@functools.lru_cache(100_000)  # a policy writes many programs again
def behaviour(program: str, tests: Inputs) -> str | None:
    """The key of what a program says."""
    return key(sandbox().one((program, tests)), tests.call)


def behaviours(jobs: list[tuple[str | None, Inputs | None]]) -> list[str | None]:
    """The key of each (program, tests); None where either is missing."""
    return list(sandbox().threads.map(lambda job: None if None in job else behaviour(*job), jobs))


# A fenced block: fence, language, content; the fourth group is there where the end of the text cuts it off.
BLOCK = re.compile(r"(`{3,}|~{3,})[ \t]*([\w+#.-]*)[ \t]*$(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|(\Z))", re.M | re.S)


def last_program(text: str) -> str | None:
    """The last block that is marked as Python, or else as nothing; where nothing is fenced, all of the text.

    Whether that is Python at all is for the sandbox to see: hostile text can exhaust the stack of who reads it.
    """
    found = list(BLOCK.finditer(text))
    if not found or found[-1][4] is not None:
        return None if found else text.strip() or None
    by_mark = [[one[3] for one in found if one[2].lower() in marks] for marks in (("python", "py", "python3"), ("",))]
    return inspect.cleandoc((by_mark[0] or by_mark[1] or [""])[-1]).strip() or None


# ---------------------------------------------------------------- problems with tests

LISTS = ("tests", "public_tests", "private_tests", "generated_tests", "input_output")  # of CodeContests; the last of APPS


def read_tests(record: dict) -> tuple[Inputs, str | None, str] | None:
    """(tests, key of what they expect or None, what to ask for) of a record; None if it has none.

    Tests are lines `assert CALL == VALUE` in test_list, test or tests, as in MBPP and HumanEval; a VALUE is a literal, and
    nothing of a file is run here. Or they are two lists of texts in LISTS, input and output: of standard input. Raises
    ValueError, with the reason, for what cannot be used.
    """
    asked, pairs = "\n\nWrite a Python program that reads standard input and prints the result.", []
    lines = next((record[name] for name in ("test_list", "test", "tests") if isinstance(record.get(name), (str, list))), None)
    if lines:
        pairs, entry = asserts(lines, record.get("entry_point"))
        asked = f"\n\nWrite the Python function {entry}, which is called like this: {pairs[0][0]}" if pairs else ""
    for name in () if lines else LISTS:
        part = record.get(name) or {}
        part = json.loads(part) if isinstance(part, str) else part
        given = [part.get(one, part.get(f"{one}s", [])) for one in ("input", "output")] if isinstance(part, dict) else [0]
        texts = all(isinstance(part, list) and all(isinstance(text, str) for text in part) for part in given)
        if not texts or len(given[1]) not in (0, len(given[0])):
            raise ValueError(f'field "{name}" must hold input and output, two lists of texts, equally long')
        pairs += zip(given[0], [" ".join(text.split()) for text in given[1]] or [None] * len(given[0]), strict=True)
    if not pairs:
        return None
    inputs, said = zip(*pairs[:TESTS], strict=True)
    asked += "\nEnd with the whole program in one block that begins with ```python."
    return Inputs(inputs, bool(lines)), None if None in said else key(said, bool(lines)), asked


def asserts(lines, entry: str | None) -> tuple[list[tuple[str, str]], str]:
    """(CALL, what it is to say) of each assert, alone or in a check(candidate), and the function that all of them call."""
    pairs, node = [], None
    try:
        text = inspect.cleandoc("\n" + (lines if isinstance(lines, str) else "\n".join(lines)))
        body = ast.parse(re.sub(r"\bcandidate\b", entry or "candidate", text)).body
        for node in sum((node.body if isinstance(node, ast.FunctionDef) else [node] for node in body), []):
            match node:
                case ast.Assign() | ast.Expr(ast.Constant()) | ast.Assert(ast.Constant()):  # METADATA, a text, assert True
                    continue
                case ast.Assert(ast.Compare(call, [ast.Eq() | ast.Is()], [value])):
                    literal = ast.literal_eval(value.args[0] if ast.unparse(value)[:4] == "set(" else value)
                case _:
                    raise ValueError
            names = [part.id for part in ast.walk(call) if isinstance(part, ast.Name) and not hasattr(builtins, part.id)]
            entry = entry or names[0]
            names.index(entry)  # ValueError where it is not called
            pairs.append((ast.unparse(call), show(set(literal) if isinstance(value, ast.Call) else literal)))
    except (ValueError, TypeError, IndexError, SyntaxError, RecursionError, MemoryError) as error:
        reason = (node and ast.get_source_segment(text, node) or str(error)).partition("\n")[0][:80]
        raise ValueError(f"a test is no line assert {entry or 'FUNCTION'}(...) == VALUE, a literal: {reason}") from None
    return pairs, entry
