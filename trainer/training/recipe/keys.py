"""The keys of recipes in words, for `deepsiam keys`: types and defaults of the classes, meanings of the pages.

The tables of keys in docs/ are the one place where meanings are written; an installed package has these pages, too.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from deepsiam.data_prep.common.errors import InputError, did_you_mean
from deepsiam.models.registry import MATCHING, METHODS, PRETRAINING
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe, Recipe

DOCS = Path(__file__).resolve().parents[3] / "docs"
RECIPES: dict[str, type[Recipe]] = {"pre-training": PretrainRecipe, "fine-tuning": FinetuneRecipe}
TYPES = {"integer": "whole number", "string": "text", "boolean": "true | false"}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
LARGEST_BOUND = 1e9  # larger ones only keep computers from overflowing
REQUIRED = "required"
WIDTH = 100


class Key(NamedTuple):
    """A key of a recipe: its dotted name, in which NAME is one that the user chooses; its type and default in words."""

    name: str
    type: str
    default: str
    meaning: str = ""

    def __str__(self) -> str:
        default = self.default if self.default == REQUIRED else f"default {self.default}"
        lines = textwrap.wrap(self.meaning, WIDTH, initial_indent="    ", subsequent_indent="    ")
        return "\n".join([f"{self.name}: {self.type}; {default}", *lines])


def describe(name: str) -> str:
    """Return the keys of a method, of a section, or one key, in lines; raise InputError for an unknown name."""
    if name in METHODS:
        return "\n".join(map(str, keys_of_method(name)))
    kinds: dict[Key, list[str]] = {}
    for kind in RECIPES:
        for key in keys_of_recipe(kind):
            kinds.setdefault(key, []).append(kind)
    lines = [
        f"{key}\n    (of {of[0]} alone)" if len(of) == 1 else str(key)
        for key, of in kinds.items()
        if f"{key.name}.".startswith(f"{name}.")
    ]
    if not lines:
        names = {*METHODS, *sections(), *(key.name for key in kinds)}
        known = f"name a method ({', '.join(METHODS)}) or a section ({', '.join(sections())})"
        raise InputError(f"{name}: no key or method{did_you_mean(name, names) or f': {known}'}")
    return "\n".join(lines)


def sections() -> list[str]:
    """Return the first parts of the keys of recipes, in their order."""
    return list(dict.fromkeys(key.name.partition(".")[0] for kind in RECIPES for key in keys_of_recipe(kind)))


def keys_of_recipe(kind: str) -> list[Key]:
    """Return the keys of a kind of recipe, but for those of `method`."""
    pages = ("recipes.md", "mixes.md") if kind == "fine-tuning" else ("recipes.md",)
    others = {f"Keys of {other}" for other in RECIPES if other != kind}
    meanings = {key: meaning for page in pages for head, key, _, meaning in rows(page) if head not in others}
    return list(_keys(RECIPES[kind], meanings))


def keys_of_method(name: str) -> list[Key]:
    """Return the keys of `method` for a method by its name."""
    pages = [page for page, of in method_pages().items() if name in of]
    meanings = {f"method.{key}": meaning for page in pages for _, key, _, meaning in rows(page) if meaning}
    return list(_keys(METHODS[name], meanings, "method."))


def method_pages() -> dict[str, list[str]]:
    """Return the pages that describe keys of methods, and the methods of each; a method's own page comes last."""
    pages: dict[str, list[str]] = {"choosing.md": list(MATCHING)}
    for room, methods in (("pretraining", PRETRAINING), ("matching", MATCHING)):
        for name in methods.ours:
            file = methods[name].__module__.rpartition(".")[2]
            for page in sorted((DOCS / room).glob(f"{file}*.md"))[:1]:
                pages.setdefault(f"{room}/{page.name}", []).append(name)
    return pages


def rows(page: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield (heading, key, default, meaning) of a page's tables of keys; `.b` after `x.a` is `x.b`."""
    heading, in_table = "", False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        heading = line.lstrip("# ") if line.startswith("#") else heading
        in_table = bool(re.match(r"\| key\b[^|]*\| default \| meaning \|", line)) or (in_table and line.startswith("|"))
        if not in_table:
            continue
        names, default, meaning = line.strip()[1:-1].split("|", 2)
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", meaning).replace("`", "").replace("*", "").strip()
        parent = ""
        for name in re.findall(r"`([\w.]+)`", names):
            key = f"{parent}{name}" if name.startswith(".") else name
            parent = key.rpartition(".")[0]
            yield heading, key, default.strip(), plain


def _keys(config: type[BaseModel], meanings: Mapping[str, str], prefix: str = "") -> Iterator[Key]:
    schema = config.model_json_schema()
    return _of_section(schema, schema.get("$defs", {}), meanings, prefix)


def _of_section(
    section: Any, parts: Any, meanings: Mapping[str, str], prefix: str, of_section: str = ""
) -> Iterator[Key]:
    """Yield the keys of a section's JSON schema in their order, also those of the sections in it."""
    for name, schema in section["properties"].items():
        key = f"{prefix}{name}"
        if key in ("method", "method.name"):
            continue
        choices = list(_choices(schema, parts))
        if not all("properties" in choice for choice in choices):
            default = _value(schema["default"]) if "default" in schema else REQUIRED
            below = (meaning for name, meaning in meanings.items() if name.startswith(f"{key}."))
            meaning = meanings.get(key) or next(below, schema.get("description", of_section))
            yield Key(key, _type(schema, parts), default, meaning)
        said_below = meanings.get(key, "") if all("properties" in choice for choice in choices) else ""
        for choice in choices:
            if "properties" in choice:
                yield from _of_section(choice, parts, meanings, f"{key}.", said_below)
            for named in _choices(choice.get("additionalProperties"), parts):
                if "properties" in named:
                    yield from _of_section(named, parts, meanings, f"{key}.NAME.")


def _choices(schema: Any, parts: Any) -> Iterator[Any]:
    """Yield the alternatives of a JSON schema, with references resolved."""
    if not isinstance(schema, Mapping):
        return
    if "$ref" in schema:
        schema = parts[schema["$ref"].rpartition("/")[2]]
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if not alternatives:
        yield schema
    for alternative in alternatives or ():
        yield from _choices(alternative, parts)


def _type(schema: Any, parts: Any) -> str:
    return " | ".join(dict.fromkeys(_in_words(choice, parts) for choice in _choices(schema, parts)))


def _in_words(schema: Mapping[str, Any], parts: Any) -> str:
    kind = schema.get("type", "any value")
    if "enum" in schema or "const" in schema:
        return " | ".join(map(_value, schema.get("enum", [schema.get("const")])))
    if kind == "array" and "prefixItems" in schema:
        return f"[{', '.join(_type(item, parts) for item in schema['prefixItems'])}]"
    if kind == "array":
        return f"[{_type(schema.get('items', {}), parts)}, ...]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"{{NAME: {_type(values, parts)}}}" if isinstance(values, Mapping) else "{KEY: value}"
    if schema.get("format") == "path":
        return "path"
    limits = (f" {sign} {schema[name]:g}" for name, sign in BOUNDS.items() if schema.get(name, 1e99) < LARGEST_BOUND)
    return TYPES.get(kind, kind) + "".join(limits)


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
