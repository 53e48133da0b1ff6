"""Wikipedia's XML dumps: made here, whole, cut at every byte and hostile; real ones where the samples are."""

import io
import os
import pickle
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
from data_prep.mediawiki import Export
from data_prep.record import Bad, Dropped
from data_prep.wikipedia import WIKIPEDIA

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


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In which the tests are, so that their files have short names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("wikipedia"))
        yield


def from_file(content: bytes, name: str = "a.xml", **options: bool) -> Iterator[Record]:
    Path(name).write_bytes(content)
    return WIKIPEDIA.documents([Path(name)], **options)


def read(content: bytes, name: str = "a.xml", **options: bool) -> list[Record]:
    return list(from_file(content, name, **options))


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
        found, said = outcome(from_file(content[:cut]))
        assert [record.id for record in found if isinstance(record, Document)] == ["wikipedia/1", "wikipedia/2"][:sound]
        assert said.startswith(f"a.xml: cut off at byte {cut:,} (")
        assert said.endswith(f", after {sound} sound pages; get the file again")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "a.xml: is empty"),
        (b"PK\x03\x04", "a.xml: neither a MediaWiki XML export nor WikiExtractor's JSON lines .* nor Parquet"),
        (b" \n[1]", "a.xml: neither a MediaWiki XML export"),
        (b"\n" * 5000 + dump(page(1, "x")), "a.xml: neither a MediaWiki XML export"),
        (b'<doc id="1" url="u" title="T">\nT\n\nx\n</doc>', r"a.xml: neither .* WikiExtractor's JSON lines \(--json\)"),
        (b"<\x03\x04", r"a.xml: damaged at byte 1 \(not well-formed"),
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
        records = from_file(b"".join(pages(number)))
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
        list(Export(Generated(endless), "a.xml").pages())  # type: ignore[arg-type]
    assert next(endless)  # it was not read to the end


@given(st.data())
def test_a_dump_with_any_damage_gives_records_or_one_error(data: st.DataObject) -> None:
    content = bytearray(dump(page(1, "A [[fox]] & {{x}}."), page(2, "x", redirect="<redirect/>"), page(3, "Füchse.")))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=10))
    check_stream(from_file(bytes(content)))


@given(st.binary())
def test_any_bytes_give_records_or_one_error(content: bytes) -> None:
    for start in (b"", b"<", b"{", b"PAR1"):
        check_stream(from_file(start + content, "a.file"))


def check_stream(records: Iterator[Record]) -> None:
    found, said = outcome(records)
    assert not said or said.startswith("a.")
    for record in found:
        assert isinstance(record, Document | Bad | Dropped)
        if isinstance(record, Document):
            assert record.segments
            assert all(text == " ".join(text.split()) != "" for text in record.segments)


def test_the_reader_cuts_and_says_how_much_it_cut() -> None:
    content = dump(page(7, "A [[Datei:x]]fox."), page("", "x"), page(8, "#REDIRECT [[A]]"))
    Path("a.xml").write_bytes(content)
    [file] = WIKIPEDIA.find([Path("a.xml")])
    pieces = list(WIKIPEDIA.pieces(file, {}))
    bad = f"page 2 at byte {content.index(b'<page><title>T</title><ns>0</ns><id></id>'):,}"
    assert [(piece.where, piece.size) for piece in pieces] == [("page 7", 17), (bad, 0), ("page 8", 15)]
    assert pickle.loads(pickle.dumps((WIKIPEDIA, pieces))) == (WIKIPEDIA, pieces)
    first, _, last = pickle.loads(pickle.dumps(pieces))
    assert first.content.hiding >= {"medium", "datei"} | wikipedia.HIDING
    assert first.content.hiding is last.content.hiding  # so a batch has an export's names once, however many there are


@real
def test_the_english_sample_has_the_pages_its_list_says() -> None:
    kinds = dict(line.split("\t")[::2] for line in (DATA / "sources.tsv").read_text().splitlines()[1:])
    records = list(WIKIPEDIA.documents([DATA / "enwiki-sample-pages-articles.xml.bz2"]))
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
    found = counts(WIKIPEDIA.documents([DATA / "ltgwiki-sample-pages-articles.xml.bz2"]))
    assert found == {"Document": 690, "other namespace": 714, "redirect": 104, "empty": 4}
