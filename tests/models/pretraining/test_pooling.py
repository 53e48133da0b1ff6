"""With `pooling: mean` a method trains the mean of a text's states, as sentence-transformers pools them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from deepsiam.models.encode import encode
from deepsiam.models.layers.ranking_losses import in_batch_softmax
from deepsiam.models.registry import PRETRAINING
from tests.models.tiny import MAX_TOKENS, VOCABULARY, documents, perturbed, rngs, tensors, trunk


def model_and_arrays(name: str) -> tuple[Any, dict[str, Tensor]]:
    config = PRETRAINING[name].model_validate({"name": name, "max_tokens": MAX_TOKENS, "pooling": "mean"})
    batcher = config.batcher(VOCABULARY)
    examples = batcher.examples(documents([12, 9, 8, 7], [5, 1, 9], [3, 3], [7, 0, 2, 4]))
    return perturbed(config.model(trunk()).double()), tensors(batcher.micro_batch(examples, rngs(len(examples))))


def means(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    rows = [encode(model.trunk, own[keep][None], keep[keep][None])[0] for own, keep in zip(ids, mask, strict=True)]
    return torch.stack([states.mean(dim=0) for states in rows])


@pytest.mark.parametrize("name", ["seed", "retromae"])
def test_the_decoder_reads_the_mean_of_the_masked_text(name: str) -> None:
    model, arrays = model_and_arrays(name)
    read: list[Tensor] = []
    model.decoder.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    model(**arrays)
    expected = means(model, arrays["input_ids"], arrays["attention_mask"])
    torch.testing.assert_close(read[0], expected, rtol=0, atol=1e-10)
    text = {"ids": arrays["original_ids"], "mask": arrays["attention_mask"]}
    torch.testing.assert_close(
        model.embed_documents(**text).vectors[:, 0], means(model, *text.values()), rtol=0, atol=1e-10
    )


def test_a_sentence_finds_its_passage_by_the_products_of_means() -> None:
    model, arrays = model_and_arrays("ict")
    queries, passages = (means(model, arrays[f"{side}_ids"], arrays[f"{side}_mask"]) for side in ("query", "passage"))
    expected = in_batch_softmax(queries @ passages.T, torch.arange(len(queries)), arrays["allowed"])
    torch.testing.assert_close(model(**arrays)["ict"], expected, rtol=1e-10, atol=0)
