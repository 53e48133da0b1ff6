"""`stats --html`: what a folder of shards holds, as one self-contained page."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from deepsiam.data_prep.common import charts, html_page
from deepsiam.data_prep.common.errors import printable
from deepsiam.data_prep.common.files import whole_file
from deepsiam.data_prep.common.html_page import Number
from deepsiam.data_prep.shards.manifest import Manifest, shards_folder
from deepsiam.data_prep.shards.reader import Shard
from deepsiam.data_prep.text import language_id
from deepsiam.data_prep.tokenizers import tokenizer

SAMPLE = 1000  # documents whose words and languages are examined
SHOWN = 6  # documents that are printed
LONGEST = 900  # characters of a printed document
RUNS = (2, 4, 8)  # words of the runs that are counted
MOST = 12  # rows of a table of runs or languages
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def write(directory: Path, stats: Mapping[str, Any], dropped: Sequence[tuple[str, int]], file: Path) -> None:
    """Write the page of `stats.collect(directory)`, with the commonest reasons for dropping.

    Raises:
        InputError: it cannot be written, or a shard cannot be read.
    """
    texts = dict(islice(_texts(directory), SAMPLE))
    sections = [
        html_page.section("How much", _totals(stats), *_stages(stats["stages"]), *_reasons(dropped)),
        html_page.section("How long", _lengths(stats["lengths"]), _length_charts(stats["lengths"])),
        html_page.section("Languages", *_languages(texts)),
        html_page.section("Words", _vocabulary(stats["vocabulary"]), *_runs(list(texts.values()))),
        html_page.section("Some documents", *_documents(texts)),
    ]
    with whole_file(file) as target:
        target.write(html_page.page(printable(f"Data set {shards_folder(directory)}"), sections).encode())


def _texts(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield ids and decoded texts; documents are in the order of hashes, so the first ones are a sample."""
    manifest = Manifest.load(shards_folder(directory))
    tok = tokenizer.load(manifest.directory / "tokenizer.json")
    for index in range(len(manifest.shards)):
        for document in Shard.open(manifest, index).documents():
            yield document.id, "\n".join(map(tok.text_of, document.segments))


def _totals(stats: Mapping[str, Any]) -> str:
    counts = stats["counts"]
    rows = [(name, Number(f"{counts[name]:,}")) for name in ("documents", "segments", "tokens", "bytes", "shards")]
    return html_page.table(["", "number"], rows)


def _stages(stages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the table of the stages, with what each dropped and why."""
    if not stages:
        yield html_page.note("The manifest does not say how the documents were made.")
        return
    rows = []
    for stage in stages:
        commonest = sorted(stage["dropped"].items(), key=lambda item: -item[1])[:MOST]
        why = ", ".join(f"{number:,} {printable(reason)}" for reason, number in commonest)
        rows.append((printable(stage["name"]), Number(f"{stage['in']:,}"), Number(f"{stage['out']:,}"), why))
    yield html_page.table(["stage", "in", "out", "dropped"], rows)


def _reasons(dropped: Sequence[tuple[str, int]]) -> Iterator[str]:
    if dropped:
        yield charts.bars("Dropped, by reason", dict(dropped[:MOST]))


def _lengths(lengths: Mapping[str, Any]) -> str:
    names = [name for name in lengths["document_tokens"] if name not in ("mean", "histogram")]
    rows = [(what, *(Number(f"{of[name]:,}") for name in names)) for what, of in _named(lengths)]
    return html_page.table(["tokens", *names], rows)


def _named(lengths: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for what, of in lengths.items():
        yield f"of a {what.removesuffix('_tokens')}", of


def _length_charts(lengths: Mapping[str, Any]) -> str:
    drawn = [
        charts.bars(f"Tokens {what}", {_range(low, high): number for low, high, number in of["histogram"]})
        for what, of in _named(lengths)
        if of["histogram"]
    ]
    return f'<div class="charts">{"".join(drawn)}</div>'


def _range(low: int, high: int) -> str:
    return f"{low:,} to {high:,}" if low < high else f"{low:,}"


def _languages(texts: Mapping[str, str]) -> Iterator[str]:
    if find_spec("py3langid") is None:
        yield html_page.note("Not detected: py3langid is not installed (pip install 'deepsiam[dumps]').")
        return
    found = Counter(language_id.likeliest(text) for text in texts.values())
    yield html_page.note(
        f"The likeliest of each of {len(texts):,} documents, by py3langid; short ones are often wrong."
    )
    yield charts.bars("Documents, by language", dict(found.most_common(MOST)))


def _vocabulary(of: Mapping[str, Any]) -> str:
    return html_page.paragraph(
        f"{of['used']:,} of the tokenizer's {of['size']:,} pieces occur; {of['tokens_of_half']:,} of them make half of "
        f"all tokens; {100 * of['unknown_share']:.3f} % of the tokens are unknown."
    )


def _runs(texts: Sequence[str]) -> Iterator[str]:
    """Yield tables of the most frequent runs of words; a long run that is in many documents is boilerplate."""
    yield html_page.note(f"In how many of {len(texts):,} documents the commonest runs of words are.")
    tables = []
    for length in RUNS:
        found: Counter[str] = Counter()
        for text in texts:
            words = _WORD.findall(text.casefold())
            found.update({" ".join(words[start : start + length]) for start in range(len(words) - length + 1)})
        rows = [(run, Number(f"{number:,}")) for run, number in found.most_common(MOST) if number > 1]
        tables.append(f"<div>{html_page.table([f'{length} words', 'documents'], rows)}</div>")
    yield f'<div class="side-by-side">{"".join(tables)}</div>'


def _documents(texts: Mapping[str, str]) -> Iterator[str]:
    yield html_page.note("As their tokens decode: without case for BERT's tokenizers.")
    for name, text in islice(texts.items(), SHOWN):
        start = text if len(text) <= LONGEST else text[:LONGEST] + "…"
        lines = "".join(html_page.paragraph(line) for line in start.split("\n"))
        yield f"<h3>{html_page.escape(printable(name[:200]))}</h3>{lines}"
