"""Hard negatives that the model mines while it learns (ANCE: Xiong et al., 2021), as part of the run.

At every N-th step the run saves a checkpoint. The ranks share the blocks of documents, encode them with its weights,
then share the parts of the queries and search for them. RUN/negatives/step-NNNNNNNN is then published in one rename,
and the examples of the next steps draw their hard negatives from it.

The negatives of a step depend only on the checkpoint. If a run is killed during mining and resumed from the checkpoint
on any number of ranks, it continues with the finished blocks and parts, and draws the same negatives. At a later
refresh, weights that were trained on another number of ranks differ by rounding: scores are compared without their last
bits, and `Candidates` draws in a way that one other document in a list changes one negative at most.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import (
    LARGEST_JSON,
    make_directory,
    read_bytes,
    save_array,
    whole_file,
    whole_folder,
)
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.folder import IndexFolder
from deepsiam.trainer.ranking.indexes.sparse import SparseIndex
from deepsiam.trainer.ranking.mining import mine, mining_texts
from deepsiam.trainer.ranking.ranker import PROMPTS, VectorRanker, usual_precision
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.search import salts_of
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data import generation
from deepsiam.trainer.training.data.generation import Generation
from deepsiam.trainer.training.data.group_source import GroupSource
from deepsiam.trainer.training.data.opened import Data
from deepsiam.trainer.training.engine.device import this_device
from deepsiam.trainer.training.engine.world import World
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, RefreshConfig

PART = 1024  # queries that are searched for together
INDEXES: dict[str, type[DenseIndex | SparseIndex]] = {"dense": DenseIndex, "sparse": SparseIndex}  # by kind of ranker
PARTS, INDEX, WORK = "parts", "index", ".work"


@dataclass
class Refresh:
    """The negatives of a run's sources, and which generation of them its examples use."""

    config: RefreshConfig
    sources: dict[str, Generations]  # that are mined for, by name
    current_step: int = field(default=0, init=False)  # the step of the generation in use; 0: the groups' own negatives

    def step_of(self, step: int) -> int:
        """Return the step of the generation that the examples after `step` steps use."""
        return step - step % self.config.every

    def is_due(self, step: int) -> bool:
        """Return whether a generation is mined after `step` steps."""
        return step > 0 and step % self.config.every == 0

    def use(self, step: int) -> None:
        """Let the examples use the negatives that belong to a step.

        Raises:
            SharedError: the negatives are missing or damaged.
        """
        self.current_step = self.step_of(step)
        try:
            for generations in self.sources.values():
                generations.use(self.current_step)
        except InputError as error:
            raise SharedError(str(error)) from None

    def make(self, step: int, saved: Path, beat: Callable[[], None]) -> dict[str, dict[str, float]]:
        """Mine for every source in turn; return the figures of each, by its name; see `Generations.make`."""
        return {name: generations.make(step, saved, beat) for name, generations in self.sources.items()}


@dataclass
class Generations:
    """The generations of one source's negatives, in folders by step."""

    config: RefreshConfig
    source: GroupSource
    prompts: Mapping[str, str]  # before its texts, by their keys in a recipe
    run: Path
    folder: Path
    world: World

    def use(self, step: int) -> None:
        """Let the examples use the generation of a step; of step 0, the groups' own negatives.

        Raises:
            InputError: the negatives are missing or damaged.
        """
        generation = Generation.map(self._folder(step)) if step else None
        if generation:
            generation.check(self._folder(step), len(self.source.collection.corpus))
        self.source.generation = generation

    def make(self, step: int, saved: Path, beat: Callable[[], None]) -> dict[str, float]:
        """Mine with the weights of a checkpoint, publish, and return figures about the negatives; all ranks call.

        An existing generation of the same weights is not mined again. `beat` is called regularly.

        Raises:
            InputError: a file cannot be written, or an embedding is not finite.
        """
        weights = json.loads(read_bytes(saved / checkpoint.MANIFEST, LARGEST_JSON))["files"][checkpoint.WEIGHTS]
        about = {"step": step, "weights": weights["sha256"], "depth": self.config.depth, "margin": self.config.margin}
        final, work = self._folder(step), self._folder(step).with_name(self._folder(step).name + WORK)
        if self.world.rank == 0:
            _begin(work, about | {"precision": usual_precision(this_device())})
        dist.barrier()
        if not (final.is_dir() and about.items() <= Generation.map(final).about.items()):
            self._mine(saved, work, beat)
            if self.world.rank == 0:
                self._publish(work, final, about)
        dist.barrier()
        if self.world.rank == 0:
            self._tidy(final)
        figures: dict[str, float] = Generation.map(final).about["figures"]
        return figures

    def _folder(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _mine(self, saved: Path, work: Path, beat: Callable[[], None]) -> None:
        """Encode and search; each rank does its share of the missing blocks and parts."""
        rank, ranks = self.world.rank, self.world.size
        texts = mining_texts(self.source.collection, self.source.split)
        texts = Texts(texts.collection, texts.queries, sorted(texts.pool))
        ranker = ranker_of(load_trained(saved), texts.collection)
        assert isinstance(ranker, VectorRanker)
        ranker = ranker.with_prompts(self.prompts)
        kind = INDEXES[ranker.kind]
        dtype = "float32"  # coarser numbers could differ for another number of ranks
        kind.WRITERS[dtype](ranker, work / INDEX, dtype, rank, ranks, np.array(texts.pool)).write(beat)
        index = kind.open(IndexFolder.open(work / INDEX), ranker)
        for number, start in enumerate(range(0, len(texts.queries), PART)):
            file = work / PARTS / f"{number:06d}.npy"
            if number % ranks == rank and not file.is_file():
                queries = texts.queries[start : start + PART]
                self._mine_part(index, Texts(texts.collection, queries, texts.pool), file)
                beat()
        dist.barrier()

    def _mine_part(self, index: DenseIndex | SparseIndex, texts: Texts, file: Path) -> None:
        """Write a part's negatives as (query, document), int64 [n, 2]; the last row is (-1, `Mined.above_relevant`)."""
        ranked = index.search_tokens(texts.query_tokens(), self.config.depth, salts=salts_of(texts.queries))
        mined = mine(texts, self.source.relevant, ranked, self.config.margin)
        rows = [(query, document) for query, row in mined.negatives.items() for document in row.documents.tolist()]
        save_array(file, np.array([*rows, (-1, mined.above_relevant)], np.int64))

    def _publish(self, work: Path, final: Path, about: dict[str, Any]) -> None:
        """Combine the parts in one folder, which appears only when complete."""
        parts = [np.load(file, allow_pickle=False) for file in sorted((work / PARTS).iterdir())]
        pairs = np.concatenate([part[:-1] for part in parts])
        above = sum(int(part[-1, 1]) for part in parts)
        queries = np.unique(self.source.groups.queries).tolist()
        ends = np.searchsorted(pairs[:, 0], queries, side="right")  # parts are in the order of the queries
        starts = np.searchsorted(pairs[:, 0], queries, side="left")
        negatives = {q: pairs[a:b, 1] for q, a, b in zip(queries, starts, ends, strict=True)}
        figures = {
            "new": self._share_of_new(pairs, about["step"] - self.config.every),
            "above_relevant": above / max(1, len(pairs)),
            "of_a_query": len(pairs) / len(queries),
            "minutes": (time.time() - (work / generation.ABOUT).stat().st_mtime) / 60,
        }
        with whole_folder(final) as folder:
            generation.write(folder, negatives, {**about, "figures": figures})

    def _share_of_new(self, pairs: np.ndarray, step_before: int) -> float:
        """Return the share of negatives absent from the previous generation, or, for the first one, from the groups."""
        earlier_pairs = Generation.map(self._folder(step_before)).pairs() if step_before else self.source.given_pairs()
        documents = len(self.source.collection.corpus)
        numbers = [rows[:, 0] * documents + rows[:, 1] for rows in (pairs, earlier_pairs)]
        return float(1 - np.isin(*numbers).mean()) if len(pairs) else 0.0

    def _tidy(self, final: Path) -> None:
        """Remove what no checkpoint can need: work folders, and generations older than the oldest checkpoint's."""
        oldest = min(checkpoint.step_of(saved) for saved in checkpoint.newest_first(self.run))
        oldest_generation = self._folder(oldest - oldest % self.config.every)
        for folder in self.folder.iterdir():
            if folder.name.endswith(WORK) or folder.name < oldest_generation.name:
                shutil.rmtree(folder, ignore_errors=True)


def open_refresh(recipe: FinetuneRecipe, data: Data) -> Refresh | None:
    """Open the refresh of a recipe, if it asks for one."""
    if recipe.refresh is None:
        return None
    world, sources = World.from_environment(), dict[str, Generations]()
    for (name, keys), method in zip(recipe.data.sources.items(), recipe.methods, strict=True):
        groups = data.order.sources[name].source
        assert isinstance(groups, GroupSource)
        if keys.refresh:
            prompts, folder = {key: getattr(method, key) for key in PROMPTS}, recipe.run / "negatives" / name
            sources[name] = Generations(recipe.refresh, groups, prompts, recipe.run, folder, world)
    return Refresh(recipe.refresh, sources)


def _begin(work: Path, about: dict[str, Any]) -> None:
    """Create the work folder, or start over if it holds work of other weights, or is damaged."""
    file, content = work / generation.ABOUT, json.dumps(about).encode()
    if file.is_file() and read_bytes(file) != content:
        shutil.rmtree(work)
    make_directory(work / PARTS)
    if not file.is_file():  # its time is when the refresh began
        with whole_file(file) as opened:
            opened.write(content)
