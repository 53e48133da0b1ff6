"""Method configurations refuse values that their batchers and models cannot use, and name the key."""

import pytest

from deepsiam.models.registry import MATCHING, PRETRAINING


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
    config = {**PRETRAINING, **MATCHING}[name]
    config.model_validate({"name": name})
    for value in values:
        with pytest.raises(ValueError, match=key):
            config.model_validate({"name": name, key: value})


def test_which_losses_depend_on_the_other_examples_of_the_micro_batch() -> None:
    """The losses of all others add up over examples: tests.models.checks.losses_add_up."""
    needed = {name: {"hard_negatives": 1} for name in ("cross_encoder", "cross_thought_answers", "duobert")}
    needed |= {"cross_thought_pairs": {"classes": 2}, "label_ranker": {"hard_negatives": 1}}
    configs = {**PRETRAINING, **MATCHING}.items()
    methods = [config.model_validate({"name": name, **needed.get(name, {})}) for name, config in configs]
    for keys in ({"negatives": "own", "hard_negatives": 1}, {"negatives": "step"}):
        methods.append(MATCHING["siamese"].model_validate({"name": "siamese", **keys}))
    methods.append(PRETRAINING["pairs"].model_validate({"name": "pairs", "negatives": "step"}))
    comparing = [method.name for method in methods if method.compares_micro_batch]
    assert comparing == ["ict", "pairs", "siamese", "poly_encoder", "colbert", "sparse"]
