"""The cosines of SEED's decoder states with [CLS], against a plain loop."""

from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.models.pretraining.seed import Seed
from deepsiam.trainer.analysis.seed import cosines
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.runs import write_run


def test_cosines_are_those_of_a_plain_loop(tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "seed", shards / "tokenizer.json", name="seed", max_tokens=32, decoder_layers=1)
    trained = load_trained(run)
    model = trained.model
    assert isinstance(model, Seed)
    calls: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    decode = model.decoder.forward

    def record(cls: torch.Tensor, ids: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        states = decode(cls, ids, *rest)
        calls.append((cls, ids, states))
        return states

    monkeypatch.setattr(model.decoder, "forward", record)
    means = cosines(trained, shards)
    by_position: dict[int, list[float]] = {}
    for cls, ids, states in calls:
        for row in range(len(ids)):
            for position in range(1, int((ids[row] != trained.tokenizer.pad).sum()) - 1):  # the last has no next token
                a, b = states[row, position].double(), cls[row].double()
                by_position.setdefault(position, []).append(float(a @ b / a.norm() / b.norm()))
    assert list(by_position) == list(range(1, max(by_position) + 1))
    np.testing.assert_allclose(means, [np.mean(values) for values in by_position.values()], atol=1e-6)


@pytest.mark.parametrize("method", [{"name": "seed", "cls": False}, {"name": "mlm"}])
def test_a_run_whose_decoder_reads_no_cls_is_refused(tmp_path: Path, shards: Path, method: dict[str, object]) -> None:
    run = write_run(tmp_path / "run", shards / "tokenizer.json", max_tokens=32, **method)
    with pytest.raises(InputError, match=r"not a SEED run whose decoder reads \[CLS\]"):
        cosines(load_trained(run), shards)
