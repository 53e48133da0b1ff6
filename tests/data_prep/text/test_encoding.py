import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.common.errors import InputError
from data_prep.text.encoding import GUESS, decode, known

pytest.importorskip("charset_normalizer", reason="needs the packages of the extra `dumps`")

CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. Všichni lidé se rodí svobodní a sobě rovní co do důstojnosti a práv. "
RUSSIAN = "Все люди рождаются свободными и равными в своем достоинстве и правах. "


@pytest.mark.parametrize(
    ("text", "encoding", "guessed"),
    [
        ("Plain.", "ascii", ""),
        ("“Naïve,” she said – in a café.", "utf-8", ""),
        ("“Naïve,” she said – in a café.", "utf-8-sig", ""),
        ("“Naïve,” she said – in a café.", "cp1252", "cp1252"),
        ("Naïve, she said, in a café.", "latin-1", "cp1252"),
        ("“Naïve,” she said – in a café.", "utf-16", "utf_16"),
        (CZECH * 3, "cp1250", "cp1250"),
        (RUSSIAN * 3, "cp1251", "cp1251"),
        (RUSSIAN * 3, "koi8-r", "koi8_r"),
    ],
)
def test_encodings_are_guessed(text: str, encoding: str, guessed: str) -> None:
    assert decode(text.encode(encoding), GUESS) == (text, guessed)
    assert decode(text.encode(encoding), known(encoding)) == (text, "")


@given(st.text())
def test_utf_8_is_never_guessed(text: str) -> None:
    text = text.replace("\ufeff", "")
    assert decode(text.encode("utf-8", "replace"), GUESS)[1] == ""


def test_what_is_in_no_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="^not UTF-8 at byte 0, nor of a known encoding; name it with --encoding$"):
        decode(b"\xff\x81\x00\x98", GUESS)
    with pytest.raises(ValueError, match="^not ascii at byte 3$"):
        decode(b"caf\xe9", "ascii")
    for name in ("klingon", "rot13"):
        with pytest.raises(InputError, match=f"^--encoding {name}: not a known encoding"):
            known(name)
