"""Hostile folders of shards: each attack is built and read by the commands that a user would run."""

import gc
import json
import os
import pickle
import re
import resource
import shutil
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import LARGEST_JSON
from deepsiam.data_prep.shards.chunk import LARGEST
from deepsiam.data_prep.shards.manifest import MOST_CHUNKS_OF_A_SHARD, NAME, Manifest
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers import tokenizer
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import forge
from tests.data_prep.raw import Capture

Attack = Callable[[Path], object]
SHARD = "shard-000000.tar"
MIB = 1 << 20
DEEP = b"[" * 100_000


@pytest.fixture(scope="session")
def written(small: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with ShardWriter(tmp_path_factory.mktemp("good"), small, 20, 2) as writer:
        for number in range(40):
            writer.add(f"d{number}", [[number % 70, 1, 2], [], [3]] if number % 5 else [])
    return writer.directory


@pytest.fixture
def folder(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of good shards, in an otherwise empty working folder."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(written, tmp_path / "shards"))


def refusal(command: str, folder: Path, capsys: Capture) -> str:
    """Return the one line with which a command refuses the folder, after checking that it changed no file."""
    before = sorted(folder.parent.rglob("*"))
    try:
        code = main([*command.split(), str(folder)])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    lines = capsys.readouterr().err.splitlines()
    assert (code, len(lines)) == (2, 1), lines
    assert lines[0].isprintable()
    assert len(lines[0]) < 1000
    assert sorted(folder.parent.rglob("*")) == before
    return lines[0]


def entry(**changes: object) -> Attack:
    """Change the manifest's record of shard 0."""
    return lambda folder: forge.edit(folder, lambda record: record["shards"][0].update(changes))


def content(name: str, data: bytes) -> Attack:
    return lambda folder: (folder / name).write_bytes(data)


def sparse(name: str, size: int, start: bytes = b"") -> Attack:
    """Write a sparse file: `start`, then zeros."""

    def attack(folder: Path) -> None:
        (folder / name).write_bytes(start)
        os.truncate(folder / name, size)

    return attack


def another(name: str, make: Callable[[Path], None]) -> Attack:
    """Replace a file by what `make` creates, which is not a plain file."""

    def attack(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return attack


def many_full_shards(folder: Path) -> None:
    def repeat(record: dict) -> None:
        full = {**record["shards"][0], "chunks": MOST_CHUNKS_OF_A_SHARD, "bytes": 1 << 40}
        record["shards"] = [{**full, "name": f"shard-{number:06d}.tar"} for number in range(300)]

    forge.edit(folder, repeat)


ELSEWHERE = ("../x.tar", "/etc/passwd", "..", "a::b", "pipe:touch ran")
MANIFESTS: list[tuple[Attack, str]] = [
    *((entry(name=name), "is not the name of a shard") for name in ELSEWHERE),
    (entry(name="shard-000000.tar\n\x1b[31m"), "is not the name of a shard"),
    (entry(name="shard-٠٠٠٠٠٠.tar"), "is not the name of a shard"),
    (entry(name=[[[[]]]]), "is not the name of a shard"),
    *(
        (entry(documents=count), "a count that is not a whole number")
        for count in (-1, True, 2.0, float("nan"), float("inf"), "7", None, [], 10**400)
    ),
    (content(NAME, b'{"format": 2' + b"0" * 5000 + b"}"), "not JSON"),
    (entry(chunks=10**12, bytes=10**18), "has more than 65,536 chunks"),
    (many_full_shards, "lists more than 16,777,216 chunks"),
    (entry(sha256="\x1b[2J"), "a sha256 that is not 64 hex digits"),
    (lambda folder: forge.edit(folder, lambda record: record.update(format="\x1b]0;title\x07")), "format version"),
    (
        lambda folder: forge.edit(folder, lambda record: record["tokenizer"].update(fingerprint="\x1b[2J")),
        "not the tokenizer",
    ),
    (content(NAME, DEEP), "not JSON"),
    (content(NAME, b'{"format": ' + DEEP[:900] + b"]" * 900 + b"}"), "format version"),
    (content(NAME, b"\x00" * 1000), "not JSON"),
    (sparse(NAME, 10 << 30), "larger than 33,554,432 bytes"),
    (another(NAME, os.mkfifo), "not a plain file"),
    (another(NAME, lambda path: path.symlink_to("/dev/zero")), "not a plain file"),
]


def vocabulary(tokens: dict[str, int]) -> Attack:
    def attack(folder: Path) -> None:
        record = json.loads((folder / "tokenizer.json").read_text())
        record["model"]["vocab"].update(tokens)
        (folder / "tokenizer.json").write_text(json.dumps(record, separators=(",", ":")))

    return attack


def edit(change: Callable[[dict[str, Any]], object]) -> Attack:
    return lambda folder: forge.edit(folder, change)


EDITED: list[tuple[Attack, str]] = [
    (edit(lambda record: record.update(format=1)), "format version 1, this code reads 2"),
    (edit(lambda record: record.pop("shards")), "lacks tokenizer, source or shards"),
    (edit(lambda record: record["shards"].clear()), "holds no documents"),
    (edit(lambda record: record["shards"].append(record["shards"][0])), "lists a shard twice"),
    (edit(lambda record: record["shards"][0].pop("sha256")), "lacks or adds a key"),
    (entry(tokens=10**12), "claims more than its .* bytes can hold"),
    (entry(segments=10**12), "claims more than its .* bytes can hold"),
    (
        edit(lambda record: record["tokenizer"].update(fingerprint="0" * 64)),
        "not the tokenizer the shards were written",
    ),
    (edit(lambda record: record["tokenizer"].update(vocab_size=10**6)), "not the tokenizer the shards were written"),
    (content(NAME, b"[]"), "format version None"),
    (lambda folder: (folder / NAME).unlink(), r"manifest.json: no such file; is this a finished folder of shards\?"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json: cannot read"),
    (vocabulary({"fox and dog": 120}), "not the tokenizer .*fingerprint [0-9a-f]{12}, the manifest has '"),
]
TOKENIZERS: list[tuple[Attack, str]] = [
    (content("tokenizer.json", DEEP), "not a usable tokenizer.json"),
    (content("tokenizer.json", b'{"\x1b[31m": 1}'), "not a usable tokenizer.json"),
    (sparse("tokenizer.json", 10 << 30), "larger than 33,554,432 bytes"),
    (another("tokenizer.json", os.mkfifo), "not a plain file"),
    (vocabulary({"huge": (1 << 32) - 1}), "ids up to 4,294,967,295 for 121 tokens"),
    (vocabulary({"x" * 100_000: 120}), "a token is longer than 1,000 characters"),
    (edit(lambda record: record["tokenizer"].update(vocab_size=1 << 40)), "not the tokenizer the shards"),
]


def tar(*blocks: bytes) -> Attack:
    """Write shard 0 with these bytes, and its hash in the manifest."""

    def attack(folder: Path) -> None:
        (folder / SHARD).write_bytes(b"".join(blocks) + bytes(4096))
        forge.vouch_again(folder)

    return attack


def members(change: Callable[[list[tuple[str, bytes]]], list[tuple[str, bytes]]]) -> Attack:
    """Write shard 0 with other members."""

    def attack(folder: Path) -> None:
        forge.pack(folder / SHARD, change(forge.unpack(folder / SHARD)))
        forge.vouch_again(folder)

    return attack


def arrays(ids: list[object], segments: list[int], documents: list[int]) -> bytes:
    return forge.npz(ids=np.array(ids, np.uint16), segments=forge.row(*segments), documents=forge.row(*documents))


LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
OUTSIDE = ("../../evil.py", "/etc/cron.d/evil", "a.npz/../../b", "\x1b[31m\n\x07")
MEMBERS = [forge.tar_header(name, 0) for name in OUTSIDE]
MEMBERS += [forge.tar_header("000000000000.npz", 0, kind) for kind in LINKS]
MEMBERS += [forge.tar_header("000000000000.npz", 1 << 34, kind) for kind in (b"x", b"g", b"X", b"L", b"K", b"S", b"D")]
TARS: list[tuple[Attack, str]] = [
    *((tar(header), "unexpected member") for header in MEMBERS),
    (tar(forge.tar_header("x", 0, b"L") * 5000), "unexpected member"),
    (tar(forge.tar_header("000000000000.npz", 1 << 60)), "cut short"),
    (tar(forge.tar_header("000000000000.npz", -512)), "cut short"),
    (tar(*(forge.tar_header(f"{number:012d}.npz", 0) for number in range(5000))), "more chunks than the 2 of the"),
    (tar(forge.tar_header("BZh91AY&SY.npz", 0)), "unexpected member"),  # tarfile would inflate such a tar
    (members(lambda given: [*given, given[0]]), "unexpected member"),
    (members(lambda given: [given[0], *given[2:], given[1]]), "unexpected member"),
    (members(lambda given: given[:-1]), "lacks its npz or json"),
    (members(lambda given: given[:-2]), "1 chunks, the manifest lists 2"),
    (tar(b"no tar" * 1000), "not a tar of chunks"),
    (tar(), "0 chunks, the manifest lists 2"),
    (another(SHARD, os.mkfifo), "missing"),
    (another(SHARD, lambda path: path.symlink_to("/dev/zero")), "missing"),
]


OTHER_ARRAYS = [forge.described(shape) for shape in ("(1, 1)", f"({'9' * 400},)", "(True,)", "(1.0,)", "None")]
OTHER_ARRAYS += [forge.described("(1,)", dtype) for dtype in ("'>u2'", "'<i2'", "'|O'", "'<u4'", "'(9,9)u2'", "()")]
OTHER_ARRAYS += [forge.described("(1,)", order="True"), forge.described("(1,)", "[('a', '<u2')]")]
HEADERS = [b"-" * 9000 + b"1", b"(" * 60_000, b" " * MIB, b"__import__('os').system('touch ran')"]
OTHER_ARRAYS += [forge.zipped(forge.npy(header)) for header in HEADERS]
CHUNKS: list[tuple[bytes, str]] = [
    (pickle.dumps(forge.TouchesAFile()), "not a readable npz"),
    (
        forge.npz(ids=np.array([forge.TouchesAFile()]), segments=forge.row(1), documents=forge.row(1)),
        "ids is not a 1-D array of uint16",
    ),
    (forge.zipped(pickle.dumps(forge.TouchesAFile())), "ids is not a 1-D array of uint16"),
    (forge.deflated(), "compressed"),
    (forge.zipped(bytes(MIB), compression=zipfile.ZIP_LZMA), "compressed"),
    (forge.patched(forge.ONE, 20, struct.pack("<II", 1 << 31, 1 << 31)), "not a readable npz"),
    (forge.patched(forge.ONE, 8, b"\1\0"), "encrypted"),
    (forge.far_away(), "not a readable npz"),
    (forge.overlapping(), "not a readable npz"),
    (forge.zipped(b"", "../../ids.npy"), "the npz holds"),
    (forge.zipped(b"", "\x1b[31m\n" * 5000), "the npz holds"),
    (forge.described("(999999999,)"), "ids claims 999999999 values of uint16 in 2 bytes"),
    (forge.described("(2,)"), "ids claims 2 values of uint16 in 2 bytes"),
    *((forge.described(shape), "ids (is not a 1-D array of|claims)") for shape in ("(-1,)", "(10**9,)", "()")),
    *((array, "ids is not a 1-D array of") for array in OTHER_ARRAYS),
    (arrays([9, 9], [2, 1, 2], [3]), "segments has end offsets that"),
    (arrays([9], [(1 << 32) - 1], [1]), "segments does not end at 1"),
    (arrays([60_000], [1], [1]), "beyond the vocabulary"),
]


def swap(member: int, data: bytes) -> Attack:
    return lambda folder: forge.swap_member(folder, member, data)


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        *MANIFESTS,
        *EDITED,
        *TOKENIZERS,
        *TARS,
        *((swap(0, content), reason) for content, reason in CHUNKS),
        *(
            (swap(1, content), r"\.json") for content in (DEEP, b'{"documents": [3]}')
        ),  # test_document.py has the others
    ],
)
def test_an_attack_leaves_no_trace(folder: Path, capsys: Capture, attack: Attack, reason: str) -> None:
    attack(folder)
    assert re.search(reason, refusal("verify", folder, capsys))


@pytest.mark.parametrize(
    ("attack", "reason"),
    [MANIFESTS[0], TOKENIZERS[0], TARS[0], (swap(0, CHUNKS[1][0]), CHUNKS[1][1]), (swap(1, DEEP), "json")],
)
@pytest.mark.parametrize("command", ["inspect", "stats", "export --jsonl"])
def test_no_other_command_reads_more(folder: Path, capsys: Capture, command: str, attack: Attack, reason: str) -> None:
    attack(folder)
    assert re.search(reason, refusal(command, folder, capsys))


def test_a_panic_of_the_tokenizer_library_is_refused(folder: Path) -> None:
    record = json.loads((folder / "tokenizer.json").read_text())
    record["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    (folder / "tokenizer.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="not a usable tokenizer.json"):  # Rust prints more, to file descriptor 2
        Manifest.load(folder)


def test_escape_sequences_and_endless_texts_are_not_printed(small: Tokenizer, tmp_path: Path, capsys: Capture) -> None:
    record = json.loads(small.path.read_text())
    record["model"]["vocab"]["\x1b[31m\u202e"] = small.vocab_size
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(record))
    with ShardWriter(tmp_path / "shards", tokenizer.load(path), 100) as writer:
        writer.add("\x1b]0;title\x07\nd\ud800" + "x" * 10_000, [[small.vocab_size] * 10_000, *[[5]] * 10_000])
        writer.add("empty", [])
    assert main(["inspect", str(tmp_path / "shards")]) == 0
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert r"\x1b]0;title\x07 d\ud800xxx" in shown
    assert r"\x1b[31m\u202e" in shown
    assert len(shown) < 20_000


def test_a_shard_of_no_documents_can_be_inspected(folder: Path, capsys: Capture) -> None:
    empty = forge.npz(ids=np.array([], np.uint16), segments=forge.row(), documents=forge.row())
    for number, data in enumerate([empty, b'{"documents": []}'] * 2):
        forge.swap_member(folder, number, data)
    assert main(["inspect", str(folder)]) == 0


def test_shards_too_large_to_read_are_not_written(small: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at most 65,536 chunks"):
        ShardWriter(tmp_path, small, chunks_per_shard=MOST_CHUNKS_OF_A_SHARD + 1)
    for name, ids in (("x" * 80, np.ones(LARGEST // 2, np.uint16)), ("x" * LARGEST, [])):
        said = "the chunk with document x{80} has over 8,388,608 bytes: make chunks of fewer"
        with pytest.raises(InputError, match=said), ShardWriter(tmp_path, small) as writer:
            writer.add(name, [ids])
    assert list(tmp_path.iterdir()) == []


def huge_shard(start: bytes) -> Attack:
    """A shard of 128 MiB."""

    def attack(folder: Path) -> None:
        sparse(SHARD, 128 * MIB, start)(folder)
        forge.vouch_again(folder)

    return attack


# memory grows with the bytes: these may take the share that they are of the largest
JSON_BYTES, CHUNK_BYTES = 2 * MIB, LARGEST // 4
JSON_MEMORY, CHUNK_MEMORY = 2048 * MIB * JSON_BYTES // LARGEST_JSON, 1024 * MIB // 4


def empty_segments(folder: Path) -> None:
    count = (CHUNK_BYTES - 4096) // 4
    forge.swap_member(
        folder,
        0,
        forge.npz(ids=np.array([], np.uint16), segments=np.zeros(count, np.uint32), documents=forge.row(count)),
    )


def many_small_objects(folder: Path) -> None:
    item = b"[[[[]]]],"
    content(NAME, b"[" + item * (JSON_BYTES // len(item) - 1) + b"0]")(folder)


def many_tokens(folder: Path) -> None:
    vocabulary(dict.fromkeys((f"{number:x}" for number in range(JSON_BYTES // 12)), 5))(folder)


def verify_with_at_most(memory: int, folder: Path) -> int:
    """Verify in a fork that can get so many more bytes of memory; return the exit code."""
    if not (child := os.fork()):
        code = 1
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + memory,) * 2)
            gc.freeze()  # else each collection copies what the parent has
            code = main(["verify", str(folder)])
        except SystemExit as stopped:
            code = stopped.code
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "bound", "reason"),
    [
        (huge_shard(forge.tar_header("x", 127 * MIB, b"L")), 64 * MIB, "unexpected member"),
        (huge_shard(forge.tar_header("000000000000.npz", 127 * MIB)), 64 * MIB, "has over 8,388,608 bytes"),
        (swap(0, forge.deflated()), 256 * MIB, "compressed"),
        (swap(0, forge.crowded(CHUNK_BYTES)), CHUNK_MEMORY, "the npz holds|not a readable npz"),
        (empty_segments, CHUNK_MEMORY, "has no list 'documents' of 1 items"),
        (many_small_objects, JSON_MEMORY, "format version None"),
        (many_tokens, JSON_MEMORY, "not the tokenizer the shards"),
    ],
)
def test_no_attack_takes_more_memory_than_stated(
    folder: Path, attack: Attack, bound: int, reason: str, capfd: Capture
) -> None:
    attack(folder)
    assert verify_with_at_most(bound, folder) == 2
    assert re.search(reason, capfd.readouterr().err)
