"""Pretrained models: loading them, where a text ends, and how a question becomes the prompt that a model reads.

`chat` makes the prompt text, `encode` its token ids; both are used for sampling and for scoring alike, so that the model is
trained on exactly what it was asked. What a picture adds is in vision.py.
"""

import functools
import inspect
import math
import os
import re

import torch
import transformers  # its auto classes, which take long to import, are found when they are used
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer

from lab import code
from lab.data import UserError
from lab.extract import extract_answer
from lab.vision import Cache, look, positions, read_pictures, together


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one; of several processes (torchrun) each takes its own."""
    if name == "auto":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError
        torch.empty(1, device=device)
        return device
    except (RuntimeError, AssertionError):
        raise UserError(f"--device {name} is not there on this machine; try --device cpu") from None


def load_model(source: str, device: torch.device, dtype: str, sees: bool = False):
    """A pretrained model and its tokenizer, from the hub or from a folder; no code that comes with them is run.

    If it is to see pictures, it is loaded with its eyes, and `tokenizer.processor` makes of a picture what it reads.
    """
    try:
        # Without this word the library asks at the terminal whether to run code that comes with a model.
        safe = {"trust_remote_code": False}
        config = transformers.AutoConfig.from_pretrained(source, **safe)
        if sees and type(config) not in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
            raise ValueError("it reads text alone, and the problems have pictures; choose an image-text-to-text model")
        if sees:
            tokenizer = read_pictures(transformers.AutoProcessor.from_pretrained(source, **safe))
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, **safe)
        no_dropout(config)
        model = whole_model(source, sees, config=config, dtype=getattr(torch, dtype))
    except Exception as error:  # of the library, torch, safetensors and tokenizers, which raises plain ones, on any broken file
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        # Most processors have a part for video, which wants torchvision.
        reason += "; pip install -r requirements-vision.txt" if sees and isinstance(error, ImportError) else ""
        raise UserError(
            f"cannot load the model {source!r} (a folder with config.json and weights, or a name on a reachable hub): {reason}"
        ) from None
    if getattr(model, "_hf_peft_config_loaded", False):
        raise UserError(f"{source!r} holds an adapter beside its weights, and both were loaded: move adapter_config.json away")
    if len(tokenizer) > (rows := model.get_input_embeddings().weight.shape[0]):
        raise UserError(f"the tokenizer of {source!r} has {len(tokenizer)} tokens, its model {rows}: they do not fit together")
    if not encode("1", tokenizer):
        raise UserError(f"the tokenizer of {source!r} is empty: are its tokenizer files there?")
    if (head := model.get_output_embeddings()) is not None:
        head.register_forward_pre_hook(in_one_piece)
    # What else it says of sampling counts for nothing here, and can be such that the library refuses to write it.
    model.generation_config = GenerationConfig(eos_token_id=model.generation_config.eos_token_id)
    return model.to(device).eval(), tokenizer


def whole_model(source, sees: bool = False, **options) -> PreTrainedModel:
    """The library's loading of a language model, with its eyes if it `sees`; ValueError for weights that it would draw at random.

    What the library has no text model of is loaded with its eyes always.
    """
    options |= {"output_loading_info": True, "trust_remote_code": False}
    config = options.get("config") or transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
    eyes = type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    eyes &= sees or type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    kind = transformers.AutoModelForImageTextToText if eyes else transformers.AutoModelForCausalLM
    model, found = kind.from_pretrained(source, **options)
    if absent := sorted(found["missing_keys"]) + [str(key) for key in found["mismatched_keys"]]:
        raise ValueError(f"its weights do not fit its config.json: {absent[0]} and {len(absent) - 1} more")
    return model


def no_dropout(config: PreTrainedConfig) -> None:
    """Turn off every dropout of a model, and of its parts: the policy that is scored is the policy that was sampled."""
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            no_dropout(value)
        elif "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)


def in_one_piece(_, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """A hook of the output layer, [n,S,H] -> [n,S,H]: for a slice of longer texts PyTorch copies that layer's weights n times.

    They are the largest of a small model: in bfloat16 on a CPU, the copies took three quarters of a step's time.
    """
    return (inputs[0].contiguous(),)


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids that end a completion: the tokenizer's, and those the model declares (chat models often have two)."""
    declared = getattr(model.config.get_text_config(), "eos_token_id", None)  # a model with eyes has a part for text
    # A text that writes the mark of a picture is over: there is none behind it.
    mark = getattr(model.config, "image_token_id", None) if hasattr(tokenizer, "processor") else None
    every = (tokenizer.eos_token_id, declared, model.generation_config.eos_token_id, mark)
    found = frozenset(i for ids in every for i in ([ids] if isinstance(ids, int) else ids or []))
    if not found:
        raise UserError("this model has no end-of-sequence token, so its completions could never end: set tokenizer.eos_token")
    return found


def context_length(model: PreTrainedModel) -> float:
    """The longest text that the model can read, in tokens."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None) or math.inf


def fits(agent, prompt: str, max_new_tokens: int) -> bool:
    """Whether a prompt and a completion of so many tokens fit the agent's context."""
    return len(encode_all(prompt, agent.tokenizer)[0]) + max_new_tokens <= context_length(agent.model)


def check_room(model: PreTrainedModel, prompt: int, most: int) -> None:
    """Refuse prompts that do not fit the model's context with `most` new tokens: nothing is cut in silence."""
    if prompt + most > context_length(model):
        limit = context_length(model)
        raise UserError(f"a prompt of {prompt} tokens and {most} new ones do not fit the model's context of {limit}: "
                        "lower --max-new-tokens or leave the long problems out")  # fmt: skip


def plain_text(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """What tokens say, as written: the library's clean-up of blanks would make "1 .5" the number 1.5."""
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def can_write(tokenizer: PreTrainedTokenizerBase, text: str) -> bool:
    """Whether some tokens say `text`: those that it is read as, or any one."""
    read_as = plain_text(tokenizer, encode(text, tokenizer))
    return text in read_as or any(text in plain_text(tokenizer, [i]) for i in range(len(tokenizer)))


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
    """What this class of model calls its cache: transformers 5.24 renamed the argument, and warns about the old names."""
    known = inspect.signature(kind.forward).parameters
    return next((name for name in ("cache", "cache_params") if name in known), "past_key_values")  # the second is Mamba's


def inputs(model, ids: Tensor, mask: Tensor, cache: Cache | None, seen=()) -> dict:
    """What a model is given to read `ids` [n,S] behind what `cache` holds; `mask` [n,cached+S] covers both.

    seen: of a prompt's pass, what its n rows see (`encode_all`), if anything.
    """
    pictures = together(seen, mask, model)
    place = positions(model, ids, mask, cache, pictures)
    kept = {"use_cache": False} if cache is None else {"use_cache": True, cache_argument(type(model)): cache}
    return {"input_ids": ids, "attention_mask": mask_to_read(mask, ids, cache), "position_ids": place} | kept | pictures


def can_share_prompt(model: PreTrainedModel) -> bool:
    """Whether a prompt's cache can be repeated for its K completions *with its gradient*: not where it is a recurrent state."""
    shareable = ("DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer")  # by name: older libraries lack the last
    return all(type(layer).__name__ in shareable for layer in DynamicCache(config=model.config).layers)


def with_own_prompt(prompt_ids: Tensor, prompt_mask: Tensor, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """What a model reads whose cache cannot be shared: every completion [p*K,L] behind its own copy of its prompt [p,T].

    Returns ids, their mask, the tokens that follow each of them, and which of these are scored; all [p*K,T+L-1]. An end is
    written and never read: it may be the mark of a picture.
    """
    k, before = len(ids) // len(prompt_ids), prompt_ids.shape[1] - 1  # the last prompt token predicts the first written one
    whole = torch.cat([prompt_ids.repeat_interleave(k, 0), ids[:, :-1] * mask[:, 1:]], 1)
    whole_mask = torch.cat([prompt_mask.repeat_interleave(k, 0), mask[:, :-1]], 1)
    return whole, whole_mask, pad(ids, (before, 0)), pad(mask, (before, 0))


# ---------------------------------------------------------------- prompts, and the answers to them


def read_answers(style: str, prompts: list[str], texts: list[list[str]], ended: list[list[bool]]) -> list[list[str | None]]:
    """The answers [P][K] to P prompts, None where a completion has none or did not end; of a program it is the behaviour."""
    found = [[extract_answer(opening(prompt) + text, style) if done else None for text, done in zip(*group, strict=True)]
             for prompt, *group in zip(prompts, texts, ended, strict=True)]  # fmt: skip
    tests = [prompt.problem.tests for prompt in prompts if getattr(prompt, "problem", None)]  # a judge's prompt has none
    if any((one is None) == (style == "code") for one in tests):
        raise UserError("--answer code and problems with tests go together" + ": these have none" * (style == "code"))
    if style != "code":
        return found
    if not tests:
        return [[None] * len(group) for group in found]
    keys = iter(code.behaviours([(program, own) for own, group in zip(tests, found, strict=True) for program in group]))
    return [[next(keys) for _ in group] for group in found]


TEXT = "\ufdd0"  # stands, where data spell a token of the tokenizer's, behind the first letter: `encode` reads on anew from there


@functools.cache
def controls(tokenizer: PreTrainedTokenizerBase) -> re.Pattern:
    """Finds the first letter of every control token that a text spells out: <|im_end|>, </s>, <think>, [INST]."""
    spelled = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special or str(token)[0] == "<"}
    several = [re.escape(text) for text in spelled if len(text) > 1]
    return re.compile(rf"(?=(?:{'|'.join(several) or '(?!)'})).", re.DOTALL | re.IGNORECASE)


def render(tokenizer, turns: list[tuple[str, str]], thinking: bool, in_parts: bool, sees: bool = False) -> str:
    """The chat template filled with turns of (role, content), up to where the assistant begins to speak.

    The user's turn begins with the mark of a picture if the model is to see one.
    """
    form = (lambda text: [{"type": "text", "text": text}]) if in_parts else str
    messages = [{"role": role, "content": form(content)} for role, content in turns]
    if sees:
        messages[-1]["content"].insert(0, {"type": "image"})
    switches = {"enable_thinking": thinking, "thinking": thinking, "reasoning_effort": "high" if thinking else "low"}
    template = tokenizer.get_chat_template()
    known = {name: value for name, value in switches.items() if re.search(rf"\b{name}\b", template)}
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **known)


def holds(text: str, turns: list[tuple[str, str]]) -> bool:
    """Whether each turn's content stands in a prompt, beside the others: some templates drop what they do not expect."""
    for _, content in turns:
        if content.strip() not in text:
            return False
        text = text.replace(content.strip(), "", 1)
    return True


def chat(question: str, tokenizer, system: str | None = None, thinking: bool = False, sees: bool = False) -> str:
    """The prompt text for one question, and for a picture before it if the model `sees` one, up to where its answer begins.

    - With a chat template: one system turn (if given), one user turn, the header of the assistant's turn. A template
      that refuses or ignores the system role gets the system text at the head of the user turn; one that wants a list of
      parts gets that. Nothing is ever dropped: a template that leaves out the question is refused.
    - `system=None` says nothing, and some templates then put in a line of their own (SmolLM2: "You are a helpful AI
      assistant named SmolLM ..."); it is in the text returned. `system=""` asks for an empty system turn instead.
    - `thinking` is passed on to templates that know a switch for it (Qwen3: enable_thinking), and means nothing to others.
    - Without a template (a base model): the system text, then "Question: ... Answer:", the form of most exam prompts.
    - A tokenizer with `plain_prompt = True` reads the question as it is, and has no place for a system text.

    The question is data, and may quote a model: control tokens that it spells out are text to `encode`, which finds TEXT there.
    """
    system = system and system.strip()
    if getattr(tokenizer, "plain_prompt", False) and not sees:
        if system:
            raise UserError("this model reads the bare question and has no place for a system text: leave it out")
        return question
    question = controls(tokenizer).sub(rf"\g<0>{TEXT}", question.replace(TEXT, "\ufffd"))
    joined = f"{system}\n\n{question}" if system else question
    if sees and not (hasattr(tokenizer, "processor") and tokenizer.chat_template):
        raise UserError("a problem has a picture, which this model cannot be shown: it has no chat template, or reads text alone")
    if not getattr(tokenizer, "chat_template", None):
        return (f"{system}\n\n" if system else "") + f"Question: {question}\nAnswer:"
    for turns in ([] if system is None else [[("system", system), ("user", question)]]) + [[("user", joined)]]:
        for in_parts in (True,) if sees else (False, True):
            try:
                text, fault = render(tokenizer, turns, thinking, in_parts, sees), "leaves out the question or the system text"
            except Exception as error:  # a template is a program, and whatever it divides or looks up can fail
                text, fault = "", f"refuses a plain question: {type(error).__name__}: {str(error).strip() or 'no reason given'}"
            if text and holds(text, turns):
                return text
    raise UserError(f"the model's chat template {fault.splitlines()[0]}")


def encode(prompt: str, tokenizer) -> list[int]:
    """Token ids of a prompt, beginning once with what the tokenizer puts before a text (its BOS), if anything.

    The text of a chat template often begins with the BOS already, and is then not given another. What a tokenizer puts
    *after* a text (an EOS) is left off: the prompt ends where the answer begins. Nothing is ever cut.
    """
    prompt, *quoted = prompt.split(TEXT)
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    dressed = tokenizer.encode(prompt, add_special_tokens=True)
    width = next((i for i in range(len(dressed)) if dressed[i : i + len(ids)] == ids), 0)
    prefix = dressed[:width]  # nearly always [] or [bos]
    while len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos_token_id:
        ids = ids[1:]
    ids = ids if ids[:width] == prefix else prefix + ids
    return ids + [i for part in quoted for i in tokenizer.encode(part, add_special_tokens=False)]


def encode_all(prompt: str, tokenizer) -> tuple[list[int], dict[str, Tensor]]:
    """Token ids of a prompt (`lab.data.Prompt`) and what its picture became, {} without one; `inputs` takes both."""
    image = getattr(getattr(prompt, "problem", None), "image", None)
    if image is None:
        return encode(prompt, tokenizer), {}
    first, *quoted = prompt.split(TEXT)
    try:
        ids, seen = look(first, image, tokenizer)
    except ValueError as error:
        raise UserError(f"{image.name}: {next(iter(str(error).splitlines()), 'it cannot be read')}") from None
    return ids + [i for part in quoted for i in tokenizer.encode(part, add_special_tokens=False)], seen
