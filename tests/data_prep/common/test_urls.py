import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.urls import TransferError
from tests.data_prep.server import FolderServer, cut_short, endless, serving, status
from tests.toy import ROOT, environment


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FolderServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "a").write_bytes(b"abc" * 1_000_000)
    with serving(tmp_path) as running:
        yield running


def content_of(url: str, limit: int = 10**7) -> bytes:
    content = bytearray()
    urls.read(url, limit, content.extend)
    return bytes(content)


REMOTE = "file:///data http://host/x https://host:8000/x s3://bucket/x http://[::1]:8000/x https://h/x?a=b::c#d"
OTHERS = "gs://bucket/x ftp://host/x HTTP://host/x file:/data simplecache::s3://bucket/x data:text/plain,x "
OTHERS += "zip://x.tar::http://host/a.zip http://host/x::file:///etc"


def test_paths_are_local_and_only_the_allowed_schemes_remote() -> None:
    assert not any(map(urls.is_remote, ("shards", "/data/shards", "../x", "a/b:c", "2024:01", "")))
    assert all(map(urls.is_remote, REMOTE.split()))


REFUSED = [
    *((location, "use a path or file://, http://, https://, s3://") for location in ("pipe:cat x", *OTHERS.split())),
    *((f"file://{rest}", "write file:///PATH, or the path") for rest in ("", "/", "here/data", "localhost/data")),
    # a query cannot be of one file; no secret is printed
    ("s3://bucket/x?sig=secret", "^s3://bucket/x[?]…: has a [?] or #, as an address that is signed for one file"),
    ("file:///x#secret", "^file:///x#…: has a [?] or #, as an address that is signed for one file"),
    ("HTTPS://user:secret@host/x?sig=secret", "^HTTPS://host/x[?]…: not an address"),
]


@pytest.mark.parametrize(("location", "said"), REFUSED)
def test_other_addresses_are_refused(location: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        urls.is_remote(location)


@pytest.mark.parametrize(
    ("url", "shown", "unsigned"),
    [
        ("https://u:p@host/x?X-Amz-Signature=s&id=5&x-amz-date=1#f", "https://host/x?…", "https://host/x?id=5"),
        ("https://host/x?sv=1&se=2&sig=a%2Fb%3D&set=3", "https://host/x?…", "https://host/x?set=3"),
        ("https://host/x#secret?a\nb", "https://host/x#…", "https://host/x"),
        ("https://host/x?user=a@b/c", "https://host/x?…", "https://host/x?user=a@b/c"),
        ("s3://bucket/a@b", "s3://bucket/a@b", "s3://bucket/a@b"),
    ],
)
def test_what_is_signed_is_not_shown_and_no_part_of_what_a_url_names(url: str, shown: str, unsigned: str) -> None:
    assert (urls.without_secrets(url), urls.unsigned(url)) == (shown, unsigned)


def test_no_secret_is_printed() -> None:
    error = urls._transfer_error(OSError("403, url='https://host/x?sig=secret'"))
    assert str(error) == "403, url='https://host/x?…"
    missing = Mock(side_effect=TransferError("not found", final=True))
    with pytest.raises(InputError, match=r"^https://host/x: not found \(tried 1 time\)"):
        urls.keep_trying("https://user:secret@host/x", missing, pytest.fail)


def test_http_and_file_give_the_same_bytes_in_one_request(server: FolderServer) -> None:
    expected = (server.folder / "a").read_bytes()
    signature = "X-Amz-Credential=AK%2F2026&X-Amz-Signature=a%2Bb%3D+c"
    assert content_of(f"{server.url}/a?{signature}#part") == expected
    assert server.queries == {"a": signature}  # sent as it is
    assert content_of(f"{server.url}/a") == expected
    assert content_of(f"file://{server.folder}/a") == expected
    assert server.requests == {"a": 2}
    assert server.headers["a"]["Accept-Encoding"] == "identity"


def test_s3_is_read_in_one_request_by_the_users_keys(server: FolderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url.removesuffix("/data"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert content_of("s3://bucket/folder/a") == (server.folder / "a").read_bytes()
    assert server.requests == {"a": 1}
    with pytest.raises(TransferError, match="not found") as caught:
        content_of("s3://bucket/folder/none")
    assert caught.value.final
    with pytest.raises(TransferError, match="sends more than the 100 bytes expected"):
        content_of("s3://bucket/folder/a", 100)


def test_content_that_is_compressed_unasked_is_not_inflated(server: FolderServer) -> None:
    server.misbehaviour["a"] = [lambda handler, content: handler.send(b"\x1f\x8b bomb", Content_Encoding="gzip")]
    assert content_of(f"{server.url}/a") == b"\x1f\x8b bomb"


def test_reading_stops_at_the_first_byte_beyond_the_limit(server: FolderServer) -> None:
    server.misbehaviour["a"] = [endless]
    received: list[bytes] = []
    with pytest.raises(TransferError, match="sends more than the 5000000 bytes expected"):
        urls.read(f"{server.url}/a", 5_000_000, received.append)
    assert 0 < sum(map(len, received)) <= 5_000_000
    assert max(map(len, received)) <= urls.BLOCK
    with pytest.raises(TransferError, match="sends more than the 100 bytes expected"):
        content_of("file:///dev/zero", 100)


@pytest.mark.parametrize(("number", "final"), [(404, True), (403, True), (408, False), (429, False), (500, False)])
def test_only_temporary_failures_are_worth_another_try(server: FolderServer, number: int, final: bool) -> None:
    server.misbehaviour["a"] = [status(number)]
    with pytest.raises(TransferError, match="not found" if number == 404 else f"HTTP status {number}") as caught:
        content_of(f"{server.url}/a")
    assert caught.value.final is final


def test_a_connection_that_breaks_or_is_refused_is_worth_another_try(server: FolderServer) -> None:
    server.misbehaviour["a"] = [cut_short]
    refused = server.url.replace(str(server.server_port), "1")
    for url, said in ((server.url, None), (refused, "Cannot connect to host 127.0.0.1")):
        with pytest.raises(TransferError, match=said) as caught:
            content_of(f"{url}/a")
        assert not caught.value.final


def test_a_missing_file_or_a_folder_is_final(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "not found"), (tmp_path, "Is a directory")):
        with pytest.raises(TransferError, match=reason) as caught:
            content_of(f"file://{path}")
        assert caught.value.final


def test_a_missing_package_is_named_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    line = r"http:// needs a package that is not installed: aiohttp; run: pip install 'deepsiam\[remote\]'"
    with pytest.raises(InputError, match=line):
        content_of("http://127.0.0.1:1/a")


def test_tries_go_on_with_growing_pauses_and_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    pauses: list[float] = []
    attempt = Mock(side_effect=[*map(TransferError, "abc"), "done"])
    assert urls.keep_trying("http://host/a", attempt, pauses.append) == "done"
    assert pauses == list(urls.PAUSES[:3])
    assert sorted(urls.PAUSES) == list(urls.PAUSES)
    lines = [f"http://host/a: {r}; try {n} of 6 in {p:g} s" for r, n, p in zip("abc", (2, 3, 4), pauses, strict=True)]
    assert capsys.readouterr().err.splitlines() == lines


def test_the_last_failure_names_url_reason_and_number_of_tries() -> None:
    pauses: list[float] = []
    with pytest.raises(InputError, match=r"^http://host/a: gone \(tried 6 times\)"):
        urls.keep_trying("http://host/a", Mock(side_effect=[TransferError("gone")] * 6), pauses.append)
    assert pauses == list(urls.PAUSES)  # a final failure is not tried again: see the test of secrets


TORCH = """
import importlib, sys
import deepsiam.data_prep.__main__
assert not {"torch", "webdataset"} & set(sys.modules)
import torch, webdataset
assert issubclass(webdataset.DataPipeline, torch.utils.data.IterableDataset)
name = "deepsiam.data_prep.common.webdataset_without_torch"
del sys.modules[name]
assert importlib.import_module(name).TarWriter is webdataset.TarWriter
assert sys.modules["torch"] is torch
"""


def test_data_prep_needs_no_torch_and_leaves_webdataset_as_it_is() -> None:
    run = subprocess.run([sys.executable, "-c", TORCH], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
