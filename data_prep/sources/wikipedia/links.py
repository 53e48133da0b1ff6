"""Pairs of Wikipedia's XML dumps: what links call a page, and the lead of that page."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from deepsiam.data_prep.common.errors import InputError
from deepsiam.data_prep.sources.document import Bad, Document, Dropped
from deepsiam.data_prep.sources.pairing import is_short, lead
from deepsiam.data_prep.sources.source import Choices, File, Join, Piece, Source
from deepsiam.data_prep.sources.wikipedia.articles import WIKIPEDIA, Article, article, left_out
from deepsiam.data_prep.sources.wikipedia.wikitext import Wiki, plain
from deepsiam.data_prep.text.normalize import fold, unescape

BEST_NAMES = 3  # names of a page

# [[target|words]]ending; a link to a section does not lead to a lead
_LINK = re.compile(r"\[\[([^\[\]{}|<>\n#]{1,255})(?:\|([^\[\]{}|\n]{1,200}))?\]\]([^\W\d_]*)")
_SECTION = re.compile(r"^==", re.MULTILINE)
_MARKUP = re.compile(r"''|[&<>\[\]]")


class Mention(NamedTuple):
    """A name of a page, or the page itself, with its lead."""

    title: str  # of the page, as `canonical` writes it
    name: str  # what a link shows, the title of a redirect, or the page's own title
    id: str = ""  # the page's, if this is the page itself
    lead: str = ""


def canonical(title: str) -> str:
    """Return a title in the form that all links to its page share, as MediaWiki does."""
    title = " ".join(unescape(title).replace("_", " ").split())
    return title[:1].upper() + title[1:]


def _pieces(file: File, choices: Choices) -> Iterator[Piece]:
    for piece in WIKIPEDIA.pieces(file, choices):
        if not isinstance(piece.content, Article | Bad):
            raise InputError(f"{file.path}: has no links; name an XML dump (pages-articles), or leave it out")
        yield piece


def _read(file: File, piece: Piece, choices: Choices) -> Iterator[Mention | Dropped]:
    """Yield a page with its lead and the names that it calls others, each once; of a redirect, its own name."""
    page, wiki = piece.content
    reason = left_out(page, keep_disambiguation=False)
    if reason == "redirect":
        target, _ = next(_links(page.text, wiki), ("", ""))
        yield Mention(target, page.title) if target else Dropped("redirect to no page")
    elif reason:
        yield Dropped(reason)
    else:
        excerpt = _SECTION.split(page.text, maxsplit=1)[0]
        document = article(Article(replace(page, text=excerpt), wiki), WIKIPEDIA.choices())
        beginning = lead(document) if isinstance(document, Document) else ""
        yield Mention(canonical(page.title), page.title, page.id, beginning)
        for target, name in dict.fromkeys(_links(page.text, wiki)):
            yield Mention(target, name)


def _links(text: str, wiki: Wiki) -> Iterator[tuple[str, str]]:
    """Yield the title and the words of each link to a page; of no file or category."""
    unwanted = wiki.hiding | wiki.media
    for target, words, ending in _LINK.findall(text):
        title = canonical(target)
        if title and title.partition(":")[0].strip().lower() not in unwanted and not title.startswith(":"):
            shown = (words or target.replace("_", " ")) + ending
            yield title, " ".join(plain(shown).segments if _MARKUP.search(shown) else shown.split())


def _documents(fragments: list[Any], _: Choices) -> Iterator[Document | Dropped]:
    """Yield a page's lead with each of its BEST_NAMES: those that most pages use, of equal ones the first.

    Names differ if their letters and digits do, except for case: AtlasShrugged is Atlas Shrugged. The title makes no
    pair, nor does a name without a letter, such as a year.
    """
    entries = [Mention(*fragment) for fragment in fragments]
    page = min((entry for entry in entries if entry.id), key=lambda entry: (len(entry.id), entry.id), default=None)
    if page is None:
        yield Dropped("no such page")
        return
    if is_short(page.lead):
        yield Dropped("no text or short")
        return
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in entries:
        if not entry.id and any(map(str.isalpha, entry.name)):
            spellings[_letters(entry.name)][entry.name] += 1
    spellings.pop(_letters(page.name), None)
    names = sorted(spellings, key=lambda name: (-spellings[name].total(), name))[:BEST_NAMES]
    if not names:
        yield Dropped("no other name")
    for number, spelt in enumerate((spellings[letters] for letters in names), 1):
        name = min(spelt, key=lambda name: (-spelt[name], name))
        yield Document(f"wikipedia/{page.id}/link/{number}", (name, page.lead), group=f"wikipedia/{page.id}")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, fold(name)))


# Every page of the dump is a Mention, or is Dropped for the reasons of articles.py. A redirect is a name of the page
# that it leads to; links to the redirect are not followed to that page.
WIKIPEDIA_LINKS = Source(
    summary="Wikipedia's links, as pairs: what a page is called and its lead (XML dumps)",
    find=WIKIPEDIA.find,
    pieces=_pieces,
    read=_read,
    paragraphs=False,
    pairs=True,
    join=Join(lambda _: "", _documents),  # what a page mentions belongs to many pages
    later=0.4,
    example="enwiki-latest-pages-articles-multistream.xml.bz2 --out data/wikipedia_links --held-out 0.001",
)
