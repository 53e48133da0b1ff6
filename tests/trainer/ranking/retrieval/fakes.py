"""Small matching models whose scores follow from the texts: one with several vectors per text, one that reads pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.models.batching.framing import PairFraming
from deepsiam.models.interface import Vocabulary
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.matching.dual_encoder import DualEncoder, DualEncoderConfig
from deepsiam.models.matching.tilde import terms_in
from deepsiam.models.trunk import TrunkModel
from deepsiam.models.vectors import Vectors, one_vector
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.evaluation.expression import BM25, Given, Leaf
from deepsiam.trainer.ranking.evaluation.systems import Systems
from deepsiam.trainer.ranking.ranker import Ranker
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.search import Ranked
from deepsiam.trainer.training.recipe.build import new_trunk
from tests import toy


def positions(ranked: Sequence[Ranked]) -> list[list[int]]:
    """The documents of each ranking."""
    return [row.documents.tolist() for row in ranked]


def ranked_as(documents: Sequence[int]) -> Ranked:
    """A ranking of these documents, with scores 0, -1, ..."""
    return Ranked(np.array(documents, np.int64), -np.arange(len(documents), dtype=np.float32))


def assert_same(some: Sequence[Ranked], others: Sequence[Ranked]) -> None:
    """Expect the same documents and scores for each query, to the last bit."""
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one.documents, other.documents)
        np.testing.assert_array_equal(one.scores, other.scores)


class TokensConfig(DualEncoderConfig):
    """A text is represented by the embeddings of its tokens."""

    name: Literal["tokens"] = "tokens"
    max_query_tokens: int = 8
    max_document_tokens: int = 16

    def model(self, trunk: PreTrainedModel) -> Tokens:
        return Tokens(trunk, self)


class Tokens(DualEncoder):
    """A text has a vector for every second token; the score sums each query vector's best match in the document."""

    kind = "multi_vector"

    def embed_queries(self, ids: Tensor, mask: Tensor) -> Vectors:
        vectors = self.trunk.get_input_embeddings()(ids)
        return Vectors(vectors, mask & (torch.arange(ids.shape[1]) % 2 == 1))

    def embed_documents(self, ids: Tensor, mask: Tensor) -> Vectors:
        return self.embed_queries(ids, mask)

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        products = torch.einsum("qmh,dkh->qdmk", queries.vectors, documents.vectors)
        best = products.masked_fill(~documents.mask[None, :, None], -torch.inf).amax(dim=3)
        return (best * queries.mask[:, None]).sum(dim=2)


class TermsConfig(TokensConfig):
    """A text is represented by weights of its tokens."""

    name: Literal["terms"] = "terms"  # type: ignore[assignment]

    def model(self, trunk: PreTrainedModel) -> TermWeights:  # type: ignore[override]
        return TermWeights(trunk, self)


class TermWeights(DualEncoder):
    """A text has weights for its tokens, the special ones and every third aside; the score is an inner product."""

    kind = "sparse"

    def embed_queries(self, ids: Tensor, mask: Tensor) -> Vectors:
        embedding = self.trunk.get_input_embeddings().weight
        weights = torch.where((ids > 4) & (ids % 3 > 0) & mask, embedding[ids].abs().sum(dim=2), 0.0)
        vectors = torch.zeros(len(ids), len(embedding)).scatter_reduce(1, ids, weights, "amax")
        return one_vector(vectors)

    def embed_documents(self, ids: Tensor, mask: Tensor) -> Vectors:
        return self.embed_queries(ids, mask)

    def score(self, queries: Vectors, documents: Vectors) -> Tensor:
        return queries.vectors[:, 0] @ documents.vectors[:, 0].T


class OverlapConfig(MatchingConfig):
    """A pair is scored by the tokens that its texts share."""

    name: Literal["overlap"] = "overlap"
    loss: str = "binary"
    max_query_tokens: int = 8
    max_document_tokens: int = 16

    def pair_framing(self, vocabulary: Vocabulary) -> PairFraming:
        return PairFraming(self.query_framing(vocabulary), self.document_framing(vocabulary))

    def batcher(self, vocabulary: Vocabulary, candidates: Any) -> Any:
        raise AssertionError("not trained")

    def model(self, trunk: PreTrainedModel) -> TrunkModel:
        raise AssertionError("not trained")


class Overlap(TrunkModel):
    """The score of a pair: how many of the document's tokens, special tokens included, occur in the query.

    With `classes`, the logits of that many classes: the largest belongs to class score modulo `classes`.
    """

    kind = "pairs"

    def __init__(self, classes: int = 0) -> None:
        super().__init__()
        self.classes = classes
        self.batches: list[tuple[int, int]] = []

    def score_pairs(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        self.batches.append((ids.shape[0], ids.shape[1]))
        of_document = mask & (types == 1)
        of_query = mask & (types == 0)
        same = (ids[:, :, None] == ids[:, None]) & of_document[:, :, None] & of_query[:, None]
        scores = same.any(dim=2).sum(dim=1)
        if self.classes:
            return torch.nn.functional.one_hot(scores % self.classes, self.classes).float()
        return scores.float()


def plain_overlap(query: list[int], document: list[int], special: int = 1) -> int:
    """The score of `Overlap`; [SEP] is the only special token that is in both texts."""
    return sum(token in query for token in document[:14]) + special


def tokens_run(collection: Collection) -> LoadedModel:
    """A `Tokens` model, as `load_trained` would return it."""
    return _encoder_run(collection, TokensConfig())


def terms_run(collection: Collection) -> LoadedModel:
    """A `TermWeights` model, as `load_trained` would return it."""
    return _encoder_run(collection, TermsConfig())


def _encoder_run(collection: Collection, config: DualEncoderConfig) -> LoadedModel:
    torch.manual_seed(0)
    return _run(collection, config.model(new_trunk(toy.TRUNK, collection.tokenizer)).eval(), config)


def overlap_run(collection: Collection, classes: int = 0) -> LoadedModel:
    """An `Overlap` model, as `load_trained` would return it."""
    return _run(collection, Overlap(classes).eval(), OverlapConfig(loss="classes" if classes else "binary"))


def _run(collection: Collection, model: Any, method: MatchingConfig) -> LoadedModel:
    return LoadedModel(model, method, collection.tokenizer, Path("run/step"))


def plain_scores(trained: LoadedModel, collection: Collection, query: int, documents: Sequence[int]) -> np.ndarray:
    """The scores of a query's documents, fp32 [n], all in one batch."""
    model, method = trained.model, trained.method
    queries, texts = [collection.queries.tokens(query)], [collection.corpus.tokens(i) for i in documents]

    def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    with torch.no_grad():
        if model.kind == "pairs":
            arrays = method.pair_framing(trained.tokenizer).arrays(queries * len(texts), texts)
            return model.score_pairs(**tensors(arrays)).numpy()
        if model.kind == "duels":
            number = len(texts)
            firsts, seconds = ([text for text in texts for _ in texts], texts * number)
            arrays = method.duel_framing(trained.tokenizer).arrays(queries * number**2, firsts, seconds)
            chances = model.score_duels(**tensors(arrays)).double().sigmoid().view(number, number)
            return (chances.sum(dim=1) - chances.diagonal()).float().numpy()
        if model.kind == "listwise":  # by windows, from the bottom up
            framing, size = method.prompt_framing(trained.tokenizer), len(method.labels)
            asked, passages = collection.queries.text(query), [collection.corpus.text(i) for i in documents]
            order = list(range(len(documents)))
            for end in range(len(order), size // 2, -(size // 2)):
                window = order[max(0, end - size) : end]
                row = framing.row(asked, [passages[i] for i in window])
                logits = model.label_logits(**tensors(framing.arrays([row])))[0].tolist()
                of_item = dict(zip(window, logits, strict=False))
                order[max(0, end - size) : end] = sorted(window, key=lambda i, of=of_item: (-of[i], i))
            return np.array([-order.index(i) for i in range(len(order))], np.float32)
        framings = method.query_framing(trained.tokenizer), method.document_framing(trained.tokenizer)
        of_query = model.embed_queries(**tensors(framings[0].arrays(queries)))
        of_documents = model.embed_documents(**tensors(framings[1].arrays(texts)))
        if model.kind == "likelihoods":
            terms = terms_in(trained.tokenizer)
            asked = framings[0].cut(queries[0])
            sums = of_documents.vectors[:, 0].double().numpy()[:, asked[terms[asked]]].sum(axis=1)
            own = [text[terms[text]] for text in map(framings[1].cut, texts)]
            given_query = of_query.vectors[0, 0].double().numpy()
            means = [given_query[text].sum() / max(1, len(text)) for text in own]
            return (method.alpha * sums + (1 - method.alpha) * np.array(means)).astype(np.float32)
        return model.score(of_query, of_documents).numpy()[0]


def systems_of(collection: Collection, models: Mapping[str, LoadedModel], *, bm25: bool = False) -> Systems:
    """Systems of one model each, as `--system NAME=MODEL` gives them, after BM25."""
    given = [Given("bm25", BM25, "bm25")] if bm25 else []
    given += [Given(name, Leaf(f"./{name}"), f"{name}=./{name}") for name in models]
    rankers: dict[Leaf, Ranker] = {Leaf(f"./{name}"): ranker_of(model, collection) for name, model in models.items()}
    return Systems(collection, given, {BM25: Bm25Ranker(collection), **rankers})
