import re
from html import unescape
from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards import stats
from tests.data_prep import raw

pytest.importorskip("py3langid", reason="needs the packages of the extra `dumps`")
ENGLISH = "The weather was fine, and so the children went down to the river after breakfast."
FRENCH = "Il faisait beau, et les enfants sont donc descendus à la rivière après le petit déjeuner."


@pytest.fixture
def page(tmp_path: Path) -> str:
    texts = [f"{ENGLISH} {text}" for text in raw.texts(30)] + [FRENCH, "Read <script>alert(1)</script> twice.", "Hm."]
    file = raw.write_jsonl(tmp_path / "a.jsonl", texts)
    raw.run("jsonl", file, "--out", tmp_path / "out", "--min-words", 2)
    assert main(["stats", str(tmp_path / "out"), "--html", str(tmp_path / "stats.html")]) == 0
    return (tmp_path / "stats.html").read_text()


def words(page: str) -> str:
    """The text of a page without its markup."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.partition("<body>")[2])).split())


def test_the_page_says_what_the_data_hold(page: str) -> None:
    text = words(page)
    assert "documents 32" in text
    assert "length 33 32 1 too_short" in text
    assert "Dropped, by reason too_short 1" in text
    assert re.search(r"Documents, by language .*\ben 3\d\b", text)
    assert re.search(r"Documents, by language .*\bfr 1\b", text)
    # eight words in a row that 30 documents share
    assert "went down to the river after breakfast" in text or "the weather was fine and so the children 30" in text
    assert "Tokens of a document" in text


def test_the_page_has_no_script_and_needs_nothing_else(page: str) -> None:
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=", page)


def test_a_page_that_cannot_be_written_is_said_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none/stats.html: its folder does not exist; create it"):
        stats.run(tmp_path / "nothing", as_json=False, folder=None, page=tmp_path / "none" / "stats.html")
