"""Downloaded shards stay within a bound and are safe while any process uses them, whatever is killed or damaged."""

import fcntl
import hashlib
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import BinaryIO
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import PARTIAL
from deepsiam.data_prep.shards import disk_cache
from deepsiam.data_prep.shards.disk_cache import PATIENCE, POLL, Store
from deepsiam.data_prep.shards.manifest import ShardEntry


def content(number: int, size: int) -> bytes:
    return bytes([number]) * size


def entry(number: int, size: int = 100) -> ShardEntry:
    digest = hashlib.sha256(content(number, size)).hexdigest()
    return ShardEntry(f"shard-{number:06d}.tar", 1, 1, 1, 1, bytes=size, sha256=digest)


class Downloads(list[int]):
    """The numbers of the shards that were downloaded."""

    def of(self, number: int, size: int = 100) -> Callable[[BinaryIO], None]:
        def fill(file: BinaryIO) -> None:
            self.append(number)
            file.write(content(number, size))

        return fill


@pytest.fixture
def downloads() -> Downloads:
    return Downloads()


def use(store: Store, downloads: Downloads, number: int, size: int = 100) -> None:
    file = store.hold(entry(number, size), downloads.of(number, size))
    assert file is not None
    assert store.path(entry(number, size)).read_bytes() == content(number, size)
    store.let_go(file)


def size_of(store: Store) -> int:
    return sum(path.stat().st_size for path in store.directory.glob("shard-*"))


def numbers_in(store: Store) -> list[int]:
    return sorted(int(path.name[6:12]) for path in store.directory.glob("shard-*.tar"))


def test_a_shard_is_downloaded_once_and_named_by_its_content(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path / "cache", 1000)
    use(store, downloads, 1)
    use(store, downloads, 1)
    use(Store(tmp_path / "cache", 1000), downloads, 1)
    assert downloads == [1]
    assert sorted(path.name for path in store.directory.iterdir()) == [".lock", store.path(entry(1)).name]
    assert store.path(entry(1)).name == f"shard-000001-{entry(1).sha256}.tar"


def test_the_least_recently_used_goes_first(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path, 300)
    for number in (1, 2, 3, 1, 4):
        use(store, downloads, number)
    assert numbers_in(store) == [1, 3, 4]
    use(store, downloads, 5, size=200)
    assert numbers_in(store) == [4, 5]


def test_a_shard_in_use_stays_and_its_last_use_counts(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path, 300)
    use(store, downloads, 1)
    held = store.hold(entry(1), downloads.of(1))  # this time the shard is already there
    assert held is not None
    for number in (2, 3, 4, 5):
        use(store, downloads, number)
    assert numbers_in(store) == [1, 4, 5]
    store.let_go(held)
    use(store, downloads, 6)
    assert numbers_in(store) == [1, 5, 6]


@given(
    st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=25),
    st.lists(st.integers(1, 60), min_size=8, max_size=8),
    st.integers(60, 200),
)
def test_the_bound_holds_whatever_is_used(actions: list[tuple[int, bool]], sizes: list[int], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), limit, sleep=lambda seconds: None)
        held: dict[int, BinaryIO] = {}

        def fill(number: int, file: BinaryIO) -> None:
            assert size_of(store) <= limit
            file.write(content(number, sizes[number]))

        for number, keep in actions:
            if number in held:
                store.let_go(held.pop(number))
                continue
            in_use = sum(sizes[n] for n in held)
            try:
                file = store.hold(entry(number, sizes[number]), lambda file, number=number: fill(number, file))
            except InputError:
                assert in_use + sizes[number] > limit
                continue
            assert file is not None
            assert size_of(store) <= limit
            held[number] = file
            for kept in held:
                assert store.path(entry(kept, sizes[kept])).read_bytes() == content(kept, sizes[kept])
            if not keep:
                store.let_go(held.pop(number))
        for file in held.values():
            store.let_go(file)


def test_too_small_a_bound_for_the_shards_in_use_reports_the_bytes_needed(tmp_path: Path, downloads: Downloads) -> None:
    pauses: list[float] = []
    store = Store(tmp_path, 250, pauses.append)
    files = [store.hold(entry(number), downloads.of(number)) for number in (1, 2)]
    with pytest.raises(InputError, match=r"data.cache_bytes: 250 bytes cannot hold .* at once; set at least 300"):
        store.hold(entry(3), downloads.of(3))
    assert pauses == [POLL] * PATIENCE
    assert store.hold(entry(3), downloads.of(3), wait=False) is None
    assert numbers_in(store) == [1, 2]
    assert not list(tmp_path.glob(f"*{PARTIAL}"))
    store.let_go(files[0])
    use(store, downloads, 3)


def test_a_shard_that_two_use_stays_until_both_let_it_go(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path, 100)
    first, second = (store.hold(entry(1), downloads.of(1)) for _ in range(2))
    for file in (first, second):
        assert file is not None
        assert store.hold(entry(2), downloads.of(2), wait=False) is None
        store.let_go(file)
    use(store, downloads, 2)


def test_no_shard_is_removed_if_removing_all_is_not_enough(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path, 300, lambda seconds: None)
    use(store, downloads, 1)
    held = store.hold(entry(2), downloads.of(2))
    with pytest.raises(InputError, match="set at least 350"):
        store.hold(entry(3, 250), downloads.of(3, 250))
    assert numbers_in(store) == [1, 2]
    store.let_go(held)


def test_a_running_download_is_waited_for(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path, 150)
    begun, go_on = threading.Event(), threading.Event()

    def slowly(file: BinaryIO) -> None:
        begun.set()
        go_on.wait()
        file.write(content(1, 100))

    other = threading.Thread(target=lambda: store.let_go(store.hold(entry(1), slowly)))
    other.start()
    begun.wait()
    assert store.hold(entry(1), downloads.of(1), wait=False) is None
    assert store.hold(entry(2), downloads.of(2), wait=False) is None
    looks = 0

    def wait(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 2 * PATIENCE:  # it waits for a running download, however long it takes
            go_on.set()
            other.join()

    use(Store(tmp_path, 150, wait), downloads, 2)
    assert numbers_in(store) == [2]
    assert looks == 2 * PATIENCE + 1


def test_a_full_disk_leaves_no_file(
    tmp_path: Path, downloads: Downloads, disk_full_after: Callable[[int], None]
) -> None:
    disk_full_after(0)
    with pytest.raises(InputError, match=r"\.tar: cannot keep in the cache: No space left on device"):
        Store(tmp_path, 1000).hold(entry(1), downloads.of(1))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_damaged_file_is_downloaded_again(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path, 1000)
    use(store, downloads, 1)
    path = store.path(entry(1))
    for damaged in (b"", content(2, 100), content(1, 99)):
        path.write_bytes(damaged)
        use(store, downloads, 1)
    assert downloads == [1] * 4


def test_a_file_found_is_hashed_once(tmp_path: Path, downloads: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    hashing = Mock(side_effect=disk_cache.sha256_of)
    monkeypatch.setattr(disk_cache, "sha256_of", hashing)
    use(Store(tmp_path, 1000), downloads, 1)
    assert hashing.call_count == 0  # it was hashed when it was downloaded
    reopened = Store(tmp_path, 1000)
    use(reopened, downloads, 1)
    use(reopened, downloads, 1)
    assert hashing.call_count == 1


def test_files_of_others_in_the_folder_are_neither_counted_nor_removed(tmp_path: Path, downloads: Downloads) -> None:
    others = [tmp_path / name for name in ("shard-000001.tar", "notes.txt", f"x{PARTIAL}")]
    for path in others:
        path.write_bytes(bytes(1000))
    use(Store(tmp_path, 100), downloads, 1)
    use(Store(tmp_path, 100), downloads, 2)
    assert all(path.exists() for path in others)


def test_the_partial_download_of_a_dead_process_is_removed(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path, 250)
    for number in (8, 9):
        path = store.path(entry(number))
        path.with_name(path.name + PARTIAL).write_bytes(bytes(100))
    use(store, downloads, 9)
    use(store, downloads, 1)
    assert sorted(path.name[:12] for path in tmp_path.glob("shard*")) == ["shard-000001", "shard-000009"]


@pytest.mark.parametrize("temporary", ["", PARTIAL])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_links_are_left(
    tmp_path: Path, downloads: Downloads, temporary: str, link: Callable[[Path, Path], None]
) -> None:
    precious, path = tmp_path / "precious", Store(tmp_path, 100).path(entry(1))
    precious.write_bytes(b"precious")
    (tmp_path / "cache").mkdir()
    store = Store(tmp_path / "cache", 100)
    link(store.directory / (path.name + temporary), precious)
    link(store.directory / (store.path(entry(2)).name + temporary), precious)
    use(store, downloads, 1)
    assert precious.read_bytes() == b"precious"
    assert not store.path(entry(1)).is_symlink()
    assert store.path(entry(1)).read_bytes() == content(1, 100)


def hold_and_sleep(store: Store, number: int, begun: Event, finish: bool) -> None:
    def fill(file: BinaryIO) -> None:
        if not finish:
            begun.set()
            signal.pause()
        file.write(content(number, 100))

    file = store.hold(entry(number), fill)
    begun.set()
    signal.pause()
    assert file is not None


@pytest.mark.slow
@pytest.mark.parametrize("finish", [True, False], ids=["in use", "downloading"])
def test_a_processs_shards_are_safe_until_it_is_killed(tmp_path: Path, downloads: Downloads, finish: bool) -> None:
    context = multiprocessing.get_context("fork")
    store = Store(tmp_path, 100, lambda seconds: None)
    begun = context.Event()
    process = context.Process(target=hold_and_sleep, args=(store, 1, begun, finish))
    process.start()
    begun.wait()
    assert store.hold(entry(2), downloads.of(2), wait=False) is None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    use(store, downloads, 2)
    assert numbers_in(store) == [2]
    assert size_of(store) == 100


def test_a_fork_does_not_keep_a_shard_that_its_parent_released(tmp_path: Path, downloads: Downloads) -> None:
    store = Store(tmp_path, 100)
    file = store.hold(entry(1), downloads.of(1))
    assert file is not None
    child = os.dup(file.fileno())  # as a fork inherits it
    store.let_go(file)
    use(store, downloads, 2)
    assert numbers_in(store) == [2]
    fcntl.flock(child, fcntl.LOCK_UN)
    os.close(child)
