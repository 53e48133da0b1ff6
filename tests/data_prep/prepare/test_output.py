"""A finished data set: its files, their check, and their upload to a real server of the three requests needed."""

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import output
from deepsiam.data_prep.shards import stats
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import raw
from tests.data_prep.raw import Capture, contents


@pytest.fixture(scope="module")
def out(datasketch: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished data set with --near-duplicates; read only."""
    folder = tmp_path_factory.mktemp("dataset")
    file = raw.write_jsonl(folder / "a.jsonl", raw.texts(60))
    raw.run("jsonl", file, "--out", folder / "out", "--held-out", 0.3, "--near-duplicates", 0.8)
    return folder / "out"


def test_lost_held_out_documents_are_missed(out: Path, tmp_path: Path, capfd: Capture) -> None:
    shutil.copytree(out, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "held_out")
    lost = f"{tmp_path}/out/held_out: is missing; copy it again, or remove {tmp_path}/out to prepare it again"
    with pytest.raises(InputError) as error:
        output.check(tmp_path / "out")
    assert str(error.value) == lost
    assert raw.refused(capfd, "verify", tmp_path / "out") == lost
    given = "jsonl", out.parent / "a.jsonl", "--out", tmp_path / "b"
    assert raw.refusal(capfd, *given, "--against", tmp_path / "out") == lost


@given(st.integers(0, 10**9), st.integers(0, 1 << 40), st.floats(0, 0.99), st.none() | st.integers(1, 99))
def test_a_plan_has_every_shard_once(documents: int, size: int, share: float, wanted: int | None) -> None:
    plan = output.plan(documents, min(size, 1 << 34), share, wanted)
    for split in output.SPLITS:
        of = [shard for shard in plan if shard.split == split]
        assert [(shard.number, shard.of) for shard in of] == [(number, len(of)) for number in range(len(of))]
        assert bool(of) == (split == "shards" or share > 0)
    if wanted:
        assert sum(shard.split == "shards" for shard in plan) == wanted


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0")])
def test_damaged_pairs_are_refused(out: Path, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    shutil.copytree(out, tmp_path / "copy")
    pairs = tmp_path / "copy" / output.BANDS
    damage(pairs)
    with pytest.raises(InputError, match=f"{pairs}: (cannot read: No such file|its SHA-256 is not the one)"):
        output.bands_of(tmp_path / "copy", 0.8)


def test_shards_not_made_by_a_preparation_are_refused_for_comparison(small: Tokenizer, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "shards", small) as writer:
        writer.add("d", [[1]])
    with pytest.raises(InputError, match="shard-000000.tar: its documents have no keys; prepare the data set again"):
        output.keys_of([tmp_path])
    with pytest.raises(InputError, match="its shards are not those of a prepared data set"):
        output.bands_of(tmp_path, 0.8)


def test_the_work_folder_of_a_killed_run_is_removed(out: Path, tmp_path: Path) -> None:
    shutil.copytree(out, tmp_path / "copy")
    (tmp_path / "copy" / ".partial" / "read").mkdir(parents=True)
    output.check(tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(out)
    assert not (tmp_path / "copy" / ".partial").exists()


def test_the_share_of_unknown_tokens_is_told(tmp_path: Path, capfd: Capture, small: Tokenizer) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", [f"Лиса номер {number} прыгает: fox." for number in range(40)])
    raw.run("jsonl", file, "--out", tmp_path / "trained", "--vocab-size", 300)
    printed = capfd.readouterr()
    assert re.search(r"  unknown tokens: 0\.00 % of [\d,]+ in a sample\n", printed.out)
    assert "warning" not in printed.err
    raw.run("jsonl", file, "--out", tmp_path / "given", "--tokenizer", small.path)
    printed = capfd.readouterr()
    (share,) = re.findall(r"unknown tokens: ([\d.]+) % of", printed.out)
    counted = stats.collect(tmp_path / "given")["vocabulary"]["unknown_share"]
    assert float(share) == pytest.approx(100 * counted, abs=0.01)
    assert counted > 0.3
    assert f"warning: {tmp_path / 'given'}: {share} % of the tokens are unknown ([UNK])" in printed.err


NOTHING = b"<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"


class Bucket(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.objects: dict[str, bytes] = {}
        self.sha256: dict[str, str | None] = {}  # the metadata of an object
        self.put: list[str] = []
        self.closed = False  # whether uploads are refused


class Request(BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:  # noqa: N802
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.closed:
            self.answer(403)
            return
        self.server.objects[self.path] = content
        self.server.sha256[self.path] = self.headers["x-amz-meta-sha256"]
        self.server.put.append(self.path)
        self.answer(200)

    def do_HEAD(self) -> None:  # noqa: N802
        content = self.server.objects.get(self.path)
        self.answer(404 if content is None else 200, content or b"", self.server.sha256.get(self.path))

    def do_GET(self) -> None:  # noqa: N802
        self.answer(200, NOTHING)

    def answer(self, status: int, content: bytes = b"", sha256: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"0"')
        if sha256:
            self.send_header("x-amz-meta-sha256", sha256)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setattr(urls, "PAUSES", (0.0,))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    with Bucket() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def command(bucket: Bucket, tmp_path: Path) -> tuple[object, ...]:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(20))
    return "jsonl", file, "--out", "s3://bucket/a", "--work", tmp_path / "work", "--held-out", 0.2


def test_a_data_set_lies_at_its_address_the_manifest_last(
    bucket: Bucket, command: tuple[object, ...], tmp_path: Path
) -> None:
    raw.run(*command)
    assert bucket.objects == {f"/bucket/a/{name}": content for name, content in contents(tmp_path / "work").items()}
    assert [path.rsplit("/", 1)[1] for path in bucket.put[-2:]] == ["manifest.json", "manifest.json"]
    first = len(bucket.put)
    raw.run(*command)
    assert len(bucket.put) == first  # all is already there
    shard = "/bucket/a/shards/shard-000000.tar"  # now of another data set, and as large
    ours = bucket.objects[shard]
    bucket.objects[shard], bucket.sha256[shard] = ours[::-1], "0" * 64
    raw.run(*command)
    assert bucket.objects[shard] == ours
    assert bucket.put[first:] == [shard]


def test_a_refusal_is_one_line(bucket: Bucket, command: tuple[object, ...], capfd: Capture) -> None:
    bucket.closed = True
    assert raw.refusal(capfd, *command).startswith("s3://bucket/a/held_out/")
    bucket.closed = False
    raw.run(*command)


def test_a_file_address_is_a_folder(tmp_path: Path) -> None:
    file = raw.write_jsonl(tmp_path / "a.jsonl", raw.texts(9))
    raw.run("jsonl", file, "--out", f"file://{tmp_path}/out")
    raw.run("jsonl", file, "--out", tmp_path / "plain")
    assert contents(tmp_path / "out") == contents(tmp_path / "plain")
