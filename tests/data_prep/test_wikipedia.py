"""Dumps made here, whole, cut at every byte and hostile; real ones where the samples are."""

import bz2
import io
import json
import os
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep import mediawiki, wikipedia
from data_prep.document import Document
from data_prep.errors import InputError
from data_prep.record import Bad, Dropped
from data_prep.wikipedia import read_dump, read_extracted, read_parquet

DATA = Path(os.environ.get("DEEPSIAM_DATA", Path(__file__).parents[3] / "shared" / "data")) / "wiki"
real = pytest.mark.skipif(
    not DATA.is_dir(), reason="no wiki/ in $DEEPSIAM_DATA nor in ../shared/data beside the checkout"
)
Record = Document | Bad | Dropped

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}" xml:lang="de">
<siteinfo><sitename>W</sitename><namespaces><namespace key="-2">Medium</namespace><namespace key="0" />
<namespace key="6" case="first-letter">Datei</namespace><namespace key="4">Wiki</namespace></namespaces></siteinfo>
"""
FOOT = "</mediawiki>\n"


def page(
    number: object, text: str, namespace: object = 0, title: str = "T", redirect: str = "", model: str = ""
) -> str:
    model = f"<model>{model}</model>" if model else ""
    return (
        f"<page><title>{title}</title><ns>{namespace}</ns><id>{number}</id>{redirect}<revision><id>99</id>"
        f"<contributor><username>U</username><id>77</id></contributor><comment>{{{{</comment>{model}"
        f'<text bytes="1" xml:space="preserve">{escape(text)}</text><sha1>x</sha1></revision></page>\n'
    )


def dump(*pages: str, version: str = "0.11") -> bytes:
    return (HEAD.replace("{version}", version) + "".join(pages) + FOOT).encode()


def read(content: bytes, **options: bool) -> list[Record]:
    return list(read_dump(io.BytesIO(content), "a.xml", **options))


def counts(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.reason if isinstance(record, Dropped) else type(record).__name__ for record in records)


def outcome(records: Iterator[Record]) -> tuple[list[Record], str]:
    """What was yielded, and the message of the InputError after it, "" where there was none."""
    found = []
    try:
        for record in records:
            found.append(record)
    except InputError as error:
        return found, str(error)
    return found, ""


class Generated(io.RawIOBase):
    """A stream that exists nowhere as a whole."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks = iter(chunks)
        self.rest = b""

    def read(self, size: int = -1) -> bytes:
        while len(self.rest) < size and (chunk := next(self.chunks, b"")):
            self.rest += chunk
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken


@pytest.mark.parametrize("version", ["0.10", "0.11", "9.9"])
def test_articles_are_read_and_the_rest_is_dropped_by_reason(version: str) -> None:
    records = read(
        dump(
            page(12, "'''A''' & [[Datei:x]]fox.\n==Life==\nIt ran."),
            page(13, "x", redirect='<redirect title="A" />'),
            page(14, " #Redirect [[A]]"),
            page(15, "x", namespace=1),
            page(16, "{{Infobox}}"),
            page(17, "").replace("<text", '<text deleted="deleted"'),
            page(18, "x", model="json"),
            page(19, "A fox. {{Human name disambiguation}}"),
            page(20, "A fox.", title="Fox (disambiguation)"),
            page(21, "{{Other uses}} A fox{{disambiguation needed|date=x}}.", model="wikitext"),
            version=version,
        )
    )
    assert records == [
        Document("wikipedia/12", ("A & fox.", "Life", "It ran."), (1,)),
        Dropped("redirect"),
        Dropped("redirect"),
        Dropped("other namespace"),
        Dropped("empty"),
        Dropped("suppressed"),
        Dropped("not wiki markup"),
        Dropped("disambiguation"),
        Dropped("disambiguation"),
        Document("wikipedia/21", ("A fox.",)),
    ]


@pytest.mark.parametrize(
    "template", ["disambiguation", "Disambig|geo", "hndis|x, y", "dab", "place_name disambiguation", "disambig-cleanup"]
)
def test_disambiguation_pages_are_kept_on_demand(template: str) -> None:
    content = dump(page(1, f"Foxes.\n{{{{{template}}}}}"))
    assert read(content) == [Dropped("disambiguation")]
    assert read(content, keep_disambiguation=True) == [Document("wikipedia/1", ("Foxes.",))]


def test_the_last_revision_counts_and_only_its_main_text() -> None:
    old, new = page(1, "Old.", model="json"), page(1, "New.")
    revision = new[new.index("<revision>") : new.index("</page>")]
    revision = revision.replace("<sha1>", "<content><text>Slot.</text></content><sha1>")
    assert read(dump(old.replace("</page>", revision + "</page>"))) == [Document("wikipedia/1", ("New.",))]


def test_damaged_pages_are_bad_and_the_next_is_read() -> None:
    content = dump(page("", "x"), page("１", "x"), page(3, "x", namespace="x"), "<page />", page(5, "Fox."))
    records = read(content)
    assert [record.reason for record in records[:4] if isinstance(record, Bad)] == [
        "a page without an id",
        "a page without an id",
        "a page without a namespace",
        "a page without an id",
    ]
    assert records[0] == Bad("a.xml", f"page 1 at byte {content.index(b'<page'):,}", "a page without an id")
    assert records[4] == Document("wikipedia/5", ("Fox.",))


def test_a_page_over_the_bound_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mediawiki, "LARGEST_PAGE", 1000)
    sound, too_long = read(dump(page(1, "x" * 990), page(2, "é" * 1001)))
    assert isinstance(sound, Document)
    assert isinstance(too_long, Bad)
    assert too_long.where.startswith("page 2 at byte ")
    assert too_long.reason == "a page of more than 1,000 characters"


def test_a_dump_cut_anywhere_names_file_byte_and_sound_pages() -> None:
    content = dump(page(1, "One fox."), page(2, "Zwei Füchse."))
    first = content.index(b"</page>") + len(b"</page>")
    second = content.rindex(b"</page>") + len(b"</page>")
    for cut in range(1, len(content) - len(FOOT)):
        sound = (cut >= first) + (cut >= second)
        found, said = outcome(read_dump(io.BytesIO(content[:cut]), "a.xml"))
        assert [record.id for record in found if isinstance(record, Document)] == ["wikipedia/1", "wikipedia/2"][:sound]
        assert said.startswith(f"a.xml: cut off at byte {cut:,} (")
        assert said.endswith(f", after {sound} sound pages; get the file again")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "a.xml: empty, after 0 sound pages"),
        (b"PK\x03\x04", r"a.xml: damaged at byte 2 \(not well-formed"),
        (b"<html><body/></html>", "not a MediaWiki export .<html>."),
        (dump(page(1, "x")).replace(b"</page>", b"</page>\x00"), "damaged at byte .* after 1 sound pages"),
        (b"<!DOCTYPE m [<!ENTITY a 'aaa'>]>" + dump(page(1, "x").replace(">x<", ">&a;<")), "document type declaration"),
        (dump(page(1, "x").replace(">x<", ">&lol;<")), "undefined entity"),
        (dump(page(1, "x")).replace(b">x<", b">\xff<"), "invalid token"),
        (dump("<a>" * 1000), "not a MediaWiki export"),
        (dump(*(f"<a{i}/>" for i in range(5000))), "different tags"),
    ],
)
def test_what_is_no_dump_is_one_clear_line(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(content)
    assert "\n" not in str(caught.value)


def test_memory_is_flat_in_the_size_of_a_dump_and_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mediawiki, "LARGEST_PAGE", 500_000)

    def pages(number: int) -> Iterator[bytes]:
        yield HEAD.encode()
        for i in range(number):
            yield page(i, "A fox ran over [[the dog]]. " * 100).encode()
        begin, _, end = page(7, "{}").encode().partition(b"{}")
        yield begin
        for _ in range(number):
            yield b"x" * 10_000
        yield end + page(8, "Fox.").encode() + FOOT.encode()

    def peak(number: int) -> int:
        records = read_dump(Generated(pages(number)), "a.xml")
        tracemalloc.start()
        found = counts(records)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == {"Document": number + 1, "Bad": 1}
        return highest

    assert peak(800) < 1.2 * peak(100) < 10e6  # 10 MB against 1.3


def test_a_tag_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mediawiki, "LARGEST_TAG", 1_000_000)
    endless = (chunk for chunk in [HEAD.encode(), b'<page a="', *[b"x" * 100_000] * 10_000])
    with pytest.raises(InputError, match="a tag of more than 1,000,000 bytes at byte"):
        list(read_dump(Generated(endless), "a.xml"))
    assert next(endless)  # it was not read to the end


@given(st.data())
def test_a_dump_with_any_damage_gives_records_or_one_error(data: st.DataObject) -> None:
    content = bytearray(dump(page(1, "A [[fox]] & {{x}}."), page(2, "x", redirect="<redirect/>"), page(3, "Füchse.")))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=10))
    check_stream(read_dump(io.BytesIO(bytes(content)), "a.xml"))


@given(st.binary())
def test_any_bytes_give_records_or_one_error(content: bytes) -> None:
    check_stream(read_dump(io.BytesIO(content), "a.xml"))
    check_stream(read_extracted(io.BytesIO(content), "a.jsonl"))


def check_stream(records: Iterator[Record]) -> None:
    found, said = outcome(records)
    assert not said or said.startswith("a.")
    for record in found:
        assert isinstance(record, Document | Bad | Dropped)
        if isinstance(record, Document):
            assert record.segments
            assert all(text == " ".join(text.split()) != "" for text in record.segments)


def test_extracted_lines_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "LARGEST_LINE", 200)
    lines = [
        json.dumps(
            {"id": "12", "revid": "", "title": "T", "text": "A &lt;fox&gt; &amp;amp;.\n\nLife.\nIt  ran."}
        ).encode(),
        b'{"id": 13, "text": "One."}',
        b'{"id": "14", "text": " \\n"}',
        b"",
        b'{"id": "../15", "text": "x"}',
        b'{"id": true, "text": "x"}',
        b'{"id": "16"}',
        b"[1]",
        b"[" * 150,
        b'{"id": "17", "text": "\xff"}',
        b'{"id": "18", "text": "' + b"x" * 1000 + b'"}',
        b'{"id": "19", "text": "Lone \\ud800 half"}',
    ]
    records = list(read_extracted(io.BytesIO(b"\n".join(lines)), "a.jsonl"))
    assert records == [
        Document("wikipedia/12", ("A <fox> &amp;.", "Life.", "It ran.")),
        Document("wikipedia/13", ("One.",)),
        Dropped("empty"),
        Bad("a.jsonl", "line 5", "`id` is not the number of a page"),
        Bad("a.jsonl", "line 6", "`id` is not the number of a page"),
        Bad("a.jsonl", "line 7", "no `text`"),
        Bad("a.jsonl", "line 8", "not a JSON object"),
        Bad("a.jsonl", "line 9", "not JSON"),
        Bad("a.jsonl", "line 10", "not JSON"),
        Bad("a.jsonl", "line 11", "a line of more than 200 bytes"),
        Document("wikipedia/19", ("Lone half",)),
    ]


def test_an_endless_line_is_skipped_without_holding_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "LARGEST_LINE", 100_000)

    class Line(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            assert 0 < size <= 100_001
            return super().readline(size)

    content = b"x" * 5_000_000 + b'\n{"id": "1", "text": "Fox."}\n' + b"[" * 90_000
    assert list(read_extracted(Line(content), "a.jsonl")) == [
        Bad("a.jsonl", "line 1", "a line of more than 100,000 bytes"),
        Document("wikipedia/1", ("Fox.",)),
        Bad("a.jsonl", "line 3", "not JSON"),
    ]


@pytest.fixture
def parquet_file(tmp_path: Path) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the packages of the extra `dumps`")
    from pyarrow import parquet

    texts = ["A fox.\n\nLife\n\nIt &amp; ran.", "", None, "Two.", "Three."]
    columns = {"id": ["12", "13", "14", "x", "16"], "url": ["u"] * 5, "title": ["T"] * 5, "text": texts}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=2)
    return tmp_path / "a.parquet"


def test_parquet_rows_are_read(parquet_file: Path) -> None:
    assert list(read_parquet(parquet_file)) == [
        Document("wikipedia/12", ("A fox.", "Life", "It &amp; ran.")),
        Dropped("empty"),
        Bad(str(parquet_file), "row 3", "no `text`"),
        Bad(str(parquet_file), "row 4", "`id` is not the number of a page"),
        Document("wikipedia/16", ("Three.",)),
    ]


def test_parquet_that_is_damaged_or_another_is_one_clear_line(
    parquet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = parquet_file.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        damaged = bytearray(content)
        at = rng.randrange(len(damaged))
        damaged[at : at + rng.randrange(20)] = rng.randbytes(rng.randrange(20))
        (tmp_path / "a.damaged").write_bytes(damaged[: rng.choice([rng.randrange(len(damaged)), None])])
        found, said = outcome(read_parquet(tmp_path / "a.damaged"))
        assert all(isinstance(record, Document | Bad | Dropped) for record in found)
        assert not said or "a.damaged: not the Parquet of wikimedia/wikipedia" in said
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="not the Parquet"):
            list(read_parquet(path))
    monkeypatch.setattr(wikipedia, "LARGEST_ROW_GROUP", 10)
    with pytest.raises(InputError, match=r"row group 0 has \d+ bytes, more than 10"):
        list(read_parquet(parquet_file))


@real
def test_the_english_sample_has_the_pages_its_list_says() -> None:
    kinds = dict(line.split("\t")[::2] for line in (DATA / "sources.tsv").read_text().splitlines()[1:])
    content = bz2.decompress((DATA / "enwiki-sample-pages-articles.xml.bz2").read_bytes())
    records = read(content)
    documents = [record for record in records if isinstance(record, Document)]
    assert counts(records) == {
        "Document": 1628 - 6,
        "disambiguation": 6,
        "redirect": 72,  # of 74; the others stand in another namespace
        "other namespace": 9,
        "empty": 1,
        "suppressed": 1,
    }
    assert len({document.id for document in documents}) == len(documents)
    found = Counter(kinds[document.id.removeprefix("wikipedia/")] for document in documents)
    assert found == {"extracted_article": 1472, "real_markup_article": 114 - 6, "wikitext2_test_article": 42}
    for document in documents:
        assert not any(mark in text for text in document.segments for mark in ("{{", "}}", "[[", "]]", "''", "<ref"))


@real
def test_the_latgalian_sample_is_read() -> None:
    content = bz2.decompress((DATA / "ltgwiki-sample-pages-articles.xml.bz2").read_bytes())
    assert counts(read(content)) == {"Document": 690, "other namespace": 714, "redirect": 104, "empty": 4}


@real
def test_what_wikiextractor_wrote_is_read() -> None:
    found: Counter[str] = Counter()
    for path in sorted(DATA.glob("A[AB]/*")):
        with open(path, "rb") as stream:
            found += counts(read_extracted(stream, str(path)))
    assert found == {"Document": 1627 + 5740, "empty": 72 + 2024}
