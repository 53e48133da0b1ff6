"""Plain references: the same mathematics for one sequence, one position, one head, one token at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepsiam.models.interface import MicroBatch
from deepsiam.models.layers.lm_head import LmHead
from deepsiam.models.layers.transformer import Attention, TransformerLayer
from deepsiam.models.matching.dual_encoder import IN_BATCH
from deepsiam.models.pretraining.seed_decoder import LocalSelfAttention, Variant, WeakDecoder, Window
from tests.models.tiny import tensors


def attend(query: Tensor, key: Tensor, value: Tensor, heads: int, seen: Sequence[Sequence[int]]) -> Tensor:
    """Softmax attention of queries [T, H] to keys and values [S, H]; `seen[t]` are the slots that query t sees."""
    d = query.shape[1] // heads
    rows = []
    for t, slots in enumerate(seen):
        parts = []
        for h in range(heads):
            part = slice(h * d, (h + 1) * d)
            weights = torch.stack([query[t, part] @ key[j, part] / d**0.5 for j in slots]).softmax(0)
            parts.append(sum(w * value[j, part] for w, j in zip(weights, slots, strict=True)))
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def attention(layer: Attention, x: Tensor, context: Tensor, seen: Sequence[Sequence[int]]) -> Tensor:
    """Queries x [T, H] attend to a context [S, H]."""
    key, value = layer.key_value(context).split(x.shape[1], dim=-1)
    return layer.out(attend(layer.query(x), key, value, layer.heads, seen))


def transformer_layer(layer: TransformerLayer, x: Tensor, context: Tensor, seen: Sequence[Sequence[int]]) -> Tensor:
    """A post-LayerNorm layer without dropout."""
    x = layer.attention_norm(x + attention(layer.attention, x, context, seen))
    return layer.feed_forward_norm(x + layer.feed_forward(x))


def local_attention(layer: LocalSelfAttention, x: Tensor, window: Window) -> Tensor:
    """Self-attention of one sequence x [T, H] to the window and slot 0."""
    query, key, value = layer.qkv(x).split(x.shape[1], dim=-1)
    seen = [[j for j in range(t + 1) if window == "all" or j == 0 or j > t - window] for t in range(len(x))]
    return layer.out(attend(query, key, value, layer.heads, seen))


def weak_decoder(
    decoder: WeakDecoder, variant: Variant, window: Window, cls: Tensor | None, ids: Tensor, embedding: Tensor
) -> Tensor:
    """SEED's decoder as the paper and the released code describe it; it never reads h_0 where `cls` is None."""
    outputs = []
    for h_0, row in zip([None] * len(ids) if cls is None else cls, ids, strict=True):
        words = [embedding[i] for i in row]
        if variant == "paper" and h_0 is not None:
            words[0] = h_0
        x = decoder.norm(torch.stack([w + decoder.positions.weight[t] for t, w in enumerate(words)]))
        for layer in decoder.layers:
            if variant == "paper":  # post-LN
                x = layer.attention_norm(x + local_attention(layer.attention, x, window))
                x = layer.feed_forward_norm(x + layer.feed_forward(x))
            else:  # pre-LN, and W_o W_v h_0 added everywhere
                x = x + local_attention(layer.attention, layer.attention_norm(x), window)
                if h_0 is not None:
                    x = x + layer.cross_attention.out(layer.cross_attention.value(h_0))
                x = x + layer.feed_forward(layer.feed_forward_norm(x))
        outputs.append(decoder.final_norm(x))
    return torch.stack(outputs)


def lm_loss(head: LmHead, states: Tensor, embedding: Tensor, targets: Sequence[int]) -> Tensor:
    """Sum of -log p(target) over full logits, states [n, H]."""
    logits = head.norm(head.activation(head.dense(states))) @ embedding.T + head.bias
    log_p = logits.log_softmax(-1)
    return -sum((log_p[i, target] for i, target in enumerate(targets)), log_p.sum() * 0)


def states_alone(trunk: nn.Module, arrays: Mapping[str, Tensor], side: str) -> list[Tensor]:
    """The last states of each text of a side, by itself and without padding, each [T, H]."""
    texts = zip(arrays[f"{side}_ids"], arrays[f"{side}_mask"], strict=True)
    return [trunk(input_ids=ids[mask][None]).last_hidden_state[0] for ids, mask in texts]


def backbone(trunk: nn.Module, ids: np.ndarray) -> list[Tensor]:
    """The embeddings of one sequence in a stock BERT and the states after each of its layers, each [T, H]."""
    states = [trunk.embeddings(input_ids=torch.from_numpy(ids)[None])]
    for layer in trunk.encoder.layer:
        output = layer(states[-1])
        states.append(output[0] if isinstance(output, tuple) else output)
    return [state[0] for state in states]


def same_gradients(
    of: nn.Module | Sequence[Tensor], ours: Tensor, theirs: Tensor, rtol: float = 0.0, atol: float = 1e-10
) -> None:
    """Assert that two losses have the same gradient at all of a model's parameters, or at other tensors; not all 0."""
    named = of.named_parameters() if isinstance(of, nn.Module) else enumerate(of)
    names, leaves = zip(*((name, leaf) for name, leaf in named if leaf.requires_grad), strict=True)
    both = [torch.autograd.grad(loss, leaves, allow_unused=True, retain_graph=True) for loss in (ours, theirs)]
    assert theirs == 0 or any(gradient is not None and gradient.any() for gradient in both[1])
    for name, leaf, *pair in zip(names, leaves, *both, strict=True):
        mine, other = (torch.zeros_like(leaf) if g is None else g for g in pair)
        torch.testing.assert_close(mine, other, rtol=rtol, atol=atol, msg=str(name))


def same_losses_and_gradients(model: nn.Module, batch: MicroBatch, expected: Mapping[str, Tensor]) -> None:
    """Assert that a model's losses of a micro-batch, and the gradients of their sum, are the expected ones."""
    ours = model(**tensors(batch))
    assert batch.counts.keys() == expected.keys()
    torch.testing.assert_close(ours, dict(expected), rtol=1e-10, atol=0)
    same_gradients(model, sum(ours.values()), sum(expected.values()))


def softmax(scores: Tensor, _: Tensor) -> Tensor:
    """-log p of the first candidate of a query, whose others follow it."""
    return -scores.log_softmax(0)[0]


def hinge(scores: Tensor, _: Tensor) -> Tensor:
    """Mean of how far negatives are within a margin of 1."""
    return sum(F.relu(1 - (scores[0] - score)) for score in scores[1:]) / max(1, len(scores) - 1)


def binary(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum of -log p of each label."""
    return sum(F.softplus(-score if label > 0 else score) for score, label in zip(scores, labels, strict=True))


def kl(scores: Tensor, teacher: Tensor) -> Tensor:
    """Divergence from the teacher's distribution."""
    return (teacher.softmax(0) * (teacher.log_softmax(0) - scores.log_softmax(0))).sum()


def margin_mse(scores: Tensor, teacher: Tensor) -> Tensor:
    """Mean square of the difference between the margins of a negative."""
    gaps = [(scores[0] - scores[j]) - (teacher[0] - teacher[j]) for j in range(1, len(scores))]
    return sum(gap**2 for gap in gaps) / len(gaps)


def rank_net(scores: Tensor, teacher: Tensor) -> Tensor:
    """Sum of -log p of the order of each pair that the teacher orders, by the sum of its ranks."""
    ranks = [1 + sum(other > label for other in teacher.tolist()) for label in teacher.tolist()]
    pairs = [(a, b) for a in range(len(scores)) for b in range(len(scores)) if teacher[a] > teacher[b]]
    return sum((F.softplus(scores[b] - scores[a]) / (ranks[a] + ranks[b]) for a, b in pairs), scores.sum() * 0)


def classes(logits: Tensor, labels: Tensor) -> Tensor:
    """-log p of the class of a single pair, logits [1, C]."""
    return -logits[0].log_softmax(0)[int(labels[0])]


LOSSES = {loss.__name__: loss for loss in (softmax, hinge, binary, kl, margin_mse, rank_net, classes)}


def same_scores_loss_and_gradients(model: Any, arrays: Mapping[str, Tensor], scores: Tensor) -> Tensor:
    """Compare with scores [Q, D], and with -log p of each query's document among those allowed, or its own ones."""
    kept = {"kept": arrays["document_kept"]} if "document_kept" in arrays else {}
    queries = model.embed_queries(arrays["query_ids"], arrays["query_mask"])
    documents = model.embed_documents(arrays["document_ids"], arrays["document_mask"], **kept)
    torch.testing.assert_close(model.score(queries, documents), scores, rtol=0, atol=1e-12)
    expected = ranking_losses(["softmax"], arrays, scores / model.keys.temperature)["softmax"]
    loss: Tensor = model(**arrays)["softmax"]
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    same_gradients(model, loss, expected)
    return loss


def ranking_losses(names: Iterable[str], arrays: Mapping[str, Tensor], rows: Sequence[Tensor]) -> dict[str, Tensor]:
    """Losses by loops over the queries; `rows[i]` are query i's scores of what its candidates are the columns of."""
    losses = dict.fromkeys(names, torch.zeros((), dtype=torch.float64))
    for i, (row, candidates) in enumerate(zip(rows, arrays["candidates"].tolist(), strict=True)):
        own = [column for column in candidates if column >= 0]
        for name in losses:
            columns = own
            if "allowed" in arrays and name in IN_BATCH:
                allowed = arrays["allowed"][i].nonzero()[:, 0].tolist()
                columns = [own[0], *(column for column in allowed if column != own[0])]
            taught = arrays["labels" if name == "binary" or "scores" not in arrays else "scores"][i].double()
            losses[name] = losses[name] + LOSSES[name](row[columns], taught[: len(own)])
    return losses
