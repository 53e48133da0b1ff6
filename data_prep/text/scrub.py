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
_LONGEST = 10  # characters of the above
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
    kept = []
    end = 0
    for found in package.PhoneNumberMatcher(text, REGION, package.Leniency.STRICT_GROUPING):
        kept += [text[end : found.start], PHONE]
        end = found.end
    return "".join(kept) + text[end:]


def _address(found: re.Match[str]) -> str:
    if _VERSION.search(found.string[max(0, found.start() - _LONGEST) : found.start()]):
        return found[0]
    try:
        return IP if ip_address(found[0]).is_global else found[0]
    except ValueError:  # a time, a version with a number above 255
        return found[0]


@lru_cache
def phonenumbers() -> Any:
    """Return the package; raise InputError where it is not installed."""
    require("dumps", "phonenumbers", what="--scrub")
    import phonenumbers

    return phonenumbers
