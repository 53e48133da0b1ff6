"""What `deepsiam keys` prints: the keys of the classes, and the tables of the pages, which agree with them."""

import re
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import BaseModel, Field

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.registry import METHODS
from deepsiam.trainer import keys as command
from deepsiam.trainer.training.recipe import keys
from deepsiam.trainer.training.recipe.keys import REQUIRED, Key, describe, keys_of_method, keys_of_recipe, rows
from deepsiam.trainer.training.recipe.yaml_file import _paths

# defaults that a page says in words
IN_WORDS = {"data.cache_bytes", "method.template", "method.labels", "method.passage", "method.loss_weights"}


class Inner(BaseModel):
    size: Annotated[int, Field(ge=1, lt=9)]
    names: list[str] | None = None


class Outer(BaseModel):
    kind: Literal["a", "b"] = "a"
    share: float = Field(0.5, gt=0, description="what users of it write")
    inner: Inner
    more: dict[str, Inner] | None = None
    pair: tuple[int, int] = (1, 2)


def test_a_class_in_words() -> None:
    meanings = {"x.kind": "which", "x.inner": "for all of it", "x.more.NAME.size": "how many"}
    assert list(keys._keys(Outer, meanings, "x.")) == [
        Key("x.kind", "a | b", "a", "which"),
        Key("x.share", "number > 0", "0.5", "what users of it write"),
        Key("x.inner.size", "whole number ≥ 1 < 9", REQUIRED, "for all of it"),
        Key("x.inner.names", "[text, ...] | null", "null", "for all of it"),
        Key("x.more", "{NAME: {KEY: value}} | null", "null", "how many"),
        Key("x.more.NAME.size", "whole number ≥ 1 < 9", REQUIRED, "how many"),
        Key("x.more.NAME.names", "[text, ...] | null", "null", ""),
        Key("x.pair", "[whole number, whole number]", "[1, 2]", ""),
    ]


@pytest.mark.parametrize("kind", keys.RECIPES)
def test_every_key_that_a_recipe_may_have_is_there(kind: str) -> None:
    known = {path.replace("*", "NAME") for path in _paths(keys.RECIPES[kind], None)}
    named = {key.name for key in keys_of_recipe(kind)}
    sections = {name for name in known if any(other.startswith(f"{name}.") for other in named)}
    others = {name for name in known if name.startswith("method")} | {"data.mix.NAME"}
    assert known - sections - others == named - sections


def agrees(name: str, default: str, written: str) -> bool:
    """Whether a default is one of those that a page writes."""
    if name in IN_WORDS or default in (REQUIRED, "null"):
        return True
    if written == "none":
        return default == '""'
    parts = re.findall("`([^`]*)`", written) or [written, written.split(" ")[0]]
    return yaml.safe_load(default) in [yaml.safe_load(part) for part in parts]


def check(made: list[Key], written: dict[str, tuple[str, str]]) -> None:
    """Check keys with the (default, meaning) of the pages: each has a meaning of its own, or another's names it."""
    for key in made:
        parents = [key.name.rsplit(".", n)[0] for n in range(1, key.name.count(".") + 1)]
        leaf = key.name.rpartition(".")[2]
        assert (
            key.meaning or any(name in written for name in parents) or any(leaf in row[1] for row in written.values())
        )
        default = written.get(key.name, ("", ""))[0]
        if default and not re.search(r"\S,\s+\S", default):  # one, not those of several keys
            assert agrees(key.name, key.default, default), (key, default)


@pytest.mark.parametrize("kind", keys.RECIPES)
def test_the_pages_agree_with_a_recipe(kind: str) -> None:
    pages = [row for page in ("recipes.md", "mixes.md") for row in rows(page)]
    others = {f"Keys of {other}" for other in keys.RECIPES if other != kind}
    check(keys_of_recipe(kind), {name: (default, said) for head, name, default, said in pages if head not in others})


def test_each_key_of_the_page_is_a_key() -> None:
    known = {key.name for kind in keys.RECIPES for key in keys_of_recipe(kind)}
    listed = {name for page in ("recipes.md", "mixes.md") for _, name, _, _ in rows(page)}
    assert len(listed) > 60
    assert {name for name in listed - known if not name.endswith(".KEY")} == {"trunk.model_type", "method.name"}


@pytest.mark.parametrize("name", METHODS)
def test_the_pages_agree_with_a_method(name: str) -> None:
    pages = [page for page, of in keys.method_pages().items() if name in of]
    assert pages
    made = keys_of_method(name)
    assert {key.name.split(".")[1] for key in made} == METHODS[name].model_fields.keys() - {"name"}
    check(made, {f"method.{key}": (default, said) for page in pages for _, key, default, said in rows(page)})


def test_a_section_a_key_and_what_is_neither() -> None:
    assert describe("optimizer.lr") == "optimizer.lr: number > 0; required\n    peak learning rate"
    assert describe("checkpoint").count("\ncheckpoint.") == 4
    assert "(of fine-tuning alone)" in describe("checkpoint.keep_best")
    assert "method.window: whole number > 0 | all; default 2\n" in describe("seed")
    with pytest.raises(InputError, match="^optimzer: no key or method; did you mean optimizer\\?$"):
        describe("optimzer")
    with pytest.raises(InputError, match="name a method .seed, .*siamese.* or a section .run, imports, seed, steps"):
        describe("zzzz")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["faults.on_nan"])
    assert capsys.readouterr().out.startswith("faults.on_nan: stop | skip; default stop\n")
    with pytest.raises(SystemExit) as ended:
        command.main(["siamees"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "trainer.keys: siamees: no key or method; did you mean siamese?\n"
