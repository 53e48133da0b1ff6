"""Every kind of folder and family: read as its library computes it, written by us, read by the library and us again."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

import numpy as np
import pytest
import torch

from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.build_trunk import settings_of
from deepsiam.models.causality import is_causal
from deepsiam.models.encode import encode
from deepsiam.models.matching.sparse import SparseConfig
from deepsiam.models.pretraining.ict import IctConfig
from deepsiam.trainer.interop.cross_encoder import HEADS
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.interop.kinds import FOLDER_KINDS
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.interop.settings import COLBERT, DENSE, ENCODER, PAIRS, SPARSE, Kind
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.recipe.build import trunk_of
from tests import toy
from tests.trainer.interop import test_colbert as colbert
from tests.trainer.interop import test_cross_encoder as pairs
from tests.trainer.interop import test_folder as encoders
from tests.trainer.interop import test_masked_lm as masked_lms
from tests.trainer.interop.family_folders import CAUSAL, TRUNKS, texts_for, write_folder
from tests.trainer.interop.published_folders import by_library, change, own_embeddings

FACTS = {"name": "m", "kind": "k", "run": "r", "step": "1", "width": 1, "tokens": 1, "loader": "AutoModel"}
QUERIES = ["abc de fghij", "", "a [MASK] (and) a [SEP] the abc", "unknown ☃ 漢字"]
DOCUMENTS = ["Upper CASE, naïve café!", "abc - de; fghij.", "a ☃", " ".join(["gh, ij"] * 60)]
LENGTHS = {"max_query_tokens": 20, "max_document_tokens": 20}
Arrays = list[np.ndarray]


class RoundTrip(Protocol):
    """How folders of a kind are made, and what is computed by them."""

    families: Iterable[str]
    like_others: tuple[str, ...]  # the families that another one stands for unless FULL_TESTS is set

    def publish(self, folder: Path, family: str, tokenizer_json: Path) -> object:
        """Write a folder as others publish it; `tokenizer_json` is a tokenizer that it may have."""

    def load(self, folder: Path) -> LoadedModel:
        """Read it."""
        return load_any(folder)

    def ours(self, loaded: LoadedModel) -> Arrays:
        """Compute vectors or scores of some texts."""

    def theirs(self, folder: Path) -> Arrays:
        """Compute the same by the library that the folder is for."""


class Dense(RoundTrip):
    """Vectors by sentence-transformers; a decoder as it is, and as one that sees the whole text."""

    families = (*TRUNKS, *(f"{family} both ways" for family in CAUSAL))
    like_others = (
        *("distilbert", "electra", "roberta", "mt5", "qwen2", "mistral"),
        *(f"{family} both ways" for family in ("qwen3", "llama", "mistral", "gemma2")),
    )

    def publish(self, folder: Path, family: str, tokenizer_json: Path) -> None:
        kind, _, both_ways = family.partition(" ")
        write_folder(folder, kind, "mean" if both_ways else "lasttoken" if kind in CAUSAL else "cls")
        if both_ways:
            change(folder / "config.json", {"is_causal": False})
        self.texts = texts_for(folder)

    def load(self, folder: Path) -> LoadedModel:
        with patch.object(tokenizers, "load", wraps=tokenizers.load) as load:
            loaded = load_any(folder)
        load.assert_called_once()
        return loaded

    def ours(self, loaded: LoadedModel) -> Arrays:
        assert is_causal(loaded.model.trunk) is (loaded.method.pooling == "last")  # type: ignore[attr-defined]
        return [own_embeddings(loaded, self.texts)]

    def theirs(self, folder: Path) -> Arrays:
        model = by_library("SentenceTransformer", folder)
        vectors = model.encode(self.texts)
        some = slice(1, None, 5)  # alone they have the same
        np.testing.assert_allclose(vectors[some], np.stack([*map(model.encode, self.texts[some])]), atol=1e-5)
        return [vectors]


class Colbert(RoundTrip):
    """Vectors of tokens by sentence-transformers' MultiVectorEncoder, from PyLate's files."""

    families = tuple(family for family in TRUNKS if family not in CAUSAL)  # whose first states see no text
    like_others = ("distilbert", "electra", "roberta", "mpnet", "albert", "deberta-v2", "eurobert", "mt5")

    def publish(self, folder: Path, family: str, tokenizer_json: Path) -> None:
        encoder = colbert.add_markers(write_folder(folder.with_name("encoder"), family, "mean"))
        expands = tokenizers.load(encoder).mask is not None
        settings = {**colbert.PYLATE, "query_length": 14, "document_length": 16, "do_query_expansion": expands}
        colbert.write_colbert(encoder, folder, {colbert.SETTINGS: settings, colbert.BERT: {}})

    def ours(self, loaded: LoadedModel) -> Arrays:
        return [text for side in colbert.own_vectors(loaded) for text in side]

    def theirs(self, folder: Path) -> Arrays:
        model = by_library("MultiVectorEncoder", folder)
        return [*model.encode_query(colbert.TEXTS), *model.encode_document(colbert.TEXTS)]


class Pairs(RoundTrip):
    """Scores by sentence-transformers; some also by folders whose tokenizer gives no types."""

    families = (*sorted(HEADS), "albert untyped", "bert untyped", "electra untyped")
    like_others = ("camembert", "deberta", "xlm-roberta", "xlm-roberta-xl", "albert untyped", "electra untyped")

    def publish(self, folder: Path, family: str, tokenizer_json: Path) -> None:
        kind, _, untyped = family.partition(" ")
        pairs.write_folder(folder, tokenizer_json, kind, types=kind in pairs.TYPED and not untyped)
        pairs.edit(folder / "config.json", sentence_transformers={"activation_fn": pairs.IDENTITY})  # as a run's

    def ours(self, loaded: LoadedModel) -> Arrays:
        return [pairs.own_scores(loaded)]

    def theirs(self, folder: Path) -> Arrays:
        return [pairs.predicted(folder)]


class Sparse(RoundTrip):
    """Weights of the vocabulary's tokens by sentence-transformers; it starts as a masked LM."""

    families = (*masked_lms.FAMILIES, *("data2vec-text", "deberta", "deberta-v2", "megatron-bert", "xlm-roberta-xl"))
    like_others = ("xlm-roberta", "camembert", "data2vec-text", "deberta", "megatron-bert", "xlm-roberta-xl")

    def publish(self, folder: Path, family: str, tokenizer_json: Path) -> None:
        tokenizer = tokenizers.load(tokenizer_json)
        masked_lms.publish(folder, family, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad)
        shutil.copy(tokenizer.path, folder)

    def load(self, folder: Path) -> LoadedModel:
        method = SparseConfig(name="sparse", **LENGTHS)
        encoder = load_encoder(Folder(folder), tokenizers.load(folder))
        model = method.model(encoder.trunk)
        assert "5 of the 5 head weights" in encoder.fill_heads(model, method)
        return LoadedModel(model.eval(), method, tokenizers.load(folder), folder)

    def ours(self, loaded: LoadedModel) -> Arrays:
        weights = [own_embeddings(loaded, QUERIES, "query"), own_embeddings(loaded, DOCUMENTS, "document")]
        assert not any(side[:, [*loaded.tokenizer.special]].any() for side in weights)
        return weights

    def theirs(self, folder: Path) -> Arrays:
        model = by_library("SparseEncoder", folder)
        return [side.to_dense().numpy() for side in (model.encode_query(QUERIES), model.encode_document(DOCUMENTS))]


class Encoder(RoundTrip):
    """States by transformers."""

    families = encoders.TYPES
    like_others = ("bert", "xlm-roberta", "mpnet", "albert", "modernbert", "eurobert", "gpt2", "qwen3")  # of Dense

    def publish(self, folder: Path, family: str, tokenizer_json: Path) -> None:
        encoders.publish(folder, family)
        self.keys, self.tokenizer = encoders.TYPES[family], tokenizers.load(tokenizer_json)

    def load(self, folder: Path) -> LoadedModel:
        published = Folder(folder).trunk()
        assert published.training
        trunk = trunk_of(json.loads(json.dumps(settings_of(published.config))), "trunk.json")  # as a run keeps it
        trunk.load_state_dict(published.state_dict())
        for key, value in self.keys.items():
            assert getattr(trunk.config, key) == value
        method = IctConfig(name="ict").for_trunk(trunk)
        return LoadedModel(method.model(trunk).eval(), method, self.tokenizer, folder)

    def ours(self, loaded: LoadedModel) -> Arrays:
        with torch.inference_mode():
            return [encode(loaded.model.trunk, encoders.IDS, encoders.MASK)[encoders.MASK].numpy()]

    def theirs(self, folder: Path) -> Arrays:
        with torch.inference_mode():
            states = encoders.stock(folder)(input_ids=encoders.IDS, attention_mask=encoders.MASK.long())
            return [states.last_hidden_state[encoders.MASK].numpy()]


KINDS: dict[Kind, type[RoundTrip]] = {DENSE: Dense, COLBERT: Colbert, PAIRS: Pairs, SPARSE: Sparse, ENCODER: Encoder}


ALL = [
    (kind, family)
    for kind, trip in KINDS.items()
    for family in trip.families
    if toy.FULL_TESTS or family not in trip.like_others
]


@pytest.mark.parametrize(("kind", "family"), ALL)
def test_a_folder(toy_collection: Path, tmp_path: Path, kind: Kind, family: str) -> None:
    trip, theirs, out = KINDS[kind](), tmp_path / "theirs", tmp_path / "ours"
    trip.publish(theirs, family, toy_collection / "tokenizer.json")
    loaded = trip.load(theirs)
    expected = trip.ours(loaded)
    assert max(array.std(axis=0).max() for array in expected) > 1e-2
    if kind != SPARSE:  # a masked LM weighs special tokens too, until it is fine-tuned
        compare(trip.theirs(theirs), expected, 1e-5)
    write = FOLDER_KINDS[kind].write
    assert write
    out.mkdir()
    write(loaded, loaded.method, out, {**FACTS, "out": out})
    compare(trip.theirs(out), expected, 1e-5)
    compare(trip.ours(trip.load(out)), expected, 0)


def compare(arrays: Arrays, expected: Arrays, tolerance: float) -> None:
    for array, other in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(array, other, rtol=0, atol=tolerance)
