"""Does a published encoder that learns from a few labels forget, and does it help that it is its own teacher?

    python -m benchmarks.claims.own_teacher [--writer FOLDER --examples FILE] [--seeds N] [--out FOLDER]

all-MiniLM-L6-v2 on Cranfield, cross-validated over two halves of its queries: as published; fine-tuned on the labels of
the other half alone; the same with its own vectors, as published, beside them; and with a --writer on queries that it
wrote for the documents, alone, with these vectors beside them, and then on the labels. The learning rate is the best of
a small grid on other queries of the half that is trained on, with the first seed. The table has the mean of MRR@10 over
the seeds, and p against the published encoder. A stopped run resumes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.claims import material
from benchmarks.claims.material import FOLDS
from benchmarks.claims.rankers import encoder
from benchmarks.claims.tables import best
from benchmarks.claims.tunings import mrr, rank
from benchmarks.claims.without_labels import FIRST_SEED, LABELS, RANKS, WRITTEN
from benchmarks.claims.written import BESIDE, Data, add_writer_options, check_writer, embed, write_queries
from benchmarks.common.measurements import Measurements
from benchmarks.common.training import Trainings
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker

RECIPE, NAME, PUBLISHED = "recipes/minilm_siamese.yaml", "cranfield", "published"
RATES = (5e-6, 2e-5, 5e-5)
SETTINGS = {
    "steps": 60,
    "batch.size": 32,
    "optimizer.warmup_steps": 6,
    "checkpoint.every": 60,
    "method.max_query_tokens": 256,  # as the published encoder reads
    "method.max_document_tokens": 256,
}


class Row(NamedTuple):
    """A fine-tuning of the published encoder, or of another row's result."""

    data: str
    beside: bool = False  # whether the published encoder's vectors of these texts are learned, too
    start: str = PUBLISHED


ROWS = {
    "labels": Row(LABELS),
    "labels, own vectors beside": Row(LABELS, beside=True),
    "written queries": Row(WRITTEN),
    "written queries, own vectors beside": Row(WRITTEN, beside=True),
    "these, then labels, own vectors beside": Row(LABELS, True, "written queries, own vectors beside"),
}


@dataclass
class Bench:
    """The fine-tunings, and MRR@10 of every query measured so far."""

    out: Path
    data: Mapping[str, Data]  # LABELS, and with a writer WRITTEN

    def __post_init__(self) -> None:
        self.measurements = Measurements[list[float]](self.out / "mrr.json")
        self.trainings = Trainings(RANKS)
        self.texts = Collection.open(self.data[LABELS].collection)

    @property
    def rows(self) -> list[str]:
        """The rows that can be measured."""
        return [PUBLISHED, *(name for name in ROWS if _data_of(name) <= {*self.data})]

    def values(self, row: str, seed: int) -> list[float]:
        """Return MRR@10 of every query, ranked by the row that has not seen its half."""
        return [value for fold in FOLDS for value in self._ranked(row, fold, seed, None, f"{NAME}-{fold}")]

    def _ranked(self, row: str, fold: str, seed: int, rate: float | None, split: str) -> list[float]:
        """Rank a split by a row that is tested on a fold."""

        def measure() -> list[float]:
            run = encoder() if row == PUBLISHED else self._tuned(row, fold, seed, rate)
            return rank(run, self.texts, [split])[split]

        return self.measurements.get(f"{row}, {seed}, rate {rate or 'best'}; {fold}: {split}", measure)

    def _tuned(self, name: str, fold: str, seed: int, rate: float | None) -> Path:
        row, rate = ROWS[name], rate or self._rate(name, fold)
        data = self.data[row.data]
        settings = {"seed": seed, "optimizer.lr": rate, "data.collection": data.collection, **SETTINGS}
        settings["init_from"] = encoder() if row.start == PUBLISHED else self._tuned(row.start, fold, seed, None)
        if row.data == LABELS:
            (settings["data.split"],) = (other for other in FOLDS if other != fold)
        if row.beside:
            settings |= {**BESIDE, "data.teacher": data.teacher}
        run = self.out / f"{[*ROWS].index(name)}-{fold}-{rate:g}-{seed}"
        return self.trainings.train("trainer.finetune", RECIPE, run, settings)

    def _rate(self, name: str, fold: str) -> float:
        (other,) = (other for other in FOLDS if other != fold)
        dev = f"{NAME}-{other}-dev"  # queries of the half that is trained on, which are not trained on
        return best({rate: float(np.mean(self._ranked(name, fold, FIRST_SEED, rate, dev))) for rate in RATES})


def _data_of(name: str) -> set[str]:
    """Return what a row and those before it are trained on."""
    return {ROWS[name].data, *_data_of(ROWS[name].start)} if name in ROWS else set()


def table(bench: Bench, seeds: Sequence[int]) -> str:
    """Write the table: a row for BM25, the published encoder and each fine-tuning."""
    published = np.array(bench.values(PUBLISHED, FIRST_SEED))
    splits = [evaluate_split(Bm25Ranker(bench.texts), f"{NAME}-{fold}") for fold in FOLDS]
    lines = ["| | MRR@10 | by seed | p against published |", "|---|---|---|---|"]
    lines.append(f"| BM25 | {np.mean([value for split in splits for value in mrr(split)]):.4f} | | |")
    for row in bench.rows:
        values = np.array([bench.values(row, seed) for seed in (seeds if row != PUBLISHED else [FIRST_SEED])])
        p = "" if row == PUBLISHED else f"{paired_permutation_test(values.mean(0), published):.4f}"
        by_seed = ", ".join(f"{value:.4f}" for value in values.mean(1))
        lines.append(f"| {row} | {values.mean():.4f} | {by_seed} | {p} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.own_teacher", description=(__doc__ or "").splitlines()[0])
    material.add_data_option(parser)
    add_writer_options(parser, 1400)  # all of Cranfield
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="of fine-tuning (3)")
    parser.add_argument("--out", type=Path, default=Path("runs/own_teacher"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.own_teacher"):
        check_writer(chosen)
        make_directory(chosen.out)
        vocabulary = encoder() / "tokenizer.json"
        labelled = chosen.out / "classic"
        if not (labelled / "manifest.json").is_file():
            material.classic(chosen.data, chosen.out, vocabulary, [NAME])
        data = {LABELS: embed(labelled, chosen.out / "label_vectors")}
        if chosen.writer:
            corpus = Collection.open(labelled).corpus
            texts = {name: corpus.text(i) for i, name in enumerate(corpus.ids)}
            options = chosen.writer, chosen.examples, chosen.documents
            data[WRITTEN] = write_queries(chosen.out, texts, vocabulary, *options)
        bench = Bench(chosen.out, data)
        for last in range(FIRST_SEED, FIRST_SEED + chosen.seeds):
            material.show(table(bench, range(FIRST_SEED, last + 1)), chosen.out / "own_teacher.md")


if __name__ == "__main__":
    main()
