"""The papers' figures of pre-training runs: held-out micro-batches, SEED's cosines, Cross-Thought's case study."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.tokenizers import tokenizer as tokenizers
from deepsiam.models.pretraining.seed import Seed
from deepsiam.trainer.analysis.cross_thought import SHOWN, case_study
from deepsiam.trainer.analysis.held_out import held_out_arrays
from deepsiam.trainer.analysis.seed import cosines
from deepsiam.trainer.training.checkpoints.load import load_trained
from deepsiam.trainer.training.data.shard_source import ShardSource
from deepsiam.trainer.training.recipe.build import build_batcher
from tests.trainer.runs import write_run


def test_examples_of_every_chunk_come_in_batches_always_with_the_same_masks(tmp_path: Path, shards: Path) -> None:
    trained = load_trained(write_run(tmp_path / "run", shards / "tokenizer.json", name="mlm", max_tokens=32))
    batches = list(held_out_arrays(trained, shards, 10, 4))
    assert [len(arrays["input_ids"]) for arrays in batches] == [4, 4, 2]
    for arrays, again in zip(batches, held_out_arrays(trained, shards, 10, 4), strict=True):
        assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    source = ShardSource(Manifest.load(shards))
    assert max(source.chunks) > 1
    chunks = [(shard, chunk) for shard, number in enumerate(source.chunks) for chunk in range(number)]
    documents = [document for place in chunks for document in source.read(*place)]
    examples = build_batcher(trained.recipe.method, trained.tokenizer).examples(documents)
    (batch,) = held_out_arrays(trained, shards, 10**6, 10**6)
    assert len(batch["input_ids"]) == len(examples) - 1  # the last one may be short


def test_shards_of_another_tokenizer_are_refused(tmp_path: Path, shards: Path) -> None:
    other = tokenizers.train(["another set of words"] * 3, 80, tmp_path / "tokenizer.json")
    trained = load_trained(write_run(tmp_path / "run", other.path, name="mlm", max_tokens=32))
    with pytest.raises(InputError, match="was tokenised with another tokenizer than .*name shards of the run's"):
        next(held_out_arrays(trained, shards, 1, 1))


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


TOKENIZER = SimpleNamespace(vocab_size=100, decode=lambda ids: " ".join(map(str, ids)))
TRAINED: Any = SimpleNamespace(tokenizer=TOKENIZER)
IDS = np.arange(16).reshape(8, 2) + 10
IDS[:, 0] = 200  # a special token of the method
MASK = np.ones((8, 2), dtype=bool)
MASK[7] = False  # padding
ATTENTION = np.full((8, 8), 1 / 8)
ATTENTION[3] = [0.1, 0.05, 0.3, 0.2, 0.15, 0.12, 0.08, 0]


def test_the_sequence_of_least_even_attention_is_chosen_and_the_most_attended_come_first() -> None:
    first, *others = case_study(TRAINED, IDS, MASK, ATTENTION, None)
    assert first == "sequence 3 of 7: 17"
    assert [line.split()[:2] for line in others[:2]] == [["0.300", "2:"], ["0.200", "3"]]
    assert "(itself)" in others[1]
    assert len(others) == SHOWN + 1


def test_a_sequence_of_padding_is_refused() -> None:
    assert next(case_study(TRAINED, IDS, MASK, ATTENTION, 6)).startswith("sequence 6 of 7")
    with pytest.raises(InputError, match="--sequence: 7 is not one of the 7 sequences, numbered from 0"):
        next(case_study(TRAINED, IDS, MASK, ATTENTION, 7))
