"""Matching models' keys: losses of a recipe, a teacher's keys, and lengths that have room for text."""

import pytest

from deepsiam.models.registry import MATCHING
from tests.models import tiny


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
        config.check_frame(tiny.LongFrame(**vars(tiny.VOCABULARY)))
