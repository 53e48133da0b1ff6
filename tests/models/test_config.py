"""Method configurations refuse values that their batchers and models cannot use, and name the key."""

import pytest

from data_prep.tokenizers.vocabulary import Vocabulary
from models.registry import MATCHING, PRETRAINING
from tests.models import tiny


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        ("mlm", "max_tokens", [7, "many"]),
        ("mlm", "blocks", ["some"]),
        ("seed", "decoder_layers", [0]),
        ("seed", "window", [0, "some"]),
        ("seed", "variant", ["published"]),
        ("ict", "max_tokens", [7]),
        ("ict", "max_query_tokens", [7]),
        ("ict", "remove", [-0.1, 1.1]),
        ("skip_thought", "max_tokens", [7]),
        ("skip_thought", "decoder_layers", [0]),
        ("cross_thought", "sequences", [0]),
        ("cross_thought", "sequence_tokens", [0]),
        ("cross_thought", "special_tokens", [0]),
        ("retromae", "encoder_mask", [0.0, 1.0]),
        ("retromae", "decoder_mask", [-0.1, 1.1]),
        ("condenser", "early_layers", [0]),
        ("condenser", "head_layers", [0]),
        ("poly", "max_tokens", [7]),
        ("poly", "tokens", [0, 511]),  # a group has room for at least one pair
        ("poly", "pairs", ["paragraphs"]),
        ("pairs", "max_query_tokens", [2]),
        ("pairs", "negatives", ["own"]),
        ("pairs", "temperature", [0.0]),
        ("pairs", "prompt_in_pooling", [False]),  # of a mean alone
        ("siamese", "temperature", [0.0, -1.0]),
        ("siamese", "max_query_tokens", [2]),
        ("siamese", "max_document_tokens", [2]),
        ("siamese", "loss", ["hinge"]),  # refused without sampled negatives
        (
            "siamese",
            "loss",
            ["some", ["kl"], {}, {"some": 1.0}, {"kl": 0.0}, {"kl": -1.0}, {"kl": "much"}, {"kl": None}],
        ),
        ("siamese", "candidates", [{"per_query": 1}, {"per_query": 8, "keep": "best"}, 8]),
        ("siamese", "teacher_scale", ["max"]),
        ("siamese", "negatives_per_query", [-1]),
        ("poly_encoder", "m", [0, 361]),  # a query has at most 360 tokens
        ("poly_encoder", "codes", ["some"]),
        ("poly_encoder", "reduction", ["max"]),
        ("poly_encoder", "output_scaling", [0.0, -0.06]),
        ("colbert", "dimension", [0]),
        ("colbert", "max_query_tokens", [3]),
    ],
)
def test_a_value_out_of_range_is_refused(name: str, key: str, values: list[object]) -> None:
    config = (PRETRAINING | MATCHING)[name]
    config.model_validate({"name": name})
    for value in values:
        with pytest.raises(ValueError, match=key):
            config.model_validate({"name": name, key: value})


def test_several_losses_are_a_table_and_keys_of_a_teacher_are_dumped_only_if_set() -> None:
    """A recipe without them has the same identity as before there were such keys."""
    one = MATCHING["siamese"].model_validate({"name": "siamese", "loss": "kl"})
    assert (one.losses, one.weights, one.unit) == ({"kl": 1.0}, {"kl": 1.0}, "group")
    assert one.model_dump()["loss"] == "kl"
    assert not one.model_dump().keys() & {"candidates", "teacher_scale", "dimensions"}
    table = {"softmax": 1.0, "kl": 0.5}
    given = {"name": "siamese", "loss": table, "candidates": {"per_query": 8}, "teacher_scale": "min_max"}
    several = MATCHING["siamese"].model_validate(given)
    assert (several.weights, several.unit, several.negatives) == (table, "positive", "micro_batch")
    assert MATCHING["siamese"].model_validate(several.model_dump()) == several
    with pytest.raises(ValueError, match="classes cannot be one of several losses"):
        MATCHING["cross_encoder"].model_validate({"name": "cross_encoder", "loss": {"classes": 1}, "classes": 3})


def test_several_special_tokens_need_cls_pooling() -> None:
    with pytest.raises(ValueError, match="method.special_tokens=3 are pooled by their own states"):
        MATCHING["siamese"].model_validate({"name": "siamese", "special_tokens": 3, "pooling": "mean"})


def test_a_length_has_room_for_text_beside_a_long_frame() -> None:
    config = MATCHING["siamese"].model_validate({"name": "siamese", "max_query_tokens": 4, "max_document_tokens": 5})
    config.check_frame(tiny.VOCABULARY)
    with pytest.raises(ValueError, match="max_query_tokens: 4 tokens have no room for text beside the 4 that"):
        config.check_frame(LongFrame(**vars(tiny.VOCABULARY)))


class LongFrame(Vocabulary):
    """A tokenizer's, which puts two tokens before and two after a text."""

    text_frame = ((2, 2), (3, 3))


def test_a_frozen_seed_encoder_has_no_masked_words() -> None:
    config = PRETRAINING["seed"].model_validate({"name": "seed", "freeze_encoder": True})
    assert config.weights == {"decoder": 1.0}
    assert config.needs_trained_encoder


def test_which_losses_depend_on_the_other_examples_of_the_micro_batch() -> None:
    """The losses of all others add up over examples: tests.models.checks.losses_add_up."""
    needed = {name: {"hard_negatives": 1} for name in ("cross_encoder", "cross_thought_answers", "duobert")}
    needed |= {"cross_thought_pairs": {"classes": 2}, "label_ranker": {"hard_negatives": 1}}
    configs = (PRETRAINING | MATCHING).items()
    methods = [config.model_validate({"name": name, **needed.get(name, {})}) for name, config in configs]
    for keys in ({"negatives": "own", "hard_negatives": 1}, {"negatives": "step"}):
        methods.append(MATCHING["siamese"].model_validate({"name": "siamese", **keys}))
    methods.append(PRETRAINING["pairs"].model_validate({"name": "pairs", "negatives": "step"}))
    comparing = [method.name for method in methods if method.compares_micro_batch]
    assert comparing == ["ict", "pairs", "siamese", "poly_encoder", "colbert", "sparse"]
