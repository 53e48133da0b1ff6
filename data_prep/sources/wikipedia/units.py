"""The units of {{convert}}: symbol, name, plural, size in the base unit of the kind, and what it is converted to."""

import re
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit of measurement; a temperature in it is `size` × (value + `zero`) kelvins."""

    kind: str
    symbol: str
    name: str
    plural: str
    size: float
    target: str  # a code, or several
    zero: float = 0.0


# kind; codes = symbol = name = plural (`+`: the name with s) = size = target
_TABLE = """
length; m = m = metre = + = 1 = ft
length; km = km = kilometre = + = 1000 = mi
length; cm = cm = centimetre = + = 0.01 = in
length; mm = mm = millimetre = + = 0.001 = in
length; um μm µm = μm = micrometre = + = 1e-6 = in
length; nm = nm = nanometre = + = 1e-9 = in
length; ft feet foot = ft = foot = feet = 0.3048 = m
length; in inch inches = in = inch = inches = 0.0254 = mm
length; yd = yd = yard = + = 0.9144 = m
length; mi mile miles = mi = mile = + = 1609.344 = km
length; nmi = nmi = nautical mile = + = 1852 = km
length; fathom ftm = fathom = fathom = + = 1.8288 = ft m
length; furlong = furlong = furlong = + = 201.168 = mi
length; chain chains = chain = chain = + = 20.1168 = ft
length; hand hands = h = hand = + = 0.1016 = in
length; AU au = AU = astronomical unit = + = 149597870700 = km
length; ly = ly = light-year = + = 9.4607304725808e15 = km
length; pc = pc = parsec = + = 3.0856775814913673e16 = ly
area; m2 sqm = m<sup>2</sup> = square metre = + = 1 = sqft
area; km2 sqkm = km<sup>2</sup> = square kilometre = + = 1e6 = sqmi
area; cm2 = cm<sup>2</sup> = square centimetre = + = 1e-4 = sqin
area; mm2 = mm<sup>2</sup> = square millimetre = + = 1e-6 = sqin
area; ha hectare hectares = ha = hectare = + = 10000 = acre
area; sqft ft2 = sq ft = square foot = square feet = 0.09290304 = m2
area; sqin in2 = sq in = square inch = square inches = 6.4516e-4 = cm2
area; sqyd yd2 = sq yd = square yard = + = 0.83612736 = m2
area; sqmi mi2 = sq mi = square mile = + = 2589988.110336 = km2
area; acre acres = acre = acre = + = 4046.8564224 = ha
volume; m3 = m<sup>3</sup> = cubic metre = + = 1 = cuft
volume; cm3 cc = cm<sup>3</sup> = cubic centimetre = + = 1e-6 = cuin
volume; km3 = km<sup>3</sup> = cubic kilometre = + = 1e9 = cumi
volume; L l litre liter = L = litre = + = 0.001 = impgal USgal
volume; ml mL = mL = millilitre = + = 1e-6 = impoz USoz
volume; cuft ft3 = cu ft = cubic foot = cubic feet = 0.028316846592 = m3
volume; cuin in3 = cu in = cubic inch = cubic inches = 1.6387064e-5 = cm3
volume; cuyd yd3 = cu yd = cubic yard = + = 0.764554857984 = m3
volume; cumi mi3 = cu mi = cubic mile = + = 4168181825.440579 = km3
volume; acre.ft acre.foot = acre⋅ft = acre-foot = acre-feet = 1233.48183754752 = m3
volume; USgal usgal gal = US gal = US gallon = + = 0.003785411784 = L impgal
volume; impgal = imp gal = imperial gallon = + = 0.00454609 = L USgal
volume; USoz usoz = US fl oz = US fluid ounce = + = 2.95735295625e-5 = ml
volume; impoz = imp fl oz = imperial fluid ounce = + = 2.84130625e-5 = ml
volume; pt imppt = imp pt = imperial pint = + = 5.6826125e-4 = L
volume; oilbbl bbl = bbl = barrel = + = 0.158987294928 = m3
mass; kg = kg = kilogram = + = 1 = lb
mass; g = g = gram = + = 0.001 = oz
mass; mg = mg = milligram = + = 1e-6 = gr
mass; t tonne tonnes MT = t = tonne = + = 1000 = LT ST
mass; lb lbs = lb = pound = + = 0.45359237 = kg
mass; oz = oz = ounce = + = 0.028349523125 = g
mass; gr = gr = grain = + = 6.479891e-5 = mg
mass; st = st = stone = stone = 6.35029318 = lb kg
mass; ST = short tons = short ton = + = 907.18474 = t
mass; LT = long tons = long ton = + = 1016.0469088 = t
mass; ozt = ozt = troy ounce = + = 0.0311034768 = oz g
speed; m/s = m/s = metre per second = metres per second = 1 = ft/s
speed; km/h kph kmh = km/h = kilometre per hour = kilometres per hour = 0.2777777777777778 = mph
speed; km/s = km/s = kilometre per second = kilometres per second = 1000 = mi/s
speed; mph mi/h = mph = mile per hour = miles per hour = 0.44704 = km/h
speed; mi/s = mi/s = mile per second = miles per second = 1609.344 = km/s
speed; ft/s = ft/s = foot per second = feet per second = 0.3048 = m/s
speed; ft/min = ft/min = foot per minute = feet per minute = 0.00508 = m/min
speed; m/min = m/min = metre per minute = metres per minute = 0.016666666666666666 = ft/min
speed; kn knot knots = kn = knot = + = 0.5144444444444445 = km/h mph
density; PD/km2 = /km<sup>2</sup> = inhabitant per square kilometre = inhabitants per square kilometre = 1 = PD/sqmi
density; PD/sqmi = /sq mi = inhabitant per square mile = inhabitants per square mile = 0.386102158542 = PD/km2
power; W = W = watt = + = 1 = hp
power; kW = kW = kilowatt = + = 1000 = hp
power; MW = MW = megawatt = + = 1e6 = hp
power; hp bhp = hp = horsepower = horsepower = 745.6998715822702 = kW
power; PS = PS = metric horsepower = metric horsepower = 735.49875 = kW
energy; J = J = joule = + = 1 = ftlbf
energy; kJ = kJ = kilojoule = + = 1000 = kcal
energy; MJ = MJ = megajoule = + = 1e6 = kWh
energy; cal = cal = calorie = + = 4.184 = J
energy; kcal Cal = kcal = kilocalorie = + = 4184 = kJ
energy; kWh kW.h = kW⋅h = kilowatt-hour = + = 3.6e6 = MJ
energy; ftlbf = ft⋅lb = foot-pound = + = 1.3558179483314004 = J
energy; BTU Btu = BTU = British thermal unit = + = 1055.05585262 = kJ
torque; Nm N.m = N⋅m = newton-metre = + = 1 = lbft
torque; lbft lb.ft lbfft lbf.ft ftlb = lb⋅ft = pound-foot = pound-feet = 1.3558179483314004 = Nm
force; N = N = newton = + = 1 = lbf
force; kN = kN = kilonewton = + = 1000 = lbf
force; lbf = lb<sub>f</sub> = pound-force = pounds-force = 4.4482216152605 = N
force; kgf = kg<sub>f</sub> = kilogram-force = kilograms-force = 9.80665 = N lbf
pressure; Pa = Pa = pascal = + = 1 = psi
pressure; hPa = hPa = hectopascal = + = 100 = inHg
pressure; kPa = kPa = kilopascal = + = 1000 = psi
pressure; MPa = MPa = megapascal = + = 1e6 = ksi
pressure; bar = bar = bar = + = 1e5 = kPa
pressure; mbar = mbar = millibar = + = 100 = hPa inHg
pressure; atm = atm = standard atmosphere = + = 101325 = kPa
pressure; psi = psi = pound per square inch = pounds per square inch = 6894.757293168362 = kPa
pressure; ksi = ksi = kilopound per square inch = kilopounds per square inch = 6894757.293168362 = MPa
pressure; inHg = inHg = inch of mercury = inches of mercury = 3386.388640341 = kPa
pressure; mmHg = mmHg = millimetre of mercury = millimetres of mercury = 133.322387415 = kPa
flow; m3/s cumec = m<sup>3</sup>/s = cubic metre per second = cubic metres per second = 1 = cuft/s
flow; cuft/s ft3/s cfs = cu ft/s = cubic foot per second = cubic feet per second = 0.028316846592 = m3/s
heaviness; kg/m3 = kg/m<sup>3</sup> = kilogram per cubic metre = kilograms per cubic metre = 1 = lb/cuft
heaviness; g/cm3 = g/cm<sup>3</sup> = gram per cubic centimetre = grams per cubic centimetre = 1000 = lb/cuin
heaviness; lb/cuft = lb/cu ft = pound per cubic foot = pounds per cubic foot = 16.018463373960142 = kg/m3
heaviness; lb/cuin = lb/cu in = pound per cubic inch = pounds per cubic inch = 27679.904710203122 = g/cm3
time; s = s = second = + = 1 = min
time; min = min = minute = + = 60 = s
time; h hr = h = hour = + = 3600 = min
time; d day = d = day = + = 86400 = h
time; a yr year = yr = year = + = 31557600 = d
temperature; C °C degC = °C = degree Celsius = degrees Celsius = 1 = F
temperature; F °F degF = °F = degree Fahrenheit = degrees Fahrenheit = 0.5555555555555556 = C
temperature difference; C-change = °C = °C = °C = 1 = F-change
temperature difference; F-change = °F = °F = °F = 0.5555555555555556 = C-change
temperature; K = K = kelvin = + = 1 = C F
"""
ZEROS = {"C": 273.15, "F": 459.67}  # added to a temperature to count from absolute zero
COMBINED = {"ftin": ("ft", "in", 12), "stlb": ("st", "lb", 14), "lboz": ("lb", "oz", 16), "ydft": ("yd", "ft", 3)}


def _parsed(table: str) -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for line in table.strip().split("\n"):
        kind, _, rest = line.partition("; ")
        codes, symbol, name, plural, size, target = rest.split(" = ")
        for code in codes.split(" "):
            zero = ZEROS.get(codes.split(" ")[0], 0.0) if kind == "temperature" else 0.0
            plural = name + "s" if plural == "+" else plural
            units[code] = Unit(kind, symbol, name, plural, float(size), target, zero)
    return units


_UNITS = _parsed(_TABLE)
_POWERS = {"3": "thousand", "6": "million", "9": "billion", "12": "trillion"}
_PREFIXES = {"k": "3", "M": "6", "G": "9", "T": "12"}  # before units of trade: Moilbbl, Tcuft
_MULTIPLE = re.compile(r"e(3|6|9|12)(.+)|([kMGT])((?:oilbbl|cuft|USgal|impgal|LT|ST)(?:/.+)?)")


def unit_of(code: str) -> Unit | None:
    """Return the unit of a code, such as `km`, `oilbbl/d` or `e6acre`; None if it is not known."""
    if unit := _UNITS.get(code):
        return unit
    if multiple := _MULTIPLE.fullmatch(code):
        exponent = multiple[1] or _PREFIXES[multiple[3]]
        unit = _UNITS.get(multiple[2] or multiple[4]) or _per(multiple[2] or multiple[4])
        if unit is None or unit.zero:
            return None
        word, symbol = _POWERS[exponent], f"×10<sup>{exponent}</sup> {unit.symbol}"
        size = unit.size * 10.0 ** int(exponent)
        return unit._replace(symbol=symbol, name=f"{word} {unit.name}", plural=f"{word} {unit.plural}", size=size)
    return _per(code)


def _per(code: str) -> Unit | None:
    over, slash, under = code.partition("/")
    one, other = _UNITS.get(over), _UNITS.get(under)
    if not slash or one is None or other is None or one.zero or other.zero:
        return None
    target = "/".join([one.target.split(" ")[0], under])
    kind, symbol = f"{one.kind}/{other.kind}", f"{one.symbol}/{other.symbol}"
    per = f" per {other.name}"
    return Unit(kind, symbol, one.name + per, one.plural + per, one.size / other.size, target)
