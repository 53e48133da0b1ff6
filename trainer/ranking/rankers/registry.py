"""The kinds of rankers, a line each: a model says by its `kind` which one it needs."""

from __future__ import annotations

from pathlib import Path

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.registry import Registry
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.published import load_any
from deepsiam.trainer.ranking.ranker import ModelRanker, Ranker
from deepsiam.trainer.ranking.rankers import generated
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker
from deepsiam.trainer.ranking.retrieval.bm25 import NAME

RANKERS: Registry[type[ModelRanker]] = Registry(
    "ranker",
    {
        "dense": "deepsiam.trainer.ranking.rankers.dense.DenseRanker",
        "multi_vector": "deepsiam.trainer.ranking.rankers.multi_vector.MultiVectorRanker",
        "poly": "deepsiam.trainer.ranking.rankers.multi_vector.MultiVectorRanker",
        "sparse": "deepsiam.trainer.ranking.rankers.sparse.SparseRanker",
        "lists": "deepsiam.trainer.ranking.rankers.multi_vector.ListRanker",
        "likelihoods": "deepsiam.trainer.ranking.rankers.likelihoods.LikelihoodRanker",
        "pairs": "deepsiam.trainer.ranking.rankers.pairs.PairRanker",
        "duels": "deepsiam.trainer.ranking.rankers.duels.DuelRanker",
        "pointwise": "deepsiam.trainer.ranking.rankers.labels.Pointwise",
        "listwise": "deepsiam.trainer.ranking.rankers.labels.Listwise",
    },
)


def open_ranker(model: str | Path, collection: Collection, precision: str | None = None) -> Ranker:
    """Open `bm25`, `lrl`, or the model of a run or of a published folder, to rank a collection.

    A model computes in `precision`, as in `ModelRanker`.

    Raises:
        InputError: the model is missing, damaged, or cannot rank this collection.
    """
    if str(model) == NAME:
        return Bm25Ranker(collection)
    if str(model) == generated.NAME:
        return generated.GeneratedLists(collection)
    return ranker_of(load_any(Path(model)), collection, precision)


def ranker_of(trained: LoadedModel, collection: Collection, precision: str | None = None) -> ModelRanker:
    """Return a loaded model as a ranker of a collection; it computes in `precision`, as in `ModelRanker`.

    Raises:
        InputError: it was not trained to compare texts, or its tokenizer is not the collection's.
    """
    kind = getattr(trained.model, "kind", None)
    if kind is not None and kind not in RANKERS:
        raise InputError(f"{trained.checkpoint}: the kind of its model: {RANKERS.refusal(kind)}")
    if kind is None:
        raise InputError(
            f"{trained.checkpoint}: a {trained.kind} pre-training run, which was not trained to compare texts: "
            f"fine-tune it first (deepspeed --module trainer.finetune RECIPE init_from={trained.checkpoint})"
        )
    return RANKERS[kind](trained, collection, precision).with_collection(collection)
