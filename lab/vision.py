"""Agents that see: what a picture is here, and how it goes with the one pass in which a model reads its prompt.

A prompt is text with a mark where the picture stands, and knows its problem's picture (`lab.data.Prompt`). The model's own
processor turns both into token ids, in which the mark has become as many places as the picture takes, and tensors (`look`).
These go into the prompt's pass and into no other: the K completions continue its cache, so a picture is read once per group, in
sampling and in learning, and gradients flow back through the cache, exactly.

Two things differ by family, and both stay in this file:
  - What a processor returns is strung together, picture after picture, or has a row for each token (`..._type_ids`): `together`.
  - Where a token stands. In the models of Qwen's kind (M-RoPE: Wang et al. 2024, Qwen2-VL, section 2.1) a picture of H x W places
    moves what follows it by max(H, W), not by H W. The library knows the places of a prompt; `Cache.shift` keeps how far they
    moved for the tokens that follow.
"""

import base64
import binascii
import functools
import hashlib
import importlib
import io
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache

# ---------------------------------------------------------------- pictures

MOST = 40_000_000  # pixels: a camera's photograph has 12 to 24 million, and a file of a few kilobytes can unfold into billions
# What PIL raises on a file that is damaged, cut off, or no picture at all.
BROKEN = EOFError, IndexError, OSError, SyntaxError, TypeError, ValueError, struct.error


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture as it is stored: in a file, as a file's bytes, or opened by somebody else (PIL). It is opened when it is read."""

    content: object  # Path, bytes, or PIL.Image.Image
    name: str  # by which errors and samples.jsonl call it

    def opened(self):
        """A PIL image whose size is known, and of which no pixel is read yet. ValueError, with the reason, if it is unusable."""
        images = importlib.import_module("PIL.Image")  # comes with matplotlib, and is needed by nobody else
        if isinstance(self.content, Path) and not self.content.is_file():
            raise ValueError(f"there is no picture {self.name}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", images.DecompressionBombWarning)  # the bound below is lower
                file = io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content
                image = file if isinstance(file, images.Image) else images.open(file)
        except images.DecompressionBombError:
            raise ValueError(f"{self.name} has far more than {MOST // 10**6} million pixels: make it smaller") from None
        except BROKEN:
            raise ValueError(f"{self.name} is no picture that can be read: save it as PNG or JPEG") from None
        if image.width * image.height > MOST:
            size = f"{image.width} x {image.height}"
            raise ValueError(f"{self.name} has {size} pixels, more than {MOST // 10**6} million: make it smaller")
        return image

    def pixels(self):
        """The picture as a PIL image in colour, upright; what is transparent is white, as paper is. ValueError as above."""
        image = self.opened()
        try:
            image = importlib.import_module("PIL.ImageOps").exif_transpose(image)  # photographs say which side is up
            if image.has_transparency_data:
                image = image.convert("RGBA")
                paper = importlib.import_module("PIL.Image").new("RGBA", image.size, "white")
                image = importlib.import_module("PIL.Image").alpha_composite(paper, image)
            return image.convert("RGB")
        except BROKEN:
            raise ValueError(f"{self.name} is damaged or cut off: put a whole picture there") from None

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what is stored: by it a run knows what it read, and two problems that they show the same."""
        content = self.content.read_bytes() if isinstance(self.content, Path) else self.content
        return hashlib.sha256(content if isinstance(content, bytes) else content.tobytes()).hexdigest()


def stored(field: str, value, folder: Path, place: str) -> Picture:
    """The picture that a field of a record holds. ValueError, with the reason, if there are several, or if it cannot be read.

    value: a path (beside the file of the records, `folder`), the bytes of a file, in base64 where the records are JSON, a PIL
    image, a dictionary of "bytes" and "path" as the datasets package stores them, or a list of one of these.
    """
    if isinstance(value, list):
        if len(value) > 1:
            raise ValueError(f'field "{field}" holds {len(value)} pictures: an agent is shown one')
        value = value[0]
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        value = decoded(value) or folder / value
    elif not isinstance(value, bytes) and not hasattr(value, "tobytes"):
        raise ValueError(f'field "{field}" holds a {type(value).__name__}, not a picture')
    name = str(value) if isinstance(value, Path) else f'the picture in "{field}"'
    Picture(value, name).opened()
    return Picture(value, name if isinstance(value, Path) else f"the picture of {place}")


def as_stored(rows, fields: Sequence[str]):
    """A part of a set of the datasets package that gives the files of its pictures: their pixels would fill the memory."""
    kinds = importlib.import_module("datasets")
    for name in set(fields) & set(rows.features):
        feature = rows.features[name]
        one, files = getattr(feature, "feature", feature), kinds.Image(decode=False)  # a list has a feature inside
        if isinstance(one, kinds.Image):
            rows = rows.cast_column(name, files if one is feature else type(feature)(files))
    return rows


def try_pictures() -> list[Picture]:
    """Two pictures of noise, of two shapes: what a model must read alike in every way (`lab.guards.try_out`)."""
    draw, images = torch.Generator().manual_seed(0), importlib.import_module("PIL.Image")
    shapes = (96, 64, 3), (64, 128, 3)  # [H,W,3]
    noise = [torch.randint(256, shape, generator=draw, dtype=torch.uint8).numpy() for shape in shapes]
    return [Picture(images.fromarray(pixels), "a picture of noise") for pixels in noise]


def decoded(text: str) -> bytes | None:
    """The bytes of a picture in base64, with or without "data:image/png;base64," before it; None for a path."""
    if text.startswith(("http://", "https://")):
        raise ValueError(f"pictures are not downloaded: save {text:.60} beside the data")
    head, _, body = text.rpartition("base64,")
    try:
        return base64.b64decode("".join(body.split()), validate=True) if head.startswith("data:") or len(text) > 200 else None
    except binascii.Error:
        if len(text) > 1000:
            raise ValueError("what stands for a picture is neither a path nor base64") from None
        return None


# ---------------------------------------------------------------- a prompt and its picture, for one model


def read_pictures(processor):
    """The tokenizer of a model with eyes. It carries the processor, which has the chat template of most of these models."""
    tokenizer = processor.tokenizer
    tokenizer.processor, tokenizer.chat_template = processor, processor.chat_template or tokenizer.chat_template
    return tokenizer


def saved_with(tokenizer):
    """What writes a model's tokenizer to a folder: its processor, if it reads pictures, so that the folder is whole."""
    return getattr(tokenizer, "processor", tokenizer)


def look(text: str, image: Picture, tokenizer) -> tuple[list[int], dict[str, Tensor]]:
    """Token ids, with the places that the picture takes, and the tensors that it became. `text` holds the mark of one picture.

    ValueError if the model's processor cannot take it.
    """
    pixels, begun = image.pixels(), bool(tokenizer.bos_token) and text.startswith(tokenizer.bos_token)
    found = tokenizer.processor(text=[text], images=[pixels], return_tensors="pt", add_special_tokens=not begun)
    seen = {name: value for name, value in found.items() if name not in ("input_ids", "attention_mask")}
    return found["input_ids"][0].tolist(), seen


def together(seen: Sequence[dict[str, Tensor]], mask: Tensor, model) -> dict[str, Tensor]:
    """What n rows see as one batch; `mask` [n,S] says where each begins. {} where no row sees anything.

    What has one row per token is padded to [n,S]; all else is strung together, padded behind to the largest where sizes differ.
    """
    def join(name: str) -> Tensor:
        if name.endswith("token_type_ids"):
            starts, width = mask.int().argmax(-1).tolist(), mask.shape[1]
            rows = [one.get(name, torch.zeros(1, 0, dtype=torch.long)) for one in seen]  # [1,T] each
            return torch.cat([pad(r, (s, width - s - r.shape[1])) for r, s in zip(rows, starts, strict=True)]).to(model.device)
        parts = [one[name] for one in seen if name in one]
        largest = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
        room = [[n for have, want in zip(p.shape[:0:-1], largest[::-1], strict=True) for n in (0, want - have)] for p in parts]
        whole = torch.cat([pad(part, by) for part, by in zip(parts, room, strict=True)]).to(model.device)
        return whole.to(model.dtype) if whole.is_floating_point() else whole

    return {name: join(name) for name in dict.fromkeys(name for one in seen for name in one)}


# ---------------------------------------------------------------- where a token stands


class Cache(DynamicCache):
    """Keys and values, and how far a picture moves what follows it [n,1]; rows are repeated and left out together."""

    shift: Tensor | None = None

    def reorder_cache(self, rows: Tensor) -> None:
        super().reorder_cache(rows)
        self.shift = None if self.shift is None else self.shift[rows]

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self.shift = None if self.shift is None else self.shift.repeat_interleave(repeats, 0)


def positions(model, ids: Tensor, mask: Tensor, cache: Cache | None, seen: dict[str, Tensor]) -> Tensor:
    """The position of each of `ids` [n,S], whose `mask` [n,cached+S] covers what is cached too: [n,S], or [3,n,S] in M-RoPE."""
    plain = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]  # of the new tokens; padding does not count
    rope = getattr(model.base_model, "get_rope_index", None)
    if seen and rope:
        found, shift = rope(ids, attention_mask=mask, **seen)
        if cache is not None:
            cache.shift = shift
        return found
    return plain + cache.shift if getattr(cache, "shift", None) is not None else plain
