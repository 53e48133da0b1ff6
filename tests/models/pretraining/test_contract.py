"""What every pre-training method must do: tests through its configuration, for each method of the registry."""

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_model, save_model
from torch import Tensor
from transformers import AutoModel

from deepsiam.models.batching.packing import pad
from deepsiam.models.batching.sentences import ENOUGH
from deepsiam.models.batching.taught import TaughtBatcher
from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED, Bottleneck
from deepsiam.models.layers.ranking_losses import in_batch_softmax
from deepsiam.models.pretraining.retromae import unpack_bits
from deepsiam.models.registry import PRETRAINING
from tests.models.checks import (
    gradient_at_states,
    gradients,
    half_precision,
    losses_add_up,
    pad_more,
    training_lowers_every_loss,
)
from tests.models.tiny import (
    MAX_TOKENS,
    SENTENCES,
    VOCABULARY,
    HashedTeacher,
    Text,
    batch_of,
    documents,
    perturbed,
    rekeyed,
    rngs,
    tensors,
    trunk,
)
from tests.models.varlen import attend_text_by_text

KEYS = {name: {"max_tokens": MAX_TOKENS} for name in PRETRAINING} | {
    "ict": {"max_tokens": MAX_TOKENS, "max_query_tokens": 10, "remove": 0.5},
    "cross_thought": {"sequences": 6, "sequence_tokens": 7, "special_tokens": 3},
    "poly": {"max_tokens": MAX_TOKENS, "tokens": 60},
    "pairs": {"max_query_tokens": 10, "max_document_tokens": MAX_TOKENS},
    "distil": {"max_query_tokens": 10, "max_document_tokens": MAX_TOKENS, "passage_tokens": 22, "teacher_width": 12},
}
VARIANTS = {  # more than one configuration of a method
    **KEYS,
    "seed released": KEYS["seed"] | {"variant": "released", "window": "all", "decoder_layers": 2},
    "seed window 9": KEYS["seed"] | {"window": 9, "blocks": "complete_doc"},
    "seed without cls": KEYS["seed"] | {"cls": False},
    "seed without mlm or cls": KEYS["seed"] | {"cls": False, "loss_weights": {"mlm": 0}},
    "seed mean": KEYS["seed"] | {"pooling": "mean"},
    "seed mean released": KEYS["seed"] | {"pooling": "mean", "variant": "released"},
    "retromae mean": KEYS["retromae"] | {"pooling": "mean"},
    "ict mean": KEYS["ict"] | {"pooling": "mean"},
    "ict last": KEYS["ict"] | {"pooling": "last"},
    "seed frozen": KEYS["seed"] | {"freeze_encoder": True},
    "condenser early": KEYS["condenser"] | {"early_layers": 1, "head_layers": 1},
    "poly spans": KEYS["poly"] | {"pairs": "spans"},
    "poly utterances": KEYS["poly"] | {"pairs": "utterances"},
    "pairs cosine": KEYS["pairs"] | {"similarity": "cosine", "temperature": 0.1, "pooling": "mean"},
    "distil prefixes": KEYS["distil"]
    | {"loss": {"vectors": 1.0, "vectors_mse": 1.0, "batch_kl": 1.0}, "dimensions": [16, 6], "pooling": "mean"},
    "distil vectors": KEYS["distil"] | {"loss": "vectors"},
    "pairs in all ways": KEYS["pairs"] | {"both_directions": True, "same_side": True},
}
COMPARING = ("ict", "pairs", "distil")  # a text with others of its micro-batch
BOTTLENECKS = {
    "seed": ("decoder",),
    "retromae": ("decoder",),
    "condenser": ("head",),
    "skip_thought": ("previous", "next"),
}
HEADS = {
    "seed": {"lm_head", "decoder"},
    "mlm": {"lm_head"},
    "retromae": {"lm_head", "decoder"},
    "condenser": {"lm_head", "head"},
    "skip_thought": {"previous_decoder", "next_decoder"},
    "cross_thought": {"lm_head", "cross", "final"},
    "poly": {"lm_head", "next_head"},
    "distil": {"teacher_head"},
}
METHODS = pytest.mark.parametrize("method", PRETRAINING)
ALL = pytest.mark.parametrize("method", VARIANTS)
DOCUMENTS = documents([12, 9, 8, 7], [5, 1, 20], [3, 3], [9], [7, 0, 2, 4], [1, 1], [8, 8], rng=3)
SHORT = documents([3, 2], [2, 1], [1, 1], [2, 2], rng=5)
LENGTHS = st.lists(st.lists(st.integers(0, 20), max_size=4), min_size=1, max_size=4)


def config_of(method):
    name = method.split()[0]
    return PRETRAINING[name].model_validate({"name": name, **VARIANTS[method]})


def model_of(method, **changes):
    """Build an fp64 model around a small trunk, without dropout."""
    config = config_of(method)
    own = {"vocab_size": VOCABULARY.vocab_size + config.added_tokens, "is_decoder": method == "clm"}
    return config.model(trunk(**own | changes)).double()


def examples_of(method, texts=DOCUMENTS):
    return config_of(method).batcher(VOCABULARY).examples(suited(method, texts))


def suited(method, texts):
    """Return documents that suit a method: of pairs, the first two segments."""
    empty = np.empty(0, np.int64)
    return [Text([*text, empty, empty][:2]) for text in texts] if config_of(method).needs_pairs else texts


def batcher_of(method):
    config = config_of(method)
    batcher = config.batcher(VOCABULARY)
    return TaughtBatcher(batcher, HashedTeacher(config.teacher_width)) if config.learns_vectors else batcher


def micro_batch(method, examples, start=0):
    return batcher_of(method).micro_batch(examples, rngs(len(examples), start))


def equal(first, second):
    names = first.arrays.keys() == second.arrays.keys()
    return names and all(np.array_equal(array, second.arrays[name]) for name, array in first.arrays.items())


@ALL
def test_micro_batches_are_a_function_of_documents_and_rngs(method):
    examples = examples_of(method)
    batcher = batcher_of(method)
    assert batcher.examples([]) == []
    assert len(batcher.origins(suited(method, DOCUMENTS))) == len(examples) > 2
    first = micro_batch(method, examples)
    assert equal(first, micro_batch(method, examples))  # the examples are as they were
    assert equal(first, micro_batch(method, examples_of(method)))
    assert equal(first, batcher.micro_batch(examples, rekeyed(len(examples))))
    draws_nothing = method.startswith(("clm", "skip_thought", "pairs", "distil"))
    assert equal(first, micro_batch(method, examples, start=50)) == draws_nothing
    assert 0 < first.filled <= first.slots
    assert first.tokens


@ALL
def test_losses_have_the_names_of_counts_and_weights(method):
    batch = micro_batch(method, examples_of(method))
    losses = perturbed(model_of(method))(**tensors(batch))
    assert losses.keys() == batch.counts.keys() == config_of(method).weights.keys()
    assert all(loss > 0 for loss in losses.values())
    assert all(batch.counts.values())


@ALL
@settings(max_examples=3)
@given(lengths=LENGTHS, random=st.randoms(use_true_random=False))
def test_losses_are_the_sums_of_the_examples_losses_in_any_order(method, lengths, random: Random):
    examples = examples_of(method, documents(*lengths))
    if not examples:
        return
    model = perturbed(model_of(method))
    if not config_of(method).compares_micro_batch:
        losses_add_up(model, lambda some, start: micro_batch(method, some, start), examples)
    order = random.sample(range(len(examples)), len(examples))
    mixed = [examples[i] for i in order], [np.random.default_rng(i) for i in order]
    with torch.no_grad():
        straight = model(**tensors(micro_batch(method, examples)))
        shuffled = model(**tensors(batcher_of(method).micro_batch(*mixed)))
    assert all(torch.isfinite(loss) for loss in straight.values())
    torch.testing.assert_close(shuffled, straight, rtol=1e-10, atol=1e-10)


@ALL
def test_more_padding_and_rows_of_padding_only_change_nothing(method):
    examples = [example for texts in (SHORT[:2], SHORT[2:]) for example in examples_of(method, texts)]
    model, arrays = perturbed(model_of(method)), tensors(micro_batch(method, examples))
    if "offsets" in arrays:
        arrays["offsets"] %= 4  # so that they also fit the wider sequences of Cross-Thought
    padded = pad_more(arrays, MAX_TOKENS, rows=not method.startswith(COMPARING))  # no row is a negative of others
    assert any(array.shape != padded[name].shape for name, array in arrays.items())
    losses, results = [], []
    for each in (arrays, padded):
        model.zero_grad()
        losses.append(model(**each))
        sum(losses[-1].values()).backward()
        results.append({name: gradient for name, gradient in gradients(model).items() if gradient is not None})
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-10)
    assert all(torch.isfinite(gradient).all() for gradient in results[1].values())


@METHODS
def test_texts_without_padding_give_the_same_losses_and_gradients(method, monkeypatch):
    model, arrays = perturbed(model_of(method)), tensors(micro_batch(method, examples_of(method)))
    arrays = pad_more(arrays, MAX_TOKENS, rows=0 if method.startswith(COMPARING) else 1)
    shapes = []
    model.trunk.register_forward_pre_hook(lambda *call: shapes.append(call[2]["input_ids"].shape), with_kwargs=True)

    def run():
        model.zero_grad()
        losses = model(**arrays)
        sum(losses.values()).backward()
        return losses, {name: gradient for name, gradient in gradients(model).items() if gradient is not None}

    expected = run()
    shapes.clear()
    monkeypatch.setattr("deepsiam.models.encode.kernel_for", lambda *_: attend_text_by_text)
    torch.testing.assert_close(run(), expected, rtol=1e-9, atol=1e-10)
    assert [shape[0] for shape in shapes] == [1]  # one run, of one row


@pytest.mark.parametrize(
    ("method", "dtype"), [*((m, torch.float16) for m in VARIANTS), *((m, torch.bfloat16) for m in PRETRAINING)]
)
def test_half_precision_losses_are_fp32_and_near_the_exact_ones(method, dtype):
    model = model_of(method, initializer_range=0.02)
    half_precision(
        model,
        tensors(micro_batch(method, examples_of(method))),
        dtype,
        rel=0.05 if method.startswith(COMPARING) else 0.02,
    )


@pytest.mark.parametrize("method", ["ict", "skip_thought", "poly", "distil"])
def test_data_without_sentence_boundaries_is_refused(method):
    with pytest.raises(ValueError, match="needs sentence boundaries"):
        examples_of(method, documents(*[[9]] * ENOUGH))


@pytest.mark.parametrize("method", ["mlm", "condenser", "clm", "seed", "retromae"])
@given(lengths=SENTENCES, blocks=st.sampled_from(["complete", "complete_doc"]), max_tokens=st.integers(8, MAX_TOKENS))
def test_targets_are_the_words_under_the_mask_and_the_tokens_after_cls(method, lengths, blocks, max_tokens):
    config = PRETRAINING[method](name=method, max_tokens=max_tokens, blocks=blocks)
    examples = config.batcher(VOCABULARY).examples(documents(*lengths))
    if not examples:
        return
    before = [example.copy() for example in examples]
    arrays, counts, _ = batch_of(config, examples)
    assert all(map(np.array_equal, examples, before))
    ids, mask = pad(examples, max_tokens, VOCABULARY.pad)
    assert np.array_equal(arrays["attention_mask"], mask)
    read = arrays["input_ids"].copy()
    for term in {"mlm", "clm", "decoder"} & counts.keys():
        real = arrays[f"{term}_targets"] != IGNORED
        positions, targets = (arrays[f"{term}_{what}"][real] for what in ("positions", "targets"))
        assert counts[term] == real.sum() == len(set(positions.tolist()))
        assert term != "mlm" or not arrays["mlm_positions"][~real].any()
        predicted = positions + (term == "clm" or (method, term) == ("seed", "decoder"))  # from the slot before
        assert (ids.ravel()[predicted] == targets).all()
        if term == "mlm":
            read.ravel()[positions] = targets
        else:
            assert sorted(predicted) == [p for p in np.flatnonzero(mask) if p % mask.shape[1]]
    assert np.array_equal(read, ids)
    assert np.array_equal(arrays.get("original_ids", ids), ids)
    assert counts.get("head", counts.get("mlm")) == counts.get("mlm")
    if "visible_bits" in arrays:  # each slot sees [CLS], and no padding
        visible = unpack_bits(torch.from_numpy(arrays["visible_bits"]), ids.shape[1]).numpy()
        assert visible[:, :, 0].all()
        assert not (visible & ~mask[:, None])[:, :, 1:].any()


@METHODS
def test_training_steps_lower_every_loss(method):
    texts = documents(*[[4, 5, 6]] * 8, rng=8)
    model = model_of(method, initializer_range=0.02)
    training_lowers_every_loss(model, tensors(micro_batch(method, examples_of(method, texts))))


@METHODS
def test_the_exported_trunk_is_a_stock_encoder_with_the_same_states(method, tmp_path):
    model = model_of(method).eval()
    model.trunk.save_pretrained(tmp_path)
    stock = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False, dtype=torch.float64).eval()
    assert stock.state_dict().keys() == model.trunk.state_dict().keys()
    assert stock.config.is_decoder == (method == "clm")
    ids = torch.randint(5, VOCABULARY.vocab_size, (2, 9))
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    theirs = stock(input_ids=ids, attention_mask=mask.long(), token_type_ids=torch.zeros_like(ids)).last_hidden_state
    torch.testing.assert_close(encode(model.trunk, ids, mask)[mask], theirs[mask], rtol=0, atol=1e-12)


@ALL
def test_one_table_of_the_vocabulary_serves_all_uses_also_after_save_and_load(method, tmp_path):
    model, other = perturbed(model_of(method)), model_of(method)
    arrays, state = tensors(micro_batch(method, examples_of(method))), model.state_dict()
    save_model(model, str(tmp_path / "model.safetensors"))
    load_model(other, str(tmp_path / "model.safetensors"))
    assert {name: loss.item() for name, loss in other(**arrays).items()} == {
        name: loss.item() for name, loss in model(**arrays).items()
    }
    tables = [
        name
        for name, value in state.items()
        if state["trunk.embeddings.word_embeddings.weight"].shape[0] in value.shape
    ]
    assert tables in (
        ["trunk.embeddings.word_embeddings.weight"],
        ["trunk.embeddings.word_embeddings.weight", "lm_head.bias"],
    )


@pytest.mark.parametrize("method", [*PRETRAINING, "seed released"])
def test_a_bottleneck_is_the_first_state_and_swapping_gives_its_terms_another_sequences(method):
    model, arrays = perturbed(model_of(method, num_hidden_layers=4)), tensors(micro_batch(method, examples_of(method)))
    terms = BOTTLENECKS.get(method.split()[0], ())
    assert isinstance(model, Bottleneck) == bool(terms)
    if not terms:
        return
    own, other = model(**arrays), model(**arrays, swap=True)
    assert model.bottleneck_terms == terms
    assert {name for name in own if own[name].item() != other[name].item()} == set(terms)
    for term in terms:
        gradient = gradient_at_states(model, arrays, term)
        assert gradient[:, 0].any()
        assert not gradient[:, 1:].any()

    def roll(_, __, output):
        states = output.last_hidden_state
        output.last_hidden_state = torch.cat([states[:, :1].roll(len(states) // 2, dims=0), states[:, 1:]], dim=1)

    model.trunk.register_forward_hook(roll)
    torch.testing.assert_close(model(**arrays), other, rtol=1e-12, atol=0)


@METHODS
def test_heads_start_as_berts_layers_do(method):
    heads = model_of(method, hidden_size=64, num_attention_heads=4, initializer_range=0.02).heads
    assert {name.split(".")[0] for name in heads} == HEADS.get(method, set())
    for name, weight in heads.items():
        if weight.ndim == 2:
            assert weight.std().item() == pytest.approx(0.02, rel=max(0.1, 3 / weight.numel() ** 0.5)), name
        else:
            assert torch.equal(weight, torch.full_like(weight, float("norm.weight" in name))), name


@pytest.mark.parametrize("method", sorted(PRETRAINING.keys() - COMPARING))  # they project to no vocabulary
def test_a_table_of_another_width_is_refused(method):
    with pytest.raises(ValueError, match="its width 8 must be hidden_size 16"):
        model_of(method, model_type="electra", embedding_size=8)


def means(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    rows = [encode(model.trunk, own[keep][None], keep[keep][None])[0] for own, keep in zip(ids, mask, strict=True)]
    return torch.stack([states.mean(dim=0) for states in rows])


@pytest.mark.parametrize("name", ["seed", "retromae"])
def test_the_decoder_reads_the_mean_of_the_masked_text(name: str) -> None:
    model = perturbed(model_of(f"{name} mean"))
    arrays = tensors(micro_batch(f"{name} mean", examples_of(f"{name} mean")))
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
    model, arrays = perturbed(model_of("ict mean")), tensors(micro_batch("ict mean", examples_of("ict mean")))
    queries, passages = (means(model, arrays[f"{side}_ids"], arrays[f"{side}_mask"]) for side in ("query", "passage"))
    expected = in_batch_softmax(queries @ passages.T, torch.arange(len(queries)), arrays["allowed"])
    torch.testing.assert_close(model(**arrays)["ict"], expected, rtol=1e-10, atol=0)
