"""sentence-transformers folders: their pooling, similarity and prompts are adopted, and runs start with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.collections.build import build as build_collection
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.trainer.interop.files import prompt_card
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import prompt_remarks
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.prompts import read_prompts
from deepsiam.trainer.interop.sentence_transformer import TEMPERATURE, pooling_of, similarity_of
from deepsiam.trainer.jobs import finetuning
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.checkpoints.start_keys import with_keys_from_checkpoint, with_keys_from_folder
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe
from deepsiam.trainer.training.recipe.yaml_file import build
from tests import toy
from tests.data_prep.collections.beir_folder import write_beir
from tests.trainer.interop.family_folders import CAUSAL, TEXTS, TRUNKS, trunk_of, write_folder, write_tokenizer
from tests.trainer.interop.published_folders import SETTINGS, by_library, change, modules, own_embeddings, write
from tests.trainer.runs import write_run

COSINE = {"similarity": "cosine", "temperature": TEMPERATURE}


def write_settings(
    folder: Path, pooling: dict[str, Any], *more: str, inside: str = "", similarity: str | None = None
) -> None:
    """Write the settings of a folder with a pooling and other modules."""
    write(folder / "modules.json", modules("Transformer", "Pooling", *more, path=inside))
    write(folder / "1_Pooling" / "config.json", pooling)
    if similarity:
        write(folder / SETTINGS, {"similarity_fn_name": similarity})


NORMALIZE, CLS = ["Normalize"], {"pooling_mode": "cls"}
TAKEN: list[tuple[dict[str, Any], list[str], str | None, str, dict[str, Any]]] = [
    # the pooling of all releases, other modules and the similarity; what is taken over
    ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, NORMALIZE, None, "mean", COSINE),
    ({"pooling_mode_cls_token": True}, NORMALIZE, None, "cls", COSINE),
    ({"pooling_mode_lasttoken": True}, NORMALIZE, None, "last", COSINE),
    ({"pooling_mode": "mean"}, NORMALIZE, None, "mean", COSINE),
    ({"pooling_mode": ["lasttoken"]}, NORMALIZE, None, "last", COSINE),
    ({"word_embedding_dimension": 32}, NORMALIZE, None, "mean", COSINE),  # the library's default
    ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}, NORMALIZE, None, "mean", COSINE),
    (CLS, NORMALIZE, "dot", "cls", COSINE),
    (CLS, [], "dot", "cls", {"similarity": "dot"}),
    (CLS, [], "cosine", "cls", COSINE),
    (CLS, [], None, "cls", COSINE),  # the library's default
]


@pytest.mark.parametrize(("pooling", "more", "similarity", "name", "keys"), TAKEN)
def test_pooling_and_similarity_are_taken_over(
    tmp_path: Path, pooling: dict[str, Any], more: list[str], similarity: str | None, name: str, keys: dict[str, Any]
) -> None:
    write_settings(tmp_path, pooling, *more, inside="0_Transformer", similarity=similarity)
    folder = Folder(tmp_path)
    assert folder.encoder == tmp_path / "0_Transformer"
    assert pooling_of(folder) | similarity_of(folder) == {"pooling": name, **keys}


def test_what_cannot_be_taken_over_is_one_clear_line(tmp_path: Path) -> None:
    """Poolings that we do not have: test_settings.py."""
    write_settings(tmp_path, CLS)
    (tmp_path / "1_Pooling" / "config.json").unlink()
    with pytest.raises(InputError, match="1_Pooling/config.json: cannot read"):
        pooling_of(Folder(tmp_path))
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(InputError, match="modules.json: not its kind of JSON"):
        pooling_of(Folder(tmp_path))
    write(tmp_path / "modules.json", modules("Router", path=""))  # each side has an encoder of its own
    for name, keys in (("query_0_Transformer", {"model_type": "bert"}), ("document_1_Pooling", {})):
        write(tmp_path / name / "config.json", keys)
    message = "has no Transformer module, but a Router, .* name the folder of an encoder .* as .*query_0_Transf"
    with pytest.raises(InputError, match=message):
        pooling_of(Folder(tmp_path))


def recipe(folder: Path, collection: Path, **method: Any) -> FinetuneRecipe:
    values = toy.finetune_values(folder / "run", collection, init_from=str(folder))
    return build(FinetuneRecipe, {**values, "method": {"name": "siamese", **method}}, "test")


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ({}, ("mean", "cosine", TEMPERATURE)),
        ({"pooling": "cls"}, ("cls", "cosine", TEMPERATURE)),
        ({"temperature": 0.1}, ("mean", "cosine", 0.1)),
        ({"similarity": "dot"}, ("mean", "dot", 1.0)),  # a temperature of 0.05 suits only cosines
        ({"similarity": "cosine"}, ("mean", "cosine", TEMPERATURE)),
    ],
)
def test_the_recipe_comes_first(
    tmp_path: Path, toy_collection: Path, method: dict[str, Any], expected: tuple[str, str, float]
) -> None:
    write_settings(tmp_path, {"pooling_mode": "mean"}, "Normalize")
    given = recipe(tmp_path, toy_collection, **method)
    taken = with_keys_from_folder(given).method
    assert (taken.pooling, taken.similarity, taken.temperature) == expected
    (tmp_path / "modules.json").unlink()  # a plain Hugging Face folder names neither pooling nor similarity
    assert with_keys_from_folder(given) == given


BEYOND: list[tuple[tuple[Any, ...], dict[str, str], tuple[str, str], str]] = [  # a folder, a key, what is taken
    (("cls", ["Dense"], None), {"pooling": "mean"}, ("mean", "cosine"), "has a Dense module"),
    (("max", [], None), {"pooling": "mean"}, ("mean", "cosine"), "its pooling is max"),
    (("cls", [], "euclidean"), {"similarity": "dot"}, ("cls", "dot"), "its similarity_fn_name is 'euclidean'"),
]


@pytest.mark.parametrize(("folder", "needed", "expected", "message"), BEYOND)
def test_a_start_may_do_more_where_the_recipe_says_what_to_do(
    tmp_path: Path, toy_collection: Path, folder: Any, needed: dict[str, str], expected: tuple[str, str], message: str
) -> None:
    pooling, more, similarity = folder
    write_settings(tmp_path, {"pooling_mode": pooling}, *more, similarity=similarity)
    with pytest.raises(InputError, match=f"{message}.*: set method.{[*needed][0]} to start from the encoder alone"):
        with_keys_from_folder(recipe(tmp_path, toy_collection))
    taken = with_keys_from_folder(recipe(tmp_path, toy_collection, **needed)).method
    assert (taken.pooling, taken.similarity) == expected


@pytest.mark.parametrize(
    "method",
    [
        {"name": "colbert"},  # a temperature of 0.05 suits no sum of cosines
        {"name": "poly_encoder", "m": 4},
        {"name": "cross_encoder", "negatives_per_query": 1},
        {"name": "cross_thought_answers", "special_tokens": 1, "negatives_per_query": 1},
    ],
)
def test_other_models_take_nothing_over(tmp_path: Path, toy_collection: Path, method: dict[str, Any]) -> None:
    write_settings(tmp_path, {"pooling_mode": "lasttoken"}, "Normalize")
    given = recipe(tmp_path, toy_collection, **method)
    assert with_keys_from_folder(given) == given


def test_a_sparse_model_pools_terms_as_its_start(tmp_path: Path, toy_collection: Path) -> None:
    write(tmp_path / "modules.json", modules("MLMTransformer", "SpladePooling", path=""))
    plain, given = (recipe(tmp_path, toy_collection, name="sparse", **keys) for keys in ({}, {"pooling": "max"}))
    summed = {"pooling_strategy": "sum"}
    for config, started, pooling in ((summed, plain, "sum"), ({}, plain, "max"), (summed, given, "max")):
        write(tmp_path / "SpladePooling/config.json", config)
        assert with_keys_from_folder(started).method.pooling == pooling
    write(tmp_path / "SpladePooling/config.json", {"pooling_strategy": "mean"})
    with pytest.raises(InputError, match="SpladePooling/config.json: pooling_strategy is 'mean', not max or sum"):
        with_keys_from_folder(plain)


def test_keys_that_do_not_suit_the_folder_are_one_clear_line(tmp_path: Path, toy_collection: Path) -> None:
    write_settings(tmp_path, {"pooling_mode": "mean"}, "Normalize")
    given = recipe(tmp_path, toy_collection, special_tokens=5)
    with pytest.raises(InputError, match=r"and the recipe: method.special_tokens=5 are pooled .* set method.pooling"):
        with_keys_from_folder(given)


@pytest.mark.parametrize("splits", [True, False])
def test_a_run_keeps_how_its_collection_reads_special_tokens(
    tmp_path: Path, toy_collection: Path, splits: bool
) -> None:
    """By a file beside the tokenizer of every checkpoint, which its export is written from."""
    tokenizer = Collection.open(toy_collection).tokenizer.splitting(splits)
    collection = build_collection("beir", [write_beir(tmp_path / "beir")], tmp_path / "made", tokenizer).directory
    data = {"collection": str(collection), "split": "test", "lanes": 2}
    values = toy.finetune_values(tmp_path / "run", collection, trunk=toy.TRUNK, data=data)
    job = finetuning.build(build(FinetuneRecipe, values, "test"))
    for name, content in job.sidecar_files.items():
        (tmp_path / name).write_bytes(content)
    assert tokenizers.load(tmp_path).split_special_tokens is splits


PROMPTS = {"query": "Instruct: find the ship\nQuery:\n", "document": "the ship: "}
READ = [*TEXTS, "", "bread", " bread", "1 ship", "\tthe crew"]
FAMILIES = {  # whether a prompt is pooled
    "bert": True,
    "roberta": False,
    "xlm-roberta": True,
    "modernbert": False,
    "qwen3": True,
    "llama": False,
    "mistral": True,
    "gemma3_text": False,
}
CASES = [*FAMILIES.items(), *((kind, not pooled) for kind, pooled in FAMILIES.items() if toy.FULL_TESTS)]


def readable(loaded: LoadedModel) -> list[str]:
    """The texts that do not begin with what their tokenizer leaves out, or does not know."""
    tokenizer = loaded.tokenizer
    readable = []
    for text, ids, stripped in zip(
        READ, tokenizer.encode(READ), tokenizer.encode([text.lstrip() for text in READ]), strict=True
    ):
        unknown = tokenizer.unk is not None and tokenizer.unk in ids[:2]
        if not unknown and (text == text.lstrip() or ids.tolist() != stripped.tolist()):
            readable.append(text)
    return readable


def both_sides(loaded: LoadedModel, texts: list[str]) -> list[np.ndarray]:
    """The vectors of texts as queries and as documents."""
    return [own_embeddings(loaded, texts, side) for side in ("query", "document")]


def prompted_folder(folder: Path, kind: str, pooling: str, *, include_prompt: bool = True, **config: Any) -> Path:
    """A folder of a family with PROMPTS and one of another name."""
    write_folder(folder, kind, pooling, **config)
    change(folder / SETTINGS, {"prompts": {**PROMPTS, "other": "x"}})
    change(folder / "1_Pooling" / "config.json", {"include_prompt": include_prompt})
    change(folder / "sentence_bert_config.json", {"max_seq_length": 38})
    return folder


@pytest.mark.parametrize(("kind", "include_prompt"), CASES)
def test_vectors_are_those_of_sentence_transformers(kind: str, include_prompt: bool, tmp_path: Path) -> None:
    padding = {"padding_side": "left"} if kind in ("qwen3", "gemma3_text") else {}
    pooling = "lasttoken" if kind in CAUSAL and include_prompt else "mean"
    folder = prompted_folder(tmp_path / kind, kind, pooling, include_prompt=include_prompt, **padding)
    theirs, loaded = by_library("SentenceTransformer", folder), load_any(folder)
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


LINE = "query_prompt='Instruct: find the ship\\nQuery:\\n', document_prompt='the ship: '"
BOTH = {f"{side}_prompt": text for side, text in PROMPTS.items()}
OWN = {"query_prompt": "", "document_prompt": "d: ", "prompt_in_pooling": True}
LEXICAL = {"name": "sparse", "query": "tokens", "regularise": {"document": {"l1": 1}}}
STARTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [  # a recipe's method, its prompts, what is said
    ({}, {**BOTH, "prompt_in_pooling": False}, f"{LINE}, prompt_in_pooling=False"),
    (OWN, OWN, ""),
    ({"pooling": "cls"}, {**BOTH, "prompt_in_pooling": True}, LINE),
    ({"name": "colbert"}, BOTH, LINE),
    ({"name": "poly_encoder", "m": 4}, BOTH, LINE),
    (LEXICAL, {**BOTH, "query_prompt": ""}, "document_prompt='the ship: '"),
    ({"name": "cross_encoder", "negatives_per_query": 1}, {}, ""),
]


@pytest.mark.parametrize(("method", "taken", "line"), STARTS)
def test_a_run_starts_with_them_unless_its_recipe_has_its_own(
    tmp_path: Path, toy_collection: Path, method: dict[str, Any], taken: dict[str, Any], line: str
) -> None:
    folder = prompted_folder(tmp_path / "bert", "bert", "mean", include_prompt="name" in method)
    keys = with_keys_from_folder(recipe(folder, toy_collection, **method)).method
    assert {key: getattr(keys, key) for key in taken} == taken
    lines = [f"{folder}: of its prompts, training starts with {line}"] if line else []
    assert prompt_remarks(Folder(folder), keys) == lines


@pytest.mark.parametrize(("kind", "keys"), [("bert", {}), ("qwen3", {"prompt_in_pooling": False})])
def test_an_export_has_the_prompts_of_its_run(kind: str, keys: dict[str, bool], tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path, TRUNKS[kind][0])
    lengths = {"max_query_tokens": 40, "max_document_tokens": 40}
    method = {"name": "siamese", "pooling": "mean", "similarity": "cosine", **lengths, **BOTH, **keys}
    trained = load_trained(write_run(tmp_path / "run", tokenizer.path, trunk=trunk_of(kind, tokenizer), **method))
    export_encoder(trained, tmp_path / "out")
    theirs = by_library("SentenceTransformer", tmp_path / "out")
    assert theirs.prompts == PROMPTS
    texts = [text for text in readable(trained) if "<" not in text and "[" not in text]
    queries, documents = both_sides(trained, texts)
    np.testing.assert_allclose(queries, theirs.encode_query(texts), atol=1e-5)
    np.testing.assert_allclose(documents, theirs.encode(texts, prompt_name="document"), atol=1e-5)
    for own, again in zip((queries, documents), both_sides(load_any(tmp_path / "out"), texts), strict=True):
        np.testing.assert_allclose(again, own, atol=1e-6)
    assert 'prompt_name="query"' in (tmp_path / "out" / "README.md").read_text()


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
