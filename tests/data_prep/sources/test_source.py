"""The example of a text source in CONTRIBUTING.md works as printed, with the one line that registers it."""

import re
from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.shards.manifest import Manifest
from deepsiam.data_prep.sources.document import Bad, Document
from deepsiam.data_prep.sources.plain_text import EMPTY
from deepsiam.data_prep.sources.registry import SOURCES
from deepsiam.data_prep.sources.source import Source
from tests.toy import ROOT

SPOKEN = (
    "1\n00:00:01,000 --> 00:00:02,500\nThe fox jumps\nover the dog.\n\n2\n00:00:03,000 --> 00:00:04,000\nIt sleeps.\n"
)


@pytest.fixture
def subtitles() -> Source:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "SUBTITLES = " in block)
    module: dict[str, Source] = {}
    exec(code, module)
    return module["SUBTITLES"]


def test_it_reads_what_its_text_says(subtitles: Source, tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(SPOKEN.replace("\n", "\r\n"))
    (tmp_path / "b.srt").write_bytes(b"1\n00:00:01,000 --> 00:00:02,500\n\xff\x81\x00\x98\n")
    (tmp_path / "c.srt").write_text("no cue\n")
    (tmp_path / "d.txt").write_text("not looked at\n")
    spoken, bad, nothing = subtitles.documents([tmp_path])
    assert spoken == Document("subtitles/a.srt", ("The fox jumps\nover the dog.", "It sleeps."))
    assert isinstance(bad, Bad)
    assert nothing == EMPTY


def test_registered_it_is_a_command(subtitles: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert '`"subtitles": SUBTITLES` in `SOURCES`' in (ROOT / "CONTRIBUTING.md").read_text()
    monkeypatch.setitem(SOURCES, "subtitles", subtitles)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.srt").write_text(SPOKEN)
    options = ["--out", str(tmp_path / "out"), "--vocab-size", "100", "--workers", "1"]
    assert main(["subtitles", str(tmp_path / "in"), *options]) == 0
    manifest = Manifest.load(tmp_path / "out" / "shards")
    assert (manifest.total("documents"), manifest.total("segments")) == (1, 2)
    assert manifest.source["command"] == "subtitles"
