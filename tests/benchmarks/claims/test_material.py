"""The material of the claims: no query is trained on, chosen with and ranked; all rivals read the same text."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.claims import material
from benchmarks.claims.material import CLASSIC, FOLDS
from benchmarks.claims.tunings import COLLECTIONS, by_table, tunings
from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer

QUERIES, DOCUMENTS, DEV_POOL = 62, 500, 200


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up Cranfield and Vaswani, two articles of Wikipedia and a book."""
    folder = tmp_path_factory.mktemp("data")
    for name in CLASSIC:
        for part, letter, number in (("corpus", "d", DOCUMENTS), ("queries", "q", QUERIES)):
            lines = (json.dumps({"_id": f"{letter}{i}", "text": f"word {i}"}) for i in range(number))
            material.write(folder / name / f"{part}.jsonl", lines)
        judged = [f"q{i}\td{7 * i}\t1" for i in range(QUERIES)]
        material.write(folder / name / "qrels" / "train.tsv", ["query-id\tcorpus-id\tscore", *judged])
    articles = (("AA", "1", "Trees", "Trees\n\nAn oak is a tree. So is an elm.\n"), ("AB", "2", "Ships", "A ship."))
    for place, number, title, text in articles:
        article = {"id": number, "url": "", "title": title, "text": text}
        material.write(folder / "wiki" / place / "wiki_00", [json.dumps(article)])
    material.write(folder / "books" / "one.txt", ["It was a dark night.", "", "The rain fell."])
    return folder


@pytest.fixture(scope="module")
def collection(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """The collections joined; read only."""
    out = tmp_path_factory.mktemp("out")
    vocabulary = tokenizer.train([f"word {i}" for i in range(100)], 64, out / "tokenizer.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(material, "data_prep", lambda *arguments: main([*arguments]))
        patch.setattr(material, "DEV_POOL", DEV_POOL)
        yield Collection.open(material.classic(data, out, vocabulary.path))


def test_a_query_is_trained_on_or_chosen_with_in_one_fold_and_ranked_there(collection: Collection) -> None:
    parts = {}
    for fold in FOLDS:
        trained = collection.qrels(fold)
        chosen, ranked = (
            {q: d for name in CLASSIC for q, d in collection.qrels(f"{name}-{fold}{end}").items()}
            for end in ("-dev", "")
        )
        assert not trained.keys() & chosen.keys()
        assert {**trained, **chosen} == ranked
        assert len(chosen) < len(trained) < 4 * len(chosen)
        parts[fold] = ranked.keys()
    first, second = parts.values()
    assert not first & second
    assert len(first) + len(second) == 2 * QUERIES
    splits = [collection.qrels(split).keys() for split in collection.splits()]
    for start in range(0, QUERIES, material.TOGETHER):  # neighbouring queries stay in one part
        ten = {f"cranfield/q{i}" for i in range(start, min(start + material.TOGETHER, QUERIES))}
        assert all(ten <= queries or not ten & queries for queries in splits)


def test_the_pools_are_of_the_querys_own_collection(collection: Collection) -> None:
    for split in set(collection.splits()) - set(FOLDS):
        name = split.split("-")[0]
        pool = [collection.corpus.ids[i] for i in collection.pool(split)]
        assert {document.split("/")[0] for document in pool} == {name}
        assert {d for judged in collection.qrels(split).values() for d in judged} <= set(pool)
        smallest, largest = (DEV_POOL, 3 * DEV_POOL // 2) if split.endswith("-dev") else (DOCUMENTS, DOCUMENTS)
        assert smallest <= len(pool) <= largest


def test_a_fine_tuning_ranks_the_fold_that_it_is_not_trained_on() -> None:
    docstrings, *folds = every = tunings(None, None)  # type: ignore[arg-type]
    assert (docstrings.settings.get("data.split", "train"), docstrings.dev) == ("train", ("dev",))
    assert docstrings.ranked == {"docstrings": "test"}
    for tuning, fold, other in zip(folds, FOLDS, reversed(FOLDS), strict=True):
        assert tuning.settings["data.split"] == other
        assert set(tuning.dev) == {f"{name}-{other}-dev" for name in CLASSIC}
        assert tuning.ranked == {name: f"{name}-{fold}" for name in CLASSIC}
    splits = [split for tuning in every for split in tuning.ranked.values()]
    values = {split: [float(number)] * (number + 1) for number, split in enumerate(splits)}
    joined = by_table((tuning, values) for tuning in every)
    assert tuple(joined) == COLLECTIONS
    assert sum(map(len, joined.values())) == sum(map(len, values.values()))
    assert joined["vaswani"] == [*values["vaswani-first"], *values["vaswani-second"]]
