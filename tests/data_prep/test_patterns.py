"""Every pattern takes linear time, on any text that is made of its own characters: foreign text may have any."""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from deepsiam import data_prep
from tests.data_prep.linear import is_linear

try:
    from re import _constants as codes
    from re import _parser as parser
except ImportError:  # before Python 3.11
    import sre_constants as codes
    import sre_parse as parser

LONGEST = (
    8_000  # characters: a quadratic pattern takes 32 million steps of over a nanosecond, a linear one some thousands
)
MOST = 7  # characters of a pattern of which pairs are made, and beginnings of what it matches
PLACE = {"fullmatch", "match", "search"}
EVERYWHERE = {"sub", "subn", "split", "finditer", "findall"}
EXAMPLES = {
    codes.CATEGORY_SPACE: " \n",
    codes.CATEGORY_WORD: "a1",
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_NOT_SPACE: "a",
    codes.CATEGORY_NOT_WORD: " ",
    codes.CATEGORY_NOT_DIGIT: "a",
}


@cache
def patterns() -> dict[re.Pattern[Any], tuple[str, set[str]]]:
    """All patterns of modules, in constants, tables and functions, where they are, and how they are used."""
    known: dict[re.Pattern[Any], tuple[str, set[str]]] = defaultdict(lambda: ("", set()))
    root = Path(data_prep.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "import re\n" not in (source := path.read_text()):
            continue
        module = importlib.import_module(".".join(path.relative_to(root.parent).with_suffix("").parts))
        for line, use, pattern in _inline(ast.parse(source), vars(module)):
            known[pattern] = (f"{module.__name__}, line {line}", known[pattern][1] | {use})
        for name, value in vars(module).items():
            for pattern in _within(value):
                loops = " ".join(re.findall(rf"for ([\w, ]+) in {name}\b", source))  # over a table
                names = [rf"{name}(?:\[\w+\])?", *loops.replace(",", "").split()]
                uses = set(re.findall(rf"\b(?:{'|'.join(names)})\.(\w+)", source)) & {*PLACE, *EVERYWHERE}
                default = "fullmatch" if isinstance(value, re.Pattern) else "sub"  # names of files; tables
                known[pattern] = (f"{module.__name__}.{name}", known[pattern][1] | (uses or {default}))
    return known


def _inline(tree: ast.Module, names: Mapping[str, Any]) -> Iterator[tuple[int, str, re.Pattern[Any]]]:
    """The patterns that functions of `re` get, unless a variable that is no constant of the module is in them."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("re"), attr=use), args=[pattern, *_], keywords=keywords):
                flags = [keyword.value for keyword in keywords if keyword.arg == "flags"]
                if use in PLACE | EVERYWHERE:
                    with suppress(NameError):
                        yield node.lineno, use, re.compile(*(_value(part, names) for part in [pattern, *flags]))


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "", "eval"), dict(names))


def _within(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from _within(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _within(item)


def _letters(node: object) -> Iterator[str]:
    """The characters that a parsed pattern names, and one or two of each class."""
    match node:
        case (codes.LITERAL | codes.NOT_LITERAL, int(letter)) | (codes.RANGE, (int(letter), _)):
            yield chr(letter)
        case (codes.CATEGORY, category):
            yield from EXAMPLES[category]
        case (codes.ANY, _) | (codes.NEGATE, _):
            yield "a"
        case tuple() | list() | parser.SubPattern():
            for child in node:
                yield from _letters(child)


def _beginnings(node: object) -> list[str]:
    """Texts that a parsed pattern matches, after those that its first parts match."""
    match node:
        case parser.SubPattern():
            texts, last = [], [""]
            for child in node:
                last = [text + more for text in last for more in _beginnings(child)[-2:]][:2] or last
                texts += last
            return texts or [""]
        case (codes.BRANCH, (_, branches)):
            return [_beginnings(branch)[-1] for branch in branches]
        case (codes.SUBPATTERN, (*_, content)):
            return _beginnings(content)
        case (codes.MAX_REPEAT | codes.MIN_REPEAT, (least, _, content)):
            return [] if least > 99 else [text * max(least, 1) for text in _beginnings(content)] + [""] * (least == 0)
        case (codes.AT | codes.ASSERT | codes.ASSERT_NOT | codes.GROUPREF, _):
            return [""]
    return list(dict.fromkeys(_letters(node)))[:2]


def _texts(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """What a text begins with, and what is repeated: each character, each pair, and what the pattern begins with."""
    parsed = parser.parse(pattern.pattern, pattern.flags)
    letters = list(dict.fromkeys(_letters(parsed)))
    signs = [letter for letter in letters if not letter.isalnum()]
    few = list(dict.fromkeys(["a", "1", *signs[: MOST - 2]]))
    heads = [text for text in dict.fromkeys(_beginnings(parsed)) if 1 < len(text) < 60][:MOST]
    yield from (("", unit) for unit in [*letters, *map("".join, permutations(few, 2)), *heads])
    yield from ((head, unit) for head in heads for unit in few)


def _is_linear(pattern: re.Pattern[Any], use: str, head: str, unit: str) -> bool:
    def work(size: int) -> object:
        text: Any = head + unit * (size // len(unit)) + "\0"
        if isinstance(pattern.pattern, bytes):
            text = text.encode("latin-1")
        return getattr(pattern, use)(text) if use in PLACE else pattern.subn(text[:0], text)

    return is_linear(work, LONGEST)


def _slow(pattern: re.Pattern[Any], uses: set[str]) -> tuple[str, str] | None:
    """The first text that takes more than linear time: what it begins with, and what is repeated."""
    ways = sorted({use if use in PLACE else "sub" for use in uses})
    return next((text for text in _texts(pattern) for way in ways if not _is_linear(pattern, way, *text)), None)


@pytest.mark.parametrize(
    ("pattern", "use", "slow"),
    [
        (r"\s*->", "sub", ("", " ")),  # from each blank on
        (r"`([^`<]+?)\s*<[^`]*>`", "match", ("`a", " ")),  # blanks before blanks
        (r"\[([^\[\]]+)\]", "sub", None),
        (r"(?:.|a|\w|[^b])*b", "match", ("", "a")),  # four ways for each character
    ],
)
def test_slow_patterns_are_found(pattern: str, use: str, slow: tuple[str, str] | None) -> None:
    assert _slow(re.compile(pattern), {use}) == slow


def test_patterns_in_functions_are_found() -> None:
    source = "FEW = '[a-z]+'\ndef f(x, y):\n    re.sub(rf'{FEW} ', '', x, flags=re.I) or re.match(y, x) or x.match(FEW)"
    assert list(_inline(ast.parse(source), {"re": re, "FEW": "[a-z]+"})) == [(3, "sub", re.compile("[a-z]+ ", re.I))]
    assert sum(", line " in place for place, _ in patterns().values()) > 10


def test_all_patterns_are_linear() -> None:
    assert len(patterns()) > 150
    slow = [(place, pattern.pattern, _slow(pattern, uses)) for pattern, (place, uses) in patterns().items()]
    assert [found for found in slow if found[-1]] == []
