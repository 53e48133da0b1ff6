"""Reading what lies at a URL: the schemes that are allowed, what a failure means, and when to try again.

Each try runs an event loop of its own and ends with it: nothing is left that a later fork could inherit.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import fsspec

from data_prep.errors import InputError

SCHEMES = ("file", "http", "https", "s3")
BLOCK = 1 << 20  # bytes in memory at a time
SILENCE = 60.0  # seconds without a byte after which an http server counts as gone
PAUSES = (1.0, 2.0, 4.0, 8.0, 8.0)  # seconds before the second try, the third, ...
NOT_FOR_GOOD = (408, 425, 429)  # the statuses of 4xx that say: later

Result = TypeVar("Result")


class TransferError(Exception):
    """A try at reading a URL failed; `final` where every other try would end the same way."""

    def __init__(self, reason: str, final: bool = False):
        super().__init__(reason)
        self.final = final


def is_remote(location: str) -> bool:
    """Whether a location is a URL; without a scheme it is a local path.

    Raises:
        InputError: a URL of another scheme than `SCHEMES`, a chain of URLs, or one that cannot name a folder.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", location)
    if not scheme:
        return False
    chained = "::" in re.sub(r"\[[^]]*\]", "", location)  # an IPv6 host is no chain
    if scheme[1] not in SCHEMES or chained or not location.startswith(f"{scheme[1]}://"):
        allowed = ", ".join(f"{name}://" for name in SCHEMES)
        raise InputError(f"{without_password(location)}: not an address shards are read from; use a path or {allowed}")
    if re.search(r"[?#]", location):
        raise InputError(f"{without_password(location)}: has a ? or #; name the folder of the shards alone")
    return True


def without_password(url: str) -> str:
    """The URL as it may be printed."""
    return re.sub(r"//[^/@]*@", "//", url)


def read(url: str, limit: int, receive: Callable[[bytes], None]) -> None:
    """One try: passes the bytes at `url` on in order, in blocks, and stops with the first beyond `limit`.

    Raises:
        TransferError: the try failed, with the reason.
        InputError: the package that speaks this scheme is not installed.
    """
    received = 0

    def count(block: bytes) -> None:
        nonlocal received
        received += len(block)
        if received > limit:
            raise TransferError(f"sends more than the {limit} bytes it should")
        receive(block)

    scheme = urlsplit(url).scheme
    try:
        if scheme == "file":
            _read_file(url, count)
        else:
            asyncio.run(_read_stream(scheme, url, limit, count))
    except (TransferError, InputError):
        raise
    except ImportError as error:
        missing = f"{scheme}:// needs a package that is not installed"
        raise InputError(f"{missing}; run: pip install 'deepsiam[remote]'") from error
    except Exception as error:  # every file system of fsspec has exceptions of its own
        raise _transfer_error(error) from error


def keep_trying(url: str, attempt: Callable[[], Result], sleep: Callable[[float], None]) -> Result:
    """What `attempt` returns; after a TransferError it is called again, up to 6 times, with growing pauses.

    Raises:
        InputError: the last try failed, or one for good; with URL, reason and number of tries.
    """
    tries = len(PAUSES) + 1
    for number, pause in enumerate((*PAUSES, None), 1):
        try:
            return attempt()
        except TransferError as error:
            if error.final or pause is None:
                raise InputError(
                    f"{without_password(url)}: {error} (tried {number} {'time' if number == 1 else 'times'}); "
                    "put it right there, or check the address and the network, and start again"
                ) from error
            then = f"try {number + 1} of {tries} in {pause:g} s"
            print(f"{without_password(url)}: {error}; {then}", file=sys.stderr, flush=True)
            sleep(pause)
    raise AssertionError("the last try returns or raises")


def _read_file(url: str, receive: Callable[[bytes], None]) -> None:
    with fsspec.filesystem("file").open(url, "rb") as file:
        while block := file.read(BLOCK):
            receive(block)


async def _read_stream(scheme: str, url: str, limit: int, receive: Callable[[bytes], None]) -> None:
    options = {} if scheme == "s3" else _http_options()
    system = fsspec.filesystem(scheme, asynchronous=True, skip_instance_cache=True, **options)
    session = await system.set_session()
    try:
        stream = await system.open_async(url, "rb", size=limit)  # a size, so that it asks for none
        try:
            while block := await stream.read(BLOCK):
                receive(block)
        finally:
            await stream.close()
    finally:
        await session.close()


def _http_options() -> dict[str, object]:
    import aiohttp

    client = {
        # by default aiohttp gives up after five minutes in all, which a large shard may take
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE),
        "headers": {"Accept-Encoding": "identity"},
        "auto_decompress": False,  # no bomb is inflated
        "trust_env": True,  # proxies are heeded
    }
    return {"client_kwargs": client}


def _transfer_error(error: Exception) -> TransferError:
    status = getattr(error, "status", None)  # of an http response
    if isinstance(status, int) and status:
        return TransferError(f"HTTP status {status}", final=400 <= status < 500 and status not in NOT_FOR_GOOD)
    if isinstance(error, FileNotFoundError):
        return TransferError("not found", final=True)
    reason = " ".join(str(error).split()) or type(error).__name__
    return TransferError(reason, final=isinstance(error, PermissionError | IsADirectoryError | NotADirectoryError))
