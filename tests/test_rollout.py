"""Sampling: what is drawn, what is masked, and that the two savings (one prompt a group, rows that leave) change nothing."""

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import tiny
import torch
from transformers import Gemma3Config, GenerationConfig

import grpo
from grpo import Agent, complete, draw_token, forward, left_pad, sample
from lab import models
from lab.data import UserError
from lab.models import end_tokens

PROMPTS = [[1, 5, 6, 7, 8, 9, 10, 11], [1, 9, 8], [1, 4, 4, 4, 4, 4]]


def uniform(rows: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(rows, length, generator=torch.Generator().manual_seed(seed))


def write(model, prompts=PROMPTS, k=4, length=12, seed=1, temperature=1.0):
    return complete(
        model,
        tiny.tokenizer(),
        prompts,
        [None] * len(prompts),
        k,
        temperature,
        uniform(len(prompts) * k, length, seed),
    )


def test_first_end_token_is_an_action_and_padding_is_not():
    """T01: pad and end are one id, so a mask by value either loses the end (never learnt) or counts the padding."""
    found = write(tiny.model())
    rows = list(zip(found.completion_ids.flatten(0, 1).tolist(), found.mask.flatten(0, 1).tolist(), strict=True))
    assert any(sum(mask) < len(mask) for _, mask in rows)
    for ids, mask in rows:
        length = ids.index(2) + 1 if 2 in ids else len(ids)
        assert mask == [1] * length + [0] * (len(ids) - length) and set(ids[length:]) <= {2}


def test_prompt_attention_ignores_token_values():
    """T01: a chat prompt that holds the end id twice keeps both; only the padding on the left is masked."""
    ids, mask = left_pad([[1, 9, 2, 7, 1, 4, 2, 7], [3]], pad=2, device=torch.device("cpu"))
    assert mask.tolist() == [[1] * 8, [0] * 7 + [1]]
    assert ids[1].tolist() == [2] * 7 + [3]


def test_every_end_token_ends():
    """Chat models declare two end tokens; knowing one of them lets completions run on to the limit."""
    model, tokenizer = tiny.model(), tiny.tokenizer()
    model.generation_config.eos_token_id = [2, 40]
    assert end_tokens(model, tokenizer) == {2, 40}
    found = write(model, k=16)
    last = found.completion_ids.gather(-1, found.mask.sum(-1, keepdim=True) - 1)[found.finished]
    assert set(last.flatten().tolist()) == {2, 40}


def test_stop_text_ends_and_is_not_spoken():
    """A base model goes on with the next question. The token that holds the stop may hold the answer's end too: "}" + newline."""
    tokenizer = tiny.tokenizer()
    assert grpo.spoken(tokenizer, [5, 6, 17], 3, frozenset([2]), "7") == "w5 w6 w1"
    assert grpo.spoken(tokenizer, [5, 6, 2], 3, frozenset([2]), "7") == "w5 w6"


@pytest.mark.parametrize("stop", ["w1", "5 w", "w6 w5", "w12 w28"])
def test_a_stop_text_over_several_tokens_ends_there(stop):
    """A stop that is looked for in single tokens is written on, and what follows is trained on."""
    free, cut = (complete(tiny.model(), tiny.tokenizer(), PROMPTS, [None] * len(PROMPTS), 8, 1.0, uniform(24, 12), s)
                 for s in (None, stop))  # fmt: skip
    stopped = 0
    for whole, ids, mask, done, text in zip(*(x.flatten(0, 1).tolist() for x in (
            free.completion_ids, cut.completion_ids, cut.mask, cut.finished)), sum(cut.texts, []), strict=True):  # fmt: skip
        prefixes = [tiny.tokenizer().decode(whole[: n + 1], skip_special_tokens=True) for n in range(len(whole))]
        first = next((n + 1 for n, said in enumerate(prefixes) if stop in said), None)
        ended = whole.index(2) + 1 if 2 in whole else len(whole)
        length = min(first or ended, ended)
        assert sum(mask) == length and ids[:length] == whole[:length] and stop not in text
        assert done == (first is not None or 2 in whole)
        stopped += first is not None
    assert stopped


def test_model_without_end_token_is_refused():
    """Its completions could never end: every one would be truncated and have no answer."""
    model, tokenizer = tiny.model(), tiny.tokenizer()
    tokenizer.eos_token = None
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    with pytest.raises(UserError, match="end-of-sequence"):
        end_tokens(model, tokenizer)


def test_a_model_with_eyes_declares_its_end_in_its_part_for_text():
    """Gemma 3 from 4B on: its configuration is one of several parts and has no end token itself (an AttributeError once)."""
    parts = {"text_config": {**tiny.SMALL, "head_dim": 8}, "vision_config": {"hidden_size": 16, "num_hidden_layers": 1}}
    config = Gemma3Config(**parts)
    assert not hasattr(config, "eos_token_id") or config.eos_token_id is None
    model = SimpleNamespace(config=config, generation_config=GenerationConfig(eos_token_id=[9]))
    tokenizer = tiny.tokenizer()
    tokenizer.eos_token = None
    assert end_tokens(model, tokenizer) == {2, 9}


def test_draw_inverts_the_distribution():
    """p = (.5, .25, .25): u = .1, .6, .8 and the largest float below 1 fall on tokens 0, 1, 2 and 2."""
    logits = torch.tensor([[2.0, 1.0, 1.0]]).mul(math.log(2)).repeat(4, 1)
    u = torch.tensor([0.1, 0.6, 0.8, 1 - 2**-24])
    token, logprob, entropy, certainty = draw_token(logits, 1.0, u)
    assert token.tolist() == [0, 1, 2, 2]
    assert torch.allclose(logprob.exp(), torch.tensor([0.5, 0.25, 0.25, 0.25]))
    assert torch.allclose(entropy, torch.full((4,), 1.5 * math.log(2)))  # nats
    kl_uniform = sum(1 / 3 * math.log(1 / 3 / p) for p in (0.5, 0.25, 0.25))
    assert torch.allclose(certainty - math.log(3), torch.full((4,), kl_uniform), atol=1e-6)


def test_rounding_never_draws_an_impossible_token():
    """u next to 1 must not point behind the last token with any probability, where the rest have none (logit -inf)."""
    logits = torch.full((1, 50_000), -torch.inf)
    logits[0, :3] = 0.0
    assert draw_token(logits, 1.0, torch.tensor([1 - 2**-24]))[0].item() == 2


def test_temperature_zero_is_argmax():
    """T06b: dividing by a temperature of 0 gives NaN."""
    token, logprob, *_ = draw_token(torch.tensor([[1.0, 2.0]]), 0.0, torch.tensor([0.0]))
    assert token.item() == 1 and torch.isfinite(logprob).all()


def test_logprob_is_at_the_sampling_temperature():
    """T05: logits (2, 0) at T = .5 give log p(0) = -.01815; untempered -.12693, a false ratio of .897."""
    _, logprob, *_ = draw_token(torch.tensor([[2.0, 0.0]]), 0.5, torch.tensor([0.3]))
    assert logprob.item() == pytest.approx(-0.01815, abs=1e-5)


def test_only_our_options_decide_the_sampling():
    """T06a: a model's own top_k = 1 and repetition penalty made all completions of a group alike."""
    model = tiny.model()
    with torch.no_grad():
        p = forward(model, torch.tensor([[1, 5]]), torch.ones(1, 2, dtype=torch.long))[0, -1].softmax(-1)
    model.generation_config.update(top_k=1, repetition_penalty=1.3, do_sample=False, temperature=0.1)
    n = 4000
    first = write(model, [[1, 5]], k=n, length=1).completion_ids.flatten().tolist()
    for token, count in Counter(first).most_common(3):
        assert abs(count / n - p[token]) < 4 * math.sqrt(p[token] * (1 - p[token]) / n)
    assert len(set(first)) > 20


def alone(model, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """Log-probs of every word behind each token of a completion: one row, no padding, no cache. [len(completion),V]"""
    logits = model(torch.tensor([prompt + completion]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)


@torch.no_grad()
@pytest.mark.parametrize("name", tiny.EVERY)
def test_shared_prompt_and_leaving_rows_change_nothing(name):
    """Each rollout is the one that its numbers draw from a model that reads it alone, without padding and without a cache."""
    model = tiny.model(name)
    model.generation_config.eos_token_id = list(range(2, 14))  # end early and often, so that many rows leave
    found, numbers = write(model), uniform(len(PROMPTS) * 4, 12).view(len(PROMPTS), 4, 12)
    assert found.mask.sum(-1).min() < found.mask.sum(-1).max()
    for p, prompt in enumerate(PROMPTS):
        for k in range(4):
            n = int(found.mask[p, k].sum())
            tokens = found.completion_ids[p, k, :n]
            logp = alone(model, prompt, tokens.tolist())  # [n,V]
            drawn, own, entropy, _ = draw_token(logp, 1.0, numbers[p, k, :n])
            assert drawn.tolist() == tokens.tolist()
            assert torch.allclose(found.logprobs[p, k, :n], own, rtol=0, atol=1e-5)
            assert abs(found.entropy[p, k] - entropy.mean()) < 1e-5


@pytest.mark.parametrize("name", tiny.EVERY)
def test_each_prompt_is_read_once_and_ended_rows_are_not_read(name, monkeypatch):
    """Both savings could be lost in silence, under a cache class of another name say, and every result would stay right."""
    model, rows = tiny.model(name), []
    model.generation_config.eos_token_id = list(range(2, 14))
    monkeypatch.setattr(grpo, "forward", lambda m, ids, *rest, **more: rows.append(len(ids)) or forward(m, ids, *rest, **more))
    found = write(model)
    assert rows[0] == len(PROMPTS)
    assert sum(rows[1:]) == int(found.mask.sum()) - len(PROMPTS) * 4  # the last token of a completion is read by nobody


def test_the_same_prompt_twice_is_two_groups():
    """T09: grouping by the prompt's text would merge them; each place has its own draws, as if it were there alone."""
    found = write(tiny.model(), [PROMPTS[0], PROMPTS[0]])
    first, second = found.completion_ids
    assert found.mask.shape[:2] == (2, 4) and not torch.equal(first, second)
    numbers = uniform(8, 12)
    for i in (0, 1):
        alone = complete(tiny.model(), tiny.tokenizer(), [PROMPTS[0]], [None], 4, 1.0, numbers[4 * i : 4 * i + 4])
        longest = alone.mask.shape[-1]
        assert torch.equal(found.completion_ids[i, :, :longest] * alone.mask[0], alone.completion_ids[0] * alone.mask[0])


def test_a_rollout_does_not_depend_on_its_neighbours():
    """Left padding, or another row in the batch, must not change what a prompt is answered."""
    model = tiny.model()
    together = write(model)
    numbers = uniform(12, 12)
    for i, prompt in enumerate(PROMPTS):
        alone = complete(model, tiny.tokenizer(), [prompt], [None], 4, 1.0, numbers[4 * i : 4 * i + 4])
        longest = alone.mask.shape[-1]
        assert torch.equal(
            together.completion_ids[i, :, :longest] * alone.mask[0], alone.completion_ids[0] * alone.mask[0]
        )


def test_same_seed_same_rollouts_and_truncated_have_no_answer():
    """T06d, A20b: a repeated seed repeats the draws; a completion cut off by the limit neither votes nor earns."""
    agent = Agent("A", tiny.model(), tiny.tokenizer(), answer_style="number")
    first, second = (sample(agent, ["w5 w6", "w7"], 8, 6, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.completion_ids, second.completion_ids)
    assert not first.finished.all()
    for done, answer in zip(first.finished.flatten().tolist(), sum(first.answers, []), strict=True):
        assert done or answer is None
    assert first.texts[0][0].split()[0].startswith("w")


def test_prompt_that_does_not_fit_is_an_error():
    """T07: a question cut off in silence is another question."""
    with pytest.raises(UserError, match="context of 128"):
        write(tiny.model(), [[5] * 120], length=12)


def test_an_agent_that_thinks_tells_its_template(monkeypatch):
    """A switch that stops at the agent leaves every draft without the reasoning that it should have hidden."""
    tokenizer = tiny.tokenizer()
    tokenizer.plain_prompt = False
    tokenizer.chat_template = "{{ messages[-1].content }}{% if not enable_thinking %} closed{% endif %}"
    for thinking, prompt in ((True, "w3"), (False, "w3 closed")):
        assert Agent("A", None, tokenizer, thinking=thinking).wrap("w3") == prompt


@pytest.mark.parametrize("limit, fitting", [(128, True), (6, True), (5, False)])
def test_a_prompt_fits_or_does_not(limit, fitting):
    """Three tokens and three new ones need a context of six: one token less, and the model reads beyond what it has learnt."""
    model = tiny.model()
    model.config.max_position_embeddings = limit
    assert models.fits(Agent("A", model, tiny.tokenizer()), "w3 w4 w5", 3) is fitting


def test_the_output_layer_gets_its_input_in_one_piece(tmp_path):
    """The last hidden state of each prompt is a slice of a longer text. For a slice, PyTorch multiplies copies of the weights
    in a batch, one for each prompt: in bfloat16 on a CPU, three quarters of a step's time."""
    tiny.model("qwen3").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    model, _ = models.load_model(str(tmp_path), torch.device("cpu"), "float32")
    seen = []
    model.get_output_embeddings().register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].is_contiguous()))
    write(model)
    assert len(seen) > 1 and all(seen)
