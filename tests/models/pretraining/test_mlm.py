import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM

from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.mlm import Mlm, MlmBatcher, MlmConfig
from tests.models.tiny import MAX_TOKENS, VOCABULARY, batch_of, blocks, documents, rngs, tensors, trunk

CONFIG = MlmConfig(name="mlm", max_tokens=MAX_TOKENS)


def test_the_loss_is_that_of_hugging_face_bert():
    model = Mlm(trunk()).double()
    torch.nn.init.normal_(model.lm_head.bias)
    reference = BertForMaskedLM(model.trunk.config).double().eval()
    reference.bert.load_state_dict(model.trunk.state_dict())
    head = reference.cls.predictions
    head.transform.dense.load_state_dict(model.lm_head.dense.state_dict())
    head.transform.LayerNorm.load_state_dict(model.lm_head.norm.state_dict())
    with torch.no_grad():
        head.decoder.bias.copy_(model.lm_head.bias)
    batch = batch_of(CONFIG, blocks([20], [5, 3], [1], rng=3))
    arrays = tensors(batch)
    logits = reference(input_ids=arrays["input_ids"], attention_mask=arrays["attention_mask"]).logits
    targets = arrays["mlm_targets"]
    rows = logits.flatten(0, 1)[arrays["mlm_positions"]]
    expected = torch.nn.functional.cross_entropy(rows, targets, ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(model(**arrays)["mlm"], expected, rtol=1e-10, atol=0)
    assert batch.counts == {"mlm": int((targets != IGNORED).sum())}
    assert batch.counts["mlm"] > 0


def test_shapes_depend_only_on_batch_and_width():
    shapes = [
        {name: array.shape for name, array in batch_of(CONFIG, blocks(*lengths)).arrays.items()}
        for lengths in ([[14], [14]], [[9], [1]], [[10], [14]])
    ]
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.parametrize("packing", ["complete", "complete_doc"])
def test_a_micro_batch_is_not_from_one_long_document(packing):
    """In the order of the text, 16 consecutive blocks would be from one or two of these books."""
    batcher = MlmBatcher(MlmConfig(name="mlm", max_tokens=MAX_TOKENS, blocks=packing), VOCABULARY)
    books = documents(*[[9] * 80] * 10)
    origins = batcher.origins(books)
    assert sorted({number for block in origins for number in block}) == list(range(10))
    for start in range(0, len(origins) - 15, 16):
        assert len({number for block in origins[start : start + 16] for number in block}) >= 5
    framing = {VOCABULARY.cls, VOCABULARY.sep}
    for block, numbers in zip(batcher.examples(books), origins, strict=True):
        assert set(block.tolist()) <= framing | {token for number in numbers for s in books[number] for token in s}


def test_the_share_of_masked_tokens_is_the_recipes() -> None:
    examples = [np.full(62, 10) for _ in range(50)]
    batcher = MlmBatcher(MlmConfig(name="mlm", max_tokens=64), VOCABULARY, mask=0.4)
    assert batcher.micro_batch(examples, rngs(50)).counts["mlm"] == pytest.approx(0.4 * 62 * 50, rel=0.02)
