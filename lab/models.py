"""Pretrained models: loading them, where a text ends, and how a question becomes the prompt that a model reads.

`chat` makes the prompt text, `encode` its token ids; both are used for sampling and for scoring alike, so that the model is
trained on exactly what it was asked.
"""

import functools
import inspect
import math
import re

import torch
import transformers  # its auto classes, which take long to import, are found when they are used
from jinja2 import TemplateError
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DummyLayer, DynamicLayer, DynamicSlidingWindowLayer

from lab.data import UserError


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError
        torch.empty(1, device=device)
        return device
    except (RuntimeError, AssertionError):
        raise UserError(f"--device {name} is not there on this machine; try --device cpu") from None


def load_model(source: str, device: torch.device, dtype: str):
    """A pretrained model and its tokenizer, from the hub or from a folder; no code that comes with them is run."""
    try:
        # Without this word the library asks at the terminal whether to run code that comes with a model.
        safe = {"trust_remote_code": False}
        config = transformers.AutoConfig.from_pretrained(source, **safe)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **safe)
        for name, value in vars(config).items():
            if "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)  # the policy that is scored is the policy that was sampled
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype=getattr(torch, dtype), output_loading_info=True, **safe
        )
    except (
        OSError,
        ValueError,
        KeyError,
        ImportError,
        RuntimeError,
        TypeError,
        AttributeError,
        SafetensorError,
    ) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"cannot load the model {source!r} (a folder with config.json and weights, or a name on a reachable hub): {reason}"
        ) from None
    absent = sorted(found["missing_keys"]) + [str(key) for key in found["mismatched_keys"]]
    if absent:  # the library would draw these at random
        raise UserError(f"the weights of {source!r} do not fit its config.json: {absent[0]} and {len(absent) - 1} more")
    if not encode("1", tokenizer):
        raise UserError(f"the tokenizer of {source!r} is empty: are its tokenizer files there?")
    if (head := model.get_output_embeddings()) is not None:
        head.register_forward_pre_hook(in_one_piece)
    return model.to(device).eval(), tokenizer


def in_one_piece(_, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """A hook of the output layer, [n,S,H] -> [n,S,H]: for a slice of a longer text PyTorch would copy that layer's weights n times.

    It is the largest layer of a small model: on a CPU that took half of a step's time, and in bfloat16 seven eighths.
    """
    return (inputs[0].contiguous(),)


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids that end a completion: the tokenizer's, and those the model declares (chat models often have two)."""
    declared = getattr(model.config.get_text_config(), "eos_token_id", None)  # a model with eyes has a part for text
    every = (tokenizer.eos_token_id, declared, model.generation_config.eos_token_id)
    found = frozenset(i for ids in every for i in ([ids] if isinstance(ids, int) else ids or []))
    if not found:
        raise UserError("this model has no end-of-sequence token, so its completions could never end: set tokenizer.eos_token")
    return found


def context_length(model: PreTrainedModel) -> float:
    """The longest text that the model can read, in tokens."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None) or math.inf


def fits(agent, prompt: str, max_new_tokens: int) -> bool:
    """Whether a prompt and a completion of so many tokens fit the agent's context."""
    return len(encode(prompt, agent.tokenizer)) + max_new_tokens <= context_length(agent.model)


def check_room(model: PreTrainedModel, prompt: int, most: int) -> None:
    """Refuse prompts that do not fit the model's context with `most` new tokens: nothing is cut in silence."""
    if prompt + most > context_length(model):
        limit = context_length(model)
        raise UserError(f"a prompt of {prompt} tokens and {most} new ones do not fit the model's context of {limit}: "
                        "lower --max-new-tokens or leave the long problems out")  # fmt: skip


def plain_text(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """What tokens say, as written: the library's clean-up of blanks would make "1 .5" the number 1.5."""
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def stopped(tokenizer: PreTrainedTokenizerBase, ids: Tensor, stop: str) -> Tensor:
    """Which of the rows `ids` [n,t] say `stop` at their end, in one token or over several: bool [n].

    As many tokens are read as the text has bytes: a token holds one at least, and one more keeps the first from being trimmed.
    """
    tails = [plain_text(tokenizer, row) for row in ids[:, -len(stop.encode()) - 1 :].tolist()]
    return torch.tensor([stop in text for text in tails], device=ids.device)


def opening(prompt: str) -> str:
    """What belongs before a completion when it is read: some chat templates open the private reasoning themselves."""
    found = re.search(r"<think(?:ing)?>\s*\Z", prompt)
    return found[0] if found else ""


def spoken(tokenizer: PreTrainedTokenizerBase, row: list[int], n: int, silent: frozenset[int], stop: str | None) -> str:
    """The text of the first `n` tokens of a row, without the end token, and up to `stop` where there is one."""
    text = plain_text(tokenizer, row[: n - (row[n - 1] in silent)])
    return text.split(stop, 1)[0] if stop else text


# ---------------------------------------------------------------- caches


def mask_to_read(mask: Tensor, ids: Tensor, cache: DynamicCache | None) -> Tensor:
    """The part of `mask` [n,cached+S] that a model wants for `ids` [n,S]: attention looks back, a recurrent state has done so.

    Mamba multiplies its new inputs by the mask, and a mask of another length is broadcast without a word.
    """
    looks_back = cache is None or any(isinstance(layer, DynamicLayer) for layer in cache.layers)
    return mask if looks_back else mask[:, -ids.shape[1] :]


@functools.cache
def cache_argument(kind: type) -> str:
    """What this class of model calls its cache: transformers 5.24 renamed the argument, and warns about the old name."""
    return "cache" if "cache" in inspect.signature(kind.forward).parameters else "past_key_values"


def can_share_prompt(model: PreTrainedModel) -> bool:
    """Whether a prompt's cache can be repeated for its K completions *with its gradient*: not where it is a recurrent state."""
    shareable = (DynamicLayer, DynamicSlidingWindowLayer, DummyLayer)
    return all(type(layer) in shareable for layer in DynamicCache(config=model.config).layers)


def with_own_prompt(prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """What a model reads whose cache cannot be shared: every completion [p*K,L] behind its own copy of its prompt [p,T].

    Returns ids, their mask, the tokens that follow each of them, and which of these are scored; all [p*K,T+L-1].
    """
    k, before = len(ids) // len(prompt_ids), prompt_ids.shape[1] - 1  # the last prompt token predicts the first written one
    whole = torch.cat([prompt_ids.repeat_interleave(k, 0), ids[:, :-1]], 1)
    whole_mask = torch.cat([prompt_mask.repeat_interleave(k, 0), mask[:, :-1]], 1)
    return whole, whole_mask, pad(ids, (before, 0)), pad(mask, (before, 0))


# ---------------------------------------------------------------- prompts


def render(tokenizer, turns: list[tuple[str, str]], thinking: bool) -> str:
    """The chat template filled with turns of (role, content), up to where the assistant begins to speak."""
    messages = [{"role": role, "content": content} for role, content in turns]
    known = {"enable_thinking": thinking} if "enable_thinking" in tokenizer.get_chat_template() else {}
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **known)


def chat(question: str, tokenizer, system: str | None = None, thinking: bool = False) -> str:
    """The prompt text for one question, ending where the model's answer begins.

    - With a chat template: one system turn (if given), one user turn, the header of the assistant's turn. A template
      that refuses or ignores the system role gets the system text at the head of the user turn; it is never dropped.
    - `system=None` says nothing, and some templates then put in a line of their own (SmolLM2: "You are a helpful AI
      assistant named SmolLM ..."); it is in the text returned. `system=""` asks for an empty system turn instead.
    - `thinking` is passed on as `enable_thinking` to templates that know it (Qwen3), and means nothing to others.
    - Without a template (a base model): the system text, then "Question: ... Answer:", the form of most exam prompts.
    - A tokenizer with `plain_prompt = True` reads the question as it is, and has no place for a system text.
    """
    system = system and system.strip()
    if getattr(tokenizer, "plain_prompt", False):
        if system:
            raise UserError("this model reads the bare question and has no place for a system text: leave it out")
        return question
    if not getattr(tokenizer, "chat_template", None):
        return (f"{system}\n\n" if system else "") + f"Question: {question}\nAnswer:"
    if system is not None:
        try:
            text = render(tokenizer, [("system", system), ("user", question)], thinking)
            if text.count(system) > question.count(system):
                return text
        except TemplateError:
            pass  # the role is refused
        question = f"{system}\n\n{question}" if system else question
    try:
        return render(tokenizer, [("user", question)], thinking)
    except TemplateError as error:
        raise UserError(f"the model's chat template refuses a plain question: {error}") from None


def encode(prompt: str, tokenizer) -> list[int]:
    """Token ids of a prompt, beginning once with what the tokenizer puts before a text (its BOS), if anything.

    The text of a chat template often begins with the BOS already, and is then not given another. What a tokenizer puts
    *after* a text (an EOS) is left off: the prompt ends where the answer begins. Nothing is ever cut.
    """
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    dressed = tokenizer.encode(prompt, add_special_tokens=True)
    width = next((i for i in range(len(dressed)) if dressed[i : i + len(ids)] == ids), 0)
    prefix = dressed[:width]  # nearly always [] or [bos]
    while len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos_token_id:
        ids = ids[1:]
    return ids if ids[:width] == prefix else prefix + ids
