"""DeepSpeed's files are read as plain values: what could run code, or name a file elsewhere, is refused."""

import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address

from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.training.engine import plain_files
from deepsiam.trainer.training.engine.plain_files import plain_values_only
from tests.trainer.training.engine.hostile_pickles import callers

WITH_CLASSES = {
    "module": OrderedDict(weight=torch.arange(6.0).reshape(2, 3)),
    "loss_scaler": LossScaler(1),
    "dynamic": DynamicLossScaler(2**12, 2.0, 1000, 1.0, 2, False),
    "zero_stage": ZeroStageEnum.weights,
    "slices": [OrderedDict(weight=fragment_address(6, 0))],
    "dtype": torch.bfloat16,
    "shape": torch.Size([2, 3]),
    "ds_config": {"tensorboard": {"output_path": "/somewhere/else"}},
}


def load(file: Path) -> Any:
    with plain_values_only():
        return torch.load(file, map_location="cpu", weights_only=False)  # as DeepSpeed calls it


def test_deepspeeds_own_classes_are_read(tmp_path: Path) -> None:
    torch.save(WITH_CLASSES, tmp_path / "a.pt")
    plain_files.check(tmp_path)
    read = load(tmp_path / "a.pt")
    torch.testing.assert_close(read["module"]["weight"], torch.arange(6.0).reshape(2, 3))
    assert vars(read["dynamic"]) == vars(WITH_CLASSES["dynamic"])
    assert read["slices"] == WITH_CLASSES["slices"]
    assert read["zero_stage"] == ZeroStageEnum.weights
    assert (read["dtype"], read["shape"]) == (torch.bfloat16, torch.Size([2, 3]))


@pytest.mark.parametrize("forced", ["0", "1"])
@pytest.mark.parametrize("kind", list(callers(Path())))
def test_code_is_refused_and_not_run(tmp_path: Path, kind: str, forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", forced)
    (tmp_path / "engine" / "deeper").mkdir(parents=True)
    file = tmp_path / "engine" / "deeper" / "states.pt"
    torch.save({**WITH_CLASSES, "more": [{"deep": callers(tmp_path / "ran")[kind]}]}, file)
    for read in (lambda: plain_files.check(tmp_path / "engine"), lambda: load(file)):
        with pytest.raises(InputError, match=r"deeper/states.pt: .*it asks for \S+, which could run code.*resume only"):
            read()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../../outside", "/etc/outside", "..", "a/b", "a\0b", "a\nb", "x" * 90 + "/"])
@pytest.mark.parametrize("where", ["key", "value", "tuple"])
def test_a_string_that_could_be_a_path_is_refused(tmp_path: Path, name: str, where: str) -> None:
    """The conversion for another number of ranks makes a folder with the name of each parameter."""
    values = {"key": {name: torch.zeros(1)}, "value": {"shared": name}, "tuple": [(name, 1)]}
    torch.save({"param_shapes": values[where]}, tmp_path / "a.pt")
    with pytest.raises(InputError, match="a.pt: .* is not a name") as caught:
        plain_files.check(tmp_path)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_classes_that_others_register_with_torch_are_refused(tmp_path: Path) -> None:
    torch.save(Path(), tmp_path / "a.pt")
    with torch.serialization.safe_globals([type(Path())]), pytest.raises(InputError, match="it asks for pathlib"):
        load(tmp_path / "a.pt")


def test_compressed_and_damaged_files_are_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1000)}, tmp_path / "whole.pt")
    whole = (tmp_path / "whole.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "whole.pt") as plain, zipfile.ZipFile(tmp_path / "bomb.pt", "w", 8) as packed:
        for entry in plain.infolist():
            packed.writestr(entry.filename, plain.read(entry))
    (tmp_path / "legacy.pt").write_bytes(b"")
    torch.save({"a": 1}, tmp_path / "legacy.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "cut.pt").write_bytes(whole[:-200])
    (tmp_path / "empty.pt").write_bytes(b"")
    at = whole.index(b"\x80\x02}")  # the pickle: protocol 2, a dictionary
    (tmp_path / "flipped.pt").write_bytes(whole[:at] + b"\x80\x02\xff" + whole[at + 3 :])
    for name, reason in {"bomb": "compressed", "legacy": "", "cut": "", "empty": "", "flipped": ""}.items():
        with pytest.raises(InputError, match=f"{name}.pt: .*{reason}"):
            load(tmp_path / f"{name}.pt")
    assert len(load(tmp_path / "whole.pt")["weight"]) == 1000


def test_values_that_repeat_one_another_are_walked_once(tmp_path: Path) -> None:
    values: list[object] = ["a"]
    for _ in range(64):
        values = [values, values]
    torch.save(values, tmp_path / "a.pt")
    plain_files.check(tmp_path)


def test_torch_reads_other_files_as_before(tmp_path: Path) -> None:
    before = torch.load, set(torch.serialization.get_safe_globals())
    torch.save(WITH_CLASSES, tmp_path / "a.pt")
    load(tmp_path / "a.pt")
    assert (torch.load, set(torch.serialization.get_safe_globals())) == before
