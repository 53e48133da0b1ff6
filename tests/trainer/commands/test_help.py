"""The help of commands ends with an example that the command takes, and names a page; of ranks one speaks."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main as data_prep
from deepsiam.data_prep.collections.registry import FORMATS
from deepsiam.trainer.ranking import choices
from deepsiam.trainer.ranking.indexes.registry import KINDS
from tests import toy

TRAINED = ("finetune", "pretrain")
MODULES = (*TRAINED, "ask", "evaluate", "mine", "index", "search", "export")


def run(module: str, *words: str) -> int:
    """Run a command whose words end it; return its exit code."""
    command = importlib.import_module(f"deepsiam.trainer.{module}")
    with pytest.raises(SystemExit) as ended:
        command.main([*words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def end_of_help(printed: str) -> tuple[list[str], str]:
    """The words of the example, and the page."""
    found = re.search(r"\n\nexample:\n  (.+)\n\nmore: (\S+)\n$", printed)
    assert found
    return shlex.split(found[1]), found[2]


@pytest.mark.parametrize("module", MODULES)
def test_help_ends_with_an_example_and_a_page(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(module, "--help") == 0
    printed = capsys.readouterr().out
    words, page = end_of_help(printed)
    assert words[:2] == ["deepsiam", module]
    assert f"trainer.{module} " in Path(page).read_text()  # wherever the package is installed
    for word in words:
        if word.startswith("--"):
            assert word in printed.partition("example:")[0]
        if word.startswith("recipes/"):
            assert (toy.ROOT / word).is_file()


@pytest.mark.parametrize("module", [*TRAINED, "ask", "evaluate", "mine", "index", "search"])
@pytest.mark.parametrize("typed", ["--helt", "--help", "--version"])
def test_of_several_ranks_the_first_alone_speaks(
    module: str, typed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[float]()
    monkeypatch.setattr("time.sleep", waited.append)
    monkeypatch.setenv("RANK", "1")
    code = run(module, typed)
    silent = capsys.readouterr()
    monkeypatch.setenv("RANK", "0")
    assert run(module, typed) == code
    spoken = capsys.readouterr()
    assert (silent.out, silent.err) == ("", "")
    assert (spoken.out + spoken.err).strip()
    assert len(waited) == (code != 0)  # until the launcher, which rank 0 ends, ends this rank


def test_the_choices_of_an_index_are_those_of_all_kinds() -> None:
    assert set(choices.DTYPES) == {name for kind in KINDS.values() for name in kind.WRITERS}
    assert set(choices.APPROXIMATIONS) == {name for kind in KINDS.values() for name in kind.APPROXIMATIONS}


def test_the_help_of_collection(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        data_prep(["collection", "--help"])
    printed = capsys.readouterr().out
    words, page = end_of_help(printed)
    assert words[:3] == ["deepsiam", "prepare", "collection"]
    assert words[3] in FORMATS
    assert "data_prep collection FORMAT " in Path(page).read_text()
    assert "Make a collection from labelled texts" in printed
