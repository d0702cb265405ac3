"""What every test starts from: one thread, and figures that are not rendered where the test is about something else."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # of processes that a test starts; matrices this small gain nothing from a second one

import pytest  # noqa: E402
import torch  # noqa: E402

from lab import style  # noqa: E402

torch.set_num_threads(1)
RENDER_NOT = ("test_adding", "test_agon", "test_code", "test_cohort", "test_docs", "test_guards", "test_measure", "test_show",
              "test_vision")  # fmt: skip


@pytest.fixture(autouse=True)
def figures_are_not_rendered(request, monkeypatch):
    """Figures are made, and written as empty files: two a run, half a second each. test_report and test_dynamics look at the
    real ones, and so does whatever is marked `rendered`."""
    if request.module.__name__.rpartition(".")[2] in RENDER_NOT and "rendered" not in request.keywords:
        monkeypatch.setattr(style, "save", lambda figure, path: path.write_bytes(b""))
