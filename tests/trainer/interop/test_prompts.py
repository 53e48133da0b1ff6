"""The prompts of a published folder: our vectors are sentence-transformers', and a run starts with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.matching.siamese import Siamese, SiameseConfig
from deepsiam.trainer.interop.files import prompt_card
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import prompt_remarks
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.prompts import read_prompts
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.checkpoints.start_keys import with_keys_from_checkpoint, with_keys_from_folder
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.trainer.interop.family_folders import CAUSAL, TEXTS, write_folder
from tests.trainer.interop.published_folders import change
from tests.trainer.runs import write_run

SETTINGS = "config_sentence_transformers.json"
POOLING = "1_Pooling/config.json"
PROMPTS = {"query": "Instruct: find the ship\nQuery:\n", "document": "the ship: "}
READ = [*TEXTS, "", "bread", " bread", "1 ship", "\tthe crew"]
FAMILIES = ["bert", "roberta", "xlm-roberta", "modernbert", "qwen3", "llama", "mistral", "gemma3_text"]


def readable(loaded: LoadedModel) -> list[str]:
    """The texts that do not begin with what their tokenizer leaves out, or does not know."""
    tokenizer = loaded.tokenizer
    read, stripped = tokenizer.encode(READ), tokenizer.encode([text.lstrip() for text in READ])
    unknown = [tokenizer.unk is not None and tokenizer.unk in ids[:2] for ids in read]
    blank = [
        text != text.lstrip() and a.tolist() == b.tolist() for text, a, b in zip(READ, read, stripped, strict=True)
    ]
    return [text for text, one, other in zip(READ, unknown, blank, strict=True) if not (one or other)]


def both_sides(loaded: LoadedModel, texts: list[str]) -> list[np.ndarray]:
    """The vectors of texts as queries and as documents."""
    model, method, tokenizer = loaded.model, loaded.method, loaded.tokenizer
    assert isinstance(model, Siamese)
    tokens = tokenizer.encode(texts)
    framings = method.query_framing(tokenizer), method.document_framing(tokenizer)  # type: ignore[attr-defined]
    embeds = model.embed_queries, model.embed_documents
    return [TextEncoder(*side).embeddings(tokens) for side in zip(embeds, framings, strict=True)]


def prompted_folder(folder: Path, kind: str, pooling: str, *, include_prompt: bool = True, **config: Any) -> Path:
    """A folder of a family with PROMPTS and one of another name."""
    write_folder(folder, kind, pooling, **config)
    change(folder / SETTINGS, {"prompts": {**PROMPTS, "other": "x"}})
    change(folder / POOLING, {"include_prompt": include_prompt})
    change(folder / "sentence_bert_config.json", {"max_seq_length": 38})
    return folder


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("kind", FAMILIES)
def test_vectors_are_those_of_sentence_transformers(kind: str, include_prompt: bool, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")  # an extra: pip install deepsiam[export]
    padding = {"padding_side": "left"} if kind in ("qwen3", "gemma3_text") else {}
    pooling = "lasttoken" if kind in CAUSAL and include_prompt else "mean"
    folder = prompted_folder(tmp_path / kind, kind, pooling, include_prompt=include_prompt, **padding)
    theirs = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    loaded = load_any(folder)
    texts = readable(loaded)
    if not include_prompt:  # of a text that is one token with the prompt's end, the library leaves nothing to pool
        texts = [text for text in texts if theirs.encode_query(text).any() and theirs.encode_document(text).any()]
    assert len(texts) > 8
    queries, documents = both_sides(loaded, texts)
    np.testing.assert_allclose(queries, theirs.encode_query(texts), atol=1e-5)
    np.testing.assert_allclose(documents, theirs.encode_document(texts), atol=1e-5)
    np.testing.assert_allclose(queries, theirs.encode(texts, prompt_name="query", batch_size=1), atol=1e-5)
    assert np.abs(queries - documents).max() > 1e-2
    assert np.abs(documents - theirs.encode(texts)).max() > 1e-2  # without prompts


def test_the_last_state_is_pooled_whatever_include_prompt_says(tmp_path: Path) -> None:
    loaded = load_any(prompted_folder(tmp_path / "a", "qwen3", "lasttoken", include_prompt=False))
    kept = load_any(prompted_folder(tmp_path / "b", "qwen3", "lasttoken"))
    np.testing.assert_array_equal(both_sides(loaded, ["bread"]), both_sides(kept, ["bread"]))


def test_a_first_state_after_the_prompt_is_refused(tmp_path: Path) -> None:
    folder = prompted_folder(tmp_path / "bert", "bert", "cls", include_prompt=False)
    with pytest.raises(InputError, match=r"1_Pooling/config.json: include_prompt is false.*not supported"):
        load_any(folder)


@pytest.mark.parametrize(
    ("prompts", "default", "expected"),
    [
        ({"query": "q: ", "document": "d: "}, None, {"query": "q: ", "document": "d: "}),
        ({"query": "q: ", "passage": "p: ", "corpus": "c: "}, None, {"query": "q: ", "document": "p: "}),
        ({"query": "", "document": "", "passage": "p: "}, None, {"document": "p: "}),
        ({"query": "q: "}, "query", {"query": "q: "}),  # a query's prompt is not put before documents
        ({"query": "", "x": "x: "}, "x", {"document": "x: "}),  # a query has its own, which is empty
        ({"x": "x: ", "y": "y: "}, "x", {"query": "x: ", "document": "x: "}),
        ({"STS": "s: ", "document": None}, None, {}),
        (None, None, {}),
    ],
)
def test_a_sides_own_prompt_comes_before_the_default_one(
    tmp_path: Path, prompts: dict[str, str] | None, default: str | None, expected: dict[str, str]
) -> None:
    change(tmp_path / SETTINGS, {"prompts": prompts, "default_prompt_name": default})
    assert read_prompts(Folder(tmp_path)) == expected


def recipe(start: Path, collection: Path, **method: Any) -> FinetuneRecipe:
    values = toy.finetune_values(start / "run", collection, init_from=str(start))
    return build(FinetuneRecipe, {**values, "method": {"name": "siamese", **method}}, "test")


@pytest.mark.parametrize(
    ("method", "taken", "line"),
    [
        (
            {},
            (PROMPTS["query"], PROMPTS["document"], False),
            "query_prompt='Instruct: find the ship\\nQuery:\\n', document_prompt='the ship: ', prompt_in_pooling=False",
        ),
        ({"query_prompt": "", "document_prompt": "d: ", "prompt_in_pooling": True}, ("", "d: ", True), ""),
        (
            {"pooling": "cls"},
            (PROMPTS["query"], PROMPTS["document"], True),
            "query_prompt='Instruct: find the ship\\nQuery:\\n', document_prompt='the ship: '",
        ),
    ],
)
def test_a_run_starts_with_them_unless_its_recipe_has_its_own(
    tmp_path: Path, toy_collection: Path, method: dict[str, Any], taken: tuple[str, str, bool], line: str
) -> None:
    folder = prompted_folder(tmp_path / "bert", "bert", "mean", include_prompt=False)
    started = with_keys_from_folder(recipe(folder, toy_collection, **method))
    keys: Any = started.method
    assert (keys.query_prompt, keys.document_prompt, keys.prompt_in_pooling) == taken
    assert prompt_remarks(Folder(folder), keys) == (
        [f"{folder}: of its prompts, training starts with {line}"] if line else []
    )


@pytest.mark.parametrize(
    ("method", "taken"),
    [
        ({"name": "colbert"}, {"query_prompt", "document_prompt"}),
        ({"name": "poly_encoder", "m": 4}, {"query_prompt", "document_prompt"}),
        ({"name": "sparse", "query": "tokens", "regularise": {"document": {"l1": 1}}}, {"document_prompt"}),
        ({"name": "cross_encoder", "negatives_per_query": 1}, set()),
    ],
)
def test_other_models_that_encode_texts_start_with_them(
    tmp_path: Path, toy_collection: Path, method: dict[str, Any], taken: set[str]
) -> None:
    folder = prompted_folder(tmp_path / "bert", "bert", "mean")
    given = recipe(folder, toy_collection, **method)
    started = with_keys_from_folder(given)
    assert started.method.model_fields_set - given.method.model_fields_set == taken
    assert len(prompt_remarks(Folder(folder), started.method)) == bool(taken)


@pytest.mark.parametrize(("kind", "keys"), [("bert", {}), ("qwen3", {"prompt_in_pooling": False})])
def test_an_export_has_the_prompts_of_its_run(kind: str, keys: dict[str, bool], tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = write_folder(tmp_path / "start", kind, "mean")
    trunk: Any = load_any(folder).model.trunk.config
    prompts = {f"{side}_prompt": text for side, text in PROMPTS.items()}
    lengths = {"max_query_tokens": 40, "max_document_tokens": 40}
    shape = {k: v for k, v in trunk.to_dict().items() if k in SHAPE and v is not None}
    method = {"name": "siamese", "pooling": "mean", "similarity": "cosine", **lengths, **prompts, **keys}
    run = write_run(
        tmp_path / "run", folder / "tokenizer.json", trunk={"model_type": trunk.model_type, **shape}, **method
    )
    trained = load_trained(run)
    export_encoder(trained, tmp_path / "out")
    theirs = library.SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
    assert theirs.prompts == PROMPTS
    texts = [text for text in readable(trained) if "<" not in text and "[" not in text]
    queries, documents = both_sides(trained, texts)
    np.testing.assert_allclose(queries, theirs.encode_query(texts), atol=1e-5)
    np.testing.assert_allclose(documents, theirs.encode(texts, prompt_name="document"), atol=1e-5)
    for own, again in zip((queries, documents), both_sides(load_any(tmp_path / "out"), texts), strict=True):
        np.testing.assert_allclose(again, own, atol=1e-6)
    assert 'prompt_name="query"' in (tmp_path / "out" / "README.md").read_text()


SHAPE = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings"),
    *("num_key_value_heads", "head_dim"),
)


def test_a_resumed_run_has_those_of_its_checkpoint(tmp_path: Path, toy_collection: Path) -> None:
    folder = prompted_folder(tmp_path / "bert", "bert", "mean")
    method = {"name": "siamese", "query_prompt": "q: ", "pooling": "mean", "prompt_in_pooling": False}
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", **method)
    given = recipe(folder, toy_collection)
    keys: Any = with_keys_from_checkpoint(given, load_trained(run).checkpoint).method
    assert (keys.query_prompt, keys.document_prompt, keys.prompt_in_pooling) == ("q: ", "", False)


def test_a_folder_whose_library_has_no_prompts_says_them() -> None:
    method = SiameseConfig(name="siamese", query_prompt="q: ", document_prompt="d: ")
    said = "It was trained with `'q: '` before a query and `'d: '` before a document: put it there."
    assert prompt_card(method).strip() == said
    assert prompt_card(SiameseConfig(name="siamese")) == ""
