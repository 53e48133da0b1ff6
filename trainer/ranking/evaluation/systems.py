"""The systems of a command: their models opened, each once, and each part checked before anything is ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import sha256_of
from deepsiam.trainer.ranking.evaluation.expression import (
    Expression,
    Fusion,
    Given,
    Leaf,
    Rerank,
    is_run_file,
    leaves,
    located,
    problem,
    walk,
    with_leaves,
)
from deepsiam.trainer.ranking.evaluation.results_file import Limits, SystemStage
from deepsiam.trainer.ranking.evaluation.task import has_relevant
from deepsiam.trainer.ranking.ranker import ModelRanker, Ranker
from deepsiam.trainer.ranking.rankers.registry import open_ranker
from deepsiam.trainer.training.checkpoints.checkpoint import MANIFEST

TUNING_SPLIT = "dev"  # where weights are chosen, unless another split is named


class WeightChoice(NamedTuple):
    """Where the weight of a fusion comes from."""

    weight: float | None = None
    split: str | None = None  # on which the weight is tuned; None if it is given or not used
    why: str | None = None  # reason for falling back to reciprocal rank fusion; None if the user chose the rule


@dataclass(frozen=True)
class Systems:
    """What to evaluate on a collection."""

    collection: Collection
    named_systems: list[Given]
    rankers: dict[Leaf, Ranker]  # of every leaf that is not a run file
    precision: str | None = None  # as asked for

    @classmethod
    def open(
        cls,
        collection: Collection,
        named_systems: list[Given],
        precision: str | None = None,
        dimensions: int | None = None,
        loaded: Mapping[str, ModelRanker] = MappingProxyType({}),
    ) -> Systems:
        """Open BM25 and each model; raise InputError for one that cannot rank the collection, or lacks an option.

        Models of one vector per text rank by the first `dimensions` numbers, unless the option names another number.
        `loaded` are models that are not opened again, by their paths.
        """
        opened, rankers = dict[str, Ranker](), dict[Leaf, Ranker]()
        for _, expression, text in named_systems:
            for leaf in leaves(expression):
                if not is_run_file(leaf):
                    if leaf.path in loaded:
                        opened[leaf.path] = loaded[leaf.path].with_collection(collection)
                    elif leaf.path not in opened:
                        opened[leaf.path] = open_ranker(leaf.path, collection, precision)
                elif leaf.options:
                    raise problem(text, leaf.at, f"'{leaf.path}' is a run file, which has no options")
        if dimensions:
            named_systems = _cut(named_systems, dimensions, [path for path, ranker in opened.items() if ranker.width])
        for _, expression, text in named_systems:
            for leaf in leaves(expression):
                if leaf.path in opened and leaf not in rankers:
                    try:
                        rankers[leaf] = opened[leaf.path].with_options(dict(leaf.options))
                    except ValueError as error:
                        raise problem(text, leaf.at, str(error)) from None
        return cls(collection, named_systems, rankers, precision)

    def check(self, split: str) -> dict[Expression, WeightChoice]:
        """Return `choices(split)`; raise InputError also for a part that cannot rank as it is given."""
        choices = self.choices(split)
        for ranker in self.rankers.values():
            ranker.require_score()
        for text, part in ((text, part) for _, expression, text in self.named_systems for part in walk(expression)):
            if isinstance(part, Leaf):
                if not is_run_file(part) and not self.rankers[part].searches:
                    message = f"'{part.path}' only re-ranks what another system found: write bm25 > 100 {part}"
                    raise problem(text, part.at, message)
                continue
            if isinstance(part, Rerank):
                if is_run_file(part.second):
                    message = f"'{part.second.path}' is a run file, which scores nothing anew: name a model"
                    raise problem(text, part.second.at, message)
                with located(text, part):
                    self.rankers[part.second].require_depth(part.depth)
            choice = choices.get(part)
            if choice and (choice.split or choice.weight is not None):  # scores are added, not ranks
                for side in (part.first, part.second):
                    scorer = side.second if isinstance(side, Rerank) and side.fusion is None else side
                    if isinstance(scorer, Leaf) and not is_run_file(scorer):
                        with located(text, part):
                            self.rankers[scorer].require_by_itself()
        return choices

    def choices(self, split: str) -> dict[Expression, WeightChoice]:
        """Return where the weight of each part that fuses comes from, given the split to evaluate.

        Raises:
            InputError: there is no split to choose a weight on, where one was asked for.
        """
        choices = dict[Expression, WeightChoice]()
        for _, expression, text in self.named_systems:
            for part in walk(expression):
                if not isinstance(part, Leaf) and part.fusion is not None and part not in choices:
                    with located(text, part):
                        choices[part] = self._choice(part, part.fusion, split)
        return choices

    def _choice(self, part: Expression, fusion: Fusion, evaluated: str) -> WeightChoice:
        """Decide for one part; an InputError has no place yet."""
        if fusion.weight is not None or fusion.rule == "ranks":
            return WeightChoice(fusion.weight)
        split, why = fusion.split or TUNING_SPLIT, None
        if fusion.split and fusion.split not in self.collection.splits():
            raise InputError(f"no split {split!r}; choose one of: {', '.join(self.collection.splits())}")
        if any(map(is_run_file, walk(part))):
            why = "a run file has no other split to choose a weight on"
        elif split == evaluated and fusion.split:
            raise InputError(f"the weight would be chosen on the queries of {split}, that it is evaluated on")
        elif split == evaluated or split not in self.collection.splits():
            why = f"no split {split} other than the evaluated one to choose a weight on"
        elif not has_relevant(self.collection, split):
            why = f"the pool of split {split}, to choose a weight on, has no relevant document"
        if why and (fusion.split or fusion.rule):
            raise InputError(f"{why}: give a weight, or leave out the {'split' if fusion.split else 'rule'}")
        return WeightChoice(why=why) if why else WeightChoice(split=split)

    def about(self, leaf: Leaf) -> dict[str, Any]:
        """Return what a stage tells of a model or a file: what it was made of, and how a model computed."""
        ranker = self.rankers.get(leaf)
        files = [value for name, value in leaf.options if name == "recipe"] if ranker else [leaf.path]
        about: dict[str, Any] = {"files": {path: sha256_of(Path(path)) for path in files}} if files else {}
        if ranker:
            about["model"] = leaf.path
        if isinstance(ranker, ModelRanker):
            about |= {"checkpoint": ranker.name, "checkpoint_sha256": self._contents[ranker.name]}
            about |= {"max_tokens": Limits(**ranker.max_tokens()), "precision": ranker.precision}
        return about

    @cached_property
    def _contents(self) -> dict[str, str]:
        """The `contents_sha256` of each model, by its name; a model of several systems is read once."""
        names = {ranker.name for ranker in self.rankers.values() if isinstance(ranker, ModelRanker)}
        return {name: contents_sha256(Path(name)) for name in names}

    def single_rankers(self) -> dict[str, Ranker]:
        """Return the ranker of each system by name, where each is BM25 or one model."""
        return {name: self.rankers[leaf] for name, leaf, _ in self.named_systems if isinstance(leaf, Leaf)}

    def single_stages(self) -> dict[str, tuple[str, list[SystemStage]]]:
        """Return the text and the only stage of each of these systems, once it has ranked."""
        stages = {}
        for name, leaf, _ in self.named_systems:
            if isinstance(leaf, Leaf):
                bias = self.rankers[leaf].position_bias
                stages[name] = str(leaf), [SystemStage(stage=str(leaf), position_bias=bias, **self.about(leaf))]
        return stages


def contents_sha256(model: Path) -> str:
    """Return the SHA-256 of a checkpoint's manifest, which has those of its files, or of a published folder's files."""
    if (model / MANIFEST).is_file():
        return sha256_of(model / MANIFEST)
    files = sorted(path for path in model.rglob("*") if path.suffix in (".json", ".safetensors"))
    return sha256("".join(f"{path.relative_to(model)} {sha256_of(path)}\n" for path in files).encode()).hexdigest()


def _cut(named_systems: Sequence[Given], dimensions: int, paths: Sequence[str]) -> list[Given]:
    """Give the models at `paths` the option `dimensions`, unless they have it."""
    if not paths:
        raise InputError(f"--dimensions {dimensions}: no system has a model of one vector per text: leave it out")

    def cut(leaf: Leaf) -> Leaf:
        options = {"dimensions": str(dimensions), **dict(leaf.options)}
        return replace(leaf, options=tuple(options.items())) if leaf.path in paths else leaf

    return [system._replace(expression=with_leaves(system.expression, cut)) for system in named_systems]
