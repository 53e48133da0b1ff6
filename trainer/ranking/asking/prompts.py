"""What a language model is asked: for each kind of query a chat that ends with the document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.common.files import read_bytes
from deepsiam.data_prep.common.json_file import Record, parse_json

DOCUMENT = "{document}"  # in a template
ANY = "query"  # the kind of one's own template, and of an example for every kind
SUFFIX = ".json"  # of a template of several messages
KINDS = {
    "question": "Write one short question that the following text answers.\n\nText: {document}\n\nQuestion:",
    "keywords": "Write the few words that someone would type to search for the following text.\n\n"
    "Text: {document}\n\nSearch:",
    "claim": "Write one short sentence, a claim that the following text supports.\n\nText: {document}\n\nClaim:",
    "title": "Write a short title for the following text.\n\nText: {document}\n\nTitle:",
}


class Message(Record):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class Example(Record):
    """A document and a query for it, as a line of the examples."""

    document: str
    query: str
    kind: str = ANY


class Prompt(NamedTuple):
    """How a kind of query is asked for."""

    kind: str
    template: tuple[Message, ...]
    examples: tuple[Example, ...] = ()

    @property
    def needs_chat(self) -> bool:
        """Whether plain text cannot hold it."""
        return [message.role for message in self.template] != ["user"]

    def chat(self, document: str) -> list[dict[str, str]]:
        """Return the messages that ask for a query: the template's first ones, the examples, the document."""
        messages = [_filled(message, "") for message in self.template if DOCUMENT not in message.content]
        asked = [message for message in self.template if DOCUMENT in message.content]
        for example in self.examples:
            messages += [_filled(message, example.document) for message in asked]
            messages.append({"role": "assistant", "content": example.query})
        return messages + [_filled(message, document) for message in asked]

    def plain(self, document: str) -> str:
        """Return the same as text, for a model that is no chat's: it goes on after the last line."""
        turns = [(example.document, f" {example.query}\n\n\n") for example in self.examples]
        return "".join(_filled(self.template[0], text)["content"] + end for text, end in [*turns, (document, "")])


def _filled(message: Message, document: str) -> dict[str, str]:
    return {"role": message.role, "content": message.content.replace(DOCUMENT, document)}


def open_prompts(kinds: Sequence[str], template: Path | None, examples: Path | None) -> list[Prompt]:
    """Return the prompt of each kind, or that of one's own template.

    Raises:
        InputError: a file is not what it should be, or an example is of a kind that nobody asks for.
    """
    names, shown = ([ANY] if template else list(kinds)), _examples(examples) if examples else []
    for number, example in enumerate(shown, 1):
        if example.kind not in (ANY, *names):
            raise InputError(f"{examples}:{number}: its kind {example.kind!r:.80} is none of: {', '.join(names)}")
    templates: dict[str, tuple[Message, ...]] = {
        kind: (Message(role="user", content=content),) for kind, content in KINDS.items()
    }
    if template:
        templates = {ANY: _template(template)}
    return [Prompt(kind, templates[kind], tuple(e for e in shown if e.kind in (ANY, kind))) for kind in names]


def _template(path: Path) -> tuple[Message, ...]:
    if path.suffix == SUFFIX:
        messages = tuple(parse_json(read_bytes(path), path, list[Message], 'write [{"role": ..., "content": ...}]'))
    else:
        messages = (Message(role="user", content=_text(path).strip("\n")),)
    if not messages or [DOCUMENT in message.content for message in messages] != [False] * (len(messages) - 1) + [True]:
        raise InputError(f"{path}: its last message, and no other, must have {DOCUMENT}: write it where the text goes")
    return messages


def _examples(path: Path) -> list[Example]:
    remedy = 'write {"document": ..., "query": ...} on each line'
    examples = list[Example]()
    for number, line in enumerate(_text(path).splitlines(), 1):
        example = parse_json(line.encode(), Path(f"{path}:{number}"), Example, remedy)
        if not example.document.strip() or not example.query.strip():
            raise InputError(f"{path}:{number}: an example has an empty document or query: {remedy}")
        examples.append(example)
    if not examples:
        raise InputError(f"{path}: has no example: {remedy}")
    return examples


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None


def record(prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Return the prompts as JSON values: what decides what is asked."""
    return {p.kind: [[m.model_dump() for m in p.template], [e.model_dump() for e in p.examples]] for p in prompts}
