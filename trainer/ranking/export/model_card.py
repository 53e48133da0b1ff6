"""What every export's README.md says of the model's making: its base, data, recipe, metrics; a licence to fill in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.interop.files import as_code, as_text, fence
from deepsiam.trainer.ranking.evaluation.expression import Leaf
from deepsiam.trainer.ranking.evaluation.results_file import read_results
from deepsiam.trainer.ranking.evaluation.systems import contents_sha256
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.checkpoint import BEST_FOLDER
from deepsiam.trainer.training.checkpoints.load import TrainedModel
from deepsiam.trainer.training.recipe.data_keys import MixedPairsConfig
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe

LICENSE = "license: unknown # yours to fill in, such as apache-2.0; the base's and the data's may bind you"
EVENTS = "tensorboard"
METRIC_TAGS = ("probe/", "validation/")  # the tags of a run's events that tell how good the model is


def complete(card: str, trained: TrainedModel) -> str:
    """Add to a README.md how the model was made, and a place for its licence."""
    start, front, text = card.split("---\n", 2)
    recipe = yaml.safe_dump(
        trained.recipe.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True
    )
    ticks = fence(recipe)
    lines = [*_facts(trained), *_metrics(trained), "", f"{ticks}yaml", recipe.rstrip(), ticks, ""]
    return f"{start}---\n{front}{LICENSE}\n---\n{text}\n## How it was made\n\n" + "\n".join(lines)


def _facts(trained: TrainedModel) -> Iterator[str]:
    """Yield a line for the base, one for each source of the data, and one for the training."""
    recipe = trained.recipe
    is_random = recipe.init_from is None or (isinstance(recipe, FinetuneRecipe) and recipe.random_weights)
    yield f"- Base: {'random weights' if is_random else as_code(recipe.init_from)}"
    for name, source in recipe.data.sources.items():
        of = f" ({as_text(name)})" if name else ""
        yield f"- Data{of}: " + (_pairs(source) if isinstance(source, MixedPairsConfig) else as_code(source.shards))
    yield f"- Training: {trained.step:,} of {recipe.steps:,} steps of {recipe.batch.size:,} examples; recipe below"


def _pairs(source: MixedPairsConfig) -> str:
    """Describe a collection and its size, if it is still there."""
    pair_limit = f", {source.pairs:,} pairs of it" if source.pairs else ""
    try:
        counts = Collection.open(source.collection).manifest["counts"]
    except InputError:
        counts = {"splits": {}}
    if source.split not in counts["splits"]:  # the collection is gone, or was made anew
        return f"{as_code(source.collection)}, split {as_text(source.split)}{pair_limit}"
    return (
        f"{as_code(source.collection)}: {counts['corpus']['texts']:,} documents; split {as_text(source.split)}, "
        f"{counts['splits'][source.split]:,} queries with their judged documents{pair_limit}"
    )


def _metrics(trained: TrainedModel) -> Iterator[str]:
    """Yield a table of what was measured of the checkpoint: by the run itself, and by trainer.evaluate next to it."""
    run = trained.checkpoint.parent.parent
    run = run.parent if run.name == BEST_FOLDER and (run.parent / checkpoint.RECIPE).is_file() else run
    rows = [("of the run", tag, value) for tag, value in _run_scalars(run, trained.step).items()]
    for file in sorted([*run.glob("*.json"), *run.parent.glob("*.json")]):
        rows += [(f"of {file.name}", name, value) for name, value in _of_results(file, trained.checkpoint).items()]
    if rows:
        yield from ("", f"Measured at step {trained.step:,}:", "", "| | | |", "|---|---|---|")
        yield from (f"| {as_text(where)} | {as_text(name)} | {value:.4f} |" for where, name, value in rows)


def _run_scalars(run: Path, step: int) -> Mapping[str, float]:
    """Return the scalars of a step that tell how good the model is."""
    from deepsiam.trainer.training.run.events import scalars_at  # imports TensorBoard: a second

    tags = scalars_at(run / EVENTS, step) if (run / EVENTS).is_dir() else {}
    return {tag: value for tag, value in sorted(tags.items()) if tag.startswith(METRIC_TAGS)}


def _of_results(file: Path, model_folder: Path) -> Mapping[str, float]:
    """Return the metrics of a checkpoint in a file of trainer.evaluate; nothing of other files."""
    try:
        results = read_results(file)
    except InputError:
        return {}
    contents = contents_sha256(model_folder)  # the folder may have been trained anew
    where = f"{results.about.collection}, {results.about.split}: "
    return {
        where + metric: value
        for system in results.systems.values()
        if system.single_model
        and system.stages[0].checkpoint_sha256 == contents
        and system.expression == str(Leaf(str(system.stages[0].model)))  # an option would make it another system
        for metric, value in system.metrics.items()
    }
