"""The templates of dates and ages; what depends on the day of reading counts from the page's last revision."""

from deepsiam.data_prep.sources.wikipedia.arguments import Arguments

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NUMBERED = {name[:3].lower(): index for index, name in enumerate(MONTHS, 1)}

Day = tuple[int, int, int]  # year, month, day


def parsed(listed: list[str]) -> Day | None:
    """Return the year, month and day that three arguments give as numbers or names of months."""
    try:
        year, month, day = (int(_NUMBERED.get(one[:3].lower(), one)) for one in listed[:3])
    except ValueError:
        return None
    return (year, month, day) if 1 <= month <= 12 and 1 <= day <= 31 and len(str(year)) < 5 else None


def years(since: Day, until: Day) -> int:
    """Return the number of whole years between two days."""
    return until[0] - since[0] - (until[1:] < since[1:])


def date(arguments: Arguments) -> str | None:
    """Return a date of year, month and day, or one that is written out; in American order, unless `df` is set."""
    return _date([one for one in arguments.listed if one], arguments) or None


def died(arguments: Arguments) -> str | None:
    """Return a day of death, and the age that follows from the day of birth after it."""
    listed = [one for one in arguments.listed if one]
    text = _date(listed[:3], arguments)
    death, birth = parsed(listed[:3]), parsed(listed[3:6])
    return (f"{text} (aged {years(birth, death)})" if birth and death else text) or None


def _date(listed: list[str], arguments: Arguments) -> str:
    numbers = [int(one) for one in listed[:3] if one.isdecimal() and len(one) < 5]
    if len(numbers) < min(len(listed), 2) or len(numbers) < 2 or not 1 <= numbers[1] <= len(MONTHS):
        return listed[0] if listed else ""
    year, month = str(numbers[0]), MONTHS[numbers[1] - 1]
    if len(numbers) == 2:
        return f"{month} {year}"
    return f"{numbers[2]} {month} {year}" if arguments.named.get("df") else f"{month} {numbers[2]}, {year}"


def age(arguments: Arguments, today: Day | None) -> str | None:
    """Return whole years between two days, or from one to the page's last revision."""
    since = parsed(arguments.listed[:3])
    until = parsed(arguments.listed[3:6]) or (None if len(arguments.listed) > 3 else today)
    return str(years(since, until)) if since and until else None


def old_style(arguments: Arguments) -> str | None:
    """Return a date with that of the Julian calendar: 7 November [O.S. 25 October] 1917."""
    new, year, old = arguments.at(0), arguments.at(1), arguments.at(2)
    return " ".join(part for part in (new, f"[O.S. {old}]" if old else "", year) if part) or None


def as_of(arguments: Arguments) -> str | None:
    """Return `As of 2016`, `as of May 2016`."""
    listed = arguments.listed
    when = _date([one for one in listed if one], Arguments("", [], {"df": "y", **arguments.named}))
    if arguments.named.get("alt"):
        return arguments.named["alt"]
    first = ("Since" if arguments.named.get("since") else "As of") if not arguments.named.get("bare") else ""
    first = first.lower() if arguments.named.get("lc") else first
    return f"{first} {when}".strip() if when else None


def span(arguments: Arguments) -> str:
    """Return a year, or two joined by a dash."""
    return "–".join([one for one in arguments.listed if one][:2])
