"""What every matching model must do: tests through its configuration, for each model of the registry."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from deepsiam.models.batching.candidates import Candidates
from deepsiam.models.registry import MATCHING
from tests.models.checks import half_precision, losses_add_up, training_lowers_every_loss
from tests.models.matching.examples import Corpus, group, micro_batch, positive
from tests.models.tiny import VOCABULARY, perturbed, rekeyed, tensors, trunk
from tests.models.varlen import attend_text_by_text

LENGTHS = {"max_query_tokens": 9, "max_document_tokens": 12}
EXAMPLES = {
    "positive": [
        positive(0, 1, query=(30, 5), given=[5, 8]),
        positive(1, query=(30, 6, 32), given=[2, 3]),
        positive(2, query=[7], given=[7, 8]),
    ],
    "group": [group({3: 0.5, 4: -1.0, 5: 2.0}), group({6: 1.0, 2: 0.25}, query=(33, 32))],
    "pair": [group({3: 2.0}), group({4: 0.0}, query=(30,)), group({6: 1.0}, query=(33, 32, 31, 30))],
}
OWN = {"hard_negatives": 2}
PROMPTS = {"query_prompt": "ab", "document_prompt": "c"}
MEAN_OF_TEXT = {"pooling": "mean", "prompt_in_pooling": False}
LIST = {"template": "{query}:{passages}=", "passage": "{label}{passage}", "labels": [*"ABC"], "max_prompt_tokens": 20}
MODELS = {
    "siamese": {},
    "siamese, mean": {"pooling": "mean", "similarity": "cosine", "temperature": 0.2, "projection": 8},
    "siamese, two towers": {"towers": 2, "loss": "hinge", "negatives_per_query": 2},
    "siamese, chunks": {"document_chunks": 3, "max_document_tokens": 5, "pooling": "mean"},
    "siamese, kl": {"loss": "kl", "similarity": "cosine"},
    "siamese, dimensions": {"dimensions": [12, 5, 2], "loss": {"softmax": 1.0, "kl": 0.5}, "similarity": "cosine"},
    "siamese, chunks, dimensions": {"dimensions": [16, 7], "document_chunks": 3, "max_document_tokens": 5},
    "siamese, prompts": {**PROMPTS, "pooling": "mean", "negatives": "own", **OWN},
    "siamese, chunks, prompt": {
        "document_prompt": "cd",
        "document_chunks": 3,
        "max_document_tokens": 6,
        **MEAN_OF_TEXT,
    },
    "siamese, several": {"loss": {"softmax": 1.0, "kl": 0.5}, "similarity": "cosine"},
    **{f"poly_encoder, {codes}": {"m": 4, "codes": codes} for codes in ("learnt", "first", "last", "last_and_first")},
    "colbert": {"dimension": 6},
    "colbert, prompts": {"dimension": 6, **PROMPTS},
    "colbert, own": {"dimension": 6, "negatives": "own", **OWN},
    "sparse": {"regularise": {"query": {"l1": 0.02}, "document": {"flops": 0.1}}},
    "sparse, lexical": {"query": "own_tokens", "pooling": "sum", "towers": 2, "temperature": 50.0},
    "sparse, prompts": {**PROMPTS, "query": "own_tokens", "negatives": "own", **OWN},
    "sparse, own": {"query": "tokens", "negatives": "own", "regularise": {"document": {"l1": 0.003}}, **OWN},
    "sparse, linear": {"query": "tokens", "document": "own_tokens", "head": "linear"},
    "tilde": {},
    "cross_encoder": OWN,
    "cross_encoder, margin_mse": {"loss": "margin_mse"},
    "cross_encoder, several": {"loss": {"kl": 0.99, "margin_mse": 0.05}},
    "cross_encoder, classes": {"loss": "classes", "classes": 3},
    "duobert": {"max_document_tokens": 7, **OWN},
    "label_ranker": {**LIST, **OWN},
    "label_ranker, order": {**LIST, "loss": {"softmax": 1.0, "rank_net": 10.0}},
    "label_ranker, pointwise": {**LIST, "template": "{query}:{document}=", "labels": ["y", "n"], "loss": "binary"},
    "cross_thought_answers": {"special_tokens": 3, **OWN},
    "cross_thought_pairs": {"special_tokens": 3, "classes": 3},
}
# kinds whose models read several texts as one input: the name of its arrays, and the method
PROMPT = ("prompt", "label_logits")
TOGETHER = {"pairs": ("pair", "score_pairs"), "duels": ("duel", "score_duels"), "listwise": PROMPT, "pointwise": PROMPT}
LAST = {model.split(",")[0]: model for model in MODELS}  # of each model
ALL = pytest.mark.parametrize("model", MODELS)


def keys_of(model):
    name = model.split(",")[0]
    return MATCHING[name].model_validate({"name": name, **LENGTHS, **MODELS[model]})


def build(model, **config):
    keys = keys_of(model)
    rows = VOCABULARY.vocab_size + keys.added_tokens + keys.markers
    decoder = {"is_decoder": True} if keys.name == "label_ranker" else {}
    return keys.model(trunk(vocab_size=rows, **decoder, **config)).double()


def batch_of(model, examples=None, start=0):
    keys = keys_of(model)
    return micro_batch(keys, examples or EXAMPLES[keys.unit], start=start)


def texts_of(arrays, side):
    """The arguments of a side's texts, by name."""
    return {name.removeprefix(f"{side}_"): x for name, x in arrays.items() if name.startswith(f"{side}_")}


def alone(texts, i):
    """One of the texts without its padding."""
    whole = ("special", "before")
    return {n: x[[i]] if x.ndim == 3 or n in whole else x[[i]][:, texts["mask"][i]] for n, x in texts.items()}


def test_every_model_is_here():
    assert {model.split(",")[0] for model in MODELS} == set(MATCHING)


@pytest.mark.parametrize(
    ("model", "keys", "lengths"),
    [
        ("cross_encoder", {}, {"method.max_query_tokens + method.max_document_tokens - 1": 20}),
        ("cross_encoder", {"separators": 2}, {"method.max_query_tokens + method.max_document_tokens": 21}),
        ("cross_encoder", {"max_pair_tokens": 9}, {"method.max_pair_tokens": 9}),
        ("cross_encoder", {"max_pair_tokens": 20}, {"method.max_query_tokens + method.max_document_tokens - 1": 20}),
        ("duobert", {}, {"method.max_query_tokens + 2 * (method.max_document_tokens - 1)": 21}),
        ("duobert", {"max_duel_tokens": 15}, {"method.max_duel_tokens": 15}),
        ("sparse", {}, {"method.max_query_tokens": 9, "method.max_document_tokens": 12}),
        ("sparse", {"query": "tokens"}, {"method.max_document_tokens": 12}),  # which no encoder reads
    ],
)
def test_the_longest_inputs_are_named_by_their_keys(model, keys, lengths):
    method = keys_of(model).model_copy(update=keys)
    assert method.input_lengths == lengths
    if model != "sparse":
        framing = method.pair_framing if model == "cross_encoder" else method.duel_framing
        assert [framing(VOCABULARY).longest] == [*lengths.values()]


@ALL
def test_micro_batches_are_a_function_of_examples_and_rngs(model):
    first, second = batch_of(model), batch_of(model)
    keys = keys_of(model)
    assert keys.batcher(VOCABULARY, Candidates(Corpus(), np.arange(3))).examples([]) == []
    one_rng = micro_batch(keys, EXAMPLES[keys.unit], rngs=rekeyed(len(EXAMPLES[keys.unit])))
    for other in (second, one_rng):
        assert all(np.array_equal(array, other.arrays[name]) for name, array in first.arrays.items())
    assert first.counts.keys() == keys.weights.keys() == build(model)(**tensors(first)).keys()


@ALL
def test_losses_are_sums_over_the_examples_in_any_order(model):
    built = perturbed(build(model))
    examples = EXAMPLES[built.keys.unit]
    if not built.keys.compares_micro_batch:
        losses_add_up(built, lambda some, start: batch_of(model, some, start), examples)
    # the generator of its place draws each negative, and the order of each list
    if not built.keys.negatives_per_query and built.kind != "listwise":
        with torch.no_grad():
            straight, mixed = (built(**tensors(batch_of(model, each))) for each in (examples, examples[::-1]))
        torch.testing.assert_close(mixed, straight, rtol=1e-10, atol=1e-10)


@ALL
def test_more_padding_changes_no_loss(model):
    built, arrays = perturbed(build(model)), tensors(batch_of(model))
    wider = {
        name: F.pad(x, (0, 4)) if name.endswith(("_ids", "_mask", "_types", "_kept", "_terms")) else x
        for name, x in arrays.items()
    }
    loss, padded = (sum(built(**each).values()) for each in (arrays, wider))
    torch.testing.assert_close(padded, loss, rtol=1e-12, atol=0)
    padded.backward()
    assert all(torch.isfinite(p.grad).all() for p in built.parameters() if p.grad is not None)


@ALL
def test_a_score_depends_on_its_query_and_document_alone(model):
    built, arrays = perturbed(build(model)).eval(), tensors(batch_of(model))
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


@ALL
def test_texts_without_padding_give_the_same_losses_and_gradients(model, monkeypatch):
    built, arrays = perturbed(build(model)).train(), tensors(batch_of(model))

    def run():
        built.zero_grad()
        losses = built(**arrays)
        sum(losses.values()).backward()
        return losses, {name: p.grad for name, p in built.named_parameters() if p.grad is not None}

    expected = run()
    monkeypatch.setattr("deepsiam.models.encode.kernel_for", lambda *_: attend_text_by_text)
    shapes = []
    built.trunk.register_forward_pre_hook(lambda *call: shapes.append(call[2]["input_ids"].shape), with_kwargs=True)
    torch.testing.assert_close(run(), expected, rtol=1e-9, atol=1e-10)
    assert [len(shape) for shape in shapes] == [2]  # one run for queries and documents, and of a tower of its own
    assert shapes[0][0] == 1


@pytest.mark.parametrize(
    ("model", "dtype"), [*((m, torch.float16) for m in MODELS), *((m, torch.bfloat16) for m in LAST.values())]
)
def test_half_precision_vectors_scores_and_losses_are_fp32(model, dtype):
    built, arrays = build(model), tensors(batch_of(model))
    half_precision(built, arrays, dtype, rel=0.05)
    if built.kind in TOGETHER:
        name, method = TOGETHER[built.kind]
        assert getattr(built, method)(**texts_of(arrays, name)).dtype == torch.float32
        return
    queries = built.embed_queries(**texts_of(arrays, "query"))
    documents = built.embed_documents(**texts_of(arrays, "document"))
    assert queries.vectors.dtype == documents.vectors.dtype == torch.float32
    assert not hasattr(built, "score") or built.score(queries, documents).dtype == torch.float32
    if getattr(built.keys, "similarity", "") == "cosine" or model == "colbert":
        torch.testing.assert_close(queries.vectors.norm(dim=2), torch.ones(queries.vectors.shape[:2]))


@ALL
def test_training_steps_lower_the_loss(model):
    weights = keys_of(model).weights
    training_lowers_every_loss(build(model, initializer_range=0.1), tensors(batch_of(model)), weights=weights)
