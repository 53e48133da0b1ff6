"""What a method's targets hang on, as the figures on the methods' pages show it."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.toy import ROOT
from trainer.analyse import main
from trainer.recipe import PretrainRecipe, load
from trainer.wiring import Wiring, wiring

COMMANDS = {  # of each method's page, the one that draws its figure
    page.stem: found[1]
    for page in (ROOT / "docs").glob("*.md")
    if (found := re.search(rf"^ +python -m trainer\.analyse (wiring .*/?{page.stem}\.png)$", page.read_text(), re.M))
}
METHODS = {path.name.removesuffix("_small.yaml") for path in (ROOT / "recipes").glob("*_small.yaml")}


def wired(name: str, *overrides: str) -> dict[str, Wiring]:
    return wiring(load(PretrainRecipe, ROOT / "recipes" / f"{name}_small.yaml", overrides))


def of(one: Wiring, array: str) -> np.ndarray:
    """The columns of an array."""
    return one.hangs[:, [name == array for name, _ in one.inputs]]


def test_every_method_has_a_figure_and_the_command_that_draws_it() -> None:
    assert {name.removesuffix("_pretraining") for name in COMMANDS} == METHODS
    assert all((ROOT / "docs" / "figures" / f"{name}.png").is_file() for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_a_page_draws(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    command = shlex.split(COMMANDS[name])
    command[command.index("--out") + 1] = str(tmp_path / "figure.png")
    main(command)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert " targets, each hanging on " in capsys.readouterr().out


def test_seed_tells_its_targets_from_cls_and_the_last_tokens() -> None:
    found = wired("seed", "method.max_tokens=16", "method.decoder_layers=1", "method.window=2")
    decoder = found["decoder"]
    told = of(decoder, "input_ids").sum(1)
    assert set(told) == {9, 10}  # all of the target's own block of the two
    assert of(decoder, "original_ids").sum(1).max() == 2
    assert not of(found["mlm"], "original_ids").any()


def test_a_decoder_without_cls_hears_nothing_of_the_encoder() -> None:
    decoder = wired("seed", "method.max_tokens=16", "method.cls=false")["decoder"]
    assert not of(decoder, "input_ids").any()
    assert of(decoder, "original_ids").sum(1).max() == 5  # slot 0 is a token like any other: four and it


def test_a_causal_model_sees_what_stands_before() -> None:
    hangs = wired("clm", "method.max_tokens=16")["clm"].hangs
    assert [np.flatnonzero(row).tolist() for row in hangs[:8]] == [list(range(i + 1)) for i in range(8)]


def test_every_sequence_of_cross_thought_is_heard() -> None:
    sizes = ("method.sequences=4", "method.sequence_tokens=8", "method.special_tokens=2")
    assert wired("cross_thought", *sizes)["mlm"].hangs.all()


def test_a_query_is_told_from_all_passages_and_no_other_query() -> None:
    found = wired("ict", "method.max_tokens=24")["ict"]
    queries = of(found, "query_ids")
    assert of(found, "passage_ids").all()
    assert (queries.sum(0) == 1).all()


def test_skip_thought_decoders_see_no_other_text() -> None:
    found = wired("skip_thought")
    assert not of(found["previous"], "next_ids").any()
    assert not of(found["next"], "previous_ids").any()


def test_a_method_that_makes_no_example_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        main(["wiring", str(ROOT / "recipes" / "seed_small.yaml"), "method.max_tokens=4", "--out", str(tmp_path / "f")])
    assert end.value.code == 2
    assert "method.max_tokens" in capsys.readouterr().err
