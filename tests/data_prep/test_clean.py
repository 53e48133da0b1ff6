import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep import clean


@given(st.text())
def test_normal_form_is_nfc_without_control_characters_and_stays_so(text: str) -> None:
    normal = clean.normalise(text)
    assert unicodedata.is_normalized("NFC", normal)
    assert not any(unicodedata.category(c) == "Cc" and c != "\n" for c in normal)
    assert clean.normalise(normal) == normal
    normal.encode()


def test_line_breaks_stay_and_invisible_characters_become_blanks() -> None:
    assert clean.normalise("a\r\nb\rc\td\x00e\u200bf\u00a0g") == "a\nb\nc    d e f g"
    assert clean.normalise("e\u0301\ud800") == "é"


def test_bytes_of_windows_that_were_taken_for_latin_1_are_what_they_were() -> None:
    assert clean.normalise("It\x92s \x93so\x94\x85 \x81.") == "It’s “so”…  ."
    assert clean.legible("“so”".encode().decode("latin-1")) == "â€œsoâ€\x9d"  # ftfy needs the last one


def test_references_of_html_are_read_whatever_their_length() -> None:
    assert clean.unescape("&lt;a&gt; &amp;amp; &#65;&#x42;") == "<a> &amp; AB"
    assert clean.unescape("x&#" + "1" * 5000 + ";y") == "x y"


def test_a_letter_has_a_bounded_number_of_marks() -> None:
    started = time.process_time()
    normal = clean.normalise("a" + "\u0301\u0323" * 100_000 + "b")  # NFC alone: a minute
    assert time.process_time() - started < 5
    assert normal == unicodedata.normalize("NFC", "a" + "\u0301\u0323" * 15) + "b"
    taken_apart = clean.normalise("a" + "\u0344" * 30)
    assert clean.normalise(taken_apart) == taken_apart
    assert clean.normalise("\u2014" * 100) == "\u2014" * 100


@pytest.mark.parametrize(
    "text",
    [
        "Returns the number of foxes.",
        "Adjust image contrast.",
        "If `x` is None, the FFT of the signal is computed with scipy.fft (see below).",
        "Don't use this; it's slow, e.g. for files/folders larger than 2 GB.",
    ],
)
def test_sentences_are_prose(text: str) -> None:
    assert clean.is_prose(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int",
        "Parameters",
        "x = foo(bar, baz=1) + qux[0]",
        "for i in range(10): print(i, end='') # the end of it",
        "a, b = np.array([[1, 2], [3, 4]])",
        "1.0 2.0 3.0 the 4.0",
        "linalg norm solve",
    ],
)
def test_code_numbers_and_names_are_not_prose(text: str) -> None:
    assert not clean.is_prose(text)


def test_other_languages_are_not_english() -> None:
    assert clean.is_english("Computes the mean of all values in the array.")
    assert not clean.is_english("Berechnet den Mittelwert aller Werte und gibt ihn als Zahl zurück.")
    assert not clean.is_english("Calcule la moyenne de toutes les valeurs du tableau donné.")
    assert not clean.is_english("计算数组中所有值的平均值。")
    assert not clean.is_english("123 + 456")


def test_what_reads_as_english_has_letters_of_english_too() -> None:
    english = "Computes the mean of all values in the array."
    assert clean.reads_as_english(english)
    assert clean.reads_as_english(english + " “Naïve”, said the café — 3 µm²…")
    assert clean.is_english(english + " Это среднее всех значений.")
    assert not clean.reads_as_english(english + " Это среднее всех значений.")
    assert not clean.reads_as_english("Berechnet den Mittelwert aller Werte.")


@given(st.text(st.characters() | st.sampled_from("aeinorst .é")))
def test_nine_of_ten_letters_are_ascii(text: str) -> None:
    """As reddit.py counts them."""
    letters = [c for c in text if c.isalpha()]
    assert clean.mostly_ascii(text) == (sum(map(str.isascii, letters)) >= 0.9 * len(letters))


def test_sentences_are_split_but_not_after_abbreviations() -> None:
    text = "Reads a file, e.g. Foo. It may be large, cf. Bar et al. for more. Is it? Yes!"
    assert clean.sentences(text)[0] == "Reads a file, e.g. Foo."
    assert clean.sentences(text)[-2:] == ["Is it?", "Yes!"]
    assert " ".join(clean.sentences(text)) == text
    assert clean.sentences("See Fig. 3 for it. Done.") == ["See Fig. 3 for it.", "Done."]
    assert clean.sentences("") == []


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" ")))
def test_splitting_loses_nothing_but_blanks(text: str) -> None:
    assert "".join("".join(clean.sentences(text)).split()) == "".join(text.split())


def test_splitting_takes_linear_time() -> None:
    text = " ".join(["See e.g. A"] * 40_000)
    started = time.process_time()
    assert clean.sentences(text) == [text]
    assert time.process_time() - started < 5  # a minute, where what is joined was searched anew for each piece


def test_folding_ignores_case_and_spacing() -> None:
    assert clean.fold("  The\nFOX ") == clean.fold("the  fox")
    assert clean.fold("the fox") != clean.fold("thefox")
