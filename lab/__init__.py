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
import sys


def interrupted(kind, error, trace) -> None:
    """Ctrl-C is no fault: where nothing else takes it, such as while this project is imported, it gets one line."""
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    os.write(2, b"\nstopped at once\n")
    os._exit(130)


if sys.excepthook is sys.__excepthook__:  # a notebook has its own
    sys.excepthook = interrupted
