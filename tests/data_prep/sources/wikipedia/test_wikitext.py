"""Markup becomes the text that a reader of the page sees; broken markup takes linear time."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.sources.wikipedia.wikitext import HIDING, Wiki, plain
from tests.data_prep.linear import is_linear


def segments(markup: str, *wiki: Wiki, **others: bool) -> tuple[list[str], list[int]]:
    """The segments of a page, and which are headings."""
    text = plain(markup, *wiki, **others)
    return text.segments, text.headings


def one(markup: str) -> str:
    """The only segment of a page."""
    (segment,), headings = segments(markup)
    assert not headings
    return segment


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("A [[fox]] and [[dog (animal)|some dogs]]s.", "A fox and some dogss."),
        ("A [[:Category:Foxes]] [[:fr:Renard|Renard]] [[wikt:fox|fox]].", "A Category:Foxes Renard fox."),
        ("Fox[[Category:Foxes|*]][[fr:Renard]][[zh-min-nan:Ho-li]][[simple:Fox]].", "Fox."),
        ("A [[File:a.jpg|thumb|A [[fox]] with [[b|c]] [http://x y]]]fox.", "A fox."),
        ("A [[Bild:Fuchs.JPG|links|x]]fox.", "A fox."),  # an unknown namespace, but the suffix of a file
        ("A [[Fox: the life]].", "A Fox: the life."),
        ("A <!-- [[ {{ -->fox <timeline>a_{b}</timeline><gallery>\nFile:x\n</gallery>ran.", "A fox ran."),
        ("2<sup>''n''</sup> foxes, the 2<sup>e</sup>, a<sup>-k</sup>.", "2^n foxes, the 2e, a^-k."),
        ("std::sort(a, b) and f() stay.", "std::sort(a, b) and f() stay."),
        ("See [http://a.org/x?y the site], [//b.org] [https://c.org ''C''].", "See the site, C."),
        # parameters belong to templates, not to articles
        ("One {{nowrap|{{nowrap|[[c]]}}|d={{{e|f}}}}}fox.", "One c}fox."),
        ("In {{lang|de|{{nowrap|[[Fuchs|der Fuchs]]}}}}.", "In der Fuchs."),
        ("A {{fox ran [[over the [[dog]].", "A fox ran over the dog."),  # never closed
        ("A fox }} ran ]] over.", "A fox ran over."),
        ("Foxes. A {{fox [[ ran }} over.", "Foxes."),
        ("A [[Media:a.ogg|fox]], [[media:b.ogg]].", "A fox, media:b.ogg."),
        ("A [[Attēls:x|y]]fox.", "A yfox."),
        ("A fox.<ref name=x>No {{cite|a}} text.</ref> And<ref name=y /> a dog.<REF>x</Ref >", "A fox. And a dog."),
        ("A fox <!-- never closed, as MediaWiki reads it", "A fox"),
        ("A <ref>reference never closed.", "A reference never closed."),
        ("A <span style='x'>fox</span><br/>ran<br>off; 2 < 3 > 1.", "A fox ran off; 2 < 3 > 1."),
        (
            "10<sup>6</sup> or 4<sup>th</sup>, ''c''<sup>2</sup>, CO<sub>2</sub>, SO<sub>4</sub><sup>2−</sup>.",
            "10^6 or 4th, c^2, CO2, SO4^2−.",
        ),
        ("Use <syntaxhighlight lang=c inline>a[0] = {{b}}</syntaxhighlight> now.", "Use a[0] = {{b}} now."),
        ("__NOTOC__A fox__NOEDITSECTION__.", "A fox."),
        ("Use <nowiki>[[links]] '''and''' {{x}} &amp; <b></nowiki>''now''.", "Use [[links]] '''and''' {{x}} & <b>now."),
        ("Greek ({{x}}, {{y}}; ''fox'') and ( {{z}}) a {{cn}}, b {{cn}}.", "Greek (fox) and a, b."),
        ("A <table><tr><td>x<table><tr></tr></TABLE></td></table>fox.", "A fox."),
    ],
)
def test_markup_becomes_what_a_reader_sees(markup: str, text: str) -> None:
    assert one(markup) == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("'''Fox''' ''quick'' '''''very''''' slow", "Fox quick very slow"),
        ("The fox's, the foxes', ''''tis''' 5''x'', six ''''''x'''''", "The fox's, the foxes', 'tis 5x, six 'x"),
        # an odd number of bold and of italic in a line: after a letter alone, after a word, after a blank
        ("Of l'''Osservatore'' and '''others'''", "Of l'Osservatore and others"),
        ("The dogs''' and a'''b ''c '''d", "The dogs and a'b c d"),
        ("The dogs''' and '''b ''c '''d", "The dogs' and b c d"),
        ("The '''dogs and ''b", "The 'dogs and b"),
        ("The '''''dogs", "The dogs"),
        ("Of l'''x''.\nA '''fox and ''y", "Of l'x. A 'fox and y"),  # each line by itself
        ("The ''fox'''s, '''[[a|''b]]''', [[c|l'''d'']]s", "The fox's, b, l'ds"),  # and each label
        # what parts quotes, and what does not
        ("''fox''{{'s}} ''fox''{{'}}s ''fox''<nowiki/>'s ''fox''<ref>x</ref>'s", "fox's fox's fox's fox's"),
        ("''fox''&#39;s ''fox''&apos;s ''fox''<span>'s</span> ''{{nowrap|fox}}'s", "fox's fox's fox's fox's"),
        ("[[a|''fox'']]'s {{nowrap|''fox''}}'s '[[a|''fox'']] l'{{nowrap|''fox''}}", "fox's fox's 'fox l'fox"),
        ("The ''fox''<!-- x -->'s, <span title='''x'>''y''", "The fox's, y"),
        (
            "<nowiki>'</nowiki>''fox'' [https://a.org''the site''] [https://a.org/' the '''site]",
            "'fox the site the site",
        ),
        ("{{`}}fox{{'}}, {{' \"}}fox{{\" '}} {{-'}}fox{{'-}}", "'fox', '\"fox\"' 'fox'"),
    ],
)
def test_quotes_are_paired_as_in_mediawiki(markup: str, text: str) -> None:
    assert one(markup) == text


@pytest.mark.parametrize(
    ("language", "markup", "text"),
    [
        ("en", "A -{zh:fox; en:dog}- ran -{.", "A -{zh:fox; en:dog}- ran -{."),
        ("zh", "A -{zh-hant:[[dog|dogs]]; zh-hans:&lt;fox&gt;; of {{nowrap|it}};}- ran.", "A <fox>; of it ran."),
        ("zh", "A -{fox}-{{nowrap|-{A|zh:-{a}-b;zh-tw:c}-}} -{zh-hans;zh-hant|d|e}-.", "A foxab d|e."),
        ("zh", "A -{H|zh-cn:b;zh-tw:c}- -{T|zh:d}--{-|zh:e}-fox}- -{ran -{{nowrap|b}}.", "A fox}- -{ran -b."),
        ("zh", "It is -{D|zh-cn:b;zh-tw:c}-. A -{x=>zh-cn:fox}-.", "A fox."),
        ("sr", "A -{sr-el:dog; sr-ec:fox}- -{[http://a.org b: c; d]}-.", "A fox b: c; d."),
        ("uz", "A -{l'''x}-''.", "A l'x."),
    ],
)
def test_one_variant_of_the_language_is_shown(language: str, markup: str, text: str) -> None:
    assert plain(markup, Wiki(language=language)).segments == [text]


INFOBOX = "{{Infobox fox|name = [[Fox|Red fox]]|image=fox.jpg| born = {{birth date|2020|2|3}}|map_x=1|empty=}}\nA fox."


@pytest.mark.parametrize(
    ("markup", "texts"),
    [
        # tables are removed even if they are never closed
        ("A fox.\n{| class=x\n! a !! b\n|-\n| a {{b}}\n:{|\n| nested\n|}\n| c\n|}\nA dog.", ["A fox.", "A dog."]),
        ("A fox.\n{| class=x\n! scope=row | head\n|-\n| a never closed\n\nA dog.", ["A fox.", "A dog."]),
        ("{{box|list=\n{|\n| x\n|}}}A dog.", ["A dog."]),
        # paragraphs and items are one line each
        ("{{Infobox\n| a = b\n}}\nA fox\nran.\n<!-- alone -->\nIt ran.", ["A fox ran. It ran."]),
        (
            "* One\n** Two\n# Three\n; Term: what\n: Said\n----\nEnd.",
            ["One", "Two", "Three", "Term: what", "Said", "End."],
        ),
        ("A fox.<div>A dog.</div><blockquote>A cat.</blockquote>", ["A fox.", "A dog.", "A cat."]),
        ("A [[fox\n\nran]] over.", ["A fox", "ran over."]),
        ("= =\n==\nx = y\n=", ["= = == x = y ="]),
        (INFOBOX, ["A fox."]),
    ],
)
def test_blocks_are_lines(markup: str, texts: list[str]) -> None:
    assert segments(markup) == (texts, [])


def test_what_an_export_and_the_options_say_is_done() -> None:
    assert segments("A [[Attēls:x|y]]fox.", Wiki(HIDING | {"attēls"}))[0] == ["A fox."]
    assert segments("A [[Medeja:a.ogg|fox]].", Wiki(media=frozenset({"medeja"})))[0] == ["A fox."]
    assert segments(INFOBOX, infoboxes=True) == (["name: Red fox", "born: 2020-02-03", "A fox."], [])


def test_headings_without_text_are_dropped() -> None:
    begin = "Lead.\n== '''A''' ==\n=== B ===\nText.\n==Empty==\n{{x}}\n===Deep===\n"
    texts, headings = segments(f"{begin}==C==<!-- c -->\nMore.\n==References==\n<references/>")
    assert texts == ["Lead.", "A", "B", "Text.", "C", "More."]
    assert headings == [1, 2, 4]


def test_sections_of_references_and_links_are_dropped_with_their_subsections() -> None:
    page = (
        "Lead.\n==See also==\n* [[Dog]]\n===Books===\n* A.\n==After==\nMore.\n=== ''Notes'' ===\nB.\n== Last ==\nEnd."
    )
    assert segments(page) == (["Lead.", "After", "More.", "Last", "End."], [1, 3])
    texts, headings = segments(page, apparatus=True)
    assert texts == ["Lead.", "See also", "Dog", "Books", "A.", "After", "More.", "Notes", "B.", "Last", "End."]
    assert headings == [1, 3, 5, 7, 9]


PATHOLOGICAL: dict[str, Callable[[int], str]] = {
    "templates": lambda n: "{{" * n + "x" + "}}" * n,
    "templates never closed": lambda n: "{{" * n,
    "shown templates": lambda n: "{{nowrap|y" * n + "}}" * n,
    "links": lambda n: "[[" * n + "x" + "]]" * n,
    "links never closed": lambda n: "[[" * n,
    "unknown templates": lambda n: "{{x}} a" * n,
    "holes": lambda n: "\n:{{x}}" * n + "a ({{x}};" * n + "{{x}} , " * n,
    "pronunciations": lambda n: "({{IPA|a}} or" * n + "{{IPA|b" * n,
    "said": lambda n: "(" + "or " * (5 * n) + "{{IPA|a}})" + "or {{IPA|a}} " * n,
    "arguments": lambda n: "{{hlist" + "|a" * (5 * n) + "}}",
    "quantities": lambda n: (
        "{{convert|" + "1" * (5 * n) + "|km}}{{convert" + "|1|to" * n + "}}{{convert|1 " + "|ft|1" * n + "}}"
        "{{convert|1|" + "sq" * n + "}}{{num|" + "1" * (5 * n) + "}}"
    ),
    "formulas": lambda n: "<math>" * n + "{" * (5 * n) + "</math>",
    "labels": lambda n: "[[a|b" * n + "]]" * n,
    "tables": lambda n: "\n{|" * n + "\n|}" * n,
    "crossed": lambda n: "[[{{" * n + "]]" * n + "\n|}" * n + "}}" * n,
    "references": lambda n: "<ref>" * (4 * n),
    "comments": lambda n: "<!--" * n,
    "commas": lambda n: ", " * (5 * n) + "x" + " (" * (5 * n) + " )" * (5 * n),
    "headings": lambda n: "".join(f"\n{'=' * (i % 90 + 1)}a=" for i in range(n)),
    "quotes": lambda n: "''a'''" * n,
    "blanks": lambda n: (" " * 50 + "\n:") * n,
    "marks": lambda n: "a" + "\u0301\u0323" * (5 * n),
    "references of HTML": lambda n: "&#" + "1" * (5 * n) + ";",
    "blank arguments": lambda n: "{{nowrap|" + " " * (5 * n) + "}}{{convert|1" + " " * (5 * n) + "}}",
    "blank values": lambda n: "{{Infobox a|b=c" + " " * (5 * n) + "d}}",
    "bold and italic": lambda n: "'''a ''" * n + "'''\n" + "l'''a'' [[b|'''c '']]\n" * n,
    "variants": lambda n: "-{" * n + "zh:a;" * n + "}-" * n + "-{zh:" + "; " * (5 * n) + "&" * n + "}-",
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_hostile_markup_takes_linear_time(name: str) -> None:
    markup = PATHOLOGICAL[name]
    assert is_linear(lambda n: plain(markup(n), Wiki(language="zh"), infoboxes=True), longest=10_000)


def test_deep_nesting_is_dropped_and_the_text_around_it_kept() -> None:
    for opening, closing, left in (("{{nowrap|", "}}", ""), ("[[dog|", "]]", "A dog ran. ")):
        assert one(f"A {opening * 39}fox{closing * 39}.") == "A fox."
        assert one(f"A {opening * 10_000}fox{closing * 10_000} ran. It ran.") == f"{left}It ran."


PIECES = r"""{{ }} {{{ [[ ]] | \n{| \n|} \n|- \n == = ' '' ''' * : File: fr: <ref> </ref> <ref/> <!-- --> <nowiki>
</nowiki> <table> </table> <br> <sup>2 [http://a ] __X__ &amp; &# nowrap| lang| convert|
#if: hlist| IPA| <math> </math> . ( ) , ; a fox é"""
MARKUP = st.lists(st.sampled_from([" ", *PIECES.replace("\n", " ").replace(r"\n", "\n").split(" ")]), max_size=60).map(
    "".join
)


@given(st.one_of(MARKUP, st.text()))
def test_any_markup_gives_clean_lines(markup: str) -> None:
    texts, headings = segments(markup)
    assert all(text == " ".join(text.split()) and any(c.isalnum() or c == "_" for c in text) for text in texts)
    assert headings == sorted(set(headings))
    assert not headings or headings[-1] < len(texts) - 1  # text follows every heading


@given(MARKUP)
def test_text_around_broken_markup_is_kept(markup: str) -> None:
    closed = markup.replace("<!--", "").replace("<", "").replace("{{", "").replace("[[", "").replace("{|", "")
    texts, _ = segments(f"Before it.\n\n{closed}\n\nAfter it.")
    assert texts[0] == "Before it."
    assert texts[-1] == "After it."
