import bz2
import gzip
import io
import lzma
import os
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources import bzip2_streams
from deepsiam.data_prep.sources.bzip2_streams import UnusualError
from deepsiam.data_prep.sources.compressed import EmptyFileError, Limits, inflating_with, lines, open_input
from tests.samples import DATA, needs

zstandard = pytest.importorskip("zstandard", reason="needs the packages of the extra `dumps`")

TEXT = b"".join(b"The %d foxes jump over the %d dogs.\n" % (n, n * n % 997) for n in range(20_000))


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


def zstd_frame(window_log: int, content: bytes) -> bytes:
    """A frame that asks for a window of that size and contains `content` uncompressed."""
    return (
        b"\x28\xb5\x2f\xfd\x00"
        + bytes([window_log - 10 << 3])
        + (len(content) << 3 | 1).to_bytes(3, "little")
        + content
    )


def read(path: Path, content: bytes, limits: Limits | None = None) -> bytes:
    """Write a file, and return what is read of it."""
    with open_input(write(path, content), limits) if limits else open_input(write(path, content)) as stream:
        return stream.read()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("parts", [1, 2, 7], ids=lambda parts: f"{parts} streams")
def test_what_was_compressed_comes_back(tmp_path: Path, suffix: str, parts: int) -> None:
    size = -(-len(TEXT) // parts)
    streams = b"".join(COMPRESS[suffix](TEXT[start : start + size]) for start in range(0, len(TEXT), size))
    assert read(tmp_path / f"a.txt{suffix}", streams) == TEXT
    assert read(tmp_path / "known by its first bytes", streams) == TEXT


SKIPPED = b"\x5a\x2a\x4d\x18" + (6).to_bytes(4, "little") + b"hidden"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"BZh9 is how bzip2 begins.", b"BZh9 is how bzip2 begins."),
        ("a.gz", gzip.compress(b"one ") + bytes(5000) + gzip.compress(b"two") + bytes(9), b"one two"),
        ("a.xz", lzma.compress(b"") + bytes(4) + lzma.compress(b"two"), b"two"),
        ("a.zst", SKIPPED + zstd(b"one ") + SKIPPED + zstd(b"two"), b"one two"),
        ("largest window.zst", zstd_frame(31, b"{}\n"), b"{}\n"),
        ("a.bz2", bz2.compress(b"") + bz2.compress(b"two"), b"two"),
        ("padded.bz2", bz2.compress(b"one") + bytes(5000), b"one"),
    ],
)
def test_streams_may_be_padded_skipped_or_empty(tmp_path: Path, name: str, content: bytes, expected: bytes) -> None:
    assert read(tmp_path / name, content) == expected


REFUSED: list[tuple[str, bytes, str]] = [
    ("a.txt", b"", "is empty; "),
    ("a.zst", zstd_frame(32, b"{}\n"), "its zstd data is damaged near byte 0 .*memory"),
    ("zeros.zst", zstd(b"one") + bytes(99) + zstd(b"two"), "only zeros"),
]
for suffix, compress in COMPRESS.items():
    whole, other = compress(TEXT[:50_000]), COMPRESS[".gz" if suffix == ".xz" else ".xz"]
    REFUSED += [
        (f"a{suffix}", TEXT, rf"is named \{suffix} but does not begin as .* \(byte 0\); get it"),
        (f"other{suffix}", other(b"text"), rf"is named \{suffix} but contains (gzip|xz)"),
        (f"cut{suffix}", whole[:-1], rf"its \w+ data is cut off at byte {len(whole) - 1:,}; get it again"),
        (f"half{suffix}", whole[: len(whole) // 2], rf"its \w+ data is cut off at byte {len(whole) // 2:,}; get"),
        (f"second{suffix}", (whole * 2)[:-3], f"is cut off at byte {len(whole) * 2 - 3:,};"),
        (f"more{suffix}", whole + b"no stream", rf"(damaged near byte {len(whole):,} |is cut off at byte)"),
        (f"nothing{suffix}", b"", "is empty; "),
        (f"empty{suffix}", compress(b""), "is empty; "),
    ]


@pytest.mark.parametrize(("name", "content", "said"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"{name}: .*{said}") as refusal:
        read(tmp_path / name, content)
    assert isinstance(refusal.value, EmptyFileError) == (said == "is empty; ")


@pytest.mark.parametrize("threads", [1, 2])
def test_zeros_in_place_of_a_stream_are_named(tmp_path: Path, threads: int) -> None:
    """As an interrupted download leaves them: the pages of a whole stream of a multistream dump are gone."""
    first, gone, last = (bz2.compress(part * 100) for part in (b"one ", b"two ", b"three "))
    zeros = f"a.bz2: only zeros from byte {len(first)} to {len(first + gone)} of its bzip2 data; get it"
    with inflating_with(threads), pytest.raises(InputError, match=zeros):
        read(tmp_path / "a.bz2", first + bytes(len(gone)) + last)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_the_byte_near_which_a_file_is_damaged_is_reported(tmp_path: Path, suffix: str) -> None:
    stream = COMPRESS[suffix](TEXT)
    damaged = bytearray(stream * 3)
    middle = len(stream) * 3 // 2
    damaged[middle : middle + 40] = bytes(range(200, 240))
    with pytest.raises(InputError, match=rf"a\{suffix}: its \w+ data is damaged near byte ([\d,]+) \(") as raised:
        read(tmp_path / f"a{suffix}", bytes(damaged))
    near = int(str(raised.value).split("near byte ")[1].split(" ")[0].replace(",", ""))
    # bzip2 has a checksum at the end of each block, the other formats at the end of each stream
    assert len(stream) <= near <= 2 * len(stream) + 20
    assert near == len(stream) or near > middle - 2048


@pytest.mark.parametrize(("suffix", "threads"), [*((suffix, 1) for suffix in COMPRESS), (".bz2", 3)])
def test_a_bomb_is_refused_and_plain_repetition_is_not(tmp_path: Path, suffix: str, threads: int) -> None:
    bomb, path = COMPRESS[suffix](TEXT) + COMPRESS[suffix](bytes(1 << 22)) * 2, tmp_path / f"a{suffix}"
    said = rf"a\{suffix}: a bomb: the \w+ data before byte [\d,]+ grows more than 100 times"
    with inflating_with(threads), pytest.raises(InputError, match=said):
        read(path, bomb, Limits(ratio=100, over=1 << 21))
    with inflating_with(threads):
        assert len(read(path, bomb, Limits(ratio=100, over=1 << 24))) == len(TEXT) + (1 << 23)
        assert read(path, COMPRESS[suffix](TEXT), Limits(ratio=100, over=1 << 17)) == TEXT


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_memory_is_bounded_for_any_inflated_size(tmp_path: Path, suffix: str) -> None:
    bomb = write(tmp_path / f"a{suffix}", COMPRESS[suffix](bytes(1 << 27)))
    tracemalloc.start()
    with open_input(bomb) as stream:
        total = sum(map(len, iter(lambda: stream.read(1 << 16), b"")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 1 << 27
    assert peak < 100 << 20


def test_a_file_that_cannot_be_opened_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in {
        "nowhere.gz": "cannot read: No such file",
        "": "not a plain file",
        "pipe": "not a plain",
    }.items():
        with pytest.raises(InputError, match=f"{tmp_path / name}: {said}"), open_input(tmp_path / name):
            pass
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"\.zst files needs .*: zstandard; run: pip install 'deepsiam\[dumps\]'"):
        read(tmp_path / "a.zst", zstd(TEXT))


def test_the_callers_own_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk full"), open_input(write(tmp_path / "a.txt", TEXT)):
        raise OSError("disk full")


def test_lines_that_are_too_long_are_reported_and_skipped(tmp_path: Path) -> None:
    content = b"one\r\n" + b"x" * 11 + b"\n" + b"y" * 100_000 + b"\n\n" + b"z" * 10 + b"\r\nlast"
    with open_input(write(tmp_path / "a.txt", content)) as stream:
        assert list(lines(stream, 10)) == [(1, b"one"), (2, None), (3, None), (4, b""), (5, b"z" * 10), (6, b"last")]


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 20))
def test_lines_are_those_of_split(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], longest: int) -> None:
    content = b"\n".join(parts) + b"."
    expected = [part.removesuffix(b"\r") for part in content.split(b"\n")]
    with open_input(write(tmp_path_factory.getbasetemp() / "lines", content)) as stream:
        split = list(lines(stream, longest))
    assert split == [(n, line if len(line) <= longest else None) for n, line in enumerate(expected, 1)]


@given(st.sampled_from(["", *COMPRESS]), st.binary(max_size=200), st.data())
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, content: bytes, data: st.DataObject
) -> None:
    if suffix:
        stream = bytearray(COMPRESS[suffix](content or b"text"))
        for _ in range(data.draw(st.integers(0, 3))):
            stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
        content = bytes(stream) + data.draw(st.binary(max_size=20))
    with suppress(InputError):
        read(tmp_path_factory.getbasetemp() / f"fuzzed{suffix}", content)


@needs("reddit")
def test_real_dumps_are_read() -> None:
    """The zstd files of Pushshift have a window of 2 GiB; Wikipedia's bzip2 file has 18 streams."""
    with open_input(DATA / "reddit" / "RC_sample.zst") as stream:
        assert sum(1 for _ in lines(stream, 1 << 20)) == 8949
    dump = DATA / "wiki" / "enwiki-sample-pages-articles.xml.bz2"
    assert dump.read_bytes().count(b"BZh91AY&SY") > 1
    with open_input(dump) as stream:
        assert stream.read() == bz2.decompress(dump.read_bytes())


LINES = b"".join(b"%d foxes, %d dogs.\n" % (n, zlib.crc32(b"%d" % n)) for n in range(12_000))
PARTS = [LINES[start : start + 90_000] for start in range(0, len(LINES), 90_000)]
STREAMS = b"".join(map(bz2.compress, PARTS))
ONE = bz2.compress(LINES, 1)  # of three blocks
FILES = (ONE, STREAMS, bz2.compress(b"") + STREAMS + bz2.compress(b""), bz2.compress(b""))


def streams(content: bytes) -> list[bytes]:
    return [text for text, _ in bzip2_streams.inflated(io.BytesIO(content).read, 3)]


def outcome(path: Path, content: bytes, threads: int) -> tuple[bytes, str]:
    """Return the bytes read from a file, and the message of the error that ends it, "" without one."""
    read = b""
    try:
        with inflating_with(threads), open_input(write(path, content)) as stream:
            while piece := stream.read1(1 << 16):
                read += piece
    except InputError as error:
        return read, str(error)
    return read, ""


def test_streams_may_lie_across_what_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (30_000, 31_111, len(STREAMS)):
        monkeypatch.setattr(bzip2_streams, "LARGEST", size)
        assert streams(STREAMS) == PARTS


NOT_STREAMS = {
    "nothing": b"",
    "header": b"BZh9",
    "before": b"x" + STREAMS,
    "cut off": STREAMS[:-1],
    "after": STREAMS + b"x",
    "padding": STREAMS + b"\0",
    "no header": STREAMS[4:],
    "a bomb": bz2.compress(bytes(1 << 18)),
}


@pytest.mark.parametrize("content", NOT_STREAMS.values(), ids=NOT_STREAMS)
def test_what_is_not_made_of_streams_is_left_to_another_reader(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bzip2_streams, "INFLATED", 1 << 17)
    with pytest.raises(UnusualError):
        streams(content)


@pytest.mark.parametrize("content", [ONE, STREAMS + ONE + STREAMS], ids=["alone", "among others"])
def test_a_long_stream_is_read_by_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(bzip2_streams, "LARGEST", 40_000)
    assert len(bz2.compress(PARTS[0])) < 40_000 < len(ONE) // 2
    assert outcome(tmp_path / "a.bz2", content, 3) == outcome(tmp_path / "a.bz2", content, 1)
    with pytest.raises(UnusualError):
        streams(content)


def test_damage_is_the_same_bytes_and_message_with_threads_and_without(tmp_path: Path) -> None:
    rng = random.Random(0)
    messages = set()
    for number in range(60):
        content = bytearray(rng.choice(FILES[:3]))
        at = rng.randrange(len(content))
        match number % 5:
            case 0:
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                del content[at:]
            case 2:
                content += rng.choice([b"\0" * 100, b"BZh9", b"x", ONE])
            case 3:
                content[at : at + rng.randrange(20)] = rng.randbytes(rng.randrange(20))
            case _:
                content[at:at] = content[: rng.randrange(3000)]
        alone = outcome(tmp_path / "a.bz2", bytes(content), 1)
        assert outcome(tmp_path / "a.bz2", bytes(content), 4) == alone
        messages.add(alone[1].partition(" at byte")[0].partition(" near byte")[0])
    assert len(messages) > 2
