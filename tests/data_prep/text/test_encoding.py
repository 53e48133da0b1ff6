import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.text.encoding import GUESS, decode, known

pytest.importorskip("py3langid", reason="needs the packages of the extra `dumps`")

ENGLISH = "“Naïve,” she said – in a café.\nAnd that was all.\n"
RUSSIAN = "Все люди рождаются свободными и равными.\nВот и всё.\n"
CHINESE = "人人生而自由，在尊严和权利上一律平等。\n他们赋有理性。\n"


@pytest.mark.parametrize(
    ("text", "encoding", "guessed"),
    [
        ("Plain.", "ascii", ""),
        (ENGLISH, "utf-8", ""),
        (ENGLISH, "utf-8-sig", ""),
        (ENGLISH, "cp1252", "cp1252"),
        ("Naïve, she said, in a café.", "latin-1", "cp1252"),
    ],
)
def test_encodings_are_guessed_or_named(text: str, encoding: str, guessed: str) -> None:
    assert decode(text.encode(encoding), GUESS) == (text, guessed)
    assert decode(text.encode(encoding), known(encoding)) == (text, "")


@pytest.mark.parametrize("text", [ENGLISH, RUSSIAN, CHINESE, "é\n", "The end.\n" * 9000])
@pytest.mark.parametrize("encoding", ["utf_16_le", "utf_16_be", "utf_32_le", "utf_32_be"])
def test_utf_16_and_utf_32_are_told_by_their_mark_or_their_nuls(text: str, encoding: str) -> None:
    mark = getattr(codecs, f"BOM_{encoding.upper().replace('UTF_', 'UTF')}")
    content = text.encode(encoding)
    assert decode(mark + content, GUESS) == (text, encoding[:6])
    if len(text) > 9:
        assert decode(content, GUESS) == (text, encoding)
        assert decode(content[:-1], GUESS) == (text[:-1], encoding)  # cut off within a character


@pytest.mark.parametrize("content", [b"The fox\x00 jumps.\x00\n", b"a\0bc\0def\0ghi\0" * 3 + b"x" * 2000])
def test_a_few_nuls_do_not_make_utf_16(content: bytes) -> None:
    assert decode(content, GUESS) == (content.decode(), "")


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"])))
def test_utf_8_is_never_guessed(text: str) -> None:
    text = text.replace("\ufffd", "").replace("\ufffc", "")
    assert decode(text.encode(), GUESS)[1] == ""


def test_what_is_in_no_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="^not UTF-8 at byte 0, nor of a known encoding; name it with --encoding$"):
        decode(b"\xff\x81\x00\x98", GUESS)
    with pytest.raises(ValueError, match="^not ascii at byte 3$"):
        decode(b"caf\xe9", "ascii")
    for name in ("klingon", "rot13", "undefined", "x\xe9"):
        with pytest.raises(InputError, match=f"^--encoding {name}: not a known encoding"):
            known(name)


@pytest.mark.parametrize(
    ("content", "encoding", "name", "share"),
    [
        (b"\x7fELF\x01\x01" * 90, GUESS, "UTF-8", 50),
        (("don\ufffdt " * 50).encode(), GUESS, "UTF-8", 17),
        (("\ue001\ue002 x" * 50).encode(), GUESS, "UTF-8", 50),
        ("The fox.".encode("utf-16-le") * 9, "latin-1", "latin-1", 50),
        (codecs.BOM_UTF16_LE + b"\xff\xdf" * 50, GUESS, "utf_16", 100),
    ],
)
def test_what_decodes_to_no_text_is_refused(content: bytes, encoding: str, name: str, share: int) -> None:
    with pytest.raises(ValueError, match=rf"^not (text in {name}: {share} % of it are controls or unknown)"):
        decode(content, encoding)
