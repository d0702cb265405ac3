"""Models that would be got wrong are refused in one line, before a run has a folder; and those that must not be refused."""

import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import safetensors.torch
import tiny
import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

import cohort
import lora
from grpo import Agent, sample_cohort
from lab import guards, memory, models, peft, runs, style
from lab.data import UserError

ROOT = Path(__file__).resolve().parent.parent

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
# name -> (type, settings beside tiny.SMALL, what the refusal says or None: of all weights, LoRA, LoRA and checkpointing)
KINDS = {
    "mamba": ("mamba", {"state_size": 8}, (None, "dt_proj.weight", "dt_proj.weight")),
    "falcon-mamba": ("falcon_mamba", {"state_size": 8}, (None, "dt_proj.weight", "dt_proj.weight")),
    "bert": ("bert", {}, ("apart",) * 3),
    "electra": ("electra", {}, ("apart",) * 3),
    "roberta": ("roberta", {"is_decoder": True, "max_position_embeddings": 130}, ("apart",) * 3),
    "rwkv": ("rwkv", {}, ("apart", "output.weight", "output.weight")),
    "minimax": ("minimax", {"num_local_experts": 4, "head_dim": 8, "block_size": 8}, ("MiniMax",) * 3),
    "mixtral": ("mixtral", EXPERTS, (None,) * 3),
    "gpt-oss": ("gpt_oss", EXPERTS | {"head_dim": 8}, (None,) * 3),
    "phi-moe": ("phimoe", EXPERTS, (None, None, "apart")),
    "opt": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}, (None,) * 3),
    "modernbert-decoder": ("modernbert-decoder", {}, (None,) * 3),
    "ctrl": ("ctrl", {"n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 48, "n_positions": 128}, (None, None, None)),
}


def make(kind: str, settings: dict):
    """A random tiny model of a type of the library's."""
    config = AutoConfig.for_model(kind, **tiny.SMALL | settings)
    models.no_dropout(config)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def agents_of(model, learning: bool = True) -> list[Agent]:
    """A and B, adapters where the model has some."""
    found = [Agent(name, model, tiny.tokenizer(), name if hasattr(model, "_lora") else None) for name in "AB"]
    for agent in found if learning else ():
        agent.optimizer = torch.optim.AdamW(agent.parameters())
    return found


def refusal(call, *arguments) -> str:
    """The one line of a refusal, "" where there is none."""
    try:
        call(*arguments)
        return ""
    except UserError as error:
        assert "\n" not in str(error)
        return str(error)


@pytest.mark.parametrize("way", range(3), ids=["all weights", "lora", "checkpointing"])
@pytest.mark.parametrize("name", KINDS)
def test_what_is_tried_before_a_run(name, way):
    """Guards: a model that reads what comes after, wrong positions, states that nobody keeps: trained on log-probs of another."""
    kind, settings, reasons = KINDS[name]
    model = make(kind, settings)
    if way:
        lora.inject(model, 2, 16.0, ["A", "B"])
    agents = agents_of(model)
    if way == 2 and model.supports_gradient_checkpointing:
        lora.checkpointing(model)
        for agent in agents:
            agent.checkpointing = True
    said = refusal(guards.try_out, agents)
    assert (reasons[way] in said and model.__class__.__name__ in said) if reasons[way] else not said, said


@pytest.mark.parametrize("name", tiny.EVERY)
def test_trying_leaves_everything_as_it_was(name):
    """Guards: weights, gradients or the global random state moved by the trial."""
    model = tiny.model(name)
    lora.inject(model, 2, 16.0, ["A", "B"], b_std=[0.0, 0.1])
    before, state = {n: p.clone() for n, p in model.state_dict().items()}, torch.get_rng_state()
    guards.try_out(agents_of(model))
    assert all(torch.equal(p, before[n]) for n, p in model.state_dict().items()) and torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in model.parameters())


def test_rows_that_go_through_anothers_adapter_are_seen(monkeypatch):
    """Guards: at the start all adapters are alike, so that a layer which takes rows for other agents' would not be noticed."""
    model = tiny.model()
    lora.inject(model, 2, 16.0, ["A", "B"])
    right = lora.LoRALinear.change_by_row

    def mixed(self, choice, x):
        return right(self, choice._replace(adapters=choice.adapters[::-1]), x)

    monkeypatch.setattr(lora.LoRALinear, "change_by_row", mixed)
    assert "apart" in refusal(guards.try_out, agents_of(model))


def test_what_mamba_writes_in_a_batch_is_what_it_writes_alone():
    """Guards: while decoding, the mask of the whole text multiplied into a one-token input: log-probs 2 nats off."""
    (agent, _), prompts = agents_of(make("mamba", {"state_size": 8})), ["w5 w6 w7 w8 w9 w10 w11", "w12 w13 w14"]
    (wrote,) = sample_cohort([agent], [prompts], 3, 12, generators=[torch.Generator().manual_seed(1)])
    assert ((guards.plain_logprobs(agent, wrote) - wrote.logprobs) * wrote.mask).abs().max() < 1e-4


@pytest.mark.parametrize("kind, settings, share", [("mixtral", EXPERTS, "14%"), ("gpt_oss", EXPERTS | {"head_dim": 8}, "14%"),
                                                   ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}, "")])  # fmt: skip
def test_the_share_of_weights_under_adapters_is_said(kind, settings, share, capsys):
    """Guards: experts, which are most of a model, left out by --lora-rank without a word."""
    model = make(kind, settings)
    lora.inject(model, 2, 16.0)
    guards.say_coverage(model)
    said = capsys.readouterr().err
    assert (f"lie on {share}" in said and "experts.gate_up_proj" in said) if share else not said


def with_eyes():
    """A model that reads pictures too."""
    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    return AutoConfig.for_model("gemma3", vision_config=sizes, text_config=tiny.SMALL | {"head_dim": 8, "attention_dropout": 0.5})


def test_a_model_with_eyes():
    """Guards: dropout left on in a part of a model; adapters on a part that no text goes through."""
    config = with_eyes()
    models.no_dropout(config)
    model = AutoModelForCausalLM.from_config(config).eval()
    assert config.text_config.attention_dropout == 0.0
    names = lora.inject(model, 2, 16.0, ["A", "B"])
    assert names and not [name for name in names if "vision" in name or "lm_head" in name]
    lora.checkpointing(model)
    agents = agents_of(model)
    for agent in agents:
        agent.checkpointing = True
    guards.try_out(agents)


def test_what_does_not_fit_is_refused_before_it_is_made():
    """Guards: a machine that swaps until it is switched off, for --lora-rank 1000000 or --prompts 1000000000."""
    model = tiny.model()
    assert "rank 100000000" in refusal(memory.fit_adapters, model, 10**8, 2)
    assert not refusal(memory.fit_adapters, model, 64, 2)
    much = memory.AtATime(sampled=10**10, evaluated=1, prompt=256, learned=8, new=40)
    assert "--prompts" in refusal(memory.estimate, agents_of(model), much)


# ---------------------------------------------------------------- folders of models


class Runs:
    """Whoever unpickles it runs what it says."""

    def __reduce__(self):
        return exec, ("raise SystemExit('run')",)


def config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def weights(folder, content: bytes):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)


def longer(folder):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["more"])
    tokenizer.save_pretrained(folder)


BROKEN = {
    "tokenizer longer than the embedding": (longer, "64"),
    "tokenizer of a newer kind": (lambda f: (f / "tokenizer.json").write_text('{"model": {"type": "New"}}'), "cannot load"),
    "weights are a pointer": (lambda f: weights(f, b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n"), "cannot load"),
    "weights are HTML": (lambda f: weights(f, b"<!doctype html><p>404"), "cannot load"),
    "weights are empty": (lambda f: weights(f, b""), "cannot load"),
    "weights are an object": (lambda f: weights(f, pickle.dumps(Runs())), "cannot load"),
    "no heads": (lambda f: config(f, num_attention_heads=0), "cannot load"),
    "text for a number": (lambda f: config(f, hidden_size="many"), "cannot load"),
    "code": (lambda f: config(f, auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}, model_type="evil"),
             "cannot load"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A model's folder."""
    tiny.model("qwen3").save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "evil.py").write_text("raise SystemExit('run')")
    return tmp_path / "model"


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_one_line(name, folder):
    """Guards: a traceback out of the library, after a run has a folder; and code or objects that come with a model being run."""
    breaks, says = BROKEN[name]
    assert not refusal(models.load_model, str(folder), torch.device("cpu"), "float32")
    breaks(folder)
    assert says in refusal(models.load_model, str(folder), torch.device("cpu"), "float32")


def test_a_models_own_settings_of_sampling_are_not_kept(folder):
    """Guards: a generation_config that the library reads but refuses to write: the whole run lost at its first save."""
    (folder / "generation_config.json").write_text('{"temperature": 0.6, "do_sample": false, "eos_token_id": [2, 7]}')
    model, tokenizer = models.load_model(str(folder), torch.device("cpu"), "float32")
    assert models.end_tokens(model, tokenizer) == {2, 7}
    model.save_pretrained(folder / "saved")
    assert json.loads((folder / "saved" / "generation_config.json").read_text()).get("temperature") is None


def test_an_adapter_beside_the_weights(folder):
    """Guards: base plus adapter measured and trained as if it were the model."""
    pytest.importorskip("peft")
    model = tiny.model("qwen3")
    lora.inject(model, 2, 4.0, ["A"])
    peft.save(model, "A", folder)
    assert "adapter_config.json" in refusal(models.load_model, str(folder), torch.device("cpu"), "float32")


def test_linear_layers_of_an_expert_may_fold_rows():
    """Guards: "use() was given 4 rows, but the batch has 112" of a block that flattens its batch to [rows * S, in]."""
    net = nn.Sequential(nn.Linear(4, 3))
    lora.inject(net, 2, 4.0, ["A", "B"], b_std=0.1)
    x = torch.randn(4, 5, 4)
    with lora.use(net, ["B", "A", "A", "B"]):
        assert torch.equal(net(x).flatten(0, 1), net(x.flatten(0, 1)))


# ---------------------------------------------------------------- a run and its folder

SMALL = ("--method intuitor --answer number --steps 2 --prompts 2 --k 2 --max-new-tokens 4 --eval-problems 2 --eval-k 1 "
         "--eval-every 0 --save-every 1 --device cpu").split()  # fmt: skip


@pytest.fixture(scope="module", params=[[], ["--lora-rank", "2"]], ids=["all weights", "lora"])
def made(request, tmp_path_factory):
    """A finished run of two agents of one model, its model and its data, in one folder."""
    place = tmp_path_factory.mktemp("made")
    tiny.model("qwen3").save_pretrained(place / "model")
    tiny.tokenizer().save_pretrained(place / "model")
    problems = [{"question": f"w{i} w{i + 1}", "answer": str(i)} for i in range(3, 9)]
    (place / "data.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    models = ["--models", *[str(place / "model")] * 2, "--data", str(place / "data.jsonl")]
    assert cohort.main([*models, *SMALL, *request.param, "--out", str(place), "--name", "run"]) == 0
    return place


@pytest.fixture
def place(made, tmp_path):
    """A copy of it, whose config.json names the copies."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace(str(made), str(tmp_path)))
    return tmp_path


def said(capsys, *arguments: str) -> tuple[int, str]:
    """Exit code and the last line on stderr of cohort.py."""
    capsys.readouterr()
    code = cohort.main(list(arguments))
    return code, capsys.readouterr().err.strip().split("\n")[-1]


def other_lines(change):
    def do(place):
        path = place / "data.jsonl"
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    return do


def other_weight(name: str):
    def do(place):
        weights = load_file(place / "model" / "model.safetensors")
        weights[name].view(-1)[5] += 1
        save_file(weights, place / "model" / "model.safetensors", metadata={"format": "pt"})
    return do


def other_template(place):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(place / "model")
    tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    tokenizer.save_pretrained(place / "model")


INPUTS = {
    "reordered": (other_lines(lambda x: x[::-1]), "problems"),
    "extended": (other_lines(lambda x: [*x, x[0].replace("w3", "w9")]), "problems"),
    "replaced": (other_lines(lambda x: [x[0].replace('"3"', '"4"'), *x[1:]]), "problems"),
    "embeddings": (other_weight("model.embed_tokens.weight"), "weights of A, weights of B"),
    "a norm": (other_weight("model.norm.weight"), "weights of A, weights of B"),
    "template": (other_template, "chat template of A, chat template of B"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_a_run_knows_its_inputs(name, place, capsys):
    """Guards: a run that goes on, or is compared, with other problems, another base or another template than it began with."""
    change, named = INPUTS[name]
    before = (place / "run" / "metrics.jsonl").read_bytes()
    assert said(capsys, "--resume", str(place / "run"), "--steps", "3")[0] == 0
    change(place)
    code, line = said(capsys, "--resume", str(place / "run"), "--steps", "4")
    assert code == 2 and f": {named} changed" in line
    assert (place / "run" / "metrics.jsonl").read_bytes().startswith(before)


@pytest.mark.slow
def test_a_comparison_knows_its_inputs(place, capsys):
    """Guards: a row of a comparison, made later, that was trained on other problems than the rows above it."""
    models = ["--models", *[str(place / "model")] * 2, "--data", str(place / "data.jsonl")]
    assert cohort.main([*models, *SMALL[2:], "--compare", "intuitor", "rent", "--out", str(place), "--name", "both"]) == 0
    shutil.rmtree(place / "both" / "rent-seed0")
    INPUTS["reordered"][0](place)
    code, line = said(capsys, "--resume", str(place / "both"))
    assert code == 2 and "intuitor-seed0" in line and "problems changed" in line


FIELDS = [
    *(("steps", x) for x in ("3", 0, None, 1e9, True)), *(("k", x) for x in (1, "2", 10**30)), *(("lr", x) for x in ("1e-4", 0)),
    *(("seed", x) for x in (-1, 2**32, 0.5)), *(("models", x) for x in ("m", [1], {})), *(("agents", x) for x in ("2", 0)),
    *(("method", x) for x in ("nope", ["corl"], None)), ("topics", "carry"), ("cohort", 1), ("average", "mean"), ("answer", "x"),
    ("strengths", ["a", "b"]), ("clip", 1e300), ("clip", float("nan")), ("compared", ["nope"]), ("compared", 3),
    ("compared", [["corl"]]), ("prompts", 10**9), ("inputs", {"problems": "0"}), ("data", ["tiny"]), ("stop", 3),
]  # fmt: skip


@pytest.mark.parametrize("name, value", FIELDS, ids=str)
def test_a_runs_options_are_input_like_any_other(name, value, place, capsys):
    """Guards: tracebacks, or values that the command line refuses, out of a config.json that somebody edited or sent."""
    config(place / "run", **{name: value})
    code, line = said(capsys, "--resume", str(place / "run"), "--steps", "3")
    assert code == 2 and line.startswith("cohort.py: ")


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "", "[]", "3"])
def test_a_config_that_is_none(content, place, capsys):
    """Guards: a RecursionError out of a file of brackets."""
    (place / "run" / "config.json").write_text(content)
    code, line = said(capsys, "--resume", str(place / "run"), "--steps", "3")
    assert code == 2 and line.startswith("cohort.py: ")


def test_a_byte_order_mark_is_no_fault(place, capsys):
    """Guards: a run that an editor has touched and that no longer loads."""
    path = place / "run" / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert said(capsys, "--resume", str(place / "run"), "--steps", "3")[0] == 0


def sealed(place, path: str, content: bytes) -> None:
    """Put other content into the newest checkpoint, under a right seal."""
    folder = runs.newest(place / "run")
    (folder / path).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    manifest["files"][path] = {"bytes": len(content), "sha256": runs.digest(folder / path)}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"sha256": runs.seal(manifest)}))


def saved(tensors: dict) -> bytes:
    return safetensors.torch.save(tensors, metadata={"format": "pt"})


def torched(thing) -> bytes:
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


@pytest.mark.parametrize("path, content", [
    *(("A/optimizer.pt", x) for x in (b"", b"<html>", pickle.dumps(Runs()), torched([1]), torched({}), torched({"state": {0: 3}}),
      torched({"state": {0: {"exp_avg": torch.ones(1, 2, 3)}}, "param_groups": []}))),
    *(("A/WEIGHTS", x) for x in (b"", b"<html>", saved({}), saved({"x": torch.ones(2)}))),
], ids=lambda x: x if isinstance(x, str) else "")  # fmt: skip
def test_other_content_under_a_right_seal(path, content, place, capsys):
    """Guards: tracebacks, or an object that is run, out of a checkpoint that somebody else sent."""
    adapter = runs.read_json(place / "run" / "config.json")["lora_rank"]
    path = path.replace("WEIGHTS", "adapter_model.safetensors" if adapter else "model.safetensors")
    sealed(place, path, content)
    code, line = said(capsys, "--resume", str(place / "run"), "--steps", "3")
    assert code == 2 and "does not fit the models" in line


def test_no_code_comes_with_a_checkpoint(place, capsys, monkeypatch):
    """Guards: a question at the terminal whether to run code that came with a run, and the code run on "y"."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    (runs.newest(place / "run") / "A" / "evil.py").write_text("raise SystemExit('run')")
    code = {"auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}, "model_type": "evil"}
    if not (runs.newest(place / "run") / "A" / "config.json").exists():
        pytest.skip("an adapter has no config of a model")
    sealed(place, "A/config.json", json.dumps(code).encode())
    code, line = said(capsys, "--resume", str(place / "run"), "--steps", "3")
    assert code == 2 and line.startswith("cohort.py: ")


@pytest.mark.parametrize("change", [
    lambda x: x.replace(b"\n", b"\r\n"), lambda x: x[:-20] + b"#" * 19 + b"\n", lambda x: b"{}\n" + x, lambda x: b"\x00" * len(x),
    lambda x: x.replace(b'"step": 1', b'"step" 1'),
])  # fmt: skip
def test_metrics_that_were_changed(change, place, capsys):
    """Guards: metrics.jsonl cut in the middle of a line and written on behind it; noticed after all the training."""
    path = place / "run" / "metrics.jsonl"
    path.write_bytes(changed := change(path.read_bytes()))
    code, line = said(capsys, "--resume", str(place / "run"), "--steps", "3")
    assert code == 2 and ("metrics.jsonl was changed" in line or "no whole checkpoint" in line)
    assert path.read_bytes() == changed


def test_a_run_is_held_by_one_process(place, capsys):
    """Guards: two that resume one run at once, and write its steps twice."""
    with guards.held(place / "run"):
        code, line = said(capsys, "--resume", str(place / "run"), "--steps", "3")
        assert code == 2 and "in use by another process" in line
    assert said(capsys, "--resume", str(place / "run"), "--steps", "3")[0] == 0


def test_what_was_passed_over_is_said(place, capsys):
    """Guards: an older checkpoint, or other versions of the libraries, taken in silence."""
    path = runs.newest(place / "run") / "A" / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b" ")
    config(place / "run", versions={"torch": "1.0"})
    assert cohort.main(["--resume", str(place / "run"), "--steps", "3"]) == 0
    told = capsys.readouterr().err
    assert "checkpoint-000002 is damaged" in told and "was begun with {'torch': '1.0'}" in told


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_what_ends_a_process_saves_it(name, place, capsys, monkeypatch):
    """Guards: a run of hours lost because a machine was switched off, or a terminal closed, between two checkpoints."""
    step = cohort.train_step

    def sent(*arguments):
        os.kill(os.getpid(), getattr(signal, name))
        return step(*arguments)

    monkeypatch.setattr(cohort, "train_step", sent)
    whole = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    asked = {which: signal.signal(which, signal.default_int_handler) for which in whole}  # nohup and & have them ignored
    try:
        before = [signal.getsignal(which) for which in whole]
        assert cohort.main(["--resume", str(place / "run"), "--steps", "9"]) == 130
        assert "continue with: python cohort.py --resume" in capsys.readouterr().err
        assert runs.newest(place / "run").name == "checkpoint-000003"
        assert before == [signal.getsignal(which) for which in whole]
    finally:
        for which, handler in asked.items():
            signal.signal(which, handler)


def test_nothing_to_learn_is_said(place, capsys):
    """Guards: a run in which no answer can be read, and that ends like any other."""
    models = ["--models", *[str(place / "model")] * 2, "--data", str(place / "data.jsonl")]
    assert cohort.main([*models, *SMALL, "--method", "gt", "--answer", "boxed", "--out", str(place), "--name", "none"]) == 0
    assert "nothing could be learnt" in capsys.readouterr().err


def test_a_worker_thread_trains(place):
    """Guards: "signal only works in main thread", and a folder left behind."""
    codes = []
    worker = threading.Thread(target=lambda: codes.append(cohort.main(["--resume", str(place / "run"), "--steps", "3"])))
    worker.start()
    worker.join()
    assert codes == [0]


@pytest.mark.parametrize("out", ["a\0b", "a\udcffb", "a\nb", "a\x1b[2Jb"])
def test_an_out_folder_that_cannot_be_written(out, place, capsys):
    """Guards: a run that trains, and then cannot save."""
    models = ["--models", *[str(place / "model")] * 2, "--data", str(place / "data.jsonl")]
    code, line = said(capsys, *models, *SMALL, "--out", out)
    assert code == 2 and "--out" in line and line.isprintable()


# ---------------------------------------------------------------- what a terminal is shown


@pytest.mark.parametrize("text, shown", [
    ("≤ 中 é\ta\n", "≤ 中 é\ta\n"), ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"), ("a\rb\x08", r"a\rb\x08"),
    ("\u202edrow", r"\u202edrow"), ("\x9b2J", r"\x9b2J"), ("a\u00a0b\u200d", "a b\u200d"), ("\ud800", r"\ud800"),
    ("a\ufdd0b", "ab"),
])  # fmt: skip
def test_text_is_shown_as_text(text, shown):
    """Guards: a topic, question or completion that clears the screen, renames the window or turns the line round."""
    assert guards.printable(text) == shown
    stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252", newline="")
    guards.Shown(stream).write(text)
    stream.flush()
    assert stream.buffer.getvalue().decode("cp1252") == shown.encode("cp1252", "replace").decode("cp1252")


@pytest.mark.rendered
@pytest.mark.parametrize("name", [r"$\foo{x}$", "$$", "$5 and $6", "a$b", r"\frac", "$x^$"])
def test_names_in_a_figure_are_text(name, tmp_path):
    """Guards: a comparison that ends in a traceback after all its runs, for a topic that is no formula of matplotlib's."""
    figure = Figure()
    axes = figure.subplots()
    axes.set(title=name, xlabel="$p_A$", ylabel="$p_1+p_2+p_3=3/2$")
    style.save(figure, tmp_path / "x.png")
    assert not axes.title.get_parse_math() or "$" not in name
    assert axes.xaxis.label.get_parse_math() and axes.yaxis.label.get_parse_math()


def test_every_command_shows_text_as_text(capsys):
    """Guards: a command that prints past it; in text and in the line of an error."""
    assert runs.command("x", lambda: print("\x1b[2J") or 0, "", "") == 0

    def fails():
        raise UserError("no \x07")

    assert runs.command("x", fails, "", "") == 2
    assert capsys.readouterr() == ("\\x1b[2J\n", "x: no \\x07\n")


def test_ctrl_c_while_importing_is_one_line():
    """Guards: a traceback of thirty lines out of torch for who typed the wrong command."""
    for command in (["cohort.py"], ["agon.py"], ["-m", "lab.report", "x"]):
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))  # fmt: skip
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
        if process.returncode != -signal.SIGABRT:  # while a C++ library loads, the process aborts
            assert (process.returncode, told.decode().strip()) == (130, "stopped at once")


@pytest.mark.parametrize("presses", [True, False])
def test_ctrl_c_that_a_library_drops(presses, tmp_path):
    """Guards: PyTorch loads numpy and drops the Ctrl-C of that moment; what breaks later for want of numpy has lost its cause."""
    what = "os.kill(os.getpid(), signal.SIGINT)" if presses else "pass"
    library = f"import os, signal\ntry: {what}\nexcept KeyboardInterrupt: pass\nraise ImportError('half')"
    (tmp_path / "library.py").write_text(library)
    program = f"import lab, sys; sys.path.append({str(tmp_path)!r}); import library"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert (done.returncode, last) == ((130, "stopped at once") if presses else (1, "ImportError: half"))
