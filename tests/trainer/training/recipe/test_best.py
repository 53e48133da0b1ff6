"""The best of the probes so far, against plain lists."""

from hypothesis import given
from hypothesis import strategies as st

from deepsiam.trainer.training.recipe.best import Best


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_the_best_is_the_first_highest_and_the_count_is_of_those_since(values: list[int]) -> None:
    best = Best()
    for step, value in enumerate(values):
        best = best.after(step, value / 5, "ndcg@10 of dev")
    at = values.index(max(values))
    assert (best.value, best.step, best.bad) == (max(values) / 5, at, len(values) - 1 - at)


def test_a_repeated_probe_is_not_counted_again() -> None:
    once = Best().after(0, 0.5, "a").after(10, 0.4, "a")
    assert once.after(10, 0.4, "a") == once
    assert once.after(10, 0.6, "a") == once
    assert once.bad == 1


def test_a_probe_of_the_last_step_alone_is_none_without_a_gain() -> None:
    once = Best().after(0, 0.5, "a").after(5, 0.4, "a", is_extra=True)
    assert (once.value, once.bad, once.last) == (0.5, 0, 5)
    assert once.after(10, 0.4, "a").bad == 1
    better = once.after(15, 0.6, "a", is_extra=True)
    assert (better.value, better.step, better.bad) == (0.6, 15, 0)


def test_another_measure_starts_anew() -> None:
    best = Best().after(0, 0.5, "ndcg@10 of dev").after(10, 0.4, "ndcg@10 of dev").after(20, 0.1, "mrr@10 of dev")
    assert (best.value, best.step, best.bad) == (0.1, 20, 0)
