"""The mean of the weights of several runs, written as a checkpoint: what `trainer.merge` makes.

Weights can be averaged where they lie in one basin: where the runs start from the same weights (Wortsman et al., 2022,
Model soups). Their shares are given, or chosen: its greedy recipe adds one run after the other, the best first, and
keeps those with which the mean ranks a split no worse.

Adapters are merged into their encoder first. The mean of what W + B_i A_i compute is W plus the mean of the products
B_i A_i, of whatever ranks; the product of the means of B_i and A_i would be something else. So the result is a model
without adapters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import yaml

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require
from deepsiam.data_prep.common.files import make_directory, read_bytes, whole_folder
from deepsiam.data_prep.common.hub import is_address, local_model
from deepsiam.data_prep.common.json_file import read_json
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.data_prep.tokenizers.tokenizer import TOKENIZER_CONFIG
from deepsiam.trainer.interop.folder import Folder
from deepsiam.trainer.ranking.evaluation.metrics import DEPTH, Metric, more_metrics
from deepsiam.trainer.ranking.evaluation.task import Task
from deepsiam.trainer.ranking.ranker import PROMPTS
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.init_from import load_encoder
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained, recipe_of
from deepsiam.trainer.training.engine.hashed_file import hashed_file, write_weights
from deepsiam.trainer.training.engine.world import say
from deepsiam.trainer.training.recipe.data_keys import OVERRIDDEN
from deepsiam.trainer.training.recipe.yaml_file import read_one

RECORD = "merge.json"
# keys of a method that change its training, and nothing that the trained model computes
OF_TRAINING = {*OVERRIDDEN, "temperature", "regularise"} - {*PROMPTS}
COPIED = (checkpoint.TRUNK, checkpoint.TOKENIZER, checkpoint.STATE, checkpoint.IMPORTS, TOKENIZER_CONFIG)


@dataclass(frozen=True)
class Part:
    """A checkpoint to be merged."""

    folder: Path

    @cached_property
    def recipe(self) -> Any:
        """The recipe that it was trained by."""
        return recipe_of(self.folder)

    @cached_property
    def computes(self) -> dict[str, Any]:
        """What must be the same in all: the shape, the keys of the method, and how texts become tokens."""
        trunk = read_json(self.folder / checkpoint.TRUNK, dict[str, Any], checkpoint.REMEDY)
        tokenizer = tokenizers.load(self.folder / checkpoint.TOKENIZER)
        method = self.recipe.method.model_dump(mode="json")
        return {
            "method": {key: value for key, value in method.items() if key not in OF_TRAINING},
            "trunk": {key: value for key, value in trunk.items() if "dropout" not in key},
            "tokenizer": {"sha256": tokenizer.fingerprint, "split_special_tokens": tokenizer.split_special_tokens},
        }

    @property
    def run(self) -> Path:
        """Its run's folder; a checkpoint outside of a run is its own."""
        folder = self.folder.resolve()
        return next((parent.parent for parent in folder.parents if parent.name == "checkpoints"), folder)

    @cached_property
    def start(self) -> str:
        """The weights that its run began with."""
        keys = self.recipe
        if keys.init_from is None or getattr(keys, "random_weights", False):
            return f"random weights of seed {keys.seed}"
        return str(keys.init_from if is_address(str(keys.init_from)) else Path(keys.init_from).resolve())

    @property
    def ancestors(self) -> set[str]:
        """The weights that it comes from: itself, its run, and what that began with."""
        return {str(self.folder.resolve()), str(self.run), self.start}

    @property
    def sha256(self) -> str:
        """The SHA-256 of its file of weights."""
        manifest: Any = json.loads(read_bytes(self.folder / checkpoint.MANIFEST))
        return str(manifest["files"][checkpoint.WEIGHTS]["sha256"])


@dataclass(frozen=True)
class Judge:
    """What a mean is chosen by: the metric of its ranking of a split."""

    task: Task
    split: str
    metric: str

    @classmethod
    def open(cls, folder: Path, split: str, metric: str) -> Judge:
        """Open the split of a collection; raise InputError where there is none, or no such metric."""
        require("merge --choose", "ir_measures", "pytrec_eval")
        more_metrics([metric], "--metric")
        return cls(Task.of(Collection.open(folder), split), split, metric)

    def measure(self, trained: TrainedModel) -> float:
        """Return the metric of a model; raise InputError if it cannot rank the split."""
        ranker = ranker_of(trained, self.task.collection, "fp32")  # it stays as exact as what is merged
        if not ranker.searches:
            raise InputError(f"--choose: {ranker.title} re-ranks, and cannot search a pool: give --weights")
        ranked = self.task.rank(ranker.system(self.task), max(DEPTH, Metric.of(self.metric).depth))
        return self.task.measure(ranked, more_metrics([self.metric], "--metric")).means[self.metric]


def merge(runs: Sequence[Path], out: Path, weights: Sequence[float] | None, judge: Callable[[], Judge] | None) -> None:
    """Write the mean of runs or checkpoints as the checkpoint `out`, completely or not at all.

    Args:
        runs: two or more; of a run its newest sound checkpoint.
        out: a new folder.
        weights: the share of each run; by default all are equal.
        judge: opens what chooses the runs instead, which then have equal shares.

    Raises:
        InputError: a run has no sound checkpoint, or the runs differ in their shape, method, tokenizer or start; the
            weights are not a positive one for each run with the sum 1; `out` exists or cannot be written.
    """
    weights = _checked(weights or [1 / len(runs)] * len(runs), len(runs))
    if out.exists():
        raise InputError(f"{out}: exists: name a new folder, or remove it")
    parts = [Part(checkpoint.find(run)) for run in runs]
    common = _check_same(parts)
    chosen_by = judge() if judge else None
    first = load_trained(parts[0].folder)
    _check_heads(parts, first, common)
    about: dict[str, Any] = {}
    if chosen_by:
        mean, weights, about = _choose(parts, chosen_by)
    else:
        mean = _mean(parts, first, weights)
    record = {
        "merged": [
            {"checkpoint": str(part.folder), "sha256": part.sha256, "weight": weight}
            for part, weight in zip(parts, weights, strict=True)
        ],
        **about,
    }
    make_directory(out.parent)
    with whole_folder(out) as folder:
        _write(mean, parts[0], out, folder)
        (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        checkpoint.write_manifest(folder)
    say(f"merged {sum(weight > 0 for weight in weights)} of {len(runs)} into {out}")


def _checked(weights: Sequence[float], runs: int) -> list[float]:
    if runs < 2:
        raise InputError("a mean needs two runs or more: name another one")
    if len(weights) != runs:
        raise InputError(f"--weights: {len(weights)} weights of {runs} runs: give one for each")
    if not (min(weights) > 0 and abs(sum(weights) - 1) <= 1e-6):  # NaN is neither
        raise InputError(f"--weights: their sum is {sum(weights):g}: give positive weights with the sum 1")
    return [float(weight) for weight in weights]


def _check_same(parts: Sequence[Part]) -> set[str]:
    """Raise InputError unless all parts compute the same function of weights with a common ancestor; return these."""
    first, common = parts[0], parts[0].ancestors
    for part in parts[1:]:
        for key, value, other in checkpoint.differences(first.computes, part.computes):
            raise InputError(
                f"{part.folder}: {key} is {other!s:.80}, and {value!s:.80} in {first.folder}: merge models of one kind"
            )
        common &= part.ancestors
        if not common:
            raise InputError(
                f"{part.folder}: began with {part.start}, and {first.folder} with {first.start}: the mean of such "
                "weights is of no use: merge runs of one start"
            )
    return common


def _check_heads(parts: Sequence[Part], first: TrainedModel, common: set[str]) -> None:
    """Raise InputError where runs of one start drew matrices that the start lacks, each by its own seed."""
    start, markers = parts[0].recipe.init_from, first.method.markers
    matrices = {name: head.shape for name, head in first.model.heads.items() if head.ndim > 1}
    one_draw = len({part.recipe.seed for part in parts}) == 1 or len({part.run for part in parts}) == 1
    if one_draw or parts[0].start not in common or start is None or not (matrices or markers):
        return
    encoder = load_encoder(Folder(local_model(start)), first.tokenizer)
    known = {name for name, head in encoder.heads.items() if matrices.get(name) == head.shape}
    drawn = sorted(matrices.keys() - known) + ["the markers' rows"] * (
        markers > 0 and not encoder.rows_for(first.method)
    )
    if drawn:
        raise InputError(
            f"{parts[0].folder}: {drawn[0]} is not in {start}: each seed drew another one: merge runs of one seed"
        )


def _mean(parts: Sequence[Part], first: TrainedModel, weights: Sequence[float]) -> TrainedModel:
    total = weights[0]
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total += weight
        _add(first, load_trained(part.folder), weight / total)
    return first


@torch.no_grad()
def _add(mean: TrainedModel, other: TrainedModel, share: float) -> None:
    """Move a mean towards another model by a share of the way, in fp32: equal weights stay the same to the bit."""
    own, others = (dict(trained.model.named_parameters()) for trained in (mean, other))  # tied ones are there once
    for name in sorted(own.keys() | others.keys()):
        shapes = [list(weights[name].shape) if name in weights else None for weights in (own, others)]
        if shapes[0] != shapes[1]:
            raise InputError(f"{other.checkpoint}: {name} is {shapes[1]}, and {shapes[0]} in {mean.checkpoint}")
        own[name].lerp_(others[name].to(own[name].device), share)


def _choose(parts: Sequence[Part], judge: Judge) -> tuple[TrainedModel, list[float], dict[str, Any]]:
    """Return the greedy mean, the share of each part, and what was measured."""
    alone = []
    for part in parts:
        alone.append(judge.measure(load_trained(part.folder)))
        say(f"{part.folder}: {judge.metric} {alone[-1]:.4f}")
    order = sorted(range(len(parts)), key=lambda i: -alone[i])
    chosen, best = order[:1], alone[order[0]]
    mean = load_trained(parts[order[0]].folder)
    for i in order[1:]:
        before = [parameter.detach().clone() for parameter in mean.model.parameters()]
        _add(mean, load_trained(parts[i].folder), 1 / (len(chosen) + 1))
        value = judge.measure(mean)
        say(f"with {parts[i].folder}: {judge.metric} {value:.4f}")
        if value >= best:
            chosen, best = [*chosen, i], value
            continue
        with torch.no_grad():
            for parameter, weight in zip(mean.model.parameters(), before, strict=True):
                parameter.copy_(weight)
    about = {
        "collection": judge.task.collection.sha256,
        "split": judge.split,
        "metric": judge.metric,
        "alone": alone,
        "mean": best,
    }
    return mean, [1 / len(chosen) if i in chosen else 0.0 for i in range(len(parts))], about


def _write(mean: TrainedModel, first: Part, out: Path, folder: Path) -> None:
    """Write a mean with the small files of its first part; its recipe is of a run `out` without adapters."""
    weights = dict(sorted(mean.model.named_parameters()))
    with hashed_file(folder / checkpoint.WEIGHTS) as file:
        write_weights(
            file, {name: tuple(w.shape) for name, w in weights.items()}, (w.detach() for w in weights.values())
        )
    for name in COPIED:
        if (first.folder / name).is_file():
            (folder / name).write_bytes(read_bytes(first.folder / name))
    values = read_one(first.folder / checkpoint.RECIPE)
    values["run"], values["optimizer"] = str(out), {**values["optimizer"], "train": "all"}
    (folder / checkpoint.RECIPE).write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
