"""How good every matching model is on real collections, from random, masked-LM and SEED encoders.

    python -m benchmarks.claims.matching [--starts NAME ...] [--studies NAME ...] [--seeds N]     (after make demo)

The encoders have the trunk of make demo-long and read docstrings, Wikipedia and books. The learning rate of every
model, collection and encoder is the best of a small grid with the first seed, on data that is not reported. The
encoders are pre-trained once; the seeds vary only the fine-tuning. A stopped run resumes; the tables are printed after
every seed.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.claims import material
from benchmarks.claims.matching_collections import Fold, Model, Study, Values, as_lists, make, studies
from benchmarks.claims.matching_measure import baseline, measure
from benchmarks.claims.matching_tables import Results, report
from benchmarks.common.measurements import Measurements
from benchmarks.common.training import Trainings, file_name
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.argument_types import positive
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.files import make_directory
from deepsiam.trainer.training.checkpoints.load import load_trained

RANDOM, PRETRAINED = "random", {"mlm": "demo_long_mlm", "seed": "demo_long_seed"}  # a recipe each
STARTS = (RANDOM, *PRETRAINED)
RATES = (3e-4, 1e-3)
FIRST_SEED = 1
RANKS = 1  # with all cores as threads


@dataclass
class MatchingBench:
    """The shards to pre-train on, and the measurements made so far."""

    shards: dict[str, Path]
    out: Path
    tokens: int

    def __post_init__(self) -> None:
        self.measurements = Measurements[Values](self.out / "matching.json")
        self.trainings = Trainings(RANKS)

    def results(self, study: Study, starts: Sequence[str], seeds: Iterable[int]) -> Results:
        """Return every value of a study to report, by table, metric, model, start and seed."""
        seeds = list(seeds)
        found: Results = {}
        for _, title, part in study.reported:
            for metric, values in part.of(self._baseline(study, part.split)).items():
                found.setdefault((title, metric, "", ""), [[]])[0].extend(values)
        for model, start in itertools.product(study.models, starts):
            for fold, title, part in study.reported:
                rate = self.rate(study, fold, model, start)
                for row, seed in enumerate(seeds):
                    measured = part.of(self._values(study, fold, model, start, seed, rate, part.split))
                    for metric, values in measured.items():
                        found.setdefault((title, metric, model, start), [[] for _ in seeds])[row].extend(values)
        return found

    def rate(self, study: Study, fold: Fold, model: str, start: str) -> float:
        """Return the learning rate that is best with the first seed."""

        def best() -> Values:
            return {"rate": [max(RATES, key=lambda rate: self._dev(study, fold, model, start, rate))]}

        return self.measurements.get(f"{study.name}, {fold.train}; {model} from {start}: best rate", best)["rate"][0]

    def _dev(self, study: Study, fold: Fold, model: str, start: str, rate: float) -> float:
        parts = [part.of(self._values(study, fold, model, start, FIRST_SEED, rate, part.split)) for part in fold.dev]
        return float(np.mean([value for values in parts for value in values[study.metrics[0]]]))

    def _values(self, study: Study, fold: Fold, model: str, start: str, seed: int, rate: float, split: str) -> Values:
        """Return every value of a split by a model; train the model first where it is not trained yet."""
        key = f"{study.name}, {fold.train}; {model} from {start}, seed {seed}, rate {rate:g}; {split}"

        def values() -> Values:
            run = self._tuned(study, fold, model, start, seed, rate)
            measured = measure(study.kind, load_trained(run), Collection.open(study.collection), split)
            print(f"{key}: {study.metrics[0]} {measured.means[study.metrics[0]]:.4f}", flush=True)
            return as_lists(measured, study.metrics)

        return self.measurements.get(key, values)

    def _baseline(self, study: Study, split: str) -> Values:
        return self.measurements.get(
            f"{study.name}, baseline; {split}",
            lambda: as_lists(baseline(study.kind, Collection.open(study.collection), split), study.metrics),
        )

    def _tuned(self, study: Study, fold: Fold, name: str, start: str, seed: int, rate: float) -> Path:
        model: Model = study.models[name]
        settings = {
            "init_from": self._pretrained("mlm" if start == RANDOM else start),
            "random_weights": str(start == RANDOM).lower(),
            "seed": seed,
            "data.collection": study.collection,
            "data.split": fold.train,
            "data.pairs": "null",
            "optimizer.lr": rate,
            **model.settings,
        }
        run = self.out / "tuned" / file_name(f"{study.name}-{fold.train}-{name}-{start}-{seed}-{rate:g}")
        return self.trainings.train("trainer.finetune", f"recipes/{model.recipe}.yaml", run, settings)

    def _pretrained(self, start: str) -> Path:
        run, recipe = self.out / start, f"recipes/{PRETRAINED[start]}.yaml"
        if run in self.trainings.finished:
            return run
        mix = {source: {"shards": str(self.shards[source]), "weight": 1} for source in material.MIXED}
        settings = {"data.shards": "null", "data.mix": mix}
        return self.trainings.pretrain(recipe, run, settings, self.tokens, every=1000)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.claims.matching", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS, metavar="NAME", help=", ".join(STARTS))
    names = [study.name for study in studies(Path())]
    parser.add_argument("--studies", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="of fine-tuning (3)")
    parser.add_argument("--tokens", type=positive, default=17_000_000, help="read in pre-training (17,000,000)")
    material.add_data_option(parser)
    parser.add_argument("--out", type=Path, default=Path("runs/matching"), metavar="FOLDER")
    chosen = parser.parse_args(argv)
    with exit_on_input_error("benchmarks.claims.matching"):
        make_directory(chosen.out)
        made = material.make(chosen.data, chosen.out / "data")
        vocabulary = chosen.out / "data" / "tokenizer.json"
        make(chosen.data, chosen.out / "collections", vocabulary)
        bench = MatchingBench(dict(made.shards), chosen.out, chosen.tokens)
        asked = [study for study in studies(chosen.out / "collections") if study.name in chosen.studies]
        for seeds in range(1, chosen.seeds + 1):
            numbers = range(FIRST_SEED, FIRST_SEED + seeds)
            text = report([(study, bench.results(study, chosen.starts, numbers)) for study in asked], chosen.starts)
            material.show(text, chosen.out / "matching.md")


if __name__ == "__main__":
    main()
