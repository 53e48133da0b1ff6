"""The encoding of text that is not UTF-8: a named one, or a guess by charset-normalizer."""

import codecs
from importlib.util import find_spec

from data_prep.common.errors import InputError

GUESS = "guess"
USUAL = "cp1252"  # of English text: preferred to an equally likely one
GUESSED = (  # the encodings that books are found in
    *("big5", "cp1250", "cp1251", "cp1252", "euc_jp", "euc_kr", "gb18030"),
    *("iso8859_2", "iso8859_15", "koi8_r", "mac_roman", "shift_jis"),
)
SAMPLE = 1 << 15  # bytes of non-ASCII lines that a guess examines


def decode(content: bytes, encoding: str) -> tuple[str, str]:
    """Return a text without byte-order mark, and the encoding that was guessed; "" for UTF-8 or the named encoding.

    Raises:
        ValueError: the bytes are not in the encoding, or no encoding can be guessed; the message says so.
    """
    if encoding != GUESS:
        try:
            return content.decode("utf-8-sig" if encoding == "utf-8" else encoding).removeprefix("\ufeff"), ""
        except UnicodeError as error:
            raise ValueError(f"not {encoding}{_place(error)}") from None
    try:
        return content.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        guessed = _guess(content)
        try:
            return content.decode(guessed).removeprefix("\ufeff"), guessed
        except (LookupError, UnicodeError):
            raise ValueError(f"not UTF-8{_place(error)}, nor of a known encoding; name it with --encoding") from None


def known(name: str) -> str:
    """Return an encoding by Python's name for it, or GUESS; raise InputError for others."""
    if name == GUESS:
        return GUESS
    try:
        found = codecs.lookup(name)
        "".encode(found.name)  # refuses rot13 and the like, which do not encode to bytes
    except LookupError:
        raise InputError(f"--encoding {name}: not a known encoding; name one as utf-8, cp1252 or latin-1") from None
    return found.name


def _guess(content: bytes) -> str:
    """Return the likeliest encoding of bytes that are not UTF-8; "" if none fits, or the package is not installed."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf_16"
    if find_spec("charset_normalizer") is None:
        return ""
    from charset_normalizer import from_bytes

    sample = b"\n".join(line for line in content.split(b"\n") if not line.isascii())[:SAMPLE]
    matches = from_bytes(sample, cp_isolation=list(GUESSED))
    best = matches.best()
    if best is None:
        return ""
    # encodings that give the same text are one match, named after one of them
    usual = next((match for match in matches if USUAL in match.could_be_from_charset), None)
    as_good = usual is not None and usual.chaos <= best.chaos and usual.coherence >= best.coherence
    return USUAL if as_good else best.encoding


def _place(error: UnicodeError) -> str:
    return f" at byte {error.start:,}" if isinstance(error, UnicodeDecodeError) else ""
