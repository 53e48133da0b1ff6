"""The DeepSpeed engine: optimizer steps with accumulation and clipping, evaluation, DeepSpeed's checkpoint files.

The loop calls `step` once for each optimizer step, with this rank's micro-batches; `save` and `load` write and read
DeepSpeed's part of a checkpoint.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from deepspeed.runtime import bf16_optimizer
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from deepspeed.utils import safe_get_full_fp32_param
from torch.nn.utils import get_total_norm

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.arrays import on_device, to_device
from deepsiam.models.interface import MicroBatch
from deepsiam.models.trunk import Encoder, TrunkModel
from deepsiam.trainer.training.engine import ds_config, grad_cache
from deepsiam.trainer.training.engine.clock import DeviceClock
from deepsiam.trainer.training.engine.compiler import without_compiler
from deepsiam.trainer.training.engine.hashed_file import FileEntry, hashed_file
from deepsiam.trainer.training.engine.optimizer import build_optimizer, check_in_few_kernels
from deepsiam.trainer.training.engine.plain_files import REMEDY, plain_values_only
from deepsiam.trainer.training.engine.world import World, rank_0_speaks
from deepsiam.trainer.training.errors import SharedError
from deepsiam.trainer.training.recipe.objective import Objective
from deepsiam.trainer.training.recipe.schema import Recipe

if TYPE_CHECKING:
    from deepsiam.models.matching.dual_encoder import DualEncoder
    from deepsiam.trainer.training.engine.moving_average import MovingAverage


@dataclass(frozen=True)
class StepResult:
    """The result of an optimizer step; its tensors are on the device, which may still be computing them."""

    grad_norm: torch.Tensor  # before clipping; fp64, a scalar
    loss_scale: float
    skipped: bool  # by DeepSpeed, for an overflow
    losses: torch.Tensor  # this rank's sums, fp32 [micro-batches, terms]


class Engine:
    """A model under DeepSpeed, trained on global sums of losses over global counts of targets.

    The gradient of a step is that of sum_k weight_k * (sum of losses of term k over all ranks and micro-batches) /
    (number of targets of term k over all ranks and micro-batches): what one process would compute on the whole batch.
    """

    def __init__(self, model: TrunkModel, recipe: Recipe, world: World):
        self.model, self.world, self.methods = model, world, recipe.methods
        self.terms = list(dict.fromkeys(term for method in self.methods for term in method.weights))
        path, config = ds_config.load(recipe.deepspeed)
        bf16_optimizer.see_memory_usage = bf16_optimizer.print = _do_nothing  # lines for DeepSpeed's developers
        optimizer, completed = build_optimizer(model, recipe.optimizer), ds_config.complete(config, recipe, world.size)
        with without_compiler():
            try:
                self.deepspeed, self.optimizer, _, _ = deepspeed.initialize(
                    model=model, optimizer=optimizer, config=completed
                )
            except (ValueError, AssertionError, NotImplementedError) as error:
                raise SharedError(f"{path}: DeepSpeed refuses it: {' '.join(str(error).split())}") from error
        check_in_few_kernels(self.deepspeed.optimizer)
        if scaler := getattr(self.deepspeed.optimizer, "loss_scaler", None):
            scaler.raise_error_at_min_scale = False  # a bare Exception on every rank; the run counts the overflows
        self.average = _average(self.deepspeed.optimizer, recipe.optimizer.ema)
        self.deepspeed.checkpoint_engine = self.files = CheckpointFiles()
        self.deepspeed._copy_recovery_script = _do_nothing  # one write less that can fail
        self.accumulation: int = self.deepspeed.gradient_accumulation_steps()
        self.device: torch.device = self.deepspeed.device
        self.fp16: bool = self.deepspeed.fp16_enabled()
        self.precision = ds_config.precision(config)
        # at stage 0 in fp32 DeepSpeed leaves the optimizer as it is, and tells no norm of the gradients
        self.tells_norm = not isinstance(self.deepspeed.optimizer, torch.optim.Optimizer)
        self.forward_clock = DeviceClock(self.device)

    def step(
        self, micro_batches: Sequence[MicroBatch], objectives: Sequence[Objective], seeds: Iterable[int], lr: float
    ) -> StepResult:
        """Take one optimizer step on this rank's micro-batches, each with its objective and the seed of its dropout.

        Where losses are functions of the whole step, all micro-batches have the same objective.
        """
        # set here, not by a scheduler of DeepSpeed's, whose state a resume would have to restore
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        losses = []
        skipped_before = self.deepspeed.skipped_steps  # `step` returns nothing: it counts what an overflow skips
        for sums, scalar in self._differentiable(micro_batches, objectives, seeds):
            losses.append(self._by_term(sums))
            # DeepSpeed averages over ranks and accumulated micro-batches; here the gradients must be summed
            self.deepspeed.backward(scalar * (self.world.size * self.accumulation))
            # the ranks' gradients are summed by now, and `step` will clip and clear them
            if not self.tells_norm and self.deepspeed.is_gradient_accumulation_boundary():
                norm = get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
            self.deepspeed.step()  # it counts its calls: only the one after the last micro-batch updates the weights
        skipped = self.deepspeed.skipped_steps > skipped_before
        if self.average and not skipped:
            self.average.update(self.updates)
        return StepResult(
            grad_norm=self._grad_norm() if self.tells_norm else norm.double(),
            # fp16's: backward multiplies by it and `step` divides, so losses and norm are without it
            loss_scale=float(getattr(self.optimizer, "cur_scale", 1.0)),
            skipped=skipped,
            losses=torch.stack(losses),
        )

    def evaluate(self, micro_batch: MicroBatch, source: int = 0, **options: bool) -> torch.Tensor:
        """Return the summed losses of a source's micro-batch, fp32 [terms] on the device, without dropout.

        Under ZeRO-3 all ranks call. `options` are keywords of the model's `forward` (see models.interface.Bottleneck).
        """
        self.model.keys = self.methods[source].ranking_config
        with self.evaluating():
            sums = self.deepspeed(**self._tensors(micro_batch), **options)
        return self._by_term(sums)

    def evaluate_step(self, micro_batches: Sequence[MicroBatch], sources: Sequence[int]) -> torch.Tensor:
        """Return the summed losses of this rank's part of a step, fp32 [micro-batches, terms], without dropout.

        They are those that `step` differentiates, also where a loss is a function of the whole step; all ranks call.
        """
        keys = self.methods[sources[0]].ranking_config
        if not keys.spans_step:
            return torch.stack([self.evaluate(*pair) for pair in zip(micro_batches, sources, strict=True)])
        self.model.keys = keys
        batches = [self._tensors(micro_batch) for micro_batch in micro_batches]
        with self.evaluating():
            # through DeepSpeed, which gathers the weights at ZeRO-3; the losses below have no weights
            encoded = [self.deepspeed(**batch, represent=True) for batch in batches]
        losses, _ = grad_cache.differentiate(
            cast("DualEncoder", self.model), batches, encoded, lambda sums: torch.stack([*sums.values()]).sum()
        )
        return torch.stack([self._by_term(sums) for sums in losses])

    def embed(self, ids: np.ndarray, mask: np.ndarray, **framed: np.ndarray) -> np.ndarray:
        """Embed documents, ids int64 and mask bool [B, T], as one vector each, fp32 [B, H]; under ZeRO-3 all call.

        `framed` are the arrays that only the model's framing makes.
        """
        assert isinstance(self.model, Encoder)
        with self.evaluating():
            vectors, _ = self.model.embed_documents(**on_device({"ids": ids, "mask": mask, **framed}, self.device))
        return vectors[:, 0].float().cpu().numpy()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Let the model compute without dropout and without gradients."""
        self.deepspeed.eval()
        with torch.no_grad():
            yield
        self.deepspeed.train()

    @property
    def updates(self) -> int:
        """How many steps have changed the weights: all but those that were skipped for an overflow."""
        return int(self.deepspeed.global_steps - self.deepspeed.skipped_steps)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the model have the moving average of its weights in their place; all ranks call."""
        assert self.average
        self.average.exchange()
        try:
            yield
        except SharedError:  # of all ranks, which may train on; after another error this one would wait for the others
            self.average.exchange()
            raise
        self.average.exchange()

    def load_average(self, file: Path) -> None:
        """Load the moving average from a file of weights; raise InputError if it is of another model."""
        assert self.average
        self.average.load(file, dict(self._saved()), self.weight_shapes(), self.world)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name, in the order of the names; tied parameters occur once.

        Those that adapters leave as the base has them are left out.
        """
        return {name: _shape(parameter) for name, parameter in self._saved()}

    def full_weights(self) -> Iterator[torch.Tensor]:
        """Yield the parameters of `weight_shapes` at full precision and size, at any ZeRO stage, in the same order.

        Each is gathered from all ranks when it is requested: all ranks call, and iterate to the end.
        """
        for _, parameter in self._saved():
            weight = safe_get_full_fp32_param(parameter)
            if weight is None:  # no master copy: stage 0, or a frozen parameter, which stage 3 still partitions
                with deepspeed.zero.GatheredParameters(parameter):
                    weight = parameter.detach().clone()
            yield weight.detach()

    @property
    def trained_weights(self) -> int:
        """How many numbers are trained, on all ranks together."""
        return sum(math.prod(_shape(parameter)) for parameter in self.model.parameters() if parameter.requires_grad)

    @property
    def gradient_bytes(self) -> int:
        """The size of all gradients in bytes, as they are sent."""
        return self.trained_weights * int(self.deepspeed.communication_data_type.itemsize)

    def sum_over_ranks(self, values: torch.Tensor) -> torch.Tensor:
        """Sum element-wise over all ranks, onto this rank's device; in place where `values` is already there."""
        values = to_device(values, self.device)
        dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, by rank; all ranks call. Slow: only for rare exchanges."""
        values = [None] * self.world.size
        dist.all_gather_object(values, value)
        return values

    def save(self, folder: Path, tag: str) -> dict[str, FileEntry]:
        """Write DeepSpeed's own files, to resume exactly; all ranks call.

        Return the bytes and SHA-256 of this rank's files, by their names in `folder`; they are on disk. The first file
        error is raised only after this rank's part of the collective save: a rank that left the save earlier would
        keep the others waiting.
        """
        self.files.error, self.files.written = None, {}
        self.deepspeed.save_checkpoint(
            str(folder),
            tag=tag,
            save_latest=False,  # it would name a checkpoint that other ranks are still writing
            # without this key DeepSpeed cannot convert the checkpoint for another number of ranks
            client_state={"universal_checkpoint_info": {}},
            exclude_frozen_parameters=bool(self.model.from_base),
        )
        if self.files.error is not None:
            raise self.files.error
        return {str(path.relative_to(folder)): entry for path, entry in self.files.written.items()}

    def load(self, folder: Path, tag: str, *, universal: bool = False) -> None:
        """Load what `save` wrote, or a `universal` checkpoint converted from it; all ranks call.

        Raise InputError for files that are not DeepSpeed's plain values, or do not suit this engine.
        """
        self.deepspeed._config.load_universal_checkpoint = universal
        decays = [group["weight_decay"] for group in self.optimizer.param_groups]  # loading overwrites both
        fused = self.optimizer.param_groups[0].get("fused")
        with rank_0_speaks(self.world.rank), plain_values_only():  # DeepSpeed's files are pickles: they could run code
            try:
                load_path, _ = self.deepspeed.load_checkpoint(
                    str(folder), tag=tag, load_module_strict=not self.model.from_base
                )
            except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
                raise InputError(f"{folder / tag}: DeepSpeed cannot load its files ({error!r}): {REMEDY}") from error
        if load_path is None:  # DeepSpeed only warns, and would train from the start
            raise InputError(f"{folder / tag}: DeepSpeed finds no checkpoint of its own there")
        if universal:
            # stage 3 copies the first group's settings to all groups, and has one step counter that each state advances
            for group, decay in zip(self.optimizer.param_groups, decays, strict=True):
                group["weight_decay"] = decay
            for state in self.optimizer.state.values():
                state["step"] = torch.clone(torch.as_tensor(state["step"]))
        # the file may be of another device: a fused step needs its counters beside the weights, others on the host
        for group in self.optimizer.param_groups:
            group["fused"] = fused
        for parameter, state in self.optimizer.state.items():
            state["step"] = torch.as_tensor(state["step"]).to(parameter.device if fused else "cpu")

    def _saved(self) -> list[tuple[str, torch.nn.Parameter]]:
        # a tied parameter has one name here; the order of names is that of the file, and of the ranks' gathering
        parameters = self.deepspeed.module.named_parameters()
        return sorted(((name, p) for name, p in parameters if name not in self.model.from_base), key=itemgetter(0))

    def _differentiable(
        self, micro_batches: Sequence[MicroBatch], objectives: Sequence[Objective], seeds: Iterable[int]
    ) -> Iterator[tuple[Mapping[str, torch.Tensor], torch.Tensor]]:
        """Yield each micro-batch's summed losses and its part of the step's objective, to differentiate at once."""

        def forward(tensors: Mapping[str, torch.Tensor], seed: int, **options: bool) -> dict[str, torch.Tensor]:
            torch.manual_seed(seed)  # GradCache encodes twice, and must draw the same dropout
            with self.forward_clock.counting():
                return self.deepspeed(**tensors, **options)

        self.model.keys = objectives[0].method.ranking_config
        if self.model.keys.spans_step:
            batches = [self._tensors(micro_batch) for micro_batch in micro_batches]
            encode = [partial(forward, *pair, represent=True) for pair in zip(batches, seeds, strict=True)]
            yield from grad_cache.objectives(cast("DualEncoder", self.model), batches, encode, objectives[0].scalar)
            return
        for micro_batch, objective, seed in zip(micro_batches, objectives, seeds, strict=True):
            self.model.keys = objective.method.ranking_config  # sources of a mix may have other losses
            sums = forward(self._tensors(micro_batch), seed)
            yield sums, objective.scalar(sums)

    def _by_term(self, sums: Mapping[str, torch.Tensor]) -> torch.Tensor:
        # a term that only other sources of a mix have is 0
        if len(self.methods) > 1:
            sums = dict.fromkeys(self.terms, torch.zeros_like(next(iter(sums.values())))) | dict(sums)
        return torch.stack([sums[term].detach() for term in self.terms])

    def _grad_norm(self) -> torch.Tensor:
        norm = self.deepspeed.get_global_grad_norm()
        if isinstance(norm, torch.Tensor):
            return norm.to(self.device, torch.float64, non_blocking=True)
        return torch.full((), norm or 0.0, dtype=torch.float64, device=self.device)

    def _tensors(self, micro_batch: MicroBatch) -> dict[str, torch.Tensor]:
        return on_device(micro_batch.arrays, self.device)


def _shape(parameter: torch.nn.Parameter) -> tuple[int, ...]:
    return tuple(getattr(parameter, "ds_shape", parameter.shape))  # ZeRO-3 leaves an empty tensor in its place


def _average(optimizer: object, decay: float | None) -> "MovingAverage | None":
    if decay is None:
        return None
    from deepsiam.trainer.training.engine.moving_average import MovingAverage  # a run without one does not need it

    return MovingAverage(optimizer, decay)


def _do_nothing(*arguments: object, **options: object) -> None: ...


class CheckpointFiles(TorchCheckpointEngine):
    """Write and hash DeepSpeed's files; keep the first error until the collective save is over."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.written: dict[Path, FileEntry] = {}

    def save(self, state_dict: Any, path: str) -> None:
        """Write one file, unless an earlier one failed."""
        if self.error is None:
            try:
                with hashed_file(Path(path)) as file:
                    torch.save(state_dict, file)  # type: ignore[arg-type]  # it calls only write and flush
                self.written[Path(path)] = file.entry()
            except (OSError, RuntimeError) as error:
                self.error = error.__context__ if isinstance(error.__context__, OSError) else error
