"""{{convert}} and {{cvt}} show quantities as their documentation says; the values are Wikipedia's."""

import random
import re

import pytest

from deepsiam.data_prep.sources.wikipedia.arguments import arguments_of
from deepsiam.data_prep.sources.wikipedia.convert import converted
from deepsiam.data_prep.sources.wikipedia.numbers import decimals, rounded, value_of
from deepsiam.data_prep.sources.wikipedia.units import unit_of

CONVERTED = {
    "5|km|mi": "5 kilometres (3.1 mi)",
    "5|km": "5 kilometres (3.1 mi)",
    "1|km|mi": "1 kilometre (0.62 mi)",
    "100|km|0|mi": "100 kilometres (62 mi)",
    "3|sqmi": "3 square miles (7.8 km<sup>2</sup>)",
    "20|C|F": "20 °C (68 °F)",
    "-10|°C": "−10 °C (14 °F)",
    "12000|ft": "12,000 feet (3,700 m)",
    "12000|ft|comma=off": "12000 feet (3,700 m)",
    # ranges
    "5|to|10|km|mi|abbr=on": "5 to 10 km (3.1 to 6.2 mi)",
    "8|-|12|km|mi": "8–12 kilometres (5.0–7.5 mi)",
    "2|and|5|km|mi": "2 and 5 kilometres (1.2 and 3.1 mi)",
    "10|x|5|m|ft": "10 by 5 metres (33 ft × 16 ft)",
    "10|x|5|m|ft|abbr=on": "10 m × 5 m (33 ft × 16 ft)",
    # two units, several outputs
    "6|ft|2|in|m|abbr=on": "6 ft 2 in (1.88 m)",
    "6|ft|2|in|cm|adj=on": "6-foot-2-inch (188 cm)",
    "1.85|m|ftin|abbr=on": "1.85 m (6 ft 1 in)",
    "12|impgal|L USgal": "12 imperial gallons (55 L; 14 US gal)",
    # forms
    "5|mi|km|adj=on": "5-mile (8.0 km)",
    "5|ft|m|adj=mid|-long": "5-foot-long (1.5 m)",
    "5|km|mi|abbr=off": "5 kilometres (3.1 miles)",
    "5|km|mi|sp=us": "5 kilometers (3.1 mi)",
    "1000|km|mi|order=flip": "620 miles (1,000 km)",
    "5|km|mi|disp=out": "3.1 mi",
    "5|km|mi|disp=number": "3.1",
    "5|km|mi|disp=or": "5 kilometres or 3.1 mi",
    "5|km|mi|disp=sqbr": "5 kilometres [3.1 mi]",
    "5|ha|acre|disp=comma": "5 hectares, 12 acres",
    "5|km|mi|disp=unit": "kilometres",
    # precision
    "123456|m|ft|sigfig=3": "123,456 metres (405,000 ft)",
    "100|km|mi|2": "100 kilometres (62.14 mi)",
    "100|km|mi|round=5": "100 kilometres (60 mi)",
    # written otherwise
    "1/2|mi|km": "1/2 mile (0.80 km)",
    "1+3/4|mi|km": "1 3/4 miles (2.82 km)",
    "1e6|km": "1×10<sup>6</sup> kilometres (620,000 mi)",
    "16|e6acre|e6ha|abbr=off": "16 million acres (6.5 million hectares)",
    "1.3|Moilbbl": "1.3 million barrels (210,000 m<sup>3</sup>)",
    "400|oilbbl/d|m3/d": "400 barrels per day (64 m<sup>3</sup>/d)",
    # what is not known is not converted
    "5|zorks|mi": "5 zorks",
    "5|km|kg": "5 kilometres",
    "5": "5",
}


@pytest.mark.parametrize("given", CONVERTED)
def test_a_quantity_is_shown_as_documented(given: str) -> None:
    assert converted(arguments_of(f"convert|{given}")) == CONVERTED[given]


def test_cvt_abbreviates() -> None:
    assert converted(arguments_of("cvt|5|km|mi"), symbols=True) == "5 km (3.1 mi)"


@pytest.mark.parametrize("given", ["", "many|km", "1e999|km", "1|2|3", "1" * 100 + "|km"])
def test_what_is_no_quantity_is_unknown_or_not_converted(given: str) -> None:
    shown = converted(arguments_of(f"convert|{given}"))
    assert shown is None or "(" not in shown


@pytest.mark.parametrize(("one", "other"), [("km", "mi"), ("kg", "lb"), ("C", "F"), ("ha", "acre"), ("km/h", "kn")])
def test_conversions_there_and_back_agree(one: str, other: str) -> None:
    rng = random.Random(one)
    for _ in range(50):
        given = f"{rng.uniform(1, 1000):.3f}"
        there = converted(arguments_of(f"convert|{given}|{one}|{other}|8|disp=number"))
        assert there is not None
        back = converted(arguments_of(f"convert|{there.replace('−', '-')}|{other}|{one}|3|disp=number"))
        assert back is not None
        assert value_of(back) == pytest.approx(float(given), abs=0.0011)


def test_units_name_targets_of_their_kind() -> None:
    codes = re.findall(r"^[\w ]+; (\S+)", _table(), re.MULTILINE)
    assert len(codes) > 90
    for code in codes:
        unit = unit_of(code)
        assert unit is not None
        for target in unit.target.split(" "):
            other = unit_of(target)
            assert other is not None, (code, target)
            assert other.kind == unit.kind


def _table() -> str:
    from deepsiam.data_prep.sources.wikipedia import units

    return units._TABLE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1,200.5", -1200.5),
        ("−3", -3.0),
        ("3/4", 0.75),
        ("1+3/4", 1.75),
        ("1e3", 1000.0),
        ("1/0", None),
        ("nan", None),
    ],
)
def test_numbers_are_read(text: str, value: float | None) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(("text", "places"), [("1200", -2), ("1200.50", 2), ("0", 0), ("1.5e3", -2), ("100", -2)])
def test_precision_is_that_of_the_digits(text: str, places: int) -> None:
    assert decimals(text) == places


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (1234.5, 0, "1,235"),
        (-0.04, 1, "0.0"),
        (1250.0, -2, "1,300"),
        (-2.345, 1, "−2.3"),
        (2e30, 0, "2×10<sup>30</sup>"),
        (6.2e13, 20, f"62,000,000,000,000.{'0' * 20}"),
    ],
)
def test_values_are_rounded_half_up(value: float, places: int, text: str) -> None:
    assert rounded(value, places) == text
