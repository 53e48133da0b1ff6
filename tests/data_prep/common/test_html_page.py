"""Pages: escaped texts, tables."""

from html.parser import HTMLParser

from deepsiam.data_prep.common.html_page import Number, marked, note, page, paragraph, section, table, words_of

HOSTILE = "<script>alert('x')</script> & \"quotes\""


class Reader(HTMLParser):
    """The elements and the texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data)


def test_no_text_can_become_markup() -> None:
    parts = [
        paragraph(HOSTILE),
        note(HOSTILE),
        table([HOSTILE], [[HOSTILE]]),
        f"<p>{marked(HOSTILE, {'alert'}, 100)}</p>",
    ]
    read = Reader(page(HOSTILE, [section(HOSTILE, *parts)]))
    assert "script" not in {tag for tag, _ in read.elements}
    assert read.texts.count(HOSTILE) == 7  # title, heading, section, both paragraphs, both cells
    assert "alert" in read.texts  # marked


def test_a_page_needs_nothing_from_elsewhere() -> None:
    read = Reader(page("t", [section("s", table(["a", "n"], [["x", Number("1")], ["y", Number("2")]], best=1))]))
    assert not {"src", "href"} & {name for _, attributes in read.elements for name in attributes}
    assert not {"link", "script", "img", "iframe"} & {tag for tag, _ in read.elements}
    assert [attributes.get("class") for tag, attributes in read.elements if tag == "tr"] == [None, None, "best"]
    assert [attributes.get("class") for tag, attributes in read.elements if tag == "td"] == [None, "number"] * 2


def test_an_empty_table_has_its_headings() -> None:
    assert Reader(table(["a", "b"], [])).texts == ["a", "b"]


def test_the_words_of_a_query_are_marked() -> None:
    words = words_of("How do the Planes fly?")
    assert words == {"how", "planes", "fly"}
    assert marked("PLANES do not fly high", words, 15) == "<mark>PLANES</mark> do not f…"
    assert marked("खोज, 机", words_of("खोज 机器"), 15) == "<mark>खोज</mark>, <mark>机</mark>"
