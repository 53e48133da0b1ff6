"""The material of the claims benchmark: its folds, and the text of its tokenizer."""

import json
from pathlib import Path

import pytest

from benchmarks.claims import material
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer

QUERIES, DOCUMENTS = 62, 5000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up Cranfield and Vaswani, a line of Wikipedia and a book."""
    folder = tmp_path_factory.mktemp("data")
    for name in material.CLASSIC:
        for part, letter, number in (("corpus", "d", DOCUMENTS), ("queries", "q", QUERIES)):
            lines = [json.dumps({"_id": f"{letter}{i}", "text": f"word {i}"}) for i in range(number)]
            write(folder / name / f"{part}.jsonl", lines)
        judged = [f"q{i}\td{7 * i}\t1" for i in range(QUERIES)]
        write(folder / name / "qrels" / "train.tsv", ["query-id\tcorpus-id\tscore", *judged])
    return folder


@pytest.fixture(scope="module")
def collection(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """The collections joined; read only."""
    out = tmp_path_factory.mktemp("out")
    vocabulary = tokenizer.train([f"word {i}" for i in range(100)], 64, out / "tokenizer.json")
    return Collection.open(material.classic(data, out, vocabulary.path))


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def test_a_query_is_trained_on_or_chosen_with_in_one_fold_and_ranked_there(collection: Collection) -> None:
    parts = {}
    for fold in material.FOLDS:
        trained = collection.qrels(fold)
        chosen, ranked = (
            {q: d for name in material.CLASSIC for q, d in collection.qrels(f"{name}-{fold}{end}").items()}
            for end in ("-dev", "")
        )
        assert not trained.keys() & chosen.keys()
        assert {**trained, **chosen} == ranked
        assert len(chosen) < len(trained) < 4 * len(chosen)
        parts[fold] = ranked.keys()
    first, second = parts.values()
    assert not first & second
    assert len(first) + len(second) == 2 * QUERIES


def test_neighbouring_queries_stay_in_one_part(collection: Collection) -> None:
    splits = {split: collection.qrels(split).keys() for split in collection.splits()}
    for start in range(0, QUERIES, material.TOGETHER):
        ten = {f"cranfield/q{i}" for i in range(start, min(start + material.TOGETHER, QUERIES))}
        assert all(ten <= queries or not ten & queries for queries in splits.values())


def test_the_pools_are_of_the_querys_own_collection(collection: Collection) -> None:
    for split in collection.splits():
        name = split.split("-")[0]
        if name in material.CLASSIC:
            pool = [collection.corpus.ids[i] for i in collection.pool(split)]
            assert {document.split("/")[0] for document in pool} == {name}
            assert {d for judged in collection.qrels(split).values() for d in judged} <= set(pool)
            smallest, largest = (2000, 3000) if split.endswith("-dev") else (DOCUMENTS, DOCUMENTS)
            assert smallest <= len(pool) <= largest


def test_the_tokenizer_sees_as_many_characters_of_each_source(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"a": [f"a{i:03}" for i in range(100)], "b": ["b" * 30] * 10, "c": ["c" * 1000]}
    assert characters(sources) == {"a": 300, "b": 300, "c": 300}  # as many as the smallest source has
    monkeypatch.setattr(material, "SAMPLE", 50)
    assert characters(sources) == {"a": 50, "b": 50, "c": 50}
    shortest = [text for text in material.mixed(sources) if text[0] == "a"]
    assert shortest != sorted(shortest)  # taken from the whole source, not from its beginning


def characters(sources: dict[str, list[str]]) -> dict[str, int]:
    """Count the characters of each source; its texts begin with its name."""
    found = dict.fromkeys(sources, 0)
    for text in material.mixed(sources):
        found[text[0]] += len(text)
    return found


def test_the_text_of_each_source_is_read(data: Path, toy_collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    article = {"id": "1", "url": "", "title": "Trees", "text": "Trees\n\nAn oak is a tree. So is an elm.\n"}
    write(data / "wiki" / "AA" / "wiki_00", [json.dumps(article)])
    write(data / "wiki" / "AB" / "wiki_00", [json.dumps({**article, "id": "2", "title": "Ships", "text": "A ship."})])
    write(data / "books" / "one.txt", ["It was a dark night.", "", "The rain fell."])
    demo = data / "demo"
    demo.mkdir()
    (demo / "collection").symlink_to(toy_collection)
    monkeypatch.setattr(material, "DOCSTRINGS", demo)
    read = material.texts(data)
    assert set(read) == set(material.MIXED)
    assert any("An oak is a tree." in text for text in read["wikipedia"])
    assert {"It was a dark night.", "The rain fell."} <= set(read["bookcorpus"])
    collection = Collection.open(toy_collection)
    texts = dict(zip(collection.queries.ids, collection.queries.texts(), strict=True))
    trained, tested = ({texts[query] for query in collection.qrels(split)} for split in ("train", "test"))
    assert trained <= set(read["docstrings"])
    assert not (tested - trained) & set(read["docstrings"])
