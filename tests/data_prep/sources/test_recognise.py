import gzip
import io
import zipfile

import pytest

from deepsiam.data_prep.sources.recognise import not_text
from tests.data_prep.sources.test_tar_stream import packed


def zipped(*names: str, content: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (rb"{\rtf1\ansi A fox.}", "RTF, not text; save it as plain text"),
        (b"<!DOCTYPE html>\n<html>", "HTML, not text; save"),
        (b"\xef\xbb\xbf\n<HTML lang=en>", "HTML"),
        (b'<?xml version="1.0"?>\n<!-- a --><!-- b -->\n<!DOCTYPE HTML PUBLIC>', "HTML"),
        ("<html>".encode("utf-16"), "HTML"),
        (b'<?xml version="1.0"?><TEI>', "XML"),
        (b"%PDF-1.7\n%\xe2", "PDF, not text; convert it, as pdftotext does"),
        (b"%!PS-Adobe-3.0\n", "PostScript"),
        (b"\x04%!PS", "PostScript"),
        (b"\x1b%-12345X@PJL JOB\n@PJL ENTER\n%!PS", "PostScript"),
        (zipped("mimetype", content="application/epub+zip"), "an e-book (EPUB)"),
        (zipped("mimetype", content="application/vnd.oasis.opendocument.text"), "an OpenDocument file"),
        (zipped("[Content_Types].xml", "word/document.xml"), "an Office document (.docx)"),
        (zipped("fox.txt"), "a ZIP archive, not text; unpack it"),
        (zipped(), "a ZIP archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", "an Office document (.doc)"),
        (b"Fox".ljust(60, b"\0") + b"BOOKMOBI", "an e-book (Mobipocket)"),
        (gzip.compress(b"A fox.", mtime=0), "compressed, not text; decompress it"),
        (packed({"fox.txt": b"A fox."}), "a tar, not text; give it the ending .tar"),
        (b"\xff\xd8\xff\xe0", "an image"),
        (b"SQLite format 3\0", "a binary file"),
        (b"<!---->" * 500, ""),
        (b"PK is short for a kick.", ""),
        (b"<p>A fox.</p>", ""),
        (b"%PDF", ""),
    ],
)
def test_files_of_other_kinds_are_recognised(content: bytes, expected: str) -> None:
    assert not_text(content).startswith(expected)
    assert bool(not_text(content)) == bool(expected)
