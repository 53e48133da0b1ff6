"""deepsiam, a trainer for Siamese text encoders: the one import name of this project, and its Python interface.

A name is imported when it is first used, so that `import deepsiam` loads neither torch nor transformers. docs/python.md
shows them at work. What the user can put right raises `InputError`, whose message is the commands' one line.

Beside this file stand links to the project's folders, so that `deepsiam.trainer` is `trainer/` in a checkout, for
Python, editors and mypy alike; a wheel holds the folders themselves.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepsiam.data_prep.common.errors import InputError as InputError
    from deepsiam.data_prep.common.errors import StoppedError as StoppedError
    from deepsiam.registry import register as register
    from deepsiam.trainer.interface.collection import Collection as Collection
    from deepsiam.trainer.interface.evaluation import Evaluation as Evaluation
    from deepsiam.trainer.interface.evaluation import evaluate as evaluate
    from deepsiam.trainer.interface.export import export as export
    from deepsiam.trainer.interface.model import Model as Model
    from deepsiam.trainer.interface.model import load as load
    from deepsiam.trainer.interface.training import finetune as finetune
    from deepsiam.trainer.interface.training import pretrain as pretrain
    from deepsiam.trainer.ranking.indexes.index import Hit as Hit
    from deepsiam.trainer.ranking.indexes.index import Index as Index
    from deepsiam.trainer.ranking.indexes.registry import open_index as open_index

__version__ = "0.1.0"

_MODULES = {  # that define the public names
    "Collection": "trainer.interface.collection",
    "Evaluation": "trainer.interface.evaluation",
    "Hit": "trainer.ranking.indexes.index",
    "Index": "trainer.ranking.indexes.index",
    "InputError": "data_prep.common.errors",
    "Model": "trainer.interface.model",
    "StoppedError": "data_prep.common.errors",
    "evaluate": "trainer.interface.evaluation",
    "export": "trainer.interface.export",
    "finetune": "trainer.interface.training",
    "load": "trainer.interface.model",
    "open_index": "trainer.ranking.indexes.registry",
    "pretrain": "trainer.interface.training",
    "register": "registry",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = public
    return public


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
