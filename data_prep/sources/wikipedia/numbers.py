"""Numbers as Wikipedia writes them: grouped by commas, with powers of ten, rounded as {{convert}} rounds."""

import re
from decimal import ROUND_HALF_UP, Context, Decimal

LONGEST = 40  # characters of a number that is read
LARGEST = 1e100
AFTER_DIGIT = "<fraction>"  # a tag that becomes a blank after a digit: 1{{frac|1|2}} is 1 1/2

_PLAIN = re.compile(r"([-+−–]?)(\d+)?(\.\d+)?")
_FRACTION = re.compile(r"(?:(\d+)(?:\+|\s))?(\d+)//?(\d+)")
_POWER = re.compile(r"([-+−–]?[\d.,]+)[eE]([-+−]?\d{1,3})")
_WRITTEN_OUT = 1e15  # from here on a rounded number has a power of ten
_EXACT = Context(prec=2 * LONGEST)
_MINUS = str.maketrans("−–", "--")


def value_of(text: str) -> float | None:
    """Return the value of `-1,200.5`, `1e6`, `3/4` or `1+3/4`; None if the text is no number."""
    text = _plus_fraction(text).replace(",", "").translate(_MINUS)
    if len(text) > LONGEST:
        return None
    if fraction := _FRACTION.fullmatch(text.lstrip("-")):
        whole, over, under = fraction.groups("0")
        value = int(whole) + int(over) / int(under) if int(under) else None
        return -value if value is not None and text.startswith("-") else value
    if not text.isascii() or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < LARGEST else None


def _plus_fraction(number: str) -> str:
    return number.replace(AFTER_DIGIT, "+").strip(" +") if AFTER_DIGIT in number else number.strip()


def grouped(number: str, least: int = 4) -> str:
    """Return a plain number with commas in its whole part, if this has `least` digits; other text unchanged."""
    found = _PLAIN.fullmatch(number)
    if not found or len(found[2] or "") < least:
        return number
    whole = found[2]
    first = len(whole) % 3
    groups = [whole[:first]] * bool(first) + [whole[at : at + 3] for at in range(first, len(whole), 3)]
    return f"{found[1]}{','.join(groups)}{found[3] or ''}"


def shown(number: str, least: int = 4) -> str:
    """Return a number as a quantity shows it: `-12000` is −12,000, `1e6` is 1×10^6, `1+3/4` is 1 3/4."""
    number = _plus_fraction(number)
    if power := _POWER.fullmatch(number):
        return f"{shown(power[1], least)}{ten_to(power[2])}"
    if fraction := _FRACTION.fullmatch(number):
        return f"{fraction[1]} {fraction[2]}/{fraction[3]}" if fraction[1] else f"{fraction[2]}/{fraction[3]}"
    return with_minus(grouped(number.replace(",", ""), least) if value_of(number) is not None else number)


def ten_to(exponent: str) -> str:
    """Return `×10` to a power."""
    return f"×10<sup>{with_minus(exponent)}</sup>"


def with_minus(number: str) -> str:
    """Return a number whose sign, if it is a hyphen, is a minus sign."""
    return f"−{number[1:]}" if number[:1] == "-" else number


def decimals(number: str) -> int:
    """Return how many decimals a number is given with; for a whole number, minus its zeros at the end."""
    number = number.strip().replace(",", "")
    if power := _POWER.fullmatch(number):
        return decimals(power[1]) - int(power[2].translate(_MINUS))
    whole, point, part = number.partition(".")
    if point:
        return len(part)
    digits = whole.lstrip("-+−–")
    return 0 if not digits.strip("0") else len(digits.rstrip("0")) - len(digits)


def rounded(value: float, places: int) -> str:
    """Return a value rounded to `places` decimals (negative: to tens, hundreds …), grouped by commas."""
    if abs(value) >= _WRITTEN_OUT:
        mantissa, _, exponent = f"{value:.2g}".partition("e+")
        return f"{with_minus(mantissa)}{ten_to(exponent)}"
    places = max(min(places, LONGEST // 2), -LONGEST // 2)
    text = f"{Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _EXACT):f}"
    return with_minus(grouped(text)) if text.strip("-0.") else text.lstrip("-")
