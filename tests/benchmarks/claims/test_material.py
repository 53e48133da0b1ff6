"""The material of the claims: no query is trained on, chosen with and ranked; all rivals read the same text."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.claims import material
from benchmarks.claims.cut_bm25 import cut, evaluate_cut_bm25
from benchmarks.claims.material import CLASSIC, FOLDS
from benchmarks.claims.tunings import COLLECTIONS, by_table, tunings
from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.trainer.ranking.evaluation.task import evaluate_split
from deepsiam.trainer.ranking.rankers.bm25 import Bm25Ranker

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


@pytest.mark.parametrize(("sample", "share"), [(50, 50), (10**7, 300)])  # at most as many as the smallest source has
def test_the_tokenizer_sees_as_many_characters_of_each_source(
    sample: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(material, "SAMPLE", sample)
    sources = {"a": [f"a{i:03}" for i in range(100)], "b": ["b" * 30] * 10, "c": ["c" * 1000]}
    texts = list(material.mixed(sources))
    sizes = {name: sum(len(text) for text in texts if text[0] == name) for name in sources}
    assert sizes == dict.fromkeys(sources, min(share, 300))
    shortest = [text for text in texts if text[0] == "a"]
    assert shortest != sorted(shortest)  # taken from the whole source, not from its beginning


def test_the_text_of_each_source_is_read(
    data: Path, toy_collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "collection").symlink_to(toy_collection)
    monkeypatch.setattr(material, "DOCSTRINGS", tmp_path)
    read = material.texts(data)
    assert set(read) == set(material.MIXED)
    assert any("An oak is a tree." in text for text in read["wikipedia"])
    assert {"It was a dark night.", "The rain fell."} <= set(read["bookcorpus"])
    collection = Collection.open(toy_collection)
    texts = dict(zip(collection.queries.ids, collection.queries.texts(), strict=True))
    trained, tested = ({texts[query] for query in collection.qrels(split)} for split in ("train", "test"))
    assert trained <= set(read["docstrings"])
    assert not (tested - trained) & set(read["docstrings"])


def test_bm25_reads_the_whole_words_among_a_texts_first_tokens(toy_collection: Path) -> None:
    collection = Collection.open(toy_collection)
    made_up = [
        "An unheard-of word:  supercalifragilistic, again\nand again. ",
        "don't stop",
        "naïve café",
        "a\u00a0b\tc",
    ]
    texts = [*made_up, *collection.corpus.texts(), ""]
    for max_tokens in (3, 10, 16):
        for text, kept in zip(texts, cut(texts, collection.tokenizer, max_tokens), strict=True):
            words = text.split()
            n = len(kept.split())
            assert kept.split() == words[:n]
            read, with_next, whole = collection.tokenizer.encode([kept, " ".join(words[: n + 1]), text])
            np.testing.assert_array_equal(read, whole[: len(read)])
            assert len(read) <= max_tokens - 2
            assert n == len(words) or len(with_next) > max_tokens - 2
    whole_texts = evaluate_split(Bm25Ranker(collection), "test")
    within = evaluate_cut_bm25(collection, "test", max_query_tokens=500, max_document_tokens=500)
    np.testing.assert_array_equal(within.values["mrr@10"], whole_texts.values["mrr@10"])
    # a query is the first sentence of its document: truncated texts still share words, but fewer
    shorter = evaluate_cut_bm25(collection, "test", max_query_tokens=6, max_document_tokens=6)
    assert 0 < shorter.means["recall@100"] < whole_texts.means["recall@100"] + 1e-9
    assert not np.array_equal(shorter.values["mrr@10"], whole_texts.values["mrr@10"])
