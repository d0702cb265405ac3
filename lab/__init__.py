"""The lab: everything around the six files of the course, behind one door. A student needs none of it but what
Co-rewarding and CoMAS add to a step (methods.py).

answers   out of text, and when two are equal, exactly    data      problems: files, named sources, what is held out
models    loading them; chat, encode, where a text ends   options   a dataclass of options, its command line, what is refused
setup     a cohort at its start, and its problems         methods   what a method adds to a step: teachers, judges, both forms
runs      folders, checkpoints, the loop, a comparison    memory    how much a run will need, before it begins
evaluate  pass@1, intervals, omega; measure and suite are its commands: saved runs, several benchmarks
diversity how different the agents of a cohort are        rephrase  the same question in other words
report    tables of a run or a comparison                 charts    their figures               style  the look of every figure
guards    what a model must show before it is trained; what a run read; text that is shown as text
portraits the theory's figures, runs laid over them       motion    a window, and starts that fall
vision    a picture in a prompt's one pass                drafts    what a reader sees of a draft        peft  adapters on disk
code      answers that are programs, in a sandbox         ranks     one agent a process         engine   rollouts by vLLM
tinyworld, rivals, tinyeyes, tinycode   the embedded worlds: of both papers, of pictures, of programs
"""

import os
import signal
import sys
import threading


def stop() -> None:
    """Ctrl-C is no fault: where nothing else takes it, such as while this project is imported, it gets one line."""
    os.write(2, b"\nstopped at once\n")
    os._exit(130)


def pressed(number, frame) -> None:
    """Python's own handler but for the time of an import: a library can drop its error there, and break of it later."""
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    stop() if frame else signal.default_int_handler(number, frame)


if sys.excepthook is sys.__excepthook__:  # a notebook has its own
    sys.excepthook = lambda kind, *error: stop() if issubclass(kind, KeyboardInterrupt) else sys.__excepthook__(kind, *error)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, pressed)
