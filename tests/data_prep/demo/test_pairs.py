import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.demo import pairs
from deepsiam.data_prep.demo.pairs import hold_out, in_hash_order, split, write_collection
from deepsiam.data_prep.sources.docstrings.modules import Docstring
from deepsiam.data_prep.sources.document import Document
from deepsiam.data_prep.text.normalize import fold

LONG = "it has a body of more than fifteen words so that it may be found again by whoever looks"


def docstring(package: str, name: str, summary: str, *body: str) -> Docstring:
    return Docstring(package, Document(f"{package}:{name}", (summary, *body)), 1)


def pair(package: str, number: int) -> Docstring:
    return docstring(package, str(number), f"The summary {number} of {package}.", f"{package} {number}: {LONG}.")


def test_held_out_packages_fill_the_quota_without_overshooting_by_half() -> None:
    pairs = {f"p{number}": 40 + number for number in range(300)} | {"huge": 30_000, "empty": 0}
    splits = hold_out(pairs)
    sizes = {name: sum(pairs[p] for p, s in splits.items() if s == name) for name in ("test", "dev")}
    assert 1100 <= sizes["test"] <= 1650
    assert 550 <= sizes["dev"] <= 825
    assert splits["huge"] == splits["empty"] == "train"
    assert set(splits) == set(pairs)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(0, 500), max_size=40), st.randoms())
def test_the_split_depends_only_on_names_and_numbers(pairs: dict[str, int], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(pairs.items())
    random.shuffle(shuffled)
    assert hold_out(dict(shuffled)) == hold_out(pairs)


def many() -> list[Docstring]:
    return [pair(f"package{p}", n) for p in range(30) for n in range(p + 1)]


def test_no_held_out_text_is_in_training() -> None:
    clean = split(many())
    test = next(p for p, s in clean.packages.items() if s == "test")
    train = next(p for p, s in clean.packages.items() if s == "train")
    held = next(d for d in clean.documents["test"] if d.package == test)
    vendored = Docstring(train, Document(f"{train}:_vendor", (held.summary.upper(), *held.document.segments[1:])), 1)
    body_only = Docstring(train, Document(f"{train}:body", held.document.segments[1:]), 0)
    other_summary = docstring(train, "other", "Another summary of the same.", *held.document.segments[1:])
    parts = split([*many(), vendored, body_only, other_summary])
    assert parts.packages == clean.packages
    training = {d.document.id for d in parts.documents["train"]}
    assert training.isdisjoint({vendored.document.id, body_only.document.id, other_summary.document.id})
    assert held.document.id in {d.document.id for d in parts.documents["test"]}
    assert parts.dropped["repeated"] == 3
    texts = {name: {fold(d.text) for d in own} for name, own in parts.documents.items()}
    assert texts["train"].isdisjoint(texts["test"] | texts["dev"])
    assert texts["dev"].isdisjoint(texts["test"])


def test_pairs_need_enough_words_and_a_unique_summary_and_body() -> None:
    base = many()
    few_words = docstring("package3", "few", "Three words only.", LONG)
    short_body = docstring("package3", "short", "A summary of four words.", "Too short.")
    same_summary = docstring("package4", "same", base[0].summary, f"Quite another body, but {LONG}.")
    same_body = docstring("package4", "body", "Quite another summary it is.", base[5].body)
    copied = docstring("package5", "copy", base[7].summary, base[7].body)
    parts = split([*base, few_words, short_body, same_summary, same_body, copied])
    kept = {d.document.id for own in parts.pairs.values() for d in own}
    expected = {d.document.id for d in base} - {base[0].document.id, base[5].document.id}
    copies = {base[7].document.id, copied.document.id}  # the same text in two packages: only one of them gives a pair
    assert kept - copies == expected - copies
    assert len(kept & copies) == 1


def test_the_collection_has_pools_and_queries_in_hash_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "QUERIES", {"test": 3, "dev": 2})
    monkeypatch.setattr(pairs, "POOL", 12)
    held = {"test": [pair("t", n) for n in range(5)], "dev": [pair("d", n) for n in range(4)]}
    held["train"] = [pair("x", n) for n in range(20)]
    write_collection(tmp_path, held)
    ids = {name: in_hash_order(d.document.id for d in own) for name, own in held.items()}
    corpus = [json.loads(line) for line in (tmp_path / "corpus.jsonl").read_text().splitlines()]
    assert [record["_id"] for record in corpus] == ids["test"] + ids["dev"] + ids["train"]
    assert corpus[0]["text"] == next(d.body for d in held["test"] if d.document.id == ids["test"][0])
    queries = [json.loads(line)["_id"] for line in (tmp_path / "queries.jsonl").read_text().splitlines()]
    assert queries == [f"{i}#summary" for i in ids["test"][:3] + ids["dev"][:2] + ids["train"]]
    judged = (tmp_path / "qrels" / "dev.tsv").read_text().splitlines()
    assert judged == ["query-id\tcorpus-id\tscore"] + [f"{i}#summary\t{i}\t1" for i in ids["dev"][:2]]
    pool = (tmp_path / "pools" / "test.txt").read_text().split()
    assert pool == ids["test"] + ids["dev"] + ids["train"][:3]
    assert (tmp_path / "pools" / "dev.txt").read_text().split() == ids["dev"] + ids["train"][:8]
    assert not (tmp_path / "pools" / "train.txt").exists()
