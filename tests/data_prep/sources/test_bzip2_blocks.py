import bz2
import io
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources import bzip2_blocks, compressed
from deepsiam.data_prep.sources.bzip2_blocks import UnusualError

TEXT = b"".join(b"%d foxes, %d dogs.\n" % (n, zlib.crc32(b"%d" % n)) for n in range(12_000))
SMALL_BLOCKS = bz2.compress(TEXT, 1)  # three blocks
STREAMS = b"".join(bz2.compress(TEXT[start : start + 90_000]) for start in range(0, len(TEXT), 90_000))
FILES = (SMALL_BLOCKS, STREAMS, bz2.compress(b"") + STREAMS + bz2.compress(b""), bz2.compress(b""))


def inflated(content: bytes, threads: int = 3) -> bytes:
    return b"".join(piece for piece, _ in bzip2_blocks.inflated(io.BytesIO(content).read, threads))


@pytest.mark.parametrize("content", FILES, ids=["blocks", "streams", "with empty streams", "empty"])
@pytest.mark.parametrize("window", [1 << 22, 20_000, 4_000])
def test_all_blocks_of_all_streams_are_inflated_in_order(
    content: bytes, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bzip2_blocks, "WINDOW", window)
    assert inflated(content) == inflated(content, threads=1) == bz2.decompress(content)


def test_a_block_is_a_task_of_its_own_and_says_where_it_ends() -> None:
    pieces = list(bzip2_blocks.inflated(io.BytesIO(SMALL_BLOCKS).read, 2))
    assert len(pieces) >= 3
    positions = [position for _, position in pieces]
    assert positions == sorted(positions)
    assert len(SMALL_BLOCKS) - 11 <= positions[-1] <= len(SMALL_BLOCKS)  # a mark and a CRC follow the last block


@given(st.lists(st.tuples(st.binary(max_size=2000), st.integers(1, 9)), min_size=1, max_size=6))
def test_any_streams_are_inflated(parts: list[tuple[bytes, int]]) -> None:
    content = b"".join(bz2.compress(text, level) for text, level in parts)
    assert inflated(content) == b"".join(text for text, _ in parts)


@pytest.mark.parametrize(
    "content",
    [b"", b"BZh9", b"x" + STREAMS, STREAMS[:-1], STREAMS + b"x", STREAMS + b"\0", STREAMS[4:]],
    ids=["nothing", "header", "before", "cut off", "after", "padding", "no header"],
)
def test_what_is_not_made_of_streams_is_left_to_another_reader(content: bytes) -> None:
    with pytest.raises(UnusualError):
        inflated(content)


def test_the_checksum_of_a_stream_is_checked() -> None:
    content = bytearray(STREAMS)
    content[-3] ^= 4  # the checksum of the last stream; no block has changed
    with pytest.raises(UnusualError):
        inflated(bytes(content))


def test_a_block_that_grows_too_much_is_left_to_the_reader_with_bounded_memory() -> None:
    with pytest.raises(UnusualError):
        inflated(bz2.compress(bytes(40_000_000)))


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
                content += rng.choice([b"\0" * 100, b"BZh9", b"x", SMALL_BLOCKS])
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
