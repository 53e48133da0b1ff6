"""The user's modules that a checkpoint was trained with: recorded, compared at a resume, never imported by a load."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.registry import import_named, imported
from deepsiam.trainer.training.checkpoints import checkpoint, own_code
from deepsiam.trainer.training.checkpoints.load import recipe_of
from tests import own_code as modules
from tests import toy


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with modules.own_code(tmp_path):
        modules.write_module(tmp_path, "my_module", "")
        yield tmp_path


def save(folder: Path) -> Path:
    saved = folder / "step"
    saved.mkdir()
    for name, content in own_code.sidecar_files().items():
        (saved / name).write_bytes(content)
    return saved


def test_a_run_of_ours_records_nothing(folder: Path) -> None:
    assert own_code.sidecar_files() == {}
    own_code.check_continues(save(folder))


def test_a_resume_needs_the_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import_named("my_module", "here")
    saved = save(folder)
    assert json.loads((saved / checkpoint.IMPORTS).read_text()) == imported()
    own_code.check_continues(saved)
    assert capsys.readouterr().out == ""
    (folder / "my_module.py").write_text("X = 1\n")
    own_code.check_continues(saved)
    assert capsys.readouterr().out == "my_module has changed since step: the run continues with what it is now\n"
    (saved / checkpoint.IMPORTS).write_text(json.dumps({"gone": "0" * 64}))
    with pytest.raises(InputError, match="step: trained with gone, which is not imported: name it in the recipe's imp"):
        own_code.check_continues(saved)


@pytest.mark.parametrize("content", ["[]", '{"a; rm -rf": "' + "0" * 64 + '"}', '{"a": "x"}', "{"])
def test_a_damaged_record_is_one_line(content: str, folder: Path) -> None:
    saved = save(folder)
    (saved / checkpoint.IMPORTS).write_text(content)
    with pytest.raises(InputError, match="imports.json: .*; it is damaged, or was not saved by this code"):
        own_code.check_continues(saved)


def test_a_load_imports_nothing_that_the_folder_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registers = "import deepsiam\ndeepsiam.register('method', 'mine', 'deepsiam.models.pretraining.mlm.MlmConfig')\n"
    modules.write_module(folder, "my_module", registers)
    saved = save(folder)
    method = {"name": "mine"}
    toy.write_recipe(saved / checkpoint.RECIPE, **{**toy.SEED_RECIPE, "imports": ["my_module"], "method": method})
    (saved / checkpoint.IMPORTS).write_text(json.dumps({"my_module": "0" * 64}))
    with pytest.raises(InputError) as refused:
        recipe_of(saved)
    assert str(refused.value).endswith(
        "not 'mine'; for one of your own, name its module in imports; it was trained with my_module, which nothing "
        "imports unasked: install the package, or set DEEPSIAM_IMPORTS=my_module"
    )
    assert "my_module" not in sys.modules
    monkeypatch.setenv("DEEPSIAM_IMPORTS", "my_module")
    with pytest.raises(InputError, match="recipe.yaml: method.name: input should be 'mlm', not 'mine'$"):
        recipe_of(saved)  # its class has another name: it was found
