"""A sentence loses nothing that it needs: where a template's text is unknown, the sentence goes, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.sources.wikipedia.wikitext import plain


@pytest.mark.parametrize(
    ("markup", "kept", "unknown"),
    [
        ("One. It is {{foo|3}} long. Two.", ["One. Two."], ["foo"]),
        ("One. It is {{foo|3}}. Two.", ["One. Two."], ["foo"]),
        ("One. {{foo|It}} is long. Two.", ["One. Two."], ["foo"]),
        ("One. ''{{foo|Fox}}''s run. Two.", ["One. Two."], ["foo"]),
        ("{{foo|It}} is long. Two.", ["Two."], ["foo"]),
        ("* {{foo|It}} – 3 medals\n* Two", ["Two"], ["foo"]),
        ("* ''{{foo}}'' (UK)\n* Two", ["Two"], ["foo"]),
        ("It is, e.g. by Mr. Fox, {{foo}} long at 3 p.m. by J. P. Hale. Two.", ["Two."], ["foo"]),
        ("It is {{foo}} and {{bar}}. Two is {{bar}}.", [], ["foo", "bar"]),
        ("It is {{nowrap|a {{foo}} b}}. Two.", ["Two."], ["foo"]),
        ("It is {{convert|{{foo}}|km}}. Two.", ["Two."], ["convert"]),
        ("It is {{#if:{{foo}}|a|b}}. Two.", ["Two."], ["#if:"]),
        ("It is [[fox|the {{foo}} one]]. Two.", ["Two."], ["foo"]),
        ("It is\n{{foo|\n3}}\nlong. Two.", ["Two."], ["foo"]),
        ("It is\n: <math>\\int</math>\nwhere it is. Two.", ["Two."], ["<math>"]),
        ("It is\n: <math>\\int</math>.\nTwo.", ["Two."], ["<math>"]),
        ("It has (with {{foo}}) a tail. Two.", ["Two."], ["foo"]),
        ("The price was ${{formatnum:{{foo|5}}}} then. Two.", ["Two."], ["formatnum:"]),
        # no sentence needs these
        ("{{foo|a\n|b}}\nOne. Two.\n{{foo}}", ["One. Two."], []),
        ("{{foo}} '''Foxes''' run.", ["Foxes run."], []),
        ("One.{{foo}} Two.{{foo}}{{bar}}\n\nThree. {{foo}}", ["One. Two.", "Three."], []),
        ("Fox ({{foo}}; {{bar|b}} {{foo}}, 1800–1859) ran ({{foo}}).", ["Fox (1800–1859) ran."], []),
        ("One:\n: {{foo}}\nTwo.", ["One:", "Two."], []),
        ("A fox{{citation needed}} ran{{sfn|A|2001}}, {{clarify|date=May}} so.", ["A fox ran, so."], []),
        ("A [[File:a.jpg|thumb|A {{foo}} b]]fox<ref>{{foo}}</ref> ran.\n{|\n| {{foo}}\n|}", ["A fox ran."], []),
    ],
)
def test_a_sentence_with_a_hole_is_dropped_and_counted(markup: str, kept: list[str], unknown: list[str]) -> None:
    text = plain(markup)
    assert text.segments == kept
    assert text.unknown == unknown


def test_sections_that_are_left_out_count_nothing() -> None:
    assert plain("One.\n==See also==\n* It is {{foo}} long.").unknown == []


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("Foxes ({{IPAc-en|f|ɒ|k|s}} {{respell|FOKS}}; {{lang-de|Fuchs}}) run.", "Foxes (Fuchs) run."),
        ("Foxes (pronounced {{IPA|/fɒks/}}, or {{IPA-de|fʊks}}) run.", "Foxes run."),
        ("Foxes ({{lang-ru|лиса}} {{IPA-ru|lʲɪˈsa|}}) run.", "Foxes (лиса) run."),
        ("As {{IPA|/fɒks/}} it begins with {{IPAslink|f}}.", "As /fɒks/ it begins with /f/."),
    ],
)
def test_pronunciations_are_left_out_in_brackets(markup: str, text: str) -> None:
    assert plain(markup).segments == [text]


def test_fractions_stay_apart_from_the_digits_before_them() -> None:
    assert plain("About 1{{frac|1|2}} or {{frac|1|2}}, {{convert|5{{frac|1|2}}|in|mm}}.").segments == [
        "About 1 1/2 or 1/2, 5 1/2 in."
    ]


def test_bars_and_equals_signs_of_inner_templates_are_text() -> None:
    assert plain("A {{nowrap|{{nowrap|a {{=}} b}} {{!}} c}}.").segments == ["A a = b | c."]


def test_blocks_keep_what_they_contain() -> None:
    page = (
        "{{glossary}}\n{{term|Fox}}\n{{defn|An animal{{cn}} that runs.}}\n{{glossary end}}\n"
        "{{div col|colwidth=20em}}\n* One\n* Two\n{{div col end}}\n"
        "{{columns-list|colwidth=30em|\n* Three\n* Four\n}}\n"
        "He said: {{blockquote|Run, fox.|A. Hale}} It ran.\n<poem>\nLine one\nLine two\n</poem>\n{{poemquote|\nA\nB}}"
    )
    assert plain(page).segments == [
        *("Fox", "An animal that runs.", "One", "Two", "Three", "Four"),
        *("He said:", "Run, fox.", "It ran.", "Line one Line two", "A B"),
    ]


HOSTILE = ["\x02", "\x020\x03", "\x02999\x03", "\x04a\x05", "&#2;0&#3;", "&#x2;", "Name", "<nowiki>\x020\x03</nowiki>"]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_cannot_pass_for_a_mark(text: str) -> None:
    """A page that contains marks loses only their characters."""
    result = plain(f"One {text} two. It is {{{{foo}}}} long. Name is three {text}.")
    assert len(result.segments) == 1
    assert result.segments[0].startswith("One ")
    assert "Name is three" in result.segments[0]
    assert "It is" not in result.segments[0]
    assert result.unknown == ["foo"]


PARTS = [
    "{{foo}}",
    "{{IPA|a}}",
    "(",
    ")",
    ",",
    ". ",
    "\n",
    ": ",
    "* ",
    "A ",
    "a ",
    "é",
    "\x02",
    "''",
    "{{lang-de|",
    "}}",
    "==",
]


@given(st.lists(st.sampled_from(PARTS), max_size=40).map("".join))
def test_no_mark_is_left(markup: str) -> None:
    text = plain(markup)
    assert not set("".join(text.segments)) & set("\x02\x03\x04\x05")
    assert set(text.unknown) <= {"foo"}
