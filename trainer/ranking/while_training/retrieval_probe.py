"""Does fine-tuning make a better retriever? Measure during the run what `trainer.evaluate` does, on a fixed sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepsiam.data_prep.collections.collection import Collection, remedy
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.tokenizers.check import require_same_tokenizer
from deepsiam.models.interface import MicroBatch
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.trunk import TrunkModel
from deepsiam.trainer.interop.model import LoadedModel
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH, Metric, more_metrics
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.ranker import PROMPTS, Ranker
from deepsiam.trainer.ranking.rankers.registry import RANKERS
from deepsiam.trainer.ranking.retrieval.shared import shared_by
from deepsiam.trainer.ranking.while_training.sample import sample
from deepsiam.trainer.training.engine.engine import Engine
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe


@dataclass(frozen=True)
class RetrievalProbe:
    """The model in training as a ranker, and what it ranks."""

    every: int  # optimizer steps
    split: str
    ranker: Ranker
    task: Task
    extra_metrics: tuple[str, ...] = ()  # a metric beside the usual ones

    @property
    def about(self) -> str:
        """The split, and the numbers of texts; the hash covers the texts."""
        size = f"{len(self.task.queries)} queries, {len(self.task.pool)} documents"
        return f"{self.split}: {size} of {self.task.collection.sha256}"

    def is_due(self, step: int, steps: int) -> bool:
        """Return whether to measure before a step, or after the last one."""
        return step % self.every == 0 or step == steps

    def measure(
        self, engine: Engine, micro_batches: Sequence[MicroBatch], beat: Callable[[], None]
    ) -> dict[str, float]:
        """Measure the current model; all ranks call and encode together; `beat` is called after each batch."""
        with engine.evaluating(), shared_by(engine.world.rank, engine.world.size, beat):
            depth = max([DEPTH, *(Metric.of(name).depth for name in self.extra_metrics)])
            ranked = self.task.rank(self.ranker.system(self.task), depth)
        means = self.task.measure(ranked, self.extra_metrics).means
        rank_0_means: dict[str, float] = engine.gather(means)[0]  # all ranks decide by the same numbers
        return rank_0_means


def open_retrieval_probe(recipe: FinetuneRecipe, model: TrunkModel) -> RetrievalProbe | None:
    """Open the probe of a recipe, if it asks for one.

    Raises:
        InputError: the best is chosen by a metric that does not exist, the model does not search, the collection has
            another tokenizer, or the split has no query with a relevant document.
    """
    keys = recipe.probe
    if keys is None:
        return None
    require("evaluate", "ir_measures", "pytrec_eval", feature="probe")
    best_metric = recipe.checkpoint.keep_best
    extra_metrics = more_metrics([best_metric] if best_metric else [], "checkpoint.keep_best")
    kind = RANKERS[str(getattr(model, "kind", None))]
    if not kind.searches:
        raise InputError(f"probe: a {recipe.method.name} re-ranks, and cannot search a pool: set null")
    if len(recipe.data.sources) > 1 and keys.collection is None:
        raise InputError("probe.collection: the run has several collections: name the one whose queries are ranked")
    trained = Collection.open(next(iter(recipe.data.sources.values())).collection)
    collection = Collection.open(keys.collection) if keys.collection else trained
    require_same_tokenizer(
        trained.tokenizer,
        trained.directory,
        collection.tokenizer.fingerprint,
        f"probe.collection: {collection.directory}",
        remedy(collection.directory, trained.tokenizer.path),
    )
    model_in_training = LoadedModel(model, _method_of(recipe, collection), trained.tokenizer, recipe.run)
    ranker = kind(model_in_training, collection, in_training=True)
    return RetrievalProbe(keys.every, keys.split, ranker, sample(collection, keys), extra_metrics)


def _method_of(recipe: FinetuneRecipe, collection: Collection) -> MatchingConfig:
    """Return the run's method with the prompts that it trains a collection with, if its sources agree on them."""
    prompts = [
        {key: getattr(method, key) for key in PROMPTS}
        for source, method in zip(recipe.data.sources.values(), recipe.methods, strict=True)
        if source.collection.resolve() == collection.directory.resolve()
    ]
    agree = prompts and all(source_prompts == prompts[0] for source_prompts in prompts)
    return recipe.method.model_copy(update=prompts[0]) if agree else recipe.method
