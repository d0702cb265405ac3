"""Programs as answers: hostile ones do no harm, equal behaviour is one answer, tests are read, and drafts lose their code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import test_docs
import tiny

import agon
import cohort
from lab import code, data, drafts, models, tinycode, tinyworld
from lab.code import FAILED, LIMIT, Sandbox, SandboxError, Inputs, behaviours, key, last_program, read_tests, show
from lab.extract import extract_answer
from lab.models import Prompt, read_answers
from rewards import REWARDS, majority

READ = Inputs(("3", "5"), False)
F = Inputs(("f(3)", "f(5)"), True)


@pytest.fixture(scope="module")
def box():
    """One nursery, and limits that make an endless program short."""
    made = Sandbox(1, seconds=0.3)
    yield made
    made.close()


def pid(box) -> int:
    """The process of the one nursery."""
    nursery = box.idle.get()
    box.idle.put(nursery)
    return nursery.pid


# ---------------------------------------------------------------- hostile programs

C = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
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
    "recursion in C": ("import sys\nsys.setrecursionlimit(10 ** 9)\nx = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)", (*NO, *OVER)),
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
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(before)], capture_output=True, text=True).stdout
    assert not children.strip()  # nobody of them is left
