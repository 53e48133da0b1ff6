"""Generation: transformers' tokens for each prompt alone, draws by document, and no effect of the neighbours."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.asking import language_model
from deepsiam.trainer.ranking.asking.language_model import Beginning, LanguageModel, _Draw
from deepsiam.trainer.ranking.asking.prompts import Example, Message, Prompt
from deepsiam.trainer.ranking.asking.writer import Request
from tests import toy
from tests.trainer.interop.family_folders import write_causal_lm
from tests.trainer.interop.published_folders import change

NEW_TOKENS = 12
PROMPT = Prompt("question", (Message(role="user", content="{document}?"),))
SHOWN = PROMPT._replace(examples=(Example(document="abc ab a b c", query="c b"), Example(document="b", query="ab")))
TEXTS = [" ".join(sentences)[: 10 + 9 * number] for number, sentences in enumerate(toy.documents(24))]
CHAT = "{% for m in messages %}{{ '[' + m.role + '] ' + m.content + '\n' }}{% endfor %}[assistant] "


def requests(texts: Sequence[str], seed: int = 1, prompt: Prompt = PROMPT) -> list[Request]:
    return [Request(prompt, text, (seed, number, 0)) for number, text in enumerate(texts)]


def load(folder: Path, temperature: float = 0.0, document_tokens: int = 512) -> LanguageModel:
    return LanguageModel(folder, "fp32", temperature, document_tokens)


def ending(folder: Path) -> Path:
    """Let every tenth token end a text, so that some texts of random weights end; what else is there is not used."""
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    keys = {"eos_token_id": [*range(0, vocabulary, 10)], "do_sample": True, "repetition_penalty": 9.0}
    (folder / "generation_config.json").write_text(json.dumps(keys))
    return folder


@pytest.fixture(autouse=True)
def _short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "NEW_TOKENS", NEW_TOKENS)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ending(write_causal_lm(tmp_path_factory.mktemp("llama") / "model", "llama"))


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2", "qwen3"])
def test_the_tokens_are_those_of_transformers_alone(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "line_of", lambda _: ("", False))  # which ends a text earlier
    folder = ending(write_causal_lm(tmp_path / kind, kind))
    model, library = load(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    asked = requests(TEXTS[::3], prompt=SHOWN)
    prompts = [model._prompt(request)[0] for request in asked]
    assert len({*map(len, prompts)}) > 5
    (beginning,) = {id(model._beginning(SHOWN, ids)): model._beginning(SHOWN, ids) for ids in prompts}.values()
    assert bool(beginning.ids) == (kind != "gemma2")  # whose window would count padding
    together = model.generate(prompts, asked, beginning)
    lengths = set()
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "repetition_penalty": 1.0, "pad_token_id": 0}
    for ids, row in zip(prompts, together.tolist(), strict=True):
        alone = library.generate(torch.tensor([ids]), eos_token_id=model.ends, **options)[0, len(ids) :].tolist()
        assert row[: len(alone)] == alone
        assert {*row[len(alone) :]} <= {model.ends[0]}
        lengths.add(len(alone))
    assert len(lengths) > 1


def test_a_prompt_that_begins_otherwise_is_read_whole(llama: Path) -> None:
    model = load(llama)
    ids = model._prompt(requests(["ab"], prompt=SHOWN)[0])[0]
    known = model._beginning(SHOWN, ids)
    for other in ([*ids[:3], ids[3] + 1, *ids[4:]], known.ids):
        assert model._beginning(SHOWN, other) == Beginning([], None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_do_not_depend_on_neighbours(temperature: float, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, told = load(llama, temperature), list[int]()
    asked = [*requests(TEXTS[::2], prompt=SHOWN), *requests(TEXTS[1::2])]
    answers = model.write(asked, told.append)
    assert told[-1] == len(asked) > model.rows
    assert len({answer.text for answer in answers}) > len(asked) / 2
    backwards = model.write(asked[::-1], told.append)[::-1]
    alone = [model.write([request], told.append)[0] for request in asked[::11]]
    assert backwards == answers
    assert alone == answers[::11]
    assert {answer.is_whole for answer in answers} == {True, False}


def test_draws_follow_the_model_and_the_document(llama: Path) -> None:
    first, again, other = (
        [answer.text for answer in load(llama, 1.0).write(requests(TEXTS[:8], seed), lambda _: None)]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_a_draw_has_the_models_probabilities() -> None:
    number, width = 4000, 5
    logits = torch.tensor([0.0, 1.0, -1.0, -torch.inf, 2.0])
    draw = _Draw([Request(PROMPT, "", (1, document, 0)) for document in range(number)], 0.5, width)
    drawn = draw(torch.zeros(number, width + 1, dtype=torch.long), logits.repeat(number, 1))
    assert torch.equal(drawn.isfinite().sum(dim=1), torch.ones(number, dtype=torch.long))
    counts = Counter(drawn.argmax(dim=1).tolist())
    expected = (logits / 0.5).softmax(dim=0).numpy()
    deviation = np.sqrt(number * expected * (1 - expected))
    assert all(abs(counts[i] - number * expected[i]) <= 4 * deviation[i] for i in range(5))


def test_long_documents_are_cut_and_counted(llama: Path) -> None:
    long = " ".join(TEXTS)
    model = load(llama, document_tokens=30)
    ids, is_cut = model._prompt(requests([long])[0])
    assert is_cut
    offsets = model.tokenizer(long, add_special_tokens=False, return_offsets_mapping=True).offset_mapping
    assert ids == model.tokenizer(long[: offsets[29][1]] + "?").input_ids
    ids, is_cut = load(llama, document_tokens=10_000)._prompt(requests([long])[0])
    assert is_cut
    assert 490 < len(ids) <= 512 - NEW_TOKENS
    assert not model._prompt(requests(["short"])[0])[1]


def test_the_chat_template_of_a_folder_is_used(tmp_path: Path) -> None:
    folder = write_causal_lm(tmp_path / "chat", "qwen2")
    (folder / "chat_template.jinja").write_text(CHAT)
    model = load(folder)
    ids, _ = model._prompt(requests(["the ship"])[0])
    assert model.tokenizer.decode(ids) == "[user] the ship?\n[assistant] "
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system role') }}")
    with pytest.raises(InputError, match=r"chat: its chat template does not take the prompt \(no system role\)"):
        load(folder).check([PROMPT])


def test_prompts_that_a_model_cannot_take_are_refused(llama: Path) -> None:
    several = Prompt("query", (Message(role="system", content="short"), Message(role="user", content="{document}")))
    with pytest.raises(InputError, match="model: has no chat template, which a prompt of several messages needs"):
        load(llama).check([PROMPT, several])
    long = Prompt("title", (Message(role="user", content=" ".join(TEXTS) + "{document}"),))
    with pytest.raises(InputError, match=r"reads 500 tokens and writes 12; the prompt of title with its examples has"):
        load(llama).check([PROMPT, long])


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config.json"):
        load(tmp_path)
    folder, kind = write_causal_lm(tmp_path / "model", "qwen2"), "Qwen2ForCausalLM"
    for changes, words in (
        (
            {"architectures": ["Qwen2Model"]},
            "config.json: has Qwen2Model, not a causal language model: name the folder",
        ),
        (
            {"architectures": [kind], "num_hidden_layers": 3, "layer_types": None},
            f"model: lacks model.layers.2.*, which {kind} has",
        ),
    ):
        change(folder / "config.json", changes)
        with pytest.raises(InputError, match=words):
            load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="model.safetensors: cannot read the weights"):
        load(folder)
