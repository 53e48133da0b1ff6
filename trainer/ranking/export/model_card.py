"""What every export's README.md says of the model's making: its base, data, recipe, metrics; a licence to fill in.

The hub reads its front matter: base and data sets that are on the hub, and as `model-index` what trainer.evaluate
measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.hub import dataset_of, is_address, parse_model
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


class _Result(NamedTuple):
    """What trainer.evaluate measured of the checkpoint."""

    file: str
    collection: str
    split: str
    metrics: Mapping[str, float]


def complete(card: str, trained: TrainedModel, name: str) -> str:
    """Add to a README.md how the model was made, and a place for its licence; `name` is the model's."""
    start, front, text = card.split("---\n", 2)
    results = _results(trained)
    recipe = yaml.safe_dump(
        trained.recipe.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True
    )
    ticks = fence(recipe)
    lines = [*_facts(trained), *_metrics(trained, results), "", f"{ticks}yaml", recipe.rstrip(), ticks, ""]
    fields = _front_matter(trained, name, results)
    more = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True) if fields else ""
    return f"{start}---\n{front}{more}{LICENSE}\n---\n{text}\n## How it was made\n\n" + "\n".join(lines)


def _front_matter(trained: TrainedModel, name: str, results: Sequence[_Result]) -> dict[str, Any]:
    """Return what the hub links, names of its own alone, and the metrics as it shows them."""
    fields: dict[str, Any] = {}
    if not _is_random(trained) and is_address(str(trained.recipe.init_from)):
        fields["base_model"] = parse_model(str(trained.recipe.init_from)).name
    inputs = [file for source in trained.recipe.data.sources.values() for file in _input_files(source)]
    if datasets := sorted(set(filter(None, map(dataset_of, inputs)))):
        fields["datasets"] = datasets
    measured = [
        {
            "task": {"type": "information-retrieval", "name": "Information Retrieval"},
            "dataset": {"name": Path(collection).name, "type": Path(collection).name, "split": split},
            "metrics": [{"type": metric, "value": value} for metric, value in metrics.items()],
        }
        for _, collection, split, metrics in results
    ]
    if measured:
        fields["model-index"] = [{"name": name, "results": measured}]
    return fields


def _facts(trained: TrainedModel) -> Iterator[str]:
    """Yield a line for the base, one for each source of the data, and one for the training."""
    recipe = trained.recipe
    yield f"- Base: {'random weights' if _is_random(trained) else as_code(recipe.init_from)}"
    for name, source in recipe.data.sources.items():
        of = f" ({as_text(name)})" if name else ""
        yield f"- Data{of}: " + (_pairs(source) if isinstance(source, MixedPairsConfig) else as_code(source.shards))
    yield f"- Training: {trained.step:,} of {recipe.steps:,} steps of {recipe.batch.size:,} examples; recipe below"


def _is_random(trained: TrainedModel) -> bool:
    """Return whether training began with random weights."""
    recipe = trained.recipe
    return recipe.init_from is None or (isinstance(recipe, FinetuneRecipe) and recipe.random_weights)


def _input_files(source: object) -> Sequence[str]:
    """Return the files that a source's collection was made from; none of shards, or of a collection that is gone."""
    if not isinstance(source, MixedPairsConfig):
        return ()
    try:
        return [str(name) for name in Collection.open(source.collection).manifest["command"]["inputs"]]
    except (InputError, KeyError, TypeError):  # the manifest of a derived collection has other keys
        return ()


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


def _run_of(trained: TrainedModel) -> Path:
    """Return the folder of the run that a checkpoint belongs to."""
    run = trained.checkpoint.parent.parent
    return run.parent if run.name == BEST_FOLDER and (run.parent / checkpoint.RECIPE).is_file() else run


def _metrics(trained: TrainedModel, results: Sequence[_Result]) -> Iterator[str]:
    """Yield a table of what was measured of the checkpoint: by the run itself, and by trainer.evaluate next to it."""
    rows = [("of the run", tag, value) for tag, value in _run_scalars(_run_of(trained), trained.step).items()]
    for file, collection, split, metrics in results:
        rows += [(f"of {file}", f"{collection}, {split}: {metric}", value) for metric, value in metrics.items()]
    if rows:
        yield from ("", f"Measured at step {trained.step:,}:", "", "| | | |", "|---|---|---|")
        yield from (f"| {as_text(where)} | {as_text(name)} | {value:.4f} |" for where, name, value in rows)


def _run_scalars(run: Path, step: int) -> Mapping[str, float]:
    """Return the scalars of a step that tell how good the model is."""
    from deepsiam.trainer.training.run.events import scalars_at  # imports TensorBoard: a second

    tags = scalars_at(run / EVENTS, step) if (run / EVENTS).is_dir() else {}
    return {tag: value for tag, value in sorted(tags.items()) if tag.startswith(METRIC_TAGS)}


def _results(trained: TrainedModel) -> list[_Result]:
    """Return the metrics of a checkpoint in the files of trainer.evaluate in its run's folder and the one above."""
    run = _run_of(trained)
    contents = contents_sha256(trained.checkpoint)  # the folder may have been trained anew
    found = []
    for file in sorted([*run.glob("*.json"), *run.parent.glob("*.json")]):
        try:
            results = read_results(file)
        except InputError:  # another kind of file
            continue
        for system in results.systems.values():
            # an option would make it another system
            is_plain = system.single_model and system.expression == str(Leaf(str(system.stages[0].model)))
            if is_plain and system.stages[0].checkpoint_sha256 == contents:
                found.append(_Result(file.name, results.about.collection, results.about.split, system.metrics))
    return found
