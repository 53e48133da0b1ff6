"""The kinds of indexes, a line each: the kind of a ranker's index is its `kind`."""

from __future__ import annotations

import os
from pathlib import Path

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.registry import Registry
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.index import Index
from deepsiam.trainer.ranking.ranker import PROMPTS, Ranker, VectorRanker
from deepsiam.trainer.ranking.rankers.dense import open_dense
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.ranking.retrieval.bm25 import NAME

KINDS: Registry[type[Index]] = Registry(
    "index",
    {
        "dense": "deepsiam.trainer.ranking.indexes.dense.DenseIndex",
        "multi_vector": "deepsiam.trainer.ranking.indexes.multi_vector.MultiVectorIndex",
        "sparse": "deepsiam.trainer.ranking.indexes.sparse.SparseIndex",
        "bm25": "deepsiam.trainer.ranking.indexes.bm25.Bm25Index",
    },
)


def kind_of(ranker: Ranker) -> type[Index]:
    """Return the kind of index that a ranker needs; raise InputError where it has none."""
    if ranker.kind not in KINDS:
        raise InputError(
            f"{ranker.title} has no index: it re-ranks what another system found (trainer.evaluate --system)"
        )
    return KINDS[ranker.kind]


def open_index(
    path: str | os.PathLike[str],
    collection: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    query_model: str | os.PathLike[str] | None = None,
) -> Index:
    """Open an index with the collection and the model that it was made of; say where these are, if they have moved.

    `Index.search` searches it, for queries of `query_model` if there is one: a student that has learned the vectors of
    the index's model.

    Raises:
        InputError: the index is missing, unfinished or damaged; the collection or the model is missing or not the same.
    """
    directory = Path(path)
    folder = IndexFolder.open(directory)
    if folder.manifest["kind"] not in KINDS:
        raise InputError(f"{directory}: an index of a kind that this code does not know: {folder.manifest['kind']}")
    recorded = folder.manifest["collection"]
    opened = Collection.open(Path(collection or recorded["directory"]))
    if opened.sha256 != recorded["sha256"]:
        raise InputError(
            f"{opened.directory}: is not the collection that {directory} was made of, or was made again: "
            "make the index again, or name the collection with --collection"
        )
    about = folder.manifest["model"]
    if "checkpoint" not in about and model:
        raise InputError(f"--model {model}: {directory} was made without a model: leave it out")
    precision = folder.manifest.get("precision", "fp32") if "checkpoint" in about else None
    ranker = open_ranker(os.fspath(model or about.get("checkpoint", NAME)), opened, precision)
    if isinstance(ranker, VectorRanker):
        ranker = ranker.with_prompts({name: about.get(name, "") for name in PROMPTS})
    if ranker.identity["fingerprint"] != about["fingerprint"]:
        if "checkpoint" not in about:
            raise InputError(f"{directory}: older code split its texts into other words: make the index again")
        raise InputError(
            f"{ranker.name}: is not the model that {directory} was made with: name that one with "
            "--model, or make the index again"
        )
    if ranker.kind != folder.manifest["kind"]:
        raise folder.damaged(f"its kind is {folder.manifest['kind']}, that of its model {ranker.kind}")
    if dimensions := folder.manifest.get("dimensions"):
        ranker = ranker.cut(dimensions)
    index = KINDS[folder.manifest["kind"]].open(folder, ranker)
    if query_model is None:
        return index
    return index.asked_by(open_dense(Path(query_model), precision, "which the index's are compared with"))
