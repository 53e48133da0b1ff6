"""The keys of a recipe: a class for each section."""

from __future__ import annotations

import math
import reprlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from pydantic import (
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from deepsiam.data_prep.common.errors import did_you_mean
from deepsiam.data_prep.common.hub import is_address
from deepsiam.models.adapters import Adapters
from deepsiam.models.config import MethodConfig, OrRegistered, Section, unhashed
from deepsiam.models.matching.config import LOSS_TAGS, MatchingConfig, compares_batch
from deepsiam.models.registry import MATCHING, MatchingMethod, PretrainingMethod
from deepsiam.registry import Registry
from deepsiam.trainer.training.recipe.data_keys import (
    OVERRIDDEN,
    LanesConfig,
    PairDataConfig,
    ShardDataConfig,
    on_source,
    with_source_keys,
)
from deepsiam.trainer.training.recipe.margin import Margin


class BatchConfig(Section):
    """How many examples an optimizer step has, and how many of them a rank processes at once."""

    size: int = Field(ge=1, le=1 << 24)
    micro: int = Field(ge=1, le=1 << 24)

    @model_validator(mode="after")
    def _divides(self) -> BatchConfig:
        if self.size % self.micro:
            raise ValueError(f"batch.micro={self.micro} does not divide batch.size={self.size}")
        return self

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches in one optimizer step, over all ranks."""
        return self.size // self.micro


# name: a function of parameter groups, each with its weight_decay, and of the optimizer's keys
OPTIMIZERS: Registry[Callable[[list[dict[str, Any]], OptimizerConfig], torch.optim.Optimizer]] = Registry(
    "optimizer",
    {
        "adamw": "deepsiam.trainer.training.engine.optimizer.adamw",
        "adamax": "deepsiam.trainer.training.engine.optimizer.adamax",
    },
)
Schedule = Literal["linear", "cosine", "wsd", "inverse_sqrt", "constant"]
ModuleName = Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")]
Beta = Annotated[float, Field(ge=0, lt=1)]
# as a Path, an address would lose a slash
Start = Annotated[
    Annotated[Path, Tag("path")] | Annotated[str, Tag("hub")],
    Discriminator(lambda value: "hub" if isinstance(value, str) and is_address(value) else "path"),
]
Layers = Annotated[int, Field(ge=0, strict=True)]  # strict: true is not 1
Trained = Annotated[
    Annotated[Literal["all", "all_but_embeddings"] | Layers, Tag("part")] | Annotated[Adapters, Tag("adapters")],
    Discriminator(lambda value: "adapters" if isinstance(value, dict | Adapters) else "part"),
]
"""What is trained of the encoder: all, a part (a number: only so many top layers), or adapters."""


class PlateauConfig(Section):
    """When to lower the learning rate permanently (gains.py); defaults as in Poly-encoders, section 4.1."""

    factor: float = Field(0.4, gt=0, lt=1)
    patience: int = Field(0, ge=0)  # validations without a lower loss that are tolerated


class OptimizerConfig(Section):
    """The optimizer; linear warm-up, then a schedule's decay; weight decay is for matrices only."""

    name: Annotated[Literal["adamw", "adamax"], OrRegistered(OPTIMIZERS)] = "adamw"
    train: Trained = "all"
    lr: PositiveFloat
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: PositiveFloat = 1e-6
    weight_decay: float = Field(0.01, ge=0)
    warmup_steps: int = Field(0, ge=0)
    schedule: Schedule = "linear"  # decays to zero at the run's last step; inverse_sqrt never reaches it
    decay_steps: int = Field(0, ge=0)  # of the schedule wsd: its last steps, in which the rate decays
    plateau: PlateauConfig | None = None
    clip: float = Field(1.0, ge=0)  # maximum global gradient norm; 0: no clipping
    # how much a step counts, as a share of the next one, in a moving average of the weights
    ema: float | None = unhashed(None, gt=0, lt=1)

    def check_base(self, start: Path | str | None) -> None:
        """Raise ValueError if there are adapters, and no trained encoder to add them to."""
        if isinstance(self.train, Adapters) and start is None:
            raise ValueError(
                "optimizer.train: adapters leave the encoder as it is, and random weights are of no use: name a "
                "trained encoder in init_from, or set all"
            )

    def rate(self, step: int, steps: int) -> float:
        """Return the rate of a step, counted from 0, in a run of `steps`: a linear warm-up to `lr`, then the schedule.

        `linear` decays to zero at `steps` (BERT; SEED appendix A.1), and so does `cosine`, along half a wave
        (Loshchilov and Hutter, 2017); `wsd` keeps `lr` until the last `decay_steps`, which decay linearly to zero
        (warm-up, stable, decay: Hu et al., 2024); `inverse_sqrt` decays with the inverse square root of the finished
        steps and ignores `steps` (Vaswani et al., 2017, section 5.3; Poly-encoders, section 4.1).
        """
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        decaying = steps - self.warmup_steps
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "inverse_sqrt":
            return self.lr * math.sqrt(max(1, self.warmup_steps) / (step + 1))  # continues where the warm-up ended
        if self.schedule == "wsd":
            return self.lr * min(1.0, (steps - step) / self.decay_steps)
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * (step - self.warmup_steps) / decaying)) / 2
        return self.lr * (steps - step) / decaying


class CheckpointConfig(Section):
    """When to save, and which checkpoints to keep."""

    every: PositiveInt = 1000
    keep: int = Field(2, ge=2)  # the newest; at least 2, because one may be damaged
    keep_every: PositiveInt | None = None  # steps; checkpoints at multiples of it are never removed


class PairCheckpointConfig(CheckpointConfig):
    """Also which one to keep apart, and when to stop: by the probe."""

    # a metric, such as ndcg@10: RUN/best has the weights with the highest
    keep_best: str | None = Field(None, min_length=1)
    stop_after: PositiveInt | None = None  # consecutive probes without a higher one


class FaultsConfig(Section):
    """What to do when something goes wrong during a run; see docs/operations.md."""

    on_bad_shard: Literal["stop", "skip"] = "stop"
    most_bad_shards: int = Field(10, ge=0)  # a run that skips bad shards stops if there are more than this
    on_nan: Literal["stop", "skip"] = "stop"  # skip: load the last checkpoint, continue after the bad step's data
    hang_seconds: float = Field(1800.0, gt=0, le=threading.TIMEOUT_MAX)  # without a step, a save or a validation batch


class ValidationConfig(Section):
    """How often the losses on held-out data are measured."""

    every: PositiveInt  # optimizer steps


class ShardValidationConfig(ValidationConfig):
    """Held-out shards."""

    shards: str


class PairValidationConfig(ValidationConfig):
    """Held-out pairs of the collection."""

    split: str
    pairs: PositiveInt | None = None


class ProbeConfig(Section):
    """What is measured besides the losses, and how often; see trainer/ranking/while_training/."""

    split: str
    every: PositiveInt  # optimizer steps
    queries: PositiveInt = 200
    documents: PositiveInt = 2000  # the relevant documents of these queries, plus others up to this number


class ShardProbeConfig(ProbeConfig):
    """Geometry and retrieval in pre-training."""

    collection: Path  # made with the shards' tokenizer
    max_tokens: int = Field(128, ge=3)


class PairProbeConfig(ProbeConfig):
    """Retrieval in fine-tuning."""

    collection: Path | None = None  # null: that of the training pairs


class RefreshConfig(Section):
    """Hard negatives that the model itself mines while it learns, as ANCE does (Xiong et al., 2021)."""

    every: PositiveInt  # optimizer steps; until the first refresh the groups' own negatives are used
    depth: PositiveInt = 200  # documents ranked for each query; the irrelevant ones are kept as negatives
    margin: Margin | None = None  # a negative must score this much less than the best relevant document


class Recipe(Section):
    """The keys of every kind of run."""

    other_negatives: ClassVar[str] = ""  # how a query gets some that are not of its batch

    run: Path  # the folder of this run: checkpoints, TensorBoard events, its recipe
    imports: tuple[ModuleName, ...] = unhashed(())  # modules of one's own that register what the recipe names
    seed: int = Field(1, ge=0, lt=2**63)
    steps: int = Field(ge=1, lt=1 << 48)  # optimizer steps
    batch: BatchConfig
    optimizer: OptimizerConfig
    ranks: PositiveInt | None = None  # required number, to detect a wrong launch; None: any number
    deepspeed: str = "auto"  # a JSON file of ds_configs/, or auto: the fastest precision of this machine
    compile: bool = False  # the encoder's layers, with torch.compile
    activation_checkpointing: bool = False  # the backward pass recomputes the layers: less memory, a third more time
    checkpoint: CheckpointConfig = CheckpointConfig()
    faults: FaultsConfig = FaultsConfig()
    log_every: PositiveInt = 20
    wandb: str | None = unhashed(None, min_length=1)  # a project of Weights & Biases that gets the events, too
    data: LanesConfig
    validation: ValidationConfig | None = None
    method: MethodConfig
    trunk: dict[str, Any] | None = None  # a new encoder: keys of the Hugging Face configuration of trunk.model_type
    # or a trained one: a run, checkpoint, export, HF or sentence-transformers folder, or hf://OWNER/NAME[@REVISION]
    init_from: Start | None = None
    bidirectional: bool = False  # every token of the decoder in init_from sees later ones too

    @property
    def methods(self) -> Sequence[MethodConfig]:
        """The method with the keys of each source of the data, in their order."""
        return [self.method] * len(self.data.sources)

    @field_validator("trunk", mode="before")
    @classmethod
    def _a_folder_is_a_start(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"trunk: describes a new encoder: to start from a folder, set init_from={value} instead")
        return value

    @model_validator(mode="after")
    def _keys_suit_each_other(self) -> Recipe:
        keys = self.optimizer
        if (keys.schedule == "wsd") != bool(keys.decay_steps):
            remedy = f"set it to 0 for schedule={keys.schedule}" if keys.decay_steps else "set how many"
            raise ValueError(f"optimizer.decay_steps: the last steps, in which the schedule wsd decays: {remedy}")
        if keys.warmup_steps + keys.decay_steps > self.steps and keys.decay_steps:
            raise ValueError(
                f"optimizer.decay_steps: {keys.decay_steps} and warmup_steps={keys.warmup_steps} are more than "
                f"steps={self.steps}"
            )
        if self.bidirectional and self.init_from is None:
            raise ValueError("bidirectional needs a decoder in init_from: for a new one set trunk.is_causal=false")
        if self.optimizer.plateau and self.validation is None:
            raise ValueError(
                "optimizer.plateau: the loss on held-out data decides: name them in validation, or set plateau to null"
            )
        return self

    @model_validator(mode="after")
    def _methods_suit_the_batch(self) -> Recipe:
        for name, method in zip(self.data.sources, self.methods, strict=True):
            if len(self.methods) > 1 and self.data.one_source_per == "micro_batch" and method.spans_step:
                raise ValueError(
                    f"data.mix.{name}: its losses compare the texts of a whole step, which must be of one source: "
                    "set data.one_source_per=step"
                )
        for method in self.methods:
            if method.has_own_negatives or not (method.compares_micro_batch or method.compares_step):
                continue
            # validation compares a query with its micro-batch, whatever training compares it with
            key = "size" if method.compares_step and self.validation is None else "micro"
            if getattr(self.batch, key) == 1:
                raise ValueError(
                    f"batch.{key}=1 leaves no other document to compare a query with: set it to 2 or more"
                    f"{self.other_negatives}"
                )
        return self


class PretrainRecipe(Recipe):
    """A pre-training run."""

    data: ShardDataConfig
    validation: ShardValidationConfig | None = None
    probe: ShardProbeConfig | None = None
    method: PretrainingMethod

    @model_validator(mode="after")
    def _one_trunk(self) -> PretrainRecipe:
        if (self.trunk is None) == (self.init_from is None):
            raise ValueError("trunk: describe a new encoder there, or name one in init_from, and not both")
        if self.method.needs_trained_encoder and self.init_from is None:
            raise ValueError("method.freeze_encoder: a new encoder cannot be frozen: name a trained one in init_from")
        self.optimizer.check_base(self.init_from)
        return self


class FinetuneRecipe(Recipe):
    """A fine-tuning run."""

    other_negatives = ", or draw negatives (method.hard_negatives, method.negatives_per_query)"

    data: PairDataConfig
    checkpoint: PairCheckpointConfig = PairCheckpointConfig()
    validation: PairValidationConfig | None = None
    probe: PairProbeConfig | None = None
    random_weights: bool = False  # the trunk of init_from with random weights: the baseline of pre-training
    refresh: RefreshConfig | None = None
    method: MatchingMethod

    @model_validator(mode="after")
    def _sections_suit_each_other(self) -> FinetuneRecipe:
        if (self.trunk is None) == (self.init_from is None):
            raise ValueError("trunk: name a trained encoder in init_from, or describe a new one there, and not both")
        self.optimizer.check_base(None if self.random_weights else self.init_from)
        keys = self.checkpoint
        if keys.keep_best and self.probe is None:
            raise ValueError("checkpoint.keep_best: the probe measures it: name its split in probe, or set null")
        if keys.stop_after and not keys.keep_best:
            raise ValueError("checkpoint.stop_after: name the metric that is to gain in checkpoint.keep_best")
        return self

    @model_validator(mode="after")
    def _sources_suit_each_other(self) -> FinetuneRecipe:
        for (name, source), method in zip(self.data.sources.items(), self.methods, strict=True):
            if self.refresh and source.refresh and not (method.hard_negatives and method.unit == "positive"):
                where, instead = (f"data.mix.{name}", f"data.mix.{name}.refresh to false") if name else ("refresh", "")
                message = (
                    f"{where}: what is mined is drawn as hard negatives: set method.hard_negatives to 1 or more, with "
                    f"a loss of a relevant document against others, or {instead or 'refresh to null'}"
                )
                raise ValueError(with_source_keys(name, message))
        if self.refresh and not any(source.refresh for source in self.data.sources.values()):
            raise ValueError("refresh: no source of data.mix is to be mined for: set refresh to null")
        learned = [{term: w for term, w in method.weights.items() if w} for method in [self.method, *self.methods]]
        if self.optimizer.plateau and any(weights != learned[0] for weights in learned):
            raise ValueError(
                "optimizer.plateau: the sources of data.mix have different losses, which have no common sum: set null"
            )
        return self

    @property
    def methods(self) -> Sequence[MatchingConfig]:
        return [self._source_method(name, source.overrides) for name, source in self.data.sources.items()]

    def _source_method(self, name: str, keys: Mapping[str, Any]) -> MatchingConfig:
        """Return the method with the keys that a source replaces; raise ValueError where they do not suit it."""
        if not keys:
            return self.method
        for key in keys:
            if key not in OVERRIDDEN:
                source_keys = [*type(self.data.sources[name]).model_fields, *OVERRIDDEN]
                hint = did_you_mean(key, source_keys, prefix=f"data.mix.{name}.")
                hint = hint or f"; a source may have {', '.join(source_keys)}"
                raise ValueError(f"data.mix.{name}.{key}: unknown key{hint}")
        values = self.method.model_dump(exclude_unset=True)
        if "loss" in keys and not compares_batch(keys["loss"]):
            values.pop("negatives", None)  # those of the method suit its loss, not this one
        try:
            return type(self.method).model_validate({**values, **keys})
        except ValidationError as error:
            problem = error.errors()[0]
            # the location also contains the union member that pydantic tried, which is not a key
            where = "".join(f".{part}" for part in problem["loc"] if part not in LOSS_TAGS)
            suffix = "" if problem["type"] == "value_error" else f", not {reprlib.repr(problem['input'])}"
            message = f"method{where}: " * bool(where) + problem["msg"].removeprefix("Value error, ") + suffix
            raise ValueError(on_source(name, message)) from None


AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


def kind_of(values: Mapping[str, Any]) -> type[PretrainRecipe] | type[FinetuneRecipe]:
    """Return the kind of recipe that plain values describe: matching models fine-tune, all other methods pre-train."""
    method = values.get("method")
    return FinetuneRecipe if isinstance(method, Mapping) and method.get("name") in MATCHING else PretrainRecipe
