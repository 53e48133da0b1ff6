"""The methods that a recipe can name: to add a method, add one line for its configuration.

A method's file is imported when it is named, so a run of SEED loads no other method.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, Generic, TypeVar

from pydantic import SerializeAsAny, WrapValidator

from deepsiam.models.config import MethodConfig
from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.pretraining.config import PretrainingConfig

AnyConfig = TypeVar("AnyConfig", bound=MethodConfig)


class Methods(Mapping[str, type[AnyConfig]], Generic[AnyConfig]):
    """The configurations of methods by name; each is imported when it is asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """`places` has the file and the class of each name."""
        self.places = places

    def __getitem__(self, name: str) -> type[AnyConfig]:
        module, _, config = self.places[name].rpartition(".")
        config_class: type[AnyConfig] = getattr(import_module(f"deepsiam.models.{module}"), config)
        return config_class

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.places  # Mapping's own would import it

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


PRETRAINING: Methods[PretrainingConfig] = Methods(
    {
        "seed": "pretraining.seed.SeedConfig",
        "mlm": "pretraining.mlm.MlmConfig",
        "clm": "pretraining.clm.ClmConfig",
        "ict": "pretraining.ict.IctConfig",
        "skip_thought": "pretraining.skip_thought.SkipThoughtConfig",
        "cross_thought": "pretraining.cross_thought.CrossThoughtConfig",
        "retromae": "pretraining.retromae.RetroMaeConfig",
        "condenser": "pretraining.condenser.CondenserConfig",
        "poly": "pretraining.poly.PolyConfig",
        "pairs": "pretraining.pairs.PairsConfig",
    },
)
MATCHING: Methods[MatchingConfig] = Methods(
    {
        "siamese": "matching.siamese.SiameseConfig",
        "poly_encoder": "matching.poly_encoder.PolyEncoderConfig",
        "colbert": "matching.colbert.ColbertConfig",
        "sparse": "matching.sparse.SparseConfig",
        "cross_encoder": "matching.cross_encoder.CrossEncoderConfig",
        "cross_thought_answers": "matching.cross_thought_heads.CrossThoughtAnswersConfig",
        "cross_thought_pairs": "matching.cross_thought_heads.CrossThoughtPairsConfig",
        "duobert": "matching.duobert.DuobertConfig",
        "tilde": "matching.tilde.TildeConfig",
        "label_ranker": "matching.label_ranker.LabelRankerConfig",
    },
)
METHODS: Methods[MethodConfig] = Methods({**PRETRAINING.places, **MATCHING.places})


def _named_by(methods: Methods[Any]) -> WrapValidator:
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
        raise ValueError(f"method.name: input should be one of {', '.join(map(repr, methods))}, not {name!r}{instead}")

    return WrapValidator(read)


PretrainingMethod = Annotated[SerializeAsAny[PretrainingConfig], _named_by(PRETRAINING)]
MatchingMethod = Annotated[SerializeAsAny[MatchingConfig], _named_by(MATCHING)]
