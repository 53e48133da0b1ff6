import bz2
import io
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources import bzip2_streams, compressed
from deepsiam.data_prep.sources.bzip2_streams import UnusualError

TEXT = b"".join(b"%d foxes, %d dogs.\n" % (n, zlib.crc32(b"%d" % n)) for n in range(12_000))
PARTS = [TEXT[start : start + 90_000] for start in range(0, len(TEXT), 90_000)]
STREAMS = b"".join(map(bz2.compress, PARTS))
ONE = bz2.compress(TEXT, 1)  # of three blocks
BOMB = bz2.compress(bytes(1 << 26))
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


@given(st.lists(st.tuples(st.binary(max_size=2000), st.integers(1, 9)), min_size=1, max_size=6))
def test_each_stream_is_inflated_in_its_place(parts: list[tuple[bytes, int]]) -> None:
    streams = [bz2.compress(text, level) for text, level in parts]
    ends = [len(b"".join(streams[: number + 1])) for number in range(len(parts))]
    assert inflated(b"".join(streams)) == [(text, end) for (text, _), end in zip(parts, ends, strict=True)]


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
    for number in range(120):
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
