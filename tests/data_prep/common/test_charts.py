"""Charts as SVG, figures as PNG, pages of HTML: numbers are where their axes say, and no text becomes markup."""

import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common import charts
from deepsiam.data_prep.common.charts import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH, Line, histogram, line_chart
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.figures import new_figure, save
from deepsiam.data_prep.common.html_page import Number, marked, note, page, paragraph, section, table, words_of


def points(svg: ElementTree.Element, shape: str) -> list[np.ndarray]:
    """The points of the lines or polygons of a chart, fp64 [n, 2] each."""
    found = [element.attrib["points"].split() for element in svg.iter(shape)]
    return [np.array([pair.split(",") for pair in pairs], np.float64) for pairs in found]


def test_a_line_is_where_the_axes_say() -> None:
    x, y = np.arange(11) * 100, np.linspace(2, 7, 11)
    svg = ElementTree.fromstring(line_chart("loss", {"a": Line(x, y)}, "step"))
    (places,) = points(svg, "polyline")
    assert len(places) == 11
    texts = [text for text in svg.iter("text") if text.attrib.get("text-anchor") == "end"]
    numbers = {float((text.text or "").replace(",", "")): float(text.attrib["y"]) for text in texts}
    assert {2.0, 4.0, 6.0} <= numbers.keys()
    at = np.interp(y, sorted(numbers), [numbers[value] - 4 for value in sorted(numbers)])  # a text is 4 below its line
    np.testing.assert_allclose(places[:, 1], at, atol=0.11)
    np.testing.assert_allclose(places[:, 0], LEFT + (WIDTH - LEFT - RIGHT) * x / 1000, atol=0.06)
    assert not [text for text in svg.iter("text") if text.text == "a"]  # one line needs no legend


def test_a_long_line_is_thinned_to_its_ends() -> None:
    x = np.arange(10_000)
    svg = ElementTree.fromstring(line_chart("long", {"a": Line(x, np.sin(x)), "raw": Line(x, x, faint=True)}, "step"))
    for line in points(svg, "polyline"):
        assert len(line) == charts.POINTS
        assert (line[0, 0], line[-1, 0]) == (LEFT, WIDTH - RIGHT)


def test_a_histogram_has_the_shares_of_each_group() -> None:
    groups = {"relevant": np.array([3.0, 3.0, 1.0, 0.0]), "others": np.arange(4.0)}
    svg = ElementTree.fromstring(histogram("scores", groups, "score", bins=3))
    relevant, others = points(svg, "polygon")
    top, bottom = 0.5, HEIGHT - BOTTOM
    heights = bottom - relevant[1:-1:2, 1]
    np.testing.assert_allclose(heights / heights.max() * top, [0.25, 0.25, 0.5], atol=1e-3)
    np.testing.assert_allclose((bottom - others[1:-1:2, 1]) / heights.max() * top, [0.25, 0.25, 0.5], atol=1e-3)
    assert [text.text for text in svg.iter("text")][-2:] == [*groups]


@pytest.mark.parametrize("numbers", [[5.0], [0.0, 0.0], [-1e-9, 1e-9], [1e9, 3e9]])
def test_any_numbers_can_be_drawn(numbers: list[float]) -> None:
    y = np.array(numbers)
    for drawn in (line_chart("t", {"a": Line(np.arange(len(y)), y)}, "x"), histogram("t", {"a": y}, "x")):
        svg = ElementTree.fromstring(drawn)
        for places in points(svg, "polyline") + points(svg, "polygon"):
            assert (places >= (LEFT - 0.1, charts.TOP - 0.1)).all()
            assert (places <= (WIDTH, HEIGHT - BOTTOM + 0.1)).all()


def test_names_cannot_become_markup() -> None:
    name, line = '<script>"&', Line(np.arange(2), np.arange(2))
    svg = ElementTree.fromstring(line_chart(name, {name: line, "b": line}, name))
    assert svg.attrib["aria-label"] == name
    assert not list(svg.iter("script"))
    assert [text.text for text in svg.iter("text")].count(name) == 3


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_round_and_hold_the_numbers(low: float, width: float) -> None:
    ticks = charts._ticks(low, low + width)
    step = ticks[1] - ticks[0]
    assert 2 <= len(ticks) <= 7
    assert ticks[0] <= low + step * 1e-6
    assert ticks[-1] >= low + width - step * 1e-6


def test_a_figure_has_plain_panels_row_by_row(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `evaluate`")
    figure, panels = new_figure(3, width=2, height=1, rows=2)
    assert tuple(figure.get_size_inches()) == (6, 2)
    corners = [panel.get_subplotspec() for panel in panels]
    places = [(corner.rowspan.start, corner.colspan.start) for corner in corners if corner]
    assert places == [(row, column) for row in range(2) for column in range(3)]
    assert not any(panel.spines[side].get_visible() for panel in panels for side in ("top", "right"))
    file = save(figure, tmp_path / "figure.png")
    assert file.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError):
        save(figure, file / "figure.png")
    assert list(tmp_path.iterdir()) == [file]


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
    parts = [paragraph(HOSTILE), note(HOSTILE), table([HOSTILE], [[HOSTILE]])]
    parts += [f"<p>{marked(HOSTILE, {'alert'}, 100)}</p>"]
    read = Reader(page(HOSTILE, [section(HOSTILE, *parts)]))
    assert "script" not in {tag for tag, _ in read.elements}
    assert read.texts.count(HOSTILE) == 7  # title, heading, section, both paragraphs, both cells
    assert "alert" in read.texts  # marked


def test_a_page_needs_nothing_from_elsewhere() -> None:
    assert Reader(table(["a", "b"], [])).texts == ["a", "b"]
    read = Reader(page("t", [section("s", table(["a", "n"], [["x", Number("1")], ["y", Number("2")]], best_row=1))]))
    assert not {"src", "href"} & {name for _, attributes in read.elements for name in attributes}
    assert not {"link", "script", "img", "iframe"} & {tag for tag, _ in read.elements}
    assert [attributes.get("class") for tag, attributes in read.elements if tag == "tr"] == [None, None, "best"]
    assert [attributes.get("class") for tag, attributes in read.elements if tag == "td"] == [None, "number"] * 2


def test_the_words_of_a_query_are_marked() -> None:
    words = words_of("How do the Planes fly?")
    assert words == {"how", "planes", "fly"}
    assert marked("PLANES do not fly high", words, 15) == "<mark>PLANES</mark> do not f…"
    assert marked("खोज, 机", words_of("खोज 机器"), 15) == "<mark>खोज</mark>, <mark>机</mark>"
