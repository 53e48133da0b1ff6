"""What a preparation refuses: one line, code 2, and no file is written, changed or, but for its check, read.

A row is a command as it is typed in the folder `places`, and how its line begins; it writes to `new` if it names no
--out. What merge refuses is in test_merging.py.
"""

import json
import shutil
from pathlib import Path

import pytest

from deepsiam.data_prep.prepare import reading
from tests.data_prep import raw
from tests.data_prep.raw import Capture, refusal

MADE_DIFFERENTLY = "was made from other input or with other options; choose another --out or remove it"
NO_ADDRESS = "cannot be written to; use a path or s3://"
NO_WORK = "--work: is for an --out that is an s3:// address"
TWICE = "https://user:secret@example.org/a.jsonl?sig="
ROWS = [
    # what does not exist
    ("jsonl texts.jsonl none.jsonl", "none.jsonl: cannot read: No such file"),
    ("jsonl texts.jsonl --tokenizer none", "none: cannot read: No such file"),
    ("jsonl texts.jsonl --against none", "none/shards/manifest.json: no such file"),
    ("jsonl texts.jsonl --decontaminate none", "none: no such folder in BEIR's layout"),
    ("jsonl texts.jsonl --language klingon", "--language klingon: not known"),
    ("jsonl texts.jsonl --rejected none/no.jsonl", "none/no.jsonl: its folder does not exist; create it"),
    ("cleaned nothing", "nothing: no cleaned text here (texts.json); name the --out of a command with --text-only"),
    # what does not go together
    ("jsonl texts.jsonl --part 1/2", "--part: all parts need the same tokenizer; name it with --tokenizer"),
    ("jsonl texts.jsonl --min-words 9 --max-words 8", "--max-words 8: is below --min-words 9"),
    (
        "jsonl texts.jsonl --text-only --held-out 0.1",
        "--text-only: --tokenizer and --held-out belong to the second step",
    ),
    ("jsonl texts.jsonl --text-only --part 1/2 --near-duplicates 0.8", "--near-duplicates: give it to the second step"),
    ("jsonl texts.jsonl --against made --near-duplicates 0.8", "made: was not prepared with --near-duplicates 0.8"),
    ("cleaned prose talk", "some of the texts are dialogues and some are not; prepare them apart"),
    ("cleaned prose asked", "some of the texts are pairs and some are not; prepare them apart, and mix them in"),
    ("cleaned part2", "part2/text and others: part 1/2 is missing; name every part once"),
    ("cleaned part1 part2 copy", "part1/text and others: part 2/2 is named twice; name every part once"),
    ("jsonl texts.jsonl texts.jsonl", "PLACES/texts.jsonl: is named twice; name every file once"),
    (f"jsonl {TWICE}1 {TWICE}2", "https://example.org/a.jsonl: is named twice; name every file once"),
    # where it cannot be written
    ("jsonl texts.jsonl --out texts.jsonl", "texts.jsonl/.partial: cannot create this folder: Not a directory"),
    ("jsonl texts.jsonl --out a", "a/shards: exists, and is not from an unfinished run; remove it"),
    ("jsonl texts.jsonl --out b", "b/held_out: exists, and is not from an unfinished run; remove it"),
    ("jsonl texts.jsonl --out own --text-only", "own/text: exists, and no preparation made it; choose another --out"),
    ("text own/text --out own --text-only", "own/text: exists, and no preparation made it; choose another --out"),
    ("jsonl texts.jsonl --out s3://bucket/a", "--out: an address needs --work DIR"),
    ("jsonl texts.jsonl --out http://127.0.0.1/a", f"http://127.0.0.1/a: {NO_ADDRESS}"),
    ("jsonl texts.jsonl --out gs://bucket/a", "gs://bucket/a: not an address of shards"),
    ("jsonl texts.jsonl --out file:///a --work b", NO_WORK),
    ("jsonl texts.jsonl --out a --work b", NO_WORK),
    # what is complete already
    ("jsonl texts.jsonl --out made", f"made: {MADE_DIFFERENTLY}"),
    ("jsonl texts.jsonl --out made --held-out 0.1", f"made: {MADE_DIFFERENTLY}"),
    ("jsonl more.jsonl --out made --held-out 0.3", f"made: {MADE_DIFFERENTLY}"),
    ("jsonl texts.jsonl more.jsonl --out made --held-out 0.3", f"made: {MADE_DIFFERENTLY}"),
    ("jsonl texts.jsonl --out made --held-out 0.3 --min-words 2", f"made: {MADE_DIFFERENTLY}"),
    ("jsonl texts.jsonl --out made --held-out 0.3 --part 1/2 --tokenizer made/shards", f"made: {MADE_DIFFERENTLY}"),
    ("jsonl texts.jsonl --out made --held-out 0.3 --rejected no.jsonl", "made: is complete already; to write no.jsonl"),
    ("jsonl texts.jsonl --out prose --text-only --shards 5", f"prose: {MADE_DIFFERENTLY}"),
    ("jsonl texts.jsonl --out part1 --text-only --part 2/2", f"part1: {MADE_DIFFERENTLY}"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a command may name; read only."""
    folder = tmp_path_factory.mktemp("places")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        texts = raw.write_jsonl(Path("texts.jsonl"), raw.texts(20))
        raw.write_jsonl(Path("more.jsonl"), raw.texts(20, 1))
        asked = raw.write_jsonl(Path("asked.jsonl"), [{"query": "Which fox?", "document": "The quick one."}])
        raw.run("jsonl", texts, "--out", "made", "--held-out", 0.3)
        raw.run("jsonl", texts, "--out", "prose", "--text-only")
        raw.run("reddit", raw.write_reddit(Path("dumps"), [raw.texts(4, sentences=1)]), "--out", "talk", "--text-only")
        raw.run("pairs", asked, "--out", "asked", "--text-only")
        for part in (1, 2):
            raw.run("jsonl", texts, "--out", f"part{part}", "--text-only", "--part", f"{part}/2")
        shutil.copytree("part2", "copy")
        for mine in ("a/shards/mine", "b/held_out/mine", "own/text/mine.txt", "nothing/mine"):
            Path(mine).parent.mkdir(parents=True)
            Path(mine).write_text("Mine.\n\nStill mine.")
        Path("b/.partial").mkdir()  # this does not make the folder one of a preparation
    return folder


@pytest.mark.usefixtures("datasketch")
@pytest.mark.parametrize(("typed", "said"), ROWS, ids=[typed for typed, _ in ROWS])
def test_one_line_says_what_is_wrong(
    places: Path, typed: str, said: str, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.chdir(places)
    monkeypatch.setattr(reading, "batch_reader", None)
    before = {path: path.stat().st_mtime_ns for path in places.rglob("*")}
    words = typed.split()
    message = refusal(capfd, *words, *([] if "--out" in words else ["--out", "new"]))
    assert message.startswith(said.replace("PLACES", str(places)))
    assert {path: path.stat().st_mtime_ns for path in places.rglob("*")} == before


EXPORT = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n'
REDDIT = {"id": "a", "link_id": "t3_a", "parent_id": "t3_a", "created_utc": 1, "body": "A comment.", "author": "u"}
EXTRACTED = {"id": "1", "url": "u", "title": "Fox", "text": "A fox."}
TEXTS = ("text", "bookcorpus", "bookcorpus-sentences")
WRONG_SOURCE: list[tuple[str, str, str]] = [
    *((source, EXPORT, "a MediaWiki XML export, not text; use the command wikipedia") for source in TEXTS),
    ("text", json.dumps(REDDIT), "JSON lines of Reddit, not text; use the command reddit"),
    ("text", json.dumps(EXTRACTED), "JSON lines of WikiExtractor, not text; use the command wikipedia"),
    ("text", '{"text": "A fox."}', "JSON lines, not text; use the command jsonl"),
    ("text", "PAR1\x15", "a Parquet file, not text"),
    *((source, "{\\rtf1 A fox.}", "RTF, not text; save it as plain text") for source in TEXTS),
    ("pairs --query title", '{"query": "a", "document": "b"}', "line 1: no field 'title', but "),
]


@pytest.mark.parametrize(("command", "content", "said"), WRONG_SOURCE)
def test_the_wrong_source_leaves_nothing(tmp_path: Path, capfd: Capture, command: str, content: str, said: str) -> None:
    (tmp_path / "a.txt").write_text(f"{content}\n")
    source, *options = command.split()
    assert said in refusal(capfd, source, tmp_path / "a.txt", "--out", tmp_path / "out", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("texts", "options", "said"),
    [
        (["", " "], "", "(2 empty)"),
        (["One two.", "Three."], "--min-words 3", "(2 too_short)"),
        (["One."], "--against other", "(1 elsewhere)"),
        (["One."], "--held-out 0.9", "(the input has none); all may be in held-out groups: lower --held-out"),
    ],
)
def test_no_documents_left_is_reported_with_the_reasons(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch, texts: list[str], options: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if "other" in options:
        raw.run("jsonl", raw.write_jsonl(tmp_path / "other.jsonl", ["One.", "Two."]), "--out", "other")
    file = raw.write_jsonl(tmp_path / "a.jsonl", texts)
    message = refusal(capfd, "jsonl", file, "--out", "out", *options.split())
    assert message == f"out: no documents are left to write {said}"
