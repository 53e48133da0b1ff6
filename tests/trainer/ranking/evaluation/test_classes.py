"""The accuracy of models that predict the class of a pair, compared with the majority class."""

from pathlib import Path

import numpy as np
import pytest

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer.ranking.evaluation.classes import compare_classes, read_classes
from deepsiam.trainer.ranking.evaluation.metrics import paired_permutation_test
from deepsiam.trainer.ranking.evaluation.results_file import Classes
from deepsiam.trainer.ranking.evaluation.task import Task
from tests.trainer.ranking.retrieval.fakes import overlap_run, plain_overlap, systems_of, tokens_run
from tests.trainer.ranking.retrieval.small_collections import CLASSES, labelled_pairs


@pytest.fixture(scope="module")
def pairs(toy_collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return labelled_pairs(tmp_path_factory.mktemp("pairs") / "c", toy_collection / "tokenizer.json")


def plain_right(pairs: Collection, shift: int = 0) -> np.ndarray:
    """For each pair, whether `Overlap` predicts the right class."""
    groups, right = pairs.groups("test"), []
    for i in range(len(groups)):
        query, (document,), (label,) = groups[i]
        tokens = pairs.queries.tokens(query)[:6].tolist(), pairs.corpus.tokens(document)[:14].tolist()
        right.append((plain_overlap(*tokens) + shift) % 3 == label)
    return np.array(right, np.float64)


def test_accuracy_is_that_of_a_plain_loop(pairs: Collection) -> None:
    first, second = overlap_run(pairs, classes=3), overlap_run(pairs, classes=3)
    shifted = second.model.score_pairs
    second.model.score_pairs = lambda **arrays: shifted(**arrays).roll(1, dims=1)
    results = compare_classes(systems_of(pairs, {"a": first, "b": second}), "test")
    right = plain_right(pairs), plain_right(pairs, shift=1)
    accuracies = [results.systems[name].metrics["accuracy"] for name in ("a", "b")]
    assert accuracies == pytest.approx([row.mean() for row in right])
    assert 0 < accuracies[0] != accuracies[1] < 1
    assert [pair.p_value for pair in results.pairs] == [paired_permutation_test(right[1], right[0])]
    labels = np.asarray(pairs.groups("test").labels)
    shares = {name: float((labels == i).mean()) for i, name in enumerate(CLASSES)}
    assert results.about.classes == Classes(pairs=60, shares=shares)
    assert results.about.queries <= 60


def test_classes_are_no_judgements_to_rank_by(pairs: Collection) -> None:
    with pytest.raises(InputError, match="splits/test: its labels are classes, not relevance: .*--classes"):
        Task.of(pairs, "test")


def test_models_and_splits_without_classes_are_refused(pairs: Collection, opened: Collection) -> None:
    with pytest.raises(InputError, match="splits/test: its labels are not classes: leave out --classes"):
        read_classes(opened, "test")
    with pytest.raises(InputError, match="no split 'dev'; choose one of: test"):
        read_classes(pairs, "dev")
    told = "method.loss=binary does not predict classes: .* method.loss=classes, or leave out --classes"
    with pytest.raises(InputError, match=told):
        compare_classes(systems_of(pairs, {"m": overlap_run(pairs)}), "test")
    with pytest.raises(InputError, match="a tokens with method.loss=softmax does not predict classes"):
        compare_classes(systems_of(pairs, {"m": tokens_run(pairs)}), "test")


def test_a_model_of_other_classes_is_refused_before_all_pairs_are_read(pairs: Collection) -> None:
    trained = overlap_run(pairs, classes=2)
    with pytest.raises(InputError, match="predicts 2 classes, .* has 3: entailment, neutral, contradiction"):
        compare_classes(systems_of(pairs, {"m": trained}), "test")
    assert [rows for rows, _ in trained.model.batches] == [1]
