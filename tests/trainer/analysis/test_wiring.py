"""What a method's targets depend on, as shown in the figures on the methods' pages."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.analyse import main
from deepsiam.trainer.analysis.wiring import Wiring, wiring
from deepsiam.trainer.training.recipe.schema import PretrainRecipe
from deepsiam.trainer.training.recipe.yaml_file import load
from tests.toy import ROOT

COMMANDS = {  # page name: the command on it that draws its figure
    page.stem: command[1]
    for page in (ROOT / "docs" / "pretraining").glob("*.md")
    if (command := re.search(rf"^ +python -m trainer\.analyse (wiring .*/?{page.stem}\.png)$", page.read_text(), re.M))
}


# every target takes a forward pass for each token
SMALL = [
    "trunk.hidden_size=16",
    "trunk.num_hidden_layers=1",
    "trunk.num_attention_heads=2",
    "trunk.intermediate_size=16",
]
LAYERS = {"seed": ["method.decoder_layers=1"], "condenser": ["trunk.num_hidden_layers=2"]}  # as few as can be


def wired(name: str, *overrides: str) -> dict[str, Wiring]:
    return wiring(load(PretrainRecipe, ROOT / "recipes" / f"{name}_small.yaml", [*SMALL, *overrides]))


def columns(loss: Wiring, array: str) -> np.ndarray:
    """Which targets depend on which tokens of an array."""
    return loss.depends[:, [name == array for name, _ in loss.inputs]]


def test_every_method_has_a_figure_and_the_command_that_draws_it() -> None:
    assert {name.removesuffix("_pretraining") for name in COMMANDS} == set(PRETRAINING)
    assert all((ROOT / "docs" / "figures" / f"{name}.png").is_file() for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_a_page_draws(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    command = shlex.split(COMMANDS[name])
    command[command.index("--out") + 1] = str(tmp_path / "figure.png")
    main([*command[:2], *SMALL, *LAYERS.get(name, []), *command[2:]])
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert " targets; each depends on " in capsys.readouterr().out


def test_seed_predicts_from_cls_and_the_last_tokens() -> None:
    wirings = wired("seed", "method.max_tokens=16", "method.decoder_layers=1", "method.window=2")
    decoder = wirings["decoder"]
    assert set(columns(decoder, "input_ids").sum(1)) == {9, 10}  # all tokens of the target's block, one of two blocks
    assert columns(decoder, "original_ids").sum(1).max() == 2
    assert not columns(wirings["mlm"], "original_ids").any()


def test_a_decoder_without_cls_does_not_depend_on_the_encoder() -> None:
    decoder = wired("seed", "method.max_tokens=16", "method.cls=false")["decoder"]
    assert not columns(decoder, "input_ids").any()
    assert columns(decoder, "original_ids").sum(1).max() == 5  # four and position 0, an ordinary token here


def test_a_causal_model_sees_the_tokens_before() -> None:
    depends = wired("clm", "method.max_tokens=16")["clm"].depends
    assert [np.flatnonzero(row).tolist() for row in depends[:8]] == [list(range(i + 1)) for i in range(8)]


def test_cross_thought_predicts_from_every_sequence() -> None:
    sizes = ("method.sequences=4", "method.sequence_tokens=8", "method.special_tokens=2")
    assert wired("cross_thought", *sizes)["mlm"].depends.all()


def test_an_ict_target_depends_on_all_passages_and_its_own_query() -> None:
    ict = wired("ict", "method.max_tokens=24")["ict"]
    queries = columns(ict, "query_ids")
    assert columns(ict, "passage_ids").all()
    assert (queries.sum(0) == 1).all()


def test_skip_thought_decoders_see_no_other_text() -> None:
    wirings = wired("skip_thought")
    assert not columns(wirings["previous"], "next_ids").any()
    assert not columns(wirings["next"], "previous_ids").any()


def test_a_method_that_makes_no_example_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        main(["wiring", str(ROOT / "recipes" / "seed_small.yaml"), "method.max_tokens=4", "--out", str(tmp_path / "f")])
    assert end.value.code == 2
    assert "method.max_tokens" in capsys.readouterr().err
