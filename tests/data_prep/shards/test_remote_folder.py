"""A remote folder of shards is read as a local one, through a cache that processes share; damage leaves nothing."""

import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.shards import remote_folder
from deepsiam.data_prep.shards.manifest import NAME, Manifest
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.shards.remote_folder import Cache
from deepsiam.data_prep.shards.writer import ShardWriter
from deepsiam.data_prep.tokenizers.tokenizer import Tokenizer
from tests.data_prep import server as servers
from tests.data_prep.forge import vouch_again
from tests.data_prep.server import Answer, FolderServer, Handler, serving

PLENTY = 10**9


@pytest.fixture(scope="module")
def small_shards(small: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight shards; read only."""
    folder: Path = tmp_path_factory.mktemp("remote") / "shards"
    write(folder, small, range(8))
    return folder


def write(folder: Path, tok: Tokenizer, numbers: Iterable[int]) -> None:
    with ShardWriter(folder, tok, 2, 1) as writer:
        for number in numbers:
            writer.add(f"d{number}", [[number, 1, 2]])


@pytest.fixture
def server(small_shards: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FolderServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(small_shards) as running:
        yield running


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def cache(server: FolderServer, tmp_path: Path, pauses: list[float]) -> Iterator[Cache]:
    opened = Cache(server.url, tmp_path / "cache", PLENTY, pauses.append)
    yield opened
    opened.close()


@pytest.fixture
def remote(small: Tokenizer, tmp_path: Path) -> Path:
    """Two shards of a test's own."""
    write(tmp_path / "remote", small, range(2))
    return tmp_path / "remote"


def name(index: int) -> str:
    return f"shard-{index:06d}.tar"


def first_id(shard: Shard) -> int:
    return int(shard.read(0)[0].segments[0][0])


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_remote_shards_are_as_local_ones(scheme: str, server: FolderServer, small_shards: Path, tmp_path: Path) -> None:
    url = server.url if scheme == "http" else f"file://{small_shards}"
    cache = Cache(url + "/", tmp_path / "cache", PLENTY)
    local = Manifest.load(small_shards)
    assert cache.manifest.shards == local.shards
    assert cache.manifest.sha256 == local.sha256
    assert (cache.manifest.directory / "tokenizer.json").read_bytes() == (small_shards / "tokenizer.json").read_bytes()
    assert [first_id(cache.open(index)) for index in range(8)] == list(range(8))
    assert cache.open(3) is cache.open(3)
    assert [d.id for d in cache.open(3).read(0)] == [d.id for d in Shard.open(local, 3).read(0)]
    if scheme == "http":
        assert server.requests == dict.fromkeys([NAME, "tokenizer.json", *map(name, range(8))], 1)
    cache.close()


@pytest.mark.parametrize(
    "location", ["pipe:cat x", "simplecache::s3://b/x", "gs://bucket", "/a/path", "https://host/x?sig=1"]
)
def test_a_cache_of_anything_but_an_allowed_url_is_refused(location: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="use a path or file://|which needs no cache|host/x.…: has a . or #"):
        Cache(location, tmp_path / "cache", PLENTY)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_fails_at_first_is_tried_again(
    server: FolderServer, cache: Cache, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    server.misbehaviour[name(2)] = [servers.endless, servers.cut_short]
    assert first_id(cache.open(2)) == 2
    assert server.requests[name(2)] == 3
    assert pauses == list(urls.PAUSES[:2])
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(";")[2] for line in lines] == [" try 2 of 6 in 1 s", " try 3 of 6 in 2 s"]
    assert all(line.startswith(f"{server.url}/{name(2)}: ") for line in lines)


@pytest.mark.parametrize(
    ("answer", "reason", "tries"),
    [
        (servers.status(500), "HTTP status 500", 6),
        (servers.status(404), "not found", 1),
        (servers.shorter, r"ended after \d+ bytes, the manifest lists \d+", 6),
        (servers.wrong_bytes, "its SHA-256 is not the one in the manifest", 6),
        (servers.endless, r"sends more than the \d+ bytes expected", 6),
    ],
)
def test_a_bad_remote_leaves_nothing(
    server: FolderServer, cache: Cache, answer: Answer, reason: str, tries: int
) -> None:
    server.misbehaviour[name(2)] = [answer] * 6
    with pytest.raises(InputError, match=rf"^{server.url}/{name(2)}: {reason} \(tried {tries} time"):
        cache.open(2)
    assert server.requests[name(2)] == tries
    assert files_in(cache.store.directory) == [".lock"]


def test_too_small_a_bound_is_refused_at_once(server: FolderServer, small_shards: Path, tmp_path: Path) -> None:
    size = Manifest.load(small_shards).shards[0].bytes
    with pytest.raises(
        InputError, match=rf"data.cache_bytes: {size - 1} bytes cannot hold the largest shard of {server.url}"
    ):
        Cache(server.url, tmp_path, size - 1).manifest  # noqa: B018
    assert set(server.requests) == {NAME, "tokenizer.json"}


def test_a_changed_manifest_wins_and_only_changed_shards_are_downloaded_again(small: Tokenizer, tmp_path: Path) -> None:
    write(tmp_path / "remote", small, range(8))
    with serving(tmp_path / "remote") as server:
        before = Cache(server.url, tmp_path / "cache", PLENTY)
        assert [first_id(before.open(index)) for index in (3, 4)] == [3, 4]
        for path in (tmp_path / "remote").iterdir():
            path.unlink()
        write(tmp_path / "remote", small, [*range(4), 9, 10])
        after = Cache(server.url, tmp_path / "cache", PLENTY)
        assert len(after.manifest.shards) == 6
        assert Manifest.load(after.manifest.directory) == after.manifest
        assert [first_id(after.open(index)) for index in (3, 4)] == [3, 9]
        assert (server.requests[name(3)], server.requests[name(4)]) == (1, 2)
        assert first_id(before.open(4)) == 4  # a reader that began with the old manifest is not disturbed
        before.close()
        after.close()


def test_a_bad_new_manifest_leaves_the_old_copy(remote: Path, tmp_path: Path) -> None:
    with serving(remote) as server:
        copied = Cache(server.url, tmp_path / "cache", PLENTY).manifest
        (remote / NAME).write_text("{}")
        with pytest.raises(InputError, match=rf"^{server.url}: .*format version None"):
            Cache(server.url, tmp_path / "cache", PLENTY).manifest  # noqa: B018
        assert Manifest.load(copied.directory) == copied


@pytest.mark.parametrize(
    ("file", "answer", "said"),
    [
        ("tokenizer.json", servers.endless, f"tokenizer.json: sends more than the {1 << 16} bytes"),
        (NAME, servers.endless, f"{NAME}: sends more than the {1 << 16} bytes"),
        (NAME, lambda handler, content: handler.send(b"[" * 50_000), "not JSON"),
    ],
)
def test_a_hostile_manifest_is_bounded_in_size_and_depth(
    server: FolderServer, cache: Cache, file: str, answer: Answer, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_folder, "LARGEST_JSON", 1 << 16)
    server.misbehaviour = {file: [answer] * 6}
    with pytest.raises(InputError, match=said):
        cache.manifest  # noqa: B018


def test_a_tar_of_anything_but_chunks_is_refused_though_its_hash_is_right(remote: Path, tmp_path: Path) -> None:
    (remote / name(0)).write_bytes(b"no tar" * 1000)
    vouch_again(remote)
    cache = Cache(f"file://{remote}", tmp_path / "cache", PLENTY)
    for _ in range(2):
        with pytest.raises(InputError, match="shard-000000-.*: not a tar of chunks"):
            cache.open(0)
    assert first_id(cache.open(1)) == 1


def held_back(begun: threading.Event, go_on: threading.Event) -> Callable[[Handler, bytes], None]:
    def answer(handler: Handler, content: bytes) -> None:
        begun.set()
        go_on.wait()
        handler.send(content)

    return answer


def test_shards_are_fetched_ahead_and_each_once(server: FolderServer, cache: Cache) -> None:
    begun, go_on = threading.Event(), threading.Event()
    server.misbehaviour[name(1)] = [held_back(begun, go_on)]
    cache.fetch_ahead([1, 2, 3])
    cache.fetch_ahead([1, 2, 3])
    begun.wait()
    assert first_id(cache.open(3)) == 3  # it does not wait for its place in the queue
    go_on.set()
    assert [first_id(cache.open(index)) for index in (1, 2)] == [1, 2]
    assert [server.requests[name(index)] for index in (1, 2, 3)] == [1, 1, 1]


def test_a_shard_fetched_ahead_is_downloaded_before_it_is_opened(server: FolderServer, cache: Cache) -> None:
    cache.fetch_ahead([4])
    process = cache._process
    process.ahead[4].result(timeout=60)
    server.shutdown()
    assert first_id(cache.open(4)) == 4


def test_a_download_that_failed_ahead_is_reported_when_the_shard_is_opened(server: FolderServer, cache: Cache) -> None:
    server.misbehaviour[name(1)] = [servers.status(404)]
    cache.fetch_ahead([1, 2])
    assert first_id(cache.open(2)) == 2
    with pytest.raises(InputError, match=rf"{name(1)}: not found \(tried 1 time\)"):
        cache.open(1)
    assert server.requests[name(1)] == 1
    assert first_id(cache.open(1)) == 1  # opening it again retries the download


def test_fetching_ahead_takes_no_room_of_open_shards(server: FolderServer, small_shards: Path, tmp_path: Path) -> None:
    size = Manifest.load(small_shards).shards[0].bytes
    cache = Cache(server.url, tmp_path, 2 * size, pytest.fail)
    for index in (0, 1):
        cache.open(index)
    cache.fetch_ahead([2])
    cache._process.ahead[2].result(timeout=60)
    assert server.requests[name(2)] == 0
    cache.release(0)
    assert first_id(cache.open(2)) == 2
    cache.close()


def test_a_pickled_cache_begins_empty(cache: Cache, server: FolderServer) -> None:
    cache.open(0)
    cache.fetch_ahead([1])
    cache.sleep = cache.store.sleep = print  # the test's sleep function cannot be pickled
    copied = pickle.loads(pickle.dumps(cache))
    assert first_id(copied.open(0)) == 0
    assert server.requests[NAME] == server.requests[name(0)] == 1
    copied.close()


def read_all(cache: Cache, order: list[int], results: Any) -> None:
    cache.fetch_ahead(order)
    results.put([first_id(cache.open(index)) for index in order])


@pytest.mark.slow
def test_a_forked_worker_fetches_ahead_with_a_thread_of_its_own(server: FolderServer, cache: Cache) -> None:
    begun, go_on = threading.Event(), threading.Event()
    server.misbehaviour[name(1)] = [held_back(begun, go_on)]
    cache.open(0)
    cache.fetch_ahead([1])
    begun.wait()  # the parent is in mid-download when it forks
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=read_all, args=(cache, order, results)) for order in ([2, 3, 0], [3, 2, 0, 1])]
    for worker in workers:
        worker.start()
    go_on.set()
    assert {tuple(results.get(timeout=60)) for _ in workers} == {(2, 3, 0), (3, 2, 0, 1)}
    for worker in workers:
        worker.join()
    assert first_id(cache.open(1)) == 1
    assert [server.requests[name(index)] for index in range(4)] == [1, 1, 1, 1]


def reader(server: FolderServer, directory: Path, limit: int, *order: int) -> BaseProcess:
    """A process that opens shards and lets them go, in an order."""

    def read() -> None:
        cache = Cache(server.url, directory, limit)
        for index in order:
            assert first_id(cache.open(index)) == index
            cache.release(index)

    process = multiprocessing.get_context("fork").Process(target=read)
    process.start()
    return process


def ended(process: BaseProcess) -> int | None:
    process.join()
    return process.exitcode


@pytest.mark.slow
def test_two_processes_download_each_shard_once(server: FolderServer, tmp_path: Path) -> None:
    readers = [reader(server, tmp_path, PLENTY, *range(8)) for _ in range(2)]
    assert list(map(ended, readers)) == [0, 0]
    assert [server.requests[name(index)] for index in range(8)] == [1] * 8
    assert len(files_in(tmp_path)) == 1 + 8


@pytest.mark.slow
def test_two_processes_share_a_cache_of_two_shards(server: FolderServer, small_shards: Path, tmp_path: Path) -> None:
    size = max(entry.bytes for entry in Manifest.load(small_shards).shards)
    readers = [reader(server, tmp_path, 2 * size, *order) for order in (range(8), reversed(range(8)))]
    assert list(map(ended, readers)) == [0, 0]
    assert sum(path.stat().st_size for path in tmp_path.glob("*.tar*")) <= 2 * size


@pytest.mark.slow
def test_a_process_killed_in_mid_download_leaves_nothing_stuck(server: FolderServer, tmp_path: Path) -> None:
    begun = threading.Event()

    def half(handler: Handler, content: bytes) -> None:
        handler.send(content[:1024], claimed=len(content))
        handler.wfile.flush()
        begun.set()
        threading.Event().wait()

    server.misbehaviour[name(0)] = [half]
    killed = reader(server, tmp_path, PLENTY, 0)
    begun.wait()
    waiting = reader(server, tmp_path, PLENTY, 0, 1)
    killed.kill()
    assert list(map(ended, (killed, waiting))) == [-signal.SIGKILL, 0]
    assert server.requests[name(0)] == 2
    assert [file.partition("-")[2][:6] for file in files_in(tmp_path)] == ["", "000000", "000001"]
