"""The templates of names and languages, music, ships, flags, and what surrounds the words that they are given."""

import re
import unicodedata

from deepsiam.data_prep.sources.wikipedia.arguments import Arguments
from deepsiam.data_prep.sources.wikipedia.languages import COUNTRIES, LANGUAGES
from deepsiam.data_prep.text.language import word_set

_CODE = re.compile(r"[a-z]{2,3}(-[a-z]+)?")
_MUSIC = {
    **dict.fromkeys(("flat", "b"), "♭"),
    **dict.fromkeys(("sharp", "#"), "♯"),
    **dict.fromkeys(("natural", "n"), "♮"),
    **dict.fromkeys(("doubleflat", "bb", "double flat"), "𝄫"),
    **dict.fromkeys(("doublesharp", "##", "x", "double sharp"), "𝄪"),
    **dict.fromkeys(("dim", "o", "diminished", "degree"), "°"),
    **dict.fromkeys(("halfdim", "half-diminished"), "ø"),
    **dict.fromkeys(("aug", "augmented", "+"), "+"),
    **dict.fromkeys(("delta", "triangle", "maj"), "Δ"),
    **dict.fromkeys(("common-time", "common time", "c"), "c"),
    **dict.fromkeys(("cut-time", "cut time", "alla breve"), "¢"),
    **dict.fromkeys(("quarternote", "quarter", "crotchet"), "♩"),
    **dict.fromkeys(("eighthnote", "eighth", "quaver"), "♪"),
}
# the arguments of a template, and what is written before each
_LABELS = {
    "zh": {
        "t": "traditional Chinese",
        "s": "simplified Chinese",
        "c": "Chinese",
        "p": "pinyin",
        "w": "Wade–Giles",
        "j": "Jyutping",
        "l": "lit.",
    },
    "korean": {"hangul": "Korean", "hanja": "Hanja", "rr": "RR", "mr": "MR"},
}
# IPAc-en writes some sounds with two letters
_SOUNDS = {"ch": "tʃ", "sh": "ʃ", "th": "θ", "dh": "ð", "zh": "ʒ", "ng": "ŋ", "'": "ˈ", ",": "ˌ", "_": " ", ",_": ", "}
_NOT_SOUNDS = frozenset(("", "uk", "us", "en", "also", "pron", "lang", "local", "audio", "au", "nz", "ca", "sa"))


def language(arguments: Arguments) -> str | None:
    """Return a text with the name of its language before it: Greek: ἀρχή, romanized: archḗ, lit. 'beginning'."""
    code, listed = arguments.template.removeprefix("lang-"), arguments.listed
    if arguments.template in ("langx", "lang-x"):
        code, listed = arguments.at(0).lower(), listed[1:]
    text, roman, meaning = (listed + ["", "", ""])[:3]
    text, roman = text or arguments.given("text"), arguments.given("translit", "tr", "romanized") or roman
    meaning = arguments.given("lit", "literally", "translation") or meaning
    if not text:
        return None
    label = LANGUAGES.get(code, "") if arguments.named.get("label") != "none" else ""
    label = label if arguments.named.get("label", "none") == "none" else arguments.named["label"]
    text = f"{label}: {text}" if label else text
    return text + (f", romanized: {roman}" if roman else "") + (f", lit. '{meaning}'" if meaning else "")


def labelled(arguments: Arguments) -> str | None:
    """Return the names in several scripts, each with its label; those without one are joined by a slash."""
    labels = _LABELS[arguments.template]
    texts = [f"{label}: {arguments.named[name]}" for name, label in labels.items() if arguments.named.get(name)]
    return "; ".join(texts) or arguments.at(0) or None


def nihongo(arguments: Arguments) -> str | None:
    """Return an English name with the Japanese one and its reading in brackets."""
    english, japanese, roman, more = (arguments.listed + [""] * 4)[:4]
    if not english:
        english, roman = roman, ""
    if arguments.named.get("lead"):
        japanese, roman = (f"Japanese: {japanese}" if japanese else ""), (f"Hepburn: {roman}" if roman else "")
    inner = ", ".join(filter(None, (japanese, roman, more)))
    return (f"{english} ({inner})" if inner and english else english or inner) or None


def sounds(arguments: Arguments) -> str | None:
    """Return a pronunciation: `/ˈɑːrdvɑːrk/`."""
    if arguments.template in ("ipac-en", "ipac"):
        kept = [part for part in arguments.listed if part.lower() not in _NOT_SOUNDS]
        text = "".join(_SOUNDS.get(part, part) for part in kept)
        return f"/{text}/" if text else None
    text = arguments.at(0)
    if arguments.template.startswith("ipa-") or arguments.template in ("ipablink", "ipaplink"):
        return f"[{text}]" if text else None
    if arguments.template == "ipaslink":
        return f"/{text}/" if text else None
    if _CODE.fullmatch(text) and arguments.at(1):
        return f"[{arguments.at(1)}]"  # {{IPA|fr|…}}
    return text or None


def respelled(arguments: Arguments) -> str | None:
    """Return a pronunciation in English letters: `ARD-vark`."""
    text = "-".join(part for part in arguments.listed if part)
    return text.replace("-_-", " ").replace("-'-", "'").replace("-,-", ", ") or None


def interlanguage(arguments: Arguments) -> str | None:
    """Return the words of a link to other wikis."""
    if label := arguments.given("lt", "display"):
        return label
    if _CODE.fullmatch(arguments.at(0)) and len(arguments.listed) > 2:
        return arguments.at(3) or arguments.at(2)  # {{ill|de|Ziel|Target|label}}, as it was used until 2015
    return arguments.at(0) or None


def ship(arguments: Arguments) -> str | None:
    """Return the name of a ship; the last argument, a number, says which parts are shown."""
    listed = list(arguments.listed)
    form = arguments.given("up")
    if listed and listed[-1].lstrip("-").isdecimal() and len(listed[-1]) < 3 and len(listed) > 1:
        form = listed.pop()
    prefix = _PREFIXES.get(arguments.template)
    if prefix is None:
        prefix = listed.pop(0) if listed else ""
    name, hull = (listed + ["", ""])[:2]
    if not name:
        return None
    match form:
        case "1":
            return hull or name
        case "2":
            return name
        case "3":
            return f"{name} ({hull})" if hull else name
        case "5":
            return f"{prefix} {hull}".strip()
        case "6":
            return f"{prefix} {name}".strip()
    return f"{prefix} {name} ({hull})".strip() if hull else f"{prefix} {name}".strip()


_PREFIXES = {
    prefix.lower(): prefix
    for prefix in word_set(
        """ARA CSS GTS HDMS HMAS HMCS HMNZS HMS HMSAS HMT HNLMS HNoMS HSwMS INS JDS JS MS MT MV MY NMS NRP ORP PS RFA
        RMS RV SMS SS ST SV TSS USAT USCGC USNS USRC USS"""
    )
}
SHIPS = (*_PREFIXES, "ship")


def ship_class(arguments: Arguments) -> str | None:
    """Return a class of ships: Iowa-class battleship."""
    name, kind, form = (arguments.listed + ["", "", ""])[:3]
    if form in ("1", "2"):
        return f"{name} class" if form == "1" else f"{name} class {kind}"
    return f"{name}-class {kind}".strip() if name else None


def country(arguments: Arguments) -> str | None:
    """Return the country of a flag, by its name or code."""
    place = arguments.given("name") or arguments.at(0)
    return COUNTRIES.get(place, place) or None


def medalist(arguments: Arguments) -> str | None:
    """Return an athlete with the country: Name (France)."""
    place = COUNTRIES.get(arguments.at(1), arguments.at(1))
    return (f"{arguments.at(0)} ({place})" if place else arguments.at(0)) or None


def music(arguments: Arguments) -> str | None:
    """Return a sign of music: ♭, ♯; a time as 3/4."""
    sign, *rest = [*arguments.listed, ""]
    if sign in ("time", "time signature") and len(rest) > 2:
        return f"{rest[0]}/{rest[1]}"
    if sign == "scale" and rest[0].isdecimal():
        return f"{rest[0]}\u0302"
    return _MUSIC.get(sign.lower())


def sic(arguments: Arguments) -> str:
    """Return a text with [sic] after it."""
    hidden = arguments.named.get("hide") or arguments.named.get("nolink") == "hide"
    words = "".join(part for part in arguments.listed if part != "?")
    return words if hidden and words else f"{words} [sic]".strip()


def unicode_character(arguments: Arguments) -> str | None:
    """Return what {{unichar}} shows: U+00A9 © COPYRIGHT SIGN."""
    try:
        character = chr(int(arguments.at(0)[:8], 16))
        return f"U+{arguments.at(0).upper()} {character} {unicodedata.name(character)}"
    except (ValueError, OverflowError):
        return None


def marriage(arguments: Arguments) -> str | None:
    """Return a spouse with the years: Name (m. 1990–2000)."""
    name, since, until = (arguments.listed + ["", "", ""])[:3]
    years = f"{since}–{until}" if until else since
    return (f"{name} (m. {years})" if years else name) or None


def author_and_year(arguments: Arguments) -> str | None:
    """Return the authors of a work with its year, which is the last argument: Boolos & Jeffrey (1974)."""
    *names, year = arguments.listed or [""]
    joined = f"{', '.join(names[:-1])} & {names[-1]}" if len(names) > 1 else "".join(names)
    return f"{joined} ({year})" if joined and year else None


def circa(arguments: Arguments) -> str:
    """Return a year that is not certain: c. 1200; c. 1200 – c. 1250."""
    return " – ".join(f"c. {year}" for year in arguments.listed[:2] if year) or "c."
