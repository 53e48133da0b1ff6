"""Article search: one sentence of each article is its query; splits by hash or by folder; pools of a fixed size."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.collections.build import build
from deepsiam.data_prep.collections.formats import wikipedia_search
from deepsiam.data_prep.collections.formats.wikipedia_search import WikipediaSearch
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import raw

HEADED = "History\n\n{0} {1}\n{2}\n\nCareer.\n{3}"  # only the first paragraph below the heading has several sentences


def articles(number: int, first: int = 0) -> list[dict[str, Any]]:
    said = [
        f"The fox {chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)} sleeps."
        for i in range(4 * (first + number))
    ]
    return [
        {"id": str(i + 1), "revid": "", "url": "", "title": f"T{i}", "text": HEADED.format(*said[4 * i : 4 * i + 4])}
        for i in range(first, first + number)
    ]


def write(file: Path, records: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def test_a_sentence_is_removed_from_its_article(tmp_path: Path) -> None:
    texts = ("", "Only one sentence.", "One.\n\nTwo.")  # a redirect, and articles without a sentence to remove
    short = [{"id": str(900 + i), "text": text} for i, text in enumerate(texts)]
    write(tmp_path / "AA" / "wiki_00", [*short, *articles(40)])
    reader = WikipediaSearch([tmp_path / "AA"])
    queries, corpus = {t.id: t.parts for t in reader.queries()}, {t.id: t.parts for t in reader.corpus()}
    assert list(queries) == list(corpus) == [f"wikipedia/{number}" for number in range(1, 41)]
    firsts = 0
    for record in articles(40):
        (query,), (rest,) = queries[f"wikipedia/{record['id']}"], corpus[f"wikipedia/{record['id']}"]
        _, _, paragraph, *others = record["text"].split("\n")
        sentences = [part if part.endswith(".") else f"{part}." for part in paragraph.split(". ")]
        assert query in sentences  # neither a heading nor the only sentence of a paragraph
        kept = " ".join(sentence for sentence in sentences if sentence != query)
        assert rest == " ".join(["History", kept, *filter(None, others)])
        firsts += query == sentences[0]
    assert 8 < firsts < 32


@pytest.mark.parametrize(("pool", "size"), [(7, 7), (30, 10), (1000, 10)])
def test_splits_by_hash_and_their_pools(
    tmp_path: Path, small: Tokenizer, monkeypatch: pytest.MonkeyPatch, pool: int, size: int
) -> None:
    monkeypatch.setattr(wikipedia_search, "POOL", pool)
    opened = build("wikipedia_search", [write(tmp_path / "wiki_00", articles(100))], tmp_path / "out", small)
    judged = {split: opened.qrels(split) for split in opened.splits()}
    assert {split: len(qrels) for split, qrels in judged.items()} == {
        "dev": size,
        "test": size,
        "train": 100 - 2 * size,
    }
    assert len(set().union(*judged.values())) == 100
    assert len(opened.pool("train")) == 100
    for split, other in (("dev", "test"), ("test", "dev")):
        assert judged[split] == {name: {name: 1} for name in judged[split]}
        ranked = {opened.corpus.ids[number] for number in opened.pool(split).tolist()}
        assert len(ranked) == min(pool, 100 - size)
        assert judged[split].keys() <= ranked
        assert not ranked & judged[other].keys()


def test_the_splits_do_not_depend_on_the_order_of_the_articles(tmp_path: Path) -> None:
    records = articles(60)
    one = WikipediaSearch([write(tmp_path / "one" / "wiki_00", records)])
    write(tmp_path / "two" / "wiki_00", records[30:])
    two = WikipediaSearch([tmp_path / "two", write(tmp_path / "wiki_01", records[29::-1])])
    for split in ("dev", "test"):
        assert [g.query for g in one.groups(split)] == [g.query for g in two.groups(split)]
    assert {t.id: t.parts for t in one.queries()} == {t.id: t.parts for t in two.queries()}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty articles with headings, a quarter held out; read only."""
    folder = tmp_path_factory.mktemp("wikipedia")
    pages = [f"{text}\n\n== History of it ==\n\n{text[::-1].lower()}." for text in raw.texts(80)]
    raw.run(
        "wikipedia",
        raw.write_wikipedia(folder / "a-pages-articles.xml", pages),
        "--out",
        folder / "out",
        "--held-out",
        "0.25",
    )
    return folder / "out"


def test_prepared_articles_and_those_held_out(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia_search, "POOL", 40)
    opened = build("wikipedia_search", [prepared], tmp_path / "out", tokenizer.load(prepared / "shards"))
    held_out = {document.id for document in raw.documents(prepared, "held_out")}
    assert opened.splits() == ["dev", "train"]
    assert set(opened.qrels("dev")) == held_out
    assert len(held_out) + len(opened.groups("train")) == len(opened.corpus) == 80
    assert len(opened.pool("dev")) == 40 > len(held_out) > 5
    texts = raw.decoded(prepared) | raw.decoded(prepared, "held_out")
    for document in (*raw.documents(prepared), *raw.documents(prepared, "held_out")):
        segments = texts[document.id]
        query = opened.queries.text(opened.queries.ids.number(document.id))
        (chosen,) = [i for i, segment in enumerate(segments) if segment == query]
        assert chosen not in document.headings
        assert document.headings  # there are headings to avoid
        rest = opened.corpus.text(opened.corpus.ids.number(document.id))
        assert rest == " ".join(segments[:chosen] + segments[chosen + 1 :])


def test_a_split_by_name_and_one_larger_than_its_pool(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia_search, "POOL", 6)
    reader = WikipediaSearch([prepared / "shards", Path(f"test={prepared / 'held_out'}")])
    assert sorted(reader.splits()) == ["test", "train"]
    judged = [group.query for group in reader.groups("test")]
    pool = reader.pool("test")
    assert pool is not None
    assert len(judged) == 6
    assert [name for name, _ in pool] == judged
    alone = WikipediaSearch([prepared / "held_out"])
    assert alone.splits() == ["dev"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "wiki_00:21: not JSON"),
        ("[]", "wiki_00:21: not a JSON object"),
        ('{"id": "x", "text": "A. B."}', "wiki_00:21: `id` is not the number of a page"),
        ('{"id": "77"}', "wiki_00:21: no `text`"),
        (json.dumps(articles(2)[1] | {"id": "1"}), "wiki_00:21: id 'wikipedia/1' is already on line 1"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, small: Tokenizer, line: str, reason: str) -> None:
    file = write(tmp_path / "wiki_00", articles(20))
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(InputError, match=reason):
        build("wikipedia_search", [file], tmp_path / "out", small)


def test_what_cannot_be_searched_is_refused(tmp_path: Path, small: Tokenizer) -> None:
    few = write(tmp_path / "wiki_00", articles(9))
    export = raw.write_wikipedia(tmp_path / "a-pages-articles.xml", raw.texts(3))
    raw.run("wikipedia", export, "--out", tmp_path / "whole", "--paragraphs")
    raw.run("reddit", raw.write_reddit(tmp_path / "raw", [raw.texts(3, sentences=1)]), "--out", tmp_path / "reddit")
    (tmp_path / "empty").mkdir()
    for given, problem in (
        (few, "wiki_00: 9 articles of several sentences are too few to cut splits from"),
        (export, "articles.xml: not WikiExtractor's JSON lines; run `data_prep wikipedia`"),
        (tmp_path / "empty", "empty: no wiki_NN"),
        (tmp_path / "whole", "shards: its segments are paragraphs; prepare it without --paragraphs"),
        (tmp_path / "reddit", "shards: its documents are dialogues, not articles"),
    ):
        with pytest.raises(InputError, match=problem):
            build("wikipedia_search", [given], tmp_path / "out", small)
