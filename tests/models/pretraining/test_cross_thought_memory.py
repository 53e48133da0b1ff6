import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

from deepsiam.models.build_trunk import build_trunk
from deepsiam.models.layer_modes import recompute_layers
from deepsiam.models.pretraining.cross_thought import CrossThought, CrossThoughtConfig


def saved_bytes(monkeypatch, checkpointing):
    """Count the bytes that autograd saves in a forward pass at BERT-base, 500 x 64 words in fp16.

    On the meta device nothing is computed; attention and dropout save what their fused CUDA kernels save.
    """

    class FusedAttention(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value):
            batch, heads, length, width = query.shape
            out = query.new_empty(batch, length, heads, width).transpose(1, 2)
            ctx.save_for_backward(query, key, value, out, out.new_empty(out.shape[:-1], dtype=torch.float32))
            return out

    config = {"model_type": "bert", "vocab_size": 32768 + 4, "max_position_embeddings": 569}
    with torch.device("meta"):
        model = CrossThought(build_trunk(config), CrossThoughtConfig(name="cross_thought")).half().train()
        if checkpointing:
            recompute_layers(model)
        arrays = {
            "input_ids": torch.empty(1, 500, 69, dtype=torch.int64),
            "attention_mask": torch.empty(1, 500, 69, dtype=torch.bool),
            "offsets": torch.empty(1, dtype=torch.int64),
            "mlm_positions": torch.empty(4801, dtype=torch.int64),
            "mlm_targets": torch.empty(4801, dtype=torch.int64),
        }
    parameters = {p.untyped_storage()._cdata for p in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage  # kept alive, so that no other storage gets its address
        return tensor

    def dropped(x, p, training, inplace=False):
        return torch.native_dropout(x, p, training)[0]

    with monkeypatch.context() as patched, saved_tensors_hooks(keep, lambda tensor: tensor):
        patched.setattr(F, "scaled_dot_product_attention", lambda q, k, v, *_, **__: FusedAttention.apply(q, k, v))
        patched.setattr(F, "dropout", dropped)
        model(**arrays)
    return sum(storage.nbytes() for address, storage in kept.items() if address not in parameters)


def test_activations_of_a_bert_base_sample_have_the_documented_size(monkeypatch):
    """docs/pretraining/cross_thought.md: 12 GB, or 1 GB with checkpointing."""
    assert saved_bytes(monkeypatch, False) == pytest.approx(12.0e9, rel=0.02)
    assert saved_bytes(monkeypatch, True) == pytest.approx(0.95e9, rel=0.05)
