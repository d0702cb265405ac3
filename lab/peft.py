"""Adapters on disk, in PEFT's format: what is trained here loads with `PeftModel.from_pretrained`, and the other way round."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from transformers.pytorch_utils import Conv1D

from lora import LoraError, _match, _shape, _shared, inject, parameters

CONFIG_FILE, TENSOR_FILE = "adapter_config.json", "adapter_model.safetensors"
KEY = "base_model.model.{}.lora_{}.weight"  # PEFT's name for A and B of one layer
# Entries of PEFT's config that do not change what a saved adapter computes. Any other entry that is set is refused.
NEUTRAL = {"r", "lora_alpha", "target_modules", "task_type", "auto_mapping", "peft_version", "revision", "lora_dropout",
           "base_model_name_or_path", "inference_mode", "fan_in_fan_out", "megatron_core", "qalora_group_size"}
PLAIN = {"peft_type": ["LORA"], "bias": ["none"], "init_lora_weights": [True, "gaussian"]}


def save(model: nn.Module, adapter, folder) -> None:
    """Write one adapter to `folder` in PEFT's format, for `load` and for `PeftModel.from_pretrained`."""
    shared, folder = _shared(model), Path(folder)
    i, names = shared.index(adapter), list(shared.layers)
    endings = sorted({name.rpartition(".")[2] for name in names})
    tensors = {KEY.format(name, part): getattr(layer, part)[i].detach().cpu().contiguous()
               for name, layer in shared.layers.items() for part in "AB"}
    meant = [name for name, _ in model.named_modules() if name.rpartition(".")[2] in endings]
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "inference_mode": True, "bias": "none",
              "r": shared.rank, "lora_alpha": shared.alpha, "lora_dropout": 0.0,
              "target_modules": endings if meant == names else names,
              "fan_in_fan_out": any(isinstance(layer.base, Conv1D) for layer in shared.layers.values()),
              "base_model_name_or_path": getattr(getattr(model, "config", None), "_name_or_path", None) or None}
    base = _fingerprint({name: layer.base for name, layer in shared.layers.items()}, shared.originals)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSOR_FILE, metadata={"format": "pt", "base_sha256": base})
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _fingerprint(layers: dict, originals: dict) -> str:
    """Tells bases of one shape apart: a hash of a weight row of each layer, the same in bfloat16 as in float32.

    originals: the weights of a layer from before an adapter was merged into it.
    """
    weights = [originals.get(name, layer.weight) for name, layer in layers.items()]
    rows = [weight[0].detach().to("cpu", torch.bfloat16).view(torch.int16) for weight in weights]
    return hashlib.sha256(torch.cat(rows).numpy().tobytes()).hexdigest()


def _read_config(path: Path) -> dict:
    """PEFT's config; whatever asks for more than plain LoRA is refused by name."""
    try:
        config = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise LoraError(f"{path} cannot be read: {error}") from None
    for key, kind in {"r": int, "lora_alpha": int | float, "target_modules": list}.items():
        if not isinstance(config.get(key), kind):
            raise LoraError(f"{path}: {key} must be of type {kind}, not {config.get(key)!r}")
    for key, value in config.items():
        if value and key not in NEUTRAL and value not in PLAIN.get(key, []):
            raise LoraError(f"{path}: {key}={value!r} is not supported; only plain LoRA is")
    return config


def _read_tensors(path: Path, shapes: dict, base: str) -> dict:
    """The tensors of an adapter file, as float32, if their names and shapes are exactly `shapes`."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError) as error:
        raise LoraError(f"{path} cannot be read: {error}") from None
    faults = [f"missing key {key}" for key in shapes if key not in tensors]
    faults += [f"unexpected key {key}" for key in tensors if key not in shapes]
    faults += [f"{key} has shape {tuple(tensors[key].shape)}, but this model and rank need {shape}"
               for key, shape in shapes.items() if key in tensors and tensors[key].shape != shape]
    if metadata.get("base_sha256", base) != base:
        faults.insert(0, "base_sha256 differs: this adapter was made for a base with other weights")
    if faults:
        more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise LoraError(f"{path}: {'; '.join(faults[:3])}{more}")
    return tensors


@torch.no_grad()
def load(model: nn.Module, adapter, folder) -> int:
    """Read an adapter in PEFT's format, with its rank and alpha, from `folder`; returns its index.

    adapter: the index or name of the one to overwrite; an unknown name is added. A model without adapters is injected.
    Unless the file fits the model exactly, raises LoraError naming the key, and changes nothing.
    """
    config, shared = _read_config(Path(folder) / CONFIG_FILE), vars(model).get("_lora")
    rank, alpha, targets = config["r"], config["lora_alpha"], config["target_modules"]
    if shared and (rank, alpha) != (shared.rank, shared.alpha):
        raise LoraError(f"{folder}: r={rank}, lora_alpha={alpha}, but this model's adapters have r={shared.rank}, "
                        f"lora_alpha={shared.alpha}")
    new = isinstance(adapter, str) and not (shared and adapter in shared.names)
    if not new:
        _shared(model).index(adapter)
    layers = {n: layer.base for n, layer in shared.layers.items()} if shared else _match(model, targets)
    shapes = {}
    for name, layer in layers.items():
        outputs, inputs = _shape(layer)
        shapes |= {KEY.format(name, "A"): (rank, inputs), KEY.format(name, "B"): (outputs, rank)}
    base = _fingerprint(layers, shared.originals if shared else {})
    tensors = _read_tensors(Path(folder) / TENSOR_FILE, shapes, base)
    if shared is None:
        inject(model, rank, alpha, [adapter], targets)
    elif new:
        shared.add(adapter, 0.0, torch.Generator())
    for key, parameter in zip(shapes, parameters(model, adapter), strict=True):  # both go A, B, layer by layer
        parameter.copy_(tensors[key])
    return model._lora.index(adapter)
