"""The table of characters, compared with Unicode, with what `normalise` does, and with docs/characters.md."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.text.characters import INSTEAD, KEPT, TABLE, WINDOWS
from deepsiam.data_prep.text.normalize import fold, normalise
from tests.toy import ROOT

EVERY = "".join(map(chr, range(sys.maxunicode + 1))).translate({10: "", 32: ""})
# Default_Ignorable_Code_Point of Unicode 16, DerivedCoreProperties.txt
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
CHANGED = {row: "".join(re.findall(f"[{row.characters}]", EVERY)) for row in TABLE if row.characters}


def categories(text: str) -> set[str]:
    return {unicodedata.category(character) for character in text}


def test_every_character_is_in_one_row_of_its_category() -> None:
    every = "".join(CHANGED.values())
    assert len(every) == len(set(every))
    for row, text in CHANGED.items():
        assert categories(text) == set(row.category.split(", "))
    kept = set(EVERY).difference(every)
    plain, others = (set(row.category.split(", ")) for row in TABLE if row.becomes == KEPT)
    assert {category if category in others else category[0] for category in categories("".join(kept))} == plain | others
    assert not INVISIBLE.search("".join(kept))


@pytest.mark.parametrize("row", CHANGED, ids=lambda row: row.name)
def test_a_character_becomes_what_its_row_says(row: object) -> None:
    for character in CHANGED[row]:
        instead = character.encode("latin-1").decode("cp1252") if row.becomes == WINDOWS else INSTEAD[row.becomes]
        assert normalise(f"a{character}b") == f"a{instead}b"


@pytest.mark.parametrize(
    "text",
    [
        "کتاب‌ها را می‌خواهم و نمی‌دانم کجا هستند.",  # Persian
        "ශ්‍රී ලංකාව",  # Sinhala
        "ക്ര നന്‍മ",  # Malayalam
        "क्‍ष र्‍य",  # Marathi
        "ভাষা\u200cর",  # Bengali
        "ភាសា\u200bខ្មែរ",  # Khmer
        "ᠮᠣᠩᠭ\u180bᠣᠯ",  # Mongolian
        "\u1105\u1160 \u115f\u1161",  # jamo
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
    ],
)
def test_what_does_not_is_not(text: str, normal: str) -> None:
    assert normalise(text) == normal


BASES = "\u0301aéк中ක්한ᄀ☺🏴👨ᠮא "
MEETING = BASES + "".join(text[:3] + text[-3:] for row, text in CHANGED.items() if row.becomes != WINDOWS)


@given(st.text(st.sampled_from(MEETING), max_size=12))
def test_one_pass_is_enough(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "characters.md").read_text()
    rows = [f"| {row.category} | {row.name} | {row.becomes}{f'; kept {row.kept}' * bool(row.kept)} |" for row in TABLE]
    assert "\n".join(["| category | characters | become |", "|---|---|---|", *rows, ""]) in page
