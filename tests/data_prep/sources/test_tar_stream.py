import io
import tarfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.tar_stream import LONGEST_HEADER, Member, members

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
LONG = "a" * 90 + "/" + "é" * 90 + ".txt"


def packed(entries: dict[str, bytes], form: int = tarfile.PAX_FORMAT, **attributes: object) -> bytes:
    """A tar of regular files, or of members with other attributes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in attributes.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content) if content else None)
    return buffer.getvalue()


def unpacked(content: bytes, most: int = 1000) -> list[Member]:
    return list(members(io.BytesIO(content), "a.tar", most))


def check(header: bytearray) -> None:
    """Write the checksum of a header."""
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + sum(header[156:512]) + 8 * 32)


@pytest.mark.parametrize("form", FORMATS)
def test_regular_files_are_read_in_order_with_their_first_bytes(form: int) -> None:
    entries = {"./one.txt": b"1", "empty": b"", "two.txt": b"2" * 2000, "three": b"3" * 512}
    entries |= {LONG: b"4"} if form != tarfile.USTAR_FORMAT else {}
    expected = [Member(name, True, content[:600]) for name, content in entries.items()]
    assert unpacked(packed(entries, form), 600) == expected


def test_sizes_in_extended_headers_replace_those_in_headers() -> None:
    tar = packed({"a": b"x" * 700, "b": b"y"}, pax_headers={"comment": "none", "size": "700"})
    first = tar.index(b"x" * 700) - 512
    header = bytearray(tar[first : first + 512])
    header[124:136] = b"00000000000\0"
    check(header)
    without = tar[:first] + bytes(header) + tar[first + 512 :]
    assert unpacked(without)[0] == Member("a", True, b"x" * 700)


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_have_no_content_and_folders_are_skipped(kind: bytes) -> None:
    tar = packed({"odd": b""}, type=kind, linkname="/etc/passwd", size=4096)[:512] + packed({"next": b"1"})
    assert unpacked(tar) == [Member("odd", False, b""), Member("next", True, b"1")]
    assert unpacked(packed({"folder": b""}, type=tarfile.DIRTYPE)) == []


def test_sparse_files_are_not_regular_files() -> None:
    assert unpacked(packed({"a": b"1\n0\n"}, pax_headers={"GNU.sparse.major": "1"})) == [Member("a", False, b"")]
    tar = bytearray(packed({"old": b""}, tarfile.GNU_FORMAT, type=tarfile.GNUTYPE_SPARSE)[:512])
    tar[482] = 1  # another block of the sparse map follows, and after it a last one
    check(tar)
    following = b"1".ljust(504, b"\0") + b"\1".ljust(8, b"\0") + bytes(512) + packed({"next": b"1"})
    assert unpacked(bytes(tar) + following) == [Member("old", False, b""), Member("next", True, b"1")]


TAR = packed({"one": b"1", "two": b"2" * 600})
NEGATIVE = bytearray(packed({"a": b""})[:512])
NEGATIVE[124:136] = b"\xff" * 12
check(NEGATIVE)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((TAR[:left], f"the tar is cut off at byte {left:,} of its content; get it") for left in (100, 1024, 2000)),
        (TAR[:1024] + b"x" + TAR[1025:], r"not a tar from byte 1,024 of its content on \(bad checksum\)"),
        (b"Once upon a time " * 100, "not a tar from byte 0 "),
        # impossible sizes are refused before content is read
        (
            packed({"n" * (LONGEST_HEADER + 104): b""}, tarfile.GNU_FORMAT),
            f".*an extended header of {LONGEST_HEADER + 100 + 5:,} bytes",
        ),
        (packed({"a": b""}, pax_headers={"size": "-7"}), ".*a size of '-7'"),
        (bytes(NEGATIVE), ".*a size below 0"),
        (packed({"a": b""}, pax_headers={"size": "9" * 18}), "the tar is cut off"),
    ],
    ids=range(9),
)
def test_damage_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=f"a.tar: {said}"):
        unpacked(content)


def test_tars_that_follow_one_another_are_read_and_other_bytes_are_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    one, two = packed({"one": b"1"}), packed({LONG: b"2"})
    assert unpacked(one + two + one) == [Member("one", True, b"1"), Member(LONG, True, b"2"), Member("one", True, b"1")]
    assert unpacked(one + bytes(700)) == unpacked(one[:1024] + bytes(512) + one)[:1] == [Member("one", True, b"1")]
    assert capfd.readouterr().err == ""
    for rest in (b"x", b"Once upon a time " * 100, b"\x1f\x8b" + bytes(9000)):
        assert unpacked(one + rest + one[:1]) == [Member("one", True, b"1")]
        assert capfd.readouterr().err == (
            f"warning: a.tar: {len(rest) + 1:,} bytes after the end of the tar, from byte {len(one):,} of its content "
            "on, are no tar and are left out\n"
        )
    with pytest.raises(InputError, match=f"a.tar: the tar is cut off at byte {len(one) + 1024:,} "):
        unpacked(one + two[:1024])


@given(st.sampled_from(FORMATS[1:]), st.data())
def test_any_bytes_give_members_or_an_input_error(form: int, data: st.DataObject) -> None:
    tar = bytearray(packed({LONG: b"text", "b": b""}, form, pax_headers={"comment": "x"}))
    for _ in range(data.draw(st.integers(0, 4))):
        tar[data.draw(st.integers(0, 3000))] = data.draw(st.integers(0, 255))
    for content in (bytes(tar), data.draw(st.binary(max_size=1200))):
        with suppress(InputError):
            assert all(len(member.content) <= 3 for member in unpacked(content, 3))
