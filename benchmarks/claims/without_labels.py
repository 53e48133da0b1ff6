"""A retriever without labels at the demo's size: a teacher's vectors, a language model's queries, then labels.

    python -m benchmarks.claims.without_labels [--writer FOLDER --examples FILE] [--seeds N] [--out FOLDER]

It follows `make demo-documents`: the demo's encoder as it is, and after it has learned all-MiniLM-L6-v2's vectors of
the training docstrings. Both are fine-tuned on labels, without and with the teacher's vectors beside them, and, with a
--writer, on queries that it wrote for training docstrings. Every model ranks the test split alone and fused with BM25.

The learning rate is the best of a small grid on the development split, with the first seed. A number is the mean over
the seeds of fine-tuning; the encoders that it starts from are one run each. A stopped run resumes; the table is
rewritten after every seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.claims import material
from benchmarks.claims.pipelines import table
from benchmarks.claims.rankers import command
from benchmarks.claims.tables import best
from benchmarks.claims.tunings import RECIPE, rank
from benchmarks.claims.written import BESIDE, Data, add_writer_options, check_writer, embed, write_queries
from benchmarks.common.measurements import Measurements
from benchmarks.common.training import Trainings, run_or_exit
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import InputError, exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.ranking.evaluation.results_file import read_results

COLLECTION = material.DOCSTRINGS / "collection"
DEMO, TAUGHT = Path("runs/demo/ict"), Path("runs/demo/distil")  # of `make demo` and `make demo-documents`
RATES = (3e-5, 1e-4, 3e-4, 1e-3)
FIRST_SEED, RANKS = 1, 1  # one process with all cores as threads
LABELS, WRITTEN = "labels", "written queries"
OF_TAUGHT = {  # read as it was taught to
    "method.pooling": "mean",
    "method.similarity": "cosine",
    "method.temperature": 0.05,
    "method.max_document_tokens": 96,
}


class Row(NamedTuple):
    """A fine-tuning."""

    start: str | Path  # another row, or a run
    data: str
    pairs: int | None = None  # None: all
    beside: bool = False  # whether the teacher's vectors of these texts are learned, too


ROWS = {
    "labels500": Row(DEMO, LABELS, 500),
    "labels2000": Row(DEMO, LABELS, 2000),
    "vectors_labels500": Row(TAUGHT, LABELS, 500),
    "vectors_labels2000": Row(TAUGHT, LABELS, 2000),
    "vectors_beside_labels500": Row(TAUGHT, LABELS, 500, beside=True),
    "vectors_beside_labels2000": Row(TAUGHT, LABELS, 2000, beside=True),
    "written": Row(DEMO, WRITTEN),
    "vectors_beside_written": Row(TAUGHT, WRITTEN, beside=True),
    "written_then_labels500": Row("vectors_beside_written", LABELS, 500, beside=True),
}


@dataclass
class Bench:
    """The fine-tunings, and the measurements made so far."""

    out: Path
    data: Mapping[str, Data]  # LABELS, and with a writer WRITTEN

    def __post_init__(self) -> None:
        self.measurements = Measurements[float](self.out / "dev.json")
        self.trainings = Trainings(RANKS)
        self.texts = Collection.open(COLLECTION)

    @property
    def rows(self) -> list[str]:
        """The rows that can be measured."""
        return [name for name, row in ROWS.items() if {row.data, *_before(row)} <= {*self.data}]

    def tuned(self, name: str, seed: int, rate: float | None = None) -> Path:
        """Train a row, unless that is done, with the rate that is best on the development split; return its run."""
        row, rate = ROWS[name], rate or self._rate(name)
        start = row.start if isinstance(row.start, Path) else self.tuned(row.start, seed)
        data = self.data[row.data]
        settings = {"seed": seed, "optimizer.lr": rate, "init_from": start, "data.collection": data.collection}
        settings["data.pairs"] = row.pairs or "null"
        if row.start != DEMO:
            settings |= OF_TAUGHT
        if row.beside:
            settings |= {**BESIDE, "method.teacher_width": 384, "data.teacher": data.teacher}
        return self.trainings.train("trainer.finetune", RECIPE, self.out / f"{name}-{rate:g}-{seed}", settings)

    def _rate(self, name: str) -> float:
        def measure(rate: float) -> float:
            run = self.tuned(name, FIRST_SEED, rate)
            return float(np.mean(rank(run, self.texts, ["dev"])["dev"]))

        keys = {rate: f"{name}, rate {rate:g}" for rate in RATES}
        return best({rate: self.measurements.get(key, lambda rate=rate: measure(rate)) for rate, key in keys.items()})  # type: ignore[misc]

    def results(self, seed: int) -> Path:
        """Rank the test split by every row of a seed, alone and fused with BM25; return the file of the results."""
        runs = {"vectors": TAUGHT, **{name: self.tuned(name, seed) for name in self.rows}}
        file = self.out / f"results-{len(runs)}-{seed}.json"
        if not file.is_file():
            systems = ["bm25", *(f"{name}={run}" for name, run in runs.items())]
            systems += [f"{name}_fused=fuse(bm25, {name})" for name in runs]
            options = [word for system in systems for word in ("--system", system)]
            run_or_exit(
                command(
                    "trainer.evaluate", "--collection", str(COLLECTION), "--split", "test", *options, "--out", str(file)
                )
            )
        return file


def _before(row: Row) -> list[str]:
    """Return the data of the rows that a row starts from."""
    return [ROWS[row.start].data, *_before(ROWS[row.start])] if isinstance(row.start, str) else []


def training_docstrings() -> dict[str, str]:
    """Return the texts that the training split's queries are about, by id."""
    texts = Collection.open(COLLECTION)
    numbers = np.unique(texts.groups("train").candidates.flat).tolist()
    return {texts.corpus.ids[i]: texts.corpus.text(i) for i in numbers}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.claims.without_labels", description=(__doc__ or "").splitlines()[0]
    )
    add_writer_options(parser, 1000)
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="of fine-tuning (3)")
    parser.add_argument("--out", type=Path, default=Path("runs/without_labels"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.without_labels"):
        if not TAUGHT.is_dir():
            raise InputError(f"{TAUGHT}: no such run; run: make demo-documents")
        check_writer(chosen)
        make_directory(chosen.out)
        data = {LABELS: embed(COLLECTION, chosen.out / "label_vectors")}
        if chosen.writer:
            options = chosen.writer, chosen.examples, chosen.documents
            data[WRITTEN] = write_queries(chosen.out, training_docstrings(), material.TOKENIZER, *options)
        bench = Bench(chosen.out, data)
        files = list[Path]()
        for seed in range(FIRST_SEED, FIRST_SEED + chosen.seeds):
            files.append(bench.results(seed))
            material.show("\n".join(table([read_results(file) for file in files])), chosen.out / "without_labels.md")


if __name__ == "__main__":
    main()
