"""Loading a trained model from a run or from one checkpoint, and what is refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.checkpoints import checkpoint
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.runs import STEP, vouch, write_run


@pytest.fixture
def run(tmp_path: Path, shards: Path) -> Path:
    return write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32)


def test_a_run_and_its_checkpoint_give_the_same_model(run: Path) -> None:
    folder = checkpoint.folder(run, STEP)
    for trained in (load_trained(run), load_trained(folder)):
        assert (trained.kind, trained.step, trained.checkpoint) == ("mlm", STEP, folder)
        assert trained.text_tokens == 32
        assert not trained.model.training
        for name, weight in load_file(folder / checkpoint.WEIGHTS).items():
            torch.testing.assert_close(trained.model.get_parameter(name).data, weight, rtol=0, atol=0)


def test_weights_of_another_model_are_refused(run: Path) -> None:
    folder = checkpoint.folder(run, STEP)
    weights = folder / checkpoint.WEIGHTS
    save_file({**load_file(weights), "trunk.extra": torch.zeros(1)}, weights)
    vouch(folder)
    with pytest.raises(InputError, match="do not match: trunk.extra is only in one"):
        load_trained(run)


def test_a_folder_with_the_manifest_of_something_else_is_no_checkpoint(run: Path, toy_collection: Path) -> None:
    with pytest.raises(InputError, match="neither a checkpoint nor a run folder with one, but perhaps .* a collection"):
        load_trained(toy_collection)
    (run / checkpoint.MANIFEST).write_bytes((toy_collection / checkpoint.MANIFEST).read_bytes())
    assert load_trained(run).step == STEP  # a collection was made in the folder of a run


def test_an_absent_folder_is_no_model_of_the_hub_unless_its_name_looks_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for path in (tmp_path / "none", Path("runs/none"), Path("none"), Path("owner/name/none")):
        with pytest.raises(InputError, match=r"none: no such folder$"):
            load_trained(path)
    hub = r"^owner/a-b.c: no such folder; models of the Hub are not downloaded: download it, and name its folder$"
    with pytest.raises(InputError, match=hub):
        load_trained(Path("owner/a-b.c"))


def test_a_damaged_checkpoint_is_refused(run: Path) -> None:
    folder = checkpoint.folder(run, STEP)
    (folder / checkpoint.WEIGHTS).write_bytes(b"")
    for path in (run, folder):
        with pytest.raises(InputError, match=f"{checkpoint.WEIGHTS} is damaged"):
            load_trained(path)
