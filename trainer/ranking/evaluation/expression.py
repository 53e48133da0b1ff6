"""The language of `trainer.evaluate --system`: text -> a tree.

    system      [NAME =] expression
    expression  first, then any number of: > DEPTH LEAF, or > DEPTH +LEAF
    first       LEAF, fuse(expression, expression, options) or (expression)
    LEAF        bm25, lrl, the name of a system given before, or a path; one with other characters in "double quotes";
                (options) may follow
    options     weight=0.3, split=dev, rule=scores or rule=ranks, where scores are fused (fuse, +);
                NAME=VALUE of a LEAF are its ranker's, which knows them; with commas between them; a VALUE with other
                characters in "double quotes"

`a > 100 b` re-ranks the first 100 documents of a by the scores of b, and `a > 100 +b` by those of both.
Equal trees are equal and hash equally, so that each distinct part is evaluated once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

from deepsiam.data_prep.common.errors import InputError

NO_PATHS = ("bm25", "lrl")  # words that name a ranker
RESERVED = (*NO_PATHS, "fuse")  # words that name no system of the user's
RULES = ("scores", "ranks")
OPTIONS = {"weight": "a number from 0 to 1", "split": "a split", "rule": " or ".join(RULES)}  # and what each is
LONGEST_SHOWN = 500  # characters of an expression in an error
MOST_TOKENS = 200  # of a system: no tree is deeper than Python's stack
_WORD = r"""[^\s()<>,=+"]+"""
_TOKEN = re.compile(rf'(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<word>{_WORD})|(?P<sign>[()>,=+])|(?P<end>\Z)', re.DOTALL)


@dataclass(frozen=True)
class Leaf:
    """BM25, a model or a run file."""

    path: str  # or one of NO_PATHS: a folder of this name is ./bm25
    options: tuple[tuple[str, str], ...] = ()  # names and values, of its ranker
    at: int = field(default=0, compare=False)  # where it stands in the text, from 0

    def __str__(self) -> str:
        """Format as text; a path without a slash is quoted, as it could be a name."""
        return self.with_mix("")

    def with_mix(self, mix: str) -> str:
        """Format as text, with the options of a fusion, too."""
        plain = self.path in NO_PATHS or ("/" in self.path and re.fullmatch(_WORD, self.path))
        own = (f"{name}={value if re.fullmatch(_WORD, value) else _quoted(value)}" for name, value in self.options)
        options = ", ".join([*own, *([mix] if mix else [])])
        return (self.path if plain else _quoted(self.path)) + (f"({options})" if options else "")


@dataclass(frozen=True)
class Mix:
    """How the scores of two systems become one; without any key, by a weight where there is a split to choose it on."""

    weight: float | None = None  # of the second system
    split: str | None = None  # where the weight is chosen
    rule: str | None = None  # of RULES; None beside a weight or a split, which are of scores

    def __str__(self) -> str:
        """Format as options."""
        keys = {name: getattr(self, name) for name in OPTIONS}
        return ", ".join(f"{name}={value}" for name, value in keys.items() if value is not None)


@dataclass(frozen=True)
class Fuse:
    """Two systems as one."""

    first: Expression
    second: Expression
    mix: Mix = Mix()
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        """Format as text."""
        return f"fuse({', '.join(filter(None, map(str, (self.first, self.second, self.mix))))})"


@dataclass(frozen=True)
class Rerank:
    """The first documents of a system, re-ranked."""

    first: Expression
    depth: int  # how many
    scorer: Leaf
    mix: Mix | None = None  # with the scores of `first`; None: the scorer's alone
    at: int = field(default=0, compare=False)

    def __str__(self) -> str:
        """Format as text."""
        return f"{self.first} {self.stage}"

    @property
    def stage(self) -> str:
        """The text without `first`."""
        scorer = self.scorer if self.mix is None else f"+{self.scorer.with_mix(str(self.mix))}"
        return f"> {self.depth} {scorer}"


Expression = Leaf | Fuse | Rerank
BM25 = Leaf("bm25")


class Given(NamedTuple):
    """A system of the command, and how it was given."""

    name: str
    expression: Expression
    text: str


def parse(text: str, known: Mapping[str, Expression]) -> Given:
    """Parse an argument of `--system`.

    Args:
        text: the argument.
        known: the systems given before it, by name; their names are replaced by what they stand for.

    Raises:
        InputError: it is not of the language; the message names the character.
    """
    return _Parser(text, known).system()


def parse_unnamed(text: str) -> Expression:
    """Parse a system that has no name; raise InputError as `parse` does."""
    return _Parser(text, {}).whole()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the parts of a system and then the system itself, each after its own parts; scorers are not parts."""
    if isinstance(expression, Fuse | Rerank):
        yield from walk(expression.first)
    if isinstance(expression, Fuse):
        yield from walk(expression.second)
    yield expression


def with_leaves(expression: Expression, change: Callable[[Leaf], Leaf]) -> Expression:
    """Return a system with its leaves changed, scorers included."""
    if isinstance(expression, Leaf):
        return change(expression)
    first = with_leaves(expression.first, change)
    if isinstance(expression, Fuse):
        return replace(expression, first=first, second=with_leaves(expression.second, change))
    return replace(expression, first=first, scorer=change(expression.scorer))


def problem(text: str, at: int, message: str) -> InputError:
    """Return the error for a place, from 0, in the text of a system."""
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
    return InputError(f"--system '{shown}': character {at + 1}: {message}")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


class _Token(NamedTuple):
    kind: str  # quoted, word, sign or end
    text: str
    at: int

    def __str__(self) -> str:
        """Name the token in a message."""
        return "the end" if self.kind == "end" else f"'{self.text}'"

    @property
    def content(self) -> str:
        """The text without quotes."""
        return re.sub(r"\\(.)", r"\1", self.text[1:-1], flags=re.DOTALL) if self.kind == "quoted" else self.text


class _Parser:
    """A recursive-descent parser: each method reads the rule of its name, from the next token on."""

    def __init__(self, text: str, known: Mapping[str, Expression]) -> None:
        self.text, self.known = text, known
        self.tokens = self._split()
        self.place = 0

    def system(self) -> Given:
        first, second, *_ = *self.tokens, self.tokens[-1]
        named = first.kind == "word" and second.text == "="
        if named:
            self.place += 2
        expression = self.whole()
        if not named and (first.kind != "word" or second.kind != "end" or "/" in first.text):
            self.fail(f"give the system a name: NAME={self.text.strip()}", first.at)
        if first.text in self.known:
            self.fail(f"the name '{first.text}' is taken: choose another", first.at)
        if first.text == "BM25":
            self.fail("'BM25' is what tables call bm25: choose another name, NAME=SYSTEM", first.at)
        if named and first.text in RESERVED:
            self.fail(f"'{first.text}' is a word of the language: choose another name", first.at)
        if "/" in first.text:
            self.fail(f"the name '{first.text}' has a slash, but may become a file's: choose another", first.at)
        return Given(first.text, expression, self.text)

    def whole(self) -> Expression:
        expression = self.expression()
        if self.peek.kind != "end":
            self.fail(f"{self.peek} cannot follow here: write > DEPTH MODEL to re-rank, or end")
        return expression

    def expression(self) -> Expression:
        expression = self.first()
        while self.peek.text == ">":
            at = self.take().at
            depth = self.take()
            if not re.fullmatch("[1-9][0-9]{0,8}", depth.text):
                self.fail(f"{depth} is not how many documents to re-rank: a number such as 100", depth.at)
            plus, named = self.skip("+"), self.peek
            scorer, of_mix = self.leaf(fused=plus)
            if not isinstance(scorer, Leaf):
                self.fail("a system of several parts re-ranks nothing: name one model, or bm25", named.at)
            expression = Rerank(expression, int(depth.text), scorer, self.mix(of_mix) if plus else None, at)
        return expression

    def first(self) -> Expression:
        if self.skip("("):
            expression = self.expression()
            self.expect(")")
            return expression
        if self.peek.text == "fuse" and self.tokens[self.place + 1].text == "(":
            return self.fuse()
        return self.leaf(fused=False)[0]

    def fuse(self) -> Fuse:
        at = self.take().at
        self.expect("(")
        first = self.expression()
        self.expect(",", " and a second system")
        start = self.peek
        second = self.expression()
        if first == second:
            self.fail("fuse takes two different systems", start.at)
        if self.skip(")"):
            return Fuse(first, second, at=at)
        self.expect(",", " or ')'")
        return Fuse(first, second, self.mix(self.options(tuple(OPTIONS))), at)

    def options(self, known: tuple[str, ...] = ()) -> list[tuple[_Token, _Token]]:
        """Read options, names and values, with the bracket that ends them; without `known`, of any name."""
        given: list[tuple[_Token, _Token]] = []
        while True:
            name = self.take()
            if name.kind != "word" or (known and name.text not in known):
                self.fail(f"{name} is not an option: {', '.join(known) or 'write NAME=VALUE'}", name.at)
            if any(name.text == other.text for other, _ in given):
                self.fail(f"{name} is there twice", name.at)
            self.expect("=")
            value = self.take()
            if value.kind not in ("word", "quoted"):
                self.fail(f"{value} is no value of '{name.text}'", value.at)
            given.append((name, value))
            if self.skip(")"):
                return given
            self.expect(",", " or ')'")

    def mix(self, options: list[tuple[_Token, _Token]]) -> Mix:
        """Read what options say of a fusion."""
        given: dict[str, str] = {}
        for name, value in options:
            if not _possible(name.text, value.content):
                self.fail(f"{value}: the {name.text} is {OPTIONS[name.text]}", value.at)
            given[name.text] = value.content
            if "weight" in given and "split" in given:
                self.fail("a weight that is given needs no split to choose it on: leave out one", name.at)
            if given.get("rule") == "ranks" and len(given) > 1:
                self.fail("reciprocal ranks have no weight: leave out rule=ranks, or the other", name.at)
        weight = float(given["weight"]) if "weight" in given else None
        redundant = "weight" in given or "split" in given
        return Mix(weight, given.get("split"), None if redundant else given.get("rule"))

    def leaf(self, *, fused: bool) -> tuple[Expression, list[tuple[_Token, _Token]]]:
        """Parse one model with its options; return the model, and any options of the fusion found among them."""
        named = self.peek
        part, bracket = self.named(), self.peek
        if not self.skip("("):
            return part, []
        options = self.options(tuple(OPTIONS) if part == BM25 or not isinstance(part, Leaf) else ())
        of_mix = [(name, value) for name, value in options if name.text in OPTIONS]
        if of_mix and not fused:
            self.fail(f"options are for fused scores: write +{named.text}(...)", bracket.at)
        own = {name.text: value.content for name, value in options if name.text not in OPTIONS}
        if isinstance(part, Leaf):
            part = replace(part, options=tuple({**dict(part.options), **own}.items()))
        return part, of_mix

    def named(self) -> Expression:
        token = self.take()
        if token.kind == "quoted":
            path = token.content
            if not path:
                self.fail("the path is empty", token.at)
            return Leaf(f"./{path}" if path in NO_PATHS else path, at=token.at)
        if token.kind != "word":
            self.fail(f"{token} is no system: write bm25, a name given before, a path, or fuse(..., ...)", token.at)
        if token.text in self.known:
            return replace(self.known[token.text], at=token.at)
        return Leaf(token.text, at=token.at)

    @property
    def peek(self) -> _Token:
        return self.tokens[self.place]

    def take(self) -> _Token:
        token = self.peek
        self.place += token.kind != "end"
        return token

    def skip(self, sign: str) -> bool:
        found = self.peek.kind == "sign" and self.peek.text == sign
        self.place += found
        return found

    def expect(self, sign: str, more: str = "") -> None:
        if not self.skip(sign):
            self.fail(f"{self.peek} stands where '{sign}'{more} is expected")

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        raise problem(self.text, self.peek.at if at is None else at, message)

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while not tokens or tokens[-1].kind != "end":
            at += len(self.text[at:]) - len(self.text[at:].lstrip())
            match = _TOKEN.match(self.text, at)
            if not match:
                unclosed = self.text[at] == '"'
                what = "the quotation mark is never closed" if unclosed else f"'{self.text[at]}' means nothing here"
                raise problem(self.text, at, what)
            if len(tokens) == MOST_TOKENS:
                raise problem(self.text, at, "the system is too long: give a part of it a name by its own --system")
            assert match.lastgroup
            tokens.append(_Token(match.lastgroup, match[0], at))
            at = match.end()
        return tokens


def _possible(option: str, value: str) -> bool:
    """Return whether an option can have a value."""
    if option == "rule":
        return value in RULES
    if option == "split":
        return "/" not in value
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False
