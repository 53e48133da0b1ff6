"""The templates of numbers, sums of money, formulas of chemistry, and places on a map."""

import re

from deepsiam.data_prep.sources.wikipedia.arguments import Arguments
from deepsiam.data_prep.sources.wikipedia.numbers import AFTER_DIGIT, grouped, shown, ten_to, value_of, with_minus

_UNIT_POWER = re.compile(r"(?<=[A-Za-zµμΩ°Å])([-−]?\d+)")
_UNIT_NAMES = {"deg": "°", "degC": "°C", "degF": "°F", "um": "μm", "us": "μs", "ohm": "Ω", "Ohm": "Ω", "angstrom": "Å"}
_ATTACHED = ("°", "%", "‰", "′", "″", "'", '"')  # units without a blank before them
_TIGHT = {"°C", "°F"}
_CHARGE = re.compile(r"(\d*)([-+−–])")
_CHARGE_IN_BRACKETS = re.compile(r"\((\d*)([-+−])\)")
_BONDS = {"->": " → ", "<->": " ↔ ", "<=>": " ⇌ ", "*": "·", "−>": " → "}
_BOND = re.compile(r"<=>|<->|->|−>|\*")
_HEMISPHERES = frozenset("NSEW")


def number(arguments: Arguments) -> str | None:
    """Return a number grouped by commas."""
    return shown(arguments.at(0)) or None


def value(arguments: Arguments) -> str | None:
    """Return what {{val}} shows: a number with its uncertainty, its power of ten and its unit."""
    named = arguments.named
    least = 4 if named.get("fmt") == "commas" else 1000
    text, power, end = (
        shown(arguments.at(0), least) if arguments.at(0) else "",
        named.get("e", ""),
        named.get("end", ""),
    )
    if (up := arguments.at(1)) and (down := arguments.at(2)):
        text += f"+{up.lstrip('+')}−{down.lstrip('-−')}"
    elif up.startswith("("):
        text += up
    elif up:
        text += f"±{up}"
    if power:
        if not text:
            text = ten_to(power).removeprefix("×")
        else:
            text = (f"({text})" if up and not up.startswith("(") else text) + ten_to(power)
    text = f"{named.get('p', '')}{text}{named.get('s', '')}{end}"
    unit, per = arguments.given("u", "ul"), arguments.given("up", "upl")
    unit = _unit(unit) + (f"/{_unit(per)}" if per else "")
    if not text.strip():
        return unit or None
    return text + unit if unit.startswith(_ATTACHED) and unit not in _TIGHT else f"{text} {unit}".rstrip()


def _unit(code: str) -> str:
    """Return the unit of a code such as `kg.m2/s2`."""
    parts = re.split(r"([./*])", code)
    shown_parts = [_UNIT_POWER.sub(_power, _UNIT_NAMES.get(part, part)) for part in parts]
    return "".join("⋅" if part in (".", "*") else part for part in shown_parts)


def _power(found: re.Match[str]) -> str:
    return f"<sup>{with_minus(found[1])}</sup>"


def gaps(arguments: Arguments) -> str | None:
    """Return a number of {{gaps}}: its groups of digits joined, as a reader copies them."""
    power = arguments.named.get("e", "")
    unit = _unit(arguments.given("u", "ul"))
    text = "".join(arguments.listed) + (ten_to(power) if power else "")
    return f"{text} {unit}".strip() or None


def scientific(arguments: Arguments) -> str | None:
    """Return a power of ten that stands after a number: `{{e|9}}` is ×10^9."""
    return ten_to(arguments.at(0)) if arguments.at(0) else None


def fraction(arguments: Arguments) -> str | None:
    """Return a fraction: `2` is 1/2, `3|4` is 3/4, `1|3|4` is 1 3/4."""
    match arguments.listed:
        case [whole, over, under, *_]:
            return f"{whole} {over}/{under}"
        case [over, under]:
            return f"{AFTER_DIGIT}{over}/{under}"
        case [under]:
            return f"{AFTER_DIGIT}1/{under}"
    return None


def ordinal(arguments: Arguments) -> str | None:
    """Return 1st, 2nd, 3rd, 4th, 11th ..."""
    digits = arguments.at(0)
    if not digits.isdecimal():
        return None
    last = "th" if digits[-2:-1] == "1" else {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1], "th")
    return grouped(digits) + last


def percentage(arguments: Arguments) -> str | None:
    """Return `1|3` as 33%, with as many decimals as the third argument says."""
    over, under = value_of(arguments.at(0)), value_of(arguments.at(1))
    places = arguments.at(2, "0")
    if over is None or not under or not (places.isdecimal() and len(places) < 3 and int(places) < 20):
        return None
    return f"{with_minus(f'{100 * over / under:.{places}f}')}%"


def height(arguments: Arguments) -> str | None:
    """Return a height as written: `m=1.85` is 1.85 m, `ft=6|in=2` is 6 ft 2 in."""
    given = (f"{arguments.named[unit]} {unit}" for unit in ("m", "cm", "ft", "in") if arguments.named.get(unit))
    return " ".join(given) or None


def duration(arguments: Arguments) -> str | None:
    """Return a time that something takes: `h|m|s` or named so, as 3:07 or 1:02:30."""
    parts = [arguments.named.get(name) or arguments.at(index) for index, name in enumerate("hms")]
    while parts and not parts[0]:
        del parts[0]
    if not parts or not all(part.isdecimal() for part in parts if part):
        return None
    return ":".join([parts[0], *(f"{part:0>2}" for part in parts[1:])])


def money(arguments: Arguments) -> str:
    """Return the number of a sum grouped, with `million` and other words as given; a second one makes a range."""
    amount, _, words = arguments.at(0).partition(" ")
    second = arguments.at(1)
    ranged = f"–{shown(second)}" if value_of(second) is not None else ""
    return f"{shown(amount)}{ranged} {words}".strip()


def compound(arguments: Arguments) -> str | None:
    """Return a formula of {{chem}}: `SO|4|2-` is SO4^2−."""
    parts = []
    for part in arguments.listed:
        charge = _CHARGE.fullmatch(part)
        parts.append(f"<sup>{charge[1]}{with_minus(charge[2])}</sup>" if charge else part)
    return "".join(parts) or None


def formula(arguments: Arguments) -> str | None:
    """Return a formula of {{chem2}}: `SO4(2-)` is SO4^2−, `CuSO4*5H2O` is CuSO4·5H2O."""
    text = _CHARGE_IN_BRACKETS.sub(lambda found: f"<sup>{found[1]}{with_minus(found[2])}</sup>", arguments.at(0))
    text = _BOND.sub(lambda found: _BONDS[found[0]], text)
    return re.sub(r"(?<=[\w)\]])-(?=\s|$)", "−", " ".join(text.split())) or None


def sub_and_sup(arguments: Arguments) -> str | None:
    """Return an index under and over each other: `p=2|b=i`."""
    over, under = arguments.given("p") or arguments.at(0), arguments.given("b") or arguments.at(1)
    text = (f"<sub>{under}</sub>" if under else "") + (f"<sup>{over}</sup>" if over else "")
    return text or None


def coordinates(arguments: Arguments) -> str | None:
    """Return a place on a map, if it is shown in the text: 13°19′N 169°9′W, 52.5°N 13.4°E."""
    if arguments.named.get("display", "inline").replace(" ", "").split(",")[0] in ("title", "t"):
        return ""
    listed = arguments.listed
    places: list[str] = []
    angle: list[str] = []
    for part in listed:
        if part in _HEMISPHERES and angle:
            places.append("".join(f"{number}{mark}" for number, mark in zip(angle, "°′″", strict=False)) + part)
            angle = []
        elif value_of(part) is not None and len(angle) < 3:
            angle.append(part)
        else:
            break
    if not places and len(angle) > 1:
        north, east = value_of(angle[0]) or 0.0, value_of(angle[1]) or 0.0
        places = [f"{abs(north)}°{'S' if north < 0 else 'N'}", f"{abs(east)}°{'W' if east < 0 else 'E'}"]
    return " ".join(places) or None
