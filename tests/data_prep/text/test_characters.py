"""Characters by their table, the normal form, paragraphs, sentences, and what is English prose."""

import re
import sys
import textwrap
import unicodedata
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.text.characters import INSTEAD, NO_CHANGE, TABLE, WINDOWS, Row
from deepsiam.data_prep.text.language import is_english, is_prose
from deepsiam.data_prep.text.normalize import fold, legible, legible_line, normalise, one_line, unescape
from deepsiam.data_prep.text.paragraphs import paragraphs
from deepsiam.data_prep.text.sentences import sentences
from tests.data_prep.linear import is_linear
from tests.samples import DATA, needs
from tests.toy import ROOT

EVERY = "".join(map(chr, range(sys.maxunicode + 1))).translate({10: "", 32: ""})
# Default_Ignorable_Code_Point of Unicode 16, DerivedCoreProperties.txt
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
ROWS = [row for row in TABLE if row.characters]


@cache
def characters(row: Row) -> str:
    """All characters of a row of the table."""
    return "".join(re.findall(f"[{row.characters}]", EVERY))


def categories(text: str) -> set[str]:
    return {unicodedata.category(character) for character in text}


def test_every_character_is_in_one_row_of_its_category() -> None:
    every = "".join(map(characters, ROWS))
    assert len(every) == len({*every})
    for row in ROWS:
        assert categories(characters(row)) == set(row.category.split(", "))
    kept = set(EVERY).difference(every)
    plain, others = (set(row.category.split(", ")) for row in TABLE if row.becomes == NO_CHANGE)
    assert {category if category in others else category[0] for category in categories("".join(kept))} == plain | others
    assert not INVISIBLE.search("".join(kept))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_character_becomes_what_its_row_says(row: Row) -> None:
    text = characters(row)
    instead = [INSTEAD.get(row.becomes, "")] * len(text)
    if row.becomes == WINDOWS:
        instead = list(text.encode("latin-1").decode("cp1252"))
    assert normalise("\n".join(f"a{one}b" for one in text)) == "\n".join(f"a{one}b" for one in instead)


@pytest.mark.parametrize(
    "text",
    [
        "کتاب‌ها را می‌خواهم و نمی‌دانم کجا هستند.",  # Persian
        "ශ්‍රී ලංකාව",  # Sinhala
        "ភាសា\u200bខ្មែរ",  # Khmer
        "ᠮᠣᠩᠭ\u180bᠣᠯ",  # Mongolian
        "יְרוּשָׁלַ\u034fִם",  # Hebrew
        "葛\U000e0100城",  # a Japanese name
        "👨‍👩‍👧‍👦 🏳️‍🌈 👩🏽‍🚀 🙂‍↔️ ❤️‍🔥 1️⃣ ©️ ☺︎",
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # Scotland
        "\u0600١٢ Ⅷ ½ 𓀀𓐰𓀁",
    ],
)
def test_what_belongs_to_the_spelling_is_kept_and_folded(text: str) -> None:
    assert normalise(text) == unicodedata.normalize("NFC", text)
    assert fold(text) == fold(INVISIBLE.sub("", text))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("light\u200bhouse wo\u200drd wo\u200crd", "lighthouse word word"),
        ("\u0628\u200c\u200c\u200d", "\u0628\u200c"),
        ("👨\u200d 👨 \u200d👩 ☺\ufe0f\ufe0f\ufe0f", "👨 👨 👩 ☺\ufe0f"),
        ("a\ufe0f\U000e0100 é\ufe0f e\u0301\ufe0f \ufe0fб\ufe0f", "a é é б"),
        ("x\U000e0041\U000e007f 🏴\U000e0067", "x 🏴"),  # a message hidden in tags
        ("\ufeffא\u200f\u202b(ב)\u202c\u2066c\u2069", "א(ב)c"),
        ("a\u2060\u2061\u206a\ufff9b\u034fc", "abc"),
        ("\ue000 \U000f0000x\ufdd0\U0001ffffy", "   xy"),
        ("한\u3164글 a\uffa0b \u2800", "한 글 a b  "),
        # line breaks stay, other controls and spaces become blanks
        ("a\r\nb\rc\td\x00e\u200bf\u00a0g\u2028h", "a\nb\nc    d ef g\nh"),
        ("e\u0301\ud800", "é"),
        # bytes of Windows-1252 that were read as Latin-1 become its characters
        ("It\x92s \x93so\x94\x85 \x81.", "It’s “so”…  ."),
        # soft hyphens go with the line break after them
        ("extra\u00adordi\u00ad \n nary", "extraordinary"),
        ("e\u00ad\u0301", "é"),
    ],
)
def test_what_does_not_is_not(text: str, normal: str) -> None:
    assert normalise(text) == normal
    assert one_line(f" {text}\n") == " ".join(normal.split())


BASES = "\u0301aéк中ක්한ᄀ☺🏴👨ᠮא "
MEETING = BASES + "".join(row.characters for row in ROWS if row.becomes != WINDOWS)


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "characters.md").read_text()
    rows = [f"| {row.category} | {row.name} | {row.becomes}{f'; kept {row.site}' * bool(row.site)} |" for row in TABLE]
    assert "\n".join(["| category | characters | become |", "|---|---|---|", *rows, ""]) in page


@given(st.text() | st.text(st.sampled_from(MEETING), max_size=12))
def test_the_normal_form_is_nfc_without_control_characters_and_is_its_own_normal_form(text: str) -> None:
    normal = normalise(text)
    assert unicodedata.is_normalized("NFC", normal)
    assert not any(unicodedata.category(c) == "Cc" and c != "\n" for c in normal)
    assert normalise(normal) == normal
    normal.encode()


def test_legible_text_keeps_what_the_repair_of_mojibake_needs() -> None:
    spanish = "aquí\nno".encode().decode("latin-1")  # with a soft hyphen before the line break
    assert legible(spanish) == spanish
    assert legible("“so”".encode().decode("latin-1")) == "â€œsoâ€\x9d"
    assert legible_line(" a\n\tb\x81 c ") == "a b\x81 c"


def test_html_references_of_any_length_are_replaced() -> None:
    assert unescape("&lt;a&gt; &amp;amp; &#65;&#x42;") == "<a> &amp; AB"
    assert unescape("x&#" + "1" * 5000 + ";y") == "x y"


def test_a_letter_has_a_bounded_number_of_marks() -> None:
    normal = normalise("a" + "\u0301\u0323" * 100 + "b")
    assert normal == unicodedata.normalize("NFC", "a" + "\u0301\u0323" * 15) + "b"
    assert is_linear(lambda n: normalise("a" + "\u0301\u0323" * n + "b"), longest=100_000)  # NFC alone is not
    split = normalise("a" + "\u0344" * 30)
    assert normalise(split) == split
    assert normalise("\u2014" * 100) == "\u2014" * 100


def test_folding_ignores_case_spacing_and_joiners() -> None:
    assert fold("  The\nFOX ") == fold("the  fox")
    assert fold("the fox") != fold("thefox")
    assert fold("می\u200cخواهم ❤\ufe0f") == fold("میخواهم ❤")


SENTENCE = "The quick brown fox jumps over the lazy dog, which sleeps on in the sun beside the old and quiet river"
STORY = [" ".join([SENTENCE] * (1 + n % 4)) + f" for {'a long ' * (n % 7)}while." for n in range(40)]


WRAPPED = "\n \n\n".join(textwrap.fill(paragraph, 70, initial_indent="  ") for paragraph in STORY)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"\n\n{WRAPPED}\n".replace("\n", end), STORY) for end in ("\n", "\r\n", "\r")),
        # a line is a paragraph where lines are long
        ("\n".join(STORY), STORY),
        ("\n\n".join(STORY), STORY),
        # words broken at a hyphen and dashes stay together
        ("the foot-\nmarks of the hound--\nor he -\nran", ["the foot-marks of the hound--or he - ran"]),
        # a text without words has none
        ("", []),
        ("\n \r\n\t\n\ufeff", []),
    ],
    ids=range(8),
)
def test_paragraphs_end_at_blank_lines(text: str, expected: list[str]) -> None:
    assert paragraphs(text) == expected


def test_wrapped_text_without_blank_lines_is_split_where_the_next_word_had_room() -> None:
    story = [paragraph for paragraph in STORY if len(textwrap.wrap(paragraph, 70)[-1]) <= 60]
    assert 20 < len(story) < len(STORY)
    assert paragraphs("\n".join(textwrap.fill(paragraph, 70) for paragraph in story)) == story


def test_a_line_is_a_paragraph_where_nearly_all_lines_are_sentences() -> None:
    """As in the input of BERT's own scripts: a sentence a line, even without capitals; blank lines between texts."""
    texts = [[f"the keeper wrote letter {i} {j} ." for j in range(6)] for i in range(4)]
    assert paragraphs("\n\n".join("\n".join(text) for text in texts)) == [line for text in texts for line in text]
    wrapped = ["The keeper wrote", "a letter. Nobody", "answered it."] * 10
    assert paragraphs("\n".join(wrapped)) != wrapped


@given(st.text(alphabet='ab.- \n\r\t"\u2028\u00e9\x00\ud800', max_size=400))
def test_no_word_is_lost(text: str) -> None:
    parts = paragraphs(text)
    assert all(paragraph and paragraph == " ".join(paragraph.split()) for paragraph in parts)
    letters = re.sub(r"[^ab.\-\"\u00e9]", "", text)
    assert "".join(parts).replace(" ", "") == letters


@needs("books")
@pytest.mark.parametrize(
    ("book", "recall", "precision"),
    [("Bennet_Babylon_1902", 0.9, 0.97), ("Lawrence_Peacock_1911", 0.92, 0.98), ("Haggard_She_1887", 0.92, 0.89)],
)
def test_real_books_without_blank_lines_get_their_paragraphs_back(book: str, recall: float, precision: float) -> None:
    text = re.sub(" +", " ", (DATA / "books" / f"{book}.txt").read_text("utf-8-sig"))
    true = ends(paragraphs(text))
    guessed = ends(paragraphs("\n".join(line for line in text.split("\n") if line.strip())))
    assert len(true & guessed) >= recall * len(true)
    assert len(true & guessed) >= precision * len(guessed)


def ends(segments: list[str]) -> set[int]:
    """Return where each segment ends, as a number of letters from the beginning."""
    position, positions = 0, set()
    for segment in segments:
        position += len(segment.replace(" ", ""))
        positions.add(position)
    return positions


@pytest.mark.parametrize(
    "expected",
    [
        [],
        ["Reads a file, e.g. Foo.", "It may be large, cf. Bar et al. for more.", "Is it?", "Yes!"],
        ["See Fig. 3 for it.", "Done."],
        ["Mrs. Bennet was called.", "Mr. Bingley had come to St. Ives with Capt. Wade."],  # titles before names
        ["He looked at him.", "Mr. Bumble was silent.", "So was Dr. John."],
        ["The Rev. Dr. E. Smith won the case Hudson v. Palmer."],
        ['"Get out!" he thundered.', '"Why?" asked Eustace.', '"I stay."'],  # speech continues in lower case
        ["“Will you?” she asked.", "‘No!’ cried James."],
        ["It peaked at No. 63, see pp. 5 to 7 and Fig. 3."],  # numbers
        ["He said no.", "Therefore it is art.", "That is all."],
        ["Nine were killed.", "400 fled in 2007.", "11,400 of them came back.", "5 of 11 tracks are in English."],
        ["As Zhang et al. (2015) and Ruhlen, M. 1991. say, it is old."],
        ["There are shells, etc.", "A capital is also used, e.g. here."],
    ],
)
def test_boundaries(expected: list[str]) -> None:
    assert sentences(" ".join(expected)) == expected


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" ")))
def test_splitting_loses_nothing_but_blanks(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_splitting_takes_linear_time() -> None:
    text = " ".join(["See e.g. A"] * 400)
    assert sentences(text) == [text]
    # appending each piece to a string is not
    assert is_linear(lambda n: sentences(" ".join(["See e.g. A"] * n)), longest=40_000)


PROSE = [
    "Returns the number of foxes.",
    "Adjust image contrast.",
    "If `x` is None, the FFT of the signal is computed with scipy.fft (see below).",
    "Don't use this; it's slow, e.g. for files/folders larger than 2 GB.",
]
CODE = ["", "int", "Parameters", "x = foo(bar, baz=1) + qux[0]", "for i in range(10): print(i, end='') # the end of it"]
CODE += ["a, b = np.array([[1, 2], [3, 4]])", "1.0 2.0 3.0 the 4.0", "linalg norm solve", "to it", "if it is 1 2 3 4 5"]
CODE += ["if (the) fox = [it] and {dog} <is> it"]


def test_prose_is_told_from_code_numbers_and_names() -> None:
    assert list(filter(is_prose, PROSE + CODE)) == PROSE


def test_other_languages_are_not_english() -> None:
    english = "Computes the mean of all values in the array."
    others = [
        "Berechnet den Mittelwert aller Werte und gibt ihn als Zahl zurück.",
        "计算数组中所有值的平均值。",
        "123 + 456",
    ]
    others += ["Calcule la moyenne de toutes les valeurs du tableau donné."]
    assert list(filter(is_english, [english, *others])) == [english]
