"""Arrays on a device. The meta device, whose tensors have no values, stands for a GPU: asking it for one raises."""

import numpy as np
import pytest
import torch

from deepsiam.models.arrays import keep_lengths, lengths_of, on_device
from deepsiam.models.attention import flash
from deepsiam.models.encode import TAKES_RECTANGLES, encode, encode_texts, insert_special_tokens
from deepsiam.models.matching.siamese import Siamese, SiameseConfig
from deepsiam.models.pretraining.cross_thought import CrossThought, CrossThoughtConfig
from tests.models.tiny import trunk
from tests.models.trunks import SETTINGS, trunk_like

MASK = np.arange(12) < np.array([12, 1, 7])[:, None]
ARRAYS = {"ids": np.ones((3, 12), np.int64), "mask": MASK}


def test_a_mask_keeps_its_lengths_on_the_host():
    here, there = on_device(ARRAYS, "cpu"), on_device({**ARRAYS, "own_mask": MASK[None]}, "meta")
    assert here["mask"].tolist() == MASK.tolist()
    assert (there["ids"].device.type, there["mask"].dtype) == ("meta", torch.bool)
    assert lengths_of(here["mask"]).tolist() == lengths_of(there["mask"]).tolist() == [12, 1, 7]
    assert lengths_of(there["own_mask"]).tolist() == [[12, 1, 7]]
    first = keep_lengths(there["mask"][:, :4], lambda lengths: lengths.clip(max=4), there["mask"])
    assert lengths_of(first).tolist() == [4, 1, 4]
    with pytest.raises(NotImplementedError):
        lengths_of(there["mask"][:, :4])


def test_arrays_of_all_kinds_arrive_in_one_copy(monkeypatch):
    arrays = {
        "ids": np.arange(15).reshape(3, 5)[:, ::2],
        "empty_mask": np.zeros((0, 4), bool),
        "labels": np.array([0.5, -1.0], np.float32),
        "bits": np.array([[3]], np.uint8),
        "mask": MASK,
    }
    copies, to = [], torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    monkeypatch.setattr(torch.Tensor, "to", lambda x, *_, **how: copies.append(how) or to(x, "cpu"))
    tensors = on_device(arrays, "cuda")
    assert copies == [{"non_blocking": True}]
    for name, array in arrays.items():
        assert tensors[name].dtype == torch.from_numpy(array[:0]).dtype
        assert np.array_equal(tensors[name].numpy(), array)


@pytest.mark.parametrize("name", SETTINGS)
def test_no_trunk_asks_the_device(name):
    model = trunk_like(name).to("meta").train()
    ids, mask = on_device(ARRAYS, "meta").values()
    if model.config.model_type in TAKES_RECTANGLES:  # of others, texts stay one rectangle
        encode(model, ids, mask).sum().backward()
    states = encode_texts(model, *insert_special_tokens(model, ids, mask, 1))
    assert states.shape == (3, 13, 16)
    states.sum().backward()


@pytest.mark.parametrize("name", ["bert", "modernbert", "llama"])
def test_the_kernel_for_a_gpu_takes_texts_in_one_row(name, monkeypatch):
    monkeypatch.setattr("deepsiam.models.encode.kernel_for", lambda *_: flash)
    model = trunk_like(name).to("meta", torch.bfloat16)
    states = encode(model, *on_device(ARRAYS, "meta").values())
    assert (states.shape, states.dtype) == ((3, 12, 16), torch.bfloat16)
    states.sum().backward()
    assert all(p.grad.shape == p.shape for p in model.parameters() if p.grad is not None)


def test_chunks_and_short_sequences_do_not_ask_the_device():
    arrays = on_device({"ids": np.ones((2, 3, 8), np.int64), "mask": np.ones((2, 3, 8), bool)}, "meta")
    keys = SiameseConfig(name="siamese", document_chunks=3)
    assert Siamese(trunk(), keys).to("meta").embed_documents(**arrays).vectors.shape == (2, 3, 16)
    sizes = {"sequences": 3, "sequence_tokens": 6, "special_tokens": 2}
    method = CrossThought(trunk(), CrossThoughtConfig(name="cross_thought", **sizes)).to("meta")
    hidden = method.encode(arrays["ids"], arrays["mask"], torch.zeros(2, dtype=torch.int64, device="meta"))
    assert hidden.shape == (2, 3, 8, 16)
    assert method.embed_documents(*on_device(ARRAYS, "meta").values()).vectors.shape == (3, 1, 32)
