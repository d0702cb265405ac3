"""Low-rank adapters (Hu et al., 2022), several over one frozen base: y = W x + (alpha / r) B_i A_i x for adapter i.

W never moves except in `merge`; A_i [r, in] and B_i [out, r] are float32 whatever W is, because an update of 5e-4 to a
bfloat16 0.5 rounds back to 0.5. Outside `use` the model is the bare base. They are saved in PEFT's format (lab/peft.py).
Where this departs from common LoRA:
- No dropout, on purpose. Scoring would draw another mask than sampling did, and the importance ratio of a policy
  gradient would measure that noise instead of the update.
- Ours: a batch can mix adapters row by row. B may start as small noise (Agon's second policy, section 4.2).
"""

import math
import operator
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D  # GPT-2's linear layer: its weight is stored [in, out]


class LoraError(ValueError):
    """A mistake in how adapters are asked for or stored; the message says what to do."""


class Choice(NamedTuple):
    """Who computes a forward pass: one adapter for all rows (`sizes` is None), or one for each block of sorted rows."""
    adapters: list
    sizes: list | None = None               # rows of each adapter
    order: torch.Tensor | None = None       # [rows] sorts the batch by adapter; None = it is sorted already
    inverse: torch.Tensor | None = None     # [rows] puts it back


@dataclass(eq=False)
class Shared:
    """What all LoRALinear layers of a model have in common. `use` sets `choice` here and never walks the modules."""
    rank: int
    alpha: float
    names: list = field(default_factory=list)      # of the adapters
    layers: dict = field(default_factory=dict)     # module name -> LoRALinear
    choice: Choice | None = None                   # None = the bare base
    originals: dict = field(default_factory=dict)  # while merged: module name -> the weight from before, on the CPU

    def index(self, adapter) -> int:
        """The position of an adapter given by its name or position."""
        if isinstance(adapter, str) and adapter in self.names:
            return self.names.index(adapter)
        if not isinstance(adapter, str | None) and 0 <= operator.index(adapter) < len(self.names):
            return operator.index(adapter)
        raise LoraError(f"no adapter {adapter!r}; there are {self.names}, that is 0 to {len(self.names) - 1}")

    def choose(self, adapter) -> Choice | None:
        """Turn the argument of `use` into a Choice."""
        if adapter is None:
            return None
        if self.originals:
            raise LoraError("an adapter is merged into the base; call unmerge before using adapters")
        adapter = adapter.tolist() if torch.is_tensor(adapter) else adapter
        if not isinstance(adapter, list | tuple):
            return Choice([self.index(adapter)])
        rows = [self.index(row) for row in adapter]
        used = sorted(set(rows))
        sizes = [rows.count(i) for i in used]
        if rows == sorted(rows):
            return Choice(used, sizes)
        order = torch.tensor(sorted(range(len(rows)), key=rows.__getitem__))
        device = next(iter(self.layers.values())).A[0].device
        return Choice(used, sizes, order.to(device), order.argsort().to(device))

    @contextmanager
    def using(self, choice: Choice | None):
        previous, self.choice = self.choice, choice
        try:
            yield
        finally:
            self.choice = previous

    def add(self, name: str, b_std: float, generator: torch.Generator) -> None:
        self.names.append(name)
        for layer in self.layers.values():
            layer.add(b_std, generator)


class LoRALinear(nn.Module):
    """A frozen linear layer and its adapters."""

    def __init__(self, base: nn.Linear | Conv1D, shared: Shared):
        super().__init__()
        self.base, self.shared = base, shared
        self.A, self.B = nn.ParameterList(), nn.ParameterList()

    def add(self, b_std: float, generator: torch.Generator) -> None:
        """Append an adapter: A Kaiming-uniform, B zero or Gaussian. Drawn on the CPU, so alike on every device."""
        outputs, inputs = _shape(self.base)
        A = nn.init.kaiming_uniform_(torch.empty(self.shared.rank, inputs), a=math.sqrt(5), generator=generator)
        B = torch.zeros(outputs, self.shared.rank)
        if b_std:
            B.normal_(0, b_std, generator=generator)
        self.A.append(nn.Parameter(A.to(self.base.weight.device)))
        self.B.append(nn.Parameter(B.to(self.base.weight.device)))

    def __getattr__(self, name: str):
        if name in ("weight", "bias"):  # for models that multiply by a layer's weight themselves, past its adapter
            place = next(place for place, layer in self.shared.layers.items() if layer is self)
            raise AttributeError(f"its code reads {place}.{name} itself; leave that layer out of the targets")
        return super().__getattr__(name)

    def change(self, i: int, x: torch.Tensor) -> torch.Tensor:
        """(alpha / r) B_i A_i x in float32: [..., in] -> [..., out]."""
        return linear(linear(x, self.A[i]), self.B[i]) * (self.shared.alpha / self.shared.rank)

    def change_by_row(self, choice: Choice, x: torch.Tensor) -> torch.Tensor:
        """Each row through its own adapter, one pair of products per adapter: [rows, ..., in] -> [rows, ..., out]."""
        rows = sum(choice.sizes)
        if x.ndim == 2 and len(x) > rows and len(x) % rows == 0:  # layers of experts flatten a batch to [rows * S, in]
            return self.change_by_row(choice, x.view(rows, -1, x.shape[-1])).flatten(0, 1)
        if len(x) != rows:
            raise LoraError(f"use() was given {rows} rows, but the batch has {len(x)}")
        if choice.order is not None:
            x = x[choice.order]
        parts = zip(choice.adapters, x.split(choice.sizes), strict=True)
        delta = torch.cat([self.change(i, part) for i, part in parts])
        return delta if choice.inverse is None else delta[choice.inverse]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, choice = self.base(x), self.shared.choice                        # [rows, ..., out]
        if choice is None:
            return y
        x = x.float()
        delta = self.change(choice.adapters[0], x) if choice.sizes is None else self.change_by_row(choice, x)
        # Summed in float32 and rounded once; a delta of zero leaves y as it is in any precision.
        return (y + delta).to(y.dtype)


def _shape(layer: nn.Linear | Conv1D) -> tuple[int, int]:
    """(out, in) of a linear layer."""
    rows, columns = layer.weight.shape
    return (columns, rows) if isinstance(layer, Conv1D) else (rows, columns)


def _shared(model: nn.Module) -> Shared:
    if "_lora" not in vars(model):
        raise LoraError("this model has no adapters; call inject or load first")
    return model._lora


def _match(model: nn.Module, targets) -> dict:
    """The layers that `targets` mean, by name. Raises LoraError for one that is not there or cannot be adapted."""
    modules = dict(model.named_modules())
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model  # of a model with eyes the part for text
    inside = set((model if decoder is head else decoder).modules()) - {head}
    chosen = {n: m for n, m in modules.items() if type(m) in (nn.Linear, Conv1D) and m in inside}  # a router is no nn.Linear
    if targets is not None:
        hits = {t: {n for n in modules if n == t or n.endswith(f".{t}")} for t in targets}
        for target in [t for t in targets if not t or not hits[t]]:
            known = ", ".join(sorted({name.rpartition(".")[2] for name in chosen}))
            raise LoraError(f"no layer is called {target!r}; linear layers here: {known}")
        chosen = {n: m for n, m in modules.items() if any(n in names for names in hits.values())}
    if not chosen:
        raise LoraError("no layer here is a plain linear one: name what to adapt (--lora-targets)")
    owners = list(model.named_parameters(remove_duplicate=False))
    for name, layer in chosen.items():
        if not isinstance(layer, nn.Linear | Conv1D) or not layer.weight.is_floating_point():
            raise LoraError(f"{name} is a {type(layer).__name__}; only unquantized Linear and Conv1D can be adapted")
        others = [owner for owner, parameter in owners if parameter is layer.weight and owner != f"{name}.weight"]
        if others:
            raise LoraError(f"{name} shares its weight with {others[0]} (tied embeddings), so merging an adapter into "
                            f"one would change both; leave {name} out of the targets")
    return chosen


def inject(model: nn.Module, rank: int, alpha: float, adapters=1, targets=None, b_std=0.0, seed=0) -> list:
    """Freeze `model` and put adapters on its linear layers; returns the names of these layers.

    adapters: how many, or a list of names. targets: a list of names or name endings ("q_proj"); None = all linear
    layers but the output head. b_std: standard deviation of B at the start, one for all or one each; at 0 (standard
    LoRA) the model starts as the bare base exactly. seed: an int or a CPU torch.Generator; adapter i starts the same
    however many follow it. Write the adapters with `lab.peft.save`; `save_pretrained` is for merged models.
    """
    names = [str(i) for i in range(adapters)] if isinstance(adapters, int) else adapters
    stds = [b_std] * len(names) if isinstance(b_std, int | float) else b_std
    if "_lora" in vars(model):
        raise LoraError("the model has adapters already; ask for all of them in one call of inject")
    if isinstance(names, str) or not names or len(set(names)) < len(names) or len(stds) != len(names):
        raise LoraError(f"adapters is a number or distinct names, each with its b_std: got {adapters!r}, {b_std!r}")
    if rank < 1 or alpha <= 0:
        raise LoraError(f"rank and alpha must be positive: got rank {rank}, alpha {alpha}")
    layers = _match(model, [targets] if isinstance(targets, str) else targets)
    generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    model._lora = shared = Shared(rank, alpha)
    for name, layer in layers.items():
        shared.layers[name] = LoRALinear(layer, shared)
        model.set_submodule(name, shared.layers[name])
    for name, std in zip(names, stds, strict=True):
        shared.add(name, std, generator)
    return list(layers)


def use(model: nn.Module, adapter):
    """Context manager: inside it `model` runs through `adapter`; afterwards, also after an error, as before.

    adapter: an index or a name; None = the bare base (the KL reference); or a list or tensor with an index or a name
    for each row of the batch. Cheap enough to enter for every token. A model without adapters accepts None.
    """
    if adapter is None and "_lora" not in vars(model):
        return nullcontext()
    shared = _shared(model)
    return shared.using(shared.choose(adapter))


def checkpointing(model: nn.Module) -> None:
    """Turn on gradient checkpointing that recomputes each block through the adapter of its forward pass (ours).

    The library's own switch recomputes with whatever is in use when `backward` runs: outside `use`, another model.
    As with the library's, blocks are checkpointed in training mode only (`model.train()`). Needs no adapters.
    """
    def contexts():
        shared = vars(model).get("_lora")
        return nullcontext(), shared.using(shared.choice) if shared else nullcontext()

    # transformers renamed its switch, and the old name warns.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False, "context_fn": contexts})


def parameters(model: nn.Module, adapter) -> list:
    """The parameters of one adapter, for its optimizer: r (in + out) numbers for each adapted layer."""
    i, shared = _shared(model).index(adapter), _shared(model)
    return [p for layer in shared.layers.values() for p in (layer.A[i], layer.B[i])]


@torch.no_grad()
def merge(model: nn.Module, adapter) -> float:
    """Add an adapter to the base weights: W + (alpha / r) B A, summed in float32 and rounded once to W's precision.

    Until `unmerge` the model is a plain one (`save_pretrained` writes a normal checkpoint), and a second merge is
    refused. Returns the share of the change that W's precision swallowed, |lost| / |change|: 0 in float32; from 1 % on
    a warning says so. The old weights are kept on the CPU.
    """
    shared = _shared(model)
    i = shared.index(adapter)
    if shared.originals:
        raise LoraError("an adapter is merged already; call unmerge first")
    lost = total = 0.0
    for name, layer in shared.layers.items():
        weight = layer.base.weight
        delta = layer.B[i] @ layer.A[i] * (shared.alpha / shared.rank)      # [out, in]
        wanted = weight.float() + (delta.T if isinstance(layer.base, Conv1D) else delta)
        shared.originals[name] = weight.to("cpu", copy=True)
        weight.copy_(wanted)
        lost += (wanted - weight.float()).square().sum().item()
        total += delta.square().sum().item()
        model.set_submodule(name, layer.base)
    share = math.sqrt(lost / total) if total else 0.0
    if share >= 0.01:
        warnings.warn(f"merge: {weight.dtype} swallowed {share:.0%} of the adapter's change; use a float32 base", stacklevel=3)
    return share


@torch.no_grad()
def unmerge(model: nn.Module) -> None:
    """Undo `merge` exactly, from the kept weights; subtracting the change again would round to others."""
    shared = _shared(model)
    if not shared.originals:
        raise LoraError("no adapter is merged")
    for name, original in shared.originals.items():
        shared.layers[name].base.weight.copy_(original)
        model.set_submodule(name, shared.layers[name])
    shared.originals.clear()
