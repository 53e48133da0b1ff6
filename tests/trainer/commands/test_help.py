"""The help of every command: it ends with an example that the command takes, and a page that exists."""

import importlib
import re
import shlex

import pytest

from deepsiam.data_prep.__main__ import main as data_prep
from deepsiam.data_prep.collections.registry import FORMATS
from tests import toy

TRAINED = ("finetune", "pretrain")
MODULES = (*TRAINED, "evaluate", "mine", "index", "search", "export")


def run(module: str, *words: str) -> int:
    """Run a command whose words end it; return its exit code."""
    command = importlib.import_module(f"deepsiam.trainer.{module}")
    with pytest.raises(SystemExit) as ended:
        command.main([*words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def end_of_help(printed: str) -> tuple[list[str], str]:
    """The words of the example, and the page."""
    found = re.search(r"\n\nexample:\n  (.+)\n\nmore: (docs/\S+)\n$", printed)
    assert found
    return shlex.split(found[1]), found[2]


@pytest.mark.parametrize("module", MODULES)
def test_help_ends_with_an_example_and_a_page(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(module, "--help") == 0
    printed = capsys.readouterr().out
    words, page = end_of_help(printed)
    assert f"trainer.{module}" in words
    assert f"trainer.{module} " in (toy.ROOT / page).read_text()
    for word in words:
        if word.startswith("--") and word != "--module":
            assert word in printed.partition("example:")[0]
        if word.startswith("recipes/"):
            assert (toy.ROOT / word).is_file()


@pytest.mark.parametrize("module", TRAINED)
def test_only_the_recipe_is_required(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(module) == 2
    required = "the following arguments are required: recipe"
    assert capsys.readouterr().err == f"trainer.{module}: {required}; see trainer.{module} --help\n"


def test_the_help_of_collection(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        data_prep(["collection", "--help"])
    printed = capsys.readouterr().out
    words, page = end_of_help(printed)
    assert words[:4] == ["python", "-m", "data_prep", "collection"]
    assert words[4] in FORMATS
    assert "data_prep collection FORMAT " in (toy.ROOT / page).read_text()
    assert "Make a collection from labelled texts" in printed
