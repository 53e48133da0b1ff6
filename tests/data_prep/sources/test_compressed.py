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
from deepsiam.data_prep.sources import bzip2_streams, compressed
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
every_format = pytest.mark.parametrize("suffix", list(COMPRESS))


def zstd_frame(window_log: int, content: bytes) -> bytes:
    """A frame that asks for a window of that size and contains `content` uncompressed."""
    return (
        b"\x28\xb5\x2f\xfd\x00"
        + bytes([window_log - 10 << 3])
        + (len(content) << 3 | 1).to_bytes(3, "little")
        + content
    )


def read(path: Path, limits: Limits | None = None) -> bytes:
    with open_input(path, limits) if limits else open_input(path) as stream:
        return stream.read()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@every_format
@pytest.mark.parametrize("parts", [1, 2, 7], ids=lambda parts: f"{parts} streams")
def test_what_was_compressed_comes_back(tmp_path: Path, suffix: str, parts: int) -> None:
    size = -(-len(TEXT) // parts)
    streams = [COMPRESS[suffix](TEXT[start : start + size]) for start in range(0, len(TEXT), size)]
    assert read(write(tmp_path / f"a.txt{suffix}", b"".join(streams))) == TEXT
    assert read(write(tmp_path / "known by its first bytes", b"".join(streams))) == TEXT


def test_plain_text_is_read_unchanged(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", TEXT)) == TEXT
    assert read(write(tmp_path / "b.txt", b"BZh9 is how bzip2 begins.")) == b"BZh9 is how bzip2 begins."


def test_streams_may_be_padded_skipped_or_empty(tmp_path: Path) -> None:
    assert (
        read(write(tmp_path / "a.gz", gzip.compress(b"one ") + bytes(5000) + gzip.compress(b"two") + bytes(9)))
        == b"one two"
    )
    assert read(write(tmp_path / "a.xz", lzma.compress(b"") + bytes(4) + lzma.compress(b"two"))) == b"two"
    skipped = b"\x5a\x2a\x4d\x18" + (6).to_bytes(4, "little") + b"hidden"
    assert read(write(tmp_path / "a.zst", skipped + zstd(b"one ") + skipped + zstd(b"two"))) == b"one two"
    assert read(write(tmp_path / "a.bz2", bz2.compress(b"") + bz2.compress(b"two"))) == b"two"


@pytest.mark.parametrize("threads", [1, 2])
def test_zeros_in_place_of_a_stream_are_named(tmp_path: Path, threads: int) -> None:
    """As an interrupted download leaves them: the pages of a whole stream of a multistream dump are gone."""
    streams = [bz2.compress(part * 100) for part in (b"one ", b"two ", b"three ")]
    streams[1] = bytes(len(streams[1]))
    first, end = len(streams[0]), len(streams[0]) + len(streams[1])
    with (
        inflating_with(threads),
        pytest.raises(InputError, match=f"a.bz2: only zeros from byte {first} to {end} of its bzip2 data; get it"),
    ):
        read(write(tmp_path / "a.bz2", b"".join(streams)))
    assert read(write(tmp_path / "b.bz2", streams[0] + bytes(5000))) == b"one " * 100
    with pytest.raises(InputError, match="only zeros"):
        read(write(tmp_path / "a.zst", zstd(b"one") + bytes(99) + zstd(b"two")))


def test_zstd_windows_are_at_most_two_gibibytes(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.zst", zstd_frame(31, b"{}\n"))) == b"{}\n"
    with pytest.raises(InputError, match=r"b\.zst: its zstd data is damaged near byte 0 .*memory"):
        read(write(tmp_path / "b.zst", zstd_frame(32, b"{}\n")))


@every_format
def test_a_suffix_of_another_format_is_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(
        InputError, match=rf"a\{suffix}: is named \{suffix} but does not begin as .* \(byte 0\); get it"
    ):
        read(write(tmp_path / f"a{suffix}", TEXT))
    other = ".xz" if suffix == ".gz" else ".gz"
    with pytest.raises(InputError, match=rf"is named \{suffix} but contains (gzip|xz)"):
        read(write(tmp_path / f"b{suffix}", COMPRESS[other](TEXT)))


@every_format
def test_the_byte_at_which_a_file_is_cut_off_is_reported(tmp_path: Path, suffix: str) -> None:
    whole = COMPRESS[suffix](TEXT)
    for left in (len(whole) - 1, len(whole) // 2):
        with pytest.raises(InputError, match=rf"a\{suffix}: its \w+ data is cut off at byte {left:,}; get it again"):
            read(write(tmp_path / f"a{suffix}", whole[:left]))
    with pytest.raises(InputError, match=f"is cut off at byte {len(whole) * 2 - 3:,};"):
        read(write(tmp_path / f"a{suffix}", (whole * 2)[:-3]))


@every_format
def test_the_byte_near_which_a_file_is_damaged_is_reported(tmp_path: Path, suffix: str) -> None:
    stream = COMPRESS[suffix](TEXT)
    damaged = bytearray(stream * 3)
    middle = len(stream) * 3 // 2
    damaged[middle : middle + 40] = bytes(range(200, 240))
    with pytest.raises(InputError, match=rf"a\{suffix}: its \w+ data is damaged near byte ([\d,]+) \(") as raised:
        read(write(tmp_path / f"a{suffix}", bytes(damaged)))
    near = int(str(raised.value).split("near byte ")[1].split(" ")[0].replace(",", ""))
    # bzip2 has a checksum at the end of each block, the other formats at the end of each stream
    assert len(stream) <= near <= 2 * len(stream) + 20
    assert near == len(stream) or near > middle - 2048
    with pytest.raises(InputError, match=rf"damaged near byte {len(stream):,} |is cut off at byte"):
        read(write(tmp_path / f"b{suffix}", stream + b"no stream"))


@every_format
def test_a_bomb_is_refused_and_plain_repetition_is_not(tmp_path: Path, suffix: str) -> None:
    limits = Limits(ratio=100, over=1 << 21)
    bomb = write(tmp_path / f"a{suffix}", COMPRESS[suffix](TEXT) + COMPRESS[suffix](bytes(1 << 23)))
    with pytest.raises(
        InputError, match=rf"a\{suffix}: a bomb: the \w+ data before byte [\d,]+ grows more than 100 times"
    ):
        read(bomb, limits)
    assert len(read(bomb, Limits(ratio=100, over=1 << 24))) == len(TEXT) + (1 << 23)
    assert read(write(tmp_path / f"b{suffix}", COMPRESS[suffix](TEXT)), Limits(ratio=100, over=1 << 17)) == TEXT


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_memory_is_bounded_for_any_inflated_size(tmp_path: Path, suffix: str) -> None:
    bomb = write(tmp_path / f"a{suffix}", COMPRESS[suffix](bytes(1 << 27)))
    tracemalloc.start()
    with open_input(bomb) as stream:
        total = 0
        while block := stream.read(1 << 16):
            total += len(block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 1 << 27
    assert peak < 100 << 20


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_an_empty_file_is_named(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(EmptyFileError, match=rf"a\.txt{suffix}: is empty; "):
        read(write(tmp_path / f"a.txt{suffix}", b""))
    if suffix:
        with pytest.raises(EmptyFileError, match=rf"b\.txt{suffix}: is empty; "):
            read(write(tmp_path / f"b.txt{suffix}", COMPRESS[suffix](b"")))


def test_a_file_that_cannot_be_opened_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="nowhere.gz: cannot read: No such file"):
        read(tmp_path / "nowhere.gz")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="not a plain file"):
            read(path)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"\.zst files needs .*: zstandard; run: pip install 'deepsiam\[dumps\]'"):
        read(write(tmp_path / "a.zst", zstd(TEXT)))


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
        read(write(tmp_path_factory.getbasetemp() / f"fuzzed{suffix}", content))


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


def inflated(content: bytes) -> list[tuple[bytes, int]]:
    return list(bzip2_streams.inflated(io.BytesIO(content).read, 3))


def outcome(path: Path, content: bytes, threads: int) -> tuple[bytes, str]:
    """Return the bytes read from a file, and the message of the error that ends it, "" without one."""
    path.write_bytes(content)
    read = b""
    try:
        with compressed.inflating_with(threads), compressed.open_input(path) as stream:
            while piece := stream.read1(1 << 16):
                read += piece
    except InputError as error:
        return read, str(error)
    return read, ""


def test_streams_may_lie_across_what_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (30_000, 31_111, len(STREAMS)):
        monkeypatch.setattr(bzip2_streams, "LARGEST", size)
        assert [text for text, _ in inflated(STREAMS)] == PARTS


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"BZh9",
        b"x" + STREAMS,
        STREAMS[:-1],
        STREAMS + b"x",
        STREAMS + b"\0",
        STREAMS[4:],
        bz2.compress(bytes(1 << 26)),
    ],
    ids=["nothing", "header", "before", "cut off", "after", "padding", "no header", "a bomb"],
)
def test_what_is_not_made_of_streams_is_left_to_another_reader(content: bytes) -> None:
    with pytest.raises(UnusualError):
        inflated(content)


@pytest.mark.parametrize("content", [ONE, STREAMS + ONE + STREAMS], ids=["alone", "among others"])
def test_a_long_stream_is_read_by_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(bzip2_streams, "LARGEST", 40_000)
    assert len(bz2.compress(PARTS[0])) < 40_000 < len(ONE) // 2
    assert outcome(tmp_path / "a.bz2", content, 3) == outcome(tmp_path / "a.bz2", content, 1)
    with pytest.raises(UnusualError):
        inflated(content)


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


def test_a_bomb_is_refused_with_threads_too(tmp_path: Path) -> None:
    limits = compressed.Limits(ratio=200, over=1 << 20)
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(bytes(3_000_000)) * 20)
    with (
        compressed.inflating_with(3),
        compressed.open_input(path, limits) as stream,
        pytest.raises(InputError, match="a bomb"),
    ):
        list(compressed.lines(stream, 1))
