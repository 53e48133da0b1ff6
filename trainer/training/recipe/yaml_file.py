"""Read recipes from YAML files that extend one another, with dotted overrides and errors that name the key."""

import os
import re
import reprlib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from deepsiam.data_prep.common.errors import InputError, did_you_mean
from deepsiam.data_prep.common.files import read_bytes
from deepsiam.models.registry import METHODS
from deepsiam.registry import import_named
from deepsiam.trainer.training.recipe.data_keys import EXCLUSIVE
from deepsiam.trainer.training.recipe.schema import AnyRecipe, FinetuneRecipe, PretrainRecipe, kind_of

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
LARGEST, MOST_VALUES, DEEPEST = 1 << 18, 10_000, 50  # bytes; values, aliases written out; levels, also of `extends`


class _Loader(yaml.SafeLoader):
    """A YAML 1.1 loader that also reads 1e-4 as a float, and refuses duplicate keys, and what has no end."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = self._depth = 0
        self._sizes: dict[str, int] = {}  # by anchor

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        # counts while it parses: a few lines of aliases of aliases can stand for billions of values
        event: Any = self.peek_event()
        is_alias = self.check_event(yaml.AliasEvent)
        start, self._depth = self._values, self._depth + 1
        if is_alias and event.anchor in self.anchors and event.anchor not in self._sizes:
            raise yaml.composer.ComposerError(None, None, f"*{event.anchor} contains itself", event.start_mark)
        self._values += self._sizes.get(event.anchor, 0) if is_alias else 0
        self._values += 1
        if self._depth > DEEPEST or self._values > MOST_VALUES:
            problem = f"nested too deeply (over {DEEPEST} levels)" if self._depth > DEEPEST else "has too many values"
            raise _TooLargeError(f"{problem}: a recipe has at most {MOST_VALUES:,}, where its aliases are written out")
        node: Any = super().compose_node(parent, index)
        if event.anchor and not is_alias:
            self._sizes[event.anchor] = self._values - start
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in keys:
                raise yaml.composer.ComposerError(None, None, f"the key {key.value!r} appears twice", key.start_mark)
            keys.add((key.tag, key.value))
        return node


class _TooLargeError(ValueError):
    """A text has more values or levels than any recipe."""


# PyYAML reads 1e-4 as text: YAML 1.1 wants 1.0e-4
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)$|^[-+]?(\d+\.\d*|\.\d+)$|^[-+]?\.inf$|^\.nan$"),
    list("-+0123456789."),
)


def load(kind: type[AnyRecipe], path: Path, overrides: Sequence[str] = ()) -> AnyRecipe:
    """Read a recipe file, the files it extends, and `key=value` overrides; import the modules that it names.

    Raises:
        InputError: a key is at fault, or such a module; the message names it.
    """
    values = read(path, overrides)
    import_named_in(values, str(path))
    return build(kind, values, str(path))


def load_any(path: Path, overrides: Sequence[str] = ()) -> PretrainRecipe | FinetuneRecipe:
    """Do as `load` does, for a recipe of the kind that its method has."""
    values = read(path, overrides)
    import_named_in(values, str(path))
    return build(kind_of(values), values, str(path))


def read(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read the plain values of a recipe file, the files it extends, and overrides; raise InputError if unreadable."""
    changes: dict[str, Any] = {}
    for override in overrides:  # by themselves first, to see which keys of the file they exclude
        _override(changes, override)
    values = _without_excluded(_read(packaged(path), (), {}), changes)
    for override in overrides:
        _override(values, override)
    return values


def extended(values: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with keys replaced, as by a recipe that extends them; the keys may be dotted."""
    changes: dict[str, Any] = {}
    for key, value in keys.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        changes = _merge(changes, value)
    return _over(values, changes)


def packaged(name: Path, folder: Path = Path()) -> Path:
    """Return a recipe's file: this name in a folder, or, where there is none, the package's, such as `seed_small`."""
    path = folder / name
    is_name = name.parent in (Path(), Path("recipes")) and name.suffix in ("", ".yaml")
    if not is_name or os.path.exists(path):
        return path
    return {file.stem: file for file in RECIPES.glob("*.yaml")}.get(name.stem, path)


def build(kind: type[AnyRecipe], values: Mapping[str, Any], where: str) -> AnyRecipe:
    """Build a typed recipe from plain values; errors name `where` the values come from."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        method = values.get("method")
        name = str(method.get("name")) if isinstance(method, Mapping) else ""
        keys, found = _paths(kind, METHODS.get(name)), error.errors()
        if name not in METHODS:  # other problems may come of a recipe that is of another kind
            found = [problem for problem in found if problem["loc"] == ("method",)] or found
        problems = "; ".join(dict.fromkeys(_explain(keys, problem) for problem in found))
        raise InputError(f"{where}: {problems}") from None


def import_named_in(values: Mapping[str, Any], where: str) -> None:
    """Import the modules that a recipe's plain values name, to register what they have; raise InputError on failure."""
    modules = values.get("imports")
    for module in modules if isinstance(modules, list) else ():  # what is no list of names, the schema refuses
        if isinstance(module, str) and all(map(str.isidentifier, module.split("."))):
            import_named(module, f"{where}: imports")


def read_one(path: Path) -> dict[str, Any]:
    """Read the plain values of one file, with its key `extends`, if any; raise InputError if it is not a recipe."""
    try:
        text = read_bytes(path, LARGEST).decode()
    except ValueError as error:  # also of a path that no file can have
        raise InputError(f"{path}: cannot read this recipe ({error})") from None
    values = _parse(text, str(path))
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise InputError(f"{path}: a recipe is a mapping of keys to values")
    return values


def _read(path: Path, files_above: tuple[Path, ...], values_by_path: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    """Read a file and those that it extends, each once: `values_by_path` has the values of those that were read."""
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: symbolic links in a circle
        raise InputError(f"{path}: cannot read this recipe ({getattr(error, 'strerror', None) or error})") from None
    if resolved in values_by_path:
        return values_by_path[resolved]
    if resolved in files_above:
        raise InputError(f"{path}: extends itself through {' -> '.join(str(p.name) for p in files_above)}")
    if len(files_above) == DEEPEST:
        raise InputError(f"{path}: is extended through {DEEPEST} recipes, the most that may extend one another")
    values = read_one(path)
    extends = values.pop("extends", None)
    base_values: dict[str, Any] = {}
    for base in extends if isinstance(extends, list) else [] if extends is None else [extends]:
        addition = _read(packaged(Path(str(base)), path.parent), (*files_above, resolved), values_by_path)
        base_values = _over(base_values, addition)
    values_by_path[resolved] = _over(base_values, values)
    return values_by_path[resolved]


def _over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a recipe that extends another: changes merged into it, in place of what they exclude."""
    return _merge(_without_excluded(dict(base), changes), changes)


def _parse(text: str, where: str) -> Any:
    """Parse a YAML text into plain values; raise InputError naming `where` the text comes from."""
    try:
        return yaml.load(text, _Loader)  # a SafeLoader builds only plain values
    except (_TooLargeError, RecursionError) as error:
        raise InputError(f"{where}: {str(error) or 'nested too deeply'}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML does not wrap the errors of its constructors: 2020-13-45, `!!int x`, `!!bool x`
        raise InputError(f"{where}: not YAML: {' '.join(str(error).split())}") from None


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `over` into `base` key by key; a `method` with a different `name` replaces the one in `base`."""
    values = dict(base)
    for key, value in over.items():
        under = values.get(key)
        if (
            isinstance(value, Mapping)
            and isinstance(under, dict)
            and (key != "method" or value.get("name", under.get("name")) == under.get("name"))
        ):
            values[key] = _merge(under, value)
        else:
            values[key] = value
    return values


def _without_excluded(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without the keys that `changes` replaces by setting another one of a pair; see EXCLUSIVE."""
    for pair in EXCLUSIVE:
        for (key, *_), alternatives in (pair, pair[::-1]):
            if _is_set(changes, key.split(".")):
                for alternative in alternatives:
                    values = _without(values, alternative.split("."))
    return values


def _is_set(values: Any, path: Sequence[str]) -> bool:
    """Return whether values have a key, other than null; `*` stands for any name."""
    if not path or not isinstance(values, Mapping):
        return not path and values not in (None, {})
    children = values.values() if path[0] == "*" else [values.get(path[0])]
    return any(_is_set(value, path[1:]) for value in children)


def _without(values: Any, path: Sequence[str]) -> Any:
    """Return a copy of values without a key; `*` stands for any name."""
    if not isinstance(values, Mapping):
        return values
    name, *subpath = path
    copy = {key: _without(value, subpath) if subpath and name in (key, "*") else value for key, value in values.items()}
    return copy if subpath else {key: value for key, value in copy.items() if key != name}


def _override(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InputError(f"{override!r}: an override is written key=value, as optimizer.lr=2e-4")
    value = _parse(text, reprlib.repr(override))
    *parents, leaf = key.split(".")
    section = values
    for depth, parent in enumerate(parents):
        below = {} if section.get(parent) is None else section[parent]
        if not isinstance(below, dict):
            raise InputError(f"{override!r}: {'.'.join(parents[: depth + 1])} is a single value, without keys")
        section[parent] = section = dict(below)  # a copy: an alias in the file stands for the same section elsewhere
    section[leaf] = value


def _explain(keys: Sequence[str], problem: Any) -> str:
    """Describe a pydantic problem as `path: what is wrong`, with the nearest valid name for an unknown key."""
    valid_paths = [_named(path, problem["loc"]) for path in keys]
    unknown_key = problem["type"] == "extra_forbidden"
    path = ""
    for depth, part in enumerate(problem["loc"], start=1):
        longer = f"{path}.{part}" if path else str(part)
        # the location also contains the union member that pydantic tried, which is not a key
        if longer in valid_paths or (unknown_key and depth == len(problem["loc"])):
            path = longer
    if unknown_key:
        hint = did_you_mean(path, (name for name in valid_paths if "*" not in name), cutoff=0.5)
        return f"{path}: unknown key{hint}"
    if problem["type"] == "missing":
        return f"{path}: missing"
    if problem["type"] == "path_type":
        return f"{path}: input should be a path, not {reprlib.repr(problem['input'])}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return message
    return f"{path}: {message[0].lower()}{message[1:]}, not {reprlib.repr(problem['input'])}"


def _named(path: str, loc: tuple[int | str, ...]) -> str:
    """Replace `*` in a path with the name that the user gave, if any."""
    prefix, star, suffix = path.partition("*")
    depth = prefix.count(".")
    matches = star and len(loc) > depth and f"{'.'.join(map(str, loc[:depth]))}." == prefix
    return f"{prefix}{loc[depth]}{suffix}" if matches else path


def _paths(kind: type[BaseModel], method: type[BaseModel] | None, prefix: str = "") -> list[str]:
    """Return every dotted key that a recipe with this method may have; `*` stands for a name that the user chooses."""
    paths = []
    for name, field in kind.model_fields.items():
        paths.append(prefix + name)
        for section in [method] if method and prefix + name == "method" else _sections(field.annotation):
            paths += _paths(section, method, f"{prefix}{name}.")
        for section in _sections(field.annotation, by_name=True):
            paths += [f"{prefix}{name}.*", *_paths(section, method, f"{prefix}{name}.*.")]
    return paths


def _sections(annotation: Any, *, by_name: bool = False) -> list[type[BaseModel]]:
    """Return the sections that an annotation allows; with `by_name`, those under names that the user chooses."""
    if get_origin(annotation) in (Union, types.UnionType, typing.Annotated):
        return [section for part in get_args(annotation) for section in _sections(part, by_name=by_name)]
    if by_name:
        return _sections(get_args(annotation)[1]) if get_origin(annotation) is dict else []
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []
