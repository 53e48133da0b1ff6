"""Downloaded shards stay within a bound and are safe while any process uses them, whatever is killed or damaged."""

import fcntl
import hashlib
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import PARTIAL
from deepsiam.data_prep.shards import disk_cache
from deepsiam.data_prep.shards.disk_cache import PATIENCE, POLL
from deepsiam.data_prep.shards.manifest import ShardEntry


def content(number: int, size: int = 100) -> bytes:
    return bytes([number]) * size


def entry(number: int, size: int = 100) -> ShardEntry:
    digest = hashlib.sha256(content(number, size)).hexdigest()
    return ShardEntry(f"shard-{number:06d}.tar", 1, 1, 1, 1, bytes=size, sha256=digest)


class Store(disk_cache.Store):
    """A store of made-up shards, of 100 bytes each; `downloaded` has their numbers."""

    def __init__(self, folder: Path, limit: int, sleep: Callable[[float], None] = lambda seconds: None) -> None:
        super().__init__(folder, limit, sleep)
        self.downloaded: list[int] = []

    def get(self, number: int, size: int = 100, wait: bool = True) -> BinaryIO | None:
        def fill(file: BinaryIO) -> None:
            assert self.bytes <= self.limit
            self.downloaded.append(number)
            file.write(content(number, size))

        return self.hold(entry(number, size), fill, wait)

    @contextmanager
    def using(self, number: int, size: int = 100) -> Iterator[None]:
        file = self.get(number, size)
        assert file is not None
        assert self.bytes <= self.limit
        yield
        assert self.path(entry(number, size)).read_bytes() == content(number, size)
        self.let_go(file)

    def use(self, *numbers: int, size: int = 100) -> None:
        for number in numbers:
            with self.using(number, size):
                pass

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.directory.glob("shard-*-*") if not path.is_symlink())

    @property
    def numbers(self) -> list[int]:
        return sorted(int(path.name[6:12]) for path in self.directory.glob("shard-*-*.tar"))


def test_a_shard_is_downloaded_once_and_named_by_its_content(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "cache", 1000), Store(tmp_path / "cache", 1000)
    store.use(1, 1)
    other.use(1)
    assert (store.downloaded, other.downloaded) == ([1], [])
    assert sorted(path.name for path in store.directory.iterdir()) == [".lock", store.path(entry(1)).name]
    assert store.path(entry(1)).name == f"shard-000001-{entry(1).sha256}.tar"


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, 300)
    store.use(1, 2, 3, 1, 4)
    assert store.numbers == [1, 3, 4]
    store.use(5, size=200)
    assert store.numbers == [4, 5]


def test_a_shard_in_use_stays_and_its_last_use_counts(tmp_path: Path) -> None:
    store = Store(tmp_path, 300)
    store.use(1)
    with store.using(1):  # this time the shard is already there
        store.use(2, 3, 4, 5)
        assert store.numbers == [1, 4, 5]
    store.use(6)
    assert store.numbers == [1, 5, 6]


@given(
    st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=25),
    st.lists(st.integers(1, 60), min_size=8, max_size=8),
    st.integers(60, 200),
)
def test_the_bound_holds_whatever_is_used(actions: list[tuple[int, bool]], sizes: list[int], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), limit)
        held: dict[int, BinaryIO] = {}
        for number, keep in actions:
            if number in held:
                store.let_go(held.pop(number))
                continue
            in_use = sum(sizes[n] for n in held)
            try:
                file = store.get(number, sizes[number])
            except InputError:
                assert in_use + sizes[number] > limit
                continue
            assert file is not None
            assert store.bytes <= limit
            held[number] = file
            for kept in held:
                assert store.path(entry(kept, sizes[kept])).read_bytes() == content(kept, sizes[kept])
            if not keep:
                store.let_go(held.pop(number))
        for file in held.values():
            store.let_go(file)


def test_too_small_a_bound_for_the_shards_in_use_reports_the_bytes_needed(tmp_path: Path) -> None:
    pauses: list[float] = []
    store = Store(tmp_path, 250, pauses.append)
    with store.using(2):
        with store.using(1):
            with pytest.raises(
                InputError, match=r"data.cache_bytes: 250 bytes cannot hold .* at once; set at least 300"
            ):
                store.get(3)
            assert pauses == [POLL] * PATIENCE
            assert store.get(3, wait=False) is None
            assert store.numbers == [1, 2]
            assert not list(tmp_path.glob(f"*{PARTIAL}"))
        store.use(3)


def test_a_shard_that_two_use_stays_until_both_let_it_go(tmp_path: Path) -> None:
    store = Store(tmp_path, 100)
    with store.using(1):
        with store.using(1):
            assert store.get(2, wait=False) is None
        assert store.get(2, wait=False) is None
    store.use(2)


def test_no_shard_is_removed_if_removing_all_is_not_enough(tmp_path: Path) -> None:
    store = Store(tmp_path, 300)
    store.use(1)
    with store.using(2):
        with pytest.raises(InputError, match="set at least 350"):
            store.get(3, 250)
        assert store.numbers == [1, 2]


def test_a_running_download_is_waited_for(tmp_path: Path) -> None:
    store = Store(tmp_path, 150)
    begun, go_on = threading.Event(), threading.Event()

    def slowly(file: BinaryIO) -> None:
        begun.set()
        go_on.wait()
        file.write(content(1))

    other = threading.Thread(target=lambda: store.let_go(store.hold(entry(1), slowly)))
    other.start()
    begun.wait()
    assert store.get(1, wait=False) is store.get(2, wait=False) is None
    looks = 0

    def wait(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 2 * PATIENCE:  # it waits for a running download, however long it takes
            go_on.set()
            other.join()

    Store(tmp_path, 150, wait).use(2)
    assert store.numbers == [2]
    assert looks == 2 * PATIENCE + 1


def test_a_full_disk_leaves_no_file(tmp_path: Path, disk_full_after: Callable[[int], None]) -> None:
    disk_full_after(0)
    with pytest.raises(InputError, match=r"\.tar: cannot keep in the cache: No space left on device"):
        Store(tmp_path, 1000).get(1)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_damaged_file_is_downloaded_again(tmp_path: Path) -> None:
    store = Store(tmp_path, 1000)
    store.use(1)
    for damaged in (b"", content(2), content(1, 99)):
        store.path(entry(1)).write_bytes(damaged)
        store.use(1)
    assert store.downloaded == [1] * 4


def test_a_file_found_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashing = Mock(side_effect=disk_cache.sha256_of)
    monkeypatch.setattr(disk_cache, "sha256_of", hashing)
    Store(tmp_path, 1000).use(1)
    assert hashing.call_count == 0  # it was hashed when it was downloaded
    Store(tmp_path, 1000).use(1, 1)
    assert hashing.call_count == 1


def test_files_of_others_in_the_folder_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("shard-000001.tar", "notes.txt", f"x{PARTIAL}")]
    for path in others:
        path.write_bytes(bytes(1000))
    Store(tmp_path, 100).use(1, 2)
    assert all(path.exists() for path in others)


def test_the_partial_download_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    store = Store(tmp_path, 250)
    for number in (8, 9):
        path = store.path(entry(number))
        path.with_name(path.name + PARTIAL).write_bytes(bytes(100))
    store.use(9, 1)
    assert sorted(path.name[:12] for path in tmp_path.glob("shard*")) == ["shard-000001", "shard-000009"]


@pytest.mark.parametrize("temporary", ["", PARTIAL])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_links_are_left(tmp_path: Path, temporary: str, link: Callable[[Path, Path], None]) -> None:
    precious, store = tmp_path / "precious", Store(tmp_path / "cache", 100)
    precious.write_bytes(b"precious")
    for number in (1, 2):
        link(store.directory / (store.path(entry(number)).name + temporary), precious)
    store.use(1)
    assert precious.read_bytes() == b"precious"
    assert not store.path(entry(1)).is_symlink()
    assert store.path(entry(1)).read_bytes() == content(1)


@pytest.mark.slow
@pytest.mark.parametrize("finish", [True, False], ids=["in use", "downloading"])
def test_a_processs_shards_are_safe_until_it_is_killed(tmp_path: Path, finish: bool) -> None:
    context = multiprocessing.get_context("fork")
    store, begun = Store(tmp_path, 100), context.Event()

    def fill(file: BinaryIO) -> None:
        file.write(content(1))
        if not finish:
            pause()

    def pause() -> None:
        begun.set()
        signal.pause()

    def use() -> None:
        _file = store.hold(entry(1), fill)
        pause()

    process = context.Process(target=use)
    process.start()
    begun.wait()
    assert store.get(2, wait=False) is None
    process.kill()
    process.join()
    store.use(2)
    assert (store.numbers, store.bytes) == ([2], 100)


def test_a_fork_does_not_keep_a_shard_that_its_parent_released(tmp_path: Path) -> None:
    store = Store(tmp_path, 100)
    file = store.get(1)
    assert file is not None
    child = os.dup(file.fileno())  # as a fork inherits it
    store.let_go(file)
    store.use(2)
    assert store.numbers == [2]
    fcntl.flock(child, fcntl.LOCK_UN)
    os.close(child)
