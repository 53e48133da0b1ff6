"""Words: of many scripts, however they are encoded, and the same on the quick path as on the other."""

import unicodedata

import pytest

from deepsiam.data_prep.common import words
from deepsiam.data_prep.common.words import pieces, split_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Latin: single letters, apostrophes, points, code
        ("C is a language; C++, 'K' and vitamin D3", "c is a language c k and vitamin d3"),
        ("It's O’Brien's l'eau, don't", "it brien eau don"),
        ("U.S.A. 3.14 _ __ snake_case os.path 7", "u s a 3 14 __ snake_case os path 7"),
        ("Python™ ´tis ﬁne", "python tis fine"),
        # folded case and form
        ("Straße STRASSE", "strasse strasse"),
        ("ΟΔΟΣ οδος", "οδοσ οδοσ"),
        ("İstanbul istanbul I\u0307", "istanbul istanbul i"),
        ("état e\u0301tat É", "état état é"),
        ("ＮＨＫ Ⅳ x²", "nhk iv x2"),
        ("co\u00adoperate", "cooperate"),
        # marks are part of words
        ("हिन्दी भाषा में", "हिन्दी भाषा में"),
        ("क्\u200dष क्ष", "क्ष क्ष"),
        ("தமிழ் மொழி", "தமிழ் மொழி"),
        ("বাংলা ভাষা", "বাংলা ভাষা"),
        ("ދިވެހި ሰላም፡ዓለም", "ދިވެހި ሰላም ዓለም"),
        ("བོད་སྐད།", "བོད སྐད"),
        ("كِتَابٌ كـتاب", "كتاب كتاب"),
        ("שָׁלוֹם שלום", "שלום שלום"),
        ("می\u200cخواهم", "میخواهم"),
        # scripts without spaces: letters, then pairs
        ("机器学 2024年", "机 器 学 机器 器学 2024 年"),
        ("𠀀𠀁", "𠀀 𠀁 𠀀𠀁"),
        ("ビール ﾋﾞ 人々", "ビ ー ル ビー ール ビ 人 々 人々"),
        ("Tシャツ", "t シ ャ ツ シャ ャツ"),
        ("한국어 \u1112\u1161\u11ab", "한 국 어 한국 국어 한"),
        ("ภูเขา", "ภู เ ข า ภูเ เข ขา"),
        ("ລາວ", "ລ າ ວ ລາ າວ"),
        ("ភាសា", "ភា សា ភាសា"),
        ("မြန်မာ\u200bစာ", "မြ န် မာ မြန် န်မာ စာ"),
        # emoji; nothing
        ("ok 👍🏽 ❤️", "ok 👍 🏽"),
        (" -- … \u0301", ""),
    ],
)
def test_words_of_many_scripts(text: str, expected: str) -> None:
    assert split_words(text) == expected.split()
    assert split_words(unicodedata.normalize("NFD", text)) == expected.split()


def test_the_quick_path_finds_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [chr(i) for i in range(0x2300) if words._PLAIN.fullmatch(chr(i)) and unicodedata.category(chr(i)) != "Cn"]
    texts = [pattern.replace("?", character) for character in plain for pattern in ("a?b", "ab ? c", "it'?", "_?’é ?")]
    quick = list(map(split_words, texts))
    monkeypatch.setattr(words, "_PLAIN_WORDS", words._WORDS)
    assert list(map(split_words, texts)) == quick


def test_pieces_are_the_whole_text() -> None:
    text = "Plain हिन्दी, 机器, \u00e9t\u00e9."
    assert "".join(pieces(text)) == text
    assert [piece for piece in pieces(text) if split_words(piece)] == ["Plain", "हिन्दी", "机", "器", "été"]
