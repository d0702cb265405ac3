"""How fast and how large, side by side with what one would use otherwise, alternating in one run, medians.

    pip install -r benchmarks/requirements.txt
    python benchmarks/speed.py sampling --model FOLDER --data gsm8k     # (a) rollouts a second against model.generate
    python benchmarks/speed.py step     --model FOLDER --data gsm8k     # (b) one GRPO step against TRL's GRPOTrainer
    python benchmarks/speed.py update   --model FOLDER --data gsm8k     # (c) the update against the machine's matrix products
    python benchmarks/speed.py size     [--device cuda]                 # (d) Qwen2.5-0.5B and Qwen3-0.6B shapes, random weights
    python benchmarks/speed.py shared   --model FOLDER --data gsm8k     # (e) three adapters over one base, at once or one by one
    python benchmarks/speed.py basins                                   # (f) a grid of basins against scipy's solve_ivp
    python benchmarks/speed.py preset   [--checkpointing]               # (g) memory of --preset qwen's learning step

The results are in benchmarks/README.md. Times on a shared machine wander; the ratios are of neighbouring runs.
"""

import argparse
import contextlib
import io
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import grpo  # noqa: E402
import lora  # noqa: E402
from grpo import Agent, group_advantages, sample, sample_cohort, update  # noqa: E402
from lab import memory, models  # noqa: E402
from lab.data import UserError, load_problems  # noqa: E402
from lab.options import above_0  # noqa: E402

P, K, L = 8, 8, 48


def alternate(first, second, repeats: int) -> tuple[float, float, float]:
    """Median seconds of both, and the median of second/first of neighbouring runs; each is run once before, uncounted."""
    first(), second()
    a, b = [], []
    for _ in range(repeats):
        for function, times in ((first, a), (second, b)):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    return statistics.median(a), statistics.median(b), statistics.median(y / x for x, y in zip(a, b, strict=True))


def load(o) -> tuple[Agent, list[str]]:
    model, tokenizer = models.load_model(o.model, models.pick_device(o.device), "float32")
    agent = Agent("A", model, tokenizer, answer_style="number")
    return agent, [agent.prompt(p) for p in load_problems(o.data, limit=P)]


def sampling(o) -> None:
    """(a) The same model, prompts, number of rollouts and lengths."""
    agent, prompts = load(o)
    tokenizer = agent.tokenizer
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(agent.device)
    ends = models.end_tokens(agent.model, tokenizer)
    for name, length, equal in (("equal lengths", L, True), ("real lengths", o.longest, False)):
        # An id that is never drawn gives every completion the full length.
        found = frozenset([agent.model.config.vocab_size - 1]) if equal else ends
        models.end_tokens = lambda *_, found=found: found

        def ours(length=length):
            return sample(agent, prompts, K, length)

        def theirs(length=length, equal=equal):
            return agent.model.generate(
                **inputs,
                do_sample=True,
                top_k=0,
                top_p=1.0,
                temperature=1.0,
                num_return_sequences=K,
                max_new_tokens=length,
                min_new_tokens=length if equal else None,
                eos_token_id=sorted(ends),
            )

        lengths = ours().mask.sum(-1).float()
        a, b, ratio = alternate(ours, theirs, o.repeats)
        print(
            f"(a) {name}: {P * K} rollouts, {lengths.mean():.0f} tokens on average, {length} at most: "
            f"ours {P * K / a:.2f}/s, generate {P * K / b:.2f}/s, ratio {ratio:.2f}",
            flush=True,
        )


def step(o) -> None:
    """(b) Sampling and one update of 8 prompts x 8 rollouts x 48 tokens, rewards that differ within every group."""
    try:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer
    except ModuleNotFoundError:
        sys.exit("benchmarks/speed.py needs trl: pip install -r benchmarks/requirements.txt")

    agent, prompts = load(o)
    agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=1e-6, weight_decay=0.0, fused=True)

    def ours():
        rollouts = sample(agent, prompts, K, L)
        rewards = torch.tensor([[float(len(text)) for text in group] for group in rollouts.texts])
        update(agent, rollouts, group_advantages(rewards), rows=o.micro_batch * K)

    theirs, _ = load(o)
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=o.micro_batch * K,  # as much at a time as ours: all 64 need over 24 GiB
            gradient_accumulation_steps=P // o.micro_batch,
            num_generations=K,
            max_completion_length=L,
            max_steps=1,
            learning_rate=1e-6,
            beta=0.0,
            loss_type="grpo",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=o.device == "cpu",
            bf16=False,
            gradient_checkpointing=False,
        )
        trainer = GRPOTrainer(
            model=theirs.model,
            processing_class=theirs.tokenizer,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            reward_funcs=lambda completions, **_: [float(len(c)) for c in completions],
        )
        a, b, ratio = alternate(ours, lambda: silently(trainer.train), o.repeats)
    print(f"(b) one GRPO step, {P} x {K} x {L}: ours {a:.1f} s, TRL {b:.1f} s, ratio {ratio:.2f}")


def silently(function) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        function()


def gemm_rate(device: torch.device, rows: int, inner: int, outer: int) -> float:
    """Measured floating-point operations a second of a matrix product of the update's own shape."""
    a, b = torch.randn(rows, inner, device=device), torch.randn(outer, inner, device=device)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        torch.nn.functional.linear(a, b)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 2 * rows * inner * outer / statistics.median(times)


def update_limit(o) -> None:
    """(c) The update's products (forward 1, backward 2) at the rate at which this machine multiplies such matrices."""
    agent, prompts = load(o)
    agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    models.end_tokens = lambda *_: frozenset([agent.model.config.vocab_size - 1])
    rollouts = sample(agent, prompts, K, L)
    advantages = group_advantages(torch.rand(P, K))
    config = agent.model.config
    head = config.vocab_size * config.hidden_size
    body = sum(
        p.numel() for n, p in agent.model.named_parameters() if p.dim() == 2 and "embed" not in n and "lm_head" not in n
    )
    read = (
        int(rollouts.prompt_mask.sum()) + int(rollouts.mask.sum()) - P * K
    )  # the last token of a completion is read by nobody
    flops = 3 * 2 * (body * read + head * int(rollouts.mask.sum()))
    times, rates = [], []
    update(agent, rollouts, advantages, rows=o.micro_batch * K)
    for _ in range(o.repeats):
        rates.append(gemm_rate(agent.device, o.micro_batch * K * L, config.hidden_size, config.intermediate_size))
        start = time.perf_counter()
        update(agent, rollouts, advantages, rows=o.micro_batch * K)
        times.append(time.perf_counter() - start)
    rate, seconds = statistics.median(rates), statistics.median(times)
    print(
        f"(c) update of {P} x {K} x {L}: {seconds:.2f} s; {flops / 1e12:.2f} TFLOP "
        f"at {rate / 1e9:.0f} GFLOP/s would take {flops / rate:.2f} s; "
        f"ratio {statistics.median(t * r / flops for t, r in zip(times, rates, strict=True)):.2f}"
    )


def shared(o) -> None:
    """(e) A cohort of three adapters over one base: sampled in one pass against agent by agent, and the memory of it."""
    model, tokenizer = models.load_model(o.model, models.pick_device(o.device), "float32")
    lora.inject(model, 16, 32.0, adapters=["A", "B", "C"])
    agents = [Agent(name, model, tokenizer, adapter=name, answer_style="number") for name in "ABC"]
    prompts = [agents[0].prompt(p) for p in load_problems(o.data, limit=2)]
    a, b, ratio = alternate(
        lambda: sample_cohort(agents, [prompts] * 3, 4, L),
        lambda: [sample(agent, prompts, 4, L) for agent in agents],
        o.repeats,
    )
    base = sum(p.numel() for p in model.parameters() if not p.requires_grad) * 4 / 2**20
    adapter = sum(p.numel() for p in agents[0].parameters()) * 4 / 2**20
    print(
        f"(e) 3 agents x 2 prompts x 4 rollouts x {L}: one pass {a:.1f} s, agent by agent {b:.1f} s, ratio {ratio:.2f}; weights, "
        f"gradients and moments: {base + 3 * 4 * adapter:.0f} MiB shared, {3 * 4 * base:.0f} MiB as three full copies"
    )


SHAPES = {
    "Qwen2.5-0.5B": lambda: Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        eos_token_id=151645,
    ),
    "Qwen3-0.6B": lambda: Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
        eos_token_id=151645,
    ),
}


def size(o) -> None:
    """(d) Each shape in a process of its own, so that its peak memory is its own."""
    for name in SHAPES:
        subprocess.run(
            [
                sys.executable,
                __file__,
                "one-size",
                "--shape",
                name,
                "--device",
                o.device,
                "--longest",
                str(o.longest),
                "--micro-batch",
                str(o.micro_batch),
            ],
            check=True,
        )


def one_size(o) -> None:
    """One step (4 prompts of 64 tokens x 4 rollouts) of a model with random weights: peak memory against the estimate."""
    device = models.pick_device(o.device)
    model = AutoModelForCausalLM.from_config(SHAPES[o.shape](), dtype=torch.float32).to(device).eval()
    agent = Agent("A", model, SimpleNamespace(eos_token_id=151645, decode=lambda *_, **__: ""))
    agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    estimate = memory.estimate([agent], memory.AtATime(16, 0, 64, 4 * min(4, o.micro_batch), o.longest))
    before = peak(device)
    start = time.perf_counter()
    ids = torch.randint(0, 150_000, (4, 64)).tolist()
    rollouts = grpo.complete(model, agent.tokenizer, ids, [None] * 4, 4, 1.0, torch.rand(16, o.longest))
    sampled = time.perf_counter()
    update(agent, rollouts, group_advantages(torch.rand(4, 4)), rows=o.micro_batch * K)
    print(
        f"(d) {o.shape}: sample {sampled - start:.1f} s, update {time.perf_counter() - sampled:.1f} s, "
        f"peak {peak(device):.1f} GiB (of which {before:.1f} before the step); {estimate}",
        flush=True,
    )


def preset(o) -> None:
    """(g) The learning step of --preset qwen (bfloat16 base, LoRA of rank 16, one group of 8 rollouts), at several lengths."""
    for name in SHAPES:
        for longest in (64, 128, 256) if o.device == "cpu" else (128, 256, 512):
            command = [
                sys.executable,
                __file__,
                "one-preset",
                "--shape",
                name,
                "--device",
                o.device,
                "--longest",
                str(longest),
            ]
            subprocess.run(command + ["--checkpointing"] * o.checkpointing, check=True)


def one_preset(o) -> None:
    """Peak memory of one update of one group; it grows in proportion to the tokens, so 512 can be read off a line."""
    device = models.pick_device(o.device)
    model = AutoModelForCausalLM.from_config(SHAPES[o.shape](), dtype=torch.bfloat16).to(device).eval()
    lora.inject(model, 16, 32.0, adapters=["A"])
    agent = Agent("A", model, None, adapter="A", checkpointing=o.checkpointing)
    if o.checkpointing:
        lora.checkpointing(model)
    agent.optimizer = torch.optim.AdamW(agent.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    shape = (1, 8, o.longest)
    ones, ids = torch.ones(shape, dtype=torch.long, device=device), torch.randint(0, 150_000, shape, device=device)
    prompt = torch.randint(0, 150_000, (1, 128), device=device)
    zeros = torch.zeros(shape, device=device)
    rollouts = grpo.Rollouts(
        prompt, torch.ones_like(prompt), ids, ones, zeros, zeros[..., 0], zeros[..., 0], ones[..., 0] > 0
    )
    before, start = peak(device), time.perf_counter()
    agent.agrees = True  # nothing was sampled: there is nothing to compare
    update(agent, rollouts, group_advantages(torch.rand(1, 8)), rows=8)
    print(
        f"(g) {o.shape}, 8 x {o.longest} tokens{', checkpointing' * o.checkpointing}: "
        f"update {time.perf_counter() - start:.0f} s, "
        f"peak {peak(device):.2f} GiB, {before:.2f} before",
        flush=True,
    )


def basins(_) -> None:
    """(f) In a process of its own, whose options are its own."""
    subprocess.run([sys.executable, str(Path(__file__).with_name("basins.py"))], check=True)


def peak(device: torch.device) -> float:
    """Most memory held so far, GiB."""
    return (
        torch.cuda.max_memory_allocated() / 2**30
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    )


def main() -> None:
    parts = {
        "sampling": sampling,
        "step": step,
        "update": update_limit,
        "size": size,
        "shared": shared,
        "basins": basins,
        "preset": preset,
        "one-size": one_size,
        "one-preset": one_preset,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--model", help="a causal LM, such as a folder with SmolLM2-135M-Instruct")
    parser.add_argument("--data", default="gsm8k", help="where the prompts come from")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=above_0, default=5)
    parser.add_argument(
        "--longest", type=above_0, default=256, help="longest completion of `sampling` with real lengths, and of `size`"
    )
    parser.add_argument("--micro-batch", type=above_0, default=4)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--shape", choices=SHAPES, help=argparse.SUPPRESS)
    logging.set_verbosity_error()
    o = parser.parse_args()
    if o.part in ("sampling", "step", "update", "shared") and not o.model:
        sys.exit(f"benchmarks/speed.py: {o.part} needs a --model")
    try:
        parts[o.part](o)
    except UserError as error:
        sys.exit(f"benchmarks/speed.py: {error}")
    except subprocess.CalledProcessError as error:  # it has said why
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
