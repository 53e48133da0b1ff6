"""The methods that a recipe can name: to add a method, add one line for its configuration."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import SerializeAsAny, WrapValidator

from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.pretraining.config import PretrainingConfig
from deepsiam.registry import Registry

PRETRAINING: Registry[type[PretrainingConfig]] = Registry(
    "method",
    {
        "seed": "deepsiam.models.pretraining.seed.SeedConfig",
        "mlm": "deepsiam.models.pretraining.mlm.MlmConfig",
        "clm": "deepsiam.models.pretraining.clm.ClmConfig",
        "ict": "deepsiam.models.pretraining.ict.IctConfig",
        "skip_thought": "deepsiam.models.pretraining.skip_thought.SkipThoughtConfig",
        "cross_thought": "deepsiam.models.pretraining.cross_thought.CrossThoughtConfig",
        "retromae": "deepsiam.models.pretraining.retromae.RetroMaeConfig",
        "condenser": "deepsiam.models.pretraining.condenser.CondenserConfig",
        "poly": "deepsiam.models.pretraining.poly.PolyConfig",
        "pairs": "deepsiam.models.pretraining.pairs.PairsConfig",
        "distil": "deepsiam.models.pretraining.distil.DistilConfig",
    },
)
MATCHING: Registry[type[MatchingConfig]] = Registry(
    "matching",
    {
        "siamese": "deepsiam.models.matching.siamese.SiameseConfig",
        "poly_encoder": "deepsiam.models.matching.poly_encoder.PolyEncoderConfig",
        "colbert": "deepsiam.models.matching.colbert.ColbertConfig",
        "sparse": "deepsiam.models.matching.sparse.SparseConfig",
        "cross_encoder": "deepsiam.models.matching.cross_encoder.CrossEncoderConfig",
        "cross_thought_answers": "deepsiam.models.matching.cross_thought_heads.CrossThoughtAnswersConfig",
        "cross_thought_pairs": "deepsiam.models.matching.cross_thought_heads.CrossThoughtPairsConfig",
        "duobert": "deepsiam.models.matching.duobert.DuobertConfig",
        "tilde": "deepsiam.models.matching.tilde.TildeConfig",
        "label_ranker": "deepsiam.models.matching.label_ranker.LabelRankerConfig",
    },
)


# only read; those of MATCHING come last, as a ChainMap lists its maps in reverse
METHODS: Mapping[str, type[MethodConfig]] = ChainMap(MATCHING, PRETRAINING)  # type: ignore[arg-type]


def _named_by(methods: Registry[Any]) -> WrapValidator:
    """Return a validator of a recipe's `method`: the configuration that its `name` selects reads its keys."""

    def read(value: Any, _: object) -> MethodConfig:
        if isinstance(value, MethodConfig) and value.name in methods:
            return value
        if not isinstance(value, Mapping) or "name" not in value:
            raise ValueError("method.name: missing")
        if (name := value["name"]) in methods:
            return methods[name].model_validate(value)
        command = "trainer.finetune" if name in MATCHING else "trainer.pretrain"
        instead = f": train it by {command}" if name in METHODS else ""
        raise ValueError(f"method.name: {methods.refusal(name, instead)}")

    return WrapValidator(read)


PretrainingMethod = Annotated[SerializeAsAny[PretrainingConfig], _named_by(PRETRAINING)]
MatchingMethod = Annotated[SerializeAsAny[MatchingConfig], _named_by(MATCHING)]
