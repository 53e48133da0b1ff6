"""What a method's targets depend on, as shown in the figures on the methods' pages."""

import io
import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
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
Draw = Callable[[str], dict[str, Wiring]]
LAYERS = {"seed": ["method.decoder_layers=1"], "condenser": ["trunk.num_hidden_layers=2"]}  # as few as can be


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Draw:
    """Run the command of a page, for a small model, once; return what it draws."""
    folder = tmp_path_factory.mktemp("figures")

    @cache
    def run(name: str) -> dict[str, Wiring]:
        command, found = shlex.split(COMMANDS[name]), list[dict[str, Wiring]]()
        command[command.index("--out") + 1] = str(folder / f"{name}.png")
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
            patch.chdir(ROOT)
            patch.setattr(
                "deepsiam.trainer.analysis.wiring.wiring", lambda recipe: found.append(wiring(recipe)) or found[0]
            )
            main([*command[:2], *SMALL, *LAYERS.get(name, []), *command[2:]])
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert " targets; each depends on " in printed.getvalue()
        return found[0]

    return run


def columns(loss: Wiring, array: str) -> np.ndarray:
    """Which targets depend on which tokens of an array."""
    return loss.depends[:, [name == array for name, _ in loss.inputs]]


def test_every_method_has_a_figure_and_the_command_that_draws_it() -> None:
    assert {name.removesuffix("_pretraining") for name in COMMANDS} == set(PRETRAINING)
    assert all((ROOT / "docs" / "figures" / f"{name}.png").is_file() for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_a_page_draws(name: str, drawn: Draw) -> None:
    assert drawn(name)


def test_seed_predicts_from_cls_and_the_last_tokens(drawn: Draw) -> None:
    decoder, mlm = (drawn("seed")[loss] for loss in ("decoder", "mlm"))
    assert set(columns(decoder, "input_ids").sum(1)) == {9, 10}  # all tokens of the target's block, one of two blocks
    assert columns(decoder, "original_ids").sum(1).max() == 2
    assert not columns(mlm, "original_ids").any()


def test_a_decoder_without_cls_does_not_depend_on_the_encoder() -> None:
    recipe = ROOT / "recipes" / "seed_small.yaml"
    decoder = wiring(load(PretrainRecipe, recipe, [*SMALL, "method.max_tokens=10", "method.cls=false"]))["decoder"]
    assert not columns(decoder, "input_ids").any()
    assert columns(decoder, "original_ids").sum(1).max() == 5  # four and position 0, an ordinary token here


def test_a_causal_model_sees_the_tokens_before(drawn: Draw) -> None:
    depends = drawn("clm")["clm"].depends
    assert [np.flatnonzero(row).tolist() for row in depends[:8]] == [list(range(i + 1)) for i in range(8)]


def test_cross_thought_predicts_from_every_sequence(drawn: Draw) -> None:
    assert drawn("cross_thought")["mlm"].depends.all()


def test_an_ict_target_depends_on_all_passages_and_its_own_query(drawn: Draw) -> None:
    ict = drawn("ict")["ict"]
    assert columns(ict, "passage_ids").all()
    assert (columns(ict, "query_ids").sum(0) == 1).all()


def test_skip_thought_decoders_see_no_other_text(drawn: Draw) -> None:
    wirings = drawn("skip_thought")
    assert not columns(wirings["previous"], "next_ids").any()
    assert not columns(wirings["next"], "previous_ids").any()


def test_a_method_that_makes_no_example_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    recipe = ROOT / "recipes" / "seed_small.yaml"
    assert "method.max_tokens" in refused(main, "wiring", recipe, "method.max_tokens=4", "--out", tmp_path / "f")
