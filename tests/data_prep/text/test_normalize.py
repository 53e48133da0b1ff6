import time
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.text.normalize import fold, legible, legible_line, normalise, one_line, unescape


@given(st.text())
def test_the_normal_form_is_nfc_without_control_characters_and_is_its_own_normal_form(text: str) -> None:
    normal = normalise(text)
    assert unicodedata.is_normalized("NFC", normal)
    assert not any(unicodedata.category(c) == "Cc" and c != "\n" for c in normal)
    assert normalise(normal) == normal
    normal.encode()


def test_line_breaks_stay_and_other_controls_and_spaces_become_blanks() -> None:
    assert normalise("a\r\nb\rc\td\x00e\u200bf\u00a0g\u2028h") == "a\nb\nc    d ef g\nh"
    assert normalise("e\u0301\ud800") == "é"


def test_bytes_of_windows_1252_that_were_read_as_latin_1_become_its_characters() -> None:
    assert normalise("It\x92s \x93so\x94\x85 \x81.") == "It’s “so”…  ."
    assert legible("“so”".encode().decode("latin-1")) == "â€œsoâ€\x9d"  # ftfy needs the last character


def test_soft_hyphens_go_with_the_line_break_after_them_but_not_before_mojibake_is_repaired() -> None:
    assert normalise("extra\u00adordi\u00ad \n nary") == one_line("extra\u00adordi\u00ad \n nary") == "extraordinary"
    assert normalise("e\u00ad\u0301") == "é"
    spanish = "aquí\nno".encode().decode("latin-1")
    assert legible(spanish) == spanish


def test_html_references_of_any_length_are_replaced() -> None:
    assert unescape("&lt;a&gt; &amp;amp; &#65;&#x42;") == "<a> &amp; AB"
    assert unescape("x&#" + "1" * 5000 + ";y") == "x y"


def test_a_letter_has_a_bounded_number_of_marks() -> None:
    started = time.process_time()
    normal = normalise("a" + "\u0301\u0323" * 100_000 + "b")  # NFC alone takes a minute
    assert time.process_time() - started < 5
    assert normal == unicodedata.normalize("NFC", "a" + "\u0301\u0323" * 15) + "b"
    split = normalise("a" + "\u0344" * 30)
    assert normalise(split) == split
    assert normalise("\u2014" * 100) == "\u2014" * 100


def test_one_line_has_single_blanks() -> None:
    assert one_line(" a\n\tb\x81 c ") == "a b c"
    assert legible_line(" a\n\tb\x81 c ") == "a b\x81 c"


def test_folding_ignores_case_spacing_and_joiners() -> None:
    assert fold("  The\nFOX ") == fold("the  fox")
    assert fold("the fox") != fold("thefox")
    assert fold("می\u200cخواهم ❤\ufe0f") == fold("میخواهم ❤")
