"""The language of `trainer.evaluate --system`: text -> a tree.

    system      [NAME =] expression
    expression  first, then any number of: > DEPTH MODEL, or > DEPTH +MODEL
    first       MODEL, fuse(expression, expression, options) or (expression)
    MODEL       bm25, lrl, the name of a system given before, or a path; one with other characters in "double quotes";
                (options) may follow
    options     weight=0.3, split=dev, rule=scores or rule=ranks, where scores are fused (fuse, +);
                NAME=VALUE of a MODEL are its ranker's, which knows them; with commas between them; a VALUE with other
                characters in "double quotes"

`a > 100 b` re-ranks the first 100 documents of a by the scores of b, and `a > 100 +b` by those of both.
Equal trees are equal and hash equally, so that each distinct part is evaluated once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.hub import is_address

NO_PATHS = ("bm25", "lrl")  # words that name a ranker
RESERVED = (*NO_PATHS, "fuse")  # words that name no system of the user's
OPTIONS = {"weight": "a number from 0 to 1", "split": "a split", "rule": "scores or ranks"}  # and what each is
LONGEST_SHOWN = 500  # characters of an expression in an error
MOST_TOKENS = 200  # of a system: no tree is deeper than Python's stack
_WORD = r"""[^\s()<>,=+"]+"""
_TOKEN = re.compile(
    rf'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<word>{_WORD})|(?P<sign>[()>,=+])|(?P<end>\Z)|(?P<unknown>.))', re.DOTALL
)


@dataclass(frozen=True)
class Leaf:
    """BM25, a model or a run file."""

    path: str  # or one of NO_PATHS: a folder of this name is ./bm25
    options: tuple[tuple[str, str], ...] = ()  # names and values, of its ranker
    at: int = field(default=0, compare=False)  # where it stands in the text, from 0

    def __str__(self) -> str:
        """Format as text; a path without a slash is quoted, as it could be a name."""
        path = quoted(self.path, word=self.path in NO_PATHS or "/" in self.path)
        return path + (f"({', '.join(map(_option, self.options))})" if self.options else "")


@dataclass(frozen=True)
class Fusion:
    """How the scores of two systems become one; without any key, by a weight where there is a split to choose it on."""

    weight: float | None = None  # of the second system
    split: str | None = None  # where the weight is chosen
    rule: str | None = None  # scores or ranks; None beside a weight or a split, which imply scores

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The keys that are given, as options."""
        return tuple((name, str(value)) for name, value in vars(self).items() if value is not None)


@dataclass(frozen=True)
class Fuse:
    """Two systems as one."""

    first: Expression
    second: Expression
    fusion: Fusion = Fusion()
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"fuse({', '.join([str(self.first), str(self.second), *map(_option, self.fusion.options)])})"


@dataclass(frozen=True)
class Rerank:
    """The first documents of a system, re-ranked."""

    first: Expression
    depth: int  # how many
    second: Leaf  # what scores them
    fusion: Fusion | None = None  # with the scores of `first`; None: the second's alone
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.first} {self.stage}"

    @property
    def stage(self) -> str:
        """The text without `first`."""
        if self.fusion is None:
            return f"> {self.depth} {self.second}"
        return f"> {self.depth} +{replace(self.second, options=self.second.options + self.fusion.options)}"


Expression = Leaf | Fuse | Rerank
BM25 = Leaf("bm25")


class Given(NamedTuple):
    """A system of the command, and how it was given."""

    name: str
    expression: Expression
    text: str


def read_systems(arguments: Sequence[str]) -> list[Given]:
    """Parse the arguments of `--system`; raise InputError for one that is not of the language, or has no such file."""
    systems: list[Given] = []
    for text in arguments:
        system = parse(text, {system.name: system.expression for system in systems})
        for leaf in leaves(system.expression):
            if leaf.path not in NO_PATHS and not is_address(leaf.path) and not os.path.exists(leaf.path):
                hint = "" if "/" in leaf.path else "is no system named before, and "
                raise problem(text, leaf.at, f"'{leaf.path}' {hint}is no file or folder")
        systems.append(system)
    if not systems:
        raise InputError("nothing to evaluate: give --system bm25, --system NAME=RUN, or several of them")
    return systems


def parse(text: str, systems: Mapping[str, Expression], *, unnamed: bool = False) -> Given:
    """Parse an argument of `--system`, given the systems before it by name: a name stands for its system.

    An `unnamed` system is called by its text.

    Raises:
        InputError: it is not of the language; the message names the character.
    """
    parser = _Parser(text, systems)
    name_token, next_token, *_ = *parser.rest, parser.rest[-1]
    name, has_name = name_token.text, not unnamed and name_token.kind == "word" and next_token.text == "="
    if has_name:
        del parser.rest[:2]
    expression = parser.expression()
    if parser.rest[0].kind != "end":
        parser.fail(f"{parser.rest[0]} cannot follow here: write > DEPTH MODEL to re-rank, or end")
    if unnamed:
        return Given(text, expression, text)
    if not has_name and (name_token.kind != "word" or next_token.kind != "end" or "/" in name):
        parser.fail(f"give the system a name: NAME={text.strip()}", name_token)
    if name in systems:
        parser.fail(f"the name '{name}' is taken: choose another", name_token)
    if name == "BM25":
        parser.fail("'BM25' is what tables call bm25: choose another name, NAME=SYSTEM", name_token)
    if has_name and name in RESERVED:
        parser.fail(f"'{name}' is a word of the language: choose another name", name_token)
    if "/" in name:
        parser.fail(f"the name '{name}' has a slash, but may become a file's: choose another", name_token)
    return Given(name, expression, text)


def parse_unnamed(text: str) -> Expression:
    """Parse a system that has no name; raise InputError as `parse` does."""
    return parse(text, {}, unnamed=True).expression


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the parts of a system and then the system itself, each after its own parts; scorers are not parts."""
    if not isinstance(expression, Leaf):
        yield from walk(expression.first)
    if isinstance(expression, Fuse):
        yield from walk(expression.second)
    yield expression


def leaves(expression: Expression) -> list[Leaf]:
    """Return the leaves of a system, scorers included."""
    if isinstance(expression, Leaf):
        return [expression]
    return [*leaves(expression.first), *leaves(expression.second)]


def with_leaves(expression: Expression, change: Callable[[Leaf], Leaf]) -> Expression:
    """Return a system with its leaves changed, scorers included."""
    if isinstance(expression, Leaf):
        return change(expression)
    first = with_leaves(expression.first, change)
    if isinstance(expression, Fuse):
        return replace(expression, first=first, second=with_leaves(expression.second, change))
    return replace(expression, first=first, second=change(expression.second))


def is_run_file(part: Expression) -> bool:
    """Return whether a part of a system is a run file."""
    return isinstance(part, Leaf) and part.path not in NO_PATHS and os.path.isfile(part.path)


def ranks_all(part: Expression) -> bool:
    """Return whether a part scores all documents of a pool."""
    if isinstance(part, Fuse):
        return ranks_all(part.first) and ranks_all(part.second)
    return isinstance(part, Leaf) and not is_run_file(part)


@contextmanager
def located(text: str, part: Expression) -> Iterator[None]:
    """Name the place of a part, in the text of its system, in the block's errors."""
    try:
        yield
    except InputError as error:
        raise problem(text, part.at, str(error)) from None


def problem(text: str, at: int, message: str) -> InputError:
    """Return the error for a place, from 0, in the text of a system."""
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return InputError(f"--system '{shown}': character {at + 1}: {message}")


def quoted(text: str, *, word: bool = True) -> str:
    """Return a text as it is, where a word may stand and it is one, or in quotation marks."""
    if word and re.fullmatch(_WORD, text):
        return text
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


def _option(option: tuple[str, str]) -> str:
    return f"{option[0]}={quoted(option[1])}"


class _Token(NamedTuple):
    kind: str  # a group of _TOKEN
    text: str
    at: int
    value: str  # without quotation marks

    def __str__(self) -> str:
        """Name the token in a message."""
        return "the end" if self.kind == "end" else f"'{self.text}'"


class _Parser:
    """A recursive-descent parser: each method takes what it is named after from the rest of the tokens."""

    def __init__(self, text: str, systems: Mapping[str, Expression]) -> None:
        self.text, self.systems = text, systems
        self.rest: list[_Token] = []
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup or ""
            value = re.sub(r"\\(.)", r"\1", match[kind][1:-1], flags=re.DOTALL) if kind == "quoted" else match[kind]
            token = _Token(kind, match[kind], match.start(kind), value)
            if kind == "unknown":
                unclosed = token.text == '"'
                self.fail("the quotation mark is never closed" if unclosed else f"{token} means nothing here", token)
            if len(self.rest) == MOST_TOKENS:
                self.fail("the system is too long: give a part of it a name by its own --system", token)
            self.rest.append(token)

    def expression(self) -> Expression:
        if self.rest[0].text == "(":
            self.take()
            expression = self.expression()
            self.expect(")")
        elif self.rest[0].text == "fuse" and self.rest[1].text == "(":
            expression = self.fuse()
        else:
            expression, _ = self.model(fused=False)
        while self.rest[0].text == ">":
            at = self.take().at
            depth = self.take()
            if not re.fullmatch("[1-9][0-9]{0,8}", depth.text):
                self.fail(f"{depth} is not how many documents to re-rank: a number such as 100", depth)
            fused, scorer_token = self.skip("+"), self.rest[0]
            scorer, fusion = self.model(fused=fused)
            if not isinstance(scorer, Leaf):
                self.fail("a system of several parts re-ranks nothing: name one model, or bm25", scorer_token)
            expression = Rerank(expression, int(depth.text), scorer, fusion if fused else None, at)
        return expression

    def fuse(self) -> Fuse:
        at = self.take().at
        self.take()
        first = self.expression()
        self.expect(",", " and a second system")
        start = self.rest[0]
        second = self.expression()
        if first == second:
            self.fail("fuse takes two different systems", start)
        if self.skip(")"):
            return Fuse(first, second, at=at)
        self.expect(",", " or ')'")
        return Fuse(first, second, self.fusion(self.options(tuple(OPTIONS))), at)

    def model(self, *, fused: bool) -> tuple[Expression, Fusion]:
        """Read a model, or the name of a system, with its options; return also those of the fusion among them."""
        token = self.take()
        if token.kind not in ("word", "quoted"):
            self.fail(f"{token} is no system: write bm25, a name given before, a path, or fuse(..., ...)", token)
        if not (path := token.value):
            self.fail("the path is empty", token)
        if token.kind == "quoted":
            part: Expression = Leaf(f"./{path}" if path in NO_PATHS else path, at=token.at)
        else:
            part = replace(self.systems.get(path, Leaf(path)), at=token.at)
        if self.rest[0].text != "(":
            return part, Fusion()
        bracket = self.take()
        options = self.options(tuple(OPTIONS) if part == BM25 or not isinstance(part, Leaf) else ())
        fusion_options = [(name, value) for name, value in options if name.text in OPTIONS]
        if fusion_options and not fused:
            self.fail(f"options are for fused scores: write +{token.text}(...)", bracket)
        if isinstance(part, Leaf):
            ranker_options = {name.text: value.value for name, value in options if name.text not in OPTIONS}
            part = replace(part, options=tuple({**dict(part.options), **ranker_options}.items()))
        return part, self.fusion(fusion_options)

    def options(self, names: tuple[str, ...]) -> list[tuple[_Token, _Token]]:
        """Read options, names and values, with the bracket that ends them; without `names`, of any name."""
        options: list[tuple[_Token, _Token]] = []
        while not options or not self.skip(")"):
            if options:
                self.expect(",", " or ')'")
            name = self.take()
            if name.kind != "word" or (names and name.text not in names):
                self.fail(f"{name} is not an option: {', '.join(names) or 'write NAME=VALUE'}", name)
            if any(name.text == earlier.text for earlier, _ in options):
                self.fail(f"{name} is there twice", name)
            self.expect("=")
            value = self.take()
            if value.kind not in ("word", "quoted"):
                self.fail(f"{value} is no value of '{name.text}'", value)
            options.append((name, value))
        return options

    def fusion(self, options: list[tuple[_Token, _Token]]) -> Fusion:
        """Check what options say of a fusion."""
        values: dict[str, str] = {}
        for name, value in options:
            if not _possible(name.text, value.value):
                self.fail(f"{value}: the {name.text} is {OPTIONS[name.text]}", value)
            values[name.text] = value.value
            if {"weight", "split"} <= values.keys():
                self.fail("a weight that is given needs no split to choose it on: leave out one", name)
            if values.get("rule") == "ranks" and len(values) > 1:
                self.fail("reciprocal ranks have no weight: leave out rule=ranks, or the other", name)
        weight = float(values["weight"]) if "weight" in values else None
        return Fusion(weight, values.get("split"), values.get("rule") if len(values) == 1 else None)

    def take(self) -> _Token:
        """Return the next token, and step over it unless it is the end."""
        return self.rest.pop(0) if len(self.rest) > 1 else self.rest[0]

    def skip(self, sign: str) -> bool:
        """Step over the next token if it is this sign; return whether it was."""
        return self.rest[0].text == sign and bool(self.take())

    def expect(self, sign: str, remark: str = "") -> None:
        if not self.skip(sign):
            self.fail(f"{self.rest[0]} stands where '{sign}'{remark} is expected")

    def fail(self, message: str, token: _Token | None = None) -> NoReturn:
        raise problem(self.text, (token or self.rest[0]).at, message)


def _possible(option: str, value: str) -> bool:
    """Return whether an option of a fusion can have a value."""
    if option == "rule":
        return value in ("scores", "ranks")
    if option == "split":
        return "/" not in value
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False
