"""Windows of documents for the tests of Poly pre-training, and the rows made from them."""

from hypothesis import strategies as st

from deepsiam.models.pretraining.poly import PolyBatcher, PolyConfig
from tests.models.tiny import MAX_TOKENS, VOCABULARY, documents

V = VOCABULARY
KINDS = ["sentences", "spans", "utterances"]
LENGTHS = st.lists(st.lists(st.integers(0, 30), max_size=8), min_size=1, max_size=8)
WINDOW = documents([5, 3, 6], [9, 9, 2], [1, 1], [30, 4], [2, 2, 2, 2], [3], [], rng=3)


def batcher(pairs="sentences", max_tokens=MAX_TOKENS, tokens=60):
    return PolyBatcher(PolyConfig(name="poly", max_tokens=max_tokens, pairs=pairs, tokens=tokens), VOCABULARY)


def for_loss(loss, groups):
    """The groups that serve a loss."""
    return [group for group in groups if group.loss == loss]


def rows_of(batch):
    """Yield (ids, token types) of each row without its padding, which must be on the right."""
    arrays = batch.arrays
    for ids, mask, types in zip(arrays["input_ids"], arrays["attention_mask"], arrays["token_types"], strict=True):
        size = int(mask.sum())
        assert mask[:size].all()
        assert (ids[size:] == V.pad).all()
        assert not types[size:].any()
        yield ids[:size].tolist(), types[:size].tolist()
