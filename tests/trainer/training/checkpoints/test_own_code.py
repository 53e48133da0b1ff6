"""The user's modules that a checkpoint was trained with: recorded, compared at a resume, never imported by a load."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.registry import import_named
from deepsiam.trainer.training.checkpoints import checkpoint, own_code
from deepsiam.trainer.training.checkpoints.load import recipe_of
from deepsiam.trainer.training.recipe.schema import FinetuneRecipe, PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import build, load
from tests import own_code as modules
from tests import toy

METHOD = "import deepsiam\ndeepsiam.register('method', 'mine', 'deepsiam.models.pretraining.mlm.MlmConfig')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with modules.own_code(tmp_path, modules.EXAMPLES):
        yield tmp_path


def saved(folder: Path, **imports: str) -> Path:
    path = folder / "step"
    path.mkdir()
    (path / checkpoint.IMPORTS).write_text(json.dumps(imports))
    return path


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"method": {"name": "bag_of_words"}}, ["bag_of_words"]),
        ({"optimizer": {"lr": 1, "name": "radam"}, "imports": ["deepsiam_examples.faq"]}, ["faq", "radam"]),
    ],
)
def test_the_modules_of_what_a_run_is_trained_by(changes: dict[str, Any], names: list[str], folder: Path) -> None:
    for name in ("bag_of_words", "radam", "success", "two_way"):  # not because they are imported
        import_named(f"deepsiam_examples.{name}", "the test")
    recipe = load(PretrainRecipe, toy.write_recipe(folder / "a.yaml", **{**toy.SEED_RECIPE, **changes}))
    files = {f"deepsiam_examples.{name}": modules.EXAMPLES / "deepsiam_examples" / f"{name}.py" for name in names}
    assert own_code.modules_of(recipe) == {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()
    }


def test_the_modules_of_losses(folder: Path) -> None:
    import_named("deepsiam_examples.pairwise", "the test")
    for loss, found in (("pairwise", ["deepsiam_examples.pairwise"]), ({"hinge": 1, "softmax": 2}, [])):
        method = {"name": "siamese", "loss": loss, "hard_negatives": 1}
        values = toy.finetune_values(folder, folder, method=method, init_from="x")
        assert [*own_code.modules_of(build(FinetuneRecipe, values, "it"))] == found


def test_a_resume_needs_the_modules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_code.check_continues(folder, {"new": "1" * 64})  # an older checkpoint
    step = saved(folder, mine="0" * 64)
    own_code.check_continues(step, {"mine": "0" * 64, "new": "1" * 64})
    assert capsys.readouterr().out == ""
    own_code.check_continues(step, {"mine": "1" * 64})
    assert capsys.readouterr().out == "mine has changed since step: the run continues with what it is now\n"
    with pytest.raises(InputError, match="step: trained with mine, which is not there now: name it in imports$"):
        own_code.check_continues(step, {})


@pytest.mark.parametrize("content", ["[]", '{"a; rm -rf": "' + "0" * 64 + '"}', '{"a": "x"}', "{"])
def test_a_damaged_record_is_one_line(content: str, folder: Path) -> None:
    step = saved(folder)
    (step / checkpoint.IMPORTS).write_text(content)
    with pytest.raises(InputError, match="imports.json: .*; it is damaged, or was not saved by this code"):
        own_code.check_continues(step, {})


def test_a_load_imports_nothing_that_the_folder_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules.write_module(folder, "my_module", METHOD)
    step = saved(folder, my_module="0" * 64)
    method = {"name": "mine"}
    toy.write_recipe(step / checkpoint.RECIPE, **{**toy.SEED_RECIPE, "imports": ["my_module"], "method": method})
    with pytest.raises(InputError) as refused:
        recipe_of(step)
    assert str(refused.value).endswith(
        "not 'mine'; for one of your own, name its module in imports; it was trained with my_module, which nothing "
        "imports unasked: install the package, or set DEEPSIAM_IMPORTS=my_module"
    )
    assert "my_module" not in sys.modules
    monkeypatch.setenv("DEEPSIAM_IMPORTS", "my_module")
    with pytest.raises(InputError, match="recipe.yaml: method.name: input should be 'mlm', not 'mine'$"):
        recipe_of(step)  # its class has another name: it was found
