"""Replace personal data: e-mail addresses, phone numbers and public IP addresses."""

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from deepsiam.data_prep.common.extras import require

EMAIL, PHONE, IP = "[e-mail address]", "[phone number]", "[IP address]"
REGION = "US"  # assumed for phone numbers without a country code

# without the first condition, a long word takes quadratic time
_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
_IP = re.compile(r"(?<![\w.:-])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w:-]|\.\d)")
_VERSION = re.compile(r"(?:\bv|version|release|build|kernel|firmware|driver)[.:]? ?$", re.IGNORECASE)
_PREFIX_LENGTH = 10  # characters of the above
# candidates for phone numbers: the exact search is slow
_DIGITS = re.compile(r"\d(?:[\s()./–-]{0,3}\d){6,}")


def scrub(text: str) -> str:
    """Return a text with `EMAIL`, `PHONE` and `IP` in place of what they name.

    Phone numbers are those that phonenumbers finds valid and grouped as they are written, in international form or in
    that of `REGION`. Four numbers after a word like "version" are not an address.
    """
    text = _IP.sub(_address, _EMAIL.sub(EMAIL, text))
    if not _DIGITS.search(text):
        return text
    package = phonenumbers()
    parts = []
    end = 0
    for match in package.PhoneNumberMatcher(text, REGION, package.Leniency.STRICT_GROUPING):
        parts += [text[end : match.start], PHONE]
        end = match.end
    return "".join(parts) + text[end:]


def _address(match: re.Match[str]) -> str:
    if _VERSION.search(match.string[max(0, match.start() - _PREFIX_LENGTH) : match.start()]):
        return match[0]
    try:
        return IP if ip_address(match[0]).is_global else match[0]
    except ValueError:  # a time, a version with a number above 255
        return match[0]


@lru_cache
def phonenumbers() -> Any:
    """Return the package; raise InputError where it is not installed."""
    require("dumps", "phonenumbers", feature="--scrub")
    import phonenumbers

    return phonenumbers
