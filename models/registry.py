"""The methods that a recipe can name: to add a method, add one line for its configuration."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Field

from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.colbert import ColbertConfig
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.matching.cross_encoder import CrossEncoderConfig
from deepsiam.models.matching.cross_thought_heads import CrossThoughtAnswersConfig, CrossThoughtPairsConfig
from deepsiam.models.matching.duobert import DuobertConfig
from deepsiam.models.matching.label_ranker import LabelRankerConfig
from deepsiam.models.matching.poly_encoder import PolyEncoderConfig
from deepsiam.models.matching.siamese import SiameseConfig
from deepsiam.models.matching.sparse import SparseConfig
from deepsiam.models.matching.tilde import TildeConfig
from deepsiam.models.pretraining.clm import ClmConfig
from deepsiam.models.pretraining.condenser import CondenserConfig
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.models.pretraining.cross_thought import CrossThoughtConfig
from deepsiam.models.pretraining.ict import IctConfig
from deepsiam.models.pretraining.mlm import MlmConfig
from deepsiam.models.pretraining.pairs import PairsConfig
from deepsiam.models.pretraining.poly import PolyConfig
from deepsiam.models.pretraining.retromae import RetroMaeConfig
from deepsiam.models.pretraining.seed import SeedConfig
from deepsiam.models.pretraining.skip_thought import SkipThoughtConfig

_PRETRAINING: tuple[type[PretrainingConfig], ...] = (
    SeedConfig,
    MlmConfig,
    ClmConfig,
    IctConfig,
    SkipThoughtConfig,
    CrossThoughtConfig,
    RetroMaeConfig,
    CondenserConfig,
    PolyConfig,
    PairsConfig,
)
_MATCHING: tuple[type[MatchingConfig], ...] = (
    SiameseConfig,
    PolyEncoderConfig,
    ColbertConfig,
    SparseConfig,
    CrossEncoderConfig,
    CrossThoughtAnswersConfig,
    CrossThoughtPairsConfig,
    DuobertConfig,
    TildeConfig,
    LabelRankerConfig,
)


def _by_name(configs: tuple[type[Any], ...]) -> dict[str, type[Any]]:
    return {get_args(config.model_fields["name"].annotation)[0]: config for config in configs}


def _one_of(configs: tuple[type[MethodConfig], ...]) -> Any:
    """Return the type of a recipe's `method`: the configuration that its `name` selects."""
    union: Any = reduce(or_, configs)
    return Annotated[union, Field(discriminator="name")] if len(configs) > 1 else union


PRETRAINING: dict[str, type[PretrainingConfig]] = _by_name(_PRETRAINING)
MATCHING: dict[str, type[MatchingConfig]] = _by_name(_MATCHING)

if TYPE_CHECKING:
    PretrainingMethod = PretrainingConfig
    MatchingMethod = MatchingConfig
else:
    PretrainingMethod = _one_of(_PRETRAINING)
    MatchingMethod = _one_of(_MATCHING)
