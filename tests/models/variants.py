"""Every method with the keys that change what it computes: small models, and examples for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.interface import IGNORED, MicroBatch
from deepsiam.models.registry import METHODS, PRETRAINING
from deepsiam.models.trunk import TrunkModel
from tests.models.matching.examples import Corpus, group, positive
from tests.models.tiny import MAX_TOKENS, VOCABULARY, HashedTeacher, Text, documents, rngs, trunk

DOCUMENTS = documents([12, 9, 8, 7], [5, 1, 20], [3, 3], [9], [7, 0, 2, 4], [1, 1], [8, 8], rng=3)
SHORT = documents([3, 2], [2, 1], [1, 1], [2, 2], rng=5)
OF_UNITS = {
    "positive": [
        positive(0, 1, query=(30, 5), given=[5, 8]),
        positive(1, query=(30, 6, 32), given=[2, 3]),
        positive(2, query=[7], given=[7, 8]),
    ],
    "group": [group({3: 0.5, 4: -1.0, 5: 2.0}), group({6: 1.0, 2: 0.25}, query=(33, 32))],
    "pair": [group({3: 2.0}), group({4: 0.0}, query=(30,)), group({6: 1.0}, query=(33, 32, 31, 30))],
}
COMPARING = ("ict", "pairs", "distil")  # pre-training by comparing a text with others of its micro-batch
TWO = {"max_query_tokens": 10, "max_document_tokens": MAX_TOKENS}
OWN = {"hard_negatives": 2}
PROMPTS = {"query_prompt": "ab", "document_prompt": "c"}
MEAN = {"pooling": "mean"}
LIST = {"template": "{query}:{passages}=", "passage": "{label}{passage}", "labels": [*"ABC"], "max_prompt_tokens": 20}
ONE = {**LIST, "template": "{query}:{document}=", "labels": ["y", "n"], "loss": "binary"}
NEEDED: dict[str, dict[str, Any]] = {  # what each method is given, if it is no variant that says otherwise
    **{name: {"max_tokens": MAX_TOKENS} for name in PRETRAINING},
    "ict": {"max_tokens": MAX_TOKENS, "max_query_tokens": 10, "remove": 0.5},
    "cross_thought": {"sequences": 6, "sequence_tokens": 7, "special_tokens": 3},
    "poly": {"max_tokens": MAX_TOKENS, "tokens": 60},
    "pairs": TWO,
    "distil": {**TWO, "passage_tokens": 22, "teacher_width": 12},
}
KEYS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(PRETRAINING, {}),
    "seed, released": {"variant": "released", "window": "all", "decoder_layers": 2},
    "seed, window 9": {"window": 9, "blocks": "complete_doc"},
    "seed, without cls": {"cls": False},
    "seed, without mlm or cls": {"cls": False, "loss_weights": {"mlm": 0}},
    "seed, mean": MEAN,
    "seed, mean, released": {**MEAN, "variant": "released"},
    "seed, frozen": {"freeze_encoder": True},
    "retromae, mean": MEAN,
    "ict, mean": MEAN,
    "ict, last": {"pooling": "last"},
    "condenser, early": {"early_layers": 1, "head_layers": 1},
    "poly, spans": {"pairs": "spans"},
    "poly, utterances": {"pairs": "utterances"},
    "pairs, cosine": {"similarity": "cosine", "temperature": 0.1, **MEAN},
    "pairs, in all ways": {"both_directions": True, "same_side": True},
    "distil, prefixes": {"loss": {"vectors": 1, "vectors_mse": 1, "batch_kl": 1}, "dimensions": [16, 6], **MEAN},
    "distil, vectors": {"loss": "vectors"},
    "siamese": {},
    "siamese, mean": {**MEAN, "similarity": "cosine", "temperature": 0.2, "projection": 8},
    "siamese, two towers": {"towers": 2, "loss": "hinge", "negatives_per_query": 2},
    "siamese, chunks": {**MEAN, "document_chunks": 3, "max_document_tokens": 5},
    "siamese, kl": {"loss": "kl", "similarity": "cosine"},
    "siamese, dimensions": {"dimensions": [12, 5, 2], "loss": {"softmax": 1.0, "kl": 0.5}, "similarity": "cosine"},
    "siamese, chunks, dimensions": {"dimensions": [16, 7], "document_chunks": 3, "max_document_tokens": 5},
    "siamese, prompts": {**PROMPTS, **MEAN, "negatives": "own", **OWN},
    "siamese, chunks, prompt": {"document_prompt": "cd", "document_chunks": 3, "max_document_tokens": 6, **MEAN}
    | {"prompt_in_pooling": False},
    "siamese, several": {"loss": {"softmax": 1.0, "kl": 0.5}, "similarity": "cosine"},
    **{f"poly_encoder, {codes}": {"m": 4, "codes": codes} for codes in ("learnt", "first", "last", "last_and_first")},
    "colbert": {"dimension": 6},
    "colbert, prompts": {"dimension": 6, **PROMPTS},
    "colbert, own": {"dimension": 6, "negatives": "own", **OWN},
    "sparse": {"regularise": {"query": {"l1": 0.02}, "document": {"flops": 0.1}}},
    "sparse, lexical": {"query": "own_tokens", "pooling": "sum", "towers": 2, "temperature": 50.0},
    "sparse, prompts": {**PROMPTS, "query": "own_tokens", "negatives": "own", **OWN},
    "sparse, own": {"query": "tokens", "negatives": "own", "regularise": {"document": {"l1": 0.003}}, **OWN},
    "sparse, idf": {"query": "idf"},
    "sparse, table": {"query": "table", "regularise": {"query": {"flops": 0.05}}},
    "sparse, linear": {"query": "tokens", "document": "own_tokens", "head": "linear"},
    "tilde": {},
    "cross_encoder": OWN,
    "cross_encoder, margin_mse": {"loss": "margin_mse"},
    "cross_encoder, several": {"loss": {"kl": 0.99, "margin_mse": 0.05}},
    "cross_encoder, classes": {"loss": "classes", "classes": 3},
    "duobert": {"max_document_tokens": 7, **OWN},
    "label_ranker": {**LIST, **OWN},
    "label_ranker, order": {**LIST, "loss": {"softmax": 1.0, "rank_net": 10.0}},
    "label_ranker, pointwise": ONE,
    "cross_thought_answers": {"special_tokens": 3, **OWN},
    "cross_thought_pairs": {"special_tokens": 3, "classes": 3},
}


class Variant:
    """A method with some of its keys."""

    def __init__(self, title: str) -> None:
        self.title, self.name = title, title.split(",")[0]
        needed = NEEDED.get(self.name, {"max_query_tokens": 9, "max_document_tokens": 12})
        self.keys: Any = METHODS[self.name].model_validate({"name": self.name, **needed, **KEYS[title]})
        self.pretrains = self.name in PRETRAINING

    def model(self, **changes: Any) -> TrunkModel:
        """Build an fp64 model around a small trunk, without dropout."""
        rows = VOCABULARY.vocab_size + self.keys.added_tokens + self.keys.markers
        own = {"vocab_size": rows, "is_decoder": self.name in ("clm", "label_ranker")}
        return self.keys.model(trunk(**own | changes)).double()  # type: ignore[no-any-return]

    def batcher(self) -> Any:
        if not self.pretrains:
            return self.keys.batcher(VOCABULARY, Candidates(Corpus(), np.arange(10)))
        batcher = self.keys.batcher(VOCABULARY)
        return TaughtBatcher(batcher, HashedTeacher(self.keys.teacher_width)) if self.keys.learns_vectors else batcher

    def suited(self, texts: Sequence[Text]) -> list[Text]:
        """Documents that suit a pre-training method: of pairs, the first two segments."""
        empty = np.empty(0, np.int64)
        return [Text([*text, empty, empty][:2]) for text in texts] if self.keys.needs_pairs else [*texts]

    def examples(self, texts: Sequence[Text] = DOCUMENTS) -> list[Any]:
        """Examples of documents; a matching model has the same few, whatever the documents are."""
        return self.batcher().examples(self.suited(texts)) if self.pretrains else OF_UNITS[self.keys.unit]

    def micro_batch(
        self, examples: Sequence[Any] | None = None, start: int = 0, numbers: Iterable[int] | None = None
    ) -> MicroBatch:
        """The micro-batch of examples with generators start, start + 1, ..., or with these numbers."""
        examples = self.examples() if examples is None else examples
        generators = rngs(len(examples), start) if numbers is None else [np.random.default_rng(i) for i in numbers]
        return self.batcher().micro_batch(examples, generators)  # type: ignore[no-any-return]

    def pad_more(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A micro-batch with more padding, and of texts that are no negatives of others also a row of padding alone."""
        if self.pretrains:
            return pad_more(arrays, MAX_TOKENS, rows=0 if self.name in COMPARING else 1)
        wider = ("_ids", "_mask", "_types", "_kept", "_terms")
        return {name: F.pad(x, (0, 4)) if name.endswith(wider) else x for name, x in arrays.items()}


VARIANTS = [Variant(title) for title in KEYS]
METHOD_OF = {variant.name: variant for variant in VARIANTS}  # the last of each method
PRETRAININGS = [Variant(name) for name in PRETRAINING]


def pad_more(arrays: Mapping[str, Tensor], width: int, rows: int = 0) -> dict[str, Tensor]:
    """Return a micro-batch whose texts are padded to `width` columns, with `rows` rows that are only padding.

    Cross-Thought's examples, which are sequences of a fixed width, get three more sequences and five more columns.
    """
    padded = dict(arrays)
    for name, array in arrays.items():
        if name.endswith("_positions"):
            ids = arrays.get(name.replace("positions", "ids"), arrays.get("input_ids"))
            assert ids is not None
            old, new = (ids.shape[1], width) if ids.ndim == 2 else (ids.shape[2], ids.shape[2] + 5)
            row = array // old
            if ids.ndim == 3:
                row = row // ids.shape[1] * (ids.shape[1] + 3) + row % ids.shape[1]
            padded[name] = row * new + array % old
        elif name == "visible_bits":  # a slot that is padding sees slot 0
            padded[name] = torch.zeros(len(array) + rows, width, width // 8, dtype=array.dtype)
            padded[name][:, :, 0] = 1
            padded[name][: len(array), : array.shape[1], : array.shape[2]] = array
        elif name.endswith(("_ids", "_mask", "_types")):
            more = (0, width - array.shape[1]) if array.ndim == 2 else (0, 5, 0, 3)
            padded[name] = F.pad(array, (*more, 0, rows), value=VOCABULARY.pad)
        elif name == "next_targets" and "token_types" in arrays:  # Poly's, one for each row
            padded[name] = F.pad(array, (0, rows), value=IGNORED)
        elif name == "offsets":
            padded[name] = F.pad(array, (0, rows))
    return padded
