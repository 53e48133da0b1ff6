"""What every matching model must do beside what every method does (tests.models.test_contract)."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.tiny import VOCABULARY, perturbed, tensors
from tests.models.variants import METHOD_OF, VARIANTS, Variant

# kinds whose models read several texts as one input: the name of its arrays, and the method
PROMPT = ("prompt", "label_logits")
TOGETHER = {"pairs": ("pair", "score_pairs"), "duels": ("duel", "score_duels"), "listwise": PROMPT, "pointwise": PROMPT}
MATCHING = pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.pretrains], ids=lambda v: v.title)


def texts_of(arrays: dict[str, Tensor], side: str) -> dict[str, Tensor]:
    """The arguments of a side's texts, by name."""
    return {name.removeprefix(f"{side}_"): x for name, x in arrays.items() if name.startswith(f"{side}_")}


def alone(texts: dict[str, Tensor], i: int) -> dict[str, Tensor]:
    """One of the texts without its padding."""
    whole = ("special", "before")
    return {n: x[[i]] if x.ndim == 3 or n in whole else x[[i]][:, texts["mask"][i]] for n, x in texts.items()}


@pytest.mark.parametrize(
    ("model", "keys", "lengths"),
    [
        ("cross_encoder", {}, {"method.max_query_tokens + method.max_document_tokens - 1": 20}),
        ("cross_encoder", {"separators": 2}, {"method.max_query_tokens + method.max_document_tokens": 21}),
        ("cross_encoder", {"max_pair_tokens": 9}, {"method.max_pair_tokens": 9}),
        ("cross_encoder", {"max_pair_tokens": 20}, {"method.max_query_tokens + method.max_document_tokens - 1": 20}),
        ("duobert", {}, {"method.max_query_tokens + 2 * (method.max_document_tokens - 1)": 21}),
        ("duobert", {"max_duel_tokens": 15}, {"method.max_duel_tokens": 15}),
        ("sparse", {"query": "encoder"}, {"method.max_query_tokens": 9, "method.max_document_tokens": 12}),
        ("sparse", {"query": "tokens"}, {"method.max_document_tokens": 12}),  # which no encoder reads
    ],
)
def test_the_longest_inputs_are_named_by_their_keys(model: str, keys: dict[str, Any], lengths: dict[str, int]) -> None:
    method = METHOD_OF[model].keys.model_copy(update=keys)
    assert method.input_lengths == lengths
    if model != "sparse":
        framing = method.pair_framing if model == "cross_encoder" else method.duel_framing
        assert [framing(VOCABULARY).longest] == [*lengths.values()]


@MATCHING
def test_a_score_depends_on_its_query_and_document_alone(variant: Variant) -> None:
    built, arrays = perturbed(variant.model()).eval(), tensors(variant.micro_batch())
    with torch.no_grad():
        if built.kind in TOGETHER:
            name, method = TOGETHER[built.kind]
            read, score = texts_of(arrays, name), getattr(built, method)
            together = score(**read)
            single = [score(**alone(read, i)) for i in range(len(together))]
            torch.testing.assert_close(torch.cat(single), together, rtol=0, atol=1e-12)
            return
        queries, documents = texts_of(arrays, "query"), texts_of(arrays, "document")
        together = built.embed_queries(**queries), built.embed_documents(**documents)
        of_query = [built.embed_queries(**alone(queries, i)) for i in range(len(together[0].mask))]
        of_document = [built.embed_documents(**alone(documents, i)) for i in range(len(together[1].mask))]
        for several, single in zip(together, (of_query, of_document), strict=True):
            for vectors, mask, own in zip(*several, single, strict=True):
                torch.testing.assert_close(own.vectors[own.mask], vectors[mask], rtol=0, atol=1e-12)
        if hasattr(built, "score") and built.kind != "lists":  # which compares the documents of a list
            apart = [torch.cat([built.score(query, document) for document in of_document], dim=1) for query in of_query]
            torch.testing.assert_close(torch.cat(apart), built.score(*together), rtol=0, atol=1e-12)


@MATCHING
def test_half_precision_vectors_and_scores_are_fp32(variant: Variant) -> None:
    built, arrays = variant.model().to(torch.float16), tensors(variant.micro_batch())
    if built.kind in TOGETHER:
        name, method = TOGETHER[built.kind]
        assert getattr(built, method)(**texts_of(arrays, name)).dtype == torch.float32
        return
    queries = built.embed_queries(**texts_of(arrays, "query"))
    documents = built.embed_documents(**texts_of(arrays, "document"))
    assert queries.vectors.dtype == documents.vectors.dtype == torch.float32
    assert not hasattr(built, "score") or built.score(queries, documents).dtype == torch.float32
    if getattr(built.keys, "similarity", "") == "cosine" or variant.name == "colbert":
        torch.testing.assert_close(queries.vectors.norm(dim=2), torch.ones(queries.vectors.shape[:2]))
