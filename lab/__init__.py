"""The lab: everything around the six files of the course, behind one door. Nothing here is needed to understand the methods.

answers  out of text, and when two are equal, exactly     data      problems: files, named sources, what is held out
models   loading them; chat, encode, where a text ends    options   a dataclass of options, its command line, what is refused
runs     folders, checkpoints, the loop, a comparison     memory    how much a run will need, before it begins
evaluate pass@1 and intervals; how far errors overlap     diversity how different the agents of a cohort are: a command
report   tables and figures of a run or a comparison      portraits the theory's figures, and runs laid over them
tinyworld, rivals   the embedded worlds of both papers    drafts    what a reader sees of a draft
judges   CoMAS's discussion, Co-rewarding-II's teacher    peft      adapters on disk        rephrase  other words: a command
"""
