"""Golden values of what ranks: rankings of every kind of ranker, searches of every index, and every export."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.trainer import evaluate, export, index, mine
from deepsiam.trainer.ranking.indexes.registry import KINDS, open_index
from deepsiam.trainer.ranking.rankers.registry import RANKERS
from tests import toy
from tests.golden.toy_data import ToyData
from tests.golden.values import number
from tests.trainer.runs import write_adapters, write_run

LENGTHS: dict[str, Any] = {"max_query_tokens": 8, "max_document_tokens": 24}
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"name": "siamese", "similarity": "cosine", "pooling": "mean", **LENGTHS},
    "chunks": {"name": "siamese", "document_chunks": 2, "query_prompt": "abc", "towers": 2, **LENGTHS},
    "multi_vector": {"name": "colbert", "dimension": 16, **LENGTHS},
    "poly": {"name": "poly_encoder", "m": 4, **LENGTHS},
    "sparse": {"name": "sparse", **LENGTHS},
    "lists": {"name": "cross_thought_answers", "negatives_per_query": 1, **LENGTHS},
    "likelihoods": {"name": "tilde", **LENGTHS},
    "pairs": {"name": "cross_encoder", "loss": "binary", "negatives_per_query": 1, **LENGTHS},
    "duels": {"name": "duobert", "negatives_per_query": 1, "max_duel_tokens": 64, **LENGTHS},
    "listwise": {"name": "label_ranker", "negatives_per_query": 2, **toy.PROMPT},
    "pointwise": {
        "name": "label_ranker",
        "negatives_per_query": 2,
        **toy.PROMPT,
        "template": "{query}\n{document}\n",
        "labels": ["a", "b"],
    },
}
SEARCH = ("dense", "chunks", "multi_vector", "poly", "sparse")
SYSTEMS = {  # {kind} is the model of a kind
    "words": "bm25",
    **{kind: "{%s}" % kind for kind in SEARCH},  # noqa: UP031
    **{kind: "bm25 > 12 {%s}" % kind for kind in MODELS if kind not in SEARCH},  # noqa: UP031
    "short": "{dense}(dimensions=8)",
    "prompted": '{dense}(query_prompt="abc")',
    "fused": "fuse(bm25, {dense}, weight=0.3)",
    "fused-ranks": "fuse({dense}, {sparse}, rule=ranks)",
    "fused-split": "fuse(bm25, {multi_vector}, split=train)",
    "both-scores": "bm25 > 20 +{pairs}(weight=0.4)",
    "three-stages": "{dense} > 30 {multi_vector} > 10 {duels}",
    "duel-samples": "bm25 > 10 {duels}(pairs=4)",
}
QUERIES, FIRST = 6, 6  # the rankings that are kept, and the documents of each
CODES = {"dense": ("float32", "float16", "int8", "binary"), "multi_vector": ("float16", "residual2", "residual4")}
APPROXIMATE = {"dense float32": ("ivf", "hnsw"), "multi_vector float16": ("centroids",)}


def _models(data: ToyData, folder: Path) -> dict[str, Path]:
    tokenizer = data.collection / "tokenizer.json"
    return {
        kind: write_run(folder / kind, tokenizer, seed=number, **method)
        for number, (kind, method) in enumerate(MODELS.items())
    }


def _ranking(documents: Sequence[Any], scores: Sequence[float]) -> dict[str, Any]:
    return {"documents": list(documents), "scores": [number(float(score)) for score in scores]}


def _run_file(path: Path) -> dict[str, Any]:
    """Return the beginning of the first rankings of a TREC run file."""
    found: dict[str, list[tuple[str, float]]] = {}
    for line in path.read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        found.setdefault(query, []).append((document, float(score)))
    return {query: _ranking(*zip(*rows[:FIRST], strict=True)) for query, rows in islice(found.items(), QUERIES)}


def rankings(data: ToyData, folder: Path) -> dict[str, Any]:
    """Rank with every kind of ranker, alone, fused and in stages; mine negatives with two of them."""
    models = _models(data, folder)
    assert MODELS.keys() - {"chunks"} == RANKERS.keys()
    out = [f"--out={folder / 'results.json'}", f"--write-runs={folder / 'runs'}", "--metrics", "map@20", "mrr@3"]
    found: dict[str, Any] = {}
    for first, second in zip(list(SYSTEMS)[::2], list(SYSTEMS)[1::2], strict=True):  # all pairs would be compared
        systems = [f"--system={name}={SYSTEMS[name].format(**models)}" for name in (first, second)]
        evaluate.main([f"--collection={data.collection}", "--split=test", *systems, *out])
        results = json.loads((folder / "results.json").read_text())
        for name in (first, second):
            rankings = _run_file(folder / "runs" / f"{name}.trec")
            found[name] = {"metrics": results["systems"][name]["metrics"], "rankings": rankings}
        found[f"{first} and {second}"] = results["pairs"]
    pairs = f"--system=m={models['pairs']}"
    evaluate.main([f"--collection={data.scored}", "--split=train", "--candidates", pairs, out[0]])
    found["candidates"] = json.loads((folder / "results.json").read_text())["systems"]["m"]["metrics"]
    classes = write_run(
        folder / "classes", data.classes / "tokenizer.json", name="cross_encoder", loss="classes", classes=3, **LENGTHS
    )
    evaluate.main([f"--collection={data.classes}", "--split=train", "--classes", f"--system=m={classes}", out[0]])
    found["classes"] = json.loads((folder / "results.json").read_text())["systems"]["m"]["metrics"]
    mined = folder / "mined"
    where = [f"--collection={data.collection}", "--split=train", f"--out={mined}"]
    mine.main([*where, f"--system={models['dense']}", "--system=bm25", "--depth=12"])
    groups = Collection.open(mined).groups("train")
    found["mined"] = [groups[i].candidates.tolist() for i in range(12)]
    return found


def indexes(data: ToyData, folder: Path) -> dict[str, Any]:
    """Make an index of every kind and storage, exact and approximate, and search it."""
    models, found = _models(data, folder), {}
    assert CODES.keys() <= KINDS.keys() <= {*models, "bm25"}
    for kind in KINDS:
        for dtype in CODES.get(kind, ("",)):
            out = folder / f"{kind}-{dtype}.index"
            options = [f"--collection={data.collection}", f"--out={out}", *([f"--dtype={dtype}"] if dtype else [])]
            for approximation in (None, *APPROXIMATE.get(f"{kind} {dtype}", ())):
                more = [f"--approximate={approximation}"] if approximation else []
                index.main([str(models.get(kind, kind)), *options, *more])
                opened = open_index(out)
                texts = [opened.collection.queries.text(query) for query in range(100, 100 + QUERIES)]
                rows = opened.search(texts, FIRST, approximation)
                found[f"{kind} {dtype} {approximation or ''}".strip()] = {
                    "rankings": [_ranking(row.documents.tolist(), row.scores.tolist()) for row in rows],
                    "files": _arrays(out),
                }
    return found


def _arrays(folder: Path) -> dict[str, Any]:
    """Describe the files of an index, and its arrays."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r")
            found[str(path.relative_to(folder))] = [str(array.dtype), *array.shape]
        elif path.is_file():
            found[str(path.relative_to(folder))] = None
    return found


EXPORTED: dict[str, tuple[str, tuple[str, ...]]] = {  # the model, and the options of the export
    **{kind: (kind, ()) for kind in ("dense", "multi_vector", "poly", "sparse", "cross_encoder")},
    "cls": ("cls", ()),
    "seed": ("seed", ()),
    "seed-decoder": ("seed", ("--with-decoder",)),
    "cross_thought": ("cross_thought", ()),
    "adapters": ("adapters", ("--format=adapters",)),
    "adapters-merged": ("adapters", ()),
}
MORE_MODELS: dict[str, dict[str, Any]] = {
    "cls": {"name": "siamese", "query_prompt": "abc", "document_prompt": "de", "dimensions": [16, 8], **LENGTHS},
    "cross_encoder": {"name": "cross_encoder", "loss": "binary", "negatives_per_query": 1, **LENGTHS},
    "seed": {"name": "seed", "max_tokens": 24, "decoder_layers": 1},
    "cross_thought": {"name": "cross_thought", "sequences": 4, "sequence_tokens": 6, "special_tokens": 3},
}


def exports(data: ToyData, folder: Path) -> dict[str, Any]:
    """Export every kind that has an export: its files, its JSON, its tensors."""
    tokenizer, models = data.collection / "tokenizer.json", _models(data, folder)
    models |= {kind: write_run(folder / kind, tokenizer, **method) for kind, method in MORE_MODELS.items()}
    method, lora = {"pooling": "mean", "similarity": "cosine"}, {"rank": 4, "targets": ["query", "value"]}
    export.main([str(models["seed"]), str(folder / "start")])
    models["adapters"] = write_adapters(folder / "adapters", data.collection, folder / "start", lora, method=method)
    found = {}
    for name, (model, options) in EXPORTED.items():
        export.main([str(models[model]), str(folder / f"{name}.out"), *options])
        found[name] = described(folder / f"{name}.out", folder)
    return found


def described(folder: Path, root: Path) -> dict[str, Any]:
    """Describe the files of an export: JSON without versions, modules and the path `root`; types, sums of tensors."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".safetensors":
            found[name] = {key: _tensor(tensor) for key, tensor in sorted(load_file(path).items())}
        elif path.suffix == ".json" and path.name != "tokenizer.json":
            text = re.sub(r"(from|\"class\":) (\"?)[\w.]+(\.| import )", r"\1 \2MODULE\3", path.read_text())
            found[name] = _without_versions(json.loads(text.replace(str(root), "ROOT")))
        elif path.is_file():
            found[name] = None
    return found


def _tensor(tensor: torch.Tensor) -> list[Any]:
    """Return the type and shape of a tensor, and a sum that depends on the places of its numbers."""
    weights = torch.linspace(1, 2, tensor.numel(), dtype=torch.float64)
    total = number(float((tensor.double().abs().flatten() * weights).sum()))
    return [str(tensor.dtype).removeprefix("torch."), *tensor.shape, total]


def _without_versions(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _without_versions(value) for key, value in values.items() if "version" not in key.lower()}
    return [_without_versions(value) for value in values] if isinstance(values, list) else values
