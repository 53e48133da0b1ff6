"""Configurations of methods: keys that do not go together or are out of range are refused by name."""

from typing import Any

import pytest

from deepsiam.models.registry import METHODS
from tests.models import tiny
from tests.models.variants import VARIANTS, Variant

OWN = "needs a query's own negatives"
LIST = {"template": "{query}:{passages}=", "passage": "{label}{passage};", "labels": [*"ABCD"]}
VALID: dict[str, dict[str, Any]] = {  # what else a method needs
    "cross_thought_answers": {"hard_negatives": 2},
    "cross_thought_pairs": {"classes": 3},
    "duobert": {"hard_negatives": 2},
    "label_ranker": LIST,
    "siamese": {"max_query_tokens": 6, "max_document_tokens": 12},
}
ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("seed", {"loss_weights": {"mlm": 0, "decoder": 0}}, "method.loss_weights: no loss has a weight: set one above 0"),
    ("seed", {"loss_weights": {"decoder": 0}, "freeze_encoder": True}, "set decoder above 0: a frozen encoder has no"),
    ("seed", {"decoder_layers": 10**9}, "method.decoder_layers is 1,000,000,000, and at most"),
    ("seed", {"max_tokens": 10**9}, "method.max_tokens is 1,000,000,000, and at most"),
    ("seed", {"window": 10**9}, "method.window is 1,000,000,000, and at most"),
    ("distil", {"negatives": "own"}, "method.loss=batch_kl compares scores of the batch's documents"),
    ("distil", {"loss": "vectors", "negatives": "step"}, "method.negatives=step is for"),
    ("distil", {"loss": "softmax"}, "vectors"),
    # a query's negatives, and what a loss learns
    ("siamese", {"loss": "hinge"}, f"method.loss=hinge {OWN}"),
    ("siamese", {"negatives": "own"}, f"method.negatives=own {OWN}"),
    ("siamese", {"loss": {"softmax": 1.0, "binary": 1.0}}, f"method.loss=binary {OWN}"),
    ("siamese", {"loss": "kl", "negatives": "step"}, "step is for method.loss=softmax or hinge, not kl: set .*=own"),
    ("siamese", {"loss": "binary", "negatives": "micro_batch"}, "negatives=micro_batch is for method.loss=softmax"),
    ("siamese", {"loss": {"kl": 1.0, "margin_mse": 0.05}, "negatives": "step"}, "or hinge, not kl and margin_mse"),
    ("siamese", {"loss": {"softmax": 1.0, "kl": 1.0}, "hard_negatives": 1}, "loss=kl .* draws no .*candidates"),
    ("siamese", {"candidates": {"per_query": 8}}, "method.candidates belongs to a teacher's scores, .*loss=softmax"),
    ("siamese", {"teacher_scale": "min_max", "loss": "binary"}, "method.teacher_scale belongs to a teacher's scores"),
    ("siamese", {"ignore_above": 0.1, "negatives": "own", "hard_negatives": 1}, "needs in-batch .*: set it to null"),
    ("siamese", {"ignore_above": 0.1, "learn_temperature": True}, "ignore_above is for scores before the temperature"),
    ("siamese", {"ignore_above": -0.1}, "greater than or equal to 0"),
    ("cross_thought_answers", {"hard_negatives": 0}, f"method.negatives=own {OWN}"),
    ("cross_thought_answers", {"temperature": 0.5}, "method.temperature is not for cross_thought_answers"),
    ("cross_thought_answers", {"negatives": "step"}, "'own'"),
    ("cross_thought_pairs", {"classes": None}, "method.classes is the number, 2 or more"),
    ("cross_thought_pairs", {"loss": "binary"}, "'classes'"),
    ("cross_encoder", {}, f"method.loss=softmax {OWN}"),
    ("cross_encoder", {"loss": "classes"}, "set both or neither"),
    ("cross_encoder", {"loss": "classes", "classes": 1}, "2 or more"),
    ("cross_encoder", {"loss": "kl", "classes": 3}, "set both or neither"),
    ("cross_encoder", {"loss": {"classes": 1}, "classes": 3}, "classes cannot be one of several losses"),
    ("cross_encoder", {"loss": "kl", "pooling": "first_m"}, "'cls', 'last', 'mean' or 'max'"),
    ("cross_encoder", {"loss": "classes", "classes": 3, "hard_negatives": 1}, "loss=classes .* draws no negatives"),
    ("cross_encoder", {"loss": "kl", "negatives_per_query": 1}, "method.loss=kl .* draws no negatives"),
    ("cross_encoder", {"loss": "kl", "hidden_layer": False, "hidden_norm": True}, "hidden_norm need the hidden layer"),
    ("duobert", {"hard_negatives": 0}, "method.hard_negatives, .* or method.negatives_per_query"),
    ("duobert", {"loss": "kl"}, "'binary'"),
    ("duobert", {"pooling": "first_m"}, "'cls', 'last', 'mean' or 'max'"),
    ("label_ranker", {"template": "{passages}"}, r"method.template: needs a place for the \{query\}"),
    ("label_ranker", {"template": "{query}"}, r"one for either the \{passages\} or the \{document\}"),
    ("label_ranker", {"template": "{query}{passages}{document}"}, "method.template: needs a place"),
    ("label_ranker", {"passage": "{passage}"}, r"method.passage: needs a place for the \{label\}"),
    ("label_ranker", {"template": "{query}{document}", "hard_negatives": 1}, "4, but a template .* needs two"),
    ("label_ranker", {"hard_negatives": 4}, "method.labels: 4 are too few for the 5 passages of a query"),
    ("label_ranker", {"loss": "rank_net", "candidates": {"per_query": 5}}, "4 are too few for the 5 passages"),
    ("label_ranker", {"loss": "binary", "hard_negatives": 1}, "method.loss=binary judges one document"),
    ("label_ranker", {}, f"method.loss=softmax {OWN}"),
    ("label_ranker", {"loss": "hinge"}, "'softmax', 'binary', 'kl', 'margin_mse' or 'rank_net'"),
    ("tilde", {"hard_negatives": 1}, "learns from relevant documents alone: leave out method.hard_negatives"),
    ("tilde", {"loss": "query_likelihood"}, "alpha=0.5 ranks by the document_likelihood, which method.loss does not"),
    ("tilde", {"loss": "document_likelihood", "alpha": 1.0}, "method.alpha=1 ranks by the query_likelihood"),
    ("tilde", {"alpha": 1.5}, "less than or equal to 1"),
    # vectors
    ("siamese", {"special_tokens": 3, "pooling": "mean"}, "=3 are pooled by their own states: set method.pooling=cls"),
    ("siamese", {"pooling": "first_m"}, "set both or neither"),
    ("siamese", {"pooled_states": 2}, "set both or neither"),
    ("siamese", {"pooling": "first_m", "pooled_states": 7}, "pooled_states=7 are more than method.max_query_tokens"),
    ("siamese", {"prompt_in_pooling": False}, "prompt_in_pooling=false is for method.pooling=mean, not cls"),
    *[("siamese", {"dimensions": x}, "dimensions") for x in ([8, 8], [4, 8], [0], [], [8, -1], 8, [8.5])],
    ("poly_encoder", {"m": 10, "max_query_tokens": 9}, "m=10 vectors are more than a query's states, .*=9"),
    ("poly_encoder", {"learn_temperature": True}, "learn_temperature is not for poly_encoder: set method.temperature"),
    ("siamese", {"same_side": True, "negatives": "own", "hard_negatives": 1}, "are for a softmax over the batch"),
    ("siamese", {"both_directions": True, "loss": "hinge", "negatives": "micro_batch"}, "set method.loss=softmax"),
    ("siamese", {"both_directions": True, "spread": 0.1}, "compare texts by one vector each"),
    ("sparse", {"head": "linear"}, "set method.query=own_tokens"),
    ("sparse", {"head": "linear", "query": "tokens"}, "set method.document=own_tokens"),
    ("sparse", {"query": "tokens", "towers": 2}, "set method.towers=1"),
    ("sparse", {"query": "tokens", "regularise": {"query": {"l1": 0.1}}}, "method.regularise.query"),
    ("sparse", {"query": "idf", "regularise": {"query": {"l1": 0.1}}}, "with method.query=idf no weight is learned"),
    ("sparse", {"query": "table", "towers": 2}, "method.query=table has no encoder: set method.towers=1"),
    ("sparse", {"query": "tokens", "query_prompt": "find: "}, "query_prompt: with method.query=tokens no encoder"),
    ("sparse", {"regularise": {"query": {"l1": -0.1}}}, "greater than 0"),
    ("sparse", {"regularise": {"query": {"l2": 0.1}}}, "Extra inputs"),
    ("sparse", {"learn_temperature": True}, "Input should be False"),
    ("sparse", {"head": "linear", "query": "tokens", "document": "own_tokens", "start_terms": 9}, "start_terms"),
    ("sparse", {"document": "own_tokens", "start_terms": 9}, "method.document=vocabulary"),
]


@pytest.mark.parametrize(("name", "keys", "words"), ROWS)
def test_keys_that_do_not_go_together_are_refused(name: str, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        METHODS[name].model_validate({"name": name, **VALID.get(name, {}), **keys})


LOSSES = ["some", ["kl"], {}, {"some": 1.0}, {"kl": 0.0}, {"kl": -1.0}, {"kl": "much"}, {"kl": None}]
OUT_OF_RANGE: dict[str, dict[str, list[Any]]] = {
    "mlm": {"max_tokens": [7, "many"], "blocks": ["some"]},
    "seed": {"decoder_layers": [0], "window": [0, "some"], "variant": ["published"]},
    "ict": {"max_tokens": [7], "max_query_tokens": [7], "remove": [-0.1, 1.1]},
    "skip_thought": {"max_tokens": [7], "decoder_layers": [0]},
    "cross_thought": {"sequences": [0], "sequence_tokens": [0], "special_tokens": [0]},
    "retromae": {"encoder_mask": [0.0, 1.0], "decoder_mask": [-0.1, 1.1]},
    "condenser": {"early_layers": [0], "head_layers": [0]},
    # a group has room for at least one pair
    "poly": {"max_tokens": [7], "tokens": [0, 511], "pairs": ["paragraphs"]},
    "pairs": {"max_query_tokens": [2], "negatives": ["own"], "temperature": [0.0], "prompt_in_pooling": [False]},
    "siamese": {
        "temperature": [0.0, -1.0],
        "max_query_tokens": [2],
        "max_document_tokens": [2],
        "loss": LOSSES,
        "candidates": [{"per_query": 1}, {"per_query": 8, "keep": "best"}, 8],
        "teacher_scale": ["max"],
        "negatives_per_query": [-1],
    },
    "poly_encoder": {"m": [0, 361], "codes": ["some"], "reduction": ["max"], "output_scaling": [0.0, -0.06]},
    "colbert": {"dimension": [0], "max_query_tokens": [3], "max_document_tokens": [3]},
}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in OUT_OF_RANGE.items() for key in keys])
def test_a_value_out_of_range_is_refused(name: str, key: str) -> None:
    METHODS[name].model_validate({"name": name})
    for value in OUT_OF_RANGE[name][key]:
        with pytest.raises(ValueError, match=key):
            METHODS[name].model_validate({"name": name, key: value})


def test_a_length_has_room_for_text_beside_a_long_frame() -> None:
    config = METHODS["siamese"].model_validate({"name": "siamese", "max_query_tokens": 4, "max_document_tokens": 5})
    config.check_frame(tiny.VOCABULARY)
    with pytest.raises(ValueError, match="max_query_tokens: 4 tokens have no room for text beside the 4 that"):
        config.check_frame(tiny.LongFrame(**vars(tiny.VOCABULARY)))


def test_several_losses_are_a_table_and_keys_of_a_teacher_are_dumped_only_if_set() -> None:
    """A recipe without them has the same identity as before there were such keys."""
    one = METHODS["siamese"].model_validate({"name": "siamese", "loss": "kl"})
    assert (one.losses, one.weights, one.unit) == ({"kl": 1.0}, {"kl": 1.0}, "group")
    assert one.model_dump()["loss"] == "kl"
    later = {"candidates", "teacher_scale", "dimensions", "query_prompt", "document_prompt", "prompt_in_pooling"}
    assert not one.model_dump().keys() & later
    keys = {"query_prompt": "a", "document_prompt": "b", "prompt_in_pooling": False, "pooling": "mean"}
    assert METHODS["siamese"].model_validate({"name": "siamese", **keys}).model_dump().items() >= keys.items()
    table = {"softmax": 1.0, "kl": 0.5}
    given = {"name": "siamese", "loss": table, "candidates": {"per_query": 8}, "teacher_scale": "min_max"}
    several = METHODS["siamese"].model_validate(given)
    assert (several.weights, several.unit, several.negatives) == (table, "positive", "micro_batch")
    assert METHODS["siamese"].model_validate(several.model_dump()) == several


def test_which_losses_depend_on_the_other_examples_of_the_micro_batch() -> None:
    """The losses of all others add up over examples: tests.models.test_contract."""
    comparing = {variant.name for variant in VARIANTS if variant.keys.compares_micro_batch}
    assert comparing == {"ict", "pairs", "distil", "siamese", "poly_encoder", "colbert", "sparse"}
    alone = {variant.title for variant in VARIANTS if not variant.keys.compares_micro_batch}
    assert alone > {"siamese, kl", "siamese, two towers", "colbert, own", "sparse, own", "distil, vectors"}
    for name in ("siamese", "pairs"):
        assert not METHODS[name].model_validate({"name": name, "negatives": "step"}).compares_micro_batch


def test_an_example_has_the_tokens_of_all_its_texts_and_the_longest_needs_the_positions() -> None:
    expected = {"ict": (24, 34), "pairs": (24, 34), "cross_thought": (10, 60), "poly": (24, 60), "mlm": (24, 24)}
    methods = {name: Variant(name).keys for name in expected}
    assert {name: (method.positions, method.example_tokens) for name, method in methods.items()} == expected
