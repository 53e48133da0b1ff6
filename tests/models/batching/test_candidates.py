"""The negatives that are drawn for a query."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.models.batching.candidates import Candidates, scores_of
from tests.models.matching.examples import Corpus, positive

DOCUMENTS = 12  # ten texts: documents 10 and 11 are copies of 0 and 1


@given(own=st.sets(st.integers(0, DOCUMENTS - 1), max_size=4), relevant=st.integers(0, 9), seed=st.integers(0, 99))
def test_negatives_at_random_have_no_text_of_its_own_or_of_a_relevant_one(
    own: set[int], relevant: int, seed: int
) -> None:
    candidates = Candidates(Corpus(), np.arange(DOCUMENTS))
    example = positive(relevant, given=sorted(own - {relevant}))
    first, *negatives = candidates.choose(example, len(own), 3, np.random.default_rng(seed))
    hard = [i for i in negatives if i in own and i % 10 != relevant]
    at_random = negatives[len(hard) :]
    assert first == relevant
    assert len(negatives) == len(own) + 3
    assert set(hard) == {i for i in own if i % 10 != relevant}
    assert not {i % 10 for i in at_random} & {relevant, *(i % 10 for i in own)}


@pytest.mark.parametrize(("query", "unknown"), [([6, 6], 7), ([6, 6], None), ([6, 6], 6), ([30, 31], 7), ([], 7)])
def test_the_querys_own_text_is_never_a_negative(query: list[int], unknown: int | None) -> None:
    """Unless one of its tokens is unknown: another text may have the same tokens then."""
    candidates = Candidates(Corpus(), np.arange(DOCUMENTS), unknown)
    example = positive(5, query=query, given=[1, 2])  # documents 1 and 11 are the text 6 6
    own = query == [6, 6] and unknown != 6
    chosen = [candidates.choose(example, 2, 4, np.random.default_rng(seed))[1:] for seed in range(20)]
    drawn = {i for negatives in chosen for i in negatives}
    assert drawn & {1, 11} == (set() if own else {1})  # 11 is a copy of the given 1
    assert all(2 in negatives for negatives in chosen)


@given(mined=st.permutations(range(1, 10)), other=st.integers(10, 11), seed=st.integers(0, 99))
def test_a_list_with_another_document_changes_one_mined_negative_at_most(
    mined: list[int], other: int, seed: int
) -> None:
    """Neither the order of a mined list nor a document more or less changes what else is drawn."""
    candidates = Candidates(Corpus(), np.arange(DOCUMENTS))

    def drawn(negatives: list[int]) -> list[int]:
        example = replace(positive(0, given=negatives), mined=True)
        first, *found = candidates.choose(example, 3, 2, np.random.default_rng(seed))
        assert first == 0
        assert set(found[:3]) <= {i for i in negatives if i % 10}  # document 10 is a copy of the relevant one
        return found

    before = drawn(mined)
    assert drawn(sorted(mined)) == before
    assert len(set(drawn([other, *mined[1:]])[:3]) - set(before[:3])) <= 1
    assert len(set(drawn(mined[1:])[:3]) - set(before[:3])) <= 1


def test_mined_negatives_are_drawn_equally_often_and_anew() -> None:
    candidates = Candidates(Corpus(), np.arange(DOCUMENTS))
    example = replace(positive(0, given=[2, 3, 5, 7]), mined=True)
    pairs = Counter(tuple(candidates.choose(example, 2, 0, np.random.default_rng(i))[1:]) for i in range(2400))
    assert len(pairs) == 12
    assert all(150 < count < 250 for count in pairs.values())  # 200 +- 13.5


def test_too_few_are_refused() -> None:
    candidates = Candidates(Corpus(), np.arange(3))
    with pytest.raises(ValueError, match="only 1 negatives to draw from, not 2"):
        candidates.choose(positive(0, 1), 0, 2, np.random.default_rng(0))


@pytest.mark.parametrize("mined", [False, True])
def test_a_query_with_too_few_own_negatives_has_fewer(mined: bool) -> None:
    candidates = Candidates(Corpus(), np.arange(3))
    example = replace(positive(0, 1, given=[2]), mined=mined)
    assert candidates.choose(example, 2, 0, np.random.default_rng(0)) == [0, 2]


@given(
    scores=st.dictionaries(st.integers(0, 9), st.floats(-50, 50, width=32), min_size=2),
    most=st.integers(2, 8),
    any_label=st.booleans(),
    seed=st.integers(0, 99),
)
def test_scored_candidates_are_drawn_by_the_examples_rng_and_keep_the_first(
    scores: dict[int, float], most: int, any_label: bool, seed: int
) -> None:
    """The same generator draws the same, whatever was drawn before; each draw has as many as there are."""
    first, *others = scores
    example = replace(positive(first, given=others), scores=np.array([*scores.values()], np.float32))
    candidates = Candidates(Corpus(), np.arange(DOCUMENTS))

    def drawn(seed: int) -> list[int]:
        return candidates.choose_scored(example, most, np.random.default_rng(seed), any_label=any_label)

    chosen = drawn(seed)
    drawn(seed + 1)
    assert drawn(seed) == chosen
    assert chosen[0] == first
    assert len(set(chosen)) == len(chosen) == min(most, len(scores))
    assert set(chosen) <= scores.keys()
    given = scores_of([example], [chosen], "as_given")[0]
    assert given.tolist() == [scores[i] for i in chosen]
    lowest, highest = min(given.tolist()), max(given.tolist())
    expected = [(score - lowest) / (highest - lowest) if highest > lowest else 0.0 for score in given.tolist()]
    np.testing.assert_allclose(scores_of([example], [chosen], "min_max")[0], expected, rtol=1e-5, atol=1e-6)


def test_every_scored_candidate_is_drawn_at_some_time_and_about_as_often() -> None:
    example, candidates = positive(0, given=[1, 2, 3, 4, 5]), Candidates(Corpus(), np.arange(DOCUMENTS))
    rng = np.random.default_rng(0)
    counts = Counter(i for _ in range(600) for i in candidates.choose_scored(example, 3, rng, any_label=False)[1:])
    assert counts.keys() == {1, 2, 3, 4, 5}
    assert all(200 < count < 280 for count in counts.values())  # 240 each
