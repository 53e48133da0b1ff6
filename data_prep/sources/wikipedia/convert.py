"""{{convert}} and {{cvt}}: a quantity in the unit that the article gives, and in others."""

import math
import re
from typing import NamedTuple

from deepsiam.data_prep.sources.wikipedia.arguments import Arguments
from deepsiam.data_prep.sources.wikipedia.numbers import decimals, rounded, shown, value_of
from deepsiam.data_prep.sources.wikipedia.units import COMBINED, Unit, unit_of

# what joins the numbers of a range
_RANGES = {
    **{word: f" {word} " for word in ("to", "and", "or", "by", "to about", "and about", "or about")},
    **dict.fromkeys(("-", "–", "&ndash;", "to(-)", "and(-)"), "–"),
    **dict.fromkeys(("x", "×", "*", "xx", "by(x)", "x(by)"), " × "),
    **dict.fromkeys(("+/-", "±", "+/−"), " ± "),
    **dict.fromkeys(("+", "/", "//"), "/"),
    ",": ", ",
}
_TIMES = " × "  # `10 m × 5 m`, where the name of the unit is written out 10 by 5 metres
# `disp`: what stands between the two quantities, and after them; by default they are `5 km (3.1 mi)`
_BESIDE = {
    **dict.fromkeys(("slash", "s", "/"), (" / ", "")),
    "or": (" or ", ""),
    "comma": (", ", ""),
    "semicolon": ("; ", ""),
    "br": (" ", ""),
    "sqbr": (" [", "]"),
}
_OUT = ("out", "output only", "number", "output number only")
_WITH_SMALLER = frozenset(("mi", "furlong", "chain", "yd", "ft", "in", "st", "lb", "oz", "LT", "h", "min", "s"))
_PLACES = re.compile(r"-?\d{1,2}")
MOST_NUMBERS = 6  # of a range
MOST_OUTPUTS = 4


class _Given(NamedTuple):
    """The numbers of a range, as given, what joins them, and their unit; or those of one height such as 6 ft 2 in."""

    numbers: list[str]
    joints: list[str]
    code: str
    smaller: list[tuple[str, Unit]]  # numbers in smaller units that are added to the only one
    rest: list[str]

    @property
    def single(self) -> bool:
        """Whether the name of the unit is in the singular: of 1, and of a fraction below it."""
        value = value_of(self.numbers[0]) or 0.0
        return len(self.numbers) == 1 and (abs(value) == 1 or ("/" in self.numbers[0] and abs(value) < 1))


def converted(arguments: Arguments, symbols: bool = False) -> str | None:
    """Return what {{convert}} shows, `symbols` for {{cvt}}; None if no number is given."""
    given = _given(arguments.listed)
    return None if given is None else _Conversion(given, arguments.named, symbols).shown()


def _given(listed: list[str]) -> _Given | None:
    numbers: list[str] = listed[:1]
    joints: list[str] = []
    if not numbers or value_of(numbers[0]) is None:
        return None
    at = 1
    while at + 1 < len(listed) and listed[at] in _RANGES and value_of(listed[at + 1]) is not None:
        joints.append(_RANGES[listed[at]])
        numbers.append(listed[at + 1])
        at += 2
        if len(numbers) > MOST_NUMBERS:
            return None
    code = listed[at] if at < len(listed) else ""
    at += 1
    smaller: list[tuple[str, Unit]] = []
    while at + 1 < len(listed) and not joints and len(smaller) < 2 and value_of(listed[at]) is not None:
        one, two = unit_of(code), unit_of(listed[at + 1])
        if not {code, listed[at + 1]} <= _WITH_SMALLER or not (one and two and one.kind == two.kind):
            break
        smaller.append((listed[at], two))
        at += 2
    return _Given(numbers, joints, code, smaller, listed[at:])


def density(arguments: Arguments) -> str | None:
    """Return what {{pop density}} shows: people for each unit of area, and for each of another one."""
    people, area, unit = value_of(arguments.at(0)), value_of(arguments.at(1)), arguments.at(2)
    if people is None or not area or area < 0:
        return None
    places = arguments.named.get("prec", "0")
    number = f"{people / area:.{places if places.isdecimal() and len(places) < 2 else 0}f}"
    other = f"PD/{arguments.at(3)}" if arguments.at(3) else ""
    return converted(Arguments("", [number, f"PD/{unit}", other], arguments.named), symbols=True)


class _Conversion:
    """One use of the template."""

    def __init__(self, given: _Given, named: dict[str, str], symbols: bool) -> None:
        self.given, self.named = given, named
        self.unit = unit_of(given.code)
        self.form = named.get("disp", "")
        abbreviated = named.get("abbr", "on" if symbols else "out")
        self.symbol_first = abbreviated in ("on", "in")
        self.symbol_second = abbreviated not in ("off", "none", "in")
        self.places = next((text for text in given.rest[:2] if _PLACES.fullmatch(text)), "")
        known = next((codes for text in given.rest[:1] if (codes := _codes(text))), None)
        self.targets = known or (_codes(self.unit.target) if self.unit else [])
        texts = [text for text in given.rest if not _PLACES.fullmatch(text) and not _codes(text)]
        self.between, self.after = [*texts, "", ""][:2]  # of `disp=x`
        self.extra = texts[-1] if texts else ""  # of `adj=mid` and `adj=pre`

    def shown(self) -> str:
        """Return both quantities, or the one that is wanted; only the one given, if a unit is not known."""
        if self.unit and self.form == "unit":
            return self.unit.symbol if self.symbol_first else self._name(self.unit, self.given.single)
        flipped = self.named.get("order") == "flip" or self.form == "flip"
        outputs = [self._output(code, self.symbol_first if flipped else self.symbol_second) for code in self.targets]
        outputs = [output for output in outputs if output]
        if not outputs:
            return self._input(self.symbol_first, True)
        if self.form in _OUT:
            return "; ".join(outputs)
        first, second = self._input(self.symbol_first, True), "; ".join(outputs)
        if flipped:
            first, second = outputs[0], self._input(self.symbol_second, False)
        if self.form.startswith("x"):
            return f"{first} {self.between} {second} {self.after}".rstrip()
        between, after = _BESIDE.get(self.form, (" (", ")"))
        return f"{first}{between}{second}{after}"

    def _input(self, symbol: bool, adjective: bool) -> str:
        """Return the quantity in the unit in which it is given."""
        given = self.given
        least = {"off": 1000, "5": 5}.get(self.named.get("comma", ""), 4)  # digits of a number with commas
        numbers = [shown(number, least) for number in given.numbers]
        if self.unit is None:
            return f"{_range(numbers, given.joints)} {given.code}".strip()
        if not given.smaller:
            return self._quantity(numbers, self.unit, symbol, given.single, adjective)
        parts = [(given.numbers[0], self.unit), *given.smaller]
        if not symbol and adjective and self.named.get("adj") == "on":
            return "-".join(f"{number}-{unit.name}" for number, unit in parts)
        return " ".join(
            f"{number} {unit.symbol if symbol else self._name(unit, number == '1')}" for number, unit in parts
        )

    def _output(self, code: str, symbol: bool) -> str:
        """Return the quantity in another unit; "" if that is of another kind."""
        larger, smaller, ratio = COMBINED.get(code, (code, "", 1))
        other, rest = unit_of(larger), unit_of(smaller)
        if self.unit is None or other is None or other.kind != self.unit.kind:
            return ""
        if rest:
            values = [round(self._value(number, rest)) for number in self.given.numbers]
            pairs = [f"{value // ratio:,} {other.symbol} {value % ratio} {rest.symbol}" for value in values]
            return _range(pairs, self.given.joints)
        numbers = [self._rounded(number, other) for number in self.given.numbers]
        if "number" in self.form:
            return _range(numbers, self.given.joints)
        single = numbers == ["1"]
        return self._quantity(numbers, other, symbol, single, self.form == "flip" or "order" in self.named)

    def _quantity(self, numbers: list[str], unit: Unit, symbol: bool, single: bool, adjective: bool) -> str:
        """Return numbers with the symbol or the name of their unit: 5 km, 5 kilometres, 5-kilometre."""
        joints = self.given.joints
        if symbol or unit.kind.startswith("temperature"):
            if _TIMES in joints:
                return _TIMES.join(_with_symbol(number, unit) for number in numbers)
            return _with_symbol(_range(numbers, joints), unit)
        number = _range(numbers, [" by " if joint == _TIMES else joint for joint in joints])
        form = self.named.get("adj", "") if adjective else ""
        if form == "on":
            return f"{number}-{self._name(unit, True).replace(' ', '-')}"
        if form == "mid" and self.extra:
            return f"{number}-{self._name(unit, True)}{'' if self.extra[0] == '-' else ' '}{self.extra}"
        extra = f"{self.extra} " if form == "pre" and self.extra else ""
        return f"{number} {extra}{self._name(unit, single)}"

    def _name(self, unit: Unit, single: bool) -> str:
        name = unit.name if single else unit.plural
        return name.replace("metre", "meter").replace("litre", "liter") if self.named.get("sp") == "us" else name

    def _value(self, number: str, other: Unit) -> float:
        """Return one of the given numbers in another unit."""
        assert self.unit is not None
        total = ((value_of(number) or 0.0) + self.unit.zero) * self.unit.size
        total += sum((value_of(added) or 0.0) * unit.size for added, unit in self.given.smaller)
        return total / other.size - other.zero

    def _rounded(self, number: str, other: Unit) -> str:
        """Round as the template does: to the precision of the number given, and to two significant digits at least."""
        assert self.unit is not None
        value = self._value(number, other)
        size = math.floor(math.log10(abs(value))) if value else 0
        if (digits := self.named.get("sigfig", "")[:2]).isdecimal() and digits != "0":
            return rounded(value, int(digits) - 1 - size)
        if (step := value_of(self.named.get("round", ""))) and step >= 0.1:
            return rounded(round(value / step) * step, 1 if step < 1 else 0)
        if self.places:
            return rounded(value, int(self.places))
        if other.kind.startswith("temperature"):
            return rounded(value, max(decimals(number), 0))
        precise, unit = self.given.smaller[-1] if self.given.smaller else (number, self.unit)
        own = 2 if "/" in precise else decimals(precise)
        own += unit.symbol == "in" and bool(self.given.smaller)  # 6 ft 2 in is 1.88 m, and 74 in 1.9 m
        return rounded(value, max(own - math.floor(math.log10(unit.size / other.size / 0.2) + 1e-9), 1 - size))


def _codes(target: str) -> list[str]:
    """Return the units of a target such as `km nmi`, `ftin` or `km/h mph`; those that are not known are left out."""
    codes = target.replace("+", " ").split()
    return [code for code in codes if code in COMBINED or unit_of(code)][:MOST_OUTPUTS]


def _range(numbers: list[str], joints: list[str]) -> str:
    return numbers[0] + "".join(joint + number for joint, number in zip(joints, numbers[1:], strict=True))


def _with_symbol(number: str, unit: Unit) -> str:
    if unit.symbol == unit.name:
        return f"{number} {unit.name if number == '1' else unit.plural}"  # acres
    return f"{number}{unit.symbol}" if unit.symbol.startswith(("/", "×")) else f"{number} {unit.symbol}"
