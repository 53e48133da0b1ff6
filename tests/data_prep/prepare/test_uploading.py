"""Upload a data set to an s3:// address, on a real server that implements the three requests needed."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deepsiam.data_prep.__main__ import main
from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.prepare import uploading

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
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_text(f"The {number} foxes jump over a dog. It was the dog of number {number}.")
    return folder


def command(texts: Path, *more: str) -> list[str]:
    return ["text", str(texts), "--vocab-size", "200", "--workers", "1", *more]


def test_a_data_set_lies_at_its_address_the_manifest_last(bucket: Bucket, texts: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    wanted = command(texts, "--out", "s3://bucket/a", "--work", str(work), "--held-out", "0.2")
    assert main(wanted) == 0
    files = [path for path in work.rglob("*") if path.is_file()]
    assert bucket.objects == {f"/bucket/a/{path.relative_to(work).as_posix()}": path.read_bytes() for path in files}
    assert [path.rsplit("/", 1)[1] for path in bucket.put[-2:]] == ["manifest.json", "manifest.json"]
    first = len(bucket.put)
    assert main(wanted) == 0
    assert len(bucket.put) == first  # all is already there


def test_files_of_another_data_set_are_replaced_even_if_their_sizes_are_equal(
    bucket: Bucket, texts: Path, tmp_path: Path
) -> None:
    assert main(command(texts, "--out", "s3://bucket/a", "--work", str(tmp_path / "work"))) == 0
    shard = "/bucket/a/shards/shard-000000.tar"
    ours = bucket.objects[shard]
    bucket.objects[shard] = ours[::-1]
    bucket.sha256[shard] = "0" * 64
    assert main(command(texts, "--out", "s3://bucket/a", "--work", str(tmp_path / "work"))) == 0
    assert bucket.objects[shard] == ours
    assert bucket.put[-1] == shard


def test_a_refusal_is_one_clear_line(
    bucket: Bucket, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = command(texts, "--out", "s3://bucket/a", "--work", str(tmp_path / "work"))
    bucket.closed = True
    with pytest.raises(SystemExit) as end:
        main(wanted)
    assert end.value.code == 2
    assert "data_prep: s3://bucket/a/shards/" in capsys.readouterr().err
    bucket.closed = False
    assert main(wanted) == 0


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("s3://bucket/a", "--out: an address needs --work DIR"),
        ("http://127.0.0.1/a", "http://127.0.0.1/a: cannot be written to; use a path or s3://"),
        ("gs://bucket/a", "not an address of shards"),
        ("file:///a --work b", "--work: is for an --out that is an s3:// address"),
        ("a --work b", "--work: is for an --out that is an s3:// address"),
    ],
)
def test_an_address_that_cannot_be_is_refused(
    texts: Path, capsys: pytest.CaptureFixture[str], out: str, message: str
) -> None:
    with pytest.raises(SystemExit):
        main(command(texts, "--out", *out.split()))
    assert message in capsys.readouterr().err


def test_a_file_address_is_a_folder(texts: Path, tmp_path: Path) -> None:
    assert main(command(texts, "--out", f"file://{tmp_path}/out")) == 0
    assert main(command(texts, "--out", str(tmp_path / "plain"))) == 0
    for file in (tmp_path / "plain" / "shards").iterdir():
        assert (tmp_path / "out" / "shards" / file.name).read_bytes() == file.read_bytes()


def test_nothing_is_put_where_nothing_can_be() -> None:
    with pytest.raises(InputError, match="cannot be written to"):
        uploading.check("https://host/x")
