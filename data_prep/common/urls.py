"""Read from URLs: which schemes are allowed, what a failure means, and when to retry.

Each attempt runs its own event loop and closes it: a later fork inherits neither a loop nor a connection. fsspec and
asyncio are imported where they are used: only addresses need them, and every command would start .2 s later.
"""

import re
import sys
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.extras import require

SCHEMES = ("file", "http", "https", "s3")
PACKAGES = {"http": "aiohttp", "https": "aiohttp", "s3": "s3fs"}  # the package that fsspec needs for each scheme
BLOCK = 1 << 20  # bytes in memory at a time
SILENCE = 60.0  # seconds without a byte after which a read fails
PAUSES = (1.0, 2.0, 4.0, 8.0, 8.0)  # seconds before the second try, the third, ...
TEMPORARY = (408, 425, 429)  # the 4xx statuses that mean "try again later"
# the parameters of an address that S3, Google, Azure and CloudFront sign for a time
_SIGNATURE = re.compile(
    "x-(amz|goog)-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|token"
    "|sv|sr|st|se|sp|sig|spr|sip|ss|srt|skoid|sktid|skt|ske|sks|skv",
    re.IGNORECASE,
)

Result = TypeVar("Result")


class TransferError(Exception):
    """An attempt to read a URL failed; `final`: every retry would fail too."""

    def __init__(self, reason: str, final: bool = False):
        super().__init__(reason)
        self.final = final


def is_remote(location: str) -> bool:
    """Return whether a location is a URL; without a scheme it is a local path.

    Raises:
        InputError: a URL with a scheme that is not in SCHEMES, a chain of URLs, or a URL other than of http with a
            query or fragment.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", location)
    if not scheme:
        return False
    chained = "::" in re.sub(r"\[[^][]*\]|[?#].*", "", location)  # an IPv6 host is not a chain
    if scheme[1] not in SCHEMES or chained or not location.startswith(f"{scheme[1]}://"):
        schemes = ", ".join(f"{name}://" for name in SCHEMES)
        raise InputError(
            f"{without_secrets(location)}: not an address of shards; use a path or {schemes}; a path with a colon has "
            "to begin with ./"
        )
    if scheme[1] == "file" and not re.match("file:///[^/]", location):
        raise InputError(f"{location}: an address of a local file has its whole path: write file:///PATH, or the path")
    if scheme[1] not in ("http", "https"):
        require_no_query(location)
    return True


def require_no_query(url: str) -> None:
    """Raise InputError for a URL with a query or fragment, which only a single file that is read by http can have."""
    if re.search(r"[?#]", url):
        raise InputError(
            f"{without_secrets(url)}: has a ? or #, as an address that is signed for one file: name a folder of "
            "shards, or a file of another scheme, by an address without"
        )


def without_secrets(url: str) -> str:
    """Return the URL without user name, password and what stands in its query and fragment, for messages."""
    return re.sub(r"([?#]).*", r"\1…", re.sub(r"//[^/@?#]*@", "//", url), flags=re.DOTALL)


def unsigned(url: str) -> str:
    """Return the URL without fragment, user name, password and signature: the same however often it is signed anew."""
    parts = urlsplit(url)
    query = "&".join(field for field in parts.query.split("&") if not _SIGNATURE.fullmatch(field.partition("=")[0]))
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query, fragment=""))


def read(url: str, limit: int, receive: Callable[[bytes], None]) -> None:
    """Make one attempt to read `url`: pass its bytes to `receive` in order, in blocks of at most BLOCK bytes.

    Raises:
        TransferError: the attempt failed, with the reason, or there are more than `limit` bytes.
        InputError: the package that fsspec needs for this scheme is not installed.
    """
    import asyncio

    import fsspec

    received = 0

    def count(block: bytes) -> None:
        nonlocal received
        received += len(block)
        if received > limit:
            raise TransferError(f"sends more than the {limit} bytes expected")
        receive(block)

    scheme = urlsplit(url).scheme
    if scheme in PACKAGES:
        require("remote", PACKAGES[scheme], feature=f"{scheme}://")
    try:
        if scheme == "file":
            with fsspec.filesystem("file").open(url, "rb") as file:
                while block := file.read(BLOCK):
                    count(block)
        else:
            asyncio.run(_read_stream(scheme, url, limit, count))
    except (TransferError, InputError):
        raise
    except Exception as error:  # each file system of fsspec has its own exceptions
        raise _transfer_error(error) from error


def keep_trying(url: str, attempt: Callable[[], Result], sleep: Callable[[float], None]) -> Result:
    """Return what `attempt` returns; after a TransferError call it again, up to 6 times, with growing pauses.

    Raises:
        InputError: the last attempt, or one with a final error, failed; it names URL, reason and number of attempts.
    """
    tries = len(PAUSES) + 1
    for number, pause in enumerate((*PAUSES, None), 1):
        try:
            return attempt()
        except TransferError as error:
            if error.final or pause is None:
                raise InputError(
                    f"{without_secrets(url)}: {error} (tried {number} {'time' if number == 1 else 'times'}); "
                    "check the address, the network and the server, and start again"
                ) from error
            retry = f"try {number + 1} of {tries} in {pause:g} s"
            print(f"{without_secrets(url)}: {error}; {retry}", file=sys.stderr, flush=True)
            sleep(pause)
    raise AssertionError("the last try returns or raises")


async def _read_stream(scheme: str, url: str, limit: int, receive: Callable[[bytes], None]) -> None:
    import fsspec

    options = {} if scheme == "s3" else {**_http_options(), "encoded": "?" in url}  # a query is sent as it is
    system = fsspec.filesystem(scheme, asynchronous=True, skip_instance_cache=True, **options)
    session = await system.set_session()
    try:
        stream = await system.open_async(url, "rb", size=limit)  # with a size given, fsspec does not request it
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
        # aiohttp's default is five minutes in total, and a large shard may take longer
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE),
        "headers": {"Accept-Encoding": "identity"},
        "auto_decompress": False,  # no decompression bomb
        "trust_env": True,  # uses the proxies of the environment
    }
    return {"client_kwargs": client}


def _transfer_error(error: Exception) -> TransferError:
    status = getattr(error, "status", None)  # of an http response
    if isinstance(status, int) and status:
        return TransferError(f"HTTP status {status}", final=400 <= status < 500 and status not in TEMPORARY)
    if isinstance(error, FileNotFoundError):
        return TransferError("not found", final=True)
    reason = re.sub(r"\?\S*", "?…", " ".join(str(error).split())) or type(error).__name__
    return TransferError(reason, final=isinstance(error, PermissionError | IsADirectoryError | NotADirectoryError))
