"""Matching models compared with what their users would run instead: training, a large batch, scoring; in one run.

    python -m benchmarks.matching [--parts training cached scoring] [--minutes 11] [--sizes JSON] [--out FILE.json]

training  Pairs a second and peak memory of a Siamese network's fine-tuning: BERT of 4 layers x 256, mean pooling,
          cosine, 32 pairs a step with in-batch negatives; queries of 5 to 20 tokens, documents of 60 tokens in the
          median, log-normal, truncated at 256. Rivals: SentenceTransformerTrainer with MultipleNegativesRankingLoss
          (needs datasets, of sentence-transformers[train]); the same model and loss in a bare loop; that loop with all
          texts tokenised beforehand, the best that the library can do: it has no batch sampler by length.
cached    Seconds of a step of 4,096 pairs, 32 at a time, each query against all documents: `negatives: step`, and
          CachedMultipleNegativesRankingLoss in the bare loop; and the memory of both, compared with a step of 32 pairs.
scoring   A query of 360 tokens against 1,000 and 100,000 cached candidates of width 768: Poly-encoders of 16, 64 and
          360 codes, and the Siamese network, all with one trunk of BERT-base's size; once including the encoding of
          the query, as in the Poly-encoder paper's table 5, and once only the scores.

All rivals train the same weights on the same pairs in each step, in the same precision (fp32 on a CPU without bf16),
with equally many threads. deepsiam reads a collection, whose texts were tokenised when it was made; the library
tokenises during training. Every rival of `training` and `cached` has its own process, and they are measured in turn.
"""

from __future__ import annotations

import importlib.metadata
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import machine
from benchmarks.common.made_up_pairs import PairSizes, prepare
from benchmarks.common.side_by_side import Values, in_words, part_options, ratios, rounds, run_parts, spread
from benchmarks.matching.rivals import Elsewhere, OurTraining, TrainingRival
from benchmarks.matching.scoring import ScoringSizes
from benchmarks.matching.scoring import measure as measure_scoring
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.extras import require
from deepsiam.trainer.training.engine import ds_config

OURS = "deepsiam"
LIBRARY = "sentence-transformers"
TRAINER = f"{LIBRARY}, Trainer"
LOOP = f"{LIBRARY}, bare loop"
TOKENISED = f"{LIBRARY}, tokenised beforehand"
SIZES = {
    "training": PairSizes(layers=4, hidden=256, words=8192, batch=32, micro=32, median=60, longest=256, steps=4),
    "cached": PairSizes(layers=2, hidden=128, words=8192, batch=4096, micro=32, median=24, longest=64, steps=1),
    "scoring": ScoringSizes(layers=12, hidden=768, tokens=360, codes=(16, 64, 360), candidates=(1000, 100_000)),
}
GRACE = 0.5  # share of a part's time that is left for its rounds even if starting the rivals took all of it
Make = Callable[..., TrainingRival]


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    chosen = part_options(argv, "benchmarks.matching", __doc__ or "", PARTS, minutes=11.0, out="matching.json")
    with exit_on_input_error("benchmarks.matching"):
        require("dev", "sentence_transformers", feature="benchmarks.matching")
        run_parts(chosen, PARTS, SIZES, described(), lines_of)


def described() -> dict[str, Any]:
    """Describe the machine, with the library's version."""
    about = machine.describe()
    about["versions"] |= {package: importlib.metadata.version(package) for package in (LIBRARY, "accelerate")}
    return about


def training(sizes: PairSizes, seconds: float) -> dict[str, Any]:
    """Compare the steps of a fine-tuning within about `seconds`."""
    from benchmarks.common.library_trainer import trainer_is_missing
    from benchmarks.matching.library import Loop, Tokenised, WithTrainer

    rivals: dict[str, Make] = {OURS: OurTraining, LOOP: Loop, TOKENISED: Tokenised}
    if not (missing := trainer_is_missing()):
        rivals[TRAINER] = WithTrainer
    results = compare(rivals, sizes, seconds)
    return results | {"left_out": {TRAINER: missing} if missing else {}}


def cached(sizes: PairSizes, seconds: float) -> dict[str, Any]:
    """Compare the steps of a large batch, and their memory with that of one micro-batch, within about `seconds`."""
    from benchmarks.matching.library import Loop

    end = time.monotonic() + seconds
    small = replace(sizes, batch=sizes.micro, steps=min(8, sizes.batch // sizes.micro))
    plain = {
        f"{name}, a batch of {sizes.micro}": memory_of(make, small)
        for name, make in ((OURS, OurTraining), (LOOP, Loop))
    }
    results = compare({OURS: OurTraining, LOOP: Loop}, sizes, end - time.monotonic())
    results["peak_memory_bytes"] |= plain
    return results


def compare(rivals: Mapping[str, Make], sizes: PairSizes, seconds: float) -> dict[str, Any]:
    """Measure the steps of all rivals in turn within about `seconds`, after each has taken them once as a warm-up."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        recipe = prepare(sizes, Path(folder))
        started: dict[str, Elsewhere] = {}
        try:
            for name, make in rivals.items():
                started[name] = Elsewhere(make, sizes, recipe)
                started[name].turn()
            losses = {name: rival.losses() for name, rival in started.items()}
            end = max(end, time.monotonic() + GRACE * seconds)  # a slow start alone should not cost the comparison
            values = rounds({name: rival.turn for name, rival in started.items()}, end)
            memory = {name: rival.memory() for name, rival in started.items()}
        finally:
            for rival in started.values():
                rival.close()
    precision = ds_config.precision(ds_config.load(recipe.deepspeed)[1])
    return {"precision": str(precision).removeprefix("torch."), **in_numbers(sizes, values, memory), "losses": losses}


def memory_of(make: Make, sizes: PairSizes) -> int:
    """Return the peak memory of a rival that takes the steps once."""
    with tempfile.TemporaryDirectory() as folder:
        rival = Elsewhere(make, sizes, prepare(sizes, Path(folder)))
        try:
            rival.turn()
            return rival.memory()
        finally:
            rival.close()


def in_numbers(sizes: PairSizes, seconds: Values, memory: Mapping[str, int]) -> dict[str, Any]:
    """Turn the seconds per step of each round into rates and ratios."""
    rates = {name: [sizes.batch / value for value in values] for name, values in seconds.items()}
    return {
        "unit": "pairs/s",
        "rounds": len(seconds[OURS]),
        "pairs_per_second": {name: spread(values) for name, values in rates.items()},
        "step_seconds": {name: spread(values) for name, values in seconds.items()},
        "ratios": {f"{OURS} / {name}": ratios(rates[OURS], values) for name, values in rates.items() if name != OURS},
        "peak_memory_bytes": dict(memory),
    }


def scoring(sizes: ScoringSizes, seconds: float) -> dict[str, Any]:
    """Compare the scoring of cached candidates within about `seconds`."""
    return measure_scoring(sizes, time.monotonic() + seconds)


PARTS: dict[str, Callable[..., dict[str, Any]]] = {"training": training, "cached": cached, "scoring": scoring}


def lines_of(part: str, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines to print for a part."""
    for name, numbers in results.get("pairs_per_second", {}).items():
        yield in_words(f"{part}: {name}", numbers, "pairs/s")
    for name, numbers in results.get("seconds", {}).items():
        yield in_words(name, numbers, "s")
    for name, numbers in results["ratios"].items():
        yield in_words(f"{part}: {name}" if part != "scoring" else name, numbers)
    for name, size in results.get("peak_memory_bytes", {}).items():
        yield f"{part}: memory of {name}: {size / 1e6:,.0f} MB"
    for name, values in results.get("losses", {}).items():
        yield f"{part}: mean loss of the first steps of {name}: {statistics.mean(values):.4f}"
    for name, reason in results.get("left_out", {}).items():
        yield f"{part}: without {name}: {reason}"


if __name__ == "__main__":
    main()
