"""Wikipedia's files: XML dumps (whole, truncated, hostile), WikiExtractor's lines, Parquet, and real samples."""

import bz2
import gzip
import io
import pickle
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.wikipedia import articles, xml_export
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA
from deepsiam.data_prep.sources.wikipedia.xml_export import Export
from tests import samples
from tests.data_prep.collections.raw_formats import write_parquet

DATA = samples.DATA / "wiki"
real = samples.needs("wiki")
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


def from_file(content: bytes, name: str = "a.xml", **options: bool) -> Iterator[Record]:
    Path(name).write_bytes(content)
    return WIKIPEDIA.documents([Path(name)], **options)


def read(content: bytes, name: str = "a.xml", **options: bool) -> list[Record]:
    return list(from_file(content, name, **options))


def counts(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.reason if isinstance(record, Dropped) else type(record).__name__ for record in records)


PAGES: dict[str, Any] = {  # a page, and its text or why it is left out
    page(12, "'''A''' & [[Datei:x]]fox.\n==Life==\nIt ran."): ("A & fox.", "Life", "It ran."),
    page(13, "x", redirect='<redirect title="A" />'): "redirect",
    page(14, " #Redirect [[A]]"): "redirect",
    page(15, "x", namespace=1): "other namespace",
    page(16, "{{Infobox}}"): "empty",
    page(17, "").replace("<text", '<text deleted="deleted"'): "suppressed",
    page(18, "x", model="json"): "not wiki markup",
    page(19, "A fox. {{Human name disambiguation}}"): "disambiguation",
    page(20, "A fox.", title="Fox (disambiguation)"): "disambiguation",
    page(21, "{{Other uses}} A fox{{disambiguation needed|date=x}}.", model="wikitext"): ("A fox.",),
}


@pytest.mark.parametrize("version", ["0.10", "0.11", "9.9"])
def test_articles_are_read_and_the_rest_is_dropped_by_reason(version: str) -> None:
    first, *dropped, last = read(dump(*PAGES, version=version))
    texts, *reasons, last_texts = PAGES.values()
    assert first == Document("wikipedia/12", texts, (1,), title="T")
    assert dropped == list(map(Dropped, reasons))
    assert last == Document("wikipedia/21", last_texts, title="T")


@pytest.mark.parametrize(
    "template", ["disambiguation", "Disambig|geo", "hndis|x, y", "dab", "place_name disambiguation", "disambig-cleanup"]
)
def test_disambiguation_pages_are_kept_with_the_option(template: str) -> None:
    content = dump(page(1, f"Foxes.\n{{{{{template}}}}}"))
    assert read(content) == [Dropped("disambiguation")]
    assert read(content, keep_disambiguation=True) == [Document("wikipedia/1", ("Foxes.",), title="T")]


def test_only_the_main_text_of_the_last_revision_is_read() -> None:
    old, new = page(1, "Old.", model="json"), page(1, "New.")
    revision = new[new.index("<revision>") : new.index("</page>")]
    revision = revision.replace("<sha1>", "<content><text>Slot.</text></content><sha1>")
    assert read(dump(old.replace("</page>", revision + "</page>"))) == [Document("wikipedia/1", ("New.",), title="T")]


def test_damaged_pages_are_bad_and_the_next_is_read() -> None:
    content = dump(page("", "x"), page("１", "x"), page(3, "x", namespace="x"), "<page />", page(5, "Fox."))
    records = read(content)
    *bad, document = (record.reason if isinstance(record, Bad) else record for record in records)
    assert bad == [f"a page without {part}" for part in ("an id", "an id", "a namespace", "an id")]
    assert records[0] == Bad("a.xml", f"page 1 at byte {content.index(b'<page'):,}", "a page without an id")
    assert document == Document("wikipedia/5", ("Fox.",), title="T")


def test_without_ns_the_title_tells_the_namespace() -> None:
    """As in exports from before 2012; a colon alone makes no namespace."""
    titles = ["T", "Datei:Fox", "datei : Fox", "Wiki:Fox", "2001: a fox", ":T", "Medium_Datei:T"]
    content = dump(*(page(i, "Fox.", title=title) for i, title in enumerate(titles, 1)))
    old = re.sub(rb"<ns>0</ns>", b"", content)
    kept = [record.title if isinstance(record, Document) else record.reason for record in read(old)]
    assert kept == ["T", *["other namespace"] * 3, "2001: a fox", ":T", "Medium_Datei:T"]
    nameless = re.sub(rb"<namespaces>.*</namespaces>", b"", old, flags=re.DOTALL)
    assert {record.reason for record in read(nameless) if isinstance(record, Bad)} == {"a page without a namespace"}


def test_a_page_over_the_bound_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_export, "LARGEST_PAGE", 1000)
    short, too_long = read(dump(page(1, "x" * 990), page(2, "é" * 1001)))
    assert isinstance(short, Document)
    assert isinstance(too_long, Bad)
    assert too_long.where.startswith("page 2 at byte ")
    assert too_long.reason == "a page of more than 1,000 characters"


IDS = ["wikipedia/1", "wikipedia/2"]


def test_a_dump_cut_anywhere_names_file_byte_and_valid_pages() -> None:
    content = dump(page(1, "One fox."), page(2, "Zwei Füchse."))
    first = content.index(b"</page>") + len(b"</page>")
    second = content.rindex(b"</page>") + len(b"</page>")
    for cut in [*range(1, len(HEAD), 9), *range(len(HEAD), len(content) - len(FOOT))]:
        valid = (cut >= first) + (cut >= second)
        records: list[Record] = []
        said = rf"^a.xml: cut off at byte {cut:,} \(.*, after {valid} valid pages; get the file again$"
        with pytest.raises(InputError, match=said):
            records.extend(from_file(content[:cut]))
        assert [record.id for record in records if isinstance(record, Document)] == IDS[:valid]


PAGE = dump(page(1, "x"))
NEITHER = "neither a MediaWiki XML export nor WikiExtractor's JSON lines"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04", rf"{NEITHER} \(--json\) nor Parquet"),
        (b" \n[1]", NEITHER),
        (b"\n" * 5000 + PAGE, NEITHER),
        (b'<doc id="1" url="u" title="T">\nT\n\nx\n</doc>', NEITHER),
        (b"<\x03\x04", r"damaged at byte 1 \(not well-formed"),
        (b"<html><body/></html>", ".*not a MediaWiki export .<html>."),
        (PAGE.replace(b"</page>", b"</page>\x00"), "damaged at byte .* after 1 valid pages"),
        (b"<!DOCTYPE m [<!ENTITY a 'aaa'>]>" + PAGE.replace(b">x<", b">&a;<"), ".*document type declaration"),
        (PAGE.replace(b">x<", b">&lol;<"), ".*undefined entity"),
        (PAGE.replace(b">x<", b">\xff<"), ".*invalid token"),
        (dump("<a>" * 1000), ".*not a MediaWiki export"),
        (dump(*(f"<a{i}/>" for i in range(5000))), ".*different tags"),
        (b"PAR1", "not the Parquet of wikimedia/wikipedia: "),
        (gzip.compress(b"PAR1 of no more"), "not the Parquet of wikimedia/wikipedia: "),
    ],
)
def test_a_file_that_is_not_a_dump_is_one_clear_line(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=f"^a.xml: {message}") as caught:
        read(content)
    assert "\n" not in str(caught.value)


def test_memory_does_not_grow_with_the_size_of_a_dump_or_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_export, "LARGEST_PAGE", 500_000)

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
        records = from_file(b"".join(pages(number)))
        tracemalloc.start()
        counted = counts(records)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert counted == {"Document": number + 1, "Bad": 1}
        return highest

    assert peak(200) < 1.2 * peak(60) < 6e6  # the dumps have 2.5 MB and 0.8 MB


def test_a_tag_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_export, "LARGEST_TAG", 1_000_000)
    endless = io.BytesIO(HEAD.encode() + b'<page a="' + b"x" * 10_000_000)
    with pytest.raises(InputError, match="a tag of more than 1,000,000 bytes at byte"):
        list(Export(endless, "a.xml").pages())
    assert endless.tell() < 3_000_000


def test_pieces_have_their_place_and_size() -> None:
    content = dump(page(7, "A [[Datei:x]]fox."), page("", "x"), page(8, "#REDIRECT [[A]]"))
    Path("a.xml").write_bytes(content)
    [file] = WIKIPEDIA.find([Path("a.xml")])
    pieces = list(WIKIPEDIA.pieces(file, {}))
    bad = f"page 2 at byte {content.index(b'<page><title>T</title><ns>0</ns><id></id>'):,}"
    assert [(piece.where, piece.size) for piece in pieces] == [("page 7", 17), (bad, 0), ("page 8", 15)]
    first, _, last = pickle.loads(pickle.dumps(pieces))
    wiki = first.content.wiki
    assert wiki.hiding >= {"datei"} | articles.HIDING
    assert wiki.media == {"medium", "media"}
    assert wiki.language == "de"
    assert wiki is last.content.wiki  # so a batch pickles an export's names once


@real
def test_the_english_sample_has_the_pages_of_its_list() -> None:
    kinds = dict(line.split("\t")[::2] for line in (DATA / "sources.tsv").read_text().splitlines()[1:])
    records = list(WIKIPEDIA.documents([DATA / "enwiki-sample-pages-articles.xml.bz2"]))
    documents = [record for record in records if isinstance(record, Document)]
    assert counts(records) == {
        "Document": 1628 - 6,
        "disambiguation": 6,
        "redirect": 72,  # of 74; the others are in another namespace
        "other namespace": 9,
        "empty": 1,
        "suppressed": 1,
    }
    assert len({document.id for document in documents}) == len(documents)
    counted = Counter(kinds[document.id.removeprefix("wikipedia/")] for document in documents)
    assert counted == {"extracted_article": 1472, "real_markup_article": 114 - 6, "wikitext2_test_article": 42}
    for document in documents:
        assert not any(mark in text for text in document.segments for mark in ("{{", "}}", "[[", "]]", "''", "<ref"))


NO_PAGE = "`id` is not the number of a page"
FIRST = b'{"id": "12", "revid": "", "title": "T &amp; U", "text": "A &lt;fox&gt; &amp;amp;.\\n\\nLife.\\nIt  ran."}'
LINES: dict[bytes, Record | str] = {  # a line, and what is read of it or why it is bad
    FIRST: Document("wikipedia/12", ("A <fox> &amp;.", "Life.", "It ran."), title="T & U"),
    b'{"id": 13, "text": "One."}': Document("wikipedia/13", ("One.",)),
    b'{"id": "14", "text": " \\n"}': Dropped("empty"),
    b'{"id": "../15", "text": "x"}': NO_PAGE,
    b'{"id": true, "text": "x"}': NO_PAGE,
    b'{"id": "16"}': "no `text`",
    b"[1]": "not a JSON object",
    b"[" * 150: "not JSON",
    b'{"id": "17", "text": "\xff"}': "not JSON",
    b'{"id": "18", "text": "' + b"x" * 1000 + b'"}': "a line of more than 200 bytes",
    b'{"id": "19", "text": "Lone \\ud800 half"}': Document("wikipedia/19", ("Lone half",)),
}


def test_extracted_lines_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(articles, "LARGEST_LINE", 200)
    assert read(b"\n\n".join(LINES), "a.jsonl") == [
        Bad("a.jsonl", f"line {2 * number + 1}", record) if isinstance(record, str) else record
        for number, record in enumerate(LINES.values())
    ]


def test_parquet_rows_are_read(tmp_path: Path) -> None:
    texts = {"12": "A fox.\n\nLife\n\nIt &amp; ran.", "13": "", "14": None, "x": "Two.", "16": "Three."}
    rows = [{"id": id, "url": "u", "title": "T", "text": text} for id, text in texts.items()]
    file = write_parquet(tmp_path / "a.parquet", rows, row_group_size=2)
    assert list(WIKIPEDIA.documents([tmp_path])) == [
        Document("wikipedia/12", ("A fox.", "Life", "It &amp; ran."), title="T"),
        Dropped("empty"),
        Bad(str(file), "row 3", "no `text`"),
        Bad(str(file), "row 4", "`id` is not the number of a page"),
        Document("wikipedia/16", ("Three.",), title="T"),
    ]


def test_files_are_found_in_folders_in_order(tmp_path: Path) -> None:
    dumped, line = dump(page(1, "Fox.")), b'\xef\xbb\xbf\n {"id": 2, "text": "Dog."}'
    wanted = {
        "AA/wiki_00": line,
        "AA/wiki_01.bz2": bz2.compress(line),
        "AB/wiki_100": line,
        "enwiki-20240101-pages-articles-multistream.xml.bz2": bz2.compress(dumped),
        "enwiki-20240101-pages-articles1.xml-p1p41242.bz2": bz2.compress(dumped),
        "ltgwiki-pages-articles.xml": b"\xef\xbb\xbf" + dumped,
        "x/enwiki-pages-articles.xml.gz": gzip.compress(b"\n" + dumped),
    }
    others = "AA/wiki_00.json AA/wiki_ wiki_00/x enwiki-pages-articles-multistream-index.txt a.xml x.parquet.d"
    for name, content in {**wanted, **dict.fromkeys(others.split(), b"x")}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert [file.name for file in WIKIPEDIA.find([tmp_path])] == [f"wikipedia/{name}" for name in wanted]
    again = WIKIPEDIA.find([tmp_path / "AA" / "wiki_00", tmp_path / "AA"])
    assert [file.name for file in again] == ["wikipedia/wiki_00", "wikipedia/wiki_00#2", "wikipedia/wiki_01.bz2"]
    fox, dog = Document("wikipedia/1", ("Fox.",), title="T"), Document("wikipedia/2", ("Dog.",))
    assert list(WIKIPEDIA.documents([tmp_path])) == [dog] * 3 + [fox] * 4


@real
def test_all_real_files_are_found_and_read() -> None:
    names = [file.path.name for file in WIKIPEDIA.find([DATA])]
    assert (len(names), names[0], names[-1]) == (35 + 2, "wiki_00", "ltgwiki-sample-pages-articles.xml.bz2")
    extracted = counts(WIKIPEDIA.documents([DATA / "AA", DATA / "AB"]))
    assert extracted == {"Document": 1627 + 5740, "empty": 72 + 2024}
    latgalian = counts(WIKIPEDIA.documents([DATA / names[-1]]))
    assert latgalian == {"Document": 688, "other namespace": 714, "redirect": 104, "empty": 6}
