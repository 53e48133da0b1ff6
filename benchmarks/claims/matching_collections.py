"""What the matching models are compared on: collections of real text, what to train on, and what to rank or classify.

Cranfield, CACM and Vaswani are one collection in two folds of queries: each fold is ranked after training on the other.
In Reddit and IRC whole threads are held out, in RTE and SICK every fifth pair; TREC-QA has a development file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.claims.material import FOLDS, classic, data_prep, write
from deepsiam.data_prep.common.files import read_bytes
from deepsiam.trainer.ranking.evaluation.metrics import Metrics

CLASSIC = ("cranfield", "cacm", "vaswani")
TUNED_ON = ("cranfield", "vaswani")  # CACM has too few queries to choose a rate on
DIALOGUES = {"reddit": (0.3, 150), "irc": (0.03, 300)}  # the share of threads held out; steps of training
CLASSES = {"rte": 2, "sick": 3}
TITLES = {  # of the tables
    "cranfield": "Cranfield",
    "cacm": "CACM",
    "vaswani": "Vaswani",
    "reddit": "Reddit",
    "irc": "IRC",
    "trec_qa": "TREC-QA",
    "rte": "RTE",
    "sick": "SICK",
}
TEST_EVERY = 5  # one in five pairs of RTE and SICK is held out

Kind = Literal["pool", "lists", "classes"]  # what to rank, or to classify
Values = dict[str, list[float]]  # each metric of every query, list or pair


def as_lists(metrics: Metrics, names: Sequence[str]) -> Values:
    """Return the named metrics as JSON values, with six decimals."""
    return {name: metrics.values[name].round(6).tolist() for name in names}


@dataclass(frozen=True)
class Part:
    """Some queries, lists or pairs of a split: those between two shares of the split, in its order."""

    split: str
    start: float = 0.0
    stop: float = 1.0

    def of(self, values: Values) -> Values:
        """Return the values of this part."""
        return {name: of[round(self.start * len(of)) : round(self.stop * len(of))] for name, of in values.items()}


@dataclass(frozen=True)
class Fold:
    """What to train on, what to choose the learning rate on, and what to report, by the title of its table."""

    train: str
    dev: tuple[Part, ...]
    test: Mapping[str, Part]


@dataclass(frozen=True)
class Model:
    """A matching model: its recipe, and the keys that the data require."""

    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A collection, and the models to compare on it, in the claimed order of quality."""

    name: str
    kind: Kind
    collection: Path
    folds: tuple[Fold, ...]
    models: Mapping[str, Model]
    metrics: tuple[str, ...]  # the first one is used to choose the rate, and for the tests

    @property
    def reported(self) -> list[tuple[Fold, str, Part]]:
        """Every part to report: its fold, and the title of its table."""
        return [(fold, title, part) for fold in self.folds for title, part in fold.test.items()]


def held_out(name: str) -> tuple[Fold, ...]:
    """Return one fold: a third of the held-out data is for choosing the rate, the rest is reported."""
    return (Fold("train", (Part("test", 0, 1 / 3),), {TITLES[name]: Part("test", 1 / 3, 1)}),)


ORDER = {"data.lanes": 16, "data.window": 64}  # of the data, in the committed measurements of ColBERT and Poly-encoders
SHORT = {"method.max_query_tokens": 32, "method.max_document_tokens": 64}
RANKERS = {
    "Siamese": Model("siamese_small", {"steps": 100}),
    "ColBERT": Model("colbert_small", {"steps": 100, "batch.size": 32, "batch.micro": 32, **ORDER}),
    "cross-encoder": Model("cross_encoder_small", {"steps": 100}),
}
# keep the end of a context; as many replies for each context as fit a laptop's memory
CONTEXT = {"method.max_query_tokens": 128, "method.max_document_tokens": 64, "method.kept_of_query": "end"}
REPLIES = {"batch.size": 32, "batch.micro": 32, **CONTEXT}
ANSWERS = {"steps": 100, **SHORT}
ANSWER_MODELS = {
    "Siamese": Model("siamese_small", ANSWERS),
    "cross-encoder": Model(
        "cross_encoder_small", {**ANSWERS, "method.loss": "binary", "method.negatives_per_query": 0}
    ),
}


def dialogue_models(steps: int) -> dict[str, Model]:
    """Return the models that choose a reply, in the order that the Poly-encoder paper claims."""
    both = {"steps": steps, **REPLIES}
    few = {"batch.micro": 8, "method.negatives_per_query": 0, "method.hard_negatives": 3}
    return {
        "bi-encoder": Model("siamese_small", {**both, "method.negatives": "micro_batch", "method.towers": 2}),
        "poly-encoder 16": Model("poly_encoder_small", {**both, **ORDER, "method.m": 16}),
        "poly-encoder 64": Model("poly_encoder_small", {**both, **ORDER, "method.m": 64}),
        "cross-encoder": Model("cross_encoder_small", {**both, **few}),
    }


def pair_models(classes: int) -> dict[str, Model]:
    """Return the models that classify."""
    both = {"steps": 300, "method.max_query_tokens": 96, "method.max_document_tokens": 96}
    keys = {"method.loss": "classes", "method.classes": classes, "method.negatives_per_query": 0}
    return {"cross-encoder": Model("cross_encoder_small", {**both, **keys})}


def studies(folder: Path) -> list[Study]:
    """Return every study, with its collection under `folder`."""
    folds = tuple(
        Fold(
            other,
            tuple(Part(f"{name}-{other}-dev") for name in TUNED_ON),
            {TITLES[name]: Part(f"{name}-{fold}") for name in CLASSIC},
        )
        for fold, other in zip(FOLDS, reversed(FOLDS), strict=True)
    )
    dialogues = ((name, dialogue_models(steps)) for name, (_, steps) in DIALOGUES.items())
    pairs = ((name, pair_models(classes)) for name, classes in CLASSES.items())
    return [
        Study("classic", "pool", folder / "classic", folds, RANKERS, ("mrr@10", "ndcg@10")),
        *(Study(name, "lists", folder / name, held_out(name), models, ("r@1", "mrr")) for name, models in dialogues),
        Study("trec_qa", "lists", folder / "trec_qa", held_out("trec_qa"), ANSWER_MODELS, ("map", "mrr")),
        *(Study(name, "classes", folder / name, held_out(name), models, ("accuracy",)) for name, models in pairs),
    ]


def make(data: Path, out: Path, vocabulary: Path) -> None:
    """Make every collection under `out` that is not there yet."""
    if not (out / "classic" / "manifest.json").is_file():
        classic(data, out, vocabulary, CLASSIC)
    for name, (share, _) in DIALOGUES.items():
        files = [data / "reddit" / f"{kind}_{'sample' if name == 'reddit' else name}.zst" for kind in ("RC", "RS")]
        prepared = out / f"{name}-prepared"
        options = ["--out", str(prepared), "--tokenizer", str(vocabulary), "--held-out", str(share)]
        data_prep("reddit", *map(str, files), *options)
        _collection("reddit_dialogues", out / name, vocabulary, train=prepared / "shards", test=prepared / "held_out")
    answers = {"train": data / "other" / "trecqa_train.jsonl", "test": data / "other" / "trecqa_dev.jsonl"}
    _collection("answer_selection", out / "trec_qa", vocabulary, **answers)
    for name in CLASSES:
        lines = read_bytes(data / "other" / f"{name}_train.jsonl").decode().splitlines()
        pairs = {split: out / f"{name}-{split}.jsonl" for split in ("train", "test")}
        write(pairs["train"], [line for i, line in enumerate(lines) if i % TEST_EVERY])
        write(pairs["test"], lines[::TEST_EVERY])
        _collection("nli", out / name, vocabulary, **pairs)


def _collection(format: str, folder: Path, vocabulary: Path, **splits: Path) -> None:
    """Make a collection of files or folders by split, unless it exists."""
    if not (folder / "manifest.json").is_file():
        named = [f"{split}={path}" for split, path in splits.items()]
        data_prep("collection", format, *named, "--out", str(folder), "--tokenizer", str(vocabulary))
