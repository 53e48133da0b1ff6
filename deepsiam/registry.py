"""What recipes and commands can name: this project's own by its place in the code, and a user's, as `register` adds it.

Everything is imported when it is named, so a run of SEED loads no other method. A user's module registers as it is
imported: because a recipe's `imports` or the variable DEEPSIAM_IMPORTS names it, or because an installed package has an
entry point of the group `deepsiam` for the name that is asked for (`matching.two_way = "my_package.two_way"`).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from deepsiam.data_prep.common.errors import FailedImportError, InputError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Value = TypeVar("Value")
GROUP = "deepsiam"  # of entry points
VARIABLE = "DEEPSIAM_IMPORTS"  # modules, with commas between them
REGISTRIES = {  # kind: where its registry is
    "source": "deepsiam.data_prep.sources.registry.SOURCES",
    "format": "deepsiam.data_prep.collections.registry.FORMATS",
    "method": "deepsiam.models.registry.PRETRAINING",
    "matching": "deepsiam.models.registry.MATCHING",
    "loss": "deepsiam.models.layers.ranking_losses.LOSSES",
    "optimizer": "deepsiam.trainer.training.recipe.schema.OPTIMIZERS",
    "ranker": "deepsiam.trainer.ranking.rankers.registry.RANKERS",
    "index": "deepsiam.trainer.ranking.indexes.registry.KINDS",
    "metric": "deepsiam.trainer.ranking.evaluation.metrics.METRICS",
}


class Registry(Mapping[str, Value]):
    """Everything of one kind by its name. Only iterating and an unknown name look at what users add by entry points."""

    def __init__(self, kind: str, ours: Mapping[str, Value | str]) -> None:
        """`ours` has each value, or its place, `package.module.name`."""
        self.kind, self.ours = kind, tuple(ours)
        self._values: dict[str, Any] = dict(ours)
        self.homes = dict.fromkeys(ours, "deepsiam")  # the module that registered each name

    def __getitem__(self, name: str) -> Value:
        self._look_for(name)
        value = self._values[name]
        if isinstance(value, str):
            module, _, attribute = value.rpartition(".")
            imported = import_module(module) if name in self.ours else import_named(module, f"{self.kind} {name}")
            value = self._values[name] = getattr(imported, attribute)
        return value

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        self._look_for(name)
        return name in self._values  # Mapping's own would import it

    def __iter__(self) -> Iterator[str]:
        _import_variable()
        return iter({**self._values, **_installed(self.kind)})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, name: str, value: Value | str, module: str) -> None:
        """Add what a module registers; raise InputError if another module has registered the name."""
        if self.homes.setdefault(name, module) != module:
            raise InputError(
                f"{module}: registers the {self.kind} {name!r}, as {self.homes[name]} does: give it another name"
            )
        self._values[name] = value

    def refusal(self, name: object, hint: str = "") -> str:
        """Say what may be named instead of a name that is unknown; by default, the `hint` is the nearest."""
        hint = hint or did_you_mean(str(name), self) or "; for one of your own, name its module in imports"
        return f"input should be one of {', '.join(map(repr, self))}, not {name!r}{hint}"

    def _look_for(self, name: str) -> None:
        if name not in self._values:
            _import_variable()
        if name not in self._values and (entry := _installed(self.kind).get(name)):
            import_named(entry.module, f"the entry point {entry.name}")
            if name not in self._values:
                raise InputError(f"the entry point {entry.name}: {entry.module} registers no {self.kind} {name!r}")


def register(kind: str, name: str, value: object) -> None:
    """Add something of one's own that recipes and commands can name.

    Args:
        kind: method, matching, loss, ranker, index, source, format, metric or optimizer.
        name: how it is named.
        value: what the registry of the kind holds, or where that is: "my_package.my_module.MyConfig".

    Raises:
        InputError: there is no such kind, or another module has registered the name.
    """
    if kind not in REGISTRIES:
        kinds = ", ".join(REGISTRIES)
        raise InputError(f"register: {kind!r} is no kind{did_you_mean(kind, REGISTRIES)}; there are {kinds}")
    module, _, attribute = REGISTRIES[kind].rpartition(".")
    registry: Registry[Any] = getattr(import_module(module), attribute)
    registry.add(name, value, sys._getframe(1).f_globals["__name__"])


def import_named(module: str, where: str) -> ModuleType:
    """Import a user's module, to register what it has; errors say `where` it is named.

    Raises:
        InputError: there is no such module, or, with the user's exception as its cause, it cannot be imported.
    """
    try:
        return import_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            remedy = "install its package, or add its folder to PYTHONPATH"
            raise InputError(f"{where}: Python finds no module {module}: {remedy}") from None
        message = f"{where}: importing {module} failed: {type(error).__name__}: {error}"
        raise FailedImportError(message) from error.with_traceback(_from_module_on(error))


def sha256_of(module: str) -> str:
    """Return the SHA-256 of an imported module's source; of a package, of all its files in the order of their names."""
    imported = sys.modules[module]
    folders = [Path(folder) for folder in getattr(imported, "__path__", ())]
    file = getattr(imported, "__file__", None)  # None: a namespace's, or of a prompt
    alone = [Path(file)] if file else []
    digest = hashlib.sha256()
    for source in sorted(source for folder in folders for source in folder.rglob("*.py")) or alone:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _import_variable() -> None:
    for module in filter(None, os.environ.get(VARIABLE, "").split(",")):
        import_named(module.strip(), VARIABLE)


@cache
def _installed(kind: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    entries = entry_points(group=GROUP)
    return {e.name.removeprefix(f"{kind}."): e for e in entries if e.name.startswith(f"{kind}.")}


def _from_module_on(error: BaseException) -> Any:
    """Return an exception's traceback without this file's and importlib's frames."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_globals.get("__name__", "").split(".")[0] in ("deepsiam", "importlib"):
        trace = trace.tb_next
    return trace
