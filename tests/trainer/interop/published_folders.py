"""Small published folders in the layouts of several releases of sentence-transformers."""

import builtins
import json
import string
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from deepsiam.trainer.interop import folder as opened_folder
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.retrieval.encode import TextEncoder

POSITIONS = 40
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["bread", "Bread", "ship", "sail", "cafe", "café"]
TEXTS = [
    "bread ship",
    "Bread SHIP café",
    "",
    "a [SEP] b[MASK] and [DOC] bread",
    "two  blanks, 1 tab\t. 漢字",
    " ".join(["sail the ship"] * 30),
]
SHORT = TEXTS[:-1]  # without the one that is longer than the encoder has positions
SETTINGS, TRANSFORMER = "config_sentence_transformers.json", "sentence_bert_config.json"
OLD_SWITCHES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
OLD_NAMES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}


def tokenizer(lowercase: bool) -> tokenizers.Tokenizer:
    """A WordPiece of letters and some words, lower-case or cased."""
    letters = [*string.ascii_letters, *string.digits, *string.punctuation, "é", "漢", "字"]
    vocabulary = dict.fromkeys([*SPECIAL, *letters, *("##" + x for x in letters), *WORDS])
    ids = {token: i for i, token in enumerate(vocabulary)}
    made = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    made.decoder = decoders.WordPiece()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return made


def write_encoder(folder: Path, *, lowercase: bool = True) -> Path:
    """A BERT whose random weights give different texts different vectors, as transformers would save it."""
    torch.manual_seed(0)
    made = tokenizer(lowercase)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=made.get_vocab_size(), max_position_embeddings=POSITIONS, **shape))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    model.save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    names = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL}
    write(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase, **names})
    return folder


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def modules(*kinds: str, **first: Any) -> list[dict[str, Any]]:
    """The list of modules of these kinds, with other keys of the first."""
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    kind_of = "sentence_transformers.models."
    named = [{"path": paths.get(kind, kind), "type": kind_of + kind, "name": kind} for kind in kinds]
    return [named[0] | first, *named[1:]]


def change(path: Path, keys: Mapping[str, Any]) -> None:
    """Set keys of a JSON file, which may be absent."""
    write(path, {**(json.loads(path.read_text()) if path.exists() else {}), **keys})


def write_layout(
    folder: Path, release: int, pooling: str = "mean", *, length: int | None = 12, similarity: str = "cosine"
) -> Path:
    """Add the files that release 2 or 5 of the library writes beside an encoder."""
    switches = OLD_SWITCHES if release == 2 else (*OLD_SWITCHES, "weightedmean_tokens", "lasttoken")
    switched = {f"pooling_mode_{name}": name == OLD_NAMES[pooling] for name in switches}
    settings: dict[str, Any] = {"__version__": {"sentence_transformers": f"{release}.0.0"}}
    if release > 2:
        settings |= {"prompts": {"query": "", "document": ""}, "default_prompt_name": None}
        settings |= {"similarity_fn_name": similarity, "model_type": "SentenceTransformer"}
    write(folder / SETTINGS, settings)
    write(folder / TRANSFORMER, {"max_seq_length": length, "do_lower_case": False})
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **switched})
    (folder / "2_Normalize").mkdir(exist_ok=True)
    write(folder / "modules.json", modules("Transformer", "Pooling", *(["Normalize"] * (similarity == "cosine"))))
    return folder


def by_library(kind: str, folder: Path) -> Any:
    """Load a folder by a class of sentence-transformers, which is an extra: pip install deepsiam[export]."""
    library = pytest.importorskip("sentence_transformers")
    return getattr(library, kind)(str(folder), device="cpu", local_files_only=True)


def encoder_of(loaded: LoadedModel, side: str) -> TextEncoder:
    """What makes our vectors of queries or documents."""
    embed = getattr(loaded.model, "embed_queries" if side == "query" else "embed_documents")
    return TextEncoder(embed, getattr(loaded.method, f"{side}_framing")(loaded.tokenizer))


def own_embeddings(loaded: LoadedModel, texts: list[str], side: str = "document") -> np.ndarray:
    return encoder_of(loaded, side).embeddings(loaded.tokenizer.encode(texts))


@contextmanager
def each_file_once(folder: Path) -> Iterator[None]:
    """Refuse that our functions open a file of a folder twice; transformers opens some by itself."""
    times, opens, maps = Counter[str](), open, opened_folder.load_file

    def count_open(file: Any, *arguments: Any, **keys: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("deepsiam."):
            times[str(file)] += 1
        return opens(file, *arguments, **keys)

    def count_map(file: Path) -> dict[str, torch.Tensor]:
        times[str(file)] += 1
        return maps(file)

    with patch.object(builtins, "open", count_open), patch.object(opened_folder, "load_file", count_map):
        yield
    inside = {Path(file).relative_to(folder): number for file, number in times.items() if file.startswith(f"{folder}/")}
    assert {file: number for file, number in inside.items() if number > 1} == {}
    assert {Path("config.json"), Path("model.safetensors"), Path("tokenizer.json")} <= inside.keys()
