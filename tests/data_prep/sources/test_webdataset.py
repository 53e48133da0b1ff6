import gzip
import json
import os
import pickle
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import webdataset

from deepsiam.data_prep.common.errors import CutOffError, InputError
from deepsiam.data_prep.sources.compressed import Limits
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.plain_text import MAX_BYTES
from deepsiam.data_prep.sources.webdataset import WEBDATASET
from tests.data_prep import raw
from tests.data_prep.forge import TouchesAFile
from tests.data_prep.raw import Capture
from tests.data_prep.sources.test_tar_stream import packed

FOX, DOG = "The fox jumps over the lazy dog.", "The dog sleeps while the fox jumps."
SAMPLE = 2048  # bytes of one text: the library's time of writing needs an extended header
DIALOGUE = {"turns": ["Who is there?", " ", "Nobody\nelse."], "thread": 7}


def write(path: Path, *samples: dict[str, Any]) -> Path:
    """Write samples as a user of webdataset would: with its own encoders and owner, now."""
    with webdataset.TarWriter(str(path)) as tar:
        for number, sample in enumerate(samples):
            tar.write({"__key__": f"{number:04d}", **sample})
    return path


def joined(*tars: bytes) -> bytes:
    """One tar of several small ones: all their members, but only one end."""
    ends = (len(tar.rstrip(b"\0")) for tar in tars)
    return b"".join(tar[: end + -end % 512] for tar, end in zip(tars, ends, strict=True)) + bytes(1024)


def read(path: Path, **options: str) -> list[Document | Bad | Dropped]:
    return list(WEBDATASET.documents([path], **options))


def reasons(path: Path) -> list[tuple[str, str]]:
    """The place and reason of everything bad."""
    return [(item.where, item.reason) for item in read(path) if isinstance(item, Bad)]


@pytest.mark.parametrize(
    ("text", "sample"),
    [
        ("txt", {"txt": f"{FOX}\n\n{DOG}", "jpg": b"\xff\xd8", "cls": 3}),
        ("txt", {"txt.gz": f"{FOX}\n\n{DOG}"}),
        ("caption.en.txt", {"caption.en.txt": f"{FOX}\n\n{DOG}", "txt": "another"}),
        ("json", {"json": {"text": f"{FOX}\n\n{DOG}"}}),
        ("JSON:body of it", {"json": {"body of it": f"{FOX}\n\n{DOG}"}}),
        ("json:body", {"json": {"body": [FOX, "", DOG]}}),
        ("meta.json:body", {"meta.json": {"body": [FOX, DOG]}, "json": {}}),
        ("json:a:b", {"json.gz": {"a:b": [FOX, DOG]}}),
    ],
)
def test_the_text_of_a_sample_is_a_member_or_a_field(tmp_path: Path, text: str, sample: dict[str, Any]) -> None:
    path = write(tmp_path / "a.tar", sample)
    assert read(path, text=text) == [Document("webdataset/a.tar/0000", (FOX, DOG))]


@pytest.mark.parametrize("name", ["jsonl", "jsonl.gz"])
def test_each_line_of_a_jsonl_is_a_document(tmp_path: Path, name: str) -> None:
    lines = [{"body": FOX, "book": "b"}, "", {"body": 3, "book": "b"}, {"body": " ", "book": "b"}, {"body": DOG}]
    content = "\n".join(json.dumps(line) if line else "" for line in lines)
    path = write(tmp_path / "a.tar", {name: content})
    assert read(path, text="jsonl:body", group="book") == [
        Document("webdataset/a.tar/0000/1", (FOX,), group="webdataset/b"),
        Bad(str(path), "sample 0000, line 3", "field 'body' is missing or neither a string nor a list of strings"),
        Dropped("empty"),
        Bad(str(path), "sample 0000, line 5", "field 'book' is missing or neither a string nor a whole number"),
    ]
    assert read(path, text="jsonl:body")[-1] == Document("webdataset/a.tar/0000/5", (DOG,))


def test_a_field_names_the_group_whatever_the_tar(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", {"txt": FOX, "json": {"book": "The\nFox"}}, {"txt": DOG, "json.gz": {"book": 3}})
    write(tmp_path / "b.tar", {"txt": FOX, "json": {"book": 3}}, {"txt": DOG}, {"txt": DOG, "json": []})
    items = list(WEBDATASET.documents([tmp_path], group="book"))
    found = [item.group if isinstance(item, Document) else getattr(item, "reason", "") for item in items]
    groups = [f"webdataset/{book}" for book in ("The Fox", 3, 3)]
    assert found == [*groups, "has no member .json", "not a JSON object"]


def test_lines_and_items_are_segments_if_they_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", {"txt": f"{FOX} {DOG}\n\n{DOG}\r\n{FOX}\n", "json": DIALOGUE})
    for kind in ("sentences", "utterances"):
        choices = WEBDATASET.choices(segments=kind)
        assert read(path, segments=kind) == [Document("webdataset/a.tar/0000", (f"{FOX} {DOG}", DOG, FOX))]
        assert read(path, segments=kind, text="json:turns", group="thread") == [
            Document("webdataset/a.tar/0000", ("Who is there?", "Nobody else."), group="webdataset/7")
        ]
        assert not WEBDATASET.are_paragraphs(choices)
        assert WEBDATASET.are_dialogues([], choices) == (kind == "utterances")
    assert WEBDATASET.are_paragraphs(WEBDATASET.choices())
    assert not WEBDATASET.are_dialogues([], WEBDATASET.choices())


def test_samples_are_what_webdataset_reads(tmp_path: Path) -> None:
    names = ["./x/1.txt", "x/2.cls", "x/2.txt", "README", "x.y/3.TXT", "._3.txt", "2.json", "x/2.txt", "x/4.txt"]
    path = tmp_path / "a.tar"
    tars = [*(packed({name: FOX.encode()}) for name in names), packed({"dir/": b""}, type=tarfile.DIRTYPE)]
    path.write_bytes(joined(*tars))
    samples = [sample["__key__"] for sample in webdataset.WebDataset(str(path), shardshuffle=False)]
    keys = zip((key for key in samples if key != "2"), ("", "", "", "#2", ""), strict=True)
    found = [item.id for item in read(path) if isinstance(item, Document)]
    assert found == [f"webdataset/a.tar/{key}{number}" for key, number in keys]
    assert reasons(path) == [("sample 2", "has no member .txt")]


def test_what_is_no_text_is_bad(tmp_path: Path) -> None:
    kinds = {"1": tarfile.LNKTYPE, "2": tarfile.SYMTYPE, "3": tarfile.CHRTYPE, "6": tarfile.FIFOTYPE}
    tars = [
        packed({"a.txt": FOX.encode(), "../../b.txt": DOG.encode()}),
        *(packed({f"{name}.txt": b""}, type=kind, linkname="/etc/passwd") for name, kind in kinds.items()),
        packed({"c.txt": b"\xff\x81\x00\x98", "d.txt": b"x" * (MAX_BYTES + 1), "e.jpg": b"", "f.txt": b" \n"}),
        *[packed({"g.txt": FOX.encode()})] * 2,
        packed({"h.txt.gz": gzip.compress(FOX.encode())[:20], "i.txt.gz": b"no gzip"}),
    ]
    path = tmp_path / "a.tar"
    path.write_bytes(joined(*tars))
    texts = [Document(f"webdataset/a.tar/{name}", (text,)) for name, text in {"a": FOX, "../../b": DOG}.items()]
    assert [item for item in read(path) if not isinstance(item, Bad)] == [*texts, Dropped("empty")]
    assert [(where, reason.partition(" (")[0]) for where, reason in reasons(path)] == [
        *((f"sample {name}", "its .txt is not a regular file") for name in kinds),
        ("sample c", "not UTF-8 at byte 0, nor of a known encoding; name it with --encoding"),
        ("sample d", f"its .txt has more than {MAX_BYTES:,} bytes"),
        ("sample e", "has no member .txt"),
        ("sample g", "has two members of one name"),
        ("sample h", "its .txt.gz is damaged"),
        ("sample i", "its .txt.gz is damaged"),
    ]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("extension", ["pyd", "pickle", "pth", "cbor", "npy", "ten"])
def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extension: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.tar", {extension: pickle.dumps(TouchesAFile()), "txt": FOX})
    assert read(path) == [Document("webdataset/a.tar/0000", (FOX,))]
    read(path, text=extension)
    read(path, text=f"{extension}:json")
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize("inputs", ["pipe:touch ran", "a{0..1}.tar::pipe:touch ran", "{a0.tar,pipe:touch ran}"])
def test_no_command_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture, inputs: str) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a0.tar", {"txt": FOX})
    write(tmp_path / "a1.tar", {"txt": FOX})
    assert raw.refusal(capfd, "webdataset", inputs, "--out", "out").startswith("pipe:touch ran: not an addr")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a0.tar", "a1.tar"]


def test_patterns_of_braces_are_expanded_unless_such_a_file_exists(tmp_path: Path) -> None:
    assert list(WEBDATASET.expand("s3://b/a-{08..10}.{tar,tgz}")) == [
        f"s3://b/a-{number}.{end}" for number in ("08", "09", "10") for end in ("tar", "tgz")
    ]
    (tmp_path / "{a,b}.tar").touch()
    assert WEBDATASET.expand(str(tmp_path / "{a,b}.tar")) == [str(tmp_path / "{a,b}.tar")]
    for bad in ("a-{0..9.tar", "a-${NOT_SET}.tar"):
        with pytest.raises(InputError, match=r"write many tars as tars-\{0000..0099\}.tar"):
            WEBDATASET.expand(bad)


def test_options_that_cannot_be_are_refused(capfd: Capture, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", {"txt": FOX})
    for option, value in (("--text", "json:"), ("--text", "a/b"), ("--segments", "words")):
        assert raw.refusal(capfd, "webdataset", path, "--out", tmp_path / "out", option, value).startswith(option)


def test_bombs_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb, path = b"".join([gzip.compress(bytes(1 << 23))] * 32), tmp_path / "a.tar"
    path.write_bytes(packed({"a.txt.gz": bomb, "b.txt": FOX.encode()}))
    tracemalloc.start()
    assert reasons(path) == [("sample a", f"its .txt.gz has more than {MAX_BYTES:,} bytes")]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * MAX_BYTES
    limits = "deepsiam.data_prep.sources.compressed.open_input.__wrapped__.__defaults__"
    monkeypatch.setattr(limits, (Limits(200, 1 << 20),))
    path = tmp_path / "b.tar.gz"
    path.write_bytes(gzip.compress(packed({"a.txt": FOX.encode(), "b.jpg": bytes(8 << 20)})))
    [(where, reason)] = reasons(path)
    assert (where, reason[:7]) == ("the rest of the tar", "a bomb:")
    path.write_bytes(gzip.compress(gzip.compress(packed({"a.txt": FOX.encode(), "b": os.urandom(999)}))))
    assert reasons(path)[0][1].startswith("not a tar from byte 0 ")


def test_a_damaged_tar_is_counted_and_its_sound_samples_are_used(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", *({"txt": text} for text in (FOX, DOG, FOX)))
    content = bytearray(path.read_bytes())
    content[2 * SAMPLE + 30] ^= 1  # in the header of the third
    path.write_bytes(content)
    assert read(path)[:-1] == [Document("webdataset/a.tar/0000", (FOX,))]  # the second may have lost members
    assert reasons(path) == [
        ("the rest of the tar", "not a tar from byte 4,096 of its content on (bad checksum); get it again")
    ]
    path.write_bytes(b"")
    assert reasons(path) == [("the rest of the tar", "is empty; get it again, or leave it out")]
    path.write_bytes(gzip.compress(bytes(content))[:-9] + b"x" * 9)
    assert reasons(path)[-1][0] == "the rest of the tar"


@pytest.mark.parametrize("size", [SAMPLE, SAMPLE - 9, 1030])
def test_a_tar_that_is_cut_off_is_refused_or_counted(tmp_path: Path, capfd: Capture, size: int) -> None:
    path = write(tmp_path / "a.tar", *({"txt": text} for text in raw.texts(40)))
    command = ["webdataset", path, "--out", tmp_path / "out"]
    path.write_bytes(path.read_bytes()[: 15 * SAMPLE + size])
    with pytest.raises(CutOffError, match=f"cut off at byte {15 * SAMPLE + size:,} of its content"):
        read(path)
    assert "or use what is before that with --accept-truncated" in raw.refusal(capfd, *command)
    raw.run(*command, "--accept-truncated")
    used = 15 if size == SAMPLE else 14  # not the last sample, which may have lost members
    assert len(raw.documents(tmp_path / "out")) == used
    assert raw.source_of(tmp_path / "out")["cut_off"] == {"webdataset/a.tar": used}


def test_what_is_bad_is_counted_and_printed(tmp_path: Path, capfd: Capture) -> None:
    texts: list[dict[str, Any]] = [{"txt": text} for text in raw.texts(30)]
    first = write(tmp_path / "a.tar", *texts[:20], {"cls": 1})
    second = write(tmp_path / "b.tar", *texts[20:])
    second.write_bytes(second.read_bytes()[:5120] + b"x" * 5120)
    command = ["webdataset", tmp_path / "{a,b}.tar", "--out", tmp_path / "out"]
    assert raw.refusal(capfd, *command).startswith("2 of 23 records are bad, more than --max-bad 0.001, as ")
    raw.run(*command, "--max-bad", 0.2)
    rest = "the rest of the tar: not a tar from byte 5,120 of its content on (invalid header); get it again"
    said = capfd.readouterr().err
    assert f"bad record: {first}: sample 0020: has no member .txt\nbad record: {second}: {rest}\n" in said
    assert said.count("bad record") == 2
    assert raw.source_of(tmp_path / "out")["stages"][0]["dropped"] == {"bad": 2}
    assert len(raw.documents(tmp_path / "out")) == 21
