"""A remote folder of shards, read through a bounded local cache."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from deepsiam.data_prep.common import urls
from deepsiam.data_prep.common.errors import CacheError, InputError
from deepsiam.data_prep.common.files import LARGEST_JSON, PARTIAL, make_directory, os_errors_as_input_errors, whole_file
from deepsiam.data_prep.common.urls import TransferError
from deepsiam.data_prep.shards import manifest
from deepsiam.data_prep.shards.disk_cache import Store
from deepsiam.data_prep.shards.manifest import Manifest, ShardEntry
from deepsiam.data_prep.shards.reader import Shard

SMALL_FILES = ("tokenizer.json", manifest.NAME)  # besides the shards


class _Process:
    """State of one process; a forked or unpickled cache begins with an empty one."""

    def __init__(self) -> None:
        self.number = os.getpid()
        self.held: dict[int, tuple[BinaryIO, Shard]] = {}
        self.ahead: dict[int, Future[None]] = {}
        self.queue: SimpleQueue[tuple[int, Future[None]] | None] = SimpleQueue()
        self.thread: threading.Thread | None = None


class Cache:
    """The shards of the folder at `url`, each downloaded to `directory` when it is opened.

    All caches of a directory, in any process of the host, share its `limit` of bytes and its downloads; see
    disk_cache.py. The manifest and tokenizer of every URL come on top: 64 MiB at most, twice while new ones replace
    old ones. An open shard is never removed. Use a cache in one thread at a time; it may be forked or pickled.
    """

    def __init__(self, url: str, directory: Path, limit: int, sleep: Callable[[float], None] = time.sleep):
        if not urls.is_remote(url):
            raise InputError(f"{url}: a local path, which needs no cache")
        urls.require_no_query(url)
        self.url, self.sleep = url.rstrip("/"), sleep
        self.store = Store(directory, limit, sleep)
        self._process = _Process()

    @cached_property
    def manifest(self) -> Manifest:
        """The current manifest at the URL, copied to the cache with its tokenizer.json."""
        contents = {name: self._download_small(name, LARGEST_JSON) for name in SMALL_FILES}
        folder = self.store.directory / hashlib.sha256(self.url.encode()).hexdigest()[:32]
        draft = folder.with_name(folder.name + PARTIAL)
        with self.store.locked():
            for directory in (draft, folder):
                make_directory(directory)
            for name, content in contents.items():
                with whole_file(draft / name) as file:
                    file.write(content)
            try:
                manifest = Manifest.load(draft)
            except InputError as error:
                raise InputError(f"{urls.without_secrets(self.url)}: {error}") from error
            with os_errors_as_input_errors(folder, "write"):
                for name in contents:
                    os.replace(draft / name, folder / name)
        self._check_room(manifest)
        return replace(manifest, directory=folder)

    def open(self, index: int) -> Shard:
        """Return shard `index`, downloaded if missing, verified, and kept until it is released."""
        process = self._mine()
        if index not in process.held:
            pending = process.ahead.pop(index, None)
            if pending is not None and not pending.cancel():
                pending.result()
            entry = self.manifest.shards[index]
            file = self._hold(entry)
            assert file is not None  # only None without `wait`
            try:
                process.held[index] = file, Shard.of_verified_file(self.manifest, entry, self.store.path(entry))
            except BaseException:
                self.store.let_go(file)
                raise
        return process.held[index][1]

    def release(self, index: int) -> None:
        """Close an open shard; from now on it may be removed."""
        file, _ = self._mine().held.pop(index)
        self.store.let_go(file)

    def fetch_ahead(self, indices: Iterable[int]) -> None:
        """Download shards in the background, one after the other, each if it fits the cache then.

        Shards that are not open may be removed for them. A failed download is reported when its shard is opened.
        """
        process = self._mine()
        for index in indices:
            if index not in process.held and (index not in process.ahead or process.ahead[index].done()):
                process.ahead[index] = Future()
                process.queue.put((index, process.ahead[index]))
        if process.thread is None:
            process.thread = threading.Thread(target=self._fetch, args=(process.queue,), daemon=True)
            process.thread.start()

    def close(self) -> None:
        """Release every open shard and start no more downloads; a running one is finished."""
        process = self._mine()
        for pending in process.ahead.values():
            pending.cancel()
        process.queue.put(None)
        for index in list(process.held):
            self.release(index)
        self._process = _Process()

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the state of this process."""
        return {name: value for name, value in vars(self).items() if name != "_process"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the same cache in another process."""
        vars(self).update(state, _process=_Process())

    def _mine(self) -> _Process:
        if self._process.number != os.getpid():  # forked: open files and their locks are the parent's
            for file, _ in self._process.held.values():
                file.close()
            self._process = _Process()
        return self._process

    def _fetch(self, queue: SimpleQueue[tuple[int, Future[None]] | None]) -> None:
        while (item := queue.get()) is not None:
            index, pending = item
            if not pending.set_running_or_notify_cancel():
                continue  # opened before its turn came
            try:
                file = self._hold(self.manifest.shards[index], wait=False)
                if file is not None:
                    self.store.let_go(file)
                pending.set_result(None)
            except Exception as error:
                pending.set_exception(error)

    def _hold(self, entry: ShardEntry, wait: bool = True) -> BinaryIO | None:
        return self.store.hold(entry, lambda file: self._download(entry, file), wait)

    def _download(self, entry: ShardEntry, file: BinaryIO) -> None:
        """Write the shard from the file's start; raise InputError if what the manifest lists cannot be downloaded."""
        url = f"{self.url}/{entry.name}"

        def attempt() -> None:
            digest, received = hashlib.sha256(), 0
            file.seek(0)

            def receive(block: bytes) -> None:
                nonlocal received
                received += len(block)
                digest.update(block)
                with os_errors_as_input_errors(self.store.path(entry), "write", CacheError):
                    file.write(block)

            urls.read(url, entry.bytes, receive)
            if received != entry.bytes:
                raise TransferError(f"ended after {received} bytes, the manifest lists {entry.bytes}")
            if digest.hexdigest() != entry.sha256:
                raise TransferError("its SHA-256 is not the one in the manifest")

        urls.keep_trying(url, attempt, self.sleep)

    def _download_small(self, name: str, limit: int) -> bytes:
        url = f"{self.url}/{name}"

        def attempt() -> bytes:
            content = bytearray()
            urls.read(url, limit, content.extend)
            return bytes(content)

        return urls.keep_trying(url, attempt, self.sleep)

    def _check_room(self, listed: Manifest) -> None:
        """Raise InputError where the largest shard alone exceeds the cache's limit."""
        largest_bytes = max((entry.bytes for entry in listed.shards), default=0)
        if largest_bytes > self.store.limit:
            raise InputError(
                f"data.cache_bytes: {self.store.limit} bytes cannot hold the largest shard of "
                f"{urls.without_secrets(self.url)}; set at least {largest_bytes}, and more for every lane"
            )
