"""Shards of pairs: every document has a query and a document, whatever the stages, and the manifest says so."""

import bz2
import json
import re
import tarfile
from pathlib import Path

import pytest
import zstandard

from deepsiam.data_prep.__main__ import main
from tests.data_prep import raw
from tests.data_prep.raw import Capture
from tests.data_prep.sources.wikipedia.test_xml_export import dump, page
from tests.toy import ROOT

COMMANDS = re.findall(r"^    python -m data_prep (.+)$", (ROOT / "docs/pairs.md").read_text(), re.MULTILINE)


def write(path: Path, number: int = 60, **fields: str) -> Path:
    """Write pairs, six of each group; two sentences are a document, one a query."""
    texts = raw.texts(number, sentences=3)
    names = {"query": "query", "document": "document", "group": "page", **fields}.values()
    rows = [(*text.split(". ", 1), f"page {index // 6}") for index, text in enumerate(texts)]
    return raw.write_jsonl(path, [dict(zip(names, row, strict=True)) for row in rows])


def segments(out: Path, split: str = "shards") -> list[int]:
    return [len(document.segments) for document in raw.documents(out, split)]


def test_a_pair_keeps_its_two_texts_and_its_group(tok: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    raw.run("pairs", path, "--group", "page", "--held-out", 0.4, "--tokenizer", tok, "--out", tmp_path / "out")
    assert raw.source_of(tmp_path / "out")["pairs"] is True
    assert raw.source_of(tmp_path / "out")["dialogues"] is False
    splits = ("shards", "held_out")
    texts = raw.decoded(tmp_path / "out", splits[0]) | raw.decoded(tmp_path / "out", splits[1])
    groups = [{document.group for document in raw.documents(tmp_path / "out", split)} for split in splits]
    record = json.loads(path.read_text().splitlines()[0])
    assert texts["pairs/a.jsonl/1"] == [record[side].lower() for side in ("query", "document")]
    assert len(texts) == 60
    assert all(groups)
    assert not groups[0] & groups[1]
    assert groups[0] | groups[1] == {f"pairs/page {number}" for number in range(10)}


def test_what_is_no_pair_is_counted_and_named(tok: Path, tmp_path: Path, capfd: Capture) -> None:
    odd = [("", "no query"), ("no document", " "), ("The  Fox", "the fox"), ("long", "word " * 60_000)]
    pairs = [("Which fox?", "The quick one."), *odd]
    path = raw.write_jsonl(tmp_path / "a.jsonl", [{"query": query, "document": text} for query, text in pairs])
    rejected = tmp_path / "rejected.jsonl"
    raw.run("pairs", path, "--tokenizer", tok, "--out", tmp_path / "out", "--rejected", rejected)
    assert set(segments(tmp_path / "out")) == {2}
    dropped = raw.source_of(tmp_path / "out")["counts"]["dropped"]
    assert dropped == {"empty_query": 1, "empty_document": 1, "query_is_document": 1, "too_long": 1}
    lines = [json.loads(line) for line in rejected.read_text().splitlines()]
    reasons = [{line["reason"] for line in lines if line["stage"] == stage} for stage in ("read", "pairs")]
    assert reasons == [{"empty_query", "empty_document"}, {"query_is_document", "too_long"}]


def test_two_steps_and_parts_make_the_shards_of_one_run(tok: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl")
    whole = raw.agree(tmp_path, "pairs", path, "--tokenizer", tok, numbers=[2])
    raw.run("pairs", path, "--out", tmp_path / "text", "--text-only")
    raw.run("cleaned", tmp_path / "text", "--tokenizer", tok, "--out", tmp_path / "text")
    assert raw.source_of(tmp_path / "text")["pairs"] is True
    one, two = (raw.contents(folder / "shards") for folder in (whole, tmp_path / "text"))
    del one["manifest.json"], two["manifest.json"]
    assert one == two


def test_parts_of_links_merge_to_the_output_of_one_run(tok: Path, tmp_path: Path) -> None:
    leads = raw.texts(30, sentences=4)
    pages = [page(number + 1, text, title=f"Animal {number}") for number, text in enumerate(leads)]
    links = [f"[[Animal {number}|{leads[number][:12]}]] and [[Gone {number}|x]]" for number in range(30)]
    linking = [page(number, link, title=f"P{number}") for number, link in enumerate(links, 100)]
    path = tmp_path / "pages-articles.xml"
    talk = page(99, "Some words.", title="Talk:T", namespace=1)
    path.write_bytes(dump(*pages, talk, *linking))
    whole = raw.agree(tmp_path, "wikipedia-links", path, "--tokenizer", tok, numbers=[2])
    source = raw.source_of(whole)
    assert source["pairs"] is True
    assert source["counts"]["dropped"] == {"no_such_page": 30, "no_text_or_short": 30, "other_namespace": 1}
    assert len(raw.decoded(whole)) == 30


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.partition("--out ")[2])
def test_commands_of_the_page(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    inputs()
    raw.run(*command.split())
    out = Path(command.partition("--out ")[2])
    assert raw.source_of(out)["pairs"] is True
    assert set(segments(out)) == {2}
    for shown in (["verify"], ["stats"], ["inspect"]):
        assert main([*shown, str(out)]) == 0
    assert "(2 segments, " in capfd.readouterr().out


def inputs() -> None:
    """Write the inputs of the page's commands into this folder."""
    for folder in ("answers", "notes", "site-packages"):
        Path(folder).mkdir()
    compressed("titles.jsonl.zst", write(Path("titles.jsonl"), query="title", document="body"))
    write(Path("answers/a.jsonl"), query="question", document="answer", group="thread")
    texts = raw.texts(40, sentences=8)
    pages = [f"{text}\n\n== History ==\n[[T7|{text[:9]}]] {text[::-1]}." for text in texts]
    compressed("enwiki-latest-pages-articles-multistream.xml.bz2", raw.write_wikipedia(Path("pages.xml"), pages))
    dumps = raw.write_reddit(Path("reddit"), [raw.texts(4, number, 1) for number in range(30)], files=1)
    for name in ("RC", "RS"):
        path = dumps / f"{name}_2020-01"
        path.write_text(path.read_text().replace('"author": "u", "score"', '"author": "v", "score"'))  # of the comments
        compressed(f"{name}_2019-12.zst", path)
    for text in texts:
        Path(f"notes/{text[:9]}.txt").write_text("\n\n".join([text, *texts[:4]]))
    with tarfile.open("books1.tar.gz", "w:gz") as tar:
        tar.add("notes")
    raw.write_jsonl(Path("posts.jsonl"), ["\n\n".join([text, *texts[:4]]) for text in texts])
    code = "".join(f'def f{n}():\n    """{text[:72]}.\n\n    {text}\n    """\n\n' for n, text in enumerate(texts))
    Path("site-packages/zoo.py").write_text(code)


def compressed(name: str, path: Path) -> None:
    compress = bz2.compress if name.endswith(".bz2") else zstandard.compress
    Path(name).write_bytes(compress(path.read_bytes()))
