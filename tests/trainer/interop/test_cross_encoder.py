"""Cross-encoders that others wrote: their scores are those of sentence-transformers, all else is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, processors
from transformers import AutoConfig, AutoModelForSequenceClassification, BertConfig, PreTrainedTokenizerFast

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.trainer.interop.cross_encoder import class_names, is_cross_encoder, read
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.published import load_any
from tests.trainer.interop.published_folders import by_library, change

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
OWN_SIZES: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 8},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "electra": {"embedding_size": 8},
    "eurobert": {"classifier_pooling": "mean", "num_key_value_heads": 2},
    "modernbert": {"classifier_pooling": "mean", "local_attention": 8},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "rembert": {"input_embedding_size": 8, "output_embedding_size": 16},
}
PAIRS = [("abc de", "fghij a b"), ("", "de"), ("a b c " * 12, "d " * 9), ("d", "abc " * 40), ("a " * 40, "b " * 40)]
TYPED = {"albert", "bert", "electra", "megatron-bert", "nomic_bert", "rembert"}  # with two token types
TWICE = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "data2vec-text", "mpnet"}  # two [SEP]s in a pair


def write_folder(folder: Path, tokenizer_json: Path, kind: str, *, types: bool = True, **keys: Any) -> Path:
    """Write a cross-encoder with random weights as transformers saves it, and a tokenizer of pairs up to 30 tokens."""
    backend, ids = Tokenizer.from_file(str(tokenizer_json)), tokenizers.load(tokenizer_json)
    if kind in TWICE:
        cls, sep = ids.special_tokens["cls"], ids.special_tokens["sep"]
        backend.post_processor = processors.RobertaProcessing((sep, ids.sep), (cls, ids.cls), add_prefix_space=False)
    special = {f"{name}_token": token for name, token in ids.special_tokens.items()}
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=30, model_input_names=inputs, **special
    ).save_pretrained(folder)
    if kind not in TWICE:  # the data's tokenizer, to the byte
        (folder / "tokenizer.json").write_bytes(tokenizer_json.read_bytes())
    torch.manual_seed(0)
    sizes = {**SIZES, "max_position_embeddings": 64, **OWN_SIZES.get(kind, {}), **keys}
    unused = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    known = {"vocab_size": ids.vocab_size, "pad_token_id": ids.pad, "num_labels": 1}
    config = AutoConfig.for_model(kind, **{**unused, **known, **sizes})
    model = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * (1.0 if "classifier" in name else 0.2))
    model.save_pretrained(folder)
    return folder


def own_scores(loaded: LoadedModel, pairs: list[tuple[str, str]] = PAIRS) -> np.ndarray:
    """The model's score of each pair, one at a time."""
    framing = loaded.method.pair_framing(loaded.tokenizer)  # type: ignore[attr-defined]
    scores = []
    for texts in pairs:
        query, document = loaded.tokenizer.encode(texts)
        arrays = {name: torch.from_numpy(array) for name, array in framing.arrays([query], [document]).items()}
        with torch.no_grad():
            scores.append(loaded.model.score_pairs(**arrays)[0].numpy())  # type: ignore[operator]
    return np.stack(scores)


def predicted(folder: Path) -> np.ndarray:
    """What sentence-transformers predicts."""
    scores: np.ndarray = by_library("CrossEncoder", folder).predict(PAIRS)
    return scores


def edit(file: Path, **keys: Any) -> None:
    """Change keys of a JSON file."""
    change(file, keys)


SETTINGS, MODULES = "config_sentence_transformers.json", "sentence_transformers.models."
IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, toy_collection: Path) -> Path:
    return write_folder(tmp_path_factory.mktemp("bert"), toy_collection / "tokenizer.json", "bert")


@pytest.fixture
def folder(bert: Path, tmp_path: Path) -> Path:
    """A BERT that scores pairs, to change."""
    return shutil.copytree(bert, tmp_path / "folder")


@pytest.mark.parametrize(
    ("keys", "bounded"),
    [
        ({}, True),  # the library's default for one label
        ({"sentence_transformers": {"version": "4.1.0", "activation_fn": IDENTITY}}, False),
        ({"sentence_transformers": {"version": "5.0.0", "activation_fn": SIGMOID}}, True),
        ({"sentence_transformers": {"version": "5.0.0"}}, True),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, False),
    ],
)
def test_the_activation_of_a_score_is_that_of_each_release(folder: Path, keys: dict[str, Any], bounded: bool) -> None:
    edit(folder / "config.json", **keys)
    own = own_scores(load_any(folder))
    np.testing.assert_allclose(own, predicted(folder), atol=1e-5)
    assert (own.min() > 0 and own.max() < 1) == bounded


@pytest.mark.parametrize("activation", ["Identity", "Sigmoid"])
def test_a_folder_of_the_newest_release(bert: Path, tmp_path: Path, activation: str) -> None:
    saved = by_library("CrossEncoder", bert)
    saved.activation_fn = getattr(torch.nn, activation)()
    saved.save_pretrained(str(tmp_path / "saved"))
    np.testing.assert_allclose(own_scores(load_any(tmp_path / "saved")), saved.predict(PAIRS), atol=1e-5)


def as_library(folder: Path, **keys: Any) -> None:
    """Add what CrossEncoder saves beside the model, with these keys of the encoder's module."""
    module = {"idx": 0, "name": "0", "path": "", "type": MODULES + "Transformer"}
    (folder / "modules.json").write_text(json.dumps([module]))
    edit(folder / SETTINGS, model_type="CrossEncoder", activation_fn=SIGMOID)
    task = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
    text = {"modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}}
    edit(folder / "sentence_bert_config.json", **{**task, **text, **keys})


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [
        ({}, 30),
        ({"max_seq_length": 12}, 12),
        ({"max_seq_length": None}, 30),
        ({"processing_kwargs": {"text": {"max_length": 14, "truncation": "longest_first"}}, "max_seq_length": 12}, 14),
        ({"processing_kwargs": {"text": {"max_length": 14}, "common": {"max_length": 11}}}, 11),
        ({"query_length": 9, "document_length": 9}, 30),  # a pair has no side
        ({"other": None, "max_seq_length": 12}, 30),  # not saved by CrossEncoder, which then reads the model alone
    ],
)
def test_the_longest_pair_is_the_library_s(folder: Path, keys: dict[str, Any], tokens: int) -> None:
    as_library(folder, **keys)
    if "other" in keys:
        edit(folder / SETTINGS, model_type=None)
    loaded = load_any(folder)
    assert loaded.method.max_pair_tokens == tokens  # type: ignore[attr-defined]
    np.testing.assert_allclose(own_scores(loaded), predicted(folder), atol=1e-5)


def without(folder: Path, name: str, shape: list[int] | None = None) -> None:
    """Leave a tensor out of a folder, or give it another shape."""
    weights = load_file(folder / "model.safetensors")
    assert weights.pop(name) is not None
    save_file(weights if shape is None else {**weights, name: torch.zeros(shape)}, folder / "model.safetensors")


def retemplate(folder: Path, pair: str) -> None:
    """Join pairs in another way."""
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=ids)
    backend.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(
    "pair", ["[CLS] $A $B:1 [SEP]:1", "[CLS] $A [SEP] [SEP] $B:1 [SEP]:1", "$A [SEP] $B:1 [SEP]:1"]
)
def test_pairs_are_joined_as_the_folder_joins_them(folder: Path, pair: str) -> None:
    usual = own_scores(load_any(folder))
    retemplate(folder, pair)
    own = own_scores(load_any(folder))
    np.testing.assert_allclose(own, predicted(folder), atol=1e-5)
    assert np.abs(own - usual).max() > 1e-4


CONFIG, OF_MODULE, OF_TOKENIZER = "config.json", "sentence_bert_config.json", "tokenizer_config.json"
DEFAULT, BLOCK = "sbert_ce_default_activation_function", "sentence_transformers"
DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda f: without(f, "classifier.bias"), r": classifier.bias of the head is missing"),
    (lambda f: without(f, "bert.pooler.dense.weight"), r"bert.pooler.dense.weight of the head is missing"),
    (lambda f: without(f, "classifier.weight", [2, 16]), r"classifier.weight of the head is \[2, 16\], .*\[1, 16\]"),
    (lambda f: edit(f / CONFIG, architectures=["MyForSequenceClassification"]),
     "architectures MyForS.* 'bert': .* is not supported"),
    (lambda f: edit(f / CONFIG, **{BLOCK: {"activation_fn": "a.Softmax"}}), "_fn: 'a.Softmax' is not supported"),
    (lambda f: edit(f / CONFIG, **{DEFAULT: "mine.Sigmoid"}), "function: 'mine.Sigmoid' is not supported"),
    (lambda f: edit(f / OF_TOKENIZER, truncation_side="left"),
     f"{OF_TOKENIZER}: truncation_side is 'left', which is not supported"),
    (lambda f: edit(f / OF_TOKENIZER, model_max_length=4),
     f"{OF_TOKENIZER}: model_max_length is 4, not a number of tokens from 8"),
    (lambda f: retemplate(f, "[CLS] $A [SEP]:1 $B:1 [SEP]:1"), r"with token types \[.*is supported"),
    (lambda f: (f / OF_TOKENIZER).write_text("[]"), OF_TOKENIZER),
    (lambda f: as_library(f, processing_kwargs={"text": {"truncation": "only_second"}}),
     "only_second'}}, which is not"),
    (lambda f: as_library(f, max_seq_length=4), f"{OF_MODULE}: max_seq_length is 4, not a"),
    (lambda f: as_library(f, chunks=4), f"{OF_MODULE}: chunks is not a known key"),
    (lambda f: as_library(f, transformer_task="fill-mask"), "transformer_task is 'fill-mask'"),
    (lambda f: with_module(f, "Dense"), r"modules.json: has a Dense module"),
    (lambda f: prompted(f), "puts 'query: ' before every"),
]  # fmt: skip


def with_module(folder: Path, kind: str) -> None:
    as_library(folder)
    steps = [{"path": path, "type": MODULES + name} for path, name in (("", "Transformer"), (kind, kind))]
    (folder / "modules.json").write_text(json.dumps(steps))


def prompted(folder: Path) -> None:
    as_library(folder)
    edit(folder / SETTINGS, prompts={"q": "query: "}, default_prompt_name="q")


@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=[message for _, message in DAMAGES])
def test_what_is_not_computed_exactly_is_one_clear_line(
    folder: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(folder)
    with pytest.raises(InputError, match=message):
        load_any(folder)


def test_a_folder_with_a_pooling_is_no_cross_encoder(folder: Path) -> None:
    with_module(folder, "Pooling")
    assert not is_cross_encoder(Folder(folder))


@pytest.mark.parametrize(
    ("kind", "keys", "message"),
    [
        ("roformer", {}, "model_type 'roformer': a cross-encoder whose head is not supported"),
        ("deberta-v2", {"pooler_hidden_act": "mish"}, "pooler_hidden_act: 'mish' is not one of tanh, relu, gelu"),
        ("modernbert", {"classifier_activation": "silu"}, "classifier_activation: 'silu' is not one of"),
    ],
)
def test_other_heads_are_refused_by_their_key(
    tmp_path: Path, toy_collection: Path, kind: str, keys: dict[str, Any], message: str
) -> None:
    folder = write_folder(tmp_path, toy_collection / "tokenizer.json", kind, **keys)
    with pytest.raises(InputError, match=f"config.json: .*{message}"):
        read(Folder(folder))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ({}, ()),  # transformers numbers two classes: LABEL_0, LABEL_1
        ({"id2label": {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}}, ()),
        ({"id2label": {1: "neutral", 0: "entailment"}}, ("entailment", "neutral")),
        ({"id2label": {0: "LABEL_1", 1: "LABEL_2"}}, ("LABEL_1", "LABEL_2")),
    ],
)
def test_classes_have_names_unless_they_are_only_numbered(labels: dict[str, Any], names: tuple[str, ...]) -> None:
    assert class_names(BertConfig(**labels)) == names
