from deepsiam.trainer.training.recipe.data_keys import of_source, with_own_keys


def test_a_message_on_a_source_of_a_mix_names_its_own_keys() -> None:
    binary = "method.loss=binary: every pair of split train is relevant: draw negatives (method.negatives_per_query)"
    own = "data.mix.a b.loss=binary: every pair of split train is relevant: draw negatives (data.mix.a b.negatives_per_"
    assert of_source("a b", binary).startswith(own)
    assert of_source("", binary) == binary
    assert with_own_keys("", binary) == binary
    assert of_source("a", "set method.hard_negatives") == "data.mix.a: set data.mix.a.hard_negatives"
    assert of_source("a", "method.classes: 3") == "data.mix.a: method.classes: 3"  # no source has one of its own
