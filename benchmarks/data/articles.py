"""Compare what this project and WikiExtractor keep of articles of a dump, and what markup they leave in the text.

    python -m benchmarks.data.articles [--data FOLDER] [--number N] [--texts FOLDER]

The articles all have templates; those whose ids have the smallest hashes are taken. A heading, list item or reference
counts as kept if its longest run without markup is in the text. References shorter than a sentence do not count. With
--texts the markup and the texts are written there, to read side by side. FOLDER is as in benchmarks.data.preparation.
"""

import argparse
import html
import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from benchmarks.data.preparation import RawText, data_argument, extractors
from deepsiam.data_prep.common.errors import exit_on_input_error
from deepsiam.data_prep.common.files import make_directory

MARKUP = "in the markup"
# The text is searched for each match's longest run without markup, if that has at least this many characters
LISTED = {
    "headings": (re.compile(r"^=+([^=\n]+)=+\s*$", re.MULTILINE), 4),
    "list items": (re.compile(r"^[*#]+(.+)$", re.MULTILINE), 8),
    "references": (
        re.compile(r"<ref\b[^>/]*>(.+?)</ref>", re.DOTALL),
        25,
    ),  # shorter ones are names, which are in the text anyway
}
LEFT = {"`{{` left": r"\{\{", r"`{\|` left": r"\{\|", "`[[` left": r"\[\[", "tags left": r"</?[a-z]\w*\b[^<>]*>"}
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}")
_HIDDEN = re.compile(r"<[^<>]*>|\[\[[^\[\]|]*\||''+|https?://\S+")


def articles(material: RawText, number: int) -> dict[str, dict[str, str]]:
    """Return the markup of articles, and the text that each extractor turns it into, by id."""
    markup = {}
    for page in material.pages()[1]:
        match = re.search(r"<ns>0<.*?<id>(\d+)<.*<text[^>]*>(.*)</text>", page, re.DOTALL)
        if match and "<redirect" not in page:
            markup[match[1]] = html.unescape(html.unescape(match[2]))  # escaped once in the XML, once in the markup
    chosen = sorted(markup, key=lambda name: blake2b(name.encode()).digest())[:number]
    columns = {MARKUP: {name: markup[name] for name in chosen}}
    for extractor, extract in extractors(material.folder).items():
        texts = texts_of(extract(material.dump(once=True))[0])
        columns[extractor] = {name: texts.get(name, "") for name in chosen}
    return columns


def table(texts: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table of what all articles together keep, and what markup is left."""
    markup = texts[MARKUP]
    columns = {
        name: sum((counts(markup[id_], text) for id_, text in column.items()), Counter())
        for name, column in texts.items()
    }
    for what in LISTED:
        columns[MARKUP][what] = sum(len(runs(what, page)) for page in markup.values())
    lines = [f"| of {len(markup)} articles | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in ("articles", "words", *LISTED, *LEFT):
        lines.append(f"| {row} | {' | '.join(f'{column[row]:,}' for column in columns.values())} |")
    return "\n".join([f"ids: {' '.join(markup)}", *lines])


def texts_of(path: Path) -> dict[str, str]:
    """Return the texts of JSON lines, in a file or in a folder, by id."""
    files = sorted(path.rglob("wiki_*")) if path.is_dir() else [path]
    records = (json.loads(line) for file in files for line in re.findall(".+", file.read_text()))
    return {record["id"]: html.unescape(record["text"]) for record in records}


def counts(markup: str, text: str) -> Counter[str]:
    """Count the parts of a page that are in its text, and the markup that is left."""
    plain = " ".join(text.split())
    kept = {"articles": int(bool(text)), "words": len(text.split())}
    kept |= {what: sum(run in plain for run in runs(what, markup)) for what in LISTED}
    return Counter(kept | {what: len(re.findall(pattern, text)) for what, pattern in LEFT.items()})


def runs(what: str, markup: str) -> list[str]:
    """Return the runs to search for: a page's headings or list items outside templates, or its references."""
    pattern, least = LISTED[what]
    while what != "references" and _TEMPLATE.search(markup):
        markup = _TEMPLATE.sub("", markup)
    pieces = (re.split(r"[\[\]{}|]", _HIDDEN.sub("|", match)) for match in pattern.findall(markup))
    longest = (" ".join(max(parts, key=len).split()) for parts in pieces)
    return [run for run in longest if len(run) >= least]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data_argument(parser)
    parser.add_argument("--number", type=int, default=20, metavar="N", help="of articles (%(default)s)")
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="to write the markup and the texts to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        material = RawText(Path(folder), options.data if options.data.is_dir() else None, 0)
        texts = articles(material, options.number)
    print(table(texts))
    if options.texts:
        make_directory(options.texts)
        for column, by_id in texts.items():
            for name, text in by_id.items():
                (options.texts / f"{name}.{column}.txt").write_text(text)


if __name__ == "__main__":
    with exit_on_input_error("benchmarks.data.articles"):
        main()
