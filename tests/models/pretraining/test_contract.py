"""What every pre-training method must do beside what every method does (tests.models.test_contract)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_model, save_model
from torch import Tensor
from transformers import AutoModel

from deepsiam.models.batching.packing import pad
from deepsiam.models.batching.sentences import ENOUGH
from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED, Bottleneck
from deepsiam.models.pretraining.retromae import unpack_bits
from deepsiam.models.registry import PRETRAINING
from tests.models.tiny import MAX_TOKENS, VOCABULARY, batch_of, documents, perturbed, tensors
from tests.models.variants import COMPARING, DOCUMENTS, PRETRAININGS, Variant

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
LENGTHS = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=3), min_size=1, max_size=4)
DRAW_NOTHING = ("clm", "skip_thought", "pairs", "distil")
TABLE = "trunk.embeddings.word_embeddings.weight"
METHODS = pytest.mark.parametrize("variant", PRETRAININGS, ids=lambda v: v.title)


@METHODS
def test_examples_have_origins_and_most_methods_draw_by_the_rngs(variant: Variant) -> None:
    examples = variant.examples()
    assert len(variant.batcher().origins(variant.suited(DOCUMENTS))) == len(examples) > 2
    first, other = (variant.micro_batch(examples, start).arrays for start in (0, 50))
    assert all(np.array_equal(first[name], other[name]) for name in first) == (variant.name in DRAW_NOTHING)


@pytest.mark.parametrize("method", ["ict", "skip_thought", "poly", "distil"])
def test_data_without_sentence_boundaries_is_refused(method: str) -> None:
    with pytest.raises(ValueError, match="needs sentence boundaries"):
        Variant(method).examples(documents(*[[9]] * ENOUGH))


@pytest.mark.parametrize("method", ["mlm", "condenser", "clm", "seed", "retromae"])
@given(lengths=LENGTHS, blocks=st.sampled_from(["complete", "complete_doc"]), max_tokens=st.integers(8, MAX_TOKENS))
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
def test_the_exported_trunk_is_a_stock_encoder_with_the_same_states(variant: Variant, tmp_path: Path) -> None:
    model = variant.model().eval()
    model.trunk.save_pretrained(tmp_path)
    stock = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False, dtype=torch.float64).eval()
    assert stock.state_dict().keys() == model.trunk.state_dict().keys()
    assert stock.config.is_decoder == (variant.name == "clm")
    ids = torch.randint(5, VOCABULARY.vocab_size, (2, 9))
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    theirs = stock(input_ids=ids, attention_mask=mask.long(), token_type_ids=torch.zeros_like(ids)).last_hidden_state
    torch.testing.assert_close(encode(model.trunk, ids, mask)[mask], theirs[mask], rtol=0, atol=1e-12)


@METHODS
def test_one_table_of_the_vocabulary_serves_all_uses_also_after_save_and_load(variant: Variant, tmp_path: Path) -> None:
    model, other = perturbed(variant.model()), variant.model()
    arrays, state = tensors(variant.micro_batch()), model.state_dict()
    save_model(model, str(tmp_path / "model.safetensors"))
    load_model(other, str(tmp_path / "model.safetensors"))
    torch.testing.assert_close(other(**arrays), model(**arrays), rtol=0, atol=0)
    tables = [name for name, value in state.items() if state[TABLE].shape[0] in value.shape]
    assert tables in ([TABLE], [TABLE, "lm_head.bias"])


@pytest.mark.parametrize("variant", [*PRETRAININGS, Variant("seed, released")], ids=lambda v: v.title)
def test_a_bottleneck_is_the_first_state_and_swapping_gives_its_terms_another_sequences(variant: Variant) -> None:
    model, arrays = perturbed(variant.model(num_hidden_layers=4)), tensors(variant.micro_batch())
    terms = BOTTLENECKS.get(variant.name, ())
    assert isinstance(model, Bottleneck) == bool(terms)
    if not terms:
        return
    swapped = model(**arrays, swap=True)
    assert model.bottleneck_terms == terms
    states: list[Tensor] = []

    def keep(_: Any, __: Any, output: Any) -> None:
        states.append(output.last_hidden_state)

    handle = model.trunk.register_forward_hook(keep)
    own = model(**arrays)
    handle.remove()
    assert {name for name in own if own[name].item() != swapped[name].item()} == set(terms)
    for term in terms:
        (gradient,) = torch.autograd.grad(own[term], states, retain_graph=True)
        assert gradient[:, 0].any()
        assert not gradient[:, 1:].any()

    def roll(_: Any, __: Any, output: Any) -> None:
        states = output.last_hidden_state
        output.last_hidden_state = torch.cat([states[:, :1].roll(len(states) // 2, dims=0), states[:, 1:]], dim=1)

    model.trunk.register_forward_hook(roll)
    torch.testing.assert_close(model(**arrays), swapped, rtol=1e-12, atol=0)


@METHODS
def test_heads_start_as_berts_layers_do(variant: Variant) -> None:
    heads = variant.model(hidden_size=64, num_attention_heads=4, initializer_range=0.02).heads
    assert {name.split(".")[0] for name in heads} == HEADS.get(variant.name, set())
    for name, weight in heads.items():
        if weight.ndim == 2:
            assert weight.std().item() == pytest.approx(0.02, rel=max(0.1, 3 / weight.numel() ** 0.5)), name
        else:
            assert torch.equal(weight, torch.full_like(weight, float("norm.weight" in name))), name


@pytest.mark.parametrize("method", sorted(PRETRAINING.keys() - COMPARING))  # they project to no vocabulary
def test_a_table_of_another_width_is_refused(method: str) -> None:
    with pytest.raises(ValueError, match="its width 8 must be hidden_size 16"):
        Variant(method).model(model_type="electra", embedding_size=8)
